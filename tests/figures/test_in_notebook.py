"""What a figure gives a notebook: JupyterLab's form, one for an export, and words; nothing from the network."""

from __future__ import annotations

import base64
import gzip
import hashlib
import json
import re

import pandas as pd
import pytest

from ticdc_lab import figures, in_words
from ticdc_lab.errors import SourceError
from ticdc_lab.figures.plotly_js import SHA256, library


def unpacked(packed: str) -> str:
    """Text that a page unpacks."""
    return gzip.decompress(base64.b64decode(packed)).decode()


def test_a_figure_shows_itself_in_three_forms() -> None:
    """Its toolbar has no upload, its finding is the text, neither form loads anything, the HTML is the same JSON."""
    fig = figures.violations(pd.DataFrame())
    bundle = fig._repr_mimebundle_()
    assert set(bundle) == {"application/vnd.plotly.v1+json", "text/html", "text/plain"}
    drawn = bundle["application/vnd.plotly.v1+json"]
    assert drawn["config"] == dict(figures.CONFIG) and drawn["layout"]["title"] == fig.layout.title
    assert bundle["text/plain"] == fig.layout.meta["finding"]
    (packed,) = re.findall(r'push\(\["[^"]+","([^"]+)"', bundle["text/html"])
    assert json.loads(unpacked(packed)) == drawn and "<script src" not in bundle["text/html"]
    json.dumps(bundle)


def test_the_page_gets_plotly_and_both_themes_once() -> None:
    """All that figures need lies in the page, so that an export works offline and turns dark."""
    page = figures.notebook()._repr_html_()
    assert page.count("Plotly.relayout") >= 1 and "<script src" not in page
    assert "#16181c" in page and "#ffffff" in page
    assert page.rstrip().endswith("</script>")
    (packed,) = re.findall(r'await unpacked\("([^"]+)"\)', page)
    assert unpacked(packed) == library() and len(page) < 700_000


def test_plotly_is_the_one_that_was_built() -> None:
    """Nobody changed the text that every page runs; it has the licence and the traces that we draw."""
    assert hashlib.sha256(library().encode()).hexdigest() == SHA256
    assert "MIT licence" in library()[:200]


def test_an_error_is_said_in_words_and_the_next_question_asked(capsys: pytest.CaptureFixture[str]) -> None:
    """Message and hint are printed; what is no error of this package goes through."""
    with in_words():
        raise SourceError("There is nothing at x.", hint="Look elsewhere.")
    said = capsys.readouterr().out
    assert said == "There is nothing at x.\n\nHint: Look elsewhere.\n"
    with pytest.raises(ZeroDivisionError), in_words():
        1 / 0  # noqa: B018

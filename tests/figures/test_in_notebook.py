"""What a figure gives a notebook: JupyterLab's form, one for an export, and words; nothing from the network."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pandas as pd
import plotly.io as pio
import pytest

from ticdc_lab import figures
from ticdc_lab.errors import SourceError, in_words


@pytest.fixture(autouse=True)
def as_before() -> Iterator[None]:
    """Other tests keep their renderer."""
    default = pio.renderers.default
    yield
    pio.renderers.default = default


def test_a_figure_shows_itself_in_three_forms() -> None:
    """Its toolbar has no upload, its finding is the text, and neither form loads anything."""
    figures.notebook()
    fig = figures.violations(pd.DataFrame())
    bundle = pio.renderers[pio.renderers.default].to_mimebundle(fig.to_dict())
    assert set(bundle) == {"application/vnd.plotly.v1+json", "text/html", "text/plain"}
    assert bundle["application/vnd.plotly.v1+json"]["config"] == dict(figures.CONFIG)
    assert bundle["text/plain"] == fig.layout.meta["finding"]
    assert "Plotly.newPlot" in bundle["text/html"] and "<script src" not in bundle["text/html"]
    json.dumps(bundle)


def test_the_page_gets_plotly_and_both_themes_once() -> None:
    """All that figures need lies in the page, so that an export works offline and turns dark."""
    page = figures.notebook()._repr_html_()
    assert page.count("Plotly.relayout") >= 1 and "<script src" not in page
    assert "#16181c" in page and "#ffffff" in page
    assert page.rstrip().endswith("</script>")


def test_an_error_is_said_in_words_and_the_next_question_asked(capsys: pytest.CaptureFixture[str]) -> None:
    """Message and hint are printed; what is no error of this package goes through."""
    with in_words():
        raise SourceError("There is nothing at x.", hint="Look elsewhere.")
    said = capsys.readouterr().out
    assert said == "There is nothing at x.\n\nHint: Look elsewhere.\n"
    with pytest.raises(ZeroDivisionError), in_words():
        1 / 0  # noqa: B018

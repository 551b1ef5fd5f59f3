"""What a figure gives a notebook: HTML that our own script draws, and words; nothing from the network."""

from __future__ import annotations

import base64
import gzip
import hashlib
import re
import sys
from pathlib import Path
from types import SimpleNamespace
from urllib.parse import urlsplit
from urllib.request import url2pathname

import pandas as pd
import pytest

from ticdc_lab import figures, in_words
from ticdc_lab.errors import SetupError, SourceError
from ticdc_lab.figures import in_notebook
from ticdc_lab.figures.figure import Figure, Scatter
from ticdc_lab.figures.in_notebook import PAGE_MARK, figure_of
from ticdc_lab.figures.plotly_js import SHA256, library


def unpacked(packed: str) -> str:
    """Text that a page unpacks."""
    return gzip.decompress(base64.b64decode(packed)).decode()


def test_a_figure_shows_itself_and_in_words() -> None:
    """Its toolbar has no upload, its finding is the text, nothing is loaded.

    It has no form that an extension of JupyterLab draws: plotly's keeps a picture of each figure in the notebook, as
    high as its box was by chance.
    """
    fig = figures.violations(pd.DataFrame())
    bundle = fig._repr_mimebundle_()
    assert set(bundle) == {"text/html", "text/plain"}
    drawn = figure_of(bundle["text/html"])
    assert drawn is not None and drawn["config"] == dict(figures.CONFIG)
    assert drawn["layout"]["title"] == fig.layout.title
    assert bundle["text/plain"] == fig.layout.meta["finding"] and bundle["text/plain"] in bundle["text/html"]
    assert "<script src" not in bundle["text/html"] and figure_of("<p>none</p>") is None


def test_the_first_figure_of_a_kernel_brings_what_the_page_needs(monkeypatch: pytest.MonkeyPatch) -> None:
    """And no other one, unless the cell that brought it runs again, whose output is then another."""
    ran = {"metadata": {"cellId": "a"}, "header": {"msg_id": "1"}}
    kernel = SimpleNamespace(get_parent=lambda _: ran)
    monkeypatch.setitem(sys.modules, "IPython", SimpleNamespace(get_ipython=lambda: SimpleNamespace(kernel=kernel)))
    monkeypatch.setattr(in_notebook, "_brought", {})

    def brings() -> bool:
        return in_notebook.PAGE_MARK in figures.violations(pd.DataFrame())._repr_mimebundle_()["text/html"]

    assert [brings(), brings()] == [True, False]
    ran |= {"metadata": {"cellId": "b"}, "header": {"msg_id": "2"}}
    assert not brings()
    ran |= {"metadata": {"cellId": "a"}, "header": {"msg_id": "3"}}
    assert [brings(), brings()] == [True, False]
    monkeypatch.setattr(in_notebook, "_brought", {})
    figures.notebook()._repr_html_()
    ran |= {"metadata": {"cellId": "c"}, "header": {"msg_id": "4"}}
    assert not brings()


def test_a_figure_behind_a_panel_brings_it_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """JupyterLab displays the panel's widget: nothing of what is in for it runs."""
    kernel = SimpleNamespace(get_parent=lambda _: {"metadata": {"cellId": "a"}, "header": {"msg_id": "1"}})
    monkeypatch.setitem(sys.modules, "IPython", SimpleNamespace(get_ipython=lambda: SimpleNamespace(kernel=kernel)))
    for name in ("_brought", "_fallbacks"):
        monkeypatch.setattr(in_notebook, name, {})
    drawn = figures.violations(pd.DataFrame())
    bundles = [in_notebook.mime_bundle(drawn, fallback=is_panel) for is_panel in (True, True, False, False)]
    assert [in_notebook.PAGE_MARK in bundle["text/html"] for bundle in bundles] == [True, False, True, False]


def test_the_page_gets_plotly_and_both_themes_once() -> None:
    """All that figures need lies in the page, so that an export works offline and turns dark."""
    page = figures.notebook()._repr_html_()
    assert page.count("Plotly.relayout") >= 1 and "<script src" not in page
    assert "#16181c" in page and "#ffffff" in page
    assert page.rstrip().endswith("</script>")
    (packed,) = re.findall(r'await unpacked\("([^"]+)"\)', page)
    assert unpacked(packed) == library() and len(page) < 700_000


def test_plotly_is_the_one_that_was_built() -> None:
    """No one changed the text that every page runs; it has the licence and the traces that we draw."""
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


def test_a_script_shows_a_figure_without_plotlys_package(monkeypatch: pytest.MonkeyPatch) -> None:
    """The light set has none: a page draws by the script that comes with us, and `go` names what is missing."""
    opened: list[str] = []
    monkeypatch.delitem(sys.modules, "IPython.display", raising=False)
    monkeypatch.setattr("webbrowser.open", opened.append)
    fig = Figure(Scatter(y=[1, 2]))
    with monkeypatch.context() as without:
        without.setitem(sys.modules, "plotly.graph_objects", None)
        fig.show()
        with pytest.raises(SetupError, match="pip install 'plotly>=6'"):
            fig.go()
    page = Path(url2pathname(urlsplit(opened[0]).path))
    drawn = page.read_text(encoding="utf-8")
    page.unlink()
    assert figure_of(drawn) is not None and PAGE_MARK in drawn

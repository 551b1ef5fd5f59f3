"""Every notebook as a user meets it: opened in JupyterLab, run from top to bottom, looked at in light and dark."""

from __future__ import annotations

import pytest
from conftest import golden
from jupyter_lab import ROOT
from lab_page import LabPage, described

DARK, LIGHT = "#16181c", "#ffffff"
NOTEBOOKS = sorted(path.name for path in (ROOT / "notebooks").glob("*.ipynb"))


@pytest.mark.soak
@pytest.mark.parametrize("name", NOTEBOOKS)
def test_a_notebook_runs_and_shows_all_its_figures(lab: LabPage, name: str) -> None:
    """No cell fails, every figure shows something and turns dark, the console is silent; pictures are kept."""
    lab.open(f"notebooks/{name}")
    lab.run_all()
    try:
        assert lab.cell_errors() == []
        lab.until(lambda: lab.plots() and all(p.svg for p in lab.plots()), "all figures are drawn")
        plots = lab.plots()
        assert len(plots) >= (2 if name.startswith("11") else 3)
        assert not [p.title for p in plots if p.traces and p.blank()], described(plots)
        assert not [p.title for p in plots if not p.finding or not p.title], described(plots)
        lab.whole_page()
        for theme, paper in (("dark", DARK), ("light", LIGHT)):
            lab.dark(theme == "dark")
            lab.until(
                lambda wanted=paper: {p.paper for p in lab.plots() if p.paper} == {wanted}, f"all figures are {theme}"
            )
            lab.until(lambda: all(p.fitted for p in lab.plots()), "all figures fit")
            lab.picture(f"{name[:2]}-{theme}", lab.all(".jp-NotebookPanel")[0])
        assert lab.complaints() == []
    finally:
        lab.picture(f"{name[:2]}-end")
        lab.closed()


REOPENED = (1, pytest.param(13, marks=pytest.mark.soak))
_SAVE = "const [done] = arguments; window.opened.context.save().then(() => done(null), (error) => done(String(error)))"
_BOXES = """
return [...document.querySelectorAll('.ticdc-drawn, .ticdc-plot')].map((n) => [
  n.querySelectorAll('.main-svg').length > 0 || n.querySelector('.ticdc-words') !== null, n.clientHeight]);
"""


@pytest.mark.parametrize("times", REOPENED)
def test_figures_keep_their_height_however_often_a_notebook_is_opened_again(lab: LabPage, times: int) -> None:
    """With a live kernel, the notebook saved each time: figures of answers and of panels are drawn, none is a strip."""
    source = str(golden("messages_open-protocol_small.jsonl.gz"))
    path = lab.made(
        "reopened",
        f"import ticdc_lab\nfrom ticdc_lab import widgets\nlog = ticdc_lab.open({source!r})\nlog.watermarks()",
        "log.transactions()",
        "widgets.what_if_panel(log.measured, partitions=4)",
    )
    lab.open(path)
    lab.run_all()

    def heights() -> list[int]:
        boxes = lab.browser.execute_script(_BOXES)
        return [height for _, height in boxes] if len(boxes) == 3 and all(drawn for drawn, _ in boxes) else []

    try:
        first = lab.until(heights, "all figures are drawn", within_s=120)
        assert min(first) > 60
        for n in range(times):
            assert lab.browser.execute_async_script(_SAVE) is None
            lab.open(path)
            again = lab.until(heights, f"all figures are drawn when it is opened for the {n + 2}th time", within_s=60)
            assert [abs(a - b) <= 20 for a, b in zip(again, first, strict=True)] == [True] * len(first), (again, first)
        assert lab.complaints() == []
    finally:
        lab.picture("reopened")
        lab.closed()

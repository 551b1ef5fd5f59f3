"""Every notebook as a user meets it: opened in JupyterLab, run from top to bottom, looked at in light and dark."""

from __future__ import annotations

import pytest
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
            lab.until(lambda wanted=paper: {p.paper for p in lab.plots()} == {wanted}, f"all figures are {theme}")
            lab.until(lambda: all(p.fitted for p in lab.plots()), "all figures fit")
            lab.picture(f"{name[:2]}-{theme}", lab.all(".jp-NotebookPanel")[0])
        assert lab.complaints() == []
    finally:
        lab.picture(f"{name[:2]}-end")
        lab.closed()

"""Notebooks run from top to bottom, ask one question, and keep no output in git."""

from __future__ import annotations

import ast
from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

ROOT = Path(__file__).resolve().parent.parent
NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.ipynb"))
MOST_CODE_CELLS = 16
OWN_POLICY = "policy"
"""Tag of a cell in which a user writes a function: that one can is what it shows."""

DEFINES = ast.FunctionDef | ast.ClassDef | ast.AsyncFunctionDef
SLOW = ("03", "04")
"""Minutes each; run by hand with -m soak, so that the suite stays below its 25 minutes."""


def code(path: Path) -> list[nbformat.NotebookNode]:
    """Code cells of a notebook."""
    return [c for c in nbformat.read(path, as_version=4).cells if c.cell_type == "code"]


def test_there_are_notebooks() -> None:
    """The tests below would pass on an empty folder."""
    assert [p.stem[:2] for p in NOTEBOOKS] == ["01", "02", "03", "04", "05", "06", "07", "08", "09"]


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda p: p.stem)
def test_notebook_is_prose_and_calls(path: Path) -> None:
    """Few code cells, nothing defined but a policy of one's own, parameters in one tagged cell, answers checked."""
    cells = code(path)
    assert len(cells) <= MOST_CODE_CELLS
    trees = [ast.parse(c.source) for c in cells]
    nodes = [n for tree in trees for n in ast.walk(tree)]
    told = [t for c, t in zip(cells, trees, strict=True) if OWN_POLICY not in c.metadata.get("tags", [])]
    assert not [n for t in told for n in ast.walk(t) if isinstance(n, DEFINES)]
    assert sum("parameters" in c.metadata.get("tags", []) for c in cells) == 1
    assert sum(isinstance(n, ast.Assert) for n in nodes) >= 5
    assert not any(c.outputs or c.execution_count for c in cells)


@pytest.mark.parametrize(
    "path", [pytest.param(p, marks=pytest.mark.soak if p.stem[:2] in SLOW else (), id=p.stem) for p in NOTEBOOKS]
)
def test_notebook_runs(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every cell runs in a fresh kernel, no assert fails, and plots come out."""
    monkeypatch.setenv("PLOTLY_RENDERER", "plotly_mimetype")
    notebook = nbformat.read(path, as_version=4)
    NotebookClient(notebook, timeout=400, resources={"metadata": {"path": str(path.parent)}}).execute()
    outputs = [o for c in notebook.cells for o in c.get("outputs", [])]
    plots = [o for o in outputs if "application/vnd.plotly.v1+json" in o.get("data", {})]
    errors = [o for o in outputs if o.output_type == "error"]
    assert errors == []
    assert len(plots) >= 4

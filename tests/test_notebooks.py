"""Notebooks are one set: each asks one question, leads to the next, runs, and keeps no output in git."""

from __future__ import annotations

import ast
import importlib
import pkgutil
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import yaml

from ticdc_lab.engine.sail_process import FEW_SEARCHES
from ticdc_lab.figures.in_notebook import figure_of

if TYPE_CHECKING:  # it takes more than a second, which every worker would spend when it looks for tests
    import nbformat
    from jupyter_client.manager import KernelManager

ROOT = Path(__file__).resolve().parent.parent
NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.ipynb"))
START = NOTEBOOKS[0]
SET = (
    "00_start_here", "01_what_is_in_this_log", "02_watermarks", "03_transactions", "04_dispatch_what_if",
    "05_consumer_consistency", "06_table_scheduling", "07_replication_pipeline", "08_pd_scheduling", "09_ddl_service",
    "10_partition_expansion", "11_what_a_protocol_loses",
)  # fmt: skip
CHECKS = yaml.safe_load((ROOT / "tests/data/notebook_checks.yaml").read_text(encoding="utf-8"))
"""What must be true after a cell, by number of the notebook and id of the cell: readers see none of it."""
MOST_CODE_CELLS = 16
MOST_IMPORTS = 3
OWN_POLICY = "policy"
"""Tag of a cell in which a user writes a function: that one can is what it shows."""

DEFINES = ast.FunctionDef | ast.ClassDef | ast.AsyncFunctionDef
SLOW = ("10",)
"""What takes half a minute of a core is run by hand with -m soak."""

DATA = ROOT / "data"
GOLDEN = ROOT / "tests/data/golden"
STORAGE = GOLDEN / "storage_small.tar.gz"
"""Folders that the storage sink wrote, by their names in it."""

LOGS = {
    "open-protocol of a bank": GOLDEN / "messages_open-protocol_bank.jsonl.gz",
    "simple": DATA / "messages_simple_small.jsonl.gz",
    "small_csv": STORAGE,
    "small_csv_committs_oldvalue": STORAGE,
    "canal-json without commit_ts": GOLDEN / "messages_canal-json_small.jsonl.gz",
}
"""Logs of other kinds than those that the notebooks come with."""

OF_A_LOG = ("01", "02", "03", "04", "05", "10")
LINK = re.compile(r"\]\(([^)]+\.ipynb)\)")


def cells(path: Path, kind: str) -> list[nbformat.NotebookNode]:
    """Cells of a notebook of one kind, ``code`` or ``markdown``."""
    import nbformat

    return [c for c in nbformat.read(path, as_version=4).cells if c.cell_type == kind]


def linked(cell: nbformat.NotebookNode) -> list[str]:
    """Notebooks that a cell links to."""
    return [Path(name).stem for name in LINK.findall(cell.source)]


PANELS = {"01": {"browse", "row", "table"}, "04": {"what-if"}, "05": {"consumer"}}
"""The panels of a log that a notebook shows."""

USED_AFTER_RUN_ALL = """
import asyncio, gc
from ticdc_lab.widgets.panel import Panel

OTHER = {"browse": "partition", "row": "table", "table": "ts", "what-if": "partitions", "consumer": "policy"}


async def answers_anew(panel):
    control, before = panel.controls[OTHER[panel.name]], panel.figure.to_json()
    options = [o[1] if isinstance(o, tuple) else o for o in getattr(control, "options", (7,))]
    control.value = next(o for o in options if o not in (control.value, None, ""))
    for _ in range(600):
        await asyncio.sleep(0.1)
        if panel.problem is not None or panel.figure.to_json() != before:
            return panel.problem is None
    return False


asked = {p.name: await answers_anew(p) for p in gc.get_objects() if isinstance(p, Panel) and p.name in EXPECTED}
assert asked == dict.fromkeys(EXPECTED, True), asked
"""
"""Changes a control of every panel, as a reader does who has run all cells, and waits for another figure."""


@pytest.fixture(scope="module")
def kernel() -> Iterator[KernelManager]:
    """Give one kernel for all notebooks: what each of its own would import and begin again takes most of their time."""
    from jupyter_client.manager import KernelManager

    manager = KernelManager()
    yield manager
    manager.shutdown_kernel(now=True)


def executed(path: Path, kernel: KernelManager, parameters: str = "") -> nbformat.NotebookNode:
    """A notebook after a run in which no name of an earlier one is known, with lines added to its parameters.

    As it comes, each cell's checks run behind it, and its panels are used at the end.
    """
    import nbformat
    from nbclient import NotebookClient

    notebook = nbformat.read(path, as_version=4)
    if not parameters:
        notebook.cells = checked(notebook.cells, CHECKS[path.stem[:2]])
    if shown := PANELS.get(path.stem[:2], set()) if not parameters else set():
        after = USED_AFTER_RUN_ALL.replace("EXPECTED", repr(sorted(shown)))
        notebook.cells.append(nbformat.v4.new_code_cell(after))
    tagged = next(c for c in notebook.cells if "parameters" in c.metadata.get("tags", []))
    tagged.source += f"\n{parameters}"
    notebook.cells.insert(0, forgetting := nbformat.v4.new_code_cell("%reset -f"))
    where, begin = {"metadata": {"path": str(path.parent)}}, f"import gc; gc.set_threshold({FEW_SEARCHES})"
    client = NotebookClient(
        notebook, km=kernel, timeout=400, resources=where, extra_arguments=[f"--IPKernelApp.exec_lines={begin}"]
    )
    try:
        client.execute()
    finally:
        client.kc.stop_channels()
    notebook.cells.remove(forgetting)
    return notebook


def checked(shown: list[nbformat.NotebookNode], checks: dict[str, str]) -> list[nbformat.NotebookNode]:
    """The cells, each followed by its checks."""
    import nbformat

    behind = {cell: nbformat.v4.new_code_cell(code) for cell, code in checks.items()}
    return [part for cell in shown for part in (cell, behind.get(cell.id)) if part is not None]


def outputs(notebook: nbformat.NotebookNode) -> list[nbformat.NotebookNode]:
    """All outputs of an executed notebook."""
    return [o for c in notebook.cells for o in c.get("outputs", [])]


def plots(notebook: nbformat.NotebookNode) -> int:
    """How many figures an executed notebook shows."""
    return sum(figure_of(o.get("data", {}).get("text/html", "")) is not None for o in outputs(notebook))


def test_checks_run_behind_their_cells() -> None:
    """In the order of the notebook; a cell without any stays alone."""
    import nbformat

    shown = [nbformat.v4.new_code_cell(code, id=name) for name, code in (("a", "x = 1"), ("b", "x = 2"))]
    assert [c.source for c in checked(shown, {"b": "assert x == 2"})] == ["x = 1", "x = 2", "assert x == 2"]


def test_the_set_is_whole() -> None:
    """The tests below would pass on an empty folder."""
    assert tuple(p.stem for p in NOTEBOOKS) == SET


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda p: p.stem)
def test_notebook_is_prose_and_calls(path: Path) -> None:
    """Few code cells, no definition except a policy, parameters in one tagged cell; checks are not shown."""
    code = cells(path, "code")
    assert len(code) <= MOST_CODE_CELLS
    trees = [ast.parse(c.source) for c in code]
    nodes = [n for tree in trees for n in ast.walk(tree)]
    told = [t for c, t in zip(code, trees, strict=True) if OWN_POLICY not in c.metadata.get("tags", [])]
    assert not [n for t in told for n in ast.walk(t) if isinstance(n, DEFINES)]
    assert sum("parameters" in c.metadata.get("tags", []) for c in code) == 1
    assert not [n for n in nodes if isinstance(n, ast.Assert)]
    checks = CHECKS[path.stem[:2]]
    assert set(checks) <= {c.id for c in code}
    assert sum(isinstance(n, ast.Assert) for code in checks.values() for n in ast.walk(ast.parse(code))) >= 5
    assert not any(c.outputs or c.execution_count for c in code)


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda p: p.stem)
def test_notebook_uses_public_names(path: Path) -> None:
    """What it imports of the package is a room, or in a room's ``__all__``; no cell imports in over three lines."""
    assert [line for c in cells(path, "code") for line in inner_names(c.source)] == []


def inner_names(source: str) -> list[str]:
    """Imports of a cell that are not public, and all of them where they are too many."""
    lines = [n for n in ast.walk(ast.parse(source)) if isinstance(n, ast.Import | ast.ImportFrom)]
    too_many = [ast.unparse(n) for n in lines] if len(lines) > MOST_IMPORTS else []
    return too_many + [ast.unparse(n) for n in lines if isinstance(n, ast.ImportFrom) and not _is_public(n)]


def _is_public(node: ast.ImportFrom) -> bool:
    if not str(node.module).startswith("ticdc_lab"):
        return True
    room = importlib.import_module(str(node.module))
    rooms = {m.name for m in pkgutil.iter_modules(room.__path__) if m.ispkg} if hasattr(room, "__path__") else set()
    return hasattr(room, "__path__") and {a.name for a in node.names} <= {*getattr(room, "__all__", ()), *rooms}


def test_an_inner_name_is_found() -> None:
    """The check above sees a deep import, a name that is not public, and a long list."""
    assert inner_names("from ticdc_lab.consumer.model import run") and inner_names("from ticdc_lab import tso")
    assert inner_names("import a\nimport b\nimport c\nimport d") and not inner_names("from ticdc_lab import figures")


@pytest.mark.parametrize("path", NOTEBOOKS[1:], ids=lambda p: p.stem)
def test_notebook_leads_back_and_on(path: Path) -> None:
    """Top and bottom lead to the start, the one before and the one after."""
    at = SET.index(path.stem)
    around = {START.stem, *SET[max(1, at - 1) : at + 2]} - {path.stem}
    text = cells(path, "markdown")
    assert set(linked(text[0])) == around == set(linked(text[-1]))


def test_the_start_leads_everywhere() -> None:
    """Each other notebook is linked from a table, and what is linked anywhere is there."""
    everywhere = {name for path in NOTEBOOKS for c in cells(path, "markdown") for name in linked(c)}
    table = next(c for c in cells(START, "markdown") if "your question" in c.source)
    assert set(linked(table)) == set(SET[1:]) and everywhere <= set(SET)


@pytest.mark.parametrize(
    "path", [pytest.param(p, marks=pytest.mark.soak if p.stem[:2] in SLOW else (), id=p.stem) for p in NOTEBOOKS]
)
def test_notebook_runs(path: Path, kernel: KernelManager) -> None:
    """Every cell runs from nothing, no check fails, and plots come out, with what an export needs.

    The panels of a log outlive Run All: they answer when a control is changed behind the last cell.
    """
    notebook = executed(path, kernel)
    assert [o for o in outputs(notebook) if o.output_type == "error"] == []
    assert plots(notebook) >= (2 if path.stem.startswith("11") else 4)
    assert any("Plotly" in o.get("data", {}).get("text/html", "") for o in outputs(notebook))


def test_a_panel_that_does_not_outlive_run_all_is_seen(kernel: KernelManager) -> None:
    """A last cell that closes the log, as the one of 01 once stopped Spark: the panel answers no more."""
    import nbformat
    from nbclient import NotebookClient
    from nbclient.exceptions import CellExecutionError

    source = DATA / "messages_canal-json-tidb_small.jsonl.gz"
    cells = [
        f"%reset -f\nimport ticdc_lab\nfrom ticdc_lab import widgets\nlog = ticdc_lab.open({str(source)!r})",
        "panel = widgets.browse_panel(log.browser)\npanel",
        "log.close()",
        USED_AFTER_RUN_ALL.replace("EXPECTED", "['browse']").replace("gc.get_objects()", "[panel]"),
    ]
    notebook = nbformat.v4.new_notebook(cells=list(map(nbformat.v4.new_code_cell, cells)))
    client = NotebookClient(notebook, km=kernel, timeout=200)
    with pytest.raises(CellExecutionError, match="'browse': False"):
        client.execute()
    client.kc.stop_channels()


@pytest.mark.soak
@pytest.mark.parametrize("log", LOGS)
@pytest.mark.parametrize("number", OF_A_LOG)
def test_notebook_takes_any_log(number: str, log: str, tmp_path: Path, kernel: KernelManager) -> None:
    """Only the source is changed: what the log has is answered, what it does not have is reported, and
    nothing raises.
    """
    source = LOGS[log]
    if source == STORAGE:
        shutil.unpack_archive(source, tmp_path)
        source = tmp_path / "storage" / log
    path = next(p for p in NOTEBOOKS if p.stem.startswith(number))
    notebook = executed(path, kernel, f"source = {str(source)!r}")
    assert plots(notebook) >= 3

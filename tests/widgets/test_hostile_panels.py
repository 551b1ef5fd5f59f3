"""Names that are HTML, break out of scripts, turn the line or never end, in all that a notebook shows of a log."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import ipywidgets as widgets
import pytest
from hostile import EVIL, LONG, NAMES, SCRIPT, TURNED, elements, hostile
from pyspark.sql import SparkSession

from ticdc_lab import provenance, workbench
from ticdc_lab.errors import TiCDCLabError
from ticdc_lab.figures.in_notebook import mime_bundle
from ticdc_lab.widgets.panel import Panel
from ticdc_lab.widgets.tabs import TABS
from ticdc_lab.widgets.workbench import Workbench


@pytest.fixture(scope="module")
def recording(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Give the recording with these names."""
    return str(hostile(tmp_path_factory.mktemp("hostile")))


@pytest.fixture(scope="module")
def bench(spark: SparkSession, recording: str) -> Iterator[Workbench]:
    """Give a workbench that has read it."""
    opened = workbench(recording, spark).wait(300)
    yield opened
    opened.close()


def texts(value: Any, path: str = "") -> Iterator[tuple[str, str]]:
    """Every text of a figure and where it stands."""
    if isinstance(value, str):
        yield path, value
    elif isinstance(value, dict):
        for name, part in value.items():
            yield from texts(part, f"{path}.{name}")
    elif isinstance(value, list):
        for part in value:
            yield from texts(part, path)


def below(widget: Any, seen: set[int]) -> Iterator[Any]:
    """A widget and all in it."""
    if id(widget) not in seen:
        seen.add(id(widget))
        yield widget
        for child in getattr(widget, "children", ()):
            yield from below(child, seen)


def assert_harmless(shown: Any) -> None:
    """No widget below holds an element that comes of a name, or takes descriptions for HTML."""
    for widget in below(shown, set()):
        if isinstance(widget, widgets.HTML | widgets.HTMLMath):
            assert elements(widget.value) == []
        assert not getattr(widget, "description_allow_html", False)


def assert_text(panel: Panel[Any]) -> None:
    """What plotly reads HTML in has none of a name's, nor a name of any length; what a click selects is no text."""
    shown = json.loads(panel.figure.to_json())
    for path, text in texts(shown):
        if ".meta.selects" not in path:
            assert elements(text) == [] and len(text) < 5_000, (path, text[:200])
    assert elements(panel.view.description) == []


@pytest.mark.parametrize("tab", list(TABS))
def test_every_tab_shows_hostile_names_as_text(bench: Workbench, tab: str) -> None:
    """Its panel is drawn; each of its tables can be chosen, and what is reported of it stays text too."""
    panel = bench.panels[tab]
    assert_text(panel)
    table = panel.controls.get("table")
    tables = {EVIL, NAMES["nopk"], TURNED, LONG}
    for chosen in [o for o in getattr(table, "options", ()) if any(t in str(o) for t in tables)][:4]:
        name = chosen[1] if isinstance(chosen, tuple) else chosen
        table.value = name
        panel.redraw()
        assert_text(panel)
        if panel.problem is not None:
            assert "has no table" not in panel.problem.message and len(panel.problem.message) < 5_000
    assert_harmless(bench.widget)


def test_what_a_wrong_source_is_called_stays_text(spark: SparkSession, bench: Workbench, tmp_path: Path) -> None:
    """A folder, a file and a text that cannot be opened are reported as they are."""
    folder = tmp_path / EVIL.replace("/", "")
    folder.mkdir()
    (folder / "<script>1.jsonl").write_text("no message\n")
    wrong = workbench(str(folder / "<script>1.jsonl"), spark)
    for source in (str(folder), SCRIPT, f"{folder}/x{EVIL}"):
        wrong.look(source)
        with pytest.raises(TiCDCLabError):
            wrong.wait(60)
        assert_harmless(wrong.widget)
    wrong.close()


def test_reprs_are_text(bench: Workbench, recording: str) -> None:
    """Of a log, its answers, what they were made from, and of figures in an export."""
    log = bench.pages.log
    assert log is not None
    answers = [log.contents(), log.audit(), log.transactions(), log.messages(), log.row(log.tables[0])]
    made = provenance(recording, settings={EVIL: SCRIPT, "table": TURNED})
    for shown in (log, made, *answers):
        assert elements(shown._repr_html_()) == []
    for figure in (figure for answer in answers for figure in answer.figures.values()):
        bundle = mime_bundle(figure)
        assert EVIL not in bundle["text/html"] and SCRIPT not in bundle["text/html"]
    assert elements(EVIL) and elements(SCRIPT) and elements(f"<b>{NAMES['users']}"), "elements() finds nothing"


def test_a_table_whose_names_have_dots_is_found(bench: Workbench) -> None:
    """Which of several dots divides schema and table the log shows; a text without one is refused."""
    log = bench.pages.log
    assert log is not None and EVIL.count(".") == 1
    found = log.table(f"{EVIL}.{EVIL}")
    assert len(found.frames["rows"]) > 0
    with pytest.raises(TiCDCLabError, match=r"is not a table; expected SCHEMA\.TABLE"):
        log.table("orders")

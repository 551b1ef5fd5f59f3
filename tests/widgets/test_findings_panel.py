"""The list of findings, headless: it can be narrowed, shows the counterexample, and leads to the messages."""

from __future__ import annotations

from typing import Any

import pandas as pd
import pytest

from ticdc_lab.figures.selecting import Selection
from ticdc_lab.widgets import Panel
from ticdc_lab.widgets.findings_panel import FindingsView, findings_panel
from ticdc_lab.widgets.linking import linked


def finding(guarantee: str, table: str | None, *places: tuple[int, int], severity: str = "error") -> dict[str, Any]:
    """A finding whose evidence is at some places."""
    evidence = [{"partition": p, "offset": o, "commit_ts": 100 + o} for p, o in places]
    own = places[-1] if places else (3, None)
    return {
        "guarantee": guarantee, "severity": severity, "table": table, "key": "id=1" if table else None,
        "commit_ts": 100, "partition": own[0], "offset": own[1], "message": f"{guarantee} <b>", "evidence": evidence,
        "cause": guarantee, "topic": "x" if table else None,
    }  # fmt: skip


FOUND = pd.DataFrame(
    [
        finding("rows_stay_in_one_partition", "s.a", (0, 1), (2, 5)),
        finding("rows_stay_in_one_partition", "s.b", (1, 1), (2, 6), severity="warning"),
        finding("marks_come", None),
    ]
).astype({"partition": "Int64", "offset": "Int64"})


@pytest.fixture
def panel() -> Panel[FindingsView]:
    """A panel of three findings."""
    return findings_panel(FOUND)


def listed(panel: Panel[FindingsView]) -> list[int]:
    """Numbers in the list."""
    numbers: list[int] = panel.controls["finding"].numbers
    return numbers


def test_the_list_is_narrowed_and_the_first_is_shown(panel: Panel[FindingsView]) -> None:
    """What is shown stays, as long as it is in the list."""
    assert listed(panel) == [1, 2, 3] and panel.figure.layout.meta["finding"].startswith(
        "s.a id=1: rows_stay_in_one_partition"
    )
    panel.controls["guarantee"].value = "rows_stay_in_one_partition"
    panel.controls["finding"].value = 2
    panel.controls["severity"].value = "warning"
    assert listed(panel) == [2] and panel.value == FindingsView("", "warning", "rows_stay_in_one_partition", 2)
    panel.controls["table"].value = "s.a"
    assert listed(panel) == [-1] and panel.figure.layout.meta["finding"] == "No finding"
    panel.controls["table"].value = ""
    assert panel.value.finding == panel.controls["finding"].list.value == 2


def test_who_chooses_a_finding_selects_its_messages(panel: Panel[FindingsView]) -> None:
    """One that names no message selects its partition; what follows a choice elsewhere is no choice."""
    heard: list[Selection] = []
    panel.on_select(heard.append)
    panel.controls["finding"].value = 2
    assert heard[-1] == Selection(
        guarantee="rows_stay_in_one_partition", table="s.b", key="id=1", messages=((1, 1), (2, 6)), topic="x"
    )
    panel.controls["finding"].value = 3
    assert heard[-1] == Selection(guarantee="marks_come", partition=3)
    panel.controls["finding"].button.click()
    assert heard[-1] == heard[-2], "the line that is chosen already"
    before = len(heard)
    panel.select(Selection(table="s.a"))
    assert panel.value == FindingsView("s.a", "", "", 1) and len(heard) == before
    panel.select(Selection())
    assert panel.value.table == "" and listed(panel) == [1, 2, 3]


def test_a_click_on_its_counterexample_is_a_message(panel: Panel[FindingsView]) -> None:
    """With the row that it is about."""
    heard: list[Selection] = []
    panel.on_select(heard.append)
    panel.view.clicked = {"curve": 1, "point": 0, "n": 1}
    assert heard == [Selection(partition=2, table="s.a", key="id=1", commit_ts=105, offset=5)]


def test_nothing_found_is_said() -> None:
    """An empty list reports it, and so does the figure."""
    panel = findings_panel(FOUND.iloc[:0])
    assert panel.controls["finding"].list.options == (("no finding", -1),)
    assert panel.figure.layout.meta["finding"] == "No finding"


def test_a_finding_that_names_no_message_stays_chosen(panel: Panel[FindingsView]) -> None:
    """The button for its messages does not let it go, nor does a filter that keeps it."""
    group = linked(panel)
    panel.controls["finding"].value = 3
    chosen = Selection(guarantee="marks_come", partition=3)
    assert group.selection == chosen
    panel.controls["finding"].button.click()
    assert group.selection == chosen
    panel.controls["guarantee"].value = "marks_come"
    assert group.selection == chosen and listed(panel) == [3]


def test_a_cause_narrows_the_list_and_a_state_of_before_has_none(panel: Panel[FindingsView]) -> None:
    """Causes with their counts; a state that was saved before causes were chosen opens."""
    state = panel.state()
    assert [n for n, _ in panel.controls["cause"].options][1] == "2 × rows_stay_in_one_partition"
    panel.controls["cause"].value = "marks_come"
    assert listed(panel) == [3] and panel.value.cause == "marks_come"
    del state["value"]["cause"]
    panel.open(state)
    assert listed(panel) == [1, 2, 3] and panel.value.cause == ""

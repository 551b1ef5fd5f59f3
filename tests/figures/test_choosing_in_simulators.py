"""Simulator figures narrowed to what was chosen, and what a click on them means."""

from __future__ import annotations

from typing import Any

import pytest
from scheduler_traces import ten_steps, troubles

from ticdc_lab import figures
from ticdc_lab.figures.figure import Figure
from ticdc_lab.figures.selecting import Selection, selected
from ticdc_lab.figures.sequence_layout import lay_out
from ticdc_lab.simulate.scheduler.run import ASSUMPTIONS, FAULTS
from ticdc_lab.widgets import linked, scheduler_panel


def trace(fig: Figure, name: str) -> int:
    """The number of a trace."""
    return next(i for i, t in enumerate(fig.data) if t.name == name)


def drawn(**of: Any) -> list[tuple[str, str]]:
    """Messages of the design's ten steps that are drawn: name with table, and receiver."""
    s = lay_out(ten_steps(), **of)
    assert s is not None
    return [(a["text"], s.lifelines[int(a["x1"])]) for a in s.arrows.to_dict("records")]


def test_a_sequence_diagram_keeps_the_messages_of_a_capture_and_of_a_table() -> None:
    """Those that it sends or receives; those about the table, from any sender."""
    assert drawn(captures=("capture-2",)) == [
        ("Announce", "capture-2"), ("Sync", "capture-1"), ("DispatchTable 2", "capture-2"),
        ("DispatchTableResponse 2", "capture-1"), ("Checkpoint", "capture-1"),
    ]  # fmt: skip
    assert drawn(tables=("1",)) == [("DispatchTable 1", "capture-1"), ("DispatchTableResponse 1", "capture-1")]
    fig = figures.sequence_diagram(ten_steps(), captures=("capture-9",), tables=("1",))
    assert "capture-9 and table 1" in fig.layout.meta["note"]


def test_marks_of_a_sequence_diagram_stand_for_nodes_and_tables() -> None:
    """A disc on top of each lifeline for the node, an arrow for its table or else its sender."""
    fig = figures.sequence_diagram(ten_steps(), reports=False)
    discs = trace(fig, "nodes")
    assert [selected(fig, discs, i) for i in (0, 1)] == [Selection(capture=f"capture-{c}") for c in (1, 2)]
    assert selected(fig, trace(fig, "DispatchTable"), 1) == Selection(table="1")
    assert selected(fig, trace(fig, "Sync"), 0) == Selection(capture="capture-1")


def test_a_gantt_of_a_capture_has_its_tables_with_all_who_had_them() -> None:
    """So that a double write is still seen; a bar represents its table and its capture."""
    fig = figures.ownership_gantt(troubles(), captures=("capture-3",))
    assert list(fig.layout.yaxis.ticktext) == ["table 1", "table 3"]
    assert fig.layout.meta["finding"].startswith("Table 1 is written by")
    bars = trace(fig, "replicating")
    assert selected(fig, bars, 0) == Selection(table="1", capture="capture-2")
    assert selected(fig, trace(fig, "two write"), 0) == Selection(table="1")
    assert selected(fig, trace(fig, "crash"), 0) == Selection(capture="capture-1")


def test_watermarks_of_a_capture_stay_beside_the_changefeed() -> None:
    """With the look that it has among all; the note shows that others are left out."""
    whole, one = figures.watermark_curves(ten_steps()), figures.watermark_curves(ten_steps(), captures=("capture-2",))
    names = [t.name for t in one.data if t.showlegend]
    assert names == ["changefeed", "capture-2"] and "1 of 2 captures is drawn" in one.layout.meta["note"]
    assert one.data[1].line.color == whole.data[2].line.color
    assert selected(one, 1, 0) == Selection(capture="capture-2") and selected(one, 0, 0) is None


@pytest.mark.parametrize(("of", "said"), [("table 2", "table 2 holds the checkpoint for 40 % of the run"),
                                          ("capture-3", "capture-3 never holds the checkpoint")])  # fmt: skip
def test_why_the_checkpoint_is_stuck_is_asked_of_one_holder(of: str, said: str) -> None:
    """How long it holds it, or that it never does."""
    fig = figures.why_stuck(troubles(), of=of)
    assert fig.layout.meta["finding"] == said
    if len(fig.data) > 1:
        assert selected(fig, 1, 0) == Selection(table="2")


class Made:
    """A run by hand."""

    trace = troubles()

    def again(self, at_us: int, faults: Any) -> Made:
        """Nothing else happens."""
        return self


def test_a_bar_of_the_gantt_narrows_the_other_panels_and_runs_nothing() -> None:
    """The sequence diagram and the reasons follow table and capture; no model runs again."""
    runs: list[Any] = []

    def simulate(*cluster: Any) -> Made:
        runs.append(cluster)
        return Made()

    panels = [scheduler_panel(simulate, variants=("v3",), assumptions=ASSUMPTIONS, faults=FAULTS) for _ in range(3)]
    gantt, reasons, marks = panels
    gantt.controls["picture"].value = "who owns what"
    reasons.controls["picture"].value = "why is the checkpoint stuck"
    marks.controls["picture"].value = "watermarks"
    group, ran = linked(*panels), len(runs)
    bars = trace(gantt.figure, "replicating")
    point = next(i for i, y in enumerate(gantt.figure.data[bars].y) if round(y) == 1)
    gantt.view.clicked = {"curve": bars, "point": point, "n": 1}
    assert group.selection == Selection(table="2", capture="capture-1")
    assert reasons.figure.layout.meta["finding"].startswith("table 2 holds the checkpoint")
    assert [t.name for t in marks.figure.data if t.showlegend] == ["changefeed", "capture-1"]
    assert len(runs) == ran and gantt.value.table == ""
    group.clear()
    assert reasons.figure.layout.meta["finding"].startswith("At ")

"""The what-if panel, headless: every control has an effect, at once, and without Spark."""

from __future__ import annotations

from dataclasses import replace

import pytest
from counted_work import lines_run
from whatifs import what_if

from ticdc_lab.figures.figure import Figure
from ticdc_lab.widgets import Panel, WhatIfView, what_if_panel


@pytest.fixture
def panel() -> Panel[WhatIfView]:
    """Two partitions to begin with."""
    return what_if_panel(what_if(), partitions=2)


def finding(panel: Panel[WhatIfView]) -> str:
    """Give the title of the panel's figure."""
    return str(panel.figure.layout.meta["finding"])


def cell(fig: Figure, start: str) -> list[str]:
    """Texts of the matrix that start so."""
    return [a.text for a in fig.layout.annotations if str(a.text).startswith(start)]


def test_matrix_counts_what_moves(panel: Panel[WhatIfView]) -> None:
    """By ts, row 1 goes to partitions 0, 1 and 1: one of its two steps is a violation."""
    assert cell(panel.figure, "<b>1</b> of 2 (50 %)<br>design: ✖") != []
    assert finding(panel).startswith("table with 2 partitions keeps row order, table order and in-table transactions")


def test_partitions_control(panel: Panel[WhatIfView]) -> None:
    """With one partition nothing can break."""
    panel.controls["partitions"].value = 1
    assert finding(panel).startswith("table with 1 partition keeps row order, table order and in-table transactions")
    assert cell(panel.figure, "<b>1</b> of") == []


def test_guarantees_follow_the_strategy(panel: Panel[WhatIfView]) -> None:
    """The title is about the chosen one, and its row is framed."""
    framed = [s for s in panel.figure.layout.shapes if s["line"]["width"] == 2]
    assert [(s["y0"], s["y1"]) for s in framed] == [(-0.49, 0.49)]
    panel.controls["strategy"].value = "ts"
    assert finding(panel).startswith("ts with 2 partitions breaks row order in 1 of 2 cases")
    (moved,) = [s for s in panel.figure.layout.shapes if s["line"]["width"] == 2]
    assert moved["y0"] != framed[0]["y0"]


def test_a_time_that_was_chosen_is_shown_or_what_more_is(panel: Panel[WhatIfView]) -> None:
    """Rows are counted by stretches of 75 ms: one that begins where the choice ends is not of it."""
    assert "stretches" not in panel.view.status
    panel.controls["time_range"].value = (1.0, 2.0)
    assert "rows are counted by stretches, so 0.975 to 2.026 s is shown" in panel.view.status
    panel.controls["time_range"].value = (0.976, 2.026)
    assert "stretches" not in panel.view.status


def test_strategy_control(panel: Panel[WhatIfView]) -> None:
    """The counterexample is the chosen strategy's; by table there is none."""
    panel.value = replace(panel.value, picture="counterexample", strategy="ts")
    assert finding(panel) == "shop.orders id=1: ts with 2 partitions breaks row order"
    panel.controls["strategy"].value = "table"
    assert finding(panel) == "table with 2 partitions breaks nothing here"


def test_tables_control(panel: Panel[WhatIfView]) -> None:
    """Only the chosen table's rows are placed."""
    panel.value = replace(panel.value, picture="rows per partition", strategy="index-value")
    assert finding(panel) == "index-value puts 4 of 5 rows in partition 1 of 2"
    panel.controls["tables"].value = ("shop.b",)
    assert finding(panel) == "index-value puts 1 of 1 row in partition 1 of 2, and 1 partition gets nothing"


def test_time_range_control(panel: Panel[WhatIfView]) -> None:
    """After its second change row 1 stays where it is, by ts with two partitions."""
    panel.value = replace(panel.value, picture="counterexample", strategy="ts", tables=("shop.orders",))
    assert "breaks row order" in finding(panel)
    panel.controls["time_range"].value = (1.5, 3.0)
    assert finding(panel) == "ts with 2 partitions breaks nothing here"


def test_load_over_time(panel: Panel[WhatIfView]) -> None:
    """By rows and by bytes: four of five rows are row 1's and table b's, in partition 1, and two breaks are seen."""
    panel.value = replace(panel.value, picture="load and breaks over time", strategy="index-value")
    assert finding(panel).startswith("index-value: partition 1 of 2 takes 80 % of the rows, 1.60 times the mean")
    panel.controls["weight"].value = "bytes"
    assert "takes 80 % of the bytes" in finding(panel)
    panel.controls["strategy"].value = "ts"
    assert "1 break of row order" in finding(panel)
    breaks = next(t for t in panel.figure.data if str(t.name).startswith("breaks row order"))
    assert sum(breaks.y) == 1


def test_rules_stand_for_a_strategy(panel: Panel[WhatIfView]) -> None:
    """Dispatchers of a changefeed file choose for each table; what is wrong with them is reported where
    the figure is.
    """
    panel.value = replace(panel.value, picture="load and breaks over time", strategy="ts")
    panel.controls["rules"].value = "[sink]\ndispatchers = [{matcher = ['shop.orders'], partition = 'index-value'}]"
    assert finding(panel).startswith("the rules: partition")
    assert "0 breaks of row order" in finding(panel)
    panel.controls[
        "rules"
    ].value = "[sink]\ndispatchers = [{matcher = ['shop.*'], partition = 'index-value', index = 'u'}]"
    assert panel.problem is not None and panel.problem.control == "rules" and panel.problem.hint
    assert finding(panel).startswith("the rules: partition"), "the last figure stays"
    panel.controls["rules"].value = "dispatchers = ["
    assert panel.problem.control == "rules" and "the rules" in panel.problem.message
    panel.controls["rules"].value = ""
    assert panel.problem is None
    assert finding(panel).startswith("ts: partition")


def test_every_picture_answers_at_once(panel: Panel[WhatIfView]) -> None:
    """Each picture is redrawn from what was counted, in little work: the longest is 40,000 lines."""
    for picture in panel.controls["picture"].options:
        view = replace(panel.value, picture=picture)
        assert lines_run(lambda: setattr(panel, "value", view)) < 200_000, picture  # noqa: B023

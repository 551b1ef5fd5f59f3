"""The log panel, headless: a value changes the figure, at once, and without Spark."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

import pandas as pd
import pytest
from counted_work import lines_run
from summaries import T0, exact, summary, ts

from ticdc_lab import answers, widgets
from ticdc_lab.facts.limits import Counts
from ticdc_lab.figures.selecting import Selection
from ticdc_lab.widgets import LogView, log_panel
from ticdc_lab.widgets.controls import time_range
from ticdc_lab.widgets.log_panel import cut_to
from ticdc_lab.widgets.tabs import TABS


def finding(panel: object) -> str:
    """Give the title of the panel's figure."""
    return str(panel.figure.layout.meta["finding"])  # type: ignore[attr-defined]


def test_picture_follows_the_control() -> None:
    """Changing one control redraws; the value reads back what was set."""
    panel = log_panel(summary())
    assert finding(panel).startswith("Partition 1 holds the minimum")
    panel.controls["picture"].value = "violations"
    assert finding(panel) == "1 error: rows stay in one partition"
    assert panel.value.picture == "violations"
    assert panel.view.description == finding(panel)


def test_a_folder_s_panel_and_the_bar_call_its_partitions_streams() -> None:
    """The control, what is chosen, and what to do where nothing lies in it."""
    panel = log_panel(replace(summary(), of_storage=True))
    linked = widgets.linked(panel, selection=Selection(partition=1))
    chooser = linked.bar._choosers["partition"]
    assert panel.controls["partition"].description == chooser.description == "stream"
    assert "<b>Chosen: stream 1</b>" in linked.bar.line.value and chooser.tooltip == "choose a stream everywhere"
    assert log_panel(summary()).controls["partition"].description == "partition"


def test_the_bar_lists_who_really_follows() -> None:
    """A picture that does not distinguish tables does not follow one, until another picture is drawn."""
    panel = log_panel(summary())
    linked = widgets.linked(panel)
    told: list[str] = []
    linked.bar.line.observe(lambda change: told.append(change["new"]), names="value")
    linked.selection = Selection(table="shop.orders", partition=0)
    assert len(told) == 1, "once, when all have followed"
    linked.selection = Selection(table="shop.orders")
    panel.controls["picture"].value = "lag"
    assert "(no panel can follow it)" in linked.bar.line.value
    panel.controls["picture"].value = "load by table"
    assert "transactions (by tables)" in linked.bar.line.value


def test_value_set_as_a_whole_redraws_once() -> None:
    """Setting the value sets every control, and draws one time."""
    panel = log_panel(summary())
    drawn = []
    draw = panel._drawing._draw
    panel._drawing._draw = lambda view: drawn.append(view) or draw(view)  # type: ignore[func-returns-value]
    whole = panel.value.time_range
    panel.value = LogView(whole, ("shop.orders",), None, "load by table")
    assert drawn == [panel.value] == [LogView(whole, ("shop.orders",), None, "load by table")]
    assert finding(panel).startswith("shop.orders takes 100 % of the rows")


def test_time_range_cuts_the_frames() -> None:
    """Only the steps inside the range count: without the last, partition 1 is behind at half of them."""
    panel = log_panel(summary())
    assert finding(panel) == "Partition 1 holds the minimum for 67 % of the steps, at most 9 s behind, to the last step"
    panel.value = LogView((0.0, 5.0), (), None, "watermark ladder")
    assert finding(panel) == "Partition 1 holds the minimum for 50 % of the steps, at most 4 s behind, to the last step"


def test_only_watermarks_of_the_chosen_time_are_counted() -> None:
    """And of a long log, where the summary has some, the panel shows that they are a sample."""
    panel = log_panel(summary())
    panel.value = LogView((0.0, 3.0), (), None, "watermark ladder")
    assert "the one watermark:" in finding(panel) and "steps are drawn" not in str(panel.figure.layout.meta["note"])
    assert "sample" not in panel.view.status
    panel = log_panel(replace(summary(), steps=summary().steps.assign(steps_total=9_000)))
    panel.value = LogView((0.0, 3.0), (), None, "watermark ladder")
    assert "a sample: 3 of the log's 9,000 watermarks" in panel.view.status


def test_tables_cut_transactions() -> None:
    """Choosing a table leaves the transactions that touch it, and the title shows that they are a choice."""
    both = summary()
    other = exact([{"commit_ts": ts(3), "n_rows": 1, "complete": True, "duplicates": 0}])
    other = other.assign(tables=[["shop.other"]], partitions=[[0]], missing=[[]])
    frame = pd.concat([both.transactions, other], ignore_index=True)
    tables = pd.concat([both.load_by_table, both.load_by_table.assign(table_name="other")], ignore_index=True)
    panel = log_panel(replace(both, transactions=frame, load_by_table=tables))
    panel.value = LogView(panel.value.time_range, ("shop.other",), None, "transactions")
    assert finding(panel).startswith("The one transaction is not pending, and is not known to be torn")
    assert finding(panel).endswith(", in a sample of 2 of 20")


def test_nothing_in_a_sample_is_not_nothing_in_the_log() -> None:
    """The summary draws some transactions of many; of the others a choice reports nothing."""
    panel = log_panel(summary())
    panel.value = LogView((0.0, 1.0), (), None, "transactions")
    assert finding(panel) == "None of a sample of 1 transaction lies in what was chosen"
    assert "The log has 20" in str(panel.figure.layout.meta["note"])


def test_what_is_shown_is_what_was_chosen() -> None:
    """A stretch ends before the next begins; where part of one was chosen the panel shows that all of it is shown."""
    more = [{"from_ms": T0 + 1000 * n, "to_ms": T0 + 1000 * (n + 1), "bucket": n} for n in range(3)]
    load = pd.concat([summary().load.head(1).assign(**of) for of in more], ignore_index=True)
    s = replace(summary(), load=load)
    cut = cut_to(s, between_ms=(T0 + 1000, T0 + 2000))
    assert cut.load["bucket"].to_list() == [1], "and not the stretch that begins where the chosen one ends"
    panel = log_panel(s)
    panel.value = LogView((1.0, 2.0), (), None, "load by partition")
    assert "stretches" not in panel.view.status
    panel.value = LogView((1.0, 2.0), ("shop.orders",), 1, "load by partition")
    assert panel.view.status.startswith("from what was measured; of all tables, which this picture does not")
    panel.value = LogView((0.0, 9.0), ("shop.orders",), 1, "load by table")
    assert panel.view.status.startswith("from what was measured; of all partitions, which this picture does not")
    panel.value = LogView((1.2, 1.4), (), None, "load by partition")
    assert "rows are counted by stretches, so 1.000 to 2.000 s is shown" in panel.view.status


def test_a_chosen_time_is_kept_to_the_millisecond() -> None:
    """A slider of 200 steps would show, and send back, another time than was chosen; a hand moves by its steps."""
    slider = time_range(9.0)
    assert slider.step == 9.0 / 200
    slider.value = (1.234, 1.236)
    assert slider.value == (1.234, 1.236) and slider.step == 0.001
    slider.value = (0.0, 9.0)
    assert slider.step == 9.0 / 200


def test_what_is_missing_qualifies_the_picture_as_it_does_the_answer() -> None:
    """Of all transactions, and of some that were chosen."""
    lacking = replace(summary(), counts=Counts(9, 9, 0, 9, lacking=3))
    answer, panel = answers.transactions(lacking), log_panel(lacking)
    panel.value = LogView(panel.value.time_range, (), None, "transactions")
    [picture] = answer.figures.values()
    told = [answer.finding, str(picture.layout.meta["finding"]), finding(panel)]
    panel.value = LogView(panel.value.time_range, ("shop.orders",), None, "transactions")
    assert all("(data in 3 missing offsets is unknown)" in words for words in [*told, finding(panel)])


def test_every_picture_answers_at_once() -> None:
    """Each picture is redrawn from the summary, in little work: the longest is 40,000 lines."""
    panel = log_panel(summary())
    for picture in panel.controls["picture"].options:
        view = LogView(panel.value.time_range, (), None, picture)
        assert lines_run(lambda: setattr(panel, "value", view)) < 200_000, picture  # noqa: B023


def test_a_partition_cuts_what_is_drawn_of_it() -> None:
    """Of watermarks its own line beside the topic's; rows, findings and transactions that have to do with it."""
    panel = log_panel(summary())
    panel.value = replace(panel.value, partition=0)
    assert finding(panel) == "Partition 0 never holds the topic back"
    assert [t.name for t in panel.figure.data if t.name and t.name.startswith("partition")] == ["partition 0"]
    panel.value = replace(panel.value, picture="violations")
    assert finding(panel) == "Nothing of this lies in what was chosen", "which is not that no guarantee is broken"
    panel.value = replace(panel.value, picture="lag", partition=1)
    assert finding(panel).startswith("The largest lag is 9 s, of partition 1, at 20")
    panel.value = replace(panel.value, picture="load by partition")
    assert len(panel.figure.data[0].z) == 1 and finding(panel) == "Partition 1 takes 25 % of the rows"
    panel.value = replace(panel.value, picture="transactions")
    assert finding(panel).endswith(", in a sample of 1 of 20")


@pytest.mark.parametrize(
    ("picture", "curve", "point", "meant"),
    [
        ("watermark ladder", 3, 0, Selection(topic="t", partition=0)),
        ("lag", 1, 0, Selection(topic="t", partition=1)),
        ("transactions", 0, 0, Selection(commit_ts=ts(8))),
        ("load by partition", 0, 1, Selection(topic="t", partition=1, between_ms=(T0, T0 + 1000))),
        ("load by partition", 1, 1, Selection(topic="t", partition=1)),
        ("load by table", 1, 0, Selection(table="shop.orders")),
        ("violations", 0, 0, Selection(guarantee="rows_stay_in_one_partition", table="shop.orders")),
    ],
)
def test_a_click_means_what_the_mark_stands_for(picture: str, curve: int, point: int, meant: Selection) -> None:
    """In every picture of a log."""
    panel = log_panel(summary())
    panel.controls["picture"].value = picture
    heard: list[Selection] = []
    panel.on_select(heard.append)
    panel.view.clicked = {"curve": curve, "point": point, "n": 1}
    assert heard == [meant]


@pytest.mark.parametrize("tab", ["overview", "watermarks", "transactions"])
def test_a_selection_gives_the_code_that_shows_the_same(tab: str) -> None:
    """The whole answer before anything is chosen; then the panel with what is chosen, which draws the same figure."""
    panel = log_panel(summary())
    at_first = panel.value
    assert TABS[tab].code_of(panel, at_first=at_first).startswith("log.")
    panel.value = replace(at_first, tables=("shop.orders",), partition=0, picture="lag")
    *made, last = TABS[tab].code_of(panel, at_first=at_first).split("; ")
    names = {"widgets": widgets, "log": SimpleNamespace(summary=summary())}
    exec("\n".join(made), names)
    again = eval(last, names)
    assert again.value == panel.value != at_first and again.figure.to_dict() == panel.figure.to_dict()

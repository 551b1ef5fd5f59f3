"""The log panel, headless: a value changes the figure, at once, and without Spark."""

from __future__ import annotations

import time
from dataclasses import replace

import pandas as pd
from summaries import exact, summary, ts

from ticdc_lab.widgets import LogView, log_panel

SLOW_MACHINE_S = 1.0
"""Well under a second is the aim (measured: about 0.05 s); the rest is room for a machine under load."""


def finding(panel: object) -> str:
    """Give the title of the panel's figure."""
    return str(panel.figure.layout.meta["finding"])  # type: ignore[attr-defined]


def test_picture_follows_the_control() -> None:
    """Changing one control redraws; the value reads back what was set."""
    panel = log_panel(summary())
    assert finding(panel).startswith("Partition 1 holds the minimum")
    panel.controls["picture"].value = "violations"
    assert finding(panel) == "1 error, all of them: rows stay in one partition"
    assert panel.value.picture == "violations"
    assert panel.output.outputs[0]["data"]["text/plain"] == finding(panel)


def test_value_set_as_a_whole_redraws_once() -> None:
    """Setting the value sets every control, and draws one time."""
    panel = log_panel(summary())
    drawn = []
    draw = panel._draw
    panel._draw = lambda view: drawn.append(view) or draw(view)  # type: ignore[func-returns-value]
    whole = panel.value.time_range
    panel.value = LogView(whole, ("shop.orders",), "load by table")
    assert drawn == [panel.value] == [LogView(whole, ("shop.orders",), "load by table")]
    assert finding(panel).startswith("shop.orders takes 100 % of the rows")


def test_time_range_cuts_the_frames() -> None:
    """Only the steps inside the range count: without the last, partition 1 is behind at half of them."""
    panel = log_panel(summary())
    assert finding(panel) == "Partition 1 holds the minimum for 67 % of the steps, at most 9 s behind"
    panel.value = LogView((0.0, 5.0), (), "watermark ladder")
    assert finding(panel) == "Partition 1 holds the minimum for 50 % of the steps, at most 4 s behind"


def test_tables_cut_transactions() -> None:
    """Choosing a table leaves the transactions that touch it, and the title says that they are a choice."""
    both = summary()
    other = exact([{"commit_ts": ts(3), "n_rows": 1, "complete": True, "duplicates": 0}])
    other = other.assign(tables=[["shop.other"]], partitions=[[0]], missing=[[]])
    frame = pd.concat([both.transactions, other], ignore_index=True)
    tables = pd.concat([both.load_by_table, both.load_by_table.assign(table_name="other")], ignore_index=True)
    panel = log_panel(replace(both, transactions=frame, load_by_table=tables))
    panel.value = LogView(panel.value.time_range, ("shop.other",), "transactions")
    assert finding(panel).startswith("The one transaction is whole")
    assert finding(panel).endswith("(of 1 chosen and drawn, of 20)")


def test_every_picture_answers_at_once() -> None:
    """Each picture is redrawn in well under a second."""
    panel = log_panel(summary())
    for picture in panel.controls["picture"].options:
        start = time.perf_counter()
        panel.value = LogView(panel.value.time_range, (), picture)
        assert time.perf_counter() - start < SLOW_MACHINE_S, picture

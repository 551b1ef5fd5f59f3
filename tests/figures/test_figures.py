"""Each figure on tiny frames: the title is the finding, names are escaped, nothing to show is a sentence."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pandas as pd
import pytest
from drawn_text import drawn_text
from whatifs import what_if

from ticdc_lab import figures
from ticdc_lab.dispatch.comparison import over_time
from ticdc_lab.dispatch.evenness import gini
from ticdc_lab.errors import ContractError
from ticdc_lab.events import tso
from ticdc_lab.events.sample import moment
from ticdc_lab.events.tso import TIME_ZONE
from ticdc_lab.figures import look, theme
from ticdc_lab.figures.figure import Figure, Scatter
from ticdc_lab.figures.matrices import PROMISES

EVIL = "<script>alert(\"1\")</script>/\n'x'"


def ts(seconds: float) -> int:
    """TSO at so many seconds."""
    return tso.compose(1_700_000_000_000 + round(seconds * 1000))


def steps(rows: list[tuple[int, int, float]], *, topic: str = "t") -> pd.DataFrame:
    """``partition, step, seconds`` to the frame of ``summary.watermark_steps``."""
    frame = pd.DataFrame(
        [(topic, p, s, ts(v)) for p, s, v in rows], columns=["topic", "partition", "step", "resolved_ts"]
    )
    frame["step_ts"] = frame.groupby("step")["resolved_ts"].transform("max")
    return frame.assign(steps_total=int(frame["step"].max()))


def homes(*partitions: int, topic: str = "t") -> pd.DataFrame:
    """Frame of partitions."""
    return pd.DataFrame({"topic": [topic] * len(partitions), "partition": list(partitions)})


def title(fig: Figure) -> str:
    """Give the finding."""
    return str(fig.layout.meta["finding"])


LAGGING = steps([(0, 1, 0), (1, 1, 0), (0, 2, 1), (0, 3, 2), (0, 4, 5), (0, 5, 6), (1, 5, 6)])


def test_ladder_names_who_holds_the_minimum() -> None:
    """Partition 1 misses three of five steps and is 5 s behind at the last of them."""
    fig = figures.watermark_ladder(LAGGING, partitions=homes(0, 1))
    held = "Partition 1 holds the minimum for {} % of the steps, at most {} s behind"
    assert title(fig) == held.format(60, 5)
    stuck = figures.watermark_ladder(LAGGING.iloc[:-1], partitions=homes(0, 1))
    assert title(stuck) == f"{held.format(80, 6)}, to the last step"
    assert stuck.layout.meta.from_end, "where it scrolls, its end comes first"
    assert "6 s behind" in [a.text for a in stuck.layout.annotations], "the band says how late it is"
    sizes = [t.marker.size for t in stuck.data if t.name == "partition 1" and t.mode == "lines+markers"]
    assert [[*size] for size in sizes] == [[5, 0, 0, 0, 0]], "it has a mark where it received a watermark"


def test_ladder_without_laggards_says_so() -> None:
    """Where every partition states every watermark no partition holds the topic back."""
    fig = figures.watermark_ladder(steps([(0, 1, 0), (1, 1, 0), (0, 2, 1), (1, 2, 1)]), partitions=homes(0, 1))
    assert title(fig) == "All 2 partitions state all 2 watermarks: no partition holds the topic back"


def test_a_ladder_of_one_moment_has_one_tick() -> None:
    """Not the ones of a millisecond around it, which lie over each other in the corner."""
    fig = figures.watermark_ladder(steps([(0, 1, 0), (1, 1, 0)]), partitions=homes(0, 1, 7))
    assert [len(axis.tickvals) for axis in (fig.layout.xaxis2, fig.layout.yaxis)] == [1, 1]
    fig = figures.watermark_ladder(steps([(0, 1, 0), (1, 1, 0)]), partitions=homes(0, 1))
    assert title(fig) == "All 2 partitions state the one watermark: no partition holds the topic back"


def test_ladder_sees_a_partition_without_any_watermark() -> None:
    """A partition that holds events and never states a watermark holds the topic back from the first step on."""
    fig = figures.watermark_ladder(steps([(0, 1, 0), (0, 2, 1)]), partitions=homes(0, 7))
    assert title(fig) == "Partition 7 holds the minimum for 100 % of the steps, without any watermark"


def test_ladder_marks_regressions_and_stalls() -> None:
    """A regression is a cross, a stall a hatched bar with its length in words."""
    columns = ["topic", "partition", "offset", "resolved_ts", "partition_resolved_ts", "step_s", "regressed", "stalled"]
    rows = [("t", 0, 9, ts(1), ts(2), -1.0, True, False), ("t", 1, 12, ts(90), ts(90), 84.0, False, True)]
    marks = pd.DataFrame(rows, columns=columns).assign(regression_s=[1.0, None])
    fig = figures.watermark_ladder(LAGGING, partitions=homes(0, 1), incidents=marks)
    assert title(fig).endswith("; 1 regression and 1 stall")
    assert [t.name for t in fig.data if t.name in ("regression", "stall")] == ["regression", "stall"]
    (stall,) = (t for t in fig.data if t.name == "stall")
    assert stall.hovertext[0].startswith("partition 1 stalled 84 s, to ") and "84 s" in [
        a.text for a in fig.layout.annotations
    ]


def test_a_stall_of_all_partitions_is_drawn_once() -> None:
    """Four times the same bar and four labels above each other would be one stall that cannot be read."""
    columns = ["topic", "partition", "offset", "resolved_ts", "partition_resolved_ts", "step_s", "regressed", "stalled"]
    rows = [("t", p, 12, ts(90), ts(90), 84.0, False, True) for p in (0, 1)]
    fig = figures.watermark_ladder(
        LAGGING, partitions=homes(0, 1), incidents=pd.DataFrame(rows, columns=columns).assign(regression_s=None)
    )
    (stall,) = (t for t in fig.data if t.name == "stall")
    assert stall.hovertext[0].startswith("all partitions stalled 84 s") and title(fig).endswith("; 1 stall")


def test_equal_lines_are_drawn_once_with_their_partitions() -> None:
    """Lines that lie on each other show one partition and hide the others."""
    same = steps([(p, n, n) for p in (0, 1, 3) for n in (1, 2)] + [(2, 1, 1)])
    fig = figures.watermark_ladder(same, partitions=homes(0, 1, 2, 3))
    assert [t.name for t in fig.data if str(t.name).startswith("partition") and t.type == "scatter"] == [
        "partitions 0, 1, 3",
        "partition 2",
    ]


def test_axes_show_the_clock_of_a_zone(monkeypatch: pytest.MonkeyPatch) -> None:
    """UTC, or the zone that is set; one that does not exist is refused with how to set it."""
    fig = figures.lag(LAGGING, partitions=homes(0, 1))
    assert fig.layout.xaxis.type == "date" and fig.layout.xaxis.title.text.endswith("(UTC)")
    utc = [float(x) for x in fig.data[0].x]
    monkeypatch.setenv(TIME_ZONE, "Asia/Shanghai")
    fig = figures.lag(LAGGING, partitions=homes(0, 1))
    assert [float(x) - 8 * 3600 * 1000 for x in fig.data[0].x] == utc
    assert fig.layout.xaxis.title.text.endswith("(Asia/Shanghai)") and fig.layout.meta.zone == "Asia/Shanghai"
    of, shown = 470603993791332352, "2026-11-21 05:56:08.308 Asia/Shanghai"
    evidence = [{"partition": 0, "offset": n, "commit_ts": of - n} for n in range(2)]
    drawn = figures.counterexample(
        finding(guarantee="nothing_below_ddl", message=f"a change below commit_ts {of}", evidence=evidence)
    )
    assert title(drawn).endswith(f" commit_ts {of} ({shown})")
    assert moment(shown) == moment("2026-11-20 21:56:08.308") == of
    assert drawn.layout.yaxis.ticktext[1].replace("<br>", " ") == f"{shown} {of}"
    change = {
        "commit_ts": of,
        "op": "insert",
        "again": False,
        "partition": 0,
        "offset": 1,
        "columns": {"id": "1", "v": None},
    }
    life = figures.row_life(pd.DataFrame([change | {"changed": ["id"]}]), table="s.t", key="id=1")
    assert "v = NULL<br>commit_ts " in str(life.to_dict()) and "None" not in str(life.to_dict()["data"])
    assert "05:56:08.308" in str(life.to_dict()) and "commit time (Asia/Shanghai)" in life.layout.meta.note
    monkeypatch.setenv(TIME_ZONE, "Mars/Base")
    with pytest.raises(ContractError, match="Mars/Base"):
        figures.lag(LAGGING, partitions=homes(0, 1))


def test_a_long_life_says_how_much_of_it_is_drawn() -> None:
    """Its title counts the versions from its begin and those to its end, which are not twice as many as are drawn."""
    change = {"op": "update", "again": False, "partition": 0, "changed": ["v"]}
    life = [change | {"commit_ts": n << 18, "offset": n, "columns": {"id": "1", "v": str(n)}} for n in range(1, 16)]
    drawn = figures.row_life(pd.DataFrame(life), table="s.t", key="id=1")
    assert title(drawn).endswith("(the first and the last 6 of 15 drawn)")
    assert all(f"v = {n}<br>" in str(drawn.to_dict()) for n in (1, 6, 10, 15)) and "v = 9<br>" not in str(
        drawn.to_dict()
    )


def test_a_column_of_null_stays_in_a_table_at_a_moment() -> None:
    """It is one of the table's; a column that no event of a page has is left out."""
    rows = pd.DataFrame({"id": [1, 2], "at": [None, None], "commit_ts": [1 << 58, 2 << 58]})
    of_table = figures.listing(rows, title="t", note="n", commit_ts="commit_ts").data[0]
    assert [str(v) for v in of_table.header["values"]] == ["<b>id</b>", "<b>at</b>", "<b>commit_ts</b>"]
    assert list(of_table.cells["values"][1]) == ["NULL", "NULL"]
    assert "at" not in str(figures.listing(rows, title="t", note="n").data[0].header["values"])


def test_a_partition_has_one_colour_in_all_figures() -> None:
    """The same partition is drawn in the same colour in ladder, band and lag."""
    ladder = figures.watermark_ladder(LAGGING, partitions=homes(0, 1))
    late = figures.lag(LAGGING, partitions=homes(0, 1))
    of_1 = [t for t in ladder.data if t.name == "partition 1"]
    colors = {(t.line.color if t.type == "scatter" else t.marker.color) for t in of_1}
    assert len(of_1) == 2
    assert colors == {next(t.line.color for t in late.data if t.name == "partition 1")} == {look.OKABE_ITO[1]}


def test_lag_names_the_largest() -> None:
    """The title shows how late, who and when."""
    fig = figures.lag(LAGGING, partitions=homes(0, 1))
    assert title(fig).startswith("The largest lag is 5 s, of partition 1, at 20") and title(fig).endswith(" UTC")


def test_lag_of_nobody_is_a_sentence() -> None:
    """A flat zero line would show less than the sentence."""
    fig = figures.lag(steps([(0, 1, 0), (1, 1, 0), (0, 2, 3), (1, 2, 3)]), partitions=homes(0, 1))
    assert title(fig) == "No partition ever lags behind another"
    assert "the longest gap between two is 3 s" in drawn_text(fig)
    assert not fig.data


def transaction(
    at: float, homes: list[int], missing: list[int], duplicates: int = 0, tables: Any = ("s.t",)
) -> dict[str, Any]:
    """One row of ``summary.transaction_sample``."""
    return {
        "commit_ts": ts(at), "n_rows": 2, "tables": list(tables), "partitions": homes, "complete": not missing,
        "missing": missing, "duplicates": duplicates,
    }  # fmt: skip


def totals(n: int, pending: int, spread: int, duplicates: int) -> pd.DataFrame:
    """Frame of ``summary.transaction_totals``."""
    return pd.DataFrame([{"n": n, "pending": pending, "spread": spread, "duplicates": duplicates}])


def test_spans_colour_pending_by_the_missing_partition() -> None:
    """A pending transaction takes the colour of the first partition it waits for; a whole one is grey."""
    sample = pd.DataFrame([transaction(0, [0, 2], []), transaction(1, [0, 1], [2, 3]), transaction(2, [0], [], 4)])
    fig = figures.transaction_spans(sample, totals=totals(3, 1, 2, 4))
    assert (
        title(fig)
        == "1 of 3 transactions is pending; 67 % touch more than one partition, 4 changes were delivered again"
    )
    qualified = figures.transaction_spans(sample, totals=totals(3, 0, 0, 0), qualified=" (1 message is unknown)")
    assert (
        title(qualified)
        == "None of 3 transactions is pending, and none is known to be torn (1 message is unknown); 0 % touch more "
        "than one partition"
    )
    unplaced = figures.transaction_spans(sample, totals=totals(3, 0, 0, 0), placed=False)
    assert title(unplaced).startswith("None of 3") and "touch more than one" not in title(unplaced)
    gaps = figures.transaction_spans(sample, totals=totals(3, 0, 0, 0), qualified=" except for data", gaps=True)
    assert title(gaps) == (
        "No transaction is pending, but those beside missing offsets may be torn; 0 % touch more than one partition"
    )
    suspected = sample.assign(gap_partitions=[[], [3], [0, 1]])
    beside = figures.transaction_spans(suspected, totals=totals(3, 0, 0, 0), lane="stream")
    assert title(beside) == (
        "2 transactions may be torn. The other transaction is not pending; 0 % touch more than one stream"
    )
    diamonds = next(t for t in beside.data if t.name.startswith("may be torn"))
    assert [*zip(diamonds.x, diamonds.y, strict=True)] == [(3, 1.0), (0, 2.0), (1, 2.0)], "where offsets are missing"
    assert diamonds.marker.symbol == "diamond-open" and "beside missing offsets of partition 3" in diamonds.hovertext[0]
    assert "A diamond is a partition where offsets are missing" in str(beside.layout.meta["note"])
    least = figures.transaction_spans(suspected, totals=totals(3, 0, 0, 0), at_least=True)
    assert title(least).startswith("At least 2 transactions may be torn. ")
    colors = {t.name: t.marker.color for t in fig.data if t.name != "delivered again"}
    assert colors == {"complete": look.GREY, "waits for partitions 2, 3": look.OKABE_ITO[2]}
    apart = pd.DataFrame([transaction(n, [0], missing) for n, missing in enumerate(([2, 3], [2], [4]))])
    names = {t.name for t in figures.transaction_spans(apart, totals=totals(3, 3, 0, 0)).data}
    assert names == {"waits for partition 2 and others", "waits for partition 4"}
    assert {t.mode for t in fig.data} == {"markers"}, "no line crosses a partition that is not touched"
    assert {t.name: [*t.x] for t in fig.data}["complete"] == [0, 2, 0]
    assert [len(t.x) for t in fig.data if t.name == "delivered again"] == [1]
    assert "A coloured row waits" in str(fig.layout.meta["note"]) and "A row of crosses is" in str(
        fig.layout.meta["note"]
    )


def test_many_spans_are_thinned_evenly_and_pending_ones_stay() -> None:
    """Hundreds of bars on a few hundred pixels are stripes; what is not whole comes first."""
    sample = pd.DataFrame([transaction(n, [0, 1], [2] if n % 50 == 0 else []) for n in range(300)])
    fig = figures.transaction_spans(sample, totals=totals(300, 6, 300, 0))
    drawn = {t.name: len({*t.y}) for t in fig.data}
    assert drawn == {"complete": 34, "waits for partition 2": 6}
    assert "40 of 300 are drawn" in str(fig.layout.meta["note"])
    beside = sample.assign(gap_partitions=[[1] if n % 3 else [] for n in range(300)])
    fig = figures.transaction_spans(beside, totals=totals(300, 6, 300, 0))
    drawn = {t.name.partition(":")[0]: len({*t.y}) for t in fig.data}
    assert drawn["may be torn"] == 38 and drawn["waits for partition 2"] >= 2, "and two that wait beside no gap"
    assert fig.layout.yaxis.ticktext[0] == "22:13:20.000"


def test_the_note_of_spans_speaks_only_of_what_is_drawn() -> None:
    """Whole transactions that came once are grey rows without a cross."""
    fig = figures.transaction_spans(pd.DataFrame([transaction(0, [0, 2], [])]), totals=totals(1, 0, 1, 0))
    assert (
        fig.layout.meta["note"]
        == "Each row of marks is one transaction, with a mark in each partition that it touches."
    )


def test_spans_show_what_a_consumer_tore_in_red() -> None:
    """Torn transactions are counted in the title, whole or pending; the others keep their look."""
    sample = pd.DataFrame([transaction(0, [0, 2], []), transaction(1, [0, 1], [2]), transaction(2, [0], [])])
    fig = figures.transaction_spans(sample, totals=totals(9, 1, 2, 0), torn={ts(0), ts(1), ts(50)})
    assert title(fig) == "3 of 9 transactions are shown in part, for a while at least"
    colors = {t.name: t.marker.color for t in fig.data if t.name != "delivered again"}
    assert colors == {"complete": look.GREY, "shown in part": look.WRONG}


def load_frame(rows: list[tuple[Any, Any, int, int]], columns: list[str]) -> pd.DataFrame:
    """Frame of ``Load.over_time``."""
    frame = pd.DataFrame(rows, columns=[*columns, "bucket", "n"])
    return frame.assign(from_ms=frame["bucket"] * 1000, to_ms=frame["bucket"] * 1000 + 1000, lanes_total=2)


def test_load_says_how_uneven_it_is() -> None:
    """Three quarters of the rows in one of two partitions: max/mean 1.5, Gini 0.25."""
    fig = figures.partition_load(
        load_frame([("t", 0, 0, 25), ("t", 1, 0, 25), ("t", 1, 3, 50)], ["topic", "partition"])
    )
    assert title(fig).startswith(
        "Partition 1 takes 75 % of the rows, 1.50 times the mean; unevenness 0.25 (Gini: 0 all alike, 1 one has all)"
    )
    assert [list(row) for row in fig.data[0].z] == [[25, 0, 0, 0], [25, 0, 0, 50]]
    assert fig.data[1].insidetextanchor == "start", "the line of the mean crosses no number"


def test_load_counts_lanes_that_are_not_drawn() -> None:
    """A share is of all rows, a mean of all lanes; partitions without a row are no other ones with fewer rows."""
    two = load_frame([("t", 0, 0, 30), ("t", 1, 0, 30)], ["topic", "partition"])
    idle = figures.partition_load(two.assign(lanes_total=64, rows_total=60, unevenness=0.97))
    assert title(idle).startswith("Partition 0 takes 50 % of the rows, as 1 other does, 32.00 times the mean; uneven")
    assert idle.layout.meta["note"].endswith("62 partitions without a row are not drawn; the mean counts all.")
    heavy = figures.partition_load(two.assign(lanes_total=4, rows_total=120, unevenness=0.0))
    assert title(heavy).startswith("Partition 0 takes 25 % of the rows, as others do, 1.00 times the mean; uneven")
    assert heavy.layout.meta["note"].endswith("A column is 1 s. 2 partitions with fewer rows are not drawn; the mean "
                                              "counts all.")  # fmt: skip
    cut = figures.partition_load(two.assign(lanes_total=4))
    assert title(cut) == "Partition 0 takes 50 % of the rows of the 2 partitions drawn, as 1 other does, 1.00 times " \
                         "the mean"  # fmt: skip


def test_a_partition_that_begins_late_has_no_lag_before() -> None:
    """Not 0 s: what it had not stated is not known. Equal laggards are named together."""
    late = steps([(0, 1, 0), (0, 2, 1), (0, 3, 2), (1, 3, 2)])
    ladder = figures.watermark_ladder(late, partitions=homes(0, 1))
    assert title(ladder) == "Partition 1 holds the minimum for 67 % of the steps, until its first watermark"
    lag = figures.lag(late, partitions=homes(0, 1))
    assert title(lag).startswith("Partition 1 has no watermark before 20") and "0 s" not in title(lag)
    two = steps([(p, 1, 0) for p in range(3)] + [(0, 2, 7184)])
    assert title(figures.watermark_ladder(two, partitions=homes(0, 1, 2))).startswith(
        "Partitions 1, 2 hold the minimum for 50 % of the steps, at most 7,184 s behind"
    )


def test_gini_of_known_distributions() -> None:
    """Equal shares give 0; one of four holding all gives 3/4; nothing gives 0."""
    assert gini([5, 5, 5]) == pytest.approx(0)
    assert gini([0, 0, 0, 8]) == pytest.approx(0.75)
    assert gini([]) == gini([0, 0]) == 0


def finding(table: str | None = "s.t", guarantee: str = "rows_stay_in_one_partition", **more: Any) -> dict[str, Any]:
    """One row of FINDINGS."""
    evidence = [
        {"partition": 2, "offset": 15, "commit_ts": ts(0)},
        {"partition": 0, "offset": 82, "commit_ts": ts(1)},
    ]
    base = {"guarantee": guarantee, "severity": "error", "table": table, "key": "id=1", "message": "the row moves"}
    return base | {"evidence": evidence} | more


def test_violations_count_by_guarantee() -> None:
    """The title counts errors and names the guarantee that is broken most; info is not counted."""
    rows = [finding(), finding(), finding(guarantee="nothing_below_ddl"), finding(severity="info")]
    fig = figures.violations(pd.DataFrame(rows))
    assert title(fig) == "3 errors in 2 guarantees; most (2): rows stay in one partition"
    tied = figures.violations(pd.DataFrame(rows[1:]))
    assert title(tied) == "2 errors in 2 guarantees; at most 1 in each"


def test_violations_of_a_capped_audit_are_a_lower_bound() -> None:
    """Where the audit lists only some of its findings, the title does not give their number as the whole."""
    more = finding(severity="info", message="17 more findings of this guarantee are not listed")
    assert title(figures.violations(pd.DataFrame([finding(), more]))).startswith("At least 1 error")


def test_counterexample_draws_only_the_partitions_involved() -> None:
    """Two messages, two lanes, one arrow upstream and one red dashed arrow back."""
    fig = figures.counterexample(finding())
    assert title(fig) == "s.t id=1: the row moves"
    assert list(fig.layout.yaxis.ticktext) == ["partition 0", "partition 2"]
    assert [t.line.dash for t in fig.data if t.mode == "lines"] == ["solid", "dash"]
    assert [a.arrowcolor for a in fig.layout.annotations if a.showarrow] == [look.GREY, look.WRONG]


@pytest.mark.parametrize("later", [5, 6])
def test_a_counterexample_of_table_order_is_about_the_table(later: int) -> None:
    """Two rows of one table: no value stays wrongly, and no row lies in both partitions."""
    evidence = [{"partition": p, "offset": 1, "commit_ts": ts} for p, ts in ((0, 5), (2, later))]
    of_table, of_row = (
        figures.counterexample(finding(guarantee=name, evidence=evidence)) for name in ("table_order", "row_order")
    )
    said = [" ".join([f.layout.meta.note, *(a.text or "" for a in f.layout.annotations)]) for f in (of_table, of_row)]
    assert "of the table" in said[0] or "the table shows" in said[0]
    assert "stays" not in said[0] and "of the row" not in said[0]
    assert "stays" in said[1] or "of the row" in said[1]


@pytest.mark.parametrize(("first", "other", "is_above"), [(0, 2, True), (2, 0, False)])
def test_no_arrow_crosses_the_words_beside_a_ring(first: int, other: int, *, is_above: bool) -> None:
    """They stand above the ring where the arrows come from below, with room for them."""
    evidence = [{"partition": p, "offset": 1, "commit_ts": ts} for p, ts in ((first, 5), (other, 6))]
    fig = figures.counterexample(finding(guarantee="row_order", evidence=evidence))
    [words] = [a for a in fig.layout.annotations if "applied last" in (a.text or "")]
    assert (words.yshift > 0) == is_above and (fig.layout.yaxis.range[1] > 2) == is_above
    assert {t.textposition for t in fig.data if t.name == "partition 2"} == {"bottom center"}, "nor that of a message"
    assert {t.textposition for t in fig.data if t.name == "partition 0"} == {"top center"}


@pytest.mark.parametrize(("values", "dtick"), [([0, 1, None], 1), ([0, 4.0], 1), ([0, 0.5], None), ([0, 9], None)])
def test_a_few_counts_have_no_tick_between_them(values: list[float | None], dtick: int | None) -> None:
    """An axis from 0 to 1 of whole numbers has no tick at 0.5; seconds, and many, keep plotly's ticks."""
    fig = theme.finish(Figure(Scatter(x=["a"] * len(values), y=values)), title="t", note="n")
    assert fig.layout.get("yaxis", {}).get("dtick") == dtick and "dtick" not in fig.layout.get("xaxis", {})


def measured(rows: list[tuple[str, str, int, int, float | None]]) -> pd.DataFrame:
    """Frame of the guarantee matrix."""
    return pd.DataFrame(rows, columns=["strategy", "guarantee", "violations", "cases", "max_over_mean"])


MATRIX = measured(
    [("table", g, 0, 9, None) for g in ("row_order", "table_order", "transactions")]
    + [("table", "balance", 0, 0, 2.5)]
    + [("ts", g, 3, 9, None) for g in ("row_order", "table_order", "transactions")]
    + [("ts", "balance", 0, 0, 1.25)]
)


def test_matrix_puts_the_count_beside_the_promise() -> None:
    """A cell holds violations, cases and the design's mark; the title names who keeps everything."""
    fig = figures.guarantee_matrix(MATRIX, partitions=4)
    assert title(fig) == (
        "Only table keeps row order, table order and transactions on this log with 4 partitions; the fullest partition "
        "takes 2.50 times the mean"
    )
    texts = [a.text for a in fig.layout.annotations]
    assert "<b>0</b> of 9<br>design: ✔" in texts
    assert "<b>3</b> of 9 (33 %)<br>design: ✖" in texts
    assert "fullest: 1.25 × mean<br>design: even" in texts


def test_matrix_promises_what_the_design_does() -> None:
    """Row order, table order, transactions, balance, as the table of the MQ design (分发方式与一致性保证) has them."""
    design = {
        "tidb-rowid": ("some", "no", "no", "even"),
        "index-value": ("some", "no", "no", "even"),
        "table": ("yes", "yes", "yes", "uneven"),
        "ts": ("no", "no", "no", "even"),
    }
    assert {strategy: PROMISES[strategy] for strategy in design} == design


def test_matrix_admits_what_was_not_measured() -> None:
    """A missing cell reports it instead of showing zero."""
    fig = figures.guarantee_matrix(MATRIX[MATRIX["guarantee"] != "balance"], partitions=4)
    assert sum("not measured" in str(a.text) for a in fig.layout.annotations) == 2


def test_skew_names_best_and_worst_at_the_chosen_count() -> None:
    """The title compares at the chosen number of partitions."""
    strategies = (("table", 3.0), ("ts", 1.1), ("conflict", 1.0))  # no changefeed file can set the last one
    rows = [(s, n, v) for s, v in strategies for n in (1, 2, 4)]
    fig = figures.skew_curves(pd.DataFrame(rows, columns=["strategy", "partitions", "max_over_mean"]), chosen=2)
    assert (
        title(fig)
        == "With 2 partitions ts is the most even (fullest partition 1.10 times the mean) and table the least (3.00)"
    )
    one = figures.skew_curves(
        pd.DataFrame(rows, columns=["strategy", "partitions", "max_over_mean"]).assign(partitions=1, max_over_mean=1.0),
        chosen=1,
    )
    assert title(one) == "With 1 partition all are alike (fullest partition 1.00 times the mean)"


NOTHING = {
    "ladder": lambda: figures.watermark_ladder(pd.DataFrame(), partitions=homes(0)),
    "lag": lambda: figures.lag(pd.DataFrame(), partitions=homes(0)),
    "spans": lambda: figures.transaction_spans(pd.DataFrame(), totals=pd.DataFrame()),
    "load": lambda: figures.partition_load(pd.DataFrame()),
    "violations": lambda: figures.violations(pd.DataFrame()),
    "counterexample": lambda: figures.counterexample(finding(evidence=[])),
    "matrix": lambda: figures.guarantee_matrix(pd.DataFrame(), partitions=3),
    "skew": lambda: figures.skew_curves(pd.DataFrame()),
}


@pytest.mark.parametrize("name", NOTHING)
def test_nothing_to_draw_is_a_sentence(name: str) -> None:
    """Empty data gives a sentence and no axis."""
    fig = NOTHING[name]()
    assert not fig.data
    assert fig.layout.xaxis.visible is False
    assert str(fig.layout.meta["note"]).endswith(".")


WITH_NAMES = {
    "spans": lambda: figures.transaction_spans(
        pd.DataFrame([transaction(0, [0], [1], 1, [EVIL])]), totals=totals(1, 1, 0, 1)
    ),
    "load": lambda: figures.partition_load(load_frame([(EVIL, EVIL, 0, 5)], ["schema_name", "table_name"]), by="table"),
    "load by topic": lambda: figures.partition_load(
        load_frame([(EVIL, 0, 0, 5), ("other", 0, 0, 5)], ["topic", "partition"])
    ),
    "violations": lambda: figures.violations(pd.DataFrame([finding(table=EVIL)])),
    "counterexample": lambda: figures.counterexample(finding(table=EVIL, key=EVIL, message=EVIL)),
    "matrix": lambda: figures.guarantee_matrix(measured([(EVIL, "row_order", 1, 2, None)]), partitions=2),
    "skew": lambda: figures.skew_curves(
        pd.DataFrame([(EVIL, 1, 1.0)], columns=["strategy", "partitions", "max_over_mean"])
    ),
}


@pytest.mark.parametrize("name", WITH_NAMES)
def test_markup_in_names_is_escaped(name: str) -> None:
    """A name with markup, quotes, a slash and a newline reaches plotly as plain text."""
    text = drawn_text(WITH_NAMES[name]())
    assert "<script" not in text
    assert "&lt;script&gt;" in text


def test_label_is_one_safe_line() -> None:
    """Control characters are shown as escapes, long names are cut before they are escaped."""
    assert theme.label("a\nb<i>") == "a\\x0ab&lt;i&gt;"
    assert theme.label("<" * 50, most=3) == "&lt;&lt;…"


def test_toolbar_offers_no_upload() -> None:
    """Neither the upload nor plotly's logo is in the toolbar, and text is at least 12 px."""
    fig = figures.watermark_ladder(LAGGING, partitions=homes(0, 1))
    layout = look.template("light").layout
    assert "sendDataToCloud" in layout.modebar.remove
    assert figures.CONFIG["displaylogo"] is False
    assert layout.font.size >= 12
    assert "font-size" not in fig.to_json()


def test_dark_theme_changes_only_the_template() -> None:
    """Switching the theme leaves the data alone."""
    fig = figures.watermark_ladder(LAGGING, partitions=homes(0, 1))
    dark = figures.themed(fig, "dark")
    assert dark.layout.template.layout.paper_bgcolor != fig.layout.template.layout.paper_bgcolor
    assert [json.loads(t.to_json()) for t in dark.go().data] == [json.loads(t.to_json()) for t in fig.go().data]


def placed(rows: dict[str, list[int]]) -> pd.DataFrame:
    """Frame of rows per strategy and partition."""
    cells = [(s, p, n) for s, counts in rows.items() for p, n in enumerate(counts)]
    return pd.DataFrame(cells, columns=["strategy", "target_partition", "rows"])


def test_partition_rows_name_the_fullest_and_the_idle() -> None:
    """The title is about the most uneven strategy unless one is chosen."""
    rows = placed({"table": [30, 0, 0], "ts": [10, 12, 8]})
    told = "table puts 30 of 30 rows in partition 0 of 3, and 2 partitions get nothing"
    assert title(figures.partition_rows(rows)) == told
    assert title(figures.partition_rows(rows, strategy="ts")) == "ts puts 12 of 30 rows in partition 1 of 3"
    assert title(figures.partition_rows(placed({"table": [0]}))) == "There is no load to compare"
    assert "&lt;script&gt;" in drawn_text(figures.partition_rows(placed({EVIL: [1]})))


def test_stepped_by_a_menu_brings_each_slider() -> None:
    """An entry of the menu shows its own figure and gets a slider over its own frames, colours and axes included."""
    log = what_if()

    def at(strategy: str, n: int) -> Figure:
        return figures.dispatch_over_time(over_time(log, strategy=strategy, partitions=n), strategy=strategy)

    figs = {s: {str(n): at(s, n) for n in (2, 5)} for s in ("ts", "index-value")}
    fig = figures.stepped_by(figs, prefix="partitions: ", start="5")
    assert [f.name for f in fig.frames] == ["ts/2", "ts/5", "index-value/2", "index-value/5"]
    assert list(fig.layout.sliders[0].steps[1].args[0]) == ["ts/5"]
    data, layout = fig.layout.updatemenus[0].buttons[1].args
    wanted = figs["index-value"]["5"]
    assert np.array_equal(data["z"][0], wanted.data[0].z)
    assert data["zmax"][0] == wanted.data[0].zmax
    one = at("table", 1)  # where everything lies in one partition nothing breaks
    assert [t.name for t in one.data if t.showlegend] == [
        "alignments, breaks row order, breaks table order, breaks transactions (equal)"
    ]
    assert next(t.name for t in at("ts", 5).data if t.showlegend) == "alignments"
    assert data["name"] == [t.name for t in wanted.data] and data["showlegend"][-1] is wanted.data[-1].showlegend
    assert layout["title.text"] == wanted.layout.title.text
    assert list(layout["yaxis.range"]) == [4.5, -0.5]
    assert list(layout["sliders"][0]["steps"][0]["args"][0]) == ["index-value/2"]


def test_load_over_time_needs_rows() -> None:
    """A strategy that places nothing is reported in a sentence, not drawn as an empty axis."""
    log = what_if()
    nothing = over_time(log, strategy="ts", partitions=3, ts_range=(0, 1))
    fig = figures.dispatch_over_time(nothing, strategy="ts")
    assert fig.layout.meta["finding"] == "There is no load to show"


def test_stepped_keeps_a_frame_per_choice() -> None:
    """Each slider step names a frame that carries its own data and title."""
    figs = {str(n): figures.partition_rows(placed({"table": [9, *[0] * (n - 1)]})) for n in (2, 3)}
    fig = figures.stepped(figs, prefix="partitions: ", start="3")
    assert [f.name for f in fig.frames] == [s.label for s in fig.layout.sliders[0].steps] == ["2", "3"]
    assert [len(f.data[0].x) for f in fig.frames] == [2, 3]
    assert [f.layout.xaxis.range for f in fig.frames] == [[-0.5, 1.5], [-0.5, 2.5]]
    assert fig.layout.sliders[0].active == 1
    assert [f.layout.title.text for f in fig.frames] == [f.layout.title.text for f in figs.values()]


def test_a_picture_shows_no_back_ticks_but_of_sql() -> None:
    """No text of plotly is code: names in a title and its note stand between quotation marks."""
    told = "In the band `later without earlier` it is none."
    drawn = theme.finish(Figure(Scatter(x=[1], y=[1])), title="the DDL ALTER TABLE `a`.`b` waits", note=told)
    for fig in (drawn, theme.sentence(told, told)):
        note = next(a.text for a in fig.layout.annotations if a.name == theme.NOTE)
        assert note == fig.layout.meta["note"] == "In the band “later without earlier” it is none."
    assert "`a`.`b`" in drawn.layout.title.text and "`" not in fig.layout.title.text

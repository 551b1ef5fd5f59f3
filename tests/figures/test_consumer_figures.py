"""Pictures of the consumer: lanes at a moment, the player, the invariant, DDL and the matrix of anomalies."""

from __future__ import annotations

from typing import Any

import pandas as pd
from drawn_text import after, drawn_text

from ticdc_lab import figures
from ticdc_lab.events.tso import tso_words
from ticdc_lab.figures.figure import Figure
from ticdc_lab.figures.invariant_curve import wrong_stretches
from ticdc_lab.figures.lane_layout import APPLIED, BUFFERED, THROWN, UNREAD, scene

EVIL = "<b>x</b>"
TSO = 450_000_000_000_000_001
"""A TSO that no float holds."""


def delivery(
    partition: int, offset: int, ts: int, read: int, applied: int | None = None, outcome: str = "applied",
    table: str = "s.a",
) -> dict[str, Any]:  # fmt: skip
    """One row of DELIVERIES; times in µs."""
    return {
        "topic": "t", "partition": partition, "offset": offset, "seq": 0, "commit_ts": ts, "op_rank": 1, "table": table,
        "key_hash": 1, "before_key_hash": None, "change_hash": ts, "read_at": read, "outcome": outcome,
        "applied_at": applied, "batch": None, "apply_order": None,
    }  # fmt: skip


def deliveries(*rows: dict[str, Any]) -> pd.DataFrame:
    """DELIVERIES."""
    return pd.DataFrame(rows).astype({"applied_at": "Int64", "commit_ts": "Int64"})


def steps(*rows: tuple[int, str, int | None, int | None, int | None], detail: str = "why") -> pd.DataFrame:
    """STEPS of (at, action, partition, commit_ts, offset)."""
    frame = pd.DataFrame(rows, columns=["at", "action", "partition", "commit_ts", "offset"], dtype=object)
    frame = frame.astype({"at": "int64", "partition": "Int32", "commit_ts": "Int64", "offset": "Int64"})
    topic = ["t" if p is not pd.NA else None for p in frame["partition"]]
    return frame.assign(step=range(len(frame)), topic=topic, rows=None, batch=None, detail=detail)


READ = deliveries(
    delivery(0, 0, 1, 1000, 3000), delivery(0, 1, 3, 2000, 3000), delivery(0, 4, 6, 5500, None, "pending"),
    delivery(1, 0, 2, 1500, 6000, table="s.b"), delivery(1, 1, 3, 2500, None, "filtered"),
    delivery(1, 2, 2, 2600, None, "dropped"), delivery(1, 3, 6, 7000, None, "forgotten"),
)  # fmt: skip
DONE = steps(
    (3000, "resolved", 0, 3, 2), (4000, "ddl seen", 0, 5, 3), (4000, "wait", 0, 5, None), (6000, "resolved", 1, 3, 4),
    (6500, "ddl seen", 1, 5, 5), (6500, "ddl", None, 5, None), (6500, "resume", 0, None, None),
    (8000, "crash", 1, None, None), (9000, "begin", 1, None, None),
)  # fmt: skip


def title(fig: Figure) -> str:
    """The finding."""
    return str(fig.layout.meta["finding"])


def trace(fig: Figure, name: str) -> Any:
    """The trace of a name."""
    (found,) = [t for t in fig.data if t.name == name]
    return found


def test_each_row_change_is_where_it_is_at_the_moment() -> None:
    """Filtered rows go when they are released, dropped ones when read, forgotten ones with their listener."""
    s = scene(READ, DONE)
    by_place = {(int(r.lane), int(r.offset)): i for i, r in enumerate(s.rows.itertuples())}

    def at(us: int) -> dict[tuple[int, int], str]:
        states = s.states(us)
        return {place: str(states[i]) for place, i in by_place.items()}

    assert at(2600) == {
        (0, 0): BUFFERED, (0, 1): BUFFERED, (0, 4): UNREAD, (1, 0): BUFFERED, (1, 1): BUFFERED, (1, 2): THROWN,
        (1, 3): UNREAD,
    }  # fmt: skip
    assert [at(t)[0, 0] for t in (999, 1000, 2999, 3000)] == [UNREAD, BUFFERED, BUFFERED, APPLIED]
    assert [at(t)[1, 1] for t in (5999, 6000)] == [BUFFERED, THROWN]
    assert [at(t)[1, 3] for t in (7000, 8000)] == [BUFFERED, THROWN]
    assert at(9000)[0, 4] == BUFFERED


def test_the_title_counts_and_says_who_waits_since_when() -> None:
    """Partition 0 is at the DDL from 4 ms on; at 6.5 ms it continues; partition 1 is down from 8 to 9 ms."""
    at_5 = figures.consumer_lanes(READ, DONE, at_us=5000)
    assert title(at_5) == (
        "At 5 ms 2 of 7 row changes are applied, 2 buffered, 1 thrown away; partition 0 waits since 4 ms"
    )
    assert "waits" not in title(figures.consumer_lanes(READ, DONE, at_us=6500))
    assert title(figures.consumer_lanes(READ, DONE, at_us=8500)).endswith("; partition 1 is down")
    assert "down" not in title(figures.consumer_lanes(READ, DONE, at_us=9000))


def test_the_wall_stands_behind_the_ddl_that_is_waited_at() -> None:
    """Drawn while the wait lasts, with what is waited for."""
    during, after = (figures.consumer_lanes(READ, DONE, at_us=t) for t in (5000, 7000))
    assert list(trace(during, "wall: waits").x[:2]) == [3.35, 3.35]
    assert not trace(after, "wall: waits").x
    assert " since 4 ms: why " in [t for tr in during.data if tr.mode == "text" for t in tr.text]


def test_fronts_end_where_each_lane_is_applied() -> None:
    """By offset, and by commit order: in it equal fronts mean one upstream state."""
    front = trace(figures.consumer_lanes(READ, DONE, at_us=3000), "applied up to here")
    assert list(front.x) == [-0.5, 1.5, None, -0.5, -0.5, None]
    end = trace(figures.consumer_lanes(READ, DONE, order="commit"), "applied up to here")
    assert list(end.x) == [-0.5, 2.5, None, -0.5, 1.5, None]


def test_a_ddl_is_open_until_it_is_executed() -> None:
    """Both partitions' diamonds fill at once."""
    before, after = (figures.consumer_lanes(READ, DONE, at_us=t) for t in (6000, 6500))
    assert [len(trace(before, n).x) for n in ("DDL event", "DDL executed")] == [2, 0]
    assert [len(trace(after, n).x) for n in ("DDL event", "DDL executed")] == [0, 2]


def test_a_tso_keeps_every_digit() -> None:
    """They are larger than what a float holds exactly."""
    fig = figures.consumer_lanes(deliveries(delivery(0, 0, TSO, 1, 2)), steps((2, "resolved", 0, TSO + 1, 1)))
    assert list(trace(fig, "s.a").customdata[0]) == ["0", tso_words(TSO)]
    assert list(trace(fig, "resolved event").customdata) == [f"{tso_words(TSO + 1)}<br>why"]
    assert tso_words(TSO).startswith(f"{TSO} (")


def test_a_long_log_is_drawn_around_the_moment_and_says_so() -> None:
    """Of 1,000 row changes those read about then."""
    long = deliveries(*(delivery(0, i, i + 1, 10 * i, 10 * i + 5) for i in range(1000)))
    done = steps(*((10 * i + 5, "resolved", 0, i + 1, i) for i in range(0, 1000, 10)))
    fig = figures.consumer_lanes(long, done, at_us=5000, most=100)
    drawn = trace(fig, "s.a").x
    assert len(drawn) == 100 and drawn[0] < 500 < drawn[-1]
    assert "of 100 row changes drawn (of 1,000) are applied" in title(fig)
    assert "100 of 1,000 row changes are drawn" in fig.layout.meta["note"]


def test_nothing_done_is_a_sentence() -> None:
    """Instead of empty lanes; names are escaped."""
    assert "nothing" in title(figures.consumer_lanes(READ.iloc[:0], DONE.iloc[:0]))
    assert "nothing" in title(figures.consumer_lanes_stepped(READ.iloc[:0], DONE.iloc[:0]))
    evil = figures.consumer_lanes(deliveries(delivery(0, 0, 1, 1, 2, table=EVIL)), DONE.assign(detail=EVIL), at_us=5000)
    assert EVIL not in drawn_text(evil) and "&lt;b&gt;" in drawn_text(evil)


def test_the_player_has_a_frame_for_every_moment_and_starts_by_hand() -> None:
    """Each frame moves all traces; the slider names consumer time; play and pause are there."""
    fig = figures.consumer_lanes_stepped(READ, DONE)
    names = [f.name for f in fig.frames]
    assert names[:3] == ["0 ms", "1 ms", "1.5 ms"] and names[-1] == "9 ms"
    assert {len(f.data) for f in fig.frames} == {len(fig.data)}
    assert [s.label for s in fig.layout.sliders[0].steps] == names
    assert [b.label for b in fig.layout.updatemenus[0].buttons] == ["play", "pause"]
    assert title(fig) == (
        "3 of 7 row changes are applied in 9 ms; 1 dropped, 1 filtered, 1 forgotten, 1 pending; "
        "listeners stop at a DDL 1 time"
    )
    assert len(fig.layout.annotations) == 1
    first = fig.layout.sliders[0].active
    assert after(fig, fig.frames[first]).data == fig.data, "what is seen is what the slider says"


def test_frames_show_what_the_still_picture_shows() -> None:
    """A frame leaves out only what does not move."""
    fig = figures.consumer_lanes_stepped(READ, DONE)
    still = figures.consumer_lanes(READ, DONE, at_us=6000)
    k = next(i for i, t in enumerate(fig.data) if t.name == "s.a")
    frame = next(f for f in fig.frames if f.name == "6 ms")
    assert frame.data[k].x is None
    assert after(fig, frame).data == still.data
    assert {tuple(sorted(f.data[k])) for f in fig.frames} == {("marker", "type")}, "each frame sets what any other sets"


def test_the_player_thins_moments_and_says_so() -> None:
    """Ten of many, with the first and the last."""
    fig = figures.consumer_lanes_stepped(READ, DONE, moments=4)
    assert len(fig.frames) == 4 and fig.frames[0].name == "0 ms"
    assert "Of 14 moments at which something happens 4 are shown." in fig.layout.meta["note"]


def curve(label: str, *values: float, expected: float = 100.0) -> pd.DataFrame:
    """One value a ms."""
    return pd.DataFrame({"at_us": [1000 * i for i in range(len(values))], "value": values}).assign(
        expected_low=expected, expected_high=expected, label=label
    )


def test_wrong_stretches_have_a_length_and_a_depth() -> None:
    """From the first wrong value to the next right one; what is missing is not judged."""
    found = wrong_stretches(curve("a", 100, 90, 120, 100, float("nan"), 101, 100))
    assert found.stretches == ((1000, 3000, 20.0), (5000, 6000, 1.0))
    assert (found.total_us, found.deepest, found.length_us) == (3000, 20.0, 6000)
    assert wrong_stretches(curve("a", 100, 100)).stretches == ()


def test_the_invariant_names_who_keeps_it_and_who_breaks_it_worst() -> None:
    """A flat line has no shade; each wrong stretch has one; each panel shows when, how deep and how long."""
    fig = figures.invariant_curve(
        pd.concat([curve("row", 100, 90, 100, 130, 100), curve("transaction", 100, 100)]), of="the total balance"
    )
    assert title(fig) == (
        "transaction never shows the total balance wrong; row shows it wrong 2 times, by up to 30 and for up to 1 ms"
    )
    assert len(fig.layout.shapes) == 2
    told = [a.text for a in fig.layout.annotations]
    assert told[0] == ("<b>row</b>: wrong 2 times, 50 % of the time; first at 1 ms, by +30 at most, for 1 ms at most")
    assert told[1] == "<b>transaction</b>: never wrong"
    assert title(figures.invariant_curve(curve("one", 1, 1, expected=1))) == "one never shows the invariant wrong"
    both = figures.invariant_curve(pd.concat([curve("a", 100.0), curve("b", 100.0)]))
    assert title(both) == "None of them ever shows the invariant wrong"


def test_a_long_curve_keeps_its_dips() -> None:
    """Thinned to a few thousand points, the one wrong value among 20,000 good and restless ones is drawn."""
    values = [100.0 + (i % 2) for i in range(20_000)]
    values[12_345] = 55.0
    long = curve("a", *values).assign(expected_low=100.0, expected_high=101.0)
    fig = figures.invariant_curve(long)
    line = next(t for t in fig.data if t.name == "the invariant")
    assert len(line.y) < 4000 and min(line.y) == 55.0
    assert title(fig).endswith("wrong 1 time, by up to 45 and for up to 1 ms")


def test_a_table_that_fills_does_not_press_the_dips_flat() -> None:
    """The first ms from nothing to 1,000 lie outside the panel, a later dip of 5 inside; the dip's end is reported."""
    filling = curve("a", 0.0, *[1000.0] * 200, 995.0).assign(expected_low=[0.0, *[1000.0] * 201])
    filling = filling.assign(expected_high=filling["expected_low"], until_us=[1000 * (i + 1) for i in range(202)])
    low, high = figures.invariant_curve(filling).layout.yaxis.range
    assert 990 < low < 995 and 1000 < high < 1005
    assert wrong_stretches(filling).stretches == ((201_000, 202_000, -5.0),)


def test_no_curve_is_a_sentence() -> None:
    """And many panels are cut, which the note shows."""
    assert "No invariant" in title(figures.invariant_curve(curve("a").iloc[:0]))
    many = figures.invariant_curve(pd.concat([curve(f"p{i}", 100, 90, 100) for i in range(15)]))
    assert "The 12 most wrong of 15 are drawn." in many.layout.meta["note"]


def ddl(*rows: tuple[int, str, int, int, int | None, int | None, int, int]) -> pd.DataFrame:
    """(ddl_commit_ts, query, partition, seen, waited, executed, early, late)."""
    names = ["ddl_commit_ts", "query", "partition", "seen_at", "waited_us", "executed_at", "early_rows", "late_rows"]
    frame = pd.DataFrame(rows, columns=names, dtype=object).assign(topic="t")
    whole = {n: "Int64" for n in names if n != "query"}
    return frame.astype(whole)


def test_the_timeline_names_the_longest_wait_and_what_is_wrong() -> None:
    """Two partitions see a DDL 4 ms apart."""
    fig = figures.ddl_timeline(ddl((5, "A", 0, 1000, 4000, 5000, 2, 0), (5, "A", 1, 5000, 0, 5000, 0, 1)))
    assert title(fig) == ("1 DDL: the longest wait is 4 ms, of partition 0 for A; 2 rows are early and 1 row is late")
    assert [list(t.y) for t in fig.data if t.name in ("early rows", "late rows")] == [[-0.19], [0.19]]
    assert trace(fig, "wrong rows").text == ["  2 early, 1 late"], "once for a DDL: its partitions lie close"
    lines = [t for t in fig.data if t.mode == "lines"]
    assert [list(t.x[:2]) for t in lines] == [[1.0, 5.0], [5.0, 5.0]]


def test_a_ddl_that_is_never_executed_is_counted() -> None:
    """It has no diamond; partitions that do not wait are no wait."""
    fig = figures.ddl_timeline(ddl((5, EVIL, 0, 1000, None, None, 0, 0), (7, "B", 0, 2000, 0, 2000, 0, 0)))
    assert title(fig) == "2 DDL: no partition waits; 1 is never executed; every row is on its side"
    assert EVIL not in drawn_text(fig)


def test_the_timeline_draws_the_ddl_that_matter() -> None:
    """Those with wrong rows, then those with the longest waits; the note shows how many are left out."""
    rows = [(i, f"Q{i}", 0, 1000 * i, 10 * i, 1000 * i + 10 * i, int(i == 1), 0) for i in range(1, 21)]
    fig = figures.ddl_timeline(ddl(*rows), most=3)
    assert list(fig.layout.yaxis.ticktext) == ["Q1", "Q19", "Q20"]
    assert "3 of 20 DDL are drawn." in fig.layout.meta["note"]
    assert title(fig) == "20 DDL: the longest wait is 0.2 ms, of partition 0 for Q20; 1 row is early"
    rest = figures.ddl_timeline(ddl(*rows[1:], (9, "Z", 0, 1, None, None, 0, 0)), most=1)
    assert title(rest).endswith("; 1 is never executed; every row is on its side"), "though it is not drawn"
    assert "No DDL" in title(figures.ddl_timeline(ddl()))


def anomalies(*rows: tuple[str, str, str, int, int]) -> pd.DataFrame:
    """(policy, strategy, kind, n, wrong_us) of 10 ms."""
    frame = pd.DataFrame(rows, columns=["policy", "strategy", "kind", "n", "wrong_us"])
    return frame.assign(partitions=4, speeds="equal", total_us=10_000)


def test_the_matrix_says_never_and_how_long() -> None:
    """Kinds add up in number; the share is the one of the longest kind."""
    fig = figures.anomaly_matrix(
        anomalies(("row", "ts", "torn", 3, 1000), ("row", "ts", "order", 2, 2500), ("whole", "ts", "torn", 0, 0))
    )
    wrong = "row is wrong for 25 % of the time at worst, and shows 5 states that never existed"
    assert title(fig) == f"whole never shows a wrong state; {wrong}"
    cells = [a.text for a in fig.layout.annotations]
    assert cells[:2] == ["<b>5</b><br>25 % of time", "never"]


def test_the_matrix_counts_states_and_tells_the_other_kinds_apart() -> None:
    """Where states were judged they are counted, and the kinds behind them are in the hover."""
    state = "state that never existed"
    fig = figures.anomaly_matrix(
        anomalies(
            ("a", "ts", state, 2, 500), ("a", "ts", "torn", 7, 900), ("b", "ts", state, 0, 0), ("b", "ts", "late", 3, 0)
        )
    )
    assert (
        title(fig)
        == "b never shows a wrong state; a is wrong for 5 % of the time at worst, and shows 2 states that never existed"
    )
    assert [a.text for a in fig.layout.annotations[:2]] == ["<b>2</b><br>5 % of time", "never<br>3 other anomalies"]
    assert "torn: 7, together 0.9 ms" in fig.data[-1].hovertext[0]


def test_the_matrix_has_a_column_for_what_varies() -> None:
    """A combination that no one tried reports it; no policy safe is reported, too; nothing tried is a sentence."""
    fig = figures.anomaly_matrix(anomalies(("a", "ts", "torn", 1, 1), ("b", "table", "torn", 4, 2000)))
    assert list(fig.layout.xaxis.ticktext) == ["ts", "table"]
    assert sum(a.text == "not tried" for a in fig.layout.annotations) == 2
    worst = "b is wrong longest, for 20 % of the time at worst, and shows 4 states that never existed"
    assert title(fig) == f"No policy is safe here; {worst}", "and by what it is the worst of them"
    both = figures.anomaly_matrix(anomalies(("a", "ts", "torn", 4, 2000), ("a", "table", "torn", 3, 500)))
    assert title(both) == "a is wrong for 20 % of the time at worst, and shows up to 4 states that never existed", (
        "and of policies that were not tried nothing is said"
    )
    clean = [("a", "ts", "torn", 0, 0), ("b", "ts", "torn", 0, 0)]
    assert title(figures.anomaly_matrix(anomalies(*clean))) == "No policy ever shows a state that never existed"
    assert title(figures.anomaly_matrix(anomalies(*clean[:1]))) == "a never shows a state that never existed"
    assert "No consumer was tried" in title(figures.anomaly_matrix(anomalies()))


def test_what_a_storage_folder_has_is_called_a_stream() -> None:
    """It has no partitions: neither lanes, nor DDL, nor findings speak of any."""
    evidence = [{"partition": p, "offset": p, "commit_ts": 5 + p} for p in (0, 1)]
    moved = {"guarantee": "rows_stay_in_one_partition", "message": "moved", "partition": 1, "evidence": evidence}
    for fig in (
        figures.consumer_lanes(READ, DONE, at_us=4500, lane="stream"),
        figures.ddl_timeline(ddl((5, "A", 0, 1000, 4000, 5000, 2, 0), (5, "A", 1, 5000, 0, 5000, 0, 1)), lane="stream"),
        figures.counterexample(moved, lane="stream"),
    ):
        assert "stream" in drawn_text(fig) and "partition" not in drawn_text(fig)

"""Pictures of a scheduler's run: messages, ownership, watermarks, and why the checkpoint is stuck."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from drawn_text import drawn_text
from scheduler_traces import Making, broken, many, ten_steps, troubles

from ticdc_lab import figures
from ticdc_lab.figures.figure import Figure
from ticdc_lab.figures.sequence_layout import PROTOCOL, lay_out
from ticdc_lab.simulate import scheduler

NOTHING = ten_steps().slice(0, 0)
EVIL = "<b>x</b>"


def title(fig: Figure) -> str:
    """The finding."""
    return str(fig.layout.meta["finding"])


def trace(fig: Figure, name: str) -> Any:
    """The trace of a name."""
    (found,) = [t for t in fig.data if t.name == name]
    return found


def bars(fig: Figure, name: str) -> list[tuple[float, float]]:
    """Where the bars of a name begin and how long they are."""
    found = trace(fig, name)
    return list(zip(found.base, found.x, strict=True))


def test_the_ten_steps_of_the_seed_have_their_numbers() -> None:
    """Two of each kind, in the order of the design's figure; the owner stands apart from the processor beside it."""
    fig = figures.sequence_diagram(ten_steps(), apart=True)
    assert list(trace(fig, "names").text) == [
        "1 Announce", "2 Announce", "3 Sync", "4 Sync", "5 DispatchTable 1", "6 DispatchTable 2",
        "7 DispatchTableResponse 1", "8 DispatchTableResponse 2", "9 Checkpoint", "10 Checkpoint",
    ]  # fmt: skip
    assert list(fig.layout.xaxis.ticktext) == [f"<b>{n}</b>" for n in ("owner on capture-1", "capture-1", "capture-2")]
    assert title(fig) == "10 messages from 0 to 20 ms; all arrive"
    assert list(trace(fig, "Announce").x) == [0, 0.5, 1, None, 0, 1, 2, None]


def test_names_of_arrows_that_are_close_stand_on_both_sides() -> None:
    """A name less than a line below another would lie on it above its arrow."""
    quick = scheduler.SchedulerSettings(captures=2, tables=2, pace=scheduler.TablePace(prepare_us=20_000))
    first = scheduler.simulate(quick, seed=0, until_us=205_000)
    names = trace(figures.sequence_diagram(first.trace, messages=PROTOCOL, apart=True), "names")
    placed = [*zip(names.x, names.y, names.textposition, names.text, strict=True)]
    line = 0.05 * (max(y for _, y, *_ in placed) - min(y for _, y, *_ in placed))
    on_top = [p for p in placed if p[2] == "top center"]
    close = [(a[3], b[3]) for a in on_top for b in on_top if a is not b and 0 <= a[1] - b[1] < line and a[0] == b[0]]
    assert not close and any(p[2] == "bottom center" for p in placed)


def test_each_fate_has_its_mark_with_the_reason() -> None:
    """A cross ends a lost message, a crossed circle is at what had no effect, a bar at what was refused."""
    fig = figures.sequence_diagram(troubles())
    lost, stale, refused = (trace(fig, n) for n in ("lost", "no effect (stale)", "not taken, tried again"))
    assert "the node is down" in lost.hovertext[0] and 0 < lost.x[0] < 1
    assert "owner-rev 1 is below 9" in stale.hovertext[0] and len(stale.x) == 1
    assert "try again" in refused.hovertext[0] and 0 < refused.x[0] < 1
    assert title(fig).endswith("1 without effect, 1 lost, 1 not taken; 1 crash")
    arrow = trace(fig, "Announce")
    assert arrow.marker.size[2] == 0, "what was refused has no head"


def test_lifelines_show_owners_crashes_and_pauses() -> None:
    """Thick from the election to the switch; dotted while down; both lives of capture-1 are one line."""
    fig = figures.sequence_diagram(troubles(), axis="time")
    assert len(fig.layout.xaxis.ticktext) == 3
    assert list(trace(fig, "is owner").y) == [0, 40, None, 40, 80, None]
    assert list(trace(fig, "is down").y) == [50, 72, None]
    assert list(trace(fig, "is paused").y) == [46, 48, None]
    assert list(trace(fig, "crash").y) == [50] and "the scenario" in trace(fig, "crash").hovertext[0]


def test_a_counterexample_ends_at_the_invariant_that_breaks() -> None:
    """A line across at the last step, its name beside it and in the title; the axis has plain step numbers."""
    fig = figures.sequence_diagram(broken())
    assert title(fig) == "At step 6 No Double Write: table 1 is written by capture-1 and capture-2"
    assert list(trace(fig, "broken").y) == [6, 6, None]
    assert list(fig.layout.yaxis.ticktext) == [str(n) for n in range(7)]


def test_what_is_sent_at_once_to_one_node_is_one_arrow() -> None:
    """With the tables it is about, or their number; the count in the title is of messages."""
    for tables, said in ((3, "1 DispatchTable 0, 1, 2"), (30, "1 DispatchTable ×30")):
        m = Making().at(0)
        sent = [m.send("capture-1", "capture-2", "DispatchTable", id=t) for t in range(tables)]
        for k, number in enumerate(sent, start=1):
            m.at(k).end("received", number)
        fig = figures.sequence_diagram(m.done())
        assert list(trace(fig, "names").text) == [said]
        assert title(fig).startswith(f"{tables} messages")


def test_a_duplicate_arrives_twice_and_a_resent_one_says_so() -> None:
    """An arrow for each arrival, from the one place at which it was sent."""
    m = Making().at(0)
    number = m.send("capture-1", "capture-2", "Sync")
    m.end("resent", number, "3 times").at(1).end("received", number).at(4).end("received", number)
    s = lay_out(m.done(), axis="time")
    assert s is not None
    (arrow,) = s.arrows.to_dict("records")
    assert (arrow["n"], arrow["y0"], arrow["y1"], arrow["because"]) == (2, 0, 4, "sent again, 3 times")


def test_many_messages_are_cut_and_the_note_says_so() -> None:
    """The first ones are drawn without names; a window or chosen kinds show others; before a violation the last."""
    run = many(100, 4, 1000)
    fig = figures.sequence_diagram(run)
    assert "400 of 1,000 messages are drawn" in fig.layout.meta["note"]
    assert not trace(fig, "names").x and fig.layout.height < 2000
    window = figures.sequence_diagram(run, between_us=(10_000, 20_000))
    assert "are drawn" not in window.layout.meta["note"] and title(window).startswith("11 messages")
    assert [t.name for t in figures.sequence_diagram(run, messages=("Checkpoint",)).data].count("DispatchTable") == 0
    cut = figures.sequence_diagram(broken(), most=1)
    assert list(trace(cut, "names").text) == ["1 DispatchTable 1"]
    assert list(cut.layout.xaxis.ticktext) == ["<b>capture-2</b>"] and title(cut).startswith(
        "At step 6 No Double Write"
    )
    part = figures.sequence_diagram(troubles(), steps=(12, 13))
    assert title(part).startswith("1 message ")


def test_etcd_is_drawn_where_it_is_asked_for() -> None:
    """Leases and views are left out unless they are named."""
    m = Making().at(0)
    sent = [m.send("capture-1", "etcd", "KeepAlive"), m.send("capture-1", "capture-2", "Sync")]
    m.at(1).end("received", sent[0]).end("received", sent[1])
    assert len(figures.sequence_diagram(m.done()).layout.xaxis.ticktext) == 2
    fig = figures.sequence_diagram(m.done(), messages=("KeepAlive",))
    assert list(fig.layout.xaxis.ticktext) == ["<b>etcd</b>", "<b>capture-1</b>"]


def test_the_gantt_shows_states_overlap_and_gap() -> None:
    """Table 1 has two writers for 10 ms, table 2 none for 30 ms; each stretch is a bar with its capture on it."""
    fig = figures.ownership_gantt(troubles())
    assert title(fig) == (
        "Table 1 is written by capture-2 and capture-3 at once for 10 ms; "
        "2 tables have a gap, the longest 30 ms (table 2)"
    )
    assert bars(fig, "two write") == [(60, 10)]
    assert {line.zorder for line in fig.data if line.type == "scatter"} == {-1}, "no line crosses a capture's name"
    assert bars(fig, "no writer") == [(50, 30), (46, 2)], "a paused capture writes nothing"
    assert (12, 38) in bars(fig, "replicating") and (65, 5) in bars(fig, "stopping")
    assert list(trace(fig, "new owner").x) == [0, 0, None, 40, 40, None]
    assert list(trace(fig, "crash").x)[:2] == [50, 50]
    assert "capture-3" in trace(fig, "replicating").text
    assert list(fig.layout.yaxis.ticktext) == ["table 1", "table 2", "table 3"]


def test_captures_have_lanes_for_what_they_hold_at_once() -> None:
    """Capture-3 has tables 3 and 1 at the end: two lanes; no bar lies on another."""
    fig = figures.ownership_gantt(troubles(), by="capture")
    assert list(fig.layout.yaxis.ticktext) == ["capture-1", "capture-2", "capture-3"]
    places = [
        (y, a, a + n) for t in fig.data if t.type == "bar" for y, a, n in zip(t.y, t.base, t.x, strict=True)
    ]  # fmt: skip
    assert not [
        (p, q) for p in places for q in places if p is not q and p[0] == q[0] and p[1] < q[2] and q[1] < p[2]
    ]  # fmt: skip


def test_a_double_write_at_the_very_end_can_be_seen() -> None:
    """The explorer stops at the step that breaks the invariant: the bar goes a little beyond it."""
    fig = figures.ownership_gantt(broken(), clock="step")
    ((begin, length),) = bars(fig, "two write")
    assert begin == 6 and length > 0
    assert title(fig).startswith("Table 1 is written by capture-1 and capture-2 at once at the end")


def test_many_tables_are_counted_in_bands() -> None:
    """A band per capture and state, of bounded size, and one of what is wrong."""
    fig = figures.ownership_gantt(many(500, 4, 0))
    assert title(fig) == "500 tables: none is ever written by two captures; 125 have a gap, the longest 0.39 s"
    (last,) = [t for t in fig.data if t.stackgroup == "capture-4" and t.name == "replicating"]
    assert last.y[-1] == 125
    assert max(len(t.x) for t in fig.data) <= 1000
    assert max(trace(fig, "no writer").y) == 125 and max(trace(fig, "two write").y) == 0


def test_lags_climb_with_the_clock_and_fall_with_the_watermark() -> None:
    """The changefeed's checkpoint of 15 ms stands from 24 to 90 ms: 75 ms behind; capture-1's line ends with it."""
    fig = figures.watermark_curves(troubles())
    assert title(fig).startswith("The checkpoint lag is at most 0.075 s, at 0.09 s")
    assert title(fig).endswith("stalls for up to 0.066 s, from 0.024 s on")
    first = next(t for t in fig.data if t.name == "changefeed")
    assert first.y == pytest.approx((0.009, 0.075, 0.010, 0.020))
    own = next(t for t in fig.data if t.name == "capture-1")
    assert max(x for x, y in zip(own.x, own.y, strict=True) if y == y and x < 0.06) == 0.05


def test_the_panel_names_what_holds_the_checkpoint_and_since_when() -> None:
    """At the moment asked for; and a bar for each cause over time."""
    fig = figures.why_stuck(troubles(), at_us=60_000)
    assert (
        title(fig)
        == "At 0.06 s table 2 holds the checkpoint, since 0.05 s, for 0.01 s: table 2 is adding on capture-1, and "
        "1 more"
    )
    assert trace(fig, "table 2").width == pytest.approx((0.04,))
    assert title(figures.why_stuck(troubles(), at_us=30_000)) == "At 0.03 s nothing holds the checkpoint"
    assert "never stuck" in title(figures.why_stuck(ten_steps()))


FIGURES = (figures.sequence_diagram, figures.ownership_gantt, figures.watermark_curves, figures.why_stuck)


def test_a_finding_of_the_callers_is_the_title_at_every_step_and_never_of_an_empty_picture() -> None:
    """The figure that it is given to keeps its own; where nothing is drawn, the title keeps the reason."""
    played = figures.scheduling_stepped(ten_steps(), moments=3)
    before = played.to_json()
    given = figures.titled(played, "<b>two</b> owners")
    titles = {given.layout.title.text, *(f.layout.title.text for f in given.frames)}
    assert titles == {"&lt;b&gt;two&lt;/b&gt; owners"} and given.layout.meta["finding"] in titles
    assert played.to_json() == before
    nothing = figures.ownership_gantt(ten_steps().slice(0, 0))
    assert figures.titled(nothing, "two owners").to_json() == nothing.to_json()


@pytest.mark.parametrize("draw", FIGURES, ids=lambda f: f.__name__)
def test_nothing_is_a_sentence_and_names_are_escaped(draw: Any) -> None:
    """An empty trace has no axes; markup in a name or a reason is text."""
    assert not draw(NOTHING).data and draw(NOTHING).layout.annotations[0].text
    rows = troubles().to_pylist()
    told = [r | {"because": EVIL, "after": EVIL if r["subject"] == "stuck" else r["after"]} for r in rows]
    evil = [r | {"node": r["node"].replace("capture-2", EVIL), "peer": r["peer"] and EVIL} for r in told]
    fig = draw(pa.Table.from_pylist(evil, schema=troubles().schema))
    assert EVIL not in drawn_text(fig).replace("<b><b>", "")
    assert not [a for a in fig.layout.annotations if EVIL in a.text]

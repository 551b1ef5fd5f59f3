"""Why a watermark of the pipeline does not move: from facts made by hand, each with one cause planted."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from ticdc_lab.machines.clock import ts_of
from ticdc_lab.machines.machine import Reason
from ticdc_lab.simulate.pipeline.observed import (
    CaptureFacts,
    HeldLock,
    Moment,
    RegionFacts,
    Reported,
    StreamFacts,
    TableFacts,
)
from ticdc_lab.simulate.pipeline.settings import MQ
from ticdc_lab.simulate.pipeline.tables import META, key_of, span_of
from ticdc_lab.simulate.pipeline.why import CHECKPOINT, HOLDERS, RESOLVED, Why, why

S = 1_000_000
NOW = 20 * S


def region(table: int, at_us: int, *locks: HeldLock, store: str = "tikv-1") -> RegionFacts:
    """A table's only region, whose id is ten times the table's."""
    resolved_ts = min([ts_of(at_us - S // 5), *(lock.start_ts for lock in locks)])
    return RegionFacts(table * 10, store, *span_of(table), 1, resolved_ts, locks)


def stream(table: int, resolved_us: int, state: str = "streaming", since_us: int = 0) -> StreamFacts:
    """That region as a puller sees it."""
    return StreamFacts(table * 10, "tikv-1", *span_of(table), state, ts_of(resolved_us), since_us)


def table(number: int, resolved_us: int, checkpoint_us: int, **other: object) -> TableFacts:
    """A table that is replicated and has no rows."""
    facts = TableFacts(
        number, f"shop.t{number}", "replicating", ts_of(resolved_us), ts_of(checkpoint_us),
        (stream(number, resolved_us),), 0, 0, 0, 0, 0, None, None, 0, 0,
    )  # fmt: skip
    return facts._replace(**other)  # type: ignore[arg-type]


def capture(name: str, at_us: int, tables: Sequence[TableFacts], limit_us: int | None = None) -> CaptureFacts:
    """A capture; capture-1 is the owner."""
    resolved_ts = min([t.resolved_ts for t in tables], default=ts_of(at_us))
    checkpoint_ts = min([t.checkpoint_ts for t in tables], default=ts_of(at_us))
    limit_ts = ts_of(at_us - S // 5 if limit_us is None else limit_us)
    ddl_us = at_us - S // 5
    return CaptureFacts(
        name, name == "capture-1", limit_ts, resolved_ts, checkpoint_ts, ts_of(ddl_us), (stream(META, ddl_us),), (),
        None, tuple(tables),
    )  # fmt: skip


def moment(at_us: int, *captures: CaptureFacts, regions: Sequence[RegionFacts] = (), **other: object) -> Moment:
    """A sample in which everything is known everywhere at once."""
    resolved_ts = min(c.resolved_ts for c in captures)
    checkpoint_ts = min(c.checkpoint_ts for c in captures)
    numbers = {t.table for c in captures for t in c.tables} - {r.id // 10 for r in regions}
    there = (*regions, *(region(n, at_us) for n in sorted(numbers | {META})))
    told = tuple(Reported(c.address, c.checkpoint_ts, c.resolved_ts) for c in captures)
    return Moment(at_us, checkpoint_ts, resolved_ts, captures, there, told)._replace(**other)  # type: ignore[arg-type]


def of_all(checkpoint_us: int, *numbers: int) -> list[TableFacts]:
    """Tables that are as far as the time."""
    return [table(n, checkpoint_us, checkpoint_us) for n in numbers]


def healthy(at_us: int) -> Moment:
    """Nothing is wrong."""
    return moment(at_us, capture("capture-1", at_us, of_all(at_us - S // 4, 1, 2)),
                  capture("capture-2", at_us, of_all(at_us - S // 4, 3)))  # fmt: skip


def kinds(found: Why) -> list[tuple[str, str]]:
    """What holds, in order."""
    return [(h.kind, h.cause) for h in found.holders]


@pytest.mark.parametrize("watermark", [RESOLVED, CHECKPOINT])
def test_nothing_holds_a_watermark_that_is_on_its_way(watermark: str) -> None:
    """A healthy pipeline has no cause, and is reported to have none."""
    found = why([healthy(NOW - S), healthy(NOW)], watermark=watermark)
    assert found.holders == () and found.text.endswith(" behind, within the 1s that are usual: nothing holds it.")


def test_a_long_transaction_is_found_through_every_level() -> None:
    """Global <- processor <- table <- region <- lock; since its start_ts; the next transaction would hold it then."""
    first, second = (HeldLock(ts_of(t * S), key_of(3, 7), (key_of(3, 7),)) for t in (5, 12))
    tables = [table(3, 5 * S, 5 * S)]
    waits = [table(1, NOW - S // 5, 5 * S)]
    now = moment(NOW, capture("capture-1", NOW, waits), capture("capture-2", NOW, tables),
                 regions=[region(3, NOW, first, second)])  # fmt: skip
    found = why([now])
    assert kinds(found) == [("transaction", str(first.start_ts)), ("transaction", str(second.start_ts))]
    holder = found.holders[0]
    assert [s.level for s in holder.path] == ["processor", "table", "region", "lock"]
    assert (holder.path[0].name, holder.path[1].name) == ("capture-2", "shop.t3 (3)")
    assert (holder.held_ts, holder.since_us, holder.without_ts) == (ts_of(5 * S), 5 * S, ts_of(12 * S))
    assert found.holders[1].without_ts is None
    assert "t3_r7) is open: 1 lock in region 30 on tikv-1, for 15s" in found.text
    assert "Without it: the current one." in found.text


def test_locks_of_one_transaction_in_two_regions_are_one_cause() -> None:
    """Without the transaction both are gone."""
    lock = HeldLock(ts_of(5 * S), key_of(1, 1), (key_of(1, 1), key_of(1, 2)))
    tables = [table(1, 5 * S, 5 * S), table(2, 5 * S, 5 * S)]
    now = moment(NOW, capture("capture-1", NOW, tables), regions=[region(1, NOW, lock), region(2, NOW, lock)])
    [holder] = why([now]).holders
    assert holder.n_bounds == 2 and "2 locks" in holder.because


def test_a_checkpoint_waits_for_the_resolved_ts_of_another_processor() -> None:
    """The base rule: rows of capture-1 wait in sorters for a lock in a table of capture-2."""
    lock = HeldLock(ts_of(5 * S), key_of(3, 7), (key_of(3, 7),))
    waits = table(1, NOW - S // 5, 5 * S, sorting=40, mounting=2)
    now = moment(NOW, capture("capture-1", NOW, [waits], 5 * S), capture("capture-2", NOW, [table(3, 5 * S, 5 * S)]),
                 regions=[region(3, NOW, lock)])  # fmt: skip
    found = why([now], watermark=CHECKPOINT)
    assert [(h.kind, h.path[0].level, h.path[0].name) for h in found.holders] == [
        ("transaction", "waits for", "global resolved_ts")
    ]
    assert found.waiting_rows == 42 and "42 rows wait" in found.text


@pytest.mark.parametrize(
    ("state", "kind", "said"),
    [
        ("scanning", "scan", "the incremental scan of region 30 on tikv-1 has not ended, for 14s"),
        ("waiting", "scan", "region 30 waits for its incremental scan"),
        ("asking", "region", "no store has answered as its leader"),
    ],
)
def test_a_region_that_does_not_stream_is_told(state: str, kind: str, said: str) -> None:
    """With its state and since when."""
    tables = [table(3, 4 * S, 4 * S, streams=(stream(3, 4 * S, state, 6 * S),))]
    found = why([moment(NOW, capture("capture-1", NOW, tables))])
    assert kinds(found) == [(kind, "30")] and said in found.text


def test_a_store_that_is_down_is_told_from_one_that_is_silent() -> None:
    """Both since when, by looking back; what has just fallen silent is on its way."""

    def sample(at_us: int, resolved_us: int, down: tuple[str, ...]) -> Moment:
        return moment(at_us, capture("capture-1", at_us, [table(3, resolved_us, resolved_us)]), down=down)

    dead = [sample(t * S, min(t, 10) * S, ("tikv-1",) if t > 10 else ()) for t in range(1, 21)]
    [holder] = why(dead).holders
    assert (holder.kind, holder.cause, holder.since_us) == ("store", "tikv-1", 11 * S)
    assert "is down or paused" in holder.because
    silent = [sample(t * S, min(t, 10) * S, ()) for t in range(1, 21)]
    [holder] = why(silent).holders
    assert holder.kind == "store" and "has not come here" in holder.because
    lock = HeldLock(ts_of(5 * S), key_of(3, 7), (key_of(3, 7),))
    held = moment(NOW - S // 5, capture("capture-1", NOW, [table(3, 5 * S, 5 * S)]), regions=[region(3, NOW, lock)])
    released = moment(NOW, capture("capture-1", NOW, [table(3, 5 * S, 5 * S)]))
    [holder] = why([held, released]).holders
    assert holder.kind == "passing" and "on its way" in holder.because


def test_a_region_without_a_leader_is_told() -> None:
    """No store that runs leads it."""
    now = moment(NOW, capture("capture-1", NOW, [table(3, 5 * S, 5 * S)]))
    found = why([now._replace(regions=tuple(r for r in now.regions if r.id != 30))])
    assert kinds(found) == [("region", "30")] and "has no leader that runs" in found.text


def test_a_slow_sink_holds_the_checkpoint_and_not_the_resolved_ts() -> None:
    """The oldest unacknowledged row, since when, and how fast the sink was."""

    def sample(at_us: int, written: int) -> Moment:
        slow = table(2, at_us - S // 5, 9 * S - 1, oldest_under_way_ts=ts_of(9 * S), oldest_since_us=9 * S + 5,
                     under_way=512, mounting=9000, written=written)  # fmt: skip
        return moment(at_us, capture("capture-1", at_us, [*of_all(at_us - S // 5, 1), slow]))

    history = [sample(NOW - 2 * S, 1000), sample(NOW, 1240)]
    assert why(history).holders == ()
    [holder] = why(history, watermark=CHECKPOINT).holders
    assert (holder.kind, holder.cause, holder.since_us, holder.held_ts) == ("sink", "2", 9 * S + 5, ts_of(9 * S) - 1)
    assert "it took 120 rows/s lately" in holder.because and holder.path[-1].level == "sink"


def test_a_sink_that_takes_nothing_is_told() -> None:
    """Nothing is under way, and rows wait."""
    stuck = table(2, NOW - S // 5, 9 * S, mounting=70)
    found = why([moment(NOW, capture("capture-1", NOW, [stuck]))], watermark=CHECKPOINT)
    assert kinds(found) == [("sink", "2")] and "takes nothing: 0 rows are under way and 70 wait" in found.text


@pytest.mark.parametrize("executing", [True, False])
def test_a_ddl_holds_both_watermarks_at_its_commit_ts(executing: bool) -> None:
    """Which job, whether it is executing, and since when by looking back; who is not there yet."""

    def sample(at_us: int, executing_us: int | None) -> Moment:
        behind = [table(1, 8 * S, 8 * S), table(2, 8 * S, 8 * S if executing else 7 * S)]
        owner = capture("capture-1", at_us, behind, 8 * S)
        owner = owner._replace(jobs=((ts_of(8 * S), "ALTER TABLE t1 ADD c INT"),),
                               executing_ts=None if executing_us is None else ts_of(executing_us))  # fmt: skip
        return moment(at_us, owner, regions=[region(n, at_us) for n in (1, 2)])

    free = healthy(7 * S)
    history = [free, *(sample(t * S, 8 * S if executing else None) for t in range(9, 21))]
    found = why(history, watermark=CHECKPOINT)
    ddl = next(h for h in found.holders if h.kind == "ddl")
    assert (ddl.cause, ddl.since_us) == (str(ts_of(8 * S)), 9 * S)
    assert ("is being executed" in ddl.because) == executing
    assert ("; shop.t2 is not" in ddl.because) == (not executing)


def test_a_silent_ddl_puller_holds_the_resolved_ts() -> None:
    """Its region is streamed like any other."""
    one = capture("capture-1", NOW, of_all(NOW - S // 5, 1))
    quiet = one._replace(ddl_resolved_ts=ts_of(4 * S), ddl_streams=(stream(META, 4 * S, "scanning", 3 * S),))
    [holder] = why([moment(NOW, quiet, resolved_ts=ts_of(4 * S))]).holders
    assert [s.level for s in holder.path] == ["processor", "ddl puller", "region"] and holder.kind == "scan"


SAID = "table 2 is adding on capture-1, after table 1"


def test_a_table_in_flight_is_told_with_what_it_waits_for() -> None:
    """The owner's own sentence, and beneath it the scan of that table."""
    adding = table(2, 4 * S, 4 * S, state="preparing", streams=(stream(2, 4 * S, "scanning", 5 * S),))
    now = moment(NOW, capture("capture-1", NOW, [*of_all(NOW - S // 5, 1), adding]),
                 stuck=Reason("table", "2", SAID, 5 * S), checkpoint_ts=ts_of(3 * S))  # fmt: skip
    holder, scan = why([now], watermark=CHECKPOINT).holders
    assert (holder.kind, holder.since_us, holder.held_ts) == ("scheduler", 5 * S, ts_of(3 * S))
    assert f"{SAID} (the incremental scan of region 20" in holder.because
    assert (scan.kind, scan.held_ts, holder.without_ts) == ("scan", ts_of(4 * S), ts_of(4 * S))


def test_a_lost_capture_and_a_missing_owner_are_told() -> None:
    """The owner counts a capture that is down; without an owner nothing moves."""
    one, two = (capture(f"capture-{i}", NOW, of_all(NOW - S // 5, i)) for i in (1, 2))
    both = moment(NOW, one, two, checkpoint_ts=ts_of(6 * S), down=("capture-2",),
                  reported=(Reported("capture-2", ts_of(6 * S), ts_of(6 * S)),))  # fmt: skip
    [holder] = why([both._replace(captures=(one,))], watermark=CHECKPOINT).holders
    assert (holder.kind, holder.cause) == ("capture", "capture-2") and "is down or paused" in holder.because
    headless = both._replace(captures=(two,), reported=())
    found = why([headless], watermark=CHECKPOINT)
    assert kinds(found) == [("scheduler", "no owner")]


def test_without_a_lost_capture_a_lock_in_its_table_would_hold_on() -> None:
    """The table begins elsewhere and meets the same lock, in a region of its own or beside another table; no other."""
    lock, alien = (HeldLock(ts_of(6 * S) + 1, key_of(t, 7), (key_of(t, 7),)) for t in (2, 9))
    told = Reported("capture-2", ts_of(6 * S), ts_of(6 * S), (2,))
    now = moment(NOW, capture("capture-1", NOW, of_all(NOW - S // 5, 1)), regions=[region(2, NOW, lock),
                 region(9, NOW, alien)], down=("capture-2",), reported=(told,), resolved_ts=ts_of(6 * S))  # fmt: skip
    lost, held = why([now]).holders
    assert (lost.kind, lost.without_ts, held.kind) == ("capture", lock.start_ts, "transaction")
    assert held.without_ts is None and [s.name for s in held.path[:2]] == ["capture-2", "2"]


def test_what_nobody_told_is_a_report_that_is_missing() -> None:
    """The capture is far ahead of what the owner has of it."""
    now = healthy(NOW)._replace(reported=(Reported("capture-2", ts_of(9 * S), ts_of(9 * S)),), resolved_ts=ts_of(9 * S))
    found = why([now])
    assert kinds(found) == [("report", "capture-2")] and "the owner has not heard of it" in found.text


def test_by_the_mq_rule_nothing_holds_the_global_resolved_ts() -> None:
    """And a lock holds the checkpoint through its own table alone."""
    lock = HeldLock(ts_of(5 * S), key_of(3, 7), (key_of(3, 7),))
    now = moment(NOW, capture("capture-1", NOW, [table(3, 5 * S, 5 * S)]), regions=[region(3, NOW, lock)])
    assert why([now], rule=MQ).holders == () and "MaxUint64" in why([now], rule=MQ).text
    [holder] = why([now], watermark=CHECKPOINT, rule=MQ).holders
    assert holder.path[0].level == "processor"


def test_a_table_that_another_capture_still_writes_does_not_count() -> None:
    """The second one of two phases prepares while the first one writes."""
    new = table(1, 2 * S, 2 * S, state="preparing", streams=(stream(1, 2 * S, "scanning", 3 * S),))
    now = moment(NOW, capture("capture-1", NOW, of_all(NOW - S // 5, 1)), capture("capture-2", NOW, [new]),
                 resolved_ts=ts_of(NOW - S // 5), checkpoint_ts=ts_of(NOW - S // 5), reported=())  # fmt: skip
    assert why([now]).holders == why([now], watermark=CHECKPOINT).holders == ()


def test_the_answer_is_a_table_too() -> None:
    """A row a holder, with its whole path."""
    first, second = (HeldLock(ts_of(t * S), key_of(3, 7), (key_of(3, 7),)) for t in (5, 12))
    now = moment(NOW, capture("capture-1", NOW, [table(3, 5 * S, 5 * S)]), regions=[region(3, NOW, first, second)])
    found = why([now]).table
    assert found.schema == HOLDERS and found["place"].to_pylist() == [1, 2]
    assert found["path"][0].as_py()[-1] == {
        "level": "lock", "name": f"transaction {first.start_ts} (primary t3_r7)", "ts": first.start_ts
    }  # fmt: skip


def test_a_question_without_a_sample_is_refused() -> None:
    """Nor is there a watermark of another name."""
    with pytest.raises(ValueError, match="found 0 samples"):
        why([])
    with pytest.raises(ValueError, match="'lag'"):
        why([healthy(NOW)], watermark="lag")


def test_many_holders_are_counted_in_the_text() -> None:
    """The table has them all."""
    locks = [HeldLock(ts_of(5 * S + n), key_of(3, n), (key_of(3, n),)) for n in range(9)]
    found = why([moment(NOW, capture("capture-1", NOW, [table(3, 5 * S, 5 * S)]), regions=[region(3, NOW, *locks)])])
    assert len(found.holders) == found.table.num_rows == 9 and "After these 5 more: 5 transaction." in found.text

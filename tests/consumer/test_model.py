"""The model does what TiCDC's design shows, under any speeds, pauses, crashes and moves."""

from __future__ import annotations

import random
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from plain_consumer import Message, Plain, narrow_table, random_log, reading_order

from ticdc_lab.consumer.consistency import states, wrong_time
from ticdc_lab.consumer.downstream import why_waiting
from ticdc_lab.consumer.listener import Crash, Listeners, Pause, Rebalance
from ticdc_lab.consumer.log import NarrowLog
from ticdc_lab.consumer.model import ConsumerRun, run
from ticdc_lab.consumer.policy import DESIGN_ROW, DESIGN_TRANSACTION, POLICIES, STRICT, Policy
from ticdc_lab.errors import ContractError

SEEDS = range(150)


def written(found: ConsumerRun) -> list[tuple[int, int]]:
    """(partition, offset) in order of writing, DDL as (-1, commit_ts)."""
    rows = sorted(
        (r for r in found.deliveries.to_pylist() if r["outcome"] == "applied"), key=lambda r: r["apply_order"]
    )
    by_batch = [((r["batch"], r["apply_order"]), (r["partition"], r["offset"])) for r in rows]
    ddl = [((s["batch"], 0), (-1, s["commit_ts"])) for s in found.steps.to_pylist() if s["action"] == "ddl"]
    return [what for _, what in sorted([*by_batch, *ddl])]


@pytest.mark.parametrize("policy", [DESIGN_ROW, DESIGN_TRANSACTION], ids=lambda p: p.name)
def test_the_model_writes_what_a_plain_consumer_writes_in_the_same_order(policy: Policy) -> None:
    """Two programs, one text: the design's."""
    filtered = 0
    for seed in SEEDS:
        r = random.Random(seed)
        log = random_log(r, partitions=r.randrange(1, 4))
        cost = r.sample((101, 307, 1009), len(log))  # without two messages at one time, where either may be first
        plain = Plain(log, restores=policy is DESIGN_TRANSACTION)
        plain.run(reading_order(log, cost))
        how = Listeners(speeds={p: -(-1_000_000 // (c + 1)) for p, c in enumerate(cost)})
        found = run(NarrowLog.of(narrow_table(log)), policy, how)
        assert written(found) == plain.applied, f"seed {seed}"
        dropped = [(r["partition"], r["offset"]) for r in found.deliveries.to_pylist() if r["outcome"] == "filtered"]
        assert sorted(dropped) == sorted(plain.filtered), f"seed {seed}"
        filtered += len(dropped)
    assert filtered > 50, "the logs hold repeats that are filtered"


def every_change(log: list[list[tuple[str, int, str, int]]]) -> set[tuple[str, int, int]]:
    """All changes of a log: table, commit_ts, key."""
    return {(m[2], m[1], m[3]) for part in log for m in part if m[0] == "row"}


def faults(r: random.Random, partitions: int, end: int) -> tuple[Crash | Rebalance, ...]:
    """Up to three of them."""
    out: list[Crash | Rebalance] = []
    for _ in range(r.randrange(1, 4)):
        at = r.randrange(end)
        if r.random() < 0.5:
            out.append(Crash(r.randrange(2), at, at + r.randrange(1, 500)))
        else:
            out.append(Rebalance(r.randrange(partitions), r.randrange(2), at, at + r.randrange(1, 500)))
    return tuple(out)


@pytest.mark.parametrize("policy", [DESIGN_ROW, DESIGN_TRANSACTION, STRICT], ids=lambda p: p.name)
def test_crashes_moves_and_pauses_lose_nothing_and_leave_each_row_at_its_newest_change(policy: Policy) -> None:
    """What is read again is filtered or harmless: progress is saved where nothing above it is written."""
    forgotten = 0
    for seed in SEEDS:
        r = random.Random(f"faults {seed}")
        log = random_log(r, partitions=r.randrange(2, 4))
        pause = Pause(r.randrange(len(log)), at := r.randrange(3000), at + r.randrange(1, 4000))
        how = Listeners(
            speeds={p: r.choice((1000, 5000, 20000)) for p in range(len(log))}, processes=2, pauses=(pause,),
            faults=faults(r, len(log), 6000), write_us=r.choice((0, 30)),
        )  # fmt: skip
        found = run(NarrowLog.of(narrow_table(log)), policy, how)
        rows = found.deliveries.to_pylist()
        applied = sorted((x for x in rows if x["outcome"] == "applied"), key=lambda x: x["apply_order"])
        assert {(x["table"][2:], x["commit_ts"], x["key_hash"] % 100) for x in applied} == every_change(log), (
            f"seed {seed}"
        )
        last = {(x["table"][2:], x["key_hash"] % 100): x["commit_ts"] for x in applied}
        newest: dict[tuple[str, int], int] = {}
        for table, ts, key in every_change(log):
            newest[table, key] = max(ts, newest.get((table, key), 0))
        assert last == newest, f"seed {seed}"
        ddl = [s["commit_ts"] for s in found.steps.to_pylist() if s["action"] == "ddl"]
        assert ddl == sorted({m[1] for m in log[0] if m[0] == "ddl"}), f"seed {seed}"
        forgotten += sum(x["outcome"] == "forgotten" for x in rows)
    assert forgotten > 100, "crashes hit listeners that hold rows"


@pytest.mark.parametrize("name", list(POLICIES))
def test_every_record_of_a_row_has_one_fate_and_times_that_fit(name: str) -> None:
    """No record without an outcome, none visible before it was read."""
    for seed in range(40):
        r = random.Random(f"fates {seed}")
        log = random_log(r, partitions=3)
        how = Listeners(processes=2, faults=faults(r, 3, 3000), write_us=5)
        found = run(NarrowLog.of(narrow_table(log)), POLICIES[name], how)
        rows = found.deliveries.to_pylist()
        assert {(x["partition"], x["offset"]) for x in rows} == {
            (p, i) for p, part in enumerate(log) for i, m in enumerate(part) if m[0] == "row"
        }
        for x in rows:
            assert (x["outcome"] == "applied") == (x["batch"] is not None) == (x["applied_at"] is not None)
            assert x["applied_at"] is None or x["read_at"] < x["applied_at"] <= found.end_us
        order = sorted(x["apply_order"] for x in rows if x["outcome"] == "applied")
        assert order == list(range(len(order)))
        assert found.steps["at"].to_pylist() == sorted(found.steps["at"].to_pylist())


def test_the_same_arguments_give_the_same_run() -> None:
    """Nor does the order of the narrow table matter."""
    log = narrow_table(random_log(random.Random(7), partitions=3))
    how = Listeners(processes=2, faults=(Crash(0, 500, 900),))
    first, second = (run(NarrowLog.of(log), DESIGN_TRANSACTION, how) for _ in range(2))
    assert first.deliveries.equals(second.deliveries) and first.steps.equals(second.steps)
    shuffled = log.take(sorted(range(len(log)), key=lambda i: hash((i, 7)) % 1000))
    assert run(NarrowLog.of(shuffled), DESIGN_TRANSACTION, how).deliveries.equals(first.deliveries)


def test_a_ddl_that_one_partition_never_gets_stops_the_designs_consumer_for_good() -> None:
    """To the letter of TiCDC's design; a consumer that goes by watermarks passes."""
    log = [[("row", 1, "t0", p), ("ddl", 2, "t0", 0), ("resolved", 3, "", 0)] for p in range(3)]
    log[1].pop(1)
    found = run(NarrowLog.of(narrow_table(log)), DESIGN_TRANSACTION)
    waits = [s for s in found.steps.to_pylist() if s["action"] == "wait"]
    assert [s["partition"] for s in waits] == [0, 2]
    assert "partition 1" in waits[-1]["detail"]
    assert not [s for s in found.steps.to_pylist() if s["action"] in ("ddl", "resume")]
    assert {x["outcome"] for x in found.deliveries.to_pylist()} == {"pending"}
    assert [
        s["commit_ts"] for s in run(NarrowLog.of(narrow_table(log)), STRICT).steps.to_pylist() if s["action"] == "ddl"
    ] == [2]


@pytest.mark.parametrize("policy", ["reference", "reference-fixed", "strict"])
def test_a_new_database_waits_for_an_earlier_ddl_alone_in_the_reference(policy: str) -> None:
    """As TiCDC's kafka-consumer: it needs no watermark, and passes no DDL that does; a new table is such a one."""

    def executed(*queries: str) -> list[int]:
        """Which of these DDL, in order, where no watermark comes."""
        table = narrow_table([[("ddl", 2 + i, "t0", 0) for i in range(len(queries))]])
        told = table.set_column(table.schema.get_field_index("query"), "query", pa.array(queries))
        steps = run(NarrowLog.of(told), POLICIES[policy]).steps.to_pylist()
        return [s["commit_ts"] - 2 for s in steps if s["action"] == "ddl"]

    is_reference = policy != "strict"
    assert executed("CREATE DATABASE s", "create schema z") == [0, 1] * is_reference
    assert executed("CREATE DATABASE s", "CREATE TABLE s.t0 (a INT)", "CREATE SCHEMA z") == [0] * is_reference


def test_where_ddl_goes_to_partition_0_alone_a_watermark_stands_for_it() -> None:
    """As canal-json has it."""
    log = [[("row", 1, "t0", p), ("resolved", 3, "", 0)] for p in range(3)]
    log[0].insert(1, ("ddl", 2, "t0", 0))
    for policy in (DESIGN_ROW, DESIGN_TRANSACTION, STRICT):
        found = run(NarrowLog.of(narrow_table(log)), policy)
        assert [s["commit_ts"] for s in found.steps.to_pylist() if s["action"] == "ddl"] == [2]
        assert {x["outcome"] for x in found.deliveries.to_pylist()} == {"applied"}


def test_pauses_and_speeds_say_when_a_message_is_read() -> None:
    """A thousand messages a second, and a pause in the middle of one."""
    log = NarrowLog.of(narrow_table([[("row", ts, "t0", 0) for ts in range(1, 6)] + [("resolved", 5, "", 0)]]))
    how = Listeners(per_second=1000, pauses=(Pause(0, 2500, 10_000),))
    assert run(log, DESIGN_ROW, how).deliveries["read_at"].to_pylist() == [1000, 2000, 10_500, 11_500, 12_500]


def read_at(log: pa.Table, how: Listeners) -> list[int]:
    """When each row change is read."""
    return run(NarrowLog.of(log), DESIGN_ROW, how).deliveries["read_at"].to_pylist()


FIVE = narrow_table([[("row", ts, "t0", 0) for ts in range(1, 6)] + [("resolved", 5, "", 0)]])


def test_pauses_that_overlap_are_one() -> None:
    """From 2.5 ms to 12 ms nothing is read, however often that is reported."""
    pauses = (Pause(0, 2500, 10_000), Pause(0, 5000, 12_000), Pause(0, 5000, 6000))
    assert read_at(FIVE, Listeners(per_second=1000, pauses=pauses)) == [1000, 2000, 12_500, 13_500, 14_500]


def test_after_a_pause_what_has_arrived_is_read_at_the_listeners_speed() -> None:
    """Not all at once: a thousand messages a second."""
    arrived = FIVE.append_column("arrival", pa.array([0, 0, 0, 3000, 20_000, 20_000]))
    how = Listeners(per_second=1000, arrival="as recorded", pauses=(Pause(0, 2500, 10_000),))
    assert read_at(arrived, how) == [1000, 2000, 10_500, 11_500, 21_000]


@pytest.mark.parametrize("per_second", [0, 1000])
def test_nothing_is_read_in_a_pause(per_second: int) -> None:
    """Not even by a listener whom reading costs nothing; a message that is finished as the pause begins is read."""
    for arrival in ("at once", "as recorded"):
        log = FIVE.append_column("arrival", pa.array([0, 500, 1000, 1500, 2999, 3000]))
        how = Listeners(per_second=per_second, pauses=(Pause(0, 0, 100), Pause(0, 1000, 3000)), arrival=arrival)
        at = read_at(log, how)
        assert at == sorted(at)
        assert not [t for t in at if t < 100 or 1000 < t < 3000]


def test_a_process_that_is_down_does_not_come_back_earlier_because_it_dies_again() -> None:
    """Nor does a partition begin in a process that is down."""
    again = (Crash(0, 1500, 9000), Crash(0, 2000, 3000))
    assert read_at(FIVE, Listeners(per_second=1000, faults=again))[-1] == 14_000
    moved = (Crash(1, 500, 9000), Rebalance(0, 1, 2000, 3000))
    assert read_at(FIVE, Listeners(per_second=1000, processes=2, faults=moved))[-1] == 14_000


def test_an_empty_log_is_consumed_whatever_happens() -> None:
    """There is no one to crash."""
    how = Listeners(faults=(Crash(0, 1, 2),), pauses=(Pause(0, 1, 2),))
    found = run(NarrowLog.of(FIVE.slice(0, 0)), DESIGN_ROW, how)
    assert (len(found.deliveries), len(found.steps)) == (0, 0)


@pytest.mark.parametrize(
    "what",
    [{"processes": 0}, {"per_second": -1}, {"speeds": {0: -1}}, {"write_us": -1}, {"pauses": (Pause(0, 5, 4),)},
     {"faults": (Crash(0, 5, 4),)}, {"faults": (Rebalance(0, 1, -1, 4),)}],
    ids=str,
)  # fmt: skip
def test_listeners_that_cannot_be_are_refused(what: dict[str, Any]) -> None:
    """With what to do about it."""
    with pytest.raises(ContractError) as caught:
        Listeners(**what)
    assert caught.value.hint


def test_a_listener_ends_when_nothing_is_left_for_it() -> None:
    """Whether it read its last message by itself, while another one moved, or stopped at it."""
    log = NarrowLog.of(narrow_table([[("resolved", 1, "", 0), ("resolved", 2, "", 0)], [("row", 1, "t0", 1)]]))
    ends = [(s["partition"], s["at"]) for s in run(log, STRICT).steps.to_pylist() if s["action"] == "end"]
    assert ends == [(1, 100), (0, 200)]
    ddl = NarrowLog.of(narrow_table([[("ddl", 1, "t0", 0)], [("resolved", 1, "", 0), ("ddl", 1, "t0", 0)]]))
    ends = [(s["partition"], s["at"]) for s in run(ddl, DESIGN_ROW).steps.to_pylist() if s["action"] == "end"]
    assert ends == [(0, 200), (1, 200)]


def of_topics(*logs: list[list[Message]]) -> pa.Table:
    """Logs as topics a, b, ..."""
    tables = [narrow_table(log) for log in logs]
    return pa.concat_tables(
        t.set_column(0, "topic", pa.array([name] * len(t))) for name, t in zip("abc", tables, strict=False)
    )


def test_only_a_topic_with_more_partitions_tells_that_ddl_goes_to_partition_0_alone() -> None:
    """A topic of one partition would otherwise be laid out over eight with DDL in the first only."""
    ddl, row = ("ddl", 2, "t0", 0), ("row", 1, "t1", 0)
    assert NarrowLog.of(narrow_table([[ddl]])).everywhere
    assert not NarrowLog.of(narrow_table([[ddl], [row]])).everywhere
    assert NarrowLog.of(narrow_table([[ddl], [ddl]])).everywhere
    assert NarrowLog.of(of_topics([[ddl]], [[row], [row]])).everywhere
    assert not NarrowLog.of(of_topics([[ddl], [row]], [[ddl]])).everywhere


def test_why_waiting_names_a_listener_of_the_topic_whose_ddl_is_waited_for() -> None:
    """Not the one of another topic that has passed it; and what it has read, from offset 0 on."""
    late = [("row", 1, "t0", 1), ("resolved", 1, "", 0), ("ddl", 2, "t0", 0)]
    log = NarrowLog.of(of_topics([[("resolved", 3, "", 0)] * 2], [[("ddl", 2, "t0", 0)], late]))
    found = run(log, DESIGN_TRANSACTION, Listeners(per_second=1000))
    wait = why_waiting(found, log, DESIGN_TRANSACTION, at_us=1500)
    assert wait is not None and (wait.topic, wait.partition) == ("b", 1)
    assert "has read offset 0" in wait.answer
    log = NarrowLog.of(narrow_table([[("row", 1, "t0", 0)], [("resolved", 1, "", 0)]]))
    found = run(log, STRICT, Listeners(speeds={0: 1000, 1: 500}))
    assert why_waiting(found, log, STRICT, at_us=500) is None
    for at_us, since in ((1500, 0), (2500, 2000)):
        wait = why_waiting(found, log, STRICT, at_us=at_us)
        assert wait is not None and (wait.partition, wait.since_us) == (0, since)
        assert "is at its end" in wait.answer


def test_partitions_of_several_topics_can_be_told_apart() -> None:
    """By number alone speeds, pauses and moves are of that partition in every topic."""
    log = of_topics(*[[[("row", 1, "t0", 0), ("resolved", 1, "", 0)]] for _ in "ab"])
    both, one = Listeners(speeds={0: 1000}), Listeners(speeds={("b", 0): 500, 0: 1000})
    assert (read_at(log, both), read_at(log, one)) == ([1000, 1000], [1000, 2000])
    assert read_at(log, Listeners(pauses=(Pause(0, 0, 900),))) == [1000, 1000]
    assert read_at(log, Listeners(pauses=(Pause(0, 0, 900, topic="b"),))) == [100, 1000]
    moved = run(NarrowLog.of(log), STRICT, Listeners(processes=2, faults=(Rebalance(0, 1, 50, 60, topic="a"),)))
    assert [s["topic"] for s in moved.steps.to_pylist() if s["action"] == "move"] == ["a"]


@pytest.mark.parametrize("canal", [False, True], ids=["ddl everywhere", "ddl in partition 0"])
def test_a_ddl_waits_for_the_listeners_of_other_topics_too(canal: bool) -> None:
    """By their watermarks, or where they are at one as new: nothing is torn, lost, or stalled for good."""
    for seed in range(50):
        r = random.Random(f"topics {seed}")
        first, second = random_log(r, partitions=2), random_log(r, partitions=1)
        if canal:
            first[1] = [m for m in first[1] if m[0] != "ddl"]
        log = NarrowLog.of(elsewhere(of_topics(first, second)))
        how = Listeners(speeds={("a", 0): 5000, ("b", 0): r.choice((500, 3000, 20_000))}, write_us=r.choice((0, 30)))
        for policy in (DESIGN_ROW, DESIGN_TRANSACTION, STRICT):
            found = run(log, policy, how)
            outcomes = set(found.changes["outcome"].to_pylist())
            assert outcomes <= {"applied", "filtered"}, f"seed {seed}, {policy.name}: {outcomes}"
            done = [s for s in found.steps.to_pylist() if s["action"] == "ddl"]
            assert len(done) == len(log.ddls), f"seed {seed}, {policy.name}"
            if policy is not DESIGN_ROW:
                assert wrong_time(states(found)) == (0, 0), f"seed {seed}, {policy.name}"


def elsewhere(log: pa.Table) -> pa.Table:
    """The log with tables and keys of their own in topic b."""
    b = pc.equal(log["topic"], "b")
    for name, other in (("schema_name", "x"), ("key_hash", pc.add(log["key_hash"], 5000))):
        moved = pc.if_else(pc.and_(b, log[name].is_valid()), other, log[name])
        log = log.set_column(log.schema.get_field_index(name), name, moved)
    return log

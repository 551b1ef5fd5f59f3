"""The consumer inside a run and the one of a recorded log read the same topics, with Admin events, and
show the same.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from plain_consumer import TYPES

from ticdc_lab.consumer.anomalies import anomalies, anomaly_counts, smallest
from ticdc_lab.consumer.downstream import frames_of, held_by_partition, why_waiting
from ticdc_lab.consumer.listener import Crash, Listeners
from ticdc_lab.consumer.log import PARTITION_COUNT, WATERMARK, NarrowLog
from ticdc_lab.consumer.model import ConsumerRun, run
from ticdc_lab.consumer.policy import (
    CLASSIC,
    DESIGN_ROW,
    DESIGN_TRANSACTION,
    POLICIES,
    REFERENCE,
    REFERENCE_FIXED,
    STRICT,
    Policy,
)
from ticdc_lab.consumer.study import Study
from ticdc_lab.figures.consumer_lanes import consumer_lanes
from ticdc_lab.machines.machine import Now, Received
from ticdc_lab.simulate.faults import KEPT
from ticdc_lab.simulate.pipeline import partitions
from ticdc_lab.simulate.pipeline.consumer import CONSUMER, Consumer, ConsumerState, Polled, newest_first
from ticdc_lab.simulate.pipeline.consumer_monitor import ConsumerMonitor
from ticdc_lab.simulate.pipeline.downstream import DdlEntry, Entry, Mark, Partitions, Rows
from ticdc_lab.simulate.pipeline.partitions import Placing
from ticdc_lab.simulate.pipeline.settings import BY_ROW, BY_TRANSACTION, DownstreamSettings
from ticdc_lab.simulate.pipeline.tables import Change, FinishedJob, key_of, table_of

Topic = list[list[Entry]]
FOLLOW = (DESIGN_ROW, DESIGN_TRANSACTION, STRICT, REFERENCE_FIXED, REFERENCE, CLASSIC)
WRONG = ("row goes back", "lost update", "lost change", "row before its DDL", "row after its DDL")


def change(ts: int, key: int) -> Change:
    """A change of a row; the start_ts of a transaction is no part of this."""
    return Change(ts, ts - 1, key, "update", None, (key,), None)  # type: ignore[arg-type]


def written(r: random.Random, *, before: int, resends: bool = True) -> tuple[Topic, dict[int, set[int]]]:
    """What a changefeed writes that changes its number of partitions twice and restarts now and then; what it owes."""
    placing, topic, owed = Placing("tidb-rowid", before), list[list[Entry]](), dict[int, set[int]]()
    count, ts = before, 0

    def put(entry: Entry, to: int) -> None:
        nonlocal placing
        topic.extend([] for _ in range(to - len(topic)))
        if isinstance(entry, Rows):
            placing, parts = partitions.routed(placing, entry)
            for p, part in parts:
                topic[p].append(part)
        else:
            for p in range(to):
                topic[p].append(entry)

    def rows(n: int) -> list[Change]:
        nonlocal ts
        found = []
        for _ in range(n):
            ts += 1
            keys = {key_of(r.randrange(1, 3), r.randrange(6)) for _ in range(r.randrange(1, 4))}
            owed[ts] = keys
            found += [change(ts, key) for key in sorted(keys)]
        return found

    for turn in range(7):
        new = rows(r.randrange(1, 4))
        put(Rows(0, "w", tuple(new)), count)
        if r.random() < 0.3:  # the processor died; another one sends everything above the checkpoint again
            put(Rows(0, "w", tuple(new)), count)
        put(Mark(0, "w", ts), count)
        if r.random() < 0.3:
            job = FinishedJob(turn, "add column", f"ALTER TABLE t1 ADD c{turn} INT", "shop", "t1", None, None)
            put(DdlEntry(0, "w", ts, job), count)
        if turn in (2, 4):
            above = rows(r.randrange(3))
            put(Rows(0, "w", tuple(above)), count)
            after = r.choice([n for n in range(1, 6) if n != count])
            put(Partitions(0, "w", after), max(count, after))
            count, placing = after, placing.over(after)
            if resends:
                put(Rows(0, "w", tuple(above)), count)
    put(Mark(0, "w", ts + 1), count)
    return topic, owed


def narrow(topic: Topic) -> pa.Table:
    """The same topic as a recording."""
    found: list[dict[str, Any]] = []
    for p, entries in enumerate(topic):
        offset = 0
        for e in entries:
            for c in e.changes if isinstance(e, Rows) else (None,):
                one = dict.fromkeys(("commit_ts", "op_rank", "schema_name", "table_name", "key_hash", "before_key_hash",
                                     "change_hash", "query", PARTITION_COUNT))  # fmt: skip
                one |= {"topic": "t", "partition": p, "offset": offset, "seq": 0}
                if c is not None:
                    one |= {"kind": "row", "commit_ts": c.commit_ts, "op_rank": 1, "schema_name": "shop",
                            "table_name": f"t{table_of(c.key)}", "key_hash": c.key,
                            "change_hash": c.commit_ts << 40 | c.key}  # fmt: skip
                elif isinstance(e, DdlEntry):
                    one |= {"kind": "ddl", "commit_ts": e.ts, "schema_name": "shop", "table_name": "t1",
                            "query": e.job.query}  # fmt: skip
                elif isinstance(e, Partitions):
                    one |= {"kind": "admin", PARTITION_COUNT: e.partitions}
                elif isinstance(e, Mark):
                    one |= {"kind": "watermark", "commit_ts": e.ts}
                found.append(one)
                offset += 1
    types = TYPES | {PARTITION_COUNT: pa.int64()}
    return pa.table({n: pa.array([f[n] for f in found], types.get(n, pa.string())) for n in found[0]})


def in_kernel(
    topic: Topic, owed: dict[int, set[int]], *, mode: str, before: int, r: random.Random
) -> tuple[ConsumerState, Any]:
    """Read it as the consumer of a run does, one partition slow, with two crashes; its state, and what is broken."""
    machine = Consumer(DownstreamSettings(partitions=before, consumer=mode, dispatcher="tidb-rowid"))
    watched, broken = ConsumerMonitor(mode), None
    for ts, keys in owed.items():
        watched.owes(ts, keys)
    state, at = machine.start(CONSUMER, Now(0))[0], [0] * len(topic)
    slow, crashes = r.randrange(len(topic)), 2
    while left := [p for p, entries in enumerate(topic) if at[p] < len(entries)]:
        former = state
        if crashes and r.random() < 0.03:
            crashes -= 1
            state, _ = machine.again(CONSUMER, state, KEPT, Now(0))
            at = [state.listeners[p].next if p in state.listeners else 0 for p in range(len(topic))]
        else:
            p = r.choices(left, [1 if p == slow else 9 for p in left])[0]
            polled = Polled(p, at[p], topic[p][at[p]])
            state, _ = machine.step(state, Received(f"partition-{p}", polled), Now(0))
            at[p] += 1
        broken = broken or watched.saw(former, state)
    return state, broken


def recorded(topic: Topic, policy: Policy, r: random.Random) -> tuple[NarrowLog, ConsumerRun]:
    """Read it as a recording, one partition slow, with two crashes of one of two processes."""
    log = NarrowLog.of(narrow(topic))
    crashes = tuple(Crash(r.randrange(2), at, at + r.randrange(400)) for at in (r.randrange(3000), r.randrange(6000)))
    how = Listeners(per_second=5000, speeds={r.randrange(len(topic)): 1000}, processes=2, faults=crashes)
    return log, run(log, policy, how)


def versions(rows: Sequence[tuple[int, int]]) -> dict[int, list[int]]:
    """Of each key the versions in the order in which they came for the first time."""
    found: dict[int, list[int]] = {}
    for key, ts in dict.fromkeys(rows):
        found.setdefault(key, []).append(ts)
    return found


def said_by(state: ConsumerState) -> dict[str, Any]:
    """What the consumer of a run did."""
    done = list(reversed(list(newest_first(state.done))))
    return {"rows": versions([(c.key, c.commit_ts) for one in done for c in one.changes]),
            "ddl": [one.ddl.job.query for one in done if one.ddl], "partitions": state.partitions}  # fmt: skip


def said_of(found: ConsumerRun, before: int) -> dict[str, Any]:
    """What the consumer of the recording did."""
    rows = sorted(
        (d for d in found.deliveries.to_pylist() if d["outcome"] == "applied"), key=lambda d: d["apply_order"]
    )
    steps = found.steps.to_pylist()
    counts = [int(s["detail"].split()[0]) for s in steps if s["action"] == "partitions"]
    return {"rows": versions([(d["key_hash"], d["commit_ts"]) for d in rows]),
            "ddl": [s["detail"] for s in steps if s["action"] == "ddl"],
            "partitions": counts[-1] if counts else before}  # fmt: skip


@pytest.mark.parametrize(("mode", "policy"), [(BY_ROW, DESIGN_ROW), (BY_TRANSACTION, DESIGN_TRANSACTION)])
def test_both_consumers_say_the_same_of_topics_that_change_their_partitions(mode: str, policy: Policy) -> None:
    """200 seeds: repartitions, repeats, DDL, crashes, a slow partition; nothing is lost, nothing goes back."""
    discarded = 0
    for seed in range(200):
        r = random.Random(f"repartitioned {seed}")
        before = r.randrange(1, 5)
        topic, owed = written(r, before=before)
        state, broken = in_kernel(topic, owed, mode=mode, before=before, r=r)
        log, found = recorded(topic, policy, r)
        assert broken is None and said_of(found, before) == said_by(state), f"seed {seed}"
        wrong = {c["kind"]: c["n"] for c in anomaly_counts(found, log).to_pylist() if c["n"]}
        assert not set(wrong) & {*WRONG, *(["torn transaction"] if mode == BY_TRANSACTION else [])}, f"seed {seed}"
        discarded += found.deliveries["outcome"].to_pylist().count("discarded")
    assert discarded > 200


@pytest.mark.parametrize("policy", FOLLOW, ids=lambda p: p.name)
def test_every_policy_follows_admin_events(policy: Policy) -> None:
    """Also those whose late rows or DDL follow other rules: nothing that is sent again is taken for late."""
    for seed in range(60):
        r = random.Random(f"policies {seed}")
        topic, owed = written(r, before=r.randrange(1, 5))
        log = NarrowLog.of(narrow(topic))
        found = run(log, policy, Listeners(per_second=5000, speeds={r.randrange(len(topic)): 1000}))
        assert not {c["kind"] for c in anomaly_counts(found, log).to_pylist() if c["n"]} & set(WRONG), f"seed {seed}"
        assert sum(map(len, said_of(found, 0)["rows"].values())) == sum(map(len, owed.values())), f"seed {seed}"


def test_a_consumer_that_ignores_admin_events_goes_back_and_loses() -> None:
    """The planted fault: what consumers of recorded logs did before."""
    wrong = set()
    for seed in range(60):
        r = random.Random(f"policies {seed}")
        topic, _ = written(r, before=r.randrange(1, 5))
        log = NarrowLog.of(narrow(topic).drop_columns([PARTITION_COUNT]))
        found = run(log, DESIGN_ROW, Listeners(per_second=5000, speeds={r.randrange(len(topic)): 1000}))
        wrong |= {c["kind"] for c in anomaly_counts(found, log).to_pylist() if c["n"]}
    assert {"row goes back", "lost update"} <= wrong


def test_rows_that_an_admin_event_discards_and_nobody_sends_again_are_lost() -> None:
    """Both consumers report it; and the fewest messages that show it keep the Admin event in every partition."""
    seen = 0
    for seed in range(40):
        r = random.Random(f"lost {seed}")
        before = r.randrange(1, 5)
        topic, owed = written(r, before=before, resends=False)
        state, _ = in_kernel(topic, owed, mode=BY_ROW, before=before, r=r)
        log, found = recorded(topic, DESIGN_ROW, r)
        lacking = sum(map(len, owed.values())) - sum(map(len, said_by(state)["rows"].values()))
        lost = anomalies(found, log, kinds=("lost change",)).to_pylist()
        assert len(lost) == lacking, f"seed {seed}"
        if lost and not seen:
            few = smallest(log, DESIGN_ROW, Listeners(per_second=5000), lost[0])
            assert "admin" in few.events["kind"].to_pylist() and len(few.kind) < len(log.kind) / 2
        seen += len(lost)
    assert seen > 10


def hand_made() -> NarrowLog:
    """P0: Row 150, Admin 3; P2: Admin 3, Row 150, Row 180 - the row's home changes with the number of partitions."""
    key = key_of(1, 1)
    rows = [Rows(0, "w", (change(ts, key),)) for ts in (150, 180)]
    admin, mark = Partitions(0, "w", 3), Mark(0, "w", 190)
    return NarrowLog.of(narrow([[rows[0], admin, mark], [admin, mark], [admin, *rows, mark]]))


def test_a_row_that_an_admin_event_moves_is_not_written_back() -> None:
    """Though the listener that had it first is slow."""
    log, how = hand_made(), Listeners(per_second=5000, speeds={0: 1})
    assert log.counts == {"t": 1}
    for name, policy in POLICIES.items():
        found = run(log, policy, how)
        assert not sum(c["n"] for c in anomaly_counts(found, log).to_pylist()), name
        assert said_of(found, 1) == {"rows": {key_of(1, 1): [150, 180]}, "ddl": [], "partitions": 3}, name


def test_who_waits_at_an_admin_event_is_said_and_drawn() -> None:
    """The partitions stand, the slow one is named, and rows that are discarded have a mark of their own."""
    log = hand_made()
    found = run(log, DESIGN_ROW, Listeners(per_second=5000, speeds={0: 1}))
    wait = why_waiting(found, log, DESIGN_ROW, at_us=500_000)
    assert wait is not None and (wait.partition, wait.event) == (0, "an Admin event")
    assert "partitions 1, 2 stand at an Admin event, 3 partitions" in wait.answer
    held = held_by_partition(found, log, at_us=500_000)
    assert held["state"].tolist() == ["reads", "waits at an Admin event", "waits at an Admin event"]
    drawn = consumer_lanes(*frames_of(found))
    shown = {t.name: len(t.x) for t in drawn.data if t.name and t.x is not None}
    assert shown["discarded"] == 1 and shown["Admin event executed"] == 3 and shown["Admin event"] == 0


def test_an_admin_event_that_one_partition_never_gets_stops_the_others() -> None:
    """What lies behind it is unread, and reported to be."""
    key = key_of(1, 1)
    admin = Partitions(0, "w", 3)
    cut: Topic = [[Mark(0, "w", 100)], [Mark(0, "w", 100), admin], [admin, Rows(0, "w", (change(150, key),))]]
    found = run(log := NarrowLog.of(narrow(cut)), DESIGN_ROW)
    assert len(found.unread) == 1 and log.counts == {"t": 2}


def test_a_log_laid_anew_has_watermarks_to_its_end_though_partitions_were_removed() -> None:
    """A partition that no longer counts holds no watermark back; nor does one that does not count yet."""
    for seed in range(20):
        r = random.Random(f"laid {seed}")
        topic, _ = written(r, before=r.randrange(1, 5))
        log = NarrowLog.of(narrow(topic))
        table = log.events.append_column("_target_0", pa.array(np.arange(len(log.kind)), pa.int32()))
        laid = Study(replace(log, events=table), ("table",)).laid("table", 2)
        stated, there = laid.commit_ts[laid.kind == WATERMARK], log.commit_ts[log.kind == WATERMARK]
        assert set(stated.tolist()) == set(there.tolist()), f"seed {seed}"

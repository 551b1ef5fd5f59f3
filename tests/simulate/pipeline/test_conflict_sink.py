"""Conflict detection as the sink's strategy: rows of one key in several partitions, and the alignments between them."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from exploring import seeds

sys.path.insert(0, str(Path(__file__).parent))

from test_consumer_run import Readings, Small, change
from test_pipeline_run import final

from ticdc_lab.machines.machine import Now
from ticdc_lab.simulate.explore import WorldStep, explore
from ticdc_lab.simulate.pipeline import consumer, partitions
from ticdc_lab.simulate.pipeline.capture import sink
from ticdc_lab.simulate.pipeline.consumer import CONSUMER, Consumer, ConsumerState
from ticdc_lab.simulate.pipeline.consumer_monitor import LOST, ORDER, WHOLE, ConsumerMonitor
from ticdc_lab.simulate.pipeline.downstream import Align, Entry, Mark, Rows
from ticdc_lab.simulate.pipeline.monitor import WHOLE as TORN
from ticdc_lab.simulate.pipeline.run import PipelineRun
from ticdc_lab.simulate.pipeline.settings import BY_ROW, BY_TRANSACTION, CONFLICT, CONSUMERS, DownstreamSettings
from ticdc_lab.simulate.pipeline.tables import key_of
from ticdc_lab.simulate.scenario import scenario_from_text

SCENARIO = """
model: pipeline
until: 16s
cluster: {{captures: 2, tables: 2}}
load: {{rows_per_s: 120, rows: 4, until: 8s}}
settings:
  downstream: {{dispatcher: conflict, consumer: {consumer}}}
  capture: {{rule: {rule}, sink_batch_rows: {batch}}}
events:
  - {{at: 1s, link: partition-1, to: consumer, delay: 900ms, for: 5s}}
{events}
assert:
  - {{eventually: rows not executed = 0}}
  - {{eventually: everything is downstream}}
  - {{always: no violation}}
"""
CRASH = "  - {at: 3s, crash: capture-1}\n  - {at: 4s, restart: capture-1}"
READER = "  - {at: 3s, crash: consumer}\n  - {at: 4s, restart: consumer}\n  - {at: 5s, repartition: 5}"
MOVES = "".join(
    f"  - {{at: {2000 + 400 * n}ms, move_table: {1 + n % 2}, to: capture-{1 + n // 2 % 2}}}\n" for n in range(10)
)
DDL = "  - {at: 4s, add_column: 1}"


def played(consumer: str = BY_ROW, rule: str = "mq", batch: int = 4, events: str = "", seed: int = 1) -> Any:
    """Play the scenario; no one reads its trace."""
    text = SCENARIO.format(consumer=consumer, rule=rule, batch=batch, events=events)
    scenario = scenario_from_text(text)
    return scenario.model.play(scenario, seed=seed, keep=False)


_sound = cache(played)


def sound(consumer: str = BY_ROW, rule: str = "mq", batch: int = 4, events: str = "", seed: int = 1) -> Any:
    """Give the same run to every test that plants nothing, however it writes the arguments."""
    return _sound(consumer, rule, batch, events, seed)


def written(run: PipelineRun, partition: int) -> list[Entry]:
    """Give what is in a partition."""
    kept, found = run.kernel.states[f"partition-{partition}"].kept, []
    while kept is not None:
        entry, kept = kept
        found.append(entry)
    return found[::-1]


@pytest.mark.parametrize("mode", CONSUMERS)
@pytest.mark.parametrize(("rule", "events"), [("mq", CRASH), ("base", READER), ("mq", READER), ("mq", DDL)])
def test_a_consumer_has_what_was_committed(mode: str, rule: str, events: str) -> None:
    """With a slow partition, a capture that crashes, a reader that does, other partitions, a DDL."""
    found = sound(mode, rule, events=events)
    assert found.held, [o.because for o in found.outcomes if not o.held]
    state: ConsumerState = found.run.kernel.states[found.run.kernel.address[CONSUMER]]
    done = [c for one in reversed(list(consumer.newest_first(state.done))) for c in one.changes]
    assert final(done) == final(found.run.changes) and state.partitions == (5 if events == READER else 3)


def test_a_key_is_in_one_partition_from_one_alignment_to_the_next() -> None:
    """The design's promise; and keys do move, or there would be nothing to align."""
    run = sound().run
    at: dict[tuple[int, int], set[int]] = {}
    of_key: dict[int, set[int]] = {}
    for partition in range(3):
        numbers: dict[int, int] = {}
        for entry in written(run, partition):
            if isinstance(entry, Align):
                numbers[entry.table] = entry.number
            for row in entry.changes if isinstance(entry, Rows) else ():
                at.setdefault((row.key, numbers.get(row.info.id, 0)), set()).add(partition)
                of_key.setdefault(row.key, set()).add(partition)
    assert all(len(where) == 1 for where in at.values())
    assert any(len(where) > 1 for where in of_key.values())


def test_what_a_transaction_changes_in_a_table_is_in_one_partition() -> None:
    """However small a batch is."""
    run = sound(batch=1).run
    where: dict[tuple[int, int], set[int]] = {}
    for partition in range(3):
        for entry in written(run, partition):
            for row in entry.changes if isinstance(entry, Rows) else ():
                where.setdefault((row.commit_ts, row.info.id), set()).add(partition)
    assert (
        all(len(found) == 1 for found in where.values())
        and max(len(e.changes) for e in run.entries if isinstance(e, Rows)) > 1
    )


def test_a_log_has_its_rows_where_the_partitions_have_them() -> None:
    """One rule places both, and what comes in a stretch of messages goes to a partition once."""
    run = sound(events=CRASH).run
    events = [r for r in run.log.to_pylist() if r["kind"] == "row"]
    for partition in range(3):
        rows = [c for e in written(run, partition) if isinstance(e, Rows) for c in e.changes]
        assert [c.commit_ts for c in rows] == [r["commit_ts"] for r in events if r["target_partition"] == partition]


# Planted


def unaligned(placing: Any, entry: Entry) -> Any:
    """Write no alignment."""
    after, parts = SOUND(placing, entry)
    return after, [(p, e) for p, e in parts if not isinstance(e, Align)]


SOUND = partitions.routed
KNOWING = partitions._taken_over


def never_forgets(known: Any, writer: str, n: int) -> Any:
    """A writer that takes a table over places rows as one that knew nothing, and aligns nothing."""
    had = KNOWING(known, writer, n)
    return had if known is None or known.writer == writer else partitions.replace(had, alignments=known.alignments)


BUGS: dict[str, tuple[Any, str, Callable[..., Any], str]] = {
    "the sink writes no alignment": (partitions, "routed", unaligned, ""),
    "a new writer does not align": (partitions, "_taken_over", never_forgets, MOVES),
    "the consumer does not wait": (consumer, "_waits", lambda state, buffered: False, ""),
}


@pytest.mark.parametrize("mode", CONSUMERS)
@pytest.mark.parametrize("bug", BUGS)
@pytest.mark.parametrize("seed", seeds([0], of=range(2)))
def test_without_alignments_rows_go_back(seed: int, bug: str, mode: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """By every seed, and by none without the bug; a consumer that restores transactions needs no alignment."""
    room, name, instead, events = BUGS[bug]
    assert not sound(mode, events=events, seed=seed).run.violation
    monkeypatch.setattr(room, name, instead)
    broken = played(mode, events=events, seed=seed).run.violation
    assert (broken and broken.invariant) in ({ORDER, LOST} if mode == BY_ROW else {None})


def test_a_torn_batch_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """Planted: batches end behind so many rows, no matter what belongs together."""
    monkeypatch.setattr(sink, "_batch_end", lambda due, at, end, settings: min(at + settings.sink_batch_rows, end))
    violation = played(batch=3).run.violation
    assert violation is not None and violation.invariant in (TORN, WHOLE)


# Every order in a small world

LOGS: tuple[tuple[Entry, ...], ...] = (
    (Rows(0, "w", (change(10, 1), change(10, 2), change(15, 1))), Mark(0, "w", 15), Align(0, "w", 1, 1),
     Mark(0, "w", 20), Align(0, "w", 1, 2), Rows(0, "x", (change(15, 1), change(30, 2))), Mark(0, "w", 31)),
    (Mark(0, "w", 15), Align(0, "w", 1, 1), Rows(0, "w", (change(20, 1), change(20, 3))), Mark(0, "w", 20),
     Align(0, "w", 1, 2), Rows(0, "x", (change(20, 1), change(20, 3))), Mark(0, "w", 31)),
)  # fmt: skip
OWED = {10: {1, 2}, 15: {1}, 20: {1, 3}, 30: {2}}


class Aligned(Readings):
    """The model of every order in which two partitions with two alignments can be read."""

    def __init__(self, mode: str) -> None:
        self.mode = mode
        self.machine = Consumer(DownstreamSettings(partitions=2, consumer=mode, dispatcher=CONFLICT))

    logs = LOGS

    def start(self) -> Small:
        """Nothing is read."""
        return Small(self.machine.start(CONSUMER, Now(0))[0], (0, 0))

    def steps(self, world: Small) -> Iterator[WorldStep[Small]]:
        """Any partition hands its next entry on; in the end all is executed."""
        for step in super().steps(world):
            at_end = all(n == len(log) for n, log in zip(step.world.at, LOGS, strict=True))
            rows = {
                c.key: c.commit_ts
                for one in reversed(list(consumer.newest_first(step.world.state.done)))
                for c in one.changes
            }
            whole = rows == {key_of(1, 1): 20, key_of(1, 2): 30, key_of(1, 3): 20}
            broken = ("Whole In The End", str(rows)) if at_end and not whole else None
            yield step._replace(broken=step.broken or broken)

    def _found(self, state: ConsumerState) -> Any:
        watched = ConsumerMonitor(self.mode)
        for ts, handles in OWED.items():
            watched.owes(ts, {key_of(1, h) for h in handles})
        return watched.saw(self.machine.start(CONSUMER, Now(0))[0], state)


@pytest.mark.parametrize("mode", CONSUMERS)
def test_in_every_order_of_reading_no_row_goes_back(mode: str) -> None:
    """And all is executed in the end: an alignment never stops for good."""
    found = explore(Aligned(mode))
    assert found.complete and found.broken is None and found.states > 30


def test_a_consumer_that_does_not_wait_is_found_in_some_order(monkeypatch: pytest.MonkeyPatch) -> None:
    """By rows; one that restores transactions needs no alignment."""
    monkeypatch.setattr(consumer, "_waits", lambda state, buffered: False)
    found = explore(Aligned(BY_ROW))
    assert found.broken is not None and found.broken[0] == ORDER
    assert explore(Aligned(BY_TRANSACTION)).broken is None


@pytest.mark.parametrize("mode", CONSUMERS)
def test_a_consumer_that_knows_no_repeats_of_other_partitions_is_found(
    mode: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A new writer writes row 1 of 15 again, behind its alignment; the one of 20 was in another partition."""
    monkeypatch.setattr(consumer, "repeats_known", lambda state, table=None: state)
    found = explore(Aligned(mode)).broken
    assert found is not None and found[0] == ORDER

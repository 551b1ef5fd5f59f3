"""The consumer inside a run: partitions that overtake each other and are slow, with an auditor and planted faults."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from exploring import seeds

sys.path.insert(0, str(Path(__file__).parent))

from test_pipeline_run import CRASHES, LOAD, SECOND, SLOW, assert_whole, ddl_load, final, run
from test_repartition_run import asked

from ticdc_lab.errors import ContractError, ScenarioError
from ticdc_lab.machines.machine import Now, Received
from ticdc_lab.simulate.explore import WorldStep, explore
from ticdc_lab.simulate.faults import KEPT, Chaos, Crash, Lose, Pause, Relink, Restart
from ticdc_lab.simulate.network import Link
from ticdc_lab.simulate.pipeline import consumer
from ticdc_lab.simulate.pipeline.consumer import CONSUMER, Consumer, ConsumerState, Polled, newest_first
from ticdc_lab.simulate.pipeline.consumer_monitor import (
    BARRIER,
    CONSUMER_INVARIANTS,
    LOST,
    ORDER,
    WHOLE,
    ConsumerMonitor,
)
from ticdc_lab.simulate.pipeline.downstream import DdlEntry, Entry, Mark, Partitions, Rows
from ticdc_lab.simulate.pipeline.run import PipelineRun
from ticdc_lab.simulate.pipeline.settings import (
    BASE,
    BY_ROW,
    BY_TRANSACTION,
    CONSUMERS,
    MQ,
    MYSQL,
    DownstreamSettings,
)
from ticdc_lab.simulate.pipeline.tables import Change, FinishedJob, key_of
from ticdc_lab.simulate.scenario import scenario_from_text

READ = {mode: DownstreamSettings(consumer=mode) for mode in CONSUMERS}
SLOW_ONE = [Relink(SECOND, "partition-1", CONSUMER, Link((900_000, 900_000)), for_us=4 * SECOND)]


def _slow(mode: str) -> DownstreamSettings:
    return DownstreamSettings(rows_per_s=SLOW.rows_per_s, consumer=mode)


def database(found: PipelineRun) -> dict[int, Any]:
    """Give the rows that the consumer's database has."""
    state: ConsumerState = found.kernel.states[CONSUMER]
    done = [c for one in reversed(list(newest_first(state.done))) for c in one.changes]
    return final(done)


def assert_read(found: PipelineRun) -> None:
    """All is in the topic, and all of that in the consumer's database, in the right state."""
    assert_whole(found)
    watched = found.monitor.consumer
    assert watched is not None and not watched.owed and watched.n_executed >= found.measures.committed > 0
    assert database(found) == final(found.changes)


@pytest.mark.parametrize(("mode", "rule"), [(BY_ROW, MQ), (BY_TRANSACTION, BASE)])
def test_a_consumer_has_what_was_committed_also_with_a_slow_partition(mode: str, rule: str) -> None:
    """No matter what overtakes what on the way."""
    assert_read(run(rule=rule, downstream=READ[mode], faults=SLOW_ONE))


def test_partitions_overtake_each_other() -> None:
    """Or nothing above would be asked: a later row is read before an earlier one of another partition."""
    found = run(downstream=READ[BY_ROW], faults=SLOW_ONE, until_us=5 * SECOND)
    state: ConsumerState = found.kernel.states[CONSUMER]
    executed = [(one.at_us, min(c.commit_ts for c in one.changes)) for one in newest_first(state.done) if one.changes]
    executed.reverse()
    assert any(later[1] < earlier[1] for earlier, later in pairwise(executed))


@pytest.mark.parametrize("mode", [BY_TRANSACTION, BY_ROW])
def test_repeats_after_a_crash_change_nothing(mode: str) -> None:
    """TiCDC's design: a consumer filters what is below the commit_ts that it has executed of a table."""
    found = run(downstream=_slow(mode), faults=CRASHES, until_us=20 * SECOND)
    assert found.violation is None and found.measures.repeated > 0
    assert database(found) == final(found.changes)


@pytest.mark.parametrize("mode", [BY_ROW, BY_TRANSACTION])
def test_a_ddl_waits_for_the_slowest_listener(mode: str) -> None:
    """It is executed behind all rows up to it, once."""
    found = run(ddl_load(), downstream=READ[mode], faults=SLOW_ONE)
    assert_read(found)
    state: ConsumerState = found.kernel.states[CONSUMER]
    ddls = [one.ddl.ts for one in newest_first(state.done) if one.ddl]
    assert sorted(ddls) == [ts for ts, _ in found.jobs] and ddls


@pytest.mark.parametrize(("mode", "partitions"), [(BY_ROW, 2), (BY_TRANSACTION, 5)])
def test_another_number_of_partitions_loses_nothing(mode: str, partitions: int) -> None:
    """Pause, Admin in old and new ones, restart."""
    found = run(downstream=READ[mode], faults=[*SLOW_ONE, *asked(partitions)], until_us=16 * SECOND)
    assert_read(found)
    assert found.kernel.states[CONSUMER].partitions == partitions


@pytest.mark.parametrize("seed", seeds(range(10), of=range(30)))
def test_what_is_lost_on_the_way_is_fetched_and_chaos_breaks_nothing(seed: int) -> None:
    """A consumer sees by the offsets that something is missing; partitions and the consumer stall for a while."""
    faults = [
        *(Lose((1 + n) * SECOND, "Polled", f"partition-{n}", CONSUMER, 5) for n in range(3)),
        Pause(2 * SECOND, "partition-0", SECOND), Pause(4 * SECOND, CONSUMER, SECOND),
    ]  # fmt: skip
    settings = DownstreamSettings(consumer=CONSUMERS[seed % 2])
    found = run(downstream=settings, faults=faults, chaos=Chaos(6 * SECOND, 1_500_000), seed=seed, until_us=20 * SECOND)
    assert found.violation is None and database(found) == final(found.changes)


# Every order in a small world


class Small(NamedTuple):
    """A consumer, how far each partition has handed on, and whether the consumer has crashed."""

    state: ConsumerState
    at: tuple[int, ...]
    crashed: bool = False


def change(ts: int, handle: int, op: str = "update") -> Change:
    """A change of a row."""
    return Change(ts, ts - 1, key_of(1, handle), op, None, (handle,), None)  # type: ignore[arg-type]


JOB = FinishedJob(1, "add column", "ALTER TABLE ..", "shop", "t1", None, None)
ADMIN = Partitions(0, "w", 3)
DDL = DdlEntry(0, "w", 20, JOB)
LOGS = (
    (Rows(0, "w", (change(10, 1), change(11, 1))), Mark(0, "w", 12),
     Rows(0, "w", (change(10, 1), change(11, 1), change(18, 1))), Mark(0, "w", 20),
     DDL, Rows(0, "w", (change(30, 1),)), Mark(0, "w", 31), ADMIN, Rows(0, "w", (change(40, 4),)), Mark(0, "w", 41)),
    (Rows(0, "w", (change(10, 2), change(11, 2))), Mark(0, "w", 12), Rows(0, "w", (change(18, 2),)), Mark(0, "w", 20),
     DDL, Rows(0, "w", (change(30, 2),)), Mark(0, "w", 31), Rows(0, "w", (change(40, 2),)), ADMIN,
     Rows(0, "w", (change(40, 2),)), Mark(0, "w", 41)),
    (ADMIN, Rows(0, "w", (change(40, 3),)), Mark(0, "w", 41)),
)  # fmt: skip
OWED = {10: {1, 2}, 11: {1, 2}, 18: {1, 2}, 30: {1, 2}, 40: {2, 3, 4}}


class Readings:
    """The model of every order in which a consumer can read three partitions; the third begins at Admin."""

    logs: tuple[tuple[Entry, ...], ...] = LOGS

    def __init__(self, mode: str) -> None:
        self.mode, self.machine = mode, Consumer(DownstreamSettings(partitions=2, consumer=mode))

    def start(self) -> Small:
        """Nothing is read."""
        return Small(self.machine.start(CONSUMER, Now(0))[0], (0, 0, 0))

    def steps(self, world: Small) -> Iterator[WorldStep[Small]]:
        """Any partition hands its next entry on."""
        for p, log in enumerate(self.logs):
            if world.at[p] < len(log):
                polled = Polled(p, world.at[p], log[world.at[p]])
                state, _ = self.machine.step(world.state, Received(f"partition-{p}", polled), Now(0))
                at = (*world.at[:p], world.at[p] + 1, *world.at[p + 1 :])
                yield WorldStep((p, world.at[p]), Small(state, at, world.crashed), self._found(state))

    def _found(self, state: ConsumerState) -> Any:
        watched = ConsumerMonitor(self.mode)
        for ts, handles in OWED.items():
            watched.owes(ts, {key_of(1, h) for h in handles})
        return watched.saw(self.machine.start(CONSUMER, Now(0))[0], state)

    def code(self, world: Small) -> int:
        """What was done counts, too."""
        done = tuple((tuple(map(repr, one.changes)), one.ddl is None) for one in newest_first(world.state.done))
        return hash((world.at, done, world.state.listeners, world.crashed))


def _no_wait(state: ConsumerState, entry: Any, n: int) -> bool:
    return True


def _below_only(state: Any, partitions: Any, upto_ts: int, now: Any) -> Any:
    return SOUND(state, partitions, upto_ts - upto_ts // 4, now)


SOUND = consumer.execute
BUGS: dict[str, tuple[str, str, Any, str]] = {
    ORDER: (BY_ROW, "_fresh", lambda rows, executed: (list(rows), executed), ORDER),
    BARRIER: (BY_ROW, "all_stand", _no_wait, BARRIER),
    LOST: (BY_ROW, "execute", _below_only, LOST),
    WHOLE: (BY_TRANSACTION, "resolved_ts", lambda state: max(x.resolved_ts for x in state.listeners.values()), WHOLE),
}
"""By invariant: who shows it, and what is put in whose place."""


@pytest.mark.parametrize("mode", CONSUMERS)
def test_every_order_of_reading_keeps_what_is_promised(mode: str) -> None:
    """All states were seen; each ends in the same database."""
    found = explore(Readings(mode))
    assert found.complete and found.broken is None and found.states > 100 and found.dead_ends >= 1


def _whole(world: Small) -> bool:
    """Whether the newest of each row is executed, and the DDL once."""
    done = list(newest_first(world.state.done))
    rows = {c.key: c.commit_ts for one in reversed(done) for c in one.changes}
    newest = {key_of(1, 1): 30, **{key_of(1, h): 40 for h in (2, 3, 4)}}
    return rows == newest and sum(one.ddl is not None for one in done) == 1


class Ends(Readings):
    """The same, where the consumer may crash, and what is read to its end must be whole."""

    def steps(self, world: Small) -> Iterator[WorldStep[Small]]:
        """As ever, or the consumer begins again with its database."""
        found = list(super().steps(world))
        if not world.crashed:
            state, _ = self.machine.again(CONSUMER, world.state, KEPT, Now(0))
            at = tuple(state.listeners[p].next if p in state.listeners else 0 for p in range(len(LOGS)))
            found.append(WorldStep(CONSUMER, Small(state, at, crashed=True), self._found(state)))
        for step in found:
            at_end = all(n == len(log) for n, log in zip(step.world.at, LOGS, strict=True))
            broken = ("Whole In The End", str(step.world.at)) if at_end and not _whole(step.world) else None
            yield step._replace(broken=step.broken or broken)


@pytest.mark.parametrize("mode", CONSUMERS)
def test_a_consumer_that_crashes_reads_on_where_it_must_in_every_order(mode: str) -> None:
    """At any moment of any order; what was only in memory is read again, and all is whole in the end."""
    found = explore(Ends(mode))
    assert found.complete and found.broken is None and found.states > 2_000


@pytest.mark.parametrize("mode", CONSUMERS)
def test_a_consumer_that_reads_on_behind_what_it_had_in_memory_loses_rows(
    mode: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The planted bug: it saves how far it has read."""
    monkeypatch.setattr(
        consumer.Listener, "saved", property(lambda one: consumer.ListenerPlace(one.next, one.resolved_ts))
    )
    assert explore(Ends(mode)).broken is not None


@pytest.mark.parametrize("mode", CONSUMERS)
def test_a_ddl_that_all_have_passed_is_passed_again_after_a_crash(mode: str) -> None:
    """A row above it that came before it waits still, so it is read again, and only there (seed 441 of the swarm)."""
    machine = Consumer(DownstreamSettings(partitions=2, consumer=mode))
    logs: tuple[tuple[Entry, ...], ...] = ((Rows(0, "w", (change(25, 1),)), DDL, Mark(0, "w", 31)),
                                           (DDL, Rows(0, "w", (change(26, 2),)), Mark(0, "w", 31)))  # fmt: skip

    def read(state: ConsumerState, *at: tuple[int, int]) -> ConsumerState:
        for p, offset in at:
            polled = Polled(p, offset, logs[p][offset])
            state, _ = machine.step(state, Received(f"partition-{p}", polled), Now(0))
        return state

    state = read(machine.start(CONSUMER, Now(0))[0], (0, 0), (0, 1), (1, 0))
    assert state.ddl_ts == DDL.ts
    state, _ = machine.again(CONSUMER, state, KEPT, Now(0))
    assert [state.listeners[p].next for p in (0, 1)] == [0, 1]
    state = read(state, (0, 0), (0, 1), (0, 2), (1, 1), (1, 2))
    assert all(x.stands_at is None and not x.buffered for x in state.listeners.values())
    done = list(newest_first(state.done))
    assert sum(one.ddl is not None for one in done) == 1
    assert sorted(c.commit_ts for one in done for c in one.changes) == [25, 26]


@pytest.mark.parametrize("mode", [BY_TRANSACTION, BY_ROW])
def test_a_consumer_that_crashes_in_a_run_has_all_in_its_end(mode: str) -> None:
    """Twice, with a partition that is slow; what it had read and not executed comes again."""
    crashes = [f for at in (2, 5) for f in (Crash(at * SECOND, CONSUMER), Restart((at + 1) * SECOND, CONSUMER))]
    found = run(downstream=READ[mode], faults=[*SLOW_ONE, *crashes], until_us=16 * SECOND)
    states, address = found.kernel.states, found.kernel.address[CONSUMER]
    assert address == "consumer.3" and not found.monitor.consumer.owed
    done = [c for one in reversed(list(newest_first(states[address].done))) for c in one.changes]
    assert final(done) == final(found.changes)


def test_each_invariant_of_the_consumer_has_a_bug() -> None:
    """None is checked that nothing can violate."""
    assert set(BUGS) == set(CONSUMER_INVARIANTS)


@pytest.mark.parametrize("invariant", BUGS)
def test_a_bug_of_the_consumer_is_found_in_some_order(invariant: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """By the invariant that it breaks."""
    mode, name, instead, breaks = BUGS[invariant]
    monkeypatch.setattr(consumer, name, instead)
    found = explore(Readings(mode))
    assert found.broken is not None and found.broken[0] == breaks


@pytest.mark.parametrize(("bug", "given"), [
    ("execute", {"downstream": READ[BY_ROW]}),
    ("resolved_ts", {"downstream": READ[BY_TRANSACTION], "faults": SLOW_ONE}),
])  # fmt: skip
def test_a_run_finds_a_bug_of_its_consumer(bug: str, given: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """And ends there."""
    _, name, instead, breaks = next(b for b in BUGS.values() if b[1] == bug)
    monkeypatch.setattr(consumer, name, instead)
    found = run(LOAD, **given)
    assert found.violation is not None and found.violation.invariant == breaks


SCENARIO: Callable[[str, str], str] = """
model: pipeline
until: 6s
cluster: {{captures: 2, tables: 2}}
load: {{rows_per_s: 60, until: 3s}}
settings: {{downstream: {0}}}
events:
  - {{at: 1s, link: {1}, to: consumer, delay: 800ms, for: 2s}}
assert:
  - {{eventually: rows not executed = 0}}
  - {{within: 3s, from: 1s, holds: consumer lag > 600ms}}
  - {{always: no violation}}
""".format


def test_a_scenario_has_a_consumer_and_a_slow_partition() -> None:
    """Named as nodes; a node that the run does not have is refused."""
    played = _play(SCENARIO("{consumer: transactions}", "partition-1"))
    assert played.held, [o.because for o in played.outcomes if not o.held]
    for settings, node in (("{consumer: rows}", "partition-9"), ("{partitions: 3}", "partition-1")):
        with pytest.raises(ScenarioError, match=f"found {node if node == 'partition-9' else 'consumer'}"):
            _play(SCENARIO(settings, node))


@pytest.mark.parametrize(("event", "hint"), [
    ("{at: 1s, crash: partition-1}", "`pause` it, or crash the `consumer`"),
    ("{at: 1s, restart: capture-1, disk: torn}", "a capture has none"),
])  # fmt: skip
def test_what_has_no_effect_on_a_node_is_refused(event: str, hint: str) -> None:
    """With the line, and what to do."""
    text = SCENARIO("{consumer: rows}", "partition-1").replace("assert:", f"  - {event}\nassert:")
    with pytest.raises(ScenarioError, match=f"scenario:9.*(?s:.*){hint}"):
        _play(text)


def _play(text: str) -> Any:
    scenario = scenario_from_text(text)
    return scenario.model.play(scenario, seed=1)


def test_a_database_has_no_consumer() -> None:
    """It is refused with what to do."""
    with pytest.raises(ContractError, match="A mysql has no consumer"):
        DownstreamSettings(kind=MYSQL, consumer=BY_ROW)

"""The clients of TiKV: two phases, in the load's order, through refusals; a scripted store answers them."""

from __future__ import annotations

from typing import Any, NamedTuple

from ticdc_lab.machines.machine import Received, Send
from ticdc_lab.simulate.kernel import Kernel
from ticdc_lab.simulate.pipeline.kv_messages import (
    PUT,
    BatchCommands,
    BatchResponses,
    Commit,
    GetRegions,
    KeyIsLocked,
    KvRegion,
    Mutation,
    NotLeader,
    Prewrite,
    Regions,
    Rollback,
    WriteConflict,
)
from ticdc_lab.simulate.pipeline.tables import FIRST, LAST, META, Column, FinishedJob, Raw, TableInfo, key_of
from ticdc_lab.simulate.pipeline.tidb import Tidb
from ticdc_lab.simulate.pipeline.tidb_state import ClientTxn, Load

INFO = TableInfo(7, "s", "t", (Column(1, "id", "int", True), Column(2, "v", "int")))
HALF = key_of(7, 50)


class Seen(NamedTuple):
    commands: tuple[Any, ...] = ()


class Store:
    """Carries out everything, but what ``refuses`` shows; keeps what it carried out."""

    def __init__(self, refuses=lambda command, seen: None) -> None:
        self.refuses = refuses

    def start(self, address, now):
        return Seen(), []

    def step(self, state, event, now):
        if not isinstance(event, Received) or not isinstance(event.message, BatchCommands):
            return state, []
        results = tuple(self.refuses(c, state.commands) for c in event.message.commands)
        done = tuple(c for c, r in zip(event.message.commands, results, strict=True) if r is None)
        answer = BatchResponses(event.message.id, results)
        return Seen(state.commands + done), [Send(event.sender, answer)]


class Pd:
    """Shows that the first store leads all, the second from ``HALF`` on."""

    def start(self, address, now):
        return (), []

    def step(self, state, event, now):
        regions = (KvRegion(1, FIRST, HALF, 1, "tikv-1"), KvRegion(2, HALF, LAST, 1, "tikv-2"))
        if isinstance(event, Received) and isinstance(event.message, GetRegions):
            return state, [Send(event.sender, Regions(FIRST, LAST, regions))]
        return state, []


def put(handle: int, value: int = 0) -> Mutation:
    """Write a row of table 7."""
    return Mutation(key_of(7, handle), PUT, Raw((1, 2), (handle, value)))


def run(load: Load, *, refuses=lambda command, seen: None, until_us: int = 5_000_000) -> Kernel:
    """Run the clients against scripted stores."""
    machines = {"tidb": Tidb(load), "pd": Pd(), "tikv-1": Store(refuses), "tikv-2": Store(refuses)}
    kernel = Kernel(machines, seed=1)
    kernel.run(until_us)
    return kernel


def commands(kernel: Kernel) -> list[Any]:
    """Give what both stores carried out."""
    return [c for store in ("tikv-1", "tikv-2") for c in kernel.states[store].commands]


def test_a_transaction_is_prewritten_everywhere_before_its_primary_is_committed_and_then_the_others():
    """Percolator's order."""
    kernel = run(Load((INFO,), (ClientTxn(1000, 0, (put(1), put(80))),)))
    first, second = kernel.states["tikv-1"].commands, kernel.states["tikv-2"].commands
    assert [type(c) for c in first] == [Prewrite, Commit]
    assert [type(c) for c in second] == [Prewrite, Commit]
    assert first[0].primary == second[0].primary == key_of(7, 1)
    assert first[1].commit_ts == second[1].commit_ts > first[0].start_ts
    assert kernel.states["tidb"].committed == 1
    assert not kernel.states["tidb"].latches


def test_a_transaction_that_rolls_back_leaves_nothing_but_rollbacks():
    """No commit is sent."""
    kernel = run(Load((INFO,), (ClientTxn(1000, 50_000, (put(1), put(80)), True),)))
    assert [type(c) for c in kernel.states["tikv-2"].commands] == [Prewrite, Rollback]
    assert kernel.states["tidb"].rolled_back == 1


def test_changes_of_a_key_are_committed_in_the_order_of_the_load():
    """Also where the first holds its lock for long."""
    kernel = run(Load((INFO,), tuple(ClientTxn(1000 + i, 3000 if i == 0 else 0, (put(1, i),)) for i in range(5))))
    done = [c for c in commands(kernel) if isinstance(c, Commit)]
    values = {c.start_ts: c.mutations[0].value.cells[1] for c in commands(kernel) if isinstance(c, Prewrite)}
    assert [values[c.start_ts] for c in sorted(done, key=lambda c: c.commit_ts)] == [0, 1, 2, 3, 4]


def test_a_ddl_waits_for_the_transactions_on_its_table_and_they_for_it():
    """TiDB's metadata lock."""
    job = FinishedJob(1, "add column", "ALTER TABLE t ADD COLUMN c INT", "s", "t", None, INFO)
    load = Load((INFO,), (ClientTxn(1000, 100_000, (put(1),)), ClientTxn(20_000, 0, (put(2),))), ((10_000, job),))
    kernel = run(load)
    found = {c.keys[0]: c.commit_ts for c in commands(kernel) if isinstance(c, Commit)}
    assert found[key_of(7, 1)] < found[key_of(META, 1)] < found[key_of(7, 2)]


def test_a_ddl_does_not_overtake_a_transaction_of_its_table_that_waits_for_a_key_of_another_table():
    """Else a row could be written to a table that is gone."""
    other = Mutation(key_of(8, 1), PUT, Raw((1, 2), (1, 0)))
    job = FinishedJob(1, "drop table", "DROP TABLE t", "s", "t", 7, None)
    load = Load((INFO, INFO._replace(id=8)), (ClientTxn(1000, 100_000, (other,)), ClientTxn(5000, 0, (other, put(1)))),
                ((10_000, job),))  # fmt: skip
    kernel = run(load)
    found = {c.keys[0]: c.commit_ts for c in commands(kernel) if isinstance(c, Commit)}
    assert found[key_of(7, 1)] < found[key_of(META, 1)]


def test_a_refused_command_is_tried_again_until_it_is_carried_out():
    """Another leader, a foreign lock."""

    def refuses(command, seen, left=[3]):  # noqa: B006
        left[0] -= 1
        return (NotLeader(command.region, None) if left[0] % 2 else KeyIsLocked(0, 0, 0)) if left[0] >= 0 else None

    kernel = run(Load((INFO,), (ClientTxn(1000, 0, (put(1), put(80))),)), refuses=refuses)
    assert kernel.states["tidb"].committed == 1
    assert not kernel.states["tidb"].open


def test_a_conflict_rolls_back_and_begins_again_with_a_new_start_ts():
    """The first start_ts is never used again."""

    def refuses(command, seen):
        first = isinstance(command, Prewrite) and not any(isinstance(c, Rollback) for c in seen)
        return WriteConflict(HALF, 1) if first and command.region == 2 else None

    kernel = run(Load((INFO,), (ClientTxn(1000, 0, (put(1), put(80))),)), refuses=refuses)
    first = kernel.states["tikv-1"].commands
    assert [type(c) for c in first] == [Prewrite, Rollback, Prewrite, Commit]
    assert first[2].start_ts > first[0].start_ts == first[1].start_ts
    assert kernel.states["tidb"].conflicts == 1
    assert kernel.states["tidb"].committed == 1


def test_the_load_says_when_it_is_done():
    """One line in the trace."""
    kernel = run(Load((INFO,), tuple(ClientTxn(1000 * i, 0, (put(i),)) for i in range(1, 40))))
    changed = [r for r in kernel.recorder.rows if r.kind == "changed" and r.subject == "load"]
    assert [(r.after, r.because) for r in changed] == [("done", "39 transactions committed, 0 rolled back")]

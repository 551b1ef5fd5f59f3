"""What the clients of TiKV know: their open transactions, what they wait for, and where regions are."""

from __future__ import annotations

from typing import NamedTuple

from immutables import Map

from ticdc_lab.simulate.machine import Address
from ticdc_lab.simulate.pipeline.keys import META, WIDTH, key_of
from ticdc_lab.simulate.pipeline.kv_messages import PUT, Command, Mutation
from ticdc_lab.simulate.pipeline.load import Load
from ticdc_lab.simulate.pipeline.routes import Routes
from ticdc_lab.simulate.pipeline.tables import Job

PREWRITING, HELD, COMMITTING, FINISHING, ROLLING_BACK = (
    "prewriting",
    "held",
    "committing",
    "finishing",
    "rolling back",
)
"""Of a transaction: locks are written; all are there; the primary key is committed; then the others; or none."""


class Item(NamedTuple):
    """One transaction of the load, a DDL job's among them; ``tables`` are those it writes, or changes."""

    at_us: int
    hold_us: int
    mutations: tuple[Mutation, ...]
    rolls_back: bool
    tables: frozenset[int]
    job: Job | None = None


class Open(NamedTuple):
    """A transaction in flight; ``left`` counts the commands that are not answered."""

    item: int
    phase: str
    left: int
    commit_ts: int = 0
    tries: int = 0


class Batch(NamedTuple):
    """Commands that a store has not answered."""

    store: Address
    commands: tuple[Command, ...]
    sent_us: int


class TidbState(NamedTuple):
    """The clients.

    Attributes
    ----------
    last_ts
        The highest timestamp that PD gave.
    next
        The first item of the load that was not looked at.
    waiting
        Items that wait for the keys or the table of others.
    latches
        Keys of open transactions: what waits for them waits here, so that changes of a key keep the load's order.
    writers
        How many open transactions write a table.
    altering
        Tables that a DDL changes now or waits to change: nothing new is written to them (TiDB's metadata lock).
    batches, again
        Commands under way, by number; commands to be sent again, with the moment.
    outbox
        Commands that go out with the next batch.
    decided
        Transactions (start_ts) that got their commit_ts in the last step.
    """

    address: Address
    last_ts: int = 0
    next: int = 0
    waiting: tuple[int, ...] = ()
    open: Map[int, Open] = Map()
    latches: Map[int, int] = Map()
    writers: Map[int, int] = Map()
    altering: Map[int, int] = Map()
    routes: Routes = Routes()
    asked_us: int | None = None
    batches: Map[int, Batch] = Map()
    again: tuple[tuple[int, Command], ...] = ()
    outbox: tuple[Command, ...] = ()
    decided: tuple[int, ...] = ()
    numbered: int = 0
    committed: int = 0
    rolled_back: int = 0
    conflicts: int = 0


def items_of(load: Load) -> tuple[Item, ...]:
    """Put transactions and jobs in one order; a job stands before the transactions of its moment."""
    jobs = [_of_job(at_us, job) for at_us, job in load.jobs]
    rows = [
        Item(at_us, hold_us, mutations, rolls_back, frozenset([m[0] >> WIDTH for m in mutations]))
        for at_us, hold_us, mutations, rolls_back in load.transactions
        if mutations
    ]
    return tuple(sorted([*jobs, *rows], key=lambda i: i.at_us))


def _of_job(at_us: int, job: Job) -> Item:
    changed = {job.dropped, job.info.id if job.info else None} - {None}
    mutation = Mutation(key_of(META, job.id), PUT, job)
    return Item(at_us, 0, (mutation,), False, frozenset(t for t in changed if t is not None), job)

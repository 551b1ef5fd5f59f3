"""Which region holds a key, as a client of TiKV remembers it."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable
from operator import itemgetter
from typing import NamedTuple, TypeAlias

from immutables import Map

from ticdc_lab.machines.machine import Address, made, stepped
from ticdc_lab.simulate.pipeline.keys import META, WIDTH, key_of
from ticdc_lab.simulate.pipeline.kv_messages import PUT, Command, KvRegion, Mutation
from ticdc_lab.simulate.pipeline.load import Load
from ticdc_lab.simulate.pipeline.tables import FinishedJob


class Routes(NamedTuple):
    """The key space in order: ``holders[i]`` has what is below ``bounds[i]`` and not below the one before it.

    A holder is None where the region is not known, and so is the last one.
    """

    bounds: tuple[int, ...] = ()
    holders: tuple[KvRegion | None, ...] = (None,)

    @property
    def regions(self) -> tuple[KvRegion, ...]:
        return tuple(region for region in self.holders if region is not None)

    def of(self, key: int) -> KvRegion | None:
        """Give the region that holds a key, None where it is not known."""
        return self.holders[bisect_right(self.bounds, key)]

    def learned(self, start: int, end: int, regions: Iterable[KvRegion]) -> Routes:
        """Take PD's word for a key range; what reached into it is forgotten."""
        new = [r for r in regions if r.end > start and r.start < end]
        low = min([start, *(r.start for r in new)])
        high = max([end, *(r.end for r in new)])
        kept = [r for r in self.regions if r.end <= low or r.start >= high]
        return _routes([*kept, *new])

    def without(self, region: int) -> Routes:
        return _routes(r for r in self.regions if r.id != region)


def _routes(regions: Iterable[KvRegion]) -> Routes:
    bounds: list[int] = []
    holders: list[KvRegion | None] = []
    for region in sorted(regions, key=lambda r: r.start):
        if not bounds or bounds[-1] < region.start:
            bounds.append(region.start)
            holders.append(None)
        bounds.append(region.end)
        holders.append(region)
    return Routes(tuple(bounds), (*holders, None))


# What the clients of TiKV know: their open transactions, what they wait for, and where regions are.

PREWRITING, HELD, COMMITTING, FINISHING, ROLLING_BACK = (
    "prewriting",
    "held",
    "committing",
    "finishing",
    "rolling back",
)
"""Of a transaction: locks are written; all are there; the primary key is committed; then the others; or none."""


class Item(NamedTuple):
    """One transaction of the load, a DDL job's among them.

    ``keys`` are those of its mutations, the primary key first.
    """

    at_us: int
    hold_us: int
    mutations: tuple[Mutation, ...]
    rolls_back: bool
    keys: tuple[int, ...]
    job: FinishedJob | None = None

    @property
    def tables(self) -> frozenset[int]:
        """Give those it writes, or changes."""
        if self.job is None:
            return frozenset(key >> WIDTH for key in self.keys)
        changed = (self.job.dropped, self.job.info.id if self.job.info else None)
        return frozenset(table for table in changed if table is not None)


Open: TypeAlias = "tuple[int, str, int, int, int]"
"""A transaction in flight: its item, its phase, how many keys of the phase have a command that is not carried out,
commit_ts (0 before it has one), and how often it was tried before."""

Decided: TypeAlias = "tuple[int, int, int]"
"""A transaction that got its commit_ts: that, its start_ts and its item."""


class SentBatch(NamedTuple):
    """Commands that a store has not answered."""

    store: Address
    commands: tuple[Command, ...]
    sent_us: int


@stepped
class TidbState(NamedTuple):
    """The clients."""

    address: Address
    last_ts: int = 0  # the highest timestamp that PD gave
    next: int = 0  # the first item of the load that was not looked at
    waiting: tuple[int, ...] = ()  # items that wait for the keys or the table of others
    open: Map[int, Open] = Map()
    # Keys of open transactions: what waits for them waits here, so that changes of a key keep the load's order.
    latches: Map[int, int] = Map()
    # Tables that a DDL changes now: nothing new is written to them (TiDB's metadata lock), nor to those that one waits
    # to change.
    altering: frozenset[int] = frozenset()
    routes: Routes = Routes()
    asked_us: int | None = None
    # Commands under way, by number; commands to be sent again, with the moment.
    batches: Map[int, SentBatch] = Map()
    again: tuple[tuple[int, Command], ...] = ()
    # Transactions (start_ts) that entered a phase whose commands go out with the next batch.
    outbox: tuple[int, ...] = ()
    decided: tuple[Decided, ...] = ()  # what was decided in the last step
    numbered: int = 0
    committed: int = 0
    rolled_back: int = 0
    conflicts: int = 0


def items_of(load: Load) -> tuple[Item, ...]:
    """Put transactions and jobs in one order; a job stands before the transactions of its moment."""
    rows = [_of_rows(*txn) for txn in load.transactions if txn[2]]
    return tuple(sorted([*(_of_job(at_us, job) for at_us, job in load.jobs), *rows], key=itemgetter(0)))


def _of_rows(at_us: int, hold_us: int, mutations: tuple[Mutation, ...], rolls_back: bool) -> Item:
    return made(Item, (at_us, hold_us, mutations, rolls_back, tuple([m[0] for m in mutations]), None))


def _of_job(at_us: int, job: FinishedJob) -> Item:
    mutation = Mutation(key_of(META, job.id), PUT, job)
    return Item(at_us, 0, (mutation,), False, (mutation.key,), job)

"""Which region holds a key, as a client of TiKV remembers it."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator
from operator import itemgetter
from typing import NamedTuple, TypeAlias

from immutables import Map

from ticdc_lab.errors import ContractError
from ticdc_lab.machines.machine import Address, made, stepped
from ticdc_lab.simulate.pipeline.kv_messages import DELETE, PUT, Command, KvRegion, Mutation
from ticdc_lab.simulate.pipeline.tables import META, WIDTH, FinishedJob, TableInfo, key_of, shown

# What clients will do upstream: the tables there are, transactions and DDL jobs, each with its moment.


class ClientTxn(NamedTuple):
    """A transaction of one client; the model gives it its start_ts and commit_ts."""

    start_us: int  # when it asks PD for its start_ts (virtual time)
    hold_us: int  # from its last prewrite until it commits or rolls back; long for a long transaction
    mutations: tuple[Mutation, ...]  # the whole of it, each key once; the first is the primary key
    rolls_back: bool = False  # it holds its locks and rolls back


class Load(NamedTuple):
    """Everything that clients will do."""

    tables: tuple[TableInfo, ...]  # the tables that exist at moment 0
    # In ``start_us`` order. Transactions that share a key do not overlap (one has committed before the other starts)
    # but where the load is meant to have conflicts. Each deletes only rows that are there: TiDB writes no other delete.
    transactions: tuple[ClientTxn, ...]
    # DDL jobs by the moment at which they are done, in that order. No transaction that writes the table of a job is
    # open at its moment.
    jobs: tuple[tuple[int, FinishedJob], ...] = ()

    @property
    def rows(self) -> int:
        """Count the row changes of the transactions that commit."""
        return sum(len(txn.mutations) for txn in self.transactions if not txn.rolls_back)


class LoadRows:
    """Which rows there are, from one transaction of a load to the next: changes of a key keep the load's order."""

    def __init__(self) -> None:
        self._there: set[int] = set()

    def missing(self, mutations: tuple[Mutation, ...]) -> Iterator[Mutation]:
        """Give the deletes that find no row."""
        return (m for m in mutations if m.op == DELETE and m.key not in self._there)

    def take(self, txn: ClientTxn) -> None:
        """Continue behind a transaction."""
        if not txn.rolls_back:
            self._there.difference_update(m.key for m in txn.mutations if m.op == DELETE)
            self._there.update(m.key for m in txn.mutations if m.op != DELETE)


def require_rows(load: Load) -> None:
    """Refuse a load that deletes a row that is not there. Raises ContractError: with the transaction and the row."""
    if not any(m[1] == DELETE for txn in load.transactions for m in txn[2]):
        return
    rows = LoadRows()
    for n, txn in enumerate(load.transactions):
        for mutation in () if txn.rolls_back else rows.missing(txn.mutations):  # what is rolled back writes no row
            raise ContractError(
                f"Transaction {n} of the load, at {txn.start_us / 1e6:g} s, deletes {shown(mutation.key)}, and no row "
                "is there; expected a row that an earlier transaction has written.",
                hint="Write the row first, or leave the `delete` out: TiDB writes none for a row that is not there.",
            )
        rows.take(txn)


# The state of the clients.


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

    ``keys`` are its mutations', the primary key first.
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
    """Put transactions and jobs in one order; a job precedes the transactions of its moment."""
    rows = [_of_rows(*txn) for txn in load.transactions if txn[2]]
    return tuple(sorted([*(_of_job(at_us, job) for at_us, job in load.jobs), *rows], key=itemgetter(0)))


def _of_rows(at_us: int, hold_us: int, mutations: tuple[Mutation, ...], rolls_back: bool) -> Item:
    return made(Item, (at_us, hold_us, mutations, rolls_back, tuple([m[0] for m in mutations]), None))


def _of_job(at_us: int, job: FinishedJob) -> Item:
    mutation = Mutation(key_of(META, job.id), PUT, job)
    return Item(at_us, 0, (mutation,), False, (mutation.key,), job)

"""Messages between TiDB, TiKV and PD in the model: kvrpcpb and pdpb, as far as the model needs them.

A batch is one message: client-go sends batches, and a Python object a row would be too slow.
"""

from __future__ import annotations

from typing import NamedTuple, TypeAlias

from ticdc_lab.machines.machine import Address
from ticdc_lab.simulate.pipeline.tables import Value

PUT, DELETE, ROLLBACK = "put", "delete", "rollback"
"""Operations of a lock and kinds of a write record."""


class KvRegion(NamedTuple):
    """A region as PD and clients know it: ``start <= key < end``; splits and merges raise ``epoch``."""

    id: int
    start: int
    end: int
    epoch: int
    leader: Address


class Mutation(NamedTuple):
    """One key of a transaction; ``value`` is None for a delete."""

    key: int
    op: str
    value: Value | None


class Prewrite(NamedTuple):
    """The first phase of Percolator in one region."""

    region: int
    epoch: int
    start_ts: int
    primary: int
    mutations: tuple[Mutation, ...]


class Commit(NamedTuple):
    """The second phase in one region; the primary's region first."""

    region: int
    epoch: int
    start_ts: int
    commit_ts: int
    keys: tuple[int, ...]


class Rollback(NamedTuple):
    """The transaction will not be: its locks go, and a write record of kind ``rollback`` remains."""

    region: int
    epoch: int
    start_ts: int
    keys: tuple[int, ...]


Command: TypeAlias = Prewrite | Commit | Rollback


class BatchCommands(NamedTuple):
    """Commands for one store; each is applied or refused by itself."""

    id: int
    commands: tuple[Command, ...]


class NotLeader(NamedTuple):
    """A refusal: ask PD again, or the store named, if one is."""

    region: int
    leader: Address | None


class EpochNotMatch(NamedTuple):
    """A refusal: the region is another one now; these hold its keys."""

    region: int
    regions: tuple[KvRegion, ...]


class RegionNotFound(NamedTuple):
    """A refusal: there is no such region on this store (it was merged into another)."""

    region: int


class KeyIsLocked(NamedTuple):
    """A refusal of a prewrite: try again later."""

    key: int
    start_ts: int
    primary: int


class WriteConflict(NamedTuple):
    """A refusal of a prewrite: something was committed after its start_ts; begin again with a new one."""

    key: int
    commit_ts: int


class Gone(NamedTuple):
    """A refusal of a commit or prewrite: the transaction was rolled back."""

    start_ts: int


Refusal: TypeAlias = NotLeader | EpochNotMatch | RegionNotFound | KeyIsLocked | WriteConflict | Gone


class BatchResponses(NamedTuple):
    """The answer to :class:`BatchCommands`: None where a command was applied."""

    id: int
    results: tuple[Refusal | None, ...]


class GetRegions(NamedTuple):
    """Asked of PD: which regions hold these keys?"""

    start: int
    end: int


class Regions(NamedTuple):
    """PD's answer, in key order."""

    start: int
    end: int
    regions: tuple[KvRegion, ...]


class RegionHeartbeat(NamedTuple):
    """A leader reports its regions to PD when one changed, and periodically; ``gone`` were merged into others.

    ``terms`` are the terms of its leaderships and ``peers`` the stores that hold the regions, each as ``regions``.
    """

    regions: tuple[KvRegion, ...]
    gone: tuple[int, ...] = ()
    terms: tuple[int, ...] = ()
    peers: tuple[tuple[str, ...], ...] = ()


class Split(NamedTuple):
    """Asked of a store: divide the region that holds ``key`` there, if it leads it."""

    key: int


class Merge(NamedTuple):
    """Asked of a store: unite the region that holds ``key`` with its right neighbour, if it leads both."""

    key: int


class TransferLeader(NamedTuple):
    """Asked of a store: give the leadership of the region that holds ``key`` to another store."""

    key: int
    to: str

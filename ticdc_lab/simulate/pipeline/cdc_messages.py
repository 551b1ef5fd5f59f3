"""Messages between a capture and the CDC component of a TiKV store (kvproto's cdcpb)."""

from __future__ import annotations

from typing import NamedTuple

from ticdc_lab.simulate.pipeline.kv_messages import EpochNotMatch, NotLeader, RegionNotFound
from ticdc_lab.simulate.pipeline.tables import Value

PREWRITE, COMMIT, ROLLED_BACK, COMMITTED, INITIALIZED = "prewrite", "commit", "rollback", "committed", "initialized"
"""Types of rows: the first three are the raft log as it is applied (a scan sends locks as ``prewrite``), ``committed``
is what a scan found in the write column family, ``initialized`` its end."""


class Register(NamedTuple):
    """ChangeDataRequest: stream the changes of a region from ``checkpoint_ts`` on.

    ``start`` and ``end`` narrow the region; ``request_id`` is unique in a capture, so that what comes of an older
    request is known as such.
    """

    request_id: int
    region: int
    epoch: int
    checkpoint_ts: int
    start: int
    end: int


class Deregister(NamedTuple):
    """Nothing more of this request."""

    request_id: int
    region: int


class KvRow(NamedTuple):
    """One row of Event.Entries."""

    type: str  # one of the constants above
    key: int
    start_ts: int
    commit_ts: int = 0  # 0 in a ``prewrite`` and in a ``rollback``
    op: str = ""  # ``put`` or ``delete``; empty in ``commit`` and ``rollback``, whose prewrite has it
    # Of ``prewrite`` and ``committed``; None where there is none.
    value: Value | None = None
    old_value: Value | None = None


class Entries(NamedTuple):
    """Event.Entries of a region, in the order of its raft log (of its scan: any)."""

    request_id: int
    region: int
    rows: tuple[KvRow, ...]


class ResolvedTs(NamedTuple):
    """BatchResolvedTs: nothing at or below ``ts`` will be committed any more in these (request_id, region)."""

    ts: int
    regions: tuple[tuple[int, int], ...]


class RegionFailed(NamedTuple):
    """Event.Error: the stream of a region has ended; register again."""

    request_id: int
    region: int
    error: NotLeader | EpochNotMatch | RegionNotFound

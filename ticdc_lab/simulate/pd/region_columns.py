"""Regions as columns: a million of them, and any one as a ``Region`` again."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import chain
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from ticdc_lab.simulate.pd.regions import DEMOTING, INCOMING, LEARNER, VOTER, Peer, Region

ROLES = (VOTER, LEARNER, INCOMING, DEMOTING)
"""Roles by their number, which is protobuf's."""

Flags = NDArray[np.bool_]


class RegionColumns(NamedTuple):
    """Regions in key order, an array each; peers are a row of slots.

    ``stores`` gives the ids that ``peers`` and ``leader`` are positions in, -1 for none. ``role`` is a position in
    :data:`ROLES`; ``size`` is MiB, ``down_s`` the longest time that a leader reports a peer as down.
    """

    stores: tuple[int, ...]
    id: NDArray[np.int64]
    leader: NDArray[np.int32]
    peers: NDArray[np.int32]
    peer_id: NDArray[np.int64]
    role: NDArray[np.int8]
    witness: Flags
    down: Flags
    pending: Flags
    down_s: NDArray[np.float64]
    size: NDArray[np.float64]
    keys: NDArray[np.int64]
    start_key: pa.ChunkedArray
    end_key: pa.ChunkedArray


def region_at(c: RegionColumns, i: int) -> Region:
    """Give one region, by its place in key order."""
    slots = [k for k in range(c.peers.shape[1]) if c.peers[i, k] >= 0]
    peers = tuple(
        Peer(int(c.peer_id[i, k]), c.stores[c.peers[i, k]], ROLES[c.role[i, k]], bool(c.witness[i, k])) for k in slots
    )
    return Region(
        int(c.id[i]), peers, c.stores[c.leader[i]] if c.leader[i] >= 0 else 0, float(c.size[i]), int(c.keys[i]),
        frozenset(p.store for p, k in zip(peers, slots, strict=True) if c.down[i, k]),
        frozenset(p.store for p, k in zip(peers, slots, strict=True) if c.pending[i, k]),
        c.start_key[i].as_py(), c.end_key[i].as_py(), down_seconds=float(c.down_s[i]),
    )  # fmt: skip


def place_of(c: RegionColumns, region_id: int) -> int | None:
    """Give a region's place by its id, None where it is not there."""
    found = np.flatnonzero(c.id == region_id)
    return int(found[0]) if len(found) else None


def of_regions(regions: Sequence[Region]) -> RegionColumns:
    """Give regions as columns, in the order given."""
    width = max((len(r.peers) for r in regions), default=1) or 1
    stores = tuple(sorted({p.store for r in regions for p in r.peers} | {r.leader for r in regions if r.leader}))
    position = {s: i for i, s in enumerate(stores)}
    mask = np.array([[k < len(r.peers) for k in range(width)] for r in regions], dtype=np.bool_).reshape(-1, width)

    def slots(values: Iterable[object], fill: object, dtype: type) -> Any:
        filled: NDArray[Any] = np.full(mask.shape, fill, dtype=dtype)
        filled[mask] = list(values)
        return filled

    pairs = list(chain.from_iterable(((r, p) for p in r.peers) for r in regions))
    return RegionColumns(
        stores,
        np.array([r.id for r in regions], dtype=np.int64),
        np.array([position.get(r.leader, -1) for r in regions], dtype=np.int32),
        slots((position[p.store] for _, p in pairs), -1, np.int32),
        slots((p.id for _, p in pairs), 0, np.int64),
        slots((ROLES.index(p.role) for _, p in pairs), 0, np.int8),
        slots((p.witness for _, p in pairs), False, np.bool_),
        slots((p.store in r.down for r, p in pairs), False, np.bool_),
        slots((p.store in r.pending for r, p in pairs), False, np.bool_),
        np.array([r.down_seconds for r in regions], dtype=np.float64),
        np.array([r.size for r in regions], dtype=np.float64),
        np.array([r.keys for r in regions], dtype=np.int64),
        pa.chunked_array([pa.array([r.start_key for r in regions], pa.large_string())]),
        pa.chunked_array([pa.array([r.end_key for r in regions], pa.large_string())]),
    )

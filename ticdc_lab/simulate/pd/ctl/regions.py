"""The regions that ``pd-ctl region`` prints, as columns."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from ticdc_lab.simulate.pd.ctl.documents import batches, wrong
from ticdc_lab.simulate.pd.region_columns import RegionColumns

_ROLE_BY_NAME = {"Voter": 0, "Learner": 1, "IncomingVoter": 2, "DemotingVoter": 3}


def regions_of(path: Path) -> RegionColumns:
    """Read regions, in the order of their start keys."""
    parts = [_part(path, batch) for batch in batches(path, "regions") if batch]
    if not parts:
        raise wrong(path, "regions", "one region or more", "none")
    return _joined(parts)


class _Part(NamedTuple):
    """A batch of regions: columns of regions, columns of peers, and how many peers each region has."""

    regions: dict[str, NDArray[Any]]
    peers: dict[str, NDArray[Any]]
    counts: NDArray[np.int64]
    start_key: pa.Array
    end_key: pa.Array


def _part(path: Path, batch: Sequence[Mapping[str, Any]]) -> _Part:
    try:
        return _read(batch)
    except (AttributeError, KeyError, TypeError, ValueError, pa.ArrowException) as e:
        found = next((r for r in batch if not _is_region(r)), batch[0])
        raise wrong(path, "regions", "regions with id, start_key, end_key, peers and leader", found) from e


def _is_region(r: object) -> bool:
    try:
        return bool(_read([r])) if isinstance(r, Mapping) else False
    except (AttributeError, KeyError, TypeError, ValueError, pa.ArrowException):
        return False


def _read(batch: Sequence[Mapping[str, Any]]) -> _Part:
    peers = [p for r in batch for p in r["peers"]]
    down = {(r["id"], d["peer"]["id"]): d.get("down_seconds", 0) for r in batch for d in r.get("down_peers") or ()}
    pending = {(r["id"], p["id"]) for r in batch for p in r.get("pending_peers") or ()}
    ids = [(r["id"], p["id"]) for r in batch for p in r["peers"]] if down or pending else []
    no = np.zeros(len(peers), dtype=np.bool_)
    return _Part(
        {
            "id": np.array([r["id"] for r in batch], dtype=np.int64),
            "leader": np.array([(r.get("leader") or {}).get("store_id", 0) for r in batch], dtype=np.int64),
            "size": np.array([r.get("approximate_size", 0) for r in batch], dtype=np.float64),
            "keys": np.array([r.get("approximate_keys", 0) for r in batch], dtype=np.int64),
            "down_s": _longest(batch, down),
        },
        {
            "store": np.array([p["store_id"] for p in peers], dtype=np.int64),
            "peer_id": np.array([p["id"] for p in peers], dtype=np.int64),
            "role": np.array([_role(p) for p in peers], dtype=np.int8),
            "witness": np.array([p.get("is_witness", False) for p in peers], dtype=np.bool_),
            "down": np.array([i in down for i in ids], dtype=np.bool_) if down else no,
            "pending": np.array([i in pending for i in ids], dtype=np.bool_) if pending else no,
        },
        np.array([len(r["peers"]) for r in batch], dtype=np.int64),
        pa.array([r["start_key"] for r in batch], pa.large_string()),
        pa.array([r["end_key"] for r in batch], pa.large_string()),
    )  # fmt: skip


def _longest(batch: Sequence[Mapping[str, Any]], down: Mapping[tuple[int, int], float]) -> NDArray[np.float64]:
    longest: dict[int, float] = {}
    for (region, _), seconds in down.items():
        longest[region] = max(longest.get(region, 0.0), seconds)
    return np.array([longest.get(r["id"], 0.0) for r in batch], dtype=np.float64)


def _role(peer: Mapping[str, Any]) -> int:
    role = peer.get("role")
    if isinstance(role, int):
        return role
    return _ROLE_BY_NAME[peer.get("role_name", "Learner" if peer.get("is_learner") else "Voter")]


def _joined(parts: Sequence[_Part]) -> RegionColumns:
    start = pa.chunked_array([p.start_key for p in parts])
    order = np.asarray(pc.sort_indices(start))
    regions = {name: np.concatenate([p.regions[name] for p in parts])[order] for name in parts[0].regions}
    counts = np.concatenate([p.counts for p in parts])
    flat = {name: np.concatenate([p.peers[name] for p in parts]) for name in parts[0].peers}
    mask = np.arange(int(counts.max()))[None, :] < counts[:, None]
    stores = np.unique(np.concatenate([flat["store"], regions["leader"][regions["leader"] > 0]]))

    def slots(values: NDArray[Any], fill: int = 0) -> Any:
        filled = np.full(mask.shape, fill, dtype=values.dtype)
        filled[mask] = values
        return filled[order]

    leader = np.where(regions["leader"] > 0, np.searchsorted(stores, regions["leader"]), -1).astype(np.int32)
    return RegionColumns(
        stores=tuple(int(s) for s in stores), id=regions["id"], leader=leader,
        peers=slots(np.searchsorted(stores, flat["store"]).astype(np.int32), -1), peer_id=slots(flat["peer_id"]),
        role=slots(flat["role"]), witness=slots(flat["witness"]), down=slots(flat["down"]),
        pending=slots(flat["pending"]), down_s=regions["down_s"], size=regions["size"], keys=regions["keys"],
        start_key=_taken(start, order), end_key=_taken(pa.chunked_array([p.end_key for p in parts]), order),
    )  # fmt: skip


def _taken(column: pa.ChunkedArray, order: NDArray[np.int64]) -> pa.ChunkedArray:
    in_order = bool((order[1:] > order[:-1]).all())
    return column if in_order else column.take(pa.array(order))

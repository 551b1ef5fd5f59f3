"""Stores and regions as pd-ctl prints them, from v3 to v8.5 and later: sizes, states, roles and keys in any form.

Lists too long to hold as objects are read batch by batch.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from ticdc_lab.pd_core.pd_ctl_files import PrintedFile, batches, listed, wrong
from ticdc_lab.pd_core.pd_ctl_settings import NEWEST, Version, version_of
from ticdc_lab.pd_core.regions import RegionColumns
from ticdc_lab.pd_core.stores import (
    DISCONNECTED_AFTER_S,
    NEVER_S,
    PREPARING,
    REMOVED,
    REMOVING,
    SERVING,
    Store,
    labelled,
)

_NODE_STATES = (PREPARING, SERVING, REMOVING, REMOVED)
_BY_NAME = {"Up": SERVING, "Offline": REMOVING, "Tombstone": REMOVED, "Disconnected": SERVING, "Down": SERVING}
_HEARD = ("Up", "Disconnected")
_UNITS = {"": 1, **{unit: 1 << 10 * n for n, unit in enumerate(("B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"))}}
_SIZE = re.compile(r"(\d+(?:\.\d+)?(?:e\+?\d+)?)\s*([KMGTPE]?i?B?)")
_SECOND_NS = 1e9


class ReadStores(NamedTuple):
    """Stores, and how many each file has that another file heard a minute later or more: those do not count."""

    found: list[Store]
    older: Mapping[PrintedFile, int]


_LATER_NS = 60 * 10**9


def stores_of(files: Sequence[PrintedFile], max_store_down_time_s: float) -> ReadStores:
    """Read stores; of two documents about one the later heartbeat counts.

    The age of a heartbeat is counted from the latest heartbeat of any store, since the document does not show when it
    was printed; a store shown as Disconnected or Down is silent for as long as that means at least. PD shows Up or
    Disconnected only for a store that it heard, so a heartbeat that is missing there was left out of the document.
    """
    found: dict[int, tuple[tuple[int, int], PrintedFile, Store]] = {}
    older: Counter[PrintedFile] = Counter()
    for file in files:
        told = listed(file, "stores")
        heard = [_read_store(file, s, _heard) for s in told]
        latest = max(heard, default=0)
        for s, h in zip(told, heard, strict=True):
            named = s["store"].get("state_name") in _HEARD
            age_s = (latest - h) / _SECOND_NS if h else 0.0 if named else NEVER_S
            store = _read_store(file, s, lambda s, age=age_s: _store(s, age, max_store_down_time_s))
            before, other, _ = found.get(store.id, ((h, latest), file, store))
            if abs(h - before[0]) >= _LATER_NS:
                older[file if h < before[0] else other] += 1
            if (h, latest) >= before:
                found[store.id] = ((h, latest), file, store)
    return ReadStores([s for _, _, s in found.values()], older)


def heard_s(files: Sequence[PrintedFile]) -> float:
    """Give when the latest heartbeat of a store came, seconds since 1970: when it was printed, nearly."""
    return float(max(_read_store(f, s, _heard) for f in files for s in listed(f, "stores"))) / _SECOND_NS


def _read_store(file: PrintedFile, told: Mapping[str, Any], read: Any) -> Any:
    """Read a store; one that is of another form is named itself."""
    try:
        return read(told)
    except (ArithmeticError, AttributeError, IndexError, KeyError, TypeError, ValueError) as e:
        meta = told.get("store")
        name = f"store {meta.get('id')}" if isinstance(meta, Mapping) else "a store without an id"
        why = f"no {e}" if isinstance(e, KeyError) else str(e)
        raise wrong(file, name, f"stores as pd-ctl prints them ({why})", told) from e


def _heard(told: Mapping[str, Any]) -> int:
    meta = told["store"]
    if meta.get("last_heartbeat"):
        return int(meta["last_heartbeat"])
    text = (told.get("status") or {}).get("last_heartbeat_ts", "")
    if not text or text.startswith("0001-"):
        return 0
    whole = re.sub(r"\.\d+", "", text.replace("Z", "+00:00"))
    return int(datetime.fromisoformat(whole).astimezone(UTC).timestamp() * _SECOND_NS)


def _store(told: Mapping[str, Any], age_s: float, max_down_s: float) -> Store:
    meta, status = told["store"], {k: v for k, v in (told.get("status") or {}).items() if v is not None}
    for name, value in status.items():
        if name in _NUMBERS and (not isinstance(value, int | float) or not 0 <= value < _MOST):
            raise ValueError(f"{name} {value!r} is no number")
    shown = meta.get("state_name") or "Up"
    least = {"Disconnected": DISCONNECTED_AFTER_S + 1, "Down": max_down_s + 1}.get(shown, 0.0)
    leaders, regions = status.get("leader_count", 0), status.get("region_count", 0)
    capacity, available = _bytes(status.get("capacity", 0)), _bytes(status.get("available", 0))
    labels = meta.get("labels") or ()
    if odd := [pair["value"] for pair in labels if not isinstance(pair["value"], str)]:
        raise ValueError(f"the label {odd[0]!r} is no text")
    return Store(
        int(meta["id"]), state=_state(meta, shown), heartbeat_age_s=max(age_s, least),
        labels=labelled({pair["key"]: pair["value"] for pair in labels}), capacity=capacity, available=available,
        used=_bytes(status["used_size"]) if "used_size" in status else capacity - available, region_count=regions,
        region_size=status.get("region_size", 0), leader_count=leaders, leader_size=status.get("leader_size", 0),
        leader_weight=status.get("leader_weight", 1), region_weight=status.get("region_weight", 1),
        busy=status.get("is_busy", False), sending_snapshots=status.get("sending_snap_count", 0),
        receiving_snapshots=status.get("receiving_snap_count", 0) + status.get("applying_snap_count", 0),
        leader_in_paused=status.get("pause_leader_transfer_in", False),
        leader_out_paused=status.get("pause_leader_transfer_out", False),
        physically_destroyed=bool(meta.get("physically_destroyed")), witness_count=status.get("witness_count", 0),
        slow_score=float(status.get("slow_score", 1)),
    )  # fmt: skip


_NUMBERS = frozenset({
    "leader_count", "region_count", "region_size", "leader_size", "leader_weight", "region_weight", "slow_score",
    "sending_snap_count", "receiving_snap_count", "applying_snap_count", "witness_count",
})  # fmt: skip
_MOST = 2.0**62

_PREPARES_SINCE: Version = (6, 0)
"""Stores have a node state from here on; 0, which is Preparing, is not printed."""


def _state(meta: Mapping[str, Any], shown: str) -> str:
    """Give the node state; where it is missing, what the shown state means."""
    node = meta.get("node_state")
    if isinstance(node, str) and node.lower() in _NODE_STATES:
        return node.lower()
    if isinstance(node, int) and (node or shown not in _BY_NAME):
        return _NODE_STATES[node]
    version = version_of(str(meta.get("version") or ""))
    if shown == "Up" and "node_state" not in meta and _PREPARES_SINCE <= version < NEWEST:
        return PREPARING
    return _BY_NAME[shown]


def _bytes(value: object) -> float:
    """Read a size as pd-ctl prints it, 93.9MiB, or bytes."""
    if isinstance(value, int | float):
        return float(value)
    match = _SIZE.fullmatch(str(value))
    if match is None or match[2] not in _UNITS:
        raise ValueError(f"{value!r} is no size such as 93.9MiB")
    return float(match[1]) * _UNITS[match[2]]


_ROLE_BY_NAME = {"Voter": 0, "Learner": 1, "IncomingVoter": 2, "DemotingVoter": 3}


def regions_of(files: Sequence[PrintedFile]) -> tuple[RegionColumns, int]:
    """Read regions, in the order of their start keys; of one that is printed twice the newest epoch counts.

    Returns: the regions, and how many were printed with several epochs.
    """
    parts = [_part(file, _unlisted(batch)) for file in files for batch in batches(file, "regions") if batch]
    if not parts:
        raise wrong(files[0], "regions", "one region or more", "none")
    return _joined(parts)


def _unlisted(batch: list[dict[str, Any]]) -> Sequence[Mapping[str, Any]]:
    """Give the regions of several documents in one list, as ``jq -s`` writes them; regions as they are."""
    if isinstance(batch[0], dict) and "regions" in batch[0] and "peers" not in batch[0]:
        return [r for one in batch for r in one["regions"] or ()]
    return batch


class _Part(NamedTuple):
    """A batch of regions: columns of regions, columns of peers, and how many peers each region has."""

    regions: dict[str, NDArray[Any]]
    peers: dict[str, NDArray[Any]]
    counts: NDArray[np.int64]
    start_key: pa.Array
    end_key: pa.Array


_BROKEN = (AttributeError, KeyError, TypeError, ValueError, OverflowError, pa.ArrowException)


def _part(file: PrintedFile, batch: Sequence[Mapping[str, Any]]) -> _Part:
    try:
        return _read(batch)
    except _BROKEN as e:
        found = next((r for r in batch if not _is_region(r)), batch[0])
        name = f"region {found['id']}" if isinstance(found, Mapping) and "id" in found else "a region without an id"
        raise wrong(file, name, f"regions with id, start_key, end_key, peers and leader ({e})", found) from e


def _is_region(r: object) -> bool:
    try:
        return bool(_read([r])) if isinstance(r, Mapping) else False
    except _BROKEN:
        return False


def _read(batch: Sequence[Mapping[str, Any]]) -> _Part:
    held = [r["peers"] or () for r in batch]
    peers = [p for some in held for p in some]
    down = {(r["id"], d["peer"]["id"]): d.get("down_seconds") or 0 for r in batch for d in r.get("down_peers") or ()}
    pending = {(r["id"], p["id"]) for r in batch for p in r.get("pending_peers") or ()}
    ids = [(r["id"], p["id"]) for r, some in zip(batch, held, strict=True) for p in some] if down or pending else []
    no = np.zeros(len(peers), dtype=np.bool_)
    size = np.array([r.get("approximate_size") or 0 for r in batch], dtype=np.float64)
    if not np.isfinite(size).all():
        raise ValueError("an approximate_size is no number")
    keys = [pa.array([r[name] or "" for r in batch], pa.large_string()) for name in ("start_key", "end_key")]
    if not all(pc.all(pc.match_substring_regex(k, "^[0-9A-Fa-f]*$")).as_py() for k in keys):
        raise ValueError("a key is not in hexadecimal")
    longest: dict[int, float] = {}
    for (region, _), seconds in down.items():
        longest[region] = max(longest.get(region, 0.0), seconds)
    return _Part(
        {
            "id": np.array([r["id"] for r in batch], dtype=np.int64),
            "epoch": np.array([sum((r.get("epoch") or {}).values()) for r in batch], dtype=np.int64),
            "leader": np.array([(r.get("leader") or {}).get("store_id") or 0 for r in batch], dtype=np.int64),
            "size": size,
            "keys": np.array([r.get("approximate_keys") or 0 for r in batch], dtype=np.int64),
            "down_s": np.array([longest.get(r["id"], 0.0) for r in batch], dtype=np.float64),
            "read": np.array([r.get("read_bytes") or 0 for r in batch], dtype=np.float64),
            "write": np.array([r.get("written_bytes") or 0 for r in batch], dtype=np.float64),
        },
        {
            "store": np.array([p["store_id"] for p in peers], dtype=np.int64),
            "peer_id": np.array([p["id"] for p in peers], dtype=np.int64),
            "role": np.array([_role(p) for p in peers], dtype=np.int8),
            "witness": np.array([p.get("is_witness") or False for p in peers], dtype=np.bool_),
            "down": np.array([i in down for i in ids], dtype=np.bool_) if down else no,
            "pending": np.array([i in pending for i in ids], dtype=np.bool_) if pending else no,
        },
        np.array([len(some) for some in held], dtype=np.int64),
        *keys,
    )  # fmt: skip


def _role(peer: Mapping[str, Any]) -> int:
    role = peer.get("role")
    if isinstance(role, int):
        return role
    return _ROLE_BY_NAME[role or peer.get("role_name") or ("Learner" if peer.get("is_learner") else "Voter")]


def _joined(parts: Sequence[_Part]) -> tuple[RegionColumns, int]:
    start = pc.ascii_upper(pa.chunked_array([p.start_key for p in parts]))
    order = np.asarray(pc.sort_indices(start))
    ids, epochs = (np.concatenate([p.regions[name] for p in parts]) for name in ("id", "epoch"))
    newest = np.lexsort((-epochs, ids))
    first = np.append(True, ids[newest][1:] != ids[newest][:-1])
    changed = ~first & (epochs[newest] != epochs[np.roll(newest, 1)])
    once = np.zeros(len(ids), dtype=np.bool_)
    once[newest[first]] = True
    order = order[once[order]]
    regions = {name: np.concatenate([p.regions[name] for p in parts])[order] for name in parts[0].regions}
    counts = np.concatenate([p.counts for p in parts])
    flat = {name: np.concatenate([p.peers[name] for p in parts]) for name in parts[0].peers}
    mask = np.arange(max(1, int(counts.max())))[None, :] < counts[:, None]
    stores = np.unique(np.concatenate([flat["store"], regions["leader"][regions["leader"] > 0]]))

    def slots(values: NDArray[Any], fill: int = 0) -> Any:
        filled = np.full(mask.shape, fill, dtype=values.dtype)
        filled[mask] = values
        return filled[order]

    leader = np.where(regions["leader"] > 0, np.searchsorted(stores, regions["leader"]), -1).astype(np.int32)
    columns = RegionColumns(
        stores=tuple(int(s) for s in stores), id=regions["id"], leader=leader,
        peers=slots(np.searchsorted(stores, flat["store"]).astype(np.int32), -1), peer_id=slots(flat["peer_id"]),
        role=slots(flat["role"]), witness=slots(flat["witness"]), down=slots(flat["down"]),
        pending=slots(flat["pending"]), down_s=regions["down_s"], size=regions["size"], keys=regions["keys"],
        start_key=_taken(start, order),
        end_key=_taken(pc.ascii_upper(pa.chunked_array([p.end_key for p in parts])), order),
        read=regions["read"], write=regions["write"],
    )  # fmt: skip
    return columns, len(np.unique(ids[newest[changed]]))


def _taken(column: pa.ChunkedArray, order: NDArray[np.int64]) -> pa.ChunkedArray:
    in_order = len(order) == len(column) and bool((order[1:] > order[:-1]).all())
    return column if in_order else column.take(pa.array(order))

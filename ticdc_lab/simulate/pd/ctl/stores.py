"""The stores that ``pd-ctl store`` prints."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from ticdc_lab.simulate.pd.ctl.documents import listed, wrong
from ticdc_lab.simulate.pd.stores import (
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
_UNITS = {"": 1, **{unit: 1 << 10 * n for n, unit in enumerate(("B", "KiB", "MiB", "GiB", "TiB", "PiB"))}}
_SIZE = re.compile(r"(\d+(?:\.\d+)?(?:e\+?\d+)?)\s*([KMGTP]?i?B?)")
_SECOND_NS = 1e9


def stores_of(path: Path, max_store_down_time_s: float) -> list[Store]:
    """Read stores.

    The age of a heartbeat is counted from the latest heartbeat of any store, since the document does not say when it
    was printed; a store shown as Disconnected or Down is silent for as long as that means at least.
    """
    told = listed(path, "stores")
    try:
        heard = [_heartbeat_ns(s["store"], s.get("status", {})) for s in told]
        latest = max(heard, default=0)
        ages = [(latest - h) / _SECOND_NS if h else NEVER_S for h in heard]
        return [_store(s, age, max_store_down_time_s) for s, age in zip(told, ages, strict=True)]
    except (AttributeError, KeyError, TypeError, ValueError) as e:
        raise wrong(path, "stores", f"stores as pd-ctl prints them ({e})", told[:1]) from e


def _store(told: Mapping[str, Any], age_s: float, max_down_s: float) -> Store:
    meta, status = told["store"], told.get("status", {})
    shown = meta.get("state_name", "Up")
    least = {"Disconnected": DISCONNECTED_AFTER_S + 1, "Down": max_down_s + 1}.get(shown, 0.0)
    leaders, regions = status.get("leader_count", 0), status.get("region_count", 0)
    capacity, available = _bytes(status.get("capacity", 0)), _bytes(status.get("available", 0))
    return Store(
        meta["id"], state=_state(meta, shown), heartbeat_age_s=max(age_s, least),
        labels=_labels(meta.get("labels") or ()), capacity=capacity, available=available,
        used=_bytes(status["used_size"]) if "used_size" in status else capacity - available, region_count=regions,
        region_size=status.get("region_size", 0), leader_count=leaders, leader_size=status.get("leader_size", 0),
        leader_weight=status.get("leader_weight", 1), region_weight=status.get("region_weight", 1),
        busy=status.get("is_busy", False), sending_snapshots=status.get("sending_snap_count", 0),
        receiving_snapshots=status.get("receiving_snap_count", 0) + status.get("applying_snap_count", 0),
        physically_destroyed=meta.get("physically_destroyed", False), witness_count=status.get("witness_count", 0),
    )  # fmt: skip


def _state(meta: Mapping[str, Any], shown: str) -> str:
    """Give the node state; where it is not told, what the shown state means."""
    node = meta.get("node_state")
    if isinstance(node, int) and (node or shown not in _BY_NAME):
        return _NODE_STATES[node]
    return _BY_NAME[shown]


def _labels(told: Sequence[Mapping[str, str]]) -> Mapping[str, str]:
    return labelled({pair["key"]: pair["value"] for pair in told})


def _heartbeat_ns(meta: Mapping[str, Any], status: Mapping[str, Any]) -> int:
    """Give the moment of the last heartbeat, ns since 1970; 0 where none came."""
    if meta.get("last_heartbeat"):
        return int(meta["last_heartbeat"])
    text = status.get("last_heartbeat_ts", "")
    if not text or text.startswith("0001-"):
        return 0
    whole = re.sub(r"\.\d+", "", text.replace("Z", "+00:00"))
    return int(datetime.fromisoformat(whole).astimezone(UTC).timestamp() * _SECOND_NS)


def _bytes(value: object) -> float:
    """Read a size as pd-ctl prints it, 93.9MiB, or bytes."""
    if isinstance(value, int | float):
        return float(value)
    match = _SIZE.fullmatch(str(value))
    if match is None or match[2] not in _UNITS:
        raise ValueError(f"{value!r} is no size such as 93.9MiB")
    return float(match[1]) * _UNITS[match[2]]

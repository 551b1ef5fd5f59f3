"""A user's own cluster, from what pd-ctl printed about it: stores, regions, settings and placement rules.

Lists too long to hold as objects are read batch by batch.
"""

from __future__ import annotations

import gzip
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields
from datetime import UTC, datetime
from pathlib import Path
from types import MappingProxyType
from typing import IO, Any, NamedTuple

import numpy as np
import orjson
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from ticdc_lab.errors import SourceError
from ticdc_lab.simulate.pd.cluster import Cluster, cluster_of
from ticdc_lab.simulate.pd.config import Config, field_of
from ticdc_lab.simulate.pd.forecast import Limits, PerMinute
from ticdc_lab.simulate.pd.regions import RegionColumns
from ticdc_lab.simulate.pd.rules import Constraint, Rule, in_order
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

CHUNK = 8 << 20
"""Bytes read at a time."""

_HEAD = 4096
_ESCAPED = re.compile(rb"\\.", re.DOTALL)
_OPEN, _CLOSE = (ord("{"), ord("[")), (ord("}"), ord("]"))
_GZIP = b"\x1f\x8b"


def wrong(path: Path, where: str, expected: str, found: object) -> SourceError:
    """Give the error of a document of another form."""
    text = found.decode(errors="replace") if isinstance(found, bytes) else repr(found)
    hint = "Give the JSON that pd-ctl prints for store, region, config show all and config placement-rules show."
    return SourceError(f"{path}: {where}: expected {expected}, found {text:.120}", hint=hint)


def document(path: Path) -> Any:
    """Read a whole document."""
    with opened(path) as file:
        data = file.read()
    try:
        return orjson.loads(data)
    except orjson.JSONDecodeError as e:
        raise wrong(path, f"character {e.pos}", "JSON", data[max(0, e.pos - 20) : e.pos + 20]) from e


def listed(path: Path, key: str) -> list[Mapping[str, Any]]:
    """Read the objects of a document: in a list under a key, or a list by itself."""
    found = document(path)
    inner = found.get(key) if isinstance(found, Mapping) else found
    if not isinstance(inner, list) or not all(isinstance(i, Mapping) for i in inner):
        raise wrong(path, key, f'a list of objects under "{key}"', inner)
    return inner


def opened(path: Path) -> IO[bytes]:
    """Open a file, gzipped or not."""
    try:
        with path.open("rb") as file:
            zipped = file.read(2) == _GZIP
        return gzip.open(path, "rb") if zipped else path.open("rb")  # type: ignore[return-value]
    except OSError as e:
        raise SourceError(f"{path}: cannot be read: {e.strerror}", hint="Give a file that pd-ctl wrote.") from e


def batches(path: Path, key: str) -> Iterator[list[dict[str, Any]]]:
    """Read the objects of a list under a key, or one a line, a few thousand at a time.

    Parameters
    ----------
    path
        ``{"count": .., KEY: [{..}, ..]}``, ``[{..}, ..]`` or objects one after the other.
    key
        The name of the list.
    """
    with opened(path) as file:
        rest = file.read(_HEAD)
        start = re.search(rb'"%s"\s*:\s*' % key.encode(), rest)
        rest = rest[start.end() :] if start else rest
        if rest.startswith(b"null"):
            return
        rest = rest.lstrip().removeprefix(b"[")
        over = False
        while not over:
            more = file.read(CHUNK)
            rest += more
            end, over = _complete(rest)
            yield _decoded(path, rest[:end])
            rest = rest[end:]
            if not more and not over:
                if rest.strip(b" \t\r\n,]"):
                    raise wrong(path, "end of the file", "complete objects", rest[:60])
                return


def _complete(text: bytes) -> tuple[int, bool]:
    """Give where the last complete object ends, and whether the list is over there."""
    plain = np.frombuffer(_ESCAPED.sub(b"xx", text) if b"\\" in text else text, dtype=np.uint8)
    outside = (np.cumsum(plain == ord('"')) & 1) == 0
    opening = ((plain == _OPEN[0]) | (plain == _OPEN[1])) & outside
    closing = ((plain == _CLOSE[0]) | (plain == _CLOSE[1])) & outside
    depth = np.cumsum(opening.astype(np.int8) - closing.astype(np.int8), dtype=np.int32)
    past = np.flatnonzero(depth < 0)
    last = int(past[0]) if len(past) else len(plain)
    ends = np.flatnonzero(closing[:last] & (depth[:last] == 0))
    return (int(ends[-1]) + 1 if len(ends) else 0), bool(len(past))


def _decoded(path: Path, text: bytes) -> list[dict[str, Any]]:
    joined = text.strip(b" \t\r\n,")
    if not joined:
        return []
    try:
        return _loaded(joined)
    except orjson.JSONDecodeError as e:
        raise wrong(path, "a list", "JSON objects", joined[max(0, e.pos - 20) : e.pos + 40]) from e


def _loaded(joined: bytes) -> list[dict[str, Any]]:
    try:
        found: list[dict[str, Any]] = orjson.loads(b"[" + joined + b"]")
    except orjson.JSONDecodeError:
        found = [orjson.loads(line) for line in joined.splitlines() if line.strip()]
    return found


_GROUPS = ("schedule", "replication")
_UNITS_S = {"h": 3600.0, "m": 60.0, "s": 1.0, "ms": 1e-3, "us": 1e-6, "µs": 1e-6, "ns": 1e-9}
_DURATION = re.compile(r"(\d+(?:\.\d+)?)(h|ms|us|µs|ns|m|s)")
_KEYS_PER_MIB = 10_000


def settings_of(path: Path | None) -> Config:
    """Read settings; those that are not told, and all where there is no file, have PD's defaults."""
    if path is None:
        return Config()
    told = document(path)
    if not isinstance(told, Mapping):
        raise wrong(path, "config", "an object", told)
    found: dict[str, Any] = {}
    known = {f.name: f.default for f in fields(Config)}
    for key, value in _settings(told):
        name = field_of(key)
        if name in known and name != "reject_leader":
            try:
                found[name] = _as(known[name], value)
            except (TypeError, ValueError) as e:
                raise wrong(path, key, f"a value such as {known[name]!r}", value) from e
    if found.get("max_merge_region_keys") == 0 and "max_merge_region_size" in found:
        found["max_merge_region_keys"] = found["max_merge_region_size"] * _KEYS_PER_MIB
    return Config(**found, reject_leader=_rejecting(told))


def _settings(told: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """Give settings by their names, whether they are in groups or not."""
    for group in _GROUPS:
        inner = told.get(group)
        if isinstance(inner, Mapping):
            yield from inner.items()
    yield from ((k, v) for k, v in told.items() if not isinstance(v, Mapping | list))


def _as(default: object, value: Any) -> object:
    """Read a setting in the form of its default: PD prints some booleans and lists as text, durations as 30m0s."""
    if isinstance(default, bool):
        return value if isinstance(value, bool) else _flag(value)
    if isinstance(default, tuple):
        parts = value.split(",") if isinstance(value, str) else value
        return tuple(p.strip() for p in parts if p.strip())
    if isinstance(default, float):
        return _seconds(value) if isinstance(value, str) else float(value)
    return int(value) if isinstance(default, int) else str(value)


def _flag(value: object) -> bool:
    if value not in ("true", "false"):
        raise ValueError(value)
    return value == "true"


def _seconds(text: str) -> float:
    parts = _DURATION.findall(text)
    if not parts or "".join(n + u for n, u in parts) != text:
        return float(text)
    return sum(float(n) * _UNITS_S[u] for n, u in parts)


def _rejecting(told: Mapping[str, Any]) -> tuple[tuple[str, str], ...]:
    properties = told.get("label-property") or {}
    listed_ = properties.get("reject-leader", ()) if isinstance(properties, Mapping) else ()
    return tuple((p["key"], p["value"]) for p in listed_)


def limits_of(path: Path | None) -> Mapping[int, PerMinute]:
    """Read the store limits, by store; none where there is no file."""
    told = document(path) if path is not None else {}
    schedule = told.get("schedule") if isinstance(told, Mapping) else None
    limits = (schedule if isinstance(schedule, Mapping) else told).get("store-limit") or {}
    try:
        return {int(i): PerMinute(float(v["add-peer"]), float(v["remove-peer"])) for i, v in limits.items()}
    except (AttributeError, KeyError, TypeError, ValueError) as e:
        raise wrong(Path(str(path)), "store-limit", "add-peer and remove-peer of each store", limits) from e


def rules_of(path: Path | None) -> tuple[Rule, ...]:
    """Read placement rules in the order in which PD applies them; none where there is no file."""
    if path is None:
        return ()
    told = listed(path, "rules")
    try:
        return in_order(_rule(r) for r in told)
    except (AttributeError, KeyError, TypeError) as e:
        raise wrong(path, "rules", "placement rules with role and count", told[:1]) from e


def _rule(told: Mapping[str, Any]) -> Rule:
    constraints = tuple(
        Constraint(c["key"], c["op"], tuple(c.get("values") or ())) for c in told.get("label_constraints") or ()
    )
    return Rule(
        told["role"], told["count"], constraints, tuple(told.get("location_labels") or ()),
        told.get("isolation_level", ""), told.get("is_witness", False), told.get("id", ""),
        told.get("start_key", ""), told.get("end_key", ""), told.get("group_id", "pd"), told.get("index", 0),
        told.get("override", False),
    )  # fmt: skip


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


class Loaded(NamedTuple):
    """A cluster and its regions, in key order; store limits by store, where they were told."""

    cluster: Cluster
    regions: RegionColumns
    limits: Limits = MappingProxyType({})


def from_pd_ctl(
    stores_json: str | Path, regions_json: str | Path, config_json: str | Path | None = None,
    rules_json: str | Path | None = None,
) -> Loaded:  # fmt: skip
    """Load a cluster from what pd-ctl printed.

    Parameters
    ----------
    stores_json
        From ``pd-ctl store``, also gzipped.
    regions_json
        From ``pd-ctl region``: a list, or a region a line. A million regions take about half a minute.
    config_json
        From ``pd-ctl config show all``; PD's defaults without it.
    rules_json
        From ``pd-ctl config placement-rules show``; without it the rule that the settings make.

    Returns
    -------
    Loaded
        Keys are as printed, hexadecimal. What pd-ctl does not print is taken to be as in a quiet cluster: store limits
        have room, no operator runs, no region is hot.

    Raises
    ------
    SourceError
        A file cannot be read, or is of another form; the message says where, what was expected and what was found.
    """
    config = settings_of(_path(config_json))
    stores = stores_of(Path(stores_json), config.max_store_down_time_s)
    regions = regions_of(Path(regions_json))
    pending = _counted(regions, regions.pending)
    stores = [s._replace(pending_peers=pending[s.id]) for s in stores]
    cluster = cluster_of(config, stores, rules_of(_path(rules_json)))
    cluster = cluster._replace(
        regions_on=_counted(regions, regions.peers >= 0), region_count=len(regions.id),
        average_region_size=int(regions.size.sum()) // len(regions.id),
    )  # fmt: skip
    return Loaded(cluster, regions, limits_of(_path(config_json)))


def _path(given: str | Path | None) -> Path | None:
    return None if given is None else Path(given)


def _counted(c: RegionColumns, which: np.typing.NDArray[np.bool_]) -> Counter[int]:
    """Count the peers that are marked, by store."""
    counts = np.bincount(c.peers[which], minlength=len(c.stores))
    return Counter({store: int(n) for store, n in zip(c.stores, counts, strict=True) if n})

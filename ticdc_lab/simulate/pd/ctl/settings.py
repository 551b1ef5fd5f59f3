"""PD's settings and placement rules, as ``pd-ctl config show all`` and ``config placement-rules show`` print them."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any

from ticdc_lab.simulate.pd.config import Config
from ticdc_lab.simulate.pd.ctl.documents import document, listed, wrong
from ticdc_lab.simulate.pd.forecast import PerMinute
from ticdc_lab.simulate.pd.rules import Constraint, Rule, in_order

_OTHER_NAMES = {
    "enable-placement-rules": "placement_rules",
    "enable-joint-consensus": "joint_consensus",
    "enable-witness": "witness",
    "max-store-down-time": "max_store_down_time_s",
    "split-merge-interval": "split_merge_interval_s",
    "hot-region-cache-hits-threshold": "hot_region_cache_hits_threshold",
}
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
        name = _OTHER_NAMES.get(key, key.replace("-", "_"))
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

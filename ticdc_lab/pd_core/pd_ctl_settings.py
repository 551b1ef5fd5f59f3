"""PD's settings and placement rules as pd-ctl prints them, from v3 to v8.5 and later."""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ticdc_lab.pd_core.config import NO_SETTINGS, Config, field_of
from ticdc_lab.pd_core.limits import PerMinute
from ticdc_lab.pd_core.pd_ctl_files import CONFIG, LABELS, PrintedFile, document, documents, listed, reading, wrong
from ticdc_lab.pd_core.regions import MERGE, SCHEDULE, KeyRanges, RegionColumns, RegionLabels, lie_in
from ticdc_lab.pd_core.rules import CONSTRAINT_OPS, RULE_ROLES, Constraint, Rule, in_order

_GROUPS = ("schedule", "replication")
_MARKS = (
    ("max-snapshot-count", "schedule"), ("max-replicas", "replication"), ("reject-leader", "label-property"),
    ("use-region-storage", "pd-server"),
)  # fmt: skip
"""Settings by which a group is known that ``config show`` prints by itself, without its name."""
_UNITS_S = {"h": 3600.0, "m": 60.0, "s": 1.0, "ms": 1e-3, "us": 1e-6, "µs": 1e-6, "ns": 1e-9}
_DURATION = re.compile(r"(\d+(?:\.\d+)?)(h|ms|us|µs|ns|m|s)")
_KEYS_PER_MIB = 10_000

Version = tuple[int, ...]
NEWEST: Version = (99,)

DEFAULTS_BEFORE: tuple[tuple[Version, Mapping[str, Any]], ...] = (
    ((8, 4), {"max_merge_region_size": 20, "max_merge_region_keys": 200_000}),
    ((5, 3), {"max_snapshot_count": 3, "max_pending_peer_count": 16, "patrol_region_interval_s": 0.1}),
    ((5, 0), {"placement_rules": False, "joint_consensus": False, "region_score_formula_version": "v1",
              "enable_cross_table_merge": False}),
    ((4, 0), {"high_space_ratio": 0.6}),
    ((3, 1), {"leader_schedule_policy": "size", "region_schedule_limit": 64}),
    ((3, 0, 1), {"hot_region_schedule_limit": 2, "leader_schedule_limit": 8}),
)  # fmt: skip
"""Defaults of settings before a version, the newest first: server/config and pkg/schedule/config of PD's tags."""

_COUNTED_ALL: tuple[tuple[Version, Version], ...] = (((0,), (4, 0, 14)), ((5, 0), (5, 0, 4)), ((5, 1), (5, 1, 1)))
"""Versions, from and before, whose operators take up the limits of all their kinds (tikv/pd#3820)."""

_DOWN_IN_FULL: tuple[tuple[Version, Version], ...] = (
    ((0,), (4, 0, 16)), ((5, 0), (5, 0, 6)), ((5, 1), (5, 1, 2)), ((5, 2), (5, 3)),
)  # fmt: skip
"""Versions, from and before, that take a removal from a store that is down for as much as any other (tikv/pd#4097)."""

DISABLED = {
    "disable-remove-down-replica": "enable_remove_down_replica",
    "disable-replace-offline-replica": "enable_replace_offline_replica",
    "disable-make-up-replica": "enable_make_up_replica",
    "disable-remove-extra-replica": "enable_remove_extra_replica",
    "disable-location-replacement": "enable_location_replacement",
}
"""Settings of v3 that became their contrary in v4."""

_WITHOUT_EFFECT = frozenset({
    "enable-diagnostic", "enable-debug-metrics", "enable-heartbeat-breakdown-metrics",
    "enable-heartbeat-concurrent-runner", "enable-placement-rules-cache", "enable-tikv-split-region",
    "hot-regions-reserved-days", "hot-regions-write-interval",
    "patrol-region-worker-count", "scheduler-max-waiting-operator", "max-store-preparing-time",
    "strictly-match-label", "switch-witness-interval", "slow-store-evicting-affected-store-ratio-threshold",
    "max-affinity-merge-region-size", "store-limit", "schedulers-v2", "schedulers-payload",
    "schedulers", "store-balance-rate",
    "swtich-witness-interval", "witness-schedule-limit", "max-movable-hot-peer-size",
})  # fmt: skip
"""Settings that change no decision that is explained here, or are read elsewhere."""

_IDLE: Mapping[str, tuple[object, str]] = {
    "affinity-schedule-limit": (0, "affinity of regions is not modelled"),
    "split-scatter-schedule-limit": (0, "scattering of new regions is not modelled"),
    "store-limit-mode": ("manual", "PD changes store limits with the load; those given are taken"),
    "disable-raft-learner": (False, "it has no counterpart since v4: peers are always added as learners here"),
    "disable-namespace-relocation": (False, "namespaces have no counterpart since v4"),
}
"""Settings that matter only where they have another value than this."""


class Settings(NamedTuple):
    """Settings, and the notes on them: those that are not read, and old ones by their new names."""

    config: Config
    unread: tuple[str, ...] = ()
    mapped: tuple[str, ...] = ()
    limit: PerMinute | None = None


TIFLASH_LIMIT = PerMinute(30.0, 30.0)
"""The limit of a TiFlash store that has none of its own."""


def version_of(text: str) -> Version:
    """Read a version such as ``7.5.1`` or ``v8.5.0-alpha``; the newest where there is none."""
    found = re.match(r"v?(\d+)\.(\d+)(?:\.(\d+))?", text)
    return tuple(int(n) for n in found.groups(default="0")) if found else NEWEST


class Unused(NamedTuple):
    """A file whose settings another file has too, and those that have another value here."""

    file: PrintedFile
    other: tuple[str, ...] = ()


def config_in(files: Sequence[PrintedFile]) -> tuple[Mapping[str, Any], list[Unused]]:
    """Put the settings of all files into one document, and give the files that add nothing or differ.

    ``config show schedule`` and ``config show replication`` print one group, without its name. The first file counts.
    """
    found: dict[str, Any] = {}
    left: list[Unused] = []
    for file, told in ((f, one) for f in files for one in documents(f)):
        if isinstance(told, str):
            told = {"cluster-version": told}
        if not isinstance(told, Mapping):
            raise wrong(file, "config", "an object", told)
        if not set(told) & {*_GROUPS, "cluster-version"}:
            told = {next((group for mark, group in _MARKS if mark in told), "schedule"): told}
        groups = [g for g in _GROUPS if isinstance(told.get(g), Mapping) and isinstance(found.get(g), Mapping)]
        pairs = [(k, v, found[g].get(k, v)) for g in groups for k, v in told[g].items()]
        new = set(told) - set(found) or any(set(told[g]) - set(found[g]) for g in groups)
        other = tuple(name for name, value, before in pairs if value != before)
        if other or not new:
            left.append(Unused(file, other))
        found = {**told, **found, **{g: {**told[g], **found[g]} for g in groups}}
    return found, left


def settings_of(
    file: PrintedFile | Path | None, version: Version = NEWEST, told: Mapping[str, Any] | None = None
) -> Settings:
    """Read settings; those that are absent, and all where there is no file, have the defaults of PD's version.

    ``told`` is the file's document, where it was read already.
    """
    defaults: dict[str, Any] = {}
    for before, values in DEFAULTS_BEFORE:
        defaults |= values if version < before else {}
    defaults["operators_count_once"] = not any(since <= version < until for since, until in _COUNTED_ALL)
    defaults["removals_of_down_are_small"] = not any(since <= version < until for since, until in _DOWN_IN_FULL)
    if file is None:
        return Settings(Config(**defaults))
    if told is None:
        told, _ = config_in([PrintedFile(file) if isinstance(file, Path) else file])
    found, unread, mapped = defaults, [], []
    limit: PerMinute | None = None
    known = {f.name: f.default for f in fields(Config)}
    for key, value in _settings(told):
        name = field_of(key)
        try:
            if name in known and name not in NO_SETTINGS:
                found[name] = value_of(known[name], value)
            elif key in DISABLED:
                off = value_of(False, value)
                found[DISABLED[key]] = not off
                if off:
                    mapped.append(f"{key} true (v3) is {DISABLED[key].replace('_', '-')} false")
            elif key == "store-balance-rate":
                limit = PerMinute(float(value), float(value))
            elif key == "default-store-limit":
                limit = _limit(value)
            elif key in _IDLE:
                idle, why = _IDLE[key]
                if value_of(idle, value) != idle:
                    unread.append(f"{key} {value}: {why}")
            elif key not in _WITHOUT_EFFECT:
                unread.append(f"{key}: no such setting of PD is known here")
        except (ArithmeticError, AttributeError, TypeError, ValueError) as e:
            raise wrong(file, key, f"a value such as {known.get(name)!r}", value) from e
    if (told.get("pd-server") or {}).get("key-type") in ("raw", "txn"):
        found["enable_cross_table_merge"] = True  # there are no tables
    if "max_merge_region_size" in found and not found.get("max_merge_region_keys"):
        found["max_merge_region_keys"] = found["max_merge_region_size"] * _KEYS_PER_MIB
    with reading(file, CONFIG):
        properties = told.get("label-property") or {}
        listed_ = (properties.get("reject-leader") or ()) if isinstance(properties, Mapping) else ()
        rejecting = tuple((text_of(p["key"]), text_of(p["value"])) for p in listed_)
    return Settings(Config(**found, reject_leader=rejecting), tuple(unread), tuple(mapped), limit)


def _settings(told: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """Give settings by their names."""
    for group in _GROUPS:
        if isinstance(told.get(group), Mapping):
            yield from told[group].items()


def value_of(default: object, value: Any) -> object:
    """Read a setting in the form of its default: PD prints some booleans and lists as text, durations as 30m0s."""
    if isinstance(default, bool):
        if str(value).lower() not in ("true", "false"):
            raise ValueError("expected true or false")
        return str(value).lower() == "true"
    if isinstance(default, tuple):
        parts = (value or "").split(",") if isinstance(value, str | None) else value
        return tuple(p.strip() for p in parts if p.strip())
    if isinstance(default, str):
        return str(value or "")
    wanted = "a number, or a duration such as 1h30m" if isinstance(default, float) else "a whole number"
    try:
        if isinstance(default, float):
            return seconds_of(value) if isinstance(value, str) else float(value)
        return int(value) if isinstance(value, str) or value == int(value) else int(str(value))
    except ValueError as e:
        raise ValueError(f"expected {wanted}") from e


def seconds_of(text: str) -> float:
    """Read a number of seconds, or a duration such as ``1h30m``."""
    parts = _DURATION.findall(text)
    if not parts or "".join(n + u for n, u in parts) != text:
        return float(text)
    return sum(float(n) * _UNITS_S[u] for n, u in parts)


def limits_of(file: PrintedFile | Path | None, told: Any = None) -> Mapping[int, PerMinute]:
    """Read the store limits, by store, of ``config show all`` or ``store limit``; none where there is no file."""
    told = told if told is not None else document(file) if file is not None else {}
    schedule = told.get("schedule") if isinstance(told, Mapping) else None
    inside = schedule if isinstance(schedule, Mapping) else told
    limits = inside if inside and all(k.isdigit() for k in inside) else inside.get("store-limit") or {}
    try:
        return {int(i): _limit(v) for i, v in limits.items()}
    except (ArithmeticError, AttributeError, KeyError, TypeError, ValueError) as e:
        raise wrong(Path(str(file)), "store-limit", "add-peer and remove-peer of each store", limits) from e


def _limit(told: Mapping[str, Any]) -> PerMinute:
    if "rate" in told:  # v4.0 before store limits of two types
        return PerMinute(float(told["rate"]), float(told["rate"]))
    return PerMinute(float(told["add-peer"]), float(told["remove-peer"]))


class RuleGroup(NamedTuple):
    """A group of rules: groups apply in the order of their index, then of their names."""

    position: int = 0
    override: bool = False


class PlacementRules(NamedTuple):
    """Rules in the order in which PD applies them, and groups whose index and override were not printed."""

    rules: tuple[Rule, ...] = ()
    ungrouped: tuple[str, ...] = ()
    assumed: Mapping[str, RuleGroup] = {}


_TIDB_GROUPS = (
    ("TiDB_DDL_", RuleGroup(40, True)), ("TiDB_GLOBAL", RuleGroup(20, True)), ("TiDB_META", RuleGroup(21, True)),
    ("tiflash", RuleGroup(120, False)), ("pd", RuleGroup()),
)  # fmt: skip
"""Groups as TiDB writes them (pkg/ddl/placement); a partition's has index 80, which its name does not show."""


def rules_of(files: Sequence[PrintedFile | Path]) -> PlacementRules:
    """Read placement rules and their groups.

    ``files``: from ``config placement-rules show``, ``rule-group show``, ``rule-bundle get`` or ``load``, in any
    number.
    """
    return rules_in((file, documents(file)) for file in files)


def rules_in(given: Iterable[tuple[PrintedFile | Path, list[Any]]], known: Iterable[Rule] = ()) -> PlacementRules:
    """Read placement rules and their groups from documents; groups that are not in them are as in ``known``.

    The file beside the documents is what errors name.
    """
    groups = {r.group: RuleGroup(r.group_index, r.group_override) for r in known}
    rules: dict[tuple[str, str], Rule] = {}
    for file, documents_ in given:
        for told in _entries(file, documents_):
            try:
                if "rules" in told:
                    name, index = text_of(told["group_id"]), int(told.get("group_index") or 0)
                    groups[name] = RuleGroup(index, bool(told.get("group_override")))
                    if other := {r.get("group_id") for r in told["rules"] or ()} - {name, None, ""}:
                        raise ValueError(f"group {name} has rules of {', '.join(map(str, other))}")
                    found = [rule_of(r | {"group_id": name}) for r in told["rules"] or ()]
                elif "role" in told:
                    found = [rule_of(told)]
                else:
                    groups[text_of(told["id"])] = RuleGroup(int(told.get("index") or 0), bool(told.get("override")))
                    found = []
            except (ArithmeticError, AttributeError, KeyError, TypeError, ValueError) as e:
                expected = "placement rules with group_id, id, role and count, keys in hexadecimal"
                raise wrong(file, "rules", f"{expected} ({e})", dict(told)) from e
            rules |= {(r.group, r.id): r for r in found}
    unknown = sorted({g for g, _ in rules} - set(groups))
    assumed = {g: next((group for name, group in _TIDB_GROUPS if _named(g, name)), RuleGroup()) for g in unknown}
    ordered = in_order(_grouped(r, (groups | assumed)[r.group]) for r in rules.values())
    ungrouped = tuple(g for g in unknown if g not in ("pd", "tiflash"))
    return PlacementRules(ordered, ungrouped, assumed)


def _named(group: str, name: str) -> bool:
    return group.startswith(name) if name.endswith("_") else group == name


def _entries(file: PrintedFile | Path, told: list[Any]) -> list[Mapping[str, Any]]:
    if any(isinstance(d, Mapping) and "group_id" not in d and "id" not in d and "role" not in d for d in told):
        return listed(file, "rules", told)
    found = [e for d in told for e in (d if isinstance(d, list) else [d] if d else [])]
    if not all(isinstance(e, Mapping) for e in found):
        raise wrong(file, "rules", "a list of rules, groups or bundles", found[:1])
    return found


def _grouped(rule: Rule, group: RuleGroup) -> Rule:
    return rule._replace(group_index=group.position, group_override=group.override)


def rule_of(told: Mapping[str, Any]) -> Rule:
    constraints = tuple(
        Constraint(text_of(c["key"]), text_of(c["op"]), tuple(text_of(v) for v in c.get("values") or ()))
        for c in told.get("label_constraints") or ()
    )
    role, start, end = text_of(told["role"]), key_of(told.get("start_key")), key_of(told.get("end_key"))
    if (replicas := int(told["count"])) < 0:
        raise ValueError(f"count {replicas} is below 0")
    if role not in RULE_ROLES or (ops := {c.op for c in constraints} - set(CONSTRAINT_OPS)):
        found = f"role {role}" if role not in RULE_ROLES else f"op {', '.join(ops)}"
        raise ValueError(f"{found} is none of PD's")
    if end and end <= start:
        raise ValueError(f"end_key {end} is not behind start_key {start}")
    return Rule(
        role, replicas, constraints, tuple(text_of(v) for v in told.get("location_labels") or ()),
        text_of(told.get("isolation_level")), bool(told.get("is_witness")), text_of(told.get("id")), start, end,
        text_of(told.get("group_id")) or "pd", int(told.get("index") or 0), bool(told.get("override")),
    )  # fmt: skip


def text_of(value: object) -> str:
    """Give a text, "" for null; anything else is of another form."""
    if not isinstance(value, str | None):
        raise TypeError(f"{value!r} is no text")
    return value or ""


def key_of(text: str | None) -> str:
    """Give a key in upper-case hexadecimal, as regions have it: keys are compared as bytes."""
    bytes.fromhex(text or "")
    return (text or "").upper()


_LABELS_SINCE: Mapping[str, tuple[str, Version]] = {"merge_option": (MERGE, (5, 3)), "schedule": (SCHEDULE, (6, 0))}


def labels_of(files: Sequence[PrintedFile], c: RegionColumns, version: Version) -> RegionLabels:
    """Read rules for labels of regions, and apply those that deny merges or scheduling as PD does.

    A rule labels the regions that lie wholly in one of its ranges, unless another one ends within them. Of two values
    of a label the one of the rule with the higher index counts.
    """
    rules: list[tuple[int, Mapping[str, str], KeyRanges]] = []
    for file in files:
        with reading(file, LABELS):
            for one in listed(file, "rules"):
                ends = [(str(r.get("start_key") or ""), str(r.get("end_key") or "")) for r in one["data"] or ()]
                held = tuple((bytes.fromhex(a).hex().upper(), bytes.fromhex(b).hex().upper()) for a, b in ends)
                values = {str(v["key"]): str(v["value"]).lower() for v in one["labels"]}
                rules.append((int(one.get("index") or 0), values, held))
    borders = frozenset(key for _, _, ranges in rules for pair in ranges for key in pair if key)
    split = set()
    for key in borders:
        at = bisect_left(range(len(c.id)), key, key=lambda i: c.start_key[i].as_py()) - 1
        if at >= 0 and (not (end := c.end_key[at].as_py()) or key < end):
            split.add(int(c.id[at]))
    whole = ~np.isin(c.id, list(split))
    kept = tuple(
        (what, told[label] == "deny", held)
        for _, told, held in sorted(rules, key=lambda r: r[0])
        for label, (what, since) in _LABELS_SINCE.items()
        if label in told and held and version >= since
    )
    denied: dict[str, frozenset[int]] = {}
    for what in (MERGE, SCHEDULE):
        marks = np.zeros(len(c.id), dtype=np.bool_)
        for _, denies, held in (k for k in kept if k[0] == what):
            marks[lie_in(c, held)] = denies
        denied[what] = frozenset(c.id[marks & whole].tolist())
    return RegionLabels(denied[MERGE], denied[SCHEDULE], borders, frozenset(split), kept)

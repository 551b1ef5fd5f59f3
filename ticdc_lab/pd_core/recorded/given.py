"""The cluster that a scenario is about, from its ``given`` and the defaults in the file's first line: stores, regions,
rules, labels, flows, and operators that run.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import fields
from types import MappingProxyType
from typing import Any, NamedTuple, TypeVar

import numpy as np

from ticdc_lab.pd_core.cluster import NO_INFLUENCE, Cluster, Influence, cluster_of
from ticdc_lab.pd_core.config import Config
from ticdc_lab.pd_core.hot_loads import DIMENSIONS, LEAST_HOT, READ, WRITE, Flow, HotPeer, HotSettings, Loads
from ticdc_lab.pd_core.limits import available, bucket_per_minute, step_cost, taken
from ticdc_lab.pd_core.recorded.records import Fields, Malformed, UnknownRecord, few_peers, number
from ticdc_lab.pd_core.regions import (
    DEMOTING,
    INCOMING,
    LEARNER,
    MERGE,
    SCHEDULE,
    VOTER,
    KeyRanges,
    Peer,
    Region,
    lies_in,
)
from ticdc_lab.pd_core.rules import Constraint, Rule
from ticdc_lab.pd_core.stores import (
    DISCONNECTED_AFTER_S,
    GIB,
    MIB,
    NEVER_S,
    REMOVED,
    REMOVING,
    SERVING,
    Store,
    labelled,
)


def rules_of(settings: Fields) -> tuple[Rule, ...]:
    if "rule" in settings:
        return (_rule(settings.object("rule"), 0),)
    return tuple(_rule(r, i) for i, r in enumerate(settings.objects("rules", [])))


def _rule(r: Fields, n: int) -> Rule:
    constraints = [constraint_of(r.text("constraint"), f"{r.where}.constraint")] if "constraint" in r else []
    constraints += [constraint_of(c, f"{r.where}.constraints") for c in r.items("constraints", [])]
    return Rule(
        r.text("role", "voter"), r.integer("count", 1), tuple(constraints), r.texts("location_labels", []),
        r.text("isolation_level", ""), r.flag("witness", r.flag("is_witness", False)), r.text("id", str(n)),
        r.text("start_key", ""), r.text("end_key", ""),
    )  # fmt: skip


def constraint_of(value: object, where: str) -> Constraint:
    """Read a condition: ``role in [voter, leader]``, ``zone notIn [..]``, ``zone exists``, or an object."""
    if isinstance(value, Mapping):
        c = Fields(value, where)
        return Constraint(c.text("key"), c.text("op"), c.texts("values", []))
    match = re.fullmatch(r"(\S+) (in|notIn|exists|notExists)(?: \[(.*)\])?", str(value))
    if match is None:
        raise Malformed(where, "a condition such as role in [voter]", value)
    return Constraint(match[1], match[2], tuple(v.strip() for v in (match[3] or "").split(",") if v.strip()))


_RANGES = ("ranges", "range", "key_ranges", "key_range")
_RULES = ("label_rules", "region_labels", "region_label_rules")
REJECTING = ("reject_leader", "reject_leader_label", "reject_leader_labels")
_FORBIDDING = {"merge_option": MERGE, "schedule": SCHEDULE}


def ranges_of(settings: Fields) -> KeyRanges:
    """Read the key ranges of a scheduler: pairs of keys, or their keys in one list; "" is open."""
    for key in _RANGES:
        if key in settings:
            told = settings.items(key)
            flat = [k for t in told for k in (t if isinstance(t, list) else [t])]
            if len(flat) % 2 or not all(isinstance(k, str) for k in flat):
                raise Malformed(f"{settings.where}.{key}", "pairs of keys", told)
            return tuple(zip(flat[::2], flat[1::2], strict=True))
    return ()


def borders_of(settings: Fields) -> frozenset[str]:
    """Give the keys at which label rules begin or end: PD merges no two regions across one."""
    rules = [r for key in _RULES if key in settings for r in settings.objects(key)]
    return frozenset(r.text(key, "") for r in rules for key in ("start_key", "end_key")) - {""}


def _pairs(settings: Fields, where: str, value: object) -> list[tuple[str, str]]:
    if isinstance(value, str) and "=" in value:
        key, _, wanted = value.partition("=")
        return [(key, wanted)]
    if isinstance(value, list | tuple):
        return [pair for v in value for pair in _pairs(settings, where, v)]
    if isinstance(value, Mapping):
        told = Fields(value, f"{settings.where}.{where}")
        if set(value) == {"key", "value"}:
            return [(told.text("key"), told.text("value"))]
        return list(told.all_texts().items())
    raise Malformed(f"{settings.where}.{where}", "labels such as noleader=true", value)


def denied_by(labels: Fields) -> frozenset[str]:
    return frozenset(what for key, what in _FORBIDDING.items() if key in labels and labels.text(key) == "deny")


REGION_MIB = 96

_STATES = {"up": SERVING, "serving": SERVING, "preparing": "preparing", "offline": REMOVING, "removing": REMOVING,
           "tombstone": REMOVED, "removed": REMOVED, "down": SERVING, "disconnected": SERVING}  # fmt: skip
_AGES_S = {"down": NEVER_S, "disconnected": DISCONNECTED_AFTER_S + 10}
_SIZES = {"GiB": GIB, "MiB": MIB, "": 1}
_OTHER_NAMES = {"policy": "leader_schedule_policy"}


class Given(NamedTuple):
    """What a scenario starts from; ``settings`` are the fields of ``config``, also those that are no settings."""

    cluster: Cluster
    regions: tuple[Region, ...]
    settings: Fields
    stores: tuple[Fields, ...]
    regions_told: tuple[Fields, ...]
    ranges: KeyRanges = ()
    id: str = ""


def given_of(record: Fields) -> Given:
    """Read what a scenario starts from."""
    given = record.object("given")
    settings = given.object("config", {})
    stores = tuple(given.objects("stores", []))
    found: dict[str, Any] = {
        "joint_consensus": False,
        "reject_leader": tuple(
            pair for key in REJECTING if key in settings for pair in _pairs(settings, key, settings.any(key))
        ),
    }
    known = {f.name for f in fields(Config)}
    for key in settings.value:
        name = _OTHER_NAMES.get(key, key)
        if name in known - {"reject_leader"}:
            found[name] = _setting(settings, key, getattr(Config(), name))
    config = Config(**found)
    regions_told = tuple(given.objects("regions", []))
    regions = tuple(_region(i, r) for i, r in enumerate(regions_told, 1))
    rules = [r for key in _RULES if key in settings for r in settings.objects(key)]
    for rule in rules:
        where = (rule.text("start_key", ""), rule.text("end_key", ""))
        denied = denied_by(rule) | denied_by(rule.object("labels", {}))
        regions = tuple(r._replace(denied=r.denied | denied) if lies_in(r, (where,)) else r for r in regions)
    cluster = cluster_of(config, [store_of(s) for s in stores], rules_of(settings))
    on = Counter(p.store for r in regions for p in r.peers)
    average = sum(r.size for r in regions) // len(regions) if regions else REGION_MIB
    cluster = cluster._replace(
        regions_on=on, region_count=len(regions) + settings.integer("extra_regions_in_cluster", 0),
        average_region_size=settings.number("average_region_size_mib", average),
    )  # fmt: skip
    return Given(cluster, regions, settings, stores, regions_told, ranges_of(settings), str(record.any("id", "")))


FLOW_UNITS: Mapping[str, tuple[str, float]] = MappingProxyType({
    "bytes_s": ("byte", 1), "kib_s": ("byte", 1024), "mib_s": ("byte", MIB), "keys_s": ("key", 1),
    "queries_s": ("query", 1), "query_s": ("query", 1), "qps": ("query", 1),
})  # fmt: skip
"""Units of what is read or written a second: what they count, and how much of it one is."""

_READ_BY_JUDGES = frozenset({
    "applies_to", "average_region_size_mib", "command", "constraint", "created_age_s", "delta_mib", "delta_sign",
    "deleted_store", "elapsed_s", "extra_regions_in_cluster", "instantaneous", "note", "offline_store", "operator",
    "operator_status", "pd_started_s_ago", "peers_text", "priorities", "rate_per_s", "recently_split",
    "region_size_mib", "removed_after_10s", "replace", "rules_text", "running_operators", "running_s", "store_limit",
    "target_region_size_mib", "src_tolerance_ratio", "dst_tolerance_ratio", "great_dec_ratio",
    *(f"{kind}_{unit}" for kind in ("read", "write") for unit in FLOW_UNITS),
})  # fmt: skip


def not_understood(given: Given) -> list[str]:
    """Give the scenario's names that were not read, to distinguish a wrong answer from a deaf one."""
    groups = {"config": (given.settings,), "stores": given.stores, "regions": given.regions_told}
    names = {f"{group}.{n}" for group, told in groups.items() for fields in told for n in fields.unread()}
    return sorted(n for n in names if n.split(".")[1] not in _READ_BY_JUDGES)


def stores_of(given: Given, least: int = 1) -> list[Store]:
    """Give the stores of a scenario that needs so many."""
    return _at_least(list(given.cluster.stores.values()), least, "given.stores")


def region_of(given: Given) -> Region:
    """Give the first region of a scenario that needs one."""
    return _at_least(given.regions, 1, "given.regions")[0]


_Many = TypeVar("_Many", list[Store], tuple[Region, ...])


def _at_least(found: _Many, least: int, where: str) -> _Many:
    if len(found) < least:
        raise Malformed(where, f"{least} or more", len(found))
    return found


def _setting(settings: Fields, key: str, default: object) -> object:
    if isinstance(default, bool):
        return settings.flag(key)
    if isinstance(default, int):
        return settings.integer(key)
    if isinstance(default, float):
        return settings.number(key)
    return settings.texts(key) if isinstance(default, tuple) else settings.text(key)


def store_of(s: Fields) -> Store:
    """Read a store; what is missing follows from its region count."""
    state = s.text("state", "up")
    if state not in _STATES:
        raise UnknownRecord(f"a store that is {state}; known are {', '.join(_STATES)}")
    regions, leaders = s.integer("region_count", 0), s.integer("leader_count", 0)
    size = s.number("region_size_mib", regions * REGION_MIB)
    capacity, available, used = _space(s, regions)
    if "amplification" in s:
        size = used * s.number("amplification") / MIB
    return Store(
        s.integer("id"), state=_STATES[state],
        heartbeat_age_s=s.number("last_heartbeat_age_s", _AGES_S.get(state, 0)), labels=labelled(s.labels("labels")),
        capacity=capacity, available=available, used=used, region_count=regions, region_size=size,
        leader_count=leaders, leader_size=s.number("leader_size_mib", leaders * REGION_MIB),
        leader_weight=s.number("leader_weight", 1), region_weight=s.number("region_weight", 1),
        busy=s.flag("busy", False), sending_snapshots=s.integer("sending_snapshots", 0),
        receiving_snapshots=s.integer("receiving_snapshots", 0),
        pending_peers=s.integer("pending_peers", s.integer("pending", 0)),
        physically_destroyed=s.flag("physically_destroyed", False),
        leader_in_paused=s.flag("evict_leader", False), evicted=s.flag("evicted", False),
    )  # fmt: skip


def _space(s: Fields, regions: int) -> tuple[float, float, float]:
    """Read capacity, available and used bytes."""
    if "available_ratio" in s:
        capacity = 100.0 * GIB
        return (
            capacity,
            capacity * s.number("available_ratio"),
            capacity * s.number("used_ratio", 1 - s.number("available_ratio")),
        )
    unit = MIB if s.text("unit", "bytes") == "MiB" else 1
    capacity = s.number("capacity_gib") * GIB if "capacity_gib" in s else _bytes(s, "capacity", 100 * GIB, unit)
    if "available_gib" in s:
        available = s.number("available_gib") * GIB
        used = s.number("used_mib") * MIB if "used_mib" in s else capacity - available
        return capacity, available, used
    used = _bytes(s, "used", regions * REGION_MIB * MIB, unit)
    return capacity, _bytes(s, "available", capacity - used, unit), used


def _bytes(s: Fields, key: str, default: float, unit: int) -> float:
    """Read a size: bytes, or a text such as ``8*96MiB``."""
    value = s.any(key, None)
    if value is None:
        return default
    if not isinstance(value, str):
        return number(value, f"{s.where}.{key}") * unit
    match = re.fullmatch(r"(?:(\d+)\*)?(\d+(?:\.\d+)?)(GiB|MiB|)", value)
    if match is None:
        raise Malformed(f"{s.where}.{key}", "a size such as 8*96MiB", value)
    return int(match[1] or 1) * float(match[2]) * _SIZES[match[3]]


_ROLES = (("learners", LEARNER), ("incoming_voters", INCOMING), ("demoting_voters", DEMOTING))


def _region(n: int, r: Fields) -> Region:
    if "peers_text" in r:
        return Region(n, (), 0)
    witnesses = r.integers("witnesses", [])
    roles = {s: role for key, role in _ROLES for s in r.integers(key, [])}
    peers = tuple(
        Peer(i, s, roles.get(s, VOTER), s in witnesses)
        for i, s in enumerate(few_peers(r.integers("peers"), r.where), 1)
    )
    size = r.number("size_mib", REGION_MIB)
    start, end = (*r.texts("keys", ["", ""]), "", "")[:2]
    return Region(
        r.integer("id", n), peers, r.integer("leader", 0), size, int(r.number("keys_count", size)),
        frozenset(r.integers("down_peers", [])), frozenset(r.integers("pending_peers", [])), start, end,
        r.flag("hot", False), r.number("down_seconds", 0), denied_by(r) | denied_by(r.object("labels", {})),
    )  # fmt: skip


def flow_of(given: Given) -> Flow:
    """Read what is written or read a second: ``write_mib_s``, ``write_keys_s``, ``read_qps`` and so on.

    A store without any entry never reported, nor one that is down and carries nothing. A region with too little
    flow is not hot.
    """
    kind = READ if any(f"read_{unit}" in s for s in given.stores for unit in FLOW_UNITS) else WRITE
    reported = [s for s in given.stores if any(f"{kind}_{unit}" in s for unit in FLOW_UNITS)]
    loads = {s.integer("id"): _loads(s, kind) for s in reported}
    heard = [i for i, x in loads.items() if any(x) or given.cluster.stores[i].heartbeat_age_s < NEVER_S]
    told = {r.integer("id", n): _loads(r, kind) for n, r in enumerate(given.regions_told, 1)}
    hot = {i for i, found in told.items() if any(x >= least for x, least in zip(found, LEAST_HOT[kind], strict=True))}
    peers = [
        HotPeer(r.id, p.store, p.store == r.leader, told[r.id])
        for r in given.regions
        for p in r.peers
        if r.id in hot and (kind == WRITE or p.store == r.leader)
    ]
    return Flow(kind, heard, np.array([loads[i] for i in heard]).reshape(-1, 3), peers)


def _loads(s: Fields, kind: str) -> Loads:
    found = [0.0, 0.0, 0.0]
    for unit, (name, factor) in FLOW_UNITS.items():
        found[DIMENSIONS[name]] += s.number(f"{kind}_{unit}", 0) * factor
    return found[0], found[1], found[2]


def hot_settings(settings: Fields) -> HotSettings:
    """Read the settings of the hot-region scheduler: ``priorities``, and how far a store must be from the mean."""
    names = settings.texts("priorities", ["byte", "key"])
    dims = [DIMENSIONS[n] for n in names if n in DIMENSIONS]
    if len(dims) != 2:
        raise Malformed("given.config.priorities", f"two of {', '.join(DIMENSIONS)}", names)
    default = HotSettings()
    return default._replace(
        priorities=(dims[0], dims[1]),
        source_tolerance=settings.number("src_tolerance_ratio", default.source_tolerance),
        target_tolerance=settings.number("dst_tolerance_ratio", default.target_tolerance),
        great_dec_ratio=settings.number("great_dec_ratio", default.great_dec_ratio),
    )


_LIMIT_PER_MINUTE = 60
"""Store limit of PD's test cluster, for adding and for removing peers."""

_MOVE, _LEAD, _ADD, _REMOVE, _MERGE = "move-peer", "transfer-leader", "add-peer", "remove-peer", "merge"
_FORM = "N x move-peer A -> B, transfer-leader A -> B, add-peer A, remove-peer A or merge A -> B"
_PATTERN = re.compile(
    rf"(?:(\d+) ?x )?({_MOVE}|{_LEAD}|{_ADD}|{_REMOVE}|{_MERGE})(?:-region)?(?: (\d+))?(?: ?-> ?(\d+))?"
)


class Handed(NamedTuple):
    """Operators of one kind as they are handed to the controller; a store is 0 where the kind has none."""

    times: int
    verb: str
    source: int
    target: int


def with_running(given: Given) -> Given:
    """Count the operators that run: ``8 x move-peer 4 -> 3``, several of them as a list or divided by semicolons.

    Only as many start as the store limits let; what is left of the limits is what a decision finds. A merge moves no
    size, so it counts for nothing here.
    """
    told = given.settings.any("running_operators", "")
    texts = told.split(";") if isinstance(told, str) else list(told) if isinstance(told, list) else [told]
    for text in texts:
        if text:
            given = _handed(given, _read(text))
    return given


def _read(text: object) -> Handed:
    if not isinstance(text, str):
        raise Malformed("given.config.running_operators", _FORM, text)
    match = _PATTERN.fullmatch(text.strip())
    if match is None and re.search(r"\bmerge\b", text):
        return Handed(1, _MERGE, 0, 0)
    if match is None:
        raise UnknownRecord(f"running operators written as {text!r}; known are {_FORM}")
    times, verb, one, other = int(match[1] or 1), match[2], int(match[3] or 0), int(match[4] or 0)
    if not one or ((verb in (_MOVE, _LEAD)) != bool(other) and verb != _MERGE):
        raise Malformed("given.config.running_operators", _FORM, text)
    return Handed(times, verb, one, other) if verb != _ADD else Handed(times, verb, 0, one)


def _handed(given: Given, op: Handed) -> Given:
    if op.verb == _MERGE:
        return given
    if not {op.source, op.target} - {0} <= set(given.cluster.stores):
        raise Malformed("given.config.running_operators", "known stores", f"{op.source} -> {op.target}")
    if op.verb == _LEAD:
        return _influenced(given, op, leaders=op.times)
    bucket, cost, started = bucket_per_minute(_LIMIT_PER_MINUTE), step_cost(REGION_MIB), 0
    while started < op.times and available(bucket, 0, cost):
        bucket, started = taken(bucket, 0, cost), started + 1
    left = available(bucket, 0)
    stores = dict(given.cluster.stores)
    if op.source:
        stores[op.source] = stores[op.source]._replace(remove_open=left)
    if op.target:
        stores[op.target] = stores[op.target]._replace(add_open=left)
    given = given._replace(cluster=given.cluster._replace(stores=stores))
    return _influenced(given, op, peers=started)


def _influenced(given: Given, op: Handed, *, peers: int = 0, leaders: int = 0) -> Given:
    found = dict(given.cluster.influence)
    for store, sign in ((op.source, -1), (op.target, 1)):
        if store:
            more = Influence(peers * REGION_MIB, peers, leaders * REGION_MIB, leaders)
            found[store] = found.get(store, NO_INFLUENCE).plus(more, sign)
    return given._replace(cluster=given.cluster._replace(influence=found))

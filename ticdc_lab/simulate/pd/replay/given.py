"""The cluster that a scenario is about, from its ``given`` and the defaults in the file's first line."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import fields
from typing import Any, NamedTuple, TypeVar

from ticdc_lab.simulate.pd.cluster import Cluster, cluster_of
from ticdc_lab.simulate.pd.config import Config
from ticdc_lab.simulate.pd.regions import LEARNER, VOTER, Peer, Region
from ticdc_lab.simulate.pd.replay.fields import Fields, Malformed, Unknown, few_peers, number
from ticdc_lab.simulate.pd.replay.given_labels import EVERYWHERE, Range, denied_by, ranges_of, with_denials
from ticdc_lab.simulate.pd.replay.given_rules import rules_of
from ticdc_lab.simulate.pd.stores import (
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
    ranges: tuple[Range, ...] = (EVERYWHERE,)


def given_of(record: Fields) -> Given:
    """Read what a scenario starts from."""
    given = record.object("given")
    settings = given.object("config", {})
    stores = tuple(given.objects("stores", []))
    config = _config(settings)
    regions_told = tuple(given.objects("regions", []))
    regions = with_denials(tuple(_region(i, r) for i, r in enumerate(regions_told, 1)), settings)
    cluster = cluster_of(config, [store_of(s) for s in stores], rules_of(settings))
    on = Counter(p.store for r in regions for p in r.peers)
    average = sum(r.size for r in regions) // len(regions) if regions else REGION_MIB
    cluster = cluster._replace(
        regions_on=on, region_count=len(regions) + settings.integer("extra_regions_in_cluster", 0),
        average_region_size=settings.number("average_region_size_mib", average),
    )  # fmt: skip
    return Given(cluster, regions, settings, stores, regions_told, ranges_of(settings))


_READ_BY_JUDGES = frozenset({
    "applies_to", "average_region_size_mib", "command", "constraint", "created_age_s", "delta_mib", "delta_sign",
    "deleted_store", "elapsed_s", "extra_regions_in_cluster", "instantaneous", "note", "offline_store", "operator",
    "operator_status", "pd_started_s_ago", "peers_text", "priorities", "rate_per_s", "recently_split",
    "region_size_mib", "removed_after_10s", "replace", "rules_text", "running_operators", "running_s", "store_limit",
    "target_region_size_mib", *(f"{kind}_{unit}" for kind in ("read", "write")
                                for unit in ("mib_s", "kib_s", "keys_s", "queries_s")),
})  # fmt: skip


def not_understood(given: Given) -> list[str]:
    """Give the names of what a scenario says and nobody reads, so that a wrong answer can be told from a deaf one."""
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


def given_of_text(record: Fields) -> Fields:
    """Give the settings of a scenario whose stores are told in words."""
    return record.object("given").object("config")


def _config(settings: Fields) -> Config:
    """Read settings by PD's names; without a word on joint consensus it is off, as in PD's own tests."""
    found: dict[str, Any] = {"joint_consensus": False}
    known = {f.name for f in fields(Config)}
    for key in settings.value:
        name = _OTHER_NAMES.get(key, key)
        if name == "reject_leader":
            found[name] = tuple(tuple(t.split("=", 1)) for t in settings.texts(key) if "=" in t)
        elif name in known:
            found[name] = _setting(settings, key, getattr(Config(), name))
    return Config(**found)


def _setting(settings: Fields, key: str, default: object) -> object:
    if isinstance(default, bool):
        return settings.flag(key)
    if isinstance(default, int):
        return settings.integer(key)
    if isinstance(default, float):
        return settings.number(key)
    return settings.texts(key) if isinstance(default, tuple) else settings.text(key)


def store_of(s: Fields) -> Store:
    """Read a store; what is not said follows from its region count."""
    state = s.text("state", "up")
    if state not in _STATES:
        raise Unknown(f"a store that is {state}; known are {', '.join(_STATES)}")
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
        leader_in_paused=s.flag("evict_leader", False),
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


def _region(n: int, r: Fields) -> Region:
    if "peers_text" in r:
        return Region(n, (), 0)
    learners = r.integers("learners", [])
    witnesses = r.integers("witnesses", [])
    peers = tuple(
        Peer(i, s, LEARNER if s in learners else VOTER, s in witnesses)
        for i, s in enumerate(few_peers(r.integers("peers"), r.where), 1)
    )
    size = r.number("size_mib", REGION_MIB)
    start, end = (*r.texts("keys", ["", ""]), "", "")[:2]
    return Region(
        r.integer("id", n), peers, r.integer("leader", 0), size, int(r.number("keys_count", size)),
        frozenset(r.integers("down_peers", [])), frozenset(r.integers("pending_peers", [])), start, end,
        r.flag("hot", False), denied=denied_by(r) | denied_by(r.object("labels", {})),
    )  # fmt: skip

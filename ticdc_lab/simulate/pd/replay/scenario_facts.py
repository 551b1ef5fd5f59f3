"""Scenarios about facts that decisions rest on: scores, locations, rules, states, and where peers may be."""

from __future__ import annotations

import re
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from ticdc_lab.simulate.pd.balance import LEADERS, REGIONS, Scale, source_score, target_score, tolerance
from ticdc_lab.simulate.pd.cluster import fit_of
from ticdc_lab.simulate.pd.filters import (
    LEADER_SOURCE,
    LEADER_TARGET,
    REGION_SOURCE,
    REGION_TARGET,
    safe_location,
    state_forbids,
)
from ticdc_lab.simulate.pd.location import distinct_score
from ticdc_lab.simulate.pd.regions import LEARNER, VOTER, Peer, Region
from ticdc_lab.simulate.pd.replay.given import (
    constraint_of,
    given_of,
    given_of_text,
    region_of,
    stores_of,
    with_running,
)
from ticdc_lab.simulate.pd.replay.records import Fields, Malformed, Verdict, equal, few_peers
from ticdc_lab.simulate.pd.rules import Constraint, RegionFit, Rule, fit_region, matches, meets
from ticdc_lab.simulate.pd.scores import region_score
from ticdc_lab.simulate.pd.stores import Store, is_low_on_space, labelled


def should_balance(record: Fields) -> Verdict:
    """Compare two stores in every way the scenario names: leaders, and regions where it is about sizes."""
    given = with_running(given_of(record))
    applies = given.settings.text("applies_to", "leader score")
    policy = given.settings.text("policy", "count")
    source, target = stores_of(given, 2)[:2]
    compared = {}
    for resource in (LEADERS, REGIONS):
        if resource in applies:
            by = Scale(given.cluster, resource, policy, tolerance(given.cluster, resource, policy))
            compared[resource] = (source_score(by, source), target_score(by, target))
    found = {a > b for a, b in compared.values()}
    file = record.object("expect").value
    ours = {"should_balance": found == {True}}
    said = "; ".join(f"{what} {a:.2f} against {b:.2f}" for what, (a, b) in compared.items())
    return Verdict(ours, file, len(found) == 1 and ours == file, said)


def higher_score(record: Fields) -> Verdict:
    given = given_of(record)
    delta = given.settings.number("delta_mib", 0)
    signs = {1: 1, 2: -1} if delta else {}
    stores = stores_of(given)
    scores = {s.id: region_score(s, given.cluster.config, signs.get(s.id, 0) * delta) for s in stores}
    return equal(
        {"higher_score": max(scores, key=scores.__getitem__)}, record.object("expect").value, f"region scores {scores}"
    )


def distinct_score_rule(record: Fields) -> Verdict:
    """Check the closed form of the isolation score on 3 zones x 3 racks x 3 hosts, and with a label left out."""
    settings = given_of_text(record)
    labels = settings.texts("location_labels")
    if len(labels) != 3:
        raise Malformed("given.config.location_labels", "three labels", labels)
    places = [(z, r, h) for z in "123" for r in "123" for h in "123"]
    stores = [Store(i, labels=labelled(dict(zip(labels, place, strict=True)))) for i, place in enumerate(places)]
    wrong = [n for n in range(2, len(stores)) if distinct_score(labels, stores[:n], stores[n]) != _by_rule(places, n)]
    blank = Store(99, labels=labelled({}))
    wrong += [99] if distinct_score(labels, stores, blank) else []
    file = record.object("expect").value
    return Verdict(
        dict(file) if not wrong else {"score": f"differs for {wrong}"}, file, not wrong, "tried on all stores"
    )


def _by_rule(places: list[tuple[str, str, str]], n: int) -> int:
    """Other zones count 10,000, other racks of the zone 100, other hosts of the rack 1."""
    zone, rack, host = places[n]
    zones = sum(z != zone for z, _, _ in places[:n])
    racks = sum(z == zone and r != rack for z, r, _ in places[:n])
    hosts = sum((z, r) == (zone, rack) and h != host for z, r, h in places[:n])
    return zones * 10_000 + racks * 100 + hosts


_ROLES: Mapping[str, tuple[str, str]] = MappingProxyType({
    "leader_source": (LEADER_SOURCE, ""),
    "leader_target": (LEADER_TARGET, ""),
    "region_source": (REGION_SOURCE, ""),
    "region_target": (REGION_TARGET, ""),
    "region_target_allow_temporary": (REGION_TARGET, "temporary allowed"),
    "region_source_allow_temporary": (REGION_SOURCE, "temporary allowed"),
    "leader_target_allow_temporary": (LEADER_TARGET, "temporary allowed"),
    "leader_source_allow_temporary": (LEADER_SOURCE, "temporary allowed"),
})  # fmt: skip


def low_space(record: Fields) -> Verdict:
    given = given_of(record)
    store, file = stores_of(given)[0], record.object("expect").value
    ours = {"low_space": is_low_on_space(store, given.cluster.config.low_space_ratio)}
    return equal(ours, file, f"{store.available:.0f} of {store.capacity:.0f} bytes are available")


def store_state(record: Fields) -> Verdict:
    """Say which roles a store's state lets it play."""
    given = given_of(record)
    store = stores_of(given)[0]
    file = record.object("expect").value
    ours, why = {}, []
    for name in file:
        if name not in _ROLES:
            raise Malformed(f"expect.{name}", " or ".join(_ROLES), name)
        role, temporary = _ROLES[name]
        condition = state_forbids(store, role, given.cluster.config, temporary_too=not temporary)
        ours[name] = condition is None
        if condition is not None:
            why.append(f"{name}: {condition.why}")
    return equal(ours, file, "; ".join(why))


def safe_location_rule(record: Fields) -> Verdict:
    """Say whether replacing one store by another keeps, or raises, the isolation."""
    settings = given_of_text(record)
    given = given_of(record)
    old_id, new_id = _pair(settings)
    stores, peers = given.cluster.stores, region_of(given).stores
    if not {old_id, new_id} | peers <= set(stores):
        raise Malformed("given.stores", f"stores {sorted({old_id, new_id} | peers)}", sorted(stores))
    here, old, new = [stores[i] for i in sorted(peers)], stores[old_id], stores[new_id]
    labels = settings.texts("location_labels")
    ours = {
        "not_worse": not safe_location(labels, here, old).refuses(new),
        "better": not safe_location(labels, here, old, improve=True).refuses(new),
    }
    file = record.object("expect").value
    return equal(ours, file, safe_location(labels, here, old).refuses(new) or "not refused")


def _pair(settings: Fields) -> tuple[int, int]:
    stores = settings.integers("replace")
    if len(stores) != 2:
        raise Malformed("given.config.replace", "two stores", stores)
    return stores[0], stores[1]


def _first(found: list[Fields]) -> Fields:
    if not found:
        raise Malformed("given.regions", "a region", "none")
    return found[0]


def constraint_match(record: Fields) -> Verdict:
    given = given_of(record)
    condition = constraint_of(given.settings.any("constraint"), "given.config.constraint")
    store = stores_of(given)[0]
    return equal(
        {"match": meets(store.labels, condition)}, record.object("expect").value, f"labels {dict(store.labels)}"
    )


def _grid_store(store: int) -> Store:
    """Give the store of PD's test grid: zone, rack, host and disk are its digits; disk 5 is TiFlash."""
    zone, rack, host, disk = (store // 10**i % 10 for i in (3, 2, 1, 0))
    labels = {"zone": f"zone{zone}", "rack": f"rack{rack}", "host": f"host{host}", "id": f"id{disk}"}
    return Store(store, labels=labelled(labels | ({"engine": "tiflash"} if disk == 5 else {})))


def _grid_rule(text: str) -> Rule:
    """Read a rule such as ``3/voter/zone=zone1+zone2/zone,rack``."""
    parts = text.split("/")
    if len(parts) != 4 or not parts[0].isdecimal():
        raise Malformed("given.config.rules_text", "count/role/constraints/location labels", text)
    conditions = tuple(_grid_constraint(c) for c in parts[2].split(",") if c)
    return Rule(parts[1], int(parts[0]), conditions, tuple(label for label in parts[3].split(",") if label))


def _grid_constraint(text: str) -> Constraint:
    match = re.fullmatch(r"([^=!]+)(!?)=(.*)", text)
    if match is None:
        raise Malformed("given.config.rules_text", "a constraint such as zone=zone1+zone2", text)
    return Constraint(match[1], "notIn" if match[2] else "in", tuple(match[3].split("+")))


def _grid_fit(record: Fields, *more: int) -> tuple[RegionFit, dict[int, Store], list[Rule]]:
    settings = given_of_text(record)
    text = _first(record.object("given").objects("regions")).text("peers_text")
    peers, leader, down, pending = [], 0, set(), set()
    for part in text.split(","):
        words = part.strip().split("_")
        if not words[0].isdecimal():
            raise Malformed("given.regions.peers_text", "stores such as 1111_leader", text)
        store = int(words[0])
        learner = "learner" in words or "l" in words
        peers.append(Peer(store, store, LEARNER if learner else VOTER))
        leader = store if "leader" in words else leader
        down |= {store} if "down" in words else set()
        pending |= {store} if "pending" in words else set()
    few_peers(tuple(p.store for p in peers), "given.regions.peers_text")
    region = Region(1, tuple(peers), leader, down=frozenset(down), pending=frozenset(pending))
    rules = [_grid_rule(t) for t in settings.texts("rules_text")]
    stores = {i: _grid_store(i) for i in (*region.stores, *more)}
    return fit_region(region, rules, stores), stores, rules


def peers_per_rule(record: Fields) -> Verdict:
    """Say which peers serve which rule, and where the file asks, which serve none."""
    fit, _, rules = _grid_fit(record)
    file = record.object("expect").value
    ours = [_joined(r.peers) for r in fit.rules]
    if len(record.object("expect").items("peers_per_rule")) > len(rules):
        ours.append(f"orphan {_joined(fit.orphans)}")
    told: dict[str, Any] = {"peers_per_rule": ours}
    return Verdict(told, file, told == file, f"isolation scores {[r.isolation for r in fit.rules]}")


def _joined(peers: tuple[Peer, ...]) -> str:
    return ",".join(str(p.store) for p in sorted(peers))


def replacement_allowed(record: Fields) -> Verdict:
    """Say whether a peer may move from one store to another under the rules."""
    old, new = _pair(given_of_text(record))
    if "rules_text" in given_of_text(record):
        fit, stores, _ = _grid_fit(record, new)
    else:
        given = given_of(record)
        stores, fit = dict(given.cluster.stores), fit_of(given.cluster, region_of(given))
    if new not in stores:
        raise Malformed("given.config.replace", "a known store", new)
    ours, file = {"allowed": fit.allows(old, stores[new])}, record.object("expect").value
    served = fit.of_store(old)
    meets_rule = served is not None and matches(stores[new], served.rule.constraints)
    why = "the store meets the rule's conditions" if meets_rule else "the store does not meet the rule's conditions"
    return equal(ours, file, why)

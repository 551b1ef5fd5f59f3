"""Scenarios about where peers may be: locations, label conditions, placement rules."""

from __future__ import annotations

import re
from typing import Any

from ticdc_lab.simulate.pd.cluster import fit_of
from ticdc_lab.simulate.pd.filters import safe_location
from ticdc_lab.simulate.pd.fit import RegionFit, fit_region
from ticdc_lab.simulate.pd.regions import LEARNER, VOTER, Peer, Region
from ticdc_lab.simulate.pd.replay.fields import Fields, Malformed, few_peers
from ticdc_lab.simulate.pd.replay.given import given_of, given_of_text, region_of, stores_of
from ticdc_lab.simulate.pd.replay.given_rules import constraint_of
from ticdc_lab.simulate.pd.replay.verdict import Verdict
from ticdc_lab.simulate.pd.rules import Constraint, Rule, matches, meets
from ticdc_lab.simulate.pd.stores import Store, labelled


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
    return Verdict(ours, file, ours == file, safe_location(labels, here, old).refuses(new) or "not refused")


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
    """Say whether a store meets a condition on its labels."""
    given = given_of(record)
    condition = constraint_of(given.settings.any("constraint"), "given.config.constraint")
    store = stores_of(given)[0]
    ours, file = {"match": meets(store, condition)}, record.object("expect").value
    return Verdict(ours, file, ours == file, f"labels {dict(store.labels)}")


def _grid_store(store: int) -> Store:
    """Give the store of PD's test grid: zone, rack, host and disk are its digits; disk 5 is TiFlash."""
    zone, rack, host, disk = (store // 10**i % 10 for i in (3, 2, 1, 0))
    labels = {"zone": f"zone{zone}", "rack": f"rack{rack}", "host": f"host{host}", "id": f"id{disk}"}
    return Store(store, labels=labelled(labels | ({"engine": "tiflash"} if disk == 5 else {})))


def _grid_region(text: str) -> Region:
    """Read peers such as ``1111_leader,2111,3111_learner``; nobody leads where no leader is named."""
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
    return Region(1, tuple(peers), leader, down=frozenset(down), pending=frozenset(pending))


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
    region = _grid_region(_first(record.object("given").objects("regions")).text("peers_text"))
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
    return Verdict(ours, file, ours == file, why)

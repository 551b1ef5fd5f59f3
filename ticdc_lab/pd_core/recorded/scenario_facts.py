"""Scenarios about facts that decisions rest on: scores, locations, rules and states, what administrators do, how limits
count, how operators end and which may be handed over.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from ticdc_lab.pd_core import forecast, limits
from ticdc_lab.pd_core.balance import LEADERS, REGIONS, Scale, source_score, target_score, tolerance
from ticdc_lab.pd_core.cluster import Cluster, fit_of
from ticdc_lab.pd_core.filters import (
    LEADER_SOURCE,
    LEADER_TARGET,
    REGION_SOURCE,
    REGION_TARGET,
    safe_location,
    state_forbids,
)
from ticdc_lab.pd_core.lifecycle import CREATED, EXPIRES_AFTER_S, STARTED, impossible, may_follow, status_at
from ticdc_lab.pd_core.location import distinct_score
from ticdc_lab.pd_core.operators import (
    AddLearner,
    Kind,
    Operator,
    Priority,
    RemovePeer,
    Step,
    TransferLeader,
    timeout_s,
)
from ticdc_lab.pd_core.recorded.given import Given, constraint_of, region_of, stores_of
from ticdc_lab.pd_core.recorded.records import Fields, Malformed, UnknownRecord, Verdict, equal, few_peers
from ticdc_lab.pd_core.regions import LEARNER, VOTER, Peer, Region
from ticdc_lab.pd_core.rules import Constraint, RegionFit, Rule, fit_region, matches, meets
from ticdc_lab.pd_core.scores import region_score
from ticdc_lab.pd_core.store_states import (
    CommandTold,
    bring_up,
    bury_store,
    checked_states,
    delete_store,
    may_take_address,
)
from ticdc_lab.pd_core.stores import REMOVED, SERVING, Store, is_low_on_space, labelled


def should_balance(given: Given, expect: Fields) -> Verdict:
    """Compare two stores in every way the scenario names: leaders, and regions where it is about sizes."""
    applies = given.settings.text("applies_to", "leader score")
    policy = given.settings.text("policy", "count")
    source, target = stores_of(given, 2)[:2]
    compared = {}
    for resource in (LEADERS, REGIONS):
        if resource in applies:
            by = Scale(given.cluster, resource, policy, tolerance(given.cluster, resource, policy))
            compared[resource] = (source_score(by, source), target_score(by, target))
    found = {a > b for a, b in compared.values()}
    ours = {"should_balance": found == {True}}
    said = "; ".join(f"{what} {a:.2f} against {b:.2f}" for what, (a, b) in compared.items())
    return Verdict(ours, expect.value, len(found) == 1 and ours == expect.value, said)


def higher_score(given: Given, expect: Fields) -> Verdict:
    delta = given.settings.number("delta_mib", 0)
    signs = {1: 1, 2: -1} if delta else {}
    stores = stores_of(given)
    scores = {s.id: region_score(s, given.cluster.config, signs.get(s.id, 0) * delta) for s in stores}
    return equal({"higher_score": max(scores, key=scores.__getitem__)}, expect, f"region scores {scores}")


def distinct_score_rule(settings: Fields, expect: Fields) -> Verdict:
    """Check the closed form of the isolation score on 3 zones x 3 racks x 3 hosts, and with a label left out."""
    labels = settings.texts("location_labels")
    if len(labels) != 3:
        raise Malformed("given.config.location_labels", "three labels", labels)
    places = [(z, r, h) for z in "123" for r in "123" for h in "123"]
    stores = [Store(i, labels=labelled(dict(zip(labels, place, strict=True)))) for i, place in enumerate(places)]
    wrong = [n for n in range(2, len(stores)) if distinct_score(labels, stores[:n], stores[n]) != _by_rule(places, n)]
    blank = Store(99, labels=labelled({}))
    wrong += [99] if distinct_score(labels, stores, blank) else []
    return equal({"score": f"differs for {wrong}"} if wrong else expect.value, expect, "tried on all stores")


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


def low_space(given: Given, expect: Fields) -> Verdict:
    store = stores_of(given)[0]
    ours = {"low_space": is_low_on_space(store, given.cluster.config.low_space_ratio)}
    return equal(ours, expect, f"{store.available:.0f} of {store.capacity:.0f} bytes are available")


def store_state(given: Given, expect: Fields) -> Verdict:
    """Find the roles that a store's state lets it play."""
    store = stores_of(given)[0]
    ours, why = {}, []
    for name in expect.value:
        if name not in _ROLES:
            raise Malformed(f"expect.{name}", " or ".join(_ROLES), name)
        role, temporary = _ROLES[name]
        condition = state_forbids(store, role, given.cluster.config, temporary_too=not temporary)
        ours[name] = condition is None
        if condition is not None:
            why.append(f"{name}: {condition.why}")
    return equal(ours, expect, "; ".join(why))


def safe_location_rule(given: Given, expect: Fields) -> Verdict:
    """Check whether replacing one store by another keeps, or raises, the isolation."""
    old_id, new_id = _pair(given.settings)
    stores, peers = given.cluster.stores, region_of(given).stores
    if not {old_id, new_id} | peers <= set(stores):
        raise Malformed("given.stores", f"stores {sorted({old_id, new_id} | peers)}", sorted(stores))
    here, old, new = [stores[i] for i in sorted(peers)], stores[old_id], stores[new_id]
    labels = given.settings.texts("location_labels")
    ours = {
        "not_worse": not safe_location(labels, here, old).refuses(new),
        "better": not safe_location(labels, here, old, improve=True).refuses(new),
    }
    return equal(ours, expect, safe_location(labels, here, old).refuses(new) or "not refused")


def _pair(settings: Fields) -> tuple[int, int]:
    stores = settings.integers("replace")
    if len(stores) != 2:
        raise Malformed("given.config.replace", "two stores", stores)
    return stores[0], stores[1]


def constraint_match(given: Given, expect: Fields) -> Verdict:
    condition = constraint_of(given.settings.any("constraint"), "given.config.constraint")
    store = stores_of(given)[0]
    return equal({"match": meets(store.labels, condition)}, expect, f"labels {dict(store.labels)}")


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


def _grid_fit(given: Given, *more: int) -> tuple[RegionFit, dict[int, Store], list[Rule]]:
    if not given.regions_told:
        raise Malformed("given.regions", "a region", "none")
    text = given.regions_told[0].text("peers_text")
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
    rules = [_grid_rule(t) for t in given.settings.texts("rules_text")]
    stores = {i: _grid_store(i) for i in (*region.stores, *more)}
    return fit_region(region, rules, stores), stores, rules


def peers_per_rule(given: Given, expect: Fields) -> Verdict:
    """Find which peers serve which rule, and where the file asks, which serve none."""
    fit, _, rules = _grid_fit(given)
    ours = [_joined(r.peers) for r in fit.rules]
    if len(expect.items("peers_per_rule")) > len(rules):
        ours.append(f"orphan {_joined(fit.orphans)}")
    return equal({"peers_per_rule": ours}, expect, f"isolation scores {[r.isolation for r in fit.rules]}")


def _joined(peers: tuple[Peer, ...]) -> str:
    return ",".join(str(p.store) for p in sorted(peers))


def replacement_allowed(given: Given, expect: Fields) -> Verdict:
    """Check whether a peer may move from one store to another under the rules."""
    old, new = _pair(given.settings)
    if "rules_text" in given.settings:
        fit, stores, _ = _grid_fit(given, new)
    else:
        stores, fit = dict(given.cluster.stores), fit_of(given.cluster, region_of(given))
    if new not in stores:
        raise Malformed("given.config.replace", "a known store", new)
    served = fit.of_store(old)
    meets_rule = served is not None and matches(stores[new], served.rule.constraints)
    why = "the store meets the rule's conditions" if meets_rule else "the store does not meet the rule's conditions"
    return equal({"allowed": fit.allows(old, stores[new])}, expect, why)


_SHOWN = {SERVING: "up", REMOVED: "tombstone"}


def command(given: Given, expect: Fields) -> Verdict:
    """Carry out a command such as ``store delete 3 physically-destroyed; then state check``."""
    text = given.settings.text("command")
    if "put a new store" in text:
        accepted = {str(i): ("accepted" if may_take_address(s) else "refused") for i, s in given.cluster.stores.items()}
        return equal({"result": accepted}, expect, "only a tombstone's or a destroyed store's address is free")
    cluster, told = _carried_out(given.cluster, text)
    if "state check" in text:
        cluster = cluster._replace(stores=checked_states(cluster.stores))
        told = {i: CommandTold(cluster.stores[i]) for i in told}
    because = "; ".join(t.because or t.error for t in told.values() if t.error)
    first = next(iter(told.values()))
    ours: dict[str, Any] = {}
    if "error" in expect.value:
        ours["error"] = ("refused" if expect.value["error"] == "refused" else first.error) if first.error else None
    if "state" in expect.value:
        states = {str(i): _shown(t.store) for i, t in told.items()}
        ours["state"] = states if isinstance(expect.value["state"], dict) else _shown(first.store)
    if "result" in expect.value:
        ours["result"] = {str(i): f"refused: {t.because}" if t.error else _shown(t.store) for i, t in told.items()}
    return equal(ours, expect, because)


def _carried_out(cluster: Cluster, text: str) -> tuple[Cluster, dict[int, CommandTold]]:
    match = re.match(r"(store delete|store up|store cancel-delete|force bury|bury|store bury) ([\d, ]+)(.*)", text)
    if match is None:
        raise UnknownRecord(f"the command {text!r}; known are store delete, store up and bury, with stores")
    destroyed = "physically-destroyed" in match[3]
    told = {}
    for store in (int(n) for n in re.findall(r"\d+", match[2])):
        told[store] = _one(cluster, match[1], store, destroyed)
        after = told[store].store
        if after is not None:
            cluster = cluster._replace(stores={**cluster.stores, store: after})
    return cluster, told


def _one(cluster: Cluster, verb: str, store: int, destroyed: bool) -> CommandTold:
    if verb == "store delete":
        return delete_store(cluster, store, physically_destroyed=destroyed)
    if verb in ("store up", "store cancel-delete"):
        return bring_up(cluster, store)
    return bury_store(cluster, store, force=verb == "force bury")


def _shown(store: Store | None) -> str | None:
    return None if store is None else _SHOWN.get(store.state, store.state)


def progress(given: Given, expect: Fields) -> Verdict:
    size = given.settings.number("region_size_mib", 96)
    regions = stores_of(given)[0].region_count
    if "removed_after_10s" in given.settings:
        gone = given.settings.number("removed_after_10s")
        found = forecast.progress(gone * size, regions * size, 10)
    else:
        target = given.settings.number("target_region_size_mib")
        found = forecast.progress(regions * size, target, given.settings.number("elapsed_s", 10))
    return equal({k: v for k, v in found._asdict().items() if k in expect}, expect, "MiB of regions gone so far")


def store_limit(given: Given, expect: Fields) -> Verdict:
    if "window_capacity_mib_by_priority" in expect:
        windows = limits.Windows()
        capacities = {p.name.lower(): limits.window_capacity(windows, p) for p in Priority}
        ours = dict(expect.value) | {"window_capacity_mib_by_priority": capacities, "minimum": limits.LEAST_WINDOW_MIB}
        full = limits.with_snapshot(windows, Priority.LOW, 91)
        overshoots = limits.with_snapshot(windows._replace(used=(90, 0, 0, 0)), Priority.LOW, 500) is not None
        shut = full is not None and not limits.window_open(full, Priority.LOW)
        higher = full is not None and limits.window_open(full, Priority.MEDIUM)
        found = equal(ours, expect, "tried window by window")
        return found._replace(agrees=found.agrees and overshoots and shut and higher)
    stores_of(given)
    store = given.stores[0]
    if "rate_per_s" in store:
        return _bucket(store.number("rate_per_s"), expect)
    limit = store.object("store_limit")
    rate = limit.number(next(iter(limit.value), "add-peer"))
    cost = limits.step_cost(region_of(given).size)
    bucket, accepted = limits.bucket_per_minute(rate), 0
    if not cost or limits.is_unlimited(bucket):
        asked = Fields({k: v for k, v in expect.value.items() if k != "then"}, expect.where)
        return equal({"accepted": "unlimited"}, asked, "no limit applies")
    while limits.available(bucket, 0, cost):
        bucket, accepted = limits.taken(bucket, 0, cost), accepted + 1
    then = expect.any("then", None)
    ours = {"accepted": accepted} | ({"then": then if then == "not tested" else "refused"} if then else {})
    return equal(ours, expect, f"{limits.capacity(rate / 60):.0f} tokens, {cost} a peer")


def _bucket(rate: float, expect: Fields) -> Verdict:
    full = limits.bucket(rate)
    emptied = limits.taken(full, 0, limits.capacity(rate))
    ours: dict[str, Any] = {
        "capacity_tokens": limits.capacity(rate),
        f"after_taking_{limits.capacity(rate):.0f}": "available" if limits.available(emptied, 0) else "unavailable",
        "rate_0": "unlimited" if limits.is_unlimited(limits.bucket(0)) else "limited",
    }
    return equal({k: ours.get(k) for k in expect.value}, expect, "one second's worth, one large region at least")


def operator_status(given: Given, expect: Fields) -> Verdict:
    """Give the state an operator is in after a while, and the limit that brought it there."""
    # Read an operator such as ``remove-peer + add-peer 3`` or ``transfer leader to 2``.
    text, region = given.settings.text("operator"), region_of(given)
    steps = tuple(_step(t.strip(), region) for t in text.split("+"))
    op = Operator("test", text, region.id, Kind(0), steps, size=region.size)
    ours: dict[str, Any]
    if "running_s" in given.settings:
        running = given.settings.number("running_s")
        ours = {"status": status_at(op, STARTED, running), "limit_s": timeout_s(op)}
    elif "created_age_s" in given.settings:
        age = given.settings.number("created_age_s")
        ours = {"status": status_at(op, CREATED, age), "limit_s": EXPIRES_AFTER_S}
    else:
        why = impossible(given.cluster, region_of(given), op.steps[0])
        return equal(_in_words({"status": "stale" if why else "started"}, expect), expect, why)
    ours = _in_words({k: v for k, v in ours.items() if k in expect}, expect)
    return equal(ours, expect, "steps may take so long together")


_OTHER_WORDS = {"started": ("running",), "stale": ("canceled", "cancelled")}


def _in_words(ours: dict[str, Any], expect: Fields) -> dict[str, Any]:
    """Give a status by another word that the scenario uses for it: PD shows a started operator as running."""
    wanted = expect.any("status", None)
    return ours | {"status": wanted} if wanted in _OTHER_WORDS.get(str(ours.get("status")), ()) else ours


_STEP = re.compile(r"(transfer|add|remove)[ -](leader|peer)(?:(?: to| from)? (\d+))?(?: ?-> ?(\d+))?")
_REMOVED, _ADDED = 1, 2
"""Stores of steps that name none."""


def _step(text: str, region: Region) -> Step:
    match = _STEP.fullmatch(text)
    if match is None:
        raise UnknownRecord(f"the step {text!r} of an operator; known are add-peer, remove-peer and transfer-leader")
    store = int(match[4] or match[3] or 0)
    if match[1] == "transfer":
        return TransferLeader(region.leader, store or _ADDED)
    return AddLearner(store or _ADDED) if match[1] == "add" else RemovePeer(store or _REMOVED)


def operator_accepted(given: Given, expect: Fields) -> Verdict:
    """Check whether operators in these states may be handed to the controller."""
    ours = {"accepted": any(may_follow(s, STARTED) for s in given.settings.texts("operator_status"))}
    return equal(ours, expect, "only a created operator may be added")

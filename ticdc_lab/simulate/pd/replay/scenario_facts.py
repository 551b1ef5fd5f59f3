"""Scenarios about facts that decisions rest on: scores, locations, rules, states."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from ticdc_lab.simulate.pd.balance import LEADERS, REGIONS, Scale, source_score, target_score, tolerance
from ticdc_lab.simulate.pd.filters import (
    LEADER_SOURCE,
    LEADER_TARGET,
    REGION_SOURCE,
    REGION_TARGET,
    state_forbids,
)
from ticdc_lab.simulate.pd.location import distinct_score
from ticdc_lab.simulate.pd.replay.fields import Fields, Malformed
from ticdc_lab.simulate.pd.replay.given import given_of, given_of_text, stores_of
from ticdc_lab.simulate.pd.replay.running import with_running
from ticdc_lab.simulate.pd.replay.verdict import Verdict
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
    """Say which store has the higher region score."""
    given = given_of(record)
    delta = given.settings.number("delta_mib", 0)
    signs = {1: 1, 2: -1} if delta else {}
    stores = stores_of(given)
    scores = {s.id: region_score(s, given.cluster.config, signs.get(s.id, 0) * delta) for s in stores}
    ours, file = {"higher_score": max(scores, key=scores.__getitem__)}, record.object("expect").value
    return Verdict(ours, file, ours == file, f"region scores {scores}")


def distinct_score_rule(record: Fields) -> Verdict:
    """Check the closed form of the isolation score on 3 zones x 3 racks x 3 hosts, and with a label left out."""
    settings = given_of_text(record)
    labels = settings.texts("location_labels")
    if len(labels) != 3:
        raise Malformed("given.config.location_labels", "three labels", labels)
    places = [(z, r, h) for z in "123" for r in "123" for h in "123"]
    stores = [_at(i, labels, place) for i, place in enumerate(places)]
    wrong = [n for n in range(2, len(stores)) if distinct_score(labels, stores[:n], stores[n]) != _by_rule(places, n)]
    blank = Store(99, labels=labelled({}))
    wrong += [99] if distinct_score(labels, stores, blank) else []
    file = record.object("expect").value
    return Verdict(
        dict(file) if not wrong else {"score": f"differs for {wrong}"}, file, not wrong, "tried on all stores"
    )


def _at(i: int, labels: tuple[str, ...], place: tuple[str, str, str]) -> Store:
    return Store(i, labels=labelled(dict(zip(labels, place, strict=True))))


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
    """Say whether a store is low on space."""
    given = given_of(record)
    store, file = stores_of(given)[0], record.object("expect").value
    ours = {"low_space": is_low_on_space(store, given.cluster.config.low_space_ratio)}
    return Verdict(ours, file, ours == file, f"{store.available:.0f} of {store.capacity:.0f} bytes are available")


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
    return Verdict(ours, file, ours == file, "; ".join(why))

"""Faults planted in the core, and the records catch each: this is how we know that a replay can fail."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

import pytest

from ticdc_lab.pd_core import (
    balance,
    balance_leader,
    balance_region,
    builder,
    filters,
    hot_loads,
    hot_region,
    lifecycle,
    limits,
    location,
    merge_checker,
    replica_checker,
    rule_checker,
    rules,
    scores,
    store_states,
    strategy,
)
from ticdc_lab.simulate.pd.replay import replay

GOLDEN = Path(__file__).parents[2] / "data" / "golden" / "pd"


class Mutant(NamedTuple):
    """A fault: another value for an attribute; ``caught_by`` is a record that notices, an oracle line or a scenario."""

    name: str
    module: ModuleType | type
    attribute: str
    value: Callable[[Any], Any]
    caught_by: str


def without(role: str, *names: str) -> Callable[[Any], Any]:
    """The condition table without some conditions of a role."""
    return lambda table: {**table, role: tuple(c for c in table[role] if c.name not in names)}


MUTANTS = (
    Mutant("a missing label is a place of its own", location, "_differ",
           lambda f: lambda *two: f(*({k: s.get(k) or str(i) for k in two[2]}
                                                   for i, s in enumerate(two[:2])), two[2]), "oracle 152"),
    Mutant("a difference weighs 10, not 100", location, "BASE", lambda _: 10, "oracle 152"),
    Mutant("a weight below 1e-6 is taken as it is", scores, "MIN_WEIGHT", lambda _: 1e-9, "oracle 4"),
    Mutant("nearly full begins at 20 GiB", scores, "_FLOOR_GIB", lambda _: 20.0, "oracle 7"),
    Mutant("foreign files are forgotten", scores, "_available_after", lambda _: lambda a, *_: a, "oracle 3"),
    Mutant("a busy store takes peers", filters, "TABLE", without("region-target", "busy"), "oracle 241"),
    Mutant("a down store takes peers", filters, "TABLE", without("region-target", "down", "disconnected"),
           "oracle 261"),
    Mutant("a leaving store takes peers", filters, "TABLE", without("region-target", "removing"), "oracle 330"),
    Mutant("a store drowning in snapshots takes peers", filters, "TABLE", without("region-target", "snapshots"),
           "rc-makeup-snapshot-limit"),
    Mutant("pending peers do not matter", filters, "TABLE", without("region-target", "pending-peers"),
           "oracle 431"),
    Mutant("a busy store gives peers", filters, "TABLE", without("region-source", "busy"), "oracle 429"),
    Mutant("a leaving store takes leaders", filters, "TABLE", without("leader-target", "removing"), "oracle 461"),
    Mutant("a silent store gives leaders", filters, "TABLE", without("leader-source", "disconnected", "down"),
           "oracle 452"),
    Mutant("isolation-level is ignored", strategy, "isolated", lambda _: lambda *_: filters.excluding(()),
           "oracle 243"),
    Mutant("the fullest store is chosen", strategy, "region_score", lambda f: lambda *a: -f(*a), "oracle 238"),
    Mutant("the best isolation is not kept", strategy, "distinct_score", lambda _: lambda *_: 0, "oracle 348"),
    Mutant("balance lowers isolation", balance_region, "safeguard", lambda _: lambda *_: filters.excluding(()),
           "oracle 377"),
    Mutant("no tolerance", balance, "tolerance", lambda _: lambda *_: 0, "oracle 377"),
    Mutant("leaders move over a gap of two", balance, "_LEADER_RATIO", lambda _: 1.0, "oracle 452"),
    Mutant("influence is not amplified", balance, "AMPLIFICATION", lambda _: 0, "br-op-influence"),
    Mutant("a region with a down peer is moved", balance_region, "unfit", lambda _: lambda *_, **__: "",
           "oracle 382"),
    Mutant("leaders leave first", balance_region, "ORDER", lambda o: tuple(reversed(o)), "oracle 377"),
    Mutant("of equal stores the older one is first", balance_leader.StoreQueue, "before",
           lambda f: lambda q, a, x, b, y: f(q, b, 0, a, 0) if x == y else f(q, a, x, b, y), "oracle 467"),
    Mutant("regions with a pending peer lose their leader", balance_leader, "may_transfer",
           lambda _: lambda r: True, "oracle 454"),
    Mutant("the sick are fitted first", rules, "_sickness", lambda f: lambda *a: -f(*a), "oracle 276"),
    Mutant("constraints are ignored", rules, "matches", lambda _: lambda store, _: store is not None,
           "fit-1111.2211.3111.3112-218"),
    Mutant("orphans go first", rule_checker, "_first_sick", lambda _: lambda *_: (False, None),
           "rule-many-orphans-disconnected-5"),
    Mutant("down peers are left", replica_checker, "_down", lambda _: lambda *_: (), "oracle 333"),
    Mutant("extra peers are left", replica_checker, "_extra", lambda _: lambda *_: (), "oracle 355"),
    Mutant("a better location is left", rule_checker, "store_to_better", lambda _: lambda *_: strategy.NOTHING,
           "oracle 238"),
    Mutant("any peer may lead", builder.StepPlan, "may_lead", lambda _: lambda *_: True, "oracle 440"),
    Mutant("the larger neighbour is taken", merge_checker, "_unfit",
           lambda f: lambda c, r, n, s: f(c, r, n, s) if n is None or n.size < 100 else "large", "merge-3-239"),
    Mutant("an operator never expires", lifecycle, "EXPIRES_AFTER_S", lambda _: 1e9, "op-expire"),
    Mutant("small regions cost as much as large ones", limits, "SMALL_COST", lambda _: 1000,
           "limit-add-peer-120-small"),
    Mutant("the hottest store is not preferred", hot_region, "_order", lambda _: lambda *_: (), "hot-write-2"),
    Mutant("leaders are counted by stores", hot_loads, "TRANSFER_LEADER", lambda _: "",
           "hot-write-not-bound-by-region-limit"),
    Mutant("a store that is up can be buried", store_states, "_is_up", lambda _: lambda _: False, "store-bury-up"),
)  # fmt: skip


@cache
def lines() -> dict[str, bytes]:
    """The records, by what mutants call them."""
    oracle = gzip.decompress((GOLDEN / "oracle.jsonl.gz").read_bytes()).splitlines()
    scenarios = (GOLDEN / "scenarios.jsonl").read_bytes().splitlines()
    return {f"oracle {n}": line for n, line in enumerate(oracle, 1)} | {json.loads(s)["id"]: s for s in scenarios}


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda m: m.name)
def test_a_planted_fault_is_caught(mutant: Mutant, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A record with which we agree is decided otherwise, or cannot be decided, with the fault."""
    path = tmp_path / "record.jsonl"
    path.write_bytes(lines()[mutant.caught_by])
    assert replay(path).agree == 1
    changed = mutant.value(getattr(mutant.module, mutant.attribute))
    monkeypatch.setattr(mutant.module, mutant.attribute, changed)
    kept = (location._apart, location._isolation, rules._match)
    for one in kept:
        one.cache_clear()
    try:
        assert replay(path).agree == 0
    finally:
        for one in kept:  # nothing that a fault made is kept for the tests that follow
            one.cache_clear()

"""Faults planted in the core, each of which the records catch: this is how we know that a replay can fail."""

from __future__ import annotations

import gzip
from collections.abc import Callable
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

import pytest

from ticdc_lab.simulate.pd import (
    balance,
    balance_leader,
    balance_region,
    builder,
    commands,
    filters,
    fit,
    lifecycle,
    limits,
    location,
    merge_checker,
    orphans,
    queue_of_stores,
    replica_checker,
    rule_checker,
    scores,
    steps,
    strategy,
)
from ticdc_lab.simulate.pd.replay import Replayed, replay

GOLDEN = Path(__file__).parents[2] / "data" / "golden" / "pd"


MOST = 75
"""Records of a kind that are judged, to save time; as many as it takes to notice every fault."""


class Mutant(NamedTuple):
    """A fault: another value for an attribute of a module; ``kinds`` are the records that should notice."""

    name: str
    module: ModuleType | type
    attribute: str
    value: Callable[[Any], Any]
    kinds: tuple[str, ...]


def without(role: str, *names: str) -> Callable[[Any], Any]:
    """The condition table without some conditions of a role."""
    return lambda table: {**table, role: tuple(c for c in table[role] if c.name not in names)}


MUTANTS = (
    Mutant("a missing label is a place of its own", location, "label", lambda f: lambda s, k: f(s, k) or str(s.id),
           ("distinct_score",)),
    Mutant("a difference weighs 10, not 100", location, "BASE", lambda _: 10, ("distinct_score",)),
    Mutant("a weight below 1e-6 is taken as it is", scores, "MIN_WEIGHT", lambda _: 1e-9, ("store_score",)),
    Mutant("nearly full begins at 20 GiB", scores, "_FLOOR_GIB", lambda _: 20.0, ("store_score",)),
    Mutant("foreign files are forgotten", scores, "_available_after", lambda _: lambda a, *_: a, ("store_score",)),
    Mutant("a busy store takes peers", filters, "TABLE", without("region-target", "busy"), ("rule_checker",)),
    Mutant("a down store takes peers", filters, "TABLE", without("region-target", "down", "disconnected"),
           ("rule_checker",)),
    Mutant("a leaving store takes peers", filters, "TABLE", without("region-target", "removing"), ("replica_checker",)),
    Mutant("a store drowning in snapshots takes peers", filters, "TABLE", without("region-target", "snapshots"),
           ("replica-checker",)),
    Mutant("pending peers do not matter", filters, "TABLE", without("region-target", "pending-peers"),
           ("balance_region",)),
    Mutant("a busy store gives peers", filters, "TABLE", without("region-source", "busy"), ("balance_region",)),
    Mutant("a leaving store takes leaders", filters, "TABLE", without("leader-target", "removing"),
           ("balance_leader",)),
    Mutant("a silent store gives leaders", filters, "TABLE", without("leader-source", "disconnected", "down"),
           ("balance_leader",)),
    Mutant("isolation-level is ignored", strategy, "isolated", lambda _: lambda *_: filters.excluding(()),
           ("rule_checker",)),
    Mutant("the fullest store is chosen", strategy, "region_score", lambda f: lambda *a: -f(*a), ("rule_checker",)),
    Mutant("the best isolation is not kept", strategy, "distinct_score", lambda _: lambda *_: 0, ("replica_checker",)),
    Mutant("balance lowers isolation", balance_region, "_safeguard", lambda _: lambda *_: filters.excluding(()),
           ("balance_region",)),
    Mutant("no tolerance", balance, "tolerance", lambda _: lambda *_: 0, ("balance_region",)),
    Mutant("leaders move over a gap of two", balance, "_LEADER_RATIO", lambda _: 1.0, ("balance_leader",)),
    Mutant("influence is not amplified", balance, "_AMPLIFICATION", lambda _: 0, ("balance-region",)),
    Mutant("a region with a down peer is moved", balance_region, "unfit", lambda _: lambda *_, **__: "",
           ("balance_region",)),
    Mutant("leaders leave first", balance_region, "ORDER", lambda o: tuple(reversed(o)), ("balance_region",)),
    Mutant("of equal stores the older one is first", queue_of_stores.StoreQueue, "before",
           lambda f: lambda q, a, x, b, y: f(q, b, 0, a, 0) if x == y else f(q, a, x, b, y), ("balance_leader",)),
    Mutant("regions with a pending peer lose their leader", balance_leader, "may_transfer", lambda _: lambda r: True,
           ("balance_leader",)),
    Mutant("the sick are fitted first", fit, "_sickness", lambda f: lambda *a: -f(*a), ("rule_checker",)),
    Mutant("constraints are ignored", fit, "matches", lambda _: lambda store, _: store is not None, ("placement",)),
    Mutant("orphans go first", orphans, "_first_sick", lambda _: lambda *_: (False, None), ("rule-checker",)),
    Mutant("down peers are left", replica_checker, "_down", lambda _: lambda *_: (), ("replica_checker",)),
    Mutant("extra peers are left", replica_checker, "_extra", lambda _: lambda *_: (), ("replica_checker",)),
    Mutant("a better location is left", rule_checker, "store_to_better", lambda _: lambda *_: strategy.NOTHING,
           ("rule_checker",)),
    Mutant("any peer may lead", builder.Plan, "may_lead", lambda _: lambda *_: True, ("balance_region",)),
    Mutant("the farthest peer is replaced first", steps, "matched_labels", lambda f: lambda *a: -f(*a), ()),
    Mutant("the larger neighbour is taken", merge_checker, "_unfit",
           lambda f: lambda c, r, n, s: f(c, r, n, s) if n is None or n.size < 100 else "large", ("merge",)),
    Mutant("an operator never expires", lifecycle, "EXPIRES_AFTER_S", lambda _: 1e9, ("operator",)),
    Mutant("small regions cost as much as large ones", limits, "SMALL_COST", lambda _: 1000, ("store-limit",)),
    Mutant("a store that is up can be buried", commands, "_is_up", lambda _: lambda _: False, ("offline",)),
)  # fmt: skip
CAUGHT_ELSEWHERE = {"the farthest peer is replaced first": "no record replaces two peers at once: test_builder.py"}


@cache
def records(kind: str) -> bytes:
    """The lines of a kind or an area."""
    lines = gzip.decompress((GOLDEN / "oracle.jsonl.gz").read_bytes()) + (GOLDEN / "scenarios.jsonl").read_bytes()
    named = (f'"kind":"{kind}"'.encode(), f'"area": "{kind}"'.encode())
    found = [line for line in lines.splitlines() if any(n in line for n in named)]
    return b"\n".join(found[:MOST])


def judged(kinds: tuple[str, ...], folder: Path) -> Replayed:
    """Judge the records of some kinds."""
    path = folder / "some.jsonl"
    path.write_bytes(b"\n".join(records(k) for k in kinds))
    return replay(path)


@pytest.mark.parametrize("mutant", [m for m in MUTANTS if m.name not in CAUGHT_ELSEWHERE], ids=lambda m: m.name)
def test_a_planted_fault_is_caught(mutant: Mutant, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With the fault at least one record disagrees; without it none does."""
    changed = mutant.value(getattr(mutant.module, mutant.attribute))
    monkeypatch.setattr(mutant.module, mutant.attribute, changed)
    assert [r["line"] for r in judged(mutant.kinds, tmp_path).records if r["agrees"] is False]

"""Placement rules: how many peers, in which role, on which stores; and the rule that the replication settings make."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from ticdc_lab.simulate.pd.config import Config
from ticdc_lab.simulate.pd.stores import Store, label

ANY_VOTER, AS_LEADER, AS_FOLLOWER, AS_LEARNER = "voter", "leader", "follower", "learner"
"""Roles a rule may ask for; a voter may lead or follow."""

_EXCLUSIVE = ("engine", "exclusive")


class Constraint(NamedTuple):
    """A condition on one label: ``in``, ``notIn``, ``exists`` or ``notExists``."""

    key: str
    op: str
    values: tuple[str, ...] = ()


class Rule(NamedTuple):
    """A placement rule.

    ``group`` and ``id`` name it. Rules apply in the order of groups, by ``group_index``, and within one by
    ``position``, PD's ``index``; one with ``override`` puts all before it in its group out of force, a group with
    ``group_override`` all groups before it.
    """

    role: str
    replicas: int
    constraints: tuple[Constraint, ...] = ()
    location_labels: tuple[str, ...] = ()
    isolation_level: str = ""
    witness: bool = False
    id: str = "default"
    start_key: str = ""
    end_key: str = ""
    group: str = "pd"
    position: int = 0
    override: bool = False
    group_index: int = 0
    group_override: bool = False


def default_rules(config: Config) -> tuple[Rule, ...]:
    """Give the one rule that stands for ``max-replicas``, ``location-labels`` and ``isolation-level``."""
    return (Rule(ANY_VOTER, config.max_replicas, (), config.location_labels, config.isolation_level),)


def in_order(rules: Iterable[Rule]) -> tuple[Rule, ...]:
    """Sort rules as PD applies them."""
    return tuple(sorted(rules, key=lambda r: (r.group_index, r.group, r.position, r.id)))


def with_rules(rules: Iterable[Rule], saved: Iterable[Rule]) -> tuple[Rule, ...]:
    """Give rules after others were saved: one of the same name is replaced, with 0 replicas it is deleted."""
    found = {(r.group, r.id): r for r in rules} | {(r.group, r.id): r for r in saved}
    return in_order(r for r in found.values() if r.replicas > 0)


def in_force(rules: Sequence[Rule]) -> tuple[Rule, ...]:
    """Keep those of the rules of one range, in their order, that no later one overrides."""
    if not any(r.override or r.group_override for r in rules):
        return tuple(rules)
    kept: list[Rule] = []
    for rule in rules:
        if rule.group_override:
            kept = [r for r in kept if r.group == rule.group]
        if rule.override:
            kept = [r for r in kept if r.group != rule.group]
        kept.append(rule)
    return tuple(kept)


def unusable(rules: Sequence[Rule]) -> str:
    """Give why PD refuses rules, "" where it does not: each range needs a voter, and one leader at most."""
    for start in sorted({"", *(k for r in rules for k in (r.start_key, r.end_key))}):
        covering = in_force([r for r in rules if r.start_key <= start and (not r.end_key or start < r.end_key)])
        leaders = sum(r.replicas for r in covering if r.role == AS_LEADER)
        if leaders > 1:
            return "multiple leader replicas"
        if not leaders and not any(r.role == ANY_VOTER for r in covering):
            return "needs at least one leader or voter"
    return ""


def meets(store: Store, constraint: Constraint) -> bool:
    """Whether a store meets a condition; a missing label is in no list."""
    value = label(store, constraint.key)
    match constraint.op:
        case "in":
            return value != "" and value in constraint.values
        case "notIn":
            return value == "" or value not in constraint.values
        case "exists":
            return value != ""
        case _:
            return value == ""


def matches(store: Store | None, constraints: Iterable[Constraint]) -> bool:
    """Whether a store may hold peers of a rule with these conditions.

    A store with an exclusive label (``engine``, ``exclusive``, ``$..``) is only for rules that name the label.
    """
    if store is None:
        return False
    asked = tuple(constraints)
    named = {c.key for c in asked}
    if any((key.startswith("$") or key in _EXCLUSIVE) and key not in named for key in store.labels):
        return False
    return all(meets(store, c) for c in asked)

"""Placement rules: how many peers, in which role, on which stores; and the rule that the replication settings make."""

from __future__ import annotations

from collections.abc import Iterable
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
    """A placement rule."""

    role: str
    replicas: int
    constraints: tuple[Constraint, ...] = ()
    location_labels: tuple[str, ...] = ()
    isolation_level: str = ""
    witness: bool = False
    id: str = "default"
    start_key: str = ""
    end_key: str = ""


def default_rules(config: Config) -> tuple[Rule, ...]:
    """Give the one rule that stands for ``max-replicas``, ``location-labels`` and ``isolation-level``."""
    return (Rule(ANY_VOTER, config.max_replicas, (), config.location_labels, config.isolation_level),)


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

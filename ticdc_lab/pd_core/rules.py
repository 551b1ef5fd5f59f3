"""Placement rules: how many peers, in which role, on which stores; and which peer of a region serves which of them.

The search for the best fit is PD's (pkg/schedule/placement/fit.go).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import combinations
from typing import NamedTuple

from ticdc_lab.pd_core.config import Config
from ticdc_lab.pd_core.location import isolation_score
from ticdc_lab.pd_core.regions import Peer, Region, is_learner
from ticdc_lab.pd_core.stores import Store, StoreLabels

ANY_VOTER, AS_LEADER, AS_FOLLOWER, AS_LEARNER = RULE_ROLES = ("voter", "leader", "follower", "learner")
CONSTRAINT_OPS = ("in", "notIn", "exists", "notExists")
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
    """Give the one rule that replaces ``max-replicas``, ``location-labels`` and ``isolation-level``."""
    return (Rule(ANY_VOTER, config.max_replicas, (), config.location_labels, config.isolation_level),)


def in_order(rules: Iterable[Rule]) -> tuple[Rule, ...]:
    """Sort rules as PD applies them."""
    return tuple(sorted(rules, key=lambda r: (r.group_index, r.group, r.position, r.id)))


def with_rules(rules: Iterable[Rule], saved: Iterable[Rule]) -> tuple[Rule, ...]:
    """Give rules after others were saved: one of the same name is replaced, with 0 replicas it is deleted."""
    found = {(r.group, r.id): r for r in rules} | {(r.group, r.id): r for r in saved}
    return in_order(r for r in found.values() if r.replicas > 0)


def in_force(rules: Sequence[Rule]) -> tuple[Rule, ...]:
    """Keep the rules of one range, in their order, that no later one overrides."""
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


def meets(labels: StoreLabels, constraint: Constraint) -> bool:
    """Whether the labels of a store meet a condition; a missing label is in no list."""
    value = labels.get(constraint.key.lower(), "")
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
    return store is not None and _match(store.labels, tuple(constraints))


@lru_cache(1 << 16)
def _match(labels: StoreLabels, constraints: tuple[Constraint, ...]) -> bool:
    named = {c.key for c in constraints}
    if any((key.startswith("$") or key in _EXCLUSIVE) and key not in named for key in labels):
        return False
    return all(meets(labels, c) for c in constraints)


class RuleFit(NamedTuple):
    """The peers that serve one rule, the ones in another role than it requires, and how well they are spread."""

    rule: Rule
    peers: tuple[Peer, ...]
    misfits: tuple[Peer, ...]
    unhealthy: int
    isolation: int
    witnesses: int

    @property
    def satisfied(self) -> bool:
        """As many peers as the rule asks for, all in its role."""
        return len(self.peers) == self.rule.replicas and not self.misfits

    @property
    def rank(self) -> tuple[int, int, int, int, int]:
        """The order of fits: more peers, fewer unhealthy, fewer in a wrong role, further apart."""
        return len(self.peers), -self.unhealthy, -len(self.misfits), self.isolation, -self.witnesses


class RegionFit(NamedTuple):
    """The fit of a region: one entry a rule, and the peers that no rule wants."""

    rules: tuple[RuleFit, ...]
    orphans: tuple[Peer, ...]
    stores: Mapping[int, Store]

    @property
    def satisfied(self) -> bool:
        """Every rule is satisfied and no peer is too many."""
        return bool(self.rules) and all(r.satisfied for r in self.rules) and not self.orphans

    def of_store(self, store: int) -> RuleFit | None:
        """The entry whose rule the peer on a store serves."""
        return next((r for r in self.rules if any(p.store == store for p in r.peers)), None)

    def allows(self, source: int, target: Store) -> bool:
        """Whether the peer on ``source`` may move to ``target``: its rule's conditions hold, isolation is no worse."""
        fit = self.of_store(source)
        if fit is None:
            return False
        if any(p.store == target.id for p in fit.peers):
            return True
        there = self.of_store(target.id)
        if there is not None and there.rule.role == fit.rule.role:
            return True
        if not matches(target, fit.rule.constraints):
            return False
        moved = [target if p.store == source else self.stores[p.store] for p in fit.peers]
        return fit.isolation <= isolation_score(moved, fit.rule.location_labels)


def fit_region(
    region: Region, rules: Sequence[Rule], stores: Mapping[int, Store], *, witness: bool = False,
    max_down_s: float = 1800.0,
) -> RegionFit:  # fmt: skip
    """Fit a region's peers to rules, the first rule first.

    Healthy peers come before pending and down ones, then the lower id; of equally good sets the first wins. Where no
    rule has location labels the first set that satisfies them all is taken, as PD does.
    """
    search = _Search(region, rules, stores, witness, max_down_s)
    search.fit_rule(0, frozenset())
    found = tuple(f for f in search.best if f is not None)
    used = {p.store for f in found for p in f.peers}
    return RegionFit(found, tuple(p for p in search.peers if p.store not in used), stores)


class _Search:
    """The search: ``best`` is replaced from the left as better sets are found."""

    def __init__(
        self, region: Region, rules: Sequence[Rule], stores: Mapping[int, Store], witness: bool, max_down_s: float
    ) -> None:
        self.region, self.rules, self.stores = region, rules, stores
        self.witness, self.max_down_s = witness, max_down_s
        self.peers = sorted(region.peers, key=lambda p: (_sickness(region, p), p.id))
        self.best: list[RuleFit | None] = [None] * len(rules)
        self.spread = any(r.location_labels for r in rules)
        self.seen_orphans = self.over = False

    def fit_rule(self, index: int, used: frozenset[int]) -> bool:
        """Try every set of unused peers for a rule and those after it; True where the best got better."""
        if self.is_over():
            return False
        if index == len(self.rules):
            satisfied = all(f is not None and f.satisfied for f in self.best)
            self.over = bool(self.rules) and satisfied and not self.spread and not self.seen_orphans
            return False
        better = False
        for chosen in _choices(self._candidates(self.rules[index], used), self.rules[index].replicas):
            better |= self._compare(index, self._fit(self.rules[index], chosen), used)
            if self.is_over():
                break
        return better

    def is_over(self) -> bool:
        """Whether a set was found that is good enough."""
        return self.over

    def _compare(self, index: int, fit: RuleFit, used: frozenset[int]) -> bool:
        best, now_used = self.best[index], used | {p.store for p in fit.peers}
        if best is None or fit.rank > best.rank:
            self.best[index:] = [fit] + [None] * (len(self.rules) - index - 1)
            self.fit_rule(index + 1, now_used)
            if index == len(self.rules) - 1:
                self.seen_orphans = len(now_used) < len(self.peers)
            return True
        if fit.rank == best.rank and self.fit_rule(index + 1, now_used):
            self.best[index] = fit
            return True
        return False

    def _candidates(self, rule: Rule, used: frozenset[int]) -> list[Peer]:
        no_leader = self.witness and rule.witness
        return [
            p
            for p in self.peers
            if p.store not in used
            and matches(self.stores.get(p.store), rule.constraints)
            and not (no_leader and p.store == self.region.leader)
        ]

    def _fit(self, rule: Rule, peers: tuple[Peer, ...]) -> RuleFit:
        stores = [self.stores[p.store] for p in peers]
        misfits = tuple(p for p in peers if not self._in_role(rule, p))
        unhealthy = 0 if self.witness else sum(self._down_too_long(p) for p in peers)
        witnesses = sum(s.witness_count for s in stores) if self.witness and rule.witness else 0
        return RuleFit(rule, peers, misfits, unhealthy, isolation_score(stores, rule.location_labels), witnesses)

    def _in_role(self, rule: Rule, peer: Peer) -> bool:
        leads = peer.store == self.region.leader
        if peer.witness != (self.witness and rule.witness):
            return False
        if rule.role == AS_LEADER:
            return leads
        if rule.role == AS_LEARNER:
            return is_learner(peer)
        return not is_learner(peer) and not (leads and rule.role == AS_FOLLOWER)

    def _down_too_long(self, peer: Peer) -> bool:
        silent = self.stores[peer.store].heartbeat_age_s
        reported = peer.store in self.region.down and self.region.down_seconds > self.max_down_s
        return silent > self.max_down_s or reported


def _sickness(region: Region, peer: Peer) -> int:
    return 2 if peer.store in region.down else 1 if peer.store in region.pending else 0


def _choices(candidates: list[Peer], count: int) -> Iterator[tuple[Peer, ...]]:
    """Sets of peers in PD's order: as binary numbers over the candidates, counting up."""
    picks = combinations(range(len(candidates)), min(count, len(candidates)))
    for chosen in sorted(picks, key=lambda c: sum(1 << i for i in c)):
        yield tuple(candidates[i] for i in chosen)

"""What forbids a store to be the source or the target of a move, and why; `pd_notes.md` section 5."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from typing import NamedTuple

from ticdc_lab.pd_core.config import Config
from ticdc_lab.pd_core.explained import Notes
from ticdc_lab.pd_core.location import distinct_score
from ticdc_lab.pd_core.regions import Region
from ticdc_lab.pd_core.rules import Constraint, RegionFit, matches
from ticdc_lab.pd_core.stores import REMOVED, REMOVING, Store, is_disconnected, is_low_on_space, label

SOURCE, TARGET = "source", "target"
LEADER_SOURCE, REGION_SOURCE = "leader-source", "region-source"
LEADER_TARGET, REGION_TARGET, FAILOVER_TARGET = "leader-target", "region-target", "failover-target"


class Condition(NamedTuple):
    """A state of a store that forbids something; ``temporary`` where it is expected to pass soon."""

    name: str
    temporary: bool
    holds: Callable[[Store, Config], bool]
    why: str


CONDITIONS = (
    Condition("removed", False, lambda s, _: s.state == REMOVED, "the store is a tombstone"),
    Condition("removing", False, lambda s, _: s.state == REMOVING, "the store is being taken offline"),
    Condition("down", False, lambda s, c: s.heartbeat_age_s > c.max_store_down_time_s, "the store is down"),
    Condition("leader-out-paused", False, lambda s, _: s.leader_out_paused, "leaders may not leave the store"),
    Condition("leader-in-paused", False, lambda s, _: s.leader_in_paused, "leaders may not enter the store"),
    Condition("evicted", False, lambda s, _: s.evicted, "leaders are evicted: the store is slow or stopping"),
    Condition("disconnected", True, lambda s, _: is_disconnected(s), "no heartbeat for more than 20 s"),
    Condition("busy", True, lambda s, _: s.busy, "the store says that it is busy"),
    Condition("remove-limit", True, lambda s, _: not s.remove_open, "its remove-peer limit is used up"),
    Condition("add-limit", True, lambda s, _: not s.add_open, "its add-peer limit is used up"),
    Condition(
        "snapshots", True,
        lambda s, c: max(s.sending_snapshots, s.receiving_snapshots) > c.max_snapshot_count,
        "more snapshots are under way than max-snapshot-count",
    ),
    Condition(
        "pending-peers", True, lambda s, c: 0 < c.max_pending_peer_count < s.pending_peers,
        "more peers are pending than max-pending-peer-count",
    ),
    Condition(
        "reject-leader", False, lambda s, c: any(label(s, k) == v for k, v in c.reject_leader),
        "a label of the store rejects leaders",
    ),
)  # fmt: skip

_FORBIDS = {
    LEADER_SOURCE: ("removed", "down", "leader-out-paused", "disconnected"),
    REGION_SOURCE: ("busy", "remove-limit", "snapshots"),
    LEADER_TARGET: (
        "removed", "removing", "down", "leader-in-paused", "evicted", "disconnected", "busy", "reject-leader",
    ),
    REGION_TARGET: ("removed", "removing", "down", "disconnected", "busy", "add-limit", "snapshots", "pending-peers"),
    FAILOVER_TARGET: ("removed", "removing", "down", "disconnected", "busy"),
}  # fmt: skip
_BY_NAME = {c.name: c for c in CONDITIONS}
TABLE = {role: tuple(_BY_NAME[name] for name in names) for role, names in _FORBIDS.items()}
"""The condition table: what forbids each role, in the order in which PD asks."""


def state_forbids(store: Store, role: str, config: Config, *, temporary_too: bool = True) -> Condition | None:
    """Give the first state of a store that forbids a role, None for none."""
    for condition in TABLE[role]:
        if (temporary_too or not condition.temporary) and condition.holds(store, config):
            return condition
    return None


class Filter(NamedTuple):
    """A named test of stores: gives the reason for a refusal, "" for none."""

    name: str
    refuses: Callable[[Store], str]


def keep(stores: Iterable[Store], filters: Sequence[Filter], notes: Notes, role: str = TARGET) -> list[Store]:
    """Keep the stores that every filter lets through; the first refusal of each other one is noted."""
    kept = []
    for store in stores:
        for f in filters:
            why = f.refuses(store)
            if why:
                notes.reject(store.id, role, f.name, why)
                break
        else:
            kept.append(store)
    return kept


def by_state(role: str, config: Config, *, temporary_too: bool = True) -> Filter:
    """Refuse stores whose state forbids a role."""

    def refuses(store: Store) -> str:
        condition = state_forbids(store, role, config, temporary_too=temporary_too)
        return "" if condition is None else f"{condition.name}: {condition.why}"

    return Filter("state", refuses)


def excluding(store_ids: Collection[int], why: str = "the region has a peer there") -> Filter:
    return Filter("excluded", lambda s: why if s.id in store_ids else "")


def with_space(config: Config) -> Filter:
    """Refuse stores that are low on space."""
    return Filter("storage-threshold", lambda s: "low on space" if is_low_on_space(s, config.low_space_ratio) else "")


_SPECIAL = ("hotRegion", "reserved")


def no_special_use(config: Config, role: str = TARGET) -> Filter:
    """Refuse stores with a ``specialUse``; one that is low on space may still be a source."""

    def refuses(store: Store) -> str:
        special = label(store, "specialUse") in _SPECIAL
        allowed = role == SOURCE and is_low_on_space(store, config.low_space_ratio)
        return "kept for a special use" if special and not allowed else ""

    return Filter("special-use", refuses)


def with_labels(constraints: tuple[Constraint, ...]) -> Filter:
    """Refuse stores that do not meet a rule's conditions."""
    return Filter("label-constraints", lambda s: "" if matches(s, constraints) else "its labels do not meet the rule")


def isolated(level: str, labels: Sequence[str], others: Sequence[Store]) -> Filter:
    """Refuse stores that share the isolation level, and all labels before it, with another peer's store."""
    depth = labels.index(level) + 1 if level in labels else 1
    taken = [tuple(label(s, key) for key in labels[:depth]) for s in others]

    def refuses(store: Store) -> str:
        if not taken:
            return "no other peer to be isolated from"
        place = tuple(label(store, key) for key in labels[:depth])
        return f"isolation-level {level}: another peer is at {'/'.join(place)}" if place in taken else ""

    return Filter("isolation", refuses)


def safe_location(labels: Sequence[str], stores: Sequence[Store], source: Store, *, improve: bool = False) -> Filter:
    """Refuse stores that would isolate the region's peers worse than ``source`` does, or, to improve, no better."""
    others = [s for s in stores if s.id != source.id]
    now = distinct_score(labels, others, source)

    def refuses(store: Store) -> str:
        then = distinct_score(labels, others, store)
        if then > now or (then == now and not improve):
            return ""
        return f"isolation score would be {then}, is {now}"

    return Filter("distinct-score", refuses)


def fits_rule(fit: RegionFit, source: int) -> Filter:
    """Refuse stores on which the peer of ``source`` would break its rule, or be isolated worse."""
    return Filter("rule-fit", lambda s: "" if fit.allows(source, s) else "it breaks the rule or its isolation")


def fits_leader(fit: RegionFit, region: Region, source: int, *, may_move: bool = False) -> Filter:
    """Refuse stores that may not lead in place of ``source``; those without a peer only where one may be moved."""

    def refuses(store: Store) -> str:
        peer = region.peer_on(store.id)
        if (peer is None and not may_move) or (peer is not None and peer.witness):
            return "no peer there that could lead"
        return "" if fit.allows(source, store) else "its rule does not let it lead"

    return Filter("rule-leader", refuses)

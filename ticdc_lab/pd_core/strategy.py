"""Where to add a peer and which to remove: the choice both checkers make (pkg/schedule/checker/replica_strategy.go)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from ticdc_lab.pd_core.cluster import Cluster
from ticdc_lab.pd_core.explained import Notes, Scored
from ticdc_lab.pd_core.filters import (
    FAILOVER_TARGET,
    REGION_SOURCE,
    REGION_TARGET,
    SOURCE,
    Filter,
    by_state,
    excluding,
    isolated,
    keep,
    no_special_use,
    safe_location,
    with_labels,
    with_space,
)
from ticdc_lab.pd_core.location import distinct_score
from ticdc_lab.pd_core.regions import Region
from ticdc_lab.pd_core.rules import Constraint
from ticdc_lab.pd_core.scores import region_score
from ticdc_lab.pd_core.stores import Store


class Strategy(NamedTuple):
    """How stores are chosen for one region under one rule.

    ``constraints`` is None where no rule is behind the choice (the replica checker). ``failover``: a witness
    suffices, so limits and snapshots do not matter.
    """

    cluster: Cluster
    region: Region
    labels: tuple[str, ...]
    isolation_level: str
    constraints: tuple[Constraint, ...] | None = None
    failover: bool = False


class StoreChoice(NamedTuple):
    """Equally good stores, none where nothing is left; ``waits`` if only temporary states prevent it."""

    stores: tuple[int, ...]
    waits: bool = False


NOTHING = StoreChoice(())


NO_STORE = "no store may take a peer"


def store_to_add(s: Strategy, beside: Sequence[Store], notes: Notes, extra: Sequence[Filter] = ()) -> StoreChoice:
    """Choose the store of a new peer beside the others' stores.

    First by what lasts: no peer yet, space, state, isolation, labels; the best isolation wins. Then by what passes:
    if all winners are in temporary trouble nothing is chosen now, rather than a worse place. The lowest region score
    decides.
    """
    config, stores = s.cluster.config, list(s.cluster.stores.values())
    filters = [
        excluding(s.region.stores),
        with_space(config),
        no_special_use(config),
        by_state(REGION_TARGET, config, temporary_too=False),
    ]
    if s.constraints is not None:
        filters.append(with_labels(s.constraints))  # PD checks this last: another engine is the better reason
    if s.labels and s.isolation_level:
        filters.append(isolated(s.isolation_level, s.labels, beside))
    filters.extend(extra)
    notes.look_at([x.id for x in stores])
    lasting = keep(stores, filters, notes)
    best = _best("isolation", lasting, lambda x: distinct_score(s.labels, beside, x), max, notes)
    if not best:
        notes.said.append(NO_STORE)
        return NOTHING
    now = keep(best, [by_state(FAILOVER_TARGET if s.failover else REGION_TARGET, config)], notes)
    if not now:
        notes.said.append("every best store is in temporary trouble: it is tried again soon")
        return StoreChoice((), waits=True)
    return _chosen(_best("region score", now, lambda x: region_score(x, config), min, notes))


def store_to_fix(s: Strategy, beside: Sequence[Store], old: int, notes: Notes) -> StoreChoice:
    """Choose the store that replaces a lost peer's: the location may become worse."""
    if not beside:
        return NOTHING
    others = [x for x in beside if x.id != old]
    return store_to_add(s, others if len(beside) > 1 else beside, notes)


def store_to_improve(s: Strategy, beside: Sequence[Store], old: int, notes: Notes) -> StoreChoice:
    """Choose a store that isolates a region strictly better than ``old`` does."""
    if not beside or old not in s.cluster.stores:
        return NOTHING
    source = s.cluster.stores[old]
    others = [x for x in beside if x.id != old]
    extra = [safe_location(s.labels, beside, source, improve=True)]
    if s.labels and s.isolation_level:
        extra.append(isolated(s.isolation_level, s.labels, others))
    said = len(notes.said)
    found = store_to_add(s, others, notes, extra)
    if not found.stores and not found.waits:
        better = f"no store would isolate the region better than store {old} does"
        notes.said[said:] = [better if s.labels else "there are no location labels"] if not said else []
    return found


def store_to_remove(s: Strategy, beside: Sequence[Store], notes: Notes) -> StoreChoice:
    """Choose the store whose peer is worth least: the worst isolation, then the highest region score."""
    config = s.cluster.config
    able = keep(beside, [by_state(REGION_SOURCE, config)], notes, SOURCE)
    worst = _best("isolation", able, lambda x: distinct_score(s.labels, beside, x), min, notes)
    return _chosen(_best("region score", worst, lambda x: region_score(x, config), max, notes))


def store_to_better(s: Strategy, beside: Sequence[Store], notes: Notes) -> StoreChoice:
    """Choose the store that a better location would replace: the worst isolation, in any state.

    Where all of the worst are in temporary trouble they wait: no better isolated peer moves instead.
    """
    config = s.cluster.config
    worst = _best("isolation", beside, lambda x: distinct_score(s.labels, beside, x), min, notes)
    able = keep(worst, [by_state(REGION_SOURCE, config)], notes, SOURCE)
    if worst and not able:
        notes.said.append("every worst placed peer is on a store in temporary trouble: it is tried again soon")
        return StoreChoice((), waits=True)
    return _chosen(_best("region score", able, lambda x: region_score(x, config), max, notes))


def _best(
    what: str, stores: Sequence[Store], key: Callable[[Store], float], which: Callable[[list[float]], float],
    notes: Notes,
) -> list[Store]:  # fmt: skip
    """Keep the stores with the highest or lowest key."""
    keys = [key(s) for s in stores]
    best = which(keys) if keys else 0.0
    notes.scored.extend(Scored(what, s.id, k, k == best) for s, k in zip(stores, keys, strict=True))
    return [s for s, k in zip(stores, keys, strict=True) if k == best]


def _chosen(stores: Sequence[Store]) -> StoreChoice:
    return StoreChoice(tuple(s.id for s in stores))

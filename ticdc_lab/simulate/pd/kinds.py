"""Regions of one kind: what holds for one of them under its rules holds for all, so that one is checked."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Sequence
from typing import NamedTuple

import numpy as np
import pyarrow.compute as pc
from numpy.typing import NDArray

from ticdc_lab.simulate.pd.cluster import Cluster
from ticdc_lab.simulate.pd.filters import FAILOVER_TARGET, LEADER_TARGET, REGION_TARGET, TABLE
from ticdc_lab.simulate.pd.region_columns import RegionColumns
from ticdc_lab.simulate.pd.rules import matches
from ticdc_lab.simulate.pd.stores import Store, is_low_on_space, label


class Kinds(NamedTuple):
    """``of`` gives each region's kind, ``example`` the place of a region of each."""

    of: NDArray[np.int64]
    example: NDArray[np.int64]


def kinds(cluster: Cluster, c: RegionColumns) -> Kinds:
    """Divide regions by what placement rules and places can tell apart.

    Regions between the same borders of rules are of one kind where their peers, in the order of their ids, have the
    same roles and troubles and are on stores that differ in nothing but how full they are.
    """
    classes = np.append(_classes(cluster, [cluster.stores.get(i) for i in c.stores]), -1)
    order = np.argsort(np.where(c.peers >= 0, c.peer_id, np.iinfo(np.int64).max), axis=1, kind="stable")
    leads = (c.peers == c.leader[:, None]) & (c.peers >= 0)
    facts = [classes[c.peers], c.role, leads, c.witness, c.down, c.pending]
    sorted_facts = [np.take_along_axis(f, order, axis=1).T for f in facts]
    like = np.stack([np.asarray(f, dtype=np.int64) for f in (*_between(cluster, c), *np.vstack(sorted_facts))], axis=1)
    _, example, of = np.unique(_packed(like), return_index=True, return_inverse=True)
    return Kinds(of.reshape(-1), example)


def _packed(like: NDArray[np.int64]) -> NDArray[np.int64]:
    """Number rows so that equal rows have equal numbers, column by column: far quicker than comparing whole rows."""
    packed = np.zeros(len(like), dtype=np.int64)
    for column in like.T:
        _, values = np.unique(column, return_inverse=True)
        _, packed = np.unique(packed * (int(values.max()) + 1) + values, return_inverse=True)
    return packed


def _between(cluster: Cluster, c: RegionColumns) -> list[NDArray[np.bool_]]:
    """Say on which side of each border of a rule a region begins and ends."""
    borders = sorted({k for r in cluster.rules for k in (r.start_key, r.end_key) if k})
    begins = [np.asarray(pc.greater_equal(c.start_key, b)) for b in borders]
    ends = [np.asarray(pc.less_equal(c.end_key, b)) & np.asarray(pc.not_equal(c.end_key, "")) for b in borders]
    return [*begins, *ends]


def _classes(cluster: Cluster, stores: Sequence[Store | None]) -> NDArray[np.int64]:
    """Number stores so that those with one number can stand for each other."""
    known = [s for _, s in sorted(cluster.stores.items())]
    places = [_places(known, r.location_labels) for r in cluster.rules]
    seen: dict[Hashable, int] = {}
    numbers = []
    for i, store in enumerate(stores):
        facts: Hashable = ("unknown", i)
        if store is not None:
            facts = (_state(cluster, store), *(p[store.id] for p in places))
        numbers.append(seen.setdefault(facts, len(seen)))
    return np.array(numbers, dtype=np.int64)


def _state(cluster: Cluster, store: Store) -> Hashable:
    roles = (REGION_TARGET, LEADER_TARGET, FAILOVER_TARGET)
    states = tuple(c.holds(store, cluster.config) for role in roles for c in TABLE[role])
    serves = tuple(matches(store, r.constraints) for r in cluster.rules)
    special = label(store, "specialUse"), label(store, "engine"), store.witness_count
    return store.state, states, serves, special, is_low_on_space(store, cluster.config.low_space_ratio)


def _places(stores: Sequence[Store], labels: Sequence[str]) -> dict[int, Hashable]:
    """Give the places of stores; one that a store has for itself needs no name, since nothing else can be there."""
    paths = {s.id: tuple(label(s, key) for key in labels) for s in stores}
    if any("" in path for path in paths.values()):
        return dict(paths)  # a missing label counts as the same place, so that names matter
    shared = Counter(path[: n + 1] for path in paths.values() for n in range(len(labels)))
    return {
        i: tuple(value if shared[path[: n + 1]] > 1 else None for n, value in enumerate(path))
        for i, path in paths.items()
    }

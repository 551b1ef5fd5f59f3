"""Stores as columns, kept from round to round: only those that PD heard something new of are written again."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ticdc_lab.simulate.pd.arrays import Numbers, StoreColumns, columns
from ticdc_lab.simulate.pd.cluster import Cluster, Influence
from ticdc_lab.simulate.pd.config import Config
from ticdc_lab.simulate.pd.filters import LEADER_SOURCE, LEADER_TARGET, REGION_SOURCE, REGION_TARGET, state_forbids
from ticdc_lab.simulate.pd.stores import Store

ROLES = (REGION_SOURCE, REGION_TARGET, LEADER_SOURCE, LEADER_TARGET)


class StoreTable:
    """Columns of all stores in the order of their ids; ``may[role]`` says which of them the role is open to."""

    def __init__(self) -> None:
        self.config: Config | None = None
        self.stores: list[Store] = []
        self.place: dict[int, int] = {}
        self.columns: StoreColumns = columns(())
        self.may: dict[str, NDArray[np.bool_]] = {}

    def refresh(self, cluster: Cluster) -> None:
        """Take what is new."""
        stores = list(cluster.stores.values())
        if cluster.config is not self.config or len(stores) != len(self.stores):
            self._fill(cluster, stores)
            return
        for i, (new, old) in enumerate(zip(stores, self.stores, strict=True)):
            if new is not old:
                self._write(i, new, cluster.config)

    def _fill(self, cluster: Cluster, stores: list[Store]) -> None:
        self.config, self.stores = cluster.config, stores
        self.place = {s.id: i for i, s in enumerate(stores)}
        self.columns = columns(stores)
        self.may = {
            role: np.array([state_forbids(s, role, cluster.config) is None for s in stores], np.bool_) for role in ROLES
        }

    def _write(self, i: int, store: Store, config: Config) -> None:
        old = self.stores[i]
        self.stores[i] = store
        if old.id != store.id:
            self.place[store.id] = i
        for name, column in zip(StoreColumns._fields, self.columns, strict=True):
            column[i] = getattr(store, name)
        for role in ROLES:
            self.may[role][i] = state_forbids(store, role, config) is None

    def influence(self, cluster: Cluster, field: str) -> Numbers:
        """Give one field of the influence on each store."""
        found = np.zeros(len(self.stores))
        index = Influence._fields.index(field)
        for store, influence in cluster.influence.items():
            place = self.place.get(store)
            if place is not None:
                found[place] = influence[index]
        return found

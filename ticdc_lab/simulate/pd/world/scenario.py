"""The ``cluster`` of a scenario of PD; its events are changes of a run (:mod:`.changes`).

::

    cluster:
      stores: 6                      # or a list: {id: 1, capacity: 1024, labels: {zone: z1}, later: true}
      regions: 600
      on: [1, 2, 3]                  # stores that have them at first; by default all
      size: 96                       # MiB
      store_limit: 15
      config: {leader-schedule-limit: 8, location-labels: "zone,host"}
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Annotated, Any

from msgspec import Meta

from ticdc_lab.pd_core.config import Config
from ticdc_lab.simulate.pd.world.changes import Timed
from ticdc_lab.simulate.pd.world.pdctl_config import Refused, with_setting
from ticdc_lab.simulate.pd.world.start import RegionsStart, Start, StoreStart, WorldSettings, spread_regions
from ticdc_lab.simulate.planned import Planned
from ticdc_lab.simulate.reading import Names, ReadBy, Reader, Value

_GIB_MIB = 1024.0
MOST_STORES, MOST_REGIONS, MOST_ID = 1_000, 2_000_000, 10_000_000


@dataclass(frozen=True, slots=True)
class _Store:
    """A store as a file has it: sizes in GiB."""

    id: Annotated[int, Meta(ge=1, le=MOST_ID)]
    capacity: Annotated[float, Meta(gt=0)] = 1024.0
    labels: Annotated[Mapping[str, str], ReadBy(lambda v, names: {k.text(): one.text() for k, one in v.entries()})] = (
        field(default_factory=dict)
    )
    later: bool = False
    used: Annotated[float, Meta(ge=0)] = 0.0

    def refuse(self, value: Value, given: Mapping[str, Value]) -> None:
        """Refuse other files that are larger than the disk."""
        if self.used > self.capacity:
            raise given["used"].wrong(f"at most the store's capacity, {self.capacity:g} GiB")

    def start(self) -> StoreStart:
        return StoreStart(self.id, self.capacity * _GIB_MIB, self.labels, not self.later, self.used * _GIB_MIB)


def _stores(value: Value, names: Names) -> tuple[StoreStart, ...]:
    if value.is_text:
        return tuple(StoreStart(i + 1) for i in range(value.integer(least=1, most=MOST_STORES)))
    found: dict[int, StoreStart] = {}
    for one in value.items():
        store = Reader().record(one, _Store).start()
        if store.id in found:
            raise one.wrong("each id once", found=f"{store.id} again")
        found[store.id] = store
    return tuple(found.values())


def _config(value: Value, names: Names) -> Config:
    config = Config()
    for key, setting in value.entries():
        try:
            config = with_setting(config, key.text(), setting.text())
        except Refused as e:
            raise key.wrong("a setting of PD's and a value that it can have", found=f"{key.text()}: {e}") from e
    return config


@dataclass(frozen=True, slots=True)
class PdCluster:
    """A cluster in a file; ``on``: stores that have the regions at first, where not all have."""

    stores: Annotated[tuple[StoreStart, ...], ReadBy(_stores)]
    regions: Annotated[int, Meta(ge=1, le=MOST_REGIONS)]
    on: tuple[int, ...] = ()
    size: Annotated[float, Meta(gt=0)] = 96.0
    config: Annotated[Config, ReadBy(_config)] = field(default_factory=Config)
    store_limit: Annotated[float, Meta(ge=0)] = 15.0

    def refuse(self, value: Value, given: Mapping[str, Value]) -> None:
        """Refuse regions on stores that are not there, or on too few."""
        there = {s.id for s in self.stores if s.started}
        if not self.holders or ("on" in given and not (self.on and there.issuperset(self.on))):
            raise given.get("on", value).wrong("stores that are there at first", found=str(list(self.on)))
        if len(set(self.on)) < len(self.on):
            raise given["on"].wrong("each store once", found=str(list(self.on)))
        if self.config.max_replicas < 1:
            raise given["config"].wrong("a max-replicas of at least 1", found=str(self.config.max_replicas))
        if len(self.holders) < self.config.max_replicas:
            raise value.wrong(f"at least {self.config.max_replicas} stores at first", found=str(len(self.holders)))

    @property
    def holders(self) -> tuple[int, ...]:
        """Stores that have the regions at first."""
        return self.on or tuple(s.id for s in self.stores if s.started)

    @property
    def start_regions(self) -> RegionsStart:
        return spread_regions(self.regions, self.holders, self.config.max_replicas, self.size)

    @property
    def nodes(self) -> frozenset[str]:
        """All that an event can be about: ``store-1``."""
        return frozenset(f"store-{s.id}" for s in self.stores)

    @property
    def fallible(self) -> tuple[str, ...]:
        """Those that random faults hit."""
        return tuple(f"store-{s.id}" for s in self.stores if s.started)


def cluster(value: Value) -> PdCluster:
    return Reader().record(value, PdCluster)


def start_of(scenario: Any) -> Start:
    c: PdCluster = scenario.cluster
    loss, limit = float(scenario.network.loss), c.store_limit
    settings: WorldSettings = replace(scenario.settings, store_limit=(limit, limit), loss=loss)
    return Start(stores=c.stores, regions=c.start_regions, config=c.config, settings=settings)


def facts(scenario_cluster: Any, events: Iterable[Planned]) -> PdFacts:
    return PdFacts()


class PdFacts:
    """The state in the latest sample."""

    def __init__(self) -> None:
        self.changes = 0
        self.now: Any = None

    @property
    def broken(self) -> bool:
        return bool(self.now.violated)

    def see(self, row: Any) -> None:
        self.now = row.message
        self.changes += 1


def changes_of(scenario: Any) -> tuple[Timed, ...]:
    """Give a scenario's events as changes of a run."""
    return tuple(Timed(event.at_us, event.what) for event in scenario.events)

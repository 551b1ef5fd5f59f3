"""The ``cluster`` of a scenario of PD: stores, regions and where they are at first, PD's settings.

::

    cluster:
      stores: 6                      # or a list: {id: 1, capacity: 1024, labels: {zone: z1}, later: true}
      regions: 600
      on: [1, 2, 3]                  # stores that have them at first; all that are there where it is not said
      size: 96                       # MiB
      store_limit: 15
      config: {leader-schedule-limit: 8, location-labels: "zone,host"}
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

from ticdc_lab.simulate.pd.config import Config
from ticdc_lab.simulate.pd.world.pdctl import Refused
from ticdc_lab.simulate.pd.world.pdctl_config import with_setting
from ticdc_lab.simulate.pd.world.settings import WorldSettings
from ticdc_lab.simulate.pd.world.start import Start, StoreStart, spread_regions
from ticdc_lab.simulate.planned import Planned
from ticdc_lab.simulate.scenario_yaml import Value

_GIB_MIB = 1024.0
MOST_STORES, MOST_REGIONS = 1_000, 2_000_000
_LIMIT = 15.0


@dataclass(frozen=True, slots=True)
class Cluster:
    """What a file says of a cluster."""

    stores: tuple[StoreStart, ...]
    regions: int
    on: tuple[int, ...]
    size: float
    config: Config
    store_limit: float

    @property
    def nodes(self) -> frozenset[str]:
        """Whatever an event can be about: ``store-1``."""
        return frozenset(f"store-{s.id}" for s in self.stores)

    @property
    def fallible(self) -> tuple[str, ...]:
        """Those that random faults hit."""
        return tuple(f"store-{s.id}" for s in self.stores if s.started)


def cluster(value: Value) -> Cluster:
    """Read the section."""
    given = value.fields({"stores", "regions", "on", "size", "config", "store_limit"}, required=["stores", "regions"])
    stores = _stores(given["stores"])
    there = tuple(s.id for s in stores if s.started)
    on = tuple(v.integer() for v in given["on"].items()) if "on" in given else there
    if not on or not set(on) <= set(there):
        raise given.get("on", value).wrong("stores that are there at first", found=str(list(on)))
    config = Config()
    for key, setting in given["config"].entries() if "config" in given else ():
        try:
            config = with_setting(config, key.text(), setting.text())
        except Refused as e:
            raise key.wrong("a setting of PD's and a value that it can have", found=f"{key.text()}: {e}") from e
    if len(on) < config.max_replicas:
        raise value.wrong(f"at least {config.max_replicas} stores at first", found=str(len(on)))
    return Cluster(
        stores, given["regions"].integer(least=1, most=MOST_REGIONS), on,
        float(given["size"].number()) if "size" in given else 96.0, config,
        float(given["store_limit"].number()) if "store_limit" in given else _LIMIT,
    )  # fmt: skip


def _stores(value: Value) -> tuple[StoreStart, ...]:
    if value.is_text:
        return tuple(StoreStart(i + 1) for i in range(value.integer(least=1, most=MOST_STORES)))
    found: dict[int, StoreStart] = {}
    for one in value.items():
        given = one.fields({"id", "capacity", "labels", "later", "used"}, required=["id"])
        store = StoreStart(
            given["id"].integer(least=1),
            float(given["capacity"].number()) * _GIB_MIB if "capacity" in given else 1024 * _GIB_MIB,
            {k.text(): v.text() for k, v in given["labels"].entries()} if "labels" in given else {},
            not (given["later"].flag() if "later" in given else False),
            float(given["used"].number()) * _GIB_MIB if "used" in given else 0.0,
        )  # fmt: skip
        if store.id in found:
            raise one.wrong("each id once", found=f"{store.id} again")
        found[store.id] = store
    return tuple(found.values())


def start_of(c: Cluster, settings: WorldSettings) -> Start:
    """Give the start of a run."""
    regions = spread_regions(c.regions, c.on, c.config.max_replicas, c.size)
    limits = replace(settings, store_limit=(c.store_limit, c.store_limit))
    return Start(stores=c.stores, regions=regions, config=c.config, settings=limits)


def facts(scenario_cluster: Any, events: Iterable[Planned]) -> Facts:
    """Give what is known before a run begins."""
    return Facts()


class Facts:
    """How things stand, as the latest sample says."""

    def __init__(self) -> None:
        self.changes = 0
        self.now: Any = None

    def see(self, row: Any) -> None:
        """Take a sample."""
        self.now = row.message
        self.changes += 1

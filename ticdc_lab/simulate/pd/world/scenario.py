"""The ``cluster`` of a scenario of PD, and what it can let happen: each event defines which changes of a run it is.

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

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Annotated, Any, NamedTuple

from msgspec import Meta

from ticdc_lab.errors import ScenarioError
from ticdc_lab.pd_core.config import Config
from ticdc_lab.simulate.pd.world.changes import (
    CutOff,
    FailOver,
    Grow,
    Pdctl,
    ResumeStore,
    SetFlow,
    SlowDisk,
    StartStore,
    StopStore,
    Timed,
)
from ticdc_lab.simulate.pd.world.pdctl import pdctl
from ticdc_lab.simulate.pd.world.pdctl_config import NotUnderstood, Refused, with_setting
from ticdc_lab.simulate.pd.world.start import SECOND_US, RegionsStart, Start, StoreStart, WorldSettings, spread_regions
from ticdc_lab.simulate.pd.world.world import World
from ticdc_lab.simulate.planned import EventKind, Planned, Text, table
from ticdc_lab.simulate.reading import Names, ReadBy, Reader
from ticdc_lab.simulate.scenario_yaml import Value

_GIB_MIB = 1024.0
MOST_STORES, MOST_REGIONS = 1_000, 2_000_000


@dataclass(frozen=True, slots=True)
class _Store:
    """A store as a file has it: sizes in GiB."""

    id: Annotated[int, Meta(ge=1)]
    capacity: float = 1024.0
    labels: Annotated[Mapping[str, str], ReadBy(lambda v, names: {k.text(): one.text() for k, one in v.entries()})] = (
        field(default_factory=dict)
    )
    later: bool = False
    used: float = 0.0

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
    size: float = 96.0
    config: Annotated[Config, ReadBy(_config)] = field(default_factory=Config)
    store_limit: float = 15.0

    def refuse(self, value: Value, given: Mapping[str, Value]) -> None:
        """Refuse regions on stores that are not there, or on too few."""
        there = {s.id for s in self.stores if s.started}
        if not self.holders or ("on" in given and not (self.on and there.issuperset(self.on))):
            raise given.get("on", value).wrong("stores that are there at first", found=str(list(self.on)))
        if len(self.holders) < self.config.max_replicas:
            raise value.wrong(f"at least {self.config.max_replicas} stores at first", found=str(len(self.holders)))

    @property
    def holders(self) -> tuple[int, ...]:
        """Stores that have the regions at first."""
        return self.on or tuple(s.id for s in self.stores if s.started)

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
    regions = spread_regions(c.regions, c.holders, c.config.max_replicas, c.size)
    loss, limit = float(scenario.network.loss), c.store_limit
    settings: WorldSettings = replace(scenario.settings, store_limit=(limit, limit), loss=loss)
    return Start(stores=c.stores, regions=regions, config=c.config, settings=settings)


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


_MIB = 1 << 20
_LED = re.compile(r"(\d+) led by store-(\d+)")


class Scene(NamedTuple):
    """What events are read beside: the scenario, and the regions of its start."""

    scenario: Any
    regions: RegionsStart


def _words(value: Value, names: Names) -> str:
    """Refuse words that no cluster would take, tried on three empty stores; what only this one refuses comes later."""
    few = Start(stores=tuple(map(StoreStart, (1, 2, 3))), regions=spread_regions(3, (1, 2, 3)))
    try:
        pdctl(World(few, 0), value.text())
    except NotUnderstood as error:
        where = f"{value.file}:{value.line}"
        raise ScenarioError(f"{where}: {str(error).partition(chr(10))[0]}", hint=error.hint or "") from error
    except Refused:
        pass
    return value.text()


def _flow(kind: str) -> Callable[[Any, Planned, Scene], list[SetFlow]]:
    return lambda w, e, s: [SetFlow(kind, _regions(w.regions, e, s), w.mib_s * _MIB)]


LOOKED_UP = table({
    "pdctl": EventKind(
        "Words to PD, as one types them after ``pd-ctl``.",
        {"words": Annotated[str, ReadBy(_words)]},
        lambda w, e, s: [Pdctl(w.words)],
    ),
    "read": EventKind(
        "Regions are read at so many MiB/s each: ``1 7 13``, ``24 led by store-1``, or ``all``.",
        {"regions": Text, "mib_s": (int, 16)},
        _flow("read"),
    ),
    "write": EventKind(
        "Regions are written at so many MiB/s each.", {"regions": Text, "mib_s": (int, 16)}, _flow("write")
    ),
    "grow": EventKind(
        "A region grows by so many MiB a second.",
        {"region": int, "mib_s": (int, 8)},
        lambda w, e, s: [Grow(_known([w.region], e, s)[0], w.mib_s * s.scenario.settings.tick_us / SECOND_US)],
    ),
})  # fmt: skip
"""Events whose words are tried, or whose regions are looked up in the start."""

EVENTS: dict[str, type] = {
    "stop_store": StopStore, "resume_store": ResumeStore, "start_store": StartStore, "cut_off": CutOff,
    "fail_over": FailOver, **LOOKED_UP, "slow_disk": SlowDisk,
}  # fmt: skip


def changes_of(scenario: Any, regions: RegionsStart) -> tuple[Timed, ...]:
    """Give a scenario's events as changes of a run."""
    found, scene = list[Timed](), Scene(scenario, regions)
    for event in scenario.events:
        for change in event.what.apply(event, scene) if event.kind in LOOKED_UP else [event.what]:
            found.append(Timed(event.at_us, change))
            if getattr(change, "for_us", None) is not None:
                found.append(Timed(event.at_us + change.for_us, change.end))
    return tuple(sorted(found, key=lambda timed: timed.at_us))


def _regions(text: str, event: Planned, scene: Scene) -> tuple[int, ...]:
    where, regions = f"{scene.scenario.file}:{event.line}", scene.regions
    if match := _LED.fullmatch(text):
        led = regions.id[regions.leader == int(match[2])].tolist()
        if len(led) < int(match[1]):
            raise ScenarioError(
                f"{where}: expected {text}; found {len(led)} at first.",
                hint="Lower N in `N led by store-S`, or name another store.",
            )
        return tuple(led[: int(match[1])])
    if text == "all":
        return tuple(regions.id.tolist())
    try:
        return _known([int(word) for word in text.replace(",", " ").split()], event, scene)
    except ValueError as e:
        raise ScenarioError(
            f"{where}: expected regions; found {text}.", hint="Write ids, `1 7 13`, or `24 led by store-1`, or `all`."
        ) from e


def _known(ids: list[int], event: Planned, scene: Scene) -> tuple[int, ...]:
    known = scene.regions.id
    if unknown := sorted(set(ids) - set(known.tolist())):
        raise ScenarioError(
            f"{scene.scenario.file}:{event.line}: expected regions of the start; found {unknown}.",
            hint=f"There are {known.min()} to {known.max()}; those that splits make come later.",
        )
    return tuple(ids)

"""The ``cluster`` of a scenario of PD, and what it can let happen: each event says itself which changes of a run it is.

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

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

from msgspec import Meta

from ticdc_lab.errors import ScenarioError
from ticdc_lab.simulate.pd.config import Config
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
from ticdc_lab.simulate.pd.world.pdctl import read_words
from ticdc_lab.simulate.pd.world.pdctl_config import Refused, with_setting
from ticdc_lab.simulate.pd.world.start import SECOND_US, RegionsStart, Start, StoreStart, WorldSettings, spread_regions
from ticdc_lab.simulate.planned import Duration, Lasting, Node, Planned, Text
from ticdc_lab.simulate.reading import Names, ReadBy, Reader
from ticdc_lab.simulate.scenario_yaml import Value

if TYPE_CHECKING:
    from ticdc_lab.simulate.scenario import Scenario


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
        """Give it as a run begins with it."""
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
    """What a file says of a cluster; ``on``: stores that have the regions at first, where not all have."""

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
        """Whatever an event can be about: ``store-1``."""
        return frozenset(f"store-{s.id}" for s in self.stores)

    @property
    def fallible(self) -> tuple[str, ...]:
        """Those that random faults hit."""
        return tuple(f"store-{s.id}" for s in self.stores if s.started)


def cluster(value: Value) -> PdCluster:
    """Read the section."""
    return Reader().record(value, PdCluster)


def start_of(scenario: Any) -> Start:
    """Give the start of a scenario's run."""
    c: PdCluster = scenario.cluster
    regions = spread_regions(c.regions, c.holders, c.config.max_replicas, c.size)
    loss, limit = float(scenario.network.loss), c.store_limit
    settings: WorldSettings = replace(scenario.settings, store_limit=(limit, limit), loss=loss)
    return Start(stores=c.stores, regions=regions, config=c.config, settings=settings)


def facts(scenario_cluster: Any, events: Iterable[Planned]) -> PdFacts:
    """Give what is known before a run begins."""
    return PdFacts()


class PdFacts:
    """How things stand, as the latest sample says."""

    def __init__(self) -> None:
        self.changes = 0
        self.now: Any = None

    @property
    def broken(self) -> bool:
        """Whether an invariant is violated."""
        return bool(self.now.violated)

    def see(self, row: Any) -> None:
        """Take a sample."""
        self.now = row.message
        self.changes += 1


_MIB = 1 << 20
_LED = re.compile(r"(\d+) led by store-(\d+)")


@dataclass(frozen=True, slots=True)
class Words:
    """Words to PD, as one types them after ``pd-ctl``."""

    words: Text

    def apply(self, event: Planned, scenario: Scenario, regions: RegionsStart) -> Iterator[Timed]:
        try:
            read_words(self.words)
        except Refused as e:
            where = f"{scenario.file}:{event.line}"
            raise ScenarioError(f"{where}: {str(e).partition(chr(10))[0]}", hint=e.hint or "") from e
        yield Timed(event.at_us, Pdctl(self.words))


@dataclass(frozen=True, slots=True)
class Stop:
    """A store falls silent; its peers count as down ``down`` ago at once, if that is given."""

    store: Node
    down_us: Duration | None = None

    def apply(self, event: Planned, scenario: Scenario, regions: RegionsStart) -> Iterator[Timed]:
        down_s = None if self.down_us is None else self.down_us / SECOND_US
        yield Timed(event.at_us, StopStore(_id(self.store), down_s))


@dataclass(frozen=True, slots=True)
class ResumeStoreEvent:
    """A silent store comes back."""

    store: Node

    def apply(self, event: Planned, scenario: Scenario, regions: RegionsStart) -> Iterator[Timed]:
        yield Timed(event.at_us, ResumeStore(_id(self.store)))


@dataclass(frozen=True, slots=True)
class Cut:
    """PD and a store do not hear of each other, for a while or for good; the store works on."""

    store: Node
    for_us: Lasting | None = None

    def apply(self, event: Planned, scenario: Scenario, regions: RegionsStart) -> Iterator[Timed]:
        yield Timed(event.at_us, CutOff(_id(self.store)))
        if self.for_us is not None:
            yield Timed(event.at_us + self.for_us, CutOff(_id(self.store), again=True))


@dataclass(frozen=True, slots=True)
class FailsOver:
    """Another PD leads."""

    def apply(self, event: Planned, scenario: Scenario, regions: RegionsStart) -> Iterator[Timed]:
        yield Timed(event.at_us, FailOver())


@dataclass(frozen=True, slots=True)
class JoinStore:
    """A store of the cluster that is there ``later`` joins."""

    store: Node

    def apply(self, event: Planned, scenario: Scenario, regions: RegionsStart) -> Iterator[Timed]:
        yield Timed(event.at_us, StartStore(_id(self.store)))


@dataclass(frozen=True, slots=True)
class Reads:
    """Regions are read at so many MiB/s each: ``1 7 13``, ``24 led by store-1``, or ``all``."""

    flow: ClassVar[str] = "read"
    regions: Text
    mib_s: int = 16

    def apply(self, event: Planned, scenario: Scenario, regions: RegionsStart) -> Iterator[Timed]:
        found = _regions(self.regions, regions, f"{scenario.file}:{event.line}")
        yield Timed(event.at_us, SetFlow(self.flow, found, self.mib_s * _MIB))


@dataclass(frozen=True, slots=True)
class Writes(Reads):
    """Regions are written at so many MiB/s each."""

    flow: ClassVar[str] = "write"


@dataclass(frozen=True, slots=True)
class Grows:
    """A region grows by so many MiB a second."""

    region: int
    mib_s: int = 8

    def apply(self, event: Planned, scenario: Scenario, regions: RegionsStart) -> Iterator[Timed]:
        _known([self.region], regions, f"{scenario.file}:{event.line}")
        yield Timed(event.at_us, Grow(self.region, self.mib_s * scenario.settings.tick_us / SECOND_US))


@dataclass(frozen=True, slots=True)
class SlowDiskEvent:
    """The disk of a store gives clients and snapshots no more than so many MiB/s, for a while or for good."""

    store: Node
    mib_s: int
    for_us: Lasting | None = None

    def apply(self, event: Planned, scenario: Scenario, regions: RegionsStart) -> Iterator[Timed]:
        yield Timed(event.at_us, SlowDisk(_id(self.store), self.mib_s))
        if self.for_us is not None:
            yield Timed(event.at_us + self.for_us, SlowDisk(_id(self.store), None))


EVENTS: dict[str, type] = {
    "pdctl": Words, "stop_store": Stop, "resume_store": ResumeStoreEvent, "start_store": JoinStore, "cut_off": Cut,
    "fail_over": FailsOver, "read": Reads, "write": Writes, "grow": Grows, "slow_disk": SlowDiskEvent,
}  # fmt: skip


def changes_of(scenario: Any, regions: RegionsStart) -> tuple[Timed, ...]:
    """Give a scenario's events as changes of a run."""
    found = [timed for event in scenario.events for timed in event.what.apply(event, scenario, regions)]
    return tuple(sorted(found, key=lambda timed: timed.at_us))


def _id(store: str) -> int:
    return int(store.rpartition("-")[2])


def _regions(text: str, regions: RegionsStart, where: str) -> tuple[int, ...]:
    if match := _LED.fullmatch(text):
        led = regions.id[regions.leader == int(match[2])].tolist()
        if len(led) < int(match[1]):
            raise ScenarioError(f"{where}: expected {text}; found {len(led)} at first.", hint="Take fewer, or others.")
        return tuple(led[: int(match[1])])
    if text == "all":
        return tuple(regions.id.tolist())
    try:
        return _known([int(word) for word in text.replace(",", " ").split()], regions, where)
    except ValueError as e:
        raise ScenarioError(
            f"{where}: expected regions; found {text}.", hint="Write ids, `1 7 13`, or `24 led by store-1`, or `all`."
        ) from e


def _known(ids: list[int], regions: RegionsStart, where: str) -> tuple[int, ...]:
    if unknown := sorted(set(ids) - set(regions.id.tolist())):
        there = f"There are {regions.id.min()} to {regions.id.max()}; those that splits make come later."
        raise ScenarioError(f"{where}: expected regions of the start; found {unknown}.", hint=there)
    return tuple(ids)

"""What a scenario of PD can let happen: each kind of event says itself which changes of a run it is."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ticdc_lab.errors import ScenarioError
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
from ticdc_lab.simulate.pd.world.pdctl import Refused, read_words
from ticdc_lab.simulate.pd.world.settings import SECOND_US
from ticdc_lab.simulate.pd.world.start import RegionsStart
from ticdc_lab.simulate.planned import Duration, Node, Planned, Text

if TYPE_CHECKING:
    from ticdc_lab.simulate.scenario import Scenario

_MIB = 1 << 20
_LED = re.compile(r"(\d+) led by store-(\d+)")


@dataclass(frozen=True, slots=True)
class Words:
    """Words to PD, as one types them after ``pd-ctl``."""

    words: Text

    def apply(self, event: Planned, scenario: Scenario, regions: RegionsStart) -> Iterator[Timed]:
        """Give the changes that it is."""
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
        """Give the changes that it is."""
        down_s = None if self.down_us is None else self.down_us / SECOND_US
        yield Timed(event.at_us, StopStore(_id(self.store), down_s))


@dataclass(frozen=True, slots=True)
class Resume:
    """A silent store comes back."""

    store: Node

    def apply(self, event: Planned, scenario: Scenario, regions: RegionsStart) -> Iterator[Timed]:
        """Give the changes that it is."""
        yield Timed(event.at_us, ResumeStore(_id(self.store)))


@dataclass(frozen=True, slots=True)
class Cut:
    """PD and a store do not hear of each other, for a while or for good; the store works on."""

    store: Node
    for_us: Duration | None = None

    def apply(self, event: Planned, scenario: Scenario, regions: RegionsStart) -> Iterator[Timed]:
        """Give the changes that it is."""
        yield Timed(event.at_us, CutOff(_id(self.store)))
        if self.for_us is not None:
            yield Timed(event.at_us + self.for_us, CutOff(_id(self.store), again=True))


@dataclass(frozen=True, slots=True)
class FailsOver:
    """Another PD leads."""

    def apply(self, event: Planned, scenario: Scenario, regions: RegionsStart) -> Iterator[Timed]:
        """Give the changes that it is."""
        yield Timed(event.at_us, FailOver())


@dataclass(frozen=True, slots=True)
class Join:
    """A store of the cluster that is there ``later`` joins."""

    store: Node

    def apply(self, event: Planned, scenario: Scenario, regions: RegionsStart) -> Iterator[Timed]:
        """Give the changes that it is."""
        yield Timed(event.at_us, StartStore(_id(self.store)))


@dataclass(frozen=True, slots=True)
class Read:
    """Regions are read at so many MiB/s each: ``1 7 13``, ``24 led by store-1``, or ``all``."""

    regions: Text
    mib_s: int = 16

    def apply(self, event: Planned, scenario: Scenario, regions: RegionsStart) -> Iterator[Timed]:
        """Give the changes that it is."""
        found = _regions(self.regions, regions, f"{scenario.file}:{event.line}")
        yield Timed(event.at_us, SetFlow("read", found, self.mib_s * _MIB))


@dataclass(frozen=True, slots=True)
class Write:
    """Regions are written at so many MiB/s each."""

    regions: Text
    mib_s: int = 16

    def apply(self, event: Planned, scenario: Scenario, regions: RegionsStart) -> Iterator[Timed]:
        """Give the changes that it is."""
        found = _regions(self.regions, regions, f"{scenario.file}:{event.line}")
        yield Timed(event.at_us, SetFlow("write", found, self.mib_s * _MIB))


@dataclass(frozen=True, slots=True)
class Grows:
    """A region grows by so many MiB a second."""

    region: int
    mib_s: int = 8

    def apply(self, event: Planned, scenario: Scenario, regions: RegionsStart) -> Iterator[Timed]:
        """Give the changes that it is."""
        _known([self.region], regions, f"{scenario.file}:{event.line}")
        yield Timed(event.at_us, Grow(self.region, self.mib_s * scenario.settings.tick_us / SECOND_US))


@dataclass(frozen=True, slots=True)
class Slow:
    """The disk of a store gives clients and snapshots no more than so many MiB/s, for a while or for good."""

    store: Node
    mib_s: int
    for_us: Duration | None = None

    def apply(self, event: Planned, scenario: Scenario, regions: RegionsStart) -> Iterator[Timed]:
        """Give the changes that it is."""
        yield Timed(event.at_us, SlowDisk(_id(self.store), self.mib_s))
        if self.for_us is not None:
            yield Timed(event.at_us + self.for_us, SlowDisk(_id(self.store), None))


EVENTS: dict[str, type] = {
    "pdctl": Words, "stop_store": Stop, "resume_store": Resume, "start_store": Join, "cut_off": Cut,
    "fail_over": FailsOver, "read": Read, "write": Write, "grow": Grows, "slow_disk": Slow,
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

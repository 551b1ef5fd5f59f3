"""What a scenario of PD can let happen."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from ticdc_lab.errors import ScenarioError
from ticdc_lab.simulate.pd.world.changes import (
    Change,
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
from ticdc_lab.simulate.planned import Duration, Node, Text

_MIB = 1 << 20
_LED = re.compile(r"(\d+) led by store-(\d+)")


@dataclass(frozen=True, slots=True)
class Words:
    """Words to PD, as one types them after ``pd-ctl``."""

    words: Text


@dataclass(frozen=True, slots=True)
class Stop:
    """A store falls silent; its peers count as down ``down`` ago at once, if that is given."""

    store: Node
    down_us: Duration | None = None


@dataclass(frozen=True, slots=True)
class Resume:
    """A silent store comes back."""

    store: Node


@dataclass(frozen=True, slots=True)
class Join:
    """A store of the cluster that is there ``later`` joins."""

    store: Node


@dataclass(frozen=True, slots=True)
class Read:
    """Regions are read at so many MiB/s each: ``1 7 13``, ``24 led by store-1``, or ``all``."""

    regions: Text
    mib_s: int = 16


@dataclass(frozen=True, slots=True)
class Write:
    """Regions are written at so many MiB/s each."""

    regions: Text
    mib_s: int = 16


@dataclass(frozen=True, slots=True)
class Grows:
    """A region grows by so many MiB a second."""

    region: int
    mib_s: int = 8


@dataclass(frozen=True, slots=True)
class Slow:
    """The disk of a store gives clients and snapshots no more than so many MiB/s, for a while or for good."""

    store: Node
    mib_s: int
    for_us: Duration | None = None


EVENTS: dict[str, type] = {
    "pdctl": Words, "stop_store": Stop, "resume_store": Resume, "start_store": Join, "read": Read, "write": Write,
    "grow": Grows, "slow_disk": Slow,
}  # fmt: skip


def changes_of(scenario: Any, regions: RegionsStart) -> tuple[Timed, ...]:
    """Give a scenario's events as changes of a run."""
    tick_us = scenario.settings.tick_us
    found = [Timed(e.at_us, _change(e.what, regions, tick_us, f"{scenario.file}:{e.line}")) for e in scenario.events]
    slow = [(e.at_us, e.what) for e in scenario.events if isinstance(e.what, Slow)]
    found += [Timed(at_us + s.for_us, SlowDisk(_id(s.store), None)) for at_us, s in slow if s.for_us is not None]
    return tuple(sorted(found, key=lambda timed: timed.at_us))


def _change(what: Any, regions: RegionsStart, tick_us: int, where: str) -> Change:
    match what:
        case Words(words):
            try:
                read_words(words)
            except Refused as e:
                raise ScenarioError(f"{where}: {str(e).partition(chr(10))[0]}", hint=e.hint or "") from e
            return Pdctl(words)
        case Stop(store, down_us):
            return StopStore(_id(store), None if down_us is None else down_us / SECOND_US)
        case Resume(store):
            return ResumeStore(_id(store))
        case Join(store):
            return StartStore(_id(store))
        case Read(text, mib_s):
            return SetFlow("read", _regions(text, regions, where), mib_s * _MIB)
        case Write(text, mib_s):
            return SetFlow("write", _regions(text, regions, where), mib_s * _MIB)
        case Slow(store, mib_s):
            return SlowDisk(_id(store), mib_s)
        case _:
            _known([what.region], regions, where)
            return Grow(what.region, what.mib_s * tick_us / SECOND_US)


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

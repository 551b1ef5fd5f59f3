"""What happens to a cluster from outside: words to PD, stores that stop or join, a network that fails, load that comes.

Each change defines its effect on a world, and its words. It is an event of a scenario file, too: the file's fields are
its own (:mod:`ticdc_lab.simulate.planned`), and :data:`EVENTS` has the names that files give them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, NamedTuple, TypeAlias

from ticdc_lab.errors import ScenarioError
from ticdc_lab.pd_core.stores import MIB
from ticdc_lab.simulate.pd.world.columns import LEADS, NONE
from ticdc_lab.simulate.pd.world.heartbeats import STALE, elect, report_down, rows_on
from ticdc_lab.simulate.pd.world.pdctl import pdctl
from ticdc_lab.simulate.pd.world.pdctl_config import NotUnderstood, Refused
from ticdc_lab.simulate.pd.world.policy import Policy, scheduler_of
from ticdc_lab.simulate.pd.world.start import NEVER_US, SECOND_US, Start, StoreStart, spread_regions
from ticdc_lab.simulate.pd.world.world import World
from ticdc_lab.simulate.planned import Duration, Lasting
from ticdc_lab.simulate.reading import Names, ReadBy, Value
from ticdc_lab.words import count


class ClusterChange:
    """Something that happens; ``says`` is it in words, with the values of its fields."""

    __slots__ = ()
    says: ClassVar[str]

    @property
    def text(self) -> str:
        return self.says.format(self)

    def apply(self, world: World) -> Any:
        raise NotImplementedError

    def happen(self, world: World) -> AppliedChange:
        """Let it happen now; PD's refusal of a command is its result, not an error."""
        try:
            return AppliedChange(world.now_us, self, self.apply(world))
        except Refused as e:
            return AppliedChange(world.now_us, self, None, str(e))


_BY_NAME = ReadBy(lambda value, names: int(names.node(value).rpartition("-")[2]), str)
StoreId: TypeAlias = Annotated[int, _BY_NAME]
"""The number of a store, ``store-3`` in a file."""


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


_LED = re.compile(r"(\d+) led by store-(\d+)")


def _regions(value: Value, names: Names) -> tuple[int, ...]:
    text, start = value.text(), names.cluster.start_regions
    if match := _LED.fullmatch(text):
        led = start.id[start.leader == int(match[2])].tolist()
        if len(led) < int(match[1]):
            raise ScenarioError(
                f"{value.file}:{value.line}: expected {text}; found {len(led)} at first.",
                hint="Lower N in `N led by store-S`, or name another store.",
            )
        return tuple(led[: int(match[1])])
    if text == "all":
        return tuple(start.id.tolist())
    try:
        return _known(value, [int(word) for word in text.replace(",", " ").split()], names)
    except ValueError as e:
        hint = "Write ids, `1 7 13`, or `24 led by store-1`, or `all`."
        raise ScenarioError(f"{value.file}:{value.line}: expected regions; found {text}.", hint=hint) from e


def _known(value: Value, ids: list[int], names: Names) -> tuple[int, ...]:
    start = names.cluster.start_regions
    if unknown := sorted(set(ids) - set(start.id.tolist())):
        raise ScenarioError(
            f"{value.file}:{value.line}: expected regions of the start; found {unknown}.",
            hint=f"There are {start.id.min()} to {start.id.max()}; those that splits make come later.",
        )
    return tuple(ids)


@dataclass(frozen=True, slots=True)
class Pdctl(ClusterChange):
    """Words to PD, as one types them after ``pd-ctl``."""

    says = "{0.words}"
    words: Annotated[str, ReadBy(_words, str)]

    def apply(self, world: World) -> Any:
        return pdctl(world, self.words)


@dataclass(frozen=True, slots=True)
class StopStore(ClusterChange):
    """A store falls silent; its peers count as down ``down`` ago at once, if that is given.

    Without it leaders report them with their next heartbeat after ``peer_down_after_s`` of silence.
    """

    says = "store {0.store} falls silent"
    store: StoreId
    down_us: Duration | None = None

    def apply(self, world: World) -> None:
        i = world.regions.at[self.store]
        node = world.nodes.all[i]
        if not node.runs:
            raise Refused(f"store {self.store} does not run")
        node.runs, node.silent_us = False, world.now_us
        node.down_after_s = world.settings.peer_down_after_s if self.down_us is None else -self.down_us / SECOND_US
        world.tasks.forget(i)
        elect(world, list(world.regions.members.lists[i][LEADS]))  # elsewhere
        report_down(world)


@dataclass(frozen=True, slots=True)
class ResumeStore(ClusterChange):
    """A silent store comes back."""

    says = "store {0.store} comes back"
    store: StoreId  # with all its peers; PD hears of it with the next heartbeat

    def apply(self, world: World) -> None:
        i = world.regions.at[self.store]
        if world.nodes.all[i].runs or not world.nodes.all[i].known:
            raise Refused(f"store {self.store} {'runs' if world.nodes.all[i].runs else 'has not joined'}")
        world.nodes.all[i].runs = True
        world.regions.down.pop(i, None)
        world.regions.down_rows.pop(i, None)
        for region in world.nodes.all[i].stale:  # peers that were replaced meanwhile
            world.heartbeats.expect(STALE, i, region)
        elect(world, [row for row in world.regions.rows().tolist() if world.regions.leader[row] == NONE])
        world.patrol.mark_all(rows_on(world, i))


@dataclass(frozen=True, slots=True)
class CutOff(ClusterChange):
    """PD and a store do not hear of each other, for a while or for good; the store works on."""

    says = "store {0.store} is cut off"
    store: StoreId
    for_us: Lasting | None = None

    @property
    def end(self) -> InTouch:
        return InTouch(self.store)

    def apply(self, world: World) -> None:
        node = world.nodes.all[world.regions.at[self.store]]
        if node.silent_us is None:
            node.silent_us = world.now_us
        node.cut = True
        world.checked_mib = -1.0  # regions that it leads cannot be cut in half


@dataclass(frozen=True, slots=True)
class InTouch(ClusterChange):
    """PD and a store that was cut off hear of each other again."""

    says = "PD and store {0.store} hear of each other again"
    store: int

    def apply(self, world: World) -> None:
        world.nodes.all[world.regions.at[self.store]].cut = False
        world.checked_mib = -1.0


@dataclass(frozen=True, slots=True)
class FailOver(ClusterChange):
    """Another PD leads."""  # what was in the memory of the one before is lost

    says = "another PD leads"

    def apply(self, world: World) -> None:
        world.fail_over()


@dataclass(frozen=True, slots=True)
class StartStore(ClusterChange):
    """A store of the cluster that is there ``later`` joins."""

    store: Annotated[int | StoreStart, _BY_NAME]  # a program may give one that is not of the start

    @property
    def text(self) -> str:
        return f"store {self.store if isinstance(self.store, int) else self.store.id} joins"

    def apply(self, world: World) -> None:
        start = self.store
        if isinstance(start, int):
            start = next(s for s in world.start.stores if s.id == start)
        if (i := world.regions.at.get(start.id)) is not None and world.nodes.all[i].known:
            raise Refused(f"store {start.id} has joined already")
        world.nodes.join(start, world.now_us)


_WHOLE_MIB = ReadBy(lambda value, names: value.integer(least=1), int)


@dataclass(frozen=True, slots=True)
class SetFlow(ClusterChange):
    """Regions are read or written at so many MiB/s each from now on; keys and queries follow from bytes."""

    kind: ClassVar[str]
    regions: Annotated[tuple[int, ...], ReadBy(_regions, str)]
    mib_s: Annotated[float, _WHOLE_MIB] = 16.0

    @property
    def text(self) -> str:
        return f"{count(len(self.regions), 'region')}: {self.kind} {self.mib_s:.1f} MiB/s"

    def apply(self, world: World) -> None:
        flow = world.regions.read if self.kind == "read" else world.regions.write
        world.demand_us = world.now_us
        flow[[world.regions.row_of[r] for r in self.regions if r in world.regions.row_of]] = self.mib_s * MIB


class ReadFlow(SetFlow):
    """Regions are read at so many MiB/s each: ``1 7 13``, ``24 led by store-1``, or ``all``."""

    __slots__ = ()
    kind = "read"


class WriteFlow(SetFlow):
    """Regions are written at so many MiB/s each."""

    __slots__ = ()
    kind = "write"


@dataclass(frozen=True, slots=True)
class SlowDisk(ClusterChange):
    """The disk of a store gives clients and snapshots no more than so many MiB/s, for a while or for good."""

    store: StoreId
    mib_s: Annotated[float | None, _WHOLE_MIB]  # None: what it gave at first
    for_us: Lasting | None = None

    @property
    def end(self) -> SlowDisk:
        return SlowDisk(self.store, None)

    @property
    def text(self) -> str:
        found = "is as before" if self.mib_s is None else f"gives {self.mib_s:g} MiB/s"
        return f"the disk of store {self.store} {found}"

    def apply(self, world: World) -> None:
        s = world.settings
        rate = s.disk_mib_a_tick if self.mib_s is None else self.mib_s * s.tick_us / SECOND_US
        world.nodes.all[world.regions.at[self.store]].disk.change_rate(rate, world.tick, s)


@dataclass(frozen=True, slots=True)
class Grow(ClusterChange):
    """A region grows by so many MiB a second, for a while or for good."""  # or the one that its right end becomes

    says = "region {0.region} grows by {0.mib_s:g} MiB/s"
    region: Annotated[int, ReadBy(lambda value, names: _known(value, [value.integer(least=1)], names)[0], int)]
    mib_s: Annotated[float, _WHOLE_MIB] = 8.0
    for_us: Lasting | None = None

    def apply(self, world: World) -> None:
        until_us = NEVER_US if self.for_us is None else world.now_us + self.for_us
        world.growing[self.region] = (self.mib_s * world.settings.tick_us / SECOND_US, until_us)


@dataclass(frozen=True, slots=True)
class UsePolicy(ClusterChange):
    """A scheduler of that name works by another policy from now on, or a new one starts."""

    says = "policy {0.policy.name}"
    policy: Policy

    def apply(self, world: World) -> None:
        world.schedulers[self.policy.name] = scheduler_of(self.policy, world.now_us, world.settings)


EVENTS: dict[str, type] = {
    "stop_store": StopStore, "resume_store": ResumeStore, "start_store": StartStore, "cut_off": CutOff,
    "fail_over": FailOver, "pdctl": Pdctl, "read": ReadFlow, "write": WriteFlow, "grow": Grow, "slow_disk": SlowDisk,
}  # fmt: skip
"""By the names that a scenario file gives them."""


class Timed(NamedTuple):
    """A change at a moment, µs."""

    at_us: int
    change: ClusterChange

    def with_end(self) -> Iterator[Timed]:
        """Give it, and the change that ends it if it lasts for a while."""
        yield self
        if isinstance(self.change, CutOff | SlowDisk) and self.change.for_us is not None:
            yield Timed(self.at_us + self.change.for_us, self.change.end)


ERROR = re.compile(r"Err\w+")
"""PD's name of a refusal, in its words."""


class AppliedChange(NamedTuple):
    """A change that happened, and what came of it: the answer to a command, or PD's refusal."""

    at_us: int
    change: ClusterChange
    answer: Any = None
    error: str = ""

    @property
    def refusal(self) -> list[str]:
        """PD's name of its refusal, where it has one."""
        return ERROR.findall(self.error)[:1]

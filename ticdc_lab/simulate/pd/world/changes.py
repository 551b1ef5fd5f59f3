"""What happens to a cluster from outside: words to PD, stores that stop or join, a network that fails, load that comes.

Each change defines its effect on a world, and its words. Changes of one store are events of a scenario file, too:
the file's fields are theirs (:mod:`ticdc_lab.simulate.planned`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, NamedTuple, TypeAlias

import numpy as np

from ticdc_lab.simulate.pd.world.columns import LEADS, NONE
from ticdc_lab.simulate.pd.world.heartbeats import STALE, elect, report_down, rows_on
from ticdc_lab.simulate.pd.world.pdctl import pdctl
from ticdc_lab.simulate.pd.world.policy import Policy, scheduler_of
from ticdc_lab.simulate.pd.world.start import SECOND_US, StoreStart
from ticdc_lab.simulate.planned import Duration, Lasting
from ticdc_lab.simulate.reading import ReadBy

if TYPE_CHECKING:
    from ticdc_lab.simulate.pd.world.world import World


class ClusterChange:
    """Something that happens; ``says`` is it in words, with the values of its fields."""

    __slots__ = ()
    says: ClassVar[str]

    @property
    def text(self) -> str:
        return self.says.format(self)

    def apply(self, world: World) -> Any:
        raise NotImplementedError


_BY_NAME = ReadBy(lambda value, names: int(names.node(value).rpartition("-")[2]), str)
StoreId: TypeAlias = Annotated[int, _BY_NAME]
"""The number of a store, ``store-3`` in a file."""


@dataclass(frozen=True, slots=True)
class Pdctl(ClusterChange):
    """Words to PD, as one types them after ``pd-ctl``."""

    says = "{0.words}"
    words: str

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
        world.nodes.join(start, world.now_us)


@dataclass(frozen=True, slots=True)
class SetFlow(ClusterChange):
    """Regions are read or written at so many bytes a second from now on; keys and queries follow from bytes."""

    kind: str
    regions: tuple[int, ...]
    bytes_s: float

    @property
    def text(self) -> str:
        return f"{len(self.regions)} regions: {self.kind} {self.bytes_s / (1 << 20):.1f} MiB/s"

    def apply(self, world: World) -> None:
        flow = world.regions.read if self.kind == "read" else world.regions.write
        world.demand_us = world.now_us
        flow[[world.regions.row_of[r] for r in self.regions if r in world.regions.row_of]] = self.bytes_s


@dataclass(frozen=True, slots=True)
class SlowDisk(ClusterChange):
    """The disk of a store gives clients and snapshots no more than so many MiB/s, for a while or for good."""

    store: StoreId
    # None: what it gave at first
    mib_s: Annotated[float | None, ReadBy(lambda value, names: value.integer(least=1), int)]
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
    """A region, or the one that its right end becomes, grows by so many MiB a tick; 0 ends it."""

    says = "region {0.region} grows by {0.mib_a_tick} MiB a tick"
    region: int
    mib_a_tick: float
    until_us: int = 1 << 60

    def apply(self, world: World) -> None:
        world.growing[self.region] = (self.mib_a_tick, self.until_us)


@dataclass(frozen=True, slots=True)
class UsePolicy(ClusterChange):
    """A scheduler of that name works by another policy from now on, or a new one starts."""

    says = "policy {0.policy.name}"
    policy: Policy

    def apply(self, world: World) -> None:
        world.schedulers[self.policy.name] = scheduler_of(self.policy, world.now_us, world.settings)


class Timed(NamedTuple):
    """A change at a moment, µs."""

    at_us: int
    change: ClusterChange


class AppliedChange(NamedTuple):
    """A change that happened, and what came of it: the answer to a command, or PD's refusal."""

    at_us: int
    change: ClusterChange
    answer: Any = None
    error: str = ""


def grow(world: World) -> None:
    """Let what grows grow by a tick, and cut what is too large."""
    r = world.regions
    for region, (mib, until_us) in list(world.growing.items()):
        row = r.row_of.get(region)
        if world.now_us >= until_us or not mib or row is None:
            del world.growing[region]
            continue
        r.grow(row, mib)
        region_now = r.region(row)
        for store in region_now.stores - region_now.pending:
            world.nodes.use(r.at[store], mib)
    if not world.settings.simulated_stores:
        cut(world)


def cut(world: World) -> None:
    """Cut regions in half that are as large as TiKV lets them be; it asks PD for the ids of the new ones."""
    r, s = world.regions, world.settings
    if r.total_mib == world.checked_mib and r.count == world.checked_count:
        return
    large = (r.size[: r.n] >= s.split_mib) | (r.keys[: r.n] >= s.split_keys)
    for row in np.flatnonzero(large & r.alive[: r.n] & (r.leader[: r.n] >= 0)).tolist():
        if world.nodes.all[int(r.leader[row])].in_touch:
            world.split(row)
    world.checked_mib, world.checked_count = r.total_mib, r.count

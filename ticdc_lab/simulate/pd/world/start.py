"""What a run starts from: stores, regions as columns, and the settings of clocks, disks and limits besides PD's own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import inf
from types import MappingProxyType
from typing import TYPE_CHECKING, Annotated, NamedTuple

import numpy as np
from msgspec import Meta
from numpy.typing import NDArray

from ticdc_lab.pd_core.config import PATROL_REGIONS, Config
from ticdc_lab.pd_core.regions import NO_LABELS, RegionLabels
from ticdc_lab.pd_core.rules import Rule

if TYPE_CHECKING:
    from ticdc_lab.simulate.reading import Value

SECOND_US = 1_000_000
NEVER_US = 1 << 62


@dataclass(frozen=True, slots=True, kw_only=True)
class WorldSettings:
    """Periods and speeds of simulated stores and of PD's loops.

    The defaults are a cluster's in real time. The reference runs (`pd_notes.md` section 12) squeeze ten seconds
    of store time into one, see :data:`REFERENCE`.
    """

    tick_us: Annotated[int, Meta(ge=1)] = 100_000  # how often stores act, µs
    # Periods of the two heartbeats, µs; a region that changes is reported at the next tick besides
    store_heartbeat_us: Annotated[int, Meta(ge=1)] = 10 * SECOND_US
    region_heartbeat_us: Annotated[int, Meta(ge=1)] = 60 * SECOND_US
    # What a store reads or writes of snapshots in a tick, MiB, and for how many ticks it may save up
    io_mib_a_tick: Annotated[float, Meta(ge=0)] = 10.0
    io_burst_ticks: Annotated[int, Meta(ge=1)] = 10
    # What a store's disk gives to clients and snapshots together in a tick, MiB. Where clients want nothing, snapshots
    # are held by ``io_mib_a_tick`` alone.
    disk_mib_a_tick: Annotated[float, Meta(gt=0)] = 40.0
    remove_mib_a_tick: Annotated[float, Meta(gt=0)] = 100.0  # how fast a peer's data is deleted
    # Snapshots that a store sends and receives at a time
    sending: int = 3
    receiving: int = 5
    compression: Annotated[float, Meta(gt=0)] = 2.0  # a snapshot is so many times smaller where it arrives
    compaction_ticks: Annotated[int, Meta(ge=1)] = 600  # ticks after which the space of removed peers is free
    # Silence after which a region's leader reports a peer as down, with its next heartbeat; 0: as soon as it is silent,
    # as the leaders of PD's simulated stores do
    peer_down_after_s: Annotated[float, Meta(ge=0)] = 600.0
    # Whether a store that is silent while its peers are removed still has them when it comes back, until their regions'
    # next heartbeats report it. PD's simulated stores forget them.
    keeps_stale_peers: bool = True
    # The interval of rounds: the first after a success, 1.3 times more after each fruitless one, up to the second
    scheduler_least_us: int = 10_000
    scheduler_most_us: int = 5 * SECOND_US
    # How long a round takes PD itself, by chance between the two: the interval to the next one counts from its end.
    # Measured by the reference runs: with a token a second a store gains 166 to 170 peers in 178 s, since the
    # fourteenth round comes just behind the second and not at 1.28 s.
    round_us: tuple[int, int] = (1_000, 3_000)
    # The interval of rounds for hot regions; 1.3 times that after a fruitless one, and no more: PD counts from the
    # least interval each time, so that its greatest one, 20 s, is never reached
    hot_least_us: int = SECOND_US
    patrol_regions: Annotated[int, Meta(ge=1)] = (
        PATROL_REGIONS  # how many regions at a time the checkers advance; at least one 1024th of all
    )
    # How long a look of the checkers takes PD itself, on average. Measured by the reference runs: 290 regions that wait
    # for a store limit were walked 94 times a second where the machine was least busy.
    check_us: int = 36
    max_waiting: int = 5  # operators of one name that may wait (``scheduler-max-waiting-operator``)
    store_limit: tuple[float, float] = (15.0, 15.0)  # peers a minute that a store may gain and lose
    # A region of that size is cut in half
    split_mib: Annotated[float, Meta(gt=0)] = 144.0
    split_keys: Annotated[int, Meta(ge=1)] = 1_440_000
    # Whether regions are as in PD's simulated stores (tools/pd-simulator): cut at the last key of their range at the
    # next tick, where what is cut off keeps the old id of its leader, has its snapshots and takes what clients write; a
    # store gives up what it was at for a region that was cut, and never frees the place of its snapshot; a region that
    # merges takes all that was cut off its target with it; a store reports in the same tick what stores before it
    # changed
    simulated_stores: bool = False
    # The first id that PD gives to new peers and regions, where those that the simulated stores begin with, counted
    # from 1 on, are given once more: the region that had the id of a new one is lost. 0: no id is given twice.
    first_id: int = 0
    # Whether a joint change may demote the leader, as in TiKV; PD's simulated stores refuse it
    demotes_leaders: bool = True
    # A store must have been hot in so many samples, one every so many µs, before hot regions are moved
    hot_history_samples: Annotated[int, Meta(ge=1)] = 10
    hot_history_us: int = 30 * SECOND_US
    states_us: int = 10 * SECOND_US  # how often PD looks whether a store that is leaving is empty
    # An operator that finished within this time counts as influence for as long again
    fast_operator_us: int = 10 * SECOND_US
    # Whether a store that joins is Preparing until it has nine tenths of its share. PD's simulated stores report
    # themselves as serving.
    prepares: bool = True
    start_us: int = SECOND_US  # when PD begins to schedule
    # Bytes of a key with its value, to derive flows of keys and queries from bytes; 0: only bytes count
    row_bytes: Annotated[float, Meta(ge=0)] = 1024.0
    # PD counts the peers and leaders of stores behind its heartbeats: a round that comes within this time sees the old
    # numbers, which is why balance goes a little too far. Measured by the reference runs.
    counts_lag_us: int = 6_000
    # The part of heartbeats, and of PD's answers to them, that the network loses; `network.loss` of a scenario
    loss: float = 0.0

    def refuse(self, value: Value, given: Mapping[str, Value]) -> None:
        """Refuse a shortest round that is longer than the longest one."""
        if self.round_us[0] > self.round_us[1]:
            raise given["round"].wrong("two rising durations")


REFERENCE = WorldSettings(
    store_heartbeat_us=5 * SECOND_US, region_heartbeat_us=10 * SECOND_US, io_mib_a_tick=200.0, peer_down_after_s=0.0,
    row_bytes=0.0, prepares=False, keeps_stale_peers=False, disk_mib_a_tick=inf,
    simulated_stores=True, demotes_leaders=False,
)  # fmt: skip
"""The stores of the reference runs: a tick of 100 ms is a second of their disks."""


TIB_MIB = 1024.0 * 1024
KEYS_A_MIB = 10_000

_NONE: Mapping[str, str] = MappingProxyType({})


class StoreStart(NamedTuple):
    """A store at first: ``started`` is False where it joins later; ``foreign_mib`` is used by other files.

    ``amplified``: MiB of its disk that a MiB of regions takes.
    """

    id: int
    capacity_mib: float = TIB_MIB
    labels: Mapping[str, str] = _NONE
    started: bool = True
    foreign_mib: float = 0.0
    leader_weight: float = 1.0
    region_weight: float = 1.0
    amplified: float = 1.0


class RegionsStart(NamedTuple):
    """Regions at first, in key order, a row each.

    ``peers`` holds store ids, 0 for none; ``learner``: which of them have no vote. ``size`` is MiB, ``read`` and
    ``write`` are bytes a second.
    """

    size: NDArray[np.float64]
    keys: NDArray[np.int64]
    leader: NDArray[np.int32]
    peers: NDArray[np.int32]
    learner: NDArray[np.bool_]
    read: NDArray[np.float64]
    write: NDArray[np.float64]
    id: NDArray[np.int64]
    start_key: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Start:
    """A cluster before anything happens."""

    stores: tuple[StoreStart, ...]
    regions: RegionsStart
    config: Config = field(default_factory=Config)
    rules: tuple[Rule, ...] = ()
    settings: WorldSettings = field(default_factory=WorldSettings)
    labels: RegionLabels = NO_LABELS


def regions_of(
    peers: Sequence[Sequence[int]], leaders: Sequence[int], size: float | Sequence[float] = 96.0,
    learners: Sequence[Sequence[int]] = (),
) -> RegionsStart:  # fmt: skip
    """Give regions by the stores of their voters and learners, in key order.

    Parameters
    ----------
    peers
        Store ids of the voters of each region.
    leaders
        Store id of each region's leader, 0 for none.
    size
        MiB, of all or of each.
    learners
        Store ids of the learners of each region.
    """
    n = len(peers)
    more = learners or [()] * n
    width = max((len(p) + len(m) for p, m in zip(peers, more, strict=True)), default=1)
    stores, learner = np.zeros((n, width), np.int32), np.zeros((n, width), np.bool_)
    for i, (voters, others) in enumerate(zip(peers, more, strict=True)):
        stores[i, : len(voters) + len(others)] = [*voters, *others]
        learner[i, len(voters) : len(voters) + len(others)] = True
    sizes = np.broadcast_to(np.asarray(size, np.float64), (n,)).copy()
    nothing = np.zeros(n)
    leading = np.asarray(leaders, np.int32)
    ids = np.arange(1, n + 1, dtype=np.int64)
    return RegionsStart(
        sizes, (sizes * KEYS_A_MIB).astype(np.int64), leading, stores, learner, nothing, nothing.copy(), ids
    )


def spread_regions(n: int, stores: Sequence[int], replicas: int = 3, size: float = 96.0) -> RegionsStart:
    """Give regions whose peers go round the stores: as even as can be."""
    ids = np.asarray(stores, np.int32)
    peers = ids[(np.arange(n)[:, None] + np.arange(replicas)[None, :]) % len(ids)]
    nothing = np.zeros(n)
    return RegionsStart(
        np.full(n, float(size)), np.full(n, int(size * KEYS_A_MIB)), peers[:, 0].copy(), peers,
        np.zeros(peers.shape, np.bool_), nothing, nothing.copy(), np.arange(1, n + 1, dtype=np.int64),
    )  # fmt: skip

"""What a simulated cluster is made of besides PD's own settings: clocks, disks, limits."""

from __future__ import annotations

from dataclasses import dataclass
from math import inf

SECOND_US = 1_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class WorldSettings:
    """Periods and speeds of simulated stores and of PD's loops.

    The defaults are those of a cluster in real time. The reference runs (`pd_notes.md` section 12) squeeze ten seconds
    of store time into one, see :data:`REFERENCE`.

    Attributes
    ----------
    tick_us
        How often stores act, µs.
    store_heartbeat_us, region_heartbeat_us
        Periods of the two heartbeats, µs; a region that changes is reported at the next tick besides.
    io_mib_a_tick, io_burst_ticks
        What a store reads or writes of snapshots in a tick, MiB, and for how many ticks it may save up.
    disk_mib_a_tick
        What a store's disk gives to clients and snapshots together in a tick, MiB. Where clients want nothing,
        snapshots are held by ``io_mib_a_tick`` alone.
    remove_mib_a_tick
        How fast a peer's data is deleted.
    sending, receiving
        Snapshots that a store sends and receives at a time.
    compression
        A snapshot is so many times smaller where it arrives.
    compaction_ticks
        Ticks after which the space of removed peers is free.
    peer_down_after_s
        Silence after which a region's leader reports a peer as down, with its next heartbeat; 0: as soon as it is
        silent, as the leaders of PD's simulated stores do.
    keeps_stale_peers
        Whether a store that is silent while its peers are removed still has them when it comes back, until their
        regions' next heartbeats tell it. PD's simulated stores forget them.
    scheduler_least_us, scheduler_most_us
        The interval of rounds: the first after a success, 1.3 times more after each fruitless one, up to the second.
    hot_least_us, hot_most_us
        The same for hot regions.
    round_us
        How long a round takes PD itself, by chance between the two: the interval to the next one counts from its end.
        Measured by the reference runs: with a token a second a store gains 166 to 170 peers in 178 s, since the
        fourteenth round comes just behind the second and not at 1.28 s.
    patrol_us, patrol_regions
        How often, and how many regions at a time, the checkers go on; at least one 1024th of all.
    max_waiting
        Operators of one name that may wait (``scheduler-max-waiting-operator``).
    store_limit
        Peers a minute that a store may gain and lose.
    split_mib, split_keys
        A region of that size is cut in half.
    hot_history_samples, hot_history_us
        A store must have been hot in so many samples, one every so many µs, before hot regions are moved.
    states_us
        How often PD looks whether a store that is leaving is empty.
    fast_operator_us
        An operator that finished within this time counts as influence for as long again.
    prepares
        Whether a store that joins is Preparing until it has nine tenths of its share. PD's simulated stores say
        themselves that they serve.
    start_us
        When PD begins to schedule.
    counts_lag_us
        PD counts the peers and leaders of stores behind its heartbeats: a round that comes within this time sees the
        old numbers, which is why balance goes a little too far. Measured by the reference runs.
    loss
        The part of heartbeats, and of PD's answers to them, that the network loses; `network.loss` of a scenario.
    row_bytes
        Bytes of a key with its value, by which flows of bytes give those of keys and queries; 0: only bytes count.
    """

    tick_us: int = 100_000
    store_heartbeat_us: int = 10 * SECOND_US
    region_heartbeat_us: int = 60 * SECOND_US
    io_mib_a_tick: float = 10.0
    io_burst_ticks: int = 10
    disk_mib_a_tick: float = 40.0
    remove_mib_a_tick: float = 100.0
    sending: int = 3
    receiving: int = 5
    compression: float = 2.0
    compaction_ticks: int = 600
    peer_down_after_s: float = 600.0
    keeps_stale_peers: bool = True
    scheduler_least_us: int = 10_000
    scheduler_most_us: int = 5 * SECOND_US
    round_us: tuple[int, int] = (1_000, 3_000)
    hot_least_us: int = SECOND_US
    hot_most_us: int = 20 * SECOND_US
    patrol_us: int = 10_000
    patrol_regions: int = 128
    max_waiting: int = 5
    store_limit: tuple[float, float] = (15.0, 15.0)
    split_mib: float = 144.0
    split_keys: int = 1_440_000
    hot_history_samples: int = 10
    hot_history_us: int = 30 * SECOND_US
    states_us: int = 10 * SECOND_US
    fast_operator_us: int = 10 * SECOND_US
    prepares: bool = True
    start_us: int = SECOND_US
    row_bytes: float = 1024.0
    counts_lag_us: int = 12_000
    loss: float = 0.0


REFERENCE = WorldSettings(
    store_heartbeat_us=5 * SECOND_US, region_heartbeat_us=10 * SECOND_US, io_mib_a_tick=200.0, peer_down_after_s=0.0,
    row_bytes=0.0, prepares=False, keeps_stale_peers=False, disk_mib_a_tick=inf,
)  # fmt: skip
"""The stores of the reference runs: a tick of 100 ms is a second of their disks."""

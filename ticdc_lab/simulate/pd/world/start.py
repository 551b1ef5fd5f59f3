"""What a run starts from: stores, regions as columns, settings."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ticdc_lab.simulate.pd.config import Config
from ticdc_lab.simulate.pd.regions import Region, is_learner
from ticdc_lab.simulate.pd.rules import Rule
from ticdc_lab.simulate.pd.stores import MIB, Store
from ticdc_lab.simulate.pd.world.settings import WorldSettings

TIB_MIB = 1024.0 * 1024
_KEYS_A_MIB = 10_000

_NONE: Mapping[str, str] = MappingProxyType({})


class StoreStart(NamedTuple):
    """A store at first: ``started`` is False where it joins later; ``foreign_mib`` is used by other files."""

    id: int
    capacity_mib: float = TIB_MIB
    labels: Mapping[str, str] = _NONE
    started: bool = True
    foreign_mib: float = 0.0
    leader_weight: float = 1.0
    region_weight: float = 1.0


class RegionsStart(NamedTuple):
    """Regions at first, in key order, a row each.

    ``peers`` holds store ids, 0 for none; ``learner`` says which of them have no vote. ``size`` is MiB, ``read`` and
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
        sizes, (sizes * _KEYS_A_MIB).astype(np.int64), leading, stores, learner, nothing, nothing.copy(), ids
    )


def start_from(
    stores: Iterable[Store], regions: Iterable[Region], config: Config | None = None, rules: tuple[Rule, ...] = (),
    settings: WorldSettings | None = None,
) -> Start:  # fmt: skip
    """Give the start of a run from what PD knows: stores and regions as the core has them, in key order.

    Parameters
    ----------
    stores
        Labels, weights and space are taken; all of them run.
    regions
        Peers, leaders, sizes and keys.
    config, rules, settings
        Defaults where they are not given.
    """
    found, known = sorted(regions, key=lambda r: r.start_key), list(stores)
    there = tuple(
        StoreStart(s.id, s.capacity / MIB, s.labels, True, 0.0, s.leader_weight, s.region_weight) for s in known
    )  # fmt: skip
    columns = regions_of(
        [[p.store for p in r.peers if not is_learner(p)] for r in found], [r.leader for r in found],
        [r.size for r in found], [[p.store for p in r.peers if is_learner(p)] for r in found],
    )  # fmt: skip
    columns = columns._replace(
        id=np.array([r.id for r in found], np.int64), start_key=tuple(r.start_key for r in found),
        keys=np.array([r.keys for r in found], np.int64),
    )  # fmt: skip
    used = {s.id: s.used / MIB for s in known}
    held: dict[int, float] = defaultdict(float)
    for r in found:
        for p in r.peers:
            held[p.store] += r.size
    there = tuple(s._replace(foreign_mib=max(0.0, used.get(s.id, 0.0) - held[s.id])) for s in there)
    return Start(
        stores=there, regions=columns, config=config or Config(), rules=rules, settings=settings or WorldSettings()
    )  # fmt: skip


def spread_regions(n: int, stores: Sequence[int], replicas: int = 3, size: float = 96.0) -> RegionsStart:
    """Give regions whose peers go round the stores: as even as can be."""
    ids = np.asarray(stores, np.int32)
    peers = ids[(np.arange(n)[:, None] + np.arange(replicas)[None, :]) % len(ids)]
    nothing = np.zeros(n)
    return RegionsStart(
        np.full(n, float(size)), np.full(n, int(size * _KEYS_A_MIB)), peers[:, 0].copy(), peers,
        np.zeros(peers.shape, np.bool_), nothing, nothing.copy(), np.arange(1, n + 1, dtype=np.int64),
    )  # fmt: skip

"""What a run starts from: stores, regions as columns, settings."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ticdc_lab.simulate.pd.config import Config
from ticdc_lab.simulate.pd.rules import Rule
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


def spread_regions(n: int, stores: Sequence[int], replicas: int = 3, size: float = 96.0) -> RegionsStart:
    """Give regions whose peers go round the stores: as even as can be."""
    ids = np.asarray(stores, np.int32)
    peers = ids[(np.arange(n)[:, None] + np.arange(replicas)[None, :]) % len(ids)]
    nothing = np.zeros(n)
    return RegionsStart(
        np.full(n, float(size)), np.full(n, int(size * _KEYS_A_MIB)), peers[:, 0].copy(), peers, np.zeros(peers.shape, np.bool_),
        nothing, nothing.copy(), np.arange(1, n + 1, dtype=np.int64),
    )  # fmt: skip

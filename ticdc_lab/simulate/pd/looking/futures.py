"""What a run costs, in four numbers, and over time: for two futures beside each other."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

from ticdc_lab.simulate.pd.lifecycle import SUCCESS
from ticdc_lab.simulate.pd.looking.recording import (
    ClusterSample,
    Recording,
    even_from_us,
    excess,
    peers,
    region_targets,
)
from ticdc_lab.simulate.pd.measures import moved_back
from ticdc_lab.simulate.pd.world.running import moves_of
from ticdc_lab.simulate.pd.world.start import SECOND_US


class Costs(NamedTuple):
    """A run in numbers.

    Parameters
    ----------
    even_s
        From when on every store has its share of peers (within 5 %, and one), s; None: not at the end.
    moved_gib
        Data copied between stores.
    peak_mib_s
        The most that one store sent and received of snapshots between two samples, MiB/s: what its disk was busy with.
    peak_store
        Which store that was, 0 for none.
    thrash
        Moves of peers and leaders that the next one of the region took back within a minute.
    moves
        All moves of peers and leaders that were carried out.
    """

    even_s: float | None
    moved_gib: float
    peak_mib_s: float
    peak_store: int
    thrash: int
    moves: int


def costs(recording: Recording, *, from_us: int = 0) -> Costs:
    lives = [f for f in recording.lives if f.status == SUCCESS and f.finished_us >= from_us]
    even = even_from_us(recording)
    first, last = recording.at(from_us), recording.samples[-1]
    peak, store = peak_load([s for s in recording.samples if s.at_us >= from_us])
    moves = moved_back(moves_of(lives))
    even_s = None if even is None else max(0, even - from_us) / SECOND_US
    return Costs(even_s, (last.moved_mib - first.moved_mib) / 1024, peak, store, moves.back, moves.moves)


def peak_load(samples: Sequence[ClusterSample]) -> tuple[float, int]:
    """Give the most that a store sent and received of snapshots between two samples, MiB/s, and which store."""
    most, at = 0.0, 0
    for a, b in pairwise(samples):
        seconds = (b.at_us - a.at_us) / SECOND_US
        for store, io_mib in b.io_mib.items():
            rate = (io_mib - a.io_mib.get(store, 0.0)) / seconds if seconds else 0.0
            if rate > most:
                most, at = rate, store
    return most, at


class Curve(NamedTuple):
    """A run over time: seconds, how far the worst store is from its share (percent of the mean share), GiB copied."""

    times_s: list[float]
    off_percent: list[float]
    moved_gib: list[float]


def curve(recording: Recording) -> Curve:
    samples = recording.samples
    off = [100 * excess(peers(s), region_targets(s)) for s in samples]
    return Curve([s.at_us / SECOND_US for s in samples], off, [s.moved_mib / 1024 for s in samples])

"""What a run costs, in four numbers, and over time: for two futures beside each other."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import NamedTuple

from ticdc_lab.simulate.pd.lifecycle import SUCCESS
from ticdc_lab.simulate.pd.looking.recording import Recording
from ticdc_lab.simulate.pd.looking.shares import even_from_us, excess, peers, region_targets
from ticdc_lab.simulate.pd.world.running import Finished
from ticdc_lab.simulate.pd.world.settings import SECOND_US

WINDOW_S = 5.0


class Costs(NamedTuple):
    """A run in numbers.

    Parameters
    ----------
    even_s
        From when on every store has its share of peers (within 5 %, and one), s; None: not at the end.
    moved_gib
        Data copied between stores.
    peak_mib_s
        The most that one store took in and gave away in five seconds, MiB/s.
    peak_store
        Which store that was, 0 for none.
    thrash
        Moves of peers and leaders that a later one undid.
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
    """Count what a run cost from a moment on."""
    lives = [f for f in recording.lives if f.status == SUCCESS and f.finished_us >= from_us]
    even = even_from_us(recording)
    first, last = recording.at(from_us), recording.samples[-1]
    peak, store = peak_load(lives)
    moves = [f for f in lives if f.from_store and f.to_store]
    even_s = None if even is None else max(0, even - from_us) / SECOND_US
    return Costs(even_s, (last.moved_mib - first.moved_mib) / 1024, peak, store, undone(moves), len(moves))


def undone(moves: Sequence[Finished]) -> int:
    """Count moves of a region's peer, or leadership, that a later one took back."""
    last: dict[tuple[int, bool, int, int], int] = {}
    n = 0
    for f in sorted(moves, key=lambda f: f.finished_us):
        copies = any(step.startswith("add-") for step in f.steps)
        back = (f.region, copies, f.to_store, f.from_store)
        if last.pop(back, None) is not None:
            n += 1
        else:
            last[f.region, copies, f.from_store, f.to_store] = f.finished_us
    return n


def peak_load(lives: Sequence[Finished]) -> tuple[float, int]:
    """Give the most that a store took in and gave away in a window, MiB/s, and which store."""
    load: defaultdict[tuple[int, int], float] = defaultdict(float)
    for f in lives:
        if not any(step.startswith("add-") for step in f.steps):
            continue
        window = int(f.finished_us / (WINDOW_S * SECOND_US))
        for store in {f.from_store, f.to_store} - {0}:
            load[store, window] += f.size_mib
    if not load:
        return 0.0, 0
    (store, _), most = max(load.items(), key=lambda item: (item[1], -item[0][0]))
    return most / WINDOW_S, store


class Curve(NamedTuple):
    """A run over time: seconds, how far the worst store is from its share (percent of the mean share), GiB copied."""

    times_s: list[float]
    off_percent: list[float]
    moved_gib: list[float]


def curve(recording: Recording) -> Curve:
    """Give a run over time."""
    samples = recording.samples
    off = [100 * excess(peers(s), region_targets(s)) for s in samples]
    return Curve([s.at_us / SECOND_US for s in samples], off, [s.moved_mib / 1024 for s in samples])

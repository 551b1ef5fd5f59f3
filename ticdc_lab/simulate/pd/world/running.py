"""An operator on its way: its state, the step it is at, what it will have added to stores, and what became of it."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

from ticdc_lab.pd_core.cluster import NO_INFLUENCE, Effects, Influence, effects_of
from ticdc_lab.pd_core.lifecycle import CREATED, STARTED, SUCCESS, may_follow
from ticdc_lab.pd_core.measures import MoveMade, RunMoment, moved_back, since_when
from ticdc_lab.pd_core.operators import (
    AddLearner,
    EnterJoint,
    Kind,
    LeaveJoint,
    MergeRegion,
    Operator,
    PromoteLearner,
    RemovePeer,
    SplitRegion,
    Step,
    TransferLeader,
    kind_text,
    step_text,
)
from ticdc_lab.pd_core.regions import Region
from ticdc_lab.simulate.pd.world.start import SECOND_US


def effects_on_stores(step: Step, region: Region) -> Effects:
    """Give what a step adds to stores.

    A merge takes the region that stays off the counts of its stores, a split adds one: neither changes sizes.
    """
    if isinstance(step, SplitRegion) or (isinstance(step, MergeRegion) and step.passive):
        one = 1 if isinstance(step, SplitRegion) else -1
        led = {p.store: one if p.store == region.leader else 0 for p in region.peers}
        return tuple((store, Influence(0, one, 0, leaders)) for store, leaders in led.items())
    return effects_of(step, region.size)


class Sums:
    """Sums of influence a store."""

    def __init__(self) -> None:
        self.of: dict[int, Influence] = {}
        self.version = 0

    def add(self, effects: Iterable[tuple[int, Influence]], sign: int) -> None:
        self.version += 1
        for store, e in effects:
            self.of[store] = self.of.get(store, NO_INFLUENCE).plus(e, sign)


class Fast:
    """Operators that finished within ten seconds: they count for ten seconds more, the last one of each region."""

    def __init__(self, for_us: int) -> None:
        self.for_us = for_us
        self.latest: dict[int, tuple[int, Effects]] = {}
        self.expiring: deque[tuple[int, int]] = deque()
        self.sums = Sums()

    def push(self, region: int, effects: Effects, now_us: int) -> None:
        """Remember what an operator did; an older one of the same region is forgotten (tikv/pd#11133)."""
        if region in self.latest:
            self.sums.add(self.latest[region][1], -1)
        self.latest[region] = (now_us + self.for_us, effects)
        self.expiring.append((now_us + self.for_us, region))
        self.sums.add(effects, 1)

    def expire(self, now_us: int) -> None:
        while self.expiring and self.expiring[0][0] <= now_us:
            until_us, region = self.expiring.popleft()
            if region in self.latest and self.latest[region][0] == until_us:
                self.sums.add(self.latest.pop(region)[1], -1)


def together(one: Mapping[int, Influence], other: Mapping[int, Influence]) -> dict[int, Influence]:
    found = dict(one)
    for store, e in other.items():
        old = found.get(store)
        found[store] = e if old is None else old.plus(e)
    return found


CHECKER = "checker"
"""The source of operators that the checkers of single regions make."""


@dataclass(slots=True)
class OperatorLife:
    """An operator and its life; times in µs of virtual time.

    ``conf`` is the region's configuration version when it was made, ``conf_done`` how often its own steps changed it,
    ``keys`` its range then; ``effects`` are what each step will have added to stores, ``sends`` the
    store, by position, that sends the snapshots, and MiB (store limit v2), ``counted`` the limits that it takes up.
    """

    op: Operator
    row: int
    number: int
    created_us: int
    conf: int
    version: int
    because: str = ""
    source: str = ""
    status: str = CREATED
    at_step: int = 0
    conf_done: int = 0
    started_us: int = -1
    finished_us: int = -1
    ended_because: str = ""
    keys: tuple[str, str] = ("", "")
    effects: tuple[Effects, ...] = ()
    sends: tuple[int, float] | None = None
    counted: tuple[Kind, ...] = ()

    @property
    def step(self) -> Step | None:
        """The step it is at, None once all are done."""
        return self.op.steps[self.at_step] if self.at_step < len(self.op.steps) else None

    def become(self, status: str, now_us: int, because: str = "") -> None:
        """Go to another state; one that PD does not know of is an error of this simulator."""
        if not may_follow(self.status, status):
            raise IllegalTransition(f"operator {self.number} ({self.op.desc}): {self.status} -> {status}")
        self.status, self.ended_because = status, because
        if status != CREATED and self.started_us >= 0 and status != "started":
            self.finished_us = now_us


class IllegalTransition(Exception):
    """An operator went from one state to another that may not follow."""


class Finished(NamedTuple):
    """An operator's life as a row: why it was made and ended; ``from_store`` and ``to_store`` are 0 for none."""

    number: int
    desc: str
    brief: str
    kind: str
    priority: str
    region: int
    from_store: int
    to_store: int
    size_mib: float
    created_us: int
    started_us: int | None
    finished_us: int
    status: str
    because: str
    ended_because: str
    source_score: float | None
    target_score: float | None
    steps: tuple[str, ...]
    steps_done: int


def finished_of(r: OperatorLife, now_us: int) -> Finished:
    op = r.op
    source, target = ends_of(op)
    return Finished(
        r.number, op.desc, op.brief, kind_text(op.kind), op.priority.name.lower(), op.region, source, target, op.size,
        r.created_us, r.started_us if r.started_us >= 0 else None, now_us, r.status, r.because, r.ended_because,
        op.source_score, op.target_score, tuple(step_text(s) for s in op.steps), r.at_step,
    )  # fmt: skip


def moves_of(lives: Iterable[Finished]) -> list[MoveMade]:
    """Give the moves among operators that succeeded: those that copy a peer, and those that only move the leader."""
    return [
        MoveMade(f.region, not any(s.startswith("add-") for s in f.steps), f.from_store, f.to_store, f.started_us)
        for f in lives
        if f.status == SUCCESS and f.started_us is not None and f.from_store and f.to_store
    ]


class Future(NamedTuple):
    """What a run came to from some moment on; seconds count from there."""

    # Since when all stores are even (:func:`~ticdc_lab.pd_core.measures.uneven`); None: not at the end.
    peers_even_s: float | None
    leaders_even_s: float | None
    moved_mib: float  # data copied between stores: the regions whose snapshots arrived, each as large as it is
    peak_mib_s: dict[int, float]  # the most snapshot data that a store sent and received between two moments
    peak_leaders: dict[int, int]  # the most that each store had
    peak_peers: dict[int, int]
    operators: dict[str, int]  # started, by description
    failed: int  # cancelled, replaced or timed out after their start
    thrash: float  # the share of moves of peers and leaders that took back one of the last minute
    done_s: float | None  # when the last operator ended; None while some run
    moves: int  # moves of peers and leaders that were carried out
    moved_back: int  # those that took back one of the last minute

    @property
    def peak(self) -> tuple[float, int]:
        """The most of :attr:`peak_mib_s`, and which store that was, 0 for none."""
        store, rate = max(self.peak_mib_s.items(), key=lambda item: item[1], default=(0, 0.0))
        return rate, store if rate else 0


def measured(moments: Iterable[RunMoment], lives: Sequence[Finished], from_us: int = 0) -> Future:
    """Measure a run from a moment on; operators that still run at its end are among ``lives``, without an end."""
    told = list(moments)
    seen = [m for m in told if m.at_us >= from_us]
    moved_before = next((m.moved_mib for m in reversed(told) if m.at_us <= from_us), 0.0)

    def even_s(which: str) -> float | None:
        since = since_when((m.at_us, not getattr(m, which)) for m in seen)
        return None if since is None else (since - from_us) / SECOND_US

    peak_mib_s: dict[int, float] = {}
    for a, b in pairwise(seen):
        for store, io_mib in b.io_mib.items():
            rate = (io_mib - a.io_mib.get(store, 0.0)) / ((b.at_us - a.at_us) / SECOND_US)
            peak_mib_s[store] = max(peak_mib_s.get(store, 0.0), rate)
    started = [f for f in lives if f.started_us is not None and f.started_us >= from_us]
    moves = moved_back(m for m in moves_of(lives) if m.at_us >= from_us)
    ended = [f.finished_us for f in started]
    running = any(f.status == STARTED for f in started)
    return Future(
        even_s("uneven_peers"), even_s("uneven_leaders"), told[-1].moved_mib - moved_before,
        dict(sorted(peak_mib_s.items())), _most(m.leaders for m in seen), _most(m.peers for m in seen),
        dict(sorted(Counter(f.desc for f in started).items())),
        sum(f.status not in (SUCCESS, STARTED) for f in started), moves.thrash,
        None if running else max(((e - from_us) / SECOND_US for e in ended), default=0.0), moves.moves, moves.back,
    )  # fmt: skip


def _most(counts: Iterable[Mapping[int, int]]) -> dict[int, int]:
    found: dict[int, int] = {}
    for one in counts:
        for store, n in one.items():
            found[store] = max(found.get(store, 0), n)
    return dict(sorted(found.items()))


def ends_of(op: Operator) -> tuple[int, int]:
    """Give from where to where an operator moves something, 0 for nowhere."""
    adds = [s.store for s in op.steps if isinstance(s, AddLearner)]
    removes = [s.store for s in op.steps if isinstance(s, RemovePeer)]
    if adds or removes:
        return (removes or [0])[0], (adds or [0])[0]
    leads = [s for s in op.steps if isinstance(s, TransferLeader)]
    return (leads[0].from_store, leads[-1].to_store) if leads else (0, 0)


_QUICK = TransferLeader | PromoteLearner | EnterJoint | LeaveJoint
_QUICK_US, _SLOW_US = 2_000_000, 5_000_000


def told_again_after_us(step: Step) -> int:
    """Give after how long a step that is not done is sent again."""
    return _QUICK_US if isinstance(step, _QUICK) else _SLOW_US


def merges(op: Operator) -> MergeRegion | None:
    """Give the merge that an operator is about."""
    step = op.steps[-1]
    return step if isinstance(step, MergeRegion) else None


def conf_changes(r: OperatorLife, region: Region) -> int:
    """Count the changes of a region's configuration that are an operator's own: more has another cause."""
    done = sum(not isinstance(step, TransferLeader | MergeRegion | SplitRegion) for step in r.op.steps[: r.at_step])
    return done + (isinstance(r.step, AddLearner) and region.peer_on(r.step.store) is not None)

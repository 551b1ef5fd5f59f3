"""An operator on its way: its state, the step it is at, and what became of it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from ticdc_lab.simulate.pd.lifecycle import CREATED, may_follow
from ticdc_lab.simulate.pd.operators import (
    AddLearner,
    EnterJoint,
    LeaveJoint,
    MergeRegion,
    Operator,
    PromoteLearner,
    SplitRegion,
    Step,
    TransferLeader,
    kind_text,
)
from ticdc_lab.simulate.pd.regions import Region
from ticdc_lab.simulate.pd.replay.expected import step_text
from ticdc_lab.simulate.pd.world.influence import Effects

CHECKER = "checker"
"""The source of operators that the checkers of single regions make."""


@dataclass(slots=True)
class Running:
    """An operator and its life; times in µs of virtual time.

    ``conf`` is the region's configuration version when it was made, ``conf_done`` how often its own steps changed it,
    ``keys`` its range then; ``effects`` are what each step will have added to stores, ``sends`` the
    store, by position, that sends the snapshots, and MiB (store limit v2).
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
    told_us: int = -1
    ended_because: str = ""
    keys: tuple[str, str] = ("", "")
    effects: tuple[Effects, ...] = ()
    sends: tuple[int, float] | None = None

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

    def finished(self, now_us: int) -> Finished:
        """Tell its whole life."""
        return finished_of(self, now_us)


class IllegalTransition(Exception):
    """An operator went from one state to another that may not follow."""


class Finished(NamedTuple):
    """An operator's life as a row: ``from_store`` and ``to_store`` are 0 where they do not apply."""

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


def finished_of(r: Running, now_us: int) -> Finished:
    """Tell an operator's life."""
    op = r.op
    source, target = ends_of(op)
    return Finished(
        r.number, op.desc, op.brief, kind_text(op.kind), op.priority.name.lower(), op.region, source, target, op.size,
        r.created_us, r.started_us if r.started_us >= 0 else None, now_us, r.status, r.because, r.ended_because,
        op.source_score, op.target_score, tuple(step_text(s) for s in op.steps), r.at_step,
    )  # fmt: skip


def ends_of(op: Operator) -> tuple[int, int]:
    """Give from where to where an operator moves something, 0 for nowhere."""
    adds = [s.store for s in op.steps if type(s).__name__ == "AddLearner"]  # type: ignore[union-attr]
    removes = [s.store for s in op.steps if type(s).__name__ == "RemovePeer"]  # type: ignore[union-attr]
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


def conf_changes(r: Running, region: Region) -> int:
    """Count the changes of a region's configuration that are an operator's own: more is somebody else's doing."""
    done = sum(not isinstance(step, TransferLeader | MergeRegion | SplitRegion) for step in r.op.steps[: r.at_step])
    return done + (isinstance(r.step, AddLearner) and region.peer_on(r.step.store) is not None)

"""What is so at a moment of a run of the pipeline: the scheduler's facts, and what the auditor counts of rows."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

from ticdc_lab.machines.clock import us_of
from ticdc_lab.simulate.assertions import LOOK_US, Judge
from ticdc_lab.simulate.kernel import Kernel
from ticdc_lab.simulate.network import CALL
from ticdc_lab.simulate.pipeline.changefeeds.auditor import ChangefeedsAuditor
from ticdc_lab.simulate.pipeline.changefeeds.etcd import Changefeed
from ticdc_lab.simulate.pipeline.changefeeds.server import CaptureServerState
from ticdc_lab.simulate.pipeline.downstream import Rows
from ticdc_lab.simulate.pipeline.monitor import PipelineMonitor
from ticdc_lab.simulate.pipeline.observed import Moment, moment_of
from ticdc_lab.simulate.pipeline.run import PipelineRun
from ticdc_lab.simulate.pipeline.settings import BASE
from ticdc_lab.simulate.pipeline.tables import Cell, Change
from ticdc_lab.simulate.pipeline.tidb import TIDB
from ticdc_lab.simulate.pipeline.why import CURRENT_US, Why, why
from ticdc_lab.simulate.scheduler.etcd_messages import ETCD
from ticdc_lab.simulate.scheduler.facts import SchedulerFacts
from ticdc_lab.simulate.trace import Row

HOLD_US, KEPT = 100_000, 64
"""What holds a watermark is looked at so often while a scenario is judged, and so many samples show since when."""

# What came downstream against what was committed upstream: lost, repeated, overwritten by older versions; the end.


State = dict[int, tuple[Cell, ...]]


class RunOutcome(NamedTuple):
    """How a run ended downstream."""

    # Row changes up to the global checkpoint, and deliveries of any.
    committed: int
    delivered: int
    lost: int  # of those committed, never delivered
    repeated: int  # deliveries beyond the first
    regressed: int  # deliveries of a version that is older than what the row already had
    # Each delivery replaces the row (upsert, delete): the rows at the checkpoint are the upstream's.
    final_right_idempotent: bool
    # Each delivery adds what it changed to a sum (a balance, a counter): the sums are the upstream's.
    final_right_blind: bool

    def __str__(self) -> str:
        right = "right" if self.final_right_idempotent else "wrong"
        sums = "right" if self.final_right_blind else "wrong"
        return f"up to the checkpoint: {self.lost} rows lost; rows replaced are {right}, sums are {sums}"


def outcome(run: PipelineRun) -> RunOutcome:
    """Compare a run's downstream with its upstream, up to the global checkpoint."""
    delivered = [c for e in run.entries if isinstance(e, Rows) for c in e.changes]
    return compared(run.changes, delivered, run.checkpoint_ts)


def compared(truth: Iterable[Change], delivered: Iterable[Change], checkpoint_ts: int) -> RunOutcome:
    """Compare what was committed (in commit order) with what came (in its order of arrival)."""
    owed = [c for c in truth if c.commit_ts <= checkpoint_ts]
    came = list(delivered)
    counts = Counter((c.commit_ts, c.key) for c in came)
    settled = [c for c in came if c.commit_ts <= checkpoint_ts]
    return RunOutcome(
        len(owed),
        len(came),
        sum((c.commit_ts, c.key) not in counts for c in owed),
        sum(n - 1 for n in counts.values()),
        _regressed(came),
        _replaced(owed) == _replaced(settled),
        _summed(owed) == _summed(settled),
    )


def _regressed(changes: Iterable[Change]) -> int:
    newest: dict[int, int] = {}
    n = 0
    for change in changes:
        known = newest.get(change.key, 0)
        n += change.commit_ts < known
        newest[change.key] = max(known, change.commit_ts)
    return n


def _replaced(changes: Iterable[Change]) -> State:
    rows: State = {}
    for change in changes:
        if change.after is None:
            rows.pop(change.key, None)
        else:
            rows[change.key] = change.after
    return rows


def _summed(changes: Iterable[Change]) -> Counter[int]:
    """Per table: rows, and what numbers that are no key changed by, all added up."""
    sums: Counter[int] = Counter()
    for change in changes:
        sums[change.info.id] += _weight(change, change.after) - _weight(change, change.before)
    return sums


def _weight(change: Change, image: tuple[Cell, ...] | None) -> int:
    if image is None:
        return 0
    numbers = [c for c, column in zip(image, change.info.columns, strict=False) if not column.is_key]
    return 1_000_003 + sum(n for n in numbers if isinstance(n, int))


# The facts of a run, row by row.


@dataclass(slots=True)
class PipelineFacts(SchedulerFacts):
    """The present of a run: who owns, who replicates what, how far the checkpoint is, and the rows."""

    rule: str = BASE
    current_us: int = CURRENT_US
    kernel: Kernel = field(init=False)  # the world, from its beginning on
    ended: RunOutcome | None = None
    seen: dict[str, tuple[int, Why]] = field(default_factory=dict)
    looked: deque[Moment] = field(default_factory=lambda: deque(maxlen=KEPT))

    def begin(self, kernel: Kernel, judge: Judge) -> None:
        self.kernel = kernel
        self.auditor = self.monitor.scheduler
        look_now_and_then(kernel, judge)

    def end(self, run: PipelineRun) -> None:
        self.ended = outcome(run)
        self.changes += 1

    @property
    def monitor(self) -> PipelineMonitor:
        found = self.kernel.auditor
        assert isinstance(found, PipelineMonitor)
        return found

    @property
    def n_owed(self) -> int:
        return self.monitor.n_owed

    @property
    def load_is_done(self) -> bool:
        return clients_are_done(self.kernel, self.monitor)

    def holding(self, watermark: str, at_us: int) -> Why:
        known = self.seen.get(watermark)
        if known is None or known[0] // HOLD_US != at_us // HOLD_US:
            kernel = self.kernel
            live = {a: s for a, s in kernel.states.items() if a not in kernel.down}
            nodes = [n for n in kernel.machines if n.startswith(("capture", "tikv", ETCD))]
            moment = moment_of(at_us, live, nodes, kernel.paused.keys() - kernel.down, kernel.states.get(ETCD))
            if not self.looked or self.looked[-1].at_us < at_us:
                self.looked.append(moment)
            known = self.seen[watermark] = (
                at_us,
                why(list(self.looked), watermark=watermark, rule=self.rule, current_us=self.current_us),
            )
        return known[1]


def clients_are_done(kernel: Kernel, monitor: PipelineMonitor) -> bool:
    """Whether clients have nothing left to do."""
    state = kernel.states[kernel.address[TIDB]]
    return state.next >= len(monitor.items) and not state.open and not state.waiting


@dataclass(slots=True)
class ChangefeedsFacts:
    """The present of a run of several changefeeds; ``broken`` counts the invariants that are."""

    kernel: Kernel = field(init=False)
    broken: dict[str, int] = field(default_factory=dict)
    changes: int = 0

    def see(self, row: Row) -> None:
        if row.kind == "violated":
            self.broken[str(row.subject)] = self.broken.get(str(row.subject), 0) + 1
            self.changes += 1

    def begin(self, kernel: Kernel, judge: Judge) -> None:
        self.kernel = kernel
        look_now_and_then(kernel, judge)

    def end(self, run: PipelineRun) -> None:
        self.changes += 1

    @property
    def auditor(self) -> ChangefeedsAuditor:
        found = self.kernel.auditor
        assert isinstance(found, ChangefeedsAuditor)
        return found

    def changefeed(self, name: str) -> Changefeed | None:
        found: Changefeed | None = self.kernel.states[ETCD].changefeeds.get(name)
        return found

    def state(self, name: str) -> str:
        """Give ``normal``, ``stopped`` or, where it is not there, ``removed``."""
        found = self.changefeed(name)
        return "removed" if found is None else found.state

    def is_done(self, name: str) -> bool:
        """Whether clients have nothing left to do and all of it is downstream, DDLs too."""
        own = self.auditor.each[name]
        return clients_are_done(self.kernel, self.auditor.upstream) and not own.n_owed and not own.jobs

    def lag_us(self, name: str, at_us: int) -> int:
        """Measure how far the checkpoint is behind; 0 of an absent one."""
        found = self.changefeed(name)
        return max(0, at_us - us_of(found.checkpoint_ts)) if found else 0

    def imbalance(self) -> int:
        """Give the most tables of one changefeed that a capture has above another one."""
        live = [s for a, s in self.kernel.states.items() if a not in self.kernel.down]
        up = [s for s in live if isinstance(s, CaptureServerState)]
        names = sorted({name for s in up for name in s.running})
        counts = [[len(s.running[n].state.paths) if n in s.running else 0 for s in up] for n in names]
        return max((max(c) - min(c) for c in counts), default=0)


def look_now_and_then(kernel: Kernel, judge: Judge) -> None:
    """Let a judge look at a world while there is something to see, and at every bound of an assertion."""

    def look() -> None:
        judge.look(kernel.now_us, kernel.steps)

    def again() -> None:
        look()
        if kernel.queue and judge.watched:
            kernel.put(kernel.now_us + LOOK_US, CALL, again)

    if judge.watched:
        kernel.put(LOOK_US, CALL, again)
    for at_us in judge.bounds_us:
        kernel.put(at_us, CALL, look)

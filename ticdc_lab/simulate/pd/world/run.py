"""Running a cluster, running it again from some moment on, two futures side by side, and why nothing happens."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import pyarrow as pa

from ticdc_lab.simulate.kernel import End, Violation
from ticdc_lab.simulate.pd.world.changes import AppliedChange, ClusterChange, Pdctl, Timed
from ticdc_lab.simulate.pd.world.monitor import PdMonitor, Violated
from ticdc_lab.simulate.pd.world.patrol import SOON
from ticdc_lab.simulate.pd.world.pd_policies import DEFAULT_POLICIES
from ticdc_lab.simulate.pd.world.policy import LIMITS, Policy
from ticdc_lab.simulate.pd.world.recording import PLACEMENTS, REASONS, STORES, PdRecorder
from ticdc_lab.simulate.pd.world.running import Future, IllegalTransition, measured
from ticdc_lab.simulate.pd.world.start import SECOND_US, Start
from ticdc_lab.simulate.pd.world.stores import ADD, REMOVE
from ticdc_lab.simulate.pd.world.world import World
from ticdc_lab.simulate.runs import EndedRun
from ticdc_lab.simulate.trace import CHANGES
from ticdc_lab.words import count, percent


@dataclass(frozen=True, slots=True, kw_only=True)
class Watch:
    """How closely a run is watched."""

    sample_us: int = SECOND_US  # how often stores are sampled, µs; what happens does not depend on it
    placement_us: int | None = 0  # how often all regions are; 0: at the start and the end, None: never
    level: str = CHANGES  # of the trace (:mod:`ticdc_lab.simulate.trace`)
    monitor: bool = True  # whether invariants are checked; a violation ends the run
    # Whether what pictures need is kept: where all regions are at each sample, and each decision
    pictured: bool = False


@dataclass(frozen=True, eq=False, slots=True, kw_only=True)
class PdRun(EndedRun):
    """A run, and what it left; ``world`` is the cluster at the end: query it, or continue it."""

    start: Start
    changes: tuple[Timed, ...]
    policies: tuple[Policy, ...]
    watch: Watch
    world: World = field(repr=False)
    recorder: PdRecorder = field(repr=False)

    @property
    def stores(self) -> pa.Table:
        """:data:`~ticdc_lab.simulate.pd.world.recording.STORES`."""
        return pa.Table.from_pylist(self.recorder.stores, schema=STORES)

    @property
    def placements(self) -> pa.Table:
        """:data:`~ticdc_lab.simulate.pd.world.recording.PLACEMENTS`."""
        return pa.Table.from_pylist(self.recorder.placements, schema=PLACEMENTS)

    @property
    def reasons(self) -> pa.Table:
        """:data:`~ticdc_lab.simulate.pd.world.recording.REASONS`."""
        return pa.Table.from_pylist(self.recorder.reasons, schema=REASONS)

    @property
    def operators(self) -> pa.Table:
        """:data:`~ticdc_lab.simulate.pd.world.recording.OPERATORS`."""
        return self.recorder.operators()

    @property
    def happened(self) -> tuple[AppliedChange, ...]:
        """What came from outside, with PD's answers and refusals."""
        return tuple(self.world.happened)

    def again(
        self, at_us: int, changes: Iterable[ClusterChange | str] = (), *, policies: Sequence[Policy] | None = None,
        until_us: int | None = None,
    ) -> PdRun:  # fmt: skip
        """Run the same cluster again, other from a moment on.

        Parameters
        ----------
        at_us
            From when on.
        changes
            What happens then; texts are pd-ctl's words.
        policies
            Other schedulers, from the start on.
        until_us
            Another end.

        Returns
        -------
        Run
            The same up to ``at_us``, since it has the same seed.
        """
        more = tuple(Timed(at_us, Pdctl(c) if isinstance(c, str) else c) for c in changes)
        return simulate(
            self.start, self.until_us if until_us is None else until_us, seed=self.seed,
            changes=(*self.changes, *more), policies=self.policies if policies is None else policies, watch=self.watch,
        )  # fmt: skip


DEFAULT_WATCH = Watch()


def simulate(
    start: Start, until_us: int, *, seed: int = 1, changes: Iterable[Timed] = (),
    policies: Sequence[Policy] = DEFAULT_POLICIES, watch: Watch = DEFAULT_WATCH, name: str = "pd",
    on_sample: Callable[[World], bool | None] = lambda world: False,
) -> PdRun:  # fmt: skip
    """Run a cluster.

    Parameters
    ----------
    start
        What there is at first.
    until_us
        When the run ends, µs of virtual time.
    seed
        The only source of chance: the same arguments give the same run.
    changes
        What happens from outside.
    policies
        Schedulers.
    watch
        How closely it is watched.
    name
        In the trace.
    on_sample
        Called with the cluster at every sample; the run ends once it reports that all has settled.

    Examples
    --------
    >>> from ticdc_lab.simulate.pd.world import StoreStart, spread_regions
    >>> stores = tuple(StoreStart(i) for i in range(1, 5))
    >>> run = simulate(Start(stores=stores, regions=spread_regions(60, [1, 2, 3])), 60_000_000)
    >>> run.violation is None, run.operators.num_rows > 0
    (True, True)
    """
    timed = tuple(changes)
    world = World(start, seed, policies, timed)
    recorder = PdRecorder(world, f"{name} seed {seed}", watch.level, pictured=watch.pictured)
    world.recorder, world.monitor = recorder, PdMonitor(world) if watch.monitor else None
    found, because = None, "time"

    def settles() -> bool:
        recorder.sample()
        return bool(on_sample(world))

    try:
        settled = settles()
        if watch.placement_us is not None:
            recorder.place()
        placed_us = at_us = 0
        while at_us < until_us and not settled:
            at_us = min(at_us + watch.sample_us, until_us)
            world.run(at_us)
            settled = settles()
            if watch.placement_us and at_us - placed_us >= watch.placement_us:
                placed_us = at_us
                recorder.place()
            if world.monitor is not None:
                world.monitor.sums()
        if watch.placement_us is not None and placed_us < at_us:
            recorder.place()
        because = "settled" if settled else because
    except (Violated, IllegalTransition) as e:
        invariant, because = getattr(e, "invariant", "Legal Transitions"), "violation"
        found = Violation(invariant, getattr(e, "because", str(e)), world.tick, world.now_us)
        recorder.violated = invariant
        on_sample(world)
        recorder.row("violated", "pd", subject=invariant, because=found.because)
    end = End(because, world.now_us, world.ticks, found, found.because if found else "")
    return PdRun(
        start=start, seed=seed, changes=timed, policies=tuple(policies), until_us=until_us, watch=watch, world=world,
        recorder=recorder, end=end,
    )  # fmt: skip


def future(run: PdRun, from_us: int = 0) -> Future:
    """Measure a run from a moment on."""
    return measured(run.recorder.moments, run.recorder.lives, from_us)


def side_by_side(runs: dict[str, PdRun], from_us: int = 0) -> pa.Table:
    """Put runs side by side: a row a number, a column a run.

    Parameters
    ----------
    runs
        By name.
    from_us
        From when on they are measured.

    Returns
    -------
    pyarrow.Table
        ``what`` and a text column for each run.
    """
    told = {name: _told(future(run, from_us)) for name, run in runs.items()}
    names = list(dict.fromkeys(k for t in told.values() for k in t))
    columns: dict[str, list[str]] = {"what": names}
    for name, t in told.items():
        columns[name] = [t.get(k, "-") for k in names]
    return pa.table(columns)


def _told(f: Future) -> dict[str, str]:
    def seconds(value: float | None) -> str:
        return "not yet" if value is None else f"{value:.0f} s"

    return {
        "peers even after": seconds(f.peers_even_s), "leaders even after": seconds(f.leaders_even_s),
        "last operator ended after": seconds(f.done_s), "data copied between stores": f"{f.moved_mib / 1024:.1f} GiB",
        "peak of a store": f"{max(f.peak_mib_s.values(), default=0.0):.0f} MiB/s",
        "most leaders on a store": str(max(f.peak_leaders.values(), default=0)),
        "most peers on a store": str(max(f.peak_peers.values(), default=0)),
        "moved back within a minute": percent(f.thrash), "operators that failed": str(f.failed),
        **{f"operators: {desc}": str(n) for desc, n in f.operators.items()},
    }  # fmt: skip


class Holds(NamedTuple):
    """Something that keeps a cluster from doing more: who or what, and why."""

    what: str
    because: str


def why_nothing(world: World) -> list[Holds]:
    """Explain, for each scheduler and the checkers, why the last round made no operator, and the limits used up."""
    found = [
        Holds(name, s.last.because) for name, s in sorted(world.schedulers.items()) if not s.last.operators
    ]  # fmt: skip
    waiting = len(world.patrol.todo) + len(world.patrol.to_merge)
    soon = [r for r in world.patrol.reasons if SOON in r]
    if waiting:
        found.append(Holds("checkers", f"regions that wait: {waiting}" + (f": {soon[0]}" if soon else "")))
    for kind, name in LIMITS.items():
        limit = getattr(world.config, name)
        if world.controller.counts[kind] >= limit:
            found.append(
                Holds(name.replace("_", "-"), f"{world.controller.counts[kind]} operators run, the limit is {limit}")
            )
    closed = Counter(which for _, which in world.nodes.closed)
    for which, name in ((ADD, "add-peer"), (REMOVE, "remove-peer")):
        if closed[which]:
            found.append(Holds(f"store limit {name}", f"used up on {count(closed[which], 'store')}"))
    return found

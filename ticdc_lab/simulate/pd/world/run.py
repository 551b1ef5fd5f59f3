"""Running a cluster, and running it again from some moment on with other settings."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

import pyarrow as pa

from ticdc_lab.simulate.pd.world.changes import Change, Happened, Pdctl, Timed
from ticdc_lab.simulate.pd.world.monitor import Monitor, Violated
from ticdc_lab.simulate.pd.world.pd_policies import DEFAULT_POLICIES
from ticdc_lab.simulate.pd.world.policy import Policy
from ticdc_lab.simulate.pd.world.recording import PLACEMENTS, REASONS, STORES, Recording
from ticdc_lab.simulate.pd.world.running import IllegalTransition
from ticdc_lab.simulate.pd.world.settings import SECOND_US
from ticdc_lab.simulate.pd.world.start import Start
from ticdc_lab.simulate.pd.world.world import World
from ticdc_lab.simulate.trace import CHANGES


@dataclass(frozen=True, slots=True, kw_only=True)
class Watch:
    """How closely a run is watched.

    Attributes
    ----------
    sample_us
        How often stores are sampled, µs.
    placement_us
        How often all regions are; 0: at the start and the end, None: never.
    level
        Of the trace (:mod:`ticdc_lab.simulate.trace`).
    monitor
        Whether invariants are checked; a violation ends the run.
    """

    sample_us: int = SECOND_US
    placement_us: int | None = 0
    level: str = CHANGES
    monitor: bool = True


@dataclass(frozen=True, eq=False, slots=True)
class Run:
    """A run, and what it left: see :mod:`ticdc_lab.simulate.pd.world.recording` for the tables.

    ``world`` is the cluster at the end; ask it what you like, or go on with it.
    """

    start: Start
    seed: int
    changes: tuple[Timed, ...]
    policies: tuple[Policy, ...]
    until_us: int
    watch: Watch
    world: World = field(repr=False)
    recording: Recording = field(repr=False)
    violated: tuple[str, str] | None = None

    @property
    def stores(self) -> pa.Table:
        """:data:`~ticdc_lab.simulate.pd.world.recording.STORES`."""
        return pa.Table.from_pylist(self.recording.stores, schema=STORES)

    @property
    def operators(self) -> pa.Table:
        """:data:`~ticdc_lab.simulate.pd.world.recording.OPERATORS`."""
        return self.recording.operators()

    @property
    def placements(self) -> pa.Table:
        """:data:`~ticdc_lab.simulate.pd.world.recording.PLACEMENTS`."""
        return pa.Table.from_pylist(self.recording.placements, schema=PLACEMENTS)

    @property
    def reasons(self) -> pa.Table:
        """:data:`~ticdc_lab.simulate.pd.world.recording.REASONS`."""
        return pa.Table.from_pylist(self.recording.reasons, schema=REASONS)

    @property
    def trace(self) -> pa.Table:
        """:data:`ticdc_lab.simulate.trace.TRACE`."""
        return self.recording.recorder.table()

    @property
    def happened(self) -> tuple[Happened, ...]:
        """What came from outside, with PD's answers and refusals."""
        return tuple(self.world.happened)

    def again(
        self, at_us: int, changes: Iterable[Change | str] = (), *, policies: Sequence[Policy] | None = None,
        until_us: int | None = None,
    ) -> Run:  # fmt: skip
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
    on_sample: Callable[[World], None] = lambda world: None,
) -> Run:  # fmt: skip
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
        Called with the cluster at every sample.

    Examples
    --------
    >>> from ticdc_lab.simulate.pd.world import StoreStart, spread_regions
    >>> stores = tuple(StoreStart(i) for i in range(1, 5))
    >>> run = simulate(Start(stores=stores, regions=spread_regions(60, [1, 2, 3])), 60_000_000)
    >>> run.violated is None, run.operators.num_rows > 0
    (True, True)
    """
    timed = tuple(changes)
    world = World(start, seed, policies, timed)
    recording = Recording(world, f"{name} seed {seed}", watch.level)
    world.attach(recording, Monitor(world) if watch.monitor else None)
    violated = None
    try:
        _go(world, recording, until_us, watch, on_sample)
    except (Violated, IllegalTransition) as e:
        violated = getattr(e, "invariant", "Legal Transitions"), getattr(e, "because", str(e))
        recording.violated = violated[0]
        on_sample(world)
        recording.row("violated", "pd", subject=violated[0], because=violated[1])
    return Run(start, seed, timed, tuple(policies), until_us, watch, world, recording, violated)


def _go(world: World, recording: Recording, until_us: int, watch: Watch, on_sample: Callable[[World], None]) -> None:
    recording.sample()
    on_sample(world)
    if watch.placement_us is not None:
        recording.place()
    placed_us = at_us = 0
    while at_us < until_us:
        at_us = min(at_us + watch.sample_us, until_us)
        world.run(at_us)
        recording.sample()
        on_sample(world)
        if watch.placement_us and at_us - placed_us >= watch.placement_us:
            placed_us = at_us
            recording.place()
        if world.monitor is not None:
            world.monitor.sums()
    if watch.placement_us is not None and placed_us < at_us:
        recording.place()

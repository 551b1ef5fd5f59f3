"""What the runs of all models have in common: how one ended, how to have it again, and a scenario that has run."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, Self, TypedDict, TypeVar, cast

import pyarrow as pa

from ticdc_lab.simulate.assertions import Assertion, Judge, Outcome, Settling
from ticdc_lab.simulate.faults import Fault, replanned
from ticdc_lab.simulate.kernel import Auditor, End, Kernel, Violation
from ticdc_lab.simulate.machine import Machine
from ticdc_lab.simulate.network import CALL, Network
from ticdc_lab.simulate.scenario import Scenario
from ticdc_lab.simulate.trace import CHANGES, EVENTS, Recorder, Row

QUIET = Network()
SettingsOf = TypeVar("SettingsOf")


@dataclass(frozen=True, eq=False, slots=True, kw_only=True)
class SimulatedRun(Generic[SettingsOf]):
    """What happened.

    Attributes
    ----------
    settings, faults, seed, until_us, network, level
        What gives this run again.
    end
        How it ended.
    simulate
        Runs the same world with other of these, and all else as it was.
    """

    settings: SettingsOf
    faults: tuple[Fault, ...]
    seed: int
    until_us: int
    network: Network
    level: str
    end: End
    kernel: Kernel = field(repr=False)
    simulate: Callable[..., Any] = field(repr=False)

    @property
    def violation(self) -> Violation | None:
        """The invariant that does not hold, if one does not."""
        return self.end.violation

    @property
    def trace(self) -> pa.Table:
        """The trace as an Arrow table (:data:`ticdc_lab.simulate.trace.TRACE`)."""
        return self.kernel.recorder.table()

    @property
    def messages(self) -> int:
        """How many were sent."""
        return self.kernel.n_sent

    def again(self, at_us: int, faults: Sequence[Fault]) -> Self:
        """Run once more with other faults from ``at_us`` on: the same world up to there.

        Nodes that would have joined later still do, unless another ``Join`` says when: without one they would be there
        from the beginning.

        Raises
        ------
        ValueError
            A new fault lies before ``at_us``.
        """
        found: Self = self.simulate(
            faults=replanned(self.faults, at_us, faults), seed=self.seed, until_us=self.until_us, network=self.network,
            level=self.level,
        )  # fmt: skip
        return found


class Ran(TypedDict):
    """What :class:`SimulatedRun` has of a world that has run."""

    faults: tuple[Fault, ...]
    seed: int
    until_us: int
    network: Network
    level: str
    end: End
    kernel: Kernel


def ran(
    machines: Mapping[str, Machine[Any]],
    auditor: Auditor,
    recorder: Recorder,
    *,
    faults: tuple[Fault, ...],
    seed: int,
    until_us: int,
    network: Network,
    step_limit: int,
    begun: Callable[[Kernel], None] | None = None,
) -> Ran:
    """Let a world begin, and run it to its end."""
    kernel = Kernel(
        machines, network=network, faults=faults, seed=seed, auditor=auditor, recorder=recorder, step_limit=step_limit
    )
    if begun is not None:
        begun(kernel)
    return Ran(
        end=kernel.run(until_us), faults=faults, seed=seed, until_us=until_us, network=network, level=recorder.level,
        kernel=kernel,
    )  # fmt: skip


SETTLED_LOOK_US = 500_000
"""How often it is asked whether a run has settled: so much later than it has it may end."""

SWARM = "swarm"
"""Stands for the file of a scenario that a seed has drawn (:mod:`ticdc_lab.simulate.swarm`)."""

RunOf = TypeVar("RunOf")
FactsOf = TypeVar("FactsOf")


@dataclass(frozen=True, eq=False, slots=True)
class Played(Generic[RunOf, FactsOf]):
    """A scenario that has run.

    Attributes
    ----------
    run
        What happened; its trace is empty unless it was kept.
    outcomes
        Of the assertions, in the file's order; ``also`` are those of more that the caller asked for.
    facts
        How things stood at the end.
    """

    scenario: Scenario
    seed: int
    run: RunOf
    outcomes: tuple[Outcome, ...]
    also: tuple[Outcome, ...]
    facts: FactsOf = field(repr=False)

    @property
    def held(self) -> bool:
        """Whether every assertion held, no invariant was violated and the run came to its end."""
        run, facts = cast(Any, self.run), cast(Any, self.facts)
        return all(o.held for o in self.outcomes) and not facts.broken and run.end.because != "steps"

    @property
    def messages(self) -> int:
        """How many were sent."""
        return int(cast(Any, self.run).messages)

    @property
    def again(self) -> str:
        """The command that gives this run again."""
        return command(self.scenario, self.seed)

    @property
    def trace(self) -> pa.Table:
        """:data:`ticdc_lab.simulate.trace.TRACE`."""
        return cast(Any, self.run).trace


class Shown(list[Row]):
    """The rows of a run, each shown to a judge as it comes, and kept only if asked for."""

    def __init__(self, judge: Judge, *, keep: bool) -> None:
        super().__init__()
        self.judge = judge
        self.keep = keep

    def append(self, row: Row) -> None:
        """Take a row."""
        self.judge.see(row)
        if self.keep:
            super().append(row)

    def extend(self, rows: Iterable[Row]) -> None:
        """Take the rows of a stretch of messages."""
        for row in rows:
            self.append(row)


def judged(
    scenario: Scenario,
    facts: Any,
    simulate: Callable[..., RunOf],
    *,
    seed: int,
    keep: bool,
    level: str | None,
    also: Sequence[Assertion],
    begun: Callable[[Kernel, Judge], None] | None = None,
    ended: Callable[[RunOf], None] = lambda run: None,
) -> tuple[RunOf, tuple[Outcome, ...], tuple[Outcome, ...]]:
    """Run a scenario and judge it while it goes on.

    Parameters
    ----------
    facts
        Of the model, kept row by row.
    simulate
        The model's, with what is of this model alone.
    seed, keep, level, also
        As for :func:`ticdc_lab.simulate.scheduler.model.play`.
    begun, ended
        Given the world before anything happens in it, and the run before its end is judged.

    Returns
    -------
    tuple
        The run, and the outcomes of the file's assertions and of those that the caller asked for.
    """
    judge = Judge([*scenario.assertions, *also], facts)
    recorder = recorder_of(scenario, seed, judge, keep=keep, level=level)

    def begins(kernel: Kernel) -> None:
        if begun is not None:
            begun(kernel, judge)
        if scenario.settling is not None:
            end_settled(kernel, judge, scenario.settling)

    run = simulate(
        seed=seed, until_us=scenario.until_us, network=scenario.network.network(), level=recorder.level,
        recorder=recorder, step_limit=scenario.step_limit, begun=begins,
    )  # fmt: skip
    ended(run)
    end: End = cast(Any, run).end
    outcomes, n = tuple(judge.end(end.time_us, end.steps)), len(scenario.assertions)
    return run, outcomes[:n], outcomes[n:]


def end_settled(kernel: Kernel, judge: Judge, settling: Settling) -> None:
    """Let a run end when it has settled; it is looked at every :data:`SETTLED_LOOK_US`."""

    def look() -> None:
        kernel.settled = judge.has_settled(kernel.now_us, settling)
        kernel.put(kernel.now_us + SETTLED_LOOK_US, CALL, look)

    kernel.put(settling.quiet_us + settling.for_us, CALL, look)


def recorder_of(scenario: Scenario, seed: int, judge: Judge, *, keep: bool, level: str | None) -> Recorder:
    """Give the recorder of a run; without a level it takes messages where they are kept or counted by an assertion."""
    level = level or (EVENTS if keep or counts_messages(scenario) else CHANGES)
    variant = f" {scenario.variant}" if len(scenario.model.variants) > 1 else ""
    recorder = Recorder(f"{scenario.name}{variant} seed {seed}", level)
    recorder.rows = Shown(judge, keep=keep)
    return recorder


def counts_messages(scenario: Scenario) -> bool:
    """Whether an assertion needs messages in the trace."""
    return any("messages" in a.text for a in scenario.assertions)


def command(scenario: Scenario, seed: int) -> str:
    """Give the command that gives a run again."""
    of = "--swarm" if scenario.file == SWARM else scenario.file
    words = ["ticdc-lab", "simulate", scenario.model.name, of, "--seed", str(seed)]
    for path, value in scenario.changes:
        words += ["--set", f"{path}={value}"]
    return shlex.join(words)

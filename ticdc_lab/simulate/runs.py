"""What the runs of all models have in common: how one ended, how to have it again, and a scenario that has run."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from importlib import import_module
from typing import Any, Generic, Self, TypedDict, TypeVar

import pyarrow as pa

from ticdc_lab.machines.machine import Machine
from ticdc_lab.simulate.assertions import Assertion, Facts, Judge, Outcome
from ticdc_lab.simulate.faults import Chaos, Fault, replanned
from ticdc_lab.simulate.kernel import Auditor, End, Kernel, Violation
from ticdc_lab.simulate.network import CALL, Network
from ticdc_lab.simulate.scenario import Scenario
from ticdc_lab.simulate.trace import CHANGES, EVENTS, Recorder, Row

QUIET = Network()
SettingsOf = TypeVar("SettingsOf")


@dataclass(frozen=True, eq=False, slots=True, kw_only=True)
class EndedRun:
    """What happened, in any model."""

    # What gives this run again, beside what is of its model.
    seed: int
    until_us: int
    end: End  # how it ended
    recorder: Recorder = field(repr=False)  # what took the trace

    @property
    def violation(self) -> Violation | None:
        """The invariant that does not hold, if one does not."""
        return self.end.violation

    @property
    def messages(self) -> int | None:
        """How many messages were sent; None where the model counts none."""
        return None

    @property
    def trace(self) -> pa.Table:
        """The trace as an Arrow table (:data:`ticdc_lab.simulate.trace.TRACE`)."""
        return self.recorder.table()


class How(TypedDict, total=False):
    """How a world is run, beside what is in it: the same gives the same run, byte for byte."""

    faults: Sequence[Fault]  # what goes wrong and what users do
    chaos: Chaos | None  # faults that the seed draws besides
    seed: int  # draws delays, losses and the faults of ``chaos``
    network: Network  # how messages travel
    level: str  # how much the trace holds (:mod:`ticdc_lab.simulate.trace`)
    recorder: Recorder | None  # takes the trace; one of this level where it is left out
    name: str  # of the run in its trace; variant and seed where it is left out
    step_limit: int  # see :class:`ticdc_lab.simulate.kernel.Kernel`
    stops_at_violation: bool  # whether the run ends there, as it does where it is left out
    sample_us: int | None  # how often the states of all nodes are kept for pictures; None for never
    begun: Callable[[Kernel], None] | None  # is given the world before anything happens in it


@dataclass(frozen=True, eq=False, slots=True, kw_only=True)
class SimulatedRun(EndedRun, Generic[SettingsOf]):
    """What happened in the kernel."""

    # What gives this run again.
    settings: SettingsOf
    faults: tuple[Fault, ...]
    network: Network
    kernel: Kernel = field(repr=False)
    monitor: Any = field(repr=False)  # the model's auditor, with what it counted
    simulate: Callable[..., Any] = field(repr=False)  # runs the same world with other of these, and all else as it was

    @property
    def messages(self) -> int:
        """How many were sent."""
        return self.kernel.post.n_sent

    def again(self, at_us: int, faults: Sequence[Fault]) -> Self:
        """Run once more with other faults from ``at_us`` on: the same world up to there.

        Nodes that would have joined later still do, unless another ``Join`` has a time: without one they would be there
        from the beginning.

        Raises ValueError: a new fault lies before ``at_us``.
        """
        found: Self = self.simulate(
            faults=replanned(self.faults, at_us, faults), seed=self.seed, until_us=self.until_us, network=self.network,
            level=self.recorder.level,
        )  # fmt: skip
        return found


SimulatedOf = TypeVar("SimulatedOf", bound=SimulatedRun[Any])


def faults_in(how: How, draw: Callable[[Chaos, int], Iterable[Fault]]) -> tuple[Fault, ...]:
    """Give the faults of a run, those too that ``draw`` makes of its chaos and its seed."""
    chaos = how.get("chaos")
    return *how.get("faults", ()), *(draw(chaos, how.get("seed", 0)) if chaos else ())


def ran(
    of: type[SimulatedOf], simulate: Callable[..., Any], machines: Mapping[str, Machine[Any]], auditor: Auditor,
    planned: tuple[Fault, ...], until_us: int, how: How, *, title: str, **own: Any,
) -> SimulatedOf:  # fmt: skip
    """Let a world begin, and run it to its end; ``own`` are the fields that a model's run has besides."""
    if unknown := how.keys() - How.__annotations__.keys():
        raise TypeError(f"simulate() has no argument {', '.join(sorted(unknown))}")
    seed, network = how.get("seed", 0), how.get("network", QUIET)
    recorder = how.get("recorder") or Recorder(how.get("name") or f"{title} seed {seed}", how.get("level", EVENTS))
    kernel = Kernel(
        machines, network=network, faults=planned, seed=seed, auditor=auditor, recorder=recorder,
        step_limit=how.get("step_limit", 50_000_000), sample_us=how.get("sample_us"),
    )  # fmt: skip
    if begun := how.get("begun"):
        begun(kernel)
    kept = {name: how[name] for name in ("step_limit", "stops_at_violation", "sample_us") if name in how}
    fields: dict[str, Any] = {"faults": planned, "monitor": auditor} | own
    return of(
        end=kernel.run(until_us), seed=seed, until_us=until_us, network=network, recorder=recorder, kernel=kernel,
        simulate=partial(simulate, name=recorder.run, **kept), **fields,
    )  # fmt: skip


SETTLED_LOOK_US = 500_000
"""How often it is asked whether a run has settled: so much later than it has it may end."""

SWARM = "swarm"
"""Replaces the file of a scenario that a seed has drawn (:mod:`ticdc_lab.simulate.swarm`)."""

RunOf = TypeVar("RunOf", bound=EndedRun)
FactsOf = TypeVar("FactsOf")
PlayedOf = TypeVar("PlayedOf")


@dataclass(frozen=True, eq=False, slots=True)
class Played(Generic[RunOf, FactsOf]):
    """A scenario that has run."""

    scenario: Scenario
    seed: int
    run: RunOf  # what happened; its trace is empty unless it was kept
    # Of the assertions, in the file's order; ``also`` are of more that the caller asked for.
    outcomes: tuple[Outcome, ...]
    also: tuple[Outcome, ...]
    facts: FactsOf = field(repr=False)  # the state at the end

    @property
    def held(self) -> bool:
        """Whether every assertion held, no invariant was violated and the run came to its end."""
        end = self.run.end
        return all(o.held for o in self.outcomes) and end.violation is None and end.because != "steps"

    @property
    def numbers(self) -> dict[str, Any] | None:
        """What the run came to in numbers, where its model measures any."""
        return None

    @property
    def again(self) -> str:
        """The command that gives this run again."""
        return command(self.scenario, self.seed)

    @property
    def trace(self) -> pa.Table:
        """:data:`ticdc_lab.simulate.trace.TRACE`."""
        return self.run.trace


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


@dataclass(frozen=True, slots=True, kw_only=True)
class Staged(Generic[PlayedOf]):
    """What a model brings to one run of a scenario."""

    facts: Facts  # of the model, kept row by row
    simulate: Callable[..., Any]  # the model's, with what is of this model alone
    played: Callable[..., PlayedOf]  # makes of run, outcomes and ``also`` what the model gives
    # How much the trace has by default; None where that depends on whether it is kept.
    level: str | None = None
    # Given the world before anything happens in it, and the run before its end is judged.
    begun: Callable[[Kernel, Judge], None] | None = None
    ended: Callable[[Any], None] = lambda run: None


@dataclass(frozen=True, slots=True)
class Play(Generic[PlayedOf]):
    """Runs scenarios of a model, and judges them while they run; ``stage`` makes one ready for a seed."""

    stage: Callable[..., Staged[PlayedOf]]

    def __reduce__(self) -> tuple[Callable[[str, str], Any], tuple[str, str]]:
        """Travel by name, as a function does; ``stage`` was written under it."""
        where = self.stage.__module__, self.stage.__qualname__
        assert _of_module(*where) is self, f"{'.'.join(where)} is another: what runs scenarios has its function's name"
        return _of_module, where

    def __call__(
        self,
        scenario: Scenario,
        *,
        seed: int | None = None,
        keep: bool = True,
        level: str | None = None,
        also: Sequence[Assertion] = (),
        **how: Any,
    ) -> PlayedOf:
        """Run a scenario and judge it.

        ``scenario``: of this model. ``seed``: instead of the scenario's own; draws what clients and users do too.
        ``keep``: whether the trace is kept; a run of millions of steps needs no memory without it. ``level``: how much
        the trace holds; ``events``, or, where nothing is kept and no assertion counts messages, ``changes``. ``also``:
        more to judge. ``how``: of the model: pipeline and changefeeds keep the states of all nodes every ``sample_us``,
        for pictures and explanations.
        """
        seed = scenario.seed if seed is None else seed
        staged = self.stage(scenario, seed, **how)
        judge = Judge([*scenario.assertions, *also], staged.facts)
        level = level or staged.level or (EVENTS if keep or counts_messages(scenario) else CHANGES)
        variant = f" {scenario.variant}" if len(scenario.model.variants) > 1 else ""
        recorder = Recorder(f"{scenario.name}{variant} seed {seed}", level)
        recorder.rows = Shown(judge, keep=keep)

        def begins(kernel: Kernel) -> None:
            if staged.begun is not None:
                staged.begun(kernel, judge)
            if (settling := scenario.settling) is not None:

                def look() -> None:
                    kernel.settled = judge.has_settled(kernel.now_us, settling)
                    kernel.put(kernel.now_us + SETTLED_LOOK_US, CALL, look)

                kernel.put(settling.quiet_us + settling.for_us, CALL, look)

        run = staged.simulate(
            seed=seed, until_us=scenario.until_us, network=scenario.network.network(), level=recorder.level,
            recorder=recorder, step_limit=scenario.step_limit, begun=begins,
        )  # fmt: skip
        staged.ended(run)
        outcomes, n = tuple(judge.end(run.end.time_us, run.end.steps)), len(scenario.assertions)
        return staged.played(run, outcomes[:n], outcomes[n:])


def _of_module(module: str, name: str) -> Any:
    return getattr(import_module(module), name)


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

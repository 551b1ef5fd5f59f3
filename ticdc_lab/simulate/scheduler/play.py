"""Play a scenario of the table scheduler: one run, its assertions judged while it goes on."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import pyarrow as pa

from ticdc_lab.simulate.assertions import Assertion, Judge, Outcome
from ticdc_lab.simulate.recorder import CHANGES, EVENTS, Recorder, Row
from ticdc_lab.simulate.scenario import Scenario
from ticdc_lab.simulate.scheduler.facts import Facts
from ticdc_lab.simulate.scheduler.monitor import Measures
from ticdc_lab.simulate.scheduler.narrative import last_state
from ticdc_lab.simulate.scheduler.run import Run, simulate
from ticdc_lab.simulate.scheduler.translation import faults_of, network_of, settings_of


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


@dataclass(frozen=True, eq=False, slots=True)
class Played:
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
    run: Run
    outcomes: tuple[Outcome, ...]
    also: tuple[Outcome, ...]
    facts: Facts = field(repr=False)

    @property
    def held(self) -> bool:
        """Whether every assertion held, no invariant was violated and the run came to its end."""
        return all(o.held for o in self.outcomes) and not self.facts.broken and self.run.end.because != "steps"

    @property
    def again(self) -> str:
        """The command that gives this run again."""
        return command("scheduler", self.scenario, self.seed)

    @property
    def measures(self) -> Measures:
        """What tables had of writers."""
        return self.run.measures

    @property
    def messages(self) -> int:
        """How many were sent."""
        return self.run.messages

    @property
    def last(self) -> list[str]:
        """How things stood at the end, in sentences."""
        return last_state(self.facts)

    @property
    def trace(self) -> pa.Table:
        """:data:`ticdc_lab.simulate.trace.TRACE`."""
        return self.run.trace


def command(model: str, scenario: Scenario, seed: int) -> str:
    """Give the command that gives a run again."""
    words = ["ticdc-lab", "simulate", model, scenario.file, "--seed", str(seed)]
    for path, value in scenario.changes:
        words += ["--set", f"{path}={value}"]
    return shlex.join(words)


def counts_messages(scenario: Scenario) -> bool:
    """Whether an assertion needs messages in the trace."""
    return any("messages" in a.text for a in scenario.assertions)


def play(
    scenario: Scenario,
    *,
    seed: int | None = None,
    keep: bool = True,
    level: str | None = None,
    also: Sequence[Assertion] = (),
) -> Played:
    """Run a scenario and judge it.

    Parameters
    ----------
    scenario
        Of the model ``scheduler``.
    seed
        Instead of the scenario's own.
    keep
        Whether the trace is kept; a run of millions of steps needs no memory without it.
    level
        How much the trace holds; ``events``, or, where nothing is kept and no assertion counts messages, ``changes``.
    also
        More to judge.
    """
    seed = scenario.seed if seed is None else seed
    facts = scenario.model.facts(scenario.cluster, scenario.events)
    assert isinstance(facts, Facts)
    judge = Judge([*scenario.assertions, *also], facts)
    level = level or (EVENTS if keep or counts_messages(scenario) else CHANGES)
    recorder = Recorder(f"{scenario.name} {scenario.variant} seed {seed}", level)
    recorder.rows = Shown(judge, keep=keep)
    run = simulate(
        settings_of(scenario), faults=faults_of(scenario, seed), seed=seed, until_us=scenario.until_us,
        network=network_of(scenario.network), level=level, recorder=recorder, step_limit=scenario.step_limit,
    )  # fmt: skip
    outcomes, n = tuple(judge.end(run.end.time_us)), len(scenario.assertions)
    return Played(scenario, seed, run, outcomes[:n], outcomes[n:], facts)

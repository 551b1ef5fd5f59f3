"""Play a scenario of the table scheduler: one run, its assertions judged while it goes on."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from ticdc_lab.simulate import runs
from ticdc_lab.simulate.assertions import Assertion
from ticdc_lab.simulate.scenario import Scenario
from ticdc_lab.simulate.scheduler.facts import Facts
from ticdc_lab.simulate.scheduler.monitor import Measures
from ticdc_lab.simulate.scheduler.narrative import Line, last_state, narrative
from ticdc_lab.simulate.scheduler.run import Run, simulate
from ticdc_lab.simulate.scheduler.translation import faults_of, settings_of


class Played(runs.Played[Run, Facts]):
    """A scenario of the table scheduler that has run."""

    __slots__ = ()

    @property
    def measures(self) -> Measures:
        """What tables had of writers."""
        return self.run.measures

    @property
    def happened(self) -> list[Line]:
        """What happened, in sentences."""
        return narrative(self.run.kernel.recorder.rows)

    @property
    def last(self) -> list[str]:
        """How things stood at the end, in sentences."""
        return last_state(self.facts)


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
    run = partial(simulate, settings_of(scenario), faults=faults_of(scenario, seed))
    found = runs.judged(scenario, facts, run, seed=seed, keep=keep, level=level, also=also)
    return Played(scenario, seed, *found, facts)

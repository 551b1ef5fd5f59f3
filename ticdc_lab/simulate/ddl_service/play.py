"""Play a scenario of DDL as a Service: one run, its assertions judged while it goes on."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from ticdc_lab.simulate import runs
from ticdc_lab.simulate.assertions import Assertion, Judge
from ticdc_lab.simulate.ddl_service.facts import ServiceFacts
from ticdc_lab.simulate.ddl_service.narrative import last_state, narrative
from ticdc_lab.simulate.ddl_service.run import Run, simulate
from ticdc_lab.simulate.ddl_service.translation import faults_of, settings_of
from ticdc_lab.simulate.scenario import Scenario
from ticdc_lab.simulate.scheduler.narrative import Line


class Measures(NamedTuple):
    """What clusters had of owners: time with two of them, and with none after their first, over all clusters."""

    overlap_us: int
    gap_us: int
    doubled_us: int | None = None


class Played(runs.Played[Run, ServiceFacts]):
    """A scenario of the service that has run."""

    __slots__ = ()

    @property
    def measures(self) -> Measures:
        """What clusters had of owners; two at once end a run."""
        return Measures(0, self.facts.unowned.until(self.run.end.time_us))

    @property
    def happened(self) -> list[Line]:
        """What happened, in sentences."""
        return narrative(self.run.kernel.recorder.rows)

    @property
    def last(self) -> list[str]:
        """How things stood at the end, in sentences."""
        return last_state(self.facts, self.run.end.time_us)


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
        Of the model ``ddl-service``.
    seed, keep, level, also
        As for :func:`ticdc_lab.simulate.scheduler.play.play`; the seed draws what users do too.
    """
    seed = scenario.seed if seed is None else seed
    facts = scenario.model.facts(scenario.cluster, scenario.events)
    assert isinstance(facts, ServiceFacts)
    facts.settings = settings_of(scenario)
    judge = Judge([*scenario.assertions, *also], facts)
    recorder = runs.recorder_of(scenario, seed, judge, keep=keep, level=level)
    run = simulate(
        facts.settings, faults=faults_of(scenario, seed), seed=seed, until_us=scenario.until_us,
        network=scenario.network.network(), level=recorder.level, recorder=recorder, step_limit=scenario.step_limit,
        begun=facts.begin,
    )  # fmt: skip
    outcomes, n = tuple(judge.end(run.end.time_us)), len(scenario.assertions)
    return Played(scenario, seed, run, outcomes[:n], outcomes[n:], facts)

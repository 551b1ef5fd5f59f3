"""The table scheduler as scenarios know it: what may be said of it, and how one is played."""

from __future__ import annotations

from functools import partial
from importlib import import_module

from ticdc_lab.simulate import runs
from ticdc_lab.simulate.reading import Reader
from ticdc_lab.simulate.scenario import Model, Scenario
from ticdc_lab.simulate.scheduler import vocabulary
from ticdc_lab.simulate.scheduler.balance import POLICIES
from ticdc_lab.simulate.scheduler.etcd_messages import KeepAlive, KeptAlive, PutStatus, Register, Resign, Status, View
from ticdc_lab.simulate.scheduler.facts import SchedulerFacts
from ticdc_lab.simulate.scheduler.monitor import INVARIANTS, WriterMeasures
from ticdc_lab.simulate.scheduler.narrative import PlayedCaptures, last_state
from ticdc_lab.simulate.scheduler.planned import EVENTS
from ticdc_lab.simulate.scheduler.run import SchedulerRun, simulate
from ticdc_lab.simulate.scheduler.scenario import SchedulerCluster, facts_of, faults_of, settings_of
from ticdc_lab.simulate.scheduler.variants import VARIANTS, SchedulerSettings

FIGURES = (
    "sequence_diagram",
    "ownership_gantt",
    "watermark_curves",
    "grafana_panels",
    "scheduling_stepped",
    "why_stuck",
)
"""Functions of :mod:`ticdc_lab.figures` that draw a trace."""
RANDOM = ("crash", "restart", "pause", "part", "lossy", "refuse", "skew")
_ETCD = (Register, KeepAlive, KeptAlive, Resign, PutStatus, View, Status)


def messages(variant: str) -> frozenset[str]:
    """Give the names of a variant's messages and of those to and from etcd."""
    package = "ticdc_lab.simulate.scheduler"
    module = import_module(f"{package}.messages" if variant == "v2" else f"{package}.{variant}.messages")
    own = [
        c
        for c in vars(module).values()
        if isinstance(c, type) and hasattr(c, "_fields") and c.__module__ == module.__name__
    ]
    return frozenset(c.__name__ for c in (*own, *_ETCD))


_V3 = {r"settings(\.scheduler)?\.(max_task_concurrency|add_table_batch_size)": "it is of v3 alone"}
_V4 = {
    r"settings(\.scheduler)?\.(batch_size|coordinator)": "it is of v4 alone",
    r"events\[\d+\]\.move_maintainer": "it is of v4 with a coordinator",
    r"events\[\d+\]\.(split_table|merge_spans)": "v4 alone divides tables",
}
_BALANCES = {
    r"settings(\.scheduler)?\.balance\.(policy|move_cost|at_most)": "it balances by count, as its TiCDC does",
    r"(cluster\.tables|events)\[\d+\]\.traffic": "it balances by count, whatever tables write",
}
_VERSIONS = {
    r"settings(\.scheduler)?\.version|cluster\.versions|events\[\d+\]\.version": "its nodes do not compare versions"
}
REFUSED = {"v2": _V3 | _V4, "v3": _V4 | _BALANCES, "v4": _V3 | _BALANCES | _VERSIONS}
"""What variants have no use for."""


class PlayedScheduler(PlayedCaptures[SchedulerRun, SchedulerFacts]):
    """A scenario of the table scheduler that has run."""

    __slots__ = ()

    @property
    def measures(self) -> WriterMeasures:
        """What tables had of writers."""
        return self.run.measures

    @property
    def last(self) -> list[str]:
        """How things stood at the end, in sentences."""
        return last_state(self.facts)


@runs.Play
def play(scenario: Scenario, seed: int) -> runs.Staged[PlayedScheduler]:
    facts = scenario.model.facts(scenario.cluster, scenario.events)
    assert isinstance(facts, SchedulerFacts)
    run = partial(simulate, settings_of(scenario), faults=faults_of(scenario, seed))
    return runs.Staged(facts=facts, simulate=run, played=partial(PlayedScheduler, scenario, seed, facts=facts))


MODEL = Model(
    name="scheduler",
    variants=tuple(VARIANTS),
    cluster=lambda value: Reader().record(value, SchedulerCluster),
    tables=lambda c: frozenset(t.id for t in c.tables),
    settings=SchedulerSettings,
    unsettled=("variant", "captures", "tables", "versions", "traffic"),
    choices={"policy": POLICIES},
    events=EVENTS,
    random=RANDOM,
    messages=messages,
    claim=vocabulary.VOCABULARY.claim,
    measure=vocabulary.VOCABULARY.measure,
    facts=facts_of,
    invariants=(*INVARIANTS, "One Owner a Revision", "Responses Match Orders"),
    figures=frozenset(FIGURES),
    play=play,
    steady=vocabulary.STEADY,
    balanced=vocabulary.BALANCED,
    refused=REFUSED,
)

"""DDL as a Service as scenarios know it."""

from __future__ import annotations

from ticdc_lab.simulate.ddl_service import scenario_cluster, vocabulary
from ticdc_lab.simulate.ddl_service.mischief import KINDS
from ticdc_lab.simulate.ddl_service.monitor import INVARIANTS
from ticdc_lab.simulate.ddl_service.planned import EVENTS
from ticdc_lab.simulate.ddl_service.play import play
from ticdc_lab.simulate.ddl_service.store_messages import Answer, Request
from ticdc_lab.simulate.ddl_service.world import Settings
from ticdc_lab.simulate.scenario import Model

FIGURES = ("fleet_map", "assignment_gantt", "schema_timeline", "sequence_diagram")
"""Functions of :mod:`ticdc_lab.figures` that draw a trace."""
RANDOM = ("crash", "restart", "pause", "part", "lossy", "refuse", "skew", *KINDS)


def messages(variant: str) -> frozenset[str]:
    """Give the names of messages to and from a store."""
    return frozenset(c.__name__ for kinds in (Request, Answer) for c in kinds.__args__)


MODEL = Model(
    name="ddl-service",
    variants=("proposal",),
    cluster=scenario_cluster.cluster,
    tables=lambda c: frozenset(),
    settings=Settings,
    unsettled=("workers", "clusters", "servers", "slow", "joining", "unregistered", "versions"),
    choices={},
    events=EVENTS,
    random=RANDOM,
    messages=messages,
    claim=vocabulary.VOCABULARY.claim,
    measure=vocabulary.VOCABULARY.measure,
    facts=scenario_cluster.facts,
    invariants=INVARIANTS,
    figures=frozenset(FIGURES),
    play=play,
    load=scenario_cluster.load,
    steady=vocabulary.STEADY,
    balanced=vocabulary.BALANCED,
)

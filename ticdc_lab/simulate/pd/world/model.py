"""A cluster under PD as scenarios know it."""

from __future__ import annotations

from ticdc_lab.simulate.pd.world import scenario_cluster, vocabulary
from ticdc_lab.simulate.pd.world.monitor import INVARIANTS
from ticdc_lab.simulate.pd.world.play import play
from ticdc_lab.simulate.pd.world.scenario_events import EVENTS
from ticdc_lab.simulate.pd.world.settings import WorldSettings
from ticdc_lab.simulate.scenario import Model

MODEL = Model(
    name="pd",
    variants=("pd",),
    cluster=scenario_cluster.cluster,
    tables=lambda c: frozenset(),
    settings=WorldSettings,
    unsettled=("store_limit", "loss"),
    choices={},
    events=EVENTS,
    random=(),
    messages=lambda variant: frozenset(),
    claim=vocabulary.VOCABULARY.claim,
    measure=vocabulary.VOCABULARY.measure,
    facts=scenario_cluster.facts,
    invariants=INVARIANTS,
    figures=frozenset(),
    play=play,
    steady=vocabulary.STEADY,
    balanced=vocabulary.BALANCED,
    refused={
        "pd": {
            r"network\.(delay|duplicate|reorder|transport|links)": "heartbeats and answers take a tick, or are lost",
            "step_limit": "a run ends at `until`, however many operators it makes",
        }
    },
)

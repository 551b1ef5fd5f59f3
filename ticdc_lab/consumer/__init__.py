"""What ends up downstream: a model of consumers over a log, and real ones that replay it into databases."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ticdc_lab.lazily import lazily

if TYPE_CHECKING:
    from ticdc_lab.consumer.causes import delivery_causes
    from ticdc_lab.consumer.consumption import (
        Scenario,
        consumer_anomalies,
        consumer_matrix,
        consumer_steps,
        consumption,
        matrix,
    )
    from ticdc_lab.consumer.episodes import delivery_episodes
    from ticdc_lab.consumer.listeners import Crash, Listeners, Pause, Rebalance
    from ticdc_lab.consumer.policy import POLICIES, Policy
    from ticdc_lab.consumer.replay import Replayed, replay
    from ticdc_lab.consumer.replay_compare import Compared, compare
    from ticdc_lab.consumer.sinks.open import open_sink
    from ticdc_lab.consumer.study import Study

__all__ = [
    "POLICIES",
    "Compared",
    "Crash",
    "Listeners",
    "Pause",
    "Policy",
    "Rebalance",
    "Replayed",
    "Scenario",
    "Study",
    "compare",
    "consumer_anomalies",
    "consumer_matrix",
    "consumer_steps",
    "consumption",
    "delivery_causes",
    "delivery_episodes",
    "matrix",
    "open_sink",
    "replay",
]

lazily(
    __name__,
    __all__,
    {
        "Compared": "replay_compare",
        "Crash": "listeners",
        "Listeners": "listeners",
        "POLICIES": "policy",
        "Pause": "listeners",
        "Policy": "policy",
        "Rebalance": "listeners",
        "Replayed": "replay",
        "Scenario": "consumption",
        "Study": "study",
        "compare": "replay_compare",
        "consumer_anomalies": "consumption",
        "consumer_matrix": "consumption",
        "consumer_steps": "consumption",
        "delivery_causes": "causes",
        "delivery_episodes": "episodes",
        "matrix": "consumption",
        "open_sink": "sinks.open",
    },
)

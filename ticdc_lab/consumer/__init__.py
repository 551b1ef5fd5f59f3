"""What ends up downstream: a model of consumers over a log, and real ones that replay it into databases."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ticdc_lab.lazily import lazily

if TYPE_CHECKING:
    from ticdc_lab.consumer.anomalies import anomalies, smallest
    from ticdc_lab.consumer.cases import CASES, NO_FILTER, case_results, consumed
    from ticdc_lab.consumer.consistency import invariant_curve, measure_of
    from ticdc_lab.consumer.ddl_timeline import ddl_timeline
    from ticdc_lab.consumer.downstream import frames_of, held_by_partition, small_frame, why_waiting
    from ticdc_lab.consumer.episodes import delivery_causes, delivery_episodes
    from ticdc_lab.consumer.listener import Crash, Listeners, Pause, Rebalance
    from ticdc_lab.consumer.model import run
    from ticdc_lab.consumer.policy import POLICIES, Policy
    from ticdc_lab.consumer.replay import Replayed, open_sink, replay
    from ticdc_lab.consumer.replay_compare import Compared, compare
    from ticdc_lab.consumer.study import (
        Scenario,
        Study,
        consumer_anomalies,
        consumer_matrix,
        consumer_steps,
        consumption,
        matrix,
    )
    from ticdc_lab.consumer.target_compare import ComparedTargets, compare_targets

__all__ = [
    "CASES", "NO_FILTER", "POLICIES", "Compared", "ComparedTargets", "Crash", "Listeners", "Pause", "Policy",
    "Rebalance", "Replayed", "Scenario", "Study", "anomalies", "case_results", "compare", "compare_targets", "consumed",
    "consumer_anomalies", "consumer_matrix", "consumer_steps", "consumption", "ddl_timeline", "delivery_causes",
    "delivery_episodes", "frames_of", "held_by_partition", "invariant_curve", "matrix", "measure_of", "open_sink",
    "replay", "run", "small_frame", "smallest", "why_waiting",
]  # fmt: skip

lazily(__name__, __all__)

"""Another number of partitions while a changefeed runs, on a recorded log (MQ design: Partition 扩容与缩容)."""

from __future__ import annotations

from ticdc_lab.repartition.compare import compared, consumed, consumer_findings, examined, writes
from ticdc_lab.repartition.cost import Cost, Moves, cost_of, moves, staying_share
from ticdc_lab.repartition.expand import Expansion, expand, rule_of, rules_found, rules_recorded
from ticdc_lab.repartition.plan import PROCEDURES, PartitionPlan, Processor, Timing

__all__ = [
    "PROCEDURES", "Cost", "Expansion", "Moves", "PartitionPlan", "Processor", "Timing", "compared", "consumed",
    "consumer_findings", "cost_of", "examined", "expand", "moves", "rule_of", "rules_found", "rules_recorded",
    "staying_share", "writes",
]  # fmt: skip

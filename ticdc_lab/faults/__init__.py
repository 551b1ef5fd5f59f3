"""Faults of producers, brokers and recordings, planted into a log without any: what an audit must find."""

from __future__ import annotations

from ticdc_lab.faults.plan import Expected, FaultLog, PlantedFault
from ticdc_lab.faults.plant import KINDS, UNSEEN, plan_fault, plant, read_log, with_faults

__all__ = ["KINDS", "UNSEEN", "Expected", "FaultLog", "PlantedFault", "plan_fault", "plant", "read_log", "with_faults"]

"""TiCDC's dispatch rules on recorded events: what another dispatcher would have done."""

from __future__ import annotations

from ticdc_lab.dispatch.conflict import conflict_placements
from ticdc_lab.dispatch.conflict_alignments import alignments
from ticdc_lab.dispatch.guarantees import GUARANTEES, SEED_GUARANTEES, balance, guarantees, skew
from ticdc_lab.dispatch.infer import infer_rules, move_causes
from ticdc_lab.dispatch.rules import Rule, dispatch_by_rules, rules_from_config
from ticdc_lab.dispatch.strategies import STRATEGIES, check_strategy, dispatch
from ticdc_lab.dispatch.whatif import WhatIf

__all__ = [
    "GUARANTEES",
    "SEED_GUARANTEES",
    "STRATEGIES",
    "Rule",
    "WhatIf",
    "alignments",
    "balance",
    "check_strategy",
    "conflict_placements",
    "dispatch",
    "dispatch_by_rules",
    "guarantees",
    "infer_rules",
    "move_causes",
    "rules_from_config",
    "skew",
]

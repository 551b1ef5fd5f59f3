"""TiCDC's dispatch rules on recorded events: what another dispatcher would have done."""

from __future__ import annotations

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
    "balance",
    "check_strategy",
    "dispatch",
    "dispatch_by_rules",
    "guarantees",
    "infer_rules",
    "move_causes",
    "rules_from_config",
    "skew",
]

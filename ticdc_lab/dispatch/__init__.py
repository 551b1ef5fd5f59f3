"""TiCDC's dispatch rules on recorded events: what another dispatcher would have done."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ticdc_lab.lazily import lazily

if TYPE_CHECKING:
    from ticdc_lab.dispatch.changefeed import Changefeed, changefeed_from_toml, read_changefeed
    from ticdc_lab.dispatch.conflict import alignments, conflict_placements
    from ticdc_lab.dispatch.dispatching import dispatch, dispatch_by_rules
    from ticdc_lab.dispatch.guarantees import balance, guarantees, skew
    from ticdc_lab.dispatch.infer import infer_rules, move_causes
    from ticdc_lab.dispatch.names import STRATEGIES, check_strategy
    from ticdc_lab.dispatch.rules import Rule, rules_from_config
    from ticdc_lab.dispatch.settings import key_update_counts, setting_effects, with_settings, without_old_value
    from ticdc_lab.dispatch.topics import shared_topics, topic_balance
    from ticdc_lab.dispatch.whatif import WhatIf

__all__ = [
    "STRATEGIES", "Changefeed", "Rule", "WhatIf", "alignments", "balance", "changefeed_from_toml", "check_strategy",
    "conflict_placements", "dispatch", "dispatch_by_rules", "guarantees", "infer_rules", "key_update_counts",
    "move_causes", "read_changefeed", "rules_from_config", "setting_effects", "shared_topics", "skew", "topic_balance",
    "with_settings", "without_old_value",
]  # fmt: skip

lazily(__name__, __all__)

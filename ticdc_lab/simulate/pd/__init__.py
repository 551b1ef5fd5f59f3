"""PD in virtual time, by the rules of :mod:`ticdc_lab.pd_core`, and records of the real PD judged by them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ticdc_lab.lazily import lazily

if TYPE_CHECKING:
    from ticdc_lab.pd_core.balance import unfit
    from ticdc_lab.pd_core.before_after import before_after
    from ticdc_lab.pd_core.create import move_peer
    from ticdc_lab.pd_core.explained import Explained
    from ticdc_lab.pd_core.operators import Kind
    from ticdc_lab.pd_core.pd_ctl_json import from_folder
    from ticdc_lab.pd_core.regions import Peer
    from ticdc_lab.simulate.pd.looking.decisions import decision_at, wanting
    from ticdc_lab.simulate.pd.looking.own_cluster import changed, own_futures
    from ticdc_lab.simulate.pd.looking.recording import costs, peers, why_operator, why_region
    from ticdc_lab.simulate.pd.looking.time_left import time_left
    from ticdc_lab.simulate.pd.looking.tryout import changes_at, real_runs, reference_cases, said, scenario_cases, tried
    from ticdc_lab.simulate.pd.world.changes import ReadFlow, WriteFlow
    from ticdc_lab.simulate.pd.world.pd_policies import BALANCE_LEADER_POLICY, DEFAULT_POLICIES
    from ticdc_lab.simulate.pd.world.policy import NOTHING, Answer, Policy
    from ticdc_lab.simulate.pd.world.run import simulate
    from ticdc_lab.simulate.pd.world.start import Start

__all__ = [
    "BALANCE_LEADER_POLICY", "DEFAULT_POLICIES", "NOTHING", "Answer", "Explained", "Kind", "Peer", "Policy", "ReadFlow",
    "Start", "WriteFlow", "before_after", "changed", "changes_at", "costs", "decision_at", "from_folder", "move_peer",
    "own_futures", "peers", "real_runs", "reference_cases", "said", "scenario_cases", "simulate", "time_left", "tried",
    "unfit", "wanting", "why_operator", "why_region",
]  # fmt: skip

lazily(__name__, __all__)

"""A whole cluster: PD with simulated stores, in virtual time and with one source of chance.

::

    start = Start(stores=tuple(StoreStart(i) for i in range(1, 6)), regions=spread_regions(600, [1, 2, 3]))
    run = simulate(start, 600 * SECOND_US, changes=[Timed(60 * SECOND_US, Pdctl("store limit all 60"))])
    run.stores, run.operators, run.placements, run.reasons, run.trace      # Arrow tables
    faster = run.again(120 * SECOND_US, ["store limit all 200"])
    side_by_side({"as it is": run, "limit 200": faster}, 120 * SECOND_US)
    pdctl(run.world, "scheduler describe balance-region-scheduler")
"""

from ticdc_lab.simulate.pd.world.changes import (
    Grow,
    Pdctl,
    ReadFlow,
    ResumeStore,
    StartStore,
    StopStore,
    Timed,
    UsePolicy,
    WriteFlow,
)
from ticdc_lab.simulate.pd.world.pd_policies import DEFAULT_POLICIES
from ticdc_lab.simulate.pd.world.pdctl import pdctl
from ticdc_lab.simulate.pd.world.pdctl_config import Refused
from ticdc_lab.simulate.pd.world.policy import Answer, Policy, SeenCluster
from ticdc_lab.simulate.pd.world.reference import on_reference
from ticdc_lab.simulate.pd.world.run import PdRun, Watch, future, side_by_side, simulate, why_nothing
from ticdc_lab.simulate.pd.world.running import Future
from ticdc_lab.simulate.pd.world.start import (
    REFERENCE,
    SECOND_US,
    RegionsStart,
    Start,
    StoreStart,
    WorldSettings,
    regions_of,
    spread_regions,
)
from ticdc_lab.simulate.pd.world.world import World

__all__ = [
    "DEFAULT_POLICIES", "REFERENCE", "SECOND_US", "Answer", "Future", "Grow", "PdRun", "Pdctl", "Policy", "ReadFlow",
    "Refused", "RegionsStart", "ResumeStore", "SeenCluster", "Start", "StartStore", "StopStore", "StoreStart",
    "Timed", "UsePolicy", "Watch", "World", "WorldSettings", "WriteFlow", "future", "on_reference", "pdctl",
    "regions_of", "side_by_side", "simulate", "spread_regions", "why_nothing",
]  # fmt: skip

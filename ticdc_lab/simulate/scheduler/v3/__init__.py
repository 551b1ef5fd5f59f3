"""The two-phase scheduler of TiCDC 6.2 and later ("v3"): a table moves by Prepare and Commit, without a gap.

:class:`Coordinator` is the owner's machine, :class:`Agent` the processor's; both take a :class:`Settings`.
"""

from ticdc_lab.simulate.scheduler.v3.agent import Agent, AgentState, Failing, Leave
from ticdc_lab.simulate.scheduler.v3.coordinator import Coordinator, CoordinatorState
from ticdc_lab.simulate.scheduler.v3.messages import DispatchTableResponse, HeartbeatResponse
from ticdc_lab.simulate.scheduler.v3.settings import Region, Settings

TO_OWNER = (DispatchTableResponse, HeartbeatResponse)
"""The messages that are for the owner's machine; all others of this protocol are for the processor's."""

__all__ = [
    "TO_OWNER",
    "Agent",
    "AgentState",
    "Coordinator",
    "CoordinatorState",
    "Failing",
    "Leave",
    "Region",
    "Settings",
]

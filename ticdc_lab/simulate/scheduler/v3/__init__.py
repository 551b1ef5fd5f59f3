"""The two-phase scheduler of TiCDC 6.2 and later ("v3"): a table moves by Prepare and Commit, without a gap.

:class:`V3Coordinator` is the owner's machine, :class:`V3Agent` the processor's; both take a :class:`V3Settings`.
"""

from ticdc_lab.simulate.scheduler.v3.agent import Failing, Leave, V3Agent, V3AgentState
from ticdc_lab.simulate.scheduler.v3.coordinator import V3Coordinator, V3CoordinatorState
from ticdc_lab.simulate.scheduler.v3.messages import DispatchTableResponse, HeartbeatResponse
from ticdc_lab.simulate.scheduler.v3.settings import V3Settings

TO_OWNER = (DispatchTableResponse, HeartbeatResponse)
"""The messages that are for the owner's machine; all others of this protocol are for the processor's."""

__all__ = [
    "TO_OWNER", "Failing", "Leave", "V3Agent", "V3AgentState", "V3Coordinator", "V3CoordinatorState", "V3Settings",
]  # fmt: skip

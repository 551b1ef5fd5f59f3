"""The newer TiCDC: a coordinator places maintainers, a maintainer drives dispatchers with operators.

Names, operators, barriers and drains are from pingcap/ticdc (master, 2026).
"""

from ticdc_lab.simulate.scheduler.v4.coordinator import TO_COORDINATOR, V4Coordinator
from ticdc_lab.simulate.scheduler.v4.maintainer import Maintainer, MaintainerState
from ticdc_lab.simulate.scheduler.v4.messages import BlockStatusRequest, HeartBeatRequest, MaintainerBootstrapResponse
from ticdc_lab.simulate.scheduler.v4.node import Dispatchers, DispatchersState, NodeManager
from ticdc_lab.simulate.scheduler.v4.settings import V4Settings

TO_OWNER = (MaintainerBootstrapResponse, HeartBeatRequest, BlockStatusRequest)
"""The messages that are for the maintainer of a capture; all others are for its dispatchers."""

__all__ = [
    "TO_COORDINATOR", "TO_OWNER", "Dispatchers", "DispatchersState", "Maintainer", "MaintainerState", "NodeManager",
    "V4Coordinator", "V4Settings",
]  # fmt: skip

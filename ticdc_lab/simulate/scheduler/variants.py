"""The protocols that a cluster can run: the first design's (v2), the two-phase one (v3), the newer maintainer (v4)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType

from immutables import Map

from ticdc_lab.simulate.scheduler import v3, v4
from ticdc_lab.simulate.scheduler.agent import Agent
from ticdc_lab.simulate.scheduler.balance import BY_COUNT, Balance
from ticdc_lab.simulate.scheduler.capture import Capture, Variant, names
from ticdc_lab.simulate.scheduler.dispatcher import Dispatcher
from ticdc_lab.simulate.scheduler.executor import STEADY, TablePace
from ticdc_lab.simulate.scheduler.messages import Checkpoint, DispatchTableResponse, Sync
from ticdc_lab.simulate.scheduler.roles import Key
from ticdc_lab.simulate.scheduler.v3.messages import DispatchTableResponse as TwoPhaseResponse
from ticdc_lab.simulate.scheduler.v3.messages import HeartbeatResponse


@dataclass(frozen=True)
class SchedulerSettings(v3.V3Settings, v4.V4Settings):
    """A cluster and its changefeed; what v3 and v4 alone have is declared there."""

    variant: str = "v2"  # ``v2``: the design's protocol; ``v3``: two phases; ``v4``: coordinator and maintainer
    captures: int | tuple[str, ...] = 3  # how many, or their names
    tables: int | tuple[Key, ...] = 8  # how many, or their ids
    version: str = "v6.1.0"
    versions: Map[str, str] = Map()  # of captures by name, where they are not ``version``
    # Of the pipelines and of the scheduler; v3 and v4 balance by count and take ``Balance.check_us`` alone.
    pace: TablePace = STEADY
    balance: Balance = BY_COUNT
    # See ``ticdc_lab.simulate.scheduler.capture.Capture``.
    tick_us: int = 50_000
    poll_us: int = 50_000
    ttl_us: int = 5_000_000
    margin_us: int = 1_000_000
    stop_lag_us: int = 0
    restart_us: int = 1_000_000

    def nodes(self) -> tuple[str, ...]:
        """Give the names of the captures."""
        return names(self.captures)

    def keys(self) -> frozenset[Key]:
        """Give the tables of the changefeed."""
        return frozenset(range(1, self.tables + 1) if isinstance(self.tables, int) else self.tables)


UNSETTLED = (
    "variant", "captures", "tables", "versions", "changefeed_epoch", "heartbeat_ticks", "collect_stats_ticks",
    "check_balance_us", "resend_us", "balance_interval_us", "balance_cooldown_us", "scheduling_task_count_per_node",
)  # fmt: skip
"""What the settings of a file do not have: the cluster, and what is as TiCDC has it, or follows from the balance."""


def seed_protocol(settings: SchedulerSettings) -> Variant:
    """Give the design's protocol (v2)."""
    return Variant(
        "v2",
        Dispatcher(settings.version, settings.balance),
        Agent(settings.pace, settings.version),
        (DispatchTableResponse, Sync, Checkpoint),
    )


def two_phases(settings: SchedulerSettings) -> Variant:
    """Give the scheduler of two phases."""
    own = replace(settings, check_balance_us=settings.balance.check_us)
    return Variant("v3", v3.V3Coordinator(own), v3.V3Agent(own), (TwoPhaseResponse, HeartbeatResponse))


def maintainer(settings: SchedulerSettings) -> Variant:
    """Give the maintainer with its operators."""
    own = replace(settings, balance_interval_us=settings.balance.check_us)
    maintainer, dispatchers = v4.Maintainer(own), v4.Dispatchers(own)
    if settings.coordinator:
        return Variant("v4", v4.V4Coordinator(), v4.NodeManager(maintainer, dispatchers), v4.TO_COORDINATOR, ticks=True)
    return Variant("v4", maintainer, dispatchers, v4.TO_OWNER)


VARIANTS: Mapping[str, Callable[[SchedulerSettings], Variant]] = MappingProxyType(
    {"v2": seed_protocol, "v3": two_phases, "v4": maintainer}
)


def capture_machine(settings: SchedulerSettings, node: str) -> Capture:
    """Give the machine of a capture, of the version that it has."""
    own = replace(settings, version=settings.versions.get(node, settings.version))
    return Capture(
        VARIANTS[own.variant](own), own.version, own.tick_us, own.poll_us, own.ttl_us, own.margin_us, own.stop_lag_us,
        own.restart_us,
    )  # fmt: skip

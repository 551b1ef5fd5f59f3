"""A cluster to try out in a panel: what may be assumed of it, and which faults can be injected at a moment."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType

from ticdc_lab.simulate.faults import Ask, Crash, Fault, Part, Pause, Restart
from ticdc_lab.simulate.scheduler.etcd_messages import ETCD, Ddl, Expire, TwoOwners
from ticdc_lab.simulate.scheduler.roles import Restart as RestartProcessor
from ticdc_lab.simulate.scheduler.run import SchedulerRun, simulate
from ticdc_lab.simulate.scheduler.variants import SchedulerSettings

STOPS, ONE_OWNER = ASSUMPTIONS = "a capture stops writing when its session is lost", "etcd never has two owners"
"""The design's ("Assumptions"); each can be switched off."""

_LATE_US = 4_000_000
"""How long a capture without a session writes on where it does not stop at once."""

_BACK_US = 5_000_000


def tried(until_s: float) -> Callable[[str, int, int, int, tuple[str, ...]], SchedulerRun]:
    """Give what a panel calls: variant, captures, tables, seed, assumptions that hold, to a run of ``until_s``."""

    def ran(variant: str, captures: int, tables: int, seed: int, assumptions: tuple[str, ...]) -> SchedulerRun:
        late_us = 0 if STOPS in assumptions else _LATE_US
        settings = SchedulerSettings(variant=variant, captures=captures, tables=tables, stop_lag_us=late_us)
        rivals = () if ONE_OWNER in assumptions else (Ask(1_000_000, ETCD, TwoOwners()),)
        return simulate(
            settings, faults=rivals, seed=seed, until_us=round(1e6 * until_s), stops_at_violation=False
        )  # fmt: skip

    return ran


FAULTS: Mapping[str, Callable[[int, str], Sequence[Fault]]] = MappingProxyType(
    {
        "crash": lambda at_us, node: [Crash(at_us, node)],
        "crash for 5 s": lambda at_us, node: [Crash(at_us, node), Restart(at_us + _BACK_US, node)],
        "restart of the processor": lambda at_us, node: [Ask(at_us, node, RestartProcessor())],
        "pause for 6 s": lambda at_us, node: [Pause(at_us, node, 6_000_000)],
        "cut off from etcd": lambda at_us, node: [Part(at_us, node, ETCD)],
        "session expires": lambda at_us, node: [Ask(at_us, ETCD, Expire(node))],
        "a DDL drops table 1": lambda at_us, node: [Ask(at_us, ETCD, Ddl(drop=(1,)))],
    }
)
"""What can be injected: moment (µs) and capture to faults."""

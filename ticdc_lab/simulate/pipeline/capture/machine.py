"""A capture with its data path: the scheduler's machine inside, and what really moves rows around it.

The inner machine decides which tables are here and in which state; the data path follows it, and reports before each
of its calls how far the tables are. Nothing is written once the session may be gone.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from ticdc_lab.machines.machine import Address, Changed, Event, Exit, Fired, Now, Output, Received, ReceivedMany, Wake
from ticdc_lab.simulate.pipeline.capture import kv_client, owner, paths, sink
from ticdc_lab.simulate.pipeline.capture.state import MOUNTED, CaptureDesk, DataState
from ticdc_lab.simulate.pipeline.cdc_messages import Entries, RegionFailed, ResolvedTs
from ticdc_lab.simulate.pipeline.kv_messages import Regions
from ticdc_lab.simulate.pipeline.settings import CaptureSettings
from ticdc_lab.simulate.pipeline.sink_messages import AdminWritten, Executed, Written
from ticdc_lab.simulate.pipeline.tables import META, TableInfo
from ticdc_lab.simulate.scheduler.capture import Capture, owner_rev
from ticdc_lab.simulate.scheduler.etcd_messages import ETCD
from ticdc_lab.simulate.scheduler.executor import emptied

NONE: frozenset[str] = frozenset()

DATA: Mapping[type, Callable[[CaptureDesk, Address, Any], None]] = MappingProxyType(
    {
        Entries: paths.entries,
        ResolvedTs: paths.resolved,
        RegionFailed: lambda desk, _, message: kv_client.refused(desk, message),
        Regions: lambda desk, _, message: kv_client.regions_found(desk, message),
        Written: lambda desk, _, message: sink.written(desk, message),
        Executed: lambda desk, _, message: owner.executed(desk, message),
        AdminWritten: lambda desk, _, message: owner.repartitioned(desk, message),
    }
)
"""What the data path takes; all else is the scheduler's."""


@dataclass(frozen=True, slots=True)
class DataCapture:
    """The machine of a capture that moves rows."""

    scheduler: Capture  # the capture of the table scheduler; its pace is measured
    settings: CaptureSettings  # the data path's
    tables: tuple[TableInfo, ...] = ()  # as they were before any DDL job
    start_ts: int = 0  # where the changefeed starts (exclusive)
    only: frozenset[int] | None = None  # ids of the tables that the changefeed's filter lets through; None for all

    def start(self, address: Address, now: Now) -> tuple[DataState, list[Output]]:
        inner, outputs = self.scheduler.start(address, now)
        desk = self._desk(DataState(inner, paths.fresh(self.tables, now.at_us)), now)
        kv_client.ask(desk, META)
        return desk.done(), [*outputs, *desk.outputs]

    def step(self, state: DataState, event: Event, now: Now) -> tuple[DataState, list[Output]]:
        desk = self._desk(state, now)
        messages = _of_the_data_path(event)
        if messages and now.at_us + now.skew_us < state.inner.ends_us:
            sender = event.sender  # type: ignore[union-attr]
            for message in messages:
                DATA[type(message)](desk, sender, message)
        else:
            self._scheduled(desk, Fired("fence") if messages else event, now)
        sink.pump_due(desk)
        return desk.done(), desk.outputs

    def stop(self, state: DataState, now: Now, because: str) -> tuple[DataState, list[Output]]:
        """End everything at once, owner and processor: the changefeed is not to run any more."""
        desk = self._desk(state, now)
        pipelines = desk.executor.pipelines
        executor, changes = emptied(desk.executor, because)
        desk.outputs += changes
        if desk.inner.owner is not None:
            desk.outputs.append(Changed("owner", owner_rev(desk.inner), None, because))
        stopped = desk.inner.processor.with_executor(executor)
        desk.inner, desk.duty = desk.inner._replace(owner=None, processor=stopped), None
        paths.followed(desk, pipelines)
        kv_client.leave(desk, META)
        return desk.done(), desk.outputs

    def _desk(self, state: DataState, now: Now) -> CaptureDesk:
        return CaptureDesk(state, self.settings, now, self.start_ts, self.only)

    def _scheduled(self, desk: CaptureDesk, event: Event, now: Now) -> None:
        """Let the scheduler's machine take a step, and follow it."""
        inner, pipelines = desk.inner, desk.executor.pipelines
        fired = event.name if type(event) is Fired else None
        if fired == "tick":
            if not owner.may_tick(desk):
                desk.outputs.append(Wake(self.scheduler.tick_us, "tick"))
                return
            owner.instruct(desk)
        if fired == "poll" or (isinstance(event, (Received, ReceivedMany)) and event.sender != ETCD):
            paths.measured(desk)
        desk.inner, outputs = self.scheduler.step(desk.inner, event, now)
        desk.outputs += outputs
        if fired == "tick":
            desk.inner = desk.inner._replace(view=inner.view)
        paths.followed(desk, pipelines)
        if any(type(o) is Exit for o in outputs):
            kv_client.leave(desk, META)
            return
        owner.followed(desk)
        if desk.inner.checkpoint_ts > inner.checkpoint_ts or desk.inner.resolved_ts > inner.resolved_ts:
            sink.pump_all(desk)
        if desk.inner.checkpoint_ts > inner.checkpoint_ts:
            sink.publish(desk)
        if fired == "poll":
            # See what has been without an answer for too long, and whether anything has become due.
            kv_client.look(desk)
            sink.retry_all(desk)
            sink.pump_all(desk)
        elif fired == MOUNTED:
            sink.pump_all(desk)
        owner.proceed(desk)


def _of_the_data_path(event: Event) -> tuple[Any, ...]:
    if isinstance(event, Received):
        return (event.message,) if type(event.message) in DATA else ()
    if isinstance(event, ReceivedMany):
        return event.messages if type(event.messages[0]) in DATA else ()
    return ()

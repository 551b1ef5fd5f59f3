"""The auditor of several changefeeds: one pipeline auditor for each, and what holds between them and over a pause.

Invariants: ``Stopped Changefeeds Stand`` (the checkpoint of one that is paused does not move), ``Stopped Changefeeds
Are Silent`` (no capture that has heard of it, or whose session must have ended since, writes for one that is paused or
removed), ``Resumed At The Checkpoint`` (no table of a resumed one begins below it; above it is ``No Lost Table``).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

from immutables import Map

from ticdc_lab.machines.machine import Address, Changed, Send
from ticdc_lab.simulate.kernel import Kernel
from ticdc_lab.simulate.pipeline.changefeeds.etcd import NORMAL, Changefeed, Of, SharedState, downstream_of, named
from ticdc_lab.simulate.pipeline.changefeeds.server import CaptureServerState, ChangefeedStep
from ticdc_lab.simulate.pipeline.monitor import PipelineMonitor
from ticdc_lab.simulate.pipeline.tidb import TIDB
from ticdc_lab.simulate.scheduler.etcd_messages import ETCD
from ticdc_lab.simulate.scheduler.monitor import Found

STAND, SILENT, RESUMED = CHANGEFEED_INVARIANTS = (
    "Stopped Changefeeds Stand",
    "Stopped Changefeeds Are Silent",
    "Resumed At The Checkpoint",
)


@dataclass(frozen=True, slots=True)
class _OneChangefeed:
    """The world as the auditor of one changefeed sees it: a capture's state is its part's."""

    kernel: Kernel
    changefeed: str

    @property
    def now_us(self) -> int:
        return self.kernel.now_us

    @property
    def node(self) -> Mapping[Address, str]:
        return self.kernel.node

    @property
    def states(self) -> _OneChangefeed:
        return self

    def __getitem__(self, address: Address) -> Any:
        return self.kernel.states[address].running[self.changefeed].state


@dataclass(slots=True)
class ChangefeedsAuditor:
    """Watches one run."""

    upstream: PipelineMonitor  # watches what stores send, of any changefeed
    each: Mapping[str, PipelineMonitor]  # by name of the changefeed: watches what is owed to its downstream
    # So long after it was stopped no capture may write for a changefeed: a session that hears nothing has ended.
    silent_us: int
    stops_at_violation: bool = True
    stopped_us: dict[str, int] = field(default_factory=dict)  # by name: since when it is paused or removed
    # By name and epoch: where the checkpoint was at its beginning.
    begun_ts: dict[tuple[str, int], int] = field(default_factory=dict)
    n_violations: int = 0

    def saw(self, kernel: Kernel, at: Address, before: Any, after: Any, outputs: Sequence[Any]) -> Found:
        found: Found = None
        if isinstance(after, SharedState):
            found = self._persisted(kernel, before, after, outputs)
        elif isinstance(after, CaptureServerState):
            found = self._silent(kernel, after, outputs)
            for step in after.steps:
                found = found or self._stepped(kernel, at, step)
        elif at == TIDB:
            for monitor in self.each.values():
                monitor.saw(kernel, at, before, after, outputs)
        else:
            found = self.upstream.saw(kernel, at, before, after, outputs)
            for name, monitor in self.each.items():
                if kernel.node[at] == downstream_of(name):
                    found = found or _of(name, monitor.saw(kernel, at, before, after, outputs))
        self.n_violations += found is not None
        return found if self.stops_at_violation else None

    def went_down(self, kernel: Kernel, at: Address, state: Any) -> Found:
        for name, monitor, own in self._parts(state):
            monitor.went_down(cast(Kernel, _OneChangefeed(kernel, name)), at, own)
        return None

    def came_up(self, kernel: Kernel, at: Address, state: Any) -> Found:
        found: Found = None
        for name, monitor, own in self._parts(state):
            seen = _of(name, monitor.came_up(cast(Kernel, _OneChangefeed(kernel, name)), at, own))
            found = found or seen
        return found

    def _parts(self, state: Any) -> Iterable[tuple[str, PipelineMonitor, Any]]:
        if isinstance(state, CaptureServerState):
            for name in sorted(state.running):
                yield name, self.each[name], state.running[name].state

    # Etcd

    def _persisted(
        self, kernel: Kernel, before: SharedState | None, after: SharedState, outputs: Sequence[Any]
    ) -> Found:
        known: Map[str, Changefeed] = Map() if before is None else before.changefeeds
        if after.changefeeds is known:
            return None
        found: Found = None
        for name in sorted({*known, *after.changefeeds}):
            old, new = known.get(name), after.changefeeds.get(name)
            if old is new:
                continue
            if new is None or new.state != NORMAL:
                self.stopped_us.setdefault(name, kernel.now_us)
            else:
                self.stopped_us.pop(name, None)
                self.begun_ts.setdefault((name, new.epoch), new.checkpoint_ts)
            found = found or _stands(old, new) or self._moved(kernel, old, new, outputs)
        return found

    def _moved(self, kernel: Kernel, old: Changefeed | None, new: Changefeed | None, outputs: Sequence[Any]) -> Found:
        if new is None:
            return None
        prefix = named(new.id, "")
        own = [
            o._replace(subject=o.subject.removeprefix(prefix))
            for o in outputs
            if isinstance(o, Changed) and o.subject.startswith(prefix)
        ]
        seen = cast(Kernel, _OneChangefeed(kernel, new.id))
        return _of(new.id, self.each[new.id].saw(seen, ETCD, old, new, own))

    # Captures

    def _silent(self, kernel: Kernel, after: CaptureServerState, outputs: Sequence[Any]) -> Found:
        if after.view is None:
            return None
        for output in outputs:
            if type(output) is not Send:
                continue
            for name in self.each:
                message = output.message
                if output.to != downstream_of(name) and not (isinstance(message, Of) and message.changefeed == name):
                    continue
                known, since_us = after.view.get(name), self.stopped_us.get(name)
                what = type(message.message if isinstance(message, Of) else message).__name__
                if known is None or known.state != NORMAL:
                    return SILENT, f"{after.address} sends {what} of {name}, which it knows to be stopped"
                if since_us is not None and kernel.now_us - since_us > self.silent_us:
                    return (SILENT, f"{after.address} sends {what} of {name}, stopped since {since_us / 1e6:g} s")
        return None

    def _stepped(self, kernel: Kernel, at: Address, step: ChangefeedStep) -> Found:
        monitor = self.each[step.changefeed]
        if step.before is None:  # it restarts: an owner is elected once an epoch, and writes come again
            monitor.scheduler.owner_rev = 0
            monitor.written = {one: last for one, last in monitor.written.items() if one[0] != at}
        seen = cast(Kernel, _OneChangefeed(kernel, step.changefeed))
        found = _of(step.changefeed, monitor.saw(seen, at, step.before, step.after, step.outputs))
        return found or self._resumed(at, step)

    def _resumed(self, at: Address, step: ChangefeedStep) -> Found:
        """See whether a table begins below what was persisted when the changefeed began, or resumed."""
        pipelines, old = step.after.processor.executor.pipelines, step.before
        if old is not None and pipelines is old.processor.executor.pipelines:
            return None
        begun_ts = self.begun_ts.get((step.changefeed, step.epoch), 0)
        early = min((p.start_ts for p in pipelines.values()), default=begun_ts)
        if early >= begun_ts:
            return None
        return RESUMED, f"{at} begins a table of {step.changefeed} at {early}, below its checkpoint {begun_ts}"


def _of(changefeed: str, found: Found) -> Found:
    return found and (found[0], f"{changefeed}: {found[1]}")


def _stands(old: Changefeed | None, new: Changefeed | None) -> Found:
    if old is None or new is None or old.state == NORMAL or old.checkpoint_ts == new.checkpoint_ts:
        return None
    return STAND, f"{old.id} is {old.state} at {old.checkpoint_ts}, and its checkpoint is {new.checkpoint_ts} now"

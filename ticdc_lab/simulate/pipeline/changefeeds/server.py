"""A capture of several changefeeds: one session, and for each changefeed that is to run what a capture does for it.

What of a changefeed is sent carries its name and epoch, requests to stores carry the epoch in their number, and each
changefeed has a downstream of its own: an answer to what a paused one had asked reaches no one. A message of an epoch
that etcd has not sent yet waits for it, as the message server of a capture keeps what has no handler.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, NamedTuple

from immutables import Map

from ticdc_lab.machines.machine import (
    Address,
    Asked,
    Broken,
    Changed,
    Decided,
    Event,
    Exit,
    Fired,
    Ignored,
    Now,
    Output,
    Received,
    ReceivedMany,
    Send,
    Wake,
    node_of,
    not_taken,
    replace,
)
from ticdc_lab.simulate.pipeline import cdc_messages as cdc
from ticdc_lab.simulate.pipeline.capture import DataCapture
from ticdc_lab.simulate.pipeline.capture.kv_client import asks
from ticdc_lab.simulate.pipeline.capture.state import DataState, KvClient
from ticdc_lab.simulate.pipeline.changefeeds.etcd import (
    NORMAL,
    Changefeed,
    Changefeeds,
    ForChangefeed,
    Of,
    downstream_of,
    named,
)
from ticdc_lab.simulate.pipeline.kv_messages import GetRegions, Regions
from ticdc_lab.simulate.pipeline.settings import CaptureSettings
from ticdc_lab.simulate.pipeline.sink_messages import DOWNSTREAM
from ticdc_lab.simulate.pipeline.tables import TableInfo
from ticdc_lab.simulate.scheduler.capture import Capture
from ticdc_lab.simulate.scheduler.etcd_messages import ETCD, KeepAlive, KeptAlive, NoLease, Register, View

PLACES = 32
"""Numbers of requests and writes begin, in each epoch, at its revision with so many binary places behind it."""
_UPSTREAM = (cdc.Register, cdc.Deregister, GetRegions)
_SESSION = (Register, KeepAlive)
_TIMERS = ("keepalive", "fence")


class RunningChangefeed(NamedTuple):
    """A changefeed in a capture: its epoch, its machine, and that machine's state."""

    epoch: int
    machine: DataCapture
    state: DataState


class ChangefeedStep(NamedTuple):
    """What a changefeed did in a step of its capture; ``before`` is None where it began."""

    changefeed: str
    epoch: int
    before: DataState | None
    after: DataState
    outputs: tuple[Output, ...]


class CaptureServerState(NamedTuple):
    """A capture of several changefeeds."""

    address: Address  # its id in etcd
    ends_us: int  # when it must stop to write, on its own clock
    view: Changefeeds | None = None  # what etcd sent last
    running: Map[str, RunningChangefeed] = Map()  # by name of the changefeed
    early: tuple[tuple[Address, Of], ...] = ()  # senders and messages of epochs that etcd has not sent
    lost: bool = False
    steps: tuple[ChangefeedStep, ...] = ()  # what happened to changefeeds in the last step


@dataclass(frozen=True, slots=True)
class CaptureServer:
    """The machine of a capture of several changefeeds."""

    scheduler: Capture  # the capture of the table scheduler, whose session all share
    settings: CaptureSettings  # the data path's; a changefeed defines its sink
    tables: tuple[TableInfo, ...] = ()  # as they were before any DDL job

    def start(self, address: Address, now: Now) -> tuple[CaptureServerState, list[Output]]:
        work = _Work(self, CaptureServerState(address, self.scheduler.lease_end(now.at_us + now.skew_us)), now)
        work.outputs.append(Send(ETCD, Register(self.scheduler.version)))
        work.outputs.append(Wake(self.scheduler.terms.keep_alive_us, "keepalive"))
        work.fence()
        return work.done(), work.outputs

    def step(self, state: CaptureServerState, event: Event, now: Now) -> tuple[CaptureServerState, list[Output]]:
        work = _Work(self, state, now)
        if now.at_us + now.skew_us >= state.ends_us:
            work.end()
        elif isinstance(event, Received):
            work.take(event.sender, event.message)
        elif isinstance(event, ReceivedMany):
            for message in event.messages:
                work.take(event.sender, message)
        elif isinstance(event, Fired):
            work.fire(event.name)
        elif isinstance(event.command, ForChangefeed):
            work.deliver(event.command.changefeed, Asked(event.command.command))
        else:
            raise not_taken(event.command, f"{node_of(state.address)} of several changefeeds")
        return work.done(), work.outputs


class _Work:
    """One step of a capture of several changefeeds."""

    def __init__(self, server: CaptureServer, state: CaptureServerState, now: Now) -> None:
        self.server, self.now, self.steps = server, now, list[ChangefeedStep]()
        self.address, self.ends_us, self.view, self.running, self.early, self.lost, _ = state
        self.outputs: list[Output] = []

    def done(self) -> CaptureServerState:
        return CaptureServerState(
            self.address, self.ends_us, self.view, self.running, self.early, self.lost, tuple(self.steps)
        )

    @property
    def clock_us(self) -> int:
        return self.now.at_us + self.now.skew_us

    # The session

    def fence(self) -> None:
        self.outputs.append(Wake(max(0, self.ends_us - self.clock_us), "fence"))

    def end(self) -> None:
        """Stop everything at once: each changefeed's part sees by its own clock that the session may be gone."""
        because = "etcd says that the session is gone" if self.lost else "the session may be gone"
        self.outputs.append(Changed("session", self.address, None, because))
        self.deliver_all(Fired("fence"))
        self.outputs.append(Exit(self.server.scheduler.restart_us, because))

    def fire(self, name: Any) -> None:
        if name == "keepalive":
            self.outputs.append(Send(ETCD, KeepAlive(self.clock_us)))
            self.outputs.append(Wake(self.server.scheduler.terms.keep_alive_us, "keepalive"))
        elif name == "fence":
            self.fence()
        elif isinstance(name, str):  # of the node: it continues
            self.deliver_all(Fired(name))
        else:
            changefeed, epoch, own = name
            if changefeed in self.running and self.running[changefeed].epoch == epoch:
                self.deliver(changefeed, Fired(own))

    # Messages

    def take(self, sender: Address, message: Any) -> None:
        kind = type(message)
        if kind is Of:
            self._take_of(sender, message)
        elif kind is cdc.ResolvedTs:
            # A store sends the regions of all changefeeds at once.
            of_epoch: dict[int, list[tuple[int, int]]] = {}
            for region in message.regions:
                of_epoch.setdefault(region[0] >> PLACES, []).append(region)
            for epoch, regions in of_epoch.items():
                self._of_epoch(sender, cdc.ResolvedTs(message.ts, tuple(regions)), epoch)
        elif kind in (cdc.Entries, cdc.RegionFailed):
            self._of_epoch(sender, message, message.request_id >> PLACES)
        elif kind is Regions:
            # Whichever of them has asked, all that wait learn where regions are.
            for name in sorted(self.running):
                state = self.running[name].state
                if any(
                    asks(puller, message) for puller in (state.ddl.puller, *(p.puller for p in state.paths.values()))
                ):
                    self.deliver(name, Received(sender, message))
        elif kind is Changefeeds:
            self._take_view(message)
        elif kind in (KeptAlive, NoLease):
            self._take_lease(sender, message)
        else:
            self.deliver(node_of(sender).removeprefix(f"{DOWNSTREAM}-"), Received(sender, message))

    def _take_of(self, sender: Address, of: Of) -> None:
        running = self.running.get(of.changefeed)
        known = self.view.get(of.changefeed) if self.view else None
        if running is not None and running.epoch == of.epoch:
            self.deliver(of.changefeed, Received(sender, of.message))
        elif self.view is None or of.epoch > self.view.revision:
            self.early = (*self.early, (sender, of))
        else:
            what = f"is {known.state}, of epoch {known.epoch}" if known else "is removed"
            self.outputs.append(Ignored(of, f"changefeed {of.changefeed} {what}"))

    def _of_epoch(self, sender: Address, message: Any, epoch: int) -> None:
        name = next((n for n in sorted(self.running) if self.running[n].epoch == epoch), None)
        if name is None:
            self.outputs.append(Ignored(type(message).__name__, f"no changefeed of epoch {epoch} runs here"))
        else:
            self.deliver(name, Received(sender, message))

    def _take_lease(self, sender: Address, message: KeptAlive | NoLease) -> None:
        scheduler = self.server.scheduler
        if isinstance(message, KeptAlive):
            self.ends_us = max(self.ends_us, scheduler.lease_end(message.sent_us))
        else:
            self.lost, self.ends_us = True, min(self.ends_us, self.clock_us + scheduler.stop_lag_us)
        if self.clock_us >= self.ends_us:
            self.end()
            return
        self.deliver_all(Received(sender, message))
        self.fence()

    def _take_view(self, view: Changefeeds) -> None:
        """Stop what is not to run, begin what is, and send the others the members and the owner."""
        if self.view is not None and view.revision < self.view.revision:
            self.outputs.append(Ignored("changefeeds", f"revision {self.view.revision} is known"))
            return
        self.view = view
        for name in sorted(self.running):
            known = view.get(name)
            if known is None or known.state != NORMAL or known.epoch != self.running[name].epoch:
                self.stop(
                    name, "it is removed" if known is None else f"it is {known.state} at revision {view.revision}"
                )
        for known in view.changefeeds:
            if known.state != NORMAL:
                continue
            if known.id not in self.running:
                self.begin(known)
            seen = View(
                view.revision, view.captures, view.owner, view.owner_rev, known.tables, None, known.checkpoint_ts,
                known.resolved_ts,
            )  # fmt: skip
            self.deliver(known.id, Received(ETCD, seen))
        early, self.early = self.early, ()
        for sender, of in early:
            self._take_of(sender, of)

    # Changefeeds

    def begin(self, one: Changefeed) -> None:
        """Begin a changefeed's part from its checkpoint."""
        settings = replace(self.server.settings, sink=one.sink)
        machine = DataCapture(self.server.scheduler, settings, self.server.tables, one.start_ts, one.only)
        state, outputs = machine.start(self.address, self.now)
        first = one.epoch << PLACES
        state = state._replace(
            inner=state.inner._replace(ends_us=self.ends_us), kv=KvClient(next_id=first + 1), n_writes=first
        )
        self._keep(one.id, one.epoch, machine, None, state, outputs)

    def stop(self, name: str, because: str) -> None:
        """End a changefeed's part: a resume begins at the persisted checkpoint."""
        epoch, machine, before = self.running[name]
        after, outputs = machine.stop(before, self.now, because)
        self._keep(name, epoch, machine, before, after, outputs)
        self.running = self.running.delete(name)

    def deliver(self, name: str, event: Event) -> None:
        """Let a changefeed's part take a step."""
        if name not in self.running:
            self.outputs.append(Ignored(type(event).__name__, f"changefeed {name} does not run here"))
            return
        epoch, machine, before = self.running[name]
        after, outputs = machine.step(before, event, self.now)
        self._keep(name, epoch, machine, before, after, outputs)

    def deliver_all(self, event: Event) -> None:
        for name in sorted(self.running):
            self.deliver(name, event)

    def _keep(
        self, name: str, epoch: int, machine: DataCapture, before: DataState | None, after: DataState,
        outputs: Iterable[Output],
    ) -> None:  # fmt: skip
        own = tuple(outputs)
        self.steps.append(ChangefeedStep(name, epoch, before, after, own))
        self.running = self.running.set(name, RunningChangefeed(epoch, machine, after))
        self.outputs += [found for output in own if (found := _named(name, epoch, output)) is not None]


def _named(changefeed: str, epoch: int, output: Output) -> Output | None:
    """Name an output's changefeed; None for what the session does for all."""
    if isinstance(output, Send):
        to, message = output
        if isinstance(message, _SESSION):
            return None
        if to == DOWNSTREAM:
            return Send(downstream_of(changefeed), message)
        return output if isinstance(message, _UPSTREAM) else Send(to, Of(changefeed, epoch, message))
    if isinstance(output, Wake):
        return None if output.name in _TIMERS else output._replace(name=(changefeed, epoch, output.name))
    if isinstance(output, Changed | Decided):
        return output._replace(subject=named(changefeed, output.subject))
    if isinstance(output, Ignored | Broken):
        return output._replace(because=f"{changefeed}: {output.because}")
    return None if isinstance(output, Exit) else output

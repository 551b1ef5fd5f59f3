"""Short ways to show what the cases of the two-phase scheduler are about."""

from __future__ import annotations

import json
from pathlib import Path

from immutables import Map

from ticdc_lab.machines.machine import Asked, Decided, Ignored, Now, Received, Send
from ticdc_lab.simulate.scheduler.roles import Tick, Watermarks
from ticdc_lab.simulate.scheduler.v3 import V3Coordinator, V3Settings
from ticdc_lab.simulate.scheduler.v3.captures import INITIALIZED, V3CaptureStatus
from ticdc_lab.simulate.scheduler.v3.messages import (
    REPLICATING,
    Checkpoint,
    DispatchTableRequest,
    DispatchTableResponse,
    Header,
    Heartbeat,
    HeartbeatResponse,
    TableStatus,
)
from ticdc_lab.simulate.scheduler.v3.replication_set import rebuilt
from ticdc_lab.simulate.scheduler.v3.replications import Replications, ReplicationsDraft, planned
from ticdc_lab.simulate.scheduler.v3.schedulers import V3View

GOLDEN = Path(__file__).parents[3] / "data/golden/scheduler/v3.jsonl"


def ids():
    """Give the ids of all golden cases of this protocol."""
    return [json.loads(line)["id"] for line in GOLDEN.read_text().splitlines()]


def at(state, checkpoint_ts=0, resolved_ts=0, span=1):
    """Give the status of a span in a state."""
    return TableStatus(span, state, Checkpoint(checkpoint_ts, resolved_ts))


def statuses(found, span=1):
    """Give what captures show of a span, ``{capture: state}``."""
    return {name: TableStatus(span, state) for name, state in found.items()}


def replicating(span, on, checkpoint_ts=0):
    """Give a set that a capture replicates."""
    return rebuilt(span, checkpoint_ts, {on: TableStatus(span, REPLICATING)})


def replications(where):
    """Give records of spans that replicate: ``{span: capture}``, or a set as it is."""
    draft = ReplicationsDraft(Replications())
    for span, found in where.items():
        draft.put(replicating(span, found) if isinstance(found, str) else found)
    return draft.finished()


def captures(*names, owner=None, **states):
    """Give capture statuses, Initialized unless another state is named."""
    found = {name: V3CaptureStatus(name, INITIALIZED, is_owner=name == owner) for name in names}
    found |= {name: V3CaptureStatus(name, state, is_owner=name == owner) for name, state in states.items()}
    return Map(found)


def view(where, members, wanted=None, *, checkpoint_ts=0, now=None):
    """Give what the schedulers look at; all spans with a record are wanted unless others are named."""
    records = where if isinstance(where, Replications) else replications(where)
    spans = records.sets if wanted is None else wanted
    return V3View(members, records, planned(spans, records.sets), checkpoint_ts, now or Now(0))


class Driven:
    """A coordinator that is driven through its public interface."""

    def __init__(self, address="a", owner_rev=1, settings=None):
        self.machine = V3Coordinator(settings or V3Settings(heartbeat_ticks=1 << 30))
        self.at_us = 0
        self.state, _ = self.machine.elected(address, owner_rev, Now(0))
        self.outputs = []

    def step(self, event):
        self.state, self.outputs = self.machine.step(self.state, event, Now(self.at_us))
        return self.outputs

    def tick(self, alive, tables, checkpoint_ts=0, barrier_ts=None):
        return self.step(Asked(Tick(frozenset(alive), frozenset(tables), checkpoint_ts, barrier_ts)))

    def header(self, **fields):
        said = {"version": "v8.5.0", "owner_revision": self.state.owner_rev, "changefeed_epoch": 1} | fields
        return Header(**said)

    def answer(self, sender, *found, to=None, liveness="Alive", **fields):
        to = to or self.state.address
        return self.step(Received(sender, HeartbeatResponse(self.header(**fields), to, found, liveness)))

    def respond(self, sender, status, to=None, **fields):
        to = to or self.state.address
        return self.step(Received(sender, DispatchTableResponse(self.header(**fields), to, status)))

    def sent(self, kind):
        return [o for o in self.outputs if isinstance(o, Send) and isinstance(o.message, kind)]

    def requests(self):
        return [(o.to, o.message.request) for o in self.sent(DispatchTableRequest)]

    def heartbeats(self):
        return [o.to for o in self.sent(Heartbeat)]

    def watermarks(self):
        return next(o for o in self.outputs if isinstance(o, Watermarks))

    def because(self):
        return [o.because for o in self.outputs if isinstance(o, Ignored | Decided)]

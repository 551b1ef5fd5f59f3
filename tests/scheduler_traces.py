"""Traces of scheduler runs made by hand: small ones whose answers are known, and large ones for drawing."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from ticdc_lab.machines.clock import ts_of
from ticdc_lab.simulate.trace import TRACE

MS = 1000


@dataclass
class Making:
    """A trace that grows; each call of :meth:`at` begins a step."""

    rows: list[dict[str, Any]] = field(default_factory=list)
    step: int = -1
    time_us: int = 0
    messages: int = 0
    places: dict[int, int] = field(default_factory=dict)

    def at(self, ms: float) -> Making:
        """Begin a step at a time."""
        self.step, self.time_us = self.step + 1, round(ms * MS)
        return self

    def row(self, kind: str, node: str, **fields: Any) -> Making:
        """Write a row of this step."""
        blank = dict.fromkeys(TRACE.names)
        self.rows.append(
            blank | {"run": "made", "step": self.step, "time_us": self.time_us, "node": node, "kind": kind} | fields
        )
        return self

    def send(self, node: str, peer: str, message: str, **detail: Any) -> int:
        """Send a message and give its number."""
        self.messages += 1
        self.places[self.messages] = len(self.rows)
        fields = {"message": message, "message_id": self.messages, "detail": json.dumps(detail)}
        self.row("sent", node, peer=peer, **fields)
        return self.messages

    def end(self, kind: str, number: int, because: str | None = None) -> Making:
        """A message is received, lost, resent or ignored: a row at its receiver, or sender."""
        sent = self.rows[self.places[number]]
        at, other = ("node", "peer") if kind in ("resent", "lost") else ("peer", "node")
        fields = {k: sent[k] for k in ("message", "message_id", "detail")}
        return self.row(kind, sent[at], peer=sent[other], because=because, **fields)

    def table(self, node: str, table: object, before: str | None, after: str | None, because: str = "") -> Making:
        """A pipeline changes."""
        return self.row("changed", node, subject=f"table:{table}", before=before, after=after, because=because)

    def mark(self, node: str, subject: str, at_ms: float) -> Making:
        """A watermark gets the value of a moment."""
        return self.row("changed", node, subject=subject, after=str(ts_of(round(at_ms * MS))))

    def done(self) -> pa.Table:
        """The trace."""
        return pa.Table.from_pylist(self.rows, schema=TRACE)


def ten_steps() -> pa.Table:
    """The design's interaction: owner on capture-1, tables 1 and 2, ten messages."""
    m = Making()
    m.at(0).row("changed", "capture-1", subject="owner", after="7", because="it campaigned first")
    announced = [m.send("capture-1", f"capture-{c}", "Announce", **{"owner-rev": 7}) for c in (1, 2)]
    synced = []
    for c, number in zip((1, 2), announced, strict=True):
        m.at(c).end("received", number)
        synced.append(m.send(f"capture-{c}", "capture-1", "Sync", Running=[], Adding=[], Removing=[]))
    m.at(3).end("received", synced[0]).at(4).end("received", synced[1])
    m.at(5).row(
        "decided", "capture-1", subject="table:1", after="capture-1", because="it has the fewest tables (0)",
        rejected=[{"candidate": "capture-2", "because": "as few tables, larger name"}],
    )  # fmt: skip
    dispatched = [
        m.send("capture-1", f"capture-{c}", "DispatchTable", **{"owner-rev": 7, "id": c, "is-delete": False})
        for c in (1, 2)
    ]
    for c, number in zip((1, 2), dispatched, strict=True):
        m.at(5 + c).end("received", number).table(f"capture-{c}", c, None, "preparing", "dispatched by the owner")
    for c in (1, 2):
        m.at(10 + c).table(f"capture-{c}", c, "preparing", "replicating", "its incremental scan has ended")
        answer = m.send(f"capture-{c}", "capture-1", "DispatchTableResponse", id=c)
        m.at(12 + c).end("received", answer)
    for c in (1, 2):
        m.at(16 + c).mark(f"capture-{c}", "checkpoint", 15).mark(f"capture-{c}", "resolved", 16)
        told = m.send(f"capture-{c}", "capture-1", "Checkpoint", **{"checkpoint-ts": ts_of(15 * MS)})
        m.at(18 + c).end("received", told)
    m.at(21).mark("etcd", "global-checkpoint", 15).mark("etcd", "global-resolved", 16)
    return m.at(22).row("stopped", "etcd", because="the end of the scenario").done()


def troubles() -> pa.Table:
    """Owner switch at 40 ms, capture-1 down from 50 ms; table 1 doubled from 60 to 70 ms, table 2 unowned 50 to 80.

    One message is lost, one ignored, one refused; the checkpoint is stuck from 50 ms on, because of table 2.
    """
    m = Making()
    m.at(0).row("changed", "capture-1", subject="owner", after="1")
    for table, capture in ((1, 2), (2, 1), (3, 3)):
        m.at(table).table(f"capture-{capture}", table, None, "preparing", "dispatched by the owner")
        m.at(10 + table).table(f"capture-{capture}", table, "preparing", "replicating", "its scan has ended")
    for c in (1, 2, 3):
        m.at(20 + c).mark(f"capture-{c}", "checkpoint", 15).mark(f"capture-{c}", "resolved", 18)
    m.at(24).mark("etcd", "global-checkpoint", 15).mark("etcd", "global-resolved", 18)
    stale = m.send("capture-1", "capture-2", "DispatchTable", **{"owner-rev": 1, "id": 3, "is-delete": False})
    m.at(30).row("refused", "capture-1", peer="capture-3", message="Announce", because="try again")
    m.at(40).row("changed", "capture-1", subject="owner", before="1", after=None, because="its session expired")
    m.row("changed", "capture-2", subject="owner", after="9", because="it campaigned next")
    announce = m.send("capture-2", "capture-3", "Announce", **{"owner-rev": 9})
    m.at(41).end("received", announce)
    m.at(45).end("received", stale).end("ignored", stale, "owner-rev 1 is below 9")
    m.at(46).row("paused", "capture-3").at(48).row("resumed", "capture-3")
    m.at(50).row("crashed", "capture-1", because="the scenario")
    m.row(
        "changed",
        "capture-2",
        subject="stuck",
        because="since 0.050 s",
        after="table 2 is adding on capture-1, and 1 more",
        reason={"kind": "table", "name": "2", "since_us": 50_000},
    )
    lost = m.send("capture-2", "capture-1", "DispatchTable", **{"owner-rev": 9, "id": 2, "is-delete": False})
    m.at(51).end("lost", lost, "the node is down")
    m.at(55).table("capture-3", 1, None, "preparing", "dispatched by the owner")
    m.at(60).table("capture-3", 1, "preparing", "replicating", "its scan has ended")
    m.at(65).table("capture-2", 1, "replicating", "stopping", "told to stop")
    m.at(70).table("capture-2", 1, "stopping", None, "it has stopped")
    m.at(72).row("restarted", "capture-1.2").row("started", "capture-1.2")
    m.at(75).table("capture-1.2", 2, None, "preparing", "dispatched by the owner")
    m.at(80).table("capture-1.2", 2, "preparing", "replicating", "its scan has ended")
    for c in ("capture-1.2", "capture-2", "capture-3"):
        m.at(85).mark(c, "checkpoint", 80).mark(c, "resolved", 84)
    m.at(90).mark("etcd", "global-checkpoint", 80).mark("etcd", "global-resolved", 84)
    return m.at(100).row("stopped", "etcd", because="the end of the scenario").done()


def broken() -> pa.Table:
    """A counterexample as the explorer gives it: times are step numbers, the last step breaks No Double Write."""
    m = Making()
    m.at(0).row("changed", "capture-1", subject="owner", after="1")
    number = m.send("capture-1", "capture-1", "DispatchTable", id=1)
    m.at(0.001).end("received", number).table("capture-1", 1, None, "preparing")
    m.at(0.002).table("capture-1", 1, "preparing", "replicating")
    m.at(0.003).row("changed", "capture-1", subject="session", before="5", after=None, because="its lease ended")
    m.at(0.004).row("changed", "capture-2", subject="owner", after="2")
    number = m.send("capture-2", "capture-2", "DispatchTable", id=1)
    m.at(0.005).end("received", number).table("capture-2", 1, None, "preparing")
    m.at(0.006).table("capture-2", 1, "preparing", "replicating")
    told = "table 1 is written by capture-1 and capture-2"
    m.row("violated", "capture-2", subject="No Double Write", because=told)
    return m.row("stopped", "capture-2", because="an invariant is broken").done()


def many(tables: int, captures: int, messages: int) -> pa.Table:
    """Many tables come up on many captures, the last capture joins at half time and takes its share."""
    m = Making()
    m.at(0).row("changed", "capture-1", subject="owner", after="1")
    early = captures - 1
    for t in range(tables):
        c = f"capture-{1 + t % early}"
        m.at(10 + 100 * t / tables).end("received", m.send("capture-1", c, "DispatchTable", id=t))
        m.table(c, t, None, "preparing")
    for t in range(tables):
        m.at(210 + 100 * t / tables).table(f"capture-{1 + t % early}", t, "preparing", "replicating")
    for k in range(max(0, messages - tables)):
        c = f"capture-{1 + k % early}"
        number = m.at(320 + 680 * k / messages).send(c, "capture-1", "Checkpoint")
        m.mark(c, "checkpoint", 220 + 680 * k / messages)
        m.end("received", number)
    m.at(1000).row("started", f"capture-{captures}")
    for t in range(0, tables, captures):
        old, new = f"capture-{1 + t % early}", f"capture-{captures}"
        m.at(1010 + 300 * t / tables).table(old, t, "replicating", "stopping").table(old, t, "stopping", None)
        m.at(1010 + 300 * t / tables + 0.1).table(new, t, None, "preparing")
    for t in range(0, tables, captures):
        m.at(1400 + 300 * t / tables).table(f"capture-{captures}", t, "preparing", "replicating")
    return m.at(2000).row("stopped", "etcd", because="the end").done()

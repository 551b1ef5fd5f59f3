"""Bugs of stores, captures and downstream of the pipeline, each put in the place of one rule."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from typing import Any
from unittest.mock import patch

from immutables import Map
from planting import Bugs, Patch, planted_in

from ticdc_lab.machines.clock import before, ts_of
from ticdc_lab.machines.machine import Send
from ticdc_lab.simulate.pipeline import downstream
from ticdc_lab.simulate.pipeline.capture import kv_client, owner, paths, sink
from ticdc_lab.simulate.pipeline.capture.kv_client import parts_of
from ticdc_lab.simulate.pipeline.capture.mounter import mounted
from ticdc_lab.simulate.pipeline.capture.state import Path, Version
from ticdc_lab.simulate.pipeline.cdc_messages import PREWRITE, Register
from ticdc_lab.simulate.pipeline.sink_messages import Resolved
from ticdc_lab.simulate.pipeline.tikv import cdc, percolator, raft, region_changes, store
from ticdc_lab.simulate.pipeline.tikv.cdc import next_batch
from ticdc_lab.simulate.scheduler.executor import MAX_TS, STOPPING, WRITING, Marks

FRONTIER_MAX = "the frontier takes the maximum of its regions"
FORGETS_PART = "the frontier forgets a region after a split"
DROPS_EARLY_COMMIT = "the matcher drops a commit that comes before its prewrite"
FROM_NOW = "a region is registered again from now instead of from its resolved_ts"
EMITS_UNRESOLVED = "the sorter emits what is not resolved"
NEWEST_SCHEMA = "the mounter uses the newest schema"
SENT_IS_WRITTEN = "the checkpoint counts rows that were sent as written"
DDL_BEFORE_BARRIER = "a DDL is executed before every table has come to it"
SKIPS_DDL_PULLER = "the owner leaves the DDL puller out of the minimum"
STOP_LOSES_ROWS = "a table that stops loses its rows under way and keeps the checkpoint"
PASSES_RESOLVED = "a checkpoint that is published first does not stop at the table's resolved_ts"
MARKS_RESOLVED = "the owner tells the downstream the global resolved_ts as its watermark"


# Captures


def frontier_max() -> list[Patch]:
    """Also read by the puller of DDL jobs."""

    def frontier(puller: Any) -> int:
        highest: int = max([puller.resolved_ts, *(s.resolved_ts for s in puller.streams.values())])
        return highest

    return [(paths, "frontier_ts", frontier)]


def _forgets_part() -> list[Patch]:
    sound = parts_of

    def first_part_of(gap: Any, regions: Any) -> Any:
        parts, left = sound(gap, regions)
        return parts[:1] if gap.tries else parts, left

    return [(kv_client, "parts_of", first_part_of)]


def _drops_early_commit() -> list[Patch]:
    sound = kv_client._scanning

    def scanning(stream: Any, rows: Any) -> Any:
        out: list[Any] = []
        for row in rows:
            found = sound(stream, (row,))
            stream = found.stream._replace(early=Map())
            out += found.rows
        return kv_client.Matched(stream, out)

    return [(kv_client, "_scanning", scanning)]


def _from_now() -> list[Patch]:
    sound = kv_client._register

    def register(desk: Any, key: Any, request_id: int) -> None:
        puller = desk.puller(key)
        stream = puller.streams[request_id]
        if stream.tries:
            stream = stream._replace(resolved_ts=max(stream.resolved_ts, ts_of(desk.at_us)))
            desk.set_puller(key, puller._replace(streams=puller.streams.set(request_id, stream)))
        sound(desk, key, request_id)

    return [(kv_client, "_register", register)]


def _newest_schema() -> list[Patch]:
    def newest(rows: Any, versions: Any) -> Any:
        return mounted(rows, tuple(Version(0, v.info) for v in versions[-1:]))

    return [(sink, "mounted", newest)]


def _sent_is_written() -> list[Patch]:
    sound = sink._written_ts

    def written_ts(path: Path) -> int:
        return sound(path._replace(sink=path.sink._replace(flights=())))

    return [(sink, "_written_ts", written_ts)]


def _stop_loses_rows() -> list[Patch]:
    sound = sink._written_ts
    return [(sink, "_written_ts", lambda path: MAX_TS if path.state == STOPPING else sound(path))]


def _passes_resolved() -> list[Patch]:
    def marks_of(desk: Any, path: Path) -> Marks:
        resolved = sink.resolved_ts(desk, path)
        if path.state not in WRITING:
            return Marks(path.start_ts, resolved)
        written_ts = desk.limit_ts if desk.publishes_first else min(desk.limit_ts, sink._written_ts(path))
        return Marks(max(path.checkpoint_ts, written_ts), resolved)

    return [(sink, "marks_of", marks_of)]


def _ddl_before_barrier() -> list[Patch]:
    sound = owner._execute
    return [(owner, "_execute", lambda desk, duty, checkpoint_ts: sound(desk, duty, MAX_TS))]


def _skips_ddl_puller() -> list[Patch]:
    def barrier_ts(desk: Any) -> int:
        job = owner.next_job(desk)
        return MAX_TS if job is None else job[0]

    return [(owner, "barrier_ts", barrier_ts), (owner, "may_tick", lambda desk: True)]


def _marks_resolved() -> list[Patch]:
    sound = owner.proceed

    def proceed(desk: Any) -> None:
        sound(desk)
        desk.outputs = [
            Send(o.to, Resolved(desk.inner.resolved_ts)) if isinstance(getattr(o, "message", None), Resolved) else o
            for o in desk.outputs
        ]

    return [(owner, "proceed", proceed)]


# Stores


def _advances(*, sees_locks: bool = True, follows_locks_down: bool = False) -> list[Patch]:
    def advance(turn: Any, region: int, sent_us: int) -> None:
        peer = turn.state.peers[region]
        led = peer.led
        if led is None or led.applied is None or led.applied.merging is not None:
            return
        ts = before(ts_of(sent_us))
        if led.applied.locks and sees_locks:
            ts = min(ts, before(min(lock[0] for lock in led.applied.locks.values())))
        if ts > led.resolved_ts or follows_locks_down:
            turn.put(region, peer._replace(led=led._replace(resolved_ts=ts)))

    return [(raft, "_advance", advance)]


def _resolves_alone() -> list[Patch]:
    sound = raft.ask_followers

    def ask_followers(turn: Any) -> None:
        sound(turn)
        alone = [region for region, peer in turn.led() if peer.led.followers]
        for region in alone:
            raft._advance(turn, region, turn.now.at_us)
        cdc.tell_resolved(turn, alone)

    return [(raft, "ask_followers", ask_followers), (raft, "is_lost", lambda turn, led: False)]


def _scan_misses_locks() -> list[Patch]:
    def without_locks(*given: Any) -> Any:
        rows, read = next_batch(*given)
        return [row for row in rows if row.type != PREWRITE], read

    return [(cdc, "next_batch", without_locks)]


def _streams_after_scan() -> list[Patch]:
    def observe(turn: Any, region: int, rows: Any) -> None:
        state = turn.state
        scanned = tuple(s for s in state.streams.get(region, ()) if s.snapshot is None)
        turn.state = state._replace(streams=state.streams.set(region, scanned))
        cdc.observe(turn, region, rows)
        turn.state = state

    return [(raft, "observe", observe)]


def _scans_checkpoint_too() -> list[Patch]:
    def register(turn: Any, sender: Any, message: Any) -> None:
        cdc.register(turn, sender, message._replace(checkpoint_ts=message.checkpoint_ts - 1))

    return [(store, "_MESSAGES", {**store._MESSAGES, Register: register})]


def _observes_early() -> list[Patch]:
    def propose(turn: Any, entries: Any) -> None:
        for region, entry in entries:
            cdc.observe(turn, region, entry.rows)
        raft.propose(turn, entries)

    return [(percolator, "propose", propose), (raft, "observe", lambda *_: None)]


def _keeps_streams_at_split() -> list[Patch]:
    sound = region_changes.changed

    def changed(turn: Any, region: int, was: Any, after: Any) -> None:
        split = was is not None and after.end < was.end
        with patch.object(region_changes, "_is_another", lambda *_: None) if split else nullcontext():
            sound(turn, region, was, after)

    return [(region_changes, "changed", changed)]


def _takes_twice() -> list[Patch]:
    return [(downstream, "_new_ones", lambda state, write: (state, write.changes))]


def _everything_is_due() -> list[Patch]:
    return [(sink, "_upto_ts", lambda desk, resolved: MAX_TS)]


CAPTURE: dict[str, Callable[[], list[Patch]]] = {
    FRONTIER_MAX: frontier_max,
    FORGETS_PART: _forgets_part,
    DROPS_EARLY_COMMIT: _drops_early_commit,
    FROM_NOW: _from_now,
    EMITS_UNRESOLVED: _everything_is_due,
    NEWEST_SCHEMA: _newest_schema,
    SENT_IS_WRITTEN: _sent_is_written,
    DDL_BEFORE_BARRIER: _ddl_before_barrier,
    SKIPS_DDL_PULLER: _skips_ddl_puller,
    STOP_LOSES_ROWS: _stop_loses_rows,
    PASSES_RESOLVED: _passes_resolved,
    MARKS_RESOLVED: _marks_resolved,
}
PIPELINE: Bugs = CAPTURE | {
    "ignores_locks": lambda: _advances(sees_locks=False),
    "follows_locks_down": lambda: _advances(follows_locks_down=True),
    "resolves_alone": _resolves_alone,
    "scan_misses_locks": _scan_misses_locks,
    "streams_after_scan": _streams_after_scan,
    "scans_checkpoint_too": _scans_checkpoint_too,
    "observes_early": _observes_early,
    "keeps_streams_at_split": _keeps_streams_at_split,
    "forgets_places": _takes_twice,
}


def planted(*bugs: str) -> Any:
    """Let some bugs be there."""
    return planted_in(PIPELINE, *bugs)

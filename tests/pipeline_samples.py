"""Hand-made facts of a pipeline: a long transaction from 1 to 3 s, a slow sink from 4 to 5.2 s, a DDL at 5.5 s.

Two captures; orders and stock on the owner, customers on the other, whose region 21 the transaction has a lock in.
"""

from __future__ import annotations

from functools import cache

import pandas as pd
import pyarrow as pa

from ticdc_lab.machines.clock import ts_of
from ticdc_lab.simulate.pipeline.observed import (
    CaptureFacts,
    CfRow,
    HeldLock,
    Moment,
    RegionFacts,
    StreamFacts,
    TableFacts,
)
from ticdc_lab.simulate.pipeline.samples import SeenRun, seen
from ticdc_lab.simulate.pipeline.tables import Raw, key_of, span_of

MS = 1000
EVERY, END = 100 * MS, 6_000 * MS
LOCKED, FREE = 1_000 * MS, 3_000 * MS
SLOW, FAST = 4_000 * MS, 5_200 * MS
BARRIER, EXECUTED = 5_500 * MS, 5_800 * MS
MEMORY = 1_000
"""Rows that a sorter holds in memory."""

TABLES = {101: ("shop.orders", "capture-1", (11, 12)), 102: ("shop.customers", "capture-2", (21, 22)),
          103: ("shop.stock", "capture-1", (31,))}  # fmt: skip
RATES = {101: 100, 102: 20, 103: 30}
"""Rows between two samples."""

KEY = key_of(102, 7)


def region_resolved_us(region: int, now: int) -> int:
    """Give how far a region is: 50 ms behind, or at the lock."""
    return LOCKED if region == 21 and LOCKED <= now < FREE else max(1, now - 50 * MS)


def resolved_us(now: int) -> int:
    """Give the global resolved ts: the least region of the sample before, and the DDL where one is to be executed."""
    then = max(1, now - EVERY)
    barrier = [BARRIER] if BARRIER <= now < EXECUTED else []
    return min([region_resolved_us(r, then) for _, _, rs in TABLES.values() for r in rs] + barrier)


def checkpoint_us(table: int, now: int) -> int:
    """Give how far a table is written: all that the global resolved ts allows, or up to where its sink stands."""
    return min(resolved_us(now), SLOW) if table == 103 and SLOW <= now < FAST else resolved_us(now)


def _stream(region: int, table: int, now: int) -> StreamFacts:
    start, end = span_of(table)
    state, since = ("scanning", 0) if now < 300 * MS else ("streaming", 300 * MS)
    return StreamFacts(
        region, f"tikv-{region % 3 + 1}", start, end, state, ts_of(region_resolved_us(region, now)), since
    )


def _table(table: int, now: int) -> TableFacts:
    name, _, regions = TABLES[table]
    rate = RATES[table]
    received = rate * (now // EVERY)
    held = rate * ((now - LOCKED) // EVERY) if LOCKED <= now < FREE else rate
    slow = rate * ((now - SLOW) // EVERY) if table == 103 and SLOW <= now < FAST else 0
    held = min(held, received)
    return TableFacts(
        table, name, "replicating", ts_of(min(region_resolved_us(r, now) for r in regions)),
        ts_of(checkpoint_us(table, now)), tuple(_stream(r, table, now) for r in regions), 0, min(held, MEMORY),
        max(0, held - MEMORY), 0, slow, ts_of(SLOW) if slow else None, SLOW if slow else None, received,
        received - held - slow,
    )  # fmt: skip


def sample(now: int) -> Moment:
    """Give what is seen at a moment."""
    lock = HeldLock(ts_of(LOCKED), KEY, (KEY, key_of(102, 8)))
    regions = tuple(
        RegionFacts(
            r, f"tikv-{r % 3 + 1}", *span_of(t), 1, ts_of(region_resolved_us(r, now)),
            (lock,) if r == 21 and LOCKED <= now < FREE else (),
        )
        for t, (_, _, rs) in TABLES.items() for r in rs
    )  # fmt: skip
    captures = []
    for name in ("capture-1", "capture-2"):
        tables = tuple(_table(t, now) for t, (_, capture, _) in TABLES.items() if capture == name)
        ddl = ts_of(max(1, now - 20 * MS))
        start, end = span_of(0)
        stream = StreamFacts(1, "tikv-1", start, end, "streaming", ddl, 0)
        jobs = ((ts_of(BARRIER), "ALTER TABLE orders ADD COLUMN note TEXT"),) if BARRIER <= now < EXECUTED else ()
        owner = name == "capture-1"
        captures.append(
            CaptureFacts(
                name, owner, ts_of(resolved_us(now)), min(ddl, *(t.resolved_ts for t in tables)),
                min(t.checkpoint_ts for t in tables), ddl, (stream,) if owner else (), jobs if owner else (),
                jobs[0][0] if jobs and owner else None, tables,
            )
        )  # fmt: skip
    least = min(c.checkpoint_ts for c in captures)
    return Moment(now, least, ts_of(resolved_us(now)), tuple(captures), regions)


@cache
def samples() -> tuple[Moment, ...]:
    """Give the whole story."""
    return tuple(sample(now) for now in range(0, END + 1, EVERY))


@cache
def story() -> SeenRun:
    """Give it as tables."""
    return seen(samples())


def entries() -> list[tuple[int, tuple[CfRow, ...]]]:
    """Give a key's life: written at 0.5 s, locked from 1 s on, and committed at 3 s."""
    old, new = Raw((1, 2), (7, "Jan")), Raw((1, 2), (7, "Jan Su"))
    first, second = ts_of(400 * MS), ts_of(LOCKED)
    base = (
        CfRow("default", KEY, first, first, "put", old),
        CfRow("write", KEY, ts_of(500 * MS), first, "put", None),
    )
    locked = (CfRow("lock", KEY, 0, second, "put", None), CfRow("default", KEY, second, second, "put", new))
    committed = (locked[1], CfRow("write", KEY, ts_of(FREE - 100 * MS), second, "put", None))
    return [
        (now, () if now < 500 * MS else base if now < LOCKED else base + locked if now < FREE else base + committed)
        for now in range(0, END + 1, EVERY)
    ]


SEED = {f"@TS{k}": k * 100 * MS for k in range(1, 6)}
"""The design's timestamps, as moments (µs)."""


def seed_transactions() -> pa.Table:
    """Give the design's example: one commits at @TS4, the other one has written at @TS5 and commits later."""
    starts, ends = [ts_of(SEED["@TS1"]), ts_of(SEED["@TS3"])], [ts_of(SEED["@TS4"]), ts_of(800 * MS)]
    return pa.table({"name": ["id = 1", "id = 2"], "start_ts": starts, "commit_ts": ends})


def seed_events() -> pa.Table:
    """Give what a changefeed from @TS1 on gets whose snapshot is taken after @TS5."""
    first, second = ts_of(SEED["@TS1"]), ts_of(SEED["@TS3"])
    one, two = key_of(104, 1), key_of(104, 2)
    rows = [
        (640 * MS, "scan", "prewrite", two, second, 0),
        (660 * MS, "scan", "committed", one, first, ts_of(SEED["@TS4"])),
        (690 * MS, "scan", "initialized", 0, 0, 0),
        (820 * MS, "stream", "commit", two, second, ts_of(800 * MS)),
    ]
    names = ("at_us", "by", "type", "key", "start_ts", "commit_ts")
    return pa.table(dict(zip(names, map(list, zip(*rows, strict=True)), strict=True)))


def delivered() -> pd.DataFrame:
    """Give what became of rows under each semantics."""
    rows = [
        ("at-most-once", "capture crash", 40, 0, 0, False, False),
        ("at-most-once", "leader change", 0, 0, 0, True, True),
        ("at-least-once", "capture crash", 0, 120, 3, True, False),
        ("at-least-once", "leader change", 0, 16, 0, True, False),
        ("exactly-once-deduplication", "capture crash", 0, 0, 0, True, True),
    ]
    ends = ["final_right_idempotent", "final_right_blind"]
    return pd.DataFrame(rows, columns=["semantics", "fault", "lost", "repeated", "regressed", *ends])

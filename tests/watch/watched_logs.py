"""Logs as a watch reads them: decoded in this process, cut into batches; and what an audit shows of them."""

from __future__ import annotations

import random
from functools import cache
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from audit_tables import audit_table
from conftest import ROOT, golden
from tiny_logs import table_of

from ticdc_lab.codecs.decode import decoder
from ticdc_lab.codecs.detection import detect
from ticdc_lab.codecs.kernel.arrow import arrow_schema
from ticdc_lab.codecs.known import Known
from ticdc_lab.codecs.schema_registry import read_schemas
from ticdc_lab.codecs.simple_tables import finder, tables_of
from ticdc_lab.dispatch.infer import move_causes_table
from ticdc_lab.events.schema import DECODED
from ticdc_lab.facts import LogFacts
from ticdc_lab.sources.capture import read_whole
from ticdc_lab.watch.state import WatchCounts, Watched, WatchState, absorbed, step

FORM = arrow_schema(DECODED)
WHO = ("guarantee", "severity", "table", "commit_ts", "topic", "partition", "offset", "seq", "message", "evidence")


@cache
def decoded(name: str, schemas: str | None = None) -> tuple[pa.Table, Watched]:
    """All events of a golden file, and how it is watched."""
    torture = ROOT / "tests/data/torture" / name
    path = torture if torture.exists() else golden(name)
    with path.open("rb") as file:
        messages = pa.Table.from_batches([m for m, _ in read_whole(file, str(path))])
    known = Known(schemas=read_schemas(str(golden(schemas)))) if schemas else Known()
    told = detect(messages.slice(0, 256), known=known)
    if told.protocol == "simple":
        rows = [r for b in finder(known)(iter(messages.to_batches())) for r in b.to_pylist()]
        known = Known(tables=tables_of(rows))
    events = pa.Table.from_batches(decoder(told.protocol, images=False, known=known)(iter(messages.to_batches())), FORM)
    return events, Watched(told.protocol, told.has_commit_ts)


def of_tiny(events: list[dict[str, Any]]) -> pa.Table:
    """Events of tests/audit/tiny_logs.py in the form that a decoder gives."""
    table = table_of(events)
    whole = [table[f.name].cast(f.type) if f.name in table.column_names else pa.nulls(len(table), f.type) for f in FORM]
    return pa.table(whole, schema=FORM)


def audited(events: pa.Table, watched: Watched) -> list[dict[str, Any]]:
    """What an audit finds of what is watched."""
    read = events.filter(pc.is_null(events["error_class"]))
    of = {"protocol": watched.protocol, "has_commit_ts": watched.has_commit_ts, "settings": watched.settings}
    checks = watched.on(LogFacts.of(read)).checks
    found = audit_table(read, **of, max_per_guarantee=None, checks=checks)
    if {"rows_stay_in_one_partition", "row_images_chain"} & {*found["guarantee"].to_pylist()}:
        found = audit_table(read, **of, max_per_guarantee=None, checks=checks, causes=move_causes_table(read))
    return found.drop_columns(["key"]).to_pylist()


def batches(events: pa.Table, rng: random.Random, *, most: int) -> list[pa.Table]:
    """A log as its partitions are read side by side: each in order, in batches of any size."""
    order = pc.sort_indices(events, [("topic", "ascending"), ("partition", "ascending"), ("offset", "ascending"),
                                     ("seq", "ascending")])  # fmt: skip
    ordered, queues = events.take(order), dict[Any, list[int]]()
    for i, home in enumerate(zip(ordered["topic"].to_pylist(), ordered["partition"].to_pylist(), strict=True)):
        queues.setdefault(home, []).append(i)
    mixed: list[int] = []
    while queues:
        home = rng.choice(list(queues))
        n = rng.randint(1, most)
        mixed += queues[home][:n]
        queues[home] = queues[home][n:]
        if not queues[home]:
            del queues[home]
    offset, found, at = ordered["offset"].to_pylist(), list[pa.Table](), 0
    while at < len(mixed):
        end = min(len(mixed), at + rng.randint(1, most))
        while end < len(mixed) and (offset[mixed[end]], mixed[end]) == (offset[mixed[end - 1]], mixed[end - 1] + 1):
            end += 1  # a message is never cut
        found.append(ordered.take(pa.array(mixed[at:end])))
        at = end
    return found


def watched_to_the_end(parts: list[pa.Table], watched: Watched) -> tuple[WatchState, list[dict[str, Any]], WatchCounts]:
    """What the last step finds."""
    state, counts, found = WatchState(), WatchCounts(), pa.table({})
    for i, part in enumerate(parts):
        if i < len(parts) - 1:
            state, of_batch = absorbed(state, part, watched)
        else:
            state, found, of_batch = step(state, part, watched)
        counts += of_batch
    return state, found.to_pylist(), counts

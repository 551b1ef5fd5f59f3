"""A workload's rows as plain dicts in commit order, without Spark, and the state of the tables that they make."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from itertools import groupby
from typing import Any

from ticdc_lab.workload.definitions import Definition
from ticdc_lab.workload.generate import _statements, _watermarks
from ticdc_lab.workload.lanes import OPENING_CENTS, events_of, lane_of
from ticdc_lab.workload.settings import Workload
from ticdc_lab.workload.shape import Shape

Event = dict[str, Any]
Key = tuple[str | None, ...]


@cache
def rows_of(workload: Workload) -> tuple[Event, ...]:
    """All row changes in commit order."""
    shape = Shape(workload)
    found = [
        e for lane in range(workload.lanes) for b in events_of(lane_of(shape, lane), shape, 4096) for e in b.to_pylist()
    ]
    return tuple(sorted(found, key=lambda e: (e["offset"], e["seq"])))


def total_cents(workload: Workload) -> int:
    """The sum of all balances of a bank, at every commit_ts from the first on."""
    return workload.lanes * workload.keys_a_lane * OPENING_CENTS


def statements_of(workload: Workload) -> list[Event]:
    """All DDL."""
    return _statements(Shape(workload)).to_pylist()


def watermarks_of(workload: Workload) -> list[Event]:
    """All watermarks."""
    return _watermarks(Shape(workload)).to_pylist()


def values(image: list[Event] | None) -> dict[str, str | None] | None:
    """Values by column."""
    return None if image is None else {c["name"]: c["value"] for c in image}


def key_of(event: Event) -> Key:
    """The row: its table's id and the values of its key."""
    image = event["columns"] or event["before"]
    return (str(event["table_id"]), *(c["value"] for c in image if c["is_key"]))


def commits(workload: Workload) -> Iterator[tuple[int, list[Event]]]:
    """Transactions in commit order."""
    for ts, those in groupby(rows_of(workload), key=lambda e: e["commit_ts"]):
        yield ts, list(those)


def definition_at(workload: Workload, table_id: int, ts: int) -> Definition:
    """The definition that a table has at a commit_ts, by the DDL."""
    found = [d for at, d in _definitions(workload).get(table_id, ()) if at < ts]
    assert found and found[-1] is not None, "a row of a table that is not there"
    return found[-1]


@cache
def _definitions(workload: Workload) -> dict[int, list[tuple[int, Definition | None]]]:
    found: dict[int, list[tuple[int, Definition | None]]] = {}
    for s, e in zip(Shape(workload).plan.statements, statements_of(workload), strict=True):
        if s.after.id is not None:
            found.setdefault(s.after.id, []).append((e["commit_ts"], s.after))
        if s.dropped is not None:
            found[s.dropped].append((e["commit_ts"], None))
    return found

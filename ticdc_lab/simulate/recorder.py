"""Writes the trace while a run goes on: cheap tuples first, text only when somebody reads it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

import orjson
import pyarrow as pa

from ticdc_lab.simulate.trace import TRACE

FULL, EVENTS, CHANGES, NOTHING = "full", "events", "changes", "nothing"
LEVELS = (FULL, EVENTS, CHANGES, NOTHING)
"""Everything; all but timers; no messages either (they are counted); nothing."""

_MESSAGES = frozenset({"sent", "received", "lost", "resent", "refused"})


class Row(NamedTuple):
    """One row of :data:`ticdc_lab.simulate.trace.TRACE`, its message still an object."""

    step: int
    time_us: int
    node: str
    kind: str
    peer: str | None = None
    message: Any = None
    message_id: int | None = None
    subject: str | None = None
    before: str | int | None = None
    after: str | int | None = None
    because: str | None = None
    rejected: tuple[tuple[str, str], ...] = ()


class Recorder:
    """The rows of one run.

    Parameters
    ----------
    run
        The name in column ``run``.
    level
        One of :data:`LEVELS`.
    """

    def __init__(self, run: str, level: str = EVENTS) -> None:
        self.run = run
        self.level = level
        self.rows: list[Row] = []
        self.messages = level in (FULL, EVENTS)
        self.timers = level == FULL
        self.any = level != NOTHING

    def add(self, row: Row) -> None:
        """Keep a row, unless the level leaves its kind out."""
        if self.any and (self.messages or row.kind not in _MESSAGES):
            self.rows.append(row)

    def table(self) -> pa.Table:
        """Give all rows so far as an Arrow table (:data:`ticdc_lab.simulate.trace.TRACE`)."""
        return as_table(self.run, self.rows)


def as_table(run: str, rows: Iterable[Row]) -> pa.Table:
    """Write rows as an Arrow table."""
    found = list(rows)
    columns: dict[str, list[Any]] = {
        "run": [run] * len(found),
        "step": [r.step for r in found],
        "time_us": [r.time_us for r in found],
        "node": [r.node for r in found],
        "kind": [r.kind for r in found],
        "peer": [r.peer for r in found],
        "message": [name_of(r.message) for r in found],
        "message_id": [r.message_id for r in found],
        "detail": [detail_of(r.message) for r in found],
        "subject": [r.subject for r in found],
        "before": [_text(r.before) for r in found],
        "after": [_text(r.after) for r in found],
        "because": [r.because or None for r in found],
        "rejected": [[{"candidate": c, "because": b} for c, b in r.rejected] for r in found],
    }
    return pa.table(columns, schema=TRACE)


def name_of(message: Any) -> str | None:
    """Give the name of a message, a timer or a command: its class, or what it is."""
    if message is None or isinstance(message, str):
        return message
    return type(message).__name__ if hasattr(message, "_fields") else str(message)


def detail_of(message: Any) -> str | None:
    """Give a message's fields as JSON, under the protocol's names (``owner-rev`` for ``owner_rev``)."""
    if not hasattr(message, "_fields"):
        return None
    return orjson.dumps(_plain(message), option=orjson.OPT_NON_STR_KEYS | orjson.OPT_SORT_KEYS).decode()


def _plain(value: Any) -> Any:
    if hasattr(value, "_fields"):
        return {name.replace("_", "-"): _plain(v) for name, v in zip(value._fields, value, strict=True)}
    if isinstance(value, dict) or hasattr(value, "mutate"):
        return {str(k): _plain(v) for k, v in sorted(value.items(), key=lambda e: str(e[0]))}
    if isinstance(value, (frozenset, set)):
        return sorted((_plain(v) for v in value), key=str)
    if isinstance(value, (tuple, list)):
        return [_plain(v) for v in value]
    return value if value is None or isinstance(value, (bool, int, float, str)) else str(value)


def _text(value: str | int | None) -> str | None:
    return None if value is None else str(value)

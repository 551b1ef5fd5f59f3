"""One ledger: who held what, in which state, from when to when. Simulators and the DDL service write it row by row."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Generic, NamedTuple, TypeVar

import pyarrow as pa


class At(NamedTuple):
    """A moment of a trace: the place of its row, virtual time, and the step of the loop."""

    order: int
    us: int
    step: int


Moment = TypeVar("Moment", int, At)


class Held(NamedTuple, Generic[Moment]):
    """A row of a ledger; ``is_open`` where the holder still had the key in this state when the ledger ended."""

    key: Any
    holder: str
    state: Any
    since: Moment
    until: Moment
    because: str | None
    is_open: bool


@dataclass(slots=True)
class Ledger(Generic[Moment]):
    """Who holds what now, and all that ended."""

    # Rows that ended, in that order. A row of no length is left out.
    ended: list[Held[Moment]] = field(default_factory=list)
    # (key, holder) to state, since when, and why.
    now: dict[tuple[Any, str], tuple[Any, Moment, str | None]] = field(default_factory=dict)

    def set(self, key: Any, state: Any, at: Moment, *, holder: str = "", because: str | None = None) -> None:
        """Let a holder have a key in a state from now on; None for no longer. An equal state changes nothing."""
        old = self.now.get((key, holder))
        if old is not None and old[0] == state:
            return
        if old is not None:
            self._close(key, holder, at, is_open=False)
        if state is not None:
            self.now[key, holder] = (state, at, because)

    def state(self, key: Any, holder: str = "") -> Any:
        """Give the state in which a holder has a key now, None where it has it not."""
        found = self.now.get((key, holder))
        return None if found is None else found[0]

    def end(self, at: Moment) -> list[Held[Moment]]:
        """End all that lasts, and give every row by its beginning."""
        for key, holder in list(self.now):
            self._close(key, holder, at, is_open=True)
        return sorted(self.ended, key=lambda row: (row.since, str(row.key), row.holder))

    def _close(self, key: Any, holder: str, at: Moment, *, is_open: bool) -> None:
        state, since, because = self.now.pop((key, holder))
        if since != at:
            self.ended.append(Held(key, holder, state, since, at, because, is_open))


HELD = pa.schema(
    [
        ("what", pa.string()),  # table, owner, capture
        ("key", pa.string()),  # the table or span; of a capture its peer where a link is parted
        ("holder", pa.string()),  # an address, or the name of a capture
        ("state", pa.string()),
        *((f"{end}{unit}", pa.int64()) for unit in ("_us", "_step", "") for end in ("since", "until")),
        ("open", pa.bool_()),
        ("because", pa.string()),
    ]
)
"""The ledger of a trace; ``since`` and ``until`` are places in it. Keys are (what, key)."""


def as_table(rows: list[Held[At]]) -> pa.Table:
    """Write rows of a trace's ledger as Arrow (:data:`HELD`)."""
    found = [
        (*row.key, row.holder, row.state, row.since.us, row.until.us, row.since.step, row.until.step,
         row.since.order, row.until.order, row.is_open, row.because)
        for row in rows
    ]  # fmt: skip
    return table_of(found, HELD)


def table_of(rows: Iterable[tuple[Any, ...]], schema: pa.Schema) -> pa.Table:
    """Write rows as Arrow."""
    return pa.table([list(c) for c in zip(*rows, strict=True)] or [[] for _ in schema], schema=schema)


@dataclass(slots=True)
class Total:
    """Time in which something is true of any key, added up without visiting each; ``since_us``: the current keys."""

    ended_us: int = 0
    since_us: dict[str, int] = field(default_factory=dict)
    begun_us: int = 0

    def put(self, key: str, lasts: bool, at_us: int) -> None:
        """Set whether it is true of a key from now on."""
        if lasts and key not in self.since_us:
            self.since_us[key] = at_us
            self.begun_us += at_us
        elif not lasts and key in self.since_us:
            since_us = self.since_us.pop(key)
            self.begun_us -= since_us
            self.ended_us += at_us - since_us

    def until(self, at_us: int) -> int:
        """Give the time of all of them, until a moment."""
        return self.ended_us + len(self.since_us) * at_us - self.begun_us

"""What a codec in Python gives of one message: events, or why there are none."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from ticdc_lab.codecs.kernel.numbering import INSERT

INT64 = range(-(1 << 63), 1 << 63)

CORRUPTED = "corrupted"
"""``incomplete`` of a row whose checksum TiCDC itself reports as different from TiDB's."""


Cell = tuple[str, str | None, str | None, bool, int]
"""A :class:`Column` as a plain tuple, which costs a fifth to make."""


class Column(NamedTuple):
    """One column of an image; ``value`` as in the events contract, None for NULL."""

    name: str
    mysql_type: str | None
    value: str | None
    is_key: bool = False
    flags: int = -1
    """Open-protocol flags; below zero: the protocol has none."""


class Malformed(Exception):
    """A message that cannot be decoded; it goes to the quarantine under ``error_class`` with ``reason``."""

    def __init__(self, error_class: str, reason: str, seq: int = 0, *, byte: tuple[str, int] | None = None) -> None:
        super().__init__(reason)
        self.error_class = error_class
        self.reason = reason
        self.byte = byte
        """``key`` or ``value``, and where in it the fault lies, if a place is known."""
        self.seq = seq
        """Which event of the message it is about, where the others are decoded."""


@dataclass(slots=True)
class Event:
    """One event of a message; names as in :data:`ticdc_lab.events.schema.EVENTS`.

    ``size`` is the number of bytes that the event has for itself in its message, None where a message is no sequence
    of parts.
    """

    kind: int
    commit_ts: int | None = None
    schema_name: str | None = None
    table_name: str | None = None
    table_id: int | None = None
    op: int = INSERT
    columns: Sequence[Cell] | None = None
    before: Sequence[Cell] | None = None
    query: str | None = None
    ddl_type: str | None = None
    partition_count: int | None = None
    incomplete: str | None = None
    checksum: int | None = None
    checksum_before: int | None = None
    size: int | None = None
    start_ts: int | None = None
    row_key: bytes | None = None
    """TiKV's key of the row, as the message writes it: it separates equal rows without a handle key."""
    fault: Malformed | None = None
    """Why it is in the quarantine though the other events of its message are decoded."""


class Outgrown(Exception):
    """A message whose events may be too large for plain Python: the compiled kernels, which keep limits, decode it."""


Codec = Callable[[bytes | None, bytes | None], Sequence[Event]]
"""Key and value of a message to its events, at least one; raises :class:`Malformed`."""

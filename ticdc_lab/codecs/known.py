"""What decoding needs beside the messages: schemas, table versions, where large messages were put, and its bounds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any

from ticdc_lab.codecs.defined_types import LogTypes
from ticdc_lab.codecs.event import Malformed
from ticdc_lab.errors import SourceError
from ticdc_lab.settings import UNKNOWN, Settings


@dataclass(frozen=True, slots=True)
class Bounds:
    """How much a message may become; what lies beyond goes to the quarantine as ``too-large``.

    A few bytes can become many: compressed zeros, a type that thousands of rows repeat, a list of empty objects. So
    time and memory are bounded by what comes in, not by what it declares.
    """

    # Bytes that a compressed message may be inflated to, and that a file under a claim check may have.
    inflated: int = 1 << 26
    # JSON values of a message that is read into Python's objects, which take thirty times the bytes of a ``{}``.
    values: int = 1 << 20
    # ``growth``, ``growth_free``: the texts of a message's events may have so many times its bytes, and so many more.
    growth: int = 64
    growth_free: int = 1 << 20
    # ``events``, ``columns``: rows of a message, and columns of a row.
    events: int = 1 << 17
    columns: int = 1 << 14
    line: int = 1 << 27  # bytes of a line of a capture file

    @property
    def kernel(self) -> tuple[int, int, int, int]:
        """In the order of :mod:`ticdc_lab.codecs.kernel.numbering`."""
        return self.growth, self.growth_free, self.events, self.columns


BOUNDS = Bounds()
"""The defaults."""

AT_ONCE = 16 << 20
"""Bytes of messages that are decoded at once."""


def bounds_of(given: dict[str, str]) -> Bounds:
    """Bounds, some of them given as text.

    Raises SourceError: a name is none of them, or a value is no whole number above 0.
    """
    names = [f.name for f in fields(Bounds)]
    for name, value in given.items():
        if name not in names or not (value.isascii() and value.isdigit() and 0 < int(value) < 1 << 40):
            raise SourceError(
                f"{name}={value} is no bound of decoding; expected one of {', '.join(names)} and a number above 0.",
                hint=f"The values now: {', '.join(f'{name}={getattr(BOUNDS, name)}' for name in names)}.",
            )
    return Bounds(**{name: int(value) for name, value in given.items()})


def too_large(what: str, found: int, bound: str, most: int) -> Malformed:
    """The fault of a message that is beyond a bound."""
    return Malformed("too-large", f"{what}: expected at most {most:,} (bound `{bound}`), found {found:,}")


@dataclass(frozen=True, slots=True)
class Known:
    """Facts from outside a message; it travels to the workers with the decoder.

    Attributes
    ----------
    schemas
        Avro schemas (JSON text) by their id in the registry, a number or a UUID.
    subjects
        The subjects under which they are registered, where that is known.
    registry_url
        Where an id that is not among ``schemas`` is asked for; empty: nowhere.
    tables
        Table definitions of the simple protocol by ``(schema, table, version)``, as their messages write them.
    claim_check
        The folder (a path or a URL) that large messages were written to; None: their content is not looked for.
    bounds
        How much a message, and a batch of them, may become.
    settings
        What is known of the changefeed's settings.
    types
        Columns of the log's own DDL: for debezium, whose messages name few digits, or no types at all.
    binary
        How debezium's messages write bytes: ``base64`` or ``hex``.
    handles
        Handle keys that only the log's DDL define (:data:`ticdc_lab.codecs.handles.Handles`).
    """

    schemas: Mapping[str, str] = field(default_factory=dict)
    subjects: Mapping[str, frozenset[str]] = field(default_factory=dict)
    registry_url: str = field(default="", repr=False)  # may hold a password
    tables: Mapping[tuple[str, str, int], Mapping[str, Any]] = field(default_factory=dict)
    claim_check: str | None = field(default=None, repr=False)  # so may the URL of an object store
    bounds: Bounds = BOUNDS
    settings: Settings = UNKNOWN
    types: LogTypes = field(default_factory=LogTypes)
    binary: str = "base64"
    handles: Mapping[tuple[str, str], tuple[Sequence[int], Sequence[tuple[str, ...]]]] = field(default_factory=dict)


NOTHING = Known()

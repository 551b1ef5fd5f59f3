"""Records of the real PD: the lines of a file, their fields, and our answer to each.

A value of another form is refused with where, expected and found; never a crash.
"""

from __future__ import annotations

import gzip
import math
import zlib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import orjson

from ticdc_lab.errors import SourceError
from ticdc_lab.errors.bounded import read_printed
from ticdc_lab.pd_core.explained import Explained


class Malformed(Exception):
    """A record is not of the form it should have."""

    def __init__(self, where: str, expected: str, found: object) -> None:
        super().__init__(f"{where}: expected {expected}, found {_short(found)}")
        self.where, self.expected, self.found = where, expected, _short(found)


class UnknownRecord(Exception):
    """A record is well formed and needs something that is not modelled; the message names it."""


MISSING: Any = object()


class Fields:
    """The fields of a JSON object; remembers which were read."""

    def __init__(self, value: object, where: str) -> None:
        if not isinstance(value, Mapping):
            raise Malformed(where, "an object", value)
        self.value, self.where = value, where
        self.read: set[str] = set()

    def __contains__(self, key: str) -> bool:
        return key in self.value

    def unread(self) -> list[str]:
        """Names of fields that were not read."""
        return sorted(set(self.value) - self.read)

    def any(self, key: str, default: Any = MISSING) -> Any:
        self.read.add(key)
        if key in self.value:
            return self.value[key]
        if default is MISSING:
            raise Malformed(f"{self.where}.{key}", "a value", "nothing")
        return default

    def number(self, key: str, default: Any = MISSING) -> float:
        return number(self.any(key, default), f"{self.where}.{key}")

    def integer(self, key: str, default: Any = MISSING) -> int:
        value = self.number(key, default)
        if value != int(value):
            raise Malformed(f"{self.where}.{key}", "a whole number", value)
        return int(value)

    def _of(self, key: str, default: Any, kind: Any, expected: str) -> Any:
        value = self.any(key, default)
        if not isinstance(value, kind):
            raise Malformed(f"{self.where}.{key}", expected, value)
        return value

    def flag(self, key: str, default: Any = MISSING) -> bool:
        return bool(self._of(key, default, bool, "true or false"))

    def text(self, key: str, default: Any = MISSING) -> str:
        return str(self._of(key, default, str, "a string"))

    def texts(self, key: str, default: Any = MISSING) -> tuple[str, ...]:
        value = self.items(key, default)
        if not all(isinstance(v, str) for v in value):
            raise Malformed(f"{self.where}.{key}", "a list of strings", value)
        return tuple(value)

    def integers(self, key: str, default: Any = MISSING) -> tuple[int, ...]:
        value = self.items(key, default)
        return tuple(int(number(v, f"{self.where}.{key}")) for v in value)

    def items(self, key: str, default: Any = MISSING) -> Sequence[Any]:
        found: Sequence[Any] = self._of(key, default, list | tuple, "a list")
        return found

    def object(self, key: str, default: Any = MISSING) -> Fields:
        return Fields(self.any(key, default), f"{self.where}.{key}")

    def objects(self, key: str, default: Any = MISSING) -> list[Fields]:
        return [Fields(v, f"{self.where}.{key}[{i}]") for i, v in enumerate(self.items(key, default))]

    def labels(self, key: str) -> dict[str, str]:
        return self.object(key, {}).all_texts()

    def all_texts(self) -> dict[str, str]:
        return {name: self.text(name) for name in self.value}


MOST_PEERS = 15
"""Peers of a region in a record: with more, the ways to fit them to rules are too many."""


def few_peers(peers: tuple[int, ...], where: str) -> tuple[int, ...]:
    """Give the stores of a region's peers, refusing too many and two on one store."""
    if len(peers) > MOST_PEERS or len(set(peers)) < len(peers):
        raise Malformed(where, f"at most {MOST_PEERS} peers, each on a store of its own", peers)
    return peers


def number(value: object, where: str) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise Malformed(where, "a finite number", value)
    return value


def _short(value: object) -> str:
    text = value if isinstance(value, str) else repr(value)
    return text if len(text) <= 120 else text[:117] + "..."


_GZIP = b"\x1f\x8b"


def lines_of(path: Path) -> list[bytes]:
    """Read a file's lines, as they are or gzipped."""
    try:
        with path.open("rb") as raw:
            zipped = raw.read(2) == _GZIP
            raw.seek(0)
            return read_printed(gzip.open(raw) if zipped else raw).splitlines()  # type: ignore[arg-type]
    except (OSError, EOFError, ValueError, zlib.error) as e:
        raise SourceError(
            f"{path}: cannot be read: {getattr(e, 'strerror', None) or e}",
            hint="Give a file of records, .jsonl or .jsonl.gz.",
        ) from e


def records_of(path: str | Path) -> Iterator[dict[str, Any]]:
    """Give the records of a file; lines that are none are left out."""
    for line in lines_of(Path(path)):
        try:
            found = orjson.loads(line)
        except orjson.JSONDecodeError:
            continue
        if isinstance(found, dict):
            yield found


class Verdict(NamedTuple):
    """Our answer to a record."""

    # Our answer, in the form of the file. Where PD may answer in several ways it is the most likely one, the first of
    # equally likely ones; ``legal`` has them all.
    ours: Any
    file: Any  # the file's value
    agrees: bool | None  # whether they agree; None where the record is not judged
    because: str = ""  # why, in a sentence: what decided, or how the two differ
    # Every answer PD may give, each with its ``chance``; empty where there is one.
    legal: tuple[dict[str, Any], ...] = ()
    explained: Explained | None = None  # the reasons of a decision, where one was made for one region


def equal(ours: Mapping[str, Any], expect: Fields, because: str = "") -> Verdict:
    """Give the verdict of an answer that must be the file's in every field."""
    return Verdict(dict(ours), dict(expect.value), ours == expect.value, because)

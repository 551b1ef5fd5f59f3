"""Recordings with bytes changed: each line is a message or in quarantine, once and in order, as Python's JSON reads it.

In the suite from fixed seeds, under ``soak`` for ``SOAK_SECONDS`` from ``SOAK_SEED``; a failure prints the command that
repeats it.
"""

from __future__ import annotations

import gzip
import json
import re
import tempfile
import threading
from base64 import b64decode
from functools import cache
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pytest
from conftest import golden
from making import broken
from soaking import soak, tried

from ticdc_lab.codecs import choice
from ticdc_lab.codecs.kernel import capture, state
from ticdc_lab.codecs.kernel.state import State, fresh_state
from ticdc_lab.sources.pieces import of_lines, read_piece

FILE = "tests/codecs/test_capture_fuzz.py"
SOURCES = ("messages_canal-json-tidb_small.jsonl.gz", "messages_avro-prod_small.jsonl.gz")
_BASE64 = re.compile(r"[A-Za-z0-9+/]*={0,2}")
_NAMES = frozenset(("topic", "partition", "offset", "timestamp", "key", "value", "headers"))

Read = tuple[Any, ...]
"""Topic, partition, offset, key and value of a message, or the line that is none."""


@cache
def real() -> tuple[bytes, ...]:
    """Short lines of recordings, some with all that a line may have."""
    lines = [x for name in SOURCES for x in gzip.decompress(golden(name).read_bytes()).splitlines()[::37]]
    whole = {"topic": "t\u00e9\n", "partition": 3, "offset": 9, "timestamp": 1_700_000_000_000, "key": "a2V5",
             "value": None, "headers": [["h", "eA=="], ["", None]], "more": {"x": [1.5e3, {"y": "\\"}]}}  # fmt: skip
    return (*[x for x in lines if len(x) < 900], json.dumps(whole).encode(), json.dumps(whole, indent=None).encode())


class _Wrong(Exception):
    """It is no message."""


def _no_constant(text: str) -> Any:
    raise ValueError(text)


def by_json(line: bytes) -> Read:
    """What a line is by Python's own parser and docs/contracts.md."""
    try:
        pairs = json.loads(line.decode(), object_pairs_hook=tuple, parse_constant=_no_constant)
        if not isinstance(pairs, tuple):
            raise _Wrong
        names = [name for name, _ in pairs if name in _NAMES]
        if len(names) != len(set(names)) or _surrogate(pairs):
            raise _Wrong
        return _message({name: value for name, value in pairs if name in _NAMES})
    except (ValueError, _Wrong, RecursionError):
        return ("none", line)


def _message(m: dict[str, Any]) -> Read:
    if not isinstance(m.get("topic"), str):
        raise _Wrong
    for name, most in (("partition", (1 << 31) - 1), ("offset", (1 << 63) - 1), ("timestamp", 253402300799999)):
        value = m.get(name)
        if value is None and name == "timestamp":
            continue
        if type(value) is not int or not (0 <= value <= most or (name == "timestamp" and value == -1)):
            raise _Wrong
    if not isinstance(m.get("headers") or [], list):
        raise _Wrong
    for pair in m.get("headers") or []:
        if not (isinstance(pair, list) and len(pair) == 2 and isinstance(pair[0], str)):
            raise _Wrong
        _bytes(pair[1])
    return m["topic"], m["partition"], m["offset"], *(_bytes(m.get(name)) for name in ("key", "value"))


def _surrogate(value: Any) -> bool:
    """Half a character in any text, however deep."""
    if isinstance(value, list | tuple):
        return any(map(_surrogate, value))
    return isinstance(value, str) and any("\ud800" <= c <= "\udfff" for c in value)


def _bytes(text: Any) -> bytes | None:
    if text is None:
        return None
    if not isinstance(text, str) or len(text.encode(errors="replace")) % 4 or not _BASE64.fullmatch(text):
        raise _Wrong
    return b64decode(text)


def by_us(path: Path, range_bytes: int) -> list[Read]:
    """What a file is to the loader, in ranges of so many bytes; rejected lines behind the messages of each batch."""
    found: list[Read] = []
    for file, first, last in of_lines([path], range_bytes):
        for messages, rejected in read_piece(file, first, last):
            found += [
                tuple(m[c] for c in ("topic", "partition", "offset", "key", "value")) for m in messages.to_pylist()
            ]
            found += [("none", r["value"]) for r in (rejected.to_pylist() if rejected else [])]
    return found


def same(seed: int) -> int:
    """Break lines of a recording, and some of its line ends; read it plain in ranges, and as gzip; how many lines."""
    r = Random(seed)
    lines = [broken((None, r.choice(real())), r)[1] or b"" if r.random() < 0.7 else r.choice(real()) for _ in range(60)]
    raw = r.choice((b"\n", b"\r\n", b"\n\n")).join(lines)
    raw = raw[: r.randrange(len(raw))] if r.random() < 0.2 else raw + b"\n" * r.randrange(3)
    given = [line for line in raw.split(b"\n") if line.strip()]
    wanted = sorted(map(by_json, given), key=repr)
    with tempfile.TemporaryDirectory() as folder:
        plain, packed = Path(folder) / "a.jsonl", Path(folder) / "a.jsonl.gz"
        plain.write_bytes(raw)
        cut = r.randrange(len(raw) + 1)
        packed.write_bytes(gzip.compress(raw[:cut], 1) + b"\0" * r.randrange(3) + gzip.compress(raw[cut:], 1))
        for path, range_bytes in (
            (plain, r.choice((7 if seed % 10 == 0 else 300, 900, 5_000))),
            (plain, 1 << 30),
            (packed, 1),
        ):
            found = sorted(by_us(path, range_bytes), key=repr)
            assert len(found) == len(wanted), f"{path.name}: {len(wanted)} lines in, {len(found)} out"
            odd = [x for x in found if x not in wanted][:1], [x for x in wanted if x not in found][:1]
            assert odd == ([], []), f"{path.name}, {range_bytes} bytes a range: found {odd[0]}, expected {odd[1]}"
            assert found == wanted, f"{path.name}, {range_bytes} bytes a range: other repetitions"
    return len(given)


@pytest.mark.parametrize("compiled", [True, False])
@pytest.mark.parametrize("seed", range(8))
def test_each_line_is_read_once_as_python_reads_it(seed: int, compiled: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """By the kernel and by plain Python: none lost, none doubled, no value another."""
    monkeypatch.setattr(choice, "compiled", lambda *_: compiled)
    tried(FILE, "capture", seed, same)


def test_fields_become_no_more_than_their_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    """So the kernel runs once, with room for their bytes; if it ever did not, it would report it and not run on."""
    key, topic = "".join(f"\\u{ord(c):04x}" for c in "a2V5"), '\\u0001\\u00e9\\ud83d\\ude00\\\\\\"'
    escaped = f'{{"topic":"{topic}","partition":0,"offset":1,"key":"{key}","value":"AAAA","headers":[["h","eA=="]]}}'
    lines = pa.array([*real(), escaped.encode(), b"{", b'{"topic":"' + b"x" * 9_000] * 20, pa.binary())
    asked: list[int] = []

    def tight(items: int, room: int) -> State:
        asked.append(room)
        return fresh_state(items, room - slack)

    monkeypatch.setattr(capture, "fresh_state", tight)
    monkeypatch.setattr(state, "_OWN", threading.local())  # the room of a batch before would be used again
    slack = 4_096
    found = capture.lines_of(lines)
    assert asked == [sum(map(len, lines.to_pylist())) + slack] and (found.faults != 0).sum() == 40
    monkeypatch.setattr(state, "_OWN", threading.local())
    slack = asked[0] - 1_000  # less room than one of the lines needs
    with pytest.raises(AssertionError, match="became more"):
        capture.lines_of(lines)
    assert len(asked) == 2


@pytest.mark.soak
def test_soak_capture_lines() -> None:
    """The same for as long as ``SOAK_SECONDS`` shows (60)."""
    soak(FILE, "capture", same)

"""Columns of CSV, and of what programs print: by a row of names, or by what they contain."""

from __future__ import annotations

import ast
import csv
import re
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from itertools import islice, pairwise
from typing import Any

from ticdc_lab.errors import SourceError
from ticdc_lab.sources.forms import (
    LOOKED_AT,
    OF_VALUES,
    Form,
    cells_in,
    coding_of,
    codings_of,
    decoded,
    is_envelope,
    lost_of,
    roles_in,
    texts_of,
)  # fmt: skip
from ticdc_lab.sources.json_objects import is_json

_ESCAPED = re.compile(rb'(?<!")"\{\\"(?!")')
"""How a cell of JSON begins whose quotes have a backslash before them."""


def headed_csv(head: bytes, options: Mapping[str, str], whole: bool) -> Form | None:
    """Rows whose first one names the columns."""
    first = head.partition(b"\n")[0].strip().decode("utf-8", "replace")
    delimiter = max(",;\t|", key=first.count)
    names = [name.strip().strip('"') for name in first.split(delimiter)]
    roles = roles_in(names)
    if {"partitionID", "keySize", "valueSize"} <= set(names):
        raise SourceError(
            "This CSV is one of Redpanda Console, which writes ; for each comma of a value: no value can be restored.",
            hint="Save the messages as JSON there, with raw data, or record the topic: ticdc-lab record kafka://HOST:PORT/TOPIC",
        )
    is_placed = bool({"offset", "partition", "key", "timestamp"} & roles.keys()) or len(names) == 1
    if "value" not in roles or first[:1] in "{[":
        return None
    by_name = {name: role for role, name in roles.items()}
    lost = lost_of(roles) | {"null", "messages"}
    parts = tuple(by_name.get(name, "ignored") for name in names)
    lines = head.decode("latin-1").split("\n")
    lines, is_escaped = lines[1:] if whole or len(lines) < 3 else lines[1:-1], bool(_ESCAPED.search(head))
    some = _rows(lines, parts, delimiter, len(head), is_escaped=is_escaped)
    if delimiter == "\t" and not is_escaped:  # mysql --batch and ClickHouse write a backslash as two
        others = _rows(lines, parts, delimiter, len(head), is_escaped=True)
        is_escaped = sum(is_json(_value(row)) for row in others) > sum(is_json(_value(row)) for row in some)
        some = others if is_escaped else some
    some = [row for row in some if list(row.values()) != names]
    if not is_placed and not (some and all(is_json(_value(row)) for row in some)):
        return None
    filled = [{role: text for role, text in row.items() if text != "null"} for row in some]
    codings = codings_of(*texts_of(filled, {"key": "key", "value": "value"}))
    return Form("csv", "csv", *codings, parts=parts, between=delimiter.encode(), lost=lost, is_escaped=is_escaped)


def _rows(
    lines: Sequence[str], parts: Sequence[str], between: str, most: int, *, is_escaped: bool
) -> list[dict[str, str]]:
    """The first rows that have these parts."""
    rows, some = cells_in(lines, between=between, most=most, is_escaped=is_escaped), list[dict[str, str]]()
    with suppress(csv.Error):  # its reader reports where
        some += (dict(zip(parts, row, strict=True)) for row in islice(rows, LOOKED_AT) if len(row) == len(parts))
    return some


def _value(row: Mapping[str, str]) -> bytes:
    return row["value"].encode("latin-1", "replace")


def unnamed_csv(head: bytes, options: Mapping[str, str], whole: bool) -> Form | None:
    """Rows without a header, as Aiven's sinks write configured fields, and as programs join them."""
    lines = head.decode("latin-1").split("\n")[: 4 * LOOKED_AT]
    between = max(",;", key=lines[0].count)
    if lines[0][:1] in "{[" or between not in lines[0]:
        return None
    rows, is_escaped = list[list[str]](), bool(_ESCAPED.search(head))
    lines = lines if whole or len(lines) < 2 else lines[:-1]
    with suppress(csv.Error):
        rows = [row for row in cells_in(lines, between=between, most=len(head), is_escaped=is_escaped) if row]
    if not whole and len(rows) > 1:
        rows.pop()  # its quotes may end further down
    parts = roles_by_content([[cell or None for cell in row] for row in rows[:LOOKED_AT]])
    if parts is None or {row[0] for row in rows} <= {"I", "U", "D"}:  # rows of TiCDC's own storage sink
        return None
    filled = [dict(zip(parts, row, strict=True)) for row in rows[:LOOKED_AT]]
    codings = codings_of(*texts_of(filled, {"key": "key", "value": "value"}))
    lost = lost_of(parts) | {"null"}
    return Form(
        "csv", "csv", *codings, parts=parts, between=between.encode(), lost=lost, is_headed=False, is_escaped=is_escaped
    )


_ISO = re.compile(r"\d{4}-\d\d-\d\d[T ][\d:.]+Z?")


def roles_by_content(rows: Sequence[Sequence[Any]]) -> tuple[str, ...] | None:
    """What the cells of rows without names are: places, times, keys, and values behind them; None for other rows."""
    if not rows or len({len(row) for row in rows}) > 1 or len(rows[0]) < 2:
        return None
    columns = list(zip(*rows, strict=True))
    kinds = [_kind(column) for column in columns]
    numbers = [i for i, kind in enumerate(kinds) if kind == "number"]
    if "content" not in kinds or kinds.count("content") > 2 or len(numbers) > 2:
        return None
    at = len(kinds) - 1 - kinds[::-1].index("content")
    parts = ["ignored"] * len(kinds)
    if len(numbers) == 2:  # the partition is of fewer
        first, second = (len(set(columns[i])) for i in numbers)
        numbers = numbers if first <= second else numbers[::-1]
    for i, part in zip(numbers[::-1], ("offset", "partition"), strict=False):
        parts[i] = part
    for part in ("timestamp", "topic"):
        if part in kinds and kinds.index(part) != (at - 1 if part == "topic" and at > 1 else None):
            parts[kinds.index(part)] = part
    keys = [i for i, kind in enumerate(kinds[:at]) if kind == "content"] or [at - 1]
    parts[at] = "value"
    if keys[0] >= 0 and parts[keys[0]] == "ignored" and kinds[keys[0]] in ("content", "text", "nothing", "topic"):
        parts[keys[0]] = "key" if at > 1 or kinds[keys[0]] != "topic" else "topic"
    return tuple(parts)


def _kind(column: Iterable[Any]) -> str:
    """Of what a column is: ``number``, ``timestamp``, ``content`` of messages, ``topic``, ``text`` or ``nothing``."""
    filled = [cell for cell in column if cell is not None]
    if not filled:
        return "nothing"
    texts = [cell for cell in filled if isinstance(cell, str)]
    if all(isinstance(cell, int) or (isinstance(cell, str) and cell.isdecimal()) for cell in filled):
        numbers = [int(cell) for cell in filled]
        is_time = min(numbers) > 10**12 or (min(numbers) > 10**9 and {b - a for a, b in pairwise(numbers)} != {1})
        return "timestamp" if is_time else "number"
    are_json = all(any(is_json(text.encode(of, "replace")) for of in ("latin-1", "utf-8")) for text in texts)
    if len(texts) < len(filled) or are_json:
        return "content"
    if all(map(_ISO.fullmatch, texts)):
        return "timestamp"
    coding = coding_of(texts)
    if coding == "python":
        return "content"
    with suppress(ValueError):
        contents = [decoded(text, coding) for text in texts if coding != "text"]
        is_sure = any(text.endswith("=") or len(text) >= 24 for text in texts)
        if contents and (is_sure or all(content.startswith(OF_VALUES) for content in contents)):
            return "content"
    return "topic" if len(set(texts)) == 1 and re.fullmatch(r"[\w.-]+", texts[0]) else "text"


# What programs print.


def printed(head: bytes, options: Mapping[str, str], whole: bool) -> Form | None:
    """What print() shows of a message of kafka-python or aiokafka, a dict or a tuple; or Java of a ConsumerRecord."""
    lines = [line for line in head.split(b"\n")[: LOOKED_AT + 1] if line.strip()]
    lines = lines if whole or len(lines) < 2 else lines[:-1]
    if lines and 2 * sum(b"ConsumerRecord(topic" in line for line in lines) > len(lines):
        return Form("printed", "printed", lost=frozenset({"null"} if b"ConsumerRecord(topic = " in head else ()))
    found = [shown for line in lines if (shown := literal(line)) is not None]
    if 2 * len(found) <= len(lines) or len({type(one) for one in found}) > 1 or is_json(lines[0]):
        return None
    if isinstance(found[0], tuple):
        parts = roles_by_content(found)
        if parts is None:
            return None
        found = [dict(zip(parts, one, strict=True)) for one in found]
        roles: Mapping[Any, str] = {part: part for part in parts}
    else:
        names = list(dict.fromkeys(name for one in found for name in one))
        parts, roles = (), roles_in(names)
        if {"kind", "commit_ts"} <= set(names):
            return None
        if not is_envelope(names):  # a value that was parsed
            return Form("printed", "printed", parts=("value",), lost=lost_of() | {"null"})
    lost = lost_of(roles)
    codings = codings_of(*texts_of(found, roles))
    return Form("printed", "printed", *codings, parts=parts, lost=lost, is_headed=not parts)


def literal(line: bytes) -> Any:
    """The dict of texts or the tuple that Python has printed; None for anything else."""
    text = line.strip()
    if not (text.startswith(b"{'") and text.endswith(b"}")) and not (text.startswith(b"(") and text.endswith(b")")):
        return None  # JSON has other quotes
    try:
        found = ast.literal_eval(text.decode("utf-8", "surrogateescape"))
    except (ValueError, SyntaxError, TypeError, RecursionError, MemoryError):
        return None
    is_named = isinstance(found, dict) and found and all(isinstance(name, str) for name in found)
    return found if is_named or isinstance(found, tuple) else None

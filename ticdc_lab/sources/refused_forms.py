"""What a refused file resembles, and the command that makes a form of it that is read."""

from __future__ import annotations

import csv
import json
import re
import shlex
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from itertools import islice
from pathlib import PurePath

from ticdc_lab.errors import SourceError
from ticdc_lab.sources.form_detection import form_of
from ticdc_lab.sources.forms import FORMS, decoded, is_envelope, role_of, shown
from ticdc_lab.sources.json_objects import BadJson, fields_of, is_json
from ticdc_lab.sources.printed_records import is_segment

EVENTS_HINT = "Events that `ticdc-lab events` wrote are decoded already: read the log that they come from."
FORMAT_HINT = r"If kcat -f wrote it, state its format, such as --option format='%t %p %o %k %s\n'. "


def first_line(head: bytes) -> str:
    """The fields of the first line, or what it begins with."""
    line = head.strip().partition(b"\n")[0]
    try:
        return f"line 1 has {', '.join(f'`{name}`' for name in fields_of(line))}"
    except BadJson:
        return f"it begins with {shown(line)}"


def converted_hint(source: str, head: bytes) -> str:
    """The command that makes a dump of a file which resembles one; empty where it resembles none."""
    return next((found for of in _RESEMBLES if (found := of(source, head))), "")


def _headless(source: str, head: bytes) -> str:
    """The command that reads CSV whose first row is a message; empty for anything else."""
    row = next(csv.reader([head.strip().partition(b"\n")[0].decode("utf-8", "replace")]), [])
    at = next((i for i, cell in enumerate(row) if is_json(cell.encode()) and cell[:1] == "{"), None)
    if at is None or len(row) < 2:
        return ""
    names = list[str]()
    for i, cell in enumerate(row):
        free = [n for n in ("partition", "offset") if n not in names]
        if i == at:
            name = "value"
        elif cell.isdigit() and (len(cell) > 11 or not free):
            name = "timestamp"
        elif cell.isdigit():
            name = free[0] if sum(c.isdigit() and len(c) < 12 for c in row) > 1 else "offset"
        else:
            name = "key" if i == at - 1 and i else "topic"
        names.append(f"column_{i + 1}" if name in names else name)
    named = ",".join(names)
    return (
        f"It resembles CSV. Put a row of names before it, such as: (echo {named}; cat {shlex.quote(source)}) > "
        "named.csv; ticdc-lab survey named.csv"
    )


_FROM_YAML = (
    "import base64,json,sys,yaml; text=lambda v: base64.b64encode(v).decode() if isinstance(v,bytes) else str(v); "
    "[print(json.dumps(m,default=text)) for d in yaml.safe_load_all(sys.stdin.buffer) "
    "for m in (d if isinstance(d,list) else [d]) if m]"
)


def _yaml(source: str, head: bytes) -> str:
    lines = [line for line in head.decode("utf-8", "replace").split("\n")[:40] if line.strip() not in ("", "---")]
    names = [found[1] for line in lines if (found := re.match(r"\s*(?:- )?(\w+):(?: |$)", line))]
    if len(names) < 3 or not any(role_of(name) == "value" for name in names):
        return ""
    command = f"{shlex.quote(sys.executable)} -c {shlex.quote(_FROM_YAML)} < {shlex.quote(source)} > dump.jsonl"
    return f"It resembles YAML. Make JSON of it: {command}; ticdc-lab survey dump.jsonl"


def _packed_as_text(source: str, head: bytes) -> str:
    text = re.sub(rb"\s", b"", head)
    text = text[: len(text) // 4 * 4]
    with suppress(ValueError, SourceError):
        inside = decoded(text.decode("latin-1"), "base64-any")
        if inside.startswith((b"\x1f\x8b", b"PAR1", b"Obj\1")) or form_of(inside, options={}) is not None:
            command = f"base64 -d {shlex.quote(source)} > dump"
            return f"It resembles a whole file in base64: {command}; ticdc-lab survey dump"
    return ""


def _arrays(source: str, head: bytes) -> str:
    """Lines such as ``["t", 0, 7, "key", "value"]``."""
    rows = list[list[object]]()
    with suppress(ValueError, RecursionError):
        rows.extend(json.loads(line) for line in islice(head.split(b"\n"), 3) if line.strip())
    if not rows or not all(isinstance(row, list) and len(row) > 1 for row in rows):
        return ""
    names = list[str]()
    for cell in rows[0][:-1]:
        usual = ("partition", "offset", "timestamp") if isinstance(cell, int) else ("topic", "key")
        names.append(next((name for name in usual if name not in names), f"column_{len(names) + 1}"))
    names.append("value")
    program = f"{{{','.join(f'{name}:.[{i}]' for i, name in enumerate(names))}}}"
    return (
        f"It resembles JSON arrays. Name their columns, such as: jq -c {shlex.quote(program)} {shlex.quote(source)} > "
        "dump.jsonl; ticdc-lab survey dump.jsonl"
    )


def _python_list(source: str, head: bytes) -> str:
    if not re.match(rb"\s*\[\s*(?:\{'|\(|b['\"]|ConsumerRecord\()", head):
        return ""
    program = "import ast,sys; [print(m) for m in ast.literal_eval(sys.stdin.read())]"
    command = f"{shlex.quote(sys.executable)} -c {shlex.quote(program)} < {shlex.quote(source)} > dump.txt"
    return f"It resembles a list that Python printed. Make lines of it: {command}; ticdc-lab survey dump.txt"


def _segment(source: str, head: bytes) -> str:
    if not is_segment(head):
        return ""
    text = f"{PurePath(source).stem}.txt"
    return (
        "It is a broker's own file of messages; let Kafka print it: kafka-dump-log.sh --print-data-log --files "
        f"{shlex.quote(source)} > {text}; ticdc-lab survey {text}"
    )


_RESEMBLES: Sequence[Callable[[str, bytes], str]] = (_segment, _headless, _arrays, _python_list, _yaml, _packed_as_text)


def refused_hint(source: str, record: bytes) -> str:
    """Which form a record resembles that is no message, and the command that reads such a file."""
    try:
        names = list(fields_of(record))
    except BadJson:
        names = []
    if {"kind", "commit_ts"} <= set(names):
        return EVENTS_HINT
    if not names and (hint := converted_hint(source, record)):
        return hint
    if is_envelope(names):
        kind, what = "objects", "the JSON objects of another tool"
    elif names:
        kind, what = "values", "a file of values, one a line"
    else:
        return f"Name its form ({', '.join(FORMS)}): ticdc-lab survey {shlex.quote(source)} --source-kind values"
    return f"It resembles {what}: ticdc-lab survey {shlex.quote(source)} --source-kind {kind}"

"""What a refused file resembles, and the command that makes a form of it that is read."""

from __future__ import annotations

import csv
import json
import re
import shlex
import sys
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import PurePath
from typing import Any

import yaml

from ticdc_lab.errors import SourceError
from ticdc_lab.errors.bounded import BoundedLoader
from ticdc_lab.errors.rewritten import undone
from ticdc_lab.errors.whole_files import local_path
from ticdc_lab.sources.dump_files import head_of
from ticdc_lab.sources.foreign_files import RECORD, RECORDING, named_file
from ticdc_lab.sources.form_detection import OF_CONTAINER, form_of
from ticdc_lab.sources.forms import (
    FORMS,
    LOOKED_AT,
    cells_in,
    decoded,
    is_envelope,
    regex_of,
    role_of,
    roles_in,
    shown,
)
from ticdc_lab.sources.json_objects import BadJson, fields_of, is_json
from ticdc_lab.sources.pattern_detection import kcat_format
from ticdc_lab.sources.printed_records import is_segment
from ticdc_lab.sources.taken import HEX, TEXT, of_hex, text_in, text_of

EVENTS_HINT = "Events that `ticdc-lab events` wrote are decoded already: read the log that they come from."
FORMAT_HINT = r"If kcat -f wrote it, state its format, such as --option format='%t %p %o %k %s\n'. "
_FROM_YAML = (
    "import base64,json,sys,yaml; text=lambda v: base64.b64encode(v).decode() if isinstance(v,bytes) else str(v); "
    "[print(json.dumps(m,default=text)) for d in yaml.safe_load_all(sys.stdin.buffer) "
    "for m in (d if isinstance(d,list) else [d]) if m]"
)
_PARTS = {"topic": "%t", "partition": "%p", "offset": "%o", "timestamp": "%T", "key": "%k"}


def first_line(head: bytes) -> str:
    """The fields of the first line, or what it begins with."""
    line = head.strip().partition(b"\n")[0]
    try:
        return f"line 1 has {', '.join(f'`{name}`' for name in fields_of(line))}"
    except BadJson:
        return f"it begins with {shown(line)}"


def refused_hint(source: str, record: bytes) -> str:
    """Which form a record resembles that is no message, and the command that reads such a file."""
    try:
        names = list(fields_of(record))
    except BadJson:
        names = []
    if {"kind", "commit_ts"} <= set(names):
        return EVENTS_HINT
    if hint := converted_hint(source):
        return hint
    if "value_size" in names and "value" not in names:
        return "Consume it again without --meta-only: rpk topic consume TOPIC > dump.json"
    if is_envelope(names):
        kind, what = "objects", "the JSON objects of another tool"
    elif names:
        kind, what = "values", "a file of values, one a line"
    else:
        return f"Name its form ({', '.join(FORMS)}): ticdc-lab survey {shlex.quote(source)} --source-kind values"
    return f"It resembles {what}: ticdc-lab survey {shlex.quote(source)} --source-kind {kind}"


def converted_hint(source: str, head: bytes | None = None) -> str:
    """The command that makes a dump of a file which resembles one; empty where it resembles none.

    Without its ``head`` a file of this machine is looked into.
    """
    file = shlex.quote(source)
    if head is None:
        if (path := local_path(source)) is None or not path.is_file():
            return ""
        with path.open("rb") as opened:
            head, _ = head_of(opened)
            opened.seek(0)
            file = f"<(zcat {file})" if opened.read(2) == b"\x1f\x8b" else file
    return next((found for of in _RESEMBLES if head.strip() and (found := of(file, head))), "")


def _segment(file: str, head: bytes) -> str:
    if not is_segment(head):
        return ""
    is_packed = file.startswith("<(zcat ")  # Kafka takes topic and offset from the name of a file
    path = PurePath(shlex.split(file.removeprefix("<(zcat ").removesuffix(")") if is_packed else file)[0])
    log, unpack = (path.with_suffix(""), f"gunzip -k {shlex.quote(str(path))}; ") if is_packed else (path, "")
    text = shlex.quote(f"{log.stem}.txt")
    return (
        f"It is a broker's own file of messages; let Kafka print it: {unpack}kafka-dump-log.sh --print-data-log "
        f"--files {shlex.quote(str(log))} > {text}; ticdc-lab survey {text}"
    )


def _headless(file: str, head: bytes) -> str:
    """The command that reads CSV whose first row is a message; empty for anything else."""
    row, line = list[str](), head.strip().partition(b"\n")[0].decode("utf-8", "replace")
    with suppress(csv.Error):
        row = next(cells_in([line], most=len(head)), row)
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
        f"It resembles CSV. Put a row of names before it, such as: (echo {named}; cat {file}) > "
        "named.csv; ticdc-lab survey named.csv"
    )


def _arrays(file: str, head: bytes) -> str:
    """Lines such as ``["t", 0, 7, "key", "value"]``, or an array of them."""
    line = head.strip().partition(b"\n")[0]
    found = _json_of(head, line)
    is_nested = isinstance(found, list) and bool(found) and isinstance(found[0], list)
    row = found[0] if isinstance(found, list) and is_nested else found
    if not isinstance(row, list) or len(row) < 2 or any(isinstance(cell, list | dict) for cell in row[:-1]):
        return ""
    names = list[str]()
    for cell in row[:-1]:
        usual = ("partition", "offset", "timestamp") if isinstance(cell, int) else ("topic", "key")
        names.append(next((name for name in usual if name not in names), f"column_{len(names) + 1}"))
    each = ".[]" if is_nested else "."
    return _by_path(
        file, "JSON arrays. Name their columns", [f"{n}={each}[{i}]" for i, n in enumerate((*names, "value"))]
    )


def _json_of(head: bytes, line: bytes) -> Any:
    """What the first line is in JSON, or else all of the head."""
    for text in (line, head):
        with suppress(ValueError, RecursionError):
            return json.loads(text)
    return None


def _by_path(file: str, what: str, paths: Sequence[str], out: str = "dump.jsonl") -> str:
    """The command that takes messages out of other JSON."""
    program = f"{shlex.quote(sys.executable)} -m ticdc_lab.sources.taken {' '.join(map(shlex.quote, paths))}"
    return f"It resembles {what}: {program} < {file} > {out}; ticdc-lab survey {shlex.quote(out)}"


def _python_list(file: str, head: bytes) -> str:
    if not re.match(rb"\s*\[\s*(?:\{'|\(|b['\"]|ConsumerRecord\()", head):
        return ""
    program = "import ast,sys; [print(ast.unparse(m)) for m in ast.parse(sys.stdin.read().strip()).body[0].value.elts]"
    command = f"{shlex.quote(sys.executable)} -c {shlex.quote(program)} < {file} > dump.txt"
    return f"It resembles a list that Python printed. Make lines of it: {command}; ticdc-lab survey dump.txt"


def _yaml(file: str, head: bytes) -> str:
    lines = [line for line in head.decode("utf-8", "replace").split("\n")[:40] if line.strip() not in ("", "---")]
    names = [found[1] for line in lines if (found := re.match(r"\s*(?:- )?(\w+):(?: |$)", line))]
    if (
        len(set(names)) < 3
        or not any(role_of(name) == "value" for name in names)
        or re.search(rb"(?m)^\*{10,} \d", head)
    ):
        return ""
    if not any(_are_yaml(text, lines) for text in (head, head.rpartition(b"\n---")[0], head.rpartition(b"\n- ")[0])):
        return ""
    command = f"{shlex.quote(sys.executable)} -c {shlex.quote(_FROM_YAML)} < {file} > dump.jsonl"
    return f"It resembles YAML. Make JSON of it: {command}; ticdc-lab survey dump.jsonl"


def _are_yaml(text: bytes, lines: Sequence[str]) -> bool:
    """Whether each value of some YAML is in a document or an item of its own; in text format of Protobuf none is."""
    try:
        found = [*yaml.load_all(text.decode("utf-8", "replace"), BoundedLoader)]
    except (ValueError, yaml.YAMLError):
        return False
    messages = [m for of in found for m in (of if isinstance(of, list) else [of]) if isinstance(m, dict)]
    named = [line.strip(" -").partition(":")[0] for line in lines]
    most = max((n for name, n in Counter(named).items() if role_of(name) == "value"), default=0)
    return len(messages) >= most > 0


def _table(file: str, head: bytes) -> str:
    """What clients of databases print, and Markdown."""
    drawn = head.decode("utf-8", "replace")
    text = _RULES.sub("-", _BARS.sub("|", drawn))
    if not re.search(r"(?m)^[- |+:]{4,}$", text) or text.count("|") < 4:
        return ""
    first = next((line for line in text.splitlines() if "|" in line and line.strip(" -+|:")), "")
    if not any(role_of(cell.strip()) == "value" for cell in first.split("|")):
        return f"It resembles a printed table without a column of values: {shown(first.encode())}. {RECORD}"
    if re.search(r"(?m)^\|.*\.\.\.[\]\s]*\|", text):
        return (
            "It resembles a printed table whose cells are cut. Print whole ones, in Spark with show(truncate=False). "
            f"Or record the topic: {RECORDING}"
        )
    boxed = "" if text == drawn else f"s/{_BARS.pattern}/|/g;s/{_RULES.pattern}/-/g;"
    program = f"{boxed}/^[- |+:]*$/d;/^(\\([0-9]+ rows?\\))?$/d;s/^[| ]*//;s/ *\\|? *$//;s/ *\\| */|/g"
    command = f"sed -E '{program}' {file} > dump.csv"
    return f"It resembles a printed table. Make CSV of it: {command}; ticdc-lab survey dump.csv"


_BARS, _RULES = re.compile("(│|┃|║)"), re.compile("(─|━|═|┌|┬|┐|├|┼|┤|└|┴|┘|┏|┳|┓|┡|╇|┩)")
"""What DuckDB, ClickHouse and pandas draw tables with; in groups, which sed takes in every locale."""


def _hex_dump(file: str, head: bytes) -> str:
    if head.lstrip()[:1] in (b"{", b"[") or not any(of_hex(head.decode("latin-1").splitlines()[:LOOKED_AT])):
        return ""
    return _by_path(file, "a hex dump of values", [HEX], "values.jsonl")


def _packed_as_text(file: str, head: bytes) -> str:
    lines = head.split()
    if len({len(line) for line in lines[:-1]} | {len(lines[-1]) if len(lines) > 1 else 0}) > 2:
        return ""
    text = b"".join(lines)
    with suppress(ValueError, SourceError):
        inside = decoded(text[: len(text) // 4 * 4].decode("latin-1"), "base64-any")
        is_packed = inside.startswith((b"\x1f\x8b", b"PAR1", b"Obj\1"))
        if is_packed or (b"\n" in inside.strip() and form_of(inside, options={}) is not None):
            command = f"base64 -d {file} > dump"
            return f"It resembles a whole file in base64: {command}; ticdc-lab survey dump"
    return ""


def _inside(file: str, head: bytes) -> str:
    """Messages, or their values alone, somewhere inside of JSON objects, or their columns as lists."""
    found = _json_of(head, head.strip().partition(b"\n")[0])
    top: Mapping[str, Any] = found if isinstance(found, dict) else {}
    columns = [name for name, of in top.items() if role_of(name) and isinstance(of, list | dict) and of]
    if len(columns) > 1 and any(role_of(name) == "value" for name in columns):
        paths = [f"{role_of(name)}=.{json.dumps(name)}[]" for name in columns]
        return _by_path(file, "columns of a table", paths)
    waiting: list[tuple[str, Any]] = [("", found)]
    values = ""
    for path, value in waiting:
        inner = roles_in(value) if isinstance(value, dict) else {}
        wrapped = _wrapped_in(value[inner["value"]]) if "value" in inner else ""
        has_value = "value" in inner and not isinstance(value[inner["value"]], int | float)  # as in a count
        is_place = {"partition", "offset"} <= inner.keys() and "value" in roles_in(top)
        is_message = isinstance(value, dict) and is_envelope(list(value)) and (has_value or "value" not in inner)
        if wrapped or (path and (is_message or (is_place and "value" not in inner))):
            beside = roles_in(top).items() if path.startswith('."') else ()
            kept = [
                f"{role if role == 'value' else name}=.{json.dumps(name)}" for role, name in beside
                if (role == "value" and not has_value) or (role in _PLACES and not isinstance(top[name], dict | list))
            ]  # fmt: skip
            kept += [
                f"{role}={path}.{json.dumps(inner[role])}.{json.dumps(wrapped)}"
                for role in ("value", "key")
                if wrapped and role in inner and isinstance(value[inner[role]], dict)
            ]
            return _by_path(file, "messages inside of other objects", [path or ".", *kept])
        values = values or (path if path and _is_value(value) else "")
        if len(waiting) < 200 and isinstance(value, list):
            is_row = not all(isinstance(one, dict | list) for one in value)
            some = enumerate(value[: 8 if is_row else 1])
            waiting += [(f"{path or '.'}[{i if is_row else ''}]", of) for i, of in some]
        elif len(waiting) < 200 and isinstance(value, dict):
            waiting += [(f"{path}.{json.dumps(n)}", of) for n, of in value.items()]
    text = top.get(roles_in(top).get("value", ""))
    is_record = is_envelope([*top]) and isinstance(text, str)  # which is read as it is
    what = "values inside of other objects"
    return _by_path(file, what, [values], "values.jsonl") if values and not is_record else ""


_PLACES = ("topic", "partition", "offset")


def _wrapped_in(value: Any) -> str:
    """The member of an object in which a tool has the value itself; empty where it has none."""
    if not isinstance(value, dict) or _is_value(value) or "offset" in roles_in(value):
        return ""
    return next((name for name, of in value.items() if _is_value(of)), "")


def _is_value(value: Any) -> bool:
    """Whether this is a value of TiCDC, or a text that has one."""
    if isinstance(value, dict):
        return len(_OF_VALUES & value.keys()) > 3
    if not isinstance(value, str):
        return False
    inside = text_of(value)
    return inside.startswith("{") and is_json(inside.strip().encode())


_OF_VALUES = frozenset(("database", "table", "type", "isDdl", "op", "source", "schema", "commitTs", "data", "before",
                        "after", "old", "mysqlType", "ts", "es"))  # fmt: skip
"""Names in values of TiCDC."""


def _numbered(first: str, lines: Sequence[str]) -> str:
    """What precedes the first value, with signs for its numbers: times are long, and most offsets differ."""
    texts = re.split(r"(?<![\w-])(\d+)(?!\w)", first)
    alike = re.compile(r"(\d+)".join(map(re.escape, texts[::2])))
    columns = list(zip(*(m.groups() for line in lines if (m := alike.fullmatch(line))), strict=True))
    signs = ["%T" if min(map(len, column)) > 12 else column[0] for column in columns]
    if len(columns) == 1 and 3 * len(set(columns[0])) <= 2 * len(columns[0]):  # an offset does not repeat
        return first
    differ = sorted((len(set(column)), i) for i, column in enumerate(columns) if signs[i] != "%T")
    for (_, i), sign in zip(differ[::-1], ("%o", "%p"), strict=False):
        signs[i] = sign
    named = "".join(a + b for a, b in zip(texts[::2], [*signs, ""], strict=False))
    return re.sub(r"^[A-Za-z][\w.-]*(?=\W[^A-Za-z]*(?:%[poT][^A-Za-z]*)+$)", "%t", named)


def _compressed(file: str, head: bytes) -> str:
    tool = next((tool for begin, tool in _PACKED.items() if head.startswith(begin)), "")
    return f"It is compressed. Unpack it: {tool} {file} > dump; ticdc-lab survey dump" if tool else ""


_PACKED = {
    b"\x28\xb5\x2f\xfd": "zstd -dc", b"\x04\x22\x4d\x18": "lz4 -dc", b"BZh": "bzip2 -dc", b"\xfd7zXZ": "xz -dc",
    b"PK\3\4": "unzip -p",
}  # fmt: skip
"""How files of other tools than gzip begin, and what unpacks them."""


def _of_container(file: str, head: bytes) -> str:
    """Lines to which a container's runtime, kubectl or compose gave a time or a name."""
    line = head.partition(b"\n")[0]
    told = _json_of(line, line)
    if isinstance(told, dict) and {"log", "stream", "time"} <= set(told):
        return f"It resembles the log of a container: jq -rj .log {file} > dump; ticdc-lab survey dump"
    if OF_CONTAINER.match(head) is None:
        return ""
    program = (
        r"{t=$0; sub(/^(\[pod[^ ]+ |[A-Za-z0-9_.-]+ +\| )?([0-9]+-[0-9]+-[0-9]+T[^ ]+ )?(std(out|err) [FP] )?/,"
        r'"",t); printf "%s%s",t,(/^[^ ]+ std(out|err) P /?"":"\n")}'
    )
    return f"It resembles the log of a container: awk {shlex.quote(program)} {file} > dump; ticdc-lab survey dump"


def _values_in_lines(file: str, head: bytes) -> str:
    """JSON with something before it: the format of kcat -f that reads all of it, or a command that takes the values."""
    lines = [line for line in head.split(b"\n")[:40] if line.strip()]
    objects = [line[max(line.find(b'{"'), 0) : line.rfind(b"}") + 1] for line in lines]
    found = [line for line, one in zip(lines, objects, strict=True) if is_json(one) and one != line.strip()]
    texts = [line.decode("utf-8", "replace").strip() for line in lines]
    if 3 * sum(text_in(text) not in ("", text) for text in texts) > 2 * len(lines) >= 3 * len(found):
        return _by_path(file, "lines with JSON in them, and more behind it. Take it out", [TEXT], "values.jsonl")
    if not found or 3 * len(found) <= 2 * len(lines):
        return ""
    before, _, after = found[0].decode("utf-8", "replace").replace("%", "%%").partition('{"')
    after = _labelled(re.sub(r"(?i)(headers?\W+)\S*$", r"\1%h", after.rpartition("}")[2]))
    forms = [_labelled(before)]
    forms += (
        [forms[0][at.start() :]] if (at := re.search(r"(?i)[\[(]?\b(?:topic|partition|offset)\W", forms[0])) else []
    )
    if not re.search(r"\d:\d\d|\d{4}-\d\d-\d\d", before):  # the digits of a time are no offset
        others = [line.decode("utf-8", "replace").replace("%", "%%").partition('{"')[0] for line in found]
        forms.append(_numbered(before, others))
    given = file.removeprefix("<(zcat ").removesuffix(")")
    for form in forms:
        stated = f"{form}%s{after}\\n".replace("\t", "\\t").replace("\r", "\\r")
        is_behind = form is not forms[0] and forms[0].endswith(form)
        with suppress(SourceError):
            whole = re.compile(b".*?" * is_behind + regex_of(kcat_format(stated)[:-1]), re.DOTALL)
            if "%" not in form.replace("%%", "") or 3 * sum(bool(whole.fullmatch(line)) for line in lines) <= 2 * len(
                lines
            ):
                continue
            read = f"--option format={shlex.quote(stated)}"
            if not is_behind:
                return f"It resembles what kcat -f prints: ticdc-lab survey {given} {read}"
            taken = f"grep -o {shlex.quote(re.escape(form.partition('%')[0]) + '.*')} {file} > dump"
            return f"It resembles what kcat -f prints behind other words: {taken}; ticdc-lab survey dump {read}"
    command = f"""grep -o '{{{'"' * ("{" in before)}.*}}' {file} > values.jsonl"""
    return f"It resembles lines with JSON in them. Take it out: {command}; ticdc-lab survey values.jsonl"


def _labelled(text: str) -> str:
    """A text with signs of kcat -f in the place of what labels name."""
    for name, sign in _PARTS.items():
        label = rf"(?i)(\b{name}(?:\W{{1,2}}(?=[\w-])|: | |=))(?:<null>|[\w.-]*)"  # an empty key is one
        text = re.sub(label, lambda m, sign=sign: m[1] + sign, text, count=1)  # type: ignore[misc]
    return text


def _rewritten(file: str, head: bytes) -> str:
    """JSON that a page, a forum or a tool wrote otherwise, and what undoes it."""
    for of, text in undone(head.decode("utf-8", "replace")):
        lines = [line for line in text.encode().split(b"\n")[:-1] or [text.encode()] if line.strip()]
        is_among = any(is_json(one) for line in lines for one in re.findall(rb"\{.*\}", line))
        is_read = all(is_json(line.strip()) for line in lines) if is_among else form_of(text.encode(), options={})
        if is_among or is_read:
            command = of.command.replace("{file}", file) + ("" if is_read else " | grep -o '{.*}'")
            return f"It resembles text with {of.words}. Undo it: {command} > dump; ticdc-lab survey dump"
    return ""


def _wrapped(file: str, head: bytes) -> str:
    """JSON that a terminal cut at its width."""
    lines = head.split(b"\n")[:-1]
    width = Counter(map(len, lines)).most_common(1)[0][0] if lines else 0
    if width < 40 or not head.lstrip().startswith((b"{", b"[")) or not any(
        len(line) >= width and re.sub(rb"\\.", b"", line).count(b'"') % 2 for line in lines
    ):  # fmt: skip
        return ""
    joined = f'awk \'{{printf "%s%s", $0, (length($0) < {width} ? "\\n" : "")}}\' {file} > dump.json'
    return (
        f"Its lines are cut at {width} characters, as a terminal does. Join them: {joined}; ticdc-lab survey dump.json"
    )


def _edited(file: str, head: bytes) -> str:
    """JSON with comments, or with a part left out."""
    lines = head.split(b"\n")
    if not head.lstrip().startswith((b"{", b"[")):
        return ""
    if at := next((n for n, line in enumerate(lines, 1) if re.fullmatch(rb"\s*\.{3,},?\s*", line)), 0):
        return f"Line {at} is `...`: a part of the message was left out there. Give the whole message."
    cut = re.compile(r"\{.*(?:\.{3}|\u2026)\s*")
    if at := next((n for n, line in enumerate(lines, 1) if cut.fullmatch(line.decode("utf-8", "replace"))), 0):
        return f"Line {at} ends with `...`: the rest of the message was left out there. Give the whole message."
    comment = re.compile(rb'(?:[{\[,]|[\w"\]}])[ \t]*(?://|#)[ \t][^\n"]*$')
    if at := next((n for n, line in enumerate(lines, 1) if comment.search(line) and not is_json(line.strip())), 0):
        command = f"""sed -E 's@[ \t]+(//|#) [^"]*$@@' {file} > dump.json"""
        return f"Line {at} has a comment, which JSON does not have. Remove it: {command}; ticdc-lab survey dump.json"
    return ""


def _between(file: str, head: bytes) -> str:
    """JSON, or bytes that Python printed, between other lines, as in an issue or in what kaf and mysql -E print."""
    lines = [] if re.search(rb"[\x00-\x08\x0e-\x1f]", head) else head.split(b"\n")
    some = [line for line in lines if line.strip()]
    for words, mark, program in (
        ("lines of JSON", rb"(\{.*\})", "grep '^{'"), ("bytes that Python printed", rb"b'\{.*\}'", "grep \"^b'\""),
        ("JSON at the end of lines", rb"[^{]*?(\{.*\})", "grep -o '{.*}'"),
    ):  # fmt: skip
        found = [of for line in some if (of := re.fullmatch(mark, line.strip())) and all(map(is_json, of.groups()))]
        if 1 < len(found) < len(some):
            command = f"{program} {file} > values.jsonl"
            return f"It has {words} between others. Take them out: {command}; ticdc-lab survey values.jsonl"
    blocks = re.findall(rb"(?ms)^\{[ \t\r]*$.*?^\}[ \t\r]*$", b"\n".join(lines))
    if any(map(is_json, map(bytes.strip, blocks))) and b"".join(b"".join(blocks).split()) != b"".join(head.split()):
        command = f"sed -n '/^{{/,/^}}/p' {file} > values.json"
        return f"It has JSON between other lines. Take it out: {command}; ticdc-lab survey values.json"
    return ""


_RESEMBLES: Sequence[Callable[[str, bytes], str]] = (
    _compressed, named_file, _segment, _of_container, _headless, _arrays, _python_list, _rewritten, _edited, _yaml,
    _table, _hex_dump, _packed_as_text, _wrapped, _inside, _values_in_lines, _between,
)  # fmt: skip

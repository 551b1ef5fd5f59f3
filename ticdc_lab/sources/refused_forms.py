"""What a refused file resembles, and the command that makes a form of it that is read."""

from __future__ import annotations

import csv
import json
import re
import shlex
import sys
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import PurePath
from typing import Any

from ticdc_lab.errors import SourceError
from ticdc_lab.errors.whole_files import local_path
from ticdc_lab.sources.dump_files import head_of
from ticdc_lab.sources.form_detection import OF_CONTAINER, form_of
from ticdc_lab.sources.forms import FORMS, cells_in, decoded, is_envelope, regex_of, role_of, roles_in, shown
from ticdc_lab.sources.json_objects import BadJson, fields_of, is_json
from ticdc_lab.sources.pattern_detection import kcat_format
from ticdc_lab.sources.printed_records import is_segment

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


def _addresses(file: str, head: bytes) -> str:
    if not re.search(rb"<[\w.]*Message object at 0x|\[B@[0-9a-f]{5,}", head):
        return ""
    return (
        "A program printed where messages lie in memory, not what they contain. Print topic(), partition(), offset(), "
        "key() and value(), or record the topic: ticdc-lab record kafka://HOST:PORT/TOPIC --out topic.jsonl.gz"
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
    program = f"{{{','.join(f'{name}:.[{i}]' for i, name in enumerate((*names, 'value')))}}}"
    return _by_jq(file, "JSON arrays. Name their columns", f".[]|{program}" if is_nested else program)


def _json_of(head: bytes, line: bytes) -> Any:
    """What the first line is in JSON, or else all of the head."""
    for text in (line, head):
        with suppress(ValueError, RecursionError):
            return json.loads(text)
    return None


def _by_jq(file: str, what: str, program: str) -> str:
    command = f"jq -c {shlex.quote(program)} {file} > dump.jsonl"
    return f"It resembles {what}: {command}; ticdc-lab survey dump.jsonl"


def _python_list(file: str, head: bytes) -> str:
    if not re.match(rb"\s*\[\s*(?:\{'|\(|b['\"]|ConsumerRecord\()", head):
        return ""
    program = "import ast,sys; [print(ast.unparse(m)) for m in ast.parse(sys.stdin.read().strip()).body[0].value.elts]"
    command = f"{shlex.quote(sys.executable)} -c {shlex.quote(program)} < {file} > dump.txt"
    return f"It resembles a list that Python printed. Make lines of it: {command}; ticdc-lab survey dump.txt"


def _yaml(file: str, head: bytes) -> str:
    lines = [line for line in head.decode("utf-8", "replace").split("\n")[:40] if line.strip() not in ("", "---")]
    names = [found[1] for line in lines if (found := re.match(r"\s*(?:- )?(\w+):(?: |$)", line))]
    if len(names) < 3 or not any(role_of(name) == "value" for name in names):
        return ""
    command = f"{shlex.quote(sys.executable)} -c {shlex.quote(_FROM_YAML)} < {file} > dump.jsonl"
    return f"It resembles YAML. Make JSON of it: {command}; ticdc-lab survey dump.jsonl"


def _table(file: str, head: bytes) -> str:
    """What clients of databases print, and Markdown."""
    names = [cell.strip() for cell in head.strip().splitlines()[0].decode("utf-8", "replace").strip("|").split("|")]
    is_drawn = re.search(rb"(?m)^[|+][-+|: ]{3,}$", head) is not None
    if not is_drawn or not (any(map(role_of, names)) or b"\n|" in head):
        return ""
    program = "/^[|+][-+|: ]*$/d;s/^| *//;s/ *|$//;s/ *| */|/g"
    command = f"sed '{program}' {file} > dump.csv"
    return f"It resembles a printed table. Make CSV of it: {command}; ticdc-lab survey dump.csv"


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
    """Messages somewhere inside of JSON objects, or their columns as lists."""
    found = _json_of(head, head.strip().partition(b"\n")[0])
    if not isinstance(found, dict):
        return ""
    columns = [name for name, of in found.items() if role_of(name) and isinstance(of, list | dict) and of]
    if len(columns) > 1 and any(role_of(name) == "value" for name in columns):
        listed = ",".join(f".{json.dumps(name)}" for name in columns)
        named = ",".join(f"{json.dumps(name)}:.[{i}]" for i, name in enumerate(columns))
        return _by_jq(file, "columns of a table", f"[{listed}]|map([.[]])|transpose[]|{{{named}}}")
    waiting: list[tuple[str, Any]] = [("", found)]
    for path, value in waiting:
        if path and isinstance(value, dict) and is_envelope(list(value)):
            beside = next((n for n in found if role_of(n) == "value"), None) if "value" not in roles_in(value) else None
            program = path if beside is None else f"{{value:.{json.dumps(beside)}}} + {path}"
            return _by_jq(file, "messages inside of other objects", program)
        if len(waiting) < 200:
            waiting += [(f"{path}[]", one) for one in value[:1]] if isinstance(value, list) else []
            waiting += [(f"{path}.{json.dumps(n)}", of) for n, of in value.items()] if isinstance(value, dict) else []
    return ""


def _numbered(first: str, lines: Sequence[str]) -> str:
    """What precedes the first value, with signs for its numbers: times are long, and most offsets differ."""
    texts = re.split(r"(?<![\w-])(\d+)(?!\w)", first)
    alike = re.compile(r"(\d+)".join(map(re.escape, texts[::2])))
    columns = list(zip(*(m.groups() for line in lines if (m := alike.fullmatch(line))), strict=True))
    signs = ["%T" if min(map(len, column)) > 12 else column[0] for column in columns]
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
    objects = [line[line.find(b"{") : line.rfind(b"}") + 1] for line in lines]
    found = [line for line, one in zip(lines, objects, strict=True) if is_json(one) and one != line.strip()]
    if not found or 3 * len(found) <= 2 * len(lines):
        return ""
    before, _, after = found[0].decode("utf-8", "replace").partition("{")
    after = re.sub(r"(?i)(headers?\W+)\S*$", r"\1%h", after.rpartition("}")[2])
    before = named = before.replace("%", "%%")
    for name, sign in _PARTS.items():
        label = rf"(?i)(\b{name}(?:\W{{1,2}}(?=[\w-])|: | |=))[\w.-]*"  # an empty key is one
        named = re.sub(label, lambda m, sign=sign: m[1] + sign, named, count=1)  # type: ignore[misc]
    if named == before and not re.search(r"\d:\d\d|\d{4}-\d\d-\d\d", before):  # the digits of a time are no offset
        named = _numbered(
            before, [line.decode("utf-8", "replace").partition("{")[0].replace("%", "%%") for line in found]
        )
    stated = f"{named}%s{after}\\n".replace("\t", "\\t").replace("\r", "\\r")
    with suppress(SourceError):
        whole = re.compile(regex_of(kcat_format(stated)[:-1]), re.DOTALL)
        if "%" in named and 3 * sum(bool(whole.fullmatch(line)) for line in lines) > 2 * len(lines):
            command = f"ticdc-lab survey {file.removeprefix('<(zcat ').removesuffix(')')}"
            return f"It resembles what kcat -f prints: {command} --option format={shlex.quote(stated)}"
    command = f"grep -o '{{.*}}' {file} > values.jsonl"
    return f"It resembles lines with JSON in them. Take it out: {command}; ticdc-lab survey values.jsonl"


def _of_operators(file: str, head: bytes) -> str:
    """TiCDC's own log, and what Prometheus gives: both are about a changefeed, and have no message."""
    if _OWN_LOG.search(head):
        command = "ticdc-lab why SOURCE --cdc-log " + file
        return f"It is TiCDC's own log. To read it beside a topic: {command}"
    if _METRICS.search(head):
        return (
            "It resembles metrics of Prometheus, which contain no change and which no command reads. Record the topic: "
            "ticdc-lab record kafka://HOST:PORT/TOPIC --out topic.jsonl.gz"
        )
    return ""


_OWN_LOG = re.compile(rb"(?m)^[^{\n]{0,200}\[\d{4}/\d\d/\d\d \d\d:\d\d:\d\d[.\d]* [+-]\d\d:\d\d\] \[[A-Z]+\] \[")
_METRICS = re.compile(
    rb"(?m)\A# (?:HELP|TYPE|UNIT) [A-Za-z_:]|^[A-Za-z_:][\w:]*\{[^}\n]*\} (?:=>|[-+\d.eEInfNa]+(?: \d+)?(?: # .*)?$)"
    rb"|^\{__name__=\"|\"resultType\": ?\"(?:matrix|vector|scalar)\""
)


def _of_sink(file: str, head: bytes) -> str:
    """A csv file of a storage sink without its folder, or a listing of such a folder."""
    if re.match(rb'"?[IUD]"?,"?[^,"\n{]+"?,"?[^,"\n{]+"?,[^\n]', head):
        return (
            "It resembles a data file of TiCDC's storage sink, which does not name its columns. Give the folder that "
            "has `metadata`, with meta/schema_*.json of the table: ticdc-lab survey FOLDER"
        )
    if b"{" not in head and re.search(rb"CDC\d{6,}\.(?:csv|json)|meta/schema_\d+_\d+\.json", head):
        return "It lists files of TiCDC's storage sink. Copy the folder with `metadata`, and: ticdc-lab survey FOLDER"
    return ""


def _wrapped(file: str, head: bytes) -> str:
    """JSON that a terminal cut at its width."""
    lines = head.split(b"\n")[:-1]
    width = Counter(map(len, lines)).most_common(1)[0][0] if lines else 0
    if width < 40 or not head.lstrip().startswith((b"{", b"[")) or not any(
        len(line) >= width and len(re.findall(rb'(?<!\\)"', line)) % 2 for line in lines
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
    comment = re.compile(rb'(?:[{\[,]|[\w"\]}])[ \t]*(?://|#)[ \t][^\n"]*$')
    if at := next((n for n, line in enumerate(lines, 1) if comment.search(line) and not is_json(line.strip())), 0):
        command = f"""sed -E 's@[ \t]+(//|#) [^"]*$@@' {file} > dump.json"""
        return f"Line {at} has a comment, which JSON does not have. Remove it: {command}; ticdc-lab survey dump.json"
    return ""


def _of_others(file: str, head: bytes) -> str:
    """Rows that another program decoded or wrote."""
    first = next((line for line in head.split(b"\n") if line.startswith(b"{")), b"")
    if re.search(rb'"_tidb_(?:op|commit_ts)"\s*:', first):
        return (
            "It resembles rows of avro that a consumer decoded with the schema registry, without their keys. Read the "
            "bytes: ticdc-lab survey kafka://HOST:PORT/TOPIC --schema-registry URL"
        )
    if (source := re.search(rb'"connector"\s*:\s*"(\w+)"', first)) and source[1] != b"TiCDC":
        name = source[1].decode()
        return f"Debezium's connector for {name} wrote it. It has no commit_ts: only debezium of TiCDC is read."
    if re.match(rb'\{"[upd]":\{"[^"]*":\{"t":\d', first):
        return (
            "It resembles values of open-protocol without their keys and lengths, as a terminal shows them. Read the "
            "bytes: ticdc-lab record kafka://HOST:PORT/TOPIC --out topic.jsonl.gz"
        )
    return ""


def _between(file: str, head: bytes) -> str:
    """JSON between other lines, as in an issue or in what kaf prints."""
    lines = [] if re.search(rb"[\x00-\x08\x0e-\x1f]", head) else head.split(b"\n")
    some = [line for line in lines if line.strip()]
    if 1 < sum(line.startswith(b"{") and is_json(line.strip()) for line in some) < len(some):
        command = f"grep '^{{' {file} > values.jsonl"
        return f"It has lines of JSON between others. Take them out: {command}; ticdc-lab survey values.jsonl"
    if sum(line.rstrip() == b"{" for line in lines) and any(line.rstrip() == b"}" for line in lines):
        command = f"sed -n '/^{{/,/^}}/p' {file} > values.json"
        return f"It has JSON between other lines. Take it out: {command}; ticdc-lab survey values.json"
    return ""


_RESEMBLES: Sequence[Callable[[str, bytes], str]] = (
    _compressed, _of_operators, _segment, _addresses, _of_sink, _of_container, _headless, _arrays, _python_list, _yaml,
    _table, _packed_as_text, _wrapped, _edited, _of_others, _inside, _values_in_lines, _between,
)  # fmt: skip

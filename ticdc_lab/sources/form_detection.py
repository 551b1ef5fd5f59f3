"""Which form some bytes are in: the first bytes of a file decide, not its name."""

from __future__ import annotations

import csv
import re
from codecs import getincrementaldecoder
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import islice, pairwise
from typing import Any

import orjson

from ticdc_lab.errors import SourceError
from ticdc_lab.sources.forms import (
    CAPTURE,
    FORMS,
    ROLES,
    TOKENS,
    Coding,
    Form,
    coding_of,
    coding_of_keys,
    codings_of,
    is_base64,
    is_envelope,
    next_chain,
    regex_of,
    role_of,
    roles_in,
    shown,
    unescaped,
)  # fmt: skip
from ticdc_lab.sources.json_objects import BadJson, Value, beginning_of, fields_of, is_json, objects_in, plain_of
from ticdc_lab.sources.printed_records import OF_SEGMENT, is_segment

_RECORDS = 100
"""Records at the beginning of a file that are looked at."""


def form_of(head: bytes, *, kind: str = "auto", options: Mapping[str, str], whole: bool = False) -> Form | None:
    """The form that the first bytes of a file are in, of the name :data:`CAPTURE` for a capture file; None for no dump.

    Parameters
    ----------
    head
        Up to :data:`HEAD_BYTES`, inflated.
    kind
        A name of :data:`FORMS`, or ``auto``.
    options
        Of :data:`OPTIONS`.
    whole
        Whether ``head`` is all of the file.
    """
    head = head.removeprefix(b"\xef\xbb\xbf")
    given = {name: options[name] for name in ("topic", "partition") if name in options}
    wanted = _wanted(kind, options)
    if is_segment(head):
        return None
    found = _detected(head, wanted, options, whole)
    if (found is None or found.records in ("lines", "pattern")) and (rest := head.partition(b"\n")[2]):
        other = _detected(rest, wanted, options, whole)  # the first line may be half a record: lines behind it decide
        is_plain = other is not None and (other.coding == "text" or other.name == CAPTURE)
        if other is not None and is_plain and (found is None or other.lost < found.lost):
            found = other
    if found is not None and found.records == "pattern" and not found.is_measured:
        coding, key_coding = _codings_in(head, found)
        found = replace(found, coding=coding, key_coding=key_coding)
    if found is not None:
        keeps_bytes = "text" not in (found.coding, found.key_coding) or found.is_measured or found.name == CAPTURE
        named = replace(found, name=found.name if wanted == "auto" else wanted, given=tuple(given.items()))
        named = replace(named, lost=found.lost.difference(given))
        return named if keeps_bytes else _as_encoded(named, head)
    if wanted != "auto":
        raise SourceError(
            f"This is no {wanted} dump: it begins with {shown(head)}.",
            hint=f"Let its form be detected, or name another one ({', '.join(FORMS)}): ticdc-lab survey SOURCE",
        )
    return None


def _codings_in(head: bytes, form: Form) -> tuple[Coding, Coding]:
    """How the values and keys of a pattern are written, by the first records; of few digits nothing is said."""
    whole = re.compile(regex_of(form.body), re.DOTALL)
    some = [found.groupdict() for line in head.split(form.separator)[:_RECORDS] if (found := whole.fullmatch(line))]
    values, keys = (
        [text.decode("latin-1") for r in some if (text := r.get(role)) and text != form.null]
        for role in ("value", "key")
    )
    return codings_of(values, keys) if values and all(len(value) >= 8 for value in values) else ("text", "text")


def _detected(head: bytes, wanted: str, options: Mapping[str, str], whole: bool) -> Form | None:
    some = (detect for name, detect in _DETECTORS if wanted in ("auto", name))
    return next((found for detect in some if (found := detect(head, options, whole)) is not None), None)


def _wanted(kind: str, options: Mapping[str, str]) -> str:
    if kind != "auto":
        return kind
    if "format" in options:
        return "kcat-format"
    stated = any(name.startswith("print.") or name.endswith(".separator") or name == "null.literal" for name in options)
    return "console" if stated else "auto"


def _as_encoded(form: Form, head: bytes) -> Form:
    """The form with ``is_utf8``, ``is_latin`` and ``n_twice`` as the first bytes of a dump show them."""
    if b"\\u" in head:
        head = plain_of(head)
    try:
        text = getincrementaldecoder("utf-8")().decode(head)
    except UnicodeDecodeError:
        return form
    beyond = set(re.findall(r"[^\x00-\x7f\ufffd]", text))
    is_latin = all(len(_latin(c)) == 1 for c in beyond) and (
        any("\x80" <= c <= "\x9f" for c in beyond) or len(beyond & set("ƒ†‡ˆ‰‹›˜‚„")) > 1
    )
    runs = [run for run in re.findall(r"[^\x00-\x7f]+", text) if "\ufffd" not in run or is_twice(run)]
    are_twice = bool(runs) and all(map(is_twice, runs))
    n_twice = sum(not line.isascii() for line in text.split("\n")) if are_twice else 0
    return replace(form, is_utf8=True, is_latin=is_latin, n_twice=n_twice)


def _latin(text: str) -> bytes:
    """What a text was that was taken for Windows-1252, or for Latin-1; more bytes than characters for other text."""
    return b"".join(
        c.encode("latin-1") if c <= "\xff" else c.encode("cp1252", "ignore") or c.encode("utf-16") for c in text
    )


def is_twice(run: str) -> bool:
    """Whether characters beyond ASCII were UTF-8 before they were encoded as UTF-8."""
    was = _latin(run.replace("\ufffd", "\x81"))  # the five bytes that Windows-1252 has no character for
    try:
        return len(was) == len(run) and bool(was.decode())
    except UnicodeDecodeError:
        return False


def _printed(head: bytes, options: Mapping[str, str], whole: bool) -> Form | None:
    """What print() shows of a message of kafka-python or aiokafka, or Java of a ConsumerRecord."""
    lines = [line for line in head.split(b"\n")[:_RECORDS] if line.strip()]
    if not lines or 2 * sum(b"ConsumerRecord(topic" in line for line in lines) <= len(lines):
        return None
    lost = {"null"} if b"ConsumerRecord(topic = " in head else set()
    return Form("printed", "printed", "python", lost=frozenset(lost))


def _segment(head: bytes, options: Mapping[str, str], whole: bool) -> Form | None:
    """What kafka-dump-log prints of a broker's file, whose name has topic and partition."""
    lines = [line for line in head.split(b"\n")[:_RECORDS] if line.strip()]
    if not any(OF_SEGMENT.match(line) for line in lines[:3]):
        return None
    lost = () if head.startswith(b"Dumping ") else ("topic", "partition")
    return Form("segment", "segment", lost=frozenset(lost), is_utf8=True)


# Objects: kcat -J, rpk, exports of web pages, loops of a client library.

_CAPTURE = {"topic", "partition", "offset"}


def texts_of(records: Sequence[Mapping[str, Any]], names: Mapping[Any, str]) -> tuple[list[str], list[str]]:
    """The texts among the values and among the keys of some records, in which they have these ``names``."""
    values, keys = (
        [text for r in records if role in names and isinstance(text := r.get(names[role]), str) and text]
        for role in ("value", "key")
    )
    return values, keys


def _looked_at(head: bytes) -> tuple[list[Mapping[str, Value]], list[int], bytes]:
    """The first objects that are whole, their lines, and the bytes of the first."""
    records: list[Mapping[str, Value]] = []
    lines: list[int] = []
    raw = b""
    if re.match(rb"\s*\[?\s*\{", head):
        for piece in objects_in(iter([head]), bound=len(head) + 1, one_a_line=False):
            with suppress(BadJson):
                records.append(fields_of(piece.text))
                lines.append(piece.line)
                raw = raw or piece.text
            if len(records) == _RECORDS:
                break
    return records, lines, raw


def _objects(head: bytes, options: Mapping[str, str], whole: bool) -> Form | None:
    records, lines, raw = _looked_at(head)
    names = list(dict.fromkeys(n for r in records for n in r))
    roles = roles_in(names)
    in_array = head.lstrip()[:1] == b"["
    # a record that follows a cut one in its line does not make another form of a file
    one_a_line = b"\n" not in raw and not in_array and 2 * len(set(lines)) > len(lines)
    separator, opening = b"\n" if one_a_line else b"", beginning_of(raw)
    lost = {role for role in ("topic", "partition", "offset", "key") if role not in roles}
    lost |= {"messages"} if in_array else set()
    if set(names) == {"schema", "payload"}:  # Kafka Connect's JSON with schemas, of bytes or texts
        kinds = {kind for r in records for kind in re.findall(r'"type"\s*:\s*"(\w+)"', str(r.get("schema")))}
        if kinds not in ({"bytes"}, {"string"}):
            return None
        coded: Coding = "base64" if kinds == {"bytes"} else "text"
        return Form("objects", "objects", coded, coded, separator=separator, opening=opening, lost=frozenset(lost))
    if not is_envelope(names) or {"kind", "commit_ts"} <= set(names):  # the latter are events that this package wrote
        return None
    values, keys = texts_of(records, roles)
    coding, key_coding = codings_of(values, keys)
    like_capture = set(names) >= _CAPTURE and not {n for n in names if role_of(n)} - set(ROLES) and one_a_line
    # a damaged line does not make another form of it
    is_mostly = all(2 * sum(map(is_base64, texts)) > len(texts) or not texts for texts in (values, keys))
    is_typed = 2 * sum(map(_is_capture_typed, records)) > len(records) and coding in ("base64", "text")
    if like_capture and is_mostly and is_typed and "value" in roles:
        return Form(CAPTURE, "objects", "base64", separator=b"\n", opening=opening)
    if "payload" in names and "tstype" in names:
        return Form("kcat", "objects", separator=separator, opening=opening, lost=frozenset(lost & {"messages"}))
    if any(roles[role] not in r for r in records for role in roles if role in ("key", "value")):
        lost.add("null")
    if any(is_rewritten(r.get(roles[role])) for r in records for role in roles):
        lost.add("numbers")
    return Form("objects", "objects", coding, key_coding, separator=separator, opening=opening, lost=frozenset(lost))


def _bare_objects(head: bytes, options: Mapping[str, str], whole: bool) -> Form | None:
    """Values that are objects themselves: in an array, or over several lines each."""
    records, _, raw = _looked_at(head)
    names = {n for r in records for n in r}
    if not records or is_envelope(list(names)) or {"kind", "commit_ts"} <= names:
        return None
    page = {"messages"} if head.lstrip()[:1] == b"[" else set[str]()
    lost = frozenset({"topic", "partition", "offset", "key", "null"} | page)
    return Form("values", "objects", parts=("value",), separator=b"", opening=beginning_of(raw), lost=lost)


def _is_capture_typed(record: Mapping[str, Value]) -> bool:
    """Whether the parts of a message have the types that a capture file gives them."""
    numbers = all(isinstance(record.get(name), int) for name in ("partition", "offset"))
    texts = all(isinstance(record.get(name), str | None) for name in ("key", "value"))
    return numbers and texts and isinstance(record.get("timestamp"), int | float | None)


def is_rewritten(value: object) -> bool:
    """Whether Redpanda Console wrote a value again that it had parsed, and not its bytes beside it."""
    if not isinstance(value, bytes) or b'"isPayloadNull"' not in value:
        return False
    wrapper = fields_of(value)
    return isinstance(wrapper.get("payload"), bytes) and not wrapper.get("rawPayload")


# Patterns: what kafka-console-consumer and kcat -f print.

_KCAT = {
    "t": "topic", "p": "partition", "o": "offset", "k": "key", "s": "value", "T": "timestamp", "h": "headers",
    "K": "key_length", "S": "value_length", "R": "value_length4",
}  # fmt: skip


def kcat_format(text: str) -> tuple[str | bytes, ...]:
    """The parts of a format of kcat -f: literals as bytes, fields by name."""
    parts: list[str | bytes] = []
    for literal, token in re.findall(r"([^%]+)|%(.)", text, re.DOTALL):
        if token and token != "%" and token not in _KCAT:
            raise SourceError(
                f"The format {text!r} has %{token}, which kcat does not know.", hint="See: man kcat, section FORMAT."
            )
        part: str | bytes = unescaped(literal) if literal else b"%" if token == "%" else _KCAT[token]
        if isinstance(part, bytes) and parts and isinstance(parts[-1], bytes):
            parts[-1] += part
        else:
            parts.append(part)
    return tuple(parts)


def _by_format(head: bytes, options: Mapping[str, str], whole: bool) -> Form | None:
    if "format" not in options:
        return None
    parts = kcat_format(options["format"])
    if "value" not in parts:
        raise SourceError(f"The format {options['format']!r} has no %s, so the dump holds no values.")
    lengths = {"value_length", "value_length4"} & set(parts)
    ends = parts[-1] if isinstance(parts[-1], bytes) else b""
    if not lengths and not ends:
        raise SourceError(
            f"The format {options['format']!r} neither ends with a text nor has %S, so nothing ends a message.",
            hint=r"State it as kcat was given it, such as --option format='%t %p %o %k %s\n'.",
        )
    lost = {role for role in ("topic", "partition", "offset", "key") if role not in parts}
    lost |= set() if "key_length" in parts and lengths else {"null"}
    return Form("kcat-format", "pattern", parts=parts, separator=ends, between=b"", lost=frozenset(lost))


_PRINTED = (
    ("timestamp", b"", "console_time"), ("partition", b"Partition:", "partition"), ("offset", b"Offset:", "offset"),
    ("delivery", b"Delivery:", "ignored"), ("epoch", b"Epoch:", "ignored"),
)  # fmt: skip
"""What kafka-console-consumer prints before headers, key and value, in its order."""
_HEADERS = re.compile(rb"NO_HEADERS|[\w.-]+:[^{}\t]*")


def _console(head: bytes, options: Mapping[str, str], whole: bool) -> Form | None:
    ends = unescaped(options.get("line.separator", "\n"))
    lines = [line for line in head.split(ends)[: _RECORDS + 1] if line]
    lines = lines if whole or len(lines) < 2 else lines[:-1]
    if not lines:
        return None
    if options.get("print.value") == "false":
        raise SourceError("A dump with print.value=false has no values.", hint="Dump the topic again without it.")
    if old := _partition_last(lines, options):
        return old
    # the first lines may be a consumer's log, or the rest of a record
    parts, between = max((_typed(line, options) for line in lines), key=lambda found: len(found[0]))
    is_typed, null = bool(parts), unescaped(options.get("null.literal", "null"))
    if not is_typed and between is None and (found := _before_json(lines)):
        between, null = found
    between = between or b"\t"
    remainders: list[bytes] = []
    for line in lines:
        if (behind := _behind(parts, line)) is not None:
            remainders.append(behind)
        elif remainders:  # a value that holds what ends a message
            remainders[-1] += ends + line
    stated = [n for n in ("headers", "key") if options.get(f"print.{n}") == "true"]
    silent = not any(n.startswith("print.") for n in options)
    extra = stated if not silent else _extra(remainders, between, is_shown=is_typed)
    if extra is None or (not is_typed and not extra):
        return None
    joined = _joined([*parts, *(part for name in extra for part in (name, between)), "value"])
    lost = {"topic", "null"} | {role for role in ("partition", "offset", "key") if role not in joined}
    return Form(
        "console", "pattern", parts=(*joined, ends), separator=ends, between=between,
        pairs=unescaped(options.get("headers.separator", ",")), null=null, lost=frozenset(lost),
    )  # fmt: skip


def _partition_last(lines: Sequence[bytes], options: Mapping[str, str]) -> Form | None:
    """Key or none, value in JSON, partition: the console's order before Kafka 2.7. Numbers that grow are offsets."""
    found = [re.fullmatch(rb"([^{]*\t)?(?:\{.*\}|null)\t(\d+)", line) for line in lines]
    some = [one for one in found if one is not None]
    numbers = [int(one[2]) for one in some]
    grows = len(some) > 1 and all(b > a for a, b in pairwise(numbers))
    if 3 * len(some) <= 2 * len(lines) or (grows and options.get("print.partition") != "true"):
        return None
    parts: tuple[str | bytes, ...] = ("value", b"\t", "partition", b"\n")
    lost = {"topic", "offset", "null"}
    if all(one[1] for one in some):
        parts = ("key", b"\t", *parts)
    else:
        lost.add("key")
    return Form("console", "pattern", parts=parts, null=b"null", lost=frozenset(lost))


def _typed(line: bytes, options: Mapping[str, str]) -> tuple[list[str | bytes], bytes | None]:
    """The fields with which a line begins whose labels or types show them, and what stands between fields."""
    between = unescaped(options["key.separator"]) if "key.separator" in options else None
    parts: list[str | bytes] = []
    for name, label, token in _PRINTED:
        said = (
            re.match(re.escape(label) + TOKENS[token], line)
            if label or options.get("print.timestamp") != "false"
            else None
        )
        if said is None or options.get(f"print.{name}") == "false":
            continue
        line = line[said.end() :]
        if between is None:
            following = re.search(rb"Partition:|Offset:|Delivery:|Epoch:|NO_HEADERS|null|[{\[]|\t|$", line)
            between = b"\t" if line.startswith(b"\t") else line[: following.start() if following else 1]
        parts += [label, token, between] if label else [token, between]
        line = line.removeprefix(between)
    return parts, between


_SIGN = rb"[^\w\s{}\[\]\"'\\]{1,8}|[\t ]"


def _before_json(lines: Sequence[bytes]) -> tuple[bytes, bytes] | None:
    """What separates keys (null, empty or JSON) from values (JSON) in most lines, and what stands for null."""
    found: Counter[tuple[bytes, bytes]] = Counter()
    for line in lines:
        if (said := re.match(rb"(null|)(%s)(?=[{\[])" % _SIGN, line)) and is_json(line[said.end() :]):
            found[said[2], said[1]] += 1
            continue
        for said in re.finditer(rb"\}(%s)(?=\{)" % _SIGN, line):
            if is_json(line[: said.start() + 1]) and is_json(line[said.end() :]):
                found[said[1], b"null"] += 1
    best, n = max(found.items(), key=lambda one: one[1], default=((b"", b""), 0))
    return best if 3 * n > 2 * len(lines) else None


def _joined(parts: Sequence[str | bytes]) -> tuple[str | bytes, ...]:
    """Literals that follow each other as one."""
    out: list[str | bytes] = []
    for part in parts:
        if isinstance(part, bytes) and out and isinstance(out[-1], bytes):
            out[-1] += part
        elif part:
            out.append(part)
    return tuple(out)


def _behind(parts: Sequence[str | bytes], line: bytes) -> bytes | None:
    said = re.match(b"".join(re.escape(p) if isinstance(p, bytes) else TOKENS[p] for p in parts), line)
    return line[said.end() :] if said else None


def _extra(remainders: Sequence[bytes], between: bytes, *, is_shown: bool) -> list[str] | None:
    """Which of headers and key stand before the value; None where nothing shows it.

    If other fields, or JSON, show that the console wrote it, less than a third of the lines may be cut.
    """
    counts, n_json = [], 0
    for text in remainders:
        fields = text.split(between)
        json = [i for i in range(len(fields)) if is_json(between.join(fields[i:]))]
        counts.append(json[0] if json else len(fields) - 1)
        n_json += bool(json)
    if not counts:
        return None
    n = sorted(counts)[(len(counts) - 1) // 3 if is_shown or 3 * n_json > 2 * len(counts) else 0]
    if n == 0:
        return []
    if not is_shown and all(text.split(between)[0].isdigit() for text in remainders):
        return None  # a partition or an offset, which kcat -f printed
    headers = 3 * sum(not _HEADERS.fullmatch(text.split(between)[0]) for text in remainders) < len(remainders)
    return ["headers", "key"][:n] if headers else ["key"]


# Values only, CSV, lengths, rows.


def _values(head: bytes, options: Mapping[str, str], whole: bool) -> Form | None:
    lines = head.split(b"\n")[: _RECORDS + 1]
    lines = [line.strip() for line in (lines if whole or len(lines) < 2 else lines[:-1]) if line.strip()]
    filled = [line for line in lines if line not in (b"null", b"None")]
    lost = frozenset({"topic", "partition", "offset", "key", "null"})
    if not filled:
        return Form("values", "lines", null=b"null", lost=lost) if lines else None
    if is_json(filled[0]) and filled[0][:1] == b"{":
        names = list(orjson.loads(filled[0]))
        return None if {"kind", "commit_ts"} <= set(names) else Form("values", "lines", null=b"null", lost=lost)
    if all(line[:1] == line[-1:] == b'"' and len(line) > 1 for line in filled):
        texts = [orjson.loads(line) for line in filled if _is_text(line)]
        return Form("values", "lines", *codings_of(texts, ()), null=b"null", lost=lost)
    coding = coding_of([line.decode("latin-1") for line in filled])
    if coding != "text" and all(len(line) >= 8 or coding == "python" for line in filled):
        return Form("values", "lines", coding, coding, null=b"None" if coding == "python" else b"null", lost=lost)
    return None


def _is_text(line: bytes) -> bool:
    try:
        return isinstance(orjson.loads(line), str)
    except orjson.JSONDecodeError:
        return False


def _csv(head: bytes, options: Mapping[str, str], whole: bool) -> Form | None:
    first = head.partition(b"\n")[0].strip().decode("utf-8", "replace")
    delimiter = max(",;\t|", key=first.count)
    names = [name.strip().strip('"') for name in first.split(delimiter)]
    roles = roles_in(names)
    if {"partitionID", "keySize", "valueSize"} <= set(names):
        raise SourceError(
            "This CSV is one of Redpanda Console, which writes ; for each comma of a value: no value can be restored.",
            hint="Save the messages as JSON there, with raw data.",
        )
    is_placed = bool({"offset", "partition", "key"} & roles.keys()) or len(names) == 1
    if "value" not in roles or first[:1] in "{[" or not is_placed:
        return None
    by_name = {name: role for role, name in roles.items()}
    lost = {role for role in ("topic", "partition", "offset", "key") if role not in roles} | {"null", "messages"}
    parts = tuple(by_name.get(name, "ignored") for name in names)
    csv.field_size_limit(len(head) + 1)
    lines = head.decode("latin-1").split("\n")
    rows = csv.reader(lines[1:] if whole or len(lines) < 3 else lines[1:-1], delimiter=delimiter)
    some: list[dict[str, str]] = []
    with suppress(csv.Error):  # who reads it says where
        for row in islice(rows, _RECORDS):
            if len(row) == len(parts) and row != names:
                some.append(dict(zip(parts, row, strict=True)))
    filled = [{role: text for role, text in row.items() if text != "null"} for row in some]
    codings = codings_of(*texts_of(filled, {"key": "key", "value": "value"}))
    return Form("csv", "csv", *codings, parts=parts, between=delimiter.encode(), lost=frozenset(lost))


_ISO = re.compile(rb"\d{4}-\d\d-\d\dT[\d:.]+Z?")


def _unnamed_columns(head: bytes, options: Mapping[str, str], whole: bool) -> Form | None:
    """Rows without a header, as Aiven's sinks write fields that they were told: base64, offsets and times."""
    lines = head.split(b"\n")[: _RECORDS + 1]
    rows = [line.rstrip(b"\r").split(b",") for line in (lines if whole or len(lines) < 2 else lines[:-1]) if line]
    if not rows or len({len(row) for row in rows}) > 1 or len(rows[0]) < 2:
        return None
    parts: list[str] = []
    for column in zip(*rows, strict=True):
        filled = [text for text in column if text]
        if filled and all(text.isdigit() for text in filled):
            numbers = [int(text) for text in column if text]
            steps = {b - a for a, b in pairwise(numbers)}
            parts.append("timestamp" if min(numbers) > 10**9 and steps != {1} else "offset")
        elif filled and all(map(_ISO.fullmatch, filled)):
            parts.append("timestamp")
        elif all(is_base64(text.decode("latin-1")) for text in filled):
            parts.append("content")
        else:
            return None
    n = parts.count("content")
    if n not in (1, 2) or len(set(parts)) < len(parts) - n + 1:
        return None
    named = iter(("key", "value")[2 - n :])
    parts = [next(named) if part == "content" else part for part in parts]
    lost = {role for role in ("topic", "partition", "offset", "key") if role not in parts} | {"null"}
    form = Form("csv", "csv", "base64", "base64", parts=tuple(parts), between=b",", lost=frozenset(lost))
    return replace(form, is_headed=False)


def _lengths(head: bytes, options: Mapping[str, str], whole: bool) -> Form | None:
    at = n = n_tiny = 0
    while at + 4 <= len(head) and n < _RECORDS:
        size = int.from_bytes(head[at : at + 4], "big", signed=True)
        if size < -1 or size > 1 << 27:
            return None
        at += 4 + max(size, 0)
        n += 1
        n_tiny += size in (0, 1)
    fits = at == len(head) if whole else n > 1
    if not n or not fits or 3 * n_tiny > n:  # lengths of 8 bytes in open-protocol look like empty values
        return None
    lost = frozenset({"topic", "partition", "offset", "key"})
    return Form("lengths", "pattern", parts=("value_length4", "value"), lost=lost)


def _later_lengths(head: bytes, options: Mapping[str, str], whole: bool) -> Form | None:
    """Values with their lengths, of which the first, or one between others, is cut."""
    if next_chain(head, 0) is None:
        return None
    return Form(
        "lengths", "pattern", parts=("value_length4", "value"), lost=frozenset({"topic", "partition", "offset", "key"})
    )


def form_of_rows(
    names: Sequence[str], texts: tuple[Sequence[str], Sequence[str]], *, given: Mapping[str, str]
) -> Form | None:
    """The form of a Parquet or Avro file whose columns have these names; None where none of them is a value.

    Parameters
    ----------
    names
        Of the columns; none for values that are no rows.
    texts
        Some texts of the first rows' values, and of their keys.
    given
        Of :data:`OPTIONS`.
    """
    roles = roles_in(names)
    if names and "value" not in roles:
        return None
    stated = {name: given[name] for name in ("topic", "partition") if name in given}
    lost = {role for role in ("topic", "partition", "offset", "key") if role not in roles} - stated.keys()
    parts = tuple(names) if "value" in roles else ()
    coding, key_coding = codings_of(*texts)
    form = Form("rows", "rows", coding, key_coding, parts=parts, lost=frozenset(lost), given=tuple(stated.items()))
    written = [*(texts[0] if coding == "text" else ()), *(texts[1] if key_coding == "text" else ())]
    return _as_encoded(form, "\n".join(written).encode("utf-8", "surrogatepass")) if written else form


def form_beside(head: bytes, values: Form) -> Form:
    """The form of keys or headers, a line each, beside ``values``."""
    if values.name == "lengths" and (found := _lengths(head, {}, False)):
        return found
    texts = [orjson.loads(line) for line in head.split(b"\n")[:_RECORDS] if _is_text(line)]
    coding = coding_of_keys(texts, values.coding) if texts else "text"
    form = Form("values", "lines", coding, coding, null=b"null")
    return _as_encoded(form, head) if coding == "text" else form


_Detector = Callable[[bytes, Mapping[str, str], bool], Form | None]
_DETECTORS: Sequence[tuple[str, _Detector]] = (
    ("kcat-format", _by_format), ("printed", _printed), ("segment", _segment), ("objects", _objects),
    ("kcat", _objects), ("lengths", _lengths), ("csv", _csv), ("console", _console), ("csv", _unnamed_columns),
    ("values", _values), ("values", _bare_objects), ("lengths", _later_lengths),
)  # fmt: skip

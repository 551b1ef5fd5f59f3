"""What kafka-console-consumer and kcat -f print: fields with text between them, as options or the first lines show."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import pairwise

from ticdc_lab.errors import SourceError
from ticdc_lab.sources.forms import LOOKED_AT, TOKENS, Coding, Form, codings_of, lost_of, regex_of, unescaped
from ticdc_lab.sources.json_objects import end_of_json, is_json

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


def by_format(head: bytes, options: Mapping[str, str], whole: bool) -> Form | None:
    """What kcat -f printed with the format that an option states."""
    if "format" not in options:
        return None
    parts = kcat_format(options["format"])
    if "value" not in parts:
        raise SourceError(f"The format {options['format']!r} has no %s, so the dump has no values.")
    form = _by_parts(parts)
    if not form.is_measured and not form.separator:
        raise SourceError(
            f"The format {options['format']!r} neither ends with a text nor has %S, so nothing ends a message.",
            hint=r"State it as kcat was given it, such as --option format='%t %p %o %k %s\n'.",
        )
    return form


def _by_parts(parts: tuple[str | bytes, ...]) -> Form:
    lengths = {"value_length", "value_length4"} & set(parts)
    ends = parts[-1] if isinstance(parts[-1], bytes) else b""
    lost = lost_of(parts) | (set() if "key_length" in parts and lengths else {"null"})
    # a key may hold what separates it from its value
    at = parts.index("value")
    between = parts[at - 1] if at > 1 and parts[at - 2] == "key" and not lengths else b""
    between = between if isinstance(between, bytes) else b""
    return Form("kcat-format", "pattern", parts=parts, separator=ends, between=between, lost=lost)


_USUAL = [
    kcat_format(rf"\nKey (%K bytes): %k\t\nValue (%S bytes): %s\n{rest}\n--\n")
    for rest in (
        r"Timestamp: %T\tPartition: %p\tOffset: %o", r"Partition: %p\tOffset: %o",
        r"Timestamp: %T\tPartition: %p\tOffset: %o\nHeaders: %h", r"Partition: %p\tOffset: %o\nHeaders: %h",
    )
] + [
    kcat_format(text)
    for text in (
        r"Topic %t[%p], offset: %o, key: %k, payload: %S bytes: %s\n",
        r"Topic %t [%p] at offset %o: key %k: %s\n",
    )
]  # fmt: skip
"""Formats of kcat's own pages, which people copy."""
_OF_PULSAR = (b"], properties:[", "pairs", b"], content:", "value", b"\n")
_OF_OTHERS: tuple[tuple[str, tuple[str | bytes, ...], bytes], ...] = (
    (
        "pulsar-client",
        (b"publishTime:[", "timestamp", b"], eventTime:[", "ignored", b"], key:[", "key", *_OF_PULSAR), b"null",
    ),
    ("pulsar-client", (b"key:[", "key", *_OF_PULSAR), b"null"),
    ("the loop of kafka-python's README", kcat_format(r"%t:%p:%o: key=%k value=%s\n"), b"None"),
    ("Confluent's command line", kcat_format(r"Timestamp:%T Partition:%p Offset:%o\t%s\n"), b""),
    ("Confluent's command line", kcat_format(r"Partition:%p Offset:%o\t%s\n"), b""),
    *(("a consumer", kcat_format(f"[partition=%p] {offset}[key=%k] {value}\\n"), b"null")
      for offset in ("[offset=%o] ", "") for value in ("[value=%s]", "%s")),
)  # fmt: skip
"""Lines of other tools: which one, its format, and its word for null."""
_RECORD = 1 << 16


def by_usual_format(head: bytes, options: Mapping[str, str], whole: bool) -> Form | None:
    """What kcat -f printed with a format that its README or manual shows."""
    lines = head.split(b"\n")[:LOOKED_AT]
    if len(lines) > 2 and [b'"source":' in line for line in lines[:-1]] == [n % 2 == 1 for n in range(len(lines) - 1)]:
        return _by_parts(kcat_format(r"%k\n%s\n")) if all(map(is_json, lines[:2])) else None  # debezium
    first = head.lstrip(b"\n").partition(b"\n")[0] + b"\n"
    for tool, parts, null in _OF_OTHERS:
        if re.fullmatch(regex_of(parts), first):
            return replace(_by_parts(parts), null=null, tool=tool)
    fits = (parts for parts in _USUAL if re.match(regex_of(parts), head[:_RECORD], re.DOTALL))
    return next(map(_by_parts, fits), None)


_PRINTED = (
    ("timestamp", b"", "console_time"), ("partition", b"Partition:", "partition"), ("offset", b"Offset:", "offset"),
    ("delivery", b"Delivery:", "ignored"), ("epoch", b"Epoch:", "ignored"),
)  # fmt: skip
"""What kafka-console-consumer prints before headers, key and value, in its order."""
_HEADERS = re.compile(rb"NO_HEADERS|[\w.-]+:[^{}\t]*")


_LABELLED = re.compile(rb"Partition:\d+[, ]+Offset:\d+[, ]+[^{]*\bValue:")
"""Lines of a program whose labels are like the console's, which writes none before keys and values."""


def console(head: bytes, options: Mapping[str, str], whole: bool) -> Form | None:
    """What kafka-console-consumer printed, by labels, types and options."""
    ends = unescaped(options.get("line.separator", "\n"))
    lines = [line for line in head.split(ends)[: LOOKED_AT + 1] if line]
    lines = lines if whole or len(lines) < 2 else lines[:-1]
    if not lines or (not options and any(map(_LABELLED.match, lines))):
        return None
    if options.get("print.value") == "false":
        raise SourceError(
            "A dump with print.value=false has no values.",
            hint="Dump the topic again without it, or record it: ticdc-lab record kafka://HOST:PORT/TOPIC",
        )
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


_SIGN = rb"[\t ]*[^\w\s{}\[\]\"'\\]{1,8}[\t ]*|[\t ]+"


def _before_json(lines: Sequence[bytes]) -> tuple[bytes, bytes] | None:
    """What separates keys (null, empty or JSON) from values (JSON) in most lines, and the text for null."""
    found: Counter[tuple[bytes, bytes]] = Counter()
    for line in lines:
        if (said := re.match(rb"(null|NULL|)(%s)(?=[{\[])" % _SIGN, line)) and is_json(line[said.end() :]):
            found[said[2], said[1]] += 1
            continue
        end = end_of_json(line)  # the only place behind which another value can begin
        said = re.compile(rb"(%s)(?=\{)" % _SIGN).match(line, end)
        if said and line[end - 1 : end] == b"}" and is_json(line[:end]) and is_json(line[said.end() :]):
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


_FIELDS_MOST = 32
"""Separators of one record behind which JSON is looked for: a console prints seven fields; a key may contain others."""


def _extra(remainders: Sequence[bytes], between: bytes, *, is_shown: bool) -> list[str] | None:
    """Which of headers and key precede the value; None where nothing shows it.

    If other fields, or JSON, show that the console wrote it, less than a third of the lines may be cut.
    """
    counts, n_json = [], 0
    for text in remainders:
        at, behind = 0, text
        while not is_json(behind) and between in behind and at < _FIELDS_MOST:
            at, behind = at + 1, behind.partition(between)[2]
        found = is_json(behind)
        counts.append(at if found else text.count(between))
        n_json += found
    if not counts:
        return None
    n = sorted(counts)[(len(counts) - 1) // 3 if is_shown or 3 * n_json > 2 * len(counts) else 0]
    if n == 0:
        return []
    firsts = [text.split(between)[0].strip() for text in remainders]
    of_number = sum(first.isdigit() or first.endswith(b":") for first in firsts)
    if not is_shown and ((n > 2 and between == b"\t") or 3 * of_number > 2 * len(remainders)):
        return None  # columns of a table, a partition or an offset, which kcat -f printed, or labels of a program
    headers = 3 * sum(not _HEADERS.fullmatch(text.split(between)[0]) for text in remainders) < len(remainders)
    return ["headers", "key"][:n] if headers else ["key"]


def codings_in(head: bytes, form: Form) -> tuple[Coding, Coding]:
    """How the values and keys of a pattern are written, by the first records; few digits decide nothing."""
    whole = re.compile(regex_of(form.body), re.DOTALL)
    some = [found.groupdict() for line in head.split(form.separator)[:LOOKED_AT] if (found := whole.fullmatch(line))]
    values, keys = (
        [text.decode("latin-1") for r in some if (text := r.get(role)) and text != form.null]
        for role in ("value", "key")
    )
    return codings_of(values, keys) if values and all(len(value) >= 8 for value in values) else ("text", "text")

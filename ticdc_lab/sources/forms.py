"""The forms in which tools dump a topic: what each looks like, what it loses, and which one some bytes are in.

A form is a description: how the file is cut into records, and which part of a record is which column of a message.
:mod:`ticdc_lab.sources.dumps` reads every form by the same steps. A new form is an entry here.
"""

from __future__ import annotations

import csv
import re
from codecs import getincrementaldecoder
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import islice, pairwise
from pathlib import PurePath
from types import MappingProxyType
from typing import Literal

import orjson

from ticdc_lab.errors import SourceError
from ticdc_lab.sources.json_objects import BadJson, Value, beginning_of, fields_of, objects_in, plain_of

Coding = Literal["text", "base64", "hex", "python"]
Role = Literal["topic", "partition", "offset", "timestamp", "key", "value", "headers"]
ROLES: tuple[Role, ...] = ("topic", "partition", "offset", "timestamp", "key", "value", "headers")

NAMES: Mapping[str, Role] = {
    "topic": "topic", "topicname": "topic",
    "partition": "partition", "partitionid": "partition",
    "offset": "offset",
    "timestamp": "timestamp", "ts": "timestamp", "time": "timestamp", "createtime": "timestamp",
    "timestampms": "timestamp",
    "key": "key", "messagekey": "key",
    "value": "value", "payload": "value", "content": "value", "message": "value", "messagevalue": "value",
    "msg": "value", "body": "value", "data": "value",
    "headers": "headers",
}  # fmt: skip
"""What tools call the parts of a message, in lower case, without ``_``, ``-``, blanks, and ``kafka`` before them."""

LOSSES: Mapping[str, str] = {
    "topic": "{what} names no topic: {topic} is used.",
    "offset": "{what} has no offsets: the positions of its records are used. So missing and repeated messages, and a "
    "late begin of the recording, cannot be detected.",
    "partition": "{what} has no partitions: one is assumed for each file. Nothing across partitions is judged, and a "
    "resolved_ts may be too late if the dump mixes messages of several partitions.",
    "key": "{what} has no keys: open-protocol cannot be decoded without them; of avro, rows have no handle key and "
    "deletes no content.",
    "null": "{what} writes null like an empty text or the word null, so a value may have been the other one.",
    "messages": "{what} has only the messages that the page showed: others may be before, between and after them.",
    "numbers": "{what} has values that a browser wrote again: numbers above 2^53, such as commit_ts, may be rounded. "
    "Save the messages with their raw data instead.",
    "beside": "Files of keys (.keys.) or headers (.headers.) without a file of values of the same name are not read: "
    "they belong to deletes, or the values are missing.",
    "names": "{what} has topic, partition and offsets in its file names: an offset is the one of the file name plus "
    "the position in the file.",
}
"""What a form can lose, and the sentence that says so."""

HEAD_BYTES = 1 << 18
"""Bytes at the beginning of a file from which its form is detected."""

_RECORDS = 100
"""Records at the beginning of a file that are looked at."""


@dataclass(frozen=True, slots=True)
class Assumed:
    """Where the messages of a file are, as far as they do not say it themselves."""

    topic: str
    partition: int = 0
    offset: int = 0
    is_cut: bool = False
    """Whether ranges of its bytes can be read (:attr:`Form.is_cut`): it is not packed."""
    beside: tuple[Beside, ...] = ()
    """Files with the keys or headers of its messages, as Kafka Connect writes them."""
    lines: tuple[tuple[int, int], ...] = ()
    """Where its ranges begin, and how many of its lines begin before each, where they were counted."""

    def lines_before(self, first: int) -> int | None:
        """How many lines begin before a range of its bytes; None if nobody counted them."""
        return dict(self.lines).get(first) if first else 0


@dataclass(frozen=True, slots=True)
class Form:
    """How a tool writes messages.

    Attributes
    ----------
    name
        One of :data:`FORMS`, as ``--source-kind`` takes it.
    records
        How the file is cut: ``lines``, JSON ``objects``, ``pattern`` (a format with fields and text between them),
        ``csv``, ``rows`` of Parquet or Avro, or ``none``: it holds no messages.
    coding
        How key and value are written: as they are (``text``), in ``base64``, in ``hex``, or as ``python`` shows bytes
        (``b'..'``).
    parts
        Of a ``pattern`` the literals (bytes) and names of fields, in order; of ``csv`` the roles of its columns.
    separator
        What ends a record of ``lines`` or ``pattern``.
    between
        What separates the fields of a ``pattern`` whose values may hold it.
    pairs
        What separates headers.
    null
        The word for null, if there is one.
    opening
        Bytes with which each object begins, so that one is found behind a damaged one.
    lost
        Keys of :data:`LOSSES`.
    given
        Topic and partition that an option states.
    is_utf8
        Whether the first bytes are UTF-8, as no dump of binary messages is that kept their bytes.
    is_latin
        Whether all characters of such bytes are of Latin-1 or Windows-1252, and some are in no text: binary messages
        were taken for such text and saved as UTF-8.
    n_twice
        How many of the first lines hold text that was UTF-8 before it was encoded as UTF-8 again.
    """

    name: str
    records: Literal["lines", "objects", "pattern", "csv", "rows", "none"]
    coding: Coding = "text"
    parts: tuple[str | bytes, ...] = ()
    separator: bytes = b"\n"
    between: bytes = b"\t"
    pairs: bytes = b","
    null: bytes | None = None
    opening: bytes = b""
    lost: frozenset[str] = frozenset()
    given: tuple[tuple[str, str], ...] = ()
    is_utf8: bool = False
    is_latin: bool = False
    n_twice: int = 0
    is_headed: bool = True
    """Whether the first row of ``csv`` names its columns."""

    @property
    def words(self) -> str:
        """What it is called in a sentence."""
        return FORMS.get(self.name, "A capture file")

    @property
    def is_numbered(self) -> bool:
        """Whether each line is a message of one partition, so that the number of a line is an offset."""
        alone = self.records == "pattern" and not {"topic", "partition", "offset"} & set(self.parts)
        is_by_line = self.records == "lines" or (alone and self.beginning is None)
        return self.separator == b"\n" and is_by_line

    @property
    def is_measured(self) -> bool:
        """Whether the length of a value stands before it."""
        return not {"value_length", "value_length4"}.isdisjoint(self.parts)

    @property
    def is_cut(self) -> bool:
        """Whether a file can be read from any line on: a record begins with a line, and its place is known there."""
        is_placed = self.records in ("objects", "pattern") and "offset" not in self.lost
        return self.separator == b"\n" and not self.is_measured and (is_placed or self.is_numbered)

    @property
    def body(self) -> tuple[str | bytes, ...]:
        """The parts of a ``pattern`` without what ends a record."""
        return self.parts[:-1] if isinstance(self.parts[-1], bytes) else self.parts

    @property
    def head(self) -> tuple[str | bytes, ...]:
        """What of ``body`` stands before the first field that can be any text."""
        return self.body[: next((i for i, p in enumerate(self.body) if p in OPEN), None)]

    @property
    def beginning(self) -> re.Pattern[bytes] | None:
        """How each record of a ``pattern`` begins; None where nothing shows it, so that each line is one."""
        is_shown = self.records == "pattern" and any(isinstance(p, str) for p in self.head)
        return re.compile(regex_of(self.head)) if is_shown else None

    def sentences(self, topic: str, *, lost: Collection[str]) -> tuple[str, ...]:
        """What cannot be known of a log in this form that has lost some of :data:`LOSSES`."""
        said = [said.format(what=self.words, topic=topic) for loss, said in LOSSES.items() if loss in lost]
        if self.n_twice:
            said.append(
                f"{self.words} was probably saved as UTF-8 twice, as by an editor: in its first {HEAD_BYTES >> 10} KiB "
                f"{self.n_twice:,} line{'s' * (self.n_twice > 1)} with characters beyond ASCII, all of them, have "
                "`Ã©` where `é` was, or the like. The texts and binary values of such messages are wrong then. Restore "
                "it first: iconv -f UTF-8 -t CP1252 (or LATIN1) DUMP > RESTORED."
            )
        return tuple(said)


CAPTURE = "capture"
CONNECT = "connect"
"""A folder of files whose names say where their messages are, whatever their form."""

FORMS: Mapping[str, str] = {
    "kcat": "A dump of kcat -J",
    "kcat-format": "A dump of kcat -f",
    "console": "A dump of kafka-console-consumer",
    "values": "A file of values",
    "objects": "A file of JSON objects",
    "csv": "A CSV export",
    "lengths": "A file of values with their lengths",
    "rows": "A file of rows",
}
"""Names of forms for ``--source-kind``, and what an answer calls them."""

OPTIONS: Mapping[str, str] = {
    "topic": "the topic of a dump that does not name it",
    "partition": "the partition of a dump that does not name it",
    "format": "the format that kcat -f was given",
    "key.separator": "kafka-console-consumer's, between fields",
    "line.separator": "kafka-console-consumer's, behind each message",
    "headers.separator": "kafka-console-consumer's",
    "null.literal": "kafka-console-consumer's word for null",
    **{
        f"print.{name}": f"whether kafka-console-consumer printed it ({name})"
        for name in ("timestamp", "partition", "offset", "headers", "key", "value", "delivery", "epoch")
    },
}
"""Options of dumps, by the names of the tools' own settings."""

_ESCAPES = {"n": b"\n", "t": b"\t", "r": b"\r", "0": b"\0", "\\": b"\\"}


def unescaped(text: str) -> bytes:
    r"""An option's text with ``\n``, ``\t``, ``\xHH`` as bytes."""

    def meant(m: re.Match[str]) -> str:
        return bytes([int(m[1], 16)]).decode("latin-1") if m[1] else _ESCAPES.get(m[2], m[0].encode()).decode("latin-1")

    return re.sub(r"\\(?:x([0-9a-fA-F]{2})|(.))", meant, text.encode().decode("latin-1")).encode("latin-1")


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
    found = _detected(head, wanted, options, whole)
    if (found is None or found.records in ("lines", "pattern")) and (rest := head.partition(b"\n")[2]):
        other = _detected(rest, wanted, options, whole)  # the first line may be half a record: lines behind it decide
        is_plain = other is not None and (other.coding == "text" or other.name == CAPTURE)
        if other is not None and is_plain and (found is None or other.lost < found.lost):
            found = other
    if found is not None:
        keeps_bytes = found.coding != "text" or found.is_measured or found.name == CAPTURE
        is_utf8, is_latin, n_twice = (False, False, 0) if keeps_bytes else _encoded_as(head)
        return replace(
            found, name=found.name if wanted == "auto" else wanted, given=tuple(given.items()),
            lost=found.lost.difference(given),
            is_utf8=is_utf8, is_latin=is_latin, n_twice=n_twice,
        )  # fmt: skip
    if wanted != "auto":
        raise SourceError(
            f"This is no {wanted} dump: it begins with {shown(head)}.",
            hint=f"Let its form be detected, or name another one ({', '.join(FORMS)}): ticdc-lab survey SOURCE",
        )
    return None


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


def shown(head: bytes, most: int = 60) -> str:
    """The first bytes of something, for people."""
    return repr(head[:most].decode("utf-8", "backslashreplace")) + (", .." if len(head) > most else "")


EVENTS_HINT = "Events that `ticdc-lab events` wrote are decoded already: read the log that they come from."


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
    if is_envelope(names):
        kind, what = "objects", "the JSON objects of another tool"
    elif names:
        kind, what = "values", "a file of values, one a line"
    else:
        return f"Name its form ({', '.join(FORMS)}): ticdc-lab survey {source} --source-kind values"
    return f"It resembles {what}: ticdc-lab survey {source} --source-kind {kind}"


# Objects: kcat -J, rpk, exports of web pages, loops of a client library.


def role_of(name: str) -> Role | None:
    """Which part of a message a field is."""
    return NAMES.get(_bare(name))


def _bare(name: str) -> str:
    bare = re.sub(r"[\s_.-]", "", name).lower()
    return bare.removeprefix("kafka").removeprefix("record") or bare


def roles_in(names: Iterable[str]) -> Mapping[Role, str]:
    """The fields of an object by their roles; of several for one role the one that is named first in :data:`NAMES`."""
    return _roles_of(tuple(names))


@lru_cache(maxsize=256)  # the records of a dump have the same names
def _roles_of(names: tuple[str, ...]) -> Mapping[Role, str]:
    order = list(NAMES)
    named = sorted((n for n in names if role_of(n)), key=lambda n: order.index(_bare(n)), reverse=True)
    return MappingProxyType({role: n for n in named if (role := role_of(n)) is not None})


def is_envelope(names: Sequence[str]) -> bool:
    """Whether an object is a message with its place, and not a message's value itself."""
    roles = roles_in(names)
    placed = "offset" in roles and "partition" in roles
    alone = "value" in roles and all(role_of(n) for n in names)
    return alone or (placed and bool({"value", "key", "timestamp"} & roles.keys()))


_CAPTURE = {"topic", "partition", "offset"}
_BASE64 = re.compile(r"(?:[A-Za-z0-9+/]{4})*(?:[A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?")


def is_base64(text: str) -> bool:
    """Whether a text can be base64."""
    return bool(_BASE64.fullmatch(text))


_CODED: Mapping[Coding, re.Pattern[str]] = {
    "hex": re.compile(r"(?:[0-9a-fA-F]{2})+"),  # before base64, whose alphabet has all its digits
    "python": re.compile(r"""b'.*'|b".*\"""", re.DOTALL),
    "base64": _BASE64,
}


def coding_of(texts: Sequence[str]) -> Coding:
    """How some keys and values are written; a few hexadecimal digits may be base64 or a text."""
    some = [c for c, written in _CODED.items() if texts and all(map(written.fullmatch, texts))]
    if some[:1] == ["hex"] and max(map(len, texts)) < 24:
        some = some[1:]
    return some[0] if some else "text"


def _encoded_as(head: bytes) -> tuple[bool, bool, int]:
    """Of :class:`Form`: ``is_utf8``, ``is_latin`` and ``n_twice`` of the first bytes of a dump."""
    if b"\\u" in head:
        head = plain_of(head)
    try:
        text = getincrementaldecoder("utf-8")().decode(head)
    except UnicodeDecodeError:
        return False, False, 0
    beyond = set(re.findall(r"[^\x00-\x7f\ufffd]", text))
    is_latin = all(len(_latin(c)) == 1 for c in beyond) and (
        any("\x80" <= c <= "\x9f" for c in beyond) or len(beyond & set("ƒ†‡ˆ‰‹›˜‚„")) > 1
    )
    runs = [run for run in re.findall(r"[^\x00-\x7f]+", text) if "\ufffd" not in run]
    if not runs or not all(map(is_twice, runs)):
        return True, is_latin, 0
    return True, is_latin, sum(not line.isascii() for line in text.split("\n"))


def _latin(text: str) -> bytes:
    """What a text was that was taken for Windows-1252, or for Latin-1; more bytes than characters for other text."""
    return b"".join(
        c.encode("latin-1") if c <= "\xff" else c.encode("cp1252", "ignore") or c.encode("utf-16") for c in text
    )


def is_twice(run: str) -> bool:
    """Whether characters beyond ASCII were UTF-8 before they were encoded as UTF-8."""
    was = _latin(run)
    try:
        return len(was) == len(run) and bool(was.decode())
    except UnicodeDecodeError:
        return False


def _texts(records: Sequence[Mapping[str, Value]], roles: Mapping[Role, str]) -> list[str]:
    of = [r.get(roles[role]) for r in records for role in ("value", "key") if role in roles]
    return [text for text in of if isinstance(text, str) and text]


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
        kinds = {t for r in records for t in re.findall(rb'"type"\s*:\s*"(\w+)"', str(r.get("schema")).encode())}
        if kinds not in ({b"bytes"}, {b"string"}):
            return None
        coded: Coding = "base64" if kinds == {b"bytes"} else "text"
        return Form("objects", "objects", coded, separator=separator, opening=opening, lost=frozenset(lost))
    if not is_envelope(names) or {"kind", "commit_ts"} <= set(names):  # the latter are events that this package wrote
        return None
    texts = _texts(records, roles)
    coding, n_coded = coding_of(texts), sum(map(is_base64, texts))
    like_capture = set(names) >= _CAPTURE and not {n for n in names if role_of(n)} - set(ROLES) and one_a_line
    is_mostly = n_coded > len(texts) // 2 or not texts  # a damaged line does not make another form of it
    is_typed = 2 * sum(map(_is_capture_typed, records)) > len(records) and coding in ("base64", "text")
    if like_capture and is_mostly and is_typed and "value" in roles:
        return Form(CAPTURE, "objects", "base64", separator=b"\n", opening=opening)
    if "payload" in names and "tstype" in names:
        return Form("kcat", "objects", separator=separator, opening=opening, lost=frozenset(lost & {"messages"}))
    if any(roles[role] not in r for r in records for role in roles if role in ("key", "value")):
        lost.add("null")
    if any(is_rewritten(r.get(roles[role])) for r in records for role in roles):
        lost.add("numbers")
    return Form("objects", "objects", coding, opening=opening, separator=separator, lost=frozenset(lost))


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

TOKENS: Mapping[str, bytes] = {
    "topic": rb"[\w.-]+", "partition": rb"-?\d+", "offset": rb"-?\d+", "timestamp": rb"-?\d+",
    "console_time": rb"(?:(?:CreateTime|LogAppendTime):-?\d+|NO_TIMESTAMP)",
    "key_length": rb"-?\d+", "value_length": rb"-?\d+", "value_length4": rb"(?s:.{4})", "ignored": rb"-?\w*",
    "headers": rb"(?s:.*?)", "key": rb"(?s:.*?)", "value": rb"(?s:.*)",
}  # fmt: skip
"""What each field of a pattern looks like."""

OPEN = frozenset({"headers", "key", "value"})
"""Fields that can be any text."""


def regex_of(parts: Iterable[str | bytes]) -> bytes:
    """What some parts of a pattern look like, each field as a group of its name."""
    return b"".join(
        re.escape(p) if isinstance(p, bytes)
        else TOKENS[p] if p == "ignored"
        else b"(?P<%s>%s)" % (p.encode(), TOKENS[p])
        for p in parts
    )  # fmt: skip


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


def is_json(text: bytes) -> bool:
    """Whether bytes are one whole JSON object or list."""
    if text[:1] not in (b"{", b"["):
        return False
    try:
        orjson.loads(text)
    except orjson.JSONDecodeError:
        return False
    return True


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


# Values only, CSV, lengths.


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
        return Form("values", "lines", coding_of(texts), null=b"null", lost=lost)
    coding = coding_of([line.decode("latin-1") for line in filled])
    if coding != "text" and all(len(line) >= 8 or coding == "python" for line in filled):
        return Form("values", "lines", coding, null=b"None" if coding == "python" else b"null", lost=lost)
    return None


def _is_text(line: bytes) -> bool:
    try:
        return isinstance(orjson.loads(line), str)
    except orjson.JSONDecodeError:
        return False


def _csv(head: bytes, options: Mapping[str, str], whole: bool) -> Form | None:
    first = head.partition(b"\n")[0].strip().decode("utf-8", "replace")
    delimiter = max(",;\t", key=first.count)
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
    texts = [text for row in some for role in ("key", "value") if (text := row.get(role)) and text != "null"]
    return Form("csv", "csv", coding_of(texts), parts=parts, between=delimiter.encode(), lost=frozenset(lost))


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
    return Form("csv", "csv", "base64", parts=tuple(parts), between=b",", lost=frozenset(lost), is_headed=False)


def _lengths(head: bytes, options: Mapping[str, str], whole: bool) -> Form | None:
    at = n = 0
    while at + 4 <= len(head) and n < _RECORDS:
        size = int.from_bytes(head[at : at + 4], "big", signed=True)
        if size < -1 or size > 1 << 27:
            return None
        at += 4 + max(size, 0)
        n += 1
    fits = at == len(head) if whole else n > 1
    if not n or not fits:
        return None
    lost = frozenset({"topic", "partition", "offset", "key"})
    return Form("lengths", "pattern", parts=("value_length4", "value"), lost=lost)


def form_of_rows(names: Sequence[str], texts: Sequence[str], *, given: Mapping[str, str]) -> Form | None:
    """The form of a Parquet or Avro file whose columns have these names; None where none of them is a value.

    Parameters
    ----------
    names
        Of the columns; none for values that are no rows.
    texts
        Some texts of the first rows' keys and values.
    given
        Of :data:`OPTIONS`.
    """
    roles = roles_in(names)
    if names and "value" not in roles:
        return None
    coding = coding_of(texts)
    stated = {name: given[name] for name in ("topic", "partition") if name in given}
    lost = {role for role in ("topic", "partition", "offset", "key") if role not in roles} - stated.keys()
    parts = tuple(names) if "value" in roles else ()
    return Form(
        "rows", "rows", coding, parts=parts, lost=frozenset(lost), given=tuple(stated.items()),
        is_utf8=bool(texts) and coding == "text",
    )  # fmt: skip


_Detector = Callable[[bytes, Mapping[str, str], bool], Form | None]

_DETECTORS: Sequence[tuple[str, _Detector]] = (
    ("kcat-format", _by_format), ("objects", _objects), ("kcat", _objects), ("lengths", _lengths), ("csv", _csv),
    ("console", _console), ("csv", _unnamed_columns), ("values", _values), ("values", _bare_objects),
)  # fmt: skip


# Names of files that Kafka Connect's sinks write.

_USUAL = re.compile(r"(?P<topic>[\w.-]+)\+(?P<partition>\d+)\+(?P<offset>\d+)(?:\+\d+)?(?:\.\w+)*")
_AIVEN = re.compile(
    r"(?P<topic>[\w.-]+)-(?P<partition>\d+)-(?P<offset>\d+)(?:\.(?:gz|json|jsonl|csv|txt|parquet|avro|bin))*"
)
_DATE = re.compile(r"(?:19|20)\d\d-\d\d(?:-\d\d)?(?:\D|$)")


@dataclass(frozen=True, slots=True)
class Named:
    """The place of a file's first message, as its name says."""

    topic: str
    partition: int
    offset: int


KEYS_OR_HEADERS = Form("connect", "none", lost=frozenset({"topic", "partition", "offset"}))
"""A file of Kafka Connect that holds keys or headers of the messages in another one."""

ALONE = replace(KEYS_OR_HEADERS, lost=KEYS_OR_HEADERS.lost | {"key", "beside"})
"""The same where that other file is not there."""


@dataclass(frozen=True, slots=True)
class Beside:
    """A file with the keys or the headers of another one's messages, a record for each."""

    role: Literal["key", "headers"]
    file: str
    form: Form


_BESIDE = re.compile(_USUAL.pattern.replace(r"(?:\.\w+)*", r"\.(?P<what>keys|headers)(?:\.\w+)+"))


def beside(file: str) -> tuple[str, Literal["key", "headers"] | None]:
    """What a file of Kafka Connect shares with those of its keys and headers, and which of them it holds, if any."""
    name = PurePath(file).name
    found = _BESIDE.fullmatch(name)
    stem = str(PurePath(file).with_name(name.partition(f".{found['what']}." if found else ".")[0]))
    return stem, None if found is None else "key" if found["what"] == "keys" else "headers"


def form_beside(head: bytes, values: Form) -> Form:
    """The form of keys or headers, a line each, beside ``values``: in base64 if these are and all of them can be."""
    if values.name == "lengths" and (found := _lengths(head, {}, False)):
        return found
    texts = [orjson.loads(line) for line in head.split(b"\n")[:_RECORDS] if _is_text(line)]
    coding = coding_of(texts)
    return Form("values", "lines", coding if coding == values.coding else "text", null=b"null")


def named_place(file: str) -> Named | None:
    """What the name of a file that Kafka Connect wrote says; None for other names."""
    name = PurePath(file).name
    found = _USUAL.fullmatch(name) or (None if _DATE.search(name) else _AIVEN.fullmatch(name))
    if found is None or int(found["partition"]) >= 1 << 31 or int(found["offset"]) >= 1 << 62:
        return None
    return Named(found["topic"], int(found["partition"]), int(found["offset"]))

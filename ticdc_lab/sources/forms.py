"""The forms in which tools dump a topic: what each looks like, and what it loses.

A form is a description: how the file is cut into records, and which part of a record is which column of a message.
:mod:`ticdc_lab.sources.form_detection` finds the one that some bytes are in, and :mod:`ticdc_lab.sources.dumps` reads
every form by the same steps. A new form is an entry here.
"""

from __future__ import annotations

import csv
import re
from ast import literal_eval
from base64 import b64decode
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import PurePath
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from _csv import Reader

Coding = Literal["text", "base64", "base64-any", "hex", "python"]
Role = Literal["topic", "partition", "offset", "timestamp", "key", "value", "headers"]
ROLES: tuple[Role, ...] = ("topic", "partition", "offset", "timestamp", "key", "value", "headers")
NAMES: Mapping[str, Role] = {
    "topic": "topic", "topicname": "topic",
    "partition": "partition", "partitionid": "partition",
    "sequencenumber": "offset", "offset": "offset",  # of Azure Event Hubs, whose own `Offset` counts bytes
    "timestamp": "timestamp", "ts": "timestamp", "time": "timestamp", "createtime": "timestamp",
    "timestampms": "timestamp", "enqueuedtime": "timestamp", "enqueuedtimeutc": "timestamp",
    # before what a tool has decoded
    "rawkey": "key", "rawvalue": "value", "rawpayload": "value", "rawmessage": "value",
    "key": "key", "messagekey": "key",
    "value": "value", "payload": "value", "content": "value", "message": "value", "messagevalue": "value",
    "msg": "value", "body": "value", "data": "value",
    "headers": "headers",
}  # fmt: skip
"""What tools call the parts of a message, in lower case, without ``_``, ``-``, ``@``, blanks, and ``kafka`` before."""
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
"""What a form can lose, and its sentence."""


def lost_of(have: Collection[Any] = ()) -> frozenset[str]:
    """Which of topic, partition, offset and key is lost where only these parts of a message are there."""
    return frozenset(part for part in ("topic", "partition", "offset", "key") if part not in have)


HEAD_BYTES = 1 << 18
"""Bytes at the beginning of a file from which its form is detected."""
LOOKED_AT = 100
"""Records there that are looked at."""


@dataclass(frozen=True, slots=True)
class Assumed:
    """Where the messages of a file are, as far as they do not show it themselves."""

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
        """How many lines begin before a range of its bytes; None if not counted."""
        return dict(self.lines).get(first) if first else 0


@dataclass(frozen=True, slots=True)
class Form:
    """How a tool writes messages."""

    name: str  # one of :data:`FORMS`, as ``--source-kind`` takes it
    # How the file is cut: ``lines``, JSON ``objects``, ``pattern`` (a format with fields and text between them),
    # ``csv``, ``rows`` of Parquet or Avro, ``printed`` by a client library, ``segment`` by ``kafka-dump-log``, or
    # ``none``: it has no messages.
    records: Literal["lines", "objects", "pattern", "csv", "rows", "printed", "segment", "none"]
    # ``coding``, ``key_coding``: how values and keys are written: as they are (``text``), in ``base64``, or in
    # ``base64-any`` (of the alphabet for URLs, without padding or in lines of 76 characters), in ``hex``, or as
    # ``python`` shows bytes (``b'..'``).
    coding: Coding = "text"
    key_coding: Coding = "text"
    # Of a ``pattern`` the literals (bytes) and names of fields, in order; of ``csv`` the roles of its columns.
    parts: tuple[str | bytes, ...] = ()
    separator: bytes = b"\n"  # what ends a record of ``lines`` or ``pattern``
    between: bytes = b"\t"  # what separates the fields of a ``pattern`` whose values may hold it
    pairs: bytes = b","  # what separates headers
    null: bytes | None = None  # the word for null, if there is one
    opening: bytes = b""  # bytes with which each object begins, so that one is found behind a damaged one
    lost: frozenset[str] = frozenset()  # keys of :data:`LOSSES`
    given: tuple[tuple[str, str], ...] = ()  # topic and partition that an option states
    is_utf8: bool = False  # whether the first bytes are UTF-8, as no dump of binary messages is that kept their bytes
    # Whether all characters of such bytes are of Latin-1 or Windows-1252, and some are in no text: binary messages were
    # taken for such text and saved as UTF-8.
    is_latin: bool = False
    n_twice: int = 0  # how many of the first lines hold text that was UTF-8 before it was encoded as UTF-8 again
    is_headed: bool = True
    """Whether the first row of ``csv``, or each record, names its columns."""
    is_escaped: bool = False
    """Whether a backslash precedes a quote in a cell of ``csv``, as Spark writes it, and not a second quote."""
    depth: int = 0
    """Of ``objects``: in how many others each lies, as in ``{"records": [..]}``."""
    width: int = 0
    """Of ``lines`` in base64: how long a line is that the next one continues."""
    tool: str = ""
    """What wrote it, where that is another one than :data:`FORMS` names."""

    @property
    def words(self) -> str:
        """What it is called in a sentence."""
        return f"What {self.tool} prints" if self.tool else FORMS.get(self.name, "A capture file")

    @property
    def is_numbered(self) -> bool:
        """Whether each line is a message of one partition, so that the number of a line is an offset."""
        alone = self.records == "pattern" and not {"topic", "partition", "offset"} & set(self.parts)
        is_by_line = self.records == "lines" or (alone and self.beginning is None and not self.n_within)
        return self.separator == b"\n" and is_by_line

    @property
    def is_text(self) -> bool:
        """Whether no value has bytes that are no text: a line that no record has is none of a value."""
        return self.is_utf8 or self.records == "objects" or "text" not in (self.coding, self.key_coding)

    @property
    def is_measured(self) -> bool:
        """Whether the length of a value precedes it."""
        return not {"value_length", "value_length4"}.isdisjoint(self.parts)

    @property
    def is_cut(self) -> bool:
        """Whether a file can be read from any line on: a record begins with a line, and its place is known there.

        In a binary dump the lines before show whether a line is of a terminal, so no number is counted in parts of it.
        """
        is_placed = self.records in ("objects", "pattern") and "offset" not in self.lost and not self.n_within
        return self.separator == b"\n" and not self.is_measured and (is_placed or (self.is_numbered and self.is_text))

    @property
    def body(self) -> tuple[str | bytes, ...]:
        """The parts of a ``pattern`` without what ends a record."""
        return self.parts[:-1] if isinstance(self.parts[-1], bytes) else self.parts

    @property
    def n_within(self) -> int:
        """How many separators each record of a ``pattern`` contains whose beginning nothing shows."""
        is_hidden = self.records == "pattern" and self.separator and self.beginning is None
        return sum(p.count(self.separator) for p in self.body if isinstance(p, bytes)) if is_hidden else 0

    @property
    def head(self) -> tuple[str | bytes, ...]:
        """What of ``body`` precedes the first field that can be any text."""
        return self.body[: next((i for i, p in enumerate(self.body) if p in OPEN), None)]

    @property
    def beginning(self) -> re.Pattern[bytes] | None:
        """How each record of a ``pattern`` begins; None where nothing shows it, so that each line is one."""
        is_shown = self.records == "pattern" and any(isinstance(p, str) for p in self.head)
        return re.compile(regex_of(self.head)) if is_shown else None

    def sentences(self, topic: str, *, lost: Collection[str]) -> tuple[str, ...]:
        """What cannot be known of a log in this form that has lost some of :data:`LOSSES`."""
        said = [said.format(what=self.words, topic=topic) for loss, said in LOSSES.items() if loss in lost]
        if not self.is_headed:
            columns = ", ".join(map(str, self.parts))
            said.append(f"{self.words} has no row of names: by their contents, its columns are read as {columns}.")
        if self.n_twice:
            said.append(
                f"{self.words} was probably saved as UTF-8 twice, as by an editor: in its first {HEAD_BYTES >> 10} KiB "
                f"{self.n_twice:,} line{'s' * (self.n_twice > 1)} with characters beyond ASCII, all of them, have "
                "`Ã©` where `é` was, or the like. The texts and binary values of such messages are wrong then. Restore "
                "it first: iconv -f UTF-8 -t CP1252 (or LATIN1) DUMP > RESTORED. Where it has `\ufffd`, bytes are lost:"
                " dump the topic again."
            )
        return tuple(said)


CAPTURE = "capture"
CONNECT = "connect"
"""A folder of files whose names show where their messages are, in any form."""
FORMS: Mapping[str, str] = {
    "kcat": "A dump of kcat -J",
    "kcat-format": "A dump with a format (kcat -f and the like)",
    "console": "A dump of kafka-console-consumer",
    "values": "A file of values",
    "objects": "A file of JSON objects",
    "csv": "A CSV export",
    "lengths": "A file of values with their lengths",
    "printed": "A file of printed records",
    "segment": "A print of kafka-dump-log",
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


# Fields: what tools call them, how they are written.


def role_of(name: str) -> Role | None:
    """Which part of a message a field is."""
    return NAMES.get(_bare(name))


def _bare(name: str) -> str:
    bare = re.sub(r"[\s_.@-]", "", name).lower()
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
    placed = "offset" in roles and ("partition" in roles or {"value", "timestamp"} <= roles.keys())
    alone = "value" in roles and all(role_of(n) for n in names)
    return alone or (placed and bool({"value", "key", "timestamp"} & roles.keys()))


_BASE64 = re.compile(r"(?:[A-Za-z0-9+/]{4})*(?:[A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?")


def is_base64(text: str) -> bool:
    """Whether a text can be base64 as a capture file has it."""
    return bool(_BASE64.fullmatch(text))


_CODED: Mapping[Coding, re.Pattern[str]] = {
    # before base64, whose alphabet has all its digits; a page puts blanks between
    "hex": re.compile(r"[0-9a-fA-F]{2}(?: ?[0-9a-fA-F]{2})*"),
    "python": re.compile(r"""b'.*'|b".*\"""", re.DOTALL),
    "base64": _BASE64,
    "base64-any": re.compile(r"(?:(?:[\w+/-][\r\n]*){4})*(?:(?:[\w+/-][\r\n]*){2,3}={0,2})?[\r\n]*", re.ASCII),
}


any_base64 = _CODED["base64-any"].fullmatch


def coding_of(texts: Sequence[str]) -> Coding:
    """How most of some values are written; a few hexadecimal digits may be base64 or a text."""
    some = [c for c, written in _CODED.items() if 3 * sum(map(bool, map(written.fullmatch, texts))) > 2 * len(texts)]
    if some[:1] == ["hex"] and max(map(len, texts)) < 24:
        some = some[1:]
    if some[:1] == ["base64"] and any(re.search("[-_]", text) and any_base64(text) for text in texts):
        some = some[1:]
    return some[0] if some else "text"


def codings_of(values: Sequence[str], keys: Sequence[str]) -> tuple[Coding, Coding]:
    """How values and keys are written, as :attr:`Form.coding` and :attr:`Form.key_coding`."""
    coding = coding_of(values)
    return coding, coding_of_keys(keys, coding)


def coding_of_keys(keys: Sequence[str], of_values: Coding) -> Coding:
    """How keys are written beside values: ``user1001`` is a text that can be base64, so what it would mean decides."""
    coding = coding_of(keys) if keys else of_values
    if not keys or coding in ("text", "python"):
        return coding
    contents = [decoded(key, coding) for key in keys if _CODED[coding].fullmatch(key)]
    is_padded = coding.startswith("base64") and any(key.endswith("=") for key in keys)
    are_alike = coding == of_values and (is_padded or all(c.isascii() and c.decode().isprintable() for c in contents))
    return coding if are_alike or all(c.startswith(OF_VALUES) for c in contents) else "text"


def decoded(text: str, coding: Coding) -> bytes:
    """The bytes of a text; ValueError or SyntaxError where it is not written so."""
    if coding == "base64-any":
        text = "".join(text.split()).translate(_OF_URLS).rstrip("=")
        text += "=" * (-len(text) % 4)
    if coding in ("base64", "base64-any"):
        return b64decode(text, validate=True)
    return bytes.fromhex(text) if coding == "hex" else bytes(literal_eval(text))


_OF_URLS = str.maketrans("-_", "+/")


def texts_of(records: Sequence[Mapping[str, Any]], names: Mapping[Any, str]) -> tuple[list[str], list[str]]:
    """The texts among the values and among the keys of some records, in which they have these ``names``."""
    values, keys = (
        [text for r in records if role in names and isinstance(text := r.get(names[role]), str) and text]
        for role in ("value", "key")
    )
    return values, keys


def cells_in(lines: Iterable[str], *, between: str = ",", most: int, is_escaped: bool = False) -> Reader:
    """Rows of CSV whose cells have at most so many characters: the limit is the process's, so it only grows."""
    csv.field_size_limit(max(most, csv.field_size_limit()))
    return csv.reader(lines, delimiter=between, doublequote=not is_escaped, escapechar="\\" if is_escaped else None)


_STATUS = re.compile(
    rb"(?:% Reached end of topic [\w.-]+ \[\d+\] at offset \d+(?:: exiting)?\r?\n"
    rb"|%[0-7]\|\d+\.\d+\|[A-Z_]+\|[^\n]*#consumer-[^\n]*[^}\n]\n"  # librdkafka
    rb"|%(?<=\n%) (?:Auto-selecting|Waiting for group|Group|Reading configuration) [^\n]*\n"
    rb"|\[\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d{3}\] [A-Z]{4,5} [^\n]*\([\w.$]+\)\r?\n)+"  # log4j
)
_STATUS_MOST = 1 << 14
_NOISE = re.compile(
    rb"\n(?=[^{\n])(?:(?:SLF4J: [^\n]*|(?:OpenJDK|Java HotSpot\(TM\)) [^\n]* warning: [^\n]*"  # Java, of any tool
    rb"|(?:\^C)?Processed a total of \d+ messages"
    rb"|(?:Starting Kafka Consumer\.|(?:\^C)?Stopping Consumer\.|% Headers: )[^\n]*"  # Confluent's command line
    rb"|`{3}\w*"  # fences of Markdown
    rb"|-{5} got message -{5}|\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d,\d{3}[+-]\d{4} \[[^\n{]*"  # pulsar-client
    rb"|\d\d:\d\d:\d\d,\d{3} (?:DEBUG|INFO|WARN|ERROR) [^\n{]*|Using kafka version: [^\n]*"  # Maxwell
    rb"|(?:\[?[\w.-]+@[\w.-]+[: ][^\n{\]#$]*\]?|(?:ba)?sh-\d[\d.]*)[#$] ?[^\n{]*"  # a shell's prompt, and a client's
    rb"|\$ (?:[\w./-]*kafka|kcat|docker|kubectl)[^\n{]*|(?:mysql|(?:MySQL|MariaDB) \[[^\]\n]*\])> [^\n]*)\r?\n)+"
)
"""Whole lines that a tool, or the terminal that a dump was copied from, has between records."""


def without_status(chunks: Iterable[bytes], *, keeps_lines: bool, is_text: bool = True) -> Iterator[bytes]:
    """A dump without the lines that its tool wrote to stderr and a shell into the same file, also in mid-record.

    No record of JSON contains such a line: a line feed in it is escaped, and it ends with a brace. ``keeps_lines``:
    leave empty lines between records for stderr's, where the number of a line is an offset; :func:`n_lines` does so.
    Without ``is_text`` a value may have a line of a terminal in a text of its own, so such lines are left.
    """
    held, before = b"", b"\n"
    for chunk in chunks:
        text = before + held + chunk
        if b"% " in text or b"#consumer-" in text or b"] " in text:
            text = _STATUS.sub(lambda m: b"\n" * (keeps_lines and not _is_within(m) and m[0].count(b"\n")), text)
        text = _NOISE.sub(b"\n", text) if is_text else text
        line = max(1, text.rfind(b"\n") + 1, len(text) - _STATUS_MOST)
        cut = min((at for sign in (b"%", b"[") if (at := text.find(sign, line)) >= 0), default=len(text))
        cut = line if text[line - 1 : line] == b"\n" and text[line : line + 1] not in (b"{", b"") else cut
        held, text = text[cut:], text[1:cut]
        before = text[-1:] or before
        yield text
    yield b"" if is_text and before == b"\n" and is_of_terminal(held) else held


def is_of_terminal(line: bytes) -> bool:
    """Whether a line is one between records, which a tool or the terminal wrote."""
    return _NOISE.fullmatch(b"\n" + line.removesuffix(b"\n") + b"\n") is not None


def _is_within(m: re.Match[bytes]) -> bool:
    """Whether what a tool wrote to stderr lies in mid-record."""
    return m.start() > 0 and m.string[m.start() - 1] != 10


def n_lines(text: bytes, *, is_text: bool) -> int:
    """How many lines of a dump end in some bytes that begin with a line, without what a tool or a terminal wrote."""
    written = sum(m[0].count(b"\n") for m in _STATUS.finditer(text) if _is_within(m))
    between = _NOISE.finditer(b"\n" + text) if is_text else ()
    return text.count(b"\n") - written - sum(m[0].count(b"\n") - 1 for m in between)


def is_interrupted(text: bytes) -> bool:
    """Whether some bytes end with such lines in mid-record, so that a record continues behind them."""
    found = _STATUS.finditer(text, max(0, len(text) - _STATUS_MOST))
    return any(m.end() == len(text) and _is_within(m) for m in found)


TOKENS: Mapping[str, bytes] = {
    "topic": rb"[\w.-]+", "partition": rb"-?\d+", "offset": rb"-?\d+", "timestamp": rb"-?\d+",
    "console_time": rb"(?:(?:CreateTime|LogAppendTime):-?\d+|NO_TIMESTAMP)",
    "key_length": rb"-?\d+", "value_length": rb"-?\d+", "value_length4": rb"(?s:.{4})", "ignored": rb"-?\w*",
    "pairs": rb"[^\]\n]*",
    "headers": rb"(?s:.*?)", "key": rb"(?s:.*?)", "value": rb"(?s:.*)",
}  # fmt: skip
"""What each field of a pattern looks like."""
OPEN = frozenset({"headers", "key", "value"})
"""Fields that can be any text."""


def regex_of(parts: Iterable[str | bytes]) -> bytes:
    """What some parts of a pattern look like, each field as a group of its name."""
    return b"".join(
        re.escape(p) if isinstance(p, bytes)
        else TOKENS[p] if p in ("ignored", "pairs")
        else b"(?P<%s>%s)" % (p.encode(), TOKENS[p])
        for p in parts
    )  # fmt: skip


_ESCAPES = {"n": b"\n", "t": b"\t", "r": b"\r", "0": b"\0", "\\": b"\\"}


def unescaped(text: str) -> bytes:
    r"""An option's text with ``\n``, ``\t``, ``\xHH`` as bytes."""

    def meant(m: re.Match[str]) -> str:
        return bytes([int(m[1], 16)]).decode("latin-1") if m[1] else _ESCAPES.get(m[2], m[0].encode()).decode("latin-1")

    return re.sub(r"\\(?:x([0-9a-fA-F]{2})|(.))", meant, text.encode().decode("latin-1")).encode("latin-1")


# Words of a refusal.


def shown(head: bytes, most: int = 60) -> str:
    """The first bytes of something, for people."""
    return repr(head[:most].decode("utf-8", "backslashreplace")) + (", .." if len(head) > most else "")


OF_VALUES = (b"{", b"\0\0\0\0", b"\1{", b"\2", b"\3")
"""JSON, framed or open-protocol, and DDL and watermarks of avro."""


def chained_at(data: bytes, at: int, *, least: int = 3) -> bool:
    """Whether some values with their lengths lie at a place, or fewer up to the end of the data."""
    for n in range(least):
        if at >= len(data):
            return n > 1 or (n == 1 and at == len(data))
        size = int.from_bytes(data[at : at + 4], "big", signed=True)
        if size != -1 and not (8 <= size < 1 << 27 and data[at + 4 : at + 8].startswith(OF_VALUES)):
            return False
        at += 4 + max(size, 0)
    return True


def next_chain(data: bytes, at: int, end: int | None = None) -> int | None:
    """The first place from ``at`` on where :func:`chained_at` is true."""
    places = re.compile(rb"(?=\0...(?:\{|\0{4}|\x01\{|[\x02\x03]))", re.DOTALL).finditer(
        data, at, len(data) if end is None else end + 8
    )
    return next((found.start() for found in places if chained_at(data, found.start())), None)


# Names of files that Kafka Connect's sinks write.

_USUAL = re.compile(r"(?P<topic>[\w.-]+)\+(?P<partition>\d+)\+(?P<offset>\d+)(?:\+\d+)?(?:\.\w+)*")
_AIVEN = re.compile(
    r"(?P<topic>[\w.-]+)-(?P<partition>\d+)-(?P<offset>\d+)(?:\.(?:gz|json|jsonl|csv|txt|parquet|avro|bin))*"
)
_DATE = re.compile(r"(?:19|20)\d\d-\d\d(?:-\d\d)?(?:\D|$)")


@dataclass(frozen=True, slots=True)
class Named:
    """The place of a file's first message, by its name."""

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
    """What a file of Kafka Connect shares with the files of its keys and headers, and which of them it is, if any."""
    name = PurePath(file).name
    found = _BESIDE.fullmatch(name)
    stem = str(PurePath(file).with_name(name.partition(f".{found['what']}." if found else ".")[0]))
    return stem, None if found is None else "key" if found["what"] == "keys" else "headers"


def named_place(file: str) -> Named | None:
    """The content of the name of a file that Kafka Connect wrote; None for other names."""
    name = PurePath(file).name
    found = _USUAL.fullmatch(name) or (None if _DATE.search(name) else _AIVEN.fullmatch(name))
    if found is None or int(found["partition"]) >= 1 << 31 or int(found["offset"]) >= 1 << 62:
        return None
    return Named(found["topic"], int(found["partition"]), int(found["offset"]))

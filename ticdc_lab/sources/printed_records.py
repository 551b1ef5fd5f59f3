"""Messages that a program printed: ``print`` of a client's ConsumerRecord, and ``kafka-dump-log`` of a broker's file.

The second one prints text with the lengths of what the bytes were, so bytes that are no UTF-8 are seen to be lost.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

import orjson

from ticdc_lab.sources.dump_messages import Bad, DumpedMessage, Record, Unread, number_of, timestamp_ms, topic_of

_OF_JAVA = re.compile(
    rb"ConsumerRecord\(topic = ([\w.-]+), partition = (\d+),.*? offset = (\d+), \w+ = (-?\d+),.*?"
    rb"isReadOnly = \w+\), key = (.*?), value = (.*)\)\s*",
    re.DOTALL,
)


def printed_in(lines: Iterator[tuple[bytes, int]], bound: int, passed: int) -> Iterator[Record]:
    """Records of lines, and of lines longer than the bound their lengths; so many lines were passed before."""
    for line, (text, too_long) in enumerate(lines, start=passed + 1):
        if too_long:
            yield too_large(too_long, bound, line)
        elif not text.strip():
            yield None
        else:
            try:
                yield _printed(text[max(text.find(b"ConsumerRecord("), 0) :].strip())
            except Unread as error:
                yield Bad(error.code, f"line {line}: {error}", text)


def _printed(text: bytes) -> DumpedMessage:
    if found := _OF_JAVA.fullmatch(text):
        key, value = (None if of == b"null" else of for of in found.groups()[4:])
        if any(of and re.fullmatch(rb"\[B@[0-9a-f]+", of) for of in (key, value)):
            raise Unread("no-value", "Java printed where the bytes lie ([B@..), not the bytes")
        topic, partition, offset, time = (of.decode() for of in found.groups()[:4])
        return DumpedMessage(topic, int(partition), int(offset), timestamp_ms(time), key, value)
    try:
        call = ast.parse(text.decode("utf-8", "surrogateescape"), mode="eval").body
        if not isinstance(call, ast.Call):
            raise ValueError
        fields = {of.arg: ast.literal_eval(of.value) for of in call.keywords}
    except (ValueError, SyntaxError, RecursionError, MemoryError):
        raise Unread("no-record", f"begins with {beginning(text)}; expected a whole ConsumerRecord(..)") from None
    if "value" not in fields:
        raise Unread("missing-field", "no `value` in ConsumerRecord(..)")
    key, value = (
        of.encode("utf-8", "surrogateescape") if isinstance(of, str)
        else of if isinstance(of, bytes | None)
        else orjson.dumps(of)
        for of in (fields.get("key"), fields["value"])
    )  # fmt: skip
    headers = tuple((str(name), of) for name, of in fields.get("headers") or ())
    return DumpedMessage(
        topic_of(fields.get("topic")),
        number_of(fields.get("partition"), "partition", (1 << 31) - 1),
        number_of(fields.get("offset"), "offset", (1 << 63) - 1),
        timestamp_ms(fields.get("timestamp")), key, value, headers,
    )  # fmt: skip


OF_SEGMENT = re.compile(rb"(?:Dumping \S|(?:\| )?offset: \d+ .*?[kK]ey[sS]ize: -?\d+ [vV]alue[sS]ize: -?\d+ )")
"""How a line begins that names the broker's file, or that is a message of it."""
_HEADER = 61
"""Bytes of a batch of messages before the first one."""


def is_segment(head: bytes) -> bool:
    """Whether bytes are a broker's own file of messages: a batch of the format that Kafka has written since 0.11."""
    size = int.from_bytes(head[8:12], "big", signed=True)
    small = head[:4] == bytes(4) and head[21:22] == b"\0"  # its first offset, where others write a length; attributes
    return small and len(head) >= _HEADER and head[16] == 2 and size >= _HEADER - 12


_FILE = re.compile(rb"Dumping (?:.*/)?([\w.-]+)-(\d+)/\d+\.log\s*")
_MESSAGE = re.compile(
    rb"(?:\| )?offset: (\d+) (?:.*?)(?:CreateTime|LogAppendTime): (-?\d+) (?:.*?)[kK]ey[sS]ize: (-?\d+) "
    rb"[vV]alue[sS]ize: (-?\d+) .*?headerKeys: \[[^\]]*\]"
)
_OTHERS = re.compile(rb"(?:Log starting|Starting|First) offset: |baseOffset: |\s*\Z")


def segment_in(lines: Iterator[tuple[bytes, int]], bound: int, passed: int) -> Iterator[Record]:
    """As :func:`printed_in`, of ``kafka-dump-log --print-data-log``, of one file of a broker or of several."""
    topic, partition, held, begun = None, None, b"", 0
    for line, (text, too_long) in enumerate(lines, start=passed + 1):
        if held:
            if too_long or OF_SEGMENT.match(text) or len(held) > bound:
                yield Bad("no-record", f"line {begun}: fewer bytes than keySize and valueSize say", held)
                held = b""
            else:  # a value with a line feed
                text = held + b"\n" + text
        if too_long:
            yield too_large(too_long, bound, line)
        elif found := _FILE.fullmatch(text):
            topic, partition = found[1].decode(), int(found[2])
        elif (head := _MESSAGE.match(text)) is None:
            if not _OTHERS.match(text) and not text.startswith(b"Dumping "):
                yield Bad("no-record", f"line {line}: begins with {beginning(text)}; expected `| offset: N ..`", text)
        elif text[head.end() :].startswith(b" endTxnMarker: "):
            continue
        else:
            begun = begun if held else line
            try:
                key, value = _sized(text.rstrip(b"\r"), head)
                time = int(head[2])  # -1 for none
                yield DumpedMessage(topic, partition, int(head[1]), time if time >= 0 else None, key, value)
            except EOFError:
                held = text
                continue
            except Unread as error:
                yield Bad(error.code, f"line {begun}: {error}", text)
        held = b""
    if held:
        yield Bad("no-record", f"line {begun}: fewer bytes than keySize and valueSize say", held)


def _sized(text: bytes, head: re.Match[bytes]) -> tuple[bytes | None, bytes | None]:
    """Key and value behind their lengths; :class:`EOFError` where bytes are still to come."""
    found, at = list[bytes | None](), head.end()
    for word, size in ((b" key: ", int(head[3])), (b" payload: ", int(head[4]))):
        if size < 0:
            found.append(None)
            continue
        if not text.startswith(word, at):
            if b"\xef\xbf\xbd" in text:
                raise Unread("not-utf8", "the bytes were printed as text, and what is no UTF-8 was replaced")
            raise Unread("no-value", f"no `{word.decode().strip()}`; print it with --print-data-log")
        at += len(word)
        if len(text) < at + size:
            raise EOFError
        found.append(text[at : at + size])
        at += size
    if text[at:].strip():
        raise Unread("not-utf8", "the bytes were printed as text, and what is no UTF-8 was replaced")
    return found[0], found[1]


# What both say.


def too_large(found: int, bound: int, line: int) -> Bad:
    """A line that is longer than the bound."""
    return Bad("too-large", f"line {line}: {found:,} bytes: expected at most {bound:,} (bound `line`)", b"")


def beginning(text: bytes) -> str:
    """How some bytes begin, for people."""
    return repr(text[:40].decode("utf-8", "backslashreplace"))

"""Messages that a program printed: a ConsumerRecord, a dict or a tuple, and ``kafka-dump-log`` a broker's file.

The second one prints text with the lengths of what the bytes were, so bytes that are no UTF-8 are seen to be lost.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from ticdc_lab.sources.column_detection import literal
from ticdc_lab.sources.dump_messages import Bad, DumpedMessage, Record, Unread, message_of, plain, timestamp_ms
from ticdc_lab.sources.forms import Form

_OF_JAVA = re.compile(
    rb"ConsumerRecord\(topic = ([\w.-]+), partition = (\d+),.*? offset = (\d+), \w+ = (-?\d+),.*?"
    rb"isReadOnly = \w+\), key = (.*?), value = (.*)\)\s*",
    re.DOTALL,
)
OF_SEGMENT = re.compile(rb"(?:Dumping \S|(?:\| )?offset: \d+ .*?[kK]ey[sS]ize: -?\d+ [vV]alue[sS]ize: -?\d+ )")
"""How a line begins that names the broker's file, or that is a message of it."""
_FILE = re.compile(rb"Dumping (?:.*/)?([\w.-]+)-(\d+)/\d+\.log\s*")
_MESSAGE = re.compile(
    rb"(?:\| )?offset: (\d+) (?:.*?)(?:CreateTime|LogAppendTime): (-?\d+) (?:.*?)[kK]ey[sS]ize: (-?\d+) "
    rb"[vV]alue[sS]ize: (-?\d+) .*?headerKeys: \[[^\]]*\]"
)
_OTHERS = re.compile(rb"(?:Log starting|Starting|First) offset: |baseOffset: |\s*\Z")
_HEADER = 61
"""Bytes of a batch of messages before the first one."""


def printed_in(lines: Iterator[tuple[bytes, int]], form: Form, bound: int, passed: int) -> Iterator[Record]:
    """Records of lines, each what print() shows of a record, of a dict or of a tuple."""
    for line, (text, too_long) in enumerate(lines, start=passed + 1):
        if too_long:
            yield too_large(too_long, bound, line)
        elif not text.strip():
            yield None
        else:
            try:
                yield _printed(text[max(text.find(b"ConsumerRecord("), 0) :].strip(), form)
            except Unread as error:
                yield Bad(error.code, f"line {line}: {error}", text)


def _printed(text: bytes, form: Form) -> DumpedMessage:
    if found := _OF_JAVA.fullmatch(text):
        key, value = (None if of == b"null" else of for of in found.groups()[4:])
        if any(of and re.fullmatch(rb"\[B@[0-9a-f]+", of) for of in (key, value)):
            raise Unread("no-value", "Java printed where the bytes lie ([B@..), not the bytes")
        topic, partition, offset, time = (of.decode() for of in found.groups()[:4])
        return DumpedMessage(topic, int(partition), int(offset), timestamp_ms(time), key, value)
    fields = literal(text)
    if text.startswith(b"ConsumerRecord("):
        try:
            call = ast.parse(text.decode("utf-8", "surrogateescape"), mode="eval").body
            fields = (
                {of.arg: ast.literal_eval(of.value) for of in call.keywords} if isinstance(call, ast.Call) else None
            )
        except (ValueError, SyntaxError, TypeError, RecursionError, MemoryError):
            fields = None
        if fields and "value" not in fields:
            raise Unread("missing-field", "no `value` in ConsumerRecord(..)")
    if isinstance(fields, tuple) and len(fields) == len(form.parts):
        fields = dict(zip(form.parts, fields, strict=True))
    if not isinstance(fields, dict):
        expected = (
            f"a whole tuple of {len(form.parts)}" if len(form.parts) > 1 else "a whole ConsumerRecord(..) or dict"
        )
        raise Unread("no-record", f"begins with {beginning(text)}; expected {expected}")
    if form.parts == ("value",):
        fields = {"value": fields}
    return message_of({name: plain(value) for name, value in fields.items()}, form)


def is_segment(head: bytes) -> bool:
    """Whether bytes are a broker's own file of messages: a batch of the format that Kafka has written since 0.11."""
    size = int.from_bytes(head[8:12], "big", signed=True)
    small = head[:4] == bytes(4) and head[21:22] == b"\0"  # its first offset, where others write a length; attributes
    return small and len(head) >= _HEADER and head[16] == 2 and size >= _HEADER - 12


def segment_in(lines: Iterator[tuple[bytes, int]], bound: int, passed: int) -> Iterator[Record]:
    """As :func:`printed_in`, of ``kafka-dump-log --print-data-log``, of one file of a broker or of several."""
    topic, partition, held, begun = None, None, list[bytes](), 0
    size = expected = 0
    for line, (text, too_long) in enumerate(lines, start=passed + 1):
        if held:
            if too_long or OF_SEGMENT.match(text) or size > bound:
                yield Bad("no-record", f"line {begun}: fewer bytes than keySize and valueSize say", b"\n".join(held))
                held = []
            else:  # a value with a line feed
                held.append(text)
                size += 1 + len(text)
                if size < expected:
                    continue
                text = b"\n".join(held)
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
            except EOFError as error:
                held, size, expected = [text], len(text), error.args[0]
                continue
            except Unread as error:
                yield Bad(error.code, f"line {begun}: {error}", text)
        held = []
    if held:
        yield Bad("no-record", f"line {begun}: fewer bytes than keySize and valueSize say", b"\n".join(held))


def _sized(text: bytes, head: re.Match[bytes]) -> tuple[bytes | None, bytes | None]:
    """Key and value behind their lengths; :class:`EOFError` with the size of the text where bytes are still to come."""
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
            raise EOFError(at + size)
        found.append(text[at : at + size])
        at += size
    if text[at:].strip():
        raise Unread("not-utf8", "the bytes were printed as text, and what is no UTF-8 was replaced")
    return found[0], found[1]


# Common to both.


def too_large(found: int, bound: int, line: int) -> Bad:
    """A line that is longer than the bound."""
    return Bad("too-large", f"line {line}: {found:,} bytes: expected at most {bound:,} (bound `line`)", b"")


def beginning(text: bytes) -> str:
    """How some bytes begin, for people."""
    return repr(text[:40].decode("utf-8", "backslashreplace"))

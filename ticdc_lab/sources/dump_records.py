"""The records of a dump: objects, lines, patterns and rows of a stream, each a message or what is wrong with it."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress

from ticdc_lab.sources.dump_messages import (
    Bad,
    DumpedMessage,
    Record,
    Unread,
    contents,
    is_framed,
    message_of,
    number_of,
    timestamp_ms,
    topic_of,
)  # fmt: skip
from ticdc_lab.sources.forms import Form, chained_at, decoded, next_chain, regex_of, without_status
from ticdc_lab.sources.json_objects import TOO_LARGE, BadJson, fields_of, is_json, objects_in
from ticdc_lab.sources.printed_records import beginning, printed_in, segment_in, too_large
from ticdc_lab.sources.row_records import of_csv


def records_in(chunks: Iterator[bytes], form: Form, bound: int, passed: int) -> Iterator[Record]:
    """Records of a stream, before which so many lines of its file were passed."""
    if form.records == "none":
        return iter(())
    if form.records == "objects":
        return _of_objects(chunks, form, bound, passed)
    if form.records == "csv":
        return of_csv(lines_in(chunks, b"\n", bound), form, bound)
    if form.records == "printed":
        return printed_in(lines_in(chunks, b"\n", bound), form, bound, passed)
    if form.records == "segment":
        return segment_in(lines_in(chunks, b"\n", bound), bound, passed)
    if form.is_measured:
        return _measured(chunks, form, bound)
    if form.records == "pattern":
        return _patterned(chunks, form, bound, passed)
    return _of_lines(chunks, form, bound, passed)


# JSON objects.


def _of_objects(chunks: Iterator[bytes], form: Form, bound: int, passed: int) -> Iterator[Record]:
    pieces = objects_in(
        chunks, bound=bound, one_a_line=form.separator == b"\n", opening=form.opening, first_line=passed + 1,
        depth=form.depth,
    )  # fmt: skip
    for text, line, fault, size in pieces:
        if fault:
            most = f"; expected at most {bound:,} (bound `line`)" if fault == TOO_LARGE else ""
            yield Bad(fault, f"line {line}: {size:,} bytes are no whole JSON object{most}", text)
            continue
        try:
            if form.parts:
                yield DumpedMessage(value=None if text == b"null" else _value_of_line(text, form))
            else:
                yield message_of(fields_of(text), form)
        except BadJson as error:
            yield Bad("bad-json", f"line {line}: {error}", text)
        except Unread as error:
            yield Bad(error.code, f"line {line}: {error}", text)


# Lines: a value each.

_LAST_LINE = re.compile(rb"Processed a total of \d+ messages?\s*")
"""What kafka-console-consumer prints when it is stopped."""


def lines_in(chunks: Iterator[bytes], separator: bytes, bound: int) -> Iterator[tuple[bytes, int]]:
    """Records between separators; of one longer than ``bound`` no bytes, but its length."""
    held, size = list[bytes](), 0
    for chunk in chunks:
        if len(separator) > 1 and held:  # a separator may lie across two chunks
            chunk = held.pop() + chunk
            size -= len(chunk)
            size = max(size, 0)
        first, *others = chunk.split(separator)
        for text in others:
            whole = size + len(first)
            yield (b"".join((*held, first)), 0) if whole <= bound else (b"", whole)
            held, size, first = [], 0, text
        held.append(first)
        size += len(first)
        if size > bound:
            held = [b""]
    rest = b"".join(held)
    if rest or size > bound:
        yield (rest, 0) if size <= bound else (b"", size)


def joined_lines(lines: Iterable[tuple[bytes, int]], width: int, bound: int) -> Iterator[tuple[bytes, int, int]]:
    """Values in base64 that continue in the next line after so many characters, and the numbers of their last lines.

    A shorter line ends one, and so do padding and the end of JSON, whose last line may be full.
    """
    held, line = b"", 0
    for line, (text, too_long) in enumerate(lines, start=1):
        text = text.strip()
        held += text
        if too_long or len(text) != width or text.endswith(b"=") or _is_whole(held):
            yield held, too_long, line
            held = b""
        elif len(held) > bound:
            yield b"", len(held), line
            held = b""
    if held:
        yield held, 0, line


def _is_whole(coded: bytes) -> bool:
    """Whether base64 ends with the last brace of JSON."""
    with suppress(ValueError):
        ends = decoded(coded[-4:].decode("latin-1"), "base64-any").endswith(b"}")
        return ends and is_json(decoded(coded.decode("latin-1"), "base64-any"))
    return False


def _of_lines(chunks: Iterator[bytes], form: Form, bound: int, passed: int) -> Iterator[Record]:
    lines = lines_in(chunks, form.separator, bound)
    each = joined_lines(lines, form.width, bound) if form.width else ((*one, n) for n, one in enumerate(lines, start=1))
    for text, too_long, n in each:
        line = passed + n
        if too_long:
            yield too_large(too_long, bound, line)
            continue
        text = text.strip(b"\r")
        if not text.strip() or _LAST_LINE.fullmatch(text):
            yield None
        elif text == form.null:
            yield DumpedMessage()
        else:
            try:
                yield DumpedMessage(value=_value_of_line(text, form))
            except Unread as error:
                yield Bad(error.code, f"line {line}: {error}", text)


def _value_of_line(text: bytes, form: Form) -> bytes | None:
    if text[:1] == text[-1:] == b'"' and len(text) > 1:
        try:
            return contents(None, fields_of(b'{"value":' + text + b"}")["value"], form)[1]
        except BadJson:
            raise Unread("bad-json", "a text in quotes that is no JSON") from None
    return contents(None, text.decode("latin-1"), form)[1]


# Patterns: fields with text between them.

_CHUNK = 1 << 20


def _patterned(chunks: Iterator[bytes], form: Form, bound: int, passed: int) -> Iterator[Record]:
    """Records that begin as the pattern does and last until the next one: a value may contain line feeds."""
    whole = re.compile(regex_of(form.body), re.DOTALL)
    head = form.beginning
    inside = head if len([p for p in form.head if isinstance(p, str)]) > 1 else None
    held: list[bytes] = []
    begun = size = 0

    def flush() -> Iterator[Record]:
        if held:
            yield from _by_pattern(form.separator.join(held), begun, whole, inside, form)

    for line, (text, too_long) in enumerate(lines_in(chunks, form.separator, bound), start=passed + 1):
        if too_long:
            yield from flush()
            held = []
            yield too_large(too_long, bound, line)
        elif form.name == "console" and _LAST_LINE.fullmatch(text):
            yield from flush()
            held = []
        elif head is None and 0 < len(held) <= form.n_within:
            held.append(text)
        elif head is None or head.match(text) or not held or size + len(text) > bound or _is_begun(text, form, held):
            yield from flush()
            held, begun, size = [text], line, len(text)
        else:
            held.append(text)
            size += len(text)
    yield from flush()


_BEGINNINGS = (b"CreateTime:", b"LogAppendTime:", b"NO_TIMESTAMP")


def _is_begun(text: bytes, form: Form, held: list[bytes]) -> bool:
    """Whether what does not begin as a record is one all the same, with its rest cut."""
    first = form.parts[0]
    begins = (first,) if isinstance(first, bytes) else _BEGINNINGS if first == "console_time" else ()
    if any(text.startswith(b) or b.startswith(text) for b in begins if text):
        return True
    return len(held) == 1 and is_json(held[0][held[0].find(b"{") :])


def _by_pattern(
    text: bytes, line: int, whole: re.Pattern[bytes], inside: re.Pattern[bytes] | None, form: Form
) -> Iterator[Record]:
    found = whole.fullmatch(text)
    value = text if found is None else found.groupdict().get("value") or b""
    head = form.beginning.match(text) if inside and form.beginning else None
    is_whole = is_json(value) or (len(value) > 8 and is_framed(value))
    if not is_whole and not form.is_text:  # what proves that no byte is missing proves which lines are none of it
        clean = b"".join(without_status([text], keeps_lines=False)).removesuffix(b"\n")
        again = whole.fullmatch(clean) if len(clean) < len(text) else None
        if not clean or (again is not None and len(again["value"]) > 8 and is_framed(again["value"])):
            yield from _by_pattern(clean, line, whole, inside, form) if clean else ()
            return
    other = inside.search(text, head.end() if head else 1) if inside and not is_whole else None
    if other is not None:  # a dump was cut, and another one follows it in the same line
        yield Bad(
            "unfinished", f"line {line}: a record of {other.start():,} bytes ends in the middle", text[: other.start()]
        )
        yield from _by_pattern(text[other.start() :], line, whole, inside, form)
    elif found is None:
        yield Bad("no-record", f"line {line}: begins with {beginning(text)}; expected {_pattern_words(form)}", text)
    else:
        try:
            yield _of_groups(found.groupdict(), form)
        except Unread as error:
            yield Bad(error.code, f"line {line}: {error}", text)


def _pattern_words(form: Form) -> str:
    return "".join(
        p.decode("utf-8", "backslashreplace") if isinstance(p, bytes) else f"<{p}>" for p in form.parts
    ).strip()


def _of_groups(groups: Mapping[str, bytes | None], form: Form) -> DumpedMessage:
    key, value = groups.get("key"), groups.get("value")
    if (
        key is not None
        and value is not None
        and form.between
        and form.between in value
        and not is_json(value)
        and (
            form.null is not None or value[:1] >= b" "  # a binary value of kcat -f begins where it was cut
        )
    ):
        key, value = _split_again(key + form.between + value, form.between)
    key, value = contents(_text(_nothing(key, form)), _text(_nothing(value, form)), form)
    time = groups.get("console_time") or groups.get("timestamp")
    number = re.search(rb"-?\d+", time)[0] if time and re.search(rb"-?\d+", time) else None  # type: ignore[index]
    return DumpedMessage(
        None if groups.get("topic") is None else topic_of(groups["topic"].decode("latin-1")),  # type: ignore[union-attr]
        number_of(_text(groups.get("partition")), "partition", (1 << 31) - 1),
        number_of(_text(groups.get("offset")), "offset", (1 << 63) - 1),
        None if number is None else timestamp_ms(_text(number)),
        key,
        value,
        _listed(groups.get("headers"), form),
    )


def _text(value: bytes | None) -> str | None:
    return None if value is None else value.decode("latin-1")


def _nothing(value: bytes | None, form: Form) -> bytes | None:
    """None for the word of a form for null; where it has none, for an empty text."""
    return None if value is None or value == (form.null or b"") else value


def _split_again(text: bytes, between: bytes) -> tuple[bytes, bytes]:
    """Key and value where either may hold what separates them: only one place may make sense."""
    fields = text.split(between)
    splits = [(between.join(fields[:i]), between.join(fields[i:])) for i in range(1, len(fields))]
    measured = [s for s in splits if len(s[1]) > 8 and is_framed(s[1])]  # a length may have the separator as a byte
    whole = [s for s in splits if is_json(s[1]) or s[1] == b"null"]
    framed = [s for s in splits if s[1][:1] == b"\0"]  # as open-protocol and Confluent's registry begin
    for found in (measured, whole, framed):
        if len(found) == 1:
            return found[0]
    raise Unread(
        "ambiguous-separator",
        f"{len(fields) - 1} separators {between!r} where 1 was expected, so where the key ends cannot be determined",
    )


def _listed(value: bytes | None, form: Form) -> tuple[tuple[str, bytes | None], ...]:
    if not value or value == b"NO_HEADERS":
        return ()
    sign = b":" if form.null is not None else b"="
    pairs = [one.partition(sign) for one in value.split(form.pairs)]
    return tuple((n.decode("utf-8", "replace"), v) for n, found, v in pairs if found)


def _measured(chunks: Iterator[bytes], form: Form, bound: int) -> Iterator[Record]:
    """Records whose texts have their lengths before them: any bytes may be in them."""
    steps = list(_steps(form.parts))
    first = steps[0][0]
    strong = any(isinstance(p, bytes) for p in form.head)
    is_bare = form.parts == ("value_length4", "value")
    buffer, at, ended = b"", 0, False
    line_feed, before = 1, 0
    while True:
        if len(buffer) - at < _CHUNK and not ended:
            more = next(chunks, None)
            ended, before = more is None, before + at
            buffer, at = buffer[at:] + (more or b""), 0
            continue
        if at >= len(buffer):
            return
        found = _one_measured(buffer, at, steps, bound)
        size = int.from_bytes(buffer[at : at + 4], "big", signed=True)
        can_be = not is_bare or -1 <= size <= bound
        if found is None and can_be and not ended and len(buffer) - at <= bound:
            more = next(chunks, None)
            ended, before = more is None, before + at
            buffer, at = buffer[at:] + (more or b""), 0
            continue
        if found is not None:
            groups, end = found
            follows = end >= len(buffer) or not strong or first.match(buffer, end) is not None
            other = None if follows else first.search(buffer, at + 1, end)
            if other is None and not (is_bare and _is_torn(buffer, at, end, bound)):
                try:
                    yield _of_groups(groups, form)
                except Unread as error:
                    yield Bad(error.code, f"line {line_feed}: {error}", buffer[at:end])
                line_feed += buffer.count(b"\n", at, end)
                at = end
                continue
        else:
            other = first.search(buffer, at + 1) if strong else None
        end = other.start() if other else len(buffer)
        clean = b"" if is_bare else b"".join(without_status([buffer[at:end]], keeps_lines=False))
        if not is_bare and len(clean) < end - at:  # lengths prove that no byte of a message is missing
            again = _one_measured(clean, 0, steps, bound)
            if again is not None and again[1] == len(clean):
                yield _of_groups(again[0], form)
            if not clean or (again is not None and again[1] == len(clean)):
                line_feed += buffer.count(b"\n", at, end)
                at = end
                continue
        if is_bare:
            chain = next_chain(buffer, at + 1)
            end = len(buffer) if chain is None else chain
        said = (
            f"byte {before + at:,}: {end - at:,} bytes are no whole value with its length, and are skipped"
            if is_bare
            else f"line {line_feed}: begins with {beginning(buffer[at:])}, "
            f"and is no whole record of {_pattern_words(form)}"
        )
        yield Bad("unfinished", said, buffer[at : min(end, at + _CHUNK)])
        line_feed += buffer.count(b"\n", at, end)
        at = end


def _is_torn(buffer: bytes, at: int, end: int, bound: int) -> bool:
    """Whether bytes are missing in a value with its length: no length follows it, or other values begin in it."""
    if end + 4 > len(buffer) or chained_at(buffer, end, least=1):
        return False
    follows = -1 <= int.from_bytes(buffer[end : end + 4], "big", signed=True) <= bound
    return next_chain(buffer, at + 1, end) is not None or not (follows or is_json(buffer[at + 4 : end]))


_Step = tuple[re.Pattern[bytes], str]


def _steps(parts: tuple[str | bytes, ...]) -> Iterator[_Step]:
    """What to match, and which field of a known length follows it."""
    waiting: list[str | bytes] = []
    for part in parts:
        known = {"key": ("key_length",), "value": ("value_length", "value_length4")}.get(str(part), ())
        if isinstance(part, str) and any(length in parts[: parts.index(part)] for length in known):
            yield re.compile(regex_of(waiting), re.DOTALL), part
            waiting = []
        else:
            waiting.append(part)
    if waiting:
        yield re.compile(regex_of(waiting), re.DOTALL), ""


def _one_measured(buffer: bytes, at: int, steps: list[_Step], bound: int) -> tuple[dict[str, bytes | None], int] | None:
    groups: dict[str, bytes | None] = {}
    for regex, field in steps:
        found = regex.match(buffer, at)
        if found is None:
            return None
        groups |= found.groupdict()
        at = found.end()
        if field:
            raw = groups.get(f"{field}_length")
            size = int(raw) if raw is not None else int.from_bytes(groups["value_length4"] or b"", "big", signed=True)
            if size > bound or at + max(size, 0) > len(buffer):
                return None
            groups[field] = buffer[at : at + size] if size >= 0 else None
            at += max(size, 0)
    return groups, at

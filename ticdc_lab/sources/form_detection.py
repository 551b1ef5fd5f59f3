"""Which form some bytes are in: the first bytes of a file decide, not its name."""

from __future__ import annotations

import re
from codecs import getincrementaldecoder
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import islice, takewhile

import orjson

from ticdc_lab.errors import SourceError
from ticdc_lab.sources.column_detection import headed_csv, printed, unnamed_csv
from ticdc_lab.sources.dump_records import joined_lines
from ticdc_lab.sources.forms import (
    CAPTURE,
    FORMS,
    LOOKED_AT,
    ROLES,
    Coding,
    Form,
    coding_of,
    coding_of_keys,
    codings_of,
    is_base64,
    is_envelope,
    lost_of,
    next_chain,
    role_of,
    roles_in,
    shown,
    texts_of,
    without_status,
)  # fmt: skip
from ticdc_lab.sources.json_objects import (
    BadJson,
    Value,
    beginning_of,
    fields_of,
    is_json,
    is_ruled,
    objects_in,
    plain_of,
)
from ticdc_lab.sources.pattern_detection import by_format, by_usual_format, codings_in, console
from ticdc_lab.sources.printed_records import OF_SEGMENT, is_segment

OF_CONTAINER = re.compile(
    rb"(?=[\[\w][^{]*? )(?!CreateTime:|LogAppendTime:|NO_TIMESTAMP|Partition:|Offset:)"
    rb"(?:\[pod/[^\]\s]+\] |[\w.]+[-_][\w.-]*\d +\| )?(?:\d{4}-\d\d-\d\dT[\d:.]+(?:Z|[+-]\d\d:?\d\d) )?"
    rb"(?:std(?:out|err) [FP] )?(?=CreateTime:|LogAppendTime:|NO_TIMESTAMP|Partition:|Offset:|\{\")"
)
"""How a line begins to which a container's runtime, kubectl or compose gave a time or a name."""


def form_of(head: bytes, *, kind: str = "auto", options: Mapping[str, str], whole: bool = False) -> Form | None:
    """The form that the first bytes of a file are in, of the name :data:`CAPTURE` for a capture file; None for no dump.

    ``head``: up to :data:`HEAD_BYTES`, inflated. ``kind``: a name of :data:`FORMS`, or ``auto``. ``options``: of
    :data:`OPTIONS`. ``whole``: whether ``head`` is all of the file.
    """
    head = head.removeprefix(b"\xef\xbb\xbf")
    given = {name: options[name] for name in ("topic", "partition") if name in options}
    wanted = _wanted(kind, options)
    if is_segment(head) or OF_CONTAINER.match(head):
        return None
    head = b"".join(without_status([head], keeps_lines=False))
    found = _detected(head, wanted, options, whole)
    if (found is None or found.records in ("lines", "pattern")) and (rest := head.partition(b"\n")[2]):
        other = _detected(rest, wanted, options, whole)  # the first line may be half a record: lines behind it decide
        is_plain = other is not None and (other.coding == "text" or other.name == CAPTURE)
        if other is not None and is_plain and (found is None or other.lost < found.lost):
            found = other
    if found is not None and found.records == "pattern" and not found.is_measured:
        coding, key_coding = codings_in(head, found)
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


def _segment(head: bytes, options: Mapping[str, str], whole: bool) -> Form | None:
    """What kafka-dump-log prints of a broker's file, whose name has topic and partition."""
    lines = [line for line in head.split(b"\n")[:LOOKED_AT] if line.strip()]
    if not any(OF_SEGMENT.match(line) for line in lines[:3]):
        return None
    lost = () if head.startswith(b"Dumping ") else ("topic", "partition")
    return Form("segment", "segment", lost=frozenset(lost), is_utf8=True)


# Objects: kcat -J, rpk, exports of web pages, loops of a client library.

_CAPTURE = {"topic", "partition", "offset"}


_WRAPPERS = frozenset(
    ("record", "records", "message", "messages", "event", "events", "item", "items", "row", "rows", "results", "data")
)
_WRAPPED = re.compile(
    rb'\s*\[?\s*\{(?:\s*"[^"\\]*"\s*:\s*(?:"(?:[^"\\]|\\.)*"|[\w.+-]+)\s*,)*\s*"([^"\\]*)"\s*:\s*\[?\s*(?=\{)'
)
_OF_ROWS = frozenset(("database", "table", "type", "isDdl", "op", "source", "schema", "commitTs", "payload", "before"))
"""Names in values of TiCDC, whose own ``data`` wraps no message."""


def _depth(head: bytes) -> int:
    """In how many objects the records lie, as in ``{"records": [..]}`` or by topic in an event of AWS Lambda."""
    depth = at = 0
    while found := _WRAPPED.match(head, at):
        *beside, name = (n.decode("latin-1") for n in re.findall(rb'"([^"\\]*)"\s*:', found[0]))
        is_record = (
            any(role_of(n) in ("partition", "offset", "key", "value") for n in beside) or role_of(name) == "headers"
        )
        if is_record or _OF_ROWS & {*beside, name} or not (depth or name in _WRAPPERS):
            break
        depth, at = depth + 1, found.end()
    if depth:
        first = next(objects_in(iter([head]), bound=len(head) + 1, one_a_line=False))
        with suppress(BadJson):
            names = fields_of(first.text)
            if {"partition", "offset"} <= roles_in(names).keys() or len(_OF_ROWS & names.keys()) > 1:  # canal's `data`
                return 0
    return depth


def _looked_at(head: bytes, depth: int) -> tuple[list[Mapping[str, Value]], list[int], bytes]:
    """The first objects that are whole, their lines, and the bytes of the first."""
    records: list[Mapping[str, Value]] = []
    lines: list[int] = []
    raw = b""
    if re.match(rb"\s*\[?\s*\{", head):
        for piece in objects_in(iter([head]), bound=len(head) + 1, one_a_line=False, depth=depth):
            with suppress(BadJson):
                records.append(fields_of(piece.text))
                lines.append(piece.line)
                raw = raw or piece.text
            if len(records) == LOOKED_AT:
                break
    return records, lines, raw


def _objects(head: bytes, options: Mapping[str, str], whole: bool) -> Form | None:
    depth = _depth(head)
    records, lines, raw = _looked_at(head, depth)
    names = list(dict.fromkeys(n for r in records for n in r))
    roles = roles_in(names)
    in_array = head.lstrip()[:1] == b"["
    # a record that follows a cut one in its line does not make another form of a file
    one_a_line = not depth and b"\n" not in raw and not in_array and 2 * len(set(lines)) > len(lines)
    separator, opening = b"\n" if one_a_line else b"", beginning_of(raw)
    lost = set(lost_of(roles))
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
    form = Form("objects", "objects", coding, key_coding, separator=separator, opening=opening, lost=frozenset(lost))
    return replace(form, depth=depth)


def _bare_objects(head: bytes, options: Mapping[str, str], whole: bool) -> Form | None:
    """Values that are objects themselves: in an array, or over several lines each."""
    depth = _depth(head)
    records, _, raw = _looked_at(head, depth)
    names = {n for r in records for n in r}
    pieces = [*islice(objects_in(iter([head]), bound=len(head) + 1, one_a_line=False, depth=depth), LOOKED_AT)]
    if 3 * sum(bool(piece.fault) for piece in pieces) > len(pieces):  # a line of labels before each
        return None
    if not records or is_envelope(list(names)) or {"kind", "commit_ts"} <= names:
        return None
    page = {"messages"} if head.lstrip()[:1] == b"[" else set[str]()
    lost = lost_of() | {"null"} | page
    opening = beginning_of(raw)
    return Form("values", "objects", parts=("value",), separator=b"", opening=opening, lost=lost, depth=depth)


def _texts(head: bytes, options: Mapping[str, str], whole: bool) -> Form | None:
    """An array of values as texts."""
    if not re.match(rb'\s*\[\s*(?:"|null\s*,)', head):
        return None
    pieces = objects_in(iter([head]), bound=len(head) + 1, one_a_line=False, opening=b'"')
    whole_ones = takewhile(lambda piece: not piece.fault, islice(pieces, LOOKED_AT))
    texts = [orjson.loads(piece.text) for piece in whole_ones if _is_text(piece.text)]
    coding = coding_of(texts) if texts else "text"
    if not texts or (coding == "text" and not all(map(_is_value, texts))):
        return None
    lost = lost_of() | {"messages"}
    return Form("values", "objects", coding, coding, parts=("value",), separator=b"", opening=b'"', lost=lost)


def _is_value(text: str) -> bool:
    """Whether a text can be a message that is no word: JSON, or binary."""
    return text[:1] == "{" or bool(re.search("[\\x00-\\x08\\x0e-\\x1f]", text))


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


# Values only, lengths, rows.


def _values(head: bytes, options: Mapping[str, str], whole: bool) -> Form | None:
    lines = head.split(b"\n")[: LOOKED_AT + 1]
    lines = [line.strip() for line in (lines if whole or len(lines) < 2 else lines[:-1]) if line.strip()]
    filled = [line for line in lines if line not in (b"null", b"None")]
    lost = lost_of() | {"null"}
    if not filled:
        return Form("values", "lines", null=b"null", lost=lost) if lines else None
    if 3 * sum(map(bool, map(is_ruled, filled))) >= len(filled):  # lines between objects
        return None
    if is_json(filled[0]) and filled[0][:1] == b"{":
        if 3 * sum(line[:1] != b"{" for line in filled) > len(filled):  # lines of JSON between others
            return None
        names = list(orjson.loads(filled[0]))
        return None if {"kind", "commit_ts"} <= set(names) else Form("values", "lines", null=b"null", lost=lost)
    texts = [orjson.loads(line) for line in filled if _is_text(line)]
    if 3 * len(texts) > 2 * len(filled):
        return Form("values", "lines", *codings_of(texts, ()), null=b"null", lost=lost)
    if width := _width(filled):
        joined = [text.decode("latin-1") for text, *_ in joined_lines(((line, 0) for line in filled), width, len(head))]
        if len(joined) > 1 and (coding := coding_of(joined)).startswith("base64"):
            return Form("values", "lines", coding, coding, null=b"null", lost=lost, width=width)
    coding = coding_of([line.decode("latin-1") for line in filled])
    if coding != "text" and all(len(line) >= 8 or coding == "python" for line in filled):
        return Form("values", "lines", coding, coding, null=b"None" if coding == "python" else b"null", lost=lost)
    return None


def _width(lines: Sequence[bytes]) -> int:
    """The length of the lines that others continue; 0 where each is a value, as all of them begin alike."""
    width = max(map(len, lines))
    ends = [len(line) != width or line.endswith(b"=") for line in lines]
    begins = {line[:1] for line, is_begun in zip(lines, (True, *ends), strict=False) if is_begun}
    return width if width in (64, 76) and any(line[:1] not in begins for line in lines) else 0


def _is_text(line: bytes) -> bool:
    try:
        return isinstance(orjson.loads(line), str)
    except orjson.JSONDecodeError:
        return False


_LENGTHS = Form("lengths", "pattern", parts=("value_length4", "value"), lost=lost_of())


def _lengths(head: bytes, options: Mapping[str, str], whole: bool) -> Form | None:
    at = n = n_tiny = 0
    while at + 4 <= len(head) and n < LOOKED_AT:
        size = int.from_bytes(head[at : at + 4], "big", signed=True)
        if size < -1 or size > 1 << 27:
            return None
        at += 4 + max(size, 0)
        n += 1
        n_tiny += size in (0, 1)
    fits = at == len(head) if whole else n > 1
    if not n or not fits or 3 * n_tiny > n:  # lengths of 8 bytes in open-protocol look like empty values
        return None
    return _LENGTHS


def _later_lengths(head: bytes, options: Mapping[str, str], whole: bool) -> Form | None:
    """Values with their lengths, the first one, or one between others, cut."""
    return None if next_chain(head, 0) is None else _LENGTHS


def form_of_rows(
    names: Sequence[str], texts: tuple[Sequence[str], Sequence[str]], *, given: Mapping[str, str]
) -> Form | None:
    """The form of a Parquet or Avro file whose columns have these names; None where none of them is a value.

    ``names``: of the columns; none for values that are no rows. ``texts``: some texts of the first rows' values, and of
    their keys. ``given``: of :data:`OPTIONS`.
    """
    roles = roles_in(names)
    if names and "value" not in roles:
        return None
    stated = {name: given[name] for name in ("topic", "partition") if name in given}
    lost = lost_of(roles).difference(stated)
    parts = tuple(names) if "value" in roles else ()
    coding, key_coding = codings_of(*texts)
    form = Form("rows", "rows", coding, key_coding, parts=parts, lost=lost, given=tuple(stated.items()))
    written = [*(texts[0] if coding == "text" else ()), *(texts[1] if key_coding == "text" else ())]
    return _as_encoded(form, "\n".join(written).encode("utf-8", "surrogatepass")) if written else form


def form_beside(head: bytes, values: Form) -> Form:
    """The form of keys or headers, a line each, beside ``values``."""
    if values.name == "lengths" and (found := _lengths(head, {}, False)):
        return found
    texts = [orjson.loads(line) for line in head.split(b"\n")[:LOOKED_AT] if _is_text(line)]
    coding = coding_of_keys(texts, values.coding) if texts else "text"
    form = Form("values", "lines", coding, coding, null=b"null")
    return _as_encoded(form, head) if coding == "text" else form


_Detector = Callable[[bytes, Mapping[str, str], bool], Form | None]
_DETECTORS: Sequence[tuple[str, _Detector]] = (
    ("kcat-format", by_format), ("kcat-format", by_usual_format), ("printed", printed), ("segment", _segment),
    ("objects", _objects), ("kcat", _objects),
    ("lengths", _lengths), ("csv", headed_csv), ("console", console), ("csv", unnamed_csv), ("values", _values),
    ("values", _texts),
    ("values", _bare_objects), ("lengths", _later_lengths),
)  # fmt: skip

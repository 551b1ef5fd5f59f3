"""Which files of a source are dumps that other tools made, in which form, and where their messages are."""

from __future__ import annotations

import re
import shlex
import zlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from itertools import chain
from pathlib import Path, PurePath
from types import MappingProxyType
from typing import BinaryIO, Literal

from ticdc_lab.errors import SourceError
from ticdc_lab.errors.whole_files import local_path
from ticdc_lab.sources.form_detection import form_beside, form_of, form_of_rows
from ticdc_lab.sources.forms import (
    ALONE,
    CAPTURE,
    CONNECT,
    HEAD_BYTES,
    KEYS_OR_HEADERS,
    Assumed,
    Beside,
    Form,
    beside,
    named_place,
)
from ticdc_lab.words import are, some_of

LOOKED_INTO = 64
"""Where so many files of a folder are capture files, all are."""

CAPTURES = (".jsonl", ".jsonl.gz", ".json", ".json.gz", ".ndjson", ".ndjson.gz")
"""How the names of capture files end that are read by ranges of bytes."""

_GZIP = b"\x1f\x8b"
_BINARY = re.compile("[\\x00-\\x08\\x0e-\\x1f\ufffd]")
"""What only texts have that were binary messages."""
_PARQUET, _AVRO = b"PAR1", b"Obj\x01"
_PLACE = frozenset({"partition", "offset"})

REQUIRED = ("topic", "partition", "offset", "key", "value")
"""Columns of a Parquet file that the engine reads by itself."""


@dataclass(frozen=True, slots=True)
class DumpFiles:
    """Files in the forms of other tools; a file that is not among them is a capture file."""

    forms: tuple[Form, ...]  # each form once
    of: Mapping[str, tuple[int, Assumed]]  # by file the number of its form, and what is assumed of its messages
    is_named: bool = False  # whether the files' names show where their messages are
    # By file the form of each that is not read: its messages have no place, and the messages of other files have one
    strays: Mapping[str, Form] = field(default_factory=dict)

    @property
    def kind(self) -> str:
        """What the source is, one of :data:`ticdc_lab.sources.KINDS`."""
        return CONNECT if self.is_named else self.forms[0].name if self.forms else CAPTURE

    @property
    def lost(self) -> frozenset[str]:
        """What some of its messages do not have (:data:`ticdc_lab.sources.forms.LOSSES`)."""
        every = frozenset[str]().union(*(form.lost for form in self.forms))
        return (every - {"topic", "partition", "offset", "messages"}) | {"names"} if self.is_named else every

    @property
    def sentences(self) -> tuple[str, ...]:
        """What cannot be known because of it, one sentence each."""
        topic = next((assumed.topic for _, assumed in self.of.values()), "")
        seen: dict[str, None] = dict.fromkeys([_left_out(self.strays)] if self.strays else [])
        for form in self.forms:
            for said in form.sentences(topic, lost=form.lost & self.lost | ({"names"} & self.lost)):
                seen.setdefault(said)
        return tuple(seen)

    def form(self, file: str) -> tuple[Form, Assumed] | None:
        """The form of a file, and what is assumed of it; None for a capture file."""
        found = self.of.get(file)
        return None if found is None else (self.forms[found[0]], found[1])

    def alone(self, file: str) -> DumpFiles:
        """What is known of one file, for the task that reads it."""
        number, assumed = self.of[file]
        return DumpFiles((self.forms[number],), {file: (0, assumed)}, self.is_named)

    def with_lines(self, begins: Mapping[str, tuple[tuple[int, int], ...]]) -> DumpFiles:
        """The same with how many lines begin before each range of some files."""
        counted = {
            file: (number, replace(assumed, lines=begins.get(file, ()))) for file, (number, assumed) in self.of.items()
        }
        return replace(self, of=counted)

    @classmethod
    def joined(
        cls, some: Iterable[DumpFiles | None], strays: Mapping[str, Form] = MappingProxyType({})
    ) -> DumpFiles | None:
        """What is known of several files, of what is known of each; ``strays`` are those that are not read."""
        forms: dict[Form, int] = {}
        of = {
            file: (forms.setdefault(each.forms[number], len(forms)), assumed)
            for each in some if each is not None for file, (number, assumed) in each.of.items()
        }  # fmt: skip
        return cls(tuple(forms), of, strays=strays) if of or strays else None


def _left_out(strays: Mapping[str, Form]) -> str:
    """What is noted of files that are not read."""
    each = [f"{file} ({form.words[:1].lower()}{form.words[1:]})" for file, form in strays.items()]
    one, alone = len(each) == 1, f"ticdc-lab survey {shlex.quote(next(iter(strays)))}"
    left = "it was left out: its" if one else "they were left out: their"
    return (
        f"{some_of(each, most=4)} {are(len(each))} no recording{'' if one else 's'} with partitions and offsets, as "
        f"the other files here, so {left} messages are missing from every answer. Read {'it' if one else 'each'} "
        f"alone: {alone}"
    )


def head_of(file: BinaryIO, most: int = HEAD_BYTES) -> tuple[bytes, bool]:
    """The first bytes of an open file, inflated, and whether they are all of it."""
    raw = file.read(most)
    whole = not file.read(1)
    if not raw.startswith(_GZIP):
        return raw, whole
    engine = zlib.decompressobj(wbits=31)
    try:
        text = engine.decompress(raw, most)
    except zlib.error:
        return b"", False
    return text, whole and engine.eof and not engine.unused_data


_GLANCE_BYTES = 64 << 10


def name_of_form(file: Path) -> str | None:
    """What the first bytes of a file look like, one of :data:`ticdc_lab.sources.KINDS`; None for no messages."""
    try:
        with file.open("rb") as opened:
            head, whole = head_of(opened, _GLANCE_BYTES)
        form = None if head.startswith((_PARQUET, _AVRO)) else form_of(head, options={}, whole=whole)
    except (OSError, SourceError):
        return None
    if form is None:
        return "parquet" if head.startswith(_PARQUET) else "rows" if head.startswith(_AVRO) else None
    return form.name


def dumps_among(
    files: Sequence[str],
    opened: Callable[[str], AbstractContextManager[BinaryIO]],
    *,
    source: str,
    kind: str = "auto",
    options: Mapping[str, str],
) -> DumpFiles | None:
    """Which of some files are dumps of other tools; None where all are capture files or of another kind.

    ``files``: their names, in order. ``opened``: opens one. ``source``: what they are called together; a dump that
    names no topic is one of the topic of this name. ``kind``: ``auto``, or one of
    :data:`ticdc_lab.sources.forms.FORMS`. ``options``: of :data:`ticdc_lab.sources.forms.OPTIONS`. Raises SourceError:
    a file is not in the form that ``kind`` names, or an option is wrong.
    """
    forms: dict[Form, int] = {}
    found: dict[str, tuple[int, Assumed]] = {}
    silent = 0
    named = True
    others_of: dict[str, list[tuple[Literal["key", "headers"], str]]] = {}
    for file in files:
        stem, role = beside(file)
        if role is not None:
            others_of.setdefault(stem, []).append((role, file))
    stems = {stem for stem, role in map(beside, files) if role is None} if others_of else set[str]()
    for n, file in enumerate(files):
        with opened(file) as f:
            head, whole = head_of(f)
        stem, role = beside(file)
        has_values = role is not None and stem in stems
        form = (KEYS_OR_HEADERS if has_values else ALONE) if role else _form(file, opened, head, whole, kind, options)
        if form is not None and (form.name != CAPTURE or _is_named_otherwise(file, opened)):
            place = named_place(file) if {"partition", "offset"} & form.lost else None
            named = named and place is not None
            assumed = Assumed(options.get("topic") or topic_of(source), _partition(options, silent))
            silent += "partition" in form.lost and place is None
            if place is not None:
                assumed = Assumed(options.get("topic") or place.topic, place.partition, place.offset)
            others = tuple(_beside(what, name, form, opened) for what, name in others_of.get(stem, ()) if role is None)
            form = replace(form, lost=form.lost - {other.role for other in others})
            is_cut = form.is_cut and not others and not _is_packed(file, opened)
            found[file] = forms.setdefault(form, len(forms)), replace(assumed, is_cut=is_cut, beside=others)
        if n + 1 == LOOKED_INTO and not found:
            break
    numbered = tuple(forms)
    strays = {file: numbered[n] for file, (n, _) in found.items() if numbered[n].lost >= _PLACE}
    if kind == "auto" and not named and strays and len(strays) < len(files):
        rest = {file: own for file, own in found.items() if file not in strays}
        return DumpFiles.joined([DumpFiles(numbered, rest)], strays)
    return DumpFiles(numbered, found, named) if found else None


def dumps_at(source: str, files: Sequence[Path], kind: str, options: Mapping[str, str]) -> DumpFiles | None:
    """As :func:`dumps_among`, of files of this machine."""
    local = local_path(source)
    is_delta = local is not None and (local / "_delta_log").is_dir()
    are_parquet = {f.suffix == ".parquet" for f in files if beside(f.name)[1] is None}
    if kind == "auto" and (is_delta or len(are_parquet) > 1):
        return None
    names = [str(f.resolve()) for f in files]
    return dumps_among(names, lambda f: Path(f).open("rb"), source=source, kind=kind, options=options)


def _form_of_rows(
    file: str, opened: Callable[[str], AbstractContextManager[BinaryIO]], options: Mapping[str, str]
) -> Form | None:
    """A file of rows that are no messages by the names of their columns alone; None where they are."""
    from ticdc_lab.sources.row_records import columns_of  # it brings pyarrow, which no other form needs to be known

    is_avro = False
    try:
        with opened(file) as f:
            is_avro = f.read(4) == _AVRO
            f.seek(0)
            names, texts, is_plain = columns_of(f)
    except (ValueError, EOFError) as error:  # it is damaged: the reader of capture files reports where
        if is_avro:
            raise SourceError(
                f"{file} is an Avro file, and its first block cannot be read: {error}.",
                hint=f"Copy it again, or make JSON of it: avro-tools tojson {shlex.quote(file)} > dump.jsonl",
            ) from None
        return None
    in_folders = {part.partition("=")[0] for part in PurePath(file).parts[:-1] if "=" in part}
    form = form_of_rows(names, texts, given=options)
    is_text = form is None or (form.coding == form.key_coding == "text" and not form.n_twice)
    is_read = is_plain and is_text and not is_avro and not any(map(_BINARY.search, chain(*texts)))
    if (set(REQUIRED) <= {*names, *in_folders} and is_read) or {"kind", "commit_ts"} <= set(names):
        return None
    return form


def _form(
    file: str,
    opened: Callable[[str], AbstractContextManager[BinaryIO]],
    head: bytes,
    whole: bool,
    kind: str,
    options: Mapping[str, str],
) -> Form | None:
    if head.startswith((b"\xff\xfe", b"\xfe\xff")):
        raise SourceError(
            f"{file} is text in UTF-16, as a shell of Windows writes it: bytes of its messages are lost.",
            hint="Dump the topic again, with kcat or cmd.exe, not with PowerShell's >.",
        )
    if head.startswith((_PARQUET, _AVRO)):
        return _form_of_rows(file, opened, options) if kind in ("auto", CONNECT, "rows") else None
    if not head:
        return None
    try:
        return form_of(head, kind="auto" if kind == CONNECT else kind, options=options, whole=whole)
    except SourceError as error:
        raise SourceError(f"{file}: {error.message}", hint=error.hint.replace("SOURCE", file)) from error


def _beside(
    role: Literal["key", "headers"], file: str, values: Form, opened: Callable[[str], AbstractContextManager[BinaryIO]]
) -> Beside:
    with opened(file) as f:
        head, _ = head_of(f)
    if head.startswith((_PARQUET, _AVRO)):
        return Beside(role, file, _form_of_rows(file, opened, {}) or Form("rows", "rows"))
    return Beside(role, file, form_beside(head, values))


def _is_named_otherwise(file: str, opened: Callable[[str], AbstractContextManager[BinaryIO]]) -> bool:
    """Whether the name of a capture file means another packing than its bytes, or none."""
    return not file.endswith(CAPTURES) or _is_packed(file, opened) != file.endswith(".gz")


def _is_packed(file: str, opened: Callable[[str], AbstractContextManager[BinaryIO]]) -> bool:
    with opened(file) as f:
        return f.read(2) == _GZIP


def _partition(options: Mapping[str, str], number: int) -> int:
    text = options.get("partition")
    if text is None:
        return number
    if not text.isdigit() or int(text) >= 1 << 31:
        raise SourceError(f"Option partition: expected a number of a partition, found {text!r}.")
    return int(text)


def topic_of(source: str) -> str:
    """The topic's name for a dump that does not name it."""
    return PurePath(source.rstrip("/")).name.partition(".")[0] or "topic"

"""Which field of a csv record is which: the optional ones before the columns, and the column that each other one is.

A file with a header names its columns. Without one, records show only how many fields they have, and a schema file also
lists columns that rows do not have: virtual generated ones, and those that a changefeed's column selector leaves out.
Every reading that the number of fields allows is tried on the file's records: TiCDC quotes texts and writes numbers
bare, so a shifted column shows. One that fits alone is taken; where two fit, none is.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from fnmatch import fnmatchcase
from itertools import product
from pathlib import PurePosixPath
from typing import NamedTuple

import numpy as np

from ticdc_lab.codecs.plain.json_text import holds
from ticdc_lab.codecs.table_file import Cut, TableColumn, TableFile
from ticdc_lab.events.ddl import DDLSyntaxError
from ticdc_lab.events.mysql_types import BINARIES, BY_NAME, FLOAT, INTEGER, base_of, held_by
from ticdc_lab.events.tso import physical_ms
from ticdc_lab.settings import Setting, Settings
from ticdc_lab.settings.matchers import ColumnFilter, TableFilter, accepted

Flags = tuple[bool, bool, bool]
"""Whether records have commit_ts, is-update and a handle key."""

OPTIONAL = ("sink.csv.include-commit-ts", "sink.csv.output-old-value", "sink.csv.output-handle-key")
"""Settings that put in each of :data:`Flags`."""

HEADER = b"ticdc-meta$operation"
_META = b"ticdc-meta$"
_OF_FLAGS = (_META + b"commit-ts", _META + b"is-update", _META + b"handle-key")
ALWAYS = 3
"""Operation, table and schema."""
_OPERATIONS = (b"I", b"D", b"U")
_FLAGS = (b"true", b"false")
_FLAG_CHOICES: list[Flags] = [(ts, up, key) for ts, up, key in product((False, True), repeat=3)]
_NUMBER = re.compile(rb"[+-]?[0-9.]+(?:e[+-]?[0-9]+)?")
_FIRST_YEARS_MS = 1_420_070_400_000
"""2015, before which no TiDB wrote a TSO."""
_LAST_YEARS_MS = 4_102_444_800_000
_BASE64 = re.compile(rb"(?:[A-Za-z0-9+/]{4})*(?:[A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?")
_HEX = re.compile(rb"(?:[0-9a-f]{2})*")
_NULLS = (b"\\n", b"", b"null", b"none", b"nil", b"n/a")
_COLUMNS_SAID = 12


class RecordShape(NamedTuple):
    """Which of the optional fields records have, and whether the first one names the fields."""

    has_ts: bool
    has_update: bool
    has_handle: bool
    has_header: bool


class CsvField(NamedTuple):
    """The text of a field, and whether it stands between quotes."""

    text: bytes
    quoted: bool


Record = list[CsvField]


@dataclass(frozen=True, slots=True)
class FieldsOfFile:
    """What the fields of a file are: which optional ones, and the columns of the others in their order.

    ``guess`` is the basis of the choice where neither a header, the DDL nor a setting names the columns.
    """

    shape: RecordShape
    columns: tuple[TableColumn, ...]
    guess: str = ""


@dataclass(frozen=True, slots=True)
class UnknownFields:
    """Why fields cannot be assigned to columns, with the option that decides; ``flags`` of readings that fit."""

    error_class: str
    reason: str
    flags: tuple[Flags, ...] = ()


class Way(NamedTuple):
    """One way to read records: which optional fields they have, and which columns the others are."""

    flags: Flags
    columns: tuple[TableColumn, ...] | None
    """None where several choices of columns fit as well."""


def virtual_columns(versions: Sequence[TableFile]) -> frozenset[str]:
    """Names of virtual generated columns by the DDL of a table's versions, the newest last; TiCDC writes none of them.

    What no DDL of these defines is taken as stored.
    """
    from ticdc_lab.facts.catalog import apply_all  # not before there is such a column
    from ticdc_lab.facts.definitions import ColumnDef, TableDef

    first, last = versions[0], versions[-1]
    if not any(re.search(r"\bAS\b", v.query, re.IGNORECASE) for v in versions):
        return frozenset()
    columns = tuple(ColumnDef(c.name, c.mysql_type) for c in first.columns)
    before = TableDef(first.schema, first.table, columns)
    with suppress(DDLSyntaxError):
        catalog = apply_all([(v.version, v.schema, v.table, v.query) for v in versions if v.query], before=[before])
        known = catalog.versions.get((last.schema, last.table), ())
        definition = known[-1].definition if known else None
        if definition is not None:
            return frozenset(c.name for c in definition.columns if c.generated == "virtual")
    return frozenset()


def choice_of(settings: Settings) -> str | list[tuple[TableFilter, ColumnFilter]] | None:
    """Which columns rows have: the option ``csv.columns``, else the changefeed's column selectors that TiCDC takes."""
    if (given := settings.value("sink.csv.columns")) is not None:
        return str(given)
    exact = bool(settings.value("case-sensitive", False))
    each = accepted(settings.value("sink.column-selectors", ()), case_sensitive=exact)
    return [of[1:] for of in each if of[0].get("columns")] or None


def selected(file: TableFile, settings: Settings, virtual: frozenset[str]) -> tuple[TableColumn, ...] | None:
    """The columns of a table's rows by the changefeed's column selectors or the setting ``csv.columns``; None where
    neither names the table. The first that matches the table counts, and in it the last pattern that matches a column.
    """
    given, name = choice_of(settings) or "", f"{file.schema}.{file.table}"
    if not isinstance(given, str):
        takes = next((columns for tables, columns in given if tables.matches(file.schema, file.table)), None)
        return (
            None if takes is None else tuple(c for c in file.columns if takes.matches(c.name) and c.name not in virtual)
        )
    for part in given.split(";"):
        table, colon, patterns = part.partition(":")
        if colon and _matched(name.lower(), [t.strip().lower() for t in table.split("|")]):
            wanted = [p.strip().lower() for p in patterns.split(",")]
            literal = {p for p in wanted if not p.startswith("!")}
            return tuple(
                c for c in file.columns
                if _matched(c.name.lower(), wanted) and (c.name not in virtual or c.name.lower() in literal)
            )  # fmt: skip
    return None


def _matched(name: str, patterns: Sequence[str]) -> bool:
    for pattern in reversed(patterns):
        if fnmatchcase(name, pattern.removeprefix("!")):
            return not pattern.startswith("!")
    return False


def header_of(raw: bytes, file: TableFile, cut: Cut, terminator: str) -> tuple[FieldsOfFile | UnknownFields, int]:
    """What the fields are by the header with which a file begins, and where its records begin.

    TiCDC writes names without quotes: one with a delimiter, a quote or a line end shows only beside the schema file.
    Where a name could be two, the order of the table decides, then the longer one.
    """
    delimiter, ends, at, flags = cut.delimiter.encode(), terminator.encode(), len(HEADER), list[bool]()
    for name in (_META + b"table", _META + b"schema", *_OF_FLAGS):
        is_there = raw.startswith(delimiter + name, at)
        at += len(delimiter + name) * is_there
        flags.append(is_there)
    names = [delimiter + c.name.encode("utf-8", "replace") for c in file.columns]
    chosen = list[int]()

    def is_at(k: int) -> bool:
        end = at + len(names[k])
        return raw[at:end].lower() == names[k].lower() and raw.startswith((delimiter, ends), end)

    while not raw.startswith(ends, at):
        following = chosen[-1] + 1 if chosen else 0
        if following < len(names) and is_at(following):
            k = following
        else:
            k = max(filter(is_at, range(len(names))), key=lambda k: len(names[k]), default=-1)
        if k < 0 or k in chosen:
            text = raw[at + len(delimiter) :].split(ends)[0].split(delimiter)[0].decode("utf-8", "replace")
            what = "which its schema file does not have" if k < 0 else "twice"
            reason = f"the header names the column {text!r} {what}; expected {_named(file.columns)}"
            return UnknownFields("csv-header", reason), max(raw.find(ends, at), 0) + len(ends)
        chosen.append(k)
        at += len(names[k])
    columns = tuple(file.columns[k] for k in chosen)
    _, _, has_ts, has_update, has_handle = flags
    return FieldsOfFile(RecordShape(has_ts, has_update, has_handle, True), columns), at + len(ends)


def place(
    some: Sequence[Record],
    file: TableFile,
    settings: Settings,
    *,
    virtual: frozenset[str] = frozenset(),
    likely: Flags | None = None,
    decided: Sequence[str] = (),
) -> FieldsOfFile | UnknownFields:
    """Detect from some records of a file without a header what their fields are.

    ``some``: records of the file; one in twenty may be damaged. ``file``: the table's definition. ``settings``: of the
    changefeed, as far as they are known. ``virtual``: columns that rows do not have. ``likely``: which optional fields
    the other files of the folder have: it decides between readings that fit. ``decided``: names of the columns that
    other records of the table version have: so do they.
    """
    whole = [r for r in some if r[0].text in _OPERATIONS and len(r) > ALWAYS]
    if not whole:
        return FieldsOfFile(RecordShape(*(likely or (False, False, False)), False), file.columns)
    given = selected(file, settings, virtual)
    base = given if given is not None else tuple(c for c in file.columns if c.name not in virtual)
    width, fitting = _fitting(whole, file, settings, base, is_given=given is not None)
    of_folder = [r for r in fitting if likely is None or r.flags == likely] or fitting
    if decided and len(of_folder) == 1 and of_folder[0].columns is None:
        known = tuple(c for c in base if c.name in decided)
        if len(known) == width - ALWAYS - sum(of_folder[0].flags):
            of_folder = [Way(of_folder[0].flags, known)]
    if len(of_folder) == 1 and (columns := of_folder[0].columns) is not None:
        left = [c for c in file.columns if c not in columns and c.name not in virtual]
        sure = given is not None or not left
        guess = (
            f"rows of {file.schema}.{file.table} have no value of {_named(left)}: no other choice of "
            f"{len(columns)} columns fits their values"
        )
        return FieldsOfFile(RecordShape(*of_folder[0].flags, False), columns, "" if sure else guess)
    return _unplaced(of_folder, width, file, base)


def _fitting(
    whole: list[Record], file: TableFile, settings: Settings, base: tuple[TableColumn, ...], *, is_given: bool
) -> tuple[int, list[Way]]:
    """The number of fields that records have, and the readings that fit.

    Where one record in ten has another number, it may be damage: then all columns are wanted.
    """
    counted = Counter(len(r) for r in whole).most_common()
    found = list[tuple[int, list[Way]]]()
    for width, n in counted:
        tries = _Tries([r for r in whole if len(r) == width], width, file, settings, base, is_given=is_given)
        found.append((width, tries.fitting()))
        if 10 * n >= 9 * len(whole) or any(w.columns == base for w in found[-1][1]):
            return found[-1]
    return counted[0][0], []


def _unplaced(fitting: Sequence[Way], width: int, file: TableFile, base: Sequence[TableColumn]) -> UnknownFields:
    name = f"{file.schema}.{file.table}"
    found = f"its records have {width} fields, {ALWAYS} of them operation, table and schema; {name} has {_named(base)}"
    by_columns = f"--option csv.columns='{name}:{','.join(c.name for c in base)}', without those that rows do not have"
    why = "as they have no value of virtual generated columns and of what a column selector leaves out"
    if not fitting:
        return UnknownFields(
            "csv-columns", f"{found}. No choice of columns fits the values: give the columns, {why}: {by_columns}"
        )
    ways = [_way(r, width) for r in fitting]
    flags = sorted({r.flags for r in fitting})
    by_flag = "--option csv.include-commit-ts=true|false, or " if len({f[0] for f in flags}) > 1 else ""
    by_flag += "--option csv.output-old-value=true|false, or " if len({f[1] for f in flags}) > 1 else ""
    by_flag += "--option csv.output-handle-key=true|false, or " if len({f[2] for f in flags}) > 1 else ""
    return UnknownFields(
        "csv-columns",
        f"{found}. Several readings fit ({'; '.join(ways)}), so none is taken. Name what it is: {by_flag}{by_columns} "
        f"({why})",
        tuple(flags),
    )


def _way(reading: Way, width: int) -> str:
    names = ("commit_ts", "is-update", "the handle key")
    extra = [n for n, has in zip(names, reading.flags, strict=True) if has]
    n = width - ALWAYS - len(extra)
    which = f"{n} columns in several choices" if reading.columns is None else _named(reading.columns)
    return f"{' and '.join(extra) + ' and ' if extra else ''}{which}"


def _named(columns: Iterable[TableColumn]) -> str:
    names = [c.name for c in columns]
    more = f" and {len(names) - _COLUMNS_SAID} more" if len(names) > _COLUMNS_SAID else ""
    return f"{len(names)} column{'s' * (len(names) != 1)} ({', '.join(names[:_COLUMNS_SAID])}{more})"


class _Tries:
    """Readings of records of one width, and which of them fit."""

    def __init__(
        self, records: list[Record], width: int, file: TableFile, settings: Settings,
        base: tuple[TableColumn, ...], *, is_given: bool,
    ) -> None:  # fmt: skip
        self.records, self.width, self.file, self.settings = records, width, file, settings
        self.cut = Cut.of(settings)
        self.base, self.is_given = base, is_given
        self.tolerated = len(records) // 20 if len(records) >= 20 else int(len(records) >= 5)

    def fitting(self) -> list[Way]:
        """Readings that fit all records except damaged ones; the plainest kind that has any."""
        wanted = tuple(map(self.settings.value, OPTIONAL))
        flags = [f for f in _FLAG_CHOICES if all(w in (None, x) for w, x in zip(wanted, f, strict=True))]
        flags = [f for f in flags if self._may_have(f, wanted)]
        plain = [f for f in flags if not f[2] or wanted[2]]
        quoted = bool(self.cut.quote)
        for these, strict in ((plain, quoted), (flags, quoted), (plain, False), (flags, False)):
            found = [r for f in these if (r := self._read(f, strict=strict)) is not None]
            if found:
                return found
        return self._by_single_records() if len(self.records) > 1 else []

    def _by_single_records(self) -> list[Way]:
        """Where damage leaves no reading of all records: all columns, if no whole record contradicts."""
        each = (
            _Tries([r], self.width, self.file, self.settings, self.base, is_given=self.is_given).fitting()
            for r in self.records
        )
        found = {way for ways in each for way in ways}
        return list(found) if len(found) == 1 and found == {w for w in found if w.columns == self.base} else []

    def _may_have(self, flags: Flags, wanted: tuple[bool | None, ...]) -> bool:
        """Whether fields of these kinds stand where they must, and the number of fields allows them."""
        has_ts, has_update, has_handle = flags
        n = self.width - ALWAYS - sum(flags)
        if not 0 < n <= len(self.base):
            return False
        at_update, at_handle = ALWAYS + has_ts, ALWAYS + has_ts + has_update
        if has_ts and not wanted[0] and not self._is_ts(ALWAYS, strict=n < len(self.base)):
            return False
        if has_update and not self._most(at_update, lambda f: not f.quoted and f.text in _FLAGS):
            return False
        # a commit_ts between quotes is none of TiCDC's, and no handle key
        is_text = has_handle and self._most(at_handle, lambda f: f.quoted)
        is_key = is_text and not self._is_ts(at_handle, strict=True, quoted=True)
        if has_handle and not wanted[2] and self.cut.quote and not is_key:
            return False
        # what can only be the flag is it: nothing else is a bare `true` where texts are quoted
        is_flag = not has_update and bool(self.cut.quote) and wanted[1] is None
        return not (is_flag and self._most(at_update, lambda f: not f.quoted and f.text in _FLAGS))

    def _is_ts(self, at: int, *, strict: bool, quoted: bool = False) -> bool:
        """Whether a field can be a commit_ts: a number; ``strict``: of a time when the table version was there."""

        def is_one(f: CsvField) -> bool:
            if f.quoted is not quoted or not f.text.isdigit() or len(f.text) > 19:
                return False
            ms = physical_ms(int(f.text))
            return not strict or (int(f.text) >= self.file.version and _FIRST_YEARS_MS <= ms < _LAST_YEARS_MS)

        return self._most(at, is_one)

    def _most(self, at: int, is_one: object) -> bool:
        n = sum(bool(is_one(r[at])) for r in self.records)  # type: ignore[operator]
        return n >= len(self.records) - self.tolerated

    def _read(self, flags: Flags, *, strict: bool) -> Way | None:
        """The reading with these optional fields, if columns fit."""
        first = ALWAYS + sum(flags)
        n, base = self.width - first, self.base
        if n > len(base) or (self.is_given and n != len(base)):
            return None
        if n < len(base) and flags[2] and not self.settings.value(OPTIONAL[2]):
            return None
        can = np.array(
            [
                [sum(fits(r[first + j], c, self.cut, strict=strict) for r in self.records) for c in base]
                for j in range(n)
            ]
        ).reshape(n, len(base))
        ok = can >= len(self.records) - self.tolerated
        if n == len(base):
            return Way(flags, base) if ok.diagonal().all() else None
        ways, chosen = _choices(ok, [c.is_key for c in base])
        if not ways:
            return None
        return Way(flags, tuple(base[k] for k in chosen) if ways == 1 else None)


def _choices(ok: np.ndarray, needed: Sequence[bool]) -> tuple[int, list[int]]:
    """In how many ways fields can be columns in their order, two standing for more, and the last such choice.

    ``ok[j, k]``: field ``j`` can be column ``k``. A column that is ``needed`` is one of them.
    """
    n, m = ok.shape
    ways = np.zeros((n + 1, m + 1), np.int64)  # of the first j fields among the first k columns
    ways[0, 0] = 1
    for k in range(1, m + 1):
        for j in range(n + 1):
            skipped = 0 if needed[k - 1] else ways[j, k - 1]
            ways[j, k] = min(skipped + (ways[j - 1, k - 1] if j and ok[j - 1, k - 1] else 0), 2)
    chosen, j = list[int](), n
    for k in range(m, 0, -1):
        if j and ok[j - 1, k - 1] and ways[j - 1, k - 1]:
            chosen.append(k - 1)
            j -= 1
    return int(ways[n, m]), chosen[::-1]


def fits(field: CsvField, column: TableColumn, cut: Cut, *, strict: bool) -> bool:
    """Whether a field can be a column's value; ``strict``: texts are quoted and numbers are not, as TiCDC does."""
    if not field.quoted and field.text == cut.null.encode() and (cut.quote or (column.nullable and not column.is_key)):
        return column.nullable and not column.is_key
    kind = BY_NAME.get(base_of(column.mysql_type))
    if strict and kind is not None and field.quoted is not is_quoted(column):
        return False
    text = meant(field.text.decode("utf-8", "replace"), cut, quoted=field.quoted)
    if kind is None:
        return True
    if kind.name in BINARIES:
        return bool(_BASE64.fullmatch(field.text) or _HEX.fullmatch(field.text))
    if kind.name == "enum":
        return text in column.elements or not column.elements or not text
    if kind.name == "set":
        return not column.elements or set(text.split(",")) <= {*column.elements, ""}
    if kind.name in ("char", "varchar"):
        return column.length is None or len(text) <= column.length
    if kind.name == "json":
        return text[:1] in tuple('{["-0123456789tfn')
    if kind.name in BY_NAME and "unsigned" in column.mysql_type and text.startswith("-"):
        return False
    return holds(held_by(column.mysql_type), text)


def is_quoted(column: TableColumn) -> bool:
    """Whether TiCDC writes a column's values as texts: all but integers, BIT, YEAR, FLOAT and DOUBLE."""
    kind = BY_NAME.get(base_of(column.mysql_type))
    return kind is not None and (kind.form not in (INTEGER, FLOAT) or kind.name in ("enum", "set"))


def written(text: str, cut: Cut) -> bytes:
    """A text as TiCDC writes it: between quotes, each quote in it doubled; without quotes escaped."""
    if cut.quote:
        return f"{cut.quote}{text.replace(cut.quote, 2 * cut.quote)}{cut.quote}".encode("utf-8", "replace")
    text = text.replace("\\", "\\\\").replace("\r", "\\r").replace("\n", "\\n")
    return text.replace(cut.delimiter, "".join("\\" + c for c in cut.delimiter)).encode("utf-8", "replace")


def meant(text: str, cut: Cut, *, quoted: bool) -> str:
    """The text that TiCDC wrote so."""
    if cut.quote:
        return text.replace(2 * cut.quote, cut.quote) if quoted else text
    return re.sub(r"\\(.)", lambda m: {"n": "\n", "r": "\r"}.get(m[1], m[1]), text, flags=re.DOTALL)


def settings_of_file(head: bytes, file: TableFile, settings: Settings) -> Settings:
    """Delimiter and quote from how a file begins, where no setting names them: table and schema are known."""
    delimiter, quote = (settings.value(name) for name in _CUTS)
    if delimiter is not None and quote is not None:
        return settings
    if delimiter is None and (header := re.match(rb"ticdc-meta\$operation(.{1,3}?)ticdc-meta\$table", head, re.DOTALL)):
        delimiter = header[1].decode("utf-8", "replace")
    found = next(_cuts_in(head, file, delimiter, quote), (delimiter, quote))
    shown = [Setting(name, text, "bytes", "shown") for name, text in zip(_CUTS, found, strict=True) if text is not None]
    return settings | [s for s in shown if s.name not in settings]


def _cuts_in(head: bytes, file: TableFile, delimiter: str | None, quote: str | None) -> Iterator[tuple[str, str]]:
    """Delimiter and quote of each line that begins as a record of the table does."""
    for line in re.finditer(rb"(?:^|[\r\n])([^\w\s]?)[IDU]\1", head):
        own = line[1].decode("utf-8", "replace")
        for n in range(1, 4):
            given = head[line.end() : line.end() + n].decode("utf-8", "replace")
            cut = Cut(given, own)
            names = b"".join(written(t or "", cut) + given.encode() for t in (file.table, file.schema))
            if delimiter in (None, given) and quote in (None, own) and head.startswith(names, line.end() + n):
                yield given, own


_CUTS = ("sink.csv.delimiter", "sink.csv.quote")


def by_null(some: Sequence[Record], settings: Settings) -> list[Settings]:
    r"""The settings with each text that may be NULL, the likeliest first: those that some records leave open.

    Between quotes no text is NULL: it is the only bare word, and an unusual one has to occur twice, as a damaged record
    may have one. Without quotes a bare ``\N`` is no text, which has its backslash twice; any other word can be both,
    so the columns of numbers decide.
    """
    cut = Cut.of(settings)
    if "sink.csv.null" in settings:
        return [settings]
    bare = (f.text for r in some for f in r[ALWAYS:] if r[0].text in _OPERATIONS and not f.quoted)
    words = Counter(t for t in bare if t not in _FLAGS and not _NUMBER.fullmatch(t))
    usual = [w for w, n in words.items() if w.lower() in _NULLS or (cut.quote and n > 1)]
    likely = [w for w in usual if w == cut.null.encode()] if not cut.quote else usual if len(usual) == 1 else []
    found = [settings | [Setting("sink.csv.null", w.decode("utf-8", "replace"), "bytes", "shown")] for w in usual]
    return [found[usual.index(w)] for w in likely] or [settings, *([] if cut.quote else found)]


def agree(some: Sequence[Record], placed: FieldsOfFile, cut: Cut) -> bool:
    """Whether nearly all records can have these fields."""
    first = ALWAYS + sum(placed.shape[:3])
    whole = (r[first:] for r in some if len(r) == first + len(placed.columns))
    n = sum(all(fits(f, c, cut, strict=False) for f, c in zip(r, placed.columns, strict=True)) for r in whole)
    return 20 * n >= 19 * len(some)


class BinaryTexts(NamedTuple):
    """Binary values among some records: how many, their characters, and whether all can be in an encoding."""

    n: int = 0
    characters: int = 0
    not_hex: int = 0
    not_base64: int = 0


def binary_texts(some: Sequence[Record], placed: FieldsOfFile, cut: Cut) -> BinaryTexts:
    """What binary values look like; one that is too long for its column in an encoding is not in that."""
    first = ALWAYS + sum(placed.shape[:3])
    where = [(first + i, c) for i, c in enumerate(placed.columns) if base_of(c.mysql_type) in BINARIES]
    n = characters = not_hex = not_base64 = 0
    for record in some:
        if len(record) != first + len(placed.columns) or record[0].text not in _OPERATIONS:
            continue
        for at, column in where:
            text, quoted = record[at]
            if not text or (not quoted and text == cut.null.encode()):
                continue
            most = column.length if column.length is not None else len(text)
            raw = len(text) // 4 * 3 - text[-2:].count(b"=")
            n, characters = n + 1, characters + len(text)
            not_hex += not _HEX.fullmatch(text) or len(text) > 2 * most
            not_base64 += not _BASE64.fullmatch(text) or raw > most
    return BinaryTexts(n, characters, not_hex, not_base64)


def earlier_versions(path: str, names: Iterable[str], version: int) -> list[str]:
    """Paths of the schema files beside one that are of earlier versions of the table, in order."""
    found = [(int(m[1]), name) for name in names if (m := re.fullmatch(r"schema_([0-9]{1,19})_[0-9]{10}\.json", name))]
    folder = PurePosixPath(path).parent
    return [str(folder / name) for of, name in sorted(found) if of < version]

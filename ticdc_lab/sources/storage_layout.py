"""Where TiCDC's storage sink puts its files, and in which order they are to be read (docs/reading.md).

TiCDC of v6.4 to v6.5.2, v6.6 and v7.0 put ``schema.json`` and ``CDC.index`` (v6.5.2 and v7.0) beside the data files,
later releases into folders ``meta``.

Nothing here touches a file: a relative path goes in, its place in the layout comes out.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

METADATA = "metadata"
"""The file in the root that holds checkpoint-ts."""

_SCHEMA_FILE = re.compile(r"schema_([0-9]{1,19})_([0-9]{10})\.json")
_SCHEMA_BESIDE_DATA = "schema.json"
_DATA_FILE = re.compile(r"CDC(?:_([0-9A-Za-z-]+)_)?([0-9]{6,20})\.(csv|json)")
_INDEX_FILE = re.compile(r"CDC(?:_([0-9A-Za-z-]+))?\.index")
_DATES = {
    "day": re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}"),
    "month": re.compile(r"[0-9]{4}-[0-9]{2}"),
    "year": re.compile(r"20[0-9]{2}"),
}
_INT64 = 1 << 63
_LEVELS = 3
"""So many levels below a folder the root of a changefeed is looked for."""
_FIRST_TSO = 1 << 40
"""Below is a table id, above a table version: TSO have been larger since 1970-01-01 01:10."""


@dataclass(frozen=True, slots=True, order=True)
class Stream:
    """What is read in order by itself: a table, or one physical partition or one dispatcher of it.

    The stream of schema files, which belongs to no table, is the one whose fields are all empty.
    """

    schema: str = ""
    table: str = ""
    part: str = ""
    """Physical partition id, dispatcher id, or both with a slash between them."""


@dataclass(frozen=True, slots=True)
class StoragePlace:
    """The content of a path. ``kind`` is data, schema, index or metadata; what is missing is empty, 0 or None."""

    path: str
    kind: str
    schema: str = ""
    table: str = ""
    version: int = 0
    partition: str = ""
    date: str = ""
    dispatcher: str = ""
    number: int = 0
    checksum: int | None = None
    extension: str = ""

    @property
    def folder(self) -> str:
        """The folder of a data file, or of the data files that an index file is about."""
        folder = self.path.rpartition("/")[0]
        return folder.removesuffix("/meta") if self.kind == "index" else folder

    @property
    def stream(self) -> Stream:
        """The stream that a data file belongs to."""
        if self.kind != "data":
            return Stream()
        return Stream(self.schema, self.table, "/".join(p for p in (self.partition, self.dispatcher) if p))

    @property
    def has_slash(self) -> bool:
        """Whether a name has a slash: then its folders are several, and the first one is taken for the schema's."""
        return "/" in self.table

    @property
    def version_key(self) -> tuple[str, str, int]:
        """What the data files of a table version and its schema file have in common."""
        return self.schema, self.table, self.version


@dataclass(frozen=True, slots=True)
class Refused:
    """A path that is no place of the layout, or that must not be opened."""

    path: str
    error_class: str
    reason: str


def place_of(path: str, *, date_separator: str = "auto") -> StoragePlace | Refused:
    """The place of a file.

    ``path``: relative to the root, with slashes. ``date_separator``: ``none``, ``year``, ``month`` or ``day`` as in the
    changefeed; ``auto`` detects it in the name. Four digits that begin with 20 are then a year: name ``none`` if they
    are a partition id.
    """
    if not _is_text(path):
        shown = path.encode("utf-8", "backslashreplace").decode()
        return Refused(shown, "unknown-file", f"{shown!r} is not UTF-8, which the storage sink writes")
    *folders, name = parts = path.split("/")
    if any(p in ("", ".", "..") or "\0" in p for p in parts):
        return Refused(path, "unsafe-path", f"{path!r} could lead out of the folder given")
    if path == METADATA:
        return StoragePlace(path, "metadata")
    if folders and folders[-1] == "meta":
        if (found := _SCHEMA_FILE.fullmatch(name)) and len(folders) > 1:
            names = folders[0], "/".join(folders[1:-1])
            return _fitting(
                StoragePlace(path, "schema", *names, int(found[1]), checksum=int(found[2]), extension="json")
            )
        if found := _INDEX_FILE.fullmatch(name):
            return _in_table(StoragePlace(path, "index", dispatcher=found[1] or ""), folders[:-1], date_separator)
    elif name == _SCHEMA_BESIDE_DATA and len(folders) > 1 and _is_version(folders[-1]):
        names = folders[0], "/".join(folders[1:-1])
        return _fitting(StoragePlace(path, "schema", *names, int(folders[-1]), extension="json"))
    elif found := _INDEX_FILE.fullmatch(name):
        return _in_table(StoragePlace(path, "index", dispatcher=found[1] or ""), folders, date_separator)
    elif found := _DATA_FILE.fullmatch(name):
        place = StoragePlace(path, "data", dispatcher=found[1] or "", number=int(found[2]), extension=found[3])
        return _in_table(place, folders, date_separator)
    return _unknown(path)


def has_its_folders(path: str) -> bool:
    """Whether a file lies where a data file of a table version does, and is csv or JSON, also packed."""
    folder, _, name = path.rpartition("/")
    place = place_of(f"{folder}/CDC000001.json")
    is_there = isinstance(place, StoragePlace) and place.version >= _FIRST_TSO
    return is_there and re.search(r"(?i)\.(?:csv|json)l?(?:\.\w+)?$", name) is not None


_DOTS = (
    "{path!r} has one folder, {name!r}, above its table version, which is no table id; expected SCHEMA/TABLE. Either "
    "the folder given lies below the one that the sink wrote to, or a schema or table is named `.` or `..`, which a "
    "file system drops: rename it upstream"
)


def _in_table(place: StoragePlace, folders: list[str], separator: str) -> StoragePlace | Refused:
    """``schema/table/version[/partition][/date]``, or ``table id/version[/partition][/date]``.

    A ``/`` in a name makes more folders: then the version is the last number that is as large as a TSO.
    """
    date = ""
    if len(folders) > 2 and _is_date(folders[-1], separator):
        *folders, date = folders
    by_id = len(folders) == 2 or (len(folders) == 3 and _is_version(folders[1]) and not _is_version(folders[2]))
    n = len(folders) - 2 + _is_version(folders[-1]) if len(folders) > 3 else 1 if by_id else 2
    names, numbers = folders[:n], folders[n:]
    if not 1 <= len(numbers) <= 2 or not all(n.isascii() and n.isdigit() for n in numbers):
        return _unknown(place.path)
    if by_id and _is_version(numbers[0]) and not (names[0].isascii() and names[0].isdigit()):
        return Refused(place.path, "unknown-file", _DOTS.format(path=place.path, name=names[0]))
    if (by_id and not (names[0].isascii() and names[0].isdigit())) or (n > 2 and not _is_version(numbers[0])):
        return _unknown(place.path)
    schema, table, version, partition = names[0], "/".join(names[1:]), int(numbers[0]), "".join(numbers[1:])
    return _fitting(replace(place, schema=schema, table=table, version=version, partition=partition, date=date))


def _is_text(path: str) -> bool:
    """Whether a name that the operating system gave is text, and not bytes that Python could only escape."""
    try:
        path.encode()
    except UnicodeEncodeError:
        return False
    return True


def _is_date(name: str, separator: str) -> bool:
    wanted = _DATES.values() if separator == "auto" else [_DATES[separator]] if separator in _DATES else []
    return any(d.fullmatch(name) for d in wanted)


def _is_version(name: str) -> bool:
    return name.isascii() and name.isdigit() and int(name) >= _FIRST_TSO


def _fitting(place: StoragePlace) -> StoragePlace | Refused:
    return place if place.version < _INT64 and int(place.partition or 0) < _INT64 else _unknown(place.path)


_PACKED = {".gz": "gunzip", ".zst": "unzstd --rm", ".lz4": "unlz4 --rm", ".bz2": "bunzip2", ".xz": "unxz"}
"""What unpacks a file with such a name."""


def _unknown(path: str) -> Refused:
    stem, dot, packing = path.rpartition(".")
    if (unpack := _PACKED.get(dot + packing)) and isinstance(place_of(stem), StoragePlace):
        how = f"find FOLDER -name '*{dot}{packing}' -exec {unpack} {{}} +"
        return Refused(path, "unknown-file", f"{path!r} was compressed after TiCDC wrote it; unpack such files: {how}")
    folder, slash, name = path.rpartition("/")
    usual = re.sub(r"^cdc", "CDC", name.lower())
    if usual != name and isinstance(place_of(f"{folder}{slash}{usual}"), StoragePlace):
        how = f"find FOLDER -name {name} -execdir mv {{}} {usual} ';'"
        return Refused(path, "unknown-file", f"{path!r} is {usual!r} in another case; rename such files: {how}")
    return Refused(path, "unknown-file", f"{path!r} is no file that TiCDC's storage sink writes")


def roots_below(paths: Iterable[str]) -> list[str]:
    """Folders below one in which the files lie as below the root of a storage sink; with a checkpoint, if any has one.

    Of a root itself, the folders below it are none.
    """
    kinds: dict[str, set[str]] = {}
    for path in paths:
        parts = path.split("/")
        for level in range(1, min(len(parts), _LEVELS + 1)):
            place = place_of("/".join(parts[level:]))
            if isinstance(place, StoragePlace) and not place.has_slash:
                kinds.setdefault("/".join(parts[:level]), set()).add(place.kind)
    marked = [root for root, found in kinds.items() if "metadata" in found and len(found) > 1]
    return sorted(marked or [root for root, found in kinds.items() if {"schema", "data"} <= found])


def named_by_index(path: str, content: bytes) -> StoragePlace | None:
    """The newest data file that an index file with this content names; None where it names none of its own."""
    named = content.decode("utf-8-sig", "replace").strip("\r\n")
    here = place_of(path)
    told = place_of(f"{here.folder}/{named}") if isinstance(here, StoragePlace) else here
    are_places = isinstance(told, StoragePlace) and isinstance(here, StoragePlace)
    return told if "/" not in named and are_places and told.dispatcher == here.dispatcher else None  # type: ignore[union-attr,return-value]


def series_of(places: Iterable[StoragePlace]) -> dict[tuple[str, str], list[StoragePlace]]:
    """Data files that are numbered together: in a folder, and of a dispatcher in it."""
    series: dict[tuple[str, str], list[StoragePlace]] = {}
    for p in places:
        if p.kind == "data":
            series.setdefault((p.folder, p.dispatcher), []).append(p)
    return series


def numbered_twice(places: Iterable[StoragePlace]) -> Iterator[list[StoragePlace]]:
    """Data files of one series that have one number."""
    for files in series_of(places).values():
        numbers = Counter(p.number for p in files)
        for number in sorted(n for n, times in numbers.items() if times > 1):
            yield sorted((p for p in files if p.number == number), key=lambda p: p.path)


def streams_of(places: Iterable[StoragePlace]) -> dict[Stream, list[StoragePlace]]:
    """The files of each stream in reading order; streams in order too, the schema files' own first.

    A stream is read by table version, then date, then number. Schema files are read by version.
    """
    found: dict[Stream, list[StoragePlace]] = {Stream(): []}
    for p in places:
        if p.kind in ("data", "schema"):
            found.setdefault(p.stream, []).append(p)
    return {s: sorted(found[s], key=lambda p: (p.version, p.date, p.number, p.path)) for s in sorted(found)}


def schema_files(places: Iterable[StoragePlace]) -> Mapping[tuple[str, str, int], StoragePlace]:
    """The schema file of each table version, by :attr:`StoragePlace.version_key`."""
    return {p.version_key: p for p in sorted(places, key=lambda p: p.path) if p.kind == "schema"}

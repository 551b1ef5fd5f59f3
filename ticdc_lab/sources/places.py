"""What a source is and how large, by its name, its files and their footers; no library is needed at import."""

from __future__ import annotations

import json
import os
import re
import shlex
import zlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from itertools import islice
from pathlib import Path, PurePath
from types import MappingProxyType

from ticdc_lab.errors import SourceError
from ticdc_lab.errors.redaction import shown_source
from ticdc_lab.errors.whole_files import bare_path, local_path, scheme_of
from ticdc_lab.settings.keys import FROM_URI, KEYS, nearest
from ticdc_lab.sources.dump_files import CAPTURES, dumps_at, head_of
from ticdc_lab.sources.foreign_files import RECORDING
from ticdc_lab.sources.forms import CONNECT, FORMS, OPTIONS
from ticdc_lab.sources.refused_forms import EVENTS_HINT, FORMAT_HINT, converted_hint, first_line

_BYTES_LOOKED_AT = 1 << 18
"""Bytes at the beginning of a file from which the length of its lines is estimated."""
_FILES__LOOKED_INTO = 200


@dataclass(frozen=True, slots=True)
class Size:
    """Bytes as stored, and messages; None if no cheap way shows them."""

    bytes: int | None = None
    messages: int | None = None
    how: str = "unknown until it is read"
    """Where the number of messages comes from."""
    is_exact: bool = False


def size_of_lines(files: Sequence[Path]) -> Size:
    """Capture files: their bytes, and lines as long as the first ones are."""
    n_bytes = sum(f.stat().st_size for f in files)
    seen = [_lines(f) for f in files[:8]]
    lines, read = sum(n for n, _ in seen), sum(n for _, n in seen)
    if not lines:
        return Size(n_bytes)
    whole = read >= n_bytes
    messages = lines if whole else max(lines, round(lines * n_bytes / read))
    return Size(n_bytes, messages, "counted" if whole else f"estimated from the first {lines:,} lines", whole)


def size_of_parquet(files: Iterable[str | Path], *, n_bytes: int | None = None) -> Size:
    """Parquet files: rows by their footers; of very many files the first ones are the sample."""
    import pyarrow.parquet as pq

    paths = [Path(f) for f in files]
    sizes = [p.stat().st_size for p in paths]
    looked = paths[:_FILES__LOOKED_INTO]
    rows = sum(pq.read_metadata(p).num_rows for p in looked)
    if len(looked) == len(paths):
        return Size(sum(sizes), rows, "by the files' footers", True)
    part = max(1, sum(sizes[: len(looked)]))
    return Size(sum(sizes), round(rows * sum(sizes) / part), f"estimated from the footers of {len(looked)} files")


def _lines(file: Path) -> tuple[int, int]:
    """Lines at the beginning of a file, plain or gzip, and the bytes of the file that hold them."""
    with file.open("rb") as f:
        raw = f.read(_BYTES_LOOKED_AT)
        whole = not f.read(1)
    if file.suffix != ".gz":
        return raw.count(b"\n") + (whole and not raw.endswith(b"\n") and bool(raw)), len(raw)
    engine = zlib.decompressobj(wbits=31)
    try:
        text = engine.decompress(raw)
    except zlib.error:
        return 0, len(raw)
    return text.count(b"\n"), len(raw) - len(engine.unused_data)


KINDS = ("capture", "parquet", "delta", "table", "storage", "kafka", CONNECT, *FORMS)
"""Source kinds: JSON Lines (plain or gzip), Parquet, Delta with the columns of messages; the name of a table that the
session knows, which has to be set; a folder of the storage sink; Kafka; and dumps that other tools made."""

KAFKA = "kafka://"

LINES = CAPTURES
"""How the names of capture files end."""

_LEFT_OUT_SAID = 10
"""Files that were left out are named up to so many."""

_WHAT = (
    "a capture file (.jsonl, .jsonl.gz, .parquet), a folder of such files, a Delta table, a folder of TiCDC's storage "
    "sink, or kafka://HOST:PORT/TOPIC"
)


def is_kafka(source: str) -> bool:
    """Whether ``source`` names topics of Kafka."""
    return source.startswith(KAFKA)


def require_kind(kind: str) -> None:
    """Raise :class:`SourceError` unless ``kind`` is one of :data:`KINDS`, or ``auto``."""
    if kind not in ("auto", *KINDS):
        raise SourceError(f"Source kind {kind!r} is unknown; expected one of auto, {', '.join(KINDS)}.")


def require_source(source: str, kind: str = "auto", options: Mapping[str, str] = MappingProxyType({})) -> None:
    """Raise :class:`SourceError` where names, sizes and first bytes show that nothing can be read at ``source``.

    A folder that may be one of the storage sink is let through.
    """
    require_kind(kind)
    if not source.strip():
        raise SourceError("No source is named.", hint="Give a path, or kafka://HOST:PORT/TOPIC.")
    if kind in ("table", "kafka") or scheme_of(source) is not None:
        return
    place = local_path(source)
    if place is not None and place.is_dir() and kind in ("auto", "storage"):
        return
    files = data_files(source)
    if kind == "storage":
        raise not_storage_folder(source)
    own = {name: value for name, value in options.items() if name in OPTIONS}
    dumped = files is not None and kind in ("auto", CONNECT, *FORMS) and dumps_at(source, files, kind, own)
    if own and not dumped and files is not None:
        raise unknown_options(source, own)
    if kind == "auto" and not dumped:
        kind_of(source, files)


def unknown_options(source: str, names: Iterable[str]) -> SourceError:
    """The error of options that a source does not take, with the setting of a changefeed that is most like each."""
    like = {name: nearest(name, [*FROM_URI, *(n.removeprefix("sink.") for n in KEYS)]) for name in sorted(names)}
    said = ", ".join(f"{name} (the nearest is {near})" if near else name for name, near in like.items())
    return SourceError(
        f"{source} takes none of the options {said}.",
        hint="Kafka takes Spark's connector's, every source settings of its changefeed (docs/settings.md), and "
        f"a dump of another tool {', '.join(n for n in OPTIONS if not n.startswith('print.'))} and print.*.",
    )


def not_storage_folder(source: str) -> SourceError:
    """The error of a file where a folder of the storage sink is expected."""
    return SourceError(f"{source} is no folder; expected one that TiCDC's storage sink wrote.")


_LOOKED_AT = 2_000
"""Names of a folder in which a mistyped one is searched: it must be reported at once."""


def mistyped(path: Path) -> str:
    """Names what lies there under nearly the same name, as a sentence with a blank behind it; empty if nothing does."""
    try:
        names = [p.name for p in islice(path.parent.iterdir(), _LOOKED_AT)]
    except OSError:
        return ""
    stems = {name.partition(".")[0]: name for name in sorted(names, reverse=True)}
    near = get_close_matches(path.name, sorted(names), n=1, cutoff=0.8)
    near = near or [stems[s] for s in get_close_matches(path.name.partition(".")[0], sorted(stems), n=1)]
    return f"Did you mean {path.parent / near[0]}? " if near else ""


def data_files(source: str) -> list[Path] | None:
    """The data files at a local path, in name order; None for a URL, which is Spark's to list.

    Raises SourceError: nothing is there, or it is empty.
    """
    path = local_path(source)
    if path is None:
        return None
    if not path.exists():
        table = "   (for a table of the Spark session: --source-kind table)" if _is_no_file(source) else ""
        hint = f"{mistyped(path)}List the folder: ls {shlex.quote(str(path.parent))}{table}"
        raise SourceError(f"{source} does not exist; expected {_WHAT}.", hint=hint)
    files = (
        sorted(p for p in path.rglob("*") if p.is_file() and is_data(p.relative_to(path))) if path.is_dir() else [path]
    )
    if not files:
        raise SourceError(
            f"The folder {source} contains no data file; expected {_WHAT}.",
            hint=f"List it: ls -la {shlex.quote(str(path))}",
        )
    files = [f for f in files if f.stat().st_size] or files[:1]
    if not files[0].stat().st_size:
        raise SourceError(
            f"{source} is empty: 0 bytes, so there is no message in it.",
            hint=f"Look at its size and date, and record again: ls -l {shlex.quote(str(files[0]))}",
        )
    return files


def left_out(source: str) -> tuple[str, ...]:
    """What lies in a folder beside the files of :func:`data_files` and is not read, one sentence each."""
    root = local_path(source)
    if root is None or not root.is_dir():
        return ()
    said: list[str] = []
    if not _is_recorded(root):
        said.append(
            f"The recording into {source} is incomplete: data after its last message is missing from every answer. The "
            "same `ticdc-lab record` command resumes it."
        )

    def unreadable(error: OSError) -> None:
        said.append(f"{error.filename} cannot be read ({error.strerror}), so nothing below it was.")

    for folder, folders, names in os.walk(root, onerror=unreadable):
        for path in (Path(folder, name) for name in sorted((*folders, *names))):
            if is_data(path.relative_to(root)) and (why := _why_left_out(path)):
                said.append(f"{path} {why}, so it was left out: what it should contain is missing from every answer.")
    more = len(said) - _LEFT_OUT_SAID
    return (*said[:_LEFT_OUT_SAID], *([f"So were {more} more of the folder {source}."] if more > 0 else []))


RECORDING_STATE = ".recording.json"
"""What `record` writes beside its files: how far it is."""


def _is_recorded(folder: Path) -> bool:
    """Whether no recording into a folder is under way, or ended early."""
    try:
        return bool(json.loads((folder / RECORDING_STATE).read_text(encoding="utf-8")).get("done"))
    except FileNotFoundError:
        return True
    except (OSError, ValueError, AttributeError):
        return False


def _why_left_out(path: Path) -> str:
    if path.is_dir():
        is_link = "is a link to a folder, which is not followed"
        empty = kind_of_name(path.name) is not None and not any(p.is_file() for p in path.rglob("*"))
        return is_link if path.is_symlink() else "is a folder without a file in it" if empty else ""
    if not path.exists():
        return "is a link that leads nowhere"
    if not path.is_file():
        return "is no file, but a pipe, a socket or a device"
    return "" if path.stat().st_size else "is empty (0 bytes)"


def _is_no_file(source: str) -> bool:
    return may_be_table(source) and kind_of_name(source) is None and not source.endswith(".gz")


def may_be_table(source: str) -> bool:
    """Whether a name can be a table of the session."""
    return bool(re.fullmatch(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*){0,2}", source))


def is_data(path: PurePath) -> bool:
    """Whether a path below a folder is none that tools leave out, such as ``_SUCCESS``."""
    return not any(part.startswith((".", "_")) and part != "_delta_log" for part in path.parts)


def kind_of(source: str, files: list[Path] | None) -> str:
    """``capture``, ``parquet`` or ``delta``, from the names of files.

    Raises SourceError: they show no kind, or several.
    """
    names = [source] if files is None else [str(f) for f in files]
    if files is not None and (Path(bare_path(source)) / "_delta_log").is_dir():
        return "delta"
    kinds = {kind_of_name(n) for n in names}
    if len(kinds) == 1 and None not in kinds:
        return str(kinds.pop())
    of_kind = {kind: sorted(Path(n).name for n in names if kind_of_name(n) == kind) for kind in kinds}
    found = ", ".join(_named(of_kind[kind], kind) for kind in ("capture", "parquet", None) if kind in of_kind)
    logs = sorted(n for n in names if kind_of_name(n))
    one = f"Name one of its files, such as {logs[0]}, or a folder that contains one kind. " if logs else ""
    begins = _beginning(files)
    printed = FORMAT_HINT if begins.startswith(": it") and "{" in begins else ""
    kind = f"If you know its kind ({', '.join(KINDS)}), name it: ticdc-lab survey {shlex.quote(shown_source(source))} "
    kind += f"--source-kind values. Else record the topic: {RECORDING}"
    raise SourceError(
        f"Cannot detect what {source} is: it contains {found}; expected {_WHAT}."
        if files is not None and len(names) > 1
        else f"Cannot detect what {source} is{begins}; expected {_WHAT}.",
        hint=next((hint for f in (source, *(files or ())[:_LOOKED_INTO]) if (hint := converted_hint(str(f)))), "")
        or (EVENTS_HINT if "`kind`, `commit_ts`" in begins else f"{printed}{_database(source)}{one}{kind}"),
    )


_LOOKED_INTO = 100
"""Files of a folder among which one is looked for that resembles a form."""


def _beginning(files: Sequence[Path] | None) -> str:
    """What is in the one file that is there, for people: the fields of its first line, or its first bytes."""
    if not files:
        return ""
    with files[0].open("rb") as file:
        head, _ = head_of(file)
    return f": {first_line(head)}" if head else ""


def _database(source: str) -> str:
    """What a database of a consumer is called where one is meant."""
    is_one = PurePath(source).suffix in (".db", ".duckdb")
    return "A database is no log; two are compared as duckdb:///FILE: ticdc-lab compare --help. " if is_one else ""


def _named(names: Sequence[str], kind: str | None) -> str:
    """How many files of a kind there are, with the first one's name."""
    what = "file of another kind" if kind is None else f"{kind} file"
    which = names[0] if len(names) == 1 else f"{names[0]}, .."
    return f"{len(names)} {what if len(names) == 1 else what.replace('file', 'files', 1)} ({which})"


def kind_of_name(name: str) -> str | None:
    """``capture`` or ``parquet``; None where the ending shows neither."""
    if name.endswith(LINES):
        return "capture"
    return "parquet" if name.endswith(".parquet") else None


def has_columns_in_name(file: Path, source: str) -> bool:
    """Whether folders below the source name columns, as in ``partition=3``."""
    # as they are named: a file may be a link to one elsewhere
    return any("=" in part for part in file.absolute().relative_to(Path(bare_path(source)).absolute()).parts[:-1])

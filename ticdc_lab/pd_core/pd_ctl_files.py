"""Files that pd-ctl printed: found in folders, tars and zips by what they contain, read whole or in batches."""

from __future__ import annotations

import codecs
import gzip
import io
import json
import re
import shlex
import shutil
import tarfile
import tempfile
import zipfile
import zlib
from collections import defaultdict
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from typing import IO, Any, NamedTuple

import numpy as np
import orjson
import yaml
import zstandard

from ticdc_lab.errors import SourceError
from ticdc_lab.errors.bounded import (
    LIMITS_VARIABLE,
    OBJECT_OR_LIST,
    PRINTED,
    BoundedLoader,
    TextLimits,
    parse_documents,
    parse_toml,
    read_printed,
)

CHUNK = 8 << 20
"""Bytes read at a time."""

_HEAD = 4096
_WHOLE = 32 << 20
"""A file up to here may have several kinds of documents."""
_COLOURS = re.compile(rb"\x1b\[[0-9;]*m")
"""What ``jq -C`` writes around values."""
_ESCAPED = re.compile(rb"\\.", re.DOTALL)
_OPEN, _CLOSE = (ord("{"), ord("[")), (ord("}"), ord("]"))
_GZIP = b"\x1f\x8b"
_BROKEN = (OSError, EOFError, RuntimeError, zlib.error, tarfile.TarError, zipfile.BadZipFile, zstandard.ZstdError)
"""RuntimeError: a zip has a password, or is packed as Python cannot."""
_BEGINS = re.compile(rb"^[ \t\r\xc2\xbb>\xef\xbf]*" + OBJECT_OR_LIST.encode(), re.MULTILINE)
"""Where a document begins: tiup's words before it, and the prompt of a session, are skipped."""

STORES, REGIONS, CONFIG, RULES, LIMITS = "stores", "regions", "config", "rules", "store limits"
SCHEDULERS, OPERATORS, HOT = "schedulers", "operators", "hot regions"
HOT_STORES, HISTOGRAM, LABELS, OTHER = "hot stores", "histogram", "region labels", "unknown"
BROKEN = "broken"
"""A file that begins as JSON and is cut or has a fault."""
FIRST_SETTINGS = "settings of the first start"
"""TOML or YAML that PD reads when it starts for the first time: pd.toml, ``tiup cluster edit-config``."""
_FIRST = re.compile(
    rb"(?m)^[ \t]*(?:\[(?:schedule|replication)\]|server_configs:|(?:schedule|replication)\.[a-z-]+ *[:=])"
)
_ENCRYPTED = b"D1ag"
"""How a package begins that diag made of its folder."""
COMMANDS = {
    STORES: "store", REGIONS: "region", CONFIG: "config show all", LIMITS: "store limit",
    RULES: "config placement-rules rule-bundle load", SCHEDULERS: "scheduler show", OPERATORS: "operator show",
    HOT: "hot read", HOT_STORES: "hot store", HISTOGRAM: "region check hist-size",
    LABELS: "curl http://PD/pd/api/v1/config/region-label/rules",
}  # fmt: skip
"""Kinds of documents, and the command of pd-ctl that prints each."""


class PrintedFile(NamedTuple):
    """A file, or a member of a tar or zip; of one with several kinds of documents one ``kind``'s."""

    path: Path
    member: str = ""
    kind: str = ""
    copy: Path | None = None  # of a member of a tar, which can be read from its beginning only

    def __str__(self) -> str:
        return f"{self.path}: {self.member}" if self.member else str(self.path)

    @property
    def name(self) -> str:
        """The file's own name."""
        return Path(self.member or self.path).name


class PrintedFiles(NamedTuple):
    """Files by what they contain, and those that are nothing that pd-ctl prints."""

    of: Mapping[str, Sequence[PrintedFile]]
    unknown: Sequence[PrintedFile]

    def get(self, kind: str) -> Sequence[PrintedFile]:
        """Give the files of a kind."""
        return self.of.get(kind, ())


_PRINT_IT = "Give the JSON that pd-ctl prints; `ticdc-lab pd explain --help` names the commands."


def wrong(file: PrintedFile | Path, where: str, expected: str, found: object) -> SourceError:
    """Give the error of a document of another form."""
    text = (
        found.decode(errors="replace") if isinstance(found, bytes) else found if isinstance(found, str) else repr(found)
    )
    return SourceError(f"{file}: {where}: expected {expected}, found {text:.160}", hint=_PRINT_IT)


@contextmanager
def reading(file: PrintedFile | Path, kind: str) -> Iterator[None]:
    """Let what is of another form than pd-ctl prints be an error of its file, for any fault of the reader."""
    try:
        yield
    except SourceError:
        raise
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as e:
        why = f"{e} is not there" if isinstance(e, KeyError) else str(e)
        raise wrong(file, kind, f"what `{COMMANDS[kind]}` prints", why) from e


def opened(file: PrintedFile | Path) -> IO[bytes]:
    """Open a file or a member of a tar or zip, packed or not; UTF-16, as PowerShell writes it, is read as UTF-8."""
    try:
        stream = _unpacked(file.open("rb") if isinstance(file, Path) else _packed(file))
    except (*_BROKEN, KeyError) as e:
        why = getattr(e, "strerror", None) or str(e)
        folder = (file if isinstance(file, Path) else file.path).parent
        hint = f"List the folder: ls {shlex.quote(str(folder))}" if isinstance(e, FileNotFoundError) else _PRINT_IT
        raise SourceError(f"{file}: cannot be read: {why}", hint=hint) from e
    try:
        head = stream.peek(_HEAD)[:_HEAD]
    except _BROKEN:
        head = b""  # reading it shows what is wrong
    if head[:2] in (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE):
        return _AsUtf8(stream)  # type: ignore[return-value]
    if _COLOURS.search(head):
        return _Plain(stream)  # type: ignore[return-value]
    width = _width(head)
    return _Joined(stream, width) if width else stream  # type: ignore[return-value]


def is_coloured(file: PrintedFile) -> bool:
    """Whether a file has colours of a terminal, which are left out."""
    with opened(file) as stream:
        return isinstance(stream, _Plain)


def width_of(file: PrintedFile) -> int:
    """Give where a terminal cut the lines of a file, which are joined; 0 if they are as they are."""
    with opened(file) as stream:
        return stream.width if isinstance(stream, _Joined) else 0


def begins_with(file: PrintedFile) -> str:
    """Give the beginning of the first line of a file."""
    with opened(file) as stream:
        lines = stream.read(_HEAD).decode("utf-8", "replace").split("\n")
    return next((line.strip()[:60] for line in lines if line.strip()), "")


def _unpacked(stream: Any) -> Any:
    head = stream.peek(4)[:4]
    if head[:2] == _GZIP:
        return gzip.open(stream, "rb")
    if head == zstandard.FRAME_HEADER:
        return io.BufferedReader(zstandard.ZstdDecompressor().stream_reader(stream, read_across_frames=True))
    return stream


def _packed(file: PrintedFile) -> Any:
    if file.member and file.copy is None:
        return zipfile.ZipFile(file.path).open(file.member)
    return (file.copy or file.path).open("rb")


def _tar(path: Path) -> tarfile.TarFile | None:
    """Open a tar, which may be packed, as a stream; None for what is none."""
    try:
        return tarfile.open(fileobj=_unpacked(path.open("rb")), mode="r|*")
    except _BROKEN:
        return None


def _width(head: bytes) -> int:
    """Give where a terminal cut the lines of JSON that was copied from it; 0 if it cut none.

    A text or a number in JSON has no line feed, so a line that ends within one is cut; the others may not be longer.
    """
    lines = head.replace(b"\r\n", b"\n").split(b"\n")[:-1]
    width = max(map(len, lines), default=0)
    cut = any(
        len(line) == width and (len(_QUOTE.findall(line)) % 2 or ((line[-1:] + after[:1]).isdigit() and len(after) > 0))
        for line, after in pairwise([*lines, b""])
    )
    return width if width >= _NARROWEST and cut and _BEGINS.search(head) else 0


_QUOTE, _NARROWEST = re.compile(rb'(?<!\\)"'), 40


class _Joined(io.RawIOBase):
    """A stream whose lines a terminal cut at its width, with these joined."""

    def __init__(self, stream: IO[bytes], width: int) -> None:
        self._stream, self.width, self._at = stream, width, 0

    def read(self, size: int = -1) -> bytes:
        found = b""
        while not found and (data := self._stream.read(size)):
            lines = data.replace(b"\r", b"").split(b"\n")
            lines[0], begun = b"x" * self._at + lines[0], self._at
            ends = [b"" if len(line) == self.width else b"\n" for line in lines[:-1]] + [b""]
            found = b"".join(line + end for line, end in zip(lines, ends, strict=True))[begun:]
            self._at = len(lines[-1])
        return found


class _AsUtf8(io.RawIOBase):
    """A stream in UTF-16 as UTF-8."""

    def __init__(self, stream: IO[bytes]) -> None:
        self._stream, self._decoder = stream, codecs.getincrementaldecoder("utf-16")("replace")

    def read(self, size: int = -1) -> bytes:
        found = b""
        while not found and (data := self._stream.read(size)):
            found = self._decoder.decode(data).encode()
        while size and self._decoder.getstate()[0]:  # half a letter
            if not (data := self._stream.read(1)):
                raise EOFError("UTF-16 text that ends in the middle of a character: the file is cut")
            found += self._decoder.decode(data).encode()
        return found


class _Plain(io.RawIOBase):
    """A stream without the colours of a terminal."""

    def __init__(self, stream: IO[bytes]) -> None:
        self._stream, self._rest = stream, b""

    def read(self, size: int = -1) -> bytes:
        found = b""
        while not found and (data := self._stream.read(size)):
            text = _COLOURS.sub(b"", self._rest + data)
            begun = text.rfind(b"\x1b")
            cut = begun if begun >= 0 else len(text)  # a colour continues in the next read
            found, self._rest = text[:cut], text[cut:]
        return found


def documents(file: PrintedFile | Path) -> list[Any]:
    """Read all documents of a file: one, or several one after the other."""
    return [one for _, one in named_documents(file)]


def named_documents(file: PrintedFile | Path) -> list[tuple[str, Any]]:
    """Read all documents of a file, each with the command before it in a session of pd-ctl, else the file's name."""
    try:
        with opened(file) as stream:
            data = read_printed(stream)
    except (*_BROKEN, ValueError) as e:
        raise wrong(file, "the file", "a whole file within the limits", str(e)) from e
    found = documents_in(data, file)
    if not isinstance(file, PrintedFile) or not file.kind:
        return found
    return [(name, one) for name, one in found if _kind(one, name) == file.kind]


def documents_in(data: bytes, file: PrintedFile | Path) -> list[tuple[str, Any]]:
    """Read all documents of a text; ``file`` is what errors name."""
    data = _NOTHING.sub(rb"\1[]", data)
    start = _BEGINS.search(data)
    begin = start.start(1) if start else 0
    body, before = data[begin:] if start else data.strip(), data[:begin].decode("utf-8", "replace")

    def named(said: str) -> str:
        line = next((x for x in reversed(said.lower().splitlines()) if x.strip(" \r»>")), "")
        return line if any(part in line for part in _BY_NAME) else file.name.lower()

    try:
        return [(named(before), orjson.loads(body))]
    except orjson.JSONDecodeError:
        text = before + body.decode("utf-8", "replace")
        try:
            found = [(named(said), one) for said, one in parse_documents(text)]
        except json.JSONDecodeError as e:
            raise wrong(file, f"character {e.pos}", "JSON", text[max(0, e.pos - 20) : e.pos + 20]) from e
        except ValueError as e:
            raise wrong(file, "its JSON", "values that pd-ctl prints", str(e)) from e
    if not found:
        raise wrong(file, "character 0", "JSON", text[:40])
    return found


def first_settings(file: PrintedFile) -> dict[str, Any]:
    """Read PD's groups of settings in TOML, or in the YAML of tiup or of a TidbCluster; {} where it has none."""
    try:
        with opened(file) as stream:
            text = read_printed(stream).decode("utf-8", "replace")
        try:
            told: Any = parse_toml(text)
        except ValueError:
            told = yaml.load(text, BoundedLoader)
            while isinstance(told, Mapping) and (inner := told.get("topology") or told.get("spec")):
                told = inner
            told = (told.get("server_configs") or told).get("pd") or {}
            config = told.get("config") if isinstance(told, Mapping) else None
            told = parse_toml(config) if isinstance(config, str) else told if config is None else config
        found: dict[str, Any] = {}
        for name, value in told.items():
            group, _, setting = name.partition(".")
            if group in ("schedule", "replication"):
                found.setdefault(group, {}).update({setting: value} if setting else value)
    except (*_BROKEN, AttributeError, TypeError, ValueError, yaml.YAMLError):
        return {}
    return found


def document(file: PrintedFile | Path) -> Any:
    """Read the first document of a file."""
    return documents(file)[0]


def listed(file: PrintedFile | Path, key: str, told: Sequence[Any] | None = None) -> list[Mapping[str, Any]]:
    """Read the objects of all documents: in a list under a key, in a list by itself, or one by itself."""
    found: list[Mapping[str, Any]] = []
    for one in documents(file) if told is None else told:
        inner = one.get(key) if isinstance(one, Mapping) and key in one else one
        inner = _of_key(inner) if isinstance(inner, Mapping) else inner
        inner = [inner] if isinstance(inner, Mapping) and key not in inner and len(inner) > 1 else inner
        if inner is None:
            continue
        if not isinstance(inner, list) or not all(isinstance(i, Mapping) for i in inner):
            raise wrong(file, key, f'a list of objects under "{key}"', inner)
        found.extend(inner)
    return found


def _of_key(found: Mapping[str, Any]) -> Mapping[str, Any]:
    """Give the region that `region key` prints inside of another object; any other object as it is."""
    inner = found.get("region")
    return inner if len(found) == 1 and isinstance(inner, Mapping) else found


def batches(file: PrintedFile | Path, key: str) -> Iterator[list[dict[str, Any]]]:
    """Read the objects of lists under a key, or one a line, a few thousand at a time.

    ``file``: documents one after the other, as ``region scan`` prints them: ``{"count": .., KEY: [{..}, ..]}``,
    ``[{..}, ..]`` or an object each. ``key``: the name of the list.
    """
    if isinstance(file, PrintedFile) and file.kind:
        yield listed(file, key)  # type: ignore[misc]
        return
    with opened(file) as stream:
        rest, any_read = _read(file, stream, _HEAD), False
        while True:
            begin = _BEGINS.search(rest)
            while begin is None and (more := _read(file, stream)):
                rest += more
                begin = _BEGINS.search(rest)
            if begin is None:
                if not any_read and rest.strip() not in (b"", b"null"):  # null: no region of this id
                    raise wrong(file, "end of the file", "complete objects", rest[:60])
                return
            rest = rest[begin.start(1) :]
            if len(rest) < _HEAD:
                rest += _read(file, stream, _HEAD)
            under = re.match(rb'\{(?:[^\[\]{}"]|"(?:[^"\\]|\\.)*")*?"%s"\s*:\s*(null\b|\[)' % key.encode(), rest)
            if under is None and rest.startswith(b"{"):
                ends = 0  # objects one after the other
            else:
                ends = 1 if under is None else 2
                rest = rest[1:] if under is None else rest[under.end() :]
            if under is not None and under[1] == b"null":
                ends = 1
            any_read = True
            rest, over = yield from _objects(file, stream, rest, ends)
            if over:
                return


def _objects(
    file: PrintedFile | Path, stream: IO[bytes], rest: bytes, ends: int
) -> Generator[list[dict[str, Any]], None, tuple[bytes, bool]]:
    """Give the objects of one document in batches; return what follows it, and whether the file ends there.

    ``ends`` is how many closing brackets end the document after its last object.
    """
    over = False
    while True:
        if not over:
            end, over = _complete(rest)
            yield _decoded(file, rest[:end])
            rest = rest[end:]
        if over and (after := _after(rest, ends)) is not None:
            return rest[after:], False
        more = _read(file, stream)
        if not more:
            if not over and rest.strip(b" \t\r\n,]"):
                raise wrong(file, "end of the file", "complete objects", rest[:60])
            return b"", True
        if len(rest) > PRINTED * TextLimits.in_force().bytes:
            raise wrong(file, "an object", f"less than {PRINTED} times the bytes of {LIMITS_VARIABLE}", rest[:60])
        rest += more


def _read(file: PrintedFile | Path, stream: IO[bytes], size: int = 0) -> bytes:
    try:
        return stream.read(size or CHUNK)
    except _BROKEN as e:
        raise wrong(file, "the file", "a whole file", str(e)) from e


def _depths(text: bytes) -> tuple[Any, Any]:
    plain = np.frombuffer(_ESCAPED.sub(b"xx", text) if b"\\" in text else text, dtype=np.uint8)
    outside = (np.cumsum(plain == ord('"')) & 1) == 0
    opening = ((plain == _OPEN[0]) | (plain == _OPEN[1])) & outside
    closing = ((plain == _CLOSE[0]) | (plain == _CLOSE[1])) & outside
    return np.cumsum(opening.astype(np.int8) - closing.astype(np.int8), dtype=np.int32), closing


def _complete(text: bytes) -> tuple[int, bool]:
    """Give where the last complete object ends, and whether the list is over there."""
    depth, closing = _depths(text)
    past = np.flatnonzero(depth < 0)
    last = int(past[0]) if len(past) else len(depth)
    ends = np.flatnonzero(closing[:last] & (depth[:last] == 0))
    return (int(ends[-1]) + 1 if len(ends) else 0), bool(len(past))


def _after(text: bytes, ends: int) -> int | None:
    """Give where a document is over, behind its last bracket; None where that is not read yet."""
    past = np.flatnonzero(_depths(text)[0] <= -max(ends, 1))
    return int(past[0]) + 1 if len(past) else None


def _decoded(file: PrintedFile | Path, text: bytes) -> list[dict[str, Any]]:
    joined = text.strip(b" \t\r\n,")
    if not joined:
        return []
    try:
        found: list[dict[str, Any]] = orjson.loads(b"[" + joined + b"]")
        if isinstance(found[0], dict) and found[0].keys() == {"region"}:
            found = [dict(_of_key(one)) for one in found]
    except orjson.JSONDecodeError:
        depth, closing = _depths(joined)
        ends = [0, *(np.flatnonzero(closing & (depth == 0)) + 1).tolist()]  # objects without commas between them
        try:
            found = [orjson.loads(joined[a:b].strip(b" \t\r\n,")) for a, b in pairwise([*ends[:-1], len(joined)])]
        except orjson.JSONDecodeError as e:
            raise wrong(file, "a list", "JSON objects", joined[max(0, e.pos - 20) : e.pos + 40]) from e
    return found


def printed_files(given: Sequence[str | Path], copies: str | Path) -> PrintedFiles:
    """Find what pd-ctl printed.

    ``given``: files, folders, tars, zips; each file is recognised by what it contains, with any name, and may have
    several kinds of documents, as a session of pd-ctl. The folder that PingCAP Clinic's diag makes is one of these:
    ``HOST/DEPLOY_DIR/conf/`` of each PD has ``store.json``, ``config.json``, ``placement-rule.json``. ``copies``: a
    folder for what is in tars.
    """
    of: dict[str, list[PrintedFile]] = defaultdict(list)
    unknown = []
    for file, found in (f for one in given for f in _found(Path(one), Path(copies))):
        kinds = [k for k in found if k != OTHER]
        for kind in kinds:
            of[kind].append(file._replace(kind=kind) if len(found) > 1 and BROKEN not in found else file)
        unknown += [] if kinds and OTHER not in found else [file._replace(kind=OTHER) if kinds else file]
    return PrintedFiles(of, unknown)


def _found(path: Path, copies: Path) -> Iterator[tuple[PrintedFile, list[str]]]:
    """Give files and what each contains."""
    if path.is_dir():
        for p in sorted(p for p in path.rglob("*") if p.is_file() and not p.name.startswith(".")):
            yield from _found(p, copies)
        return
    files = [PrintedFile(path)]
    if path.is_file():
        try:
            if zipfile.is_zipfile(path):
                names = [i.filename for i in zipfile.ZipFile(path).infolist() if not i.is_dir()]
                files = [PrintedFile(path, name) for name in names if not Path(name).name.startswith(".")]
        except _BROKEN as e:
            raise wrong(path, "the zip", "a whole zip", str(e)) from e
        if (tar := _tar(path)) is not None:
            yield from _in_tar(path, tar, copies)
            return
    for file in files:
        yield file, kinds_of(file)


def _in_tar(path: Path, tar: tarfile.TarFile, copies: Path) -> Iterator[tuple[PrintedFile, list[str]]]:
    """Read a tar once and copy what pd-ctl printed; of other members the beginning, for a moment."""
    try:
        for member in tar:
            inside = tar.extractfile(member) if member.isfile() else None
            if inside is None or Path(member.name).name.startswith("."):
                continue
            with tempfile.NamedTemporaryFile(dir=copies, delete=False) as copy:
                copy.write(inside.read(_WHOLE + 1))
                copy.flush()
                file = PrintedFile(path, member.name, copy=Path(copy.name))
                if (kinds := kinds_of(file)) != [OTHER]:
                    shutil.copyfileobj(inside, copy)
            if kinds == [OTHER]:
                Path(copy.name).unlink()
            yield file, kinds
    except _BROKEN as e:
        raise wrong(path, "the tar", "a whole tar", str(e)) from e


def kinds_of(file: PrintedFile) -> list[str]:
    """Give what a file contains; :data:`OTHER` for what pd-ctl does not print, as a log or TiKV's settings."""
    with opened(file) as stream:
        head = _read(file, stream, _WHOLE + 1)
    broken: list[str] = []
    if len(head) <= _WHOLE:
        try:
            found = [(one, _kind(one, name)) for name, one in named_documents(file)]
            return list(dict.fromkeys(kind for one, kind in found if one or kind != OTHER)) or [OTHER]
        except SourceError:
            broken = [BROKEN]  # cut off, or no JSON: the visible part decides, and reading it shows what is wrong
    if head.startswith(_ENCRYPTED):
        hint = "Give the folder that diag collected, from before `diag package`."
        raise SourceError(f"{file}: diag packed it for Clinic, whose key alone opens it", hint=hint)
    if _FIRST.search(head[:CHUNK]) and first_settings(file):
        return [FIRST_SETTINGS]
    begin = _BEGINS.search(head)
    seen = head[begin.start(1) : begin.start(1) + _HEAD] if begin else b""
    for kind, mark in (
        (REGIONS, rb'"peers"\s*:'), (STORES, rb'"(?:stores|state_name)"\s*:'), (RULES, rb'"group_id"\s*:'),
        (REGIONS, rb'"regions"\s*:'),
    ):  # fmt: skip
        if re.search(mark, seen):
            return [kind, *broken]
    return broken if begin is not None and not head[: begin.start(1)].strip(_BEFORE) and broken else [OTHER]


_BEFORE = b" \t\r\n\xef\xbb\xbf"
_BY_NAME = {"operator": OPERATORS, "scheduler": SCHEDULERS, "rule": RULES, "hot": HOT, "region": REGIONS}
_NOTHING = re.compile(rb"(?m)^([^\n{}\[\]\"]*(?:%s)[^\n{}\[\]\"]*\n+)null\b" % "|".join(_BY_NAME).encode())
"""A command in a session of pd-ctl that printed ``null``, as for no operator."""
_ARGUMENTS = (
    "store-id-ranges", "min-hot-byte-rate", "evict-stores", "evict-by-trend-stores", "evicted-stores", "roles", "batch",
    "range-name", "store-leader-id", "recovery-duration", "ranges",
)  # fmt: skip


def _kind(told: Any, name: str) -> str:
    if told in ([], None, {}):
        return next((kind for part, kind in _BY_NAME.items() if part in name), OTHER)
    if isinstance(told, list):
        return _kind_of_list(told)
    if isinstance(told, str):
        return CONFIG if re.fullmatch(r"v?\d+\.\d+\.\d+[\w.-]*", told) else OTHER
    if not isinstance(told, Mapping):
        return OTHER
    keys = set(told)
    marks = (
        (STORES, _has_stores(told.get("stores", "")) or {"store", "status"} <= keys),
        (REGIONS, isinstance(told.get("regions", ""), list | None) or {"id", "start_key", "peers"} <= {*_of_key(told)}),
        (RULES, {"group_id", "rules"} <= keys or {"group_id", "role", "count"} <= keys),
        (RULES, _is_group(told)),
        (LABELS, {"rule_type", "labels"} <= keys),
        (HOT, bool(keys & {"as_peer", "as_leader"})),
        (HOT_STORES, any(re.fullmatch(r"(bytes|keys|query|cpu)-(write|read)-rate", k) for k in keys)),
        (SCHEDULERS, any(k.endswith("-scheduler") for k in keys) or bool(keys & set(_ARGUMENTS))),
        (LIMITS, all(k.isdigit() for k in keys) and all(_is_limit(v) for v in told.values())),
        (CONFIG, bool(keys & {"schedule", "replication"}) or {"max-snapshot-count", "low-space-ratio"} <= keys
                 or {"max-replicas", "location-labels"} <= keys or {"use-region-storage", "key-type"} <= keys
                 or isinstance(told.get("reject-leader"), list)),
    )  # fmt: skip
    return next((kind for kind, holds in marks if holds), OTHER)


def _has_stores(told: Any) -> bool:
    """Whether this is a list as `store` prints it, not the counts that PD's API gives elsewhere."""
    return told is None or (
        isinstance(told, list) and (not told or any(isinstance(s, Mapping) and "store" in s for s in told))
    )


def _is_group(told: Mapping[str, Any]) -> bool:
    """Whether this is a group of rules, not what `cluster` prints, whose id is a number."""
    return isinstance(told.get("id"), str) and set(told) <= {"id", "index", "override"}


def _is_limit(told: Any) -> bool:
    return isinstance(told, Mapping) and bool({"add-peer", "remove-peer", "rate"} & set(told))


def _kind_of_list(told: list[Any]) -> str:
    first = told[0]
    if isinstance(first, str):
        if "(kind:" in first:
            return OPERATORS
        named = all(isinstance(t, str) and ("scheduler" in t or t.startswith("scatter-range-")) for t in told)
        return SCHEDULERS if named else OTHER
    keys = set(first) if isinstance(first, Mapping) else set()
    marks = (
        (RULES, "rules" in keys or {"role", "count"} <= keys or (bool(keys) and _is_group(first))),
        (LABELS, {"rule_type", "labels"} <= keys),
        (REGIONS, {"id", "peers"} <= keys or {"count", "regions"} <= keys),
        (STORES, {"store", "status"} <= keys),
        (HISTOGRAM, {"start", "end", "count"} <= keys),
        (OPERATORS, {"desc", "brief"} <= keys),
        (SCHEDULERS, ("name" in keys and bool(keys & {"status", "paused_at"})) or {"job-id", "rule"} <= keys),
    )
    return next((kind for kind, holds in marks if holds), OTHER)

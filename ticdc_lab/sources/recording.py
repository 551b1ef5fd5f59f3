"""Messages recorded into capture files or Parquet, so that any end of the process loses and doubles nothing.

A part is written under a hidden name. Now and then what is written is *committed*: the bytes are made durable, then a
small state file records how far they go and which offsets come next, in one rename. A resumed run cuts the part to
the state and reads from those offsets. A part gets its name when it is whole, which the state records beforehand.
"""

from __future__ import annotations

import json
import os
import zlib
from binascii import b2a_base64
from collections.abc import Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, BinaryIO, Protocol

import pyarrow as pa
import pyarrow.parquet as pq

from ticdc_lab.codecs.kernel.arrow import arrow_schema
from ticdc_lab.errors import SourceError
from ticdc_lab.errors.whole_files import room_for
from ticdc_lab.events.schema import MESSAGES
from ticdc_lab.sources.kafka_reading import Place
from ticdc_lab.sources.places import RECORDING_STATE

FORMATS = ("jsonl.gz", "jsonl", "parquet")
STATE = RECORDING_STATE
"""The state of a folder; a file ``topic.jsonl.gz`` has ``.topic.jsonl.gz.recording.json`` beside it."""

COMMIT_BYTES = 64 << 20
_GROUP_BYTES = 32 << 20
_WRITES_AHEAD = 2


@dataclass(frozen=True, slots=True)
class RecordingState:
    """How far a recording is; all that is in it is durable."""

    # ``source``, ``ids``: what is recorded, and what distinguishes its topics from later ones of their names.
    source: str
    ids: Mapping[str, str] = field(default_factory=dict)
    # ``positions``, ``ends``: the next offset of each partition, and before which it ends; no ends where it is
    # followed.
    positions: Mapping[Place, int] = field(default_factory=dict)
    ends: Mapping[Place, int] | None = None
    # ``part``, ``pieces``: the number of the part that is being written, and how much of it counts: bytes, of Parquet
    # files.
    part: int = 0
    pieces: int = 0
    closing: bool = False  # whether this part is whole and only has to get its name
    done: bool = False  # whether nothing is left to record
    # ``messages``, ``bytes``: how many are recorded, and their keys and values.
    messages: int = 0
    bytes: int = 0
    notes: tuple[str, ...] = ()  # what is missing in the recording, a sentence each

    def as_json(self) -> str:
        """One object; partitions are lists, as they have no text form."""
        told = asdict(self)
        for name in ("positions", "ends"):
            told[name] = None if told[name] is None else [[*at, offset] for at, offset in sorted(told[name].items())]
        return json.dumps({"version": 1, **told}, indent=1) + "\n"

    @classmethod
    def from_json(cls, text: str, file: Path) -> RecordingState:
        """Read what :meth:`as_json` gave. Raises SourceError: it is damaged, or of another version."""
        try:
            told = json.loads(text)
            if told.pop("version") != 1:
                raise ValueError("another version")
            for name in ("positions", "ends"):
                told[name] = None if told[name] is None else {(t, p): o for t, p, o in told[name]}
            return cls(**told | {"notes": tuple(told["notes"])})
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise SourceError(
                f"{file} stores how far a recording is, but cannot be read ({type(error).__name__}: {error}).",
                hint="Record into another place with --out.",
            ) from None


class Part(Protocol):
    """A part that is being written, under a hidden name."""

    def write(self, messages: pa.RecordBatch) -> None:
        """Add messages."""

    def commit(self) -> int:
        """Make all that was added durable; how much of the part counts from now on."""

    def close(self, target: Path) -> None:
        """Give what was committed its name."""


class Recording:
    """A recording in one file or a folder, begun or resumed.

    ``out``: ``*.jsonl``, ``*.jsonl.gz`` or ``*.parquet``, or a folder. A device or a pipe gets lines as they come;
    nothing resumes them. ``form``: one of :data:`FORMATS`, of the files of a folder. ``source``: what is recorded, as
    the state names it; a recording of something else is not resumed. ``rotate_bytes``: keys and values after which
    a folder gets another file. Raises SourceError: something else lies there.
    """

    def __init__(self, out: str, *, source: str, form: str = "jsonl.gz", rotate_bytes: int | None = None) -> None:
        self.out = Path(out)
        named = next((f for f in FORMATS if out.endswith(f".{f}")), None)
        self.is_device = self.out.exists() and not self.out.is_file() and not self.out.is_dir()
        self.form = "jsonl" if self.is_device else named or form
        self.is_folder = named is None and not self.is_device
        self._rotate_bytes = rotate_bytes if self.is_folder else None
        hidden = self.out if self.is_folder else self.out.parent
        self._state_file = hidden / (STATE if self.is_folder else f".{self.out.name}{STATE}")
        self._written = self._in_part = 0
        self.begun = self._state_file.exists() and not self.is_device
        draft = self._state_file.with_name(f"{self._state_file.name}.new")
        others = {draft} if not self.out.is_dir() else {*self.out.iterdir()} - {draft}
        if not self.begun and self.out.exists() and others and not self.is_device:
            raise SourceError(
                f"{out} exists and is not a recording that can be resumed.",
                hint="Remove it, or name another place with --out.",
            )
        self.state = RecordingState(source)
        if self.begun:
            self.state = RecordingState.from_json(self._state_file.read_text(encoding="utf-8"), self._state_file)
            if self.state.source != source:
                raise SourceError(
                    f"{out} contains a recording of {self.state.source}, not of {source}.",
                    hint="Name another place with --out.",
                )
        self.so_far = self.state
        """With what is not durable yet."""
        self._part: Part | None = None

    def begin(self, state: RecordingState) -> None:
        """Write down what is recorded, before the first message."""
        with room_for(self.out, keep=True):
            self._state_file.parent.mkdir(parents=True, exist_ok=True)
            self._say(state)
            self.begun = not self.is_device

    def go_on(self) -> None:
        """Give a part its name that was whole when the process ended."""
        if self.state.closing:
            self._named()

    def write(self, messages: pa.RecordBatch, positions: Mapping[Place, int]) -> None:
        """Add messages; ``positions`` are those behind them. Rotates and commits by size."""
        with room_for(self.out, keep=True):
            if messages.num_rows:
                if self._part is None:
                    self._part = self._opened()
                self._part.write(messages)
            size = sum(messages[name].nbytes for name in ("key", "value"))
            self._written, self._in_part = self._written + size, self._in_part + size
            n_messages, n_bytes = self.so_far.messages + messages.num_rows, self.so_far.bytes + size
            self.so_far = replace(self.so_far, positions=dict(positions), messages=n_messages, bytes=n_bytes)
        if self._rotate_bytes is not None and self._in_part >= self._rotate_bytes:
            self.rotate()
        elif self._written >= COMMIT_BYTES:
            self.commit()

    def note(self, *sentences: str) -> None:
        """Keep what is missing in the recording."""
        new = tuple(s for s in sentences if s not in self.so_far.notes)
        self.so_far = replace(self.so_far, notes=(*self.so_far.notes, *new))

    def commit(self, *, closing: bool = False, done: bool = False) -> None:
        """Make durable what was written."""
        with room_for(self.out, keep=True):
            pieces = self.state.pieces if self._part is None else self._part.commit()
            self._say(replace(self.so_far, pieces=pieces, closing=closing and self._is_begun(), done=done))
            self._written = 0

    def rotate(self, *, done: bool = False) -> None:
        """End the part: it gets its name, and the next message begins another."""
        self.commit(closing=True, done=done)
        if self.state.closing:
            self._named()

    def finish(self) -> None:
        """Nothing is left to record: a file gets its name, of no message too."""
        if not self.is_folder and self._part is None and not self.state.pieces and not self.state.messages:
            self._part = self._opened()
            self._part.write(pa.RecordBatch.from_pylist([], arrow_schema(MESSAGES)))
        self.rotate(done=True)
        if not self.is_folder and not self.is_device:
            self._state_file.unlink()

    def _named(self) -> None:
        with room_for(self.out, keep=True):
            if self._is_begun():  # else the process ended after the last of these renames
                (self._part or self._opened()).close(self._target())
            if not self.is_device:
                _durable(self._target().parent)
            self._part, self._in_part = None, 0
            self._say(replace(self.state, part=self.state.part + 1, pieces=0, closing=False))

    def _is_begun(self) -> bool:
        """Whether something of the part lies under a hidden name, or is on its way to a device."""
        if self.is_device:
            return self._part is not None
        return any(self._hidden().parent.glob(f"{self._hidden().name}*"))

    def begin_anew(self) -> None:
        """Remove what an earlier run left."""
        if not self.is_device:
            drafts = f".{'part-' if self.is_folder else self.out.name}*.part*"
            for file in (*parts_of(self.out), *self._hidden().parent.glob(drafts)):
                file.unlink()
        self.begin(RecordingState(self.state.source))

    def _target(self) -> Path:
        return self.out / f"part-{self.state.part:06d}.{self.form}" if self.is_folder else self.out

    def _hidden(self) -> Path:
        target = self._target()
        return target.with_name(f".{target.name}.part")

    def _opened(self) -> Part:
        if self.is_device:
            return DevicePart(self.out)
        kind = ParquetPart if self.form == "parquet" else LinesPart
        return kind(self._hidden(), self.state.pieces)

    def _say(self, state: RecordingState) -> None:
        if self.is_device:
            self.state = self.so_far = state
            return
        new = self._state_file.with_name(f"{self._state_file.name}.new")
        with new.open("w", encoding="utf-8") as file:
            file.write(state.as_json())
            file.flush()
            os.fsync(file.fileno())
        new.replace(self._state_file)
        _durable(self._state_file.parent)
        self.state = self.so_far = state


def _durable(folder: Path) -> None:
    """What was renamed in a folder stays so when the machine loses its power."""
    place = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(place)
    finally:
        os.close(place)


class DevicePart:
    """Lines to what is no file, such as /dev/null: nothing of them lies anywhere."""

    def __init__(self, path: Path) -> None:
        self._file = path.open("wb")

    def write(self, messages: pa.RecordBatch) -> None:
        """Add a line for each message."""
        self._file.write(lines_of(messages))

    def commit(self) -> int:
        """Hand over what was written."""
        self._file.flush()
        return 0

    def close(self, target: Path) -> None:
        """End it."""
        self._file.close()


class LinesPart:
    """A capture file; where it is packed, each commit ends a gzip member, so that any of them ends a whole file."""

    def __init__(self, path: Path, length: int) -> None:
        self._path = path
        path.touch()
        os.truncate(path, length)
        self._file: BinaryIO = path.open("ab")
        self._packed = path.name.endswith(".gz.part")
        self._member: Any = None
        self._writing, self._waiting = ThreadPoolExecutor(1), list[Future[None]]()  # zlib leaves the interpreter free

    def write(self, messages: pa.RecordBatch) -> None:
        """Add a line for each message."""
        self._waiting.append(self._writing.submit(self._put, lines_of(messages)))
        while len(self._waiting) > _WRITES_AHEAD:
            self._waiting.pop(0).result()

    def _put(self, text: bytes) -> None:
        if not self._packed:
            self._file.write(text)
            return
        if self._member is None:
            self._member = zlib.compressobj(1, wbits=31)
        self._file.write(self._member.compress(text))

    def commit(self) -> int:
        """End the gzip member, and make all bytes durable."""
        while self._waiting:
            self._waiting.pop(0).result()
        if self._member is not None:
            self._file.write(self._member.flush())
            self._member = None
        self._file.flush()
        os.fsync(self._file.fileno())
        return self._file.tell()

    def close(self, target: Path) -> None:
        """Rename it."""
        self._file.close()
        self._writing.shutdown()
        self._path.replace(target)


class ParquetPart:
    """A Parquet file from files of a commit each: none can be added to, so they are put together at the end."""

    def __init__(self, path: Path, pieces: int) -> None:
        self._path, self._pieces = path, pieces
        self._draft = path.with_name(f"{path.name}.new")
        self._draft.unlink(missing_ok=True)
        for piece in path.parent.glob(f"{path.name}.*"):
            if int(piece.name.rpartition(".")[2]) >= pieces:
                piece.unlink()
        self._held: list[pa.RecordBatch] = []
        self._size = 0
        self._writer: pq.ParquetWriter | None = None

    def _piece(self, number: int) -> Path:
        return self._path.with_name(f"{self._path.name}.{number}")

    def write(self, messages: pa.RecordBatch) -> None:
        """Add messages."""
        self._held.append(messages)
        self._size += messages.nbytes
        if self._size >= _GROUP_BYTES:
            self._write_group()

    def _write_group(self) -> None:
        if self._writer is None:
            self._writer = _writer(self._piece(self._pieces))
        if self._held:
            self._writer.write_table(pa.Table.from_batches(self._held))
        self._held, self._size = [], 0

    def commit(self) -> int:
        """End the file of this commit."""
        if self._held:
            self._write_group()
        if self._writer is not None:
            self._writer.close()
            self._writer = None
            _flushed(self._piece(self._pieces))
            self._pieces += 1
        return self._pieces

    def close(self, target: Path) -> None:
        """Put the files together, row group by row group; where that was done before, the rest of it."""
        pieces = [self._piece(n) for n in range(self._pieces)]
        if not self._path.exists():
            if len(pieces) == 1:
                pieces[0].replace(self._path)
            else:
                with _writer(self._draft) as whole:
                    for piece in pieces:
                        with pq.ParquetFile(piece) as file:
                            for group in range(file.num_row_groups):
                                whole.write_table(file.read_row_group(group))
                _flushed(self._draft)
                self._draft.replace(self._path)
        for piece in pieces:
            piece.unlink(missing_ok=True)
        self._path.replace(target)


def _writer(path: Path) -> pq.ParquetWriter:
    return pq.ParquetWriter(path, arrow_schema(MESSAGES), compression="zstd", compression_level=1)


def _flushed(path: Path) -> None:
    with path.open("rb") as file:
        os.fsync(file.fileno())


def lines_of(messages: pa.RecordBatch) -> bytes:
    r"""Messages as lines of a capture file.

    Examples
    --------
    >>> row = {"topic": "t", "partition": 0, "offset": 7, "key": None, "value": b"x", "headers": [("h", b"y")]}
    >>> lines_of(pa.RecordBatch.from_pylist([row], arrow_schema(MESSAGES)))
    b'{"topic":"t","partition":0,"offset":7,"timestamp":null,"key":null,"value":"eA==","headers":[["h","eQ=="]]}\n'
    """
    topics = [json.dumps(topic) for topic in messages["topic"].to_pylist()]
    stamps = messages["timestamp"].cast(pa.int64()).to_pylist()
    headers = (
        messages["headers"].to_pylist() if messages["headers"].null_count < len(messages) else [None] * len(messages)
    )
    rows = zip(
        topics, messages["partition"].to_pylist(), messages["offset"].to_pylist(), stamps,
        messages["key"].to_pylist(), messages["value"].to_pylist(), headers, strict=True,
    )  # fmt: skip
    return "".join(
        f'{{"topic":{topic},"partition":{_number(partition)},"offset":{_number(offset)},'
        f'"timestamp":{"null" if stamp is None else stamp // 1000},"key":{_base64(key)},"value":{_base64(value)},'
        f'"headers":{_headers(header) if header else "[]"}}}\n'
        for topic, partition, offset, stamp, key, value, header in rows
    ).encode()


def _number(value: int | None) -> int | str:
    return "null" if value is None else value


def _base64(value: bytes | None) -> str:
    return "null" if value is None else f'"{b2a_base64(value, newline=False).decode()}"'


def _headers(headers: list[Any]) -> str:
    pairs = (h if isinstance(h, tuple) else (h["key"], h["value"]) for h in headers)
    return "[" + ",".join(f"[{json.dumps(name)},{_base64(value)}]" for name, value in pairs) + "]"


def parts_of(folder: Path) -> Iterator[Path]:
    """The whole files of a recording in a folder, in their order."""
    yield from sorted(p for p in folder.glob("part-*") if any(p.name.endswith(f".{form}") for form in FORMATS))

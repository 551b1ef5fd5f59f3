"""A watch whose rows lie in buckets, each with a file of its own: what the tasks of a cluster do, without a cluster.

A task reads part of a batch: what it states of the log, which is small, goes to the driver, and the changes of its rows
go to their buckets. What the log states is known before rows are judged, as on the desk, so the findings are the same.
A step writes a new file of its bucket and changes no old one: a batch that ends before its commit is done once more.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ticdc_lab.audit.history import Changes, changes_of
from ticdc_lab.audit.marks import Promises
from ticdc_lab.engine.shuffle import bucket_of
from ticdc_lab.errors.whole_files import room_for
from ticdc_lab.events.arrays import Ints
from ticdc_lab.watch.folder import arrays_of, bytes_of
from ticdc_lab.watch.rows import CHANGE, LastChanges, RecentChanges, joined
from ticdc_lab.watch.state import RowsJudged, Watched, WatchState, newest, with_changes


def cut(events: pa.Table, buckets: int) -> Iterator[tuple[int, bytes]]:
    """The changes of rows among events by bucket, as :func:`stepped` takes them."""
    whole = events.filter(pc.is_null(events["error_class"]))
    changes = Changes.read(changes_of(whole))
    if not len(changes):
        return
    bucket = bucket_of(pa.array(changes.row_id), buckets)
    order = np.argsort(bucket, kind="stable")
    ends = np.flatnonzero(np.diff(bucket[order])) + 1
    for own in np.split(order, ends):
        yield int(bucket[own[0]]), _packed(changes[own])


def _packed(changes: Changes) -> bytes:
    return bytes_of({name: getattr(changes, name) for name in CHANGE})


@dataclass(frozen=True, slots=True)
class Bucket:
    """A bucket after a step."""

    judged: RowsJudged  # what became of the changes that it took
    # ``suspects``, ``dropped``: as of :class:`ticdc_lab.watch.state.WatchState`.
    suspects: Changes
    dropped: bool
    # ``rows``, ``nbytes``: how many rows it remembers, and about how much all of it takes.
    rows: int
    nbytes: int


def stepped(
    folder: str, bucket: int, packs: Sequence[bytes | pa.Buffer], watched: Watched, promises: Promises, *,
    before: int | None, version: int, kept_ts: int,
) -> Bucket:  # fmt: skip
    """Take the changes of a batch into a bucket, and write its new file.

    ``folder``: where the files of all buckets are. ``bucket``, ``packs``: as :func:`cut` gives them, of the whole
    batch. ``watched``, ``promises``, ``kept_ts``: as of :func:`ticdc_lab.watch.state.with_changes`. ``before``,
    ``version``: of the file that is read, None for none yet, and of the one that is written. Others are removed.
    """
    state = WatchState() if before is None else read(folder, bucket, before)
    new = joined(Changes(*arrays_of(pack).values()) for pack in packs)
    state, judged = with_changes(state, new, watched, promises, kept_ts=kept_ts)
    _write(state, _file(folder, bucket, version))
    state = read(folder, bucket, version)  # a row that changed lately counts once
    for other in Path(folder).glob(f"{bucket}-*.arrow"):
        if other not in (_file(folder, bucket, version), _file(folder, bucket, before)):
            other.unlink(missing_ok=True)
    return Bucket(judged, state.suspects, state.dropped, len(state.rows), state.nbytes)


def read_all(folder: str, versions: Mapping[int, int]) -> dict[int, Bucket]:
    """Each bucket as it was after the step that wrote a version of its file."""
    found = dict[int, Bucket]()
    for bucket, version in versions.items():
        state = read(folder, bucket, version)
        found[bucket] = Bucket(RowsJudged(), state.suspects, state.dropped, len(state.rows), state.nbytes)
    return found


def with_suspects(state: WatchState, of_buckets: Mapping[int, Bucket], watched: Watched) -> WatchState:
    """The state of the log with the suspects of all buckets: what findings are about."""
    every = joined(of_buckets[bucket].suspects for bucket in sorted(of_buckets))
    suspects = newest(every, watched.suspects)
    dropped = len(suspects) < len(every) or any(b.dropped for b in of_buckets.values())
    return replace(state, suspects=suspects, dropped=state.dropped or dropped)


def _file(folder: str, bucket: int, version: int | None) -> Path:
    return Path(folder) / f"{bucket}-{version}.arrow"


def _write(state: WatchState, file: Path) -> None:
    new = file.with_suffix(f".{os.getpid()}.new")
    with room_for(file.parent, keep=True):
        with new.open("wb") as out:
            out.write(as_bytes(state))
            out.flush()
            os.fsync(out.fileno())
        new.rename(file)


def as_bytes(state: WatchState) -> bytes:
    """All that a bucket remembers of rows."""
    parts = {f"{i} {n}": getattr(p, n) for i, p in enumerate((state.suspects, *state.recent.parts)) for n in CHANGE}
    bounds = np.array([state.evicted_ts, state.recent.since, state.dropped])
    return bytes_of({**state.rows.as_arrays(), **parts, "bounds": bounds})


def read(folder: str, bucket: int, version: int) -> WatchState:
    """What a file of a bucket has, mapped into memory."""
    return from_bytes(pa.memory_map(str(_file(folder, bucket, version))))


def from_bytes(data: bytes | pa.NativeFile) -> WatchState:
    """What :func:`as_bytes` gave, without a copy: of the state what is about rows."""
    arrays: dict[str, np.ndarray[Any, Any]] = arrays_of(data)
    n = sum(name.endswith(f" {CHANGE[0]}") for name in arrays)
    suspects, *recent = (Changes(*[arrays[f"{i} {name}"] for name in CHANGE]) for i in range(n))
    evicted_ts, since, dropped = (int(n) for n in arrays["bounds"])
    return WatchState(
        rows=LastChanges.from_arrays(arrays), recent=RecentChanges(tuple(recent), since), suspects=suspects,
        evicted_ts=evicted_ts, dropped=bool(dropped),
    )  # fmt: skip


def above(events: pa.Table, resolved_ts: Mapping[str, int]) -> dict[str, Ints]:
    """By topic each commit_ts of rows above its resolved_ts, rising: transactions that are pending."""
    rows = events.filter(pc.and_(pc.equal(events["kind"], "row"), pc.is_valid(events["commit_ts"])))
    found = dict[str, Ints]()
    for topic in pc.unique(rows["topic"]).to_pylist():
        ts = np.unique(rows.filter(pc.equal(rows["topic"], topic))["commit_ts"].to_numpy())
        found[topic] = ts[ts > resolved_ts.get(topic, -1)]
    return found

"""All candidates at all partition counts, measured in one Spark job: one shuffle by table, one pass over each.

Spark brings the narrow changes of a table together and sorts them in commit order, which spills where memory is short.
Python then streams through them batch by batch (:mod:`ticdc_lab.dispatch.sweep_kernel`). What it keeps of a table are
the counters, and of the table under way one entry per distinct key value: with 19 candidates 440 to 880 bytes, and half
as much again while the map grows. Ten million distinct keys of one table need some 7 GB in its task; there is no bound.
"""

from __future__ import annotations

import os
import pickle
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cache as once

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from ticdc_lab.codecs.kernel import cache
from ticdc_lab.dispatch import conflict_kernel
from ticdc_lab.dispatch import sweep_kernel as k
from ticdc_lab.dispatch.conflict_kernel import DDL_RANK, Placed, placed_batches
from ticdc_lab.dispatch.lanes import Dense, Lane, Load, Ordered, Sparse
from ticdc_lab.dispatch.names import CONFLICT
from ticdc_lab.dispatch.numbering import no_rowid
from ticdc_lab.dispatch.sweep_kernel import CELLS, MEASURES, MOST, Counters, Ids, LastChange, LastOfKeys, TableChanges
from ticdc_lab.dispatch.unique_keys import NOT_CARRIED
from ticdc_lab.events.arrays import Batches, Ints, changes_in, runs
from ticdc_lab.events.tso import LOGICAL_BITS

SWEPT = pa.schema([("lane", pa.int32()), ("facts", pa.binary())])
"""What :func:`swept` yields for every lane; :func:`lane_of` reads ``facts``."""

NARROW = pa.schema(
    [
        *[(name, pa.int32()) for name in ("lane", "table_id", "op_rank", "partition", "seq")],
        *[(name, pa.int64()) for name in ("commit_ts", "offset", "identity", "key_hash", "before_key_hash")],
        ("row_bytes", pa.int64()),
        ("uniques", pa.list_(pa.int64())),
        *[(name, pa.bool_()) for name in ("has_key", "in_catalog", "carried")],
        ("errors", pa.list_(pa.string())),
    ]
)
"""What :func:`swept` reads, sorted so that a DDL (``op_rank`` 3) follows the changes of its commit_ts.

Beside it ``h0``, ``h1``, ..: the number (int64) of each candidate.
"""

COMPILING_S = 10.0
"""CPU seconds, about, that compiling the kernels takes, once on a machine."""

_KERNELS = "what-if"
_SIZE = 8

SPARSE = 40_000
"""Changes of a lane up to which loads are kept as they came, not as counters."""

ROWS_A_PASS = 1 << 14
"""Changes whose numbers of all candidates are held side by side: 0.4 KB each."""

_START_KEYS, _START_EVIDENCE = 1 << 12, 1 << 12
_KEYS = ("key_hash", "before_key_hash", "uniques")
_WIDE = ("ts", "tidb-rowid")
"""Candidates whose numbers have 64 bits."""

Numbers = npt.NDArray[np.uint64]
Flags = npt.NDArray[np.uint8]


@dataclass(frozen=True)
class SweepPlan:
    """What a task needs to know: candidates of each lane by slot, and how time is cut into buckets.

    ``slots`` gives for each lane the candidate of each hash column; ``buckets`` intervals of ``width_ms`` begin at
    ``lo_ms``; ``conflict_at`` are the partition counts at which conflict detection is run.
    """

    slots: Mapping[int, Sequence[str]]
    lo_ms: int
    width_ms: float
    buckets: int
    conflict_at: tuple[int, ...] = ()

    def bucket(self, commit_ts: Ints) -> Ints:
        """Time bucket of each commit_ts."""
        at = ((commit_ts >> LOGICAL_BITS) - self.lo_ms) / self.width_ms
        return np.clip(at.astype(np.int64), 0, self.buckets - 1)


def swept(plan: SweepPlan) -> Callable[[Batches], Batches]:
    """Measure batches that are sorted by lane, table and commit order."""

    def run(batches: Batches) -> Batches:
        lane: _Lane | None = None
        for batch, placed in _placed(batches, plan):
            numbers, tables = _ints(batch["lane"]), _ints(batch["table_id"])
            for low, high in ((part.start, part.stop) for part in runs(numbers, tables)):
                if lane is not None and lane.number != numbers[low]:
                    number, facts = lane.number, lane.facts()
                    lane = None  # its map of keys is not held any more
                    yield _answer(number, facts)
                if lane is None:
                    lane = _Lane(int(numbers[low]), plan)
                lane.add(int(tables[low]), batch.slice(low, high - low), _part(placed, low, high))
        if lane is not None:
            number, facts = lane.number, lane.facts()
            lane = None
            yield _answer(number, facts)

    return run


def lane_of(facts: bytes) -> Lane:
    """What :func:`swept` measured of a lane."""
    size = int.from_bytes(facts[:_SIZE], "little")
    lane: Lane = pickle.loads(pa.decompress(facts[_SIZE:], size, codec="lz4"))
    return lane


def _placed(batches: Batches, plan: SweepPlan) -> Iterator[tuple[pa.RecordBatch, Placed]]:
    """Batches cut again, with what conflict detection does with their rows."""
    ns = plan.conflict_at or (1,)
    pieces = (batch.slice(at, ROWS_A_PASS) for batch in batches for at in range(0, batch.num_rows, ROWS_A_PASS))
    yield from placed_batches(map(_without_uncarried, pieces), ns=ns)


def _without_uncarried(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Rows whose unique values are not all known take no part in conflict detection."""
    carried = batch["carried"].fill_null(True)
    every = pc.all(carried).as_py()
    for name in _KEYS:  # in every batch, so that all have one schema
        own, at = batch[name], batch.schema.get_field_index(name)
        hidden = own if every else pc.if_else(carried, own, pa.scalar(None, own.type))
        batch = batch.append_column(f"own_{name}", own).set_column(at, name, hidden)
    return batch


def _part(placed: Placed, low: int, high: int) -> Placed:
    barriers = placed.barriers
    inside = (barriers[:, conflict_kernel.ROW] >= low) & (barriers[:, conflict_kernel.ROW] < high)
    moved = barriers[inside].copy()
    moved[:, conflict_kernel.ROW] -= low
    return Placed(placed.target[low:high], placed.alignment[low:high], moved)


def _answer(lane: int, facts: Lane) -> pa.RecordBatch:
    whole = pickle.dumps(facts, protocol=5)
    packed = len(whole).to_bytes(_SIZE, "little") + pa.compress(whole, codec="lz4", asbytes=True)  # mostly zeros
    return pa.RecordBatch.from_pydict({"lane": pa.array([lane], pa.int32()), "facts": pa.array([packed])})


@once
def compile_kernels() -> None:
    """Compile here, once, so that not each worker does it."""
    schema = pa.schema([*NARROW, ("h0", pa.int64())])
    row = {
        "lane": 0,
        "table_id": 0,
        "identity": 1,
        "commit_ts": 1,
        "key_hash": 1,
        "has_key": True,
        "h0": 1,
        "op_rank": 0,
    }
    plan = SweepPlan({0: ("table",)}, 0, 1.0, 1, conflict_at=(2,))
    batch, placed = next(_placed(iter([pa.RecordBatch.from_pylist([row], schema=schema)]), plan))
    lane = _Lane(0, plan)
    lane.add(0, batch, placed)
    lane.grow(keys=True)
    lane.count_densely()
    lane.facts()
    with suppress(OSError):
        cache.note(_KERNELS)


def compiling_s() -> float:
    """CPU seconds, about, that compiling the kernels will take: none where they are in the cache of this machine."""
    return 0.0 if cache.has(_KERNELS) else COMPILING_S


def compile_beside() -> None:
    """Let a process of its own compile them, unless they are there."""
    if compiling_s():
        cache.start_filling(__name__)


@dataclass
class _Lane:
    """Counters of a lane while its changes pass."""

    number: int
    plan: SweepPlan
    table: int = -1
    errors: dict[str, str] = field(default_factory=dict)
    kept: list[tuple[Ints, Ints, Numbers, Flags]] = field(default_factory=list)
    dense: tuple[Ints, Ints] | None = None

    def __post_init__(self) -> None:
        self.hashed = self.plan.slots[self.number]
        self.names = [*self.hashed, *[f"{CONFLICT}@{n}" for n in self.plan.conflict_at]]
        self.aligned = np.array([name not in self.hashed for name in self.names], dtype=np.uint8)
        n, b, m = len(self.names), self.plan.buckets, len(MEASURES)
        self.now = np.zeros(k.NOW, dtype=np.int64)
        self.now[k.EPOCH] = self.now[k.STAMP] = 1
        self.counters = Counters(
            totals=np.zeros((m, b), dtype=np.int64),
            cases=np.zeros((m, n, b), dtype=np.int64),
            violations=np.zeros((m, n, b, MOST), dtype=np.int32),
            first=np.full((m, n, b, MOST), -1, dtype=np.int32),
            left=np.where(self.aligned, 1, MOST - 1)[np.newaxis, :, np.newaxis] + np.zeros((m, n, b), dtype=np.int64),
            evidence=np.zeros((_START_EVIDENCE, 2 * k.PLACE + 2), dtype=np.int64),
        )
        self.before = LastChange(
            hashes=np.zeros(n, dtype=np.uint64),
            known=np.zeros(n, dtype=np.uint8),
            place=np.zeros(k.PLACE, dtype=np.int64),
            group_hashes=np.zeros(n, dtype=np.uint64),
            group_places=np.full((n, k.PLACE), -1, dtype=np.int64),
            torn=np.zeros(n, dtype=np.uint64),
            overtaken=np.zeros(n, dtype=np.uint64),
            decided=np.zeros(n, dtype=np.uint8),
            here=np.zeros(k.PLACE, dtype=np.int64),
        )
        self.seen, self.ids = _seen(_START_KEYS, n), _ids(_START_KEYS)
        self.changes = np.zeros(b, dtype=np.int64)
        self.unplaced = np.zeros((n, b), dtype=np.int64)
        self.ordered = {
            n: (np.zeros((b, n), dtype=np.int64), np.zeros((b, n), dtype=np.int64)) for n in self.plan.conflict_at
        }
        self.alignments = {n: np.zeros(b, dtype=np.int64) for n in self.plan.conflict_at}

    def add(self, table: int, batch: pa.RecordBatch, placed: Placed) -> None:
        """Measure changes of one table, which follow those before, and where conflict detection puts them."""
        if table != self.table:
            self._end_table()
            self.table = table
        self._count_alignments(batch, placed)
        rows = _ints(batch["op_rank"]) != DDL_RANK
        if not rows.all():
            batch = batch.filter(pa.array(rows))
            placed = Placed(placed.target[rows], placed.alignment[rows], placed.barriers)
        changes = _changes(batch, len(self.hashed), self.plan, placed, self.aligned)
        at, why = 0, -1
        while why != k.DONE:
            at, why = k.sweep(at, changes, self.now, self.before, self.seen, self.ids, self.counters)
            if why != k.DONE:
                self.grow(keys=why == k.NO_KEYS, evidence=int(np.diff(changes.extra_from).max()))
        new = changes.counted != 0
        self.changes += np.bincount(changes.bucket[new], minlength=self.plan.buckets)
        self._note_unplaced(batch, changes, new)
        size = _ints(batch["row_bytes"])
        hashes, known = (np.ascontiguousarray(a[new][:, : len(self.hashed)]) for a in (changes.hashes, changes.known))
        self.kept.append((changes.bucket[new], size[new], hashes, known))
        self._count_ordered(changes, new & (changes.known[:, -1] != 0), size)
        if self.dense is not None or sum(len(part[0]) for part in self.kept) > SPARSE:
            self.count_densely()

    def _count_alignments(self, batch: pa.RecordBatch, placed: Placed) -> None:
        """Barriers that are written; for a DDL consumers wait anyway."""
        bucket = self.plan.bucket(_ints(batch["commit_ts"]))
        written = placed.barriers[:, conflict_kernel.REASON] != conflict_kernel.BY_DDL
        for i, counts in enumerate(self.alignments.values()):
            mine = placed.barriers[written & (placed.barriers[:, conflict_kernel.NTH] == i), conflict_kernel.ROW]
            counts += np.bincount(bucket[mine], minlength=self.plan.buckets)

    def _count_ordered(self, changes: TableChanges, new: npt.NDArray[np.bool_], size: Ints) -> None:
        for i, (n, (rows, volume)) in enumerate(self.ordered.items()):
            target = changes.hashes[new, len(self.hashed) + i] & np.uint64((1 << k.PACKED_BITS) - 1)
            cell = changes.bucket[new] * n + target.astype(np.int64)
            rows += np.bincount(cell, minlength=rows.size).reshape(rows.shape)
            volume += np.bincount(cell, size[new], minlength=rows.size).astype(np.int64).reshape(rows.shape)

    def _note_unplaced(self, batch: pa.RecordBatch, changes: TableChanges, new: npt.NDArray[np.bool_]) -> None:
        for s, name in enumerate(self.names):
            failed = np.flatnonzero(new & (changes.known[:, s] == 0))
            if len(failed):
                self.unplaced[s] += np.bincount(changes.bucket[failed], minlength=self.plan.buckets)
                self.errors.setdefault(*self._reason(name, s, batch["errors"][int(failed[0])].as_py()))

    def _reason(self, name: str, slot: int, said: Sequence[str | None] | None) -> tuple[str, str]:
        """Candidate, and why it cannot place a row."""
        if slot >= len(self.hashed):
            return CONFLICT, NOT_CARRIED
        return name, no_rowid("the table") if name == "tidb-rowid" else (said or {slot: None})[
            slot
        ] or f"the table has no {name}"

    def _end_table(self) -> None:
        """Forget the keys of the table before; its last transaction counts now."""
        k.finish(self.now, self.before, self.aligned, self.counters)
        self.now[k.EPOCH] += 1
        self.now[[k.KEYS, k.LAST]] = 0

    def grow(self, *, keys: bool, evidence: int = 0) -> None:
        """Make room for more keys, or for the evidence of a change with so many unique values."""
        if not keys:
            held = self.counters.evidence
            more = max(len(held), (evidence + 4) * len(self.names))
            larger = np.concatenate([held, np.zeros((more, held.shape[1]), dtype=np.int64)])
            self.counters = self.counters._replace(evidence=larger)
            return
        seen = _seen(2 * len(self.seen.keys), len(self.names))
        k.moved(self.seen, seen, self.now[k.EPOCH])
        ids = _ids(2 * len(self.ids.keys))
        k.put(ids, self.ids.keys[self.ids.epochs == self.now[k.STAMP]], self.now[k.STAMP])
        self.seen, self.ids = seen, ids

    def count_densely(self) -> None:
        """Turn the changes kept into counters."""
        if self.dense is None:
            shape = (len(self.hashed), self.plan.buckets, CELLS)
            self.dense = np.zeros(shape, dtype=np.int64), np.zeros(shape, dtype=np.int64)
        wide = np.array([name in _WIDE for name in self.hashed], dtype=np.uint8)
        for part in self.kept:
            k.load(*part, wide, *self.dense)
        self.kept = []

    def facts(self) -> Lane:
        """Everything measured."""
        self._end_table()
        c = self.counters
        loads = {name: self._load(s) for s, name in enumerate(self.hashed)}
        if self.ordered:
            rows, volume = ({n: _narrowed(both[i]) for n, both in self.ordered.items()} for i in (0, 1))
            loads[CONFLICT] = Ordered(rows, volume)
        return Lane(
            slots={name: s for s, name in enumerate(self.names)},
            loads=loads,
            changes=self.changes,
            unplaced=self.unplaced,
            errors=self.errors,
            totals=c.totals,
            cases=c.cases,
            violations=c.violations,
            first=c.first,
            evidence=c.evidence[: self.now[k.EVIDENCE]],
            alignments=self.alignments,
        )

    def _load(self, s: int) -> Load:
        if self.dense is not None:
            rows, volume = (_narrowed(counts[s]) for counts in self.dense)
            return Dense(rows, volume)
        placed = [part[3][:, s] != 0 for part in self.kept]
        bucket, size = (np.concatenate([p[i][ok] for p, ok in zip(self.kept, placed, strict=True)]) for i in (0, 1))
        hashes = np.concatenate([p[2][ok, s] for p, ok in zip(self.kept, placed, strict=True)])
        return _summed(bucket, size, hashes)


def _summed(bucket: Ints, size: Ints, hashes: Numbers) -> Sparse:
    order = np.lexsort((hashes, bucket))
    bucket, size, hashes = bucket[order], size[order], hashes[order]
    new = np.flatnonzero(changes_in(bucket, hashes))
    rows = np.diff(np.append(new, len(bucket)))
    return Sparse(bucket[new], hashes[new], rows, np.add.reduceat(size, new) if len(new) else size)


def _narrowed(counts: Ints) -> npt.NDArray[np.integer]:
    return counts.astype(np.int32) if counts.max(initial=0) < 1 << 31 else counts


def _seen(size: int, slots: int) -> LastOfKeys:
    """An empty map of keys."""
    numbers, flags = np.zeros((size, slots), dtype=np.uint64), np.zeros((size, slots), dtype=np.uint8)
    return LastOfKeys(*_ids(size), np.zeros((size, k.PLACE), dtype=np.int64), numbers, flags)


def _ids(size: int) -> Ids:
    return Ids(np.zeros(size, dtype=np.int64), np.zeros(size, dtype=np.int64))


def _changes(batch: pa.RecordBatch, slots: int, plan: SweepPlan, placed: Placed, aligned: Flags) -> TableChanges:
    commit_ts = _ints(batch["commit_ts"])
    hashes = np.column_stack([_ints(batch[f"h{s}"]).view(np.uint64) for s in range(slots)])
    known = np.column_stack([np.asarray(batch[f"h{s}"].is_valid()) for s in range(slots)])
    if plan.conflict_at:
        carried = np.asarray(batch["carried"].fill_null(True), dtype=np.bool_)
        hashes = np.column_stack([hashes, k.packed(placed.target, placed.alignment)])
        known = np.column_stack([known, np.repeat(carried[:, np.newaxis], len(plan.conflict_at), axis=1)])
    own, old, extra = (batch[f"own_{name}"] for name in _KEYS)
    lengths = np.asarray(pc.list_value_length(extra).fill_null(0))
    return TableChanges(
        commit_ts=commit_ts,
        bucket=plan.bucket(commit_ts),
        rank=_ints(batch["op_rank"]),
        place=np.column_stack([_ints(batch[name]) for name in ("partition", "offset", "seq", "commit_ts")]),
        identity=_ints(batch["identity"]),
        own=np.column_stack([_ints(own), _ints(batch["has_key"].cast(pa.int8()))]),
        old=np.column_stack([_ints(old), np.asarray(old.is_valid(), dtype=np.int64)]),
        extra_from=np.append(0, np.cumsum(lengths)).astype(np.int64),
        extra=_ints(extra.flatten()),
        in_catalog=_ints(batch["in_catalog"].cast(pa.int8())),
        hashes=np.ascontiguousarray(hashes),
        known=np.ascontiguousarray(known.astype(np.uint8)),
        aligned=aligned,
        counted=np.zeros(len(commit_ts), dtype=np.uint8),
    )


def _ints(column: pa.Array) -> Ints:
    # copied: numba compiles again for read-only arrays
    return np.array(column.fill_null(0).to_numpy(zero_copy_only=False), dtype=np.int64)


if __name__ == "__main__":
    os.nice(int(sys.argv[1]))
    with cache.filling() as mine:
        if mine:
            compile_kernels()

"""All candidates at all partition counts, measured in one Spark job: one shuffle by table, one pass over each.

Spark brings the narrow changes of a table together and sorts them in commit order, which spills where memory is short.
Python then streams through them batch by batch (:mod:`ticdc_lab.dispatch.sweep_kernel`). What it keeps of a table are
the counters, and one entry per distinct key value: about 100 bytes and 18 for each candidate.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from ticdc_lab.dispatch import sweep_kernel as k
from ticdc_lab.dispatch.lanes import Dense, Ints, Lane, Load, Sparse
from ticdc_lab.dispatch.sweep_kernel import CELLS, MEASURES, MOST, Before, Changes, Counters, Ids, Seen
from ticdc_lab.tso import LOGICAL_BITS

SWEPT = "lane int, facts binary"
"""What :func:`swept` yields: a pickled :class:`ticdc_lab.dispatch.lanes.Lane` for every lane."""

NARROW = pa.schema(
    [
        *[(name, pa.int32()) for name in ("lane", "table", "op_rank", "partition", "seq")],
        *[(name, pa.int64()) for name in ("commit_ts", "offset", "identity", "own", "old", "row_bytes")],
        ("extra", pa.list_(pa.int64())),
        ("in_catalog", pa.bool_()),
        ("errors", pa.list_(pa.string())),
    ]
)
"""What :func:`swept` reads, beside ``h0``, ``h1``, ..: the number (int64) of each candidate."""

SPARSE = 150_000
"""Changes of a lane up to which loads are kept as they came, not as counters."""

_START_KEYS, _START_EVIDENCE = 1 << 12, 1 << 12
_WIDE = ("ts", "tidb-rowid")
"""Candidates whose numbers have 64 bits."""

Numbers = npt.NDArray[np.uint64]
Flags = npt.NDArray[np.uint8]
Batches = Iterator[pa.RecordBatch]


@dataclass(frozen=True)
class Plan:
    """What a task needs to know: candidates of each lane by slot, and how time is cut into buckets.

    ``slots`` gives for each lane the candidate of each hash column; ``buckets`` intervals of ``width_ms`` begin at
    ``lo_ms``.
    """

    slots: Mapping[int, Sequence[str]]
    lo_ms: int
    width_ms: float
    buckets: int

    def bucket(self, commit_ts: Ints) -> Ints:
        """Time bucket of each commit_ts."""
        at = ((commit_ts >> LOGICAL_BITS) - self.lo_ms) / self.width_ms
        return np.clip(at.astype(np.int64), 0, self.buckets - 1)


def swept(plan: Plan) -> Callable[[Batches], Batches]:
    """Measure batches that are sorted by lane, table and commit order."""

    def run(batches: Batches) -> Batches:
        lane: _Lane | None = None
        for batch in batches:
            numbers, tables = _ints(batch["lane"]), _ints(batch["table"])
            cuts = np.flatnonzero((np.diff(numbers) != 0) | (np.diff(tables) != 0)) + 1
            for low, high in zip([0, *cuts], [*cuts, len(numbers)], strict=True):
                if lane is not None and lane.number != numbers[low]:
                    yield _answer(lane)
                    lane = None
                if lane is None:
                    lane = _Lane(int(numbers[low]), plan)
                lane.add(int(tables[low]), batch.slice(low, high - low))
        if lane is not None:
            yield _answer(lane)

    return run


def _answer(lane: _Lane) -> pa.RecordBatch:
    facts = pickle.dumps(lane.facts(), protocol=5)
    return pa.RecordBatch.from_pydict({"lane": pa.array([lane.number], pa.int32()), "facts": pa.array([facts])})


@cache
def compile_kernels() -> None:
    """Compile here, once, so that not each worker does it."""
    schema = pa.schema([*NARROW, ("h0", pa.int64())])
    row = {"lane": 0, "table": 0, "identity": 1, "commit_ts": 1, "own": 1, "h0": 1, "in_catalog": True}
    lane = _Lane(0, Plan({0: ("table",)}, 0, 1.0, 1))
    lane.add(0, pa.RecordBatch.from_pylist([row], schema=schema))
    lane.grow(keys=True)
    lane.count_densely()
    lane.facts()


@dataclass
class _Lane:
    """Counters of a lane while its changes pass."""

    number: int
    plan: Plan
    table: int = -1
    errors: dict[str, str] = field(default_factory=dict)
    kept: list[tuple[Ints, Ints, Numbers, Flags]] = field(default_factory=list)
    dense: tuple[Ints, Ints] | None = None

    def __post_init__(self) -> None:
        self.names = self.plan.slots[self.number]
        n, b, m = len(self.names), self.plan.buckets, len(MEASURES)
        self.now = np.zeros(k.NOW, dtype=np.int64)
        self.now[k.EPOCH] = self.now[k.STAMP] = 1
        self.counters = Counters(
            totals=np.zeros((m, b), dtype=np.int64),
            cases=np.zeros((m, n, b), dtype=np.int64),
            violations=np.zeros((m, n, b, MOST), dtype=np.int32),
            first=np.full((m, n, b, MOST), -1, dtype=np.int32),
            left=np.full((m, n, b), MOST - 1, dtype=np.int64),
            evidence=np.zeros((_START_EVIDENCE, 2 * k.PLACE + 2), dtype=np.int64),
        )
        self.before = Before(
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

    def add(self, table: int, batch: pa.RecordBatch) -> None:
        """Measure changes of one table, which follow those before."""
        if table != self.table:
            self._end_table()
            self.table = table
        changes = _changes(batch, len(self.names), self.plan)
        at, why = 0, -1
        while why != k.DONE:
            at, why = k.sweep(at, changes, self.now, self.before, self.seen, self.ids, self.counters)
            if why != k.DONE:
                self.grow(keys=why == k.NO_KEYS, evidence=int(np.diff(changes.extra_from).max()))
        new = changes.counted != 0
        self.changes += np.bincount(changes.bucket[new], minlength=self.plan.buckets)
        self._note_unplaced(batch, changes, new)
        size = _ints(batch["row_bytes"])
        self.kept.append((changes.bucket[new], size[new], changes.hashes[new], changes.known[new]))
        if self.dense is not None or sum(len(part[0]) for part in self.kept) > SPARSE:
            self.count_densely()

    def _note_unplaced(self, batch: pa.RecordBatch, changes: Changes, new: npt.NDArray[np.bool_]) -> None:
        for s, name in enumerate(self.names):
            failed = np.flatnonzero(new & (changes.known[:, s] == 0))
            if len(failed):
                self.unplaced[s] += np.bincount(changes.bucket[failed], minlength=self.plan.buckets)
                self.errors.setdefault(name, (batch["errors"][int(failed[0])].as_py() or self.names)[s] or "")

    def _end_table(self) -> None:
        """Forget the keys of the table before; its last transaction counts now."""
        k.finish(self.now, self.before, self.counters)
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
            shape = (len(self.names), self.plan.buckets, CELLS)
            self.dense = np.zeros(shape, dtype=np.int64), np.zeros(shape, dtype=np.int64)
        wide = np.array([name in _WIDE for name in self.names], dtype=np.uint8)
        for part in self.kept:
            k.load(*part, wide, *self.dense)
        self.kept = []

    def facts(self) -> Lane:
        """Everything measured."""
        self._end_table()
        c = self.counters
        return Lane(
            slots={name: s for s, name in enumerate(self.names)},
            loads={name: self._load(s) for s, name in enumerate(self.names)},
            changes=self.changes,
            unplaced=self.unplaced,
            errors=self.errors,
            totals=c.totals,
            cases=c.cases,
            violations=c.violations,
            first=c.first,
            evidence=c.evidence[: self.now[k.EVIDENCE]],
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
    differs = (np.diff(bucket) != 0) | (hashes[1:] != hashes[:-1])
    new = np.append(np.zeros(min(1, len(bucket)), dtype=np.int64), np.flatnonzero(differs) + 1)
    rows = np.diff(np.append(new, len(bucket)))
    return Sparse(bucket[new], hashes[new], rows, np.add.reduceat(size, new) if len(new) else size)


def _narrowed(counts: Ints) -> npt.NDArray[np.integer]:
    return counts.astype(np.int32) if counts.max(initial=0) < 1 << 31 else counts


def _seen(size: int, slots: int) -> Seen:
    """An empty map of keys."""
    numbers, flags = np.zeros((size, slots), dtype=np.uint64), np.zeros((size, slots), dtype=np.uint8)
    return Seen(*_ids(size), np.zeros((size, k.PLACE), dtype=np.int64), numbers, flags)


def _ids(size: int) -> Ids:
    return Ids(np.zeros(size, dtype=np.int64), np.zeros(size, dtype=np.int64))


def _changes(batch: pa.RecordBatch, slots: int, plan: Plan) -> Changes:
    commit_ts = _ints(batch["commit_ts"])
    hashes = np.column_stack([_ints(batch[f"h{s}"]).view(np.uint64) for s in range(slots)])
    known = np.column_stack([np.asarray(batch[f"h{s}"].is_valid()) for s in range(slots)]).astype(np.uint8)
    extra = batch["extra"]
    lengths = np.asarray(pc.list_value_length(extra).fill_null(0))
    return Changes(
        commit_ts=commit_ts,
        bucket=plan.bucket(commit_ts),
        rank=_ints(batch["op_rank"]),
        place=np.column_stack([_ints(batch[name]) for name in ("partition", "offset", "seq", "commit_ts")]),
        identity=_ints(batch["identity"]),
        own=_optional(batch["own"]),
        old=_optional(batch["old"]),
        extra_from=np.append(0, np.cumsum(lengths)).astype(np.int64),
        extra=_ints(extra.flatten()),
        in_catalog=_ints(batch["in_catalog"].cast(pa.int8())),
        hashes=np.ascontiguousarray(hashes),
        known=np.ascontiguousarray(known),
        counted=np.zeros(len(commit_ts), dtype=np.uint8),
    )


def _ints(column: pa.Array) -> Ints:
    # copied: numba compiles anew for arrays that cannot be written
    return np.array(column.fill_null(0).to_numpy(zero_copy_only=False), dtype=np.int64)


def _optional(column: pa.Array) -> Ints:
    return np.column_stack([_ints(column), np.asarray(column.is_valid(), dtype=np.int64)])

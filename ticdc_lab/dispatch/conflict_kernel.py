"""Conflict detection over the sorted changes of tables: which partition, and where all partitions must align.

The design (冲突检测分发, note 6) puts rows that share a primary or unique key value since the last alignment into one
partition. Here a unit, the part of a transaction in one table, is placed as a whole. A unit without a known key
since the last alignment goes where its least key hash leads; one whose known keys are all in one partition follows
them; one whose known keys lie in several writes an alignment, by which all is forgotten, and is placed freely.

What is known is a hash map from key hash to partition, one for any number of partition counts: they forget at
different times, but each knows the keys of some last stretch of the table, so the longest stretch holds all others.
Forgetting is one number, the epoch, that no longer fits. Since only equal hashes matter, two values with one hash
cost an alignment at worst and never an order.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ticdc_lab.codecs.kernel.jit import kernel, part
from ticdc_lab.errors import DispatchError
from ticdc_lab.events.arrays import Ints

MAX_KEYS = 4_000_000
"""Keys that are known at most, besides one transaction's: 100 MB a task, 35 MB more for each further N, and as
much again while the map grows."""

MAX_PARTITIONS = 1 << 16

UNIT, TABLE, DDL, GIANT = 1, 2, 4, 8
"""Flags of a row: it begins a unit, a table; it is no row but a DDL; its unit is too large to be held."""

NOTHING, BY_CONFLICT, BY_MEMORY, BY_DDL = range(4)
REASONS = ("", "conflict", "memory", "ddl")
"""Why partitions align: keys known in several partitions, ``max_keys``, or a DDL, for which they wait anyway."""

ROW, NTH, NUMBER, REASON, KEY, HOME, OTHER_KEY, OTHER_HOME, BEFORE, OTHER_BEFORE = (*range(8), 8, 11)
AT, OTHER_AT, BARRIER_WIDTH = 14, 15, 16
"""Columns of a barrier. ``AT`` is the row of the unit that has the key; ``BEFORE`` three numbers of the row that had it
before. Keys are 0 and homes -1 unless the reason is a conflict."""

EPOCH, COUNT, ALIGNMENT, PENDING, PLACED, GIANT_HOME, N_MEMORIES = range(7)
"""What is remembered for each N beside the map; ``PENDING`` is the reason to align before the next unit."""

_FULL = 0.6
_HALF = 0.5


@part
def _slot_of(key: int, slots: Any) -> int:
    """Place of a key in the map, or of the empty slot where it belongs."""
    mask = len(slots) - 1
    at = (key ^ (key >> 32)) & mask
    while slots[at] != 0 and slots[at] != key:
        at = (at + 1) & mask
    return at


@part
def _align(j: int, row: int, reason: int, epochs: int, memory: Any, known: Any, barriers: Any, n: int) -> int:
    """Forget everything and write a barrier; the number of barriers."""
    if memory[j, EPOCH] == epochs:
        for at in range(len(known)):
            known[at, j] = 0
        memory[j, EPOCH] = 0
    memory[j, EPOCH] += 1
    memory[j, COUNT] = 0
    memory[j, PENDING] = NOTHING
    memory[j, PLACED] = 0
    if reason == NOTHING:
        return n
    memory[j, ALIGNMENT] += 1
    for c in range(BARRIER_WIDTH):
        barriers[n, c] = 0
    barriers[n, ROW] = row
    barriers[n, NTH] = j
    barriers[n, NUMBER] = memory[j, ALIGNMENT]
    barriers[n, REASON] = reason
    barriers[n, HOME] = -1
    barriers[n, OTHER_HOME] = -1
    barriers[n, AT] = -1
    barriers[n, OTHER_AT] = -1
    return n + 1


@part
def _home(j: int, begin: int, end: int, bits: int, memory: Any, known: Any, at: Any, clash: Any) -> Any:
    """The one partition of the known keys, -1 where none is known; -2 where there are several: two are in ``clash``."""
    found: Any = -1
    mask = (1 << bits) - 1
    for i in range(begin, end):
        value = np.int64(known[at[i], j])
        if value >> bits == memory[j, EPOCH]:
            if found < 0:
                found = value & mask
                clash[0], clash[2] = i, found
            elif value & mask != found:
                clash[1], clash[3] = i, value & mask
                return -2
    return found


@part
def _evidence(barrier: Any, clash: Any, owner: Any, keys: Any, at: Any, seen: Any) -> None:
    """Name the two keys that clash, where they were, and which rows had them."""
    for which in range(2):
        i = clash[which]
        barrier[KEY + 2 * which] = keys[i]
        barrier[HOME + 2 * which] = clash[2 + which]
        barrier[AT + which] = owner[i]
        if len(seen) > 1:
            for c in range(3):
                barrier[BEFORE + 3 * which + c] = seen[at[i], c]


@kernel
def _place(
    flags: Any, commit_ts: Any, starts: Any, keys: Any, owner: Any, here: Any, ns: Any, bits: int, max_keys: int,
    slots: Any, known: Any, seen: Any, memory: Any, at: Any, clash: Any, target: Any, alignment: Any, barriers: Any,
) -> tuple[int, int]:  # fmt: skip
    """Place whole units; the number of barriers written and of slots taken."""
    n_barriers, taken, rows, epochs = 0, 0, len(flags), (1 << (32 - bits)) - 1
    row = 0
    while row < rows:
        if flags[row] & TABLE:
            for j in range(len(ns)):
                _align(j, row, NOTHING, epochs, memory, known, barriers, n_barriers)
                memory[j, ALIGNMENT] = 0
        end = row + 1
        while end < rows and not flags[end] & UNIT:
            end += 1
        if flags[row] & DDL:
            for j in range(len(ns)):
                if memory[j, PLACED]:
                    memory[j, PENDING] = BY_DDL
                for r in range(row, end):
                    target[r, j] = -1
                    alignment[r, j] = memory[j, ALIGNMENT]
            row = end
            continue
        giant = flags[row] & GIANT
        begin, stop = starts[row], starts[end]
        least = np.uint64(commit_ts[row]) * np.uint64(0x9E3779B97F4A7C15) >> np.uint64(17)
        if not giant:
            least = np.uint64(0xFFFFFFFFFFFFFFFF)
            for i in range(begin, stop):
                least = min(least, np.uint64(keys[i]))
                at[i] = _slot_of(keys[i], slots)
                if slots[at[i]] == 0:
                    slots[at[i]] = keys[i]
                    taken += 1
        for j in range(len(ns)):
            if giant and flags[row] & UNIT and memory[j, PLACED]:
                memory[j, PENDING] = BY_MEMORY
            if memory[j, PENDING] != NOTHING and flags[row] & UNIT:
                n_barriers = _align(j, row, memory[j, PENDING], epochs, memory, known, barriers, n_barriers)
            home: Any = -1
            if giant:
                home = -1 if flags[row] & UNIT else memory[j, GIANT_HOME]
            elif ns[j] > 1:
                home = _home(j, begin, stop, bits, memory, known, at, clash)
                if home == -2:
                    n_barriers = _align(j, row, BY_CONFLICT, epochs, memory, known, barriers, n_barriers)
                    _evidence(barriers[n_barriers - 1], clash, owner, keys, at, seen)
            if home < 0:
                home = np.int64(least % np.uint64(ns[j]))
            if giant:
                memory[j, GIANT_HOME] = home
                memory[j, PENDING] = BY_MEMORY if ns[j] > 1 else NOTHING
            elif ns[j] > 1:
                value = memory[j, EPOCH] << bits | home
                for i in range(begin, stop):
                    if np.int64(known[at[i], j]) != value:
                        known[at[i], j] = value
                        memory[j, COUNT] += 1
                if memory[j, COUNT] > max_keys:
                    memory[j, PENDING] = BY_MEMORY
            memory[j, PLACED] = 1
            for r in range(row, end):
                target[r, j] = home
                alignment[r, j] = memory[j, ALIGNMENT]
        if not giant and len(seen) == len(known):
            for i in range(begin, stop):
                for c in range(3):
                    seen[at[i], c] = here[owner[i], c]
        row = end
    return n_barriers, taken


@kernel
def _move(
    slots: Any, known: Any, seen: Any, memory: Any, bits: int, new_slots: Any, new_known: Any, new_seen: Any
) -> int:
    """Take what some N still knows to a new map, or only count it where the new one is empty; how many keys."""
    moved = 0
    for old in range(len(slots)):
        alive = False
        for j in range(len(memory)):
            alive |= np.int64(known[old, j]) >> bits == memory[j, EPOCH]
        if slots[old] == 0 or not alive:
            continue
        moved += 1
        if len(new_slots):
            new = _slot_of(slots[old], new_slots)
            new_slots[new] = slots[old]
            for j in range(len(memory)):
                new_known[new, j] = known[old, j]
            if len(new_seen) == len(new_known):
                for c in range(3):
                    new_seen[new, c] = seen[old, c]
    return moved


@dataclass(frozen=True, slots=True)
class Placed:
    """Where rows go: one line a row, one column an N. ``barriers`` are the alignments written before rows of it.

    ``target`` is -1 for a DDL; ``alignment`` counts the table's barriers before the row.
    """

    target: npt.NDArray[np.int32]
    alignment: Ints
    barriers: Ints


@dataclass(slots=True)
class Placer:
    """The state of conflict dispatch between batches, for several partition counts at once."""

    ns: Ints  # partition counts, each from 1 to :data:`MAX_PARTITIONS`. What one N gives does not depend on the others.
    max_keys: int = MAX_KEYS  # more keys than that are not known to any N: it aligns before the next unit
    # Whether to remember the last row of each key, for :data:`BEFORE` of barriers; 24 bytes a slot.
    evidence: bool = False
    taken: int = 0
    _bits: int = 0
    _slots: Ints = field(default_factory=lambda: np.zeros(0, np.int64))
    _known: npt.NDArray[np.uint32] = field(default_factory=lambda: np.zeros((0, 0), np.uint32))
    _seen: Ints = field(default_factory=lambda: np.zeros((0, 3), np.int64))
    _memory: Ints = field(default_factory=lambda: np.zeros((0, 0), np.int64))
    _clash: Ints = field(default_factory=lambda: np.zeros(4, np.int64))

    @classmethod
    def of(cls, ns: Sequence[int], *, max_keys: int = MAX_KEYS, evidence: bool = False) -> Placer:
        """An empty state. Raises DispatchError: an N is out of range, or ``max_keys`` is below 1."""
        if not len(ns) or not all(1 <= n <= MAX_PARTITIONS for n in ns) or max_keys < 1:
            raise DispatchError(
                f"Conflict dispatch takes from 1 to {MAX_PARTITIONS} partitions and max_keys from 1; found partitions "
                f"{list(ns)}, max_keys {max_keys}."
            )
        made = cls(np.array(ns, np.int64), max_keys, evidence)
        made._bits = max(1, int(max(ns) - 1).bit_length())
        made._memory = np.zeros((len(ns), N_MEMORIES), np.int64)
        made._memory[:, EPOCH] = 1
        made._resize(1 << 12)
        return made

    @property
    def alignments(self) -> Ints:
        """Give how often each N has aligned."""
        return self._memory[:, ALIGNMENT]

    def place(
        self, *, flags: npt.NDArray[np.uint8], commit_ts: Ints, starts: Ints, keys: Ints, here: Ints | None = None
    ) -> Placed:
        """Place rows that follow the call before, whole units only.

        ``flags``: :data:`UNIT`, :data:`TABLE`, :data:`DDL` and :data:`GIANT` of each row. The first row has ``UNIT``,
        except where it continues the giant of the call before. ``commit_ts``: of each row; only a giant's
        matters. ``starts``, ``keys``: the key hashes of row ``i`` are ``keys[starts[i]:starts[i + 1]]``; every row but
        a DDL has one. ``here``: three numbers that name each row, for ``evidence``.
        """
        rows, k = len(flags), len(self.ns)
        keys = np.where(keys == 0, 1, keys)  # 0 is an empty slot
        self._make_room(len(keys))
        target, alignment = np.empty((rows, k), np.int32), np.empty((rows, k), np.int64)
        units = np.count_nonzero(flags & UNIT)
        barriers = np.empty((units * k, BARRIER_WIDTH), np.int64)
        owner = np.repeat(np.arange(rows, dtype=np.int64), np.diff(starts))
        n, taken = _place(
            flags, commit_ts, starts, keys, owner, np.zeros((1, 3), np.int64) if here is None else here, self.ns,
            self._bits, self.max_keys, self._slots, self._known, self._seen, self._memory,
            np.empty(len(keys), np.int64), self._clash, target, alignment, barriers,
        )  # fmt: skip
        self.taken += taken
        return Placed(target, alignment, barriers[:n].copy())

    def _make_room(self, more: int) -> None:
        """Before a call, so that the kernel need not allocate: drop forgotten keys, then grow."""
        if self.taken + more <= _FULL * len(self._slots):
            return
        nothing = np.zeros(0, np.int64), np.zeros((0, 1), np.uint32), np.zeros((1, 3), np.int64)
        alive = self._moved(nothing)
        self._resize(max(len(self._slots), 1 << int((alive + more) / _HALF).bit_length()))

    def _resize(self, capacity: int) -> None:
        slots, known = np.zeros(capacity, np.int64), np.zeros((capacity, len(self.ns)), np.uint32)
        seen = np.zeros((capacity if self.evidence else 1, 3), np.int64)
        self.taken = self._moved((slots, known, seen)) if len(self._slots) else 0
        self._slots, self._known, self._seen = slots, known, seen

    def _moved(self, new: tuple[Ints, npt.NDArray[np.uint32], Ints]) -> int:
        return int(_move(self._slots, self._known, self._seen, self._memory, self._bits, *new))


Unit = Literal["transaction", "row"]
Flags = npt.NDArray[np.uint8]
Piece = tuple[pa.RecordBatch, Flags]

DDL_RANK = 3
"""``op_rank`` of a DDL; rows have 0, 1 and 2."""

_OF_UNIT = {"transaction": ("commit_ts",), "row": ("commit_ts", "op_rank", "identity")}


def placed_batches(
    batches: Iterable[pa.RecordBatch],
    *,
    ns: Sequence[int],
    unit: Unit = "transaction",
    max_keys: int = MAX_KEYS,
    evidence: bool = False,
    topics: dict[str, int] | None = None,
) -> Iterator[tuple[pa.RecordBatch, Placed]]:
    """Place changes that :func:`ticdc_lab.dispatch.conflict.with_changes` passes, for several N in one pass.

    ``batches``: changes and DDL, sorted by ``table_id``, ``commit_ts`` and whether they are DDL; for ``unit="row"`` and
    for ``evidence`` in the whole order of that function. Each table is in one piece. ``ns``: partition counts.
    ``unit``: what is placed as a whole. ``max_keys``: keys that are known at most, and changes of one unit that are
    kept at most: a larger one is alone between two alignments. ``evidence``: whether barriers name the rows with
    their keys before, see :data:`ticdc_lab.dispatch.conflict_kernel.BEFORE`; needs ``topic``, ``partition``, ``offset``
    and ``seq``. The first of the three numbers is ``number of the topic << 32 | partition``. ``topics``: filled with
    the number of each topic, for ``evidence``. Yields: the same rows, cut again at units, and where they go. Memory
    holds the map of the keys, and one unit.
    """
    placer = Placer.of(ns, max_keys=max_keys, evidence=evidence)
    topics = {} if topics is None else topics
    for rows, flags in whole_units(batches, unit=unit, at_most=max_keys):
        starts, keys = keys_of(rows)
        here = _here(rows, topics) if evidence else None
        yield rows, placer.place(flags=flags, commit_ts=_ints(rows, "commit_ts"), starts=starts, keys=keys, here=here)


def whole_units(batches: Iterable[pa.RecordBatch], *, unit: Unit, at_most: int) -> Iterator[Piece]:
    """Cut sorted batches into whole units, with the kernel's flags; a unit above ``at_most`` rows is a giant."""
    held: list[Piece] = []
    last: tuple[int, ...] = ()
    giant = False
    for batch in batches:
        if not batch.num_rows:
            continue
        flags, last = _flags(batch, last, unit)
        if giant and not flags[0] & UNIT:
            flags[0] |= GIANT
        starts = np.flatnonzero(flags & UNIT)
        if len(starts):
            end = int(starts[-1])
            if held or end:
                yield _together([*held, (batch[:end], flags[:end])], at_most)
            held, giant, batch, flags = [], False, batch[end:], flags[end:]
        elif giant:
            yield batch, flags
            continue
        held.append((batch, flags))
        if sum(len(f) for _, f in held) > at_most:
            yield _together(held, at_most)
            held, giant = [], True
    if held:
        yield _together(held, at_most)


def keys_of(rows: pa.RecordBatch) -> tuple[Ints, Ints]:
    """Where the key hashes of each row begin (one more than rows), and the hashes."""
    columns = [rows[name] for name in ("key_hash", "before_key_hash")]
    valid = [np.asarray(c.is_valid()) for c in columns]
    counts = valid[0].astype(np.int64) + valid[1]
    values, n_values = np.zeros(0, np.int64), np.zeros(len(rows), np.int64)
    if "uniques" in rows.schema.names:
        lists = rows["uniques"]
        values, n_values = np.asarray(lists.flatten()), np.asarray(lists.value_lengths().fill_null(0)).astype(np.int64)
    starts = np.concatenate([[0], np.cumsum(counts + n_values)])
    keys = np.empty(starts[-1], np.int64)
    at = starts[:-1]
    keys[at[valid[0]]] = np.asarray(columns[0].drop_null())
    keys[(at + valid[0])[valid[1]]] = np.asarray(columns[1].drop_null())
    within = np.arange(len(values)) - np.repeat(np.cumsum(n_values) - n_values, n_values)
    keys[np.repeat(at + counts, n_values) + within] = values
    return starts, keys


def _flags(batch: pa.RecordBatch, last: tuple[int, ...], unit: Unit) -> tuple[Flags, tuple[int, ...]]:
    """Flags of each row, given the numbers of the row before the batch; and its last row's."""
    columns = [_ints(batch, name) for name in ("table_id", *_OF_UNIT[unit])]
    is_ddl = _ints(batch, "op_rank") == DDL_RANK
    columns.append(is_ddl.astype(np.int64))
    before = last or tuple(int(c[0]) for c in columns)
    changed = [np.diff(c, prepend=b) != 0 for c, b in zip(columns, before, strict=True)]
    changed[0][0] |= not last
    begins = np.logical_or.reduce(changed) | is_ddl
    flags = begins * np.uint8(UNIT) | changed[0] * np.uint8(TABLE) | is_ddl * np.uint8(DDL)
    return flags.astype(np.uint8), tuple(int(c[-1]) for c in columns)


def _together(pieces: list[Piece], at_most: int) -> Piece:
    """One batch of whole units, or of the first rows of a giant."""
    rows = pieces[0][0]
    if len(pieces) > 1:
        rows = pa.concat_batches([rows for rows, _ in pieces])
    flags = np.concatenate([flags for _, flags in pieces])
    starts = np.flatnonzero(flags & UNIT)
    flags[starts[np.diff(starts, append=len(flags)) > at_most]] |= GIANT
    return rows, flags


def _here(rows: pa.RecordBatch, topics: dict[str, int]) -> Ints:
    place = _topic_numbers(rows, topics) << 32 | _ints(rows, "partition")
    return np.stack([place, _ints(rows, "offset"), _ints(rows, "seq")], axis=1)


def _topic_numbers(rows: pa.RecordBatch, topics: dict[str, int]) -> Ints:
    """Number of each row's topic in ``topics``, to which new ones are added."""
    names = rows["topic"].dictionary_encode()
    numbers = [topics.setdefault(t, len(topics)) for t in names.dictionary.to_pylist()]
    each: Ints = np.array(numbers, np.int64)[np.asarray(names.indices)]
    return each


def _ints(rows: pa.RecordBatch, name: str) -> Ints:
    return np.asarray(rows[name].fill_null(0)).astype(np.int64, copy=False)

"""Where the entries of a topic go: TiCDC's dispatchers, and conflict detection with its alignments.

A dispatcher of TiCDC needs nothing but the row. Conflict detection (the MQ design's last) knows of each table in which
partition the keys since the last alignment went, by the rules of :mod:`ticdc_lab.dispatch.conflict_kernel`. What is
known is its writer's: a capture that takes a table over knows nothing, and begins with an alignment.
"""

from __future__ import annotations

import zlib
from copy import deepcopy
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from immutables import Map

from ticdc_lab.errors import DispatchError
from ticdc_lab.machines.machine import Address
from ticdc_lab.simulate.pipeline.downstream import Align, DdlEntry, Entry, Partitions, Rows
from ticdc_lab.simulate.pipeline.settings import CONFLICT, DISPATCHERS, INDEX_VALUE, TABLE, TIDB_ROWID, TS
from ticdc_lab.simulate.pipeline.tables import Change, handle_of, table_of, text_of

if TYPE_CHECKING:
    from ticdc_lab.dispatch.conflict_kernel import Placed, Placer


def partition_of(change: Change, dispatcher: str, partitions: int) -> tuple[int, str]:
    """Give a change's partition and the key that TiCDC gives its message, by a dispatcher that needs nothing else.

    Raises DispatchError: the dispatcher is unknown.
    """
    info = change.info
    if dispatcher == TS:
        return change.commit_ts % partitions, str(change.commit_ts)
    if dispatcher == TIDB_ROWID:
        row_id = handle_of(change.key)
        return row_id % partitions, str(row_id)
    number = zlib.crc32((info.schema_name + info.name).encode())
    if dispatcher == TABLE:
        return number % partitions, info.quoted
    if dispatcher != INDEX_VALUE:
        raise DispatchError(
            f"A run's downstream cannot dispatch by {dispatcher!r}; expected one of {', '.join(DISPATCHERS)}.",
            hint="Produce the log again with ticdc_lab.produce, which knows them all.",
        )
    image = change.before if change.op == "delete" else change.after
    for column, cell in zip(info.columns, image or (), strict=False):
        if column.is_key and cell is not None:
            number ^= zlib.crc32((column.name + (text_of(cell) or "")).encode())
    return number % partitions, str(number)


@dataclass(frozen=True, eq=False, slots=True)
class _Known:
    """What the writer of a table knows of it, and how many alignments there were, of any writer."""

    writer: Address
    placer: Placer
    alignments: int = 0


class Home(NamedTuple):
    """Where a change goes, with which key, and how many alignments of its table precede it."""

    partition: int
    key: str | None
    alignments: int


class Placing(NamedTuple):
    """A dispatcher with what it knows: of each table, by conflict detection alone."""

    dispatcher: str
    partitions: int
    known: Map[int, _Known] = Map()

    def over(self, partitions: int) -> Placing:
        """Go over to another number of partitions: nothing is known of the new ones."""
        fresh = {t: replace(k, writer="") for t, k in sorted(self.known.items())}
        return Placing(self.dispatcher, partitions, Map(fresh))

    def behind(self, ddl: DdlEntry) -> Placing:
        """Write a DDL, at which all partitions wait anyway: its tables align before their next row."""
        placing = self
        of_job = (ddl.job.dropped, ddl.job.info.id if ddl.job.info else None)
        for table in sorted({t for t in of_job if t is not None and t in self.known}):
            placer, _ = _place(self.known[table].placer, [(ddl.ts, None)])
            placing = placing._replace(known=placing.known.set(table, replace(self.known[table], placer=placer)))
        return placing


def homes(placing: Placing, entry: Rows) -> tuple[Placing, list[Home]]:
    """Find where each change of an entry goes, in their order."""
    dispatcher, n, known = placing
    if dispatcher != CONFLICT:
        return placing, [Home(*partition_of(c, dispatcher, n), 0) for c in entry.changes]
    of_table: dict[int, list[int]] = {}
    for at, change in enumerate(entry.changes):
        of_table.setdefault(table_of(change.key), []).append(at)
    found: dict[int, Home] = {}
    for table, places in of_table.items():
        had = _taken_over(known.get(table), entry.writer, n)
        placer, placed = _place(had.placer, [(entry.changes[i].commit_ts, entry.changes[i].key) for i in places])
        earlier = had.alignments - int(had.placer.alignments[0])  # of other writers
        numbers = [earlier + int(a) for a in placed.alignment[:, 0]]
        found |= {i: Home(int(t), None, a) for i, t, a in zip(places, placed.target[:, 0], numbers, strict=True)}
        known = known.set(table, _Known(entry.writer, placer, numbers[-1]))
    return placing._replace(known=known), [found[i] for i in range(len(entry.changes))]


def _taken_over(known: _Known | None, writer: Address, partitions: int) -> _Known:
    """Give what a writer knows of a table; another one than before knows nothing, and aligns first."""
    from ticdc_lab.dispatch.conflict_kernel import Placer

    if known is not None and known.writer == writer:
        return known
    return _Known(writer, Placer.of((partitions,)), 0 if known is None else known.alignments + 1)


def _place(placer: Placer, rows: list[tuple[int, int | None]]) -> tuple[Placer, Placed]:
    """Place rows of a table, transaction by transaction; None is a DDL. The placer that is given stays as it is."""
    from ticdc_lab.dispatch.conflict_kernel import DDL, UNIT

    after = deepcopy(placer)
    keys = [key for _, key in rows if key is not None]
    commit_ts = np.array([ts for ts, _ in rows], np.int64)
    flags = np.where(np.diff(commit_ts, prepend=-1) != 0, UNIT, 0).astype(np.uint8)
    flags[[key is None for _, key in rows]] |= DDL
    starts = np.append(0, np.cumsum([key is not None for _, key in rows])).astype(np.int64)
    return after, after.place(flags=flags, commit_ts=commit_ts, starts=starts, keys=np.array(keys, np.int64))


def routed(placing: Placing, entry: Entry) -> tuple[Placing, list[tuple[int, Entry]]]:
    """Give what an entry is in each partition, in the order in which it is written."""
    found: list[tuple[int, Entry]] = []
    n = placing.partitions
    if isinstance(entry, Rows):
        known = {t: k.alignments for t, k in placing.known.items()}
        after, placed = homes(placing, entry)
        rows: dict[int, list[Change]] = {}

        def write() -> None:
            found.extend((p, entry._replace(changes=tuple(own))) for p, own in sorted(rows.items()))
            rows.clear()

        for change, home in zip(entry.changes, placed, strict=True):
            table = table_of(change.key)
            if home.alignments > known.get(table, 0):
                write()
                known[table] = home.alignments
                found += [(p, Align(entry.at_us, entry.writer, table, home.alignments)) for p in range(n)]
            rows.setdefault(home.partition, []).append(change)
        write()
        return after, found
    wide = max(n, entry.partitions) if isinstance(entry, Partitions) else n
    if isinstance(entry, Partitions):
        placing = placing.over(entry.partitions)
    elif isinstance(entry, DdlEntry):
        placing = placing.behind(entry)
    return placing, [(p, entry) for p in range(wide)]

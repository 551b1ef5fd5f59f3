"""Small Delta tables rewritten by the workers, a Parquet file each.

To Spark each table is a plan of its own: it reads the table's log, compiles classes, and runs jobs for a hundred rows.
Here one task takes the changes of many tables, one after the other: it writes what they leave into a file beside those
that are there, with the rows that no change has touched, and yields which. The driver commits it
(:meth:`ticdc_lab.engine.delta_log.KnownFiles.commit`); the file of a task that failed is removed or left for
``VACUUM``. A task holds the keys of one table's changes, and of its rows as many bytes as a row group has.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass
from itertools import chain, groupby
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from ticdc_lab.engine.delta_log import DataFile
from ticdc_lab.errors import SourceError
from ticdc_lab.events.arrays import Batches
from ticdc_lab.facts.schemas import arrow_of
from ticdc_lab.lake.one_pass import LakeFile, whole_or_removed

NEW_FILES = "table int, name string, size bigint, modified_ms bigint, stats string"
"""What a task yields: a row a table with its new file; without one where no row is left."""

_NEW_FILES = arrow_of(NEW_FILES)


@dataclass(frozen=True, slots=True)
class SmallTable:
    """Its folder in the target, the names of its files there, and the columns of its key."""

    folder: str
    files: tuple[str, ...]
    key: tuple[str, ...]


def rewriting(place: str, tables: Mapping[int, SmallTable]) -> Callable[[Batches], Batches]:
    """Put changes into the tables that they are of; yields :data:`NEW_FILES`.

    ``place``: the target's folder, which the driver and all workers share. ``tables``: by their numbers, ``_table`` in
    the changes; a table's come one after the other (:func:`ticdc_lab.consumer.sinks.delta.changes_to`).
    """

    def run(batches: Batches) -> Batches:
        for number, changes in groupby(_by_table(batches), key=lambda part: int(part["_table"][0].as_py())):
            file = _written_anew(place, tables[number], changes)
            rows = pa.Table.from_pylist([{"table": number} | (asdict(file) if file else {})], _NEW_FILES)
            yield from rows.to_batches()

    return run


def files_by_table(said: pa.Table) -> dict[int, list[DataFile]]:
    """The files that the tables have now, by their numbers, as reported by tasks of :func:`rewriting`."""
    rows = sorted(said.to_pylist(), key=lambda row: int(row["table"]))
    return {row.pop("table"): [DataFile(**row)] if row["name"] else [] for row in rows}


def _by_table(batches: Batches) -> Iterator[pa.Table]:
    """Parts of batches that are of one table each."""
    for batch in batches:
        runs, first = pc.run_end_encode(batch["_table"]), 0
        for end in runs.run_ends.to_pylist():
            yield pa.Table.from_batches([batch.slice(first, end - first)])
            first = end


def _written_anew(place: str, table: SmallTable, changes: Iterator[pa.Table]) -> DataFile | None:
    first = next(changes)
    file = LakeFile(place, table.folder, pa.schema(list(first["_row"].type)))
    changed: list[pa.Table] = []
    with whole_or_removed([file]):
        for part in chain([first], changes):
            changed.append(part.select([f"_k{i}" for i in range(len(table.key))]).rename_columns(list(table.key)))
            file.add(pa.Table.from_struct_array(part["_row"]).filter(pc.invert(part["_gone"])))
        keys = pa.concat_tables(changed)
        for rows in _stored(Path(place) / table.folder, table.files):
            file.add(without(rows, keys))
        return file.closed()


def _stored(folder: Path, names: tuple[str, ...]) -> Iterator[pa.Table]:
    for name in names:
        try:
            with pq.ParquetFile(folder / name) as file:
                for batch in file.iter_batches():
                    yield pa.Table.from_batches([batch])
        except FileNotFoundError:
            raise SourceError(
                f"The Delta table {folder} names a file that is gone: {name}.",
                hint="It was removed, or a worker does not see the folder. Replay into a new target with --sink.",
            ) from None


def without(rows: pa.Table, changed: pa.Table) -> pa.Table:
    """The rows whose key is not among ``changed``; nulls are the same, and -0.0 is 0.0, as in Spark's join."""
    if not len(rows) or not len(changed):
        return rows
    columns = [str(i) for i in range(changed.num_columns)]  # a key may be called as anything here
    old = rows.select(changed.column_names).cast(changed.schema).rename_columns(columns)
    places = pa.array(range(len(rows)), pa.int64()), pa.repeat(pa.scalar(-1, pa.int64()), len(changed))
    keys = (old, changed.rename_columns(columns))
    both = pa.concat_tables([own.append_column("at", at) for own, at in zip(keys, places, strict=True)])
    for i, column in enumerate(both.columns):
        if pa.types.is_floating(column.type):
            both = both.set_column(i, columns[i], pc.add(column, pa.scalar(0.0, column.type)))
    found = both.group_by(columns, use_threads=False).aggregate([("at", "min"), ("at", "list")])
    kept = found.filter(pc.greater_equal(found["at_min"], 0))["at_list"]
    return rows.take(pc.list_flatten(kept).sort())

"""Transactions restored by the workers from the files of ``events``, without a shuffle by the engine.

Each task reads the narrow columns of all rows that are not resolved yet, which is cheap, and restores the transactions
of its share. Where very many rows wait, as while no watermark comes, the engine's own shuffle does it instead
(:func:`ticdc_lab.transactions.restored_transactions`): a task here holds its share in memory.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from ticdc_lab.engine.ordering import order_of
from ticdc_lab.events.arrays import Batches, Ints
from ticdc_lab.facts.places import place_number, placed
from ticdc_lab.transactions.kernel import KnownPlaces, restored
from ticdc_lab.transactions.restoring import NARROW, narrowed

MOST_ROWS = 4_000_000
"""Rows of the files that are read, above which the engine shuffles them."""

Home = tuple[str, int, int | None]
"""Topic and partition, and its resolved_ts."""

_READ = ("kind", "op", "commit_ts", "start_ts", "schema_name", "table_name", "topic", "partition", "offset",
         "key_hash", "change_hash")  # fmt: skip
_PLACES = pa.schema([("topic", pa.string()), ("partition", pa.int32()), ("schema_name", pa.string()),
                     ("table_name", pa.string()), ("place", pa.int64()), ("resolved_ts", pa.int64())])  # fmt: skip


def share_restored(
    folder: str,
    files: Sequence[str],
    homes: Sequence[Home],
    *,
    shares: int,
    lowest: int | None,
    complete_ts: int | None,
) -> Callable[[Batches], Batches]:
    """Transactions of shares of the rows, as :data:`ticdc_lab.events.schema.TRANSACTIONS`.

    ``folder``, ``files``: where the table ``events`` lies, and its files with a row of these
    transactions. ``homes``: how far each partition is resolved. ``shares``: how many there are; the batches that come
    hold numbers of them in their first column. ``lowest``: the least commit_ts (TSO) that is asked for.
    ``complete_ts``: up to which transactions are complete.
    """
    known = of_homes(homes)

    def run(batches: Batches) -> Batches:
        for share in (n for batch in batches for n in batch.column(0).to_pylist()):
            rows, places = [NARROW.empty_table()], [known]
            for part in _rows_of(folder, files, int(share), shares, lowest):
                own, numbers = placed(part)
                rows.append(narrowed(part.append_column("place", numbers)))
                places.append(own.append_column("resolved_ts", pa.nulls(own.num_rows, pa.int64())).cast(_PLACES))
            changes = pa.concat_tables(rows)
            order = order_of(*[changes[c].to_numpy() for c in ("commit_ts", "start_ts", "change_id")])
            sorted_changes = changes.take(pa.array(order)).combine_chunks().to_batches(max_chunksize=100_000)
            yield from restored(
                iter(sorted_changes), KnownPlaces.read(pa.concat_tables(places), complete_to=complete_ts)
            )

    return run


def _rows_of(folder: str, files: Sequence[str], share: int, shares: int, lowest: int | None) -> Iterator[pa.Table]:
    for name in files:
        with pq.ParquetFile(Path(folder) / name) as file:
            for batch in file.iter_batches(100_000, columns=list(_READ)):
                rows = pa.Table.from_batches([batch])
                rows = rows.filter(pc.and_(pc.equal(rows["kind"], "row"), pc.is_valid(rows["commit_ts"])))
                ts = rows["commit_ts"].to_numpy()
                own = share_of(ts, shares) == share
                yield rows.filter(pa.array(own if lowest is None else own & (ts >= lowest)))


def share_of(commit_ts: Ints, shares: int) -> Ints:
    """Which share a transaction belongs to; neighbours belong to different ones."""
    mixed = commit_ts.astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    return ((mixed >> np.uint64(33)) % np.uint64(shares)).astype(np.int64)


def of_homes(homes: Sequence[Home]) -> pa.Table:
    """What is known of partitions as :func:`ticdc_lab.transactions.log_places` gives it."""
    names = ("topic", "partition", "resolved_ts", "place")
    rows = [dict(zip(names, (*home, place_number(*home[:2], None, None)), strict=True)) for home in homes]
    return pa.Table.from_pylist(rows, _PLACES)

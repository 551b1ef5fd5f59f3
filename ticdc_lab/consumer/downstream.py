"""The downstream's tables at a moment of consumer time, as far as a small excerpt of the log tells their columns."""

from __future__ import annotations

import pandas as pd
import pyarrow as pa

from ticdc_lab.consumer.model import ConsumerRun
from ticdc_lab.tables.own_columns import free_names

PLACE = ("topic", "partition", "offset", "seq")
_INTEGERS = {pa.int64(): pd.Int64Dtype(), pa.int32(): pd.Int32Dtype()}


def small_frame(table: pa.Table) -> pd.DataFrame:
    """An Arrow table as a pandas frame whose whole numbers stay whole where some are missing, as TSO must."""
    return table.to_pandas(types_mapper=_INTEGERS.get)


def frames_of(found: ConsumerRun) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Deliveries and steps of a run, as figures take them."""
    return small_frame(found.deliveries), small_frame(found.steps)


def downstream_at(images: pd.DataFrame, deliveries: pd.DataFrame, at_us: int, table: str) -> pd.DataFrame:
    """A table of the downstream as readers see it at a moment.

    Parameters
    ----------
    images
        Values after each change, a column each, by an index of ``topic, partition, offset, seq`` (a table may have
        columns of these names). Rows that it lacks are counted as rows without values.
    deliveries
        :data:`ticdc_lab.consumer.record.DELIVERIES` of a run.
    at_us
        Consumer time, µs.
    table
        ``schema.table``.

    Returns
    -------
    DataFrame
        The rows in the order in which they were written last, the newest on top: ``commit_ts`` (``_commit_ts`` where
        ``images`` has a column of that name) and the columns of ``images`` that hold anything. In a table without key
        every insert is a row of its own, and what updates and deletes do to it cannot be told.
    """
    written = deliveries[(deliveries["table"] == table) & (deliveries["applied_at"] <= at_us).fillna(False)]
    written = written.sort_values("apply_order", kind="stable")
    keyed = written[written["key_hash"].notna()]
    left = keyed[keyed["before_key_hash"].notna() & (keyed["op_rank"] == 1)]
    ends = pd.concat(
        [
            left.assign(_key=left["before_key_hash"], _there=False),
            keyed.assign(_key=keyed["key_hash"], _there=keyed["op_rank"] != 0),
        ]
    ).sort_values(["apply_order", "_there"], kind="stable")
    last = ends.drop_duplicates("_key", keep="last")
    loose = written[written["key_hash"].isna() & (written["op_rank"] == 2)]
    there = pd.concat([last[last["_there"]], loose]).sort_values("apply_order", ascending=False, kind="stable")
    found = images.reindex(pd.MultiIndex.from_frame(there[list(PLACE)])).reset_index(drop=True)
    held = found if found.empty else found.dropna(axis="columns", how="all")
    (name,) = free_names(("commit_ts",), map(str, images.columns))
    return pd.concat([there["commit_ts"].rename(name).reset_index(drop=True), held], axis="columns")

"""The history of a key in its three column families, as it was seen from sample to sample."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import pyarrow as pa

from ticdc_lab.simulate.pipeline.observed import CfRow
from ticdc_lab.simulate.pipeline.tables import Value

FAMILIES = pa.schema(
    [
        ("key", pa.int64()),
        ("cf", pa.string()),  # lock, default or write
        ("ts", pa.int64()),  # of the entry's key: none (0) in lock, start_ts in default, commit_ts in write
        ("start_ts", pa.int64()),  # of the transaction
        ("kind", pa.string()),  # put, delete or rollback
        ("value", pa.string()),  # its cells; null where the entry holds none
        ("from_us", pa.int64()),  # the first sample in which it is there
        ("to_us", pa.int64()),  # the first one in which it is gone; null where it stays
    ]
)
"""One row a stretch in which an entry is there, sorted by ``from_us`` and family."""

CFS = ("lock", "default", "write")


def families(seen: Iterable[tuple[int, Sequence[CfRow]]]) -> pa.Table:
    """Give :data:`FAMILIES`.

    Parameters
    ----------
    seen
        Moments (µs) and the entries that were there, of one key or several.
    """
    there: dict[CfRow, int] = {}
    out: list[tuple[CfRow, int, int | None]] = []
    for time_us, rows in seen:
        now = dict.fromkeys(rows)
        out += [(row, since, time_us) for row, since in there.items() if row not in now]
        there = {row: there.get(row, time_us) for row in now}
    out += [(row, since, None) for row, since in there.items()]
    out.sort(key=lambda one: (one[1], CFS.index(one[0].cf), one[0].ts, one[0].key))
    return pa.Table.from_pylist(
        [{**row._asdict(), "value": _text(row.value), "from_us": since, "to_us": until} for row, since, until in out],
        schema=FAMILIES,
    )


def _text(value: Value | None) -> str | None:
    """Write a value: the cells of a row, the statement of a job."""
    if value is None:
        return None
    cells = getattr(value, "cells", None)
    return (
        str(getattr(value, "query", "")) if cells is None else ", ".join("NULL" if c is None else str(c) for c in cells)
    )

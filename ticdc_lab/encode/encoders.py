"""Events to wire formats, as TiCDC's own encoders write them. One module a format; each says what it loses."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from ticdc_lab.codecs.registry import require_written
from ticdc_lab.encode import canal_json, mq_v1, open_protocol
from ticdc_lab.errors import ProtocolError

Pair = tuple[pa.Array, pa.Array]


@dataclass(frozen=True, slots=True)
class Encoder:
    """A wire format.

    Attributes
    ----------
    rows
        Row changes to keys and values, whole batches at a time.
    other
        One DDL, watermark or admin event; these are few. None where the format cannot say it.
    lost
        What decoding cannot give back: field of the events contract and why. ``columns.x`` is a field of each column
        of both images.
    ddl_to_all
        Whether TiCDC sends a DDL to every partition, or to partition 0 alone.
    framed
        Whether a message holds several events, each behind its length.
    """

    rows: Callable[[pa.RecordBatch, Callable[[int], str]], Pair]
    other: Callable[[dict[str, Any]], tuple[bytes | None, bytes | None] | None]
    lost: Mapping[str, str]
    ddl_to_all: bool = True
    framed: bool = False


ENCODERS: Mapping[str, Encoder] = {
    "open-protocol": Encoder(open_protocol.rows, open_protocol.other, open_protocol.LOST, framed=True),
    "canal-json": Encoder(canal_json.rows, canal_json.other, canal_json.LOST, ddl_to_all=False),
    "mq-v1": Encoder(mq_v1.rows, mq_v1.other, mq_v1.LOST),
}
"""Protocol to encoder."""


def encoder(protocol: str) -> Encoder:
    """The encoder of a protocol.

    Raises
    ------
    ProtocolError
        There is none.

    Examples
    --------
    >>> encoder("canal-json").lost["start_ts"]
    'no field for it'
    """
    require_written(protocol)
    return ENCODERS[protocol]


def encode(batch: pa.RecordBatch, protocol: str) -> Pair:
    """Keys and values (binary) of events, one each; a value that belongs to a framed format is not framed yet.

    Parameters
    ----------
    batch
        Columns of the events contract; its place in the source log is not read.
    protocol
        A name of :data:`ENCODERS`.

    Raises
    ------
    ProtocolError
        The protocol has no form for an event: a type it does not know, a label where it writes numbers, no image.
    """
    how = encoder(protocol)
    is_row = np.asarray(batch.column("kind").to_numpy(zero_copy_only=False) == "row")
    rows = batch.filter(pa.array(is_row))
    _require_written(rows, protocol)
    pairs = [_of_rows(rows, how)] if rows.num_rows else []
    if rows.num_rows < batch.num_rows:
        pairs.append(_of_others(batch.filter(pa.array(~is_row)).to_pylist(), how, protocol))
    if len(pairs) == 1:
        return pairs[0]
    at = np.empty(batch.num_rows, np.int64)
    at[np.append(np.flatnonzero(is_row), np.flatnonzero(~is_row))] = np.arange(batch.num_rows)
    keys, values = (pa.concat_arrays(list(part)).take(pa.array(at)) for part in zip(*pairs, strict=True))
    return keys, values


def _of_rows(rows: pa.RecordBatch, how: Encoder) -> Pair:
    def table(i: int) -> str:
        one = rows.slice(i, 1).to_pylist()[0]
        return f"{one['schema_name']}.{one['table_name']} at commit_ts {one['commit_ts']}"

    keys, values = how.rows(rows, table)
    return keys.cast(pa.binary()), values.cast(pa.binary())


def _of_others(events: list[dict[str, Any]], how: Encoder, protocol: str) -> Pair:
    pairs = []
    for e in events:
        if e["commit_ts"] is None and e["kind"] in ("ddl", "watermark"):
            raise ProtocolError(f"A {e['kind']} event has no commit_ts, without which {protocol} cannot be written.")
        pair = how.other(e)
        if pair is None:
            raise ProtocolError(f"{protocol} has no message for an event of kind {e['kind']!r}.")
        pairs.append(pair)
    return pa.array([k for k, _ in pairs], pa.binary()), pa.array([v for _, v in pairs], pa.binary())


def _require_written(rows: pa.RecordBatch, protocol: str) -> None:
    for name in ("commit_ts", "schema_name", "table_name"):
        if rows.column(name).null_count:
            raise ProtocolError(f"A row change has no {name}, without which {protocol} cannot be written.")
    empty = np.asarray(rows.column("columns").is_null()) & np.asarray(rows.column("before").is_null())
    if empty.any():
        one = rows.slice(int(np.flatnonzero(empty)[0]), 1).to_pylist()[0]
        raise ProtocolError(
            f"{one['schema_name']}.{one['table_name']} at commit_ts {one['commit_ts']}: the row has no image to write.",
            hint="Materialise the log with its images (images=True).",
        )

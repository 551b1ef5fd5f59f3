"""The handle key of rows whose messages name none, from the log's own DDL, put into the events once they are decoded.

canal-json, canal, avro and maxwell name a primary key alone. A table without one may still have a handle key: TiCDC
takes the not-null unique index with the fewest columns. What reads the events, from the audit to a consumer, then finds
it there as if the message had named it.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from ticdc_lab.codecs.kernel.arrow import arrow_schema
from ticdc_lab.codecs.keys import NAME_A_PRIMARY_KEY, with_columns
from ticdc_lab.events.schema import DECODED, DISPATCH, KEYS
from ticdc_lab.facts import LogFacts
from ticdc_lab.facts.catalog import Catalog
from ticdc_lab.facts.definitions import TableName
from ticdc_lab.sources.parquet import RANGES

Handles = Mapping[TableName, tuple[Sequence[int], Sequence[tuple[str, ...]]]]
"""By table from which commit_ts (TSO) on the handle key has which columns; none where the message names it."""

_KEYED = [*KEYS.names, *(name for name in DISPATCH.names if name != "row_bytes")]
_READ = ["kind", "layout", "schema_name", "table_name"]


def handles_of(facts: LogFacts, *, protocol: str) -> Handles:
    """Tables without a primary key whose DDL in the log define another handle key."""
    queries = facts.ddl["query"].drop_null()
    unique = pc.match_substring(queries, "unique", ignore_case=True)
    if protocol not in NAME_A_PRIMARY_KEY or not pc.any(unique).as_py():
        return {}
    told = facts.ddl.select(["commit_ts", "schema_name", "table_name", "query"]).to_pylist()
    dated = [d for d in told if d["commit_ts"] is not None and d["query"]]
    catalog = Catalog.from_ddl(
        dict.fromkeys((d["commit_ts"], d["schema_name"] or "", d["table_name"] or "", d["query"]) for d in dated)
    )
    found = {}
    for name, versions in catalog.versions.items():
        defined = [None if v.definition is None or v.definition.primary else v.definition for v in versions]
        keys = [() if table is None else table.handle_columns for table in defined]
        if any(keys):
            found[name] = [v.commit_ts or 0 for v in versions], keys
    return found


def put_into(files: Sequence[Path], handles: Handles) -> tuple[TableName, ...]:
    """Write files of :data:`ticdc_lab.events.schema.DECODED` anew where they have rows of such tables; which ones."""
    done = set[TableName]()
    for path in files if handles else ():
        with pq.ParquetFile(path) as file:
            if not any(len(_unnamed(file.read_row_group(i, _READ), handles)) for i in range(file.num_row_groups)):
                continue
            draft = path.with_name(f"_keys-{path.name}")
            with pq.ParquetWriter(draft, arrow_schema(DECODED), store_schema=False, write_statistics=RANGES) as written:
                for i in range(file.num_row_groups):
                    group, named = with_handles(file.read_row_group(i), handles)
                    written.write_table(group.cast(arrow_schema(DECODED)), row_group_size=max(1, len(group)))
                    done |= named
        draft.replace(path)
    return tuple(sorted(done))


def _unnamed(rows: pa.Table, handles: Handles) -> np.ndarray:
    """Places of row changes whose message names no key, of these tables."""
    nameless = pc.and_(pc.equal(rows["kind"], "row"), pc.ends_with(rows["layout"], ",,"))
    of_some = pc.is_in(rows["table_name"], pa.array(sorted({table for _, table in handles}), pa.string()))
    return np.flatnonzero(pc.fill_null(pc.and_(nameless, of_some), False))


def with_handles(rows: pa.Table, handles: Handles) -> tuple[pa.Table, set[TableName]]:
    """Decoded events with the key columns that the DDL define, and the hashes of them; and of which tables.

    Parameters
    ----------
    rows
        :data:`ticdc_lab.events.schema.DECODED`.
    handles
        As :func:`handles_of` gives them.
    """
    at = _unnamed(rows, handles)
    by_key: dict[tuple[str, ...], list[int]] = {}
    named = set[TableName]()
    asked = rows.select(["schema_name", "table_name", "commit_ts"]).take(pa.array(at)).to_pylist()
    for place, row in zip(at.tolist(), asked, strict=True):
        name, ts = (row["schema_name"], row["table_name"]), row["commit_ts"]
        starts, keys = handles.get(name, ((), ()))
        since = 0 if ts is None else bisect_right(starts, ts)
        if since and keys[since - 1]:
            by_key.setdefault(keys[since - 1], []).append(place)
            named.add(name)
    if not by_key:
        return rows, named
    keyed = [_keyed(rows.take(pa.array(places)), key) for key, places in by_key.items()]
    moved = np.concatenate([np.array(places) for places in by_key.values()])
    stays = np.setdiff1d(np.arange(rows.num_rows), moved)
    whole = pa.concat_tables([rows.take(pa.array(stays)), *keyed])
    return whole.take(pa.array(np.argsort(np.concatenate([stays, moved])))), named


def _keyed(rows: pa.Table, key: tuple[str, ...]) -> pa.Table:
    for image in ("columns", "before"):
        lists = rows[image].combine_chunks()
        columns, kind = lists.flatten(), lists.type.value_type
        is_key = pc.is_in(columns.field("name"), pa.array(key, pa.string()))
        parts = [is_key if f.name == "is_key" else columns.field(f.name) for f in kind]
        struct = pa.StructArray.from_arrays(parts, fields=list(kind))
        lengths = pc.fill_null(pc.list_value_length(lists), 0).to_numpy(zero_copy_only=False)
        ends = pa.array(np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32))
        made = pa.ListArray.from_arrays(ends, struct, mask=pc.is_null(lists))
        rows = rows.set_column(rows.schema.get_field_index(image), rows.schema.field(image), made.cast(lists.type))
    plain = rows.drop_columns(_KEYED).combine_chunks()
    return pa.Table.from_batches(with_columns(_KEYED, plain.to_batches())).select(rows.column_names).cast(rows.schema)

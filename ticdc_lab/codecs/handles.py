"""The handle key of rows whose messages name none, put into decoded events as the log's own DDL define it.

canal-json, canal, avro and maxwell name a primary key alone. A table without one may still have a handle key: TiCDC
takes the not-null unique index with the fewest columns. What reads the events, from the audit to a consumer, then finds
it there as if the message had named it.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Mapping, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ticdc_lab.codecs.keys import NAME_A_PRIMARY_KEY, with_columns, without_images
from ticdc_lab.events.arrays import Batches
from ticdc_lab.events.schema import DISPATCH, KEYS
from ticdc_lab.facts.catalog import GONE, Catalog
from ticdc_lab.facts.definitions import TableName

Handles = Mapping[TableName, tuple[Sequence[int], Sequence[tuple[str, ...]]]]
"""By table from which commit_ts (TSO) on the handle key has which columns; none where the message names it."""

_KEYED = [*KEYS.names, *(name for name in DISPATCH.names if name != "row_bytes")]
_STATED = ["commit_ts", "schema_name", "table_name", "query"]
_UNDATED = ("canal", "maxwell")
"""Protocols whose rows have no commit_ts, though maxwell's DDL have one."""

READ = ["kind", "layout", "schema_name", "table_name"]
"""Columns that :func:`unnamed` reads."""


def handles_of(ddl: pa.Table, *, protocol: str) -> Handles:
    """Tables without a primary key whose DDL in the log define another handle key.

    ``ddl``: ``commit_ts, schema_name, table_name, query, offset`` of the log's DDL. ``protocol``: of the log; most name
    every handle key themselves. In a log without commit_ts a table has one where its DDL so far leave it one key.
    """
    queries = ddl["query"].drop_null()
    unique = pc.match_substring(queries, "unique", ignore_case=True)
    if protocol not in NAME_A_PRIMARY_KEY or not pc.any(unique).as_py():
        return {}
    told = [d for d in ddl.select([*_STATED, "offset"]).to_pylist() if d["query"]]
    dated = [d for d in told if d["commit_ts"] is not None]
    stated = dated or sorted(told, key=lambda d: d["offset"] or 0)
    catalog = Catalog.from_ddl(
        dict.fromkeys((d["commit_ts"], d["schema_name"] or "", d["table_name"] or "", d["query"]) for d in stated)
    ).in_rows(protocol)
    if not dated or protocol in _UNDATED:
        return _of_all_times(catalog)
    found = {}
    for name, versions in catalog.versions.items():
        defined = [None if v.definition is None or v.definition.primary else v.definition for v in versions]
        keys = [() if table is None else table.handle_columns for table in defined]
        if any(keys):
            found[name] = [v.commit_ts or 0 for v in versions], keys
    return found


def _of_all_times(catalog: Catalog) -> Handles:
    """The handle keys that tables have in every version; none where a DDL was not understood or its table was another.

    ``catalog``: of DDL without commit_ts.
    """
    found: dict[TableName, tuple[Sequence[int], Sequence[tuple[str, ...]]]] = {}
    if any(not u.table_name for u in catalog.unparsed):
        return found
    for name, versions in catalog.versions.items():
        lives = [v.definition for v in versions if v.event not in GONE]
        keys = {() if table is None or table.primary else table.handle_columns for table in lives}
        was_another = name in catalog.ends or (name[0].lower(), "") in catalog.ends
        if len(keys) == 1 and any(keys) and not was_another:
            found[name] = [0], [*keys]
    return found


def keyed(batches: Batches, handles: Handles, *, images: bool) -> Batches:
    """Decoded events with these keys; without ``images`` the values that their hashes were made of are left out."""
    for batch in batches:
        rows = pa.Table.from_batches([batch])
        rows = with_handles(rows, handles)[0] if len(unnamed(rows, handles)) else rows
        rows = rows if images else without_images(rows)
        yield from rows.cast(batch.schema).combine_chunks().to_batches()


def unnamed(rows: pa.Table, handles: Handles) -> np.ndarray:
    """Places of row changes whose message names no key, of these tables."""
    nameless = pc.and_(pc.equal(rows["kind"], "row"), pc.ends_with(rows["layout"], ",,"))
    of_some = pc.is_in(rows["table_name"], pa.array(sorted({table for _, table in handles}), pa.string()))
    return np.flatnonzero(pc.fill_null(pc.and_(nameless, of_some), False))


def with_handles(rows: pa.Table, handles: Handles) -> tuple[pa.Table, set[TableName]]:
    """Decoded events with the key columns that the DDL define, and their hashes; and the tables concerned.

    ``rows``: :data:`ticdc_lab.events.schema.DECODED`. ``handles``: as :func:`handles_of` gives them.
    """
    at = unnamed(rows, handles)
    by_key: dict[tuple[str, ...], list[int]] = {}
    named = set[TableName]()
    asked = rows.select(["schema_name", "table_name", "commit_ts"]).take(pa.array(at)).to_pylist()
    for place, row in zip(at.tolist(), asked, strict=True):
        name, ts = (row["schema_name"], row["table_name"]), row["commit_ts"]
        starts, keys = handles.get(name, ((), ()))
        since = bisect_right(starts, ts or 0)  # of all times, 0 on, or from a commit_ts on, which a row may not have
        if since and keys[since - 1]:
            by_key.setdefault(keys[since - 1], []).append(place)
            named.add(name)
    if not by_key:
        return rows, named
    keyed = [with_key_columns(rows.take(pa.array(places)), key) for key, places in by_key.items()]
    moved = np.concatenate([np.array(places) for places in by_key.values()])
    stays = np.setdiff1d(np.arange(rows.num_rows), moved)
    whole = pa.concat_tables([rows.take(pa.array(stays)), *keyed])
    return whole.take(pa.array(np.argsort(np.concatenate([stays, moved])))), named


def with_key_columns(rows: pa.Table, key: tuple[str, ...]) -> pa.Table:
    """Decoded events whose images have these columns in the handle key, with the hashes of it."""
    names = pa.array(key, pa.string())
    return hashed_anew(with_field_of_columns(rows, "is_key", lambda columns: pc.is_in(columns.field("name"), names)))


def with_field_of_columns(rows: pa.Table, name: str, value: Callable[[pa.StructArray], pa.Array]) -> pa.Table:
    """Events whose images have another field of that name in their columns; the hashes stay what they were."""
    for image in ("columns", "before"):
        lists = rows[image].combine_chunks()
        columns, kind = lists.flatten(), lists.type.value_type
        parts = [value(columns) if f.name == name else columns.field(f.name) for f in kind]
        struct = pa.StructArray.from_arrays(parts, fields=list(kind))
        lengths = pc.fill_null(pc.list_value_length(lists), 0).to_numpy(zero_copy_only=False)
        ends = pa.array(np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32))
        made = pa.ListArray.from_arrays(ends, struct, mask=pc.is_null(lists))
        rows = rows.set_column(rows.schema.get_field_index(image), rows.schema.field(image), made.cast(lists.type))
    return rows


def hashed_anew(rows: pa.Table) -> pa.Table:
    """Events with the hashes of their keys and columns by their images."""
    plain = rows.drop_columns(_KEYED).combine_chunks()
    return pa.Table.from_batches(with_columns(_KEYED, plain.to_batches())).select(rows.column_names).cast(rows.schema)

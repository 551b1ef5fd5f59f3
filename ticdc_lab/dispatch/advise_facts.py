"""What advice needs to know of a log and of each candidate: tables and columns, hot keys, colliding hashes, and
measures.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import combinations
from typing import TYPE_CHECKING, Any
from zlib import crc32

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame

from ticdc_lab.codecs.kernel.numbering import DELETE, UPDATE
from ticdc_lab.codecs.laid_out import Image, laid_out_of
from ticdc_lab.codecs.plain.hashes import SEED, Texts
from ticdc_lab.dispatch.definitions import Answers, changes_in, key_texts, unique_columns
from ticdc_lab.dispatch.evenness import gini
from ticdc_lab.dispatch.numbering import NUMBERED, UNIQUE_FLAGS, Alike, Numbering, places_of
from ticdc_lab.dispatch.rules import Rule
from ticdc_lab.dispatch.whatif import WhatIf
from ticdc_lab.engine.shuffle import at_once, grouped_by, mapped
from ticdc_lab.errors import DispatchError
from ticdc_lab.events.arrays import Batches, codes, runs, whole_keys
from ticdc_lab.events.schema import require_batch, require_columns
from ticdc_lab.facts.catalog import Catalog
from ticdc_lab.facts.definitions import IndexDef, TableDef
from ticdc_lab.facts.places import grouped

if TYPE_CHECKING:
    from ticdc_lab.sources.stored import StoredEvents

HOT_KEYS = 10
"""Keys named per table at most."""


@dataclass(frozen=True, slots=True)
class ColumnFact:
    """One column of a table in the log.

    ``rows`` hold it, ``nulls`` of them as NULL, with about ``distinct`` values; ``changed`` updates changed it, of
    ``compared`` that carry it before and after. Of ``labels`` values only the label of an ENUM or SET is known.
    """

    name: str
    mysql_type: str
    is_key: bool
    rows: int
    nulls: int
    distinct: int
    changed: int
    compared: int
    labels: int


@dataclass(frozen=True, slots=True)
class TableFact:
    """One table of the log, in deliveries: ``key_changes`` are updates of a key, sent whole or as two halves."""

    schema_name: str
    table_name: str
    rows: int
    bytes: int
    updates: int
    whole_key_changes: int
    split_key_changes: int
    keyless: int
    columns: tuple[ColumnFact, ...] = ()

    @property
    def name(self) -> str:
        """``schema.table``."""
        return f"{self.schema_name}.{self.table_name}"


@dataclass(frozen=True, slots=True)
class HotKey:
    """A key with its number of row changes and their share of the table's."""

    key: str
    rows: int
    share: float


@dataclass(frozen=True, slots=True)
class Collisions:
    """Keys of a table whose 32-bit hashes meet.

    ``groups`` hashes are shared by ``keys`` distinct keys; ``by_text`` of the groups because the same texts, name and
    value put together, are hashed; ``cancelled`` keys leave nothing of the hash but the table's. ``example`` is one
    pair.
    """

    distinct: int
    groups: int
    keys: int
    by_text: int
    cancelled: int
    example: tuple[str, str] | None


def table_facts(events: DataFrame | StoredEvents, *, catalog: Catalog | None = None) -> list[TableFact]:
    """Facts of every table and of its columns, in two passes.

    ``events``: the events contract, or events in files. ``catalog``: the unique columns, beside the handle key.
    Returns: by name.
    """
    _require_whole(events, function="table_facts", why="shares are of all rows")
    unique = Answers(catalog, unique_columns)
    read = ("schema_name", "table_name", "commit_ts", "op", "columns", "before", "column_crcs", "key_hash", "row_bytes")
    counted = mapped(changes_in(events, read, partial(_counted, unique=unique), _FACTS), _summing, _FACTS)
    found = _summed(at_once(counted, _FACTS))
    halves = changes_in(events, _HALF.names, _halves, _HALF)
    pairs = at_once(grouped_by(halves, _HALF.names[:4], _split, _SPLIT), _SPLIT)
    split = Counter[tuple[str, str]]()
    for schema, table, n in zip(*pairs.to_pydict().values(), strict=True):
        split[schema, table] += n
    columns = defaultdict[tuple[str, str], list[ColumnFact]](list)
    for r in sorted((r for r in found.to_pylist() if r["name"] is not None), key=lambda r: r["name"]):
        named = {name: r[name] for name in ColumnFact.__slots__ if name != "distinct"}
        fact = ColumnFact(**named, distinct=_estimated(r["least"]))
        columns[r["schema_name"], r["table_name"]].append(fact)
    facts = [
        TableFact(*t, r["rows"], r["bytes"], r["updates"], r["changed"], split[t], r["nulls"], tuple(columns[t]))
        for r in found.to_pylist() if r["name"] is None for t in [(r["schema_name"], r["table_name"])]
    ]  # fmt: skip
    return sorted(facts, key=lambda t: t.name)


def hot_keys(events: DataFrame | StoredEvents, *, most: int = HOT_KEYS) -> dict[str, list[HotKey]]:
    """The handle keys with most row changes, per table (``schema.table``), most first."""
    _require_whole(events, function="hot_keys", why="the most frequent key is known at the end")

    def first(batches: Batches) -> Batches:
        held = _KEYED.empty_table().append_column("of", pa.array([], pa.int64()))
        for batch in batches:
            own = pa.table(batch)
            held = _hottest(pa.concat_tables([held, own.append_column("of", own["rows"])]), most)
        yield from held.combine_chunks().to_batches()

    form = _KEYED.append(pa.field("of", pa.int64()))  # rows of all keys of the table
    each = _hottest(at_once(mapped(_keys(events), first, form), form), most)
    found, of = defaultdict[str, list[HotKey]](list), 0
    for r in each.to_pylist():
        of = r["of"] or of  # the table's, which its first key has
        found[f"{r['schema_name']}.{r['table_name']}"].append(HotKey(r["key"], r["rows"], r["rows"] / of))
    return dict(found)


def collisions(events: DataFrame | StoredEvents) -> dict[str, Collisions]:
    """Distinct handle keys that index-value cannot distinguish, per table (``schema.table``).

    Such keys always share a partition. That breaks nothing, but they share one share of the load.
    """
    _require_whole(events, function="collisions", why="two keys that meet may be anywhere in it")
    met = grouped_by(_keys(events), ["schema_name", "table_name", "hash"], _met, _MET)
    found: dict[str, Collisions] = {}
    for r in at_once(met, _MET).to_pylist():
        name, pair = f"{r.pop('schema_name')}.{r.pop('table_name')}", (r.pop("a"), r.pop("b"))
        own = Collisions(**r, example=None if pair[0] is None else pair)
        other = found.get(name, Collisions(0, 0, 0, 0, 0, None))
        numbers = {n: getattr(own, n) + getattr(other, n) for n in _MET.names[2:7]}
        examples = [e for e in (own.example, other.example) if e is not None]
        found[name] = Collisions(**numbers, example=min(examples, default=None))
    return dict(sorted(found.items()))


def tables_that_collide(tables: Sequence[TableFact]) -> list[tuple[str, str]]:
    """Pairs of tables with one table hash because their names put together are the same: ``ab.c`` and ``a.bc``."""
    by_text: dict[str, list[str]] = defaultdict(list)
    for t in tables:
        by_text[t.schema_name + t.table_name].append(t.name)
    return [(names[0], other) for names in by_text.values() for other in sorted(names)[1:]]


def _require_whole(events: DataFrame | StoredEvents, *, function: str, why: str) -> None:
    if isinstance(events, DataFrame):
        require_columns(events, "kind", "schema_name", "table_name", "commit_ts", "op", "columns", "before")
        require_batch(events, function=function, why=why)


_NAMED = [("schema_name", pa.string()), ("table_name", pa.string())]
_NUMBERS = ("rows", "nulls", "changed", "compared", "labels", "bytes", "updates")
_FACTS = pa.schema([
    *_NAMED, ("name", pa.string()), ("mysql_type", pa.string()), ("is_key", pa.bool_()),
    *[(name, pa.int64()) for name in _NUMBERS], ("least", pa.binary()),
])  # fmt: skip
"""Of a column, or under a null name of its table: whose ``nulls`` are rows without a key, and ``changed`` keys that an
update changed. ``least``: the least hashes of different values."""
_HALF = pa.schema([*_NAMED, ("commit_ts", pa.int64()), ("key_hash", pa.int64()), ("op", pa.string())])
_SPLIT = pa.schema([*_NAMED, ("n", pa.int64())])
_KEYED = pa.schema([*_NAMED, ("key_hash", pa.int64()), ("hash", pa.int64()), ("rows", pa.int64()),
                    ("key", pa.string()), ("text", pa.string())])  # fmt: skip
_MET = pa.schema([*_NAMED, *[(n, pa.int64()) for n in ("distinct", "groups", "keys", "by_text", "cancelled")],
                  ("a", pa.string()), ("b", pa.string())])  # fmt: skip
_LEAST = 1 << 10
"""Least hashes that are kept of a column: beyond so many values the number of different ones is estimated to 3 %."""
_ADDS: dict[str, str] = {"mysql_type": "min", "is_key": "max", "least": "list"} | dict.fromkeys(_NUMBERS, "sum")
_AT_ONCE = 1 << 16


def _counted(rows: pa.Table, *, unique: Answers) -> pa.Table:
    """:data:`_FACTS` of some rows."""
    rows = rows.filter(pc.is_valid(rows["table_name"])).combine_chunks()
    if not len(rows):
        return _FACTS.empty_table()
    laid = laid_out_of(rows.to_batches()[0])
    after, before, image, is_update = laid.after, laid.before, laid.dispatched, laid.op == UPDATE
    codes_of = codes(pa.concat_arrays([after.names, before.names, image.names]))
    new, old, own_code = np.split(codes_of, np.cumsum([len(after.names), len(before.names)]))
    width = int(codes_of.max(initial=0)) + 1
    keys, of_old = after.rows * width + new, before.rows * width + old
    order = np.argsort(keys, kind="stable")
    place = np.searchsorted(keys, of_old, sorter=order)
    there = (place < len(keys)) & (keys[order[np.minimum(place, len(keys) - 1)]] == of_old) if len(keys) else (
        np.zeros(len(of_old), dtype=bool)
    )  # fmt: skip
    theirs = after.values.take(pa.array(order[np.where(there, place, 0)] if len(keys) else place, mask=~there))
    alike = pc.or_(pc.equal(before.values, theirs).fill_null(False), pc.and_(before.values.is_null(), theirs.is_null()))
    differs = is_update[before.rows] & ~np.asarray(alike)
    has_key = before.is_key | (np.maximum(before.flags, 0) & UNIQUE_FLAGS > 0)
    for at in places_of(rows, "schema_name", "table_name"):
        for which, answer in unique.at(rows.take(pa.array(at))):
            if answer is not None and answer.columns:
                own = np.zeros(len(rows), dtype=bool)
                own[at[which]] = True
                has_key |= own[before.rows] & np.asarray(pc.is_in(before.names, pa.array(answer.columns)))
    key_changed = np.zeros(len(rows), dtype=bool)
    key_changed[before.rows[has_key & (differs | (is_update[before.rows] & ~there))]] = True

    row, is_new = image.rows, (laid.op != DELETE)[image.rows]
    mine = row * width + own_code
    names, kinds, values, is_key = image.names, image.types, image.values, image.is_key
    changed = is_new & np.isin(mine, of_old[differs & there])
    label = pc.and_(pc.match_substring_regex(kinds, "^(enum|set)"),
                    pc.invert(pc.match_substring_regex(values, "^[0-9]+$"))).fill_null(False)  # fmt: skip
    compared = is_update & before.there
    each = rows.select(["schema_name", "table_name"]).take(pa.array(row))
    each = each.append_column("name", names)
    first, of = grouped(each, each.column_names)
    hashes = _hashes(image, rows["column_crcs"])
    columns = {
        "mysql_type": kinds, "is_key": pa.array(is_key), "rows": np.ones(len(row)), "nulls": values.is_null(),
        "changed": changed, "compared": compared[row], "labels": label,
    }  # fmt: skip
    cells = each
    for name, values_of in columns.items():
        as_array = values_of if isinstance(values_of, pa.Array) else pa.array(values_of)
        cells = cells.append_column(name, as_array if name in ("mysql_type", "is_key") else as_array.cast(pa.int64()))
    summed = _grouped(cells.append_column("of", pa.array(of)), ["of"], {n: _ADDS[n] for n in columns})
    summed = summed.take(pc.sort_indices(summed["of"]))
    sorted_at, ends = np.argsort(of, kind="stable"), np.cumsum(np.bincount(of, minlength=len(first)))
    least = [_least(h[h != 0]) for h in np.split(hashes[sorted_at], ends[:-1])] if len(first) else []
    found = each.take(pa.array(first))
    for name in columns:
        found = found.append_column(name, summed[name])
    found = found.append_column("least", pa.array(least, pa.binary()))

    of_rows = rows.select(["schema_name", "table_name"])
    told = {
        "rows": np.ones(len(rows)), "bytes": rows["row_bytes"].fill_null(0), "updates": is_update,
        "changed": key_changed, "nulls": rows["key_hash"].is_null(),
    }  # fmt: skip
    for name, values_of in told.items():
        column = values_of if isinstance(values_of, pa.ChunkedArray) else pa.array(values_of)
        of_rows = of_rows.append_column(name, column.cast(pa.int64()))
    whole = _grouped(of_rows, ["schema_name", "table_name"], dict.fromkeys(told, "sum"))
    return pa.concat_tables([_in_form(found), _in_form(whole)])


def _in_form(found: pa.Table) -> pa.Table:
    n = len(found)
    columns = {f.name: found[f.name] if f.name in found.column_names else None for f in _FACTS}
    none = {f.name: pa.repeat(0, n) if f.name in _NUMBERS else pa.nulls(n, f.type) for f in _FACTS}
    return pa.table({name: none[name] if c is None else c for name, c in columns.items()}).cast(_FACTS)


def _hashes(image: Image, crcs: pa.ChunkedArray) -> npt.NDArray[np.uint64]:
    """A hash of each value: its crc where it is known, else of its text; 0 of NULL."""
    valid = np.asarray(image.values.is_valid())
    flat = pc.list_flatten(crcs)  # of the same columns
    crc = np.asarray(flat.fill_null(0)) if len(flat) == len(valid) else np.zeros(len(valid), dtype=np.int64)
    found = crc.astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    found ^= found >> np.uint64(29)
    unknown = np.flatnonzero((crc <= 0) & valid)
    found[unknown] = Texts(image.values).fold(np.full(len(unknown), SEED), unknown)
    return np.where(valid, found, 0)


def _least(hashes: npt.NDArray[np.uint64]) -> bytes:
    return np.unique(hashes)[:_LEAST].tobytes()


def _estimated(least: bytes) -> int:
    """How many different values had these least hashes."""
    found = np.frombuffer(least, dtype=np.uint64)
    return len(found) if len(found) < _LEAST else round((_LEAST - 1) * (1 << 64) / float(found[-1]))


def _grouped(rows: pa.Table, by: list[str], adds: Mapping[str, str]) -> pa.Table:
    found = rows.group_by(by, use_threads=False).aggregate([*adds.items()])
    return found.rename_columns([*by, *adds])


def _summed(parts: pa.Table) -> pa.Table:
    """:data:`_FACTS` of several parts."""
    found = _grouped(parts.combine_chunks(), ["schema_name", "table_name", "name"], _ADDS)
    least = [
        _least(np.concatenate([np.frombuffer(b, np.uint64) for b in some if b is not None] or [np.empty(0, np.uint64)]))
        for some in found["least"].to_pylist()
    ]
    whole = found.set_column(found.column_names.index("least"), "least", pa.array(least, pa.binary()))
    return whole.select(_FACTS.names).cast(_FACTS)


def _summing(batches: Batches) -> Batches:
    held = _FACTS.empty_table()
    for batch in batches:
        held = _summed(pa.concat_tables([held, pa.table(batch)]))
    yield from held.combine_chunks().to_batches()


def _halves(rows: pa.Table) -> pa.Table:
    """Deletes and inserts: a key that has both in one transaction was one update."""
    kept = pc.and_(pc.is_in(rows["op"], pa.array(["delete", "insert"])), pc.is_valid(rows["table_name"]))
    for c in ("commit_ts", "key_hash"):
        kept = pc.and_(kept, pc.is_valid(rows[c]))
    return rows.select(_HALF.names).filter(kept)


def _split(batches: Batches) -> Batches:
    for rows in whole_keys(batches, _HALF.names[:4], at_once=_AT_ONCE):
        ops = rows.group_by(_HALF.names[:4], use_threads=False).aggregate([("op", "count_distinct")])
        both = ops.filter(pc.equal(ops["op_count_distinct"], 2)).group_by(["schema_name", "table_name"])
        yield from both.aggregate([([], "count_all")]).rename_columns(_SPLIT.names).combine_chunks().to_batches()


def _keys(events: DataFrame | StoredEvents) -> DataFrame | pa.Table:
    """Each handle key of the log."""
    read = (*NUMBERED, "key_hash")
    return grouped_by(changes_in(events, read, _keyed, _KEYED), _KEYED.names[:3], _of_keys, _KEYED)


def _keyed(rows: pa.Table) -> pa.Table:
    """Handle keys of some rows, one of each layout."""
    rows = rows.filter(pc.and_(pc.is_valid(rows["key_hash"]), pc.is_valid(rows["table_name"]))).combine_chunks()
    if not len(rows):
        return _KEYED.empty_table()
    first, of = grouped(rows, ("schema_name", "table_name", "key_hash", "layout"))
    own = rows.take(pa.array(first)).combine_chunks()
    laid, hashes, known = laid_out_of(own.to_batches()[0]), np.zeros(len(own), np.int64), np.zeros(len(own), bool)
    numbering = Numbering(None)
    for alike in Alike.among(own):
        hashes[alike.at], error = numbering.by(alike, "index-value")
        known[alike.at] = error == None  # noqa: E711
    deleted = laid.op == DELETE
    keys = pc.if_else(pa.array(deleted), key_texts(laid.before), key_texts(laid.after))
    found = own.select(["schema_name", "table_name", "key_hash"])
    for name, column in (
        ("hash", pa.array(hashes, mask=~known)), ("rows", pa.array(np.bincount(of, minlength=len(own)))),
        ("key", pc.if_else(pc.equal(keys, ""), pa.scalar(None, pa.string()), keys)),
        ("text", _hashed_texts(laid.dispatched)),
    ):  # fmt: skip
        found = found.append_column(name, column)
    return found


def _hashed_texts(image: Image) -> pa.Array:
    """What is hashed, in an order of its own: two keys with the same texts have the same hash by construction."""
    own = np.flatnonzero(image.is_key & np.asarray(image.values.is_valid()))
    at = pa.array(own)
    texts = pc.binary_join_element_wise(image.names.take(at), image.values.take(at), "")
    order = pc.sort_indices(pa.table({"row": image.rows[own], "text": texts}), [("row", "ascending"),
                                                                               ("text", "ascending")])  # fmt: skip
    ends = np.concatenate([[0], np.cumsum(np.bincount(image.rows[own], minlength=len(image.there)))]).astype(np.int32)
    return pc.binary_join(pa.ListArray.from_arrays(pa.array(ends), texts.take(order)), "\x01")


def _of_keys(batches: Batches) -> Batches:
    adds = {"hash": "min", "rows": "sum", "key": "min", "text": "min"}
    for rows in whole_keys(batches, _KEYED.names[:3], at_once=_AT_ONCE):
        yield from _grouped(rows, _KEYED.names[:3], adds).cast(_KEYED).combine_chunks().to_batches()


def _hottest(keys: pa.Table, most: int) -> pa.Table:
    """The keys of each table with most rows; ``of`` is of all keys of the table that were here: of the first alone."""
    by = [("schema_name", "ascending"), ("table_name", "ascending"), ("rows", "descending"), ("key", "ascending")]
    ordered = keys.take(pc.sort_indices(keys, by)).combine_chunks()
    if not len(ordered):
        return ordered
    each = runs(*[codes(ordered[c]) for c in ("schema_name", "table_name")])
    total = [pc.sum(ordered["of"][part]).as_py() for part in each]
    kept = [ordered[part][:most] for part in each]
    shares = [pa.array([n] + [0] * (len(k) - 1), pa.int64()) for n, k in zip(total, kept, strict=True)]
    at = ordered.column_names.index("of")
    return pa.concat_tables([k.set_column(at, "of", s) for k, s in zip(kept, shares, strict=True)])


def _met(batches: Batches) -> Batches:
    by = ["schema_name", "table_name", "hash"]
    for keys in whole_keys(batches, by, at_once=_AT_ONCE):
        known = keys.filter(pc.is_valid(keys["hash"]))
        kinds = [(c, end) for c in ("key", "text") for end in ("min", "max")]
        of = known.group_by(by, use_threads=False).aggregate([([], "count_all"), *kinds])
        found: dict[tuple[str, str], list[Any]] = {}
        for r in of.to_pylist():
            table, n = (r["schema_name"], r["table_name"]), r["count_all"]
            is_met, is_bare = n > 1, crc32("".join(table).encode()) == r["hash"]
            own = found.setdefault(table, [0, 0, 0, 0, 0, None])
            by_text = is_met and r["text_min"] is not None and r["text_min"] == r["text_max"]
            for i, more in enumerate((n, int(is_met), n * is_met, int(by_text), n * is_bare)):
                own[i] += more
            if is_met:
                pair = (r["key_min"], r["key_max"])
                own[5] = pair if own[5] is None else min(own[5], pair)
        each = [[*t, *of_table[:5], *(of_table[5] or (None, None))] for t, of_table in found.items()]
        yield from pa.Table.from_pylist([dict(zip(_MET.names, e, strict=True)) for e in each], _MET).to_batches()


def as_dict(fact: Any) -> dict[str, Any]:
    """A fact as plain values, for JSON."""
    return {name: getattr(fact, name) for name in fact.__slots__ if name != "columns"}


MAX_KEY_COLUMNS, MAX_SINGLE = 3, 8
"""Columns of a subset of the handle key, and single columns per table, at most."""


@dataclass(frozen=True, slots=True)
class Candidate:
    """A dispatcher for one table.

    ``name`` is the what-if's; ``by_key``: the partition depends on the handle key alone, so that it can
    change only with the key; ``refused`` is why TiCDC or the log does not allow it; ``risk`` what may go wrong later.
    """

    name: str
    rule: Rule
    by_key: bool = False
    refused: str = ""
    risk: str = ""

    @property
    def simplicity(self) -> tuple[int, int, str]:
        """Less is simpler."""
        order = {"table": 0, "index-value": 1 if not self.rule.index else 2, "columns": 3}
        return (order.get(self.rule.partition, 5) + (0 if self.by_key else 1), len(self.rule.columns), self.name)


TABLE = Candidate("table", Rule((), "table"), by_key=True)
TS = Candidate("ts", Rule((), "ts"), risk="each change of a row goes where its commit_ts happens to lead")
INDEX_VALUE = Candidate("index-value", Rule((), "index-value"), by_key=True)
OTHERS = (
    Candidate("tidb-rowid", Rule((), "tidb-rowid"), refused="only TiCDC v4.0 dispatched by _tidb_rowid"),
    Candidate("conflict", Rule((), "conflict"), refused="TiCDC never built conflict detection"),
)
"""The design's other strategies: measured for comparison where the what-if has them, never recommended."""


def definitions_of(catalog: Catalog | None, table: TableFact) -> list[TableDef]:
    """Every definition the table had in the log."""
    versions = () if catalog is None else catalog.versions.get((table.schema_name, table.table_name), ())
    return [v.definition for v in versions if v.definition is not None]


def candidates_for(
    table: TableFact, definitions: Sequence[TableDef], *, singles_most: int = MAX_SINGLE
) -> tuple[list[Candidate], str]:
    """Candidates of a table, and a sentence about what was left out (empty for nothing)."""
    out = [TABLE, TS]
    if table.keyless < table.rows:
        out.append(INDEX_VALUE)
    out += [*OTHERS, *_indexes(definitions)]
    columns = {c.name.lower(): c for c in table.columns}
    handle = [c.name for c in table.columns if c.is_key and _usable(c, table, definitions)]
    sizes = range(1, min(MAX_KEY_COLUMNS, len(handle) - 1) + 1)
    subsets = [s for n in sizes for s in combinations(handle, n)]
    out += [Candidate("columns:" + ",".join(s), Rule((), "columns", columns=s), by_key=True) for s in subsets]
    singles = [c for c in columns.values() if not c.is_key and _usable(c, table, definitions)]
    singles.sort(key=lambda c: (c.changed > 0, -c.distinct, c.name))
    out += [_single(c) for c in singles[:singles_most]]
    cut = len(singles) - singles_most
    note = f"{cut} of {len(singles)} single columns were not measured: those that change or have few values."
    return out, note if cut > 0 else ""


def _single(c: ColumnFact) -> Candidate:
    if c.changed:
        risk = f"{c.changed} of {c.compared} updates change {c.name}: the row moves to another partition, silently"
    elif c.compared:
        risk = f"none of {c.compared} updates changes {c.name} here, but it is no key and nothing forbids it"
    else:
        risk = f"the log does not show whether {c.name} ever changes, and it is no key"
    return Candidate(f"columns:{c.name}", Rule((), "columns", columns=(c.name,)), risk=risk)


def _usable(c: ColumnFact, table: TableFact, definitions: Iterable[TableDef]) -> bool:
    """In all rows of the log and all definitions, not virtual, and its hash can be known."""
    found = [d.column(c.name) for d in definitions]
    carried = all(f is not None and f.generated != "virtual" for f in found)
    return carried and c.rows >= table.rows and not c.labels and "," not in c.name


def _indexes(definitions: Sequence[TableDef]) -> list[Candidate]:
    names = {i.name.lower(): i.name for d in definitions for i in d.indexes}
    return [c for lower in sorted(names) for c in _index(names[lower], definitions)]


def _index(name: str, definitions: Sequence[TableDef]) -> list[Candidate]:
    found = [d.index(name) for d in definitions]
    if all(i is not None and _is_handle(i, d) for i, d in zip(found, definitions, strict=True)):
        return []  # the same as index-value without a name
    every = [i for i in found if i is not None]
    if not every:
        return []  # the clustered primary key: no index of that name
    virtual = {c for d, i in zip(definitions, found, strict=True) if i for c in i.columns if _is_virtual(d, c)}
    refused = ""
    if len(every) < len(definitions):
        refused = f"the index {name} is not in every version of the table: TiCDC fails on rows without it"
    elif not all(i.unique for i in every):
        refused = f"the index {name} is not unique: TiCDC refuses it"
    elif virtual:
        refused = f"{', '.join(sorted(virtual))} of the index {name} is a virtual generated column, which TiCDC skips"
    changes = f"an update of {name} is split, and the halves of one row go to the partitions of the old and new value"
    return [Candidate(f"index-value:{name}", Rule((), "index-value", index=name), refused=refused, risk=changes)]


def _is_handle(index: IndexDef, table: TableDef) -> bool:
    return table.handle is not None and set(index.columns) == set(table.handle.columns)


def _is_virtual(table: TableDef, name: str) -> bool:
    column = table.column(name)
    return column is None or column.generated == "virtual"


Load = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Evenness:
    """How evenly partitions are filled; 1 is even, for ``gini`` 0.

    ``max_over_mean`` is of the whole log. ``in_time`` is the same within each time bucket, weighted by its load: a
    consumer that must keep up at every moment is that much slower than it could be. ``p99`` is the load that 99 % of
    the buckets of partitions do not exceed, over their mean.
    """

    max_over_mean: float
    gini: float
    in_time: float
    p99: float


@dataclass(frozen=True, slots=True)
class MeasuredCandidate:
    """A candidate with N partitions: evenness by rows and bytes, and violations with cases and a pair per guarantee."""

    candidate: Candidate
    partitions: int
    rows: Evenness
    bytes: Evenness
    unplaced: int
    broken: Mapping[str, tuple[int, int]]
    pairs: Mapping[str, list[dict[str, Any]]]

    @property
    def uneven(self) -> float:
        """The larger of rows and bytes."""
        return max(self.rows.max_over_mean, self.bytes.max_over_mean)


def evenness(load: Load) -> Evenness:
    """Evenness of a load (time buckets, partitions); NaN where there is none."""
    n, total = load.shape[1], load.sum(axis=0)
    whole = total.sum()
    if not whole:
        return Evenness(*[float("nan")] * 4)
    cells = load[load.sum(axis=1) > 0]
    return Evenness(
        float(total.max() * n / whole),
        gini(total),
        float(cells.max(axis=1).sum() * n / whole),
        float(_percentile_99(cells.ravel()) / cells.mean()),
    )


def _percentile_99(values: Load) -> float:
    """As numpy gives it, which takes ten times as long for a few."""
    ordered = np.sort(values)
    place = 0.99 * (len(ordered) - 1)
    low = int(place)
    least, most = float(ordered[low]), float(ordered[min(low + 1, len(ordered) - 1)])
    step, share = most - least, place - low
    return least + step * share if share < 0.5 else most - step * (1 - share)


def measured(what_if: WhatIf, table: str, candidates: Sequence[Candidate], partitions: int) -> list[MeasuredCandidate]:
    """Every candidate of a table that the what-if has, with N partitions."""
    offered = set(what_if.candidates_of(table))
    found = [c for c in candidates if c.name in offered]
    rows = int(load_of(what_if, table, "table", partitions).sum())
    return [m for c in found if (m := _measured(what_if, table, c, partitions, rows)) is not None]


def load_of(what_if: WhatIf, table: str, candidate: str, partitions: int, *, weight: str = "rows") -> Load:
    """Load of one table (time buckets, partitions)."""
    return what_if.load(strategy=candidate, partitions=partitions, weight=weight, tables=[table])


def _measured(what_if: WhatIf, table: str, c: Candidate, partitions: int, rows: int) -> MeasuredCandidate | None:
    try:
        loads = {w: load_of(what_if, table, c.name, partitions, weight=w) for w in ("rows", "bytes")}
        counted = what_if.counted(strategy=c.name, partitions=partitions, tables=[table])
    except DispatchError:
        if not c.refused:
            raise
        return None  # conflict detection is run with a few partition counts only
    mine = [r for r in counted if r["table"] == table]
    return MeasuredCandidate(
        c,
        partitions,
        evenness(loads["rows"]),
        evenness(loads["bytes"]),
        rows - int(loads["rows"].sum()),
        {r["guarantee"]: (int(r["violations"]), int(r["cases"])) for r in mine},
        {r["guarantee"]: r["counterexample"] for r in mine if r["counterexample"]},
    )

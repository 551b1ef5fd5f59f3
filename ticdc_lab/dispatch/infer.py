"""Which dispatch rule a topic was recorded with, told from the log itself.

One pass counts the partitions of each topic, one shuffle by row tries all rules on every row change and sees which
tables have a row that moved; where a rule explains that, one more pass names the events that it does not put where they
lie. The rules are tried on the checksums of :data:`ticdc_lab.events.schema.DISPATCH`, with no image.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from ticdc_lab.codecs.keys import with_hashes
from ticdc_lab.engine.shuffle import Batches, by_key, in_one
from ticdc_lab.errors import ContractError
from ticdc_lab.events import POSITION
from ticdc_lab.events.arrays import Bools, Ints, changes_in, codes, runs
from ticdc_lab.events.schema import DISPATCH, KEYS, require_batch, require_columns
from ticdc_lab.facts.schemas import arrow_of

EXPLAINED = 0.95
"""Least share of a table's rows that a rule must explain to count as theirs; a fault or two must not hide it."""

MORE_PARTITIONS = 4
"""How many partitions behind the last that was recorded a topic may have for a rule to be found that counts them."""

SURE_BITS = 16
"""What is told of partitions that nobody recorded must be told by so many bits: a row tells those of their number."""

CHANCE = 0.1
"""Share of a table's rows by which what a rule explains must exceed its fullest partition, to be no chance."""

_TABLE = ("topic", "schema_name", "table_name")
_NEEDED = ("kind", "commit_ts", "topic", "partition", "schema_name", "table_name", "op", "columns", "before")

_TRIED = """
topic string, schema_name string, table_name string, rule string, rank int, n_rows bigint, n_explained bigint,
partitions int, recorded int, moves boolean, moved boolean, n_possible bigint
"""
"""How many rows of a table each rule explains: ``rank`` is how simple it is, ``moves`` says that it can move a row,
``moved`` that the table has one that did move, ``n_possible`` counts also rows without what ``ts`` reads;
``partitions`` may be more than the ``recorded`` ones, where the last are not there. A rule :data:`_FILLED` with a
partition's number explains the rows that lie in it."""
_BEST = f"{_TRIED}, explains boolean, untold boolean"
"""Of each table the best rule; whether it explains what moved, or whether it may be ``ts`` and cannot be told."""
_CAUSES = """
topic string, schema_name string, table_name string, cause string, partition int, offset bigint, seq int
"""
_NARROW = (*POSITION, "schema_name", "table_name", "commit_ts", "key_hash", "key_crc", "column_crcs", "layout")

_RULES = {"table": 0, "index-value": 1, "columns": 2, "ts": 3}
"""From the simplest on."""
_COLUMN = "columns:"
_FILLED = "partition:"
_MASK, _UNKNOWN = (1 << 32) - 1, -1


def infer_rules(events: DataFrame, *, partitions: int | None = None) -> DataFrame:
    """Say for each table which rule explains the partitions its rows were recorded in.

    Tried are ``table``, ``index-value`` over the handle key, ``columns`` over each single column, and ``ts``. Of the
    rules that explain most rows the simplest is taken, in that order: few rows may fit several.

    Parameters
    ----------
    events
        The events contract.
    partitions
        Partition count of the topics; by default the highest partition number with any event, plus 1: watermarks go
        to all partitions.

    Returns
    -------
    DataFrame
        Per ``topic, schema_name, table_name``: ``rule`` (string: the strategy's name, with ``columns:`` in front of a
        column's), ``n_rows``, ``n_explained`` (bigint), ``partitions`` (int). The best rule, however bad: compare
        ``n_explained`` with ``n_rows``.

    References
    ----------
    Golden README section 2: hash and dispatch formulas.
    """
    require_columns(events, *_NEEDED)
    require_batch(events, function="infer_rules", why="a rule must explain all rows of a table")
    rows = _narrow(events, partitions=partitions)
    return _best_rules(rows, more=0).select(*_TABLE, "rule", "n_rows", "n_explained", "partitions")


def move_causes(events: DataFrame) -> DataFrame:
    """Say for each table whose rows lie in several partitions which rule moves them.

    Parameters
    ----------
    events
        The events contract; images are read only where :data:`ticdc_lab.events.schema.DISPATCH` or the keys are
        missing.

    Returns
    -------
    DataFrame
        ``topic, schema_name, table_name, cause`` (string), for :func:`ticdc_lab.audit.audit`; only tables that a rule
        explains (:data:`EXPLAINED`) which can move a row: not one by table or by columns of the handle key alone, as a
        row keeps these. Besides, with null ``cause``, one row per event of these tables that does not lie where the
        rule puts it, at ``partition, offset, seq``; a value whose hash is not known tells nothing. A table whose rule
        cannot be told has one row with nothing but its names: rows moved, ``ts`` may have sent them, as they have no
        commit_ts, and no other rule explains more than chance does (:data:`CHANCE`). A rule that explains a table's
        rows only by more partitions than were recorded (:data:`MORE_PARTITIONS`) has the last of these as the
        ``partition`` of its cause.
    """
    require_columns(events, *_NEEDED, *POSITION)
    require_batch(events, function="move_causes", why="a row may move at any later offset")
    rows = _narrow(events, partitions=None)
    rules = _best_rules(rows, more=MORE_PARTITIONS).mapInArrow(_explaining, _BEST)
    known = rules.where("rule IS NOT NULL").select(
        *[F.col(c).alias(f"_{c}") for c in _TABLE], F.col("rule").alias("_rule"), "partitions"
    )
    same = F.expr(" AND ".join(f"{c} <=> _{c}" for c in _TABLE))
    placed = rows.drop("partitions").join(F.broadcast(known), on=same)
    return rules.mapInArrow(_causes, _CAUSES).unionAll(placed.mapInArrow(_misplaced, _CAUSES))


def move_causes_table(events: pa.Table) -> pa.Table:
    """:func:`move_causes` of a log in memory with the keys and :data:`ticdc_lab.events.schema.DISPATCH`."""
    rows = _narrow_table(events)
    rules = pa.Table.from_batches(_explaining(iter(_best_of(rows).to_batches())), schema=arrow_of(_BEST))
    rule = {tuple(r[c] for c in _TABLE): (r["rule"], r["partitions"]) for r in rules.to_pylist()}
    of_each = [rule.get(name, (None, None)) for name in zip(*[rows[c].to_pylist() for c in _TABLE], strict=True)]
    ruled = rows.drop_columns(["partitions"]).append_column("_rule", pa.array([r for r, _ in of_each], pa.string()))
    ruled = ruled.append_column("partitions", pa.array([n for _, n in of_each], pa.int32()))
    parts = (
        _causes(iter(rules.to_batches())),
        _misplaced(iter(ruled.filter(pc.is_valid(ruled["_rule"])).to_batches())),
    )
    return pa.Table.from_batches([b for part in parts for b in part], schema=arrow_of(_CAUSES))


def _narrow(events: DataFrame, *, partitions: int | None) -> DataFrame:
    """Row changes as the kernels read them, with the partition count of their topic."""
    rows = events.where("kind = 'row'").transform(with_hashes, KEYS, DISPATCH).select(*_NARROW)
    if partitions is not None:
        return rows.withColumn("partitions", F.lit(partitions))
    counts = events.groupBy(F.col("topic").alias("_topic")).agg((F.max("partition") + 1).alias("partitions"))
    return rows.join(F.broadcast(counts), on=F.expr("topic <=> _topic")).drop("_topic")


def _narrow_table(events: pa.Table) -> pa.Table:
    if missing := {"kind", *_NARROW, *KEYS.names, *DISPATCH.names} - set(events.column_names):
        raise ContractError.from_missing_and_available(missing, events.column_names, frame="events")
    counts = events.group_by(["topic"]).aggregate([("partition", "max")])
    n = {r["topic"]: r["partition_max"] + 1 for r in counts.to_pylist()}
    rows = events.filter(pc.equal(events["kind"], "row")).select(_NARROW)
    of_each = pa.array([n[t] for t in rows["topic"].to_pylist()], pa.int32())
    order = [(c, "ascending") for c in (*_TABLE, "key_hash")]
    return rows.append_column("partitions", of_each).sort_by(order)


def _best_rules(rows: DataFrame, *, more: int) -> DataFrame:
    tried = by_key(rows, (*_TABLE, "key_hash"), partial(_tried, more=more), _TRIED)
    return in_one(tried, _best, _BEST)


def _best_of(rows: pa.Table) -> pa.Table:
    return pa.Table.from_batches(_best(_tried(iter(rows.to_batches()), more=MORE_PARTITIONS)), schema=arrow_of(_BEST))


def _tried(batches: Batches, *, more: int) -> Batches:
    """What each rule explains in batches that are sorted by table and key, a rule that moves rows also by so many more
    partitions.
    """
    last: pa.Table | None = None
    for batch in batches:
        rows = pa.Table.from_batches([batch])
        if not rows.num_rows:
            continue
        moved = _moved(rows, last)
        found = [row for own in _by_layout(rows) for row in _fits(own, more=more)]
        found = [r | {"moved": tuple(r[c] for c in _TABLE) in moved} for r in found]
        yield pa.RecordBatch.from_pylist(found, schema=arrow_of(_TRIED))
        last = rows.slice(rows.num_rows - 1)


def _moved(rows: pa.Table, last: pa.Table | None) -> set[tuple[Any, ...]]:
    """Tables of which a row lies in another partition than the one before it in the same key."""
    both = (rows if last is None else pa.concat_tables([last, rows])).filter(pc.field("key_hash").is_valid())
    if not both.num_rows:
        return set()
    names = [codes(both[c]) for c in _TABLE]
    same = ~changes_in(*names, np.asarray(both["key_hash"]))
    odd = both.filter(pa.array(same & changes_in(np.asarray(both["partition"])))).select(_TABLE)
    return {tuple(t.values()) for t in odd.group_by(list(_TABLE)).aggregate([]).to_pylist()}


def _by_layout(rows: pa.Table, *more: str) -> Iterator[pa.Table]:
    """Rows of one table, partition count and layout together."""
    names = (*_TABLE, "layout", "partitions", *more)
    _, group = np.unique(np.stack([codes(rows[c]) for c in names]), axis=1, return_inverse=True)
    order = np.argsort(group.reshape(-1), kind="stable")
    for part in runs(group.reshape(-1)[order]):
        yield rows.take(pa.array(order[part])).combine_chunks()


def _fits(rows: pa.Table, *, more: int) -> Iterator[dict[str, Any]]:
    """How many rows of one table and layout each rule explains."""
    partition, known = np.asarray(rows["partition"]), {c: rows[c][0].as_py() for c in (*_TABLE, "partitions")}
    recorded = known["partitions"]
    known["recorded"] = recorded
    names, keys, _ = _columns(rows)
    for number, n in zip(*np.unique(partition, return_counts=True), strict=True):
        yield known | {"rule": f"{_FILLED}{number}", "rank": len(_RULES), "n_explained": int(n), "moves": False}
    for rule in ("table", "index-value", "ts", *[_COLUMN + name for name in names]):
        value, told = _value(rows, rule)
        moves = rule == "ts" or (rule.startswith(_COLUMN) and rule.removeprefix(_COLUMN) not in keys)
        for n in range(recorded, recorded + 1 + more * moves):
            n_explained = int((told & (value % n == partition)).sum())
            yield known | {
                "rule": rule,
                "partitions": n,
                "rank": _RULES[rule.partition(":")[0]],
                "n_rows": rows.num_rows,
                "n_explained": n_explained,
                "n_possible": n_explained + (int((~told).sum()) if rule == "ts" else 0),
                "moves": moves,
            }


def _columns(rows: pa.Table) -> tuple[list[str], list[str], pa.ChunkedArray]:
    """Names of the columns of rows of one layout, those of the key, and the checksums."""
    layout = rows["layout"][0].as_py() or ",,"
    names, _, keys = layout.rpartition(",,")
    split = [[n.replace("\x1f", ",") for n in part.split(",")] if part else [] for part in (names, keys)]
    return split[0], split[1], rows["column_crcs"]


def _value(rows: pa.Table, rule: str) -> tuple[Ints, Bools]:
    """TiCDC's partition hash of rows of one table and layout, and whether it is known: modulo the number of partitions
    it is where a rule puts them.
    """
    every = np.ones(rows.num_rows, dtype=bool)
    table = zlib.crc32("".join(rows[c][0].as_py() or "" for c in _TABLE[1:]).encode())
    if rule == "table":
        return np.full(rows.num_rows, table), every
    if rule in ("ts", "index-value"):
        column = rows["commit_ts" if rule == "ts" else "key_crc"]
        value, told = np.asarray(column.fill_null(0)), np.asarray(column.is_valid())
        return (value, told) if rule == "ts" else ((value & _MASK) ^ table, told & (value >> 32 > 0))
    names, _, crcs = _columns(rows)
    at = names.index(rule.removeprefix(_COLUMN))
    crc = pc.list_element(crcs, at)
    value = np.asarray(pc.fill_null(crc, 0))
    return value ^ table, value != _UNKNOWN


def _best(batches: Batches) -> Batches:
    """Of all rules tried on a table the one that explains most rows, of equals the simplest."""
    tried = pa.Table.from_batches(batches, schema=arrow_of(_TRIED))
    sums = [("n_rows", "sum"), ("n_explained", "sum"), ("n_possible", "sum"), ("moves", "any"), ("moved", "any")]
    summed = tried.group_by([*_TABLE, "rule", "rank", "partitions", "recorded"]).aggregate(sums)
    names = [c if c in tried.column_names else c.rpartition("_")[0] for c in summed.column_names]
    of_table: dict[tuple[Any, ...], dict[str, dict[str, Any]]] = {}
    by_more: dict[tuple[Any, ...], list[dict[str, Any]]] = {}
    for r in summed.rename_columns(names).to_pylist():
        table = tuple(r[c] for c in _TABLE)
        if r["partitions"] == r["recorded"]:
            of_table.setdefault(table, {})[r["rule"]] = r
        else:
            by_more.setdefault(table, []).append(r)
    judged = [_judged(rules, by_more.get(table, [])) for table, rules in of_table.items()]
    yield pa.RecordBatch.from_pylist(judged, schema=arrow_of(_BEST))


def _judged(rules: dict[str, dict[str, Any]], by_more: list[dict[str, Any]]) -> dict[str, Any]:
    """The best of a table's rules. Without commit_ts ``ts`` explains nothing, but may be what rows were sent by.

    Then no other rule explains more than lies in the fullest partition anyway. Where none explains what moved, one
    ``by_more`` partitions than were recorded may.
    """
    tried = [r for name, r in rules.items() if not name.startswith(_FILLED)]
    best, ts = max(tried, key=lambda r: (r["n_explained"], -r["rank"], r["rule"])), rules["ts"]
    fullest = max(r["n_explained"] for name, r in rules.items() if name.startswith(_FILLED))
    by_chance = best["n_explained"] <= fullest + CHANCE * best["n_rows"]
    fits = best["n_explained"] >= EXPLAINED * best["n_rows"]
    may_be_ts = ts["n_explained"] < ts["n_possible"] >= EXPLAINED * ts["n_rows"] and not fits
    explains = best["moves"] and (fits or (best is ts and may_be_ts and not by_chance))
    sure = [r for r in by_more if r["moved"] and not fits and _is_sure(r, fullest)]
    if sure:
        more = max(sure, key=lambda r: (r["n_explained"], -r["rank"], -r["partitions"], r["rule"]))
        return more | {"explains": True, "untold": False, "moved": True}
    return best | {"explains": explains, "untold": may_be_ts and by_chance, "moved": ts["moved"]}


def _is_sure(r: dict[str, Any], fullest: int) -> bool:
    """Whether a rule explains a table by more partitions than were recorded, and no chance does."""
    enough = max(EXPLAINED * r["n_rows"], SURE_BITS / np.log2(r["partitions"]))
    return bool(r["n_explained"] >= enough and r["n_explained"] > fullest + CHANCE * r["n_rows"])


def _explaining(batches: Batches) -> Batches:
    """Of the best rules those that explain moves of their table; with null for the rule, tables that none explains."""
    for batch in batches:
        rule = pc.if_else(batch["explains"], batch["rule"], pa.scalar(None, pa.string()))
        ruled = batch.set_column(batch.schema.get_field_index("rule"), batch.schema.field("rule"), rule)
        yield ruled.filter(pc.and_(batch["moved"], pc.or_(batch["explains"], batch["untold"])))


def _causes(batches: Batches) -> Batches:
    for batch in batches:
        said = [
            {c: r[c] for c in _TABLE}
            | {"cause": _sentence(r), "partition": r["partitions"] - 1 if r["partitions"] > r["recorded"] else None}
            for r in batch.to_pylist()
        ]
        yield pa.RecordBatch.from_pylist(said, schema=arrow_of(_CAUSES))


def _sentence(r: dict[str, Any]) -> str | None:
    if r["rule"] is None:
        return None
    n, rule, whole = r["partitions"], r["rule"], r["n_explained"] == r["n_rows"]
    share = f"all {r['n_rows']}" if whole else f"{r['n_explained']} of {r['n_rows']}"
    beyond = f"; the recording has no partition from {r['recorded']} on" if n > r["recorded"] else ""
    if rule == "ts":
        return f"the table is dispatched by ts ({share} rows lie in partition commit_ts mod {n}{beyond})"
    return (
        f"the table is dispatched by column {rule.removeprefix(_COLUMN)}, whose value changes ({share} rows lie in the "
        f"partition of its hash mod {n}{beyond})"
    )


def _misplaced(batches: Batches) -> Batches:
    """Events that lie elsewhere than the rule of their table (``_rule``) puts them."""
    for batch in batches:
        for rows in _by_layout(pa.Table.from_batches([batch]), "_rule") if len(batch) else ():
            rule = rows["_rule"][0].as_py()
            if rule.startswith(_COLUMN) and rule.removeprefix(_COLUMN) not in _columns(rows)[0]:
                continue
            value, told = _value(rows, rule)
            target = value % rows["partitions"][0].as_py()
            odd = rows.filter(pa.array(told & (target != np.asarray(rows["partition"]))))
            columns = {c: odd[c] for c in (*_TABLE, "partition", "offset", "seq")}
            none = pa.nulls(odd.num_rows, pa.string())
            yield from pa.table(
                [columns.get(f.name, none) for f in arrow_of(_CAUSES)], schema=arrow_of(_CAUSES)
            ).to_batches()

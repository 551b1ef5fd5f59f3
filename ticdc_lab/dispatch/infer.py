"""The dispatch rule that a topic was recorded with, inferred from the log itself.

One pass counts the partitions of each topic, one tries all rules on every row change, and one shuffle by row, of its
keys alone, sees which tables have a row that moved; where a rule explains that, one more pass names the events that it
does not put where they lie. The rules are tried on the checksums of :data:`ticdc_lab.events.schema.DISPATCH`, with no
image.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import to_arrow_schema

from ticdc_lab.codecs.keys import with_hashes
from ticdc_lab.dispatch.best_rule import BEST, CAUSES, best_in, causes_in, of_moved
from ticdc_lab.dispatch.fitting import (
    TABLE,
    TRIED,
    by_layout,
    columns_of,
    hash_of,
    named_columns,
    tried_in,
)
from ticdc_lab.dispatch.given import COLUMN, NOTHING_GIVEN, OF_NAME, GivenRules
from ticdc_lab.engine.sessions import computes_here
from ticdc_lab.engine.shuffle import Batches, Kernel, MadeByWorkers, bucket_of, in_one, several_at_once, spark_order
from ticdc_lab.errors import ContractError
from ticdc_lab.events import POSITION
from ticdc_lab.events.arrays import encoded, numbers
from ticdc_lab.events.schema import DECODED, DISPATCH, KEYS, require_batch, require_columns
from ticdc_lab.facts import LogFacts
from ticdc_lab.facts.places import NAMED_BY, index_of, placed
from ticdc_lab.facts.schemas import arrow_of

if TYPE_CHECKING:
    from ticdc_lab.sources.stored import StoredEvents

MORE_PARTITIONS = 4
"""How many partitions behind the last that was recorded a topic may have for a rule to be found that counts them."""

SAMPLED = 1 << 12
"""Of about so many changes it is seen whether their rows move, before all are looked at."""

MISPLACED = 1 << 20
"""Most misplaced events that one table contains here: some 100 MB."""

Table = tuple[Any, ...]
"""Topic, schema and name."""

_NAMES = "topic string, schema_name string, table_name string"
_NEEDED = ("kind", "commit_ts", "topic", "partition", "schema_name", "table_name", "op", "columns", "before")
_NARROW = (*POSITION, "schema_name", "table_name", "commit_ts", "key_crc", "column_crcs", "layout")
_TEXT = pa.dictionary(pa.int32(), pa.string())
_FORM = pa.schema(
    [(f.name, _TEXT if f.type == pa.string() else f.type) for f in to_arrow_schema(DECODED) if f.name in _NARROW]
    + [("partitions", pa.int32())]
)
_LIE = pa.schema([*[(c, pa.string()) for c in TABLE], ("key_hash", pa.int64()), ("partition", pa.int32())])


def infer_rules(events: DataFrame, *, partitions: int | None = None, given: GivenRules = NOTHING_GIVEN) -> DataFrame:
    """Find for each table which rule explains the partitions its rows were recorded in.

    Tried are the rule that is ``given``, ``table``, ``index-value`` over the handle key, ``columns`` over each single
    column, and ``ts``; where none of them fits, ``columns`` over two and more, as many as :data:`COMBINATIONS` allows
    (:func:`tried_up_to`). Of the rules that explain most rows the first is taken, in that order: few rows may fit
    several.

    Parameters
    ----------
    events
        The events contract.
    partitions
        Partition count of the topics; by default the highest partition number with any event, plus 1: watermarks go
        to all partitions.
    given
        What the changefeed's file or an option names.

    Returns
    -------
    DataFrame
        Per ``topic, schema_name, table_name``: ``rule`` (string: the strategy's name, with ``columns:`` in front of a
        column's, or of several with a comma between), ``n_rows``, ``n_explained`` (bigint), ``partitions`` (int),
        ``n_unknown`` (bigint: rows where the log does not show what the rule hashes), ``by_chance`` (boolean: a
        combination that fits too few rows to be sure, as so many were tried), ``tried`` (string: which rules were
        tried), ``name_crc`` (bigint: the crc32 of the name that the rule hashes, or its last bits, where it is another
        than the table's). The best rule, however bad: compare ``n_explained`` with ``n_rows``. ``n_rows`` are those
        that it was tried on: combinations of three columns and more are not tried on a few rows that one column
        explains.

    References
    ----------
    Golden README section 2: hash and dispatch formulas.
    """
    require_columns(events, *_NEEDED)
    require_batch(events, function="infer_rules", why="a rule must explain all rows of a table")
    tried = _narrow(events, partitions=partitions).mapInArrow(partial(tried_in, more=0, given=given), TRIED)
    return in_one(tried, _told_in, INFERRED)


INFERRED = """
topic string, schema_name string, table_name string, rule string, n_rows bigint, n_explained bigint, partitions int,
n_unknown bigint, by_chance boolean, tried string, name_crc bigint
"""
"""What :func:`infer_rules` gives."""


def rules_in_files(files: StoredEvents, facts: LogFacts, *, given: GivenRules = NOTHING_GIVEN) -> pa.Table:
    """:func:`infer_rules` of events in files, at once and in order; ``facts`` were gathered of them."""
    tried = _narrow_files(files, facts).found(partial(tried_in, more=0, given=given), arrow_of(TRIED))
    found = pa.Table.from_batches(_told_in(iter(tried.to_batches())))
    return found.take(spark_order(found, TABLE))


def _told_in(tried: Batches) -> Batches:
    """The best rule of each table, apart from the name that it hashes."""
    for best in best_in(tried):
        parts = [rule.partition(OF_NAME) for rule in best["rule"].to_pylist()]
        named = {"rule": [rule for rule, _, _ in parts], "name_crc": [int(crc) if crc else None for _, _, crc in parts]}
        form = arrow_of(INFERRED)
        columns = [pa.array(named[f.name], f.type) if f.name in named else best[f.name] for f in form]
        yield pa.RecordBatch.from_arrays(columns, schema=form)


def move_causes(events: DataFrame, *, given: GivenRules = NOTHING_GIVEN) -> DataFrame:
    """Find for each table whose rows lie in several partitions, or would if all were recorded, which rule moves them.

    Parameters
    ----------
    events
        The events contract; images are read only where :data:`ticdc_lab.events.schema.DISPATCH` or the keys are
        missing.
    given
        What the changefeed's file or an option names.

    Returns
    -------
    DataFrame
        ``topic, schema_name, table_name, cause`` (string), for :func:`ticdc_lab.audit.audit`; of tables that a rule
        explains (:data:`EXPLAINED`) which can move a row: not one by table or by columns of the handle key alone, as a
        row keeps these. Besides, with null ``cause``, one row per event of these tables that does not lie where the
        rule puts it, at ``partition, offset, seq``; a value without a known hash proves nothing. A rule that explains
        a table's rows only by more partitions than were recorded (:data:`MORE_PARTITIONS`), or as well where another
        table of the topic shows that number, has the last of these as the ``partition`` of its cause.

        Other tables with rows that moved have one row without ``cause`` and place. ``may_be`` (string) names a rule
        that the log does not decide: ``ts``, as rows have no commit_ts and no other rule explains more than chance does
        (:data:`CHANCE`), or a combination of columns that fits too few rows. Else ``tried`` (string) names the rules
        that were tried in vain.
    """
    require_columns(events, *_NEEDED, *POSITION)
    require_batch(events, function="move_causes", why="a row may move at any later offset")
    rows = _narrow(events, partitions=None)
    tried = rows.mapInArrow(partial(tried_in, more=MORE_PARTITIONS, given=given), TRIED)
    rules = _rules(tried, _moved(events))
    known = rules.where("explains AND n_explained < n_rows").select(
        *[F.col(c).alias(f"_{c}") for c in TABLE], F.col("rule").alias("_rule"), "partitions"
    )
    same = F.expr(" AND ".join(f"{c} <=> _{c}" for c in TABLE))
    placed = rows.drop("partitions").join(F.broadcast(known), on=same)
    said = rules.mapInArrow(partial(causes_in, given=given), CAUSES)
    return said.unionAll(placed.mapInArrow(_misplaced(given=given), CAUSES))


def move_causes_at_once(
    events: Callable[[], DataFrame], facts: LogFacts, *, files: StoredEvents | None = None,
    moved: Collection[Table] = (), given: GivenRules = NOTHING_GIVEN,
) -> pa.Table | DataFrame:  # fmt: skip
    """:func:`move_causes`, computed at once and for less: as a table, unless it names very many events.

    ``events``: gives the events of :func:`move_causes`. ``facts``: what was gathered of them. ``files``: the same
    events in files, if they lie in some. ``moved``: tables with a row known to be in several partitions. ``given``: as
    of :func:`move_causes`.
    """
    rows: DataFrame | MadeByWorkers
    rows = _narrow(events(), partitions=None) if files is None else _narrow_files(files, facts)
    if not _spread(facts) - {*moved}:
        known = {*moved}
    elif files is not None and computes_here(files.spark):
        known = _moved_in(files, facts)
    else:
        known = _tables(_moved(events()).toArrow())
    trying, form = partial(tried_in, more=MORE_PARTITIONS, given=given), arrow_of(TRIED)
    if isinstance(rows, MadeByWorkers):
        tried = rows.found(trying, form)
    else:
        tried = _framed(rows, trying, TRIED).toArrow().cast(form)
    named = [dict(zip(TABLE, table, strict=True)) | {"moved": True} for table in sorted(known, key=str)]
    every = [*tried.to_batches(), pa.RecordBatch.from_pylist(named, arrow_of(TRIED))]
    rules = pa.Table.from_batches(of_moved(best_in(iter(every))), schema=arrow_of(BEST))
    causes = causes_in(iter(rules.to_batches()), given=given, names=names_upstream(facts))
    said = pa.Table.from_batches(causes, schema=arrow_of(CAUSES))
    if not (rule_of := _rule_of(rules)):
        return said
    odd = _misplaced(rule_of, given=given)

    def first(batches: Batches) -> Batches:
        n = 0
        for batch in odd(batches):
            yield batch
            if (n := n + len(batch)) > MISPLACED:
                return

    if isinstance(rows, MadeByWorkers) and computes_here(rows.spark):
        found = rows.found(first, said.schema)
    else:
        found = _framed(rows, first, CAUSES).limit(MISPLACED + 1).toArrow().cast(said.schema)
    if found.num_rows <= MISPLACED:
        return pa.concat_tables([said, found])
    return events().sparkSession.createDataFrame(said, CAUSES).unionAll(_framed(rows, odd, CAUSES))


def partition_counts(facts: LogFacts) -> dict[str | None, int]:
    """How many partitions of each topic are known: up to the last that was recorded."""
    counts: dict[str | None, int] = {}
    for topic, partition in facts.homes:
        counts[topic] = max(counts.get(topic, 0), partition + 1)
    return counts


def names_upstream(facts: LogFacts) -> list[tuple[str, str]]:
    """Schemas and tables of a log, each with each: a table that is routed has one of them upstream, or another one."""
    each = [sorted(set(facts.places[c].drop_null().to_pylist()) - {""}) for c in ("schema_name", "table_name")]
    return [(schema, table) for schema in each[0] for table in each[1]]


def _framed(rows: DataFrame | MadeByWorkers, kernel: Kernel, schema: str) -> DataFrame:
    return rows.mapped(kernel, schema) if isinstance(rows, MadeByWorkers) else rows.mapInArrow(kernel, schema)


def move_causes_table(events: pa.Table, *, given: GivenRules = NOTHING_GIVEN) -> pa.Table:
    """:func:`move_causes` of a log in memory with the keys and :data:`ticdc_lab.events.schema.DISPATCH`."""
    rows = _narrow_table(events)
    moved = _moved_of(events.filter(pc.equal(events["kind"], "row")))
    named = [dict(zip(TABLE, table, strict=True)) | {"moved": True} for table in moved]
    tried = [
        *tried_in(iter(rows.to_batches()), more=MORE_PARTITIONS, given=given),
        pa.RecordBatch.from_pylist(named, arrow_of(TRIED)),
    ]
    rules = pa.Table.from_batches(of_moved(best_in(iter(tried))), schema=arrow_of(BEST))
    odd = _misplaced(_rule_of(rules), given=given)(iter(rows.to_batches()))
    parts = (causes_in(iter(rules.to_batches()), given=given), odd)
    return pa.Table.from_batches([b for part in parts for b in part], schema=arrow_of(CAUSES))


def _narrow(events: DataFrame, *, partitions: int | None) -> DataFrame:
    """Row changes as the kernels read them, with the partition count of their topic."""
    rows = events.where("kind = 'row'").transform(with_hashes, KEYS, DISPATCH).select(*_NARROW)
    if partitions is not None:
        return rows.withColumn("partitions", F.lit(partitions))
    counts = events.groupBy(F.col("topic").alias("_topic")).agg((F.max("partition") + 1).alias("partitions"))
    return rows.join(F.broadcast(counts), on=F.expr("topic <=> _topic")).drop("_topic")


def _narrow_files(files: StoredEvents, facts: LogFacts) -> MadeByWorkers:
    """The same of events in files."""
    counts = partition_counts(facts)
    return files.rows(_NARROW, lambda own: _with_partitions(own, counts), _FORM)


def _narrow_table(events: pa.Table) -> pa.Table:
    if missing := {"kind", *_NARROW, *KEYS.names, *DISPATCH.names} - set(events.column_names):
        raise ContractError.from_missing_and_available(missing, events.column_names, frame="events")
    counts = events.group_by(["topic"]).aggregate([("partition", "max")]).to_pylist()
    rows = events.filter(pc.equal(events["kind"], "row")).select(_NARROW)
    return _with_partitions(rows, {r["topic"]: r["partition_max"] + 1 for r in counts})


def _with_partitions(rows: pa.Table, counts: Mapping[str | None, int]) -> pa.Table:
    of, topics = encoded(rows["topic"])
    of_each = np.array([counts.get(t, 0) for t in topics], dtype=np.int32)[of]
    return rows.append_column("partitions", pa.array(of_each))


def _spread(facts: LogFacts) -> set[Table]:
    """The tables that lie in several partitions; no row of another has moved."""
    every = facts.places.group_by([*TABLE]).aggregate([("partition", "count_distinct")])
    return _tables(every.filter(pc.greater(every["partition_count_distinct"], 1)))


def moved_tables(files: StoredEvents, facts: LogFacts) -> set[Table]:
    """Tables with a row in several partitions, as some thousand rows show: most, where many move."""
    if not _spread(facts):
        return set()
    names = (*TABLE, "key_hash", "partition")
    share = min(files.events // SAMPLED + 1, 1 << 15)

    def some(rows: pa.Table) -> pa.Table:
        keyed = rows.filter(pc.is_valid(rows["key_hash"]))
        own = keyed.filter(pa.array(bucket_of(keyed["key_hash"], share) == 0)).select(names).cast(_LIE)
        return own.group_by([*names]).aggregate([])  # one row may have changed a million times

    return _moved_of(files.rows(names, some, _LIE).found(lambda rows: rows, _LIE))


def _rules(tried: DataFrame, tables: DataFrame) -> DataFrame:
    """The rules that explain why rows of their tables moved, in the form of :func:`of_moved`."""
    said = tables.withColumn("moved", F.lit(True))
    forms = [form.split() for form in TRIED.split(",")]
    moved = said.selectExpr(*[n if n in said.columns else f"CAST(NULL AS {t}) AS {n}" for n, t in forms])
    return in_one(tried.unionAll(moved), best_in, BEST).mapInArrow(of_moved, BEST)


def _moved(events: DataFrame) -> DataFrame:
    """The tables that have a key in several partitions."""
    keyed = events.where("kind = 'row'").transform(with_hashes, KEYS).where("key_hash IS NOT NULL")
    lie = keyed.groupBy(*TABLE, "key_hash").agg(F.min("partition").alias("low"), F.max("partition").alias("high"))
    return lie.where("low < high").select(*TABLE).distinct()


def _moved_in(files: StoredEvents, facts: LogFacts) -> set[Table]:
    """:func:`_moved` of a log in files, in this process: of each key and place 16 bytes."""
    form = pa.schema([("key_hash", pa.int64()), ("place", pa.int64())])

    def lie(rows: pa.Table) -> pa.Table:
        keyed = rows.filter(pc.is_valid(rows["key_hash"]))
        of = pa.table([keyed["key_hash"], placed(keyed)[1]], schema=form)
        return of.group_by(form.names).aggregate([])

    keys, places = numbers(files.rows((*NAMED_BY, "key_hash"), lie, form).found(lambda rows: rows, form), *form.names)
    every = facts.of_kind("row").select(["place", "partition", *TABLE]).sort_by("place").to_pylist()
    tables = {table: i for i, table in enumerate(dict.fromkeys(tuple(p[c] for c in TABLE) for p in every))}
    at = index_of(places, np.array([p["place"] for p in every], dtype=np.int64))
    table = np.array([tables[tuple(p[c] for c in TABLE)] for p in every], dtype=np.int64)[at]
    partition = np.array([p["partition"] for p in every], dtype=np.int64)[at]
    order = np.lexsort((partition, table, keys))
    keys, table, partition = keys[order], table[order], partition[order]
    moves = (np.diff(keys) == 0) & (np.diff(table) == 0) & (np.diff(partition) != 0)
    names = [*tables]
    return {names[i] for i in np.unique(table[1:][moves]).tolist()}


def _moved_of(rows: pa.Table) -> set[Table]:
    """:func:`_moved` of row changes in memory."""
    each = rows.filter(pc.is_valid(rows["key_hash"])).group_by([*TABLE, "key_hash"])
    lie = each.aggregate([("partition", "min"), ("partition", "max")])
    return _tables(lie.filter(pc.less(lie["partition_min"], lie["partition_max"])))


def _tables(rows: pa.Table) -> set[Table]:
    each = rows.select(TABLE).group_by(list(TABLE)).aggregate([])
    return {tuple(r[c] for c in TABLE) for r in each.to_pylist()}


def _rule_of(rules: pa.Table) -> dict[Table, tuple[str, int]]:
    """The rule of each table that has one, but not for all of its rows; and how many partitions it counts."""
    some = pc.less(rules["n_explained"], rules["n_rows"])
    known = rules.filter(pc.and_(rules["explains"], some)).to_pylist()
    return {tuple(r[c] for c in TABLE): (r["rule"], r["partitions"]) for r in known}


def _misplaced(rule_of: Mapping[Table, tuple[str, int]] | None = None, *, given: GivenRules = NOTHING_GIVEN) -> Kernel:
    """Events that lie elsewhere than the rule of their table puts them; by default in their column ``_rule``."""

    def run(batches: Batches) -> Batches:
        for several in several_at_once(batches):
            for rows in by_layout(pa.Table.from_batches(several), *(["_rule"] if rule_of is None else [])):
                first = rows.slice(0, 1).to_pylist()[0]
                if rule_of is None:
                    rule, n = first["_rule"], first["partitions"]
                else:
                    rule, n = rule_of.get(tuple(first[c] for c in TABLE), ("", 0))
                names = columns_of(rows)[0]
                if rule and (not rule.startswith(COLUMN) or {*named_columns(rule, names)} <= {*names}):
                    value, told = hash_of(rows, rule, given)
                    odd = rows.filter(pa.array(told & (value % n != np.asarray(rows["partition"]))))
                    columns = {c: odd[c] for c in (*TABLE, "partition", "offset", "seq")}
                    none = pa.nulls(odd.num_rows, pa.string())
                    every = [columns.get(f.name, none) for f in arrow_of(CAUSES)]
                    yield from pa.table(every, names=arrow_of(CAUSES).names).cast(arrow_of(CAUSES)).to_batches()

    return run

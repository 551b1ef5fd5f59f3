"""Which dispatch rule a topic was recorded with, told from the log itself.

One pass counts the partitions of each topic, one tries all rules on every row change, and one shuffle by row, of its
keys alone, sees which tables have a row that moved; where a rule explains that, one more pass names the events that it
does not put where they lie. The rules are tried on the checksums of :data:`ticdc_lab.events.schema.DISPATCH`, with no
image.
"""

from __future__ import annotations

import zlib
from collections.abc import Collection, Iterator, Mapping
from functools import partial
from itertools import combinations
from math import comb
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema

from ticdc_lab.codecs.keys import with_hashes
from ticdc_lab.dispatch.given import AND, COLUMN, NOTHING_GIVEN, GivenRules
from ticdc_lab.engine.shuffle import Batches, Kernel, MadeByWorkers, bucket_of, in_one, several_at_once
from ticdc_lab.errors import ContractError
from ticdc_lab.events import POSITION, tso
from ticdc_lab.events.arrays import Bools, Ints, encoded, runs
from ticdc_lab.events.schema import DECODED, DISPATCH, KEYS, require_batch, require_columns
from ticdc_lab.facts import LogFacts
from ticdc_lab.facts.places import grouped
from ticdc_lab.facts.schemas import arrow_of

if TYPE_CHECKING:
    from ticdc_lab.sources.parquet import StoredEvents

EXPLAINED = 0.95
"""Least share of a table's rows that a rule must explain to count as theirs; a fault or two must not hide it."""

MORE_PARTITIONS = 4
"""How many partitions behind the last that was recorded a topic may have for a rule to be found that counts them."""

SURE_BITS = 16
"""By so many bits rows must show partitions that nobody recorded, or one of many combinations of columns: a row in the
partition where a rule puts it shows as many as that is one of."""

AGAINST_BITS = 8
"""What a row takes from them that only a rule by the recorded partitions explains."""

COMBINATIONS = 1 << 16
"""Combinations of columns that are tried on a table at most: those of two columns, of three, .. as long as all of a
number are so few."""

FIRST = 24
"""So many different rows are tried first: a combination that does not explain them is dropped."""

MOST_FITTING = 64
"""Of combinations that fit the rows of a task so many are kept, those of fewest columns: where more fit, all may."""

CHANCE = 0.1
"""Share of a table's rows by which what a rule explains must exceed its fullest partition, to be no chance."""

SAMPLED = 1 << 12
"""Of about so many changes it is seen whether their rows move, before all are looked at."""

MISPLACED = 1 << 20
"""Events that do not lie where their rule puts them, of which a table is made here at most: some 100 MB."""

Table = tuple[Any, ...]
"""Topic, schema and name."""
_TABLE = ("topic", "schema_name", "table_name")
_NAMES = "topic string, schema_name string, table_name string"
_NEEDED = ("kind", "commit_ts", "topic", "partition", "schema_name", "table_name", "op", "columns", "before")

_TRIED = """
topic string, schema_name string, table_name string, rule string, rank int, n_rows bigint, n_explained bigint,
partitions int, recorded int, moves boolean, moved boolean, n_possible bigint, n_unknown bigint, seen bigint,
columns int, given boolean
"""
"""How many rows of a table each rule explains: ``rank`` is how simple it is, ``moves`` says that it can move a row,
``n_possible`` counts also rows without what ``ts`` reads, ``n_unknown`` those of which the log does not show what the
rule hashes, which are no ``n_rows`` of another one; ``partitions`` may be more than the ``recorded`` ones, where
the last are not there. Of these, and of combinations, ``seen`` has a bit for each of up to 63 different values that
the rule explains: rows of one transaction tell no more than one of them. ``columns`` are those whose combinations were
tried, 0 if none were; ``given`` is the rule that somebody named (:class:`GivenRules`). A rule
:data:`_FILLED` with a partition's number explains the rows that lie in it. A row with nothing but its table and
``moved`` says that one of the table's rows did move."""
_BEST = f"{_TRIED}, explains boolean, untold boolean, by_chance boolean, tried string"
"""Of each table the best rule: whether it explains what moved, or may be ``ts`` and cannot be told, or is a combination
that fits rows too few to be sure; and in words which rules were tried."""
_CAUSES = """
topic string, schema_name string, table_name string, cause string, partition int, offset bigint, seq int, may_be string,
tried string
"""
_NARROW = (*POSITION, "schema_name", "table_name", "commit_ts", "key_crc", "column_crcs", "layout")

_TEXT = pa.dictionary(pa.int32(), pa.string())
_FORM = pa.schema(
    [(f.name, _TEXT if f.type == pa.string() else f.type) for f in to_arrow_schema(DECODED) if f.name in _NARROW]
    + [("partitions", pa.int32())]
)
_LIE = pa.schema([*[(c, pa.string()) for c in _TABLE], ("key_hash", pa.int64()), ("partition", pa.int32())])

_RULES = {"table": 0, "index-value": 1, "columns": 2, "ts": 3}
"""From the simplest on."""
_FILLED = "partition:"
_MASK, _UNKNOWN, _SEEN_BITS = (1 << 32) - 1, -1, 63


def infer_rules(events: DataFrame, *, partitions: int | None = None, given: GivenRules = NOTHING_GIVEN) -> DataFrame:
    """Say for each table which rule explains the partitions its rows were recorded in.

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
        ``n_unknown`` (bigint: rows of which the log does not show what the rule hashes), ``by_chance`` (boolean: a
        combination that fits too few rows to be sure, as so many were tried). The best rule, however bad: compare
        ``n_explained`` with ``n_rows``. ``n_rows`` are those that it was tried on: combinations are not tried on a few
        rows that one column explains.

    References
    ----------
    Golden README section 2: hash and dispatch formulas.
    """
    require_columns(events, *_NEEDED)
    require_batch(events, function="infer_rules", why="a rule must explain all rows of a table")
    tried = _narrow(events, partitions=partitions).mapInArrow(partial(_tried, more=0, given=given), _TRIED)
    told = ("rule", "n_rows", "n_explained", "partitions", "n_unknown", "by_chance")
    return in_one(tried, _best, _BEST).select(*_TABLE, *told)


def move_causes(events: DataFrame, *, given: GivenRules = NOTHING_GIVEN) -> DataFrame:
    """Say for each table whose rows lie in several partitions, or would if all were recorded, which rule moves them.

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
        rule puts it, at ``partition, offset, seq``; a value whose hash is not known tells nothing. A rule that explains
        a table's rows only by more partitions than were recorded (:data:`MORE_PARTITIONS`), or as well where another
        table of the topic tells that there are so many, has the last of these as the ``partition`` of its cause.

        Other tables with rows that moved have one row without ``cause`` and place. ``may_be`` (string) names a rule
        that the log does not decide: ``ts``, as rows have no commit_ts and no other rule explains more than chance does
        (:data:`CHANCE`), or a combination of columns that fits too few rows. Else ``tried`` (string) names the rules
        that were tried in vain.
    """
    require_columns(events, *_NEEDED, *POSITION)
    require_batch(events, function="move_causes", why="a row may move at any later offset")
    rows = _narrow(events, partitions=None)
    tried = rows.mapInArrow(partial(_tried, more=MORE_PARTITIONS, given=given), _TRIED)
    rules = _rules(tried, _moved(events))
    known = rules.where("explains AND n_explained < n_rows").select(
        *[F.col(c).alias(f"_{c}") for c in _TABLE], F.col("rule").alias("_rule"), "partitions"
    )
    same = F.expr(" AND ".join(f"{c} <=> _{c}" for c in _TABLE))
    placed = rows.drop("partitions").join(F.broadcast(known), on=same)
    said = rules.mapInArrow(partial(_causes, given=given), _CAUSES)
    return said.unionAll(placed.mapInArrow(_misplaced(given=given), _CAUSES))


def move_causes_at_once(
    events: DataFrame, facts: LogFacts, *, stored: StoredEvents | None = None, moved: Collection[Table] = (),
    given: GivenRules = NOTHING_GIVEN,
) -> pa.Table | DataFrame:  # fmt: skip
    """:func:`move_causes`, computed at once and for less: as a table, unless it names very many events.

    ``events``: as of :func:`move_causes`. ``facts``: what was gathered of them. ``stored``: the same events in files,
    if they lie in some. ``moved``: tables of which a row is known to lie in several partitions. ``given``: as of
    :func:`move_causes`.
    """
    rows: DataFrame | MadeByWorkers
    if stored is None:
        rows = _narrow(events, partitions=None)
    else:
        counts: dict[str | None, int] = {}
        for topic, partition in facts.homes:
            counts[topic] = max(counts.get(topic, 0), partition + 1)
        rows = stored.rows(_NARROW, lambda own: _with_partitions(own, counts), _FORM)
    known = _moved(events) if _spread(facts) - {*moved} else events.sparkSession.createDataFrame([*moved], _NAMES)
    tried = _mapped(rows, partial(_tried, more=MORE_PARTITIONS, given=given), _TRIED)
    rules = _rules(tried, known).toArrow().cast(arrow_of(_BEST))
    said = pa.Table.from_batches(_causes(iter(rules.to_batches()), given=given), schema=arrow_of(_CAUSES))
    if not (rule_of := _rule_of(rules)):
        return said
    misplaced = _mapped(rows, _misplaced(rule_of, given=given), _CAUSES)
    found = misplaced.limit(MISPLACED + 1).toArrow().cast(said.schema)
    if found.num_rows <= MISPLACED:
        return pa.concat_tables([said, found])
    return events.sparkSession.createDataFrame(said, _CAUSES).unionAll(misplaced)


def _mapped(rows: DataFrame | MadeByWorkers, kernel: Kernel, schema: str) -> DataFrame:
    return rows.mapped(kernel, schema) if isinstance(rows, MadeByWorkers) else rows.mapInArrow(kernel, schema)


def move_causes_table(events: pa.Table, *, given: GivenRules = NOTHING_GIVEN) -> pa.Table:
    """:func:`move_causes` of a log in memory with the keys and :data:`ticdc_lab.events.schema.DISPATCH`."""
    rows = _narrow_table(events)
    moved = _moved_of(events.filter(pc.equal(events["kind"], "row")))
    named = [dict(zip(_TABLE, table, strict=True)) | {"moved": True} for table in moved]
    tried = [
        *_tried(iter(rows.to_batches()), more=MORE_PARTITIONS, given=given),
        pa.RecordBatch.from_pylist(named, arrow_of(_TRIED)),
    ]
    rules = pa.Table.from_batches(_explaining(_best(iter(tried))), schema=arrow_of(_BEST))
    odd = _misplaced(_rule_of(rules), given=given)(iter(rows.to_batches()))
    parts = (_causes(iter(rules.to_batches()), given=given), odd)
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
    counts = events.group_by(["topic"]).aggregate([("partition", "max")]).to_pylist()
    rows = events.filter(pc.equal(events["kind"], "row")).select(_NARROW)
    return _with_partitions(rows, {r["topic"]: r["partition_max"] + 1 for r in counts})


def _with_partitions(rows: pa.Table, counts: Mapping[str | None, int]) -> pa.Table:
    of, topics = encoded(rows["topic"])
    of_each = np.array([counts.get(t, 0) for t in topics], dtype=np.int32)[of]
    return rows.append_column("partitions", pa.array(of_each))


def _spread(facts: LogFacts) -> set[Table]:
    """The tables that lie in several partitions; no row of another has moved."""
    every = facts.places.group_by([*_TABLE]).aggregate([("partition", "count_distinct")])
    return _tables(every.filter(pc.greater(every["partition_count_distinct"], 1)))


def moved_tables(stored: StoredEvents, facts: LogFacts) -> set[Table]:
    """Tables of which a row lies in several partitions, as those of some thousand rows show: most, where many move."""
    if not _spread(facts):
        return set()
    names = (*_TABLE, "key_hash", "partition")
    share = min(stored.events // SAMPLED + 1, 1 << 15)

    def some(rows: pa.Table) -> pa.Table:
        keyed = rows.filter(pc.is_valid(rows["key_hash"]))
        own = keyed.filter(pa.array(bucket_of(keyed["key_hash"], share) == 0)).select(names).cast(_LIE)
        return own.group_by([*names]).aggregate([])  # one row may have changed a million times

    return _moved_of(stored.rows(names, some, _LIE).mapped(lambda rows: rows, from_arrow_schema(_LIE)).toArrow())


def _rules(tried: DataFrame, tables: DataFrame) -> DataFrame:
    """The rules that explain why rows of their tables moved, in the form of :func:`_explaining`."""
    said = tables.withColumn("moved", F.lit(True))
    forms = [form.split() for form in _TRIED.split(",")]
    moved = said.selectExpr(*[n if n in said.columns else f"CAST(NULL AS {t}) AS {n}" for n, t in forms])
    return in_one(tried.unionAll(moved), _best, _BEST).mapInArrow(_explaining, _BEST)


def _moved(events: DataFrame) -> DataFrame:
    """The tables that have a key in several partitions."""
    keyed = events.where("kind = 'row'").transform(with_hashes, KEYS).where("key_hash IS NOT NULL")
    lie = keyed.groupBy(*_TABLE, "key_hash").agg(F.min("partition").alias("low"), F.max("partition").alias("high"))
    return lie.where("low < high").select(*_TABLE).distinct()


def _moved_of(rows: pa.Table) -> set[Table]:
    """:func:`_moved` of row changes in memory."""
    each = rows.filter(pc.is_valid(rows["key_hash"])).group_by([*_TABLE, "key_hash"])
    lie = each.aggregate([("partition", "min"), ("partition", "max")])
    return _tables(lie.filter(pc.less(lie["partition_min"], lie["partition_max"])))


def _tables(rows: pa.Table) -> set[Table]:
    each = rows.select(_TABLE).group_by(list(_TABLE)).aggregate([])
    return {tuple(r[c] for c in _TABLE) for r in each.to_pylist()}


def _rule_of(rules: pa.Table) -> dict[Table, tuple[str, int]]:
    """The rule of each table that has one, but not for all of its rows; and how many partitions it counts."""
    some = pc.less(rules["n_explained"], rules["n_rows"])
    known = rules.filter(pc.and_(rules["explains"], some)).to_pylist()
    return {tuple(r[c] for c in _TABLE): (r["rule"], r["partitions"]) for r in known}


def _tried(batches: Batches, *, more: int, given: GivenRules = NOTHING_GIVEN) -> Batches:
    """What each rule explains of all rows of a task, a rule that moves rows also by so many more partitions."""
    held = arrow_of(_TRIED).empty_table()
    for several in several_at_once(batches):
        layouts = _by_layout(pa.Table.from_batches(several))
        found = [row for own in layouts for row in _fits(own, more=more, given=given)]
        held = _summed(pa.concat_tables([held, pa.Table.from_pylist(found, schema=held.schema)]))
    yield from held.combine_chunks().to_batches()


def _summed(tried: pa.Table) -> pa.Table:
    """What each rule explains of a table, once."""
    first, of = grouped(tried, (*_TABLE, "rule", "partitions", "recorded"))
    found = tried.take(pa.array(first))
    adds: dict[str, np.ufunc] = {"seen": np.bitwise_or, "columns": np.maximum}
    adds |= dict.fromkeys(("n_rows", "n_explained", "n_possible", "n_unknown"), np.add)
    for name, add in adds.items():
        total = np.zeros(len(first), dtype=np.int64)
        add.at(total, of, np.asarray(tried[name].fill_null(0)))
        found = found.set_column(found.schema.get_field_index(name), name, pa.array(total, found[name].type))
    return found


def _by_layout(rows: pa.Table, *more: str) -> Iterator[pa.Table]:
    """Rows of one table, partition count and layout together."""
    group = grouped(rows, (*_TABLE, "layout", "partitions", *more))[1]
    order = np.argsort(group, kind="stable")
    together = rows.take(pa.array(order)).combine_chunks()
    for part in runs(group[order]):
        yield together[part]


def _fits(rows: pa.Table, *, more: int, given: GivenRules) -> Iterator[dict[str, Any]]:
    """How many rows of one table and layout each rule explains."""
    partition, known = np.asarray(rows["partition"]), {c: rows[c][0].as_py() for c in (*_TABLE, "partitions")}
    recorded = known["partitions"]
    names, keys, _ = _columns(rows)
    several, n_columns = _combinations(rows, given)
    known |= {"recorded": recorded, "columns": n_columns, "given": False}
    for number, n in zip(*np.unique(partition, return_counts=True), strict=True):
        yield known | {"rule": f"{_FILLED}{number}", "rank": len(_RULES), "n_explained": int(n), "moves": False}
    own = given.of_columns(known["schema_name"], known["table_name"], names)
    number = given.partitions or recorded
    rules = ["table", "index-value", "ts", *[COLUMN + n for n in names], *several, *([own] if own else [])]
    for rule in dict.fromkeys(rules):
        value, told = _value(rows, rule, given)
        listed = _named(rule, names) if rule.startswith(COLUMN) else []
        moves = rule == "ts" or not {*listed} <= {*keys}
        numbers = {*range(recorded, recorded + 1 + (more if moves and rule not in several else 0))}
        for n in sorted(numbers | {number} if rule == own and more and number > recorded else numbers):
            explained = told & (value % n == partition)
            n_explained = int(explained.sum())
            counted = n > recorded or len(listed) > 1
            yield known | {
                "rule": rule,
                "partitions": n,
                "rank": len(_RULES) + len(listed) if len(listed) > 1 else _RULES[rule.partition(":")[0]],
                "n_rows": rows.num_rows if rule == "ts" else int(told.sum()),
                "n_explained": n_explained,
                "n_possible": n_explained + (int((~told).sum()) if rule == "ts" else 0),
                "n_unknown": int((~told).sum()),
                "moves": moves,
                "seen": _seen(_telling(value[explained], rule, n, recorded)) if counted else None,
                "given": rule == own and n == number,
            }


def tried_up_to(columns: int) -> int:
    """Of how many columns the combinations are that are tried on a table with so many columns."""
    total, size = 0, 1
    while size < columns and total + comb(columns, size + 1) <= COMBINATIONS:
        size += 1
        total += comb(columns, size)
    return size


def _combinations(rows: pa.Table, given: GivenRules = NOTHING_GIVEN) -> tuple[list[str], int]:
    """Rules over several columns that may explain these rows, where none over one does; they are tried on all of them.

    And of how many columns combinations were tried, 0 if none were. A combination is dropped at the first rows that it
    does not explain, so most cost what some dozen rows do. A share of :data:`EXPLAINED` must fit, as a fault or two may
    be among them.
    """
    names, keys, crcs = _columns(rows)
    n, partition = rows["partitions"][0].as_py(), np.asarray(rows["partition"])
    if n < 2 or tried_up_to(len(names)) < 2:
        return [], 0
    for rule in ("table", "index-value", "ts", *[COLUMN + name for name in names]):
        value, told = _value(rows, rule, given)
        if 2 * told.sum() >= rows.num_rows and (value % n == partition)[told].sum() >= EXPLAINED * told.sum():
            return [], 0
    flat = crcs.combine_chunks() if isinstance(crcs, pa.ChunkedArray) else crcs
    cells = np.asarray(pc.fill_null(pc.list_flatten(flat), 0)).reshape(rows.num_rows, len(names))
    here = np.flatnonzero((cells != _UNKNOWN).sum(axis=0) >= EXPLAINED * rows.num_rows)
    names, cells = [names[i] for i in here], cells[:, here]  # a column that most rows do not show tells nothing
    if tried_up_to(len(names)) < 2:
        return [], 0
    known = np.flatnonzero((cells != _UNKNOWN).all(axis=1))
    if not len(known):
        return [], 0
    _, first = np.unique(cells[known], axis=0, return_index=True)
    some = known[np.sort(first)[: 8 * FIRST]]
    table = zlib.crc32(given.hashed_name(*(rows[c][0].as_py() for c in _TABLE[1:])).encode())
    own, lies, found = cells[some] ^ 0, partition[some], list[str]()
    for size in range(2, tried_up_to(len(names)) + 1):
        each = np.array(list(combinations(range(len(names)), size)))
        for stop in sorted({min(FIRST, len(some)), len(some)}):
            if not len(each):
                break
            value = np.bitwise_xor.reduce(own[:stop][:, each], axis=2) ^ table
            each = each[((value % n) == lies[:stop, None]).sum(axis=0) >= EXPLAINED * stop]
        found += [COLUMN + AND.join(names[i] for i in c) for c in each.tolist() if {names[i] for i in c} != {*keys}]
        if len(found) >= MOST_FITTING:
            break
    return found[:MOST_FITTING], len(names)


def _named(rule: str, names: Collection[str]) -> list[str]:
    """The columns that a rule names: one, whose name may hold a comma, or several."""
    listed = rule.removeprefix(COLUMN)
    return [listed] if listed in names else listed.split(AND)


def _times(n: int, recorded: int) -> int:
    """Of how many values a rule by n partitions explains one by chance; where it divides, of those of the recorded."""
    return n if n % recorded else n // recorded


def _telling(value: Ints, rule: str, n: int, recorded: int) -> Ints:
    """What of values tells n partitions: whether a TSO by half of them is one by all is told by its logical part."""
    times = _times(n, recorded)
    return value & tso.LOGICAL_MASK if rule == "ts" and times < n and times.bit_count() == 1 else value


def _seen(values: Ints) -> int:
    """A bit for each of up to 63 different values."""
    bits = 1 << bucket_of(pa.array(values, pa.int64()), _SEEN_BITS).astype(np.int64)
    return int(np.bitwise_or.reduce(bits, initial=0))


def _columns(rows: pa.Table) -> tuple[list[str], list[str], pa.ChunkedArray]:
    """Names of the columns of rows of one layout, those of the key, and the checksums."""
    layout = rows["layout"][0].as_py() or ",,"
    names, _, keys = layout.rpartition(",,")
    split = [[n.replace("\x1f", ",") for n in part.split(",")] if part else [] for part in (names, keys)]
    return split[0], split[1], rows["column_crcs"]


def _value(rows: pa.Table, rule: str, given: GivenRules) -> tuple[Ints, Bools]:
    """TiCDC's partition hash of rows of one table and layout, and whether it is known: modulo the number of partitions
    it is where a rule puts them.
    """
    every = np.ones(rows.num_rows, dtype=bool)
    table = zlib.crc32(given.hashed_name(*(rows[c][0].as_py() for c in _TABLE[1:])).encode())
    if rule == "table":
        return np.full(rows.num_rows, table), every
    if rule in ("ts", "index-value"):
        column = rows["commit_ts" if rule == "ts" else "key_crc"]
        value, told = np.asarray(column.fill_null(0)), np.asarray(column.is_valid())
        return (value, told) if rule == "ts" else ((value & _MASK) ^ table, told & (value >> 32 > 0))
    names, _, crcs = _columns(rows)
    whole, told = np.full(rows.num_rows, table), every
    for name in _named(rule, names):
        crc = np.asarray(pc.fill_null(pc.list_element(crcs, names.index(name)), 0))
        whole, told = whole ^ crc, told & (crc != _UNKNOWN)
    return whole, told


def _best(batches: Batches) -> Batches:
    """Of all rules tried on a table the one that explains most rows, of equals the simplest."""
    whole = pa.Table.from_batches(batches, schema=arrow_of(_TRIED))
    moved = {tuple(t.values()) for t in whole.filter(pc.is_null(whole["rule"])).select(_TABLE).to_pylist()}
    of_table: dict[tuple[Any, ...], dict[str, dict[str, Any]]] = {}
    by_more: dict[tuple[Any, ...], list[dict[str, Any]]] = {}
    for r in _summed(whole.filter(pc.is_valid(whole["rule"]))).to_pylist():
        table = tuple(r[c] for c in _TABLE)
        if r["partitions"] == r["recorded"]:
            of_table.setdefault(table, {})[r["rule"]] = r
        elif table in moved or r["recorded"] == 1:
            by_more.setdefault(table, []).append(r)
    judged = {t: _judged(rules) | {"moved": t in moved} for t, rules in of_table.items()}
    more = {t: [r for r in by_more.get(t, []) if _may_be(r, judged[t])] for t in judged}
    sure = {t: [r for r in rules if r["given"] or _is_sure(r, of_table[t], judged[t])] for t, rules in more.items()}
    # all tables of a topic have one number of partitions: what one has too few values to tell, another may
    told = {(t[0], r["partitions"]) for t, rules in sure.items() for r in rules}
    for t, rules in more.items():
        least = judged[t]["n_explained"]
        known = [r for r in rules if (t[0], r["partitions"]) in told and r["n_explained"] >= least]
        if found := sure[t] or known:
            first = max(found, key=lambda r: (r["given"], r["n_explained"], -r["rank"], -r["partitions"], r["rule"]))
            judged[t] = first | {"explains": True, "untold": False, "moved": True, "by_chance": False}
    yield pa.RecordBatch.from_pylist(list(judged.values()), schema=arrow_of(_BEST))


def _judged(rules: dict[str, dict[str, Any]]) -> dict[str, Any]:
    """The best of a table's rules. Without commit_ts ``ts`` explains nothing, but may be what rows were sent by.

    Then no other rule explains more than lies in the fullest partition anyway. The rule that somebody named needs no
    more rows than chance allows; of many combinations one fits a few rows by chance.
    """
    # a combination is not tried on every row, but on most, else some rows fit it by chance
    of_all, columns = max(r["n_rows"] or 0 for r in rules.values()), max(r["columns"] for r in rules.values())
    tried = [r for n, r in rules.items() if not n.startswith(_FILLED) and 2 * (r["n_rows"] or 0) >= of_all]
    own = next((r for r in rules.values() if r["given"]), None)
    told = _tried_words(columns, own)
    if own is not None and 2 * own["n_rows"] >= of_all and (_fits_all(own) or _bits(own) >= AGAINST_BITS):
        return own | {"explains": own["moves"], "untold": False, "by_chance": False, "tried": told}
    simple = [r for r in tried if r["rank"] <= len(_RULES)]
    if any(_fits_all(r) for r in simple):  # what is simpler, and tried on all rows, counts
        tried = simple
    best, ts = max(tried, key=lambda r: (r["n_explained"], -r["rank"], r["rule"])), rules["ts"]
    unsure = False
    if best["rank"] > len(_RULES) and _fits_all(best):
        number = sum(comb(columns, size) for size in range(2, tried_up_to(columns) + 1))
        bits, n = _bits(best) - np.log2(number), _different(best)
        first = max(simple, key=lambda r: (r["n_explained"], -r["rank"], r["rule"]))
        if bits < SURE_BITS:  # a fault beside a simpler rule may be the better explanation
            unsure = bool(_bits(first, n) - np.log2(len(simple)) <= max(0, bits))
            by = "combination" if number == 1 else f"one of {number:,} combinations"
            chance = f"; {first['rule']} explains {first['n_explained']} of {first['n_rows']} rows, {by} all, by chance"
            best, told = (best, told) if unsure else (first, told + chance)
    by_chance = best["n_explained"] <= _fullest(rules) + CHANCE * best["n_rows"]
    fits = _fits_all(best)
    may_be_ts = ts["n_explained"] < ts["n_possible"] >= EXPLAINED * ts["n_rows"] and not fits
    explains = not unsure and best["moves"] and (fits or (best is ts and may_be_ts and not by_chance))
    found = {"explains": explains, "untold": may_be_ts and by_chance, "by_chance": unsure, "tried": told}
    return best | found


def _different(r: dict[str, Any]) -> float:
    """About how many different values a rule explains, of up to 63: so many bits are set, and some by several."""
    return _SEEN_BITS * float(-np.log1p(-min(r["seen"].bit_count(), _SEEN_BITS - 1) / _SEEN_BITS))


def _bits(r: dict[str, Any], n: float | None = None) -> float:
    """How surely rows show a rule: of chance, by which a row lies where a rule puts it, so many bits apart.

    Of ``n`` different rows; by default those that it counted, or all.
    """
    chance = 1 / r["partitions"]
    share = r["n_explained"] / r["n_rows"] if r["n_rows"] else 0.0
    if share <= chance:
        return 0.0
    if n is None:
        n = _different(r) if r["seen"] else r["n_rows"]
    rest = (1 - share) * np.log2((1 - share) / (1 - chance)) if share < 1 else 0.0
    return float(n * (share * np.log2(share / chance) + rest))


def _tried_words(columns: int, own: dict[str, Any] | None) -> str:
    up_to = tried_up_to(columns)
    several = f"combinations of up to {up_to} columns" if up_to < columns else "all combinations of columns"
    named = None if own is None or own["rule"] in _RULES else f"the changefeed's {own['rule']}"
    return ", ".join(filter(None, [named, "table, index-value, ts, each column", several if up_to > 1 else None]))


def _fits_all(r: dict[str, Any]) -> bool:
    fits: bool = r["n_explained"] >= EXPLAINED * r["n_rows"]
    return fits


def _fullest(rules: dict[str, dict[str, Any]]) -> int:
    """How many rows of a table its fullest partition holds."""
    return max(int(r["n_explained"]) for name, r in rules.items() if name.startswith(_FILLED))


def _may_be(r: dict[str, Any], best: dict[str, Any]) -> bool:
    """Whether a rule by more partitions than were recorded may explain a table: where none by those does, or the same,
    as it does where the recorded are a part of its number; one partition, which all rules fill, tells no rule.
    """
    return _fits_all(r) and (r["recorded"] == 1 or r["rule"] == best["rule"] or not _fits_all(best))


def _is_sure(r: dict[str, Any], rules: dict[str, dict[str, Any]], best: dict[str, Any]) -> bool:
    """Whether it does explain it, and no chance nor the same rule by fewer."""
    bits = r["seen"].bit_count() * np.log2(_times(r["partitions"], r["recorded"]))
    bits -= AGAINST_BITS * max(0, best["n_explained"] - r["n_explained"])
    apart = r["recorded"] == 1 or r["n_explained"] >= _fullest(rules) + CHANCE * best["n_rows"]
    return bool(bits >= SURE_BITS) and apart


def _explaining(batches: Batches) -> Batches:
    """Of the best rules those of tables with rows that moved."""
    for batch in batches:
        yield batch.filter(batch["moved"])


def _causes(batches: Batches, *, given: GivenRules = NOTHING_GIVEN) -> Batches:
    for batch in batches:
        said = [{c: r[c] for c in _TABLE} | _told(r, given) for r in batch.to_pylist()]
        yield pa.RecordBatch.from_pylist(said, schema=arrow_of(_CAUSES))


def _told(r: dict[str, Any], given: GivenRules) -> dict[str, Any]:
    """Why rows of a table moved, or what may be why, or what was tried in vain."""
    n, whole = r["partitions"], r["n_explained"] == r["n_rows"]
    share = f"all {r['n_rows']}" if whole else f"{r['n_explained']} of {r['n_rows']}"
    beyond = f"; the recording has no partition from {r['recorded']} on" if n > r["recorded"] else ""
    columns, several = r["rule"].removeprefix(COLUMN), r["rank"] > len(_RULES)
    by = f"columns {columns.replace(AND, ' and ')}" if several else f"column {columns}"
    lie = f"({share} rows lie in the partition of {'their' if several else 'its'} hash mod {n}{beyond})"
    if r["explains"]:
        as_given = f", as {given.source} says" if r["given"] else ""
        rule = f"{by}, whose value{'s change' if several else ' changes'}{as_given} {lie}"
        if r["rule"] == "ts":
            rule = f"ts{as_given} ({share} rows lie in partition commit_ts mod {n}{beyond})"
        last = n - 1 if n > r["recorded"] else None
        return {"cause": f"the table is dispatched by {rule}", "partition": last}
    if r["untold"]:
        return {"may_be": "ts; without commit_ts this cannot be checked"}
    if r["by_chance"]:
        return {"may_be": f"{by} {lie}; so few rows may lie there by chance, and the changefeed's file decides it"}
    return {"tried": r["tried"]}


def _misplaced(rule_of: Mapping[Table, tuple[str, int]] | None = None, *, given: GivenRules = NOTHING_GIVEN) -> Kernel:
    """Events that lie elsewhere than the rule of their table puts them; by default it stands beside them, ``_rule``."""

    def run(batches: Batches) -> Batches:
        for several in several_at_once(batches):
            for rows in _by_layout(pa.Table.from_batches(several), *(["_rule"] if rule_of is None else [])):
                first = rows.slice(0, 1).to_pylist()[0]
                if rule_of is None:
                    rule, n = first["_rule"], first["partitions"]
                else:
                    rule, n = rule_of.get(tuple(first[c] for c in _TABLE), ("", 0))
                names = _columns(rows)[0]
                if rule and (not rule.startswith(COLUMN) or {*_named(rule, names)} <= {*names}):
                    value, told = _value(rows, rule, given)
                    odd = rows.filter(pa.array(told & (value % n != np.asarray(rows["partition"]))))
                    columns = {c: odd[c] for c in (*_TABLE, "partition", "offset", "seq")}
                    none = pa.nulls(odd.num_rows, pa.string())
                    every = [columns.get(f.name, none) for f in arrow_of(_CAUSES)]
                    yield from pa.table(every, names=arrow_of(_CAUSES).names).cast(arrow_of(_CAUSES)).to_batches()

    return run

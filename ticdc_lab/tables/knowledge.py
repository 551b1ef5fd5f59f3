"""What must be known of a log before a table can be restored from it: small facts, definitions; or a refusal."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from ticdc_lab.engine.columns import in_order
from ticdc_lab.errors import ContractError, IncompleteHistoryError, ProtocolError
from ticdc_lab.events import PARTITION
from ticdc_lab.events.ddl import words_of
from ticdc_lab.events.schema import BEFORE_UNNAMED, require_batch, require_columns
from ticdc_lab.events.tso import tso_words
from ticdc_lab.facts.catalog import DDL, Catalog, NoTable, ddl_of
from ticdc_lab.facts.definitions import ColumnDef, IndexDef, TableDef, TableName
from ticdc_lab.facts.limits import begun_late
from ticdc_lab.tables.lives import Life

NEEDED = ("kind", "commit_ts", "schema_name", "table_name", "op", "columns", "before", "incomplete", "protocol",
          "topic", "partition", "offset", "seq", "query")  # fmt: skip

MAX_FACTS = 1_000_000
"""Most pairs of partition and table that are accepted, so that a wrong input cannot fill the driver."""


First = tuple[int, int, int | None, str]
"""Offset, seq, commit_ts and kind of an event."""


@dataclass(frozen=True, slots=True)
class TableFacts:
    """Row changes of one name: how many, how many without commit_ts, how many not whole, and the first commit_ts."""

    rows: int = 0
    undated: int = 0
    incomplete: int = 0
    first_ts: int | None = None


@dataclass(frozen=True, slots=True)
class RowsKnown:
    """What each partition is resolved to (TSO; None: no watermark) and its first event; facts of each table name."""

    resolved: Mapping[tuple[str, int], int | None]
    firsts: Mapping[tuple[str, int], First]
    tables: Mapping[TableName, TableFacts]

    @property
    def resolved_ts(self) -> int | None:
        """Up to where the whole log is complete (TSO); None where a partition has no watermark."""
        marks = list(self.resolved.values())
        return None if not marks or None in marks else min(m for m in marks if m is not None)


@dataclass(frozen=True, slots=True)
class Knowledge:
    """What :func:`knowledge` found out about a log, for the tables restored from it; ``ddl`` is the log's own."""

    facts: RowsKnown
    catalog: Catalog
    ddl: tuple[DDL, ...] = ()


def knowledge(events: DataFrame, *, catalog: Catalog | None = None) -> Knowledge:
    """Find out once what every table of a log needs; small jobs that bring facts and DDL to the driver, no rows.

    Parameters
    ----------
    events
        The events contract.
    catalog
        Definitions to take instead of the log's.
    """
    facts, (ddl, protocol) = facts_of(events), ddl_of(events)
    known = log_catalog(events, facts, ddl, protocol=protocol) if catalog is None else catalog
    return Knowledge(facts, known, tuple(ddl))


def facts_of(events: DataFrame) -> RowsKnown:
    """Bring the facts to the driver: one narrow aggregation, as many rows as pairs of partition and table."""
    require_columns(events, *NEEDED)
    require_batch(events, function="a table from the log", why="every change counts, wherever it is")
    is_row, is_mark = F.col("kind") == "row", F.col("kind") == "watermark"
    is_partial = is_row & (F.col("incomplete") != BEFORE_UNNAMED)
    place = (F.col("offset"), F.coalesce("seq", F.lit(0)).alias("seq"))
    counted = (
        events.groupBy(*PARTITION, "schema_name", "table_name")
        .agg(
            F.max(F.when(is_mark, F.col("commit_ts"))).alias("resolved_ts"),
            F.min_by(F.struct(*place, "commit_ts", "kind"), F.struct(*place)).alias("first"),
            # in the order of TableFacts
            F.count_if(is_row).alias("rows"),
            F.count_if(is_row & F.col("commit_ts").isNull()).alias("undated"),
            F.count_if(is_partial & (F.col("op") != "delete")).alias("incomplete"),
            F.min(F.when(is_row, F.col("commit_ts"))).alias("first_ts"),
        )
        .limit(MAX_FACTS + 1)
        .collect()
    )
    if len(counted) > MAX_FACTS:
        raise ContractError(f"The log has more than {MAX_FACTS} pairs of partition and table.")
    resolved: dict[tuple[str, int], int | None] = {}
    firsts: dict[tuple[str, int], First] = {}
    tables: dict[TableName, TableFacts] = {}
    for r in counted:
        home = (r["topic"], r["partition"])
        resolved[home] = max((t for t in (resolved.get(home), r["resolved_ts"]) if t is not None), default=None)
        first: First = tuple(r["first"])
        firsts[home] = min(firsts.get(home, first), first, key=_place)
        if r["rows"]:
            name, one = (r["schema_name"], r["table_name"]), TableFacts(*r[6:])
            tables[name] = _both(tables[name], one) if name in tables else one
    return RowsKnown(resolved, firsts, tables)


def _place(first: First) -> tuple[int, int]:
    return first[:2]


def _both(a: TableFacts, b: TableFacts) -> TableFacts:
    first = min((t for t in (a.first_ts, b.first_ts) if t is not None), default=None)
    return TableFacts(a.rows + b.rows, a.undated + b.undated, a.incomplete + b.incomplete, first)


def log_catalog(events: DataFrame, facts: RowsKnown, ddl: Sequence[DDL], *, protocol: str | None = None) -> Catalog:
    """The log's own definitions; what its DDL does not define is read off the first row of each table.

    A log may begin in the middle of a table's life. Names, types and keys are then those that the events carry;
    a decimal without digits gets 38 digits and the greatest scale that is seen.
    """
    plain = Catalog.from_ddl(ddl).in_rows(protocol)
    firsts = {name: f.first_ts for name, f in facts.tables.items() if f.first_ts is not None}
    # avro has deletes that name no table
    wanted = [name for name, ts in firsts.items() if name[1] is not None and _undefined(plain, name, ts)]
    if not wanted:
        return plain
    seen = {(d.schema_name, d.table_name): d for d in _seen(events, wanted)}
    older = [d for name, d in seen.items() if _precedes(plain, name, firsts[name])]
    catalog = Catalog.from_ddl(ddl, before=older).in_rows(protocol)
    # what a rename of an older table has defined by now needs no definition of its own
    rest = [d for name, d in seen.items() if d not in older and _undefined(catalog, name, firsts[name])]
    return Catalog.from_ddl(ddl, before=[*older, *rest]).in_rows(protocol) if rest else catalog


def _undefined(catalog: Catalog, name: TableName, first_ts: int) -> bool:
    """Whether the DDL leaves open what the table was at its first row."""
    versions = catalog.versions.get(name, ())
    born = bool(versions) and versions[0].event in ("created", "renamed", "recovered")
    return not born or first_ts <= (versions[0].commit_ts or 0)


def _precedes(catalog: Catalog, name: TableName, first_ts: int) -> bool:
    """Whether the table's first row precedes all DDL of its name."""
    versions = catalog.versions.get(name, ())
    return not versions or first_ts <= (versions[0].commit_ts or 0)


def _seen(events: DataFrame, names: Iterable[TableName]) -> list[TableDef]:
    """Definitions from the first whole row of each table."""
    image = F.coalesce("columns", "before")
    first = in_order(F.col("op") == "delete", F.col("incomplete").isNotNull(), "commit_ts", "offset", "seq")
    rows = events.where((F.col("kind") == "row") & F.col("commit_ts").isNotNull() & _is_one_of(names))
    seen = rows.groupBy("schema_name", "table_name").agg(F.min_by(image, first).alias("image")).collect()
    scales = _scales(rows) if any(_open_decimal(c["mysql_type"]) for r in seen for c in r["image"] or ()) else {}
    return [_definition((r["schema_name"], r["table_name"]), r["image"] or (), scales) for r in seen]


def _is_one_of(names: Iterable[TableName]) -> Column:
    pairs = F.struct(F.col("schema_name").alias("s"), F.col("table_name").alias("t"))
    return pairs.isin(*[F.struct(F.lit(s).alias("s"), F.lit(t).alias("t")) for s, t in names])


def _open_decimal(mysql_type: str | None) -> bool:
    return (mysql_type or "").split(" ")[0] in ("decimal", "numeric")


def _scales(rows: DataFrame) -> dict[tuple[str, str, str], int]:
    """The greatest number of fraction digits of each decimal column; one row a column."""
    decimals = F.filter(F.coalesce("columns", "before"), lambda c: c["mysql_type"].startswith("decimal"))
    scale = F.length(F.regexp_extract(F.col("c.value"), r"\.([0-9]+)$", 1))
    each = rows.select("schema_name", "table_name", F.explode(decimals).alias("c"))
    found = each.groupBy("schema_name", "table_name", "c.name").agg(F.max(scale).alias("scale")).collect()
    return {(r["schema_name"], r["table_name"], r["name"]): r["scale"] or 0 for r in found}


def _definition(
    name: TableName, image: Iterable[Mapping[str, str]], scales: Mapping[tuple[str, str, str], int]
) -> TableDef:
    columns = tuple(
        ColumnDef(c["name"], _digits(c["mysql_type"], scales.get((*name, c["name"]), 0)), not c["is_key"], id=i + 1)
        for i, c in enumerate(image)
    )
    keys = tuple(c["name"] for c in image if c["is_key"])
    indexes = (IndexDef(1, "PRIMARY", keys, unique=True, primary=True),) if keys else ()
    return TableDef(*name, columns, indexes, columns_made=len(columns))


def _digits(mysql_type: str | None, scale: int) -> str:
    """A type as far as it is known; where a protocol has none, values stay the text that it carries."""
    if mysql_type is None:
        return "text"
    return mysql_type.replace("decimal", f"decimal(38,{scale})", 1) if _open_decimal(mysql_type) else mysql_type


_READ = 140
"""Characters of a name in a sentence; MySQL's own have at most 64 each."""


def no_such_table(table: str, catalog: Catalog, facts: RowsKnown, *, most: int = 10) -> ProtocolError:
    """The log names no such table."""
    schema, _, name = table.lower().partition(".")
    if (other := catalog.others.get((schema, name))) is not None:
        return _no_table(table, other, catalog)
    names = sorted({".".join(n) for n in (*catalog.versions, *facts.tables)})
    near = [_short(n) for n in names if n.lower() == table.lower()] or get_close_matches(table, names, n=1)
    said = (
        f"{', '.join(map(_short, names[:most]))}{f' and {len(names) - most} more' if len(names) > most else ''}"
        or "no table"
    )
    return ProtocolError(
        f"The log has no table {_short(table)}; it contains {said}.",
        hint=f"Names are taken exactly as written. The nearest is {near[0]}." if near else "Name it as SCHEMA.TABLE.",
    )


def _no_table(name: str, other: NoTable, catalog: Catalog) -> ProtocolError:
    """What the log has of a view or a sequence."""
    at = "" if other.since is None else f" at {tso_words(other.since)}"
    gone = " and dropped later" if other.is_dropped else ""
    words = words_of(other.query)
    starts = [i + 1 for i, w in enumerate(words) if w.kind == "word" and w.text.upper() in ("FROM", "JOIN")]
    named = {w.text.lower() for i in starts for w in words[i : i + 3]}  # of SCHEMA . TABLE the last
    read = sorted(".".join(n) for n in catalog.versions if n[1].lower() in named)
    return ProtocolError(
        f"{_short(name)} is a {other.kind}, no table. The log has its definition, which was created{at}{gone}, and no "
        f"row: TiCDC sends none of a {other.kind}. The DDL: {_short(' '.join(other.query.split()))}",
        hint=f"Read a table that it names: --table {read[0]}." if read else "Name a table as SCHEMA.TABLE.",
    )


def _short(name: str) -> str:
    """A name as far as people read it."""
    return name if len(name) <= _READ else f"{name[:_READ]}..."


def not_there(table: str, ts: int, why: str) -> ProtocolError:
    """The table does not exist at the timestamp."""
    return ProtocolError(
        f"There is no table {table} at {tso_words(ts)}: {why}.",
        hint="Give another timestamp with --as-of, or its name of that time with --table.",
    )


def require_resolved(table: str, ts: int | None, facts: RowsKnown) -> int:
    """The timestamp (TSO) to answer for, which the whole log is proved complete up to.

    Raises IncompleteHistoryError: it is not.
    """
    unmarked = sorted(f"{t} {p}" for (t, p), mark in facts.resolved.items() if mark is None)
    if facts.resolved_ts is None:
        raise IncompleteHistoryError(
            f"{table}: nothing of this log is proved complete: no watermark in {unmarked or 'any partition'}.",
            hint="Record until every partition has had a watermark (ticdc-lab record), or load all partitions "
            "of the topic.",
        )
    if ts is not None and ts > facts.resolved_ts:
        behind = sorted(f"{t} {p}" for (t, p), mark in facts.resolved.items() if mark is not None and mark < ts)
        raise IncompleteHistoryError(
            f"{table} is unknown at {tso_words(ts)}: the log is complete only up to resolved_ts "
            f"{tso_words(facts.resolved_ts)}; changes up to the timestamp may still be missing from the partitions "
            f"{behind}.",
            hint="Give a timestamp up to `resolved_ts` with --as-of, or continue recording: ticdc-lab record",
        )
    return facts.resolved_ts if ts is None else ts


def require_dated(table: str, facts: TableFacts) -> None:
    """Every row change of the table has a commit_ts, or it is refused."""
    if facts.undated:
        raise ProtocolError(
            f"{table}: {facts.undated} of {facts.rows} row changes carry no commit_ts, so when they happened is "
            "unknown, and so is every state of the table.",
            hint="canal-json needs `enable-tidb-extension=true` in the sink-uri; avro carries none of deletes.",
        )


def require_defined(table: str, life: Life) -> None:
    """Every DDL of the life was understood, or it is refused."""
    if life.unknown is not None:
        raise IncompleteHistoryError(
            f"{table}: what its columns are from commit_ts {life.unknown.commit_ts} on is unknown: "
            f"{life.unknown.reason or 'no definition'}.",
            hint="Pass catalog=Catalog.from_definitions(...) with your own definitions.",
        )
    if not life.epochs:
        raise IncompleteHistoryError(
            f"{table}: the log does not define its columns: it has neither its DDL nor a row of it.",
            hint="Pass catalog=Catalog.from_definitions(...) with your own definitions.",
        )


def require_kept(table: str, life: Life, ts: int) -> None:
    """No DDL moved rows without naming them, or it is refused."""
    if life.lost:
        moved_at, reason = life.lost[0]
        raise IncompleteHistoryError(
            f"{table} is unknown at {tso_words(ts)}: {reason} (DDL of commit_ts {moved_at}).",
            hint=f"Ask for a timestamp below {moved_at}.",
        )


def limits_of(table: str, life: Life, facts: RowsKnown, unseen: list[str]) -> tuple[str, ...]:
    """What the rows of a table cannot show, one sentence each."""
    said = []
    if not life.from_log:
        said.append(
            f"The log begins in the middle of {table}'s life (it has no CREATE TABLE of it): rows that no change up "
            "to the timestamp touches are not in the result."
        )
    if life.from_log:
        said += begun_late({home: first[0] for home, first in facts.firsts.items()}).sentences
    if unseen:
        said.append(f"No event carries the virtual generated columns {', '.join(unseen)}: they are left out.")
    return tuple(said)

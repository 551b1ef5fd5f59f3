"""What a changefeed's file or an option gives, against what the log has: filters, routing, dispatchers, columns.

Settings that have one value are compared where they are known (:class:`ticdc_lab.settings.Settings`). These are lists
of rules, of which many mean the same; so what they would have made is compared with what is there.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from math import lcm
from typing import Any

import pyarrow.compute as pc
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from ticdc_lab.dispatch.changefeed import Changefeed
from ticdc_lab.dispatch.checks import unknown_dispatchers, unreached
from ticdc_lab.dispatch.hashing import FLAVOURS
from ticdc_lab.dispatch.infer import EXPLAINED, MORE_PARTITIONS
from ticdc_lab.dispatch.routing import routes, sources_of, target_of
from ticdc_lab.dispatch.rules import Rule, dispatch_by_rules, rule_of, rules_from_config
from ticdc_lab.dispatch.settings import rules_in_force
from ticdc_lab.dispatch.topics import ColumnFilter, TableFilter
from ticdc_lab.errors import DispatchError
from ticdc_lab.facts import LogFacts
from ticdc_lab.facts.catalog import Catalog
from ticdc_lab.settings import Contradiction, Setting, Settings
from ticdc_lab.settings.detected import COUNTS, OP_BY_IMAGES, READ, counted, of_counts

Table = tuple[str, str]
Place = tuple[int | None, int | None, int | None]
"""Partition, offset and commit_ts."""

_NAMED = 3
_OF_ROWS = ("insert", "update", "delete")
_DDL_VERBS = ("create", "drop", "truncate", "rename", "recover", "alter", "flashback")


def against_facts(facts: LogFacts, settings: Settings, *, has_partitions: bool = True) -> Iterator[Contradiction]:
    """Filters, routing and a partition count that names, DDL and partitions contradict; needs no event.

    ``has_partitions`` is False of a storage sink.
    """
    if has_partitions and (number := _too_low(facts, settings)):
        last = _recorded(facts) - 1
        offset = next((p["offset"] for p in facts.places.to_pylist() if p["partition"] == last), None)
        seen = f"the log has a partition {last}, so there are at least {last + 1}"
        yield Contradiction(number, seen=seen, places=((last, offset, None),))
    tables = _tables(facts)
    exact = bool(settings.value("case-sensitive", False))
    kept = settings.given("filter.rules")
    if kept is not None and isinstance(kept.value, tuple) and kept.value:
        matches = TableFilter.parse(kept.value, case_sensitive=exact).matches
        if wrong := [t for t in tables if not matches(*t)]:
            seen = (
                f"the log has rows of {_some(wrong)}, which {'they leave' if len(kept.value) > 1 else 'it leaves'} out"
            )
            yield Contradiction(kept, seen=seen, places=(_first(facts, wrong[0]),))
    filters = settings.given("filter.event-filters")
    for of_filter in _members(filters):
        matches = TableFilter.parse(of_filter.get("matcher", ()), case_sensitive=exact).matches
        yield from _updates(filters, of_filter, [t for t in tables if matches(*t)], facts)
        yield from _ddl(filters, of_filter, matches, facts)
    routed = settings.given("sink.dispatchers")
    rules = _rules(routed)
    if routed is not None and routes(rules):
        upstream = sources_of(rules, tables, case_sensitive=exact)
        target = {t: target_of(rules, t, case_sensitive=exact) for t in tables}
        if wrong := [t for t in tables if target[t] != t and upstream[t].table == t]:
            seen = (
                f"messages carry the name {'.'.join(wrong[0])}, which its rules route to {'.'.join(target[wrong[0]])}"
            )
            more = f" (so do those of {len(wrong) - 1} more)" if len(wrong) > 1 else ""
            yield Contradiction(routed, seen=seen + more, places=(_first(facts, wrong[0]),))


def compared_by_rows(settings: Settings) -> list[str]:
    """Settings that somebody gave and that :func:`against_facts` does not compare with the log."""
    found = [name for name in ("sink.dispatchers", "sink.column-selectors") if settings.given(name) is not None]
    ignored = {e for f in _members(settings.given("filter.event-filters")) for e in f.get("ignore-event", ())}
    return [*found, *(f"filter.event-filters ({op}s)" for op in ("insert", "delete") if ignored & {op, "all dml"})]


def with_contradictions(
    events: DataFrame, facts: LogFacts, settings: Settings, *, protocol: str, has_partitions: bool = True
) -> Settings:
    """The same with what the images of all rows show, and what the log has against rules that were given.

    Parameters
    ----------
    events
        The events contract.
    facts
        What was gathered of them.
    settings
        What is known of the changefeed's settings.
    protocol
        Of the log.
    has_partitions
        False of a storage sink, which has none.
    """
    counts = events.select(*READ).mapInArrow(counted, COUNTS).toArrow()
    whole = settings | of_counts(counts, protocol=protocol, whole=True)
    rows = events.where("kind = 'row' AND table_name IS NOT NULL")
    exact = bool(settings.value("case-sensitive", False))
    found = [
        *against_facts(facts, whole, has_partitions=has_partitions),
        *_selected(rows, whole, exact),
        *_keyless(rows, whole, protocol),
    ]
    placed = [*_dispatched(rows, facts, whole, exact)] if has_partitions else []
    found += [c for c in placed if isinstance(c, Contradiction)]
    updates = pc.any(pc.equal(facts.of_kind("row")["op"], "update")).as_py()
    by_images = protocol in OP_BY_IMAGES and not updates
    found += _deleted_or_inserted(rows, whole, exact, by_images=by_images)
    notes = (*whole.notes, *(note for note in placed if isinstance(note, str)))
    return Settings(whole.known, (*whole.against, *found), notes)


def _recorded(facts: LogFacts) -> int:
    """How many partitions the log has at least."""
    return 1 + max((partition for _, partition in facts.homes if partition is not None), default=0)


def _too_low(facts: LogFacts, settings: Settings) -> Setting | None:
    """The partition count that somebody gave, if the log has more partitions."""
    number = settings.given("sink.kafka-config.partition-num")
    known = number is not None and isinstance(number.value, int) and number.value < _recorded(facts)
    return number if known else None


def _dispatched(rows: DataFrame, facts: LogFacts, settings: Settings, exact: bool) -> Iterator[Contradiction | str]:
    """Rows that do not lie where the given rules put them; as notes the rest."""
    recorded = _recorded(facts)
    number = None if _too_low(facts, settings) else settings.given("sink.kafka-config.partition-num")
    given = settings.given("sink.dispatchers")
    if given is None:
        return
    rules = _rules(given)
    upstream = sources_of(rules, _tables(facts), case_sensitive=exact)
    yield from unknown_dispatchers(rules)
    yield from unreached(rules, {s.table or t for t, s in upstream.items()}, case_sensitive=exact)
    if recorded < 2 and number is None:
        return
    tried = [int(str(number.value))] if number is not None else [*range(recorded, recorded + MORE_PARTITIONS + 1)]
    try:
        placed = _placed(rows, facts, settings, rules, tried, exact)
    except DispatchError as error:
        yield Contradiction(given, seen=f"TiCDC refuses it: {error}")
        return
    for table in (t for t in placed if t["n_failed"]):
        if table["error"].startswith(_OF_TICDC):
            seen = f"TiCDC cannot dispatch {_count(table['n_failed'])} of {_name(table)} by it: {table['error']}"
            yield Contradiction(given, seen=seen, places=(_place(table["failed_at"]),))
        else:
            yield (
                f"{given.name} of the {given.source} is not compared with {_count(table['n_failed'])} of "
                f"{_name(table)}, because their partition cannot be computed: {table['error']}."
            )
    ways = [(n, flavour) for n in tried for flavour in FLAVOURS]
    partitions, flavour = min(ways, key=lambda way: sum(t[f"wrong_{way[1]}_{way[0]}"] or 0 for t in placed))
    column = f"{flavour}_{partitions}"
    wrong = [t for t in placed if t["n"] and t[f"wrong_{column}"] > (1 - EXPLAINED) * t["n"]]
    if not wrong:
        return
    first, tables = wrong[0], [(r["schema_name"], r["table_name"]) for r in wrong]
    rule = rule_of(rules, *tables[0], case_sensitive=exact)
    most = "" if number is not None else f" (up to {tried[-1]} were tried)"
    seen = (
        f"{first[f'wrong_{column}']:,} of {_count(first['n'])} of {_name(first)} are not in the partition where `"
        f"{rule.partition}` of its rule ({' '.join(rule.matcher)}) puts them among {partitions} partitions{most}"
    )
    seen += f"; the same holds for {_some(tables[1:])}" if len(tables) > 1 else ""
    yield Contradiction(given, seen=seen, places=(_place(first[f"at_{column}"]),))


def _placed(
    rows: DataFrame, facts: LogFacts, settings: Settings, rules: tuple[Rule, ...], tried: Sequence[int], exact: bool
) -> list[dict[str, Any]]:
    """Of each table how many rows have a place by these rules, how many lie elsewhere, and why others have none.

    One pass: where a number of partitions divides another, a place among these is known from the place among those.
    """
    feed = Changefeed(rules, exact, dispatch_old_value=bool(settings.value("enable-old-value", True)))
    sources = sources_of(rules, _tables(facts), case_sensitive=exact) if routes(rules) else None
    found: dict[Table, dict[str, Any]] = {}
    for some in _divisors(tried):
        placed = rows
        for flavour in FLAVOURS:
            placed = placed.transform(
                dispatch_by_rules, rules=rules_in_force(feed), partitions=lcm(*some), catalog=_catalog(facts),
                flavour=flavour, case_sensitive=exact, sources=sources,
            ).drop("dispatch_key", "target_topic")  # fmt: skip
            own = {"target_partition": f"_{flavour}", "dispatch_error": f"_{flavour}_error"}
            placed = placed.withColumnsRenamed(own)
        at, failed = F.struct("partition", "offset", "commit_ts"), F.col("_new_error").isNotNull()
        counts = [
            F.count_if(~failed).alias("n"), F.count_if(failed).alias("n_failed"),
            F.min("_new_error").alias("error"), F.min(F.when(failed, at)).alias("failed_at"),
        ]  # fmt: skip
        for n in some:
            for flavour in FLAVOURS:
                wrong = F.col(f"_{flavour}") % n != F.col("partition")
                counts += [F.count_if(wrong).alias(f"wrong_{flavour}_{n}"),
                           F.min(F.when(wrong, at)).alias(f"at_{flavour}_{n}")]  # fmt: skip
        for r in placed.groupBy("schema_name", "table_name").agg(*counts).toArrow().to_pylist():
            found.setdefault((r["schema_name"], r["table_name"]), {}).update(r)
    return [found[table] for table in sorted(found)]


_OF_TICDC = "[CDC:"


def _divisors(numbers: Sequence[int]) -> Iterator[list[int]]:
    """Numbers in groups of which the least common multiple is a number of partitions, too."""
    group: list[int] = []
    for n in numbers:
        if group and lcm(*group, n) > _MOST_PARTITIONS:
            yield group
            group = []
        group.append(n)
    yield group


_MOST_PARTITIONS = (1 << 31) - 1


def _selected(rows: DataFrame, settings: Settings, exact: bool) -> Iterator[Contradiction]:
    """Columns that the given selectors leave out."""
    given = settings.given("sink.column-selectors")
    if given is None:
        return
    selectors = [(TableFilter.parse(s.get("matcher", ()), case_sensitive=exact), ColumnFilter.parse(s["columns"]))
                 for s in _members(given) if s.get("columns")]  # fmt: skip
    at = F.min(F.struct("partition", "offset", "commit_ts")).alias("at")
    names = F.transform(F.coalesce("columns", "before"), lambda c: c["name"]).alias("names")
    images = rows.select("schema_name", "table_name", names, "partition", "offset", "commit_ts")
    for r in images.groupBy("schema_name", "table_name", "names").agg(at).orderBy("at").toArrow().to_pylist():
        table = (r["schema_name"], r["table_name"])
        keeps = next((columns for matches, columns in selectors if matches.matches(*table)), None)
        if keeps is not None and (wrong := [c for c in r["names"] or () if not keeps.matches(c)]):
            seen = f"rows of {'.'.join(table)} have the column {wrong[0]}, which its selector leaves out"
            yield Contradiction(given, seen=seen, places=(_place(r["at"]),))
            return


def _updates(given: Setting | None, of_filter: Mapping[str, Any], tables: Collection[Table],
             facts: LogFacts) -> Iterator[Contradiction]:  # fmt: skip
    ignored = {*of_filter.get("ignore-event", ())}
    if given is None or not ignored & {"update", "all dml"}:
        return
    of_rows = facts.of_kind("row")
    updates = of_rows.filter(pc.equal(of_rows["op"], "update"))
    if wrong := [t for t in _tables(facts, updates) if t in tables]:
        seen = f"the log has updates of {_some(wrong)}, which the event filter of {_matcher(of_filter)} leaves out"
        yield Contradiction(given, seen=seen, places=(_first(facts, wrong[0], "update"),))


def _deleted_or_inserted(
    rows: DataFrame, settings: Settings, exact: bool, *, by_images: bool
) -> Iterator[Contradiction]:
    """Deletes or inserts that an event filter leaves out; an update that TiCDC split has one of each."""
    given = settings.given("filter.event-filters")
    left_out = [(f, op) for f in _members(given) for op in ("delete", "insert")
                if {*f.get("ignore-event", ())} & {op, "all dml"} and not (op == "insert" and by_images)]  # fmt: skip
    if given is None or not left_out:
        return
    at = F.struct("partition", "offset", "commit_ts")
    whole = rows.where("incomplete IS NULL OR incomplete <> 'op-unknown'")
    of = {op: F.min(F.when(F.col("op") == op, at)).alias(op) for op in ("delete", "insert")}
    each = whole.groupBy("schema_name", "table_name", "commit_ts").agg(*of.values())
    alone = [F.min(F.when(F.col(other).isNull(), F.col(op))).alias(op)
             for op, other in (("delete", "insert"), ("insert", "delete"))]  # fmt: skip
    tables = each.groupBy("schema_name", "table_name").agg(*alone)
    found = tables.orderBy("schema_name", "table_name").toArrow().to_pylist()
    for of_filter, op in left_out:
        matches = TableFilter.parse(of_filter.get("matcher", ()), case_sensitive=exact).matches
        if wrong := [r for r in found if r[op] is not None and matches(r["schema_name"], r["table_name"])]:
            some = _some([(r["schema_name"], r["table_name"]) for r in wrong])
            seen = f"the log has {op}s of {some}, which the event filter of {_matcher(of_filter)} leaves out"
            yield Contradiction(given, seen=seen, places=(_place(wrong[0][op]),))


def _ddl(given: Setting | None, of_filter: Mapping[str, Any], matches: Any,
         facts: LogFacts) -> Iterator[Contradiction]:  # fmt: skip
    """DDL that an event filter leaves out by kind or text; of kinds those that the first words name."""
    ignored = {e for e in of_filter.get("ignore-event", ()) if e == "all ddl" or e.split()[0] in _DDL_VERBS}
    patterns = []
    for text in of_filter.get("ignore-sql", ()):
        try:
            patterns.append(re.compile(text))
        except re.error:  # Go's form of some expressions is another one
            continue
    for d in facts.ddl.to_pylist() if ignored or patterns else ():
        words = " ".join((d["query"] or "").lower().split()[:2])
        kind = next((e for e in sorted(ignored) if e in ("all ddl", words)), None)
        by = kind or next((p.pattern for p in patterns if p.search(d["query"] or "")), None)
        if given is not None and by is not None and matches(d["schema_name"] or "", d["table_name"] or ""):
            seen = (
                f"the log has the DDL `{(d['query'] or '')[:60]}` of {d['schema_name']}.{d['table_name']}, which the "
                f"event filter of {_matcher(of_filter)} leaves out (`{by}`)"
            )
            yield Contradiction(given, seen=seen, places=(_place(d),))
            return


def _keyless(rows: DataFrame, settings: Settings, protocol: str) -> Iterator[Contradiction]:
    """Rows of tables without a key; protocols that name every key show them."""
    given = settings.given("force-replicate")
    if given is None or given.value or protocol not in ("open-protocol", "simple"):
        return
    at = F.min(F.struct("partition", "offset", "commit_ts")).alias("at")
    own = rows.where("key_hash IS NULL AND incomplete IS NULL")
    found = own.groupBy("schema_name", "table_name").agg(at).orderBy("schema_name", "table_name").toArrow().to_pylist()
    if found:
        tables = [(r["schema_name"], r["table_name"]) for r in found]
        seen = f"the log has rows of {_some(tables)}, which {'have' if len(tables) > 1 else 'has'} no key"
        yield Contradiction(given, seen=seen, places=(_place(found[0]["at"]),))


def _rules(given: Setting | None) -> tuple[Rule, ...]:
    return rules_from_config(_members(given))


def _members(given: Setting | None) -> Sequence[Mapping[str, Any]]:
    return given.value if given is not None and isinstance(given.value, tuple) else ()


def _catalog(facts: LogFacts) -> Catalog:
    ddl = facts.ddl.select(["commit_ts", "schema_name", "table_name", "query"]).to_pylist()
    dated = [(d["commit_ts"], d["schema_name"] or "", d["table_name"] or "", d["query"] or "") for d in ddl]
    return Catalog.from_ddl(dict.fromkeys(d for d in dated if d[0] is not None))


def _tables(facts: LogFacts, rows: Any = None) -> list[Table]:
    """Each table with row changes."""
    own = facts.of_kind("row") if rows is None else rows
    names = zip(own["schema_name"].to_pylist(), own["table_name"].to_pylist(), strict=True)
    return sorted({(s or "", t or "") for s, t in names})


def _first(facts: LogFacts, table: Table, *ops: str) -> Place:
    """The place of the first row change of a table, or of those of some operations."""
    own = [p for p in facts.of_kind("row").to_pylist() if (p["schema_name"] or "", p["table_name"] or "") == table]
    return min((p["partition"], p["offset"], None) for p in own if p["op"] in (ops or _OF_ROWS))


def _place(at: Mapping[str, Any]) -> Place:
    return at["partition"], at["offset"], at["commit_ts"]


def _count(n: int) -> str:
    return f"{n:,} row{'s' * (n != 1)}"


def _name(row: Mapping[str, Any]) -> str:
    return f"{row['schema_name']}.{row['table_name']}"


def _matcher(of_filter: Mapping[str, Any]) -> str:
    return " ".join(of_filter.get("matcher", ()))


def _some(tables: Sequence[Table]) -> str:
    named, more = ", ".join(".".join(t) for t in tables[:_NAMED]), len(tables) - _NAMED
    return f"{named} and {more} more table{'s' * (more > 1)}" if more > 0 else named

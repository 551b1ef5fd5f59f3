"""What a changefeed's file or an option gives, against what the log has: filters, routing, dispatchers, columns.

Settings that have one value are compared where they are known (:class:`ticdc_lab.settings.Settings`). These are lists
of rules, and many mean the same, so their effect is compared with the log.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import starmap
from math import lcm
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import IntegerType, LongType, StringType, StructField, StructType

from ticdc_lab.codecs.kernel.arrow import arrow_schema
from ticdc_lab.dispatch.changefeed import Changefeed
from ticdc_lab.dispatch.checks import changed_key_texts
from ticdc_lab.dispatch.definitions import HashedColumns, changes_in, missing_text
from ticdc_lab.dispatch.dispatching import dispatch_by_rules
from ticdc_lab.dispatch.fitting import EXPLAINED, by_layout, columns_of, hash_of
from ticdc_lab.dispatch.given import AND, COLUMN, GivenRules, given_rules, refused, rule_notes, rules_in
from ticdc_lab.dispatch.infer import MORE_PARTITIONS
from ticdc_lab.dispatch.names import FLAVOURS
from ticdc_lab.dispatch.routing import routes, sources_of, target_of
from ticdc_lab.dispatch.rules import Rule, rule_of
from ticdc_lab.dispatch.settings import rules_in_force
from ticdc_lab.engine.shuffle import at_once, grouped_by, mapped
from ticdc_lab.errors import DispatchError
from ticdc_lab.events.arrays import Batches, Bools
from ticdc_lab.facts import LogFacts
from ticdc_lab.facts.definitions import row_names, table_text
from ticdc_lab.settings import UNKNOWN, Contradiction, Setting, Settings
from ticdc_lab.settings.detected import COUNTED, OP_BY_IMAGES, READ, counted, of_counts, of_watermarks
from ticdc_lab.settings.matchers import TableFilter, accepted
from ticdc_lab.sources.change_log import ChangeLog
from ticdc_lab.words import shortened

if TYPE_CHECKING:
    from ticdc_lab.sources.stored import StoredEvents

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
        yield Contradiction(number, seen=seen, places=((last, offset, None),), cause="partitions beyond it")
    tables = _tables(facts, settings=settings)
    exact = bool(settings.value("case-sensitive", False))
    kept, filters = settings.given("filter.rules"), settings.given("filter.event-filters")
    routed = settings.given("sink.dispatchers")
    yield from refused(settings, of_storage=not has_partitions)
    yield from _left_out(kept, tables, facts, exact)
    yield from _filtered(filters, tables, facts, exact)
    yield from _routed(routed, rules_in(settings), tables, facts, exact)


def _left_out(kept: Setting | None, tables: Sequence[Table], facts: LogFacts, exact: bool) -> Iterator[Contradiction]:
    """Tables that have rows, though the filter leaves them out."""
    if kept is None or not isinstance(kept.value, tuple) or not kept.value:
        return
    try:
        matches = TableFilter.parse(kept.value, case_sensitive=exact).matches
    except DispatchError:  # which is refused
        return
    if wrong := [t for t in tables if not matches(*t)]:
        leaves = "they leave" if len(kept.value) > 1 else "it leaves"
        seen = f"the log has rows of {_some(wrong)}, which {leaves} out"
        yield Contradiction(kept, seen=seen, places=(_first(facts, wrong[0]),), cause="rows of tables left out")


def _filtered(filters: Setting | None, tables: Sequence[Table], facts: LogFacts,
              exact: bool) -> Iterator[Contradiction]:  # fmt: skip
    for of_filter, takes, _ in accepted(_members(filters), case_sensitive=exact):
        yield from _updates(filters, of_filter, [t for t in tables if takes.matches(*t)], facts)
        yield from _ddl(filters, of_filter, takes.matches, facts)


def _routed(
    routed: Setting | None, rules: Sequence[Rule], tables: Sequence[Table], facts: LogFacts, exact: bool
) -> Iterator[Contradiction]:
    """Tables whose messages carry the name upstream, though rules route them."""
    if routed is not None and routes(rules):
        upstream = sources_of(rules, tables, case_sensitive=exact)
        target = {t: target_of(rules, t, case_sensitive=exact) for t in tables}
        if wrong := [t for t in tables if target[t] != t and upstream[t].table == t]:
            seen = (
                f"messages carry the name {'.'.join(wrong[0])}, which its rules route to {'.'.join(target[wrong[0]])}"
            )
            more = f" (so do {len(wrong) - 1} more)" if len(wrong) > 1 else ""
            yield Contradiction(routed, seen=seen + more, places=(_first(facts, wrong[0]),), cause="names upstream")


_EVIDENCE = StructType(
    [StructField(name, StringType()) for name in ("shows", "schema_name", "table_name", "column")]
    + [StructField("transaction", LongType()), StructField("partition", IntegerType())]
    + [StructField(name, LongType()) for name in ("offset", "commit_ts", "nth")]
)
EVIDENCE = arrow_schema(_EVIDENCE)
"""The first row of those that show the same of a table.

``shows``: ``column`` (its image has it), ``no-key``, ``insert`` or ``delete`` (the commit_ts is its ``transaction``),
``insert-alone`` or ``delete-alone`` (:func:`settled`). ``nth``: which of the image's columns it is.
"""
ROW_COLUMNS = (
    "kind", "op", "incomplete", "schema_name", "table_name", "key_hash", "columns", "before", "partition", "offset",
    "commit_ts",
)  # fmt: skip
"""What :func:`evidence_of` reads of events; images only if column selectors are given (:func:`reads_images`)."""

_ALIKE = EVIDENCE.names[:5]
_OPS = ("insert", "delete")
_SELECTORS, _FILTERS, _KEYLESS = "sink.column-selectors", "filter.event-filters", "force-replicate"


def compared_with_rows(settings: Settings, protocol: str) -> dict[str, Setting]:
    """Given settings that each row may contradict (:func:`against_rows`)."""
    given = {name: found for name in (_SELECTORS, _FILTERS, _KEYLESS) if (found := settings.given(name)) is not None}
    if not any({*f.get("ignore-event", ())} & {*_OPS, "all dml"} for f in _members(given.get(_FILTERS))):
        given.pop(_FILTERS, None)
    if _KEYLESS in given and (given[_KEYLESS].value or protocol not in ("open-protocol", "simple")):
        del given[_KEYLESS]
    return given


def reads_images(settings: Settings) -> bool:
    """Whether :func:`evidence_of` needs the images of rows."""
    return settings.given(_SELECTORS) is not None


def evidence_of(events: pa.Table, settings: Settings, *, protocol: str) -> pa.Table:
    """What rows show of the settings that :func:`compared_with_rows` names (:data:`EVIDENCE`).

    Several parts of a log are joined by :func:`first_of_each`.
    """
    asked, parts = compared_with_rows(settings, protocol), [EVIDENCE.empty_table()]
    if not asked:
        return parts[0]
    rows = events.filter(pc.and_(pc.equal(events["kind"], "row"), pc.is_valid(events["table_name"])))
    rows = rows.combine_chunks()
    if _SELECTORS in asked:
        images = pc.coalesce(rows["columns"], rows["before"]).combine_chunks()
        of, columns = pc.list_parent_indices(images), pc.list_flatten(images)
        each = rows.select(EVIDENCE.names[1:3] + EVIDENCE.names[5:8]).take(of)
        nth = pa.array(np.arange(len(of)))
        parts.append(_evidence(each, "column", column=pc.struct_field(columns, "name"), nth=nth))
    if _FILTERS in asked:
        is_known = pc.fill_null(pc.not_equal(rows["incomplete"], "op-unknown"), True)
        own = rows.filter(pc.and_(is_known, pc.is_in(rows["op"], pa.array(_OPS))))
        exact = bool(settings.value("case-sensitive", False))
        filters = [takes for _, takes, _ in accepted(_members(asked[_FILTERS]), case_sensitive=exact)]
        named = own.group_by(["schema_name", "table_name"]).aggregate([]).to_pylist()
        tables = [(r["schema_name"], r["table_name"]) for r in named]
        matched = pa.array(["\0".join(t) for t in tables if any(f.matches(*t) for f in filters)], pa.string())
        own = own.filter(pc.is_in(pc.binary_join_element_wise(own["schema_name"], own["table_name"], "\0"), matched))
        parts.append(_evidence(own, own["op"], transaction=own["commit_ts"]))
    if _KEYLESS in asked:
        has_none = pc.and_(pc.is_null(rows["key_hash"]), pc.is_null(rows["incomplete"]))
        parts.append(_evidence(rows.filter(has_none), "no-key"))
    return first_of_each(pa.concat_tables(parts))


def _evidence(rows: pa.Table, shows: Any, **more: Any) -> pa.Table:
    n = rows.num_rows
    own = {"shows": pa.repeat(shows, n) if isinstance(shows, str) else shows, "nth": pa.repeat(0, n)} | more
    of = [own[c] if c in own else rows[c] if c in rows.column_names else pa.nulls(n) for c in EVIDENCE.names]
    return pa.table(dict(zip(EVIDENCE.names, of, strict=True))).cast(EVIDENCE)


def first_of_each(evidence: pa.Table) -> pa.Table:
    """The first row of those that show the same, by place."""
    by = [(name, "ascending", "at_start") for name in EVIDENCE.names[5:]]
    ordered = evidence.take(pc.sort_indices(evidence, by)).append_column(
        "i", pa.array(range(evidence.num_rows), pa.int64())
    )
    first = ordered.group_by(_ALIKE).aggregate([("i", "min")])["i_min"]
    return ordered.drop_columns("i").take(first.take(pc.sort_indices(first))).combine_chunks()


def settled(evidence: pa.Table, *, until: int | None = None) -> pa.Table:
    """The same where no row is to come, or none up to a commit_ts: of inserts and deletes, the rows of each table that
    are alone in their transaction; an update that TiCDC split has one of each.
    """
    ends = pc.is_in(evidence["shows"], pa.array(_OPS))
    if until is not None:
        ends = pc.and_(ends, pc.fill_null(pc.less_equal(evidence["transaction"], until), False))
    ops = evidence.filter(ends)
    numbered = ops.append_column("i", pa.array(range(ops.num_rows), pa.int64()))
    of = numbered.group_by(["schema_name", "table_name", "transaction"]).aggregate([("i", "min"), ("i", "count")])
    alone = ops.take(of.filter(pc.equal(of["i_count"], 1))["i_min"])
    shows = pc.binary_join_element_wise(alone["shows"], "alone", "-")
    alone = _evidence(alone.drop_columns(["shows", "transaction"]), shows)
    return first_of_each(pa.concat_tables([evidence.filter(pc.invert(ends)), alone]))


def against_rows(evidence: pa.Table, facts: LogFacts, settings: Settings, *, protocol: str) -> Iterator[Contradiction]:
    """Column selectors, event filters and ``force-replicate`` that rows contradict.

    ``evidence``: of the whole log, as of :func:`evidence_of`. ``facts``: of the log. ``settings``: what is known of the
    changefeed's settings. ``protocol``: of the log.
    """
    asked, exact = compared_with_rows(settings, protocol), bool(settings.value("case-sensitive", False))
    known: dict[str, list[dict[str, Any]]] = {}
    renamed = _renamed(facts, settings)
    for r in settled(evidence).to_pylist():
        if _table_of(r) not in renamed:
            known.setdefault(r["shows"], []).append(r)
    if selectors := asked.get(_SELECTORS):
        chosen = [of[1:] for of in accepted(_members(selectors), case_sensitive=exact) if of[0].get("columns")]
        for r in known.get("column", ()):
            table = (r["schema_name"], r["table_name"])
            keeps = next((columns for matches, columns in chosen if matches.matches(*table)), None)
            if keeps is not None and not keeps.matches(r["column"]):
                seen = f"rows of {'.'.join(table)} have the column {r['column']}, which its selector leaves out"
                yield Contradiction(selectors, seen=seen, places=(_place(r),))
                break
    if no_keys := known.get("no-key") if _KEYLESS in asked else None:
        ordered = sorted(no_keys, key=_table_of)
        some, have = _some([_table_of(r) for r in ordered]), "have" if len(ordered) > 1 else "has"
        seen = f"the log has rows of {some}, which {have} no key"
        yield Contradiction(asked[_KEYLESS], seen=seen, places=(_place(ordered[0]),), cause="rows without a key")
    by_images = protocol in OP_BY_IMAGES and not pc.any(pc.equal(facts.of_kind("row")["op"], "update")).as_py()
    filters = asked.get(_FILTERS)
    for of_filter, takes, _ in accepted(_members(filters), case_sensitive=exact):
        for op in ("delete", "insert"):
            left_out = {*of_filter.get("ignore-event", ())} & {op, "all dml"} and not (op == "insert" and by_images)
            alone = known.get(f"{op}-alone", ()) if left_out and filters is not None else ()
            if wrong := sorted((r for r in alone if takes.matches(*_table_of(r))), key=_table_of):
                some = _some([_table_of(r) for r in wrong])
                seen = f"the log has {op}s of {some}, which the event filter of {_matcher(of_filter)} leaves out"
                assert filters is not None
                cause = f"{op}s left out by {_matcher(of_filter)}"
                yield Contradiction(filters, seen=seen, places=(_place(wrong[0]),), cause=cause)


def _evidence_in(rows: DataFrame | StoredEvents, settings: Settings, protocol: str) -> pa.Table:
    """The same of the rows of a log."""
    asked = compared_with_rows(settings, protocol)
    if not asked:
        return EVIDENCE.empty_table()

    def gather(batches: Batches) -> Batches:
        found = EVIDENCE.empty_table()
        for batch in batches:
            found = first_of_each(pa.concat_tables([found, pa.table(batch)]))
        yield from found.to_batches()

    def settle(batches: Batches) -> Batches:
        parts = [pa.table(batch).cast(EVIDENCE) for batch in batches]
        yield from settled(first_of_each(pa.concat_tables([EVIDENCE.empty_table(), *parts]))).to_batches()

    read = [c for c in ROW_COLUMNS if c not in ("columns", "before") or reads_images(settings)]
    shown = changes_in(rows, read, partial(evidence_of, settings=settings, protocol=protocol), EVIDENCE)
    found = mapped(shown, gather, EVIDENCE)
    if _FILTERS in asked:  # a transaction's rows may lie in several tasks, and there are many
        found = grouped_by(found, ["schema_name", "table_name", "transaction"], settle, EVIDENCE)
    return first_of_each(at_once(found, EVIDENCE))


def with_contradictions(
    events: Callable[[], DataFrame], facts: LogFacts, settings: Settings, *, protocol: str,
    has_partitions: bool = True, files: StoredEvents | None = None,
) -> Settings:  # fmt: skip
    """The same with what the images of all rows show, and what the log has against rules that were given.

    ``events``: gives the events contract. ``facts``: what was gathered of them. ``settings``: what is known of the
    changefeed's settings. ``protocol``: of the log. ``has_partitions``: False of a storage sink, which has none.
    ``files``: the same events in files, if they lie in some.
    """
    own = events() if files is None else files
    counts = at_once(mapped(changes_in(own, READ, counted, COUNTED), lambda batches: batches, COUNTED), COUNTED)
    whole = settings | of_counts(counts, protocol=protocol, whole=True)
    whole |= of_watermarks(len(facts.watermarks.ts), facts.ddl.num_rows, protocol=protocol)
    exact = bool(settings.value("case-sensitive", False))
    found = [
        *against_facts(facts, whole, has_partitions=has_partitions),
        *against_rows(_evidence_in(own, whole, protocol), facts, whole, protocol=protocol),
    ]

    def counted_in(rules: tuple[Rule, ...], tried: Sequence[int]) -> list[dict[str, Any]]:
        rows = events().where("kind = 'row' AND table_name IS NOT NULL")
        return _placed(rows, facts, whole, rules, tried, exact)

    placed = [*_dispatched(counted_in, facts, whole, exact)] if has_partitions else []
    found += [c for c in placed if isinstance(c, Contradiction)]
    verified = [s for s in placed if isinstance(s, Setting)]
    return (whole | verified).noted(found, [note for note in placed if isinstance(note, str)])


def rules_given(facts: LogFacts, settings: Settings) -> GivenRules:
    """The dispatchers that were given for the tables of a log, by the names that rows have and by TiDB's."""
    return given_rules(settings, [*_tables(facts), *_renamed(facts, settings).values()], facts.catalog(undated=False))


def changed_texts(facts: LogFacts, settings: Settings) -> list[str]:
    """Keys and dispatch columns whose text a DDL changes, a sentence each."""
    modified = pc.match_substring_regex(facts.ddl["query"], r"(?i)\b(modify|change)\b")
    if not pc.any(modified).as_py():
        return []
    exact = bool(settings.value("case-sensitive", False))
    return changed_key_texts(facts.catalog(undated=False), _tables(facts), rules_in(settings), case_sensitive=exact)


def rules_noted(facts: LogFacts, settings: Settings, *, of_storage: bool) -> list[str]:
    """Where given dispatchers differ from what they seem to do, a sentence each."""
    renamed = _renamed(facts, settings)
    tables = [*_tables(facts, settings=settings), *renamed.values()]
    said = [
        f"Rules, filters and selectors are not compared with {_some(sorted(renamed.values()))}: "
        f"{settings.value('sink.protocol')} writes the name, or names of columns, in another way."
    ]
    asked = any(settings.given(name) is not None for name in ("sink.dispatchers", _SELECTORS, _FILTERS, "filter.rules"))
    return rule_notes(settings, tables, of_storage=of_storage) + (said if renamed and asked else [])


def with_rules_noted(log: ChangeLog) -> ChangeLog:
    """The same log; its limits name what TiCDC refuses of the given rules, the dispatchers that it does not know, rules
    that it never uses, and keys whose text a DDL changes.
    """
    facts, settings = log.facts, log.settings
    if changed := changed_texts(facts, settings):
        log = _noted(log, guesses=(*log.guesses, *changed))
    against = refused(settings, of_storage=log.of_storage)
    noted = settings.noted(against, rules_noted(facts, settings, of_storage=log.of_storage))
    return _noted(log, known=replace(log.known, settings=noted)) if noted != settings else log


def _noted(log: ChangeLog, **more: Any) -> ChangeLog:
    noted = replace(log, **more)
    noted._facts.extend(log._facts)
    noted._handles.extend(log._handles)
    return noted


def _recorded(facts: LogFacts) -> int:
    """How many partitions the log has at least."""
    return 1 + max((partition for _, partition in facts.homes if partition is not None), default=0)


def _too_low(facts: LogFacts, settings: Settings) -> Setting | None:
    """The given partition count, if the log has more partitions."""
    number = settings.given("sink.kafka-config.partition-num")
    known = number is not None and isinstance(number.value, int) and number.value < _recorded(facts)
    return number if known else None


def _dispatched(
    count_placed: Callable[[tuple[Rule, ...], Sequence[int]], list[dict[str, Any]]], facts: LogFacts,
    settings: Settings, exact: bool, *, share: int = 1,
) -> Iterator[Contradiction | Setting | str]:  # fmt: skip
    """Rows that do not lie where the given rules put them, or the rules as verified; as notes the rest.

    ``count_placed``: as of :func:`_placed`, of one row of ``share``.
    """
    recorded = _recorded(facts)
    number = None if _too_low(facts, settings) else settings.given("sink.kafka-config.partition-num")
    given = settings.given("sink.dispatchers")
    if given is None:
        return
    rules = rules_in(settings)
    yield from rules_noted(facts, settings, of_storage=False)
    if not rules or (recorded < 2 and number is None):
        return
    tried = [int(str(number.value))] if number is not None else [*range(recorded, recorded + MORE_PARTITIONS + 1)]
    # if the row determines the topic, it changes no partition
    every, renamed = count_placed(tuple(replace(r, topic="") for r in rules), tried), _renamed(facts, settings)
    placed = [table for table in every if _table_of(table) not in renamed]
    sampled = f" (of one row in {share})" if share > 1 else ""
    failed: dict[str, list[dict[str, Any]]] = {}
    for table in (t for t in placed if t["n_failed"]):
        if table["error"].startswith(_OF_TICDC):
            failed.setdefault(table["error"].replace(f"table: {table['table_name']}, ", ""), []).append(table)
        else:
            yield (
                f"{given.name} of the {given.source} is not compared with {_count(table['n_failed'])} of "
                f"{_name(table)}{sampled}, because their partition cannot be computed: {table['error']}."
            )
    for cause, alike in failed.items():
        n, tables = sum(t["n_failed"] for t in alike), [_table_of(t) for t in alike]
        error = cause if len(alike) > 1 else alike[0]["error"]
        seen = f"TiCDC cannot dispatch {_count(n)} of {_some(tables)} by it: {error}"
        yield Contradiction(given, seen=seen, places=(_place(alike[0]["failed_at"]),), cause=cause)
    ways = [(n, flavour) for n in tried for flavour in FLAVOURS]
    partitions, flavour = min(ways, key=lambda way: sum(t[f"wrong_{way[1]}_{way[0]}"] or 0 for t in placed))
    column = f"{flavour}_{partitions}"
    wrong = [t for t in placed if t["n"] and t[f"wrong_{column}"] > (1 - EXPLAINED) * t["n"]]
    if not wrong:
        rows_placed = sum(t["n"] for t in placed)
        if rows_placed and not any(t["n_failed"] for t in placed):
            lie = rows_placed - sum(t[f"wrong_{column}"] or 0 for t in placed)
            all_lie = f"all {_count(lie)}" if lie == rows_placed else f"{lie:,} of {_count(rows_placed)}"
            seen = f"{all_lie} of {len(placed)} table{'s' * (len(placed) != 1)}{sampled} lie where it puts them"
            evidence = "; ".join(filter(None, [given.evidence, f"{seen} among {partitions} partitions"]))
            yield replace(given, sure="verified", evidence=evidence)
        return
    first, tables = wrong[0], [(r["schema_name"], r["table_name"]) for r in wrong]
    rule = rule_of(rules, *tables[0], case_sensitive=exact)
    most = "" if number is not None else f" (up to {tried[-1]} were tried)"
    name = ":".join(filter(None, [rule.partition, rule.index or ",".join(rule.columns)]))
    seen = (
        f"{first[f'wrong_{column}']:,} of {_count(first['n'])} of {_name(first)}{sampled} are not in the partition "
        f"where `{name}` of its rule ({' '.join(rule.matcher)}) puts them among {partitions} partitions{most}"
    )
    seen += f"; the same holds for {_some(tables[1:])}" if len(tables) > 1 else ""
    yield Contradiction(given, seen=seen, places=(_place(first[f"at_{column}"]),), cause="rows in other partitions")


def against_places(
    rows: pa.Table, facts: LogFacts, settings: Settings, *, share: int = 1
) -> Iterator[Contradiction | Setting | str]:
    """What rows in memory show of the given dispatchers: a contradiction, the setting as verified, or notes.

    ``rows``: rows of the whole log with :data:`ticdc_lab.events.schema.DISPATCH`: all, or one key's in
    ``share``. ``facts``, ``settings``: as of :func:`against_rows`.
    """

    def counted(_: tuple[Rule, ...], tried: Sequence[int]) -> list[dict[str, Any]]:
        return _placed_in(rows, rules_given(facts, settings), tried)

    yield from _dispatched(counted, facts, settings, bool(settings.value("case-sensitive", False)), share=share)


def _placed_in(rows: pa.Table, given: GivenRules, tried: Sequence[int]) -> list[dict[str, Any]]:
    """:func:`_placed` of rows in memory. Some rules need the images or definitions of each time: no row is placed."""
    found: dict[Table, dict[str, Any]] = {}
    ways = [(flavour, n) for flavour in FLAVOURS for n in tried]
    none = {"n": 0, "n_failed": 0, "error": None, "failed_at": None} | {
        f"{what}_{flavour}_{n}": start for flavour, n in ways for what, start in (("wrong", 0), ("at", None))
    }
    named = rows.filter(pc.is_valid(rows["table_name"]))
    for alike in by_layout(named.append_column("partitions", pa.repeat(0, named.num_rows))):
        table = alike["schema_name"][0].as_py(), alike["table_name"][0].as_py()
        of = found.setdefault(table, none | dict(zip(("schema_name", "table_name"), table, strict=True)))
        for own, rule, why in _ruled(alike, table, given):
            lies, told = np.asarray(own["partition"]), np.zeros(len(own), dtype=bool)
            for flavour in FLAVOURS if rule else ():
                value, told = hash_of(own, rule, given, flavour=flavour)
                if rule == "index-value":  # a row without a key is dispatched by its table
                    told = np.asarray(own["key_crc"].is_valid())
                for n in tried:
                    odd = told & ((value.view(np.uint64) % np.uint64(n)).astype(np.int64) != lies)
                    of[f"wrong_{flavour}_{n}"] += int(odd.sum())
                    of[f"at_{flavour}_{n}"] = _earlier(of[f"at_{flavour}_{n}"], own, odd)
            of["n"] += int(told.sum())
            of["n_failed"] += int((~told).sum())
            of["failed_at"] = _earlier(of["failed_at"], own, ~told)
            of["error"] = of["error"] if told.all() else min(of["error"] or why, why)
    return [found[table] for table in sorted(found)]


def _ruled(rows: pa.Table, table: Table, given: GivenRules) -> Iterator[tuple[pa.Table, str, str]]:
    """Rows of one table and layout by their rule, empty where it is not computed from them, and why it is not then."""
    names, keys, _ = columns_of(rows)
    unknown = "a watch does not keep what its rule reads; ticdc-lab audit compares them"
    if (versions := given.by_index.get(table)) is None:
        rule, listed = given.of_columns(*table, names) or "", given.of_table.get(table, "").removeprefix(COLUMN)
        is_missing = not rule and listed and {*names} > {*keys}  # a delete may show its key alone
        why = missing_text(table[1], listed.split(AND), names) if is_missing else unknown
        for own, answer in _by_version(rows, () if rule else given.by_columns.get(table, ())):
            yield own, rule, (answer.error if answer is not None else None) or why
        return
    for own, answer in _by_version(rows, versions):
        columns = answer.columns if answer is not None and {*answer.columns} <= {*names} else ()
        why = (answer.error if answer is not None else None) or unknown
        yield own, COLUMN + AND.join(columns) if columns else "", why


def _by_version(
    rows: pa.Table, versions: Sequence[tuple[int, HashedColumns | None]]
) -> Iterator[tuple[pa.Table, HashedColumns | None]]:
    if not versions:
        yield rows, None
        return
    at = np.searchsorted([ts for ts, _ in versions], np.asarray(rows["commit_ts"].fill_null(-1)), side="right")
    for i in np.unique(at).tolist():
        yield rows.filter(pa.array(at == i)), versions[i - 1][1] if i else None


def _earlier(at: dict[str, Any] | None, rows: pa.Table, own: Bools) -> dict[str, Any] | None:
    """The least place of some rows and of one before."""
    places = rows.filter(pa.array(own)).select(EVIDENCE.names[5:8])
    first = [] if at is None else [at]
    if places.num_rows:
        by = [(c, "ascending") for c in places.column_names]
        first += places.take(pc.select_k_unstable(places, 1, by)).to_pylist()
    return min(first, key=lambda p: (p["partition"], p["offset"]), default=None)


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
                dispatch_by_rules, rules=rules_in_force(feed), partitions=lcm(*some),
                catalog=facts.catalog(undated=False), flavour=flavour, case_sensitive=exact, sources=sources,
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
    """Numbers in groups whose least common multiple is a number of partitions, too."""
    group: list[int] = []
    for n in numbers:
        if group and lcm(*group, n) > _MOST_PARTITIONS:
            yield group
            group = []
        group.append(n)
    yield group


_MOST_PARTITIONS = (1 << 31) - 1


def _updates(given: Setting | None, of_filter: Mapping[str, Any], tables: Collection[Table],
             facts: LogFacts) -> Iterator[Contradiction]:  # fmt: skip
    ignored = {*of_filter.get("ignore-event", ())}
    if given is None or not ignored & {"update", "all dml"}:
        return
    of_rows = facts.of_kind("row")
    updates = of_rows.filter(pc.equal(of_rows["op"], "update"))
    if wrong := [t for t in _tables(facts, updates) if t in tables]:
        seen = f"the log has updates of {_some(wrong)}, which the event filter of {_matcher(of_filter)} leaves out"
        cause = f"updates left out by {_matcher(of_filter)}"
        yield Contradiction(given, seen=seen, places=(_first(facts, wrong[0], "update"),), cause=cause)


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
                f"the log has the DDL `{shortened(d['query'] or '', 60)}` of {d['schema_name']}.{d['table_name']}, "
                f"which the event filter of {_matcher(of_filter)} leaves out (`{by}`)"
            )
            yield Contradiction(given, seen=seen, places=(_place(d),))
            return


def _members(given: Setting | None) -> Sequence[Mapping[str, Any]]:
    return given.value if given is not None and isinstance(given.value, tuple) else ()


def _tables(facts: LogFacts, rows: Any = None, *, settings: Settings = UNKNOWN) -> list[Table]:
    """Each table with row changes, without those that are :func:`_renamed`."""
    own = facts.of_kind("row") if rows is None else rows
    names = zip(own["schema_name"].to_pylist(), own["table_name"].to_pylist(), strict=True)
    return sorted({(s or "", t or "") for s, t in names} - {*_renamed(facts, settings)})


def _renamed(facts: LogFacts, settings: Settings) -> dict[Table, Table]:
    """Tables, or their columns, that avro names differently from TiCDC's rules: by that name TiDB's."""
    protocol = settings.value("sink.protocol")
    return {} if row_names(protocol or "")[1] is str else facts.catalog(undated=False).renamed_in(protocol)


def _first(facts: LogFacts, table: Table, *ops: str) -> Place:
    """The place of the first row change of a table, or of some operations."""
    own = [p for p in facts.of_kind("row").to_pylist() if (p["schema_name"] or "", p["table_name"] or "") == table]
    return min((p["partition"], p["offset"], None) for p in own if p["op"] in (ops or _OF_ROWS))


def _place(at: Mapping[str, Any]) -> Place:
    return at["partition"], at["offset"], at["commit_ts"]


def _count(n: int) -> str:
    return f"{n:,} row{'s' * (n != 1)}"


def _table_of(row: Mapping[str, Any]) -> Table:
    return row["schema_name"], row["table_name"]


def _name(row: Mapping[str, Any]) -> str:
    return table_text(row["schema_name"], row["table_name"])


def _matcher(of_filter: Mapping[str, Any]) -> str:
    return " ".join(of_filter.get("matcher", ()))


def _some(tables: Sequence[Table]) -> str:
    named, more = ", ".join(starmap(table_text, tables[:_NAMED])), len(tables) - _NAMED
    return f"{named} and {more} more table{'s' * (more > 1)}" if more > 0 else named

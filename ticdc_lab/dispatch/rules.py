"""A changefeed's dispatch rules: which dispatcher and topic serve which table (TiCDC ``sink.dispatchers``)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from ticdc_lab.dispatch.definitions import with_answers
from ticdc_lab.dispatch.dispatching import ADDED, decided, ready_for
from ticdc_lab.dispatch.hashing import ColumnChoice, Flavour, with_hash
from ticdc_lab.dispatch.names import candidate_name
from ticdc_lab.dispatch.strategies import (
    STRATEGIES,
    Request,
    Verdict,
    by_lists_of_columns,
    by_named_indexes,
    strategy_of,
)
from ticdc_lab.dispatch.topics import check_topic, topic_column
from ticdc_lab.engine.columns import computed_once
from ticdc_lab.engine.sessions import is_sail
from ticdc_lab.errors import DispatchError
from ticdc_lab.facts.catalog import Catalog
from ticdc_lab.settings.matchers import OF_ASCII, Pattern, TableFilter

if TYPE_CHECKING:
    from ticdc_lab.dispatch.routing import Upstream
    from ticdc_lab.dispatch.whatif import WhatIf

RULE, _WRITTEN, _UNTOLD = "_dispatch_rule", "_dispatch_written", "_dispatch_untold"
"""Scratch columns: the place of the row's rule; its names in the log; why its table upstream is unknown."""


@dataclass(frozen=True, slots=True)
class Rule:
    """One rule: tables that match ``matcher`` are dispatched by ``partition``, a strategy's name.

    ``topic`` is a topic expression (:mod:`ticdc_lab.dispatch.topics`); empty for the default topic. ``target_schema``
    and ``target_table`` route a table (:mod:`ticdc_lab.dispatch.routing`): messages carry these names.
    """

    matcher: tuple[str, ...]
    partition: str = "default"
    index: str = ""
    columns: tuple[str, ...] = ()
    topic: str = ""
    target_schema: str = ""
    target_table: str = ""


EVERYTHING = Rule(("*.*",))
"""What TiCDC appends to every list of rules."""


def rules_from_config(config: Iterable[Mapping[str, Any]]) -> tuple[Rule, ...]:
    """Rules from a changefeed's ``dispatchers``: ``matcher``, ``partition`` (or ``dispatcher``), ``index``, ..

    Raises
    ------
    DispatchError
        A rule has both ``partition`` and its old name ``dispatcher``, as TiCDC refuses it.

    Examples
    --------
    >>> (rule,) = rules_from_config([{"matcher": ["shop.*"], "partition": "columns", "columns": ["user_id"]}])
    >>> rule.partition, rule.columns
    ('columns', ('user_id',))
    """
    return tuple(_rule(c) for c in config)


def _rule(c: Mapping[str, Any]) -> Rule:
    if c.get("partition") and c.get("dispatcher"):
        raise DispatchError(
            f"[CDC:ErrSinkInvalidConfig]dispatcher and partition cannot be configured both for rule:{dict(c)}",
            hint="Keep `partition`; `dispatcher` is its old name.",
        )
    return Rule(
        tuple(c.get("matcher") or ()),
        c.get("partition") or c.get("dispatcher") or "default",
        c.get("index") or "",
        tuple(c.get("columns") or ()),
        c.get("topic") or "",
        c.get("target-schema") or "",
        c.get("target-table") or "",
    )


def topic_of(rules: Sequence[Rule], schema_name: str, table_name: str, *, case_sensitive: bool = False) -> str:
    """The topic expression of the rule that serves a table; empty for the default topic."""
    return rule_of(rules, schema_name, table_name, case_sensitive=case_sensitive).topic


def rule_of(rules: Sequence[Rule], schema_name: str, table_name: str, *, case_sensitive: bool = False) -> Rule:
    """The rule that serves a table: the first that matches, or :data:`EVERYTHING`."""
    return (*rules, EVERYTHING)[first_rule(rules, schema_name, table_name, case_sensitive=case_sensitive)]


def first_rule(rules: Sequence[Rule], schema_name: str, table_name: str, *, case_sensitive: bool = False) -> int:
    """The place of that rule in ``rules``; their number, as if appended, of :data:`EVERYTHING`."""
    filters = (TableFilter.parse(rule.matcher, case_sensitive=case_sensitive) for rule in rules)
    return next((i for i, f in enumerate(filters) if f.matches(schema_name, table_name)), len(rules))


def dispatch_by_rules(
    events: DataFrame,
    *,
    rules: Sequence[Rule],
    partitions: int,
    catalog: Catalog | None = None,
    flavour: Flavour = "new",
    case_sensitive: bool = False,
    default_topic: str = "default",
    protocol: str | None = None,
    sources: Mapping[tuple[str, str], Upstream] | None = None,
) -> DataFrame:
    """Add the topic and the partition that a changefeed with these rules chooses for every row change.

    The first rule that matches a table serves it; ``*.*`` by ``default`` is appended.

    Parameters
    ----------
    events
        The events contract, as for :func:`ticdc_lab.dispatch.dispatching.dispatch`. May be a stream.
    rules
        Rules in order, see :func:`rules_from_config`.
    partitions
        Number of partitions of every topic, N.
    catalog
        Table definitions over time; needed for rules with an index.
    flavour
        ``new`` or ``classic`` architecture.
    case_sensitive
        Whether matchers distinguish upper and lower case; TiCDC's default is not.
    default_topic
        Topic of the sink-uri, for rules without a topic expression.
    protocol
        Of the changefeed; avro allows fewer topic expressions.
    sources
        Where rules route tables: the table upstream of each name in the log
        (:func:`ticdc_lab.dispatch.routing.sources_of`). Matchers, hashes and topics use the name upstream.

    Returns
    -------
    DataFrame
        Events with ``target_partition``, ``dispatch_key`` and ``dispatch_error`` as ``dispatch`` adds them, and
        ``target_topic`` (string, null unless ``kind`` is ``row``).

    Raises
    ------
    DispatchError
        A matcher or a topic expression is malformed, or a rule cannot be applied to any row.
    """
    for rule in rules:
        check_topic(rule.topic, protocol=protocol, flavour=flavour)
    all_rules = [*rules, EVERYTHING]
    filters = [TableFilter.parse(r.matcher, case_sensitive=case_sensitive) for r in all_rules]
    upstream = {t: s.table or t for t, s in (sources or {}).items()}

    def of_table(schema: str, table: str) -> int:
        return first_rule(rules, *upstream.get((schema, table), (schema, table)), case_sensitive=case_sensitive)

    ways = _ways(all_rules, of_table, partitions=partitions, catalog=catalog, flavour=flavour)
    verdicts = [way.verdict for way in ways]
    out = ready_for(events, verdicts, catalog=catalog)
    questions = {way.answer: way.verdict.question for way in ways if way.verdict.question is not None}
    out = out if catalog is None else with_answers(out, catalog=catalog, questions=questions)
    out = _as_upstream(out, sources) if sources else out
    sail = is_sail(events.sparkSession)
    rule_of_row = _of_first([(matches_table(f, sail=sail), F.lit(i)) for i, f in enumerate(filters)])
    out = computed_once(out, {RULE: rule_of_row})
    if scratch := {name: c for way in ways for name, c in way.scratch.items()}:
        out = computed_once(out, scratch)
    if any(v.choice is not None for v in verdicts):
        out = with_hash(out, choice=_choice(ways), flavour=flavour)
    error = _case(ways, lambda v: v.error)
    out = decided(
        out,
        partition=_case(ways, lambda v: v.partition.cast("bigint")),
        key=_case(ways, lambda v: v.key),
        error=F.coalesce(F.col(_UNTOLD), error) if sources else error,
    )
    by_topic: dict[str, list[int]] = {}
    for i, r in enumerate(all_rules):
        by_topic.setdefault(r.topic, []).append(i)
    topics = [(_serves(*served), topic_column(t, default_topic=default_topic)) for t, served in by_topic.items()]
    out = out.withColumn("target_topic", F.when(F.col("kind") == "row", _of_first(topics)))
    if sources:
        out = out.withColumns({f"{n}_name": F.col(_WRITTEN)[n] for n in ("schema", "table")})
    return out.select(*events.columns, *ADDED, "target_topic")


@dataclass(frozen=True, slots=True)
class _Way:
    """How the rows of some rules are dispatched: all by columns, all by a named index, or all by one strategy.

    Many rules have few ways, so that placing costs what the rows cost. ``scratch`` are columns
    that differ between its rules; ``answer`` names the column with the catalog's answer.
    """

    rules: tuple[int, ...]
    verdict: Verdict
    answer: str
    scratch: Mapping[str, Column] = field(default_factory=dict)


def _ways(
    rules: Sequence[Rule], of_table: Callable[[str, str], int], *, partitions: int, catalog: Catalog | None,
    flavour: Flavour,
) -> list[_Way]:  # fmt: skip
    alike: dict[tuple[str, str], list[int]] = {}
    for i, rule in enumerate(rules):
        name = rule.partition.lower()
        strategy = "index-value" if name == "rowid" else name if name in STRATEGIES and name != "default" else "table"
        index = rule.index if strategy in ("index-value", "default-no-old-value") else ""
        several = "named" if index and strategy == "index-value" else index
        alike.setdefault((strategy, several), []).append(i)
    found = []
    for n, ((strategy, index), members) in enumerate(alike.items()):
        answer, first = f"_dispatch_answer_{n}", rules[members[0]]
        request = Request(partitions, first.index or None, first.columns, catalog, flavour, answer)
        scratch: Mapping[str, Column] = {}
        if strategy == "columns" and len(members) > 1:
            lists = {i: rules[i].columns for i in members}
            verdict, scratch = by_lists_of_columns(request, lists, of_table, chosen=F.col(RULE))
        elif index == "named" and len(members) > 1:
            indexes = {i: rules[i].index for i in members}
            verdict = by_named_indexes(request, indexes, of_table)
        else:
            verdict = strategy_of(strategy)(request)
        found.append(_Way(tuple(members), verdict, answer, scratch))
    return found


def _as_upstream(events: DataFrame, sources: Mapping[tuple[str, str], Upstream]) -> DataFrame:
    """Events with the names that tables have upstream; the messages' names in ``_WRITTEN``, or why one is unknown."""
    rows = [(*t, *(s.table or t), None if s.table else s.why) for t, s in sources.items() if s.table != t]
    of = "_schema string, _table string, _upstream_schema string, _upstream_table string, " + _UNTOLD + " string"
    known = F.broadcast(events.sparkSession.createDataFrame(rows, of))
    same = (F.col("schema_name") == F.col("_schema")) & (F.col("table_name") == F.col("_table"))
    out = events.join(known, same, "left").withColumn(
        _WRITTEN, F.struct(F.col("schema_name").alias("schema"), F.col("table_name").alias("table"))
    )
    names = {f"{n}_name": F.coalesce(f"_upstream_{n}", f"{n}_name") for n in ("schema", "table")}
    return out.withColumns(names).drop("_schema", "_table", "_upstream_schema", "_upstream_table")


def _case(ways: Sequence[_Way], pick: Callable[[Verdict], Column | None]) -> Column:
    """What ``pick`` gives for the verdict of the row's rule; null where it gives nothing."""
    picked = [(way, pick(way.verdict)) for way in ways]
    return _of_first([(_serves(*way.rules), c) for way, c in picked if c is not None])


def _serves(*rules: int) -> Column:
    return F.col(RULE) == rules[0] if len(rules) == 1 else F.col(RULE).isin(*rules)


def matches_table(tables: TableFilter, *, sail: bool) -> Column:
    """Whether the event's table matches, from ``schema_name`` and ``table_name``; ``sail``: to the embedded engine."""

    def hit(pattern: Pattern, name: str) -> Column:
        if pattern.text == "(?s)^.*$":
            return F.lit(True)
        if pattern.is_regex:
            text = pattern.text.replace(OF_ASCII, "(?-u:" if sail else "(?:")
            return F.col(name).rlike(text if tables.case_sensitive else f"(?iu){text}")  # u: of any letter, for Java
        return F.col(name) == pattern.text if tables.case_sensitive else F.lower(name) == pattern.text.lower()

    out = F.lit(False)
    for positive, schema, table in tables.rules:
        out = F.when(hit(schema, "schema_name") & hit(table, "table_name"), F.lit(positive)).otherwise(out)
    return out


def _of_first(cases: Sequence[tuple[Column, Column]]) -> Column:
    """What belongs to the first condition that holds.

    An engine that writes ``coalesce`` as CASE would have each of them twice in the one around it.
    """
    (condition, value), *others = cases
    found = F.when(condition, value)
    for condition, value in others:
        found = found.when(condition, value)
    return found


def _choice(ways: Sequence[_Way]) -> ColumnChoice:
    choices = [(way, way.verdict.choice) for way in ways]

    def found(slot: int) -> Column:
        has = [(w, c.positions[slot]) for w, c in choices if c is not None and slot < len(c.positions)]
        return _of_first([(_serves(*w.rules), position) for w, position in has])

    slots = max(len(c.positions) for _, c in choices if c is not None)
    return ColumnChoice(
        lambda flavour: _case(ways, lambda v: None if v.choice is None else v.choice.hashed(flavour)),
        tuple(found(i) for i in range(slots)),
    )


def choice_of_rules(what_if: WhatIf, rules: Sequence[Rule], *, case_sensitive: bool = False) -> dict[str, str]:
    """Table (``schema.table``) to the candidate that its first matching rule names, in any case.

    A name that TiCDC does not know means ``table``, as there.

    Raises DispatchError: tables that the what-if counts together are dispatched in different ways.
    """
    out = {}
    for entry in what_if.tables:
        tables = what_if.together.get(entry, [entry])
        names = {candidate_of(rule_of(rules, *t.split(".", 1), case_sensitive=case_sensitive)) for t in tables}
        if len(names) > 1:
            raise DispatchError(
                f"{entry} are counted together, but the rules dispatch them by {sorted(names)}.",
                hint="Build the what-if with a larger `max_tables`.",
            )
        name = names.pop()
        out[entry] = next((c for c in what_if.candidates_of(entry) if c.lower() == name.lower()), name)
    return out


def candidate_of(rule: Rule) -> str:
    """The name of a rule's dispatcher; ``table`` for one that TiCDC does not know."""
    strategy = rule.partition.lower() if rule.partition.lower() in STRATEGIES else "table"
    return candidate_name(strategy, index=rule.index or None, columns=rule.columns)

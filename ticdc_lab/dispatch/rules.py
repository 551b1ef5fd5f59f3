"""A changefeed's dispatch rules: which dispatcher and topic serve which table (TiCDC ``sink.dispatchers``)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from ticdc_lab.dispatch.candidates import candidate_name
from ticdc_lab.dispatch.definitions import with_answers
from ticdc_lab.dispatch.dispatching import ADDED, decided, ready_for
from ticdc_lab.dispatch.hashing import ColumnChoice, Flavour, with_hash
from ticdc_lab.dispatch.strategies import STRATEGIES, Request, Verdict, strategy_of
from ticdc_lab.dispatch.topics import TableFilter, check_topic, topic_column
from ticdc_lab.errors import DispatchError
from ticdc_lab.facts.catalog import Catalog

if TYPE_CHECKING:
    from ticdc_lab.dispatch.whatif import WhatIf

_RULE = "_dispatch_rule"


@dataclass(frozen=True, slots=True)
class Rule:
    """One rule: tables that match ``matcher`` are dispatched by ``partition``, a strategy's name.

    ``topic`` is a topic expression (:mod:`ticdc_lab.dispatch.topics`); empty for the default topic.
    """

    matcher: tuple[str, ...]
    partition: str = "default"
    index: str = ""
    columns: tuple[str, ...] = ()
    topic: str = ""


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
    >>> rules_from_config([{"matcher": ["shop.*"], "partition": "columns", "columns": ["user_id"]}])
    (Rule(matcher=('shop.*',), partition='columns', index='', columns=('user_id',), topic=''),)
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
    )


def topic_of(rules: Sequence[Rule], schema_name: str, table_name: str, *, case_sensitive: bool = False) -> str:
    """The topic expression of the rule that serves a table; empty for the default topic."""
    return rule_of(rules, schema_name, table_name, case_sensitive=case_sensitive).topic


def rule_of(rules: Sequence[Rule], schema_name: str, table_name: str, *, case_sensitive: bool = False) -> Rule:
    """The rule that serves a table: the first that matches, or :data:`EVERYTHING`."""
    for rule in rules:
        if TableFilter.parse(rule.matcher, case_sensitive=case_sensitive).matches(schema_name, table_name):
            return rule
    return EVERYTHING


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
        Whether matchers tell upper from lower case; TiCDC's default is not.
    default_topic
        Topic of the sink-uri, for rules without a topic expression.
    protocol
        Of the changefeed; avro allows fewer topic expressions.

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
    verdicts = [
        strategy_of(r.partition)(
            Request(partitions, r.index or None, r.columns, catalog, flavour, f"_dispatch_answer_{i}")
        )
        for i, r in enumerate(all_rules)
    ]
    out = ready_for(events, verdicts)
    questions = {f"_dispatch_answer_{i}": v.question for i, v in enumerate(verdicts) if v.question is not None}
    out = out if catalog is None else with_answers(out, catalog=catalog, questions=questions)
    out = out.withColumn(_RULE, _of_first([(f.column(), F.lit(i)) for i, f in enumerate(filters)]))
    if any(v.choice is not None for v in verdicts):
        out = with_hash(out, choice=_choice(verdicts), flavour=flavour)
    out = decided(
        out,
        partition=_case(verdicts, lambda v: v.partition.cast("bigint")),
        key=_case(verdicts, lambda v: v.key),
        error=_case(verdicts, lambda v: v.error),
    )
    topics = [(_serves(i), topic_column(r.topic, default_topic=default_topic)) for i, r in enumerate(all_rules)]
    out = out.withColumn("target_topic", F.when(F.col("kind") == "row", _of_first(topics)))
    return out.select(*events.columns, *ADDED, "target_topic")


def _case(verdicts: Sequence[Verdict], pick: Callable[[Verdict], Column | None]) -> Column:
    """What ``pick`` gives for the verdict of the row's rule; null where it gives nothing."""
    picked = [(i, pick(v)) for i, v in enumerate(verdicts)]
    return _of_first([(_serves(i), c) for i, c in picked if c is not None])


def _serves(rule: int) -> Column:
    return F.col(_RULE) == rule


def _of_first(cases: Sequence[tuple[Column, Column]]) -> Column:
    """What belongs to the first condition that holds.

    An engine that writes ``coalesce`` as CASE would have each of them twice in the one around it.
    """
    (condition, value), *others = cases
    found = F.when(condition, value)
    for condition, value in others:
        found = found.when(condition, value)
    return found


def _choice(verdicts: Sequence[Verdict]) -> ColumnChoice:
    choices = [v.choice for v in verdicts]

    def found(slot: int) -> Column:
        has = [(i, c.positions[slot]) for i, c in enumerate(choices) if c is not None and slot < len(c.positions)]
        return _of_first([(_serves(i), position) for i, position in has])

    slots = max(len(c.positions) for c in choices if c is not None)
    return ColumnChoice(
        lambda flavour: _case(verdicts, lambda v: None if v.choice is None else v.choice.hashed(flavour)),
        tuple(found(i) for i in range(slots)),
    )


def choice_of_rules(what_if: WhatIf, rules: Sequence[Rule], *, case_sensitive: bool = False) -> dict[str, str]:
    """Table (``schema.table``) to the candidate that its first matching rule names, in any case.

    A name that TiCDC does not know means ``table``, as there.

    Raises
    ------
    DispatchError
        Tables that the what-if counts together are dispatched in different ways.
    """
    out = {}
    for entry in what_if.tables:
        tables = what_if.together.get(entry, [entry])
        names = {_candidate(rule_of(rules, *t.split(".", 1), case_sensitive=case_sensitive)) for t in tables}
        if len(names) > 1:
            raise DispatchError(
                f"{entry} are counted together, but the rules dispatch them by {sorted(names)}.",
                hint="Build the what-if with a larger max_tables.",
            )
        name = names.pop()
        out[entry] = next((c for c in what_if.candidates_of(entry) if c.lower() == name.lower()), name)
    return out


def _candidate(rule: Rule) -> str:
    strategy = rule.partition.lower() if rule.partition.lower() in STRATEGIES else "table"
    return candidate_name(strategy, index=rule.index or None, columns=rule.columns)

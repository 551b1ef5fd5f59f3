"""A changefeed's dispatch rules: which dispatcher and topic serve which table (TiCDC ``sink.dispatchers``)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ticdc_lab.dispatch.names import STRATEGIES, candidate_name
from ticdc_lab.errors import DispatchError
from ticdc_lab.settings.matchers import TableFilter

if TYPE_CHECKING:
    from ticdc_lab.dispatch.whatif import WhatIf


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

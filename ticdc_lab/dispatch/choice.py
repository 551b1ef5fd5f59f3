"""A candidate for every table, from the dispatch rules of a changefeed."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from ticdc_lab.dispatch.candidates import candidate_name
from ticdc_lab.dispatch.rules import Rule, rule_of
from ticdc_lab.dispatch.strategies import STRATEGIES


def choice_of_rules(rules: Sequence[Rule], tables: Iterable[str], *, case_sensitive: bool = False) -> dict[str, str]:
    """Table (``schema.table``) to the candidate that its first matching rule names.

    A name that TiCDC does not know means ``table``, as there. Tables that a what-if counts together are left out.
    """
    named = [t for t in tables if not t.startswith("(")]
    return {t: _candidate(rule_of(rules, *t.split(".", 1), case_sensitive=case_sensitive)) for t in named}


def _candidate(rule: Rule) -> str:
    strategy = rule.partition.lower() if rule.partition.lower() in STRATEGIES else "table"
    return candidate_name(strategy, index=rule.index or None, columns=rule.columns)

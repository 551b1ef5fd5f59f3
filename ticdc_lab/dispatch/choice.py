"""A candidate for every table, from the dispatch rules of a changefeed."""

from __future__ import annotations

from collections.abc import Sequence

from ticdc_lab.dispatch.candidates import candidate_name
from ticdc_lab.dispatch.rules import Rule, rule_of
from ticdc_lab.dispatch.strategies import STRATEGIES
from ticdc_lab.dispatch.whatif import WhatIf
from ticdc_lab.errors import DispatchError


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

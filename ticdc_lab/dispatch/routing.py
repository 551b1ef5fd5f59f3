"""Table routing (TiCDC v8.5.7): messages carry a target's name; matchers, hashes and topics use the source's.

A rule with ``target-schema`` or ``target-table`` routes the tables that it matches. The messages show only
targets, and a partition depends on the source, so the source is worked out from the rules
(pingcap/ticdc ``pkg/routing``, ``downstreamadapter/sink/eventrouter``).
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

from ticdc_lab.dispatch.rules import Rule
from ticdc_lab.errors import DispatchError
from ticdc_lab.settings.matchers import TableFilter

Table = tuple[str, str]
"""Schema and name."""

_BRACES = re.compile(r"\{(schema|table)\}|([{}])")


@dataclass(frozen=True, slots=True)
class Upstream:
    """What a name in messages is."""

    table: Table | None  # the table upstream, by whose name TiCDC dispatches; None where several may be it
    why: str  # one sentence: how that is known, or why it is not


def check_target(rule: Rule) -> None:
    """Raise :class:`DispatchError` for a target that TiCDC refuses: only ``{schema}`` and ``{table}`` in braces."""
    for key, expression in (("target-schema", rule.target_schema), ("target-table", rule.target_table)):
        if any(found[2] for found in _BRACES.finditer(expression)):
            raise DispatchError(
                f"[CDC:ErrInvalidTableRoutingRule]invalid {key} {expression!r} of the rule for {[*rule.matcher]}",
                hint="Write only `{schema}` and `{table}` in braces.",
            )


def routes(rules: Sequence[Rule]) -> bool:
    """Whether any rule routes."""
    return any(r.target_schema or r.target_table for r in rules)


def target_of(rules: Sequence[Rule], table: Table, *, case_sensitive: bool = False) -> Table:
    """The name that messages of a table carry: by the first rule with a target that matches."""
    for rule in rules:
        routed = rule.target_schema or rule.target_table
        if routed and TableFilter.parse(rule.matcher, case_sensitive=case_sensitive).matches(*table):
            return _filled(rule.target_schema or "{schema}", table), _filled(rule.target_table or "{table}", table)
    return table


def _filled(expression: str, table: Table) -> str:
    return expression.replace("{schema}", table[0]).replace("{table}", table[1])


def sources_of(
    rules: Sequence[Rule], tables: Collection[Table], *, case_sensitive: bool = False
) -> Mapping[Table, Upstream]:
    """What the names in a log are: tables upstream, or targets of routing and of which table.

    ``rules``: of the changefeed. ``tables``: schema and name of each table as the log's messages have them.
    ``case_sensitive``: as of the changefeed.

    A log that was recorded before routing holds sources, one of this changefeed holds targets. A name that may be
    either is what the others of the log are; if all may be, they are targets, unless a source is among them too.
    """
    target = {t: target_of(rules, t, case_sensitive=case_sensitive) for t in tables}
    origins = {t: _origins(rules, t, case_sensitive) for t in tables}
    are_targets = any(target[t] == t and origins[t] for t in tables) or all(
        origins[t] and origins[t].isdisjoint(tables) for t in tables
    )
    are_sources = any(target[t] != t and not origins[t] for t in tables)

    def told(t: Table) -> Upstream:
        name = ".".join(t)
        if not origins[t]:
            to = f", which it routes to {'.'.join(target[t])}" if target[t] != t else ""
            return Upstream(t, f"{name} is a table upstream{to}.")
        if target[t] != t and are_sources and not are_targets:
            return Upstream(t, f"{name} is a table upstream, which it routes to {'.'.join(target[t])}.")
        if target[t] != t and not are_targets:
            also = ".".join(target[t])
            return Upstream(None, f"{name} may be a table upstream, routed to {also}, or the target of another.")
        if len(origins[t]) > 1:
            some = ", ".join(sorted(".".join(o) for o in origins[t]))
            return Upstream(None, f"{name} is the target of one of {some}.")
        (source,) = origins[t]
        if "" in source:
            return Upstream(None, f"{name} is a target; the rules name no single upstream table.")
        return Upstream(source, f"{name} is the target of {'.'.join(source)} upstream.")

    return {t: told(t) for t in sorted(tables)}


def _origins(rules: Sequence[Rule], table: Table, case_sensitive: bool) -> set[Table]:
    """Other tables that are routed to this one; an empty part is an unknown name."""
    found = set()
    for rule in rules:
        if not (rule.target_schema or rule.target_table):
            continue
        for source in _solved(rule, table):
            whole = "" not in source
            if source != table and (not whole or target_of(rules, source, case_sensitive=case_sensitive) == table):
                found.add(source)
    return found if all("" not in s for s in found) or len(found) == 1 else {s for s in found if "" not in s} or found


def _solved(rule: Rule, table: Table) -> Iterator[Table]:
    """Sources that the rule routes to this target; what its expressions leave out is in its matcher, if at all."""
    seen: dict[str, str] = {}
    pattern = r"\A"
    for expression in (rule.target_schema or "{schema}", rule.target_table or "{table}"):
        at = 0
        for part in _BRACES.finditer(expression):
            pattern += re.escape(expression[at : part.start()])
            pattern += f"(?P={part[1]})" if part[1] in seen else f"(?P<{part[1]}>.+)"
            seen[part[1]], at = part[1], part.end()
        pattern += re.escape(expression[at:]) + "\0"
    found = re.match(pattern + r"\Z", f"{table[0]}\0{table[1]}\0", re.DOTALL)
    if found is None:
        return
    known = found.groupdict()
    exact = [
        (schema.text, name.text)
        for keeps, schema, name in TableFilter.parse(rule.matcher).rules
        if keeps and not schema.is_regex and not name.is_regex
    ]
    named = {(known.get("schema", s), known.get("table", t)) for s, t in exact}
    if {"schema", "table"} <= set(known):
        yield (known["schema"], known["table"])
    elif exact:
        yield from sorted(named)
    else:
        some = TableFilter.parse(rule.matcher).rules
        schemas = {known.get("schema") or ("" if s.is_regex else s.text) for keeps, s, _ in some if keeps}
        names = {known.get("table") or ("" if t.is_regex else t.text) for keeps, _, t in some if keeps}
        yield from sorted((s, t) for s in schemas for t in names)

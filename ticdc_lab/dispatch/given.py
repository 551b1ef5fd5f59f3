"""The rules given for the tables of a log, in the form in which rules are tried on its rows."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ticdc_lab.dispatch.checks import unknown_dispatchers, unreached
from ticdc_lab.dispatch.definitions import HashedColumns, columns_answer, index_answer
from ticdc_lab.dispatch.names import STRATEGIES
from ticdc_lab.dispatch.routing import check_target, routes, sources_of
from ticdc_lab.dispatch.rules import Rule, rule_of, rules_from_config
from ticdc_lab.dispatch.topics import check_topic
from ticdc_lab.errors import DispatchError, UnreadMatcherError
from ticdc_lab.facts.catalog import Catalog
from ticdc_lab.facts.definitions import TableDef
from ticdc_lab.settings import Contradiction, Settings
from ticdc_lab.settings.matchers import TableFilter, parsed

Table = tuple[str, str]
COLUMN, AND, OF_NAME = "columns:", ",", "\x1e"
"""A rule over columns is their names behind the one, with the other between; behind the last, a rule has the crc of the
name that it hashes, where that is not the table's own."""


@dataclass(frozen=True, slots=True)
class GivenRules:
    """What the changefeed's file or an option names."""

    source: str  # in words; empty where nothing is given
    # The rule of each table: ``table``, ``index-value``, ``ts`` or ``columns:a,b``; a table is left out whose rule is
    # not computed from its rows.
    of_table: Mapping[Table, str]
    # Schema and name together, as TiCDC hashes them, of the tables that are routed under another name.
    upstream: Mapping[Table, str]
    partitions: int | None = None  # how many, where that is given
    # Of tables whose rule names an index: from which commit_ts on it means what; None if no DDL shows it.
    by_index: Mapping[Table, Sequence[tuple[int, HashedColumns | None]]] = field(default_factory=dict)
    # The same of tables whose rule lists columns, where TiCDC refuses them at some time.
    by_columns: Mapping[Table, Sequence[tuple[int, HashedColumns | None]]] = field(default_factory=dict)

    def hashed_name(self, schema: Any, table: Any) -> str:
        """What TiCDC hashes of a table's name."""
        return self.upstream.get((schema, table)) or f"{schema or ''}{table or ''}"

    def of_columns(self, schema: Any, table: Any, names: Collection[str]) -> str | None:
        """The rule of a table, with columns as the row names them; None where there is none, or a column is missing."""
        rule = self.of_table.get((schema, table))
        if rule is None or not rule.startswith(COLUMN):
            return rule
        times = Counter(name.lower() for name in rule.removeprefix(COLUMN).split(AND))
        own = [name for name in names if name.lower() in times]
        hashed = [name for name in own if times[name.lower()] % 2]  # a column that is listed twice cancels out
        return (COLUMN + AND.join(hashed) if hashed else "table") if len(own) == len(times) else None


NOTHING_GIVEN = GivenRules("", {}, {})


def refused(settings: Settings, *, of_storage: bool = False) -> list[Contradiction]:
    """What TiCDC refuses of the given dispatchers, filters and column selectors: of each list of rules the first.

    ``of_storage``: a storage sink takes of the dispatchers only those that route tables.
    """
    exact, protocol = bool(settings.value("case-sensitive", False)), settings.value("sink.protocol")

    def dispatchers(members: Sequence[Mapping[str, Any]]) -> None:
        for rule in rules_from_config(members):
            if not of_storage or routes([rule]):
                TableFilter.parse(rule.matcher, case_sensitive=exact)
                check_target(rule)
            if not of_storage:
                check_topic(rule.topic, protocol=protocol)

    def each(members: Sequence[Mapping[str, Any]]) -> None:
        for member in members:
            parsed(member, case_sensitive=exact)

    found = []
    for name, check in (
        (_DISPATCHERS, dispatchers), ("filter.rules", TableFilter.parse),
        ("filter.event-filters", each), ("sink.column-selectors", each),
    ):  # fmt: skip
        given = settings.given(name)
        if given is not None and isinstance(given.value, tuple):
            try:
                check(given.value)
            except DispatchError as error:
                whose = "it is not read here" if isinstance(error, UnreadMatcherError) else "TiCDC refuses it"
                found.append(Contradiction(given, seen=f"{whose}: {error.message.rstrip('.')}"))
    return found


def rules_in(settings: Settings) -> tuple[Rule, ...]:
    """The dispatchers that were given; none if TiCDC refuses one (:func:`refused`)."""
    given = settings.given(_DISPATCHERS)
    if given is None or not isinstance(given.value, tuple) or any(c.given is given for c in refused(settings)):
        return ()
    return rules_from_config(given.value)


_DISPATCHERS = "sink.dispatchers"


def given_rules(settings: Settings, tables: Collection[Table], catalog: Catalog) -> GivenRules:
    """The dispatchers that ``settings`` give for tables; of an index the columns that ``catalog`` has."""
    given, rules = settings.given(_DISPATCHERS), rules_in(settings)
    if given is None or not rules:
        return NOTHING_GIVEN
    exact = bool(settings.value("case-sensitive", False))
    names: dict[Table, Table] = {t: t for t in tables}
    if routes(rules):
        upstream = sources_of(rules, tables, case_sensitive=exact)
        names = {t: source for t, of in upstream.items() if (source := of.table) is not None}
    of_table = {t: rule_of(rules, *source, case_sensitive=exact) for t, source in names.items()}
    of = {t: _tried(rule, t, catalog) for t, rule in of_table.items()}
    if not settings.value("enable-old-value", True):  # then TiCDC looks at the unique columns of a table
        of = {t: None if of_table[t].partition.lower() == "default" else rule for t, rule in of.items()}
    listed = {t: _answers(rule, t, catalog) for t, rule in of_table.items() if _lists_columns(rule)}
    number = settings.given("sink.kafka-config.partition-num")
    return GivenRules(
        "the changefeed's file" if given.source == "file" else "the option",
        {t: rule for t, rule in of.items() if rule},
        {t: "".join(source) for t, source in names.items() if source != t},
        number.value if number is not None and isinstance(number.value, int) else None,
        {t: _answers(rule, t, catalog) for t, rule in of_table.items() if _names_an_index(rule)},
        {t: answers for t, answers in listed.items() if any(a is not None and a.error for _, a in answers)},
    )


def rule_notes(settings: Settings, tables: Collection[Table], *, of_storage: bool = False) -> list[str]:
    """Given dispatchers that TiCDC does not know, and rules that it never uses for ``tables``, a sentence each.

    ``of_storage``: a storage sink places no rows, so that only the unknown names are reported.
    """
    rules, exact = rules_in(settings), bool(settings.value("case-sensitive", False))
    unknown = unknown_dispatchers(rules, of_storage=of_storage)
    if of_storage:
        return unknown
    upstream = sources_of(rules, tables, case_sensitive=exact)
    used = {s.table or t for t, s in upstream.items()}
    return [*unknown, *unreached(rules, used, case_sensitive=exact)]


def _tried(rule: Rule, table: Table, catalog: Catalog) -> str | None:
    name = rule.partition.lower()
    if _names_an_index(rule):
        columns = {answer.columns for _, answer in _answers(rule, table, catalog) if answer and not answer.error}
        return COLUMN + AND.join(*columns) if len(columns) == 1 else None
    if name == "columns":
        return COLUMN + AND.join(rule.columns) if rule.columns else "table"
    if name in ("default", "table") or name not in STRATEGIES:
        return "table"
    return {"rowid": "index-value", "index-value": "index-value", "ts": "ts"}.get(name)


def _names_an_index(rule: Rule) -> bool:
    return bool(rule.index) and rule.partition.lower() in ("index-value", "rowid")


def _lists_columns(rule: Rule) -> bool:
    return bool(rule.columns) and rule.partition.lower() == "columns"


def _answers(rule: Rule, table: Table, catalog: Catalog) -> list[tuple[int, HashedColumns | None]]:
    """What TiCDC makes of a rule's index or columns, from each definition of a table on."""

    def answer(of: TableDef) -> HashedColumns:
        return columns_answer(of, rule.columns) if _lists_columns(rule) else index_answer(of, rule.index)

    versions = catalog.versions.get(table, ())
    return [(v.commit_ts or 0, None if v.definition is None else answer(v.definition)) for v in versions]

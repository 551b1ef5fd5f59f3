"""How TiCDC acts on rules that are not what they seem, and what it refuses when it knows the tables."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from ticdc_lab.dispatch.names import STRATEGIES
from ticdc_lab.dispatch.rules import Rule, first_rule, rule_of
from ticdc_lab.errors import DispatchError
from ticdc_lab.events.mysql_types import BINARIES, INTEGERS, base_of, digits_of
from ticdc_lab.facts.catalog import Catalog
from ticdc_lab.settings.keys import nearest
from ticdc_lab.settings.matchers import ColumnFilter, TableFilter
from ticdc_lab.words import some_of

Table = tuple[str, str]
_SHOWN = 5


@dataclass(frozen=True, slots=True)
class Selector:
    """A column selector: of tables that match ``matcher``, the columns that ``columns`` leave."""

    matcher: tuple[str, ...]
    columns: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class TableKeys:
    """What a selector must leave of a table."""

    columns: tuple[str, ...]  # names of all columns
    unique: tuple[tuple[str, ...], ...]  # columns of the primary key and of each unique index


def unknown_dispatchers(rules: Iterable[Rule], *, of_storage: bool = False) -> list[str]:
    """Name dispatchers that act as ``table``, one sentence each: TiCDC does not know the name, and writes a
    warning, or ``columns`` names no column.

    ``of_storage``: a storage sink asks no dispatcher.
    """
    said = []
    for rule in rules:
        if rule.partition.lower() not in STRATEGIES:
            near = nearest(rule.partition.lower(), STRATEGIES)
            does = f"it writes a warning and dispatches {_matcher(rule)} by table"
            said.append(
                f"TiCDC knows no dispatcher {rule.partition!r}{f' (the nearest is {near})' if near else ''}: "
                f"{'a storage sink has no partitions, so it has no effect' if of_storage else does}."
            )
        elif rule.partition.lower() == "columns" and not rule.columns and not of_storage:
            said.append(
                f"The dispatcher `columns` for {_matcher(rule)} names no column: TiCDC hashes schema and table alone, "
                "so each table has one partition, as by table."
            )
    return said


def unreached(rules: Sequence[Rule], tables: Collection[Table], *, case_sensitive: bool = False) -> list[str]:
    """Name rules that serve no table, one sentence each: nothing matches, or rules before them take all that does.

    The last sentence names tables that TiCDC's new architecture serves by another rule: there ``case-sensitive`` does
    not reach the sink. ``rules``: of the changefeed, in order. ``tables``: schema and name of the tables that there
    are. ``case_sensitive``: as of the changefeed.
    """
    said = []
    firsts = {t: first_rule(rules, *t, case_sensitive=case_sensitive) for t in sorted(tables)}
    for i, rule in enumerate(rules):
        mine = [t for t in firsts if _takes(rule.matcher, *t, case_sensitive)]
        if not mine:
            near = [n for m in rule.matcher if (n := nearest(m, [".".join(t) for t in tables]))]
            like = f" (the nearest is {near[0]})" if near else ""
            said.append(f"The rule for {_matcher(rule)} matches no table of the log{like}, so TiCDC never uses it.")
        elif all(firsts[t] < i for t in mine):
            some = ", ".join(".".join(t) for t in mine[:_SHOWN])
            by = " and ".join(_matcher(rules[b]) for b in sorted({firsts[t] for t in mine}))
            said.append(
                f"The rule for {_matcher(rule)} is never reached: the rule for {by} is before it and takes all "
                f"that it matches ({some}{', ..' if len(mine) > _SHOWN else ''})."
            )
    by_case = [".".join(t) for t, first in firsts.items() if case_sensitive and first_rule(rules, *t) != first]
    if by_case:
        said.append(
            f"With case-sensitive = true other rules serve {some_of(by_case, most=_SHOWN)} than without: this is how "
            "TiCDC's classic architecture dispatches. In the new one the setting does not reach the sink."
        )
    return said


def changed_key_texts(
    catalog: Catalog, tables: Collection[Table], rules: Sequence[Rule] = (), *, case_sensitive: bool = False
) -> list[str]:
    """Name each DDL that changes the text of a key or of a column that the table is dispatched by, one sentence each.

    A row is known by the text of its key, and TiCDC hashes it, so the same row has another key and another partition.

    ``catalog``: from the log's DDL. ``tables``: those with row changes. ``rules``, ``case_sensitive``: of the
    changefeed.
    """
    said = []
    for schema, table in sorted(tables):
        named = {c.lower() for c in rule_of(rules, schema, table, case_sensitive=case_sensitive).columns}
        for old, new in pairwise(catalog.versions.get((schema, table), ())):
            if old.definition is None or new.definition is None:
                continue
            keys = {c.lower() for c in old.definition.handle_columns}
            for column in old.definition.columns:
                later = new.definition.column(column.name)
                if later is None or column.name.lower() not in keys | named:
                    continue
                if _text_form(column.mysql_type) != _text_form(later.mysql_type):
                    key = "of the key" if column.name.lower() in keys else "that dispatches its rows"
                    said.append(
                        f"The DDL of commit_ts {new.commit_ts} changes the column {column.name} {key} of "
                        f"{schema}.{table} from {column.mysql_type} to {later.mysql_type}: its text differs "
                        "from there on. A row may move to another partition, and changes of it before and after are "
                        "not recognised as changes of one row if its key has another text."
                    )
    return said


def _text_form(mysql_type: str) -> tuple[object, ...]:
    """What decides the text of a value: types of one form print the same value alike."""
    base, digits = base_of(mysql_type), digits_of(mysql_type)
    if base in INTEGERS:
        return ("integer",)
    if base in ("decimal", "numeric"):
        return ("decimal", digits[1] if len(digits) > 1 else 0)
    if base in ("time", "datetime", "timestamp"):
        return (base, digits[0] if digits else 0)
    if base in ("binary", "enum", "set"):
        return (mysql_type,)
    if base in BINARIES:
        return ("bytes",)
    return ("text",) if base.endswith(("char", "text")) else (base,)


def check_selectors(
    selectors: Sequence[Selector],
    rules: Sequence[Rule],
    tables: Mapping[Table, TableKeys],
    *,
    case_sensitive: bool = False,
) -> None:
    """Raise :class:`DispatchError` where TiCDC refuses a selector: ``ErrColumnSelectorFailed``.

    A selector must leave the primary key or one unique index whole, and every column that the table is dispatched by.

    ``selectors``, ``rules``, ``case_sensitive``: of the changefeed. ``tables``: columns and unique indexes of each
    table by schema and name.
    """
    for (schema, table), keys in sorted(tables.items()):
        rule = rule_of(rules, schema, table, case_sensitive=case_sensitive)
        by = rule.columns if rule.partition.lower() == "columns" else ()
        for selector in selectors:
            if not _takes(selector.matcher, schema, table, case_sensitive):
                continue
            keeps = ColumnFilter.parse(selector.columns)
            left = {c.lower() for c in keys.columns if keeps.matches(c)}
            lost = [c for c in keys.columns if c.lower() not in left and c.lower() in {b.lower() for b in by}]
            if lost:
                raise DispatchError(
                    f"[CDC:ErrColumnSelectorFailed]the filtered out column is used in the column dispatcher, table: "
                    f"{schema}.{table}, column: {lost[0]}",
                    hint=f"Keep {lost[0]} in the column selector for {_matcher(selector)}.",
                )
            if not any({c.lower() for c in of_index} <= left for of_index in keys.unique):
                raise DispatchError(
                    "[CDC:ErrColumnSelectorFailed]no primary key columns or unique key columns obtained after filter "
                    f"out, table: {schema}.{table}",
                    hint=f"Keep a whole key in the column selector for {_matcher(selector)}.",
                )


def _takes(matcher: Sequence[str], schema: str, table: str, case_sensitive: bool) -> bool:
    return TableFilter.parse(matcher, case_sensitive=case_sensitive).matches(schema, table)


def _matcher(of: Rule | Selector) -> str:
    return " ".join(of.matcher)

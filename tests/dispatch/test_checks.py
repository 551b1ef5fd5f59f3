"""What TiCDC does with rules that are not what they seem, and what it refuses: reported, and refused, as it does."""

from __future__ import annotations

import pytest

from ticdc_lab.dispatch.changefeed import Changefeed, changefeed_from_toml
from ticdc_lab.dispatch.checks import (
    Selector,
    TableKeys,
    changed_key_texts,
    check_selectors,
    unknown_dispatchers,
    unreached,
)
from ticdc_lab.dispatch.rules import Rule
from ticdc_lab.errors import DispatchError
from ticdc_lab.facts.catalog import Catalog
from ticdc_lab.settings.matchers import ColumnFilter

ORDERS = ("shop", "orders")
TABLES = [ORDERS, ("shop", "users"), ("shop", "audit")]
KEYS = {ORDERS: TableKeys(("id", "user_id", "code", "a"), (("id",), ("user_id", "code")))}


def test_an_unknown_dispatcher_is_table_and_said() -> None:
    """TiCDC writes a warning; names count in any case, and ``rowid`` is an old name."""
    rules = [Rule(("a.*",), p) for p in ("indexvalue", "INDEX-VALUE", "rowid", "ts")]
    rules += [Rule(("a.*",), "columns", columns=("b",)), Rule(("c.*",), "Columns")]
    said, nameless = unknown_dispatchers(rules)
    assert nameless.startswith("The dispatcher `columns` for c.* names no column: TiCDC hashes schema and table alone")
    assert said.startswith("TiCDC knows no dispatcher 'indexvalue' (the nearest is index-value)")
    assert said.endswith("it writes a warning and dispatches a.* by table.")
    feed = changefeed_from_toml("[sink]\ndispatchers = [{matcher = ['*.*'], partition = 'indexvalue'}]")
    assert [n.partition(":")[0] for n in feed.notes] == [said.partition(":")[0]]


def test_a_rule_that_matches_nothing_and_one_behind_another_are_said() -> None:
    """Only where all that it matches is taken; by which rule, and which name is most like it."""
    rules = [Rule(("shop.o*",)), Rule(("shop.orders", "shop.ord?rs")), Rule(("shpo.users",)), Rule(("shop.*",)),
             Rule(("SHOP.audit",))]  # fmt: skip
    behind, nothing, last = unreached(rules, TABLES)
    assert "The rule for shop.orders shop.ord?rs is never reached: the rule for shop.o* is before it" in behind
    assert behind.endswith("(shop.orders).")
    assert "The rule for shpo.users matches no table of the log (the nearest is shop.users)" in nothing
    assert "SHOP.audit is never reached: the rule for shop.* is before" in last
    assert [s.split()[3] for s in unreached(rules, TABLES, case_sensitive=True)][-1] == "SHOP.audit"
    assert "matches no table" in unreached(rules, TABLES, case_sensitive=True)[-1]
    assert not unreached([Rule(("shop.o*",)), Rule(("shop.*",))], TABLES)


def test_tables_that_only_case_gives_another_rule_are_named() -> None:
    """TiCDC's classic router asks ``case-sensitive``; the new one does not get it, and folds every name."""
    rules = [Rule(("SHOP.orders",), "ts"), Rule(("*.*",), "table")]
    (_, said) = unreached(rules, TABLES, case_sensitive=True)
    assert said.startswith("With case-sensitive = true other rules serve shop.orders than without")
    assert len(unreached(rules, TABLES)) == 0


@pytest.mark.parametrize(
    ("columns", "refused"),
    [
        (["*"], None),
        (["*", "!id"], None),
        (["*", "!user_id"], None),
        (["*", "!USER_ID", "!id"], "no primary key columns or unique key columns"),
        (["a"], "no primary key columns or unique key columns"),
        (["i?", "a"], None),
        (["*", "!*", "code", "user_id"], None),
    ],
)
def test_a_selector_must_leave_a_whole_key(columns: list[str], refused: str | None) -> None:
    """The primary key or one unique index, in any case; as ``ErrColumnSelectorFailed``."""
    selectors = [Selector(("shop.*",), tuple(columns))]
    if refused is None:
        check_selectors(selectors, (), KEYS)
    else:
        with pytest.raises(DispatchError, match=rf"ErrColumnSelectorFailed\].*{refused}"):
            check_selectors(selectors, (), KEYS)


def test_a_selector_must_leave_what_rows_are_dispatched_by() -> None:
    """Of the rule that serves the table; another rule's columns do not count, and another table's selector neither."""
    selectors = [Selector(("shop.orders",), ("*", "!a"))]
    by_a = Rule(("shop.*",), "columns", columns=("A",))
    with pytest.raises(DispatchError, match=r"used in the column dispatcher, table: shop\.orders, column: a"):
        check_selectors(selectors, [by_a], KEYS)
    check_selectors(selectors, [Rule(("shop.orders",)), by_a], KEYS)
    check_selectors([Selector(("shop.users",), ("a",))], [by_a], KEYS)


def test_a_column_pattern_that_is_malformed_is_refused() -> None:
    """As TiDB's column filter does."""
    for bad in ("a.b", "[", "a-b"):
        with pytest.raises(DispatchError):
            ColumnFilter.parse([bad])


@pytest.mark.parametrize("uri", ["s3://bucket/prefix?protocol=csv", "file:///tmp/x?protocol=canal-json"])
def test_a_storage_sink_has_no_partitions(uri: str) -> None:
    """The file is read; who asks for partitions is refused. csv is a protocol of storage sinks alone."""
    for feed in (changefeed_from_toml("", sink_uri=uri), changefeed_from_toml("[sink]\nprotocol = 'csv'")):
        with pytest.raises(DispatchError, match="storage sink, which has no partitions"):
            feed.require_partitions()
    kafka = changefeed_from_toml("[sink]\nprotocol='canal-json'", sink_uri="kafka://h/t?partition-num=3")
    assert kafka.require_partitions().partitions == 3


def test_routing_and_selectors_survive_a_round_trip() -> None:
    """What is written reads the same."""
    rule = Rule(("a.*",), "index-value", target_schema="b", target_table="{table}_v2")
    feed = Changefeed((rule,), selectors=(Selector(("a.*",), ("*", "!x")),))
    assert changefeed_from_toml(feed.to_toml()) == feed


@pytest.mark.parametrize(("before", "after", "is_said"), [
    ("decimal(10,2)", "decimal(10,3)", True), ("decimal(10,2)", "decimal(20,2)", False), ("int", "bigint", False),
    ("datetime", "datetime(3)", True), ("date", "datetime", True), ("varchar(9)", "text", False), ("int", "char", True),
    ("binary(4)", "binary(8)", True), ("enum('a','b')", "enum('b','a')", True), ("float", "double", True),
])  # fmt: skip
def test_a_key_whose_text_a_ddl_changes_is_said(before: str, after: str, is_said: bool) -> None:
    """Such a row has another key and another partition; so has one of a column that the table is dispatched by."""
    ddl = [
        (1, "s", "t", f"CREATE TABLE t (k {before} PRIMARY KEY, v {before}, w {before})"),
        (5, "s", "t", f"ALTER TABLE t MODIFY COLUMN k {after}, MODIFY COLUMN v {after}, MODIFY COLUMN w {after}"),
    ]
    catalog, rules = Catalog.from_ddl(ddl), [Rule(("s.*",), "columns", columns=("V",))]
    said = changed_key_texts(catalog, [("s", "t")], rules)
    named = [
        f"The DDL of commit_ts 5 changes the column {c} of s.t" for c in ("k of the key", "v that dispatches its rows")
    ]
    assert [s.partition(" from ")[0] for s in said] == (named if is_said else [])
    assert len(changed_key_texts(catalog, [("s", "t")])) == int(is_said) and not changed_key_texts(catalog, [])

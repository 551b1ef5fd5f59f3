"""A changefeed's rules on the golden topics, and the matchers."""

from __future__ import annotations

import json
from typing import Any

import pytest
from conftest import events_frame, golden
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from ticdc_lab.dispatch.dispatching import dispatch_by_rules
from ticdc_lab.dispatch.given import refused
from ticdc_lab.dispatch.rules import Rule, rules_from_config
from ticdc_lab.errors import DispatchError, UnreadMatcherError
from ticdc_lab.settings.matchers import TableFilter
from ticdc_lab.settings.setting import Setting, Settings

ROW = {"kind": "row", "commit_ts": 7, "op": "insert", "schema_name": "Shop", "table_name": "t"}
COMPLETE = [
    "messages_open-protocol_small",
    "messages_canal-json-tidb_small",
    "messages_open-protocol_bank",
    "messages_canal-json-tidb_bank",
    "messages_open-protocol-updatedonly-batch1_small",
    *(f"messages_{p}_small-dup-{d}" for p in ("open-protocol", "canal-json-tidb") for d in ("restart", "table", "ddl")),
]
KEYS_ONLY = ["messages_open-protocol-deletehk_small", "messages_canal-json-tidb-updatedonly-deletehk_small"]


def config_of(name: str) -> tuple[tuple[Rule, ...], int]:
    """The rules and the number of partitions a golden topic was made with."""
    config = json.loads(golden("config_bank.json" if "bank" in name else "config_small.json").read_text())
    found = next(c for c in config if c["file"].removesuffix(".gz").removesuffix(".jsonl") == name)
    return rules_from_config(found["dispatch_rules"]), found["partitions"]


def outcome(events_of: Any, name: str) -> list[tuple[str, str, str | None, int]]:
    """Table, op, error and how many rows, for every row that is not dispatched as it was recorded."""
    rules, partitions = config_of(name)
    rows = (
        events_of(f"{name}.jsonl.gz")
        .transform(dispatch_by_rules, rules=rules, partitions=partitions)
        .where((F.col("kind") == "row") & ~F.col("target_partition").eqNullSafe(F.col("partition")))
        .groupBy("table_name", "op", "dispatch_error")
        .count()
        .collect()
    )
    return sorted(tuple(r) for r in rows)


@pytest.mark.parametrize("name", COMPLETE)
def test_golden_topics_are_dispatched_as_they_were_recorded(events_of: Any, name: str) -> None:
    """The rules of the config file send every row of a topic, repeats too, to the partition it was recorded in."""
    assert outcome(events_of, name) == []


@pytest.mark.parametrize("name", KEYS_ONLY)
def test_rows_without_their_dispatch_columns_are_named_not_guessed(events_of: Any, name: str) -> None:
    """Deletes that carry only their key go nowhere where the rule reads another column; all others are as recorded."""
    found = outcome(events_of, name)
    assert {(table, op) for table, op, _, _ in found} == {("users", "delete"), ("Customers", "delete")}
    assert all(error == "the log carries only part of this row, without all of the dispatch columns: name"
               for _, _, error, _ in found)  # fmt: skip


def test_a_wrong_rule_is_seen(events_of: Any) -> None:
    """The comparison fails where the rules are not the ones of the topic."""
    rows = (
        events_of("messages_open-protocol_small.jsonl.gz")
        .transform(dispatch_by_rules, rules=[Rule(("shop.orders",), "index-value")], partitions=4)
        .where((F.col("kind") == "row") & (F.col("target_partition") != F.col("partition")))
    )
    assert {"orders", "parted", "Ledger"} <= {r.table_name for r in rows.select("table_name").distinct().collect()}


def test_the_first_matching_rule_wins_and_default_covers_the_rest(spark: SparkSession) -> None:
    """Rules are tried in order, in any case; a table that none matches is dispatched by table."""
    events = events_frame(spark, [ROW, ROW | {"table_name": "other"}, {"kind": "watermark", "commit_ts": 9}])
    rules = [Rule(("shop.T",), "ts"), Rule(("shop.t",), "table")]
    rows = events.transform(dispatch_by_rules, rules=rules, partitions=4).orderBy("kind", "table_name").collect()
    assert [r.dispatch_key for r in rows] == ["Shop.other", "7", None]
    strict = events.transform(dispatch_by_rules, rules=rules, partitions=4, case_sensitive=True)
    assert {r.dispatch_key for r in strict.collect()} == {"Shop.other", "Shop.t", None}


@pytest.mark.parametrize(
    ("matcher", "yes", "no"),
    [
        (["*.*"], [("a", "b")], []),
        (["db.*"], [("DB", "x")], [("db1", "x")]),
        (["*.*", "!db.t?"], [("db", "t"), ("db", "t12")], [("db", "t1")]),
        (["*.*", "!db.*", "db.keep"], [("db", "keep"), ("x", "y")], [("db", "t")]),
        (["db[0-9].t[!a-c]"], [("db7", "td")], [("dbx", "td"), ("db7", "tb")]),
        (["x.[^a]"], [("x", "^"), ("x", "a")], [("x", "b")]),
        (["x.[&[]"], [("x", "&"), ("x", "[")], [("x", "z")]),
        (["/^db\\d+$/.*"], [("db12", "t")], [("db", "t"), ("xdb1", "t")]),
        (['`a.b`."c ""d"""'], [("a.b", 'c "d"')], [("a", "b")]),
        (["a\\.b.c"], [("a.b", "c")], [("axb", "c")]),
        (["表?.*"], [("表1", "t")], [("表", "t")]),
        (["# note", " \t", "x.y "], [("x", "y")], [("y", "y")]),
        (["É*.t"], [("é1", "t")], [("e", "t")]),
        (["a$*.t$"], [], [("a$", "t$"), ("a$b", "t$")]),
        ([".t", "a$.t$"], [("", "t"), ("a$", "t$")], [("a", "t")]),
        (["x.[--a]", "x.[a~~b]"], [("x", "5"), ("x", "~")], [("x", "{")]),
        ([], [], [("x", "y")]),
    ],
)
def test_matchers_follow_tidb(matcher: list[str], yes: list[tuple[str, str]], no: list[tuple[str, str]]) -> None:
    """Wildcards, classes, expressions, quotes and exclusion mean what they do in TiDB."""
    table_filter = TableFilter.parse(matcher)
    assert [table_filter.matches(*t) for t in yes + no] == [True] * len(yes) + [False] * len(no)


def test_rules_without_a_topic_or_of_an_unknown_architecture_are_refused(spark: SparkSession) -> None:
    """As :func:`dispatch` refuses them: a remainder by 0 is no partition."""
    events = events_frame(spark, [{"kind": "row", "schema_name": "s", "table_name": "t", "op": "insert"}])
    for wrong in ({"partitions": 0}, {"partitions": 2**31}, {"partitions": 2, "flavour": "old"}):
        with pytest.raises(DispatchError):
            dispatch_by_rules(events, rules=[Rule(("*.*",))], **wrong)


def test_case_sensitive_matchers() -> None:
    """With case_sensitive a pattern matches only its own case."""
    table_filter = TableFilter.parse(["Db.T*"], case_sensitive=True)
    assert (table_filter.matches("Db", "T1"), table_filter.matches("db", "T1")) == (True, False)


@pytest.mark.parametrize(
    "matcher",
    [
        "db",
        "db.",
        "a.b.c",
        "a%b.c",
        "a\\tb.c",
        "[].*",
        "[!].*",
        "[.*",
        "/db.*",
        "`db.*",
        "/a(/.*",
        "@f",
        "/a(?!b)/.c",
        "db\\",
    ],
)
def test_malformed_matchers_are_refused(matcher: str) -> None:
    """A matcher TiCDC would refuse is an error that shows it."""
    with pytest.raises(DispatchError, match="matcher"):
        TableFilter.parse([matcher])


GOS = [
    (r"^a\(?=b$", "a(=b", "a"), (r"^[(?=]+$", "(=", "a"), (r"^[[:alpha:]_]+$", "a_b", "a1"), (r"^a\z", "a", "ab"),
    (r"^[^[:digit:]]$", "a", "1"), (r"^\w+$", "a1", "é"), (r"^(?<n>a){2}$", "aa", "a"), (r"^a{,2}$", "a{,2}", "aa"),
    (r"^[]a]$", "]", "b"), (r"^[a&&b]$", "&", "c"), (r"(?i)^é$", "É", "E"), (r"^\x{61}$", "a", "b"),
    (r"^*a$?$", "a", "b"), (r"^a\b", "a-", "ab"), (r"^(?P<n>a)(?<n>b)(?P<1>c)$", "abc", "ab"),
    (r"\Aa\v?$", "a\v", "ba"), (r"^\<\_$", "<_", "_"),
]  # fmt: skip
"""Go's regular expressions, a name that each takes and one that it does not, as Go 1.26's ``regexp`` reported."""


@pytest.mark.parametrize(("regex", "taken", "left"), GOS)
def test_regular_expressions_are_gos(regex: str, taken: str, left: str) -> None:
    """TiCDC takes the rule, so it is not called refused, and takes the same tables."""
    found = TableFilter.parse([f"/{regex}/.t"], case_sensitive=True)
    assert found.matches(taken, "t") and not found.matches(left, "t")


NOT_GOS = (
    r"\u0061 \x{110000} \x{} \é (?P<é>a) a(?=b) a\\(?!b) (a)\1 (?>a) a++ a\Z a{1001} [[:foo:]] a** [\z] (?#a) (?P=n) \h"
)


@pytest.mark.parametrize("regex", NOT_GOS.split())
def test_what_go_has_not_is_refused(regex: str) -> None:
    """As TiCDC refuses it, which the error shows."""
    with pytest.raises(DispatchError) as said:
        TableFilter.parse([f"/{regex}/.t"])
    assert not isinstance(said.value, UnreadMatcherError)


@pytest.mark.parametrize(
    "matcher",
    [
        r"/(?m)a\z/.*",
        r"/\12/.*",
        r"/\pL+/.*",
        r"/a(?i)b/.*",
        r"/(?U)a+/.*",
        r"/\Qa.b\E/.*",
        r"/[^\D]/.*",
        "@tables.txt",
    ],
)
def test_what_only_go_reads_is_called_unread(matcher: str) -> None:
    """It is no fault of the changefeed's."""
    given = Setting("filter.rules", (matcher,), "file", evidence="file c.toml")
    [said] = refused(Settings((given,)))
    assert "it is not read here: " in said.words and "refuses" not in said.words

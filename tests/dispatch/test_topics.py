"""Topic expressions as TiCDC has them, in Python and in Spark, and tables that meet in one topic."""

from __future__ import annotations

import pytest
from conftest import events_frame
from pyspark.sql import SparkSession

from ticdc_lab.dispatch.dispatching import dispatch_by_rules
from ticdc_lab.dispatch.rules import Rule
from ticdc_lab.dispatch.topics import check_topic, shared_topics, topic_balance, topic_name
from ticdc_lab.errors import DispatchError

NAMES = [
    ("", "shop", "orders", "main"),
    ("fixed.name-1", "shop", "orders", "fixed.name-1"),
    ("{schema}", "shop", "orders", "shop"),
    ("cdc_{schema}_{table}.v1", "Shop", "orders", "cdc_Shop_orders.v1"),
    ("{schema}_{table}", "a b", "你好", "a_b___"),
    ("{schema}_{table}", "x", "a😀$", "x_a__"),
    ("{schema}", ".", "t", "_"),
    ("{schema}{table}", ".", ".", "__"),
    ("{schema}", "{table}", "t", "_table_"),
    ("{table}", "s", "t" * 300, "t" * 249),
]


def test_names_are_ticdcs() -> None:
    """Forbidden characters become one underscore each, dots alone are no name, and long names are cut."""
    assert [topic_name(e, s, t, default_topic="main") for e, s, t, _ in NAMES] == [n for *_, n in NAMES]


@pytest.mark.parametrize(
    "expression", ["{sch}", "a b", "你好{schema}", "{schema}}", "{{schema}", "{schema", "%{table}"]
)
def test_malformed_expressions_are_refused(expression: str) -> None:
    """What TiCDC refuses is refused with its error, in both architectures."""
    for flavour in ("new", "classic"):
        with pytest.raises(DispatchError, match="CDC:ErrKafkaTopicExprInvalid"):
            check_topic(expression, flavour=flavour)


def test_avro_and_the_classic_architecture_allow_less() -> None:
    """Avro needs both parts; a plain name serves avro only in the new one; the classic one has a fixed order."""
    check_topic("{table}_{schema}")
    check_topic("plain", protocol="avro")
    check_topic("{schema}_{table}", protocol="avro", flavour="classic")
    for expression, protocol, flavour in (
        ("{table}", "avro", "new"),
        ("{table}{schema}", None, "classic"),
        ("plain", "avro", "classic"),
    ):
        with pytest.raises(DispatchError, match="ErrKafkaTopicExprInvalid"):
            check_topic(expression, protocol=protocol, flavour=flavour)  # type: ignore[arg-type]
    with pytest.raises(DispatchError, match="newest TiCDC"):
        check_topic("{column:id}")


def test_tables_that_meet_by_replaced_characters_are_named() -> None:
    """A planted meeting is found; tables that an expression does not distinguish are meant to meet."""
    tables = [("s", "a b"), ("s", "a_b"), ("s_a", "b"), ("s", "c")]
    both = ["{schema}_{table}"] * 4
    assert shared_topics(tables, both) == {"s_a_b": ["s.a b", "s.a_b", "s_a.b"]}
    assert shared_topics(tables, ["{schema}"] * 4) == {}
    assert shared_topics(tables, ["", "all", "all", ""]) == {}


def test_rows_have_a_topic_and_topics_their_balance(spark: SparkSession) -> None:
    """The first matching rule gives the topic; each topic is measured by itself, and other events have none."""
    row = {"kind": "row", "schema_name": "s", "op": "insert", "topic": "old"}
    events = events_frame(
        spark,
        [row | {"table_name": t, "commit_ts": ts} for t, ts in (("a", 0), ("a", 1), ("a", 4), ("b", 0), ("c", 3))]
        + [{"kind": "watermark", "commit_ts": 9}],
    )
    rules = [Rule(("s.a",), "ts", topic="{schema}.{table}"), Rule(("s.b",), topic="x")]
    out = events.transform(dispatch_by_rules, rules=rules, partitions=4, default_topic="main")
    assert {(r.table_name, r.target_topic) for r in out.collect()} == {
        ("a", "s.a"),
        ("b", "x"),
        ("c", "main"),
        (None, None),
    }
    found = {r.target_topic: r for r in out.transform(topic_balance, partitions=4).collect()}
    assert (found["s.a"].rows, found["s.a"].idle, found["s.a"].max_over_mean) == (3, 2, pytest.approx(8 / 3))
    assert (found["main"].tables, found["main"].share) == (1, 0.2)

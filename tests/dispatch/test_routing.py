"""Table routing: messages carry targets, and TiCDC dispatches by the names upstream."""

from __future__ import annotations

import base64
import json
from pathlib import Path

import pytest
from conftest import events_frame, golden, json_lines
from pyspark.sql import SparkSession

import ticdc_lab
from ticdc_lab.dispatch.changefeed import changefeed_from_toml
from ticdc_lab.dispatch.dispatching import dispatch, dispatch_by_rules
from ticdc_lab.dispatch.routing import sources_of, target_of
from ticdc_lab.dispatch.rules import Rule
from ticdc_lab.dispatch.settings import dispatched
from ticdc_lab.errors import DispatchError

CELL = {"mysql_type": "int", "flags": None}


def routed(matcher: str, schema: str = "", table: str = "", **more: object) -> Rule:
    """A rule with a target."""
    return Rule((matcher,), target_schema=schema, target_table=table, **more)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("rule", "source", "target"),
    [
        (routed("shop.*", "dw"), ("shop", "orders"), ("dw", "orders")),
        (routed("shop.*", "", "{schema}_{table}"), ("shop", "orders"), ("shop", "shop_orders")),
        (routed("*.*", "dw_{schema}", "{table}_v2"), ("shop", "orders"), ("dw_shop", "orders_v2")),
        (routed("shop.orders", "dw", "facts"), ("shop", "orders"), ("dw", "facts")),
        (routed("shop.o*", "dw", "{schema}_{table}_{schema}"), ("shop", "orders"), ("dw", "shop_orders_shop")),
    ],
)
def test_a_target_leads_back_to_its_table(rule: Rule, source: tuple[str, str], target: tuple[str, str]) -> None:
    """By the expressions, or by a matcher that names one table."""
    assert target_of([rule], source) == target
    assert sources_of([rule], [target])[target].table == source
    assert sources_of([rule], [source])[source].table == source, "a log from before routing holds the table itself"


def test_the_first_rule_with_a_target_routes() -> None:
    """Rules without one are passed over, as in TiCDC's router."""
    rules = [Rule(("shop.*",), "ts"), routed("shop.orders", "a"), routed("shop.*", "b")]
    assert target_of(rules, ("shop", "orders")) == ("a", "orders")
    assert target_of(rules, ("shop", "users")) == ("b", "users")
    assert sources_of(rules, [("b", "orders")])[("b", "orders")].table == ("b", "orders"), "nothing is routed there"


def test_a_target_of_several_tables_is_said() -> None:
    """Which of them a row is of cannot be determined, so its partition cannot."""
    rules = [routed("a.t", "x"), routed("b.t", "x")]
    found = sources_of(rules, [("x", "t")])[("x", "t")]
    assert found.table is None and found.why == "x.t is the target of one of a.t, b.t."
    wild = sources_of([routed("*.orders", "dw")], [("dw", "orders")])[("dw", "orders")]
    assert wild.table is None and "name no single upstream table" in wild.why


def test_names_that_may_be_both_are_what_the_others_are() -> None:
    """Rules that swap two schemas: a log with a third table shows which side of routing it is from."""
    rules = [routed("a.*", "b"), routed("b.*", "a"), routed("c.*", "d")]
    both = ("a", "t")
    assert sources_of(rules, [both, ("b", "t")])[both].table is None
    assert sources_of(rules, [both, ("b", "t"), ("d", "t")])[both].table == ("b", "t")
    assert sources_of(rules, [both, ("b", "t"), ("c", "t")])[both].table == both


def test_malformed_targets_are_refused() -> None:
    """Only ``{schema}`` and ``{table}``."""
    for bad in ("{db}", "{", "x}"):
        text = f"[sink]\ndispatchers = [{{matcher = ['*.*'], target-schema = '{bad}'}}]"
        with pytest.raises(DispatchError, match="ErrInvalidTableRoutingRule"):
            changefeed_from_toml(text)


def rows(schema: str, table: str, n: int = 40) -> list[dict[str, object]]:
    """Inserts with a key and two columns."""

    def cell(name: str, value: object, key: bool = False) -> dict[str, object]:
        return {"name": name, "value": str(value), "is_key": key, **CELL}

    return [
        {"kind": "row", "op": "insert", "commit_ts": i, "schema_name": schema, "table_name": table, "partition": 0,
         "columns": [cell("id", i, True), cell("a", i % 7), cell("b", i // 3)]}
        for i in range(n)
    ]  # fmt: skip


def placed(frame: object) -> list[tuple[object, ...]]:
    """Where each row goes, and under which name."""
    named = frame.select("commit_ts", "schema_name", "table_name", "target_partition", "dispatch_key")  # type: ignore[attr-defined]
    return sorted(tuple(r.values()) for r in named.toArrow().to_pylist())


@pytest.mark.parametrize("partition", ["table", "index-value", "columns"])
def test_partitions_of_a_routed_log_are_those_of_the_names_upstream(spark: SparkSession, partition: str) -> None:
    """Hash and matcher use shop.orders; the events keep the name that their messages carry."""
    columns = ', columns = ["a"]' if partition == "columns" else ""
    feed = changefeed_from_toml(
        f"[sink]\ndispatchers = [{{matcher = ['shop.*'], partition = '{partition}'{columns}, target-schema = 'dw', "
        "target-table = '{table}_v2'}]"
    )
    more = {"columns": ["a"]} if partition == "columns" else {}
    truth = dispatch(events_frame(spark, rows("shop", "orders")), strategy=partition, partitions=7, **more)
    mine = dispatched(events_frame(spark, rows("dw", "orders_v2")), changefeed=feed, partitions=7)
    expected = [(ts, "dw", "orders_v2", p, key) for ts, _, _, p, key in placed(truth)]
    assert placed(mine) == expected
    wrong = dispatched(events_frame(spark, rows("dw", "orders_v3")), changefeed=feed, partitions=7)
    assert placed(wrong) != [(ts, "dw", "orders_v3", p, key) for ts, _, _, p, key in placed(truth)]


def test_a_row_whose_table_upstream_nothing_tells_has_no_partition(spark: SparkSession) -> None:
    """With the reason."""
    feed = changefeed_from_toml("[sink]\ndispatchers = [{matcher = ['*.*'], target-schema = 'dw'}]")
    found = dispatched(events_frame(spark, rows("dw", "orders", 3)), changefeed=feed, partitions=4)
    told = found.select("target_partition", "dispatch_error").toArrow().to_pylist()
    assert {r["target_partition"] for r in told} == {None}
    assert {r["dispatch_error"] for r in told} == {"dw.orders is a target; the rules name no single upstream table."}


def test_many_rules_place_as_each_alone(spark: SparkSession) -> None:
    """Lists of columns, some that a table does not have, some that are listed twice, in one plan that hardly grows."""
    lists = [("a",), ("b", "A"), ("a", "a"), ("a", "a", "b"), ("id", "b"), ("nowhere",), ("a", "NoWhere")]
    tables = [f"t{i}" for i in range(25)]
    rules = [Rule((f"s.{t}",), "columns", columns=lists[i % len(lists)]) for i, t in enumerate(tables)]
    events = events_frame(spark, [row for t in tables for row in rows("s", t, 5)])
    mine = dispatch_by_rules(events, rules=rules, partitions=5)
    names = ["table_name", "commit_ts", "target_partition", "dispatch_key", "dispatch_error"]

    def told(frame: object) -> list[tuple[object, ...]]:
        return sorted((tuple(r.values()) for r in frame.select(*names).toArrow().to_pylist()), key=str)  # type: ignore[attr-defined]

    alone = [
        told(dispatch_by_rules(events.where(f"table_name = '{t}'"), rules=[rule], partitions=5))
        for t, rule in zip(tables, rules, strict=True)
    ]
    assert told(mine) == sorted([row for found in alone for row in found], key=str)


def test_a_routed_golden_log_is_placed_as_it_was_recorded(spark: SparkSession, tmp_path: Path) -> None:
    """Messages renamed as TiCDC routes them; without the file the hashes hint at another name."""
    lines = []
    for line in json_lines(golden("messages_canal-json-tidb_small.jsonl.gz")):
        value = base64.b64decode(line["value"])
        if b'"database":"shop","table":"orders"' in value:
            value = value.replace(b'"database":"shop","table":"orders"', b'"database":"dw","table":"orders_v3"')
            lines.append(line | {"value": base64.b64encode(value).decode()})
    assert len(lines) > 300
    file = tmp_path / "routed.jsonl"
    file.write_text("\n".join(map(json.dumps, lines)))
    log = ticdc_lab.open(str(file), spark=spark)
    feed = changefeed_from_toml(
        "[sink]\ndispatchers = [{matcher = ['shop.orders'], partition = 'columns', columns = ['user_id'], "
        "target-schema = 'dw', target-table = '{table}_v3'}]"
    )
    sent = dispatched(log.events, changefeed=feed, partitions=4)
    told = sent.where("kind = 'row'").select("partition", "target_partition").toArrow().to_pylist()
    assert all(r["partition"] == r["target_partition"] for r in told)
    answer = log.dispatch(changefeed=feed, partitions=4)
    assert "dw.orders_v3 is the target of shop.orders upstream." in answer.details
    rules = log.rules()
    assert rules.finding == "Of 1 table: 1 by columns:user_id under another name explain every row."
    (hint,) = rules.details
    assert hint.startswith("dw.orders_v3: its rows are placed as by columns:user_id of another name")
    assert hint.endswith(f"ticdc-lab dispatch {file} --changefeed FILE")
    log.close()


def test_dispatch_says_that_a_log_has_the_names_before_routing(spark: SparkSession) -> None:
    """The changefeed's messages would carry others."""
    log = ticdc_lab.open(str(golden("messages_canal-json_small.jsonl.gz")), spark=spark)
    feed = changefeed_from_toml("[sink]\ndispatchers = [{matcher = ['shop.*'], target-schema = 'dw'}]")
    [said] = [d for d in log.dispatch(changefeed=feed, partitions=4).details if "names upstream" in d]
    assert said.startswith("Messages carry names upstream that the rules route to others: shop.") and "(to dw." in said
    assert "recorded without this routing" in said

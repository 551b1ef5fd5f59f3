"""The rule that a log was recorded with is told from the log."""

from __future__ import annotations

from typing import Any

from pyspark.sql import functions as F

from ticdc_lab.dispatch import infer_rules, move_causes

RULES = {
    "shop.orders": "columns:user_id",
    "shop.users": "columns:name",
    "Fin_Ops.Customers": "columns:name",
    "Fin_Ops.Ledger": "index-value",
    "shop.parted": "ts",
    "shop.audit": "table",
    "Fin_Ops.nopk": "table",
}
"""config_small.json: the dispatch rules of the golden topic; tables without a rule go by table."""


def by_table(rows: list[Any], column: str) -> dict[str, Any]:
    """One column of the answer, by table."""
    return {f"{r['schema_name']}.{r['table_name']}": r[column] for r in rows}


def test_recorded_rules_are_found(events_of: Any) -> None:
    """Each table of the golden topic gets the rule of its changefeed, which explains all of its rows."""
    for name in ("messages_open-protocol_small.jsonl.gz", "messages_canal-json-tidb_small.jsonl.gz"):
        found = events_of(name).transform(infer_rules).collect()
        assert by_table(found, "rule") == RULES
        assert all(r["n_explained"] == r["n_rows"] and r["partitions"] == 4 for r in found)


def test_a_rule_survives_a_fault(events_of: Any) -> None:
    """One row in a wrong partition does not hide the rule, and is counted as not explained."""
    events = events_of("messages_canal-json-tidb_small.jsonl.gz")
    first = events.where("kind = 'row' AND table_name = 'Ledger'").agg(F.min("commit_ts")).first()[0]
    wrong = (F.col("table_name") == "Ledger") & (F.col("commit_ts") == first)
    moved = events.withColumn("partition", F.when(wrong, (F.col("partition") + 1) % 4).otherwise(F.col("partition")))
    ledger = moved.transform(infer_rules).where("table_name = 'Ledger'").first()
    assert (ledger["rule"], ledger["n_rows"] - ledger["n_explained"]) == ("index-value", 1)


def test_causes_name_only_tables_whose_rows_move(events_of: Any) -> None:
    """Tables by ts or by a column that changes are explained; tables whose rows stay are not mentioned."""
    causes = by_table(events_of("messages_open-protocol_small.jsonl.gz").transform(move_causes).collect(), "cause")
    assert set(causes) == {"shop.parted", "shop.users", "Fin_Ops.Customers"}
    assert causes["shop.parted"] == ("the table is dispatched by ts (all 388 rows lie in partition commit_ts mod 4)")
    assert "by column name, whose value changes (all 229 rows" in causes["Fin_Ops.Customers"]

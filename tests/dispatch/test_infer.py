"""The rule that a log was recorded with is detected from the log."""

from __future__ import annotations

import zlib
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from audit_tables import audit_table
from conftest import events_frame
from pyspark.sql import functions as F

from ticdc_lab.audit import audit, audited
from ticdc_lab.codecs.keys import with_hashes
from ticdc_lab.dispatch import best_rule, fitting, infer, infer_rules, move_causes
from ticdc_lab.dispatch.given import NOTHING_GIVEN, GivenRules
from ticdc_lab.dispatch.infer import move_causes_at_once, move_causes_table
from ticdc_lab.events.schema import DISPATCH
from ticdc_lab.facts import LogFacts
from ticdc_lab.facts.schemas import arrow_of

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


def sent(partition: int, offset: int, ts: int, key: str, v: str = "1", *, table: str = "a") -> dict[str, Any]:
    """An insert of a table of schema s with a key ``id`` and a column ``v``."""
    image = [{"name": n, "mysql_type": "int", "value": x, "is_key": n == "id", "flags": None}
             for n, x in (("id", key), ("v", v))]  # fmt: skip
    names = {"topic": "t", "schema_name": "s", "table_name": table, "kind": "row", "op": "insert"}
    return names | {"partition": partition, "offset": offset, "seq": 0, "commit_ts": ts, "columns": image}


def by(ts: int, *, table: str = "a", **columns: str) -> int:
    """The partition of 4 by these columns, or by ts."""
    h = zlib.crc32(f"s{table}".encode())
    for name, value in columns.items():
        h ^= zlib.crc32((name + value).encode())
    return (h if columns else ts) % 4


def topic_by(rule: str, table: str = "a") -> list[dict[str, Any]]:
    """60 keys with three changes each, sent by a rule."""
    events = []
    for i in range(180):
        key, v, ts = str(i % 60), str(i), 1000 + 7 * i + i // 60
        partition = by(ts, table=table, **{"id": {"id": key}, "v": {"v": v}, "ts": {}}[rule])
        events.append(sent(partition, i, ts, key, v, table=table))
    return events


def in_wrong_partition(rule: str, recorded: int) -> tuple[list[dict[str, Any]], tuple[int, int]]:
    """A topic by a rule; only its first partitions were recorded; one row lies in another, and where that is."""
    topic = f"{rule}{recorded}"
    events = [e | {"topic": topic} for e in topic_by(rule, topic) if e["partition"] < recorded]
    life = [[e for e in events if e["columns"][0]["value"] == key] for key in map(str, range(60))]
    wrong = next(own[1] for own in life if len({e["partition"] for e in own}) == (1 if rule == "id" else 3))
    wrong |= {"partition": (wrong["partition"] + 1) % recorded}
    return events, (wrong["partition"], wrong["offset"])


def test_a_row_in_a_wrong_partition_is_not_excused(spark: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """A rule by the key moves no row; one that does still shows which of the events it did not put where they lie.

    So it is where the last partitions were not recorded: the rows of others show how many the rule counts. At once
    the same is reported, also of more of them than a table is made of.
    """
    topics = {(rule, n): in_wrong_partition(rule, n) for n in (4, 3) for rule in ("id", "v", "ts")}
    frame = events_frame(spark, [e for events, _ in topics.values() for e in events])
    causes = frame.transform(move_causes)
    every = causes.collect()
    facts = LogFacts.of(frame.toArrow())
    at_once = move_causes_at_once(lambda: frame, facts).to_pylist()
    assert sorted(at_once, key=repr) == sorted((r.asDict() for r in every), key=repr)
    monkeypatch.setattr(infer, "MISPLACED", 0)
    assert move_causes_at_once(lambda: frame, facts).count() == len(every)
    check = "rows_stay_in_one_partition"
    found = frame.transform(audit, protocol="open-protocol", checks=[check], causes=causes).collect()
    for (rule, recorded), (_, place) in topics.items():
        topic = f"{rule}{recorded}"
        got = [r for r in every if r["topic"] == topic]
        behind = 3 if recorded < 4 else None
        told = [(r["table_name"], r["partition"]) for r in got if r["cause"]]
        assert told == ([] if rule == "id" else [(topic, behind)]), topic
        absent = f"the recording has no partition from {recorded} on"
        assert all((absent in r["cause"]) == (recorded < 4) for r in got if r["cause"]), topic
        tried = [r["tried"][:35] for r in got if r["tried"]]
        assert tried == (["table, index-value, ts, each column"] if rule == "id" else []), topic
        misplaced = [(r["partition"], r["offset"], r["seq"]) for r in got if r["offset"] is not None]
        assert misplaced == ([] if rule == "id" else [(*place, 0)]), topic
        own = [f for f in found if f["table"] == f"s.{topic}"]
        shown = {(f["severity"], any(e["offset"] == place[1] for e in f["evidence"])) for f in own}
        assert shown == ({("error", True)} if rule == "id" else {("error", True), ("warning", False)}), topic


def test_few_rows_tell_of_no_partition_that_was_not_recorded(spark: Any) -> None:
    """They lie anywhere by chance: ts puts both of a row that was moved by hand where they lie, of 5 partitions."""
    for n in (1, 20):  # rows of two transactions show no more than two of them
        at = {0: 10, 1: 16}
        moved = [sent(p, i, ts, str(i)) for p, ts in at.items() for i in range(n)]
        (told,) = events_frame(spark, moved).transform(move_causes).collect()
        assert (told["cause"], told["may_be"]) == (None, None)
        all_tried = "table, index-value, ts, each column, 1 combination of columns, columns under another name"
        assert told["tried"] == all_tried


def test_without_commit_ts_nobody_can_tell_whether_a_table_is_dispatched_by_it(spark: Any) -> None:
    """A sound topic must not be called broken because its messages do not have what its rule reads; a row moved by hand
    is.
    """
    fault, events = 100, []
    for rule in ("id", "v", "ts"):
        of_rule = [e | {"commit_ts": None, "topic": rule} for e in topic_by(rule, rule)]
        of_rule[fault] |= {"partition": (of_rule[fault]["partition"] + 1) % 4}
        events += of_rule
    frame = events_frame(spark, events)
    causes = frame.transform(move_causes)
    assert [r["topic"] for r in causes.collect() if r["may_be"]] == ["ts"]
    check = "rows_stay_in_one_partition"
    found = audit(frame, protocol="canal-json", has_commit_ts=False, checks=[check], causes=causes).collect()
    unchecked = "without commit_ts this cannot be checked"
    shown = {(f["table"], f["severity"], f["message"].endswith(unchecked)) for f in found}
    assert shown == {
        ("s.id", "error", False), ("s.v", "error", False), ("s.v", "warning", False), ("s.ts", "warning", True),
    }  # fmt: skip


def test_nothing_excuses_a_move_in_files_that_no_dispatcher_fills(spark: Any) -> None:
    """A file of csv is of one table, so its rows were not sent by ts though they look so; on an engine and without."""
    events = [e | {"commit_ts": None} for e in topic_by("ts")]
    frame, check = events_frame(spark, events), "rows_stay_in_one_partition"
    causes = frame.transform(move_causes)
    table = with_hashes(frame, DISPATCH).toArrow()
    how: dict[str, Any] = {"has_commit_ts": False, "checks": [check]}
    on_engine = audit(frame, protocol="csv", causes=causes, **how).toArrow()
    in_memory = audit_table(table, protocol="csv", causes=move_causes_table(table), **how)
    facts = LogFacts.of(table)
    computed = audited(lambda: frame, facts, lambda: causes, protocol="csv", has_commit_ts=False).findings
    computed = computed.filter(pc.equal(computed["guarantee"], check))
    for found in (on_engine, in_memory, computed):
        assert set(found.filter(pc.is_valid(found["table"]))["severity"].to_pylist()) == {"error"}
        assert not [m for m in found["message"].to_pylist() if "dispatch" in m]


@pytest.mark.parametrize(("undated", "moved"), [(1, 30), (180, 18)])
def test_what_refutes_ts_is_no_excuse(spark: Any, undated: int, moved: int) -> None:
    """Rows that have a commit_ts, or lie by their key far more often than by chance, were not sent by ts."""
    events = topic_by("id")
    for i in range(moved):
        events[i * 5]["partition"] = (events[i * 5]["partition"] + 1) % 4
    events = [e | ({"commit_ts": None} if i < undated else {}) for i, e in enumerate(events)]
    told = events_frame(spark, events).transform(move_causes).collect()
    assert [(r["cause"], r["may_be"], r["offset"]) for r in told] == [(None, None, None)]


def test_a_rule_by_ts_is_told_where_some_rows_have_no_commit_ts(spark: Any) -> None:
    """Deletes in avro, for example."""
    events = [e | ({"commit_ts": None} if i < 20 else {}) for i, e in enumerate(topic_by("ts"))]
    told = events_frame(spark, events).transform(move_causes).collect()
    assert [(r["table_name"], "by ts (160 of 180" in (r["cause"] or "")) for r in told] == [("a", True)]


def test_a_column_without_values_does_not_stand_for_the_table(spark: Any) -> None:
    """NULL adds nothing to the hash, so such a column fits as well as the table itself, which moves nothing."""
    events = [sent(by(0, **{"": ""}), i, 1000 + 7 * i, str(i % 20)) for i in range(60)]
    for e in events:
        e["columns"][1]["value"] = None
    events[30] |= {"partition": (events[30]["partition"] + 1) % 4}
    (told,) = events_frame(spark, events).transform(move_causes).collect()
    assert (told["cause"], told["may_be"], told["tried"]) == (None, None, "table, index-value, ts, each column")


@pytest.mark.parametrize("n", [2, 3, 4, 7])
@pytest.mark.parametrize("by", [("a", "b"), ("id", "c"), ("a", "c", "d")])
def test_a_rule_of_several_columns_is_found(by: tuple[str, ...], n: int) -> None:
    """Only where no simpler rule fits; a fault among the rows does not hide it, and what moves is explained."""
    rows = several_columns(by, n)
    found = judged(hashed(rows))
    assert (found["rule"], found["n_explained"], found["n_rows"]) == ("columns:" + ",".join(by), 120, 120)
    rows[7]["partition"] = (rows[7]["partition"] + 1) % n
    one_off = judged(hashed(rows))
    assert (one_off["rule"], one_off["n_explained"]) == (found["rule"], 119)


def test_a_simpler_rule_is_not_passed_over_for_a_combination() -> None:
    """Few rows fit several; combinations are not even tried where one column explains the rows."""
    rows = several_columns(("a",), 4)
    assert judged(hashed(rows))["rule"] == "columns:a"
    assert {r["columns"] for r in fitting._fits(hashed(rows), more=0, given=NOTHING_GIVEN)} == {0}


@pytest.mark.parametrize("size", [1, 3, 7])
def test_the_rule_is_one_answer_over_the_whole_log(size: int) -> None:
    """However it is cut: of the first rows alone a simpler rule fits some parts, of all only a pair does."""
    rows = several_columns(("a", "b"), 4)
    parts = [hashed([r | {"n": 4} for r in rows[i : i + size]]) for i in range(0, len(rows), size)]
    alone = {fitting._first_that_fits(part, ["columns:a", "columns:b"], NOTHING_GIVEN) for part in parts}
    assert len(alone) > 1
    tried = [batch for part in parts for batch in fitting.tried_in(iter(part.to_batches()), more=0)]
    found = pa.Table.from_batches(best_rule.best_in(iter(tried))).to_pylist()[0]
    assert (found["rule"], found["n_explained"], found["n_rows"]) == ("columns:a,b", 120, 120)
    assert not found["by_chance"]


def test_few_rows_are_explained_by_a_combination_that_chance_does_not_fit() -> None:
    """17 rows show which of 26 combinations places them; by six rows several may, which is no reason for an error."""
    rows = several_columns(("id", "c"), 3)
    found = judged(hashed(rows[:17]))
    assert (found["rule"], found["explains"], found["by_chance"]) == ("columns:id,c", True, False)
    few = judged(hashed(rows[:6]))
    assert few["rule"].count(",") and few["n_explained"] == 6 and few["by_chance"] and not few["explains"]
    moved = best_rule.cause_of(few | {"untold": False}, NOTHING_GIVEN)
    assert (
        moved["may_be"].startswith("columns ")
        and "(all 6 rows lie in the partition of their hash mod 3" in moved["may_be"]
    )


def test_a_row_in_a_wrong_partition_is_no_reason_for_a_combination() -> None:
    """Of the many combinations of 12 columns one fits ten rows by chance; that one row was moved is likelier."""
    rows = several_columns(("id",), 3)[:10]
    for r in rows:
        r["values"] |= {f"c{i}": (r["id"] * (i + 3)) % 7 for i in range(7)}
    rows[4]["partition"] = (rows[4]["partition"] + 1) % 3
    assert any(fitting._combinations(hashed(rows)))
    found = judged(hashed(rows))
    assert (found["rule"], found["by_chance"], found["explains"]) == ("index-value", False, False)


@pytest.mark.parametrize("named", ["columns:id,a", "columns:a,c,d", "columns:A", "ts", "index-value", "table"])
@pytest.mark.parametrize("name", ["ab", "upab"])
def test_the_rule_that_is_given_is_tried_on_a_few_rows(named: str, name: str) -> None:
    """Under the name upstream where the table is routed; also one that no row refutes, and that moves none."""
    given = GivenRules("the changefeed's file", {("a", "b"): named}, {} if name == "ab" else {("a", "b"): name})
    columns = named.partition(":")[2].lower().split(",") if ":" in named else ["id"] if named == "index-value" else []
    rows = several_columns(tuple(columns), 3, name=name)[:5]
    for i, r in enumerate(rows):
        r["partition"] = ((i + 1) << 18) % 3 if named == "ts" else r["partition"]
    found = judged(hashed(rows), given)
    assert (found["rule"], found["given"], found["by_chance"]) == (named.lower(), True, False)
    assert found["explains"] == (named not in ("table", "index-value"))
    refuted = [r | {"partition": (r["partition"] + 1) % 3} for r in rows]
    other = judged(hashed(refuted), given)
    assert not other["given"]
    assert ("the changefeed's " + named.lower() in other["tried"]) == (":" in named)


def test_a_given_rule_counts_the_partitions_that_are_given() -> None:
    """Few rows show no partition that was not recorded; who gives their number knows it."""
    rows = [r for r in several_columns(("id", "c"), 5)[:14] if r["partition"] < 3]
    given = GivenRules("the option", {("a", "b"): "columns:id,c"}, {}, 5)
    named = {"topic": "t", "schema_name": "a", "table_name": "b", "moved": True}
    tried = [*fitting.tried_in(iter(hashed([r | {"n": 3} for r in rows]).to_batches()), more=4, given=given)]
    moved = pa.RecordBatch.from_pylist([named], arrow_of(fitting.TRIED))
    (best,) = (r for batch in best_rule.best_in(iter([*tried, moved])) for r in batch.to_pylist())
    assert (best["rule"], best["partitions"], best["given"], best["explains"]) == ("columns:id,c", 5, True, True)
    assert "as the option says" in best_rule.cause_of(best, given)["cause"]


@pytest.mark.parametrize(("n", "said"), [(30, True), (7, False)])
def test_rows_in_one_partition_that_is_not_the_one_of_their_name(n: int, said: bool) -> None:
    """As of a routed table that is dispatched by table: what would explain them is reported; not of a few rows."""
    own = zlib.crc32(b"ab") % 4
    rows = [r | {"partition": (own + 1) % 4} for r in several_columns(("a",), 4)[:n]]
    assert ("as by table under another name" in judged(hashed(rows))["tried"]) == said
    assert "another name (" not in judged(hashed([r | {"partition": own} for r in rows]))["tried"]


def test_rows_that_nothing_explains_are_explained_by_no_combination() -> None:
    """Random partitions: what is tried is reported, and a combination is no better than chance."""
    rows = [r | {"partition": zlib.crc32(str(i * i).encode()) % 4} for i, r in enumerate(several_columns(("a",), 4))]
    found = judged(hashed(rows))
    assert found["n_explained"] < fitting.EXPLAINED * found["n_rows"] and not found["explains"]


def test_how_many_combinations_are_tried_depends_on_the_columns() -> None:
    """All of a number, or none of it."""
    assert [fitting.tried_up_to(n) for n in (0, 1, 2, 5, 16, 40, 80, 400)] == [1, 1, 2, 5, 16, 3, 2, 1]


def several_columns(by: tuple[str, ...], n: int, *, name: str = "ab") -> list[dict[str, Any]]:
    """120 rows with a key and four columns, in the partitions of some of them."""
    rows = []
    for i in range(120):
        values = {"id": i, "a": i % 11, "b": i // 9, "c": (i * 7) % 13, "d": (i * i) % 17}
        h = zlib.crc32(name.encode())
        for column in by:
            h ^= zlib.crc32(f"{column}{values[column]}".encode())
        rows.append({"id": i, "values": values, "partition": h % n, "n": n})
    return rows


def hashed(rows: list[dict[str, Any]]) -> Any:
    """As the kernels read them."""
    names = list(rows[0]["values"])
    crcs = [[zlib.crc32(f"{k}{v}".encode()) for k, v in r["values"].items()] for r in rows]
    columns = {
        "topic": ["t"] * len(rows), "partition": [r["partition"] for r in rows], "offset": list(range(len(rows))),
        "seq": [0] * len(rows), "schema_name": ["a"] * len(rows), "table_name": ["b"] * len(rows),
        "commit_ts": [(i + 1) << 18 for i in range(len(rows))], "key_crc": [c[0] | 1 << 32 for c in crcs],
        "column_crcs": crcs, "layout": [f"{','.join(names)},,id"] * len(rows),
        "partitions": [r["n"] for r in rows],
    }  # fmt: skip
    return pa.table(columns).select(infer._FORM.names).cast(infer._FORM)


def judged(rows: Any, given: GivenRules = NOTHING_GIVEN) -> dict[str, Any]:
    """The best rule of the rows of one table."""
    tried = [*fitting.tried_in(iter(rows.to_batches()), more=0, given=given)]
    (best,) = (r for batch in best_rule.best_in(iter(tried)) for r in batch.to_pylist())
    return dict(best)

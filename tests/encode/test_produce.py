"""A log written as a new topic: nothing is lost, order and promises hold, and a fault in it is seen."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from conftest import events_frame, golden
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import ticdc_lab
from ticdc_lab.audit import audit
from ticdc_lab.cli import main
from ticdc_lab.codecs import decode
from ticdc_lab.dispatch import dispatch
from ticdc_lab.encode.produce import produce, resolved_values, write_topic
from ticdc_lab.errors import ContractError, DispatchError, ProtocolError
from ticdc_lab.events.schema import CHECKSUMS, EVENTS, KEYS, MESSAGES, OF_IMAGES
from ticdc_lab.facts.catalog import catalog_of
from ticdc_lab.facts.watermarks import topic_watermarks
from ticdc_lab.sources.load import load

OPEN, CANAL = "messages_open-protocol_small.jsonl.gz", "messages_canal-json-tidb_small.jsonl.gz"
SAID = ("commit_ts", "schema_name", "table_name", "op", "columns", "before", "incomplete")
Events = list[dict[str, Any]]


def read_back(messages: DataFrame, protocol: str) -> DataFrame:
    """Events of messages, without one in quarantine."""
    return decode(messages, protocol=protocol).where("error_class IS NULL").select(*EVENTS.names, *KEYS.names)


def plain(df: DataFrame) -> Events:
    """Rows as plain dicts, in the order of their places."""
    return sorted(df.toArrow().to_pylist(), key=lambda e: (e["partition"], e["offset"], e["seq"]))


def bag(events: Events, *names: str, flags: bool = True) -> Counter[str]:
    """Row changes by what they show."""

    def said(e: dict[str, Any]) -> str:
        kept = {n: e[n] for n in names}
        for image in {"columns", "before"} & set(names):
            kept[image] = kept[image] and [c if flags else c | {"flags": None} for c in kept[image]]
        return json.dumps(kept, sort_keys=True)

    return Counter(said(e) for e in events if e["kind"] == "row")


@pytest.fixture(scope="module")
def written(spark: SparkSession, events_of: Any) -> Any:
    """``written(name, protocol, strategy)``: the produced topic's messages (cached) and its events."""
    kept: dict[Any, tuple[DataFrame, Events]] = {}

    def get(name: str, protocol: str, strategy: str, **more: Any) -> tuple[DataFrame, Events]:
        key = (name, protocol, strategy, tuple(more))
        if key not in kept:
            events = events_of(name)
            how = {"protocol": protocol, "strategy": strategy, "partitions": 5, "topic": "new"}
            made = events.transform(produce, **{**how, "catalog": catalog_of(events), **more})
            messages = spark.createDataFrame(made.toArrow()).cache()
            kept[key] = messages, plain(read_back(messages, protocol))
        return kept[key]

    return get


@pytest.mark.parametrize(
    ("name", "protocol", "flags"),
    [
        (OPEN, "open-protocol", True), (CANAL, "canal-json", True),
        (OPEN, "canal-json", False), (CANAL, "open-protocol", False),
    ],
)  # fmt: skip
def test_every_row_is_written_once_where_the_dispatcher_puts_it(
    events_of: Any, written: Any, name: str, protocol: str, flags: bool
) -> None:
    """The rows are the ones of the log, each in the partition that its dispatcher chooses."""
    events = events_of(name)
    source = events.transform(dispatch, strategy="index-value", partitions=5, catalog=catalog_of(events))
    expected = [e | {"partition": e["target_partition"]} for e in source.toArrow().to_pylist()]
    _, events = written(name, protocol, "index-value")
    assert {e["topic"] for e in events} == {"new"}
    assert bag(events, *SAID, "partition", flags=flags) == bag(expected, *SAID, "partition", flags=flags)


@pytest.mark.parametrize(("name", "protocol"), [(OPEN, "open-protocol"), (CANAL, "canal-json"), (OPEN, "mq-v1")])
def test_a_partition_is_in_commit_order_with_ddl_and_watermarks_in_their_place(
    written: Any, name: str, protocol: str
) -> None:
    """Offsets are dense, commit_ts never falls, and nothing up to a watermark comes after it."""
    messages, events = written(name, protocol, "index-value")
    assert messages.columns == MESSAGES.names
    offsets, order = defaultdict(list), defaultdict(list)
    for m in messages.select("partition", "offset").collect():
        offsets[m.partition].append(m.offset)
    rank = {"row": 0, "ddl": 1, "watermark": 2}
    for e in events:
        order[e["partition"]].append((e["commit_ts"], rank[e["kind"]]))
    assert set(offsets) == set(order) == set(range(5))
    assert all(sorted(o) == list(range(len(o))) for o in offsets.values())
    assert all(o == sorted(o) for o in order.values())


def test_deletes_of_a_transaction_come_before_its_inserts(written: Any) -> None:
    """Inside a commit: delete, update, insert, as TiCDC orders them, so that a moved key is free before it is taken."""
    _, events = written(OPEN, "canal-json", "table")
    ranks = defaultdict(list)
    for e in events:
        if e["kind"] == "row":
            ranks[e["partition"], e["commit_ts"]].append(("delete", "update", "insert").index(e["op"]))
    assert all(r == sorted(r) for r in ranks.values()) and any(len(set(r)) > 1 for r in ranks.values())


@pytest.mark.parametrize(("protocol", "homes"), [("open-protocol", 5), ("mq-v1", 5), ("canal-json", 1)])
def test_ddl_and_watermarks_are_broadcast_each_once(events_of: Any, written: Any, protocol: str, homes: int) -> None:
    """The global resolved_ts is in every partition, a DDL too, except for canal-json in partition 0 alone."""
    _, events = written(OPEN, protocol, "table" if protocol == "canal-json" else "index-value")
    source = events_of(OPEN)
    values = {r.commit_ts for r in resolved_values(source).collect()}
    assert max(values) == topic_watermarks(source).first().resolved_ts and len(values) == 31
    marks = Counter((e["partition"], e["commit_ts"]) for e in events if e["kind"] == "watermark")
    assert marks == Counter((p, v) for p in range(5) for v in values)
    ddl = Counter((e["partition"], e["commit_ts"], e["query"]) for e in events if e["kind"] == "ddl")
    statements = {(r.commit_ts, r.query) for r in source.where("kind = 'ddl'").collect()}
    assert ddl == Counter((p, ts, q) for p in range(homes) for ts, q in statements)


def test_a_value_counts_as_resolved_only_when_every_partition_has_reached_it(spark: SparkSession) -> None:
    """The steps of the ladder: the least of what the partitions state, and nothing while one is silent."""

    def mark(partition: int, ts: int) -> dict[str, Any]:
        return {"kind": "watermark", "topic": "t", "partition": partition, "offset": ts, "seq": 0, "commit_ts": ts}

    marks = [mark(0, 10), mark(0, 20), mark(0, 40), mark(1, 15), mark(1, 30)]
    assert sorted(r[0] for r in resolved_values(events_frame(spark, marks)).collect()) == [10, 15, 20, 30]
    row = {"kind": "row", "topic": "t", "partition": 2, "offset": 0, "seq": 0, "commit_ts": 1}
    assert resolved_values(events_frame(spark, [*marks, row])).collect() == []


@pytest.mark.parametrize(
    ("protocol", "strategy"), [("open-protocol", "table"), ("canal-json", "table"), ("mq-v1", "index-value")]
)
def test_a_strategy_that_keeps_order_gives_a_clean_topic(written: Any, protocol: str, strategy: str) -> None:
    """The audit finds nothing, not even a warning, though the log itself was dispatched by other rules."""
    messages, _ = written(OPEN, protocol, strategy)
    assert read_back(messages, protocol).transform(audit, protocol=protocol).collect() == []


def test_a_strategy_that_moves_rows_is_found_out(written: Any) -> None:
    """Dispatch by ts spreads the versions of a row."""
    messages, _ = written(OPEN, "canal-json", "ts")
    checks = ["rows_stay_in_one_partition"]
    assert read_back(messages, "canal-json").transform(audit, protocol="canal-json", checks=checks).count() > 100


def _swapped(events: Events) -> Events:
    """Two watermarks of partition 0 change their values."""
    a, b = [e for e in events if e["kind"] == "watermark" and e["partition"] == 0][3:5]
    a["commit_ts"], b["commit_ts"] = b["commit_ts"], a["commit_ts"]
    return events


def _without(kind: str) -> Any:
    def drop(events: Events) -> Events:
        one = next(e for e in events if e["kind"] == kind and e["partition"] == 1 and e["offset"] > 20)
        return [e for e in events if e is not one]

    return drop


def _late(events: Events) -> Events:
    """The first row of partition 1 moves to its end."""
    one = next(e for e in events if e["kind"] == "row" and e["partition"] == 1)
    one["offset"] = 1 << 20
    return events


@pytest.mark.parametrize(
    ("fault", "guarantee"),
    [
        (_swapped, "watermarks_are_monotone"),
        (_without("watermark"), "resolved_events_on_all_partitions"),
        (_without("ddl"), "ddl_events_on_all_partitions"),
        (_late, "nothing_below_resolved_ts"),
    ],
)
def test_a_fault_planted_in_a_produced_topic_is_found(
    spark: SparkSession, written: Any, fault: Any, guarantee: str
) -> None:
    """Swapped, missing or late: the audit that was silent before names it."""
    _, events = written(OPEN, "mq-v1", "index-value")
    broken = fault([dict(e) for e in events])
    found = events_frame(spark, broken).transform(audit, protocol="mq-v1", checks=[guarantee]).collect()
    assert {f.guarantee for f in found} == {guarantee}


def test_the_same_events_give_the_same_messages_however_they_are_cut(events_of: Any, written: Any) -> None:
    """Byte for byte, no matter what partitions Spark holds the events in."""
    messages, _ = written(OPEN, "open-protocol", "table")
    shuffled = events_of(OPEN).repartition(7, "change_hash")
    again = shuffled.transform(produce, protocol="open-protocol", strategy="table", partitions=5, topic="new")

    def content(df: DataFrame) -> list[Any]:
        return sorted((m.partition, m.offset, bytes(m.key), bytes(m.value)) for m in df.collect())

    assert content(messages) == content(again)


def test_rows_of_a_message_share_the_partition_key_and_are_not_too_many(written: Any) -> None:
    """Open-protocol batches up to the size asked for, rows of one table where the table is the key."""
    _, events = written(OPEN, "open-protocol", "table", max_batch_size=5)
    held = defaultdict(list)
    for e in events:
        held[e["partition"], e["offset"]].append((e["kind"], e["schema_name"], e["table_name"]))
    assert max(map(len, held.values())) == 5
    assert all(len(set(rows)) == 1 for rows in held.values())


def test_an_index_is_looked_up_in_the_catalog(events_of: Any) -> None:
    """Dispatch by a named index writes a table that has it; one that has it not cannot be dispatched."""
    ledger = events_of(OPEN).where("kind <> 'row' OR table_name = 'Ledger'")
    options = {"protocol": "canal-json", "strategy": "index-value", "partitions": 3, "catalog": catalog_of(ledger)}
    made = ledger.transform(produce, index="u_ref", **options)
    assert made.select("partition").distinct().count() == 3
    with pytest.raises(Exception, match=r"cannot be dispatched.*index not found.*nothing"):
        ledger.transform(produce, index="nothing", **options).collect()


def test_what_cannot_be_asked_for_is_refused_at_once(events_of: Any) -> None:
    """An unknown protocol, strategy or batch size fails before anything is read."""
    events, good = events_of(OPEN), {"protocol": "mq-v1", "strategy": "table", "partitions": 1}
    for wrong, error in (
        ({"protocol": "avro"}, ProtocolError), ({"strategy": "tables"}, DispatchError),
        ({"partitions": 0}, DispatchError), ({"max_batch_size": 0}, ContractError),
    ):  # fmt: skip
        with pytest.raises(error):
            events.transform(produce, **good | wrong)


@pytest.mark.parametrize("out", ["new.jsonl.gz", "new.parquet", "new", "new.txt.gz", "table/"])
def test_a_written_topic_can_be_loaded_again(spark: SparkSession, written: Any, tmp_path: Path, out: str) -> None:
    """As JSON Lines under any name, Parquet and Delta: the same messages, detected by their bytes."""
    messages, events = written(OPEN, "mq-v1", "index-value")
    place = f"{tmp_path}/{out}"
    write_topic(messages, place)
    log = load(spark, place)
    assert log.protocol == "mq-v1"
    assert plain(log.events.drop(*CHECKSUMS.names, *OF_IMAGES)) == events


def test_a_reason_that_a_task_gives_reaches_the_caller(spark: SparkSession, tmp_path: Path, events_of: Any) -> None:
    """Not Spark's trace, but the package's own error: a row that cannot be dispatched, or not encoded."""
    out, one = str(tmp_path / "x.jsonl"), events_of(CANAL).where("kind = 'row'").limit(1)
    lone = one.transform(produce, protocol="mq-v1", strategy="columns", columns=["nothing"], partitions=2)
    with pytest.raises(DispatchError, match=r"cannot be dispatched.*columns not found"):
        write_topic(lone, out)
    undated = one.withColumn("commit_ts", F.when(F.col("offset") < 0, F.col("commit_ts")))
    with pytest.raises(ProtocolError, match="A row change has no commit_ts"):
        write_topic(undated.transform(produce, protocol="mq-v1", strategy="table", partitions=2), out)


def test_the_command_writes_a_topic_and_says_what_is_lost(spark: SparkSession, tmp_path: Path) -> None:
    """``produce`` shows how much it wrote and what the format does not keep."""
    out = str(tmp_path / "new.jsonl.gz")
    args = ["produce", str(golden(OPEN)), "--to", "mq-v1", "--strategy", "index-value", "--partitions", "3"]
    said = CliRunner().invoke(main, [*args, "--out", out, "--json"], obj=spark)
    assert said.exit_code == 0, said.output
    facts = json.loads(said.stdout)
    assert facts["written"] == load(spark, out).messages.count() == 2101 + 3 * (16 + 31)
    assert facts["to"] == "mq-v1" and "table_id" in facts["lost"]
    again = ticdc_lab.open(str(golden(OPEN)), spark=spark)
    answer = again.produce(out, to="mq-v1", strategy="index-value", partitions=3)
    assert answer.finding == facts["answer"] == f"{facts['written']:,} messages of mq-v1 in 3 partitions: {out}."
    assert load(spark, out).messages.count() == facts["written"], "the method writes as the command does"


def test_open_protocol_names_a_partition_only_if_the_log_does(spark: SparkSession) -> None:
    """`ptn` is the id of a partitioned table's partition; simple and canal-json's row key have one of every table."""
    image = [{"name": "id", "mysql_type": "int", "value": "1", "is_key": True, "flags": None}]
    row = {"kind": "row", "op": "insert", "commit_ts": 5, "schema_name": "s", "table_name": "t", "table_id": 112}
    place = {"topic": "t", "partition": 0, "offset": 0, "seq": 0, "columns": image}
    for protocol, named in (("open-protocol", True), ("simple", False), ("canal-json", False)):
        events = events_frame(spark, [row | place | {"protocol": protocol}])
        of = {"protocol": "open-protocol", "strategy": "table", "partitions": 1}
        (key,) = [bytes(m["key"]) for m in produce(events, **of).select("key").collect()]
        assert (b'"ptn":112' in key) is named

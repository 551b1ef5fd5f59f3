from __future__ import annotations

from collections import Counter
from typing import Any

import pyarrow as pa
import pytest
from conftest import events_frame, json_lines
from pyspark.sql import functions as F

from ticdc_lab.codecs.keys import with_hashes
from ticdc_lab.errors import ContractError, StreamingError
from ticdc_lab.events.schema import DISPATCH, TRANSACTIONS
from ticdc_lab.facts.places import NAMED_BY
from ticdc_lab.transactions import duplicates, split_key_updates, transaction_rows, transactions
from ticdc_lab.transactions.kernel import KnownPlaces, restored
from ticdc_lab.transactions.restoring import first_repeated

CLEAN = [
    "messages_open-protocol_small.jsonl.gz",
    "messages_canal-json-tidb_small.jsonl.gz",
    "messages_open-protocol-updatedonly-batch1_small.jsonl.gz",
    "messages_canal-json-tidb_bank.jsonl.gz",
]
WITHOUT_NOPK = [
    "messages_open-protocol-deletehk_small.jsonl.gz",
    "messages_canal-json-tidb-updatedonly-deletehk_small.jsonl.gz",
]
REDELIVERED = [
    "messages_open-protocol_small-dup-restart.jsonl.gz",
    "messages_open-protocol_small-dup-table.jsonl.gz",
    "messages_open-protocol_small-dup-ddl.jsonl.gz",
    *(f"messages_canal-json-tidb_small-dup-{kind}.jsonl.gz" for kind in ("restart", "table", "ddl")),
]


def truth(name: str, *, nopk: bool) -> dict[int, Counter[str]]:
    """Rows per commit_ts and table, from the truth file."""
    of: dict[int, Counter[str]] = {}
    for d in json_lines(f"truth_{'bank' if 'bank' in name else 'small'}.jsonl.gz"):
        for r in d["rows"] if d["kind"] == "txn" else ():
            if nopk or r["table"] != "nopk":
                of.setdefault(d["commit_ts"], Counter())[f"{r['schema']}.{r['table']}"] += 1
    return of


def column(name: str, value: str, *, key: bool = False) -> dict[str, Any]:
    """One column of an image."""
    return {"name": name, "mysql_type": "int", "value": value, "is_key": key, "flags": None}


def change(
    op: str, ts: int, key: str | None, partition: int, offset: int, *, topic: str = "t", table: str = "a", **more: Any
) -> dict[str, Any]:
    """A row event whose image is its key and a value."""
    own = [column("id", key or "0", key=key is not None), column("v", more.pop("v", "1"))]
    old = [column("id", more.pop("old", key) or "0", key=key is not None), column("v", "0")]
    images = {"columns": None if op == "delete" else own, "before": None if op == "insert" else old}
    where = {"topic": topic, "partition": partition, "offset": offset, "seq": 0}
    names = {"schema_name": "s", "table_name": table}
    return {"kind": "row", "op": op, "commit_ts": ts, **names, **images, **where, **more}


def mark(ts: int, partition: int, offset: int, *, topic: str = "t") -> dict[str, Any]:
    """A watermark event."""
    where = {"topic": topic, "partition": partition, "offset": offset, "seq": 0}
    return {"kind": "watermark", "commit_ts": ts, **where}


@pytest.mark.parametrize("name", [*CLEAN, *WITHOUT_NOPK, *REDELIVERED])
def test_transactions_equal_the_truth(events_of, name):
    """Row counts and tables of every transaction are the truth's.

    Re-sent rows without a key cannot be distinguished from equal rows, so their transactions are compared by tables
    only.
    """
    want = truth(name, nopk=name not in WITHOUT_NOPK)
    skip = {ts for ts, tables in want.items() if "dup" in name and "Fin_Ops.nopk" in tables}
    got = {r.commit_ts: (r.n_rows, r.tables) for r in events_of(name).transform(transactions).collect()}
    assert set(got) == set(want)
    assert {t: v for t, v in got.items() if t not in skip} == {
        t: (sum(c.values()), sorted(c)) for t, c in want.items() if t not in skip
    }
    assert all(got[t][1] == sorted(want[t]) for t in skip)


@pytest.mark.parametrize("name", ["messages_open-protocol_small.jsonl.gz", *REDELIVERED[:3]])
def test_deliveries_add_up_to_the_rows_of_the_log(events_of, name):
    """n_rows and duplicates together are the row events that were recorded."""
    total = events_of(name).transform(transactions).agg(F.sum("n_rows"), F.sum("duplicates")).first()
    assert sum(total) == events_of(name).where("kind = 'row'").count()
    listed = events_of(name).transform(duplicates)
    assert (total[1], listed.where("NOT identical").count()) == (listed.count(), 0)


def test_golden_transactions_are_complete_but_for_what_the_last_watermark_leaves(events_of):
    """A transaction is complete exactly when the least of the last watermarks has reached it."""
    events = events_of("messages_open-protocol_bank.jsonl.gz")
    by_partition = events.where("kind = 'watermark'").groupBy("partition").agg(F.max("commit_ts").alias("ts"))
    resolved_ts = by_partition.agg(F.min("ts")).first()[0]
    got = events.transform(transactions).selectExpr("commit_ts", "complete", "size(missing) AS n").collect()
    assert all(r.complete == (r.commit_ts <= resolved_ts) == (r.n == 0) for r in got)


def test_schema_is_the_contract(spark):
    """Names and types are the ones of TRANSACTIONS, in its order."""
    got = events_frame(spark, [change("insert", 5, "1", 0, 0)]).transform(transactions).schema
    want = TRANSACTIONS
    assert [(f.name, f.dataType.simpleString()) for f in got] == [(f.name, f.dataType.simpleString()) for f in want]


def test_incomplete_transactions_name_the_partitions_that_lag(spark):
    """Every partition with any event counts, whether or not it holds rows of the transaction."""
    events = events_frame(
        spark,
        [
            change("insert", 5, "1", 0, 0),
            change("insert", 5, "2", 1, 0, table="b"),
            mark(5, 0, 1),
            mark(4, 1, 1),
            change("insert", 4, "3", 2, 0),
            mark(4, 3, 0),
            mark(9, 3, 1),
        ],
    )
    got = events.transform(transactions).orderBy("commit_ts").collect()
    assert [(r.commit_ts, r.n_rows, r.complete, r.missing) for r in got] == [(4, 1, False, [2]), (5, 2, False, [1, 2])]
    assert (got[1].tables, got[1].partitions) == (["s.a", "s.b"], [0, 1])
    assert [tuple(o) for o in got[1].offsets] == [(0, "t", 0, 0), (1, "t", 0, 0)]


def test_a_transaction_spans_topics(spark):
    """A log of several topics is one changefeed: offsets name the topic, completeness needs all of them."""
    events = events_frame(
        spark,
        [
            change("insert", 5, "1", 0, 3, topic="x"),
            change("insert", 5, "1", 0, 7, topic="y", table="b"),
            change("update", 5, "2", 0, 9, topic="y", table="b"),
            mark(5, 0, 10, topic="x"),
        ],
    )
    (got,) = events.transform(transactions).collect()
    assert [tuple(o) for o in got.offsets] == [(0, "x", 3, 3), (0, "y", 7, 9)]
    assert (got.complete, got.missing, got.partitions) == (False, [0], [0])


def test_transactions_with_one_commit_ts_are_told_apart_by_start_ts(spark):
    """Async commit and 1PC may give two transactions one commit_ts; keyless rows of both are no repeats."""
    events = events_frame(
        spark,
        [
            change("insert", 5, "1", 0, 0, start_ts=2),
            change("insert", 5, "2", 1, 0, start_ts=3),
            change("insert", 5, "2", 1, 1, start_ts=3),
            change("insert", 5, None, 0, 1, start_ts=2, table="nopk"),
            change("insert", 5, None, 0, 2, start_ts=3, table="nopk"),
            change("insert", 6, None, 0, 3, table="nopk"),
            change("insert", 6, None, 0, 4, table="nopk"),
        ],
    )
    got = events.transform(transactions).orderBy("commit_ts", "start_ts").collect()
    assert [(r.commit_ts, r.start_ts, r.n_rows, r.duplicates) for r in got] == [
        (5, 2, 2, 0),
        (5, 3, 2, 1),
        (6, None, 1, 1),
    ]
    again = events.transform(duplicates).orderBy("offset").collect()
    assert [(r.commit_ts, r.table_name, r.offset) for r in again] == [(5, "a", 1), (6, "nopk", 4)]
    assert first_repeated(events, 9) == [5, 6]


def test_tables_that_share_a_partition_share_a_span(spark):
    """Offsets are per topic and partition: least first and greatest last over the tables in it."""
    events = events_frame(
        spark,
        [
            change("insert", 5, "1", 0, 4, table="a"),
            change("insert", 5, "2", 0, 9, table="a"),
            change("insert", 5, "1", 0, 5, table="b"),
            change("insert", 5, "1", 1, 7, table="c"),
            change("insert", 5, "1", 1, 2, table="d"),
            change("insert", 5, "1", 1, 3, table="e", topic="u"),
        ],
    )
    (got,) = events.transform(transactions).collect()
    assert [tuple(o) for o in got.offsets] == [(0, "t", 4, 9), (1, "t", 2, 7), (1, "u", 3, 3)]
    assert (got.partitions, len(got.tables)) == ([0, 1], 5)


def test_a_change_counts_once_wherever_it_was_delivered(spark):
    """A re-delivery, in the same or another partition, is a duplicate; another op on the key is another change."""
    events = events_frame(
        spark,
        [
            change("delete", 5, "1", 0, 0),
            change("insert", 5, "1", 0, 1),
            change("insert", 5, "1", 0, 8),
            change("insert", 5, "1", 1, 9),
            change("insert", 6, "1", 0, 2),
            mark(6, 0, 10),
            mark(6, 1, 10),
        ],
    )
    got = events.transform(transactions).orderBy("commit_ts").collect()
    assert [(r.commit_ts, r.n_rows, r.duplicates, r.partitions, r.complete) for r in got] == [
        (5, 2, 2, [0, 1], True),
        (6, 1, 0, [0], True),
    ]


def test_conflicting_redeliveries_are_told(spark):
    """A repeat with another content is a duplicate that is not identical to the first."""
    events = events_frame(
        spark, [change("insert", 5, "1", 0, 1), change("insert", 5, "1", 0, 4), change("insert", 5, "1", 0, 9, v="2")]
    )
    got = events.transform(duplicates).orderBy("offset").collect()
    assert [(r.offset, r.first_offset, r.delivery, r.identical) for r in got] == [(4, 1, 2, True), (9, 1, 3, False)]


def test_rows_are_ordered_so_that_keys_are_free_before_they_are_taken(spark):
    """Deletes, then updates, then inserts across all tables; a repeat has no place."""
    events = events_frame(
        spark,
        [
            change("insert", 5, "1", 0, 0, table="a"),
            change("update", 5, "2", 0, 1, table="b"),
            change("delete", 5, "1", 1, 0, table="b"),
            change("delete", 5, "3", 0, 2, table="a"),
            change("delete", 5, "3", 0, 9, table="a"),
        ],
    )
    got = events.transform(transaction_rows).orderBy("apply_order").collect()
    assert [(r.apply_order, r.op, r.table_name, r.delivery) for r in got] == [
        (None, "delete", "a", 2),
        (1, "delete", "a", 1),
        (2, "delete", "b", 1),
        (3, "update", "b", 1),
        (4, "insert", "a", 1),
    ]


def test_applying_in_order_never_meets_a_taken_key(events_of):
    """Replaying every bank transaction in apply_order finds each key free on insert and present on delete."""
    rows = (
        events_of("messages_canal-json-tidb_bank.jsonl.gz")
        .where("table_name != 'transfers'")  # truncated on the way, which sets keys free without a row
        .transform(transaction_rows)
        .where("delivery = 1")
        .orderBy("commit_ts", "apply_order")
        .select("op", "key_hash")
    )
    held: set[int] = set()
    for r in rows.toLocalIterator():
        assert (r.key_hash in held) == (r.op != "insert")
        (held.discard if r.op == "delete" else held.add)(r.key_hash)
    assert held


def test_an_update_that_changes_its_key_splits_as_ticdc_does(spark):
    """It becomes a delete of the old key and an insert of the new; other rows stay as they are."""
    events = events_frame(spark, [change("update", 5, "2", 0, 0, old="1"), change("update", 5, "3", 0, 1)])
    keys = {r.key_hash: r for r in events.collect()}
    got = events.transform(split_key_updates).orderBy("offset", "op").collect()
    assert [(r.op, r.columns is None, r.before is None, r.before_key_hash) for r in got] == [
        ("delete", True, False, None),
        ("insert", False, True, None),
        ("update", False, False, None),
    ]
    assert {r.key_hash for r in got} == set(keys) | {r.before_key_hash for r in keys.values() if r.before_key_hash}
    assert events.transform(split_key_updates).transform(transactions).first().n_rows == 3
    halves = events.transform(with_hashes, DISPATCH).transform(split_key_updates)
    assert halves.columns == events.columns  # a half has an image of its own, so the crcs of the whole would be wrong


def test_rows_without_commit_ts_belong_to_no_transaction(events_of):
    """Canal-json without the extension has no commit_ts, so nothing is restored and nothing invented."""
    assert events_of("messages_canal-json_small.jsonl.gz").transform(transactions).count() == 0


@pytest.mark.parametrize("seed", [1, 2])
def test_order_and_partitioning_of_the_input_change_nothing(events_of, seed):
    """The same log, shuffled, restores the same transactions."""
    events = events_of("messages_open-protocol_small-dup-restart.jsonl.gz")

    def result(frame):
        return sorted(map(str, frame.transform(transactions).collect()))

    assert result(events.orderBy(F.rand(seed)).repartition(3)) == result(events)


def test_one_shuffle_moves_the_rows(classic):
    """Rows are shuffled by commit_ts once; the other exchanges carry small tables."""
    plan = events_frame(classic, [change("insert", 5, "1", 0, 0)]).transform(transactions)
    text = plan._jdf.queryExecution().executedPlan().toString()
    assert text.count("Exchange hashpartitioning(commit_ts") == 1


@pytest.mark.parametrize("size", [1, 2, 3, 7])
def test_where_the_sorted_rows_are_cut_into_batches_changes_nothing(size):
    """A transaction, and a change delivered twice, may lie across any number of batches."""
    rows = [
        (5, 3, 1, "s.b", "t", 1, 8), (5, 3, 1, "s.b", "t", 1, 9), (5, 3, 2, "s.a", "t", 0, 4),
        (5, 3, 2, "s.a", "u", 0, 1), (5, 3, 4, "s.c", "t", 1, 7), (6, None, 4, "s.a", "t", 0, 5),
        (9, None, 1, "s.a", "t", 2, 5), (9, None, 1, "s.a", "t", 0, 6), (9, None, 1, "s.a", "t", 2, 2),
        (9, 7, 1, "s.a", "t", 0, 6), (9, 8, 1, "s.a", "t", 0, 7), (9, 8, 1, "s.a", "t", 0, 8),
    ]  # fmt: skip
    homes = list(dict.fromkeys((topic, partition, *table.split(".")) for *_, table, topic, partition, _ in rows))
    number = {home: 100 - i for i, home in enumerate(homes)}  # as hashes, they report nothing of the order of names
    changes = [(*ids, number[topic, partition, *table.split(".")], o) for *ids, table, topic, partition, o in rows]
    names = ("commit_ts", "start_ts", "change_id", "place", "offset")
    table = pa.table([pa.array(c, pa.int64()) for c in zip(*changes, strict=True)], names=names)
    known = [dict(zip(NAMED_BY, home, strict=True)) | {"place": n, "resolved_ts": 5} for home, n in number.items()]
    places = KnownPlaces.read(pa.Table.from_pylist(known))
    got = pa.Table.from_batches(restored(iter(table.to_batches(max_chunksize=size)), places)).to_pylist()
    assert [r["complete"] for r in got] == [True, False, False, False, False]
    assert [(r["commit_ts"], r["start_ts"], r["n_rows"], r["duplicates"]) for r in got] == [
        (5, 3, 3, 2), (6, None, 1, 0), (9, None, 1, 2), (9, 7, 1, 0), (9, 8, 1, 1),
    ]  # fmt: skip
    assert [(r["tables"], r["partitions"]) for r in got] == [
        (["s.a", "s.b", "s.c"], [0, 1]), (["s.a"], [0]), (["s.a"], [0, 2]), (["s.a"], [0]), (["s.a"], [0]),
    ]  # fmt: skip
    assert [[tuple(o.values()) for o in r["offsets"]] for r in got] == [
        [(0, "t", 4, 4), (0, "u", 1, 1), (1, "t", 7, 9)], [(0, "t", 5, 5)], [(0, "t", 6, 6), (2, "t", 2, 5)],
        [(0, "t", 6, 6)], [(0, "t", 7, 8)],
    ]  # fmt: skip


def test_a_place_that_is_not_known_is_no_other() -> None:
    """Rows of a table that facts do not know would else be counted as another's."""
    known = [dict(zip(NAMED_BY, ("t", p, "s", "a"), strict=True)) | {"place": 10 * p, "resolved_ts": 5} for p in (1, 2)]
    places = KnownPlaces.read(pa.Table.from_pylist(known))
    names = ("commit_ts", "start_ts", "change_id", "place", "offset")
    for place in (5, 15, 25):
        rows = pa.record_batch([pa.array([v], pa.int64()) for v in (5, None, 1, place, 3)], names=names)
        with pytest.raises(ContractError, match="Open it again"):
            list(restored(iter([rows]), places))
    assert list(restored(iter([rows.slice(1)]), places)) == []


def test_streams_and_wrong_frames_are_refused(spark):
    """A stream is refused with the reason, a frame without the contract with the missing columns."""
    stream = spark.readStream.format("rate").load()
    with pytest.raises(ContractError, match="commit_ts"):
        stream.transform(transactions)
    frame = events_frame(spark, [change("insert", 5, "1", 0, 0)])
    named = stream.select(*[F.lit(None).cast(f.dataType).alias(f.name) for f in frame.schema])
    with pytest.raises(StreamingError, match="transactions needs the whole log"):
        named.transform(transactions)

"""What is known of a log: gathered in parts it is the same as gathered whole, and nothing of it is lost."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from facts_alike import same
from hypothesis import given, settings
from hypothesis import strategies as st

from ticdc_lab.errors import ContractError
from ticdc_lab.events.arrays import NO_TS
from ticdc_lab.events.ddl import blocked_tables
from ticdc_lab.facts import gathering
from ticdc_lab.facts.gathering import ARROW, gathered, log_facts, narrow_batches
from ticdc_lab.facts.known import LogFacts
from ticdc_lab.facts.places import distinct_first, hashes_of_both, index_of, place_col, place_number

EVENTS = pa.schema(
    [("kind", pa.string()), ("commit_ts", pa.int64()), ("op", pa.string()), ("topic", pa.string()),
     ("partition", pa.int32()), ("offset", pa.int64()), ("seq", pa.int32()), ("schema_name", pa.string()),
     ("table_name", pa.string()), ("query", pa.string()), ("ddl_type", pa.string()),
     ("admin", pa.struct([("partition_count", pa.int32())]))]
)  # fmt: skip


def log(*events: dict[str, Any]) -> pa.Table:
    """Events of topic t, each with an offset of its own unless it shows one."""
    return pa.Table.from_pylist([{"topic": "t", "offset": i, "seq": 0} | e for i, e in enumerate(events)], EVENTS)


def row(partition: int, ts: int | None, *, table: str = "a", op: str = "insert", **more: Any) -> dict[str, Any]:
    """A row change."""
    names = {"schema_name": "s", "table_name": table}
    return {"kind": "row", "commit_ts": ts, "partition": partition, "op": op, **names, **more}


def mark(partition: int, ts: int, **more: Any) -> dict[str, Any]:
    """A watermark."""
    return {"kind": "watermark", "commit_ts": ts, "partition": partition, **more}


LOG = log(
    row(1, 5), mark(1, 4), mark(0, 7), mark(0, 6), row(0, None, op="delete"), row(1, 3, topic="u"),
    {"kind": "ddl", "commit_ts": 9, "partition": 0, "schema_name": "s", "table_name": "b",
     "query": "RENAME TABLE s.a TO s.b", "ddl_type": "14"},
    {"kind": "admin", "partition": 1, "admin": {"partition_count": 3}}, row(1, 8, offset=700), row(1, 2),
)  # fmt: skip


def test_facts_of_a_small_log() -> None:
    """Each partition, watermark, statement, place and offset is there once."""
    facts = LogFacts.of(LOG)
    assert facts.homes == (("t", 0), ("t", 1), ("u", 1))
    marks = facts.watermarks
    assert [marks.home.tolist(), marks.offset.tolist(), marks.ts.tolist()] == [[0, 0, 1], [2, 3, 1], [7, 6, 4]]
    assert marks.highest_before().tolist() == [NO_TS, 7, NO_TS]
    assert (marks.greatest().tolist(), marks.least().tolist()) == ([7, 4, NO_TS], [6, 4, NO_TS])
    rows = {tuple(p[c] for c in ("topic", "partition", "op", "n", "commit_ts", "last_ts", "offset", "last_offset"))
            for p in facts.of_kind("row").to_pylist()}  # fmt: skip
    assert rows == {
        ("t", 0, "delete", 1, None, None, 4, 4), ("t", 1, "insert", 3, 2, 8, 0, 700), ("u", 1, "insert", 1, 3, 3, 5, 5),
    }  # fmt: skip
    [ddl] = facts.ddl.to_pylist()
    assert (ddl["commit_ts"], ddl["blocked"]) == (9, [{"schema": "s", "table": t} for t in ("b", "a")])
    assert [(a["partition"], a["offset"], a["partition_count"]) for a in facts.admin.to_pylist()] == [(1, 7, 3)]
    held = {(o["topic"], o["partition"], o["offset"]): o["held"] for o in facts.offsets.to_pylist()}
    one = {("t", 0, 0): 0b1011100, ("t", 1, 0): 0b1010000011, ("t", 1, 640): 1 << 60, ("u", 1, 0): 0b100000}
    assert held == one


@settings(deadline=None, max_examples=40)
@given(
    st.lists(
        st.builds(
            lambda kind, ts, **where: {**(mark(0, ts) if kind == "watermark" else row(0, ts, op=kind)), **where},
            st.sampled_from(["watermark", "insert", "delete"]), st.integers(0, 9),
            partition=st.integers(0, 2), offset=st.integers(0, 200), topic=st.sampled_from("tu"),
        ),
        max_size=30,
    ),
    st.integers(0, 99),
    st.integers(1, 9),
)  # fmt: skip
def test_parts_and_their_order_change_nothing(events: list[dict[str, Any]], seed: int, size: int) -> None:
    """The same events, shuffled and cut into tasks and batches, give the same facts."""
    whole = log(*events)
    shuffled = whole.take(pa.array(random.Random(seed).sample(range(len(events)), len(events)), pa.int64()))
    tasks = [shuffled[i : i + size] for i in range(0, len(events), size)]
    parts = [b for t in tasks for b in gathered(b[i : i + 2] for b in narrow_batches(t) for i in range(0, len(b), 2))]
    assert same(LogFacts.read(pa.Table.from_batches(parts, ARROW)), LogFacts.of(whole))


def test_a_task_that_sees_very_many_places_passes_some_on(monkeypatch: pytest.MonkeyPatch) -> None:
    """Sums of places and offsets that grow beyond the limit leave the task early, and lose nothing."""
    monkeypatch.setattr(gathering, "AT_ONCE", 8)
    events = log(*[row(i % 3, i, table=f"t{i % 40}", offset=i * 100) for i in range(200)])
    own = [b for t in narrow_batches(events) for b in (t[i : i + 5] for i in range(0, 200, 5))]
    parts = list(gathered(iter(own)))
    assert sum(len(p) for p in parts) > LogFacts.of(events).places.num_rows + 200
    assert same(LogFacts.read(pa.Table.from_batches(parts, ARROW)), LogFacts.of(events))


def test_an_empty_log_has_facts() -> None:
    """No event, no partition."""
    facts = LogFacts.of(log())
    assert (facts.homes, len(facts.watermarks), facts.places.num_rows) == ((), 0, 0)


def test_spark_gathers_what_arrow_does(spark) -> None:
    """Through any number of tasks, and the number of a place is Spark's own."""
    events = spark.createDataFrame(LOG.to_pylist(), schema=_ddl_of(LOG.schema)).repartition(3)
    facts = LogFacts.read(events.transform(log_facts).toArrow())
    assert same(facts, LogFacts.of(LOG))
    names = ("topic", "partition", "schema_name", "table_name")
    found = {
        tuple(r[c] for c in names): r["place"] for r in events.select(*names, place_col().alias("place")).collect()
    }
    assert {tuple(p[c] for c in names): p["place"] for p in facts.places.to_pylist()} == found


@pytest.mark.parametrize("length", [0, 1, 4, 7, 8, 31, 32, 33, 70])
def test_place_numbers_are_sparks(spark, length: int) -> None:
    """Names of every length class of XXH64, beyond ASCII too, and negative partitions."""
    name = ("ä日" * 40).encode()[: length - length % 5].decode(errors="ignore") + "x" * (length % 5)
    rows = [(name, -length, None, name), (None, None, name, "t")]
    frame = spark.createDataFrame(rows, "topic string, partition int, schema_name string, table_name string")
    assert [r[0] for r in frame.select(place_col()).collect()] == [place_number(*r) for r in rows]


@pytest.mark.parametrize("dictionary", [False, True])
def test_a_hash_of_a_text_and_a_number_is_sparks(spark, dictionary: bool) -> None:
    """Null texts are skipped; a column with a dictionary of its own is the same."""
    rows = [("insert", 5), (None, -1), ("update", 2**62), ("insert", 0), ("", 7)]
    expected = spark.createDataFrame(rows, "op string, n bigint").selectExpr("xxhash64(op, n) AS h").toArrow()
    texts = pa.array([op for op, _ in rows])
    found = hashes_of_both(texts.dictionary_encode() if dictionary else texts, np.array([n for _, n in rows]))
    assert found.tolist() == expected["h"].to_pylist()


@pytest.mark.parametrize("far", [1, 1 << 40])
def test_places_of_events_are_numbered_once(far: int) -> None:
    """Whether their names are counted or sorted."""
    code = np.random.default_rng(3).integers(0, 9, 200) * far
    first, of = distinct_first(code)
    _, expected, inverse = np.unique(code, return_index=True, return_inverse=True)
    assert (first.tolist(), of.tolist()) == (expected.tolist(), inverse.tolist())


@pytest.mark.parametrize("n", [3, 10_000])
@pytest.mark.parametrize("alike", [0, 1, 9, 30])
def test_places_are_found_by_their_numbers(n: int, alike: int) -> None:
    """Also where the highest bits of some are the same; a place that is not known is no other one."""
    r = np.random.default_rng(5)
    known = np.unique(r.integers(-1 << 63, (1 << 63) - 1, 40))
    known = np.unique([*known, *(known[[0, 7, -1]][:, None] ^ 1 << np.arange(40, 40 - alike, -1)).ravel()])
    of = r.integers(0, len(known), n)
    assert index_of(known[of], known).tolist() == of.tolist()
    for other in (known[3] ^ 1 << 50, known[3] ^ 1):
        with pytest.raises(ContractError):
            index_of(np.append(known[of], other), known)
    with pytest.raises(ContractError):
        index_of(known[of], known[:0])


def _ddl_of(schema: pa.Schema) -> Any:
    from pyspark.sql.pandas.types import from_arrow_schema

    return from_arrow_schema(schema)


@pytest.mark.parametrize(
    ("query", "table", "blocked"),
    [
        ("DROP DATABASE `s`", "", [("s", None)]),
        ("TRUNCATE TABLE `s`.`a`", "a", [("s", "a")]),
        ("RENAME TABLE `o`.`a` TO `s`.`b`", "b", [("s", "b"), ("o", "a")]),
        ("RENAME TABLE a TO b, c TO d", "b", [("s", "b"), ("s", "a"), ("s", "c"), ("s", "d")]),
        ("rename table a to b", "b", [("s", "b"), ("s", "a")]),
        ("ALTER TABLE `o`.`x``y.z` RENAME TO `s`.`b`", "b", [("s", "b"), ("o", "x`y.z")]),
        ("ALTER TABLE `s`.`a` ADD COLUMN `with table` INT", "a", [("s", "a")]),
        ("ALTER TABLE `s`.`a` EXCHANGE PARTITION `p` WITH TABLE `o`.`b`", "a", [("s", "a"), ("o", "b")]),
    ],
)
def test_tables_that_a_ddl_blocks(query: str, table: str, blocked: list[tuple[str, str | None]]) -> None:
    """A DDL orders its own table, all names of a rename, both tables of an exchange, or a whole schema."""
    assert list(blocked_tables("s", table, query)) == blocked

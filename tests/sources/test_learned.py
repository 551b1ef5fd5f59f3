"""The handle key that the log's DDL define is put into rows whose messages name none."""

from __future__ import annotations

import gzip
import json
from base64 import b64decode, b64encode
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession
from stored import VERSION, put_data, put_schema

import ticdc_lab
from ticdc_lab.answers.compared import are_equal
from ticdc_lab.codecs.handles import handles_of, with_handles
from ticdc_lab.codecs.kernel.arrow import arrow_schema
from ticdc_lab.codecs.keys import with_columns
from ticdc_lab.events.schema import DECODED, DISPATCH, KEYS
from ticdc_lab.facts import LogFacts
from ticdc_lab.sources.learned import may_be_ddl, put_into

DDL = "CREATE TABLE t (a INT NOT NULL, b INT NOT NULL, v INT, UNIQUE KEY x (a, b), UNIQUE KEY y (b))"


def event(offset: int, ts: int | None, kind: str = "row", *, key: str = "", **more: Any) -> dict[str, Any]:
    """An event of s.t at an offset; ``key`` is the column that the message names."""
    place = {"topic": "t", "partition": 0, "offset": offset, "seq": 0, "protocol": "canal-json", "kind": kind}
    return place | {"commit_ts": ts, "schema_name": "s", "table_name": "t"} | more


def image(key: str = "", **values: int) -> list[dict[str, Any]]:
    """Columns of a row."""
    return [{"name": n, "mysql_type": "int", "value": str(v), "is_key": n == key, "flags": None}
            for n, v in values.items()]  # fmt: skip


def decoded(events: list[dict[str, Any]]) -> pa.Table:
    """In the form of DECODED, with the hashes of what the images show."""
    plain = pa.Table.from_pylist(events, schema=arrow_schema(DECODED))
    names = [*KEYS.names, *DISPATCH.names]
    return pa.Table.from_batches(with_columns(names, plain.drop_columns(names).to_batches())).select(plain.column_names)


def log(key: str = "") -> pa.Table:
    """A table's life: rows before its DDL, after it, an update and a delete, and the ones of another table."""
    return decoded([
        event(0, 1, op="insert", columns=image(a=9, b=9, v=9)),
        event(1, 2, "ddl", query=DDL),
        event(2, 3, op="insert", columns=image(key, a=1, b=2, v=3)),
        event(3, 4, op="update", columns=image(key, a=1, b=7, v=3), before=image(key, a=1, b=2, v=3)),
        event(4, 5, op="delete", before=image(key, a=1, b=7, v=3)),
        event(5, 5, op="insert", columns=image(a=1, b=7), table_name="nopk"),
    ])  # fmt: skip


def test_rows_have_the_key_that_the_ddl_define_as_if_their_message_named_it() -> None:
    """From the DDL on, after and before a change, with the hashes; the index with the fewest columns counts."""
    events = log()
    facts = LogFacts.of(events)
    found, named = with_handles(events, handles_of(facts.ddl, protocol="canal-json"))
    assert named == {("s", "t")} and found.equals(log("b"))
    assert found["key_hash"].to_pylist()[2:5] != events["key_hash"].to_pylist()[2:5] == [None] * 3
    assert handles_of(facts.ddl, protocol="open-protocol") == {}
    assert with_handles(log("b"), handles_of(facts.ddl, protocol="canal-json"))[0].equals(log("b"))


def test_a_primary_key_or_a_nullable_index_is_none() -> None:
    """The message names a primary key itself, and NULLs are no identity."""
    for ddl in (
        "CREATE TABLE t (a INT PRIMARY KEY, b INT NOT NULL UNIQUE)",
        "CREATE TABLE t (a INT, b INT UNIQUE)",
        "CREATE TABLE t (a INT, KEY not_unique (a))",
    ):
        facts = LogFacts.of(decoded([event(0, 1, "ddl", query=ddl)]))
        assert handles_of(facts.ddl, protocol="canal-json") == {}


def undated(*queries: str, protocol: str = "canal-json") -> pa.Table:
    """The life of a table in a log whose messages have no commit_ts, with the keys that these DDL define put in."""
    rows = log().to_pylist()
    of_ddl = [event(10 + i, None, "ddl", query=query) for i, query in enumerate(queries)]
    events = decoded([*({**r, "commit_ts": None} for r in rows if r["kind"] == "row"), *of_ddl])
    return with_handles(events, handles_of(LogFacts.of(events).ddl, protocol=protocol))[0].slice(0, 4)


@pytest.mark.parametrize("protocol", ["canal-json", "canal", "maxwell"])
def test_a_log_without_commit_ts_has_the_key_of_a_table_that_has_one_all_the_time(protocol: str) -> None:
    """Columns may come. After a DDL that changes the key, is not understood, or ends an earlier table it has none."""
    expected = ["a,b,v,,b"] * 4
    assert undated(DDL, "ALTER TABLE t ADD COLUMN w INT", protocol=protocol)["layout"].to_pylist() == expected
    for others in (
        ["ALTER TABLE t DROP INDEX y"], ["ALTER TABLE t RENAME COLUMN b TO c"], ["ALTER TABLE t OUT OF THIS WORLD"],
        ["DROP TABLE t", "CREATE TABLE t (a INT NOT NULL UNIQUE, b INT)"], ["ALTER TABLE t ADD PRIMARY KEY (a)"],
    ):  # fmt: skip
        assert undated(DDL, *others, protocol=protocol)["key_hash"].to_pylist() == [None] * 4, others
    assert undated("DROP TABLE t", DDL, protocol=protocol)["key_hash"].to_pylist() == [None] * 4


def test_only_files_with_such_rows_are_written_anew(tmp_path: Path) -> None:
    """Row group by row group, under the same name."""
    events = log()
    handles = handles_of(LogFacts.of(events).ddl, protocol="canal-json")
    files = [tmp_path / name for name in ("part-0.parquet", "part-1.parquet")]
    pq.write_table(events, files[0], row_group_size=2)
    pq.write_table(events.slice(5), files[1])
    before = files[1].stat().st_mtime_ns
    assert put_into(files, handles) == (("s", "t"),)
    assert pq.read_table(files[0]).equals(log("b")) and files[1].stat().st_mtime_ns == before
    assert sorted(p.name for p in tmp_path.iterdir()) == ["part-0.parquet", "part-1.parquet"]
    assert put_into(files, handles) == () == put_into(files, {})


def test_an_opened_log_has_these_keys_and_names_their_tables(spark: SparkSession) -> None:
    """So canal-json compares with open-protocol row by row, whose messages name the key."""
    log = ticdc_lab.open("tests/data/torture/messages_canal-json-tidb.jsonl.gz", spark=spark)
    rows = log.events.where("kind = 'row' AND table_name = 'k_uq'")
    assert rows.count() == rows.where("key_hash IS NOT NULL").count() > 0
    assert any("torture.k_uq" in limit and "name no key" in limit for limit in log.limits)
    answer = log.compare("tests/data/torture/messages_open-protocol.jsonl.gz")
    assert are_equal(answer)


SOURCE = "tests/data/torture/messages_canal-json-tidb.jsonl.gz"


def test_an_opened_log_without_the_tidb_extension_has_these_keys(spark: SparkSession, tmp_path: Path) -> None:
    """The real encoder's messages without what the extension adds; loaded, too."""

    def plain(raw: str) -> str | None:
        message = json.loads(raw)
        value = json.loads(b64decode(message["value"]))
        del value["_tidb"]
        told = message | {"value": b64encode(json.dumps(value).encode()).decode()}
        return None if value["type"] == "TIDB_WATERMARK" else json.dumps(told)

    with gzip.open(SOURCE, "rt") as file:
        (tmp_path / "log.jsonl").write_text("\n".join(filter(None, map(plain, file))))
    for log in (opened(str(tmp_path / "log.jsonl"), spark=spark) for opened in (ticdc_lab.open, loaded)):
        rows = log.events.where("kind = 'row' AND table_name = 'k_uq'")
        assert rows.count() == rows.where("key_hash IS NOT NULL AND commit_ts IS NULL").count() > 0
        assert any("torture.k_uq" in limit and "name no key" in limit for limit in log.limits)


def loaded(path: str, *, spark: SparkSession) -> ticdc_lab.ChangeLog:
    """A log that is decoded again at each question."""
    return ticdc_lab.load(spark, path)


def test_a_log_that_is_not_materialised_has_them_as_well_and_says_so(spark: SparkSession, tmp_path: Path) -> None:
    """Its frames, what the engine writes (as to a URL), and a log without values: the hashes of each row are equal."""
    with_values = ticdc_lab.load(spark, SOURCE)
    kept = with_values.materialise(str(tmp_path / "values"))
    told = {"loaded": with_values, "engine": with_values._by_engine(str(tmp_path / "engine"), True),
            "no values": ticdc_lab.load(spark, SOURCE).materialise(str(tmp_path / "none"), images=False)}  # fmt: skip
    names = ["partition", "offset", "seq", "key_hash", "change_hash", "key_crc", "layout"]

    def rows(log: ticdc_lab.ChangeLog) -> pa.Table:
        own = log.events.where("kind = 'row' AND table_name = 'k_uq'").select(*names)
        return own.toArrow().sort_by([(n, "ascending") for n in names[:3]])

    expected = rows(kept)
    assert expected.num_rows and not expected["key_hash"].null_count
    for name, log in told.items():
        assert rows(log).equals(expected), name
        assert any("torture.k_uq" in limit and "name no key" in limit for limit in log.limits), name
    assert told["no values"].events.where("columns IS NOT NULL").limit(1).count() == 0


def test_ddl_are_found_among_packed_messages_too() -> None:
    """A message that is no JSON text is unpacked before it is put aside as no DDL."""
    texts = [b'{"isDdl":true}', b'{"isDdl": true}', b'{"isDdl":false,"sql":""}', b"\x04\x22\x4d\x18..", b"\xfb\x01",
             b'{"isDdl":true,"sql":"DEFAULT \\"isDdl\\":false"}', b'\x04"isDdl":false']  # fmt: skip
    found = may_be_ddl(pa.array(texts, pa.binary()), "canal-json")
    assert found.to_pylist() == [True, True, False, True, True, True, True]
    assert may_be_ddl(pa.array([b"\x01{}", b"\x00\x00\x00\x00\x01"]), "avro").to_pylist() == [True, False]


def test_a_csv_folder_has_the_keys_of_its_schema_files(spark: SparkSession, tmp_path: Path) -> None:
    """Opened, loaded, and without values; a schema file itself names a primary key alone."""
    columns = [{"ColumnName": n, "ColumnType": "INT", "ColumnPrecision": "11"} for n in "abv"]
    put_schema(tmp_path / "sink", *columns, Query=f"{DDL[:13]}s.{DDL[13:]}")
    rows = [f'"{op}","t","s",{VERSION + 9 + i},1,2,{i}' for i, op in enumerate("IUD")]
    put_data(tmp_path / "sink", "\n".join(rows) + "\n")
    log = ticdc_lab.load(spark, str(tmp_path / "sink"))
    for named, events in {
        "loaded": log.events,
        "stored": log.materialise(str(tmp_path / "values")).events,
        "no values": log.materialise(str(tmp_path / "none"), images=False).events,
    }.items():
        found = events.where("kind = 'row'").select("layout", "key_hash").distinct().toArrow().to_pylist()
        assert [r["layout"] for r in found] == ["a,b,v,,b"] and found[0]["key_hash"], named

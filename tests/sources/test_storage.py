"""Folders of the storage sink: the golden trees against the truth, csv in every setting, and damaged files."""

from __future__ import annotations

import gzip
import json
import os
import re
import shutil
import sys
from collections import Counter
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from conftest import ROOT, golden
from pyspark.sql import SparkSession

import ticdc_lab

sys.path.insert(0, str(ROOT / "tests"))
sys.path.insert(0, str(ROOT / "tests/codecs"))
import stored
from stored import INT, TEXT, TREES, VERSION, put, put_data, put_schema, rows_of, whole_folder
from test_golden import row_of, truth

from ticdc_lab.cli import main
from ticdc_lab.errors import ContractError, DispatchError, ProtocolError, SourceError
from ticdc_lab.events.schema import MESSAGES
from ticdc_lab.facts.watermarks import topic_watermarks
from ticdc_lab.log import Log
from ticdc_lab.settings import UNKNOWN, Settings
from ticdc_lab.settings.file import given_settings
from ticdc_lab.sources import storage
from ticdc_lab.sources.fsck import fsck
from ticdc_lab.sources.load import load
from ticdc_lab.sources.storage import files_at, files_of_versions, local_files, root_pattern
from ticdc_lab.transactions import transactions
from ticdc_lab.widgets.tabs import TABS

CHECKPOINT = 470603993791332352
HEX = given_settings({"csv.binary-encoding-method": "hex"})


@pytest.fixture(scope="module")
def trees(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The four golden trees."""
    return stored.unpack(tmp_path_factory.mktemp("golden"))


@cache
def golden_rows(root: Path, tree: str) -> list[dict[str, Any]]:
    """What a golden tree decodes to, the binary encoding reported."""
    return rows_of(root / tree, HEX if "oldvalue" in tree else UNKNOWN)


def expected_rows(tree: str) -> Counter[Any]:
    """Rows of the truth, without what the tree's form does not carry."""
    found: Counter[Any] = Counter()
    for (ts, schema, table, op, after, before), n in truth("truth_small.jsonl.gz")[0].items():
        whole = tree in ("small_canal-json", "small_csv_committs_oldvalue")
        kept = before if whole or op == "delete" else None
        found[ts if whole else None, schema, table, op, after, kept] += n
    return found


@pytest.mark.parametrize("tree", TREES)
def test_a_golden_tree_holds_exactly_the_rows_of_the_truth(trees: Path, tree: str) -> None:
    """Every row with every value, old ones where the files carry them, and nothing in quarantine."""
    rows = golden_rows(trees, tree)
    assert [r["reason"] for r in rows if r["error_class"]] == []
    assert Counter(row_of(r) for r in rows if r["kind"] == "row") == expected_rows(tree)


def test_nothing_is_missing_between_places_in_files_but_first_files_that_expired_are(
    spark: SparkSession, trees: Path, tmp_path: Path
) -> None:
    """So it is of the same messages in a file of another kind."""
    folder = tmp_path / "expired"
    shutil.copytree(trees / "small_canal-json", folder)
    streams = {path.parent: path for path in sorted(folder.rglob("CDC*1.json"))}
    first = next(path for at, path in streams.items() if (at / path.name.replace("1.json", "2.json")).exists())
    first.unlink()
    for source, late in ((trees / "small_canal-json", 0), (folder, 1)):
        log = load(spark, str(source))
        whole = log.materialise(str(tmp_path / f"out{late}"))
        log.messages.coalesce(1).write.parquet(str(tmp_path / f"copy{late}"))
        again = load(spark, str(tmp_path / f"copy{late}"), protocol="canal-json")
        for told in (whole, again.materialise(str(tmp_path / f"again{late}"))):
            assert told.counts is not None and (told.counts.lacking, told.counts.late) == (0, late)
            said = " ".join(told.limits)
            assert (said.count("The first files of partition"), said.count("hardly any two messages")) == (late, 0)


@pytest.mark.parametrize("tree", TREES)
def test_a_golden_tree_holds_the_ddl_of_the_truth_and_one_watermark_a_partition(trees: Path, tree: str) -> None:
    """Schema files are DDL in partition 0 by version; the checkpoint ends every partition."""
    rows = golden_rows(trees, tree)
    ddl = sorted((r["offset"], r["commit_ts"], r["query"]) for r in rows if r["kind"] == "ddl")
    assert Counter((ts, q) for _, ts, q in ddl) == truth("truth_small.jsonl.gz")[1]
    assert [ts for _, ts, _ in ddl] == sorted(ts for _, ts, _ in ddl)
    partitions = {r["partition"] for r in rows}
    marks = {r["partition"]: r for r in rows if r["kind"] == "watermark"}
    assert set(marks) == partitions and len(marks) == (11 if "across" in tree else 10)
    for r in rows:
        assert r["offset"] <= marks[r["partition"]]["offset"]
        assert marks[r["partition"]]["commit_ts"] == CHECKPOINT


@pytest.mark.parametrize("tree", TREES)
def test_the_rows_of_a_stream_are_in_commit_order_and_know_their_table_id(trees: Path, tree: str) -> None:
    """Offsets follow the reading order, and a partition folder gives the physical table id of the truth."""
    rows = sorted((r for r in golden_rows(trees, tree) if r["kind"] == "row"), key=lambda r: r["offset"])
    streams: dict[int, list[Any]] = {}
    for r in rows:
        streams.setdefault(r["partition"], []).append(r)
    for stream in streams.values():
        dated = [r["commit_ts"] for r in stream if r["commit_ts"] is not None]
        assert dated == sorted(dated)
        assert len({r["offset"] for r in stream}) == len(stream)
    with gzip.open(golden("truth_small.jsonl.gz"), "rt") as f:
        records = [json.loads(line) for line in f]
    wanted = Counter(r["table_id"] for d in records for r in d.get("rows", ()) if r["table"] == "parted")
    assert Counter(r["table_id"] for r in rows if r["table_name"] == "parted") == wanted
    assert {r["table_id"] for r in rows if r["table_name"] != "parted"} == {None}


def test_a_tree_of_ticdc_before_v6_5_3_holds_the_same(spark: SparkSession, trees: Path, tmp_path: Path) -> None:
    """Schema and index files lay beside the data: decoded alike, and fsck asks for no index file that no one wrote."""
    tree = "small_csv_committs_oldvalue"
    old = tmp_path / tree
    for path in [p for p in (trees / tree).rglob("*") if p.is_file() and p.suffix != ".index"]:
        name = path.relative_to(trees / tree)
        version = re.fullmatch(r"schema_(\d+)_\d+\.json", path.name)
        to = old / (name.parents[1] / version[1] / "schema.json" if version else name)
        to.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(path, to)
    keys = ("kind", "commit_ts", "schema_name", "table_name", "op", "key_hash", "change_hash", "query", "error_class")
    rows = (rows_of(old, HEX), golden_rows(trees, tree))
    found, wanted = (Counter(tuple(r[k] for k in keys) for r in of) for of in rows)
    assert found == wanted and list(old.glob("*/*/*/schema.json"))
    assert fsck(spark, str(old)).count() == 0


def test_csv_and_canal_json_give_the_same_types_keys_and_hashes(trees: Path) -> None:
    """One change has one identity, whichever form it was written in."""
    by_form = [
        {(r["commit_ts"], r["schema_name"], r["table_name"], r["op"], r["key_hash"], r["change_hash"],
          r["before_key_hash"]) for r in golden_rows(trees, tree) if r["kind"] == "row" and r["table_name"] != "nopk"}
        for tree in ("small_canal-json", "small_csv_committs_oldvalue")
    ]  # fmt: skip
    assert by_form[0] == by_form[1]


@pytest.mark.parametrize("tree", TREES)
def test_spark_loads_a_tree_and_tells_what_the_files_do_not_say(spark: SparkSession, trees: Path, tree: str) -> None:
    """Protocol, commit_ts and the binary encoding are detected from the files; counts add up; decoding is the same."""
    log = load(spark, str(trees / tree))
    assert log.protocol == ("canal-json" if "canal" in tree else "csv")
    assert log.has_commit_ts == (tree in ("small_canal-json", "small_csv_committs_oldvalue"))
    found = Counter((r["partition"], r["offset"], r["change_hash"]) for r in log.decoded.toArrow().to_pylist())
    assert found == Counter((r["partition"], r["offset"], r["change_hash"]) for r in golden_rows(trees, tree))


def test_settings_that_are_detected_from_some_table_versions_are_said(
    spark: SparkSession, trees: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of csv, whose settings no file names; canal-json has none of them."""
    every = [load(spark, str(trees / tree)).guesses for tree in ("small_csv", "small_canal-json")]
    monkeypatch.setattr("ticdc_lab.sources.storage._FILES_LOOKED_INTO", 1)
    some = [load(spark, str(trees / tree)).guesses for tree in ("small_csv", "small_canal-json")]
    assert not any("table versions" in sentence for of in (*every, some[1]) for sentence in of)
    said = [s for s in some[0] if re.search(r"first records of 1 of \d+ table versions", s)]
    assert len(said) == 1 and re.search(r"not reported: (\w+\.\w+ version \d+; ){5}\d+ more\. To set", said[0])


def test_each_table_is_looked_into_before_a_second_version_of_one(trees: Path) -> None:
    """Of 32 versions that are looked into none is of a table that has another one, while some table has none."""
    versions = list(files_of_versions(stored.listing_of(trees / "small_csv")))
    tables = len({v[:2] for v in versions})
    assert len({v[:2] for v in versions[:tables]}) == tables < len(versions)
    of = dict(reversed([(v[:2], v[2]) for v in versions]))
    assert all(of[v[:2]] >= v[2] for v in versions)


def test_watermarks_and_transactions_of_a_tree(spark: SparkSession, trees: Path) -> None:
    """The checkpoint proves every transaction of the truth whole; csv without commit_ts refuses the answer."""
    log = load(spark, str(trees / "small_csv_committs_oldvalue"))
    assert [r["resolved_ts"] for r in log.events.transform(topic_watermarks).collect()] == [CHECKPOINT]
    whole = log.events.transform(transactions).where("complete").count()
    assert whole == len({row[0] for row in truth("truth_small.jsonl.gz")[0]})
    with pytest.raises(ProtocolError, match="include-commit-ts"):
        load(spark, str(trees / "small_csv")).require_commit_ts("transactions")


@pytest.mark.parametrize("tree", ["small_canal-json", "small_csv_committs_oldvalue"])
def test_the_command_line_takes_a_folder(spark: SparkSession, trees: Path, tree: str) -> None:
    """watermarks, transactions and audit answer as for a topic: all is complete, nothing breaks a promise."""
    said = {}
    for name in ("watermarks", "transactions", "audit"):
        result = CliRunner().invoke(main, [name, str(trees / tree), "--json"], obj=spark)
        assert result.exit_code == 0, result.output
        said[name] = json.loads(result.stdout)
    assert {t["resolved_ts"] for t in said["watermarks"]["topics"]} == {CHECKPOINT}
    assert (said["transactions"]["rows"], said["transactions"]["pending"]) == (2101, 0)
    assert said["audit"]["findings"] == [] and said["audit"]["quarantined"] == 0


def test_a_folder_has_no_partitions_that_could_be_changed(spark: SparkSession, trees: Path) -> None:
    """Its streams are numbered like partitions, but no dispatcher placed a row: none is named, none is expanded."""
    tree = str(trees / "small_canal-json")
    told = CliRunner().invoke(main, ["advise", tree, "--partitions", "4"], obj=spark)
    assert "A storage sink has no partitions and no dispatchers" in told.output and "as now" not in told.output
    assert "Set 7 of 7 tables: Fin_Ops.nopk to table, Fin_Ops.Ledger to table, " in told.output, told.output
    refused = CliRunner().invoke(main, ["expand", tree, "--after", "8"], obj=spark)
    assert refused.exit_code == 2 and "is a folder of the storage sink, which has no partitions" in refused.output
    assert f"ticdc-lab advise {tree} --partitions 8" in refused.output


def test_nothing_compares_dispatchers_with_the_streams_of_a_folder(
    spark: SparkSession, trees: Path, tmp_path: Path
) -> None:
    """In report, workbench and Python; beside a number that was asked for, it is called a topic's."""
    tree = str(trees / "small_canal-json")
    log = Log(load(spark, tree).materialise(str(tmp_path / "decoded")), str(tmp_path))
    nothing, asked = log.what_if(), log.what_if(partitions=4)
    assert nothing.finding == "Nothing: a storage sink has no partitions and no dispatchers."
    assert nothing.details == [f"Dispatchers for a topic of these tables: ticdc-lab advise {tree} --partitions 4"]
    assert "the comparison is for a topic of these tables" in asked.limits[0]
    assert log.transactions().finding.endswith(" touch more than one stream.") and not log.watermarks().figures
    assert log.load().finding.startswith("Stream ")
    dispatched = log.dispatch(strategy="table", partitions=4)
    assert dispatched.limits[0].endswith("the count is for a topic of these tables.")
    assert "ticdc-lab expand" not in " ".join(log.advise().details)
    assert log.partitions().finding == nothing.finding and log.partitions().details == nothing.details
    assert "as recorded" not in set(asked.frames["guarantees"]["strategy"])
    assert log.contents().finding.endswith(" of 7 tables in a storage sink, which has no partitions.")
    with pytest.raises(SourceError, match="a storage sink has no partitions") as refused:
        TABS["dispatch"].make(log)
    assert str(refused.value.hint) == nothing.details[0]
    with pytest.raises(SourceError, match="a storage sink has no partitions"):
        TABS["partitions"].make(log)


def test_messages_are_records_with_their_place(spark: SparkSession, tmp_path: Path) -> None:
    """Topic is the folder, key the file, offset the file's rank and the record's byte; an update is one message."""
    root = tmp_path / "feed"
    put_schema(root, INT)
    path = put_data(root, '"I","t","s",false,1\r\n"D","t","s",true,1\r\n"I","t","s",true,2\r\n', 3)
    messages = load(spark, str(root)).messages
    assert messages.columns == MESSAGES.names
    rows = messages.where("partition = 1").orderBy("offset").collect()
    assert [(r.topic, bytes(r.key).decode(), r.offset - (2 << 40), bytes(r.value)) for r in rows] == [
        ("feed", path, 0, b'"I","t","s",false,1'),
        ("feed", path, 21, b'"D","t","s",true,1\r\n"I","t","s",true,2'),
    ]


def values(root: Path, settings: Settings = UNKNOWN) -> list[list[str | None]]:
    """The values of every row change, in order, of a folder without a fault."""
    rows = [r for r in rows_of(root, settings) if r["kind"] != "ddl"]
    assert [r["reason"] for r in rows if r["error_class"]] == []
    rows.sort(key=lambda r: (r["partition"], r["offset"]))
    return [[c["value"] for c in r["columns"] or r["before"]] for r in rows if r["kind"] == "row"]


def column(name: str, kind: str, **more: Any) -> dict[str, Any]:
    """A column of a schema file."""
    return {"ColumnName": name, "ColumnType": kind} | more


def test_values_take_the_form_of_the_events_contract(tmp_path: Path) -> None:
    """Binary is hex, ENUM and SET are numbers, floats are as MySQL prints them, quotes and line ends survive."""
    put_schema(
        tmp_path, column("e", "ENUM", ColumnElems=["a", "b,c"]), column("s", "SET", ColumnElems=["x", "y", "z"]),
        column("b", "BLOB"), column("f", "FLOAT"), column("v", "VARCHAR"),
    )  # fmt: skip
    put_data(
        tmp_path,
        '"I","t","s","b,c","x,z","AQI=",3.4e+38,"a""b\r\n,c"\r\n'
        '"I","t","s","","","",0,""\r\n"I","t","s",\\N,\\N,\\N,\\N,"\\N"\r\n"I","t","s","new","y,new","AA==",-0.5,"é"\r\n',
    )
    assert values(tmp_path) == [
        ["2", "5", "0x0102", "3.4e38", 'a"b\r\n,c'],
        ["0", "0", "0x", "0", ""],
        [None, None, None, None, "\\N"],
        ["new", "y,new", "0x00", "-0.5", "é"],
    ]


@pytest.mark.parametrize(
    ("pairs", "raw"),
    [
        (["csv.delimiter=;"], '"I";"t";"s";1;"a;,b"\r\n"D";"t";"s";2;\\N\r\n'),
        (["csv.delimiter=|@|"], '"I"|@|"t"|@|"s"|@|1|@|"a;,b"\r\n"D"|@|"t"|@|"s"|@|2|@|\\N\r\n'),
        (["csv.quote='"], "'I','t','s',1,'a;,b'\r\n'D','t','s',2,\\N\r\n"),
        (["csv.null=NULL"], '"I","t","s",1,"a;,b"\r\n"D","t","s",2,NULL\r\n'),
        (["csv.quote="], "I,t,s,1,a;\\,b\r\nD,t,s,2,\\N\r\n"),
        (["terminator=\\n"], '"I","t","s",1,"a;,b"\n"D","t","s",2,\\N\n'),
        (["terminator=%%"], '"I","t","s",1,"a;,b"%%"D","t","s",2,\\N%%'),
        ([], '"I","t","s",1,"a;,b"\n"D","t","s",2,\\N\n'),
        (["csv.output-handle-key=true"], '"I","t","s","h",1,"a;,b"\r\n"D","t","s","h",2,\\N\r\n'),
        ([], '"I","t","s",9,"h",1,"a;,b"\r\n"D","t","s",9,"h",2,\\N\r\n'),
        ([], '"I","t","s",9,false,"h",1,"a;,b"\r\n"D","t","s",9,false,"h",2,\\N\r\n'),
    ],
)
def test_csv_in_the_settings_of_a_changefeed(tmp_path: Path, pairs: list[str], raw: str) -> None:
    """Delimiter, quote, null text, terminator and the optional fields: the same two rows come out."""
    put_schema(tmp_path, INT, TEXT)
    put_data(tmp_path, raw)
    options = dict(pair.split("=") for pair in pairs)
    options |= {"csv.include-commit-ts": "false"} if "handle" in str(pairs) else {}
    assert values(tmp_path, given_settings(options)) == [["1", "a;,b"], ["2", None]]


def test_without_a_quote_backslashes_are_undone(tmp_path: Path) -> None:
    """Line ends, backslash and delimiter come back, and only the bare null text is NULL."""
    put_schema(tmp_path, INT, TEXT)
    put_data(tmp_path, "I,t,s,1,\\r\\n\\\\\\,\r\nI,t,s,2,\\\\N\r\n")
    assert values(tmp_path, given_settings({"csv.quote": ""})) == [["1", "\r\n\\,"], ["2", "\\N"]]


def test_an_empty_quote_and_null_of_a_changefeeds_file_are_used_and_the_folder_is_listed_once(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """TiCDC takes both as they are; it refuses an empty delimiter, and a quote of two characters."""
    root, file, listed = tmp_path / "sink", tmp_path / "changefeed.toml", []
    put_schema(root, INT, TEXT)
    put_data(root, "I,t,s,1,\\r\\n\\\\\\,\r\nI,t,s,2,\r\n")
    file.write_text("case-sensitive = true\n[sink]\nprotocol = 'csv'\ncsv = {quote = '', null = ''}\n")
    monkeypatch.setattr(storage, "local_files", lambda folder: listed.append(folder) or local_files(folder))
    log = load(spark, str(root), changefeed=str(file))
    rows = log.events.where("kind = 'row'").orderBy("partition", "offset").collect()
    assert [[c["value"] for c in r["columns"]] for r in rows] == [["1", "\r\n\\,"], ["2", None]]
    assert [log.settings.value(f"sink.csv.{name}") for name in ("quote", "null")] == ["", ""]
    assert len(listed) == 1
    for wrong in ("delimiter = ''", "quote = '##'"):
        file.write_text(f"[sink]\nprotocol = 'csv'\n[sink.csv]\n{wrong}\n")
        with pytest.raises(DispatchError, match=r"ErrSinkInvalidConfig.*expected at"):
            load(spark, str(root), changefeed=str(file))


@pytest.mark.parametrize(
    "pair",
    ["csv.quotes=x", "csv.delimiter=", "csv.include-commit-ts=maybe", "csv.columns=a", "terminator=", "date-separator=",
     "csv.binary-encoding-method=rot13", "date-separator=week", "csv.quote=ab"],
)  # fmt: skip
def test_a_setting_that_is_none_is_refused(pair: str) -> None:
    """A wrong name or value shows what was expected."""
    name, _, text = pair.partition("=")
    with pytest.raises((ContractError, DispatchError), match=r"expected|TiCDC has no setting"):
        given_settings({name: text})


GOOD = '"I","t","s",1,"a"\r\n'


@pytest.mark.parametrize(
    ("raw", "error_class", "good"),
    [
        (b"", "empty-file", 0),
        ((GOOD + '"I","t","s",2').encode(), "half-written", 1),
        ((GOOD + '"I","t","s",2,"b').encode(), "half-written", 1),
        ((GOOD + '"I","t","s",2\r\n' + GOOD).encode(), "csv-fields", 2),
        ((GOOD + '"I","t","s",2,"b",3\r\n' + GOOD).encode(), "csv-fields", 2),
        ((GOOD + '"X","t","s",2,"b"\r\n' + GOOD).encode(), "csv-operation", 2),
        (GOOD.encode() + b'"I","t","s",2,"\xff"\r\n', "bad-utf8", 1),
        (b"\r\n" + GOOD.encode() * 2, "csv-operation", 2),
    ],
)
def test_a_damaged_record_is_in_quarantine_and_the_others_are_read(
    tmp_path: Path, raw: bytes, error_class: str, good: int
) -> None:
    """Records in = decoded + quarantined; the reason shows what was expected."""
    put_schema(tmp_path, INT, TEXT)
    put_data(tmp_path, raw)
    rows = rows_of(tmp_path)
    assert [r["error_class"] for r in rows if r["error_class"]] == [error_class]
    assert sum(r["kind"] == "row" for r in rows) == good
    bad = next(r for r in rows if r["error_class"])
    assert bad["reason"] and bad["key"].decode().endswith(".csv") and bad["topic"] == tmp_path.name


@pytest.mark.parametrize("damaged", [0, 4, 8])
@pytest.mark.parametrize("by", [b"", b'"', b",", b"\n", b"\r", b"x", b"\0"])
@pytest.mark.parametrize("fields", ["", f"{VERSION + 1},", f"{VERSION + 1},false,"])
def test_a_record_damaged_anywhere_costs_itself_alone(tmp_path: Path, damaged: int, by: bytes, fields: str) -> None:
    """The first one too, from which alone nothing is informed of the others: one byte of it lost or another."""
    records = [f'"I","t","s",{fields}{i},"a{i},\n"\r\n'.encode() for i in range(9)]
    whole = [str(i) for i in range(9) if i != damaged]
    places = range(len(records[damaged]) - 2)
    for at in places:  # a stream for each, all read at once
        broken = records[damaged][:at] + by + records[damaged][at + 1 :]
        put_schema(tmp_path, INT, TEXT, where=f"s/t{at:02}")
        put_data(
            tmp_path, b"".join([*records[:damaged], broken, *records[damaged + 1 :]]), where=f"s/t{at:02}/{VERSION}"
        )
    rows = [r for r in rows_of(tmp_path) if r["kind"] == "row"]
    for at in places:
        of = [r["columns"] for r in rows if r["partition"] == 1 + at]
        found = {columns[0]["value"]: columns[1]["value"] for columns in of}
        assert [found.get(i) for i in whole] == [f"a{i},\n" for i in whole], at
        assert len(of) <= 9


def test_half_an_update_is_no_delete(tmp_path: Path) -> None:
    """A D with is-update true whose I is not there is in quarantine: taken for a delete it would lose a row."""
    put_schema(tmp_path, INT)
    put_data(tmp_path, '"D","t","s",true,1\r\n"I","t","s",false,7\r\n')
    rows = rows_of(tmp_path)
    assert [r["error_class"] for r in rows if r["error_class"]] == ["csv-half-update"]
    assert [r["op"] for r in rows if r["kind"] == "row"] == ["insert"]


def test_canal_json_that_is_cut_loses_its_last_record_only(tmp_path: Path) -> None:
    """A last line that is whole counts, also without its line end; one that is cut is in quarantine."""
    row = {"database": "s", "table": "t", "pkNames": ["id"], "isDdl": False, "type": "INSERT",
           "mysqlType": {"id": "int"}, "data": [{"id": "1"}], "_tidb": {"commitTs": 5}}  # fmt: skip
    text = json.dumps(row).encode()
    put_data(tmp_path, text + b"\r\n" + text, ext="json")
    put_data(tmp_path, text + b"\r\n" + text[:-3], 2, ext="json")
    rows = rows_of(tmp_path)
    assert sum(r["kind"] == "row" for r in rows) == 3
    assert [r["error_class"] for r in rows if r["error_class"]] == ["not-json"]


def test_csv_of_a_version_without_a_usable_schema_file_is_in_quarantine_record_by_record(tmp_path: Path) -> None:
    """Without columns nothing can be read, and every record shows why."""
    put_data(tmp_path, GOOD * 3)
    assert Counter(r["error_class"] for r in rows_of(tmp_path)) == {"schema-missing": 3}
    path = tmp_path / put_schema(tmp_path, INT, TEXT)
    path.rename(path.with_name(f"schema_{VERSION}_0123456789.json"))
    assert Counter(r["error_class"] for r in rows_of(tmp_path)) == {"schema-unusable": 3, "schema-checksum": 1}


@pytest.mark.parametrize(
    "raw", [b"", b"{", b'{"checkpoint-ts":"5"}', b'{"checkpoint-ts":-1}', b"[]", b"\xff", b"[" * 100_000]
)
def test_damaged_metadata_is_in_quarantine(tmp_path: Path, raw: bytes) -> None:
    """Without a checkpoint there is no watermark, and the reason is kept."""
    put(tmp_path, "metadata", raw)
    put_schema(tmp_path, INT, TEXT)
    rows = rows_of(tmp_path)
    assert [r["error_class"] for r in rows] == [None, "bad-metadata"]


def test_text_that_is_none_in_a_schema_file_stops_no_load(tmp_path: Path) -> None:
    """JSON can escape half a surrogate pair, which no text can hold."""
    put_schema(tmp_path, INT, TEXT, Query="\ud800")
    put_data(tmp_path, GOOD)
    assert [r["error_class"] for r in rows_of(tmp_path)] == ["schema-not-json", "schema-unusable"]


@pytest.mark.parametrize(
    ("root", "path", "below"),
    [
        ("s3a://log/log/", "s3a://log/log/s/t/x", "s/t/x"), ("s3a://b/", "s3a://b/b/x", "b/x"),
        ("s3a://b/a.b/", "s3a://b/a.b/a.b/x", "a.b/x"), ("hdfs:///d/", "hdfs://nn:80/d/d/x", "d/x"),
        ("file:///d/", "file:/d/d/x", "d/x"),
    ],
)  # fmt: skip
def test_a_path_below_the_root_is_told_from_the_root(root: str, path: str, below: str) -> None:
    """Also where a bucket and a folder in it have the same name, and what of the URL a file system writes."""
    assert re.sub(root_pattern(root), "", path) == below


def test_unknown_files_are_in_quarantine(tmp_path: Path) -> None:
    """A file that the sink does not write is named, not read and not lost."""
    stored.whole_folder(tmp_path)
    put(tmp_path, "s/t/notes.txt", "x")
    bad = [r for r in rows_of(tmp_path) if r["error_class"]]
    assert [(r["error_class"], r["key"], r["value"]) for r in bad] == [("unknown-file", b"s/t/notes.txt", None)]


@pytest.mark.parametrize("name", [".DS_Store", "s/_SUCCESS", "s/t/._CDC.csv", "__MACOSX/s/x", "s/t/Thumbs.db"])
def test_what_systems_and_tools_put_beside_files_is_no_message(tmp_path: Path, name: str) -> None:
    """It has no data, so none is missing."""
    stored.whole_folder(tmp_path)
    put(tmp_path, name, "x")
    assert not [r for r in rows_of(tmp_path) if r["error_class"]]


@pytest.mark.parametrize(
    ("gone", "said"),
    [
        ("CDC*2.json", "except for data in 1 missing file"),
        ("CDC*3.json", "except for data in 1 missing file"),
        ("CDC*[12].json", "except for data before its first offsets"),
    ],
)
def test_a_missing_file_is_added_to_what_is_called_complete(
    spark: SparkSession, trees: Path, tmp_path: Path, gone: str, said: str
) -> None:
    """Numbers of later files or an index name it; files before the first of a stream may have expired."""
    folder = shutil.copytree(trees / "small_canal-json", tmp_path / "gone")
    [within] = {path.parent for path in folder.glob("Fin_Ops/Customers/*/*/CDC*.json")}
    for path in within.glob(gone):
        path.unlink()
    log = ticdc_lab.open(str(folder), spark=spark)
    assert said in log.watermarks().finding
    named = f"1 data file is missing in {within.relative_to(folder)}, "
    assert any(limit.startswith(named) for limit in log.limits) == ("missing file" in said)


def test_an_index_without_its_data_files_tells_of_them(spark: SparkSession, trees: Path, tmp_path: Path) -> None:
    """Also where no other file of the stream is there."""
    folder = shutil.copytree(trees / "small_canal-json", tmp_path / "gone")
    gone = [*folder.glob("Fin_Ops/Customers/*/*/CDC*.json"), *folder.glob("shop/orders/470603993604161536/*/CDC*.json")]
    for path in gone:
        path.unlink()
    log = ticdc_lab.open(str(folder), spark=spark)
    said = f"{len(gone)} missing files"
    assert said in log.audit().finding and said in log.watermarks().finding


def test_a_checkpoint_alone_is_no_log_of_a_protocol(spark: SparkSession, trees: Path, tmp_path: Path) -> None:
    """No finding is no proof there."""
    (tmp_path / "metadata").write_bytes((trees / "small_canal-json/metadata").read_bytes())
    log = ticdc_lab.open(str(tmp_path), spark=spark)
    assert any("no file of any table" in limit for limit in log.limits)


@pytest.mark.parametrize("other", ["small_csv_committs_oldvalue", "small_canal-json"])
def test_files_of_two_changefeeds_in_one_folder_are_told(trees: Path, tmp_path: Path, other: str) -> None:
    """One of them wrote csv, or numbers with fewer digits."""
    folder = shutil.copytree(trees / "small_canal-json", tmp_path / "both")
    for path in (trees / other / "shop/orders").rglob("CDC*"):
        to = folder / path.relative_to(trees / other)
        to.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(path, to.with_name(path.name.replace("CDC" + "0" * 14, "CDC")))
    found = storage.listed(local_files(folder), str(folder), UNKNOWN, by_path=True)
    said = storage.of_two_writers(found)
    assert ("others canal-json" if "csv" in other else "the number of another one") in said
    assert not storage.of_two_writers(
        storage.listed(local_files(trees / other), str(trees / other), UNKNOWN, by_path=True)
    )


@pytest.mark.parametrize("tree", ["small_csv_committs_oldvalue", "small_canal-json"])
def test_a_folder_of_the_sink_with_other_names_is_refused(
    spark: SparkSession, trees: Path, tmp_path: Path, tree: str
) -> None:
    """As values alone, a JSON file each would be of no order, and to record a topic is no advice for a folder."""
    for path in (trees / tree).rglob("CDC*.*[vn]"):
        to = tmp_path / path.relative_to(trees / tree).with_name(f"part-{path.name[-9:]}")
        to.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(path, to)
    with pytest.raises(SourceError, match="has the folders of TiCDC's storage sink") as refused:
        ticdc_lab.open(str(tmp_path), spark=spark)
    assert "with the names of its files" in refused.value.hint and "part-0" in refused.value.message


def test_zero_bytes_at_the_end_of_a_data_file_are_named(trees: Path, tmp_path: Path) -> None:
    """A crash of who copies the files leaves them; the records before are read."""
    folder = shutil.copytree(trees / "small_canal-json", tmp_path / "zeros")
    whole = rows_of(folder)
    [path] = folder.glob("shop/orders/470603993604161536/*/CDC*2.json")
    path.write_bytes(path.read_bytes() + bytes(4_096))
    found = rows_of(folder)
    assert [r for r in found if not r["error_class"]] == whole
    [named] = [r for r in found if r["error_class"]]
    assert named["error_class"] == "zeroed-end" and "the last 4,096 bytes are zero" in named["reason"]


def require_named(folder: Path, file: Path, why: str, spark: SparkSession) -> None:
    """Broken chains across a file are warnings that name it; one in a stream whose files are whole is an error."""
    for cut in folder.glob("shop/audit/*/*/CDC*2.json"):
        cut.write_bytes(b"".join(line for i, line in enumerate(cut.open("rb")) if i % 3))
    found = ticdc_lab.open(str(folder), spark=spark).audit().frames["findings"]
    by_table = {table: {*own["severity"]} for table, own in found.groupby("table")}
    assert by_table == {"shop.orders": {"warning"}, "shop.audit": {"error"}}
    of_gap = found[found["severity"] == "warning"]
    named = f"it may lie in {file.relative_to(folder)}, {why}"
    assert all(said.endswith(named) for said in [*of_gap["cause"], *of_gap["message"]])


@pytest.mark.parametrize(
    "damage", [lambda whole: b"", lambda whole: whole[:500] + bytes(4_096)], ids=["empty", "zeros"]
)
def test_a_chain_of_images_across_a_damaged_file_is_a_warning_that_names_it(
    spark: SparkSession, trees: Path, tmp_path: Path, damage: Callable[[bytes], bytes]
) -> None:
    """As across a missing one; a broken chain in a stream whose files are whole stays an error."""
    folder = shutil.copytree(trees / "small_canal-json", tmp_path / "damaged")
    [bad] = folder.glob("shop/orders/470603993604161536/*/CDC*2.json")
    bad.write_bytes(damage(bad.read_bytes()))
    require_named(folder, bad, "which could not be read in full", spark)


@pytest.mark.parametrize("sent", [True, False])
def test_a_chain_of_images_across_a_missing_file_is_a_warning_that_names_it(
    spark: SparkSession, trees: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, sent: bool
) -> None:
    """A broken chain in a stream that has all its files stays an error; also where marks are gathered by the engine."""
    monkeypatch.setattr(sys.modules["ticdc_lab.audit.marks"], "is_sent", lambda *_: sent)
    folder = shutil.copytree(trees / "small_canal-json", tmp_path / "gone")
    [gone] = folder.glob("shop/orders/470603993604161536/*/CDC*2.json")
    gone.unlink()
    require_named(folder, gone, "which is missing", spark)


def test_a_missing_schema_file_is_named_and_what_it_defines_is_not_judged(
    spark: SparkSession, trees: Path, tmp_path: Path
) -> None:
    """By the definition before it, the rows' new columns would be errors."""
    folder = shutil.copytree(trees / "small_canal-json", tmp_path / "gone")
    [gone] = folder.glob("shop/orders/meta/schema_470603993604161536_*.json")
    gone.unlink()
    log = ticdc_lab.open(str(folder), spark=spark)
    told, named = log.audit(), "shop/orders/meta/schema_470603993604161536_*.json"
    assert told.frames["findings"].empty and any(named in limit for limit in log.limits)
    assert any("columns are defined" in limit and named in limit for limit in told.limits)


@pytest.mark.parametrize("protocol", ["csv_committs_oldvalue", "canal-json"])
def test_a_byte_order_mark_of_a_file_is_no_message(
    spark: SparkSession, trees: Path, tmp_path: Path, protocol: str
) -> None:
    """An editor put it before data, definitions, index and checkpoint."""
    tree = f"small_{protocol}"
    folder = shutil.copytree(trees / tree, tmp_path / tree)
    for path in folder.rglob("*"):
        if path.is_file():
            path.write_bytes(b"\xef\xbb\xbf" + path.read_bytes())
    given = HEX if "oldvalue" in tree else UNKNOWN
    found, expected = rows_of(folder, given), rows_of(trees / tree, given)
    placed = ("offset", "value")
    plain = [[{k: v for k, v in r.items() if k not in placed} for r in rows] for rows in (found, expected)]
    assert plain[0] == plain[1] and not [r for r in found if r["error_class"]]


def test_links_are_never_followed(tmp_path: Path) -> None:
    """A linked file, a linked folder and a link to the folder above are refused; what is behind is not read."""
    root, outside = tmp_path / "feed", tmp_path / "outside"
    stored.whole_folder(root)
    put_data(outside, '"I","t","s",1,77,"secret"\r\n')
    (root / f"s/t/{VERSION}/CDC{3:020d}.csv").symlink_to(outside / f"s/t/{VERSION}/CDC{1:020d}.csv")
    (root / "other").symlink_to(outside / "s")
    (root / "up").symlink_to("..")
    rows = rows_of(root)
    assert Counter(r["error_class"] for r in rows if r["error_class"]) == {"link": 3}
    assert "secret" not in str(rows) and sum(r["kind"] == "row" for r in rows) == 3


def test_a_folder_that_becomes_a_link_after_the_listing_is_not_followed(tmp_path: Path) -> None:
    """The worker looks again: a link anywhere in the path gives no byte."""
    from ticdc_lab.sources.storage_reading import Unreadable, read_inside

    put(tmp_path, "outside/a", "secret")
    put(tmp_path, "feed/x/a", "mine")
    assert read_inside(str(tmp_path / "feed"), "x/a") == b"mine"
    (tmp_path / "feed/y").symlink_to(tmp_path / "outside")
    for path in ("y/a", "../outside/a"):
        with pytest.raises(Unreadable, match="link"):
            read_inside(str(tmp_path / "feed"), path)


def test_a_pipe_is_refused_and_nothing_waits_for_it(tmp_path: Path) -> None:
    """What is no plain file is named."""
    stored.whole_folder(tmp_path)
    os.mkfifo(tmp_path / f"s/t/{VERSION}/CDC{9:020d}.csv")
    assert [r["error_class"] for r in rows_of(tmp_path) if r["error_class"]] == ["no-plain-file"]


def test_hadoop_lists_what_the_operating_system_lists(classic: SparkSession, trees: Path) -> None:
    """A URL is listed in a few calls to the JVM, also what Spark takes for hidden."""
    root = trees / "small_csv"
    put(root.parent / "odd", "_hidden/a b%20é;, length=3", "xyz")
    for folder in (root, root.parent / "odd"):
        listed = {f.path for f in files_at(classic, f"file://{folder}")}
        assert listed == {f.path for f in local_files(folder)}
    with pytest.raises(SourceError, match="cannot be listed"):
        list(files_at(classic, f"file://{root}/nowhere"))


def test_a_folder_that_only_spark_can_read_gives_the_same(classic: SparkSession, trees: Path) -> None:
    """Where workers do not see the files, Spark brings them: rows, table ids and quarantine are the same."""
    from ticdc_lab.events.schema import DECODED
    from ticdc_lab.sources import storage

    root = trees / "small_csv_committs_oldvalue"
    extra = put(root, "notes.txt", "x")
    try:
        found = storage.listing(classic, f"file://{root}", local=None, settings=UNKNOWN)
        files, reading, has_ts = storage.opened(classic, found, settings=UNKNOWN)
        decoded = files.frame().mapInArrow(reading.events(images=False), DECODED).toArrow().to_pylist()
    finally:
        extra.unlink()
    assert has_ts and reading.root is None and reading.settings.value("csv.binary-encoding-method") == "hex"
    wanted = Counter(
        (r["partition"], r["offset"], r["change_hash"], r["table_id"]) for r in golden_rows(trees, root.name)
    )
    wanted[None, None, None, None] += 1
    assert Counter((r["partition"], r["offset"], r["change_hash"], r["table_id"]) for r in decoded) == wanted


def test_a_folder_that_is_none_of_the_sink_is_said_to_be_none(spark: SparkSession, tmp_path: Path) -> None:
    """Asked for by kind, a folder without such files and a plain file are refused."""
    put(tmp_path, "a.jsonl", "{}\n")
    with pytest.raises(SourceError, match="no file of TiCDC's storage sink"):
        load(spark, str(tmp_path), source_kind="storage")
    with pytest.raises(SourceError, match="no folder"):
        load(spark, str(tmp_path / "a.jsonl"), source_kind="storage")


def test_a_folder_above_or_below_the_changefeeds_names_where_it_lies(spark: SparkSession, tmp_path: Path) -> None:
    """One level too high, two changefeeds below, and a schema's or table's folder; the right one is read."""
    root = stored.whole_folder(tmp_path / "up/cf1")
    for source, said in ((tmp_path / "up", "it lies in cf1/"), (root / "s", str(root)), (root / "s/t", str(root))):
        for read in (load, fsck):
            with pytest.raises(SourceError, match=re.escape(said)):
                read(spark, str(source))
    stored.whole_folder(tmp_path / "up/cf2")
    with pytest.raises(SourceError, match=re.escape("the files of 2 changefeeds, in cf1/, cf2/")):
        load(spark, str(tmp_path / "up"))
    (tmp_path / "up/cf2/metadata").unlink()  # then the other one, with its checkpoint, is meant
    with pytest.raises(SourceError, match=re.escape("it lies in cf1/")):
        load(spark, str(tmp_path / "up"), source_kind="storage")
    assert load(spark, str(root)).protocol == "csv"


def test_table_ids_as_path_and_dispatchers_in_names(tmp_path: Path) -> None:
    """A physical table lies under its number, and each dispatcher of a table has a stream of its own."""
    put_schema(tmp_path, INT, TEXT, where="112")
    put_data(tmp_path, '"I","t","s",1,"a"\r\n', where=f"112/{VERSION}/2026-02-02")
    put_schema(tmp_path, INT, TEXT, where="s/u", Table="u")
    for dispatcher in ("1a-2b", "3c"):
        put(tmp_path, f"s/u/{VERSION}/CDC_{dispatcher}_{1:020d}.csv", '"I","u","s",2,"b"\r\n')
    rows = [r for r in rows_of(tmp_path) if r["kind"] == "row"]
    assert sorted((r["table_name"], r["table_id"], r["partition"]) for r in rows)[0][:2] == ("t", 112)
    assert len({r["partition"] for r in rows}) == 3 and len(rows) == 3


def test_a_folder_of_csv_is_loaded_beside_records_that_cannot_be_decoded(spark: SparkSession, tmp_path: Path) -> None:
    """The others count, and no record is looked for among the protocols of topics: csv is none."""
    root = whole_folder(tmp_path / "sink")
    put_data(root, f'"I","t","s",{VERSION + 4},no number,"a"\n', 3)
    log = load(spark, str(root)).materialise(str(tmp_path / "decoded"))
    assert log.counts is not None and log.counts.quarantined == 1 and not log.strangers
    assert log.events.where("kind = 'row'").count() == 3

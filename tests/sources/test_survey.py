"""A look at a source shows what it is and what to do, without reading it all."""

from __future__ import annotations

import gzip
import html
import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pytest
from click.testing import CliRunner, Result
from conftest import golden
from pyspark.sql import SparkSession

import ticdc_lab
from ticdc_lab import load
from ticdc_lab.answers import surveyed
from ticdc_lab.answers.what_it_holds import _by_table
from ticdc_lab.cli import main
from ticdc_lab.engine import speeds
from ticdc_lab.errors import SourceError
from ticdc_lab.sources.places import Size
from ticdc_lab.sources.survey import HEAD, Found, _of_counts, _rows_by_table, survey
from ticdc_lab.widgets.source_bar import SourceBar

OPEN = str(golden("messages_open-protocol_small.jsonl.gz"))


@pytest.fixture(scope="module")
def found(spark: SparkSession) -> Found:
    """The golden log in the open protocol, on a machine that read no log yet."""
    return replace(survey(spark, OPEN), load_s=None)


def test_a_capture_file_is_described(found: Found) -> None:
    """Kind, protocol, size, tables, partitions, first time, and how long reading takes."""
    assert (found.source_kind, found.protocol, found.partitions) == ("capture", "open-protocol", (0, 1, 2, 3))
    assert found.size == Size(Path(OPEN).stat().st_size, 1470, "counted", True)
    assert len(found.tables) == 7
    assert found.first_ts is not None and found.last_ts is not None and found.first_ts < found.last_ts
    assert found.words.startswith("Capture files in open-protocol: 1,470 messages (counted), 161 KB. Seen so far: 7 ")
    assert found.advice == (
        "Read all of it. Nothing like it was read on this machine yet, so how long reading it takes is not known.",
    )
    assert dict(zip(found.tables, found.rows_seen, strict=True))["shop.orders"] > 0
    assert list(found.rows_seen) == sorted(found.rows_seen, reverse=True)


def test_how_long_it_takes_is_what_such_logs_took_here(spark: SparkSession, tmp_path: Path) -> None:
    """A read leaves its time; the next look reports it, for the same protocol and engine only."""
    assert survey(spark, OPEN).load_s is None
    load(spark, OPEN).materialise(str(tmp_path / "decoded"))
    found = survey(spark, OPEN)
    assert found.load_s is not None and found.load_s > 0
    assert found.advice[0].startswith("Read all of it. Reading it takes about ")
    assert survey(spark, str(golden("messages_canal-json-tidb_small.jsonl.gz"))).load_s is None
    (told,) = json.loads(speeds.place().read_text()).values()
    assert told[0][0] == 1470 and told[0][1] == pytest.approx(found.load_s, abs=0.001)


def test_what_was_not_looked_at_is_said(found: Found) -> None:
    """A look at some messages proves nothing of the others; where all were seen there is nothing to show."""
    assert found.unknown[0].startswith("Only ")
    assert replace(found, seen=1470).unknown == ()


def test_what_takes_long_is_offered_as_a_sample(found: Found) -> None:
    """By table or time, as the command line takes it; of a topic the broker can leave out what came before."""
    large = replace(found, load_s=400.0)
    assert large.is_large
    sample = "Look at a sample first: some tables or a window of time."
    assert large.advice[0] == f"Reading it takes about 6 min 40 s, as such logs did here before. {sample}"
    unread = replace(large, load_s=None)
    assert not unread.is_large and replace(unread, size=Size(1, 3_000_001, "counted", True)).is_large
    assert large.flags.startswith(f"--tables {large.tables[0]} --from '2026-")
    assert not any("startingTimestamp" in a for a in large.advice)
    topic = replace(large, source_kind="kafka", load_s=None, size=Size(None, None, "unknown", False))
    assert topic.advice[0].startswith("Nothing like it was read on this machine yet")
    assert "startingTimestamp" in topic.advice[-1]


def test_each_kind_of_place_is_told(classic: SparkSession, tmp_path: Path) -> None:
    """A Parquet file, a Delta table, the name of a table and a storage folder, with the messages each holds."""
    messages = load(classic, OPEN).messages.cache()
    messages.write.parquet(str(tmp_path / "log.parquet"))
    messages.write.format("delta").save(str(tmp_path / "lake"))
    messages.createOrReplaceTempView("recorded_topic")
    shutil.unpack_archive(golden("storage_small.tar.gz"), tmp_path / "storage")
    folder = next(p for p in sorted((tmp_path / "storage").rglob("metadata"))).parent
    kinds = {"log.parquet": "parquet", "lake": "delta"}
    for name, kind in kinds.items():
        found = survey(classic, str(tmp_path / name))
        assert (found.source_kind, found.protocol, found.size.messages) == (kind, "open-protocol", 1470)
    table = survey(classic, "recorded_topic", source_kind="table")
    assert (table.source_kind, table.protocol, table.size.messages) == ("table", "open-protocol", None)
    assert table.is_large, "nobody knows how long it takes"
    storage = survey(classic, str(folder))
    assert storage.source_kind == "storage"
    assert storage.size.messages is not None and not storage.size.is_exact
    classic.catalog.dropTempView("recorded_topic")
    messages.unpersist()


def test_of_a_storage_folder_files_are_read_until_there_are_enough_messages(
    spark: SparkSession, tmp_path: Path
) -> None:
    """The first file of a part is not all of it; a guess by the size that is too small does not stay."""
    shutil.unpack_archive(golden("storage_small.tar.gz"), tmp_path)
    found = survey(spark, str(tmp_path / "storage" / "small_csv"))
    assert found.seen > HEAD and len(found.tables) == 7
    assert found.log is not None and found.log.messages.count() == found.seen  # so all of it was read
    assert found.is_whole and f": {found.seen:,} messages (all read)" in found.words
    cut = replace(found, most_of_task=HEAD)
    assert not cut.is_whole and "all read" not in cut.words
    fewer = replace(cut, size=replace(found.size, messages=found.seen - 1))
    assert f"at least {found.seen:,} messages (read)" in fewer.words


def test_where_nothing_is_the_error_says_what_was_expected(spark: SparkSession) -> None:
    """A path that is not there, and no path at all."""
    with pytest.raises(SourceError, match=r"no_such_file\.jsonl does not exist; expected a capture file"):
        survey(spark, "no_such_file.jsonl")
    with pytest.raises(SourceError, match="No source is named"):
        survey(spark, "  ")


@pytest.fixture
def lab(spark: SparkSession) -> Any:
    """``lab("survey", FILE)`` runs a command on the suite's session."""

    def run(*args: str) -> Result:
        return CliRunner().invoke(main, list(args), obj=spark)

    return run


def test_the_command_prints_the_same(lab: Any, found: Found) -> None:
    """In words, and as JSON."""
    said = lab("survey", OPEN).stdout.splitlines()
    shown = [line for line in said if line.startswith("  ")]
    assert said == [f"{OPEN}: {found.words}", *found.unknown, *found.advice, *shown]
    assert max(map(len, shown)) <= 100
    at = shown.index('  sink.protocol = "open-protocol"')
    assert shown[at + 1 : at + 4] == [
        "    known from      bytes, shown: 256 messages that were looked at",
        "    decides         how every message is decoded",
        "    if it is wrong  --protocol PROTOCOL",
    ]
    told = json.loads(lab("survey", OPEN, "--json").stdout)
    assert told["tables"] == list(found.tables) == [row["table"] for row in told["by_table"]]
    assert told["answer"] == found.words and told["load_ms"] is None


def test_it_is_an_answer_with_the_commands_sentence(lab: Any, spark: SparkSession, found: Found) -> None:
    """As every question: finding, frame, limits, details; the workbench shows the same."""
    answer = ticdc_lab.survey(OPEN, spark=spark)
    assert (answer.name, answer.finding, answer.limits) == ("survey", found.words, found.unknown)
    said = [line for line in lab("survey", OPEN).stdout.splitlines() if not line.startswith("  ")]
    assert said == [f"{OPEN}: {answer.finding}", *answer.limits, *answer.details]
    assert list(answer.frame.columns) == ["table", "rows_seen"] and answer.frame["rows_seen"].sum() <= 4000
    assert answer.finding in answer._repr_html_() and answer.finding in str(answer)
    bar = SourceBar(lambda source: None, lambda sample: None)
    bar.show(found)
    assert all(html.escape(sentence) in bar.told.value for sentence in (answer.finding, *answer.limits))
    assert bar.read_button.description == "read all"


def test_commands_take_a_sample_and_say_what_it_cannot_prove(lab: Any) -> None:
    """The limits are in the answer; what cannot be read is an error in words."""
    facts = json.loads(lab("transactions", OPEN, "--tables", "shop.orders", "--json").stdout)
    assert facts["sample"] == "row changes of shop.orders"
    assert facts["limits"][0].startswith("This is a sample")
    assert 0 < facts["rows"] == facts["kept"] < 2101
    wrong = lab("watermarks", OPEN, "--from", "noon")
    assert wrong.exit_code == 2
    assert "'noon' is not a time" in wrong.stderr
    audited = json.loads(lab("audit", OPEN, "--tables", "shop.users", "--json").stdout)
    assert audited["not_checked"] == {
        "offsets_are_contiguous": "a sample leaves messages out, so gaps in offsets prove nothing"
    }


def test_a_folder_with_two_protocols_names_both(spark: SparkSession, tmp_path: Path) -> None:
    """What is not in the protocol of most is reported before anything is read; where all are in one, nothing is
    reported.

    The advice is to part them, not to read all of it.
    """
    canal = golden("messages_canal-json-tidb_small.jsonl.gz")
    for file in (Path(OPEN), canal):
        (tmp_path / file.name).write_bytes(file.read_bytes())
    both = survey(spark, str(tmp_path))
    (said,) = [s for s in both.unknown if "two kinds of logs" in s]
    assert both.strangers == (said,) and said.endswith("two kinds of logs lie here. Read each alone.")
    assert both.advice == ("Put the files of each kind into a folder of their own, and look at each folder again.",)
    assert (
        said.startswith("Of 4 messages at the heads of files that cannot be decoded as ") and "quarantine" not in said
    )
    assert {both.protocol} < {"open-protocol", "canal-json"}
    assert all(f"{p}" in said for p in ("open-protocol", "canal-json")) and said in surveyed(both).limits
    assert sum(both.rows_seen) > 0 and None not in both.partitions
    assert not [s for s in survey(spark, str(canal)).unknown if "two kinds" in s]


def test_a_look_says_what_it_could_not_decode_and_that_it_saw_all(spark: SparkSession, tmp_path: Path) -> None:
    """A short dump is read whole: no estimate below what was read, no "later ones"; a broken message is counted."""
    texts = [
        json.dumps({"topic": "t", "partition": 0, "offset": n, "key": None, "payload": payload})
        for n, payload in enumerate([CANAL_WATERMARK, CANAL_WATERMARK, "{broken"])
    ]
    (tmp_path / "dump.json").write_text("\n".join(texts) + "\n")
    found = survey(spark, str(tmp_path / "dump.json"))
    assert (found.seen, found.undecoded, found.is_whole) == (2, 1, True)
    estimated = replace(found, size=Size(None, 2, "estimated from the first 1", False))
    assert ": 3 messages (all read). " in estimated.words
    assert found.unknown[0].startswith("1 message could not be decoded, of 3 messages looked at; the reasons: ")
    assert not [said for said in found.unknown if "Only the first" in said]


def test_a_folder_that_was_read_whole_is_not_called_the_first_of_it(spark: SparkSession, tmp_path: Path) -> None:
    """Each file has fewer messages than are looked at, and all together more."""
    with gzip.open(golden("messages_canal-json-tidb_small.jsonl.gz")) as file:
        lines = file.readlines()
    for n in range(3):
        with gzip.open(tmp_path / f"{n}.jsonl.gz", "wb") as part:
            part.writelines(lines[n::3])
    found = survey(spark, str(tmp_path))
    assert (found.seen, found.is_whole) == (2241, True)
    estimated = replace(found, size=Size(None, 2500, "estimated from the first 2,000", False))
    assert estimated.is_whole and ": 2,241 messages (all read)" in estimated.words
    assert not [said for said in estimated.unknown if "Only the first" in said]


CANAL_WATERMARK = (
    '{"id":0,"database":"","table":"","pkNames":null,"isDdl":false,"type":"TIDB_WATERMARK","es":1,"ts":1,"sql":"",'
    '"sqlType":null,"mysqlType":null,"data":null,"old":null,"_tidb":{"watermarkTs":429918007904436226}}'
)


def test_a_wrong_protocol_is_not_called_two_kinds_of_logs(spark: SparkSession, tmp_path: Path) -> None:
    """Where nothing can be decoded as the protocol that was named, the other one is the log's only one."""
    source = str(golden("messages_canal-json-tidb_small.jsonl.gz"))
    log = load(spark, source, protocol="debezium").materialise(str(tmp_path / "decoded"))
    (said,) = log.strangers
    assert said.endswith("are canal-json, no debezium. Name it: --protocol canal-json.")


def test_deletes_that_name_no_table_are_listed_beside_tables_with_as_many_rows() -> None:
    """Avro's of tables without a primary key: their names are null, which nothing sorts."""
    tables = {"schema_name": ["s", None, "s"], "table_name": ["b", None, "a"], "rows": [2, 2, 2]}
    assert [*_rows_by_table(pa.table(tables))] == [("", ""), ("s", "a"), ("s", "b")]
    more = {name: [2, 2, 2] for name in ("partition", "messages", "undecoded", "parts", "first_ts", "last_ts")}
    assert _of_counts(pa.table(tables | more))["tables"] == ("no table name", "s.a", "s.b")
    names = {n: tables[n] for n in ("schema_name", "table_name")}
    counted = pd.DataFrame({"kind": "row", "op": "delete", "partition": 0, "n": 2} | names)
    assert [*_by_table(counted)["table"]] == ["no table name", "s.a", "s.b"]

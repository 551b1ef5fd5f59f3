"""Two logs beside each other: what is planted as different is found, with its place, and nothing else is."""

from __future__ import annotations

import base64
import gzip
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pytest
from click.testing import CliRunner
from conftest import golden
from pyspark.sql import SparkSession
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType
from tiny_logs import mark

import ticdc_lab
from ticdc_lab.answers.compared import are_equal, compared
from ticdc_lab.cli import common, main
from ticdc_lab.codecs.decode import decode_with
from ticdc_lab.codecs.event import Event
from ticdc_lab.codecs.kernel import numbering as S
from ticdc_lab.codecs.kernel.arrow import arrow_schema
from ticdc_lab.errors import StreamingError
from ticdc_lab.events.schema import DECODED, EVENTS, IMAGE_HASHES, KEYS
from ticdc_lab.facts import LogFacts
from ticdc_lab.log import Log
from ticdc_lab.settings import Setting, Settings
from ticdc_lab.settings.detected import SWITCHED
from ticdc_lab.transactions.differences import ALIKE, KINDS, WHOLE, Comparable, counted, covered, differences
from ticdc_lab.watch.comparison import ComparedSides, CompareState, absorbed, judged

SMALL = golden("messages_open-protocol_small.jsonl.gz")
Records = list[dict[str, Any]]


@pytest.fixture(scope="module")
def log(spark: SparkSession) -> Log:
    """The sample, opened."""
    return ticdc_lab.open(str(SMALL), spark=spark)


def changed(tmp_path: Path, change: Callable[[Records], Records]) -> str:
    """A copy of the sample with something planted."""
    with gzip.open(SMALL, "rt") as f:
        records = [json.loads(line) for line in f]
    path = tmp_path / "other.jsonl"
    path.write_text("\n".join(map(json.dumps, change(records))) + "\n")
    return str(path)


def a_row(log: Log) -> tuple[int, int, str]:
    """Partition, offset and table of a message in the middle that holds one row change."""
    found = log.sql(
        'SELECT any_value(partition) AS p, any_value("offset") AS o, any_value(table_name) AS t FROM events '
        "WHERE kind = 'row' AND table_name <> 'nopk' GROUP BY topic, partition, \"offset\" "
        "HAVING count(*) = 1 ORDER BY min(commit_ts), o"
    )
    row = found.iloc[len(found) // 2]
    return int(row["p"]), int(row["o"]), str(row["t"])


def test_a_log_equals_itself(log: Log) -> None:
    """Nothing differs, and all is counted."""
    answer = log.compare(log)
    assert are_equal(answer) and answer.finding.startswith("Both logs have the same ")
    assert answer.frame["same"].sum() > 1000 and not len(answer.frames["differences"])


def test_what_is_missing_is_named(log: Log, tmp_path: Path) -> None:
    """A lost message: its change is only here; asked the other way round, only there."""
    partition, offset, table = a_row(log)
    other = changed(tmp_path, lambda rs: [r for r in rs if (r["partition"], r["offset"]) != (partition, offset)])
    answer = log.compare(other)
    [found] = answer.frames["differences"].to_dict("records")
    assert (found["kind"], found["partition"], found["offset"]) == (KINDS[0], partition, offset)
    assert not are_equal(answer) and answer.frame.query(f"`{KINDS[0]}` == 1")["table"].iloc[0].endswith(f".{table}")
    back = ticdc_lab.open(other, spark=log.events.sparkSession).compare(log)
    [found] = back.frames["differences"].to_dict("records")
    assert (found["kind"], found["other_partition"], found["other_offset"]) == (KINDS[1], partition, offset)
    said = CliRunner().invoke(main, ["compare", str(SMALL), other], obj=log.events.sparkSession)
    assert said.exit_code == 1 and said.stdout.splitlines()[0] == answer.finding


def test_another_partition_is_no_difference(log: Log, tmp_path: Path) -> None:
    """A message that lies elsewhere is counted as moved."""
    partition, offset, _ = a_row(log)
    elsewhere = {"partition": partition + 1, "offset": 1_000_000}
    other = changed(
        tmp_path,
        lambda rs: [r | elsewhere if (r["partition"], r["offset"]) == (partition, offset) else r for r in rs],
    )
    answer = log.compare(other)
    assert are_equal(answer) and answer.frame[KINDS[3]].sum() == 1
    assert answer.details == ["1 change lies in another partition there."]


def test_another_value_is_told(log: Log) -> None:
    """Equal keys with other content."""
    from pyspark.sql import functions as F

    partition, offset, _ = a_row(log)
    here = (F.col("partition") == partition) & (F.col("offset") == offset)
    other = log.events.withColumn("change_hash", F.when(here, 1).otherwise(F.col("change_hash")))
    kinds = differences(log.events, other=other, from_ts=0, to_ts=1 << 62).groupBy("kind").count().collect()
    assert dict(map(tuple, kinds))[KINDS[2]] == 1 and {r["kind"] for r in kinds} == {KINDS[2], KINDS[4]}


@pytest.mark.parametrize("swapped", [False, True])
def test_a_change_that_one_log_delivers_with_two_contents_differs(log: Log, swapped: bool) -> None:
    """Though its first delivery is the one of the other log: a repeat whose content is another one is no repeat."""
    row = log.events.where("kind = 'row' AND key_hash IS NOT NULL").orderBy("commit_ts", "partition", "offset").limit(1)
    again = row.withColumns({"offset": F.col("offset") + 10**6, "change_hash": F.col("change_hash") + 1})
    twice = log.events.unionByName(again)
    one, other = (log.events, twice) if swapped else (twice, log.events)
    (found,) = differences(one, other=other, from_ts=0, to_ts=1 << 62).where("kind <> 'same'").collect()
    assert (found.kind, found.several) == ("other values", "there" if swapped else "here")
    assert found.offset == found.other_offset
    tables = counted(differences(twice, other=twice, from_ts=0, to_ts=1 << 62)).toPandas()
    assert not tables[[*KINDS[:-1]]].to_numpy().any() and tables[ALIKE].sum() == 1
    (said,) = compared(tables, pd.DataFrame(), pd.DataFrame(), span=(0, 1), limits=()).details
    assert said.startswith("1 change comes with several contents, the same ones in both logs")


def test_what_a_setting_leaves_out_is_no_difference(log: Log, spark: SparkSession) -> None:
    """Old values off beside old values in part, deletes with their key alone beside whole ones."""
    logs = [("torture/messages_open-protocol-updatedonly.jsonl.gz", "torture/messages_open-protocol-noold.jsonl.gz")]
    deleted = str(golden("messages_open-protocol-deletehk_small.jsonl.gz")), str(SMALL)
    for here, there in [*((f"tests/data/{a}", f"tests/data/{b}") for a, b in logs), deleted]:
        answer = ticdc_lab.open(here, spark=spark).compare(there)
        of_keyless = answer.frames["tables"].set_index("table").drop(index="Fin_Ops.nopk", errors="ignore")
        assert not of_keyless[[*KINDS[:3]]].to_numpy().any() and of_keyless["same"].sum() > 100
        assert any("are compared" in limit or "are not compared" in limit for limit in answer.limits)
    partition, offset, _ = a_row(log)
    here = (F.col("partition") == partition) & (F.col("offset") == offset)
    other = log.events.withColumn("after_hash", F.when(here, 1).otherwise(F.col("after_hash")))
    asked = Comparable(before=False, deletes=False, ops=False)
    kinds = differences(log.events, other=other, from_ts=0, to_ts=1 << 62, compared=asked).groupBy("kind").count()
    assert dict(map(tuple, kinds.collect()))[KINDS[2]] == 1


def test_old_values_that_are_off_in_a_part_of_a_log_are_no_difference(log: Log, tmp_path: Path) -> None:
    """Of open-protocol an update is an insert there; a change that is really missing is a difference as before."""

    def off(records: Records) -> Records:
        out = []
        for r in records[:700]:
            value, at, frames = base64.b64decode(r["value"] or ""), 0, []
            while at < len(value):
                end = at + 8 + int.from_bytes(value[at : at + 8], "big")
                frame = value[at + 8 : end]
                row = json.loads(frame or b"{}")
                frame = json.dumps({k: v for k, v in row.items() if k != "p"}).encode() if "u" in row else frame
                frames.append(len(frame).to_bytes(8, "big") + frame)
                at = end
            out.append(r | {"value": base64.b64encode(b"".join(frames)).decode() if value else r["value"]})
        return out + records[700:]

    answer = log.compare(changed(tmp_path, off))
    assert are_equal(answer) and answer.frame["same"].sum() > 1000
    assert "In one log nothing shows which row changes are updates: inserts and updates are one operation." in (
        answer.limits
    )
    partition, offset, _ = a_row(log)
    lost = changed(tmp_path, lambda rs: [r for r in off(rs) if (r["partition"], r["offset"]) != (partition, offset)])
    [found] = log.compare(lost).frames["differences"].to_dict("records")
    assert (found["kind"], found["partition"], found["offset"]) == (KINDS[0], partition, offset)


def test_only_settings_that_differ_narrow_the_comparison() -> None:
    """Two logs with old values off are compared as they are; what only one leaves out is not."""

    def feed(protocol: str, **of: bool) -> Settings:
        values = {"sink.protocol": protocol} | {k.replace("__", ".").replace("_", "-"): v for k, v in of.items()}
        return Settings(tuple(Setting(n, v, "bytes", "shown") for n, v in values.items()))

    off, on = feed("open-protocol", sink__open__output_old_value=False), feed("open-protocol")
    assert Comparable.of(on, on) == WHOLE and not WHOLE.words
    assert Comparable.of(on, off) == Comparable(before=False, ops=False)
    assert Comparable.of(off, off) == Comparable(before=False)
    debezium = feed("debezium", sink__debezium__output_old_value=False)
    assert Comparable.of(debezium, on) == Comparable(before=False)
    switched = Settings((Setting("sink.debezium.output-old-value", SWITCHED, "bytes", "shown"),))
    assert Comparable.of(debezium, switched) == Comparable.of(switched, on) == Comparable(before=False)
    assert Comparable.of(on, feed("simple", sink__only_output_updated_columns=True)) == Comparable(before=False)
    of_key = feed("simple", sink__delete_only_output_handle_key_columns=True)
    assert Comparable.of(on, of_key) == Comparable(deletes=False) and Comparable.of(of_key, of_key) == WHOLE
    keyed = feed("canal-json", sink__kafka_config__codec_config__output_row_key=True)
    assert Comparable.of(keyed, on) == Comparable(row_keys=False) and len(Comparable.of(keyed, on).words) == 1


def test_what_one_does_not_cover_is_not_compared(log: Log, tmp_path: Path) -> None:
    """A recording that stops early misses nothing up to where it is whole."""
    with gzip.open(SMALL, "rt") as f:
        n = sum(1 for _ in f)
    other = changed(tmp_path, lambda rs: rs[: n // 2])
    answer = log.compare(other)
    assert are_equal(answer) and 0 < answer.frame["same"].sum() < log.compare(log).frame["same"].sum()


def test_a_recording_that_begins_late_is_said(log: Log, tmp_path: Path) -> None:
    """By the log's own limit: what was sent before is in the other alone, and no difference of the topic."""
    begun: dict[int, int] = {}

    def cut(records: Records) -> Records:
        for r in records[900:]:
            begun.setdefault(r["partition"], r["offset"])
        return records[900:]

    late = changed(tmp_path, cut)
    begins = [f"small {p} (from {o} on)" for p, o in sorted(begun.items())]
    places = f"{', '.join(begins[:-1])} and {begins[-1]}"
    said = f"The recording does not begin at offset 0 in the partitions {places}. Earlier"
    opened = ticdc_lab.open(late, spark=log.events.sparkSession)
    here, there = log.compare(opened), opened.compare(log)
    for answer in (here, there):
        assert sum(limit.startswith(f"{late}: {said}") for limit in answer.limits) == 1
    told = CliRunner().invoke(main, ["compare", str(SMALL), late], obj=log.events.sparkSession)
    assert told.exit_code == 1 and f"{late}: {said}" in told.stdout
    both = log.compare(log)
    assert not both.limits
    assert "known to be torn (data before its first offsets is unknown); " in opened.transactions().finding
    assert here.frame["same"].sum() < both.frame["same"].sum()


def test_what_one_may_lack_is_said_beside_what_is_in_the_other_alone(log: Log, tmp_path: Path) -> None:
    """A row may be sent long before the watermark that it waits for, and so before a recording that begins with one."""

    def sent_ahead(records: Records) -> Records:
        of_1 = [r for r in records if r["partition"] == 1]
        first = next(i for i, r in enumerate(of_1) if r["kind"] == "checkpoint")
        early = next(r for r in of_1[len(of_1) // 2 :] if r["kind"] == "row")
        of_1 = [*of_1[:first], early, *(r for r in of_1[first:] if r is not early)]
        return [*(r for r in records if r["partition"] != 1), *(r | {"offset": i} for i, r in enumerate(of_1))]

    def late(records: Records) -> Records:
        first = min(r["offset"] for r in records if r["partition"] == 1 and r["kind"] == "checkpoint")
        return [r for r in records if r["partition"] != 1 or r["offset"] >= first]

    (tmp_path / "late").mkdir()
    whole = ticdc_lab.open(changed(tmp_path, sent_ahead), spark=log.events.sparkSession)
    part = changed(tmp_path / "late", lambda records: late(sent_ahead(records)))
    only = "only in this one (the other is whole except for data before its first offsets);"
    assert only in whole.compare(part).finding


@pytest.mark.parametrize(("marks", "begins"), [([250], 100), ([150, 250], 151)])
def test_where_one_watermark_is_all_a_late_recording_begins_with_its_first_row(marks: list[int], begins: int) -> None:
    """A storage sink states one at its end, so nothing would lie between it and the log's end."""
    rows = [{"kind": "row", "commit_ts": ts, "offset": 7 + i} for i, ts in enumerate((100, 200))]
    stated = [{"kind": "watermark", "commit_ts": ts, "offset": 9 + i} for i, ts in enumerate(marks)]
    events = [
        {"topic": "t", "partition": 0, "seq": 0, "schema_name": "s", "table_name": "a"} | e for e in rows + stated
    ]
    form = to_arrow_schema(StructType([*EVENTS.fields, *KEYS.fields, *IMAGE_HASHES.fields]))
    table = pa.Table.from_pylist(events, schema=form)
    assert covered(LogFacts.of(table)) == (begins, 250)


def test_what_has_no_order_cannot_be_compared(log: Log) -> None:
    """Without commit_ts nothing is paired, and that is reported."""
    plain = str(golden("messages_canal-json_small.jsonl.gz"))
    answer = log.compare(plain)
    assert not are_equal(answer) and answer.finding.startswith("They cannot be compared: ")
    said = CliRunner().invoke(main, ["compare", plain, plain], obj=log.events.sparkSession)
    assert said.exit_code == 2 and said.stdout.startswith("They cannot be compared: ")


def test_logs_of_other_times_say_which(log: Log) -> None:
    """When each is whole is in the sentence."""
    answer = log.compare(str(golden("messages_open-protocol_stalls.jsonl.gz")))
    assert not are_equal(answer)
    words = r"this one is whole from \S+ \S+ UTC to 2026-11-20 21:56:08.308 UTC, the other from"
    assert re.search(f"no time is complete in both; {words}", answer.finding)


def test_a_stream_is_refused(log: Log) -> None:
    """What is missing is known at the end only."""
    stream = log.events.sparkSession.readStream.format("rate").load()
    lacking = stream.selectExpr(
        *("CAST(NULL AS STRING) AS " + c for c in ("kind", "commit_ts", "schema_name", "table_name", "op", "topic")),
        *("CAST(NULL AS BIGINT) AS " + c for c in ("key_hash", "change_hash", "partition", "offset", "seq")),
    )
    with pytest.raises(StreamingError):
        differences(lacking, other=log.events, from_ts=0, to_ts=1)


def test_tso_and_time() -> None:
    """Both directions, and what is neither is reported."""
    said = [CliRunner().invoke(main, ["tso", m]).output for m in ("470603993791332352", "2026-11-20 21:56:08.308")]
    assert said == ["470603993791332352 2026-11-20 21:56:08.308 UTC\n"] * 2
    assert "+ 7" in CliRunner().invoke(main, ["tso", "470603993791332359"]).output
    wrong = CliRunner().invoke(main, ["tso", "yesterday"])
    assert wrong.exit_code == 2 and "is not a time" in wrong.output


def test_one_engine_reads_both(log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    """The engine is chosen for both logs each time: for one alone another might be."""
    asked: list[tuple[str, ...]] = []
    spark = log.events.sparkSession
    monkeypatch.setattr(common, "session_of", lambda *sources, **_: asked.append(sources) or spark)
    assert CliRunner().invoke(main, ["compare", str(SMALL), str(SMALL)]).exit_code == 0
    assert asked == [(str(SMALL), str(SMALL))] * 2


FORM = arrow_schema(DECODED)
TORTURE = Path(__file__).parents[1] / "data" / "torture"


def test_keys_of_labels_and_of_numbers_are_paired(spark: SparkSession, tmp_path: Path) -> None:
    """Debezium has the labels of ENUM and SET, simple their numbers; the log's DDL names the tables."""
    logs = []
    for name in ("debezium", "simple"):
        with gzip.open(TORTURE / f"messages_{name}.jsonl.gz", "rt") as f:
            kept = [line for line in f if (v := base64.b64decode(json.loads(line)["value"])) is not None
                    and (b"k_enum" in v or b"k_set" in v)]  # fmt: skip
        (tmp_path / f"{name}.jsonl").write_text("".join(kept))
        logs.append(ticdc_lab.open(str(tmp_path / f"{name}.jsonl"), spark=spark))
    found = logs[0].compare(logs[1]).frame.set_index("table")
    for log in logs:
        log.close()
    assert not found[["only here", "only there"]].to_numpy().any()
    assert found.loc["torture.k_enum", "other values"] == found.loc["torture.k_set", "other values"] == 8


def test_rows_of_one_transaction_whose_keys_have_one_crc_are_two(spark: SparkSession) -> None:
    """TiCDC hashes the keys (1, 12) and (2, 11) to one partition; the row that one log does not have is missing."""
    batch = pa.RecordBatch.from_pylist([{"topic": "t", "partition": 0, "offset": 0, "key": b"k", "value": b"v"}])

    def rows(protocol: str, *keys: tuple[str, str]) -> pa.Table:
        images = [[("e", "enum('a','b')", e, True, -1), ("id", "int", i, True, -1)] for e, i in keys]
        events = [Event(S.ROW, 7, "s", "t", op=S.INSERT, columns=image) for image in images]
        decoded = decode_with(lambda key, value: events, batch, protocol, compiled=False)
        return pa.Table.from_batches([decoded]).cast(FORM)

    here, there = rows("debezium", ("a", "12"), ("b", "11")), rows("canal-json", ("2", "11"))
    assert len({*here["key_crc"].to_pylist()}) == 1
    frames = [spark.createDataFrame(side) for side in (here, there)]
    asked = Comparable(labelled=frozenset({("s", "t")}))
    found = differences(frames[0], other=frames[1], from_ts=1, to_ts=9, compared=asked)
    assert sorted(r.kind for r in found.collect()) == sorted(KINDS[i] for i in (0, 2))
    sides = ComparedSides(("debezium", "canal-json"))
    state = CompareState()
    for side, own in enumerate((here, there)):
        marks = pa.Table.from_pylist(
            [dict.fromkeys(FORM.names) | mark(0, 1 + n, ts) for n, ts in enumerate((6, 9))], FORM
        )
        state = absorbed(state, pa.concat_tables([own, marks]), side, sides)
    assert judged(state, sides).tables[[*KINDS]].to_numpy().tolist() == [[1, 0, 1, 0, 0]]

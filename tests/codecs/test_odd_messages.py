"""Messages that hold nothing, a row change that is `{}`, columns without flags, avro of v5.3: reported as what they
are.
"""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from click.testing import CliRunner
from comparing import batch_of
from conftest import ROOT
from pyspark.sql import SparkSession

import ticdc_lab
from ticdc_lab.cli import main
from ticdc_lab.codecs.decode import decode_batch, decode_with, decoder
from ticdc_lab.codecs.detection import detect
from ticdc_lab.codecs.known import NOTHING, Known
from ticdc_lab.codecs.registry import PROTOCOLS, codec_of
from ticdc_lab.codecs.schema_registry import read_schemas
from ticdc_lab.facts.limits import but_for
from ticdc_lab.sources.load import load
from ticdc_lab.sources.survey import survey
from ticdc_lab.watch.running import Watch

REPORTS = ROOT / "tests/data/reports"


def frames(*parts: dict[str, Any] | bytes) -> bytes:
    """Parts of open-protocol, each after its length."""
    raw = [p if isinstance(p, bytes) else json.dumps(p).encode() for p in parts]
    return b"".join(len(p).to_bytes(8, "big") + p for p in raw)


def batched(*values: dict[str, Any]) -> tuple[bytes, bytes]:
    """A message of open-protocol with row changes of one table."""
    keys = [{"ts": 10 + i, "scm": "s", "tbl": "t", "t": 1} for i in range(len(values))]
    return (1).to_bytes(8, "big") + frames(*keys), frames(*values)


ROW = {"u": {"id": {"t": 3, "h": True, "f": 11, "v": 1}}}


@pytest.mark.parametrize("empty", [0, 1, 2])
def test_an_empty_row_change_of_a_batch_costs_itself_alone(empty: int) -> None:
    """It is in quarantine behind the events, which begin at place 0: by that a message is counted."""
    values = [ROW, ROW, ROW]
    values[empty] = {}
    messages = batch_of([batched(*values), batched(ROW), batched({})])
    kernel = decode_batch(messages, "open-protocol")
    assert kernel.equals(decode_with(codec_of("open-protocol", NOTHING), messages, "open-protocol", compiled=False))
    rows = kernel.to_pylist()
    good = [(r["offset"], r["seq"]) for r in rows if r["kind"] == "row"]
    bad = [(r["offset"], r["seq"], r["error_class"]) for r in rows if r["error_class"]]
    assert good == [(0, 0), (0, 1), (1, 0)]
    assert [r["commit_ts"] for r in rows if r["kind"] == "row"][:2] == [10 + i for i in range(3) if i != empty]
    assert bad == [(0, 2, "empty-row"), (2, 0, "empty-row")]
    assert f"frame {empty + 1} of 3" in next(r["reason"] for r in rows if r["error_class"])


def test_columns_without_flags_are_refused_by_that_name() -> None:
    """TiCDC before v4.0.5 wrote none: the reason shows what is not known without them."""
    messages = batch_of([batched({"u": {"id": {"t": 8, "h": True, "v": 1}}})])
    for decoded in (
        decode_batch(messages, "open-protocol"),
        decode_with(codec_of("open-protocol", NOTHING), messages, "open-protocol", compiled=False),
    ):
        [row] = decoded.to_pylist()
        assert row["error_class"] == "missing-flags" and "before v4.0.5" in row["reason"]


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_message_without_a_byte_is_empty_in_every_protocol(protocol: str) -> None:
    """Neither a row change nor a loss; in avro a value that is null may be a deleted row's."""
    messages = batch_of([(None, b""), (b"", b""), (None, None), (b"", None)])
    rows = pa.Table.from_batches(decoder(protocol)(iter([messages]))).to_pylist()
    classes = [r["error_class"] for r in sorted(rows, key=lambda r: r["offset"])]
    assert classes[:2] == ["empty-message"] * 2
    assert (classes[2] == "empty-message") == (protocol != "avro") and all(classes)


def row_of_canal(i: int, table: str = "t") -> bytes:
    """A row change of canal-json with the TiDB extension."""
    row = {"id": 0, "database": "s", "table": table, "pkNames": ["id"], "isDdl": False, "type": "INSERT", "es": 1,
           "ts": 1, "sql": "", "sqlType": {"id": 4}, "mysqlType": {"id": "int"}, "old": None,
           "data": [{"id": str(i)}], "_tidb": {"commitTs": 463994880000000000 + i}}  # fmt: skip
    return json.dumps(row).encode()


def mark_of_canal() -> bytes:
    """A watermark."""
    return json.dumps({"type": "TIDB_WATERMARK", "isDdl": False, "_tidb": {"watermarkTs": 463994880000001000}}).encode()


def capture(path: Path, messages: list[tuple[str, int, int, bytes]]) -> Path:
    """A capture file of topic, partition, offset and value of messages."""
    lines = [
        {"topic": t, "partition": p, "offset": o, "timestamp": 1, "key": None, "headers": [],
         "value": base64.b64encode(v).decode()} for t, p, o, v in messages
    ]  # fmt: skip
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path


def test_empty_messages_before_the_first_are_counted_and_nothing_else(spark: SparkSession, tmp_path: Path) -> None:
    """The protocol is detected from the first that hold something, and no answer is reported to be without what they
    held.
    """
    values = [b""] * 300 + [row_of_canal(1), b"", mark_of_canal()]
    source = capture(tmp_path / "log.jsonl", [("a", 0, i, v) for i, v in enumerate(values)])
    log = load(spark, str(source)).materialise(str(tmp_path / "out"))
    assert log.protocol == "canal-json" and log.has_commit_ts and log.counts is not None
    assert (log.counts.messages, log.counts.decoded, log.counts.quarantined, log.counts.empty) == (303, 2, 301, 301)
    assert log.counts.undated == 0 and but_for(log.counts) == ""
    assert [limit for limit in log.limits if "301 messages of this log are empty" in limit]
    assert not [limit for limit in log.limits if "could not be read" in limit or "commit_ts" in limit]


def test_nothing_is_missing_at_the_offset_of_an_empty_message(spark: SparkSession, tmp_path: Path) -> None:
    """It was a hole beside which transactions seemed torn, to the audit and to the watch."""
    values = [row_of_canal(1), b"", row_of_canal(2), mark_of_canal()]
    source = capture(tmp_path / "log.jsonl", [("a", 0, i, v) for i, v in enumerate(values)])
    run = CliRunner().invoke(main, ["audit", str(source)], obj=spark)
    assert run.exit_code == 0 and "may be torn" not in run.output and "1 message of this log is empty" in run.output
    watch = Watch(str(source), str(tmp_path / "state"), once=True)
    watch.run()
    assert not watch.findings and not watch.view.counts.unchecked
    lost = capture(tmp_path / "lost.jsonl", [("a", 0, i, v) for i, v in enumerate(values) if v])
    assert "offsets_are_contiguous" in CliRunner().invoke(main, ["audit", str(lost)], obj=spark).output


def test_a_topic_of_which_nothing_is_the_changefeeds_is_foreign(spark: SparkSession, tmp_path: Path) -> None:
    """It is named; the partitions below its message are not missing, and the ones of the others still are."""
    own = [("a", 0, 0, row_of_canal(1)), ("a", 0, 1, mark_of_canal())]
    other = ("__consumer_offsets", 3, 7, b"\0\3abc")
    log = load(spark, str(capture(tmp_path / "log.jsonl", [*own, other]))).materialise(str(tmp_path / "out"))
    n = log.counts
    assert n is not None and (n.absent, n.late, n.unread, n.foreign) == (0, 0, 0, 1)
    assert [limit for limit in log.limits if "topic __consumer_offsets is foreign: none of its 1 message" in limit]
    more = [*own, ("a", 2, 0, row_of_canal(2)), other]
    log = load(spark, str(capture(tmp_path / "more.jsonl", more))).materialise(str(tmp_path / "out2"))
    assert log.counts is not None and log.counts.absent == 1


def test_a_log_of_open_protocol_with_an_empty_row_change_counts_its_part(spark: SparkSession, tmp_path: Path) -> None:
    """The message is decoded, whichever of the batch it is; answers show that a row change is unread."""
    for empty in (0, 1):
        values: list[dict[str, Any]] = [ROW, ROW]
        values[empty] = {}
        key, value = batched(*values)
        line = {"topic": "a", "partition": 0, "offset": 0, "timestamp": 1, "headers": []}
        line |= {"key": base64.b64encode(key).decode(), "value": base64.b64encode(value).decode()}
        source = tmp_path / f"{empty}.jsonl"
        source.write_text(json.dumps(line) + "\n")
        log = load(spark, str(source), protocol="open-protocol").materialise(str(tmp_path / f"out{empty}"))
        n = log.counts
        assert n is not None and (n.messages, n.decoded, n.events, n.parts) == (1, 1, 1, 1)
        assert but_for(n) == " except for data in 1 unread row change"
        seen = survey(spark, str(source), protocol="open-protocol")
        assert (seen.seen, seen.undecoded) == (1, 0)
        assert "1 row change could not be decoded, of 1 message looked at" in "".join(seen.unknown)
        assert not [limit for limit in log.limits if "twice" in limit]


def test_a_chain_that_an_empty_row_change_breaks_names_it(spark: SparkSession, tmp_path: Path) -> None:
    """The delete's image before it is not the insert's: the update between them is `{}`."""
    columns = [{"id": ROW["u"]["id"], "v": {"t": 3, "f": 65, "v": v}} for v in (1, 2)]
    key, value = batched({"u": columns[0]}, {}, {"d": columns[1]})
    line = {"topic": "a", "partition": 0, "offset": 0, "timestamp": 1, "headers": []}
    line |= {"key": base64.b64encode(key).decode(), "value": base64.b64encode(value).decode()}
    (tmp_path / "log.jsonl").write_text(json.dumps(line) + "\n")
    answer = ticdc_lab.open(str(tmp_path / "log.jsonl"), spark=spark, protocol="open-protocol").audit()
    (said,) = answer.frames["findings"].query("guarantee == 'row_images_chain'")["message"]
    assert said.endswith("; a row change of this table, which may be the lost one, is `{}`: partition 0 offset 0")


def test_avro_of_v5_3_has_times_as_numbers_of_logical_types() -> None:
    """Its schemas name no types of TiDB; a zero date is a number outside the years, and no error of Python's."""
    known = Known(schemas=read_schemas(str(REPORTS / "19/schemas.jsonl")))
    lines = [json.loads(line) for line in (REPORTS / "19/avro-v53.jsonl").read_text().splitlines() if line]
    pairs = [tuple(None if m[f] is None else base64.b64decode(m[f]) for f in ("key", "value")) for m in lines]
    rows = pa.Table.from_batches(decoder("avro", known=known)(iter([batch_of(pairs)]))).to_pylist()
    assert [r["error_class"] for r in rows] == [None, None]
    values = {c["name"]: c["value"] for c in rows[0]["columns"]}
    assert values == {"id": "7", "about": "0x" + "木 tree".encode().hex(), "kind": "2", "at": "2026-02-02 02:40:00",
                      "day": "2026-02-02"}  # fmt: skip


@pytest.mark.parametrize(
    ("kind", "raw", "value"),
    [
        ({"type": "int", "logicalType": "date"}, b"\x01", "1969-12-31"),
        ({"type": "int", "logicalType": "time-millis"}, b"\xd0\x0f", "00:00:01"),
        ({"type": "long", "logicalType": "timestamp-micros"}, b"\x02", "1970-01-01 00:00:00.000001"),
        ({"type": "long", "logicalType": "timestamp-millis"}, b"\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", None),
        ({"type": "array", "items": "int"}, b"\x00", "Avro type"),
    ],
)
def test_times_and_types_of_avro_without_types_of_tidb(kind: dict[str, str], raw: bytes, value: str | None) -> None:
    """A value, or a reason that names the field and its type."""
    schema = {"type": "record", "name": "t", "namespace": "s", "fields": [{"name": "f", "type": kind}]}
    pair = b"\0\0\0\0\1" + raw, b"\0\0\0\0\1" + raw
    known = Known(schemas={"1": json.dumps(schema)})
    [row] = pa.Table.from_batches(decoder("avro", known=known)(iter([batch_of([pair])]))).to_pylist()
    if value == "Avro type":
        assert row["error_class"] == "bad-schema" and "field 'f' has the Avro type" in row["reason"]
    elif value is None:
        assert row["error_class"] == "bad-value" and "'f' (datetime)" in row["reason"]
    else:
        assert [c["value"] for c in row["columns"]] == [value]


def test_nothing_but_empty_messages_is_no_log() -> None:
    """The protocol cannot be determined, and the error shows why."""
    sample = pa.Table.from_batches([batch_of([(None, b"")] * 3)])
    with pytest.raises(Exception, match="has a key or a value"):
        detect(sample)

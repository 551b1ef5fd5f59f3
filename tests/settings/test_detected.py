"""Settings that bytes show: each with counts as evidence, and nothing where nothing shows it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from conftest import golden
from pyspark.sql import SparkSession

import ticdc_lab
from ticdc_lab.settings.detected import READ, SWITCHED, counted, of_counts, of_messages, of_rules
from ticdc_lab.settings.file import parse_file
from ticdc_lab.settings.setting import Settings
from ticdc_lab.sources.load import load

COLUMN = pa.struct([("name", pa.string()), ("value", pa.string()), ("is_key", pa.bool_())])
TYPES = {"columns": pa.list_(COLUMN), "before": pa.list_(COLUMN), "start_ts": pa.int64(), "checksum": pa.int64()}
ROW, KEY = [("id", "1", True), ("a", "2", False)], [("id", "1", True)]


def events(*rows: tuple[str, Any, Any], **more: Any) -> pa.RecordBatch:
    """Row changes: op, the image after and the one before."""
    of: dict[str, list[Any]] = {n: [more.get(n)] * len(rows) for n in READ}
    of |= {"kind": ["row"] * len(rows), "op": [r[0] for r in rows]}
    for at, name in ((1, "columns"), (2, "before")):
        of[name] = [None if r[at] is None else [dict(zip(COLUMN.names, c, strict=True)) for c in r[at]] for r in rows]
    return pa.record_batch({n: pa.array(v, TYPES.get(n, pa.string())) for n, v in of.items()})


def shown(*batches: pa.RecordBatch, protocol: str = "open-protocol") -> Settings:
    """What images show."""
    counts = counted(pa.Table.from_batches(batches))
    return Settings(of_counts(counts, protocol=protocol))


def test_images_show_which_are_left_out() -> None:
    """Updates that name fewer columns before, deletes with their key alone; in parts as in one."""
    rows = [("insert", ROW, None), ("update", ROW, KEY), ("delete", None, KEY)]
    for batches in ([events(*rows)], [events(r) for r in rows]):
        found = shown(*batches)
        assert found.value("only-output-updated-columns") is True
        assert found.value("delete-only-output-handle-key-columns") is True
        assert found.value("sink.open.output-old-value") is True
        assert "1 of 1 updates" in found.get("only-output-updated-columns").evidence  # type: ignore[union-attr]


def test_a_delete_with_more_than_its_key_shows_that_it_is_whole() -> None:
    """One is enough; that all updates name every column shows something from the eighth on."""
    found = shown(events(("insert", ROW, None), ("delete", None, ROW), ("delete", None, KEY)))
    assert found.value("delete-only-output-handle-key-columns") is False
    assert "only-output-updated-columns" not in shown(events(("update", ROW, ROW)))
    many = shown(events(*[("update", ROW, ROW)] * 8)).get("only-output-updated-columns")
    assert many is not None and (many.value, many.sure) == (False, "likely")


def test_updates_without_an_image_before_show_that_old_values_are_off() -> None:
    """By the protocol's own setting; so does a change where nothing shows whether it inserts or updates."""
    for protocol in ("debezium", "debezium-avro"):
        assert shown(events(("update", ROW, None)), protocol=protocol).value("sink.debezium.output-old-value") is False
    unknown = shown(events(("insert", ROW, None), incomplete="op-unknown"), protocol="avro")
    assert unknown.value("avro-include-before-value") is False
    assert not shown(events(("insert", ROW, None))).known, "inserts have none anyway"


def test_a_log_of_inserts_alone_may_have_old_values_off() -> None:
    """Which nothing shows. With a delete it is a guess, of the whole log only, where an image alone distinguishes an
    update from an insert.
    """
    inserts = [("insert", ROW, None)] * 8
    alone, counts = (counted(pa.table(events(*of))) for of in (inserts, [*inserts, ("delete", None, ROW)]))
    assert not of_counts(alone, protocol="open-protocol", whole=True)
    guess, _ = of_counts(counts, protocol="open-protocol", whole=True)
    assert (guess.name, guess.value, guess.sure) == ("sink.open.output-old-value", False, "guessed")
    for protocol, whole in (("open-protocol", False), ("simple", True)):
        assert guess not in of_counts(counts, protocol=protocol, whole=whole)


def test_simple_in_avro_shows_the_zone_of_its_timestamps() -> None:
    """A value's branch, then the zone and the moment with their lengths; the same bytes in a text are no zone."""

    def text(value: str) -> bytes:
        return bytes([2 * len(value)]) + value.encode()

    stamp = b"\x0c" + text("Asia/Shanghai") + text("2026-11-28 20:00:03.25")
    message = b"\x16\x06\x06" + text("t") + stamp + b"\x0c" + text("no zone") + text("and no moment, though as long")
    message += b"\x0c" + text("1.5\nflags") + text("2026-11-28 20:00:03")
    for values, zone in ([message], "Asia/Shanghai"), ([b"\x16" + text("UTC 2026-11-28")], None):
        messages = pa.table({"key": pa.nulls(len(values), pa.binary()), "value": pa.array(values, pa.binary())})
        found = Settings(of_messages(messages, protocol="simple"))
        assert found.value("time-zone") == zone and found.value("encoding-format") == "avro"


def test_large_messages_and_logs_without_images_show_nothing() -> None:
    """A row with its key alone is no update without its columns; a log decoded without images is not judged."""
    assert not shown(events(("update", KEY, None), ("delete", None, KEY), incomplete="handle-key-only")).known
    assert not shown(events(("update", None, None), ("insert", None, None))).known


def test_json_that_a_tool_wrote_again_shows_the_same() -> None:
    """Python's `json.dumps` and pages put blanks behind colons."""
    value = b'{"data": null, "_tidb": {"commitTs": 1, "onlyHandleKey": true}}'
    for written in (value, value.replace(b": ", b":"), value.replace(b": ", b" :\n  ")):
        raw = pa.table({"key": pa.array([None], pa.binary()), "value": [written]})
        found = {s.name: s.value for s in of_messages(raw, protocol="canal-json")}
        assert found["sink.kafka-config.codec-config.enable-tidb-extension"] is True
        assert any("handle-key-only" in str(v) for v in found.values())


def test_the_form_of_messages_shows_the_codec() -> None:
    """What was compressed is seen beside what it holds."""
    value = b'{"database":"d","isDdl":false,"_tidb":{"commitTs":1,"onlyHandleKey":true}}'
    raw = pa.table({"key": pa.array([None, None], pa.binary()), "value": [b"\x04\x22\x4d\x18..", value]})
    found = Settings(
        of_messages(raw, protocol="canal-json", unpacked=raw.set_column(1, "value", pa.array([value] * 2)))
    )
    assert found.value("enable-tidb-extension") is True
    large = "sink.kafka-config.large-message-handle.large-message-handle-"
    assert found.value(f"{large}compression") == "lz4" and found.value(f"{large}option") == "handle-key-only"
    assert "1 of 2 messages" in found.get(f"{large}compression").evidence  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("log", "name", "value"),
    [
        ("messages_canal-json_small.jsonl.gz", "enable-tidb-extension", False),
        ("extra/messages_canal-json-snappy_small.jsonl.gz", "enable-tidb-extension", True),
        ("extra/messages_canal-json-claimcheck_small.jsonl.gz", "large-message-handle.large-message-handle-option",
         "claim-check"),
        ("extra/messages_debezium-noschema_small.jsonl.gz", "debezium-disable-schema", True),
        ("messages_simple-avro_small.jsonl.gz", "encoding-format", "avro"),
        ("extra/messages_simple-snappy_small.jsonl.gz", "time-zone", "Etc/UTC"),
        ("messages_open-protocol-deletehk_small.jsonl.gz", "delete-only-output-handle-key-columns", True),
        ("messages_open-protocol-updatedonly-batch1_small.jsonl.gz", "only-output-updated-columns", True),
    ],
)  # fmt: skip
def test_the_real_encoders_settings_are_detected(spark: SparkSession, log: str, name: str, value: object) -> None:
    """In the first messages, before anything is read."""
    known = load(spark, str(golden(log))).settings
    full = name if name in known else f"sink.kafka-config.{name}"
    assert known.value(full) == value


def test_rules_that_explain_all_rows_are_dispatchers() -> None:
    """As a changefeed file has them; a file's own are no contradiction, since other rules may mean the same."""
    known = Settings(
        of_rules([("s", "b", "columns:a,b", 4), ("s", "a", "index-value", 2), ("s", "c-`", "columns:a,b", 1)], tables=4)
    )
    found = known.get("sink.dispatchers")
    assert found is not None and found.sure == "likely" and "all 7 rows of 3 of 4 tables" in found.evidence
    assert found.text == (
        '[{matcher = ["s.a"], partition = "index-value"}, '
        '{matcher = ["s.b", "s.`c-```"], partition = "columns", columns = ["a", "b"]}]'
    )
    assert not of_rules([], tables=3)
    file = parse_file("[sink]\ndispatchers = [{matcher = ['*.*'], partition = 'ts'}]", name="c").settings
    assert not (file | known).contradictions and (file | known).get("sink.dispatchers").source == "file"  # type: ignore[union-attr]


def test_a_log_shows_its_dispatchers_and_takes_a_file_by_name(spark: SparkSession, tmp_path: Path) -> None:
    """``log.settings()`` is one table of all that is known; the file is named in Python as on the command line."""
    (tmp_path / "c.toml").write_text("[mounter]\nworker-num = 3\n[sink]\nprotocol = 'canal-json'")
    log = ticdc_lab.open(
        str(golden("messages_canal-json-tidb_small-dup-restart.jsonl.gz")), spark=spark,
        changefeed=str(tmp_path / "c.toml"),
    )  # fmt: skip
    rows = {r["setting"]: r for r in log.settings().frame.to_dict("records")}
    assert (
        '{matcher = ["shop.orders"], partition = "columns", columns = ["user_id"]}' in rows["sink.dispatchers"]["value"]
    )
    assert "mounter.worker-num" not in rows, "no message depends on it"
    assert log.known_settings.value("mounter.worker-num") == 3
    log.close()


def test_old_values_of_some_updates_alone_are_switched() -> None:
    """Neither value is right: a file that gives one contradicts the log, and the evidence counts both."""
    found = shown(events(("update", ROW, None), ("update", ROW, ROW)), protocol="debezium")
    setting = found.get("sink.debezium.output-old-value")
    assert setting is not None and setting.value == SWITCHED and setting.text == '"switched"'
    assert setting.evidence == "1 of 2 updates among the row changes have an image before the change"
    given = parse_file("[sink.debezium]\noutput-old-value = true", name="c.toml").settings
    assert len((given | found).contradictions) == 1

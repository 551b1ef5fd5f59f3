"""Every cell of logs that the real encoders of August 2026 wrote, by protocol and setting of the changefeed."""

from __future__ import annotations

import gzip
import io
import json
import struct
from dataclasses import replace
from typing import Any

import fastavro
import pyarrow as pa
import pytest
import torture
from test_types_hold import shown, shown_in_csv

from ticdc_lab.codecs import detect, log_types, simple
from ticdc_lab.codecs.decode import decode_mostly, decode_with
from ticdc_lab.codecs.defined_types import LogTypes, plainly
from ticdc_lab.codecs.known import BOUNDS, NOTHING, Known
from ticdc_lab.codecs.registry import codec_of, part_kernel
from ticdc_lab.codecs.unpack import unpacker
from ticdc_lab.events.mysql_types import base_of
from ticdc_lab.events.schema import BEFORE_UNNAMED
from ticdc_lab.settings.file import given_settings

LOGS = [
    ("canal-json-tidb", "canal-json", "torture", 963),
    ("canal-json-selector", "canal-json", "torture", 900),
    ("canal-json-raw", "canal-json", "torture-raw", 890),
    ("open-protocol", "open-protocol", "torture", 963),
    ("open-protocol-noold", "open-protocol", "torture", 963),
    ("open-protocol-updatedonly", "open-protocol", "torture", 963),
    ("simple", "simple", "torture", 963),
    ("debezium", "debezium", "torture", 959),
    ("avro", "avro", "torture", 936),
    ("avro-before", "avro", "torture", 928),
    ("debezium-avro", "debezium-avro", "torture", 897),
]


@pytest.mark.parametrize(("name", "protocol", "truth", "rows"), LOGS)
def test_each_cell_is_what_tidb_wrote(name: str, protocol: str, truth: str, rows: int) -> None:
    """No message is refused, and no value is another one; debezium's encoder itself changes some types."""
    found = torture.decoded(protocol, torture.messages(name), torture.known(name))
    assert [e["reason"] for e in found if e["error_class"]] == []
    assert sum(e["kind"] == "row" for e in found) >= rows
    lossy, in_avro = protocol in ("debezium", "avro", "debezium-avro"), "avro" in protocol
    assert torture.wrong(found, truth, lossy=lossy, in_avro=in_avro) == []


def test_old_values_without_a_name_cost_no_row() -> None:
    """The encoder's own fault: what was before a NULL has no name. Only the new image is whole."""
    found = torture.decoded("open-protocol", torture.messages("open-protocol-updatedonly"), NOTHING)
    short = [e for e in found if e["incomplete"] == BEFORE_UNNAMED]
    assert len(short) == 16
    assert all(e["op"] == "update" and e["columns"] and e["before_hash"] is None for e in short)


def test_before_values_in_avro_make_deletes_dated() -> None:
    """With `avro-include-before-value` updates have an image before, and deletes commit_ts and all columns."""
    found = torture.decoded("avro", torture.messages("avro-before"), torture.known("avro-before"))
    changes = [e for e in found if e["op"] in ("update", "delete")]
    assert changes and all(e["before"] and e["commit_ts"] for e in changes)
    assert {e["op"] for e in changes} == {"update", "delete"}


def _without_types(value: Any) -> Any:
    if isinstance(value, dict):
        return {k: _without_types(v) for k, v in value.items() if k != "tidb_type"}
    return [_without_types(v) for v in value] if isinstance(value, list) else value


@pytest.mark.parametrize("schema", [True, False])
def test_the_logs_own_ddl_types_debezium(schema: bool) -> None:
    """Without the TiDB extension, or the part that describes a message, values are the same: DDL names the types."""

    def plain(raw: bytes) -> bytes:
        message = json.loads(raw)
        described = {"schema": _without_types(message["schema"])} if schema and "schema" in message else {}
        return json.dumps({"payload": message["payload"], **described}).encode()

    batch = torture.messages("debezium", plain)
    typed = torture.decoded("debezium", torture.messages("debezium"), NOTHING)
    assert not log_types.are_typed(pa.Table.from_batches([batch]), NOTHING)
    assert log_types.are_typed(pa.Table.from_batches([torture.messages("debezium")]), NOTHING)
    types = log_types.types_of(pa.Table.from_batches(list(log_types.finder(NOTHING)(iter([batch])))))
    found = torture.decoded("debezium", batch, replace(NOTHING, types=types))
    assert torture.wrong(found, lossy=True) == []
    assert all(c["mysql_type"] for e in found for c in e["columns"] or ())
    for e, twin in zip(found, typed, strict=True):
        for c, like in zip(e["columns"] or (), twin["columns"] or (), strict=True):
            same = ("decimal", "datetime", "time(", "timestamp")  # DDL shows how many digits these have, too
            assert c["value"] == like["value"] or c["mysql_type"].startswith(same)


def _of_log(batch: pa.RecordBatch) -> Known:
    ddl = pa.Table.from_batches(list(log_types.finder(NOTHING)(iter([batch]))))
    return replace(NOTHING, types=log_types.types_of(ddl))


def test_the_logs_own_ddl_gives_digits_to_typed_debezium() -> None:
    """Debezium names TIME, DATETIME and DECIMAL without their digits: with the ones of the DDL its keys
    are simple's.
    """
    batch = torture.messages("debezium")
    found, other = (
        {(e["table_name"], e["commit_ts"], e["op"], e["key_crc"], e["key_hash"]): e for e in rows if e["kind"] == "row"}
        for rows in (torture.decoded("debezium", batch, _of_log(batch)),
                     torture.decoded("simple", torture.messages("simple"), torture.known("simple")))
    )  # fmt: skip
    tables = {"k_time", "k_dt", "k_comp", "k_date"}
    named = {key for key in found if key[0] in tables and key[3] is not None}
    assert named <= set(other) and len(named) > len([key for key in found if key[0] in tables]) * 0.7
    unknown = sorted({key[0] for key in found if key[3] is None})
    assert unknown == ["k_comp", "k_date", "k_dec", "k_dt", "k_ts"]  # 1970, more than 15 digits, and UTC
    digits = {e["columns"][0]["mysql_type"] for key, e in found.items() if key[0] in tables and e["columns"]}
    assert {"time(1)", "datetime(6)", "date"} <= digits


def _ddl_in_avro(number: int) -> tuple[list[dict[str, Any]], str]:
    """The DDL of the log in debezium's JSON as TiCDC writes them to Avro with `avro-enable-watermark`."""
    source = {"type": "record", "name": "Source", "fields": [
        {"name": "db", "type": "string"}, {"name": "table", "type": "string"}, {"name": "commit_ts", "type": "long"},
    ]}  # fmt: skip
    fields = {"source": source, "databaseName": ["null", "string"], "ddl": "string"}
    schema = {"type": "record", "name": "Envelope", "fields": [{"name": n, "type": t} for n, t in fields.items()]}
    parsed, out = fastavro.parse_schema(schema), []
    for m in torture.messages("debezium").to_pylist():
        if b'"ddl"' in m["value"]:
            body = io.BytesIO()
            fastavro.schemaless_writer(body, parsed, {**json.loads(m["value"])["payload"]})
            out.append(m | {"key": None, "value": struct.pack(">bI", 0, number) + body.getvalue()})
    return out, json.dumps(schema)


def test_the_logs_own_ddl_gives_digits_to_debezium_avro() -> None:
    """As to its JSON: fractions of TIME and DATETIME are TiDB's texts then, in both decoders, and only then."""
    rows = torture.messages("debezium-avro")
    ddl, schema = _ddl_in_avro(9_999)
    batch = pa.RecordBatch.from_pylist([*ddl, *rows.to_pylist()], rows.schema)
    known = torture.known("debezium-avro")
    known = replace(known, schemas={**known.schemas, "9999": schema})
    found = pa.Table.from_batches(list(log_types.finder(known, "debezium-avro")(iter([batch]))))
    assert len(found) == len(ddl) > 100
    typed = replace(known, types=log_types.types_of(found))
    _, truth = torture._truth("torture")

    def wrong(known: Known) -> int:
        events = torture.decoded("debezium-avro", rows, known)
        times = ("time", "datetime")
        cells = [
            (e, c)
            for e in events
            if e["op"] == "insert" and e["table_name"] in ("times", "k_time", "k_dt")
            for c in e["columns"]
            if base_of(c["mysql_type"]) in times and not (c["value"] or "").startswith("0")
        ]
        assert len(cells) > 50
        return sum(c["value"] not in [r["cols"][c["name"]] for r in truth[e["commit_ts"], "torture", e["table_name"]]]
                   for e, c in cells)  # fmt: skip

    assert (wrong(known), wrong(typed)) == (90, 22)  # the encoder itself changes 22: zero dates, and by a time zone
    codec = codec_of("debezium-avro", typed)
    kernel = part_kernel("debezium-avro", codec)
    assert kernel is not None
    mixed = decode_mostly(kernel, codec, batch, "debezium-avro", images=True, original=batch, bounds=BOUNDS)
    assert mixed.equals(decode_with(codec_of("debezium-avro", typed), batch, "debezium-avro", bounds=BOUNDS))


@pytest.mark.parametrize("compression", ["lz4", "gzip", "zstd", "snappy"])
def test_debezium_compresses_key_and_value(compression: str) -> None:
    """Each by itself."""

    def packed(raw: bytes) -> bytes:
        if compression == "gzip":
            return gzip.compress(raw, mtime=0)
        if compression == "snappy":
            return bytes(pa.compress(raw, codec="snappy", asbytes=True))
        sink = pa.BufferOutputStream()
        with pa.CompressedOutputStream(sink, compression) as out:
            out.write(raw)
        return bytes(sink.getvalue())

    plain = torture.messages("debezium").slice(0, 300)
    assert unpacker("debezium", NOTHING)(torture.messages("debezium", packed).slice(0, 300)).equals(plain)


_TABLE = "create table t (id int primary key, b varbinary(9), u bigint unsigned)"


def _debezium(bytes_written: str | None) -> bytes:
    after = {"id": 1, "b": bytes_written, "u": -1}
    source = {"commit_ts": 7, "db": "s", "table": "t"}
    return json.dumps({"payload": {"source": source, "op": "c", "before": None, "after": after}}).encode()


def _batch(values: list[bytes]) -> pa.RecordBatch:
    n = len(values)
    return pa.record_batch(
        [["t"] * n, pa.array([0] * n, pa.int32()), range(n), pa.nulls(n, pa.binary()), pa.array(values)],
        torture.COLUMNS,
    )


def _read(texts: list[str], mode: str = "auto") -> tuple[list[str | None], tuple[str, ...]]:
    """The bytes of these rows, and what is reported of them."""
    batch = _batch([_debezium(text) for text in texts])
    given = given_settings({"debezium-binary-handling-mode": mode})
    beside = Known(types=LogTypes([(1, "s", "t", _TABLE)]), settings=given)
    beside, said = log_types.with_binary(pa.Table.from_batches([batch]), beside)
    events = torture.decoded("debezium", batch, beside)
    return [e["columns"][1]["value"] if e["columns"] else None for e in events], said


@pytest.mark.parametrize(
    ("texts", "mode", "values", "n_said"),
    [
        (["19OwAA=="], "auto", ["0xd7d3b000"], 0),
        (["1-_w"], "auto", ["0xd7eff0"], 0),  # the other alphabet of base64
        (["1-8"], "auto", ["0xd7ef"], 0),
        (["d7d3b0"], "auto", ["0xd7d3b0"], 0),  # no base64 has so many signs
        (["d7d3", "00ff00ff00ff"], "auto", ["0xd7d3", "0x00ff00ff00ff"], 1),
        (["d7d3"], "auto", ["0x77b777"], 1),
        (["d7d3"], "hex", ["0xd7d3"], 0),
        (["d7d3", "19OwAA=="], "hex", ["0xd7d3", None], 0),
    ],
)  # fmt: skip
def test_bytes_of_debezium_are_base64_or_hex(texts: list[str], mode: str, values: list[str], n_said: int) -> None:
    """By what the values allow; a guess is reported with the option that decides, and what does not fit is refused."""
    found, said = _read(texts, mode)
    assert (found, len(said)) == (values, n_said)
    assert all("debezium-binary-handling-mode" in s for s in said)


def test_a_log_without_types_says_what_cannot_be_read() -> None:
    """Neither the messages nor a DDL of the log name them."""
    batch = pa.record_batch(
        [["t"], pa.array([0], pa.int32()), [0], pa.array([None], pa.binary()), [_debezium(None)]], torture.COLUMNS
    )
    _, said = log_types.with_binary(pa.Table.from_batches([batch]), NOTHING)
    assert len(said) == 1
    assert "enable-tidb-extension=true" in said[0]


@pytest.mark.parametrize(
    ("written", "shown"),
    [
        ("numeric(10,2) unsigned", "decimal(10,2) unsigned"), ("decimal", "decimal(10,0)"), ("boolean", "tinyint(1)"),
        ("float(25)", "double"), ("float(24) unsigned", "float unsigned"), ("float(7,3)", "float(7,3)"),
        ("serial", "bigint unsigned"), ("enum('integer')", "enum('integer')"), ("integer(11)", "int(11)"),
    ],
)  # fmt: skip
def test_a_type_has_one_name(written: str, shown: str) -> None:
    """SQL has synonyms."""
    assert plainly(written) == shown


@pytest.mark.parametrize(("name", "protocol"), [(name, protocol) for name, protocol, *_ in LOGS])
def test_the_bytes_tell_the_protocol(name: str, protocol: str) -> None:
    """Avro and debezium-avro by the schemas that their messages name."""
    sample = pa.Table.from_batches([torture.messages(name).slice(200, 150)])
    assert detect(sample, known=torture.known(name)).protocol == protocol


@pytest.mark.parametrize(
    ("alias", "name", "protocol"),
    [
        ("flat-avro", "avro", "avro"),
        ("open", "open-protocol", "open-protocol"),
        ("Default", "open-protocol", "open-protocol"),
    ],
)
def test_a_sink_uris_other_names_are_taken(alias: str, name: str, protocol: str) -> None:
    """TiCDC takes them in any case."""
    sample = pa.Table.from_batches([torture.messages(name).slice(200, 50)])
    assert detect(sample, protocol=alias, known=torture.known(name)).protocol == protocol


@pytest.mark.parametrize("protocol", ["open-protocol", "canal-json", "canal", "simple", "avro", "mq-v1", "debezium"])
def test_a_float_has_one_text_in_each_protocol(protocol: str) -> None:
    """An upgrade of TiCDC, which wrote a double's digits before, changes no value."""
    for text in ("61.2", "61.20000076293945"):
        assert shown(protocol, "float", text) == (None, "61.2")
        assert shown_in_csv("float", text) == (None, "61.2")


def test_enum_and_set_are_numbers_above_zero_in_simple() -> None:
    """Avro carries the highest bit of a SET as a sign."""
    column = {
        "name": "s",
        "dataType": {"mysqlType": "set", "elements": ["a"], "charset": "", "collate": "", "length": 1},
    }
    table = {"columns": [column], "indexes": []}
    [of] = simple.columns_of(table)
    assert of.convert(-(1 << 63)) == str(1 << 63)
    assert of.convert("9223372036854775808") == str(1 << 63)


PRIMARY = {"name": "primary", "unique": True, "primary": True, "nullable": False}
UNIQUE = {"name": "u", "unique": True, "primary": False, "nullable": False}


@pytest.mark.parametrize(
    ("indexes", "keys"),
    [
        ([UNIQUE | {"columns": ["a", "b"]}, UNIQUE | {"columns": ["c"]}, PRIMARY | {"columns": ["a", "b"]}], {"c"}),
        ([UNIQUE | {"columns": ["a"]}, UNIQUE | {"columns": ["c"]}, PRIMARY | {"columns": ["a"]}], {"a"}),
        ([UNIQUE | {"columns": ["a"]}, PRIMARY | {"columns": ["b", "c"]}], {"b", "c"}),
        ([UNIQUE | {"columns": ["a"]}, PRIMARY | {"name": "PRIMARY", "columns": ["a"]}], {"a"}),
        ([PRIMARY | {"columns": ["b"]}], {"b"}),
        ([], set()),
    ],
)  # fmt: skip
def test_simples_pseudo_index_is_no_primary_key(indexes: list[dict[str, Any]], keys: set[str]) -> None:
    """Where there is no primary key, it repeats the first not-null unique index: the least of these is the handle."""
    kind = {"mysqlType": "int"}
    table = {"columns": [{"name": c, "dataType": kind} for c in "abc"], "indexes": indexes}
    assert {c.name for c in simple.columns_of(table) if c.is_key} == keys


def test_a_vector_has_one_type_in_every_protocol() -> None:
    """Avro calls it TiDBVECTORFloat32, which no other protocol writes."""
    for name, protocol in (("avro", "avro"), ("simple", "simple"), ("canal-json-tidb", "canal-json")):
        found = torture.decoded(protocol, torture.messages(name), torture.known(name))
        images = [e["columns"] for e in found if e["kind"] == "row" and e["table_name"] == "vecs" and e["columns"]]
        assert {c["mysql_type"].split("(")[0] for i in images for c in i if c["name"] == "v"} == {"vector"}

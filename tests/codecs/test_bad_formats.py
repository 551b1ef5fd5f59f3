"""Bad input to the codecs in Python, the registry, compression and claim checks: nothing raises, nothing is lost."""

from __future__ import annotations

import base64
import gzip
import http.server
import io
import json
import struct
import threading
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random
from typing import Any

import fastavro
import pyarrow as pa
import pytest
import torture
from comparing import batch_of
from conftest import golden
from formats import TOPICS, Message, Row, decoded_by, known, messages
from hypothesis import given, settings
from hypothesis import strategies as st
from making import broken

from ticdc_lab.codecs import Known, decoder, detect, registry, schema_registry, simple_avro, unpack
from ticdc_lab.codecs.decode import decode_batch, decode_with
from ticdc_lab.codecs.event import Event, Malformed
from ticdc_lab.codecs.known import Bounds
from ticdc_lab.codecs.schema_registry import Registry, read_schemas, require_url
from ticdc_lab.codecs.simple_tables import finder, tables_of
from ticdc_lab.codecs.unpack import ClaimCheck, unpacker
from ticdc_lab.errors import ProtocolError, SourceError

SIMPLE, SIMPLE_AVRO, _, DEBEZIUM, _, AVRO, AVRO_PROD = TOPICS[:7]
GOLDEN = {"simple": (SIMPLE, SIMPLE_AVRO), "debezium": (DEBEZIUM, TOPICS[4]), "avro": (AVRO, AVRO_PROD)}
SCHEMA = {
    "type": "record", "name": "t", "namespace": "default.s",
    "fields": [{"name": "a", "type": "int"}, {"name": "_tidb_op", "type": "string"},
               {"name": "_tidb_commit_ts", "type": "long"}, {"name": "_tidb_corrupted", "type": "boolean"}],
}  # fmt: skip
KEY = {"type": "record", "name": "t", "namespace": "default.s", "fields": [{"name": "a", "type": "int"}]}
SCHEMAS = {"1": json.dumps(KEY), "2": json.dumps(SCHEMA)}


def row_of(key: bytes | None, value: bytes | None, partition: int = 0, offset: int = 0) -> Row:
    """A message."""
    return {"topic": "t", "partition": partition, "offset": offset, "key": key, "value": value}


def one(protocol: str, key: bytes | None, value: bytes | None, beside: Known | None = None) -> Row:
    """The one row that a message decodes to."""
    (row,) = decoded_by([row_of(key, value)], protocol, beside or Known())
    return row


def framed(schema_id: int, schema: Row, record: Row) -> bytes:
    """A record under Confluent's framing."""
    out = io.BytesIO()
    fastavro.schemaless_writer(out, fastavro.parse_schema(schema), record)
    return struct.pack(">bI", 0, schema_id) + out.getvalue()


def avro_row(**more: Any) -> Message:
    """Key and value of an insert in avro."""
    whole = {"a": 7, "_tidb_op": "c", "_tidb_commit_ts": 5, "_tidb_corrupted": False} | more
    return framed(1, KEY, {"a": whole["a"]}), framed(2, SCHEMA, whole)


# --- fuzz


@pytest.mark.parametrize("protocol", sorted(GOLDEN))
def test_golden_messages_with_bytes_changed_are_decoded_or_in_quarantine(protocol: str) -> None:
    """Flipped bits, cuts, huge lengths, odd tokens: each message is one or the other, and no fault is unforeseen."""
    r = Random(5)
    whole = [(m["key"], m["value"]) for t in GOLDEN[protocol] for m in messages(t.file)[::23]]
    if protocol == "simple":
        whole += [(m["key"], m["value"]) for m in messages(SIMPLE.file) if b"ableSchema" in m["value"]][:60]
    damaged = [broken(m, r) for m in whole for _ in range(6)]
    classes = survived(protocol, damaged)
    assert 0 < sum(c is None for c in classes) < len(classes)


@pytest.mark.parametrize("protocol", sorted(registry.CODECS))
@settings(max_examples=40, deadline=None, derandomize=True)
@given(some=st.lists(st.tuples(st.none() | st.binary(max_size=60), st.none() | st.binary(max_size=200)), min_size=1))
def test_any_bytes_are_decoded_or_in_quarantine(protocol: str, some: list[Message]) -> None:
    """No matter what key and value are."""
    survived(protocol, some)


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=8,
)


@pytest.mark.parametrize("protocol", ["simple", "debezium"])
@settings(max_examples=150, deadline=None, derandomize=True)
@given(data=st.data(), odd=_JSON)
def test_any_field_of_another_type_is_decoded_or_in_quarantine(protocol: str, data: st.DataObject, odd: Any) -> None:
    """Any value anywhere in a message replaced by any JSON, NaN and huge numbers among them."""
    topic = GOLDEN[protocol][0]
    some = [m for m in messages(topic.file)[:400] if m["kind"] != "checkpoint"]
    message = data.draw(st.sampled_from(some))
    value = json.loads(message["value"])
    inside, name = data.draw(st.sampled_from(places(value)))
    inside[name] = odd
    survived(protocol, [(message["key"], json.dumps(value).encode())])


def places(value: Any) -> list[tuple[Any, Any]]:
    """Every container in a JSON value with each of its names or positions."""
    if not isinstance(value, dict | list):
        return []
    names = list(value) if isinstance(value, dict) else range(len(value))
    return [(value, n) for n in names] + [p for n in names for p in places(value[n])]


def survived(protocol: str, some: list[Message]) -> list[str | None]:
    """The class of each message; each is decoded whole or in quarantine once, with its bytes."""
    tables = brought()
    rows = [row_of(k, v, offset=i) for i, (k, v) in enumerate(some)]
    beside = torture.known(protocol) if protocol == "debezium-avro" else known()
    found = decoded_by(rows, protocol, Known(schemas=beside.schemas, tables=tables))
    classes = {}
    for e in found:
        if e["seq"] == 0:
            assert e["offset"] not in classes
            classes[e["offset"]] = e["error_class"]
        if e["error_class"]:
            assert e["reason"] and e["error_class"] != "codec-error", (e["reason"], e["value"])
            assert (e["key"], e["value"]) == some[e["offset"]]
    assert sorted(classes) == list(range(len(some)))
    return [classes[i] for i in range(len(some))]


_BROUGHT: dict[Any, Any] = {}


def brought() -> dict[Any, Any]:
    """The table versions of the golden topic."""
    if not _BROUGHT:
        batches = iter(pa.Table.from_pylist([row_of(None, m["value"]) for m in messages(SIMPLE.file)]).to_batches())
        _BROUGHT.update(tables_of(row for b in finder(Known())(batches) for row in b.to_pylist()))
    return _BROUGHT


def test_json_that_is_too_deep_is_in_quarantine() -> None:
    """A hundred thousand brackets."""
    for protocol in ("simple", "debezium"):
        assert one(protocol, None, b'{"a":' * 100_000)["error_class"] == "not-json"
    value = b'{"type":"INSERT","database":"s","table":"t","schemaVersion":1,"tableID":1,"commitTs":1,"data":{"a":%s}}'
    deep = value % (b'{"value":' * 900 + b"1" + b"}" * 900)
    beside = Known(tables={("s", "t", 1): table()})
    assert one("simple", None, deep, beside)["error_class"] == "too-deep"


def test_an_unforeseen_fault_of_a_codec_is_one_message_in_quarantine() -> None:
    """It is named, and the messages beside it are decoded."""

    def codec(key: bytes | None, value: bytes | None) -> list[Event]:
        if value == b"1":
            raise ZeroDivisionError("planted \ud800")
        return [Event(2, 5)]

    batch = pa.Table.from_pylist([row_of(None, v, offset=i) for i, v in enumerate((b"0", b"1", b"2"))]).to_batches()[0]
    rows = decode_with(codec, batch, "x").to_pylist()
    assert [(r["offset"], r["error_class"]) for r in rows] == [(0, None), (2, None), (1, "codec-error")]
    assert "ZeroDivisionError: planted" in rows[2]["reason"] and rows[2]["value"] == b"1"


# --- simple


def table(version: int = 1) -> Row:
    """A table of one column."""
    kind = {"mysqlType": "int", "charset": "binary", "collate": "binary", "length": 11}
    index = {"name": "primary", "unique": True, "primary": True, "nullable": False, "columns": ["a"]}
    column = {"name": "a", "dataType": kind, "nullable": False}
    return {"schema": "s", "table": "t", "tableID": 1, "version": version, "columns": [column], "indexes": [index]}


def simple_insert(**more: Any) -> bytes:
    """An insert in simple."""
    whole = {"version": 1, "database": "s", "table": "t", "tableID": 1, "type": "INSERT", "commitTs": 5, "buildTs": 1,
             "schemaVersion": 1, "data": {"a": "7"}, "old": None}  # fmt: skip
    return json.dumps(whole | more).encode()


BESIDE = Known(tables={("s", "t", 1): table()})


def test_rows_whose_schema_never_comes_are_in_quarantine() -> None:
    """Under a class of their own, with what is missing."""
    row = one("simple", None, simple_insert(schemaVersion=9), BESIDE)
    assert row["error_class"] == "schema-unknown" and "version 9 of s.t" in row["reason"]


@pytest.mark.parametrize(
    ("more", "wrong"),
    [
        ({"data": None}, "missing-field"),
        ({"old": {"a": "1"}}, "missing-field"),
        ({"type": "DELETE"}, "missing-field"),
        ({"type": "UPDATE", "data": None, "old": {"a": "1"}}, "missing-field"),
        ({"data": {"b": "1"}}, "unknown-column"),
        ({"data": {"a": [1]}}, "bad-type"),
        ({"data": {"a": 1.5}}, "bad-type"),
        ({"commitTs": 1 << 63}, "out-of-range"),
        ({"commitTs": 1.5}, "bad-type"),
        ({"commitTs": True}, "bad-type"),
        ({"schemaVersion": None}, "missing-field"),
        ({"type": "UPSERT"}, "unknown-type"),
        ({"type": "CREATE", "sql": "x", "tableSchema": table() | {"version": 1 << 63}}, "out-of-range"),
        ({"type": "CREATE", "sql": "x", "tableSchema": table() | {"columns": 5}}, "bad-type"),
        ({"type": "ALTER", "sql": "x", "tableSchema": table() | {"indexes": [{"primary": 1}]}}, "bad-schema"),
    ],
)  # fmt: skip
def test_simple_rows_of_another_form_are_in_quarantine(more: Row, wrong: str) -> None:
    """Each with the class that shows what is wrong; the row it was made from is right."""
    assert one("simple", None, simple_insert(), BESIDE)["columns"][0]["value"] == "7"
    assert one("simple", None, simple_insert(**more), BESIDE)["error_class"] == wrong


def test_a_row_that_ticdc_calls_corrupted_is_marked() -> None:
    """In simple and avro; the columns of the checksum are no columns of the table."""
    checksum = {"version": 0, "corrupted": True, "current": 1, "previous": 2}
    assert one("simple", None, simple_insert(checksum=checksum), BESIDE)["incomplete"] == "corrupted"
    assert one("simple", None, simple_insert(checksum=checksum | {"corrupted": False}), BESIDE)["incomplete"] is None
    beside = Known(schemas=SCHEMAS)
    row = one("avro", *avro_row(_tidb_corrupted=True), beside)
    assert row["incomplete"] == "corrupted" and [c["name"] for c in row["columns"]] == ["a"]
    assert one("avro", *avro_row(), beside)["incomplete"] is None


def test_a_column_whose_name_begins_like_those_that_ticdc_adds_is_a_column() -> None:
    """Only TiCDC's own are left out of the row."""
    more = SCHEMA | {"fields": [*SCHEMA["fields"], {"name": "_tidb_note", "type": "string"}]}
    row = {"a": 7, "_tidb_op": "c", "_tidb_commit_ts": 5, "_tidb_corrupted": False, "_tidb_note": "x"}
    beside = Known(schemas=SCHEMAS | {"2": json.dumps(more)})
    columns = one("avro", framed(1, KEY, {"a": 7}), framed(2, more, row), beside)["columns"]
    assert [(c["name"], c["value"]) for c in columns] == [("a", "7"), ("_tidb_note", "x")]


def test_a_comma_inside_a_label_parts_no_labels() -> None:
    """TiCDC writes a backslash before it, in avro as in debezium."""
    allowed, meant = "a\\,b,it's", "enum('a,b','it''s')"
    kind = {"type": "string", "connect.parameters": {"tidb_type": "ENUM", "allowed": allowed}}
    schema = KEY | {"fields": [{"name": "a", "type": kind}]}
    beside = Known(schemas={"1": json.dumps(schema)})
    (column,) = one("avro", framed(1, schema, {"a": "it's"}), framed(1, schema, {"a": "it's"}), beside)["columns"]
    assert column["mysql_type"] == meant
    message = json.loads(debezium(after={"a": "it's"}))
    field = {"field": "a", "tidb_type": "enum", "parameters": {"allowed": allowed}}
    message["schema"] = {"fields": [{"field": "after", "fields": [field]}]}
    (column,) = one("debezium", None, json.dumps(message).encode())["columns"]
    assert (column["mysql_type"], column["value"]) == (meant, "it's")


def test_a_name_that_stands_twice_is_in_quarantine() -> None:
    """Which value counts is not known; the kernels show the same of their formats, wherever white space stands."""
    for twice in (simple_insert()[:-1] + b', "commitTs": 9}', b'{"a":{"b":1,"b":1}}'):
        row = one("simple", None, twice, BESIDE)
        assert row["error_class"] == "duplicate-key" and "twice" in row["reason"]
    whole = {"id": 0, "database": "s", "table": "t", "pkNames": ["a"], "isDdl": False, "type": "INSERT", "es": 1,
             "ts": 2, "sql": "", "sqlType": {"a": 4}, "mysqlType": {"a": "int"}, "old": None, "data": [{"a": "1"}],
             "_tidb": {"commitTs": 5}}  # fmt: skip
    for name, value in whole.items():  # those that no one reads, too
        raw = json.dumps(whole)[:-1] + f', "{name}": {json.dumps(value)}}}'
        batch = pa.Table.from_pylist([row_of(None, raw.encode())]).to_batches()[0]
        kernel, plain = decode_batch(batch, "canal-json"), one("canal-json", None, raw.encode())
        assert kernel["error_class"].to_pylist() == ["duplicate-key"] == [plain["error_class"]], name


def test_table_versions_that_are_damaged_stop_no_search() -> None:
    """What brings them is looked through to the end, and the right ones are found."""
    bad = [
        simple_insert(type="BOOTSTRAP", tableSchema=t)
        for t in (5, [], {}, table(1 << 63), table() | {"columns": [5]}, table() | {"indexes": {"a": 1}})
    ]
    values = [*bad, b'{"tableSchema":', b"\x16\x02ableSchema", simple_insert(type="BOOTSTRAP", tableSchema=table(3))]
    batches = iter(pa.Table.from_pylist([row_of(None, v) for v in values]).to_batches())
    found = tables_of(row for b in finder(Known())(batches) for row in b.to_pylist())
    assert found == {("s", "t", 3): table(3)}


# --- debezium


def debezium(**payload: Any) -> bytes:
    """An insert in debezium without the part that describes itself."""
    source = {"commit_ts": 5, "db": "s", "table": "t"}
    whole = {"source": source, "op": "c", "before": None, "after": {"a": 1}}
    return json.dumps({"payload": whole | payload}).encode()


@pytest.mark.parametrize(
    ("payload", "wrong"),
    [
        ({"source": []}, "bad-type"),
        ({"source": {"commit_ts": "5", "db": "s", "table": "t"}}, "bad-type"),
        ({"source": {"commit_ts": 5, "db": "s", "table": 7}}, "bad-type"),
        ({"op": {}}, "bad-type"),
        ({"op": "x"}, "unknown-type"),
        ({"after": None}, "missing-field"),
        ({"before": {"a": 2}}, "missing-field"),
        ({"op": "d"}, "missing-field"),
        ({"after": [1]}, "bad-type"),
        ({"after": {"a": {"b": 1}}}, "bad-type"),
        ({"ddl": 5}, "bad-type"),
        ({"ddl": "x", "tableChanges": 5}, "bad-type"),
    ],
)
def test_debezium_of_another_form_is_in_quarantine(payload: Row, wrong: str) -> None:
    """Each with the class that shows what is wrong; the row it was made from is right."""
    assert one("debezium", None, debezium())["columns"][0]["value"] == "1"
    assert one("debezium", None, debezium(**payload))["error_class"] == wrong


def test_a_key_column_may_be_called_as_the_part_that_holds_the_key() -> None:
    """A key without the part that describes itself is the columns alone."""
    for key in (b'{"payload": 1}', b'{"payload": {"payload": 1}, "schema": {}}'):
        row = one("debezium", key, debezium(after={"payload": 1, "b": 2}))
        assert [(c["name"], c["is_key"]) for c in row["columns"]] == [("payload", True), ("b", False)]


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        ({"tidb_type": "date", "name": "io.debezium.time.Date"}, "x"),
        ({"tidb_type": "bit", "name": "io.debezium.data.Bits"}, "=="),
        ({"tidb_type": "blob"}, "é"),
        ({"tidb_type": "double"}, "one"),
        ({"tidb_type": "timestamp", "name": "io.debezium.time.ZonedTimestamp"}, 5),
        ({"tidb_type": "time", "name": "io.debezium.time.MicroTime"}, 1.5),
    ],
)
def test_debezium_values_that_are_not_of_their_type_are_in_quarantine(kind: Row, value: Any) -> None:
    """The reason names the column."""
    message = json.loads(debezium(after={"a": value}))
    message["schema"] = {"fields": [{"field": "after", "fields": [kind | {"field": "a"}]}]}
    row = one("debezium", None, json.dumps(message).encode())
    assert row["error_class"] == "bad-type" and "column 'a'" in row["reason"]


# --- avro and its registry


def test_avro_that_does_not_fit_its_schema_is_in_quarantine() -> None:
    """Bytes left over or missing, an unknown id, no framing, another op, a delete without a key."""
    key, value = avro_row()
    beside = Known(schemas=SCHEMAS | {"3": '{"type":"string"}', "4": "not json", "5": "5"})
    assert key is not None and value is not None

    def wrong(k: bytes | None, v: bytes | None) -> Any:
        return one("avro", k, v, beside)["error_class"]

    assert wrong(key, value) is None
    assert wrong(key, value + b"\0") == "trailing-bytes"
    assert wrong(key, value[:-3]) == "not-avro"
    assert wrong(key, key) == "missing-field" or one("avro", key, key, beside)["incomplete"] == "op-unknown"
    assert wrong(key, b"\0\0\0\0\x63" + value[5:]) == "schema-unknown"
    assert wrong(key, b"\0\0\0\0\0" + value[5:]) == "bad-version"
    assert {wrong(key, b"\0\0\0\0" + bytes([i]) + value[5:]) for i in (3, 4, 5)} == {"bad-schema"}
    assert wrong(key, b"") == wrong(key, b"\x09abcdefgh") == "bad-version"
    assert wrong(None, value) is None  # a table without a primary key has none
    assert wrong(None, None) == "missing-key"
    assert wrong(*avro_row(_tidb_op="x")) == "unknown-type"
    assert wrong(key, b"\x02\0\0") == "truncated-frame"
    assert wrong(key, b"\x01{}") == "missing-field"


def test_glue_inflates_no_more_than_it_may(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its framing decodes; a bomb, a cut and bytes after the end are refused."""
    key, value = avro_row()
    assert key is not None and value is not None
    glue = b"\x03\x05" + bytes(15) + b"\x02"
    plain = b"\x03\x00" + bytes(15) + b"\x01" + key[5:]
    names = {f"00000000-0000-0000-0000-00000000000{i}": SCHEMAS[str(i)] for i in (1, 2)}
    beside = Known(schemas=names)
    packed = zlib.compress(value[5:])
    assert one("avro", plain, glue + packed, beside)["columns"][0]["value"] == "7"
    for bad in (packed[:-3], packed + b"x", b"junk"):
        assert one("avro", plain, glue + bad, beside)["error_class"] == "bad-compression"
    tight = Known(schemas=names, bounds=Bounds(inflated=1_000))
    assert one("avro", plain, glue + zlib.compress(bytes(10_000)), tight)["error_class"] == "too-large"


@contextmanager
def serving(answer: Any) -> Iterator[tuple[str, list[str]]]:
    """A registry on this machine; ``answer(path)`` gives status and body. Yields its URL and the paths asked for."""
    asked: list[str] = []

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked.append(self.path + (" " + self.headers["Authorization"] if "Authorization" in self.headers else ""))
            status, body = answer(self.path)
            try:
                self.send_response(status)
                self.end_headers()
                self.wfile.write(body)
            except OSError:  # the client left
                pass

        def log_message(self, format: str, *args: Any) -> None:
            """Report nothing."""

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"127.0.0.1:{server.server_port}", asked
    finally:
        server.shutdown()
        server.server_close()


def schemas_answer(path: str) -> tuple[int, bytes]:
    """What a registry that knows SCHEMAS shows."""
    schema = SCHEMAS.get(path.rsplit("/", 1)[-1])
    return (404, b"{}") if schema is None else (200, json.dumps({"schema": schema}).encode())


def test_a_registry_names_the_subjects_of_keys() -> None:
    """Keys in the place of values are asked for; a registry that cannot name subjects refuses nothing."""
    key, value = avro_row()

    def answer(path: str) -> tuple[int, bytes]:
        if not path.endswith("/versions"):
            return schemas_answer(path)
        subject = {"1": "t-key", "2": "t-value"}[path.split("/")[-2]]
        return 200, json.dumps([{"subject": subject, "version": 1}]).encode()

    def told(of: bytes | None, by: Callable[[str], tuple[int, bytes]]) -> str:
        with serving(by) as (place, _):
            sample = pa.Table.from_batches([batch_of([(None, of)])])
            return detect(sample, known=Known(registry_url=f"http://{place}")).protocol

    with pytest.raises(ProtocolError, match="t-key"):
        told(key, answer)
    assert told(value, answer) == told(key, schemas_answer) == "avro"


def test_a_registry_is_asked_once_for_each_schema_and_told_the_password_alone() -> None:
    """Basic auth of the URL goes to the registry and into no message."""
    with serving(schemas_answer) as (place, asked):
        beside = Known(registry_url=f"http://me:s3cret@{place}/")
        rows = decoded_by([row_of(*avro_row(a=i), offset=i) for i in range(9)], "avro", beside)
        assert [r["columns"][0]["value"] for r in rows] == [str(i) for i in range(9)]
        token = "Basic " + base64.b64encode(b"me:s3cret").decode()
        assert asked == [f"/schemas/ids/{i} {token}" for i in (1, 2)]
        key, value = avro_row()
        unknown = decoded_by([row_of(key, b"\0\0\0\0\x63" + (value or b"")[5:])] * 5, "avro", beside)
        assert {r["error_class"] for r in unknown} == {"schema-unknown"}
        assert asked.count(f"/schemas/ids/99 {token}") == 1
        assert not any("s3cret" in text for text in (*(r["reason"] for r in unknown), repr(beside)))


@pytest.mark.parametrize(
    "answer",
    [
        (500, b""), (403, b"no"), (200, b"<html>"), (200, b"[]"), (200, b"{}"), (200, b'{"schema": 5}'), (200, b"\xff"),
        (200, b"[" * 100_000),
    ],
)  # fmt: skip
def test_a_registry_that_answers_badly_ends_the_load_in_words(
    answer: tuple[int, bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    """An outage is no fault of a message: it is asked some times, and then reported, without the password."""
    monkeypatch.setattr(schema_registry, "_PAUSE_S", 0)
    with serving(lambda path: answer) as (place, asked), pytest.raises(SourceError) as said:
        decoded_by([row_of(*avro_row())] * 20, "avro", Known(registry_url=f"http://me:s3cret@{place}"))
    assert len(asked) <= 4 and "s3cret" not in str(said.value) and place in str(said.value) and said.value.hint


def test_a_registry_that_is_away_for_a_moment_is_asked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """The load continues as if nothing had been."""
    monkeypatch.setattr(schema_registry, "_PAUSE_S", 0)
    answers = iter([(503, b""), (503, b"")])
    with serving(lambda path: next(answers, None) or schemas_answer(path)) as (place, _):
        rows = decoded_by([row_of(*avro_row())] * 3, "avro", Known(registry_url=f"http://{place}"))
    assert [r["columns"][0]["value"] for r in rows] == ["7"] * 3


def test_a_registry_that_is_slow_or_not_there_does_not_hold_a_load_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """Some tries, then the load ends."""
    monkeypatch.setattr(schema_registry, "TIMEOUT_S", 0.1)
    monkeypatch.setattr(schema_registry, "_PAUSE_S", 0)
    given_up = threading.Event()
    with serving(lambda path: (given_up.wait(), (200, b"{}"))[1]) as (place, _):
        with pytest.raises(SourceError):
            decoded_by([row_of(*avro_row())] * 20, "avro", Known(registry_url=f"http://{place}"))
        given_up.set()
    with pytest.raises(SourceError) as gone:
        decoded_by([row_of(*avro_row())] * 20, "avro", Known(registry_url=f"http://me:s3cret@{place}"))
    assert "s3cret" not in str(gone.value)


@pytest.mark.parametrize("protocol", ["canal-json", "open-protocol"])
def test_a_folder_of_claim_checks_that_cannot_be_read_ends_the_load_in_words(protocol: str, tmp_path: Path) -> None:
    """It must not look as if its files were missing."""
    message = (None, canal_claim("x.json")) if protocol == "canal-json" else open_claim("x.json")
    with pytest.raises(SourceError, match="cannot be read"):
        one(protocol, *message, Known(claim_check=str(tmp_path / "gone")))
    assert one(protocol, *message, Known(claim_check=str(tmp_path)))["incomplete"] == "claim-check-missing"


def open_claim(location: str) -> Message:
    """A row of open-protocol whose whole is elsewhere."""
    key = json.dumps({"ts": 5, "scm": "s", "tbl": "t", "t": 1, "ccl": location}).encode()
    body = b'{"u":{}}'
    return struct.pack(">QQ", 1, len(key)) + key, struct.pack(">Q", len(body)) + body


@pytest.mark.parametrize("url", ["http://", "ftp://me:s3cret@h", "http://me:s3cret@h:port", "http://[", "s3://a/b"])
def test_what_is_no_url_of_a_registry_is_refused_without_its_password(url: str) -> None:
    """Before anything is read."""
    with pytest.raises(SourceError) as e:
        require_url(url)
    assert "s3cret" not in str(e.value)
    assert require_url("https://me:pw@h:8081/x")


def test_schemas_are_read_as_registries_and_tools_give_them(tmp_path: Path) -> None:
    """A list, objects behind each other, the topic `_schemas` as values, with keys, and as kcat's objects; Glue's."""
    lines = [*map(json.loads, gzip.decompress(golden("avro_schemas_small.jsonl.gz").read_bytes()).splitlines())]
    wanted = {str(of["id"]): of["schema"] for of in lines}
    keys = [json.dumps({"keytype": "SCHEMA", "subject": "s", "version": 1, "magic": 1}) for _ in lines]
    values = [json.dumps(of | {"deleted": False}) for of in lines]
    pairs = [*zip(keys, values, strict=True)]
    forms = {
        "list": json.dumps(lines, indent=1),
        "pretty": "\n".join(json.dumps(of, indent=2) for of in lines),
        "values": "\n".join(['{"compatibilityLevel":"FULL"}', *values, '{"subject":"s","version":1}']),
        "console": "\n".join(f"CreateTime:17\t{k}\t{v}" for k, v in [*pairs, (keys[0], "null")]),
        "kcat": "\n".join(json.dumps({"topic": "_schemas", "key": k, "payload": v}) for k, v in pairs),
        "glue": json.dumps([{"SchemaVersionId": of["id"], "SchemaDefinition": of["schema"]} for of in lines]),
    }  # fmt: skip
    for name, text in forms.items():
        (tmp_path / name).write_text(text)
        assert read_schemas(str(tmp_path / name)) == wanted, name


def test_a_damaged_file_of_schemas_is_an_error_that_says_so(tmp_path: Path) -> None:
    """Cut, no gzip, no JSON, other fields, nested too deep, not there."""
    whole = golden("avro_schemas_small.jsonl.gz").read_bytes()
    bad = {
        "cut.gz": whole[:400], "flipped.gz": whole[:300] + b"\xff\0\xff" + whole[303:], "plain.gz": b"x",
        "text": b"x\n", "list": b"[]\n", "fields": b'{"id": 1}\n', "number": b'{"id": 1, "schema": 5}\n',
        "deep": b"[" * 100_000, "bytes": b"\xff\xfe{}",
    }  # fmt: skip
    for name, content in bad.items():
        (tmp_path / name).write_bytes(content)
        with pytest.raises(SourceError, match=name):
            read_schemas(str(tmp_path / name))
    with pytest.raises(SourceError, match="gone"):
        read_schemas(str(tmp_path / "gone"))
    (tmp_path / "right").write_bytes(gzip.decompress(whole))
    assert read_schemas(str(tmp_path / "right")) == read_schemas(str(golden("avro_schemas_small.jsonl.gz")))
    with pytest.raises(Malformed, match="16 known schemas"):
        Registry(known()).schema("99")


# --- compression


def lz4(raw: bytes) -> bytes:
    """One lz4 frame."""
    out = pa.BufferOutputStream()
    with pa.CompressedOutputStream(out, "lz4") as packed:
        packed.write(raw)
    return bytes(out.getvalue())


def snappy(raw: bytes) -> bytes:
    """One raw block."""
    return bytes(pa.compress(raw, codec="snappy", asbytes=True))


@pytest.mark.parametrize("pack", [lz4, snappy])
def test_compressed_streams_that_are_damaged_are_in_quarantine_as_they_were(pack: Any) -> None:
    """Cut anywhere or with a byte changed: never an exception, and the bytes that came are kept."""
    packed = pack(simple_insert())
    assert one("simple", None, packed, BESIDE)["columns"][0]["value"] == "7"
    for i in range(len(packed)):
        for value in (packed[:i], packed[:i] + bytes([packed[i] ^ 0x55]) + packed[i + 1 :]):
            row = one("simple", None, value, BESIDE)
            assert row["error_class"] is None or row["value"] == value


@pytest.mark.parametrize("pack", [lz4, snappy])
@pytest.mark.parametrize("protocol", ["simple", "canal-json", "open-protocol"])
def test_what_would_inflate_to_too_much_is_in_quarantine(pack: Any, protocol: str) -> None:
    """A bomb is not inflated, alone or in a frame."""
    beside = Known(bounds=Bounds(inflated=100_000))
    bomb = pack(b" " * 10_000_000)
    key = (1).to_bytes(8, "big") + struct.pack(">Q", 2) + b"{}" if protocol == "open-protocol" else None
    value = struct.pack(">Q", len(bomb)) + bomb if protocol == "open-protocol" else bomb
    row = one(protocol, key, value, beside)
    assert row["error_class"] and row["value"] == value
    assert pack is not lz4 or (row["error_class"] == "too-large" and "100,000" in row["reason"])


@pytest.mark.parametrize("protocol", ["simple", "canal-json"])
def test_a_batch_that_inflates_to_too_much_is_unpacked_in_parts(protocol: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same rows come out, in the same order."""
    topic = TOPICS[2] if protocol == "simple" else TOPICS[7]
    beside = Known(tables=brought())
    some = messages(topic.file)[:300]
    whole = decoded_by(some, protocol, beside)
    monkeypatch.setattr(unpack, "BATCH_LARGEST", 20_000)
    sizes = [b.num_rows for b in decoder(protocol, known=beside)(iter(pa.Table.from_pylist(some).to_batches()))]
    assert len(sizes) > 4
    assert [e for e in decoded_by(some, protocol, beside) if not e["error_class"]] == [
        e for e in whole if not e["error_class"]
    ]


# --- claim checks


def canal_claim(location: str) -> bytes:
    """A row of canal-json whose whole is elsewhere."""
    return json.dumps({
        "id": 0, "database": "s", "table": "t", "pkNames": ["a"], "isDdl": False, "type": "INSERT", "es": 1, "ts": 1,
        "sql": "", "sqlType": {"a": 4}, "mysqlType": {"a": "int"}, "old": None, "data": [{"a": "1"}],
        "_tidb": {"commitTs": 5, "onlyHandleKey": False, "claimCheckLocation": location},
    }).encode()  # fmt: skip


WHOLE = canal_claim("").replace(b'"1"}]', b'"99"}]')


LOCATIONS = [
    "../secret.json",
    "/etc/passwd",
    "file:///x/../../secret.json",
    "%2e%2e/secret.json",
    "%252e%252e/secret.json",
    "..\\secret.json",
    "x/%2e%2e%2fsecret.json",
    "link.json",
    "out/secret.json",
    "loop",
    "sub",
    "fifo",
    "/",
    ".",
    "..",
    "gone.json",
]


@pytest.mark.parametrize("location", [*LOCATIONS, "", "a\0b", "x" * 5_000])
def test_nothing_outside_the_folder_is_read(tmp_path: Path, location: str) -> None:
    """No matter what a location shows and wherever links lead: the row stays what its message contains,
    and reports it.
    """
    import os

    folder = tmp_path / "claims"
    (folder / "sub").mkdir(parents=True)
    (tmp_path / "secret.json").write_bytes(WHOLE)
    (folder / "link.json").symlink_to(tmp_path / "secret.json")
    (folder / "out").symlink_to(tmp_path)
    (folder / "loop").symlink_to(folder / "loop")
    os.mkfifo(folder / "fifo")
    assert ClaimCheck(str(folder)).content(location) is None
    row = one("canal-json", None, canal_claim(location or "x"), Known(claim_check=str(folder)))
    assert (row["incomplete"], row["columns"][0]["value"]) == ("claim-check-missing", "1")
    (folder / "here.json").write_bytes(WHOLE)
    for place in (str(folder), f"file://{folder}"):
        row = one("canal-json", None, canal_claim("file:///var/x/here.json"), Known(claim_check=place))
        assert row["columns"][0]["value"] == "99"


@pytest.mark.parametrize("in_avro", [True, False])
@pytest.mark.parametrize("enveloped", [True, False])
def test_simple_under_a_claim_check_is_whole(tmp_path: Path, in_avro: bool, enveloped: bool) -> None:
    """In JSON and Avro, in an envelope or as it is; without the file the row holds its key and reports it."""
    pack = avro_form if in_avro else simple_insert
    whole = pack(data={"a": "99"})
    envelope = json.dumps({"key": None, "value": base64.b64encode(whole).decode()}).encode()
    claimed = pack(claimCheckLocation="file:///var/cdc/x.json")
    beside = Known(tables=BESIDE.tables, claim_check=str(tmp_path))
    row = one("simple", None, claimed, beside)
    assert (row["incomplete"], row["columns"][0]["value"]) == ("claim-check-missing", "7")
    (tmp_path / "x.json").write_bytes(envelope if enveloped else whole)
    row = one("simple", None, claimed, beside)
    assert (row["incomplete"], row["columns"][0]["value"]) == (None, "99")


def avro_form(**more: Any) -> bytes:
    """What :func:`simple_insert` gives, in Avro."""
    fields = json.loads(simple_insert(**more))
    out = io.BytesIO(simple_avro.FIRST)
    out.seek(1)
    fastavro.schemaless_writer(out, simple_avro._MESSAGE, {"type": "DML", "payload": ("DML", fields)})
    return out.getvalue()


@pytest.mark.parametrize(
    "content",
    [b"", b"{", b"[]", b"\xff\xfe", b'{"key":"","value":"!"}', b'{"key":5,"value":5}', WHOLE[:-9], bytes(1_000)],
)
def test_a_damaged_file_is_as_good_as_none(tmp_path: Path, content: bytes) -> None:
    """The row is decoded from its message and shows what is missing."""
    (tmp_path / "x.json").write_bytes(content)
    row = one("canal-json", None, canal_claim("x.json"), Known(claim_check=str(tmp_path)))
    assert (row["error_class"], row["incomplete"]) in ((None, "claim-check-missing"), ("missing-field", None))


@pytest.mark.parametrize(
    ("old", "new"), [('"t"', '"u"'), ('"commitTs": 5', '"commitTs": 6'), ('"es": 1', '"es": 2'), ("INSERT", "DELETE")]
)
def test_a_file_of_another_change_is_as_good_as_none(tmp_path: Path, old: str, new: str) -> None:
    """What lies under a claim check by mistake must not take the row's place."""
    (tmp_path / "x.json").write_bytes(WHOLE.replace(old.encode(), new.encode()))
    row = one("canal-json", None, canal_claim("x.json"), Known(claim_check=str(tmp_path)))
    assert (row["table_name"], row["incomplete"], row["columns"][0]["value"]) == ("t", "claim-check-missing", "1")


@pytest.mark.parametrize(("table", "value"), [("t", "99"), ("u", "1")])
def test_open_protocol_under_a_claim_check_is_the_change_that_its_key_names(
    tmp_path: Path, table: str, value: str
) -> None:
    """A file of another table is not taken."""

    def packed(tbl: str, v: int, **more: Any) -> Message:
        key = json.dumps({"ts": 5, "scm": "s", "tbl": tbl, "t": 1} | more).encode()
        body = json.dumps({"u": {"a": {"t": 3, "h": True, "f": 11, "v": v}}}).encode()
        return struct.pack(">QQ", 1, len(key)) + key, struct.pack(">Q", len(body)) + body

    inside = {
        name: base64.b64encode(part).decode() for name, part in zip(("key", "value"), packed(table, 99), strict=True)
    }
    (tmp_path / "x.json").write_text(json.dumps(inside))
    row = one("open-protocol", *packed("t", 1, ccl="file:///a/x.json"), Known(claim_check=str(tmp_path)))
    assert (row["table_name"], row["columns"][0]["value"]) == ("t", value)


def test_a_file_that_is_too_large_is_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nor are more than a batch may hold read at once."""
    (tmp_path / "x.json").write_bytes(WHOLE)
    tight = Known(claim_check=str(tmp_path), bounds=Bounds(inflated=len(WHOLE) - 1))
    some = [row_of(None, canal_claim(name)) for name in ("gone.json", "x.json", "gone.json")]
    assert [r["error_class"] for r in decoded_by(some, "canal-json", tight)] == [None, "too-large", None]
    monkeypatch.setattr(unpack, "BATCH_LARGEST", 2 * len(WHOLE))
    enough = Known(claim_check=str(tmp_path), bounds=Bounds(inflated=len(WHOLE)))
    rows = decoded_by([row_of(None, canal_claim("x.json"))] * 9, "canal-json", enough)
    assert [r["columns"][0]["value"] for r in rows] == ["99"] * 9


def test_what_is_not_packed_stays_as_it_is() -> None:
    """No message of a plain topic is copied or changed."""
    for topic in TOPICS[:2]:
        batch = pa.Table.from_pylist([row_of(m["key"], m["value"]) for m in messages(topic.file)]).to_batches()[0]
        assert unpacker("simple", Known())(batch).equals(batch)

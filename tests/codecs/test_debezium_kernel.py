"""The kernel of debezium and its codec in Python give the same of every message; the kernel takes what TiCDC writes."""

from __future__ import annotations

import json
from itertools import islice
from random import Random
from typing import Any

import pyarrow as pa
import pytest
import reference_decoder as oracle
from comparing import batch_of
from conftest import golden
from hypothesis import example, given, settings
from hypothesis import strategies as st
from making import Message, broken

from ticdc_lab.codecs import choice
from ticdc_lab.codecs.debezium import codec
from ticdc_lab.codecs.decode import decode_mostly, decode_with, decoder
from ticdc_lab.codecs.defined_types import LogTypes
from ticdc_lab.codecs.known import BOUNDS, Bounds, Known

COLUMNS: dict[str, dict[str, Any]] = {
    "id": {"tidb_type": "bigint unsigned", "type": "int64"},
    "tiny": {"tidb_type": "tinyint", "type": "int16"},
    "b": {"tidb_type": "varbinary", "type": "bytes"},
    "bits": {"tidb_type": "bit", "type": "bytes", "name": "io.debezium.data.Bits", "parameters": {"length": "10"}},
    "one": {"tidb_type": "bit", "type": "boolean"},
    "f": {"tidb_type": "float", "type": "float"},
    "d": {"tidb_type": "double", "type": "double"},
    "n": {"tidb_type": "decimal", "type": "double"},
    "s": {"tidb_type": "varchar", "type": "string"},
    "day": {"tidb_type": "date", "type": "int32", "name": "io.debezium.time.Date"},
    "t": {"tidb_type": "time", "type": "int64", "name": "io.debezium.time.MicroTime"},
    "ms": {"tidb_type": "datetime", "type": "int64", "name": "io.debezium.time.Timestamp"},
    "us": {"tidb_type": "datetime", "type": "int64", "name": "io.debezium.time.MicroTimestamp"},
    "at": {"tidb_type": "timestamp", "type": "string", "name": "io.debezium.time.ZonedTimestamp"},
    "y": {"tidb_type": "year", "type": "int32", "name": "io.debezium.time.Year"},
    "e": {"tidb_type": "enum", "type": "string", "name": "io.debezium.data.Enum", "parameters": {"allowed": "a,b"}},
    "plain": {"type": "int64"},
    "Ä": {"tidb_type": "json", "type": "string", "name": "io.debezium.data.Json"},
}
PLAIN: dict[str, Any] = {
    "id": -1, "tiny": True, "b": "AP+A", "bits": "/wM=", "one": True, "f": 0.1, "d": 1.5, "n": 12.30, "s": "x\n數",
    "day": 18_262, "t": -3_600_000_001, "ms": 1_577_836_800_123, "us": -1, "at": "2020-01-01T00:00:00.5Z", "y": 2020,
    "e": "a", "plain": 5, "Ä": "{}",
}  # fmt: skip
DEFINED = (
    "CREATE TABLE t (id BIGINT UNSIGNED PRIMARY KEY, tiny TINYINT, b VARBINARY(9), bits BIT(10), one BIT(1), f FLOAT,"
    " d DOUBLE, n DECIMAL(10,3), s VARCHAR(20), day DATE, t TIME(2), ms DATETIME(3), us DATETIME(6), at TIMESTAMP,"
    " y YEAR, e ENUM('a','b'), plain INT, `Ä` JSON)"
)
WHOLE = [0, 1, -1, 1 << 63, (1 << 64) - 1, 1 << 64, -(1 << 63), -(1 << 63) - 1, 10**20, 10**21, 1.0, 1.5, True, "1", ""]
ODD: dict[str, list[Any]] = {
    "id": WHOLE,
    "tiny": [127, 128, 255, 256, -128, -129, False, "5", "x", 1.0],
    "b": ["", "AP+", "AP+A=", "====", "AA==", "AB==", "A A=", "AP-_", "AAAA AAAA", 1, True],
    "bits": ["", "AA==", "AQ", "////////////", "//////////8=", "AAAAAAAAAAAA", True, 3, "!"],
    "one": [False, "AQ==", 1],
    "f": [0, -0.0, 16777216, 16777217, 0.1, 0.333333, 0.3333333, 37160.84, 3.4028235e38, 3.5e38, 1e-40, 1e20, "1"],
    "d": [0, 1e308, 1.7976931348623157e308, 5e-324, 2.2250738585072014e-308, 0.1 + 0.2, 8781884007.346586,
          9007199254740992, 9007199254740993, 1e15, 999999999999999, 1e-15, 1e-16, 10**25, "1"],
    "n": [0, -0.0, 0.0, 1.50, 1e21, 10**20, 8781884007.346586, 1e-7, 1e-30, 123456789012345678, "1.50", "x", True],
    "s": ["", "\u0000", "\n\t\"\\", "數🙂", 3, -0.0, 10**30, False, ["a"], {"a": 1}, 1.25],
    "day": [0, -719_162, -719_163, 2_932_896, 2_932_897, 11_016, -25_567, 1.0, "2020-01-01", True],
    "t": [0, 1, 1_000_000, 86_400_000_000, 3_020_399_000_000, 3_600_000_000_000, -3_020_399_999_999, 1 << 62],
    "ms": [0, -1, 253_402_300_799_999, 253_402_300_800_000, -62_135_596_800_000, -62_135_596_800_001, 1 << 62, 1.0],
    "us": [0, 1, 100_000, 253_402_300_799_999_999, 253_402_300_800_000_000, -62_135_596_800_000_000, (1 << 63) - 1],
    "at": ["2020-01-01T00:00:00Z", "2020-01-01T00:00:00", "2020-01-01 00:00:00", "2020-01-01T00:00:00+01:00",
           "0000-00-00 00:00:00", "2020-13-01T00:00:00Z", "äääääääääT0000000Z", "", 5],
    "y": [0, 1901, 70_000, "2020"],
    "e": ["", "c", 1],
    "plain": [*WHOLE, "text", [], {}],
    "Ä": ["[1]", 5],
}  # fmt: skip
"""Values at which a kernel and Python could differ."""
SOURCE = {
    "version": "2.4.0.Final", "connector": "TiCDC", "name": "default", "ts_ms": 1, "snapshot": "false", "db": "s",
    "table": "t", "server_id": 0, "gtid": None, "file": "", "pos": 0, "row": 0, "thread": 0, "query": None,
    "commit_ts": 470603993588957184, "cluster_id": "default",
}  # fmt: skip


def written(message: Any) -> bytes:
    """As Go writes it: compact."""
    return json.dumps(message, separators=(",", ":"), ensure_ascii=False).encode()


def schema_of(columns: dict[str, dict[str, Any]], name: str = "t") -> dict[str, Any]:
    """The part that describes a message."""
    fields = [{"optional": True, "field": n} | of for n, of in columns.items()]
    images = [{"type": "struct", "name": f"s.{name}.Value", "field": f, "fields": fields} for f in ("before", "after")]
    return {"type": "struct", "name": f"s.{name}.Envelope", "version": 1, "fields": images}


def row(after: Any = None, before: Any = None, *, schema: Any = None, key: Any = ("id",), **fields: Any) -> Message:
    """A row of the table, as TiCDC writes it except for what is reported; ``source`` is added to the one of TiCDC."""
    op = "d" if after is None else "c" if before is None else "u"
    payload = {
        "source": SOURCE | fields.pop("source", {}), "ts_ms": 1, "transaction": None, "op": op, "before": before,
        "after": after,
    } | fields  # fmt: skip
    image = after if isinstance(after, dict) else before if isinstance(before, dict) else {}
    end = {} if schema is None else {"schema": schema}
    keys = {"payload": {n: image.get(n) for n in key}} | ({"schema": {"type": "struct", "k": list(key)}} if end else {})
    return written(keys), written({"payload": payload} | end)


SCHEMA = schema_of(COLUMNS)
TYPED = row(PLAIN, schema=SCHEMA)
UNTYPED = row(PLAIN)
LOG = Known(types=LogTypes([(1, "s", "t", DEFINED), (470603993588957185, "s", "t", "ALTER TABLE t DROP COLUMN e")]))
WATERMARK = (b'{"payload":{}}', written({"payload": {"source": SOURCE, "ts_ms": 1, "transaction": None, "op": "m"}}))


def alike(some: list[Message], known: Known | None = None, bounds: Bounds = BOUNDS) -> int:
    """Assert that both give the same, errors and order included; how many messages the kernel took."""
    batch, given = batch_of(some), known or Known()
    of = codec(given)
    mixed = decode_mostly(of.kernel, of, batch, "debezium", images=True, original=batch, bounds=bounds)
    plain = decode_with(codec(given), batch, "debezium", bounds=bounds)
    if not mixed.equals(plain):
        for a, b in zip(mixed.to_pylist(), plain.to_pylist(), strict=True):
            assert a == b, some[a["offset"]]
    assert mixed.equals(plain) and not set(plain["error_class"].to_pylist()) & {"codec-error"}
    return len(set(of.kernel(batch, images=True, bounds=bounds).message.tolist()))


def golden_messages(name: str) -> list[Message]:
    """The beginning of a golden topic."""
    return [(m["key"], m["value"]) for m in islice(oracle.messages(golden(name)), 5_000)]


GOLDEN = ("messages_debezium_small.jsonl.gz", "messages_debezium-noschema_small.jsonl.gz")


@pytest.mark.parametrize("name", GOLDEN)
def test_golden_topics_decode_alike(name: str) -> None:
    """What the real encoders wrote, with schemas and without; all but odd floats is the kernel's, DDL to the last."""
    some = golden_messages(name)
    assert alike(some) > 0.9 * len(some)
    ddl = [(key, value) for key, value in some if b'"ddl":' in (value or b"")]
    assert ddl and alike(ddl) == len(ddl)


def test_an_integer_zero_has_no_sign() -> None:
    """A DOUBLE or FLOAT of ``-0`` is an integer to Python, the one of ``-0.0`` is not."""
    zeros = [(k, (v or b"").replace(b'"f":0.1,"d":1.5', b'"f":%b,"d":%b' % (z, z))) for k, v in [TYPED] * 2
             for z in (b"-0", b"-0.0")]  # fmt: skip
    assert alike([TYPED, *zeros]) >= 1 and zeros[0] != TYPED


@pytest.mark.parametrize("digits", [b"9007199254740992.0", b"1.1754943508222875e-38", b"9.5367431640625e-07",
                                    b"0." + b"0" * 323 + b"5", b"179769313486231570" + b"0" * 291])  # fmt: skip
def test_no_double_is_left_for_its_length_or_for_a_nine(digits: bytes) -> None:
    """Go writes 327 digits where no exponent may be; a power of two whose digits are cut behind a 9 is no riddle."""
    doubles = [(k, (v or b"").replace(b'"d":1.5', b'"d":' + digits)) for k, v in [TYPED, UNTYPED]]
    assert digits in (doubles[0][1] or b"") and alike([TYPED, *doubles]) == 3


def test_what_a_kernel_leaves_is_hashed_as_the_whole_log_is(monkeypatch: pytest.MonkeyPatch) -> None:
    """A few messages in each batch never make a log large; the batches that they are left of do."""
    asked = list[int]()
    monkeypatch.setattr(choice, "compiled", lambda part, batch: bool(asked.append(batch.num_rows)))
    alike([TYPED, TYPED, row(PLAIN | {"e": {}}, schema=SCHEMA)])
    assert asked[0] == 3


def test_digits_of_the_log_decode_alike() -> None:
    """A message with types takes the digits of the definition that holds at its commit_ts, from its own table alone."""
    columns = {"id": "INT PRIMARY KEY", "t": "TIME(3)", "d": "DATETIME(3)", "n": "DECIMAL(9,4)"}
    ddl = ", ".join(f"{name} {of}" for name, of in columns.items())
    start = SOURCE["commit_ts"]
    log = Known(types=LogTypes([
        (1, "s", "t", f"CREATE TABLE t ({ddl})"), (start + 10, "s", "t", "ALTER TABLE t MODIFY t TIME(1)"),
        (start + 20, "s", "t", "ALTER TABLE t MODIFY n VARCHAR(9)"),
        (1, "s", "u", f"CREATE TABLE u ({ddl.replace('3', '5')})"),
    ]))  # fmt: skip
    schema = schema_of({
        "id": {"tidb_type": "int", "type": "int32", "optional": False},
        "t": {"tidb_type": "time", "type": "int64", "name": "io.debezium.time.MicroTime"},
        "d": {"tidb_type": "datetime", "type": "int64", "name": "io.debezium.time.Timestamp"},
        "n": {"tidb_type": "decimal", "type": "double"},
    })  # fmt: skip
    image = {"id": 1, "t": 36_000_500_000, "d": 1_700_000_000_500, "n": 1.5}
    places = [{}, {"commit_ts": start + 10}, {"commit_ts": start + 20}, {"table": "u"}, {"table": "v"}, {}]
    some = [row(image, image, schema=schema, source=place) for place in places]
    assert alike(some, log) >= 4  # two tables with one schema: the second one's are Python's
    batch = batch_of(some)
    found = decode_with(codec(log), batch, "debezium", bounds=BOUNDS).to_pylist()
    texts = [[c["value"] for c in event["columns"][1:]] for event in found]
    assert texts == [
        ["10:00:00.500", "2023-11-14 22:13:20.500", "1.5000"], ["10:00:00.5", "2023-11-14 22:13:20.500", "1.5000"],
        ["10:00:00.5", "2023-11-14 22:13:20.500", "1.5"], ["10:00:00.50000", "2023-11-14 22:13:20.5", "1.5000"],
        ["10:00:00.5", "2023-11-14 22:13:20.5", "1.5"], ["10:00:00.500", "2023-11-14 22:13:20.500", "1.5000"],
    ]  # fmt: skip
    assert {c["mysql_type"] for c in found[4]["columns"]} == {"int", "time", "datetime", "decimal"}


def test_types_of_the_log_decode_alike() -> None:
    """Messages without a schema follow the definition that holds at their commit_ts."""
    some = [
        row(PLAIN), row(PLAIN, PLAIN), row(before=PLAIN), row({k: v for k, v in PLAIN.items() if k != "e"}),
        row(PLAIN, source={"commit_ts": 0}), row(PLAIN, source={"db": "S"}), WATERMARK,
        row({k: v for k, v in PLAIN.items() if k != "e"}, source={"commit_ts": 470603993588957190}),
    ]  # fmt: skip
    assert alike(some, LOG) == len(some)
    assert alike([row(PLAIN, source={"commit_ts": 470603993588957190})], LOG) == 0  # a column that is not defined
    assert alike([TYPED, row(PLAIN, schema=schema_of({"id": {"type": "int64"}}))], LOG) == 0  # partly typed


@pytest.mark.parametrize(
    "some", [[TYPED], [UNTYPED], [TYPED, row(PLAIN, PLAIN, schema=SCHEMA)]], ids=["typed", "plain", "two"]
)
def test_all_values_that_ticdc_writes_are_the_kernels(some: list[Message]) -> None:
    """With a schema whose columns all show their types but one, and without any; nothing is left to Python."""
    more = [row(before=PLAIN), row(PLAIN, PLAIN | {"s": None}), row(PLAIN, op="r"), row(PLAIN, op="u"), WATERMARK]
    assert alike([*some, *more]) == len(some) + len(more)
    assert alike([row(PLAIN, source={"start_ts": 7}), row(PLAIN, source={"start_ts": None}), (None, UNTYPED[1])]) == 3


@pytest.mark.parametrize("name", list(ODD))
def test_odd_values_decode_alike(name: str) -> None:
    """At the edge of a type, of another JSON type, by schema, by the log's DDL and without a type."""
    for value in ODD[name]:
        image = PLAIN | {name: value}
        alike([row(image, schema=SCHEMA), row(PLAIN, {name: value}, schema=SCHEMA), TYPED])
        for known in (Known(), LOG):
            alike([row(image), row(PLAIN, image), UNTYPED], known)


NUMBERS = st.one_of(
    st.floats(allow_nan=False, allow_infinity=False).map(repr),
    st.floats(width=32, allow_nan=False, allow_infinity=False).map(repr),
    st.from_regex(r"-?(0|[1-9][0-9]{0,8})(\.[0-9]{1,12})?([eE][+-]?[0-9]{1,2})?", fullmatch=True),
    st.integers(-(10**30), 10**30).map(str),
)


@settings(max_examples=40, deadline=None, derandomize=True)
@given(texts=st.lists(NUMBERS, min_size=10, max_size=10))  # 400 in all: to decode a batch costs as much as ten messages
@example(["0.30000001192092896", "8388608.5", "9007199254740993", "16777216", "1e23", "9.5367431640625e-07"])
def test_numbers_decode_alike(texts: list[str]) -> None:
    """Of a FLOAT, a DOUBLE, a DECIMAL with and without digits of its type, and a column without a type."""

    def of(text: str, schema: bool) -> Message:
        key, value = row(dict.fromkeys(("f", "d", "n", "plain"), 0) | {"id": 1}, schema=SCHEMA if schema else None)
        return key, (value or b"").replace(
            b'"f":0,"d":0,"n":0,"plain":0', b'"f":%b,"d":%b,"n":%b,"plain":%b' % ((text.encode(),) * 4)
        )

    alike([of(text, schema) for text in texts for schema in (True, False)])
    alike([of(text, False) for text in texts], LOG)


_VALUE = UNTYPED[1] or b""
ODD_ROWS: list[Message] = [
    row(None, None), row(PLAIN, op="u"), row(PLAIN, PLAIN, op="c"), row(PLAIN, op="d"), row(PLAIN, op="x"),
    row(PLAIN, op=1), row(PLAIN, op=None), row(PLAIN, op="m"), row(PLAIN, PLAIN, op="m"), row({}), row([]), row("x"),
    row(PLAIN, source={"commit_ts": None}), row(PLAIN, source={"commit_ts": -1}), row(PLAIN, source={"commit_ts": "5"}),
    row(PLAIN, source={"commit_ts": 1 << 63}), row(PLAIN, source={"commit_ts": 1.0}), row(PLAIN, source={"db": None}),
    row(PLAIN, source={"table": 3}), row(PLAIN, source={"table": "a\"b"}), row(PLAIN, source={"db": "數"}),
    row(PLAIN, source={"more": 1}), row(PLAIN, source={"gtid": {"a": 1}}), row(PLAIN, source={"start_ts": "x"}),
    row(PLAIN, source={"start_ts": 1 << 63}), row(PLAIN, more=1), row(PLAIN, transaction={"id": "1"}),
    row(PLAIN, ddl="DROP TABLE t"), row({"id": None}), row({"a\"b": 1}), row(PLAIN | {"nobody": "1"}, schema=SCHEMA),
    row(PLAIN, schema={}), row(PLAIN, schema={"fields": []}), row(PLAIN, schema={"fields": 5}), row(PLAIN, schema=5),
    row(PLAIN, schema=schema_of(COLUMNS | {"id": {"tidb_type": "nonsense", "type": "int64"}})),
    row(PLAIN, schema=schema_of({"id": {"tidb_type": "json", "type": "double", "name": "io.debezium.time.Date"}})),
    row(PLAIN, schema=schema_of(COLUMNS, "other")), row(PLAIN, key=()), row(PLAIN, key=("id", "s", "d")),
    (b"", _VALUE), (b"[]", _VALUE), (b"{}", _VALUE), (b'{"id":1}', _VALUE), (b'{"payload":5}', _VALUE),
    (b'{"payload":{"id":{"a":1}}}', _VALUE), (b'{"payload":{"id":1,"id":1}}', _VALUE),
    (b'{"payload":{"id":1}} ', _VALUE),
    (b'{"payload":{"id":1e999}}', _VALUE), (b'{"payload":{"id":1.5}}', _VALUE), (b'{"payload":{"\\u0069d":1}}', _VALUE),
    (b'{"payload":{"id":1},"schema":{"a":1,"a":2}}', _VALUE), (b'{"payload":{"id":1},"schema":{', _VALUE),
    (b'{"payload":{' + b",".join(b'"k%d":1' % i for i in range(40)) + b"}}", _VALUE),
    (None, None), (None, b""), (None, b"[]"), (None, b"{}"), (None, b'{"payload":{}}'), (None, b'{"payload":null}'),
    (None, _VALUE + b" "), (None, b" " + _VALUE), (None, _VALUE + b"x"), (None, _VALUE[:-1]), (None, _VALUE[:-2]),
    (None, _VALUE.replace(b":", b" : ")), (None, _VALUE.replace(b'"s":"x', b'"s":"x","s":"y')),
    (None, _VALUE.replace(b'"db":"s"', b'"db":"s","db":"t"')),
    (None, _VALUE.replace(b'"op":"c"', b'"op":"c","op":"u"')),
    (None, _VALUE.replace(b'"source"', b'"s\\u006furce"')), (None, _VALUE.replace(b'"db":"s"', b'"db":"\\u0073"')),
    (None, _VALUE.replace(b'"x', b'"\xff')), (None, _VALUE.replace(b'"x', b'"\\ud800')),
    (None, _VALUE[:-1] + b',"schema":{"a":1,"a":1}}'), (None, _VALUE[:-1] + b',"schema":{}},"schema":{}}'),
    (None, _VALUE[:-1] + b',"schema":null}'), (None, _VALUE[len(b'{"payload":'):-1]),
    (None, json.dumps(dict(reversed(json.loads(_VALUE)["payload"].items()))).encode()),
    (None, written({"payload": dict(reversed(json.loads(_VALUE)["payload"].items()))})),
]  # fmt: skip


@pytest.mark.parametrize("known", [Known(), LOG], ids=["messages alone", "log"])
def test_odd_messages_decode_alike(known: Known) -> None:
    """Fields that are missing, are twice, in another order or of another type; each alone and all together."""
    for message in ODD_ROWS:
        alike([message], known)
    alike([m for odd in ODD_ROWS for m in (odd, TYPED, UNTYPED)], known)


CHANGE = {"type": "CREATE", "id": '"s"."t"', "table": {
    "defaultCharsetName": "utf8mb4", "primaryKeyColumnNames": ["id"], "columns": [
        {"name": "id", "jdbcType": -5, "nativeType": None, "comment": "\n", "defaultValueExpression": None,
         "enumValues": ["'a'"], "typeName": "BIGINT", "typeExpression": "BIGINT", "charsetName": None, "length": None,
         "scale": None, "position": 1, "optional": False, "autoIncremented": True, "generated": True},
        {"name": "v", "jdbcType": 4}],
    "comment": None}}  # fmt: skip


def ddl(
    sql: Any = "CREATE TABLE `t` (id BIGINT)", changes: Any = (CHANGE,), *, schema: Any = SCHEMA, **fields: Any
) -> Message:
    """A DDL as TiCDC writes it, except for what is reported; ``source`` is added to the one of TiCDC."""
    payload = {"source": SOURCE | fields.pop("source", {}), "ts_ms": 1, "databaseName": "s", "schemaName": None,
               "ddl": sql, "tableChanges": changes} | fields  # fmt: skip
    end = {} if schema is None else {"schema": {"type": "struct", "fields": [{"field": "ddl"}]}}
    return written({"payload": {"databaseName": "s"}} | end), written({"payload": payload} | end)


def twice(raw: bytes | None, member: bytes) -> bytes:
    """A message in which a member of it stands once more."""
    assert raw is not None and member in raw
    return raw.replace(member, member + b"," + member)


DDL = [
    ddl(), ddl(changes=[]), ddl(changes=None), ddl(schema=None), ddl("a\n\t\"數"), ddl(databaseName=""), ddl(""),
    ddl(databaseName=None), ddl(databaseName='a"b'), ddl(changes=[CHANGE, {"type": "DROP"}]), ddl(changes=[{}, CHANGE]),
    ddl(changes=[{"id": "x"}, {"type": "DROP"}]), ddl(changes=[{"type": None}]), ddl(changes=[{"type": 'x"y'}]),
    ddl(source={"start_ts": 5}), (None, ddl()[1]), ddl(source={"table": ""}),
]  # fmt: skip
"""What a kernel takes."""
ODD_DDL = [
    ddl(None), ddl(5), ddl(changes=5), ddl(changes={}), ddl(changes={"a": 1}), ddl(changes=[5]), ddl(changes=[[]]),
    ddl(changes=[{"type": 5}]), ddl(changes=[{"type": {}}]), ddl(changes=[{"table": {}, "type": "X"}]),
    ddl(changes=[{"type": "X", "id": 1.5}]), ddl(changes=[{"type": "X", "id": 1 << 70}]),
    ddl(changes=[{"other": 1}]), ddl(changes=[{"a\"": 1}]),
    ddl(changes=[{"table": json.loads("[" * 18 + "1" + "]" * 18)}]), ddl(changes=[{"type": ["X"]}]),
    ddl(databaseName=5), ddl(databaseName={}), ddl(schemaName="x"), ddl(op="c"), ddl(op=None), ddl(after=PLAIN),
    ddl(before=None), ddl(source={"commit_ts": None}), ddl(source={"commit_ts": 1 << 63}), ddl(source={"table": None}),
    ddl(source={"db": None}), ddl(source={"db": 5}), ddl(source={"start_ts": 1 << 70}), ddl(more=1),
    (b"x", ddl()[1]), (None, (ddl()[1] or b"")[:-1]), (None, (ddl()[1] or b"").replace(b'"id":', b'"id" : ')),
    *((None, twice(ddl()[1], member)) for member in (
        b'"type":"CREATE"', b'"name":"id"', b'"comment":null', b'"ddl":"CREATE TABLE `t` (id BIGINT)"',
        b'"databaseName":"s"', b'"jdbcType":4', b'"schemaName":null')),
    (None, (ddl()[1] or b"").replace(b'["id"]', b'["id",]')), (None, (ddl()[1] or b"").replace(b'["id"]', b'["id"}')),
    row(PLAIN, tableChanges=[CHANGE]), row(PLAIN, tableChanges=5), row(PLAIN, databaseName="s"),
]  # fmt: skip


@pytest.mark.parametrize("known", [Known(), LOG], ids=["messages alone", "log"])
def test_ddl_decodes_alike(known: Known) -> None:
    """The kernel takes what TiCDC writes; what is missing, is twice, or is of another type is Python's."""
    assert alike([TYPED, *DDL], known) >= len(DDL)
    for message in (*DDL, *ODD_DDL):
        alike([message], known)
    alike([m for odd in ODD_DDL for m in (odd, ddl(), UNTYPED)], known)
    r = Random(5)
    alike([broken(m, r) for m in DDL * 10], known)


def test_every_cut_of_a_ddl_decodes_alike() -> None:
    """It may end anywhere."""
    key, value = ddl()
    assert alike([(key, (value or b"")[:i]) for i in range(len(value or b""))] + [(key, value)]) == 1


def test_a_source_is_compared_with_the_last_one() -> None:
    """What else differs from it is read by itself, and nothing of the last one stays."""
    sources: list[dict[str, Any]] = [
        {}, {"ts_ms": 12345, "commit_ts": 7}, {"db": "longer", "table": ""}, {"start_ts": 5}, {"start_ts": 66},
        {"start_ts": None}, {}, {"table": "a\"b"}, {}, {"db": None}, {"commit_ts": None}, {"commit_ts": "5"}, {},
        {"commit_ts": 1 << 70}, {"ts_ms": 1.5}, {"ts_ms": None}, {"ts_ms": "x"}, {"ts_ms": True}, {"pos": 5},
        {"pos": 6}, {"query": "x"}, {"cluster_id": "b"}, {"cluster_id": "bb"}, {"more": 1}, {},
        {"table": 3}, {"db": "數"},
    ]  # fmt: skip
    some = [row(PLAIN, source=source) for source in sources]
    assert alike(some) >= 17
    r = Random(3)
    for _ in range(20):
        alike([broken(m, r) if r.random() < 0.2 else m for m in r.choices(some, k=40)])


def test_tables_with_one_guess_are_told_apart() -> None:
    """A wrong guess of the schema costs a second look, no matter what its columns are."""
    other = schema_of({"id": {"tidb_type": "varchar", "type": "string"}})
    bad = schema_of({"id": {"tidb_type": "nonsense", "type": "string"}})
    some = [TYPED, row({"id": "a"}, schema=other), row({"id": 1}), row({"id": "a"}, schema=bad)] * 3
    assert alike(some) == 9
    assert alike(some[::-1]) == 9


def test_golden_messages_with_bytes_changed_decode_alike() -> None:
    """Flipped bits, cuts, pieces swapped and repeated, broken UTF-8."""
    r = Random(11)
    for name in GOLDEN:
        some = golden_messages(name)[::9]
        alike([broken(m, r) for m in some] + some)
    alike([broken(m, r) for m in (TYPED, row(PLAIN, PLAIN), WATERMARK) * 100])


def test_every_cut_of_a_message_decodes_alike() -> None:
    """A message may end anywhere; so may its key."""
    for key, value in (TYPED, UNTYPED):
        assert alike([(key, (value or b"")[:i]) for i in range(len(value or b"") + 1)] + [(key, value)]) == 2
        assert alike([((key or b"")[:i], value) for i in range(1, len(key or b"") + 1)]) >= 1


def test_bytes_in_hex_are_pythons() -> None:
    """The kernel reads base64 alone; a schema without such a column is its own."""
    hexadecimal = Known(binary="hex")
    few = {"id": COLUMNS["id"]}
    some = [row(PLAIN | {"b": "00ff"}, schema=SCHEMA), row({"id": 5}, schema=schema_of(few, "few"))]
    assert alike(some, hexadecimal) == 1


def test_bounds_hold() -> None:
    """What is too large is detected by Python, to which it is left; a kernel that runs out of room starts again."""
    for message in (TYPED, UNTYPED):
        assert alike([message], bounds=Bounds(columns=3)) == 0
        assert alike([message], bounds=Bounds(values=5)) == 0
    wide = {f"c{i}": {"tidb_type": "enum", "type": "string", "parameters": {"allowed": "x" * 200}} for i in range(100)}
    some = [row({"id": 1} | dict.fromkeys(wide, "x"), schema=schema_of({"id": COLUMNS["id"]} | wide))] * 50
    assert alike(some) == 50
    assert alike([row(PLAIN | {"s": "y" * n}) for n in range(0, 3_000, 10)]) == 300


def test_images_can_be_left_out() -> None:
    """With the same hashes."""
    batch, of = batch_of([TYPED, UNTYPED, row(before=PLAIN), WATERMARK]), codec(Known())
    without = decode_mostly(of.kernel, of, batch, "debezium", images=False, original=batch, bounds=BOUNDS)
    assert without.equals(decode_with(codec(Known()), batch, "debezium", images=False))
    assert without["columns"].null_count == 4 and without["change_hash"].null_count == 1


def test_a_large_log_is_decoded_by_the_kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    """The decoder asks :mod:`ticdc_lab.codecs.choice`, and gives the same either way."""
    some, asked, found = [row(PLAIN | {"id": i}, schema=SCHEMA) for i in range(100)], list[str](), []
    for answer in (True, False):
        monkeypatch.setattr(choice, "compiled", lambda part, batch, answer=answer: not asked.append(part) and answer)  # type: ignore[func-returns-value]
        found.append(pa.Table.from_batches(decoder("debezium")(iter([batch_of(some)]))))
    assert found[0].equals(found[1]) and "debezium" in asked

"""The kernel of Avro and the codecs in Python give the same of every message; the kernel takes what TiCDC writes."""

from __future__ import annotations

import io
import json
from collections.abc import Iterable
from random import Random
from typing import Any

import fastavro
import formats
import pytest
import torture
from comparing import batch_of
from hypothesis import example, given, settings
from hypothesis import strategies as st
from making import Message, broken

from ticdc_lab.codecs import avro, simple_avro
from ticdc_lab.codecs.avro_fields import Flat
from ticdc_lab.codecs.decode import decode_mostly, decode_with
from ticdc_lab.codecs.defined_types import LogTypes
from ticdc_lab.codecs.kernel.avro import AvroKernel
from ticdc_lab.codecs.known import BOUNDS, Bounds, Known
from ticdc_lab.codecs.registry import codec_of, part_kernel
from ticdc_lab.codecs.simple_tables import finder, tables_of
from ticdc_lab.errors import SourceError

GOLDEN = ("messages_avro_small.jsonl.gz", "messages_avro-prod_small.jsonl.gz", "messages_simple-avro_small.jsonl.gz")
TORTURE = {"avro": "avro", "avro-before": "avro", "debezium-avro": "debezium-avro"}


def alike(protocol: str, some: list[Message], known: Known, bounds: Bounds = BOUNDS) -> int:
    """Assert that both give the same, errors and order included; how many messages the kernel took."""
    batch, codec = batch_of(some), codec_of(protocol, known)
    kernel = part_kernel(protocol, codec)
    assert kernel is not None
    mixed = decode_mostly(kernel, codec, batch, protocol, images=True, original=batch, bounds=bounds)
    plain = decode_with(codec_of(protocol, known), batch, protocol, bounds=bounds)
    if not mixed.equals(plain):
        for a, b in zip(mixed.to_pylist(), plain.to_pylist(), strict=True):
            assert a == b, some[a["offset"]]
    assert mixed.equals(plain) and not set(plain["error_class"].to_pylist()) & {"codec-error"}
    return len(set(kernel(batch, images=True, bounds=bounds).message.tolist()))


def topic(name: str) -> tuple[str, list[Message], Known]:
    """The protocol, the messages and what is known of a recorded topic."""
    if name in TORTURE:
        rows = torture.messages(name).to_pylist()
        return TORTURE[name], [(m["key"], m["value"]) for m in rows], torture.known(name)
    some = [(m["key"], m["value"]) for m in formats.messages(name)]
    if "simple" not in name:
        return "avro", some, formats.known()
    found = finder(Known())(iter([batch_of(some)]))
    return "simple", some, Known(tables=tables_of([r for b in found for r in b.to_pylist()]))


@pytest.mark.parametrize(("name", "left"), [*zip([*GOLDEN, *TORTURE], (0, 0, 92, 530, 530, 10), strict=True)])
def test_recorded_topics_decode_alike(name: str, left: int) -> None:
    """All but DDL and bootstraps of simple, deletes of nothing known and a few odd numbers are the kernel's."""
    protocol, some, known = topic(name)
    assert alike(protocol, some, known) >= len(some) - left


@pytest.mark.parametrize("name", [*GOLDEN, *TORTURE])
def test_recorded_messages_with_bytes_changed_decode_alike(name: str) -> None:
    """Flipped bits, cuts, pieces swapped and repeated, keys and values exchanged."""
    protocol, some, known = topic(name)
    r = Random(name)
    whole = some[:: max(1, len(some) // 150)]
    alike(protocol, [broken(m, r) for m in whole for _ in range(4)] + whole, known)


def test_odd_ddl_of_avro_decode_alike() -> None:
    """Each field of another type, absent, twice, in other words or another order; cut anywhere; a key beside it."""
    whole = {
        "query": "create table `t\\n` (a int)",
        "type": 3,
        "schema": "s",
        "table": "t",
        "commitTs": 5,
        "buildTs": 9,
    }

    def ddl(text: str) -> Message:
        return None, b"\1" + text.encode()

    plain = json.dumps(whole, separators=(",", ":"))
    values = (None, True, 1, -1, 1 << 63, 1.5, "", "x", "數\n", [], {})
    some = [ddl(json.dumps(whole | {name: v})) for name in (*whole, "more") for v in values]
    some += [ddl(json.dumps({k: v for k, v in whole.items() if k != name})) for name in whole]
    some += [ddl(plain[:i]) for i in range(len(plain) + 1)] + [ddl(json.dumps(dict(reversed(whole.items()))))]
    for old, new in (('"type":3', '"type":-0'), ('"type":3', '"type":03'), ("{", '{"query":"y",'), (":", " : ")):
        some.append(ddl(plain.replace(old, new, 1)))
    some += [ddl(plain + " "), ddl(" " + plain), ddl(plain.replace("query", "qu\\u0065ry")), (b"k", ddl(plain)[1])]
    some += [(None, b"\1"), (None, b"\1{}"), (None, None), (None, ddl(plain)[1])]
    taken = alike("avro", some, Known())
    assert taken > len(whole)
    assert alike("avro", [ddl(plain), ddl(plain.replace("3", '"create"'))], Known()) == 2


BASES = ("int", "long", "float", "double", "string", "bytes", "boolean")
TIDB = (
    None, "INT", "INT UNSIGNED", "BIGINT UNSIGNED", "TINYINT", "FLOAT", "DOUBLE", "DOUBLE UNSIGNED", "DECIMAL", "BIT",
    "BLOB", "TEXT", "ENUM", "SET", "DATE", "TIME", "DATETIME", "TIMESTAMP", "YEAR", "JSON",
    "TiDBVECTORFloat32", "NOSUCH",
)  # fmt: skip
VALUES: dict[str, list[Any]] = {
    "int": [0, 1, -1, 2020, 127, -(1 << 31)],
    "long": [0, -1, (1 << 63) - 1, -(1 << 63), 1_577_836_800_123_456],
    "float": [0.0, -0.0, 1.5, 61.2, 16777216.0, 1e20, 1e-45, float("inf"), float("nan"), 0.1],
    "double": [0.0, -0.0, 0.1 + 0.2, 1e15, 5e-324, 2.0**70, float("-inf"), 61.20000076293945, 8388608.5, 1e300],
    "string": ["", "x", "1", "1.5", "2020-01-01", "2020-01-01 00:00:00", "數\u0000", "12:00:00", "a" * 300],
    "bytes": [b"", b"\x00", b"\xff\x03", b"\x80" * 8, b"\x01" * 9, bytes(range(256))],
    "boolean": [True, False],
}
EXTENSION = [
    {"name": "_tidb_op", "type": "string"},
    {"name": "_tidb_commit_ts", "type": "long"},
    {"name": "_tidb_row_level_checksum", "type": "string"},
    {"name": "_tidb_corrupted", "type": "boolean"},
]


def framed(number: int, schema: Any, record: dict[str, Any]) -> bytes:
    """A record behind the number of its schema."""
    out = io.BytesIO()
    fastavro.schemaless_writer(out, fastavro.parse_schema(plain_times(schema)), record)
    return b"\0" + number.to_bytes(4, "big") + out.getvalue()


def plain_times(schema: Any) -> Any:
    """Without times that fastavro would take as Python's."""
    if isinstance(schema, list):
        return [plain_times(part) for part in schema]
    if not isinstance(schema, dict):
        return schema
    keep = {k: plain_times(v) for k, v in schema.items()}
    return {k: v for k, v in keep.items() if k != "logicalType" or v == "decimal"}


def table(*fields: dict[str, Any], extension: Iterable[dict[str, Any]] = EXTENSION) -> dict[str, Any]:
    """A schema of a row of avro."""
    return {"type": "record", "name": "t", "namespace": "default.s", "fields": [*fields, *extension]}


def extended(**columns: Any) -> dict[str, Any]:
    """A row with what TiCDC adds."""
    more = {"_tidb_op": "c", "_tidb_commit_ts": 5, "_tidb_row_level_checksum": "7", "_tidb_corrupted": False}
    return more | columns


def of_type(base: str, tidb: str | None, **more: Any) -> Any:
    """A type of a column."""
    parameters = {} if tidb is None else {"connect.parameters": {"tidb_type": tidb}}
    return {"type": base} | parameters | more


KEY = {
    "type": "record",
    "name": "t",
    "namespace": "default.s",
    "fields": [{"name": "a", "type": of_type("long", "INT")}],
}


@pytest.mark.parametrize("base", BASES)
def test_values_of_every_pair_of_types_decode_alike(base: str) -> None:
    """Each Avro type as each MySQL type, null first or last in its union, in the key too."""
    some, schemas = list[Message](), {}
    for i, tidb in enumerate(TIDB):
        more = {"connect.parameters": {"tidb_type": tidb, "allowed": "a,b"}} if tidb in ("ENUM", "SET") else {}
        kind = of_type(base, tidb) | more
        for union in (kind, ["null", kind], [kind, "null"]):
            number = len(schemas) + 1
            schema = table({"name": "a", "type": union})
            key = {**KEY, "fields": schema["fields"][:1]}
            schemas |= {str(number): json.dumps(schema), str(1000 + number): json.dumps(key)}
            for v in (
                VALUES[base] if i % 3 or union is kind else [*VALUES[base], *([None] if union is not kind else [])]
            ):
                framed_key = framed(1000 + number, key, {"a": v})
                some += [(framed_key, framed(number, schema, extended(a=v))), (framed_key, None)]
    taken = alike("avro", some, Known(schemas=schemas))
    assert base == "boolean" or taken > len(some) / 4


@pytest.mark.parametrize("base", BASES)
def test_values_of_debezium_decode_alike(base: str) -> None:
    """The same as columns of debezium-avro, with the names that connect gives to forms."""
    some, schemas = list[Message](), {}
    names = ("", "Bits", "Date", "MicroTime", "Timestamp", "MicroTimestamp", "ZonedTimestamp", "Year", "Json")
    for tidb in TIDB:
        for name in names:
            number = len(schemas) + 1
            kind = {"type": base} | ({"connect.name": f"io.debezium.{name}"} if name else {})
            of = {"type": ["null", kind]} | ({} if tidb is None else {"tidb_type": tidb.lower()})
            schema = envelope({"name": "a"} | of, {"name": "b.c", "connect.field": "b.c"} | of)
            schemas[str(number)] = json.dumps(schema)
            some += [(None, framed(number, schema, changed(number, v))) for v in (*VALUES[base], None)]
    assert alike("debezium-avro", some, Known(schemas=schemas)) > len(some) / 8
    log = Known(schemas=schemas, types=LogTypes([(1, "s", "t", "CREATE TABLE t (a INT, b_c INT)")]))
    alike("debezium-avro", some[::7], log)


def envelope(*columns: dict[str, Any]) -> dict[str, Any]:
    """A schema of debezium-avro."""
    image = {"type": "record", "name": "Value", "namespace": "s.t", "fields": list(columns)}
    fields = {"db": "string", "table": "string", "commit_ts": "long", "start_ts": ["null", "long"]}
    source = {"type": "record", "name": "Source", "fields": [{"name": n, "type": t} for n, t in fields.items()]}
    whole = {
        "before": ["null", image],
        "after": ["null", "s.t.Value"],
        "source": source,
        "op": "string",
        "ts_ms": "long",
    }
    fields_of = [{"name": n, "type": t} for n, t in whole.items()]
    return {"type": "record", "name": "Envelope", "namespace": "s.t", "fields": fields_of}


def changed(i: int, v: Any) -> dict[str, Any]:
    """A row of it: an insert, an update or a delete, a watermark now and then."""
    image, op = {"a": v, "b.c": v}, "cudrmx"[i % 6]
    source = {"db": "s", "table": "t", "commit_ts": i, "start_ts": i if i % 2 else None}
    return {
        "before": image if op in "ud" else None, "after": None if op in "dm" else image, "source": source, "op": op,
        "ts_ms": 1,
    }  # fmt: skip


def decimals(precision: int, scale: int) -> Any:
    """A type of decimals."""
    return of_type("bytes", "DECIMAL", logicalType="decimal", precision=precision, scale=scale)


@settings(max_examples=60, deadline=None, derandomize=True)
@given(
    st.integers(1, 65).flatmap(lambda p: st.tuples(st.just(p), st.integers(0, min(p, 30)))),
    st.lists(st.integers(0, 65).flatmap(lambda n: st.integers(-(10**n), 10**n)), min_size=1, max_size=6),
)
@example((18, 2), [-(1 << 63), (1 << 63) - 1, 1 << 63, 0, -1, 10**18, 10**18 - 1, -128, -256, 255])
@example((65, 30), [10**65 - 1, -(10**65) + 1, 10**65, 1 << 255, -(1 << 255)])
def test_decimals_decode_alike(digits: tuple[int, int], numbers: list[int]) -> None:
    """Of any size, also of more digits than their type has, and with more bytes than they need."""
    schema, kind = table({"name": "a", "type": decimals(*digits)}), table({"name": "a", "type": "bytes"})
    some = list[Message]()
    for n in numbers:
        size = (n + (n < 0)).bit_length() // 8 + 1
        written = [n.to_bytes(size + more, "big", signed=True) for more in (0, 1)]
        some += [(None, framed(1, kind, extended(a=raw))) for raw in written]
    assert alike("avro", some, Known(schemas={"1": json.dumps(schema)})) >= all(
        abs(n) < 10 ** digits[0] for n in numbers
    )


def rows(schema: Any, *records: dict[str, Any]) -> list[bytes]:
    """Framed rows."""
    return [framed(1, schema, r) for r in records]


def test_odd_rows_of_avro_decode_alike() -> None:
    """Operations, checksums, images before, names of TiCDC's own, framings, internal messages."""
    kind = {"name": "a", "type": of_type("long", "INT")}
    nullable = [{"name": f["name"], "type": ["null", f["type"]]} for f in EXTENSION]
    before = {"name": "_ticdc_before", "type": ["null", {"type": "record", "name": "b", "fields": [kind]}]}
    schema = table(kind, before, extension=nullable)
    odd: list[dict[str, Any]] = [
        {"_tidb_op": op, "_ticdc_before": old}
        for op in ("c", "u", "d", "x", "", None, "cc")
        for old in (None, {"a": 4})
    ]
    checksums = ("", "0", "4294967295", "4294967296", "-1", "x", "1e3", "007", "٣", None)
    odd += [{"_tidb_row_level_checksum": c} for c in checksums]
    odd += [{"_tidb_commit_ts": ts} for ts in (None, -1, (1 << 63) - 1)]
    odd += [{"_tidb_corrupted": c} for c in (None, True)]
    values = rows(schema, *(extended(a=i, **o) for i, o in enumerate(odd)))
    key = framed(2, KEY, {"a": 1})
    extra = [
        b"", b"\0", b"\0\0\0\0\1", b"\0\0\0\0\0\1", b"\0\0\0\0\7\1", b"\2" + bytes(8), b"\2" + b"\xff" * 8,
        b"\3" + bytes(8),
        b"\3" + b"\xff" * 8, b"\2" + bytes(7), b'\1{"query":"q","commitTs":1}', values[0] + b"\0", values[0][:-1],
        b"\3\0" + bytes(15) + b"\1" + values[0][5:],
    ]  # fmt: skip
    plain = table(kind, extension=())
    schemas = {"1": json.dumps(schema), "2": json.dumps(KEY), "3": json.dumps(plain), "4": "{", "5": '{"type": "int"}'}
    some: list[Message] = [
        (k, v) for v in (*values, *extra, None) for k in (None, key, b"", b"\0\0\0\0\7\2", key + b"\0")
    ]
    some += [(key, framed(3, plain, {"a": 1})), (key, b"\0\0\0\0\4\2"), (key, b"\0\0\0\0\5\2")]
    some += [(framed(3, plain, {"a": 1}), values[0]), (values[0], values[0])]
    assert alike("avro", some, Known(schemas=schemas)) > 20
    for message in some:
        alike("avro", [message], Known(schemas=schemas))


def test_columns_of_users_may_have_the_names_of_the_extension() -> None:
    """Parameters beside the type show a column: without the extension it is one, and no commit_ts."""
    of = {f["name"]: of_type("string" if f["type"] == "boolean" else f["type"], "TEXT") for f in EXTENSION}
    schema = table(*({"name": n, "type": ["null", t]} for n, t in of.items()), extension=())
    values = dict.fromkeys(of, "x") | {"_tidb_commit_ts": -5}
    some, known = [(None, v) for v in rows(schema, values, dict.fromkeys(of))], Known(schemas={"1": json.dumps(schema)})
    assert alike("avro", some, known) == 2
    first = decode_with(codec_of("avro", known), batch_of(some), "avro").to_pylist()[0]
    assert first["commit_ts"] is None and first["incomplete"] == "op-unknown"
    assert {c["name"]: c["value"] for c in first["columns"]} == {n: str(v) for n, v in values.items()}


def test_schemas_that_ticdc_does_not_write_decode_alike() -> None:
    """Other unions, arrays, enums, fixed, nested and recursive records, a name twice, times of old TiCDC."""
    times = ("date", "time-millis", "time-micros", "timestamp-millis", "timestamp-micros", "uuid", "nonsense")
    kinds: list[tuple[Any, Any]] = [(of_type("long", None, logicalType=name), 1_577_836_800) for name in times]
    kinds += [(of_type("long", None, logicalType=name), -62_135_596_800_001_000) for name in times]
    kinds += [
        (["null", "long", "string"], "x"),
        (["long"], 1),
        ({"type": "array", "items": "long"}, [1]),
        ("null", None),
    ]
    kinds += [({"type": "enum", "name": "e", "symbols": ["x", "y"], "connect.parameters": {"tidb_type": "ENUM"}}, "y")]
    kinds += [({"type": "fixed", "name": "f", "size": 2}, b"ab"), ({"type": "map", "values": "long"}, {"a": 1})]
    kinds += [({"type": "record", "name": "r", "fields": [{"name": "a", "type": ["null", "r"]}]}, {"a": None})]
    some, schemas = list[Message](), {}
    for i, (kind, value) in enumerate(kinds, 1):
        schema = table({"name": "a", "type": kind}, {"name": "b", "type": of_type("long", "INT")})
        schemas[str(i)] = json.dumps(schema)
        some.append((None, framed(i, schema, extended(a=value, b=1))))
        other = envelope({"name": "a", "type": kind}, {"name": "b.c", "type": ["null", "long"]})
        schemas[str(100 + i)] = json.dumps(other)
        some.append((None, framed(100 + i, other, changed(0, value) | {"after": {"a": value, "b.c": 1}})))
    assert alike("avro", some, Known(schemas=schemas)) >= 1
    alike("debezium-avro", some, Known(schemas=schemas))


def test_every_cut_of_a_message_decodes_alike() -> None:
    """A message may end anywhere; so may its key."""
    for name in (*TORTURE, GOLDEN[2]):
        protocol, some, known = topic(name)
        whole = [m for m in some if m[1] and m[1][:2] in (b"\0\0", b"\x16\x06") and len(m[1]) < 400][:: len(some) // 3]
        cuts: list[Message] = [(k, v[:i]) for k, v in whole if v for i in range(len(v) + 1)]
        cuts += [(k[:i], v) for k, v in whole if k for i in range(len(k) + 1)]
        alike(protocol, cuts, known)


BRANCHES: list[Any] = [
    None, ("long", -1), ("long", 1 << 62), ("float", 61.2), ("float", -0.0), ("double", 1e300), ("string", "5"),
    ("string", ""), ("string", "2020-01-01 00:00:00"), ("bytes", b"\0\xff"), ("boolean", True),
    ("Timestamp", {"location": "UTC", "value": "2020-01-01 00:00:00"}), ("UnsignedBigint", {"value": -1}),
]  # fmt: skip


def simple_row(data: Any, old: Any = None, **fields: Any) -> Message:
    """A row of the simple protocol in Avro."""
    op = "DELETE" if data is None else "INSERT" if old is None else "UPDATE"
    whole = {
        "version": 1, "database": "s", "table": "t", "tableID": 5, "type": op, "commitTs": 9, "buildTs": 1,
        "schemaVersion": 7, "claimCheckLocation": None, "handleKeyOnly": None, "checksum": None, "data": data,
        "old": old,
    } | fields  # fmt: skip
    out = io.BytesIO(simple_avro.FIRST)
    out.seek(1)
    fastavro.schemaless_writer(out, simple_avro._MESSAGE, {"type": "DML", "payload": ("DML", whole)})
    return None, out.getvalue()


TYPES = {
    "i": {"mysqlType": "int"}, "u": {"mysqlType": "bigint", "unsigned": True}, "f": {"mysqlType": "float"},
    "d": {"mysqlType": "double"}, "b": {"mysqlType": "blob"}, "s": {"mysqlType": "varchar", "length": 9},
    "e": {"mysqlType": "enum", "elements": ["a"]}, "t": {"mysqlType": "timestamp"}, "x": {"mysqlType": "nosuch"},
}  # fmt: skip
DEFINED = {
    "schema": "s", "table": "t", "tableID": 5, "version": 7, "indexes": [],
    "columns": [{"name": n, "dataType": {"charset": "", "collate": "", "length": 1} | t} for n, t in TYPES.items()],
}  # fmt: skip


def test_values_of_simple_decode_alike() -> None:
    """Each branch of its union in a column of each type; operations, checksums, images that are missing or are too
    many.
    """
    known = Known(tables={("s", "t", 7): DEFINED})
    some = [simple_row({n: v}) for n in TYPES for v in BRANCHES if v is None or v[0] != "boolean"]
    assert alike("simple", some, known) > 30
    image = {"i": ("long", 5), "u": ("UnsignedBigint", {"value": -1}), "f": ("float", 0.5), "s": None}
    sums = [{"version": 0, "corrupted": c, "current": a, "previous": b}
            for c in (False, True) for a, b in ((1, 2), (-1, 5), (5, 1 << 32), (0, (1 << 32) - 1))]  # fmt: skip
    odd = [{"checksum": c} for c in sums] + [{"claimCheckLocation": "f"}, {"claimCheckLocation": ""}]
    odd += [
        {"handleKeyOnly": True},
        {"handleKeyOnly": False},
        {"schemaVersion": 8},
        {"table": "other"},
        {"commitTs": -1},
    ]
    odd += [{"type": op} for op in simple_avro.DML_TYPES]
    images = [(image, None), (image, image), (None, image), (None, None), ({}, None), ({"nobody": None}, None)]
    more = [simple_row(new, old, **o) for new, old in images for o in (*odd, {})]
    assert alike("simple", more, known) > 30
    key, value = simple_row(image)
    assert value
    block = value.replace(b"\2\x08", b"\2\x07\x40", 1)  # as many columns, with the block's bytes before them
    alike("simple", [(key, block), (key, value[:1] + b"\0" + value[2:]), (key, value + b"\0"), *more[:3]], known)
    twice = simple_row({"i": ("long", 5), "u": ("long", 6)})[1] or b""
    alike("simple", [(None, twice.replace(b"\2u", b"\2i")), simple_row(image)], known)


def test_bounds_hold() -> None:
    """What is too large is detected by Python, to which it is left; a kernel that runs out of room starts again."""
    columns = [{"name": f"c{i}", "type": of_type("string", "TEXT")} for i in range(20)]
    schema = table(*columns)
    some: list[Message] = [
        (None, framed(1, schema, extended(**{f"c{i}": "x" * n for i in range(20)}))) for n in (1, 99)
    ]
    known = Known(schemas={"1": json.dumps(schema)})
    assert alike("avro", some * 100, known) == 200
    assert alike("avro", some, known, bounds=Bounds(columns=3)) == 0
    assert alike("avro", some, known, bounds=Bounds(values=300)) == 1
    long = "t" * 500
    wide = table(*({"name": f"{long}{i}", "type": ["null", of_type("int", "INT")]} for i in range(100)))
    nothing = framed(1, wide, extended(**{f"{long}{i}": None for i in range(100)}))
    assert alike("avro", [(None, nothing)] * 40, Known(schemas={"1": json.dumps(wide)})) == 40
    deletes: list[Message] = [(framed(2, KEY, {"a": i}), None) for i in range(9)]
    few = Known(schemas=known.schemas | {"2": json.dumps(KEY)})
    assert alike("avro", [some[0]] * 5 + deletes, few, bounds=Bounds(values=60)) == 14  # wherever in the batch they lie


def test_a_registry_that_is_away_is_asked_again() -> None:
    """A schema that it could not give is no schema that the kernel cannot read."""
    answers: list[str | None] = [None, json.dumps(KEY)]

    def flat_of(schema_id: str) -> Flat:
        if (schema := answers.pop(0)) is None:
            raise SourceError("away")
        return avro._flat(avro._record(schema, schema_id))

    kernel, batch = AvroKernel("avro", flat_of), batch_of([(framed(2, KEY, {"a": 1}), None)])
    with pytest.raises(SourceError):
        kernel(batch, images=True, bounds=BOUNDS)
    assert len(kernel(batch, images=True, bounds=BOUNDS).message) == 1

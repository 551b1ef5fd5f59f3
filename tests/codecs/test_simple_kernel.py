"""The kernel of simple and its codec in Python give the same of every message; the kernel takes what TiCDC writes."""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Callable
from itertools import islice
from random import Random
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
import reference_decoder as oracle
from comparing import batch_of
from conftest import golden
from hypothesis import example, given, settings
from hypothesis import strategies as st
from making import Message, broken
from soaking import soak, tried

from ticdc_lab.codecs import choice
from ticdc_lab.codecs.decode import decode_mostly, decode_with, decoder
from ticdc_lab.codecs.known import BOUNDS, Bounds, Known
from ticdc_lab.codecs.simple import SimpleCodec
from ticdc_lab.codecs.simple_tables import contradictions, finder, tables_of

FILES = (
    "messages_simple_small-dup-ddl.jsonl.gz",
    "messages_simple_small-dup-restart.jsonl.gz",
    "messages_simple_small-dup-table.jsonl.gz",
    "messages_simple-avro_small.jsonl.gz",
)
TYPES: dict[str, dict[str, Any]] = {
    "id": {"mysqlType": "bigint", "length": 20, "unsigned": True},
    "b": {"mysqlType": "varbinary", "length": 16},
    "d": {"mysqlType": "double", "length": 22},
    "f": {"mysqlType": "float", "length": 12},
    "n": {"mysqlType": "decimal", "length": 12, "decimal": 2},
    "s": {"mysqlType": "varchar", "length": 20},
    "tiny": {"mysqlType": "tinyint", "length": 4},
    "at": {"mysqlType": "timestamp", "length": 19},
    "day": {"mysqlType": "date", "length": 10},
    "e": {"mysqlType": "enum", "length": 1, "elements": ["a", "b"]},
    "Ä": {"mysqlType": "json"},
    "bits": {"mysqlType": "bit", "length": 10, "unsigned": True},
}
FILE = "tests/codecs/test_simple_kernel.py"
PLAIN: dict[str, Any] = {
    "id": "18446744073709551615", "b": "AP+A", "d": "-1.5", "f": "0.25", "n": "-12.30", "s": "x",
    "tiny": "-128", "at": {"location": "UTC", "value": "2020-01-01 00:00:00"}, "day": "2020-02-30", "e": "1",
    "Ä": "{}", "bits": "7",
}  # fmt: skip
ODD: dict[str, list[Any]] = {
    "id": ["0", "18446744073709551616", "-1", "", "01", 5, 1.5, True, {"value": "1"}, None],
    "b": ["", "AP+", "AP+A=", "====", "AA==", "AB==", "A A=", "AP\\u002bA", {"location": "a", "value": "AA=="}, 1],
    "d": ["0", "-0", "0.0", "1e400", "5e-324", "1.7976931348623157e308", "0.1234567890123456", "123456789012345.6",
          "1e15", "999999999999999",
           "1000000000000000", "1e-15", "1e-16", "1e", ".5", "5.", "+5", "nan", 1, 2.5, "1_0"],
    "f": ["16777217", "16777216", "0.1", "0.01", "3.4e38", "1e39", "0.333333", "0.3333333", "30000000000", "-0", 1.5],
    "n": ["1", ".", "-", "1.", ".5", "1e3", "+1.20", 12],
    "s": ["", "\u0000", "\n\t\"\\", "數🙂", "<&>", "null", 3, False, {"location": "", "value": "x"}, {"value": "x"},
          {"location": "", "value": 3}, {"location": "", "value": None}, {"value": "x", "location": ""}, []],
    "tiny": ["255", "256", "-129", "1.0", "--1", "٣"],
    "at": ["2020-01-01 00:00:00", "0000-00-00 00:00:00.123456", "2020-13-01 00:00:00", {"location": "UTC"}, {},
           {"location": "UTC", "value": "2020-01-01T00:00:00Z", "more": 1}, "2020-01-01 00:00:00.1234567"],
    "day": ["20200101", "12345-01-01", "2020-00-00", "2020-1-1"],
    "e": ["0", "x", ""],
    "Ä": ["{\"a\": \"\\u00e4\"}", ""],
    "bits": ["18446744073709551615", "-1", "0x1"],
}  # fmt: skip
"""Values at which a kernel and Python could differ."""


def schema(
    version: int = 7, name: str = "t", leave_out: str = "", database: str = "s", **of: dict[str, Any]
) -> Message:
    """A bootstrap message."""
    columns = [{"name": n, "dataType": t} for n, t in (TYPES | of).items() if n != leave_out]
    index = {"name": "primary", "unique": True, "primary": True, "nullable": False, "columns": ["id"]}
    table = {
        "schema": database, "table": name, "tableID": 3, "version": version, "columns": columns, "indexes": [index],
    }  # fmt: skip
    return None, written({"version": 1, "type": "BOOTSTRAP", "commitTs": 0, "buildTs": 9, "tableSchema": table})


def row(data: Any = None, old: Any = None, **fields: Any) -> Message:
    """A row of the table, as TiCDC writes it except for what is reported."""
    kind = "DELETE" if data is None else "INSERT" if old is None else "UPDATE"
    whole = {
        "version": 1, "database": "s", "table": "t", "tableID": 3, "type": kind, "commitTs": 5, "buildTs": 9,
        "schemaVersion": 7,
    } | {name: image for name, image in (("data", data), ("old", old)) if image is not None}  # fmt: skip
    return None, written({name: value for name, value in (whole | fields).items() if value != "absent"})


def written(message: dict[str, Any]) -> bytes:
    """As Go writes it: compact, names of maps in order."""
    for image in ("data", "old"):
        if isinstance(message.get(image), dict):
            message[image] = dict(sorted(message[image].items(), key=lambda pair: pair[0].encode()))
    return json.dumps(message, separators=(",", ":"), ensure_ascii=False).encode()


def alike(some: list[Message], known: Known | None = None, bounds: Bounds = BOUNDS) -> int:
    """Assert that both give the same, errors and order included; how many messages the kernel took."""
    batch, given = batch_of(some), known or Known()
    codec = SimpleCodec(given)
    taken = len(SimpleCodec(given).kernel(batch, images=True, bounds=bounds).message)
    mixed = decode_mostly(codec.kernel, codec, batch, "simple", images=True, original=batch, bounds=bounds)
    plain = decode_with(SimpleCodec(given), batch, "simple", bounds=bounds)
    if not mixed.equals(plain):
        for a, b in zip(mixed.to_pylist(), plain.to_pylist(), strict=True):
            assert a == b, some[a["offset"]]
    assert mixed.equals(plain) and not set(plain["error_class"].to_pylist()) & {"codec-error"}
    return taken


def tables(*messages: Message) -> Known:
    """What :func:`ticdc_lab.sources.load.load` finds first."""
    found = finder(Known())(iter([batch_of(list(messages))]))
    return Known(tables=tables_of([r for b in found for r in b.to_pylist()]))


def golden_messages(name: str) -> list[Message]:
    """The beginning of a golden topic."""
    return [(m["key"], m["value"]) for m in islice(oracle.messages(golden(name)), 5_000)]


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize("first", [False, True], ids=["learned on the way", "known before"])
def test_golden_topics_decode_alike(name: str, first: bool) -> None:
    """What the real encoders wrote. With tables known the kernel takes nearly all."""
    some = golden_messages(name)
    taken = alike(some, tables(*some) if first else None)
    rows = sum(b'"schemaVersion"' in (v or b"") or (v or b"").startswith(b"\x16\x06") for _, v in some)
    if first:
        assert taken > 0.7 * rows


def test_all_values_that_ticdc_writes_are_the_kernels() -> None:
    """A row of each operation, and a watermark: nothing is left to Python."""
    some = [
        row(PLAIN),
        row(PLAIN, PLAIN | {"s": None}),
        row(old=PLAIN),
        (None, written({"type": "WATERMARK", "commitTs": 1})),
    ]
    assert alike(some, tables(schema())) == len(some)
    assert alike([row({"id": "1", "s": None}), row(PLAIN, {"s": "y"})], tables(schema())) == 2


@pytest.mark.parametrize("name", list(ODD))
def test_odd_values_decode_alike(name: str) -> None:
    """At the edge of a type, of another JSON type, in other words."""
    for value in ODD[name]:
        for some in ([row(PLAIN | {name: value})], [row(PLAIN, {name: value}), row(PLAIN)]):
            alike(some, tables(schema()))


NUMBERS = st.one_of(
    st.floats(allow_nan=False, allow_infinity=False).map(repr),
    st.decimals(-(10**9), 10**9, places=4).map(str),
    st.from_regex(r"-?[0-9]{1,9}(\.[0-9]{1,9})?([eE][+-]?[0-9]{1,6})?", fullmatch=True),
    st.integers(1, 999_999).flatmap(lambda d: st.integers(0, 12).map(lambda p: f"{d / 10**p:.12f}")),
)


@settings(max_examples=30, deadline=None, derandomize=True)
@given(texts=st.lists(NUMBERS, min_size=10, max_size=10))  # 300 in all: to decode a batch costs as much as ten messages
@example(["0.30000001192092896", "8388608.5", "999999.5", "0e12345", "1e00005"])
def test_floats_decode_alike(texts: list[str]) -> None:
    """The kernel keeps digits only where they are the fewest that show the number."""
    alike([row({"id": "1", "d": text, "f": text}) for text in texts], tables(schema()))


ODD_ROWS: list[Message] = [
    row(None, None), row(PLAIN, type="UPDATE"), row(PLAIN, PLAIN, type="INSERT"), row(PLAIN, type="DELETE"),
    row(PLAIN, type="insert"), row(PLAIN, type="WATERMARK"), row(PLAIN, type=1), row(PLAIN, commitTs=-1),
    row(PLAIN, commitTs=1 << 63), row(PLAIN, commitTs=1.0), row(PLAIN, commitTs="5"), row(PLAIN, tableID="absent"),
    row(PLAIN, tableID=True), row(PLAIN, schemaVersion=8), row(PLAIN, schemaVersion="7"), row(PLAIN, database="S"),
    row(PLAIN, table="t\n"), row(PLAIN, database=None), row(PLAIN, more=1), row(PLAIN, handleKeyOnly=True),
    row(PLAIN, claimCheckLocation="x"),
    row(PLAIN, table="x\ny"), row(PLAIN, table="x\\ny"), row(PLAIN, database="x\ny"),
    row({}), row({"id": None}), row({"nobody": "1"}), row(PLAIN | {"nobody": "1"}), row(PLAIN, {}), row([]),
    row(PLAIN, old=None), row(PLAIN, buildTs={"a": 1}), row(PLAIN, version=None),
    (None, None), (None, b""), (None, b"[]"), (None, b"{}"), (b"k", row(PLAIN)[1]), (None, b"\x16" + b"\x00" * 9),
    (None, (row(PLAIN)[1] or b"") + b" "), (None, b" " + (row(PLAIN)[1] or b"")), (None, (row(PLAIN)[1] or b"") + b"x"),
    (None, (row(PLAIN)[1] or b"").replace(b":", b" : ")),
    (None, (row(PLAIN)[1] or b"").replace(b'"s":"x"', b'"s":"x","s":"y"')),
    (None, (row(PLAIN)[1] or b"").replace(b'"tableID":3', b'"tableID":3,"tableID":4')),
    (None, (row(PLAIN)[1] or b"").replace(b'"database"', b'"d\\u0061tabase"')),
    (None, (row(PLAIN)[1] or b"").replace(b'"s":"x"', b'"\\u0073":"x"')),
    (None, (row(PLAIN)[1] or b"").replace(b'"table":"t"', b'"table":"\\u0074"')),
    (None, (row(PLAIN)[1] or b"").replace(b'"x"', b'"\xff"')),
    (None, (row(PLAIN)[1] or b"").replace(b'"x"', b'"\\ud800"')),
    (None, json.dumps(dict(reversed(json.loads(row(PLAIN)[1] or b"").items()))).encode()),
    (None, written({"type": "WATERMARK"})), (None, written({"type": "WATERMARK", "commitTs": 1, "commitTS": 2})),
    (None, written({"type": "WATERMARK", "commitTs": 1, "data": {}})), (None, written({"type": "DDL", "commitTs": 1})),
]  # fmt: skip


def summed(data: Any = None, old: Any = None, **checksum: Any) -> Message:
    """A row with a checksum where TiCDC writes it, before the images."""
    head = json.loads(row(data, old)[1] or b"")
    images = {name: head.pop(name) for name in ("data", "old") if name in head}
    whole = {"version": 1, "corrupted": False, "current": 7, "previous": 9} | checksum
    return None, written(head | {"checksum": {k: v for k, v in whole.items() if v != "absent"}} | images)


def test_checksums_are_the_kernels() -> None:
    """Of each operation, at the ends of 32 bits, corrupted or not; none of an image that is not there."""
    highest = (1 << 32) - 1
    some = [
        summed(PLAIN, current=highest), summed(PLAIN, PLAIN, previous=0, version=3), summed(old=PLAIN),
        summed(PLAIN, corrupted=True), summed(PLAIN, PLAIN, current="absent", previous=None), row(PLAIN, checksum={}),
        row(PLAIN, PLAIN, checksum={"previous": 2, "current": 1}), summed(PLAIN, previous=highest + 1), row(PLAIN),
    ]  # fmt: skip
    known = tables(schema())
    assert alike(some, known) == len(some)
    rows = decode_with(SimpleCodec(known), batch_of(some), "simple").to_pylist()
    assert [(r["checksum"], r["checksum_before"]) for r in rows] == [
        (highest, None), (7, 0), (None, 9), (7, None), (None, None), (None, None), (1, 2), (7, None), (None, None),
    ]  # fmt: skip
    assert [r["offset"] for r in rows if r["incomplete"]] == [3]


def test_odd_checksums_decode_alike() -> None:
    """Each field of another type or too large, twice, in other words, broken; and what is no object at all."""
    known = tables(schema())
    values: list[Any] = [
        -1, 1 << 32, 1 << 63, 1 << 70, 1.0, 1e9, "5", "٣", "-5", "", "x", True, False, None, [], {}, {"a": 1}, "absent",
    ]  # fmt: skip
    fields = ("version", "corrupted", "current", "previous", "more")
    some = [summed(PLAIN, old, **{f: v}) for f in fields for v in values for old in (None, PLAIN)]
    some += [summed(old=PLAIN, **{f: v}) for f in fields for v in values]
    some += [row(PLAIN, PLAIN, checksum=v) for v in values]
    some += [row(PLAIN, checksum=7, commitTs=1, type="WATERMARK"), summed(PLAIN, type="x")]
    for found, other in (
        (b'"current":7', b'"current":7,"current":8'), (b'"current"', b'"curr\\u0065nt"'), (b"7", b"-0"), (b"7", b"07"),
        (b'"checksum":', b'"checksum":{"current":1},"checksum":'), (b"7,", b"7 , "), (b"7,", b"7,,"), (b"7,", b"7"),
        (b"false", b"fals"), (b"false", b"true1"), (b'"previous":9', b'"previous":9,'), (b"9}", b"9}}"), (b"{", b"{ "),
    ):  # fmt: skip
        some += [(None, (summed(PLAIN, old)[1] or b"").replace(found, other)) for old in (None, PLAIN)]
    for message in some:
        alike([message], known)
    r = Random(5)
    whole = summed({"id": "1"}, {"id": "2"}, corrupted=True)[1] or b""
    some += [(None, whole[:i]) for i in range(len(whole))]
    some += [broken((None, whole), r) for _ in range(300)]
    alike([m for odd in some for m in (odd, summed(PLAIN, PLAIN))], known)


def ddl(**fields: Any) -> Message:
    """A DDL that brings a table's definition, and the one before."""
    brought = json.loads(schema()[1] or b"")["tableSchema"]
    whole = {"version": 1, "type": "ALTER", "sql": "alter table `t\n`", "commitTs": 5, "buildTs": 9}
    whole |= {"tableSchema": brought, "preTableSchema": brought} | fields
    return None, written({name: value for name, value in whole.items() if value != "absent"})


def test_definitions_that_came_before_are_the_kernels() -> None:
    """A DDL or bootstrap whose definitions are known by their bytes changes none; what differs is Python's."""
    known, r = tables(schema()), Random(3)
    some = [
        schema(),
        ddl(),
        ddl(preTableSchema="absent"),
        row(PLAIN),
        ddl(tableSchema="absent", preTableSchema="absent"),
    ]
    values: list[Any] = [None, True, 1, -1, 1 << 63, "", "x", "INSERT", "WATERMARK", "BOOTSTRAP", [], {}, "absent"]
    odd = [
        ddl(**{name: v}) for name in ("version", "type", "sql", "commitTs", "database", "data", "more") for v in values
    ]
    odd += [(None, (ddl()[1] or b"") + b" "), (None, (ddl()[1] or b"").replace(b'"tableID":3', b'"tableID":4'))]
    odd += [(None, (ddl()[1] or b"").replace(b'"sql"', b'"tableSchema":1,"sql"')), schema(s={"mysqlType": "blob"})]
    odd += [broken(m, r) for m in some for _ in range(60)]
    codec = SimpleCodec(known)
    batch = batch_of(some)
    taken = [len(codec.kernel(batch, images=True, bounds=BOUNDS).message) for _ in range(2)]
    assert taken == [2, len(some)]
    whole = batch_of([m for one in odd for m in (one, *some[:2])])
    mixed = decode_mostly(codec.kernel, codec, whole, "simple", images=True, original=whole, bounds=BOUNDS)
    assert mixed.equals(decode_with(SimpleCodec(known), whole, "simple"))
    codec = SimpleCodec(Known())  # nothing is known: what Python has learned is remembered
    for _ in range(3):
        decode_mostly(codec.kernel, codec, batch, "simple", images=True, original=batch, bounds=BOUNDS)
    assert len(codec.kernel(batch, images=True, bounds=BOUNDS).message) == len(some)


def test_odd_messages_decode_alike() -> None:
    """Fields that are missing, are twice, in another order or of another type; each alone and all together."""
    known = tables(schema(), schema(name="x\\ny"), schema(database="x\\ny"))
    for message in ODD_ROWS:
        alike([message], known)
    alike([m for odd in ODD_ROWS for m in (odd, row(PLAIN))], known)


def test_golden_messages_with_bytes_changed_decode_alike() -> None:
    """Flipped bits, cuts, pieces swapped and repeated, broken UTF-8."""
    r = Random(11)
    some = golden_messages(FILES[0])
    known = tables(*some)
    for _ in range(4):
        alike([broken(m, r) for m in some[::7]], known)
    alike([broken(row(PLAIN, PLAIN), r) for _ in range(500)], tables(schema()))


def test_every_cut_of_a_message_decodes_alike() -> None:
    """A message may end anywhere."""
    value = row(PLAIN, PLAIN)[1] or b""
    assert alike([(None, value[:i]) for i in range(len(value) + 1)], tables(schema())) == 1


def test_a_version_that_comes_again_in_another_form_is_contradicted_unless_all_were_seen_before() -> None:
    """Of messages alone, rows behind the second definition are in quarantine; what is known of the log stands."""
    other = schema(tiny={"mysqlType": "int", "length": 11})
    some = [
        row(PLAIN),
        schema(),
        row(PLAIN),
        other,
        row(PLAIN | {"tiny": "1000"}),
        schema(),
        row(PLAIN | {"tiny": "1000"}),
    ]
    alike(some)
    alike(some, tables(schema()))
    rows = decode_with(SimpleCodec(Known()), batch_of(some), "simple").to_pylist()
    assert [r["error_class"] for r in rows if r["error_class"]] == ["schema-unknown", *["schema-contradicted"] * 2]
    assert [r["offset"] for r in rows if r["error_class"] == "schema-contradicted"] == [4, 6]
    known = decode_with(SimpleCodec(tables(schema())), batch_of(some), "simple").to_pylist()
    assert "schema-contradicted" not in [r["error_class"] for r in known]


@pytest.mark.parametrize(("good", "bad"), [(2, 1), (1, 1), (3, 2), (1, 2)])
def test_rows_follow_the_definition_that_most_messages_bring_or_none(good: int, bad: int) -> None:
    """A damaged BOOTSTRAP changes no value without a word, wherever it lies; the contradiction is named with counts."""
    other = schema(tiny={"mysqlType": "blob", "length": 11})
    messages = [other] * bad + [schema()] * good + [row(PLAIN)]
    for some in (messages, messages[::-1]):
        batches = finder(Known())(iter([batch_of(some[:2]), batch_of(some[2:])]))
        found = [r for b in batches for r in b.to_pylist()]
        assert sorted(r["n"] for r in found) == sorted([good, bad])
        decoded = decode_with(SimpleCodec(Known(tables=tables_of(found))), batch_of(some), "simple").to_pylist()
        [one] = [r for r in decoded if r["kind"] == "row" or r["error_class"]]
        [said] = contradictions(found)
        if good == bad:
            assert one["error_class"] == "schema-contradicted" and "in quarantine" in said
        elif good > bad:
            types = {c["name"]: c["mysql_type"] for c in one["columns"]}
            assert types["tiny"] == "tinyint" and f"the one that {good} bring, and {bad} bring" in said
        else:  # the others have it so, and the value is none of theirs
            assert one["error_class"] is not None or one["columns"]
    alike = finder(Known())(iter([batch_of([schema(), schema(), row(PLAIN)])]))
    assert contradictions(r for b in alike for r in b.to_pylist()) == ()


def lying(seed: int) -> int:
    """Put damaged definitions among true ones and rows; how many messages that were."""
    r = Random(seed)
    odd = [r.choice([name for name in PLAIN if name != "id"]), r.choice(["blob", "int", "varchar", "inu", ""])]
    lies = [schema(**{odd[0]: {"mysqlType": odd[1]}})] * r.randrange(1, 4)
    true = [schema()] * r.randrange(1, 4)
    mixed = r.sample(all_of := [*true, *lies, *[row(PLAIN)] * 5], len(all_of))
    found = [f for b in finder(Known())(iter([batch_of(mixed)])) for f in b.to_pylist()]
    [plain] = decode_with(SimpleCodec(tables(schema())), batch_of([row(PLAIN)]), "simple").to_pylist()
    said = contradictions(found)
    for e in decode_with(SimpleCodec(Known(tables=tables_of(found))), batch_of(mixed), "simple").to_pylist():
        if e["kind"] != "row" or e["error_class"]:
            continue
        assert e["columns"] == plain["columns"] or (said and len(lies) > len(true)), (seed, odd, e["columns"])
    return len(mixed)


@pytest.mark.parametrize("seed", range(10))
def test_a_definition_that_lies_changes_no_value_without_a_word(seed: int) -> None:
    """Each row is as the definition that most messages bring has it, or in quarantine, in any order."""
    tried(FILE, "lie", seed, lying)


@pytest.mark.soak
def test_soak_definitions_that_lie() -> None:
    """The same for as long as ``SOAK_SECONDS`` shows (60)."""
    soak(FILE, "lie", lying)


def test_a_stream_learns_versions_between_batches() -> None:
    """The kernel decodes what came in an earlier batch, and takes versions out that Python alone may decode."""
    codec = SimpleCodec(Known())
    twice = {"id": {"mysqlType": "int"}}
    for some in (
        [schema(), row(PLAIN)],
        [row(PLAIN)],
        [schema(8, tiny={"mysqlType": "int"})],
        [row(PLAIN, schemaVersion=8)],
    ):
        batch = batch_of(some)
        got = decode_mostly(codec.kernel, codec, batch, "simple", images=True, original=batch, bounds=BOUNDS)
        assert got["error_class"].null_count == len(some)
    assert (
        len(codec.kernel(batch_of([row(PLAIN), row(PLAIN, schemaVersion=8)]), images=True, bounds=BOUNDS).message) == 2
    )
    assert not len(codec.kernel(batch_of([row(twice)]), images=True, bounds=BOUNDS).message)


def test_bounds_hold() -> None:
    """What is too large is detected by Python, to which it is left; a kernel that runs out of room starts again."""
    known = tables(schema())
    assert alike([row(PLAIN)], known, Bounds(columns=3)) == 0
    assert alike([row(PLAIN)], known, Bounds(values=5)) == 0
    many = b"[" + b"{}," * 1_000 + b"{}]"
    assert alike([row(PLAIN), (many, row(PLAIN)[1]), (b"k", row(PLAIN)[1])], known, Bounds(values=1_000)) == 2
    wide = {f"c{i}": {"mysqlType": "enum", "elements": ["x" * 200]} for i in range(100)}
    some = [row({"id": "1"} | dict.fromkeys(wide, "1")) for _ in range(50)]
    assert alike(some, tables(schema(**wide))) == 50
    assert alike([row({"id": "1", "b": b64encode(bytes(n)).decode()}) for n in range(300)], known) == 300


def test_images_can_be_left_out() -> None:
    """With the same hashes."""
    batch, known = batch_of([row(PLAIN), schema(), row(old=PLAIN)]), tables(schema())
    codec = SimpleCodec(known)
    without = decode_mostly(codec.kernel, codec, batch, "simple", images=False, original=batch, bounds=BOUNDS)
    assert without.equals(decode_with(SimpleCodec(known), batch, "simple", images=False))
    assert without["columns"].null_count == 3 and without["change_hash"].null_count == 1


def test_a_large_log_is_decoded_by_the_kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    """The decoder asks :mod:`ticdc_lab.codecs.choice`, and gives the same either way."""
    some = [schema()] + [row(PLAIN | {"id": str(i)}) for i in range(100)]
    asked: list[str] = []

    def by(answer: bool) -> Callable[[str, Any], bool]:
        return lambda part, batch: asked.append(part) or answer  # type: ignore[func-returns-value]

    found = []
    for answer in (True, False):
        monkeypatch.setattr(choice, "compiled", by(answer))
        run = decoder("simple", known=tables(schema()))
        found.append(pa.Table.from_batches(run(iter([batch_of(some)]))))
    assert found[0].equals(found[1]) and "simple" in asked
    assert pc.sum(pc.equal(found[0]["kind"], "row")).as_py() == 100

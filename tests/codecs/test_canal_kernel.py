"""The kernel of canal and its codec in Python give the same of every message; the kernel takes what TiCDC writes."""

from __future__ import annotations

from random import Random
from typing import Any

import pyarrow as pa
import pytest
import reference_decoder as oracle
from comparing import batch_of
from hypothesis import example, given, settings
from hypothesis import strategies as st
from making import Message, broken
from test_canal import INT, OFFICIAL, column, entry, insert, packet

from ticdc_lab.codecs.canal import Entry, decode
from ticdc_lab.codecs.decode import decode_mostly, decode_unpacked, decode_with, decoder
from ticdc_lab.codecs.kernel import columns
from ticdc_lab.codecs.kernel.canal import KERNEL
from ticdc_lab.codecs.known import BOUNDS, Bounds, Known
from ticdc_lab.codecs.quarantine import TooMuchError
from ticdc_lab.codecs.registry import codec_of

COLUMNS = (
    INT | {"value": "1", "isKey": True, "updated": True, "index": 3}, column("varbinary(16)", "\u00ff\u0000a"),
    column("double", "-1.50"), column("float", "0.1"), column("decimal(12,2)", "-12.30"), column("varchar(20)", "數🙂"),
    column("timestamp", "2020-01-01 00:00:00"), column("bigint(20) unsigned", "18446744073709551615"),
    column("json", "", isNull=True), column("enum('a','b')", "1"), column("text", ""),
)  # fmt: skip
"""A column of each kind."""


def update(*columns: dict[str, Any], **fields: Any) -> dict[str, Any]:
    """A row change that updates one row."""
    return {"eventType": 2, "rowDatas": [{"beforeColumns": columns, "afterColumns": columns}]} | fields


def delete(*columns: dict[str, Any]) -> dict[str, Any]:
    """A row change that deletes one row."""
    return {"eventType": 3, "rowDatas": [{"beforeColumns": columns}]}


def alike(some: list[Message], bounds: Bounds = BOUNDS) -> int:
    """Assert that both give the same, errors and order included; how many messages the kernel took."""
    batch = batch_of(some)
    codec = codec_of("canal", Known(bounds=bounds))
    mixed = decode_mostly(KERNEL, codec, batch, "canal", images=True, original=batch, bounds=bounds)
    plain = decode_with(codec, batch, "canal", bounds=bounds)
    if not mixed.equals(plain):
        for a, b in zip(mixed.to_pylist(), plain.to_pylist(), strict=True):
            assert a == b, some[a["offset"]]
    assert mixed.equals(plain) and not set(plain["error_class"].to_pylist()) & {"codec-error"}
    return len(set(KERNEL(batch, images=True, bounds=bounds).message.tolist()))


def values(*messages: bytes) -> list[Message]:
    """Messages of these values."""
    return [(None, m) for m in messages]


def official() -> list[Message]:
    """What TiCDC's encoder wrote."""
    return [(m["key"], m["value"]) for m in oracle.messages(OFFICIAL)]


WHOLE = packet(
    entry(insert(*COLUMNS), {"serverenCode": "UTF-8", "sourceType": 2, "props": [{"key": "rowsCount", "value": "1"}]}),
    entry(update(*COLUMNS)),
    entry(delete(*COLUMNS)),
)


def test_a_golden_topic_decodes_alike() -> None:
    """The kernel takes every row that the encoder wrote, except for floats of more digits than Python keeps; no DDL."""
    some = official()
    assert alike(some) > 0.8 * len(some)


def test_what_ticdc_writes_is_the_kernels() -> None:
    """A column of each kind in each operation; two rows of one entry."""
    two = insert(*COLUMNS)
    assert alike(values(WHOLE, packet(entry(two | {"rowDatas": two["rowDatas"] * 2})))) == 2


ODD = [
    *values(b"", b"\x00", b"\x00\x01", b"\x18\x07", b"\x80", packet(), packet(b""), packet(b"\x00"), WHOLE + WHOLE),
    *values(packet(entry(insert(*COLUMNS)), type=8), packet(entry(insert(*COLUMNS)), compression=1)),
    *values(packet(entry(insert(*COLUMNS)), compression=2), packet(entry(insert(*COLUMNS)), magic_number=-1)),
    *values(packet(entry(insert(*COLUMNS)), compression=-1)),
    *values(packet(entry(insert(INT | {"sqlType": -(2**31), "value": "3"})))),
    (None, None), (b"key", WHOLE), (None, WHOLE + b"\x2a\x00"), (None, WHOLE + b"\x00\x00"),
    (None, WHOLE + b"\x35abcd"),
    *values(*(packet(e) for e in (
        entry({"eventType": 7, "isDdl": True, "sql": "drop"}), entry({"eventType": 1, "isDdl": True, "sql": "x"}),
        entry(insert(*COLUMNS), entryType=1), entry(insert(*COLUMNS), entryType=0),
        entry(insert(*COLUMNS), {"schemaName": ""}),
        entry(insert(*COLUMNS), {"tableName": ""}), entry(update(*COLUMNS, eventType=1)),
        entry(update(*COLUMNS, eventType=3)),
        entry(update(*COLUMNS, eventType=2**31 - 1)), entry(insert(*COLUMNS) | {"eventType": 2}),
        entry({"eventType": 1}),
        entry({"eventType": 1, "rowDatas": [{}]}), entry(delete()), entry(insert(COLUMNS[0], COLUMNS[0])),
        entry(insert(*COLUMNS) | {"sql": "x", "ddlSchemaName": "y", "tableId": 7}),
        entry(update(COLUMNS[0], COLUMNS[0])),
        entry(insert({"name": "n"})), entry(insert({"mysqlType": "int"})), entry(insert(*COLUMNS), {"executeTime": -1}),
        Entry(entryType=2), Entry(entryType=2, storeValue=b"\xff"),
        entry(insert(*COLUMNS)).SerializeToString() + b"\x10\x02",
        entry(insert(*COLUMNS)).SerializeToString() + b"\x0a\x00",
        entry(insert(*COLUMNS)).SerializeToString() + b"\x1a\x00",
        entry(insert(*COLUMNS)).SerializeToString().replace(b"\x42\x01s", b"\x42\x01\xff"),
        entry(insert(*COLUMNS)).SerializeToString().replace(b"UTF-8", b"UT\xff-8"),
    ))),
]  # fmt: skip
VALUES = [
    column(t, v)
    for t, some in {
        "double": ("0", "-0", "-0.00", "1e5", "1e400", "nan", "1" * 29, "1" * 28, "0." + "0" * 320 + "5", "1.",
                   ".5", "+1"),
        "DOUBLE": ("1.50",), "Int": ("1", "x"), "VARBINARY(3)": ("a",),
        "int(11)": ("", "01", "4294967296", "-1", "1.0"),
        "varbinary(3)": ("\u0100", "\u0080\u00ff"), "blob": ("",), "decimal(5,2)": (".", "1.5", "1e3", "+1."),
        "date": ("2020-01-01", "2020-1-1", "0000-00-00"), "time": ("838:59:59", "839:00:00", "-12:00:00.000001"),
        "year": ("2020", "-1"), "bit(3)": ("7", "-7"), "unheard of": ("x",), "": ("x",), "(": ("x",),
        " int": ("x", "1"),
        "set('double')": ("1",), "float unsigned": ("1.50", "0.10"), "double(5,2)": ("1.50",), "ınt": ("x",),
    }.items()
    for v in some
]  # fmt: skip
"""At the edge of a type, and types written in other ways."""


@pytest.mark.parametrize("i", range(len(ODD)))
def test_odd_messages_decode_alike(i: int) -> None:
    """Parts that are missing, come twice, or do not go with what the message reports it is."""
    alike([ODD[i]])


def test_odd_messages_among_others_decode_alike() -> None:
    """Each stays in its place between messages that the kernel decodes."""
    alike([m for odd in ODD for m in (odd, (None, WHOLE))])


def test_odd_values_decode_alike() -> None:
    """A value that its type cannot hold is refused with its message."""
    for c in VALUES:
        alike(values(packet(entry(insert(INT | {"value": "1"}, c)))))
        alike(values(packet(entry(update(c | {"isNull": True}))), packet(entry(delete(c)))))


@settings(max_examples=20, deadline=None, derandomize=True)
@given(st.lists(st.from_regex(r"-?[0-9]{1,40}(\.[0-9]{0,40})?", fullmatch=True), min_size=10, max_size=10))
@example(["999999999999999999999999999999", "0.99999999999999999999999999999999"])
def test_floats_decode_alike(texts: list[str]) -> None:
    """The kernel works on digits, Python's decimals keep 28 of them."""
    rows = [insert(column("double", text), column("float", text) | {"name": "f"}) for text in texts]
    alike(values(*[packet(entry(row)) for row in rows]))


def test_messages_with_bytes_changed_decode_alike() -> None:
    """Flipped bits, cuts, pieces swapped and repeated, broken UTF-8, other lengths."""
    r = Random(5)
    some = official()[::40] + values(WHOLE) * 100
    for _ in range(4):
        alike([broken(m, r) for m in some])


def test_every_cut_of_a_message_decodes_alike() -> None:
    """A message may end anywhere."""
    assert alike(values(*(WHOLE[:i] for i in range(len(WHOLE) + 1)))) == 1


def test_bounds_hold() -> None:
    """Too many columns or events are detected by Python, to which they are left; without room the
    kernel starts again.
    """
    assert alike(values(WHOLE), Bounds(columns=3)) == alike(values(WHOLE), Bounds(events=2)) == 0
    assert alike(values(WHOLE), Bounds(events=3, columns=len(COLUMNS))) == 1
    bare = [column("text", "", name=chr(c)) for c in range(33, 120)]
    assert alike(values(packet(entry(update(*bare)))) * 20) == 20
    many = b"[" + b"{}," * 1_000 + b"{}]"
    assert alike([(many, WHOLE), (None, WHOLE), (b"key", WHOLE)], Bounds(values=1_000)) == 2


def repeated(rows: int, name: str) -> bytes:
    """A message whose rows share a long name."""
    one = insert(*COLUMNS)
    return packet(entry(one | {"rowDatas": one["rowDatas"] * rows}, {"schemaName": name}), entry(update(*COLUMNS)))


def test_rows_that_repeat_a_long_name_are_too_large() -> None:
    """To the byte where the kernel would end, too; within the bound it is the kernel's."""
    known = Known(bounds=Bounds(growth_free=1 << 30))
    bomb = repeated(300, "s" * 200_000)
    assert alike(values(bomb, WHOLE)) == 1
    [found] = decoder("canal")(iter([batch_of(values(WHOLE, bomb, WHOLE))]))
    assert found["error_class"].drop_null().to_pylist() == ["too-large"] and found.num_rows == 7
    assert "growth" in found["reason"].drop_null().to_pylist()[0]
    small = repeated(9, "數" * 99)
    [rows] = decoder("canal", known=known)(iter([batch_of(values(small))]))
    texts = [r[name] for r in rows.to_pylist() for name in ("schema_name", "table_name")] + [
        c[part]
        for r in rows.to_pylist()
        for image in ("columns", "before")
        for c in r[image] or ()
        for part in ("name", "mysql_type", "value")
    ]
    most = sum(len(text.encode()) for text in texts if text is not None) - len(small)
    for beside in (0, 3):
        some = values(*[WHOLE] * beside, small)
        assert alike(some, Bounds(growth=1, growth_free=most)) == beside + 1
        assert alike(some, Bounds(growth=1, growth_free=most - 1)) == beside


def test_a_message_beyond_what_a_kernel_can_place_is_left_to_python(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its positions have 32 bits; of several messages the fewer are tried."""
    monkeypatch.setattr(columns, "MOST_ROOM", 4_096)
    for some in (values(WHOLE), values(WHOLE, WHOLE)):
        with pytest.raises(TooMuchError):
            KERNEL(batch_of(some), images=True, bounds=BOUNDS)
        found = pa.Table.from_batches(decode_unpacked("canal", decode, batch_of(some), batch_of(some), images=True))
        assert found.combine_chunks().to_batches()[0].equals(decode_with(decode, batch_of(some), "canal"))

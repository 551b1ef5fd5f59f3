"""The columns of ``schema.DISPATCH`` that every decoder writes, beside the images it decoded; no JVM."""

from __future__ import annotations

import json
import re
import zlib
from collections import defaultdict
from decimal import Decimal
from functools import cache, reduce
from operator import xor
from pathlib import Path
from random import Random
from typing import Any

import csv_made
import pyarrow as pa
import pyarrow.compute as pc
import pytest
import torture
from formats import Row, decoded_by, known, messages, table_of
from stored import rows_of, unpack
from together import together

from ticdc_lab.codecs import decoder
from ticdc_lab.codecs.decode import decode_with
from ticdc_lab.codecs.event import Column, Event
from ticdc_lab.codecs.kernel import numbering as S
from ticdc_lab.codecs.known import NOTHING, Known
from ticdc_lab.codecs.plain.hashes import UNKNOWN as UNKNOWN_CRC
from ticdc_lab.errors import DispatchError
from ticdc_lab.events.schema import DISPATCH
from ticdc_lab.settings import UNKNOWN
from ticdc_lab.settings.file import given_settings

LOGS = {
    "messages_open-protocol_small.jsonl.gz": "open-protocol",
    "messages_open-protocol-deletehk_small.jsonl.gz": "open-protocol",
    "messages_open-protocol-lz4_small.jsonl.gz": "open-protocol",
    "messages_canal-json-tidb_small.jsonl.gz": "canal-json",
    "messages_canal-json-tidb-updatedonly-deletehk_small.jsonl.gz": "canal-json",
    "messages_simple-avro_small.jsonl.gz": "simple",
    "messages_debezium_small.jsonl.gz": "debezium",
    "messages_avro_small.jsonl.gz": "avro",
}
BINARY = ("binary", "varbinary", "blob", "tinyblob", "mediumblob", "longblob")
LABELS = ("enum", "set")


def crc(column: dict[str, Any], protocol: str) -> int | None:
    """What TiCDC hashes of a column, from its text, plainly; -1 for what cannot be known."""
    name, kind, value = column["name"], column["mysql_type"] or "", column["value"]
    if protocol == "debezium":
        zero = kind.startswith(("date", "timestamp")) and (value is None or value.startswith("1970-01-01"))
        bare = kind in ("decimal", "decimal unsigned", "time", "datetime") or kind.startswith("timestamp")
        if zero or (bare and value is not None):
            return -1
    if value is None:
        return None
    if kind.startswith(BINARY) and value.startswith("0x"):
        return zlib.crc32(name.encode() + bytes.fromhex(value[2:]))
    if kind.startswith(("float", "double")):
        value = f"{Decimal(value):f}"
        value = value.rstrip("0").rstrip(".") if "." in value else value
    if kind.startswith(LABELS) and (protocol in ("debezium", "avro", "csv") or not value.isdigit()):
        return labelled_crc(name, kind, value)
    return zlib.crc32((name + value).encode())


def labelled_crc(name: str, kind: str, value: str) -> int:
    """The crc of the number of an ENUM's label or a SET's, or -1 where the type does not name it."""
    labels = [label.replace("''", "'") for label in re.findall("'((?:[^']|'')*)'", kind)]
    given = [value] if kind.startswith("enum") else value.split(",") if value else []
    if not labels or (given not in ([""], []) and not set(given) <= set(labels)):
        return -1
    numbers = [labels.index(label) for label in given if label in labels]
    number = sum(1 << n for n in numbers) if kind.startswith("set") else numbers[0] + 1 if numbers else 0
    return zlib.crc32(f"{name}{number}".encode())


def expected(row: Row) -> tuple[Any, ...]:
    """The columns but ``row_bytes``, from the images."""
    if row["kind"] != "row":
        return None, None, None
    image = row["before"] if row["op"] == "delete" else row["columns"]
    crcs = [crc(c, row["protocol"]) for c in image]
    keys = [c for c, column in zip(crcs, image, strict=True) if column["is_key"]]
    key = None if -1 in keys else len(keys) << 32 | reduce(xor, [c or 0 for c in keys], 0)
    names = [c["name"].replace(",", "\x1f") for c in image]
    of_key = [name for name, c in zip(names, image, strict=True) if c["is_key"]]
    return crcs, key, f"{','.join(names)},,{','.join(of_key)}"


def found(row: Row) -> tuple[Any, ...]:
    """What the decoder wrote."""
    return row["column_crcs"], row["key_crc"], row["layout"]


@cache
def decoded_of(file: str) -> list[Row]:
    """Rows of a golden log, decoded once."""
    return decoded_by(messages(file), LOGS[file], known())


@pytest.mark.parametrize("file", LOGS)
def test_a_golden_log_has_the_crcs_of_its_images(file: str) -> None:
    """Crcs, key and names are the ones of the image that TiCDC hashes, in every row; other events have none."""
    rows = decoded_of(file)
    assert sum(row["kind"] == "row" for row in rows) > 1_600
    for row in rows:
        assert found(row) == expected(row), row


def test_a_golden_csv_folder_has_the_crcs_of_its_images(tmp_path: Path) -> None:
    """The same for the storage sink's csv; a record's bytes are its own."""
    rows = rows_of(unpack(tmp_path) / "small_csv_committs_oldvalue")
    assert sum(row["kind"] == "row" for row in rows) > 1_600
    for row in rows:
        assert found(row) == expected(row), row
        assert (row["row_bytes"] or 0) > 0 or row["kind"] != "row"


def test_made_csv_files_have_the_crcs_of_their_images() -> None:
    """Any text, binary or label in any setting."""
    for seed in range(100):
        r = Random(seed)
        settings = csv_made.settings(r)
        for row in csv_made.decoded(csv_made.made_file(r, settings)[0].encode(), settings):
            assert found(row) == expected(row), row


@pytest.mark.parametrize("file", LOGS)
def test_without_images_the_columns_are_the_same(file: str) -> None:
    """Dispatch needs no images, so decoding without them brings all that it needs."""
    rows = decoded_of(file)
    batches = decoder(LOGS[file], images=False, known=known())(iter(table_of(messages(file)).to_batches()))
    narrow = pa.Table.from_batches(batches)
    assert narrow["columns"].null_count == narrow["before"].null_count == narrow.num_rows
    assert narrow.select(DISPATCH.names).to_pylist() == [{n: row[n] for n in DISPATCH.names} for row in rows]


@pytest.mark.parametrize("file", [file for file in LOGS if "lz4" not in file])
def test_the_rows_of_a_message_share_its_bytes(file: str) -> None:
    """Together they have all bytes of key and value; open-protocol's version is before the first."""
    version = 8 if LOGS[file] == "open-protocol" else 0
    rows, sizes = decoded_of(file), dict[tuple[Any, ...], int]()
    for row in rows:
        if row["kind"] == "row":
            place = row["topic"], row["partition"], row["offset"]
            sizes[place] = sizes.get(place, 0) + row["row_bytes"]
        else:
            assert row["row_bytes"] is None
    for m in messages(file):
        if (place := (m["topic"], m["partition"], m["offset"])) in sizes:
            assert sizes[place] == len(m["key"] or b"") + len(m["value"] or b"") - version


def crcs_of(*columns: Column, op: int = S.INSERT) -> Row:
    """The row of one image, by way of a codec in Python."""
    image = [tuple(c) for c in columns]
    event = Event(S.ROW, 1, "s", "t", op=op, **{"before" if op == S.DELETE else "columns": image})
    batch = table_of([{"topic": "t", "partition": 0, "offset": 0, "key": b"k", "value": b"value"}]).to_batches()[0]
    (row,) = decode_with(lambda key, value: [event], batch, "mq-v1").to_pylist()
    assert found(row) == expected(row), row
    assert row["row_bytes"] == 6
    return dict(row)


@pytest.mark.parametrize("op", [S.INSERT, S.DELETE])
@together(
    ("mysql_type", "value"),
    [
        *[(kind, value) for kind in BINARY for value in ("0x00ff80", "0x", "text")],
        ("varchar(9)", "0x00ff"), ("longtext", "0x00"), ("tinytext", "0x00"), (None, "0x00"),
        *[(kind, v) for kind in ("float", "double unsigned", "float(10,2)") for v in (
            "5e-324", "1.7976931348623157e308", "-1.5e20", "10.10", "100", "0", "-0", "1.2345678901234567e15", "1e15",
            "-2.5e-16", "1e-16", "0.000001", "-123.456",
        )],
        ("date", "2026-01-02"), ("decimal(20,4)", "10.1000"), ("datetime", "2026-01-02 03:04:05.600000"),
        ("enum('1','b')", "2"), ("enum('a')", "a"), ("set('a','b')", "3"), ("set('a','b')", "a,b"), ("enum('')", ""),
        ("enum('a')", ""), ("set('a')", ""), ("enum", ""), ("set", "a"), ("enum('it''s','\u4e2d')", "\u4e2d"),
        ("enum('it''s')", "it's"), ("enum('a')", "b"), ("set('a','b')", "b,c"), ("set('b','a')", "a"),
        ("set('','a')", ",a"),
        ("set(" + ",".join(f"'m{i}'" for i in range(64)) + ")", "m0,m63"), ("enum('a','a b')", "a b"),
        ("smallint", "-5"), ("varchar(3)", "表"), ("text", "x" * 1000), ("json", '{"a": 1}'), ("varchar(3)", ""),
        ("int", None),
    ],
)  # fmt: skip
def test_every_type_has_the_bytes_that_ticdc_hashes(mysql_type: str | None, value: str | None, op: int) -> None:
    """Binary is raw bytes, a float has no exponent, a label is its number, and everything else is its text."""
    crcs_of(Column("c", mysql_type, value, True), Column("d,e", "int", "7"), op=op)


@pytest.mark.parametrize("value", ["abc", "1e", "1e+", "1e9999", "x1e5"])
def test_a_float_that_is_no_number_is_refused(value: str) -> None:
    """No crc and no value is guessed for it: its message is in quarantine, with what it holds."""
    event = Event(S.ROW, 1, "s", "t", columns=[("c", "double", value, True, -1)])
    batch = table_of([{"topic": "t", "partition": 0, "offset": 0, "key": None, "value": b"v"}]).to_batches()[0]
    (row,) = decode_with(lambda key, value: [event], batch, "mq-v1").to_pylist()
    assert (row["column_crcs"], row["key_crc"]) == (None, None)
    assert row["error_class"] == "bad-value" and value in row["reason"], row


def test_values_of_every_length_and_layouts_in_any_order() -> None:
    """The crc takes eight bytes at a time, so each rest is tried; layouts that differ in little are distinguished."""
    r, events = Random(3), []
    for n in range(400):
        names = r.sample(["a", "b", "ab", "a,b", "A", "é", "long_name_of_a_column"], r.randrange(8))
        keys = r.randrange(3)
        columns = [(name, "varchar", "x" * r.randrange(40) or None, i < keys, -1) for i, name in enumerate(names)]
        events.append(Event(S.ROW, n, "s", f"t{n % 3}", op=S.INSERT, columns=columns))
    batch = table_of([{"topic": "t", "partition": 0, "offset": 0, "key": None, "value": b"v" * 1001}]).to_batches()[0]
    rows = decode_with(lambda key, value: events, batch, "mq-v1").to_pylist()
    for row in rows:
        assert found(row) == expected(row), row
    assert sum(row["row_bytes"] for row in rows) == 1001 and {row["row_bytes"] for row in rows} == {2, 3}


def test_the_comparison_sees_a_wrong_crc() -> None:
    """A crc of another value, a key that was left out and a name that was changed are all found."""
    row = crcs_of(Column("a", "int", "1", True), Column("b", "int", "2"))
    for planted in (
        {"column_crcs": [row["column_crcs"][0], row["column_crcs"][0]]},
        {"key_crc": row["key_crc"] - (1 << 32)},
        {"layout": "a,c,,a"},
    ):
        assert found(row | planted) != expected(row)


@pytest.mark.parametrize("compiled", [False, True])
@together(("protocol", "mysql_type", "value", "is_known"), [
    ("debezium", "decimal", "10.5", False), ("debezium", "decimal(10,2)", "10.50", True),
    ("debezium", "decimal(30,2)", "1234567890123456.75", False), ("debezium-avro", "decimal(30,2)", "1" * 20, True),
    ("debezium", "time", "10:00:00", False), ("debezium", "time(1)", "10:00:00.5", True),
    ("debezium-avro", "time(6)", "10:00:00.500000", True), ("debezium-avro", "datetime", "2026-01-01 00:00:00", False),
    ("debezium", "datetime(0)", "2026-01-01 00:00:00", True), ("debezium", "datetime(0)", "1970-01-01 00:00:00", False),
    ("debezium", "timestamp(3)", "2026-01-01 00:00:00.000", False), ("debezium", "date", "2026-01-01", True),
    ("debezium", "date", "1970-01-01", False), ("debezium", "date", None, False), ("debezium", "datetime", None, False),
    ("debezium", "timestamp", None, False), ("debezium", "time", None, True), ("debezium", "int", None, True),
    ("debezium", "text", "1970-01-01", True), ("debezium", "tinyint", "1", True), ("debezium", "double", "1.5", True),
    *[("canal-json", kind, "1970-01-01 00:00:00", True) for kind in ("date", "datetime", "timestamp", "decimal")],
    ("simple", "datetime", None, True), ("debezium", "decimal(20,6)", "-123456789.123456", True),
    ("debezium", "decimal(20,6)", "1234567890.123456", False),
    ("debezium", "datetime(1)", "1970-01-01 00:00:00.1", True),
    ("debezium", "decimal(30,20)", "0." + "0" * 19 + "1", True),
])  # fmt: skip
def test_a_text_that_debezium_writes_otherwise_has_no_crc(
    protocol: str, mysql_type: str, value: str | None, is_known: bool, compiled: bool
) -> None:
    """Zero dates, fractions of unknown length, timestamps of a zone, decimals as numbers: none gives a partition."""
    image = [("k", mysql_type, value, True, -1)]
    for event in (Event(S.ROW, 1, "s", "t", op=S.INSERT, columns=image),
                  Event(S.ROW, 1, "s", "t", op=S.DELETE, before=image)):  # fmt: skip
        batch = table_of([{"topic": "t", "partition": 0, "offset": 0, "key": b"k", "value": b"v"}]).to_batches()[0]
        (row,) = decode_with(lambda key, value, e=event: [e], batch, protocol, compiled=compiled).to_pylist()
        crc_of = None if value is None else zlib.crc32(f"k{value}".encode())
        assert row["column_crcs"] == [crc_of if is_known else -1]
        assert row["key_crc"] == ((1 << 32 | (crc_of or 0)) if is_known else None)


@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize(("protocol", "mysql_type", "value", "number"), [
    ("debezium", "enum('2','1')", "1", "2"), ("avro", "enum('2','1')", "1", "2"), ("csv", "enum", "1", None),
    ("canal-json", "enum('2','1')", "1", "1"), ("debezium-avro", "set('0','1')", "0,1", "3"),
    ("debezium", "enum('a\\'b','c')", "c", None), ("canal-json", "set('0','1')", "", "0"),
    ("avro", "set('x','y')", "", "0"), ("avro", "enum('x')", "y", None),
])  # fmt: skip
def test_a_label_is_hashed_by_its_number(
    protocol: str, mysql_type: str, value: str, number: str | None, compiled: bool
) -> None:
    """A label of digits is no number where the protocol carries labels; an unknown one has no crc."""
    event = Event(S.ROW, 1, "s", "t", op=S.INSERT, columns=[("k", mysql_type, value, True, -1)])
    batch = table_of([{"topic": "t", "partition": 0, "offset": 0, "key": b"k", "value": b"v"}]).to_batches()[0]
    (row,) = decode_with(lambda key, value: [event], batch, protocol, compiled=compiled).to_pylist()
    assert row["column_crcs"] == [-1 if number is None else zlib.crc32(f"k{number}".encode())]


def test_of_a_timestamp_in_debezium_the_text_is_known_once_the_zone_is() -> None:
    """Each crc is the one of canal-json's text, which is in the zone of the server; a zero date stays unknown."""

    def crcs(protocol: str, name: str, known: Known) -> dict[Any, set[int | None]]:
        found: dict[Any, set[int | None]] = defaultdict(set)
        for e in pa.Table.from_batches(decoder(protocol, known=known)(iter([torture.messages(name)]))).to_pylist():
            for c, crc in zip(e["columns"] or e["before"] or (), e["column_crcs"] or (), strict=True):
                if c["mysql_type"].startswith("timestamp") and c["value"] is not None and "1970" not in c["value"]:
                    found[e["commit_ts"], e["table_name"], e["op"], c["name"]].add(crc)
        return found

    zone = UNKNOWN.with_option("time-zone", "Asia/Shanghai")
    as_text = crcs("canal-json", "canal-json-tidb", NOTHING)
    assert set().union(*crcs("debezium", "debezium", NOTHING).values()) == {UNKNOWN_CRC}
    there = crcs("debezium", "debezium", Known(settings=zone))
    assert len(there) == 125 and all(own <= as_text[row] for row, own in there.items())
    rows = pa.Table.from_batches(
        decoder("debezium", images=False, known=Known(settings=zone))(iter([torture.messages("debezium")]))
    ).filter(pc.field("table_name") == "k_ts")
    assert rows["columns"].null_count == len(rows) and rows.filter(pc.field("kind") == "row")["key_crc"].null_count == 0
    with pytest.raises(DispatchError, match="expected the name of a time zone"):
        given_settings({"time-zone": "Asia/Shangai"})


@pytest.mark.parametrize("text", ["2020-02-30T00:00:00Z", "9999-12-31T23:59:59Z", "0000-00-00 00:00:00"])
def test_a_timestamp_that_is_no_moment_stays_unknown_in_any_zone(text: str) -> None:
    """It ends no load."""
    typed = {"field": "a", "tidb_type": "timestamp", "name": "io.debezium.time.ZonedTimestamp"}
    payload = {"source": {"commit_ts": 5, "db": "s", "table": "t"}, "op": "c", "after": {"a": text}}
    value = json.dumps({"payload": payload, "schema": {"fields": [{"field": "after", "fields": [typed]}]}})
    message = table_of([{"topic": "t", "partition": 0, "offset": 0, "key": None, "value": value.encode()}])
    known = Known(settings=UNKNOWN.with_option("time-zone", "Asia/Shanghai"))
    (event,) = pa.Table.from_batches(decoder("debezium", known=known)(iter(message.to_batches()))).to_pylist()
    assert event["error_class"] is None and event["column_crcs"] == [UNKNOWN_CRC]

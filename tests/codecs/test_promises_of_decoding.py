"""One message never ends a load, no value is invented, and what a message becomes is bounded, in every codec."""

from __future__ import annotations

import json
import struct
from collections.abc import Sequence
from importlib import import_module
from random import Random
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from comparing import batch_of
from counted_work import times_the_work
from formats import Row
from making import Message
from together import together

from ticdc_lab.codecs import Known, choice, decoder
from ticdc_lab.codecs.event import Codec, Event
from ticdc_lab.codecs.kernel import columns
from ticdc_lab.codecs.kernel import numbering as S
from ticdc_lab.codecs.known import Bounds, bounds_of
from ticdc_lab.codecs.registry import CODECS, KERNELS
from ticdc_lab.errors import SourceError

DECODE = import_module("ticdc_lab.codecs.decode")
PYTHON = sorted(set(CODECS) - set(KERNELS))


def decoded(some: list[Message], protocol: str, known: Known | None = None) -> list[Row]:
    """Rows of the decoder, messages in their order."""
    rows = pa.Table.from_batches(decoder(protocol, known=known or Known())(iter([batch_of(some)]))).to_pylist()
    assert {r["offset"] for r in rows} == set(range(len(some)))
    return sorted(rows, key=lambda r: (r["offset"], r["seq"]))


@pytest.fixture(params=["plain", "kernel"])
def either(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Run a test by plain Python, then by the kernels."""
    by_kernel = request.param == "kernel"
    monkeypatch.setattr(choice, "compiled", lambda part, batch: by_kernel and part != choice.HASHES)
    return str(request.param)


# --- one message never ends a load


def event(m: int) -> Event:
    """A row that shows which message it is of."""
    return Event(S.ROW, 5, "s", "t", op=S.INSERT, columns=[("a", "bigint", str(m), True, -1)])


def spoilt(m: int, r: Random) -> Sequence[Event]:
    """What a codec may never give, but might: it raises, or its events cannot be laid out or hashed."""
    whole = event(m)
    ways: list[Any] = [
        lambda: 1 / 0,
        lambda: {}["x"],
        lambda: np.empty(1 << 50),
        lambda: [Event(S.ROW, 5, "s", "t", columns=[("a", None, {}, True, -1)])],  # type: ignore[list-item]
        lambda: [Event(S.ROW, 5, "s", "t", columns=[("a", None, "\ud800", True, -1)])],
        lambda: [Event(S.ROW, 5, {}, "t", columns=whole.columns)],  # type: ignore[arg-type]
        lambda: [Event(S.ROW, 5, "s", "t", columns=[("a", "int")])],  # type: ignore[list-item]
        lambda: [Event(S.ROW, "5", "s", "t", columns=whole.columns)],  # type: ignore[arg-type]
        lambda: [Event(S.DDL, 5, "s", "t", query=b"\xff")],  # type: ignore[arg-type]
        lambda: [whole, None],
        lambda: None,
        list,
    ]
    found: Sequence[Event] = r.choice(ways)()
    return found


@pytest.mark.parametrize("protocol", PYTHON)
@pytest.mark.parametrize("seed", range(3))
def test_a_codec_that_fails_at_random_loses_its_own_messages_alone(
    protocol: str, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What it raises and gives: in quarantine with place, bytes and reason; every other
    message is decoded.
    """
    r = Random(seed)
    bad = {m for m in range(400) if r.random() < 0.1}

    def failing(key: bytes | None, value: bytes | None) -> Sequence[Event]:
        m = int(value or b"")
        return spoilt(m, r) if m in bad else [event(m)]

    def codec_of(protocol: str, known: Known) -> Codec:
        return failing

    monkeypatch.setattr(DECODE, "codec_of", codec_of)
    rows = decoded([(None, b"%d" % m) for m in range(400)], protocol)
    assert {row["offset"] for row in rows if row["error_class"]} == bad and len(rows) == 400
    for row in rows:
        if row["offset"] in bad:
            assert row["reason"] and row["value"] == b"%d" % row["offset"] and row["protocol"] == protocol
        else:
            assert row["columns"][0]["value"] == str(row["offset"])


@pytest.mark.parametrize("protocol", KERNELS)
def test_a_kernel_that_fails_on_a_message_loses_that_one_alone(protocol: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where the memory does not suffice: smaller batches are tried, then the message is ``too-large``."""
    monkeypatch.setattr(choice, "compiled", lambda part, batch: True)
    whole = columns.event_columns

    def failing(batch: pa.RecordBatch, *rest: Any) -> Any:
        values = batch.column("value").to_pylist()
        if any(b"memory" in v for v in values):
            np.empty(1 << 50)
        assert not any(b"broken" in v for v in values)
        return whole(batch, *rest)

    monkeypatch.setattr(columns, "event_columns", failing)
    some = [message(protocol, "int", json.dumps("1")) for _ in range(50)]
    some[7], some[30] = (spoil(some[m], word) for m, word in ((7, b"broken"), (30, b"memory")))
    rows = decoded(some, protocol)
    assert [(r["offset"], r["error_class"]) for r in rows if r["error_class"]] == [
        (7, "codec-error"),
        (30, "too-large"),
    ]


def spoil(message: Message, word: bytes) -> Message:
    """The message with a word in a place of no meaning."""
    key, value = message
    assert value is not None
    if key is None:
        return key, value[:-1] + b',"x":"' + word + b'"}'
    body = value[8:-1] + b',"x":"' + word + b'"}'
    return key, struct.pack(">Q", len(body)) + body


# --- no value is invented


OPEN_CODES = {"tinyint": 1, "smallint": 2, "mediumint": 9, "int": 3, "bigint": 8, "year": 13, "float": 4, "double": 5}


def message(protocol: str, mysql_type: str, value: str) -> Message:
    """A row with one column ``a``; ``value`` is JSON as a number or a string is written."""
    if protocol == "open-protocol":
        key = b'{"ts":5,"scm":"s","tbl":"t","t":1}'
        number = value.strip('"') if value not in ("true", "{}", "[]") else value
        body = b'{"u":{"a":{"t":%d,"f":0,"v":%s}}}' % (OPEN_CODES[mysql_type], number.encode())
        return struct.pack(">QQ", 1, len(key)) + key, struct.pack(">Q", len(body)) + body
    if protocol == "canal-json":
        text = (
            '{"database":"s","table":"t","pkNames":["a"],"isDdl":false,"type":"INSERT","mysqlType":{"a":"%s"},'
            '"old":null,"data":[{"a":%s}],"_tidb":{"commitTs":5}}'
        )
        return None, (text % (mysql_type, value)).encode()
    if protocol == "mq-v1":
        seed = {"tinyint": "Tiny", "int": "Long", "bigint": "Longlong", "double": "Double"}[mysql_type]
        key = b'{"ts":5,"type":"Row","schema":"s","table":"t"}'
        return key, ('{"update":{"a":{"type":"' + seed + '","unique":true,"value":' + value + "}}}").encode()
    if protocol == "simple":
        text = '{"type":"INSERT","database":"s","table":"t","tableID":1,"commitTs":5,"schemaVersion":1,"data":{"a":%s}}'
        return None, (text % value).encode()
    form, _, base = mysql_type.rpartition(":")
    field = {"field": "a", "type": "x", "tidb_type": base} | ({"name": f"io.debezium.time.{form}"} if form else {})
    schema = json.dumps({"fields": [{"field": "after", "fields": [field]}]})
    text = '{"payload":{"source":{"commit_ts":5,"db":"s","table":"t"},"op":"c","after":{"a":%s}},"schema":%s}'
    return None, (text % (value, schema)).encode()


def beside(protocol: str, mysql_type: str) -> Known:
    """The table version of the simple protocol."""
    column = {"name": "a", "dataType": {"mysqlType": mysql_type, "length": 1}, "nullable": True}
    table = {"schema": "s", "table": "t", "version": 1, "tableID": 1, "columns": [column], "indexes": []}
    return Known(tables={("s", "t", 1): table}) if protocol == "simple" else Known()


INVENTED = [
    *[("debezium", f"{form}:{base}", odd) for form, base in (
        ("ZonedTimestamp", "timestamp"), ("MicroTimestamp", "datetime"), ("Date", "date"), ("MicroTime", "time"),
        ("Timestamp", "datetime")) for odd in ("{}", "[]", "true", "1.5", "1e30")],
    ("debezium", "ZonedTimestamp:timestamp", '"soon"'), ("debezium", "Date:date", '"2020-01-01"'),
    ("debezium", "double", '"1_0"'), ("debezium", "double", "true"), ("debezium", "float", '"1"'),
    ("debezium", "bigint", "9" * 26), ("debezium", "int", '"abc"'), ("debezium", "int", "1.5"),
    ("debezium", "tinyint", "300"), ("debezium", "decimal", '"1_0"'), ("debezium", "decimal", "true"),
    ("debezium", "int", "true"), ("debezium", "year", '"\\u0661"'),
    *[("simple", base, odd) for base in ("int", "double", "bigint", "decimal", "date") for odd in ('"abc"', '"1_0"')],
    ("simple", "tinyint", '"300"'), ("simple", "bigint", f'"{"9" * 26}"'), ("simple", "int", "true"),
    ("mq-v1", "tinyint", "300"), ("mq-v1", "int", '"1"'), ("mq-v1", "double", '"1_0"'), ("mq-v1", "int", "true"),
    *[(p, base, odd) for p in KERNELS for base, odd in (
        ("tinyint", '"256"'), ("tinyint", '"-129"'), ("smallint", '"65536"'), ("mediumint", '"16777216"'),
        ("int", '"4294967296"'), ("int", '"-2147483649"'), ("bigint", f'"{"9" * 26}"'), ("year", '"65536"'),
        ("bigint", '"-9223372036854775809"'), ("bigint", '"18446744073709551616"'), ("int", '"1.5"'))],
    *[("canal-json", base, odd) for base in ("int", "bigint", "double", "float") for odd in
      ('"abc"', '""', '"1_0"', '" 1"', '"\\u0661"', '"true"')],
]  # fmt: skip


@together(("protocol", "mysql_type", "value"), INVENTED)
def test_a_value_that_its_type_cannot_hold_is_in_quarantine(
    protocol: str, mysql_type: str, value: str, either: str
) -> None:
    """Nothing is made of it, and the message after it is decoded."""
    if either == "kernel" and protocol not in KERNELS:
        return
    base = mysql_type.rpartition(":")[2]
    bad, good = message(protocol, mysql_type, value), message(protocol, mysql_type, "null")
    rows = decoded([bad, good], protocol, beside(protocol, base))
    assert rows[0]["error_class"] in ("bad-value", "bad-type", "out-of-range"), rows[0]
    assert rows[1]["error_class"] is None


HELD = [
    *[(p, base, f'"{v}"', v) for p in KERNELS for base, v in (
        ("tinyint", "-128"), ("tinyint", "255"), ("smallint", "65535"), ("mediumint", "-8388608"), ("year", "2155"),
        ("int", "4294967295"), ("bigint", "18446744073709551615"), ("bigint", "-9223372036854775808"))],
    ("debezium", "Date:date", "18262", "2020-01-01"),
    ("debezium", "MicroTimestamp:datetime", "0", "1970-01-01 00:00:00"),
    ("debezium", "bigint unsigned", "-1", "18446744073709551615"), ("debezium", "double", "10", "10"),
    ("debezium", "decimal", '"-1.50"', "-1.50"), ("debezium", "bit", "true", "1"),
    ("simple", "double", '"1.5"', "1.5"), ("simple", "date", '"0000-00-00"', "0000-00-00"),
    ("mq-v1", "bigint", "18446744073709551615", "18446744073709551615"),
]  # fmt: skip


@together(("protocol", "mysql_type", "value", "text"), HELD)
def test_a_value_at_the_edge_of_its_type_is_kept(
    protocol: str, mysql_type: str, value: str, text: str, either: str
) -> None:
    """What the type can hold, signed or not, is what comes out."""
    [row] = decoded([message(protocol, mysql_type, value)], protocol, beside(protocol, mysql_type.rpartition(":")[2]))
    assert row["error_class"] is None and row["columns"][0]["value"] == text


# --- bounded


def wide(n_types: int = 1, images: int = 1, type_text: str = "int", table: str = "t") -> Message:
    """Canal-json with many types, many empty rows, a long type or a long name."""
    rows = [{"c0": "1"}] * images if n_types == 1 else [{}] * images
    whole = {"database": "s", "table": table, "pkNames": None, "isDdl": False, "type": "INSERT",
             "mysqlType": {f"c{i}": type_text for i in range(n_types)}, "old": None, "data": rows}  # fmt: skip
    return None, json.dumps(whole).encode()


GREEDY = {
    "columns": (wide(n_types=21), Bounds(columns=20)),
    "events": (wide(images=21), Bounds(events=20)),
    "types repeated": (wide(images=100, type_text="varchar(" + "9" * 999 + ")"), Bounds(growth=8, growth_free=1_000)),
    "names repeated": (wide(images=100, table="t" * 999), Bounds(growth=8, growth_free=1_000)),
}  # fmt: skip


@pytest.mark.parametrize("case", GREEDY)
def test_what_becomes_too_much_is_too_large_in_both_decoders(case: str, either: str) -> None:
    """Beyond the bound ``too-large``, alone or beside others; within it decoded."""
    greedy, tight = GREEDY[case]
    rows = decoded([wide(), greedy, wide()], "canal-json", Known(bounds=tight))
    assert [r["error_class"] for r in rows] == [None, "too-large", None] and rows[1]["value"] == greedy[1]
    assert not any(r["error_class"] for r in decoded([greedy], "canal-json"))


def test_types_times_rows_take_no_time_of_their_own() -> None:
    """No step is taken for each type in each row: a thousand times the types are not ten times the work."""
    few, many = (batch_of([wide(n_types=n, images=64_000)]) for n in (12, 12_000))
    DECODE.decode_batch(few, "canal-json")  # compiled by now
    times = times_the_work(*(lambda b=b: DECODE.decode_batch(b, "canal-json") for b in (many, few)))
    assert times < 10  # as long; by types and rows 40 times


def test_many_small_values_are_counted_before_they_become_objects() -> None:
    """In JSON alone, and not what is in strings."""
    text = '{"type":"INSERT","database":"s","table":"t","tableID":1,"commitTs":5,"schemaVersion":1,"data":{"a":%s}}'
    bomb, prose = text % ("[" + "{}," * 2_000 + "{}]"), text % json.dumps('[{,\\"' * 2_000)
    tight = Known(bounds=Bounds(values=1_000), tables=beside("simple", "text").tables)
    rows = decoded([(None, bomb.encode()), (None, prose.encode())], "simple", tight)
    assert [r["error_class"] for r in rows] == ["too-large", None] and "values" in rows[0]["reason"]


@pytest.mark.parametrize("protocol", ["simple", "canal-json"])
def test_a_batch_is_decoded_in_pieces_of_bounded_size(protocol: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A batch may have any number of large messages: so many bytes of them are decoded at once."""
    one = message(protocol, "int", '"1"')
    monkeypatch.setattr(DECODE, "AT_ONCE", 4 * len(one[1] or b""))
    found = list(decoder(protocol, known=beside(protocol, "int"))(iter([batch_of([one] * 11)])))
    assert [b.num_rows for b in found] == [4, 4, 3]


def test_bounds_are_told_by_name_and_a_wrong_one_is_refused() -> None:
    """As the command line gives them."""
    assert bounds_of({"columns": "7"}) == Bounds(columns=7)
    for wrong in ({"colums": "7"}, {"columns": "-1"}, {"columns": "1e3"}, {"columns": "0"}):
        with pytest.raises(SourceError, match="expected one of inflated"):
            bounds_of(wrong)

"""In every codec that knows a column's type a value that fits it comes out, and one that does not is in quarantine."""

from __future__ import annotations

import json
import math
import struct
from base64 import b64encode
from collections.abc import Callable, Iterator
from random import Random
from typing import Any

import pyarrow as pa
import pytest
from comparing import batch_of
from hypothesis import given, settings
from hypothesis import strategies as st
from making import Message
from test_bad_formats import framed
from test_canal import column, entry, packet
from together import together

from ticdc_lab.codecs import Known, choice, csv, decoder
from ticdc_lab.codecs.decode import all_fit, decode_with, require_values
from ticdc_lab.codecs.event import Event, Malformed
from ticdc_lab.codecs.kernel import csv as kernel_csv
from ticdc_lab.codecs.kernel.numbering import INSERT, ROW
from ticdc_lab.codecs.kernel.open_types import AS_FLOAT, AS_INTEGER, form_of
from ticdc_lab.codecs.laid_out import lay_out
from ticdc_lab.codecs.plain.json_text import PLAINLY_HELD, holds
from ticdc_lab.codecs.registry import CODECS
from ticdc_lab.codecs.table_file import Cut, TableColumn, TableFile
from ticdc_lab.errors import ProtocolError
from ticdc_lab.events.mysql_types import (
    ANYTHING,
    BY_MQ_V1,
    BY_NAME,
    INTEGERS,
    NO_MYSQL_TYPE,
    TYPES,
    base_of,
    held_by,
    type_of,
)

HELD: dict[str, tuple[str, ...]] = {
    "tinyint": ("255", "-128"), "smallint": ("65535", "-32768"), "mediumint": ("16777215", "-8388608"),
    "int": ("4294967295", "-2147483648"), "bigint": ("18446744073709551615", "-9223372036854775808"),
    "year": ("0", "2155"), "bit": ("0", "18446744073709551615"), "float": ("1.5", "-0.25"),
    "double": ("1.7976931348623157e308", "0"), "decimal": ("9" * 35 + "." + "9" * 30, "-0.50"),
    "date": ("0000-00-00", "2020-02-31", "9999-12-31"), "time": ("-838:59:59.000000", "00:00:00"),
    "datetime": ("0000-00-00 00:00:00.000000", "2020-00-00 00:00:00", "9999-12-31 23:59:59.999999"),
    "timestamp": ("1970-01-01 00:00:01", "2038-01-19 03:14:07.5"),
    "enum": ("0", "70000"), "set": ("18446744073709551615",), "json": ('[1, "x"]', "null", "1e999"),
    "vector": ("[1,-2e-3]",), "char": ("", "NULL"), "varchar": ("2020-13-01",), "text": ("\U0001f642",),
}  # fmt: skip
REFUSED: dict[str, tuple[str, ...]] = {
    "tinyint": ("256", "-129"), "smallint": ("65536",), "mediumint": ("16777216",), "int": ("4294967296", "1.5"),
    "bigint": ("18446744073709551616", "-9223372036854775809"), "year": ("65536",),
    "bit": ("-1", "18446744073709551616"), "float": ("1e309",), "double": ("1e309", "-1.8e308"),
    "decimal": ("1_0", "", "1.2.3", "-"), "date": ("2020-13-01", "2020-01-32", "20-01-01", "2020-1-1", "soon"),
    "time": ("839:00:00", "00:60:00", "1:00:00", "00:00:00.1234567"),
    "datetime": ("2020-01-01 24:00:00", "2020-01-01 00:00:60", "2020-01-01x", ""), "timestamp": ("yesterday",),
}  # fmt: skip
CODES = {t.name: t.code for t in TYPES}


@pytest.fixture(params=["plain", "kernel"])
def either(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Run a test by plain Python, then by the kernels."""
    by_kernel = request.param == "kernel"
    monkeypatch.setattr(choice, "compiled", lambda part, batch: by_kernel and part != choice.HASHES)
    return str(request.param)


def open_protocol(mysql_type: str, text: str) -> Message:
    """A row of one column as open-protocol writes it."""
    code, as_number = CODES[mysql_type], form_of(CODES[mysql_type]) in (AS_INTEGER, AS_FLOAT)
    value = text if as_number else json.dumps(text)
    key, body = b'{"ts":5,"scm":"s","tbl":"t","t":1}', b'{"u":{"a":{"t":%d,"f":0,"v":%s}}}' % (code, value.encode())
    return struct.pack(">QQ", 1, len(key)) + key, struct.pack(">Q", len(body)) + body


def canal_json(mysql_type: str, text: str) -> Message:
    """The same as canal-json does."""
    row = {"mysqlType": {"a": mysql_type}, "old": None, "data": [{"a": text}], "_tidb": {"commitTs": 5}}
    whole = {"database": "s", "table": "t", "pkNames": ["a"], "isDdl": False, "type": "INSERT"} | row
    return None, json.dumps(whole).encode()


def canal(mysql_type: str, text: str) -> Message:
    """The same in canal's protobuf."""
    change = {"eventType": 1, "rowDatas": [{"afterColumns": [column(mysql_type, text)]}]}
    return None, packet(entry(change))


def simple(mysql_type: str, text: str) -> Message:
    """The same in simple, whose types :func:`beside` has."""
    row = {"type": "INSERT", "database": "s", "table": "t", "tableID": 1, "commitTs": 5, "schemaVersion": 1}
    return None, json.dumps(row | {"data": {"a": text}}).encode()


def avro(mysql_type: str, text: str) -> Message:
    """The same in avro."""
    written = avro_form(mysql_type)
    value = float(text) if written == "double" else text
    return framed(1, avro_schema("int", "long"), {"a": 1}), framed(2, avro_schema(mysql_type, written), {"a": value})


def avro_form(mysql_type: str) -> str:
    """In which of avro's types the values of a column stand."""
    return "double" if mysql_type in ("float", "double") else "string"


def avro_schema(mysql_type: str, written: str) -> dict[str, Any]:
    """A table of one column, as it is in the registry."""
    kind = {"type": written, "connect.parameters": {"tidb_type": mysql_type.upper()}}
    return {"type": "record", "name": "t", "namespace": "s", "fields": [{"name": "a", "type": kind}]}


def mq_v1(mysql_type: str, text: str) -> Message:
    """The same in mq-v1."""
    [written] = (name for name, t in BY_MQ_V1.items() if t.name == mysql_type)
    value = text if mysql_type in INTEGERS | {"bit", "float", "double"} else json.dumps(text)
    key = b'{"ts":5,"type":"Row","schema":"s","table":"t"}'
    return key, ('{"update":{"a":{"type":"' + written + '","unique":true,"value":' + value + "}}}").encode()


def debezium(mysql_type: str, text: str) -> Message:
    """The same in debezium."""
    value = text if mysql_type in INTEGERS | {"float", "double"} else json.dumps(text)
    if mysql_type == "bit":
        number = int(text)
        raw = number.to_bytes(16, "little", signed=number < 0).rstrip(b"\0") or b"\0"
        value = json.dumps(b64encode(raw).decode())
    field = {"field": "a", "type": "x", "tidb_type": mysql_type}
    schema = json.dumps({"fields": [{"field": "after", "fields": [field]}]})
    whole = '{"payload":{"source":{"commit_ts":5,"db":"s","table":"t"},"op":"c","after":{"a":%s}},"schema":%s}'
    return None, (whole % (value, schema)).encode()


WRITERS: dict[str, Callable[[str, str], Message]] = {
    "open-protocol": open_protocol, "canal-json": canal_json, "canal": canal, "simple": simple, "avro": avro,
    "mq-v1": mq_v1, "debezium": debezium,
}  # fmt: skip
UNTYPED = {"maxwell", "debezium-avro"}
"""Rows of the one show no type; the ones of the other are debezium's, with values of Avro's own types."""


def beside(protocol: str, mysql_type: str) -> Known:
    """What is known of the column beside its message."""
    if protocol == "avro":
        kinds = avro_schema("int", "long"), avro_schema(mysql_type, avro_form(mysql_type))
        return Known(schemas={str(i): json.dumps(s) for i, s in enumerate(kinds, 1)})
    of = {"name": "a", "dataType": {"mysqlType": mysql_type}, "nullable": True}
    table = {"schema": "s", "table": "t", "version": 1, "tableID": 1, "columns": [of], "indexes": []}
    return Known(tables={("s", "t", 1): table})


def shown(protocol: str, mysql_type: str, text: str) -> tuple[str | None, str | None]:
    """The error class of a row with the value, and what comes out as the value."""
    batch = batch_of([WRITERS[protocol](mysql_type, text)])
    [row] = pa.Table.from_batches(decoder(protocol, known=beside(protocol, mysql_type))(iter([batch]))).to_pylist()
    return row["error_class"], row["columns"][0]["value"] if row["columns"] else None


def shown_in_csv(mysql_type: str, text: str, *, quoted: bool = True) -> tuple[str | None, str | None]:
    """The same of a csv record."""
    file = TableFile("s", "t", 1, "", 0, (TableColumn("a", mysql_type, True),), 0)
    given = csv.layout(file, Cut(), csv.RecordShape(True, False, False, False), "\n", kernel_csv.BASE64)
    value = '"' + text.replace('"', '""') + '"' if quoted else text
    batch = batch_of([(None, f'"I","t","s",5,{value}'.encode())])
    [row] = pa.Table.from_batches(list(csv.decode_csv(batch, given))).to_pylist()
    return row["error_class"], row["columns"][0]["value"] if row["columns"] else None


def cases(values: dict[str, tuple[str, ...]]) -> list[tuple[str, str, str]]:
    """Codec, type and value."""
    return list(_cases(values))


def _cases(values: dict[str, tuple[str, ...]]) -> Iterator[tuple[str, str, str]]:
    for protocol in WRITERS:
        for mysql_type, texts in values.items():
            if protocol == "open-protocol" and mysql_type == "text":  # in base64
                continue
            if protocol in ("avro", "debezium") and mysql_type in ("enum", "set"):  # labels
                continue
            if protocol == "avro" and mysql_type == "bit":  # bytes
                continue
            for text in texts:
                yield protocol, mysql_type, text


def test_each_case_that_fails_is_listed() -> None:
    """And no other: of cases that run in one test."""

    @together(("value", "double"), [(1, 2), (2, 5), (3, 6), (4, 0)])
    def doubled(value: int, double: int) -> None:
        if not double:
            with pytest.raises(ValueError, match="x"):
                int("7")
        assert 2 * value == double

    with pytest.raises(AssertionError, match=r"(?s)^2 of 4 cases:\n\{'value': 2, 'double': 5\}.*\{'value': 4, 'dou"):
        doubled()


def test_the_table_is_tried_whole() -> None:
    """Each type that does not hold anything, and each codec that knows types."""
    assert set(WRITERS) | UNTYPED == set(CODECS)
    judged = {t.name for t in TYPES if t.holds != ANYTHING}
    assert judged == set(REFUSED) and judged < set(HELD)
    assert held_by("BIGINT(20) unsigned") == BY_NAME["bigint"].holds and held_by("no type") == NO_MYSQL_TYPE


@together(("protocol", "mysql_type", "text"), cases(HELD))
def test_a_value_that_fits_comes_out(protocol: str, mysql_type: str, text: str, either: str) -> None:
    """Zero dates, the year 0, unsigned numbers, 65 digits, the largest double, numbers beyond ENUM's labels."""
    assert shown(protocol, mysql_type, text) == (None, text)


@together(("protocol", "mysql_type", "text"), cases(REFUSED))
def test_a_value_that_does_not_fit_is_in_quarantine(protocol: str, mysql_type: str, text: str, either: str) -> None:
    """In words that report it; what cannot even be written in a format is refused as that."""
    error, value = shown(protocol, mysql_type, text)
    assert error in ("bad-value", "bad-type", "out-of-range", "not-json") and value is None
    if protocol in ("canal-json", "canal"):
        assert error in ("bad-value", "out-of-range")


@together(("mysql_type", "text"), [(t, x) for t, texts in HELD.items() for x in texts])
def test_a_value_that_fits_comes_out_of_csv(mysql_type: str, text: str) -> None:
    """Quoted, and bare where the type shows what it may be: another bare text may be what represents NULL."""
    assert shown_in_csv(mysql_type, text) == (None, text)
    if "," not in text and '"' not in text and text:
        bare = (None, text) if held_by(mysql_type) != ANYTHING else ("csv-unquoted", None)
        assert shown_in_csv(mysql_type, text, quoted=False) == bare


@together(("mysql_type", "text"), [(t, x) for t, texts in REFUSED.items() for x in texts])
def test_a_value_that_does_not_fit_is_refused_in_csv(mysql_type: str, text: str) -> None:
    """A record of it; the file's others are read."""
    error, value = shown_in_csv(mysql_type, text)
    assert error in ("bad-value", "out-of-range") and value is None


def test_null_fits_every_type_of_csv() -> None:
    r"""``\N`` without quotes is no value; between quotes it is text, which an INT cannot be."""
    for mysql_type in HELD:
        assert shown_in_csv(mysql_type, r"\N", quoted=False) == (None, None)
    assert shown_in_csv("int", r"\N") == ("bad-value", None) and shown_in_csv("varchar", r"\N") == (None, r"\N")


EDGES = (
    "1.7976931348623158e308", "17976931348623158079e289", "1797693134862315807.8e290", "1.7976931348623159e308",
    str(2**1024 - 2**970), str(2**1024 - 2**970 - 1), "9e307", "0e999", "0.00017976931348623157e312",
)  # fmt: skip
ODD = ("2020-01-01T00:00:00.5+08:00", "+1", ".5", "-0", "1.")


def test_both_decoders_judge_alike(monkeypatch: pytest.MonkeyPatch) -> None:
    """Values that fit and that do not, each changed at random in one to three places."""
    r, alphabet = Random(25), "0123456789-+.:eTZ _x٣"
    texts: list[tuple[str, str]] = []
    for mysql_type in REFUSED:
        seeds = [*HELD[mysql_type], *REFUSED[mysql_type], *EDGES, *ODD]
        texts += [(mysql_type, s) for s in seeds]
        for _ in range(400):
            letters = list(r.choice(seeds))
            for _ in range(r.randrange(3)):
                at = r.randrange(len(letters) + 1)
                letters[at : at + r.randrange(2)] = r.choice(["", *alphabet])
            texts.append((mysql_type, "".join(letters)))
    batch, found = batch_of([canal_json(*t) for t in texts]), []
    for by_kernel in (False, True):
        monkeypatch.setattr(choice, "compiled", lambda part, batch, k=by_kernel: k and part != choice.HASHES)
        rows = pa.Table.from_batches(decoder("canal-json")(iter([batch]))).to_pylist()
        rows.sort(key=lambda row: row["offset"])
        found.append([(row["error_class"], row["columns"] and row["columns"][0]["value"]) for row in rows])
    differ = [(t, a, b) for t, a, b in zip(texts, *found, strict=True) if a != b]
    assert not differ and 0.1 < sum(a[0] is None for a in found[0]) / len(texts) < 0.9


@pytest.mark.parametrize("text", EDGES)
def test_the_largest_double_is_where_the_machine_has_it(text: str, either: str) -> None:
    """What rounds to infinity is no value."""
    assert (shown("canal-json", "double", text)[0] is None) == math.isfinite(float(text))


@pytest.mark.parametrize("kind", PLAINLY_HELD)
@settings(deadline=None)
@given(data=st.data())
def test_what_plainly_fits_is_held(kind: int, data: st.DataObject) -> None:
    """The expression that is asked of many values at once lets through nothing that the type cannot hold."""
    text = data.draw(st.from_regex(f"\\A(?:{PLAINLY_HELD[kind]})\\Z", alphabet=st.characters(codec="utf-8")))
    assert holds(kind, text)


_VALUES = st.one_of(
    st.integers(-(1 << 65), 1 << 65).map(str), st.decimals(allow_nan=True).map(str), st.text(max_size=8),
    st.datetimes().map(str), st.times().map(str), st.none(),
)  # fmt: skip
_TYPES = st.sampled_from(["tinyint", "smallint(6)", "int unsigned", "bigint", "bit(9)", "decimal(5,2)", "double",
                          "date", "time(3)", "datetime", "varchar(3)", None])  # fmt: skip


@settings(deadline=None)
@given(image=st.lists(st.tuples(st.just("c"), _TYPES, _VALUES, st.just(False), st.just(-1))), counted=st.booleans())
def test_values_of_many_rows_are_judged_as_those_of_one(
    image: list[tuple[str, str | None, str | None, bool, int]], counted: bool
) -> None:
    """Together they fit exactly where each alone does."""
    laid = lay_out([Event(ROW, 1, "s", "t", op=INSERT, columns=image)])
    try:
        require_values(image, counted=counted)
        alone = True
    except Malformed:
        alone = False
    assert all_fit(laid.after, counted=counted) == alone


@pytest.mark.parametrize(("value", "error"), [("7", None), ("seven", "bad-value")])
def test_a_bad_value_changes_nothing_of_other_messages(value: str, error: str | None) -> None:
    """A batch that has one is read twice: what came before its schema waits for it as without."""
    known = set()

    def learning(_: bytes | None, message: bytes | None) -> list[Event]:
        if message == b"row" and not known:
            raise Malformed("schema-unknown", "its table version has not come")
        known.add(message)
        return [Event(ROW, 1, "s", "t", op=INSERT, columns=[("c", "int", value, False, -1)])]

    batch = batch_of([(None, b"row"), (None, b"ddl"), (None, b"row")])
    decoded = decode_with(learning, batch, "simple").sort_by("offset")
    assert decoded["error_class"].to_pylist() == ["schema-unknown", error, error]


@pytest.mark.parametrize("protocol", ["canal-json", "canal", "simple", "debezium", "avro"])
@pytest.mark.parametrize("mysql_type", ["inu", "datetyme", "blox", "", "(3)"])
def test_a_row_whose_type_mysql_does_not_have_is_in_quarantine(protocol: str, mysql_type: str, either: str) -> None:
    """No matter what the value: no check could judge it. Other names and letters of MySQL's types are none of these."""
    if protocol in ("debezium", "avro") and not mysql_type:  # shows that it names none
        return
    assert shown(protocol, mysql_type, "1") == ("unknown-column-type", None)
    if protocol in ("canal-json", "canal", "simple"):
        for known in ("INT", "dec(3)", "real"):
            assert shown(protocol, known, "1") == (None, "1")


def test_a_type_that_mysql_does_not_have_in_a_schema_file_of_csv() -> None:
    """Its rows are in quarantine, NULL too."""
    assert shown_in_csv("inu", "1", quoted=False) == ("unknown-column-type", None)
    assert shown_in_csv("", r"\N", quoted=False) == ("unknown-column-type", None)


@pytest.mark.parametrize("name", ["int(", "enum(", "SET('a'", "decimal(10,2", "bigint( unsigned"])
def test_a_type_with_an_open_parenthesis_is_none(name: str) -> None:
    """MySQL writes no such type: a column of it is refused by what it is called, not read by the half."""
    assert base_of(name) == name.lower() and held_by(name) == NO_MYSQL_TYPE
    with pytest.raises(ProtocolError, match="is no MySQL type"):
        type_of(name)
    assert held_by("set('a(')") == held_by("set('a')") and base_of("bigint(20) unsigned") == "bigint"

"""Any value that MySQL can hold comes back from every format as it was."""

from __future__ import annotations

import json
import struct

import numpy as np
import pytest
from encoding import column, decoded, messages_of, row, there_and_back
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ticdc_lab.codecs.values import double_text, float_text
from ticdc_lab.encode import ENCODERS
from ticdc_lab.encode.cells import go_quoted, quoted
from ticdc_lab.errors import ProtocolError

TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
HEX = st.binary(max_size=12).map(lambda b: "0x" + b.hex())
DOUBLE = st.floats(allow_nan=False, allow_infinity=False)
SINGLE = st.floats(allow_nan=False, allow_infinity=False, width=32)


def between(low: int, high: int) -> st.SearchStrategy[str]:
    """Integers as the events contract shows them, the extremes often."""
    return (st.sampled_from([low, high, 0]) | st.integers(low, high)).map(str)


VALUES = {
    "tinyint": between(-128, 127), "tinyint unsigned": between(0, 255), "smallint": between(-(2**15), 2**15 - 1),
    "mediumint unsigned": between(0, 2**24 - 1), "int": between(-(2**31), 2**31 - 1),
    "int unsigned": between(0, 2**32 - 1), "bigint": between(-(2**63), 2**63 - 1),
    "bigint unsigned": between(0, 2**64 - 1), "bit": between(0, 2**64 - 1), "year": between(0, 2155),
    "enum": between(0, 65_535), "set": between(0, 2**64 - 1), "float": SINGLE.map(float_text),
    "double": DOUBLE.map(double_text), "decimal": st.decimals(-(10**20), 10**20, places=6).map(str),
    "date": st.dates().map(str), "time": st.sampled_from(["-838:59:59.000000", "00:00:00", "821:14:42.018"]),
    "datetime": st.sampled_from(["0000-00-00 00:00:00", "9999-12-31 23:59:59.999999"]),
    "timestamp": st.just("2009-06-15 14:17:20.801"), "char": TEXT, "varchar": TEXT, "binary": HEX, "varbinary": HEX,
    "tinytext": TEXT, "text": TEXT, "mediumtext": TEXT, "longtext": TEXT, "tinyblob": HEX, "blob": HEX,
    "mediumblob": HEX, "longblob": HEX, "json": TEXT, "vector": st.just("[1,2.5]"),
}  # fmt: skip
CELL = st.one_of(*[st.tuples(st.just(t), st.none() | v) for t, v in VALUES.items()])
CELLS = st.lists(st.tuples(TEXT, CELL, st.booleans()), min_size=1, max_size=8, unique_by=lambda c: c[0])


def image(cells):
    """Columns as the events contract has them."""
    return [column(name, kind, value, key=key) for name, (kind, value), key in cells]


def left(columns, *, unsigned=True):
    """What every format keeps of an image; mq-v1 does not show which numbers are unsigned."""
    return [
        (c["name"], c["mysql_type"] if unsigned else c["mysql_type"].split(" ")[0], c["value"], c["is_key"])
        for c in columns
    ]


@pytest.mark.parametrize("protocol", [*ENCODERS])
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(images=st.lists(CELLS, min_size=1, max_size=4), schema=TEXT, table=TEXT)
def test_names_types_and_values_survive(protocol, images, schema, table):
    """Unicode, control characters, binary, NULL and the extremes of every type, in names as in values."""
    events = []
    for i, cells in enumerate(images):
        names = {"schema_name": schema, "table_name": table, "ts": 470_603_993_587_122_176 + i}
        before = [c | {"value": None} for c in image(cells)]
        events += [row("insert", image(cells), **names), row("update", image(cells), before, **names)]
        events.append(row("delete", None, image(cells), **names))
    found = there_and_back(events, protocol)
    unsigned = protocol != "mq-v1"
    for sent, got in zip(events, found, strict=True):
        assert (got["schema_name"], got["table_name"], got["commit_ts"]) == (schema, table, sent["commit_ts"])
        assert got["op"] == (sent["op"] if unsigned or sent["op"] == "delete" else "update")
        for name in ("columns", "before"):
            if sent[name] is not None and (unsigned or name == "columns" or sent["op"] == "delete"):
                assert left(got[name]) == left(sent[name], unsigned=unsigned)
            else:
                assert got[name] is None


@given(TEXT)
def test_strings_are_json_whatever_they_hold(text):
    """Quotes, backslashes, control characters and characters beyond the BMP are escaped as JSON asks."""
    import pyarrow as pa

    found = quoted(pa.array([text, None, 'a"b', "plain"], pa.string())).to_pylist()
    assert [None if f is None else json.loads(f) for f in found] == [text, None, 'a"b', "plain"]


@pytest.mark.parametrize(
    ("raw", "shown"),
    [
        (b"\x1a\xa5\xaf\xbe\xc3\xb0", "\\x1a\\xa5\\xaf\\xbeð"),
        (b'a"\\\n\t\x00\x7f', 'a\\"\\\\\\n\\t\\x00\\x7f'),
        ("\u200b\U000e0001é😂".encode(), "\\u200b\\U000e0001é😂"),
        (b"\xed\xa0\x80", "\\xed\\xa0\\x80"),
    ],
)
def test_binary_is_quoted_as_go_quotes_it(raw, shown):
    """Bytes that are printable UTF-8 stay, all others are escaped by their value."""
    assert go_quoted(raw) == shown


@pytest.mark.parametrize(
    ("kind", "value", "java"),
    [
        ("tinyint unsigned", "127", -6), ("tinyint unsigned", "128", 5), ("smallint unsigned", "32768", 4),
        ("mediumint unsigned", "16777215", 4), ("int unsigned", "2147483647", 4), ("int unsigned", "2147483648", -5),
        ("bigint unsigned", "9223372036854775808", 3), ("bigint unsigned", None, -5), ("tinyint", "-1", -6),
        ("char", "x", 1), ("binary", "0x00", 2004), ("longtext", "x", 2005), ("year", "1999", 12), ("bit", "255", -7),
    ],
)  # fmt: skip
def test_sql_types_grow_with_unsigned_values(kind, value, java):
    """canal-json states the java type that holds the value: of an unsigned one beyond the signed range, the next."""
    [message] = messages_of([row("insert", [column("c", kind, value)])], "canal-json")
    assert json.loads(message["value"])["sqlType"] == {"c": java}


@pytest.mark.parametrize(("shown", "written"), [("silver", 2), ("", 0), ("3", 3)])
def test_a_label_becomes_the_number_that_ticdc_writes(shown, written):
    """Where the type lists the labels of an ENUM; digits are a number already."""
    event = row("insert", [column("c", "enum('bronze','silver','it''s')", shown)])
    assert there_and_back([event], "open-protocol")[0]["columns"][0]["value"] == str(written)
    assert there_and_back([event], "canal-json")[0]["columns"][0]["value"] == str(written)


def test_a_set_is_the_sum_of_its_labels_bits():
    """``a,c`` of SET('a','b','c') is 5."""
    event = row("insert", [column("c", "set('a','b','c')", "a,c")])
    assert there_and_back([event], "open-protocol")[0]["columns"][0]["value"] == "5"


@pytest.mark.parametrize(
    ("event", "expected"),
    [
        (row("insert", [column("c", "enum", "silver")]), "'silver'; expected a number"),
        (row("insert", [column("c", "int", "1.5")]), "'1.5'; expected a number"),
        (row("insert", [column("c", "blob", "text")]), "expected 0x and hexadecimal digits"),
        (row("insert", [column("c", "nonsense", "1")]), "s.t at commit_ts 470603993587122176, column c: 'nonsense'"),
        (row("insert"), "the row has no image to write"),
        (row("insert", [column("c", "int", "1")], ts=None), "no commit_ts"),
        ({"kind": "ddl", "query": "DROP TABLE t"}, "A ddl event has no commit_ts"),
        ({"kind": "bootstrap"}, "no message for an event of kind 'bootstrap'"),
    ],
)
def test_what_cannot_be_written_is_refused_with_the_place(event, expected):
    """Nothing is written that no decoder would read, and nothing is left out in silence."""
    with pytest.raises(ProtocolError, match=expected.replace(".", r"\.")):
        messages_of([event], "open-protocol")


@pytest.mark.parametrize("protocol", ["open-protocol", "canal-json"])
def test_an_upsert_is_written_as_an_insert(protocol):
    """mq-v1 does not show what was there before; these two distinguish an update from an insert by that alone."""
    event = row("update", [column("c", "int", "1", key=True)])
    assert there_and_back([event], "mq-v1")[0]["op"] == "update"
    assert [e["op"] for e in there_and_back([event], protocol)] == ["insert"]


def test_canal_json_needs_the_type_of_every_column():
    """A column that only the image before has would be without a type."""
    event = row("update", [column("a", "int", "1")], [column("b", "int", "1")])
    with pytest.raises(ProtocolError, match=r"s\.t at commit_ts 470603993587122176: column b is in the image before"):
        messages_of([event], "canal-json")


def test_frames_are_lengths_in_eight_bytes():
    """An open-protocol message is the version, then each key behind its length; the value likewise."""
    events = [row("insert", [column("c", "int", str(i))]) for i in range(3)]
    [message] = messages_of(events, "open-protocol")
    assert message["key"][:8] == struct.pack(">Q", 1)
    (length,) = struct.unpack(">Q", message["key"][8:16])
    assert json.loads(message["key"][16 : 16 + length])["tbl"] == "t"
    assert [e["seq"] for e in decoded([message], "open-protocol")] == [0, 1, 2]


def test_the_strategies_cover_every_type():
    """A type that is added to the table is tried here too."""
    from ticdc_lab.events.mysql_types import TYPES

    assert {t.name for t in TYPES} - {k.split()[0] for k in VALUES} == {"null", "geometry"}
    assert np.unique([t.mq_v1 for t in TYPES]).size == len(TYPES)

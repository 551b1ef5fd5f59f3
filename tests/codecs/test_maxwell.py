"""Maxwell: vectors by hand, a whole topic by our reading of TiCDC's encoder, and bytes that are none."""

from __future__ import annotations

import json
from functools import cache
from typing import Any

import maxwell_writer
import pytest
import reference_decoder as oracle
from conftest import golden
from hypothesis import given, settings
from hypothesis import strategies as st
from making import Message
from pieces import by_codec, cells, decodes

from ticdc_lab.codecs import maxwell
from ticdc_lab.codecs.known import NOTHING

KEY = maxwell_writer.KEY
TS = 417_318_403_368_288_260  # the commit_ts of tiflow's own codec tests; 1591943372 s


def row(kind: str = "insert", **fields: Any) -> bytes:
    """A row as `maxwellMessage` is written; fields that are None are left out."""
    whole = {"database": "a", "table": "b", "type": kind, "ts": 1_591_943_372, "data": {"col1": 10}} | fields
    return json.dumps({k: v for k, v in whole.items() if v is not None}, separators=(",", ":")).encode()


def ddl(kind: str, **fields: Any) -> bytes:
    """A statement as `ddlMaxwellMessage` is written."""
    table = {"database": "a", "table": "b", "columns": [{"type": "int", "name": "id"}], "primary-key": None}
    none = {"database": "", "table": "", "columns": None, "primary-key": None}
    whole = {"type": kind, "database": "a", "table": "b", "old": none, "def": table, "ts": TS, "sql": "create table a"}
    return json.dumps({k: v for k, v in (whole | fields).items() if v is not None}, separators=(",", ":")).encode()


def only(value: bytes | None, key: bytes | None = KEY) -> Any:
    """The events of one message, or its error class."""
    return by_codec([(key, value)], "maxwell")[0]


def image_of(data: str) -> dict[str, str | None]:
    """The image of an insert whose data is this JSON text."""
    [event] = only(row().replace(b'{"col1":10}', data.encode()))
    found: dict[str, str | None] = cells(event["columns"])
    return found


def test_an_insert_has_no_commit_ts_no_types_and_no_keys() -> None:
    """The row of tiflow's `maxwell_encoder_test.go`: its key is the version alone, `ts` is seconds of a TSO's time."""
    [event] = only(row())
    assert (event["kind"], event["op"], event["schema_name"], event["table_name"]) == ("row", "insert", "a", "b")
    assert event["commit_ts"] is None and event["before"] is None
    assert event["columns"] == [{"name": "col1", "mysql_type": None, "value": "10", "is_key": False, "flags": None}]
    assert TS >> 18 == 1_591_943_372_224


def test_rows_stand_in_a_value_without_anything_between_them() -> None:
    """`AppendRowChangedEvent` writes one object after the other into one buffer: no length, no line end."""
    events = only(row() + row("delete", data=None, old={"col1": 1}) + row(table="c"))
    assert [(e["op"], e["table_name"], e["seq"]) for e in events] == [
        ("insert", "b", 0), ("delete", "b", 1), ("insert", "c", 2),
    ]  # fmt: skip


@pytest.mark.parametrize("text", ['}{"database":', '"}{"database":"x', "}{", '\\"}{"database":'])
def test_text_in_a_value_ends_no_object(text: str) -> None:
    """What stands between two objects may be in a string, where its quotes are escaped."""
    message = row(data={"v": text, text: "v"})
    assert [cells(e["columns"]) for e in only(message + message)] == [{"v": text, text: "v"}] * 2


def test_a_delete_has_its_row_in_old() -> None:
    """`rowChangeToMaxwellMsg` fills `old` for a delete and leaves `data` empty; older versions wrote `"data":{}`."""
    for data in (None, {}):
        [event] = only(row("delete", data=data, old={"id": 1, "v": None}))
        assert (event["op"], event["columns"]) == ("delete", None)
        assert cells(event["before"]) == {"id": "1", "v": None}


def test_maxwells_own_delete_has_its_row_in_data() -> None:
    """So zendesk/maxwell documents it (`docs/docs/dataformat.md`), and `RowMap.toJSON` writes no `old` then."""
    [event] = only(row("delete", xid=23396, commit=True, position="master.000006:800911", data={"id": 1, "v": None}))
    assert (event["op"], event["columns"]) == ("delete", None)
    assert cells(event["before"]) == {"id": "1", "v": None}


def test_maxwells_own_ddl_has_milliseconds_and_no_commit_ts() -> None:
    """Its `ts` there is a time; TiCDC writes the commit_ts itself."""
    [event] = only(ddl("table-create", ts=1_477_053_126_000))
    assert (event["kind"], event["commit_ts"], event["query"]) == ("ddl", None, "create table a")


def test_an_update_has_what_changed_in_old_or_nothing() -> None:
    """`old` has the columns whose value changed, NULL too, and is left out where it would be empty."""
    changed, same = (only(row("update", data={"id": 1, "v": "x"}, old=old))[0] for old in ({"v": None}, None))
    assert cells(changed["columns"]) == {"id": "1", "v": "x"}
    assert (cells(changed["before"]), cells(same["before"])) == ({"v": None}, {})


def test_values_come_as_text() -> None:
    """Numbers keep their digits as far as a double has them; base64 cannot be distinguished from text and stays."""
    data = ('{"u":18446744073709551615,"i":-9223372036854775808,"f":1.10,"small":1e-7,"big":1e+21,'
            '"zero":0.0,"dec":"10.1000","enum":2,"bin":"/wA=","json":"{\\"a\\": 1}","none":null,'
            '"html":"\\u003cb\\u003e"}')  # fmt: skip
    assert image_of(data) == {
        "u": "18446744073709551615", "i": "-9223372036854775808", "f": "1.1", "small": "0.0000001", "big": "1e21",
        "zero": "0", "dec": "10.1000", "enum": "2", "bin": "/wA=", "json": '{"a": 1}', "none": None, "html": "<b>",
    }  # fmt: skip


@pytest.mark.parametrize("kind", ["table-create", "table-alter", "table-drop", "database-create", "truncate table"])
def test_a_ddl_has_its_commit_ts_its_text_and_its_type(kind: str) -> None:
    """`ddlEventToMaxwellMsg`: `ts` is the commit_ts itself, the text is in `sql`; the type may be TiDB's own name."""
    key = json.dumps({"ts": TS, "scm": "a", "tbl": "b", "t": 2}).encode()
    [event] = only(ddl(kind), key)
    assert (event["kind"], event["commit_ts"], event["query"]) == ("ddl", TS, "create table a")
    assert (event["schema_name"], event["table_name"], event["ddl_type"]) == ("a", "b", kind)
    assert event["columns"] is None and event["op"] is None


BAD = {
    "null": (None, "null-value"),
    "empty": (b"", "not-json"),
    "no object": (b"[]", "bad-type"),
    "cut": (row()[:-1], "not-json"),
    "the second cut": (row() + row()[:-1], "not-json"),
    "a line end between": (row() + b"\n" + row(), "not-json"),
    "no database": (row(database=None), "missing-field"),
    "no table": (row(table=None), "missing-field"),
    "no type": (row(type=None), "missing-field"),
    "no ts": (row(ts=None), "missing-field"),
    "a table that is a number": (row(table=1), "bad-type"),
    "a ts that is a text": (row(ts="1"), "bad-type"),
    "an unknown type": (row("bootstrap-insert"), "unknown-type"),
    "canal-json's type": (row("INSERT", sql="", isDdl=False), "unknown-type"),
    "an insert without data": (row(data=None), "missing-field"),
    "a delete without an image": (row("delete", data=None), "missing-field"),
    "a delete without old, and data of no column": (row("delete", data={}), "missing-field"),
    "data that is a list": (row(data=[1]), "bad-type"),
    "old that is a text": (row("update", old="x"), "bad-type"),
    "a value that is an object": (row(data={"v": {}}), "bad-type"),
    "a value that is true": (row(data={"v": True}), "bad-type"),
    "a DDL without sql": (ddl("table-create", sql=None), "missing-field"),
    "a DDL whose table is a text": (ddl("table-create", **{"def": "x"}), "bad-type"),
    "a DDL beyond 64 bits": (ddl("table-create", ts=1 << 63), "out-of-range"),
}


@pytest.mark.parametrize("name", BAD)
def test_what_is_no_message_of_ticdc_goes_to_the_quarantine_with_its_class(name: str) -> None:
    """A message that cannot be decoded whole is not decoded at all."""
    value, error_class = BAD[name]
    assert only(value) == error_class


@cache
def source() -> tuple[dict[str, Any], ...]:
    """The golden topic in canal-json."""
    return tuple(json.loads(m["value"]) for m in oracle.messages(golden("messages_canal-json_small.jsonl.gz")))


@cache
def written() -> tuple[Message, ...]:
    """The same topic in maxwell."""
    return tuple(maxwell_writer.messages(source()))


def test_a_whole_topic_says_what_it_says_in_canal_json() -> None:
    """Operations, tables, statements and every value are the ones of canal-json, where maxwell can determine them."""
    found = [e for events in by_codec(written(), "maxwell") for e in events]
    wanted = [e for event in source() for e in oracle.decode_canal(json.dumps(event).encode())]
    assert len(found) == len(wanted) == 2_117 > 3 * len(written())
    for ours, theirs in zip(found, wanted, strict=True):
        assert all(ours[f] == theirs.get(f) for f in ("kind", "op", "schema_name", "table_name", "query"))
        new, old = shown(theirs.get("columns")), shown(theirs.get("before"))
        changed = old and new and {n: v for n, v in old.items() if new[n] != v}
        assert (cells(ours["columns"]), cells(ours["before"])) == (new, old if new is None else changed)


def shown(image: Any) -> dict[str, str | None] | None:
    """An image of canal-json with the forms in which maxwell leaves bytes and large whole doubles."""
    return image and {c["name"]: _shown(c["value"], c["mysql_type"].split("(")[0]) for c in image}


def _shown(value: str | None, mysql_type: str) -> str | None:
    if value is None or not (mysql_type in maxwell_writer.BINARY or mysql_type in ("float", "double")):
        return value
    if mysql_type in maxwell_writer.BINARY:
        return str(maxwell_writer.written(bytes.fromhex(value[2:]).decode("latin-1"), mysql_type))
    digits = maxwell_writer.float_digits(value)
    return digits if digits.lstrip("-").isdigit() and abs(int(digits)) < 1 << 64 and int(digits) else value


@given(st.binary(max_size=120))
@settings(max_examples=300, deadline=None)
def test_random_bytes_raise_nothing_but_malformed(noise: bytes) -> None:
    """Alone, after a row, or in the place of its data: bytes are decoded or refused."""
    for value in (noise, row() + noise, row().replace(b"10", noise), ddl("table-alter").replace(b'"b"', noise)):
        decodes(maxwell.codec(NOTHING), value)


json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-(1 << 70), 1 << 70) | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)
fields = st.sampled_from(["database", "table", "type", "ts", "data", "old", "def", "sql"])


@given(st.lists(st.dictionaries(fields, json_values, max_size=4), max_size=12), st.integers(0, 400))
@settings(max_examples=60, deadline=None)
def test_odd_messages_are_decoded_or_kept_and_none_is_lost(changes: list[dict[str, Any]], cut: int) -> None:
    """Fields are changed to anything and messages are cut: `by_codec` finds each message once."""
    odd = [whole(**some) for some in changes for whole in (row, _update, _ddl)]
    messages: list[Message] = [(KEY, value) for value in (*odd, *(o[:cut] for o in odd))]
    assert len(by_codec([*messages, *written()[:3]], "maxwell")) == len(messages) + 3


def _update(**fields: Any) -> bytes:
    return row(**{"type": "update", "old": {"col1": 9}} | fields)


def _ddl(**fields: Any) -> bytes:
    return ddl(**{"kind": "table-alter"} | fields)

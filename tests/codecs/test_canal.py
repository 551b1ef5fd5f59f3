"""Canal's protobuf: what canal's own library wrote, vectors by hand, and bytes that are none."""

from __future__ import annotations

import base64
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest
import reference_decoder as oracle
from conftest import golden
from hypothesis import given, settings
from hypothesis import strategies as st
from making import Message
from pieces import Event, by_codec, cells, decodes

from ticdc_lab.codecs import canal
from ticdc_lab.codecs.canal import Entry, Messages, Packet, RowChange
from ticdc_lab.codecs.known import NOTHING

OFFICIAL = Path(__file__).resolve().parents[1] / "data/canal/messages_canal_small.jsonl.gz"
INT = {"name": "id", "mysqlType": "int", "sqlType": 4}


def packet(*entries: Any, **fields: Any) -> bytes:
    """A message of these entries."""
    body = Messages(messages=[e if isinstance(e, bytes) else e.SerializeToString() for e in entries])
    whole = Packet(**{"version": 1, "type": 7, "body": body.SerializeToString()} | fields)
    return bytes(whole.SerializeToString())


def entry(change: dict[str, Any], header: dict[str, Any] | None = None, **fields: Any) -> Any:
    """An entry of a row change, or of a DDL."""
    head = {"version": 1, "executeTime": 1_591_943_372_224, "schemaName": "s", "tableName": "t"}
    head = head if header is None else head | header
    store = RowChange(**change).SerializeToString()
    return Entry(**{"header": head, "entryType": 2, "storeValue": store} | fields)


def insert(*columns: dict[str, Any]) -> dict[str, Any]:
    """A row change that inserts one row."""
    return {"eventType": 1, "rowDatas": [{"afterColumns": columns or [INT | {"value": "1"}]}]}


def only(value: bytes | None) -> Any:
    """The events of one message, or its error class."""
    return by_codec([(None, value)], "canal")[0]


def values_of(*columns: dict[str, Any]) -> list[str | None]:
    """The values of the columns of an insert."""
    return [c["value"] for c in only(packet(entry(insert(*columns))))[0]["columns"]]


def column(mysql_type: str, value: str, **fields: Any) -> dict[str, Any]:
    """A column of that type."""
    return {"name": mysql_type, "mysqlType": mysql_type, "value": value} | fields


def official() -> list[tuple[int, Message]]:
    """The messages that canal's own library wrote, each with its partition."""
    return [(m["partition"], (m["key"], m["value"])) for m in oracle.messages(OFFICIAL)]


def by_partition(events: list[tuple[int, Event]]) -> dict[int, list[Event]]:
    """Events in the order of their partition, without the protocol's name and their place in a message."""
    found = defaultdict(list)
    for partition, event in events:
        found[partition].append({f: v for f, v in event.items() if f not in ("protocol", "seq")})
    return found


def test_what_canals_own_library_wrote_is_what_canal_json_says() -> None:
    """Each event of the topic in canal's protobuf equals, field by field, the one of the same topic in canal-json."""
    written = official()
    decoded = by_codec([m for _, m in written], "canal")
    found = by_partition([(p, e) for (p, _), es in zip(written, decoded, strict=True) for e in es])
    wanted = by_partition(
        [(m["partition"], {f: e.get(f) for f in found[0][0]})
         for m in oracle.messages(golden("messages_canal-json_small.jsonl.gz"))
         for e in oracle.decode_canal(m["value"])]
    )  # fmt: skip
    assert found == wanted
    assert sum(map(len, found.values())) == 2_117 > len(written)


def test_an_insert_of_the_encoders_own_test() -> None:
    """Names, types, key and values are the ones of tiflow's `canal_entry_test.go` (TestInsert)."""
    blob = "测试blob".encode().decode("latin-1")
    columns = (INT | {"isKey": True, "value": "1"}, column("varchar", "Bob"), column("tinyint unsigned", "255"),
               column("text", "测试"), column("blob", blob))  # fmt: skip
    header = {"schemaName": "test", "props": [{"key": "rowsCount", "value": "1"}]}
    [event] = only(packet(entry(insert(*columns), header)))
    assert (event["schema_name"], event["table_name"], event["op"], event["before"]) == ("test", "t", "insert", None)
    assert [c["value"] for c in event["columns"]] == ["1", "Bob", "255", "测试", "0x" + "测试blob".encode().hex()]
    assert [c["is_key"] for c in event["columns"]] == [True] + [False] * 4
    assert [c["mysql_type"] for c in event["columns"]] == ["int", "varchar", "tinyint unsigned", "text", "blob"]


def test_the_millisecond_of_an_entry_does_not_become_a_commit_ts() -> None:
    """1591943372224 ms is what is left of commit_ts 417318403368288260 (tiflow's TestInsert): it stays unknown."""
    assert only(packet(entry(insert())))[0]["commit_ts"] is None


def test_a_delete_has_its_row_before_and_an_update_both() -> None:
    """A delete fills beforeColumns alone, an update both (tiflow's buildRowData)."""
    old, new = ([INT | {"value": v}] for v in "12")
    delete, update = by_codec(
        [(None, packet(entry({"eventType": 3, "rowDatas": [{"beforeColumns": old}]}))),
         (None, packet(entry({"eventType": 2, "rowDatas": [{"beforeColumns": old, "afterColumns": new}]})))], "canal"
    )  # fmt: skip
    assert [(e["op"], cells(e["columns"]), cells(e["before"])) for e in (delete[0], update[0])] == [
        ("delete", None, {"id": "1"}),
        ("update", {"id": "2"}, {"id": "1"}),
    ]


def test_null_is_told_from_the_empty_text() -> None:
    """Both have an empty value; isNull shows (tiflow's buildColumn)."""
    assert values_of(column("int", "", isNull=True), column("varchar", "", isNull=False)) == [None, ""]


@pytest.mark.parametrize(
    ("mysql_type", "written", "shown"),
    [
        ("varbinary", "\x00ÿA", "0x00ff41"),
        ("binary(3)", "abc", "0x616263"),
        ("longblob", "", "0x"),
        ("double", "100000000000000000000", "1e20"),
        ("float unsigned", "0.50", "0.5"),
        ("double", "-0", "-0"),
        ("decimal", "10.1000", "10.1000"),
        ("enum", "2", "2"),
        ("bit", "393", "393"),
        ("json", '{"a": 1}', '{"a": 1}'),
        ("varchar", "0x41", "0x41"),
    ],
)
def test_values_come_in_the_forms_of_the_contract(mysql_type: str, written: str, shown: str) -> None:
    """Bytes are ISO-8859-1 text and doubles are written without exponent; all else is what MySQL prints."""
    assert values_of(column(mysql_type, written)) == [shown]


def test_rows_of_several_entries_are_numbered_through_the_message() -> None:
    """TiCDC writes a batch as one packet, canal's server several rows in an entry; both keep their order."""
    two = {"eventType": 1, "rowDatas": [{"afterColumns": [INT | {"value": v}]} for v in "12"]}
    events = only(packet(entry(two), entry(insert(INT | {"value": "3"}), {"tableName": "u"})))
    assert [(e["table_name"], cells(e["columns"])["id"], e["seq"]) for e in events] == [
        ("t", "1", 0), ("t", "2", 1), ("u", "3", 2),
    ]  # fmt: skip


def test_a_ddl_has_its_text_its_type_and_no_time() -> None:
    """As in tiflow's TestDDL: isDdl, CREATE, sql, ddlSchemaName; a statement on a database has no table."""
    sql = "create table person(id int, name varchar(32), tiny tinyint unsigned, comment text, primary key(id))"
    change = {"eventType": 4, "isDdl": True, "sql": sql, "ddlSchemaName": "cdc"}
    [event] = only(packet(entry(change, {"schemaName": "cdc", "tableName": "person"})))
    assert (event["kind"], event["query"], event["ddl_type"]) == ("ddl", sql, "CREATE")
    assert (event["schema_name"], event["table_name"], event["commit_ts"], event["op"]) == ("cdc", "person", None, None)
    [on_database] = only(packet(entry(change | {"eventType": 7}, {"schemaName": "", "tableName": ""})))
    assert (on_database["schema_name"], on_database["table_name"], on_database["ddl_type"]) == ("cdc", "", "QUERY")


GOOD = packet(entry(insert()))
BAD = {
    "null": (None, "empty-message"),
    "empty": (b"", "empty-message"),
    "text": (b'{"database":"s"}', "not-protobuf"),
    "cut": (GOOD[:-1], "not-protobuf"),
    "an acknowledgement": (packet(entry(insert()), type=3), "unknown-type"),
    "an unknown packet": (packet(entry(insert()), type=99), "unknown-type"),
    "gzip": (packet(entry(insert()), compression=3), "compressed"),
    "an unknown compression": (packet(entry(insert()), compression=9), "compressed"),
    "no entry": (packet(), "missing-field"),
    "an entry that is none": (packet(b"\xff"), "not-protobuf"),
    "a transaction's begin": (packet(entry(insert(), entryType=1)), "unknown-type"),
    "an entry without type": (packet(entry(insert(), entryType=0)), "unknown-type"),
    "a change that is none": (packet(entry(insert(), storeValue=b"\xff")), "not-protobuf"),
    "XA": (packet(entry({"eventType": 13})), "unknown-type"),
    "an unknown event": (packet(entry({"eventType": 77})), "unknown-type"),
    "a query that is no DDL": (packet(entry({"eventType": 7, "sql": "select 1"})), "unknown-type"),
    "a DDL that inserts": (packet(entry({"eventType": 1, "isDdl": True, "sql": "x"})), "unknown-type"),
    "a DDL without text": (packet(entry({"eventType": 4, "isDdl": True})), "missing-field"),
    "no rows": (packet(entry({"eventType": 1})), "missing-field"),
    "no table": (packet(entry(insert(), {"tableName": ""})), "missing-field"),
    "no image after": (packet(entry(insert() | {"eventType": 3})), "missing-field"),
    "no image before": (packet(entry(insert() | {"eventType": 2})), "missing-field"),
    "a column twice": (packet(entry(insert(INT, INT))), "duplicate-key"),
    "bytes that are none": (packet(entry(insert(column("blob", "€")))), "bad-type"),
    "one bad entry of two": (packet(entry(insert()), entry({"eventType": 12})), "unknown-type"),
}


@pytest.mark.parametrize("name", BAD)
def test_what_is_no_message_of_ticdc_goes_to_the_quarantine_with_its_class(name: str) -> None:
    """A message that cannot be decoded whole is not decoded at all."""
    value, error_class = BAD[name]
    assert only(value) == error_class


def test_text_that_is_not_utf_8_is_a_fault() -> None:
    """Protobuf's strings are UTF-8; other bytes are not guessed."""
    good = packet(entry(insert(column("varchar", "AAAA"))))
    assert only(good.replace(b"AAAA", b"A\xff\xfeA")) == "not-protobuf"


@given(st.binary(max_size=200))
@settings(max_examples=300, deadline=None)
def test_random_bytes_raise_nothing_but_malformed(value: bytes) -> None:
    """In a packet, in an entry, in a change or alone: bytes are decoded or refused."""
    wrapped = (value, packet(value), packet(Entry(entryType=2, storeValue=value)), packet(entry(insert()), value))
    for message in wrapped:
        decodes(canal.codec(NOTHING), message)


@given(st.lists(st.tuples(st.integers(0, 288), st.integers(0, 2**16), st.integers(0, 255)), max_size=20))
@settings(max_examples=40, deadline=None)
def test_broken_messages_are_decoded_or_kept_and_none_is_lost(changes: list[tuple[int, int, int]]) -> None:
    """One byte of a right message is changed or all after it is cut: `by_codec` finds each message once."""
    messages = [m for _, m in OFFICIAL_MESSAGES[::29]]
    for which, at, byte in changes:
        value = OFFICIAL_MESSAGES[which][1][1]
        assert value is not None
        at %= len(value)
        messages.append((None, value[:at] + bytes([byte]) + (value[at + 1 :] if byte % 2 else b"")))
    assert len(by_codec(messages, "canal")) == len(messages)


OFFICIAL_MESSAGES = official()


def test_the_official_bytes_are_a_packet_of_version_1() -> None:
    """The first bytes of a message are the version and the type MESSAGES, in base64 `EAEYBy`."""
    assert all(base64.b64encode(m[1] or b"").startswith(b"EAEYBy") for _, m in OFFICIAL_MESSAGES)

"""mq-v1: the design's own examples, and what is no message of it."""

from __future__ import annotations

import json

import pytest

from ticdc_lab.codecs.detection import detect
from ticdc_lab.codecs.event import Column, Malformed
from ticdc_lab.codecs.kernel import numbering as S
from ticdc_lab.codecs.mq_v1 import decode

ROW = b'{"ts":1,"type":"Row","schema":"schema1","table":"table1"}'


def value(cell, image="update"):
    """A row's value with one column c."""
    return json.dumps({image: {"c": cell}}).encode()


def test_the_designs_update_is_an_upsert():
    """Columns with their types, the unique one as the key; nothing shows what was there before."""
    body = (
        b'{"update":{"columnName1":{"type":"Long","value":7766,"unique":true},'
        b'"columnName2":{"type":"Text","value":"aabb"}}}'
    )
    [event] = decode(ROW, body)
    assert (event.kind, event.commit_ts, event.schema_name, event.table_name) == (S.ROW, 1, "schema1", "table1")
    assert (event.op, event.before) == (S.UPDATE, None)
    assert event.columns == [Column("columnName1", "int", "7766", True), Column("columnName2", "text", "aabb")]


def test_the_designs_delete_has_the_key():
    """The image of a delete is the one before."""
    [event] = decode(ROW, b'{"delete":{"columnName1":{"type":"Long","value":7766,"unique":true}}}')
    assert (event.op, event.columns, event.before) == (S.DELETE, None, [Column("columnName1", "int", "7766", True)])


def test_the_designs_ddl_resolved_and_admin():
    """The three other messages of TiCDC's design."""
    key = b'{"ts":1,"type":"DDL","schema":"schema1","table":"table1"}'
    [ddl] = decode(key, b'{"query":"drop table a;"}')
    assert (ddl.kind, ddl.commit_ts, ddl.query) == (S.DDL, 1, "drop table a;")
    for nothing in (None, b""):
        [mark] = decode(b'{"ts":1,"type":"Resolved"}', nothing)
        assert (mark.kind, mark.commit_ts) == (S.WATERMARK, 1)
    [admin] = decode(b'{"type":"Admin"}', b'{"partition":5}')
    assert (admin.kind, admin.partition_count, admin.commit_ts) == (S.ADMIN, 5, None)


@pytest.mark.parametrize(
    ("key", "body", "error_class"),
    [
        (None, b"{}", "missing-key"),
        (b"{", b"{}", "not-json"),
        (b'{"ts":1}', b"{}", "missing-field"),
        (b'{"ts":1,"type":"Rows"}', b"{}", "unknown-type"),
        (b'{"type":"Row","schema":"s","table":"t"}', b"{}", "missing-field"),
        (b'{"ts":-1,"type":"Resolved"}', None, "out-of-range"),
        (b'{"ts":"1","type":"Resolved"}', None, "bad-type"),
        (b'{"ts":1,"type":"Resolved"}', b"{}", "trailing-bytes"),
        (b'{"type":"Admin"}', b'{"partition":0}', "out-of-range"),
        (b'{"ts":1,"type":"DDL","schema":"s","table":"t"}', b"{}", "missing-field"),
        (ROW, None, "null-value"),
        (ROW, b"{}", "missing-field"),
        (ROW, b'{"update":{},"delete":{}}', "missing-field"),
        (ROW, b'{"update":[]}', "bad-type"),
        (ROW, value(1), "bad-type"),
        (ROW, value({"value": 1}), "missing-field"),
        (ROW, value({"type": "Long"}), "missing-field"),
        (ROW, value({"type": "Longest", "value": 1}), "unknown-type"),
        (ROW, value({"type": "Long", "value": "1"}), "bad-type"),
        (ROW, value({"type": "Long", "value": True}), "bad-type"),
        (ROW, value({"type": "Long", "value": 1.5}), "bad-type"),
        (ROW, value({"type": "Longlong", "value": 2**64}), "bad-type"),
        (ROW, value({"type": "Text", "value": 1}), "bad-type"),
        (ROW, value({"type": "Blob", "value": "no base64"}), "bad-type"),
        (ROW, value({"type": "Double", "value": "1"}), "bad-type"),
        (ROW, value({"type": "Long", "value": 1, "unique": 1}), "bad-type"),
    ],
)
def test_what_is_no_message_of_it_is_malformed(key, body, error_class):
    """Each fault has its stable name, by which the quarantine counts it."""
    with pytest.raises(Malformed) as found:
        decode(key, body)
    assert found.value.error_class == error_class and found.value.reason


@pytest.mark.parametrize(
    ("kind", "sent", "shown"),
    [
        ("Longlong", 2**64 - 1, "18446744073709551615"), ("Longlong", -(2**63), str(-(2**63))), ("Long", None, None),
        ("Double", 5e-324, "5e-324"), ("Double", 1, "1"), ("Enum", 2, "2"), ("Enum", "silver", "silver"),
        ("Blob", "AP8=", "0x00ff"), ("NewDecimal", "10.1000", "10.1000"), ("Null", None, None),
    ],
)  # fmt: skip
def test_values_become_the_text_that_mysql_prints(kind, sent, shown):
    """Numbers as digits, binary as 0x and hex, NULL as none."""
    [event] = decode(ROW, value({"type": kind, "value": sent}))
    assert event.columns[0][2] == shown


def test_mq_v1_is_told_from_the_bytes():
    """A sample of its messages is taken for no other protocol, and has commit_ts."""
    import pyarrow as pa

    marks = [(b'{"ts":%d,"type":"Resolved"}' % i, None) for i in range(1, 4)]
    rows = [(ROW, value({"type": "Long", "value": 1})), *marks]
    sample = pa.Table.from_pylist(
        [{"topic": "t", "partition": 0, "offset": i, "key": k, "value": v} for i, (k, v) in enumerate(rows)],
        pa.schema(
            {"topic": pa.string(), "partition": pa.int32(), "offset": pa.int64(), "key": pa.binary(),
             "value": pa.binary()}
        ),
    )  # fmt: skip
    told = detect(sample)
    assert (told.protocol, told.has_commit_ts) == ("mq-v1", True)

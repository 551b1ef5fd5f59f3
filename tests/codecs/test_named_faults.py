"""The reason of a message in quarantine names its table, its frame and the field, compiled or not."""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa
import pytest

from ticdc_lab.codecs.decode import decode_batch, decode_with
from ticdc_lab.codecs.kernel.arrow import arrow_schema
from ticdc_lab.codecs.kernel.batch import KERNELS
from ticdc_lab.codecs.known import Known
from ticdc_lab.codecs.registry import codec_of
from ticdc_lab.events.schema import MESSAGES

CANAL: dict[str, Any] = {
    "database": "shop", "table": "orders", "isDdl": False, "type": "UPDATE", "mysqlType": {"id": "int"},
    "data": [{"id": "1"}], "old": [{"id": "1"}], "_tidb": {"commitTs": 5},
}  # fmt: skip
ROW_KEY = {"ts": 5, "scm": "shop", "tbl": "orders", "t": 1}
COLUMN = {"t": 3, "f": 11, "v": 7}


def frames(*parts: Any) -> bytes:
    """Each with its length before it."""
    texts = [json.dumps(part).encode() for part in parts]
    return b"".join(len(text).to_bytes(8, "big") + text for text in texts)


def reasons(protocol: str, key: bytes | None, value: bytes) -> set[str]:
    """Of the kernel and of the plain decoder."""
    columns = {"topic": ["t"], "partition": [0], "offset": [1], "timestamp": [None], "key": [key], "value": [value]}
    batch = pa.RecordBatch.from_pydict(columns | {"headers": [[]]}, arrow_schema(MESSAGES))
    found = [decode_batch(batch, protocol)] if protocol in KERNELS else []
    found.append(decode_with(codec_of(protocol, Known()), batch, protocol))
    return {row["reason"] for rows in found for row in rows.to_pylist()}


def canal(**fields: Any) -> bytes:
    """An update of one row with other fields; `...` represents none."""
    return json.dumps({name: value for name, value in (CANAL | fields).items() if value is not ...}).encode()


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"type": ...}, "no `type`; found `database`, `table`"),
        ({"table": ...}, "no `table`"),
        ({"isDdl": ...}, "no `isDdl`"),
        ({"mysqlType": ...}, "no `mysqlType`"),
        ({"data": ...}, "no `data`"),
        ({"old": ...}, "no `old`"),
        ({"data": [], "old": []}, "no row in `data` (0 of 0)"),
        ({"old": [{"id": "1"}] * 2}, "no image before for each row (2 in `old`, 1 in `data`)"),
        ({"isDdl": True, "type": "CREATE"}, "no `sql`"),
        ({"type": "TIDB_WATERMARK", "_tidb": {}}, "no `_tidb.watermarkTs`"),
        ({"mysqlType": 5}, "field `mysqlType`"),
        ({"_tidb": {"commitTs": "x"}}, "field `commitTs`"),
    ],
)
def test_canal_json_names_table_and_field(fields: dict[str, Any], said: str) -> None:
    """What is missing, what is there, and where another fault lies."""
    [reason] = reasons("canal-json", None, canal(**fields))
    assert said in reason
    assert "table `shop" in reason


@pytest.mark.parametrize(
    ("key", "value", "said"),
    [
        ({"t": ...}, {"u": {}}, "no `t`; found `ts`, `scm`, `tbl`"),
        ({"scm": ...}, {"u": {}}, "no `scm`"),
        ({"t": 2}, {"q": "create table t (a int)"}, "no `t`; found `q`"),
        ({}, {"x": {}}, "no `u` or `d` alone; found `x`"),
        ({}, {"p": {"id": COLUMN}}, "no `u`; found `p`"),
        ({}, {"u": {"id": COLUMN, "name": {"t": 3, "f": 1}}}, "column `name`; no `v`; found `t`, `f`"),
        ({}, {"u": {"id": {"v": "}", "f": 1}}}, "column `id`; no `t`; found `v`, `f`"),
        ({}, {"u": {"id": {"t": 3, "v": 7}}}, "field `id`"),
    ],
)
def test_open_protocol_names_table_frame_and_field(key: Any, value: Any, said: str) -> None:
    """The second of three frames is the one that is wrong."""
    own = {name: v for name, v in (ROW_KEY | key).items() if v is not ...}
    good = {"u": {"id": COLUMN}}
    both = (1).to_bytes(8, "big") + frames(ROW_KEY, own, ROW_KEY), frames(good, value, good)
    [reason] = reasons("open-protocol", *both)
    assert said in reason
    assert "frame 2 of 3" in reason
    assert "table `" in reason and "orders`" in reason


SOURCE = {"db": "shop", "table": "orders", "commit_ts": 5}


@pytest.mark.parametrize(
    ("protocol", "message", "said"),
    [
        ("simple", {"version": 1, "database": "shop", "table": "orders", "commitTs": 5}, "field 'type'"),
        ("debezium", {"payload": {"source": SOURCE, "before": None, "after": {"id": 1}}}, "field 'op'"),
        (
            "debezium",
            {"payload": {"source": SOURCE, "op": "c", "before": None, "after": None}},
            "insert: an image after alone is needed; the row has no image",
        ),
        ("debezium", {"payload": {"source": SOURCE, "op": "d", "after": {"id": 1}}}, "the row has images after"),
        ("maxwell", {"database": "shop", "table": "orders", "ts": 1}, "field 'type'"),
    ],
)
def test_protocols_without_a_kernel_name_the_table_too(protocol: str, message: Any, said: str) -> None:
    """What is missing, what is there, and of which table."""
    (reason,) = reasons(protocol, None, json.dumps(message).encode())
    assert said in reason and reason.endswith("; table `shop.orders`")


def test_json_that_is_cut_is_called_cut_wherever_it_ends() -> None:
    """In a text, in an escape, in a character and between members."""
    rest = {"database": "s", "table": "t", "type": "INSERT", "ts": 5, "data": {"id": 1}}
    simple = json.dumps(rest | {"version": 1, "schema": "s", "commitTs": 5}).encode()
    whole = canal(data=[{"id": "a\n\u20ac"}], old=..., type="INSERT") + b" "
    for protocol, value in (("canal-json", whole), ("canal-json", whole.replace(b"\\u20ac", "€".encode())),
                            ("simple", simple), ("maxwell", json.dumps(rest).encode())):  # fmt: skip
        for n in range(1, len(value.rstrip())):
            said = f"value, byte {n}: the JSON is cut, it ends inside a value"
            assert all(reason.startswith(said) for reason in reasons(protocol, None, value[:n])), value[:n]

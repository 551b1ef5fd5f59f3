"""The kernel of maxwell and mq-v1 and their codecs in Python give the same of every message."""

from __future__ import annotations

import json
from random import Random

import orjson
import pytest
import reference_decoder as oracle
from comparing import batch_of
from conftest import golden
from making import Message, broken
from maxwell_writer import messages as maxwell_messages
from test_maxwell import row as maxwell

from ticdc_lab.codecs.decode import decode_mostly, decode_with, decoder
from ticdc_lab.codecs.kernel.self_described import KERNELS
from ticdc_lab.codecs.known import BOUNDS, NOTHING, Bounds
from ticdc_lab.codecs.registry import codec_of
from ticdc_lab.encode.encoders import encode
from ticdc_lab.events.mysql_types import BY_MQ_V1

KEY = b'{"ts":470603459334242304,"type":"Row","schema":"s","table":"t"}'
_VALUES = (
    "null 0 -0 1 -1 127 128 255 256 65536 4294967296 9223372036854775807 -9223372036854775808 18446744073709551615 "
    "18446744073709551616 1.0 -0.0 1.5 0.1 1e15 1e400 5e-324 16777217 0.3333333 3.5e38 123456789012345678 "
    '1234567890123456789012 true false [] {} "" "1" "-1.20" "0.5" "x" "AP+A" "AP+" "AP-_" "a\\u0062\\n" "数🙂" '
    '"2020-01-01" "2020-01-01T00:00:00.5" "2020-13-01" "-838:59:59" "839:00:00" "{}" 01 1. tru'
)
VALUES = _VALUES.split()
"""Values at which kernel and Python could differ, as JSON."""


def alike(some: list[Message], protocol: str, bounds: Bounds = BOUNDS) -> int:
    """Assert that both give the same, errors and order included; how many messages the kernel took."""
    batch, codec, kernel = batch_of(some), codec_of(protocol, NOTHING), KERNELS[protocol]
    mixed = decode_mostly(kernel, codec, batch, protocol, images=True, original=batch, bounds=bounds)
    plain = decode_with(codec, batch, protocol, bounds=bounds)
    if not mixed.equals(plain):
        for a, b in zip(mixed.to_pylist(), plain.to_pylist(), strict=True):
            assert a == b, some[a["offset"]]
    assert mixed.equals(plain) and not set(plain["error_class"].to_pylist()) & {"codec-error"}
    return len(set(kernel(batch, images=True, bounds=bounds).message.tolist()))


def cell(value: str, mq_type: str, more: str = "") -> Message:
    """An upsert of mq-v1 with one column."""
    return KEY, f'{{"update":{{"c":{{"type":"{mq_type}","value":{value}{more}}}}}}}'.encode()


def topic(protocol: str) -> list[Message]:
    """A golden topic of canal-json in another protocol."""
    some = [(m["key"], m["value"]) for m in oracle.messages(golden("messages_canal-json-tidb_small.jsonl.gz"))]
    if protocol == "maxwell":
        values = (orjson.loads(value or b"") for _, value in some)
        return list(maxwell_messages(v for v in values if v["type"] != "TIDB_WATERMARK"))
    keys = [encode(b, protocol) for b in decoder("canal-json")(iter([batch_of(some)]))]
    return [pair for key, value in keys for pair in zip(key.to_pylist(), value.to_pylist(), strict=True)]


@pytest.mark.parametrize("protocol", ["maxwell", "mq-v1"])
def test_a_topic_decodes_alike_and_the_kernel_takes_most(protocol: str) -> None:
    """Whole, broken at any byte, and within narrow bounds."""
    some = topic(protocol)
    assert alike(some, protocol) > 0.75 * len(some)
    r = Random(5)
    alike([broken(r.choice(some), r) for _ in range(1_500)], protocol)
    alike(some[:300], protocol, Bounds(values=200))
    alike(some[:300], protocol, Bounds(columns=3))
    alike(some[:300], protocol, Bounds(events=2))


def test_every_type_of_mq_v1_takes_the_same_values() -> None:
    """Of each type each value, no matter what it is; null and what fits is the kernel's."""
    some = [cell(value, kind) for kind in (*BY_MQ_V1, "Longlonx", "MediumTexT", "") for value in VALUES]
    assert alike(some, "mq-v1") > 6 * len(BY_MQ_V1)


def test_columns_without_a_type_take_the_same_values() -> None:
    """Maxwell shows no type."""
    some: list[Message] = [(None, maxwell().replace(b"10}", value.encode() + b"}")) for value in VALUES]
    assert alike(some, "maxwell") > 20


ODD_MQ_V1: list[Message] = [
    cell("1", "Long", ',"unique":true'), cell("1", "Long", ',"unique":1'), cell("1", "Long", ',"unique":null'),
    cell("1", "Long", ',"unique":false'), cell("1", "Long", ',"more":1'), cell("1", "Long", ',"type":"Long"'),
    (KEY, b'{"update":{"c":{"type":"Long"}}}'), (KEY, b'{"update":{"c":{"value":1}}}'), (KEY, b'{"update":{}}'),
    (KEY, b'{"update":{"c":{"type":7,"value":1}}}'), (KEY, b'{"update":{"c":1}}'), (KEY, b'{"update":null}'),
    (KEY, b'{"delete":{"c":{"value":1,"unique":true,"type":"Long"}}}'), (KEY, b'{"update":{},"delete":{}}'),
    (KEY, b'{"update":{"c":{"type":"Long","value":1}},"delete":null}'), (KEY, b"{}"), (KEY, b""), (KEY, None),
    (KEY, b' { "update" : { "c" : { "type" : "Long" , "value" : 1 } } }'), (KEY + b" ", cell("1", "Long")[1]),
    (KEY, b'{"update":{"c":{"type":"Long","value":1},"c":{"type":"Long","value":2}}}'),
    (KEY, b'{"update":{"c":{"type":"Long","value":1},"d":{"type":"Text","value":"y"}}}'),
    (KEY, b'{"update":{"\\u0063":{"type":"Long","value":1}}} '), (None, b"{}"), (b"", b"{}"),
    (b'{"ts":5,"type":"Resolved"}', b""), (b'{"ts":5,"type":"Resolved"}', None), (b'{"ts":5,"type":"Resolved"}', b"1"),
    (b'{"ts":-5,"type":"Resolved"}', b""), (b'{"ts":9223372036854775808,"type":"Resolved"}', b""),
    (KEY.replace(b'"s"', b'"\\u0073\xc3\xa4"'), cell("1", "Long")[1]), (KEY.replace(b'"s"', b"1"), cell("1",
    "Long")[1]),
    (KEY.replace(b'"ts":', b'"tx":'), cell("1", "Long")[1]), (KEY.replace(b'"s"', b"null"), cell("1", "Long")[1]),
]  # fmt: skip
ODD_MAXWELL: list[Message] = [(None, value) for value in (
    maxwell("update"), maxwell("update", old={}), maxwell("update", old={"col1": 9}),
    maxwell("update").replace(b'"data"', b'"old":null,"data"'), maxwell("delete"), maxwell("insert", old={"a": 1}),
    maxwell("delete", data=None, old={"col1": 1}), maxwell("delete", old={"col1": 1}), maxwell("insert", data={}),
    maxwell("insert", ts=-1), maxwell("insert", ts=1.5), maxwell("insert", ts=True), maxwell("bootstrap"),
    maxwell(database="a<\u00e4"), maxwell(table=5), maxwell(more=1), maxwell(ts=1 << 63), maxwell() * 5,
    maxwell() + b" " + maxwell(), maxwell() + b"\n", b" " + maxwell(), maxwell() + maxwell("delete"),
    maxwell() + json.dumps(json.loads(maxwell())).encode(), maxwell() + b'{"table":"b"}', b"", b"{}",
    maxwell(data={"a\n": 1}), maxwell().replace(b'"col1":10', b'"a":1,"a":2'), maxwell(data={"d": '}{"database":'}),
    maxwell(data={f"c{i}": i for i in range(40)}), maxwell(data={"a": None, "b": "x\n", "c": 1.25}),
)]  # fmt: skip

ODD = {"maxwell": ODD_MAXWELL, "mq-v1": ODD_MQ_V1}
PLAIN: dict[str, list[Message]] = {
    "maxwell": [(None, maxwell() * 3)] * 9,
    "mq-v1": [cell("1", "Long"), cell("-1.5", "Double"), cell('"AP+A"', "Blob"), cell("null", "Null")],
}


def test_odd_messages_decode_alike() -> None:
    """Fields that are missing, twice, of another kind, or in another order."""
    assert alike(ODD["mq-v1"], "mq-v1") >= 5
    assert alike(ODD["maxwell"], "maxwell") >= 8

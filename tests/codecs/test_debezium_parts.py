"""Debezium: the schema of a message, which is read once for many messages, is the one of the message."""

from __future__ import annotations

import json
from typing import Any

import pytest

from ticdc_lab.codecs import debezium
from ticdc_lab.codecs.event import Malformed
from ticdc_lab.codecs.known import NOTHING

DECODE = debezium.codec(NOTHING)


def message(after: str = '{"a":5}', schema: str = '{"fields":[]}', more: str = "") -> bytes:
    """An insert."""
    source = '{"commit_ts":7,"db":"s","table":"t"}'
    return (
        f'{{"payload":{{"source":{source},"op":"c","before":null,"after":{after}}},"schema":{schema}{more}}}'.encode()
    )


def schema_of(name: str, tidb_type: str) -> str:
    """The part that describes one column."""
    return json.dumps({"fields": [{"field": "after", "fields": [{"field": name, "tidb_type": tidb_type}]}]})


def cells(raw: bytes) -> Any:
    """Name, type and value of each column."""
    [event] = DECODE(None, raw)
    return [c[:3] for c in event.columns or ()]


def test_messages_with_another_schema_have_other_types() -> None:
    """What was read of one schema is never taken for another's."""
    for _ in range(2):
        for kind in ("int", "bigint"):
            assert cells(message(schema=schema_of("a", kind))) == [("a", kind, "5")]


@pytest.mark.parametrize("after", ['{"a":5,"schema":{"b":1}}', '{"schema":{"a":1},"b":{"x":1}}'])
def test_a_column_named_schema_is_none(after: str) -> None:
    """Its value is no object, so the message is refused, as it is without any schema."""
    with pytest.raises(Malformed):
        cells(message(after))


def test_a_schema_that_stands_in_a_text_is_text() -> None:
    """Quotes in a text are escaped."""
    text = '},"schema":{"fields":[]'
    raw = message(json.dumps({"a": text}), schema_of("a", "text"))
    assert cells(raw) == [("a", "text", text)]


@pytest.mark.parametrize(
    ("raw", "fault"),
    [
        (message(more=',"schema":{}'), "duplicate-key"),
        (message(schema='{"fields":[],"fields":[]}'), "duplicate-key"),
        (message(schema='{"fields":[}'), "not-json"),
        (message(more="}"), "not-json"),
        (message(more=",{}"), "not-json"),
        (b'{"schema":{},' + message()[1:], "duplicate-key"),
        (b'{},"schema":{}}', "not-json"),
        (b'{"payload":{}},"schema":{}', "not-json"),
    ],
)
def test_a_fault_beside_the_schema_is_found(raw: bytes, fault: str) -> None:
    """Also where both parts are JSON by themselves."""
    with pytest.raises(Malformed) as found:
        cells(raw)
    assert found.value.error_class == fault

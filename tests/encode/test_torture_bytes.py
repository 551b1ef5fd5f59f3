"""What `produce` writes of the torture logs is what the real encoders wrote, byte for byte where order is fixed."""

from __future__ import annotations

import json
import struct
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

sys.path.insert(0, str(Path(__file__).parents[1] / "codecs"))
import torture

from ticdc_lab.codecs.builder import decode_with
from ticdc_lab.codecs.known import NOTHING
from ticdc_lab.codecs.registry import codec_of
from ticdc_lab.encode import canal_json, open_protocol


def rows_of(name: str, protocol: str) -> tuple[pa.RecordBatch, dict[tuple[int, int], dict[str, Any]]]:
    """Row changes of a log, and its messages by their place."""
    messages = torture.messages(name)
    events = decode_with(codec_of(protocol, NOTHING), messages, protocol, compiled=False)
    return events.filter(pc.equal(events["kind"], "row")), {
        (m["partition"], m["offset"]): m for m in messages.to_pylist()
    }


def frames(raw: bytes, at: int) -> Iterator[bytes]:
    """The parts of a key or value."""
    while at < len(raw):
        (n,) = struct.unpack_from(">Q", raw, at)
        yield raw[at + 8 : at + 8 + n]
        at += 8 + n


def test_open_protocols_bytes_are_the_real_ones() -> None:
    """Exponents of FLOAT, the escapes of backspace and form feed, keys without `ptn` of unpartitioned tables."""
    rows, real = rows_of("open-protocol", "open-protocol")
    keys, values = (column.to_pylist() for column in open_protocol.rows(rows, str))
    assert len(keys) == 963
    for e, key, value in zip(rows.select(["partition", "offset", "seq"]).to_pylist(), keys, values, strict=True):
        m = real[e["partition"], e["offset"]]
        assert key.encode() == list(frames(m["key"], 8))[e["seq"]]
        assert value.encode() == list(frames(m["value"], 0))[e["seq"]]


def test_a_row_whose_image_before_has_no_names_is_not_marked_as_handle_key_only() -> None:
    """The fault of TiCDC with NULL and `only-output-updated-columns`: the rest of the message is as TiCDC wrote it."""
    rows, real = rows_of("open-protocol-updatedonly", "open-protocol")
    names = [*zip(*(rows[c].to_pylist() for c in ("partition", "offset", "seq", "incomplete")), strict=True)]
    keys, values = (column.to_pylist() for column in open_protocol.rows(rows, str))
    unnamed = 0
    for (partition, offset, seq, incomplete), key, value in zip(names, keys, values, strict=True):
        m = real[partition, offset]
        assert key.encode() == list(frames(m["key"], 8))[seq]
        written = list(frames(m["value"], 0))[seq]
        if incomplete == "before-unnamed":
            unnamed += 1
            assert json.loads(value)["u"] == json.loads(written)["u"]
        else:
            assert value.encode() == written
    assert unnamed == 16
    for (*_, incomplete), text in zip(names, canal_json.rows(rows, str)[1].to_pylist(), strict=True):
        assert text.endswith('"onlyHandleKey":true}}') is (incomplete == "handle-key-only")


def test_canal_jsons_fields_are_the_real_ones() -> None:
    """The real encoder's `mysqlType` has no fixed order, and `ts` is its clock; zerofill is named."""
    rows, real = rows_of("canal-json-tidb", "canal-json")
    _, values = canal_json.rows(rows, str)
    for e, value in zip(rows.select(["partition", "offset"]).to_pylist(), values.to_pylist(), strict=True):
        ours, theirs = json.loads(value), json.loads(real[e["partition"], e["offset"]]["value"])
        assert ours | {"ts": 0} == theirs | {"ts": 0}
    assert "\\u0008\\u000c" in "".join(v for v in values.to_pylist() if "texts" in v)

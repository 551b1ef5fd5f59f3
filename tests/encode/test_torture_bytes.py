"""What `produce` writes of the torture logs is what the real encoders wrote, byte for byte where order is fixed."""

from __future__ import annotations

import json
import re
import struct
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from conftest import ROOT
from pyspark.sql import SparkSession

sys.path.insert(0, str(Path(__file__).parents[1] / "codecs"))
import torture

from ticdc_lab.codecs.decode import decode_with
from ticdc_lab.codecs.known import NOTHING
from ticdc_lab.codecs.registry import codec_of
from ticdc_lab.encode import canal_json, open_protocol
from ticdc_lab.encode.produce import produce
from ticdc_lab.facts.catalog import catalog_of
from ticdc_lab.sources.load import load

PRODUCED = {
    "open-protocol": (1_520, 1_516),
    "open-protocol-noold": (1_453, 1_453),
    "open-protocol-updatedonly": (1_728, 1_712),
    "canal-json-tidb": (1_386, 1_386),
    "canal-json-raw": (1_317, 1_317),
    "canal-json-selector": (1_386, 1_386),
}
"""Messages of the real encoders, and how many of them `produce` writes, as docs/tables.md explains."""

BY_RULE = {
    "index-value": "table_name = 'ints' OR table_name LIKE 'k\\\\_%'",
    "ts": "table_name IN ('texts', 'bins', 'times')",
    "columns": "table_name = 'floats'",
}
"""The dispatchers of runs.json, beside `table`."""


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


def test_a_row_of_handle_keys_alone_in_a_partition_has_both_marks_in_ticdcs_order() -> None:
    """`ohk` is before `ptn`."""
    rows, _ = rows_of("open-protocol", "open-protocol")
    parted = rows.filter(pc.is_valid(rows["table_id"])).slice(0, 1)
    at = parted.schema.get_field_index("incomplete")
    (key,) = open_protocol.rows(parted.set_column(at, "incomplete", pa.array(["handle-key-only"])), str)[0].to_pylist()
    assert key.endswith(f',"t":1,"ohk":true,"ptn":{parted["table_id"][0]}}}')


def test_canal_jsons_fields_are_the_real_ones() -> None:
    """The real encoder's `mysqlType` has no fixed order, and `ts` is its clock; zerofill is named."""
    rows, real = rows_of("canal-json-tidb", "canal-json")
    _, values = canal_json.rows(rows, str)
    for e, value in zip(rows.select(["partition", "offset"]).to_pylist(), values.to_pylist(), strict=True):
        ours, theirs = json.loads(value), json.loads(real[e["partition"], e["offset"]]["value"])
        assert ours | {"ts": 0} == theirs | {"ts": 0}
    assert "\\u0008\\u000c" in "".join(v for v in values.to_pylist() if "texts" in v)


TYPES = re.compile(rb'"mysqlType":\{((?:"(?:[^"\\]|\\.)*":"[^"]*",?)*)\}')


def comparable(key: bytes | None, value: bytes) -> tuple[bytes | None, bytes]:
    """A message without what Go leaves open in canal-json: the encoder's clock and the order of `mysqlType`."""
    if key is not None:
        return key, value
    members = rb'"(?:[^"\\]|\\.)*":"[^"]*"'
    without_clock = re.sub(rb'"ts":\d+,"sql"', b'"sql"', value, count=1)
    return None, TYPES.sub(lambda types: b",".join(sorted(re.findall(members, types[1]))), without_clock)


def as_written(name: str) -> list[tuple[int, bytes | None, bytes]]:
    """Partition, key and value of the real encoders' messages."""
    return [(m["partition"], *comparable(m["key"], m["value"])) for m in torture.messages(name).to_pylist()]


def produced(spark: SparkSession, name: str, where: str = "true", **how: Any) -> list[tuple[int, bytes | None, bytes]]:
    """The same of what `produce` writes of a log's events in its own protocol."""
    protocol = name.rsplit("-", 1)[0] if "canal" in name else "open-protocol"
    events = load(spark, str(torture.FOLDER / f"messages_{name}.jsonl.gz")).events
    how = {"strategy": "table", "partitions": 3, "catalog": catalog_of(events), **how}
    made = produce(events.where(where), protocol=protocol, **how)
    return [(m["partition"], *comparable(m["key"], m["value"])) for m in made.toArrow().to_pylist()]


@pytest.mark.parametrize("name", PRODUCED)
def test_produced_topics_have_the_messages_that_ticdc_wrote(spark: SparkSession, name: str) -> None:
    """The counts are the ones of the page."""
    real, ours = (Counter(m[1:] for m in some) for some in (as_written(name), produced(spark, name)))
    assert (real.total(), (real & ours).total()) == PRODUCED[name]
    line = next(line for line in (ROOT / "docs/tables.md").read_text().splitlines() if f"| `{name}` |" in line)
    assert re.findall(r"[\d,]{3,}", line)[:2] == [f"{n:,}" for n in PRODUCED[name]]


def test_with_the_changefeeds_dispatchers_messages_are_ticdcs_in_their_partitions(spark: SparkSession) -> None:
    """Batches too: rows of open-protocol share a message only if they did so in the log, in the order of produce."""
    name = "open-protocol"
    others = " OR ".join(BY_RULE.values())
    ours = produced(spark, name, f"kind != 'row' OR NOT ({others})")
    for strategy, of in BY_RULE.items():
        columns = ["id", "d"] if strategy == "columns" else None
        ours += produced(spark, name, f"kind = 'row' AND ({of})", strategy=strategy, columns=columns)
    differ = Counter(as_written(name)) - Counter(ours)
    assert len(ours) - (Counter(ours) & Counter(as_written(name))).total() == 4
    for _, key, value in differ.elements():  # delete and insert of one key, beside the ones of another
        assert key is not None and key.count(b'"tbl":"k_inv"') == 2
        assert [next(iter(json.loads(part))) for part in frames(value, 0)] == ["d", "u"]
    assert differ.total() == 2


def test_a_size_of_messages_that_is_asked_for_is_that_of_every_log(spark: SparkSession) -> None:
    """With ``max_batch_size`` rows are put together again."""
    sizes = [
        len(produced(spark, "open-protocol-noold", "kind = 'row'", max_batch_size=most)) for most in (1, 3, 16, None)
    ]
    assert sizes == [*sorted(sizes[:3], reverse=True), 688]
    assert sizes[0] == 963

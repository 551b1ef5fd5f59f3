"""Hashes of a noted log are compared with each other alone: they differ exactly where the exact ones differ."""

from __future__ import annotations

import json
from random import Random

import numpy as np
import pyarrow as pa
import pytest

from ticdc_lab.codecs.decode import decode_batch
from ticdc_lab.codecs.decoded import NOTED
from ticdc_lab.codecs.kernel.noted import Noted

TYPES = {"id": "bigint", "k": "varchar", "v": "varchar", "n": "int", "long": "text"}
Row = dict[str, str | None]
ROW: Row = {"id": "1", "k": "a", "v": "b", "n": None, "long": "x" * 70}


def message(kind: str, data: Row, old: Row | None = None, keys: tuple[str, ...] = ("id",), table: str = "t",
            types: tuple[str, ...] = tuple(TYPES), **tidb: str) -> bytes:  # fmt: skip
    """A row change as TiCDC writes it; ``types``: in which order ``mysqlType`` names them."""
    of = {
        "id": 0, "database": "s", "table": table, "pkNames": [*keys], "isDdl": False, "type": kind, "es": 1, "ts": 1,
        "sql": "", "sqlType": {"id": -5}, "mysqlType": {name: TYPES[name] for name in types},
        "old": None if old is None else [old], "data": [data], "_tidb": {"commitTs": 5, **tidb},
    }  # fmt: skip
    return json.dumps(of, separators=(",", ":"), ensure_ascii=False).encode()


def decoded(values: list[bytes], *, noted: bool) -> pa.RecordBatch:
    """Messages, by the kernel."""
    n = len(values)
    places = {"topic": ["t"] * n, "partition": pa.array([0] * n, pa.int32()), "offset": pa.array(range(n), pa.int64())}
    batch = pa.RecordBatch.from_pydict(places | {"key": pa.nulls(n, pa.binary()), "value": pa.array(values)})
    asked = NOTED.set(Noted() if noted else None)
    try:
        return decode_batch(batch, "canal-json")
    finally:
        NOTED.reset(asked)


def variants() -> list[Row]:
    """The row with other values, in other columns, in another order, with fewer columns."""
    r, found = Random(3), [ROW, dict(reversed(ROW.items()))]
    texts = ["", "a", "ab", "b", "abcdefg", "abcdefgh", "abcdefghi", "x" * 69, "x" * 70, "x" * 71, "\0", "é", None]
    found += [{**ROW, name: text} for name in ("k", "v", "long") for text in texts]
    found += [{**ROW, "k": ROW["v"], "v": ROW["k"]}, {**ROW, "n": "0"}, {**ROW, "n": "1"}]
    found += [{name: ROW[name] for name in r.sample([*ROW], len(ROW))} for _ in range(6)]
    return found + [{name: row[name] for name in row if name not in r.sample(["k", "v", "n"], 2)} for row in found[:8]]


def same(hashes: pa.Array) -> list[int]:
    """The first place of each value: what an audit sees of hashes."""
    found = hashes.to_pylist()
    return [found.index(h) for h in found]


@pytest.mark.parametrize("keys", [("id",), ("id", "k"), ()], ids=["one", "two", "none"])
def test_what_differs_is_what_exact_hashes_show(keys: tuple[str, ...]) -> None:
    """Changes by content and order of columns, images by columns and values; keys are exact, as findings show them."""
    rows = variants()
    values = [
        message(kind, row, keys=keys, table=t) for kind in ("INSERT", "DELETE") for row in rows for t in ("t", "u")
    ]
    values += [message("UPDATE", ROW, old, keys) for old in rows]
    values += [message("UPDATE", row, ROW, keys) for row in rows]
    values += [message("UPDATE", row, {"k": row.get("k")}, keys) for row in rows]
    values += [message("UPDATE", {"id": "1"}, old, keys) for old in rows]
    values += [message("INSERT", ROW, None, keys, rowkey=key) for key in ("dIAAAAAAAABZX3KA", "dIAAAAAAAABZX3KB")]
    exact, found = (decoded(2 * values, noted=noted) for noted in (False, True))
    assert "columns" not in found.schema.names
    assert len(found) == 2 * len(values)
    for name in ("key_hash", "before_key_hash"):
        assert found[name].equals(exact[name])
    assert same(found["change_hash"]) == same(exact["change_hash"])
    if not keys:  # such a row is known by its content, which findings show
        assert found["change_hash"].equals(exact["change_hash"])
    both = [pa.concat_arrays([of["after_hash"], of["before_hash"]]) for of in (found, exact)]
    assert same(both[0]) == same(both[1])
    of_columns = [pa.array(np.asarray(of.fill_null(0)) >> 32) for of in both]
    assert same(of_columns[0]) == same(of_columns[1])


def test_types_may_come_in_any_order() -> None:
    """Go writes the members of ``mysqlType`` in an order that changes from message to message."""
    r = Random(5)
    orders = [tuple(r.sample([*TYPES], len(TYPES))) for _ in range(40)]
    orders += [tuple([*TYPES][i:] + [*TYPES][:i]) for i in range(len(TYPES))]
    old = {**ROW, "v": "c", "n": "7"}
    rows = decoded([message("UPDATE", ROW, old, types=order) for order in orders], noted=False)
    for name in ("columns", "before", "change_hash", "key_hash", "after_hash", "before_hash"):
        assert same(rows[name]) == [0] * len(orders), name
    assert [c["value"] for c in rows["before"].to_pylist()[0]] == [*old.values()]
    assert [c["mysql_type"] for c in rows["columns"].to_pylist()[-1]] == [*TYPES.values()]

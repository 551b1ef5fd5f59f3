"""A table under another name is found by the hashes of its rows."""

from __future__ import annotations

import zlib
from random import Random

import numpy as np
import pyarrow as pa
import pytest

from ticdc_lab.dispatch import other_names
from ticdc_lab.dispatch.best_rule import best_in, causes_in
from ticdc_lab.dispatch.fitting import TRIED, tried_in
from ticdc_lab.dispatch.given import OF_NAME
from ticdc_lab.dispatch.infer import _misplaced, _rule_of
from ticdc_lab.dispatch.other_names import SOME_BITS, name_hashed, other_name_words
from ticdc_lab.facts.schemas import arrow_of

NAMES = [("shop", "orders"), ("shop", "users"), ("dw", "users"), ("dw", "facts")]
SHOP_ORDERS = zlib.crc32(b"shoporders")


def rows(upstream: str, columns: str, n: int, count: int = 400) -> pa.Table:
    """Rows of ``dw.facts``, whose key is ``id``, in the partitions of a rule over columns by the name upstream."""
    random = Random(count)
    texts = [{"id": f"{i}", "a": f"{random.randrange(5000)}", "b": random.choice("uvwxyz")} for i in range(count)]
    crcs = [{c: zlib.crc32(f"{c}{text}".encode()) for c, text in row.items()} for row in texts]
    own, chosen = zlib.crc32(upstream.encode()), columns.split(",")
    hashes = [own ^ int(np.bitwise_xor.reduce([row[c] for c in chosen])) for row in crcs]
    return pa.table({
        "topic": ["t"] * count, "schema_name": ["dw"] * count, "table_name": ["facts"] * count,
        "partition": pa.array([h % n for h in hashes], pa.int32()), "partitions": pa.array([n] * count, pa.int32()),
        "offset": pa.array(range(count), pa.int64()), "seq": pa.array([0] * count, pa.int32()),
        "commit_ts": pa.array([random.randrange(1 << 62) for _ in range(count)]),
        "key_crc": pa.array([r["id"] | 1 << 32 for r in crcs]),
        "column_crcs": pa.array([list(r.values()) for r in crcs], pa.list_(pa.int64())),
        "layout": ["id,a,b,,id"] * count,
    })  # fmt: skip


def judged(table: pa.Table) -> dict[str, object]:
    """The rule of the one table, which had a row that moved."""
    own = {"topic": "t", "schema_name": "dw", "table_name": "facts", "moved": True}
    moved = pa.RecordBatch.from_pylist([own], arrow_of(TRIED))
    (found,) = best_in(iter([*tried_in(iter(table.to_batches()), more=4), moved]))
    return dict(found.to_pylist()[0])


@pytest.mark.parametrize("n", [2, 3, 4, 6, 7, 16, 67, 134, 1009])
@pytest.mark.parametrize("columns", ["id", "a", "a,b", "id,a,b"])
def test_a_name_among_those_of_the_log_is_named(columns: str, n: int) -> None:
    """No matter what the number of partitions and of columns; the one that is found places every row."""
    table = rows("shoporders", columns, n)
    found = judged(table)
    rule, _, crc = str(found["rule"]).partition(OF_NAME)
    assert rule == ("index-value" if columns == "id" else f"columns:{columns}")
    assert found["n_explained"] == found["n_rows"] == 400 and found["explains"] is (columns != "id")
    words = other_name_words(int(crc), n, own=("dw", "facts"), names=NAMES)
    if n & (n - 1):
        assert int(crc) == SHOP_ORDERS and words == "the name shop.orders"
    else:  # only the last bits of the crc are reported, so that other names may fit
        assert words.startswith("another name") and "shop.orders" in words


def test_a_row_that_the_other_name_does_not_explain_is_named() -> None:
    """A fault among the rows hides no rule, and is found by it."""
    for n in (3, 4, 6):
        table = rows("shoporders", "a,b", n)
        lies = table["partition"].to_pylist()
        moved = [(p + (i in (7, 90))) % n for i, p in enumerate(lies)]
        odd = table.set_column(3, "partition", pa.array(moved, pa.int32()))
        found = judged(odd)
        assert found["n_explained"] == 398 and found["explains"]
        rules = pa.Table.from_pylist([found])
        wrong = pa.Table.from_batches(_misplaced(_rule_of(rules))(iter(odd.to_batches())))
        assert wrong["offset"].to_pylist() == [7, 90]
        (cause,) = causes_in(iter(rules.to_batches()), names=NAMES)
        assert "by columns a and b under" in cause["cause"][0].as_py() and "may route" in cause["cause"][0].as_py()


@pytest.mark.parametrize(("n", "tells"), [(3, True), (6, True), (12, True), (4, False), (16, False)])
def test_a_name_that_is_in_no_list_is_told_by_its_crc(n: int, tells: bool) -> None:
    """All 32 bits where an odd factor shows them; else that it is another one."""
    crc = int(str(judged(rows("upstreamorders", "a", n))["rule"]).partition(OF_NAME)[2])
    words = other_name_words(crc, n, own=("dw", "facts"), names=NAMES)
    assert (crc == zlib.crc32(b"upstreamorders")) is tells and ("is 0x" in words) is tells


def test_few_values_may_tell_some_bits_only() -> None:
    """Texts that differ in few bits: several names explain the rows, and none is named as the one."""
    values = np.array([zlib.crc32(f"a{i}".encode()) for i in range(90)], np.int64)
    crc = name_hashed(values, (values ^ SHOP_ORDERS) % 3, 3)
    assert crc is not None and crc & SOME_BITS
    assert ((values ^ (crc & (SOME_BITS - 1))) % 3 == (values ^ SHOP_ORDERS) % 3).all()
    assert other_name_words(crc, 3, own=("dw", "facts"), names=NAMES).startswith("another name")


def test_rows_that_no_name_explains_give_no_rule() -> None:
    """Random partitions, and too few rows to show."""
    for n in (3, 4, 6):
        odd = rows("x", "a", n)
        lies = pa.array([zlib.crc32(f"{i}?".encode()) % n for i in range(400)], pa.int32())
        found = judged(odd.set_column(3, "partition", lies))
        assert not found["explains"] and "columns under another name" in str(found["tried"])
        assert not judged(rows("shoporders", "a", n, 8))["explains"]
    assert name_hashed(np.arange(400), np.zeros(400, np.int64), 1) is None


def test_few_rows_show_that_no_name_explains_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    """A table that no rule explains is tried by hundreds of columns together: none is solved from all its rows."""
    values = np.array([zlib.crc32(f"{i}".encode()) for i in range(1000)], np.int64)
    lies = np.array([zlib.crc32(f"{i}?".encode()) for i in range(1000)], np.int64)
    monkeypatch.setattr(other_names, "_bits_modulo", lambda *_: pytest.fail("all rows were solved"))
    assert [name_hashed(values, lies % n, n) for n in (3, 5, 7)] == [None, None, None]


def test_values_that_begin_late_tell_a_name() -> None:
    """The first thousands of rows have one value."""
    values = np.array([zlib.crc32(f"{max(i - 20_000, 0)}".encode()) for i in range(20_400)], np.int64)
    assert name_hashed(values, (values ^ SHOP_ORDERS) % 3, 3) == SHOP_ORDERS

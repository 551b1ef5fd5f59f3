"""A table under another name is found by the hashes of its rows."""

from __future__ import annotations

import zlib

import pyarrow as pa
import pytest

from ticdc_lab.dispatch.other_names import OtherName, other_name

NAMES = [("shop", "orders"), ("shop", "users"), ("dw", "users")]


def rows(upstream: str, rule: str, n: int, count: int = 200) -> pa.Table:
    """Rows of a table whose key is ``id``, in the partitions of a rule by the name upstream."""
    crcs = [[zlib.crc32(f"id{i}".encode()), zlib.crc32(f"a{i * i % 97}".encode())] for i in range(count)]
    chosen = [c[0] if rule == "index-value" else c[1] for c in crcs]
    return pa.table({
        "partition": pa.array([(zlib.crc32(upstream.encode()) ^ c) % n for c in chosen], pa.int32()),
        "key_crc": pa.array([c[0] | 1 << 32 for c in crcs]),
        "column_crcs": pa.array(crcs, pa.list_(pa.int64())),
        "layout": ["id,a,,id"] * count,
    })  # fmt: skip


@pytest.mark.parametrize("n", [2, 3, 4, 6, 7, 16])
@pytest.mark.parametrize("rule", ["index-value", "columns:a"])
def test_a_name_among_those_of_the_log_is_named(rule: str, n: int) -> None:
    """Whatever the number of partitions; a fault among the rows does not hide it."""
    found = other_name(rows("shoporders", rule, n), own=("dw", "facts"), partitions=n, names=NAMES)
    assert found is not None and found.rule == rule and "shop.orders" in found.names
    if n & (n - 1):
        assert found == OtherName(rule, ("shop.orders",), zlib.crc32(b"shoporders"))
        assert found.words == f"by {rule} of the name shop.orders"
    else:  # only the last bits of the crc are told, so that other names may fit
        assert found.crc is None and f"by {rule} of another name; of those in the log " in found.words


@pytest.mark.parametrize(("n", "tells"), [(3, True), (6, True), (7, True), (12, True), (4, False), (16, False)])
def test_a_name_that_is_in_no_list_is_told_by_its_crc(n: int, tells: bool) -> None:
    """All 32 bits where an odd factor tells them; else that it is another one."""
    found = other_name(rows("upstreamorders", "index-value", n, 400), own=("dw", "facts"), partitions=n, names=NAMES)
    assert found is not None and found.crc == (zlib.crc32(b"upstreamorders") if tells else None)
    assert ("is 0x" in found.words) is tells and (not found.names or n == 4)


def test_rows_that_no_name_explains_give_no_hint() -> None:
    """Random partitions, and too few rows to tell."""
    for n in (3, 4, 6):
        odd = rows("x", "index-value", n)
        lies = pa.array([zlib.crc32(f"{i}?".encode()) % n for i in range(200)], pa.int32())
        odd = odd.set_column(0, "partition", lies)
        assert other_name(odd, own=("a", "b"), partitions=n, names=NAMES) is None
        assert other_name(rows("shoporders", "index-value", n, 8), own=("a", "b"), partitions=n, names=NAMES) is None
    assert other_name(rows("x", "index-value", 1), own=("a", "b"), partitions=1, names=NAMES) is None

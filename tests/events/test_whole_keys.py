"""A kernel that wants whole keys gets them, wherever the batches end."""

from __future__ import annotations

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from ticdc_lab.events.arrays import key_begins, whole_keys

KEY = ("a", "b")
RUNS = st.lists(st.tuples(st.sampled_from([None, 1, 2]), st.sampled_from([None, "x", "y"]), st.integers(1, 7)))


@given(RUNS, st.integers(1, 5), st.integers(1, 9))
def test_no_key_is_cut_and_no_row_is_lost(runs: list[tuple[int | None, str | None, int]], size: int, most: int) -> None:
    """Rows come in order, in tables; none begins with the key that the one before it ends with."""
    rows = [(a, b, i) for i, (a, b, n) in enumerate(runs) for _ in range(n)]
    columns = [[r[i] for r in rows] for i in range(3)]
    table = pa.table({"a": pa.array(columns[0], pa.int64()), "b": pa.array(columns[1], pa.string()), "run": columns[2]})
    found = list(whole_keys(iter(table.to_batches(max_chunksize=size)), KEY, at_once=most))
    assert [tuple(r.values()) for t in found for r in t.to_pylist()] == rows
    ends = [(t["a"][-1].as_py(), t["b"][-1].as_py()) for t in found]
    begins = [(t["a"][0].as_py(), t["b"][0].as_py()) for t in found]
    assert all(end != begin for end, begin in zip(ends, begins[1:], strict=False))
    expected = [i == 0 or rows[i - 1][:2] != r[:2] for i, r in enumerate(rows)]
    assert key_begins(table, KEY).tolist() == expected

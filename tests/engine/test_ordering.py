"""The quick order is that of ``np.lexsort``."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from ticdc_lab.engine.ordering import order_of

LIMITS = np.iinfo(np.int64)
KEYS = st.one_of(
    st.integers(-2, 2), st.integers(LIMITS.min, LIMITS.max), st.sampled_from([LIMITS.min, -1, 0, LIMITS.max])
)


@given(arrays.arrays(np.int64, st.tuples(st.integers(1, 4), st.integers(0, 40)), elements=KEYS))
def test_rows_are_ordered_key_by_key_and_keep_their_order(keys: np.ndarray) -> None:
    """Whatever the numbers are, the greatest and least too."""
    assert order_of(*keys).tolist() == np.lexsort(keys[::-1]).tolist()


@pytest.mark.parametrize("span", [2**20, 2**62])
def test_many_rows_with_few_values_of_a_wide_key(span: int) -> None:
    """Where a group and a value do not fit into one number, they are sorted in turn."""
    random = np.random.default_rng(1)
    first, second = random.integers(0, 50_000, 200_000), random.integers(-span, span, 200_000)
    assert (order_of(first, second) == np.lexsort((second, first))).all()

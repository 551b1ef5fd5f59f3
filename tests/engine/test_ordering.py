"""The quick order is the one of ``np.lexsort``."""

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
    """No matter what the numbers are, the greatest and least too."""
    assert order_of(*keys).tolist() == np.lexsort(keys[::-1]).tolist()
    keys[0].sort()
    assert order_of(*keys).tolist() == np.lexsort(keys[::-1]).tolist()
    assert keys[:, order_of(*keys, stable=False)].tolist() == keys[:, np.lexsort(keys[::-1])].tolist()


@pytest.mark.parametrize("kind", [np.int8, np.int32, np.int64])
def test_a_key_of_few_bits_has_its_whole_range(kind: type[np.signedinteger]) -> None:
    """The least and the greatest are further apart than the key's own type can show."""
    ends = np.array([np.iinfo(kind).max, np.iinfo(kind).min, 0, 5], dtype=kind)
    assert order_of(np.zeros(4, np.int64), ends).tolist() == [1, 2, 3, 0]


@pytest.mark.parametrize("span", [2**20, 2**62])
def test_many_rows_with_few_values_of_a_wide_key(span: int) -> None:
    """Where a group and a value do not fit into one number, they are sorted in turn."""
    random = np.random.default_rng(1)
    first, second = random.integers(0, 50_000, 200_000), random.integers(-span, span, 200_000)
    assert (order_of(first, second) == np.lexsort((second, first))).all()

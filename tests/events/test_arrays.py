"""Where sorted columns change."""

from __future__ import annotations

import numpy as np

from ticdc_lab.events.arrays import changes_in, lasts_in


def test_a_stretch_begins_and_ends_where_any_column_differs() -> None:
    """The first entry begins one, the last ends one, and a column of texts counts like one of numbers."""
    partition, topic = np.array([0, 0, 0, 1, 1]), np.array(["a", "a", "b", "b", "b"], dtype=object)
    assert changes_in(partition, topic).tolist() == [True, False, True, True, False]
    assert lasts_in(partition, topic).tolist() == [False, True, True, False, True]
    assert changes_in(partition).tolist() == [True, False, False, True, False]


def test_nothing_begins_where_there_is_nothing() -> None:
    """An empty column gives an empty mask, one entry is first and last."""
    empty = np.empty(0, np.int64)
    assert changes_in(empty, empty).tolist() == lasts_in(empty).tolist() == []
    assert changes_in(np.array([7])).tolist() == lasts_in(np.array([7])).tolist() == [True]

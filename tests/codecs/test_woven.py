"""What a kernel and a codec in Python decode of one batch becomes one batch, in message order."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from ticdc_lab.codecs.decode import _woven

ORDER = np.array([3, 0, 1, 4, 2, 5])
"""Three rows of a kernel, before, among and behind them what Python decoded."""

LISTS = pa.array([["a", None], [], None, ["b", "c", "d"]])[1:]


@pytest.mark.parametrize(
    ("some", "rest"),
    [
        (LISTS, pa.array([None, None, None], LISTS.type)),
        (LISTS, pa.array([None, [], None], LISTS.type)),
        (LISTS, pa.array([["e"], None, ["f", "g"]], LISTS.type)),
        (pa.nulls(3, LISTS.type), pa.array([["e"], None, []], LISTS.type)),
        (pa.nulls(3, LISTS.type), pa.nulls(3, LISTS.type)),
        (pa.array(["x", None, "y"]), pa.array([None, "z", ""])),
    ],
)
def test_lists_keep_their_values_whatever_stands_between_them(some: pa.Array, rest: pa.Array) -> None:
    """The shortcut for events without images gives what Arrow's own ``take`` gives."""
    woven = _woven(some, rest, ORDER)
    woven.validate(full=True)
    assert woven.equals(pa.concat_arrays([some, rest]).take(pa.array(ORDER)))

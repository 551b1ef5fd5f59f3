"""Arrays that compiled functions hand to each other as one pointer.

numba passes an array by value, seven words and more: with a dozen arrays every call copies a hundred words, which took
two thirds of the decoder's time. Here the words lie in a table, and what is passed is the table's address.
"""

from __future__ import annotations

from functools import cache

import numpy as np

WORDS = 5
"""Words of the table for each array: address, two extents, two strides."""


class Arrays:
    """Arrays by name, for compiled code: ``arrays.name`` there is the array itself.

    Give them as keywords, each in C order and of at most two dimensions; names and types are one type to numba.
    """

    def __init__(self, **arrays: np.ndarray) -> None:
        self.form = tuple((name, _name_of(a.dtype), a.ndim) for name, a in arrays.items())
        words = []
        for name, a in arrays.items():
            assert a.flags.c_contiguous, name
            setattr(self, name, a)
            none = (0,) * (2 - a.ndim)
            words.append((a.__array_interface__["data"][0], *a.shape, *none, *a.strides, *none))
        self._words = np.array(words, np.int64)
        self.address = self._words.ctypes.data


_name_of = cache(lambda dtype: dtype.name)  # numpy builds it each time

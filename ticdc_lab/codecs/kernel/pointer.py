"""Arrays that compiled functions hand to each other as one pointer.

numba passes an array by value, seven words and more: with a dozen arrays every call copies a hundred words, which took
two thirds of the decoder's time. Here the words lie in a table, and what is passed is the table's address.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
from llvmlite import ir
from numba.core import cgutils, types
from numba.core.typing.templates import AttributeTemplate
from numba.extending import (
    NativeValue,
    infer_getattr,
    lower_getattr_generic,
    models,
    register_model,
    typeof_impl,
    unbox,
)
from numba.np.arrayobj import make_array, populate_array
from numba.np.numpy_support import from_dtype

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


class ArraysType(types.Type):
    """What :class:`Arrays` is to numba."""

    def __init__(self, form: tuple[tuple[str, str, int], ...]) -> None:
        self.place = {name: i for i, (name, _, _) in enumerate(form)}
        self.arrays = {name: types.Array(from_dtype(np.dtype(dtype)), ndim, "C") for name, dtype, ndim in form}
        super().__init__(name=f"Arrays({form})")


@typeof_impl.register(Arrays)
def _typeof(value: Arrays, context: object) -> ArraysType:
    return _type_of(value.form)


@cache
def _type_of(form: tuple[tuple[str, str, int], ...]) -> ArraysType:
    """Made once: numba asks at every call, and making it takes a millisecond."""
    return ArraysType(form)


@register_model(ArraysType)
class _Model(models.PrimitiveModel):
    def __init__(self, dmm: Any, fe_type: ArraysType) -> None:
        super().__init__(dmm, fe_type, ir.IntType(64).as_pointer())


@unbox(ArraysType)
def _unbox(typ: ArraysType, value: Any, c: Any) -> NativeValue:
    address = c.pyapi.object_getattr_string(value, "address")
    words = c.builder.bitcast(c.pyapi.long_as_voidptr(address), ir.IntType(64).as_pointer())
    c.pyapi.decref(address)
    return NativeValue(words, is_error=cgutils.is_not_null(c.builder, c.pyapi.err_occurred()))


@infer_getattr
class _Attribute(AttributeTemplate):
    key = ArraysType

    def generic_resolve(self, typ: ArraysType, name: str) -> Any:
        return typ.arrays.get(name)


@lower_getattr_generic(ArraysType)
def _getattr(context: Any, builder: Any, typ: ArraysType, words: Any, name: str) -> Any:
    form = typ.arrays[name]
    first = typ.place[name] * WORDS

    def word(i: int) -> Any:
        return builder.load(builder.gep(words, [ir.Constant(ir.IntType(64), first + i)]))

    array = make_array(form)(context, builder)
    size = context.get_abi_sizeof(context.get_data_type(form.dtype))
    populate_array(
        array,
        data=builder.inttoptr(word(0), context.get_data_type(form.dtype).as_pointer()),
        shape=[word(1 + d) for d in range(form.ndim)],
        strides=[*[word(3 + d) for d in range(form.ndim - 1)], ir.Constant(ir.IntType(64), size)],
        itemsize=ir.Constant(ir.IntType(64), size),
        meminfo=None,
    )
    return array._getvalue()

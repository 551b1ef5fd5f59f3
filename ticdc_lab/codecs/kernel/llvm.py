"""What kernels do in LLVM's own words, and what :class:`~.pointer.Arrays` are to numba: only compiling imports it.

A function here has the name of the plain one that it replaces (:func:`ticdc_lab.codecs.kernel.jit.in_llvm`).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
from llvmlite import ir
from numba.core import cgutils, types
from numba.core.typing.templates import AttributeTemplate
from numba.extending import infer_getattr, lower_getattr_generic, models, register_model
from numba.np.arrayobj import make_array, populate_array
from numba.np.numpy_support import from_dtype

from ticdc_lab.codecs.kernel.numbering import BLOCK, PRINTED_MAX
from ticdc_lab.codecs.kernel.pointer import WORDS

_I1, _I8, _I32, _I64, _DOUBLE = *(ir.IntType(bits) for bits in (1, 8, 32, 64)), ir.DoubleType()
_TEXT, _BLOCK_OF = _I8.as_pointer(), ir.VectorType(_I8, BLOCK)


class ArraysType(types.Type):
    """What :class:`Arrays` is to numba."""

    def __init__(self, form: tuple[tuple[str, str, int], ...]) -> None:
        self.place = {name: i for i, (name, _, _) in enumerate(form)}
        self.arrays = {name: types.Array(from_dtype(np.dtype(dtype)), ndim, "C") for name, dtype, ndim in form}
        super().__init__(name=f"Arrays({form})")


@cache
def arrays_type(form: tuple[tuple[str, str, int], ...]) -> ArraysType:
    """Made once: making it takes a millisecond."""
    return ArraysType(form)


@register_model(ArraysType)
class _Model(models.PrimitiveModel):  # type: ignore[misc]  # numba has no types
    def __init__(self, dmm: Any, fe_type: ArraysType) -> None:
        super().__init__(dmm, fe_type, _I64.as_pointer())


@infer_getattr
class _Attribute(AttributeTemplate):  # type: ignore[misc]
    key = ArraysType

    def generic_resolve(self, typ: ArraysType, name: str) -> Any:
        return typ.arrays.get(name)


@lower_getattr_generic(ArraysType)  # type: ignore[untyped-decorator]
def _getattr(context: Any, builder: Any, typ: ArraysType, words: Any, name: str) -> Any:
    form = typ.arrays[name]
    first = typ.place[name] * WORDS

    def word(i: int) -> Any:
        return builder.load(builder.gep(words, [ir.Constant(_I64, first + i)]))

    array = make_array(form)(context, builder)
    size = context.get_abi_sizeof(context.get_data_type(form.dtype))
    populate_array(
        array,
        data=builder.inttoptr(word(0), context.get_data_type(form.dtype).as_pointer()),
        shape=[word(1 + d) for d in range(form.ndim)],
        strides=[*[word(3 + d) for d in range(form.ndim - 1)], ir.Constant(_I64, size)],
        itemsize=ir.Constant(_I64, size),
        meminfo=None,
    )
    return array._getvalue()


def _pointer(context: Any, builder: Any, array_type: Any, place: Any, of: Any = _I64) -> Any:
    array, p = place
    data = make_array(array_type)(context, builder, array).data
    return builder.bitcast(builder.gep(data, [p]), of.as_pointer())


def _loaded(of: Any, result: types.Type, widened: Callable[[Any, Any], Any]) -> Callable[..., Any]:
    """What loads a value of an array that may lie at any byte."""

    def typed(typing: Any, b: Any, p: Any) -> Any:
        def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            return widened(builder, builder.load(_pointer(context, builder, signature.args[0], args, of), align=1))

        return result(b, types.int64), generate

    return typed


load = _loaded(_I64, types.uint64, lambda builder, x: x)
load_half = _loaded(_I32, types.uint64, lambda builder, x: builder.zext(x, _I64))
load_double = _loaded(_DOUBLE, types.float64, lambda builder, x: x)
load_single = _loaded(ir.FloatType(), types.float64, lambda builder, x: builder.fpext(x, _DOUBLE))


def store(typing: Any, out: Any, o: Any, w: Any) -> Any:
    """A word, at any byte."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        builder.store(args[2], _pointer(context, builder, signature.args[0], args[:2]), align=1)
        return context.get_dummy_value()

    return types.void(out, types.int64, types.uint64), generate


def _block(context: Any, builder: Any, array_type: Any, place: Any) -> Any:
    return builder.load(_pointer(context, builder, array_type, place, _BLOCK_OF), align=1)


def _each(byte: int) -> Any:
    return ir.Constant(_BLOCK_OF, [byte] * BLOCK)


def _bits_of(builder: Any, flags: Any) -> Any:
    """A bit for each byte of a block, the first byte's lowest, as a number of 64 bits."""
    return builder.zext(builder.bitcast(flags, ir.IntType(BLOCK)), _I64)


def plain_run(typing: Any, b: Any, p: Any) -> Any:
    """A comparison of all bytes at once, and where the first bit of its result is."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        w = _block(context, builder, signature.args[0], args)
        outside = builder.icmp_unsigned(">=", builder.sub(w, _each(0x20)), _each(0x60))
        ends = [builder.icmp_unsigned("==", w, _each(byte)) for byte in b'"\\']
        found = _bits_of(builder, builder.or_(outside, builder.or_(*ends)))
        found = builder.or_(found, ir.Constant(_I64, 1 << BLOCK))
        return builder.cttz(found, ir.Constant(_I1, 1))

    return types.int64(b, types.int64), generate


def same_block(typing: Any, b: Any, p: Any, other: Any, q: Any, n: Any) -> Any:
    """A comparison of all bytes at once."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        mine = _block(context, builder, signature.args[0], args[:2])
        theirs = _block(context, builder, signature.args[2], args[2:4])
        differ = _bits_of(builder, builder.icmp_unsigned("!=", mine, theirs))
        one = ir.Constant(_I64, 1)
        asked = builder.sub(builder.shl(one, args[4]), one)
        return builder.icmp_unsigned("==", builder.and_(differ, asked), ir.Constant(_I64, 0))

    return types.boolean(b, types.int64, other, types.int64, types.int64), generate


def copy_block(typing: Any, b: Any, p: Any, out: Any, o: Any) -> Any:
    """One load and one store."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        w = _block(context, builder, signature.args[0], args[:2])
        builder.store(w, _pointer(context, builder, signature.args[2], args[2:], _BLOCK_OF), align=1)
        return context.get_dummy_value()

    return types.void(b, types.int64, out, types.int64), generate


def same_text_of(typing: Any, b: Any, p: Any, other: Any, q: Any, n: Any) -> Any:
    """C's ``memcmp``."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        form = ir.FunctionType(_I32, [_TEXT, _TEXT, _I64])
        function = cgutils.get_or_insert_function(builder.module, form, "memcmp")
        places = [_pointer(context, builder, signature.args[k], args[k : k + 2], _I8) for k in (0, 2)]
        found = builder.call(function, [*places, args[4]])
        return builder.icmp_signed("==", found, ir.Constant(_I32, 0))

    return types.boolean(b, types.int64, other, types.int64, types.int64), generate


def read_number(typing: Any, b: Any, p: Any, q: Any) -> Any:
    """C's ``strtod``; not a number where it reads less or more than what lies between the positions."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        form = ir.FunctionType(_DOUBLE, [_TEXT, _TEXT.as_pointer()])
        function = cgutils.get_or_insert_function(builder.module, form, "strtod")
        end = cgutils.alloca_once(builder, _TEXT)
        x = builder.call(function, [_pointer(context, builder, signature.args[0], args[:2], _I8), end])
        whole = builder.icmp_unsigned(
            "==", builder.load(end), _pointer(context, builder, signature.args[0], args[::2], _I8)
        )
        return builder.select(whole, x, ir.Constant(_DOUBLE, float("nan")))

    return types.float64(b, types.int64, types.int64), generate


def print_number(typing: Any, out: Any, o: Any, digits: Any, x: Any) -> Any:
    """C's ``snprintf`` with so many digits in exponent form, and a zero behind them; how many bytes that are."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        function = cgutils.get_or_insert_function(
            builder.module, ir.FunctionType(_I32, [_TEXT, _I64, _TEXT], var_arg=True), "snprintf"
        )
        form = context.insert_const_string(builder.module, "%.*e")
        at = _pointer(context, builder, signature.args[0], args[:2], _I8)
        behind_point = builder.sub(builder.trunc(args[2], _I32), ir.Constant(_I32, 1))
        written = builder.call(function, [at, ir.Constant(_I64, PRINTED_MAX), form, behind_point, args[3]])
        return builder.sext(written, _I64)

    return types.int64(out, types.int64, types.int64, types.float64), generate

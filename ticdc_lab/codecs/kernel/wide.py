"""Eight or 32 bytes at a time: unaligned words and blocks of an array of bytes.

No bounds are checked here: the caller has seen that the word :func:`fits`, or the block :func:`block_fits`.
"""

from __future__ import annotations

import struct
import sys
from typing import Any

import numba
import numpy as np
from llvmlite import ir
from numba.core import cgutils, types
from numba.extending import intrinsic
from numba.np.arrayobj import make_array

from ticdc_lab.codecs.kernel.jit import small_kernel

assert sys.byteorder == "little", "the kernels read words as little-endian machines write them"

WORD, BLOCK = 8, 32
_BLOCK_OF = ir.VectorType(ir.IntType(8), BLOCK)


def _pointer(context: Any, builder: Any, array_type: Any, array: Any, p: Any, of: Any = None) -> Any:
    data = make_array(array_type)(context, builder, array).data
    return builder.bitcast(builder.gep(data, [p]), (of or ir.IntType(64)).as_pointer())


def _number(bits: int) -> Any:
    """So many bits of an array as a number without a sign."""

    def typed(typing: Any, b: Any, p: Any) -> Any:
        def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            at = _pointer(context, builder, signature.args[0], *args, of=ir.IntType(bits))
            return builder.zext(builder.load(at, align=1), ir.IntType(64))

        return types.uint64(b, types.int64), generate

    def checked(b: np.ndarray, p: int) -> np.uint64:
        return np.uint64(sum(int(b[p + i]) << 8 * i for i in range(bits // 8)))

    return checked if numba.config.DISABLE_JIT else intrinsic(typed)


load, load_half = _number(64), _number(32)
"""The word and the half of one at a position."""


def _loader(bits: Any, number: Any, form: Any) -> Any:
    """A number that lies in an array as so many bits, as a DOUBLE."""

    def typed(typing: Any, b: Any, p: Any) -> Any:
        def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            data = make_array(signature.args[0])(context, builder, args[0]).data
            at = builder.bitcast(builder.gep(data, [args[1]]), number.as_pointer())
            x = builder.load(at, align=1)
            return x if bits == WORD else builder.fpext(x, ir.DoubleType())

        return types.float64(b, types.int64), generate

    def checked(b: np.ndarray, p: int) -> float:
        return float(struct.unpack(form, bytes(int(b[p + i]) for i in range(bits)))[0])

    return checked if numba.config.DISABLE_JIT else intrinsic(typed)


load_single, load_double = _loader(4, ir.FloatType(), "<f"), _loader(WORD, ir.DoubleType(), "<d")
"""The FLOAT and the DOUBLE at a position, as a DOUBLE."""


@intrinsic
def _store(typing: Any, out: Any, o: Any, w: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        builder.store(args[2], _pointer(context, builder, signature.args[0], *args[:2]), align=1)
        return context.get_dummy_value()

    return types.void(out, types.int64, types.uint64), generate


def _block(context: Any, builder: Any, array_type: Any, array: Any, p: Any) -> Any:
    return builder.load(_pointer(context, builder, array_type, array, p, _BLOCK_OF), align=1)


def _each(byte: int) -> Any:
    return ir.Constant(_BLOCK_OF, [byte] * BLOCK)


def _bits_of(builder: Any, flags: Any) -> Any:
    """A bit for each byte of a block, the first byte's lowest, as a number of 64 bits."""
    return builder.zext(builder.bitcast(flags, ir.IntType(BLOCK)), ir.IntType(64))


@intrinsic
def _plain_run(typing: Any, b: Any, p: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        w = _block(context, builder, signature.args[0], *args)
        outside = builder.icmp_unsigned(">=", builder.sub(w, _each(0x20)), _each(0x60))
        ends = [builder.icmp_unsigned("==", w, _each(byte)) for byte in b'"\\']
        found = _bits_of(builder, builder.or_(outside, builder.or_(*ends)))
        found = builder.or_(found, ir.Constant(ir.IntType(64), 1 << BLOCK))
        return builder.cttz(found, ir.Constant(ir.IntType(1), 1))

    return types.int64(b, types.int64), generate


@intrinsic
def _same_block(typing: Any, b: Any, p: Any, other: Any, q: Any, n: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        mine = _block(context, builder, signature.args[0], *args[:2])
        theirs = _block(context, builder, signature.args[2], *args[2:4])
        differ = _bits_of(builder, builder.icmp_unsigned("!=", mine, theirs))
        one = ir.Constant(ir.IntType(64), 1)
        asked = builder.sub(builder.shl(one, args[4]), one)
        return builder.icmp_unsigned("==", builder.and_(differ, asked), ir.Constant(ir.IntType(64), 0))

    return types.boolean(b, types.int64, other, types.int64, types.int64), generate


@intrinsic
def _copy_block(typing: Any, b: Any, p: Any, out: Any, o: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        w = _block(context, builder, signature.args[0], *args[:2])
        builder.store(w, _pointer(context, builder, signature.args[2], *args[2:], of=_BLOCK_OF), align=1)
        return context.get_dummy_value()

    return types.void(b, types.int64, out, types.int64), generate


@intrinsic
def _compare(typing: Any, b: Any, p: Any, other: Any, q: Any, n: Any) -> Any:
    """C's ``memcmp``."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        text, i64 = ir.IntType(8).as_pointer(), ir.IntType(64)
        form = ir.FunctionType(ir.IntType(32), [text, text, i64])
        function = cgutils.get_or_insert_function(builder.module, form, "memcmp")
        places = [_pointer(context, builder, signature.args[k], *args[k : k + 2], of=ir.IntType(8)) for k in (0, 2)]
        found = builder.call(function, [*places, args[4]])
        return builder.icmp_signed("==", found, ir.Constant(ir.IntType(32), 0))

    return types.boolean(b, types.int64, other, types.int64, types.int64), generate


def _store_checked(out: np.ndarray, o: int, w: np.uint64) -> None:
    for i in range(WORD):
        out[o + i] = int(w) >> 8 * i & 0xFF


def _plain_run_checked(b: np.ndarray, p: int) -> int:
    special = (i for i in range(BLOCK) if not 0x20 <= b[p + i] < 0x80 or b[p + i] in b'"\\')
    return min(special, default=BLOCK)


def _same_checked(b: np.ndarray, p: int, other: np.ndarray, q: int, n: int) -> bool:
    return all(b[p + i] == other[q + i] for i in range(n))


def _copy_checked(b: np.ndarray, p: int, out: np.ndarray, o: int) -> None:
    for i in range(BLOCK):
        out[o + i] = b[p + i]


# Without a compiler (tests run the kernels so, over arrays that check every index) each is a plain function.
_interpreted = bool(numba.config.DISABLE_JIT)
store = _store_checked if _interpreted else _store
plain_run = _plain_run_checked if _interpreted else _plain_run
"""How many bytes of a block, from its first, are plain inside a JSON string: ASCII, no quote, backslash, control."""
same_block = _same_checked if _interpreted else _same_block
"""Whether the first so many bytes of two blocks, at most all, are the same."""
same_text_of = _same_checked if _interpreted else _compare
"""Whether so many bytes are the same, also more than a block."""
copy_block = _copy_checked if _interpreted else _copy_block


@small_kernel
def fits(b: np.ndarray, p: int) -> bool:
    """Whether a word at ``p`` lies inside the array."""
    return p + WORD <= len(b)


@small_kernel
def block_fits(b: np.ndarray, p: int) -> bool:
    """Whether a block at ``p`` lies inside the array."""
    return p + BLOCK <= len(b)

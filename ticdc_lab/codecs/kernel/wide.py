"""Eight bytes at a time: unaligned words of an array of bytes, and the first byte of a word that a scan must look at.

No bounds are checked here: the caller has seen that the word :func:`fits`.
"""

from __future__ import annotations

import struct
import sys
from typing import Any

import numba
import numpy as np
from llvmlite import ir
from numba.core import types
from numba.extending import intrinsic
from numba.np.arrayobj import make_array

from ticdc_lab.codecs.kernel.jit import small_kernel

assert sys.byteorder == "little", "the kernels read words as little-endian machines write them"

WORD = 8
_ONES, _HIGH = np.uint64(0x0101010101010101), np.uint64(0x8080808080808080)
_SPACES, _QUOTES, _BACKSLASHES = _ONES * np.uint64(0x20), _ONES * np.uint64(0x22), _ONES * np.uint64(0x5C)


def _pointer(context: Any, builder: Any, array_type: Any, array: Any, p: Any) -> Any:
    data = make_array(array_type)(context, builder, array).data
    return builder.bitcast(builder.gep(data, [p]), ir.IntType(64).as_pointer())


@intrinsic
def _load(typing: Any, b: Any, p: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.load(_pointer(context, builder, signature.args[0], *args), align=1)

    return types.uint64(b, types.int64), generate


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


@intrinsic
def _trailing_zeros(typing: Any, w: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.cttz(args[0], ir.Constant(ir.IntType(1), 1))

    return types.int64(types.uint64), generate


def _load_checked(b: np.ndarray, p: int) -> np.uint64:
    return np.uint64(sum(int(b[p + i]) << 8 * i for i in range(WORD)))


def _store_checked(out: np.ndarray, o: int, w: np.uint64) -> None:
    for i in range(WORD):
        out[o + i] = int(w) >> 8 * i & 0xFF


def _trailing_zeros_of(w: np.uint64) -> int:
    return (int(w) & -int(w)).bit_length() - 1


# Without a compiler (tests run the kernels so, over arrays that check every index) each is a plain function.
_interpreted = bool(numba.config.DISABLE_JIT)
load = _load_checked if _interpreted else _load
store = _store_checked if _interpreted else _store
trailing_zeros = _trailing_zeros_of if _interpreted else _trailing_zeros


@small_kernel
def fits(b: np.ndarray, p: int) -> bool:
    """Whether a word at ``p`` lies inside the array."""
    return p + WORD <= len(b)


@small_kernel
def plain_bytes(w: np.uint64) -> int:
    """How many bytes of a word, from its first, are plain inside a JSON string: ASCII, no quote, backslash, control."""
    quote, backslash = w ^ _QUOTES, w ^ _BACKSLASHES
    # a borrow runs to higher bytes only, so the lowest bit found is right
    found = ((w - _SPACES) & ~w) | ((quote - _ONES) & ~quote) | ((backslash - _ONES) & ~backslash) | w
    found &= _HIGH
    return WORD if found == np.uint64(0) else trailing_zeros(found) >> 3

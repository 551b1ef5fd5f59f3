"""Words of eight bytes agree with bytes one by one."""

from __future__ import annotations

import numpy as np
from hypothesis import example, given, settings
from hypothesis import strategies as st

from ticdc_lab.codecs.kernel.jit import kernel
from ticdc_lab.codecs.kernel.text import put_bytes
from ticdc_lab.codecs.kernel.wide import load, plain_bytes


@kernel
def plain_at(b: np.ndarray, p: int) -> int:
    """Compiled."""
    return plain_bytes(load(b, p))


@kernel
def put(b: np.ndarray, start: int, stop: int, out: np.ndarray, o: int) -> int:
    """Compiled."""
    return put_bytes(b, start, stop, out, o)


@settings(deadline=None)  # the first one compiles
@given(st.binary(min_size=8, max_size=8), st.integers(0, 7))
@example(b'"\x21!!!!!!', 0)
@example(b'\x1f \x80\xff\\"\x00z', 1)
@example(b"!\x22\x23[\\]\x7f\x80", 2)
def test_plain_bytes_ends_at_the_first_that_is_not(word: bytes, shift: int) -> None:
    """The count stops at a quote, a backslash, a control or a byte of a longer character."""
    b = np.frombuffer(b"~" * shift + word, np.uint8).copy()
    special = [i for i, c in enumerate(word) if c < 0x20 or c >= 0x80 or c in b'"\\']
    assert plain_at(b, shift) == min([*special, 8])


@settings(deadline=None)
@given(st.binary(max_size=40), st.data())
def test_bytes_are_put_as_they_are(source: bytes, data: st.DataObject) -> None:
    """Also where no whole word fits, and nothing before the place is touched."""
    start = data.draw(st.integers(0, len(source)))
    stop = data.draw(st.integers(start, len(source)))
    out = np.full(stop - start + 3, 0x7E, np.uint8)
    b = np.frombuffer(source + b"!", np.uint8)[:-1].copy()
    assert put(b, start, stop, out, 3) == len(out)
    assert out.tobytes() == b"~~~" + source[start:stop]

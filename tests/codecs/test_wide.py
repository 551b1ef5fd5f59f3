"""Words of eight bytes and blocks of 32 agree with bytes one by one."""

from __future__ import annotations

import numpy as np
from hypothesis import example, given, settings
from hypothesis import strategies as st

from ticdc_lab.codecs.kernel.jit import kernel
from ticdc_lab.codecs.kernel.numbering import BLOCK
from ticdc_lab.codecs.kernel.scan import same_bytes
from ticdc_lab.codecs.kernel.text import put_bytes
from ticdc_lab.codecs.kernel.wide import plain_run


@kernel
def plain_at(b: np.ndarray, p: int) -> int:
    """Compiled."""
    return plain_run(b, p)


@kernel
def put(b: np.ndarray, start: int, stop: int, out: np.ndarray, o: int) -> int:
    """Compiled."""
    return put_bytes(b, start, stop, out, o)


@kernel
def are_same(b: np.ndarray, start: int, stop: int, other: np.ndarray, at: int, end: int) -> bool:
    """Compiled."""
    return same_bytes(b, start, stop, other, at, end)


@settings(deadline=None)  # the first one compiles
@given(st.binary(min_size=8, max_size=8), st.integers(0, 24), st.integers(0, 7))
@example(b'"\x21!!!!!!', 0, 0)
@example(b'\x1f \x80\xff\\"\x00z', 1, 1)
@example(b"!\x22\x23[\\]\x7f\x80", 24, 2)
@example(b"!!!!!!!!", 0, 7)
def test_a_plain_run_ends_at_the_first_that_is_not(some: bytes, at: int, shift: int) -> None:
    """The count stops at a quote, a backslash, a control or a byte of a longer character."""
    block = (b"~" * at + some).ljust(BLOCK, b"!")
    b = np.frombuffer(b"~" * shift + block, np.uint8).copy()
    special = [i for i, c in enumerate(block) if c < 0x20 or c >= 0x80 or c in b'"\\']
    assert plain_at(b, shift) == min([*special, BLOCK])


@settings(deadline=None)
@given(st.binary(max_size=80), st.data())
def test_bytes_are_the_same_to_the_last_and_no_further(some: bytes, data: st.DataObject) -> None:
    """One other byte is found at any place between the positions, near the end of an array, too; none outside."""
    start = data.draw(st.integers(0, len(some)))
    stop = data.draw(st.integers(start, len(some)))
    b = np.frombuffer(some + b"!", np.uint8)[:-1].copy()
    other = np.frombuffer(b"??" + some[start:stop] + b"~~", np.uint8).copy()
    assert are_same(b, start, stop, other, 2, len(other) - 2)
    assert not are_same(b, start, stop, other, 2, len(other) - 1)
    if stop > start:
        at = data.draw(st.integers(2, len(other) - 3))
        other[at] ^= 1 << data.draw(st.integers(0, 7))
        assert not are_same(b, start, stop, other, 2, len(other) - 2)


@settings(deadline=None)
@given(st.binary(max_size=80), st.data())
def test_bytes_are_put_as_they_are(source: bytes, data: st.DataObject) -> None:
    """Also where no whole word fits, and nothing before the place is touched."""
    start = data.draw(st.integers(0, len(source)))
    stop = data.draw(st.integers(start, len(source)))
    out = np.full(stop - start + 3, 0x7E, np.uint8)
    b = np.frombuffer(source + b"!", np.uint8)[:-1].copy()
    assert put(b, start, stop, out, 3) == len(out)
    assert out.tobytes() == b"~~~" + source[start:stop]

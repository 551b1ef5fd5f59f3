"""TSO integers of virtual time."""

from __future__ import annotations

import pytest

from ticdc_lab.machines.clock import before, ts_of, us_of


@pytest.mark.parametrize("at_us", [1, 999, 1000, 1001, 200_000, 3_000_500])
def test_before_is_below_and_the_microsecond_before(at_us):
    """Also at a whole millisecond, where the integer below is a moment a quarter of a second later."""
    assert us_of(ts_of(at_us)) == at_us
    assert before(ts_of(at_us)) == ts_of(at_us - 1) < ts_of(at_us)


def test_before_is_below_also_where_the_logical_part_is_no_microsecond():
    """A client that counts on within one moment."""
    ts = ts_of(5000) + 1500
    assert before(ts) == ts - 1

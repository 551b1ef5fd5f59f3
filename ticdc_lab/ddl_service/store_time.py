"""The time of a store, by which the clocks of its workers are bounded: one that is wrong makes no wrong timestamps."""

from __future__ import annotations

import logging
import time

from ticdc_lab.machines.clock import EPOCH_MS
from ticdc_lab.machines.machine import Now

MOST_SKEW_US = 5_000_000
"""A worker's timestamps are never further from the store's time than this."""
_SLEEPS_TOO = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
LOG = logging.getLogger("ticdc_lab.ddl_service")


def wall_us() -> int:
    """Give the system's time, µs since 1970: it can be set."""
    return time.time_ns() // 1000


def steady_us() -> int:
    """Give the time since the machine was started, which is never set; it advances while the machine sleeps."""
    return time.clock_gettime_ns(_SLEEPS_TOO) // 1000


class StoreTime:
    """What one connection knows of its store's time.

    ``offset_us``: the store's time less this machine's steady time; None before it is known.
    """

    def __init__(self, offset_us: int | None = None) -> None:
        self.offset_us = offset_us
        self._said = 0

    @property
    def skew_us(self) -> int:
        """How far the system's time is ahead of the store's; 0 while that is not known."""
        return 0 if self.offset_us is None else wall_us() - steady_us() - self.offset_us

    def now(self) -> Now:
        """Give the moment: the time by which timestamps are made, and the steady clock, by which leases are judged."""
        skew_us = self.skew_us
        side = (skew_us > MOST_SKEW_US) - (skew_us < -MOST_SKEW_US)
        if side != self._said:
            self._said = side
            self._say(skew_us)
        beyond_us = skew_us - max(-MOST_SKEW_US, min(skew_us, MOST_SKEW_US))
        at_us = wall_us() - beyond_us - EPOCH_MS * 1000
        return Now(at_us, skew_us=time.monotonic_ns() // 1000 - at_us)

    def _say(self, skew_us: int) -> None:
        if not self._said:
            LOG.warning("this machine's clock agrees with the store's again")
            return
        where = "ahead of" if skew_us > 0 else "behind"
        LOG.warning(
            "this machine's clock is %.0f s %s the store's: timestamps stay within %.0f s of the store's time",
            abs(skew_us) / 1e6, where, MOST_SKEW_US / 1e6,
        )  # fmt: skip

"""What clients get of the stores' disks beside snapshots: how long they wait, and which store is busy or slow.

A disk serves clients and snapshots. As long as both together want no more than it can give, nobody waits. Where they
want more, snapshots get what clients leave, but half of the disk at least; what clients do not get waits.
"""

from __future__ import annotations

from ticdc_lab.simulate.pd.world.settings import SECOND_US, WorldSettings

BUSY_AFTER_S, SLOW_AFTER_S = 1.0, 0.5
"""Requests that wait for longer: the store's heartbeat says that it is busy; they count as timed out for its score."""

SLOWEST, SLOW, SOUND = 100.0, 80.0, 1.0
"""Of slow scores (TiKV): a round in which a tenth of the requests timed out doubles it, five minutes without bring it
from the worst to the best one. PD calls a store slow from 80 on."""
_SHARE, _RECOVERS_S = 0.1, 300.0


class Disk:
    """One store's; MiB, and MiB a tick.

    Attributes
    ----------
    rate
        What it can give.
    wanted, written
        What clients want, and how much of it they write.
    waiting
        What they wanted and did not get yet.
    worst_s
        The longest that a request has waited.
    """

    __slots__ = (
        "_at_tick",
        "_heard_tick",
        "_slow_ticks",
        "_snapshots",
        "rate",
        "score",
        "waiting",
        "wanted",
        "worst_s",
        "written",
    )

    def __init__(self, rate: float) -> None:
        self.rate, self.wanted, self.written, self.waiting, self.worst_s, self.score = rate, 0.0, 0.0, 0.0, 0.0, SOUND
        self._snapshots, self._slow_ticks = 0.0, 0
        self._at_tick = self._heard_tick = 0

    def wait_s(self, settings: WorldSettings) -> float:
        """Give how long a request that comes now waits."""
        return self.waiting / self.rate * settings.tick_us / SECOND_US

    def go_on(self, tick: int, settings: WorldSettings) -> None:
        """Serve clients up to a tick: what snapshots took of the latest one is not theirs."""
        ticks = tick - self._at_tick
        if ticks <= 0:
            return
        self._at_tick = tick
        self.waiting = max(0.0, self.waiting + self.wanted - max(0.0, self.rate - self._snapshots))
        self.waiting = max(0.0, self.waiting + (ticks - 1) * (self.wanted - self.rate))
        self._snapshots = 0.0
        wait_s = self.wait_s(settings)
        self.worst_s = max(self.worst_s, wait_s)
        if wait_s > SLOW_AFTER_S:
            self._slow_ticks += ticks

    def for_snapshots(self, tick: int, settings: WorldSettings) -> float:
        """Give how much of this tick snapshots may still take."""
        self.go_on(tick, settings)
        return max(self.rate - self.wanted - self.waiting, self.rate / 2) - self._snapshots

    def take(self, mib: float) -> None:
        """Count what a snapshot took."""
        self._snapshots += mib

    def heartbeat(self, tick: int, settings: WorldSettings) -> bool:
        """Judge the time since the heartbeat before: the slow score, and whether the store is busy now."""
        self.go_on(tick, settings)
        ticks = max(1, tick - self._heard_tick)
        share = min(self._slow_ticks / ticks, _SHARE) / _SHARE
        if share:
            self.score = min(SLOWEST, self.score * (1 + share))
        else:
            self.score = max(SOUND, self.score - SLOWEST * ticks * settings.tick_us / SECOND_US / _RECOVERS_S)
        self._slow_ticks, self._heard_tick = 0, tick
        return self.wait_s(settings) > BUSY_AFTER_S

    def want(self, read: float, written: float, tick: int, settings: WorldSettings) -> None:
        """Let clients want other things from now on."""
        if (read + written, written) != (self.wanted, self.written):
            self.go_on(tick, settings)
            self.wanted, self.written = read + written, written

    def change_rate(self, rate: float, tick: int, settings: WorldSettings) -> None:
        """Let it give more or less from now on."""
        self.go_on(tick, settings)
        self.rate = rate

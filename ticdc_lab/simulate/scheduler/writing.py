"""Who writes one table or span, and time that adds up while it still goes on."""

from __future__ import annotations

from dataclasses import dataclass, field

from ticdc_lab.simulate.scheduler.executor import WRITING


def table_of(key: str) -> int:
    """Give the table of a table or of one of its spans (``7[a,b)``)."""
    return int(key.partition("[")[0])


@dataclass(slots=True)
class Writing:
    """One table or span: its pipelines by address, who wrote it last, and when it began to have two or no writers.

    ``status`` is ``up`` while some capture replicates it, ``down`` while it is under way or went down with its capture,
    and empty where it is nowhere: a whole table that was split, a span that was merged.
    """

    states: dict[str, str] = field(default_factory=dict)
    status: str = ""
    home: str = ""
    left_us: dict[str, int] | None = None
    double_since_us: int | None = None
    idle_since_us: int | None = None

    @property
    def writers(self) -> list[str]:
        """Addresses that write it."""
        return [a for a, s in self.states.items() if s in WRITING]


@dataclass(slots=True)
class Total:
    """Time of stretches that may still go on, added up without looking at each."""

    ended_us: int = 0
    n: int = 0
    begun_us: int = 0

    def begin(self, at_us: int) -> None:
        """One more begins."""
        self.n, self.begun_us = self.n + 1, self.begun_us + at_us

    def end(self, since_us: int, at_us: int) -> None:
        """One that began at ``since_us`` ends."""
        self.n, self.begun_us = self.n - 1, self.begun_us - since_us
        self.ended_us += at_us - since_us

    def until(self, at_us: int) -> int:
        """Give the time of all of them, until a moment."""
        return self.ended_us + self.n * at_us - self.begun_us

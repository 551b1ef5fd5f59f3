"""What happens to a consumer while it reads: speeds, pauses, crashes, partitions that move between its processes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal


@dataclass(frozen=True, slots=True)
class Pause:
    """A listener that reads nothing from ``at_us`` until just before ``until_us`` (µs of consumer time)."""

    partition: int
    at_us: int
    until_us: int


@dataclass(frozen=True, slots=True)
class Crash:
    """A process that dies at ``at_us`` and begins again at ``back_us`` where its progress was saved."""

    process: int
    at_us: int
    back_us: int


@dataclass(frozen=True, slots=True)
class Rebalance:
    """A partition that goes to another process at ``at_us``, which begins at ``back_us`` where progress was saved."""

    partition: int
    to_process: int
    at_us: int
    back_us: int


Fault = Crash | Rebalance


@dataclass(frozen=True, slots=True)
class Listeners:
    """One listener a partition, each in a process.

    Attributes
    ----------
    per_second
        Messages that a listener reads in a second.
    speeds
        Partition to messages a second, where it is another number.
    processes
        Number of processes; partition p begins in process ``p % processes``.
    pauses, faults
        What happens, at which time of the consumer's clock, which begins at 0.
    write_us
        What one downstream transaction takes, µs. Rows are visible when it ends; a crash waits for it.
    arrival
        ``at once``: all messages are there when the consumer starts; ``as committed``: a message can be read no earlier
        than the commit_ts of it and of all before it in the partition say, the consumer's clock being 0 at the least;
        ``as recorded``: no earlier than the log's ``arrival`` says.
    """

    per_second: int = 10_000
    speeds: Mapping[int, int] = field(default_factory=dict)
    processes: int = 1
    pauses: tuple[Pause, ...] = ()
    faults: tuple[Fault, ...] = ()
    write_us: int = 0
    arrival: Literal["at once", "as committed", "as recorded"] = "at once"

"""What happens to a consumer while it reads: speeds, pauses, crashes, partitions that move between its processes."""

from __future__ import annotations

from collections.abc import Mapping, Set
from dataclasses import dataclass, field
from typing import Literal

from ticdc_lab.errors import ContractError


@dataclass(frozen=True, slots=True)
class Pause:
    """A listener that reads nothing from ``at_us`` until just before ``until_us`` (µs of consumer time).

    Where ``topic`` is None, the listeners of that partition in every topic.
    """

    partition: int
    at_us: int
    until_us: int
    topic: str | None = None


@dataclass(frozen=True, slots=True)
class Crash:
    """A process that dies at ``at_us`` and begins again at ``back_us`` where its progress was saved."""

    process: int
    at_us: int
    back_us: int


@dataclass(frozen=True, slots=True)
class Rebalance:
    """A partition that goes to another process at ``at_us``, which begins at ``back_us`` where progress was saved.

    Where ``topic`` is None, that partition of every topic.
    """

    partition: int
    to_process: int
    at_us: int
    back_us: int
    topic: str | None = None


Fault = Crash | Rebalance


@dataclass(frozen=True, slots=True)
class Listeners:
    """One listener a partition, each in a process.

    Attributes
    ----------
    per_second
        Messages that a listener reads in a second; 0: reading takes no time.
    speeds
        Partition, or topic and partition, to messages a second, where it is another number.
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

    Raises
    ------
    ContractError
        There is no process, or a speed or time is negative, or something ends before it begins.
    """

    per_second: int = 10_000
    speeds: Mapping[int | tuple[str, int], int] = field(default_factory=dict)
    processes: int = 1
    pauses: tuple[Pause, ...] = ()
    faults: tuple[Fault, ...] = ()
    write_us: int = 0
    arrival: Literal["at once", "as committed", "as recorded"] = "at once"

    def __post_init__(self) -> None:
        if self.processes < 1 or min(self.per_second, self.write_us, *self.speeds.values()) < 0:
            raise ContractError(
                f"{self.processes} processes, {self.per_second} messages a second ({dict(self.speeds)}) and "
                f"{self.write_us} µs a write are no consumer.",
                hint="There is at least one process; speeds and times are 0 or more.",
            )
        spans = [*((p, p.at_us, p.until_us) for p in self.pauses), *((f, f.at_us, f.back_us) for f in self.faults)]
        for what, at_us, end_us in spans:
            if not 0 <= at_us <= end_us:
                raise ContractError(
                    f"{what} ends before it begins, or begins before the consumer does.",
                    hint="Times are µs of the consumer's clock, which begins at 0.",
                )

    def require_there(self, partitions: Set[int]) -> None:
        """Refuse speeds, pauses and faults of a partition or process that is not there: a typing error does nothing.

        Raises
        ------
        ContractError
            One is not.
        """
        named = {p if isinstance(p, int) else p[1] for p in self.speeds} | {p.partition for p in self.pauses}
        moved = {f.partition for f in self.faults if isinstance(f, Rebalance)}
        crashed = {f.process for f in self.faults if isinstance(f, Crash)}
        reached = {f.to_process for f in self.faults if isinstance(f, Rebalance)}
        unknown = {
            "partition": (named | moved) - partitions, "process": {p for p in crashed | reached if p >= self.processes}
        }  # fmt: skip
        for what, strange in unknown.items():
            if strange:
                raise ContractError(
                    f"There is no {what} {', '.join(map(str, sorted(strange)))}; the log has partitions "
                    f"{sorted(partitions)}, and the consumer {self.processes} processes, which count from 0."
                )

"""Listeners: their speed and faults; the position, buffer and next reads of each."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field
from typing import Literal

import numpy as np

from ticdc_lab.consumer.log import ADMIN, DDL, ROW, WATERMARK, LogPart, NarrowLog
from ticdc_lab.errors import ContractError
from ticdc_lab.events.arrays import Bools, Ints, changes_in


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
        than the commit_ts of it and of all before it in the partition, the consumer's clock being 0 at the least;
        ``as recorded``: no earlier than the log's ``arrival``.

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
                hint="Give at least 1 for `processes`, and 0 or more for `speeds` and times.",
            )
        spans = [*((p, p.at_us, p.until_us) for p in self.pauses), *((f, f.at_us, f.back_us) for f in self.faults)]
        for what, at_us, end_us in spans:
            if not 0 <= at_us <= end_us:
                raise ContractError(
                    f"{what} ends before it begins, or begins before the consumer does.",
                    hint="Give times in µs of the consumer's clock, which begins at 0, as --pause NUMBER=FROM:UNTIL.",
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


class Pauses:
    """The pauses of one listener, those that overlap as one. ``pauses``: in any order."""

    def __init__(self, pauses: Iterable[Pause]) -> None:
        spans: list[tuple[int, int]] = []
        for at, until in sorted((p.at_us, p.until_us) for p in pauses if p.until_us > p.at_us):
            if spans and at <= spans[-1][1]:
                spans[-1] = (spans[-1][0], max(until, spans[-1][1]))
            else:
                spans.append((at, until))
        self._at, self._until = np.array(spans, np.int64).reshape(-1, 2).T
        self._lost = np.concatenate([[0], np.cumsum(self._until - self._at)])

    def __len__(self) -> int:
        return len(self._at)

    def awake(self, times: Ints) -> Ints:
        """Each moment, or the end of the pause that it lies in."""
        i = np.searchsorted(self._at, times, side="right") - 1
        return np.where(i < 0, times, np.maximum(times, self._until[i]))

    def worked(self, times: Ints) -> Ints:
        """How much of the time up to each moment is not paused, µs."""
        i = np.searchsorted(self._at, times, side="right") - 1
        inside = np.minimum(times, self._until[i]) - self._at[i]
        return np.where(i < 0, times, times - self._lost[i] - inside)

    def when(self, worked: Ints) -> Ints:
        """The first moment by which so much is worked, µs."""
        begins = self._at - self._lost[:-1]
        moments: Ints = worked + self._lost[np.searchsorted(begins, worked, side="left")]
        return moments


_NOTHING = np.empty(0, np.int64)
_ALL = np.iinfo(np.int64).max
_SECOND_US = 1_000_000


@dataclass(slots=True)
class Listener:
    """The state of one listener; indices are places in the log's arrays."""

    number: int
    part: LogPart
    process: int
    at: int  # the next event to read
    pace: Pace
    clock: int = 0  # when it is free to read on, µs
    # The greatest watermark that it has read, 0 before the first; ``marked_at`` is its place, -1 before the first.
    resolved: int = 0
    marked_at: int = -1
    held: list[Ints] = field(default_factory=list)  # row changes read and not written, in the order of reading
    lowest: int = _ALL  # no commit_ts of what is held is below it
    saved: int = 0  # where it begins again after a crash or a move
    stands_at: int = -1  # the DDL that it waits at; -1 if none
    admin_at: int = -1  # place of the Admin event that it waits at; -1 if none
    since: int = 0
    ended: bool = False  # whether it was noted that nothing is left to read
    _stop: int = -1
    _times: Ints = field(default_factory=lambda: _NOTHING)
    _from: int = 0

    @property
    def stands(self) -> bool:
        """Whether it waits for other listeners, at a DDL or an Admin event."""
        return self.stands_at >= 0 or self.admin_at >= 0

    def next_control(self) -> tuple[int, int]:
        """Time and place of the next event that is no row change; the place is the partition's end if none is left."""
        if self._stop < 0:
            self._from, self._stop = self.at, self.pace.next_control(self.at)
            self._times = self.pace.times(self.at, min(self._stop + 1, self.part.end), self.clock)
        ready = int(self._times[-1]) if len(self._times) else self.clock
        return ready, self._stop

    def rows_until(self, time: int) -> tuple[Ints, Ints]:
        """Pass the row changes before the next control that are read by ``time``: their places, and when."""
        self.next_control()
        low, high = self.at - self._from, self._stop - self._from
        high = max(low, min(high, int(self._times.searchsorted(time, side="right"))))
        self.at = self._from + high
        if self.at >= self.part.end:
            self.clock = int(self._times[-1])
        if low == high:
            return _NOTHING, _NOTHING
        places = np.arange(self._from + low, self._from + high)
        kept = self.pace.log.kind[places] == ROW
        return places[kept], self._times[low:high][kept]

    def pass_control(self, time: int) -> None:
        """Go behind the control that was read at ``time``."""
        self.at, self.clock, self._stop = self._stop + 1, time, -1

    def begin(self, time: int) -> None:
        """Read on at ``time`` and not before."""
        self.clock, self._stop = max(self.clock, time), -1

    def go_back(self, time: int) -> Ints:
        """Begin again at ``time`` where progress was saved; what was held is forgotten and returned."""
        lost = self.waiting()
        self.at, self.clock, self.held, self.lowest = self.saved, time, [], _ALL
        self.resolved, self.marked_at, self.ended, self._stop = 0, -1, False, -1
        self.stands_at = self.admin_at = -1
        return lost

    def waiting(self) -> Ints:
        """Places of the row changes held, in the order of reading."""
        if len(self.held) > 1:
            self.held = [np.concatenate(self.held)]
        return self.held[0] if self.held else _NOTHING

    def hold(self, places: Ints) -> None:
        """Keep row changes until they are written."""
        if len(places):
            self.held.append(places)
            self.lowest = min(self.lowest, int(self.pace.log.commit_ts[places].min()))

    def take(self, which: Bools) -> Ints:
        """Release and return the rows of :meth:`waiting` that ``which`` names."""
        held = self.waiting()
        self.held, self.lowest = [], _ALL
        self.hold(held[~which])
        return held[which]


class Pace:
    """When a listener that reads from a place at a time has read what follows.

    ``log``: the log. ``part``: the listener's partition. ``listeners``: speeds and pauses. ``arrival``: when each event
    of the log can be read, µs.
    """

    def __init__(self, log: NarrowLog, part: LogPart, listeners: Listeners, arrival: Ints) -> None:
        self.log, self._part = log, part
        of_all = listeners.speeds.get(part.partition, listeners.per_second)
        speed = listeners.speeds.get((part.topic, part.partition), of_all)
        self._cost = _SECOND_US // speed if speed else 0
        self._pauses = Pauses(p for p in listeners.pauses if part.is_named(p.topic, p.partition))
        self._arrival = arrival if arrival.any() else None
        offsets = log.events["offset"].to_numpy()[part.first : part.end]
        self._message = np.cumsum(changes_in(offsets)) - 1
        kinds = log.kind[part.first : part.end]
        self._controls = part.first + np.flatnonzero(np.isin(kinds, (WATERMARK, DDL, ADMIN)))

    def next_control(self, at: int) -> int:
        """Place of the first watermark, DDL or Admin event from ``at`` on, or the partition's end."""
        i = int(self._controls.searchsorted(at))
        return int(self._controls[i]) if i < len(self._controls) else self._part.end

    def times(self, first: int, end: int, clock: int) -> Ints:
        """When each event from ``first`` to just before ``end`` is read, if the listener is free at ``clock``."""
        if first >= end:
            return _NOTHING
        message = self._message[first - self._part.first : end - self._part.first]
        # a message that was begun before a control in it costs nothing again
        begun = self._message[first - self._part.first - 1] if first > self._part.first else message[0] - 1
        spent = (message - begun) * self._cost
        ready = np.full(len(spent), clock)
        if self._arrival is not None:
            ready = np.maximum(ready, self._arrival[first:end])
        if not self._pauses:
            return self._read(ready, spent, clock)
        ready = self._pauses.awake(ready)
        begins = int(self._pauses.worked(np.array([clock]))[0])
        busy = self._read(self._pauses.worked(ready), spent, begins)
        return np.maximum(self._pauses.when(busy), np.maximum.accumulate(ready))

    def _read(self, ready: Ints, spent: Ints, clock: int) -> Ints:
        """When events are read that can be from ``ready`` on, by a listener that never pauses."""
        if self._arrival is None:
            return clock + spent
        return np.maximum.accumulate(np.maximum(ready - (spent - self._cost), clock)) + spent


def unwritten(listener: Listener, pending: Sequence[int]) -> int:
    """The first place still needed: of a row held, a DDL or Admin event that waits, the newest watermark, the next."""
    held = listener.waiting()
    places = [listener.at, *pending, *([listener.marked_at] if listener.marked_at >= 0 else [])]
    return min([*places, int(held.min())]) if len(held) else min(places)

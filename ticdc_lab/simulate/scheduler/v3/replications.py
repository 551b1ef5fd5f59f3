"""All spans of the owner, with the indexes that keep a tick from looking at every one of them.

A span whose primary replicates it undisturbed shares its watermark with all others of that capture (``steady``); all
others are *exact*: their own checkpoint counts, and reports of captures that have a role in them are looked at.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from immutables import Map, MapMutation

from ticdc_lab.simulate.machine import Address, Output
from ticdc_lab.simulate.scheduler.roles import Key
from ticdc_lab.simulate.scheduler.v3.messages import REPLICATING, Checkpoint, Request, TableStatus
from ticdc_lab.simulate.scheduler.v3.replication import ABSENT_SET, REPLICATING_SET, ReplicationSet, advanced
from ticdc_lab.simulate.scheduler.v3.settings import NOTHING

Keys = Map[Key, None]
EMPTY: Keys = Map()


@dataclass(frozen=True, slots=True)
class Replications:
    """The owner's record of all spans.

    Attributes
    ----------
    sets
        By span.
    running
        Spans with a task that has not ended.
    on
        By capture, the spans in which it has a role.
    primaries
        By capture, the spans it replicates as the primary of a set that is Replicating.
    exact, watched
        The spans whose own checkpoint counts, and the same by the captures that have a role in them.
    absent
        The spans that nobody has.
    steady
        By capture, the watermark of all spans of which it is the primary and that are not exact.
    """

    sets: Map[Key, ReplicationSet] = Map()
    running: Keys = EMPTY
    on: Map[Address, Keys] = Map()
    primaries: Map[Address, Keys] = Map()
    exact: Keys = EMPTY
    watched: Map[Address, Keys] = Map()
    absent: Keys = EMPTY
    steady: Map[Address, TableStatus] = Map()


@dataclass(slots=True)
class Draft:
    """A :class:`Replications` while one step changes it, with what comes out of the step."""

    of: Replications
    planted: frozenset[str] = NOTHING
    requests: list[tuple[Address, Request]] = field(default_factory=list)
    notes: list[Output] = field(default_factory=list)
    gone: list[Key] = field(default_factory=list)
    sets: MapMutation[Key, ReplicationSet] = field(init=False)
    running: MapMutation[Key, None] = field(init=False)
    exact: MapMutation[Key, None] = field(init=False)
    absent: MapMutation[Key, None] = field(init=False)
    on: dict[Address, Keys] = field(init=False)
    primaries: dict[Address, Keys] = field(init=False)
    watched: dict[Address, Keys] = field(init=False)
    steady: dict[Address, TableStatus] = field(init=False)

    def __post_init__(self) -> None:
        self.sets = self.of.sets.mutate()
        self.running = self.of.running.mutate()
        self.exact = self.of.exact.mutate()
        self.absent = self.of.absent.mutate()
        self.on = dict(self.of.on)
        self.primaries = dict(self.of.primaries)
        self.watched = dict(self.of.watched)
        self.steady = dict(self.of.steady)

    def finished(self) -> Replications:
        """Give the record after the step."""
        return Replications(
            self.sets.finish(),
            self.running.finish(),
            _filled(self.on),
            _filled(self.primaries),
            self.exact.finish(),
            _filled(self.watched),
            self.absent.finish(),
            Map(self.steady),
        )

    def get(self, span: Key) -> ReplicationSet | None:
        """Give a set with its own watermark."""
        found = self.sets.get(span)
        return found and current(found, span in self.exact, self.steady)

    def put(self, new: ReplicationSet) -> None:
        """Set one; it is exact from now on."""
        span, old = new.span, self.sets.get(new.span)
        before = {name for name, _ in old.captures} if old else set()
        after = {name for name, _ in new.captures}
        for name in before - after:
            _drop(self.on, name, span)
            _drop(self.watched, name, span)
        for name in after:
            _hold(self.on, name, span)
            _hold(self.watched, name, span)
        self._move_primary(span, _settled_on(old), _settled_on(new))
        self.exact[span] = None
        self.sets[span] = new
        self._mark_absent(span, new.state == ABSENT_SET)

    def delete(self, span: Key) -> None:
        """Forget one."""
        old = self.sets.pop(span, None)
        if old is None:
            return
        for name, _ in old.captures:
            _drop(self.on, name, span)
            _drop(self.watched, name, span)
        self.gone.append(span)
        self._move_primary(span, _settled_on(old), None)
        self.exact.pop(span, None)
        self._mark_absent(span, False)

    def settle(self, span: Key) -> None:
        """Let a set share the watermark of its primary, if it is Replicating and has no other capture."""
        found = self.sets[span]
        if found.state == REPLICATING_SET and found.primary is not None and len(found.captures) == 1:
            self.exact.pop(span, None)
            _drop(self.watched, found.primary, span)

    def _move_primary(self, span: Key, old: Address | None, new: Address | None) -> None:
        if old == new:
            return
        if old is not None:
            _drop(self.primaries, old, span)
        if new is not None:
            _hold(self.primaries, new, span)

    def _mark_absent(self, span: Key, is_absent: bool) -> None:
        if is_absent:
            self.absent[span] = None
        else:
            self.absent.pop(span, None)


def set_of(replications: Replications, span: Key) -> ReplicationSet | None:
    """Give a span's record with its own watermark, None where there is none."""
    found = replications.sets.get(span)
    return found and current(found, span in replications.exact, replications.steady)


def current(
    replication: ReplicationSet, is_exact: bool, steady: Map[Address, TableStatus] | dict[Address, TableStatus]
) -> ReplicationSet:
    """Bring the watermark of a set that shares its primary's up to date."""
    if is_exact or replication.primary is None or replication.primary not in steady:
        return replication
    return advanced(replication, steady[replication.primary])


def shared(span: Key, checkpoint: Checkpoint, puller_resolved_ts: int) -> TableStatus:
    """Make the status of a span that replicates undisturbed."""
    return TableStatus(span, REPLICATING, checkpoint, puller_resolved_ts)


def _settled_on(replication: ReplicationSet | None) -> Address | None:
    return replication.primary if replication and replication.state == REPLICATING_SET else None


def _hold(index: dict[Address, Keys], name: Address, span: Key) -> None:
    index[name] = index.get(name, EMPTY).set(span, None)


def _drop(index: dict[Address, Keys], name: Address, span: Key) -> None:
    held = index.get(name)
    if held is not None and span in held:
        index[name] = held.delete(span)


def _filled(index: dict[Address, Keys]) -> Map[Address, Keys]:
    return Map({name: held for name, held in index.items() if held})

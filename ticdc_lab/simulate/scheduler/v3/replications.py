"""All spans of the owner, with the indexes that keep a tick from looking at every one of them.

A span whose primary replicates it undisturbed shares its watermark with all others of that capture (``steady``); all
others are *exact*: their own checkpoint counts, and reports of captures that have a role in them are looked at.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from immutables import Map

from ticdc_lab.simulate.machine import Address, Output
from ticdc_lab.simulate.scheduler.roles import Key
from ticdc_lab.simulate.scheduler.v3.messages import REPLICATING, Checkpoint, Request, TableStatus
from ticdc_lab.simulate.scheduler.v3.replication import ABSENT_SET, REPLICATING_SET, ReplicationSet, advanced

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
    requests: list[tuple[Address, Request]] = field(default_factory=list)
    notes: list[Output] = field(default_factory=list)
    gone: list[Key] = field(default_factory=list)
    sets: Map[Key, ReplicationSet] = field(init=False)
    running: Keys = field(init=False)
    on: Map[Address, Keys] = field(init=False)
    primaries: Map[Address, Keys] = field(init=False)
    exact: Keys = field(init=False)
    watched: Map[Address, Keys] = field(init=False)
    absent: Keys = field(init=False)
    steady: Map[Address, TableStatus] = field(init=False)

    def __post_init__(self) -> None:
        of = self.of
        self.sets, self.running, self.on, self.primaries = of.sets, of.running, of.on, of.primaries
        self.exact, self.watched, self.absent, self.steady = of.exact, of.watched, of.absent, of.steady

    def finished(self) -> Replications:
        """Give the record after the step."""
        return Replications(
            self.sets,
            self.running,
            self.on,
            self.primaries,
            self.exact,
            self.watched,
            self.absent,
            self.steady,
        )

    def get(self, span: Key) -> ReplicationSet | None:
        """Give a set with its own watermark."""
        found = self.sets.get(span)
        return found and current(found, span in self.exact, self.steady)

    def put(self, new: ReplicationSet) -> None:
        """Set one; it is exact from now on."""
        span, old = new.span, self.sets.get(new.span)
        watched = span in self.exact
        if not watched:
            self.exact = self.exact.set(span, None)
        before = old.captures if old else ()
        if before != new.captures or not watched:
            self._hold(span, {name for name, _ in before}, {name for name, _ in new.captures}, watched)
        self._moved(span, old, new)
        if new is not old:
            self.sets = self.sets.set(span, new)

    def delete(self, span: Key) -> None:
        """Forget one."""
        old = self.sets.get(span)
        if old is None:
            return
        self.gone.append(span)
        self._hold(span, {name for name, _ in old.captures}, set(), True)
        self._moved(span, old, None)
        self.sets = self.sets.delete(span)
        self.exact = _without(self.exact, span)

    def _hold(self, span: Key, before: set[Address], after: set[Address], watched: bool) -> None:
        for name in before - after:
            self.on = _dropped(self.on, name, span)
            self.watched = _dropped(self.watched, name, span)
        for name in after - before:
            self.on = _held(self.on, name, span)
        for name in after - before if watched else after:
            self.watched = _held(self.watched, name, span)

    def _moved(self, span: Key, old: ReplicationSet | None, new: ReplicationSet | None) -> None:
        before, after = _settled_on(old), _settled_on(new)
        if before is not None and before != after:
            self.primaries = _dropped(self.primaries, before, span)
        if after is not None and before != after:
            self.primaries = _held(self.primaries, after, span)
        if new is not None and new.state == ABSENT_SET:
            self.absent = self.absent.set(span, None)
        elif old is not None and old.state == ABSENT_SET:
            self.absent = _without(self.absent, span)

    def settle(self, span: Key) -> None:
        """Let a set share the watermark of its primary, if it is Replicating and has no other capture."""
        found = self.sets[span]
        if found.state == REPLICATING_SET and found.primary is not None and len(found.captures) == 1:
            self.exact = _without(self.exact, span)
            self.watched = _dropped(self.watched, found.primary, span)


def set_of(replications: Replications, span: Key) -> ReplicationSet | None:
    """Give a span's record with its own watermark, None where there is none."""
    found = replications.sets.get(span)
    return found and current(found, span in replications.exact, replications.steady)


def current(replication: ReplicationSet, is_exact: bool, steady: Map[Address, TableStatus]) -> ReplicationSet:
    """Bring the watermark of a set that shares its primary's up to date."""
    if is_exact or replication.primary is None or replication.primary not in steady:
        return replication
    return advanced(replication, steady[replication.primary])


def shared(span: Key, checkpoint: Checkpoint, puller_resolved_ts: int | None) -> TableStatus:
    """Make the status of a span that replicates undisturbed."""
    return TableStatus(span, REPLICATING, checkpoint, puller_resolved_ts)


def _settled_on(replication: ReplicationSet | None) -> Address | None:
    return replication.primary if replication and replication.state == REPLICATING_SET else None


def _held(index: Map[Address, Keys], name: Address, span: Key) -> Map[Address, Keys]:
    return index.set(name, index.get(name, EMPTY).set(span, None))


def _dropped(index: Map[Address, Keys], name: Address, span: Key) -> Map[Address, Keys]:
    held = index.get(name, EMPTY)
    if span not in held:
        return index
    return index.set(name, held.delete(span)) if len(held) > 1 else index.delete(name)


def _without(keys: Keys, span: Key) -> Keys:
    return keys.delete(span) if span in keys else keys

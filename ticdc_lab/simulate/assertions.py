"""What a scenario claims about its run: in its file, and as judged row by row of the trace.

Claims are sentences of the model's vocabulary (:mod:`ticdc_lab.simulate.scheduler.model`). Four modes:

``eventually``: the claim holds at the end of the run; its moment is that from which on it held without a break.
``always``: it holds after every step of its window. ``within``: it holds after some step of its window.
``at_most``: what it counts comes to no more in its window.

A window is open on its left: what an event does at its moment is done before the window begins.

A claim that reads the live world instead of rows (it is ``live``) is judged at fixed moments, :meth:`Judge.look`: every
:data:`LOOK_US` and where a window begins or ends. So its outcome does not depend on which rows are recorded.

A run may end before its time once it has settled (:class:`Settling`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple, Protocol, TypeAlias

from ticdc_lab.simulate.planned import Planned
from ticdc_lab.simulate.reading import Value, shown

LOOK_US = 10_000

Mode: TypeAlias = Literal["eventually", "always", "within", "at_most"]


class Claim(Protocol):
    """A sentence that is true or false of a moment, or a number that has a value."""

    @property
    def text(self) -> str: ...

    @property
    def ages(self) -> bool:
        """Whether it may become another one while no state changes: it speaks of time or counts messages."""
        ...

    def value(self, facts: Any, at_us: int) -> int | bool:
        """Give its truth or number at a moment."""
        ...

    def why(self, facts: Any, at_us: int) -> str:
        """Collect what is there at a moment: names the table, the capture, the number."""
        ...


class Counted(Claim, Protocol):
    """A number; ``unit`` is ``us`` for a duration."""

    @property
    def unit(self) -> str:
        """What it is a number of."""
        ...


class Facts(Protocol):
    """What is known of a run at a moment, kept row by row."""

    @property
    def changes(self) -> int:
        """Grows whenever a state changed that a claim may speak of."""
        ...

    def see(self, row: Any) -> None: ...


@dataclass(frozen=True, slots=True)
class Assertion:
    """A claim, how it must hold and when: in ``(from_us, until_us]``; ``after`` names what happened at ``from_us``.

    A window that ``ends`` does so at the file's time, not with the run, which lasts until then.
    """

    mode: Mode
    claim: Claim
    from_us: int
    until_us: int
    after: str = ""
    most: int = 0
    line: int = 0
    ends: bool = False

    @property
    def text(self) -> str:
        if self.mode == "at_most":
            most = shown(self.most) if getattr(self.claim, "unit", "") == "us" else self.most
            return f"at most {most} {self.claim.text}{self._window()}"
        if self.mode == "within":
            start = self.after or shown(max(self.from_us, 0))
            return f"within {shown(self.until_us - max(self.from_us, 0))} after {start}: {self.claim.text}"
        return f"{self.mode}: {self.claim.text}{self._window()}"

    def _window(self) -> str:
        return f" (from {self.after or shown(self.from_us)} to {shown(self.until_us)})" if self.from_us >= 0 else ""


class Outcome(NamedTuple):
    """How an assertion ended."""

    assertion: str
    held: bool
    # The first moment at which it failed; if it held, since when or at which moment.
    at_us: int
    step: int
    because: str  # a sentence: what was there then
    line: int


class Settling(NamedTuple):
    """A run can end once nothing happens to it (from ``quiet_us`` on) and what must hold has for ``for_us``.

    That a window begins counts as something that happens.
    """

    quiet_us: int
    for_us: int


@dataclass(slots=True)
class _Track:
    """How one assertion stands."""

    of: Assertion
    begun: bool = False
    base: int = 0
    since: tuple[int, int] | None = None
    outcome: Outcome | None = None

    def end(self, held: bool, at: tuple[int, int], because: str) -> None:
        self.outcome = Outcome(self.of.text, held, *at, because, self.of.line)


@dataclass(slots=True)
class Judge:
    """Judges assertions while rows come; :meth:`end` gives the outcomes."""

    assertions: Sequence[Assertion]
    facts: Facts
    at_us: int = 0
    step: int = -1
    seen: int = -1
    live: list[_Track] = field(default_factory=list)  # not ended, judged by rows
    watched: list[_Track] = field(default_factory=list)  # not ended, judged by looks at the world
    tracks: list[_Track] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.tracks = [_Track(a) for a in self.assertions]
        self.watched = [t for t in self.tracks if getattr(t.of.claim, "live", False)]
        self.live = [t for t in self.tracks if t not in self.watched]

    @property
    def bounds_us(self) -> list[int]:
        """Where windows of claims about the live world begin and end."""
        return sorted({us for t in self.watched for us in (t.of.from_us, t.of.until_us) if us >= 0})

    def look(self, at_us: int, step: int) -> None:
        """Judge what is read from the live world, as it is now."""
        for track in self.watched:
            of = track.of
            if of.from_us <= at_us <= of.until_us:
                self._judge(track, at_us, step)
            if of.until_us <= at_us and of.mode != "eventually" and track.outcome is None:
                self._close(track, at_us, step)
        self._drop_done()

    def see(self, row: Any) -> None:
        if row.step != self.step or row.time_us != self.at_us:
            self._look()
            if row.time_us > self.at_us:
                self._advance(row.time_us)
            self.step = row.step
        self.facts.see(row)

    def has_settled(self, at_us: int, settling: Settling) -> bool:
        """Whether all that is to be so at the end has been for long enough by a moment, and nothing else is awaited."""
        self._look()
        if at_us > self.at_us:
            self._advance(at_us)
        lasting = [t for t in self.tracks if t.of.mode == "eventually" and not getattr(t.of.claim, "at_end", False)]
        since_us = [t.since[0] if t.since else at_us for t in lasting]
        undecided = [t.of for t in self.tracks if t.outcome is None]
        begun_us = max((of.from_us for of in undecided), default=0)
        awaits = any(of.ends for of in undecided)
        return not awaits and max([settling.quiet_us, begun_us, *since_us]) + settling.for_us <= at_us

    def end(self, at_us: int, step: int | None = None) -> list[Outcome]:
        """Let the run end at a moment, after a step of the world; without it, after the last row's."""
        self._look()
        if at_us > self.at_us:
            self._advance(at_us)
        last = self.step if step is None else step
        self.look(at_us, last)
        for track in (*self.live, *self.watched):
            self._close(track, at_us, last if track in self.watched else self.step)
        return [t.outcome for t in self.tracks if t.outcome]

    def _look(self) -> None:
        """Judge what a step left."""
        if self.step < 0:
            return
        changed = self.facts.changes != self.seen
        self.seen = self.facts.changes
        if changed or any(t.of.claim.ages for t in self.live):
            for track in self.live:
                if (changed or track.of.claim.ages) and track.of.from_us < self.at_us:
                    self._judge(track, self.at_us, self.step)
            self._drop_done()

    def _advance(self, at_us: int) -> None:
        """Judge what time alone changes, and open and close windows, before anything happens at ``at_us``."""
        for track in self.live:
            until_us = min(at_us, track.of.until_us)
            if track.of.from_us < until_us and not track.begun:
                self._judge(track, max(track.of.from_us, 0), self.step)
            if track.of.from_us < until_us and track.of.claim.ages and track.outcome is None:
                self._judge(track, until_us, self.step)
            if track.outcome is None and track.of.until_us < at_us:
                self._close(track, track.of.until_us, self.step)
        self.at_us = at_us
        self._drop_done()

    def _judge(self, track: _Track, at_us: int, step: int) -> None:
        claim, at = track.of.claim, (at_us, step)
        value = claim.value(self.facts, at_us)
        if track.of.mode == "at_most":
            if not track.begun and track.of.from_us >= 0:
                track.base = int(value)
            if value - track.base > track.of.most:
                found = shown(value - track.base) if getattr(claim, "unit", "") == "us" else value - track.base
                track.end(False, at, f"{found} at {shown(at_us)}: {claim.why(self.facts, at_us)}")
        elif track.of.mode == "always" and not value:
            track.end(False, at, f"not so at {shown(at_us)}: {claim.why(self.facts, at_us)}")
        elif track.of.mode == "within" and value:
            after = f", {shown(at_us - track.of.from_us)} after {track.of.after}" if track.of.after else ""
            track.end(True, at, f"so at {shown(at_us)}{after}: {claim.why(self.facts, at_us)}")
        elif track.of.mode == "eventually":
            track.since = (track.since or at) if value else None
        track.begun = True

    def _close(self, track: _Track, at_us: int, step: int) -> None:
        """End an assertion whose window, or whose run, is over."""
        at, why = (at_us, step), track.of.claim.why(self.facts, at_us)
        if not track.begun and track.of.mode != "eventually":
            track.end(False, at, f"not looked at: the run ended at {shown(at_us)}, before its window began")
        elif track.of.mode == "eventually":
            if track.since:
                track.end(True, track.since, f"so from {shown(track.since[0])} to the end: {why}")
            else:
                track.end(False, at, f"not so at the end, {shown(at_us)}: {why}")
        elif track.of.mode == "within":
            track.end(False, at, f"not so until {shown(at_us)}: {why}")
        else:
            track.end(True, at, f"so until {shown(at_us)}: {why}")

    def _drop_done(self) -> None:
        if any(t.outcome for t in (*self.live, *self.watched)):
            self.live = [t for t in self.live if t.outcome is None]
            self.watched = [t for t in self.watched if t.outcome is None]


_MODES = {
    "eventually": (),
    "always": ("from", "after", "for"),
    "within": ("from", "after", "holds"),
    "at_most": ("of", "from", "after", "for"),
}
_FAULTS_END = "faults"


@dataclass(frozen=True, slots=True)
class Times:
    """The moments that assertions may speak of."""

    events: Sequence[Planned]
    until_us: int  # the end of the run
    faults_end_us: int | None  # when the last planned or random fault is over; None without faults


def assertion(
    value: Value, times: Times, claim: Callable[[Value], Claim], measure: Callable[[Value], Counted]
) -> Assertion:
    """Read one assertion: ``{within: 5s, after: crash capture-2, holds: every table replicates}``."""
    given = value.fields({*_MODES, *(f for beside in _MODES.values() for f in beside)})
    found = [m for m in _MODES if m in given]
    if len(found) != 1:
        hint = f"One of: {', '.join(_MODES)}."
        raise value.wrong("one mode of an assertion", found=", ".join(found) or "none", hint=hint)
    mode = found[0]
    for name in given:
        if name != mode and name not in _MODES[mode]:
            known = ", ".join(_MODES[mode]) or "none"
            raise given[name].wrong(f"a field of {mode}", found=name, hint=f"Fields beside it: {known}.")
    from_us, after = _start(given, times)
    if mode == "eventually":
        return Assertion("eventually", claim(given[mode]), -1, times.until_us, line=value.line)
    if mode == "within":
        until_us = _end(given["within"], max(from_us, 0), times)
        held = claim(_needed(value, given, "holds", mode))
        return Assertion("within", held, from_us, until_us, after, line=value.line, ends=True)
    ends = "for" in given
    until_us = _end(given["for"], max(from_us, 0), times) if ends else times.until_us
    if mode == "always":
        return Assertion("always", claim(given[mode]), from_us, until_us, after, line=value.line, ends=ends)
    counted = measure(_needed(value, given, "of", mode))
    most = given[mode].duration_us() if counted.unit == "us" else given[mode].integer()
    return Assertion("at_most", counted, from_us, until_us, after, most, line=value.line, ends=ends)


def _needed(value: Value, given: Mapping[str, Value], name: str, mode: str) -> Value:
    if name not in given:
        raise value.wrong(f"a field {name} beside {mode}", found="none")
    return given[name]


def _start(given: Mapping[str, Value], times: Times) -> tuple[int, str]:
    """The moment before the window and what happened then; -1 for the whole run."""
    if "from" in given and "after" in given:
        raise given["after"].wrong("either from or after", found="both")
    if "from" in given:
        from_us, named, said = given["from"].duration_us(), given["from"], ""
    elif "after" in given:
        named, said = given["after"], given["after"].text()
        found = [e for e in times.events if e.name == said]
        if said == _FAULTS_END and times.faults_end_us is not None:
            from_us = times.faults_end_us
        elif len(found) > 1:
            lines = " and ".join(str(e.line) for e in found)
            raise named.wrong(f"one event (there are several, lines {lines})", hint="Give each a `name`.")
        else:
            named.choice([e.name for e in times.events], "an event of this scenario, which would happen")
            from_us = found[0].at_us
    else:
        return -1, ""
    if from_us >= times.until_us:
        raise named.wrong("a moment before the end of the run", hint="The run ends earlier: see `until`.")
    return from_us, said


def _end(value: Value, from_us: int, times: Times) -> int:
    until_us = from_us + value.duration_us()
    if until_us > times.until_us:
        raise value.wrong("a time that ends within the run", hint="The run ends earlier: see `until`.")
    if until_us == from_us:
        raise value.wrong("a time above 0")
    return until_us

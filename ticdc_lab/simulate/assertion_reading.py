"""The assertions of a scenario file; one that no run could decide is refused."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from ticdc_lab.simulate.assertions import Assertion, Claim, Counted
from ticdc_lab.simulate.planned import Planned
from ticdc_lab.simulate.scenario_yaml import Value

_MODES = {
    "eventually": (),
    "always": ("from", "after", "for"),
    "within": ("from", "after", "holds"),
    "at_most": ("of", "from", "after", "for"),
}
_FAULTS_END = "faults"


@dataclass(frozen=True, slots=True)
class Times:
    """The moments that assertions may speak of.

    Attributes
    ----------
    until_us
        The end of the run.
    faults_end_us
        When the last planned or random fault is over; None without faults.
    """

    events: Sequence[Planned]
    until_us: int
    faults_end_us: int | None


def assertion(
    value: Value, times: Times, claim: Callable[[Value], Claim], measure: Callable[[Value], Counted]
) -> Assertion:
    """Read one assertion: ``{within: 5s, after: crash capture-2, holds: every table replicates}``."""
    given = value.fields({*_MODES, *(f for beside in _MODES.values() for f in beside)})
    mode = _mode(value, given)
    from_us, after = _start(given, times)
    if mode == "eventually":
        return Assertion("eventually", claim(given[mode]), -1, times.until_us, line=value.line)
    if mode == "within":
        until_us = _end(given["within"], max(from_us, 0), times)
        held = claim(_needed(value, given, "holds", mode))
        return Assertion("within", held, from_us, until_us, after, line=value.line)
    until_us = _end(given["for"], max(from_us, 0), times) if "for" in given else times.until_us
    if mode == "always":
        return Assertion("always", claim(given[mode]), from_us, until_us, after, line=value.line)
    counted = measure(_needed(value, given, "of", mode))
    most = given[mode].duration_us() if counted.unit == "us" else given[mode].integer()
    return Assertion("at_most", counted, from_us, until_us, after, most, line=value.line)


def _mode(value: Value, given: Mapping[str, Value]) -> str:
    found = [m for m in _MODES if m in given]
    if len(found) != 1:
        hint = f"One of: {', '.join(_MODES)}."
        raise value.wrong("one mode of an assertion", found=", ".join(found) or "none", hint=hint)
    for name in given:
        if name != found[0] and name not in _MODES[found[0]]:
            known = ", ".join(_MODES[found[0]]) or "none"
            raise given[name].wrong(f"a field of {found[0]}", found=name, hint=f"Fields beside it: {known}.")
    return found[0]


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
        from_us = _moment(named, times)
    else:
        return -1, ""
    if from_us >= times.until_us:
        raise named.wrong("a moment before the end of the run", hint="The run ends earlier: see `until`.")
    return from_us, said


def _moment(named: Value, times: Times) -> int:
    name = named.text()
    if name == _FAULTS_END and times.faults_end_us is not None:
        return times.faults_end_us
    found = [e for e in times.events if e.name == name]
    if not found:
        named.choice([e.name for e in times.events], "an event of this scenario, which would happen")
    if len(found) > 1:
        lines = " and ".join(str(e.line) for e in found)
        raise named.wrong(f"one event (there are several, lines {lines})", hint="Give each a `name`.")
    return found[0].at_us


def _end(value: Value, from_us: int, times: Times) -> int:
    until_us = from_us + value.duration_us()
    if until_us > times.until_us:
        raise value.wrong("a time that ends within the run", hint="The run ends earlier: see `until`.")
    if until_us == from_us:
        raise value.wrong("a time above 0")
    return until_us

"""What happened in a run, in sentences: faults, owners, tables, decisions and what was ignored; messages left out."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import groupby
from typing import NamedTuple

from ticdc_lab.machines.clock import us_of
from ticdc_lab.machines.machine import NOT_OWNER, Reason, node_of
from ticdc_lab.simulate.reading import shown
from ticdc_lab.simulate.runs import FactsOf, Played, RunOf
from ticdc_lab.simulate.scheduler.facts import SchedulerFacts
from ticdc_lab.simulate.trace import Row, name_of
from ticdc_lab.words import count

_MOST = 8


class PlayedCaptures(Played[RunOf, FactsOf]):
    """A scenario of captures that has run, of any model."""

    __slots__ = ()

    @property
    def happened(self) -> list[Line]:
        return narrative(self.run.recorder.rows)


class Line(NamedTuple):
    """One thing that happened: when, where, what, and why."""

    time_us: int
    node: str
    what: str
    because: str

    def __str__(self) -> str:
        because = f" ({self.because})" if self.because else ""
        return f"{shown(self.time_us):>11}  {self.node:<12} {self.what}{because}"


def narrative(rows: Iterable[Row]) -> list[Line]:
    """Give what happened, in order; what a node does to several tables in one step is one line."""
    lines: list[Line] = []
    for (_, time_us, node), together in groupby(rows, key=lambda row: (row.step, row.time_us, row.node)):
        of_step = list(together)
        for row in of_step:
            if line := line_of(row):
                lines.append(line)
        lines += [Line(time_us, node, what, because) for what, because in _tables(of_step)]
    return _without_repeats(lines)


def last_state(facts: SchedulerFacts) -> list[str]:
    """Describe who owns, how far the checkpoint is, and which tables each capture replicates."""
    behind = "no global checkpoint" if facts.checkpoint_us is None else (
        f"global checkpoint {shown(facts.at_us - facts.checkpoint_us)} behind"
    )  # fmt: skip
    lines = [f"owner {facts.owner or 'none'}; {behind}; {facts.up} of {len(facts.wanted)} tables replicate"]
    for capture in facts.captures:
        keys = [key for key, entry in facts.keys.items() if any(node_of(a) == capture for a in entry.states)]
        lines.append(
            f"{capture}: {count(facts.load[capture], 'table')}"
            + (f" ({listed(sorted(keys, key=_order))})" * bool(keys))
        )
    return lines


def listed(names: list[str]) -> str:
    """Give the first names, and how many there are."""
    more = f", .. {len(names)} in all" if len(names) > _MOST else ""
    return ", ".join(names[:_MOST]) + more


def _order(key: str) -> tuple[int, str]:
    return int(key.partition("[")[0]), key


def line_of(row: Row) -> Line | None:
    """Describe a row; None where it is left out."""
    because = str(row.because or "")
    if row.kind == "started" and row.time_us:
        return Line(row.time_us, row.node, "starts", because)
    if row.kind in ("crashed", "restarted", "paused", "resumed", "violated", "stopped"):
        what = f"VIOLATED: {row.subject}" if row.kind == "violated" else row.kind
        return Line(row.time_us, row.node, what, because)
    if row.kind in ("parted", "healed"):
        return Line(row.time_us, row.node, f"{row.kind} from {row.peer}", because)
    if row.kind == "ignored" and because and not (isinstance(row.because, Reason) and row.because.kind == NOT_OWNER):
        return Line(row.time_us, row.node, f"ignores {name_of(row.message)}", because)
    if row.kind == "decided":
        return Line(row.time_us, row.node, f"{row.subject}: {_chosen(row)}", because)
    if row.kind == "changed" and row.subject:
        return _changed(row, row.subject)
    return None


def _chosen(row: Row) -> str:
    """What was chosen; why not the others, where it was nothing."""
    if row.after is not None:
        return str(row.after)
    return "; ".join(["nothing", *(f"not {candidate}: {why}" for candidate, why in row.rejected[:3])])


def _changed(row: Row, subject: str) -> Line | None:
    because = str(row.because or "")
    if subject == "owner":
        what = "is no longer the owner" if row.after is None else f"is the owner, owner-rev {row.after}"
        return Line(row.time_us, row.node, what, because)
    if subject == "stuck":
        if row.after is None:
            return Line(row.time_us, row.node, "the checkpoint proceeds", "")
        return Line(row.time_us, row.node, f"the checkpoint stands: {row.after}", because)
    if subject == "barrier":
        at = "" if row.after is None else f"{shown(us_of(int(str(row.after))))}, ts {row.after}"
        what = f"a DDL's barrier at {at}" if at else "no barrier"
        return Line(row.time_us, row.node, what, because)
    if subject == "downstream" or subject.startswith(("sink:", "session:", "changefeed:")):
        return Line(row.time_us, row.node, f"{subject}: {_or_none(row.before)} -> {_or_none(row.after)}", because)
    return None


def _or_none(value: str | int | Reason | None) -> str:
    return "none" if value is None else str(value)


def _tables(rows: list[Row]) -> Iterator[tuple[str, str]]:
    """What became of tables in one step, one change's together."""
    changes: dict[tuple[str, str, str], list[str]] = {}
    for row in rows:
        if row.kind == "changed" and row.subject and row.subject.startswith("table:"):
            change = (_or_none(row.before), _or_none(row.after), str(row.because or ""))
            changes.setdefault(change, []).append(row.subject[6:])
    for (before, after, because), keys in changes.items():
        which = f"table {keys[0]}" if len(keys) == 1 else f"tables {listed(keys)}"
        yield f"{which}: {before} -> {after}", because


def _without_repeats(lines: list[Line]) -> list[Line]:
    """Write repeats once, with how often they came at a stretch."""
    out: list[Line] = []
    for (_, what, _), same in groupby(lines, key=lambda line: line[1:]):
        first, *others = same
        out.append(first._replace(what=f"{what} (x{len(others) + 1})") if others else first)
    return out

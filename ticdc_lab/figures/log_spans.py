"""Logs beside each other: a bar each, from the first commit to where it is complete, and what lies beyond."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from ticdc_lab.events import tso
from ticdc_lab.events.tso import zone
from ticdc_lab.figures.figure import Bar, Figure
from ticdc_lab.figures.look import OKABE_ITO, WRONG, legend_above
from ticdc_lab.figures.theme import clock, finish, label, sentence

Span = tuple[str, int | None, int | None, int | None]
"""Name of a log, its first commit_ts, the TSO up to which it is complete, its last commit_ts."""

_NOTE = (
    "Blue: proved complete. Hatched: committed, but beyond the log's watermark, so not proved. Look for a log that "
    "ends before the others, and for a long hatched end: there a partition held its watermark back."
)


class _Bar(NamedTuple):
    name: str
    first_ms: int
    complete_ms: int
    last_ms: int


_APART = 50
"""How many times as long as the longest log the time of all may be, before each log gets its own zero."""


def log_spans(logs: Sequence[Span], *, title: str) -> Figure:
    """Draw how far each log reaches and how far it is complete.

    Parameters
    ----------
    logs
        From top to bottom; those without a first commit_ts are left out and counted in the sentence below.
    title
        The finding.
    """
    shown = [_bar(*log) for log in logs if log[1] is not None]
    if not shown:
        return sentence(label(title, most=300), "No log here has a change with a commit ts.")
    longest = max(1, *(b.last_ms - b.first_ms for b in shown))
    is_own_zero = max(b.last_ms for b in shown) - min(b.first_ms for b in shown) > _APART * longest
    names = [f"{i}. {label(b.name)}" for i, b in enumerate(shown, 1)]
    proved = [(b.first_ms, b.complete_ms) for b in shown]
    beyond = [(b.complete_ms, b.last_ms) for b in shown]
    zeros = [b.first_ms for b in shown]
    scale = 1000 if is_own_zero else 1
    fig = Figure()
    for what, spans, colour, lines in (("complete", proved, OKABE_ITO[0], ""), ("not proved", beyond, WRONG, "/")):
        said = [f"{n}<br>{what}: {(end - begin) / 1000:,.3f} s" for n, (begin, end) in zip(names, spans, strict=True)]
        fig.add_trace(
            Bar(
                name=what, y=names, x=[(end - begin) / scale for begin, end in spans],
                base=[(begin - zero) / 1000 for zero, (begin, _) in zip(zeros, spans, strict=True)]
                if is_own_zero else clock([begin for begin, _ in spans]),
                orientation="h", hovertext=said, hoverinfo="text",
                marker={"color": colour, "pattern": {"shape": lines, "fgcolor": "#ffffff", "size": 8}},
            )
        )  # fmt: skip
    if is_own_zero:
        fig.update_xaxes(title_text="seconds since each log's first commit")
    else:
        fig.update_xaxes(title_text=f"commit time ({zone()})", type="date")
    fig.update_yaxes(autorange="reversed")
    fig.update_layout(barmode="overlay", legend=legend_above(1.02))
    out = len(logs) - len(shown)
    more = f" Not drawn, as it has no commit ts: {out}." if out else ""
    return finish(fig, title=label(title, most=300), note=_NOTE + more, height=240 + 30 * len(shown), above_px=24)


def _bar(name: str, first: int | None, done: int | None, last: int | None) -> _Bar:
    begin, end = first or 0, last or first or 0
    return _Bar(name, *(tso.physical_ms(ts) for ts in (begin, min(max(done or begin, begin), end), end)))

"""Why nothing happens, over time: of each scheduler and the checkers, when they made operators and why not."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from ticdc_lab.figures.figure import Bar, Figure
from ticdc_lab.figures.pd_looks import BLUE, GREEN, kind_name
from ticdc_lab.figures.theme import GREY, OKABE_ITO, PATTERNS, count, finish, label, sentence
from ticdc_lab.simulate.pd.looking.decisions import Decision
from ticdc_lab.simulate.pd.looking.recording import Recording

_ROW_PX, _MOST = 58, 5
_FIRST = "balance-region-scheduler"
_MADE = "operators were made"
_OTHER = "another reason"
_NOTE = (
    "A row who decides, a second a bar: green where operators were made, else by the reason why there were none. Look "
    "for the reason that stands where you wonder why nothing moves; hover says it in full."
)


def why_nothing(recording: Recording, *, finding: str = "") -> Figure:
    """Draw who did nothing when, and why.

    Parameters
    ----------
    recording
        The run.
    finding
        What the picture shows, where the caller knows better than the numbers that are the title by default.
    """
    if not recording.decisions:
        return sentence("Nothing was decided", "No round was played and no region was looked at.")
    seconds = by_second(recording.decisions)
    rows = sorted({by for by, _ in seconds})
    reasons = Counter(why for why in seconds.values() if why != _MADE)
    named = [why for why, _ in reasons.most_common(_MOST)]
    fig = Figure()
    looks = dict(zip(named, _looks(), strict=False))
    for why in [_MADE, *named, *([_OTHER] if len(reasons) > _MOST else [])]:
        look = (GREEN, "") if why == _MADE else looks.get(why, (GREY, "+"))
        said = {w for w in seconds.values() if w == why or (why == _OTHER and w not in (*named, _MADE))}
        mine = [(by, s, w) for (by, s), w in seconds.items() if w in said]
        fig.add_trace(_bars(mine, rows, why, look))
    fig.update_yaxes(
        tickvals=list(range(len(rows))), ticktext=[label(kind_name(r)) for r in rows], range=[len(rows) - 0.5, -0.5],
        showgrid=False, zeroline=False,
    )  # fmt: skip
    end_s = recording.samples[-1].at_us / 1e6
    fig.update_xaxes(title_text="virtual time, s", range=[0, end_s], zeroline=False)
    fig.update_layout(
        barmode="overlay", bargap=0, hovermode="closest",
        legend={"orientation": "v", "x": 0, "y": -60 / (_ROW_PX * len(rows)), "yanchor": "top"},
    )  # fmt: skip
    below = 78 + 21 * len(fig.data)
    height = 120 + _ROW_PX * len(rows) + below + 30
    title = label(finding, most=300) or finding_of(seconds, rows)
    return finish(fig, title=title, note=_NOTE, height=height, note_below_px=below)


def by_second(decisions: Sequence[Decision]) -> dict[tuple[str, int], str]:
    """Give, by who and second, that operators were made, or else the last reason why none was."""
    out: dict[tuple[str, int], str] = {}
    for d in decisions:
        key = d.by, d.at_us // 1_000_000
        if d.told.operators:
            out[key] = _MADE
        elif out.get(key) != _MADE:
            out[key] = d.told.because
    return out


def _looks() -> list[tuple[str, str]]:
    colors = [BLUE, *(c for c in OKABE_ITO if c not in (BLUE, GREEN))]
    return [(color, PATTERNS[1 + k % (len(PATTERNS) - 1)]) for k, color in enumerate(colors)]


def _bars(mine: Sequence[tuple[str, int, str]], rows: Sequence[str], name: str, look: tuple[str, str]) -> Bar:
    color, hatch = look
    lines = {"shape": hatch, "fillmode": "overlay", "fgcolor": "rgba(255,255,255,0.7)", "size": 6, "solidity": 0.2}
    return Bar(
        orientation="h", base=[s for _, s, _ in mine], x=[1] * len(mine), y=[rows.index(by) for by, _, _ in mine],
        width=0.7, marker={"color": color, "line": {"width": 0}, "pattern": lines}, name=label(name, most=90),
        hovertext=[f"{label(by)} at {s:,} s: {label(why, most=140)}" for by, s, why in mine], hoverinfo="text",
        showlegend=True,
    )  # fmt: skip


def finding_of(seconds: Mapping[tuple[str, int], str], rows: Sequence[str]) -> str:
    """Say of balance-region, or of whoever did least, how often it did something, and why mostly not."""
    idle = {by: Counter(why for (b, _), why in seconds.items() if b == by and why != _MADE) for by in rows}
    by = _FIRST if _FIRST in rows else max(rows, key=lambda r: (sum(idle[r].values()), r))
    made = sum(why == _MADE for (b, _), why in seconds.items() if b == by)
    if not idle[by]:
        return f"Whoever was asked made operators, {label(kind_name(by))} in {count(made, 'second')}"
    why, n = idle[by].most_common(1)[0]
    head = f"{label(kind_name(by))} made operators in {count(made, 'second')}"
    return f"{head}, and none in {sum(idle[by].values()):,}: in {n:,} of them {label(why, most=110)}"

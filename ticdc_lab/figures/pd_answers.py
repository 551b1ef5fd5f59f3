"""What was said to PD in a run and what it answered, as a table."""

from __future__ import annotations

import json
from collections.abc import Sequence

from ticdc_lab.figures.figure import Figure, Table
from ticdc_lab.figures.theme import count, finish, label, sentence, wrapped
from ticdc_lab.simulate.pd.world.changes import Happened

_MOST, _CHARS = 20, 400
_NOTE = "A row a command or an event, in order. PD's refusals stand in the last column in its own words."


def pd_answers(happened: Sequence[Happened], *, finding: str = "") -> Figure:
    """List words to PD with its answers.

    Parameters
    ----------
    happened
        What a recording says happened.
    finding
        What the picture shows, where the caller knows better than the numbers that are the title by default.
    """
    if not happened:
        return sentence("Nothing was said to PD", "No command was given and nothing happened from outside.")
    shown = list(happened)[-_MOST:]
    answers = [_answer(h) for h in shown]
    columns = [
        [f"{h.at_us / 1e6:,.1f} s" for h in shown], [label(h.change.text, most=90) for h in shown],
        [wrapped(a, width=70) for a in answers],
    ]  # fmt: skip
    fills = ["rgba(213,94,0,0.16)" if h.error else "rgba(128,128,128,0.08)" for h in shown]
    look = {"align": "left", "line": {"color": "rgba(128,128,128,0.3)"}}
    head = {"values": ["<b>at</b>", "<b>said</b>", "<b>answer</b>"], "fill": {"color": "#0072B2"}}
    fig = Figure(
        Table(
            columnwidth=[0.6, 2, 3.4], header=head | {"font": {"color": "#ffffff"}, "height": 32} | look,
            cells={"values": columns, "height": 27, "fill": {"color": [fills] * 3}} | look,
        )
    )  # fmt: skip
    lines = sum(2 + max(c.count("<br>") for c in (row[1], row[2])) for row in zip(*columns, strict=True))
    refused = [h for h in happened if h.error]
    said = count(len(happened), "command or event", "commands and events")
    title = label(finding, most=300) or f"{said}; PD {f'refuses {len(refused)}' if refused else 'refuses none'}"
    fig = finish(fig, title=title, note=_NOTE, height=150 + 19 * lines, note_below_px=10, least_px=760)
    return fig.update_layout(margin_l=20)


def _answer(h: Happened) -> str:
    if h.error:
        return f"refused: {label(h.error, most=_CHARS)}"
    text = h.answer if isinstance(h.answer, str) else json.dumps(h.answer, default=str)
    return "done" if h.answer is None else label(text, most=_CHARS)

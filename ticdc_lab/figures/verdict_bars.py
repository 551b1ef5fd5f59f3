"""How many records of the real PD our answer agrees with, kind by kind."""

from __future__ import annotations

import pandas as pd

from ticdc_lab.figures.figure import Bar, Figure
from ticdc_lab.figures.theme import count, finish, hatched, label, sentence

_NOTE = (
    "A bar for each kind of record. Look for anything that is not agree: a record with another answer is listed below "
    "with both, one that is not judged with the reason."
)
PARTS = ("agree", "disagree", "not judged", "malformed")


def verdict_bars(kinds: pd.DataFrame) -> Figure:
    """Draw a bar a kind of record.

    Parameters
    ----------
    kinds
        ``kind``, ``records``, ``agree``, ``disagree``, ``not judged``, ``malformed``; from
        :meth:`ticdc_lab.simulate.pd.replay.Replayed.by_kind`.
    """
    if kinds.empty:
        return sentence("There is no record", "The file holds none.")
    fig = Figure()
    names = [label(k) for k in kinds["kind"]]
    for k, part in enumerate(PARTS):
        if kinds[part].any():
            fig.add_trace(
                Bar(
                    x=kinds[part], y=names, orientation="h", name=part, marker=hatched(k),
                    hovertemplate=f"%{{y}}: %{{x:,}} {part}<extra></extra>",
                )
            )  # fmt: skip
    fig.update_layout(barmode="stack")
    fig.update_yaxes(autorange="reversed", automargin=True)
    fig.update_xaxes(title_text="records")
    agree, total = int(kinds["agree"].sum()), int(kinds["records"].sum())
    title = f"{agree:,} of {count(total, 'record')} {'get' if agree != 1 else 'gets'} the real PD's answer"
    return finish(fig, title=title, note=_NOTE, height=200 + 26 * len(kinds))

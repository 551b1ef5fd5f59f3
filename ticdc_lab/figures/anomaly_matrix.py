"""Anomaly matrix: how often, and for how long, each consumer shows what never existed, under each dispatch strategy."""

from __future__ import annotations

from collections.abc import Sequence

import pandas as pd

from ticdc_lab.figures.cells import Cell, grid
from ticdc_lab.figures.figure import Figure
from ticdc_lab.figures.theme import count, finish, label, percent, sentence, wrapped

_NOTE = (
    "Each cell: wrong states of the downstream, and the share of consumer time in which it was wrong. Look for a row "
    "of 'never': that policy is safe here, whatever the dispatcher and the speeds; hover a cell for the kinds."
)
_VARIES = ("strategy", "partitions", "speeds")
_KEPT, _BROKEN, _UNKNOWN = "rgba(0,114,178,0.30)", "rgba(213,94,0,{:.2f})", "rgba(128,128,128,0.18)"
_MIXED = "rgba(230,159,0,0.25)"


def anomaly_matrix(anomalies: pd.DataFrame, *, counted: str = "state that never existed") -> Figure:
    """Draw policies against what they consume.

    Parameters
    ----------
    anomalies
        One row per ``policy``, ``strategy``, ``partitions``, ``speeds`` (words) and ``kind`` of anomaly: ``n``, the
        number of wrong states, ``wrong_us``, how long they lasted together, and ``total_us``, how long the consumer
        ran. A combination without anomaly has a row with ``n`` 0.
    counted
        The kind that cells show; the others are said when one points at a cell. Where it is missing all kinds are
        counted together, and as they may overlap in time the share is that of the kind which lasted longest.
    """
    if anomalies.empty:
        return sentence("No consumer was tried", "Choose a policy, a strategy and speeds.")
    varies = [c for c in _VARIES if anomalies[c].nunique() > 1] or ["strategy"]
    a = anomalies.assign(_column=_columns(anomalies, varies), policy=anomalies["policy"].astype(str))
    policies, columns = list(dict.fromkeys(a["policy"])), list(dict.fromkeys(a["_column"]))
    hovers = {(str(p), str(c)): cell for (p, c), cell in a.groupby(["policy", "_column"], sort=False)}
    a = _headline(a, counted)
    cells = {(str(p), str(c)): cell for (p, c), cell in a.groupby(["policy", "_column"], sort=False)}
    drawn = [[Cell(*_content(cells.get((p, c))), _hover(hovers.get((p, c)), p, c)) for c in columns] for p in policies]
    words = ["<br>".join(wrapped(label(part, most=60), width=18) for part in c.split(", ")) for c in columns]
    fig = grid(drawn, rows=[label(p) for p in policies], columns=words).update_xaxes(tickangle=0)
    height, head = 185 + 58 * len(policies), 22 * len(varies)
    fig = finish(fig, title=_finding(a, policies, len(columns)), note=_NOTE, height=height + head, note_below_px=14)
    return fig.update_layout(margin_t=int(fig.layout.margin.t) + head)


def _columns(a: pd.DataFrame, varies: Sequence[str]) -> list[str]:
    rows = a[list(varies)].to_dict("records")
    return [", ".join(count(v, "partition") if c == "partitions" else str(v) for c, v in r.items()) for r in rows]


def _headline(a: pd.DataFrame, counted: str) -> pd.DataFrame:
    """The rows that cells show, with the number of all others beside them."""
    mine = a["kind"] == counted if (a["kind"] == counted).any() else a["kind"].notna()
    others = a[~mine].groupby(["policy", "_column"])["n"].sum().rename("_others").reset_index()
    joined = a[mine].merge(others, on=["policy", "_column"], how="left")
    return joined.assign(_others=joined["_others"].fillna(0).astype(int))


def _content(cell: pd.DataFrame | None) -> tuple[str, str]:
    """Text and colour of a cell."""
    if cell is None:
        return "not tried", _UNKNOWN
    if not cell["n"].sum():
        others = int(cell["_others"].iloc[0])
        return (f"never<br>{count(others, 'other anomaly', 'other anomalies')}", _MIXED) if others else ("never", _KEPT)
    told = percent(int(cell["wrong_us"].max()), int(cell["total_us"].max()))
    return f"<b>{int(cell['n'].sum()):,}</b><br>{told} of time", _BROKEN.format(0.22 + 0.4 * _share(cell))


def _share(cell: pd.DataFrame) -> float:
    total = int(cell["total_us"].max())
    return min(1.0, int(cell["wrong_us"].max()) / total) if total else 0.0


def _hover(cell: pd.DataFrame | None, policy: str, column: str) -> str:
    head = f"{label(policy)}, {label(column, most=90)}"
    if cell is None:
        return f"{head}: not tried"
    kinds = [
        f"{label(r['kind'])}: {int(r['n']):,}, together {int(r['wrong_us']) / 1000:,.4g} ms"
        for r in cell.to_dict("records")
        if r["n"]
    ]
    return "<br>".join([head, *(kinds or ["no wrong state"])])


def _finding(a: pd.DataFrame, policies: Sequence[str], columns: int) -> str:
    total = a.groupby("policy")["n"].sum()
    clean = [p for p in policies if not int(total[p])]
    where = f" in any of {columns} settings" if columns > 1 else ""
    if len(clean) == len(policies):
        return f"No policy ever shows a state that never existed{where}"
    shares = {str(p): max(_share(cell) for _, cell in mine.groupby("_column")) for p, mine in a.groupby("policy")}
    worst = max(policies, key=lambda p: (shares[p], int(total[p])))
    share = f", for {percent(shares[worst], 1)} of the time at worst" if shares[worst] else ""
    shows = f"{label(worst)} shows {count(int(total[worst]), 'state')} that never existed{share}"
    if not clean:
        return f"No policy is safe here; {shows}"
    who = " and ".join(label(p) for p in clean) if len(clean) < 3 else f"{len(clean)} of {len(policies)} policies"
    return f"{who} never {'shows' if len(clean) == 1 else 'show'} a wrong state{where}; {shows}"

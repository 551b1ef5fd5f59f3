"""Column families: what lock, default and write hold of a key, moment by moment, and their history below."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import pandas as pd
import pyarrow as pa

from ticdc_lab.figures.figure import Bar, Figure, Table
from ticdc_lab.figures.look import GREY, WRONG, hatch
from ticdc_lab.figures.stepped import stepped
from ticdc_lab.figures.theme import finish, label, sentence
from ticdc_lab.machines.clock import us_of
from ticdc_lab.simulate.pipeline.samples import CFS
from ticdc_lab.simulate.pipeline.tables import shown
from ticdc_lab.words import count

_LOOK = {"lock": (WRONG, "x", "#ffffff"), "default": ("#56B4E9", "", "#16181c"), "write": ("#009E73", "/", "#ffffff")}
"""Colour, pattern and ink of each family."""

_KEYS = {"lock": "", "default": "start_ts", "write": "commit_ts"}
_VALUES = {"lock": "start_ts, kind", "default": "value", "write": "start_ts, kind"}
_GRID_PX, _BAR_PX, _GAP_PX, _LEFT = 29, 34, 34, 0.15
_NO_NAMES: Mapping[int, str] = MappingProxyType({})
_NOTE = (
    "Above: the entries of the three column families at this moment, new ones in bold. Below: when each exists. A "
    "prewrite puts a lock and the value. A commit replaces the lock by a write record, which finds the value by its "
    "start_ts."
)


def column_families(families: pa.Table, *, at_us: int | None = None, names: Mapping[int, str] = _NO_NAMES) -> Figure:
    """Draw them at a moment.

    Parameters
    ----------
    families
        :data:`ticdc_lab.simulate.pipeline.samples.FAMILIES`, of one key or a few.
    at_us
        The moment, µs; by default the last at which something changed.
    names
        How timestamps are called, TSO to ``@TS1``; others are written as moments.
    """
    rows = families.to_pandas()
    if rows.empty:
        return sentence("The key was never written", "No entry of it was seen in lock, default or write.")
    times = moments(rows)
    moment = times[-1] if at_us is None else at_us
    before = max((t for t in times if t < moment), default=-1)
    most = max(int(there(rows, t)["cf"].value_counts().max()) for t in times if len(there(rows, t)))  # of a family
    above_px, below_px = _GRID_PX * (2 + max(2, most)), _BAR_PX * len(rows) + 40
    whole_px = above_px + _GAP_PX + below_px
    top, share = 1 - above_px / whole_px, below_px / whole_px
    fig = Figure([*_grids(rows, moment, before, names, top), *_history(rows, times[-1], names)])
    fig.add_vline(x=moment / 1e6, line={"color": GREY, "width": 2.5, "dash": "dot"})
    ticks = [_row(r, names, one=rows["key"].nunique() == 1) for r in rows.to_dict("records")]
    fig.update_yaxes(
        domain=[0, share], tickvals=list(range(len(rows))), ticktext=ticks, range=[len(rows) - 0.4, -0.6],
        showgrid=False, zeroline=False,
    )  # fmt: skip
    fig.update_xaxes(title_text="virtual time, s", zeroline=False, domain=[_LEFT, 1])
    fig.update_layout(barmode="overlay", showlegend=False)
    title = _told(rows, moment, names)
    return finish(fig, title=title, note=_NOTE, height=whole_px + 220, least_px=860, above_px=30)


def column_families_stepped(families: pa.Table, *, names: Mapping[int, str] = _NO_NAMES) -> Figure:
    """Draw :func:`column_families` at every moment at which something changed, on a slider that needs no kernel."""
    rows = families.to_pandas()
    if rows.empty:
        return column_families(families)
    drawn = {f"{t / 1e6:,.3f} s": column_families(families, at_us=t, names=names) for t in moments(rows)}
    return stepped(drawn, prefix="at ")


def moments(rows: pd.DataFrame) -> list[int]:
    """Give when entries came or went, µs."""
    return sorted({int(t) for t in [*rows["from_us"], *rows["to_us"].dropna()]})


def there(rows: pd.DataFrame, at_us: int) -> pd.DataFrame:
    """Give the entries that are there at a moment."""
    return rows[(rows["from_us"] <= at_us) & (rows["to_us"].isna() | (rows["to_us"] > at_us))]


def _told(rows: pd.DataFrame, at_us: int, names: Mapping[int, str]) -> str:
    now, keys = there(rows, at_us), rows["key"].unique()
    what = label(shown(int(keys[0]))) if len(keys) == 1 else count(len(keys), "key")
    of = {cf: now[now["cf"] == cf] for cf in CFS}
    versions = count(int((of["write"]["kind"] != "rollback").sum()), "committed version")
    locks = zip(of["lock"]["key"], of["lock"]["start_ts"], strict=True)
    by = {int(key): f"locked by the transaction of {_moment(int(ts), names)}" for key, ts in locks}
    if len(keys) == 1:
        return f"At {at_us / 1e6:,.3f} s {what} has {versions} and is {by.get(int(keys[0]), 'not locked')}"
    each = " and ".join(f"{label(shown(k))} is {words}" for k, words in by.items())
    return f"At {at_us / 1e6:,.3f} s {what} have {versions} and {each or 'are not locked'}"


def _grids(rows: pd.DataFrame, at_us: int, before: int, names: Mapping[int, str], bottom: float) -> list[Table]:
    now, one, out = there(rows, at_us), rows["key"].nunique() == 1, []
    look = {"align": "left", "height": _GRID_PX, "line": {"color": "rgba(128,128,128,0.3)"}}
    for k, cf in enumerate(CFS):
        mine = now[now["cf"] == cf].sort_values(["key", "ts"], ascending=[True, False], kind="stable")
        cells = [_cells(r, names, one=one, new=r["from_us"] > before) for r in mine.to_dict("records")]
        keyed = _KEYS[cf] or "key"
        head = [f"<b>{cf}</b>: {keyed if one else ', '.join(filter(None, ['key', _KEYS[cf]]))}", _VALUES[cf]]
        fill = {"fill": {"color": _LOOK[cf][0]}, "font": {"color": _LOOK[cf][2]}}
        columns = [list(c) for c in zip(*(cells or [("nothing", "")]), strict=True)]
        place = {"x": [k / 3 + 0.006, (k + 1) / 3 - 0.006], "y": [bottom, 1]}
        empty = {"fill": {"color": "rgba(128,128,128,0.10)"}}
        out.append(Table(domain=place, header={"values": head} | look | fill, cells={"values": columns} | look | empty))
    return out


def _cells(r: Mapping[Any, Any], names: Mapping[int, str], *, one: bool, new: bool) -> tuple[str, str]:
    key = [] if one else [label(shown(int(r["key"])))]
    at = [] if r["cf"] == "lock" else [_moment(int(r["ts"]), names)]
    left = ", ".join(key + at) or label(shown(int(r["key"])))
    start = f"{_moment(int(r['start_ts']), names)}, {label(r['kind'])}"
    right = label(r["value"], most=40) if r["cf"] == "default" else start
    return (f"<b>{left}</b>", f"<b>{right}</b>") if new else (left, right)


def _history(rows: pd.DataFrame, last_us: int, names: Mapping[int, str]) -> list[Bar]:
    first_us = int(rows["from_us"].min())
    end_us = last_us + max(50_000, round(0.06 * (last_us - first_us)))
    ends = rows["to_us"].fillna(end_us)
    out = []
    for cf in CFS:
        mine = rows[rows["cf"] == cf]
        color, shape, _ = _LOOK[cf]
        long_s = (ends[mine.index] - mine["from_us"]) / 1e6
        out.append(
            Bar(
                orientation="h", base=(mine["from_us"] / 1e6).tolist(), x=long_s.tolist(),
                y=mine.index.tolist(), width=0.62, marker={"color": color, "pattern": hatch(shape)}, name=cf,
                hovertext=[_hover(r, names) for r in mine.to_dict("records")], hoverinfo="text",
            )
        )  # fmt: skip
    return out


def _row(r: Mapping[Any, Any], names: Mapping[int, str], *, one: bool) -> str:
    key = "" if one else f" {label(shown(int(r['key'])))}"
    return f"{r['cf']}{key}" + ("" if r["cf"] == "lock" else f" {_moment(int(r['ts']), names)}")


def _hover(r: Mapping[Any, Any], names: Mapping[int, str]) -> str:
    until = "stays" if pd.isna(r["to_us"]) else f"goes at {r['to_us'] / 1e6:,.3f} s"
    value = "" if r["value"] is None else f"<br>{label(r['value'], most=90)}"
    of = f"{label(r['kind'])} of the transaction of {_moment(int(r['start_ts']), names)} (start_ts {r['start_ts']})"
    return f"<b>{_row(r, names, one=False)}</b>: {of}{value}<br>seen from {r['from_us'] / 1e6:,.3f} s, {until}"


def _moment(ts: int, names: Mapping[int, str]) -> str:
    return label(names[ts]) if ts in names else f"{us_of(ts) / 1e6:,.3f} s"

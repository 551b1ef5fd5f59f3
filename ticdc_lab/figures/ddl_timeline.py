"""DDL timeline: when each partition sees a DDL, how long the consumer waits, and which rows it then has wrong."""

from __future__ import annotations

import pandas as pd

from ticdc_lab.events.tso import tso_words
from ticdc_lab.figures.figure import Figure, Scatter
from ticdc_lab.figures.look import WRONG, look
from ticdc_lab.figures.selecting import Selection, marked
from ticdc_lab.figures.theme import finish, label, sentence
from ticdc_lab.words import count, rounded

_NOTE = (
    "One band per DDL, one line per {lane}. The line is the wait: it begins at the open mark, where the {lane} "
    "has the DDL, and ends at the diamond, where it is executed. A cross counts rows on the wrong side: early rows "
    "have a later commit_ts and were decoded with the old schema; late rows have an earlier one and come after the "
    "DDL."
)
_MOST = 12
_LINE_PX, _MOST_PX = 15, 800
_LEAST_PX = 700


def ddl_timeline(timeline: pd.DataFrame, *, most: int = _MOST, lane: str = "partition") -> Figure:
    """Draw the DDL of a log as a consumer executes them.

    Parameters
    ----------
    timeline
        One row per DDL and partition: ``ddl_commit_ts, query, topic, partition``, ``seen_at``, ``waited_us`` and
        ``executed_at`` (consumer time, µs; null where it was not), and the number of ``early_rows`` (commit_ts above
        the DDL's, applied before it) and ``late_rows`` (commit_ts at or below it, applied after it).
    most
        DDL drawn, fewer where there are many partitions: those with wrong rows, and then those with the longest waits.
    lane
        What lies beside each other: ``partition``, or ``stream`` of a storage sink.
    """
    if timeline.empty:
        return sentence("No DDL is visible", "The consumer read no DDL event.")
    times = ("seen_at", "waited_us", "executed_at")
    t = timeline.assign(**{c: timeline[c].astype("Float64").astype(float) for c in times})
    t = t.assign(_wrong=t["early_rows"].fillna(0) + t["late_rows"].fillna(0))
    by = t.groupby(["ddl_commit_ts", "query"], sort=True, dropna=False)
    ranked = by.agg(wrong=("_wrong", "sum"), waited=("waited_us", "max"), seen=("seen_at", "min")).reset_index()
    homes = sorted({(str(a), int(b)) for a, b in zip(t["topic"], t["partition"], strict=True)})
    band_px = max(44, _LINE_PX * len(homes))
    fitting = min(most, max(4, _MOST_PX // band_px))
    chosen = ranked.sort_values(["wrong", "waited"], ascending=False, kind="stable").head(fitting)
    chosen = chosen.sort_values(["seen", "ddl_commit_ts"], kind="stable").reset_index(drop=True)
    finding = _finding(t, ranked, lane)
    t = t.merge(chosen.assign(_band=chosen.index)[["ddl_commit_ts", "query", "_band"]], on=["ddl_commit_ts", "query"])
    rank = {home: i for i, home in enumerate(homes)}
    t["_y"] = [
        b + 0.76 * ((rank[(str(a), int(p))] + 0.5) / len(homes) - 0.5)
        for a, p, b in zip(t["topic"], t["partition"], t["_band"], strict=True)
    ]
    fig = Figure()
    for band in range(0, len(chosen), 2):
        fig.add_hrect(y0=band - 0.5, y1=band + 0.5, fillcolor="rgba(128,128,128,0.10)", line_width=0, layer="below")
    for home in homes:
        _partition(
            fig, t[(t["topic"] == home[0]) & (t["partition"] == home[1])], home, lane if _one(homes) else label(home[0])
        )
    _crosses(fig, t)
    ends = t[["seen_at", "executed_at"]].max().max() / 1000
    starts = t["seen_at"].min() / 1000
    room = 0.12 if t["_wrong"].any() else 0.03  # for the numbers beside the crosses
    span = [starts - 0.03 * (ends - starts), ends + room * (ends - starts)]
    fig.update_xaxes(title_text="consumer time, ms", zeroline=False, range=span if ends > starts else None)
    names = [_short(q) for q in chosen["query"]]
    fig.update_yaxes(
        tickvals=list(range(len(names))), ticktext=names, range=[len(names) - 0.45, -0.55], showgrid=False,
        zeroline=False,
    )  # fmt: skip
    fig.update_layout(showlegend=True, hovermode="closest")
    cut = f" {len(chosen)} of {len(ranked)} DDL are drawn." if len(chosen) < len(ranked) else ""
    height = 240 + band_px * len(chosen)
    return finish(fig, title=finding, note=_NOTE.format(lane=lane) + cut, height=height, least_px=_LEAST_PX)


def _partition(fig: Figure, mine: pd.DataFrame, home: tuple[str, int], named: str) -> None:
    """A partition's lines, where it has the DDL, and where they are executed."""
    style, name = look(home[1]), f"{named} {home[1]}"
    mine = mine[mine["seen_at"].notna()]
    ends = mine["executed_at"].fillna(mine["seen_at"])
    x = [v for a, b in zip(mine["seen_at"] / 1000, ends / 1000, strict=True) for v in (a, b, None)]
    y = [v for a in mine["_y"] for v in (a, a, None)]
    line = {"width": 4, "color": style["color"], "dash": style["dash"]}
    group = {"legendgroup": name, "name": name}
    fig.add_trace(Scatter(x=x, y=y, mode="lines", line=line, hoverinfo="skip", showlegend=False, **group))
    mark = {"symbol": f"{style['symbol']}-open", "size": 9, "color": style["color"], "line": {"width": 2}}
    seen = Scatter(
        x=(mine["seen_at"] / 1000).tolist(), y=mine["_y"].tolist(), mode="markers", marker=mark,
        text=[_hover(r) for r in mine.to_dict("records")], hovertemplate="%{text}<extra>" + name + "</extra>", **group,
    )  # fmt: skip
    fig.add_trace(marked(seen, [Selection(commit_ts=ts) for ts in mine["ddl_commit_ts"]]))
    done = mine[mine["executed_at"].notna()]
    ran = {"symbol": "diamond", "size": 9, "color": style["color"]}
    fig.add_trace(
        Scatter(
            x=(done["executed_at"] / 1000).tolist(), y=done["_y"].tolist(), mode="markers", marker=ran,
            hoverinfo="skip", showlegend=False, **group,
        )
    )  # fmt: skip


def _crosses(fig: Figure, t: pd.DataFrame) -> None:
    """Rows on the wrong side, a mark for each side and their numbers beside it."""
    ran = t[t["executed_at"].notna()]
    for column, name, symbol in (("early_rows", "early rows", "x-thin"), ("late_rows", "late rows", "cross-thin")):
        mine = ran[ran[column].fillna(0) > 0]
        marker = {"symbol": symbol, "size": 13, "color": WRONG, "line": {"width": 3, "color": WRONG}}
        place = {"x": (mine["executed_at"] / 1000).tolist(), "y": mine["_y"].tolist()}
        look = {"mode": "markers", "marker": marker, "hoverinfo": "name", "showlegend": bool(len(mine))}
        fig.add_trace(Scatter(**place, **look, name=name))
    # One text for each DDL: its partitions lie closer to each other than lines of text.
    wrong = ran[ran["_wrong"] > 0].groupby("_band")[["executed_at", "early_rows", "late_rows"]]
    wrong = wrong.agg({"executed_at": "max", "early_rows": "sum", "late_rows": "sum"}).reset_index()
    texts = [
        "  " + ", ".join(f"{int(n):,} {side}" for n, side in ((early, "early"), (late, "late")) if n)
        for early, late in zip(wrong["early_rows"], wrong["late_rows"], strict=True)
    ]
    place = {"x": (wrong["executed_at"] / 1000).tolist(), "y": wrong["_band"].tolist()}
    words = {"mode": "text", "text": texts, "textposition": "middle right", "textfont": {"color": WRONG, "size": 12}}
    fig.add_trace(Scatter(**place, **words, name="wrong rows", hoverinfo="skip", showlegend=False))


def _finding(t: pd.DataFrame, ranked: pd.DataFrame, lane: str) -> str:
    early, late = int(t["early_rows"].fillna(0).sum()), int(t["late_rows"].fillna(0).sum())
    open_ones = int(t.groupby(["ddl_commit_ts", "query"])["executed_at"].apply(lambda e: e.isna().all()).sum())
    longest = t.loc[t["waited_us"].fillna(-1).idxmax()]
    waited = 0 if pd.isna(longest["waited_us"]) else int(longest["waited_us"])
    told = f"{count(len(ranked), 'DDL', 'DDL')}: "
    if waited:
        told += f"the longest wait is {rounded(waited / 1000, 4)} ms, of {lane} {longest['partition']} "
        told += f"for {_short(longest['query'])}"
    else:
        told += f"no {lane} waits"
    told += f"; {count(open_ones, 'is', 'are')} never executed" if open_ones else ""
    if not early + late:
        return f"{told}; every row is on its side"
    wrong = [f"{count(n, f'row is {w}', f'rows are {w}')}" for n, w in ((early, "early"), (late, "late")) if n]
    return f"{told}; {' and '.join(wrong)}"


def _hover(r: dict[str, object]) -> str:
    waited = r["waited_us"]
    told = "" if pd.isna(waited) else f"<br>waits {rounded(int(waited) / 1000, 4)} ms"  # type: ignore[call-overload]
    at = tso_words(int(r["ddl_commit_ts"]))  # type: ignore[call-overload]
    return f"{label(r['query'], most=90)}<br>commit_ts {at}{told}"


def _short(query: object) -> str:
    return label(query, most=34)


def _one(homes: list[tuple[str, int]]) -> bool:
    return len({topic for topic, _ in homes}) == 1

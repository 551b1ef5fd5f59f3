"""Why the global checkpoint does not move: what holds it, and since when.

It is read off a trace, of any protocol and without the data path; :mod:`.pipeline.why` looks into the states of a run
that has one, and names for each watermark the region, transaction or sink that holds it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import pandas as pd
import pyarrow as pa

from ticdc_lab.machines.machine import BARRIER, CAPTURE, OTHER, TABLE
from ticdc_lab.simulate.ledger import changes, elections, owners, troubles

KINDS = (TABLE, CAPTURE, BARRIER, OTHER)
"""Of what holds a checkpoint."""


@dataclass(frozen=True, slots=True)
class Stuck:
    """What holds the checkpoint at a moment.

    Attributes
    ----------
    kind
        One of :data:`KINDS`.
    name
        ``table 7``, ``capture-2``, ``the barrier``; empty for what has no name.
    since_us
        Since when, µs.
    answer
        The owner's sentence.
    """

    kind: str
    name: str
    since_us: int
    answer: str


class Stretch(NamedTuple):
    """A row of :func:`causes`."""

    since_us: int
    until_us: int
    since_step: int
    until_step: int
    kind: str
    name: str
    holds_since_us: int
    answer: str


def causes(trace: pa.Table) -> pd.DataFrame:
    """Give the stretches in which one cause held the checkpoint.

    Parameters
    ----------
    trace
        :data:`ticdc_lab.simulate.trace.TRACE`.

    Returns
    -------
    pd.DataFrame
        ``since_us``, ``until_us``, ``since_step``, ``until_step``, ``kind`` and ``name`` (as of :class:`Stuck`),
        ``holds_since_us`` (since when, by the owner's word) and ``answer``. A stretch begins when by the owner
        and ends where it gives another cause or none, where the global checkpoint moves, and where another capture is
        the owner. Where there is no owner that could report, or it is paused, that is the cause.
    """
    last = (trace["time_us"][-1].as_py(), trace["step"][-1].as_py()) if len(trace) else (0, 0)
    found = [*_said(trace, last), *_silent(trace)]
    found.sort(key=lambda s: (s.since_us, s.since_step))
    return pd.DataFrame(_apart(found), columns=list(Stretch._fields))


def _said(trace: pa.Table, last: tuple[int, int]) -> list[Stretch]:
    """Reports of owners."""
    told = changes(trace, "stuck")
    ends = [f.assign(after=None) for f in (changes(trace, "global-checkpoint"), elections(trace))]
    rows = pd.concat([told, *ends], ignore_index=True).sort_values("order", kind="stable")
    until = [*zip(rows["time_us"], rows["step"], strict=True), last][1:]
    out: list[Stretch] = []
    for row, (until_us, until_step) in zip(rows.itertuples(), until, strict=True):
        if row.after is None:
            continue
        if out and out[-1].answer == row.after and out[-1].until_step == row.step:
            out[-1] = out[-1]._replace(until_us=until_us, until_step=until_step)
            continue
        kind, name = row.reason["kind"], row.reason["name"]
        since_us = row.reason["since_us"]
        name = {TABLE: f"table {name}", BARRIER: "the barrier"}.get(kind, name)
        begin_us = min(row.time_us, since_us)
        out.append(Stretch(begin_us, until_us, row.step, until_step, kind, name, since_us, row.after))
    return out


def _silent(trace: pa.Table) -> list[Stretch]:
    """Stretches without an owner that could report: it is down or paused, or its session is gone."""
    periods, found = owners(trace), troubles(trace)
    out = []
    for won in periods.to_dict("records"):
        later = periods[periods["since_us"] >= won["until_us"]]
        if won["until_us"] < periods["until_us"].max() and len(later) and not _covered(periods, won["until_us"]):
            new, capture = later.iloc[0], won["capture"]
            down = found.query("capture == @capture and trouble == 'down' and since_us <= @won['until_us'] < until_us")
            answer = f"there is no owner: {capture} {'is down' if len(down) else 'is it no longer'}"
            steps = (won["until_step"], int(new["since_step"]))
            out.append(
                Stretch(won["until_us"], int(new["since_us"]), *steps, "capture", capture, won["until_us"], answer)
            )
        for p in found.query("capture == @won['capture'] and trouble == 'paused'").to_dict("records"):
            if won["since_us"] <= p["since_us"] < won["until_us"]:
                ends = (p["since_us"], min(p["until_us"], won["until_us"]), p["since_step"], p["until_step"])
                answer = f"the owner {won['capture']} is paused"
                out.append(Stretch(*ends, "capture", won["capture"], p["since_us"], answer))
    return out


def _covered(periods: pd.DataFrame, at_us: int) -> bool:
    return bool(((periods["since_us"] <= at_us) & (at_us < periods["until_us"])).any())


def _apart(found: list[Stretch]) -> list[Stretch]:
    """Each stretch after the one before it: a later report may reach back to an earlier one's time."""
    out: list[Stretch] = []
    for one in found:
        begin = max(one.since_us, out[-1].until_us) if out else one.since_us
        if begin < one.until_us:
            out.append(one._replace(since_us=begin))
    return out


def why_stuck(trace: pa.Table, *, at_us: int) -> Stuck | None:
    """Name what holds the checkpoint at a moment; None if nothing does."""
    found = causes(trace)
    now = found[(found["since_us"] <= at_us) & (at_us < found["until_us"])]
    if now.empty:
        return None
    row = now.iloc[-1]
    return Stuck(row["kind"], row["name"], int(row["holds_since_us"]), row["answer"])

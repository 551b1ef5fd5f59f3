"""Why the global checkpoint does not move: which table, capture or barrier holds it, and since when."""

from __future__ import annotations

import re
from dataclasses import dataclass

import pandas as pd
import pyarrow as pa

from ticdc_lab.simulate.ownership import changes

KINDS = ("table", "capture", "barrier", "other")
"""Of what holds a checkpoint."""

_NAMES = (
    ("barrier", re.compile(r"\b(?:barrier|DDL)\b")),
    ("table", re.compile(r"\b(?:table|span) (\d+(?:\[[^)]*\))?)")),
    ("capture", re.compile(r"\b(capture-[\w-]*\w(?:\.\d+)?)")),
)

_SINCE = re.compile(r"\bsince ([\d.]+) s\b")


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
        ``holds_since_us`` (since when, by the owner's word) and ``answer``. A stretch ends where the owner gives
        another cause or none, where the global checkpoint moves, and where another capture is the owner.
    """
    told = changes(trace, "stuck")
    ends = [changes(trace, subject).assign(after=None) for subject in ("global-checkpoint", "owner")]
    rows = pd.concat([told, *ends], ignore_index=True).sort_values("order", kind="stable")
    last = (trace["time_us"][-1].as_py(), trace["step"][-1].as_py()) if len(trace) else (0, 0)
    until = [*zip(rows["time_us"], rows["step"], strict=True), last][1:]
    out: list[dict[str, object]] = []
    for row, (until_us, until_step) in zip(rows.itertuples(), until, strict=True):
        if row.after is None:
            continue
        kind, name = cause_of(row.after)
        same = out and out[-1]["answer"] == row.after and out[-1]["until_step"] == row.step
        if same:
            out[-1] |= {"until_us": until_us, "until_step": until_step}
            continue
        said = _SINCE.search(row.because or "")
        since = round(float(said[1]) * 1e6) if said else row.time_us
        out.append(
            {
                "since_us": row.time_us, "until_us": until_us, "since_step": row.step, "until_step": until_step,
                "kind": kind, "name": name, "holds_since_us": since, "answer": row.after,
            }
        )  # fmt: skip
    return pd.DataFrame(out, columns=_COLUMNS)


_COLUMNS = ["since_us", "until_us", "since_step", "until_step", "kind", "name", "holds_since_us", "answer"]


def why_stuck(trace: pa.Table, *, at_us: int) -> Stuck | None:
    """Say what holds the checkpoint at a moment; None where nothing does."""
    found = causes(trace)
    now = found[(found["since_us"] <= at_us) & (at_us < found["until_us"])]
    if now.empty:
        return None
    row = now.iloc[-1]
    return Stuck(row["kind"], row["name"], int(row["holds_since_us"]), row["answer"])


def cause_of(answer: str) -> tuple[str, str]:
    """Read the kind and the name of a cause out of the owner's sentence; the barrier goes first, then the table."""
    for kind, word in _NAMES:
        found = word.search(answer)
        if found:
            return kind, {"barrier": "the barrier", "table": f"table {found[found.lastindex or 0]}"}.get(kind, found[0])
    return "other", ""

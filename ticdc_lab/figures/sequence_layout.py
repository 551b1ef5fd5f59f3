"""How a run is laid out as a sequence diagram: lifelines to the right, time or steps downwards."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from ticdc_lab.machines.machine import node_of
from ticdc_lab.simulate.arrows import arrows, shortly, table_of
from ticdc_lab.simulate.ledger import natural, of_kinds, owners, troubles

# Kinds of messages in a sequence diagram: whose they are, how they are numbered, how several at once are one arrow.

PROTOCOL = ("Announce", "Sync", "DispatchTable", "DispatchTableResponse", "Checkpoint")
"""The design's messages, in its order; they look the same everywhere, and others come after them."""

REPORTS = frozenset({"Checkpoint", "Heartbeat", "HeartbeatResponse", "HeartBeatRequest", "HeartBeatResponse"})
"""What is sent all the time."""

OWNERS_SIDE = frozenset(
    {
        "Announce", "DispatchTable", "DispatchTableRequest", "Heartbeat", "MaintainerBootstrapRequest",
        "ScheduleDispatcherRequest", "MergeDispatcherRequest", "HeartBeatResponse",
    }
)  # fmt: skip
"""Messages that an owner of any protocol sends; it receives all others."""

_FEW = 4
"""Tables up to which a name lists them."""


def numbers(shown: pd.DataFrame) -> npt.NDArray[np.int64]:
    """Number messages as they were sent, at the same moment in the order of the protocol."""
    kinds = shown["message"].map({message: i for i, message in enumerate(PROTOCOL)}).fillna(len(PROTOCOL))
    place = np.lexsort((shown["sent_step"], kinds, shown["sent_us"]))
    return np.argsort(place) + 1


def together(texts: pd.Series) -> str:
    """One name for messages of a kind: with the few tables they are about, or their number."""
    first = str(texts.iloc[0])
    if len(texts) == 1:
        return first
    about = [str(t).partition(" ")[2] for t in texts]
    few = len(texts) <= _FEW and all(about)
    return f"{first.partition(' ')[0]} {', '.join(about)}" if few else f"{first.partition(' ')[0]} ×{len(texts)}"


def unfinished(told: pd.DataFrame) -> pd.DataFrame:
    """Arrows that do not arrive fan out, so that arrows of one moment do not overlap."""
    way = told["fate"] == "on its way"
    told.loc[way, "y1"] += 0.3 + 0.7 * told[way].groupby(["x0", "x1", "y0"]).cumcount()
    return told


def happenings_of(marks: pd.DataFrame, *, captures: Sequence[str] = (), tables: Sequence[str] = ()) -> pd.DataFrame:
    """Keep what happens to captures, and of what happens to tables only to those chosen.

    ``marks``: :func:`ticdc_lab.figures.sequence_layout.marks_of`; what breaks an invariant always stays. ``captures``,
    ``tables``: those chosen; none means all.
    """
    broken = marks["kind"] == "violated"
    if captures:
        marks = marks[marks["node"].map(node_of).isin(captures) | broken]
    if tables:
        subject = marks["subject"].fillna("")
        other = subject.str.startswith("table:") & ~subject.str.removeprefix("table:").isin(tables)
        marks = marks[~other]
    return marks


Axis = Literal["step", "time"]

_ETCD = "etcd"

_BUNDLE = ["x0", "x1", "y0", "message", "fate", "because"]


@dataclass(frozen=True, eq=False, slots=True)
class SequenceLayout:
    """A stretch of a run, laid out."""

    lifelines: tuple[str, ...]  # names, from the left
    # Those drawn: ``x0, y0, x1, y1, message, fate, because, text`` (short), ``detail`` (of the first), ``n`` (how many
    # were sent at once and have the same fate: one arrow to the last arrival), ``number`` (from 1, of the first) and
    # ``step`` (when they end).
    arrows: pd.DataFrame
    marks: pd.DataFrame  # what happens at a node: ``x, y, kind, text, step``
    spans: pd.DataFrame  # stretches of a lifeline: ``x, y0, y1, what`` (``alive``, ``owner``, ``down``, ``paused``)
    # ``steps``, ``times_us``: of the whole stretch, and what ``y`` is of each.
    steps: npt.NDArray[np.int64]
    times_us: npt.NDArray[np.int64]
    total: int  # messages of the stretch, drawn or not
    axis: Axis  # what goes down

    def y(self, steps: npt.ArrayLike, times_us: npt.ArrayLike) -> npt.NDArray[np.float64]:
        """How far down something stands: the place of its step among those drawn, or milliseconds."""
        if self.axis == "time":
            return np.asarray(times_us, dtype=np.float64) / 1000
        return np.interp(np.asarray(steps, dtype=np.float64), self.steps, np.arange(len(self.steps)))

    @property
    def lowest(self) -> float:
        """The ``y`` of the end."""
        return float(self.y(self.steps[-1], self.times_us[-1]))

    @property
    def first(self) -> float:
        """The ``y`` of the beginning."""
        return float(self.y(self.steps[0], self.times_us[0]))


def lay_out(
    trace: pa.Table, *, axis: Axis = "step", between_us: tuple[int, int] | None = None,
    steps: tuple[int, int] | None = None, messages: tuple[str, ...] = (), reports: bool = True, apart: bool = False,
    most: int = 400, captures: tuple[str, ...] = (), tables: tuple[str, ...] = (),
) -> SequenceLayout | None:  # fmt: skip
    """Lay a stretch of a trace out; None where nothing happens in it.

    ``trace``: :data:`ticdc_lab.simulate.trace.TRACE`. ``axis``: what goes down: each ``step`` a line, or ``time`` in
    proportion. ``between_us``, ``steps``: the first and last moment or step that is drawn. ``messages``: names of those
    drawn; by default all but those to and from etcd, which has a lifeline if they are named. ``reports``: whether
    periodic heartbeats and watermarks are among those that are drawn by default. ``apart``: whether the owner has a
    lifeline beside the processor of its capture. ``most``: messages drawn: the first ones; before a violation the last
    ones. ``captures``, ``tables``: whose messages, and about which tables (ids as text); by default all.
    """
    cut = _cut(trace, between_us, steps)
    found = arrows(cut)
    private = (found["sender"] == _ETCD) | (found["receiver"] == _ETCD)
    private |= found["message"].isin(REPORTS) & (not reports)
    found = found[found["message"].isin(messages)] if messages else found[~private]
    if captures:
        ends = found["sender"].map(node_of).isin(captures) | found["receiver"].map(node_of).isin(captures)
        found = found[ends]
    found = found[found["detail"].map(table_of).isin(tables)] if tables else found
    broken = bool(pc.any(pc.equal(cut["kind"], "violated")).as_py())
    shown = found.tail(most) if broken else found.head(most)
    if len(shown) < len(found):
        kept = (int(shown["sent_step"].min()) if broken else None, None if broken else int(shown["end_step"].max()))
        cut = _cut(cut, None, kept)
    marks = happenings_of(marks_of(cut), captures=captures, tables=tables)
    if shown.empty and marks.empty:
        return None
    drawn = np.unique(np.concatenate([shown["sent_step"], shown["end_step"], marks["step"]]).astype(np.int64))
    at = dict(zip(cut["step"].to_pylist(), cut["time_us"].to_pylist(), strict=True))
    by_owner = shown["message"].isin(OWNERS_SIDE)
    names = {*_side(shown["sender"], by_owner, apart), *_side(shown["receiver"], ~by_owner, apart)}
    names |= set(_side(marks["node"], of_owner(marks), apart))
    first = {"etcd": 0, "owner": 1}
    lines = sorted(names, key=lambda n: (first.get(n.split(" ")[0], 2), natural(n)))
    place = {name: float(i) for i, name in enumerate(lines)}
    out = SequenceLayout(
        tuple(lines), shown, marks, pd.DataFrame(), drawn, np.array([at[s] for s in drawn.tolist()]), len(found), axis
    )
    return SequenceLayout(
        out.lifelines, _arrows(out, place, apart), _marks(out, place, apart), _spans(out, trace, place, apart),
        out.steps, out.times_us, out.total, axis,
    )  # fmt: skip


def _cut(trace: pa.Table, between_us: tuple[int, int] | None, steps: tuple[int | None, int | None] | None) -> pa.Table:
    for column, window in (("time_us", between_us), ("step", steps)):
        low, high = window or (None, None)
        if low is not None:
            trace = trace.filter(pc.greater_equal(trace[column], low))
        if high is not None:
            trace = trace.filter(pc.less_equal(trace[column], high))
    return trace


def _side(node: pd.Series, as_owner: pd.Series, apart: bool) -> pd.Series:
    capture = node.map(node_of)
    return ("owner on " + capture).where(as_owner, capture) if apart else capture


def _arrows(out: SequenceLayout, place: dict[str, float], apart: bool) -> pd.DataFrame:
    shown, by_owner = out.arrows, out.arrows["message"].isin(OWNERS_SIDE)
    frame = pd.DataFrame(
        {
            "x0": _side(shown["sender"], by_owner, apart).map(place),
            "x1": _side(shown["receiver"], ~by_owner, apart).map(place),
            "y0": out.y(shown["sent_step"], shown["sent_us"]), "y1": out.y(shown["end_step"], shown["end_us"]),
            "message": shown["message"], "fate": shown["fate"], "because": shown["because"].fillna(""),
            "text": [shortly(m, d) for m, d in zip(shown["message"], shown["detail"], strict=True)],
            "detail": shown["detail"], "number": numbers(shown), "step": shown["end_step"],
        }
    )  # fmt: skip
    bundles = frame.groupby(_BUNDLE, sort=False, as_index=False, dropna=False)
    told = bundles.agg(
        y1=("y1", "max"), n=("number", "size"), number=("number", "min"), text=("text", together),
        detail=("detail", "first"), step=("step", "max"),
    )  # fmt: skip
    return unfinished(told) if out.axis == "step" else told


def _marks(out: SequenceLayout, place: dict[str, float], apart: bool) -> pd.DataFrame:
    marks = out.marks
    each = pd.DataFrame(
        {
            "x": _side(marks["node"], of_owner(marks), apart).map(place), "y": out.y(marks["step"], marks["time_us"]),
            "kind": marks["kind"], "text": [mark_text(m) for m in marks.to_dict("records")], "step": marks["step"],
        }
    )  # fmt: skip
    together = each.groupby(["x", "y", "kind"], sort=False, as_index=False)
    return together.agg(text=("text", listed), step=("step", "max"))


def _spans(out: SequenceLayout, trace: pa.Table, place: dict[str, float], apart: bool) -> pd.DataFrame:
    """Whole lifelines, and what they were for a time; the owner's are on its own line where it stands apart."""
    rows = [(x, out.first, out.lowest, "alive") for x in place.values()]
    of = [(f, "owner on " if apart and what == "owner" else "", what) for f, what in
          ((owners(trace), "owner"), (troubles(trace).query("trouble != 'parted'"), ""))]  # fmt: skip
    for frame, side, what in of:
        for s in frame.to_dict("records"):
            x = place.get(side + s["capture"])
            ends = out.y([s["since_step"], s["until_step"]], [s["since_us"], s["until_us"]])
            low, high = np.clip(ends, out.first, out.lowest)
            if x is not None and s["since_step"] <= out.steps[-1] and s["until_step"] >= out.steps[0]:
                rows.append((x, float(low), float(high), what or s["trouble"]))
    return pd.DataFrame(rows, columns=["x", "y0", "y1", "what"])


# What happens at the nodes of a sequence diagram besides messages, and its words.

_WATERMARKS = ("checkpoint", "resolved", "global-checkpoint", "global-resolved")

_LISTED = 8
"""Changes at one moment that a hover lists."""

_MARKS = ("changed", "decided", "asked", "crashed", "restarted", "paused", "resumed", "parted", "healed", "violated")


def marks_of(trace: pa.Table) -> pd.DataFrame:
    """Give the marks of a trace: faults of captures, without watermarks and without what every tick asks."""
    marks = of_kinds(trace, *_MARKS)
    marked = (marks["kind"] != "changed") | ~marks["subject"].isin(_WATERMARKS)
    routine = (marks["kind"] == "asked") & marks["message"].isin(["Tick", "Poll"])
    elsewhere = marks["node"].isin([_ETCD, ""]) & (marks["kind"] != "violated")
    return marks[marked & ~routine & ~elsewhere]


def of_owner(marks: pd.DataFrame) -> pd.Series:
    """Whether each mark is of the owner's side of its capture."""
    subject = marks["subject"].fillna("")
    changed = (marks["kind"] == "changed") & (subject.isin(["owner", "stuck"]) | subject.str.startswith("capture:"))
    return changed | (marks["kind"] == "decided")


def listed(texts: pd.Series) -> str:
    """Join what happens at one moment, the first lines of many."""
    more = f"\n… {len(texts) - _LISTED:,} more" if len(texts) > _LISTED else ""
    return "\n".join(texts.head(_LISTED)) + more


def mark_text(mark: dict[str, object]) -> str:
    """Describe what happens in a line."""
    because = f": {mark['because']}" if mark["because"] else ""
    if mark["kind"] == "changed":
        return f"{mark['subject']}: {mark['before'] or '–'} → {mark['after'] or '–'}{because}"
    if mark["kind"] == "decided":
        return f"{mark['subject']} → {mark['after'] or 'nothing'}{because}"
    what = mark["subject"] or mark["message"] or mark["peer"] or ""
    return f"{mark['kind']} {what}".strip() + because

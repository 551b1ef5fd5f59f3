"""What happens at the nodes of a sequence diagram besides messages, and how it is told."""

from __future__ import annotations

import pandas as pd
import pyarrow as pa

from ticdc_lab.simulate.ownership import of_kinds

_ETCD = "etcd"
_WATERMARKS = ("checkpoint", "resolved", "global-checkpoint", "global-resolved")

_LISTED = 8
"""Changes at one moment that a hover lists."""

_MARKS = (
    "changed", "decided", "asked", "crashed", "restarted", "paused", "resumed", "parted", "healed", "violated",
)  # fmt: skip


def marks_of(trace: pa.Table) -> pd.DataFrame:
    """Give the marks of a trace: what befalls captures, without watermarks and without what every tick asks."""
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
    """Tell what happens in a line."""
    because = f": {mark['because']}" if mark["because"] else ""
    if mark["kind"] == "changed":
        return f"{mark['subject']}: {mark['before'] or '–'} → {mark['after'] or '–'}{because}"
    if mark["kind"] == "decided":
        return f"{mark['subject']} → {mark['after'] or 'nothing'}{because}"
    what = mark["subject"] or mark["message"] or mark["peer"] or ""
    return f"{mark['kind']} {what}".strip() + because

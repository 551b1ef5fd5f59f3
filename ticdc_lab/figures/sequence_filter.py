"""What of a sequence diagram is drawn when somebody chose captures or tables."""

from __future__ import annotations

from collections.abc import Sequence

import pandas as pd

from ticdc_lab.simulate.arrows import table_of
from ticdc_lab.simulate.ownership import capture_of


def arrows_of(found: pd.DataFrame, *, captures: Sequence[str] = (), tables: Sequence[str] = ()) -> pd.DataFrame:
    """Keep the messages that a capture sends or receives, and those about a table.

    Parameters
    ----------
    found
        :func:`ticdc_lab.simulate.arrows.arrows`.
    captures, tables
        Those chosen; none means all. Messages that are about no single table are left out where tables are chosen.
    """
    if captures:
        ends = found["sender"].map(capture_of).isin(captures) | found["receiver"].map(capture_of).isin(captures)
        found = found[ends]
    return found[found["detail"].map(table_of).isin(tables)] if tables else found


def happenings_of(marks: pd.DataFrame, *, captures: Sequence[str] = (), tables: Sequence[str] = ()) -> pd.DataFrame:
    """Keep what happens to captures, and of what happens to tables only to those chosen.

    Parameters
    ----------
    marks
        :func:`ticdc_lab.figures.sequence_marks.marks_of`; what breaks an invariant always stays.
    captures, tables
        Those chosen; none means all.
    """
    broken = marks["kind"] == "violated"
    if captures:
        marks = marks[marks["node"].map(capture_of).isin(captures) | broken]
    if tables:
        subject = marks["subject"].fillna("")
        other = subject.str.startswith("table:") & ~subject.str.removeprefix("table:").isin(tables)
        marks = marks[~other]
    return marks

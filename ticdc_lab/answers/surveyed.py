"""What lies at a place, as an answer."""

from __future__ import annotations

import pandas as pd

from ticdc_lab.answers.answer import Answer
from ticdc_lab.sources.survey import Found


def surveyed(found: Found) -> Answer:
    """What a source is, how large, and what to do next; it was looked at and not read.

    Parameters
    ----------
    found
        Of :func:`ticdc_lab.sources.survey.survey`.
    """
    seen = pd.DataFrame({"table": found.tables, "rows_seen": found.rows_seen})
    return Answer(
        "survey", "What lies there, and how large is it?", found.words, {"by_table": seen}, found.unknown, found.advice,
        found.facts(),
    )  # fmt: skip

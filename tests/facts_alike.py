"""Whether two ways to gather what a log states found the same."""

from __future__ import annotations

import numpy as np

from ticdc_lab.facts import LogFacts


def same(one: LogFacts, two: LogFacts) -> bool:
    """Whether both know the same."""
    tables = all(getattr(one, n).equals(getattr(two, n)) for n in ("places", "ddl", "admin", "offsets"))
    arrays = all(
        np.array_equal(getattr(one.watermarks, n), getattr(two.watermarks, n)) for n in ("home", "offset", "ts")
    )
    return one.homes == two.homes and tables and arrays

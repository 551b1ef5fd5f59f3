"""What we say to a record, beside what the file says."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from ticdc_lab.simulate.pd.explained import Explained


class Verdict(NamedTuple):
    """Our answer to a record.

    Parameters
    ----------
    ours
        Our answer, in the form of the file. Where PD may answer in several ways it is the most likely one, the first
        of equally likely ones; ``legal`` has them all.
    file
        What the file says.
    agrees
        Whether they agree; None where the record is not judged.
    because
        Why, in a sentence: what decided, or how the two differ.
    legal
        Every answer PD may give, each with its ``chance``; empty where there is one.
    explained
        The reasons of a decision, where one was made for one region.
    """

    ours: Any
    file: Any
    agrees: bool | None
    because: str = ""
    legal: tuple[dict[str, Any], ...] = ()
    explained: Explained | None = None


def equal(ours: Mapping[str, Any], expect: Mapping[str, Any], because: str = "") -> Verdict:
    """Give the verdict of an answer that must be the file's in every field."""
    return Verdict(dict(ours), dict(expect), ours == expect, because)

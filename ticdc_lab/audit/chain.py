"""Whether each change of a row begins where the one before it ended, in hashes of images."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from ticdc_lab.audit.promises import Ints, Promises

if TYPE_CHECKING:
    from ticdc_lab.audit.judge import Changes

Bools = NDArray[np.bool_]

ABSENT, SOME, UNKNOWN = 0, 1, 2
"""Stand for the hash of an image where the row is not there, is there in a form that is not known, or perhaps is."""

IS_GONE, IS_THERE, IS_OTHER = 1, 2, 3
"""How a change does not begin where the one before it ended."""


def torn(left: Ints, found: Ints) -> Ints:
    """How an image before a change differs from what the row's former change left, 0 where it does not.

    Images of other columns are not compared (:func:`ticdc_lab.keys.image_hash`).
    """
    gone = (left == ABSENT) & (found != ABSENT) & (found != UNKNOWN)
    there = (left != ABSENT) & (found == ABSENT)
    other = (left >> 32 == found >> 32) & (left >> 32 != 0) & (found != left)
    how: Ints = IS_GONE * gone + IS_THERE * there + IS_OTHER * (other & ~gone & ~there)
    return how


def broken_chains(c: Changes, former: Ints, asked: Bools, promises: Promises) -> tuple[Ints, Ints]:
    """Per change the ``former`` one of its row that does not lead to it, or -1, and how; of those that are ``asked``.

    Across a DDL of the table nothing is compared.
    """
    at = np.flatnonzero(asked & (former >= 0))
    how = torn(c.after[former[at]], c.before[at])
    at, how = at[how > 0], how[how > 0]
    place, was = np.searchsorted(promises.place, c.place[at]), former[at]
    same = ~promises.altered(place, c.commit_ts[was], c.commit_ts[at])
    broken, why = np.full(len(c), -1), np.zeros(len(c), dtype=np.int64)
    broken[at[same]], why[at[same]] = was[same], how[same]
    return broken, why


def covered(c: Changes, broken: Ints, place: Ints, promises: Promises) -> Bools:
    """Whether every partition was recorded between a change and the former one; one partition always was, in itself."""
    low, high = c.commit_ts[broken], c.commit_ts
    inside = (low >= promises.known_from[place]) & (high <= promises.known_to[place])
    known: Bools = (c.place[broken] == c.place) | inside
    return known

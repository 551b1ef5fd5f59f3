"""Where stores are: comparing locations along the location labels; `pd_notes.md` section 4."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from ticdc_lab.simulate.pd.stores import Store, label

BASE = 100
"""A difference at one label outweighs a hundred at the next."""


def compare_location(one: Store, other: Store, labels: Sequence[str]) -> int:
    """Give the index of the first label at which two stores differ, -1 for none.

    A missing label counts as the same place; values are compared without regard to case.
    """
    for i, key in enumerate(labels):
        a, b = label(one, key), label(other, key)
        if a and b and a.lower() != b.lower():
            return i
    return -1


def pair_score(one: Store, other: Store, labels: Sequence[str]) -> int:
    """Give how far apart two stores are: 100 to the power of the labels after the one that differs, 0 for none."""
    i = compare_location(one, other, labels)
    return 0 if i < 0 else BASE ** (len(labels) - i - 1)


def distinct_score(labels: Sequence[str], stores: Iterable[Store], other: Store) -> int:
    """Give the isolation score of ``other`` beside the stores of a region's other peers: higher is better."""
    return sum(pair_score(s, other, labels) for s in stores if s.id != other.id)


def isolation_score(stores: Sequence[Store], labels: Sequence[str]) -> int:
    """Give the isolation score of a whole set of stores: the sum over its pairs."""
    if not labels:
        return 0
    return sum(pair_score(a, b, labels) for i, a in enumerate(stores) for b in stores[i + 1 :])


def matched_labels(one: Store, other: Store, labels: Sequence[str]) -> int:
    """Give how many location labels two stores share, from the widest on; a missing label is a value of its own."""
    for i, key in enumerate(labels):
        if label(one, key) != label(other, key):
            return i
    return len(labels)

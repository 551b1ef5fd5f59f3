"""Policies apart from the mechanism: what a scheduler sees in a round, and what it answers.

A policy of one's own is a function from :class:`Seen` to :class:`Answer`::

    def fewest_regions_first(seen: Seen) -> Answer:
        ...

    policy = Policy("fewest-regions-first", fewest_regions_first, Kind.REGION)

and takes the place of PD's of the same kind in ``Start`` or in the middle of a run.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from random import Random
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ticdc_lab.simulate.pd.balance import Draw
from ticdc_lab.simulate.pd.cluster import Cluster
from ticdc_lab.simulate.pd.explained import Explained
from ticdc_lab.simulate.pd.hot_loads import Flow
from ticdc_lab.simulate.pd.operators import Kind, Operator
from ticdc_lab.simulate.pd.regions import Region


class Hot(NamedTuple):
    """What is read and written, the hot regions that do not move yet, and by flow the stores hot for long."""

    flows: Mapping[str, Flow]
    regions: Mapping[int, Region]
    ready: Mapping[str, frozenset[int]]


BUSY = "every region that could be moved has an operator already"
"""PD makes operators for such regions and cancels them at once, so that the next round comes soon."""


class Seen(NamedTuple):
    """What a policy sees: the cluster with the influence of running operators, and regions by chance.

    Parameters
    ----------
    cluster
        Settings, stores, rules, influence.
    draw
        Gives up to ten random regions whose peer on a store is of a kind (:mod:`ticdc_lab.simulate.pd.balance`).
    running
        How many operators run, by the kind they are limited as.
    chance
        The only source of chance.
    memory
        The policy's own, kept from round to round.
    now_us
        Virtual time.
    region
        Gives a region by its id, None where there is none.
    hot
        Gives what is hot now; it is computed when asked for.
    followers_of
        Counts regions by the store that leads (rows) and those with a follower (columns), of the stores given.
    busy_followers_of
        The same of regions that have an operator.
    """

    cluster: Cluster
    draw: Draw
    running: Mapping[Kind, int]
    chance: Random
    memory: dict[str, Any]
    now_us: int
    region: Callable[[int], Region | None]
    hot: Callable[[], Hot]
    followers_of: Callable[[Sequence[int]], NDArray[np.int32]]
    busy_followers_of: Callable[[Sequence[int]], NDArray[np.int32]]


class Answer(NamedTuple):
    """Operators to make, none where nothing pays, and the reasons; of stores, whether they take no leaders now."""

    operators: tuple[Operator, ...]
    told: Explained
    evicted: tuple[tuple[int, bool], ...] = ()


class Policy(NamedTuple):
    """A scheduler: its name, its rounds, and what limits it.

    Parameters
    ----------
    name
        As ``pd-ctl scheduler show`` prints it.
    schedule
        Plays a round.
    limited_as
        The kind whose schedule limit stops rounds.
    may_pay
        Whether a round can lead to anything, quickly: where it gives a sentence that is why none can.
    hot
        Whether its rounds come at the intervals of hot regions.
    tries
        Attempts a round.
    store
        The store that an evict or grant scheduler is about.
    sleeps
        Whether it has no rounds before a store is slow.
    """

    name: str
    schedule: Callable[[Seen], Answer]
    limited_as: Kind
    may_pay: Callable[[Seen], str] = lambda seen: ""
    hot: bool = False
    tries: int = 10
    store: int = 0
    sleeps: bool = False


NOTHING = Answer((), Explained((), "nothing to do"))

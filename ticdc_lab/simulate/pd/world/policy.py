"""Policies apart from the mechanism: what a scheduler sees in a round, what it answers, and when its rounds come.

A policy of one's own is a function from :class:`SeenCluster` to :class:`Answer`::

    def fewest_regions_first(seen: SeenCluster) -> Answer:
        ...

    policy = Policy("fewest-regions-first", fewest_regions_first, Kind.REGION)

and takes the place of PD's of the same kind in ``Start`` or in the middle of a run.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ticdc_lab.pd_core.balance import Draw
from ticdc_lab.pd_core.cluster import Cluster
from ticdc_lab.pd_core.config import EVICT_LEADER, Config
from ticdc_lab.pd_core.explained import HALTED, Explained
from ticdc_lab.pd_core.hot_loads import Flow
from ticdc_lab.pd_core.operators import Kind, Operator
from ticdc_lab.pd_core.regions import SCHEDULE, KeyRanges, Region
from ticdc_lab.simulate.pd.world.start import NEVER_US, WorldSettings

if TYPE_CHECKING:
    from ticdc_lab.simulate.pd.world.recording import PdRecorder


class Hot(NamedTuple):
    """What is read and written, the hot regions that do not move yet, and by flow the stores hot for long."""

    flows: Mapping[str, Flow]
    regions: Mapping[int, Region]
    ready: Mapping[str, frozenset[int]]


BUSY = "every region that could be moved has an operator already"
"""PD makes operators for such regions and cancels them at once, so that the next round comes soon."""


class SeenCluster(NamedTuple):
    """What a policy sees: the cluster with the influence of running operators, and regions by chance."""

    cluster: Cluster  # settings, stores, rules, influence
    draw: Draw  # gives up to ten random regions whose peer on a store is of a kind (:mod:`ticdc_lab.pd_core.balance`)
    running: Mapping[Kind, int]  # how many operators run, by the kind they are limited as
    chance: Random  # the only source of chance
    memory: dict[str, Any]  # the policy's own, kept from round to round
    now_us: int  # virtual time
    region: Callable[[int], Region | None]  # gives a region by its id, None where there is none
    hot: Callable[[], Hot]  # gives what is hot now; it is computed when asked for
    # Counts regions by the store that leads (rows) and those with a follower (columns), of the stores given
    followers_of: Callable[[Sequence[int]], NDArray[np.int32]]
    busy_followers_of: Callable[[Sequence[int]], NDArray[np.int32]]  # the same of regions that have an operator


class Answer(NamedTuple):
    """Operators to make, none where nothing pays, and the reasons; of stores, whether they take no leaders now."""

    operators: tuple[Operator, ...]
    told: Explained
    evicted: tuple[tuple[int, bool], ...] = ()


class Policy(NamedTuple):
    """A scheduler: its name, its rounds, and what limits it."""

    name: str  # as ``pd-ctl scheduler show`` prints it
    schedule: Callable[[SeenCluster], Answer]  # plays a round
    limited_as: Kind  # the kind whose schedule limit stops rounds
    # Whether a round can lead to anything, quickly: where it gives a sentence that is why none can
    may_pay: Callable[[SeenCluster], str] = lambda seen: ""
    hot: bool = False  # whether its rounds come at the intervals of hot regions
    tries: int = 10  # attempts a round
    store: int = 0  # the store that an evict or grant scheduler is about
    ranges: KeyRanges = ()
    sleeps: bool = False  # whether it has no rounds before a store is slow


NOTHING = Answer((), Explained((), "nothing to do"))


_SLOWER = 1.3


@dataclass(slots=True)
class Scheduler:
    """A policy at work: its next round, and what its rounds came to so far.

    ``reasons`` counts rounds without an operator by their reason; ``last`` is the latest answer.
    """

    policy: Policy
    interval_us: int
    due_us: int
    memory: dict[str, Any] = field(default_factory=dict)
    paused_until_us: int = 0
    rounds: int = 0
    fruitful: int = 0
    reasons: Counter[str] = field(default_factory=Counter)
    last: Explained = field(default_factory=lambda: Explained((), "no round yet"))


def scheduler_of(policy: Policy, now_us: int, settings: WorldSettings) -> Scheduler:
    """Give a scheduler whose first round comes soon."""
    least = settings.hot_least_us if policy.hot else settings.scheduler_least_us
    return Scheduler(policy, least, NEVER_US if policy.sleeps else now_us + least)


LIMITS = {
    Kind.LEADER: "leader_schedule_limit",
    Kind.REGION: "region_schedule_limit",
    Kind.REPLICA: "replica_schedule_limit",
    Kind.MERGE: "merge_schedule_limit",
    Kind.HOT_REGION: "hot_region_schedule_limit",
}


def limit_reached(kind: Kind, running: int, config: Config) -> str:
    """Name the schedule limit that stops a kind, "" where it has room."""
    name = LIMITS.get(kind)
    if name is None or running < getattr(config, name):
        return ""
    return f"{name.replace('_', '-')} {getattr(config, name)}"


def play_round(
    s: Scheduler, seen: SeenCluster, now_us: int, settings: WorldSettings, recorder: PdRecorder | None = None
) -> Answer:
    """Play a round and set the time of the next.

    A round that the limit or a pause forbids does not count: it comes again after the same interval.
    """
    ended_us = now_us + seen.chance.randint(*settings.round_us)
    limit = limit_reached(s.policy.limited_as, seen.running.get(s.policy.limited_as, 0), seen.cluster.config)
    s.rounds += 1
    if seen.cluster.config.halt_scheduling:  # its interval stays: the world resumes it when the halt is over
        return _without(s, Explained((), HALTED, limit="halt-scheduling"), ended_us + settings.scheduler_most_us)
    if limit or now_us < s.paused_until_us:
        why = f"{limit} is reached" if limit else "the scheduler is paused"
        return _without(s, Explained((), why, limit=limit), ended_us)
    least = settings.hot_least_us if s.policy.hot else settings.scheduler_least_us
    why = s.policy.may_pay(seen)
    if why and recorder is not None:
        recorder.unpaid(seen, s.policy, why)
    if why == BUSY:
        # Come again with the next tick: until then no region is free.
        s.interval_us = settings.scheduler_least_us
        s.reasons[BUSY] += 1
        s.last = Explained((), BUSY)
        s.due_us = (now_us // settings.tick_us + 1) * settings.tick_us + s.interval_us
        return Answer((), s.last)
    told = Explained((), why)
    evicted: tuple[tuple[int, bool], ...] = ()
    for _ in range(0 if why else s.policy.tries):
        answer = s.policy.schedule(seen)
        if recorder is not None:
            recorder.answered(seen, s.policy, answer)
        if not s.policy.name.startswith(EVICT_LEADER) and any(_denied(seen, op) for op in answer.operators):
            told = Explained((), "a label of the region forbids scheduling")
            continue
        if answer.operators:
            s.interval_us = least
            s.fruitful += 1
            s.last = answer.told
            s.due_us = ended_us + s.interval_us
            return answer
        told, evicted = answer.told, answer.evicted
    slower = int((least if s.policy.hot else s.interval_us) * _SLOWER)
    s.interval_us = slower if s.policy.hot else min(slower, settings.scheduler_most_us)
    return _without(s, told, ended_us)._replace(evicted=evicted)


def _denied(seen: SeenCluster, op: Operator) -> bool:
    region = seen.region(op.region)
    return region is not None and SCHEDULE in region.denied


def _without(s: Scheduler, told: Explained, ended_us: int) -> Answer:
    s.reasons[told.because] += 1
    s.last = told
    s.due_us = ended_us + s.interval_us
    return Answer((), told)

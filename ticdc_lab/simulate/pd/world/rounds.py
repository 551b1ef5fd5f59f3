"""Rounds of the schedulers: when each comes, what it led to, and why it led to nothing."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from ticdc_lab.simulate.pd.config import Config
from ticdc_lab.simulate.pd.explained import Explained
from ticdc_lab.simulate.pd.operators import Kind
from ticdc_lab.simulate.pd.world.policy import BUSY, Answer, Policy, Seen
from ticdc_lab.simulate.pd.world.settings import WorldSettings

_SLOWER = 1.3
NEVER_US = 1 << 62


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


def play_round(s: Scheduler, seen: Seen, now_us: int, settings: WorldSettings) -> Answer:
    """Play a round and set the time of the next.

    A round that the limit or a pause forbids does not count: it comes again after the same interval.
    """
    ended_us = now_us + seen.chance.randint(*settings.round_us)
    limit = limit_reached(s.policy.limited_as, seen.running.get(s.policy.limited_as, 0), seen.cluster.config)
    s.rounds += 1
    if limit or now_us < s.paused_until_us:
        why = f"{limit} is reached" if limit else "the scheduler is paused"
        return _without(s, Explained((), why, limit=limit), ended_us)
    least, most = (
        (settings.hot_least_us, settings.hot_most_us)
        if s.policy.hot
        else (settings.scheduler_least_us, settings.scheduler_most_us)
    )
    why = s.policy.may_pay(seen)
    if why == BUSY:
        return _soon(s, now_us, settings)
    told = Explained((), why)
    evicted: tuple[tuple[int, bool], ...] = ()
    for _ in range(0 if why else s.policy.tries):
        answer = s.policy.schedule(seen)
        if answer.operators:
            s.interval_us = least
            s.fruitful += 1
            s.last = answer.told
            s.due_us = ended_us + s.interval_us
            return answer
        told, evicted = answer.told, answer.evicted
    s.interval_us = min(int((least if s.policy.hot else s.interval_us) * _SLOWER), most)
    return _without(s, told, ended_us)._replace(evicted=evicted)


def _soon(s: Scheduler, now_us: int, settings: WorldSettings) -> Answer:
    """Come again with the next tick: until then no region is free."""
    s.interval_us = settings.scheduler_least_us
    s.reasons[BUSY] += 1
    s.last = Explained((), BUSY)
    s.due_us = (now_us // settings.tick_us + 1) * settings.tick_us + s.interval_us
    return Answer((), s.last)


def _without(s: Scheduler, told: Explained, ended_us: int) -> Answer:
    s.reasons[told.because] += 1
    s.last = told
    s.due_us = ended_us + s.interval_us
    return Answer((), told)

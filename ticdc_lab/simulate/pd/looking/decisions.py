"""What was decided in a run and why: every decision that led to operators, and of others each reason."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any, NamedTuple

from ticdc_lab.simulate.pd.cluster import Cluster
from ticdc_lab.simulate.pd.explained import Explained
from ticdc_lab.simulate.pd.world.patrol import Patrol
from ticdc_lab.simulate.pd.world.policy import Answer, Policy, Seen
from ticdc_lab.simulate.pd.world.world import World

CHECKER = "checker"
_EVERY_US = 1_000_000


class Decision(NamedTuple):
    """A decision: by which scheduler (or the checkers), about which region (0: any), and its reasons."""

    at_us: int
    by: str
    region: int
    told: Explained


class Noted:
    """Keeps decisions; one without an operator only once a second for each scheduler and reason."""

    def __init__(self) -> None:
        self.kept: list[Decision] = []
        self.times: Counter[tuple[str, str]] = Counter()
        self.last_us: dict[tuple[str, str], int] = {}

    def take(self, at_us: int, by: str, region: int, told: Explained) -> None:
        """Keep a decision, where it is one to keep."""
        key = by, told.because
        self.times[key] += 1
        if not told.operators:
            if at_us - self.last_us.get(key, -_EVERY_US) < _EVERY_US:
                return
            self.last_us[key] = at_us
        self.kept.append(Decision(at_us, by, region, told))


class _Patrol(Patrol):
    """The checkers' patrol, overheard."""

    noted: Noted

    def look(self, row: int, cluster: Cluster, now_us: int, *args: Any, **kwargs: Any) -> Explained:
        region = int(self.regions.id[row])
        told = super().look(row, cluster, now_us, *args, **kwargs)
        self.noted.take(now_us, CHECKER, region, told)
        return told


def listen(world: World) -> Noted:
    """Overhear a cluster's schedulers and checkers from now on; nothing else about it changes."""
    noted = Noted()
    for scheduler in world.schedulers.values():
        scheduler.policy = overheard(scheduler.policy, noted)
    patrol = _Patrol(world.regions)
    vars(patrol).update(vars(world.patrol), noted=noted)
    world.patrol = patrol
    return noted


def overheard(policy: Policy, noted: Noted) -> Policy:
    """Give a policy whose decisions are kept."""
    return policy._replace(schedule=_schedule(policy, noted), may_pay=_may_pay(policy, noted))


def _schedule(policy: Policy, noted: Noted) -> Callable[[Seen], Answer]:
    def schedule(seen: Seen) -> Answer:
        answer = policy.schedule(seen)
        region = answer.operators[0].region if answer.operators else 0
        told = answer.told
        if answer.operators and told.operators != answer.operators:
            told = Explained(
                answer.operators, told.because, told.candidates, told.rejected, told.scored, told.compared, told.limit
            )
        noted.take(seen.now_us, policy.name, region, told)
        return answer

    return schedule


def _may_pay(policy: Policy, noted: Noted) -> Callable[[Seen], str]:
    def may_pay(seen: Seen) -> str:
        why = policy.may_pay(seen)
        if why:
            noted.take(seen.now_us, policy.name, 0, Explained((), why))
        return why

    return may_pay


def about_region(decisions: tuple[Decision, ...], region: int) -> list[Decision]:
    """Give the decisions about a region."""
    of = (d for d in decisions if d.region == region or any(op.region == region for op in d.told.operators))
    return sorted(of, key=lambda d: d.at_us)


def at(decisions: tuple[Decision, ...], at_us: int, by: str = "") -> Decision | None:
    """Give the last decision up to a moment, of one scheduler or of any."""
    found = [d for d in decisions if d.at_us <= at_us and by in ("", d.by)]
    return found[-1] if found else None

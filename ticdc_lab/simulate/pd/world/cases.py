"""Running a reference case: from its own start to its own end."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from ticdc_lab.simulate.pd.world.changes import Happened, Timed
from ticdc_lab.simulate.pd.world.monitor import Monitor, Violated
from ticdc_lab.simulate.pd.world.pd_policies import DEFAULT_POLICIES
from ticdc_lab.simulate.pd.world.policy import Policy
from ticdc_lab.simulate.pd.world.reference import Case
from ticdc_lab.simulate.pd.world.world import World

SAMPLE_TICKS = 20
_CLOSE = 0.05


class CaseRun(NamedTuple):
    """What a run of a case came to, in the terms of the file's records ``run``."""

    result: str
    ticks: int
    last_change: int
    leaders_even_at: int | None
    peers_even_at: int | None
    created: dict[str, int]
    cancelled: dict[str, int]
    steps: dict[str, int]
    peers: dict[str, int]
    leaders: dict[str, int]
    shapes: dict[str, int]
    happened: tuple[Happened, ...]
    world: World
    violated: str = ""


def run_case(
    case: Case, seed: int = 1, policies: Sequence[Policy] = DEFAULT_POLICIES, changes: Sequence[Timed] = ()
) -> CaseRun:
    """Run a case, and check the monitor's invariants all along: a violation ends the run.

    Parameters
    ----------
    case
        The case.
    seed
        The only source of chance.
    policies
        Schedulers; PD's own unless others are to be compared with them.
    changes
        What happens besides.
    """
    world = World(case.start, seed, policies, (*case.changes, *changes))
    tick_us = case.start.settings.tick_us
    last_us = max((c.at_us for c in case.changes), default=0)
    world.attach(None, Monitor(world))
    even: list[tuple[int, bool, bool]] = []
    result, violated = "MAX_TICKS", ""
    at_us = case.before_us
    try:
        world.run(at_us)
        while at_us < case.most_us:
            even.append((at_us - case.before_us, *_even(world)))
            at_us = min(at_us + SAMPLE_TICKS * tick_us, case.most_us)
            world.run(at_us)
            quiet_us = at_us - max(world.last_change_us, case.before_us, last_us)
            if case.peers_on_each and min(world.regions.members.count) > case.peers_on_each:
                result = "CASE_OK"
                break
            if case.settle_us and quiet_us >= case.settle_us and at_us >= case.least_us:
                result = "SETTLED"
                break
    except Violated as e:
        result, violated = "VIOLATED", str(e)
    even.append((at_us - case.before_us, *_even(world)))
    return _told(world, case, result, at_us, even)._replace(violated=violated)


def _even(world: World) -> tuple[bool, bool]:
    """Whether leaders and peers are within five percent of their means on every running store."""
    m = world.regions.members
    live = [i for i, n in enumerate(world.nodes.all) if n.known and n.runs]

    def even(counts: list[int]) -> bool:
        mean = sum(counts) / max(len(counts), 1)
        return all(abs(c - mean) <= _CLOSE * mean + 1 for c in counts)

    return even([m.leaders[i] for i in live]), even([m.count[i] for i in live])


def _told(world: World, case: Case, result: str, at_us: int, even: list[tuple[int, bool, bool]]) -> CaseRun:
    tick_us, ids, m = case.start.settings.tick_us, world.regions.store_ids, world.regions.members
    cancelled: Counter[str] = Counter()
    for (desc, _), n in world.controller.cancelled.items():
        cancelled[desc] += n
    return CaseRun(
        result, (at_us - case.before_us) // tick_us, max(0, world.last_change_us - case.before_us) // tick_us,
        _since([(t // tick_us, leaders) for t, leaders, _ in even]),
        _since([(t // tick_us, peers) for t, _, peers in even]), dict(world.controller.created), dict(cancelled),
        dict(world.tasks.steps_done), {str(i): n for i, n in zip(ids, m.count, strict=True) if n},
        {str(i): n for i, n in zip(ids, m.leaders, strict=True) if n}, shapes(world), tuple(world.happened), world,
    )  # fmt: skip


def _since(even: list[tuple[int, bool]]) -> int | None:
    since = None
    for tick, held in even:
        since = (tick if since is None else since) if held else None
    return since


def shapes(world: World) -> dict[str, int]:
    """Count regions by their voters, learners, pending and down peers, as the file does (``3v+1l pending1``)."""
    found: Counter[str] = Counter()
    for row in world.regions.rows().tolist():
        region = world.regions.region(row)
        learners = sum(p.role == "learner" for p in region.peers)
        text = f"{len(region.peers) - learners}v" + (f"+{learners}l" if learners else "")
        text += f" pending{len(region.pending)}" if region.pending else ""
        found[text + (f" down{len(region.down)}" if region.down else "")] += 1
    return dict(found)


def spread_of(counts: dict[str, int], stores: Sequence[str]) -> dict[str, Any]:
    """Give mean, standard deviation, least and most over the live stores, as the file does."""
    values = np.array([counts.get(s, 0) for s in stores], np.float64)
    if not len(values):
        return {"mean": 0.0, "stddev": 0.0, "min": 0, "max": 0}
    return {
        "mean": float(values.mean()), "stddev": float(values.std()), "min": int(values.min()),
        "max": int(values.max()),
    }  # fmt: skip

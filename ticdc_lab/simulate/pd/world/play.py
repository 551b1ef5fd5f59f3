"""Play a scenario of PD: one run, its assertions judged at every sample."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from ticdc_lab.simulate.assertions import Assertion, Judge, Outcome
from ticdc_lab.simulate.pd.regions import LEARNER
from ticdc_lab.simulate.pd.stores import shown_state
from ticdc_lab.simulate.pd.world.columns import ROLES
from ticdc_lab.simulate.pd.world.heartbeats import rows_on
from ticdc_lab.simulate.pd.world.run import Run, Watch, simulate
from ticdc_lab.simulate.pd.world.scenario_cluster import start_of
from ticdc_lab.simulate.pd.world.scenario_events import changes_of
from ticdc_lab.simulate.pd.world.settings import SECOND_US
from ticdc_lab.simulate.pd.world.vocabulary import Moment
from ticdc_lab.simulate.pd.world.what_if import thrash
from ticdc_lab.simulate.pd.world.world import World
from ticdc_lab.simulate.runs import command
from ticdc_lab.simulate.scenario import Scenario
from ticdc_lab.simulate.trace import CHANGES, Row

_ERROR = re.compile(r"Err\w+")
_MOST_CHECKED = 100_000


@dataclass(frozen=True, eq=False, slots=True)
class Played:
    """A scenario that has run, and how its assertions ended."""

    scenario: Scenario
    seed: int
    run: Run
    outcomes: tuple[Outcome, ...]
    also: tuple[Outcome, ...]

    @property
    def held(self) -> bool:
        """Whether every assertion held and no invariant was violated."""
        return all(o.held for o in self.outcomes) and self.run.violated is None

    @property
    def again(self) -> str:
        """The command that gives this run again."""
        return command(self.scenario, self.seed)

    @property
    def trace(self) -> pa.Table:
        """:data:`ticdc_lab.simulate.trace.TRACE`."""
        return self.run.trace

    @property
    def last(self) -> list[str]:
        """How things stood at the end, in sentences."""
        m = moment(self.run.world)
        lines = [
            f"store {s}: {state}, {m.peers.get(s, 0)} peers, {m.leaders.get(s, 0)} leaders"
            for s, state in sorted(m.states.items())
        ]
        made = ", ".join(f"{n} {desc}" for desc, n in sorted(m.created.items())) or "none"
        return [*lines, f"operators: {made}; {m.running} run", f"{m.moved_gib:.1f} GiB of snapshots"]


def moment(world: World) -> Moment:
    """Say how a cluster stands now."""
    members, at = world.regions.members, world.regions.at
    stores = world.cluster().stores
    replicas = world.config.max_replicas
    r = world.regions
    short = ((r.store[: r.n] >= 0).sum(axis=1) < replicas) & r.alive[: r.n]
    joint = ((r.role[: r.n] > ROLES.index(LEARNER)) & (r.store[: r.n] >= 0)).any(axis=1)
    errors = tuple(e for h in world.happened for e in _ERROR.findall(h.error)[:1])
    down = sum(len(r.down_rows.get(i, rows_on(world, i))) for i in r.down)
    nodes, a_tick = world.nodes.all, world.settings
    waits = [round(n.disk.wait_s(a_tick) * SECOND_US) for n in nodes]
    ended = [f._asdict() for f in world.controller.ended]
    violated = world.recording.violated if world.recording is not None else ""
    return Moment(
        {s: members.count[at[s]] for s in stores}, {s: members.leaders[at[s]] for s in stores},
        {s: shown_state(x, world.config.max_store_down_time_s) for s, x in stores.items()},
        dict(world.controller.created), len(world.controller.running), int(short.sum()), down, r.count,
        world.tasks.moved_mib / 1024, thrash(ended) if len(ended) <= _MOST_CHECKED else 0.0, errors, violated,
        sum(len(n.stale) for n in nodes if n.runs), max(waits), round(max(n.disk.worst_s for n in nodes) * SECOND_US),
        int(((r.leader[: r.n] < 0) & r.alive[: r.n]).sum()),
        sum(row not in world.controller.running for row in np.flatnonzero(joint).tolist()),
    )  # fmt: skip


def play(
    scenario: Scenario, *, seed: int | None = None, keep: bool = True, level: str | None = None,
    also: Sequence[Assertion] = (), sample_us: int = SECOND_US, **_: Any,
) -> Played:  # fmt: skip
    """Run a scenario and judge it.

    Parameters
    ----------
    scenario
        Of the model ``pd``.
    seed
        Instead of the scenario's own.
    keep
        Not used: tables are small.
    level
        How much the trace holds.
    also
        More to judge.
    sample_us
        How often stores are sampled and assertions judged.
    """
    seed = scenario.seed if seed is None else seed
    facts = scenario.model.facts(scenario.cluster, scenario.events)
    judge = Judge([*scenario.assertions, *also], facts)

    def sampled(world: World) -> None:
        judge.see(Row(len(judge_steps), world.now_us, "pd", "sampled", message=moment(world)))
        judge_steps.append(world.now_us)

    judge_steps: list[int] = []
    start = start_of(scenario)
    run = simulate(
        start, scenario.until_us, seed=seed, changes=changes_of(scenario, start.regions),
        watch=Watch(sample_us=sample_us, level=level or CHANGES), name=scenario.name, on_sample=sampled,
    )  # fmt: skip
    outcomes, n = tuple(judge.end(run.world.now_us)), len(scenario.assertions)
    return Played(scenario, seed, run, outcomes[:n], outcomes[n:])

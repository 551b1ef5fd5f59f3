"""A cluster under PD as scenarios know it: sentences about it, judged at every sample, and how it is played.

True or false::

    peers are even                 leaders are even              nothing runs
    no region misses a peer        store-4 is Tombstone          no violation
    store-4 is Preparing           (one that joined and has not yet its share; it is Up as well)
    every region has a leader      no region is left in a joint state
    ErrStoresNotEnough came        No Operator on a Vanished Region is violated

and comparisons (``<``, ``<=``, ``=``, ``>=``, ``>``) of a number::

    operators <= 700               balance-region-scheduler operators >= 1
    peers on store-3 <= 310        leaders on store-3 = 0        moved GiB < 60
    missing peers = 0              down peers = 0                running operators <= 64
    regions = 600                  thrash index <= 0.05          refused commands = 1
    stale peers = 0                wait < 100ms                  longest wait < 1s
    oldest operator < 2m
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from typing import Any, NamedTuple

import numpy as np

from ticdc_lab.pd_core import measures
from ticdc_lab.pd_core.measures import RunMoment
from ticdc_lab.pd_core.regions import LEARNER
from ticdc_lab.pd_core.stores import PREPARING, shown_state
from ticdc_lab.simulate import runs
from ticdc_lab.simulate.assertions import Assertion, Judge
from ticdc_lab.simulate.pd.world.changes import EVENTS
from ticdc_lab.simulate.pd.world.columns import ROLES
from ticdc_lab.simulate.pd.world.heartbeats import rows_on
from ticdc_lab.simulate.pd.world.monitor import INVARIANTS
from ticdc_lab.simulate.pd.world.recording import measured_now
from ticdc_lab.simulate.pd.world.run import PdRun, Watch, future, simulate
from ticdc_lab.simulate.pd.world.running import moves_of
from ticdc_lab.simulate.pd.world.scenario import PdFacts, changes_of, cluster, facts, start_of
from ticdc_lab.simulate.pd.world.start import SECOND_US, WorldSettings
from ticdc_lab.simulate.pd.world.world import World
from ticdc_lab.simulate.reading import Names
from ticdc_lab.simulate.scenario import Model, Scenario
from ticdc_lab.simulate.scheduler.narrative import Line
from ticdc_lab.simulate.sentences import Measure, Said, Vocabulary, Words
from ticdc_lab.simulate.trace import CHANGES, Row
from ticdc_lab.words import count


class ClusterMoment(NamedTuple):
    """The state of a cluster at a sample; counts by store id."""

    measured: RunMoment
    states: Mapping[int, str]
    created: Mapping[str, int]
    running: int
    missing: int
    down: int
    regions: int
    thrash: float
    errors: tuple[str, ...]
    violated: str
    stale: int
    wait_us: int
    worst_us: int
    leaderless: int
    joint: int
    oldest_us: int
    preparing: frozenset[int]

    @property
    def moved_gib(self) -> float:
        return self.measured.moved_mib / 1024


def _said(test: Callable[[ClusterMoment, Words], bool], tell: Callable[[ClusterMoment, Words], str]) -> Said:
    return Said(lambda f, w, _: test(f.now, w), lambda f, w, _: tell(f.now, w))


def _counts(read: Callable[[ClusterMoment, Words], int | Fraction], unit: str = "") -> Measure:
    return Measure(lambda f, w, _: read(f.now, w), unit)


def _store(found: Words) -> int:
    return int(found["store"].rpartition("-")[2])


_STORE = r"(?P<store>store-\d+)"
_SENTENCES: dict[str, Said] = {
    "peers are even": _said(
        lambda m, _: not m.measured.uneven_peers, lambda m, _: f"peers by store: {dict(m.measured.peers)}"
    ),
    "leaders are even": _said(
        lambda m, _: not m.measured.uneven_leaders, lambda m, _: f"leaders by store: {dict(m.measured.leaders)}"
    ),
    "nothing runs": _said(lambda m, _: not m.running, lambda m, _: f"operators that run: {m.running}"),
    "no region misses a peer": _said(lambda m, _: not m.missing, lambda m, _: f"regions that miss a peer: {m.missing}"),
    "every region has a leader": _said(
        lambda m, _: not m.leaderless, lambda m, _: f"regions without a leader: {m.leaderless}"
    ),
    "no region is left in a joint state": _said(
        lambda m, _: not m.joint, lambda m, _: f"regions in a joint state: {m.joint}"
    ),
    rf"{_STORE} is (?P<state>Up|Disconnected|Down|Offline|Tombstone|Preparing)": _said(
        lambda m, f: (
            _store(f) in m.preparing if f["state"] == "Preparing" else m.states.get(_store(f), "unknown") == f["state"]
        ),
        lambda m, f: (
            f"{f['store']} is {m.states.get(_store(f), 'unknown')}"
            f"{' and Preparing' if _store(f) in m.preparing else ''}"
        ),
    ),
    r"(?P<error>Err\w+) came": _said(
        lambda m, f: f["error"] in m.errors, lambda m, _: f"refused: {', '.join(m.errors) or 'nothing'}"
    ),
    "no violation": _said(lambda m, _: not m.violated, lambda m, _: m.violated or "no invariant is violated"),
    r"(?P<invariant>.+) is violated": _said(
        lambda m, f: m.violated == f["invariant"], lambda m, _: m.violated or "no invariant is violated"
    ),
}
_MEASURES: dict[str, Measure] = {
    "operators": _counts(lambda m, _: sum(m.created.values())),
    "running operators": _counts(lambda m, _: m.running),
    r"(?P<desc>[\w-]+) operators": _counts(lambda m, f: m.created.get(f["desc"], 0)),
    rf"peers on {_STORE}": _counts(lambda m, f: m.measured.peers.get(_store(f), 0)),
    rf"leaders on {_STORE}": _counts(lambda m, f: m.measured.leaders.get(_store(f), 0)),
    "missing peers": _counts(lambda m, _: m.missing),
    "down peers": _counts(lambda m, _: m.down),
    "stale peers": _counts(lambda m, _: m.stale),
    "longest wait": _counts(lambda m, _: m.worst_us, "us"),
    "oldest operator": _counts(lambda m, _: m.oldest_us, "us"),
    "wait": _counts(lambda m, _: m.wait_us, "us"),
    "regions": _counts(lambda m, _: m.regions),
    "moved GiB": _counts(lambda m, _: Fraction(m.moved_gib), "share"),
    "thrash index": _counts(lambda m, _: Fraction(m.thrash), "share"),
    "refused commands": _counts(lambda m, _: len(m.errors)),
}


def _there(names: Names, invariants: Collection[str]) -> Mapping[str, Collection[str]]:
    return {"store": names.nodes, "invariant": INVARIANTS}


VOCABULARY = Vocabulary(_SENTENCES, _MEASURES, _there)
STEADY = replace(_SENTENCES["nothing runs"], text="nothing runs")
BALANCED = replace(_SENTENCES["peers are even"], text="peers are even")
"""What runs are compared by, besides their scenario's assertions."""


class PlayedPd(runs.Played[PdRun, PdFacts]):
    """A scenario of PD that has run."""

    __slots__ = ()

    @property
    def happened(self) -> list[Line]:
        """What was asked and decided, in sentences."""
        told = [r for r in self.run.recorder.rows if r.kind in ("asked", "decided", "violated")]
        return [
            Line(
                r.time_us, r.node, str(r.subject if r.after is None else f"{r.subject}: {r.after}"),
                str(r.because) if r.because and r.because != r.after else "",
            )
            for r in told
        ]  # fmt: skip

    @property
    def numbers(self) -> dict[str, Any]:
        return future(self.run)._asdict()

    @property
    def last(self) -> list[str]:
        """The state at the end, in sentences."""
        m = moment(self.run.world)
        lines = [
            f"store {s}: {state}, {count(m.measured.peers.get(s, 0), 'peer')}, "
            f"{count(m.measured.leaders.get(s, 0), 'leader')}"
            for s, state in sorted(m.states.items())
        ]
        made = ", ".join(f"{n} {desc}" for desc, n in sorted(m.created.items())) or "none"
        return [*lines, f"operators: {made}; {m.running} run", f"{m.moved_gib:.1f} GiB of snapshots"]


def moment(world: World, measured: RunMoment | None = None, *, with_thrash: bool = False) -> ClusterMoment:
    """Describe a cluster now; moves in vain only on request: they cost a pass over all."""
    cluster = world.cluster()
    stores = cluster.stores
    replicas = world.config.max_replicas
    r = world.regions
    short = ((r.store[: r.n] >= 0).sum(axis=1) < replicas) & r.alive[: r.n]
    joint = ((r.role[: r.n] > ROLES.index(LEARNER)) & (r.store[: r.n] >= 0)).any(axis=1)
    errors = tuple(e for h in world.happened for e in h.refusal)
    down = sum(len(r.down_rows.get(i, set(there)).intersection(there)) for i in r.down for there in [rows_on(world, i)])
    nodes, a_tick = world.nodes.all, world.settings
    waits = [round(n.disk.wait_s(a_tick) * SECOND_US) for n in nodes]
    violated = world.recorder.violated if world.recorder is not None else ""
    return ClusterMoment(
        measured or measured_now(world, cluster),
        {s: shown_state(x, world.config.max_store_down_time_s) for s, x in stores.items()},
        dict(world.controller.created), len(world.controller.running), int(short.sum()), down, r.count,
        measures.moved_back(moves_of(world.controller.ended)).thrash if with_thrash else 0.0, errors, violated,
        sum(len(n.stale) for n in nodes if n.runs), max(waits), round(max(n.disk.worst_s for n in nodes) * SECOND_US),
        int(((r.leader[: r.n] < 0) & r.alive[: r.n]).sum()),
        sum(row not in world.controller.running for row in np.flatnonzero(joint).tolist()),
        max((world.now_us - x.started_us for x in world.controller.running.values()), default=0),
        frozenset(s for s, x in stores.items() if x.state == PREPARING),
    )  # fmt: skip


def play(
    scenario: Scenario, *, seed: int | None = None, keep: bool = True, level: str | None = None,
    also: Sequence[Assertion] = (), sample_us: int = SECOND_US, **_: Any,
) -> PlayedPd:  # fmt: skip
    """Run a scenario and judge it, ``also`` by more assertions, at a sample every ``sample_us``.

    ``seed`` is instead of the scenario's own; ``level`` is how much the trace holds; ``keep`` is not used, since tables
    are small.
    """
    seed = scenario.seed if seed is None else seed
    known = facts(scenario.cluster, scenario.events)
    judge = Judge([*scenario.assertions, *also], known)

    with_thrash, samples = any("thrash" in a.text for a in (*scenario.assertions, *also)), itertools.count()

    def sampled(world: World) -> bool:
        recorder = world.recorder
        sampled_now = recorder.moments[-1] if recorder is not None and not recorder.violated else None
        now = moment(world, sampled_now, with_thrash=with_thrash)
        judge.see(Row(next(samples), world.now_us, "pd", "sampled", message=now))
        settling = scenario.settling
        # A PD that collects makes no operator yet; an operator may hang, and only time shows.
        if settling is None or world.leads_since_us is not None or now.oldest_us >= settling.for_us:
            return False
        paused_us = (s.paused_until_us for s in world.schedulers.values())
        quiet_us = max(settling.quiet_us, world.decides_from_us, *paused_us)
        return judge.has_settled(world.now_us, settling._replace(quiet_us=quiet_us))

    run = simulate(
        start_of(scenario), scenario.until_us, seed=seed, changes=changes_of(scenario),
        watch=Watch(sample_us=sample_us, level=level or CHANGES), name=scenario.name, on_sample=sampled,
    )  # fmt: skip
    outcomes, n = tuple(judge.end(run.world.now_us)), len(scenario.assertions)
    return PlayedPd(scenario, seed, run, outcomes[:n], outcomes[n:], known)


MODEL = Model(
    name="pd",
    variants=("pd",),
    cluster=cluster,
    tables=lambda c: frozenset(),
    settings=WorldSettings,
    unsettled=("store_limit", "loss"),
    choices={},
    events=EVENTS,
    random=(),
    messages=lambda variant: frozenset(),
    claim=VOCABULARY.claim,
    measure=VOCABULARY.measure,
    facts=facts,
    invariants=INVARIANTS,
    play=play,
    steady=STEADY,
    balanced=BALANCED,
    refused={
        "pd": {
            r"network\.(delay|duplicate|reorder|transport|links)": "heartbeats and answers take a tick, or are lost",
            "step_limit": "a run ends at `until`, however many operators it makes",
        }
    },
)

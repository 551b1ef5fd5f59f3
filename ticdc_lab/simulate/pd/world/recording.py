"""The recorder of a run: its trace and measures; for pictures also moments, decisions, and what never started."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, NamedTuple, get_type_hints

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from ticdc_lab.engine.giving_up import still_wanted
from ticdc_lab.pd_core import measures
from ticdc_lab.pd_core.balance import LEADERS, REGIONS, compare, scale, source_score, target_score
from ticdc_lab.pd_core.cluster import Cluster
from ticdc_lab.pd_core.explained import Explained, Notes
from ticdc_lab.pd_core.filters import LEADER_SOURCE, LEADER_TARGET, REGION_SOURCE, REGION_TARGET, SOURCE, by_state, keep
from ticdc_lab.pd_core.hot_loads import READ, WRITE
from ticdc_lab.pd_core.lifecycle import CREATED
from ticdc_lab.pd_core.limits import tokens_at
from ticdc_lab.pd_core.measures import RunMoment, uneven
from ticdc_lab.pd_core.operators import Kind
from ticdc_lab.pd_core.scores import leader_score, region_score
from ticdc_lab.pd_core.stores import MIB, shown_state
from ticdc_lab.simulate.pd.world.changes import AppliedChange
from ticdc_lab.simulate.pd.world.policy import Answer, Policy, SeenCluster
from ticdc_lab.simulate.pd.world.running import CHECKER, Finished, OperatorLife, finished_of
from ticdc_lab.simulate.pd.world.start import SECOND_US
from ticdc_lab.simulate.trace import CHANGES, FULL, Recorder, Row

if TYPE_CHECKING:
    from ticdc_lab.simulate.pd.world.world import World

STORES = pa.schema(
    [
        ("time_us", pa.int64()),
        ("store", pa.int64()),
        ("state", pa.string()),  # as pd-ctl prints it
        ("peers", pa.int64()),
        ("leaders", pa.int64()),
        ("learners", pa.int64()),
        ("pending", pa.int64()),  # peers that wait for a snapshot
        ("region_mib", pa.float64()),  # by PD's own sum
        ("leader_mib", pa.float64()),
        ("region_score", pa.float64()),
        ("leader_score", pa.float64()),
        ("used_mib", pa.float64()),  # on disk, removed peers before the next compaction too
        ("available_mib", pa.float64()),  # as PD smooths it
        ("sending", pa.int64()),  # snapshots
        ("receiving", pa.int64()),
        ("snapshot_mib", pa.float64()),  # sent and received since the sample before
        ("add_tokens", pa.float64()),  # of the store limit; 1000 a large region
        ("remove_tokens", pa.float64()),
        ("to_come_mib", pa.float64()),  # what running operators will have added
        ("read_bytes_s", pa.float64()),
        ("write_bytes_s", pa.float64()),
        ("wait_s", pa.float64()),  # that a client's request takes longer
        ("slow_score", pa.float64()),
        ("stale", pa.int64()),  # peers that were replaced while the store was silent
    ]
)
"""A row a store and sample."""

_ARROW = {
    int: pa.int64(), int | None: pa.int64(), float: pa.float64(), float | None: pa.float64(), str: pa.string(),
    tuple[str, ...]: pa.list_(pa.string()),
}  # fmt: skip
OPERATORS = pa.schema([(name, _ARROW[of]) for name, of in get_type_hints(Finished).items()])
"""A row an operator that was started; ``finished_us`` is null while it runs."""

PLACEMENTS = pa.schema(
    [
        ("time_us", pa.int64()),
        ("region", pa.int64()),
        ("start_key", pa.string()),
        ("leader", pa.int64()),  # a store, 0 for none
        ("stores", pa.list_(pa.int64())),  # of all peers
        ("size_mib", pa.float64()),
        ("read_bytes_s", pa.float64()),
        ("write_bytes_s", pa.float64()),
        ("hot", pa.bool_()),
    ]
)
"""A row a region and placement sample, in key order."""

REASONS = pa.schema(
    [
        ("time_us", pa.int64()),
        ("who", pa.string()),  # a scheduler, or checkers
        ("because", pa.string()),
        ("rounds", pa.int64()),  # without an operator, since the sample before
    ]
)
"""Why nothing was done: a row a reason and sample."""


class Placement(NamedTuple):
    """Where all regions are at a moment, a row a region in key order, a slot a peer.

    ``store`` and ``leader`` are store ids, 0 for none; ``size`` is MiB, ``read`` and ``write`` bytes a second, ``down``
    the stores whose peers leaders report as down.
    """

    id: NDArray[np.int64]
    store: NDArray[np.int32]
    leader: NDArray[np.int32]
    pending: NDArray[np.bool_]
    learner: NDArray[np.bool_]
    size: NDArray[np.float64]
    read: NDArray[np.float64]
    write: NDArray[np.float64]
    start_key: tuple[str, ...]
    down: frozenset[int]


class ClusterSample(NamedTuple):
    """A moment: what is measured, what PD knows, where regions are, what runs.

    ``rates`` are each store's limits (add-peer, remove-peer; peers a minute), ``running`` counts operators by the kind
    they are limited as.
    """

    measured: RunMoment
    cluster: Cluster
    placement: Placement
    rates: Mapping[int, tuple[float, float]]
    running: Mapping[Kind, int]

    @property
    def at_us(self) -> int:
        """When it was."""
        return self.measured.at_us

    @property
    def moved_mib(self) -> float:
        """What was copied between stores since the start."""
        return self.measured.moved_mib


class Drop(NamedTuple):
    """An operator that was created and cancelled before it started."""

    at_us: int
    desc: str
    region: int
    because: str


@dataclass(frozen=True, slots=True)
class Recording:
    """A run."""

    samples: tuple[ClusterSample, ...]  # moments in order, the first at the start
    # Operators that started, in the order in which they ended; those that still run at the end come last.
    lives: tuple[Finished, ...]
    drops: tuple[Drop, ...]  # operators that never started
    decisions: tuple[Decision, ...]  # what was decided and why, see :mod:`ticdc_lab.simulate.pd.looking.decisions`
    happened: tuple[AppliedChange, ...] = ()  # what came from outside, words to PD with its answers or refusals

    def at(self, at_us: int) -> ClusterSample:
        """Give the last moment up to a time, the first where there is none."""
        return next((s for s in reversed(self.samples) if s.at_us <= at_us), self.samples[0])


class Decision(NamedTuple):
    """A decision: by which scheduler (or the checkers), about which region (0: any), and its reasons."""

    at_us: int
    by: str
    region: int
    told: Explained


_EVERY_US = 1_000_000


class PdRecorder(Recorder):
    """Takes what happens to a cluster, from before its first tick on.

    ``world``: the cluster. ``run``, ``level``: as of every recorder. ``pictured``: whether what pictures need is kept
    too: of decisions without an operator one a second for each scheduler and reason.
    """

    def __init__(self, world: World, run: str, level: str = CHANGES, *, pictured: bool = False) -> None:
        super().__init__(run, level)
        self.world, self.pictured = world, pictured
        self.said: dict[str, str] = {}
        self.states: dict[int, str] = {}
        self.moments: list[RunMoment] = []
        self.stores: list[dict[str, Any]] = []
        self.placements: list[dict[str, Any]] = []
        self.reasons: list[dict[str, Any]] = []
        self.counted: dict[str, Counter[str]] = {}
        self.violated = ""
        self.samples: list[ClusterSample] = []
        self.drops: list[Drop] = []
        self.decisions: list[Decision] = []
        self.last_us: dict[tuple[str, str], int] = {}

    def row(self, kind: str, node: str, **fields: Any) -> None:
        self.add(Row(self.world.tick, self.world.now_us, node, kind, **fields))

    def operator_changed(self, r: OperatorLife, before: str) -> None:
        """Record a new state of an operator; one that was cancelled before it started only in full, or for pictures."""
        if self.pictured and r.started_us < 0 and r.status in ("canceled", "expired"):
            self.drops.append(Drop(self.world.now_us, r.op.desc, r.op.region, r.ended_because))
        if before == CREATED and r.status != "started" and self.level != FULL:
            return
        because = r.ended_because or (f"{r.op.desc}: {r.because}" if before == CREATED else r.op.brief)
        self.row(
            "changed", f"region-{r.op.region}", subject=f"operator:{r.number}",
            before=None if before == CREATED else before, after=r.status, because=because, message=r.op.desc,
        )  # fmt: skip

    def decided(self, who: str, told: Explained) -> None:
        """Record a round: each that made operators, and each change of the reason why there are none."""
        chosen = "; ".join(op.brief or op.desc for op in told.operators[:4]) or None
        if chosen is None and self.said.get(who) == told.because and self.level != FULL:
            return
        self.said[who] = told.because
        rejected = tuple((f"store {r.store} as {r.role}", f"{r.filter}: {r.why}") for r in told.rejected)
        self.row("decided", "pd", subject=who, after=chosen, because=told.because, rejected=rejected)

    def happened(self, h: AppliedChange) -> None:
        self.row("asked", "pd", subject=h.change.text, because=h.error or None)

    def heartbeat(self, what: str, region: int, store: int) -> None:
        if self.level == FULL:
            because = f"{what} on store {store}"
            self.row("received", "pd", subject=f"region-{region}", message="RegionHeartbeat", because=because)

    def ticked(self) -> None:
        """Record the stores whose state changed."""
        for s in self.world.nodes.view(self.world.now_us).values():
            before, state = self.states.get(s.id), shown_state(s, self.world.config.max_store_down_time_s)
            if before != state:
                self.states[s.id] = state
                self.row("changed", f"store-{s.id}", subject=f"store:{s.id}", before=before, after=state)

    def sample(self) -> None:
        """Keep how the cluster is now."""
        still_wanted()
        world = self.world
        cluster, at = world.cluster(), world.regions.at
        io_before = self.moments[-1].io_mib if self.moments else {}
        measured = measured_now(world, cluster)
        self.moments.append(measured)
        if self.pictured:
            self.samples.append(sampled(world, self.samples[-1] if self.samples else None))
        m, coming = world.regions.members, world.controller.influence(fast_too=False)
        none = np.zeros(len(world.nodes.all))
        flows = [world.hot_stats.carried(kind) if world.hot_stats.any_flow else none for kind in (READ, WRITE)]
        down_s = world.config.max_store_down_time_s
        for s in cluster.stores.values():
            i = at[s.id]
            node = world.nodes.all[i]
            add, remove = (tokens_at(b, world.now_us / SECOND_US) for b in node.limits)
            read, write = (float(of[i]) for of in flows)
            self.stores.append({
                "time_us": world.now_us, "store": s.id, "state": shown_state(s, down_s),
                "peers": m.count[i], "leaders": m.leaders[i], "learners": m.learners[i], "pending": m.pending[i],
                "region_mib": m.mib[i], "leader_mib": m.leader_mib[i], "region_score": region_score(s, world.config),
                "leader_score": leader_score(s, world.config.leader_schedule_policy),
                "used_mib": node.used * node.amplified, "available_mib": s.smoothed / MIB,
                "sending": node.sending, "receiving": node.receiving,
                "snapshot_mib": measured.io_mib[s.id] - io_before.get(s.id, 0.0), "add_tokens": add,
                "remove_tokens": remove, "to_come_mib": coming[s.id].region_size if s.id in coming else 0.0,
                "read_bytes_s": read, "write_bytes_s": write, "wait_s": node.disk.wait_s(world.settings),
                "slow_score": node.disk.score, "stale": len(node.stale),
            })  # fmt: skip
        said = {name: s.reasons for name, s in world.schedulers.items()} | {"checkers": world.patrol.reasons}
        for who, reasons in said.items():
            before = self.counted.get(who, Counter())
            self.reasons += (
                {"time_us": world.now_us, "who": who, "because": because, "rounds": n - before[because]}
                for because, n in reasons.items() if n > before[because]
            )  # fmt: skip
            self.counted[who] = Counter(reasons)

    def place(self) -> None:
        """Keep where all regions are now."""
        r, now = self.world.regions, placed(self.world)
        for i, row in enumerate(r.in_key_order()):
            self.placements.append({
                "time_us": self.world.now_us, "region": int(now.id[i]), "start_key": now.start_key[i],
                "leader": int(now.leader[i]), "stores": now.store[i][now.store[i] > 0].tolist(),
                "size_mib": float(now.size[i]), "read_bytes_s": float(now.read[i]),
                "write_bytes_s": float(now.write[i]), "hot": bool(r.hot[row]),
            })  # fmt: skip

    # Decisions

    def looked(self, region: int, told: Explained) -> None:
        """The checkers looked at a region."""
        self._take(self.world.now_us, CHECKER, region, told)

    def answered(self, seen: SeenCluster, policy: Policy, answer: Answer) -> None:
        """A scheduler made an attempt."""
        region = answer.operators[0].region if answer.operators else 0
        told = replace(answer.told, operators=answer.operators) if answer.operators else answer.told
        self._take(seen.now_us, policy.name, region, told)

    def unpaid(self, seen: SeenCluster, policy: Policy, why: str) -> None:
        """No round of a scheduler can lead to anything now."""
        if self._keeps(seen.now_us, policy.name, why):
            self._take(seen.now_us, policy.name, 0, scores_apart(seen.cluster, policy.limited_as, why))

    def _keeps(self, at_us: int, by: str, because: str) -> bool:
        return self.pictured and at_us - self.last_us.get((by, because), -_EVERY_US) >= _EVERY_US

    def _take(self, at_us: int, by: str, region: int, told: Explained) -> None:
        if not told.operators:
            if not self._keeps(at_us, by, told.because):
                return
            self.last_us[by, told.because] = at_us
        if self.pictured:
            self.decisions.append(Decision(at_us, by, region, told))

    # What is asked of it

    @property
    def lives(self) -> tuple[Finished, ...]:
        """Operators that started, in the order in which they ended; then those that still run, without an end."""
        world = self.world
        return *world.controller.ended, *(finished_of(r, world.now_us) for r in world.controller.running.values())

    @property
    def recording(self) -> Recording:
        """What pictures need, so far."""
        drops, decisions = tuple(self.drops), tuple(self.decisions)
        return Recording(tuple(self.samples), self.lives, drops, decisions, tuple(self.world.happened))

    def operators(self) -> pa.Table:
        """Give all operators that were started (:data:`OPERATORS`)."""
        running = {r.number for r in self.world.controller.running.values()}
        rows = (f._asdict() | ({"finished_us": None} if f.number in running else {}) for f in self.lives)
        return pa.Table.from_pylist(sorted(rows, key=lambda f: f["number"]), schema=OPERATORS)


def measured_now(world: World, cluster: Cluster) -> RunMoment:
    """Measure a cluster as it is now; ``cluster`` is what PD knows of it."""
    m, nodes, at = world.regions.members, world.nodes.all, {s: world.regions.at[s] for s in cluster.stores}
    return RunMoment(
        world.now_us, {s: m.count[i] for s, i in at.items()}, {s: m.leaders[i] for s, i in at.items()},
        uneven(cluster), uneven(cluster, measures.LEADERS), float(world.tasks.moved_mib),
        {s: nodes[i].io_mib for s, i in at.items()},
    )  # fmt: skip


def sampled(world: World, before: ClusterSample | None = None) -> ClusterSample:
    """Look at a cluster as it is now."""
    cluster = world.cluster()
    cluster = cluster._replace(stores=dict(cluster.stores), influence=dict(cluster.influence))
    rates = {n.told.id: n.rates for n in world.nodes.all if n.known}
    running = {kind: n for kind, n in sorted(world.controller.counts.items()) if n}
    placement = placed(world, before and before.placement)
    return ClusterSample(measured_now(world, cluster), cluster, placement, rates, running)


def placed(world: World, before: Placement | None = None) -> Placement:
    """Give where all regions are; keys are shared with an earlier moment where they are the same."""
    r = world.regions
    rows = np.fromiter(r.in_key_order(), np.int64)
    ids = np.array([*r.store_ids, 0], np.int32)
    width = max(1, int((r.store[rows] >= 0).sum(axis=1).max(initial=1)))
    order = np.argsort(r.store[rows] < 0, axis=1, kind="stable")[:, :width]
    slots = rows[:, None], order
    store = ids[r.store[slots]]
    key = r.start_key
    keys = tuple(key[row] for row in rows.tolist())
    if before is not None and before.start_key == keys:
        keys = before.start_key
    return Placement(
        r.id[rows], store, ids[r.leader[rows]], r.pending[slots] & (store > 0), (r.role[slots] == 1) & (store > 0),
        r.size[rows].copy(), r.read[rows].copy(), r.write[rows].copy(), keys,
        frozenset(r.store_ids[i] for i in r.down),
    )  # fmt: skip


_BALANCED = {Kind.REGION: (REGIONS, REGION_SOURCE, REGION_TARGET), Kind.LEADER: (LEADERS, LEADER_SOURCE, LEADER_TARGET)}


def scores_apart(cluster: Cluster, kind: Kind, because: str) -> Explained:
    """Explain why no move can pay whichever region is drawn: each store's score against the best one opposite.

    A source is compared with the lowest target, a target with the highest source.
    """
    if kind not in _BALANCED:
        return Explained((), because)
    resource, source_role, target_role = _BALANCED[kind]
    notes, stores = Notes(), list(cluster.stores.values())
    notes.look_at([s.id for s in stores])
    sources = keep(stores, [by_state(source_role, cluster.config)], notes, SOURCE)
    targets = keep(stores, [by_state(target_role, cluster.config)], notes)
    by = scale(cluster, resource)
    if not sources or not targets:
        return notes.explained((), because)
    lowest = min(targets, key=lambda s: target_score(by, s))
    highest = max(sources, key=lambda s: source_score(by, s))
    for s in sources:
        if s is not lowest:
            compare(by, s, lowest, notes)
    for t in targets:
        if t is not highest:
            compare(by, highest, t, notes)
    return notes.explained((), because)

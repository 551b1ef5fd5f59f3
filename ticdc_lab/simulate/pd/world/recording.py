"""What a run leaves behind: stores over time, operators, placements, reasons, and the trace; all as Arrow tables."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from ticdc_lab.pd_core.explained import Explained
from ticdc_lab.pd_core.lifecycle import CREATED
from ticdc_lab.pd_core.limits import tokens_at
from ticdc_lab.pd_core.measures import LEADERS, RunMoment, uneven
from ticdc_lab.pd_core.scores import leader_score, region_score
from ticdc_lab.pd_core.stores import MIB, shown_state
from ticdc_lab.simulate.pd.world.changes import AppliedChange
from ticdc_lab.simulate.pd.world.running import OperatorLife, finished_of
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

OPERATORS = pa.schema(
    [
        ("number", pa.int64()),
        ("desc", pa.string()),
        ("brief", pa.string()),
        ("kind", pa.string()),
        ("priority", pa.string()),
        ("region", pa.int64()),
        ("from_store", pa.int64()),  # 0 where nothing leaves a store
        ("to_store", pa.int64()),  # 0 where nothing comes to one
        ("size_mib", pa.float64()),
        ("created_us", pa.int64()),
        ("started_us", pa.int64()),
        ("finished_us", pa.int64()),  # null while it runs
        ("status", pa.string()),
        ("because", pa.string()),  # why it was made
        ("ended_because", pa.string()),  # why it ended without success
        ("source_score", pa.float64()),
        ("target_score", pa.float64()),
        ("steps", pa.list_(pa.string())),
        ("steps_done", pa.int64()),
    ]
)
"""A row an operator that was started."""

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


class RunTables:
    """Collects what happens; attach it to a world before its first tick."""

    def __init__(self, world: World, name: str, level: str = CHANGES) -> None:
        self.world, self.level = world, level
        self.recorder = Recorder(name, level)
        self.stores: list[dict[str, Any]] = []
        self.placements: list[dict[str, Any]] = []
        self.reasons: list[dict[str, Any]] = []
        self.counted: dict[str, Counter[str]] = {}
        self.said: dict[str, str] = {}
        self.states: dict[int, str] = {}
        self.moments: list[RunMoment] = []
        self.violated = ""

    def row(self, kind: str, node: str, **fields: Any) -> None:
        self.recorder.add(Row(self.world.tick, self.world.now_us, node, kind, **fields))

    def operator_changed(self, r: OperatorLife, before: str) -> None:
        """Record a new state of an operator; one that was cancelled before it started only in full."""
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
            self.row(
                "received",
                "pd",
                subject=f"region-{region}",
                message="RegionHeartbeat",
                because=f"{what} on store {store}",
            )

    def sample(self) -> None:
        """Keep how the stores are now, and why nothing was done since the sample before."""
        world = self.world
        cluster, m = world.cluster(), world.regions.members
        at = {s: world.regions.at[s] for s in cluster.stores}
        io_before = self.moments[-1].io_mib if self.moments else {}
        io = {s: world.nodes.all[i].io_mib for s, i in at.items()}
        self.moments.append(
            RunMoment(
                world.now_us, {s: m.count[i] for s, i in at.items()}, {s: m.leaders[i] for s, i in at.items()},
                not uneven(cluster), not uneven(cluster, LEADERS), world.tasks.moved_mib, io,
            )
        )  # fmt: skip
        coming = world.controller.influence(fast_too=False)
        flows = (
            {kind: world.hot_stats.store_loads(kind) for kind in ("read", "write")} if world.hot_stats.any_flow else {}
        )
        for s in cluster.stores.values():
            i = at[s.id]
            node = world.nodes.all[i]
            state = shown_state(s, world.config.max_store_down_time_s)
            if self.states.get(s.id) != state:
                self.row("changed", f"store-{s.id}", subject=f"store:{s.id}", before=self.states.get(s.id), after=state)
                self.states[s.id] = state
            add, remove = (tokens_at(b, world.now_us / SECOND_US) for b in node.limits)
            self.stores.append({
                "time_us": world.now_us, "store": s.id, "state": state, "peers": m.count[i], "leaders": m.leaders[i],
                "learners": m.learners[i], "pending": m.pending[i], "region_mib": m.mib[i],
                "leader_mib": m.leader_mib[i], "region_score": region_score(s, world.config),
                "leader_score": leader_score(s, world.config.leader_schedule_policy),
                "used_mib": node.used * node.amplified, "available_mib": s.smoothed / MIB,
                "sending": node.sending, "receiving": node.receiving,
                "snapshot_mib": io[s.id] - io_before.get(s.id, 0.0), "add_tokens": add, "remove_tokens": remove,
                "to_come_mib": coming[s.id].region_size if s.id in coming else 0.0,
                "read_bytes_s": flows["read"].get(s.id, (0.0,))[0] if flows else 0.0,
                "write_bytes_s": flows["write"].get(s.id, (0.0,))[0] if flows else 0.0,
                "wait_s": node.disk.wait_s(world.settings), "slow_score": node.disk.score, "stale": len(node.stale),
            })  # fmt: skip
        self._count_reasons()

    def _count_reasons(self) -> None:
        world = self.world
        now = {name: s.reasons for name, s in world.schedulers.items()} | {"checkers": world.patrol.reasons}
        for who, reasons in now.items():
            before = self.counted.get(who, Counter())
            for because, n in reasons.items():
                if n > before[because]:
                    self.reasons.append(
                        {"time_us": world.now_us, "who": who, "because": because, "rounds": n - before[because]}
                    )
            self.counted[who] = Counter(reasons)

    def place(self) -> None:
        r = self.world.regions
        ids = np.array([*r.store_ids, 0], np.int64)
        for row in r.in_key_order():
            stores = r.store[row]
            self.placements.append({
                "time_us": self.world.now_us, "region": int(r.id[row]), "start_key": r.start_key[row],
                "leader": int(ids[r.leader[row]]) if r.leader[row] >= 0 else 0,
                "stores": ids[stores[stores >= 0]].tolist(), "size_mib": float(r.size[row]),
                "read_bytes_s": float(r.read[row]), "write_bytes_s": float(r.write[row]), "hot": bool(r.hot[row]),
            })  # fmt: skip

    def operators(self) -> pa.Table:
        """Give all operators that were started, those that run too."""
        now_us = self.world.now_us
        running = [finished_of(r, now_us)._replace(finished_us=None) for r in self.world.controller.running.values()]  # type: ignore[arg-type]
        rows = [f._asdict() | {"steps": list(f.steps)} for f in (*self.world.controller.ended, *running)]
        return pa.Table.from_pylist(sorted(rows, key=lambda f: f["number"]), schema=OPERATORS)

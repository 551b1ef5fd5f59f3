"""``pd-ctl region ...`` and ``hot ...``."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from ticdc_lab.simulate.pd.regions import DEMOTING, INCOMING, LEARNER, VOTER, Region, learners, voters
from ticdc_lab.simulate.pd.stores import REMOVING
from ticdc_lab.simulate.pd.world.heartbeats import rows_on
from ticdc_lab.simulate.pd.world.pdctl import Refused, number, position_of, row_of

if TYPE_CHECKING:
    from ticdc_lab.simulate.pd.world.world import World

_TOP = 16
_ROLES = {VOTER: "Voter", LEARNER: "Learner", INCOMING: "IncomingVoter", DEMOTING: "DemotingVoter"}
"""Roles by pd-ctl's names, in the order of its numbers."""
_OVERSIZED = 1.5


def region(world: World, words: list[str]) -> Any:
    """``region [id] | store ID | check WHAT | topread|topwrite|topsize [n] | sibling ID``."""
    match words:
        case []:
            return _listed(world, world.regions.rows().tolist())
        case ["store", which]:
            return _listed(world, rows_on(world, position_of(world, which)))
        case ["check", "hist-size", *_]:
            return _histogram(world.regions.size[world.regions.rows()], 10)
        case ["check", "hist-keys", *_]:
            return _histogram(world.regions.keys[world.regions.rows()], 100_000)
        case ["check", what]:
            return _checked(world, what)
        case [("topread" | "topwrite" | "topsize") as top, *n]:
            column = {"topread": "read", "topwrite": "write", "topsize": "size"}[top]
            values = getattr(world.regions, column)[world.regions.rows()]
            best = np.argsort(-values, kind="stable")[: number(n[0], "limit") if n else _TOP]
            return _listed(world, world.regions.rows()[best].tolist())
        case ["sibling", which]:
            row = row_of(world, which)
            beside = (int(world.regions.before[row]), int(world.regions.after[row]))
            return _listed(world, [i for i in beside if i >= 0])
        case [which]:
            return described(world.regions.region(row_of(world, which)))
        case _:
            raise Refused(f"region {' '.join(words)}: no such command")


def described(r: Region) -> dict[str, Any]:
    """Tell a region as pd-ctl does."""

    def peer(p: Any) -> dict[str, Any]:
        told = {"id": p.id, "store_id": p.store, "role_name": _ROLES[p.role]}
        told |= {"role": list(_ROLES).index(p.role)} if p.role != VOTER else {}
        return told | ({"is_learner": True} if p.role == LEARNER else {}) | ({"is_witness": True} if p.witness else {})

    leader = r.peer_on(r.leader)
    return {
        "id": r.id, "start_key": r.start_key, "end_key": r.end_key,
        "peers": [peer(p) for p in r.peers], "leader": peer(leader) if leader else None,
        "pending_peers": [peer(p) for p in r.peers if p.store in r.pending],
        "down_peers": [{"down_seconds": r.down_seconds, "peer": peer(p)} for p in r.peers if p.store in r.down],
        "approximate_size": r.size, "approximate_keys": r.keys,
    }  # fmt: skip


def _listed(world: World, rows: list[int]) -> dict[str, Any]:
    return {"count": len(rows), "regions": [described(world.regions.region(row)) for row in rows]}


def _checked(world: World, what: str) -> dict[str, Any]:
    config = world.config
    leaving = {s.id for s in world.cluster().stores.values() if s.state == REMOVING}
    tests: dict[str, Callable[[Region], bool]] = {
        "miss-peer": lambda r: len(voters(r)) < config.max_replicas,
        "extra-peer": lambda r: len(voters(r)) > config.max_replicas,
        "down-peer": lambda r: bool(r.down),
        "learner-peer": lambda r: bool(learners(r)),
        "pending-peer": lambda r: bool(r.pending),
        "offline-peer": lambda r: bool(leaving & r.stores),
        "empty-region": lambda r: r.size <= 1,
        "oversized-region": lambda r: r.size > _OVERSIZED * world.settings.split_mib,
        "undersized-region": lambda r: r.size <= config.max_merge_region_size,
    }
    if what not in tests:
        raise Refused(f"region check {what}: no such state", hint=f"Known: {', '.join(tests)}, hist-size, hist-keys.")
    rows = world.regions.rows().tolist()
    return _listed(world, [row for row in rows if tests[what](world.regions.region(row))])


def _histogram(values: Any, bound: int) -> list[dict[str, int]]:
    counts = Counter((np.asarray(values) // bound).astype(int).tolist())
    return [{"start": b * bound, "end": (b + 1) * bound - 1, "count": n} for b, n in sorted(counts.items())]


def hot(world: World, words: list[str]) -> Any:
    """``hot read | write | store``."""
    match words:
        case [("read" | "write") as kind]:
            flow = world.hot().flows.get(kind)
            peers = flow.peers if flow else ()
            return {
                "as_leader" if kind == "read" else "as_peer": [
                    {"store_id": p.store, "region_id": p.region, "flow_bytes": p.loads[0], "flow_keys": p.loads[1]}
                    for p in peers
                ]
            }  # fmt: skip
        case ["store"]:
            flows = world.hot().flows
            return {
                f"bytes-{kind}-rate": {i: loads[0] for i, loads in flow.stores.items()} for kind, flow in flows.items()
            }
        case _:
            raise Refused(f"hot {' '.join(words)}: no such command", hint="Known: read, write, store.")

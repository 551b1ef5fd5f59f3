"""What ``pd-ctl store``, ``region``, ``hot`` and ``health`` print, and what ``store`` sets in PD."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import numpy as np

from ticdc_lab.machines.clock import EPOCH_MS
from ticdc_lab.pd_core.cluster import Cluster
from ticdc_lab.pd_core.hot_loads import BYTE
from ticdc_lab.pd_core.regions import DEMOTING, INCOMING, LEARNER, VOTER, Region, learners, voters
from ticdc_lab.pd_core.scores import leader_score, region_score
from ticdc_lab.pd_core.store_states import CommandTold, bring_up, delete_store
from ticdc_lab.pd_core.stores import GIB, REMOVED, REMOVING, Store, labelled, shown_state
from ticdc_lab.simulate.pd.world.heartbeats import rows_on
from ticdc_lab.simulate.pd.world.pdctl_config import DONE, NotUnderstood, Refused, decimal, number, position_of, row_of
from ticdc_lab.simulate.pd.world.stores import UNLIMITED

if TYPE_CHECKING:
    from ticdc_lab.simulate.pd.world.world import World


def store(world: World, words: list[str]) -> Any:
    """``store [id] | check STATE | delete ID | cancel-delete ID | label ID k=v | weight ID l r | limit [id|all] n``."""
    match words:
        case []:
            return stores(world, [])
        case ["delete", which]:
            return _in_state(world, which, delete_store)
        case ["cancel-delete", which]:
            return _in_state(world, which, bring_up)
        case ["check", state]:
            return [s for s in stores(world, [])["stores"] if s["store"]["state_name"].lower() == state.lower()]
        case ["label", which, *pairs]:
            i = position_of(world, which)
            wrong = [p for p in pairs if not all(p.partition("="))]
            if wrong or not pairs:
                raise NotUnderstood(
                    f"store label {which} {' '.join(pairs)}: expected KEY=VALUE, found {' '.join(wrong) or 'nothing'}"
                )
            new = dict(p.split("=", 1) for p in pairs)
            world.nodes.change(i, labels=labelled({**world.nodes.all[i].told.labels, **new}))
            return DONE
        case ["weight", which, leader, region]:
            weights = decimal(leader, "leader weight"), decimal(region, "region weight")
            world.nodes.change(position_of(world, which), leader_weight=weights[0], region_weight=weights[1])
            return DONE
        case ["limit", *rest]:
            return _limit(world, rest)
        case ["remove-tombstone"]:
            for node in world.nodes.all:
                if node.told.state == REMOVED:
                    node.known = False
                    world.nodes.cached = {k: v for k, v in world.nodes.cached.items() if k != node.told.id}
            return DONE
        case [which]:
            return described_store(world, world.cluster().stores[world.nodes.all[position_of(world, which)].told.id])
        case _:
            known = "store [ID], check, delete, cancel-delete, label, weight, limit, remove-tombstone"
            raise NotUnderstood(f"store {' '.join(words)}: no such command", hint=f"Known: {known}.")


def stores(world: World, _: list[str]) -> dict[str, Any]:
    found = [described_store(world, s) for s in world.cluster().stores.values() if s.state != REMOVED]
    return {"count": len(found), "stores": found}


def health(world: World, _: list[str]) -> list[dict[str, Any]]:
    """``health``: of PD itself, which never fails here."""
    return [{"name": "pd", "health": True, "stores": len(world.cluster().stores)}]


def described_store(world: World, s: Store) -> dict[str, Any]:
    config = world.config
    heard_ms = EPOCH_MS + round(world.now_us / 1000 - s.heartbeat_age_s * 1000)
    return {
        "store": {
            "id": s.id, "state_name": shown_state(s, config.max_store_down_time_s), "node_state": s.state.capitalize(),
            "labels": [{"key": k, "value": v} for k, v in sorted(s.labels.items())],
        },
        "status": {
            "capacity": f"{s.capacity / GIB:.4g}GiB", "available": f"{s.available / GIB:.4g}GiB",
            "used_size": f"{s.used / GIB:.4g}GiB", "leader_count": s.leader_count, "leader_weight": s.leader_weight,
            "leader_score": leader_score(s, config.leader_schedule_policy), "leader_size": s.leader_size,
            "region_count": s.region_count, "region_weight": s.region_weight, "region_score": region_score(s, config),
            "region_size": s.region_size, "pending_peer_count": s.pending_peers,
            "sending_snap_count": s.sending_snapshots, "receiving_snap_count": s.receiving_snapshots, "is_busy": s.busy,
            "slow_score": round(s.slow_score),
            "last_heartbeat_ts": datetime.fromtimestamp(heard_ms / 1000, UTC).isoformat(),
            "last_heartbeat_age_s": s.heartbeat_age_s,
        },
    }  # fmt: skip


def _in_state(world: World, which: str, command: Callable[[Cluster, int], CommandTold]) -> str:
    i = position_of(world, which)
    node = world.nodes.all[i]
    told = command(world.cluster(), node.told.id)
    if told.store is None or told.error:
        raise Refused(f"{told.error}: {told.because}" if told.because else told.error)
    leaves = told.store.state == REMOVING
    if leaves and node.told.state != REMOVING:
        node.rates_before, node.rates = node.rates, (node.rates[0], UNLIMITED)
    elif not leaves and node.rates_before is not None:
        node.rates, node.rates_before = node.rates_before, None
    world.nodes.change(i, state=told.store.state)
    world.nodes.set_limit(i, node.rates, world.now_us)
    return DONE


def _limit(world: World, words: list[str]) -> Any:
    """``store limit``, ``store limit all 30``, ``store limit 4 30 add-peer``."""
    if not words:
        known = [n for n in world.nodes.all if n.known]
        return {n.told.id: {"add-peer": n.rates[0], "remove-peer": n.rates[1]} for n in known}
    if len(words) not in (2, 3):
        said = " ".join(words)
        raise NotUnderstood(
            f"store limit {said}: expected STORE or all, a rate a minute, and add-peer or remove-peer or neither"
        )
    which, rate, *kinds = words
    chosen = range(len(world.nodes.all)) if which == "all" else [position_of(world, which)]
    if kinds and kinds[0] not in ("add-peer", "remove-peer"):
        raise NotUnderstood(f"store limit {' '.join(words)}: expected add-peer or remove-peer, found {kinds[0]}")
    new = decimal(rate, "store limit, peers a minute:")
    for i in chosen:
        add, remove = world.nodes.all[i].rates
        rates = add if kinds[:1] == ["remove-peer"] else new, remove if kinds[:1] == ["add-peer"] else new
        world.nodes.set_limit(i, rates, world.now_us)
    return DONE


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
            return _listed(world, [i for i in world.regions.beside(row) if i >= 0])
        case [which]:
            return described_region(world.regions.region(row_of(world, which)))
        case _:
            raise NotUnderstood(f"region {' '.join(words)}: no such command")


def described_region(r: Region) -> dict[str, Any]:
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
    return {"count": len(rows), "regions": [described_region(world.regions.region(row)) for row in rows]}


def _checked(world: World, what: str) -> dict[str, Any]:
    config = world.config
    leaving = {s.id for s in world.cluster().stores.values() if s.state == REMOVING}
    tests: dict[str, Callable[[Region], bool]] = {
        "miss-peer": lambda r: len(voters(r)) < config.max_replicas,
        "extra-peer": lambda r: len(voters(r)) > config.max_replicas, "down-peer": lambda r: bool(r.down),
        "learner-peer": lambda r: bool(learners(r)), "pending-peer": lambda r: bool(r.pending),
        "offline-peer": lambda r: bool(leaving & r.stores), "empty-region": lambda r: r.size <= 1,
        "oversized-region": lambda r: r.size > _OVERSIZED * world.settings.split_mib,
        "undersized-region": lambda r: r.size <= config.max_merge_region_size,
    }  # fmt: skip
    if what not in tests:
        known = ", ".join((*tests, "hist-size", "hist-keys"))
        raise NotUnderstood(f"region check {what}: no such state", hint=f"Known: {known}.")
    rows = world.regions.rows().tolist()
    return _listed(world, [row for row in rows if tests[what](world.regions.region(row))])


def _histogram(values: Any, bound: int) -> list[dict[str, int]]:
    counts = Counter((np.asarray(values) // bound).astype(int).tolist())
    return [{"start": b * bound, "end": (b + 1) * bound - 1, "count": n} for b, n in sorted(counts.items())]


def hot(world: World, words: list[str]) -> Any:
    """``hot read | write | store``."""
    match words:
        case [("read" | "write") as kind]:
            flow = world.hot_stats.hot().flows.get(kind)
            peers = flow.peers if flow else ()
            return {
                "as_leader" if kind == "read" else "as_peer": [
                    {"store_id": p.store, "region_id": p.region, "flow_bytes": p.loads[0], "flow_keys": p.loads[1]}
                    for p in peers
                ]
            }  # fmt: skip
        case ["store"]:
            flows = world.hot_stats.hot().flows
            return {
                f"bytes-{kind}-rate": dict(zip(flow.stores, flow.loads[:, BYTE].tolist(), strict=True))
                for kind, flow in flows.items()
            }
        case _:
            raise NotUnderstood(
                f"hot {' '.join(words)}: no such command", hint="Write `hot read`, `hot write` or `hot store`."
            )

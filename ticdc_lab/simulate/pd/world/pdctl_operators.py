"""``pd-ctl operator ...``: operators by hand, and what runs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ticdc_lab.simulate.pd.builder import CannotBuild
from ticdc_lab.simulate.pd.cluster import Cluster
from ticdc_lab.simulate.pd.create import (
    add_peer,
    change_peers,
    merge_regions,
    move_peer,
    remove_peer,
    split_region,
    transfer_leader,
)
from ticdc_lab.simulate.pd.lifecycle import CANCELED
from ticdc_lab.simulate.pd.operators import Kind, Operator, Priority, kind_text
from ticdc_lab.simulate.pd.regions import LEARNER, VOTER, Peer, Region
from ticdc_lab.simulate.pd.replay.expected import step_text
from ticdc_lab.simulate.pd.world.pdctl import Refused, number, position_of, row_of
from ticdc_lab.simulate.pd.world.running import Running
from ticdc_lab.simulate.pd.world.settings import SECOND_US

if TYPE_CHECKING:
    from ticdc_lab.simulate.pd.world.world import World

DONE = "Success!"


def operator(world: World, words: list[str]) -> Any:
    """``operator show [KIND] | add WHAT ... | remove REGION | check REGION | history``."""
    match words:
        case ["show", *kinds]:
            return _shown(world, kinds)
        case ["add", what, *args]:
            return _add(world, what, args)
        case ["remove", region]:
            found = world.controller.running.get(row_of(world, region))
            if found is None:
                raise Refused(f"ErrOperatorNotFound: region {region}")
            world.controller.end(found, CANCELED, world.now_us, "an administrator removed it")
            return DONE
        case ["check", region]:
            return _checked(world, region)
        case ["history", *_]:
            return [f._asdict() for f in world.controller.ended]
        case _:
            raise Refused(
                f"operator {' '.join(words)}: no such command", hint="Known: show, add, remove, check, history."
            )


def _shown(world: World, kinds: list[str]) -> list[dict[str, Any]]:
    if kinds == ["waiting"]:
        return []
    wanted = kinds[0] if kinds else ""
    running = (r for r in world.controller.running.values() if wanted in kind_text(r.op.kind).split(",") or not kinds)
    return [described(r, world.now_us) for r in running]


def described(r: Running, now_us: int) -> dict[str, Any]:
    """Tell an operator that runs."""
    return {
        "desc": r.op.desc, "brief": r.op.brief, "region_id": r.op.region, "kind": kind_text(r.op.kind),
        "status": r.status, "steps": [step_text(s) for s in r.op.steps], "current_step": r.at_step,
        "running_s": (now_us - r.started_us) / SECOND_US, "because": r.because,
    }  # fmt: skip


def _checked(world: World, region: str) -> dict[str, Any]:
    found = world.controller.running.get(row_of(world, region))
    if found is not None:
        return described(found, world.now_us)
    ended = [f for f in world.controller.ended if f.region == number(region, "region")]
    if not ended:
        raise Refused(f"ErrOperatorNotFound: region {region}")
    return ended[-1]._asdict()


ADDED = (
    "transfer-leader REGION STORE", "add-peer REGION STORE", "add-learner REGION STORE", "remove-peer REGION STORE",
    "transfer-peer REGION FROM TO", "transfer-region REGION STORE...", "merge-region REGION REGION",
    "split-region REGION [--policy=scan]", "scatter-region REGION",
)  # fmt: skip


def _add(world: World, what: str, args: list[str]) -> str:
    if not args or what not in {known.split()[0] for known in ADDED}:
        raise Refused(f"operator {' '.join(['add', what, *args])}: no such command", hint=f"Known: {'; '.join(ADDED)}.")
    cluster, rows = world.cluster(), [row_of(world, args[0])]
    region = world.regions.region(rows[0])
    try:
        ops = _made(world, cluster, what, region, args[1:])
    except CannotBuild as e:
        raise Refused(f"operator add {what} {' '.join(args)}: {e}") from e
    urgent = [op._replace(kind=op.kind | Kind.ADMIN, priority=Priority.URGENT, desc=f"admin-{what}") for op in ops]
    before = sum(world.controller.created.values())
    world.add(urgent, "an administrator asked for it", "pd-ctl")
    if sum(world.controller.created.values()) == before:
        raise Refused(f"operator add {what} {' '.join(args)}: fail to add operator")
    return DONE


def _made(world: World, c: Cluster, what: str, region: Region, args: list[str]) -> tuple[Operator, ...]:
    def store(word: str) -> int:
        return world.nodes.all[position_of(world, word)].told.id

    match what, args:
        case "transfer-leader", [to]:
            return (transfer_leader(c, region, store(to), what),)
        case "add-peer" | "add-learner", [to]:
            peer = Peer(0, store(to), VOTER if what == "add-peer" else LEARNER)
            return (add_peer(c, region, peer, what, kind=Kind.ADMIN),)
        case "remove-peer", [old]:
            return (remove_peer(c, region, store(old), what),)
        case "transfer-peer", [old, to]:
            role = (region.peer_on(store(old)) or Peer(0, 0)).role
            return (move_peer(c, region, store(old), Peer(0, store(to), role), what, kind=Kind.ADMIN),)
        case "transfer-region", [*to]:
            wanted = {store(w): region.peer_on(store(w)) or Peer(0, store(w)) for w in to}
            return (change_peers(c, region, wanted, what),)
        case "merge-region", [other]:
            return merge_regions(c, region, world.regions.region(row_of(world, other)))
        case "split-region", [*policy]:
            return (split_region(region, what, (policy or ["--policy=scan"])[0].split("=")[-1]),)
        case "scatter-region", []:
            return (_scattered(world, c, region),)
        case _:
            said = " ".join([str(region.id), *args])
            raise Refused(f"operator add {what} {said}: no such command", hint=f"Known: {'; '.join(ADDED)}.")


def _scattered(world: World, c: Cluster, region: Region) -> Operator:
    """Move a region to the stores with the fewest peers, and its leadership to the one with the fewest leaders."""
    able = sorted((s for s in c.stores.values() if s.state in ("serving", "preparing")), key=lambda s: s.region_count)
    chosen = [s.id for s in able[: len(region.peers)]]
    wanted = {s: region.peer_on(s) or Peer(0, s) for s in chosen}
    leader = min(chosen, key=lambda s: c.stores[s].leader_count)
    return change_peers(c, region, wanted, "scatter-region", leader=leader)

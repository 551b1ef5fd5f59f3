"""pd-ctl's commands on a simulated cluster, with the same words.

::

    pdctl(world, "store delete 4")
    pdctl(world, "config set leader-schedule-limit 8")
    pdctl(world, "operator add transfer-leader 2 3")

What pd-ctl prints as JSON is given as dicts and lists. `pd_notes.md` section 11 lists the commands.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ticdc_lab.pd_core.builder import CannotBuild
from ticdc_lab.pd_core.cluster import Cluster
from ticdc_lab.pd_core.config import EVICT_LEADER, GRANT_LEADER
from ticdc_lab.pd_core.create import (
    add_peer,
    change_peers,
    merge_regions,
    move_peer,
    remove_peer,
    split_region,
    transfer_leader,
)
from ticdc_lab.pd_core.lifecycle import CANCELED
from ticdc_lab.pd_core.operators import Kind, Operator, Priority, kind_text, step_text
from ticdc_lab.pd_core.regions import LEARNER, VOTER, Peer, Region
from ticdc_lab.simulate.pd.world.pd_policies import DEFAULT_POLICIES, evict_leaders, grant_leaders
from ticdc_lab.simulate.pd.world.pdctl_config import DONE, NotUnderstood, Refused, config, number, position_of, row_of
from ticdc_lab.simulate.pd.world.pdctl_shown import health, hot, region, store, stores
from ticdc_lab.simulate.pd.world.policy import Policy, Scheduler, scheduler_of
from ticdc_lab.simulate.pd.world.running import OperatorLife
from ticdc_lab.simulate.pd.world.start import SECOND_US

if TYPE_CHECKING:
    from ticdc_lab.simulate.pd.world.world import World


Verb = Callable[["World", list[str]], Any]


def pdctl(world: World, words: str) -> Any:
    """Send a command to PD.

    Parameters
    ----------
    world
        The cluster.
    words
        As one types them after ``pd-ctl``.

    Returns
    -------
    Any
        What pd-ctl would print, as dicts and lists; "Success!" for commands.

    Raises
    ------
    Refused
        PD refuses (its error is in the message, ``ErrStoresNotEnough`` for instance), or it knows no such words.
    """
    verb, rest = read_words(words)
    try:
        return verb(world, rest)
    except (ValueError, IndexError, KeyError) as e:
        raise NotUnderstood(f"pd-ctl {words}: {e}", hint="Compare the words with pd-ctl's own help.") from e


def read_words(words: str) -> tuple[Verb, list[str]]:
    """Find the command that words begin with, ``pd-ctl`` before it or not, and what follows; else PD refuses."""
    verbs = _verbs()
    try:
        said = shlex.split(words)
    except ValueError as e:
        raise NotUnderstood(f"pd-ctl {words}: {e}", hint="Quote JSON as a shell requires it: `'...'`") from e
    said = said[1:] if said[:1] == ["pd-ctl"] else said
    if not said or said[0] not in verbs:
        raise NotUnderstood(f"pd-ctl {' '.join(said)}: no such command", hint=f"Known: {', '.join(sorted(verbs))}.")
    return verbs[said[0]], said[1:]


def _verbs() -> dict[str, Verb]:
    return {
        "store": store, "stores": stores, "region": region, "operator": operator, "scheduler": scheduler,
        "config": config, "hot": hot, "health": health,
    }  # fmt: skip


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
            raise NotUnderstood(
                f"operator {' '.join(words)}: no such command",
                hint="Write `operator show`, `add`, `remove`, `check` or `history`.",
            )


def _shown(world: World, kinds: list[str]) -> list[dict[str, Any]]:
    if kinds == ["waiting"]:
        return []
    wanted = kinds[0] if kinds else ""
    running = (r for r in world.controller.running.values() if wanted in kind_text(r.op.kind).split(",") or not kinds)
    return [described_operator(r, world.now_us) for r in running]


def described_operator(r: OperatorLife, now_us: int) -> dict[str, Any]:
    return {
        "desc": r.op.desc, "brief": r.op.brief, "region_id": r.op.region, "kind": kind_text(r.op.kind),
        "status": r.status, "steps": [step_text(s) for s in r.op.steps], "current_step": r.at_step,
        "running_s": (now_us - r.started_us) / SECOND_US, "because": r.because,
    }  # fmt: skip


def _checked(world: World, region: str) -> dict[str, Any]:
    found = world.controller.running.get(row_of(world, region))
    if found is not None:
        return described_operator(found, world.now_us)
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
        said = " ".join(["add", what, *args])
        raise NotUnderstood(f"operator {said}: no such command", hint=f"Known: {'; '.join(ADDED)}.")
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
            raise NotUnderstood(f"operator add {what} {said}: no such command", hint=f"Known: {'; '.join(ADDED)}.")


def _scattered(world: World, c: Cluster, region: Region) -> Operator:
    """Move a region to the stores with the fewest peers, and its leadership to the one with the fewest leaders."""
    able = sorted((s for s in c.stores.values() if s.state in ("serving", "preparing")), key=lambda s: s.region_count)
    chosen = [s.id for s in able[: len(region.peers)]]
    wanted = {s: region.peer_on(s) or Peer(0, s) for s in chosen}
    leader = min(chosen, key=lambda s: c.stores[s].leader_count)
    return change_peers(c, region, wanted, "scatter-region", leader=leader)


_ABOUT_A_STORE = (EVICT_LEADER, GRANT_LEADER)


def scheduler(world: World, words: list[str]) -> Any:
    """``scheduler show | add NAME [store] | remove NAME | pause NAME s | resume NAME | describe NAME``."""
    match words:
        case ["show"]:
            return sorted(world.schedulers)
        case ["show", status] if status.startswith("--status"):
            paused = status.endswith("paused")
            return sorted(n for n, s in world.schedulers.items() if (s.paused_until_us > world.now_us) == paused)
        case ["add", name, *stores]:
            return _add_scheduler(world, name, stores)
        case ["remove", name]:
            return _remove(world, name)
        case ["pause", name, _] | ["resume", name]:
            until_us = world.now_us + number(words[2], "seconds") * SECOND_US if words[0] == "pause" else 0
            for s in _named(world, name):
                s.paused_until_us = until_us
            return DONE
        case ["describe", name]:
            return described_scheduler(_named(world, name)[0])
        case _:
            raise NotUnderstood(f"scheduler {' '.join(words)}: no such command")


def _named(world: World, name: str) -> list[Scheduler]:
    if name == "all":
        return list(world.schedulers.values())
    if name not in world.schedulers:
        raise Refused(f"ErrSchedulerNotFound: {name}")
    return [world.schedulers[name]]


def _add_scheduler(world: World, name: str, stores: list[str]) -> str:
    known: dict[str, Policy] = {p.name: p for p in DEFAULT_POLICIES}
    if name in _ABOUT_A_STORE:
        i = position_of(world, stores[0])
        store = world.nodes.all[i].told.id
        policy = evict_leaders(store) if name == EVICT_LEADER else grant_leaders(store)
        key = f"{name}-{store}"
        world.nodes.change(i, **{_pauses(name): True})
    elif name in known:
        policy, key = known[name], name
    else:
        raise NotUnderstood(f"scheduler {name} is not known", hint=f"Known: {', '.join((*known, *_ABOUT_A_STORE))}.")
    if key in world.schedulers:
        raise Refused(f"ErrSchedulerExisted: {key}")
    world.schedulers[key] = scheduler_of(policy, world.now_us, world.settings)
    return DONE


def _pauses(name: str) -> str:
    return "leader_in_paused" if name == EVICT_LEADER else "leader_out_paused"


def _remove(world: World, name: str) -> str:
    found = [k for k, s in world.schedulers.items() if k == name or (s.policy.store and s.policy.name == name)]
    if not found:
        raise Refused(f"ErrSchedulerNotFound: {name}")
    for key in found:
        policy = world.schedulers.pop(key).policy
        if policy.store:
            world.nodes.change(world.regions.at[policy.store], **{_pauses(policy.name): False})
    return DONE


def described_scheduler(s: Scheduler) -> dict[str, Any]:
    told = s.last
    return {
        "name": s.policy.name, "status": "scheduling" if told.operators else "pending" if told.limit else "normal",
        "summary": told.because, "rounds": s.rounds, "rounds_with_operators": s.fruitful,
        "reasons": dict(s.reasons.most_common()), "rejected": [r._asdict() for r in told.rejected],
        "compared": [c._asdict() for c in told.compared], "interval_s": s.interval_us / SECOND_US,
    }  # fmt: skip

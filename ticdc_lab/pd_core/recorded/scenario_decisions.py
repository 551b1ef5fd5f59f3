"""Scenarios about what PD decides, checkers, balance, merge, hot regions; our decision in the form of ``expect``."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from ticdc_lab.pd_core.balance_leader import with_transfer
from ticdc_lab.pd_core.chances import Chances, of_balance_leader, of_balance_region, of_hot_regions, scores_text
from ticdc_lab.pd_core.checkers import check_joint_state, check_learners, check_split
from ticdc_lab.pd_core.cluster import Cluster
from ticdc_lab.pd_core.explained import Explained, Notes
from ticdc_lab.pd_core.hot_loads import MOVE_PEER, TRANSFER_LEADER
from ticdc_lab.pd_core.hot_region import solve
from ticdc_lab.pd_core.merge_checker import Neighbours, check_merge
from ticdc_lab.pd_core.operators import (
    AddLearner,
    BecomeNonWitness,
    BecomeWitness,
    DemoteVoter,
    EnterJoint,
    LeaveJoint,
    MergeRegion,
    Operator,
    PromoteLearner,
    RemovePeer,
    Step,
    TransferLeader,
    step_text,
)
from ticdc_lab.pd_core.recorded.given import (
    REGION_MIB,
    Given,
    borders_of,
    flow_of,
    hot_settings,
    region_of,
    with_running,
)
from ticdc_lab.pd_core.recorded.records import Fields, Malformed, Verdict, equal
from ticdc_lab.pd_core.regions import Peer, Region, lies_in
from ticdc_lab.pd_core.replica_checker import check_replicas
from ticdc_lab.pd_core.rule_checker import check_rules
from ticdc_lab.pd_core.stores import REMOVING

NONE: dict[str, Any] = {"operator": "none"}
_WORDS = ("note", "reason", "why")

FACTS = frozenset({
    *_WORDS, "operator", "one_of", "count", "sequence", "region", "desc", "priority", "steps", "source", "target",
    "from_store", "to_store", "store",
})  # fmt: skip
"""What a scenario may expect of an operator and we report; other facts are left out."""

LIKELY = 0.99
"""Where regions are drawn by chance, so many of a hundred rounds must end as in the scenario."""


def operator_json(op: Operator | None) -> dict[str, Any]:
    """Describe an operator: what it does, with which stores, for which region, why and how urgently."""
    if op is None:
        return dict(NONE)
    facts = _verb(op.steps)
    return facts | {
        "region": op.region,
        "desc": op.desc,
        "priority": op.priority.name.lower(),
        "steps": [step_text(s) for s in op.steps],
    }


def _verb(steps: Sequence[Step]) -> dict[str, Any]:
    """Name what the steps do together."""
    merges = [s for s in steps if isinstance(s, MergeRegion)]
    if merges:
        return {"operator": "merge", "source": merges[0].source, "target": merges[0].target}
    adds = [s.store for s in steps if isinstance(s, AddLearner)]
    removes = [s.store for s in steps if isinstance(s, RemovePeer)]
    leads = [s for s in steps if isinstance(s, TransferLeader)]
    if adds and adds == removes:
        added = next(s for s in steps if isinstance(s, AddLearner))
        if any(isinstance(s, BecomeNonWitness) for s in steps):
            return {"operator": "become-non-witness", "store": added.store}
        votes = any(isinstance(s, PromoteLearner) and s.store == added.store for s in steps)
        return {"operator": "become-witness" if votes and added.witness else "demote-voter", "store": added.store}
    if adds and removes:
        return {"operator": "move-peer", "from_store": removes[0], "to_store": adds[0]}
    if adds:
        return {"operator": "add-peer", "to_store": adds[0]}
    if removes:
        return {"operator": "remove-peer", "from_store": removes[0]}
    if leads and len(leads) == len(steps):
        return {"operator": "transfer-leader", "from_store": leads[0].from_store, "to_store": leads[-1].to_store}
    return _role_change(steps)


def _role_change(steps: Sequence[Step]) -> dict[str, Any]:
    switch = next((s for s in steps if isinstance(s, BecomeWitness | BecomeNonWitness)), steps[0])
    match switch:
        case PromoteLearner(store):
            return {"operator": "promote-learner", "store": store}
        case DemoteVoter(store) | EnterJoint((), (store,)):
            return {"operator": "demote-voter", "store": store}
        case BecomeWitness(store):
            return {"operator": "become-witness", "store": store}
        case BecomeNonWitness(store):
            return {"operator": "become-non-witness", "store": store}
        case EnterJoint() | LeaveJoint():
            return {"operator": "leave-joint-state"}
        case _:
            return {"operator": "split"}


def meets(ours: Mapping[str, Any], expect: Mapping[str, Any]) -> bool:
    """Whether a decision is what a scenario expects: every fact it names, a list meaning any of it."""
    return all(_meets(ours, key, want) for key, want in expect.items() if key in FACTS and key not in _WORDS)


def _meets(ours: Mapping[str, Any], key: str, want: Any) -> bool:
    if key == "operator":
        return ours["operator"] != "none" if want == "any" else want in (ours["operator"], ours.get("desc"))
    have = ours.get(key)
    if isinstance(want, list) and not isinstance(have, list):
        return have in want
    return bool(have == want)


def in_form(ours: Mapping[str, Any], expect: Mapping[str, Any]) -> dict[str, Any]:
    """Give our decision with the facts that a scenario names; an operator by its description where the file does so."""
    form = {key: ours.get(key) for key in expect if key not in _WORDS}
    if ours["operator"] == "none":
        return dict(NONE)
    want = expect.get("operator")
    named = want if want in ("any", ours.get("desc")) else ours["operator"]
    return {"operator": named} | {k: v for k, v in form.items() if k != "operator"}


Play = Callable[[Cluster, Sequence[Region], Notes], Chances]
_NUMBERS = ("no", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten")


def _asks(checker: Callable[[Given], Callable[[Cluster, Region], Explained]]) -> Callable[[Given, Fields], Verdict]:
    """Ask a checker about the first region."""

    def judge(given: Given, expect: Fields) -> Verdict:
        explained = checker(given)(given.cluster, region_of(given))
        ours = [operator_json(op) for op in explained.operators] or [dict(NONE)]
        return _compared([(o, 1 / len(ours)) for o in ours], expect, explained)

    return judge


check = _asks(lambda given: check_rules if given.cluster.config.placement_rules else check_replicas)
joint_state, learners = _asks(lambda _: check_joint_state), _asks(lambda _: check_learners)
split = _asks(lambda given: lambda cluster, region: check_split(cluster, region, borders_of(given.settings)))


def _balance(given: Given, expect: Fields, play: Play) -> Verdict:
    given = with_running(_peopled(given))
    config = given.cluster.config
    limit = config.leader_schedule_limit if play is of_balance_leader else config.region_schedule_limit
    if limit == 0:
        return _compared([(dict(NONE), 1.0)], expect, None, "the schedule limit is 0")
    if "sequence" in expect:
        return _sequence(given, expect, play)
    notes = Notes()
    chances = play(given.cluster, [r for r in given.regions if lies_in(r, given.ranges)], notes)
    ours = sorted(((operator_json(op) | {"count": n}, p) for (op, n), p in chances.items()), key=lambda o: -o[1])
    explained = notes.explained(tuple(op for op, _ in chances if op is not None), scores_text(chances))
    return _compared(_together(ours), expect, explained)


def _peopled(given: Given) -> Given:
    """Give stores that hold regions one each, where the scenario lists none."""
    if given.regions:
        return given
    stores = [s for s in given.cluster.stores.values() if s.region_count]
    regions = tuple(Region(i, (Peer(1, s.id),), s.id, REGION_MIB) for i, s in enumerate(stores, 1))
    return given._replace(regions=regions, cluster=given.cluster._replace(region_count=len(regions)))


def _together(ours: list[tuple[dict[str, Any], float]]) -> list[tuple[dict[str, Any], float]]:
    """Join decisions that differ only in what follows them."""
    joined: dict[str, tuple[dict[str, Any], float]] = {}
    for facts, p in ours:
        key = str(sorted(facts.items()))
        joined[key] = facts, joined.get(key, (facts, 0.0))[1] + p
    return list(joined.values())


def _sequence(given: Given, expect: Fields, play: Play) -> Verdict:
    """Take the first operator of every round, its influence counted from then on, until nothing is decided."""
    found: list[Operator] = []
    cluster, regions = given.cluster, list(given.regions)
    while len(found) <= len(given.regions):
        op = max(play(cluster, regions, Notes()).items(), key=lambda c: c[1])[0][0]
        if op is None or not isinstance(op.steps[0], TransferLeader):
            break
        found.append(op)
        cluster = with_transfer(cluster, op, op.steps[0])
        regions = [r for r in regions if r.id != op.region]
    first = in_form(operator_json(found[0] if found else None), expect.value)
    ours = first | {"sequence": _told_in_words(found)} if found else first
    return equal(ours, expect, "influence of the operators before it counts in every round")


def _told_in_words(found: Sequence[Operator]) -> str:
    ends = [(s.from_store, s.to_store) for op in found for s in op.steps if isinstance(s, TransferLeader)]
    sources = ", ".join(str(s) for s in sorted({a for a, _ in ends}))
    targets = sorted({b for _, b in ends})
    each = [f"{_NUMBERS[sum(b == t for _, b in ends)]} to store {t}" for t in targets]
    return f"{_NUMBERS[len(ends)]} operators in all from store {sources}: {' and '.join(each)}, then nothing"


def merge(given: Given, expect: Fields) -> Verdict:
    """Ask the merge checker about the region that the scenario expects to go, else the first that would."""
    offline, deleted = (given.settings.integer(f"{what}_store", 0) for what in ("offline", "deleted"))
    given = given._replace(cluster=_without(_offline(given.cluster, offline), deleted))
    found = [_merged(given, region) for region in _asked(given, expect)]
    explained = next((e for e in found if e.operators), found[-1])
    return _compared([(operator_json(explained.operator), 1.0)], expect, explained)


def _merged(given: Given, region: Region) -> Explained:
    before = next((r for r in given.regions if r.end_key and r.end_key == region.start_key), None)
    after = next((r for r in given.regions if region.end_key and r.start_key == region.end_key), None)
    split = frozenset(given.settings.integers("recently_split", []))
    up_s = given.settings.number("pd_started_s_ago", 0)
    beside = Neighbours(before, after, split, borders_of(given.settings))
    return check_merge(given.cluster, region, beside, up_s=up_s)


def _asked(given: Given, expect: Fields) -> tuple[Region, ...]:
    """Give the region that the scenario names: as source, or by the first number of ``merge-3-239``; else all."""
    words = given.id.split("-")
    named = int(words[1]) if len(words) > 1 and words[1].isdecimal() else 0
    asked = expect.integer("source", 0) or named
    found = tuple(r for r in given.regions if asked in (0, r.id))
    if not found:
        raise Malformed("expect.source", " or ".join(str(r.id) for r in given.regions), asked)
    return found


def _offline(cluster: Cluster, store: int) -> Cluster:
    if store not in cluster.stores:
        return cluster
    return cluster._replace(stores={**cluster.stores, store: cluster.stores[store]._replace(state=REMOVING)})


def _without(cluster: Cluster, store: int) -> Cluster:
    return cluster._replace(stores={i: s for i, s in cluster.stores.items() if i != store})


def hot_region(given: Given, expect: Fields) -> Verdict:
    """Play a round of balance-hot-region on what is written, or read."""
    if given.cluster.config.hot_region_schedule_limit == 0:
        return _compared([(dict(NONE) | {"count": 0}, 1.0)], expect, None, "hot-region-schedule-limit 0")
    flow, settings = flow_of(given), hot_settings(given.settings)
    chances = of_hot_regions(given.cluster, given.regions, flow, settings)
    likely = sorted(chances.items(), key=lambda o: -o[1])
    ours = [(operator_json(op) | {"count": n}, p) for (op, n), p in likely]
    moves = any(op is not None and op.desc.endswith("peer") for (op, _), _ in likely)
    by_id = {r.id: r for r in given.regions}
    explained = solve(given.cluster, by_id, flow, MOVE_PEER if moves else TRANSFER_LEADER, settings)
    return _compared(ours, expect, explained, "the best move, or one as good")


def _compared(
    ours: list[tuple[dict[str, Any], float]], expect: Fields, explained: Explained | None, because: str = ""
) -> Verdict:
    """Compare all we may decide with what the scenario expects; the reason is the decision's, if there is no other."""
    options = expect.value.get("one_of", [expect.value])
    chance = sum(p for o, p in ours if any(meets(o, e) for e in options))
    first = next((o for o, _ in ours if any(meets(o, e) for e in options)), ours[0][0])
    form = in_form(first, next((e for e in options if meets(first, e)), options[0]))
    agrees = chance >= LIKELY
    formed = _together([(in_form(o, options[0]), p) for o, p in ours])
    legal = tuple(o | {"chance": round(p, 6)} for o, p in formed) if len(formed) > 1 else ()
    because = because or (explained.because if explained else "")
    because = because if agrees else f"{because} (chance {chance:.3f})"
    return Verdict(form, dict(expect.value), agrees, because, legal, explained)


balance_leader, balance_region = partial(_balance, play=of_balance_leader), partial(_balance, play=of_balance_region)

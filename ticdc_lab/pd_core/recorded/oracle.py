"""Records with the answers of the real PD's code: scores, isolation, checkers, balance (golden/pd/oracle.jsonl)."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any

from ticdc_lab.pd_core.chances import Chances, of_balance_leader, of_balance_region, scores_text
from ticdc_lab.pd_core.cluster import Cluster, cluster_of
from ticdc_lab.pd_core.config import Config
from ticdc_lab.pd_core.explained import Explained, Notes
from ticdc_lab.pd_core.location import distinct_score
from ticdc_lab.pd_core.operators import Operator, kind_text
from ticdc_lab.pd_core.recorded.records import Fields, Malformed, UnknownRecord, Verdict, few_peers
from ticdc_lab.pd_core.regions import Peer, Region
from ticdc_lab.pd_core.replica_checker import check_replicas
from ticdc_lab.pd_core.rule_checker import check_rules
from ticdc_lab.pd_core.scores import leader_score, region_score_v1, region_score_v2
from ticdc_lab.pd_core.stores import GIB, MIB, NEVER_S, REMOVED, REMOVING, SERVING, Store, is_low_on_space, labelled

REGION_MIB = 96
TOLERANCE = 1e-9
"""Relative difference of scores that still agree."""

UNLIKELY = 1e-6
"""An answer of ours that would be missing from the file by a smaller chance than this must be in it."""

_AGES_S = {"up": 0.0, "disconnected": 30.0, "down": NEVER_S, "offline": 0.0, "busy": 0.0, "tombstone": 0.0}
_STATES = {"offline": REMOVING, "tombstone": REMOVED}
_NONE: dict[str, Any] = {"operator": "none"}


def store_score(given: Fields, expect: Fields) -> Verdict:
    high, low = given.number("high_space_ratio"), given.number("low_space_ratio")
    delta, weight = given.number("delta_mib"), given.number("weight")
    store = Store(
        1, capacity=given.number("capacity_bytes"), available=given.number("available_bytes"),
        used=given.number("used_bytes"), region_count=given.integer("region_count"),
        region_size=given.number("region_size_mib"), leader_count=given.integer("leader_count"),
        leader_size=given.number("leader_size_mib"), leader_weight=weight, region_weight=weight,
    )  # fmt: skip
    ours = {
        "region_score_v1": region_score_v1(store, high, low, delta),
        "region_score_v2": region_score_v2(store, low, delta),
        "leader_score_count": leader_score(store, "count", given.number("leader_score_count_delta")),
        "leader_score_size": leader_score(store, "size", delta),
        "is_low_space": is_low_on_space(store, low),
    }
    file: dict[str, Any] = {n: expect.number(n) for n in ours if n != "is_low_space"}
    file["is_low_space"] = expect.flag("is_low_space")
    wrong = [n for n in ours if not math.isclose(ours[n], file[n], rel_tol=TOLERANCE)]
    return Verdict(ours, file, not wrong, f"differ: {', '.join(wrong)}" if wrong else "scores are equal")


def isolation_score(given: Fields, expect: Fields) -> Verdict:
    stores = [Store(i, labels=labelled(s.all_texts())) for i, s in enumerate(given.objects("stores"))]
    other = Store(-1, labels=labelled(given.labels("other")))
    ours, file = distinct_score(given.texts("location_labels"), stores, other), expect.number("score")
    return Verdict(ours, file, ours == file, "the sum over the other stores")


def _check(checker: Callable[[Cluster, Region], Explained]) -> Callable[[Fields, Fields], Verdict]:
    """Judge a checker: equally good stores are equally likely."""

    def judge(given: Fields, expect: Fields) -> Verdict:
        regions = _regions(given)
        if not regions:
            raise Malformed("given.regions", "one region", "none")
        explained = checker(_cluster(given, leaders=False), regions[0])
        ours = [_outcome(op) for op in explained.operators] or [_NONE]
        verdict = _among([(o, 1 / len(ours)) for o in ours], expect, explained.because)
        return verdict._replace(explained=explained)

    return judge


def _balanced(
    play: Callable[[Cluster, list[Region], Notes], Chances], *, leaders: bool
) -> Callable[[Fields, Fields], Verdict]:
    def judge(given: Fields, expect: Fields) -> Verdict:
        regions, notes = _regions(given), Notes()
        on = Counter(p.store for r in regions for p in r.peers)
        cluster = _cluster(given, leaders=leaders)
        counted = cluster._replace(regions_on=on, region_count=len(regions), average_region_size=REGION_MIB)
        chances = play(counted, regions, notes)
        explained = notes.explained(tuple(op for op, _ in chances if op is not None), scores_text(chances))
        told = [(_NONE if op is None else _outcome(op) | {"batch": n}, p) for (op, n), p in chances.items()]
        return _among(sorted(told, key=lambda o: -o[1]), expect, explained.because)._replace(explained=explained)

    return judge


def _cluster(given: Fields, *, leaders: bool) -> Cluster:
    """Build the cluster of a record; weights and counters are for what is balanced."""
    config = Config(
        max_replicas=given.integer("max_replicas"), location_labels=given.texts("location_labels"),
        isolation_level=given.text("isolation_level"), placement_rules=given.flag("placement_rules"),
        joint_consensus=given.flag("joint_consensus"),
    )  # fmt: skip
    return cluster_of(config, [_store(s, leaders) for s in given.objects("stores")])


def _store(s: Fields, leaders: bool) -> Store:
    state = s.text("state")
    if state not in _AGES_S:
        raise UnknownRecord(f"a store that is {state}; known are {', '.join(_AGES_S)}")
    leader_count, weight = s.integer("leader_count", 0), s.number("weight", 1)
    size = (leader_count if leaders else s.integer("region_count", 0)) * REGION_MIB
    return Store(
        s.integer("id"), state=_STATES.get(state, SERVING), heartbeat_age_s=_AGES_S[state],
        labels=labelled({} if leaders else s.labels("labels")), available=100 * GIB - size * MIB, used=size * MIB,
        region_count=size // REGION_MIB, region_size=size, leader_count=leader_count,
        leader_size=leader_count * REGION_MIB, leader_weight=weight if leaders else 1,
        region_weight=1 if leaders else weight, busy=state == "busy", pending_peers=s.integer("pending_peers", 0),
        receiving_snapshots=s.integer("receiving_snapshots", 0),
    )  # fmt: skip


def _regions(given: Fields) -> list[Region]:
    found = []
    for i, r in enumerate(given.objects("regions")):
        peers = tuple(Peer(n, s) for n, s in enumerate(few_peers(r.integers("peer_stores"), r.where), 1))
        down = frozenset(r.integers("down_peer_stores"))
        found.append(Region(i, peers, r.integer("leader_store"), REGION_MIB, down=down))
    return found


def _outcome(op: Operator) -> dict[str, Any]:
    told = {
        "brief": op.brief, "kind": kind_text(op.kind), "operator": op.desc, "priority": op.priority.name.lower(),
        "steps": len(op.steps),
    }  # fmt: skip
    if op.source_score is None or op.target_score is None:
        return told
    scores = {"source_score": f"{op.source_score:.2f}", "target_score": f"{op.target_score:.2f}"}
    return told | {"region_index": op.region} | scores


def _among(ours: list[tuple[dict[str, Any], float]], expect: Fields, because: str = "") -> Verdict:
    """Compare all we may answer with all the file saw: it saw nothing else, and missed nothing likely."""
    outcomes = expect.objects("outcomes")
    times = {_key({k: v for k, v in o.value.items() if k != "times"}): o.integer("times") for o in outcomes}
    draws = sum(times.values())
    keys = {_key(o) for o, _ in ours}
    unknown = sorted(set(times) - keys)
    missed = [o for o, p in ours if _key(o) not in times and (1 - p) ** draws < UNLIKELY]
    legal = tuple(o | {"chance": round(p, 6)} for o, p in ours) if len(ours) > 1 else ()
    if unknown:
        because = f"the file saw {unknown[0]}, which we do not answer"
    elif missed:
        because = f"the file never saw {missed[0]}, which we find likely"
    return Verdict(ours[0][0], [o.value for o in outcomes], not unknown and not missed, because, legal)


def _key(outcome: Mapping[str, Any]) -> str:
    return ", ".join(f"{k}={outcome[k]}" for k in sorted(outcome))


rule_checker, replica_checker = _check(check_rules), _check(check_replicas)
balance_region, balance_leader = _balanced(of_balance_region, leaders=False), _balanced(of_balance_leader, leaders=True)

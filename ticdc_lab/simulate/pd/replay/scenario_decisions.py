"""Scenarios about what PD decides: checkers, balance, merge, hot regions."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ticdc_lab.simulate.pd.balance_leader import with_transfer
from ticdc_lab.simulate.pd.chances import Chances, of_balance_region, scores_text
from ticdc_lab.simulate.pd.chances_of_hot_regions import of_hot_regions
from ticdc_lab.simulate.pd.chances_of_leaders import of_balance_leader
from ticdc_lab.simulate.pd.checkers import check_joint_state, check_learners, check_split
from ticdc_lab.simulate.pd.cluster import Cluster
from ticdc_lab.simulate.pd.explained import Explained, Notes
from ticdc_lab.simulate.pd.hot_loads import MOVE_PEER, TRANSFER_LEADER
from ticdc_lab.simulate.pd.hot_region import solve
from ticdc_lab.simulate.pd.merge_checker import Neighbours, check_merge
from ticdc_lab.simulate.pd.operators import Operator, TransferLeader
from ticdc_lab.simulate.pd.regions import Peer, Region
from ticdc_lab.simulate.pd.replay.expected import LIKELY, NONE, in_form, meets, operator_json
from ticdc_lab.simulate.pd.replay.fields import Fields, Malformed
from ticdc_lab.simulate.pd.replay.given import REGION_MIB, Given, given_of, region_of
from ticdc_lab.simulate.pd.replay.given_flow import flow_of, hot_settings
from ticdc_lab.simulate.pd.replay.given_labels import borders_of, lies_in
from ticdc_lab.simulate.pd.replay.running import with_running
from ticdc_lab.simulate.pd.replay.verdict import Verdict
from ticdc_lab.simulate.pd.replica_checker import check_replicas
from ticdc_lab.simulate.pd.rule_checker import check_rules
from ticdc_lab.simulate.pd.stores import REMOVING

Play = Callable[[Cluster, Sequence[Region], Notes], Chances]
_NUMBERS = ("no", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten")


def check(record: Fields) -> Verdict:
    """Ask the rule checker, or without placement rules the replica checker, about the first region."""
    placement_rules = given_of(record).cluster.config.placement_rules
    return _checked(record, check_rules if placement_rules else check_replicas)


def joint_state(record: Fields) -> Verdict:
    """Ask the checker of joint states about the first region."""
    return _checked(record, check_joint_state)


def split(record: Fields) -> Verdict:
    """Ask the checker of splits about the first region."""
    borders = borders_of(given_of(record).settings)
    return _checked(record, lambda cluster, region: check_split(cluster, region, borders))


def learners(record: Fields) -> Verdict:
    """Ask the checker of learners about the first region."""
    return _checked(record, check_learners)


def _checked(record: Fields, checker: Callable[[Cluster, Region], Explained]) -> Verdict:
    given = given_of(record)
    explained = checker(given.cluster, region_of(given))
    ours = [operator_json(op) for op in explained.operators] or [dict(NONE)]
    return _compared([(o, 1 / len(ours)) for o in ours], record, explained.because)._replace(explained=explained)


def balance_leader(record: Fields) -> Verdict:
    """Play rounds of balance-leader."""
    return _balance(record, of_balance_leader)


def balance_region(record: Fields) -> Verdict:
    """Play rounds of balance-region."""
    return _balance(record, of_balance_region)


def _balance(record: Fields, play: Play) -> Verdict:
    given = with_running(_peopled(given_of(record)))
    config = given.cluster.config
    limit = config.leader_schedule_limit if play is of_balance_leader else config.region_schedule_limit
    if limit == 0:
        return _compared([(dict(NONE), 1.0)], record, "the schedule limit is 0")
    if "sequence" in record.object("expect"):
        return _sequence(record, given, play)
    notes = Notes()
    chances = play(given.cluster, [r for r in given.regions if lies_in(r, given.ranges)], notes)
    ours = sorted(((operator_json(op) | {"count": n}, p) for (op, n), p in chances.items()), key=lambda o: -o[1])
    explained = notes.explained(tuple(op for op, _ in chances if op is not None), scores_text(chances))
    return _compared(_together(ours), record, explained.because)._replace(explained=explained)


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


def _sequence(record: Fields, given: Given, play: Play) -> Verdict:
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
    file = record.object("expect").value
    first = in_form(operator_json(found[0] if found else None), file)
    ours = first | {"sequence": _told_in_words(found)} if found else first
    return Verdict(ours, file, ours == file, "influence of the operators before it counts in every round")


def _told_in_words(found: Sequence[Operator]) -> str:
    ends = [(s.from_store, s.to_store) for op in found for s in op.steps if isinstance(s, TransferLeader)]
    sources = ", ".join(str(s) for s in sorted({a for a, _ in ends}))
    targets = sorted({b for _, b in ends})
    each = [f"{_NUMBERS[sum(b == t for _, b in ends)]} to store {t}" for t in targets]
    return f"{_NUMBERS[len(ends)]} operators in all from store {sources}: {' and '.join(each)}, then nothing"


def merge(record: Fields) -> Verdict:
    """Ask the merge checker about the region that the scenario expects to go, else the first that would."""
    given = given_of(record)
    offline, deleted = (given.settings.integer(f"{what}_store", 0) for what in ("offline", "deleted"))
    given = given._replace(cluster=_without(_offline(given.cluster, offline), deleted))
    found = [_merged(given, region) for region in _asked(record, given)]
    explained = next((e for e in found if e.operators), found[-1])
    return _compared([(operator_json(explained.operator), 1.0)], record, explained.because)._replace(
        explained=explained
    )


def _merged(given: Given, region: Region) -> Explained:
    before = next((r for r in given.regions if r.end_key and r.end_key == region.start_key), None)
    after = next((r for r in given.regions if region.end_key and r.start_key == region.end_key), None)
    split = frozenset(given.settings.integers("recently_split", []))
    up_s = given.settings.number("pd_started_s_ago", 0)
    beside = Neighbours(before, after, split, borders_of(given.settings))
    return check_merge(given.cluster, region, beside, up_s=up_s)


def _asked(record: Fields, given: Given) -> tuple[Region, ...]:
    """Give the region that the scenario names: as source, or by the first number of ``merge-3-239``; else all."""
    words = record.text("id").split("-")
    named = int(words[1]) if len(words) > 1 and words[1].isdecimal() else 0
    asked = record.object("expect").integer("source", 0) or named
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


def hot_region(record: Fields) -> Verdict:
    """Play a round of balance-hot-region on what is written, or read."""
    given = given_of(record)
    if given.cluster.config.hot_region_schedule_limit == 0:
        return _compared([(dict(NONE) | {"count": 0}, 1.0)], record, "hot-region-schedule-limit 0")
    flow, settings = flow_of(given), hot_settings(given.settings)
    chances = of_hot_regions(given.cluster, given.regions, flow, settings)
    likely = sorted(chances.items(), key=lambda o: -o[1])
    ours = [(operator_json(op) | {"count": n}, p) for (op, n), p in likely]
    moves = any(op is not None and op.desc.endswith("peer") for (op, _), _ in likely)
    by_id = {r.id: r for r in given.regions}
    explained = solve(given.cluster, by_id, flow, MOVE_PEER if moves else TRANSFER_LEADER, settings)
    return _compared(ours, record, "the best move, or one as good")._replace(explained=explained)


def _compared(ours: list[tuple[dict[str, Any], float]], record: Fields, because: str) -> Verdict:
    """Compare all we may decide with what the scenario expects."""
    expect: Mapping[str, Any] = record.object("expect").value
    options = expect.get("one_of", [expect])
    chance = sum(p for o, p in ours if any(meets(o, e) for e in options))
    first = next((o for o, _ in ours if any(meets(o, e) for e in options)), ours[0][0])
    form = in_form(first, next((e for e in options if meets(first, e)), options[0]))
    agrees = chance >= LIKELY
    formed = _together([(in_form(o, options[0]), p) for o, p in ours])
    legal = tuple(o | {"chance": round(p, 6)} for o, p in formed) if len(formed) > 1 else ()
    return Verdict(form, dict(expect), agrees, because if agrees else f"{because} (chance {chance:.3f})", legal)

"""Why PD acts on a region, or leaves it alone: the reasons of every checker and scheduler, as rows and in words."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import NamedTuple

from ticdc_lab.pd_core import balance_leader, balance_region
from ticdc_lab.pd_core.balance import LEADERS, PENDING_HERE, scale, score_after
from ticdc_lab.pd_core.balance_leader import OUT
from ticdc_lab.pd_core.checkers import ALONE, check_joint_state, check_region, check_split
from ticdc_lab.pd_core.cluster import Cluster
from ticdc_lab.pd_core.config import BALANCE_LEADER, BALANCE_REGION
from ticdc_lab.pd_core.explained import Explained, Notes
from ticdc_lab.pd_core.merge_checker import Neighbours, check_merge
from ticdc_lab.pd_core.operators import Kind
from ticdc_lab.pd_core.pd_ctl_running import PdSchedulers, default_schedulers
from ticdc_lab.pd_core.regions import OUTSIDE, Region, lies_in
from ticdc_lab.pd_core.replica_checker import check_replicas
from ticdc_lab.pd_core.rule_checker import check_rules


def why_leader_stays(cluster: Cluster, region: Region) -> Explained:
    """Give the leader transfer of a round that drew this region, or why there is none."""
    notes = Notes()
    if not cluster.config.leader_schedule_limit:
        return _limited(notes, "leader-schedule-limit 0")
    leader = cluster.stores.get(region.leader)
    if leader is None:
        return notes.explained((), "the region has no leader, or on a store that is not known")
    if not balance_leader.may_transfer(region):
        return notes.explained((), "a peer is down or pending, or a label forbids it")
    if region.hot:
        return notes.explained((), "the region is hot")
    by = scale(cluster, LEADERS)
    notes.look_at([s for s in sorted(region.stores) if s != leader.id])
    found = balance_leader.transfer(by, OUT, leader, region, notes)
    return notes.explained(found, found[0].brief if found else _least(notes, "no follower may lead instead"))


def why_peers_stay(cluster: Cluster, region: Region) -> Explained:
    """Give the move of a round that drew this region, from the fullest of its stores that may give a peer.

    PD draws a region for one source at a time; the sources are asked from the highest score down, as it does.
    """
    notes = Notes()
    if not cluster.config.region_schedule_limit:
        return _limited(notes, "region-schedule-limit 0")
    found = balance_region.field(cluster, notes)
    here = [i for i, s in enumerate(found.sources[:-1]) if s.id in region.stores]
    if not here:
        return notes.explained((), "no store of the region is a source with a lower one after it")
    reasons = []
    for i in here:
        source = found.sources[i]
        kind = PENDING_HERE if source.id in region.pending else ""
        why = balance_region.may_move(cluster, region, source.id, kind) or ("the region is hot" if region.hot else "")
        operators = () if why or not region.leader else balance_region.transfer(found, i, region, notes)
        if operators:
            return notes.explained(operators, operators[0].brief)
        score = score_after(found.scale, source)
        reasons.append(f"from store {source.id} (score {score:.2f}): {why or 'no store that may take it pays'}")
    return notes.explained((), "; ".join(reasons))


def _limited(notes: Notes, limit: str) -> Explained:
    notes.limit = limit
    return notes.explained((), f"the scheduler is off: {limit}")


def _least(notes: Notes, otherwise: str) -> str:
    """Measure by how little the move that comes nearest to paying fails."""
    lost = [c for c in notes.compared if not c.held]
    if not lost:
        return otherwise
    c = min(lost, key=lambda c: c.target_score - c.source_score)
    have, would = f"store {c.source} has {c.source_score:.2f}", f"store {c.target} would have {c.target_score:.2f}"
    return f"no transfer pays: {have}, {would}"


_NOTHING_RUNS: Mapping[Kind, int] = MappingProxyType({})

Row = dict[str, object]
"""``asked`` (who decided), ``store``, ``test``, ``outcome``, ``value`` and ``against`` (scores or None), ``why``."""


class Opinion(NamedTuple):
    """One checker's or scheduler's answer for a region, and why."""

    asked: str
    explained: Explained

    @property
    def sentence(self) -> str:
        """The decision in words."""
        op = self.explained.operator
        verdict = f"{op.desc}, {op.brief}" if op is not None else "nothing"
        more = f" (or {len(self.explained.operators) - 1} equally good)" if len(self.explained.operators) > 1 else ""
        because = "" if op is not None and op.brief in self.explained.because else f": {self.explained.because}"
        return f"{self.asked}: {verdict}{more}{because}"


def explain(
    cluster: Cluster, region: Region, beside: Neighbours = ALONE, *, up_s: float = float("inf"),
    running: Mapping[Kind, int] = _NOTHING_RUNS, schedulers: PdSchedulers | None = None,
) -> tuple[Opinion, ...]:  # fmt: skip
    """Ask everybody who may act on a region what they would do now.

    ``cluster``, ``region``, ``beside``, ``up_s``, ``running``: as for
    :func:`ticdc_lab.pd_core.checkers.check_region`. ``schedulers``: PD's, whether they have rounds, and the keys
    that they are about. Returns: the patrol first, which is what PD does; then each checker by itself, and the two
    balance schedulers, with what they would do if they drew this region.
    """
    answers = [
        Opinion("patrol", check_region(cluster, region, beside, up_s=up_s, running=dict(running))),
        Opinion("joint-state checker", check_joint_state(cluster, region)),
        Opinion("split checker", check_split(cluster, region, beside.borders)),
    ]
    rules = cluster.config.placement_rules
    told = check_rules(cluster, region) if rules else check_replicas(cluster, region)
    answers.append(Opinion("rule checker" if rules else "replica checker", told))
    answers.append(Opinion("merge checker", check_merge(cluster, region, beside, up_s=up_s)))
    for name, why_stays in ((BALANCE_LEADER, why_leader_stays), (BALANCE_REGION, why_peers_stay)):
        state, told = (schedulers or default_schedulers()).get(name), why_stays(cluster, region)
        if not state.runs:
            told = Explained((), f"the scheduler has no rounds: {state.why_not}")
        elif not lies_in(region, state.keys_of()):
            told = Explained((), OUTSIDE)
        answers.append(Opinion(name.removesuffix("-scheduler"), told))
    return tuple(answers)


def why_no_operator(cluster: Cluster, region: Region, beside: Neighbours = ALONE, *, up_s: float = float("inf")) -> str:
    """Give in words why a region is left alone by all; "" where one would act on it."""
    answers = explain(cluster, region, beside, up_s=up_s)
    if any(a.explained.operators for a in answers):
        return ""
    return "; ".join(a.sentence for a in answers[1:])


def rows(answer: Opinion) -> list[Row]:
    """Give the reasons of an answer as rows, in the order in which they were found."""
    return list(_rows(answer))


def _rows(answer: Opinion) -> Iterator[Row]:
    found = answer.explained
    for refused in found.rejected:
        yield _row(answer, refused.store, f"{refused.filter} ({refused.role})", "rejected", why=refused.why)
    for scored in found.scored:
        yield _row(answer, scored.store, scored.what, "best" if scored.chosen else "worse", scored.score)
    for pair in found.compared:
        outcome = "a move pays" if pair.held else "no move pays"
        why = f"from store {pair.source} to store {pair.target}"
        yield _row(answer, pair.source, f"{pair.what} scores", outcome, pair.source_score, pair.target_score, why)
    if found.limit:
        yield _row(answer, None, "limit", "waits", why=found.limit)


def _row(
    answer: Opinion, store: int | None, test: str, outcome: str, value: float | None = None,
    against: float | None = None, why: str = "",
) -> Row:  # fmt: skip
    return {"asked": answer.asked, "store": store, "test": test, "outcome": outcome, "value": value,
            "against": against, "why": why}  # fmt: skip

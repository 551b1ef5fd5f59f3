"""Why PD acts on a region, or leaves it alone: the reasons of every checker and scheduler, as rows and in words."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import NamedTuple

from ticdc_lab.simulate.pd.checkers import ALONE, check_joint_state, check_region, check_split
from ticdc_lab.simulate.pd.cluster import Cluster
from ticdc_lab.simulate.pd.explained import Explained
from ticdc_lab.simulate.pd.merge_checker import Neighbours, check_merge
from ticdc_lab.simulate.pd.operators import Kind
from ticdc_lab.simulate.pd.regions import Region
from ticdc_lab.simulate.pd.replica_checker import check_replicas
from ticdc_lab.simulate.pd.rule_checker import check_rules
from ticdc_lab.simulate.pd.why_balance import why_leader_stays, why_peers_stay

_NOTHING_RUNS: Mapping[Kind, int] = MappingProxyType({})

Row = dict[str, object]
"""``asked`` (who decided), ``store``, ``test``, ``outcome``, ``value`` and ``against`` (scores or None), ``why``."""


class Answer(NamedTuple):
    """What one checker or scheduler says to a region, and why."""

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
    running: Mapping[Kind, int] = _NOTHING_RUNS,
) -> tuple[Answer, ...]:  # fmt: skip
    """Ask everybody who may act on a region what they would do now.

    Parameters
    ----------
    cluster
        The cluster.
    region
        The region.
    beside
        Its neighbours, for a merge.
    up_s
        Seconds since PD started.
    running
        Operators that run now, by the kind that they are limited as.

    Returns
    -------
    tuple[Answer, ...]
        The patrol first, which is what PD does; then each checker by itself, and the two balance schedulers, which
        say what they would do if they drew this region.
    """
    answers = [
        Answer("patrol", check_region(cluster, region, beside, up_s=up_s, running=dict(running))),
        Answer("joint-state checker", check_joint_state(cluster, region)),
        Answer("split checker", check_split(cluster, region, beside.borders)),
    ]
    rules = cluster.config.placement_rules
    told = check_rules(cluster, region) if rules else check_replicas(cluster, region)
    answers.append(Answer("rule checker" if rules else "replica checker", told))
    answers.append(Answer("merge checker", check_merge(cluster, region, beside, up_s=up_s)))
    answers.append(Answer("balance-leader", why_leader_stays(cluster, region)))
    answers.append(Answer("balance-region", why_peers_stay(cluster, region)))
    return tuple(answers)


def why_no_operator(cluster: Cluster, region: Region, beside: Neighbours = ALONE, *, up_s: float = float("inf")) -> str:
    """Say in words why a region is left alone by everybody; "" where somebody would act on it."""
    answers = explain(cluster, region, beside, up_s=up_s)
    if any(a.explained.operators for a in answers):
        return ""
    return "; ".join(a.sentence for a in answers[1:])


def rows(answer: Answer) -> list[Row]:
    """Give the reasons of an answer as rows, in the order in which they were found."""
    return list(_rows(answer))


def _rows(answer: Answer) -> Iterator[Row]:
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
    answer: Answer, store: int | None, test: str, outcome: str, value: float | None = None,
    against: float | None = None, why: str = "",
) -> Row:  # fmt: skip
    return {"asked": answer.asked, "store": store, "test": test, "outcome": outcome, "value": value,
            "against": against, "why": why}  # fmt: skip

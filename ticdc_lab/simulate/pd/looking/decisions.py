"""What was decided in a run and why, and a decision as a table: candidates down, filters across, the score at last."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

from ticdc_lab.pd_core.balance import LEADERS, REGIONS, compare, scale, source_score, target_score
from ticdc_lab.pd_core.cluster import Cluster
from ticdc_lab.pd_core.explained import Compared, Explained, Notes
from ticdc_lab.pd_core.filters import LEADER_SOURCE, LEADER_TARGET, REGION_SOURCE, REGION_TARGET, by_state, keep
from ticdc_lab.pd_core.operators import Kind, Operator
from ticdc_lab.pd_core.why import Opinion
from ticdc_lab.simulate.pd.world.policy import Answer as Round
from ticdc_lab.simulate.pd.world.policy import Policy, SeenCluster
from ticdc_lab.simulate.pd.world.running import CHECKER, ends_of

SOURCE, TARGET = "source", "target"


class CandidateRow(NamedTuple):
    """A candidate: what each filter decided (``refused``, by filter, the first reason), and its score.

    ``role`` is what it was looked at as, ``score`` the value it was judged by and ``of`` of what, ``verdict`` what
    became of it in a word or two; ``chosen`` where the operator goes to it (or from it).
    """

    store: int
    role: str
    refused: dict[str, str]
    times: int
    score: float | None
    of: str
    verdict: str
    chosen: bool


class DecisionTable(NamedTuple):
    """A decision as a table; ``filters`` are the columns, in the order in which they first refused someone."""

    because: str
    limit: str
    filters: tuple[str, ...]
    rows: tuple[CandidateRow, ...]
    compared: tuple[Compared, ...]
    operators: tuple[Operator, ...]


def choice_of(told: Explained) -> DecisionTable:
    """Lay a decision out as a table.

    A store is a row for each role in which it was looked at: one that is refused as a source may still be a target.
    """
    ends = [ends_of(op) for op in told.operators]
    chosen = {(SOURCE, a) for a, _ in ends if a} | {(TARGET, b) for _, b in ends if b}
    roles = {(r.role, r.store) for r in told.rejected} | chosen
    roles |= {(SOURCE, c.source) for c in told.compared} | {(TARGET, c.target) for c in told.compared}
    roles |= {(TARGET, s.store) for s in told.scored}
    named = {store for _, store in roles}
    roles |= {(TARGET, store) for store in told.candidates if store not in named}
    order = {store: i for i, store in enumerate(told.candidates)}
    listed = sorted(roles, key=lambda r: (r[0] != SOURCE, order.get(r[1], len(order)), r[1]))
    rows = tuple(_row(told, role, store, (role, store) in chosen) for role, store in listed)
    filters = tuple(dict.fromkeys(r.filter for r in told.rejected))
    return DecisionTable(told.because, told.limit, filters, rows, told.compared, told.operators)


def _row(told: Explained, role: str, store: int, chosen: bool) -> CandidateRow:
    mine = [r for r in told.rejected if r.role == role and r.store == store]
    refused: dict[str, str] = {}
    for r in mine:
        refused.setdefault(r.filter, r.why)
    at = [c for c in told.compared if (c.source if role == SOURCE else c.target) == store]
    scored = [s for s in told.scored if s.store == store and role == TARGET]
    score, of, verdict = None, "", "not needed" if told.operators else "not reached"
    if at:
        best = next((c for c in at if c.held), at[-1])
        score, of = best.source_score if role == SOURCE else best.target_score, f"{best.what} score"
        verdict = "would pay too" if any(c.held for c in at) else "does not pay"
    elif scored:
        last = scored[-1]
        score, of, verdict = last.score, last.what, "equally good" if last.chosen else f"worse {last.what}"
    elif mine:
        verdict = word(mine[0].why)
    return CandidateRow(store, role, refused, len(mine), score, of, "chosen" if chosen else verdict, chosen)


_WORDS = {
    "the region has a peer there": "has a peer",
    "it takes no peers now": "takes none now",
    "it breaks the rule or its isolation": "breaks isolation",
    "low on space": "low on space",
    "its labels do not meet the rule": "labels do not fit",
    "kept for a special use": "special use",
    "no peer there that could lead": "no follower",
    "its rule does not let it lead": "may not lead",
    "no other peer to be isolated from": "no other peer",
}


def word(why: str) -> str:
    """Give a reason in a word or two."""
    if why in _WORDS:
        return _WORDS[why]
    if why.startswith("isolation score"):
        return "worse place"
    head, colon, _ = why.partition(":")
    return head.replace("-", " ") if colon else " ".join(why.split()[:4])


_BALANCED = {
    Kind.REGION: (REGIONS, REGION_SOURCE, REGION_TARGET), Kind.LEADER: (LEADERS, LEADER_SOURCE, LEADER_TARGET),
}  # fmt: skip
_EVERY_US = 1_000_000


class Decision(NamedTuple):
    """A decision: by which scheduler (or the checkers), about which region (0: any), and its reasons."""

    at_us: int
    by: str
    region: int
    told: Explained


class Noted:
    """Keeps the decisions of a cluster; one without an operator only once a second for each scheduler and reason."""

    def __init__(self) -> None:
        self.kept: list[Decision] = []
        self.last_us: dict[tuple[str, str], int] = {}

    def keeps(self, at_us: int, by: str, because: str) -> bool:
        """Whether a decision without an operator would be kept."""
        return at_us - self.last_us.get((by, because), -_EVERY_US) >= _EVERY_US

    def take(self, at_us: int, by: str, region: int, told: Explained) -> None:
        if not told.operators:
            if not self.keeps(at_us, by, told.because):
                return
            self.last_us[by, told.because] = at_us
        self.kept.append(Decision(at_us, by, region, told))

    def looked(self, now_us: int, region: int, told: Explained) -> None:
        self.take(now_us, CHECKER, region, told)

    def answered(self, seen: SeenCluster, policy: Policy, answer: Round) -> None:
        region = answer.operators[0].region if answer.operators else 0
        chosen = replace(answer.told, operators=answer.operators) if answer.operators else answer.told
        self.take(seen.now_us, policy.name, region, chosen)

    def unpaid(self, seen: SeenCluster, policy: Policy, why: str) -> None:
        if self.keeps(seen.now_us, policy.name, why):
            self.take(seen.now_us, policy.name, 0, scores_apart(seen.cluster, policy.limited_as, why))


def scores_apart(cluster: Cluster, kind: Kind, because: str) -> Explained:
    """Explain why no move can pay whichever region is drawn: each store's score against the best one opposite.

    A source is compared with the lowest target, a target with the highest source.
    """
    if kind not in _BALANCED:
        return Explained((), because)
    resource, source_role, target_role = _BALANCED[kind]
    notes, stores = Notes(), list(cluster.stores.values())
    notes.look_at([s.id for s in stores])
    sources = keep(stores, [by_state(source_role, cluster.config)], notes, SOURCE)
    targets = keep(stores, [by_state(target_role, cluster.config)], notes)
    by = scale(cluster, resource)
    if not sources or not targets:
        return notes.explained((), because)
    lowest = min(targets, key=lambda s: target_score(by, s))
    highest = max(sources, key=lambda s: source_score(by, s))
    for s in sources:
        if s is not lowest:
            compare(by, s, lowest, notes)
    for t in targets:
        if t is not highest:
            compare(by, highest, t, notes)
    return notes.explained((), because)


def about_store(decisions: Sequence[Decision], store: int) -> list[Decision]:
    """Give the decisions that looked at a store as a source or as a target."""
    return [d for d in decisions if any(r.store == store for r in choice_of(d.told).rows)]


def decision_at(decisions: Sequence[Decision], at_us: int, by: str = "", *, fruitless: bool = False) -> Decision | None:
    """Give the last decision up to a moment, of one scheduler or of any, or the last that led to nothing."""
    found = [d for d in decisions if d.at_us <= at_us and by in ("", d.by) and not (fruitless and d.told.operators)]
    return found[-1] if found else None


def wanting(answers: Sequence[Opinion], at_us: int, region: int) -> Decision:
    """Give of all who were asked about a region the one who acts on it, or else looked at most."""
    acting = [a for a in answers if a.explained.operators]
    chosen = acting[0] if acting else max(answers, key=lambda a: len(a.explained.rejected) + len(a.explained.compared))
    return Decision(at_us, chosen.asked, region, chosen.explained)

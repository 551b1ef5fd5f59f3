"""What was decided in a run and why, and a decision as a table: candidates down, filters across, the score at last."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from ticdc_lab.pd_core.explained import Compared, Explained
from ticdc_lab.pd_core.filters import SOURCE, TARGET
from ticdc_lab.pd_core.operators import Operator
from ticdc_lab.pd_core.why import Opinion
from ticdc_lab.simulate.pd.world.recording import Decision
from ticdc_lab.simulate.pd.world.running import ends_of


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

"""A decision as a table: candidates down, filters across, a reason where one refused, and the score at last."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from ticdc_lab.simulate.pd.explained import Compared, Explained, Rejected
from ticdc_lab.simulate.pd.operators import AddLearner, Operator, RemovePeer, TransferLeader

SOURCE, TARGET = "source", "target"
_ONLY_STATE = "state"


class Row(NamedTuple):
    """A candidate: what each filter said of it (``refused``, by filter, the first reason), and its score.

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


class Choice(NamedTuple):
    """A decision as a table; ``filters`` are the columns, in the order in which they first refused someone."""

    because: str
    limit: str
    filters: tuple[str, ...]
    rows: tuple[Row, ...]
    compared: tuple[Compared, ...]
    operators: tuple[Operator, ...]


def choice_of(told: Explained) -> Choice:
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
    return Choice(told.because, told.limit, filters, rows, told.compared, told.operators)


def ends_of(op: Operator) -> tuple[int, int]:
    """Give from which store to which an operator moves something, 0 for none."""
    adds = [s.store for s in op.steps if isinstance(s, AddLearner)]
    removes = [s.store for s in op.steps if isinstance(s, RemovePeer)]
    leads = [s for s in op.steps if isinstance(s, TransferLeader)]
    if adds or removes:
        return (removes or [0])[0], (adds or [0])[0]
    return (leads[0].from_store, leads[-1].to_store) if leads else (0, 0)


def _row(told: Explained, role: str, store: int, chosen: bool) -> Row:
    mine = [r for r in told.rejected if r.role == role and r.store == store]
    refused: dict[str, str] = {}
    for r in mine:
        refused.setdefault(r.filter, r.why)
    score, of = _score(told, role, store)
    return Row(store, role, refused, len(mine), score, of, _verdict(told, role, store, mine, chosen), chosen)


def _score(told: Explained, role: str, store: int) -> tuple[float | None, str]:
    at = [c for c in told.compared if (c.source if role == SOURCE else c.target) == store]
    if at:
        best = next((c for c in at if c.held), at[-1])
        return (best.source_score if role == SOURCE else best.target_score), f"{best.what} score"
    scored = [s for s in told.scored if s.store == store and role == TARGET]
    return (scored[-1].score, scored[-1].what) if scored else (None, "")


def _verdict(told: Explained, role: str, store: int, mine: Sequence[Rejected], chosen: bool) -> str:
    if chosen:
        return "chosen"
    at = [c for c in told.compared if (c.source if role == SOURCE else c.target) == store]
    if at:
        return "would pay too" if any(c.held for c in at) else "does not pay"
    scored = [s for s in told.scored if s.store == store and role == TARGET]
    if scored:
        return "equally good" if scored[-1].chosen else f"worse {scored[-1].what}"
    if mine:
        return word(mine[0].why)
    return "not needed" if told.operators else "not reached"


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

"""Our decision in the form of a scenario's ``expect``, and whether the two agree."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ticdc_lab.simulate.pd.operators import (
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
    SplitRegion,
    Step,
    TransferLeader,
)

NONE: dict[str, Any] = {"operator": "none"}
_WORDS = ("note", "reason", "why")

FACTS = frozenset({
    *_WORDS, "operator", "one_of", "count", "sequence", "region", "desc", "priority", "steps", "source", "target",
    "from_store", "to_store", "store",
})  # fmt: skip
"""What a scenario may expect of an operator and we tell; of other facts nothing is said."""

LIKELY = 0.99
"""Where regions are drawn by chance, so many of a hundred rounds must end as the scenario says."""


def operator_json(op: Operator | None) -> dict[str, Any]:
    """Tell an operator: what it does, with which stores, for which region, why and how urgently."""
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
        return _made_anew(steps)
    if adds and removes:
        return {"operator": "move-peer", "from_store": removes[0], "to_store": adds[0]}
    if adds:
        return {"operator": "add-peer", "to_store": adds[0]}
    if removes:
        return {"operator": "remove-peer", "from_store": removes[0]}
    if leads and len(leads) == len(steps):
        return {"operator": "transfer-leader", "from_store": leads[0].from_store, "to_store": leads[-1].to_store}
    return _role_change(steps)


def _made_anew(steps: Sequence[Step]) -> dict[str, Any]:
    """Name what removing a peer and adding it to the same store does: its role, or whether it is a witness, changes."""
    added = next(s for s in steps if isinstance(s, AddLearner))
    if any(isinstance(s, BecomeNonWitness) for s in steps):
        return {"operator": "become-non-witness", "store": added.store}
    votes = any(isinstance(s, PromoteLearner) and s.store == added.store for s in steps)
    return {"operator": "become-witness" if votes and added.witness else "demote-voter", "store": added.store}


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


def step_text(step: Step) -> str:
    """Give a step in a few words."""
    match step:
        case AddLearner(store, witness):
            return f"add-{'witness-' if witness else ''}learner {store}"
        case PromoteLearner(store):
            return f"promote {store}"
        case DemoteVoter(store):
            return f"demote {store}"
        case RemovePeer(store):
            return f"remove {store}"
        case TransferLeader(a, b):
            return f"transfer-leader {a}->{b}"
        case EnterJoint(up, down):
            return f"enter-joint promote {list(up)} demote {list(down)}"
        case LeaveJoint(up, down):
            return f"leave-joint promote {list(up)} demote {list(down)}"
        case MergeRegion(a, b, _):
            return f"merge {a}->{b}"
        case SplitRegion(policy, _):
            return f"split {policy}"
        case BecomeWitness(store):
            return f"witness {store}"
        case BecomeNonWitness(store):
            return f"non-witness {store}"


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

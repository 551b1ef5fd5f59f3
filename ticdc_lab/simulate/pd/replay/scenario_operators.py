"""Scenarios about how operators end, and which may be handed to the controller."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from ticdc_lab.simulate.pd.lifecycle import EXPIRES_AFTER_S, impossible, may_be_added, status_at
from ticdc_lab.simulate.pd.operators import AddLearner, Kind, Operator, RemovePeer, Step, TransferLeader, timeout_s
from ticdc_lab.simulate.pd.replay.fields import Fields, Unknown
from ticdc_lab.simulate.pd.replay.given import Given, given_of, region_of
from ticdc_lab.simulate.pd.replay.verdict import Verdict, equal


def operator_status(record: Fields) -> Verdict:
    """Give the state an operator is in after a while, and the limit that brought it there."""
    given = given_of(record)
    expect = record.object("expect").value
    op = _operator(given)
    ours: dict[str, Any]
    if "running_s" in given.settings:
        running = given.settings.number("running_s")
        ours = {"status": status_at(op, created_s_ago=running, running_s=running), "limit_s": timeout_s(op)}
    elif "created_age_s" in given.settings:
        age = given.settings.number("created_age_s")
        ours = {"status": status_at(op, created_s_ago=age), "limit_s": EXPIRES_AFTER_S}
    else:
        why = impossible(given.cluster, region_of(given), op.steps[0])
        return equal(_in_words({"status": "stale" if why else "started"}, expect), expect, why)
    ours = _in_words({k: v for k, v in ours.items() if k in expect}, expect)
    return equal(ours, expect, "steps may take so long together")


_OTHER_WORDS = {"started": ("running",), "stale": ("canceled", "cancelled")}


def _in_words(ours: dict[str, Any], expect: Mapping[str, Any]) -> dict[str, Any]:
    """Give a status by another word that the scenario uses for it: PD shows a started operator as running."""
    wanted = expect.get("status")
    return ours | {"status": wanted} if wanted in _OTHER_WORDS.get(str(ours.get("status")), ()) else ours


_STEPS: Mapping[str, Step] = {
    "remove-peer": RemovePeer(1),
    "add-peer": AddLearner(2),
    "transfer-leader": TransferLeader(1, 2),
}


def _operator(given: Given) -> Operator:
    """Read an operator such as ``remove-peer + add-peer`` or ``transfer leader to 2``."""
    text = given.settings.text("operator")
    match = re.fullmatch(r"(transfer leader|add peer|remove peer)(?: to| from)? (\d+)", text)
    steps: list[Step] = []
    if match is not None:
        store, leader = int(match[2]), region_of(given).leader
        verbs: dict[str, Step] = {"transfer leader": TransferLeader(leader, store), "add peer": AddLearner(store)}
        steps.append(verbs.get(match[1], RemovePeer(store)))
    else:
        names = [n.strip() for n in text.split("+")]
        if not set(names) <= set(_STEPS):
            raise Unknown(f"an operator of steps {text!r}; known are {', '.join(_STEPS)}")
        steps.extend(_STEPS[n] for n in names)
    return Operator("test", text, region_of(given).id, Kind(0), tuple(steps), size=region_of(given).size)


def operator_accepted(record: Fields) -> Verdict:
    """Say whether operators in these states may be handed to the controller."""
    given = given_of(record)
    states = given.settings.texts("operator_status")
    ours = {"accepted": any(may_be_added(s) for s in states)}
    return equal(ours, record.object("expect").value, "only a created operator may be added")

"""Operators that a scenario says are running, and what they will have added to each store."""

from __future__ import annotations

import re
from typing import NamedTuple

from ticdc_lab.simulate.pd.cluster import NO_INFLUENCE, Influence
from ticdc_lab.simulate.pd.limits import Bucket, available, bucket_per_minute, step_cost, taken
from ticdc_lab.simulate.pd.replay.fields import Malformed, Unknown
from ticdc_lab.simulate.pd.replay.given import REGION_MIB, Given

_LIMIT_PER_MINUTE = 60
"""Store limit of PD's test cluster, for adding and for removing peers."""

_MOVE, _LEAD, _ADD, _REMOVE, _MERGE = "move-peer", "transfer-leader", "add-peer", "remove-peer", "merge"
_FORM = "N x move-peer A -> B, transfer-leader A -> B, add-peer A, remove-peer A or merge A -> B"
_PATTERN = re.compile(
    rf"(?:(\d+) ?x )?({_MOVE}|{_LEAD}|{_ADD}|{_REMOVE}|{_MERGE})(?:-region)?(?: (\d+))?(?: ?-> ?(\d+))?"
)


class Handed(NamedTuple):
    """Operators of one kind as they are handed to the controller; a store is 0 where the kind has none."""

    times: int
    verb: str
    source: int
    target: int


def with_running(given: Given) -> Given:
    """Count the operators that run: ``8 x move-peer 4 -> 3``, several of them as a list or divided by semicolons.

    Only as many start as the store limits let; what is left of the limits is what a decision finds. A merge moves no
    size, so it counts for nothing here.
    """
    told = given.settings.any("running_operators", "")
    texts = told.split(";") if isinstance(told, str) else list(told) if isinstance(told, list) else [told]
    for text in texts:
        if text:
            given = _handed(given, _read(text))
    return given


def _read(text: object) -> Handed:
    if not isinstance(text, str):
        raise Malformed("given.config.running_operators", _FORM, text)
    match = _PATTERN.fullmatch(text.strip())
    if match is None:
        raise Unknown(f"running operators told as {text!r}; known are {_FORM}")
    times, verb, one, other = int(match[1] or 1), match[2], int(match[3] or 0), int(match[4] or 0)
    if not one or ((verb in (_MOVE, _LEAD)) != bool(other) and verb != _MERGE):
        raise Malformed("given.config.running_operators", _FORM, text)
    return Handed(times, verb, one, other) if verb != _ADD else Handed(times, verb, 0, one)


def _handed(given: Given, op: Handed) -> Given:
    if op.verb == _MERGE:
        return given
    if not {op.source, op.target} - {0} <= set(given.cluster.stores):
        raise Malformed("given.config.running_operators", "known stores", f"{op.source} -> {op.target}")
    if op.verb == _LEAD:
        return _influenced(given, op, leaders=op.times)
    bucket, started = _started(op.times)
    left = available(bucket, 0)
    stores = dict(given.cluster.stores)
    if op.source:
        stores[op.source] = stores[op.source]._replace(remove_open=left)
    if op.target:
        stores[op.target] = stores[op.target]._replace(add_open=left)
    given = given._replace(cluster=given.cluster._replace(stores=stores))
    return _influenced(given, op, peers=started)


def _started(times: int) -> tuple[Bucket, int]:
    bucket, cost, started = bucket_per_minute(_LIMIT_PER_MINUTE), step_cost(REGION_MIB), 0
    while started < times and available(bucket, 0, cost):
        bucket, started = taken(bucket, 0, cost), started + 1
    return bucket, started


def _influenced(given: Given, op: Handed, *, peers: int = 0, leaders: int = 0) -> Given:
    found = dict(given.cluster.influence)
    for store, sign in ((op.source, -1), (op.target, 1)):
        if store:
            old = found.get(store, NO_INFLUENCE)
            found[store] = Influence(
                old.region_size + sign * peers * REGION_MIB, old.region_count + sign * peers,
                old.leader_size + sign * leaders * REGION_MIB, old.leader_count + sign * leaders,
            )  # fmt: skip
    return given._replace(cluster=given.cluster._replace(influence=found))

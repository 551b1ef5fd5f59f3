"""The states of an operator, and what ends it; `pd_notes.md` section 8."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from ticdc_lab.pd_core.cluster import Cluster
from ticdc_lab.pd_core.operators import (
    AddLearner,
    BecomeNonWitness,
    BecomeWitness,
    DemoteVoter,
    LeaveJoint,
    Operator,
    PromoteLearner,
    RemovePeer,
    Step,
    TransferLeader,
    timeout_s,
)
from ticdc_lab.pd_core.regions import Region, is_learner
from ticdc_lab.pd_core.stores import REMOVED

CREATED, STARTED, SUCCESS = "created", "started", "success"
CANCELED, REPLACED, EXPIRED, TIMEOUT = "canceled", "replaced", "expired", "timeout"

EXPIRES_AFTER_S = 3.0

NEXT: Mapping[str, frozenset[str]] = MappingProxyType({
    CREATED: frozenset({STARTED, CANCELED, EXPIRED, REPLACED}),
    STARTED: frozenset({SUCCESS, CANCELED, REPLACED, TIMEOUT}),
    **dict.fromkeys((SUCCESS, CANCELED, REPLACED, EXPIRED, TIMEOUT), frozenset()),
})  # fmt: skip
"""The states that may follow each state."""


def may_follow(before: str, after: str) -> bool:
    """Whether an operator may go from one state to another; one that may be started is handed to the controller."""
    return after in NEXT[before]


def status_at(operator: Operator, before: str, after_s: float) -> str:
    """Give the state that time alone brings an operator to, so long after it was created or started.

    One that was not started within 3 s of its creation expires; one that runs as long as its steps may take times out.
    """
    if before == CREATED:
        return EXPIRED if after_s >= EXPIRES_AFTER_S else CREATED
    return TIMEOUT if after_s >= timeout_s(operator) else STARTED


def impossible(cluster: Cluster, region: Region, step: Step) -> str:
    """Give why a step cannot be carried out any more, "" where it can; such an operator is stale and cancelled."""
    match step:
        case TransferLeader(_, to):
            peer = region.peer_on(to)
            if peer is None or is_learner(peer):
                return f"the region has no voter on store {to}"
            return _out_of_order(cluster, to)
        case AddLearner(to, _):
            there = region.peer_on(to)
            voter = there is not None and not is_learner(there)
            return f"the region has a voter on store {to}" if voter else _out_of_order(cluster, to)
        case BecomeWitness(store) | BecomeNonWitness(store) if region.peer_on(store) is not None:
            return _out_of_order(cluster, store)
        case RemovePeer(store):
            return f"the peer on store {store} leads" if region.leader == store else ""
        case LeaveJoint(_, down) if region.leader in down:
            return f"the peer on store {region.leader} leads and would be demoted"
        case PromoteLearner(store) | DemoteVoter(store) | BecomeWitness(store) | BecomeNonWitness(store):
            return f"the region has no peer on store {store}" if region.peer_on(store) is None else ""
        case _:
            return ""


def _out_of_order(cluster: Cluster, store_id: int) -> str:
    """Give why a store takes no part in a step: one that is being taken offline still does."""
    store = cluster.stores.get(store_id)
    if store is None:
        return f"store {store_id} is not known"
    if store.state == REMOVED:
        return f"store {store_id} is {store.state}"
    if store.heartbeat_age_s > cluster.config.max_store_down_time_s:
        return f"store {store_id} is down"
    return ""

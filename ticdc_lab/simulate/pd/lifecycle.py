"""The states of an operator, and what ends it; `pd_notes.md` section 8."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from ticdc_lab.simulate.pd.cluster import Cluster
from ticdc_lab.simulate.pd.operators import (
    AddLearner,
    DemoteVoter,
    Operator,
    PromoteLearner,
    RemovePeer,
    Step,
    TransferLeader,
    timeout_s,
)
from ticdc_lab.simulate.pd.regions import Region
from ticdc_lab.simulate.pd.stores import REMOVED, REMOVING

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
    """Whether an operator may go from one state to another."""
    return after in NEXT[before]


def may_be_added(status: str) -> bool:
    """Whether an operator may be handed to the controller: only one that was just created."""
    return status == CREATED


def status_at(operator: Operator, *, created_s_ago: float, running_s: float | None = None) -> str:
    """Give the state that time alone brings an operator to.

    One that was not started within 3 s of its creation expires; one that runs as long as its steps may take times out.
    """
    if running_s is None:
        return EXPIRED if created_s_ago >= EXPIRES_AFTER_S else CREATED
    return TIMEOUT if running_s >= timeout_s(operator) else STARTED


def impossible(cluster: Cluster, region: Region, step: Step) -> str:
    """Give why a step cannot be carried out any more, "" where it can; such an operator is stale and cancelled."""
    match step:
        case TransferLeader(_, to):
            peer = region.peer_on(to)
            if peer is None:
                return f"the region has no peer on store {to}"
            return _out_of_order(cluster, to)
        case AddLearner(to, _):
            return _out_of_order(cluster, to)
        case RemovePeer(store):
            return f"the peer on store {store} leads" if region.leader == store else ""
        case PromoteLearner(store) | DemoteVoter(store) if region.peer_on(store) is None:
            return f"the region has no peer on store {store}"
        case _:
            return ""


def _out_of_order(cluster: Cluster, store_id: int) -> str:
    store = cluster.stores.get(store_id)
    if store is None:
        return f"store {store_id} is not known"
    if store.state in (REMOVING, REMOVED):
        return f"store {store_id} is {store.state}"
    if store.heartbeat_age_s > cluster.config.max_store_down_time_s:
        return f"store {store_id} is down"
    return ""

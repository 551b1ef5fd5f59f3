"""What a worker is and knows, and what users ask of it."""

from __future__ import annotations

from typing import Any, NamedTuple

from immutables import Map

from ticdc_lab.simulate.ddl_service import keys
from ticdc_lab.simulate.ddl_service.connection import Connection
from ticdc_lab.simulate.ddl_service.mirror import Mirror, Part
from ticdc_lab.simulate.ddl_service.owner import OwnerState
from ticdc_lab.simulate.ddl_service.store_messages import Entry

SERVICE = ""
"""The name of a worker's connection with the service's own store; the others have those of clusters."""
PREFIXES = (keys.REGISTERS, keys.WORKERS, keys.ASSIGNMENTS, keys.LEADER)


class WorkerState(NamedTuple):
    """A worker.

    Attributes
    ----------
    node
        Its id in the service, which a restart does not change.
    service
        The session with the service's store.
    owners
        Of the clusters that are assigned to it.
    lives
        How many sessions with clusters it has begun.
    leads
        The revision of the campaign with which it leads; 0 while another does.
    followed
        The registered clusters and the assignments that it has acted on.
    planned
        What it has planned from, as leader.
    """

    node: str
    service: Connection
    owners: Map[str, OwnerState] = Map()
    lives: int = 0
    leads: int = 0
    followed: tuple[Part, ...] = ()
    planned: tuple[Any, ...] = ()


class Register(NamedTuple):
    """Asked of a worker: register a cluster, or update it."""

    cluster: str
    store_addr: str
    version: str


class Unregister(NamedTuple):
    """Asked of a worker: a cluster leaves the service."""

    cluster: str


def registered(state: WorkerState) -> Entry | None:
    """Give the key of the worker's node, if this session has registered it."""
    mirror: Mirror | None = state.service.mirror
    own = mirror.under(keys.WORKERS).get(state.node) if mirror else None
    return own if own is not None and own.lease == state.service.lease else None

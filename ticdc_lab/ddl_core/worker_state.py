"""What a worker is and knows, and what users ask of it."""

from __future__ import annotations

from typing import Any, NamedTuple

from immutables import Map

from ticdc_lab.ddl_core import keys
from ticdc_lab.ddl_core.connection import Connection, Mirror, Part
from ticdc_lab.ddl_core.owner import OwnerState
from ticdc_lab.ddl_core.store import StoredEntry
from ticdc_lab.machines.machine import stepped

SERVICE = ""
"""The name of a worker's connection with the service's own store; the others have clusters' names."""
PREFIXES = (keys.REGISTERS, keys.WORKERS, keys.ASSIGNMENTS, keys.LEADER)


class Register(NamedTuple):
    """Asked of a worker: register a cluster, or update it."""

    # ``cluster``, ``store_addr``: its id, and its PDs.
    cluster: str
    store_addr: str
    # Empty where the cluster is to be asked; one without it keeps its registered one, and a new one gets
    # what all workers serve.
    version: str = ""
    request: str = ""  # by which the answer is known


class Unregister(NamedTuple):
    """Asked of a worker: a cluster leaves the service; ``if_idle``, only where no job is in its queue."""

    cluster: str
    request: str = ""
    if_idle: bool = False


class Look(NamedTuple):
    """Asked of a worker: what the service's store holds now."""

    request: str = ""


class LookAtJobs(NamedTuple):
    """Asked of a worker: the jobs in a cluster's queue, or one job (0: all), and the schema versions of its servers."""

    cluster: str
    job: int = 0
    request: str = ""


class Wish(NamedTuple):
    """What a user has asked for."""

    # ``command``, ``since_us``: what, and when, on the worker's own clock.
    command: Register | Unregister | Look | LookAtJobs
    since_us: int
    # ``read`` or ``write`` while the store is asked, ``version`` or ``jobs`` while the cluster's is, ``wait`` until the
    # next tick.
    doing: str = "read"
    tries: int = 0  # how often it was begun
    seen: tuple[tuple[str, StoredEntry], ...] = ()  # what the service's store has, where the cluster's is asked
    store: str = ""  # the cluster's; empty before it is asked
    write: Any = None  # what is to be written


@stepped
class WorkerState(NamedTuple):
    """A worker."""

    node: str  # its id in the service, which a restart does not change
    service: Connection  # the session with the service's store
    owners: Map[str, OwnerState] = Map()  # of the clusters that are assigned to it
    lives: int = 0  # how many sessions with clusters it has begun
    leads: int = 0  # the revision of the campaign with which it leads; 0 while another does
    followed: tuple[Part, ...] = ()  # the registered clusters and the assignments that it has acted on
    planned: tuple[Any, ...] = ()  # what it has planned from, as leader
    # ``wishes``, ``wished``: what users ask for and are not yet answered, by number, and the last number.
    wishes: Map[str, Wish] = Map()
    wished: int = 0
    # Variables of scope "instance" that were set, for all its owners; a restart forgets them.
    instance: Map[str, str] = Map()


class Resign(NamedTuple):
    """Asked of a worker: it gives the DDL of a cluster up, and campaigns again."""

    cluster: str


class Leave(NamedTuple):
    """Asked of a worker: it stops its owners, gives its sessions back and ends; it comes back after a while."""

    back_us: int = 1 << 62


def is_taken(state: WorkerState) -> bool:
    """Whether another worker, or an earlier life of this one, is registered under the node's id."""
    mirror = state.service.mirror
    return mirror is not None and state.node in mirror.under(keys.WORKERS) and registered(state) is None


def registered(state: WorkerState) -> StoredEntry | None:
    """Give the key of the worker's node, if this session has registered it."""
    mirror: Mirror | None = state.service.mirror
    own = mirror.under(keys.WORKERS).get(state.node) if mirror else None
    return own if own is not None and own.lease == state.service.lease else None

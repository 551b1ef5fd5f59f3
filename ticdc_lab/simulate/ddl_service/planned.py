"""What a scenario of DDL as a Service can let happen, beside the faults that every model knows."""

from __future__ import annotations

from dataclasses import dataclass

from ticdc_lab.simulate.planned import FAULTS, Duration, NewNode, Node, Text


@dataclass(frozen=True, slots=True)
class Join:
    """A worker that was not there starts and registers (scale-out)."""

    worker: NewNode


@dataclass(frozen=True, slots=True)
class Leave:
    """A worker stops its owners, gives its sessions back and ends (scale-in); it comes back after ``back``."""

    worker: Node
    back_us: Duration | None = None


@dataclass(frozen=True, slots=True)
class Resign:
    """A worker gives the DDL of a cluster up, and campaigns anew."""

    worker: Node
    cluster: Text


@dataclass(frozen=True, slots=True)
class EnableDdl:
    """A tidb-server campaigns for its cluster's DDL from now on (``tidb_enable_ddl``), or ``off`` no more."""

    server: Node
    off: bool = False


@dataclass(frozen=True, slots=True)
class ExpireSession:
    """The service's store ends the session of a worker, which hears of it."""

    worker: Node


@dataclass(frozen=True, slots=True)
class BreakSession:
    """A cluster's store ends the sessions of a node before their time: what the rules assume never to happen."""

    node: Node
    store: Node


@dataclass(frozen=True, slots=True)
class RegisterCluster:
    """A user registers a cluster at a worker, or updates it."""

    cluster: Text
    worker: Node
    version: Text | None = None
    store: Text | None = None


@dataclass(frozen=True, slots=True)
class UnregisterCluster:
    """A user takes a cluster out of the service."""

    cluster: Text
    worker: Node


@dataclass(frozen=True, slots=True)
class Ddl:
    """A user sends a DDL statement to a tidb-server; one from an old server has its ``version``."""

    server: Node
    job: Text
    table: Text
    element: Text = ""
    rows: int = 0
    fails_at: int | None = None
    version: Text = ""


@dataclass(frozen=True, slots=True)
class CancelDdl:
    """A user sends ``admin cancel ddl jobs`` to a tidb-server."""

    server: Node
    id: int = 1


@dataclass(frozen=True, slots=True)
class SetGlobal:
    """A user sends ``set global`` to a tidb-server."""

    server: Node
    variable: Text
    value: Text


@dataclass(frozen=True, slots=True)
class SlowServer:
    """A tidb-server takes so long to load a schema, for a while or for good."""

    server: Node
    load_us: Duration
    for_us: Duration | None = None


@dataclass(frozen=True, slots=True)
class Transact:
    """A user's transaction on a tidb-server reads for so long."""

    server: Node
    for_us: Duration


EVENTS: dict[str, type] = FAULTS | {
    "join": Join,
    "leave": Leave,
    "resign": Resign,
    "enable_ddl": EnableDdl,
    "expire_session": ExpireSession,
    "break_session": BreakSession,
    "register": RegisterCluster,
    "unregister": UnregisterCluster,
    "ddl": Ddl,
    "cancel": CancelDdl,
    "set_global": SetGlobal,
    "slow_server": SlowServer,
    "transact": Transact,
}

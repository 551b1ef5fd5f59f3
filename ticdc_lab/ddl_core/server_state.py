"""What a tidb-server of a registered cluster is and knows, and what users ask of it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from immutables import Map

from ticdc_lab.ddl_core import keys
from ticdc_lab.ddl_core.connection import TOPOLOGY_US, Connection
from ticdc_lab.ddl_core.owner import OwnerState
from ticdc_lab.machines.leases import USUAL, Terms
from ticdc_lab.machines.machine import Address, stepped

PREFIXES = (
    keys.GLOBAL_VERSION,
    keys.SCHEMA,
    keys.MIN_START_TS,
    keys.SAFE_POINT,
    keys.JOBS,
    keys.LAST_JOB,
    keys.BOOTSTRAP_LOCK,
    keys.BOOTSTRAPPED,
    keys.NEWEST_TS,
)


class Submit(NamedTuple):
    """Asked of a server: a user's DDL statement; two with one ``request`` are the same, without one it gets its own.

    Its backfill finds a duplicate in row ``fails_at``, and fails ``errors`` times for a reason that passes.
    """

    kind: str
    table: str
    name: str = ""
    rows: int = 0
    fails_at: int | None = None
    version: str = ""
    request: str = ""
    errors: int = 0


class Cancel(NamedTuple):
    """Asked of a server: ``admin cancel ddl jobs``."""

    job: int
    request: str = ""


class ShowDdl(NamedTuple):
    """Asked of a server: ``admin show ddl``."""

    request: str = ""


class ShownDdl(NamedTuple):
    """What ``admin show ddl`` shows."""

    schema_version: int  # of the cluster
    # ``owner_id``, ``owner_address``: the ``ddl_id`` of the owner and where it is; no address where a service has the
    # DDL, which publishes none.
    owner_id: str = ""
    owner_address: str = ""
    running: tuple[tuple[int, str, str], ...] = ()  # jobs that have begun, as ``id, kind, schema state``
    # Addresses of those that cluster tables (``information_schema.cluster_processlist``) ask: no worker is one.
    instances: tuple[str, ...] = ()

    @property
    def told(self) -> str:
        """What a user sees, in a line."""
        owner = f"owner {self.owner_id}" if self.owner_id else "no owner"
        where = f" at {self.owner_address}" if self.owner_address else ""
        jobs = ", ".join(f"job {job}, {kind}, {state or 'not begun'}" for job, kind, state in self.running)
        return f"schema version {self.schema_version}; {owner}{where}; running: {jobs or 'none'}"


class SetVariable(NamedTuple):
    """Asked of a server: ``set global``."""

    name: str
    value: str
    request: str = ""


class SetInstance(NamedTuple):
    """Asked of a server or a worker: ``set`` a variable of the instance, for every owner in its process."""

    name: str
    value: str
    request: str = ""


class Transact(NamedTuple):
    """Asked of a server: a user's transaction, which reads as of its start_ts until it commits, so long after."""

    for_us: int
    request: str = ""


class EnableDdl(NamedTuple):
    """Asked of a server: ``set instance tidb_enable_ddl``; with it the server campaigns for its cluster's DDL."""

    on: bool


class Slow(NamedTuple):
    """Asked of a server: it takes so long to load a schema from now on; as before with 0."""

    load_us: int


@dataclass(frozen=True, slots=True)
class Habits:
    """How a tidb-server works."""

    version: str = "v6.5.0"  # of its code
    terms: Terms = USUAL  # of its session, which is its schema lease too: without it, it does not serve
    load_us: int = 20_000  # how long it takes to load a schema; a slow server makes every DDL wait
    bootstrap_us: int = 200_000  # how long an upgrade of the meta takes
    # ``gc_us``, ``gc_life_us``: how often it looks what GC may delete, and how old that must be.
    gc_us: int = 1_000_000
    gc_life_us: int = 2_000_000
    tick_us: int = 250_000  # how often it checks everything unprompted
    topology_us: int = TOPOLOGY_US  # how often it refreshes its topology entry, for TiDB-Dashboard
    # Whether it begins with ``tidb_enable_ddl``; a cluster that delegates its DDL to the service has it off.
    enables_ddl: bool = False


HABITS = Habits()


class Schema(NamedTuple):
    """A schema as of a version: the state of each element that is not none."""

    version: int
    elements: Map[str, str]


@stepped
class ServerState(NamedTuple):
    """A tidb-server."""

    address: Address  # it and its lease are the server's ``ddl_id``
    link: Connection  # the session with the cluster's store
    serves: Schema | None = None  # the schema that its transactions use; None while it does not serve
    # What it has loaded last; before it first serves it publishes that, and looks whether it is still the newest.
    loaded: Schema | None = None
    loading: Schema | None = None  # what it is loading
    publishing: int = -1
    published: int = -1  # the version that it is known to have published; -1 before the first
    upgrading: bool = False  # whether it upgrades the meta now
    # What users have asked for and the store does not have yet.
    wishes: tuple[Submit | Cancel | ShowDdl | SetVariable | Transact, ...] = ()
    slow_us: int = 0  # how long it takes to load a schema, where that is not its habit
    sent: int = 0  # how many statements this session has sent
    # The owner that it may be, with a session of its own; None without ``tidb_enable_ddl``.
    ddl: OwnerState | None = None
    ddl_lives: int = 1  # how often it was let campaign
    reads: tuple[tuple[int, int], ...] = ()  # its transactions: start_ts, and when each commits, µs
    # ``asked_ts``, ``held_ts``: the start_ts for which it asks GC now, and the lowest one under its minstartts; 0 for
    # none.
    asked_ts: int = 0
    held_ts: int = 0
    instance: Map[str, str] = Map()  # variables of scope "instance" that were set; a restart forgets them

    @property
    def ddl_id(self) -> str:
        """How it is known in its cluster."""
        return f"{self.address}-{self.link.lease:x}"

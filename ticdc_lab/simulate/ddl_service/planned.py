"""What a scenario of DDL as a Service can let happen, beside the faults that every model knows."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ticdc_lab.ddl_core import server_state, sysvars, worker_state
from ticdc_lab.ddl_core.jobs import LADDERS
from ticdc_lab.ddl_core.keys import PD, store_of
from ticdc_lab.ddl_core.store import ExpireOf
from ticdc_lab.errors import ScenarioError
from ticdc_lab.simulate import faults as kernel
from ticdc_lab.simulate.planned import FAULTS, Duration, Lasting, NewNode, Node, Planned, Text

if TYPE_CHECKING:
    from ticdc_lab.simulate.scenario import Scenario


@dataclass(frozen=True, slots=True)
class JoinWorker:
    """A worker that was not there starts and registers (scale-out)."""

    worker: NewNode

    def apply(self, event: Planned, scenario: Scenario) -> Iterator[kernel.Fault]:
        yield kernel.Join(event.at_us, self.worker)


@dataclass(frozen=True, slots=True)
class LeaveEvent:
    """A worker stops its owners, gives its sessions back and ends (scale-in); it comes back after ``back``."""

    worker: Node
    back_us: Lasting | None = None

    def apply(self, event: Planned, scenario: Scenario) -> Iterator[kernel.Fault]:
        leave = worker_state.Leave() if self.back_us is None else worker_state.Leave(self.back_us)
        yield kernel.Ask(event.at_us, self.worker, leave)


@dataclass(frozen=True, slots=True)
class ResignEvent:
    """A worker gives the DDL of a cluster up, and campaigns anew."""

    worker: Node
    cluster: Text

    def apply(self, event: Planned, scenario: Scenario) -> Iterator[kernel.Fault]:
        yield kernel.Ask(event.at_us, self.worker, worker_state.Resign(self.cluster))


@dataclass(frozen=True, slots=True)
class EnableDdlEvent:
    """A tidb-server campaigns for its cluster's DDL from now on (``tidb_enable_ddl``), or ``off`` no more."""

    server: Node
    off: bool = False

    def apply(self, event: Planned, scenario: Scenario) -> Iterator[kernel.Fault]:
        yield kernel.Ask(event.at_us, self.server, server_state.EnableDdl(not self.off))


@dataclass(frozen=True, slots=True)
class ExpireWorker:
    """The service's store ends the session of a worker, which hears of it."""

    worker: Node

    def apply(self, event: Planned, scenario: Scenario) -> Iterator[kernel.Fault]:
        yield kernel.Ask(event.at_us, PD, ExpireOf(self.worker))


@dataclass(frozen=True, slots=True)
class BreakSession:
    """A cluster's store ends the sessions of a node before their time: what the rules assume never to happen."""

    node: Node
    store: Node

    def apply(self, event: Planned, scenario: Scenario) -> Iterator[kernel.Fault]:
        yield kernel.Ask(event.at_us, self.store, ExpireOf(self.node))


@dataclass(frozen=True, slots=True)
class RegisterCluster:
    """A user registers a cluster at a worker, or updates it; without a ``version`` the service asks the cluster."""

    cluster: Text
    worker: Node
    version: Text | None = None
    store: Text | None = None

    def apply(self, event: Planned, scenario: Scenario) -> Iterator[kernel.Fault]:
        store = self.store or store_of(self.cluster)
        if store not in scenario.cluster.nodes:
            raise ScenarioError(
                f"{scenario.file}:{event.line}: expected a cluster with a store; found {self.cluster}.",
                hint="Give it to `cluster.clusters`, or name the `store` of one that is there.",
            )
        yield kernel.Ask(event.at_us, self.worker, worker_state.Register(self.cluster, store, self.version or ""))


@dataclass(frozen=True, slots=True)
class UnregisterCluster:
    """A user takes a cluster out of the service."""

    cluster: Text
    worker: Node

    def apply(self, event: Planned, scenario: Scenario) -> Iterator[kernel.Fault]:
        yield kernel.Ask(event.at_us, self.worker, worker_state.Unregister(self.cluster))


@dataclass(frozen=True, slots=True)
class SubmitEvent:
    """A user sends a DDL statement to a tidb-server; one from an old server has its ``version``."""

    server: Node
    job: Text
    table: Text
    element: Text = ""
    rows: int = 0
    fails_at: int | None = None
    version: Text = ""
    errors: int = 0

    def apply(self, event: Planned, scenario: Scenario) -> Iterator[kernel.Fault]:
        where = f"{scenario.file}:{event.line}"
        if self.job not in LADDERS:
            raise ScenarioError(
                f"{where}: expected a kind of job; found {self.job}.", hint=f"There is {', '.join(LADDERS)}."
            )
        if bool(self.element) == self.job.endswith("table"):
            of = "the table alone" if self.element else "the name of one, `element`, beside its table"
            raise ScenarioError(f"{where}: expected of {self.job} {of}; found {self.element or 'none'}.")
        submit = server_state.Submit(
            self.job, self.table, self.element, self.rows, self.fails_at, self.version, errors=self.errors
        )
        yield kernel.Ask(event.at_us, self.server, submit)


@dataclass(frozen=True, slots=True)
class CancelDdl:
    """A user sends ``admin cancel ddl jobs`` to a tidb-server."""

    server: Node
    id: int = 1

    def apply(self, event: Planned, scenario: Scenario) -> Iterator[kernel.Fault]:
        yield kernel.Ask(event.at_us, self.server, server_state.Cancel(self.id))


@dataclass(frozen=True, slots=True)
class SetGlobal:
    """A user sends ``set global`` to a tidb-server."""

    server: Node
    variable: Text
    value: Text

    def apply(self, event: Planned, scenario: Scenario) -> Iterator[kernel.Fault]:
        if refused := sysvars.refusal(self.variable, self.value):
            known = ", ".join(sysvars.COUNTS)
            raise ScenarioError(
                f"{scenario.file}:{event.line}: expected a variable that a cluster can set; found {refused}.",
                hint=f"There is {known}; `enable_ddl` sets what is of a server.",
            )
        yield kernel.Ask(event.at_us, self.server, server_state.SetVariable(self.variable, self.value))


@dataclass(frozen=True, slots=True)
class SetInstanceEvent:
    """A user sets a variable of an instance, a worker or a tidb-server: all owners in its process have it."""

    node: Node
    variable: Text
    value: Text

    def apply(self, event: Planned, scenario: Scenario) -> Iterator[kernel.Fault]:
        if refused := sysvars.instance_refusal(self.variable, self.value):
            raise ScenarioError(
                f"{scenario.file}:{event.line}: expected a variable of an instance; found {refused}.",
                hint=f"There is {sysvars.SLOW_MS}; `enable_ddl` sets tidb_enable_ddl.",
            )
        yield kernel.Ask(event.at_us, self.node, server_state.SetInstance(self.variable, self.value))


@dataclass(frozen=True, slots=True)
class ShowDdlEvent:
    """A user sends ``admin show ddl`` to a tidb-server."""

    server: Node

    def apply(self, event: Planned, scenario: Scenario) -> Iterator[kernel.Fault]:
        yield kernel.Ask(event.at_us, self.server, server_state.ShowDdl())


@dataclass(frozen=True, slots=True)
class SlowServer:
    """A tidb-server takes so long to load a schema, for a while or for good."""

    server: Node
    load_us: Duration
    for_us: Lasting | None = None

    def apply(self, event: Planned, scenario: Scenario) -> Iterator[kernel.Fault]:
        yield kernel.Ask(event.at_us, self.server, server_state.Slow(self.load_us))
        if self.for_us is not None:
            yield kernel.Ask(event.at_us + self.for_us, self.server, server_state.Slow(0))


@dataclass(frozen=True, slots=True)
class TransactEvent:
    """A user's transaction on a tidb-server reads for so long."""

    server: Node
    for_us: Lasting

    def apply(self, event: Planned, scenario: Scenario) -> Iterator[kernel.Fault]:
        yield kernel.Ask(event.at_us, self.server, server_state.Transact(self.for_us))


EVENTS: dict[str, type] = FAULTS | {
    "join": JoinWorker,
    "leave": LeaveEvent,
    "resign": ResignEvent,
    "enable_ddl": EnableDdlEvent,
    "expire_session": ExpireWorker,
    "break_session": BreakSession,
    "register": RegisterCluster,
    "unregister": UnregisterCluster,
    "ddl": SubmitEvent,
    "cancel": CancelDdl,
    "set_global": SetGlobal,
    "set_instance": SetInstanceEvent,
    "show_ddl": ShowDdlEvent,
    "slow_server": SlowServer,
    "transact": TransactEvent,
}

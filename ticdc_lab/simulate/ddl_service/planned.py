"""What a scenario of DDL as a Service can let happen, beside the faults that every model knows."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from ticdc_lab.ddl_core import server_state, sysvars, worker_state
from ticdc_lab.ddl_core.jobs import LADDERS
from ticdc_lab.ddl_core.keys import PD, store_of
from ticdc_lab.ddl_core.store import ExpireOf
from ticdc_lab.errors import ScenarioError
from ticdc_lab.simulate import faults as kernel
from ticdc_lab.simulate.planned import FAULTS, Duration, EventKind, Lasting, NewNode, Node, Planned, Text, table

if TYPE_CHECKING:
    from ticdc_lab.simulate.scenario import Scenario


def _registered(what: Any, event: Planned, scenario: Scenario) -> Iterator[kernel.Fault]:
    store = what.store or store_of(what.cluster)
    if store not in scenario.cluster.nodes:
        raise ScenarioError(
            f"{scenario.file}:{event.line}: expected a cluster with a store; found {what.cluster}.",
            hint="Give it to `cluster.clusters`, or name the `store` of one that is there.",
        )
    yield kernel.Ask(event.at_us, what.worker, worker_state.Register(what.cluster, store, what.version or ""))


def _submitted(what: Any, event: Planned, scenario: Scenario) -> Iterator[kernel.Fault]:
    where = f"{scenario.file}:{event.line}"
    if what.job not in LADDERS:
        raise ScenarioError(
            f"{where}: expected a kind of job; found {what.job}.", hint=f"There is {', '.join(LADDERS)}."
        )
    if bool(what.element) == what.job.endswith("table"):
        of = "the table alone" if what.element else "the name of one, `element`, beside its table"
        raise ScenarioError(f"{where}: expected of {what.job} {of}; found {what.element or 'none'}.")
    submit = server_state.Submit(
        what.job, what.table, what.element, what.rows, what.fails_at, what.version, errors=what.errors
    )
    yield kernel.Ask(event.at_us, what.server, submit)


def _set_global(what: Any, event: Planned, scenario: Scenario) -> Iterator[kernel.Fault]:
    if refused := sysvars.refusal(what.variable, what.value):
        known = ", ".join(sysvars.COUNTS)
        raise ScenarioError(
            f"{scenario.file}:{event.line}: expected a variable that a cluster can set; found {refused}.",
            hint=f"There is {known}; `enable_ddl` sets what is of a server.",
        )
    yield kernel.Ask(event.at_us, what.server, server_state.SetVariable(what.variable, what.value))


def _set_instance(what: Any, event: Planned, scenario: Scenario) -> Iterator[kernel.Fault]:
    if refused := sysvars.instance_refusal(what.variable, what.value):
        raise ScenarioError(
            f"{scenario.file}:{event.line}: expected a variable of an instance; found {refused}.",
            hint=f"There is {sysvars.SLOW_MS}; `enable_ddl` sets tidb_enable_ddl.",
        )
    yield kernel.Ask(event.at_us, what.node, server_state.SetInstance(what.variable, what.value))


def _slowed(what: Any, event: Planned, scenario: Scenario) -> Iterator[kernel.Fault]:
    yield kernel.Ask(event.at_us, what.server, server_state.Slow(what.load_us))
    if what.for_us is not None:
        yield kernel.Ask(event.at_us + what.for_us, what.server, server_state.Slow(0))


EVENTS: dict[str, type] = FAULTS | table(
    {
        "join": EventKind(
            "A worker that was not there starts and registers (scale-out).",
            {"worker": NewNode},
            lambda w, e, s: [kernel.Join(e.at_us, w.worker)],
        ),
        "leave": EventKind(
            "A worker stops its owners, gives its sessions back and ends (scale-in); it comes back after `back`.",
            {"worker": Node, "back_us": (Lasting | None, None)},
            lambda w, e, s: [
                kernel.Ask(e.at_us, w.worker, worker_state.Leave(*(() if w.back_us is None else (w.back_us,))))
            ],
        ),
        "resign": EventKind(
            "A worker gives the DDL of a cluster up, and campaigns anew.",
            {"worker": Node, "cluster": Text},
            lambda w, e, s: [kernel.Ask(e.at_us, w.worker, worker_state.Resign(w.cluster))],
        ),
        "enable_ddl": EventKind(
            "A tidb-server campaigns for its cluster's DDL from now on (`tidb_enable_ddl`), or `off` no more.",
            {"server": Node, "off": (bool, False)},
            lambda w, e, s: [kernel.Ask(e.at_us, w.server, server_state.EnableDdl(not w.off))],
        ),
        "expire_session": EventKind(
            "The service's store ends the session of a worker, which hears of it.",
            {"worker": Node},
            lambda w, e, s: [kernel.Ask(e.at_us, PD, ExpireOf(w.worker))],
        ),
        "break_session": EventKind(
            "A cluster's store ends the sessions of a node before their time: what the rules assume never to happen.",
            {"node": Node, "store": Node},
            lambda w, e, s: [kernel.Ask(e.at_us, w.store, ExpireOf(w.node))],
        ),
        "register": EventKind(
            "A user registers a cluster at a worker, or updates it; without a `version` the service asks the cluster.",
            {"cluster": Text, "worker": Node, "version": (Text | None, None), "store": (Text | None, None)},
            _registered,
        ),
        "unregister": EventKind(
            "A user takes a cluster out of the service.",
            {"cluster": Text, "worker": Node},
            lambda w, e, s: [kernel.Ask(e.at_us, w.worker, worker_state.Unregister(w.cluster))],
        ),
        "ddl": EventKind(
            "A user sends a DDL statement to a tidb-server; one from an old server has its `version`.",
            {
                "server": Node, "job": Text, "table": Text, "element": (Text, ""), "rows": (int, 0),
                "fails_at": (int | None, None), "version": (Text, ""), "errors": (int, 0),
            },
            _submitted,
        ),
        "cancel": EventKind(
            "A user sends `admin cancel ddl jobs` to a tidb-server.",
            {"server": Node, "id": (int, 1)},
            lambda w, e, s: [kernel.Ask(e.at_us, w.server, server_state.Cancel(w.id))],
        ),
        "set_global": EventKind(
            "A user sends `set global` to a tidb-server.",
            {"server": Node, "variable": Text, "value": Text},
            _set_global,
        ),
        "set_instance": EventKind(
            "A user sets a variable of an instance, a worker or a tidb-server: all owners in its process have it.",
            {"node": Node, "variable": Text, "value": Text},
            _set_instance,
        ),
        "show_ddl": EventKind(
            "A user sends `admin show ddl` to a tidb-server.",
            {"server": Node},
            lambda w, e, s: [kernel.Ask(e.at_us, w.server, server_state.ShowDdl())],
        ),
        "slow_server": EventKind(
            "A tidb-server takes so long to load a schema, for a while or for good.",
            {"server": Node, "load_us": Duration, "for_us": (Lasting | None, None)},
            _slowed,
        ),
        "transact": EventKind(
            "A user's transaction on a tidb-server reads for so long.",
            {"server": Node, "for_us": Lasting},
            lambda w, e, s: [kernel.Ask(e.at_us, w.server, server_state.Transact(w.for_us))],
        ),
    }
)  # fmt: skip

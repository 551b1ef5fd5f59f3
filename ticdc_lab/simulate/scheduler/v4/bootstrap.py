"""How a new maintainer learns what runs where (maintainer/maintainer_controller_bootstrap.go).

It asks every node and schedules nothing before all have answered. What runs and is wanted is taken over where it is,
what a node is creating or stopping becomes an operator again, the rest is absent; what is not wanted is removed.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from immutables import Map

from ticdc_lab.simulate.machine import Address, Changed, Output
from ticdc_lab.simulate.scheduler.roles import Key, Span
from ticdc_lab.simulate.scheduler.v4 import operators, spans
from ticdc_lab.simulate.scheduler.v4.add import Add
from ticdc_lab.simulate.scheduler.v4.barrier_bootstrap import rebuilt
from ticdc_lab.simulate.scheduler.v4.control import Control
from ticdc_lab.simulate.scheduler.v4.coverage import holes, root_of
from ticdc_lab.simulate.scheduler.v4.keys import position
from ticdc_lab.simulate.scheduler.v4.messages import MaintainerBootstrapResponse
from ticdc_lab.simulate.scheduler.v4.nodes import MaintainerState, Stepped
from ticdc_lab.simulate.scheduler.v4.remove import Remove


def finished(state: MaintainerState, checkpoint_ts: int, at_us: int) -> Stepped:
    """Build the spans from the answers of all nodes and begin to schedule."""
    control = state.control._replace(nodes=frozenset(state.nodes))
    because = "it is wanted"
    state_of, outputs = spans.added(control.spans, state.tables, checkpoint_ts, at_us, because)
    control = control._replace(spans=state_of)
    reported = {node: state.responses[node] for node in sorted(state.responses)}
    control, more = _split_again(control, state.tables, reported, checkpoint_ts, at_us)
    outputs += more
    for node, response in reported.items():
        control, more = _taken_over(control, node, response, at_us)
        outputs += more
    stands = [status for response in reported.values() for status in response.block_states]
    barrier, more = rebuilt(state.barrier, control.spans, stands, at_us)
    outputs += more
    told = Changed("bootstrap", None, "done", f"{len(reported)} nodes have answered: {', '.join(reported)}")
    return replace(state, control=control, barrier=barrier, bootstrapped=True, responses=Map()), [*outputs, told]


def _taken_over(
    control: Control, node: Address, response: MaintainerBootstrapResponse, at_us: int
) -> operators.Stepped:
    outputs: list[Output] = []
    stopping = {request.dispatcher_id for request in response.operators if request.schedule_action == "Remove"}
    creating = {request.dispatcher_id for request in response.operators if request.schedule_action == "Create"}
    for status in response.spans:
        key = status.id
        known = control.spans.replicas.get(key)
        if known is None or known.node is not None:
            control, more = operators.adopted(control, Remove(key, node), at_us)
            outputs += more
            continue
        because = f"{node} reports it {status.component_status}"
        state, more = spans.restored(control.spans, key, node, status.checkpoint_ts, at_us, because)
        control = control._replace(spans=state)
        outputs += more
        if key in stopping:
            control, more = operators.adopted(control, Remove(key, node, then_absent=True), at_us)
            outputs += more
        elif key in creating:
            control, more = operators.adopted(control, Add(key, node), at_us)
            outputs += more
    return control, outputs


def _split_again(
    control: Control,
    tables: frozenset[Key],
    reported: dict[Address, MaintainerBootstrapResponse],
    checkpoint_ts: int,
    at_us: int,
) -> operators.Stepped:
    parts: dict[Key, list[Span]] = {}
    for response in reported.values():
        for status in response.spans:
            root = root_of(status.id, tables)
            if root is not None and root != status.id and isinstance(status.id, Span):
                parts.setdefault(root, []).append(status.id)
    outputs: list[Output] = []
    for root in sorted(parts, key=position):
        state, changes = spans.removed(control.spans, root, "nodes report parts of it")
        state, more = spans.added(state, _whole(root, parts[root]), checkpoint_ts, at_us, f"a part of {root}")
        control = control._replace(spans=state)
        outputs += changes + more
    return control, outputs


def _whole(root: Key, parts: Iterable[Span]) -> list[Key]:
    known = sorted(set(parts), key=position)
    return [*known, *holes(root, known)]

"""The basic scheduler: absent spans get a node (maintainer/scheduler/basic.go)."""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Hashable

from ticdc_lab.simulate.machine import Address, Decided, Output
from ticdc_lab.simulate.scheduler.v4 import operators, queue, spans
from ticdc_lab.simulate.scheduler.v4.add import Add
from ticdc_lab.simulate.scheduler.v4.control import Control
from ticdc_lab.simulate.scheduler.v4.keys import DEFAULT_GROUP, group_of
from ticdc_lab.simulate.scheduler.v4.settings import Settings
from ticdc_lab.simulate.scheduler.v4.spans import Spans

SUBJECT = "basic-scheduler"


def rank(node: Address, prefer: tuple[Hashable, ...]) -> tuple[int, str]:
    """Order nodes of one load: those of ``prefer`` first, then the smaller name."""
    return (prefer.index(node) if node in prefer else len(prefer), node)


def placed(
    control: Control, settings: Settings, target: Address | None, prefer: tuple[Hashable, ...], at_us: int
) -> tuple[Control, list[Output]]:
    """Create absent spans on the nodes that create the fewest; the parts of split tables first.

    ``target`` is the node being drained, which gets none. Nothing is begun while more than half of the batch runs.
    """
    waiting = spans.absent_size(control.spans)
    if not waiting:
        return control, []
    room = settings.batch_size - len(control.running)
    nodes = sorted(control.nodes - {target}, key=lambda node: rank(node, prefer))
    if room <= 0 or room < settings.batch_size // 2:
        because = f"{len(control.running)} operators run, of {settings.batch_size}"
        return control, [
            Decided(SUBJECT, None, because, ((f"{waiting} absent spans", "they wait for operators to end"),))
        ]
    if not nodes:
        return control, [Decided(SUBJECT, None, "no node can take a span", _rejected(target))]
    outputs: list[Output] = []
    groups = sorted(control.spans.absent, key=lambda group: (group == DEFAULT_GROUP, group))
    for group in groups:
        control, more = _group(control, settings, group, room, nodes, prefer, at_us)
        outputs += more
        room = settings.batch_size - len(control.running)
        if room <= 0:
            break
    left = spans.absent_size(control.spans)
    because = f"absent spans go to the nodes that create the fewest; {left} are left"
    return control, [*outputs, Decided(SUBJECT, f"{waiting - left} spans", because, _rejected(target))]


def _group(
    control: Control,
    settings: Settings,
    group: int,
    room: int,
    nodes: list[Address],
    prefer: tuple[Hashable, ...],
    at_us: int,
) -> tuple[Control, list[Output]]:
    creating = _creating(control.spans, group)
    if group != DEFAULT_GROUP:
        per_node = settings.scheduling_task_count_per_node
        room = min(room, sum(max(0, per_node - creating[node]) for node in nodes))
    loads = [(creating[node], spans.size(control.spans, node), rank(node, prefer)) for node in nodes]
    heapq.heapify(loads)
    outputs: list[Output] = []
    for key in queue.first(control.spans.absent[group], room, prefer):
        load, total, (place, node) = loads[0]
        control, more, why_not = operators.added(control, Add(key, node), at_us)
        outputs += more
        if not why_not:
            heapq.heapreplace(loads, (load + 1, total + 1, (place, node)))
    return control, outputs


def _creating(state: Spans, group: int) -> Counter[Address]:
    nodes = (state.replicas[key].node for key in state.scheduling if group_of(key) == group)
    return Counter(node for node in nodes if node is not None)


def _rejected(target: Address | None) -> tuple[tuple[str, str], ...]:
    return () if target is None else ((target, "it is being drained"),)

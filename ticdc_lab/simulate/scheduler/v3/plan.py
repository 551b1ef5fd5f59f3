"""Which spans should be replicated, and how far the owner's record is from that."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import islice

from immutables import Map

from ticdc_lab.simulate.scheduler.roles import Key, order
from ticdc_lab.simulate.scheduler.v3.replication import ReplicationSet
from ticdc_lab.simulate.scheduler.v3.replications import EMPTY, Keys


@dataclass(frozen=True, slots=True)
class Plan:
    """The wanted spans.

    Attributes
    ----------
    spans
        All of them.
    todo, at
        Those that had no record when they came, sorted; before ``at`` all have one now.
    lost
        Those whose record has gone since.
    surplus
        Spans with a record that nobody wants.
    """

    spans: Keys = EMPTY
    todo: tuple[Key, ...] = ()
    at: int = 0
    lost: Keys = EMPTY
    surplus: Keys = EMPTY


def planned(wanted: Iterable[Key], sets: Mapping[Key, ReplicationSet]) -> Plan:
    """Make a plan for spans that are wanted from now on."""
    spans = Map(dict.fromkeys(wanted))
    todo = tuple(sorted((span for span in spans if span not in sets), key=order))
    return Plan(spans, todo, surplus=Map(dict.fromkeys(span for span in sets if span not in spans)))


def changed(plan: Plan, added: Iterable[Key], dropped: Iterable[Key], sets: Mapping[Key, ReplicationSet]) -> Plan:
    """Add and drop spans."""
    spans, surplus = plan.spans.mutate(), plan.surplus.mutate()
    for span in dropped:
        spans.pop(span, None)
        if span in sets:
            surplus[span] = None
    new = list(added)
    for span in new:
        spans[span] = None
        surplus.pop(span, None)
    left = {*islice(plan.todo, plan.at, None), *(span for span in new if span not in sets)}
    todo = tuple(sorted((span for span in left if span in spans), key=order))
    lost = Map(dict.fromkeys(span for span in plan.lost if span in spans))
    return Plan(spans.finish(), todo, 0, lost, surplus.finish())


def noted(plan: Plan, gone: Iterable[Key], sets: Mapping[Key, ReplicationSet]) -> Plan:
    """Take note of records that have gone or come."""
    lost, surplus = plan.lost, plan.surplus
    for span in gone:
        if span in plan.spans:
            lost = lost.set(span, None)
        elif span in surplus:
            surplus = surplus.delete(span)
    for span in plan.lost:
        if span in sets and span in lost:
            lost = lost.delete(span)
    at = plan.at
    while at < len(plan.todo) and plan.todo[at] in sets:
        at += 1
    if (lost, surplus, at) == (plan.lost, plan.surplus, plan.at):
        return plan
    return replace(plan, lost=lost, surplus=surplus, at=at)


def unscheduled(plan: Plan, sets: Mapping[Key, ReplicationSet]) -> Iterator[Key]:
    """Give the wanted spans of which the owner has no record, the smallest of those that came together first."""
    for span in sorted(plan.lost, key=order):
        if span not in sets:
            yield span
    for span in islice(plan.todo, plan.at, None):
        if span not in sets:
            yield span

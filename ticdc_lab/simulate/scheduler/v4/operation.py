"""What an operator is: one span's way from one place to another, as a state machine over the span controller.

An operator is frozen; every method gives the next operator, the next spans and what changed. Whoever drives it
(:mod:`.operators`) asks it for its order again and again until it is finished, and then runs ``post_finish`` once.
"""

from __future__ import annotations

from typing import NamedTuple, Protocol, TypeAlias

from ticdc_lab.simulate.machine import Address, Output
from ticdc_lab.simulate.scheduler.roles import Key
from ticdc_lab.simulate.scheduler.v4.messages import (
    MergeDispatcherRequest,
    OperatorType,
    ScheduleDispatcherRequest,
    TableSpanStatus,
)
from ticdc_lab.simulate.scheduler.v4.spans import Spans, start_ts


class Order(NamedTuple):
    """A message that an operator wants sent, again until it is answered."""

    to: Address
    message: ScheduleDispatcherRequest | MergeDispatcherRequest


class Operator(Protocol):
    """One operator; ``key`` is the span it holds: no other operator works on that span."""

    @property
    def key(self) -> Key:
        """The span."""
        ...

    @property
    def kind(self) -> str:
        """``add``, ``move``, ``split``, ``merge``, ``occupy`` or ``remove``."""
        ...

    @property
    def finished(self) -> bool:
        """Whether nothing is left but ``post_finish``."""
        ...

    @property
    def phase(self) -> str:
        """Where it is, in one word."""
        ...

    def affected_nodes(self) -> tuple[Address, ...]:
        """Give the nodes whose loss concerns it."""
        ...

    def start(self, spans: Spans, at_us: int) -> Stepped:
        """Take the span."""
        ...

    def check(self, spans: Spans, sender: Address, status: TableSpanStatus, at_us: int) -> Stepped:
        """Take a status that a node reported of the span."""
        ...

    def schedule(self, spans: Spans) -> Order | None:
        """Give what has to be said now, None where nothing."""
        ...

    def on_node_remove(self, spans: Spans, node: Address, at_us: int) -> Stepped:
        """Take that a node is gone, and with it everything that it ran."""
        ...

    def on_task_removed(self, spans: Spans, at_us: int) -> Stepped:
        """Take that a DDL removes the span."""
        ...

    def post_finish(self, spans: Spans, at_us: int) -> Stepped:
        """Leave the span in its last state; a second time changes nothing."""
        ...


Stepped: TypeAlias = tuple[Operator, Spans, list[Output]]


def create(spans: Spans, key: Key, node: Address, operator_type: OperatorType) -> Order:
    """Give the order to create a dispatcher from where the span is known to be."""
    return Order(node, ScheduleDispatcherRequest("Create", key, start_ts(spans, key), operator_type))


def remove(key: Key, node: Address, operator_type: OperatorType) -> Order:
    """Give the order to remove a dispatcher."""
    return Order(node, ScheduleDispatcherRequest("Remove", key, 0, operator_type))

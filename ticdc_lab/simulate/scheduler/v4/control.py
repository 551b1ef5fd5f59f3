"""What an operator controller holds: the spans, the operators that work on them, the nodes alive."""

from __future__ import annotations

from typing import NamedTuple

from immutables import Map

from ticdc_lab.simulate.machine import Address
from ticdc_lab.simulate.scheduler.roles import Key
from ticdc_lab.simulate.scheduler.v4.move import Move
from ticdc_lab.simulate.scheduler.v4.operation import Operator
from ticdc_lab.simulate.scheduler.v4.spans import NO_SPANS, Spans


class Running(NamedTuple):
    """An operator, since when it runs and when its order is due (again)."""

    operator: Operator
    since_us: int
    due_us: int


class Control(NamedTuple):
    """The spans and the operators that work on them; ``nodes`` are those alive."""

    spans: Spans = NO_SPANS
    running: Map[Key, Running] = Map()
    nodes: frozenset[Address] = frozenset()
    resend_us: int = 500_000


NOTHING = Control()


def moves_from(control: Control, node: Address) -> int:
    """Count the unfinished moves away from a node."""
    running = (found.operator for found in control.running.values())
    return sum(isinstance(operator, Move) and operator.origin == node and not operator.finished for operator in running)

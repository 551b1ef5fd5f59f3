"""A user wants all captures to have their share at once."""

from __future__ import annotations

import sys

from ticdc_lab.simulate.machine import Decided
from ticdc_lab.simulate.scheduler.v3.plan import unscheduled
from ticdc_lab.simulate.scheduler.v3.schedulers.balance import balance_moves
from ticdc_lab.simulate.scheduler.v3.schedulers.view import View, disturbed, stopping
from ticdc_lab.simulate.scheduler.v3.settings import Settings
from ticdc_lab.simulate.scheduler.v3.tasks import Burst, Task

NAME = "rebalance"


def rebalance(settings: Settings, view: View, asked: bool) -> tuple[bool, list[Task], list[Decided]]:
    """Move all that is above the share in one burst, once every wanted span is Replicating.

    Gives whether it is still asked for: until the burst is accepted, unless a capture is stopping.
    """
    if not asked or not view.captures:
        return asked, [], []
    leaving = stopping(view)
    if leaving:
        return False, [], [Decided(NAME, None, f"given up because {leaving[0]} is stopping")]
    missing = next(unscheduled(view.plan, view.replications.sets), None)
    if missing is not None:
        return True, [], [Decided(NAME, None, f"waits because no capture has table {missing}")]
    moving = disturbed(view)
    if moving is not None:
        because = f"waits because table {moving} is {view.replications.sets[moving].state}, not Replicating"
        return True, [], [Decided(NAME, None, because)]
    moves, decided = balance_moves(view, sys.maxsize, NAME)
    return True, [Burst(tuple(moves), asked=True)] if moves else [], [decided]

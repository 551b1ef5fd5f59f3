"""No capture has more than its share of tables."""

from __future__ import annotations

from ticdc_lab.simulate.machine import Decided
from ticdc_lab.simulate.scheduler.v3.schedulers.view import View, first, least_loaded, loads, rank, stopping
from ticdc_lab.simulate.scheduler.v3.settings import Settings
from ticdc_lab.simulate.scheduler.v3.tasks import MoveTask, Task

NAME = "balance"


def balance(settings: Settings, view: View) -> tuple[list[Task], list[Decided]]:
    """Move tables from captures above the share, at most ``max_task_concurrency``; none while a capture is stopping."""
    leaving = stopping(view)
    if leaving:
        because = f"not balanced because {leaving[0]} is stopping"
        return [], [Decided(NAME, None, because, tuple((a, "stopping") for a in leaving))]
    moves, decided = balance_moves(view, settings.max_task_concurrency, NAME)
    return list(moves), [decided]


def balance_moves(view: View, limit: int, name: str) -> tuple[list[MoveTask], Decided]:
    """Choose what to move so that no capture has more than its share, ceil(tables / captures).

    The fullest capture gives first, the emptiest takes; of equals the preferred one, then the smaller name. Of the
    tables of a capture the smallest go, as in TiCDC's own tests (a running TiCDC shuffles).
    """
    load, prefer = loads(view), view.now.prefer
    share = -(-len(view.replications.sets) // len(load)) if load else 0
    moves: list[MoveTask] = []
    rejected = []
    for giver in sorted(load, key=lambda a: (-load[a], rank(prefer, a), a)):
        surplus = load[giver] - share
        if surplus <= 0:
            rejected.append((giver, f"not moved because its {load[giver]} tables are not more than {share}"))
            continue
        for span in first(view.replications.primaries[giver], min(surplus, limit - len(moves)), prefer):
            taker = least_loaded(load, prefer)
            moves.append(MoveTask(span, taker))
            load[giver] -= 1
            load[taker] += 1
        if load[giver] > share:
            rejected.append((giver, f"{load[giver] - share} tables not moved because {limit} at a time is the limit"))
    chosen = f"move {len(moves)} tables" if moves else None
    because = f"no capture needs more than {share} of {len(view.replications.sets)} tables"
    return moves, Decided(name, chosen, because, tuple(rejected))

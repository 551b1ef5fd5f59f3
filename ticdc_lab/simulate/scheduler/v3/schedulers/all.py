"""One scheduler after the other, until one of them has something to do."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from immutables import Map

from ticdc_lab.simulate.machine import Address, Decided
from ticdc_lab.simulate.scheduler.roles import Key
from ticdc_lab.simulate.scheduler.v3.schedulers.balance import balance
from ticdc_lab.simulate.scheduler.v3.schedulers.basic import basic
from ticdc_lab.simulate.scheduler.v3.schedulers.drain_capture import drain_capture
from ticdc_lab.simulate.scheduler.v3.schedulers.move_table import move_table
from ticdc_lab.simulate.scheduler.v3.schedulers.rebalance import rebalance
from ticdc_lab.simulate.scheduler.v3.schedulers.view import View, stopping
from ticdc_lab.simulate.scheduler.v3.settings import Settings
from ticdc_lab.simulate.scheduler.v3.tasks import Burst, MoveTask, Task

DRAINING_NOBODY = None
"""The target of the drain scheduler where there is none."""


@dataclass(frozen=True, slots=True)
class Schedulers:
    """What the schedulers remember.

    Attributes
    ----------
    drain_target
        The capture that is being drained.
    moves
        What users want where, until it is accepted or given up.
    rebalance
        Whether a user wants all captures to have their share.
    balanced_us
        When the balance was looked at last, None before the first time.
    force_balance
        The last look found something to move: look again at once. A look that a stopping capture forbids leaves it.
    said
        The last word of each scheduler, so that it is not said at every tick.
    """

    drain_target: Address | None = DRAINING_NOBODY
    moves: Map[Key, Address] = Map()
    rebalance: bool = False
    balanced_us: int | None = None
    force_balance: bool = False
    said: Map[str, Decided] = Map()


def schedule(settings: Settings, view: View, state: Schedulers) -> tuple[Schedulers, list[Task], list[Decided]]:
    """Ask in turn: basic, drain capture, move table, rebalance, balance; the first with tasks is the last to be asked.

    Only the first is asked while ``max_task_concurrency`` tasks are running.
    """
    tasks, decided = basic(settings, view)
    if not tasks and len(view.replications.running) < settings.max_task_concurrency:
        state, tasks, more = _others(settings, view, state)
        decided += more
    return _said(state, tasks, decided)


def _others(settings: Settings, view: View, state: Schedulers) -> tuple[Schedulers, list[Task], list[Decided]]:
    target, tasks, decided = drain_capture(settings, view, state.drain_target)
    state = replace(state, drain_target=target)
    if not tasks:
        moves, tasks, more = move_table(settings, view, state.moves)
        state, decided = replace(state, moves=moves), decided + more
    if not tasks:
        asked, tasks, more = rebalance(settings, view, state.rebalance)
        state, decided = replace(state, rebalance=asked), decided + more
    if not tasks and _is_due(settings, view, state):
        tasks, more = balance(settings, view)
        at_us = state.balanced_us if state.force_balance else view.now.at_us
        force = state.force_balance if stopping(view) else bool(tasks)
        state, decided = replace(state, balanced_us=at_us, force_balance=force), decided + more
    return state, tasks, decided


def _is_due(settings: Settings, view: View, state: Schedulers) -> bool:
    if state.force_balance or state.balanced_us is None:
        return True
    return view.now.at_us - state.balanced_us >= settings.check_balance_us


def accepted(state: Schedulers, tasks: Iterable[Task]) -> Schedulers:
    """Forget what users asked for and has begun."""
    for task in tasks:
        if isinstance(task, Burst) and task.asked:
            state = replace(state, rebalance=False)
        elif isinstance(task, MoveTask) and task.asked and task.span in state.moves:
            state = replace(state, moves=state.moves.delete(task.span))
    return state


def _said(state: Schedulers, tasks: list[Task], decided: list[Decided]) -> tuple[Schedulers, list[Task], list[Decided]]:
    new = [d for d in decided if d.chosen is not None or state.said.get(d.subject) != d]
    said = state.said
    for one in new:
        said = said.set(one.subject, one)
    return replace(state, said=said) if new else state, tasks, new

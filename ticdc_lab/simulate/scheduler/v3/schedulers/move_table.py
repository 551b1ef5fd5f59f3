"""What a user wants moved."""

from __future__ import annotations

from immutables import Map

from ticdc_lab.simulate.machine import Address, Decided
from ticdc_lab.simulate.scheduler.roles import Key, order
from ticdc_lab.simulate.scheduler.v3.captures import INITIALIZED
from ticdc_lab.simulate.scheduler.v3.replication import REPLICATING_SET
from ticdc_lab.simulate.scheduler.v3.schedulers.view import View
from ticdc_lab.simulate.scheduler.v3.settings import Settings
from ticdc_lab.simulate.scheduler.v3.tasks import MoveTask, Task

NAME = "move-table"


def move_table(
    settings: Settings, view: View, asked: Map[Key, Address]
) -> tuple[Map[Key, Address], list[Task], list[Decided]]:
    """Move what was asked for and can be moved; give up what cannot.

    Gives the moves that are still asked for: a move stays until it is accepted.
    """
    if not view.captures:
        return asked, [], []
    tasks: list[Task] = []
    decided = []
    for span in sorted(asked, key=order):
        to = asked[span]
        because = _obstacle(view, span, to)
        if because:
            decided.append(Decided(NAME, None, f"table {span} is not moved to {to} because {because}"))
            asked = asked.delete(span)
        else:
            decided.append(Decided(NAME, f"move table {span} to {to}", "a user wants it there"))
            tasks.append(MoveTask(span, to, asked=True))
    return asked, tasks, decided


def _obstacle(view: View, span: Key, to: Address) -> str | None:
    if span not in view.plan.spans:
        return "nobody wants it replicated"
    if to not in view.captures:
        return f"{to} is not registered"
    if view.captures[to].state != INITIALIZED:
        return f"{to} is {view.captures[to].state}"
    found = view.replications.sets.get(span)
    if found is None:
        return "no capture has it"
    if found.state != REPLICATING_SET:
        return f"it is {found.state}, not Replicating"
    return None

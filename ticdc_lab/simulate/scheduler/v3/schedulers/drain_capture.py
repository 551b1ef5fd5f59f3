"""A capture that is to stop gives all its tables away."""

from __future__ import annotations

from ticdc_lab.simulate.machine import Address, Decided
from ticdc_lab.simulate.scheduler.v3.captures import STOPPING
from ticdc_lab.simulate.scheduler.v3.schedulers.view import View, disturbed, first, least_loaded, loads, rank
from ticdc_lab.simulate.scheduler.v3.settings import Settings
from ticdc_lab.simulate.scheduler.v3.tasks import MoveTask, Task

NAME = "drain-capture"


def drain_capture(
    settings: Settings, view: View, target: Address | None
) -> tuple[Address | None, list[Task], list[Decided]]:
    """Move the tables of the target to the emptiest captures, at most ``max_task_concurrency`` at once.

    Without a target a stopping capture other than the owner's is taken. Gives the target from now on, None where it
    has no table (left), is unknown, or nobody else is there to take them.
    """
    if target is None:
        target = _stopping_one(view)
        if target is None:
            return None, [], _owner_stays(view)
    load = loads(view)
    load.pop(target, None)
    if not load:
        return None, [], [Decided(NAME, None, f"not drained because nobody but {target} could take its tables")]
    moving = disturbed(view)
    if moving is not None:
        because = f"{target} waits because table {moving} is {view.replications.sets[moving].state}, not Replicating"
        return target, [], [Decided(NAME, None, because)]
    held = view.replications.primaries.get(target)
    if not held:
        return None, [], [Decided(NAME, None, f"nothing to drain because {target} has no table")]
    moves: list[Task] = []
    for span in first(held, settings.max_task_concurrency, view.now.prefer):
        taker = least_loaded(load, view.now.prefer)
        moves.append(MoveTask(span, taker))
        load[taker] += 1
    left = len(held) - len(moves)
    rejected = ((target, f"{left} tables wait because {settings.max_task_concurrency} at a time is the limit"),)
    decided = Decided(NAME, f"move {len(moves)} tables", f"{target} is drained", rejected if left else ())
    return target, moves, [decided]


def _stopping_one(view: View) -> Address | None:
    able = [a for a, status in view.captures.items() if status.state == STOPPING and not status.is_owner]
    return min(able, key=lambda a: (rank(view.now.prefer, a), a), default=None)


def _owner_stays(view: View) -> list[Decided]:
    stopping = sorted(a for a, status in view.captures.items() if status.state == STOPPING)
    because = "not drained because the owner goes last"
    return [Decided(NAME, None, because, tuple((a, "it is the owner") for a in stopping))] if stopping else []

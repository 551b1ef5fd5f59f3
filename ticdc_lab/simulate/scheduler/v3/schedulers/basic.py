"""Every wanted span gets a capture, every span that nobody wants is stopped."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import cycle, islice

from ticdc_lab.simulate.machine import Address, Decided
from ticdc_lab.simulate.scheduler.roles import Key, order
from ticdc_lab.simulate.scheduler.v3.plan import unscheduled
from ticdc_lab.simulate.scheduler.v3.schedulers.view import View, loads, rank, stopping
from ticdc_lab.simulate.scheduler.v3.settings import Settings
from ticdc_lab.simulate.scheduler.v3.tasks import AddTask, Burst, RemoveTask, Task

NAME = "basic"


def basic(settings: Settings, view: View) -> tuple[list[Task], list[Decided]]:
    """Add at most a batch of spans, round robin from the least loaded capture on, and remove all that are too many.

    Stopping captures are left out. Both are bursts, which no limit holds up.
    """
    tasks: list[Task] = []
    decided: list[Decided] = []
    new = list(islice(_wanted(view), settings.add_table_batch_size))
    if new:
        targets = _targets(view)
        left_out = tuple((address, "not chosen because it is stopping") for address in stopping(view))
        if not targets:
            because = f"{len(new)} tables wait because every capture is stopping"
            return tasks, [Decided(NAME, None, because, left_out)]
        new.sort(key=lambda span: rank(view.now.prefer, span))
        adds = tuple(AddTask(span, to, view.checkpoint_ts) for span, to in zip(new, cycle(targets), strict=False))
        tasks.append(Burst(adds))
        because = f"nobody has them: {_named(new)}; the least loaded capture first"
        decided.append(Decided(NAME, f"add {len(adds)} tables", because, left_out))
    removes = _removes(view)
    if removes:
        tasks.append(Burst(tuple(removes)))
        because = f"nobody wants them any more: {_named([remove.span for remove in removes])}"
        decided.append(Decided(NAME, f"remove {len(removes)} tables", because))
    return tasks, decided


def _wanted(view: View) -> Iterator[Key]:
    absent, plan = view.replications.absent, view.plan
    yield from sorted((span for span in absent if span in plan.spans), key=order)
    yield from unscheduled(plan, view.replications.sets)


def _targets(view: View) -> list[Address]:
    excluded, load = set(stopping(view)), loads(view)
    able = [address for address in load if address not in excluded]
    return sorted(able, key=lambda address: (load[address], rank(view.now.prefer, address), address))


def _removes(view: View) -> list[RemoveTask]:
    removes = []
    for span in sorted(view.plan.surplus, key=order):
        found = view.replications.sets.get(span)
        if found is not None and found.captures and span not in view.replications.running:
            removes.append(RemoveTask(span, found.primary or found.captures[0][0]))
    return removes


def _named(spans: list[Key]) -> str:
    return ", ".join(map(str, spans[:5])) + (f" and {len(spans) - 5} more" if len(spans) > 5 else "")

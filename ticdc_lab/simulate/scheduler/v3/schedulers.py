"""The five schedulers of the owner, one after the other, until one of them has something to do."""

from __future__ import annotations

import heapq
import sys
from collections.abc import Hashable, Iterable, Iterator
from dataclasses import dataclass
from itertools import cycle, islice
from typing import NamedTuple

from immutables import Map

from ticdc_lab.machines.machine import Address, Decided, Now, replace
from ticdc_lab.simulate.scheduler.roles import Key, Span, order, rank
from ticdc_lab.simulate.scheduler.v3.captures import INITIALIZED, STOPPING, V3CaptureStatus
from ticdc_lab.simulate.scheduler.v3.replication_set import REPLICATING_SET
from ticdc_lab.simulate.scheduler.v3.replications import (
    EMPTY,
    AddTask,
    Burst,
    Keys,
    MoveTask,
    RemoveTask,
    Replications,
    Task,
    WantedSpans,
    unscheduled,
)
from ticdc_lab.simulate.scheduler.v3.settings import V3Settings
from ticdc_lab.words import count

# What schedulers look at, and how they choose among equals.


class V3View(NamedTuple):
    """The owner's knowledge at one tick; ``checkpoint_ts`` is the global one."""

    captures: Map[Address, V3CaptureStatus]
    replications: Replications
    plan: WantedSpans
    checkpoint_ts: int
    now: Now


def loads(view: V3View) -> dict[Address, int]:
    """Count the tables that each registered capture replicates, by name."""
    primaries = view.replications.primaries
    return {address: len(primaries.get(address, EMPTY)) for address in sorted(view.captures)}


def stopping(view: V3View) -> list[Address]:
    return sorted(a for a, status in view.captures.items() if status.state == STOPPING)


def least_loaded(load: dict[Address, int], prefer: tuple[Hashable, ...]) -> Address:
    """Choose the capture with the fewest tables: of equals the preferred one, then the smaller name."""
    return min(load, key=lambda address: (load[address], rank(address, prefer)))


def first(keys: Keys, n: int, prefer: tuple[Hashable, ...]) -> list[Key]:
    """Choose ``n`` spans: the preferred ones, then the smallest."""
    chosen = [key for key in prefer if isinstance(key, int | Span) and key in keys][:n]
    if len(chosen) < n:
        others, missing = (key for key in keys if key not in chosen), n - len(chosen)
        enough = missing >= len(keys)
        chosen += sorted(others, key=order) if enough else heapq.nsmallest(missing, others, key=order)
    return chosen


def disturbed(view: V3View) -> Key | None:
    """Give the smallest span with a record that is not Replicating, None where all are."""
    settled = sum(len(spans) for spans in view.replications.primaries.values())
    sets = view.replications.sets
    if settled == len(sets):
        return None
    return min((span for span in view.replications.exact if sets[span].state != "Replicating"), key=order)


# No capture has more than its share of tables.

BALANCE = "balance"


def balance(settings: V3Settings, view: V3View) -> tuple[list[Task], list[Decided]]:
    """Move tables from captures above the share, at most ``max_task_concurrency``; none while a capture is stopping."""
    leaving = stopping(view)
    if leaving:
        because = f"not balanced because {leaving[0]} is stopping"
        return [], [Decided(BALANCE, None, because, tuple((a, "stopping") for a in leaving))]
    moves, decided = balance_moves(view, settings.max_task_concurrency, BALANCE)
    return list(moves), [decided]


def balance_moves(view: V3View, limit: int, name: str) -> tuple[list[MoveTask], Decided]:
    """Choose what to move so that no capture has more than its share, ceil(tables / captures).

    The fullest capture gives first, the emptiest takes; of equals the preferred one, then the smaller name. Of the
    tables of a capture the smallest go, as in TiCDC's own tests (a running TiCDC shuffles).
    """
    load, prefer = loads(view), view.now.prefer
    share = -(-len(view.replications.sets) // len(load)) if load else 0
    moves: list[MoveTask] = []
    rejected = []
    for giver in sorted(load, key=lambda a: (-load[a], rank(a, prefer))):
        surplus = load[giver] - share
        if surplus <= 0:
            rejected.append(
                (giver, f"not moved because {share} is its share, and it has {count(load[giver], 'table')}")
            )
            continue
        for span in first(view.replications.primaries[giver], min(surplus, limit - len(moves)), prefer):
            taker = least_loaded(load, prefer)
            moves.append(MoveTask(span, taker))
            load[giver] -= 1
            load[taker] += 1
        if load[giver] > share:
            rejected.append(
                (giver, f"{count(load[giver] - share, 'table')} not moved because {limit} at a time is the limit")
            )
    chosen = f"move {count(len(moves), 'table')}" if moves else None
    because = f"no capture needs more than {share} of {count(len(view.replications.sets), 'table')}"
    return moves, Decided(name, chosen, because, tuple(rejected))


# Every wanted span gets a capture, every unwanted span is stopped.

BASIC = "basic"


def basic(settings: V3Settings, view: V3View) -> tuple[list[Task], list[Decided]]:
    """Add at most a batch of spans, round robin from the least loaded capture on, and remove all that are too many.

    Stopping captures are left out. Both are bursts, which no limit holds up.
    """
    tasks: list[Task] = []
    decided: list[Decided] = []
    new = list(islice(_wanted(view), settings.add_table_batch_size))
    if new:
        excluded, load, prefer = set(stopping(view)), loads(view), view.now.prefer
        targets = sorted(load.keys() - excluded, key=lambda address: (load[address], rank(address, prefer)))
        left_out = tuple((address, "not chosen because it is stopping") for address in stopping(view))
        if not targets:
            because = f"{len(new)} tables wait because every capture is stopping"
            return tasks, [Decided(BASIC, None, because, left_out)]
        new.sort(key=lambda span: rank(span, view.now.prefer)[0])
        adds = tuple(AddTask(span, to, view.checkpoint_ts) for span, to in zip(new, cycle(targets), strict=False))
        tasks.append(Burst(adds))
        because = f"no capture has them: {_named(new)}; the least loaded capture first"
        decided.append(Decided(BASIC, f"add {count(len(adds), 'table')}", because, left_out))
    removes = []
    for span in sorted(view.plan.surplus, key=order):
        found = view.replications.sets.get(span)
        if found is not None and found.captures and span not in view.replications.running:
            removes.append(RemoveTask(span, found.primary or found.captures[0][0]))
    if removes:
        tasks.append(Burst(tuple(removes)))
        because = f"they are no longer wanted: {_named([remove.span for remove in removes])}"
        decided.append(Decided(BASIC, f"remove {count(len(removes), 'table')}", because))
    return tasks, decided


def _wanted(view: V3View) -> Iterator[Key]:
    absent, plan = view.replications.absent, view.plan
    yield from sorted((span for span in absent if span in plan.spans), key=order)
    yield from unscheduled(plan, view.replications.sets)


def _named(spans: list[Key]) -> str:
    return ", ".join(map(str, spans[:5])) + (f" and {len(spans) - 5} more" if len(spans) > 5 else "")


# A capture that is to stop gives all its tables away.

DRAIN = "drain-capture"


def drain_capture(
    settings: V3Settings, view: V3View, target: Address | None
) -> tuple[Address | None, list[Task], list[Decided]]:
    """Move the tables of the target to the emptiest captures, at most ``max_task_concurrency`` at once.

    Without a target a stopping capture other than the owner's is taken. Gives the target from now on, None where it
    has no table (left), is unknown, or no other is there to take them.
    """
    if target is None:
        able = [a for a, status in view.captures.items() if status.state == STOPPING and not status.is_owner]
        target = min(able, key=lambda a: rank(a, view.now.prefer), default=None)
        if target is None:
            leaving = tuple((a, "it is the owner") for a in stopping(view))
            because = "not drained because the owner goes last"
            return None, [], [Decided(DRAIN, None, because, leaving)] if leaving else []
    load = loads(view)
    load.pop(target, None)
    if not load:
        return None, [], [Decided(DRAIN, None, f"not drained because no capture except {target} could take its tables")]
    moving = disturbed(view)
    if moving is not None:
        because = f"{target} waits because table {moving} is {view.replications.sets[moving].state}, not Replicating"
        return target, [], [Decided(DRAIN, None, because)]
    held = view.replications.primaries.get(target)
    if not held:
        return None, [], [Decided(DRAIN, None, f"nothing to drain because {target} has no table")]
    moves: list[Task] = []
    for span in first(held, settings.max_task_concurrency, view.now.prefer):
        taker = least_loaded(load, view.now.prefer)
        moves.append(MoveTask(span, taker))
        load[taker] += 1
    left = len(held) - len(moves)
    rejected = (
        (target, f"{count(left, 'table')} left for later: {settings.max_task_concurrency} at a time is the limit"),
    )
    decided = Decided(DRAIN, f"move {count(len(moves), 'table')}", f"{target} is drained", rejected if left else ())
    return target, moves, [decided]


# What a user wants moved.

MOVE = "move-table"


def move_table(
    settings: V3Settings, view: V3View, asked: Map[Key, Address]
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
            decided.append(Decided(MOVE, None, f"table {span} is not moved to {to} because {because}"))
            asked = asked.delete(span)
        else:
            decided.append(Decided(MOVE, f"move table {span} to {to}", "a user wants it there"))
            tasks.append(MoveTask(span, to, asked=True))
    return asked, tasks, decided


def _obstacle(view: V3View, span: Key, to: Address) -> str | None:
    if span not in view.plan.spans:
        return "it is not to be replicated"
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


# A user wants all captures to have their share at once.

REBALANCE = "rebalance"


def rebalance(settings: V3Settings, view: V3View, asked: bool) -> tuple[bool, list[Task], list[Decided]]:
    """Move all that is above the share in one burst, once every wanted span is Replicating.

    Gives whether it is still asked for: until the burst is accepted, unless a capture is stopping.
    """
    if not asked or not view.captures:
        return asked, [], []
    leaving = stopping(view)
    if leaving:
        return False, [], [Decided(REBALANCE, None, f"given up because {leaving[0]} is stopping")]
    missing = next(unscheduled(view.plan, view.replications.sets), None)
    if missing is not None:
        return True, [], [Decided(REBALANCE, None, f"waits because no capture has table {missing}")]
    moving = disturbed(view)
    if moving is not None:
        because = f"waits because table {moving} is {view.replications.sets[moving].state}, not Replicating"
        return True, [], [Decided(REBALANCE, None, because)]
    moves, decided = balance_moves(view, sys.maxsize, REBALANCE)
    return True, [Burst(tuple(moves), asked=True)] if moves else [], [decided]


# One scheduler after the other, until one of them has something to do.

DRAINING_NOBODY = None
"""The target of the drain scheduler where there is none."""


@dataclass(frozen=True, slots=True)
class Schedulers:
    """What the schedulers remember."""

    drain_target: Address | None = DRAINING_NOBODY  # the capture that is being drained
    moves: Map[Key, Address] = Map()  # what users want where, until it is accepted or given up
    rebalance: bool = False  # whether a user wants all captures to have their share
    balanced_us: int | None = None  # when the balance was looked at last, None before the first time
    # The last look found something to move: look again at once. A look that a stopping capture forbids leaves it.
    force_balance: bool = False
    said: Map[str, Decided] = Map()  # the last word of each scheduler, so that it is not repeated at every tick


def schedule(settings: V3Settings, view: V3View, state: Schedulers) -> tuple[Schedulers, list[Task], list[Decided]]:
    """Ask in turn: basic, drain capture, move table, rebalance, balance; the first with tasks is the last to be asked.

    Only the first is asked while ``max_task_concurrency`` tasks are running.
    """
    tasks, decided = basic(settings, view)
    if not tasks and len(view.replications.running) < settings.max_task_concurrency:
        state, tasks, more = _others(settings, view, state)
        decided += more
    new = [d for d in decided if d.chosen is not None or state.said.get(d.subject) != d]
    said = state.said
    for one in new:
        said = said.set(one.subject, one)
    return replace(state, said=said) if new else state, tasks, new


def _others(settings: V3Settings, view: V3View, state: Schedulers) -> tuple[Schedulers, list[Task], list[Decided]]:
    target, tasks, decided = drain_capture(settings, view, state.drain_target)
    state = replace(state, drain_target=target)
    if not tasks:
        moves, tasks, more = move_table(settings, view, state.moves)
        state, decided = replace(state, moves=moves), decided + more
    if not tasks:
        asked, tasks, more = rebalance(settings, view, state.rebalance)
        state, decided = replace(state, rebalance=asked), decided + more
    last_us = state.balanced_us
    is_due = last_us is None or view.now.at_us - last_us >= settings.check_balance_us
    if not tasks and (is_due or state.force_balance):
        tasks, more = balance(settings, view)
        at_us = state.balanced_us if state.force_balance else view.now.at_us
        force = state.force_balance if stopping(view) else bool(tasks)
        state, decided = replace(state, balanced_us=at_us, force_balance=force), decided + more
    return state, tasks, decided


def accepted(state: Schedulers, tasks: Iterable[Task]) -> Schedulers:
    """Forget what users asked for and has begun."""
    for task in tasks:
        if isinstance(task, Burst) and task.asked:
            state = replace(state, rebalance=False)
        elif isinstance(task, MoveTask) and task.asked and task.span in state.moves:
            state = replace(state, moves=state.moves.delete(task.span))
    return state

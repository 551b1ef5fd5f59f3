"""A small exact model of what happens between the owner's decision and the consumer's applied changes.

Pure Python, and nothing of the package in it: upstream's changes, processors that write them until they hear the stop,
an owner, partitions as lists of messages, and listeners; any of them may take the next step. Times are small integers;
one change has one commit_ts.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass

Message = tuple[str, int, str]
"""``row`` (commit_ts, key), ``resolved`` (value, ""), ``admin`` (new count, "")."""

Log = list[list[Message]]


@dataclass(frozen=True)
class World:
    """Changes as (commit_ts, key), each with its table; tables have one processor each."""

    changes: tuple[tuple[int, str], ...]
    table_of: dict[str, str]
    marks: tuple[int, ...]
    """Times at which the owner broadcasts the global checkpoint."""
    at: int
    stops: dict[str, int]
    """Per table: the last commit_ts that its processor writes with the old count."""
    before: int
    after: int
    slack: int = 2
    """Time between the Admin event and the restart."""


def home(key: str, count: int) -> int:
    """Where a key goes: its letters are numbers."""
    return int(key) % count


def with_feedback(world: World) -> Log:
    """The design's procedure: wait for all, then the Admin event; restart at what was broadcast last."""
    stop = min(world.stops.values())
    checkpoint = max((m for m in world.marks if m <= stop), default=0)
    old = [(ts, 0, "row", key) for ts, key in world.changes if ts <= world.stops[world.table_of[key]]]
    old += [(m, 1, "resolved", "") for m in world.marks if m <= checkpoint]
    log = _sent(old, world.before, world)
    return _restarted(world, log, checkpoint, strays=[])


def without_feedback(world: World) -> Log:
    """The Admin event goes out at once; the checkpoint is read when tasks restart, as far as processors have come."""
    resolved = max((m for m in world.marks if m <= world.at), default=0)
    reach = min([*world.stops.values(), world.at + world.slack])
    checkpoint = max((m for m in world.marks if m <= reach), default=0)
    old = [(ts, 0, "row", k) for ts, k in world.changes if ts <= min(world.at, world.stops[world.table_of[k]])]
    old += [(m, 1, "resolved", "") for m in world.marks if m <= resolved]
    strays = [(ts, 0, "row", k) for ts, k in world.changes if world.at < ts <= world.stops[world.table_of[k]]]
    return _restarted(world, _sent(old, world.before, world), checkpoint, strays=strays)


def later_checkpoint(world: World) -> Log:
    """With feedback, but the restart takes a checkpoint that was never broadcast: where the slowest one stopped."""
    log = with_feedback(world)
    begin = next(i for i, m in enumerate(log[0]) if m[0] == "admin")
    stop, broadcast = min(world.stops.values()), max((m[1] for m in log[0][:begin] if m[0] == "resolved"), default=0)
    return [
        [m for i, m in enumerate(part) if not (_after_admin(part, i) and m[0] == "row" and broadcast < m[1] <= stop)]
        for part in log
    ]


def just_added(world: World) -> Log:
    """No barrier: each processor uses the new count from its own moment on."""
    sent = [(m, 1, "resolved", "") for m in world.marks]
    log: Log = [[] for _ in range(world.after)]
    for ts, _, kind, key in sorted([*[(ts, 0, "row", k) for ts, k in world.changes], *sent]):
        if kind == "resolved":
            for part in log if ts > world.at else log[: world.before]:
                part.append((kind, ts, ""))
        else:
            new = ts > world.stops[world.table_of[key]]
            log[home(key, world.after if new else world.before)].append((kind, ts, key))
    return log


def _after_admin(part: list[Message], i: int) -> bool:
    return any(m[0] == "admin" for m in part[:i])


def _sent(messages: list[tuple[int, int, str, str]], count: int, world: World) -> Log:
    log: Log = [[] for _ in range(max(world.before, world.after))]
    for ts, _, kind, key in sorted(messages):
        for part in [log[home(key, count)]] if kind == "row" else log[:count]:
            part.append((kind, ts, key))
    return log


def _restarted(world: World, log: Log, checkpoint: int, strays: list[tuple[int, int, str, str]]) -> Log:
    for part in log:
        part.append(("admin", world.after, ""))
    for ts, _, _, key in sorted(strays):
        log[home(key, world.before)].append(("row", ts, key))
    again = [(ts, 0, "row", key) for ts, key in world.changes if ts > checkpoint]
    again += [(m, 1, "resolved", "") for m in world.marks if m >= checkpoint > 0 or m > checkpoint]
    for part, more in zip(log, _sent(again, world.after, world), strict=True):
        part += more
    return log


def run(log: Log, listeners: int, choose: Callable[[list[int]], int]) -> list[tuple[int, str]]:
    """What a consumer applies, in order, if ``choose`` shows which listener goes next.

    ``listeners`` partitions have one at first; after the barrier there are as many as the Admin event describes.
    """
    place, held, resolved = [0] * len(log), [[] for _ in log], [0] * len(log)
    waiting: set[int] = set()
    active, passed = set(range(listeners)), False
    applied: list[tuple[int, str]] = []
    while ready := [p for p in sorted(active - waiting) if place[p] < len(log[p])]:
        p = choose(ready)
        kind, ts, key = log[p][place[p]]
        place[p] += 1
        if kind == "row":
            held[p].append((ts, key))
        elif kind == "resolved":
            resolved[p] = max(resolved[p], ts)
            applied += sorted(r for r in held[p] if r[0] <= resolved[p])
            held[p] = [r for r in held[p] if r[0] > resolved[p]]
        elif not passed:  # in a partition that is new, or after all have it, there is nothing to wait for
            held[p] = [r for r in held[p] if r[0] <= resolved[p]]
            waiting.add(p)
            if waiting == active:
                waiting, active, passed = set(), set(range(ts)), True
    return applied


def at_random(seed: int) -> Callable[[list[int]], int]:
    """A choice that comes out the same for the same seed."""
    return random.Random(seed).choice


def every_run(log: Log, listeners: int) -> Iterator[list[tuple[int, str]]]:
    """All runs of a small log, by trying every choice."""
    todo: list[list[int]] = [[]]
    while todo:
        path = todo.pop()
        taken = 0

        def choose(ready: list[int], path: list[int] = path) -> int:
            nonlocal taken
            if taken == len(path):
                todo.extend([*path, other] for other in ready[1:])
                path.append(ready[0])
            taken += 1
            return path[taken - 1]

        yield run(log, listeners, choose)


def faults(applied: list[tuple[int, str]], world: World) -> set[str]:
    """What is wrong with a run: ``lost``, ``doubled``, ``order``; only changes that the last mark reaches count."""
    due = [c for c in world.changes if c[0] <= max(world.marks, default=0)]
    found = set()
    if set(due) - set(applied):
        found.add("lost")
    if len(applied) != len(set(applied)):
        found.add("doubled")
    for key in {k for _, k in applied}:
        own = [ts for ts, k in applied if k == key]
        if any(a > b for a, b in itertools.pairwise(own)):
            found.add("order")
    return found


def size(log: Log) -> int:
    """Messages of a log."""
    return sum(map(len, log))

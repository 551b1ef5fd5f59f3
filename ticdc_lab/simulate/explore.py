"""Every order of events of a small world, breadth first: all reachable states, or the shortest way to a violation."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Generic, NamedTuple, Protocol, TypeVar

from ticdc_lab.simulate.kernel import no_cycles

W = TypeVar("W")


class WorldStep(NamedTuple, Generic[W]):
    """One thing that can happen next; ``broken`` is (invariant, because) where the new state breaks one."""

    action: Any
    world: W
    broken: tuple[str, str] | None = None


class SmallModel(Protocol[W]):
    """A small world."""

    def start(self) -> W:
        """Give the first state."""
        ...

    def steps(self, world: W) -> Iterable[WorldStep[W]]:
        """Give all that can happen next."""
        ...

    def code(self, world: W) -> int:
        """Give a number that is the same for states that differ by names alone, and 64 bits wide."""
        ...


@dataclass(frozen=True, slots=True)
class Exploration:
    """What was found."""

    states: int  # different ones that were reached, symmetric ones counted once
    steps: int  # ways from one to another
    depth: int  # of the search, in actions
    complete: bool  # whether all states that can be reached were
    broken: tuple[str, str] | None = None  # (invariant, because), None where every state holds all
    path: tuple[Any, ...] = ()  # the actions of the shortest way there
    dead_ends: int = 0  # states from which nothing else can be reached


def explore(
    model: SmallModel[W], *, most_states: int = 10_000_000, progress: Callable[[int, int], None] | None = None
) -> Exploration:
    """Search a small world.

    Parameters
    ----------
    model
        The world.
    most_states
        The search ends, incomplete, when it has found so many.
    progress
        Called with depth and number of states after each depth.

    Returns
    -------
    Exploration
        The first violation is one of the nearest. Two states whose 64-bit codes are equal by chance are taken for one:
        with ten million states the probability that any were is 3 in a million.

    Examples
    --------
    >>> from ticdc_lab.simulate.scheduler.small import Small
    >>> from ticdc_lab.simulate.scheduler.world import Bounds
    >>> found = explore(Small(Bounds(captures=2, tables=1)))
    >>> found.complete, found.broken
    (True, None)
    >>> explore(Small(Bounds(captures=2, tables=1, expiries=1, stops_at_once=False))).broken
    ('No Double Write', 'capture-2 and capture-1 both write table 1')
    """
    with no_cycles():
        first = model.start()
        parents: dict[int, tuple[int, Any]] = {model.code(first): (0, None)}
        frontier, depth, n_steps, dead_ends = [(model.code(first), first)], 0, 0, 0
        while frontier:
            following: list[tuple[int, W]] = []
            for code, world in frontier:
                moved = False
                for action, after, broken in model.steps(world):
                    n_steps += 1
                    if broken:
                        path = (*_path(parents, code), action)
                        return Exploration(len(parents) + 1, n_steps, depth + 1, False, broken, path)
                    found = model.code(after)
                    moved = moved or found != code
                    if found not in parents:
                        parents[found] = (code, action)
                        following.append((found, after))
                dead_ends += not moved
                if len(parents) >= most_states:
                    return Exploration(len(parents), n_steps, depth + 1, False, dead_ends=dead_ends)
            frontier, depth = following, depth + 1
            if progress:
                progress(depth, len(parents))
        return Exploration(len(parents), n_steps, depth - 1, True, dead_ends=dead_ends)


def _path(parents: dict[int, tuple[int, Any]], code: int) -> tuple[Any, ...]:
    path = []
    while parents[code][0]:
        code, action = parents[code]
        path.append(action)
    return tuple(reversed(path))

"""A service in a small world, for the explorer: few nodes around one store, every order of messages, timers, faults.

The machines are those that run in the kernel. Time stalls, so no session ends by a clock: that a session ends is
one of the things that may happen, and with it, as the margin of a lease makes sure, its holder stops
(``stops_at_once``). Messages it has sent are still on their way then, and come in at any time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

from ticdc_lab.ddl_core.checks import Found
from ticdc_lab.ddl_core.store import DdlStore, DdlStoreState, ended
from ticdc_lab.machines.machine import Event, Fired, Now, Output, Received, Send, Wake
from ticdc_lab.simulate.explore import WorldStep

NOW = Now(0)
TIMERS = frozenset({"loaded", "upgraded"})
"""Those that mean something where time stalls: work that a node has begun and that ends at some moment."""


class Action(NamedTuple):
    """What happened: ``deliver`` from ``peer`` to ``node``, ``timer``, ``expire``, ``join``."""

    what: str
    node: str
    peer: str = ""
    message: Any = None


class World(NamedTuple):
    """One state: nodes by their places (None: gone, or still to come), what is on its way, what may still happen."""

    store: DdlStoreState
    nodes: tuple[Any, ...]
    links: tuple[tuple[str, str, tuple[Any, ...]], ...]
    timers: frozenset[tuple[int, str]]
    expiries: int
    to_come: frozenset[int]


Judge = Callable[[World | None, World], Found]


@dataclass(frozen=True)
class Small:
    """The model (:class:`ticdc_lab.simulate.explore.SmallModel`).

    Attributes
    ----------
    store_name, store
        The store in the middle.
    nodes
        Name and machine of each other node.
    judge
        Sees what is broken between a world (None for one that is quiet) and the next.
    expiries
        How many sessions may end.
    late
        Nodes that join at any time.
    stops_at_once
        Whether a node stops before its session ends; otherwise it continues until it hears of it.
    settled
        Nodes take what comes in turn until nothing is on its way; only then everything may happen.
    """

    store_name: str
    store: DdlStore
    nodes: tuple[tuple[str, Any], ...]
    judge: Judge
    expiries: int = 0
    late: frozenset[str] = frozenset()
    stops_at_once: bool = True
    wishes: tuple[tuple[str, Event], ...] = ()

    def start(self) -> World:
        """All but the late have begun and come to rest; then users wish."""
        late = frozenset(i for i, (name, _) in enumerate(self.nodes) if name in self.late)
        store = self.store.start(self.store_name, NOW)[0]
        world = World(store, (None,) * len(self.nodes), (), frozenset(), self.expiries, late)
        for i, _ in enumerate(self.nodes):
            if i not in late:
                world = self._begun(world, i)
        while world.links or world.timers:
            world = next(iter(self._going_on(world))).world
        for name, event in self.wishes:
            world = self._taken(world, self._place(name), event)
        return world

    def steps(self, world: World) -> Iterator[WorldStep[World]]:
        """Give all that can happen next."""
        is_quiet = True
        for step in self._going_on(world):
            is_quiet = False
            yield step._replace(broken=self.judge(world, step.world))
        if is_quiet:
            broken = self.judge(None, world)
            if broken:
                yield WorldStep(Action("quiet", ""), world, broken)
        for action, after in self._faults(world):
            yield WorldStep(action, after, self.judge(world, after))

    def code(self, world: World) -> int:
        """Give a hash of the state."""
        return hash(world)

    def _place(self, name: str) -> int:
        return [n for n, _ in self.nodes].index(name)

    def _begun(self, world: World, i: int) -> World:
        name, machine = self.nodes[i]
        state, outputs = machine.start(name, NOW)
        world = world._replace(nodes=(*world.nodes[:i], state, *world.nodes[i + 1 :]))
        return self._sent(world, i, name, outputs)

    def _going_on(self, world: World) -> Iterator[WorldStep[World]]:
        """Deliver the first message of a link, or end some work."""
        for sender, to, messages in world.links:
            after = _on_link(world, sender, to, messages[1:])
            action = Action("deliver", to, sender, messages[0])
            if to == self.store_name:
                store, outputs = self.store.step(after.store, Received(sender, messages[0]), NOW)
                yield WorldStep(action, self._sent(after._replace(store=store), -1, to, outputs))
            elif after.nodes[self._place(to)] is None:
                yield WorldStep(action, after)
            else:
                yield WorldStep(action, self._taken(after, self._place(to), Received(sender, messages[0])))
        for i, timer in sorted(world.timers):
            after = world._replace(timers=world.timers - {(i, timer)})
            yield WorldStep(Action("timer", self.nodes[i][0], message=timer), self._taken(after, i, Fired(timer)))

    def _faults(self, world: World) -> Iterator[tuple[Action, World]]:
        for i in sorted(world.to_come):
            yield Action("join", self.nodes[i][0]), self._begun(world._replace(to_come=world.to_come - {i}), i)
        if not world.expiries:
            return
        for number, lease in sorted(world.store.leases.items()):
            after = world._replace(expiries=world.expiries - 1)
            if self.stops_at_once:
                after = _gone(after, self._place(lease.holder))
            store, outputs = ended(after.store, number, "its lease ran out")
            yield Action("expire", lease.holder), self._sent(after._replace(store=store), -1, self.store_name, outputs)

    def _taken(self, world: World, i: int, event: Event) -> World:
        name, machine = self.nodes[i]
        state, outputs = machine.step(world.nodes[i], event, NOW)
        world = world._replace(nodes=(*world.nodes[:i], state, *world.nodes[i + 1 :]))
        return self._sent(world, i, name, outputs)

    def _sent(self, world: World, i: int, name: str, outputs: list[Output]) -> World:
        names = {n for n, _ in self.nodes}
        for output in outputs:
            if isinstance(output, Send):
                if output.to in names and world.nodes[self._place(output.to)] is None:
                    continue  # no one hears it
                if output.to == self.store_name or output.to in names:
                    on_way = next((m for s, t, m in world.links if (s, t) == (name, output.to)), ())
                    world = _on_link(world, name, output.to, (*on_way, output.message))
            elif isinstance(output, Wake) and output.name in TIMERS:
                world = world._replace(timers=world.timers | {(i, str(output.name))})
        return world


def _gone(world: World, i: int) -> World:
    timers = frozenset(t for t in world.timers if t[0] != i)
    return world._replace(nodes=(*world.nodes[:i], None, *world.nodes[i + 1 :]), timers=timers)


def _on_link(world: World, sender: str, to: str, messages: tuple[Any, ...]) -> World:
    others = [link for link in world.links if link[:2] != (sender, to)]
    if messages:
        others.append((sender, to, messages))
    return world._replace(links=tuple(sorted(others, key=lambda link: link[:2])))

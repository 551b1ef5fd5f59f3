"""The design's protocol (v2) in a small world, for the explorer: a few captures and tables, every order of events.

The owner's and the processors' machines are the ones that run in the kernel.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import replace
from itertools import permutations
from typing import Any

import pyarrow as pa

from ticdc_lab.errors import ContractError
from ticdc_lab.machines.clock import ts_of
from ticdc_lab.machines.machine import Asked, Broken, Changed, Event, Now, Received, Send
from ticdc_lab.simulate.explore import Exploration, WorldStep
from ticdc_lab.simulate.scheduler import executor as pipelines
from ticdc_lab.simulate.scheduler.agent import Agent, AgentState
from ticdc_lab.simulate.scheduler.balance import Balance
from ticdc_lab.simulate.scheduler.dispatcher import Dispatcher
from ticdc_lab.simulate.scheduler.dispatcher_state import DispatcherState
from ticdc_lab.simulate.scheduler.executor import MAX_TS, TablePace, state_of
from ticdc_lab.simulate.scheduler.messages import Announce
from ticdc_lab.simulate.scheduler.monitor import LOST, MONOTONE
from ticdc_lab.simulate.scheduler.roles import MoveTable, Poll, Restart, Tick, Watermarks
from ticdc_lab.simulate.scheduler.world import (
    Action,
    Bounds,
    BudgetLeft,
    SmallNode,
    SmallWorld,
    Structures,
    begins,
    elected,
    on_link,
    sent,
    stopped,
    with_node,
    without_session,
    without_stale,
    written,
)
from ticdc_lab.simulate.trace import Row, as_table

MOST = 4
"""So many captures and tables may a small world have."""

AT_ONCE = TablePace(prepare_us=0, stop_us=0, lag_us=0, catch_up=1000)


UNCOUNTED = frozenset({
    ("AgentState", "address"), ("Executor", "limit_ts"), ("CaptureStatus", "slowest"), ("Checkpoint", "slowest"),
    ("DispatcherState", "checked_us"), ("DispatcherState", "stuck"), ("DispatcherState", "said"),
})  # fmt: skip
"""What does not count for a state of v2: words, when its owner looked last, and the limit of the first poll."""
_MOST_REMEMBERED = 1_000_000


class Remembered:
    """A machine whose steps are computed once: by many ways a world comes to the same node and the same event.

    What is remembered is shared by the worlds that it leads to, so what is known of it by identity is known there too.
    """

    def __init__(self, machine: Any) -> None:
        self._machine = machine
        self._taken: dict[tuple[Any, ...], tuple[Any, Any, tuple[Any, list[Any]]]] = {}

    def __getattr__(self, name: str) -> Any:
        return getattr(self._machine, name)

    def step(self, state: Any, event: Event, now: Now) -> tuple[Any, list[Any]]:
        """Take one event, or repeat its outcome."""
        about = event[-1]
        if isinstance(event, Received):  # by identity: named tuples of two kinds are equal where their fields are
            key: tuple[Any, ...] = (id(state), event.sender, id(about), now)
        else:
            key = (id(state), type(about), about, now)
        found = self._taken.get(key)
        if found is None:
            if len(self._taken) > _MOST_REMEMBERED:
                self._taken.clear()
            found = self._taken[key] = (state, about, self._machine.step(state, event, now))  # kept, and so their ids
        return found[2]


class Small:
    """The model (:class:`ticdc_lab.simulate.explore.SmallModel`).

    ``bounds``: what may happen. ``dispatcher``, ``agent``: the machines.
    """

    def __init__(self, bounds: Bounds, dispatcher: Dispatcher | None = None, agent: Agent | None = None) -> None:
        if bounds.captures > MOST or bounds.tables > MOST:
            raise ContractError(
                f"a small world has {MOST} captures and tables at most, this one {bounds.captures} and {bounds.tables}",
                hint="Every order of equals is tried, and there are too many; run many seeds instead (--seeds).",
            )
        self.bounds = bounds
        self.names = tuple(f"capture-{i + 1}" for i in range(bounds.captures))
        self.tables = tuple(range(1, bounds.tables + 1))
        still = Balance(check_us=1 << 60)
        self.owner: Any = Remembered(replace(dispatcher or Dispatcher(), balance=still))
        self.agent: Any = Remembered(replace(agent or Agent(), pace=AT_ONCE))
        self._late = self.names[bounds.captures - bounds.joins :]
        self._wanted = frozenset(self.tables)
        self._table_orders = tuple(permutations(self.tables))
        self._structures = Structures(UNCOUNTED)
        self._orders = tuple((*c, *t) for c in permutations(self.names) for t in self._table_orders)

    def start(self) -> SmallWorld:
        """All captures but the late ones have registered, and none knows of it."""
        b = self.bounds
        there = self.names[: b.captures - b.joins]
        nodes = tuple((n, SmallNode(self.agent.start(n, Now(0))[0] if n in there else None)) for n in self.names)
        campaign = tuple((n, i + 1) for i, n in enumerate(there))
        left = BudgetLeft(
            b.moments, b.owner_changes, b.crashes, b.restarts, b.lost, b.expiries, b.joins, b.doubled, b.moves
        )
        start_ts = ts_of(0)
        return SmallWorld(nodes, campaign, len(there), None, (), (start_ts,) * len(self.tables), start_ts, 0, left)

    # What can happen next

    def steps(self, world: SmallWorld) -> Iterator[WorldStep[SmallWorld]]:
        """Give all that can happen next."""
        for step in self._single(world):
            if self.bounds.at_once and not step.broken and step.action.what in ("deliver", "looks", "restart"):
                yield from self._reacted(step)
            else:
                yield step

    def _reacted(self, step: WorldStep[SmallWorld]) -> Iterator[WorldStep[SmallWorld]]:
        """Let the node's periodic calls come at once."""
        action, world, _ = step
        node = dict(world.nodes)[action.node]
        if node.agent is None:
            yield step
            return
        polls = action.what == "restart" or hasattr(action.message, "owner_rev")
        found = self._polled(world, action.node, node) if polls else self._ticked(world, action.node, node)
        reactions = [WorldStep(action._replace(prefer=then.prefer), after, broken) for then, after, broken in found]
        yield from reactions or [step]

    def _single(self, world: SmallWorld) -> Iterator[WorldStep[SmallWorld]]:
        for name, node in world.nodes:
            if node.agent is None:
                continue
            yield from self._looked(world, name, node)
            yield from self._ticked(world, name, node)
            yield from self._polled(world, name, node)
        yield from self._delivered(world)
        yield from self._faults(world)
        if world.left.moves:
            yield from self._moves(world)
        if world.left.moments:
            left = world.left._replace(moments=world.left.moments - 1)
            yield WorldStep(Action("time", ""), world._replace(at_us=world.at_us + 1000, left=left))

    def _moves(self, world: SmallWorld) -> Iterator[WorldStep[SmallWorld]]:
        """A user asks the owner that etcd has for what he may wish; what changes nothing is no step."""
        name = world.campaign[0][0] if world.campaign else ""
        node = dict(world.nodes).get(name)
        if node is None or node.agent is None or node.owner is None:
            return
        left = world.left._replace(moves=world.left.moves - 1)
        for command in self._wishes():
            owner, outputs = self.owner.step(node.owner, Asked(command), Now(world.at_us))
            if self._is_other(owner, node.owner):
                after = with_node(world, name, node._replace(owner=owner))._replace(left=left)
                yield self._carried_out(after, Action("move", name, message=command), name, outputs)

    def _wishes(self) -> Iterator[Any]:
        """Each table on each capture."""
        return (MoveTable(table, to) for table in self.tables for to in self.names)

    def _is_other(self, owner: Any, before: Any) -> bool:
        """Whether a wish has changed the owner."""
        return bool(owner != before)

    def _looked(self, world: SmallWorld, name: str, node: SmallNode) -> Iterator[WorldStep[SmallWorld]]:
        """The capture sees what etcd holds now."""
        if name not in dict(world.campaign):
            if not self.bounds.stops_at_once:
                yield stopped(world, name, "notices")
            return
        owner, rev = world.rival if world.rival and world.rival[0] == name else world.campaign[0]
        sees = (frozenset(n for n, _ in world.campaign), owner, rev)
        if sees == node.sees or (owner != name and node.owner is None and not self.bounds.coordinator):
            return  # what others see changes nothing, unless a maintainer may be there
        elected = node.owner
        if owner != name:
            elected = None
        elif elected is None or elected.owner_rev != rev:
            elected = self.owner.elected(name, rev, Now(0))[0]
        after = node._replace(owner=elected, sees=sees if elected or self.bounds.coordinator else None)
        yield WorldStep(Action("looks", name), with_node(world, name, after))

    def _ticked(self, world: SmallWorld, name: str, node: SmallNode) -> Iterator[WorldStep[SmallWorld]]:
        if node.owner is None or node.sees is None:
            return
        tick = Asked(Tick(node.sees[0], self._wanted, world.checkpoint_ts))
        seen = set()
        for prefer in self._orders if _chooses(node.owner, tick.command) else ((),):
            state, outputs = self.owner.step(node.owner, tick, Now(world.at_us, prefer=prefer))
            told = tuple(o for o in outputs if isinstance(o, (Send, Watermarks)))
            state = state._replace(stuck=None, said="", checked_us=0)
            if told in seen or (state == node.owner and _is_idle(told, world)):
                continue
            seen.add(told)
            action = Action("tick", name, prefer=prefer if len(seen) > 1 else ())
            yield self._carried_out(with_node(world, name, node._replace(owner=state)), action, name, outputs)

    def _polled(self, world: SmallWorld, name: str, node: SmallNode) -> Iterator[WorldStep[SmallWorld]]:
        assert node.agent
        orders = self._table_orders if len(node.agent.operations) > 1 else ((),)
        for prefer in orders:
            now = Now(world.at_us, prefer=prefer)
            agent, outputs = self.agent.step(node.agent, Asked(Poll(MAX_TS)), now)
            if not outputs and agent == node.agent:
                continue
            action = Action("poll", name, prefer=prefer)
            yield self._moved(world, name, node, agent, outputs, action)

    def _delivered(self, world: SmallWorld) -> Iterator[WorldStep[SmallWorld]]:
        for sender, to, message, rest in self._first(world):
            after = on_link(world, sender, to, rest)
            if world.left.doubled and isinstance(message, Announce):
                left = world.left._replace(doubled=world.left.doubled - 1)
                twice = on_link(world, sender, to, (*rest, message, message))
                yield WorldStep(Action("double", to, sender, message), twice._replace(left=left))
            if world.left.lost:
                left = world.left._replace(lost=world.left.lost - 1)
                yield WorldStep(Action("lose", to, sender, message), after._replace(left=left))
            node = dict(world.nodes)[to]
            action = Action("deliver", to, sender, message)
            event, now = Received(sender, message), Now(world.at_us)
            if node.agent is None:
                yield WorldStep(action, after)
            elif not self._is_for_owner(message):
                agent, outputs = self.agent.step(node.agent, event, now)
                yield self._moved(after, to, node, agent, outputs, action)
            elif node.owner is None:
                yield WorldStep(action, after)
            else:
                owner, told = self.owner.step(node.owner, event, now)
                yield self._carried_out(with_node(after, to, node._replace(owner=owner)), action, to, told)

    def _first(self, world: SmallWorld) -> Iterator[tuple[str, str, Any, tuple[Any, ...]]]:
        """Give what can come in next: the first message of each link, or of each topic of an owner's."""
        for sender, to, messages in world.links:
            yield sender, to, messages[0], messages[1:]
            if self.bounds.topics and hasattr(messages[0], "owner_rev"):
                kinds = [type(m) for m in messages]
                other = next((i for i, kind in enumerate(kinds) if kind is not kinds[0]), None)
                if other is not None and hasattr(messages[other], "owner_rev"):
                    yield sender, to, messages[other], (*messages[:other], *messages[other + 1 :])

    def _faults(self, world: SmallWorld) -> Iterator[WorldStep[SmallWorld]]:
        left = world.left
        sessions = dict(world.campaign)
        for name, node in world.nodes:
            if node.agent is None and name in sessions:
                yield WorldStep(Action("expire", name), without_session(world, name))
            if node.agent is None and left.joins and name not in sessions and name in self._late:
                yield WorldStep(Action("join", name), self._joined(world, name))
            if node.agent is None:
                continue
            if left.crashes:
                yield stopped(world._replace(left=left._replace(crashes=left.crashes - 1)), name, "crash")
            if left.restarts:
                after = world._replace(left=left._replace(restarts=left.restarts - 1))
                agent, outputs = self.agent.step(node.agent, Asked(Restart()), Now(world.at_us))
                yield self._moved(after, name, node, agent, outputs, Action("restart", name))
            if left.expiries and name in sessions:
                after = world._replace(left=left._replace(expiries=left.expiries - 1))
                if self.bounds.stops_at_once:
                    step = stopped(after, name, "expire")
                    yield step._replace(world=without_session(step.world, name))
                else:
                    yield WorldStep(Action("expire", name), without_session(after, name))
        if left.owner_changes and len(world.campaign) > 1:
            yield WorldStep(Action("elect", world.campaign[1][0]), elected(world, self.bounds))

    def _joined(self, world: SmallWorld, name: str) -> SmallWorld:
        revision = world.revision + 1
        agent = self.agent.start(name, Now(world.at_us))[0]
        world = world._replace(
            campaign=(*world.campaign, (name, revision)),
            revision=revision,
            left=world.left._replace(joins=world.left.joins - 1),
        )
        return with_node(world, name, SmallNode(agent))

    def _is_for_owner(self, message: Any) -> bool:
        return not hasattr(message, "owner_rev")

    def _pruned(self, world: SmallWorld, name: str, before: Any, agent: Any) -> SmallWorld:
        """Leave out what a processor will ignore whenever it comes."""
        if agent.owner == before.owner:
            return world
        return without_stale(world, name, agent)

    # What comes of it

    def _moved(
        self, world: SmallWorld, name: str, node: SmallNode, agent: AgentState, outputs: list[Any], action: Action
    ) -> WorldStep[SmallWorld]:
        """Put a processor's new state into the world, and see whether a table is written twice, or with a gap."""
        before, broken = node.agent, None
        assert before
        for output in outputs:
            if isinstance(output, Changed) and output.subject.startswith("table:"):
                key = int(output.subject[6:])
                was, now = output.before in pipelines.WRITING, output.after in pipelines.WRITING
                if now and not was:
                    broken = broken or begins(world, name, key, agent)
                if was and not now:
                    durable = list(world.durable)
                    durable[key - 1] = max(durable[key - 1], pipelines.checkpoint_of(before.executor, key, world.at_us))
                    world = world._replace(durable=tuple(durable))
        world = self._pruned(world, name, before, agent)
        step = self._carried_out(with_node(world, name, node._replace(agent=agent)), action, name, outputs)
        return step._replace(broken=broken or step.broken)

    def _carried_out(self, world: SmallWorld, action: Action, name: str, outputs: list[Any]) -> WorldStep[SmallWorld]:
        broken = None
        for output in outputs:
            if isinstance(output, Send):
                world = sent(world, name, output)
            elif isinstance(output, Broken):
                broken = broken or (output.invariant, output.because)
            elif isinstance(output, Watermarks) and output.checkpoint_ts is not None:
                world, found = self._published(world, name, output.checkpoint_ts)
                broken = broken or found
        return WorldStep(action, world, broken)

    def _published(self, world: SmallWorld, name: str, checkpoint_ts: int) -> tuple[SmallWorld, tuple[str, str] | None]:
        """The owner persists the checkpoint, if etcd still takes it for the owner."""
        owner = dict(world.nodes)[name].owner
        current = {world.campaign[0][1] if world.campaign else 0, world.rival[1] if world.rival else 0}
        if owner is None or owner.owner_rev not in current:
            return world, None
        checkpoint_ts = self._monotone(checkpoint_ts, world.checkpoint_ts)
        if checkpoint_ts == world.checkpoint_ts:
            return world, None
        if checkpoint_ts < world.checkpoint_ts:
            return world, (MONOTONE, f"the global checkpoint fell from {world.checkpoint_ts} to {checkpoint_ts}")
        for key in self.tables:
            own_ts = max([world.durable[key - 1], *written(world, key)])
            if own_ts < checkpoint_ts:
                return world, (LOST, f"the checkpoint is {checkpoint_ts}, table {key} is written up to {own_ts} only")
        return world._replace(checkpoint_ts=checkpoint_ts), None

    def _monotone(self, new_ts: int, known_ts: int) -> int:
        """Take no checkpoint below the one that is known, as a capture does."""
        return max(new_ts, known_ts)

    def code(self, world: SmallWorld) -> int:
        """Give a number that is the same for states that differ by names alone."""
        return self._structures.code(world, self.names, self._table_orders)


def _is_idle(told: tuple[Any, ...], world: SmallWorld) -> bool:
    """Whether a tick sends nothing and moves no watermark."""
    return all(isinstance(o, Watermarks) and o.checkpoint_ts in (None, world.checkpoint_ts) for o in told)


def _chooses(owner: DispatcherState, tick: Tick) -> bool:
    """Whether the order of equals can matter to a tick."""
    statuses = [owner.captures.get(c) for c in sorted(tick.captures)]  # those that left are forgotten first
    synced = all(status is not None and status.sync == "synced" for status in statuses)
    settled = tick.tables is owner.tables.wanted and not owner.tables.missing and not owner.needs_rebalance
    return synced and not (settled and tick.captures == owner.members)


# The explorer's shortest counterexample as a trace, so that the figures of a run show it, too.

_HAPPENS = {
    "crash": ("crashed", None, "a fault"), "restart": ("asked", "Restart", "a fault"),
    "join": ("started", None, "it joins"), "elect": ("asked", "elected", "etcd elects it"),
    "notices": ("asked", "session gone", "it notices that its session is gone"),
}  # fmt: skip


def retold(model: Small, found: Exploration) -> pa.Table:
    """Walk the way to a violation once more and write down what happens.

    ``model``: the world that was explored. ``found``: what :func:`ticdc_lab.simulate.explore.explore` gave for it; its
    ``path`` may be empty. Returns: :data:`ticdc_lab.simulate.trace.TRACE`, whose times are numbers of steps; it ends
    with a row ``violated``.
    """
    world, on_link, rows = model.start(), _Links(), [Row(0, 0, n, "started") for n in model.names]
    for number, action in enumerate(found.path, start=1):
        after = next(s.world for s in model.steps(world) if s.action == action)
        rows += (row._replace(step=number, time_us=number) for row in _rows(world, after, action, on_link))
        world = after
    last = len(found.path)
    if found.broken:
        invariant, because = found.broken
        at = found.path[-1].node or "etcd"
        rows.append(Row(last, last, at, "violated", subject=invariant, because=because))
    rows.append(Row(last, last, "", "stopped", because="an invariant is broken" if found.broken else "nothing is left"))
    return as_table("counterexample", rows)


class _Links:
    """What is on its way, in order, with the numbers of the messages."""

    def __init__(self) -> None:
        self.waiting: dict[tuple[str, str], deque[tuple[int, Any]]] = {}
        self.sent = 0

    def put(self, sender: str, to: str, message: Any) -> int:
        """Give a new message its number."""
        self.sent += 1
        self.waiting.setdefault((sender, to), deque()).append((self.sent, message))
        return self.sent


def _rows(before: SmallWorld, after: SmallWorld, action: Action, on_link: _Links) -> Iterator[Row]:
    """What one step writes; the step's number is put in later."""
    name = action.node
    if action.what in ("deliver", "lose"):
        yield _taken(before, action, on_link)
    elif action.what == "expire":
        yield Row(0, 0, name, "changed", subject="session", before=dict(before.campaign).get(name), because="it ends")
    elif action.what in _HAPPENS:
        kind, command, because = _HAPPENS[action.what]
        yield Row(0, 0, name, kind, message=command, because=because)
    yield from _changed(before, after)
    gone = [link for link in on_link.waiting if link[1] == name and action.what in ("crash", "notices")]
    for sender, to in gone:
        for number, message in on_link.waiting.pop((sender, to)):
            yield Row(0, 0, sender, "lost", to, message, number, because=f"{to} is down")
    for sender, to, messages in after.links:
        known = len(on_link.waiting.get((sender, to), ()))
        for message in messages[known:]:
            yield Row(0, 0, sender, "sent", to, message, on_link.put(sender, to, message))


def _taken(before: SmallWorld, action: Action, on_link: _Links) -> Row:
    """The first message of a link arrives or is lost."""
    number, message = on_link.waiting[action.peer, action.node].popleft()
    if action.what == "deliver" and dict(before.nodes)[action.node].agent is not None:
        return Row(0, 0, action.node, "received", action.peer, message, number)
    because = "the network lost it" if action.what == "lose" else f"{action.node} is down"
    return Row(0, 0, action.peer, "lost", action.node, message, number, because=because)


def _changed(before: SmallWorld, after: SmallWorld) -> Iterator[Row]:
    """Owners and tables that are others now."""
    for (name, old), (_, new) in zip(before.nodes, after.nodes, strict=True):
        was, now = _rev(old), _rev(new)
        if was != now:
            because = "it sees that it was elected" if now is not None else "it sees that it is no longer the owner"
            yield Row(0, 0, name, "changed", subject="owner", before=was, after=now, because=because)
        for table in range(1, len(before.durable) + 1):
            states = [state_of(n.agent.executor, table) if n.agent else None for n in (old, new)]
            if states[0] != states[1]:
                yield Row(0, 0, name, "changed", subject=f"table:{table}", before=states[0], after=states[1])


def _rev(node: SmallNode) -> int | None:
    return node.owner.owner_rev if node.owner is not None else None

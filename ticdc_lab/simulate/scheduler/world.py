"""A small world of the seed's protocol for the explorer: a few captures and tables, every order of events.

The owner's and the processors' machines are the ones that run in the kernel. Time is a few moments; etcd is one state
that captures look at when they come to it; links keep their order. What may happen is bounded by :class:`Bounds`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from itertools import permutations
from typing import Any, NamedTuple

from ticdc_lab.simulate.explore import Step
from ticdc_lab.simulate.machine import Asked, Broken, Changed, Now, Received, Send
from ticdc_lab.simulate.scheduler import executor as pipelines
from ticdc_lab.simulate.scheduler.agent import Agent, AgentState
from ticdc_lab.simulate.scheduler.balance import Balance
from ticdc_lab.simulate.scheduler.clock import ts_of
from ticdc_lab.simulate.scheduler.dispatcher import Dispatcher, DispatcherState
from ticdc_lab.simulate.scheduler.executor import MAX_TS, Pace
from ticdc_lab.simulate.scheduler.monitor import DOUBLE, LOST, MONOTONE
from ticdc_lab.simulate.scheduler.roles import Poll, Restart, Tick, Watermarks

AT_ONCE = Pace(prepare_us=0, stop_us=0, lag_us=0, catch_up=1000)


@dataclass(frozen=True, slots=True)
class Bounds:
    """What may happen in a small world.

    Attributes
    ----------
    captures, tables
        How many.
    moments
        How often the upstream goes on.
    owner_changes
        Elections while the old owner lives and does not know.
    crashes, restarts, lost, expiries, joins
        Captures that crash, processors that restart, messages lost, sessions that end while the capture lives
        (a partition or a pause), captures that come later.
    at_once
        A node's periodic call follows at once on what the node hears, so that only the network's delays are explored
        and not the node's own; far fewer states.
    stops_at_once
        The seed's assumption: a capture whose session ends writes no more. Without it, it writes until it notices.
    one_owner
        The seed's assumption: etcd never has two owners. Without it the old owner goes on hearing of new captures.
    """

    captures: int = 2
    tables: int = 2
    moments: int = 1
    owner_changes: int = 0
    crashes: int = 0
    restarts: int = 0
    lost: int = 0
    expiries: int = 0
    joins: int = 0
    at_once: bool = False
    stops_at_once: bool = True
    one_owner: bool = True


class Action(NamedTuple):
    """What happened: ``deliver`` from ``peer`` to ``node`` a ``message``, and so on."""

    what: str
    node: str
    peer: str = ""
    message: Any = None
    prefer: tuple[Any, ...] = ()


class Node(NamedTuple):
    """A capture: ``owner`` and ``sees`` (members, owner, owner-rev) are None before it knows; no ``agent``: down."""

    agent: AgentState | None
    owner: DispatcherState | None = None
    sees: tuple[frozenset[str], str, int] | None = None


class Left(NamedTuple):
    """What may still happen."""

    moments: int
    owner_changes: int
    crashes: int
    restarts: int
    lost: int
    expiries: int
    joins: int


class World(NamedTuple):
    """One state.

    Attributes
    ----------
    nodes
        By name, a tuple of pairs in the order of names.
    campaign
        Captures with a session, (name, revision), the owner first.
    rival
        The owner before it, where etcd has two.
    links
        (sender, receiver, messages) with something on its way.
    durable
        Up to where each table is written, of what has ended.
    """

    nodes: tuple[tuple[str, Node], ...]
    campaign: tuple[tuple[str, int], ...]
    revision: int
    rival: tuple[str, int] | None
    links: tuple[tuple[str, str, tuple[Any, ...]], ...]
    durable: tuple[int, ...]
    checkpoint_ts: int
    at_us: int
    left: Left


Naming = tuple[int, dict[str, int], dict[int, int]]
"""Its number, and the numbers of captures and of tables."""


class Small:
    """The model (:class:`ticdc_lab.simulate.explore.Model`).

    Parameters
    ----------
    bounds
        What may happen.
    dispatcher, agent
        The machines; mutants are explored as the real ones are.
    forgets_monotony, trusts_every_owner
        Planted bugs of what stands around them (:mod:`ticdc_lab.simulate.scheduler.mutants`).
    """

    def __init__(
        self,
        bounds: Bounds,
        dispatcher: Dispatcher | None = None,
        agent: Agent | None = None,
        *,
        forgets_monotony: bool = False,
        trusts_every_owner: bool = False,
    ) -> None:
        self.bounds = bounds
        self._forgets_monotony = forgets_monotony
        self._trusts_every_owner = trusts_every_owner
        self.names = tuple(f"capture-{i + 1}" for i in range(bounds.captures))
        self.tables = tuple(range(1, bounds.tables + 1))
        still = Balance(check_us=1 << 60)
        self.owner = replace(dispatcher or Dispatcher(), balance=still)
        self.agent = replace(agent or Agent(), pace=AT_ONCE)
        self._wanted = frozenset(self.tables)
        self._table_orders = tuple(permutations(self.tables))
        self._namings: dict[tuple[tuple[str, ...], tuple[int, ...]], Naming] = {}
        self._codes: dict[tuple[int, int], tuple[Any, int]] = {}
        self._orders = tuple((*c, *t) for c in permutations(self.names) for t in self._table_orders)

    def start(self) -> World:
        """All captures but the late ones have registered, and nobody knows of it."""
        b = self.bounds
        there = self.names[: len(self.names) - b.joins]
        fresh = self.agent.start("", Now(0))[0]
        nodes = tuple((n, Node(fresh._replace(address=n)) if n in there else Node(None)) for n in self.names)
        campaign = tuple((n, i + 1) for i, n in enumerate(there))
        left = Left(b.moments, b.owner_changes, b.crashes, b.restarts, b.lost, b.expiries, b.joins)
        start_ts = ts_of(0)
        return World(nodes, campaign, len(there), None, (), (start_ts,) * len(self.tables), start_ts, 0, left)

    # What can happen next

    def steps(self, world: World) -> Iterator[Step[World]]:
        """Give all that can happen next."""
        for step in self._single(world):
            if self.bounds.at_once and not step.broken and step.action.what in ("deliver", "looks", "restart"):
                yield from self._reacted(step)
            else:
                yield step

    def _reacted(self, step: Step[World]) -> Iterator[Step[World]]:
        """Let the node's periodic calls come at once."""
        action, world, _ = step
        node = dict(world.nodes)[action.node]
        if node.agent is None:
            yield step
            return
        polls = action.what == "restart" or hasattr(action.message, "owner_rev")
        found = self._polled(world, action.node, node) if polls else self._ticked(world, action.node, node)
        reactions = [Step(action._replace(prefer=then.prefer), after, broken) for then, after, broken in found]
        yield from reactions or [step]

    def _single(self, world: World) -> Iterator[Step[World]]:
        for name, node in world.nodes:
            if node.agent is None:
                continue
            yield from self._looked(world, name, node)
            yield from self._ticked(world, name, node)
            yield from self._polled(world, name, node)
        yield from self._delivered(world)
        yield from self._faults(world)
        if world.left.moments:
            left = world.left._replace(moments=world.left.moments - 1)
            yield Step(Action("time", ""), world._replace(at_us=world.at_us + 1000, left=left))

    def _looked(self, world: World, name: str, node: Node) -> Iterator[Step[World]]:
        """The capture sees what etcd holds now."""
        if name not in dict(world.campaign):
            if not self.bounds.stops_at_once:
                yield self._stopped(world, name, "notices")
            return
        owner, rev = world.rival if world.rival and world.rival[0] == name else world.campaign[0]
        sees = (frozenset(n for n, _ in world.campaign), owner, rev)
        if sees == node.sees or (owner != name and node.owner is None):
            return  # what others see changes nothing
        elected = node.owner
        if owner != name:
            elected = None
        elif elected is None or elected.owner_rev != rev:
            elected = self.owner.elected(name, rev, Now(0))[0]
        after = node._replace(owner=elected, sees=sees if elected else None)
        yield Step(Action("looks", name), _with(world, name, after))

    def _ticked(self, world: World, name: str, node: Node) -> Iterator[Step[World]]:
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
            yield self._carried_out(_with(world, name, node._replace(owner=state)), action, name, outputs)

    def _polled(self, world: World, name: str, node: Node) -> Iterator[Step[World]]:
        assert node.agent
        orders = self._table_orders if len(node.agent.operations) > 1 else ((),)
        for prefer in orders:
            now = Now(world.at_us, prefer=prefer)
            agent, outputs = self.agent.step(node.agent, Asked(Poll(MAX_TS)), now)
            if not outputs and agent == node.agent:
                continue
            action = Action("poll", name, prefer=prefer)
            yield self._moved(world, name, node, agent, outputs, action)

    def _delivered(self, world: World) -> Iterator[Step[World]]:
        for sender, to, messages in world.links:
            message, rest = messages[0], messages[1:]
            after = _on_link(world, sender, to, rest)
            if world.left.lost:
                left = world.left._replace(lost=world.left.lost - 1)
                yield Step(Action("lose", to, sender, message), after._replace(left=left))
            node = dict(world.nodes)[to]
            action = Action("deliver", to, sender, message)
            event, now = Received(sender, message), Now(world.at_us)
            if node.agent is None:
                yield Step(action, after)
            elif hasattr(message, "owner_rev"):
                agent, outputs = self.agent.step(node.agent, event, now)
                yield self._moved(after, to, node, agent, outputs, action)
            elif node.owner is None:
                yield Step(action, after)
            else:
                owner, told = self.owner.step(node.owner, event, now)
                yield self._carried_out(_with(after, to, node._replace(owner=owner)), action, to, told)

    def _faults(self, world: World) -> Iterator[Step[World]]:
        left = world.left
        sessions = dict(world.campaign)
        for name, node in world.nodes:
            if node.agent is None and name in sessions:
                yield Step(Action("expire", name), _without_session(world, name))
            if node.agent is None and left.joins and name not in sessions and not self._was(world, name):
                yield Step(Action("join", name), self._joined(world, name))
            if node.agent is None:
                continue
            if left.crashes:
                yield self._stopped(world._replace(left=left._replace(crashes=left.crashes - 1)), name, "crash")
            if left.restarts:
                after = world._replace(left=left._replace(restarts=left.restarts - 1))
                agent, outputs = self.agent.step(node.agent, Asked(Restart()), Now(world.at_us))
                yield self._moved(after, name, node, agent, outputs, Action("restart", name))
            if left.expiries and name in sessions:
                after = world._replace(left=left._replace(expiries=left.expiries - 1))
                if self.bounds.stops_at_once:
                    stopped = self._stopped(after, name, "expire")
                    yield stopped._replace(world=_without_session(stopped.world, name))
                else:
                    yield Step(Action("expire", name), _without_session(after, name))
        if left.owner_changes and len(world.campaign) > 1:
            yield Step(Action("elect", world.campaign[1][0]), self._elected(world))

    def _elected(self, world: World) -> World:
        """The next in the campaign is the owner; the old one campaigns again, or stays owner besides."""
        left = world.left._replace(owner_changes=world.left.owner_changes - 1)
        (old, rev), *others = world.campaign
        revision = world.revision + 1
        if self.bounds.one_owner:
            return world._replace(campaign=(*others, (old, revision)), revision=revision, left=left)
        (new, _), *rest = others
        return world._replace(
            campaign=((new, revision), (old, rev), *rest), rival=(old, rev), revision=revision, left=left
        )

    def _was(self, world: World, name: str) -> bool:
        return self.names.index(name) < len(self.names) - self.bounds.joins

    def _joined(self, world: World, name: str) -> World:
        revision = world.revision + 1
        agent = self.agent.start(name, Now(world.at_us))[0]
        world = world._replace(
            campaign=(*world.campaign, (name, revision)),
            revision=revision,
            left=world.left._replace(joins=world.left.joins - 1),
        )
        return _with(world, name, Node(agent))

    def _stopped(self, world: World, name: str, what: str) -> Step[World]:
        """The capture writes no more; what it has written stays."""
        node = dict(world.nodes)[name]
        assert node.agent
        durable = list(world.durable)
        for key, pipeline in node.agent.executor.pipelines.items():
            if pipeline.state in pipelines.WRITING:
                at = pipelines.checkpoint_of(node.agent.executor, key, world.at_us)
                durable[int(key) - 1] = max(durable[int(key) - 1], at)  # type: ignore[arg-type]
        links = tuple(link for link in world.links if link[1] != name)
        after = _with(world, name, Node(None))._replace(durable=tuple(durable), links=links)
        return Step(Action(what, name), after)

    # What comes of it

    def _moved(
        self, world: World, name: str, node: Node, agent: AgentState, outputs: list[Any], action: Action
    ) -> Step[World]:
        """Put a processor's new state into the world, and see whether a table is written twice, or with a gap."""
        before, broken = node.agent, None
        assert before
        for output in outputs:
            if isinstance(output, Changed) and output.subject.startswith("table:"):
                key = int(output.subject[6:])
                was, now = output.before in pipelines.WRITING, output.after in pipelines.WRITING
                if now and not was:
                    broken = broken or self._begins(world, name, key, agent)
                if was and not now:
                    durable = list(world.durable)
                    durable[key - 1] = max(durable[key - 1], pipelines.checkpoint_of(before.executor, key, world.at_us))
                    world = world._replace(durable=tuple(durable))
        if agent.owner != before.owner and not self.agent.obeys_stale_owner:
            world = _without_stale(world, name, agent)
        step = self._carried_out(_with(world, name, node._replace(agent=agent)), action, name, outputs)
        return step._replace(broken=broken or step.broken)

    def _begins(self, world: World, name: str, key: int, agent: AgentState) -> tuple[str, str] | None:
        others = self._writers(world, key, name)
        if others:
            return DOUBLE, f"{others[0]} and {name} both write table {key}"
        start_ts = agent.executor.pipelines[key].start_ts
        if start_ts > world.durable[key - 1]:
            return LOST, f"table {key} was written up to {world.durable[key - 1]}, {name} goes on from {start_ts} only"
        return None

    def _writers(self, world: World, key: int, but: str) -> list[str]:
        return [
            name
            for name, node in world.nodes
            if node.agent and name != but and pipelines.state_of(node.agent.executor, key) in pipelines.WRITING
        ]

    def _carried_out(self, world: World, action: Action, name: str, outputs: list[Any]) -> Step[World]:
        broken = None
        for output in outputs:
            if isinstance(output, Send):
                world = _sent(world, name, output)
            elif isinstance(output, Broken):
                broken = broken or (output.invariant, output.because)
            elif isinstance(output, Watermarks) and output.checkpoint_ts is not None:
                world, found = self._published(world, name, output.checkpoint_ts)
                broken = broken or found
        return Step(action, world, broken)

    def _published(self, world: World, name: str, checkpoint_ts: int) -> tuple[World, tuple[str, str] | None]:
        """The owner persists the checkpoint, if etcd still takes it for the owner."""
        owner = dict(world.nodes)[name].owner
        current = {world.campaign[0][1] if world.campaign else 0, world.rival[1] if world.rival else 0}
        if owner is None or (owner.owner_rev not in current and not self._trusts_every_owner):
            return world, None
        if not self._forgets_monotony:
            checkpoint_ts = max(checkpoint_ts, world.checkpoint_ts)  # as a capture does
        if checkpoint_ts == world.checkpoint_ts:
            return world, None
        if checkpoint_ts < world.checkpoint_ts:
            return world, (MONOTONE, f"the global checkpoint fell from {world.checkpoint_ts} to {checkpoint_ts}")
        for key in self.tables:
            own_ts = max([world.durable[key - 1], *self._written(world, key)])
            if own_ts < checkpoint_ts:
                return world, (LOST, f"the checkpoint is {checkpoint_ts}, table {key} is written up to {own_ts} only")
        return world._replace(checkpoint_ts=checkpoint_ts), None

    def _written(self, world: World, key: int) -> list[int]:
        agents = [node.agent for _, node in world.nodes if node.agent]
        return [
            pipelines.checkpoint_of(a.executor, key, world.at_us)
            for a in agents
            if pipelines.state_of(a.executor, key) in pipelines.WRITING
        ]

    def code(self, world: World) -> int:
        """Give the lowest hash over the namings of tables; captures are named by their place in the campaign."""
        order = tuple(n for n, _ in world.campaign)
        captures = (*order, *(n for n in self.names if n not in order))
        return min(self._code(world, captures, tables) for tables in self._table_orders)

    def _code(self, world: World, captures: tuple[str, ...], tables: tuple[int, ...]) -> int:
        naming = self._naming(captures, tables)
        _, name, table = naming
        nodes = sorted((name[n], self._part(node, _node, naming)) for n, node in world.nodes)
        on_way = sorted((name[s], name[t], self._part(m, _messages, naming)) for s, t, m in world.links)
        durable = sorted((table[key + 1], ts) for key, ts in enumerate(world.durable))
        revisions = tuple(rev for _, rev in world.campaign)
        rival = (name[world.rival[0]], world.rival[1]) if world.rival else ()
        rest = (world.checkpoint_ts, world.at_us, world.left)
        return hash((tuple(nodes), revisions, rival, tuple(on_way), tuple(durable), rest))

    def _naming(self, captures: tuple[str, ...], tables: tuple[int, ...]) -> Naming:
        known = self._namings.get((captures, tables))
        if known is None:
            name, table = {n: i for i, n in enumerate(captures)}, {k: i for i, k in enumerate(tables)}
            known = self._namings[captures, tables] = (len(self._namings), name, table)
        return known

    def _part(self, part: Any, write: Callable[[Any, dict[str, int], dict[int, int]], int], naming: Naming) -> int:
        """Give a number of a part of a world; worlds share parts, so the numbers are kept by identity."""
        number, name, table = naming
        known = self._codes.get((id(part), number))
        if known is None or known[0] is not part:
            if len(self._codes) > 2_000_000:
                self._codes.clear()
            known = self._codes[id(part), number] = (part, write(part, name, table))
        return known[1]


def _is_idle(told: tuple[Any, ...], world: World) -> bool:
    """Whether a tick sends nothing and moves no watermark."""
    return all(isinstance(o, Watermarks) and o.checkpoint_ts in (None, world.checkpoint_ts) for o in told)


def _chooses(owner: DispatcherState, tick: Tick) -> bool:
    """Whether the order of equals can matter to a tick."""
    statuses = [owner.captures.get(c) for c in sorted(tick.captures)]  # those that left are forgotten first
    synced = all(status is not None and status.sync == "synced" for status in statuses)
    settled = tick.tables is owner.tables.wanted and not owner.tables.missing and not owner.needs_rebalance
    return synced and not (settled and tick.captures == owner.members)


def _with(world: World, name: str, node: Node) -> World:
    return world._replace(nodes=tuple((n, node if n == name else old) for n, old in world.nodes))


def _without_session(world: World, name: str) -> World:
    rival = None if world.rival and world.rival[0] == name else world.rival
    return world._replace(
        campaign=tuple(c for c in world.campaign if c[0] != name), revision=world.revision + 1, rival=rival
    )


def _without_stale(world: World, to: str, agent: AgentState) -> World:
    """Drop messages that a processor will ignore whenever they come: of an owner below the one that it obeys."""
    rev = agent.owner.rev if agent.owner else 0
    links = []
    for link in world.links:
        sender, receiver, messages = link
        if receiver == to and any(getattr(m, "owner_rev", rev) < rev for m in messages):
            messages = tuple(m for m in messages if getattr(m, "owner_rev", rev) >= rev)
            link = (sender, receiver, messages)
        if messages:
            links.append(link)
    return world._replace(links=tuple(links))


def _sent(world: World, sender: str, send: Send) -> World:
    on_way = next((m for s, t, m in world.links if (s, t) == (sender, send.to)), ())
    return _on_link(world, sender, send.to, (*on_way, send.message))


def _on_link(world: World, sender: str, to: str, messages: tuple[Any, ...]) -> World:
    others = [link for link in world.links if link[:2] != (sender, to)]
    if messages:
        others.append((sender, to, messages))
    return world._replace(links=tuple(sorted(others, key=lambda link: link[:2])))


def _node(node: Node, name: dict[str, int], table: dict[int, int]) -> int:
    if node.agent is None:
        return 0
    agent, owner = node.agent, node.owner
    executor = agent.executor
    owned: tuple[Any, ...] = ()
    if owner is not None:
        captures = sorted(
            (name[c], _NUMBER[s.sync], s.checkpoint_ts, s.resolved_ts, s.epoch) for c, s in owner.captures.items()
        )
        records = sorted(
            (table[k], name[r.capture], _NUMBER[r.status], r.start_ts or 0)  # type: ignore[index]
            for k, r in owner.tables.records.items()
        )
        moves = sorted((table[k], name[m.to], m.removed) for k, m in owner.moves.items())  # type: ignore[index]
        members = sorted(name[m] for m in owner.members) if owner.members is not None else [-1]
        owned = (
            owner.owner_rev, tuple(captures), tuple(records), tuple(moves), owner.needs_rebalance, tuple(members),
            len(owner.tables.wanted),
        )  # fmt: skip
    sees = (tuple(sorted(name[n] for n in node.sees[0])), name[node.sees[1]], node.sees[2]) if node.sees else ()
    held = sorted(
        (table[k], _NUMBER[p.state], p.start_ts, p.since_us, p.due_us, k in executor.behind)  # type: ignore[index]
        for k, p in executor.pipelines.items()
    )
    operations = sorted((table[k], o.is_delete, o.start_ts) for k, o in agent.operations.items())  # type: ignore[index]
    obeys = (name[agent.owner.address], agent.owner.rev) if agent.owner else ()
    return hash(
        (agent.epoch, obeys, agent.owes_sync, tuple(operations), tuple(held), agent.reported or (), owned, sees)
    )


def _messages(messages: tuple[Any, ...], name: dict[str, int], table: dict[int, int]) -> int:
    return hash(tuple(_message(m, table) for m in messages))


def _message(message: Any, table: dict[int, int]) -> tuple[Any, ...]:
    fields: list[Any] = [_NUMBER[type(message).__name__]]
    for field, value in zip(message._fields, message, strict=True):
        if field == "id":
            fields.append(table[value])
        elif isinstance(value, tuple):
            fields.append(tuple(sorted(table[k] for k in value)))
        elif field not in ("owner_version", "processor_version", "slowest"):
            fields.append(value)
    return tuple(fields)


_NUMBER = {
    word: i
    for i, word in enumerate(
        (
            "uninitialized", "sync-sent", "synced", "incompatible", "adding", "running", "removing", "preparing",
            "prepared", "replicating", "stopping", "Announce", "DispatchTable", "DispatchTableResponse", "Sync",
            "Checkpoint",
        )
    )
}  # fmt: skip

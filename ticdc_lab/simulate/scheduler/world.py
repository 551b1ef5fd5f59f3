"""What a small world of the design's protocol (v2) is, and what may happen in it (:mod:`.small` explores it).

Time is a few moments; etcd is one state that captures look at when they come to it; links keep their order. What may
happen is bounded by :class:`Bounds`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import permutations
from typing import Any, NamedTuple

from ticdc_lab.machines.machine import Send, stepped
from ticdc_lab.simulate.explore import WorldStep
from ticdc_lab.simulate.scheduler import executor as pipelines
from ticdc_lab.simulate.scheduler.agent import AgentState
from ticdc_lab.simulate.scheduler.dispatcher_state import DispatcherState
from ticdc_lab.simulate.scheduler.monitor import DOUBLE, LOST


@dataclass(frozen=True, slots=True)
class Bounds:
    """What may happen in a small world."""

    # How many.
    captures: int = 2
    tables: int = 2
    moments: int = 1  # how often the upstream advances
    owner_changes: int = 0  # elections while the old owner lives and does not know
    # Captures that crash, processors that restart, messages lost, sessions that end while the capture lives (a
    # partition or a pause), captures that come later.
    crashes: int = 0
    restarts: int = 0
    lost: int = 0
    expiries: int = 0
    joins: int = 0
    doubled: int = 0  # announces that come twice
    moves: int = 0  # tables that a user wants elsewhere; with a coordinator the maintainer on a node, or a node drained
    on_way: int = 1  # of v3 and v4: a periodic call waits while so many messages are on one link
    # Each kind of message of an owner is a topic of its own, as in TiCDC: announcements and orders may overtake each
    # other. Processors wait until a Sync is acknowledged, so their messages stay in order.
    topics: bool = False
    coordinator: bool = False  # of v4: who is elected is the coordinator, and the maintainer is on any node
    # A node's periodic call follows at once on what the node hears, so that only the network's delays are explored and
    # not the node's own; far fewer states.
    at_once: bool = False
    # The design's assumption: a capture whose session ends writes no more. Without it, it writes until it notices.
    stops_at_once: bool = True
    # The design's assumption: etcd never has two owners. Without it the old owner keeps hearing of new captures.
    one_owner: bool = True


class Action(NamedTuple):
    """What happened: ``deliver`` from ``peer`` to ``node`` a ``message``, and so on."""

    what: str
    node: str
    peer: str = ""
    message: Any = None
    prefer: tuple[Any, ...] = ()


@stepped
class SmallNode(NamedTuple):
    """A capture: its processor (``agent``) and its owner, states of the variant's machines; no ``agent``: it is down.

    ``owner`` and ``sees`` (members, owner, owner-rev) are None before it knows.
    """

    agent: Any | None
    owner: Any | None = None
    sees: tuple[frozenset[str], str, int] | None = None


class BudgetLeft(NamedTuple):
    """What may still happen."""

    moments: int
    owner_changes: int
    crashes: int
    restarts: int
    lost: int
    expiries: int
    joins: int
    doubled: int
    moves: int


@stepped
class SmallWorld(NamedTuple):
    """One state."""

    nodes: tuple[tuple[str, SmallNode], ...]  # by name, a tuple of pairs in the order of names
    campaign: tuple[tuple[str, int], ...]  # captures with a session, (name, revision), the owner first
    revision: int
    rival: tuple[str, int] | None  # the owner before it, where etcd has two
    links: tuple[tuple[str, str, tuple[Any, ...]], ...]  # (sender, receiver, messages) with something on its way
    durable: tuple[int, ...]  # up to where each table is written, of what has ended
    checkpoint_ts: int
    at_us: int
    left: BudgetLeft


def with_node(world: SmallWorld, name: str, node: SmallNode) -> SmallWorld:
    """Give the world with another state of a capture."""
    return world._replace(nodes=tuple((n, node if n == name else old) for n, old in world.nodes))


def without_session(world: SmallWorld, name: str) -> SmallWorld:
    """Give the world in which etcd has ended a session."""
    rival = None if world.rival and world.rival[0] == name else world.rival
    return world._replace(
        campaign=tuple(c for c in world.campaign if c[0] != name), revision=world.revision + 1, rival=rival
    )


def without_stale(world: SmallWorld, to: str, agent: AgentState) -> SmallWorld:
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


def sent(world: SmallWorld, sender: str, send: Send) -> SmallWorld:
    """Give the world with one more message on its way."""
    on_way = next((m for s, t, m in world.links if (s, t) == (sender, send.to)), ())
    return on_link(world, sender, send.to, (*on_way, send.message))


def on_link(world: SmallWorld, sender: str, to: str, messages: tuple[Any, ...]) -> SmallWorld:
    """Give the world with other messages on a link."""
    others = [link for link in world.links if link[:2] != (sender, to)]
    if messages:
        others.append((sender, to, messages))
    return world._replace(links=tuple(sorted(others, key=lambda link: link[:2])))


def elected(world: SmallWorld, bounds: Bounds) -> SmallWorld:
    """The next in the campaign is the owner; the old one campaigns again, or stays owner besides."""
    left = world.left._replace(owner_changes=world.left.owner_changes - 1)
    (old, rev), *others = world.campaign
    revision = world.revision + 1
    if bounds.one_owner:
        return world._replace(campaign=(*others, (old, revision)), revision=revision, left=left)
    (new, _), *rest = others
    return world._replace(campaign=((new, revision), (old, rev), *rest), rival=(old, rev), revision=revision, left=left)


def stopped(world: SmallWorld, name: str, what: str) -> WorldStep[SmallWorld]:
    """The capture writes no more; what it has written stays."""
    node = dict(world.nodes)[name]
    assert node.agent
    durable = list(world.durable)
    for key, pipeline in node.agent.executor.pipelines.items():
        if pipeline.state in pipelines.WRITING:
            at = pipelines.checkpoint_of(node.agent.executor, key, world.at_us)
            durable[int(key) - 1] = max(durable[int(key) - 1], at)
    links = tuple(link for link in world.links if link[1] != name)
    after = with_node(world, name, SmallNode(None))._replace(durable=tuple(durable), links=links)
    return WorldStep(Action(what, name), after)


def begins(world: SmallWorld, name: str, key: int, agent: AgentState) -> tuple[str, str] | None:
    """See whether a capture that begins to write a table may do so."""
    others = _writers(world, key, name)
    if others:
        return DOUBLE, f"{others[0]} and {name} both write table {key}"
    start_ts = agent.executor.pipelines[key].start_ts
    if start_ts > world.durable[key - 1]:
        return LOST, f"table {key} was written up to {world.durable[key - 1]}, {name} resumes from {start_ts} only"
    return None


def _writers(world: SmallWorld, key: int, but: str) -> list[str]:
    return [
        name
        for name, node in world.nodes
        if node.agent and name != but and pipelines.state_of(node.agent.executor, key) in pipelines.WRITING
    ]


def written(world: SmallWorld, key: int) -> list[int]:
    """Give how far those that write a table have come."""
    agents = [node.agent for _, node in world.nodes if node.agent]
    return [
        pipelines.checkpoint_of(a.executor, key, world.at_us)
        for a in agents
        if pipelines.state_of(a.executor, key) in pipelines.WRITING
    ]


# Numbers of states of a small world: the same for states that differ by the names of captures and tables alone.

Naming = tuple[int, dict[str, int], dict[Any, int]]
"""Its number, and the numbers of captures and of tables."""


class Codes:
    """Numbers of the states of one world. ``names``, ``tables``: all there are."""

    def __init__(self, names: tuple[str, ...], tables: tuple[int, ...]) -> None:
        self.names = names
        self._table_orders = tuple(permutations(tables))
        self._namings: dict[tuple[tuple[str, ...], tuple[int, ...]], Naming] = {}
        self._codes: dict[tuple[int, int], tuple[Any, int]] = {}

    def code(self, world: SmallWorld) -> int:
        """Give the lowest hash over the namings of tables; captures are named by their place in the campaign."""
        order = tuple(n for n, _ in world.campaign)
        captures = (*order, *(n for n in self.names if n not in order))
        return min(self._code(world, captures, tables) for tables in self._table_orders)

    def _code(self, world: SmallWorld, captures: tuple[str, ...], tables: tuple[int, ...]) -> int:
        naming = self._naming(captures, tables)
        _, name, table = naming
        nodes = sorted((name[n], self._part(node, self._node, naming)) for n, node in world.nodes)
        on_way = sorted((name[s], name[t], self._part(m, self._messages, naming)) for s, t, m in world.links)
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

    def _part(self, part: Any, write: Callable[[Any, Naming], int], naming: Naming) -> int:
        """Give a number of a part of a world; worlds share parts, so the numbers are kept by identity."""
        if part is None:
            return 0
        key = (id(part), naming[0])
        known = self._codes.get(key)
        if known is None or known[0] is not part:
            if len(self._codes) > 2_000_000:
                self._codes.clear()
            known = self._codes[key] = (part, write(part, naming))
        return known[1]

    def _node(self, node: SmallNode, naming: Naming) -> int:
        parts = ((node.agent, _agent), (node.owner, _owner), (node.sees, _sees))
        return hash(tuple([self._part(part, write, naming) for part, write in parts]))

    def _messages(self, messages: tuple[Any, ...], naming: Naming) -> int:
        return hash(tuple([self._part(message, _message, naming) for message in messages]))


def _agent(agent: AgentState, naming: Naming) -> int:
    _, name, table = naming
    executor = agent.executor
    held = sorted(
        (table[k], _NUMBER[p.state], p.start_ts, p.since_us, p.due_us, k in executor.behind)
        for k, p in executor.pipelines.items()
    )
    operations = sorted((table[k], o.is_delete, o.start_ts) for k, o in agent.operations.items())
    obeys = (name[agent.owner.address], agent.owner.rev) if agent.owner else ()
    return hash((agent.epoch, obeys, agent.owes_sync, tuple(operations), tuple(held), agent.reported or ()))


def _owner(owner: DispatcherState, naming: Naming) -> int:
    _, name, table = naming
    captures = sorted(
        (name[c], _NUMBER[s.sync], s.checkpoint_ts, s.resolved_ts, s.epoch) for c, s in owner.captures.items()
    )
    records = sorted(
        (table[k], name[r.capture], _NUMBER[r.status], r.start_ts or 0) for k, r in owner.tables.records.items()
    )
    moves = sorted((table[k], name[m.to], m.removed) for k, m in owner.moves.items())
    members = sorted(name[m] for m in owner.members) if owner.members is not None else [-1]
    return hash(
        (
            owner.owner_rev, tuple(captures), tuple(records), tuple(moves), owner.needs_rebalance, tuple(members),
            len(owner.tables.wanted),
        )
    )  # fmt: skip


def _sees(sees: tuple[frozenset[str], str, int], naming: Naming) -> int:
    captures, owner, rev = sees
    name = naming[1]
    return hash((tuple(sorted([name[n] for n in captures])), name[owner], rev))


def _message(message: Any, naming: Naming) -> int:
    table = naming[2]
    fields: list[Any] = [_NUMBER[type(message).__name__]]
    for field, value in zip(message._fields, message, strict=True):
        if field == "id":
            fields.append(table[value])
        elif isinstance(value, tuple):
            fields.append(tuple(sorted(table[k] for k in value)))
        elif field not in ("owner_version", "processor_version", "slowest"):
            fields.append(value)
    return hash(tuple(fields))


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

"""What a small world of the design's protocol (v2) is, and what may happen in it (:mod:`.small` explores it).

Time is a few moments; etcd is one state that captures look at when they come to it; links keep their order. What may
happen is bounded by :class:`Bounds`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

from ticdc_lab.simulate.explore import Step
from ticdc_lab.simulate.machine import Send
from ticdc_lab.simulate.scheduler import executor as pipelines
from ticdc_lab.simulate.scheduler.agent import AgentState
from ticdc_lab.simulate.scheduler.monitor import DOUBLE, LOST


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
    doubled
        Announces that come twice.
    moves
        Tables that a user wants elsewhere.
    on_way
        Of v3 and v4: a periodic call waits while so many messages are on one link.
    topics
        Each kind of message of an owner is a topic of its own, as in TiCDC: announcements and orders may overtake each
        other. Processors wait until a Sync is acknowledged, so what they say stays in order.
    at_once
        A node's periodic call follows at once on what the node hears, so that only the network's delays are explored
        and not the node's own; far fewer states.
    stops_at_once
        The design's assumption: a capture whose session ends writes no more. Without it, it writes until it notices.
    one_owner
        The design's assumption: etcd never has two owners. Without it the old owner goes on hearing of new captures.
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
    doubled: int = 0
    moves: int = 0
    on_way: int = 1
    topics: bool = False
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
    """A capture: its processor (``agent``) and its owner, states of the variant's machines; no ``agent``: it is down.

    ``owner`` and ``sees`` (members, owner, owner-rev) are None before it knows.
    """

    agent: Any | None
    owner: Any | None = None
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
    doubled: int
    moves: int


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


def with_node(world: World, name: str, node: Node) -> World:
    """Give the world with another state of a capture."""
    return world._replace(nodes=tuple((n, node if n == name else old) for n, old in world.nodes))


def without_session(world: World, name: str) -> World:
    """Give the world in which etcd has ended a session."""
    rival = None if world.rival and world.rival[0] == name else world.rival
    return world._replace(
        campaign=tuple(c for c in world.campaign if c[0] != name), revision=world.revision + 1, rival=rival
    )


def without_stale(world: World, to: str, agent: AgentState) -> World:
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


def sent(world: World, sender: str, send: Send) -> World:
    """Give the world with one more message on its way."""
    on_way = next((m for s, t, m in world.links if (s, t) == (sender, send.to)), ())
    return on_link(world, sender, send.to, (*on_way, send.message))


def on_link(world: World, sender: str, to: str, messages: tuple[Any, ...]) -> World:
    """Give the world with other messages on a link."""
    others = [link for link in world.links if link[:2] != (sender, to)]
    if messages:
        others.append((sender, to, messages))
    return world._replace(links=tuple(sorted(others, key=lambda link: link[:2])))


def elected(world: World, bounds: Bounds) -> World:
    """The next in the campaign is the owner; the old one campaigns again, or stays owner besides."""
    left = world.left._replace(owner_changes=world.left.owner_changes - 1)
    (old, rev), *others = world.campaign
    revision = world.revision + 1
    if bounds.one_owner:
        return world._replace(campaign=(*others, (old, revision)), revision=revision, left=left)
    (new, _), *rest = others
    return world._replace(campaign=((new, revision), (old, rev), *rest), rival=(old, rev), revision=revision, left=left)


def stopped(world: World, name: str, what: str) -> Step[World]:
    """The capture writes no more; what it has written stays."""
    node = dict(world.nodes)[name]
    assert node.agent
    durable = list(world.durable)
    for key, pipeline in node.agent.executor.pipelines.items():
        if pipeline.state in pipelines.WRITING:
            at = pipelines.checkpoint_of(node.agent.executor, key, world.at_us)
            durable[int(key) - 1] = max(durable[int(key) - 1], at)
    links = tuple(link for link in world.links if link[1] != name)
    after = with_node(world, name, Node(None))._replace(durable=tuple(durable), links=links)
    return Step(Action(what, name), after)


def begins(world: World, name: str, key: int, agent: AgentState) -> tuple[str, str] | None:
    """See whether a capture that begins to write a table may do so."""
    others = _writers(world, key, name)
    if others:
        return DOUBLE, f"{others[0]} and {name} both write table {key}"
    start_ts = agent.executor.pipelines[key].start_ts
    if start_ts > world.durable[key - 1]:
        return LOST, f"table {key} was written up to {world.durable[key - 1]}, {name} goes on from {start_ts} only"
    return None


def _writers(world: World, key: int, but: str) -> list[str]:
    return [
        name
        for name, node in world.nodes
        if node.agent and name != but and pipelines.state_of(node.agent.executor, key) in pipelines.WRITING
    ]


def written(world: World, key: int) -> list[int]:
    """Give how far those that write a table have come."""
    agents = [node.agent for _, node in world.nodes if node.agent]
    return [
        pipelines.checkpoint_of(a.executor, key, world.at_us)
        for a in agents
        if pipelines.state_of(a.executor, key) in pipelines.WRITING
    ]

"""What a small world of the design's protocol (v2) is, and what may happen in it (:mod:`.small` explores it).

Time is a few moments; etcd is one state that captures look at when they come to it; links keep their order. What may
happen is bounded by :class:`Bounds`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields, is_dataclass
from typing import Any, NamedTuple

from ticdc_lab.machines.machine import Send, stepped
from ticdc_lab.simulate.explore import WorldStep
from ticdc_lab.simulate.scheduler import executor as pipelines
from ticdc_lab.simulate.scheduler.agent import AgentState
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
    others = [
        other
        for other, node in world.nodes
        if node.agent and other != name and pipelines.state_of(node.agent.executor, key) in pipelines.WRITING
    ]
    if others:
        return DOUBLE, f"{others[0]} and {name} both write table {key}"
    start_ts = agent.executor.pipelines[key].start_ts
    if start_ts > world.durable[key - 1]:
        return LOST, f"table {key} was written up to {world.durable[key - 1]}, {name} resumes from {start_ts} only"
    return None


def written(world: SmallWorld, key: int) -> list[int]:
    """Give how far those that write a table have come."""
    agents = [node.agent for _, node in world.nodes if node.agent]
    return [
        pipelines.checkpoint_of(a.executor, key, world.at_us)
        for a in agents
        if pipelines.state_of(a.executor, key) in pipelines.WRITING
    ]


# Numbers of states of a small world: the same for states that differ by names of captures and tables, or in what does
# not count, alone.

_MOST_KNOWN = 1_000_000
"""So many values are kept for a naming; what is let go is looked at again."""
_OF_TABLES = ("id", "running", "adding", "removing")
"""Fields of v2's messages that name tables."""


class Naming:
    """The numbers of captures and of tables, by their places; ``known`` has the numbers of values under it."""

    def __init__(self, captures: tuple[str, ...], tables: tuple[int, ...]) -> None:
        self.capture = {name: place for place, name in enumerate(captures)}
        self.table = {table: place for place, table in enumerate(tables)}
        self.known: dict[int, tuple[Any, int]] = {}


class Structures:
    """Numbers of values of named tuples, dataclasses, maps, sets and atoms.

    ``dropped``: (name of the class, field) that do not count: counters of messages on links that keep their order, and
    words.

    States share most of what they hold, at every depth: each value is looked at once for each naming, and its number
    kept by identity.
    """

    def __init__(self, dropped: frozenset[tuple[str, str]]) -> None:
        self._dropped = dropped
        self._fields: dict[type, tuple[str, ...] | None] = {}
        self._namings: dict[tuple[tuple[str, ...], tuple[int, ...]], Naming] = {}

    def code(self, world: SmallWorld, names: tuple[str, ...], tables: Iterable[tuple[int, ...]]) -> int:
        """Give the lowest number over orders of tables; captures are named by their place in the campaign."""
        order = tuple(n for n, _ in world.campaign)
        captures = (*order, *(n for n in names if n not in order))
        return min(self._code(world, captures, one) for one in tables)

    def _code(self, world: SmallWorld, captures: tuple[str, ...], tables: tuple[int, ...]) -> int:
        naming = self._naming(captures, tables)
        name, table = naming.capture, naming.table
        nodes = sorted((name[n], self._number(node, naming)) for n, node in world.nodes)
        on_way = sorted((name[s], name[t], self._number(m, naming)) for s, t, m in world.links)
        durable = sorted((table[key + 1], ts) for key, ts in enumerate(world.durable))
        revisions = tuple(rev for _, rev in world.campaign)
        rival = (name[world.rival[0]], world.rival[1]) if world.rival else ()
        rest = (world.checkpoint_ts, world.at_us, world.left)
        return hash((tuple(nodes), revisions, rival, tuple(on_way), tuple(durable), rest))

    def number(self, value: Any, captures: tuple[str, ...]) -> int:
        """Give the number of a value; captures are called by their places."""
        return self._number(value, self._naming(captures, ()))

    def _naming(self, captures: tuple[str, ...], tables: tuple[int, ...]) -> Naming:
        found = self._namings.get((captures, tables))
        if found is None:
            found = self._namings[captures, tables] = Naming(captures, tables)
        if len(found.known) > _MOST_KNOWN:
            found.known.clear()
        return found

    def _number(self, value: Any, naming: Naming) -> int:
        kind = type(value)
        if kind is int or kind is bool or value is None:
            return hash((kind.__name__, value))
        if kind is str:
            return hash(("capture", naming.capture[value])) if value in naming.capture else hash(value)
        kept = naming.known.get(id(value))
        if kept is not None and kept[0] is value:
            return kept[1]
        own = self._fields[kind] if kind in self._fields else self._learned(kind, value)
        if own is not None:
            numbers = [
                (self._key if field in _OF_TABLES else self._number)(getattr(value, field), naming) for field in own
            ]
            found = hash((kind.__name__, *numbers))
        elif isinstance(value, tuple):
            found = hash(tuple([self._number(one, naming) for one in value]))
        elif isinstance(value, Mapping):
            pairs = [(self._key(key, naming), self._number(one, naming)) for key, one in value.items()]
            found = hash(("map", frozenset(pairs)))
        elif isinstance(value, frozenset):
            found = hash(("set", frozenset([self._key(one, naming) for one in value])))
        else:
            raise TypeError(f"a state contains a {kind.__name__}, which has no number")
        naming.known[id(value)] = (value, found)
        return found

    def _key(self, value: Any, naming: Naming) -> int:
        """Give the number of a key, or of several in any order; one of the tables is called by its place."""
        if type(value) is tuple:
            return hash(frozenset([self._key(one, naming) for one in value]))
        return hash(("table", naming.table[value])) if value in naming.table else self._number(value, naming)

    def _learned(self, kind: type, value: Any) -> tuple[str, ...] | None:
        if is_dataclass(value):
            found: tuple[str, ...] | None = tuple(field.name for field in fields(value))
        else:
            found = getattr(kind, "_fields", None)
        if found is not None:
            found = tuple(field for field in found if (kind.__name__, field) not in self._dropped)
        self._fields[kind] = found
        return found

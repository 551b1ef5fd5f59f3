"""Numbers of states of a small world: the same for states that differ by the names of captures and tables alone."""

from __future__ import annotations

from collections.abc import Callable
from itertools import permutations
from typing import Any

from ticdc_lab.simulate.scheduler.world import Node, World

Naming = tuple[int, dict[str, int], dict[int, int]]
"""Its number, and the numbers of captures and of tables."""


class Codes:
    """Numbers of the states of one world.

    Parameters
    ----------
    names, tables
        All there are.
    """

    def __init__(self, names: tuple[str, ...], tables: tuple[int, ...]) -> None:
        self.names = names
        self._table_orders = tuple(permutations(tables))
        self._namings: dict[tuple[tuple[str, ...], tuple[int, ...]], Naming] = {}
        self._codes: dict[tuple[int, int], tuple[Any, int]] = {}

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
            (table[k], name[r.capture], _NUMBER[r.status], r.start_ts or 0) for k, r in owner.tables.records.items()
        )
        moves = sorted((table[k], name[m.to], m.removed) for k, m in owner.moves.items())
        members = sorted(name[m] for m in owner.members) if owner.members is not None else [-1]
        owned = (
            owner.owner_rev, tuple(captures), tuple(records), tuple(moves), owner.needs_rebalance, tuple(members),
            len(owner.tables.wanted),
        )  # fmt: skip
    sees = (tuple(sorted(name[n] for n in node.sees[0])), name[node.sees[1]], node.sees[2]) if node.sees else ()
    held = sorted(
        (table[k], _NUMBER[p.state], p.start_ts, p.since_us, p.due_us, k in executor.behind)
        for k, p in executor.pipelines.items()
    )
    operations = sorted((table[k], o.is_delete, o.start_ts) for k, o in agent.operations.items())
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

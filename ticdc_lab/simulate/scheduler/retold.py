"""The explorer's shortest counterexample as a trace, so that the figures of a run show it, too."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import Any

import pyarrow as pa

from ticdc_lab.simulate.explore import Exploration
from ticdc_lab.simulate.scheduler.executor import state_of
from ticdc_lab.simulate.scheduler.small import Small
from ticdc_lab.simulate.scheduler.world import Action, Node, World
from ticdc_lab.simulate.trace import Row, as_table

_HAPPENS = {
    "crash": ("crashed", None, "a fault"), "restart": ("asked", "Restart", "a fault"),
    "join": ("started", None, "it joins"), "elect": ("asked", "elected", "etcd elects it"),
    "notices": ("asked", "session gone", "it notices that its session is gone"),
}  # fmt: skip


def retold(model: Small, found: Exploration) -> pa.Table:
    """Walk the way to a violation once more and write down what happens.

    Parameters
    ----------
    model
        The world that was explored.
    found
        What :func:`ticdc_lab.simulate.explore.explore` gave for it; its ``path`` may be empty.

    Returns
    -------
    pa.Table
        :data:`ticdc_lab.simulate.trace.TRACE`, whose times are numbers of steps; it ends with a row ``violated``.
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


def _rows(before: World, after: World, action: Action, on_link: _Links) -> Iterator[Row]:
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


def _taken(before: World, action: Action, on_link: _Links) -> Row:
    """The first message of a link arrives or is lost."""
    number, message = on_link.waiting[action.peer, action.node].popleft()
    if action.what == "deliver" and dict(before.nodes)[action.node].agent is not None:
        return Row(0, 0, action.node, "received", action.peer, message, number)
    because = "the network lost it" if action.what == "lose" else f"{action.node} is down"
    return Row(0, 0, action.peer, "lost", action.node, message, number, because=because)


def _changed(before: World, after: World) -> Iterator[Row]:
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


def _rev(node: Node) -> int | None:
    return node.owner.owner_rev if node.owner is not None else None

"""What can go wrong at a given moment: nodes, links, messages, clocks; and faults drawn by a seed."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypeAlias

from ticdc_lab.simulate.network import Link


class Crash(NamedTuple):
    """A node is down from now on: its timers stop, and what is sent to it is lost."""

    at_us: int
    node: str


class Join(NamedTuple):
    """A node that was not there starts now; one with such a fault does not start with the others."""

    at_us: int
    node: str


KEPT, TORN, LOST = "kept", "torn", "lost"
DISKS = (KEPT, TORN, LOST)
"""What a machine that keeps state on a disk (:class:`ticdc_lab.simulate.machine.OnDisk`) finds of it: all; all but its
last write, which it knows to be broken; nothing."""


class Restart(NamedTuple):
    """A node that is down comes back: with its state and its address, or as a new process under a new address.

    ``disk`` is of :data:`DISKS`; a node without a disk begins empty whatever it says.
    """

    at_us: int
    node: str
    keep_state: bool = False
    disk: str = KEPT


class Pause(NamedTuple):
    """A node does nothing for a while (garbage collection, a stopped VM); messages and timers wait for it."""

    at_us: int
    node: str
    for_us: int


class Part(NamedTuple):
    """Nothing goes from ``a`` to ``b``, and unless ``one_way`` not back either; for good without ``for_us``."""

    at_us: int
    a: str
    b: str
    one_way: bool = False
    for_us: int | None = None


class Heal(NamedTuple):
    """The end of a partition, both ways."""

    at_us: int
    a: str
    b: str


class Refuse(NamedTuple):
    """The transport of ``a`` takes no message to ``b`` ("try again") for a while."""

    at_us: int
    a: str
    b: str
    for_us: int


class Relink(NamedTuple):
    """The link from ``a`` to ``b`` has another quality, for a while or for good."""

    at_us: int
    a: str
    b: str
    link: Link
    for_us: int | None = None


class Lose(NamedTuple):
    """The next ``times`` messages of a kind are lost for good, whatever the transport does; None means any."""

    at_us: int
    message: str
    sender: str | None = None
    to: str | None = None
    times: int = 1


class Skew(NamedTuple):
    """The node's clock is ahead by ``offset_us`` from now on and gains ``drift_ppm`` µs a second."""

    at_us: int
    node: str
    offset_us: int = 0
    drift_ppm: int = 0


class Ask(NamedTuple):
    """A command of the model goes to a node: what users, tables and special faults do."""

    at_us: int
    node: str
    command: Any


Fault: TypeAlias = Join | Crash | Restart | Pause | Part | Heal | Refuse | Relink | Lose | Skew | Ask


class Chaos(NamedTuple):
    """Faults drawn by a seed, one about every ``every_us``, all of them over at ``until_us``.

    Attributes
    ----------
    kinds
        Of ``crash``, ``restart``, ``pause``, ``part``, ``lossy``, ``refuse``, ``skew``; ``restart`` is a crash of a
        moment.
    down_us, pause_us, part_us
        The longest time for which a node is down or paused or a link cut.
    """

    until_us: int
    every_us: int = 1_000_000
    kinds: tuple[str, ...] = ("crash", "restart", "pause", "part", "lossy", "refuse", "skew")
    down_us: int = 3_000_000
    pause_us: int = 4_000_000
    part_us: int = 4_000_000


def replanned(planned: Sequence[Fault], at_us: int, faults: Sequence[Fault]) -> list[Fault]:
    """Give other faults from a moment on, after those that were planned before it.

    Nodes that would have joined later still do, unless another :class:`Join` says when: without one they would be there
    from the beginning.

    Raises
    ------
    ValueError
        A new fault lies before ``at_us``.
    """
    early = [f for f in faults if f.at_us < at_us]
    if early:
        raise ValueError(f"{early[0]} lies before {at_us} µs, where the new run begins to differ")
    joining = {f.node for f in faults if isinstance(f, Join)}
    kept = [f for f in planned if f.at_us < at_us or (isinstance(f, Join) and f.node not in joining)]
    return [*kept, *faults]


def drawn(chaos: Chaos, nodes: Sequence[str], centre: str, seed: int) -> list[Fault]:
    """Draw faults.

    Parameters
    ----------
    chaos
        How many, of which kinds.
    nodes
        Those that may fail.
    centre
        One more node whose links may fail and that does not crash itself (etcd).
    seed
        The same seed draws the same faults.
    """
    chance = random.Random(f"faults {seed}")
    faults: list[Fault] = []
    busy_until = dict.fromkeys(nodes, 0)
    at_us = 0
    while (at_us := at_us + 1 + int(chance.expovariate(1 / chaos.every_us))) < chaos.until_us:
        node, other = chance.sample([*nodes, centre], 2)
        node = other if node == centre else node
        other = chance.choice([n for n in [*nodes, centre] if n != node])
        kind = chance.choice(chaos.kinds)
        if kind in ("crash", "restart", "pause") and busy_until[node] > at_us:
            continue
        made = _DRAWS[kind](chance, chaos, at_us, node, other)
        faults += made
        if kind in ("crash", "restart", "pause"):
            busy_until[node] = max(f.at_us + getattr(f, "for_us", 0) for f in made)
    return sorted(faults, key=lambda f: f.at_us)


def _length(chance: random.Random, chaos: Chaos, at_us: int, most_us: int) -> int:
    return min(1 + int(chance.random() * most_us), max(1, chaos.until_us - at_us))


def _crash(chance: random.Random, chaos: Chaos, at_us: int, node: str, other: str) -> list[Fault]:
    return [Crash(at_us, node), Restart(at_us + _length(chance, chaos, at_us, chaos.down_us), node)]


def _restart(chance: random.Random, chaos: Chaos, at_us: int, node: str, other: str) -> list[Fault]:
    return [Crash(at_us, node), Restart(at_us + 1000, node, keep_state=chance.random() < 0.3)]


def _pause(chance: random.Random, chaos: Chaos, at_us: int, node: str, other: str) -> list[Fault]:
    return [Pause(at_us, node, _length(chance, chaos, at_us, chaos.pause_us))]


def _part(chance: random.Random, chaos: Chaos, at_us: int, node: str, other: str) -> list[Fault]:
    return [Part(at_us, node, other, chance.random() < 0.4, _length(chance, chaos, at_us, chaos.part_us))]


def _lossy(chance: random.Random, chaos: Chaos, at_us: int, node: str, other: str) -> list[Fault]:
    link = Link((1000, 200_000), loss=chance.random() * 0.5, duplicate=0.2, reorder=0.2)
    return [Relink(at_us, node, other, link, _length(chance, chaos, at_us, chaos.part_us))]


def _refuse(chance: random.Random, chaos: Chaos, at_us: int, node: str, other: str) -> list[Fault]:
    return [Refuse(at_us, node, other, _length(chance, chaos, at_us, chaos.part_us))]


def _skew(chance: random.Random, chaos: Chaos, at_us: int, node: str, other: str) -> list[Fault]:
    return [Skew(at_us, node, chance.randrange(-500_000, 500_000))]


_DRAWS: dict[str, Callable[[random.Random, Chaos, int, str, str], list[Fault]]] = {
    "crash": _crash,
    "restart": _restart,
    "pause": _pause,
    "part": _part,
    "lossy": _lossy,
    "refuse": _refuse,
    "skew": _skew,
}

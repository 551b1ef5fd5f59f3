"""What can go wrong at a given moment: nodes, links, messages, clocks; and faults drawn by a seed.

A fault carries itself out: :meth:`Crash.strike` and the like change the world in motion that they are given.
"""

from __future__ import annotations

import heapq
import random
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from ticdc_lab.errors import ContractError
from ticdc_lab.machines.machine import KEPT_STATE, Address, Exit, Fired, OnDisk, Reason
from ticdc_lab.simulate.network import CALL, FAULT, RESEND, TIMER, Link
from ticdc_lab.simulate.trace import name_of
from ticdc_lab.words import some_of

if TYPE_CHECKING:
    from ticdc_lab.simulate.kernel import Kernel

NEVER = 1 << 62
"""Until when the timers of a node that is down wait."""


class Crash(NamedTuple):
    """A node is down from now on: its timers stop, and what is sent to it is lost."""

    at_us: int
    node: str

    def strike(self, kernel: Kernel) -> None:
        if _is_still_to_come(kernel, self.node):
            return
        address = kernel.address[self.node]
        if address in kernel.down:
            if address in kernel.returning:  # it had ended by itself; now it stays down
                kernel.returning.discard(address)
                kernel.note(self.node, "crashed")
            return
        kernel.note(self.node, "crashed")
        kernel.down.add(address)
        kernel.paused[address] = NEVER  # its timers wait for a restart that keeps the state
        if kernel.post.traffic.network.transport != RESEND:
            for sender, to, message, identity in kernel.post.unheard.pop(address, []):
                kernel.post.lost(sender, to, message, identity, f"{to} is not there")
        if kernel.auditor:
            kernel.judge(address, kernel.auditor.went_down(kernel, address, kernel.states[address]))


class Join(NamedTuple):
    """A node that was not there starts now; one with such a fault does not start with the others."""

    at_us: int
    node: str

    def strike(self, kernel: Kernel) -> None:
        if self.node not in kernel.address:
            kernel.begin(self.node)


KEPT, TORN, LOST = DISKS = "kept", "torn", "lost"
"""What a machine that keeps state on a disk (:class:`ticdc_lab.machines.machine.OnDisk`) finds of it: all; all but its
last write, which it knows to be broken; nothing."""


class Restart(NamedTuple):
    """A node that is down comes back: with its state and its address, or as a new process under a new address.

    ``disk`` is of :data:`DISKS`; a node without a disk begins empty in any case.
    """

    at_us: int
    node: str
    keep_state: bool = False
    disk: str = KEPT

    def strike(self, kernel: Kernel) -> None:
        if _is_still_to_come(kernel, self.node):
            return
        address = kernel.address[self.node]
        if address not in kernel.down:
            return
        kernel.down.discard(address)
        kernel.returning.discard(address)
        kernel.paused.pop(address)
        found: str | Reason = "without its state"
        if self.keep_state:
            found = Reason(KEPT_STATE, "", "with its state")
        elif isinstance(kernel.machines[self.node], OnDisk):
            found = f"its disk is {self.disk}"
        kernel.note(self.node, "restarted", found)
        if self.keep_state:
            # Timers that came due while the node was down fire now.
            waiting = sorted(
                (e for e in kernel.queue if e[0] >= NEVER and e[2] == TIMER and e[3][0] == address), key=lambda e: e[1]
            )
            if waiting:
                gone = {e[1] for e in waiting}
                kernel.queue[:] = [e for e in kernel.queue if e[1] not in gone]
                heapq.heapify(kernel.queue)
                for _, _, what, entry in waiting:
                    kernel.timers[entry] = kernel.put(kernel.now_us, what, entry)
            _up(kernel, address)
            return
        for sender, to, message, identity in kernel.post.unheard.pop(address, []):
            kernel.post.lost(sender, to, message, identity, f"{to} is gone")
        before = kernel.states.pop(address)
        kernel.lives[self.node] += 1
        kernel.begin(self.node, before, self.disk)


class Pause(NamedTuple):
    """A node does nothing for a while (garbage collection, a stopped VM); messages and timers wait for it."""

    at_us: int
    node: str
    for_us: int

    def strike(self, kernel: Kernel) -> None:
        if _is_still_to_come(kernel, self.node):
            return
        address = kernel.address[self.node]
        until_us = kernel.now_us + self.for_us
        if kernel.paused.get(address, -1) >= until_us:
            return
        kernel.note(self.node, "paused", f"for {self.for_us / 1000:g} ms")
        kernel.paused[address] = until_us
        if kernel.auditor:
            kernel.judge(address, kernel.auditor.went_down(kernel, address, kernel.states[address]))
        kernel.put(until_us, CALL, lambda: _resume(kernel, self.node, address, until_us))


class Part(NamedTuple):
    """Nothing goes from ``a`` to ``b``, and unless ``one_way`` not back either; for good without ``for_us``."""

    at_us: int
    a: str
    b: str
    one_way: bool = False
    for_us: int | None = None

    def strike(self, kernel: Kernel) -> None:
        pairs = [(self.a, self.b)] if self.one_way else [(self.a, self.b), (self.b, self.a)]
        cuts, own = kernel.post.traffic.cuts, [self]
        kernel.note(self.a, "parted", "one way" if self.one_way else "", self.b)
        for pair in pairs:
            cuts.setdefault(pair, []).append(own)
            kernel.post.traffic.cut_as_wished(pair)
        if self.for_us is not None:
            kernel.put(kernel.now_us + self.for_us, CALL, lambda: _end_cut(kernel, self, pairs, own))


class Heal(NamedTuple):
    """The end of a partition, both ways."""

    at_us: int
    a: str
    b: str

    def strike(self, kernel: Kernel) -> None:
        pairs = [p for p in ((self.a, self.b), (self.b, self.a)) if kernel.post.traffic.cuts.pop(p, None)]
        _reopen(kernel, self.a, self.b, pairs)


class Refuse(NamedTuple):
    """The transport of ``a`` takes no message to ``b`` ("try again") for a while."""

    at_us: int
    a: str
    b: str
    for_us: int

    def strike(self, kernel: Kernel) -> None:
        kernel.note(self.a, "refused", f"no message to {self.b} for {self.for_us / 1000:g} ms", self.b)
        kernel.post.traffic.refused[self.a, self.b] += 1
        _set_refusals(kernel, self.a)
        kernel.put(kernel.now_us + self.for_us, CALL, lambda: _accept(kernel, self))


class Relink(NamedTuple):
    """The link from ``a`` to ``b`` has another quality, for a while or for good."""

    at_us: int
    a: str
    b: str
    link: Link
    for_us: int | None = None

    def strike(self, kernel: Kernel) -> None:
        own = [self.link]
        kernel.post.traffic.relinks.setdefault((self.a, self.b), []).append(own)
        kernel.post.traffic.relink((self.a, self.b))
        if self.for_us is not None:
            kernel.put(kernel.now_us + self.for_us, CALL, lambda: _unlink(kernel, (self.a, self.b), own))


class Lose(NamedTuple):
    """The next ``times`` messages of a kind are lost for good, with any transport; None means any.

    Those that are sent after ``until_us`` are not: a fault that waits for its message is over then.
    """

    at_us: int
    message: str
    sender: str | None = None
    to: str | None = None
    times: int = 1
    until_us: int | None = None

    def strike(self, kernel: Kernel) -> None:
        kernel.post.losing.append([self, self.times])


class Skew(NamedTuple):
    """The node's clock is ahead by ``offset_us`` from now on and gains ``drift_ppm`` µs a second."""

    at_us: int
    node: str
    offset_us: int = 0
    drift_ppm: int = 0

    def strike(self, kernel: Kernel) -> None:
        kernel.skews[self.node] = (self.offset_us, self.drift_ppm, kernel.now_us)


class Ask(NamedTuple):
    """A command of the model goes to a node: what users, tables and special faults do."""

    at_us: int
    node: str
    command: Any

    def strike(self, kernel: Kernel) -> None:
        if _is_still_to_come(kernel, self.node):
            kernel.note(self.node, "lost", f"{self.node} has not joined when it is asked for {name_of(self.command)}")
            return
        address = kernel.address[self.node]
        if address in kernel.down:
            kernel.note(self.node, "lost", f"{self.node} is down when it is asked for {name_of(self.command)}")
        elif address in kernel.paused:
            kernel.put(kernel.paused[address], FAULT, self)
        else:
            kernel.ask(self.node, self.command)


def _is_still_to_come(kernel: Kernel, node: str) -> bool:
    """Whether a node has not joined yet: nothing can happen to it."""
    if node not in kernel.machines:
        raise ContractError(
            f"A fault names the node {node}; this run has {some_of(sorted(kernel.machines))}.",
            hint='Name one of them. An event that asks a node of one changefeed has `reach="one"` in its row.',
        )
    return node not in kernel.address


def left(kernel: Kernel, address: Address, output: Exit) -> None:
    """Let a process that ended by itself come back."""
    node = kernel.node[address]
    kernel.note(node, "crashed", output.because)
    kernel.down.add(address)
    kernel.exited.add(address)
    kernel.paused[address] = NEVER
    if kernel.auditor:
        kernel.judge(address, kernel.auditor.went_down(kernel, address, kernel.states[address]))
    kernel.returning.add(address)
    kernel.put(kernel.now_us + output.after_us, CALL, lambda: _return(kernel, node, address))


def _return(kernel: Kernel, node: str, address: Address) -> None:
    if address in kernel.returning:
        Restart(kernel.now_us, node).strike(kernel)


def _up(kernel: Kernel, address: Address) -> None:
    """Let the node look at its clock before it continues."""
    kernel.take(address, Fired("resumed"))
    if kernel.auditor and not kernel.violation:
        kernel.judge(address, kernel.auditor.came_up(kernel, address, kernel.states[address]))
    for entry in kernel.post.unheard.pop(address, []):  # before anything that arrives later
        if not kernel.violation:
            kernel.arrive(entry)


def _resume(kernel: Kernel, node: str, address: Address, until_us: int) -> None:
    if kernel.paused.get(address) == until_us and address not in kernel.down:
        del kernel.paused[address]
        kernel.note(node, "resumed")
        _up(kernel, address)


def _end_cut(kernel: Kernel, one: Part, pairs: Sequence[tuple[str, str]], own: list[Any]) -> None:
    cuts = kernel.post.traffic.cuts
    lasting = [pair for pair in pairs if any(other is own for other in cuts.get(pair, ()))]  # the others were healed
    for pair in lasting:
        cuts[pair] = [other for other in cuts[pair] if other is not own]
    if lasting:
        _reopen(kernel, one.a, one.b, lasting)


def _reopen(kernel: Kernel, a: str, b: str, pairs: Sequence[tuple[str, str]]) -> None:
    kernel.note(a, "healed", peer=b)
    for pair in pairs:
        kernel.post.traffic.cut_as_wished(pair)
        if not kernel.post.traffic.parted[pair]:
            for sender, to, message, identity in kernel.post.held.pop(pair, []):
                if kernel.address[kernel.node[sender]] != sender or sender in kernel.exited:
                    kernel.post.lost(sender, to, message, identity, f"{sender}, which would send it again, is gone")
                else:
                    kernel.post.travel(pair, sender, to, message, identity)


def _accept(kernel: Kernel, one: Refuse) -> None:
    kernel.post.traffic.refused[one.a, one.b] -= 1
    _set_refusals(kernel, one.a)


def refuse_still(kernel: Kernel, node: str) -> None:
    """Let refusals from and to a node hold for the address of its new life."""
    for a in sorted({a for a, b in kernel.post.traffic.refused if node in (a, b)}):
        _set_refusals(kernel, a)


def _set_refusals(kernel: Kernel, node: str) -> None:
    if node not in kernel.address:
        return
    peers = [b for (a, b), n in kernel.post.traffic.refused.items() if a == node and n]
    if peers:
        kernel.refusals[kernel.address[node]] = frozenset(kernel.address.get(b, b) for b in peers)
    else:
        kernel.refusals.pop(kernel.address[node], None)


def _unlink(kernel: Kernel, pair: tuple[str, str], own: list[Any]) -> None:
    relinks = kernel.post.traffic.relinks
    relinks[pair] = [other for other in relinks[pair] if other is not own]  # equal ones may overlap
    kernel.post.traffic.relink(pair)


Fault: TypeAlias = Join | Crash | Restart | Pause | Part | Heal | Refuse | Relink | Lose | Skew | Ask
"""``strike`` lets it happen."""


class Draw(NamedTuple):
    """A fault that is to be drawn: of a node, or of its link to another one."""

    chance: random.Random
    chaos: Chaos
    at_us: int
    node: str
    other: str

    def length(self, most_us: int) -> int:
        return min(1 + int(self.chance.random() * most_us), max(1, self.chaos.until_us - self.at_us))


DRAWS: Mapping[str, Callable[[Draw], list[Fault]]] = MappingProxyType({
    "crash": lambda d: [Crash(d.at_us, d.node), Restart(d.at_us + d.length(d.chaos.down_us), d.node)],
    "restart": lambda d: [
        Crash(d.at_us, d.node), Restart(d.at_us + 1000, d.node, keep_state=d.chance.random() < 0.3)
    ],
    "pause": lambda d: [Pause(d.at_us, d.node, d.length(d.chaos.pause_us))],
    "part": lambda d: [Part(d.at_us, d.node, d.other, d.chance.random() < 0.4, d.length(d.chaos.part_us))],
    "lossy": lambda d: [
        Relink(
            d.at_us, d.node, d.other, Link((1000, 200_000), loss=d.chance.random() * 0.5, duplicate=0.2, reorder=0.2),
            d.length(d.chaos.part_us),
        )
    ],
    "refuse": lambda d: [Refuse(d.at_us, d.node, d.other, d.length(d.chaos.part_us))],
    "skew": lambda d: [Skew(d.at_us, d.node, d.chance.randrange(-500_000, 500_000))],
})  # fmt: skip
"""Faults that can come at random, in every model; ``restart`` is a crash of a moment."""


class Chaos(NamedTuple):
    """Faults drawn by a seed, one about every ``every_us``, all of them over at ``until_us``."""

    until_us: int
    every_us: int = 1_000_000
    kinds: tuple[str, ...] = tuple(DRAWS)  # of :data:`DRAWS`
    # The longest time for which a node is down or paused or a link cut
    down_us: int = 3_000_000
    pause_us: int = 4_000_000
    part_us: int = 4_000_000


def replanned(planned: Sequence[Fault], at_us: int, faults: Sequence[Fault]) -> list[Fault]:
    """Give other faults from a moment on, after those that were planned before it.

    Nodes that would have joined later still do, unless another :class:`Join` sets a time: else they would be there
    from the beginning.

    Raises ValueError: a new fault lies before ``at_us``.
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
        How many, and their kinds.
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
        made = DRAWS[kind](Draw(chance, chaos, at_us, node, other))
        faults += made
        if kind in ("crash", "restart", "pause"):
            busy_until[node] = max(f.at_us + getattr(f, "for_us", 0) for f in made)
    return sorted(faults, key=lambda f: f.at_us)

"""Links between nodes, and the transport at work: when a message arrives, whether, how often, and in which order."""

from __future__ import annotations

import random
import weakref
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from heapq import heappush
from itertools import groupby
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from ticdc_lab.machines.machine import Address, ReceivedMany, Send
from ticdc_lab.simulate.trace import Row, name_of

if TYPE_CHECKING:
    from ticdc_lab.simulate.faults import Lose
    from ticdc_lab.simulate.kernel import Kernel


MESSAGE, TIMER, START, FAULT, CALL, MESSAGES = range(6)
"""Kinds of entries: one message, a timer, the start of a node, a fault, a function, a stretch of messages."""


RESEND, DATAGRAM = "resend", "datagram"


class Link(NamedTuple):
    """One direction between two nodes."""

    delay_us: tuple[int, int] = (500, 3000)  # the shortest and the longest delay; between them every one is as likely
    # The probability of each for a message
    loss: float = 0.0
    duplicate: float = 0.0
    reorder: float = 0.0
    tail_us: int = 0  # the mean of what comes on top, exponentially distributed; 0 for nothing


GOOD = Link()
"""A quiet network inside one data centre."""


@dataclass(frozen=True, slots=True)
class Network:
    """All links."""

    link: Link = GOOD  # what links are like by default; :attr:`links` overrides it
    links: tuple[tuple[tuple[str, str], Link], ...] = ()  # by (sender, receiver), names of nodes
    # ``resend``: as TiCDC's peer-to-peer messages, numbered, acknowledged and sent again: loss, doubling and disorder
    # only cost time, and a partition holds messages back. ``datagram``: what the link does is what the nodes see.
    transport: str = RESEND
    resend_us: int = 20_000  # after how long the transport tries again


Quiet: TypeAlias = tuple[tuple[str, str], int, int]
"""A link that keeps all messages in order: its nodes, the shortest delay, and how many delays there are."""


class Arrival(NamedTuple):
    """A copy of a message that will come in."""

    at_us: int
    again: bool
    resent: int


@dataclass(slots=True)
class Traffic:
    """The links at work: quality, partitions, and when the last message of each link arrives."""

    network: Network
    chance: random.Random
    links: dict[tuple[str, str], Link] = field(default_factory=dict)
    parted: dict[tuple[str, str], int] = field(default_factory=lambda: defaultdict(int))
    refused: dict[tuple[str, str], int] = field(default_factory=lambda: defaultdict(int))
    last_us: dict[tuple[str, str], int] = field(default_factory=dict)
    cuts: dict[tuple[str, str], list[list[Any]]] = field(default_factory=dict)
    relinks: dict[tuple[str, str], list[list[Link]]] = field(default_factory=dict)
    quiet: dict[tuple[Address, Address], Quiet | None] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.links.update(self.network.links)

    def cut_as_wished(self, pair: tuple[str, str]) -> None:
        """Count the partitions that lie on a link."""
        self.parted[pair] = len(self.cuts.get(pair, ()))
        self.quiet.clear()

    def relink(self, pair: tuple[str, str]) -> None:
        """Let the latest of the qualities that last be in force, and without any the network's own."""
        lasting = self.relinks[pair]
        if lasting:
            self.links[pair] = lasting[-1][0]
        else:
            self.links.pop(pair, None)
            self.links.update((p, link) for p, link in self.network.links if p == pair)
        self.quiet.clear()

    def is_quiet(self, pair: tuple[str, str]) -> bool:
        """Whether a link is open, and loses, doubles and reorders nothing."""
        link = self.links.get(pair, self.network.link)
        return not (link.loss or link.duplicate or link.reorder or self.parted.get(pair))

    def quiet_between(self, sender: Address, to: Address, pair: tuple[str, str]) -> Quiet | None:
        """Give the link between two addresses if it is quiet and has no tail; it is kept until links change."""
        link = self.links.get(pair, self.network.link)
        shortest_us, longest_us = link.delay_us
        is_quiet = self.is_quiet(pair) and not link.tail_us
        found = (pair, shortest_us, longest_us - shortest_us + 1) if is_quiet else None
        self.quiet[sender, to] = found
        return found

    def arrivals(self, sender: str, to: str, at_us: int) -> list[Arrival]:
        """When a message that is sent now arrives: never, once or more often."""
        pair = (sender, to)
        link = self.links.get(pair, self.network.link)
        shortest, longest = link.delay_us
        delay_us = shortest + int(self.chance.random() * (longest - shortest + 1))
        if link.tail_us:
            delay_us += int(self.chance.expovariate(1 / link.tail_us))
        if not (link.loss or link.duplicate or link.reorder):
            return [Arrival(self._in_order(pair, at_us + delay_us), False, 0)]
        if self.network.transport == RESEND:
            resent = 0
            while self.chance.random() < link.loss and resent < 50:
                resent += 1
            delay_us += link.delay_us[1] if self.chance.random() < link.reorder else 0
            delay_us += resent * self.network.resend_us
            return [Arrival(self._in_order(pair, at_us + delay_us), False, resent)]
        if self.chance.random() < link.loss:
            return []
        late = self.chance.random() < link.reorder
        first = at_us + delay_us + link.delay_us[1] if late else self._in_order(pair, at_us + delay_us)
        found = [Arrival(first, False, 0)]
        if self.chance.random() < link.duplicate:
            found.append(Arrival(first + 1 + int(self.chance.random() * link.delay_us[1]), True, 0))
        return found

    def _in_order(self, pair: tuple[str, str], at_us: int) -> int:
        at_us = max(at_us, self.last_us.get(pair, 0))
        self.last_us[pair] = at_us
        return at_us


STRETCH = 16
"""From so many outputs of one step on, messages to one peer travel together."""


class Post:
    """The messages of one world.

    ``traffic``: the links. ``held``: what a partition holds back, by link. ``unheard``: what came for a node that is
    paused, or down and may come back with its state. ``losing``: faults that choose messages, each with how many are
    left.
    """

    def __init__(self, kernel: Kernel, network: Network, seed: int) -> None:
        self.kernel: Kernel = weakref.proxy(kernel)  # no cycle: a run that is let go is freed at once
        self._node, self._states, self._down, self._recorder = kernel.node, kernel.states, kernel.down, kernel.recorder
        self._queue, self._numbered = kernel.queue, kernel.numbered
        self.traffic = Traffic(network, random.Random(f"network {seed}"))
        self._chance, self._quiet, self._last_us = self.traffic.chance.random, self.traffic.quiet, self.traffic.last_us
        self.held: dict[tuple[str, str], list[tuple[Address, Address, Any, int]]] = {}
        self.unheard: dict[Address, list[tuple[Address, Address, Any, int]]] = {}
        self.losing: list[list[Any]] = []
        self.n_sent = 0

    def send(self, sender: Address, send: Send, now_us: int) -> None:
        """Give a message to the transport; over a quiet link this draws what :meth:`Traffic.arrivals` draws."""
        self.n_sent = identity = self.n_sent + 1
        to, message = send
        if self._recorder.messages:
            self._recorder.rows.append(Row(self.kernel.steps, now_us, sender, "sent", to, message, identity))
        if self.losing and self._is_to_lose(sender, to, message):
            self.lost(sender, to, message, identity, "a fault chose it")
            return
        between = (sender, to)
        if between in self._quiet:
            quiet = self._quiet[between]
        else:
            quiet = self.traffic.quiet_between(sender, to, (self._node[sender], self._node.get(to, to)))
        if quiet is None:
            link = (self._node[sender], self._node.get(to, to))
            if not self.traffic.parted.get(link):
                self.travel(link, sender, to, message, identity)
            elif self.traffic.network.transport == RESEND:
                self.held.setdefault(link, []).append((sender, to, message, identity))
            else:
                self.lost(sender, to, message, identity, "the link is cut")
            return
        pair, shortest_us, delays = quiet
        at_us = now_us + shortest_us + int(self._chance() * delays)
        last_us = self._last_us.get(pair, 0)
        if at_us < last_us:
            at_us = last_us
        else:
            self._last_us[pair] = at_us
        heappush(self._queue, (at_us, self._numbered(), MESSAGE, (sender, to, message, identity)))

    def send_many(self, sender: Address, outputs: Sequence[Any]) -> Sequence[Any]:
        """Send what goes to one peer as one stretch, where its link is quiet; give what is left."""
        if self.losing:
            return outputs
        stretches: dict[Address, list[Any]] = {}
        left: list[Any] = []
        for output in outputs:
            if type(output) is Send and self.traffic.is_quiet(
                (self.kernel.node[sender], self.kernel.node.get(output.to, output.to))
            ):
                stretches.setdefault(output.to, []).append(output.message)
            else:
                left.append(output)
        for to, messages in stretches.items():
            for _, alike in groupby(messages, type):
                self._send_stretch(sender, to, tuple(alike))
        return left

    def _send_stretch(self, sender: Address, to: Address, messages: tuple[Any, ...]) -> None:
        first = self.n_sent + 1
        self.n_sent += len(messages)
        if self.kernel.recorder.messages:
            rows = (
                Row(self.kernel.steps, self.kernel.now_us, sender, "sent", to, m, first + i)
                for i, m in enumerate(messages)
            )
            self.kernel.recorder.rows.extend(rows)
        arrival = self.traffic.arrivals(self.kernel.node[sender], self.kernel.node.get(to, to), self.kernel.now_us)[0]
        self.kernel.put(arrival.at_us, MESSAGES, (sender, to, messages, first))

    def deliver_many(self, entry: tuple[Address, Address, tuple[Any, ...], int]) -> None:
        """Let a stretch come in."""
        sender, to, messages, first = entry
        if to not in self._states or to in self._down or to in self.kernel.paused:
            for i, message in enumerate(messages):
                self.missed((sender, to, message, first + i))
            return
        if self.kernel.recorder.messages:
            self.kernel.recorder.rows.extend(
                Row(self.kernel.steps + 1, self.kernel.now_us, to, "received", sender, m, first + i)
                for i, m in enumerate(messages)
            )
        self.kernel.steps += len(messages) - 1
        self.kernel.take(to, ReceivedMany(sender, messages))

    def travel(self, pair: tuple[str, str], sender: Address, to: Address, message: Any, identity: int) -> None:
        """Send a message on its way."""
        arrivals = self.traffic.arrivals(*pair, self.kernel.now_us)
        for arrival in arrivals:
            if arrival.resent:
                because = f"{arrival.resent} times"
                self.kernel.recorder.add(
                    Row(self.kernel.steps, self.kernel.now_us, sender, "resent", to, message, identity, because=because)
                )
            self.kernel.put(arrival.at_us, MESSAGE, (sender, to, message, identity))
        if not arrivals:
            self.lost(sender, to, message, identity, "the link dropped it")

    def _is_to_lose(self, sender: Address, to: Address, message: Any) -> bool:
        for chosen in self.losing:
            lose: Lose = chosen[0]
            sides = lose.sender in (None, sender, self.kernel.node[sender]) and lose.to in (
                None,
                to,
                self.kernel.node.get(to),
            )
            is_over = lose.until_us is not None and self.kernel.now_us > lose.until_us
            if chosen[1] and not is_over and sides and lose.message in ("any", name_of(message)):
                chosen[1] -= 1
                return True
        return False

    def lost(self, sender: Address, to: Address, message: Any, identity: int, because: str) -> None:
        """Note that a message is lost for good."""
        self.kernel.recorder.add(
            Row(self.kernel.steps, self.kernel.now_us, sender, "lost", to, message, identity, because=because)
        )

    def missed(self, entry: tuple[Address, Address, Any, int]) -> None:
        """Keep, or lose, a message that has come to a node which cannot take it now."""
        sender, to, message, identity = entry
        if to in self._down and self.traffic.network.transport == RESEND:
            self.unheard.setdefault(to, []).append(entry)
        elif to not in self._states or to in self._down:
            self.lost(sender, to, message, identity, f"{to} is not there")
        else:
            self.unheard.setdefault(to, []).append(entry)

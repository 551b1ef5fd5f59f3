"""Links between nodes: how long a message takes, whether it arrives, how often, and in which order."""

from __future__ import annotations

import random
from collections import defaultdict
from dataclasses import dataclass, field
from typing import Any, NamedTuple

RESEND, DATAGRAM = "resend", "datagram"


class Link(NamedTuple):
    """One direction between two nodes.

    Attributes
    ----------
    delay_us
        The shortest and the longest delay; between them every one is as likely.
    tail_us
        The mean of what comes on top, exponentially distributed; 0 for nothing.
    loss, duplicate, reorder
        The probability of each for a message.
    """

    delay_us: tuple[int, int] = (500, 3000)
    loss: float = 0.0
    duplicate: float = 0.0
    reorder: float = 0.0
    tail_us: int = 0


GOOD = Link()
"""A quiet network inside one data centre."""


@dataclass(frozen=True, slots=True)
class Network:
    """All links.

    Attributes
    ----------
    link
        What links are like unless :attr:`links` says otherwise.
    links
        By (sender, receiver), names of nodes.
    transport
        ``resend``: as TiCDC's peer-to-peer messages, numbered, acknowledged and sent again: loss, doubling and disorder
        only cost time, and a partition holds messages back. ``datagram``: what the link does is what the nodes see.
    resend_us
        After how long the transport tries again.
    """

    link: Link = GOOD
    links: tuple[tuple[tuple[str, str], Link], ...] = ()
    transport: str = RESEND
    resend_us: int = 20_000


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

    def __post_init__(self) -> None:
        self.links.update(self.network.links)

    def is_quiet(self, pair: tuple[str, str]) -> bool:
        """Whether a link is open, and loses, doubles and reorders nothing."""
        link = self.links.get(pair, self.network.link)
        return not (link.loss or link.duplicate or link.reorder or self.parted.get(pair))

    def quiet_arrival(self, pair: tuple[str, str], at_us: int) -> int | None:
        """Say when a message comes in over a quiet link, None for any other; draws what :meth:`arrivals` draws."""
        link = self.links.get(pair, self.network.link) if self.links else self.network.link
        (shortest, longest), loss, duplicate, reorder, tail_us = link
        if loss or duplicate or reorder or tail_us or (self.parted and self.parted.get(pair)):
            return None
        at_us += shortest + int(self.chance.random() * (longest - shortest + 1))
        last_us = self.last_us.get(pair, 0)
        if at_us < last_us:
            return last_us
        self.last_us[pair] = at_us
        return at_us

    def arrivals(self, sender: str, to: str, at_us: int) -> list[Arrival]:
        """Say when a message that is sent now comes in: never, once or more often."""
        pair = (sender, to)
        link = self.links.get(pair, self.network.link)
        shortest, longest = link.delay_us
        delay_us = shortest + int(self.chance.random() * (longest - shortest + 1))
        if link.tail_us:
            delay_us += int(self.chance.expovariate(1 / link.tail_us))
        if not (link.loss or link.duplicate or link.reorder):
            return [Arrival(self._in_order(pair, at_us + delay_us), False, 0)]
        if self.network.transport == RESEND:
            return [self._resent(pair, link, at_us + delay_us)]
        return self._datagrams(pair, link, at_us, delay_us)

    def _in_order(self, pair: tuple[str, str], at_us: int) -> int:
        at_us = max(at_us, self.last_us.get(pair, 0))
        self.last_us[pair] = at_us
        return at_us

    def _resent(self, pair: tuple[str, str], link: Link, at_us: int) -> Arrival:
        resent = 0
        while self.chance.random() < link.loss and resent < 50:
            resent += 1
        if self.chance.random() < link.reorder:
            at_us += link.delay_us[1]
        return Arrival(self._in_order(pair, at_us + resent * self.network.resend_us), False, resent)

    def _datagrams(self, pair: tuple[str, str], link: Link, at_us: int, delay_us: int) -> list[Arrival]:
        if self.chance.random() < link.loss:
            return []
        late = self.chance.random() < link.reorder
        first = at_us + delay_us + link.delay_us[1] if late else self._in_order(pair, at_us + delay_us)
        found = [Arrival(first, False, 0)]
        if self.chance.random() < link.duplicate:
            found.append(Arrival(first + 1 + int(self.chance.random() * link.delay_us[1]), True, 0))
        return found

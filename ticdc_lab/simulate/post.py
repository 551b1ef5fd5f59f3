"""The transport at work: messages on their way, held back by a partition, chosen to be lost."""

from __future__ import annotations

import random
import weakref
from collections.abc import Sequence
from itertools import groupby
from typing import TYPE_CHECKING, Any

from ticdc_lab.simulate import faults as fault
from ticdc_lab.simulate.machine import Address, Received, ReceivedMany, Send
from ticdc_lab.simulate.network import RESEND, Network, Traffic
from ticdc_lab.simulate.queue import MESSAGE, MESSAGES
from ticdc_lab.simulate.recorder import Row, name_of

if TYPE_CHECKING:
    from ticdc_lab.simulate.kernel import Kernel

STRETCH = 16
"""From so many outputs of one step on, messages to one peer travel together."""


class Post:
    """The messages of one world.

    Attributes
    ----------
    traffic
        The links.
    held
        What a partition holds back, by link.
    unheard
        What came for a node that is paused, or down and may come back with its state.
    losing
        Faults that choose messages, each with how many are left.
    """

    def __init__(self, kernel: Kernel, network: Network, seed: int) -> None:
        self.kernel: Kernel = weakref.proxy(kernel)  # no cycle: a run that is let go is freed at once
        self.traffic = Traffic(network, random.Random(f"network {seed}"))
        self.held: dict[tuple[str, str], list[tuple[Address, Address, Any, int]]] = {}
        self.unheard: dict[Address, list[tuple[Address, Address, Any, int]]] = {}
        self.losing: list[list[Any]] = []
        self.n_sent = 0

    def send(self, sender: Address, send: Send) -> None:
        """Give a message to the transport."""
        self.n_sent += 1
        identity, to, message = self.n_sent, send.to, send.message
        recorder = self.kernel.recorder
        if recorder.messages:
            recorder.rows.append(Row(self.kernel.steps, self.kernel.now_us, sender, "sent", to, message, identity))
        if self.losing and self._is_to_lose(sender, to, message):
            self.lost(sender, to, message, identity, "a fault chose it")
            return
        pair = (self.kernel.node[sender], self.kernel.node.get(to, to))
        at_us = self.traffic.quiet_arrival(pair, self.kernel.now_us)
        if at_us is not None:
            self.kernel.put(at_us, MESSAGE, (sender, to, message, identity))
        elif self.traffic.parted and self.traffic.parted.get(pair):
            self._cut(pair, sender, to, message, identity)
        else:
            self.travel(pair, sender, to, message, identity)

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
        if to not in self.kernel.states or to in self.kernel.down or to in self.kernel.paused:
            for i, message in enumerate(messages):
                self.deliver((sender, to, message, first + i))
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

    def _cut(self, pair: tuple[str, str], sender: Address, to: Address, message: Any, identity: int) -> None:
        if self.traffic.network.transport == RESEND:
            self.held.setdefault(pair, []).append((sender, to, message, identity))
        else:
            self.lost(sender, to, message, identity, "the link is cut")

    def _is_to_lose(self, sender: Address, to: Address, message: Any) -> bool:
        for chosen in self.losing:
            lose: fault.Lose = chosen[0]
            sides = lose.sender in (None, sender, self.kernel.node[sender]) and lose.to in (
                None,
                to,
                self.kernel.node.get(to),
            )
            if chosen[1] and sides and lose.message in ("any", name_of(message)):
                chosen[1] -= 1
                return True
        return False

    def heard_at_last(self, address: Address) -> None:
        """Let what waited for a node come in, before anything that arrives later."""
        for entry in self.unheard.pop(address, []):
            if not self.kernel.violation:
                self.deliver(entry)

    def lost(self, sender: Address, to: Address, message: Any, identity: int, because: str) -> None:
        """Note that a message is lost for good."""
        self.kernel.recorder.add(
            Row(self.kernel.steps, self.kernel.now_us, sender, "lost", to, message, identity, because=because)
        )

    def deliver(self, entry: tuple[Address, Address, Any, int]) -> None:
        """Let a message come in, if the node can take it now."""
        sender, to, message, identity = entry
        if to in self.kernel.down and self.traffic.network.transport == RESEND:
            self.unheard.setdefault(to, []).append(entry)
        elif to not in self.kernel.states or to in self.kernel.down:
            self.lost(sender, to, message, identity, f"{to} is not there")
        elif to in self.kernel.paused:
            self.unheard.setdefault(to, []).append(entry)
        else:
            if self.kernel.recorder.messages:
                self.kernel.recorder.rows.append(
                    Row(self.kernel.steps + 1, self.kernel.now_us, to, "received", sender, message, identity)
                )
            self.kernel.take(to, Received(sender, message))

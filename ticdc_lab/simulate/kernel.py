"""The one event loop of all simulators: virtual time, one seed, a network, faults, and an auditor that sees each step.

What happens next is the earliest entry of one queue, at equal times the one that was put in first; chance is drawn from
the seed alone, and nothing unordered is iterated: the same world gives the same trace, byte for byte.
"""

from __future__ import annotations

import heapq
import random
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any, Protocol

from ticdc_lab.simulate import faults as fault
from ticdc_lab.simulate.machine import (
    NO_ONE,
    Address,
    Asked,
    Broken,
    Changed,
    Decided,
    Event,
    Exit,
    Fired,
    Ignored,
    Machine,
    Now,
    Received,
    ReceivedMany,
    Send,
    Wake,
)
from ticdc_lab.simulate.network import RESEND, Network, Traffic
from ticdc_lab.simulate.recorder import EVENTS, Recorder, Row, name_of


@dataclass(frozen=True, slots=True)
class Violation:
    """An invariant that does not hold.

    Attributes
    ----------
    invariant
        Its name: ``No Double Write``.
    because
        What was seen, in a sentence.
    step, time_us
        When.
    """

    invariant: str
    because: str
    step: int
    time_us: int


class Auditor(Protocol):
    """Watches a run; each method gives (invariant, because) of what it finds broken, else None."""

    def saw(
        self, kernel: Kernel, at: Address, before: Any, after: Any, outputs: Sequence[Any]
    ) -> tuple[str, str] | None:
        """A node has taken a step."""
        ...

    def went_down(self, kernel: Kernel, at: Address, state: Any) -> tuple[str, str] | None:
        """A node crashed or was paused."""
        ...

    def came_up(self, kernel: Kernel, at: Address, state: Any) -> tuple[str, str] | None:
        """A node runs again with the state it had."""
        ...


@dataclass(frozen=True, slots=True)
class End:
    """How a run ended.

    ``because`` is ``time`` (it came to its end), ``violation``, ``steps`` (its limit) or ``quiet`` (nothing is left).
    """

    because: str
    time_us: int
    steps: int
    violation: Violation | None = None
    doing: str = ""


class Kernel:
    """A world in motion.

    Parameters
    ----------
    machines
        By name of node, in the order in which they start.
    network
        How messages travel.
    faults
        What goes wrong, and what users do, at which time.
    seed
        Draws delays and losses.
    auditor
        Watches every step.
    recorder
        Takes the trace.
    step_limit
        A run that takes more steps than this ends and says what it was doing.
    """

    def __init__(
        self,
        machines: Mapping[str, Machine[Any]],
        *,
        network: Network | None = None,
        faults: Iterable[fault.Fault] = (),
        seed: int = 0,
        auditor: Auditor | None = None,
        recorder: Recorder | None = None,
        step_limit: int = 50_000_000,
    ) -> None:
        self.machines = dict(machines)
        self.states: dict[Address, Any] = {}
        self.address: dict[str, Address] = {}
        self.node: dict[Address, str] = {}
        self.down: set[Address] = set()
        self.paused: dict[Address, int] = {}
        self.now_us = self.steps = self.n_sent = 0
        self.recorder = recorder or Recorder("run", EVENTS)
        self.auditor = auditor
        self.violation: Violation | None = None
        self._step_limit = step_limit
        self._traffic = Traffic(network or Network(), random.Random(f"network {seed}"))
        self._queue: list[tuple[int, int, int, Any]] = []
        self._order = 0
        self._timers: dict[tuple[Address, Any], int] = {}
        self._lives = dict.fromkeys(self.machines, 1)
        self._skews: dict[str, tuple[int, int, int]] = {}
        self._held: dict[tuple[str, str], list[tuple[Address, Address, Any, int]]] = {}
        self._unheard: dict[Address, list[tuple[Address, Address, Any, int]]] = {}
        self._losing: list[list[Any]] = []
        self._no_refusal: dict[Address, frozenset[Address]] = {}
        planned = list(faults)
        late = {f.node for f in planned if isinstance(f, fault.Join)}
        for name in self.machines:
            if name not in late:
                self._put(0, _START, name)
        for one in planned:
            self._put(one.at_us, _FAULT, one)

    def run(self, until_us: int) -> End:
        """Go on until a moment, a violation or the step limit."""
        queue = self._queue
        while queue and queue[0][0] <= until_us:
            if self.steps >= self._step_limit:
                return self._ended("steps", f"next: {self._next()}")
            self.now_us, order, what, entry = heapq.heappop(queue)
            if what == _MESSAGE:
                self._deliver(entry, order)
            elif what == _MESSAGES:
                self._deliver_many(entry)
            elif what == _TIMER:
                self._fire(entry, order)
            elif what == _START:
                self._start(entry)
            elif what == _FAULT:
                _FAULTS[type(entry)](self, entry)
            else:
                entry()
            if self.violation:
                return self._ended("violation", self.violation.because)
        self.now_us = until_us if queue else self.now_us
        return self._ended("time" if queue else "quiet", "")

    def ask(self, node: str, command: Any) -> None:
        """Give a node a command at once."""
        address = self.address[node]
        self.recorder.add(Row(self.steps, self.now_us, address, "asked", None, command))
        self._step(address, Asked(command))

    def _ended(self, because: str, doing: str) -> End:
        self.recorder.add(
            Row(self.steps, self.now_us, "", "stopped", because=f"{because}: {doing}" if doing else because)
        )
        return End(because, self.now_us, self.steps, self.violation, doing)

    def _next(self) -> str:
        at_us, _, what, entry = self._queue[0]
        text = {_MESSAGE: "a message", _TIMER: "a timer", _START: "a start", _FAULT: "a fault"}.get(what, "")
        return f"{text} {entry} at {at_us / 1e6:.6f} s; {len(self._queue)} entries wait"

    def _put(self, at_us: int, what: int, entry: Any) -> int:
        self._order += 1
        heapq.heappush(self._queue, (at_us, self._order, what, entry))
        return self._order

    def _start(self, node: str) -> None:
        life = self._lives[node]
        address = node if life == 1 else f"{node}.{life}"
        self.address[node], self.node[address] = address, node
        self.recorder.add(Row(self.steps, self.now_us, address, "started"))
        state, outputs = self.machines[node].start(address, self._now(address))
        self.states[address] = state
        self._carry_out(address, None, state, outputs)

    def _now(self, address: Address) -> Now:
        skew_us = 0
        if self._skews:
            offset_us, drift_ppm, since_us = self._skews.get(self.node[address], (0, 0, 0))
            skew_us = offset_us + (self.now_us - since_us) * drift_ppm // 1_000_000
        return Now(self.now_us, self._no_refusal.get(address, NO_ONE), (), skew_us)

    def _step(self, address: Address, event: Event) -> None:
        before = self.states[address]
        after, outputs = self.machines[self.node[address]].step(before, event, self._now(address))
        self.states[address] = after
        self.steps += 1
        self._carry_out(address, before, after, outputs)

    def _carry_out(self, address: Address, before: Any, after: Any, outputs: Sequence[Any]) -> None:
        leaving: Exit | None = None
        if len(outputs) >= _STRETCH:
            outputs = self._send_many(address, outputs)
        for output in outputs:
            kind = type(output)
            if kind is Send:
                self._send(address, output)
            elif kind is Wake:
                self._timers[address, output.name] = self._put(
                    self.now_us + output.after_us, _TIMER, (address, output.name)
                )
            elif kind is Exit:
                leaving = output
            elif kind is Broken:
                self._violated(address, output.invariant, output.because)
            elif self.recorder.any:
                self._record(address, output)
        if self.auditor and not self.violation:
            self._judge(address, self.auditor.saw(self, address, before, after, outputs))
        if leaving:
            self._exit(address, leaving)

    def _record(self, address: Address, output: Any) -> None:
        step, at_us, add = self.steps, self.now_us, self.recorder.rows.append
        if isinstance(output, Changed):
            subject, old, new, because = output
            add(Row(step, at_us, address, "changed", None, None, None, subject, old, new, because))
        elif isinstance(output, Decided):
            subject, chosen, because, rejected = output
            add(Row(step, at_us, address, "decided", None, None, None, subject, None, chosen, because, rejected))
        elif isinstance(output, Ignored):
            add(Row(step, at_us, address, "ignored", None, output.message, None, because=output.because))

    def _judge(self, address: Address, found: tuple[str, str] | None) -> None:
        if found:
            self._violated(address, *found)

    def _violated(self, address: Address, invariant: str, because: str) -> None:
        if not self.violation:
            self.violation = Violation(invariant, because, self.steps, self.now_us)
            self.recorder.add(
                Row(self.steps, self.now_us, address, "violated", None, None, None, invariant, because=because)
            )

    # Messages

    def _send(self, sender: Address, send: Send) -> None:
        self.n_sent += 1
        identity, to, message = self.n_sent, send.to, send.message
        recorder = self.recorder
        if recorder.messages:
            recorder.rows.append(Row(self.steps, self.now_us, sender, "sent", to, message, identity))
        if self._losing and self._is_to_lose(sender, to, message):
            self._lost(sender, to, message, identity, "a fault chose it")
            return
        pair = (self.node[sender], self.node.get(to, to))
        if self._traffic.parted and self._traffic.parted.get(pair):
            self._cut(pair, sender, to, message, identity)
        else:
            self._travel(pair, sender, to, message, identity)

    def _send_many(self, sender: Address, outputs: Sequence[Any]) -> Sequence[Any]:
        """Send what goes to one peer as one stretch, where its link is quiet; give what is left."""
        if self._losing:
            return outputs
        stretches: dict[Address, list[Any]] = {}
        left: list[Any] = []
        for output in outputs:
            if type(output) is Send and self._traffic.is_quiet(
                (self.node[sender], self.node.get(output.to, output.to))
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
        if self.recorder.messages:
            rows = (Row(self.steps, self.now_us, sender, "sent", to, m, first + i) for i, m in enumerate(messages))
            self.recorder.rows.extend(rows)
        arrival = self._traffic.arrivals(self.node[sender], self.node.get(to, to), self.now_us)[0]
        self._put(arrival.at_us, _MESSAGES, (sender, to, messages, first))

    def _deliver_many(self, entry: tuple[Address, Address, tuple[Any, ...], int]) -> None:
        sender, to, messages, first = entry
        if to not in self.states or to in self.down or to in self.paused:
            for i, message in enumerate(messages):
                self._deliver((sender, to, message, first + i), 0)
            return
        if self.recorder.messages:
            self.recorder.rows.extend(
                Row(self.steps + 1, self.now_us, to, "received", sender, m, first + i) for i, m in enumerate(messages)
            )
        self.steps += len(messages) - 1
        self._step(to, ReceivedMany(sender, messages))

    def _travel(self, pair: tuple[str, str], sender: Address, to: Address, message: Any, identity: int) -> None:
        arrivals = self._traffic.arrivals(*pair, self.now_us)
        for arrival in arrivals:
            if arrival.resent:
                because = f"{arrival.resent} times"
                self.recorder.add(
                    Row(self.steps, self.now_us, sender, "resent", to, message, identity, because=because)
                )
            self._put(arrival.at_us, _MESSAGE, (sender, to, message, identity))
        if not arrivals:
            self._lost(sender, to, message, identity, "the link dropped it")

    def _cut(self, pair: tuple[str, str], sender: Address, to: Address, message: Any, identity: int) -> None:
        if self._traffic.network.transport == RESEND:
            self._held.setdefault(pair, []).append((sender, to, message, identity))
        else:
            self._lost(sender, to, message, identity, "the link is cut")

    def _is_to_lose(self, sender: Address, to: Address, message: Any) -> bool:
        for chosen in self._losing:
            lose: fault.Lose = chosen[0]
            sides = lose.sender in (None, sender, self.node[sender]) and lose.to in (None, to, self.node.get(to))
            if chosen[1] and sides and lose.message in ("any", name_of(message)):
                chosen[1] -= 1
                return True
        return False

    def _lost(self, sender: Address, to: Address, message: Any, identity: int, because: str) -> None:
        self.recorder.add(Row(self.steps, self.now_us, sender, "lost", to, message, identity, because=because))

    def _deliver(self, entry: tuple[Address, Address, Any, int], order: int) -> None:
        sender, to, message, identity = entry
        if to in self.down and self._traffic.network.transport == RESEND:
            self._unheard.setdefault(to, []).append(entry)
        elif to not in self.states or to in self.down:
            self._lost(sender, to, message, identity, f"{to} is not there")
        elif to in self.paused:
            self._put(self.paused[to], _MESSAGE, entry)
        else:
            if self.recorder.messages:
                self.recorder.rows.append(Row(self.steps + 1, self.now_us, to, "received", sender, message, identity))
            self._step(to, Received(sender, message))

    def _fire(self, entry: tuple[Address, Any], order: int) -> None:
        address, name = entry
        if self._timers.get(entry) != order or address not in self.states:
            return
        if address in self.paused:
            self._timers[entry] = self._put(self.paused[address], _TIMER, entry)
            return
        if self.recorder.timers:
            self.recorder.rows.append(Row(self.steps + 1, self.now_us, address, "fired", None, str(name)))
        self._step(address, Fired(name))

    # Faults

    def _note(self, node: str, kind: str, because: str = "", peer: str | None = None) -> None:
        self.recorder.add(
            Row(self.steps, self.now_us, self.address.get(node, node), kind, peer, because=because or None)
        )

    def _join(self, one: fault.Join) -> None:
        self._start(one.node)

    def _crash(self, one: fault.Crash) -> None:
        address = self.address[one.node]
        if address in self.down:
            return
        self._note(one.node, "crashed")
        self.down.add(address)
        self.paused[address] = _NEVER  # its timers wait for a restart that keeps the state
        if self.auditor:
            self._judge(address, self.auditor.went_down(self, address, self.states[address]))

    def _exit(self, address: Address, output: Exit) -> None:
        node = self.node[address]
        self._note(node, "crashed", output.because)
        self.down.add(address)
        self.paused[address] = _NEVER
        if self.auditor:
            self._judge(address, self.auditor.went_down(self, address, self.states[address]))
        self._put(self.now_us + output.after_us, _FAULT, fault.Restart(self.now_us + output.after_us, node))

    def _restart(self, one: fault.Restart) -> None:
        address = self.address[one.node]
        if address not in self.down:
            return
        self.down.discard(address)
        self.paused.pop(address)
        self._note(one.node, "restarted", "with its state" if one.keep_state else "without its state")
        if one.keep_state:
            self._rearm(address)
            for entry in self._unheard.pop(address, []):
                self._put(self.now_us, _MESSAGE, entry)
            self._up(address)
            return
        for sender, to, message, identity in self._unheard.pop(address, []):
            self._lost(sender, to, message, identity, f"{to} is gone")
        del self.states[address]
        self._lives[one.node] += 1
        self._start(one.node)

    def _rearm(self, address: Address) -> None:
        """Timers that came due while the node was down fire now."""
        waiting = sorted((e for e in self._queue if e[0] >= _NEVER and e[3][0] == address), key=lambda e: e[1])
        if waiting:
            gone = {e[1] for e in waiting}
            self._queue[:] = [e for e in self._queue if e[1] not in gone]
            heapq.heapify(self._queue)
            for _, _, what, entry in waiting:
                self._timers[entry] = self._put(self.now_us, what, entry)

    def _up(self, address: Address) -> None:
        """Let the node look at its clock before it goes on."""
        self._step(address, Fired("resumed"))
        if self.auditor and not self.violation:
            self._judge(address, self.auditor.came_up(self, address, self.states[address]))

    def _pause(self, one: fault.Pause) -> None:
        address = self.address[one.node]
        if address in self.paused:
            return
        until_us = self.now_us + one.for_us
        self._note(one.node, "paused", f"for {one.for_us / 1000:g} ms")
        self.paused[address] = until_us
        if self.auditor:
            self._judge(address, self.auditor.went_down(self, address, self.states[address]))
        self._put(until_us, _CALL, lambda: self._resume(one.node, address, until_us))

    def _resume(self, node: str, address: Address, until_us: int) -> None:
        if self.paused.get(address) == until_us and address not in self.down:
            del self.paused[address]
            self._note(node, "resumed")
            self._up(address)

    def _part(self, one: fault.Part) -> None:
        pairs = [(one.a, one.b)] if one.one_way else [(one.a, one.b), (one.b, one.a)]
        self._note(one.a, "parted", "one way" if one.one_way else "", one.b)
        for pair in pairs:
            self._traffic.parted[pair] += 1
        if one.for_us is not None:
            self._put(self.now_us + one.for_us, _CALL, lambda: self._reopen(one.a, one.b, pairs))

    def _heal(self, one: fault.Heal) -> None:
        for pair in ((one.a, one.b), (one.b, one.a)):
            self._traffic.parted[pair] = min(self._traffic.parted[pair], 1)
        self._reopen(one.a, one.b, [p for p in ((one.a, one.b), (one.b, one.a)) if self._traffic.parted[p]])

    def _reopen(self, a: str, b: str, pairs: Sequence[tuple[str, str]]) -> None:
        self._note(a, "healed", peer=b)
        for pair in pairs:
            self._traffic.parted[pair] = max(0, self._traffic.parted[pair] - 1)
            if not self._traffic.parted[pair]:
                for sender, to, message, identity in self._held.pop(pair, []):
                    self._travel(pair, sender, to, message, identity)

    def _refuse(self, one: fault.Refuse) -> None:
        self._note(one.a, "refused", f"no message to {one.b} for {one.for_us / 1000:g} ms", one.b)
        self._traffic.refused[one.a, one.b] += 1
        self._set_refusals(one.a)
        self._put(self.now_us + one.for_us, _CALL, lambda: self._accept(one))

    def _accept(self, one: fault.Refuse) -> None:
        self._traffic.refused[one.a, one.b] -= 1
        self._set_refusals(one.a)

    def _set_refusals(self, node: str) -> None:
        peers = [b for (a, b), n in self._traffic.refused.items() if a == node and n]
        self._no_refusal[self.address[node]] = frozenset(self.address.get(b, b) for b in peers)

    def _relink(self, one: fault.Relink) -> None:
        pair = (one.a, one.b)
        old = self._traffic.links.get(pair)
        self._traffic.links[pair] = one.link
        if one.for_us is not None:
            self._put(self.now_us + one.for_us, _CALL, lambda: self._unlink(pair, old))

    def _unlink(self, pair: tuple[str, str], old: Any) -> None:
        if old is None:
            self._traffic.links.pop(pair, None)
        else:
            self._traffic.links[pair] = old

    def _lose(self, one: fault.Lose) -> None:
        self._losing.append([one, one.times])

    def _skew(self, one: fault.Skew) -> None:
        self._skews[one.node] = (one.offset_us, one.drift_ppm, self.now_us)

    def _ask(self, one: fault.Ask) -> None:
        address = self.address[one.node]
        if address in self.down:
            self._note(one.node, "lost", f"{one.node} is down when it is asked for {name_of(one.command)}")
        elif address in self.paused:
            self._put(self.paused[address], _FAULT, one)
        else:
            self.ask(one.node, one.command)


_MESSAGE, _TIMER, _START, _FAULT, _CALL, _MESSAGES = range(6)
_STRETCH = 16
_NEVER = 1 << 62

_FAULTS: dict[type, Any] = {
    fault.Join: Kernel._join,
    fault.Crash: Kernel._crash,
    fault.Restart: Kernel._restart,
    fault.Pause: Kernel._pause,
    fault.Part: Kernel._part,
    fault.Heal: Kernel._heal,
    fault.Refuse: Kernel._refuse,
    fault.Relink: Kernel._relink,
    fault.Lose: Kernel._lose,
    fault.Skew: Kernel._skew,
    fault.Ask: Kernel._ask,
}

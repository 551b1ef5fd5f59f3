"""The one event loop of all simulators: virtual time, one seed, a network, faults, and an auditor that sees each step.

What happens next is the earliest entry of one queue, at equal times the one that was put in first; chance is drawn from
the seed alone, and nothing unordered is iterated: the same world gives the same trace, byte for byte.
"""

from __future__ import annotations

import gc
import heapq
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import count
from typing import Any, Protocol

from ticdc_lab.engine.giving_up import still_wanted
from ticdc_lab.machines.machine import (
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
    OnDisk,
    Reason,
    Received,
    Send,
    Wake,
    made,
)
from ticdc_lab.simulate import faults as fault
from ticdc_lab.simulate.network import FAULT, MESSAGE, MESSAGES, START, STRETCH, TIMER, Network, Post
from ticdc_lab.simulate.trace import EVENTS, Recorder, Row


@contextmanager
def no_cycles() -> Iterator[None]:
    """Leave the search for reference cycles out: states hold none, and it took half the time of large runs.

    What was made meanwhile counts as old afterwards. As young it would be searched at once, all of it.
    """
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            if not gc.get_freeze_count():  # what another has frozen is to stay so
                gc.freeze()
                gc.unfreeze()
            gc.enable()


_ASKS = 256
"""After so many steps it is asked whether the run is still wanted."""


@dataclass(frozen=True, slots=True)
class Violation:
    """An invariant that does not hold."""

    invariant: str  # its name: ``No Double Write``
    because: str  # what was seen, in a sentence
    # When, in virtual time and steps
    step: int
    time_us: int


class Auditor(Protocol):
    """Watches a run; each method gives (invariant, because) of what it finds broken, else None.

    One whose ``sees_changes_alone`` is True is not shown steps without a :class:`Changed`: nothing that it looks at is
    another one after them.
    """

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

    ``because`` is ``time`` (it came to its end), ``violation``, ``steps`` (its limit), ``quiet`` (nothing is left) or
    ``settled`` (what it was to come to has held for long enough).
    """

    because: str
    time_us: int
    steps: int
    violation: Violation | None = None
    doing: str = ""


class Kernel:
    """A world in motion.

    ``machines``: by name of node, in the order in which they start. ``network``: how messages travel. ``faults``: what
    goes wrong, and what users do, at which time. ``seed``: draws delays and losses. ``auditor``: watches every step.
    ``recorder``: takes the trace. ``step_limit``: a run that takes more steps than this ends with what it was doing.
    ``sample_us``: how often :attr:`snapshots` take the states of all live nodes, at steps that the auditor sees; None
    for never.
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
        sample_us: int | None = None,
    ) -> None:
        self.machines = dict(machines)
        self.states: dict[Address, Any] = {}
        self.address: dict[str, Address] = {}
        self.node: dict[Address, str] = {}
        self.down: set[Address] = set()
        self.exited: set[Address] = set()
        self.paused: dict[Address, int] = {}
        self.returning: set[Address] = set()
        self.now_us = self.steps = 0
        self.recorder = recorder or Recorder("run", EVENTS)
        self.auditor = auditor
        self._shows_all = auditor is not None and not getattr(auditor, "sees_changes_alone", False)
        self.violation: Violation | None = None
        self.settled = False
        self._step_limit = step_limit
        self._sample_us, self._sampled_us = sample_us, -1
        self.snapshots: list[tuple[int, dict[Address, Any]]] = []
        self.queue: list[tuple[int, int, int, Any]] = []
        self.numbered = count(1).__next__
        self.post = Post(self, network or Network(), seed)
        self.timers: dict[tuple[Address, Any], int] = {}
        self.lives = dict.fromkeys(self.machines, 1)
        self.skews: dict[str, tuple[int, int, int]] = {}
        self.refusals: dict[Address, frozenset[Address]] = {}
        planned = list(faults)
        late = {f.node for f in planned if isinstance(f, fault.Join)}
        for name in self.machines:
            if name not in late:
                self.put(0, START, name)
        for one in planned:
            self.put(one.at_us, FAULT, one)

    @no_cycles()
    def run(self, until_us: int) -> End:
        """Run until a moment, a violation or the step limit."""
        queue = self.queue
        while queue and queue[0][0] <= until_us:
            if self.steps >= self._step_limit:
                return self._ended("steps", f"next: {self._next()}")
            if not self.steps % _ASKS:
                still_wanted()
            self.now_us, order, what, entry = heapq.heappop(queue)
            if what == MESSAGE:
                self.arrive(entry)
            elif what == MESSAGES:
                self.post.deliver_many(entry)
            elif what == TIMER:
                self._fire(entry, order)
            elif what == START:
                self.begin(entry)
            elif what == FAULT:
                entry.strike(self)
            else:
                entry()
                if self.settled:
                    return self._ended("settled", "")
            if self.violation:
                return self._ended("violation", self.violation.because)
        self.now_us = until_us if queue else self.now_us
        return self._ended("time" if queue else "quiet", "")

    def ask(self, node: str, command: Any) -> None:
        """Give a node a command at once."""
        address = self.address[node]
        self.recorder.add(Row(self.steps, self.now_us, address, "asked", None, command))
        self.take(address, Asked(command))

    def _ended(self, because: str, doing: str) -> End:
        self.recorder.add(
            Row(self.steps, self.now_us, "", "stopped", because=f"{because}: {doing}" if doing else because)
        )
        return End(because, self.now_us, self.steps, self.violation, doing)

    def _next(self) -> str:
        at_us, _, what, entry = self.queue[0]
        text = {MESSAGE: "a message", TIMER: "a timer", START: "a start", FAULT: "a fault"}.get(what)
        if what == MESSAGES:
            sender, to, messages, _ = entry
            text = f"{len(messages)} messages from {sender} to {to}, the first"
            entry = messages[0]
        doing = f"{text} {entry}" if text else "the end of a fault"
        return f"{doing} at {at_us / 1e6:.6f} s; {len(self.queue)} entries wait"

    def put(self, at_us: int, what: int, entry: Any) -> int:
        """Put something into the queue; give its number."""
        order = self.numbered()
        heapq.heappush(self.queue, (at_us, order, what, entry))
        return order

    def begin(self, node: str, before: Any = None, disk: str = fault.LOST) -> None:
        """Let a node begin its next life; ``before`` is the end of its last one, whose disk may have something."""
        life = self.lives[node]
        address = node if life == 1 else f"{node}.{life}"
        self.address[node], self.node[address] = address, node
        self.post.traffic.quiet.clear()  # an address that was unknown may have been sent to
        fault.refuse_still(self, node)
        self.recorder.add(Row(self.steps, self.now_us, address, "started"))
        machine, now = self.machines[node], self._now(address)
        if before is not None and isinstance(machine, OnDisk):
            state, outputs = machine.again(address, before, disk, now)
        else:
            state, outputs = machine.start(address, now)
        self.states[address] = state
        self._carry_out(address, None, state, outputs)

    def _now(self, address: Address) -> Now:
        skew_us = 0
        if self.skews:
            offset_us, drift_ppm, since_us = self.skews.get(self.node[address], (0, 0, 0))
            skew_us = offset_us + (self.now_us - since_us) * drift_ppm // 1_000_000
        return made(Now, (self.now_us, self.refusals.get(address, NO_ONE), (), skew_us))

    def arrive(self, entry: tuple[Address, Address, Any, int]) -> None:
        """Let a message come in, if the node can take it now."""
        sender, to, message, identity = entry
        if to not in self.states or to in self.down or to in self.paused:
            self.post.missed(entry)
            return
        if self.recorder.messages:
            self.recorder.rows.append(Row(self.steps + 1, self.now_us, to, "received", sender, message, identity))
        self.take(to, made(Received, (sender, message)))

    def take(self, address: Address, event: Event) -> None:
        """Let a node take an event, and carry out what comes of it."""
        states = self.states
        before = states[address]
        if self.skews or self.refusals:
            now = self._now(address)
        else:
            now = made(Now, (self.now_us, NO_ONE, (), 0))
        after, outputs = self.machines[self.node[address]].step(before, event, now)
        states[address] = after
        self.steps += 1
        if outputs or self._shows_all:
            self._carry_out(address, before, after, outputs)

    def _carry_out(self, address: Address, before: Any, after: Any, outputs: Sequence[Any]) -> None:
        leaving: Exit | None = None
        now_us, shows = self.now_us, self._shows_all
        if len(outputs) >= STRETCH:
            outputs = self.post.send_many(address, outputs)
        for output in outputs:
            kind = type(output)
            if kind is Send:
                self.post.send(address, output, now_us)
            elif kind is Wake:
                after_us, name = output
                timer = (address, name)
                self.timers[timer] = order = self.numbered()
                heapq.heappush(self.queue, (now_us + after_us, order, TIMER, timer))
            elif kind is Exit:
                leaving = output
            elif kind is Broken:
                self._violated(address, output.invariant, output.because)
            else:
                shows = shows or kind is Changed
                if self.recorder.any:
                    self._record(address, output)
        if shows and self.auditor and not self.violation:
            found = self.auditor.saw(self, address, before, after, outputs)
            if found:
                self._violated(address, *found)
            if self._sample_us is not None and now_us >= self._sampled_us + self._sample_us:
                self.snapshots.append((now_us, {a: s for a, s in self.states.items() if a not in self.down}))
                self._sampled_us = now_us
        if leaving:
            fault.left(self, address, leaving)

    def _record(self, address: Address, output: Any) -> None:
        step, at_us, add = self.steps, self.now_us, self.recorder.rows.append
        if isinstance(output, Changed):
            subject, old, new, because = output
            add(Row(step, at_us, address, "changed", None, None, None, subject, old, new, because))
        elif isinstance(output, Decided):
            subject, chosen, reason, rejected = output
            add(Row(step, at_us, address, "decided", None, None, None, subject, None, chosen, reason, rejected))
        elif isinstance(output, Ignored):
            add(Row(step, at_us, address, "ignored", None, output.message, None, because=output.because))

    def judge(self, address: Address, found: tuple[str, str] | None) -> None:
        """Take the auditor's word."""
        if found:
            self._violated(address, *found)

    def _violated(self, address: Address, invariant: str, because: str) -> None:
        if not self.violation:
            self.violation = Violation(invariant, because, self.steps, self.now_us)
            self.recorder.add(
                Row(self.steps, self.now_us, address, "violated", None, None, None, invariant, because=because)
            )

    def _fire(self, entry: tuple[Address, Any], order: int) -> None:
        address, name = entry
        if self.timers.get(entry) != order or address not in self.states:
            return
        if address in self.paused:
            self.timers[entry] = self.put(self.paused[address], TIMER, entry)
            return
        if self.recorder.timers:
            self.recorder.rows.append(Row(self.steps + 1, self.now_us, address, "fired", None, str(name)))
        self.take(address, made(Fired, (name,)))

    def note(self, node: str, kind: str, because: str | Reason = "", peer: str | None = None) -> None:
        """Write what happened to a node into the trace."""
        self.recorder.add(
            Row(self.steps, self.now_us, self.address.get(node, node), kind, peer, because=because or None)
        )

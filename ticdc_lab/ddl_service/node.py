"""Drives a machine over a real store, in a thread of its own: what the kernel does with virtual time."""

from __future__ import annotations

import logging
import queue
import threading
import time
from collections import deque
from collections.abc import Callable, Hashable, Sequence
from typing import Any, Protocol

from ticdc_lab.simulate.ddl_service.store_messages import Answer, Request, Txn
from ticdc_lab.simulate.machine import Asked, Changed, Decided, Event, Fired, Now, Received, Send, Wake
from ticdc_lab.simulate.scheduler.clock import EPOCH_MS

POLL_S = 0.02
_NEWS = Fired("")
LOG = logging.getLogger("ticdc_lab.ddl_service")


class Backend(Protocol):
    """A store, or several by their addresses, that answer in order and tell before they answer."""

    def ask(self, store: str, request: Request) -> list[Answer]:
        """Carry out a request."""
        ...

    def news(self) -> list[tuple[str, Answer]]:
        """Give (store, what happened) since the last call."""
        ...

    def ring(self, bell: Callable[[], None]) -> None:
        """Ring a bell when there are news; one that never rings is asked often."""
        ...

    def close(self) -> None:
        """Let go of it."""
        ...


Saw = Callable[[Any, Any, Sequence[Any]], None]


class Node:
    """A machine at work.

    Parameters
    ----------
    machine
        What it is.
    address
        Its name.
    backend
        Where its messages go.
    saw
        Called after each step with the event, the state and the outputs.
    """

    def __init__(self, machine: Any, address: str, backend: Backend, saw: Saw | None = None) -> None:
        self.address, self.failed = address, False
        self._machine, self._backend, self._saw = machine, backend, saw
        self._inbox: queue.SimpleQueue[Event | None] = queue.SimpleQueue()
        self._timers: dict[Hashable, int] = {}
        self._todo: deque[Event] = deque()
        self.state: Any = None
        backend.ring(lambda: self._inbox.put(_NEWS))
        self._thread = threading.Thread(target=self._run, name=address, daemon=True)

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def post(self, command: Any) -> None:
        """Ask the machine for something; from any thread."""
        self._inbox.put(Asked(command))

    def stop(self, timeout_s: float = 5.0) -> None:
        """Give everything back, and end."""
        self._inbox.put(None)
        self._thread.join(timeout_s)

    def wait_for(self, holds: Callable[[Any], bool], timeout_s: float) -> bool:
        """Wait until something is so of the state; False where it is not in time."""
        end_s = time.monotonic() + timeout_s
        while time.monotonic() < end_s:
            if self.state is not None and holds(self.state):
                return True
            time.sleep(POLL_S / 2)
        return False

    def _run(self) -> None:
        try:
            self.state, outputs = self._machine.start(self.address, now())
            self._carry_out(outputs)
            self._loop()
        except Exception:
            LOG.exception("%s has failed", self.address)
            self.failed = True
        finally:
            self._backend.close()

    def _loop(self) -> None:
        while True:
            self._all()
            try:
                event = self._inbox.get(timeout=self._until_next_s())
            except queue.Empty:
                event = _NEWS
            if event is None:
                self._leave()
                return
            if event is not _NEWS:
                self._todo.append(event)
            self._todo.extend(Received(store, answer) for store, answer in self._backend.news())
            at_us = time.monotonic_ns() // 1000
            for name in [name for name, due_us in self._timers.items() if due_us <= at_us]:
                del self._timers[name]
                self._todo.append(Fired(name))

    def _until_next_s(self) -> float:
        next_us = min(self._timers.values(), default=1 << 62) - time.monotonic_ns() // 1000
        return min(POLL_S, max(0.0, next_us / 1e6))

    def _all(self) -> None:
        while self._todo:
            event = self._todo.popleft()
            self.state, outputs = self._machine.step(self.state, event, now())
            if self._saw:
                self._saw(event, self.state, outputs)
            self._carry_out(outputs)

    def _carry_out(self, outputs: Sequence[Any]) -> None:
        for output in outputs:
            if isinstance(output, Send):
                answers = self._backend.ask(output.to, output.message)
                if isinstance(output.message, Txn):  # what it did is told before it is answered
                    self._todo.extend(Received(store, answer) for store, answer in self._backend.news())
                self._todo.extend(Received(output.to, answer) for answer in answers)
            elif isinstance(output, Wake):
                self._timers[output.name] = time.monotonic_ns() // 1000 + output.after_us
            elif isinstance(output, Changed):
                LOG.info("%s: %s -> %s (%s)", output.subject, output.before, output.after, output.because)
            elif isinstance(output, Decided):
                LOG.info("%s: %s (%s)", output.subject, output.chosen or "nothing", output.because)

    def _leave(self) -> None:
        if hasattr(self._machine, "ended"):
            self.state, outputs = self._machine.ended(self.state, "it leaves the service")
            self._carry_out([o for o in outputs if not isinstance(o, Wake)])


def now() -> Now:
    """Give the moment: the system's time, by which TSOs are made, and the steady clock, by which leases are judged."""
    at_us = time.time_ns() // 1000 - EPOCH_MS * 1000
    return Now(at_us, skew_us=time.monotonic_ns() // 1000 - at_us)

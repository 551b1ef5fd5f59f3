"""Drives a machine over a real store, in a thread of its own: what the kernel does with virtual time."""

from __future__ import annotations

import logging
import queue
import threading
import time
from collections import deque
from collections.abc import Callable, Hashable, Sequence
from concurrent.futures import Future
from typing import Any, Protocol

from ticdc_lab.ddl_core.store import Answer, Request, Txn
from ticdc_lab.ddl_service.logs import fields
from ticdc_lab.ddl_service.store_time import StoreTime
from ticdc_lab.errors import TiCDCLabError
from ticdc_lab.machines.machine import Asked, Changed, Decided, Event, Fired, Received, Send, Told, Wake

POLL_S = 0.02
_NEWS = Fired("")
LOG = logging.getLogger("ticdc_lab.ddl_service")


class Backend(Protocol):
    """A store, or several by their addresses.

    What every store guarantees, and ``tests/ddl_service/test_store_contract.py`` holds of each:

    - Reads are linearizable: a ``Read`` sees all that any client got before it.
    - A ``Txn`` is compare-and-set: all its operations happen at one revision, under all its conditions, or none does;
      revisions rise, one for each change.
    - Leases: a key with a lease is there for as long as the lease, which lives at least ``ttl_us`` from when it was
      asked for or kept alive; a lease that has ended never lives again, and nothing is written under it.
    - Watches have no gaps: an observer gets each revision after its snapshot once, whole and in order, or that its
      session is over.
    - An observer sees its transaction before the answer.
    """

    time: StoreTime  # the store's time, as far as it is known

    def ask(self, store: str, request: Request) -> list[Answer]: ...

    def news(self) -> list[tuple[str, Answer]]:
        """Give (store, what happened) since the last call."""
        ...

    @property
    def trouble(self) -> str:
        """Why nothing can be written now; empty where it can."""
        ...

    def ring(self, bell: Callable[[], None]) -> None:
        """Ring a bell when there are news; one that never rings is asked often."""
        ...

    def close(self) -> None: ...


Saw = Callable[[Any, Any, Sequence[Any]], None]


class Node:
    """A machine at work.

    ``machine``: what it is. ``address``: its name. ``backend``: where its messages go. ``saw``: called after each step
    with the event, the state and the outputs.
    """

    def __init__(self, machine: Any, address: str, backend: Backend, saw: Saw | None = None) -> None:
        self.address, self.failed = address, False
        self._machine, self._backend, self._saw = machine, backend, saw
        self._inbox: queue.SimpleQueue[Event | None] = queue.SimpleQueue()
        self._timers: dict[Hashable, int] = {}
        self._todo: deque[Event] = deque()
        self.state: Any = None
        self._asked: dict[str, Future[Any]] = {}
        backend.ring(lambda: self._inbox.put(_NEWS))
        self._thread = threading.Thread(target=self._run, name=address, daemon=True)

    @property
    def trouble(self) -> str:
        """Why its store takes no changes; empty where it does."""
        return self._backend.trouble

    @property
    def remedy(self) -> str:
        """What an operator has to decide about its store before it can resume; empty if nothing."""
        return getattr(self._backend, "remedy", "")

    @property
    def time(self) -> StoreTime:
        """Its time, as its store bounds it."""
        return self._backend.time

    def start(self) -> None:
        self._thread.start()

    def post(self, command: Any) -> None:
        """Ask the machine for something; from any thread."""
        self._inbox.put(Asked(command))

    def ask(self, command: Any) -> Future[Any]:
        """Ask the machine for something that is answered, by its ``request``; from any thread."""
        found = self._asked[command.request] = Future()
        found.add_done_callback(lambda _: self._asked.pop(command.request, None))
        self.post(command)
        return found

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
            self.state, outputs = self._machine.start(self.address, self._backend.time.now())
            self._carry_out(outputs)
            self._loop()
        except TiCDCLabError as error:
            LOG.error("%s ends: %s", self.address, error.message)
            self.failed = True
        except Exception:
            LOG.exception("%s has failed", self.address)
            self.failed = True
        finally:
            for asked in list(self._asked.values()):
                asked.cancel()
            self._backend.close()

    def _loop(self) -> None:
        while True:
            self._all()
            try:
                event = self._inbox.get(timeout=self._until_next_s())
            except queue.Empty:
                event = _NEWS
            if event is None:
                if hasattr(self._machine, "ended"):
                    self.state, outputs = self._machine.ended(self.state, "it leaves the service")
                    self._carry_out([o for o in outputs if not isinstance(o, Wake)])
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
            self.state, outputs = self._machine.step(self.state, event, self._backend.time.now())
            if self._saw:
                self._saw(event, self.state, outputs)
            self._carry_out(outputs)

    def _carry_out(self, outputs: Sequence[Any]) -> None:
        for output in outputs:
            if isinstance(output, Send):
                answers = self._backend.ask(output.to, output.message)
                if isinstance(output.message, Txn):  # its effect is delivered before its answer
                    self._todo.extend(Received(store, answer) for store, answer in self._backend.news())
                self._todo.extend(Received(output.to, answer) for answer in answers)
            elif isinstance(output, Wake):
                self._timers[output.name] = time.monotonic_ns() // 1000 + output.after_us
            elif isinstance(output, Told):
                asked = self._asked.get(output.command.request)
                if asked and asked.set_running_or_notify_cancel():
                    asked.set_result(output.outcome)
            elif isinstance(output, Changed):
                said = fields(
                    event="changed", subject=output.subject, before=output.before, after=output.after,
                    because=output.because,
                )  # fmt: skip
                words = map(line, (output.subject, output.before, output.after, output.because))
                LOG.info("%s: %s -> %s (%s)", *words, extra=said)
            elif isinstance(output, Decided):
                said = fields(event="decided", subject=output.subject, chosen=output.chosen, because=output.because)
                words = map(line, (output.subject, output.chosen or "nothing", output.because))
                LOG.info("%s: %s (%s)", *words, extra=said)


def line(text: object) -> str:
    """Give a text that cannot begin a line of its own in a log: names of tables come from users."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape", "replace").decode() for c in str(text))

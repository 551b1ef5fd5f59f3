"""Work in a thread for the latest wish alone: earlier ones are given up, and many in a row are one."""

from __future__ import annotations

from collections.abc import Callable
from contextvars import copy_context
from threading import Event, RLock, Thread
from typing import Generic, TypeVar

from IPython.core.getipython import get_ipython

from ticdc_lab.engine.giving_up import GivenUpError, unless

Wish = TypeVar("Wish")
Result = TypeVar("Result")
Start = Callable[[Callable[[], None]], None]
"""Runs a function some time, as in a thread."""

PAUSE_S = 0.15
"""How long a wish must be the latest before work on it begins."""


def in_kernel() -> bool:
    """Whether a browser may be looking: the code runs in a Jupyter kernel."""
    shell = get_ipython()
    return getattr(shell, "kernel", None) is not None


def in_thread(work: Callable[[], None]) -> None:
    """Run in a thread of its own, which does not keep the process alive, with what the caller's context holds."""
    Thread(target=copy_context().run, args=(work,), daemon=True).start()


class Background(Generic[Wish, Result]):
    """Fulfils the latest wish.

    Parameters
    ----------
    work
        From a wish to its result; it asks :func:`ticdc_lab.engine.giving_up.still_wanted` where it is long.
    done
        Called with the wish and the result, or the error, of the latest wish alone.
    start
        How work is run.
    pause_s
        See :data:`PAUSE_S`.
    """

    def __init__(
        self, work: Callable[[Wish], Result], done: Callable[[Wish, Result | Exception], None], *,
        start: Start = in_thread, pause_s: float = PAUSE_S,
    ) -> None:  # fmt: skip
        self._work, self._done, self._start, self._pause_s = work, done, start, pause_s
        self._lock, self._latest = RLock(), Event()

    def ask(self, wish: Wish) -> None:
        """Give up what runs, and begin with this."""
        given_up = self._instead()
        self._start(lambda: self._fulfil(wish, given_up))

    def give_up(self) -> None:
        """Give up what runs; nobody is told of its end."""
        self._instead()

    def _instead(self) -> Event:
        with self._lock:
            self._latest.set()
            self._latest = Event()
            return self._latest

    def _fulfil(self, wish: Wish, given_up: Event) -> None:
        if given_up.wait(self._pause_s):
            return
        found: Result | Exception
        try:
            with unless(given_up):
                found = self._work(wish)
        except GivenUpError:
            return
        except Exception as error:  # said by whoever is told, as an error of its own thread would be
            found = error
        with self._lock:  # also while it is told: no later wish may come between, and be overwritten by this one
            if not given_up.is_set():
                self._tell(wish, found)

    def _tell(self, wish: Wish, found: Result | Exception) -> None:
        try:
            self._done(wish, found)
        except Exception as error:  # a figure that the page cannot be sent must not leave it waiting
            self._done(wish, error)

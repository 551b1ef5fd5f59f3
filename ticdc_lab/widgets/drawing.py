"""A figure that follows a value: at once or in a thread, with what was done for it, and what is wrong."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from contextvars import copy_context
from threading import Event, RLock, Thread
from types import MappingProxyType
from typing import Generic, NamedTuple, TypeVar

import pandas as pd
from IPython.core.getipython import get_ipython

from ticdc_lab.engine.failures import engine_errors
from ticdc_lab.engine.giving_up import GivenUpError, unless
from ticdc_lab.errors import TiCDCLabError
from ticdc_lab.figures.figure import Figure
from ticdc_lab.figures.theme import label, sentence
from ticdc_lab.widgets.figure_view import FigureView
from ticdc_lab.widgets.problem import Problem

View = TypeVar("View")
"""A frozen dataclass whose fields are the controls' names."""

MEASURED = "from what was measured"
"""The note on a figure for which nothing was run again."""

_EXACT_S = 0.0015
"""Two moments that counts do not distinguish: they have milliseconds."""


def wider_words(chosen: tuple[float, float], shown: tuple[float, float]) -> str:
    """The end of a note on a figure whose rows are counted by whole stretches, where it shows more than was chosen."""
    wider = shown[0] < chosen[0] - _EXACT_S or shown[1] > chosen[1] + _EXACT_S
    return f"; rows are counted by stretches, so {shown[0]:,.3f} to {shown[1]:,.3f} s is shown" if wider else ""


_CANCELLED = "cancelled; the figure is still of what was chosen before"
_REFUSED = "not drawn; the figure is still of what was chosen before"
_HEIGHT_PX = 450
_SECOND_MS = 1000


class Drawn(NamedTuple):
    """A figure, what was done for it (``the model ran again``), and the frames that it was drawn of, by name."""

    figure: Figure
    done: str = MEASURED
    frames: Mapping[str, pd.DataFrame] = MappingProxyType({})


class Drawing(Generic[View]):
    """The last figure that could be drawn, where it is shown, and why there is none of what was asked.

    ``draw``: from a value to a figure. ``slow``: whether a notebook waits for it in a thread. ``doing``: what is shown
    meanwhile. ``marked``: called with what is wrong, so that it is marked where it lies; None when nothing is any more.
    """

    def __init__(
        self, draw: Callable[[View], Figure | Drawn], *, slow: bool, doing: str,
        marked: Callable[[Problem | None], None],
    ) -> None:  # fmt: skip
        self._draw, self._slow, self._doing, self._marked = draw, slow, doing, marked
        self.view = FigureView(keeps_state=True)
        self.figure = sentence("Nothing is drawn yet", "")
        self.frames: Mapping[str, pd.DataFrame] = {}
        self.problem: Problem | None = None
        self._of: View | None = None
        self._done, self._more, self._lock = "", "", RLock()
        self._later: Background[View, Drawn] = Background(self._drawn, self._take)

    def now(self, value: View, more: str = "") -> None:
        """Draw, and wait for it; an error that is no word of this package is raised once it is shown.

        ``more`` is noted at the figure, too.
        """
        self._later.give_up()
        self._more = more
        try:
            self._take(value, self._drawn(value))
        except TiCDCLabError as error:
            self._take(value, error)
        except Exception as error:
            self._take(value, error)
            raise

    def follow(self, value: View, more: str = "") -> None:
        """Draw when a control changed; nothing where the figure is of this value already."""
        self._more = more
        if value == self._of:
            self._later.give_up()
            self._settle(self._with_more(self._done))
        elif self._slow and in_kernel():
            self.view.busy = self._doing
            self._later.ask(value)
        else:
            self.now(value, more)

    def cancel(self) -> None:
        """Give up what runs; the last figure stays, greyed."""
        if self.view.busy:
            self._later.give_up()
            self._settle(_CANCELLED, stale=True)

    def tell(self, problem: Problem) -> None:
        """Show what is wrong; the figure stays."""
        self._settle(_REFUSED, problem, stale=True)

    def _drawn(self, value: View) -> Drawn:
        began = time.perf_counter()
        with engine_errors():
            found = self._draw(value)
        drawn = found if isinstance(found, Drawn) else Drawn(found)
        return drawn._replace(done=f"{drawn.done}, {_took(time.perf_counter() - began)}")

    def _take(self, value: View, found: Drawn | Exception) -> None:
        with self._lock:
            if isinstance(found, Exception):
                self._refuse(Problem.of(found))
            else:
                self._show(value, found)

    def _show(self, value: View, found: Drawn) -> None:
        height = int(found.figure.layout.height or _HEIGHT_PX)
        another = getattr(value, "picture", None) != getattr(self._of, "picture", None)
        self.figure, self._of, self._done, self.frames = found.figure, value, found.done, found.frames
        with self.view.hold_sync():
            self.view.height = height if another else max(height, self.view.height)
            self.view.show(found.figure)
            self._settle(self._with_more(found.done))

    def _with_more(self, done: str) -> str:
        return f"{done}; {self._more}" if self._more else done

    def _refuse(self, problem: Problem) -> None:
        if self._of is None:
            self.figure = sentence("Nothing can be drawn yet", label(problem.message, most=400))
            self.view.show(self.figure)
        self.tell(problem)

    def _settle(self, status: str, problem: Problem | None = None, *, stale: bool = False) -> None:
        with self._lock, self.view.hold_sync():  # the view holds back for one thread at a time
            self.problem = problem
            self.view.busy, self.view.status, self.view.stale = "", status, stale
            self.view.problem = problem.as_dict() if problem else {}
        self._marked(problem)


def _took(seconds: float) -> str:
    ms = 1000 * seconds
    return f"{ms:.0f} ms" if ms < _SECOND_MS else f"{seconds:.1f} s"


# Work in a thread for the latest wish alone: earlier ones are given up, and many in a row are one.

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

    ``work``: from a wish to its result; it asks :func:`ticdc_lab.engine.giving_up.still_wanted` where it is long.
    ``done``: called with the wish and the result, or the error, of the latest wish alone. ``start``: how work is run.
    ``pause_s``: see :data:`PAUSE_S`.
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
        """Give up what runs, without reporting its end."""
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
        except Exception as error:  # reported by the receiver, as an error of its own thread would be
            found = error
        with self._lock:  # also while it is reported: no later wish may come between, and be overwritten by this one
            if not given_up.is_set():
                self._tell(wish, found)

    def _tell(self, wish: Wish, found: Result | Exception) -> None:
        try:
            self._done(wish, found)
        except Exception as error:  # a figure that the page cannot be sent must not leave it waiting
            self._done(wish, error)

"""Runs that panels look at: the last few are kept, so that another picture of one runs nothing."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from functools import lru_cache
from typing import Any, Generic, Protocol, TypeVar

import pyarrow as pa

Found = TypeVar("Found")

KEPT = "from the run that is kept"
AGAIN = "the model ran again"
"""The note on a figure."""


class Ran(Protocol):
    """A run of a model, as :class:`ticdc_lab.simulate.scheduler.run.SchedulerRun` and its likes are."""

    @property
    def trace(self) -> pa.Table:
        """:data:`ticdc_lab.simulate.trace.TRACE`."""
        ...

    def again(self, at_us: int, faults: Sequence[Any]) -> Ran:
        """Run once more with other faults from a moment on."""
        ...


class Kept(Generic[Found]):
    """The last results of something slow. ``make``: from a key to a result. ``most``: how many are kept."""

    def __init__(self, make: Callable[..., Found], *, most: int = 8) -> None:
        self._made = lru_cache(maxsize=most)(make)

    def of(self, *key: Hashable) -> Found:
        """Give a result, made now if it is not kept."""
        return self._made(*key)

    @property
    def made(self) -> int:
        """How many were made so far."""
        return int(self._made.cache_info().misses)


class Runs(Generic[Found]):
    """What is seen in a run without faults, or in one that a disturbance parts from it.

    ``simulate``: from a choice of the user to a run. ``disturbing``: from a choice and a disturbance to the moment (µs)
    from which the run differs, and the faults. ``seen``: from a run and its choice to what pictures need.
    """

    def __init__(
        self, simulate: Callable[..., Any], *, disturbing: Callable[[Any, Any], tuple[int, Sequence[Any]]],
        seen: Callable[[Any, Any], Found],
    ) -> None:  # fmt: skip
        self._undisturbed: Kept[Any] = Kept(lambda choice: simulate(*choice))
        self._disturbing, self._seen = disturbing, seen
        self._looked: Kept[Found] = Kept(self._look)

    def look(self, choice: Hashable, disturbance: Hashable = None) -> tuple[Found, str]:
        """Give what is seen, and what was done for it.

        ``choice``: arguments of ``simulate``. ``disturbance``: None where nothing disturbs.
        """
        ran, looked = self._undisturbed.made, self._looked.made
        found = self._looked.of(choice, disturbance)
        if self._undisturbed.made > ran:
            return found, AGAIN
        return found, f"{AGAIN} from the fault on" if disturbance and self._looked.made > looked else KEPT

    def _look(self, choice: Any, disturbance: Any) -> Found:
        run = self._undisturbed.of(choice)
        if disturbance is not None:
            at_us, faults = self._disturbing(choice, disturbance)
            run = run.again(at_us, faults)
        return self._seen(run, choice)

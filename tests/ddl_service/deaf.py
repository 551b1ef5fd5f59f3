"""A store whose changes one worker hears late: its mirror is behind, as after a pause or on a slow line."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable

from ticdc_lab.ddl_core.store import Answer, Done, Happened, Request
from ticdc_lab.ddl_service.node import Backend
from ticdc_lab.ddl_service.store_time import StoreTime


class Deaf:
    """A store, as its worker hears it.

    Attributes
    ----------
    hears
        While it is not set the worker is not informed of what others change in a store, until it changes something
        there itself: who has the answer to a transaction has learned all before it.
    """

    def __init__(self, store: Backend) -> None:
        self._store = store
        self.hears = threading.Event()
        self.hears.set()
        self._held: list[tuple[str, Answer]] = []
        self._written: set[str] = set()

    def ask(self, store: str, request: Request) -> list[Answer]:
        """Hand it on."""
        answers = self._store.ask(store, request)
        self._written |= _written((store, a) for a in answers)
        return answers

    def news(self) -> list[tuple[str, Answer]]:
        """Give what is new, but changes only while it hears."""
        found = [*self._held, *self._store.news()]
        told = self._written | _written(found)
        self._written.clear()
        is_held = [not self.hears.is_set() and isinstance(a, Happened) and at not in told for at, a in found]
        self._held = [news for news, held in zip(found, is_held, strict=True) if held]
        return [news for news, held in zip(found, is_held, strict=True) if not held]

    @property
    def time(self) -> StoreTime:
        """Hand it on."""
        return self._store.time

    @property
    def trouble(self) -> str:
        """Hand it on."""
        return self._store.trouble

    def ring(self, bell: Callable[[], None]) -> None:
        """Hand it on."""
        self._store.ring(bell)

    def close(self) -> None:
        """Hand it on."""
        self._store.close()


def _written(news: Iterable[tuple[str, Answer]]) -> set[str]:
    return {at for at, a in news if isinstance(a, Done) and a.succeeded}

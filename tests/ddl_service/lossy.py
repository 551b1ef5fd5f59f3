"""A store whose answers can get lost: a session ends where one does."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ticdc_lab.ddl_core.store import Answer, Done, Expired, Request
from ticdc_lab.ddl_service.node import Backend
from ticdc_lab.ddl_service.store_time import StoreTime


class Lossy:
    """A store that carries a transaction out and then hangs up, once.

    Attributes
    ----------
    loses
        What the transaction is called whose answer is lost next.
    """

    def __init__(self, store: Backend, loses: str) -> None:
        self._store, self.loses = store, loses

    def ask(self, store: str, request: Request) -> list[Answer]:
        """Hand it on."""
        return [self._heard(a) for a in self._store.ask(store, request)]

    def news(self) -> list[tuple[str, Answer]]:
        """Give what is new."""
        return [(at, self._heard(a)) for at, a in self._store.news()]

    def _heard(self, answer: Answer) -> Answer:
        tag: Any = answer.tag
        if isinstance(answer, Done) and answer.succeeded and tag[2] == self.loses:
            self.loses = ""
            return Expired((tag[0], tag[1], "session"))
        return answer

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

"""Long computing in Python that may be given up: it checks periodically whether it is still wanted."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from threading import Event

_GIVEN_UP: ContextVar[tuple[Event, ...]] = ContextVar("given_up", default=())


class GivenUpError(Exception):
    """The result is no longer wanted."""


@contextmanager
def unless(event: Event) -> Iterator[None]:
    """Let :func:`still_wanted` raise in the body once the event is set."""
    before = _GIVEN_UP.set((*_GIVEN_UP.get(), event))
    try:
        yield
    finally:
        _GIVEN_UP.reset(before)


def given_up() -> Event | None:
    """Give the event that is set when all the computing around is given up; None if it cannot be given up."""
    return next(iter(_GIVEN_UP.get()), None)


def still_wanted() -> None:
    """Raise :class:`GivenUpError` if the computing was given up; what was computed so far is lost."""
    if any(event.is_set() for event in _GIVEN_UP.get()):
        raise GivenUpError

"""Errors of this package that were raised in a task: what an engine makes of them is a trace, not a sentence."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager

from ticdc_lab import errors
from ticdc_lab.errors import TiCDCLabError

_SAID = re.compile(r"ticdc_lab\.errors\.(\w+): (.+)(?:\n\s*\nHint: (.+))?")


def said_in_a_task(error: BaseException) -> TiCDCLabError | None:
    """The error that a task raised on purpose, out of the trace that the engine makes of it."""
    found = _SAID.search(str(error))
    kind = getattr(errors, found[1], None) if found else None
    if found is None or not (isinstance(kind, type) and issubclass(kind, TiCDCLabError)):
        return None
    return kind(found[2].strip(), hint=(found[3] or "").strip())


def task_errors() -> AbstractContextManager[None]:
    """What a task raised on purpose in the body is raised here as what it is."""
    return raised_as(said_in_a_task)


@contextmanager
def raised_as(ours: Callable[[BaseException], TiCDCLabError | None]) -> Iterator[None]:
    """Raise what the body throws as the error that ``ours`` finds in it, if it finds one."""
    try:
        yield
    except TiCDCLabError:
        raise
    except Exception as error:  # an engine's own classes would have to be imported first
        found = ours(error)
        if found is None:
            raise
        raise found from error

"""Runs without Python's search for reference cycles."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


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

"""How much work something is: counted, so that no load of the machine changes it, or beside a peer."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from types import FrameType
from typing import Any


def lines_run(work: Callable[[], object]) -> int:
    """Count the lines of Python that this thread runs in it, each turn of a loop as well."""
    n, before = 0, sys.gettrace()

    def count(_: FrameType, event: str, __: Any) -> Any:
        nonlocal n
        n += event == "line"
        return count

    sys.settrace(count)
    try:
        work()
    finally:
        sys.settrace(before)
    return n


def times_the_work(work: Callable[[], object], peer: Callable[[], object], *, turns: int = 3) -> float:
    """How much more CPU time than a peer compiled code takes, of whose lines no one hears: the least of some turns.

    They take turns, and only this thread counts.
    """

    def cpu_s(of: Callable[[], object]) -> float:
        begun = time.thread_time()
        of()
        return time.thread_time() - begun

    taken = [(cpu_s(work), cpu_s(peer)) for _ in range(turns)]
    return min(w for w, _ in taken) / max(1e-4, min(p for _, p in taken))

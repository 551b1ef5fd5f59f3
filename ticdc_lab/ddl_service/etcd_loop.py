"""The one event loop of this process for all that talks to etcd: gRPC polls for one loop only."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine
from concurrent.futures import TimeoutError as TooLate
from functools import cache
from typing import Any, TypeVar

from ticdc_lab.errors import SourceError

T = TypeVar("T")


@cache
def loop() -> asyncio.AbstractEventLoop:
    """Give the loop, which runs in a thread of its own."""
    found = asyncio.new_event_loop()
    threading.Thread(target=found.run_forever, name="etcd", daemon=True).start()
    return found


def done(work: Coroutine[Any, Any, T], within_s: float) -> T:
    """Have the loop do something, and wait for it.

    Raises
    ------
    SourceError
        It takes too long.
    """
    future = asyncio.run_coroutine_threadsafe(work, loop())
    try:
        return future.result(within_s)
    except TooLate:
        future.cancel()
        raise SourceError(f"etcd does not answer within {within_s:g} s", hint="Look at its log.") from None

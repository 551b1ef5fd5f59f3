"""A bound of a watermark, and of which kinds its causes are."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from ticdc_lab.simulate.scheduler.clock import us_of

TRANSACTION, SCAN, STORE, REGION, DDL, DDL_PULLER, MOUNTER, SINK, CAPTURE, SCHEDULER, REPORT, PASSING = (
    "transaction", "scan", "store", "region", "ddl", "ddl puller", "mounter", "sink", "capture", "scheduler", "report",
    "passing",
)  # fmt: skip
KINDS = (TRANSACTION, SCAN, STORE, REGION, DDL, DDL_PULLER, MOUNTER, SINK, CAPTURE, SCHEDULER, REPORT, PASSING)
"""Of what can hold a watermark; ``passing``: nothing does any more, and what is newer is on its way."""

RESOLVED, CHECKPOINT = "resolved_ts", "checkpoint_ts"
WATERMARKS = (RESOLVED, CHECKPOINT)

CURRENT_US = 1_000_000
"""A watermark that is less behind than this is on its way: nothing holds it."""


class Step(NamedTuple):
    """A level of a chain (``processor``, ``table``, ``region``, ``lock``, ..) and its value; None where it has none."""

    level: str
    name: str
    ts: int | None = None


class Hold(NamedTuple):
    """A bound of a watermark.

    Attributes
    ----------
    key
        Of its cause: bounds of one cause (the locks of one transaction in five regions) share it, and go together.
    kind
        One of :data:`KINDS`.
    ts
        The watermark cannot be above it.
    path
        From the processor down to the cause.
    because
        A sentence: what it is.
    since_us
        Since when the cause is there, where the facts say so.
    """

    key: tuple[str, str]
    kind: str
    ts: int
    path: tuple[Step, ...]
    because: str
    since_us: int | None = None


def is_unexplained(ts: int, bounds: Iterable[int], current_us: int) -> bool:
    """Whether a value is lower than what is below it can explain."""
    return us_of(ts) < min(map(us_of, bounds)) - current_us

"""How fast this machine was before, so that an estimate is a measurement.

Each read of a log leaves how many messages it had and how long it took, in a small file of the cache folder. A file
that is damaged counts as empty, and one that cannot be written is not written: nothing fails for want of an estimate.
"""

from __future__ import annotations

import json
import os
import tempfile
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

from ticdc_lab.engine.environment import cache_folder

KEPT = 20
"""Runs of each step that are kept, the last ones."""

NEAR = 3
"""A run predicts another's time if neither has more than so many times the messages of the other."""


@dataclass(frozen=True, slots=True)
class TimedRun:
    """One run of a step: messages in, seconds."""

    messages: int
    seconds: float


def place() -> Path:
    """The file."""
    return cache_folder() / "speeds.json"


def decoding_step(engine: str, n_tasks: int, protocol: str, source_kind: str) -> str:
    """The step that reads a log: what decides how fast it is here."""
    return f"decode {protocol} of {source_kind}, {engine}, {n_tasks} tasks"


def note(step: str, *, messages: int, seconds: float) -> None:
    """Keep how long a step took.

    ``step``: what was done, of what, by which engine: ``decode canal-json embedded``. ``messages``, ``seconds``:
    nothing is kept of an empty log.
    """
    if messages <= 0 or seconds <= 0:
        return
    file = place()
    known = _read(file)
    known[step] = [*known.get(step, []), TimedRun(messages, seconds)][-KEPT:]
    told = {name: [[r.messages, round(r.seconds, 3)] for r in runs] for name, runs in sorted(known.items())}
    with suppress(OSError):
        file.parent.mkdir(parents=True, exist_ok=True)
        handle, new = tempfile.mkstemp(dir=file.parent, prefix=file.name)
        try:
            with os.fdopen(handle, "w", encoding="utf-8") as f:
                json.dump(told, f)
            os.replace(new, file)  # a reader sees the old file or the new one
        except BaseException:
            Path(new).unlink(missing_ok=True)
            raise


def expected_s(step: str, messages: int) -> float | None:
    """Give how long a step should take here: the median of runs of about that size; None where there was none.

    Examples
    --------
    >>> expected_s("a step that nobody ever ran", 1_000) is None
    True
    """
    runs = _read(place()).get(step, [])
    near = [r for r in runs if r.messages <= NEAR * messages and messages <= NEAR * r.messages]
    return median(r.seconds * messages / r.messages for r in near) if near else None


def _read(file: Path) -> dict[str, list[TimedRun]]:
    """What was kept; what is no measurement is left out."""
    try:
        told = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    if not isinstance(told, dict):
        return {}
    found = {
        step: [r for r in map(_run, runs) if r is not None] for step, runs in told.items() if isinstance(runs, list)
    }
    return {step: runs for step, runs in found.items() if runs}


def _run(told: Any) -> TimedRun | None:
    if not (isinstance(told, list) and len(told) == 2 and all(type(v) in (int, float) for v in told)):
        return None
    messages, seconds = told
    return (
        TimedRun(int(messages), float(seconds)) if 0 < messages < float("inf") and 0 < seconds < float("inf") else None
    )

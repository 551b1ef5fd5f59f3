"""Long runs of seed after seed; a failure prints the command that repeats it."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable

COMMAND = "SOAK_SEED={seed} SOAK_SECONDS=1 pytest -m soak {file} -k {name}"
SEED = int(os.environ.get("SOAK_SEED", time.time_ns() % 2**32))


def tried(file: str, name: str, seed: int, once: Callable[[int], int]) -> int:
    """Try one seed; how many messages that were."""
    try:
        return once(seed)
    except AssertionError as fault:
        raise AssertionError(f"repeat it: {COMMAND.format(seed=seed, file=file, name=name)}\n{fault}") from fault


def soak(file: str, name: str, once: Callable[[int], int]) -> None:
    """Try seeds for as long as ``SOAK_SECONDS`` shows (60), and show how many messages that were."""
    end, seed, n = time.monotonic() + float(os.environ.get("SOAK_SECONDS", "60")), SEED, 0
    while time.monotonic() < end:
        n += tried(file, name, seed, once)
        seed += 1
    sys.stdout.write(f"{name}: {n:,} messages from seed {SEED}\n")

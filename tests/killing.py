"""Ends of processes at moments that a seed chooses: as by ``kill -9``, of a whole group or of one worker in it."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from ticdc_lab.engine import worker_daemon

ROOT = Path(__file__).resolve().parent.parent
SEED, TIMES = int(os.environ.get("SOAK_SEED", "4")), int(os.environ.get("SOAK_KILLS", "15"))
"""Of the moments, and how many there are: ``SOAK_KILLS=200 SOAK_SEED=7 pytest -m soak ..``."""


def repeating(nodeid: str) -> str:
    """The command that kills at the same moments as a test did."""
    return f"SOAK_SEED={SEED} SOAK_KILLS={TIMES} pytest -m soak '{nodeid}'"


def started(*command: str) -> subprocess.Popen[str]:
    """A Python in a process group of its own, with this package."""
    return subprocess.Popen(
        [sys.executable, *command], start_new_session=True, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
    )  # fmt: skip


def moments(longest_s: float, *, seed: int = SEED, times: int = TIMES) -> Iterator[float]:
    """So many seconds to wait, each time others."""
    r = random.Random(seed)
    for _ in range(times):
        yield r.uniform(0, longest_s)


def changed(folder: Path) -> set[tuple[str, int]]:
    """What lies in a folder, by name and size: as long as it is the same nothing was written there."""
    found = set()
    for path in folder.rglob("*"):
        with suppress(OSError):
            found.add((str(path), path.stat().st_size))
    return found


def await_writing(process: subprocess.Popen[str], folder: Path, patience_s: float = 120) -> None:
    """Wait until a process begins to write in a folder, or ends."""
    before, end = changed(folder), time.monotonic() + patience_s
    while process.poll() is None and changed(folder) == before and time.monotonic() < end:
        time.sleep(0.05)


def killed(process: subprocess.Popen[Any]) -> bool:
    """Kill a process and all that it started, as by ``kill -9``; whether it still ran."""
    ran = process.poll() is None
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.communicate()
    return ran


@contextmanager
def stopped(process: subprocess.Popen[Any]) -> Iterator[None]:
    """Let a process and all that it started stall, so that the body finds its files as ``kill -9`` leaves them.

    What a thread has asked the system to write when the signal comes is written, as it is when it is killed. A thread
    that begins a process waits for it without an end, as that one stalls: it counts after a second.
    """
    group, end = [process.pid, *below(process.pid, "")], time.monotonic() + 1
    try:
        _send(group, signal.SIGSTOP)
        while not all(_stands(pid, waits=time.monotonic() > end) for pid in group):
            time.sleep(0.001)
        yield
    finally:
        _send(group, signal.SIGCONT)


def _send(pids: list[int], sent: signal.Signals) -> None:
    for pid in pids:
        with suppress(ProcessLookupError):
            os.kill(pid, sent)


def _stands(pid: int, *, waits: bool) -> bool:
    """Whether each thread of a process is stopped, or it has ended; one that waits for something may count."""
    states = set()
    for task in Path(f"/proc/{pid}/task").glob("*/stat"):
        with suppress(OSError):
            states.add(task.read_text().rpartition(")")[2].split()[0])
    return states <= {"T", "t", "Z", "X", "D" if waits else "T"}


def await_change(process: subprocess.Popen[Any], folder: Path, patience_s: float = 30) -> None:
    """Wait until a name comes to a folder or goes from it, as when a commit begins or ends."""
    before, end = _names(folder), time.monotonic() + patience_s
    while process.poll() is None and _names(folder) == before and time.monotonic() < end:
        time.sleep(0.0005)


def _names(folder: Path) -> list[str]:
    return sorted(os.listdir(folder)) if folder.is_dir() else []


def below(pid: int, command: str, *, leaves: bool = False) -> list[int]:
    """Processes below another whose command line holds a word, or of those only the ones without children."""
    children: dict[int, list[int]] = {}
    commands: dict[int, str] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with suppress(OSError, ValueError):
                status = (entry / "stat").read_text().rpartition(")")[2].split()
                commands[int(entry.name)] = (entry / "cmdline").read_text()
                children.setdefault(int(status[1]), []).append(int(entry.name))

    def tree(parent: int) -> Iterator[int]:
        for child in children.get(parent, ()):
            yield child
            yield from tree(child)

    return sorted(p for p in tree(pid) if command in commands[p] and not (leaves and children.get(p)))


def python_workers(process: subprocess.Popen[Any]) -> list[int]:
    """The Python workers that Spark has forked for a driver: leaves of its tree below their daemon."""
    return below(process.pid, f"-m\0{worker_daemon.__name__}", leaves=True)  # the JVM bears the name, too

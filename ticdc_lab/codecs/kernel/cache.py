"""The kernels' machine code on disk: is it there, and filling it beside the work. Nothing here imports numba.

A folder belongs to one source, one version of numba, one Python and one kind of processor. A part that was compiled
whole leaves a mark in it.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import platform
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from importlib.metadata import version
from pathlib import Path

from ticdc_lab.engine.environment import cache_folder

_NICENESS = "5"
"""The log that waits for the kernels fills all cores: with the least priority they would be ready after it."""

_NO_KERNELS = ("cache", "compiling")
_started: dict[str, subprocess.Popen[bytes]] = {}


@cache
def folder() -> Path:
    """Where the kernels of this source are kept.

    numba keys its cache by the file of the function alone, so a change in a callee of another file would go unnoticed:
    the folder's name is therefore a digest of all kernel sources, dispatch and checksums included.
    """
    h = hashlib.sha256("|".join((version("numba"), version("llvmlite"), sys.version, _processor())).encode())
    here = Path(__file__).parent
    elsewhere = (
        p for name in ("dispatch/*_kernel.py", "tables/checksum_findings.py") for p in here.parents[1].glob(name)
    )
    for source in sorted([*here.glob("*.py"), *elsewhere]):
        h.update(b"" if source.stem in _NO_KERNELS else source.read_bytes())
    return cache_folder() / "numba" / h.hexdigest()[:16]


def _processor() -> str:
    """What distinguishes processors that get different code."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.machine() + platform.processor()
    return platform.machine() + "".join(
        sorted({line for line in lines if line.startswith(("flags", "model name", "Features"))})
    )


def has(part: str) -> bool:
    """Whether a part was compiled whole."""
    return _mark(part).exists()


def note(part: str) -> None:
    """Mark a part as compiled whole."""
    folder().mkdir(parents=True, exist_ok=True)
    _mark(part).touch()


def _mark(part: str) -> Path:
    return folder() / f"{part}.whole"


@contextlib.contextmanager
def filling() -> Iterator[bool]:
    """Hold the lock of the one process of this machine that compiles; False if another has it, or none can have it."""
    try:
        folder().mkdir(parents=True, exist_ok=True)
        lock = _lock().open("w")
    except OSError:
        yield False
        return
    with lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            yield False
            return
        yield True


def _lock() -> Path:
    return folder() / f"{platform.node()}.lock"


def being_filled() -> bool:
    """Whether a process of this machine compiles."""
    try:
        lock = _lock().open()
    except OSError:
        return False
    with lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except OSError:
            return True
    return False


def start_filling(module: str = "ticdc_lab.codecs.kernel.compiling") -> None:
    """Let a process of its own, of less priority than the work, compile what a module does; nothing waits for it."""
    if module in _started or os.environ.get("TICDC_LAB_COMPILE") == "no":
        return
    command = [sys.executable, "-m", module, _NICENESS]
    nowhere = subprocess.DEVNULL
    with contextlib.suppress(OSError):
        _started[module] = subprocess.Popen(
            command, stdin=nowhere, stdout=nowhere, stderr=nowhere, start_new_session=True
        )

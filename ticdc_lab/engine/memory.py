"""Memory of this machine or its container: what a question needs of it, and an end in words before the system's."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from signal import SIGINT, pthread_kill
from threading import Event, Thread, main_thread
from types import MappingProxyType

from ticdc_lab.engine.environment import cpus, memory_bytes, memory_groups
from ticdc_lab.errors import EngineError, SetupError

_MIB = 1 << 20
_STARTED, _A_CORE, _A_BYTE = 240 * _MIB, 200 * _MIB, 1.0
"""Of a process that answers about a few messages; what each core takes beside that to decode a large log; and how much
of it for each byte of messages, until it is reached."""

NEEDS: Mapping[str, tuple[int, int]] = MappingProxyType(
    {"advise": (0, 1_100), "dispatch": (400 * _MIB, 350), "report": (0, 1_600), "what-if": (0, 1_100)}
)
"""Bytes that a question takes beside decoding, of any large log and for each row change.

Measured at 1 M row changes of canal-json. An audit, watermarks and transactions take no more of a larger log.
"""

_SPARK_HEAP, _SPARK_HEAP_LEAST = 4 << 30, 512 * _MIB
_HINT = "Run it where there is more memory, as on a cluster: SPARK_REMOTE."
_HINT_OF_ROWS = f"Take a part of the log: --tables, --from, --to. {_HINT}"


def needed(question: str, *, size: int, rows: int, cores: int) -> int:
    """Bytes of memory that a question takes on the embedded engine, about.

    ``size``: bytes of the messages. ``rows``: how many. ``cores``: how many threads decode.
    """
    always, a_row = NEEDS.get(question, (0, 0))
    decoding = _STARTED + min(int(size * _A_BYTE), cores * _A_CORE)
    return decoding + min(always, size) + a_row * rows


def require_room(question: str, *, size: int, rows: int, memory: int | None = None) -> None:
    """Refuse a question whose memory on the embedded engine is more than there is, before anything is read.

    ``question``: of :data:`NEEDS`; any other takes what decoding takes. ``size``, ``rows``: as of :func:`needed`.
    Raises SetupError: the system would end the process in the middle of the work.
    """
    there = memory_bytes() if memory is None else memory
    if (need := needed(question, size=size, rows=rows, cores=cores_for(there))) > there:
        raise SetupError(
            f"{question} of about {rows:,} messages needs {need >> 20:,} MiB of memory on the embedded engine, and "
            f"this machine or container has {there >> 20:,} MiB.",
            hint=_HINT_OF_ROWS if question in NEEDS else _HINT,
        )


def cores_for(memory: int) -> int:
    """How many threads decode a large log in some memory: all cores where it is enough."""
    return max(1, min(cpus(), (memory - _STARTED) // _A_CORE))


def heap_for(memory: int) -> str:
    """Heap of a Spark that runs here where none is asked for: 4 GB, or two fifths of less memory, as Spark writes it.

    Raises SetupError: what is left is no heap Spark starts with, and its Python workers need the rest.
    """
    if (heap := min(_SPARK_HEAP, memory * 2 // 5)) < _SPARK_HEAP_LEAST:
        raise SetupError(
            f"Apache Spark needs {_SPARK_HEAP_LEAST * 5 // 2 >> 20:,} MiB of memory here, and this machine or "
            f"container has {memory >> 20:,} MiB.",
            hint=f"An audit, watermarks or transactions may fit with --engine embedded. {_HINT}",
        )
    return f"{heap // _MIB}m"


def require_heap(heap: str, memory: int, whole: int) -> None:
    """Refuse a heap that a container has no memory for: the system would end Spark in the middle of the work.

    ``heap``: as Spark writes it. ``memory``: of the container. ``whole``: of its machine.
    """
    digits, unit = heap.strip().lower().removesuffix("b"), {"k": 10, "m": 20, "g": 30, "t": 40}
    n = int(digits[:-1]) << unit[digits[-1]] if digits[:-1].isdigit() and digits[-1:] in unit else 0
    if memory < whole and n > memory * 4 // 5:
        raise SetupError(
            f"A heap of {heap} does not fit this container, which has {memory >> 20:,} MiB of memory.",
            hint=f"Leave --driver-memory out, which gives {heap_for(memory)} here, or raise the container's limit.",
        )


GUARD = "memory"
"""Name of the thread that looks: it holds no lock that a copy of the process needs."""
_LOOKED_EVERY_S = 0.05
_looked_at = 0.0


def require_memory_left(root: Path = Path("/")) -> None:
    """Stop the work in words if the memory of this machine or its container is nearly taken; cheap to call often.

    Raises EngineError: the system would end the process next, without a word.
    """
    global _looked_at
    if root == Path("/") and time.monotonic() < _looked_at + _LOOKED_EVERY_S:
        return
    _looked_at = time.monotonic()
    if (error := used_up(root)) is not None:
        raise error


def used_up(root: Path = Path("/"), *, share: int = 16) -> EngineError | None:
    """The error of a machine or container of whose memory less than a part in ``share`` is left, 256 MiB at most."""
    for limit, left in (_of_machine(root), *_of_groups(root)):
        if left < min(limit // share, 256 * _MIB):
            return EngineError(
                f"The memory of this machine or container is used up: {left >> 20} of {limit >> 20} MiB are left. "
                "The work was stopped before the system ends the process.",
                hint=_HINT_OF_ROWS,
            )
    return None


@contextmanager
def guarded(end: Callable[[EngineError], None], root: Path = Path("/")) -> Iterator[Callable[[], EngineError | None]]:
    """Interrupt the main thread of a command once the memory is nearly taken; the result gives the error then.

    ``end``: called from another thread if the main thread does not stop and almost nothing is left.
    """
    found, over = list[EngineError](), Event()

    def watch() -> None:
        while not over.wait(_LOOKED_EVERY_S):
            if not found and (error := used_up(root)) is not None:
                found.append(error)
                pthread_kill(main_thread().ident or 0, SIGINT)  # wakes it where it waits
            elif found and used_up(root, share=40) is not None:
                end(found[0])

    thread = Thread(target=watch, name=GUARD, daemon=True)
    thread.start()
    try:
        yield lambda: next(iter(found), None)
    finally:
        over.set()
        thread.join()


def _of_machine(root: Path) -> tuple[int, int]:
    """Memory of the machine, and how much of it the system can still give."""
    with suppress(OSError, KeyError, ValueError, IndexError):  # no Linux
        lines = (root / "proc/meminfo").read_text().splitlines()
        of = {line.split(":")[0]: int(line.split()[1]) << 10 for line in lines}
        return of["MemTotal"], of["MemAvailable"] + of["SwapFree"]
    return 1, 1


def _of_groups(root: Path) -> list[tuple[int, int]]:
    """The same of each control group with a limit. Pages of files count for nothing: the system takes these back."""
    found = list[tuple[int, int]]()
    for folder, limit in memory_groups(root):
        with suppress(OSError, ValueError):
            of = dict(line.split() for line in (folder / "memory.stat").read_text().splitlines())
            names = ("total_rss", "total_shmem") if "total_rss" in of else ("anon", "shmem")
            found.append((limit, limit - sum(int(of.get(name, 0)) for name in names)))
    return found

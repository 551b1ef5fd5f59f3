"""A question that memory is too small for is refused in words, before it starts or before the system ends it."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import ticdc_lab
from ticdc_lab.engine import memory
from ticdc_lab.engine.memory import cores_for, heap_for, needed, require_heap, require_memory_left, require_room
from ticdc_lab.errors import EngineError, SetupError

SAMPLE = "data/messages_canal-json-tidb_small.jsonl.gz"
MIB = 1 << 20


@pytest.mark.parametrize(
    ("question", "rows", "mib"),
    [("audit", 1_000, 250), ("audit", 1_000_000, 700), ("audit", 10_000_000, 700), ("advise", 1_000_000, 1_800)],
)
def test_what_a_question_needs(question: str, rows: int, mib: int) -> None:
    """A little more than was measured on two cores; an audit takes no more of a larger log."""
    need = needed(question, size=rows * 450, rows=rows, cores=2)
    assert 0.85 * mib < need / MIB <= mib
    require_room(question, size=rows * 450, rows=rows, memory=need + MIB * 400)


def test_the_refusal_names_what_is_needed_and_what_there_is() -> None:
    """And what to do."""
    with pytest.raises(SetupError) as caught:
        require_room("advise", size=450_000_000, rows=1_000_000, memory=512 * MIB)
    assert str(caught.value).startswith("advise of about 1,000,000 messages needs ")
    assert re.search(
        r"needs 1,\d{3} MiB of memory on the embedded engine, and this machine or container has 512 MiB\.",
        str(caught.value),
    )
    assert "--tables, --from, --to" in caught.value.hint


def test_one_thread_decodes_where_two_have_no_room(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each needs memory of its own."""
    monkeypatch.setattr(memory, "cpus", lambda: 16)
    assert [cores_for(n * MIB) for n in (128, 512, 1_024, 65_536)] == [1, 1, 3, 16]


def planted(folder: Path, *, is_first: bool, limit: int, anon: int, available: int = 8 << 30) -> Path:
    """A root with a container's memory, and the machine's."""
    (folder / "proc/self").mkdir(parents=True, exist_ok=True)
    (folder / "proc/meminfo").write_text(
        f"MemTotal: {16 << 20} kB\nMemAvailable: {available >> 10} kB\nSwapFree: 0 kB\n"
    )
    (folder / "proc/self/cgroup").write_text("4:memory:/job\n" if is_first else "0::/job\n")
    own = folder / "sys/fs/cgroup" / ("memory/job" if is_first else "job")
    own.mkdir(parents=True, exist_ok=True)
    (own / ("memory.limit_in_bytes" if is_first else "memory.max")).write_text(f"{limit}\n")
    names = ("total_rss", "total_shmem") if is_first else ("anon", "shmem")
    (own / "memory.stat").write_text(f"cache {limit}\n{names[0]} {anon}\n{names[1]} {4 * MIB}\n")
    return folder


@pytest.mark.parametrize("is_first", [True, False])
def test_work_stops_before_the_memory_ends(tmp_path: Path, is_first: bool) -> None:
    """Of a container in both forms of control groups, and of the machine; pages of files do not count."""
    require_memory_left(planted(tmp_path, is_first=is_first, limit=512 * MIB, anon=400 * MIB))
    with pytest.raises(EngineError, match="28 of 512 MiB are left"):
        require_memory_left(planted(tmp_path, is_first=is_first, limit=512 * MIB, anon=480 * MIB))
    full = planted(tmp_path, is_first=is_first, limit=4 << 30, anon=0, available=100 * MIB)
    with pytest.raises(EngineError, match="100 of 16384 MiB are left"):
        require_memory_left(full)


def test_a_log_is_not_read_on_when_memory_ends(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    """The error of a thread that decodes is the answer."""
    monkeypatch.setattr(memory, "_LOOKED_EVERY_S", 0.0)
    monkeypatch.setattr(memory, "_of_groups", lambda root: [(512 * MIB, 3 * MIB)])
    with pytest.raises(EngineError, match="3 of 512 MiB are left"):
        ticdc_lab.open(SAMPLE, spark=spark)


@pytest.mark.parametrize("question", ["audit", "advise", "dispatch", "what_if"])
def test_a_log_is_refused(question: str, spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    """In Python: an audit before it is decoded, the others when they are asked."""
    if question != "audit":
        log = ticdc_lab.open(SAMPLE, spark=spark)
        monkeypatch.setattr(memory, "memory_bytes", lambda: 242 * MIB)
        with pytest.raises(SetupError, match=r"needs 24\d MiB of memory on the embedded engine"):
            getattr(log, question)(**({"strategy": "table", "partitions": 3} if question == "dispatch" else {}))
        return
    monkeypatch.setattr(memory, "memory_bytes", lambda: 200 * MIB)
    with pytest.raises(SetupError, match="decoding of about 2,241 messages needs 241 MiB"):
        ticdc_lab.open(SAMPLE, spark=spark)


def test_the_heap_fits_the_memory() -> None:
    """Python workers need the rest; a heap that was asked for may not be larger than its container."""
    assert [heap_for(n << 30) for n in (64, 10, 4, 2)] == ["4096m", "4096m", "1638m", "819m"]
    with pytest.raises(SetupError, match=r"Apache Spark needs 1,280 MiB of memory here, .* has 1,024 MiB"):
        heap_for(1 << 30)
    require_heap("8g", 16 << 30, 64 << 30)
    require_heap("1000t", 16 << 30, 16 << 30)
    require_heap("what", 2 << 30, 64 << 30)
    with pytest.raises(SetupError, match="A heap of 4g does not fit this container, which has 2,048 MiB") as caught:
        require_heap("4g", 2 << 30, 64 << 30)
    assert "gives 819m here" in caught.value.hint


COMMAND = """
import sys, time
from pathlib import Path
from ticdc_lab.engine import memory
left = iter([800, 800, 30, 30, *STUCK])
memory._of_groups = lambda root: [(1024 << 20, next(left, 30) << 20)]
import click
from ticdc_lab.cli import common
wait = lambda: time.sleep(60)
def stuck():
    while True:
        try:
            time.sleep(60)
        except KeyboardInterrupt:
            pass
command = click.command()(common._debug(common.guarded(lambda: WORK())))
command(standalone_mode=True)
"""


@pytest.mark.parametrize(("work", "stuck"), [("wait", []), ("stuck", [20])])
def test_a_command_ends_in_words(work: str, stuck: list[int]) -> None:
    """Its main thread waits and is interrupted, or is in a function that takes no interrupt."""
    code = COMMAND.replace("WORK", work).replace("STUCK", str(stuck))
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 2, done.stderr
    assert "ticdc-lab: The memory of this machine or container is used up: 30 of 1024 MiB are left." in done.stderr
    assert "Hint: Take a part of the log" in done.stderr

"""A standalone Spark cluster on this machine: a master and workers, as ``sbin/start-all.sh`` starts them."""

from __future__ import annotations

import os
import re
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pyspark

SPARK_HOME = Path(pyspark.__file__).parent
WORKERS = 2
UNVERIFIED = "-XX:+UnlockDiagnosticVMOptions -XX:-BytecodeVerificationRemote"
"""Java takes classes of pinned jars as they are: checking them costs each JVM 1.5 CPU seconds."""

QUICK = f"-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -XX:CICompilerCount=1 {UNVERIFIED}"
PATIENCE_S = 300


@contextmanager
def running(
    folder: Path, *, hidden: Path | None = None, workers: int = WORKERS, memory: str = "1g",
    behind: Callable[[int], Sequence[str]] = lambda worker: (),
) -> Iterator[str]:  # fmt: skip
    """The master's URL, while it and its workers, of one core, run; on loopback only.

    The first worker has a folder of its own at ``hidden``, empty and not the one of the others, as on another machine;
    this takes root. ``behind`` gives the command that starts each, such as ``taskset``.
    """
    with ExitStack() as stack:
        started = r"Starting Spark master at (spark://\S+)"
        master = stack.enter_context(_daemon(folder / "master", started, "master.Master", "--port", "0"))
        worker = ("worker.Worker", "--cores", "1", "--memory", memory)
        for i in range(workers):
            place = folder / f"worker-{i}"
            registered = r"Successfully registered with master (\S+)"
            arguments = (*worker, "--work-dir", str(place), master)
            own = None if i else hidden
            stack.enter_context(_daemon(place, registered, *arguments, hidden=own, behind=behind(i)))
        yield master


@contextmanager
def _daemon(
    folder: Path, says: str, name: str, *arguments: str, hidden: Path | None = None, behind: Sequence[str] = ()
) -> Iterator[str]:
    """One of Spark's own daemons, and what it shows when it is ready."""
    folder.mkdir(parents=True)
    here = {"SPARK_HOME": str(SPARK_HOME), "SPARK_LOCAL_IP": "127.0.0.1", "SPARK_NO_DAEMONIZE": "1"}
    small = {"SPARK_DAEMON_MEMORY": "128m", "SPARK_DAEMON_JAVA_OPTS": QUICK, "SPARK_LAUNCHER_OPTS": QUICK}
    command: list[str | Path] = [SPARK_HOME / "bin/spark-class", f"org.apache.spark.deploy.{name}"]
    if hidden is not None:
        command = ["unshare", "-m", "sh", "-c", 'mount -t tmpfs none "$0" && exec "$@"', hidden, *command]
    places = ["--host", "127.0.0.1", "--webui-port", "0"]
    with (folder / "log").open("w") as log:
        process = subprocess.Popen(
            [*behind, *command, *places, *arguments], env=os.environ | here | small, stdout=log, stderr=log
        )
    try:
        yield _said(folder / "log", says, process)
    finally:
        process.terminate()
        process.wait(timeout=PATIENCE_S)


def _said(log: Path, pattern: str, process: subprocess.Popen[bytes]) -> str:
    end = time.monotonic() + PATIENCE_S
    while time.monotonic() < end and process.poll() is None:
        if found := re.search(pattern, log.read_text(errors="replace")):
            return found[1]
        time.sleep(0.2)
    raise AssertionError(log.read_text(errors="replace")[-2000:])

"""Is this machine fit for Spark: the Java that Spark would start, our cache folder, settings of each session.

Only the standard library, so that ``./lab`` can ask before anything is installed.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

from ticdc_lab.errors import SetupError
from ticdc_lab.words import first_line

JAVA_MIN = 17
_VECTOR_MODULE = "jdk.incubator.vector"
_INSTALLERS = {
    "apt-get": "sudo apt-get install -y openjdk-17-jre-headless",
    "dnf": "sudo dnf install -y java-17-openjdk-headless",
    "apk": "sudo apk add openjdk17-jre-headless",
    "brew": 'brew install openjdk@17 && export JAVA_HOME="$(brew --prefix openjdk@17)"',
}

MADE_HERE = "spark.ticdc_lab.here"
UTC = {"spark.sql.session.timeZone": "UTC"}
SESSION_SETTINGS: Mapping[str, str] = MappingProxyType(
    UTC
    | {
        # for its errors PySpark would note where each column was written: a look at the stack, and ten calls of the JVM
        "spark.python.sql.dataFrameDebugging.enabled": "false",
    }
)
"""Settings of a session whose engine begins here; a Connect server of others takes the first alone."""


@dataclass(frozen=True, slots=True)
class Java:
    """A Java that Spark can start with."""

    executable: Path
    version: int


def require_java() -> Java:
    """Find the Java that Spark will start, and check that Spark can start with it.

    Spark takes ``$JAVA_HOME/bin/java`` if ``JAVA_HOME`` is set, else the first ``java`` on the ``PATH``.

    Returns: the executable and its feature version, at least 17. Raises SetupError: there is none, it does not run, it
    is older than 17, or it misses the module with which Spark 4 starts.
    """
    executable, where = _find_java()
    shown = _run(executable, f"--add-modules={_VECTOR_MODULE}", "-version")
    has_module = 'version "' in shown
    said = shown if has_module else _run(executable, "-version")  # one start of Java where all is well
    found = re.search(r'version "(?:1\.)?(\d+)', said)
    if found is None:
        raise SetupError(f"{where} does not run: it says {first_line(said)!r}.", hint=install_java_hint())
    version = int(found[1])
    if version < JAVA_MIN:
        raise SetupError(f"{where} is Java {version}, but Spark needs {JAVA_MIN} or newer.", hint=install_java_hint())
    if not has_module:
        raise SetupError(f"{where} has no module {_VECTOR_MODULE}, which Spark requires.", hint=install_java_hint())
    return Java(executable, version)


_COLLECTORS = re.compile(r"-XX:\+Use(?:Epsilon|G1|Parallel|Serial|Shenandoah|Z)GC\b")
JAVA_READS = ("SPARK_SUBMIT_OPTS", "JAVA_TOOL_OPTIONS", "JDK_JAVA_OPTIONS", "_JAVA_OPTIONS")
"""Environment variables whose options a JVM of ours gets too."""


def java_options(ours: str, *theirs: str) -> str:
    """Give our JVM options without their collector where others name one: Java does not start with two.

    ``ours``: options, apart by spaces. ``theirs``: what is given to the same JVM beside them and :data:`JAVA_READS`.
    """
    beside = (*theirs, *(os.environ.get(name, "") for name in JAVA_READS))
    return _COLLECTORS.sub("", ours) if any(map(_COLLECTORS.search, beside)) else ours


def install_java_hint() -> str:
    """Give the command that installs a fitting Java with what this machine has."""
    known = installer(_INSTALLERS)
    unset = "unset JAVA_HOME; " if os.environ.get("JAVA_HOME") else ""
    return f"Run: {unset}{known or 'conda env create -f environment-spark.yml && conda activate ticdc-lab-spark'}"


def installer(commands: Mapping[str, str]) -> str | None:
    """Give the command of the first package tool that this machine has; None where it has none of them."""
    return next((command for tool, command in commands.items() if shutil.which(tool)), None)


def cpus() -> int:
    """Cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def whole_memory_bytes() -> int:
    """Memory of this machine."""
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def memory_bytes(root: Path = Path("/")) -> int:
    """Memory that this process may use: of the machine, or of its container if that has less."""
    return min([whole_memory_bytes(), *(limit for _, limit in memory_groups(root))])


def memory_groups(root: Path = Path("/")) -> list[tuple[Path, int]]:
    """The control groups of this process whose memory has a limit, each with its folder and that limit."""
    found = list[tuple[Path, int]]()
    with suppress(OSError):  # no Linux
        for line in (root / "proc/self/cgroup").read_text().splitlines():
            _, controllers, group = line.split(":", 2)
            if controllers not in ("", "memory"):
                continue
            top = root / "sys/fs/cgroup" / controllers
            own = top / group.strip("/")
            # a container shows its own group as the top one, under the name that it has outside
            for folder in (own, *(above for above in own.parents if above.is_relative_to(top))):
                with suppress(OSError, ValueError):  # not there, or `max`
                    limit = int((folder / ("memory.limit_in_bytes" if controllers else "memory.max")).read_text())
                    found += [(folder, limit)] if limit < whole_memory_bytes() else []
    return found


def cache_folder() -> Path:
    """Folder for what is fetched or compiled once: ``$TICDC_LAB_CACHE``, else ``ticdc_lab`` in the user's cache."""
    if own := os.environ.get("TICDC_LAB_CACHE"):
        return Path(own).expanduser().absolute()
    from platformdirs import user_cache_path  # here, as ./lab asks for Java before it is installed

    return user_cache_path("ticdc_lab", appauthor=False)


def _find_java() -> tuple[Path, str]:
    home = os.environ.get("JAVA_HOME")
    if home:
        executable = Path(home) / "bin" / "java"
        if not os.access(executable, os.X_OK):
            raise SetupError(
                f"JAVA_HOME is {home!r}, where there is no bin/java.",
                hint="Run: unset JAVA_HOME" if shutil.which("java") else install_java_hint(),
            )
        return executable, f"JAVA_HOME ({home})"
    on_path = shutil.which("java")
    if on_path is None:
        raise SetupError(
            f"No Java found (JAVA_HOME is not set, no java on the PATH), and Spark needs {JAVA_MIN} or newer.",
            hint=install_java_hint(),
        )
    return Path(on_path), on_path


def _run(executable: Path, *arguments: str) -> str:
    try:
        done = subprocess.run(
            [executable, *arguments], capture_output=True, text=True, errors="replace", timeout=60, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return str(error)
    return done.stderr + done.stdout

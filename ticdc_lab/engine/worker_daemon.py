"""What Spark on this machine starts to fork its Python workers from: PySpark's daemon, with their imports done once.

PySpark's own lets each worker import for itself, and Spark ends a worker that has had nothing to do for a minute. It
also imports PySpark out of archives, which hold no bytecode: 2.2 CPU seconds for each worker, 1.0 once with this one.
Run as a module, by ``spark.python.daemon.module``.
"""

from __future__ import annotations

import gc
import os
import sys
from contextlib import redirect_stdout, suppress
from importlib import import_module
from importlib.machinery import PathFinder
from pathlib import Path

from ticdc_lab.engine.sail_process import FEW_SEARCHES

OF_EACH_LOG = ("pandas", "pyspark.worker", "ticdc_lab.sources.stored", "ticdc_lab.engine.shuffle")
"""Modules that functions on any log need."""


def main() -> None:
    """Import what workers need, where forks may keep it, then fork one for each connection of the JVM until it ends."""
    gc.set_threshold(FEW_SEARCHES)
    sys.path[:] = without_archives(sys.path, Path(os.environ["SPARK_HOME"]))
    if sys.platform == "linux":  # libraries of macOS end a process that is forked after they were used
        for name in OF_EACH_LOG:
            with suppress(ImportError), redirect_stdout(sys.stderr):  # standard output is for the port
                import_module(name)  # what cannot be had is reported to its user
        gc.freeze()  # each worker searches for cycles after each task

    from pyspark.daemon import manager

    manager()


def without_archives(path: list[str], spark_home: Path) -> list[str]:
    """A path without the archives that Spark puts before all else, if the package they were made of is on it."""
    others = [entry for entry in path if spark_home not in Path(entry).parents]
    found = PathFinder.find_spec("pyspark", others)
    same = found is not None and found.origin is not None and Path(found.origin).parent == spark_home
    return others if same and PathFinder.find_spec("py4j", others) else path


if __name__ == "__main__":
    main()

"""The classes of Spark's first queries as Java keeps them in memory: ``python -m ticdc_lab.engine.class_archive``.

A JVM that maps this file reads, checks and lays out none of 20,000 classes again, which is a third of what a short
command costs it (Java calls it class data sharing). Java itself looks whether the file is of its own version and of the
very jars of its class path, and does without it where it is not; but it ends where the file was cut, so that we look at
its length.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from ticdc_lab.engine.environment import cache_folder, require_java
from ticdc_lab.errors import SetupError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

KEPT = 4
"""Archives that are kept, those used last: each folder with a Spark of its own has one, of some 200 MB."""

_A_DAY = 86_400
_MODULE = "ticdc_lab.engine.class_archive"
_QUIET = "-Xlog:disable -Xlog:all=error:stderr"
"""Java warns on stdout where it does without a file, and stdout belongs to answers."""


def options(class_path: Sequence[Path], java: Path) -> str:
    """Give the JVM options that use the archive, none where none was made.

    Parameters
    ----------
    class_path
        The jars that are added to Spark's own.
    java
        The executable.
    """
    whole = _whole(_digest(class_path, java))
    if whole:
        with contextlib.suppress(OSError):  # another user's
            os.utime(whole)
    return f"-XX:SharedArchiveFile={whole} -Xshare:auto {_QUIET}" if whole else ""


def make() -> Path:
    """Make the archive of this Spark, these jars and this Java, unless it is there; half a minute.

    Returns
    -------
    Path
        The file, of some 200 MB; those used longest ago are removed (:data:`KEPT`).

    Raises
    ------
    SetupError
        Java made none. Spark starts without it, only slower.
    """
    from ticdc_lab.engine.jars import jar_paths

    digest, place = _digest(jar_paths(), require_java().executable), _place()
    if whole := _whole(digest):
        return whole
    place.mkdir(parents=True, exist_ok=True)
    for left in place.glob(".make-*"):  # of one that was killed
        if time.time() - left.stat().st_mtime > _A_DAY:
            shutil.rmtree(left, ignore_errors=True)
    with tempfile.TemporaryDirectory(dir=place, prefix=".make-") as folder:
        made = Path(folder) / "classes.jsa"
        command = [sys.executable, "-m", _MODULE, str(made)]
        said = subprocess.run(command, capture_output=True, text=True, errors="replace", check=False).stderr
        if not made.exists():
            why = (said.strip().splitlines() or ["Java said nothing"])[-1]
            raise SetupError(
                f"Java keeps no archive of Spark's classes: {why}.",
                hint="Spark runs without it; each start takes some seconds longer.",
            )
        archive = place / f"{digest}-{made.stat().st_size}.jsa"
        os.replace(made, archive)
    for unused in sorted(place.glob("*.jsa"), key=lambda path: path.stat().st_mtime_ns)[:-KEPT]:
        unused.unlink(missing_ok=True)
    return archive


def _place() -> Path:
    return cache_folder() / "java"


def _digest(class_path: Sequence[Path], java: Path) -> str:
    """What Java would compare, so that archives of two of them stand beside each other."""
    import pyspark

    own = java.resolve()
    what = (str(own), own.stat().st_mtime_ns, pyspark.__version__, pyspark.__file__, *map(str, class_path))
    return hashlib.sha256(repr(what).encode()).hexdigest()[:16]


def _whole(digest: str) -> Path | None:
    """The archive, if it is as long as its name says."""
    found = sorted(_place().glob(f"{digest}-*.jsa"))
    return next((path for path in found if path.stem.partition("-")[2] == str(path.stat().st_size)), None)


def _record(archive: Path) -> None:
    """Let a JVM do what first queries do, and end so that it writes what it has loaded."""
    from pyspark import SparkContext

    from ticdc_lab.engine.classic import local_spark

    writing = {"spark.driver.extraJavaOptions": f"-XX:ArchiveClassesAtExit={archive} {_QUIET}"}
    spark = local_spark(app_name="ticdc_lab", driver_memory="1g", cores=2, brief=True, extra=writing)
    with tempfile.TemporaryDirectory() as folder:
        _first_queries(spark, folder)
    gateway, jvm = SparkContext._gateway, SparkContext._jvm
    assert gateway is not None and jvm is not None
    with contextlib.suppress(Exception):  # it answers no more
        jvm.java.lang.System.exit(0)
    gateway.proc.wait(timeout=120)


def _first_queries(spark: SparkSession, folder: str) -> None:
    """Files, a shuffle with a function in Python, a join, and a Delta table."""
    from pyspark.sql import functions as F

    columns = ("id", "CAST(id AS STRING) AS s", "id % 7 AS g", "array(named_struct('n', 'a', 'v', id)) AS images")
    spark.range(1000).selectExpr(*columns).write.parquet(f"{folder}/rows")
    rows = spark.read.parquet(f"{folder}/rows")
    rows.groupBy("g").agg(F.max("id"), F.collect_set("s"), F.count("*")).orderBy("g").toArrow()
    rows.repartition("g").sortWithinPartitions("g", "id").mapInArrow(lambda batches: batches, rows.schema).toArrow()
    rows.join(F.broadcast(rows.groupBy("g").count()), "g").selectExpr("filter(images, i -> i.n = 'a')").collect()
    rows.select("*", F.posexplode("images")).where("pos = 0").unionAll(rows.selectExpr("*", "0", "null")).count()
    rows.write.format("delta").save(f"{folder}/table")
    spark.read.format("delta").load(f"{folder}/table").groupBy("g").count().toArrow()


def main(arguments: Sequence[str]) -> None:
    """Make the archive; with a path only the recording, as :func:`make` starts it."""
    try:
        _record(Path(arguments[0])) if arguments else make()
    except SetupError as error:
        sys.exit(f"{error}")


if __name__ == "__main__":
    main(sys.argv[1:])

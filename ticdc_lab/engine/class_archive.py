"""The classes of Spark's first queries as Java keeps them in memory: ``python -m ticdc_lab.engine.class_archive``.

A JVM that maps this file reads, checks and lays out none of 20,000 classes again, which is a third of what a short
command costs it (Java calls it class data sharing). Java itself looks whether the file is of its own version and of the
very jars of its class path, and does without it where it is not; but it ends where the file was cut, so that we look at
its length.

A Spark has one file, which stays as long as this Spark does: each checkout has a Spark of its own.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from ticdc_lab.engine.environment import cache_folder, require_java
from ticdc_lab.errors import SetupError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_A_DAY = 86_400
_MODULE = "ticdc_lab.engine.first_queries"
_SPARK = "spark"
QUIET = "-Xlog:disable -Xlog:all=error:stderr"
"""Java warns on stdout where it does without a file, and stdout belongs to answers."""


def options(class_path: Sequence[Path], java: Path) -> str:
    """Give the JVM options that use the archive, none where none was made.

    ``class_path``: the jars that are added to Spark's own. ``java``: the executable.
    """
    whole = _whole(_folder(java), _digest(class_path, java))
    return f"-XX:SharedArchiveFile={whole} -Xshare:auto {QUIET}" if whole else ""


def is_used_by(spark: SparkSession) -> bool:
    """Whether the JVM of a local session starts with the archive."""
    return "-XX:SharedArchiveFile=" in str(spark.conf.get("spark.driver.extraJavaOptions", ""))


def make() -> Path:
    """Make the archive of this Spark, these jars and this Java, unless it is there; half a minute.

    Returns: the file, of some 200 MB; those whose Spark is gone are removed. Raises SetupError: Java made none. Spark
    starts without it, only slower.
    """
    from ticdc_lab.engine.jars import jar_paths

    java = require_java().executable
    digest, own = _digest(jar_paths(), java), _folder(java)
    if whole := _whole(own, digest):
        return whole
    own.mkdir(parents=True, exist_ok=True)
    with suppress(FileExistsError):
        (own / _SPARK).symlink_to(_spark())
    _remove_unused(own.parent)
    with tempfile.TemporaryDirectory(dir=own, prefix=".make-") as folder:
        made = Path(folder) / "classes.jsa"
        command = [sys.executable, "-m", _MODULE, str(made)]
        said = subprocess.run(command, capture_output=True, text=True, errors="replace", check=False).stderr
        if not made.exists():
            why = (said.strip().splitlines() or ["Java printed nothing"])[-1]
            raise SetupError(
                f"Java keeps no archive of Spark's classes: {why}.",
                hint="Ignore it, or make it again with `./lab setup --spark`: without it each start of Spark "
                "takes some seconds longer.",
            )
        archive = own / f"{digest}-{made.stat().st_size}.jsa"
        os.replace(made, archive)
    for former in own.glob("*.jsa"):
        if former != archive:
            former.unlink(missing_ok=True)
    return archive


def _remove_unused(place: Path) -> None:
    """Remove the archives of each Spark that is gone, and what one that was killed left."""
    for own in place.iterdir():
        link = own / _SPARK
        if link.is_symlink() and not link.exists():
            shutil.rmtree(own, ignore_errors=True)
    for left in place.glob("*/.make-*"):
        if time.time() - left.stat().st_mtime > _A_DAY:
            shutil.rmtree(left, ignore_errors=True)


def _spark() -> Path:
    import pyspark

    return Path(pyspark.__file__).parent


def _folder(java: Path) -> Path:
    """Where the archive of this Spark and this Java lies, beside a link that leads to this Spark."""
    return cache_folder() / "java" / _hash(_spark(), java.resolve())


def _digest(class_path: Sequence[Path], java: Path) -> str:
    """What Java would compare: another one of the same name, as of a new set-up, needs another archive."""
    return _hash(*((path, path.stat().st_mtime_ns) for path in (java.resolve(), _spark() / "jars", *class_path)))


def _hash(*what: object) -> str:
    return hashlib.sha256(repr(what).encode()).hexdigest()[:16]


def _whole(folder: Path, digest: str) -> Path | None:
    """The archive, if it has the length in its name."""
    found = sorted(folder.glob(f"{digest}-*.jsa"))
    return next((path for path in found if path.stem.partition("-")[2] == str(path.stat().st_size)), None)


def main() -> None:
    """Make the archive."""
    try:
        make()
    except SetupError as error:
        sys.exit(f"{error}")


if __name__ == "__main__":
    main()

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

from ticdc_lab.engine.environment import cache_folder, require_java
from ticdc_lab.errors import SetupError

KEPT = 4
"""Archives that are kept, those used last: each folder with a Spark of its own has one, of some 200 MB."""

_A_DAY = 86_400
_MODULE = "ticdc_lab.engine.first_queries"
QUIET = "-Xlog:disable -Xlog:all=error:stderr"
"""Java warns on stdout where it does without a file, and stdout belongs to answers."""


def options(class_path: Sequence[Path], java: Path) -> str:
    """Give the JVM options that use the archive, none where none was made.

    ``class_path``: the jars that are added to Spark's own. ``java``: the executable.
    """
    whole = _whole(_digest(class_path, java))
    if whole:
        with contextlib.suppress(OSError):  # another user's
            os.utime(whole)
    return f"-XX:SharedArchiveFile={whole} -Xshare:auto {QUIET}" if whole else ""


def make() -> Path:
    """Make the archive of this Spark, these jars and this Java, unless it is there; half a minute.

    Returns: the file, of some 200 MB; those used longest ago are removed (:data:`KEPT`). Raises SetupError: Java made
    none. Spark starts without it, only slower.
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
            why = (said.strip().splitlines() or ["Java printed nothing"])[-1]
            raise SetupError(
                f"Java keeps no archive of Spark's classes: {why}.",
                hint="Ignore it, or make it again with `./lab setup --spark`: without it each start of Spark "
                "takes some seconds longer.",
            )
        archive = place / f"{digest}-{made.stat().st_size}.jsa"
        os.replace(made, archive)
    for unused in sorted(place.glob("*.jsa"), key=lambda path: path.stat().st_mtime_ns)[:-KEPT]:
        unused.unlink(missing_ok=True)
    return archive


def _place() -> Path:
    return cache_folder() / "java"


def _digest(class_path: Sequence[Path], java: Path) -> str:
    """What Java would compare, so that archives of two of them are beside each other."""
    import pyspark

    own = java.resolve()
    what = (str(own), own.stat().st_mtime_ns, pyspark.__version__, pyspark.__file__, *map(str, class_path))
    return hashlib.sha256(repr(what).encode()).hexdigest()[:16]


def _whole(digest: str) -> Path | None:
    """The archive, if it has the length in its name."""
    found = sorted(_place().glob(f"{digest}-*.jsa"))
    return next((path for path in found if path.stem.partition("-")[2] == str(path.stat().st_size)), None)


def main() -> None:
    """Make the archive."""
    try:
        make()
    except SetupError as error:
        sys.exit(f"{error}")


if __name__ == "__main__":
    main()

"""What Spark forks its Python workers from on this machine."""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyspark
import pytest
from conftest import ROOT
from pyspark.sql import SparkSession

from ticdc_lab.engine import worker_daemon
from ticdc_lab.engine.worker_daemon import without_archives

pytestmark = pytest.mark.spark


def test_workers_of_all_functions_find_their_imports_done(spark: SparkSession) -> None:
    """One daemon forks all of them, and nothing of PySpark's comes out of an archive, which holds no bytecode."""

    def told(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        done = "ticdc_lab.engine.shuffle" in sys.modules
        row = {"daemon": os.getppid(), "archive": sys.modules["pyspark"].__file__, "done": done}
        for _ in batches:
            yield pa.RecordBatch.from_pylist([row])

    def daemon(_: object) -> int:
        return os.getppid()

    rows = spark.range(1).mapInArrow(told, "daemon long, archive string, done boolean").collect()
    assert [(Path(row.archive), row.done) for row in rows] == [(Path(pyspark.__file__), True)]
    [pid] = spark.createDataFrame([(1,)], "id long").rdd.map(daemon).collect()
    assert [row.daemon for row in rows] == [pid]
    assert b"worker_daemon" in Path(f"/proc/{pid}/cmdline").read_bytes()


def test_what_cannot_be_imported_is_left_to_who_needs_it(tmp_path: Path) -> None:
    """The daemon begins all the same, and its first words are its port no matter what an import prints."""
    (tmp_path / "pandas.py").write_text("print('hello')\nimport no_such_module\n")
    given = {"PYTHONPATH": str(tmp_path), "SPARK_HOME": str(Path(pyspark.__file__).parent)}
    done = subprocess.run(
        [sys.executable, "-m", worker_daemon.__name__, "pyspark.worker"],
        env=os.environ | given,
        cwd=ROOT,
        stdin=subprocess.DEVNULL,  # Spark orders it to end so
        capture_output=True,
        timeout=600,
        check=False,
    )
    assert len(done.stdout) == 4 and {*done.stderr.split()} == {b"hello"}, done


def test_archives_stay_where_nothing_else_has_the_package(tmp_path: Path) -> None:
    """Nor does another PySpark, of another version perhaps, take the place of the one that the JVM belongs to."""
    home, other = tmp_path / "site" / "pyspark", tmp_path / "other"
    archives = [str(home / "python" / "lib" / name) for name in ("pyspark.zip", "py4j-src.zip")]
    (home / "python" / "lib").mkdir(parents=True)
    for archive, package in zip(archives, ("pyspark", "py4j"), strict=True):
        with zipfile.ZipFile(archive, "w") as file:
            file.writestr(f"{package}/__init__.py", "")
        for folder in (tmp_path / "site", other):
            (folder / package).mkdir(parents=True, exist_ok=True)
            (folder / package / "__init__.py").touch()
    site, others = [str(tmp_path / "site")], [str(other), str(tmp_path)]
    assert without_archives(archives + site + others, home) == site + others
    for path in (archives, archives + others, archives + others + site):
        assert without_archives(path, home) == path
    (tmp_path / "site" / "py4j" / "__init__.py").unlink()
    (tmp_path / "site" / "py4j").rmdir()
    assert without_archives(archives + site, home) == archives + site

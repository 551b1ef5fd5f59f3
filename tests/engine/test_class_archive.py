"""Spark's classes kept for the next start: used where they are, done without where they are not."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from ticdc_lab.cli import common
from ticdc_lab.engine import class_archive, jars
from ticdc_lab.engine.environment import require_java
from ticdc_lab.errors import SetupError

pytestmark = pytest.mark.spark

STARTS = """
from ticdc_lab.engine.classic import local_spark
log = {"spark.driver.extraJavaOptions": "-Xlog:class+load=info:file=%s"}
spark = local_spark(app_name="a", driver_memory="1g", cores=1, brief=True, extra=log)
print(spark.range(10).count())
"""


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Give a cache folder with the jars of the machine's and nothing else."""
    [folder] = {path.parent for path in jars.jar_paths()}
    (tmp_path / "jars").symlink_to(folder)
    monkeypatch.setenv("TICDC_LAB_CACHE", str(tmp_path))
    return tmp_path


def test_without_a_whole_file_java_is_told_nothing(cache: Path) -> None:
    """Each Java and each class path has a file of its own: Java would not take another's."""
    java, path = require_java().executable, jars.jar_paths()
    assert class_archive.options(path, java) == ""
    archive = class_archive._folder(java) / f"{class_archive._digest(path, java)}-3.jsa"
    archive.parent.mkdir(parents=True)
    archive.write_bytes(b"abc")
    assert f"-XX:SharedArchiveFile={archive} " in class_archive.options(path, java)
    assert class_archive.options(path[1:], java) == ""
    archive.write_bytes(b"ab")
    assert class_archive.options(path, java) == "", "one that was cut would end Java"


def test_a_recording_that_failed_is_said_and_leaves_nothing(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In a sentence, not a trace; the next set-up tries again."""
    monkeypatch.setattr(class_archive, "_MODULE", "ticdc_lab.not_there")
    with pytest.raises(SetupError, match=r"keeps no archive of Spark's classes: .*No module named"):
        class_archive.make()
    assert list(cache.glob("java/*/*.jsa")) == []


def test_an_archive_stays_as_long_as_its_spark(cache: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Checkouts do not remove each other's archives: Spark started slower then, without a word."""
    monkeypatch.setattr(subprocess, "run", _recorded(subprocess.run))
    sparks = [tmp_path / f"venv-{n}" / "pyspark" for n in range(6)]
    made = []
    for spark in sparks:
        (spark / "jars").mkdir(parents=True)
        monkeypatch.setattr(class_archive, "_spark", lambda spark=spark: spark)
        made.append(class_archive.make())
    assert sorted(cache.glob("java/*/*.jsa")) == sorted(made)
    shutil.rmtree(sparks[0])
    (sparks[-1] / "jars/new.jar").touch()  # a new set-up: Java checks the dates of jars
    again = class_archive.make()
    assert sorted(cache.glob("java/*/*.jsa")) == sorted([*made[1:-1], again])
    assert again.parent == made[-1].parent
    assert class_archive.make() == again


def test_what_a_killed_one_left_is_removed(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """After a day: before, another process may be making it."""
    monkeypatch.setattr(subprocess, "run", _recorded(subprocess.run))
    killed, making = (class_archive._folder(require_java().executable) / f".make-{name}" for name in ("killed", "now"))
    for folder in (killed, making):
        folder.mkdir(parents=True)
    os.utime(killed, (0, 0))
    class_archive.make()
    assert (killed.exists(), making.exists()) == (False, True)


def _recorded(run: Any) -> Any:
    """Java's part of it, without Java."""

    def recorded(command: list[str], **how: Any) -> subprocess.CompletedProcess[str]:
        if class_archive._MODULE not in command:
            return run(command, **how)  # type: ignore[no-any-return]
        Path(command[-1]).write_bytes(b"new")
        return subprocess.CompletedProcess(command, 0, "", "")

    return recorded


@pytest.mark.parametrize("used", [True, False])
def test_a_slow_start_is_noted(spark: SparkSession, monkeypatch: pytest.MonkeyPatch, used: bool) -> None:
    """An audit of a small log takes half as long again without the archive: a command names the one that makes it."""
    said = "-XX:SharedArchiveFile=a -Xshare:auto" if used else "-Xmx1g"
    monkeypatch.setattr(spark.conf, "get", lambda name, default: {"spark.driver.extraJavaOptions": said}[name])
    noted: list[str] = []
    monkeypatch.setattr(common, "note", noted.append)
    common._note_slow_start(spark)
    assert [note.rpartition(": ")[2] for note in noted] == ["python -m ticdc_lab.engine.class_archive"] * (not used)


@pytest.mark.soak
def test_spark_starts_with_it_and_with_a_damaged_one(cache: Path, tmp_path: Path) -> None:
    """Most classes come from the file; of one that is cut Java takes none, and Spark starts as ever."""
    archive = class_archive.make()
    whole = _shared_classes(tmp_path / "whole.log")
    assert whole > 5000
    damaged = archive.read_bytes()[: archive.stat().st_size // 2]
    archive.unlink()
    archive.write_bytes(damaged)
    assert _shared_classes(tmp_path / "cut.log") < whole / 2


def _shared_classes(log: Path) -> int:
    code = [sys.executable, "-c", STARTS % log]
    assert subprocess.run(code, capture_output=True, text=True, check=True, env=dict(os.environ)).stdout == "10\n"
    return log.read_text(encoding="utf-8").count("shared objects file (top)")

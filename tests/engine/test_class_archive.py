"""Spark's classes kept for the next start: used where they are, done without where they are not."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

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
    archive = cache / "java" / f"{class_archive._digest(path, java)}-3.jsa"
    archive.parent.mkdir()
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
    assert list((cache / "java").iterdir()) == []


def test_those_used_longest_ago_are_removed(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine with many checkouts would fill its disk; what is in use stays, and what is being made."""
    java, path, place = require_java().executable, jars.jar_paths(), cache / "java"
    place.mkdir()
    others = [place / f"{n:016x}-3.jsa" for n in range(6)]
    for n, other in enumerate(others):
        other.write_bytes(b"abc")
        os.utime(other, (n, n))
    others[0].rename(used := place / f"{class_archive._digest(path, java)}-3.jsa")
    assert class_archive.options(path, java)

    def recorded(command: list[str], **how: Any) -> subprocess.CompletedProcess[str]:
        if class_archive._MODULE not in command:
            return run(command, **how)
        Path(command[-1]).write_bytes(b"new")
        return subprocess.CompletedProcess(command, 0, "", "")

    run = subprocess.run
    monkeypatch.setattr(subprocess, "run", recorded)
    monkeypatch.setattr(class_archive, "_digest", lambda *_: "f" * 16)
    killed, making = (place / f".make-{name}" for name in ("killed", "making"))
    for folder in (killed, making):
        folder.mkdir()
    os.utime(killed, (0, 0))
    made = class_archive.make()
    assert sorted(place.iterdir()) == sorted([used, made, making, *others[-2:]])


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

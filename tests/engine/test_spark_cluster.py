"""The main job on a standalone cluster of two workers: the answers of one process, and no row on the driver."""

from __future__ import annotations

import gzip
import json
import os
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import cluster
import cluster_job
import pytest
from conftest import ROOT, golden
from pyspark.sql import SparkSession

from ticdc_lab.engine import jars
from ticdc_lab.engine.classic import ARROW_OPTIONS, DELTA_SETTINGS

pytestmark = pytest.mark.spark

JOB = Path(cluster_job.__file__)
MOST_TO_THE_DRIVER = "256k"
"""Of one job's results; the rows of the log are some megabytes."""

SETTINGS = {
    "spark.driver.memory": "512m",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.maxResultSize": MOST_TO_THE_DRIVER,
    "spark.executor.memory": "512m",
    "spark.executor.cores": "1",
    "spark.executor.extraJavaOptions": f"{cluster.QUICK} {ARROW_OPTIONS}",
    "spark.scheduler.minRegisteredResourcesRatio": "1.0",
    "spark.scheduler.maxRegisteredResourcesWaitingTime": "180s",
    "spark.cores.max": str(cluster.WORKERS),
    "spark.locality.wait": "0",
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.session.timeZone": "UTC",
    "spark.ui.enabled": "false",
    "spark.eventLog.enabled": "true",
    "spark.eventLog.rolling.enabled": "false",
    "spark.eventLog.compress": "false",
    **DELTA_SETTINGS,
}


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A topic in four files, so that four tasks can decode."""
    folder = tmp_path_factory.mktemp("shared") / "topic"
    folder.mkdir()
    with gzip.open(golden("messages_open-protocol_small.jsonl.gz"), "rb") as file:
        lines = file.readlines()
    for i in range(4):
        with gzip.open(folder / f"{i}.jsonl.gz", "wb", compresslevel=1) as part:
            part.writelines(lines[i::4])
    return folder


@pytest.fixture(scope="module")
def master(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Give the master's URL."""
    with cluster.running(tmp_path_factory.mktemp("cluster")) as url:
        yield url


def run(
    master: str,
    source: Path,
    folder: Path,
    installed: Path,
    part: str = "answers",
    **settings: str,
) -> dict[str, Any]:
    """What the job prints, run in an empty folder by a Python that has the package in ``installed``."""
    for name in ("log", "work"):
        (folder / name).mkdir(parents=True)
    places = {
        "spark.jars": ",".join(path.as_uri() for path in jars.jar_paths(jars.DELTA)),
        "spark.eventLog.dir": (folder / "log").as_uri(),
        "spark.sql.warehouse.dir": (folder / "warehouse").as_uri(),
        "spark.executorEnv.PYTHONPATH": str(installed),
    }
    given = [f"{name}={value}" for name, value in {**SETTINGS, **places, **settings}.items()]
    done = subprocess.run(
        [sys.executable, JOB, part, master, source, folder, *given],
        env=os.environ | {"PYTHONPATH": str(installed), "PYSPARK_PYTHON": sys.executable},
        cwd=folder / "work",
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    told: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return told


def tasks(folder: Path) -> list[dict[str, Any]]:
    """What Spark's own log of its events shows of each task."""
    [log] = (folder / "log").iterdir()
    events = (json.loads(line) for line in log.read_text(encoding="utf-8").splitlines())
    return [e for e in events if e["Event"] == "SparkListenerTaskEnd"]


def judge(told: dict[str, Any], expected: dict[str, Any], shared: Path, package: Path) -> None:
    """Every answer is the one of one process; both workers took part with the same package; no row came
    to the driver.
    """
    assert {name: told.get(name) for name in expected} == expected, told
    assert expected["counts"]["events"] > 2_000 and expected["counts"]["quarantined"] == 0
    done = tasks(shared)
    by = Counter(task["Task Info"]["Executor ID"] for task in done)
    assert set(by) == {"0", "1"} and min(by.values()) > len(done) / 10, by
    assert told["workers"] == [str(package / "ticdc_lab/__init__.py")]
    assert "spark.driver.maxResultSize" in told["collected"], "a planted collect must be caught"
    assert max(task["Task Metrics"]["Result Size"] for task in done if "Task Metrics" in task) < 64_000


def test_the_main_job_on_two_workers(spark: SparkSession, master: str, source: Path, tmp_path: Path) -> None:
    """Load, materialise, watermarks, transactions, dispatch and audit, with the package as ``./lab`` installs it."""
    told = run(master, source, tmp_path / "shared", ROOT)
    judge(told, cluster_job.answers(spark, str(source), tmp_path), tmp_path / "shared", ROOT)


@pytest.mark.soak
def test_the_main_job_from_a_wheel(
    spark: SparkSession, master: str, source: Path, installed: Path, tmp_path: Path
) -> None:
    """The same with a Delta table between; nothing is written to where the package is installed."""
    before = {p for p in installed.rglob("*") if p.suffix != ".pyc"}
    told = run(master, source, tmp_path / "shared", installed, "delta")
    expected = cluster_job.answers(spark, str(source), tmp_path, delta=True)
    judge(told, expected, tmp_path / "shared", installed)
    assert {p for p in installed.rglob("*") if p.suffix != ".pyc" and p.name != "__pycache__"} == before


@pytest.mark.soak
def test_the_report_on_two_workers(
    spark: SparkSession, master: str, source: Path, installed: Path, tmp_path: Path
) -> None:
    """Byte for byte the one of one process."""
    more = {"spark.driver.maxResultSize": "2m"}
    told = run(master, source, tmp_path / "shared", installed, "report", **more)
    assert told == cluster_job.reported(spark, str(source), tmp_path)


@pytest.mark.soak
def test_the_package_sent_along_as_a_zip(master: str, source: Path, installed: Path, tmp_path: Path) -> None:
    """Where only the libraries are installed, the wheel can be sent with the application."""
    [wheel] = installed.parent.glob("*.whl")
    archive = shutil.copy(wheel, tmp_path / "ticdc_lab.zip")
    sent = {"spark.submit.pyFiles": str(archive), "spark.executorEnv.PYTHONPATH": ""}
    told = run(master, source, tmp_path / "shared", archive, **sent)
    assert told["counts"]["events"] > 2_000
    assert told["workers"] and all("/ticdc_lab.zip/" in place for place in told["workers"])
    assert not any(place.startswith(str(archive)) for place in told["workers"])


@pytest.mark.soak
@pytest.mark.skipif(os.geteuid() != 0, reason="a mount of its own takes root")
def test_a_folder_that_a_worker_does_not_see(source: Path, installed: Path, tmp_path: Path) -> None:
    """Neither rows are lost nor a trace of Java is shown: the error names the path and what to do."""
    (tmp_path / "elsewhere").mkdir()
    with cluster.running(tmp_path / "cluster", hidden=tmp_path / "elsewhere") as url:
        told = run(url, source, tmp_path / "elsewhere/shared", installed)
    assert "elsewhere" in told["error"] and "not on all: a Spark worker does not see it" in told["error"]
    assert "share under one path" in told["error"]

"""A watch on Spark finds, counts and shows what one on the desk does, and resumes from its checkpoint."""

from __future__ import annotations

import gzip
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from broker import Broker
from cluster import QUICK
from conftest import golden
from pyspark.sql import SparkSession
from topics import create, delete, expire, recorded, send

from ticdc_lab.errors import SourceError
from ticdc_lab.watch.buckets import read
from ticdc_lab.watch.folder import WatchFolder
from ticdc_lab.watch.metrics import metrics
from ticdc_lab.watch.running import Watch, unsettled
from ticdc_lab.watch.spark import SparkWatch

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("interpreted")]

LOG = "messages_canal-json-tidb_small-dup-restart.jsonl.gz"


def watched(source: Path, state: Path, spark: SparkSession | None = None, **more: Any) -> Watch:
    """A watch that has gone to its end."""
    of = {"once": True, "now": lambda: 1_800_000_000.0}
    watch = SparkWatch(str(source), str(state), spark=spark, **of | more) if spark else Watch(
        str(source), str(state), **of | more
    )  # fmt: skip
    watch.run()
    return watch


def read_so_far(state: Path) -> int:
    """Messages of the last commit."""
    folder = WatchFolder(state, writes=False)
    try:
        assert folder.progress is not None
        return folder.progress.counts.messages
    finally:
        folder.close()


def shown(watch: Watch) -> tuple[Any, ...]:
    """What both must have in common: findings except for their numbers, and what metrics export but sizes.

    When a look finds what is explained later depends on time.
    """
    found = sorted(json.dumps(f.as_dict() | {"number": 0}, default=str) for f in unsettled(watch.findings.values()))
    view = watch.view
    return found, view.counts, view.partitions, view.pending_ts, view.open


def test_it_is_the_desks_watch_and_resumes(spark: SparkSession, tmp_path: Path) -> None:
    """Half of a topic, an end before a commit, the rest: findings, counts and metrics of one undisturbed watch."""
    source = tmp_path / "topic"
    source.mkdir()
    lines = gzip.decompress(golden(LOG).read_bytes()).splitlines(keepends=True)
    (source / "a.jsonl").write_bytes(b"".join(lines[: len(lines) // 2]))
    first = watched(source, tmp_path / "state", spark)
    shutil.copytree(tmp_path / "state", tmp_path / "copy")
    (source / "b.jsonl").write_bytes(b"".join(lines[len(lines) // 2 :]))

    broken = SparkWatch(str(source), str(tmp_path / "state"), spark=spark, once=True, now=lambda: 1_800_000_000.0)

    def ends_before() -> None:
        raise KeyError("planted")

    broken._commit = ends_before  # type: ignore[method-assign]
    with pytest.raises(KeyError, match="planted"):
        broken.run()
    both, desk = watched(source, tmp_path / "state", spark), watched(golden(LOG), tmp_path / "desk")
    assert first.view.counts.messages == len(lines) // 2 and len(desk.findings) > 50
    assert shown(both) == shown(desk) and both.view.rows == desk.view.rows
    assert {f.number for f in both.findings.values() if both._folder.evidence(f.number).is_dir()}
    assert metrics(both.view).split(b"state_bytes")[0] == metrics(desk.view).split(b"state_bytes")[0]
    of_buckets = both._on_spark["versions"]  # type: ignore[index]
    assert sum(len(read(str(tmp_path / "state" / "rows"), b, v).rows) for b, v in of_buckets) == both.view.rows > 500

    with pytest.raises(SourceError, match="--engine spark"):
        watched(source, tmp_path / "state")
    with pytest.raises(SourceError, match="engine embedded"):
        watched(golden(LOG), tmp_path / "desk", spark)
    (source / "c.jsonl").write_bytes(lines[0])  # an offset that was read before
    with pytest.raises(SourceError, match="in the order of its offsets"):
        watched(source, tmp_path / "copy", spark)
    shutil.rmtree(tmp_path / "state" / "checkpoint")
    with pytest.raises(SourceError, match="no longer has the checkpoint"):
        watched(source, tmp_path / "state", spark)


def test_a_command_that_is_killed_in_a_batch_goes_on(spark: SparkSession, tmp_path: Path) -> None:
    """It follows a folder on a master, and SIGKILL ends all its processes while Spark takes the second batch."""
    source, state = tmp_path / "topic", tmp_path / "state"
    source.mkdir()
    lines = gzip.decompress(golden(LOG).read_bytes()).splitlines(keepends=True)
    (source / "a.jsonl").write_bytes(b"".join(lines[: len(lines) // 2]))
    words = ["watch", str(source), "--state", str(state), "--engine", "spark", "--master", "local[1]", "--every", "1s"]
    command = [sys.executable, "-m", "ticdc_lab.cli", *words]
    with (tmp_path / "said").open("w") as said:
        quick = os.environ | {"JAVA_TOOL_OPTIONS": QUICK}
        running = subprocess.Popen(command, start_new_session=True, stdout=said, stderr=said, env=quick)
    try:
        for batch in ("commits/0", "offsets/1"):  # it is done, another has begun
            while not (state / "checkpoint" / batch).exists():
                assert running.poll() is None, (tmp_path / "said").read_text()
                time.sleep(0.02)
            if batch == "commits/0":
                (tmp_path / "b.jsonl").write_bytes(b"".join(lines[len(lines) // 2 :]))
                (tmp_path / "b.jsonl").rename(source / "b.jsonl")
    finally:
        os.killpg(running.pid, signal.SIGKILL)
        running.wait()
    assert read_so_far(state) in (len(lines) // 2, len(lines))
    both, desk = watched(source, state, spark), watched(golden(LOG), tmp_path / "desk")

    def told(watch: Watch) -> list[str]:
        when = {"number": 0, "found_s": 0, "changed_s": 0}
        return sorted(json.dumps(f.as_dict() | when, default=str) for f in unsettled(watch.findings.values()))

    assert told(both) == told(desk) and both.view.counts == desk.view.counts and len(desk.findings) > 50


def test_a_topic_is_watched_as_on_the_desk(spark: SparkSession, broker: Broker, tmp_path: Path) -> None:
    """In two runs, with messages that expire between both: what is lost is counted, and the metrics are the desk's."""
    messages, servers = sorted(recorded(golden(LOG)), key=lambda m: m["offset"]), f"127.0.0.1:{broker.plain}"
    create(servers, "watched-on-spark", max(m["partition"] for m in messages) + 1)
    source, half = broker.url("watched-on-spark"), len(messages) // 2
    try:
        for i, part in enumerate((messages[:half], messages[half:])):
            send(servers, "watched-on-spark", part)
            if i:
                read_to = {at: seen.read for at, seen in desk.view.partitions.items()}  # noqa: F821
                expire(servers, "watched-on-spark", 0, read_to["watched-on-spark", 0] + 15)
            desk = watched(source, tmp_path / "desk")
            on_spark = watched(source, tmp_path / "spark", spark)
            assert shown(on_spark) == shown(desk)
        lost = {p: seen.lost for (_, p), seen in on_spark.view.partitions.items() if seen.lost}
        assert lost == {0: 15} and on_spark.view.counts.messages == len(messages) - 15
        assert on_spark.view.caught_up and all(seen.end == seen.read for seen in on_spark.view.partitions.values())
    finally:
        delete(servers, "watched-on-spark")

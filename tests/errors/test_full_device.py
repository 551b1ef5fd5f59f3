"""A device that is really full: a small file system of its own, which needs root; errors put in its place need none.

Those are in `tests/errors/test_whole_files.py`.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from broker import Broker
from click.testing import CliRunner
from conftest import golden
from pyspark.sql import SparkSession
from test_ingest import OPEN, assert_answers, sent

from ticdc_lab.cli import main
from ticdc_lab.errors import SourceError
from ticdc_lab.lake.ingest import ingest
from ticdc_lab.sources.load import load

LOG = str(golden("messages_canal-json-tidb_small.jsonl.gz"))


def mounted(folder: Path, options: str) -> bool:
    """Whether a file system in memory could be mounted, or given another size."""
    return subprocess.run(["mount", "-t", "tmpfs", "-o", options, "tmpfs", folder], capture_output=True).returncode == 0


@pytest.fixture
def device(tmp_path: Path) -> Iterator[Path]:
    """Give a folder with room for 48 KB."""
    folder = tmp_path / "device"
    folder.mkdir()
    if sys.platform != "linux" or not mounted(folder, "size=48k"):
        pytest.skip("mounting a file system needs root")
    yield folder
    subprocess.run(["umount", "-l", folder], check=True)


def more_room(device: Path) -> None:
    """Let much fit."""
    assert mounted(device, "remount,size=64m")


COMMANDS = {
    "events.jsonl": ["events", LOG],
    "events.parquet": ["events", LOG],
    "report.html": ["report", LOG],
    "transactions.jsonl": ["transactions", LOG],
}


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.soak] if "report" in name else []) for name in COMMANDS]
)
def test_a_command_says_that_the_device_is_full_and_goes_on_with_room(
    spark: SparkSession, device: Path, name: str
) -> None:
    """In words and with the path; nothing is left that looks whole, and the same command works when there is room."""
    command = [*COMMANDS[name], "--out", str(device / name)]
    (device / "fill").write_bytes(bytes(40_000))
    found = CliRunner().invoke(main, command, obj=spark)
    assert found.exit_code == 2 and f"No space is left on the device where {device / name}" in found.output
    assert "Traceback" not in found.output and "Exception" not in found.output
    assert [p.name for p in device.iterdir()] == ["fill"]
    more_room(device)
    assert CliRunner().invoke(main, command, obj=spark).exit_code == 0
    if name == "events.jsonl":
        assert len([json.loads(line) for line in (device / name).read_text().splitlines()]) == 2_241
    else:
        assert (device / name).exists()


def materialised(spark: SparkSession, device: Path) -> None:
    """A log on a full device, and then with room."""
    with pytest.raises(SourceError, match=f"No space is left on the device where {device / 'log'}"):
        load(spark, LOG).materialise(str(device / "log"))
    assert not list(device.iterdir())
    more_room(device)
    stored = load(spark, LOG).materialise(str(device / "log"))
    assert stored.counts is not None and stored.counts.messages == 2_241 == stored.events.count()


def test_a_log_that_finds_no_room_leaves_no_folder(spark: SparkSession, device: Path) -> None:
    """On the embedded engine."""
    materialised(spark, device)


@pytest.mark.soak
def test_a_log_that_finds_no_room_leaves_no_folder_on_spark(classic: SparkSession, device: Path) -> None:
    """On Spark, whose executors write."""
    materialised(classic, device)


def test_a_temporary_folder_without_room_is_named(
    spark: SparkSession, device: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What a command decodes lies there first; the hint shows where that is set."""
    monkeypatch.setattr("tempfile.tempdir", str(device))
    found = CliRunner().invoke(main, ["events", LOG, "--out", str(tmp_path / "x.jsonl")], obj=spark)
    assert found.exit_code == 2 and str(device) in found.output and "TMPDIR" in found.output
    assert not (tmp_path / "x.jsonl").exists() and not list(device.iterdir())


def test_a_watch_without_room_for_its_state_is_named(device: Path) -> None:
    """Its folder is no damaged state of another one, and nothing of it is left."""
    (device / "fill").write_bytes(bytes(40_000))
    found = CliRunner().invoke(main, ["watch", LOG, "--state", str(device / "state"), "--once"])
    assert found.exit_code == 2 and f"{device}/state/watch.sqlite cannot be written: " in found.output, found.output
    assert "df -h" in found.output and [p.name for p in device.iterdir()] == ["fill"]


@pytest.mark.soak
def test_ingest_goes_on_when_there_is_room_again(
    classic: SparkSession, broker: Broker, device: Path, tmp_path: Path
) -> None:
    """Full at its beginning, and in the middle of a batch: what was written whole stays, nothing is lost or doubled."""
    source, out = sent(classic, broker, OPEN, "full"), device / "lake"
    bounded = {"maxOffsetsPerTrigger": "700"}
    refused = 0
    for size in ("48k", "600k", "1200k", "1800k"):
        assert mounted(device, f"remount,size={size}")
        try:
            ingest(classic, source, str(out), once=True, options=bounded)
        except SourceError as error:
            refused += "No space is left on the device where" in str(error) and "whole stays" in str(error)
    assert refused >= 2
    more_room(device)
    ingest(classic, source, str(out), once=True, options=bounded)
    assert_answers(classic, source, out, tmp_path)

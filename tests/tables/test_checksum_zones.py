"""Row checksums of a server in another time zone: what the log names is used, and one zone for all is reported once."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest
from pyspark.sql import SparkSession
from pyspark.sql.types import LongType, StructField, StructType
from tiny_logs import column, row

from ticdc_lab.answers.audit import _checksums, of_findings
from ticdc_lab.events.schema import EVENTS
from ticdc_lab.settings import UNKNOWN, Setting, Settings
from ticdc_lab.settings.file import is_zone
from ticdc_lab.sources.load import load
from ticdc_lab.tables.checksum_findings import Images, row_checksums, verify_checksums, zones_of_all

REPORTS = Path(__file__).parents[1] / "data/reports/08"
ZONE = b'"location":"Asia/Shanghai"'


def changed(folder: Path, change: Callable[[bytes], bytes]) -> str:
    """The log of a server in Asia/Shanghai, with its messages changed."""
    lines = []
    for line in (REPORTS / "simple-shanghai.jsonl").read_text().splitlines():
        message = json.loads(line)
        message["value"] = base64.b64encode(change(base64.b64decode(message["value"]))).decode()
        lines.append(json.dumps(message))
    (folder / "log.jsonl").write_text("\n".join(lines))
    return str(folder / "log.jsonl")


def found(spark: SparkSession, source: str, settings: Settings = UNKNOWN) -> list[tuple[str, str]]:
    """Severity and message of each finding."""
    findings = of_findings(load(spark, source, changefeed=settings))["findings"]
    return list(zip(findings["severity"], findings["message"], strict=True))


@pytest.mark.parametrize("name", ["simple-shanghai", "simple-utc"])
def test_the_zone_that_simple_names_is_the_servers(spark: SparkSession, name: str) -> None:
    """Its `location`."""
    assert found(spark, str(REPORTS / f"{name}.jsonl")) == []


def test_one_zone_that_explains_every_row_is_said_once(spark: SparkSession, tmp_path: Path) -> None:
    """No row is wrong then; the option that shows the zone leaves nothing but that the log names another one."""
    source = changed(tmp_path, lambda value: value.replace(ZONE, b'"location":"UTC"'))
    [(severity, message)] = found(spark, source)
    assert severity == "warning"
    assert "5 row images" in message and "Etc/GMT-8, not UTC" in message and "--option time-zone=Etc/GMT-8" in message
    [(severity, message)] = found(spark, source, Settings((Setting("time-zone", "Asia/Shanghai", "option"),)))
    assert severity == "warning" and message.startswith(
        'The option sets time-zone = "Asia/Shanghai", but the log shows'
    )


@pytest.mark.parametrize("zone", [
    "Europe/Berlin", "America/St_Johns", "America/New_York", "Asia/Kolkata", "Australia/Adelaide", "Asia/Shanghai",
])  # fmt: skip
def test_summer_and_winter_of_a_zone_are_one(spark: SparkSession, zone: str) -> None:
    """Rows of each season name another offset; a value that is another one in all zones stays an error."""
    times = [f"{year}-{month:02}-15 12:30:00" for year in (1988, 2026) for month in (1, 7)]
    images = [[("int", "1"), ("timestamp", time)] for time in times]
    stated = row_checksums(Images.of(images), time_zone=zone).to_pylist()

    def found(checksums: list[int]) -> list[tuple[str, bool]]:
        rows = [
            row(0, n, 10 + n) | {"columns": [column("id", "1", True), column("t", time, False)], "checksum": c}
            for n, (time, c) in enumerate(zip(times, checksums, strict=True))
        ]
        for r in rows:
            r["columns"][1]["mysql_type"] = "timestamp"
        frame = spark.createDataFrame(rows, StructType([*EVENTS.fields, StructField("checksum", LongType())]))
        log = SimpleNamespace(events=frame, settings=UNKNOWN)
        said = _checksums(log, 100)
        return [(s, zone in m) for s, m in zip(said["severity"], said["message"], strict=True)]

    assert found(stated) == [("warning", True)]
    assert found([*stated[:3], stated[3] ^ 1]) == [("warning", True), ("error", False)]
    utc = row_checksums(Images.of(images), time_zone="UTC").to_pylist()
    assert {severity for severity, _ in found([*utc[:3], stated[3]])} == {"error"}, "a zone that rows contradict"


def test_an_hour_that_comes_twice_is_either(spark: SparkSession) -> None:
    """When summer time ends, a text does not show whether it is before or after; another moment stays an error."""
    times = [f"2023-10-29 0{hour}:30:00" for hour in (0, 1, 3)]  # in UTC, of 2:30 in Berlin the first two
    stated = row_checksums(Images.of([[("timestamp", time)] for time in times])).to_pylist()
    rows = [
        row(0, n, 10 + n) | {"columns": [column("t", "2023-10-29 02:30:00", False)], "checksum": checksum}
        for n, checksum in enumerate(stated)
    ]
    for r in rows:
        r["columns"][0]["mysql_type"] = "timestamp"
    frame = spark.createDataFrame(rows, StructType([*EVENTS.fields, StructField("checksum", LongType())]))
    assert [f.offset for f in verify_checksums(frame, time_zone="Europe/Berlin").collect()] == [rows[2]["offset"]]


def test_a_row_that_no_zone_explains_stays_an_error(spark: SparkSession, tmp_path: Path) -> None:
    """Planted: one text is another one, in the log of another zone. The zone is reported once, and this
    row is named.
    """

    def change(value: bytes) -> bytes:
        return value.replace(ZONE, b'"location":"UTC"').replace(b'"note":"goat"', b'"note":"gnat"', 1)

    (severity, zone), *wrong = found(spark, changed(tmp_path, change))
    assert severity == "warning" and "Etc/GMT-8" in zone
    assert wrong == [("error", "the checksum does not match the values")] * 2, "the row, and its image before the next"


def test_zones() -> None:
    """Of the errors that name one; two an hour apart are summer and winter of one."""
    said = "the checksum does not match the values: it matches timestamps in the zone "
    named = [said + "Asia/Kolkata"] * 2
    assert zones_of_all(named) == ["Asia/Kolkata"] and zones_of_all([*named, "other"]) == ["Asia/Kolkata"]
    assert zones_of_all(["other"]) == zones_of_all([]) == []
    assert "Europe/Berlin" in zones_of_all([f"{said}Etc/GMT-{n}" for n in (1, 2)])
    assert zones_of_all([f"{said}Etc/GMT-{n}" for n in (1, 7)]) == []
    assert is_zone("Asia/Shanghai") and not is_zone("Local") and not is_zone("../x")

"""Row checksums of a server in another time zone: what the log names is used, and one zone for all is said once."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from ticdc_lab.answers.summary import of_findings
from ticdc_lab.settings import UNKNOWN, Setting, Settings
from ticdc_lab.sources.load import load
from ticdc_lab.tables.checksum_findings import is_zone, zone_of_all

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
    """No row is wrong then; the option that says the zone leaves nothing but that the log names another one."""
    source = changed(tmp_path, lambda value: value.replace(ZONE, b'"location":"UTC"'))
    [(severity, message)] = found(spark, source)
    assert severity == "warning"
    assert "5 row images" in message and "Etc/GMT-8, not UTC" in message and "--option time-zone=Etc/GMT-8" in message
    [(severity, message)] = found(spark, source, Settings((Setting("time-zone", "Asia/Shanghai", "option"),)))
    assert severity == "warning" and message.startswith(
        'The option sets time-zone = "Asia/Shanghai", but the log shows'
    )


def test_a_row_that_no_zone_explains_stays_an_error(spark: SparkSession, tmp_path: Path) -> None:
    """Planted: one text is another one, in the log of another zone."""

    def change(value: bytes) -> bytes:
        return value.replace(ZONE, b'"location":"UTC"').replace(b'"note":"goat"', b'"note":"gnat"', 1)

    severities = [severity for severity, _ in found(spark, changed(tmp_path, change))]
    assert severities.count("error") > 1


def test_zones() -> None:
    """Two zones, or an error without one, are no zone of all."""
    said = "the checksum does not match the values: it matches timestamps in the zone "
    assert zone_of_all([said + "A", said + "A"]) == "A"
    assert zone_of_all([]) is zone_of_all([said + "A", said + "B"]) is zone_of_all([said + "A", "other"]) is None
    assert is_zone("Asia/Shanghai") and not is_zone("Local") and not is_zone("../x")

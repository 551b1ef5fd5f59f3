"""The time zone of TiCDC's server, as debezium's rows that hash a TIMESTAMP show it by their partitions."""

from __future__ import annotations

import base64
import json
import sys
import zlib
from collections import Counter, defaultdict
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest
from conftest import events_frame
from pyspark.sql import SparkSession

sys.path.insert(0, str(Path(__file__).parents[1] / "codecs"))
import torture

import ticdc_lab
from ticdc_lab.answers.audit import of_findings
from ticdc_lab.dispatch.zones import ZoneShown, shown_zone

SIZES = (1, 3, 4, 7, 16, 128)
"""The partition counts that the real dispatcher was asked for."""


def placed(folder: Path, rule: str, partitions: int, *, moved: int = -1) -> str:
    """The real encoder's rows of ``times`` in the partitions of the real dispatcher, whose server is in Asia/Shanghai.

    ``moved``: of this row another one.
    """
    at, offsets, n = SIZES.index(partitions), Counter[int](), 0
    lies: dict[int, list[int]] = defaultdict(list)
    for row in torture.read("dispatch_torture"):
        if row.get("table") == "times":
            lies[row["commit_ts"]].append(row["dispatch"][rule]["p"][at])
    with (folder / "log.jsonl").open("w") as log:
        for message in torture.read("messages_debezium"):
            places = list(range(partitions)) if message["partition"] == 0 else []
            if message["kind"] == "row":
                source = json.loads(base64.b64decode(message["value"]))["payload"]["source"]
                places = [lies[source["commit_ts"]].pop(0)] if source["table"] == "times" else []
                places = [(p + (n == moved)) % partitions for p in places]
                n += len(places)
            for p in places:
                log.write(json.dumps(message | {"partition": p, "offset": offsets[p]}) + "\n")
                offsets[p] += 1
    assert n == 28
    return str(folder / "log.jsonl")


def test_one_zone_that_explains_the_partitions_is_a_setting(spark: SparkSession, tmp_path: Path) -> None:
    """By rows, rules and audit: no move is an error then, and one that the rule forbids still is."""
    source = placed(tmp_path, "columns:ts0", 16)
    with closing(ticdc_lab.open(source, spark=spark)) as log:
        known = log.known_settings.get("time-zone")
        assert known is not None and (known.value, known.source, known.sure) == ("Asia/Shanghai", "bytes", "likely")
        answer = log.rules()
        (hint,) = [d for d in answer.details if "time zone" in d]
        assert "the time zone Asia/Shanghai: there 24 rows of torture.times lie where columns:ts0 puts them" in hint
        assert "1 by columns:ts0 explain every row" in answer.finding and "--option time-zone=Asia/Shanghai" in hint
    found = of_findings(ticdc_lab.load(spark, source))["findings"]
    assert {*found["severity"]} == {"warning"} and sum("time zone" in m for m in found["message"]) == 1
    assert sum("dispatched by column ts0, whose value changes (all 24 rows" in m for m in found["message"]) == 11
    wrong = of_findings(ticdc_lab.load(spark, placed(tmp_path, "columns:ts0", 16, moved=1)))["findings"]
    assert (wrong["severity"] == "error").any() and sum("Asia/Shanghai" in m for m in wrong["message"]) == 1
    given = of_findings(ticdc_lab.load(spark, placed(tmp_path, "columns:ts0", 16), options={"time-zone": "UTC"}))
    assert sum("time zone Asia/Shanghai" in m for m in given["findings"]["message"]) == 1, "the wrong zone was given"


def test_rows_too_few_to_tell_a_zone_claim_none(spark: SparkSession, tmp_path: Path) -> None:
    """By 4 partitions nine different moments fit some zone by chance: what was not tried is named, and no error."""
    source = placed(tmp_path, "columns:ts0", 4)
    with closing(ticdc_lab.open(source, spark=spark)) as log:
        assert log.known_settings.get("time-zone") is None
        (tried,) = [limit for limit in log.rules().limits if "tried" in limit]
        assert "but not ts0, ts1, ts2, ts3, ts4, ts5, ts6, whose hash the log does not show" in tried
    found = of_findings(ticdc_lab.load(spark, source))["findings"]
    assert {*found["severity"]} == {"warning"}
    assert all("perhaps because the table is dispatched by a column whose hash the log does not" in m
               for m in found["message"])  # fmt: skip


def shown(
    spark: SparkSession, moments: list[datetime], zone: str, *, by: tuple[str, ...], wrong: int = 0, n: int = 8
) -> ZoneShown | None:
    """What rows show whose partitions are the ones of a server in ``zone``; the last ``wrong`` lie elsewhere."""
    rows = []
    for i, moment in enumerate(moments):
        there = f"{moment.astimezone(ZoneInfo(zone)):%Y-%m-%d %H:%M:%S}.250"
        texts = {"at": there, "id": str(i % 7), "note": f"n{i % 5}"}
        crc = zlib.crc32(b"sa")
        for column in by:
            crc ^= zlib.crc32(f"{column}{texts[column]}".encode())
        texts["at"] = f"{moment:%Y-%m-%d %H:%M:%S}.250"
        image = [{"name": c, "mysql_type": "timestamp(3)" if c == "at" else "varchar(9)", "value": v,
                  "is_key": c != "note", "flags": None} for c, v in texts.items()]  # fmt: skip
        place = {"topic": "t", "partition": (crc + (i >= len(moments) - wrong)) % n, "offset": i, "seq": 0}
        rows.append(place | {"schema_name": "s", "table_name": "a", "kind": "row", "op": "insert",
                             "commit_ts": 1000 + i, "columns": image, "protocol": "debezium"})  # fmt: skip
    return shown_zone(events_frame(spark, rows), [("t", "s", "a")], partitions={"t": n})


WINTER = [datetime(2026, 1, 1, tzinfo=UTC) + timedelta(hours=7 * i, seconds=i) for i in range(80)]
SUMMER = [datetime(2026, 7, 1, tzinfo=UTC) + timedelta(hours=7 * i, seconds=i) for i in range(80)]


@pytest.mark.parametrize("by", [("at", "id"), ("at",), ("at", "note")])
@pytest.mark.parametrize("zone", ["Europe/Berlin", "America/St_Johns"])
def test_summer_and_winter_of_a_zone(spark: SparkSession, zone: str, by: tuple[str, ...]) -> None:
    """By the key, by the column and by two; a server elsewhere, or no rule at all, is no zone."""
    found = shown(spark, WINTER + SUMMER, zone, by=by)
    assert found is not None and found.zones == ((zone,),) and "160 rows of s.a" in found.words
    rule = {"id": "index-value", "note": "columns:at, note"}.get(by[-1], "columns:at")
    assert f"lie where {rule} puts them" in found.words
    assert shown(spark, WINTER + SUMMER, zone, by=("note",), wrong=160) is None


def test_zones_of_the_same_times_are_named_together(spark: SparkSession) -> None:
    """In winter Berlin is an hour before UTC, as others are."""
    found = shown(spark, WINTER, "Europe/Berlin", by=("at", "id"))
    assert found is not None and len(found.zones) == 1 and {"Etc/GMT-1", "Europe/Berlin"} <= {*found.zones[0]}
    assert "Etc/GMT-1 or Europe/Berlin, which have the same times in these rows" in found.words
    utc = shown(spark, WINTER, "UTC", by=("at",))
    assert utc is not None and utc.zones[0][0] == "Etc/GMT+0"


def test_where_two_zones_explain_the_partitions_none_is_taken(spark: SparkSession) -> None:
    """Of 84 rows the last four, the only ones of summer, lie where neither zone puts them."""
    found = shown(spark, WINTER + SUMMER[:4], "Europe/Berlin", by=("at", "id"), wrong=4)
    assert found is not None and not found.name and len(found.zones) > 1
    assert "several zones explain the partitions" in found.words and "`--option time-zone=ZONE` decides" in found.words
    assert shown(spark, WINTER[:6], "Europe/Berlin", by=("at", "id")) is None, "six rows tell none"

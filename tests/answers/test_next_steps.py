"""What findings advise to do next: by guarantee and cause, each on a planted log."""

from __future__ import annotations

import base64
import gzip
import json
from collections import Counter
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from audit_tables import audit_table
from planted_guarantees import FAULTS
from pyspark.sql import SparkSession
from tiny_logs import ddl, mark, row, table_of

import ticdc_lab
from ticdc_lab.answers.audit import causes

TESTS = Path(__file__).parents[1]
DATA = TESTS.parent / "data"
WATERMARKS, DDL = "resolved_events_on_all_partitions", "ddl_events_on_all_partitions"
PARTITION, CHAIN = "rows_stay_in_one_partition", "row_images_chain"
RULE = "the table is dispatched by ts"
MOVES = [row(0, 0, 2), row(1, 0, 3, "update"), mark(0, 1, 9), mark(1, 1, 9)]
MARKS = [mark(0, 0, 1), mark(0, 1, 2), mark(0, 2, 3)]


def steps(guarantee: str, log: list[dict[str, Any]], **given: Any) -> list[tuple[str, str]]:
    """Severity and next step of each cause."""
    found = audit_table(table_of(log), protocol="open-protocol", checks=[guarantee], **given).to_pandas()
    return [(c["severity"], c["do"]) for c in causes(found, source="log.gz").to_dict("records")]


def rules(*of: dict[str, Any]) -> pa.Table:
    """Why rows of the table move, as :func:`ticdc_lab.dispatch.infer.move_causes_table` gives it."""
    texts = ("topic", "schema_name", "table_name", "cause", "may_be", "tried")
    types = pa.schema([(c, pa.string()) for c in texts] + [(c, pa.int64()) for c in ("partition", "offset", "seq")])
    table = {"topic": "t", "schema_name": "s", "table_name": "a"}
    return pa.Table.from_pylist([dict.fromkeys(types.names) | table | {"seq": 0} | one for one in of], types)


@pytest.mark.parametrize(("guarantee", "log", "given", "severity", "step"), [
    (PARTITION, MOVES, {"causes": rules({"cause": RULE})}, "warning", "dispatch by its key: ticdc-lab advise log.gz"),
    (PARTITION, MOVES, {"causes": rules({"may_be": "ts"})}, "warning", "audit log.gz --changefeed FILE"),
    (PARTITION, MOVES, {"causes": rules({})}, "error", "Show the row's messages"),
    (PARTITION, MOVES, {"causes": rules({"cause": RULE}, {"partition": 1, "offset": 0})}, "error",
     "dispatchers or the topic's partitions changed"),
    (PARTITION, [row(0, 0, 1), row(1, 0, 1)], {}, "error", "dispatchers or the topic's partitions changed"),
    (PARTITION, [row(0, 0, 1), row(1, 0, 2, "update", key="2", old="1")], {}, "warning",
     "output-raw-change-event = false"),
    (PARTITION, [row(0, 0, 1), row(3, 0, 2, "update"), mark(0, 1, 9), mark(3, 1, 9)], {"causes": rules({})}, "warning",
     "Record all partitions of the topic again"),
    (WATERMARKS, [row(0, 0, 1), row(1, 0, 2)], {}, "warning", "no tool left watermarks out"),
    (WATERMARKS, [*MARKS, row(1, 0, 1)], {}, "warning", "over a longer time: ticdc-lab record"),
    (WATERMARKS, [*MARKS, mark(0, 3, 9), mark(0, 4, 10), mark(0, 5, 11), mark(0, 6, 12),
                  *[row(1, o, t, key="2") for o, t in enumerate((1, 2, 12))]], {}, "error", "only one changefeed"),
    (WATERMARKS, FAULTS[WATERMARKS], {}, "error", "why log.gz --cdc-log FILE"),
    (WATERMARKS, [*MARKS, mark(1, 0, 1), mark(1, 5, 3)], {}, "warning", "Compare the offsets"),
    (WATERMARKS, [*MARKS, mark(1, 0, 1)], {}, "warning", "over a longer time"),
    (WATERMARKS, [*MARKS, mark(1, 0, 2), mark(1, 1, 3)], {}, "warning", "over a longer time"),
    (DDL, FAULTS[DDL], {}, "error", "audit log.gz --messages-of 1"),
    (DDL, [mark(0, 0, 1), mark(1, 0, 1), ddl(0, 1, 2), mark(0, 2, 9)], {}, "warning", "over a longer time"),
    (DDL, [mark(0, 0, 1), mark(1, 0, 1), ddl(0, 1, 2), mark(0, 2, 9), mark(1, 2, 9)], {}, "warning",
     "Compare the offsets"),
    ("first_appearances_are_ordered", [row(0, 0, 1), row(0, 2, 3, "update"), row(0, 3, 2, "update"),
                                       row(0, 4, 3, "update"), mark(0, 5, 7)], {}, "warning", "over a longer time"),
    (CHAIN, FAULTS[CHAIN], {}, "error", "audit with its file: --changefeed FILE"),
])  # fmt: skip
def test_a_cause_has_its_own_next_step(
    guarantee: str, log: list[dict[str, Any]], given: dict[str, Any], severity: str, step: str
) -> None:
    """One guarantee breaks for several reasons, and a wrong step costs its reader an hour."""
    found = steps(guarantee, log, **given)
    assert [(s, step in do) for s, do in found] == [(severity, True)], found


def test_a_note_advises_nothing_and_a_live_topic_is_named() -> None:
    """``N more findings are not listed`` has no messages; of a topic that is read the command has its address."""
    log = [e for n in range(3) for e in (row(0, n, 1, key=str(n)), row(1, n, 2, "update", key=str(n)))]
    found = audit_table(table_of(log), protocol="open-protocol", checks=[PARTITION], max_per_guarantee=1).to_pandas()
    assert [(c["severity"], bool(c["do"])) for c in causes(found).to_dict("records")] == [
        ("error", True), ("info", False),
    ]  # fmt: skip
    short = audit_table(table_of([*MARKS, mark(1, 0, 1)]), protocol="open-protocol", checks=[WATERMARKS]).to_pandas()
    assert "record kafka://h:1/t --out FILE" in causes(short, source="kafka://h:1/t")["do"][0]
    of_files = short.assign(cause=[c.replace("partition", "stream") for c in short["cause"]])
    assert causes(of_files, source="d", lane="stream")["do"][0] == (
        "Check the folder for missing files: ticdc-lab fsck d"
    )


def _messages(name: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in gzip.decompress((DATA / name).read_bytes()).splitlines()]


def _frames(packed: bytes) -> list[bytes]:
    """Keys or values of a message of open-protocol, behind its version."""
    found = []
    while packed:
        n = int.from_bytes(packed[:8])
        found.append(packed[8 : 8 + n])
        packed = packed[8 + n :]
    return found


def _another_zone() -> list[dict[str, Any]]:
    """Real messages of a server in Shanghai, which state that they are in UTC."""
    log = [json.loads(line) for line in (TESTS / "data/reports/08/simple-shanghai.jsonl").read_text().splitlines()]
    for m in log:
        value = base64.b64decode(m["value"]).replace(b'"location":"Asia/Shanghai"', b'"location":"UTC"')
        m["value"] = base64.b64encode(value).decode()
    return log


def _two_topics() -> list[dict[str, Any]]:
    """Real messages of two topics in one recording, under one name."""
    names = ("messages_canal-json-tidb_small.jsonl.gz", "messages_canal-json-tidb_bank.jsonl.gz")
    return [m | {"topic": "t"} for name in names for m in _messages(name)[:300]]


def _switched_at_the_end() -> list[dict[str, Any]]:
    """Real messages up to the 24th update; the last updates have no old image, too few to decide why."""
    log, updates = _messages("messages_open-protocol_small.jsonl.gz"), []
    of = {id(m): _frames(base64.b64decode(m["key"])[8:]) for m in log}
    for m in log:
        values = _frames(base64.b64decode(m["value"] or ""))
        updates += [json.loads(k)["ts"] for k, v in zip(of[id(m)], values, strict=False) if b'"p":' in v]
    end, off = sorted(updates)[23], sorted(updates)[20]
    log, offsets = [m for m in log if json.loads(of[id(m)][0])["ts"] <= end], Counter[int]()
    for m in sorted(log, key=lambda m: m["offset"]):
        m["offset"] = offsets[m["partition"]]
        offsets[m["partition"]] += 1
        packed = b""
        for key, value in zip(of[id(m)], _frames(base64.b64decode(m["value"] or "")), strict=False):
            change = json.loads(value or "{}")
            if json.loads(key)["ts"] >= off and change.pop("p", None):
                value = json.dumps(change).encode()
            packed += len(value).to_bytes(8) + value
        m["value"] = base64.b64encode(packed).decode() if m["value"] else m["value"]
    return log


@pytest.mark.parametrize(("planted", "severity", "step"), [
    (_another_zone, "warning", "Audit with the zone of the TiCDC server: ticdc-lab audit log.jsonl --option "
                               "time-zone=Etc/GMT-8"),
    (_two_topics, "error", "Record each topic into a file of its own: ticdc-lab record kafka://HOST:PORT/TOPIC "
                           "--out FILE"),
    (_switched_at_the_end, "warning", "Give the changefeed's file, which shows it: ticdc-lab audit log.jsonl "
                                      "--changefeed FILE"),
])  # fmt: skip
def test_a_fault_planted_in_bytes_leads_to_its_step(
    planted: Callable[[], list[dict[str, Any]]], severity: str, step: str, spark: SparkSession, tmp_path: Path
) -> None:
    """Its cause comes first, also before the many findings that follow from it."""
    place = tmp_path / "log.jsonl"
    place.write_text("".join(f"{json.dumps(m)}\n" for m in planted()))
    with closing(ticdc_lab.open(str(place), spark=spark)) as log:
        answer = log.audit(messages=False)
    first = answer.frames["causes"].iloc[0]
    assert (first["severity"], first["do"].replace(str(place), "log.jsonl")) == (severity, step)
    mixed = "This is no recording of one topic: "
    assert answer.finding.startswith(mixed) == (planted is _two_topics)
    assert (answer.frames["verdict"]["guarantee"].iloc[0] == first["guarantee"]) or planted is not _two_topics

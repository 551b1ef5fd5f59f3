"""What people paste or export beside a topic: read, or refused with what it is and a command that is run here."""

from __future__ import annotations

import html
import json
import re
import shutil
import subprocess
from base64 import b64encode
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from ticdc_lab.sources import dumps
from ticdc_lab.sources.form_detection import form_of
from ticdc_lab.sources.forms import Assumed
from ticdc_lab.sources.refused_forms import converted_hint

VALUES = [
    {"id": 0, "database": "shop", "table": "t", "type": "INSERT", "isDdl": False, "data": [{"id": str(n), "a": "é \\"}],
     "_tidb": {"commitTs": 463994880000000001 + n}}
    for n in range(4)
]  # fmt: skip
TEXTS = [json.dumps(value, ensure_ascii=False) for value in VALUES]
LINES = "".join(f"{text}\n" for text in TEXTS)


def values_in(data: bytes, **options: str) -> list[Any]:
    """The values of a dump; none is in quarantine."""
    form = form_of(data, options=options, whole=True)
    assert form is not None
    found = []
    for messages, bad in dumps.read_dump(iter([(data, "")]), "a dump", form, Assumed("t"), 1 << 27):
        assert bad is None
        found += [json.loads(value) for value in messages["value"].to_pylist()]
    return found


def run(hint: str, folder: Path) -> tuple[bytes, dict[str, str]]:
    """What the command of a hint makes, and the options of the one that reads it."""
    command, read = re.split("(?:^|; )ticdc-lab survey ", hint.partition(": ")[2])
    command = command or f"cp {read.split(' ')[0]} dump"
    if command.startswith("jq") and shutil.which("jq") is None:
        pytest.skip("no jq here")
    subprocess.run(["bash", "-c", command], cwd=folder, check=True)
    stated = re.search(r"--option format='(.*)'", read)
    return (folder / read.split(" ")[0]).read_bytes(), {"format": stated[1]} if stated else {}


def each(write: Callable[[str], str]) -> str:
    """A line for each value."""
    return "".join(f"{write(text)}\n" for text in TEXTS)


def objects(write: Callable[[str, int], Any]) -> str:
    """A line of JSON for each value."""
    return "".join(json.dumps(write(text, n)) + "\n" for n, text in enumerate(TEXTS))


def xxd(text: str, *, is_canonical: bool = False) -> str:
    """What xxd, or hexdump -C, prints of a text."""
    out, data = "", text.encode()
    for at in range(0, len(data), 16):
        part = data[at : at + 16]
        pairs = " ".join(part[i : i + 2].hex() for i in range(0, len(part), 2))
        halves = "  ".join(" ".join(f"{byte:02x}" for byte in half) for half in (part[:8], part[8:]) if half)
        shown = "".join(chr(byte) if 32 <= byte < 127 else "." for byte in part)
        out += f"{at:08x}  {halves:<48}  |{shown}|\n" if is_canonical else f"{at:08x}: {pairs:<39}  {shown}\n"
    return out


PRETTY = json.dumps(VALUES[0], indent=2, ensure_ascii=False)


@pytest.mark.parametrize(
    ("data", "resembles"),
    [
        (html.escape(LINES), "escapes of HTML"),
        (f"<html><body><pre>\n{html.escape(LINES)}</pre></body></html>\n", "escapes of HTML"),
        (re.sub('"([^"]*)"', "\u201c\\1\u201d", LINES.replace("\\\\", "")), "typographic quotes"),
        (re.sub('"([^"]*)"', "\u201c\\1\u201d", PRETTY.replace("\\\\", "")), "typographic quotes"),
        (PRETTY.replace("  ", "\u00a0\u00a0"), "blanks of a page"),
        (each(lambda text: json.dumps(text, ensure_ascii=False)[1:-1]), "backslashes before its quotes"),
        (each(lambda text: json.dumps(json.dumps(text))), "JSON in a text of JSON"),
        (each(quote), "escapes of URLs"),
        (each(lambda text: f"[{' '.join(map(str, text.encode()))}]"), "bytes as numbers"),
        (objects(lambda text, n: {"line": text, "labels": {"app": "consumer"}}), "values inside of other objects"),
        (objects(lambda text, n: {"level": "INFO", "msg": "Received: " + text}), "values inside of other objects"),
        (objects(lambda text, n: {"kafka": {"topic": "t"}, "payload": json.loads(text)}), "values inside of other"),
        (
            json.dumps({"Records": [{"Data": b64encode(t.encode()).decode(), "PartitionKey": "1"} for t in TEXTS]}),
            "values inside of other objects",
        ),
        (
            json.dumps({"data": {"resultType": "streams", "result": [{"values": [["17", text] for text in TEXTS]}]}}),
            "values inside of other objects",
        ),
        (json.dumps([{"line": text} for text in TEXTS]), "values inside of other objects"),
        (
            json.dumps({"hits": {"total": {"value": 4}, "hits": [{"_source": {"message": t}} for t in TEXTS]}}),
            "messages inside of other objects",
        ),
        (
            json.dumps({"kind": "KafkaRecordList", "metadata": {"next": None}, "data": [
                {"partition_id": 0, "offset": n, "timestamp": None, "value": {"type": "JSON", "data": value}}
                for n, value in enumerate(VALUES)
            ]}),
            "messages inside of other objects",
        ),
        (objects(lambda text, n: {"topic": "t", "partition": 3, "message": {
            "timestamp": "1", "offset": str(n), "value": {"type": "Buffer", "data": list(text.encode())}}}),
         "messages inside of other objects"),
        (each(lambda text: f"t [0] at offset 7:\n{text.encode()!r}"), "bytes that Python printed between others"),
        (each(lambda text: f"{27 * '*'} 1. row {27 * '*'}\n offset: 7\n  value: {text}"), "JSON at the end of lines"),
        (f" offset | value\n--------+------\n{each(lambda text: f'      7 | {text}')}(4 rows)\n",
         "a printed table"),
        (each(lambda text: xxd(text).rstrip("\n")), "a hex dump"),
        (each(lambda text: xxd(text, is_canonical=True) + f"{len(text.encode()):08x}"), "a hex dump"),
        (f"┌────────┬───────┐\n│ offset │ value │\n├────────┼───────┤\n{each(lambda text: f'│      7 │ {text} │')}"
         "└────────┴───────┘\n", "a printed table"),
        (each(lambda text: f"Row 1:\n──────\noffset: 7\nvalue:  {text}\n"), "JSON at the end of lines"),
        (each(lambda text: f"INFO GenericMessage [payload={text}, headers={{kafka_offset=7, kafka_topic=t}}]"),
         "and more behind it"),
        (json.dumps([{"partition": 0, "offset": n, "key": {"data": None}, "value": {"data": value}}
                     for n, value in enumerate(VALUES)]), "messages inside of other objects"),
        (objects(lambda text, n: {"content": VALUES[n], "meta": {"kafka_topic": "t", "kafka_partition": 0,
                                                                 "kafka_offset": n}}), "messages inside of other"),
        (objects(lambda text, n: {"RECORD_METADATA": {"topic": "t", "partition": 0, "offset": n, "CreateTime": 1},
                                  "RECORD_CONTENT": VALUES[n]}), "messages inside of other objects"),
        (json.dumps({"hits": {"hits": [{"_id": str(n), "_source": value} for n, value in enumerate(VALUES)]}}),
         "values inside of other objects"),
        (json.dumps({"offset": {str(n): n for n in range(4)}, "value": {str(n): text for n, text in enumerate(TEXTS)}}),
         "columns of a table"),
        (each(lambda text: json.dumps(["t", 0, 7, text])), "JSON arrays"),
        ("".join(f"Offset: {n}   Key: empty   Headers: empty\n{text}\n" for n, text in enumerate(TEXTS)),
         "lines of JSON between others"),
        (each(lambda text: f"Partition:\t0\nOffset:\t7\nValue:\t{text}\n"), "JSON at the end of lines"),
        ("".join(f"2026-02-02 02:40:0{n} INFO c.e.L : topic=t, partition=0, offset={n}, value={t}\n"
                 for n, t in enumerate(TEXTS)), "behind other words"),
        (each(lambda text: f"Partition: 0, Offset: 7\n{text}"), "lines of JSON between others"),
        (each(lambda text: f"Value: {text}"), "lines with JSON in them"),
        ("".join(f"t\t0\t{n}\t1770000000000\t\t{text}\n" for n, text in enumerate(TEXTS)), "what kcat -f prints"),
        ("".join(f"0\t{n}\t{text}\n" for n, text in enumerate(TEXTS)) + "\\.\n", "what kcat -f prints"),
        ("".join(f"{1 + n % 2}> {text}\n" for n, text in enumerate(TEXTS)), "lines with JSON in them"),
    ],
)  # fmt: skip
def test_the_command_of_a_hint_restores_what_a_page_or_a_tool_rewrote(
    data: str, resembles: str, tmp_path: Path
) -> None:
    """Forums, pages, logs of consumers, Loki, Elasticsearch, REST: all values are there after it."""
    (file := tmp_path / "pasted.txt").write_text(data, encoding="utf-8")
    hint = converted_hint(str(file))
    assert resembles in hint
    made, options = run(hint, tmp_path)
    made = made.removesuffix(b"\\.\n")  # the end of a COPY of PostgreSQL
    found, plain = values_in(made, **options), "\u201c" in data
    wanted = [VALUES[0]] if resembles.startswith("blanks") or data.count("\u201cisDdl") == 1 else VALUES
    assert found == (json.loads(json.dumps(wanted).replace("\\\\", "")) if plain else wanted)


def test_a_time_beside_a_value_is_the_header_of_csv() -> None:
    """As CloudWatch and Kibana export it."""
    rows = "".join('1770000000000,"{}"\n'.format(text.replace('"', '""')) for text in TEXTS)
    for names in ("timestamp,message", '"@timestamp","message"'):
        assert values_in(f"{names}\n{rows}".encode()) == VALUES


@pytest.mark.parametrize(
    "data",
    [
        objects(lambda text, n: {"SequenceNumber": n, "Offset": str(n * 512), "EnqueuedTimeUtc": "2/2/2026",
                                 "SystemProperties": {}, "Properties": {}, "Body": text}),
        objects(lambda text, n: {"_topic": "t", "_partition": 0, "_offset": n, "_key": "", "_raw_message": text}),
        objects(lambda text, n: {"partition_id": 0, "offset": n, "timestamp": None,
                                 "value": {"type": "BINARY", "data": b64encode(text.encode()).decode()}}),
        "".join(f"[partition=0] [offset={n}] [key=] [value={text}]\n" for n, text in enumerate(TEXTS)),
    ],
    ids=["Azure Event Hubs", "ClickHouse", "REST", "brackets"],
)  # fmt: skip
def test_records_of_other_services_are_read_with_their_offsets(data: str) -> None:
    """Event Hubs counts bytes as `Offset`, and messages as `SequenceNumber`."""
    assert values_in(data.encode()) == VALUES
    form = form_of(data.encode(), options={}, whole=True)
    assert form is not None and "offset" not in form.lost
    [(messages, _)] = dumps.read_dump(iter([(data.encode(), "")]), "a dump", form, Assumed("t"), 1 << 27)
    assert messages["offset"].to_pylist() == [0, 1, 2, 3]


def test_what_pulsars_client_prints_is_called_so() -> None:
    """Limits name the tool, and fences of Markdown are no messages."""
    data = "".join(f"----- got message -----\nkey:[null], properties:[], content:{text}\n" for text in TEXTS).encode()
    form = form_of(data, options={}, whole=True)
    assert form is not None and form.sentences("t", lost=["topic"])[0].startswith("What pulsar-client prints names")
    assert values_in(f"```json\n{LINES}```\n".encode()) == VALUES


@pytest.mark.parametrize(
    ("data", "said"),
    [
        ("{id=0, database=shop, table=t}\n", "a Map of Java"),
        ("ConsumerRecord(topic = t, key = null, value = {id=0, database=shop})\n", "a Map of Java"),
        ("map[database:shop isDdl:false table:t]\n", "a map of Go"),
        ("{\n  topic: 'shop',\n  offset: '0',\n  value: '{}'\n}\n", "an object of JavaScript"),
        ('[partition=0] [key={"ts":415508878783938562,"scm":"a","tbl":"t","t":1}] [value={"u":{}}]\n', "open-protocol"),
        ('{"ts":415508881038376963,"t":3}\t\n', "open-protocol"),
        ("1> +I[1, pear, 3]\n", "rows that Flink decoded"),
        ("### INSERT INTO `shop`.`t`\n### SET\n", "mysqlbinlog"),
        ("[2026/02/02 10:40:00.000 +08:00] [INFO] [lib.rs:88] [\"Welcome to TiKV\"]\n", "a log of TiKV"),
        ('"Time","lag"\n2026-02-02 02:40:00,1.2\n', "Prometheus or Grafana"),
        ('[{"id":"a","summary":{"state":"normal","tso":1}}]\n', "--changefeed"),
        ('{"kvs":[{"key":"L3g=","value":"e30="}],"count":1}\n', "--changefeed"),
        ("Create changefeed successfully!\nID: a\n", "--changefeed"),
        ('[sink]\nprotocol = "canal-json"\n', "--changefeed"),
        ('{"count":1,"stores":[{"store":{"id":1,"state_name":"Up"}}]}\n', "ticdc-lab pd explain --from"),
        ("+--------+\n| JOB_ID |\n+--------+\n|    104 |\n+--------+\n", "without a column of values"),
        ('{"Table":"t","Schema":"shop","Version":1,"TableVersion":463994880000000001,\n"TableColumns":[]}\n', "FOLDER"),
        ('{"checkpoint-ts":463994880000000001}', "FOLDER"),
        ("ticdc-meta$operation,ticdc-meta$table,id\nI,t,1\n", "TiCDC's storage sink"),
        ('check-thread-count = 4\n[data-sources.a]\nhost = "h"\n', "ticdc-lab compare"),
        ("A total of 2 tables need to be compared\n\nComparing the data of `shop`.`t`\n", "ticdc-lab compare"),
        ("*** 1. row ***\nticdc_cluster_id: default\n      primary_ts: 463994880000000001\n", "ticdc-lab tso"),
        ("GROUP  TOPIC  PARTITION  CURRENT-OFFSET\ng      t      0          7\n", "Kafka's tools"),
        ("Topic: t\tTopicId: a\tPartitionCount: 3\tReplicationFactor: 1\tConfigs:\n", "Kafka's tools"),
        ("Metadata for t (from broker 1: h:9092/1):\n 1 brokers:\n", "Kafka's tools"),
        ("Error: [CDC:ErrSameUpstreamDownstream]TiCDC does not support it\n", "an error of TiCDC"),
        ('[\n  {\n    "id": "a",\n    "is-owner": true,\n    "address": "h:8300"\n  }\n]\n', "captures or processors"),
        ('{"service_gc_safe_points":[{"service_id":"ticdc"}],"gc_safe_point":1}\n', "safe points"),
        ("ID             Role  Host  Ports      Status\n--             ----  ----  -----      ------\n", "tiup"),
        ('{"type":"record","name":"t","namespace":"default.shop","fields":[]}\n', "--schema-registry"),
        ("-- MySQL dump 10.13\n--\n\nDROP TABLE IF EXISTS `t`;\n", "SQL"),
        ("REPLACE INTO `shop`.`t`(`id`) VALUES (1);\n", "SQL"),
        ('{\n      "@version" => "1",\n       "message" => "{}"\n}\n', "Logstash"),
        ("cdc cli changefeed create --server=http://h:8300 --sink-uri='kafka://h:9092/t'\n", "--changefeed"),
        ('Info: {"upstream_id":1,"sink_uri":"kafka://h:9092/t"}\n', "--changefeed"),
        ("enable-sync-point = true\n", "--changefeed"),
        ('curl -X POST http://h:8300/api/v2/changefeeds -d \'{"sink_uri":"kafka://h/t"}\'\n', "--changefeed"),
        ("+------+-----+\n|offset|value|\n+------+-----+\n|     0|[7B 22 6...|\n+------+-----+\n", "cells are cut"),
        ("GIF89a", "a picture"),
        ('{"id":0,"database":"shop","type":"INS...\n{"id":1,"data\u2026\n', "Line 1 ends with `...`"),
    ],
)  # fmt: skip
def test_what_has_no_message_to_restore_says_what_it_is(data: str, said: str, tmp_path: Path) -> None:
    """And what to do instead; no command is offered that cannot read it."""
    (file := tmp_path / "given").write_text(data, encoding="utf-8")
    assert said in converted_hint(str(file))


def test_a_file_whose_blocks_are_all_of_it_is_not_taken_apart(tmp_path: Path) -> None:
    """The command would make the same file again."""
    (file := tmp_path / "given").write_text('{\n  "a": 1\n}\n{\n  "a": 2\n}\n', encoding="utf-8")
    assert converted_hint(str(file)) == ""
    file.write_text('done\n{\n  "a": 1\n}\n', encoding="utf-8")
    assert "JSON between other lines" in converted_hint(str(file))


def test_a_header_of_csv_without_places_is_no_message() -> None:
    """As Datadog exports it."""
    rows = "".join('2026-02-02,h,"{}"\n'.format(text.replace('"', '""')) for text in TEXTS)
    assert values_in(f"Date,Host,Message\n{rows}".encode()) == VALUES

"""Dumps of a topic that other tools made: the same messages as the capture of the topic, and what is lost is named."""

from __future__ import annotations

import csv
import gzip
import json
import random
import re
import shutil
import subprocess
import zlib
from base64 import b64decode, b64encode
from collections.abc import Callable, Iterator
from io import BytesIO
from itertools import accumulate
from pathlib import Path
from typing import Any

import fastavro
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import zstandard
from pyspark.sql import SparkSession

import ticdc_lab
from ticdc_lab.errors import SourceError, TiCDCLabError
from ticdc_lab.sources import dumps
from ticdc_lab.sources.dump_files import Assumed, DumpFiles, dumps_at, head_of
from ticdc_lab.sources.form_detection import form_of
from ticdc_lab.sources.forms import HEAD_BYTES, Form, named_place
from ticdc_lab.sources.load import load
from ticdc_lab.sources.pieces import of_dumps, read_piece
from ticdc_lab.sources.refused_forms import converted_hint

DATA = Path(__file__).parents[1] / "data" / "dumps"
LENGTHS = r"%t %p %o %T %K %S %k%s\n"
SENTENCES = r"Topic %t[%p] at offset %o: key %K bytes: %k, value %S bytes: %s\n--\n"

WHOLE = [
    *((f"{topic}.kcat-J.jsonl", {}) for topic in ("canal-json", "open-protocol", "avro", "simple", "simple-avro")),
    *((f"{topic}.console-all.txt", {}) for topic in ("canal-json", "open-protocol", "avro", "simple")),
    ("canal-json.kcat-f.txt", {"format": r"%t %p %o %T %k %s\n"}),
    ("open-protocol.kcat-f-lengths.txt", {"format": LENGTHS}),
    ("avro.kcat-f-lengths.txt", {"format": SENTENCES}),
]  # fmt: skip
"""Dumps in which each message has its partition, offset, key and value."""

Place = tuple[int, int]


def capture(topic: str) -> dict[Place, tuple[bytes | None, bytes | None]]:
    """Key and value of each message of a topic."""
    with gzip.open(DATA / f"{topic}.jsonl.gz") as file:
        lines = [json.loads(line) for line in file]
    return {(m["partition"], m["offset"]): (_bytes(m["key"]), _bytes(m["value"])) for m in lines}


def _bytes(text: str | None) -> bytes | None:
    return None if text is None else b64decode(text)


def read(
    data: bytes, *, chunk: int = 1 << 20, line: int = 1 << 27, kind: str = "auto", **options: str
) -> tuple[Form, list[dict[str, Any]], list[dict[str, Any]]]:
    """The form of some bytes, their messages, and what is none."""
    form = form_of(data[:HEAD_BYTES], kind=kind, options=options, whole=len(data) <= HEAD_BYTES)
    assert form is not None
    return form, *read_as(form, data, chunk=chunk, line=line)


def read_as(
    form: Form, data: bytes, *, chunk: int = 1 << 20, line: int = 1 << 27
) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Messages in a form, and what is none."""
    pieces: Iterator[tuple[bytes, str]] = ((data[i : i + chunk], "") for i in range(0, len(data), chunk))
    messages, bad = [], []
    for found, rejected in dumps.read_dump(pieces, "a dump", form, Assumed("stated"), line):
        messages += found.to_pylist()
        bad += rejected.to_pylist() if rejected is not None else []
    return messages, bad


def placed(messages: list[dict[str, Any]]) -> dict[Place, tuple[bytes | None, bytes | None]]:
    """Key and value by partition and offset."""
    assert len({(m["partition"], m["offset"]) for m in messages}) == len(messages)
    return {(m["partition"], m["offset"]): (m["key"], m["value"]) for m in messages}


@pytest.mark.parametrize("chunk", [1 << 20, 777])
@pytest.mark.parametrize(("name", "options"), WHOLE, ids=lambda of: of if isinstance(of, str) else "")
def test_a_dump_of_a_real_tool_holds_the_messages_of_the_capture(
    name: str, options: dict[str, str], chunk: int
) -> None:
    """Bytes come back as they were, binary ones too, however the file is cut into chunks."""
    _, messages, bad = read((DATA / name).read_bytes(), chunk=chunk, **options)
    assert not bad
    assert placed(messages) == capture(name.partition(".")[0])


def test_kcat_J_tells_null_from_an_empty_text_and_the_console_cannot() -> None:
    """`kcat -J` writes null and ""; the console writes the word null, which a value may have been."""
    form, messages, _ = read((DATA / "nulls.kcat-J.jsonl").read_bytes())
    assert [(m["key"], m["value"]) for m in messages] == [
        (b"k", b"v"), (b"", b"empty key"), (b"k2", b""), (None, None), (b"hk", b"hv"), (b"hk", b"null"),
    ]  # fmt: skip
    assert form.lost == frozenset()
    assert [(h["key"], h["value"]) for h in messages[4]["headers"]] == [("a", b"b"), ("c", b"")]
    form, messages, _ = read((DATA / "nulls.console-all.txt").read_bytes())
    assert [(m["key"], m["value"]) for m in messages][3:] == [(None, None), (b"hk", b"hv"), (b"hk", None)]
    assert "null" in form.lost
    assert [(h["key"], h["value"]) for h in messages[4]["headers"]] == [("a", b"b"), ("c", b"")]


def test_separators_that_the_console_was_given_are_options() -> None:
    """Of fields, of messages, of headers, and its word for null."""
    text = b"Partition:0#Offset:1#a:b;c:d#nil#{}|Partition:0#Offset:2#NO_HEADERS#k#nil|"
    stated = {"key.separator": "#", "line.separator": "|", "headers.separator": ";", "null.literal": "nil"}
    stated |= {"print.headers": "true", "print.key": "true"}
    form = form_of(text, options=stated, whole=True)
    assert form is not None and form.name == "console"
    messages, bad = read_as(form, text)
    assert not bad and [(m["offset"], m["key"], m["value"]) for m in messages] == [(1, None, b"{}"), (2, b"k", None)]
    assert [(h["key"], h["value"]) for h in messages[0]["headers"]] == [("a", b"b"), ("c", b"d")]


def test_values_alone_are_in_the_order_of_their_lines() -> None:
    """Each line is a value; its offset is its place, and topic, partition and key are named as lost."""
    form, messages, bad = read((DATA / "canal-json.console-values.jsonl").read_bytes())
    assert not bad
    assert [(m["topic"], m["partition"], m["offset"]) for m in messages] == [("stated", 0, i) for i in range(28)]
    assert {m["value"] for m in messages} == {value for _, value in capture("canal-json").values()}
    assert form.lost == {"topic", "partition", "offset", "key", "null"}


@pytest.mark.parametrize("topic", ["canal-json", "simple"])
def test_what_kafka_connect_writes_to_a_file_are_values(topic: str) -> None:
    """Its file sink writes a value a line, with any partition: all of the topic's values, none else."""
    form, messages, bad = read((DATA / f"{topic}.connect-file.txt").read_bytes())
    assert form.name == "values" and not bad
    assert sorted(m["value"] for m in messages) == sorted(value or b"" for _, value in capture(topic).values())


def test_a_subset_of_print_and_other_separators_are_detected() -> None:
    """The console printed time and key, with | between them."""
    form, messages, bad = read((DATA / "canal-json.console-some.txt").read_bytes())
    assert not bad and form.between == b"|" and form.lost == {"topic", "partition", "offset", "null"}
    assert [m["value"] for m in messages] == [v for (p, _), (_, v) in sorted(capture("canal-json").items()) if p == 0]
    assert all(m["timestamp"] is not None for m in messages)


def test_lengths_before_values_are_detected() -> None:
    """`kcat -f %R%s` writes 4 bytes before each value, as sinks of Kafka Connect do."""
    form, messages, bad = read((DATA / "avro.kcat-R.bin").read_bytes())
    assert form.name == "lengths" and not bad
    assert {m["value"] for m in messages} == {value for _, value in capture("avro").values()}


ROWS = [
    {"partition": 0, "offset": 5, "timestamp": "2026-02-02T02:40:00.001Z", "key": None, "V": '{"id":1,"é":"梨"}'},
    {"partition": 1, "offset": 6, "timestamp": "2026-02-02T02:40:01Z", "key": "k", "V": '{"id":2}'},
]


@pytest.mark.parametrize("chunk", [1 << 20, 777])
@pytest.mark.parametrize("topic", ["avro", "canal-json"])
@pytest.mark.parametrize("at", [0, 300])
def test_lengths_that_begin_or_break_in_mid_record_cost_what_was_cut(topic: str, at: int, chunk: int) -> None:
    """A length that others follow is found again; how many bytes were passed is named."""
    values = [value for _, value in capture(topic).values() if value]
    whole = [len(value).to_bytes(4, "big") + value for value in values]
    data, ends = b"".join(whole), list(accumulate(map(len, whole)))
    form, messages, bad = read(data[:at] + data[at + 37 :], chunk=chunk)
    hurt = {i for i, end in enumerate(ends) if end > at and end - len(whole[i]) < at + 37}
    assert form.name == "lengths"
    assert [m["value"] for m in messages] == [v for i, v in enumerate(values) if i not in hurt]
    n = sum(len(whole[i]) for i in hurt) - 37
    assert f"{n:,} bytes are no whole value with its length" in bad[0]["reason"] and len(bad) == 1


def test_lengths_beyond_any_chunk_are_found_again() -> None:
    """What is behind the damage is read in the bounds of memory, however large the file is."""
    value = b'{"n":"%s"}' % (b"x" * 40_000)
    record = len(value).to_bytes(4, "big") + value
    _, messages, bad = read(record[9_000:] + record * 80 + record[:7_000] + record * 80, line=1 << 17)
    assert [m["value"] for m in messages] == [value] * 160 and len(bad) == 2


PRINTED = [
    "ConsumerRecord(topic='t', partition=1, leader_epoch=0, offset=7, timestamp=1770000000000, timestamp_type=0, "
    "key=None, value=b'{\"a\":\"\\xc3\\xa9, value=1)\"}', headers=[('h', b'x')], checksum=None)",
    "2026-02-02 INFO ConsumerRecord(topic = t, partition = 1, leaderEpoch = null, offset = 7, CreateTime = "
    "1770000000000, serialized key size = -1, serialized value size = 5, headers = RecordHeaders(headers = [], "
    'isReadOnly = false), key = null, value = {"a":"é, value=1)"})',
]


@pytest.mark.parametrize("line", PRINTED)
def test_what_print_shows_of_a_record_is_one(line: str) -> None:
    """Of kafka-python's and Java's ConsumerRecord, with what is none named by its line."""
    form, messages, bad = read(f"{line}\n{line}\n{line[:90]}\n{line}\n".encode())
    assert form.name == "printed" and len(messages) == 3 and "line 3: begins with" in bad[0]["reason"]
    first = messages[0]
    assert (first["topic"], first["partition"], first["offset"], first["key"]) == ("t", 1, 7, None)
    assert first["value"] == '{"a":"é, value=1)"}'.encode() and first["timestamp"].timestamp() == 1770000000
    addresses = PRINTED[1].replace('{"a":"é, value=1)"}', "[B@1f2e")
    assert "not the bytes" in read(addresses.encode())[2][0]["reason"]


@pytest.mark.parametrize("key", ["", "null\t", "k\t"])
def test_the_partition_comes_last_before_kafka_2_7(key: str) -> None:
    """Numbers that grow are offsets, which no console printed there."""
    data = "".join(f'{key}{{"id":{n}}}\t{n % 2}\n' for n in range(5)).encode()
    form, messages, bad = read(data)
    assert form.name == "console" and not bad and "offset" in form.lost and ("key" in form.lost) == (not key)
    assert [(m["partition"], m["offset"], m["value"]) for m in messages] == [
        (n % 2, n // 2, b'{"id":%d}' % n) for n in range(5)
    ]
    assert {m["key"] for m in messages} == {b"k" if key == "k\t" else None}
    growing = "".join(f'k\t{{"id":{n}}}\t{n}\n' for n in range(5)).encode()
    assert not any(m["value"] == b'{"id":1}' for m in read(growing)[1])


@pytest.mark.parametrize("before", ["", "CreateTime:1770000000000\tPartition:0\tOffset:5\tk\t"])
def test_the_last_line_of_the_console_is_no_message(before: str) -> None:
    """It counts messages, and neither is one nor belongs to the one before."""
    _, messages, bad = read(f'{before}{{"id":1}}\nProcessed a total of 1 messages\n'.encode())
    assert [m["value"] for m in messages] == [b'{"id":1}'] and not bad


@pytest.mark.parametrize("indent", [None, 2])
@pytest.mark.parametrize("ascii_only", [True, False])
@pytest.mark.parametrize("names", ["value", "content", "message", "Value", "payload"])
def test_exports_of_pages_are_arrays_whose_names_differ(names: str, ascii_only: bool, indent: int | None) -> None:
    """Kafka UI, AKHQ, Kafdrop and Redpanda Console: pretty-printed or not, with escapes or not."""
    rows = [{names if n == "V" else n: v for n, v in row.items()} for row in ROWS]
    form, messages, bad = read(json.dumps(rows, ensure_ascii=ascii_only, indent=indent).encode())
    assert form.name == "objects" and "messages" in form.lost and not bad
    assert [(m["partition"], m["offset"], m["key"]) for m in messages] == [(0, 5, None), (1, 6, b"k")]
    assert [m["value"].decode() for m in messages] == [row["V"] for row in ROWS]
    assert [int(m["timestamp"].timestamp() * 1000) for m in messages] == [1770000000001, 1770000001000]


def test_a_value_may_be_an_object_and_keeps_its_text() -> None:
    """Loops of a client library write the parsed value; digits of numbers stay as they are."""
    text = b'{"value": {"id":1,"x":61.20000076293945,"n":18446744073709551615}, "offset": 3, "partition": "1"}\n'
    form, messages, bad = read(text)
    assert not bad and form.lost == {"topic", "key"}
    assert (messages[0]["value"], messages[0]["partition"]) == (
        b'{"id":1,"x":61.20000076293945,"n":18446744073709551615}', 1,
    )  # fmt: skip


@pytest.mark.parametrize("between", ["|", ":", " ", "---", "=", "\t"])
@pytest.mark.parametrize("null", [b"null", b""])
def test_a_separator_before_json_is_detected(between: str, null: bytes) -> None:
    """Of console consumers, and of ``kcat -K``, which writes nothing for null; keys may be JSON, too."""
    values = [b'{"n":%d}' % n for n in range(5)]
    for key in (null, b'{"id":{"a":1}}'):
        _, messages, bad = read(b"".join(key + between.encode() + value + b"\n" for value in values))
        assert [(m["key"], m["value"]) for m in messages] == [(None if key == null else key, v) for v in values]
        assert not bad


def test_a_number_before_a_value_is_no_key() -> None:
    """It may be a partition or an offset: the format is to be stated."""
    data = b"".join(b'0\t%d\t{"n":1}\n' % n for n in range(5))
    assert form_of(data, options={}, whole=True) is None
    _, messages, _ = read(data, format=r"%p\t%o\t%s\n")
    assert [m["offset"] for m in messages] == [0, 1, 2, 3, 4]


def test_first_lines_that_are_no_records_do_not_hide_the_fields() -> None:
    """A consumer's log before its records, and a record whose begin was cut off where a field begins."""
    data = (DATA / "canal-json.console-all.txt").read_bytes()
    for odd in (b"[2026-11-20 10:00:00,123] WARN [Consumer clientId=console-consumer]\nDEPRECATED\n", b""):
        form, messages, bad = read(odd + data if odd else data[data.index(b"Partition:") :])
        assert {"partition", "offset", "key", "console_time"} <= set(form.parts)
        assert len(messages) + (not odd) == len(capture("canal-json")) and len(bad) == 1


def test_a_console_that_printed_no_values_is_refused() -> None:
    """Keys alone would be deletes."""
    with pytest.raises(SourceError, match="has no values"):
        read(b"CreateTime:1\tk\n", **{"print.key": "true", "print.value": "false"})


def test_open_protocol_of_a_console_is_not_taken_for_lengths() -> None:
    """Its own lengths are 8 bytes, most of them 0; a file larger than its head does not show where they end."""
    name = b'{"ts":1,"scm":"shop","tbl":"%s","t":1}' % (b"t" * 990)
    key = (1).to_bytes(8, "big") + len(name).to_bytes(8, "big") + name
    data = (key + b"\t" + (2).to_bytes(8, "big") + b"{}\n") * 300
    assert len(data) > HEAD_BYTES and len(name) > 1 << 10
    form = form_of(data[:HEAD_BYTES], options={})
    assert form is not None and form.name == "console" and "key" in form.parts


@pytest.mark.parametrize("indent", [None, 2])
@pytest.mark.parametrize("in_array", [True, False])
def test_values_may_be_in_an_array_or_over_several_lines(indent: int | None, in_array: bool) -> None:
    """As ``jq`` writes them; one a line is another form."""
    values = [{"id": 0, "type": "INSERT", "data": [{"a": n}]} for n in range(4)]
    text = json.dumps(values, indent=indent) if in_array else "\n".join(json.dumps(v, indent=indent) for v in values)
    form, messages, bad = read(text.encode())
    assert (form.name, bad, [json.loads(m["value"]) for m in messages]) == ("values", [], values)
    assert ("messages" in form.lost) == in_array


@pytest.mark.parametrize("kind", ["bytes", "string", "struct"])
def test_connects_json_with_schemas_is_unwrapped(kind: str) -> None:
    """Of bytes and texts; what has fields, as debezium's values, is the value itself."""
    fields = ',"fields":[]' if kind == "struct" else ""
    payload = {"bytes": '"eyJuIjoxfQ=="', "string": r'"{\"n\":1}"', "struct": '{"n":1}'}[kind]
    line = f'{{"schema":{{"type":"{kind}","optional":true{fields}}},"payload":{payload}}}'
    form, [message], _ = read(line.encode() + b"\n")
    assert message["value"] == (line.encode() if kind == "struct" else b'{"n":1}'), form


def test_a_capture_line_with_other_types_is_an_object() -> None:
    """Times as ISO 8601 or as confluent-kafka's pair, numbers as text."""
    for time, partition in (('"2026-11-20T10:00:00Z"', "0"), ("[1, 1795211767000]", "0"), ("1", '"0"')):
        line = f'{{"topic":"t","partition":{partition},"offset":7,"timestamp":{time},"key":null,"value":"e30="}}\n'
        form, [message], bad = read(line.encode())
        assert (form.name, message["value"], message["offset"], bad) == ("objects", b"{}", 7, [])
        assert message["timestamp"] is not None


def test_values_in_base64_are_detected() -> None:
    """A line each, in quotes or not, or in an object; JSON is no base64."""
    for text in (b"eyJpZCI6MX0=\neyJpZCI6Mn0=\n", b'"eyJpZCI6MX0="\n"eyJpZCI6Mn0="\n'):
        form, messages, _ = read(text)
        assert form.coding == "base64" and [m["value"] for m in messages] == [b'{"id":1}', b'{"id":2}']
    form, messages, _ = read(b'{"key":"aw==","value":"eyJpZCI6MX0="}\n')
    assert (messages[0]["key"], messages[0]["value"]) == (b"k", b'{"id":1}')


def test_redpanda_console_wraps_keys_and_values() -> None:
    """Its payloads are taken out of what it shows about them; debezium's own payload stays."""
    wrapped = {"partitionID": 2, "offset": 1, "key": {"isPayloadNull": True, "encoding": "null"}, "value": {
        "payload": {"id": 1}, "isPayloadNull": False, "encoding": "json"}}  # fmt: skip
    _, messages, bad = read(json.dumps([wrapped]).encode())
    assert not bad
    assert (messages[0]["partition"], messages[0]["key"], messages[0]["value"]) == (2, None, b'{"id": 1}')
    form, messages, _ = read(b'{"schema":{},"payload":{"op":"c"}}\n')
    assert form.name == "values" and messages[0]["value"] == b'{"schema":{},"payload":{"op":"c"}}'


@pytest.mark.parametrize("written", [lambda c: b64encode(c).decode(), bytes.hex, str])
@pytest.mark.parametrize("stated", [{}, {"format": r"%p|%o|%k|%s\n"}])
@pytest.mark.parametrize("topic", ["canal-json", "open-protocol", "avro"])
def test_fields_of_a_pattern_may_be_coded(topic: str, stated: dict[str, str], written: Callable[[bytes], str]) -> None:
    """What a console's deserializer, or a pipe behind kcat, made of bytes."""
    messages = capture(topic)
    null = "" if stated else "null"
    rows = [[str(p), str(o), *(written(c) if c else null for c in both)] for (p, o), both in messages.items()]
    lines = ["|".join(r) if stated else f"Partition:{r[0]}\tOffset:{r[1]}\t{r[2]}\t{r[3]}" for r in rows]
    _, read_back, bad = read("".join(f"{line}\n" for line in lines).encode(), **stated)
    assert not bad and placed(read_back) == {at: (k or None, v or None) for at, (k, v) in messages.items()}


def test_a_csv_export_is_read_by_its_header() -> None:
    """Quotes may span lines; other columns are left alone."""
    text = 'Offset,Partition,Size,Key,Value\n5,0,9,,"{""id"":1,\n""é"":""梨""}"\n6,1,8,k,"{""id"":2}"\n'
    form, messages, bad = read(text.encode())
    assert form.name == "csv" and not bad
    assert [(m["partition"], m["offset"], m["key"], m["value"].decode()) for m in messages] == [
        (0, 5, None, '{"id":1,\n"é":"梨"}'), (1, 6, b"k", '{"id":2}'),
    ]  # fmt: skip


# Bad input.


@pytest.mark.parametrize("name", ["canal-json.kcat-J.jsonl", "canal-json.console-all.txt"])
def test_a_dump_cut_anywhere_loses_what_was_cut_and_names_it(name: str) -> None:
    """The last record is damaged, or whole; all before it are read."""
    data = (DATA / name).read_bytes()
    form = form_of(data, options={}, whole=True)
    assert form is not None
    every = capture("canal-json")
    whole = data.count(b"\n")
    for at in range(len(data) - 1500, len(data), 41):
        messages, bad = read_as(form, data[:at])
        n = data[:at].count(b"\n")
        good = [m for m in messages if every.get((m["partition"], m["offset"])) == (m["key"], m["value"])]
        assert len(good) >= n and len(messages) + len(bad) == n + (not data[:at].endswith(b"\n")) <= whole


@pytest.mark.parametrize("chunk", [1 << 20, 777])
@pytest.mark.parametrize(("name", "options"), [
    ("canal-json.kcat-J.jsonl", {}), ("open-protocol.kcat-J.jsonl", {}), ("canal-json.console-all.txt", {}),
    ("canal-json.console-values.jsonl", {}), ("canal-json.kcat-f.txt", {"format": r"%t %p %o %T %k %s\n"}),
])  # fmt: skip
def test_zero_bytes_behind_a_dump_are_named_and_cost_nothing(name: str, options: dict[str, str], chunk: int) -> None:
    """A crash leaves them for what was not written; no message is made of them."""
    data = (DATA / name).read_bytes()
    _, whole, none = read(data, chunk=chunk, **options)
    _, messages, bad = read(data + bytes(5_000), chunk=chunk, **options)
    assert messages == whole and not none
    [named] = bad
    assert named["error_class"] == "bad-dump-record:zeroed-end" and "5,000 bytes are zero" in named["reason"]


@pytest.mark.parametrize("chunk", [1 << 20, 777])
@pytest.mark.parametrize(
    "name", ["canal-json.kcat-J.jsonl", "canal-json.console-all.txt", "canal-json.console-values.jsonl"]
)
def test_zero_bytes_in_the_middle_are_named_and_cost_the_lines_that_they_hit(name: str, chunk: int) -> None:
    """Each place is counted; two halves of other messages make none."""
    lines = (DATA / name).read_bytes().splitlines(keepends=True)
    whole = [m["value"] for m in read(b"".join(lines))[1]]
    hit = [*lines[:3], lines[3][:90] + bytes(4_096) + lines[5][120:], *lines[6:9], bytes(512) + lines[9], *lines[10:]]
    _, messages, bad = read(b"".join(hit), chunk=chunk)
    found = [m["value"] for m in messages]
    assert [v for v in found if v in whole] == [v for i, v in enumerate(whole) if i not in (3, 4, 5, 9)]
    assert all(lines[3].find(v) > 0 or lines[3].startswith(v) for v in found if v not in whole)  # a value is any text
    zeroed = [row["reason"] for row in bad if row["error_class"] == "bad-dump-record:zeroed"]
    assert [said.partition("line ")[2][:20] for said in zeroed] == ["4: 4,096 bytes in it", "8: 512 bytes in its "]


@pytest.mark.parametrize(
    "name", ["canal-json.kcat-J.jsonl", "open-protocol.kcat-J.jsonl", "canal-json.console-all.txt"]
)
def test_a_dump_that_follows_a_cut_one_in_the_same_line_is_whole(name: str) -> None:
    """Half a record is named; the first record of the second dump is found behind it."""
    data = (DATA / name).read_bytes()
    form = form_of(data, options={}, whole=True)
    assert form is not None
    every = capture(name.partition(".")[0])
    line = data.index(b"\n") + 1
    for at in range(line + 90, line + 300, 7):
        messages, bad = read_as(form, data[:at] + data)
        assert placed(messages[-28:]) == every
        assert len(bad) == 1 and "line 2" in bad[0]["reason"]


def test_two_pretty_printed_dumps_in_one_file_are_both_read() -> None:
    """The first was cut in the middle of an object."""
    rows = [{"topic": "t", "value": v["V"], "partition": v["partition"], "offset": v["offset"]} for v in ROWS]
    text = "\n".join(json.dumps(row, indent=2) for row in rows) + "\n"
    for at in range(10, len(text) - 5, 3):
        form, messages, bad = read((text[:at] + "\n" + text).encode())
        assert form.name == "objects"
        assert [m["value"].decode() for m in messages[-2:]] == [row["V"] for row in ROWS]
        assert len(messages) + len(bad) >= 3 or text[:at].count("}") < 1 or not text[:at].strip()


def test_a_damaged_line_is_named_with_its_number_and_costs_nothing_else() -> None:
    """A byte is overwritten in the third line."""
    lines = (DATA / "canal-json.kcat-J.jsonl").read_bytes().splitlines(keepends=True)
    lines[2] = lines[2].replace(b'"payload"', b'"payload', 1)
    _, messages, bad = read(b"".join(lines))
    assert len(messages) == 27 and len(bad) == 1
    assert bad[0]["error_class"].startswith("bad-dump-record:") and "a dump, line 3" in bad[0]["reason"]


def test_a_record_without_its_offset_names_the_field() -> None:
    """Others have one; what is there instead is named."""
    _, messages, bad = read(b'{"partition":0,"offset":1,"value":"{}"}\n{"partition":0,"val":"{}"}\n')
    assert len(messages) == 1
    assert "line 2: no `offset`; it has `partition`, `val`" in bad[0]["reason"]


OF_LINES = [*WHOLE[:9], ("canal-json.console-values.jsonl", {}), ("canal-json.console-some.txt", {})]


@pytest.mark.parametrize(("name", "options"), OF_LINES, ids=lambda of: of if isinstance(of, str) else "")
def test_a_dump_without_its_beginning_is_of_the_same_form(name: str, options: dict[str, str]) -> None:
    """As `tail -c` and `split` leave it: what is left of the first line is no message; all others are the same."""
    form, messages, _ = read((DATA / name).read_bytes(), **options)
    first = (DATA / name).read_bytes().index(b"\n")
    for cut in (1, 5, first // 3, first // 2, first - 9):
        found, others, bad = read((DATA / name).read_bytes()[cut:], **options)
        assert (found.name, found.parts, found.lost) == (form.name, form.parts, form.lost)
        assert [m["value"] for m in others][-len(messages) + 1 :] == [m["value"] for m in messages][1:]
        is_named = len(bad) == 1 and "line 1" in bad[0]["reason"]
        assert len(others) + len(bad) == len(messages) and (is_named or "values" in name or cut == 1)


@pytest.mark.parametrize("at", [10, 50, 90, 200])
@pytest.mark.parametrize("topic", ["canal-json", "open-protocol"])
def test_a_cut_line_does_not_change_the_form(topic: str, at: int) -> None:
    """Half a record has fewer fields than the others, and is no evidence of what the console printed."""
    data = (DATA / f"{topic}.console-all.txt").read_bytes()
    lines = data.splitlines(keepends=True)
    lines[4] = lines[4][:at] + b"\n"
    found = form_of(b"".join(lines), options={}, whole=True)
    assert found == form_of(data, options={}, whole=True) and found is not None and "headers" in found.parts


def test_keys_that_hold_the_separator_are_not_guessed() -> None:
    """Where JSON shows the value, the key is what is before it; else the record is refused."""
    head = b"CreateTime:1770000000000\tPartition:0\tOffset:"
    text = head + b'0\tk\t{"id":1}\n' + head + b'1\ta\tb\t{"id":2}\n' + head + b"2\ta\tb\tc\n"
    _, messages, bad = read(text)
    assert [(m["key"], m["value"]) for m in messages] == [(b"k", b'{"id":1}'), (b"a\tb", b'{"id":2}')]
    assert "ambiguous-separator" in bad[0]["error_class"] and "line 3" in bad[0]["reason"]


def test_values_that_hold_line_feeds_are_one_message() -> None:
    """A record continues until the next one begins."""
    head = b"CreateTime:1770000000000\tPartition:0\tOffset:"
    _, messages, bad = read(head + b'0\t{"id":\n1}\n' + head + b"1\t{}\n")
    assert not bad and [m["value"] for m in messages] == [b'{"id":\n1}', b"{}"]


@pytest.mark.parametrize("name", ["canal-json.kcat-J.jsonl", "canal-json.console-all.txt"])
def test_a_record_without_end_is_named_and_not_kept(name: str) -> None:
    """Memory is bounded by the bound `line`; what follows is read."""
    data = (DATA / name).read_bytes()
    lines = data.splitlines(keepends=True)
    form = form_of(data, options={}, whole=True)
    assert form is not None
    long = lines[0].replace(b"CREATE DATABASE", b"C" * 5000)
    messages, bad = read_as(form, long + b"".join(lines[1:]), chunk=512, line=2000)
    assert len(messages) == 27 and len(bad) == 1


@pytest.mark.parametrize(("taken_for", "name"), [("latin-1", "avro"), ("cp1252", "avro"), ("latin-1", "simple-avro")])
def test_binary_messages_that_were_taken_for_text_are_not_decoded(taken_for: str, name: str) -> None:
    """Avro has no lengths that show it: what the whole dump holds does, and no message of Western text is one."""
    data = (DATA / f"{name}.kcat-J.jsonl").read_bytes()
    _, messages, bad = read(data.decode(taken_for, "replace").encode())
    whole = capture(name)
    assert placed(messages).items() <= whole.items() and len(messages) + len(bad) == len(whole)
    assert {row["error_class"] for row in bad} == {"bad-dump-record:re-encoded"}
    western = b"".join(b'{"partition":0,"offset":%d,"value":"\\u0001caf\xc3\xa9"}\n' % n for n in range(9))
    assert not read(western)[2]


@pytest.mark.parametrize("topic", ["canal-json", "simple"])
@pytest.mark.parametrize("taken_for", ["latin-1", "cp1252"])
def test_text_that_was_encoded_twice_is_a_limit_with_how_many_lines(taken_for: str, topic: str) -> None:
    """No message shows it by itself, as a binary column may hold such bytes; a dump that keeps them has others, too."""
    data = (DATA / f"{topic}.kcat-J.jsonl").read_bytes()
    form, *_ = read(data.decode(taken_for, "replace").encode())
    beyond = sum(not line.isascii() for line in data.splitlines())
    assert form.n_twice == beyond > 0
    [said] = form.sentences("t", lost=())
    assert f"{beyond} line{'s' * (beyond > 1)} with characters beyond ASCII, all of them" in said and "iconv" in said
    assert not read(data)[0].n_twice and not read('{"value":"é, 数据"}\n'.encode())[0].n_twice
    replaced = data.decode("ascii", "replace").encode()
    assert not read(replaced)[0].n_twice


@pytest.mark.parametrize("name", ["open-protocol.kcat-J.jsonl", "open-protocol.console-all.txt"])
@pytest.mark.parametrize("taken_for", ["utf-8", "latin-1"])
def test_messages_that_an_editor_has_re_encoded_are_named_one_by_one(taken_for: str, name: str) -> None:
    """Each that lost bytes is in quarantine with this reason, no other is."""
    data = (DATA / name).read_bytes()
    form, messages, bad = read(data.decode(taken_for, "replace").encode())
    assert form.is_utf8
    every = capture("open-protocol")
    assert all((m["key"], m["value"]) == every[m["partition"], m["offset"]] for m in messages)
    assert len(messages) + len(bad) == 28 and len(bad) > 3
    assert {b["error_class"] for b in bad} == {"bad-dump-record:re-encoded"}
    assert not any(b["error_class"] for b in read(data)[2])


def test_avro_that_an_editor_has_re_encoded_is_not_decoded() -> None:
    """Its bytes would be other values."""
    data = (DATA / "avro.kcat-J.jsonl").read_bytes()
    _, messages, bad = read(data.decode("utf-8", "replace").encode())
    every = capture("avro")
    assert bad and all((m["key"], m["value"]) == every[m["partition"], m["offset"]] for m in messages)


# Files.


def test_names_of_kafka_connect_give_topic_partition_and_first_offset(tmp_path: Path) -> None:
    """Of the S3 sink, of HDFS, of Aiven; a date is no place."""
    found = {
        n: named_place(n) for n in ("a/t.x+3+0000000120.json", "t+0+0000000000+0000000004.avro", "my-topic-1-20.gz")
    }
    assert [(p.topic, p.partition, p.offset) for p in found.values() if p] == [
        ("t.x", 3, 120), ("t", 0, 0), ("my-topic", 1, 20),
    ]  # fmt: skip
    assert named_place("orders-2026-11-28.json") is None and named_place("orders.jsonl") is None


def test_what_a_folder_of_kafka_connect_lost_is_named(tmp_path: Path) -> None:
    """Offsets are the ones of names, so they are not lost; keys are."""
    for offset in (0, 2):
        (tmp_path / f"t+1+{offset:010}.json").write_text('{"id":1}\n{"id":2}\n')
    found = dumps_at(str(tmp_path), sorted(tmp_path.iterdir()), "auto", {})
    assert found is not None and found.kind == "connect" and found.lost == {"names", "key", "null"}
    assert [a.offset for _, a in found.of.values()] == [0, 2]


def test_what_is_gzip_is_told_by_its_bytes(tmp_path: Path) -> None:
    """The name may report nothing."""
    file = tmp_path / "dump"
    file.write_bytes(gzip.compress((DATA / "canal-json.kcat-J.jsonl").read_bytes()))
    with file.open("rb") as opened:
        head, whole = head_of(opened)
    assert whole and head.startswith(b'{"topic"')
    assert (found := dumps_at(str(file), [file], "auto", {})) is not None and found.kind == "kcat"


def test_utf_16_is_refused_with_its_cause(tmp_path: Path) -> None:
    """A shell of Windows writes it; no message can be restored from it."""
    file = tmp_path / "dump.json"
    file.write_bytes('{"topic":"t"}'.encode("utf-16"))
    with pytest.raises(SourceError, match="UTF-16"):
        dumps_at(str(file), [file], "auto", {})


def test_a_capture_file_with_a_damaged_value_is_one() -> None:
    """Most of its keys and values are base64."""
    line = b'{"topic":"t","partition":0,"offset":%d,"timestamp":1,"key":null,"value":"%s","headers":[]}\n'
    data = b"".join(line % (n, b"AAAA" if n else b"!!!") for n in range(9))
    for some in (data, data[20:]):
        form = form_of(some, options={}, whole=True)
        assert form is not None and form.name == "capture"


def test_a_capture_file_is_no_dump() -> None:
    """Nor is what `ticdc-lab events` wrote."""
    form = form_of(gzip.decompress((DATA / "canal-json.jsonl.gz").read_bytes()), options={})
    assert form is not None and form.name == "capture"
    assert (
        form_of(b'{"kind":"row","commit_ts":1,"topic":"t","partition":0,"offset":1,"key":null}\n', options={}) is None
    )


def test_parquet_and_avro_need_neither_topic_nor_key(tmp_path: Path) -> None:
    """Text represents bytes, integers for times; a file of Kafka Connect has its place in its name."""
    pq.write_table(
        pa.table({"partition": [1.0, 1.0], "offset": [4, 5], "ts": [1770000000000001, None], "payload": ["{}", "é"]}),
        tmp_path / "a.parquet",
    )
    found = dumps_at("a.parquet", [tmp_path / "a.parquet"], "auto", {})
    assert found is not None and found.kind == "rows" and found.lost == {"topic", "key"}
    messages = of_file(tmp_path / "a.parquet", found)
    assert [(m["topic"], m["partition"], m["offset"], m["value"].decode()) for m in messages] == [
        ("a", 1, 4, "{}"), ("a", 1, 5, "é"),
    ]  # fmt: skip
    assert messages[0]["timestamp"].timestamp() == 1770000000
    file = tmp_path / "t+2+0000000007.avro"
    with file.open("wb") as out:
        fastavro.writer(out, "bytes", [b"\x00\xff", b"{}"])
    found = dumps_at(str(file), [file], "auto", {})
    assert found is not None and found.kind == "connect"
    assert [(m["topic"], m["partition"], m["offset"], m["value"]) for m in of_file(file, found)] == [
        ("t", 2, 7, b"\x00\xff"), ("t", 2, 8, b"{}"),
    ]  # fmt: skip
    columns = {name: [0] for name in ("topic", "partition", "offset", "key", "value")}
    pq.write_table(pa.table(columns), tmp_path / "whole.parquet")
    assert dumps_at("whole.parquet", [tmp_path / "whole.parquet"], "auto", {}) is None


def test_avro_with_every_column_of_a_capture_is_read(tmp_path: Path) -> None:
    """The engine reads Parquet with these columns by itself, and no Avro."""
    types = {"topic": "string", "partition": "int", "offset": "long", "key": ["null", "bytes"], "value": "bytes"}
    fields = [{"name": name, "type": of} for name, of in types.items()]
    row = {"topic": "t", "partition": 2, "offset": 7, "key": None, "value": b"{}"}
    with (file := tmp_path / "whole.avro").open("wb") as out:
        fastavro.writer(out, {"type": "record", "name": "m", "fields": fields}, [row], codec="deflate")
    found = dumps_at(str(file), [file], "auto", {})
    assert found is not None and not found.lost
    assert [{name: m[name] for name in row} for m in of_file(file, found)] == [row]


def test_every_damaged_block_of_avro_is_named_and_those_behind_it_are_read(tmp_path: Path) -> None:
    """A mark ends each block, so the next one is found."""
    rows = [{"partition": 0, "offset": n, "value": f'{{"n":{n}}}'.ljust(90)} for n in range(60)]
    types = {"partition": "int", "offset": "long", "value": "string"}
    schema = {"type": "record", "name": "m", "fields": [{"name": name, "type": of} for name, of in types.items()]}
    with (file := tmp_path / "many.avro").open("wb") as out:
        fastavro.writer(out, schema, rows, codec="deflate", sync_interval=900)
    data = bytearray(file.read_bytes())
    with file.open("rb") as opened:
        blocks = [(opened.tell(), [row["offset"] for row in block]) for block in fastavro.block_reader(opened)]
    ends = [end for end, _ in blocks]
    assert len(blocks) >= 6
    for end in (ends[1], ends[3]):
        data[end - 60 : end - 30] = b"\xff" * 30
    data[ends[4] + 1 : ends[4] + 2] = b"\x7f"  # a length
    file.write_bytes(data)
    found = dumps_at(str(file), [file], "auto", {})
    assert found is not None
    read = [*read_piece(str(file), 0, 0, dumped=found)]
    reasons = [said for _, bad in read if bad is not None for said in bad["reason"].to_pylist()]
    assert [said.partition("many.avro, ")[2][:18] for said in reasons] == [f"block {n} is damaged" for n in (2, 4, 6)]
    offsets = [offset for messages, _ in read for offset in messages["offset"].to_pylist()]
    assert offsets == [offset for n, (_, some) in enumerate(blocks, start=1) if n not in (2, 4, 6) for offset in some]


def of_file(path: Path, found: DumpFiles) -> list[dict[str, Any]]:
    """Messages of a file."""
    form = found.form(str(path.resolve()))
    assert form is not None
    with path.open("rb") as file:
        return [m for batch, _ in dumps.read_file(file, path.name, *form, 1 << 27) for m in batch.to_pylist()]


# What the pages and connectors really write (their sources of November 2026).


@pytest.mark.parametrize("codec", ["snappy", "zstandard", "lz4", "deflate"])
@pytest.mark.parametrize(
    "damage", [lambda b: b"\xff" * len(b), lambda b: b"", lambda b: b[: len(b) // 2], lambda b: b[:1] + b[2:] + b"x"]
)
@pytest.mark.parametrize("damaged", [None, 0, 1])
def test_avro_in_any_codec_is_read(
    tmp_path: Path, codec: str, damage: Callable[[bytes], bytes], damaged: int | None
) -> None:
    """Spark and Hive write snappy by themselves; a damaged block is named, and those before it are read."""
    value = b'{"n":"' + bytes(random.Random(7).choices(b"abcdef", k=90_000)) + b'"}'
    pack = {
        "snappy": lambda b: pa.Codec("snappy").compress(b, asbytes=True) + zlib.crc32(b).to_bytes(4, "big"),
        "zstandard": lambda b: zstandard.ZstdCompressor().compress(b),
        "lz4": lambda b: len(b).to_bytes(4, "little") + pa.Codec("lz4_raw").compress(b, asbytes=True),
        "deflate": lambda b: zlib.compress(b, wbits=-15),
    }[codec]

    def numbered(n: int) -> bytes:
        out, n = b"", n * 2
        while n > 0x7F:
            out, n = out + bytes([n & 0x7F | 0x80]), n >> 7
        return out + bytes([n])

    def text(of: bytes) -> bytes:
        return numbered(len(of)) + of

    head = b"Obj\1" + numbered(2) + text(b"avro.codec") + text(codec.encode()) + text(b"avro.schema") + text(b'"bytes"')
    sync = bytes(range(16))
    blocks = [pack(text(value)), pack(text(b"{}"))]
    if damaged is not None:
        blocks[damaged] = damage(blocks[damaged])
    (file := tmp_path / "t+2+0000000007.avro").write_bytes(
        head + b"\0" + sync + b"".join(numbered(1) + text(block) + sync for block in blocks)
    )
    if damaged == 0:
        with pytest.raises(SourceError, match="is an Avro file, and its first block cannot be read"):
            dumps_at(str(file), [file], "auto", {})
        return
    found = dumps_at(str(file), [file], "auto", {})
    assert found is not None
    read = [*read_piece(str(file), 0, 0, dumped=found)]
    messages = [m["value"] for some, _ in read for m in some.to_pylist()]
    bad = [b["error_class"] for _, refused in read if refused is not None for b in refused.to_pylist()]
    assert messages == [value, b"{}"][: 2 if damaged is None else 1]
    assert bad == ([] if damaged is None else ["bad-dump-record:damaged-file"])


def test_akhq_downloads_decimal_seconds_and_decoded_values() -> None:
    """`TopicController.download`: one line; a value with a schema was decoded, so its bytes are gone."""
    text = (
        b'[{"partition":0,"offset":1,"timestamp":1770000000.001000000,"keySchemaId":null,"valueSchemaId":null,'
        b'"headers":[{"key":"h","value":"1"}],"key":null,"value":"{}"},'
        b'{"partition":0,"offset":2,"timestamp":1770000000.001000000,"keySchemaId":null,"valueSchemaId":"7",'
        b'"headers":[],"key":"k","value":"{\\"id\\":1}"}]'
    )
    form, messages, bad = read(text)
    assert "messages" in form.lost
    [one] = messages
    assert (one["offset"], one["key"], one["value"], one["headers"]) == (1, None, b"{}", [{"key": "h", "value": b"1"}])
    assert one["timestamp"].timestamp() == 1770000000.001
    assert bad[0]["error_class"] == "bad-dump-record:decoded-by-tool" and "`valueSchemaId`" in bad[0]["reason"]


def test_rpk_leaves_null_out_and_replaces_what_is_no_utf_8() -> None:
    """A null value has no field; Go writes U+FFFD for binary; `--meta-only` has no values at all."""
    rows = [
        {"topic": "t", "value": '{"a":"<"}', "timestamp": 1770000000001, "partition": 0, "offset": 5},
        {"topic": "t", "key": "k", "timestamp": 1770000000002, "partition": 0, "offset": 6},
        {"topic": "t", "value": "\0\0\0\0\1\ufffd\ufffd", "timestamp": 1, "partition": 0, "offset": 7},
    ]
    text = "".join(json.dumps(row, indent=2).replace("<", "\\u003c") + "\n" for row in rows)
    form, messages, bad = read(text.encode())
    assert "null" in form.lost
    assert [(m["offset"], m["key"], m["value"]) for m in messages] == [(5, None, b'{"a":"<"}'), (6, b"k", None)]
    assert [b["error_class"] for b in bad] == ["bad-dump-record:re-encoded"]
    _, messages, bad = read(b'{"topic":"t","value_size":9,"timestamp":1,"partition":0,"offset":5}\n')
    assert not messages and "--meta-only" in bad[0]["reason"]


def test_kafka_ui_writes_dates_of_javascript_and_guards_formulas_in_csv() -> None:
    """Every cell is quoted, headers are JSON; the JSON export leaves a null value out."""
    cells = (
        ('{"a":1}', 5, "'-k", 0, '{"h":"1"}', "Mon Feb 02 2026 02:40:00 GMT+0000 (Coordinated Universal Time)"),
        ("", 6, "", 0, "{}", "Mon Feb 02 2026 03:40:01 GMT+0100 (Central European Standard Time)"),
    )
    lines = [",".join('"' + str(cell).replace('"', '""') + '"' for cell in row) for row in cells]
    form, messages, bad = read("\n".join(["Value,Offset,Key,Partition,Headers,Timestamp", *lines]).encode())
    assert not bad and form.lost == {"topic", "null", "messages"}
    assert [(m["offset"], m["key"], m["value"]) for m in messages] == [(5, b"-k", b'{"a":1}'), (6, None, None)]
    assert [m["timestamp"].timestamp() for m in messages] == [1770000000, 1770000001]
    assert messages[0]["headers"] == [{"key": "h", "value": b"1"}]
    rows = [{"Offset": 6, "Partition": 0, "Headers": {}, "Timestamp": "2026-02-02T02:40:00.001Z"}]
    rows.insert(0, rows[0] | {"Value": "{}", "Offset": 5, "Key": "k"})
    form, messages, bad = read(json.dumps(rows, indent="\t").encode())
    assert not bad and [(m["key"], m["value"]) for m in messages] == [(b"k", b"{}"), (None, None)]


def test_redpanda_console_keeps_bytes_only_as_raw_data() -> None:
    """Without it numbers may be rounded, and what was decoded is refused; its CSV destroys every comma."""
    about = {"isPayloadNull": False, "schemaId": 0, "size": 1}
    place = {"partitionID": 0, "timestamp": 1770000000001, "compression": "uncompressed", "headers": []}
    values = [
        about | {"payload": {"id": 1}, "encoding": "json", "rawPayload": "eyJpZCI6MX0="},
        about | {"payload": {"id": 1}, "encoding": "avro", "rawPayload": "AAAAAAEC"},
        about | {"payload": {"id": 1}, "encoding": "avro"},
        about | {"payload": "text", "encoding": "text"},
    ]
    rows = [place | {"offset": i, "value": value} for i, value in enumerate(values)]
    form, messages, bad = read(json.dumps(rows, indent=4).encode())
    assert [m["value"] for m in messages] == [b'{"id":1}', b"\0\0\0\0\1\2", b"text"]
    assert "decoded-by-tool" in bad[0]["error_class"] and "raw data" in bad[0]["reason"]
    assert "numbers" in form.lost
    form, *_ = read(json.dumps(rows[:2]).encode())
    assert "numbers" not in form.lost
    with pytest.raises(SourceError, match="Redpanda Console"):
        read(b"timestamp,partitionID,offset,key,value,keySize,valueSize\n1,0,5,,{id:1;a:2},0,9\n")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (b"aw==,eyJpZCI6MX0=,120,2026-02-02T02:40:00.001Z\n,eyJpZCI6Mn0=,121,\n", [(b"k", 120), (None, 121)]),
        (b"eyJpZCI6MX0=,7\neyJpZCI6Mn0=,9\n", [(None, 7), (None, 9)]),
        (b"9,1770000000001,eyJpZCI6MX0=\n10,1770000000001,eyJpZCI6Mn0=\n", [(None, 9), (None, 10)]),
    ],
)
def test_aivens_fields_without_a_header_are_told_by_what_they_hold(text: bytes, expected: list[object]) -> None:
    """`format.output.fields` in any order; keys and values in base64."""
    form, messages, bad = read(text)
    assert not bad and form.name == "csv" and "messages" not in form.lost
    assert [(m["key"], m["offset"]) for m in messages] == expected
    [said] = [s for s in form.sentences("t", lost=form.lost) if "no row of names" in s]
    assert said.endswith(f"read as {', '.join(map(str, form.parts))}.")
    assert [m["value"] for m in messages] == [b'{"id":1}', b'{"id":2}']


def test_aivens_objects_take_their_partition_from_the_name(tmp_path: Path) -> None:
    """They have offsets, but no partition; `format.output.type=json` is an array, which is no page's."""
    for name in ("t-3-120.json", "t-4-7.json"):
        (tmp_path / name).write_text('[\n{"value":{"id":1},"offset":120},\n{"value":{"id":2},"offset":121}\n]')
    found = dumps_at(str(tmp_path), sorted(tmp_path.iterdir()), "auto", {})
    assert found is not None and found.kind == "connect" and "messages" not in found.lost
    places = [(m["topic"], m["partition"], m["offset"]) for m in of_file(tmp_path / "t-3-120.json", found)]
    assert places == [("t", 3, 120), ("t", 3, 121)]


OF_CONNECT = {
    "json": ('{"id":1}\n{"id":2}\n{"id":3}\n', '"k"\n"abcd"\nnull\n', [b"k", b"abcd", None]),
    "json of bytes": ('"AAAA"\n"AAAB"\nnull\n', '"aw=="\n"YWJjZA=="\nnull\n', [b"k", b"abcd", None]),
    "json with text keys": ('"AAAA"\n"AAAB"\nnull\n', '"k"\n"abcd"\nnull\n', [b"k", b"abcd", None]),
}


@pytest.mark.parametrize("of", OF_CONNECT)
def test_keys_and_headers_of_kafka_connect_belong_to_its_values(tmp_path: Path, of: str) -> None:
    """`store.kafka.keys` and `store.kafka.headers` write them beside the values, a line each."""
    values, keys, expected = OF_CONNECT[of]
    (tmp_path / "t+1+0000000005.json.gz").write_bytes(gzip.compress(values.encode()))
    (tmp_path / "t+1+0000000005.keys.json").write_text(keys)
    headers = '[{"key":"h","value":"1"}]\n{"headers":[{"key":"h","value":"2"}]}\n[]\n'
    (tmp_path / "t+1+0000000005.headers.json").write_text(headers)
    found = dumps_at(str(tmp_path), sorted(tmp_path.iterdir()), "auto", {})
    assert found is not None and found.kind == "connect" and found.lost == {"names", "null"}
    messages = [m for file in sorted(tmp_path.iterdir()) for m in of_file(file, found)]
    assert [(m["offset"], m["key"]) for m in messages] == [(5 + n, key) for n, key in enumerate(expected)]
    assert [m["headers"] for m in messages] == [[{"key": "h", "value": b"1"}], [{"key": "h", "value": b"2"}], []]


def test_keys_in_avro_belong_to_values_in_parquet(tmp_path: Path) -> None:
    """The two formats are set apart in Kafka Connect."""
    with (tmp_path / "t+1+0000000005.keys.avro").open("wb") as file:
        fastavro.writer(file, "bytes", [b"a", b"b"])
    pq.write_table(pa.table({"value": [b"1", b"2"]}), tmp_path / "t+1+0000000005.parquet")
    found = dumps_at(str(tmp_path), sorted(tmp_path.iterdir()), "auto", {})
    assert found is not None
    messages = [m for file in sorted(tmp_path.iterdir()) for m in of_file(file, found)]
    assert found.kind == "connect"
    assert [(m["offset"], m["key"], m["value"]) for m in messages] == [(5, b"a", b"1"), (6, b"b", b"2")]


def test_keys_that_are_more_or_fewer_than_values_are_not_taken(tmp_path: Path) -> None:
    """No one knows which is whose; the file is named, and so is one without values."""
    for name, text in {"5.json": '{"id":1}\n{"id":2}\n', "5.keys.json": '"k"\n', "9.keys.json": '"k"\n'}.items():
        (tmp_path / f"t+1+000000000{name}").write_text(text)
    found = dumps_at(str(tmp_path), sorted(tmp_path.iterdir()), "auto", {})
    assert found is not None and any("without a file of values of the same name" in said for said in found.sentences)
    file = str(tmp_path / "t+1+0000000005.json")
    [(messages, bad)] = read_piece(file, 0, 0, dumped=found)
    assert [m["key"] for m in messages.to_pylist()] == [None, None] and bad is not None
    [said] = bad["reason"].to_pylist()
    assert said.endswith(".keys.json: it has 1 record; expected 2, one for each value; no message has its key")


KEYED = b"".join(b'k%d\t{"id":%d}\n' % (n, n) for n in range(60))
CUT: dict[str, tuple[bytes | str, dict[str, str]]] = {
    "kcat -J": ("canal-json.kcat-J.jsonl", {}),
    "kcat -f": ("canal-json.kcat-f.txt", {"format": r"%t %p %o %T %k %s\n"}),
    "console": ("canal-json.console-all.txt", {}),
    "binary console": ("open-protocol.console-all.txt", {}),
    "console, keys alone": (KEYED, {"print.key": "true"}),
    "values": ("canal-json.console-values.jsonl", {}),
}
"""Dumps that are cut into ranges of bytes: their bytes or file, and options."""


@pytest.mark.parametrize("damage", ["", "half a line", "a line feed", "blank lines"])
@pytest.mark.parametrize("of", CUT)
def test_ranges_of_a_dump_give_what_all_of_it_gives(tmp_path: Path, of: str, damage: str) -> None:
    """Wherever the cuts lie: the same messages at the same places, and damage is named once, with its line."""
    name, options = CUT[of]
    lines = (name if isinstance(name, bytes) else (DATA / name).read_bytes()).splitlines(keepends=True)
    if damage == "half a line":
        lines[3], lines[9] = lines[3][:50] + b"\n", lines[9][:30] + lines[10]
    elif damage == "a line feed":
        lines[5] = lines[5][:-3] + b"\n" * 400 + lines[5][-3:]
    elif damage:
        lines[7:7] = [b"\n"] * 300
    file = tmp_path / "dump.gz"  # bytes show what is packed
    file.write_bytes(b"".join(lines))
    size = file.stat().st_size

    def read_in(step: int, *, are_here: bool) -> tuple[list[Any], list[Any]]:
        found = dumps_at(str(file), [file], "auto", options)
        assert found is not None
        pieces, found = of_dumps({str(file): size}, found, are_here=are_here, range_bytes=step)
        if step < size and (are_here or of not in ("values", "console, keys alone")):
            assert len(pieces) == -(-size // step)
        read = [both for piece in pieces for both in read_piece(*piece, dumped=found)]
        bad = [row for _, rejected in read if rejected is not None for row in rejected.to_pylist()]
        return [m for messages, _ in read for m in messages.to_pylist()], bad

    messages, bad = read_in(size, are_here=True)
    assert messages
    for step in (97, 1_000):
        here, named = read_in(step, are_here=True)
        assert here == messages and (named == bad or (of, damage) == ("kcat -J", "a line feed")), step
        elsewhere, unnumbered = read_in(step, are_here=False)
        assert elsewhere == messages and len(unnumbered) == len(named)


@pytest.mark.parametrize(
    ("data", "message", "hint"),
    [
        (b'shop 0 7 {"n":1}\n' * 3, "begins with 'shop 0 7", "--option format='%t %p %o %s"),
        (
            b'{"value":"AAAAAAAAAAl7InQiOjEuMH0="}\n' * 3,
            "open-protocol's, and none of 3",
            "Dump the topic with its keys",
        ),
        (
            b'orders,0,7,12,k,"{""id"":1,""x"":2}"\n' * 2,
            "begins with 'orders,0,7",
            "(echo topic,partition,offset,timestamp,key,value; cat ",
        ),
        ('{"value":"\\u0000\\u0000\ufffd"}\n'.encode() * 3, "Line 1: an editor or a tool", "ticdc-lab record kafka://"),
    ],
)
def test_a_dump_that_is_refused_names_what_would_be_read(
    spark: SparkSession, tmp_path: Path, data: bytes, message: str, hint: str
) -> None:
    """A format to be stated, keys that were left out, a topic to be dumped as bytes."""
    (file := tmp_path / "dump.txt").write_bytes(data)
    with pytest.raises(TiCDCLabError, match=message) as error:
        load(spark, str(file))
    assert hint in error.value.hint


@pytest.mark.parametrize(("data", "do"), [
    (b'[2023/11/15 06:13:19.912 +08:00] [INFO] [server.go:151] ["CDC server listens"] [addr=a]\n', "--cdc-log"),
    (b"# HELP ticdc_owner_lag lag\n# TYPE ticdc_owner_lag gauge\nticdc_owner_lag{a=\"b\"} 1.2\n", "metrics"),
    (b'ticdc_flush_bucket{a="b",le="0.1"} 5 # {trace_id="c"} 0.05 1700000000.0\n# EOF\n', "metrics"),
    (b'ticdc_owner_lag{a="b", instance="c:1"} =>\n1.2 @[1700000000]\n', "metrics"),
    (b'{__name__="ticdc_owner_lag", a="b"} 1.2 1700000000000\n', "metrics"),
    (b'{"status":"success","data":{"resultType":"matrix","result":[{"metric":{},"values":[[1,"1"]]}]}}', "metrics"),
    (b'{"status":"success","data":{"resultType":"vector","result":[]}}\n', "metrics"),
])  # fmt: skip
def test_what_operators_have_beside_a_topic_is_no_dump_of_it(
    spark: SparkSession, tmp_path: Path, data: bytes, do: str
) -> None:
    """The refusal names what it is."""
    (file := tmp_path / "given.txt").write_bytes(data)
    with pytest.raises(TiCDCLabError) as error:
        ticdc_lab.open(str(file), spark=spark)
    assert do in error.value.hint


@pytest.mark.parametrize("chunk", [1 << 20, 61])
@pytest.mark.parametrize("indent", [None, 2])
def test_records_in_another_object_are_found_behind_damage(indent: int | None, chunk: int) -> None:
    """What is beside them is passed over; a cut or a damaged one is named, and those before and behind it are read."""
    rows = [{"topic": "t", "partition": 0, "offset": n, "key": None, "value": f'{{"n":"{{{n}"}}'} for n in range(6)]
    of = {"eventSource": "aws:kafka", "servers": 'a:1,"{', "records": {"t-0": rows[:3], "t-1": rows[3:]}, "at": {}}
    text = json.dumps(of, indent=indent).encode()
    form, messages, bad = read(text, chunk=chunk)
    assert (form.name, form.depth, bad) == ("objects", 2, [])
    assert [m["value"].decode() for m in messages] == [row["value"] for row in rows]
    third = text.index(b'"offset": 2')
    for damaged in (text[:third] + text[third + 9 :], text[: third + 1] + text[third + 2 :]):
        messages, bad = read_as(form, damaged, chunk=chunk)
        assert [m["offset"] for m in messages if m["offset"] != 2][-3:] == [3, 4, 5] and bad
        assert {m["value"].decode() for m in messages} <= {row["value"] for row in rows}
    for end in range(third, len(text) - 10, 7):
        messages, bad = read_as(form, text[:end], chunk=chunk)
        assert [m["offset"] for m in messages] == list(range(len(messages))) and len(messages) >= 2
    beside = b'{"partition":0,"offset":5,"message":{"key":"k","value":{"id":1}}}\n'
    assert read(beside)[1][0]["offset"] == 5


@pytest.mark.parametrize(
    ("data", "resembles"),
    [
        ('["t",0,7,"k","{\\"id\\":1}"]\n' * 3, "JSON arrays"),
        ("- topic: t\n  partition: 0\n  offset: 7\n  key: k\n  value: '{\"id\":1}'\n" * 3, "YAML"),
        ("topic: t\npartition: 0\noffset: 7\nkey: k\nvalue: !!binary eyJpZCI6MX0=\n---\n" * 3, "YAML"),
        ("[{'topic': 't', 'partition': 0, 'offset': 7, 'key': b'k', 'value': b'{\"id\":1}'}]\n", "a list that Python"),
        (
            "[ConsumerRecord(topic='t', partition=0, offset=7, timestamp=1, key=b'k', value=b'{\"id\":1}')]\n",
            "a list that Python",
        ),
        (
            b64encode(b'{"topic":"t","partition":0,"offset":7,"key":"k","value":"{\\"id\\":1}"}\n' * 3).decode(),
            "base64",
        ),
        (json.dumps([["t", 0, 7, "k", '{"id":1}']] * 2), "JSON arrays"),
        ('{"a":{"b":[{"topic":"t","partition":0,"offset":7,"key":"k","value":{"id":1}}]}}\n' * 2, "inside of other"),
        ('{"topic":["t"],"partition":[0],"offset":[7],"key":["k"],"value":["{\\"id\\":1}"]}\n', "columns"),
        (
            '{"topic":{"0":"t"},"partition":{"0":0},"offset":{"0":7},"key":{"0":"k"},"value":{"0":{"id":1}}}\n',
            "columns",
        ),
        (
            '| topic | partition | offset | key | value |\n|---|---|---|---|---|\n| t | 0 | 7 | k | {"id":1} |\n',
            "table",
        ),
    ],
)
def test_the_command_of_a_refusal_makes_a_dump_that_is_read(data: str, resembles: str, tmp_path: Path) -> None:
    """It is run here as it is printed."""
    (file := tmp_path / "my dump.gz").write_bytes(
        gzip.compress(data.encode()) if "YAML" in resembles else data.encode()
    )
    hint = converted_hint(str(file))
    command, made = hint.partition(": ")[2].split("; ticdc-lab survey ")
    assert resembles in hint
    if "jq" in command and shutil.which("jq") is None:
        pytest.skip("no jq here")
    subprocess.run(["bash", "-c", command], cwd=tmp_path, check=True)
    _, messages, bad = read((tmp_path / made).read_bytes())
    assert {(m["topic"], m["partition"], m["offset"], m["key"], m["value"]) for m in messages} == {
        ("t", 0, 7, b"k", b'{"id":1}')
    } and not bad  # fmt: skip


@pytest.mark.parametrize(
    ("data", "resembles"),
    [
        ("Seen in the topic:\n\n```json\n{value}\n```\nTiDB v8.5.1\n", "JSON between other lines"),
        ("Key:         k\nOffset:      3\n{line}\nKey:         k\nOffset:      4\n{line}\n", "lines of JSON between"),
        ("{value}\n".replace("{value}", "{comment}"), "Line 4 has a comment"),
        ("{wrapped}\n", "cut at 50 characters"),
    ],
)
def test_the_command_of_a_refusal_takes_values_out_of_what_people_copied(
    data: str, resembles: str, tmp_path: Path
) -> None:
    """Of an issue, a terminal of some width, or documentation with comments."""
    value = {"id": 0, "database": "shop", "type": "DELETE", "data": [{"id": "1", "name": "pear " * 12}], "table": "t"}
    pretty, line = json.dumps(value, indent=4), json.dumps(value)
    text = data.format(
        value=pretty, line=line, comment=pretty.replace('"DELETE",', '"DELETE",  // INSERT, UPDATE, DELETE'),
        wrapped="\n".join(one[k : k + 50] for one in (line, line) for k in range(0, len(one), 50)),
    )  # fmt: skip
    (file := tmp_path / "copied.txt").write_text(text)
    hint = converted_hint(str(file))
    assert resembles in hint
    command, made = hint.partition(": ")[2].split("; ticdc-lab survey ")
    subprocess.run(["bash", "-c", command], cwd=tmp_path, check=True)
    _, messages, bad = read((tmp_path / made).read_bytes())
    assert not bad and messages and all(json.loads(m["value"]) == value for m in messages)


@pytest.mark.parametrize(
    ("data", "resembles"),
    [
        ('"I","employee","hr",433305438660591626,101,"Smith"\n' * 2, "Give the folder that has `metadata`"),
        ("2026-02-02 10:40:01  46 cf1/shop/t/463/2026-02-02/CDC000001.csv\n", "It lists files of TiCDC's storage sink"),
        ('{"id":1,"_tidb_op":"c","_tidb_commit_ts":463994880002621440}\n', "decoded with the schema registry"),
        ('{"before":null,"after":{"id":1},"source":{"connector":"mysql"},"op":"c"}\n', "connector for mysql wrote it"),
        ('{"u":{"id":{"t":3,"h":true,"v":1}}}\n', "values of open-protocol without their keys"),
        ('{\n    "id": 0,\n    ...\n    "type": "UPDATE"\n}\n', "Line 3 is `...`"),
    ],
)
def test_what_cannot_be_read_says_what_it_is(data: str, resembles: str) -> None:
    """A part of a sink, a listing, rows decoded by another program, and JSON that was shortened."""
    assert resembles in converted_hint("f", data.encode())


@pytest.mark.parametrize("line", [b"a\rb,c", b'a,"' + b"x" * 140_000 + b'"'], ids=["return", "long"])
def test_a_line_that_is_no_csv_resembles_none(line: bytes) -> None:
    """Python's csv module refuses both, which reached the user without a file's name."""
    csv.field_size_limit(1 << 17)
    assert converted_hint("f", line + b"\nd\n") == ""


def test_columns_without_names_are_guessed_as_the_log_says() -> None:
    """Of CSV and of tuples: two numbers are partition and offset, a large one is a time, a word alone is the topic."""
    rows = [("orders", n % 2, n, 1770000000000 + n, None, f'{{"id":{n}}}') for n in range(5)]
    texts = [
        "".join(f"{row}\n" for row in rows),
        "".join(f'{",".join(map(str, r[:4]))},,"{r[5].replace(chr(34), chr(34) * 2)}"\n' for r in rows),
    ]
    for text in texts:
        form, messages, bad = read(text.encode())
        assert not bad and form.parts == ("topic", "partition", "offset", "timestamp", "key", "value")
        assert [(m["topic"], m["partition"], m["offset"], m["key"]) for m in messages] == [(*r[:3], None) for r in rows]
        assert (
            "its columns are read as topic, partition, offset, timestamp, key, value."
            in form.sentences("t", lost=())[0]
        )
    assert form_of(b'7,8,9,"{""id"":1}"\n' * 3, options={}, whole=True) is None
    assert form_of(b'"I","t","shop",4,1,"{""id"":1}"\n' * 3, options={}, whole=True) is None


@pytest.mark.parametrize(
    ("line", "resembles"),
    [
        ("0\t{n}\t{value}\n", r"--option format='%p\t%o\t%s\n'"),
        ("orders 0 {n} {value}\n", r"--option format='%t %p %o %s\n'"),
        ("Message(topic=orders, partition=0, offset={n}, value={value})\n", r"partition=%p, offset=%o, value=%s)\n'"),
        ("2026-01-01T00:00:0{n}Z INFO got {value}\n", "Take it out: grep -o '{.*}'"),
        ("100% 0 {n} {value}\n", r"--option format='100%% %p %o %s\n'"),
        ("170000000000{n}#0#{n}##{value}\n", r"--option format='%T#%p#%o##%s\n'"),
        ("Partition: 0 Offset: {n} Key:  Value: {value} Headers: \n", r"Key: %k Value: %s Headers: %h\n'"),
        ("cdc-1  | {value}\n", "It resembles the log of a container: awk "),
        ("<cimpl.Message object at 0x7f0000{n}>\n", "Print topic(), partition(), offset()"),
        ("2026-02-02 10:40:0{n}.123  INFO 1 --- [ntainer#0-0-C-1] c.e.Demo : got {value}\n", "out: grep -o '{.*}'"),
        ("[2026-02-02 10:40:0{n}.00{n}] {value}\n", "Take it out: grep -o '{.*}'"),
    ],
)
def test_lines_with_json_in_them_are_refused_with_a_format_that_reads_them(line: str, resembles: str) -> None:
    """Numbers and labels before the values show it; where they do not, the values are taken out."""
    data = "".join(line.format(n=n, value=f'{{"id":{n},"data":{{"a":1}}}}') for n in range(4)).encode()
    hint = converted_hint("dump.txt", data)
    assert form_of(data, options={}, whole=True) is None and resembles in hint
    if stated := re.search(r"--option format='(.*)'", hint):
        _, messages, bad = read(data, format=stated[1])
        assert not bad and [(m["partition"], m["offset"]) for m in messages] == [(0, n) for n in range(4)]
        assert [json.loads(m["value"])["id"] for m in messages] == [0, 1, 2, 3]


@pytest.mark.parametrize("indent", [None, 1])
@pytest.mark.parametrize("chunk", [1 << 20, 1000])
def test_wrapped_records_and_arrays_of_texts_larger_than_what_is_looked_at(chunk: int, indent: int | None) -> None:
    """Their form is detected from a part of one object; a text that lies in several chunks is whole."""
    values = [json.dumps({"id": n, "x": ['"', "{"] * 90 + ["é"]}, ensure_ascii=False) for n in range(900)]
    rows = [{"partition": 0, "offset": n, "headers": [], "value": value} for n, value in enumerate(values)]
    wrapped = json.dumps({"records": rows}, ensure_ascii=False, indent=indent).encode()
    texts = json.dumps([*values[:3], None, *values[3:]], indent=indent).encode()
    assert len(wrapped) > 2 * HEAD_BYTES < len(texts)
    _, messages, bad = read(wrapped, chunk=chunk)
    assert not bad and [m["value"].decode() for m in messages] == values
    _, messages, bad = read(texts, chunk=chunk)
    assert not bad and [m["value"].decode() for m in messages if m["value"]] == values and messages[3]["value"] is None
    at = texts.index(values[5].replace('"', '\\"').encode()[:12]) + 3
    form = form_of(texts[:HEAD_BYTES], options={})
    assert form is not None
    messages, bad = read_as(form, texts[:at] + b'"' + texts[at:], chunk=chunk)
    found = [m["value"].decode() for m in messages if m["value"]]
    assert bad and found[-800:] == values[-800:] and len({*found} - {*values}) <= 1


def test_bytes_that_resemble_nothing_have_no_command() -> None:
    """No matter what they are: no hint fails on them."""
    for data in (b"\0" * 99, b'\xff\xfe{"', b"," * 200_000, b"{" * 5_000, b"[" * 50_000, b"[[", b'{"a":' * 900, b"|\n"):
        assert converted_hint("dump", data) == ""


def test_a_smaller_limit_that_another_reader_set_makes_no_other_form() -> None:
    """The limit of Python's csv is the process's: while a file with small lines was read, another one was no CSV."""
    rows = "\n".join(f'0,{n},"{{""id"":0,""database"":""s"",""type"":""TIDB_WATERMARK"",""n"":{n}}}"' for n in range(9))
    before = csv.field_size_limit(16)
    try:
        found = form_of(f"{rows}\n".encode(), options={}, whole=True)
        assert found is not None and found.records == "csv" and csv.field_size_limit() >= len(rows)
    finally:
        csv.field_size_limit(before)


STATUS = b"% Reached end of topic t [0] at offset 14\n% Reached end of topic t [1] at offset 14: exiting\n"
OF_LIBRDKAFKA = b"%3|1700000000.123|FAIL|rdkafka#consumer-1| [thrd:a:9092/1]: a:9092/1: Connect failed (after 1ms)\n"
OF_LOG4J = b"[2026-11-30 10:12:11,123] WARN [Consumer id=c] disconnected (org.apache.kafka.clients.NetworkClient)\n"


@pytest.mark.parametrize("status", [STATUS, OF_LIBRDKAFKA + STATUS, OF_LOG4J])
@pytest.mark.parametrize("name", ["canal-json.kcat-J.jsonl", "canal-json.console-all.txt", "canal-json.kcat-f.txt"])
def test_what_a_tool_wrote_to_stderr_is_no_message_in_mid_record_either(name: str, status: bytes) -> None:
    """A shell writes both into one file, and a tool its messages in blocks: ``kcat > dump 2>&1``."""
    options = {"format": r"%t %p %o %T %k %s\n"} if name.endswith("f.txt") else {}
    data = (DATA / name).read_bytes()
    _, plain, _ = read(data, **options)
    lines = data.splitlines(keepends=True)
    at = sum(map(len, lines[:5])) + len(lines[5]) // 2
    mixed = b"".join([status, data[:at], status, data[at:], status])
    for chunk in (1 << 20, 777, 50):
        _, messages, bad = read(mixed, chunk=chunk, **options)
        assert not bad and messages == plain


@pytest.mark.parametrize("name", ["canal-json.kcat-J.jsonl", "canal-json.console-values.jsonl"])
def test_ranges_that_meet_in_what_a_tool_wrote_to_stderr_give_what_all_gives(name: str) -> None:
    """A range ends or begins anywhere, and the line numbers of values are offsets."""
    data = (DATA / name).read_bytes()
    at = len(data) // 2
    mixed = data[:at] + STATUS + data[at:]
    form = form_of(mixed, options={}, whole=True)
    assert form is not None and form.is_cut

    def parts(span: tuple[int, int] | None, lines: tuple[tuple[int, int], ...] = ()) -> list[dict[str, Any]]:
        found = dumps.read_file(BytesIO(mixed), "a dump", form, Assumed("t", lines=lines), 1 << 27, span)
        return [message for messages, bad in found for message in messages.to_pylist() if bad is None]

    for cut in range(at - 3, at + len(STATUS) + 3, 2):
        lines = ((0, 1), *dumps.lines_begun(BytesIO(mixed), [cut], form))
        assert parts((0, cut), lines) + parts((cut, len(mixed)), lines) == parts(None)


TERMINAL = (
    b"SLF4J: Class path contains multiple SLF4J bindings.\n",
    b"OpenJDK 64-Bit Server VM warning: If the number of processors is expected to increase\n",
    b"[tidb@n1 bin]$ ./kafka-console-consumer.sh --topic t --from-beginning\n^CProcessed a total of 7 messages\n",
    b"root@kafka-0:/# kcat -C -t t\nbash-5.1$ \n$ bin/kafka-console-consumer.sh --topic t\n",
    b'Starting Kafka Consumer. Use Ctrl-C to exit.\n% Headers: [a="b"]\n^CStopping Consumer.\n',
    b"10:29:30,123 INFO  Maxwell - Starting Maxwell.\nUsing kafka version: 1.0.0\nmysql> insert into t.e set m = 4;\n",
    b"2026-02-02T10:40:00,000+0800 [pulsar-client-io-1-1] INFO  o.a.p.c.i.ConsumerImpl - [t] Subscribed\n",
)


@pytest.mark.parametrize("name", ["kcat-J.jsonl", "console-all.txt", "console-values.jsonl"])
def test_lines_of_a_terminal_between_records_are_no_messages(name: str) -> None:
    """They do not count where the number of a line is an offset, also where ranges of a file meet in them."""
    data = (DATA / f"canal-json.{name}").read_bytes()
    _, plain, _ = read(data)
    at = data.index(b"\n", len(data) // 2) + 1
    for noise in (*TERMINAL, b"".join(TERMINAL)):
        mixed = noise + data[:at] + noise + data[at:] + noise
        for chunk in (1 << 20, 777, 50):
            _, messages, bad = read(mixed, chunk=chunk)
            assert not bad and messages == plain
        assert read(mixed.removesuffix(b"\n"))[1:] == (plain, [])

    form = form_of(mixed, options={}, whole=True)
    assert form is not None and form.is_cut
    for cut in range(len(noise) + at - 3, 2 * len(noise) + at + 3, 7):
        lines = ((0, 1), *dumps.lines_begun(BytesIO(mixed), [cut], form))
        spans = ((0, cut), (cut, len(mixed)))
        found = [dumps.read_file(BytesIO(mixed), "a dump", form, Assumed("t", lines=lines), 1 << 27, s) for s in spans]
        both = [m for some in found for messages, bad in some for m in messages.to_pylist() if bad is None]
        assert [m["value"] for m in both] == [m["value"] for m in plain]
        assert [m["offset"] for m in both] == [m["offset"] for m in plain], cut


def test_a_text_in_a_binary_value_keeps_its_lines_of_a_terminal() -> None:
    """Avro has a text as it is: no line of it is between records."""
    texts = [b"a\n" + noise + b"b" for noise in TERMINAL]
    values = [b"\0\0\0\0\7\xff\x81" + bytes([len(text) % 128]) + text for text in texts]
    data = b"".join(b"t 0 %d k %s\n" % (n, value) for n, value in enumerate(values))
    for chunk in (1 << 20, 50):
        form, messages, bad = read(data, chunk=chunk, format=r"%t %p %o %k %s\n")
        assert not form.is_text and not bad and [m["value"] for m in messages] == values


def test_lengths_prove_that_lines_of_a_terminal_are_none_of_a_value() -> None:
    """As stderr's in open-protocol, whose lengths are binary."""
    data = (DATA / "open-protocol.console-all.txt").read_bytes()
    form, plain, none = read(data)
    at = data.index(b"\nCreateTime:", len(data) // 2) + 1
    for noise in (*TERMINAL, b"".join(TERMINAL)):
        _, messages, bad = read(noise + data[:at] + noise + data[at:] + noise)
        assert not form.is_text and not (bad or none) and messages == plain


@pytest.mark.parametrize(
    ("line", "of"),
    [
        ("----- got message -----\nkey:[k{n}], properties:[a=b], content:{value}\n", ("k{n}", None, None)),
        (
            "----- got message -----\npublishTime:[17700000000{n}], eventTime:[0], key:[k{n}], properties:[], "
            "content:{value}\n",
            ("k{n}", None, None),
        ),
        ("t:0:1{n}: key=b'k{n}' value=b'{value}'\n", ("k{n}", 0, 10)),
        ("Timestamp:177000000000{n} Partition:3 Offset:1{n}\t{value}\n", (None, 3, 10)),
    ],
    ids=["pulsar, old", "pulsar", "kafka-python", "confluent"],
)
def test_lines_that_pages_of_other_clients_show_are_read(
    line: str, of: tuple[str | None, int | None, int | None]
) -> None:
    """TiCDC writes to Pulsar, too, and kafka-python's README has a loop that people copy."""
    data = "".join(line.format(n=n, value=f'{{"id":{n}}}') for n in range(4)).encode()
    _, messages, bad = read(data)
    assert not bad and [json.loads(m["value"])["id"] for m in messages] == [0, 1, 2, 3]
    key, partition, offset = of
    assert [m["key"] for m in messages] == [None if key is None else key.format(n=n).encode() for n in range(4)]
    if offset is not None:
        assert [(m["partition"], m["offset"]) for m in messages] == [(partition, offset + n) for n in range(4)]


def test_data_that_a_row_change_of_canal_begins_with_wraps_no_messages() -> None:
    """Canal itself writes `data` first, with a row change for each row that a statement changed."""
    rows = [{"id": "1", "name": "a"}, {"id": "2", "name": "b"}]
    value = {"data": rows, "database": "shop", "es": 1, "id": 7, "isDdl": False, "table": "t", "type": "DELETE"}
    for indent in (None, 4):
        form, messages, bad = read("\n".join(json.dumps(value, indent=indent) for _ in range(2)).encode())
        assert (form.depth, bad) == (0, []) and [json.loads(m["value"]) for m in messages] == [value] * 2


USUAL = b"\nKey (%K bytes): %k\t\nValue (%S bytes): %s\nTimestamp: 17\tPartition: %p\tOffset: %o\n--\n"


def test_the_format_of_kcats_readme_is_detected_and_keeps_bytes() -> None:
    """It names lengths, which also prove where stderr lies in a record."""
    text = b""
    for (partition, offset), (key, value) in capture("open-protocol").items():
        fields = {
            b"K": len(key or b""),
            b"S": len(value or b""),
            b"T": 1_700_000_000_000,
            b"p": partition,
            b"o": offset,
        }
        one = USUAL.replace(rb"\t", b"\t")
        for sign, number in fields.items():
            one = one.replace(b"%" + sign, str(number).encode())
        text += one.replace(b"%k", key or b"").replace(b"%s", value or b"")
    at = text.index(b"Value (") + 3
    for dumped in (text, STATUS + text[:at] + STATUS + text[at:] + STATUS):
        form, messages, bad = read(dumped)
        assert not bad and form.is_measured and placed(messages) == capture("open-protocol")


@pytest.mark.parametrize(
    "form", [r"%s\n---\n", "%s;", r"%s;\n", r"%s\n==========\n", r"\x1e%s\n", r"%k: %s\n", r"%k | %s\n", r"NULL:%s\n"]
)
def test_what_kcat_was_told_to_write_between_messages_is_none(form: str) -> None:
    """Options -D, -K and -Z."""
    values = [value for _, value in capture("canal-json").values()]
    written = [form.encode().replace(rb"\n", b"\n").replace(rb"\x1e", b"\x1e").replace(b"%k", b"") for _ in values]
    _, messages, bad = read(b"".join(w.replace(b"%s", v or b"") for w, v in zip(written, values, strict=True)))
    assert not bad and [m["value"] for m in messages] == values


def test_keys_and_values_of_debezium_in_lines_of_their_own() -> None:
    """As -f may write them."""
    pairs = [(key, value) for key, value in capture("debezium").values() if key and value]
    data = b"".join(b"%b\n%b\n" % pair for pair in pairs)
    for options in ({}, {"format": r"%k\n%s\n"}):
        _, messages, bad = read(data, **options)
        assert not bad and [(m["key"], m["value"]) for m in messages] == pairs


def test_a_length_that_has_the_separator_as_a_byte_ends_no_key() -> None:
    """265 bytes are 0x109, and 9 is a tab."""
    key = b"\0\0\0\0\0\0\0\1" + (12).to_bytes(8, "big") + b'{"ts":1,"t":'[:12]
    value = (265).to_bytes(8, "big") + b'{"u":"' + b"x" * 257 + b'"}'
    _, messages, bad = read(b"CreateTime:1\tPartition:0\tOffset:7\t" + key + b"\t" + value + b"\n")
    assert not bad and [(m["key"], m["value"]) for m in messages] == [(key, value)]


def test_kafka_ui_puts_blanks_between_bytes_in_hex() -> None:
    """Its serde's default."""
    rows = [
        {"partition": p, "offset": o, "key": key and key.hex(" ").upper(), "value": value and value.hex(" ").upper()}
        for (p, o), (key, value) in capture("avro").items()
    ]
    form, messages, bad = read(json.dumps(rows).encode())
    assert not bad and form.coding == "hex" and placed(messages) == capture("avro")


@pytest.mark.parametrize("header", ["topic,partition,offset,value\n", ""])
def test_sparks_csv_has_backslashes_before_quotes(header: str) -> None:
    """And no second quote."""
    texts = {place: (value or b"").decode() for place, (_, value) in capture("canal-json").items()}
    written = {place: text.replace("\\", "\\\\").replace('"', '\\"') for place, text in texts.items()}
    data = header + "".join(f'canal,{p},{o},"{text}"\n' for (p, o), text in written.items())
    _, messages, bad = read(data.encode())
    assert not bad and {(m["partition"], m["offset"]): m["value"].decode() for m in messages} == texts


@pytest.mark.parametrize(
    ("lines", "tool"),
    [
        (
            "2026-11-30T10:12:11.123Z stdout P CreateTime:1\tPartition:0\n"
            "2026-11-30T10:12:11.124Z stdout F \tOffset:1\t{}\n",
            "awk",
        ),
        ("[pod/kafka-0/kafka] 2026-11-30T10:12:11.123Z CreateTime:1\tPartition:0\tOffset:1\t{}\n", "awk"),
        ('{"log":"CreateTime:1\\tPartition:0\\tOffset:1\\t{}\\n","stream":"stdout","time":"2026"}\n', "jq"),
    ],
)  # fmt: skip
def test_the_log_of_a_container_is_refused_with_what_makes_a_dump_of_it(tmp_path: Path, lines: str, tool: str) -> None:
    """Its times would hide partitions and offsets."""
    if shutil.which(tool) is None:
        pytest.skip(f"no {tool}")
    (file := tmp_path / "c.log").write_text(lines, encoding="utf-8")
    assert form_of(lines.encode(), options={}, whole=True) in (None, form_of(b'{"a":1}\n', options={}, whole=True))
    command = converted_hint(str(file)).partition(": ")[2].partition(" > dump; ")[0]
    shown = subprocess.run(command, shell=True, capture_output=True, check=True).stdout
    assert shown == b"CreateTime:1\tPartition:0\tOffset:1\t{}\n"


def test_a_packed_file_is_named_with_what_unpacks_it() -> None:
    """Gzip alone is unpacked here."""
    assert "zstd -dc d.zst > dump" in converted_hint("d.zst", b"\x28\xb5\x2f\xfd\x04")
    assert "lz4 -dc d.lz4 > dump" in converted_hint("d.lz4", b"\x04\x22\x4d\x18d")


def test_a_value_beside_its_place_is_in_the_command() -> None:
    """As Logstash writes it."""
    line = {"message": '{"id":1}', "@metadata": {"kafka": {"topic": "t", "partition": 0, "offset": 7, "timestamp": 1}}}
    hint = converted_hint("l", json.dumps(line).encode())
    assert """taken '."@metadata"."kafka"' 'value=."message"' < l""" in hint

"""Each form of dumps with each protocol gives the events of the capture, or names what is lost; none is invented."""

from __future__ import annotations

import csv
import json
from base64 import b64decode, b64encode, encodebytes, urlsafe_b64encode
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from conftest import golden
from test_dumps import capture

from ticdc_lab.codecs import Known, decoder
from ticdc_lab.codecs.kernel.arrow import arrow_schema
from ticdc_lab.codecs.schema_registry import read_schemas
from ticdc_lab.codecs.simple_tables import finder, tables_of
from ticdc_lab.events.schema import EVENTS, MESSAGES
from ticdc_lab.sources.dump_files import dumps_at
from ticdc_lab.sources.pieces import of_dumps, read_piece

Messages = Mapping[tuple[int, int], tuple[bytes | None, bytes | None]]
Writer = Callable[[Messages, Path], object]
"""Writes messages into a folder, as a tool would; gives the options with which they are read, if any."""

T = "t"


def _text(content: bytes | None) -> str | None:
    """What a tool in Java or Go makes of bytes that are no UTF-8."""
    return None if content is None else content.decode("utf-8", "replace")


def _coded(content: bytes | None) -> str | None:
    return None if content is None else b64encode(content).decode()


def kcat_j(messages: Messages, folder: Path) -> None:
    """As bytes: only what JSON must is escaped."""

    def quoted(content: bytes | None) -> bytes:
        return (
            b"null" if content is None else json.dumps(content.decode("latin-1"), ensure_ascii=False).encode("latin-1")
        )

    with (folder / "dump.jsonl").open("wb") as file:
        for (partition, offset), (key, value) in messages.items():
            head = b'{"topic":"t","partition":%d,"offset":%d,"tstype":"create","ts":1,"broker":1,' % (partition, offset)
            file.write(head + b'"key":%s,"payload":%s}\n' % (quoted(key), quoted(value)))


def kcat_lengths(messages: Messages, folder: Path) -> dict[str, str]:
    """A format with the lengths of key and value."""
    with (folder / "dump.txt").open("wb") as file:
        for (partition, offset), (key, value) in messages.items():
            n_key, n_value = (-1 if c is None else len(c) for c in (key, value))
            file.write(b"%d %d %d %d %s%s\n" % (partition, offset, n_key, n_value, key or b"", value or b""))
    return {"format": r"%p %o %K %S %k%s\n"}


def kcat_format(messages: Messages, folder: Path) -> dict[str, str]:
    """A format without lengths: a value may hold line feeds, not what looks like the fields before it."""
    with (folder / "dump.txt").open("wb") as file:
        for (partition, offset), (key, value) in messages.items():
            file.write(b"%s %d %d %s %s\n" % (T.encode(), partition, offset, key or b"", value or b""))
    return {"format": r"%t %p %o %k %s\n"}


def console(messages: Messages, folder: Path) -> None:
    """With time, partition, offset and key."""
    with (folder / "dump.txt").open("wb") as file:
        for (partition, offset), (key, value) in messages.items():
            k, v = (b"null" if c is None else c for c in (key, value))
            file.write(b"CreateTime:1\tPartition:%d\tOffset:%d\t%s\t%s\n" % (partition, offset, k, v))


def values(messages: Messages, folder: Path) -> None:
    """A value a line."""
    (folder / "dump.txt").write_bytes(b"".join((v or b"null") + b"\n" for _, v in messages.values()))


def coded_values(messages: Messages, folder: Path) -> None:
    """A value a line, in base64."""
    lines = ["null" if v is None else b64encode(v).decode() for _, v in messages.values()]
    (folder / "dump.txt").write_text("\n".join(lines) + "\n")


def _records(written: Callable[[bytes | None], object], *, in_array: bool = False) -> Writer:
    """Objects with all that a client library gives, their bytes as an application has ``written`` them."""

    def write(messages: Messages, folder: Path) -> None:
        rows = [
            {"topic": T, "partition": p, "offset": o, "timestamp": 1, "key": written(k), "value": written(v)}
            for (p, o), (k, v) in messages.items()
        ]
        text = json.dumps(rows) if in_array else "".join(json.dumps(row) + "\n" for row in rows)
        (folder / "dump.json").write_text(text)

    return write


def rpk(messages: Messages, folder: Path) -> None:
    """Text; a key that is null or empty is left out."""
    rows = [
        {"topic": T} | ({"key": _text(k)} if k else {}) | {"value": _text(v), "partition": p, "offset": o}
        for (p, o), (k, v) in messages.items()
    ]  # fmt: skip
    (folder / "dump.json").write_text("".join(json.dumps(row, indent=2, ensure_ascii=False) + "\n" for row in rows))


def page_json(messages: Messages, folder: Path) -> None:
    """The array that Kafka UI saves."""
    rows = [
        {"partition": p, "offset": o, "timestamp": "2026-11-20T10:00:00Z", "key": _text(k), "content": _text(v)}
        for (p, o), (k, v) in messages.items()
    ]
    (folder / "dump.json").write_text(json.dumps(rows, ensure_ascii=False))


def page_csv(messages: Messages, folder: Path) -> None:
    """The table that Kafka UI saves."""
    with (folder / "dump.csv").open("w", newline="") as file:
        out = csv.writer(file)
        out.writerow(["Offset", "Partition", "Timestamp", "Key", "Value"])
        out.writerows([o, p, "2026-11-20T10:00:00Z", _text(k), _text(v)] for (p, o), (k, v) in messages.items())


def parquet(messages: Messages, folder: Path) -> None:
    """Bytes, without a topic."""
    rows = [{"partition": p, "offset": o, "key": k, "value": v} for (p, o), (k, v) in messages.items()]
    pq.write_table(pa.Table.from_pylist(rows), folder / "dump.parquet")


def coded_csv(messages: Messages, folder: Path) -> None:
    """As pandas writes base64, with offsets beside nulls; twice, each with its header."""
    with (folder / "dump.csv").open("w", newline="") as file:
        for half in (list(messages.items())[:9], list(messages.items())[9:]):
            out = csv.writer(file, delimiter="\t", quoting=csv.QUOTE_ALL)
            out.writerow(["kafka_offset", "kafka_partition", "kafka_key", "kafka_value"])
            out.writerows([f"{o}.0", p, _coded(k), _coded(v)] for (p, o), (k, v) in half)


def coded_parquet(messages: Messages, folder: Path) -> None:
    """All columns, with bytes as hexadecimal digits, and topics as a category."""
    rows = [
        {"topic": T, "partition": p, "offset": o, "key": None if k is None else k.hex(), "value": v and v.hex()}
        for (p, o), (k, v) in messages.items()
    ]
    table = pa.Table.from_pylist(rows)
    pq.write_table(table.set_column(0, "topic", table["topic"].dictionary_encode()), folder / "dump.parquet")


def parquet_text(messages: Messages, folder: Path) -> None:
    """Text for bytes and no key, as pandas writes what a consumer's ``str`` has made."""
    rows = [{"partition": p, "offset": o, "value": _text(v)} for (p, o), (_, v) in messages.items()]
    pq.write_table(pa.Table.from_pylist(rows), folder / "dump.parquet")


def connect(messages: Messages, folder: Path) -> None:
    """Bytes as JSON, with files of keys where all have one, as Kafka Connect asks for."""
    for partition in {p for p, _ in messages}:
        own = {o: content for (p, o), content in sorted(messages.items()) if p == partition}
        name = f"{T}+{partition}+{min(own):010}"
        (folder / f"{name}.json").write_text("".join(json.dumps(_coded(v)) + "\n" for _, v in own.values()))
        if all(k for k, _ in own.values()):
            (folder / f"{name}.keys.json").write_text("".join(json.dumps(_coded(k)) + "\n" for k, _ in own.values()))


def connect_objects(messages: Messages, folder: Path) -> None:
    """Values as they are, a line each."""
    for partition in {p for p, _ in messages}:
        own = {o: v for (p, o), (_, v) in sorted(messages.items()) if p == partition}
        text = b"".join((v or b"null") + b"\n" for v in own.values())
        (folder / f"{T}+{partition}+{min(own):010}.bin").write_bytes(text)


def connect_lengths(messages: Messages, folder: Path) -> None:
    """Values with their lengths; one file for each three, so that some hold what looks like a console's separator."""
    for partition in {p for p, _ in messages}:
        own = [(o, v) for (p, o), (_, v) in sorted(messages.items()) if p == partition]
        for at in range(0, len(own), 3):
            text = b"".join(
                (-1 if v is None else len(v)).to_bytes(4, "big", signed=True) + (v or b"") for _, v in own[at : at + 3]
            )
            (folder / f"{T}+{partition}+{own[at][0]:010}.bin").write_bytes(text)


def _printed(shown: Callable[[int, int, bytes | None, bytes | None], object]) -> Writer:
    """A line for each message, as Python prints what a program has made of it."""

    def write(messages: Messages, folder: Path) -> None:
        lines = [f"{shown(p, o, k, v)}\n" for (p, o), (k, v) in messages.items()]
        (folder / "dump.txt").write_text("".join(lines))

    return write


def _wrapped(messages: Messages, indent: int | None, *, by_topic: bool = False) -> str:
    """What a REST API answers; or what AWS Lambda gets of MSK, with a list for each partition."""
    rows = [
        {"topic": T, "partition": p, "offset": o, "timestamp": 1, "timestampType": "CREATE_TIME", "key": _coded(k)}
        | {"value": _coded(v), "headers": [{"h": [97, 98]}]}
        for (p, o), (k, v) in messages.items()
    ]  # fmt: skip
    if not by_topic:
        return json.dumps({"count": len(rows), "records": rows}, indent=indent)
    of = {f"{T}-{p}": [row for row in rows if row["partition"] == p] for p in {p for p, _ in messages}}
    return json.dumps({"eventSource": "aws:kafka", "bootstrapServers": "a:1,b:2", "records": of}, indent=indent)


def url_lines(messages: Messages, folder: Path) -> None:
    """In the alphabet of URLs, without padding, one object in another a line, the decoded value beside the raw one."""

    def raw(content: bytes | None) -> str | None:
        return None if content is None else urlsafe_b64encode(content).decode().rstrip("=")

    rows = [
        {"partition": p, "offset": o, "raw_key": raw(k), "raw_value": raw(v), "value": {"id": 1}}
        for (p, o), (k, v) in messages.items()
    ]
    (folder / "dump.json").write_text("".join(json.dumps({"record": row}) + "\n" for row in rows))


def unnamed_csv(messages: Messages, folder: Path) -> None:
    """No header."""
    lines = [f"orders,{p},{o},{_coded(k) or ''},{_coded(v) or ''}\n" for (p, o), (k, v) in messages.items()]
    (folder / "dump.csv").write_text("".join(lines))


FORMS: Mapping[str, Writer] = {
    "array of texts": lambda m, f: (f / "d.json").write_text(json.dumps([_coded(v) for _, v in m.values()])),
    "base64 in lines": lambda m, f: (f / "d.txt").write_bytes(b"".join(encodebytes(v or b"") for _, v in m.values())),
    "records": lambda m, f: (f / "d.json").write_text(_wrapped(m, None)),
    "records, indented": lambda m, f: (f / "d.json").write_text(_wrapped(m, 2)),
    "AWS Lambda": lambda m, f: (f / "d.json").write_text(_wrapped(m, None, by_topic=True)),
    "AWS Lambda, indented": lambda m, f: (f / "d.json").write_text(_wrapped(m, 2, by_topic=True)),
    "base64 of URLs": url_lines, "CSV without names": unnamed_csv,
    "dict": _printed(lambda p, o, k, v: {"topic": T, "partition": p, "offset": o, "key": k, "value": v}),
    "dict of base64": _printed(lambda p, o, k, v: {"partition": p, "offset": o, "key": _coded(k), "value": _coded(v)}),
    "tuple": _printed(lambda p, o, k, v: (p, o, k, v)),
    "kcat -J": kcat_j, "kcat -f with lengths": kcat_lengths, "console": console, "values": values,
    "values in base64": coded_values, "rpk": rpk, "page, JSON": page_json, "page, CSV": page_csv,
    "Parquet": parquet, "Parquet of text": parquet_text, "Connect, bytes": connect, "Connect, lines": connect_objects,
    "kcat -f": kcat_format, "CSV in base64": coded_csv, "Parquet in hex": coded_parquet,
    "Connect, lengths": connect_lengths, "capture lines as an array": _records(_coded, in_array=True),
    "objects in hex": _records(lambda c: None if c is None else c.hex()),
    "objects as Python shows bytes": _records(lambda c: None if c is None else str(c)),
    "objects with a Buffer": _records(lambda c: None if c is None else {"type": "Buffer", "data": list(c)}),
    "objects with signed bytes": _records(lambda c: None if c is None else [(b ^ 128) - 128 for b in c]),
}  # fmt: skip

ALL, SOME, NONE, REFUSED = "all events", "some events", "no event", "refused"
OF_TEXT = dict.fromkeys(FORMS, ALL)
OF_BYTES = {"rpk": SOME, "page, JSON": SOME, "page, CSV": SOME, "values": REFUSED, "Connect, lines": REFUSED}
GIVES: Mapping[str, Mapping[str, str]] = {
    "canal-json": OF_TEXT,
    "simple": OF_TEXT,
    "debezium": OF_TEXT,
    "open-protocol": OF_TEXT
    | OF_BYTES
    | dict.fromkeys(
        ("values in base64", "Parquet of text", "Connect, lengths", "array of texts", "base64 in lines"), NONE
    ),
    "avro": OF_TEXT
    | OF_BYTES
    | dict.fromkeys(
        ("values in base64", "Parquet of text", "Connect, lengths", "array of texts", "base64 in lines"), SOME
    )
    | {"Connect, bytes": SOME},
}
"""What each form gives of each protocol."""


def events_of(messages: pa.Table, protocol: str, *, keyed: bool) -> Counter[str]:
    """What messages decode to, without their places.

    Unless ``keyed`` without which columns are the key, and without deletes of avro that name nothing.
    """
    known = Known(schemas=read_schemas(str(golden("avro_schemas_small.jsonl.gz")))) if protocol == "avro" else Known()
    batches = messages.to_batches()
    if protocol == "simple":
        known = Known(tables=tables_of(row for found in finder(known)(iter(batches)) for row in found.to_pylist()))
    decoded = [row for batch in decoder(protocol, known=known)(iter(batches)) for row in batch.to_pylist()]
    for cell in (c for row in decoded for image in ("columns", "before") for c in row[image] or () if not keyed):
        del cell["is_key"]
    names = [n for n in EVENTS.names if n not in ("topic", "partition", "offset")]
    good = [row for row in decoded if row["error_class"] is None and (keyed or row["incomplete"] != "tombstone")]
    return Counter(repr([row[n] for n in names]) for row in good)


def of_capture(protocol: str) -> pa.Table:
    """The capture's messages."""
    rows = [
        {"topic": T, "partition": p, "offset": o, "key": k, "value": v, "headers": []}
        for (p, o), (k, v) in sorted(capture(protocol).items())
    ]
    return pa.Table.from_pylist(rows, arrow_schema(MESSAGES))


@pytest.mark.parametrize("protocol", GIVES)
@pytest.mark.parametrize("form", FORMS)
def test_a_dump_gives_the_events_of_the_capture_or_says_what_it_lost(form: str, protocol: str, tmp_path: Path) -> None:
    """No event is another; where some are missing, their records are in quarantine, or the loss is one of the form."""
    messages = capture(protocol)
    options = given if isinstance(given := FORMS[form](messages, tmp_path), dict) else {}
    files = sorted(tmp_path.iterdir())
    found, gives = dumps_at(str(tmp_path), files, "auto", options), GIVES[protocol][form]
    if found is None:
        assert gives == REFUSED
        return
    messages_of, bad = _read(tmp_path, options)
    kept, keyed = pa.Table.from_pylist(messages_of, arrow_schema(MESSAGES)), "key" not in found.lost
    events, expected = (events_of(table, protocol, keyed=keyed) for table in (kept, of_capture(protocol)))
    assert events <= expected, "an event is another than the capture's"
    assert gives == (ALL if events == expected else SOME if events else NONE)
    assert {row["error_class"] for row in bad} <= {"bad-dump-record:re-encoded"}
    assert kept.num_rows + len(bad) == len(messages)
    assert gives == ALL or bad or not keyed, "nothing says what is lost"


def _two(path: Path, rows: list[dict[str, Any]], how: str) -> None:
    """Rows of a place, a key as text, and a value in base64 (bytes in Parquet), in one of some forms."""
    if how == "Parquet":
        pq.write_table(
            pa.Table.from_pylist([row | {"value": b64decode(row["value"])} for row in rows]), path / "d.parquet"
        )
    elif how == "CSV":
        with (path / "d.csv").open("w", newline="") as file:
            out = csv.DictWriter(file, rows[0])
            out.writeheader()
            out.writerows(rows)
    elif how == "console":
        lines = [f"Partition:{r['partition']}\tOffset:{r['offset']}\t{r['key']}\t{r['value']}\n" for r in rows]
        (path / "d.txt").write_text("".join(lines))
    elif how == "Connect":
        for name, role in (("json", "value"), ("keys.json", "key")):
            text = "".join(json.dumps(row[role], ensure_ascii=False) + "\n" for row in rows)
            (path / f"t+0+0000000000.{name}").write_text(text)
    else:
        (path / "d.json").write_text("".join(json.dumps(row) + "\n" for row in rows))


@pytest.mark.parametrize("how", ["Parquet", "CSV", "objects", "console", "Connect"])
@pytest.mark.parametrize("taken_for", ["utf-8", "latin-1", "cp1252"])
def test_a_binary_key_that_was_taken_for_text_is_refused_also_beside_bytes(
    taken_for: str, how: str, tmp_path: Path
) -> None:
    """Each key has a coding of its own; the ones of Avro that lost bytes are named, and no other key comes instead."""
    own = [(k, v) for k, v in capture("avro").values() if k and v]
    rows = [
        {"partition": 0, "offset": n, "key": k.decode(taken_for, "replace"), "value": b64encode(v).decode()}
        for n, (k, v) in enumerate(own)
    ]
    _two(tmp_path, rows, how)
    messages, bad = _read(tmp_path)
    assert [(m["key"], m["value"]) for m in messages] == [both for both in own if both[0].isascii()]
    assert {row["error_class"] for row in bad} == {"bad-dump-record:re-encoded"}
    assert len(messages) + len(bad) == len(own) and bad


@pytest.mark.parametrize("how", ["Parquet", "CSV", "objects", "console", "Connect"])
@pytest.mark.parametrize("key", ["user100{}", "k", '{{"é":{}}}', "\0\0\0\0\5\x06aé"])
def test_a_text_key_beside_values_in_base64_is_a_text(key: str, how: str, tmp_path: Path) -> None:
    """Also where it can be base64: what it would mean decides; a key of Avro that was UTF-8 is as it was."""
    values = [v for _, v in capture("avro").values() if v]
    rows = [
        {"partition": 0, "offset": n, "key": key.format(n % 10), "value": b64encode(v).decode()}
        for n, v in enumerate(values)
    ]
    _two(tmp_path, rows, how)
    messages, bad = _read(tmp_path)
    assert not bad and [(m["key"].decode(), m["value"]) for m in messages] == [
        (r["key"], v) for r, v in zip(rows, values, strict=True)
    ]


def _read(folder: Path, options: Mapping[str, str] | None = None) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """The messages of a folder's dumps, and what is none."""
    files = sorted(folder.iterdir())
    found = dumps_at(str(folder), files, "auto", options or {})
    assert found is not None
    pieces, found = of_dumps({str(f): f.stat().st_size for f in files}, found, are_here=True)
    read = [both for piece in pieces for both in read_piece(*piece, dumped=found)]
    bad = [row for _, rejected in read if rejected is not None for row in rejected.to_pylist()]
    return [row for messages, _ in read for row in messages.to_pylist()], bad

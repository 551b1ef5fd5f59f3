"""Where a log can lie: every kind of source gives the same messages, and what is none is named, not lost."""

from __future__ import annotations

import base64
import gzip
import json
import random
import re
import shutil
from base64 import b64decode
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from threading import Event
from typing import Any

import engines
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from conftest import golden
from pyspark.sql import DataFrame, SparkSession

from ticdc_lab.engine.giving_up import GivenUpError, unless
from ticdc_lab.engine.sessions import Later
from ticdc_lab.errors import ContractError, ProtocolError, SourceError
from ticdc_lab.events.schema import MESSAGES
from ticdc_lab.sources import capture, open_source, pieces
from ticdc_lab.sources.change_log import ChangeLog
from ticdc_lab.sources.load import load
from ticdc_lab.watch.running import Watch

NAME = "messages_canal-json-tidb_small.jsonl.gz"
Lines = list[bytes]


def b64(raw: bytes | None) -> str | None:
    """Bytes as a capture file writes them."""
    return None if raw is None else base64.b64encode(raw).decode()


def line(offset: int, value: bytes | None = b"", **more: Any) -> bytes:
    """A line of a capture file."""
    fields = {"topic": "t", "partition": 0, "offset": offset, "timestamp": None, "key": None, "value": b64(value)}
    return json.dumps(fields | {"headers": []} | more).encode()


def insert(i: int) -> bytes:
    """A canal-json insert whose commit_ts is ``i``."""
    return json.dumps({"database": "s", "table": "t", "pkNames": ["a"], "isDdl": False, "type": "INSERT",
                       "mysqlType": {"a": "int"}, "data": [{"a": str(i)}],
                       "_tidb": {"commitTs": i}}).encode()  # fmt: skip


LINES = [line(i, insert(i)) for i in range(40)]


@pytest.fixture
def write(tmp_path: Path) -> Callable[..., str]:
    """``write("a.jsonl", bytes)``: a file below a folder of its own; gives the path."""

    def put(name: str, raw: bytes) -> str:
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(gzip.compress(raw) if name.endswith(".gz") and raw[:2] != b"\x1f\x8b" else raw)
        return str(path)

    return put


def offsets(log: ChangeLog) -> list[int]:
    """Offsets of the events, sorted."""
    return sorted(r["offset"] for r in log.events.select("offset").collect())


def quarantined(log: ChangeLog) -> list[tuple[str, str]]:
    """Class and reason of every row in quarantine."""
    return sorted((r["error_class"], r["reason"]) for r in log.quarantine.collect())


def bag(df: DataFrame) -> Counter[Any]:
    """The rows of a frame, however often each, in any order."""
    return Counter(map(str, df.collect()))


@pytest.mark.parametrize("name", ["a.jsonl", "a.json", "a.ndjson", "a.jsonl.gz", "a.json.gz"])
@pytest.mark.parametrize("ending", [b"\n", b"\r\n", b"\n\n  \n"])
def test_every_line_is_read_whatever_ends_it(
    spark: SparkSession, write: Callable[..., str], name: str, ending: bytes
) -> None:
    """LF, CRLF and blank lines between, a last line without an end: each line is one message."""
    log = load(spark, write(name, ending.join(LINES)))
    assert offsets(log) == list(range(40))
    assert quarantined(log) == []


def test_lines_in_any_order_and_files_in_a_folder_give_the_same_events(
    spark: SparkSession, write: Callable[..., str]
) -> None:
    """Neither the order of lines nor how they are spread over files and folders changes the set of events."""
    shuffled = random.Random(3).sample(LINES, 40)
    whole = bag(load(spark, write("whole.jsonl", b"\n".join(LINES))).events)
    for i in range(0, 40, 8):
        folder = str(Path(write(f"many/{'sub/' * (i % 3)}{i}.jsonl", b"\n".join(shuffled[i : i + 8]))))
        write(f"zipped/{'sub/' * (i % 3)}{i}.jsonl.gz", b"\n".join(shuffled[i : i + 8]))
    root = Path(folder.split("/many/")[0])
    write("many/empty.jsonl", b"")
    write("many/.hidden", b"no log")
    write("many/_SUCCESS", b"")
    assert bag(load(spark, str(root / "many")).events) == whole
    assert bag(load(spark, str(root / "zipped")).events) == whole
    for slashes in ("file:", "file://"):  # Java writes one
        assert bag(load(spark, slashes + str(root / "many")).events) == whole
    assert whole.total() == 40


@pytest.mark.parametrize("ending", [".jsonl", ".jsonl.gz", ".parquet"])
def test_names_that_spark_takes_for_patterns_are_read_as_they_are(
    spark: SparkSession, write: Callable[..., str], ending: str
) -> None:
    """Spaces, brackets, stars, per cent signs and letters beyond ASCII in a file or folder name are no obstacle."""
    path = write("plain.jsonl", b"\n".join(LINES))
    odd = Path(path).parent / "a b [1]" / f"log *{{x}}%20 数据=1{ending}"
    if ending == ".parquet":
        open_source(spark, path).messages.coalesce(1).write.parquet(str(odd.parent.parent / "made"))
        odd.parent.mkdir()
        next((odd.parent.parent / "made").glob("*.parquet")).rename(odd)
    else:
        write(str(odd), b"\n".join(LINES))
    assert offsets(load(spark, str(odd))) == list(range(40))
    assert offsets(load(spark, str(odd.parent))) == list(range(40))


def test_splits_of_a_file_change_nothing(
    classic: SparkSession, write: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A plain file read in many splits gives the same rows as in one: no line is lost or read twice at a border."""
    text = b"\n".join(line(i, insert(i)) for i in range(3_000))
    path = write("big.jsonl", text)
    one = bag(load(classic, path).decoded.select("offset", "change_hash"))
    monkeypatch.setattr(pieces, "RANGE_BYTES", 50_000)
    split = open_source(classic, path)
    assert split.pieces is not None and len(split.pieces) > 10
    assert split.raw.rdd.getNumPartitions() > 3
    assert bag(load(classic, path).decoded.select("offset", "change_hash")) == one
    assert one.total() == 3_000


@pytest.mark.parametrize("kind", ["parquet", "delta"])
def test_tables_of_messages_are_read_like_capture_files(spark: SparkSession, tmp_path: Path, kind: str) -> None:
    """The messages of a capture file, written as Parquet or Delta and loaded again, decode to the same events."""
    log = load(spark, str(golden(NAME)))
    folder = str(tmp_path / kind)
    log.messages.repartition(3).write.format(kind).save(folder)
    again = load(spark, folder)
    assert again.protocol == log.protocol
    columns = ("topic", "partition", "offset", "seq", "kind", "commit_ts", "change_hash", "query")
    assert bag(again.events.select(*columns)) == bag(log.events.select(*columns))
    if kind == "parquet":
        parts = sorted(Path(folder).glob("*.parquet"))
        assert load(spark, str(parts[0])).events.count() < again.events.count()


def test_parquet_in_folders_below_and_by_partition_is_not_left_out(spark: SparkSession, tmp_path: Path) -> None:
    """Files in subfolders count, and ``partition=N`` folders give the column."""
    messages = load(spark, str(golden(NAME))).messages
    n = messages.count()
    messages.write.partitionBy("partition").parquet(str(tmp_path / "by"))
    messages.where("partition < 2").write.parquet(str(tmp_path / "deep/a/b"))
    messages.where("partition >= 2").write.parquet(str(tmp_path / "deep/c"))
    for folder in ("by", "deep"):
        assert open_source(spark, str(tmp_path / folder)).messages.count() == n
    found = open_source(spark, str(tmp_path / "by")).messages.select("partition").distinct().collect()
    assert {r[0] for r in found} == {r[0] for r in messages.select("partition").distinct().collect()}


def test_many_row_groups_and_other_types_give_the_same_events(spark: SparkSession, tmp_path: Path) -> None:
    """Row groups are read by the workers themselves; a file whose types need a conversion goes through Spark."""
    plain = load(spark, str(golden(NAME)))
    table = plain.messages.toArrow()
    pq.write_table(table, tmp_path / "groups.parquet", row_group_size=97)
    wide = table.set_column(1, "partition", table["partition"].cast(pa.int64()))
    pq.write_table(wide, tmp_path / "wide.parquet")
    columns = ("topic", "partition", "offset", "seq", "kind", "commit_ts", "change_hash", "query")
    expected = bag(plain.events.select(*columns))
    for name, way in (("groups", pieces.read), ("wide", pieces.as_they_are)):
        path = str(tmp_path / f"{name}.parquet")
        assert open_source(spark, path).read is way
        assert bag(load(spark, path).events.select(*columns)) == expected


def test_a_timestamp_in_numbers_is_milliseconds(spark: SparkSession, tmp_path: Path, write: Callable[..., str]) -> None:
    """In a capture file and in a table alike; none, null and Kafka's -1 are null."""
    stamps = [1_700_000_000_123, None, -1]
    path = write("a.jsonl", b"\n".join(line(i, b"", timestamp=t) for i, t in enumerate(stamps)))
    rows = open_source(spark, path).messages.orderBy("offset").selectExpr("unix_millis(timestamp) AS ms").collect()
    assert [r["ms"] for r in rows] == [1_700_000_000_123, None, None]
    spark.createDataFrame(
        [("t", 0, 1, 1_700_000_000_123, b"", b"")],
        "topic string, partition int, offset bigint, timestamp bigint, key binary, value binary",
    ).write.parquet(str(tmp_path / "table"))
    row = open_source(spark, str(tmp_path / "table")).messages.selectExpr("unix_millis(timestamp) AS ms").first()
    assert row is not None and row["ms"] == 1_700_000_000_123


def test_headers_are_kept_and_unknown_fields_are_ignored(spark: SparkSession, write: Callable[..., str]) -> None:
    """Headers come out as pairs with their bytes; a field that the format does not know changes nothing."""
    headers = [["k", b64(b"\x00\xff")], ["empty", ""], ["none", None], ["k", b64(b"again")]]
    path = write("a.jsonl", line(1, b"v", headers=headers, kind="row", more={"a": [1, {"b": None}]}) + b"\n" + line(2))
    rows = open_source(spark, path).messages.orderBy("offset").collect()
    assert [(h["key"], h["value"]) for h in rows[0]["headers"]] == [
        ("k", b"\x00\xff"), ("empty", b""), ("none", None), ("k", b"again"),
    ]  # fmt: skip
    assert rows[1]["headers"] == [] and rows[0]["value"] == b"v"


BAD_LINES = {
    b"this is no JSON": "bad-type",
    b'{"this is": no JSON}': "not-json",
    b'{"topic":"t","partition":0,"offset":1': "not-json",
    b"[1]": "bad-type",
    b'{"topic":"\xff\xfe","partition":0,"offset":1,"key":null,"value":null}': "bad-utf8",
    b'{"partition":0,"offset":1,"key":null,"value":null}': "missing-field",
    b'{"topic":"t","offset":1,"key":null,"value":null}': "missing-field",
    b'{"topic":"t","partition":0,"key":null,"value":null}': "missing-field",
    line(1, partition=-1): "out-of-range",
    line(1, partition=1 << 31): "out-of-range",
    line(1, partition="0"): "bad-type",
    line(1 << 63): "out-of-range",
    line(1, partition=1.5): "out-of-range",
    line(1, timestamp=1 << 62): "out-of-range",
    line(1, value=b"", key="!!!!"): "bad-base64",
    line(1, value=b"", key="AAA"): "bad-base64",
    line(1, headers=[["a", "!"]]): "bad-headers",
    line(1, headers=[["a"]]): "bad-headers",
    line(1, headers=[["a", "eAeA=="]]): "bad-headers",
    line(1, headers=[{"a": 1, "AAAA": 2}]): "bad-headers",
    line(1, headers=[[1, "AA=="]]): "bad-headers",
    line(1, headers=[3]): "bad-headers",
    line(1, headers={"a": "AA=="}): "bad-type",
    b'{"topic":"t","partition":0,"offset":1,"offset":2}': "duplicate-key",
    line(1) + line(2): "trailing-bytes",
    b'{"topic":"t","x":' + b"[" * 200 + b"]" * 200 + b"}": "too-deep",
}


@pytest.mark.parametrize("name", ["a.jsonl", "a.jsonl.gz"])
def test_lines_that_are_no_message_go_to_quarantine_with_file_and_reason(
    spark: SparkSession, tmp_path: Path, write: Callable[..., str], name: str
) -> None:
    """Each bad line is kept as it is, with its file and why; every other line is read."""
    mixed = [x for pair in zip(BAD_LINES, LINES, strict=False) for x in pair]
    log = load(spark, write(name, b"\n".join(mixed)))
    rows = log.quarantine.collect()
    assert {bytes(r["value"]): r["error_class"] for r in rows} == {
        bad: f"bad-capture-line:{fault}" for bad, fault in BAD_LINES.items()
    }
    assert all(name in r["reason"] for r in rows)
    assert offsets(log) == list(range(len(BAD_LINES)))
    whole = log.materialise(str(tmp_path / "out"))
    counts = whole.counts
    assert counts is not None and not any("damaged" in limit for limit in whole.limits)
    assert (counts.messages, counts.decoded, counts.quarantined) == (len(mixed), len(BAD_LINES), len(BAD_LINES))


ENDS = "damaged at its end or zero there counts as one message"


@pytest.mark.parametrize("cut", [0.3, 0.9, 0.999])
def test_a_gz_cut_in_the_middle_gives_all_lines_before_the_cut(
    spark: SparkSession, tmp_path: Path, write: Callable[..., str], cut: float
) -> None:
    """A recording cut short is read up to the cut, and one row shows which file and that it ends early."""
    text = b"\n".join(line(i, insert(i), pad=random.Random(i).random()) for i in range(5_000))
    packed = gzip.compress(text)
    log = load(spark, write("cut.jsonl.gz", packed[: int(len(packed) * cut)]))
    found = offsets(log)
    assert found == list(range(len(found))) and 5_000 * cut * 0.7 < len(found) < 5_000
    ((error_class, reason),) = quarantined(log)
    assert error_class == "damaged-gzip" and "cut.jsonl.gz" in reason and "ends early" in reason
    whole = log.materialise(str(tmp_path / "out"))
    assert whole.counts is not None and (whole.counts.decoded, whole.counts.quarantined) == (len(found), 1)
    assert any(ENDS in limit for limit in whole.limits)


@pytest.mark.parametrize("cut", [0, 40])
@pytest.mark.parametrize("pack", [bytes, gzip.compress])
def test_zero_bytes_at_the_end_are_a_damaged_end_that_says_so(
    spark: SparkSession, tmp_path: Path, write: Callable[..., str], cut: int, pack: Callable[[bytes], bytes]
) -> None:
    """A crash leaves them for what a file system had not written yet: here two messages, or one and a half."""
    text = b"\n".join(LINES[:38]) + b"\n" + LINES[38][:cut]
    log = load(spark, write("crashed.jsonl", pack(text + bytes(3 << 20)))).materialise(str(tmp_path / "out"))
    ((error_class, reason),) = quarantined(log)
    assert error_class == "zeroed-end" and "the last 3,145,728 bytes are zero, as after a crash" in reason
    assert (f"{cut} bytes of an unfinished line are lost" in reason) == (cut > 0)
    assert offsets(log) == list(range(38)) and any(
        "damaged at its end or zero there counts as one message" in of for of in log.limits
    )


def test_a_gz_with_a_broken_byte_gives_all_lines_before_it(spark: SparkSession, write: Callable[..., str]) -> None:
    """What zlib ready when it meets an error it drops; none of that is lost here."""
    text = b"\n".join(line(i, insert(i), pad=random.Random(i).random()) for i in range(5_000))
    packed = bytearray(gzip.compress(text))
    half = len(packed) // 2
    packed[half : half + 64] = b"\xff" * 64
    log = load(spark, write("broken.jsonl.gz", bytes(packed)))
    assert log.events.where("offset < 2000").count() == 2_000
    assert any(c == "damaged-gzip" and "broken.jsonl.gz" in r for c, r in quarantined(log))


def test_a_gz_of_several_members_padding_between_is_read_whole(spark: SparkSession, write: Callable[..., str]) -> None:
    """Members one after another, with zeros between and after them, are one text."""
    packed = gzip.compress(b"\n".join(LINES[:15]) + b"\n" + LINES[15][:30]) + b"\0" * 512
    packed += gzip.compress(LINES[15][30:] + b"\n") + gzip.compress(b"") + gzip.compress(b"\n".join(LINES[16:]))
    log = load(spark, write("members.jsonl.gz", packed + b"\0" * 100))
    assert offsets(log) == list(range(40)) and quarantined(log) == []


@pytest.mark.parametrize("isal", [True, False])
@pytest.mark.parametrize("fault", ["overwritten", "cut", "checksum", "between", "twice"])
def test_behind_a_damaged_member_the_next_is_read(
    spark: SparkSession, write: Callable[..., str], monkeypatch: pytest.MonkeyPatch, fault: str, isal: bool
) -> None:
    """Each line is a message, or in the bytes that the quarantine reports as lost, and where."""
    if not isal:
        monkeypatch.setattr(capture, "isal_zlib", None)
    texts = [b"".join(line(i, insert(i), pad=random.Random(i).random()) + b"\n" for i in range(n, n + 1000))
             for n in (0, 1000, 2000, 3000)]  # fmt: skip
    members, wrong = [bytearray(gzip.compress(text)) for text in texts], [1, 2] if fault == "twice" else [1]
    for n in wrong:
        half = len(members[n]) // 2
        if fault in ("overwritten", "twice"):
            members[n][half : half + 64] = b"\xff" * 64
        elif fault == "cut":
            del members[n][half:]
        elif fault == "checksum":
            members[n][-8] ^= 1
        else:
            members[n] += b"no gzip" * 50
    log = load(spark, write("members.jsonl.gz", b"".join(members)))
    found, bad = offsets(log), quarantined(log)
    whole = {n for n in range(4000) if n // 1000 not in wrong}
    assert whole <= {*found} and len(found) == len({*found}), "no line of a whole member is lost, and none is doubled"
    assert {*found} - whole == {*range(1000, 1000 + len(found) - 3000)} or fault == "twice"
    assert (
        len({*found} - whole) == 1000 if fault in ("checksum", "between") else len({*found} - whole) < 1000 * len(wrong)
    )
    damaged = [reason for error_class, reason in bad if error_class == "damaged-gzip"]
    assert len(damaged) == len(wrong) and all("where another member of it begins, are lost" in r for r in damaged)
    first, last = sum(map(len, members[:1])), sum(map(len, members[:2]))
    at, end = (int(n.replace(",", "")) for n in re.findall(r"byte ([\d,]+)", damaged[0]))
    assert first < at and end == last and f"{max(0, end - at):,} bytes up to" in damaged[0]


def test_a_gz_that_is_none_says_so(spark: SparkSession, write: Callable[..., str]) -> None:
    """A plain file named .gz has no message, and the quarantine shows why."""
    path = write("x", b"plain text, no gzip")
    Path(path).rename(path + ".jsonl.gz")
    log = load(spark, path + ".jsonl.gz", protocol="canal-json")
    ((error_class, reason),) = quarantined(log)
    assert error_class == "damaged-gzip" and "x.jsonl.gz" in reason
    assert log.events.count() == 0


def test_what_is_no_source_is_a_clear_error(spark: SparkSession, tmp_path: Path, write: Callable[..., str]) -> None:
    """Nothing there, nothing in it, or nothing known: a SourceError that names the path."""
    empty = write("empty.jsonl", b"")
    (tmp_path / "folder").mkdir()
    unknown = write("known/by/nobody.xls", b"x")
    for path, said in (
        (str(tmp_path / "nowhere.jsonl"), "does not exist"),
        (empty, "is empty"),
        (str(tmp_path / "folder"), "no data file"),
        (unknown, "nobody.xls"),
    ):
        with pytest.raises(SourceError, match=said) as e:
            load(spark, path)
        assert path in str(e.value)
    with pytest.raises(SourceError, match="kind"):
        load(spark, empty, source_kind="tape")


def test_a_folder_of_plain_and_gzip_files_is_read_as_by_a_watch(
    spark: SparkSession, tmp_path: Path, write: Callable[..., str]
) -> None:
    """By its name, each file; a writer may pack a file when it is full, beside one that still grows."""
    write("both/a.jsonl", b"\n".join(LINES[:20]) + b"\n")
    write("both/b.jsonl.gz", gzip.compress(b"\n".join(LINES[20:]) + b"\n"))
    log, watch = load(spark, str(tmp_path / "both")), Watch(str(tmp_path / "both"), str(tmp_path / "state"), once=True)
    watch.run()
    assert log.events.count() == watch.view.counts.messages == 40 and not log.quarantine.count()


def test_a_folder_of_two_kinds_says_what_is_in_it(
    spark: SparkSession, tmp_path: Path, write: Callable[..., str]
) -> None:
    """How many files of each kind, and one that can be named instead."""
    named = write("mixed/a.jsonl", LINES[0])
    for other in ("mixed/b.parquet", "mixed/c.parquet", "mixed/readme.txt"):
        write(other, b"x")
    with pytest.raises(SourceError) as e:
        load(spark, str(tmp_path / "mixed"))
    found = "it contains 1 capture file (a.jsonl), 2 parquet files (b.parquet, ..), 1 file of another kind (readme.txt)"
    assert found in e.value.message and f"such as {named}" in str(e.value)


@pytest.mark.parametrize("name", ["a.gz", "b c.txt.gz", "capture"])
def test_a_packed_file_of_another_name_is_read(spark: SparkSession, write: Callable[..., str], name: str) -> None:
    """Its bytes show that it is gzip, and what lies in it."""
    packed = write(name, b"")
    Path(packed).write_bytes(gzip.compress(LINES[0]))
    assert load(spark, packed, protocol="canal-json").messages.count() == 1


def test_a_folder_of_two_protocols_says_so(spark: SparkSession, tmp_path: Path) -> None:
    """What is put aside is detected by its own bytes; a damaged message is taken for no other protocol."""
    (tmp_path / "mixed").mkdir()
    for name in ("canal-json-tidb_small", "open-protocol_stalls"):
        shutil.copy(golden(f"messages_{name}.jsonl.gz"), tmp_path / "mixed")
    log = load(spark, str(tmp_path / "mixed")).materialise(str(tmp_path / "decoded"))
    n = log.counts.quarantined if log.counts else 0
    said = "Of 256 messages in quarantine that were looked at 256 are open-protocol, no canal-json"
    assert n > 256 and sum(said in limit for limit in log.limits) == 1
    (tmp_path / "cut").mkdir()
    lines = gzip.decompress(golden("messages_canal-json-tidb_small.jsonl.gz").read_bytes()).splitlines()
    cut = [json.dumps(r | {"value": r["value"][:40]}).encode() for r in map(json.loads, lines[:5])]
    (tmp_path / "cut" / "a.jsonl").write_bytes(b"\n".join([*cut, *lines[5:]]))
    damaged = load(spark, str(tmp_path / "cut")).materialise(str(tmp_path / "decoded too"))
    assert damaged.counts and damaged.counts.quarantined == 5 and damaged.strangers == ()


def test_a_table_without_the_columns_of_messages_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    """A Parquet file of something else names what it is missing."""
    spark.range(3).write.parquet(str(tmp_path / "other"))
    with pytest.raises(ContractError, match="offset"):
        load(spark, str(tmp_path / "other"))


SIMPLE = b'{"version":1,"type":"INSERT","database":"s","table":"t","commitTs":1,"schemaVersion":1,"data":{"a":"1"}}'
DEBEZIUM = b'{"payload":{"source":{"commit_ts":1,"db":"s","table":"t"},"before":null,"after":{"a":1},"op":"c"}}'
AVRO = b"\x00\x00\x00\x00\x01\x02\x06abc"


@pytest.mark.parametrize(
    ("value", "told"), [(SIMPLE, "simple"), (DEBEZIUM, "debezium"), (AVRO, "avro"), (b"hello", ""), (b"", "")],
    ids=["simple", "debezium", "avro", "text", "none"],
)  # fmt: skip
def test_another_protocol_is_told_or_quarantined_whole(
    spark: SparkSession, tmp_path: Path, write: Callable[..., str], value: bytes, told: str
) -> None:
    """Left to find out, it is reported or the error shows how the messages begin; reported wrong, all goes to
    quarantine.
    """
    path = write("other.jsonl", b"\n".join(line(i, value) for i in range(5)))
    if told:
        assert load(spark, path).protocol == told
    else:
        with pytest.raises(ProtocolError) as e:
            load(spark, path)
        assert repr(value[:16])[2:-1] in str(e.value) and "other.jsonl" in str(e.value)
    for protocol in ("canal-json", "open-protocol"):
        counts = load(spark, path, protocol=protocol).materialise(str(tmp_path / protocol)).counts
        assert counts is not None and (counts.messages, counts.decoded, counts.quarantined) == (5, 0, 5)


def test_an_unknown_protocol_names_those_that_are_known(spark: SparkSession, write: Callable[..., str]) -> None:
    """A misspelt protocol is refused before anything is read."""
    with pytest.raises(ProtocolError, match="canal-json"):
        load(spark, write("a.jsonl", LINES[0]), protocol="canaljson")


def test_reading_that_is_given_up_ends_in_the_middle_of_a_file(
    write: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where it is one large file, which this process reads beside the embedded engine."""
    event, given = Event(), list[int]()
    with engines.using("embedded"), unless(event):
        opened = open_source(Later(2, {}), write("a.jsonl", line(0)))
        assert opened.pieces is not None
        one = next(opened.read(iter(opened.pieces.to_batches())))

        def large(*_: Any) -> Iterator[Any]:
            for i in range(100):
                given.append(i)
                if i == 3:
                    event.set()
                yield one

        monkeypatch.setattr(pieces, "read_piece", large)
        with pytest.raises(GivenUpError):
            opened.gathered(lambda messages: messages, MESSAGES)
    assert given == [0, 1, 2, 3]


@pytest.mark.parametrize(("name", "left"), [("a.jsonl", 0), ("a.jsonl", 100), ("a.jsonl.gz", 0)])
def test_a_file_that_is_cut_after_the_log_was_opened_is_named(
    spark: SparkSession, write: Callable[..., str], tmp_path: Path, name: str, left: int
) -> None:
    """It is no log of fewer messages: what was there is gone, so nothing can be answered of it."""
    path = write(name, b"\n".join(LINES))
    log = load(spark, path)
    Path(path).write_bytes(Path(path).read_bytes()[:left])
    with pytest.raises(SourceError, match=f"{name} was cut after the log was opened: {left} bytes are left"):
        log.materialise(str(tmp_path / "decoded"))


def test_files_of_several_protocols_are_named_each_and_no_answer_is_given(spark: SparkSession, tmp_path: Path) -> None:
    """No protocol has most of the messages, so none is taken for all; one that was named is read."""
    for name in ("simple_small", "canal-json-tidb_small", "open-protocol_stalls"):
        shutil.copy(golden(f"messages_{name}.jsonl.gz"), tmp_path)
    log = load(spark, str(tmp_path))
    assert {p: [Path(f).name for f in files] for p, files in log.protocols.items()} == {
        "canal-json": ["messages_canal-json-tidb_small.jsonl.gz"],
        "open-protocol": ["messages_open-protocol_stalls.jsonl.gz"],
        "simple": ["messages_simple_small.jsonl.gz"],
    }
    assert any("messages_simple_small.jsonl.gz in simple" in limit for limit in log.limits)
    with pytest.raises(ProtocolError, match="its files begin with messages of 3 forms: ") as e:
        log.require_events()
    assert "Read each alone: ticdc-lab audit " in e.value.hint and " --protocol canal-json" in e.value.hint
    load(spark, str(tmp_path), protocol="canal-json").require_events()
    assert not load(spark, str(golden("messages_simple_small.jsonl.gz"))).protocols


def test_values_beside_recordings_are_left_out_by_name(spark: SparkSession, tmp_path: Path) -> None:
    """Their messages have no place: they would keep offsets and partitions of all others from being judged."""
    recorded = golden("messages_canal-json-tidb_small.jsonl.gz")
    shutil.copy(recorded, tmp_path / "a.jsonl.gz")
    with gzip.open(recorded) as lines:
        values = [b64decode(json.loads(line)["value"]) for line in lines][:30]
    (tmp_path / "values.txt").write_bytes(b"\n".join(values) + b"\n")
    log = load(spark, str(tmp_path))
    assert not log.lost and log.messages.count() == 2241
    (said,) = [limit for limit in log.limits if "left out" in limit]
    assert said.startswith(f"{tmp_path / 'values.txt'} (a file of values) is no recording with partitions and offsets")
    assert said.endswith(f"ticdc-lab survey {tmp_path / 'values.txt'}")
    alone = load(spark, str(tmp_path / "values.txt"))
    assert {"partition", "offset"} <= alone.lost and alone.messages.count() == 30

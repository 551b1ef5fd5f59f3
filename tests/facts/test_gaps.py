"""Which offsets a log is missing."""

from __future__ import annotations

import gzip
import json
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from conftest import golden
from pyspark.sql import SparkSession

import ticdc_lab
from ticdc_lab.audit.guarantees.marks import holes
from ticdc_lab.audit.stated import Stated
from ticdc_lab.errors import StreamingError
from ticdc_lab.events.sample import Sample
from ticdc_lab.facts import LogFacts
from ticdc_lab.facts.limits import (
    Counts,
    Lacking,
    Twice,
    absent,
    are_twice,
    begun_late,
    but_for,
    firsts_of,
    held_twice,
    lacking_between,
    limits_of,
    offset_gaps,
)
from ticdc_lab.sources.kafka import EXPECTED

POSITIONS = "topic string, partition int, offset bigint"


def test_every_gap_is_found_in_its_partition(spark: SparkSession) -> None:
    """Between offsets, before the first and after the last; a batched message counts once, an order does not matter."""
    offsets = {0: [9, 5, 5, 6, 12], 1: [0, 1, 2], 2: [40]}
    log = spark.createDataFrame([("t", p, o) for p, own in offsets.items() for o in own], POSITIONS)
    bounds = [("t", 0, 5, 13), ("t", 1, 0, 5), ("t", 2, 38, None), ("t", 3, 7, 9), ("t", 4, 0, 0)]
    expected = spark.createDataFrame(bounds, EXPECTED)
    inside = [(0, 7, 8, 2), (0, 10, 11, 2)]
    found = sorted(tuple(r)[1:] for r in log.transform(offset_gaps).collect())
    assert found == inside
    found = sorted(tuple(r)[1:] for r in log.transform(offset_gaps, expected=expected).collect())
    assert found == [*inside, (1, 3, 4, 2), (2, 38, 39, 2), (3, 7, 8, 2)]


def test_a_stream_is_refused(spark: SparkSession) -> None:
    """What is missing now may still come."""
    stream = spark.readStream.format("rate").load().selectExpr("'t' topic", "0 partition", "value offset")
    with pytest.raises(StreamingError):
        offset_gaps(stream)


@pytest.mark.parametrize(
    ("offsets", "gaps"),
    [
        ([], []),
        ([7], []),
        ([*range(5, 200)], []),
        ([*range(5, 70), *range(73, 200), 201], [(70, 72), (200, 200)]),
        ([0, 1, 2, 3, 2_000, 2_001, 2_002], [(4, 1_999)]),  # most of it was cut out
        ([*range(0, 40, 2)], [(at, at) for at in range(1, 39, 2)]),  # a transaction's mark behind each message
        ([1 << 40, (1 << 40) + 90, (1 << 40) + 181, 2 << 40, 3 << 40], []),  # positions in files count no messages
        ([0, 3, 6], []),  # or compacted: no one can determine
        ([0, 1_000], []),
        ([0, 1, 1_000], [(2, 999)]),
    ],
)
def test_what_is_missing_between_offsets_is_said_and_counted(offsets: list[int], gaps: list[tuple[int, int]]) -> None:
    """By the log's own sentence and by the audit alike; of another partition that is whole nothing is reported."""
    log = [("t", p, o) for p, own in ((0, offsets), (1, [3, 4])) for o in own]
    columns = dict(zip(("topic", "partition", "offset"), zip(*log, strict=True), strict=True)) | {
        "kind": ["row"] * len(log)
    }
    facts = LogFacts.of(pa.table(columns))
    n = sum(last - first + 1 for first, last in gaps)
    found = lacking_between(facts.offsets)
    lacked = max(offsets, default=0) + 1 - min(offsets, default=1) - len(offsets)
    assert (found.n, len(found.sentences)) == (n, 0 < lacked < 1 << 40)
    between = "of the offsets between its first and its last"
    sparse = "" if gaps else ", and hardly any two messages"
    assert all(f"Partition 0 of t is missing {n or lacked} {between}{sparse}" in said for said in found.sentences)
    assert all(f"{first}..{last}" in said for first, last in gaps if last > first for said in found.sentences)
    holed = [(h.n, h.stretches, h.low["offset"]) for h in holes(Stated.read(facts, protocol="simple"))]
    assert holed == ([(n, len(gaps), gaps[0][0] - 1)] if gaps else [])
    elsewhere = lacking_between(facts.offsets, said={(("t", 0), gap) for gap in gaps})
    assert elsewhere.n == n and (not elsewhere.sentences or not gaps), "said between files, and counted"


def test_a_sentence_about_completeness_names_what_is_missing() -> None:
    """Messages that no one could read, offsets that are not there, both, neither."""
    assert [but_for(Counts(9, 9 - bad, bad, 9, lacking=n)) for bad, n in ((0, 0), (1, 0), (0, 2), (2, 1))] == [
        "",
        " except for data in 1 unread message",
        " except for data in 2 missing offsets",
        " except for data in 2 unread messages and 1 missing offset",
    ]
    begun = Counts(9, 9, 0, 9, late=4), Counts(9, 9, 0, 9, absent=1), Counts(9, 9, 0, 9, lacking=1, absent=2, late=1)
    assert [but_for(n) for n in begun] == [
        " except for data before its first offsets",
        " except for data in 1 absent partition",
        " except for data in 1 missing offset and 2 absent partitions and data before its first offsets",
    ]


def test_where_a_recording_begins_late_or_lacks_a_partition_is_said() -> None:
    """Not of the first offset, of a broker or in a file; a number may be any; without watermarks one may be empty."""
    places = [("t", 0, 7), ("t", 0, 70), ("t", 2, 0), ("u", 1, (1 << 40) + 5), ("u", 1, 2 << 40), ("v", 0, 64)]
    rows = dict(zip(("topic", "partition", "offset"), zip(*places, strict=True), strict=True))
    firsts = firsts_of(LogFacts.of(pa.table(rows | {"kind": ["row"] * len(places)})).offsets)
    assert firsts == {("t", 0): 7, ("t", 2): 0, ("u", 1): (1 << 40) + 5, ("v", 0): 64}
    late = begun_late(firsts)
    assert (late.n, "in the partitions t 0 (from 7 on) and v 0 (from 64 on). Earlier" in late.sentences[0]) == (2, True)
    assert begun_late({("t", p): 1 for p in range(9)}).sentences[0].count("(from 1 on)") == 5
    assert begun_late({("t", 0): 0}) == begun_late({}) == Lacking() == absent([("t", 0), ("t", 1)], marked=True, **OPEN)
    assert firsts_of(LogFacts.of(pa.table(rows | {"kind": ["row"] * len(places)})).offsets.slice(0, 0)) == {}
    gone = absent(firsts, marked=True, **OPEN)
    assert (gone.n, "no message of the partitions t 1 and u 0, although" in gone.sentences[0]) == (2, True)
    assert "no message of partition t 1, although" in absent([("t", 0), ("t", 2)], marked=True, **OPEN).sentences[0]
    nameless: dict[Any, int] = {("t", 1): 3, (None, 1): 2, (None, 0): 0}
    assert "partitions None 1 (from 2 on) and t 1 (from 3 on). Earlier" in begun_late(nameless).sentences[0]
    assert absent(nameless, marked=True, **OPEN).n == 1
    far = absent([("t", 2), ("t", 2_000_000_000)], marked=True, protocol="canal-json")
    assert far.n == 1_999_999_999 and "t 0, t 1, t 3, t 4, t 5 and 1999999994 more" in far.sentences[0]
    assert "canal-json sends its DDL to partition 0 alone" in far.sentences[0] and "DDL" not in gone.sentences[0]
    empty = absent(firsts, marked=False, **OPEN)
    assert empty.n == 0 and "nothing was sent there, or they were not recorded" in empty.sentences[0]


OPEN = {"protocol": "open-protocol"}


def test_messages_at_one_offset_are_the_same_or_not(spark: SparkSession) -> None:
    """By all their events; a batch of several events is one message, and what has no place is left out."""
    events = [
        *[("t", 0, 4, seq, "row", 7, 40 + seq) for seq in (0, 1, 2)],
        *[("t", 1, 5, 0, "row", 7, 41)] * 3,
        *[("t", 1, at, 0, "row", 7, value) for at in (6, 7) for value in (at, 50)],
        *[("t", 2, 8, seq, "row", 7, 42) for seq in (0, 0, 1)],  # one of them holds an event more
        *[("t", 3, at, 0, "watermark", ts, None) for at, ts in ((1, 7), (1, 8), (2, 9), (2, 9))],
        *[("t", None, 1, 0, "row", 7, 1)] * 2,
    ]
    form = "topic string, partition int, offset bigint, seq int, kind string, commit_ts bigint, change_hash bigint"
    named = spark.createDataFrame(events, form).selectExpr("*", *[f"'x' AS {n}" for n in _NAMED])
    assert held_twice(named) == [
        Twice("t", 1, n=2, first=5, last=5, differ=2, first_other=6, last_other=7),
        Twice("t", 2, n=0, first=None, last=None, differ=1, first_other=8, last_other=8),
        Twice("t", 3, n=1, first=2, last=2, differ=1, first_other=1, last_other=1),
    ]
    # two unread ones of the same bytes; two of others; one beside an event; one alone
    bytes_at = [(0, 9, b"k", b"v"), (0, 9, b"k", b"v"), (0, 10, b"k", None), (0, 10, None, b"k"), (0, 4, b"", b"")]
    form = "topic string, partition int, offset bigint, key binary, value binary"
    unread = spark.createDataFrame([("t", *one) for one in [*bytes_at, (0, 11, None, None)]], form)
    [of_0, *others] = held_twice(named, unread)
    assert of_0 == Twice("t", 0, n=1, first=9, last=9, differ=2, first_other=4, last_other=10, unread=1)
    assert others == held_twice(named)
    offsets = LogFacts.of(named.toArrow()).offsets
    assert are_twice(offsets) and not are_twice(offsets[:1]) and not are_twice(offsets[:0])


def test_of_messages_at_one_offset_the_same_and_different_ones_are_told_apart() -> None:
    """With a number each; different ones are left out where all lie in a stretch that is reported already."""
    one = Twice("t", 1, n=2, first=5, last=5, differ=3, first_other=6, last_other=9)
    same, other = one.sentences()
    assert "Partition 1 of t contains 2 messages twice, at offset 5." in same and "different" not in same
    assert "Partition 1 of t contains different messages at 3 of its offsets, the first 6." in other
    assert "twice" not in other and "delivered again" not in other
    assert one.sentences(said=[(1, 7), (8, 12)]) == (same, other) == one.sentences(said=[(7, 9)])
    assert one.sentences(said=[(0, 1), (6, 9)]) == (same,)
    assert replace(one, n=0, first=None, last=None).sentences() == (other,)
    assert replace(one, differ=0, first_other=None, last_other=None).sentences() == (same,)
    assert same.endswith("Here they count as delivered again.")
    some, none = (replace(one, unread=n).sentences()[0].rpartition("merged. ")[2] for n in (1, 2))
    assert some == "Here they count as delivered again; 1 of them could not be read, and count in no answer."
    assert none == "2 of them could not be read, and count in no answer."


_NAMED = ("op", "schema_name", "table_name", "query")


def test_what_a_recording_holds_twice_is_no_repeat_of_a_changefeed(spark: SparkSession, tmp_path: Path) -> None:
    """Of one file, put together from two that overlap; where they differ it is an error that names the place."""
    lines = gzip.decompress(golden("messages_canal-json-tidb_small.jsonl.gz").read_bytes()).splitlines()[:300]
    of_0 = [line for line in lines if json.loads(line)["partition"] == 0]
    rows = [line for line in of_0 if json.loads(line)["kind"] == "row"]
    one, other = json.loads(rows[-1]), json.loads(rows[-2])
    another = json.dumps(other | {"offset": one["offset"]}).encode()
    said, found = {}, {}
    damaged = json.dumps(one | {"value": "e30="}).encode()
    files = {"twice": [*of_0, *of_0[-9:]], "other": [*of_0, another], "unread": [*of_0, damaged], "whole": of_0}
    for name, kept in files.items():
        (tmp_path / f"{name}.jsonl").write_bytes(b"\n".join(kept) + b"\n")
        with closing(ticdc_lab.open(str(tmp_path / f"{name}.jsonl"), spark=spark)) as log:
            said[name], audit = " ".join(log.limits), log.audit(messages=False).frames["findings"]
        found[name] = audit[audit["guarantee"] == "offsets_are_contiguous"].to_dict("records")
    assert said["whole"] == "" and "contains 9 messages twice" in said["twice"] and "differ" not in said["twice"]
    assert found["whole"] == found["twice"] == []
    for name in ("other", "unread"):
        assert f"different messages at 1 of its offsets, the first {one['offset']}." in said[name]
        assert "twice" not in said[name] and "delivered again" not in said[name]
        [wrong] = found[name]
        assert (wrong["severity"], wrong["partition"], wrong["offset"]) == ("error", 0, one["offset"])
        assert "contains different messages at 1 offset," in wrong["message"]


def test_messages_cut_out_of_a_file_qualify_what_is_called_complete(spark: SparkSession, tmp_path: Path) -> None:
    """Also where only some tables are looked at; what is in quarantine is there, and a whole file reports nothing."""
    lines = gzip.decompress(golden("messages_canal-json-tidb_small.jsonl.gz").read_bytes()).splitlines()[:600]
    of_0 = [line for line in lines if json.loads(line)["partition"] == 0]
    damaged = json.dumps(json.loads(of_0[20]) | {"value": "e30="}).encode()
    files = {
        "cut": [*of_0[:50], *of_0[53:]],
        "whole": of_0,
        "damaged": [*of_0[:20], damaged, *of_0[21:30], *of_0[31:]],
    }
    for name, kept in files.items():
        (tmp_path / f"{name}.jsonl").write_bytes(b"\n".join(kept) + b"\n")
    at = json.loads(of_0[0])["offset"]
    said = {}
    for name, sample in (("cut", None), ("whole", None), ("damaged", None), ("cut", Sample(("Fin_Ops.Ledger",)))):
        with closing(ticdc_lab.open(str(tmp_path / f"{name}.jsonl"), spark=spark, sample=sample)) as log:
            gaps = [limit for limit in log.limits if "of the offsets" in limit]
            said[name, sample is None] = gaps, log.watermarks().finding, log.transactions().finding
            if name == "damaged":
                again = log.change_log.materialise(str(tmp_path / "again"))
                assert again.counts == log.counts and again.limits == log.limits
    assert said["whole", True][0] == [] and not any("data" in words for words in said["whole", True][1:])
    for sampled in (True, False):
        (gap,), complete, torn = said["cut", sampled]
        assert f"is missing 3 of the offsets between its first and its last, in 1 place ({at + 50}..{at + 52})" in gap
        assert (
            " except for data in 3 missing offsets; " in complete and "(data in 3 missing offsets is unknown)" in torn
        )
    (gap,), complete, torn = said["damaged", True]
    assert f"is missing 1 of the offsets between its first and its last, in 1 place ({at + 30})" in gap
    assert " except for data in 1 unread message and 1 missing offset; " in complete
    assert "(data in 1 unread message and 1 missing offset is unknown)" in torn


def test_maxwell_says_which_values_its_missing_types_leave_as_they_are() -> None:
    """No row of it has a commit_ts, so no DDL shows which type a column had then."""
    assert "a FLOAT that TiCDC up to v6.5.1" in limits_of("maxwell", None, has_commit_ts=False)[-1]
    assert "FLOAT" not in limits_of("canal", None, has_commit_ts=False)[-1], "its messages name types"


@pytest.mark.parametrize(("n", "words"), [(1, "1 row change of this log {}"), (2, "2 row changes of this log {}")])
def test_one_row_change_is_spoken_of_as_one(n: int, words: str) -> None:
    """Its verb and pronouns, too."""
    known = Counts(messages=9, decoded=9, quarantined=0, events=9, undated=n, incomplete=n)
    undated, incomplete = limits_of("canal-json", known, has_commit_ts=True)
    verbs = (
        ("carries", "is", "it counts as a row", "from it,")
        if n == 1
        else ("carry", "are", "they count as rows", "from them,")
    )
    assert undated.startswith(words.format(verbs[0])) and verbs[2] in undated
    assert incomplete.startswith(words.format(verbs[1])) and verbs[3] in incomplete

"""A sample keeps its promise, shows what it cannot prove, and is never itself the reason for a finding."""

from __future__ import annotations

import pytest
from conftest import events_frame, golden
from pyspark.sql import SparkSession
from tiny_logs import ddl, mark, row

from ticdc_lab import load
from ticdc_lab.audit import audit, checks_possible
from ticdc_lab.errors import ContractError, ProtocolError, SourceError
from ticdc_lab.events.sample import Sample, from_first_row, sample_of

MS = 1 << 18
"""One millisecond as a TSO."""

CHAIN, MOVED, HOLES = "row_images_chain", "rows_stay_in_one_partition", "offsets_are_contiguous"
BELOW_DDL, BELOW_RESOLVED = "nothing_below_ddl", "nothing_below_resolved_ts"

OPEN = str(golden("messages_open-protocol_small.jsonl.gz"))

LOG = [
    # id 1: lost change before 30 ms, sound after; id 2: lost change at 50 ms; id 3: sound, then it moves at 55 ms
    *(row(0, 0, 10 * MS), row(0, 1, 20 * MS, "update", v="3"), row(0, 2, 40 * MS, "update", v="3")),
    *(row(0, 3, 10 * MS, key="2"), row(0, 4, 35 * MS, "update", key="2"), row(0, 5, 50 * MS, "update", key="2", v="9")),
    *(row(0, 6, 10 * MS, key="3"), row(0, 7, 45 * MS, "update", key="3"), row(1, 0, 55 * MS, "update", key="3")),
    # table b: a change below the DDL before it; c by itself
    *(ddl(0, 8, 57 * MS, table="b"), ddl(1, 1, 57 * MS, table="b"), row(0, 9, 56 * MS, table="b")),
    *(row(1, 2, 12 * MS, table="c"), row(1, 3, 58 * MS, "delete", table="c")),
    # a watermark, and a change below it
    *(mark(0, 10, 60 * MS), mark(1, 4, 60 * MS), row(1, 5, 59 * MS, table="c", key="8")),
]  # fmt: skip


def errors(spark: SparkSession, sample: Sample) -> set[tuple[str, str | None, int, int]]:
    """Errors of the log's sample: guarantee, table, partition, offset."""
    events = events_frame(spark, LOG).where(sample.keeps())
    found = events.transform(audit, protocol="open-protocol", sample=sample, with_keys=False)
    return {(f.guarantee, f.table, f.partition, f.offset) for f in found.collect() if f.severity == "error"}


WHOLE = {
    *((CHAIN, "s.a", 0, 1), (CHAIN, "s.a", 0, 5), (MOVED, "s.a", 1, 0)),
    *((BELOW_DDL, "s.b", 0, 9), (BELOW_RESOLVED, "s.c", 1, 5)),
}


@pytest.mark.parametrize(
    ("sample", "left"),
    [
        (Sample(), WHOLE),
        (Sample(from_ms=30), WHOLE - {(CHAIN, "s.a", 0, 1)}),
        (Sample(from_ms=30, to_ms=52), {(CHAIN, "s.a", 0, 5)}),
        (Sample(tables=("s.a",)), {(CHAIN, "s.a", 0, 1), (CHAIN, "s.a", 0, 5), (MOVED, "s.a", 1, 0)}),
        (Sample(tables=("s.b", "s.c")), {(BELOW_DDL, "s.b", 0, 9), (BELOW_RESOLVED, "s.c", 1, 5)}),
        (Sample(partitions=(1,)), {(BELOW_RESOLVED, "s.c", 1, 5)}),
    ],
    ids=["whole", "later", "between", "table", "tables", "partition"],
)
def test_what_a_sample_finds_is_true_of_the_whole_log(
    spark: SparkSession, sample: Sample, left: set[tuple[str, str | None, int, int]]
) -> None:
    """Planted faults inside are found; that a row's change before the window is missing makes none."""
    assert errors(spark, sample) == left
    assert left <= WHOLE


def test_what_only_a_sample_could_break_is_not_checked() -> None:
    """Holes in offsets on any sample, a row's chain and DDL order where its other changes may lie elsewhere."""
    assert not any(checks_possible("open-protocol", sample=Sample()).values())
    by_time = {n for n, why in checks_possible("open-protocol", sample=Sample(from_ms=1)).items() if why}
    by_partition = {n for n, why in checks_possible("open-protocol", sample=Sample(partitions=(0,))).items() if why}
    assert by_time == {HOLES}
    assert by_partition == {HOLES, CHAIN, BELOW_DDL}


def test_the_check_would_fail_without_knowing_of_the_sample(spark: SparkSession) -> None:
    """The planted case is one: taken for the whole log, a part of its partitions breaks the chain of a row."""
    events = events_frame(
        spark, [row(0, 0, MS), row(1, 0, 2 * MS, "delete"), row(0, 1, 3 * MS), row(0, 2, 4 * MS, "update")]
    )
    part = events.where(Sample(partitions=(0,)).keeps())
    found = part.transform(audit, protocol="open-protocol", checks=[CHAIN], with_keys=False)
    assert [f.severity for f in found.collect()] == ["error"]


@pytest.mark.parametrize(
    "sample",
    [
        Sample(tables=("shop.users", "Fin_Ops.Ledger")),
        Sample(from_ms=1795211767700, to_ms=1795211768000),
        Sample(partitions=(0, 2)),
        Sample(tables=("shop.orders",), from_ms=1795211767600, partitions=(1, 3)),
    ],
)
def test_workers_and_spark_choose_the_same(spark: SparkSession, tmp_path: object, sample: Sample) -> None:
    """What the workers keep while decoding is what the column keeps afterwards, and everything read is counted."""
    whole = load(spark, OPEN)
    kept = whole.sampled(sample).materialise(f"{tmp_path}/kept", images=False)
    place = ("partition", "offset", "seq")
    expected = {tuple(r) for r in whole.sampled(sample).events.select(*place).collect()}
    assert {tuple(r) for r in kept.decoded.select(*place).collect()} == expected
    assert kept.counts is not None
    assert kept.counts.messages == 1470
    assert 0 < kept.counts.kept < 2101
    assert kept.counts.kept == kept.events.where("kind = 'row'").count()
    assert kept.events.where("kind <> 'row'").count() == kept.counts.events - 2101


def test_limits_say_what_a_sample_cannot_prove(spark: SparkSession) -> None:
    """In words, before the log's own limits; a whole log reports nothing of it."""
    log = load(spark, OPEN)
    (said,) = log.sampled(Sample(tables=("shop.users",), from_ms=0)).limits
    assert said.startswith("This is a sample: row changes of shop.users from 1970-01-01 00:00:00.000 UTC.")
    assert "what is whole across tables" in said
    assert "what a table finally contains" in said
    assert "other partitions" not in said
    assert log.sampled(Sample()) is log


def test_what_reads_the_beginning_of_a_sample_finds_its_rows(spark: SparkSession) -> None:
    """Watermarks that are over before its first row change are left out there; without a row none is."""
    log = events_frame(spark, [*(mark(0, n, n * MS) for n in range(9)), row(0, 9, 7 * MS, key="1"), ddl(0, 10, 2 * MS)])
    begun = log.transform(from_first_row)
    assert begun.columns == log.columns
    assert sorted(e.offset for e in begun.select("offset").collect()) == [7, 8, 9, 10]
    assert log.where("kind <> 'row'").transform(from_first_row).count() == 10


def test_an_empty_sample_and_a_time_without_commit_ts_are_refused(spark: SparkSession, tmp_path: object) -> None:
    """The reason is reported, and what to do."""
    nothing = load(spark, OPEN).sampled(Sample(tables=("shop.user",))).materialise(f"{tmp_path}/none", images=False)
    with pytest.raises(ProtocolError, match="none of its row changes is in the sample"):
        nothing.require_events()
    with pytest.raises(ContractError, match=r"contains only row changes of shop\.user"):
        nothing.sampled(Sample(partitions=(0,)))
    plain = load(spark, str(golden("messages_canal-json_small.jsonl.gz")))
    with pytest.raises(ProtocolError, match="a sample by time cannot be computed"):
        plain.sampled(Sample(from_ms=1))
    with pytest.raises(ContractError, match="before it begins"):
        Sample(from_ms=2, to_ms=1)


def test_a_sample_is_read_as_a_person_writes_it() -> None:
    """Tables with commas, moments in UTC or another zone or as a TSO; anything else is named."""
    assert sample_of("a.b, c.d") == Sample(tables=("a.b", "c.d"))
    assert sample_of(first="1970-01-01 00:00:02", last="1970-01-01T02:00:03+02:00") == Sample(from_ms=2000, to_ms=3000)
    assert sample_of(first="1970-01-02 UTC").from_ms == 86_400_000
    assert sample_of(last=str(470603000000000000)).to_ms == 470603000000000000 >> 18
    with pytest.raises(SourceError, match="'yesterday' is not a time"):
        sample_of(first="yesterday")

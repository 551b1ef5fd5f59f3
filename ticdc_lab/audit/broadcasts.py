"""Guarantees about watermarks and DDL, which TiCDC's owner broadcasts. They read few events and no row images.

Each is a column over :func:`log_breaches`: null, or what breaks it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from ticdc_lab.audit.breaches import BREACH, breaches
from ticdc_lab.audit.findings import evidence, placed, text
from ticdc_lab.audit.marks import log_facts
from ticdc_lab.tso import lag_s_col

DDL_IN_PARTITION_0_ONLY = frozenset({"canal-json", "canal", "csv"})
"""Protocols that send a DDL to partition 0 by design (golden README section 4); a storage folder's schema files too
(:mod:`ticdc_lab.sources.storage`)."""


def log_breaches(events: DataFrame, *, protocol: str, names: Sequence[str]) -> DataFrame:
    """Where watermarks or DDL break one of the guarantees ``names``: :data:`ticdc_lab.audit.breaches.BREACH`."""
    only_0 = protocol in DDL_IN_PARTITION_0_ONLY
    return log_facts(events).mapInArrow(_breaches(tuple(names), ddl_in_partition_0_only=only_0), BREACH)


def watermarks_are_monotone() -> Column:
    """Seed, "CDC Owner 切换": a checkpoint_ts never falls back, so a partition's watermarks never do. Repeats are
    fine.
    """
    highest = F.col("at.commit_ts")
    return placed(
        F.struct("partition", "offset", "seq", "commit_ts"),
        severity="error",
        message=text(
            "the watermark falls back by ", lag_s_col("commit_ts", now_ts=highest), " s from ", highest,
        ),
        evidence=evidence(F.col("at"), F.col("after")),
    )  # fmt: skip


def resolved_events_on_all_partitions() -> Column:
    """Seed, constraint 2.4: resolved events are broadcast to all partitions of a topic.

    Errors: a partition without any watermark while another has one, and values that a partition lacks between its first
    and last. Warnings: a partition whose watermarks start later or end earlier than the topic's, as in a recording that
    was cut, and a topic without any. A partition without any event cannot be seen.
    """
    case = F.col("case")
    what = text("partition ", F.col("partition"), " of topic ", F.col("topic"))
    several = text(F.col("n"), " watermark(s) from ", F.col("commit_ts"), " to ", F.col("upto"))
    return placed(
        F.struct("partition", "offset", "seq", "commit_ts"),
        severity=F.when(case.isin("silent", "inside"), "error").otherwise("warning"),
        message=F.when(case == "none", text("no partition of topic ", F.col("topic"), " states a watermark"))
        .when(case == "silent", text(what, " has events but no watermark at all"))
        .when(case == "inside", text(what, " lacks ", several, " that other partitions state"))
        .when(
            case == "late", text(what, " starts after ", several, ": the recording of that partition may start later")
        )
        .otherwise(text(what, " ends before ", several, ": the recording of that partition may end earlier")),
        evidence=F.when(case == "inside", evidence(F.col("at"), F.col("after"))).otherwise(evidence(F.col("at"))),
    )


def ddl_events_on_all_partitions() -> Column:
    """Seed, constraint 2.4: DDL events are broadcast to all partitions; canal and canal-json send them to partition 0
    only.

    A partition whose recorded events end before the DDL's commit_ts, or that was recorded only from later on, gives a
    warning instead of an error.
    """
    cut = F.col("case") == "cut"
    return placed(
        F.struct("partition", "offset", "seq", "commit_ts"),
        severity=F.when(cut, "warning").otherwise("error"),
        message=text(
            "partition ", F.col("partition"), " of topic ", F.col("topic"), " lacks the DDL that partition ",
            F.col("at.partition"), " holds: ", F.substring("query", 1, 100),
            F.when(cut, " (the recording of that partition does not cover it)").otherwise(""),
        ),
        evidence=evidence(F.col("at")),
    )  # fmt: skip


def ddl_events_are_in_time() -> Column:
    """Seed, "CDC Owner 逻辑": a DDL is broadcast when the resolved_ts equals its FinishedTS.

    So none follows a watermark above it in its partition: a consumer has then applied rows of the new schema. A DDL
    that a restart sends again is a warning.
    """
    again = F.col("case") == "again"
    return placed(
        F.struct("partition", "offset", "seq", "commit_ts"),
        severity=F.when(again, "warning").otherwise("error"),
        message=text(
            F.when(again, "a DDL delivered again").otherwise("a DDL"), " below resolved_ts ", F.col("at.commit_ts"),
            " follows it: ", F.substring("query", 1, 100),
        ),
        evidence=evidence(F.col("at"), F.col("after")),
    )  # fmt: skip


def offsets_are_contiguous() -> Column:
    """A broker gives each message of a partition the next offset, so a recording without holes lacks no message.

    A warning: compaction takes messages too, and what is in quarantine or was filtered out is not seen here. One
    finding a partition, at the message after the first hole; :func:`ticdc_lab.gaps.offset_gaps` lists all. Holes before
    the first message and after the last cannot be seen.
    """
    return placed(
        F.struct("partition", "offset", "seq", "commit_ts"),
        severity="warning",
        message=text(
            "partition ", F.col("partition"), " of topic ", F.col("topic"), " lacks ", F.col("n"),
            " message(s) in ", F.col("upto"), " stretch(es) of offsets, the first after ", F.col("at.offset"),
            ": compacted, in quarantine, or lost",
        ),
        evidence=evidence(F.col("at"), F.col("after")),
    )  # fmt: skip


def admin_events_on_all_partitions() -> Column:
    """Seed, "Partition 扩容与缩容": an Admin event is broadcast to all partitions, with the same number in each.

    All are those before it and those after it: a listener that never sees it waits for ever, or goes on without the
    others.
    """
    case = F.col("case")
    what = text("partition ", F.col("partition"), " of topic ", F.col("topic"))
    stated = text(F.col("upto"), " partitions in partition ", F.col("at.partition"))
    return placed(
        F.struct("partition", "offset", "seq", "commit_ts"),
        severity="error",
        message=F.when(case == "lost", text(what, " lacks the Admin event that says ", stated)).otherwise(
            text(what, " has an Admin event that says ", F.col("n"), " partitions; it says ", stated)
        ),
        evidence=F.when(case == "lost", evidence(F.col("at"))).otherwise(evidence(F.col("at"), F.col("after"))),
    )


def _breaches(
    names: tuple[str, ...], *, ddl_in_partition_0_only: bool
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        held = list(batches)
        if held:
            yield from breaches(pa.Table.from_batches(held), names, ddl_in_partition_0_only=ddl_in_partition_0_only)

    return run

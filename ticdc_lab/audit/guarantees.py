"""The guarantees of TiCDC's MQ design, section 约束, and of its Admin events. A new one: a function and an entry."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from ticdc_lab.audit import broadcasts, rows
from ticdc_lab.audit.broadcasts import Stated
from ticdc_lab.audit.findings import Event, RowFindings
from ticdc_lab.audit.history import Suspects
from ticdc_lab.events.sample import Sample


@dataclass(frozen=True, slots=True)
class Guarantee:
    """One promise of TiCDC.

    Exactly one of ``row`` and ``log`` is set: ``row`` says what breaks it in the histories of rows
    (:class:`ticdc_lab.audit.history.Suspects`), ``log`` in what the log states besides
    (:class:`ticdc_lab.audit.broadcasts.Stated`).
    """

    sentence: str
    row: Callable[[Suspects], RowFindings] | None = None
    log: Callable[[Stated], Iterator[Event]] | None = None
    needs_commit_ts: bool = True
    needs_watermarks: bool = False
    needs_history: bool = False
    needs_all_messages: bool = False
    needs_all_partitions: bool = False
    """Of the rows; those of watermarks and DDL are in every sample."""

    @property
    def name(self) -> str:
        """The statement: the name of its function."""
        check = self.row or self.log
        return check.__name__ if check else ""


GUARANTEES: dict[str, Guarantee] = {
    g.name: g
    for g in (
        Guarantee(
            "对于一行数据的变更：一定会分发在同一个 partition 中",
            row=rows.rows_stay_in_one_partition,
            needs_commit_ts=False,
        ),
        Guarantee(
            "对于一行数据的变更：大多数情况下，每一个变更只会发出一次",
            row=rows.row_images_chain,
            needs_history=True,
            needs_all_partitions=True,
        ),
        Guarantee("可能会发送重复的变更", row=rows.redeliveries_are_identical),
        Guarantee("每个变更第一次出现的次序一定是有序的（CommitTS 升序）", row=rows.first_appearances_are_ordered),
        Guarantee(
            "Resolved Event 保证任意（CommitTS < ResolvedTS）的 Row Changed Event 在 Resolved Event 之后不会出现",
            row=rows.nothing_below_resolved_ts,
            needs_watermarks=True,
        ),
        Guarantee(
            "DDL Event 保证任意（CommitTS < FinishedTS of DDL event）的 Row Changed Event 在 DDL Event 之后不会出现",
            row=rows.nothing_below_ddl,
            needs_all_partitions=True,
        ),
        Guarantee(
            "Resolved Event 会广播到所有的 partition",
            log=broadcasts.resolved_events_on_all_partitions,
            needs_watermarks=True,
        ),
        Guarantee("DDL Event 会广播到所有的 partition", log=broadcasts.ddl_events_on_all_partitions),
        Guarantee(
            "当 Kafka Partition ResolvedTS = DDL FinishedTS 时，向所有 partition 广播 DDL Event",
            log=broadcasts.ddl_events_are_in_time,
            needs_watermarks=True,
        ),
        Guarantee(
            "需要满足前提：Kafka 集群可以正常读取",
            log=broadcasts.offsets_are_contiguous,
            needs_commit_ts=False,
            needs_all_messages=True,
        ),
        Guarantee(
            "CDC 同步模型不允许 global checkpoint TS 回退",
            log=broadcasts.watermarks_are_monotone,
            needs_watermarks=True,
        ),
        Guarantee(
            "向 kafka 所有 Partition 广播 Admin Event，包含新的 Partition 数量信息",
            log=broadcasts.admin_events_on_all_partitions,
            needs_commit_ts=False,
        ),
        Guarantee(
            "通知所有 CDC Processor，Partition 数量变更",
            row=rows.rows_follow_the_partition_count,
            needs_commit_ts=False,
        ),
    )
}
"""Guarantees by name."""

WITHOUT_WATERMARKS = frozenset({"canal", "maxwell", "avro"})
"""Protocols without watermark messages."""

WITHOUT_HISTORY = frozenset({"avro"})
"""Protocols that do not tell what a change found: a row that a TRUNCATE or a delete took may be inserted again."""


def checks_possible(protocol: str, *, has_commit_ts: bool = True, sample: Sample | None = None) -> dict[str, str]:
    """Say which guarantees can be checked on a log.

    Parameters
    ----------
    protocol
        Wire protocol of the log.
    has_commit_ts
        False for canal-json without the TiDB extension, which has neither commit_ts nor watermarks.
    sample
        What of the log is looked at, None for all. A check that a sample alone could make fail is not possible on it.
        By tables or time a row keeps all its changes, or all of a stretch, so what is found there is true of the whole
        log; only that nothing was found says less.

    Returns
    -------
    dict
        Per guarantee an empty text where it can be checked, else why not.

    Examples
    --------
    >>> checks_possible("avro")["nothing_below_resolved_ts"]
    'avro has no watermark messages'
    >>> checks_possible("canal-json", has_commit_ts=False)["first_appearances_are_ordered"]
    'this log has no commit_ts, so nothing orders its changes'
    """
    marked = has_commit_ts and protocol not in WITHOUT_WATERMARKS
    some = sample is not None and not sample.is_whole
    of_partitions = sample is not None and sample.partitions is not None

    def reason(g: Guarantee) -> str:
        if g.needs_commit_ts and not has_commit_ts:
            return "this log has no commit_ts, so nothing orders its changes"
        if g.needs_history and protocol in WITHOUT_HISTORY:
            return f"{protocol} has neither old images nor DDL, and its deletes no commit_ts"
        if g.needs_all_messages and some:
            return "a sample leaves messages out, so holes in offsets say nothing"
        if g.needs_all_partitions and of_partitions:
            return "what happened to the row before may lie in a partition that the sample leaves out"
        return f"{protocol} has no watermark messages" if g.needs_watermarks and not marked else ""

    return {name: reason(g) for name, g in GUARANTEES.items()}

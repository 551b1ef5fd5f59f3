"""The change log of a workload, in a wire format, as a changefeed without faults would have written it."""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import DataFrame, SparkSession

from ticdc_lab.encode.produce import MAX_BATCH_SIZE, produce
from ticdc_lab.workload.generate import generate, marks
from ticdc_lab.workload.settings import Workload

STRATEGY, PARTITIONS = "index-value", 3


def log_of(
    spark: SparkSession,
    workload: Workload,
    *,
    protocol: str,
    strategy: str = STRATEGY,
    partitions: int = PARTITIONS,
    columns: Sequence[str] | None = None,
    topic: str = "workload",
    max_batch_size: int = MAX_BATCH_SIZE,
) -> DataFrame:
    """Write a workload as the messages of a topic.

    Parameters
    ----------
    spark, workload
        As for :func:`ticdc_lab.workload.generate`, which makes the truth of this log.
    protocol
        A name of :data:`ticdc_lab.encode.ENCODERS`; what it loses of the truth is said there.
    strategy, partitions, columns, topic, max_batch_size
        As for :func:`ticdc_lab.encode.produce.produce`. Where the strategy needs an index's definition, call that with
        a catalog.

    Returns
    -------
    DataFrame
        :data:`ticdc_lab.events.schema.MESSAGES`. The same workload gives the same messages.

    Raises
    ------
    ContractError, DispatchError, ProtocolError
        As :func:`ticdc_lab.workload.generate` and :func:`ticdc_lab.encode.produce.produce`.
    """
    resolved = marks(spark, workload).where("kind = 'watermark'").select("commit_ts").distinct()
    return produce(
        generate(spark, workload), protocol=protocol, strategy=strategy, partitions=partitions, columns=columns,
        topic=topic, max_batch_size=max_batch_size, resolved=resolved,
    )  # fmt: skip

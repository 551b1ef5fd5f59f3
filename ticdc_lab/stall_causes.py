"""Why a recorded log's resolved_ts stood, as far as the log can tell, and what it cannot.

TiCDC's owner broadcasts its checkpoint_ts to every partition, where it is the resolved_ts. A log shows rows, DDL and
watermarks, and no locks, regions or processors: each cause is a candidate with what supports it, the strongest first.
In a simulated run nothing is hidden (:mod:`ticdc_lab.simulate.pipeline.why`).
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from ticdc_lab.schema import require_columns
from ticdc_lab.stalls import stalls
from ticdc_lab.tso import lag_s_col
from ticdc_lab.watermarks import STALL_S

BIG_ROWS = 1_000
"""A transaction of as many rows between two watermarks is a big one."""

_NEAR_S = 1.0
"""So near to the standing watermark a transaction has begun that may have held it."""

CAUSES = (
    "ddl-barrier", "long-transaction", "restart", "partition-silent", "big-transaction", "rows-went-on", "silence",
)  # fmt: skip
"""Names of causes, the strongest evidence first."""


def stall_causes(
    events: DataFrame, *, stall_s: float = STALL_S, big_rows: int = BIG_ROWS, arrivals: DataFrame | None = None
) -> DataFrame:
    """Say for every stall of a log's resolved_ts what may have held it.

    Parameters
    ----------
    events
        The columns that :func:`ticdc_lab.stalls.stalls` needs, and ``query``.
    stall_s, arrivals
        As there.
    big_rows
        As :data:`BIG_ROWS`.

    Returns
    -------
    DataFrame
        The columns of :func:`ticdc_lab.stalls.stalls`; ``ddl`` (the statement at whose commit_ts the watermark stood;
        null without one); ``causes`` (array<struct<cause, says, cannot_tell>>, at least one, the strongest first):

        - ``ddl-barrier``: a DDL has exactly this commit_ts; no watermark passes it until it is executed.
        - ``long-transaction``: one began at the standing watermark and was committed after it, for longer than a stall.
        - ``restart``: lower watermarks or older rows came meanwhile: something began again from its checkpoint.
        - ``partition-silent``: others stated watermarks in between.
        - ``big-transaction``: rows of one commit_ts lie between both watermarks.
        - ``rows-went-on``: rows above the standing watermark came, so pullers and some sinks worked.
        - ``silence``: nothing came.

    Raises
    ------
    ContractError
        A column is missing.
    StreamingError
        ``events`` is a stream.

    References
    ----------
    MQ protocol seed, "CDC Owner 逻辑" (DDL when the resolved ts equals its FinishedTS); architecture seed, section 5.
    """
    require_columns(events, "query")
    found = stalls(events, stall_s=stall_s, arrivals=arrivals)
    ends = F.explode(F.array("commit_ts", F.col("commit_ts") - 1))  # the checkpoint is at it, or just below
    ddl = events.where("kind = 'ddl' AND commit_ts IS NOT NULL").select("topic", ends.alias("held_ts"), "query")
    barriers = ddl.groupBy("topic", "held_ts").agg(F.min("query").alias("ddl"))
    candidates = F.filter(F.array(*_candidates(stall_s, big_rows)), lambda c: c.isNotNull())
    return found.join(barriers, ["topic", "held_ts"], "left").withColumn("causes", candidates)


def _candidates(stall_s: float, big_rows: int) -> list[Column]:
    """One struct a cause, null where nothing supports it."""
    began, ended = F.col("longest.start_ts"), F.col("longest.commit_ts")
    long_s = lag_s_col(began, now_ts=ended)
    near = F.abs(lag_s_col(began, now_ts=F.col("held_ts"))) <= _NEAR_S
    begins_again = (F.col("n_regressed") > 0) | (F.col("n_replayed") > 0)
    big, n = F.col("biggest.rows") >= big_rows, F.col("n_rows")
    ahead_s = lag_s_col("held_ts", now_ts=F.col("newest_commit_ts"))
    first = F.concat(F.col("first.table"), F.lit(" at "), F.col("first.commit_ts"))
    return [
        _cause("ddl-barrier", F.col("ddl").isNotNull(),
               F.concat(F.lit("it stood at the commit_ts of a DDL: "), "ddl"),
               "whether it waited for tables to come to it or for the DDL to be executed"),
        _cause("long-transaction", near & (long_s > stall_s),
               F.format_string("a transaction began at %d, where it stood, and was committed %.3f s later, at %d",
                               began, long_s, ended),
               "for how much of this time it held locks"),
        _cause("restart", begins_again,
               F.format_string("%d lower watermarks and %d rows at or below it came meanwhile",
                               F.col("n_regressed"), F.col("n_replayed")),
               "whether the owner, a capture or the whole changefeed began again, and why"),
        _cause("partition-silent", ~F.col("everywhere"),
               F.format_string("the other partitions stated %d watermarks meanwhile", F.col("steps_of_others")),
               "whether the producer, the broker or the recording lost these watermarks: the owner sends them to all"),
        _cause("big-transaction", big,
               F.format_string("%d of %d rows between both watermarks are of one transaction, %d",
                               F.col("biggest.rows"), n, F.col("biggest.commit_ts")),
               "how long its prewrites took upstream, and how long the sink"),
        _cause("rows-went-on", F.col("n_above") > 0,
               F.concat(F.format_string("%d rows above it came meanwhile, up to %.3f s ahead; the lowest is of ",
                                        F.col("n_above"), ahead_s), first, _repeats()),
               "which table held it: one whose rows came late, one whose sink stood, or one without rows whose region "
               "was locked, scanned or without a leader"),
        _cause("silence", (n == 0) & F.col("everywhere"),
               F.concat(F.lit("no row and no other watermark came"), _repeats()),
               "whether upstream was idle, or the owner, the sink or the recording stood"),
    ]  # fmt: skip


def _repeats() -> Column:
    """The owner lives where it states its checkpoint again."""
    told = F.format_string("; it was stated %d times more, so the owner ran", F.col("n_repeats"))
    return F.when(F.col("n_repeats") > 0, told).otherwise("")


def _cause(name: str, supported: Column, says: Column, cannot_tell: str) -> Column:
    told = F.struct(F.lit(name).alias("cause"), says.alias("says"), F.lit(cannot_tell).alias("cannot_tell"))
    return F.when(F.coalesce(supported, F.lit(False)), told)

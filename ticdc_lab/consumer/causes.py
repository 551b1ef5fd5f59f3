"""Why a delivery is odd: sent again, by which kind of restart; written out of order; or what preceded it was lost."""

from __future__ import annotations

import pickle
from collections.abc import Sequence

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from ticdc_lab.audit.findings import FOUND, FOUND_DDL, WARNING, RowFindings, as_table, sentence
from ticdc_lab.audit.guarantees import holes
from ticdc_lab.audit.history import Shown, Suspects, judged
from ticdc_lab.audit.marks import Stated, log_marks
from ticdc_lab.consumer.episodes import KINDS, NEEDED, repeats_of, text
from ticdc_lab.consumer.episodes import judged as judged_episodes
from ticdc_lab.engine.shuffle import Batches
from ticdc_lab.events import PARTITION, POSITION
from ticdc_lab.events.arrays import Ints
from ticdc_lab.events.schema import require_batch, require_columns

CAUSES = (RESTART, TABLE, DDL, REORDERED, LOST) = (*KINDS, "reordered by the producer", "lost")


def delivery_causes(events: DataFrame) -> DataFrame:
    """Say of every delivery that is a repeat, comes late or does not follow from what came before, why that is so.

    Parameters
    ----------
    events
        The events contract; images only where the hash columns are missing. Rows without commit_ts are left out:
        nothing orders them.

    Returns
    -------
    DataFrame
        ``topic``, ``table`` (string: ``schema.table``), ``key_hash``, ``commit_ts``, ``partition``, ``offset``,
        ``seq``, ``cause`` (string, of :data:`CAUSES`), ``from_offset`` (bigint: first message of the episode, see
        :func:`ticdc_lab.consumer.episodes.delivery_episodes`; null unless it is a repeat), ``message`` (string) and
        ``evidence`` (:data:`ticdc_lab.events.schema.EVIDENCE`, the messages that show it):

        - ``replay of a restart``: sent again with all that its partitions had got since a checkpoint.
        - ``replay of a table``: sent again alone, as when a table moves or its processor dies.
        - ``replay around a DDL``: sent again with a DDL of its table.
        - ``reordered by the producer``: a first delivery behind a newer change of its row, or behind a watermark above
          it; both arrive.
        - ``lost``: the row's former change does not lead to it, so that one between them is missing (or wrong); or the
          offsets before it are missing, without table and key.

        What is delivered again in another partition is no replay; the audit names it.

    Raises
    ------
    ContractError
        A column is missing.
    StreamingError
        ``events`` is a stream.

    Notes
    -----
    Two equal rows of one transaction in a table without key look like one row delivered twice.

    References
    ----------
    MQ design, "CDC Processor 异常下线" and "Table 迁移"; TiCDC's source (what is sent again).
    """
    require_columns(events, *NEEDED)
    require_batch(events, function="delivery_causes", why="a change may be delivered again at any later offset")
    repeats = repeats_of(events)
    known = judged_episodes(repeats).select(*PARTITION, "from_offset", "episode", "cause", "sentence")
    replayed = repeats.join(F.broadcast(known), on=[*PARTITION, "from_offset"]).drop("from_offset")
    replayed = replayed.withColumnRenamed("episode", "from_offset")
    own = F.struct("partition", "offset", "commit_ts")
    first = F.struct("partition", F.col("first_offset").alias("offset"), "commit_ts")
    said = replayed.select(
        *_named(),
        "cause",
        "from_offset",
        text("first delivered at offset ", F.col("first_offset"), "; ", F.col("sentence")).alias("message"),
        F.array(first, own).alias("evidence"),
    )
    marks = log_marks(events)
    return said.unionByName(_by_row(events, marks)).unionByName(_holes(marks))


def _by_row(events: DataFrame, marks: DataFrame) -> DataFrame:
    """First deliveries that come late, and changes that the row's former change does not lead to."""
    beside = marks.select("promises")
    found = judged(events, lambda *_: _odd_deliveries, FOUND_DDL, beside=beside, has_commit_ts=True)
    named = found.selectExpr("*", "guarantee AS cause", "row_id AS key_hash")
    # a change that is behind a newer one and a watermark is late once
    best = named.groupBy(*POSITION, "table", "key_hash", "commit_ts", "cause").agg(
        F.max_by(F.struct("message", "evidence"), F.col("message")).alias("m")
    )
    return best.selectExpr(*_named(), "cause", "CAST(NULL AS BIGINT) AS from_offset", "m.message", "m.evidence")


def _odd_deliveries(s: Suspects) -> pa.RecordBatch:
    resolved = s.promises.resolved
    late = np.flatnonzero(s.keyed & (s.late >= 0))
    newer = sentence("first delivered behind the row's newer change of commit_ts ", s.c.commit_ts[late])
    marked = np.flatnonzero(s.keyed & s.first & (s.resolved >= 0))
    behind = marked[s.c.commit_ts[marked] < resolved.ts[s.resolved[marked]]]
    mark = s.resolved[behind]
    below = sentence("first delivered behind the watermark ", resolved.ts[mark])
    torn = np.flatnonzero(s.keyed & (s.broken >= 0))
    lost = sentence(
        "it does not follow from the row's former change in the log, of commit_ts ", s.c.commit_ts[s.broken[torn]],
        ": a change between them was never delivered, or one of them is wrong",
    )  # fmt: skip
    each = [
        _said(REORDERED, s, late, s.late[late], newer, [s.change(late), s.change(s.late[late])]),
        _said(REORDERED, s, behind, behind, below, [
            s.mark(behind, resolved, mark), s.change(behind)]),
        _said(LOST, s, torn, torn, lost, [s.change(s.broken[torn]), s.change(torn)]),
    ]  # fmt: skip
    return pa.concat_batches([b for t in each for b in t.to_batches()] or [pa.RecordBatch.from_pylist([], FOUND)])


def _said(cause: str, s: Suspects, by: Ints, at: Ints, message: pa.Array, shown: Sequence[Shown]) -> pa.Table:
    return as_table(cause, RowFindings(by, at, np.full(len(at), WARNING), message, shown), s)


def _holes(marks: DataFrame) -> DataFrame:
    """What offsets prove to be missing, at the first message behind each partition's first hole."""
    found = marks.select("facts").mapInArrow(_missing, FOUND_DDL)
    none = {"key_hash": "bigint", "from_offset": "bigint"}
    missing = found.withColumns({c: F.lit(None).cast(t) for c, t in none.items()})
    return missing.select(*_named(), F.lit(LOST).alias("cause"), "from_offset", "message", "evidence")


def _missing(batches: Batches) -> Batches:
    for batch in batches:
        for facts in batch["facts"]:
            found = [
                {
                    "topic": hole.home.topic,
                    **hole.high,
                    "message": f"{hole.n} message(s) before it are not in the log, in {hole.stretches} stretch(es) of "
                    "offsets",
                    "evidence": [hole.low, hole.high],
                }
                for hole in holes(Stated.read(pickle.loads(facts.as_py()), protocol=""))
            ]
            yield pa.RecordBatch.from_pylist(found, schema=FOUND)


def _named() -> tuple[str, ...]:
    return ("topic", "table", "key_hash", "commit_ts", "partition", "offset", "seq")

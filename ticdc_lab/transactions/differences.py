"""Two logs of the same changes beside each other: what is in one only, and what has other values.

For the same topic before and after an upgrade, or for what two changefeeds made of one upstream.
"""

from __future__ import annotations

import pandas as pd
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from ticdc_lab.events import POSITION, is_first
from ticdc_lab.events.schema import require_batch, require_columns
from ticdc_lab.facts.known import LogFacts
from ticdc_lab.facts.limits import first_offsets
from ticdc_lab.facts.watermarks import progress_of, topics_of
from ticdc_lab.transactions.restoring import change_id

_NAMES = ("schema_name", "table_name")
_CHANGE = ("commit_ts", *_NAMES, "op", "key_hash", "change_hash")
KINDS = ("only here", "only there", "other values", "other partition", "same")
"""What can be said of a change, in the order of how bad it is."""


def differences(events: DataFrame, *, other: DataFrame, from_ts: int, to_ts: int) -> DataFrame:
    """Pair the row changes of two logs.

    Changes are paired by table, commit_ts, operation and row key; without a key by their content. A change that was
    delivered again counts once, at its first place. It has other values if any delivery has a content that the other
    log does not have. Values are equal where the protocols spell them so.

    Parameters
    ----------
    events, other
        Events with key hashes (:data:`ticdc_lab.events.schema.EVENTS`, :data:`ticdc_lab.events.schema.KEYS`).
    from_ts, to_ts
        First and last commit_ts (TSO) that is compared: what both logs hold whole.

    Returns
    -------
    DataFrame
        One row a change: ``schema_name, table_name, commit_ts, op``, ``kind`` (one of :data:`KINDS`), ``topic,
        partition, offset`` in ``events``, ``other_topic, other_partition, other_offset`` in ``other``; null where a
        log does not have it; and ``several``: which log delivers it with several contents (``here``, ``there`` or
        ``both``; null for none).

    Raises
    ------
    StreamingError
        A frame is a stream: what is missing is known at the end only.
    """
    sides = []
    for frame, side in ((events, True), (other, False)):
        require_columns(frame, "kind", *_CHANGE, *POSITION)
        require_batch(frame, function="differences", why="what is missing can be known at the end only")
        rows = frame.where("kind = 'row'").where(F.col("commit_ts").between(from_ts, to_ts))
        at = F.struct("offset", "partition", "topic").alias("place")
        kept = (*_NAMES, "commit_ts", "op", change_id().alias("id"), at, "change_hash", F.lit(side).alias("is_here"))
        sides.append(rows.select(*kept))
    is_here, place = F.col("is_here"), F.col("place")
    first = F.min(F.when(is_here, place)).alias("here"), F.min(F.when(~is_here, place)).alias("there")
    contents = [
        of(F.when(side, F.col("change_hash"))).alias(f"{which}_{name}")
        for which, side in (("here", is_here), ("there", ~is_here))
        for name, of in (("least", F.min), ("most", F.max))
    ]
    paired = sides[0].unionByName(sides[1]).groupBy(*_NAMES, "commit_ts", "op", "id")
    here, there = F.col("here"), F.col("there")
    kind = (
        F.when(there.isNull(), KINDS[0])
        .when(here.isNull(), KINDS[1])
        .when(F.expr("here_least <> there_least OR here_most <> there_most"), KINDS[2])
        .when(here["partition"] != there["partition"], KINDS[3])
        .otherwise(KINDS[4])
    )
    places = [here[name].alias(name) for name in ("topic", "partition", "offset")]
    others = [there[name].alias(f"other_{name}") for name in ("topic", "partition", "offset")]
    several = F.expr(
        "CASE WHEN here_least <> here_most AND there_least <> there_most THEN 'both' "
        "WHEN here_least <> here_most THEN 'here' WHEN there_least <> there_most THEN 'there' END AS several"
    )
    found = paired.agg(*first, *contents)
    return found.select(*_NAMES, "commit_ts", "op", kind.alias("kind"), *places, *others, several)


def counted(pairs: DataFrame) -> DataFrame:
    """Count them by table: ``table``, and a bigint column for each of :data:`KINDS`, those that differ most first."""
    name = F.concat_ws(".", *_NAMES).alias("table")
    by_kind = [F.count_if(F.col("kind") == kind).alias(kind) for kind in KINDS]
    return pairs.groupBy(name).agg(*by_kind).orderBy(*(F.desc(f"`{kind}`") for kind in KINDS[:-1]), "table")


def worst(pairs: DataFrame, *, n: int) -> DataFrame:
    """Those that differ, the worst kind first and then in commit order; ``n`` at most."""
    rank = F.array_position(F.array(*map(F.lit, KINDS)), F.col("kind"))
    order = (rank, "commit_ts", *_NAMES, "op", "topic", "partition", "offset", "other_partition", "other_offset")
    return pairs.where(F.col("kind") != KINDS[-1]).orderBy(*order).limit(n)


def covered(facts: LogFacts) -> tuple[int, int] | None:
    """First and last commit_ts (TSO) between which a log is whole: from its first event to its resolved_ts.

    What was committed up to the first watermark of a partition that begins late may lie before its beginning, and some
    of what came later may, too, as rows go ahead of their watermark (:func:`ticdc_lab.facts.limits.begun_late`): the
    log is whole but for that. Without a watermark a log is taken as whole up to its last event. None
    for one without events.
    """
    began = [ts for ts in facts.places["commit_ts"].to_pylist() if ts is not None]
    if not began:
        return None
    progress, firsts = progress_of(facts), first_offsets(facts)
    late = [p for p in progress.to_pylist() if not is_first(firsts[p["topic"], p["partition"]])]
    several = [p["first_resolved_ts"] not in (None, p["resolved_ts"]) for p in late]
    # with one watermark, such as a storage sink's, or none only its first row tells where it begins
    behind = [
        p["first_resolved_ts"] + 1 if more else p["first_commit_ts"] or min(began)
        for p, more in zip(late, several, strict=True)
    ]
    resolved = [ts for ts in topics_of(progress)["resolved_ts"].to_pylist() if ts is not None]
    ended = [ts for ts in facts.places["last_ts"].to_pylist() if ts is not None]
    return max(behind, default=min(began)), min(resolved) if resolved else max(ended)


def ddl_differences(here: LogFacts, there: LogFacts, *, from_ts: int, to_ts: int) -> pd.DataFrame:
    """DDL statements of one log alone: ``commit_ts, query, kind``."""
    said = [
        {(d["commit_ts"], d["query"]) for d in facts.ddl.select(["commit_ts", "query"]).to_pylist()
         if d["commit_ts"] is not None and from_ts <= d["commit_ts"] <= to_ts}
        for facts in (here, there)
    ]  # fmt: skip
    rows = [(*ddl, KINDS[0]) for ddl in said[0] - said[1]] + [(*ddl, KINDS[1]) for ddl in said[1] - said[0]]
    return pd.DataFrame(sorted(rows), columns=["commit_ts", "query", "kind"])

"""Why a recorded log's resolved_ts stood, as far as the log can tell, and what it cannot.

TiCDC's owner broadcasts its checkpoint_ts to every partition, where it is the resolved_ts. A log shows rows, DDL and
watermarks, and no locks, regions or processors: each cause is a candidate with what supports it, the strongest first.
In a simulated run nothing is hidden (:mod:`ticdc_lab.simulate.pipeline.why`).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import from_arrow_type
from pyspark.sql.types import StructField, StructType

from ticdc_lab.events.schema import require_columns
from ticdc_lab.events.tso import physical_ms
from ticdc_lab.facts.stalls import require_stalls, stalls_in_us, with_times
from ticdc_lab.facts.watermarks import STALL_S

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
        The columns that :func:`ticdc_lab.facts.stalls.stalls` needs, and ``query``.
    stall_s, arrivals
        As there.
    big_rows
        As :data:`BIG_ROWS`.

    Returns
    -------
    DataFrame
        The columns of :func:`ticdc_lab.facts.stalls.stalls`; ``ddl`` (the statement at whose commit_ts the
        watermark stood; null without one); ``causes`` (array<struct<cause, says, cannot_tell>>, at least one, the
        strongest first):

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
    MQ design, "CDC Owner 逻辑" (DDL when the resolved ts equals its FinishedTS); architecture model, section 5.
    """
    require_columns(events, "query")
    require_stalls(events)
    found = stalls_in_us(events, stall_s=stall_s, arrivals=arrivals)
    ends = F.explode(F.array("commit_ts", F.col("commit_ts") - 1))  # the checkpoint is at it, or just below
    ddl = events.where("kind = 'ddl' AND commit_ts IS NOT NULL").select("topic", ends.alias("held_ts"), "query")
    barriers = ddl.groupBy("topic", "held_ts").agg(F.min("query").alias("ddl"))
    stood = found.join(barriers, ["topic", "held_ts"], "left")

    def judge(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            told = [causes_of(s, stall_s=stall_s, big_rows=big_rows) for s in batch.select(_READ).to_pylist()]
            yield pa.RecordBatch.from_pydict(
                {c: batch[c] for c in batch.schema.names} | {"causes": pa.array(told, _CAUSES)}
            )

    columns = StructType([*stood.schema.fields, StructField("causes", from_arrow_type(_CAUSES))])
    return with_times(stood.mapInArrow(judge, columns))


_READ = [
    "held_ts", "everywhere", "steps_of_others", "n_repeats", "n_regressed", "n_rows", "n_replayed", "n_above", "first",
    "newest_commit_ts", "biggest", "longest", "ddl",
]  # fmt: skip
_CAUSES = pa.list_(pa.struct([(name, pa.string()) for name in ("cause", "says", "cannot_tell")]))


def causes_of(stall: dict[str, Any], *, stall_s: float = STALL_S, big_rows: int = BIG_ROWS) -> list[dict[str, str]]:
    """What may have held one stall, the strongest first: a row of :func:`ticdc_lab.facts.stalls.stalls` and ``ddl``.

    Examples
    --------
    >>> nothing = {"n_rows": 0, "n_replayed": 0, "n_above": 0, "n_regressed": 0, "n_repeats": 0, "everywhere": True}
    >>> [c["cause"] for c in causes_of(nothing)]
    ['silence']
    """
    return [
        {"cause": name, "says": says, "cannot_tell": _CANNOT_TELL[name]}
        for name, says in (
            ("ddl-barrier", _barrier(stall)),
            ("long-transaction", _long(stall, stall_s)),
            ("restart", _restart(stall)),
            ("partition-silent", _others(stall)),
            ("big-transaction", _big(stall, big_rows)),
            ("rows-went-on", _went_on(stall)),
            ("silence", _silence(stall)),
        )
        if says
    ]


_CANNOT_TELL = {
    "ddl-barrier": "whether it waited for tables to come to it or for the DDL to be executed",
    "long-transaction": "for how much of this time it held locks",
    "restart": "whether the owner, a capture or the whole changefeed began again, and why",
    "partition-silent": (
        "whether the producer, the broker or the recording lost these watermarks: the owner sends them to all"
    ),
    "big-transaction": "how long its prewrites took upstream, and how long the sink",
    "rows-went-on": (
        "which table held it: one whose rows came late, one whose sink stood, or one without rows whose region was "
        "locked, scanned or without a leader"
    ),
    "silence": "whether upstream was idle, or the owner, the sink or the recording stood",
}


def _barrier(stall: dict[str, Any]) -> str:
    ddl = stall.get("ddl")
    return "" if ddl is None else f"it stood at the commit_ts of a DDL: {ddl}"


def _long(stall: dict[str, Any], stall_s: float) -> str:
    longest = stall.get("longest")
    if longest is None or longest["start_ts"] is None:
        return ""
    began, ended = longest["start_ts"], longest["commit_ts"]
    long_s = _lag_s(began, ended)
    if abs(_lag_s(began, stall["held_ts"])) > _NEAR_S or long_s <= stall_s:
        return ""
    return f"a transaction began at {began}, where it stood, and was committed {long_s:.3f} s later, at {ended}"


def _restart(stall: dict[str, Any]) -> str:
    lower, again = stall["n_regressed"], stall["n_replayed"]
    return f"{lower} lower watermarks and {again} rows at or below it came meanwhile" if lower or again else ""


def _others(stall: dict[str, Any]) -> str:
    if stall["everywhere"]:
        return ""
    return f"the other partitions stated {stall['steps_of_others']} watermarks meanwhile"


def _big(stall: dict[str, Any], big_rows: int) -> str:
    big = stall.get("biggest")
    if big is None or big["rows"] < big_rows:
        return ""
    n = stall["n_rows"]
    return f"{big['rows']} of {n} rows between both watermarks are of one transaction, {big['commit_ts']}"


def _went_on(stall: dict[str, Any]) -> str:
    if not stall["n_above"]:
        return ""
    ahead_s, first = _lag_s(stall["held_ts"], stall["newest_commit_ts"]), stall["first"]
    rows = f"{stall['n_above']} rows above it came meanwhile, up to {ahead_s:.3f} s ahead"
    return f"{rows}; the lowest is of {first['table']} at {first['commit_ts']}{_repeats(stall)}"


def _silence(stall: dict[str, Any]) -> str:
    quiet = not stall["n_rows"] and stall["everywhere"]
    return f"no row and no other watermark came{_repeats(stall)}" if quiet else ""


def _repeats(stall: dict[str, Any]) -> str:
    """The owner lives where it states its checkpoint again."""
    n = stall["n_repeats"]
    return f"; it was stated {n} times more, so the owner ran" if n else ""


def _lag_s(since: int, until: int) -> float:
    return (physical_ms(until) - physical_ms(since)) / 1000

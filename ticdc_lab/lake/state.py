"""What an ingestion knows after each batch: the facts of every partition, and how far all is complete."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from pyspark.sql import Row

from ticdc_lab.events.tso import physical_ms
from ticdc_lab.lake.tables import OURS, Tables, schemas

Facts = dict[str, Any]
"""A row of :func:`ticdc_lab.facts.watermarks.partition_watermarks`."""


@dataclass(frozen=True, slots=True)
class State:
    """What the table ``watermarks`` says: the facts of each partition, the last batch, how far all is complete."""

    facts: tuple[Facts, ...] = ()
    batch_id: int = -1
    complete_ts: int | None = None
    gaps: tuple[str, ...] = ()
    """Which offsets the last batch lacks, one sentence a partition."""


NOTHING_YET = State()


def next_state(before: State, new: list[Facts], batch_id: int) -> tuple[State, int | None]:
    """The state after a batch, and the lowest commit_ts of which a transaction may have changed (None: any)."""
    old = {(f["topic"], f["partition"]): f for f in before.facts}
    for fresh in new:
        at = fresh["topic"], fresh["partition"]
        old[at] = merged(old[at], fresh) if at in old else fresh
    facts = tuple(old[at] for at in sorted(old))
    complete_ts = _later(before.complete_ts, _least([f["resolved_ts"] for f in facts]))
    changed = [f["first_commit_ts"] for f in new if f["first_commit_ts"] is not None]
    lowest = None if before.complete_ts is None else min(before.complete_ts + 1, *changed, before.complete_ts + 1)
    return State(facts, batch_id, complete_ts), lowest


def merged(old: Facts, new: Facts) -> Facts:
    """Facts of one partition from those before a batch and those of the batch, which begins with the old watermark."""
    carried = old["resolved_ts"] is not None
    sums = ("n_watermarks", "n_rows", "n_ddl", "n_regressions", "n_duplicates", "n_stalls")
    most = ("resolved_ts", "last_commit_ts", "last_offset", "step_s_max")
    facts = new | {name: old[name] + new[name] for name in sums} | {n: _later(old[n], new[n]) for n in most}
    least = ("first_resolved_ts", "first_commit_ts", "first_offset")
    facts |= {name: _earlier(old[name], new[name]) for name in least}
    facts |= {"n_watermarks": facts["n_watermarks"] - carried}
    return facts | {"unresolved_s": _unresolved_s(facts["last_commit_ts"], facts["resolved_ts"])}


def read_state(tables: Tables) -> State:
    """What the last batch has left; one row a partition."""
    rows = [row.asDict() for row in tables.read("watermarks").collect()]
    last = (rows[0].pop("batch_id"), rows[0].pop("complete_ts")) if rows else (-1, None)
    facts = [{k: v for k, v in row.items() if k not in ("batch_id", "complete_ts")} for row in rows]
    return State(tuple(facts), *last)


def write_state(tables: Tables, state: State) -> None:
    """Replace the table ``watermarks``, which says that the batch is done."""
    more = {"batch_id": state.batch_id, "complete_ts": state.complete_ts}
    schema = schemas(tables.spark)["watermarks"]
    rows = [Row(**{name: (f | more)[name] for name in schema.names}) for f in state.facts]
    frame = tables.spark.createDataFrame(rows, schema).coalesce(1)
    frame.write.format("delta").mode("overwrite").option("userMetadata", OURS).save(tables.path("watermarks"))


def _least(values: list[int | None]) -> int | None:
    """The least; None as soon as one is unknown."""
    known = [v for v in values if v is not None]
    return min(known) if known and len(known) == len(values) else None


def _later(a: Any, b: Any) -> Any:
    return max((v for v in (a, b) if v is not None), default=None)


def _earlier(a: Any, b: Any) -> Any:
    return min((v for v in (a, b) if v is not None), default=None)


def _unresolved_s(last_commit_ts: int | None, resolved_ts: int | None) -> float | None:
    """As :func:`ticdc_lab.facts.watermarks.unresolved_s_col`."""
    if resolved_ts is None or last_commit_ts is None:
        return None if resolved_ts is None else 0.0
    return max((physical_ms(last_commit_ts) - physical_ms(resolved_ts)) / 1000, 0.0)

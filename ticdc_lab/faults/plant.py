"""The kinds of faults, and a plan of them carried out on a log: one broadcast join for any size."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from inspect import isfunction
from itertools import islice
from random import Random
from typing import Any

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from ticdc_lab.codecs.keys import with_hashes, with_keys
from ticdc_lab.errors import ContractError
from ticdc_lab.events import PARTITION
from ticdc_lab.events.schema import DISPATCH, EVENTS, IMAGE_HASHES, KEYS, require_batch, require_columns
from ticdc_lab.faults import images, marks, rows
from ticdc_lab.faults.plan import FaultLog, FaultPlan, PlantedFault, gone_places, layouts, with_new_places

KINDS: dict[str, Callable[[FaultLog], Iterator[FaultPlan]]] = {
    name: kind
    for module in (rows, images, marks)
    for name, kind in vars(module).items()
    if isfunction(kind) and kind.__module__ == module.__name__ and not name.startswith("_")
}
"""Kinds by name; what each does in reality is the first line of its function's documentation."""

UNSEEN = {
    "the last change of a row, lost": "nothing follows it that could show what it left",
    "the first change of a row, lost": "the row may have had a life before the log began",
    "changes of a row lost one after another, where the last restores the image that the first found": (
        "what is left chains as if nothing had happened"
    ),
    "a change lost beside a DDL of its table": "the DDL may have changed images, so none are compared across it",
    "a change of a table without key, lost": "nothing shows which row a change belongs to",
    "a DDL lost in every partition": "only the partitions that have it show that another one misses it",
    "a watermark lost in every partition": "the next one says the same and more",
    "the tail of all partitions": "a log may end anywhere",
}
"""Faults that cannot be seen in a log whose offsets were counted again, and why. No kind plants one."""

CANDIDATES = 16
"""Places, one of them taken."""


def plan_fault(log: FaultLog, kind: str, seed: int) -> PlantedFault:
    """Choose a place for a fault.

    Parameters
    ----------
    log
        What is known of the log, see :func:`ticdc_lab.faults.read_log`.
    kind
        Name from :data:`KINDS`.
    seed
        Chooses the place; equal seeds choose equal places.

    Returns
    -------
    Fault
        What to change, and the audit's findings for it. Only places where the fault shows, see :data:`UNSEEN`.

    Raises
    ------
    ContractError
        There is no such kind, or no place for it in this log.
    """
    if kind not in KINDS:
        raise ContractError(
            f"No such kind of fault: {kind}; there are {list(KINDS)}.", hint="Name one of these as `kind`."
        )
    rng = Random(f"{kind}/{seed}")
    plans = list(islice(KINDS[kind](log.shuffled(rng)), CANDIDATES))
    if not plans:
        raise ContractError(
            f"The log has no place for {kind} among the {len(log.lives)} rows that were looked at.",
            hint="Raise `rows` of `read_log()`, or take a log whose rows change more often.",
        )
    return PlantedFault.of(rng.choice(plans), kind=kind, seed=seed, topic=log.topic)


ROWS = 500
"""Rows whose lives are looked at."""

CHANGES = 1000
"""Most changes of such a row."""

_MESSAGE = (*PARTITION, "offset")
_EDITS = """
_topic string, _partition int, _gone array<struct<offset: bigint, seq: int>>,
_cut array<struct<first: bigint, last: bigint>>, _steps array<struct<at: bigint, by: bigint>>
"""


def read_log(events: DataFrame, *, seed: int = 0, rows: int = ROWS, topic: str | None = None) -> FaultLog:
    """Bring the lives of some rows, and all that is broadcast, to where faults are planned.

    Parameters
    ----------
    events
        The events contract with images.
    seed
        Chooses the rows; those with three changes or more are preferred.
    rows
        How many. Rows with more than :data:`CHANGES` changes are left out.
    topic
        Which one; by default the first by name that holds rows with a key.

    Returns
    -------
    FaultLog
        For :func:`ticdc_lab.faults.plan_fault`.

    Raises
    ------
    ContractError
        A column is missing, or no row of the topic has a key and a commit_ts.
    StreamingError
        ``events`` is a stream.
    """
    require_columns(events, *EVENTS.names)
    require_batch(events, function="read_log", why="a fault is chosen from whole lives of rows")
    known = [name for name in KEYS.names if name in events.columns]
    plain = events.select(*EVENTS.names, *known).transform(with_keys)
    if topic is not None:
        plain = plain.where(F.col("topic") == topic)
    changes = plain.where("kind = 'row' AND key_hash IS NOT NULL AND commit_ts IS NOT NULL")
    name = changes.agg(F.min("topic").alias("topic")).collect()[0]["topic"]
    if name is None:
        raise ContractError(
            "No row of the log has a key and a commit_ts.",
            hint="Take a log with keys and commit_ts, such as data/messages_canal-json-tidb_small.jsonl.gz.",
        )
    own = plain.where(F.col("topic") == name)
    found = _some_lives(own, seed=seed, rows=rows).toArrow().to_pylist()
    marked = own.where("kind IN ('watermark', 'ddl') AND commit_ts IS NOT NULL")
    marks = _with_together(own, marked).toArrow().to_pylist()
    last = own.groupBy("partition").agg(F.max("offset").alias("last")).collect()
    return FaultLog.of(name, found, marks, {r["partition"]: r["last"] for r in last})


def plant(events: DataFrame, *, kind: str, seed: int = 0) -> tuple[DataFrame, PlantedFault]:
    """Plant one fault.

    Parameters
    ----------
    events
        The events contract with images; a log without faults.
    kind
        Name from :data:`ticdc_lab.faults.KINDS`.
    seed
        Chooses the place.

    Returns
    -------
    tuple
        The log with the fault (see :func:`with_faults`), and what was planted.

    Raises
    ------
    ContractError
        A column is missing, there is no such kind, or the log has no place for it.
    """
    fault = plan_fault(read_log(events, seed=seed), kind, seed)
    return with_faults(events, [fault]), fault


def with_faults(events: DataFrame, faults: Sequence[PlantedFault]) -> DataFrame:
    """Change, take away and add the messages that faults name.

    Parameters
    ----------
    events
        The events contract, with images or with the hashes of :data:`ticdc_lab.events.schema.KEYS`.
    faults
        At most one a topic.

    Returns
    -------
    DataFrame
        The same columns without :data:`ticdc_lab.events.schema.DISPATCH`. What follows an added or removed
        message of a partition has another offset, as if the producer had written it so.
    """
    require_columns(events, "kind", *PARTITION, "offset", "seq")
    topics = [f.topic for f in faults]
    if len(set(topics)) < len(topics):
        raise ContractError(
            "Two faults lie in one topic.", hint="Plant them one after the other: `plant(plant(events, ..), ..)`"
        )
    session = events.sparkSession
    edits = F.broadcast(session.createDataFrame([e for f in faults for e in _edits(f)], _EDITS))
    here = [F.col("topic") == F.col("_topic"), F.col("partition") == F.col("_partition")]
    kept = events.drop(*DISPATCH.names).join(edits, on=here, how="left").where(~_is_gone())
    kept = kept.withColumn("offset", F.col("offset") + _moved()).drop("_topic", "_partition", "_gone", "_cut", "_steps")
    put = [e | {"topic": f.topic} for f in faults for e in with_new_places(f.plan)]
    rows = [tuple(_plain(e.get(name)) for name in EVENTS.names) for e in put]
    added = session.createDataFrame(rows, EVENTS).transform(with_hashes, KEYS, IMAGE_HASHES)
    wanted = [c for c in (*EVENTS.names, *KEYS.names, *IMAGE_HASHES.names) if c in kept.columns]
    return kept.unionByName(added.select(*wanted), allowMissingColumns=True)


def _some_lives(own: DataFrame, *, seed: int, rows: int) -> DataFrame:
    """Changes of some rows, and how many events share the message of each."""
    changes = own.where("kind = 'row' AND key_hash IS NOT NULL AND commit_ts IS NOT NULL")
    counted = changes.groupBy("key_hash").agg(F.count(F.lit(1)).alias("n")).where(F.col("n") <= CHANGES)
    chosen = counted.orderBy(F.col("n") < 3, F.xxhash64("key_hash", F.lit(seed))).limit(rows).select("key_hash")
    return _with_together(own, changes.join(F.broadcast(chosen), on="key_hash", how="left_semi"))


def _with_together(own: DataFrame, some: DataFrame) -> DataFrame:
    messages = F.broadcast(some.select(*_MESSAGE).distinct())
    sizes = own.join(messages, on=list(_MESSAGE), how="left_semi").groupBy(*_MESSAGE)
    return some.join(F.broadcast(sizes.agg(F.count(F.lit(1)).alias("together"))), on=list(_MESSAGE))


def _edits(fault: PlantedFault) -> list[tuple[Any, ...]]:
    """By partition what is gone, what is cut, and by how much offsets move; one without effect, for its type."""
    of, gone = layouts(fault.plan), gone_places(fault.plan)
    touched = {p for p, _, _ in gone} | {p for p, _, _ in fault.plan.cut} | set(of)
    return [
        (
            fault.topic,
            p,
            [(o, s) for q, o, s in gone if q == p],
            [(a, b) for q, a, b in fault.plan.cut if q == p],
            [(s["at"], s["by"]) for s in (of[p].steps() if p in of else ())],
        )
        for p in sorted(touched)
    ]


def _is_gone() -> Column:
    gone = F.exists("_gone", lambda at: (at["offset"] == F.col("offset")) & (at["seq"] == F.col("seq")))
    cut = F.exists("_cut", lambda c: F.col("offset").between(c["first"], c["last"]))
    return F.coalesce(gone | cut, F.lit(False))


def _moved() -> Column:
    """By how much the offset of a message changes."""
    before = F.transform("_steps", lambda s: F.when(s["at"] <= F.col("offset"), s["by"]).otherwise(F.lit(0)))
    total = F.aggregate(before, F.lit(0).cast("bigint"), lambda a, b: a + b)
    return F.coalesce(total, F.lit(0).cast("bigint"))


def _plain(value: Any) -> Any:
    """Structs as tuples: Spark takes dictionaries for maps."""
    if isinstance(value, list):
        return [_plain(v) for v in value]
    return tuple(value.values()) if isinstance(value, dict) else value

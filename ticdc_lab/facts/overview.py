"""What a log holds, its DDL, and its watermarks along the topic's own axis: small frames that a report shows."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame

from ticdc_lab.engine.shuffle import in_one
from ticdc_lab.facts.gathering import FACTS, PLACE, log_facts
from ticdc_lab.facts.known import LogFacts
from ticdc_lab.facts.laggards import by_topic, stated_values
from ticdc_lab.facts.schemas import CONTENTS, STATED, STATEMENTS, STEPS, TIMELINE, arrow_of, together
from ticdc_lab.facts.watermarks import timeline_of

LISTED = 200
"""Most entries of a list that a person reads."""

HELD = 20_000
"""Most groups that :func:`contents` counts."""

Batches = Iterator[pa.RecordBatch]


def contents(events: DataFrame, *, most: int = HELD) -> DataFrame:
    """Count what the log holds: per ``topic, partition, schema_name, table_name, kind, op`` a number ``n``."""
    return in_one(log_facts(events), _of_facts(lambda facts: contents_of(facts, most=most)), CONTENTS)


def contents_of(facts: LogFacts, *, most: int = HELD) -> pa.Table:
    """As :func:`contents`, of what is known of a log; the largest groups first."""
    found = facts.places.select([*PLACE, "n"])
    order = pc.sort_indices(found, [("n", "descending", "at_start"), *[(c, "ascending", "at_start") for c in PLACE]])
    return found.take(order[:most])


def ddl_list(events: DataFrame, *, most: int = LISTED) -> DataFrame:
    """List DDL events, each once: ``commit_ts, schema_name, table_name, ddl_type, query, partitions`` (array<int>)."""
    return in_one(log_facts(events), _of_facts(lambda facts: ddl_of(facts, most=most)), STATEMENTS)


def ddl_of(facts: LogFacts, *, most: int = LISTED) -> pa.Table:
    """As :func:`ddl_list`, of what is known of a log, in order of commit_ts and of the first event."""
    by = ("commit_ts", "schema_name", "table_name", "ddl_type", "query")
    partitions: dict[tuple[object, ...], set[int]] = {}
    for *said, partition in zip(*[facts.ddl[c].to_pylist() for c in (*by, "partition")], strict=True):
        partitions.setdefault(tuple(said), set()).add(partition)
    first = sorted(partitions, key=lambda said: (said[0] is not None, said[0] or 0))  # events are in order of place
    rows = [dict(zip(by, said, strict=True)) | {"partitions": sorted(partitions[said])} for said in first[:most]]
    return pa.Table.from_pylist(rows, arrow_of(STATEMENTS))


def watermark_steps(events: DataFrame, *, most: int = 500) -> DataFrame:
    """Give the watermarks along the topic's own axis, its distinct watermark values in order.

    Parameters
    ----------
    events
        ``kind, commit_ts, topic, partition`` of the events contract.
    most
        Steps per topic; where there are more, neighbours are merged and a partition stands at the last of them.

    Returns
    -------
    DataFrame
        ``topic, partition, step`` (from 1), ``step_ts`` (greatest value of the step in the topic), ``resolved_ts``
        (greatest the partition states in it), ``steps_total`` (distinct values of the topic).
    """

    def judge(stated: Batches) -> Batches:
        yield from steps_of(together(stated, STATED), most=most).to_batches()

    return in_one(stated_values(events), judge, STEPS)


def steps_of(stated: pa.Table, *, most: int = 500) -> pa.Table:
    """As :func:`watermark_steps`, of :func:`ticdc_lab.facts.laggards.values_of`."""
    found = [arrow_of(STEPS).empty_table()]
    for topic, values in by_topic(stated):
        steps = np.unique(np.concatenate(list(values.values())))
        total = len(steps)
        step_of = np.ceil(np.arange(1, total + 1) * min(total, most) / max(total, 1)).astype(np.int32)
        own = []
        for partition, ts in values.items():
            step = step_of[np.searchsorted(steps, ts)]
            last = np.flatnonzero(np.append(np.diff(step) > 0, True)[: len(step)])
            own.append(np.stack([np.full(len(last), partition), step[last], ts[last]]))
        partition, step, resolved = np.concatenate(own, axis=1)
        order = np.lexsort((partition, step))
        upto = steps[np.searchsorted(step_of, step[order], side="right") - 1]
        of = {"topic": pa.array([topic] * len(order), pa.string()), "partition": partition[order], "step": step[order],
              "step_ts": upto, "resolved_ts": resolved[order], "steps_total": np.full(len(order), total)}  # fmt: skip
        found.append(pa.table(of).cast(arrow_of(STEPS)))
    return pa.concat_tables(found)


def incidents(events: DataFrame, *, most: int = LISTED) -> DataFrame:
    """List those of :func:`ticdc_lab.facts.watermarks.watermark_timeline` that regressed or came after a stall."""
    return in_one(log_facts(events), _of_facts(lambda facts: incidents_of(facts, most=most)), TIMELINE)


def incidents_of(facts: LogFacts, *, most: int = LISTED) -> pa.Table:
    """As :func:`incidents`, of what is known of a log, in order of partition and offset."""
    marks = timeline_of(facts)
    return marks.filter(pc.or_(marks["regressed"], marks["stalled"]))[:most]


def _of_facts(answer: Callable[[LogFacts], pa.Table]) -> Callable[[Batches], Batches]:
    def judge(facts: Batches) -> Batches:
        yield from answer(LogFacts.read(together(facts, FACTS))).combine_chunks().to_batches()

    return judge

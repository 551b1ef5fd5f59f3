"""From a loaded log to small frames: everything a figure or a report shows, in bounded size.

What is known of the whole log comes from :class:`ticdc_lab.facts.LogFacts`, gathered in one pass. A second pass counts
rows over time, a third restores transactions, and each sends some hundred rows; all else is judged here, on pandas
frames whose bigints stay exact (``Int64``).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from ticdc_lab.audit import events_at, places_of
from ticdc_lab.codecs.kernel.arrow import arrow_schema
from ticdc_lab.codecs.kernel.numbering import KINDS
from ticdc_lab.dispatch.evenness import gini
from ticdc_lab.engine.columns import least
from ticdc_lab.engine.shuffle import spark_order
from ticdc_lab.events import POSITION
from ticdc_lab.events.sample import Sample
from ticdc_lab.events.schema import DECODED, FINDINGS
from ticdc_lab.facts.laggards import early_ends, values_of
from ticdc_lab.facts.limits import Counts
from ticdc_lab.facts.overview import (
    LISTED,
    LOAD,
    Load,
    Measure,
    Unresolved,
    contents_of,
    counted_load,
    counted_unresolved,
    ddl_of,
    incidents_of,
    steps_of,
)
from ticdc_lab.facts.places import NAMED_BY, with_places
from ticdc_lab.facts.schemas import arrow_of
from ticdc_lab.facts.watermarks import partitions_of, rhythm_of
from ticdc_lab.sources.change_log import ChangeLog
from ticdc_lab.transactions import known_places, of_restored, restored_here, restored_transactions
from ticdc_lab.transactions.digest import DIGEST, Digest, digested
from ticdc_lab.words import lane_of

AT_ONCE = 300_000
"""Messages of a log that is audited, and whose changes are all compared, without being asked: more take seconds."""

POINTS = 2_000
"""Most points of a picture, about."""

TOLD = 300
"""Characters of a message that are shown."""

FOUND = 500
"""Most findings of a guarantee."""

REASONS = "error_class string, n bigint, topic string, partition int, offset bigint, reason string"
"""What :func:`quarantine_reasons` gives."""

_EXACT = {pa.int64(): pd.Int64Dtype(), pa.int32(): pd.Int64Dtype(), pa.bool_(): pd.BooleanDtype()}


@dataclass(frozen=True, slots=True)
class Summary:
    """What a report shows of a log; every frame is small.

    Attributes
    ----------
    source, protocol, has_commit_ts, limits, counts, by_topic, sample, lost, carried, of_storage
        As of :class:`ticdc_lab.sources.change_log.ChangeLog`.
    contents, ddl, quarantine, partitions, tables, steps, incidents, transaction_totals, transactions, load,
    load_by_table, findings, messages
        What :func:`contents_of`, :func:`ddl_of`, :func:`quarantine_reasons`,
        :func:`ticdc_lab.facts.watermarks.partition_watermarks`, :func:`ticdc_lab.facts.watermarks.table_watermarks`,
        :func:`steps_of`, :func:`incidents_of`, :class:`ticdc_lab.transactions.digest.Digest` (twice),
        :meth:`ticdc_lab.facts.overview.Load.over_time` (twice, each with the ``unevenness`` of all lanes),
        :func:`ticdc_lab.audit.audit` and :func:`finding_messages` give. Those that need commit_ts are empty where the
        log has none.
    unjudged
        Guarantees that cannot be judged on the log, or not for all rows, with the reason: known once audited.
    early_ends
        :func:`ticdc_lab.facts.laggards.early_ends`.
    made_from
        How the log can be loaded again, see :class:`ticdc_lab.sources.origin.Origin`.
    suspects
        Transactions beside a gap in offsets, of :func:`ticdc_lab.transactions.suspects`; None where no offset is
        missing, or gaps were not searched. Then ``transactions`` has them all, with the partitions of their gaps in
        ``gap_partitions``.
    """

    source: str
    protocol: str
    has_commit_ts: bool
    limits: tuple[str, ...]
    counts: Counts | None
    contents: pd.DataFrame
    ddl: pd.DataFrame
    quarantine: pd.DataFrame
    load: pd.DataFrame = field(default_factory=pd.DataFrame)
    load_by_table: pd.DataFrame = field(default_factory=pd.DataFrame)
    findings: pd.DataFrame = field(default_factory=lambda: pd.DataFrame(columns=FINDINGS.names))
    partitions: pd.DataFrame = field(default_factory=pd.DataFrame)
    tables: pd.DataFrame = field(default_factory=pd.DataFrame)
    steps: pd.DataFrame = field(default_factory=pd.DataFrame)
    incidents: pd.DataFrame = field(default_factory=pd.DataFrame)
    transaction_totals: pd.DataFrame = field(default_factory=pd.DataFrame)
    transactions: pd.DataFrame = field(default_factory=pd.DataFrame)
    messages: pd.DataFrame = field(default_factory=pd.DataFrame)
    suspects: pd.DataFrame | None = None
    made_from: Mapping[str, Any] | None = None
    sample: Sample | None = None
    early_ends: tuple[str, ...] = ()
    lost: Collection[str] = ()
    carried: Collection[str] = ()
    unjudged: Mapping[str, str] = field(default_factory=dict)
    of_storage: bool = False
    by_topic: Mapping[str, Counts] = field(default_factory=dict)

    @property
    def lane(self) -> str:
        """What its messages lie in: partitions of a topic, or streams of a storage sink's files."""
        return lane_of(self.of_storage)


def is_small(counts: Counts | None) -> bool:
    """Whether a log has at most :data:`AT_ONCE` messages."""
    return counts is not None and counts.messages <= AT_ONCE


def small(df: DataFrame) -> pd.DataFrame:
    """Bring a small frame to the driver with exact integers."""
    return exact(df.toArrow())


def exact(table: pa.Table) -> pd.DataFrame:
    """A small table with exact integers, also inside of lists, where beside a null they would become floats."""
    return table.to_pandas(types_mapper=_EXACT.get, integer_object_nulls=True)


def of_facts(log: ChangeLog) -> dict[str, Any]:
    """The part of a :class:`Summary` that one pass over the log gives: what it is, what it holds, its watermarks."""
    facts = log.facts
    stated = values_of(facts) if log.has_commit_ts else None
    told = {
        "source": log.source,
        "protocol": log.protocol,
        "has_commit_ts": log.has_commit_ts,
        "limits": log.limits,
        "counts": log.counts,
        "by_topic": log.by_topic,
        "sample": log.sample,
        "lost": log.lost,
        "carried": log.facts.carried,
        "of_storage": log.of_storage,
        "made_from": log.made_from,
        "contents": exact(contents_of(facts)),
        "ddl": exact(ddl_of(facts)),
        "quarantine": _quarantined(log),
    }
    if stated is None:
        return told
    steps = steps_of(stated, most=max(20, POINTS // max(1, len(facts.homes))))
    partitions = partitions_of(facts, stall_s=rhythm_of(facts).stall_s)  # what is a stall to `why`
    rows_to = {(p["topic"], p["partition"]): p["last_commit_ts"] for p in partitions.to_pylist()}
    return told | {
        "partitions": exact(partitions),
        "steps": exact(steps),
        "incidents": exact(incidents_of(facts)),
        "early_ends": early_ends(stated, rows_to=rows_to),
    }


def _quarantined(log: ChangeLog) -> pd.DataFrame:
    if log.is_whole:
        return exact(arrow_of(REASONS).empty_table())  # the log would be read once more for nothing
    if (found := log.refused_firsts()) is None:
        return small(log.quarantine.transform(quarantine_reasons))
    ordered = found.sort_by([("n", "descending"), ("error_class", "ascending")])[:LISTED]
    return exact(ordered.select(arrow_of(REASONS).names))


def of_load(log: ChangeLog) -> dict[str, pd.DataFrame]:
    """The part of a :class:`Summary` that counting rows over time gives."""
    measure, files = Measure.of(log.facts), log.files
    form = pa.schema([(name, pa.int64()) for name in ("place", *measure.read)])
    with log.reading():
        if files is None:
            counted = counted_load(log.events, measure).toArrow()
        else:
            counted = files.rows((*NAMED_BY, *measure.read), with_places, form).found(measure.counted, LOAD)
        load = Load.read(measure, counted)
    return {
        name: exact(load.over_time(of)).assign(unevenness=gini(load.rows_of_each(of)))
        for name, of in (("load", "home"), ("load_by_table", "table"))
    }


def of_tables(log: ChangeLog) -> dict[str, pd.DataFrame]:
    """The part of a :class:`Summary` that shows how far each table is resolved; nothing without commit_ts."""
    if not log.has_commit_ts:
        return {}
    unresolved = Unresolved.of(log.facts)
    if unresolved.above is None:
        return {"tables": exact(unresolved.read(None)[:POINTS])}
    with log.reading():
        if (files := log.files) is not None:
            counted = files.rows((*NAMED_BY, "commit_ts"), with_places, _BEHIND).found(unresolved.counted, _COUNTED)
        else:
            counting = counted_unresolved(log.events, unresolved)
            counted = None if counting is None else counting.toArrow()
    return {"tables": exact(unresolved.read(counted)[:POINTS])}


_BEHIND = pa.schema([("place", pa.int64()), ("commit_ts", pa.int64())])
_COUNTED = pa.schema([("number", pa.int64()), ("n", pa.int64())])


def of_transactions(log: ChangeLog, *, suspects: pd.DataFrame | None = None) -> dict[str, pd.DataFrame | None]:
    """The part of a :class:`Summary` that restoring transactions gives; the log needs commit_ts."""
    places = partial(known_places, log.facts, lambda: log.events)
    with log.reading():
        if (files := log.files) is not None and not files.by_spark:
            here = places(here=True)
            assert isinstance(here, pa.Table)
            found = restored_here(files, digested, arrow_of(DIGEST), places=here)
        else:
            found = of_restored(log.events, digested, DIGEST, places=places(), files=files).toArrow()
    digest = Digest.read(found)
    drawn = exact(digest.sample)
    if suspects is not None and len(suspects):
        homes = suspects.groupby("commit_ts")["partition"].agg(lambda of: sorted(set(of)))
        asked = log.events.where(F.col("commit_ts").isin([*map(int, homes.index)]))
        own = restored_transactions(asked, places=places())
        own = own.orderBy("commit_ts", "start_ts").select(*drawn.columns)
        drawn = pd.concat([small(own), drawn[~drawn["commit_ts"].isin(homes.index)]])
        drawn = drawn.assign(gap_partitions=[homes.get(ts, []) for ts in drawn["commit_ts"]]).reset_index(drop=True)
    return {"transaction_totals": exact(digest.totals), "transactions": drawn, "suspects": suspects}


def finding_messages(events: pa.Table) -> pd.DataFrame:
    """Show the messages that findings are about, an event a row, in order.

    Returns: ``topic, partition, offset, seq, kind, commit_ts, table`` (``schema.table``), ``op`` and ``what`` (the
    columns after the change, with those that an update changed as they were before it; or the statement; cut).
    """
    rows = []
    for e in events.take(spark_order(events, POSITION)).to_pylist():
        old, new = (
            None
            if e[image] is None
            else [f"{c['name']}={'NULL' if c['value'] is None else c['value']}" for c in e[image]]
            for image in ("before", "columns")
        )
        changed = [] if old is None or new is None else [cell for cell in old if cell not in {*new}]
        values = None if (cells := old if new is None else new) is None else ", ".join(cells)
        what = (
            (f"before: {', '.join(changed)}; after: {values}" if changed else values)
            if e["query"] is None
            else (e["query"])
        )
        table = ".".join(filter(None, (e["schema_name"], e["table_name"])))
        own = {"table": None if e["schema_name"] is None else table, "what": None if what is None else what[:TOLD]}
        rows.append([(e | own)[c] for c in _MESSAGE.names])
    return exact(pa.Table.from_pylist([dict(zip(_MESSAGE.names, r, strict=True)) for r in rows], _MESSAGE))


_MESSAGE = arrow_of(
    "topic string, partition int, offset bigint, seq int, kind string, commit_ts bigint, table string, op string, "
    "what string"
)
_READ = (*POSITION, "kind", "commit_ts", "schema_name", "table_name", "op", "columns", "before", "query")


def messages_of_findings(log: ChangeLog, findings: pd.DataFrame) -> pd.DataFrame:
    """The messages that the first findings name."""
    listed = findings.head(LISTED).to_dict("records")
    named = {p for f in listed for p in places_of(f)}
    messages = finding_messages(named_events(log, named)) if named else pd.DataFrame()
    if messages.empty or messages["topic"].nunique() == 1:
        return messages
    at, kept = [*messages[["partition", "offset"]].itertuples(index=False, name=None)], set[int]()
    for f in listed:
        own = {*places_of(f)}
        kept |= {*of_its_topic(messages[[place in own for place in at]], f).index}
    return messages.loc[sorted(kept)].reset_index(drop=True)


def of_its_topic(messages: pd.DataFrame, finding: Mapping[Any, Any]) -> pd.DataFrame:
    """Messages at a finding's places, without messages of other topics. Evidence that only another topic has stays: a
    row may have moved from there.
    """
    own = messages["topic"] == finding.get("topic")
    if own.all() or not own.any():
        return messages
    place = ["partition", "offset", "commit_ts"]
    there = {*messages.loc[own, place].dropna().itertuples(index=False, name=None)}
    evidence = {tuple(e[c] for c in place) for e in finding["evidence"] if e["commit_ts"] is not None} - there
    other = [at in evidence for at in messages[place].itertuples(index=False, name=None)]
    return messages[own.to_numpy() | np.array(other)]


def named_events(log: ChangeLog, named: set[tuple[int, int]]) -> pa.Table:
    """The events at some partitions and offsets, with the images of rows."""
    if (files := log.files) is None:
        return events_at(log.events, sorted(named)).select(*_READ).toArrow()
    form, near = arrow_schema(DECODED), np.array(sorted({offset for _, offset in named}), np.int64)

    def asked(events: pa.Table) -> pa.Table:
        places = zip(events["partition"].to_pylist(), events["offset"].to_pylist(), strict=True)
        return events.filter(pa.array([place in named for place in places], pa.bool_()))

    form = pa.schema([form.field(name) for name in _READ])
    return files.rows(_READ, asked, form, near=(near, near), kinds=KINDS).found(lambda batches: batches, form)


def quarantine_reasons(quarantine: DataFrame, *, most: int = LISTED) -> DataFrame:
    """Count quarantined messages by ``error_class``: ``n`` and the first one's ``topic, partition, offset, reason``."""
    first = least("topic", "partition", "offset", "seq", "reason").alias("first")
    counted = quarantine.groupBy("error_class").agg(F.count(F.lit(1)).alias("n"), first)
    fields = [F.col("first")[c].alias(c) for c in ("topic", "partition", "offset", "reason")]
    return counted.select("error_class", "n", *fields).orderBy(F.desc("n"), "error_class").limit(most)

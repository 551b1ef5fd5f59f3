"""From a loaded log to small frames: everything a figure or a report shows, in bounded size.

What is known of the whole log comes from :class:`ticdc_lab.facts.LogFacts`, gathered in one pass. A second pass counts
rows over time, a third restores transactions, and each sends some hundred rows; all else is judged here, on pandas
frames whose bigints stay exact (``Int64``).
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from ticdc_lab.audit import GUARANTEES, audited, events_at, places_of
from ticdc_lab.audit.contradicted import defined_in, rules_given, with_contradictions
from ticdc_lab.audit.run import CHAIN
from ticdc_lab.codecs.decode import FRAMED
from ticdc_lab.codecs.plain.named import VERSION_BYTES, frames
from ticdc_lab.dispatch.best_rule import CAUSES
from ticdc_lab.dispatch.fitting import TABLE
from ticdc_lab.dispatch.hashing import UNNAMED_ROW
from ticdc_lab.dispatch.infer import Table, move_causes_at_once, moved_tables, partition_counts
from ticdc_lab.dispatch.own_names import OwnNames
from ticdc_lab.dispatch.zones import IN_UTC, ZoneShown, in_server_zone, shown_zone
from ticdc_lab.engine.columns import least
from ticdc_lab.events.arrays import Batches
from ticdc_lab.events.sample import Sample
from ticdc_lab.events.schema import FINDINGS
from ticdc_lab.facts.laggards import early_ends, values_of
from ticdc_lab.facts.limits import Counts
from ticdc_lab.facts.overview import (
    HELD,
    LISTED,
    Load,
    Measure,
    Unresolved,
    contents,
    contents_of,
    counted_load,
    counted_unresolved,
    ddl_list,
    ddl_of,
    incidents,
    incidents_of,
    steps_of,
    watermark_steps,
)
from ticdc_lab.facts.places import NAMED_BY, with_places
from ticdc_lab.facts.schemas import arrow_of
from ticdc_lab.facts.watermarks import partitions_of
from ticdc_lab.settings import MATCH
from ticdc_lab.settings.file import is_zone
from ticdc_lab.sources.change_log import ChangeLog
from ticdc_lab.sources.parquet import StoredEvents
from ticdc_lab.tables.checksum_findings import verify_checksums, zones_of_all
from ticdc_lab.transactions import known_places, of_restored, restored_here, restored_transactions
from ticdc_lab.transactions.digest import DIGEST, Digest, digested, transaction_sample, transaction_totals
from ticdc_lab.words import in_lanes, lane_of, some_of

POINTS = 2_000
"""Most points of a picture, about."""

TOLD = 300
"""Characters of a message that are shown."""

FOUND = 500
"""Most findings of a guarantee."""

REASONS = "error_class string, n bigint, topic string, partition int, offset bigint, reason string"
"""What :func:`quarantine_reasons` gives."""

HAVE_A_TABLE = "rows_have_a_table"
"""The guarantee about definitions that needs no values."""

CHECKSUMMED = ("simple", "avro")
"""Protocols that carry checksums of rows."""

__all__ = [
    "CHECKSUMMED", "FOUND", "HELD", "LISTED", "POINTS", "TOLD", "Summary", "contents", "ddl_list", "exact",
    "finding_messages", "incidents", "messages_of_findings", "of_facts", "of_findings", "of_load", "of_tables",
    "of_transactions", "quarantine_reasons", "small", "summarise", "transaction_sample", "transaction_totals",
    "watermark_steps",
]  # fmt: skip

_EXACT = {pa.int64(): pd.Int64Dtype(), pa.int32(): pd.Int64Dtype(), pa.bool_(): pd.BooleanDtype()}


@dataclass(frozen=True, slots=True)
class Summary:
    """What a report shows of a log; every frame is small.

    Attributes
    ----------
    source, protocol, has_commit_ts, limits, counts, sample, lost, carried, of_storage
        As of :class:`ticdc_lab.sources.change_log.ChangeLog`.
    contents, ddl, quarantine, partitions, tables, steps, incidents, transaction_totals, transactions, load,
    load_by_table, findings, messages
        What :func:`contents`, :func:`ddl_list`, :func:`quarantine_reasons`,
        :func:`ticdc_lab.facts.watermarks.partition_watermarks`, :func:`ticdc_lab.facts.watermarks.table_watermarks`,
        :func:`watermark_steps`, :func:`incidents`, :func:`transaction_totals`, :func:`transaction_sample`,
        :meth:`ticdc_lab.facts.overview.Load.over_time` (twice), :func:`ticdc_lab.audit.audit` and
        :func:`finding_messages` give. Those that need commit_ts are empty where the log has none.
    unjudged
        Guarantees that cannot be judged on the log, or not for all rows, with the reason: known once audited.
    early_ends
        :func:`ticdc_lab.facts.laggards.early_ends`.
    made_from
        How the log can be loaded again, see :class:`ticdc_lab.sources.change_log.Origin`.
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

    @property
    def lane(self) -> str:
        """What its messages lie in: partitions of a topic, or streams of a storage sink's files."""
        return lane_of(self.of_storage)


def small(df: DataFrame) -> pd.DataFrame:
    """Bring a small frame to the driver with exact integers."""
    return exact(df.toArrow())


def exact(table: pa.Table) -> pd.DataFrame:
    """A small table with exact integers, also inside of lists, where beside a null they would become floats."""
    return table.to_pandas(types_mapper=_EXACT.get, integer_object_nulls=True)


def summarise(log: ChangeLog, *, causes: DataFrame | None = None, audited: bool = True) -> Summary:
    """Aggregate a log into all the small frames of a report.

    Parameters
    ----------
    log
        A materialised log; a lazy one is decoded once per frame.
    causes
        As for :func:`ticdc_lab.audit.audit`; by default from :func:`ticdc_lab.dispatch.infer.move_causes`.
    audited
        False leaves ``findings`` empty: the audit takes as long as all else; see :func:`of_findings`.

    Returns
    -------
    Summary
        Small pandas frames: contents, watermarks, transactions, findings, ..
    """
    found = of_findings(log, causes=causes) if audited else {"findings": pd.DataFrame(columns=FINDINGS.names)}
    timed = of_transactions(log) if log.has_commit_ts else {}
    parts = of_facts(log) | of_load(log) | of_tables(log) | timed
    return Summary(**parts, **found, messages=messages_of_findings(log, found["findings"]))


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
    return told | {
        "partitions": exact(partitions_of(facts)),
        "steps": exact(steps),
        "incidents": exact(incidents_of(facts)),
        "early_ends": early_ends(stated),
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
    measure, stored = Measure.of(log.facts), log.stored
    form = pa.schema([(name, pa.int64()) for name in ("place", *measure.read)])
    rows = log.events if stored is None else stored.rows((*NAMED_BY, *measure.read), with_places, form)
    with log.reading():
        load = Load.read(measure, counted_load(rows, measure).toArrow())
    return {"load": exact(load.over_time("home")), "load_by_table": exact(load.over_time("table"))}


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
    places = known_places(log.facts, lambda: log.events)
    with log.reading():
        if (files := log.files) is not None and log.stored is None and isinstance(places, pa.Table):
            found = restored_here(files, digested, arrow_of(DIGEST), places=places)
        else:
            found = of_restored(log.events, digested, DIGEST, places=places, stored=log.stored).toArrow()
    digest = Digest.read(found)
    drawn = exact(digest.sample)
    if suspects is not None and len(suspects):
        homes = suspects.groupby("commit_ts")["partition"].agg(lambda of: sorted(set(of)))
        own = restored_transactions(log.events.where(F.col("commit_ts").isin([*map(int, homes.index)])), places=places)
        drawn = pd.concat([small(own.select(*drawn.columns)), drawn[~drawn["commit_ts"].isin(homes.index)]])
        drawn = drawn.assign(gap_partitions=[homes.get(ts, []) for ts in drawn["commit_ts"]]).reset_index(drop=True)
    return {"transaction_totals": exact(digest.totals), "transactions": drawn, "suspects": suspects}


def finding_messages(events: DataFrame, *, places: Sequence[tuple[int, int]]) -> DataFrame:
    """Give the messages that findings are about, an event a row, in order.

    Parameters
    ----------
    events
        The events contract.
    places
        Partition and offset of each, see :func:`ticdc_lab.audit.places_of`.

    Returns
    -------
    DataFrame
        ``topic, partition, offset, seq, kind, commit_ts, table`` (``schema.table``), ``op`` and ``what`` (the columns
        after the change, or the statement; cut).
    """
    image = F.coalesce("columns", "before")
    values = F.transform(image, lambda c: F.concat(c["name"], F.lit("="), F.coalesce(c["value"], F.lit("NULL"))))
    told = F.substring(F.coalesce("query", F.array_join(values, ", ")), 1, TOLD).alias("what")
    of_table = F.when(F.col("table_name") != "", F.col("table_name"))
    table = F.when(F.col("schema_name").isNotNull(), F.concat_ws(".", "schema_name", of_table)).alias("table")
    found = events_at(events, places)
    return found.select("topic", "partition", "offset", "seq", "kind", "commit_ts", table, "op", told)


def messages_of_findings(log: ChangeLog, findings: pd.DataFrame) -> pd.DataFrame:
    """The messages that the first findings name; of a log that was decoded without images none."""
    events = log.events
    named = {p for f in findings.head(LISTED).to_dict("records") for p in places_of(f)}
    if not named or not {"columns", "before"} <= set(events.columns):
        return pd.DataFrame()
    return small(events.transform(finding_messages, places=sorted(named)))


def of_findings(log: ChangeLog, *, causes: DataFrame | None = None, most: int = FOUND) -> dict[str, Any]:
    """The part of a :class:`Summary` that an audit gives: of each guarantee the ``most`` first findings.

    ``causes`` as above. Where the protocol carries checksums of rows, they are verified as well.
    """
    zones = list[ZoneShown]()
    with log.reading():
        moved = moved_tables(log.stored, log.facts) if log.stored is not None and causes is None else set()
        told = audited(
            lambda: log.events, log.facts, lambda: _move_causes(log, moved, zones) if causes is None else causes,
            protocol=log.protocol, has_commit_ts=log.has_commit_ts, max_per_guarantee=most, sample=log.sample,
            stored=log.stored, files=log.files, quarantine=None if log.is_whole else lambda: log.quarantine,
            refused=None if log.is_whole else log.refused_offsets(empty=False), moves=bool(moved), lost=log.lost,
            settings=log.settings,
        )  # fmt: skip
    found, unjudged = exact(told.findings), dict(told.unjudged)
    if log.counts is not None and log.counts.parts and (found["guarantee"] == CHAIN).any():
        found = _with_empty_rows(found, log)
    if not log.has_images:
        why = "the log was opened without the values of its rows"
        unjudged |= dict.fromkeys((n for n, g in GUARANTEES.items() if g.image and n != HAVE_A_TABLE), why)
    for zone in zones:
        one = {"guarantee": MATCH, "severity": "warning", "message": zone.words, "cause": zone.words, "evidence": []}
        found = pd.concat([found, pd.DataFrame([dict.fromkeys(found.columns) | one]).astype(found.dtypes.to_dict())])
    if log.protocol in CHECKSUMMED:
        found = pd.concat([found, _checksums(log, most)]).reset_index(drop=True)
    if any(s.source != "bytes" for s in log.settings.known):
        found = pd.concat([found, _contradicted(log, found)]).reset_index(drop=True)
    if log.of_storage:
        said = {c: [m and in_lanes(m, lane_of(True)) for m in found[c]] for c in ("message", "cause")}
        found = found.assign(**said)
    return {"findings": found, "unjudged": unjudged}


def _move_causes(log: ChangeLog, moved: Collection[Table], zones: list[ZoneShown]) -> pa.Table | DataFrame:
    """Why rows moved. TiCDC hashes TiDB's names. The answer contains the names in the rows.

    ``moved``: tables with a row that is known to have moved. ``zones`` gets the time zone of TiCDC's server where it
    explains what no rule does without it.
    """
    names = OwnNames.in_log(log, defined_in(log.facts)) if log.protocol in FRAMED else None
    if names is None or not names.defined:
        return _causes_in(lambda: log.events, log, moved, zones, files=log.files)
    events = names.given_to(log)
    unnamed = events.where(F.col(UNNAMED_ROW).isNotNull()).select(*TABLE).distinct()
    named = events.where(F.col(UNNAMED_ROW).isNull()).drop(UNNAMED_ROW)
    causes = names.as_written(_causes_in(lambda: named, log, (), zones))
    said = [t | {"may_be": _BY_UNKNOWN_NAMES} for t in unnamed.toArrow().to_pylist()]
    if not said:
        return causes
    if isinstance(causes, pa.Table):
        return pa.concat_tables([causes, pa.Table.from_pylist(said, causes.schema)])
    return causes.unionAll(log.events.sparkSession.createDataFrame(pa.Table.from_pylist(said, arrow_of(CAUSES))))


_BY_UNKNOWN_NAMES = "names of TiDB which the log does not show"


def _causes_in(
    events: Callable[[], DataFrame], log: ChangeLog, moved: Collection[Table], zones: list[ZoneShown], *,
    files: StoredEvents | None = None,
) -> pa.Table | DataFrame:  # fmt: skip
    """As :func:`_move_causes`, by the names in ``events``."""
    given = rules_given(log.facts, log.settings)
    causes = move_causes_at_once(events, log.facts, files=files, moved=moved, given=given)
    if log.protocol not in IN_UTC or not isinstance(causes, pa.Table):
        return causes
    unexplained = (
        causes.filter(pc.or_(pc.is_valid(causes["tried"]), pc.is_valid(causes["may_be"]))).select(TABLE).to_pylist()
    )
    tables = [tuple(r[c] for c in TABLE) for r in unexplained]
    zone = None if not tables else shown_zone(
        events(), tables, partitions=partition_counts(log.facts), given=given
    )  # fmt: skip
    if zone is None:
        return causes
    zones.append(zone)
    if not (name := zone.name):
        return causes
    return move_causes_at_once(lambda: in_server_zone(events(), name), log.facts, moved=moved, given=given)


def _with_empty_rows(found: pd.DataFrame, log: ChangeLog) -> pd.DataFrame:
    """The findings; for a broken chain, with its table's row changes `{}`: one may be the lost one.

    Their keys in the message name the table; packed messages are not searched.
    """
    assert log.unread is not None
    rows = log.unread.where("error_class = 'empty-row'").select("partition", "offset", "key", "value")
    empty = small(rows.mapInArrow(_empty_rows, _EMPTY_ROWS).distinct())  # never the values, which may be many
    places: dict[str, dict[str, None]] = {}
    for partition, offset, table in sorted(empty.itertuples(index=False, name=None)):
        places.setdefault(table, {})[f"partition {partition} offset {offset}"] = None
    said = [
        f"{f['message']}; a row change of this table, which may be the lost one, is `{{}}`: "
        f"{some_of([*places[f['table']]])}"
        if f["guarantee"] == CHAIN and f["table"] in places else f["message"]
        for f in found[["guarantee", "table", "message"]].to_dict("records")
    ]  # fmt: skip
    return found.assign(message=pd.Series(said, index=found.index, dtype=found["message"].dtype))


_EMPTY_ROWS = "partition int, offset bigint, table string"


def _empty_rows(batches: Batches) -> Batches:
    for batch in batches:
        found = []
        for m in batch.to_pylist():
            for of, row in zip(frames(m["key"], VERSION_BYTES), frames(m["value"], 0), strict=False):
                if m["value"][slice(*row)].strip() == b"{}":
                    named = json.loads(m["key"][slice(*of)])
                    found.append((m["partition"], m["offset"], ".".join(str(named.get(n)) for n in ("scm", "tbl"))))
        form = arrow_of(_EMPTY_ROWS)
        yield from pa.Table.from_pylist([dict(zip(form.names, one, strict=True)) for one in found], form).to_batches()


def _contradicted(log: ChangeLog, found: pd.DataFrame) -> pd.DataFrame:
    """Given settings that the log contradicts, or that TiCDC does not apply, as findings."""
    with log.reading():
        known = with_contradictions(
            log.events, log.facts, log.settings, protocol=log.protocol, has_partitions=not log.of_storage
        )
    said = [("warning", c.words, c.shows) for c in known.contradictions] + [("info", n, []) for n in known.notes]
    rows = [
        dict.fromkeys(found.columns, pd.NA)
        | {"guarantee": MATCH, "severity": severity, "message": words, "cause": words, "table": None, "key": None}
        | {"evidence": shows}
        for severity, words, shows in said
    ]
    return pd.DataFrame(rows, columns=found.columns).astype(found.dtypes.to_dict())


def _checksums(log: ChangeLog, most: int) -> pd.DataFrame:
    """Findings of row checksums, in the zone of the server as far as it is known.

    Timestamps are the only values that depend on it. If another zone explains errors, and contradicts no row that fits
    the known one, that is one finding; what it does not explain stays an error.
    """
    known = str(log.settings.value("time-zone") or "UTC").split(", ")[0]
    zone = known if is_zone(known) else "UTC"

    def found_in(zone: str) -> pd.DataFrame:
        differ = log.events.transform(verify_checksums, time_zone=zone).select(*FINDINGS.names)
        return small(differ.orderBy("severity", "partition", "offset").limit(most))

    def images(found: pd.DataFrame) -> Counter[tuple[Any, ...]]:
        """Of errors: their place first."""
        wrong = found[found["severity"] == "error"]
        return Counter(zip(*[wrong[c] for c in ("partition", "offset", "table")], strict=True))

    found = found_in(zone)
    errors = found[found["severity"] == "error"]
    known_to = errors.iloc[-1][["partition", "offset"]].to_list() if len(errors) == most else None
    for meant in zones_of_all(errors["message"]):
        again = found_in(meant)
        explained, contradicted = images(errors) - images(again), images(again) - images(errors)
        if explained and not any(known_to is None or [*image[:2]] < known_to for image in contradicted):
            n = f"{'at least ' * (known_to is not None)}{explained.total()} row image{'s' * (explained.total() != 1)}"
            words = _OTHER_ZONE.format(n=n, meant=meant, zone=zone)
            one = errors.head(1).assign(severity="warning", message=words, cause=words, table=None, key=None)
            return pd.concat([one, again])
    return found


_OTHER_ZONE = (
    "the checksums of {n} match timestamps in the zone {meant}, not {zone}, and no other values differ: "
    "the TiCDC server ran there. Read with `--option time-zone={meant}`"
)


def quarantine_reasons(quarantine: DataFrame, *, most: int = LISTED) -> DataFrame:
    """Count quarantined messages by ``error_class``: ``n`` and the first one's ``topic, partition, offset, reason``."""
    first = least("topic", "partition", "offset", "seq", "reason").alias("first")
    counted = quarantine.groupBy("error_class").agg(F.count(F.lit(1)).alias("n"), first)
    fields = [F.col("first")[c].alias(c) for c in ("topic", "partition", "offset", "reason")]
    return counted.select("error_class", "n", *fields).orderBy(F.desc("n"), "error_class").limit(most)

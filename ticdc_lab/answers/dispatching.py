"""Where another dispatcher, or a changefeed file, would have put each event."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal

import pandas as pd
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from ticdc_lab.answers.answer import Answer
from ticdc_lab.answers.summary import exact, small
from ticdc_lab.answers.what_if import (
    OF_STORAGE,
    not_measured,
    rules,
    rules_of,
    what_if,
    with_recorded,
    without_partitions,
)
from ticdc_lab.audit.contradicted import rules_given, with_contradictions
from ticdc_lab.codecs.registry import FRAMED, require_written
from ticdc_lab.dispatch import alignments, dispatch, key_update_counts, read_changefeed, shared_topics, topic_balance
from ticdc_lab.dispatch.changefeed import naming
from ticdc_lab.dispatch.checks import check_selectors, unreached
from ticdc_lab.dispatch.dispatching import ADDED
from ticdc_lab.dispatch.fitting import EXPLAINED
from ticdc_lab.dispatch.infer import infer_rules, names_upstream, partition_counts, rules_in_files
from ticdc_lab.dispatch.names import CONFLICT, UNNAMED_ROW, check_partitions, check_request
from ticdc_lab.dispatch.other_names import other_name_words
from ticdc_lab.dispatch.own_names import OwnNames
from ticdc_lab.dispatch.routing import Upstream, routes, sources_of, target_of
from ticdc_lab.dispatch.rules import topic_of
from ticdc_lab.dispatch.settings import dispatched, keys_in, tables_in
from ticdc_lab.dispatch.sweep_kernel import MOST
from ticdc_lab.dispatch.whatif import CONFLICT_AT, WhatIf
from ticdc_lab.dispatch.zones import IN_UTC, ZoneShown, in_server_zone, shown_zone
from ticdc_lab.encode import encoder
from ticdc_lab.encode.export import write
from ticdc_lab.encode.produce import produce, write_topic
from ticdc_lab.engine import counted
from ticdc_lab.engine.choosing import BYTES_A_ROW, size_bytes
from ticdc_lab.engine.sessions import require_room_to_sort
from ticdc_lab.errors import ContractError, DispatchError, TiCDCLabError
from ticdc_lab.errors.redaction import shown_source
from ticdc_lab.errors.whole_files import local_path
from ticdc_lab.events.schema import EVENTS
from ticdc_lab.facts.definitions import table_text
from ticdc_lab.settings import Settings
from ticdc_lab.settings.detected import of_rules, of_zone
from ticdc_lab.words import count, percent

if TYPE_CHECKING:
    import pandas as pd

    from ticdc_lab.dispatch import Changefeed
    from ticdc_lab.facts.catalog import Catalog
    from ticdc_lab.log import Log
    from ticdc_lab.sources.stored import StoredEvents

AS_THEY_LIE = "Every message counts: a row change that was sent twice counts twice."
_ERRORS, _WHY = 100, "dispatch_error"


def moved(
    events: DataFrame, out: str | None, *, strategy: str | None, changefeed: Changefeed | None, partitions: int,
    catalog: Catalog, index: str | None = None, columns: Sequence[str] | None = None,
    flavour: Literal["new", "classic"] = "new", topics: bool = False, alignments_out: str | None = None,
) -> Answer:  # fmt: skip
    """Count and write the events by the partition that they would have.

    One of ``strategy`` and ``changefeed`` is given.

    ``events``: the events contract. ``out``, ``alignments_out``: as for :func:`ticdc_lab.encode.export.write`; None for
    nowhere. Alignments come from the strategy ``conflict``. ``strategy``, ``changefeed``, ``partitions``, ``index``,
    ``columns``, ``flavour``: as for :func:`ticdc_lab.dispatch.dispatch` and
    :func:`ticdc_lab.dispatch.settings.dispatched`. ``catalog``: definitions of the tables. ``topics``: also how evenly
    each topic of the changefeed is filled.
    """
    by_conflict = (strategy or "").lower() == CONFLICT
    said: list[str] = []
    if changefeed is not None:
        said, sources = _as_ticdc_acts(events, changefeed, catalog)
        placed = dispatched(
            events, changefeed=changefeed, partitions=partitions, flavour=flavour, catalog=catalog, sources=sources
        )
    else:
        placed = dispatch(
            events, strategy=strategy or "", partitions=partitions, index=index, flavour=flavour,
            columns=None if columns is None else [*columns], catalog=catalog,
        )  # fmt: skip
    named = ["target_topic"] if changefeed is not None else ["alignment"] if by_conflict else []
    rows = placed.where("kind = 'row'")
    by = ["target_topic", "target_partition"] if topics else ["target_partition"]
    counts = small(rows.groupBy(*by, "dispatch_error").count())
    if columns is not None:
        _require_any(counts, columns)
    if out:
        write(placed.select(*EVENTS.names, *ADDED, *named), out)
    load, failed = (counts.groupby(c, as_index=False, dropna=c is _WHY)["count"].sum() for c in (by, _WHY))
    frames = {
        "load": load.sort_values(by, na_position="first", ignore_index=True),
        "errors": failed.rename(columns={"count": "rows"}).head(_ERRORS),
    }
    values: dict[str, Any] = {"out": out}
    details = [*said, AS_THEY_LIE]
    details += [f"{count(e.rows, 'row')}: {e.dispatch_error}" for e in frames["errors"].itertuples()]
    if by_conflict:
        barriers = events.transform(alignments, partitions=partitions, catalog=catalog)
        if alignments_out:
            write(barriers.repartition(1).sortWithinPartitions("table", "alignment"), alignments_out)
        frames["alignments"] = small(barriers.groupBy("table", "reason").count().orderBy("table", "reason"))
        details.append("All partitions wait for an alignment; alignments by ddl cost nothing extra.")
    if changefeed is not None and topics:
        frames["topics"] = small(placed.transform(topic_balance, partitions=partitions).orderBy("target_topic"))
        values["shared"] = _shared(rows, changefeed)
        details += [f"{' and '.join(tables)} meet in the topic {topic}" for topic, tables in values["shared"].items()]
    if changefeed is not None and changefeed.raw:
        values["key_updates"] = _key_updates(events, catalog)
        details += _of_key_updates(values["key_updates"])
    finding = _finding(frames["load"], by, partitions)
    return Answer("dispatch", "Where would each event be?", finding, frames, (), details, values)


def _as_ticdc_acts(
    events: DataFrame, changefeed: Changefeed, catalog: Catalog
) -> tuple[list[str], Mapping[tuple[str, str], Upstream]]:
    """What TiCDC does with this file and these tables that it does not seem to ask for; where names are targets.

    Raises DispatchError: TiCDC refuses it: a column selector drops a key, or a column that rows are dispatched by.
    """
    tables, rules, exact = tables_in(events), changefeed.rules, changefeed.case_sensitive
    sources = sources_of(rules, tables, case_sensitive=exact) if routes(rules) else {}
    upstream = {t: sources[t].table or t if t in sources else t for t in tables}
    said = [*changefeed.notes, *unreached(rules, [*upstream.values()], case_sensitive=exact)]
    said += [s.why for t, s in sources.items() if s.table != t]
    targets = {t: target_of(rules, t, case_sensitive=exact) for t, s in sources.items() if s.table == t}
    if routed := [f"{table_text(*t)} (to {table_text(*to)})" for t, to in targets.items() if to != t]:
        more = f" and {len(routed) - 1} more" if len(routed) > 1 else ""
        said.append(
            f"Messages carry names upstream that the rules route to others: {routed[0]}{more}. The log was recorded "
            "without this routing; rows go where their names upstream send them."
        )
    if not changefeed.dispatch_old_value:
        said.append(
            "Without old values TiCDC sends no delete of a table without handle key, and a delete and an insert for an "
            "update of a handle key: the rows are counted so."
        )
    if changefeed.selectors:
        keys = {upstream[t]: k for t, k in keys_in(events, tables, catalog).items()}
        with naming(changefeed.name):
            check_selectors(changefeed.selectors, rules, keys, case_sensitive=exact)
    return said, sources


def produced(n: int, out: str, *, protocol: str, partitions: int, lost: Mapping[str, str]) -> Answer:
    """Report what was written as a new topic, and what its protocol drops: name to why."""
    words = f"{count(n, 'message')} of {protocol} in {count(partitions, 'partition')}: {out}."
    details = [f"{protocol} does not keep {name}: {why}" for name, why in lost.items()]
    values = {"out": out, "to": protocol, "written": n, "lost": dict(lost)}
    return Answer("produce", "What does the new topic contain?", words, {}, (), details, values)


def _finding(load: pd.DataFrame, by: Sequence[str], partitions: int) -> str:
    """How many rows go where, and how many nowhere."""
    placed = load.dropna(subset=["target_partition"])
    n, lost = int(placed["count"].sum()), int(load["count"].sum() - placed["count"].sum())
    nowhere = f"{count(lost, 'row change')} cannot be dispatched." if lost else ""
    if not n:
        return nowhere or "The log has no row change, so nothing is dispatched."
    topics = placed["target_topic"].nunique() if "target_topic" in by else 1
    used, where = placed["target_partition"].nunique(), count(partitions, "partition")
    if topics > 1:
        where += f" of each of {topics} topics"
    elif used < partitions:
        where = f"{used:,} of {where}"
    most = percent(placed["count"].max(), n)
    return f"{count(n, 'row change goes', 'row changes go')} to {where}; the fullest takes {most}. {nowhere}".strip()


def _require_any(counts: pd.DataFrame, columns: Sequence[str]) -> None:
    """Refuse columns by which not one row change is placed: no table has them."""
    why = counts["dispatch_error"]
    if len(why) and why.notna().all():
        raise DispatchError(
            f"No row change of the log can be dispatched by the columns {', '.join(columns)}: {why.min()}.",
            hint="List the columns of a table: ticdc-lab table SOURCE --table SCHEMA.TABLE",
        )


def _shared(rows: DataFrame, changefeed: Changefeed) -> dict[str, list[str]]:
    """Tables that meet in one topic by accident."""
    names = small(rows.select("schema_name", "table_name").distinct())
    tables = [(str(s), str(t)) for s, t in zip(names["schema_name"], names["table_name"], strict=True)]
    topics = [topic_of(changefeed.rules, *t, case_sensitive=changefeed.case_sensitive) for t in tables]
    return shared_topics(tables, topics)


def _key_updates(events: DataFrame, catalog: Catalog) -> dict[str, int]:
    """How many deletes and inserts became updates again, and how many may be halves of one but were left."""
    counts = key_update_counts(events, catalog=catalog)
    names = [c for c in counts.columns if c != "table"]
    total = small(counts.agg(*[F.coalesce(F.sum(c), F.lit(0)).alias(c) for c in names]))
    return {name: int(total[name].iloc[0]) for name in names}


def _of_key_updates(total: dict[str, int]) -> list[str]:
    joined = sum(total[c] for c in ("same_key", "only_pair", "equal_rest"))
    left = total["maybe_one"] + total["ambiguous"]
    return [
        f"{count(joined, 'pair')} of delete and insert joined to updates of keys;",
        f"{left:,} deletes and inserts may be halves of one, and were left as they are",
    ]


# Asked of a log.

_HINTS = 8
"""Most tables without a rule that are tried under another name."""

_NAMELESS = "their messages name no table, as avro's deletes from tables without a primary key"
_UNDATED = "their messages have no commit_ts, as avro's deletes without `avro-include-before-value`"
"""Why row changes are left out of what is written in commit order by table."""


def ask_what_if(log: Log, *, partitions: int | None) -> Answer:
    """As of :meth:`ticdc_lab.log.Log.what_if`."""
    if partitions is not None:
        check_partitions(partitions)
    if not log.has_commit_ts:
        return not_measured(log.limits)
    if log.change_log.of_storage and partitions is None:
        return without_partitions(log.source)
    recorded, limits = log.recorded_partitions()
    if log.change_log.of_storage:
        limits = [f"{OF_STORAGE.capitalize()}: the comparison is for a topic of these tables."]
    rules = found_rules(log) if has_dispatcher(log) else None
    limits = [*limits, *measured_rows(log)[2]]
    return what_if(log.measured, partitions=partitions or recorded, rules=rules, limits=limits)


def ask_dispatch(
    log: Log, out: str | None, *, strategy: str | None, partitions: int | None, changefeed: Changefeed | str | None,
    sink_uri: str | None, columns: Sequence[str] | None, flavour: Literal["new", "classic"], **how: Any,
) -> Answer:  # fmt: skip
    """As of :meth:`ticdc_lab.log.Log.dispatch`."""
    if isinstance(changefeed, str):
        changefeed = read_changefeed(changefeed, sink_uri=sink_uri, flavour=flavour)
    n = partitions if partitions is not None or changefeed is None else changefeed.partitions
    if (strategy is None) == (changefeed is None) or n is None:
        raise ContractError("Give a strategy or a changefeed, and how many partitions there are.")
    check_partitions(n)
    if strategy is not None:
        check_request(strategy, n, None if columns is None else [*columns])
    raw = changefeed is not None and (changefeed.raw or any(r.partition == "ts" for r in changefeed.rules))
    if raw or (strategy or "").lower() in ("ts", CONFLICT):
        log.change_log.require_commit_ts("dispatch by ts or conflict, or updates of keys that are not split")
    log.change_log.require_room("dispatch")
    events, catalog, limits = _by_own_names(log)
    answer = moved(
        events, out, strategy=strategy, changefeed=changefeed, partitions=n, catalog=catalog, columns=columns,
        flavour=flavour, **how,
    )  # fmt: skip
    if log.change_log.of_storage:
        limits = [*limits, f"{OF_STORAGE.capitalize()}: the count is for a topic of these tables."]
    return replace(answer, limits=limits)


def ask_rules(log: Log) -> Answer:
    """As of :meth:`ticdc_lab.log.Log.rules`."""
    answer = rules(found_rules(log), hints=log.once("hints", lambda: _hints(log)))
    limits = named_rows(log)[2] if log.protocol in FRAMED else []
    return replace(answer, limits=[*answer.limits, *limits])


def measured(log: Log) -> WhatIf:
    """The measures of every dispatcher."""
    log.change_log.require_commit_ts("what another dispatcher would do")
    log.change_log.require_room("what-if")
    found = log.once("measured", lambda: WhatIf.from_events(*measured_rows(log)[:2], **compared(log)))
    if not has_dispatcher(log):
        return found
    return log.once("measured, as recorded", lambda: with_recorded(found, found_rules(log)))


def has_dispatcher(log: Log) -> bool:
    """Whether its messages lie in partitions that a dispatcher chose, and the source names them."""
    return not log.change_log.of_storage and "partition" not in log.change_log.lost


def compared(log: Log) -> dict[str, Any]:
    """What a what-if measures beside the candidates that every log has: as of :meth:`WhatIf.from_events`."""
    by_columns = [(table, rule) for table, rule in rules_of(found_rules(log)).items() if rule.startswith("columns:")]
    own = {table: [rule.partition(":")[2].split(",")] for table, rule in by_columns}
    return {"columns": own, "conflict_at": sorted({*CONFLICT_AT, log.recorded_partitions()[0]})}


def known_settings(log: Log) -> Settings:
    """What is known of its changefeed's settings: of the first messages, the images of all rows, and the rules."""
    return log.once("settings", lambda: _settings(log))


def _settings(log: Log) -> Settings:
    of = log.change_log
    with of.reading():
        known = with_contradictions(
            lambda: log.events, of.facts, of.settings, protocol=log.protocol, has_partitions=not of.of_storage,
            files=of.files,
        )  # fmt: skip
    has_rules = log.recorded_partitions()[0] > 1 and not of.of_storage
    found = found_rules(log) if has_rules else pd.DataFrame()
    sure = [
        (r["schema_name"], r["table_name"], str(r["rule"]), int(r["n_rows"]))
        for r in found.to_dict("records")
        if r["table_name"]
        and r["n_rows"]
        and r["n_explained"] == r["n_rows"]
        and not r["by_chance"]
        and pd.isna(r["name_crc"])
    ]
    zone = _inferred(log)[1] if has_rules else None
    return known | of_rules(sure, tables=len(found)) | ([] if zone is None else of_zone(zone.name, zone.evidence))


def recorded_partitions(log: Log) -> tuple[int, list[str]]:
    """How many partitions the log has, and a limit if dispatchers are compared with fewer."""
    recorded = 1 + max((partition for _, partition in log.change_log.facts.homes), default=0)
    if "partition" in log.change_log.lost:
        return recorded, ["The source names no partitions, so how many the topic has is not known."]
    if recorded <= MOST:
        return recorded, []
    return MOST, [f"The log has {recorded:,} partitions; dispatchers are compared with up to {MOST}."]


def found_rules(log: Log) -> pd.DataFrame:
    """The rule of each table, as its rows show it."""
    return _inferred(log)[0]


def _inferred(log: Log) -> tuple[pd.DataFrame, ZoneShown | None]:
    """The rule of each table, and the time zone of TiCDC's server where no rule explains rows without it."""

    def find() -> tuple[pd.DataFrame, ZoneShown | None]:
        facts, settings = log.change_log.facts, log.change_log.settings
        given = rules_given(facts, settings)
        files = None if log.protocol in FRAMED else log.change_log.files

        def infer(events: DataFrame) -> pd.DataFrame:
            return small(events.transform(infer_rules, given=given).orderBy("topic", "schema_name", "table_name"))

        found = infer(named_rows(log)[0]) if files is None else exact(rules_in_files(files, facts, given=given))
        poor = found[found["n_explained"] < EXPLAINED * found["n_rows"]]
        if log.protocol not in IN_UTC or poor.empty:
            return found, None
        tables = [*poor[["topic", "schema_name", "table_name"]].itertuples(index=False, name=None)]
        events = named_rows(log)[0]
        zone = shown_zone(events, tables, partitions=partition_counts(facts), given=given)
        if zone is not None and zone.name:
            found = infer(events.transform(in_server_zone, zone=zone.name))
        return found, zone

    return log.once("inferred", find)


def _hints(log: Log) -> list[str]:
    """Of tables whose rule hashes another name, as of a table that is routed: which one."""
    found, zone = _inferred(log)
    names, said = names_upstream(log.change_log.facts), [] if zone is None else [zone.words]
    for r in found[found["name_crc"].notna()].head(_HINTS).to_dict("records"):
        own, crc = (r["schema_name"], r["table_name"]), int(r["name_crc"])
        other = other_name_words(crc, int(r["partitions"]), own=own, names=names)
        said.append(
            f"{own[0]}.{own[1]}: its rows are placed as by {r['rule']} of {other}. The changefeed may route the "
            "table (target-schema, target-table), or it was renamed: ticdc-lab dispatch "
            f"{shlex.quote(shown_source(log.source))} --changefeed FILE"
        )
    return said


def _by_own_names(log: Log) -> tuple[DataFrame, Catalog, list[str]]:
    """Its events and definitions by the names that TiDB has, as TiCDC dispatches them, and where these are unknown.

    Rows of avro may have others.
    """

    def named() -> tuple[DataFrame, Catalog, list[str]]:
        catalog = _defined(log)
        if log.protocol not in FRAMED:
            return log.events, catalog, []
        names = OwnNames.in_log(log.change_log, catalog)
        limits = names.unknown(tables_in(log.events))
        if not names.defined:
            return log.events, catalog, limits
        return names.given_to(log.change_log), catalog, limits

    return log.once("own names", named)


def named_rows(log: Log, *, undated: bool = True) -> tuple[DataFrame, Catalog | None, list[str]]:
    """The same without the rows whose table or names are not known, and without ``undated`` ones unless asked."""
    with suppress(TiCDCLabError):  # then dispatchers by index are not offered
        return log.once(f"named rows {undated}", lambda: without_unnamed(log, undated=undated))
    return log.events, None, []


def measured_rows(log: Log) -> tuple[DataFrame | StoredEvents, Catalog | None, list[str]]:
    """The same for what reads events in files, if they lie in some and have TiDB's names: then no engine runs."""
    files = None if log.protocol in FRAMED else log.change_log.files
    if files is not None:
        with suppress(TiCDCLabError):
            return files, _defined(log), []
    return named_rows(log)


def without_unnamed(log: Log, *, undated: bool) -> tuple[DataFrame, Catalog, list[str]]:
    """The same, where definitions have to be known."""
    events, catalog, limits = _by_own_names(log)
    if log.protocol not in FRAMED:
        return events, catalog, limits
    if UNNAMED_ROW not in events.columns:
        events = events.withColumn(UNNAMED_ROW, F.lit(None).cast("string"))
    row = F.col("kind") == "row"
    why = F.coalesce(
        F.col(UNNAMED_ROW),
        F.when(row & F.col("table_name").isNull(), F.lit(_NAMELESS)),
        F.when(row & F.col("commit_ts").isNull() & F.lit(not undated), F.lit(_UNDATED)),
    )
    events, n = events.withColumn(UNNAMED_ROW, why), F.count(F.lit(1)).alias("n")
    left_out = small(events.where(F.col(UNNAMED_ROW).isNotNull()).groupBy(UNNAMED_ROW).agg(n).orderBy(UNNAMED_ROW))
    said = [f"{count(n, 'row change')} left out: {why}." for why, n in left_out.itertuples(index=False)]
    return events.where(F.col(UNNAMED_ROW).isNull()).drop(UNNAMED_ROW), catalog, [*limits, *said]


def _defined(log: Log) -> Catalog:
    """The definitions by the names that TiDB has."""
    return log.once("defined", lambda: log.change_log.facts.catalog(undated=True))


def catalog_of(log: Log) -> Catalog | None:
    """The definitions by the names in its rows; None where none can be read: no dispatcher by index is offered then."""
    with suppress(TiCDCLabError):
        return log.once("catalog", lambda: _defined(log).in_rows(log.protocol))
    return None


def ask_topic(
    log: Log, out: str, *, to: str, strategy: str, partitions: int, columns: Sequence[str] | None,
    options: Mapping[str, str] | None, **how: Any,
) -> Answer:  # fmt: skip
    """As of :meth:`ticdc_lab.log.Log.produce`."""
    require_written(to)
    listed = None if columns is None else [*columns]
    check_request(strategy, partitions, listed)
    log.change_log.require_commit_ts("a topic in commit order")
    require_room_to_sort(log.change_log.spark, _written_bytes(log))
    events, catalog, limits = without_unnamed(log, undated=False)
    messages = events.transform(
        produce, protocol=to, strategy=strategy, partitions=partitions, columns=listed, catalog=catalog, **how
    )
    messages, written = counted(messages)
    write_topic(messages, out, options=options)
    answer = produced(written(), out, protocol=to, partitions=partitions, lost=dict(encoder(to).lost))
    return replace(answer, limits=limits)


def _written_bytes(log: Log) -> int:
    """Bytes of its messages, about: of a file its own, else by the rows that it has."""
    sample, n = log.change_log.sample, log.counts
    size = size_bytes(log.source) if sample is None and local_path(log.source) is not None else 0
    return size or (0 if n is None else n.events if sample is None else n.kept) * BYTES_A_ROW

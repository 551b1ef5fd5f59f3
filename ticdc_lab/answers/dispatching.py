"""Where another dispatcher, or a changefeed file, would have put each event."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from ticdc_lab.answers.answer import Answer
from ticdc_lab.answers.summary import small
from ticdc_lab.dispatch import alignments, dispatch, key_update_counts, shared_topics, topic_balance
from ticdc_lab.dispatch.changefeed import naming
from ticdc_lab.dispatch.checks import check_selectors, unreached
from ticdc_lab.dispatch.dispatching import ADDED
from ticdc_lab.dispatch.names import CONFLICT
from ticdc_lab.dispatch.routing import Upstream, routes, sources_of
from ticdc_lab.dispatch.rules import topic_of
from ticdc_lab.dispatch.settings import dispatched, keys_in, tables_in
from ticdc_lab.encode.export import write
from ticdc_lab.errors import DispatchError
from ticdc_lab.events.schema import EVENTS
from ticdc_lab.words import count, percent

if TYPE_CHECKING:
    import pandas as pd

    from ticdc_lab.dispatch import Changefeed
    from ticdc_lab.facts.catalog import Catalog

AS_THEY_LIE = "Messages are counted as they lie there: a row change that was sent twice counts twice."
_ERRORS = 100


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
    if columns is not None:
        _require_any(rows, columns)
    if out:
        write(placed.select(*EVENTS.names, *ADDED, *named), out)
    by = ["target_topic", "target_partition"] if topics else ["target_partition"]
    failed = rows.where("dispatch_error IS NOT NULL").groupBy("dispatch_error").agg(F.count(F.lit(1)).alias("rows"))
    frames = {
        "load": small(rows.groupBy(*by).count().orderBy(*by)),
        "errors": small(failed.orderBy("dispatch_error").limit(_ERRORS)),
    }
    values: dict[str, Any] = {"out": out}
    details = [*said, AS_THEY_LIE]
    details += [f"{e.rows} rows: {e.dispatch_error}" for e in frames["errors"].itertuples()]
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
    words = f"{n} messages of {protocol} in {count(partitions, 'partition')}: {out}."
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
    where = count(partitions, "partition") + (f" of each of {topics} topics" if topics > 1 else "")
    most = percent(placed["count"].max(), n)
    return f"{count(n, 'row change goes', 'row changes go')} to {where}; the fullest takes {most}. {nowhere}".strip()


def _require_any(rows: DataFrame, columns: Sequence[str]) -> None:
    """Refuse columns by which not one row change is placed: no table has them."""
    if not small(rows.where("dispatch_error IS NULL").limit(1)).empty:
        return
    why = small(rows.agg(F.min("dispatch_error").alias("why")))["why"].dropna()  # the same one each time
    if len(why):
        raise DispatchError(
            f"No row change of the log can be dispatched by the columns {', '.join(columns)}: {why.iloc[0]}.",
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
        f"{joined} pairs of delete and insert were joined to updates of keys;",
        f"{left} deletes and inserts may be halves of one, and were left as they are",
    ]

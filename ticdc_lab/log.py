"""A log that answers: open a source, ask it questions; each gives an :class:`~ticdc_lab.answers.Answer`.

What an answer needs of the log is computed once, when it is first asked for, and used by all that need it.
"""

from __future__ import annotations

import re
import shutil
import tempfile
import weakref
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from hashlib import sha256
from pathlib import Path
from threading import Lock, RLock
from typing import TYPE_CHECKING, Any, TypeVar

import duckdb
import pandas as pd
from pyspark.sql import functions as F

from ticdc_lab import answers
from ticdc_lab.answers.answer import Answer
from ticdc_lab.audit import MAX_PER_GUARANTEE
from ticdc_lab.browse import Browser, Page, TableTimeline
from ticdc_lab.catalog import Catalog, catalog_of
from ticdc_lab.change_log import ChangeLog
from ticdc_lab.consumer.narrow import excerpt
from ticdc_lab.dispatch.names import check_partitions
from ticdc_lab.dispatch.sweep_kernel import MOST
from ticdc_lab.dispatch.whatif import CONFLICT_AT, WhatIf
from ticdc_lab.engine import session
from ticdc_lab.engine.running import jobs_given_up
from ticdc_lab.errors import ContractError, SourceError, TiCDCLabError
from ticdc_lab.facts.laggards import spans_of, values_of
from ticdc_lab.facts.stall_causes import stall_causes
from ticdc_lab.facts.watermarks import STALL_S, progress_of, topics_of
from ticdc_lab.limits import but_for
from ticdc_lab.load import load
from ticdc_lab.sample import Sample, from_first_row
from ticdc_lab.summary import (
    FOUND,
    Summary,
    exact,
    findings_of,
    messages_of_findings,
    of_facts,
    of_load,
    of_transactions,
    small,
)
from ticdc_lab.tables import table_as_of, table_history
from ticdc_lab.tables.naming import table_named
from ticdc_lab.transactions import transactions

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from ticdc_lab.consumer.log import NarrowLog
    from ticdc_lab.limits import Counts

EXCERPT = 5_000
"""Events that the panel of a consumer takes, so that it answers at once."""

LAGGARDS = 1_000
"""Spans in which a partition held its topic back, at most."""

STALLS = 1_000
"""Stalls that are explained, at most."""

ROWS = 100
"""Rows of a table that are shown."""

_CAPPED = ("findings", "messages")
"""Parts of a summary that depend on how many findings are listed."""

Part = TypeVar("Part")


class Log:
    """A log that was read, and answers.

    Parameters
    ----------
    change_log
        Materialised in a local folder.
    folder
        A folder of its own, in which histories of tables and restored transactions are kept.

    Attributes
    ----------
    change_log
        Its frames, for transforms of your own.
    folder
        As given.

    Notes
    -----
    Whoever asks for a part that another thread computes waits for it.
    """

    def __init__(self, change_log: ChangeLog, folder: str | Path) -> None:
        self.change_log, self.folder = change_log, Path(folder)
        self._held: dict[str, Any] = {}
        self._locks: dict[str, RLock] = {}
        self._guard = Lock()

    # What it is

    @property
    def source(self) -> str:
        """Where it was read from."""
        return self.change_log.source

    @property
    def protocol(self) -> str:
        """Which of :data:`ticdc_lab.codecs.PROTOCOLS` wrote it."""
        return self.change_log.protocol

    @property
    def counts(self) -> Counts | None:
        """How many messages were read, decoded and put aside."""
        return self.change_log.counts

    @property
    def limits(self) -> tuple[str, ...]:
        """What it cannot prove, one sentence each."""
        return self.change_log.limits

    @property
    def events(self) -> DataFrame:
        """The events contract (:data:`ticdc_lab.schema.EVENTS`), for transforms."""
        return self.change_log.events

    @property
    def quarantine(self) -> DataFrame:
        """What could not be decoded, with reasons (:data:`ticdc_lab.schema.QUARANTINE`)."""
        return self.change_log.quarantine

    @property
    def tables(self) -> list[str]:
        """Tables (``schema.table``) of which there are rows to show.

        Raises
        ------
        SourceError
            There is none.
        """
        if not (names := self.browser.tables()):
            raise SourceError("The log holds no row change, so there is no table to show.")
        return names

    # Questions

    def contents(self) -> Answer:
        """What does it hold: rows of each table, events of each partition, DDL, and what could not be read."""
        return answers.contents(self.summary_of("facts"))

    def load(self) -> Answer:
        """Who carries the load: rows over time by partition and by table."""
        return answers.load(self.summary_of("facts", "load"))

    def watermarks(self) -> Answer:
        """How far is it complete, and who held it back: by topic, partition and table."""
        if not self.change_log.has_commit_ts:
            return answers.watermarks(self.summary_of("facts"))
        facts = self.change_log.facts
        topics, laggards = topics_of(progress_of(facts)), spans_of(values_of(facts))
        longest = exact(laggards).sort_values(
            ["steps", "topic", "partition", "first_step"], ascending=[False, True, True, True]
        )
        return answers.watermarks(
            self.summary_of("facts", "load"), topics=exact(topics).sort_values("topic"), laggards=longest.head(LAGGARDS)
        )

    def why(self, *, stall_s: float = STALL_S) -> Answer:
        """Why did its watermarks stand for more than ``stall_s`` seconds, and what cannot the log tell of it."""
        self.change_log.require_commit_ts("resolved_ts")
        found = stall_causes(self.events, stall_s=stall_s, arrivals=self.change_log.messages)
        with self.change_log.reading():
            rows = small(found.orderBy("topic", "held_ts", "everywhere").limit(STALLS))
        return answers.stalls(rows, stall_s=stall_s, qualified=but_for(self.counts))

    def transactions(self) -> Answer:
        """Which transactions are whole, which are pending and what they wait for."""
        if not self.change_log.has_commit_ts:
            return answers.transactions(self.summary_of("facts"))
        return answers.transactions(self.summary_of("facts", "transactions"))

    def audit(self, *, most: int = FOUND, messages: bool = True) -> Answer:
        """Did it keep TiCDC's promises; ``most`` findings of each guarantee are listed, with the first's messages."""
        parts = ("facts", "findings", *(("messages",) if messages else ()))
        return answers.audit(self.summary_of(*parts, most=min(most, MAX_PER_GUARANTEE)))

    def what_if(self, *, partitions: int | None = None) -> Answer:
        """What would another dispatcher do with so many partitions; by default as many as were recorded."""
        if partitions is not None:
            check_partitions(partitions)
        if not self.change_log.has_commit_ts:
            return answers.not_measured(self.limits)
        recorded, limits = self.recorded_partitions()
        return answers.what_if(self.measured, partitions=partitions or recorded, limits=limits)

    def advise(
        self, *, partitions: Sequence[int] = (1, 3, 8, 16, 32), keep: str = "unique", allow_risk: bool = False
    ) -> Answer:
        """Which dispatcher should each table have, and why; as of :func:`ticdc_lab.dispatch.advise.advise`."""
        from ticdc_lab.dispatch.advise import advise

        for n in partitions:
            check_partitions(n)
        self.change_log.require_commit_ts("advice")
        found = advise(self.events, protocol=self.protocol, partitions=[*partitions], keep=keep, allow_risk=allow_risk)
        return answers.advice(found)

    def expand(self, *, after: int, before: int | None = None, procedure: str = "seed") -> Answer:
        """What would another number of partitions, from the middle of the log on, cost and break."""
        from ticdc_lab.repartition import cost_of, examined, expand

        for n in (after, before):
            if n is not None:
                check_partitions(n)
        self.change_log.require_commit_ts("what another number of partitions does")
        place = self.folder / f"expanded-{before}-{after}-{procedure}"
        shutil.rmtree(place, ignore_errors=True)
        change = expand(self.events, after=after, before=before, procedure=procedure, catalog=self._catalog())
        change = change.kept(str(place))
        found = {part: small(frame) for part, frame in examined(change, protocol=self.protocol).items()}
        return answers.expansion(change, cost_of(change), found)

    def consumers(
        self, *, watch: str = "", slow: Mapping[int, float] | None = None, policies: Sequence[str] = ()
    ) -> Answer:
        """What ends up downstream: what consumers show on the way that upstream never had.

        Parameters
        ----------
        watch
            A numeric column whose sum over all rows is followed, such as a balance that transfers keep.
        slow
            Partition to how many times slower its listener reads; by default the fullest one is.
        policies
            Names of :data:`ticdc_lab.consumer.policy.POLICIES`; by default four of them.
        """
        from ticdc_lab.answers.consumers import SHOWN, beginning, slowed
        from ticdc_lab.consumer.invariant import measure_of
        from ticdc_lab.consumer.policy import POLICIES

        unknown = sorted({*policies} - {*POLICIES})
        if unknown:
            raise ContractError(f"There is no policy {', '.join(unknown)}; there are {', '.join(POLICIES)}.")
        if not self.change_log.has_commit_ts:
            return answers.not_ordered(self.limits)
        more = {"measure": measure_of(watch)} if watch else {}
        part, limits = self._once(f"beginning {watch}", lambda: beginning(self.change_log, more))
        missing = sorted({*(slow or {})} - {p.partition for p in part.parts})
        if missing:
            there = sorted({p.partition for p in part.parts})
            raise ContractError(f"There is no partition {missing[0]}; the log has {there}.")
        return answers.consumers(
            part, limits=limits, policies=[POLICIES[p] for p in policies] or SHOWN,
            speeds=None if slow is None else slowed(slow), watched=watch,
        )  # fmt: skip

    def table(self, name: str, *, as_of: int | None = None) -> Answer:
        """Which rows did a table (``schema.table``) have at a commit_ts (TSO); by default the log's resolved_ts."""
        schema_name, table_name = table_named(self.events, name)
        self.change_log.require_commit_ts(f"the table {name}")
        found = table_as_of(self.events, schema_name=schema_name, table_name=table_name, ts=as_of)
        rows = small(found.ordered.limit(ROWS))
        n = len(rows) if len(rows) < ROWS else found.rows.count()
        return answers.table(rows, name=name, ts=found.ts, n=n, limits=found.limits, qualified=but_for(self.counts))

    def row(self, table: str, key: str | None = None) -> Answer:
        """What happened to one row, by its key (``column=value``); by default the one that changed most."""
        if key is None:
            busiest = self.browser.busiest_keys(table, n=1)
            key = "" if busiest.empty else str(busiest["key"].iloc[0])
        return answers.row(self.browser.row_life(table, key), table=table, key=key)

    def messages(self, **which: Any) -> Answer:
        """What lies there: a page of events; ``which`` as the fields of :class:`ticdc_lab.browse.Page`."""
        return answers.messages(self.browser.page(Page(**which)))

    def sql(self, query: str) -> pd.DataFrame:
        """Ask anything in DuckDB's SQL, of ``events``, ``quarantine``, ``transactions`` and ``findings``.

        Raises
        ------
        ContractError
            DuckDB refuses the query; the message is its own.

        Examples
        --------
        >>> import ticdc_lab
        >>> log = ticdc_lab.open("data/messages_canal-json-tidb_small.jsonl.gz")
        >>> log.sql("SELECT op, count(*) AS n FROM events WHERE kind = 'row' GROUP BY op ORDER BY op")["op"].to_list()
        ['delete', 'insert', 'update']
        """
        with duckdb.connect() as connection:
            connection.execute("SET TimeZone = 'UTC'")
            self.browser.attach(connection)
            if re.search(r"\btransactions\b", query, re.IGNORECASE):
                connection.register("transactions", self._restored())
            if re.search(r"\bfindings\b", query, re.IGNORECASE):
                connection.register("findings", self.findings)
            try:
                return connection.execute(query).df()
            except duckdb.Error as refused:
                raise ContractError(
                    f"The query was refused: {refused}", hint="There are events, quarantine, transactions, findings."
                ) from None

    def close(self) -> None:
        """Forget what was computed, and remove its folder."""
        self._held.clear()
        shutil.rmtree(self.folder, ignore_errors=True)

    # What answers and panels are made of

    def holds(self, part: str) -> bool:
        """Whether a part was computed: ``facts``, ``load``, ``transactions``, ``findings``, ``browser``, .."""
        return part in self._held

    @property
    def summary(self) -> Summary:
        """All small frames but the findings."""
        parts = ("facts", "load", *(("transactions",) if self.change_log.has_commit_ts else ()))
        return self._once("summary", lambda: self.summary_of(*parts))

    @property
    def findings(self) -> pd.DataFrame:
        """What the audit finds."""
        return self.summary_of("facts", "findings").findings

    @property
    def browser(self) -> Browser:
        """Pages of messages."""
        return self._once("browser", lambda: Browser.of(self.change_log))

    @property
    def measured(self) -> WhatIf:
        """The measures of every dispatcher."""
        self.change_log.require_commit_ts("what another dispatcher would do")
        at = sorted({*CONFLICT_AT, self.recorded_partitions()[0]})
        return self._once(
            "measured", lambda: WhatIf.from_events(self.change_log.events, self._catalog(), conflict_at=at)
        )

    @property
    def excerpt(self) -> NarrowLog:
        """The first of its events in commit order, about :data:`EXCERPT` of them, as a consumer takes them."""
        self.change_log.require_commit_ts("what a consumer does")
        return self._once("excerpt", self._excerpt)

    def timeline(self, table: str) -> TableTimeline:
        """A table (``schema.table``) at any moment."""
        self.change_log.require_commit_ts(f"the table {table} as of a moment")
        return self._once(f"history {table}", lambda: self._timeline(table))

    def _once(self, name: str, make: Callable[[], Part]) -> Part:
        with self._guard:
            lock = self._locks.setdefault(name, RLock())
        with lock:
            if name not in self._held:
                self._held[name] = make()
            found: Part = self._held[name]
            return found

    def summary_of(self, *parts: str, most: int = FOUND) -> Summary:
        """A summary with some of its parts."""
        makers: dict[str, Callable[[], dict[str, Any]]] = {
            "facts": lambda: of_facts(self.change_log),
            "load": lambda: of_load(self.change_log),
            "transactions": lambda: of_transactions(self.change_log),
            "findings": lambda: {"findings": findings_of(self.change_log, most=most)},
            "messages": lambda: {"messages": messages_of_findings(self.change_log, found["findings"])},
        }
        names = {part: f"{part} {most}" if part in _CAPPED and most != FOUND else part for part in parts}
        found: dict[str, Any] = {}
        for part in parts:
            found |= self._once(names[part], makers[part])
        return Summary(**found)

    def recorded_partitions(self) -> tuple[int, list[str]]:
        """How many partitions the log has, and what must be said where dispatchers are compared with fewer."""
        recorded = 1 + max((partition for _, partition in self.change_log.facts.homes), default=0)
        if recorded <= MOST:
            return recorded, []
        return MOST, [f"The log has {recorded:,} partitions; dispatchers are compared with up to {MOST}."]

    def _timeline(self, table: str) -> TableTimeline:
        schema_name, table_name = table_named(self.events, table)
        place = str(self.folder / f"history-{sha256(table.encode()).hexdigest()}")
        history = self.events.transform(table_history, schema_name=schema_name, table_name=table_name)
        with jobs_given_up(history.sparkSession):
            history.write.mode("overwrite").parquet(place)
        return TableTimeline(place)

    def _restored(self) -> Any:
        """All transactions, kept as Parquet and read by DuckDB."""
        self.change_log.require_commit_ts("transactions")

        def write() -> str:
            place = str(self.folder / "transactions")
            self.events.transform(transactions).write.mode("overwrite").parquet(place)
            return place

        return duckdb.read_parquet(f"{self._once('restored', write)}/*.parquet").to_arrow_table()

    def _catalog(self) -> Catalog | None:
        with suppress(TiCDCLabError):  # then dispatchers by index are not offered
            return self._once("catalog", lambda: catalog_of(self.events))
        return None

    def _excerpt(self) -> NarrowLog:
        dated = self.events.where("commit_ts IS NOT NULL")
        if self.change_log.sample is not None:
            dated = dated.transform(from_first_row)
        last = dated.select("commit_ts").orderBy("commit_ts").limit(EXCERPT).agg(F.max("commit_ts")).first()
        return excerpt(dated.where(F.col("commit_ts") <= F.lit(last[0] if last else None)))

    def __str__(self) -> str:
        """What it is, how far it is complete, what it cannot tell."""
        return "\n".join([f"{self.source}: {self._lead()}", *[f"  {limit}" for limit in self.limits]])

    __repr__ = __str__

    def _lead(self) -> str:
        return f"{self.contents().finding} {answers.complete_to(self.summary_of('facts', 'load'))}"

    def _repr_html_(self) -> str:
        return Answer("log", "", self._lead(), {}, self.limits)._repr_html_()


def open(
    source: str, *, spark: SparkSession | None = None, engine: str = "auto", sample: Sample | None = None,
    folder: str | Path | None = None, images: bool = True, **how: Any,
) -> Log:  # fmt: skip
    """Open a change log: decode it once, and ask it.

    Parameters
    ----------
    source
        A recorded topic, a folder, a table, ``kafka://HOST:PORT/TOPIC``, ..; as for :func:`ticdc_lab.load.load`.
    spark
        Your own session; by default one of the engine that fits the source.
    engine
        ``auto``, ``embedded`` or ``spark``; with ``auto`` a session that is there will do.
    sample
        What of it to read; by default all.
    folder
        Where it is decoded to, a folder that does not exist yet and that stays; by default one that goes with the log.
    images
        False leaves the values of rows out: watermarks and transactions do not need them, and it takes a third.
    how
        ``protocol``, ``source_kind``, ``schema_registry``, ``claim_check``, ``settings``, ``options``, ``bounds`` of
        :func:`ticdc_lab.load.load`.

    Returns
    -------
    Log
        It shows what it is; each of its methods answers a question.

    Raises
    ------
    SourceError, ProtocolError
        There is nothing to read, or its protocol cannot be told.

    Examples
    --------
    >>> import ticdc_lab
    >>> log = ticdc_lab.open("data/messages_canal-json-tidb_small.jsonl.gz")
    >>> print(log.watermarks().finding)
    It is complete up to 2026-11-20 21:56:08.308 UTC (resolved_ts 470603993791332352), beyond which no row lies.
    """
    own = spark if spark is not None else session(engine, source=source)
    place = Path(folder) if folder is not None else Path(tempfile.mkdtemp(prefix="ticdc_lab-log-"))
    try:
        change_log = (
            load(own, source, **how).sampled(sample or Sample()).materialise(str(place / "decoded"), images=images)
        )
    except BaseException:
        if folder is None:
            shutil.rmtree(place, ignore_errors=True)
        raise
    log = Log(change_log, place)
    if folder is None:
        weakref.finalize(log, shutil.rmtree, str(place), ignore_errors=True)
    return log

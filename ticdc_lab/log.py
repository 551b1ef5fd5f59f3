"""A log that answers: open a source, ask it questions; each gives an :class:`~ticdc_lab.answers.Answer`.

What an answer needs of the log is computed once, when it is first asked for, and used by all that need it.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, closing, nullcontext
from pathlib import Path
from threading import Lock, RLock
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Literal, TypeVar

import pandas as pd

from ticdc_lab import answers
from ticdc_lab.answers.answer import Answer
from ticdc_lab.answers.audit import of_findings
from ticdc_lab.answers.summary import (
    FOUND,
    Summary,
    messages_of_findings,
    of_facts,
    of_load,
    of_tables,
    of_transactions,
)
from ticdc_lab.audit.contradicted import with_rules_noted
from ticdc_lab.consumer.replay_plan import TRANSACTION
from ticdc_lab.dispatch.whatif import WhatIf
from ticdc_lab.engine import choose, session
from ticdc_lab.errors import ContractError, SourceError
from ticdc_lab.errors.whole_files import local_path, temporary_folder
from ticdc_lab.events.ddl import literal
from ticdc_lab.events.sample import Sample
from ticdc_lab.events.schema import FINDINGS
from ticdc_lab.settings import Settings
from ticdc_lab.settings.file import options_of_source
from ticdc_lab.sources.change_log import ChangeLog
from ticdc_lab.sources.kafka import require_reachable
from ticdc_lab.sources.kafka import topics_of as kafka_topics
from ticdc_lab.sources.kafka_reading import too_large
from ticdc_lab.sources.load import load
from ticdc_lab.sources.places import is_kafka
from ticdc_lab.sources.provenance import Provenance, provenance
from ticdc_lab.sources.survey import needs_no_engine
from ticdc_lab.sources.survey import survey as look
from ticdc_lab.tables.browse import Browser, MessagePage, TableTimeline, labels_in
from ticdc_lab.transactions import transactions

if TYPE_CHECKING:
    import duckdb
    from pyspark.sql import DataFrame, SparkSession

    from ticdc_lab.consumer.listener import Listeners
    from ticdc_lab.consumer.log import NarrowLog
    from ticdc_lab.consumer.replay_plan import Batch
    from ticdc_lab.dispatch import Changefeed
    from ticdc_lab.facts.limits import Counts

EXCERPT = 5_000
"""Events that the panel of a consumer takes, so that it answers at once."""

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
    folder
        As given.

    Notes
    -----
    A caller waits for a part that another thread computes.
    """

    def __init__(self, change_log: ChangeLog, folder: str | Path) -> None:
        self._change_log, self.folder = change_log, Path(folder)
        self._is_closed = False
        self._held: dict[str, Any] = {}
        self._locks: dict[str, RLock] = {}
        self._guard = Lock()

    # What it is

    @property
    def source(self) -> str:
        """Where it was read from."""
        return self._change_log.source

    @property
    def change_log(self) -> ChangeLog:
        """Its frames, for transforms of your own.

        Raises
        ------
        ContractError
            The log was closed.
        """
        if self._is_closed:
            raise ContractError(
                f"{self.source} was closed, and what was decoded of it is gone.",
                hint="Open it again: ticdc_lab.open(..).",
            )
        return self._change_log

    @property
    def protocol(self) -> str:
        """Which of :data:`ticdc_lab.codecs.PROTOCOLS` wrote it."""
        return self.change_log.protocol

    @property
    def counts(self) -> Counts | None:
        """How many messages were read, decoded and put aside."""
        return self.change_log.counts

    @property
    def has_commit_ts(self) -> bool:
        """Whether its messages have a commit_ts; without it most questions cannot be answered."""
        return self.change_log.has_commit_ts

    @property
    def limits(self) -> tuple[str, ...]:
        """What it cannot prove, one sentence each."""
        return self.change_log.limits

    @property
    def events(self) -> DataFrame:
        """The events contract (:data:`ticdc_lab.events.schema.EVENTS`), for transforms."""
        return self.change_log.events

    @property
    def quarantine(self) -> DataFrame:
        """What could not be decoded, with reasons (:data:`ticdc_lab.events.schema.QUARANTINE`)."""
        return self.change_log.quarantine

    @property
    def tables(self) -> list[str]:
        """Tables (``schema.table``) with row changes.

        Raises
        ------
        SourceError
            There is none.
        """
        rows = self.change_log.facts.of_kind("row").select(["schema_name", "table_name"]).to_pylist()
        if not (names := {".".join(name for name in r.values() if name) for r in rows} - {""}):
            raise SourceError("The log has no row change, so there is no table to show.")
        return sorted(names)

    # Questions

    def contents(self) -> Answer:
        """What does it contain: rows of each table, events of each partition, DDL, and what could not be read."""
        return answers.contents(self.summary_of("facts"))

    def settings(self) -> Answer:
        """How was its changefeed configured: from options, its file and the bytes, with the evidence."""
        return answers.settings(self.known_settings)

    def load(self) -> Answer:
        """Who carries the load: rows over time by partition and by table."""
        return answers.load(self.summary_of("facts", "load"))

    def watermarks(self) -> Answer:
        """How far is it complete, and who held it back: by topic, partition and table."""
        return answers.ask_watermarks(self)

    def why(self, *, stall_s: float | None = None, cdc_log: Sequence[str] = ()) -> Answer:
        """Why did its watermarks stall, and what the log cannot show.

        Parameters
        ----------
        stall_s
            Seconds between two watermarks that make a stall; by default from the log's own rhythm
            (:class:`ticdc_lab.facts.watermarks.Rhythm`).
        cdc_log
            Files of TiCDC's own log, also rotated ones and ``.gz``: their lines are joined with stalls and with the
            first findings of an audit.
        """
        return answers.ask_why(self, stall_s=stall_s, cdc_log=cdc_log)

    def transactions(self, *, out: str | None = None) -> Answer:
        """Which transactions are whole, which are pending and what they wait for.

        Parameters
        ----------
        out
            Where to write all of them, see :func:`ticdc_lab.encode.export.write`; by default nowhere.
        """
        return answers.ask_transactions(self, out=out)

    def transaction(self, commit_ts: int | str | None = None) -> Answer:
        """What did one transaction change, by its commit_ts: a TSO or a time (UTC).

        By default it is the one that touches most partitions; of several in one millisecond the first.
        """
        return answers.ask_transaction(self, commit_ts)

    def audit(self, *, most: int = FOUND, messages: bool = True) -> Answer:
        """Did it keep TiCDC's promises; ``most`` findings of each guarantee are listed, with the first's messages."""
        return answers.ask_audit(self, most=most, messages=messages)

    def what_if(self, *, partitions: int | None = None) -> Answer:
        """What would another dispatcher do with so many partitions; by default as many as were recorded."""
        return answers.ask_what_if(self, partitions=partitions)

    def dispatch(
        self, out: str | None = None, *, strategy: str | None = None, partitions: int | None = None,
        changefeed: Changefeed | str | None = None, sink_uri: str | None = None, index: str | None = None,
        columns: Sequence[str] | None = None,
        flavour: Literal["new", "classic"] = "new", topics: bool = False, alignments_out: str | None = None,
    ) -> Answer:  # fmt: skip
        """Where would another dispatcher, or a changefeed file, have put each event.

        Parameters
        ----------
        out, alignments_out
            Where the events, and with the strategy ``conflict`` its alignments, go, as of
            :func:`ticdc_lab.encode.export.write`; by default nowhere.
        strategy, partitions, index, columns, flavour
            As of :func:`ticdc_lab.dispatch.dispatch`.
        changefeed
            Instead of a strategy: a changefeed file, or what :func:`ticdc_lab.dispatch.read_changefeed` made of it.
        sink_uri
            Of a changefeed file: for its number of partitions, protocol and default topic.
        topics
            Also report how evenly each topic is filled.

        Raises
        ------
        DispatchError
            The request is invalid, or names something that does not exist.
        """
        return answers.ask_dispatch(
            self, out, strategy=strategy, partitions=partitions, changefeed=changefeed, sink_uri=sink_uri, index=index,
            columns=columns, flavour=flavour, topics=topics, alignments_out=alignments_out,
        )  # fmt: skip

    def rules(self) -> Answer:
        """By which rule was each table dispatched, as detected from its rows; the best rule, even a poor one."""
        return answers.ask_rules(self)

    def advise(
        self, *, partitions: int | Sequence[int] | None = None, keep: str = "unique", allow_risk: bool = False,
        tables: Sequence[str] = (),
    ) -> Answer:  # fmt: skip
        """Which dispatcher should each table have, and why; as of :func:`ticdc_lab.dispatch.advise.advise`.

        By default with as many partitions as the log has, and beside it with some other numbers; of ``tables`` only
        (``schema.table``), or of all.
        """
        return answers.ask_advice(self, partitions=partitions, keep=keep, allow_risk=allow_risk, tables=tables)

    def partitions(self, *, to: int | None = None) -> Answer:
        """What would another number of partitions do; by default twice as many as were recorded.

        Answered from counters, with some other numbers beside it; :meth:`expand` makes the new log and audits it.
        """
        return answers.ask_partitions(self, to=to)

    def expand(
        self, *, after: int, before: int | None = None, strategy: str | None = None, at: int | str | None = None,
        procedure: str = "design", seed: int = 0, captures: int | None = None,
        stop_delay_ms: tuple[int, int] = (50, 2_000), restart_ms: int = 1_000, out: str | None = None,
    ) -> Answer:  # fmt: skip
        """What would another number of partitions, from the middle of the log on, cost and break.

        Parameters
        ----------
        after, before, at, procedure
            As of :func:`ticdc_lab.repartition.expand.expand`; ``at`` may be a time (UTC), too.
        seed, captures, stop_delay_ms, restart_ms
            Times that no log contains, see :class:`ticdc_lab.repartition.plan.Timing`.
        strategy
            ``table``, ``index-value``, ``index-value:INDEX``, ``columns:a,b`` or ``ts`` for all tables; by default
            the detected one of each table.
        out
            Where the new log's events go, as of :func:`ticdc_lab.encode.export.write`; by default nowhere.
        """
        timing = {"captures": captures, "stop_delay_ms": stop_delay_ms, "restart_ms": restart_ms, "seed": seed}
        return answers.ask_expansion(
            self, after=after, before=before, strategy=strategy, at=at, procedure=procedure, timing=timing, out=out
        )

    def consumers(
        self, *, watch: str = "", slow: Mapping[int, float] | None = None, policies: Sequence[str] = (),
        strategy: str | None = None, partitions: int | None = None, listeners: Listeners | None = None,
        examples: int = 0, most_events: int = 20_000,
    ) -> Answer:  # fmt: skip
        """What ends up downstream: what consumers show on the way that upstream never had.

        Parameters
        ----------
        watch
            A numeric column whose sum over all rows is followed, such as a balance that transfers keep.
        slow
            Partition to how many times slower its listener reads; by default the fullest one is.
        policies
            Names of :data:`ticdc_lab.consumer.policy.POLICIES`; by default ``design-row``, ``reference-fixed``,
            ``design-transaction`` and ``strict``.
        strategy, partitions
            Lay the log out by this dispatcher first; as recorded by default.
        listeners
            Speeds, pauses, processes and crashes, instead of ``slow``.
        examples
            Anomalies of each kind, for each consumer, that are given with the fewest messages that show them.
        most_events
            About so many events of the least commit_ts are read.

        Raises
        ------
        ContractError
            A policy, partition or process is not there.
        DispatchError
            The log cannot be laid out so.
        """
        return answers.ask_consumers(
            self, watch=watch, slow=slow, policies=policies, strategy=strategy, partitions=partitions,
            listeners=listeners, examples=examples, most_events=most_events,
        )  # fmt: skip

    def consume(
        self, sink: str, *, mode: str = TRANSACTION, until: int | str | None = None, rows_a_batch: int | None = None,
        check: bool = True, said: Callable[[Batch, int], None] | None = None,
    ) -> Answer:  # fmt: skip
        """Replay it into a database, and compare the target with the log.

        The target stores its position, so the same call resumes after an interruption.

        Parameters
        ----------
        sink
            As of :func:`ticdc_lab.consumer.open_sink`; Delta needs a log that Spark has read.
        mode, rows_a_batch, said
            As of :func:`ticdc_lab.consumer.replay`.
        until
            A TSO or a time (UTC) to stop at; by default the log's resolved_ts.
        check
            Whether every table is compared with the log at the end.

        Raises
        ------
        SourceError
            The target cannot be opened, or contains something else.
        IncompleteHistoryError
            The log is not complete up to ``until``.
        """
        return answers.ask_replay(self, sink, mode=mode, until=until, rows_a_batch=rows_a_batch, check=check, said=said)

    def produce(
        self, out: str, *, to: str, strategy: str, partitions: int, index: str | None = None,
        columns: Sequence[str] | None = None, flavour: Literal["new", "classic"] = "new", topic: str = "produced",
        max_batch_size: int | None = None, options: Mapping[str, str] | None = None,
    ) -> Answer:  # fmt: skip
        """Write it as a new topic: in another protocol, by another dispatcher, with other partitions; what is lost.

        Parameters
        ----------
        out, options
            As of :func:`ticdc_lab.encode.produce.write_topic`.
        to, strategy, partitions, index, columns, flavour, topic, max_batch_size
            As of :func:`ticdc_lab.encode.produce.produce`; ``to`` is its protocol.

        Raises
        ------
        DispatchError, ProtocolError
            The request is invalid, or the protocol cannot be written.
        SetupError
            The embedded engine cannot sort its messages in the memory of this machine.
        """
        return answers.ask_topic(
            self, out, to=to, strategy=strategy, partitions=partitions, index=index, columns=columns, flavour=flavour,
            topic=topic, max_batch_size=max_batch_size, options=options,
        )  # fmt: skip

    def compare(self, other: Log | str, **how: Any) -> Answer:
        """Does another log contain the same changes: before and after an upgrade, or of another changefeed.

        Parameters
        ----------
        other
            A log, or what :func:`open` takes, with ``how`` as there.
        """
        with self._beside(other, how) as beside:
            return answers.ask_compared(self, beside)

    def fidelity(self, reference: Log | str, **how: Any) -> Answer:
        """What did its protocol lose, beside a log of the same transactions in a protocol that keeps more.

        Parameters
        ----------
        reference
            A log, or what :func:`open` takes, with ``how`` as there; open-protocol, canal-json and simple keep most.
        """
        with self._beside(reference, how) as beside:
            return answers.ask_fidelity(self, beside)

    def _beside(self, other: Log | str, how: Mapping[str, Any]) -> AbstractContextManager[Log]:
        """Another log, which is closed behind the block where it is opened here."""
        if isinstance(other, Log):
            return nullcontext(other)
        return closing(open(other, spark=self.events.sparkSession, **how))

    def provenance(self, settings: Mapping[str, object] = MappingProxyType({})) -> Provenance:
        """What its answers were made from, with the parameters of an answer by name."""
        return provenance(self.change_log, settings=settings)

    def table(self, name: str, *, as_of: int | str | None = None, out: str | None = None) -> Answer:
        """Which rows did a table (``schema.table``) have at a moment.

        Parameters
        ----------
        name
            As it was called then.
        as_of
            A TSO or a time (UTC); by default the log's resolved_ts.
        out
            Where all its rows go, as of :func:`ticdc_lab.encode.export.write`; by default nowhere.
        """
        return answers.ask_table(self, name, as_of=as_of, out=out)

    def row(self, table: str, key: str | Mapping[str, object] | None = None) -> Answer:
        """What happened to one row; by default the one that changed most.

        Parameters
        ----------
        table
            ``schema.table``.
        key
            ``column=value``, or ``a=1,b=2`` in the order of the columns; or a mapping of columns to values, where a
            bool is 1 or 0 and bytes are as the log has them (``0x`` and hex).

        Raises
        ------
        ContractError
            The table is not there, or its key has other columns, or None is given for one of them.
        SourceError
            The log has no row at all.
        """
        return answers.ask_row(self, table, key)

    def finding(self, number: int) -> Answer:
        """Which messages is a finding of the audit about: those that it names, and those beside them.

        Parameters
        ----------
        number
            Its place among the findings, from 1, as the command and the panel number them.

        Raises
        ------
        ContractError
            There are fewer.
        """
        return answers.ask_finding(self, number)

    def messages(self, *, at: Sequence[tuple[int, int]] = (), **which: Any) -> Answer:
        """What lies there: a page of events; ``which`` are fields of :class:`ticdc_lab.tables.browse.MessagePage`.

        ``at``: partition and offset of messages; these and those beside them are shown instead, of all topics or of the
        ``topic`` that is given.
        """
        return answers.messages(self.browser.messages(at, **which) if at else self.browser.page(MessagePage(**which)))

    def sql(self, query: str) -> pd.DataFrame:
        """Ask anything in DuckDB's SQL, of ``events``, ``quarantine``, ``transactions``, ``findings``, and of answers.

        A frame of an answer is ``QUESTION.FRAME``: ``watermarks.partitions``, or in quotes with what the question is
        called with: ``"why(stall_s=1.5)".stalls``.

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
        return answers.asked_in_sql(self, query)

    def close(self) -> None:
        """Forget what was computed, and remove its folder."""
        self._is_closed = True
        self._held.clear()
        shutil.rmtree(self.folder, ignore_errors=True)

    # What answers and panels are made of

    def holds(self, part: str) -> bool:
        """Whether a part was computed: ``facts``, ``load``, ``transactions``, ``findings``, ``browser``, .."""
        return part in self._held

    @property
    def summary(self) -> Summary:
        """All small frames but the findings."""
        parts = ("facts", "load", "tables", *(("transactions",) if self.has_commit_ts else ()))
        return self.once("summary", lambda: self.summary_of(*parts))

    @property
    def findings(self) -> pd.DataFrame:
        """What the audit finds."""
        return self.summary_of("facts", "findings").findings

    @property
    def browser(self) -> Browser:
        """Pages of messages."""
        return self.once("browser", lambda: Browser.of(self.change_log, labels=labels_in(answers.catalog_of(self))))

    @property
    def measured(self) -> WhatIf:
        """The measures of every dispatcher."""
        return answers.measured(self)

    @property
    def excerpt(self) -> NarrowLog:
        """The first of its events in commit order, about :data:`EXCERPT` of them, as a consumer takes them."""
        return answers.excerpt_of(self, EXCERPT)

    @property
    def known_settings(self) -> Settings:
        """What is known of its changefeed's settings: of the first messages, and of the images of all rows."""
        return answers.known_settings(self)

    def timeline(self, table: str) -> TableTimeline:
        """A table (``schema.table``) at any moment."""
        return answers.timeline(self, table)

    def once(self, name: str, make: Callable[[], Part]) -> Part:
        """A part, which is computed when it is first asked for."""
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
            "tables": lambda: of_tables(self.change_log),
            "suspects": lambda: {"suspects": answers.suspects_of(self)},
            "transactions": lambda: of_transactions(self.change_log, suspects=answers.suspects_of(self)),
            "findings": lambda: of_findings(self.change_log, most=most),
            "messages": lambda: {"messages": messages_of_findings(self.change_log, found["findings"])},
        }
        names = {part: f"{part} {most}" if part in _CAPPED and most != FOUND else part for part in parts}
        found: dict[str, Any] = {}
        for part in parts:
            found |= self.once(names[part], makers[part])
        return Summary(**found)

    def recorded_partitions(self) -> tuple[int, list[str]]:
        """How many partitions the log has, and a limit if dispatchers are compared with fewer."""
        return answers.recorded_partitions(self)

    def attach_transactions(self, connection: duckdb.DuckDBPyConnection) -> None:
        """Make a view ``transactions`` in a connection: all of them, which are restored once."""
        self.change_log.require_commit_ts("transactions")

        def write() -> str:
            place = str(self.folder / "transactions")
            self.events.transform(transactions).write.mode("overwrite").parquet(place)
            return place

        files = literal(f"{self.once('restored', write)}/*.parquet")
        connection.execute(f"CREATE VIEW transactions AS FROM read_parquet({files})")

    def __str__(self) -> str:
        """What it is, how far it is complete, what it cannot show."""
        if self._is_closed:
            return f"{self.source}: closed"
        return "\n".join([f"{self.source}: {self.lead}", *[f"  {limit}" for limit in self.limits]])

    __repr__ = __str__

    @property
    def lead(self) -> str:
        """What it is and how far it is complete, in two sentences."""
        return f"{self.contents().finding} {answers.complete_to(self.summary_of('facts', 'tables'))}"

    def _repr_html_(self) -> str:
        if self._is_closed:
            return Answer("log", "", str(self), {})._repr_html_()
        return Answer("log", "", self.lead, {}, self.limits)._repr_html_()


def survey(source: str, *, spark: SparkSession | None = None, engine: str = "auto", **how: Any) -> Answer:
    """Look at a change log before it is read: what it is, how large, what is in its first messages, what to do next.

    Parameters
    ----------
    source, spark, engine
        As of :func:`open`.
    how
        ``protocol``, ``source_kind``, ``schema_registry``, ``claim_check``, ``options`` and
        ``changefeed`` of :func:`ticdc_lab.sources.load.load`.

    Returns
    -------
    Answer
        ``by_table`` has the tables of the messages that were read. The time to read all is estimated from earlier
        reads on this machine; without one it is unknown.

    Raises
    ------
    SourceError, ProtocolError
        There is nothing to read, or its protocol cannot be detected.

    Examples
    --------
    >>> import ticdc_lab
    >>> print(ticdc_lab.survey("data/messages_canal-json-tidb_small.jsonl.gz").finding[:72])
    Capture files in canal-json: 2,241 messages (counted), 175 KB. Seen so f
    """
    if spark is None and not needs_no_engine(source, how.get("source_kind", "auto"), engine):
        spark = session(engine, source=source)
    return answers.surveyed(look(spark, source, **how))


def open(
    source: str, *, spark: SparkSession | None = None, engine: str = "auto", sample: Sample | None = None,
    folder: str | Path | None = None, images: bool = True, **how: Any,
) -> Log:  # fmt: skip
    """Open a change log: decode it once, and ask it.

    Parameters
    ----------
    source
        A recorded topic, a folder, a table, ``kafka://HOST:PORT/TOPIC``, ..; as for
        :func:`ticdc_lab.sources.load.load`.
    spark
        Your own session; by default one of the engine that fits the source.
    engine
        ``auto``, ``embedded`` or ``spark``; ``auto`` uses an existing session.
    sample
        Which part to read; by default all.
    folder
        Where to decode it: a folder that does not exist yet, and that stays. By default a temporary folder, removed by
        ``close`` or at the end of the process.
    images
        False omits the values of rows: watermarks and transactions do not need them, and reading takes a third.
    how
        ``protocol``, ``source_kind``, ``schema_registry``, ``claim_check``, ``options``, ``bounds``,
        ``changefeed`` of :func:`ticdc_lab.sources.load.load`.

    Returns
    -------
    Log
        Each of its methods answers a question.

    Raises
    ------
    SourceError, ProtocolError
        There is nothing to read, or its protocol cannot be detected.

    Notes
    -----
    The values of a large recording on this machine (canal-json, open-protocol) are decoded when a question first needs
    them, unless ``folder`` is given: leave its files as they are until then.

    Examples
    --------
    >>> import ticdc_lab
    >>> log = ticdc_lab.open("data/messages_canal-json-tidb_small.jsonl.gz")
    >>> print(log.watermarks().finding.partition(";")[0])
    It is complete up to 2026-11-20 21:56:08.308 UTC (resolved_ts 470603993791332352)
    """
    own = spark
    if own is None:
        if is_kafka(source):
            require_reachable(kafka_topics(source, options_of_source(how.get("options") or {})))
        asks = engine == "auto" and is_kafka(source) and choose(source).engine == "embedded"
        many = too_large(source, how.get("options") or {}) if asks else None
        own = session(engine, source=source, needs_spark=many, at_once=False)
    # frames outlive the log they came from
    place = Path(folder) if folder is not None else temporary_folder("log-")
    try:
        change_log = (
            load(own, source, **how)
            .sampled(sample or Sample())
            .materialise(str(place / "decoded"), images=images, in_full=folder is not None or not local_path(source))
        )
    except BaseException:
        if folder is None:
            shutil.rmtree(place, ignore_errors=True)
        raise
    return Log(with_rules_noted(change_log), place)


def summarise(log: ChangeLog, *, causes: DataFrame | None = None, audited: bool = True) -> Summary:
    """Aggregate a log into all the small frames of a report.

    Parameters
    ----------
    log
        A materialised log; a lazy one is decoded once per frame.
    causes
        As for :func:`ticdc_lab.audit.audit`; by default from :func:`ticdc_lab.dispatch.infer.move_causes`.
    audited
        False leaves ``findings`` empty: the audit takes as long as all else.

    Returns
    -------
    Summary
        Small pandas frames: contents, watermarks, transactions, findings, ..
    """
    found = of_findings(log, causes=causes) if audited else {"findings": pd.DataFrame(columns=FINDINGS.names)}
    timed = of_transactions(log) if log.has_commit_ts else {}
    parts = of_facts(log) | of_load(log) | of_tables(log) | timed
    return Summary(**parts, **found, messages=messages_of_findings(log, found["findings"]))

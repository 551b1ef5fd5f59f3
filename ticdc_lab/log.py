"""A log that answers: open a source, ask it questions; each gives an :class:`~ticdc_lab.answers.Answer`.

What an answer needs of the log is computed once, when it is first asked for, and used by all that need it.
"""

from __future__ import annotations

import ast
import atexit
import re
import shlex
import shutil
import tempfile
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, closing, nullcontext, suppress
from dataclasses import replace
from hashlib import sha256
from pathlib import Path
from threading import Lock, RLock
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Literal, TypeVar

import numpy as np
import pandas as pd
import pyarrow as pa
from pyspark.sql import functions as F

from ticdc_lab import answers
from ticdc_lab.answers.answer import Answer
from ticdc_lab.answers.summary import (
    FOUND,
    Summary,
    exact,
    messages_of_findings,
    of_facts,
    of_findings,
    of_load,
    of_tables,
    of_transactions,
    small,
)
from ticdc_lab.answers.what_if import rules_of
from ticdc_lab.audit import GUARANTEES, MAX_PER_GUARANTEE, audit, checks_possible, places_of
from ticdc_lab.audit.contradicted import rules_given, with_contradictions, with_rules_noted
from ticdc_lab.audit.filtered import LeftOut
from ticdc_lab.audit.old_values import old_rows_left
from ticdc_lab.audit.run import judged_definitions
from ticdc_lab.codecs.decode import FRAMED
from ticdc_lab.codecs.kernel.numbering import REWRITTEN
from ticdc_lab.codecs.values import binary_text
from ticdc_lab.consumer.log import excerpt
from ticdc_lab.consumer.replay_plan import TRANSACTION
from ticdc_lab.dispatch.fitting import EXPLAINED
from ticdc_lab.dispatch.hashing import UNNAMED_ROW
from ticdc_lab.dispatch.infer import infer_rules, names_upstream, partition_counts
from ticdc_lab.dispatch.names import CONFLICT, check_partitions, check_request, check_strategy
from ticdc_lab.dispatch.other_names import other_name_words
from ticdc_lab.dispatch.own_names import OwnNames
from ticdc_lab.dispatch.settings import tables_in
from ticdc_lab.dispatch.sweep_kernel import MOST
from ticdc_lab.dispatch.whatif import CONFLICT_AT, WhatIf
from ticdc_lab.dispatch.zones import IN_UTC, ZoneShown, in_server_zone, shown_zone
from ticdc_lab.encode.fidelity import ASPECTS, fidelity
from ticdc_lab.engine import choose, session
from ticdc_lab.engine import counted as counted_rows
from ticdc_lab.engine.running import jobs_given_up
from ticdc_lab.engine.sessions import interpreted
from ticdc_lab.errors import ContractError, DispatchError, SourceError, TiCDCLabError
from ticdc_lab.errors.redaction import shown_source
from ticdc_lab.events.ddl import literal, quoted
from ticdc_lab.events.sample import Sample, from_first_row, ts_of
from ticdc_lab.events.tso import clock_words
from ticdc_lab.facts.catalog import Catalog, ddl_of, not_in_rows
from ticdc_lab.facts.laggards import spans_of, values_of
from ticdc_lab.facts.limits import but_for
from ticdc_lab.facts.stalls import stall_causes
from ticdc_lab.facts.watermarks import progress_of, rhythm_of, topics_of
from ticdc_lab.settings import Settings
from ticdc_lab.settings.detected import OP_BY_IMAGES, of_rules, of_zone
from ticdc_lab.settings.file import options_of_source
from ticdc_lab.sources.cdc_log import read_cdc_log
from ticdc_lab.sources.change_log import ChangeLog
from ticdc_lab.sources.kafka import require_reachable
from ticdc_lab.sources.kafka import topics_of as kafka_topics
from ticdc_lab.sources.kafka_reading import too_large
from ticdc_lab.sources.load import load
from ticdc_lab.sources.places import is_kafka
from ticdc_lab.sources.provenance import Provenance, provenance
from ticdc_lab.sources.survey import needs_no_engine
from ticdc_lab.sources.survey import survey as look
from ticdc_lab.tables import table_as_of, table_history
from ticdc_lab.tables.browse import Browser, MessagePage, TableTimeline, commit_ts_span, labels_in
from ticdc_lab.tables.naming import table_named
from ticdc_lab.transactions import duplicates, first_repeated, gaps_in, suspects, transactions
from ticdc_lab.transactions.differences import (
    KINDS,
    Comparable,
    counted,
    covered,
    ddl_differences,
    differences,
    labelled_keys,
    worst,
)
from ticdc_lab.words import count, lane_of

if TYPE_CHECKING:
    import duckdb
    from pyspark.sql import Column, DataFrame, SparkSession

    from ticdc_lab.consumer.listener import Listeners
    from ticdc_lab.consumer.log import NarrowLog
    from ticdc_lab.consumer.replay_plan import Batch
    from ticdc_lab.dispatch import Changefeed
    from ticdc_lab.facts.limits import Counts
    from ticdc_lab.repartition import Moves

EXCERPT = 5_000
"""Events that the panel of a consumer takes, so that it answers at once."""

LAGGARDS = 1_000
"""Spans in which a partition held its topic back, at most."""

GAPS, SUSPECTS = 20, 1_000
"""Most gaps in offsets whose neighbouring transactions are listed, and most transactions."""

STALLS = 1_000
"""Stalls that are explained, at most."""

ROWS = 100
"""Rows of a table, and differences between two logs, that are shown."""

HINTS = 8
"""Most tables without a rule that are tried under another name."""

REPEATS = 200
"""Changes that were delivered again that are shown."""

_NAMELESS = "their messages name no table, as avro's deletes from tables without a primary key"
_UNDATED = "their messages have no commit_ts, as avro's deletes without `avro-include-before-value`"
"""Why row changes are left out of what is written in commit order by table."""

_CAPPED = ("findings", "messages")
"""Parts of a summary that depend on how many findings are listed."""

ASKED = (
    "contents", "settings", "load", "watermarks", "why", "transactions", "transaction", "audit", "what_if", "rules",
    "advise", "partitions", "consumers", "table", "row", "finding", "messages",
)  # fmt: skip
"""Methods whose frames :meth:`Log.sql` can be asked of."""

_QUESTION = "|".join(ASKED)
_OF_ANSWER = re.compile(
    rf'"((?:{_QUESTION})\((?:[^"]|"")*\))"\s*\.|\b(?:from|join)\s+"?({_QUESTION})"?\s*\.', re.IGNORECASE
)  # in quotes with its call, or where a table is named: elsewhere its name may be an alias

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
        if not (names := self.browser.tables()):
            raise SourceError("The log has no row change, so there is no table to show.")
        return names

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
        if not self.has_commit_ts:
            return answers.watermarks(self.summary_of("facts"))
        facts = self.change_log.facts
        topics, laggards = topics_of(progress_of(facts)), spans_of(values_of(facts))
        longest = exact(laggards).sort_values(
            ["steps", "topic", "partition", "first_step"], ascending=[False, True, True, True]
        )
        return answers.watermarks(
            self.summary_of("facts", "tables"),
            topics=exact(topics).sort_values("topic"),
            laggards=longest.head(LAGGARDS),
        )

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
        self.change_log.require_commit_ts("resolved_ts")
        said = read_cdc_log(cdc_log) if cdc_log else None
        rhythm = rhythm_of(self.change_log.facts)
        least_s = rhythm.stall_s if stall_s is None else stall_s
        found = stall_causes(self.events, stall_s=least_s, arrivals=self.change_log.messages)
        with self.change_log.reading():
            rows = small(found.orderBy(F.desc("step_s"), "topic", "held_ts", "everywhere").limit(STALLS))
        s = self.summary_of("facts")
        answer = answers.stalls(
            rows, stall_s=least_s, rhythm=rhythm, qualified=but_for(self.counts), early_ends=s.early_ends,
            partitions=s.partitions, of_storage=s.of_storage,
        )  # fmt: skip
        return answer if said is None else answers.beside_cdc_log(answer, said, self.audit(messages=False).frame)

    def transactions(self, *, out: str | None = None) -> Answer:
        """Which transactions are whole, which are pending and what they wait for.

        Parameters
        ----------
        out
            Where to write all of them, see :func:`ticdc_lab.encode.export.write`; by default nowhere.
        """
        from ticdc_lab.encode.export import write

        if not self.has_commit_ts:
            return answers.transactions(self.summary_of("facts"))
        if out:
            write(self.events.transform(transactions).repartition(1).sortWithinPartitions("commit_ts", "start_ts"), out)
        s = self.summary_of("facts", "transactions")
        again = s.transaction_totals["duplicates"].sum() > 0
        repeats = self._once("repeats", self._repeats) if again else None
        return answers.transactions(s, repeats=repeats)

    def transaction(self, commit_ts: int | str | None = None) -> Answer:
        """What did one transaction change, by its commit_ts: a TSO or a time (UTC).

        By default it is the one that touches most partitions; of several in one millisecond the first.
        """
        if isinstance(commit_ts, str):
            found = self.browser.page(MessagePage(kind="row", commit_ts=commit_ts))["commit_ts"]
            commit_ts = int(found.min()) if len(found) else commit_ts_span(commit_ts)[0]
        if commit_ts is None:
            whole = self.transactions()
            sample = whole.frames.get("sample", pd.DataFrame())
            if sample.empty:
                return whole
            widest = sample.assign(spread=sample["partitions"].map(len)).sort_values(["spread", "n_rows"])
            commit_ts = int(widest["commit_ts"].iloc[-1])
        return answers.transaction(
            self.browser.transaction(commit_ts), commit_ts=commit_ts, lane=lane_of(self.change_log.of_storage)
        )

    def audit(self, *, most: int = FOUND, messages: bool = True) -> Answer:
        """Did it keep TiCDC's promises; ``most`` findings of each guarantee are listed, with the first's messages."""
        parts = ("facts", "findings", "suspects", *(("messages",) if messages else ()))
        return answers.audit(self.summary_of(*parts, most=min(most, MAX_PER_GUARANTEE)))

    def what_if(self, *, partitions: int | None = None) -> Answer:
        """What would another dispatcher do with so many partitions; by default as many as were recorded."""
        if partitions is not None:
            check_partitions(partitions)
        if not self.has_commit_ts:
            return answers.not_measured(self.limits)
        if self.change_log.of_storage and partitions is None:
            return answers.without_partitions(self.source)
        recorded, limits = self.recorded_partitions()
        if self.change_log.of_storage:
            limits = [f"{answers.OF_STORAGE.capitalize()}: the comparison is for a topic of these tables."]
        rules = None if self.change_log.of_storage else self._once("rules", self._rules)
        limits = [*limits, *self._named_rows()[2]]
        return answers.what_if(self.measured, partitions=partitions or recorded, rules=rules, limits=limits)

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
        if isinstance(changefeed, str):
            from ticdc_lab.dispatch import read_changefeed

            changefeed = read_changefeed(changefeed, sink_uri=sink_uri, flavour=flavour)
        n = partitions if partitions is not None or changefeed is None else changefeed.partitions
        if (strategy is None) == (changefeed is None) or n is None:
            raise ContractError("Give a strategy or a changefeed, and how many partitions there are.")
        check_partitions(n)
        if strategy is not None:
            check_request(strategy, n, None if columns is None else [*columns])
        raw = changefeed is not None and (changefeed.raw or any(r.partition == "ts" for r in changefeed.rules))
        if raw or (strategy or "").lower() in ("ts", CONFLICT):
            self.change_log.require_commit_ts("dispatch by ts or conflict, or updates of keys that are not split")
        events, catalog, limits = self._by_own_names()
        answer = answers.moved(
            events, out, strategy=strategy, changefeed=changefeed, partitions=n, catalog=catalog,
            index=index, columns=columns, flavour=flavour, topics=topics, alignments_out=alignments_out,
        )  # fmt: skip
        if self.change_log.of_storage:
            limits = [*limits, f"{answers.OF_STORAGE.capitalize()}: the count is for a topic of these tables."]
        return replace(answer, limits=limits)

    def rules(self) -> Answer:
        """By which rule was each table dispatched, as detected from its rows; the best rule, even a poor one."""
        found = self._once("rules", self._rules)
        answer = answers.rules(found, hints=self._once("hints", lambda: self._hints(found)))
        limits = self._named_rows()[2] if self.protocol in FRAMED else []
        return replace(answer, limits=[*answer.limits, *limits])

    def advise(
        self, *, partitions: int | Sequence[int] | None = None, keep: str = "unique", allow_risk: bool = False,
        tables: Sequence[str] = (),
    ) -> Answer:  # fmt: skip
        """Which dispatcher should each table have, and why; as of :func:`ticdc_lab.dispatch.advise.advise`.

        By default with as many partitions as the log has, and beside it with some other numbers; of ``tables`` only
        (``schema.table``), or of all.
        """
        from ticdc_lab.dispatch.advise import PARTITIONS, advise

        given = [partitions] if isinstance(partitions, int) else partitions
        for n in given or ():
            check_partitions(n)
        self.change_log.require_commit_ts("advice")
        recorded, limits = self.recorded_partitions()
        of_storage = self.change_log.of_storage
        if of_storage:
            limits = [f"{answers.OF_STORAGE.capitalize()}: the advice is for a topic of these tables."]
        counts = (*PARTITIONS, recorded) if given is None else given
        events, catalog, unnamed = self._named_rows()
        found = advise(
            events, protocol=self.protocol, partitions=counts, keep=keep, allow_risk=allow_risk, tables=tables,
            catalog=catalog,
        )  # fmt: skip
        rules, best = self._once("rules", self._rules), found.partitions
        if given is None and not limits:
            found = found.at(recorded)  # another number is a step of its own
        said, now = [*(limits if given is None or of_storage else ()), *unnamed], None if limits else recorded
        if of_storage:
            rules = rules.head(0)
        return answers.advice(
            found, rules=rules, now=now, best=best, tables=tables, limits=said, source=self.source,
            of_storage=of_storage,
        )  # fmt: skip

    def partitions(self, *, to: int | None = None) -> Answer:
        """What would another number of partitions do; by default twice as many as were recorded.

        Answered from counters, with some other numbers beside it; :meth:`expand` makes the new log and audits it.
        """
        if to is not None and not 1 <= to <= MOST:
            raise DispatchError(
                f"Numbers of partitions are compared from 1 to {MOST}; found {to}.",
                hint=f"Make the new log and audit it: ticdc-lab expand {shlex.quote(shown_source(self.source))} "
                f"--after {check_partitions(to)}",
            )
        self.change_log.require_commit_ts("what another number of partitions does")
        question = "What would another number of partitions do?"
        if self.change_log.of_storage:
            return answers.without_partitions(self.source, name="partitions", question=question)
        recorded, limits = self.recorded_partitions()
        if limits:
            raise DispatchError(
                limits[0], hint="Make the new log and audit it: "
                f"ticdc-lab expand {shlex.quote(shown_source(self.source))} --after {to or MOST}",
            )  # fmt: skip
        to = to or (min(2 * recorded, MOST) if recorded < MOST else MOST // 2)
        rules = self._once("rules", self._rules)
        if rules.empty:
            return Answer("partitions", question, "The log has no row change, so no key moves.")
        counts = sorted({*answers.PARTITIONS, recorded, to})

        def moved() -> dict[int, Moves]:
            from ticdc_lab.repartition import moves, rules_found

            by = rules_found(rules.to_dict("records"))
            events, catalog, _ = self._named_rows()
            return moves(events, rules=by, before=recorded, counts=counts, catalog=catalog)

        return answers.partitions(
            self._once(f"moves {counts}", moved), rules=rules, measured=self.measured, before=recorded, to=to,
            source=self.source,
        )  # fmt: skip

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
        from ticdc_lab.encode.export import write
        from ticdc_lab.repartition import Timing, cost_of, examined, expand, rule_of, rules_found

        for n in (after, before):
            if n is not None:
                check_partitions(n)
        self.change_log.require_commit_ts("what another number of partitions does")
        if self.change_log.of_storage:
            raise ContractError(
                f"{self.source} is a folder of the storage sink, which has no partitions; expected a topic.",
                hint="Dispatchers for a topic of these tables: "
                f"ticdc-lab advise {shlex.quote(shown_source(self.source))} --partitions {after}",
            )
        if strategy:
            check_strategy(strategy.partition(":")[0])
        timing = Timing(stop_delay_ms, restart_ms=restart_ms, captures=captures, seed=seed)
        place = self.folder / "expanded"
        shutil.rmtree(place, ignore_errors=True)
        inferred = pd.DataFrame() if strategy else self._once("rules", self._rules)
        events, catalog, limits = self._named_rows(undated=False)
        change = expand(
            events, after=after, before=before,
            rules=(rule_of(strategy),) if strategy else rules_found(inferred.to_dict("records")),
            at=None if at is None else ts_of(at), procedure=procedure, timing=timing, catalog=catalog,
        )  # fmt: skip
        change = change.kept(str(place))
        if out:
            write(change.events.repartition(1).sortWithinPartitions("topic", "partition", "offset"), out)

        def recorded() -> list[dict[str, Any]]:
            found: pd.DataFrame = of_findings(self.change_log, most=MAX_PER_GUARANTEE)["findings"]
            own: list[dict[str, Any]] = found.to_dict("records")
            return own

        told = examined(change, protocol=self.protocol, sample=self.change_log.sample, recorded=recorded)
        found = {part: exact(f) for part, f in told.items()}
        answer = answers.expansion(change, cost_of(change), found, rules=None if strategy else inferred)
        return replace(answer, limits=[*answer.limits, *limits])

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
        from ticdc_lab.answers.consumers import SHOWN, beginning, slowed
        from ticdc_lab.consumer.consistency import measure_of
        from ticdc_lab.consumer.policy import POLICIES
        from ticdc_lab.consumer.study import RECORDED

        unknown = sorted({*policies} - {*POLICIES})
        if unknown:
            raise ContractError(f"There is no policy {', '.join(unknown)}; there are {', '.join(POLICIES)}.")
        if (strategy is None) != (partitions is None):
            raise ContractError("A dispatcher and a number of partitions lay the log out together; one is missing.")
        if slow is not None and listeners is not None:
            raise ContractError("Pass slow or listeners, not both: each sets how fast partitions are read.")
        if not self.has_commit_ts:
            return answers.not_ordered(self.limits)
        more = {"measure": measure_of(watch)} if watch else {}
        by = [strategy] if strategy else []
        study, limits = self._once(
            f"beginning {watch} {strategy} {most_events}",
            lambda: beginning(self.change_log, more, strategies=by, most=most_events),
        )
        part = study.recorded if strategy is None or partitions is None else study.laid(strategy, partitions)
        speeds = {"as given": listeners} if listeners is not None else None if slow is None else slowed(slow)
        for how in (speeds or {}).values():
            how.require_there({p.partition for p in part.parts})
        return answers.consumers(
            part, limits=limits, policies=[POLICIES[p] for p in policies] or SHOWN, speeds=speeds, watched=watch,
            examples=examples, laid=strategy or RECORDED, qualified=but_for(self.counts),
            lane=lane_of(self.change_log.of_storage and strategy is None),
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
        from ticdc_lab.consumer import compare, open_sink, replay
        from ticdc_lab.tables import knowledge

        self.change_log.require_commit_ts("a replay")
        known = self._once("knowledge", lambda: knowledge(self.events))
        end = None if until is None else ts_of(until)
        few = interpreted(self.events.sparkSession, None if self.counts is None else self.counts.events)
        with few, closing(open_sink(sink, self.change_log)) as target:
            done = replay(
                self.change_log, target, mode=mode, until=end, rows_a_batch=rows_a_batch, known=known, said=said
            )
            tables = [*compare(self.change_log, target, done.progress, known=known)] if check else None
        wrong = self._against_definitions(F.col("commit_ts") <= max(done.progress.ts, done.progress.ddl_ts))
        return answers.replayed(done, tables, qualified=but_for(self.counts), limits=[*self._old_rows_left(), *wrong])

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
        """
        from ticdc_lab.codecs.registry import require_written
        from ticdc_lab.encode import encoder
        from ticdc_lab.encode.produce import produce, write_topic

        require_written(to)
        listed = None if columns is None else [*columns]
        check_request(strategy, partitions, listed)
        self.change_log.require_commit_ts("a topic in commit order")
        events, catalog, limits = self._without_unnamed(undated=False)
        messages = events.transform(
            produce, protocol=to, strategy=strategy, partitions=partitions, index=index, flavour=flavour,
            columns=listed, catalog=catalog, topic=topic, max_batch_size=max_batch_size,
        )  # fmt: skip
        messages, written = counted_rows(messages)
        write_topic(messages, out, options=options)
        answer = answers.produced(written(), out, protocol=to, partitions=partitions, lost=dict(encoder(to).lost))
        return replace(answer, limits=limits)

    def compare(self, other: Log | str, **how: Any) -> Answer:
        """Does another log contain the same changes: before and after an upgrade, or of another changefeed.

        Parameters
        ----------
        other
            A log, or what :func:`open` takes, with ``how`` as there.
        """
        with self._beside(other, how) as beside:
            return self._compared(beside)

    def _compared(self, other: Log) -> Answer:
        limits = [f"{log.source}: {limit}" for log in (self, other) for limit in log.limits]
        if not (self.has_commit_ts and other.has_commit_ts):
            return answers.not_compared("one of them has no commit_ts", limits)
        facts = self.change_log.facts, other.change_log.facts
        spans = [covered(of) for of in facts]
        begins, ends = (max(s[0] for s in spans if s), min(s[1] for s in spans if s)) if all(spans) else (0, 0)
        if begins >= ends:
            held = [f"from {clock_words(s[0])} to {clock_words(s[1])}" if s else "at no time" for s in spans]
            apart = f"this one is whole {held[0]}, the other {held[1]}"
            return answers.not_compared(f"no time is complete in both; {apart}", limits)
        if self.protocol != other.protocol:
            limits.append(f"Values of {self.protocol} and {other.protocol} are spelled in different ways.")
        asked = Comparable.of(self.known_settings, other.known_settings)
        if (self.protocol in REWRITTEN) != (other.protocol in REWRITTEN):
            asked = replace(asked, labelled=frozenset(t for of in facts for t in labelled_keys(of)))
        told = [d for of in facts for d in of.ddl.to_pylist() if d["query"] and begins <= (d["commit_ts"] or 0) <= ends]
        named = {(d["commit_ts"], d["schema_name"] or "", d["table_name"] or "", d["query"]) for d in told}
        limits += [said] if (said := not_in_rows(Catalog.from_ddl(sorted(named)))) else []

        def paired(asked: Comparable) -> tuple[DataFrame, pd.DataFrame]:
            pairs = differences(self.events, other=other.events, from_ts=begins, to_ts=ends, compared=asked)
            return pairs, small(counted(pairs))

        with jobs_given_up(self.events.sparkSession):
            pairs, tables = paired(asked)
            alone = tables[[*KINDS[:2]]].to_numpy().sum()
            if alone and asked.ops and {self.protocol, other.protocol} & OP_BY_IMAGES:
                # old values that are off in a part of one log: the same image is an insert here, an update there
                looser = replace(asked, before=False, ops=False)
                again = paired(looser)
                if again[1][[*KINDS[:2]]].to_numpy().sum() < alone:
                    asked, (pairs, tables) = looser, again
            limits += asked.words
            differ = tables[[*KINDS[:-1]]].to_numpy().any()
            examples = small(worst(pairs, n=ROWS if differ else 0))  # equal logs are not paired a second time
        ddl = ddl_differences(*facts, from_ts=begins, to_ts=ends)
        lacking = but_for(self.counts), but_for(other.counts)
        sources = self.source, other.source
        return answers.compared(
            tables, examples, ddl, span=(begins, ends), limits=limits, lacking=lacking, sources=sources
        )

    def fidelity(self, reference: Log | str, **how: Any) -> Answer:
        """What did its protocol lose, beside a log of the same transactions in a protocol that keeps more.

        Parameters
        ----------
        reference
            A log, or what :func:`open` takes, with ``how`` as there; open-protocol, canal-json and simple keep most.
        """
        with self._beside(reference, how) as beside, jobs_given_up(self.events.sparkSession):
            found = small(fidelity(self.events, reference=beside.events))
            meant = found.assign(meaning=found["aspect"].map(ASPECTS))
            return answers.fidelity(meant, protocol=self.protocol, reference=beside.protocol)

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
        from ticdc_lab.encode.export import write

        schema_name, table_name = table_named(self.events, name)
        self.change_log.require_commit_ts(f"the table {name}")
        found = table_as_of(
            self.events, schema_name=schema_name, table_name=table_name, ts=None if as_of is None else ts_of(as_of)
        )
        if out:
            write(found.ordered, out)
        rows = small(found.ordered.limit(ROWS))
        n = len(rows) if len(rows) < ROWS else found.rows.count()
        mine = (F.col("schema_name") == schema_name) & (F.col("table_name") == table_name)
        limits = (
            *self._old_rows_left(),
            *found.limits,
            *self._against_definitions((F.col("commit_ts") <= found.ts) & mine),
        )
        return answers.table(
            rows, name=name, ts=found.ts, n=n, limits=limits, added=found.added, key=found.key, out=out,
            qualified=but_for(self.counts),
        )  # fmt: skip

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
        if table not in self.tables:
            raise ContractError(
                f"The log has no row of {table}; it contains rows of {', '.join(self.tables[:10])}.",
                hint="Name it as SCHEMA.TABLE, exactly as written.",
            )
        if key is None:
            busiest = self.browser.busiest_keys(table, n=1)
            text = "" if busiest.empty else str(busiest["key"].iloc[0])
        else:
            text = _key_text(table, key, self.browser.key_columns(table))
        return answers.row(
            self.browser.row_life(table, text), table=table, key=text, lane=lane_of(self.change_log.of_storage)
        )

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
        found = self.summary_of("facts", "findings", most=MAX_PER_GUARANTEE).findings
        if not 1 <= number <= len(found):
            raise ContractError(
                f"There is no finding {number}: the audit has {len(found)}.",
                hint="List them: ticdc-lab audit SOURCE --json",
            )
        one = found.iloc[number - 1]
        return answers.finding(
            number, one, self.browser.messages(places_of(one)), lane=lane_of(self.change_log.of_storage)
        )

    def messages(self, *, at: Sequence[tuple[int, int]] = (), **which: Any) -> Answer:
        """What lies there: a page of events; ``which`` are fields of :class:`ticdc_lab.tables.browse.MessagePage`.

        ``at``: partition and offset of messages; these and those beside them are shown instead.
        """
        return answers.messages(self.browser.messages(at) if at else self.browser.page(MessagePage(**which)))

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
        import duckdb  # here: most questions need none

        with duckdb.connect() as connection:
            connection.execute("SET TimeZone = 'UTC'")
            self.browser.attach(connection)
            if re.search(r'\btransactions\b(?!"?\s*\.)', query, re.IGNORECASE):
                self.attach_transactions(connection)
            if re.search(r'(?<!\.)(?<!\.")\bfindings\b', query, re.IGNORECASE):
                connection.register("findings", self.findings)
            for quotes, plain in dict.fromkeys(_OF_ANSWER.findall(query)):
                asked = quotes.replace('""', '"') or plain
                for name, frame in self._asked(asked).frames.items():
                    if frame.columns.empty:
                        continue
                    connection.register("frame", pa.Table.from_pandas(frame, preserve_index=False))
                    connection.execute(f"CREATE SCHEMA IF NOT EXISTS {quoted(asked)}")
                    connection.execute(f"CREATE TABLE {quoted(asked)}.{quoted(name)} AS FROM frame")
            try:
                return connection.execute(query).df()
            except duckdb.Error as refused:
                raise ContractError(
                    f"The query was refused: {refused}",
                    hint="There are events, quarantine, transactions, findings, and answers' frames: load.by_table, ..",
                ) from None

    def _asked(self, call: str) -> Answer:
        """The answer of a question as a query names it: ``watermarks``, ``why(stall_s=1.5)``."""
        try:
            of = ast.parse(call, mode="eval").body
            name, args, kwargs = (of.func, of.args, of.keywords) if isinstance(of, ast.Call) else (of, [], [])
            method = name.id if isinstance(name, ast.Name) else ""
            if method not in ASKED:
                raise ValueError(f"there is no question {method}")
            given = {k.arg or "": ast.literal_eval(k.value) for k in kwargs}
            found: Answer = getattr(self, method)(*map(ast.literal_eval, args), **given)
        except (SyntaxError, TypeError, ValueError) as error:
            raise ContractError(
                f"{call} names no answer: {error}.", hint=f"Questions, called as in Python: {', '.join(ASKED)}."
            ) from None
        return found

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
        return self._once("summary", lambda: self.summary_of(*parts))

    @property
    def findings(self) -> pd.DataFrame:
        """What the audit finds."""
        return self.summary_of("facts", "findings").findings

    @property
    def browser(self) -> Browser:
        """Pages of messages."""
        return self._once("browser", lambda: Browser.of(self.change_log, labels=labels_in(self._catalog())))

    @property
    def measured(self) -> WhatIf:
        """The measures of every dispatcher."""
        self.change_log.require_commit_ts("what another dispatcher would do")
        at = sorted({*CONFLICT_AT, self.recorded_partitions()[0]})
        own: dict[str, list[list[str]]] = {}
        for table, rule in rules_of(self._once("rules", self._rules)).items():
            if rule.startswith("columns:"):
                own[table] = [rule.partition(":")[2].split(",")]
        return self._once("measured", lambda: WhatIf.from_events(*self._named_rows()[:2], columns=own, conflict_at=at))

    @property
    def excerpt(self) -> NarrowLog:
        """The first of its events in commit order, about :data:`EXCERPT` of them, as a consumer takes them."""
        self.change_log.require_commit_ts("what a consumer does")
        return self._once("excerpt", self._excerpt)

    @property
    def known_settings(self) -> Settings:
        """What is known of its changefeed's settings: of the first messages, and of the images of all rows."""
        return self._once("settings", self._settings)

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
            "tables": lambda: of_tables(self.change_log),
            "suspects": lambda: {"suspects": self._suspects()},
            "transactions": lambda: of_transactions(self.change_log, suspects=self._suspects()),
            "findings": lambda: of_findings(self.change_log, most=most),
            "messages": lambda: {"messages": messages_of_findings(self.change_log, found["findings"])},
        }
        names = {part: f"{part} {most}" if part in _CAPPED and most != FOUND else part for part in parts}
        found: dict[str, Any] = {}
        for part in parts:
            found |= self._once(names[part], makers[part])
        return Summary(**found)

    def recorded_partitions(self) -> tuple[int, list[str]]:
        """How many partitions the log has, and a limit if dispatchers are compared with fewer."""
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

    def attach_transactions(self, connection: duckdb.DuckDBPyConnection) -> None:
        """Make a view ``transactions`` in a connection: all of them, which are restored once."""
        self.change_log.require_commit_ts("transactions")

        def write() -> str:
            place = str(self.folder / "transactions")
            self.events.transform(transactions).write.mode("overwrite").parquet(place)
            return place

        files = literal(f"{self._once('restored', write)}/*.parquet")
        connection.execute(f"CREATE VIEW transactions AS FROM read_parquet({files})")

    def _rules(self) -> pd.DataFrame:
        return self._once("inferred", self._inferred)[0]

    def _inferred(self) -> tuple[pd.DataFrame, ZoneShown | None]:
        """The rule of each table, and the time zone of TiCDC's server where no rule explains rows without it."""
        facts, settings = self.change_log.facts, self.change_log.settings
        given = rules_given(facts, settings)
        events = self._named_rows()[0] if self.protocol in FRAMED else self.events

        def infer(events: DataFrame) -> pd.DataFrame:
            return small(events.transform(infer_rules, given=given).orderBy("topic", "schema_name", "table_name"))

        found = infer(events)
        poor = found[found["n_explained"] < EXPLAINED * found["n_rows"]]
        if self.protocol not in IN_UTC or poor.empty:
            return found, None
        tables = [*poor[["topic", "schema_name", "table_name"]].itertuples(index=False, name=None)]
        zone = shown_zone(events, tables, partitions=partition_counts(facts), given=given)
        if zone is not None and zone.name:
            found = infer(events.transform(in_server_zone, zone=zone.name))
        return found, zone

    def _hints(self, found: pd.DataFrame) -> list[str]:
        """Of tables whose rule hashes another name, as of a table that is routed: which one."""
        zone = self._once("inferred", self._inferred)[1]
        names, said = names_upstream(self.change_log.facts), [] if zone is None else [zone.words]
        for r in found[found["name_crc"].notna()].head(HINTS).to_dict("records"):
            own, crc = (r["schema_name"], r["table_name"]), int(r["name_crc"])
            other = other_name_words(crc, int(r["partitions"]), own=own, names=names)
            said.append(
                f"{own[0]}.{own[1]}: its rows are placed as by {r['rule']} of {other}. The changefeed may route the "
                "table (target-schema, target-table), or it was renamed: ticdc-lab dispatch "
                f"{shlex.quote(shown_source(self.source))} --changefeed FILE"
            )
        return said

    def _settings(self) -> Settings:
        log = self.change_log
        with log.reading():
            known = with_contradictions(
                self.events, log.facts, log.settings, protocol=self.protocol, has_partitions=not log.of_storage
            )
        dispatched = self.recorded_partitions()[0] > 1 and not log.of_storage
        found = self._once("rules", self._rules) if dispatched else pd.DataFrame()
        rules = [
            (r["schema_name"], r["table_name"], str(r["rule"]), int(r["n_rows"]))
            for r in found.to_dict("records")
            if r["table_name"]
            and r["n_rows"]
            and r["n_explained"] == r["n_rows"]
            and not r["by_chance"]
            and pd.isna(r["name_crc"])
        ]
        zone = self._once("inferred", self._inferred)[1] if dispatched else None
        return known | of_rules(rules, tables=len(found)) | ([] if zone is None else of_zone(zone.name, zone.evidence))

    def _old_rows_left(self) -> list[str]:
        log = self.change_log
        left = old_rows_left(log.facts, protocol=log.protocol, settings=log.settings)
        return [left] if left else []

    def _against_definitions(self, which: Column) -> list[str]:
        """Row changes that break the definitions of the log's own tables, a sentence for each table and guarantee."""
        facts = self.change_log.facts
        carried = facts.carried
        possible = checks_possible(
            self.protocol, has_commit_ts=self.has_commit_ts, lost=self.change_log.lost, carried=carried
        )
        names = [n for n, guarantee in GUARANTEES.items() if guarantee.image and not possible[n]]
        defined = judged_definitions(facts, self.protocol, LeftOut.read(self.known_settings))
        if not names or not defined.judge or not self.change_log.has_images:
            return []
        asked = self.events.where((F.col("kind") != "row") | which)
        found = audit(
            asked,
            protocol=self.protocol,
            checks=names,
            max_per_guarantee=None,
            with_keys=False,
            carried=carried,
            definitions=defined,
        )
        n, first = F.count(F.lit(1)).alias("n"), F.min_by("message", F.struct("commit_ts", "partition", "offset"))
        counted = small(found.groupBy("table", "guarantee").agg(n, first.alias("first")).orderBy("table", "guarantee"))
        return [answers.against_definition(r) for r in counted.to_dict("records")]

    def _suspects(self) -> pd.DataFrame | None:
        """Transactions that gaps in offsets may have torn; None without a gap, or commit_ts."""
        sampled = self.change_log.sample is not None and not self.change_log.sample.is_whole
        gaps = [] if sampled or not self.has_commit_ts else gaps_in(self.change_log.facts.offsets, most=GAPS)
        if not gaps:
            return None
        found = self.events.transform(suspects, gaps=gaps).orderBy("topic", "partition", "first_missing", "commit_ts")
        return self._once("beside gaps", lambda: small(found.limit(SUSPECTS)))

    def _repeats(self) -> pd.DataFrame:
        own = self.events.where(F.col("commit_ts").isin(first_repeated(self.events, REPEATS)))
        return small(own.transform(duplicates).orderBy("commit_ts", "partition", "offset").limit(REPEATS))

    def _by_own_names(self) -> tuple[DataFrame, Catalog, list[str]]:
        """Its events and definitions by the names that TiDB has, as TiCDC dispatches them, and where these are unknown.

        Rows of avro may have others.
        """

        def named() -> tuple[DataFrame, Catalog, list[str]]:
            catalog = self._defined()
            if self.protocol not in FRAMED:
                return self.events, catalog, []
            names = OwnNames.in_log(self.change_log, catalog)
            limits = names.unknown(tables_in(self.events))
            if not names.defined:
                return self.events, catalog, limits
            return names.given_to(self.change_log), catalog, limits

        return self._once("own names", named)

    def _named_rows(self, *, undated: bool = True) -> tuple[DataFrame, Catalog | None, list[str]]:
        """The same without the rows whose table or names are not known, and without ``undated`` ones unless asked."""
        with suppress(TiCDCLabError):  # then dispatchers by index are not offered
            return self._once(f"named rows {undated}", lambda: self._without_unnamed(undated=undated))
        return self.events, None, []

    def _without_unnamed(self, *, undated: bool) -> tuple[DataFrame, Catalog, list[str]]:
        events, catalog, limits = self._by_own_names()
        if self.protocol not in FRAMED:
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

    def _defined(self) -> Catalog:
        """The definitions by the names that TiDB has."""
        return self._once("defined", lambda: Catalog.from_ddl(ddl_of(self.events)[0]))

    def _catalog(self) -> Catalog | None:
        with suppress(TiCDCLabError):  # then dispatchers by index are not offered
            return self._once("catalog", lambda: self._defined().in_rows(self.protocol))
        return None

    def _excerpt(self) -> NarrowLog:
        dated = self.events.where("commit_ts IS NOT NULL")
        if self.change_log.sample is not None:
            dated = dated.transform(from_first_row)
        last = dated.select("commit_ts").orderBy("commit_ts").limit(EXCERPT).agg(F.max("commit_ts")).first()
        begun = F.col("commit_ts") <= F.lit(last[0] if last else None)
        return excerpt(self.events.where(begun | (F.col("kind") == "admin")))

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


def _value_text(table: str, column: str, value: object) -> str:
    """A value of a key as the log writes it: TiDB's booleans are numbers."""
    if value is None:
        raise ContractError(f"{column} is None, but no row of {table} has NULL in its key.")
    if isinstance(value, bytes | bytearray):
        return binary_text(bytes(value))
    return str(int(value) if isinstance(value, bool | np.bool_) else value)


def _key_text(table: str, key: str | Mapping[str, object], known: Sequence[Sequence[str]]) -> str:
    """A key as rows are found by it."""
    if isinstance(key, Mapping):
        for names in known:
            if {*names} == {*key}:
                return ",".join(f"{name}={_value_text(table, name, key[name])}" for name in names)
    elif any(re.match(",".join(f"{re.escape(name)}=.*" for name in names), str(key), re.DOTALL) for names in known):
        return str(key)
    if not known:
        raise ContractError(f"No row of {table} has a key to find {key} by.")
    forms = " or ".join(",".join(f"{name}=VALUE" for name in names) for names in known)
    raise ContractError(f"{key} is no key of {table}; expected {forms}.")


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
    place = Path(folder) if folder is not None else Path(tempfile.mkdtemp(prefix="ticdc_lab-log-"))
    try:
        change_log = (
            load(own, source, **how).sampled(sample or Sample()).materialise(str(place / "decoded"), images=images)
        )
    except BaseException:
        if folder is None:
            shutil.rmtree(place, ignore_errors=True)
        raise
    log = Log(with_rules_noted(change_log), place)
    if folder is None:
        atexit.register(shutil.rmtree, str(place), ignore_errors=True)  # frames outlive the log they came from
    return log

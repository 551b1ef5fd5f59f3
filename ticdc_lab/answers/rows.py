"""Single messages, rows and tables of a log."""

from __future__ import annotations

import ast
import re
from collections.abc import Hashable, Mapping, Sequence
from hashlib import sha256
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import pyarrow as pa
from pyspark.sql import Column
from pyspark.sql import functions as F

from ticdc_lab import figures
from ticdc_lab.answers.answer import Answer
from ticdc_lab.answers.summary import small
from ticdc_lab.audit import GUARANTEES, audit, checks_possible
from ticdc_lab.audit.filtered import LeftOut
from ticdc_lab.audit.old_values import old_rows_left
from ticdc_lab.audit.run import judged_definitions
from ticdc_lab.codecs.values import binary_text
from ticdc_lab.encode.export import write
from ticdc_lab.engine.running import jobs_given_up
from ticdc_lab.errors import ContractError
from ticdc_lab.events.ddl import quoted
from ticdc_lab.events.sample import ts_of
from ticdc_lab.events.tso import tso_words
from ticdc_lab.facts.limits import but_for
from ticdc_lab.tables import table_as_of, table_history
from ticdc_lab.tables.browse import TableTimeline
from ticdc_lab.tables.naming import table_named
from ticdc_lab.words import count, lane_of

if TYPE_CHECKING:
    from ticdc_lab.log import Log


def messages(page: pd.DataFrame) -> Answer:
    """Events as the log contains them: :meth:`ticdc_lab.tables.browse.Browser.page`."""
    words = f"{count(len(page), 'event is', 'events are')} shown, as the log contains them."
    note = "Look for offsets that are left out, and for a commit_ts smaller than one above it."
    return Answer(
        "messages", "What lies there?", words, {"messages": page},
        draw=lambda: {"messages": figures.listing(page, title=words.rstrip("."), note=note)} if len(page) else {},
    )  # fmt: skip


def row(life: pd.DataFrame, *, table: str, key: str, lane: str = "partition") -> Answer:
    """All deliveries that touched a row: :meth:`ticdc_lab.tables.browse.Browser.row_life`."""
    question = "What happened to one row?"
    if not key:
        return Answer("row", question, f"No row of {table} has a key to follow it by.", {"life": life.iloc[:0]})
    if life.empty:
        return Answer("row", question, f"No message of this log touches {table} {key}.", {"life": life})
    places = life[["topic", "partition"]].drop_duplicates()
    words = f"{count(len(life), 'delivery', 'deliveries')} touched {table} {key}"
    return Answer(
        "row", question, f"{words}, in {count(len(places), lane)}.", {"life": life},
        draw=lambda: {"life": figures.row_life(life, table=table, key=key)},
    )  # fmt: skip


def table(
    rows: pd.DataFrame, *, name: str, ts: int, n: int, limits: Sequence[str], added: Sequence[str],
    key: Sequence[str] = (), out: str | None = None, qualified: str = "",
) -> Answer:  # fmt: skip
    """A table at a moment: its first rows, and how many there are; ``added`` are those columns that are not its own."""
    words = f"{name} has {count(n, 'row')} at {tso_words(ts)}{qualified}."
    note = "Rows as they were at that commit_ts. Look for NULL where none should be."
    unused = [c for c in added if not rows[c].map(lambda v: bool(np.size(v))).any()]
    shown = rows.drop(columns=unused)
    return Answer(
        "table", "Which rows did this table have at that moment?", words, {"rows": rows}, limits, (),
        {"table": name, "ts": ts, "key": [*key], "out": out},
        draw=lambda: {"rows": figures.listing(shown, title=words.rstrip("."), note=note, commit_ts=added[0])}
        if len(rows) else {},
    )  # fmt: skip


def against_definition(broken: Mapping[Hashable, Any]) -> str:
    """How many row changes of a table break what its DDL defines: ``table, guarantee, n, first``."""
    n = int(broken["n"])
    return (
        f"{count(n, 'row change')} of {broken['table']} {'breaks' if n == 1 else 'break'} {broken['guarantee']}, and "
        f"upstream cannot have such a row. The first: {broken['first']}."
    )


def transaction(rows: pd.DataFrame, *, commit_ts: int, lane: str = "partition") -> Answer:
    """All deliveries of a transaction: :meth:`ticdc_lab.tables.browse.Browser.transaction`."""
    question = "What did one transaction change?"
    if rows.empty:
        return Answer(
            "transaction", question, f"No row change of this log has the commit_ts {tso_words(commit_ts)}.", {}, ()
        )
    n, places = int((~rows["again"]).sum()), rows[["topic", "partition"]].drop_duplicates()
    again = f" and {count(len(rows) - n, 'repeat')}" if len(rows) > n else ""
    started = rows["start_ts"].drop_duplicates()
    several = f"The {len(started)} transactions with commit_ts {tso_words(commit_ts)} have"
    words = several if len(started) > 1 else f"Transaction {tso_words(commit_ts)} has"
    words = f"{words} {count(n, 'change')}{again}"
    note = "Before and after each change, as far as the protocol carries them. again: delivered before."
    unknown = [] if started.notna().any() else ["start_ts"]
    return Answer(
        "transaction", question, f"{words} in {count(len(places), lane)}.", {"rows": rows},
        draw=lambda: {"rows": figures.listing(rows.drop(columns=["topic", "seq", *unknown]), title=words, note=note)},
    )  # fmt: skip


# Asked of a log.

_ROWS = 100
"""Rows of a table that are shown."""

ASKED = (
    "contents", "settings", "load", "watermarks", "why", "transactions", "transaction", "audit", "what_if", "rules",
    "advise", "partitions", "consumers", "table", "row", "finding", "messages",
)  # fmt: skip
"""Methods whose frames :meth:`ticdc_lab.log.Log.sql` can be asked of."""

_QUESTION = "|".join(ASKED)
_OF_ANSWER = re.compile(
    rf'"((?:{_QUESTION})\((?:[^"]|"")*\))"\s*\.|\b(?:from|join)\s+"?({_QUESTION})"?\s*\.', re.IGNORECASE
)  # in quotes with its call, or where a table is named: elsewhere its name may be an alias


def ask_table(log: Log, name: str, *, as_of: int | str | None, out: str | None) -> Answer:
    """As of :meth:`ticdc_lab.log.Log.table`."""
    schema_name, table_name = table_named(log.events, name)
    log.change_log.require_commit_ts(f"the table {name}")
    found = table_as_of(
        log.events, schema_name=schema_name, table_name=table_name, ts=None if as_of is None else ts_of(as_of)
    )
    if out:
        write(found.ordered, out)
    rows = small(found.ordered.limit(_ROWS))
    n = len(rows) if len(rows) < _ROWS else found.rows.count()
    mine = (F.col("schema_name") == schema_name) & (F.col("table_name") == table_name)
    wrong = against_definitions(log, (F.col("commit_ts") <= found.ts) & mine)
    return table(
        rows, name=name, ts=found.ts, n=n, limits=(*old_rows_off(log), *found.limits, *wrong), added=found.added,
        key=found.key, out=out, qualified=but_for(log.counts),
    )  # fmt: skip


def old_rows_off(log: Log) -> list[str]:
    """Where old values are off, so that rows may be left in a table that were deleted."""
    of = log.change_log
    left = old_rows_left(of.facts, protocol=of.protocol, settings=of.settings)
    return [left] if left else []


def against_definitions(log: Log, which: Column) -> list[str]:
    """Row changes that break the definitions of the log's own tables, a sentence for each table and guarantee."""
    facts = log.change_log.facts
    possible = checks_possible(
        log.protocol, has_commit_ts=log.has_commit_ts, lost=log.change_log.lost, carried=facts.carried
    )
    names = [n for n, guarantee in GUARANTEES.items() if guarantee.image and not possible[n]]
    defined = judged_definitions(facts, log.protocol, LeftOut.read(log.known_settings))
    if not names or not defined.judge or not log.change_log.has_images:
        return []
    found = audit(
        log.events.where((F.col("kind") != "row") | which), protocol=log.protocol, checks=names,
        max_per_guarantee=None, with_keys=False, carried=facts.carried, definitions=defined,
    )  # fmt: skip
    n, first = F.count(F.lit(1)).alias("n"), F.min_by("message", F.struct("commit_ts", "partition", "offset"))
    counted = small(found.groupBy("table", "guarantee").agg(n, first.alias("first")).orderBy("table", "guarantee"))
    return [against_definition(r) for r in counted.to_dict("records")]


def timeline(log: Log, table: str) -> TableTimeline:
    """A table (``schema.table``) at any moment."""
    log.change_log.require_commit_ts(f"the table {table} as of a moment")

    def made() -> TableTimeline:
        schema_name, table_name = table_named(log.events, table)
        place = str(log.folder / f"history-{sha256(table.encode()).hexdigest()}")
        history = log.events.transform(table_history, schema_name=schema_name, table_name=table_name)
        with jobs_given_up(history.sparkSession):
            history.write.mode("overwrite").parquet(place)
        return TableTimeline(place)

    return log.once(f"history {table}", made)


def ask_row(log: Log, table: str, key: str | Mapping[str, object] | None) -> Answer:
    """As of :meth:`ticdc_lab.log.Log.row`."""
    if table not in log.tables:
        raise ContractError(
            f"The log has no row of {table}; it contains rows of {', '.join(log.tables[:10])}.",
            hint="Name it as SCHEMA.TABLE, exactly as written.",
        )
    if key is None:
        busiest = log.browser.busiest_keys(table, n=1)
        text = "" if busiest.empty else str(busiest["key"].iloc[0])
    else:
        text = _key_text(table, key, log.browser.key_columns(table))
    return row(log.browser.row_life(table, text), table=table, key=text, lane=lane_of(log.change_log.of_storage))


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
                return ", ".join(f"{name}={_value_text(table, name, key[name])}" for name in names)
    else:
        for names in known:  # the blank behind a comma may be left out
            values = re.fullmatch(", ?".join(f"{re.escape(name)}=(.*)" for name in names), str(key), re.DOTALL)
            if values:
                return ", ".join(f"{name}={value}" for name, value in zip(names, values.groups(), strict=True))
    if not known:
        raise ContractError(f"No row of {table} has a key to find {key} by.")
    forms = " or ".join(", ".join(f"{name}=VALUE" for name in names) for names in known)
    raise ContractError(f"{key} is no key of {table}; expected {forms}.")


def asked_in_sql(log: Log, query: str) -> pd.DataFrame:
    """As of :meth:`ticdc_lab.log.Log.sql`."""
    import duckdb  # here: most questions need none

    with duckdb.connect() as connection:
        connection.execute("SET TimeZone = 'UTC'")
        log.browser.attach(connection)
        if re.search(r'\btransactions\b(?!"?\s*\.)', query, re.IGNORECASE):
            log.attach_transactions(connection)
        if re.search(r'(?<!\.)(?<!\.")\bfindings\b', query, re.IGNORECASE):
            connection.register("findings", log.findings)
        for quotes, plain in dict.fromkeys(_OF_ANSWER.findall(query)):
            asked = quotes.replace('""', '"') or plain
            for name, frame in _asked(log, asked).frames.items():
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


def _asked(log: Log, call: str) -> Answer:
    """The answer of a question as a query names it: ``watermarks``, ``why(stall_s=1.5)``."""
    try:
        of = ast.parse(call, mode="eval").body
        name, args, kwargs = (of.func, of.args, of.keywords) if isinstance(of, ast.Call) else (of, [], [])
        method = name.id if isinstance(name, ast.Name) else ""
        if method not in ASKED:
            raise ValueError(f"there is no question {method}")
        given = {k.arg or "": ast.literal_eval(k.value) for k in kwargs}
        found: Answer = getattr(log, method)(*map(ast.literal_eval, args), **given)
    except (SyntaxError, TypeError, ValueError) as error:
        raise ContractError(
            f"{call} names no answer: {error}.", hint=f"Questions, called as in Python: {', '.join(ASKED)}."
        ) from None
    return found

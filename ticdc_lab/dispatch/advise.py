"""Advice on a user's own log: which dispatcher for which table, how many partitions, what it costs; and the rules it
goes by.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import permutations
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Self

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from ticdc_lab.dispatch.advise_facts import (
    MAX_SINGLE,
    Candidate,
    Collisions,
    ColumnFact,
    Evenness,
    HotKey,
    MeasuredCandidate,
    TableFact,
    candidates_for,
    collisions,
    definitions_of,
    evenness,
    hot_keys,
    load_of,
    measured,
    table_facts,
    tables_that_collide,
)
from ticdc_lab.dispatch.changefeed import Changefeed
from ticdc_lab.dispatch.rules import Rule
from ticdc_lab.dispatch.whatif import CONFLICT_AT, WhatIf
from ticdc_lab.errors import DispatchError
from ticdc_lab.events.tso import with_clock
from ticdc_lab.facts.catalog import Catalog, catalog_of
from ticdc_lab.facts.definitions import TableDef
from ticdc_lab.settings.matchers import matcher_of
from ticdc_lab.words import count, percent

if TYPE_CHECKING:
    from ticdc_lab.sources.stored import StoredEvents

PARTITIONS = (1, 3, 8, 16, 32)


@dataclass(frozen=True, slots=True)
class TableAdvice:
    """One table: facts, everything measured, and for each partition count the choice."""

    fact: TableFact
    share: float
    choices: Mapping[int, Recommendation]
    found: tuple[MeasuredCandidate, ...]
    risks: tuple[str, ...]
    hot: tuple[HotKey, ...]
    met: Collisions | None
    cut: str = ""


@dataclass(frozen=True, slots=True)
class Advice:
    """The advice on a log.

    ``partitions`` is the recommended count; ``whole`` gives for each count how evenly all tables together fill the
    partitions with rows when each goes by its choice, ``whole_bytes`` with bytes. ``changefeed`` holds the dispatchers;
    ``notes``: what was not measured; ``compared``: the measures of every candidate. ``keep``: what was asked;
    ``keeps``: the counts at which the choices keep more, as that is no less even over all tables.
    """

    keep: str
    allow_risk: bool
    partitions: int
    tables: tuple[TableAdvice, ...]
    whole: Mapping[int, Evenness]
    whole_bytes: Mapping[int, Evenness]
    changefeed: Changefeed
    notes: tuple[str, ...]
    compared: WhatIf
    keeps: Mapping[int, str]

    @property
    def kept(self) -> str:
        """What the choices keep: as asked or more."""
        return self.keeps.get(self.partitions, self.keep)

    def at(self, partitions: int) -> Self:
        """The same advice for another of the counts that were compared, as for the one that the topic has."""
        feed = replace(self.changefeed, rules=_rules(self.tables, partitions), partitions=partitions)
        return replace(self, partitions=partitions, changefeed=feed)

    def broken(self) -> dict[str, tuple[int, int]]:
        """What the recommendation keeps and breaks, over all tables: guarantee to violations and cases."""
        out: dict[str, tuple[int, int]] = {}
        for t in self.tables:
            for name, (violations, cases) in t.choices[self.partitions].measured.broken.items():
                before = out.get(name, (0, 0))
                out[name] = (before[0] + violations, before[1] + cases)
        return out

    def keeping(self, keep: str) -> Self:
        """The same with another guarantee for each table by itself, at ``partitions``."""
        n = self.partitions
        of = {t.fact.name: [m for m in t.found if m.partitions == n] for t in self.tables}
        return self.choosing(
            keep,
            {
                t.fact.name: choose(of[t.fact.name], keep=keep, share=t.share, allow_risk=self.allow_risk)
                for t in self.tables
            },
        )

    def choosing(self, keep: str, choices: Mapping[str, Recommendation]) -> Self:
        """The same with other choices at ``partitions``, by table, which keep ``keep``."""
        n = self.partitions
        tables = tuple(replace(t, choices={**t.choices, n: choices[t.fact.name]}) for t in self.tables)
        rows, by_bytes = (_whole(self.compared, tables, n, weight) for weight in ("rows", "bytes"))
        whole, whole_bytes = {**self.whole, n: rows}, {**self.whole_bytes, n: by_bytes}
        keeps = {**self.keeps, n: keep}
        return replace(self, tables=tables, whole=whole, whole_bytes=whole_bytes, keeps=keeps).at(n)

    def beats(self, other: Self) -> bool:
        """Whether all tables together are no less even than by the other, break no more, and one of both is better."""
        mine, others, n = self.broken(), other.broken(), self.partitions
        pairs = [(self.whole[n].max_over_mean, other.whole[n].max_over_mean)]
        pairs += [(float(mine.get(g, (0, 0))[0]), float(others.get(g, (0, 0))[0])) for g in {**mine, **others}]
        return all(a <= b for a, b in pairs) and any(a < b for a, b in pairs)

    def as_a_whole(self) -> Self:
        """These choices, or those that keep more if they beat these: tables judged singly may meet in a partition."""
        kept = [*KEPT]
        better = [a for k in reversed(kept[kept.index(self.kept) + 1 :]) if (a := self.keeping(k)).beats(self)]
        return min(better, key=lambda a: a.whole[self.partitions].max_over_mean, default=self)


def advise(
    events: DataFrame | StoredEvents,
    *,
    protocol: str,
    catalog: Catalog | None = None,
    partitions: Iterable[int] = PARTITIONS,
    keep: str = "unique",
    allow_risk: bool = False,
    columns: Sequence[Sequence[str]] = (),
    max_columns: int = MAX_SINGLE,
    tables: Sequence[str] = (),
    beside: Mapping[str, Sequence[Sequence[str]]] = MappingProxyType({}),
    conflict_at: Sequence[int] = CONFLICT_AT,
) -> Advice:
    """Compare all dispatchers on a log and recommend one per table.

    Parameters
    ----------
    events
        The events contract, or events in files.
    protocol
        Of the changefeed: what it writes for updates of keys is noted.
    catalog
        Table definitions; default: from the log's DDL, and none of events in files.
    partitions
        Partition counts to compare, each from 1 to 128.
    keep
        What must not break: ``row`` (order of a row's changes), ``unique`` (also of rows that share a unique value),
        ``transaction`` (also transactions within a table) or ``table`` (order of a table's changes).
    allow_risk
        Also recommend columns that are no key, where they kept the guarantee in this log.
    columns
        More lists of columns to measure, on every table.
    max_columns
        Single columns that are no key to measure per table at most, those that never change and hold most values first.
    tables
        Advise on these only (``schema.table``); by default on all. A table's share is always of the whole log.
    beside
        Lists of columns by table that ``compared`` has too, though no advice is given on them.
    conflict_at
        As of :meth:`ticdc_lab.dispatch.whatif.WhatIf.from_events`.

    Returns
    -------
    Advice
        By the policy below: keep the asked guarantee, then be even, then be simple.

    Raises
    ------
    DispatchError
        ``keep`` is unknown, no partition count is given, or the log has no row changes, or none of ``tables``.
    """
    counts = sorted(set(partitions))
    if keep not in KEPT or not counts:
        raise DispatchError(f"keep must be one of {sorted(KEPT)} and partitions not empty; found {keep!r}, {counts}.")
    if isinstance(events, DataFrame):
        events = events.where("kind <> 'row' OR table_name IS NOT NULL")  # avro has deletes that name no table
        catalog = catalog_of(events) if catalog is None else catalog
    catalog = catalog or Catalog()
    facts = table_facts(events, catalog=catalog)
    if not facts:
        raise DispatchError("The log has no row changes.", hint="Show what it contains: ticdc-lab survey SOURCE")
    rows, every = sum(t.rows for t in facts), sorted(facts, key=lambda t: -t.rows)
    if tables:
        facts = [t for t in facts if t.name in tables]
        if isinstance(events, DataFrame):
            events = events.where(F.concat("schema_name", F.lit("."), "table_name").isin(*tables))
        else:
            events = replace(events, tables=frozenset((t.schema_name, t.table_name) for t in facts))
    if not facts:
        some = ", ".join(t.name for t in every[:8]) + (f" and {len(every) - 8:,} more" if len(every) > 8 else "")
        raise DispatchError(f"The log has no row change of {', '.join(tables)}; expected some of its tables: {some}.")
    known = {t.name: definitions_of(catalog, t) for t in facts}
    offered = {t.name: candidates_for(t, known[t.name], singles_most=max_columns) for t in facts}
    asked = {
        name: [*(c.rule.columns for c in found if c.rule.columns), *columns] for name, (found, _) in offered.items()
    }
    indexes = {name: [c.rule.index for c in found if c.rule.index] for name, (found, _) in offered.items()}
    lists = {name: [*asked.get(name, ()), *beside.get(name, ())] for name in {**asked, **beside}}
    what_if = WhatIf.from_events(events, catalog, indexes=indexes, columns=lists, conflict_at=conflict_at)
    hot, met = hot_keys(events), collisions(events)
    listed = [_listed(tuple(c)) for c in columns]
    advised = []
    for t in facts:
        if t.name not in what_if.tables:
            continue
        mine = offered[t.name][0]
        own = [*mine, *[c for c in listed if c.name not in {m.name for m in mine}]]
        found = [m for n in counts for m in measured(what_if, t.name, own, n)]
        choices = {
            n: choose([m for m in found if m.partitions == n], keep=keep, share=t.rows / rows, allow_risk=allow_risk)
            for n in counts
        }
        met_here, moving = met.get(t.name), _moving(found)
        risks = risks_of(
            t, known[t.name], protocol=protocol, hot=hot.get(t.name, ()), met=met_here, moving=moving
        )  # fmt: skip
        advised.append(
            TableAdvice(
                t,
                t.rows / rows,
                choices,
                tuple(found),
                (*_gone(catalog, t), *risks),
                tuple(hot.get(t.name, ())),
                met_here,
                offered[t.name][1],
            )
        )
    if not advised:
        raise DispatchError(
            "No row change of the log has a commit_ts, so no order is known.",
            hint="Record with a protocol that carries commit_ts (`enable-tidb-extension=true` for canal-json).",
        )
    notes = _notes(what_if, facts, known)
    return _advice(what_if, advised, counts, keep, protocol, notes, allow_risk=allow_risk)


def _gone(catalog: Catalog, table: TableFact) -> list[str]:
    """The note on a table that is not there at the end of the log."""
    versions = catalog.versions.get((table.schema_name, table.table_name), ())
    if not versions or versions[-1].event not in ("dropped", "left"):
        return []
    origin = versions[-1].origin
    how = f"was renamed to {'.'.join(origin)}" if versions[-1].event == "left" and origin else "was dropped"
    return [f"The table {how} in the log: at its end no table has this name, so a rule for it is for the past."]


def _moving(found: Sequence[MeasuredCandidate]) -> frozenset[str]:
    """Single columns by which changes of one row came to several partitions."""
    by_one = (m for m in found if len(m.candidate.rule.columns) == 1 and m.broken.get("row_order", (0, 0))[0])
    return frozenset(m.candidate.rule.columns[0] for m in by_one)


def _listed(columns: tuple[str, ...]) -> Candidate:
    cancelled = cancelling(columns)
    risk = f"{', '.join(cancelled)} is listed twice and cancels" if cancelled else "columns of your own choice, no key"
    return Candidate("columns:" + ",".join(columns), Rule((), "columns", columns=columns), risk=risk)


def _advice(
    what_if: WhatIf, tables: Sequence[TableAdvice], counts: Sequence[int], keep: str, protocol: str, notes: list[str],
    *, allow_risk: bool,
) -> Advice:  # fmt: skip
    names = [t.fact.name.lower() for t in tables]
    feed = Changefeed((), protocol=protocol or None, case_sensitive=len(set(names)) < len(names))
    whole, by_bytes = ({n: _whole(what_if, tables, n, w) for n in counts} for w in ("rows", "bytes"))
    found = Advice(keep, allow_risk, counts[0], tuple(tables), whole, by_bytes, feed, tuple(notes), what_if, {})
    for n in counts:
        found = found.at(n).as_a_whole()
    return found.at(enough_partitions({n: n / e.max_over_mean for n, e in found.whole.items()}))


def _whole(what_if: WhatIf, tables: Sequence[TableAdvice], partitions: int, weight: str) -> Evenness:
    """How evenly all tables together fill the partitions, those without a choice by table."""
    chosen = dict.fromkeys(what_if.tables, "table")
    chosen |= {t.fact.name: t.choices[partitions].measured.candidate.name for t in tables}
    return evenness(what_if.load(strategy=chosen, partitions=partitions, weight=weight))


def _rules(tables: Sequence[TableAdvice], partitions: int) -> tuple[Rule, ...]:
    """One rule per dispatcher, its tables by their exact names; what goes by table needs none."""
    groups: dict[Rule, list[str]] = {}
    for t in tables:
        rule = t.choices[partitions].measured.candidate.rule
        if rule.partition != "table":
            groups.setdefault(rule, []).append(matcher_of(t.fact.schema_name, t.fact.table_name))
    return tuple(replace(rule, matcher=tuple(names)) for rule, names in groups.items())


def _notes(what_if: WhatIf, facts: Sequence[TableFact], known: Mapping[str, Sequence[TableDef]]) -> list[str]:
    notes = [what_if.note] if what_if.note else []
    known_here = [t for t in facts if t.name in what_if.tables]
    lie = sum(t.rows for t in known_here)
    once = sum(int(load_of(what_if, t.name, "table", 1).sum()) for t in known_here)
    if lie > once:
        notes.append(
            f"Rows, shares, updates and hot keys count what lies in the log, {lie:,} row changes. How even partitions "
            f"are and what breaks count each change once and with a commit_ts, {once:,}."
        )
    left = [t.name for t in facts if t.name not in what_if.tables]
    if left:
        notes.append(f"Not measured by themselves, they go by table: {', '.join(left)}.")
    blind = [t.name for t in facts if not known[t.name]]
    if blind:
        notes.append(f"No definition in the log, so that unique indexes are not known: {', '.join(blind)}.")
    notes += [
        f"{a} and {b} have the same table hash: by table they always share a partition."
        for a, b in tables_that_collide(facts)
    ]
    return notes


# What a user should know of a table before choosing a dispatcher, in plain sentences.

HOT = 0.1
"""Share of a table's rows from which a key is hot."""

_WRITES = {
    "open-protocol": "split: a message with d and one with u; raw: one with u and p",
    "canal-json": "split: DELETE and INSERT; raw: one UPDATE whose old contains the old key",
    "canal": "split: DELETE and INSERT; raw: one UPDATE with the columns before",
    "simple": "split: DELETE and INSERT; raw: one UPDATE with old",
    "debezium": "split: op d and op c; raw: one op u, whose key is the new one",
    "debezium-avro": "split: op d and op c; raw: one op u, whose key is the new one",
    "maxwell": "split: delete and insert; raw: one update whose old contains the old key",
    "avro": "split: a delete without commit_ts under the old key and a c under the new; raw: one u under the new key "
    "and nothing under the old, so that a compacted topic never drops the old row",
    "csv": "split: a D and an I line; raw: one U line, or D and I with is-update if the old value is output",
}
"""What each protocol writes for an update that changes a key (TiCDC's source)."""


def risks_of(
    table: TableFact,
    definitions: Sequence[TableDef],
    *,
    protocol: str,
    hot: Sequence[HotKey] = (),
    met: Collisions | None = None,
    moving: frozenset[str] = frozenset(),
) -> list[str]:
    """Sentences about a table, most important first; by the columns ``moving`` a row was seen to change partition."""
    out = _keys(table, definitions) + _key_changes(table, protocol)
    out += [s for c in table.columns if c.is_key for s in _key_column(c)]
    out += _labels(table) + _virtual(definitions) + _hot(hot) + _collisions(table, met)
    still = [c for c in table.columns if not c.is_key and c.compared and not c.changed and c.distinct > 1]
    return out + [
        f"{c.name} changes in none of {c.compared:,} updates, but "
        + (
            "a row came to several partitions by it, as where it is deleted and inserted again: not usable."
            if c.name in moving
            else "is no key: usable, at a risk."
        )
        for c in still
    ]


def _keys(table: TableFact, definitions: Sequence[TableDef]) -> list[str]:
    if table.keyless == table.rows:
        return ["No key: index-value is the same as table, and TiCDC sends it only with force-replicate."]
    more = sorted({i.name for d in definitions for i in d.unique_indexes if d.handle is not None and i != d.handle})
    if not definitions:
        return ["The log has no definition of the table: its other unique indexes, if any, were not checked."]
    if not more:
        return []
    return [f"More than one unique index ({', '.join(more)} beside the handle key): a value of it can pass from a row "
            "in one partition to a row in another."]  # fmt: skip


def _key_changes(table: TableFact, protocol: str) -> list[str]:
    if not table.whole_key_changes and not table.split_key_changes:
        return []
    writes = _WRITES.get(protocol, "split: a delete and an insert; raw: one update")
    return [
        f"Updates of a key: {table.whole_key_changes:,} whole and {table.split_key_changes:,} as delete and insert of "
        f"one key ({protocol} writes them {writes}). An update to another key that was split looks like any delete "
        "and insert and is not counted."
    ]


def _key_column(c: ColumnFact) -> list[str]:
    kind = c.mysql_type.lower()
    out = []
    if kind.startswith("timestamp"):
        out.append(f"The key {c.name} is a TIMESTAMP: its partition depends on the time zone of the TiCDC server.")
    if kind.startswith(("float", "double")):
        out.append(f"The key {c.name} is a floating-point number: what is hashed is its shortest decimal text.")
    if kind.startswith(("char", "varchar")) or "text" in kind:
        out.append(
            f"The key {c.name} is text: under a case-insensitive collation 'A' and 'a' are one key with two hashes."
        )
    return out


def _labels(table: TableFact) -> list[str]:
    return [
        f"Of {c.name} ({c.mysql_type}) the log contains labels, TiCDC hashes numbers: a hash with it is not known here."
        for c in table.columns
        if c.labels
    ]


def _virtual(definitions: Sequence[TableDef]) -> list[str]:
    names = sorted({c.name for d in definitions for c in d.columns if c.generated == "virtual" and not c.hidden})
    return [f"Virtual generated columns cannot be dispatched by: {', '.join(names)}."] if names else []


def _hot(hot: Sequence[HotKey]) -> list[str]:
    return [
        f"Hot key {k.key}: {k.rows:,} changes, {percent(k.share)} of the table; no dispatcher by key can spread them."
        for k in hot
        if k.share >= HOT and k.rows > 1
    ]


def _collisions(table: TableFact, met: Collisions | None) -> list[str]:
    out = []
    if met is not None and met.groups and met.example:
        text = f"; {met.by_text:,} of them because name and value run together" if met.by_text else ""
        out.append(
            f"{met.keys:,} of {met.distinct:,} keys share {met.groups:,} hashes{text}, such as {met.example[0]} and "
            f"{met.example[1]}: they always share a partition."
        )
    if met is not None and met.cancelled:
        out.append(f"{met.cancelled:,} keys cancel: their columns' hashes XOR to nothing, so that they go by table.")
    keys = [c.name for c in table.columns if c.is_key]
    out += [
        f"The key columns {a} and {b} can cancel: {a} = {b[len(a) :]}x and {b} = x put the same text into the hash."
        for a, b in permutations(keys, 2)
        if b.startswith(a) and b != a
    ]
    return out


def cancelling(columns: Sequence[str]) -> list[str]:
    """Columns that a list holds an even number of times, in any case: XOR leaves nothing of them."""
    times: Mapping[str, int] = {c.lower(): sum(c.lower() == o.lower() for o in columns) for c in columns}
    return sorted(c for c, n in times.items() if n % 2 == 0)


# The policy: keep the asked guarantee, then be even, then be simple.
#
# 1. A candidate is out if TiCDC refuses it, if the log has rows it cannot place, or if it breaks the asked guarantee.
# 2. A candidate whose columns are no part of the handle key is out too, unless risks are allowed: that it kept the
#    guarantee in this log does not bind tomorrow's updates.
# 3. A table so small that it adds less than SMALL of a partition's mean load goes by `table` if that is left.
# 4. Of the rest, those within TOLERANCE of the most even one are as good; the simplest of them is chosen.
# 5. Over all tables, choices that keep more are taken if they are no less even and break no more: tables that go by
#    `table` may meet in one partition.
# 6. The partition count is the smallest that gives ENOUGH of the best parallelism (all rows over the fullest
#    partition).

SMALL, TOLERANCE, ENOUGH = 0.1, 1.1, 0.9

KEPT: Mapping[str, tuple[str, ...]] = {
    "row": ("row_order",),
    "unique": ("row_order", "row_order_any_unique"),
    "transaction": ("row_order", "row_order_any_unique", "transactions"),
    "table": ("table_order",),
}
"""What each ``keep`` asks of the what-if's guarantees; without a catalog the unique keys are not known."""

SAID = {
    "row_order": "the order of a row's changes",
    "row_order_any_unique": "the order of rows that share a unique value",
    "transactions": "the transactions of the table",
    "table_order": "the order of the table's changes",
}


@dataclass(frozen=True, slots=True)
class Recommendation:
    """The measured candidate that is recommended, why, and why not each other (name to sentence)."""

    measured: MeasuredCandidate
    reasons: tuple[str, ...]
    why_not: Mapping[str, str]


def choose(found: Sequence[MeasuredCandidate], *, keep: str, share: float, allow_risk: bool = False) -> Recommendation:
    """Recommend one of the candidates of a table.

    Parameters
    ----------
    found
        All candidates of the table with one partition count; ``table`` is among them.
    keep
        A key of :data:`KEPT`.
    share
        The table's share of all rows of the log.
    allow_risk
        Whether columns may be recommended that are no key.
    """
    partitions = found[0].partitions
    why_not = {m.candidate.name: why for m in found if (why := out(m, keep))}
    good = [m for m in found if m.candidate.name not in why_not]
    safe = [m for m in good if allow_risk or not m.candidate.risk]
    table = next(m for m in found if m.candidate.name == "table")
    small = share * partitions <= SMALL
    if small and table in safe:
        best = table
    else:
        least = min((m.uneven for m in safe), default=table.uneven)
        near = [m for m in safe if m.uneven <= least * TOLERANCE] or [table]
        best = min(near, key=lambda m: m.candidate.simplicity)
    others = {m.candidate.name: _not_chosen(m, best, allow_risk=allow_risk, small=small) for m in good if m is not best}
    return Recommendation(best, tuple(_reasons(best, keep, share, small, alone=safe == [table])), why_not | others)


def out(m: MeasuredCandidate, keep: str, *, first: bool = True) -> str:
    """Why a candidate is out at any evenness; empty if it is not. ``first``: with the first case."""
    if m.candidate.refused:
        return f"cannot be set: {m.candidate.refused}"
    if m.unplaced:
        return f"cannot place {m.unplaced:,} rows"
    for guarantee in KEPT[keep]:
        broken, cases = m.broken.get(guarantee, (0, 0))
        if broken:
            case = _pair(m.pairs.get(guarantee)) if first else ""
            return f"breaks {SAID[guarantee]} in {broken:,} of {cases:,} cases{case}"
    return ""


def _pair(pair: list[dict[str, Any]] | None) -> str:
    if not pair:
        return ""

    def at(p: dict[str, Any]) -> str:
        where = f"offset {p['offset']}) in partition {p['target_partition']}"
        return with_clock(f"{p['key'] or 'a row'} (commit_ts {p['commit_ts']}, {where}")

    return f", first {at(pair[0])} before {at(pair[1])}"


def _not_chosen(m: MeasuredCandidate, best: MeasuredCandidate, *, allow_risk: bool, small: bool) -> str:
    if m.candidate.risk and not allow_risk:
        return f"is a risk: {m.candidate.risk}; {_fullest(m, uneven_by(m, best))}"
    if small or m.uneven <= best.uneven * TOLERANCE:
        return f"is less simple; {_fullest(m, uneven_by(m, best))}"
    by = uneven_by(m, best)
    other = best.rows if by == "rows" else best.bytes
    return f"is less even: {_fullest(m, by)}, not {other.max_over_mean:.2f} times"


def _fullest(m: MeasuredCandidate, by: str) -> str:
    even = m.rows if by == "rows" else m.bytes
    return f"the fullest would take {even.max_over_mean:.2f} times the mean of {by}"


def uneven_by(m: MeasuredCandidate, best: MeasuredCandidate) -> str:
    """The unit that shows that a candidate is uneven, or less even than the best one: rows if they do, else bytes."""
    if m.uneven > best.uneven * TOLERANCE:
        return "rows" if m.rows.max_over_mean > best.rows.max_over_mean * TOLERANCE else "bytes"
    return "bytes" if m.uneven > m.rows.max_over_mean else "rows"


def _reasons(best: MeasuredCandidate, keep: str, share: float, small: bool, *, alone: bool) -> list[str]:
    n = best.partitions
    kept = [f"{SAID[g]} ({count(best.broken[g][1], 'case')})" for g in KEPT[keep] if best.broken.get(g, (0, 0))[1]]
    out = [f"It keeps {' and '.join(kept)}."] if kept else []
    if best.candidate.risk:
        out.append(f"A risk that was allowed: {best.candidate.risk}.")
    if best.candidate.name != "table":
        return [*out, f"Fullest of {n} partitions: {best.uneven:.2f} times the mean of this table's rows or bytes."]
    if small:
        return [
            *out,
            f"The table has {percent(share)} of all rows: spreading them over {n} partitions would change nothing.",
        ]
    cost = f"one partition takes all its rows, {percent(share)} of the log, and one consumer at a time applies them"
    return [
        *out,
        f"Nothing else keeps it without a risk; the cost: {cost}." if alone else f"As even as any other; {cost}.",
    ]


def enough_partitions(parallelism: Mapping[int, float]) -> int:
    """The smallest partition count with nearly the best parallelism (count to all rows over the fullest)."""
    best = max(parallelism.values())
    return min(n for n, p in parallelism.items() if p >= best * ENOUGH)

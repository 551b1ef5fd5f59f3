"""What a user should know of a table before choosing a dispatcher, in plain sentences."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import permutations

from ticdc_lab.dispatch.advise_facts import Collisions, ColumnFact, HotKey, TableFact
from ticdc_lab.facts.catalog import TableDef

HOT = 0.1
"""Share of a table's rows from which a key is hot."""

_WRITES = {
    "open-protocol": "split: a message with d and one with u; raw: one with u and p",
    "canal-json": "split: DELETE and INSERT; raw: one UPDATE whose old holds the old key",
    "canal": "split: DELETE and INSERT; raw: one UPDATE with the columns before",
    "simple": "split: DELETE and INSERT; raw: one UPDATE with old",
    "debezium": "split: op d and op c; raw: one op u, whose key is the new one",
    "maxwell": "split: delete and insert; raw: one update whose old holds the old key",
    "avro": "split: a delete without commit_ts under the old key and a c under the new; raw: one u under the new key "
    "and nothing under the old, so that a compacted topic keeps the old row for ever",
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
) -> list[str]:
    """Sentences about a table, most important first."""
    out = _keys(table, definitions) + _key_changes(table, protocol)
    out += [s for c in table.columns if c.is_key for s in _key_column(c)]
    out += _labels(table) + _virtual(definitions) + _hot(hot) + _collisions(table, met)
    still = [c for c in table.columns if not c.is_key and c.compared and not c.changed and c.distinct > 1]
    return out + [
        f"{c.name} changes in none of {c.compared:,} updates, but is no key: usable, at a risk." for c in still
    ]


def _keys(table: TableFact, definitions: Sequence[TableDef]) -> list[str]:
    if table.keyless == table.rows:
        return ["No key: index-value is the same as table, and TiCDC sends it only with force-replicate."]
    more = sorted({i.name for d in definitions for i in d.unique_indexes if d.handle is not None and i != d.handle})
    if not definitions:
        return ["The log holds no definition of the table: its other unique indexes, if any, were not checked."]
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
        f"Of {c.name} ({c.mysql_type}) the log holds labels, TiCDC hashes numbers: a hash with it is not known here."
        for c in table.columns
        if c.labels
    ]


def _virtual(definitions: Sequence[TableDef]) -> list[str]:
    names = sorted({c.name for d in definitions for c in d.columns if c.generated == "virtual" and not c.hidden})
    return [f"Virtual generated columns cannot be dispatched by: {', '.join(names)}."] if names else []


def _hot(hot: Sequence[HotKey]) -> list[str]:
    return [
        f"Hot key {k.key}: {k.rows:,} changes, {k.share:.0%} of the table; no dispatcher by key can spread them."
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

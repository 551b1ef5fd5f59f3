"""Rows beside the tables that the log's own DDL define: which table, columns and values each row change may have.

TiCDC reads a row change with the definition that its table has at its commit_ts, and TiDB has checked each value
against that. The DDL of a log give the definition where they create the table, or follow from one that does. Nothing is
judged of a table before its first DDL unless that creates it, after one that is not understood, and at the commit_ts of
a DDL itself.

Each image is read once, as columns: names are numbers by their dictionary, and most values pass by their length alone.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, cached_property
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ticdc_lab.events.arrays import NO_TS, Bools, Ints, Stretches, codes, distinct, encoded, runs, timestamps
from ticdc_lab.events.ddl import unescaped
from ticdc_lab.events.mysql_types import BINARIES
from ticdc_lab.events.schema import IMAGES
from ticdc_lab.facts import LogFacts
from ticdc_lab.facts.catalog import DDL, GONE, Catalog, RefusedDdl, TableVersion
from ticdc_lab.facts.definitions import ColumnDef, TableDef, TableName
from ticdc_lab.facts.known import LostSchema
from ticdc_lab.tables.mysql_types import parsed

UNKNOWN, ABSENT = -1, -2
"""The version of a table where none is known, and where no such table exists."""

READ = ("topic", "partition", "offset", "seq", "commit_ts", "schema_name", "table_name", "op", "incomplete")
"""What is read of a row change besides the names and values of its images."""

_ANY = np.iinfo(np.int64).max

TableKey = tuple[str | None, str, str]
"""Topic (None for all), schema and table."""


@dataclass(frozen=True, slots=True)
class Defined:
    """Stretches of a table's life: its state up to the first ``since`` (commit_ts), and from each on.

    A state is a place in :attr:`Definitions.versions`, :data:`UNKNOWN` or :data:`ABSENT`; ``made`` is the commit_ts of
    the DDL that made it.
    """

    since: Ints
    state: Ints
    made: Ints


@dataclass(frozen=True)
class Definitions:
    """What the DDL of a log define of its tables, by topic where topics contradict each other."""

    tables: dict[TableKey, Defined]  # by topic (None: of any), schema and table
    versions: tuple[TableDef, ...]  # definitions that tables have had
    # DDL that do not follow from those before them, with the topic.
    contradictions: tuple[tuple[str | None, RefusedDdl], ...] = ()
    # Of each commit_ts of a DDL its first partition and offset: three rows.
    said: Ints = field(default_factory=lambda: np.empty((3, 0), dtype=np.int64))
    rounded: bool = False  # decimals went through a DOUBLE
    not_understood: tuple[str, ...] = ()
    """DDL after which definitions are unknown: commit_ts, table and why, each as words."""
    by_messages: Ints = field(default_factory=lambda: np.empty(0, dtype=np.int64))
    """Of these ``made`` the definition is a message's (simple's BOOTSTRAP), not a DDL's."""
    left_unjudged: Mapping[str, str] = field(default_factory=dict)
    """By guarantee, what of it cannot be judged after the protocol's encoder."""

    @classmethod
    def read(cls, facts: LogFacts, *, protocol: str) -> Definitions:
        """From a log's facts.

        The DDL of all topics are one history, unless two topics have different DDL of one table: then these are two
        changefeeds, or two recordings of one, and each topic has its own.
        """
        named = ("topic", "partition", "commit_ts", "offset", "schema_name", "table_name", "query")
        dated = [d for d in facts.ddl.select(named).to_pylist() if d["commit_ts"] is not None and d["query"]]
        dated.sort(key=lambda d: (d["commit_ts"], d["offset"] or 0))
        by_topic, every = dict[str | None, dict[DDL, None]](), dict[DDL, None]()
        topics_at, said = dict[int, set[str | None]](), dict[int, tuple[int, int]]()
        for d in dated:
            one = (d["commit_ts"], d["schema_name"] or "", d["table_name"] or "", d["query"])
            by_topic.setdefault(d["topic"], {})[one] = every[one] = None
            topics_at.setdefault(d["commit_ts"], set()).add(d["topic"])
            said.setdefault(d["commit_ts"], (d["partition"] or 0, d["offset"] or 0))
        apart = _are_apart(by_topic)
        # Debezium's encoder leaves RECOVER and FLASHBACK out: what was dropped may be back. Avro's keeps the schema of
        # a table that is renamed: its rows may come under the old name
        recovers, renames = not protocol.startswith("debezium"), protocol != "avro"
        tables, versions = dict[TableKey, Defined](), dict[TableDef, int]()
        contradictions: list[tuple[str | None, RefusedDdl]] = []
        unknown, drops, freed, by_messages = dict[str, None](), False, False, dict[int, None]()
        for topic, ddl in by_topic.items() if apart else [(None, every)]:
            catalog = Catalog.from_ddl(ddl).in_rows(protocol)
            refused, since = catalog.refused, dict[TableName, int]()
            if "definitions" in facts.carried and not apart:
                catalog, since = _with_defined(catalog, ddl, facts.definitions())
            # DDL of one moment in several topics have no order
            ordered = (c for c in refused if apart or len(topics_at[c.commit_ts or 0]) == 1)
            contradictions += [(topic, c) for c in ordered if c.taken or recovers]
            for u in catalog.unparsed:
                table = ".".join(filter(None, (u.schema_name, u.table_name)))
                unknown[f"commit_ts {u.commit_ts}, {table}: {u.reason}"] = None
            for name, ends in catalog.ends.items() if recovers else ():
                if name[1] and name not in catalog.versions and (at := [ts for ts in ends if ts is not None]):
                    gone = np.array([min(at)], dtype=np.int64)
                    tables[topic, *name] = Defined(gone, np.array([UNKNOWN, ABSENT]), np.append(gone, gone))
            freed |= any(v.event == "left" for own in catalog.versions.values() for v in own)
            drops |= bool(catalog.ends) or any(v.event == "dropped" for own in catalog.versions.values() for v in own)
            for name, history in catalog.versions.items():
                tables[topic, *name] = _stretches(
                    catalog, name, history, versions, moves=not apart, recovers=recovers, renames=renames,
                    since=since.get(name, 0),
                )  # fmt: skip
            for name, ts in since.items():
                if ts not in said:
                    said[ts], by_messages[ts] = _first_message(facts, name), None
        places = np.array([(ts, *place) for ts, place in sorted(said.items())], dtype=np.int64).reshape(-1, 3).T
        given = np.array([*by_messages], dtype=np.int64)
        left = {} if recovers else _left_by_debezium(versions, drops=drops)
        if freed and not renames:
            left = {"rows_have_a_table": _OLD_NAME}
        return cls(tables, tuple(versions), tuple(contradictions), places, not recovers, tuple(unknown), given, left)

    def without(self, names: Collection[TableName]) -> Definitions:
        """The same without these tables, whose DDL the log does not have in full."""
        if not names:
            return self
        unknown = {(s.lower(), t.lower()) for s, t in names}
        tables = {k: v for k, v in self.tables.items() if (k[1].lower(), k[2].lower()) not in unknown}
        about = (c for c in self.contradictions if (c[1].schema_name.lower(), c[1].table_name.lower()) not in unknown)
        return replace(self, tables=tables, contradictions=tuple(about))

    def until(self, lost: Collection[LostSchema]) -> Definitions:
        """The same without what follows a schema file that is missing, in its table; and no DDL contradicts one that
        lies before such a file.
        """
        first: dict[TableName, int] = {}
        for of in lost:
            name = (of.schema.lower(), of.table.lower())
            first[name] = min(of.version, first.get(name, of.version))
        tables = dict(self.tables)
        for key, own in self.tables.items():
            if (since := first.get((key[1].lower(), key[2].lower()))) is not None:
                n = int(np.searchsorted(own.since, since))
                tables[key] = Defined(
                    np.append(own.since[:n], since), np.append(own.state[: n + 1], UNKNOWN),
                    np.append(own.made[: n + 1], since),
                )  # fmt: skip
        about = (
            c for c in self.contradictions
            if not any((c[1].since or 0) < of.version <= (c[1].commit_ts or _ANY) for of in lost)
        )  # fmt: skip
        return replace(self, tables=tables, contradictions=tuple(about)) if lost else self

    def rule_of(self, column: ColumnDef) -> ColumnRule:
        """What a column allows in this log."""
        nullable = column.nullable or column.generated == "virtual"  # no row holds it: avro writes NULL
        rule = rule_of(column.mysql_type, nullable=nullable)
        rounded = self.rounded and parsed(column.mysql_type).family == "decimal"
        return ColumnRule(rule.mysql_type, rule.nullable) if rounded else rule

    @property
    def judge(self) -> bool:
        """Whether anything can be judged of some table's rows."""
        return any((own.state != UNKNOWN).any() for own in self.tables.values())

    @cached_property
    def lower(self) -> dict[TableKey, Defined]:
        """The same by names in lower case, which no two tables share."""
        return {(topic, s.lower(), t.lower()): own for (topic, s, t), own in self.tables.items()}

    def of_any(self, schema: str, table: str) -> Defined | None:
        """The life of a table in some topic, if a definition of it is known."""
        return self._of_any.get((schema.lower(), table.lower()))

    @cached_property
    def _of_any(self) -> dict[TableName, Defined]:
        found: dict[TableName, Defined] = {}
        for (_, schema, table), own in self.tables.items():
            if (own.state >= 0).any():
                found.setdefault((schema.lower(), table.lower()), own)
        return found

    def of(self, topic: str | None, schema: str | None, table: str | None) -> Defined | None:
        """The life of the table that rows name."""
        if schema is None or table is None:
            return None
        for place in ((topic, schema, table), (None, schema, table)):
            if place in self.tables:
                return self.tables[place]
        return self.lower.get((topic, schema.lower(), table.lower())) or self.lower.get(
            (None, schema.lower(), table.lower())
        )


_OLD_NAME = "avro may keep a table's name from before a RENAME, so rows under such a name are not judged behind it"


def _left_by_debezium(versions: Iterable[TableDef], *, drops: bool) -> dict[str, str]:
    left = {}
    if drops:
        recovered = "debezium leaves RECOVER and FLASHBACK TABLE out of the log, so"
        left["rows_have_a_table"] = f"{recovered} rows of a table that was dropped before are not judged"
        left["ddl_names_are_free"] = f"{recovered} DDL that name a dropped table are not judged"
    if any(parsed(c.mysql_type).family == "decimal" for of in versions for c in of.columns):
        left["values_fit_their_columns"] = "debezium writes DECIMAL as DOUBLE, so the digits of DECIMAL are not judged"
    return left


def _are_apart(ddl: dict[str | None, dict[DDL, None]]) -> bool:
    """Whether two topics have different DDL of one table."""
    seen: dict[TableName, set[DDL]] = {}
    for own in ddl.values():
        of_tables: dict[TableName, set[DDL]] = {}
        for one in own:
            if one[2]:
                of_tables.setdefault((one[1], one[2]), set()).add(one)
        if any(seen.setdefault(name, these) != these for name, these in of_tables.items()):
            return True
    return False


def _with_defined(
    catalog: Catalog, ddl: Iterable[DDL], defined: Sequence[tuple[int, TableDef]]
) -> tuple[Catalog, dict[TableName, int]]:
    """The catalog with tables that were there before their first DDL, and since when each is known.

    A table that a DDL of the log makes was not there before it. If one changes without a DDL of the log, the time is
    unknown: rows of its former version may come behind the TSO of the next.
    """
    before, several = dict[TableName, tuple[int, TableDef]](), set[TableName]()
    for ts, of in defined:
        name = (of.schema_name, of.table_name)
        if before.setdefault(name, (ts, of))[1] != of:
            several.add(name)
    named = {(s.lower(), t.lower()): own[0].event in _MADE for (s, t), own in catalog.versions.items()}
    for name in [*before]:
        made = named.get((name[0].lower(), name[1].lower()))
        if made or (made is None and name in several and name not in catalog.ends):
            del before[name]
    for _ in range(2):
        whole = Catalog.from_ddl(ddl, before=[of for _, of in before.values()])
        if len(whole.refused) == len(catalog.refused):
            return whole, {name: ts for name, (ts, _) in before.items()}
        # the log makes more tables than its first reading has shown: by a RENAME of a table that was not known then
        more = {(r.schema_name, r.table_name) for r in whole.refused if r not in catalog.refused}
        before = {name: own for name, own in before.items() if name not in more}
    return catalog, {}


_MADE = ("created", "renamed", "recovered")


def _first_message(facts: LogFacts, name: TableName) -> tuple[int, int]:
    """Partition and offset of the first message that defines a table."""
    places = facts.of_kind("bootstrap", "ddl").select(["schema_name", "table_name", "partition", "offset"]).to_pylist()
    found = [(p["partition"] or 0, p["offset"] or 0) for p in places if (p["schema_name"], p["table_name"]) == name]
    return min(found, key=lambda place: place[1], default=(0, 0))


def _stretches(
    catalog: Catalog, name: TableName, history: Sequence[TableVersion], versions: dict[TableDef, int], *, moves: bool,
    recovers: bool, renames: bool, since: int,
) -> Defined:  # fmt: skip
    """The life of a table; ``moves``: renames are followed, as both names' DDL are known, ``recovers`` that
    the log would name what brings a dropped table back, and ``renames`` that rows have the new name behind a RENAME.
    A definition that was there before the first DDL is known from ``since`` on.
    """
    found: list[tuple[int, int]] = []
    ends = (*catalog.ends.get(name, ()), *catalog.ends.get((name[0].lower(), ""), ()))
    first = history[0].commit_ts or since
    dropped = max((ts for ts in ends if ts is not None and ts < first), default=None)
    born = history[0].event == "created" or (history[0].event == "renamed" and moves)
    before = ABSENT if born and dropped is None else UNKNOWN
    if born and dropped is not None:
        found.append((dropped, ABSENT if recovers else UNKNOWN))
    for version in history:
        if version.event in GONE:
            state = ABSENT if (moves and renames if version.event == "left" else recovers) else UNKNOWN
        elif version.definition is None or not (moves or version.event != "renamed"):
            state = UNKNOWN
        else:
            state = versions.setdefault(version.definition, len(versions))
        found.append((version.commit_ts or since, state))
    last = dict(found)  # of several at one moment the last
    begins = np.array(sorted(last), dtype=np.int64)
    states = np.array([before, *(last[ts] for ts in sorted(last))], dtype=np.int64)
    # what was not there before its first DDL is shown by that one
    return Defined(begins, states, np.append(begins[0], begins))


@dataclass(frozen=True)
class Cells:
    """Values of images that may break something beside the definition of their row, and that row."""

    row: Ints  # index of the row in :class:`RowsDefined`
    rule: Ints  # the column's place in ``rules``, -1 where the definition has no such column
    name: pa.Array  # column names
    value: pa.Array  # texts; null is NULL


@dataclass(frozen=True)
class RowsDefined:
    """Row changes with their tables' definitions."""

    rows: pa.Table  # :data:`READ` of each
    # The state of its table, as of :class:`Defined`, and ``made`` the commit_ts of the DDL that made it (NO_TS where
    # nothing is known).
    version: Ints
    made: Ints
    cells: Cells  # of both images, those that may break something, of rows whose definition is known
    rules: tuple[ColumnRule, ...]  # what each column of these definitions allows
    # ``said``, ``by_messages``: as of :class:`Definitions`.
    said: Ints
    by_messages: Ints

    @cached_property
    def commit_ts(self) -> Ints:
        """Of each row; NO_TS where it is null."""
        return timestamps(self.rows["commit_ts"])

    def first(self, broken: Bools) -> tuple[Ints, Ints, Ints]:
        """Of cells that break something: of each of their rows the first one, the row, and how many columns do."""
        at = np.flatnonzero(broken)
        order = at[np.argsort(self.cells.row[at], kind="stable")]
        row, first = np.unique(self.cells.row[order], return_index=True)
        names = codes(self.cells.name.take(pa.array(order)))
        pairs = np.unique(self.cells.row[order] * (int(names.max(initial=0)) + 1) + names) if len(order) else names
        n = np.bincount(np.searchsorted(row, pairs // (int(names.max(initial=0)) + 1)), minlength=len(row))
        return order[first], row, n.astype(np.int64)


def defined_rows(rows: pa.Table, definitions: Definitions) -> RowsDefined:
    """Put row changes beside their definitions; ``rows`` has :data:`READ` and :data:`IMAGES`."""
    version, made = _versions(rows, definitions)
    known = (version >= 0) & np.asarray(pc.fill_null(pc.not_equal(rows["incomplete"], "corrupted"), True))
    rules, place = list[ColumnRule](), dict[ColumnDef, int]()
    parts = [_odd_cells(rows[image], version, known, definitions, rules, place) for image in IMAGES]
    cells = Cells(
        np.concatenate([p.row for p in parts]),
        np.concatenate([p.rule for p in parts]),
        pa.concat_arrays([p.name for p in parts]),
        pa.concat_arrays([p.value for p in parts]),
    )
    return RowsDefined(rows, version, made, cells, tuple(rules), definitions.said, definitions.by_messages)


def _odd_cells(
    lists: pa.Array | pa.ChunkedArray, version: Ints, known: Bools, definitions: Definitions, rules: list[ColumnRule],
    place: dict[ColumnDef, int],
) -> Cells:  # fmt: skip
    """Of an image of all rows the cells that may break something: most pass by their length."""
    lists = lists.combine_chunks() if isinstance(lists, pa.ChunkedArray) else lists
    n, flat = pc.fill_null(pc.list_value_length(lists), 0).to_numpy(), pc.list_flatten(lists)
    names, value = pc.struct_field(flat, "name"), pc.struct_field(flat, "value")
    name, texts = encoded(names)
    any_known = version[np.argmax(known)] if known.any() else UNKNOWN
    pair = np.repeat(np.where(known, version, any_known) * len(texts), n) + name
    rule = _rules(pair, texts, definitions, rules, place) if known.any() else np.full(len(flat), -1)
    offsets = np.frombuffer(value.buffers()[1] or bytes(4), np.int32, len(value) + 1, value.offset * 4)
    safe = np.array([rule.safe for rule in rules] + [-1])
    odd = np.diff(offsets) > np.minimum(safe, np.iinfo(np.int32).max).astype(np.int32)[rule]
    if value.null_count:
        odd |= np.array([not rule.nullable for rule in rules] + [True])[rule] & np.asarray(value.is_null())
    if any(rule.unsigned for rule in rules):
        begins = np.frombuffer(value.buffers()[2] or b"\0", np.uint8)
        minus = begins[np.minimum(offsets[:-1], len(begins) - 1)] == ord("-")
        odd |= np.array([rule.unsigned for rule in rules] + [False])[rule] & minus & (offsets[1:] > offsets[:-1])
    if not known.all():
        odd &= np.repeat(known, n)
    at = np.flatnonzero(odd)
    row = np.repeat(np.arange(len(n)), n)[at] if len(at) else at
    return Cells(row, rule[at], names.take(pa.array(at)).cast(pa.string()), value.take(pa.array(at)))


def _versions(rows: pa.Table, definitions: Definitions) -> tuple[Ints, Ints]:
    """The state of each row's table at its commit_ts, and since when."""
    ts = timestamps(rows["commit_ts"])
    version, made = np.full(len(ts), UNKNOWN), np.full(len(ts), NO_TS)
    own = [encoded(rows[c]) for c in ("topic", "schema_name", "table_name")]
    whole = np.zeros(len(ts), dtype=np.int64)
    for code, values in own:
        whole = whole * len(values) + code
    order = np.argsort(whole, kind="stable")
    for part in runs(whole[order]) if len(order) else ():
        at = order[part]
        names = (values[code[at[0]]] for code, values in own)
        life = definitions.of(*names)
        if life is not None:
            i = np.searchsorted(life.since, ts[at])
            exact = np.isin(ts[at], life.since) | (ts[at] == NO_TS)
            version[at] = np.where(exact, UNKNOWN, life.state[i])
            made[at] = life.made[i]
    return version, made


def unproved(noted: pa.Table, definitions: Definitions) -> Stretches:
    """First and last offsets between which, in any partition, row changes lie that only their images can judge.

    ``noted``: what kernels noted of all row changes (:data:`ticdc_lab.codecs.kernel.noted.FORM`). A DDL of the
    table among them, or a value that may not fit, asks for images.
    """
    columns = dict[tuple[int, str], ColumnRule | None]()

    def is_proved(r: dict[str, Any]) -> bool:
        if r["first_ts"] is None:
            return False
        life = definitions.of(*(r[c] for c in ("topic", "schema_name", "table_name")))
        if life is None:
            return True
        i = int(np.searchsorted(life.since, r["first_ts"]))
        if i != np.searchsorted(life.since, r["last_ts"], side="right"):
            return False
        version = int(life.state[i])
        if version < 0 or r["name"] is None:
            return version != ABSENT
        at = version, r["name"]
        if at not in columns:
            column = definitions.versions[version].column(r["name"])
            columns[at] = None if column is None else definitions.rule_of(column)
        rule = columns[at]
        return rule is not None and rule.allows(r)

    each = (r for batch in noted.to_batches(max_chunksize=4096) for r in batch.to_pylist())
    left = sorted((r["first_offset"], r["last_offset"]) for r in each if not is_proved(r))
    found = list[list[int]]()
    for first, last in left:
        if found and first <= found[-1][1] + 1:
            found[-1][1] = max(found[-1][1], last)
        else:
            found.append([first, last])
    first, last = np.array(found, dtype=np.int64).reshape(-1, 2).T
    return first, last


_OF_EXPRESSION = ("_V$_", "_V__")
"""How names of hidden columns begin, by which TiDB stores the index of an expression; avro has them."""


def _rules(
    named: Ints, texts: Sequence[str | None], definitions: Definitions, rules: list[ColumnRule],
    place: dict[ColumnDef, int],
) -> Ints:  # fmt: skip
    """The rule of each cell's column by its version and name, one number (``named``); those that are new are added."""
    n = len(texts)
    pairs, of = distinct(named)
    found = np.empty(len(pairs), dtype=np.int64)
    for i, pair in enumerate(pairs.tolist()):
        column = definitions.versions[pair // n].column(texts[pair % n] or "")
        if column is not None and column not in place:
            place[column] = len(rules)
            rules.append(definitions.rule_of(column))
        if column is None and (texts[pair % n] or "").startswith(_OF_EXPRESSION):  # no DDL states it
            column = ColumnDef(_OF_EXPRESSION[0], "", hidden=True)
            if column not in place:
                place[column] = len(rules)
                rules.append(ColumnRule("", nullable=True))
        found[i] = -1 if column is None else place[column]
    of_cell: Ints = found[of]
    return of_cell


# What a column allows. Most values pass by the bytes of their text.

Misfit = Callable[[pa.Array], pa.Array]
"""Of texts that are no NULL: which do not fit."""

Measures = Mapping[str, int]
"""How far the values of a column go: :data:`ticdc_lab.codecs.kernel.noted.MEASURED` and ``ENDS``."""
Proof = Callable[[Measures], bool]
"""Whether measures show that no value is a misfit; some that fit may not show it."""


@dataclass(frozen=True, slots=True)
class ColumnRule:
    """What a column allows: a text of up to ``safe`` bytes always fits, unless it is ``negative`` where that is none;
    ``misfit`` judges the others, unless ``proof`` shows of all that they fit.
    """

    mysql_type: str
    nullable: bool
    safe: int = _ANY
    unsigned: bool = False
    misfit: Misfit = field(default=lambda texts: pa.repeat(pa.scalar(False), len(texts)))
    proof: Proof = field(default=lambda _: True)

    def allows(self, measures: Measures) -> bool:
        """Whether measures show that all values of a column fit, NULL among them."""
        return (self.nullable or not measures["nulls"]) and self.proof(measures)


_INTEGER_BYTES = {"tinyint": 1, "bool": 1, "boolean": 1, "smallint": 2, "mediumint": 3, "int": 4, "integer": 4,
                  "bigint": 8, "serial": 8}  # fmt: skip
_LONG = {"tinytext": 255, "text": 65_535, "mediumtext": 16_777_215, "longtext": 4_294_967_295,
         "tinyblob": 255, "blob": 65_535, "mediumblob": 16_777_215, "longblob": 4_294_967_295}  # fmt: skip


@cache
def rule_of(mysql_type: str, *, nullable: bool) -> ColumnRule:
    """What a column of a type allows.

    Lengths of CHAR, VARCHAR and the TEXT types count characters: of a TEXT no log names the character set. What a
    protocol writes in another form than MySQL prints it (binary that is not hex, a BIT as bytes) is not judged, nor are
    FLOAT, DOUBLE, JSON, and dates and times.
    """
    of = parsed(mysql_type)
    unsigned = "unsigned" in mysql_type or "zerofill" in mysql_type or of.name == "serial"
    if of.name in _INTEGER_BYTES:
        bits = 8 * _INTEGER_BYTES[of.name]
        low, high = (0, (1 << bits) - 1) if unsigned else (-(1 << bits - 1), (1 << bits - 1) - 1)
        return ColumnRule(mysql_type, nullable, len(str(high)) - 1, unsigned, _out_of(low, high), _within(low, high))
    if of.name == "bit":
        high = (1 << (of.precision or 1)) - 1
        return ColumnRule(mysql_type, nullable, len(str(high)) - 1, True, _out_of(0, high), _within(0, high))
    if of.family == "decimal":
        digits, scale = (10 if of.precision is None else of.precision), of.scale
        safe = min(digits - scale, scale + 1)  # of its bytes one may be the point
        misfit = _no_decimal(digits, scale, unsigned=unsigned)

        def proof(m: Measures) -> bool:
            fits = not m["no_decimal"] and m["digits"] <= digits - scale and m["fraction"] <= scale
            return fits and not (unsigned and m["minus"])

        return ColumnRule(mysql_type, nullable, safe, unsigned, misfit, proof)
    if of.name in ("char", "varchar"):
        most = 1 if of.precision is None else of.precision
        return ColumnRule(mysql_type, nullable, most, False, _longer(most), lambda m: m["chars"] <= most)
    if of.name in ("binary", "varbinary"):
        most = 1 if of.precision is None else of.precision
        return ColumnRule(mysql_type, nullable, most, False, _more_bytes(most), lambda m: m["size"] <= 2 + 2 * most)
    if of.name in _LONG and of.precision is None:
        most = _LONG[of.name]
        misfit = (_more_bytes if of.name in BINARIES else _longer)(most)
        return ColumnRule(mysql_type, nullable, most, False, misfit, lambda m: m["chars"] <= most)
    if of.family in ("enum", "set") and of.elements:
        # a statement that TiCDC did not rewrite escapes with backslashes
        labels = {e.rstrip(" ").casefold() for e in (*of.elements, *map(unescaped, of.elements), "")}
        n = len(of.elements)
        misfit = (_no_label if of.family == "enum" else _no_labels)(labels, n)
        most = n if of.family == "enum" else (1 << n) - 1
        return ColumnRule(mysql_type, nullable, 0, False, misfit, _numbered(most))
    return ColumnRule(mysql_type, nullable)


def _out_of(low: int, high: int) -> Misfit:
    """Numbers beyond a range."""
    most = len(str(high))  # Python reads no thousands of digits

    def is_out(text: str) -> bool:
        digits = re.fullmatch(r"(-?)0*([0-9]+)", text)
        return digits is not None and (len(digits[2]) > most or not low <= int(digits[1] + digits[2]) <= high)

    return lambda texts: _of_each(texts, is_out)


def _within(low: int, high: int) -> Proof:
    """Nothing but integers of a range."""
    return lambda m: not m["no_integer"] and m["greatest"] <= high and m["least"] <= -low


def _numbered(most: int) -> Proof:
    """Nothing but numbers of labels: :func:`_is_number`."""
    within = _within(0, most)
    return lambda m: within(m) and not m["minus"] and m["size"] <= 20


def _no_decimal(digits: int, scale: int, *, unsigned: bool) -> Misfit:
    """Numbers with more digits before the point than the type has, more behind it that are no zeros, or a sign."""
    fits = rf"^-?0*[0-9]{{0,{digits - scale}}}(\.[0-9]{{0,{scale}}}0*)?$"

    def misfit(texts: pa.Array) -> pa.Array:
        found = pc.and_not(pc.match_substring_regex(texts, r"^-?[0-9.]+$"), pc.match_substring_regex(texts, fits))
        if not unsigned:
            return found
        return pc.or_(found, pc.match_substring_regex(texts, r"^-[0-9.]*[1-9]"))

    return misfit


def _longer(most: int) -> Misfit:
    """Texts of more characters; one that may be hex of a column with the character set ``binary`` counts bytes."""

    def misfit(texts: pa.Array) -> pa.Array:
        hexed = pc.match_substring_regex(texts, "^0x([0-9a-f]{2})*$")
        length = pc.utf8_length(texts).cast(pa.int64())
        return pc.greater(pc.if_else(hexed, pc.divide(pc.subtract(length, 2), 2), length), most)

    return misfit


def _more_bytes(most: int) -> Misfit:
    """Hex of more bytes."""

    def misfit(texts: pa.Array) -> pa.Array:
        hexed = pc.starts_with(texts, "0x")
        return pc.and_(hexed, pc.greater(pc.binary_length(texts).cast(pa.int64()), 2 + 2 * most))

    return misfit


def _no_label(labels: set[str], n: int) -> Misfit:
    """Neither a label of an ENUM nor its number; 0 and the empty label mean an invalid one."""
    return lambda texts: _of_each(
        texts, lambda t: t.rstrip(" ").casefold() not in labels and not (_is_number(t) and int(t) <= n)
    )


def _no_labels(labels: set[str], n: int) -> Misfit:
    """Neither labels of a SET nor their bits."""

    def misfit(text: str) -> bool:
        if all(part.rstrip(" ").casefold() in labels for part in text.split(",")):
            return False
        return not (_is_number(text) and int(text) < 1 << n)

    return lambda texts: _of_each(texts, misfit)


def _is_number(text: str) -> bool:
    return re.fullmatch("[0-9]{1,20}", text) is not None


def _of_each(texts: pa.Array, wrong: Callable[[str], bool]) -> pa.Array:
    """A judgement of each different text."""
    coded = texts.dictionary_encode()
    return pa.array([wrong(t) for t in coded.dictionary.to_pylist()], pa.bool_()).take(coded.indices)


def nulls(r: RowsDefined) -> Bools:
    """The cells that are NULL in a column that allows none."""
    strict = np.array([not rule.nullable for rule in r.rules] + [False], dtype=bool)
    found: Bools = strict[r.cells.rule] & np.asarray(r.cells.value.is_null())
    return found


def misfits(r: RowsDefined) -> Bools:
    """The cells whose value does not fit its column."""
    value, found = r.cells.value, np.zeros(len(r.cells.row), dtype=bool)
    at = np.flatnonzero(r.cells.rule >= 0)
    at = at[np.argsort(r.cells.rule[at], kind="stable")]
    for part in runs(r.cells.rule[at]) if len(at) else ():
        own = at[part]
        found[own] = np.asarray(r.rules[r.cells.rule[own[0]]].misfit(value.take(pa.array(own))).fill_null(False))
    return found


def unknown_columns(r: RowsDefined) -> Bools:
    """The cells of columns that the definition does not have."""
    unknown: Bools = r.cells.rule < 0
    return unknown

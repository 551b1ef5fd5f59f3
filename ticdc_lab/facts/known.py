"""What is known of a whole log, in one value: gathered once, and handed to every kernel that asks of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import NamedTuple, Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ticdc_lab.events import PARTITION
from ticdc_lab.events.arrays import NO_TS, Ints, encoded, lasts_in
from ticdc_lab.events.ddl import blocked_tables
from ticdc_lab.events.sample import Sample
from ticdc_lab.facts.catalog import DDL, Catalog, in_commit_order
from ticdc_lab.facts.definitions import TableDef
from ticdc_lab.facts.gathering import (
    ARROW,
    LEFT_OUT,
    OFFSETS,
    PLACE,
    as_facts,
    gathered,
    narrow_batches,
    sum_offsets,
    sum_places,
)


@dataclass(frozen=True, slots=True)
class Watermarks:
    """All watermarks of a log, in order of home, offset and seq."""

    home: Ints  # the number of its topic and partition
    # ``offset``, ``seq``, ``ts``: where each stands, and the commit_ts that it states.
    offset: Ints
    seq: Ints
    ts: Ints
    homes: int  # how many homes the log has, those without watermarks too

    @classmethod
    def ordered(cls, home: Ints, offset: Ints, seq: Ints, ts: Ints, *, homes: int) -> Self:
        """Those in any order; two at one place (captures may overlap) rise."""
        order = np.lexsort((ts, seq, offset, home))
        return cls(home[order], offset[order], seq[order], ts[order], homes)

    def __len__(self) -> int:
        return len(self.ts)

    def part(self, home: int) -> slice:
        """Where a home's lie."""
        low, high = np.searchsorted(self.home, (home, home + 1))
        return slice(int(low), int(high))

    def parts(self) -> list[slice]:
        """Where each home's lie."""
        ends = np.searchsorted(self.home, np.arange(self.homes + 1)).tolist()
        return [slice(a, b) for a, b in pairwise(ends)]

    def each_place(self) -> Watermarks:
        """Marks at different places: captures may overlap, so an event may occur twice."""
        last = lasts_in(self.home, self.offset, self.seq) if len(self) else np.empty(0, dtype=bool)
        return Watermarks(self.home[last], self.offset[last], self.seq[last], self.ts[last], self.homes)

    def highest_before(self) -> Ints:
        """The greatest that its partition stated before each; NO_TS for the first."""
        return highest_before(self.ts, self.parts())

    def greatest(self) -> Ints:
        """The resolved_ts of each home; NO_TS without a watermark."""
        return np.array([self.ts[p].max(initial=NO_TS) for p in self.parts()], dtype=np.int64)

    def least(self) -> Ints:
        """The least of each home; NO_TS without a watermark."""
        return np.array([self.ts[p].min() if p.stop > p.start else NO_TS for p in self.parts()], dtype=np.int64)


def highest_before(values: Ints, parts: Sequence[slice]) -> Ints:
    """The greatest value before each, in its part; NO_TS for the first of a part."""
    found = np.full(len(values), NO_TS)
    for p in parts:
        found[p.start + 1 : p.stop] = np.maximum.accumulate(values[p])[:-1]
    return found


Home = tuple[str, int]

BLOCKED = pa.list_(pa.struct([("schema", pa.string()), ("table", pa.string())]))

_EVENT = ("topic", "partition", "offset", "seq", "commit_ts")
_IN_PLACE = [(c, "ascending") for c in ("topic", "partition", "offset", "seq", "commit_ts")]


@dataclass(frozen=True, slots=True)
class CountedOffsets:
    """Offsets of a partition that were counted, and are not listed any more."""

    # ``first``, ``last``: the first and the last that are there.
    first: int
    last: int
    n: int  # how many are
    missing: tuple[Ints, Ints]  # the first and the last of each stretch that is missing between them


class LostFiles(NamedTuple):
    """Data files that a storage sink's stream misses at one place, as other files or its own content show."""

    topic: str
    partition: int
    offset: int  # between the file before and the one behind
    path: str  # of the first
    n: int
    is_there: bool = False  # one that could not be read in full: ``offset`` is the first place where it could not


class LostSchema(NamedTuple):
    """A schema file that data files need: nothing is known of the table from its version on."""

    schema: str
    table: str
    version: int
    path: str


@dataclass(frozen=True, slots=True)
class LogFacts:
    """Everything that is known of a whole log and is small.

    Attributes
    ----------
    homes
        Topic and partition of each partition that has any event, in order; its index is its number.
    watermarks
        Those with a commit_ts, by home.
    places
        A row for each topic, partition, ``schema_name``, ``table_name``, ``kind`` and ``op``, in that order: ``n``
        events, ``n_before`` with an image before the change (null where images are not hashed), the least and greatest
        commit_ts (``commit_ts``, ``last_ts``; null without) and offset (``offset``,
        ``last_offset``), and the number ``place`` of :func:`ticdc_lab.facts.places.place_col`.
    ddl
        ``topic, partition, offset, seq, commit_ts, schema_name, table_name, query, ddl_type`` and ``blocked``
        (:func:`ticdc_lab.events.ddl.blocked_tables`: list of schema and table) of each DDL event, in order; of some
        protocols commit_ts is null.
    admin
        ``topic, partition, offset, seq, commit_ts, partition_count`` of each Admin event, in order.
    offsets
        ``topic, partition, offset, held, n``: which of 64 offsets from ``offset`` on are there, a bit each, and how
        many messages lie at them, in order; beside a sample of the whole log. Empty where that is not known.
    firsts
        The first offset of each partition, a message that could not be decoded or is in no sample included, where it is
        known; else ``offsets`` show it.
    """

    homes: tuple[Home, ...]
    watermarks: Watermarks
    places: pa.Table
    ddl: pa.Table
    admin: pa.Table
    offsets: pa.Table
    firsts: Mapping[Home, int] = field(default_factory=dict)
    counted: Mapping[Home, CountedOffsets] = field(default_factory=dict)
    """Of partitions that are followed: what lies before their ``offsets``."""
    defined: tuple[tuple[int, TableDef], ...] = ()
    """Tables that messages define besides the text of a DDL (simple's BOOTSTRAP), each version with its TSO."""
    stated: tuple[tuple[int, str, str, str], ...] = ()
    """The same as CREATE TABLE, of schema files without a DDL: ``commit_ts``, schema, table and the statement."""
    lost_files: tuple[LostFiles, ...] = ()
    lost_schemas: tuple[LostSchema, ...] = ()
    deleted: Mapping[Home, tuple[tuple[int, int], ...]] = field(default_factory=dict)
    """Of partitions that are followed: the first offset and the end of what the broker deleted before it was read."""

    @property
    def statements(self) -> list[DDL]:
        """Each DDL once, in commit order."""
        names = ("commit_ts", "schema_name", "table_name", "query", "offset")
        return in_commit_order(zip(*[self.ddl[c].to_pylist() for c in names], strict=True))

    def catalog(self, *, undated: bool) -> Catalog:
        """The definitions that the DDL of a log give, by TiDB's names; of those without commit_ts only if asked."""
        return Catalog.from_ddl(ddl for ddl in self.statements if undated or ddl[0] is not None)

    @classmethod
    def of(cls, events: pa.Table) -> Self:
        """Facts of events in Arrow's form, without any session.

        Parameters
        ----------
        events
            The events contract, or what of it :func:`ticdc_lab.facts.gathering.log_facts` needs.
        """
        return cls.read(pa.Table.from_batches(gathered(narrow_batches(events)), schema=ARROW))

    @classmethod
    def read(cls, facts: pa.Table, *, firsts: Mapping[Home, int] | None = None) -> Self:
        """Those that :func:`ticdc_lab.facts.gathering.log_facts` gathered, in any order and any number of parts."""
        places = sum_places(_of(facts, "place")).drop_columns(["fact"]).sort_by([(c, "ascending") for c in PLACE])
        homes = _homes(places)
        ddl = _in_order(facts, "ddl", "schema_name", "table_name", "query", "ddl_type")
        named = zip(*[ddl[c].to_pylist() for c in ("schema_name", "table_name", "query")], strict=True)
        blocked = [[{"schema": s, "table": t} for s, t in blocked_tables(*name)] for name in named]
        return cls(
            homes=homes,
            watermarks=_watermarks(_of(facts, "watermark"), homes),
            places=places,
            ddl=ddl.append_column("blocked", pa.array(blocked, BLOCKED)),
            admin=_in_order(facts, "admin", "partition_count"),
            offsets=ordered_offsets(
                [_of(facts, LEFT_OUT if LEFT_OUT in facts["fact"].unique().to_pylist() else "offsets")]
            ),
            firsts={} if firsts is None else firsts,
            stated=tuple(sorted({*zip(*(_of(facts, "bootstrap")[c].to_pylist() for c in _STATED), strict=True)})),
        )

    def without_offsets_of(self, sample: Sample | None) -> Self:
        """The same without the offsets that a sample alone shows: it does not show which the whole log has."""
        return self if sample is None or sample.is_whole else replace(self, offsets=self.offsets.slice(0, 0))

    @classmethod
    def of_groups(cls, groups: pa.Table) -> Self:
        """Those without names that :func:`ticdc_lab.facts.watermarks.by_watermark` counted."""
        dated = pc.and_(pc.equal(groups["kind"], "watermark"), pc.is_valid(groups["last_ts"]))
        marks = groups.select(["topic", "partition", "kind", "_offset", "_seq", "last_ts"]).filter(dated)
        marks = marks.rename_columns(["topic", "partition", "kind", "offset", "seq", "commit_ts"])
        parts = [marks.append_column("fact", marks["kind"])]
        parts.append(groups.append_column("fact", pa.array(["place"] * groups.num_rows, pa.string())))
        return cls.read(pa.Table.from_batches([b for p in parts for b in as_facts(p)], schema=ARROW))

    def definitions(self) -> tuple[tuple[int, TableDef], ...]:
        """Tables that are defined besides the text of a DDL, each version with its TSO."""
        catalogs = ((ts, s, t, Catalog.from_ddl([(ts, s, t, query)])) for ts, s, t, query in self.stated)
        read = ((ts, of.versions[s, t][0].definition) for ts, s, t, of in catalogs if (s, t) in of.versions)
        return (*((ts, table) for ts, table in read if table is not None), *self.defined)

    def of_kind(self, *kinds: str) -> pa.Table:
        """The places of some kinds of events."""
        return self.places.filter(pc.is_in(self.places["kind"], pa.array(kinds, pa.string())))

    @property
    def carried(self) -> frozenset[str]:
        """What this log carries although others of its protocol may not: ``ddl``, ``watermark``, ``definitions``, and
        ``before`` if each update has an image before it.
        """
        updates = self.of_kind("row").filter(pc.equal(self.of_kind("row")["op"], "update"))
        n, n_before = (pc.sum(updates[c]).as_py() or 0 for c in ("n", "n_before"))
        there = {
            "ddl": self.ddl.num_rows,
            "definitions": self.defined or self.stated,
            "watermark": len(self.watermarks.ts),
            "before": n and n == n_before,
        }
        return frozenset(name for name, is_there in there.items() if is_there)

    def names(self, home: Ints) -> tuple[pa.Array, pa.Array]:
        """Topic and partition of homes by number."""
        topic = pa.array([t for t, _ in self.homes], pa.string())
        partition = pa.array([p for _, p in self.homes], pa.int32())
        return topic.take(pa.array(home)), partition.take(pa.array(home))

    def home_of(self, rows: pa.Table) -> Ints:
        """The number of each row's ``topic`` and ``partition``; -1 where the log has no such partition."""
        return numbers_of(rows, PARTITION, self.homes)


def ordered_offsets(parts: Sequence[pa.Table]) -> pa.Table:
    """:class:`LogFacts` of parts in any order."""
    form = pa.schema([ARROW.field(name) for name in OFFSETS])
    whole = pa.concat_tables([part.select(form.names).cast(form) for part in parts])
    return sum_offsets(whole).drop_columns(["fact"]).sort_by(_IN_PLACE[:3])


def _of(facts: pa.Table, fact: str) -> pa.Table:
    return facts.filter(pc.equal(facts["fact"], fact))


_STATED = ("commit_ts", "schema_name", "table_name", "query")


def _in_order(facts: pa.Table, fact: str, *names: str) -> pa.Table:
    """Events of one kind; the first of its message has seq 0, and so has one without."""
    found = _of(facts, fact).select([*_EVENT, *names])
    seq = found.column_names.index("seq")
    return found.set_column(seq, found.field(seq), pc.fill_null(found["seq"], 0)).sort_by(_IN_PLACE)


def _homes(places: pa.Table) -> tuple[Home, ...]:
    each = places.group_by(["topic", "partition"]).aggregate([]).sort_by(_IN_PLACE[:2])
    return tuple(zip(each["topic"].to_pylist(), each["partition"].to_pylist(), strict=True))


def _watermarks(marks: pa.Table, homes: tuple[Home, ...]) -> Watermarks:
    seq = pc.fill_null(marks["seq"], 0).to_numpy().astype(np.int64)
    offset, ts = (pc.fill_null(marks[c], -1).to_numpy() for c in ("offset", "commit_ts"))
    return Watermarks.ordered(numbers_of(marks, PARTITION, homes), offset, seq, ts, homes=len(homes))


def numbers_of(rows: pa.Table, by: tuple[str, str], names: Sequence[tuple[object, object]]) -> Ints:
    """Which of the names each row has in two columns; -1 for none of them."""
    (first, firsts), (second, seconds) = (encoded(rows[c]) for c in by)
    number = {name: i for i, name in enumerate(names)}
    pairs, at = np.unique(first * len(seconds) + second, return_inverse=True)
    own = [number.get((firsts[p // len(seconds)], seconds[p % len(seconds)]), -1) for p in pairs.tolist()]
    found: Ints = np.array(own, dtype=np.int64)[at]
    return found

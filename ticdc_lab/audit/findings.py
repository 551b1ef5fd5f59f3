"""How findings are stated, explained, put in order and counted; everything here is Arrow and plain Python."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from heapq import nsmallest
from numbers import Integral
from operator import or_
from typing import Any, Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from ticdc_lab.audit.defined import RowsDefined
from ticdc_lab.audit.history import Shown, Suspects
from ticdc_lab.audit.marks import BEGIN, Event, Marks, Promises
from ticdc_lab.engine.ordering import order_of
from ticdc_lab.engine.shuffle import Batches, Kernel, spark_order
from ticdc_lab.events.arrays import NO_TS, Bools, Ints, changes_in, codes, numbers, runs
from ticdc_lab.events.schema import require_columns
from ticdc_lab.facts.places import hashes_of_both, table_names

SEVERITIES = ERROR, WARNING, INFO = "error", "warning", "info"
"""INFO counts findings that are not listed; no check gives it."""
RANK = {severity: place for place, severity in enumerate(SEVERITIES)}
"""Of severities, the worst first."""

NO_RULE = "no dispatch rule explains the move"
VIOLATED = "a move violates the rule of the table"
UNSURE = "the table may be dispatched by "
PARTITIONS_MISSING = "partitions are missing, so no dispatch rule can be tried"
"""Causes of moves that no rule explains."""

UNRECORDED = "a part that was not recorded may explain it"
IN_FILE = "it may lie in"
"""In causes of warnings that a longer recording would decide."""

_NO_RULE = ", which no dispatch rule explains"

_EVENT = pa.struct([("partition", pa.int32()), ("offset", pa.int64()), ("commit_ts", pa.int64())])
FOUND = pa.schema(
    [("guarantee", pa.string()), ("severity", pa.string()), ("table", pa.string()), ("commit_ts", pa.int64()),
     ("partition", pa.int32()), ("offset", pa.int64()), ("message", pa.string()), ("evidence", pa.list_(_EVENT)),
     ("topic", pa.string()), ("seq", pa.int32()), ("rank", pa.int32()), ("row_id", pa.int64()), ("nth", pa.int32()),
     ("more", pa.int64()), ("cause", pa.string())]
)  # fmt: skip
"""A finding inside the audit: its message, its place, and ``rank``, the place of its severity. ``row_id`` and
``nth`` identify one about a row; ``more`` is how many of its guarantee a task has left out behind it."""

FOUND_DDL = """
guarantee string, severity string, table string, commit_ts bigint, partition int, offset bigint, message string,
evidence array<struct<partition: int, offset: bigint, commit_ts: bigint>>, topic string, seq int, rank int,
row_id bigint, nth int, more bigint, cause string
"""
ORDER = ("guarantee", "rank", "topic", "partition", "offset", "seq", "commit_ts", "table", "message", "row_id", "nth")
"""What findings are sorted by, nulls first."""

Texts = Any
"""An array of strings, of numpy or of Arrow."""


Made = Callable[[Ints], pa.Array]
"""Texts of the findings at these indices: of millions few are listed."""


@dataclass(frozen=True, slots=True)
class Sentences:
    """Messages of findings, and their causes: what findings of one guarantee and table have in common."""

    message: Made
    cause: Made


def sentence(*parts: Texts | Ints | Sentences | str, cause: str | Sentences = "") -> Sentences:
    """Sentences from literal text and columns, or from text alone; an unknown commit_ts reads ``?``.

    Without ``cause`` they have the one of the first sentence among their parts.
    """
    inherited = next((p for p in parts if isinstance(p, Sentences)), None)
    literal = cause if isinstance(cause, str) else ""

    def said(at: Ints) -> pa.Array:
        between = pa.repeat(pa.scalar(""), len(at))  # of text alone it makes one of each
        return pc.binary_join_element_wise(*[p if isinstance(p, str) else _words(p, at) for p in parts], between)

    if isinstance(cause, Sentences):
        return Sentences(said, cause.message)
    if inherited is not None and not cause:
        return Sentences(said, inherited.cause)
    return Sentences(said, lambda at: pa.repeat(pa.scalar(literal, pa.string()), len(at)))


def chosen(*cases: tuple[Bools, Sentences], otherwise: Sentences) -> Sentences:
    """Of each finding the sentence of the first case that holds."""

    def of(at: Ints, made: Sequence[Made]) -> pa.Array:
        names = [f"{i}" for i in range(len(cases))]
        held = pc.make_struct(*[pa.array(case[at]) for case, _ in cases], field_names=names)
        return pc.case_when(held, *[each(at) for each in made])

    each = [*[words for _, words in cases], otherwise]
    return Sentences(lambda at: of(at, [w.message for w in each]), lambda at: of(at, [w.cause for w in each]))


def _words(column: Texts | Ints | Sentences, at: Ints) -> pa.Array:
    if isinstance(column, Sentences):
        return column.message(at)
    own = column[at] if isinstance(column, np.ndarray) else column.take(pa.array(at))
    if isinstance(own, np.ndarray) and own.dtype == np.int64:
        own = pa.array(own, mask=own == NO_TS).cast(pa.string())
    return pc.fill_null(own if isinstance(own, pa.Array) else pa.array(own), "?")


@dataclass(frozen=True)
class RowFindings:
    """What breaks a guarantee about rows."""

    by: Ints  # the change that shows it, an index of the suspects
    at: Ints  # the change where it is reported
    # ``severity``, ``message``: of each.
    severity: Texts
    message: Sentences
    evidence: Sequence[Shown]  # the messages that show it: partition, offset and commit_ts of the first, of the second
    # The change that a row moved away from, where a dispatch rule may explain it; else -1.
    moved_from: Ints | None = None
    # Whether it holds only of a row that stays in its partition, which a dispatch rule may not let it.
    if_it_stays: Bools | None = None


@dataclass(frozen=True)
class ImageFindings:
    """What breaks a guarantee about row changes beside their tables' definitions."""

    at: Ints  # the row change, an index of :class:`ticdc_lab.audit.defined.RowsDefined`
    message: Sentences  # of each


_SEQ_BITS = 12


def as_image_table(name: str, found: ImageFindings, r: RowsDefined) -> pa.Table:
    """Findings of a guarantee as :data:`FOUND`, all errors; the evidence is the DDL, and the row change."""
    at, rows = found.at, r.rows.take(pa.array(found.at))
    partition, offset, seq = numbers(rows, "partition", "offset", "seq")
    ts, made = r.commit_ts[at], r.made[at]
    ddl = np.searchsorted(r.said[0], made)
    columns = {
        "guarantee": pa.repeat(pa.scalar(name), len(at)),
        "severity": pa.repeat(pa.scalar(ERROR), len(at)),
        "table": table_names(*(rows[c].combine_chunks().cast(pa.string()) for c in ("schema_name", "table_name"))),
        "commit_ts": _dated(ts),
        "partition": pa.array(partition, pa.int32()),
        "offset": pa.array(offset),
        "message": found.message.message(np.arange(len(at))),
        "cause": found.message.cause(np.arange(len(at))),
        "evidence": evidence_of([(r.said[1][ddl], r.said[2][ddl], made), (partition, offset, ts)]),
        "topic": rows["topic"].cast(pa.string()),
        "seq": pa.array(seq, pa.int32()),
        "rank": pa.array(np.zeros(len(at)), pa.int32()),
        "row_id": pa.array(hashes_of_both(rows["topic"], offset)),
        "nth": pa.array((partition << _SEQ_BITS) + seq, pa.int32()),
        "more": pa.array(np.zeros(len(at), dtype=np.int64)),
    }
    return pa.table(columns, schema=FOUND)


def unrecorded(found: pa.Table, promises: Promises) -> pa.Table:
    """Findings of :func:`as_image_table`; where a DDL of the table between both may be one that was not recorded they
    are warnings.
    """
    if not found.num_rows:
        return found
    shown = found["evidence"].combine_chunks().flatten()
    ends, offsets, homes = (shown.field(c).to_numpy().reshape(-1, 2) for c in ("commit_ts", "offset", "partition"))
    named = zip(*[found[c].to_pylist() for c in ("topic", "partition", "table")], strict=True)
    names = table_names(pa.array(promises.schema_name, pa.string()), pa.array(promises.table_name, pa.string()))
    places = zip(promises.topic, promises.partition.tolist(), names.to_pylist(), strict=True)
    index = {place: i for i, place in enumerate(places)}
    place = np.array([index[name] for name in named], dtype=np.int64)
    low, high = ends.min(axis=1), ends.max(axis=1)
    # the DDL of its own partition, or wherever that may have it
    since = np.where(homes[:, 0] == homes[:, 1], offsets.min(axis=1), BEGIN)
    maybe = ~promises.recorded.ddl_between(place, low, high)
    own = promises.recorded.ddl_topic[place] < 0  # DDL of others come to partition 0 alone
    maybe |= own & promises.recorded.lacks(promises.home[place], since, offsets.max(axis=1), below=high)
    cut = pc.binary_join_element_wise(found["message"], "; or a DDL between them was not recorded", "")
    shared = pc.binary_join_element_wise(found["cause"], f"; {UNRECORDED}", "")
    changed = {
        "severity": pc.if_else(maybe, WARNING, ERROR),
        "rank": pc.if_else(maybe, RANK[WARNING], 0).cast(pa.int32()),
        "message": pc.if_else(maybe, cut, found["message"]),
        "cause": pc.if_else(maybe, shared, found["cause"]),
    }
    return pa.table({f.name: changed.get(f.name, found[f.name]) for f in FOUND}, schema=FOUND)


def uncovered(found: RowFindings, which: Bools, s: Suspects, because: str = "") -> RowFindings:
    """Findings that missing recordings may explain: these are warnings.

    Without ``because``, what a storage sink misses is named: the file between the messages, else the first of all.
    """
    own = found.message.cause

    def told(at: Ints) -> pa.Array:
        offsets = np.stack([offset[at] for _, offset, _ in found.evidence])
        home = s.promises.home[s.place[found.by[at]]]
        return pa.array(s.promises.recorded.files_between(home, offsets.min(axis=0), offsets.max(axis=0)), pa.string())

    unless, shared = sentence(because or _IN_A_PART), sentence(f"; {UNRECORDED}")
    if s.promises.recorded.lost_files and not because:
        unless = shared = sentence(f"; {IN_FILE} ", Sentences(told, told))
    cut = sentence(found.message, unless, cause=sentence(Sentences(own, own), shared))
    severity = np.where(which, WARNING, found.severity)
    return replace(found, message=chosen((which, cut), otherwise=found.message), severity=severity)


_IN_A_PART = ", or is in a part that was not recorded"


def as_table(name: str, found: RowFindings, s: Suspects, *, most: int | None = None) -> pa.Table:
    """Findings of a guarantee as :data:`FOUND`; of more than ``most`` the first, and how many behind them are left out.

    One more is given, and all that lie where that does.
    """
    which = np.arange(len(found.at))
    if most is not None and len(which) > most + 1:
        which = _first(found, s, most + 1)
    own, at, by = s.place[found.by[which]], found.at[which], found.by[which]
    severity = pa.array(found.severity[which], pa.string())
    names = (pa.array(n, pa.string()) for n in (s.promises.schema_name, s.promises.table_name))
    columns = {
        "guarantee": pa.repeat(pa.scalar(name), len(at)),
        "severity": severity,
        "table": table_names(*names).take(pa.array(own)),
        "commit_ts": _dated(s.c.commit_ts[at]),
        "partition": pa.array(s.partition[at], pa.int32()),
        "offset": pa.array(s.c.offset[at]),
        "message": found.message.message(which),
        "cause": found.message.cause(which),
        "evidence": evidence_of([(p[which], o[which], ts[which]) for p, o, ts in found.evidence]),
        "topic": pa.array(s.promises.topic, pa.string()).take(pa.array(own)),
        "seq": pa.array(s.c.seq[at], pa.int32()),
        "rank": pc.index_in(severity, pa.array(SEVERITIES)),
        "row_id": pa.array(s.c.row_id[by]),
        "nth": pa.array(by - np.searchsorted(s.c.row, s.c.row[by]), pa.int32()),
        "more": _behind(len(at), len(found.at) - len(which)),
    }
    return pa.table(columns, schema=FOUND)


def _first(found: RowFindings, s: Suspects, n: int) -> Ints:
    """The ``n`` first findings in :data:`ORDER`, and others that lie where the last of them does."""
    at, rank = found.at, np.asarray(pc.index_in(pa.array(found.severity, pa.string()), pa.array(SEVERITIES)))
    keys = [k.astype(np.int64) for k in (rank, s.topic[found.by], s.partition[at], s.c.offset[at], s.c.seq[at])]
    order = order_of(*keys)
    alike = np.all([k[order[n:]] == k[order[n - 1]] for k in keys], axis=0)
    return order[: n + int(alike.sum())]


def evidence_of(events: Sequence[Shown]) -> pa.Array:
    """A list of the same number of events for each finding."""
    partition, offset, ts = (np.stack(c, axis=1).ravel() for c in zip(*events, strict=True))
    structs = pa.StructArray.from_arrays(
        [pa.array(partition, pa.int32()), pa.array(offset, pa.int64()), _dated(ts)], fields=list(_EVENT)
    )
    ends = np.arange(0, len(partition) + 1, len(events), dtype=np.int32)
    return pa.ListArray.from_arrays(ends, structs).cast(pa.list_(_EVENT))


def _dated(ts: Ints) -> pa.Array:
    return pa.array(ts, pa.int64(), mask=ts == NO_TS)


@dataclass(frozen=True)
class Causes:
    """Why rows of some tables move: the dispatch rule of each, and the events that it does not put where they lie."""

    of_place: list[str | None]
    """By index of a place."""
    may_be: list[str | None]
    """By index of a place: the rule that it may have, which the log does not decide, and why not."""
    tried: list[str | None]
    """By index of a place: the rules that were tried in vain."""
    beyond: Bools
    """By index of a place: its rule counts partitions behind the last that was recorded."""
    misplaced: Marks
    """By home; ``ts`` has no meaning."""

    @classmethod
    def read(cls, causes: pa.Table, promises: Promises) -> Self:
        """Of a frame that :func:`ticdc_lab.dispatch.infer.move_causes` gives; without ``topic`` of each topic."""
        of = ("cause", *[c for c in ("may_be", "tried") if c in causes.column_names])
        names = [c for c in ("topic", "schema_name", "table_name") if c in causes.column_names]
        # named misplaced events replace the table's row, which may be "unknown"
        placed = "offset" in causes.column_names
        of_tables = causes.filter(pc.is_null(causes["offset"]) if placed else pc.is_valid(causes["cause"]))
        known: dict[tuple[Any, ...], dict[str, str | None]] = {}
        counted: set[tuple[Any, ...]] = set()
        for r in of_tables.select([*names, *of, *(["partition"] if placed else [])]).to_pylist():
            place = tuple(r[c] for c in names)
            known[place] = {c: known.get(place, {}).get(c) or r[c] for c in of}
            if r.get("partition") is not None:
                counted.add(place)
        columns = {"topic": promises.topic, "schema_name": promises.schema_name, "table_name": promises.table_name}
        places = list(zip(*[columns[c] for c in names], strict=True))
        beyond = np.array([place in counted for place in places], dtype=bool)
        cause, may_be, tried = ([known.get(place, {}).get(c) for place in places] for c in ("cause", "may_be", "tried"))
        return cls(cause, may_be, tried, beyond, _misplaced(causes, promises))

    def explain(self, found: RowFindings, s: Suspects) -> RowFindings:
        """Name the cause of each move; one that the rule implies, or may imply, is a warning."""
        cause, may_be, tried = (pa.array(of, pa.string()) for of in (self.of_place, self.may_be, self.tried))
        own = s.place[found.by]
        known, unsure, in_vain = (np.asarray(of.is_valid())[own] for of in (cause, may_be, tried))
        if found.if_it_stays is not None:
            which = (found.if_it_stays & (known | unsure)) | (self.beyond[own] & (found.severity == ERROR))
            return uncovered(found, which, s)
        if found.moved_from is None:
            return found
        moved = found.moved_from >= 0
        wrong = moved & (self._is_misplaced(found.at, s) | self._is_misplaced(found.moved_from, s))
        explained, untold = moved & known & ~wrong, moved & unsure

        def of_table(words: pa.Array) -> Sentences:
            def taken(at: Ints) -> pa.Array:
                return words.take(pa.array(own[at]))

            return Sentences(taken, taken)

        rule, possible, listed = of_table(cause), of_table(may_be), of_table(tried)
        because = sentence(found.message, " because ", rule, cause=rule)
        violated = sentence(f"{VIOLATED}: ", rule)
        against = sentence(found.message, ", which violates the rule of its table: ", rule, cause=violated)
        named = chosen((in_vain, sentence(_NO_RULE, " (tried: ", listed, ")")), otherwise=sentence(_NO_RULE))
        without = sentence(found.message, named, cause=NO_RULE)
        untried = moved & s.promises.recorded.is_part[own]
        unknown = sentence(
            found.message, named, "; but partitions are missing from the log, and a rule depends on how many there are",
            cause=PARTITIONS_MISSING,
        )  # fmt: skip
        maybe = sentence(
            found.message, ", perhaps because the table is dispatched by ", possible,
            cause=sentence(UNSURE, possible),
        )  # fmt: skip
        cases = (explained, because), (wrong, against), (untold, maybe), (untried, unknown), (moved, without)
        severity = np.where(explained | untold, WARNING, found.severity)
        return replace(found, message=chosen(*cases, otherwise=found.message), severity=severity)

    def _is_misplaced(self, at: Ints, s: Suspects) -> Bools:
        home, offset, seq = s.promises.home[s.place[at]], s.c.offset[at], s.c.seq[at]
        i, m = self.misplaced.last_before(home, offset, seq + 1), self.misplaced
        if not len(m.ts):
            return np.zeros(len(at), dtype=bool)
        same: Bools = (i >= 0) & (m.offset[i] == offset) & (m.seq[i] == seq)
        return same


def _misplaced(causes: pa.Table, promises: Promises) -> Marks:
    if not {"topic", "partition", "offset", "seq"} <= set(causes.column_names):
        return Marks(*np.empty((4, 0), dtype=np.int64))
    homes = {(t, int(p)): int(h) for t, p, h in zip(promises.topic, promises.partition, promises.home, strict=True)}
    known = causes.filter(pc.is_valid(causes["offset"]))
    topics = known["topic"].combine_chunks().dictionary_encode()
    topic, partition = np.asarray(topics.indices), np.asarray(known["partition"])
    home = np.full(len(topic), -1)
    for i, name in enumerate(topics.dictionary.to_pylist()):
        for p in np.unique(partition[topic == i]):
            home[(topic == i) & (partition == p)] = homes.get((name, int(p)), -1)
    offset, seq = (np.asarray(known[c]).astype(np.int64) for c in ("offset", "seq"))
    order = np.lexsort((seq, offset, home))
    order = order[home[order] >= 0]
    return Marks(home[order], offset[order], seq[order], np.zeros(len(order), dtype=np.int64))


def listed(most: int | None, names: Sequence[str]) -> Kernel:
    """A kernel that keeps at most so many findings of each guarantee and counts in one more how many it left out.

    It reads findings in :data:`ORDER` and holds one batch of them. Run twice it changes nothing. A finding whose event
    was found several times (captures may overlap) is kept once.

    ``most``: None keeps all. ``names``: the columns that are wanted.
    """

    def run(batches: Batches) -> Batches:
        guarantee, seen, last = "", 0, (None, None, None)
        left: Event = {}
        for batch in batches:
            rows, last = _once(pa.Table.from_batches([batch]), last)
            for name, own in _by_guarantee(rows):
                if name != guarantee:
                    yield from _more(left, names, batch.schema)
                    guarantee, seen, left = name, 0, {}
                stated, own = _stated_apart(own)
                room = own.num_rows if most is None else max(0, most - seen)
                seen += own.num_rows
                if own.num_rows > room:
                    left = left or own.slice(room, 1).to_pylist()[0] | {"n": 0}
                    left["n"] += own.num_rows - room + _left_out(own)
                for part in (own.slice(0, room), stated):
                    yield from part.select(names).combine_chunks().to_batches()
        yield from _more(left, names, batch.schema if left else FOUND)

    return run


def few(most: int) -> Kernel:
    """A kernel that keeps what :func:`listed` may list of a task's findings, so that millions never come together.

    All findings about a row are in one task. It keeps one more than are listed of each guarantee, with the count that
    it omits.
    """

    def run(batches: Batches) -> Batches:
        held: list[pa.RecordBatch] = []
        for batch in filter(len, batches):  # most find nothing
            held.append(batch)
            if sum(map(len, held)) > _HELD * most:
                held = _cut(held, most)
        yield from _cut(held, most)

    return run


_HELD = 100
"""How many times as many findings as are listed of a guarantee a task holds until it cuts them."""


def _cut(held: list[pa.RecordBatch], most: int) -> list[pa.RecordBatch]:
    found = pa.Table.from_batches(held, FOUND)
    rows, _ = _once(found.take(spark_order(found, ORDER)), (None, None, None))
    kept = []
    for _, own in _by_guarantee(rows):
        stated, own = _stated_apart(own)
        first = own.slice(0, most + 1)
        n = own.num_rows - first.num_rows + _left_out(own)
        kept += [stated, first.set_column(FOUND.get_field_index("more"), "more", _behind(first.num_rows, n))]
    return pa.concat_tables(kept).combine_chunks().to_batches() if kept else []


def _stated_apart(of_guarantee: pa.Table) -> tuple[pa.Table, pa.Table]:
    """What only informs, listed in full; and the rest, listed in part."""
    informs = pc.equal(of_guarantee["severity"], INFO)
    return of_guarantee.filter(informs), of_guarantee.filter(pc.invert(informs))


def _behind(n_kept: int, n_left: int) -> pa.Array:
    """Column ``more``: the last kept row counts those left out behind it."""
    return pa.array([*[None] * (n_kept - 1), n_left or None][:n_kept], pa.int64())


def _left_out(found: pa.Table) -> int:
    """How many findings tasks have left out behind these."""
    return pc.sum(found["more"]).as_py() or 0


def _once(rows: pa.Table, last: tuple[Any, ...]) -> tuple[pa.Table, tuple[Any, ...]]:
    """Rows without those that are the finding before again; and the key of the last."""
    told = ("guarantee", "row_id", "nth")
    if not rows.num_rows:
        return rows, last
    of_row = np.asarray(pc.is_valid(rows["row_id"]))
    code = codes(rows["guarantee"])
    columns = [np.asarray(rows[c].fill_null(0)) for c in told[1:]]
    new = changes_in(code, *columns) | ~of_row
    new[0] = not of_row[0] or tuple(rows[c][0].as_py() for c in told) != last
    return rows.filter(pa.array(new)), tuple(rows[c][-1].as_py() for c in told)


def _by_guarantee(rows: pa.Table) -> Iterator[tuple[str, pa.Table]]:
    if rows.num_rows:
        for part in runs(codes(rows["guarantee"])):
            yield rows["guarantee"][part.start].as_py(), rows[part]


def _more(left: Event, names: Sequence[str], schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """The finding that counts those left out, where the first of them lies."""
    if left:
        row = _uncounted(left, left["n"])
        yield pa.RecordBatch.from_pylist([row], schema=pa.schema([schema.field(n) for n in names]))


def _uncounted(first: Event, n: int) -> Event:
    said = f"{n} more findings of this guarantee are not listed"
    none = dict.fromkeys(("table", "key", "commit_ts", "evidence", "cause"))
    return first | none | {"severity": INFO, "rank": RANK[INFO], "message": said}


def batches_of(findings: Iterable[Event], *, at_once: int) -> Iterator[pa.RecordBatch]:
    """Findings as :data:`FOUND`, few at a time: after one absurdly high watermark every later one falls back."""
    held: list[Event] = []
    for finding in findings:
        held.append(finding | {"rank": RANK[finding["severity"]]})
        if len(held) == at_once:
            yield pa.RecordBatch.from_pylist(held, schema=FOUND)
            held = []
    if held:
        yield pa.RecordBatch.from_pylist(held, schema=FOUND)


def first_of(findings: Iterable[Event], most: int) -> Iterator[Event]:
    """The first findings of a guarantee in :data:`ORDER`, and one that counts those left out; no more are held."""
    n = 0

    def counted() -> Iterator[Event]:
        nonlocal n
        for finding in findings:
            n += 1
            yield finding

    def place(finding: Event) -> tuple[Any, ...]:
        ranked = finding | {"rank": RANK[finding["severity"]]}
        return tuple((ranked.get(c) is not None, ranked.get(c)) for c in ORDER)

    kept = nsmallest(most + 1, counted(), key=place)
    yield from kept[:most]
    if len(kept) > most:
        yield _uncounted(kept[most], n - most)


# The messages that a finding is about.

Place = tuple[int, int]
"""Partition and offset."""


def places_of(finding: Mapping[str, Any]) -> tuple[Place, ...]:
    """Places of the messages that a finding names, itself and in its evidence, in order.

    Parameters
    ----------
    finding
        A row of :data:`ticdc_lab.events.schema.FINDINGS`.
    """
    evidence = finding["evidence"]
    named = [finding, *([] if evidence is None else evidence)]
    found = {(_int(m["partition"]), _int(m["offset"])) for m in named}
    return tuple(sorted((p, o) for p, o in found if p is not None and o is not None))


def messages_of(events: DataFrame, finding: Mapping[str, Any], *, around: int = 0) -> DataFrame:
    """Give the content of the messages that a finding names, and of their neighbours.

    Parameters
    ----------
    events
        ``topic, partition, offset, seq`` and any other columns of the events contract.
    finding
        A row of :data:`ticdc_lab.events.schema.FINDINGS`. Its evidence names no topic: of a log of several, all have
        their messages at these places here.
    around
        How many offsets before and behind each message are given, too.

    Returns
    -------
    DataFrame
        The columns of ``events``, and ``named`` (bool: the finding names this message); ordered by topic, partition,
        offset and seq. No row where the finding is about what is missing.
    """
    return events_at(events, places_of(finding), around=around)


def events_at(events: DataFrame, places: Iterable[Place], *, around: int = 0) -> DataFrame:
    """Give what the messages at some places hold; parameters and result as :func:`messages_of`'s."""
    require_columns(events, "topic", "partition", "offset", "seq")
    named = list(places)
    beside = [(p, o + d) for p, o in named for d in range(-around, around + 1)]
    found = events.where(_is_at(beside)).withColumn("named", _is_at(named))
    return found.orderBy("topic", "partition", "offset", "seq")


def _is_at(places: Iterable[Place]) -> Column:
    of: dict[int, set[int]] = {}
    for partition, offset in places:
        of.setdefault(partition, set()).add(offset)
    each = [(F.col("partition") == p) & F.col("offset").isin(sorted(offsets)) for p, offsets in sorted(of.items())]
    return reduce(or_, each, F.lit(False))


def _int(value: Any) -> int | None:
    return int(value) if isinstance(value, Integral) else None

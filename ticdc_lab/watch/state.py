"""The audit in steps: what a watch knows between two batches, and how a batch changes it. No clock, no I/O.

A change that follows the last one of its row needs nothing else, and most do. Else the row's changes of a
while are gathered, and judged by the guarantees of :mod:`ticdc_lab.audit`, as an audit judges them. Rows where
something was found, or may be when more of the log is known, are judged again in each step, so that later messages can
explain what was found. What is found does not depend on where a batch ends.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ticdc_lab.audit import GUARANTEES, checks_possible
from ticdc_lab.audit.contradicted import (
    EVIDENCE,
    against_facts,
    against_places,
    against_rows,
    changed_texts,
    compared_with_rows,
    evidence_of,
    first_of_each,
    rules_given,
    rules_noted,
    settled,
)
from ticdc_lab.audit.filtered import LeftOut
from ticdc_lab.audit.findings import ORDER
from ticdc_lab.audit.history import INSERT, LEAVES, UNKNOWN, UPDATE, Changes, changes_of, odd_changes, repeats
from ticdc_lab.audit.marks import Promises
from ticdc_lab.audit.old_values import OldValues, stretches_of
from ticdc_lab.audit.run import (
    CHAIN,
    UNDECIDED,
    Audited,
    are_explained,
    asks_for_causes,
    chain_unjudged,
    found_in_changes,
    found_in_facts,
    judged_definitions,
    without_unsure,
)
from ticdc_lab.codecs.decode import EMPTY_MESSAGE
from ticdc_lab.codecs.kernel.arrow import arrow_schema
from ticdc_lab.dispatch.infer import move_causes_table
from ticdc_lab.engine.ordering import order_of
from ticdc_lab.events import POSITION
from ticdc_lab.events.arrays import NO_TS, Bools, changes_in, codes, lasts_in, runs
from ticdc_lab.events.changes import row_ids
from ticdc_lab.events.schema import DECODED, DISPATCH, KEYS
from ticdc_lab.events.tso import LOGICAL_BITS, physical_ms
from ticdc_lab.facts import LogFacts
from ticdc_lab.facts.gathering import (
    ARROW,
    as_facts,
    gathered,
    narrow_batches,
    offsets_alone,
    sum_offsets,
    sum_places,
)
from ticdc_lab.facts.known import CountedOffsets, Home, LostFiles, LostSchema, Watermarks, ordered_offsets
from ticdc_lab.facts.limits import counted_offsets
from ticdc_lab.settings import MATCH, Contradiction, Setting, Settings
from ticdc_lab.settings import UNKNOWN as NO_SETTINGS
from ticdc_lab.sources.kafka_reading import Span
from ticdc_lab.watch.rows import CHANGE, NO_CHANGES, LastChanges, RecentChanges, joined

EXPLAINING = 1 << 16
"""Changes of rows, of about as many as are kept, by which a rule of dispatch that moves rows is found."""

EPISODE_MS = 60_000
"""Redeliveries with less than so long between them, in the time of watermarks, are one episode."""

EVICTED, FILTERED, NO_OLD_VALUE, QUARANTINED = REASONS = "evicted", "filtered", "no_old_value", "quarantined"
"""Why a change of a row is not judged by all guarantees.

What came before it was forgotten; the changefeed's filters may leave out what its row's chain misses; no image shows
what it found; its message could not be decoded. A change has one reason, the first of these.
"""

_EXPLAINING = ("kind", *POSITION, "schema_name", "table_name", "commit_ts", *KEYS.names, *DISPATCH.names)
_KEPT = pa.schema([arrow_schema(DECODED).field(name) for name in _EXPLAINING])


@dataclass(frozen=True, slots=True)
class Watched:
    """What is watched, and how much of it may be remembered; the same from the first step to the last."""

    # ``protocol``, ``has_commit_ts``, ``settings``: as of :func:`ticdc_lab.audit.audit`.
    protocol: str
    has_commit_ts: bool = True
    settings: Settings = NO_SETTINGS
    memory: int = 1 << 30  # bytes that the state may take
    keep_ms: int = 3_600_000  # changes of rows are kept so long before the resolved_ts, to detect redeliveries
    # Changes of rows with findings that are judged again and again; of others, findings stay.
    suspects: int = 50_000
    is_folder: bool = False  # it is a folder of the storage sink, with one checkpoint for all its files
    # What a dump of another tool does not have (:data:`ticdc_lab.sources.forms.LOSSES`).
    lost: frozenset[str] = frozenset()
    carried: frozenset[str] = frozenset()  # as of :attr:`ticdc_lab.facts.LogFacts.carried`, of what was read so far

    def on(self, facts: LogFacts) -> Watched:
        """The same for a log with these facts."""
        return replace(self, carried=facts.carried)

    def of_bucket(self, buckets: int) -> Watched:
        """The same for one of so many buckets of rows."""
        return replace(self, memory=self.memory // buckets, suspects=max(1, self.suspects // buckets))

    @property
    def checks(self) -> list[str]:
        """Guarantees that are watched."""
        not_watched = self.not_watched
        return [name for name in GUARANTEES if name not in not_watched]

    @property
    def not_watched(self) -> dict[str, str]:
        """The others, each with the reason."""
        possible = checks_possible(
            self.protocol, has_commit_ts=self.has_commit_ts, lost=self.lost, carried=self.carried,
            of_storage=self.is_folder,
        )  # fmt: skip
        images = {n: NOT_WATCHED for n, g in GUARANTEES.items() if g.remembers == "images"}
        return images | {name: why for name, why in possible.items() if why}


NOT_WATCHED = "a watch does not keep the values of rows until all DDL are read; ticdc-lab audit checks it"


@dataclass(frozen=True, slots=True)
class WatchCounts:
    """What was counted, in one step or since a watch began."""

    # ``messages``, ``rows``, ``watermarks``, ``ddl``: messages, and events of these kinds.
    messages: int = 0
    rows: int = 0
    watermarks: int = 0
    ddl: int = 0
    evicted: int = 0  # rows that were forgotten, as ``memory`` holds no more
    quarantined: Mapping[str, int] = field(default_factory=dict)  # messages by their ``error_class``
    # By guarantee the row changes, or the watermarks, DDL, Admin events and messages, that it was asked of.
    checked: Mapping[str, int] = field(default_factory=dict)
    # Row changes by one of :data:`REASONS`; of messages that could not be decoded each counts as one.
    unchecked: Mapping[str, int] = field(default_factory=dict)
    # ``redelivered``, ``episodes``: changes that were delivered again, and how often such deliveries began, by topic.
    redelivered: Mapping[str, int] = field(default_factory=dict)
    episodes: Mapping[str, int] = field(default_factory=dict)

    def __add__(self, other: WatchCounts) -> WatchCounts:
        return WatchCounts(*[_sum(getattr(self, f.name), getattr(other, f.name)) for f in fields(self)])


def _sum(one: Any, other: Any) -> Any:
    if isinstance(one, int):
        return one + other
    return {name: one.get(name, 0) + other.get(name, 0) for name in {**one, **other}}


@dataclass(frozen=True, slots=True)
class WatchState:
    """What a watch knows between two batches."""

    # What the log states besides its rows (:data:`ticdc_lab.facts.gathering.FACTS`).
    facts: pa.Table = field(default_factory=ARROW.empty_table)
    firsts: Mapping[Home, int] = field(default_factory=dict)  # the first offset of each partition, decoded or not
    # ``rows``, ``recent``: what is remembered of rows.
    rows: LastChanges = field(default_factory=LastChanges)
    recent: RecentChanges = field(default_factory=RecentChanges)
    # All known changes of rows with actual or possible findings, by rising ``row_id``.
    suspects: Changes = NO_CHANGES
    # Some suspects were too many: what was found of rows that are not among them any more stays as it is.
    dropped: bool = False
    # ``explaining``, ``share``: changes of one row of so many, by which rules of dispatch are found.
    explaining: pa.Table = field(default_factory=_KEPT.empty_table)
    share: int = 1
    evicted_ts: int = NO_TS  # rows whose last change is not above were forgotten; NO_TS for none
    # By topic the watermark before the last change that was delivered again.
    redelivered_ms: Mapping[str, int] = field(default_factory=dict)
    fresh: tuple[Changes, ...] = ()  # changes since the state was saved, as they came
    # Offsets before those that ``facts`` list, as of :class:`ticdc_lab.facts.LogFacts`.
    counted: Mapping[Home, CountedOffsets] = field(default_factory=dict)
    # Of the watermarks up to this one, some are forgotten: what was found of them stays as it is; NO_TS for none.
    closed_ts: int = NO_TS
    # What rows show of the changefeed's settings (:data:`ticdc_lab.audit.contradicted.EVIDENCE`).
    evidence: pa.Table = field(default_factory=EVIDENCE.empty_table)
    # What ``evidence`` shows of transactions up to this one stays as it is, as they may be sent again in part.
    settled_ts: int = NO_TS
    # ``n_rows``, ``compared``: row changes so far, and by setting with its value how many of them came before it was
    # given.
    n_rows: int = 0
    compared: Mapping[str, int] = field(default_factory=dict)
    # ``lost_files``, ``lost_schemas``: of a storage folder, as of :class:`ticdc_lab.facts.LogFacts`.
    lost_files: tuple[LostFiles, ...] = ()
    lost_schemas: tuple[LostSchema, ...] = ()
    deleted: Mapping[Home, tuple[Span, ...]] = field(default_factory=dict)  # as of :class:`ticdc_lab.facts.LogFacts`

    def with_deleted(self, at: Home, span: Span) -> WatchState:
        """The same with offsets that the broker deleted before they were read; the last stretches are kept."""
        return replace(self, deleted={**self.deleted, at: (*self.deleted.get(at, ()), span)[-GAPS:]})

    def saved(self) -> WatchState:
        """The same, with nothing that has still to be saved."""
        return replace(self, fresh=())

    @property
    def known(self) -> LogFacts:
        """What is known of the whole log."""
        return replace(
            LogFacts.read(self.facts, firsts=self.firsts), counted=self.counted, lost_files=self.lost_files,
            lost_schemas=self.lost_schemas, deleted=self.deleted,
        )  # fmt: skip

    @property
    def nbytes(self) -> int:
        """About how much it takes."""
        changes = 72 * (len(self.recent) + len(self.suspects))
        return int(self.rows.nbytes + changes + self.facts.nbytes + self.explaining.nbytes + self.evidence.nbytes)


def step(state: WatchState, batch: pa.Table, watched: Watched) -> tuple[WatchState, pa.Table, WatchCounts]:
    """Take a batch of events, and judge.

    ``state``: before it. ``batch``: :data:`ticdc_lab.events.schema.DECODED`: events, and messages that could not be
    decoded; images are read only if :func:`ticdc_lab.audit.contradicted.reads_images`. Of each partition in the order
    of offsets; other partitions may lie anywhere between. ``watched``: what is watched. Returns: the state after it;
    what breaks a guarantee of all that was read (:data:`ticdc_lab.audit.findings.FOUND`, in
    :data:`~ticdc_lab.audit.findings.ORDER`); what was counted in this batch.
    """
    after, counts = absorbed(state, batch, watched)
    return after, audited_so_far(after, watched).findings, counts


def absorbed(state: WatchState, batch: pa.Table, watched: Watched) -> tuple[WatchState, WatchCounts]:
    """The state after a batch, without judging what may wait, and what was counted; as of :func:`step`."""
    part = BatchPart.read(batch, share=state.share, watched=watched)
    state = with_part(state, part)
    known, judged = state.known, RowsJudged()
    if part.counts.rows:
        changes = Changes.read(changes_of(_decoded(batch)))
        promises = Promises.read(known, protocol=watched.protocol, settings=watched.settings)
        state, judged = with_changes(state, changes, watched.on(known), promises, kept_ts=kept_ts(known, watched))
    return with_judged(state, known, judged, part.counts, watched)


@dataclass(frozen=True, slots=True)
class BatchPart:
    """What part of a batch states besides the changes of its rows: it is small, and several are one by ``+``."""

    facts: pa.Table  # as of :class:`WatchState`
    spans: Mapping[Home, tuple[int, int]]  # the first and the last offset of each partition, decoded or not
    counts: WatchCounts  # messages and events
    # ``explaining``, ``share``, ``evidence``: as of :class:`WatchState`.
    explaining: pa.Table
    share: int
    evidence: pa.Table = field(default_factory=EVIDENCE.empty_table)
    compared: tuple[str, ...] = ()  # the settings, each with its value, that ``evidence`` is about

    @classmethod
    def read(cls, batch: pa.Table, *, share: int = 1, watched: Watched | None = None) -> BatchPart:
        """The same of events, as of :func:`step`."""
        events, refused = _decoded(batch), batch.filter(pc.is_valid(batch["error_class"]))
        facts = pa.Table.from_batches(gathered(narrow_batches(events)), schema=ARROW)
        empty = refused.filter(pc.equal(refused["error_class"], EMPTY_MESSAGE))  # nothing is missing at their offsets
        facts = pa.concat_tables([facts, offsets_alone(empty)]) if empty.num_rows else facts
        placed = batch.select(["topic", "partition", "offset"]).group_by(["topic", "partition"])
        ends = placed.aggregate([("offset", "min"), ("offset", "max")]).to_pylist()
        spans = {
            (e["topic"], e["partition"]): (e["offset_min"], e["offset_max"])
            for e in ends
            if e["offset_min"] is not None and e["partition"] is not None
        }
        mine = _one_of(events.select(_KEPT.names), share)
        share, explaining = _sampled(mine.filter(pc.equal(mine["kind"], "row")), share)
        evidence, compared = EVIDENCE.empty_table(), tuple[str, ...]()
        if watched is not None and (asked := compared_with_rows(watched.settings, watched.protocol)):
            evidence = evidence_of(events, watched.settings, protocol=watched.protocol)
            compared = tuple(f"{s.name} = {s.text}" for s in asked.values())
        return cls(facts, spans, _counted(events, refused), explaining, share, evidence, compared)

    def __add__(self, other: BatchPart) -> BatchPart:
        spans = dict(self.spans)
        for home, (first, last) in other.spans.items():
            low, high = spans.get(home, (first, last))
            spans[home] = min(low, first), max(high, last)
        share = max(self.share, other.share)
        same = [p.explaining if p.share == share else _one_of(p.explaining, share) for p in (self, other)]
        share, explaining = _sampled(pa.concat_tables(same), share)
        facts = pa.concat_tables([self.facts, other.facts])
        evidence = first_of_each(pa.concat_tables([self.evidence, other.evidence]))
        compared = self.compared or other.compared
        return BatchPart(facts, spans, self.counts + other.counts, explaining, share, evidence, compared)


def with_part(state: WatchState, part: BatchPart) -> WatchState:
    """The state that also knows what a batch states besides its rows."""
    new = part.facts
    if state.counted:
        new = new.filter(pa.array(_not_counted(new, state.counted), pa.bool_()))
    facts, as_they_are = pa.concat_tables([state.facts, new]), pa.array(["watermark", "ddl", "admin", "bootstrap"])
    parts = [facts.filter(pc.is_in(facts["fact"], as_they_are))]
    for fact, summed in (("place", sum_places), ("offsets", sum_offsets)):
        parts += [pa.Table.from_batches(as_facts(summed(facts.filter(pc.equal(facts["fact"], fact)))), schema=ARROW)]
    again = pc.fill_null(pc.less_equal(part.evidence["transaction"], state.settled_ts), False)
    part = replace(part, evidence=part.evidence.filter(pc.invert(again)))
    both = BatchPart(ARROW.empty_table(), {}, part.counts, state.explaining, state.share, state.evidence) + part
    firsts = {home: min(first, state.firsts.get(home, first)) for home, (first, _) in part.spans.items()}
    return replace(
        state, facts=pa.concat_tables(parts).combine_chunks(), firsts={**state.firsts, **firsts},
        explaining=both.explaining.combine_chunks(), share=both.share, evidence=both.evidence,
        compared={**dict.fromkeys(part.compared, state.n_rows), **state.compared},
        n_rows=state.n_rows + part.counts.rows,
    )  # fmt: skip


def _not_counted(facts: pa.Table, counted: Mapping[Home, CountedOffsets]) -> list[bool]:
    """Which facts are no offsets that were counted before: a message may wait for what its rows need."""
    named = zip(*[facts[c].to_pylist() for c in ("fact", "topic", "partition", "offset")], strict=True)
    return [f != "offsets" or (t, p) not in counted or o > counted[t, p].last for f, t, p, o in named]


@dataclass(frozen=True, slots=True)
class RowsJudged:
    """What became of changes of rows; several buckets' are added by ``+``."""

    # Changes that not all guarantees judge, by one of :data:`REASONS`.
    unchecked: Mapping[str, int] = field(default_factory=dict)
    evicted: int = 0  # rows that were forgotten
    # Of each change that was delivered again its topic, and the time of the watermark before it (ms).
    again: tuple[tuple[str, int], ...] = ()

    def __add__(self, other: RowsJudged) -> RowsJudged:
        unchecked = _sum(self.unchecked, other.unchecked)
        return RowsJudged(unchecked, self.evicted + other.evicted, (*self.again, *other.again))


def with_changes(
    state: WatchState, new: Changes, watched: Watched, promises: Promises, *, kept_ts: int = NO_TS
) -> tuple[WatchState, RowsJudged]:
    """Take the changes of rows of a batch, of all of them or of those in one bucket, and forget what is too much.

    ``state``: of it ``rows``, ``recent``, ``suspects``, ``evicted_ts`` and ``fresh`` are read and changed. ``new``: by
    rising ``row_id``. ``watched``: what is watched; of a bucket as of :meth:`Watched.of_bucket`. ``promises``: what the
    log promises, with what this batch states of it. ``kept_ts``: as of :func:`kept_ts`.
    """
    dated = watched.has_commit_ts
    last = state.rows.last(np.unique(new.row_id))
    both = Changes(*[np.concatenate([getattr(last, name), getattr(new, name)]) for name in CHANGE])
    order = order_of(both.row_id, both.commit_ts)
    both, is_new = both[order], (np.arange(len(order)) >= len(last))[order]
    odd = odd_changes(both, promises, has_commit_ts=dated)
    first = np.append(True, both.row_id[1:] != both.row_id[:-1])
    evicted = first & is_new & (state.evicted_ts != NO_TS)
    old = is_new & odd & (both.commit_ts <= state.recent.since) & (dated and state.recent.since != NO_TS)
    asked = np.unique(both.row_id[(odd & ~old) | np.isin(both.row_id, state.suspects.row_id)])
    kept, again = [state.suspects[~np.isin(state.suspects.row_id, asked)]], list[tuple[str, int]]()
    if len(asked):
        own = np.isin(both.row_id, asked) & ~old
        known = [state.suspects[np.isin(state.suspects.row_id, asked)], *state.recent.of(asked)]
        every = joined([both[own & ~is_new], *known, both[own & is_new]])  # what is known in full comes last
        again = _again(every, new, promises) if dated else []
        # a DDL or watermark that still comes may make a guarantee one that is watched
        coming = {"ddl", "watermark"} | ({"before"} if not promises.old_values.without else set())
        names = replace(watched, carried=watched.carried | coming).checks
        found = found_in_changes(every, names, promises, causes=None, has_commit_ts=dated)
        kept.append(_suspicious(every, found))
    if old.any():  # it may be sent again, and what came before it is forgotten: marks judge it, as a row of its own
        alone = both[old]
        kept.append(replace(alone, row_id=alone.row_id ^ (alone.offset * _MIX + alone.place)))
    new = joined([new])
    kept_new = new[new.commit_ts > state.evicted_ts] if dated and state.evicted_ts != NO_TS else new
    rows = state.rows.after(kept_new, dated=dated, known=last)
    rows, until, n = rows.kept_to(watched.memory * 7 // 10)
    recent = state.recent.with_changes(new)
    if dated and len(recent) > _FEW:
        recent = recent.kept_to(max(1, watched.memory // 8 // 72), kept_ts)
    every_suspect = joined(kept)
    suspects = newest(every_suspect, watched.suspects)
    after = replace(
        state, rows=rows, recent=recent, suspects=suspects, fresh=(*state.fresh, new),
        dropped=state.dropped or len(suspects) < len(every_suspect), evicted_ts=max(until, state.evicted_ts),
    )  # fmt: skip
    forgotten = evicted | old
    unchecked = Counter({EVICTED: int(forgotten.sum())})
    if CHAIN in watched.checks:
        others = both[is_new & ~forgotten & (both.rank != LEAVES)]
        filtered = _may_miss_one(others, promises)
        unchecked[FILTERED] = int(filtered.sum())
        unchecked[NO_OLD_VALUE] = int(((others.before == UNKNOWN) & ~filtered).sum())
    return after, RowsJudged(+unchecked, n, tuple(again))


def _may_miss_one(c: Changes, promises: Promises) -> Bools:
    """Changes after one that the changefeed's filters may have left out, so that their chain is not
    judged in full: an insert may miss a delete, another change an insert or an update.
    """
    of_place = promises.left_out[np.searchsorted(promises.place, c.place)]
    deletes, updates, inserts = ((of_place >> i) & 1 > 0 for i in range(3))
    found: Bools = np.where(c.rank == INSERT, deletes, updates | inserts)
    return found


def with_judged(
    state: WatchState, known: LogFacts, judged: RowsJudged, counts: WatchCounts, watched: Watched
) -> tuple[WatchState, WatchCounts]:
    """The state after all rows of a batch were taken, and what was counted in it."""
    state, episodes = _with_episodes(state, list(judged.again))
    counts = replace(
        counts, unchecked={**judged.unchecked, **counts.unchecked}, evicted=judged.evicted, episodes=episodes,
        redelivered=dict(Counter(topic for topic, _ in judged.again)),
        checked=_checked(counts, watched.on(known), judged.unchecked),
    )  # fmt: skip
    if watched.has_commit_ts and state.facts.num_rows > min(MARKS, CHUNKS):
        state = with_few_facts(state, kept_ts(known, watched))
    if state.evidence.num_rows > MARKS:
        until, ts = kept_ts(known, replace(watched, keep_ms=0)), state.evidence["transaction"].drop_null().to_numpy()
        if (ts > until).sum() > 4 * MARKS:  # no watermark comes
            until = int(np.sort(ts)[-MARKS])
        until = max(until, state.settled_ts)
        state = replace(state, evidence=settled(state.evidence, until=until), settled_ts=until)
    return state, counts


_MIX = 0x1E3779B97F4A7C15


def newest(c: Changes, most: int) -> Changes:
    """Of too many suspects the rows that changed last."""
    if len(c) <= most:
        return c
    begin = np.flatnonzero(np.append(True, c.row_id[1:] != c.row_id[:-1]))
    last_ts, n = np.maximum.reduceat(c.commit_ts, begin), np.diff(np.append(begin, len(c)))
    order = np.argsort(-last_ts, kind="stable")
    kept = np.zeros(len(begin), dtype=bool)
    kept[order[np.cumsum(n[order]) <= most]] = True
    return c[np.repeat(kept, n)]


def _suspicious(every: Changes, found: pa.Table) -> Changes:
    """The changes of rows with findings, or with possible ones when more is known: in several places they move."""
    own = every[every.rank != LEAVES]
    pairs = np.unique(np.stack([own.row_id, own.place]), axis=1)[0]
    moved = pairs[1:][pairs[1:] == pairs[:-1]]
    return every[np.isin(every.row_id, np.union1d(found["row_id"].drop_null().to_numpy(), moved))]


def _again(every: Changes, new: Changes, promises: Promises) -> list[tuple[str, int]]:
    """Of changes among ``new`` that were delivered before the topic, and the time of the watermark before them (ms)."""
    c = every[every.in_order(has_commit_ts=True)]
    at = np.searchsorted(promises.place, c.place)
    home = promises.home[at]
    begin = np.full(int(promises.home.max()) + 1, np.iinfo(np.int64).max)
    np.minimum.at(begin, promises.home[np.searchsorted(promises.place, new.place)], new.offset)
    which = np.flatnonzero(repeats(c, c.row) & (c.offset >= begin[home]))
    mark = promises.resolved.last_before(home[which], c.offset[which], c.seq[which])
    ms = [physical_ms(int(promises.resolved.ts[m])) if m >= 0 else 0 for m in mark.tolist()]
    return [(promises.topic[i], t) for i, t in zip(at[which].tolist(), ms, strict=True)]


def _with_episodes(state: WatchState, again: list[tuple[str, int]]) -> tuple[WatchState, dict[str, int]]:
    """With when changes were delivered again for the last time; how many episodes of that begin, by topic."""
    last, begun = dict(state.redelivered_ms), Counter[str]()
    for topic, ms in sorted(set(again)):
        begun[topic] += topic not in last or ms > last[topic] + EPISODE_MS
        last[topic] = max(ms, last.get(topic, ms))
    return replace(state, redelivered_ms=last), dict(begun)


def _sampled(rows: pa.Table, share: int) -> tuple[int, pa.Table]:
    """Changes of one row of so many, of fewer rows where they are too many."""
    while rows.num_rows > EXPLAINING:
        share *= 2
        rows = _one_of(rows, share)
    return share, rows


def _one_of(rows: pa.Table, share: int) -> pa.Table:
    """The changes of about one row of so many."""
    row = row_ids(rows).fill_null(0).to_numpy()
    return rows if share == 1 else rows.filter(pa.array((row >> 7) % share == 0))


def _decoded(batch: pa.Table) -> pa.Table:
    """The events of a batch, without a copy where all messages could be decoded: it is large."""
    bad = batch["error_class"]
    return batch if bad.null_count == len(bad) else batch.filter(pc.is_null(bad))


def _counted(events: pa.Table, refused: pa.Table) -> WatchCounts:
    of_kind = Counter(events["kind"].to_pylist()) if events.num_rows < 64 else {
        v["values"]: v["counts"] for v in pc.value_counts(events["kind"]).to_pylist()
    }  # fmt: skip
    whole = refused.filter(pc.equal(pc.fill_null(refused["seq"], 0), 0))
    messages = whole.num_rows + (pc.sum(pc.equal(events["seq"], 0)).as_py() or 0)
    bad = Counter(whole["error_class"].to_pylist())
    unread = refused.num_rows - bad[EMPTY_MESSAGE]
    return WatchCounts(
        messages, of_kind.get("row", 0), of_kind.get("watermark", 0), of_kind.get("ddl", 0), quarantined=dict(bad),
        unchecked={QUARANTINED: unread} if unread else {},
    )  # fmt: skip


def _checked(counts: WatchCounts, watched: Watched, unchecked: Mapping[str, int]) -> dict[str, int]:
    """By guarantee of how many it was asked."""
    remembered = max(0, counts.rows - unchecked.get(EVICTED, 0))
    chained = max(0, remembered - unchecked.get(FILTERED, 0) - unchecked.get(NO_OLD_VALUE, 0))
    found = {}
    for name in watched.checks:
        g = GUARANTEES[name]
        of_rows = counts.rows if g.by_one else chained if name == CHAIN else remembered
        every = counts.messages if "all messages" in g.needs else counts.watermarks
        found[name] = of_rows if g.remembers == "rows" else counts.ddl if g.of_ddl else every
    return found


MARKS, CHUNKS = 20_000, 4_096
"""Watermarks, and chunks of offsets, that are kept before some are thinned out, or counted."""

_WIDTHS = 64
"""Of watermarks of an age, one is kept in each of so many parts of that age, at least."""


def with_few_facts(state: WatchState, newest: int) -> WatchState:
    """The same with facts that do not grow with the log: offsets are counted, except the last ones of each partition,
    and of watermarks up to ``newest`` some values are kept, fewer the older they are, in each partition the same ones.
    """
    fact = state.facts["fact"]
    offsets = state.facts.filter(pc.equal(fact, "offsets"))
    if offsets.num_rows > CHUNKS:
        ordered = ordered_offsets([offsets])
        chunk, held = (ordered[c].to_numpy() for c in ("offset", "held"))
        counted, last = dict(state.counted), []
        for part in runs(codes(ordered["topic"]), ordered["partition"].to_numpy()):
            home = ordered["topic"][part.start].as_py(), ordered["partition"][part.start].as_py()
            if part.stop - part.start > 1:
                whole = slice(part.start, part.stop - 1)
                of = counted_offsets(chunk[whole], held[whole], counted.get(home))
                counted[home] = replace(of, missing=(of.missing[0][-GAPS:], of.missing[1][-GAPS:]))
            last.append(part.stop - 1)
        kept = ordered.take(pa.array(last)).append_column("fact", pa.array(["offsets"] * len(last)))
        rest = state.facts.filter(pc.not_equal(fact, "offsets"))
        facts = pa.concat_tables([rest, pa.Table.from_batches(as_facts(kept), ARROW)])
        state = replace(state, facts=facts, counted=counted)
    is_mark = pc.equal(state.facts["fact"], "watermark")
    marks = state.facts.filter(is_mark)
    if marks.num_rows <= MARKS or newest == NO_TS:
        return state
    values = np.unique(marks["commit_ts"].to_numpy())
    age = np.maximum((newest >> LOGICAL_BITS) - (values >> LOGICAL_BITS), 1)
    width = 1 << np.maximum(np.log2(age / _WIDTHS), 0).astype(np.int64)
    begins = np.append(True, np.diff((values >> LOGICAL_BITS) // width + (width << 48)) != 0)
    greatest = state.known.watermarks
    homes = np.union1d(greatest.least(), [marks["commit_ts"][i].as_py() for i in _last_before(marks, newest)])
    own = values[(values > newest) | begins | np.isin(values, homes)]
    known = pa.table({c: marks[c] for c in ("topic", "partition", "commit_ts")})
    again = ~_firsts_among(known)
    kept = np.isin(marks["commit_ts"].to_numpy(), own) & ~(again & (marks["commit_ts"].to_numpy() <= newest))
    facts = pa.concat_tables([state.facts.filter(pc.invert(is_mark)), marks.filter(pa.array(kept))])
    return replace(state, facts=facts.combine_chunks(), closed_ts=max(newest, state.closed_ts))


def _last_before(marks: pa.Table, newest: int) -> list[int]:
    """Of each partition the greatest watermark up to one."""
    ts = marks["commit_ts"].to_numpy()
    home = codes(marks["topic"]) * (1 << 32) + marks["partition"].to_numpy()
    order = np.lexsort((ts, home))
    order = order[ts[order] <= newest]
    return order[lasts_in(home[order])].tolist() if len(order) else []


def _firsts_among(rows: pa.Table) -> Bools:
    """Which rows, in the order of a partition's offsets, are the first of their topic, partition and commit_ts."""
    home = codes(rows["topic"]) * (1 << 32) + rows["partition"].to_numpy()
    order = np.lexsort((rows["commit_ts"].to_numpy(), home))
    first = changes_in(home[order], rows["commit_ts"].to_numpy()[order])
    found = np.zeros(len(order), dtype=bool)
    found[order[first]] = True
    return found


GAPS = 10_000
"""Stretches of missing offsets of a partition that are kept: the last ones."""


def kept_ts(known: LogFacts, watched: Watched) -> int:
    """Up to which commit_ts changes and watermarks need not be kept; NO_TS for none."""
    resolved = known.watermarks.greatest()
    least = int(resolved.min()) if len(resolved) and watched.has_commit_ts else NO_TS
    return least - (watched.keep_ms << LOGICAL_BITS) if least != NO_TS else NO_TS


_FEW = 4096
"""Changes below which none is forgotten."""


@dataclass(frozen=True, slots=True)
class AuditedSoFar(Audited):
    """An audit of all that was read. ``findings``: as of :func:`step`."""

    contradicted: Sequence[Contradiction] = ()  # what was given of the changefeed and the log shows otherwise
    # Of the changes that are kept, inserts of rows that are there which may be updates: no chain is judged of them.
    unsure: int = 0
    # Rules without effect, and keys whose text a DDL changes, a sentence each.
    notes: tuple[str, ...] = ()
    verified: tuple[Setting, ...] = ()  # dispatchers that were given and that rows lie by


def audited_so_far(state: WatchState, watched: Watched, *, goes_on: bool = False) -> AuditedSoFar:
    """What breaks a guarantee of all that was read, and what of it cannot be judged.

    If the log ``goes_on``, partitions are compared up to the watermark that all of a topic have reached: what one is
    read ahead of another is no finding.
    """
    facts, protocol = state.known, watched.protocol
    checks = watched.on(facts).checks
    left_out, where = LeftOut.read(watched.settings), None
    definitions = judged_definitions(facts, protocol, left_out)
    promises = Promises.read(facts, settings=watched.settings, protocol=protocol)
    shared = _up_to_the_shared(facts) if goes_on else facts
    in_facts = found_in_facts(shared, checks, definitions=definitions, protocol=protocol)

    def judged(causes: pa.Table | None) -> pa.Table:
        return found_in_changes(state.suspects, checks, promises, causes=causes, has_commit_ts=watched.has_commit_ts)

    of_rows = judged(None)
    undecided = of_rows.filter(pc.equal(of_rows["guarantee"], UNDECIDED))
    if undecided.num_rows:
        updates = state.suspects.commit_ts[state.suspects.rank == UPDATE]
        where = stretches_of(updates, undecided["commit_ts"].to_numpy(), facts, whole=False)
        promises = Promises.read(facts, settings=watched.settings, protocol=protocol, stretches=where)
        of_rows = judged(None)
    if are_explained(protocol) and asks_for_causes(of_rows, facts):
        homes = [{"kind": "watermark", "topic": t, "partition": p} for t, p in facts.homes]
        explaining = pa.concat_tables([state.explaining, pa.Table.from_pylist(homes, schema=_KEPT)])
        of_rows = judged(move_causes_table(explaining, given=rules_given(facts, watched.settings)))
    found, n_unsure = without_unsure(pa.concat_tables([in_facts, of_rows]))
    found = found.take(pc.sort_indices(found, [(name, "ascending", "at_start") for name in ORDER])).combine_chunks()
    old_values = OldValues.read(facts, protocol=protocol, settings=watched.settings, stretches=where)
    unjudged = chain_unjudged(facts, old_values, left_out, n_unsure) if CHAIN in checks else {}
    if not_compared := [*_not_compared(state, watched)]:
        unjudged[MATCH] = "; ".join(not_compared)
    contradicted = watched.settings.noted((
        *against_facts(facts, watched.settings, has_partitions=not watched.is_folder),
        *against_rows(state.evidence, facts, watched.settings, protocol=protocol),
    )).contradictions  # fmt: skip
    noted = rules_noted(facts, watched.settings, of_storage=watched.is_folder)
    placed = [] if watched.is_folder else [
        *against_places(state.explaining, facts, watched.settings, share=state.share)
    ]  # fmt: skip
    contradicted += tuple(c for c in placed if isinstance(c, Contradiction) and c not in contradicted)
    in_stretches = int(old_values.unsure(undecided["commit_ts"].to_numpy()).sum()) if undecided.num_rows else 0
    n = n_unsure + in_stretches if CHAIN in unjudged else 0
    notes = tuple(dict.fromkeys((*noted, *(p for p in placed if isinstance(p, str)))))
    verified = tuple(p for p in placed if isinstance(p, Setting))
    return AuditedSoFar(found, unjudged, contradicted, n, (*notes, *changed_texts(facts, watched.settings)), verified)


def _not_compared(state: WatchState, watched: Watched) -> Iterator[str]:
    """What of the given settings is not compared with all rows, and why."""
    for name, setting in compared_with_rows(watched.settings, watched.protocol).items():
        if before := state.compared.get(f"{name} = {setting.text}", state.n_rows):
            yield f"{name} was given after {before:,} row changes were read, and is not compared with these"


def _up_to_the_shared(facts: LogFacts) -> LogFacts:
    """Facts without the watermarks that some partition of the topic, of those that have any, has not reached."""
    marks, shared = facts.watermarks, dict[str, int]()
    greatest = marks.greatest()
    for (topic, _), ts in zip(facts.homes, greatest.tolist(), strict=True):
        if ts != NO_TS:
            shared[topic] = min(ts, shared.get(topic, ts))
    most = np.array([shared.get(topic, NO_TS) for topic, _ in facts.homes], dtype=np.int64)
    own = marks.ts <= most[marks.home]
    kept = Watermarks(marks.home[own], marks.offset[own], marks.seq[own], marks.ts[own], marks.homes)
    return replace(facts, watermarks=kept)

"""Two logs compared while they grow: what is known of both between two batches, and how a batch changes it.

No clock, no I/O. Row changes wait until the resolved_ts of both logs has passed them; then they are paired as
:func:`ticdc_lab.transactions.differences.differences` pairs them, a window of time once. What was paired is kept while
the memory lasts, an hour at most, as TiCDC may deliver a change again, whose window is then paired again; the oldest
window is counted and forgotten first. Where a batch or a window ends changes nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any, TypeVar

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from ticdc_lab.codecs.kernel.numbering import REWRITTEN
from ticdc_lab.dispatch.fitting import columns_of
from ticdc_lab.events.arrays import NO_TS, Bools, Ints, changes_in, codes, encoded, timestamps
from ticdc_lab.events.tso import LOGICAL_BITS
from ticdc_lab.facts.watermarks import progress_of, topics_of
from ticdc_lab.settings import Settings
from ticdc_lab.settings.detected import COUNTED, OP_BY_IMAGES, READ, counted, of_counts
from ticdc_lab.transactions.differences import KINDS, WHOLE, Comparable, covered, ddl_differences
from ticdc_lab.watch.state import CHUNKS, BatchPart, WatchState, with_few_facts, with_part

Of = TypeVar("Of")

SIDES = HERE, THERE = 0, 1

EXAMPLES = 100
"""Changes that differ which are listed; all are counted."""

_ONLY_HERE, _ONLY_THERE, _VALUES, _ELSEWHERE, _SAME = range(len(KINDS))

ChangeName = tuple[str | None, str | None, str | None]
"""Schema, table and operation."""


def _none() -> Ints:
    return np.empty(0, dtype=np.int64)


@dataclass(frozen=True, slots=True)
class Delivered:
    """Row changes as each log delivered them: the first delivery of each content."""

    # ``commit_ts``, ``name``, ``key``: what names a change: ``name`` is the index of its schema, table and operation; a
    # row without a key has NO_TS.
    commit_ts: Ints = field(default_factory=_none)
    name: Ints = field(default_factory=_none)
    key: Ints = field(default_factory=_none)
    # ``change``, ``before``, ``after``: hashes of the change, and of its images; NO_TS for none.
    change: Ints = field(default_factory=_none)
    before: Ints = field(default_factory=_none)
    after: Ints = field(default_factory=_none)
    side: Ints = field(default_factory=_none)  # :data:`HERE` or :data:`THERE`
    # ``offset``, ``partition``, ``topic``: where it lies.
    offset: Ints = field(default_factory=_none)
    partition: Ints = field(default_factory=_none)
    topic: Ints = field(default_factory=_none)

    def __len__(self) -> int:
        return len(self.commit_ts)

    def __getitem__(self, which: Bools | Ints) -> Delivered:
        return Delivered(*[getattr(self, f.name)[which] for f in fields(self)])

    @property
    def nbytes(self) -> int:
        """How much memory it takes."""
        return sum(getattr(self, f.name).nbytes for f in fields(self))


def merged(parts: Iterable[Delivered]) -> Delivered:
    """The first delivery of each content in each log, by rising commit_ts."""
    whole = [p for p in parts if len(p)]
    if not whole:
        return Delivered()
    every = Delivered(*[np.concatenate([getattr(p, f.name) for p in whole]) for f in fields(Delivered)])
    columns = [getattr(every, f.name) for f in fields(every)]
    every = every[np.lexsort(columns[::-1])]
    return every[changes_in(*[getattr(every, f.name) for f in fields(every)[:-3]])]


@dataclass(frozen=True, slots=True)
class Pairs:
    """Changes, each with its first delivery in both logs."""

    delivered: Delivered  # all deliveries, each beside the others of its change
    # ``name``, ``kind``: indexes of each change's name, and of :data:`ticdc_lab.transactions.differences.KINDS`.
    name: Ints
    kind: Ints
    # ``here``, ``there``: the index of the first delivery; -1 where that log does not have it.
    here: Ints
    there: Ints
    several: Ints  # which logs deliver it with several contents: 1 for here, 2 for there, 3 for both

    def __len__(self) -> int:
        return len(self.name)

    def __getitem__(self, which: Bools | Ints) -> Pairs:
        columns = (self.name, self.kind, self.here, self.there, self.several)
        return Pairs(self.delivered, *[column[which] for column in columns])

    @property
    def commit_ts(self) -> Ints:
        """Of each change."""
        return self.delivered.commit_ts[np.maximum(self.here, self.there)]

    def counted(self) -> dict[int, Ints]:
        """By the index of a name how many changes of each kind."""
        each, at = np.unique(self.name, return_inverse=True)
        n = np.bincount(at * len(KINDS) + self.kind, minlength=len(each) * len(KINDS)).reshape(-1, len(KINDS))
        return dict(zip(each.tolist(), n, strict=True))


def paired(d: Delivered, names: Sequence[ChangeName], compared: Comparable) -> Pairs:
    """Pair what :func:`merged` gave, as :func:`ticdc_lab.transactions.differences.differences` does.

    Beyond that, a row whose key one log alone shows is paired by its content.
    """
    if not len(d):
        return Pairs(d, *[_none() for _ in range(5)])
    content, name = _content(d, names, compared), _compared_names(names, compared)[d.name]
    row = np.where(d.key == NO_TS, content, d.key)
    order = np.lexsort((d.topic, d.partition, d.offset, d.side, row, name, d.commit_ts))
    d, content, name, row = d[order], content[order], name[order], row[order]
    begins = np.flatnonzero(changes_in(d.commit_ts, name, row, d.side))
    least, most = np.minimum.reduceat(content, begins), np.maximum.reduceat(content, begins)
    first = np.flatnonzero(changes_in(d.commit_ts[begins], name[begins], row[begins]))
    last = np.append(first[1:], len(begins)) - 1
    side = d.side[begins]
    here, there = np.where(side[first] == HERE, first, -1), np.where(side[last] == THERE, last, -1)
    alone = np.flatnonzero((here < 0) | (there < 0))
    one = np.maximum(here, there)[alone]
    order = np.lexsort((side[one], least[one], name[begins[one]], d.commit_ts[begins[one]]))
    one, alone = one[order], alone[order]
    differs = changes_in(d.commit_ts[begins[one]], name[begins[one]], least[one], most[one])
    keyless = d.key[begins[one]] == NO_TS
    same = np.flatnonzero(~differs[1:] & (side[one[1:]] > side[one[:-1]]) & (keyless[1:] != keyless[:-1]))
    there[alone[same]] = there[alone[same + 1]]
    kept = np.ones(len(here), dtype=bool)
    kept[alone[same + 1]] = False
    here, there = here[kept], there[kept]
    values = (least[here] != least[there]) | (most[here] != most[there])
    elsewhere = d.partition[begins[here]] != d.partition[begins[there]]
    kind = np.where(values, _VALUES, np.where(elsewhere, _ELSEWHERE, _SAME))
    several = (least != most).astype(np.int64)
    return Pairs(
        d, name[begins[np.maximum(here, there)]],
        np.where(there < 0, _ONLY_HERE, np.where(here < 0, _ONLY_THERE, kind)),
        np.where(here < 0, -1, begins[here]), np.where(there < 0, -1, begins[there]),
        several[here] * (here >= 0) + 2 * several[there] * (there >= 0),
    )  # fmt: skip


def _compared_names(names: Sequence[ChangeName], compared: Comparable) -> Ints:
    """Of each name the index of the one that it counts as."""
    if compared.ops:
        return np.arange(len(names))
    first = dict[tuple[str | None, str | None, bool], int]()
    return np.array([first.setdefault((s, t, o == "delete"), i) for i, (s, t, o) in enumerate(names)])


def _content(d: Delivered, names: Sequence[ChangeName], compared: Comparable) -> Ints:
    """What is compared of each change; as :meth:`ticdc_lab.transactions.differences.Comparable.content`."""
    if compared == WHOLE:
        return d.change
    deletes, updates = (np.array([o == op for *_, o in names])[d.name] for op in ("delete", "update"))
    image = np.where(deletes, d.before if compared.deletes else 0, d.after)
    return image * _MIX + np.where(updates, d.before, 1) if compared.before else image


_MIX = np.int64(0x1E3779B97F4A7C15)


@dataclass(frozen=True, slots=True)
class Paired:
    """What was found of some changes."""

    alone: int = 0  # changes that one log alone has
    totals: Mapping[int, Ints] = field(default_factory=dict)  # as of :meth:`Pairs.counted`
    differing: Delivered = field(default_factory=Delivered)  # deliveries of those that differ: the worst ones

    @classmethod
    def of(cls, parts: Sequence[Paired]) -> Paired:
        """The same of several times."""
        totals = dict[int, Ints]()
        for p in parts:
            totals = _sums(totals, p.totals)
        return cls(sum(p.alone for p in parts), totals, merged(p.differing for p in parts))


@dataclass(frozen=True, slots=True)
class Window:
    """The row changes of a time that both logs have passed, and what was found of them."""

    until: int  # later windows are above this commit_ts
    delivered: Delivered
    span: tuple[int, int]  # as of :meth:`CompareState.span`, when they were paired
    compared: Comparable  # what of them was compared
    # ``strict``: what was found; ``looser``: where operations are not compared, None where that is not asked.
    strict: Paired
    looser: Paired | None

    def within(self, span: tuple[int, int]) -> tuple[int, int]:
        """Between which commit_ts its changes are paired if both logs are whole in a span."""
        return max(span[0], int(self.delivered.commit_ts[0])), min(span[1], self.until)


@dataclass(frozen=True, slots=True)
class CompareState:
    """What is known of two logs between two batches."""

    # Of each log what it states besides its rows, and how far it is.
    sides: tuple[WatchState, WatchState] = (WatchState(), WatchState())
    # ``names``, ``topics``: what indexes of :class:`Delivered` mean.
    names: tuple[ChangeName, ...] = ()
    topics: tuple[str, ...] = ()
    # Row changes: those that were paired, by rising time; those above; and those that came since. Each part of
    # ``fresh`` may belong to any of them.
    windows: tuple[Window, ...] = ()
    delivered: Delivered = field(default_factory=Delivered)
    fresh: tuple[Delivered, ...] = ()
    ended: tuple[bool, bool] = (False, False)  # which logs were read to their end
    # Of each log what its images show of its settings (:data:`ticdc_lab.settings.detected.COUNTED`).
    images: tuple[pa.Table, pa.Table] = (COUNTED.empty_table(), COUNTED.empty_table())
    # Of what was paired and forgotten, as of :meth:`Pairs.counted`.
    totals: Mapping[int, Ints] = field(default_factory=dict)
    # Deliveries of changes that differ among what was forgotten: the worst ones.
    differing: Delivered = field(default_factory=Delivered)
    forgotten_ts: int = NO_TS  # changes up to this commit_ts are forgotten; NO_TS for none
    late: tuple[int, int] = (0, 0)  # by log the changes that came when what they would be compared with was forgotten

    @property
    def nbytes(self) -> int:
        """About how much it takes."""
        of_sides = sum(int(side.facts.nbytes) for side in self.sides)
        return sum(d.nbytes for d in (*(w.delivered for w in self.windows), self.delivered, *self.fresh)) + of_sides

    def resolved_ts(self, side: int) -> int:
        """Up to which commit_ts a log is whole; NO_TS while a partition has no watermark."""
        facts = self.sides[side].known
        if self.ended[side]:
            span = covered(facts)
            return span[1] if span else NO_TS
        resolved = topics_of(progress_of(facts))["resolved_ts"].to_pylist()
        return int(NO_TS if None in resolved else min(resolved, default=NO_TS))

    def span(self) -> tuple[int, int] | None:
        """First and last commit_ts between which both logs are whole; None if there is no time between."""
        here, there = (covered(side.known) for side in self.sides)
        if here is None or there is None:
            return None
        begin = max(here[0], there[0])
        end = min(self.resolved_ts(HERE), self.resolved_ts(THERE))
        return (begin, end) if begin < end else None


@dataclass(frozen=True, slots=True)
class ComparedSoFar:
    """What two logs have in common so far."""

    span: tuple[int, int] | None  # as of :meth:`CompareState.span`
    comparable: Comparable  # what of the changes was compared
    # ``tables``, ``examples``, ``ddl``: as :func:`ticdc_lab.answers.compared` takes them.
    tables: pd.DataFrame
    examples: pd.DataFrame
    ddl: pd.DataFrame
    late: tuple[int, int]  # as of :class:`CompareState`


@dataclass(frozen=True, slots=True)
class ComparedSides:
    """How two logs are compared; the same from the first step to the last."""

    # ``protocols``, ``settings``: of each log; settings that images show are added.
    protocols: tuple[str, str]
    settings: tuple[Settings, Settings] = (Settings(), Settings())
    # ``memory``: bytes of the state. ``keep_ms``: paired changes are kept so long, to detect what is delivered
    # again. What is older is counted and forgotten.
    memory: int = 1 << 30
    keep_ms: int = 3_600_000

    def are_too_long(self, windows: Sequence[Window]) -> bool:
        """Whether the first is older than what is kept, by the time of the last."""
        return len(windows) > 1 and windows[-1].until - windows[0].until > self.keep_ms << LOGICAL_BITS

    @property
    def labelled(self) -> bool:
        """Whether one log has labels of ENUM and SET, and the other numbers."""
        here, there = (protocol in REWRITTEN for protocol in self.protocols)
        return here != there

    def of(self, state: CompareState) -> Comparable:
        """What of the changes can be compared, by all that was read."""
        shown = [
            settings | of_counts(images, protocol=protocol, whole=ended)
            for settings, images, protocol, ended in zip(
                self.settings, state.images, self.protocols, state.ended, strict=True
            )
        ]
        return Comparable.of(shown[HERE], shown[THERE])


def _window(d: Delivered, until: int, state: CompareState, sides: ComparedSides, span: tuple[int, int]) -> Window:
    """Pair row changes of a time."""
    compared = sides.of(state)
    own = d[(d.commit_ts >= span[0]) & (d.commit_ts <= span[1])]
    strict = _found(own, state, compared)
    may_loosen = compared.ops and {*sides.protocols} & OP_BY_IMAGES  # old values may be off in a part of one log
    looser = _found(own, state, _loosened(compared)) if may_loosen else None
    return Window(until, d, span, compared, strict, looser)


def _paired_now(w: Window, state: CompareState, sides: ComparedSides, span: tuple[int, int]) -> Window:
    """The same window, paired again if other changes of it count now, or another part of them."""
    if w.compared == sides.of(state) and w.within(span) == w.within(w.span):
        return w
    return _window(w.delivered, w.until, state, sides, span)


def _loosened(compared: Comparable) -> Comparable:
    return replace(compared, before=False, ops=False)


def _found(d: Delivered, state: CompareState, compared: Comparable) -> Paired:
    pairs = paired(d, state.names, compared)
    return Paired(int((pairs.kind <= _ONLY_THERE).sum()), pairs.counted(), _deliveries(_worst(pairs, state)))


def _of_windows(windows: Sequence[Window], compared: Comparable) -> tuple[Paired, Comparable]:
    """What was found in all, and what was compared: if old values are off in a part of one log, no operations are."""
    strict = Paired.of([w.strict for w in windows])
    looser = Paired.of([w.looser for w in windows if w.looser is not None])
    if strict.alone and all(w.looser is not None for w in windows) and looser.alone < strict.alone:
        return looser, _loosened(compared)
    return strict, compared


def step(
    state: CompareState, batch: pa.Table, side: int, sides: ComparedSides, *, ends: bool = False
) -> tuple[CompareState, ComparedSoFar]:
    """Take a batch of one log's events, and compare.

    ``state``: before it. ``batch``: :data:`ticdc_lab.events.schema.DECODED`; of each partition in the order of offsets.
    ``side``: :data:`HERE` or :data:`THERE`. ``sides``: how both are compared. ``ends``: the log ends with this batch.
    Returns: the state after it, and what both logs have in common up to the resolved_ts of both.
    """
    after = absorbed(state, batch, side, sides, ends=ends)
    return after, judged(after, sides)


def absorbed(
    state: CompareState, batch: pa.Table, side: int, sides: ComparedSides, *, ends: bool = False
) -> CompareState:
    """The state after a batch, without comparing; as of :func:`step`."""
    events = batch.filter(pc.is_null(batch["error_class"]))
    known = state.sides[side]
    facts = replace(with_part(known, BatchPart.read(batch)), explaining=known.explaining, share=known.share)
    if facts.facts.num_rows > CHUNKS:
        resolved = facts.known.watermarks.greatest()
        facts = with_few_facts(facts, int(resolved.min()) if len(resolved) else NO_TS)
    state = replace(
        state, sides=_with(state.sides, side, facts), ended=_with(state.ended, side, ends or state.ended[side])
    )
    if events.num_rows:
        shown = counted(events.select(READ))
        sums = pa.concat_tables([state.images[side], shown]).group_by("op").aggregate(
            [(n, "sum") for n in COUNTED.names[1:]]
        )  # fmt: skip
        named = sums.rename_columns([c.removesuffix("_sum") for c in sums.column_names]).select(COUNTED.names)
        state = replace(state, images=_with(state.images, side, named.cast(COUNTED)))
    rows = events.filter(pc.and_(pc.equal(events["kind"], "row"), pc.is_valid(events["commit_ts"])))
    late = rows["commit_ts"].to_numpy() <= state.forgotten_ts
    if late.any():
        state = replace(state, late=_with(state.late, side, state.late[side] + int(late.sum())))
        rows = rows.filter(pa.array(~late))
    if rows.num_rows:
        state = _with_rows(state, _by_numbers(rows) if sides.labelled else rows, side)
    if sum(map(len, state.fresh)) > max(_AT_ONCE, len(state.delivered) // 4):
        state = windowed(state, sides)
    return _bounded(state, sides) if state.nbytes > sides.memory or sides.are_too_long(state.windows) else state


_AT_ONCE = 1 << 16
"""Changes that are put among the others at once, and a window's, at least."""


def _with(pair: tuple[Of, Of], side: int, value: Of) -> tuple[Of, Of]:
    return (value, pair[THERE]) if side == HERE else (pair[HERE], value)


def windowed(state: CompareState, sides: ComparedSides) -> CompareState:
    """The same with what came since in its place, and what both logs have passed in windows."""
    if not state.fresh:
        return state
    windows, span, fresh = list(state.windows), state.span(), merged(state.fresh)
    ends = np.array([w.until for w in windows], dtype=np.int64)
    at = np.searchsorted(ends, fresh.commit_ts)
    for i in np.unique(at[at < len(ends)]).tolist():  # delivered again, most of them
        before = windows[i].delivered
        whole = merged([before, fresh[at == i]])
        if not all(np.array_equal(getattr(whole, f.name), getattr(before, f.name)) for f in fields(whole)):
            windows[i] = _window(whole, windows[i].until, state, sides, span or windows[i].span)
    above = merged([state.delivered, fresh[at == len(ends)]])
    passed = above.commit_ts <= (span[1] if span else NO_TS)
    if span is not None and passed.sum() > _AT_ONCE // 4:
        windows.append(_window(above[passed], span[1], state, sides, span))
        above = above[~passed]
    return replace(state, windows=tuple(windows), delivered=above, fresh=())


def _by_numbers(rows: pa.Table) -> pa.Table:
    """Rows with an ENUM or SET in their key, named by what TiCDC hashes of it: numbers in any message."""
    labelled = np.zeros(rows.num_rows, dtype=bool)
    for image in ("columns", "before"):
        lists = rows[image].combine_chunks()
        cells = pc.list_flatten(lists)
        of_label = pc.match_substring_regex(pc.struct_field(cells, "mysql_type"), "^(?i)(enum|set)")
        found = pc.fill_null(pc.and_(pc.struct_field(cells, "is_key"), of_label), False)
        labelled[np.asarray(pc.list_parent_indices(lists).filter(found), dtype=np.int64)] = True
    keys = np.array(timestamps(rows["key_hash"]))
    known = labelled & np.asarray(pc.is_valid(rows["key_crc"]))
    layout = codes(rows["layout"])
    for which in np.unique(layout[known]).tolist():  # each crc for itself: put together, (1, 12) and (2, 11) are one
        at = np.flatnonzero(known & (layout == which))
        names, own, crcs = columns_of(rows.take(pa.array(at)))
        cells = np.asarray(pc.fill_null(pc.list_flatten(crcs), 0)).reshape(len(at), len(names))
        ordered = np.sort(cells[:, [names.index(name) for name in own]], axis=1)
        keys[at] = [hash(tuple(crc)) for crc in ordered.tolist()]
    given = pa.array(keys, mask=np.asarray(pc.is_null(rows["key_hash"])) & ~known)
    return rows.set_column(rows.schema.get_field_index("key_hash"), "key_hash", given)


def with_windows(state: CompareState, parts: Iterable[tuple[int, Delivered]], sides: ComparedSides) -> CompareState:
    """The same with windows whose ``until`` and content were saved."""
    span = state.span()
    windows = [_window(d, until, state, sides, span or (int(d.commit_ts[0]), until)) for until, d in parts]
    return replace(state, windows=tuple(windows))


def _with_rows(state: CompareState, rows: pa.Table, side: int) -> CompareState:
    schema, table, op, topic = (encoded(rows[c]) for c in ("schema_name", "table_name", "op", "topic"))
    names, topics = {n: i for i, n in enumerate(state.names)}, {t: i for i, t in enumerate(state.topics)}
    each, at = np.unique(np.stack([schema[0], table[0], op[0]]), axis=1, return_inverse=True)
    index = [names.setdefault((schema[1][s], table[1][t], op[1][o]), len(names)) for s, t, o in each.T.tolist()]
    topic_of = np.array([topics.setdefault(t or "", len(topics)) for t in topic[1]])
    ts, key, change, before, after, offset, partition = (timestamps(rows[c]) for c in _READ)
    name = np.array(index, dtype=np.int64)[at.reshape(-1)]
    new = Delivered(
        ts, name, key, change, before, after, np.full(len(ts), side), offset, partition, topic_of[topic[0]]
    )  # fmt: skip
    return replace(state, names=tuple(names), topics=tuple(topics), fresh=(*state.fresh, merged([new])))


_READ = ("commit_ts", "key_hash", "change_hash", "before_hash", "after_hash", "offset", "partition")


def _bounded(state: CompareState, sides: ComparedSides) -> CompareState:
    """The same without what cannot be compared any more, and without the oldest of what was."""
    state = windowed(state, sides)
    d = state.delivered
    for side in SIDES:
        if state.ended[side]:  # what is above is never compared
            d = d[d.commit_ts <= state.resolved_ts(side)]
    state, span = replace(state, delivered=d), state.span()
    most = sides.memory * 3 // 4 if state.nbytes > sides.memory else sides.memory
    while span is not None and ((excess := state.nbytes - most) > 0 or sides.are_too_long(state.windows)):
        if state.windows:
            old = _paired_now(state.windows[0], state, sides, span)
            state = replace(state, windows=state.windows[1:])
        elif len(d):
            last = min(span[1], int(d.commit_ts[min(len(d) - 1, excess * len(d) // d.nbytes)]))
            is_old = d.commit_ts <= last
            old = _window(d[is_old], last, state, sides, span)
            d = d[~is_old]
            state = replace(state, delivered=d)
        else:
            break
        if not len(old.delivered):
            break
        found, compared = _of_windows([old], old.compared)
        worst = _worst(paired(merged([state.differing, found.differing]), state.names, compared), state)
        state = replace(
            state, totals=_sums(state.totals, found.totals), differing=_deliveries(worst),
            forgotten_ts=max(old.until, state.forgotten_ts),
        )  # fmt: skip
    return state


def _sums(one: Mapping[int, Ints], other: Mapping[int, Ints]) -> dict[int, Ints]:
    none = np.zeros(len(KINDS), dtype=np.int64)
    return {name: one.get(name, none) + other.get(name, none) for name in {**one, **other}}


def _deliveries(pairs: Pairs) -> Delivered:
    """All deliveries of some changes; each change's lie behind its first."""
    d, parts = pairs.delivered, []
    for here, there in zip(pairs.here.tolist(), pairs.there.tolist(), strict=True):
        for first in (here, there):
            if first >= 0:
                near = d[np.arange(first, min(first + _CONTENTS, len(d)))]
                of = [near.commit_ts, near.name, near.side, near.key]
                own = np.logical_and.reduce([column == column[0] for column in of])
                parts.append(near[own & ((near.key != NO_TS) | (near.change == near.change[0]))])
    return merged(parts)


_CONTENTS = 16
"""Of a change that a log delivers with several contents, so many are kept once it is forgotten."""


def _worst(pairs: Pairs, state: CompareState) -> Pairs:
    """The changes that differ, the worst kind first and then in commit order: the first ones."""
    odd = pairs[pairs.kind != _SAME]
    odd = odd[np.lexsort((odd.commit_ts, odd.kind))]
    ts = odd.commit_ts
    if len(odd) > EXAMPLES:  # a tie at the end is decided below
        tied = (odd.kind == odd.kind[EXAMPLES - 1]) & (ts == ts[EXAMPLES - 1])
        odd = odd[tied | (np.arange(len(odd)) < EXAMPLES)]
    rows = _examples(odd, state)

    def rank(i: int) -> list[tuple[bool, Any]]:
        row = rows[i]
        told = (KINDS.index(row["kind"]), *[row[c] for c in _EXAMPLE if c not in ("kind", "other_topic", "several")])
        return [(value is not None, value) for value in (told[0], told[3], *told[1:3], *told[4:])]

    return odd[np.array(sorted(range(len(rows)), key=rank)[:EXAMPLES], dtype=np.int64)]


def judged(state: CompareState, sides: ComparedSides) -> ComparedSoFar:
    """What both logs have in common up to the resolved_ts of both."""
    state = windowed(state, sides)
    span, compared = state.span(), sides.of(state)
    begin, end = both = span or (0, NO_TS)
    last = _window(state.delivered, end, state, sides, both)
    windows = [_paired_now(w, state, sides, both) for w in state.windows]
    found, compared = _of_windows([*windows, last], compared)
    totals = dict[str, Ints]()
    for name, n in _sums(state.totals, found.totals).items():
        table = ".".join(part for part in state.names[name][:2] if part is not None)
        totals[table] = totals.get(table, np.zeros(len(KINDS), dtype=np.int64)) + n
    ordered = sorted(totals.items(), key=lambda of: (*(-of[1][:-1]).tolist(), of[0]))
    rows = [(table, *n.tolist()) for table, n in ordered]
    worst = _worst(paired(merged([state.differing, found.differing]), state.names, compared), state)
    examples = [
        {c: v if compared.ops or c != "op" or v == "delete" else "insert or update" for c, v in row.items()}
        for row in _examples(worst, state)
    ]
    whole = ("partition", "offset", "other_partition", "other_offset")
    ddl = ddl_differences(state.sides[HERE].known, state.sides[THERE].known, from_ts=begin, to_ts=end)
    return ComparedSoFar(
        span, compared, pd.DataFrame(rows, columns=["table", *KINDS]),
        pd.DataFrame(examples, columns=_EXAMPLE).astype(dict.fromkeys(whole, "Int64")), ddl, state.late,
    )  # fmt: skip


def _examples(pairs: Pairs, state: CompareState) -> list[dict[str, Any]]:
    d, found = pairs.delivered, []
    columns = (pairs.name, pairs.kind, pairs.commit_ts, pairs.here, pairs.there, pairs.several)
    for name, kind, ts, here, there, several in zip(*[c.tolist() for c in columns], strict=True):
        schema, table, op = state.names[name]
        places = [
            (None, None, None) if j < 0 else (state.topics[d.topic[j]], int(d.partition[j]), int(d.offset[j]))
            for j in (here, there)
        ]
        told = (schema, table, ts, op, KINDS[kind], *places[0], *places[1], _SEVERAL[several])
        found.append(dict(zip(_EXAMPLE, told, strict=True)))
    return found


_SEVERAL = (None, "here", "there", "both")
_EXAMPLE = [
    "schema_name", "table_name", "commit_ts", "op", "kind", "topic", "partition", "offset", "other_topic",
    "other_partition", "other_offset", "several",
]  # fmt: skip

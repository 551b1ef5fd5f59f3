"""What TiCDC guarantees of a topic: section 约束 of its MQ design, and its Admin events.

A guarantee is one function, under the sentence of the source that it checks. Those about rows read
:class:`ticdc_lab.audit.history.Suspects`, those about rows beside their tables' definitions
:class:`ticdc_lab.audit.defined.RowsDefined`, those about what the owner broadcasts, and about offsets,
:class:`ticdc_lab.audit.stated.Stated`; each gives what breaks it, sentence and evidence included.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, replace
from decimal import Decimal
from typing import Any, Literal

import numpy as np
import pyarrow as pa

from ticdc_lab.audit.defined import ABSENT, RowsDefined, misfits, nulls, unknown_columns
from ticdc_lab.audit.findings import (
    ERROR,
    UNRECORDED,
    WARNING,
    ImageFindings,
    RowFindings,
    Sentences,
    Texts,
    chosen,
    sentence,
    uncovered,
)
from ticdc_lab.audit.history import IS_GONE, IS_THERE, Suspects
from ticdc_lab.audit.marks import BEGIN, END, Event, offset_of
from ticdc_lab.audit.stated import Home, Stated
from ticdc_lab.events import is_in_file
from ticdc_lab.events.arrays import NO_TS, Bools, Ints, beginnings, runs
from ticdc_lab.events.sample import Sample
from ticdc_lab.events.tso import physical_ms
from ticdc_lab.facts.laggards import AHEAD, continues
from ticdc_lab.words import count, shortened

_SHOWN = ("partition", "offset", "commit_ts")

MOVED = "the row moves"
COPIED = "a change is delivered again in another partition"
UNSPLIT = "an update changes the key, and the changefeed does not split it (output-raw-change-event)"
NO_WATERMARK = "no partition has a watermark"
SILENT = "a partition has no watermark"
ALONE = "watermarks of one partition alone are missing"
OTHER_TEXT = "a DDL has another text in one partition"
TWO_TOPICS = "an offset has different messages"
OLD_VALUES_OFF = "old values may have been off then"
LACKED = "it may lie at offsets that are missing from the recording"
"""Causes, or their ends, each with its own next step."""


RowCheck = Callable[[Suspects], RowFindings]
ImageCheck = Callable[[RowsDefined], ImageFindings]
LogCheck = Callable[[Stated], Iterator[Event]]
Need = Literal[
    "commit_ts", "watermarks", "ddl", "history", "definitions", "all messages", "all partitions", "partition", "offset"
]
"""What a log must have for a check. The partitions have rows; every sample has all watermarks and DDL.

``ddl``: a log without DDL shows nothing of it, so the guarantee is then listed as not checked; ``definitions``: the
same, unless messages define the tables. ``history``: images that chain. ``all messages``, ``all partitions``: a sample
that leaves some out cannot show it.
``partition`` and ``offset`` are what some dumps of other tools do not have.
"""

Remembered = Literal["marks", "rows", "images"]
"""Watermarks, DDL, Admin events and offsets; besides the last changes of each row; or the values of rows, until all DDL
that may define their tables were read.
"""


@dataclass(frozen=True, slots=True)
class Guarantee:
    """One promise of TiCDC: the sentence of its source, its check, and what that needs.

    Exactly one of ``row``, ``image`` and ``log`` is set: ``row`` finds what breaks it in the histories of rows
    (:class:`ticdc_lab.audit.history.Suspects`), ``image`` in the images of row changes beside their tables' definitions
    (:class:`ticdc_lab.audit.defined.RowsDefined`), ``log`` in what the log states besides
    (:class:`ticdc_lab.audit.stated.Stated`).
    """

    sentence: str
    needs: tuple[Need, ...] = ("commit_ts",)
    row: RowCheck | None = None
    image: ImageCheck | None = None
    log: LogCheck | None = None

    @property
    def remembers(self) -> Remembered:
        """What must be remembered of messages that were read to judge those that come."""
        return "rows" if self.row else "marks" if self.log else "images"

    @property
    def of_ddl(self) -> bool:
        """Whether a log without DDL cannot show it."""
        return not {"ddl", "definitions"}.isdisjoint(self.needs)


GUARANTEES: dict[str, Guarantee] = {}
"""Guarantees by name, the statement that is their function's name."""


def of_rows(source: str, *needs: Need) -> Callable[[RowCheck], RowCheck]:
    """Make a function of rows' histories the check of a guarantee."""

    def stated(check: RowCheck) -> RowCheck:
        GUARANTEES[check.__name__] = Guarantee(source, needs, row=check)
        return check

    return stated


def of_images(source: str) -> Callable[[ImageCheck], ImageCheck]:
    """Make a function of rows beside their tables' definitions the check of a guarantee."""

    def stated(check: ImageCheck) -> ImageCheck:
        GUARANTEES[check.__name__] = Guarantee(source, ("commit_ts", "definitions"), image=check)
        return check

    return stated


def of_log(source: str, *needs: Need) -> Callable[[LogCheck], LogCheck]:
    """Make a function of what the log states besides its rows the check of a guarantee."""

    def stated(check: LogCheck) -> LogCheck:
        GUARANTEES[check.__name__] = Guarantee(source, needs, log=check)
        return check

    return stated


@of_rows("对于一行数据的变更：一定会分发在同一个 partition 中", "partition")
def rows_stay_in_one_partition(s: Suspects) -> RowFindings:
    """MQ design, constraint 1.1: all changes of a row are sent to the same partition; also its repeats ("Table 迁移").

    An Admin event changes the partition of rows: only what stands between the same ones is compared.
    """
    at = np.flatnonzero(s.keyed & (s.former >= 0) & (s.c.place != s.c.place[s.former]))
    home, leaves, first = s.former[at], s.leaves[at], s.first_here[at]
    here, there = s.partition[at], s.partition[home]
    moved = sentence("the row moves from partition ", there, " to ", here, cause=MOVED)
    copied = sentence(
        "a change first delivered in partition ", there, " is delivered again in ", here,
        cause=COPIED,
    )  # fmt: skip
    left = sentence(
        "an update that changes the key was sent to the new key's partition ", here,
        ", the old key's changes lie in ", there,
        ": the changefeed does not split such updates (output-raw-change-event)",
        cause=UNSPLIT,
    )  # fmt: skip
    # a rule places the rows of one topic; what leaves its key has no rule to follow
    by_rule = first & ~leaves & (s.topic[home] == s.topic[at])
    # a rule that may move rows (ts, a column) puts them by the number of partitions
    untried = by_rule & s.promises.recorded.is_part[s.place[at]]
    return RowFindings(
        at, at,
        severity=np.where(leaves | untried, WARNING, ERROR),
        message=chosen((leaves, left), (first, moved), otherwise=copied),
        evidence=[s.change(home), s.change(at)],
        moved_from=np.where(by_rule, home, -1),
    )  # fmt: skip


@of_rows("对于一行数据的变更：大多数情况下，每一个变更只会发出一次", "commit_ts", "history", "all partitions")
def row_images_chain(s: Suspects) -> RowFindings:
    """What TiCDC sends of a row is its whole history: each change finds what the one before it left.

    Follows from the design's constraints 1.1 to 1.3: nothing of a row is left out, so an insert finds no row, an update
    and a delete find the image that the row's former change left. Compared are first deliveries in commit order, images
    only where both name the same columns (not across ``only handle keys`` or missing old images), and nothing across a
    DDL of the table. A missing first or last change of a row is not detected.
    """
    return _chain(s, (s.how > 0) & ~_may_be_updates(s))


def inserts_of_rows_there(s: Suspects) -> RowFindings:
    """Inserts that find their row there: if images do not show updates, they prove nothing of the chain."""
    return _chain(s, _may_be_updates(s))


def _may_be_updates(s: Suspects) -> Bools:
    found: Bools = (s.how == IS_THERE) & s.promises.old_values.unsure(s.c.commit_ts)
    return found


def _chain(s: Suspects, which: Bools) -> RowFindings:
    at = np.flatnonzero(s.keyed & (s.broken >= 0) & which & ~_left_out(s))
    former, how, covered = s.broken[at], s.how[at], s.covered[at]
    since = sentence("the row's previous change in the log (commit_ts ", s.c.commit_ts[former], ")")
    said = chosen(
        (how == IS_GONE, sentence(_IS_GONE, ": ", since, " deleted it", cause=_IS_GONE)),
        (how == IS_THERE, sentence(_IS_THERE, ": ", since, " left it", cause=_IS_THERE)),
        otherwise=sentence(
            IMAGE_DIFFERS, " from the one that ", since, " left", cause=f"{IMAGE_DIFFERS} from what is known"
        ),
    )
    lost = "; a change between them is lost, or one of them is wrong"
    filtered = ", or an event filter of the changefeed drops it (to check: --changefeed FILE)"
    lost = lost if s.promises.filters_known else lost + filtered
    old_values = s.promises.old_values
    doubtful = (how == IS_THERE) & old_values.doubtful(s.c.commit_ts[at])
    short = old_values.setting.removeprefix("sink.")
    off = f"; or old values were off then, so that it is an update (to check: --option {short}=false)"
    unasked = (how == IS_THERE) & old_values.undecided
    not_judged = "; whether old values were off then was not judged (to judge: ticdc-lab audit SOURCE)"
    maybe_off = sentence(Sentences(said.cause, said.cause), f"; {OLD_VALUES_OFF}")
    message = chosen(
        (doubtful, sentence(said, lost + off, cause=maybe_off)),
        (unasked, sentence(said, lost + not_judged)),
        otherwise=sentence(said, lost),
    )
    severity = np.where(doubtful, WARNING, ERROR)
    found = RowFindings(at, at, severity, message, [s.change(former), s.change(at)])
    return replace(uncovered(found, ~covered), if_it_stays=s.if_it_stays[at])


_IS_GONE, _IS_THERE = "a change has an old image of a row that does not exist", "an insert of a row that exists"
IMAGE_DIFFERS = "the image before the change differs"


def _left_out(s: Suspects) -> Bools:
    """Which changes may follow one that the changefeed's filters left out.

    An old image of a row that is not there misses an insert, an insert of one that is there a delete, another image an
    update, or a delete and an insert.
    """
    deletes, updates, inserts = ((s.promises.left_out[s.place] >> i) & 1 for i in range(3))
    other = (updates | (deletes & inserts)) > 0
    found: Bools = np.where(s.how == IS_GONE, inserts > 0, np.where(s.how == IS_THERE, deletes > 0, other))
    return found


@of_rows("可能会发送重复的变更", "commit_ts")
def redeliveries_are_identical(s: Suspects) -> RowFindings:
    """MQ design, constraint 1.2: what is delivered again is the same change, so one identity has one content."""
    other = (s.home >= 0) & (s.c.change_hash != s.c.change_hash[s.home])
    at = np.flatnonzero(s.keyed & ~s.first & ~s.leaves & other)
    home = s.home[at]
    said = "the change was delivered before with different content"
    message = sentence(said, ", in partition ", s.partition[home], cause=said)
    return RowFindings(at, at, np.full(len(at), ERROR), message, [s.change(home), s.change(at)])


_SENT_BEFORE = ", unless it was sent before, in a part of its partition that was not recorded"


@of_rows("每个变更第一次出现的次序一定是有序的（CommitTS 升序）", "commit_ts")
def first_appearances_are_ordered(s: Suspects) -> RowFindings:
    """MQ design, constraint 1.3: the first appearances of a row's changes rise in commit_ts (per row, not across rows).

    Inside a partition: no dispatch rule explains what breaks it. A warning where the partition was recorded only from
    later on, or has a gap before, and the newer change comes again, or may behind the last watermark: a restart
    sends both again, and the other may have been sent before.
    """
    by = np.flatnonzero(s.keyed & (s.late >= 0))
    said = "the change first appears after the row's newer change"
    message = sentence(said, " of commit_ts ", s.c.commit_ts[by], cause=said)
    shown = [s.change(by), s.change(s.late[by])]
    found = RowFindings(by, s.late[by], np.full(len(by), ERROR), message, shown)
    late, ts = s.late[by], s.c.commit_ts
    again = _comes_again(s, by, behind=late) | _lacks(s, late, s.c.offset[late], END, below=ts[by])
    return uncovered(found, _may_be_sent_before(s, late, s.c.offset[by], below=ts[late]) & again, _SENT_BEFORE)


@of_rows(
    "Resolved Event 保证任意（CommitTS < ResolvedTS）的 Row Changed Event 在 Resolved Event 之后不会出现",
    "commit_ts",
    "watermarks",
    "partition",
)
def nothing_below_resolved_ts(s: Suspects) -> RowFindings:
    """MQ design, constraint 2.2: no change with a commit_ts below a resolved_ts follows it in its partition.

    A watermark also promises that everything up to and including it was sent, so a change that *first* appears at
    exactly a stated resolved_ts is a warning.
    """
    marks = s.promises.resolved
    at = np.flatnonzero(s.resolved >= 0)
    below = s.c.commit_ts[at] < marks.ts[s.resolved[at]]
    at, below = at[below | s.first[at]], below[below | s.first[at]]
    resolved = s.resolved[at]
    follows = sentence(
        _delivery(s, at), " below resolved_ts ", marks.ts[resolved], " follows it",
        cause=sentence(_delivery(s, at), " below a resolved_ts follows it"),
    )  # fmt: skip
    level = sentence(
        "a change at resolved_ts ", marks.ts[resolved], " first appears after it",
        cause="a change at a resolved_ts first appears after it",
    )  # fmt: skip
    message = chosen((below, follows), otherwise=level)
    shown = [s.mark(at, marks, resolved), s.change(at)]
    return RowFindings(at, at, np.where(below, ERROR, WARNING), message, shown)


@of_rows(
    "DDL Event 保证任意（CommitTS < FinishedTS of DDL event）的 Row Changed Event 在 DDL Event 之后不会出现",
    "commit_ts",
    "ddl",
    "all partitions",
    "partition",
)
def nothing_below_ddl(s: Suspects) -> RowFindings:
    """MQ design, constraint 2.3: no change of a table with a commit_ts below a DDL that blocks it follows the DDL.

    A repeat is a warning: a restart sends again what was sent before the DDL (constraint 1.2). So is what may be one:
    its partition was recorded only from later on, or has a gap before, and the DDL comes again, too, or may behind
    the last watermark.
    """
    marks = s.promises.ddl
    at = np.flatnonzero(s.ddl >= 0)
    ddl = s.ddl[at]
    message = sentence(
        _delivery(s, at), " is older than the DDL of commit_ts ", marks.ts[ddl],
        ", which blocks its table, but comes after it",
        cause=sentence(_delivery(s, at), " is older than a DDL of its table, but comes after it"),
    )  # fmt: skip
    shown = [s.mark(at, marks, ddl), s.change(at)]
    found = RowFindings(at, at, np.where(s.first[at], ERROR, WARNING), message, shown)
    again = s.promises.ddl_again[ddl] > s.c.offset[at]
    # a DDL is sent where the watermark is its commit_ts
    again |= _lacks(s, at, s.c.offset[at], END, below=marks.ts[ddl] + 1)
    before = _may_be_sent_before(s, at, marks.offset[ddl], below=s.c.commit_ts[at])
    return uncovered(found, s.first[at] & before & again, _SENT_BEFORE)


def _may_be_sent_before(s: Suspects, at: Ints, offset: Ints, *, below: Ints) -> Bools:
    """Whether changes may have been sent before an offset of their partition, in what was not recorded."""
    found: Bools = s.promises.recorded.is_late[s.place[at]] | _lacks(s, at, BEGIN, offset, below=below)
    return found


def _lacks(s: Suspects, at: Ints, low: Ints | int, high: Ints | int, *, below: Ints) -> Bools:
    """``Recorded.lacks`` of the partitions of changes."""
    home = s.promises.home[s.place[at]]
    low, high = (np.broadcast_to(np.asarray(o, dtype=np.int64), home.shape) for o in (low, high))
    return s.promises.recorded.lacks(home, low, high, below=below)


def _comes_again(s: Suspects, at: Ints, *, behind: Ints) -> Bools:
    """Whether changes are delivered again behind others of their rows, in the same partition."""
    of = np.flatnonzero(np.isin(s.c.row, s.c.row[at]))
    columns = np.stack([c[of] for c in (s.c.row, s.c.place, s.c.commit_ts, s.c.change_hash)])
    _, same = np.unique(columns, axis=1, return_inverse=True)
    position = np.empty(len(of), dtype=np.int64)
    position[np.lexsort((s.c.seq[of], s.c.offset[of]))] = np.arange(len(of))
    last = np.full(len(of), -1)
    np.maximum.at(last, same.ravel(), position)
    found: Bools = last[same.ravel()[np.searchsorted(of, at)]] > position[np.searchsorted(of, behind)]
    return found


@of_log("Resolved Event 会广播到所有的 partition", "commit_ts", "watermarks", "partition")
def resolved_events_on_all_partitions(log: Stated) -> Iterator[Event]:
    """MQ design, constraint 2.4: resolved events are broadcast to all partitions of a topic.

    Errors: a partition without any watermark while another has one, and values missing in a partition between its first
    and last. Warnings: a partition whose watermarks start later or end earlier than the topic's, or where too little
    was recorded for one, as in a recording that was cut, as many values as offsets are missing there, and
    a topic without any. A partition without any event cannot be seen.
    """
    for homes in log.topics.values():
        yield from _gaps_by_era(homes)


@of_log("DDL Event 会广播到所有的 partition", "commit_ts", "ddl", "partition")
def ddl_events_on_all_partitions(log: Stated) -> Iterator[Event]:
    """MQ design, constraint 2.4: DDL events are broadcast to all partitions; canal and canal-json send them to
    partition 0 only.

    A partition whose recording may end before the DDL, begin behind it, or has a gap where it may lie, gives a
    warning instead of an error.
    """
    identity = ("topic", "commit_ts", "schema_name", "table_name", "query")
    homes, topics = {(h.topic, h.partition): h for h in log.homes}, log.topics
    each: dict[tuple[Any, ...], list[Event]] = {}
    texts: dict[tuple[Any, ...], dict[int, list[Event]]] = {}  # by what is alike but the query, and partition
    for d in log.ddl:
        era = homes[d["topic"], d["partition"]].era(offset_of(d))
        of_one = (era, *(d[c] for c in identity))
        each.setdefault(of_one, []).append(d)
        texts.setdefault(of_one[:-1], {}).setdefault(d["partition"], []).append(d)
    for of_one, same in each.items():
        era = of_one[0]
        witness = min(same, key=lambda d: (d["partition"], offset_of(d)))
        seen = {d["partition"] for d in same}
        of = [h for h in (home.within(era) for home in topics[witness["topic"]]) if h is not None]
        only_0 = [h for h in of if h.partition == 0] or [Home(witness["topic"], 0)]
        sent = [(d, homes[d["topic"], d["partition"]]) for d in same]
        for home in only_0 if log.ddl_in_partition_0_only else of:
            if home.partition not in seen:
                there = texts[of_one[:-1]]
                known = {d["query"] for d in there[witness["partition"]]}
                others = [d for d in there.get(home.partition, ()) if d["query"] not in known]
                if others:
                    if len(each[*of_one[:-1], others[0]["query"]]) <= len(seen):
                        yield _other_ddl(home, witness, others[0])
                    continue
                behind = {of.stated_before(offset_of(d)) for d, of in sent if home.covers(d, of=of)}
                yield _lost_ddl(home, witness, behind)


@of_log(
    "当 Kafka Partition ResolvedTS = DDL FinishedTS 时，向所有 partition 广播 DDL Event",
    "commit_ts",
    "watermarks",
    "ddl",
    "partition",
)
def ddl_events_are_in_time(log: Stated) -> Iterator[Event]:
    """MQ design, "CDC Owner 逻辑": a DDL is broadcast when the resolved_ts equals its FinishedTS.

    So none follows a watermark above it in its partition: a consumer has then applied rows of the new schema. A DDL
    that a restart sends again is a warning, and so is one that may be: its offset may be in a gap before
    that watermark.
    """
    of, seen = {(h.topic, h.partition): h for h in log.homes}, set()
    for d in sorted(log.ddl, key=lambda d: (d["topic"], d["partition"], offset_of(d), d["seq"])):
        home = of[d["topic"], d["partition"]]
        same = tuple(d[c] for c in ("topic", "partition", "commit_ts", "schema_name", "table_name", "query"))
        before = int(np.searchsorted(home.offset, offset_of(d)))
        i = int(np.argmax(home.ts[:before])) if before else 0
        if before and home.ts[i] > d["commit_ts"]:
            mark, again = home.event(i), same in seen
            what = "a DDL delivered again" if again else "a DDL"
            said = f"{what} below resolved_ts {mark['commit_ts']} follows it"
            where = {c: d[c] for c in (*_SHOWN, "seq")}
            maybe = not again and home.lacking_before(mark["offset"]).lacks(d["commit_ts"], d["commit_ts"])
            severity = WARNING if again or maybe else ERROR
            unless = _SENT_BEFORE if maybe else ""
            message = f"{said}{unless}: {_beginning(d)}"
            cause = f"{what} below a resolved_ts follows it"
            yield _finding(severity, message, home.topic, [mark, d], cause=cause, table=_table(d), **where)
        seen.add(same)


@of_log("需要满足前提：Kafka 集群可以正常读取", "all messages", "offset")
def offsets_are_contiguous(log: Stated) -> Iterator[Event]:
    """A broker gives each message of a partition the next offset, so a recording without gaps has each message.

    A warning: compaction takes messages too, and what is in quarantine or was filtered out is not seen here. One
    finding a partition, at the message after the first hole; :func:`ticdc_lab.facts.limits.offset_gaps` lists all.
    Holes before the first message and after the last cannot be seen.

    Different messages at one offset, one perhaps in quarantine, are an error: they are of two topics. It is
    found by :func:`ticdc_lab.audit.run.audited` alone. The same message twice comes from the recording, which the
    log's limits report (:func:`ticdc_lab.facts.limits.held_twice`).
    """
    for hole in holes(log):
        home, low, high = hole.home, hole.low, hole.high
        message = (
            f"{home.words} is missing {count(hole.n, 'message')} in {count(hole.stretches, 'range')} of offsets, "
            f"the first after {low['offset']}: compacted, in quarantine, or lost"
        )
        cause = "offsets are missing: compacted, in quarantine, or lost"
        yield _finding(WARNING, message, home.topic, [low, high], cause=cause, **high)
    for t in log.twice:
        if t.differ:
            message = (
                f"partition {t.partition} of topic {t.topic} contains different messages at "
                f"{count(t.differ, 'offset')}, first at {t.first_other}: it is not a recording of one topic"
            )
            at = {"partition": t.partition, "offset": t.first_other, "commit_ts": None}
            yield _finding(ERROR, message, t.topic, [at], cause=TWO_TOPICS, **at)


@of_log("CDC 同步模型不允许 global checkpoint TS 回退", "commit_ts", "watermarks", "partition")
def watermarks_are_monotone(log: Stated) -> Iterator[Event]:
    """MQ design, "CDC Owner 切换": a checkpoint_ts never falls back, so a partition's watermarks never do. Repeats are
    fine.
    """
    for home in log.homes:
        highest = np.maximum.accumulate(home.ts)
        holder = np.maximum.accumulate(np.where(home.ts == highest, np.arange(len(highest)), 0))
        for i in np.flatnonzero(home.ts < highest).tolist():
            here, high = home.event(i), home.event(int(holder[i]))
            by_s = (physical_ms(high["commit_ts"]) - physical_ms(here["commit_ts"])) / 1000
            message = f"the watermark falls back by {_decimal(by_s)} s from {high['commit_ts']}"
            where = {**here, "cause": "the watermark falls back", "seq": int(home.seq[i])}
            yield _finding(ERROR, message, home.topic, [high, here], **where)


@of_log("向 kafka 所有 Partition 广播 Admin Event，包含新的 Partition 数量信息", "partition")
def admin_events_on_all_partitions(log: Stated) -> Iterator[Event]:
    """MQ design, "Partition 扩容与缩容": an Admin event is broadcast to all partitions, with the same number in each.

    All are those before it and those after it: a listener that never sees it waits without end, or resumes without the
    others. The number of most partitions counts. It is a warning where a higher partition was recorded, and nothing
    of this one, or where it may lie in a gap.
    """
    for homes in log.topics.values():
        known = {h.partition: h for h in homes}
        before = {h.partition for h in homes if h.within(0) is not None}
        for era in range(1, 1 + max((e["era"] for h in homes for e in h.admin), default=0)):
            stated = {h.partition: e for h in homes for e in h.admin if e["era"] == era}
            if not stated:  # the log begins or ends between Admin events of some partitions
                continue
            most, _ = min(Counter(e["partition_count"] for e in stated.values()).items(), key=lambda c: (-c[1], c[0]))
            first, witness = min((p, e) for p, e in stated.items() if e["partition_count"] == most)
            at = {"partition": first, "offset": witness["offset"], "commit_ts": None}
            right, topic = f"{count(most, 'partition')} in partition {first}", witness["topic"]
            after = set(range(most))
            for p in sorted((before | after) - set(stated)):
                said = f"partition {p} of topic {topic} is missing the Admin event with {right}"
                own = {"partition": p, "offset": known[p].first_event if p in known else None}
                absent = p not in known and p < max(known)
                behind, ahead = (
                    of(witness["offset"]) for of in (known[first].stated_before, known[first].stated_behind)
                )
                lacked = p in known and known[p].lacks(behind, ahead - 1)
                unseen = "; the recording has nothing of that partition" if absent else f"; {LACKED}" if lacked else ""
                why = f"; {UNRECORDED}" if absent else unseen
                severity, cause = WARNING if unseen else ERROR, f"an Admin event is missing{why}"
                yield _finding(severity, f"{said}{unseen}", topic, [at], cause=cause, **own)
            for p, e in sorted(stated.items()):
                if (n := e["partition_count"]) != most:
                    said = (
                        f"partition {p} of topic {topic} has an Admin event with {count(n, 'partition')}, not {right}"
                    )
                    own = {"partition": p, "offset": e["offset"], "commit_ts": None}
                    cause = "an Admin event has a different number of partitions"
                    yield _finding(ERROR, said, topic, [at, own], cause=cause, **own, seq=e["seq"])
            before = after


@of_rows("通知所有 CDC Processor，Partition 数量变更", "partition")
def rows_follow_the_partition_count(s: Suspects) -> RowFindings:
    """MQ design, "Partition 扩容与缩容": after an Admin event rows are dispatched over its number of partitions.

    Seen here is a row in a partition beyond that number. One that its old number of partitions puts elsewhere among
    the others shows as a move (``rows_stay_in_one_partition``) where the row's other changes lie.
    """
    at = np.flatnonzero((s.count >= 0) & ~s.leaves)
    message = sentence(
        "a row in partition ", s.partition[at], " follows an Admin event with partition count ", s.count[at],
        ": it was dispatched over a different number",
        cause="a row was dispatched over a different number of partitions than the Admin event has",
    )  # fmt: skip
    return RowFindings(at, at, np.full(len(at), ERROR), message, [s.change(at)])


_MOUNTED = "A row change is read with the definition that its table has at its commit_ts (TiCDC's mounter)"


@of_images(_MOUNTED)
def rows_have_a_table(r: RowsDefined) -> ImageFindings:
    """TiDB writes rows of tables that exist: none before the DDL that creates the table, or behind the one that drops
    or renames it, until another makes one of that name.
    """
    at = np.flatnonzero(r.version == ABSENT)
    made = r.made[at]
    early, late = "the table does not exist yet", "the table no longer exists"
    made_later = sentence(early, ": the DDL of commit_ts ", made, " creates it", cause=early)
    gone = sentence(late, ": the DDL of commit_ts ", made, " dropped or renamed it", cause=late)
    message = chosen((made > r.commit_ts[at], made_later), otherwise=gone)
    return ImageFindings(at, message)


@of_images(_MOUNTED)
def columns_are_defined(r: RowsDefined) -> ImageFindings:
    """An image has columns of its table alone. It may have fewer: virtual columns, those that a selector leaves out."""
    cell, at, n = r.first(unknown_columns(r))
    said = sentence("the table has no column ", r.cells.name.take(pa.array(cell)))
    found = sentence(said, _defined(r, at), cause=said)
    return ImageFindings(at, _and_others(found, n))


@of_images(_MOUNTED)
def nulls_are_allowed(r: RowsDefined) -> ImageFindings:
    """TiDB refuses NULL in a column that is NOT NULL, or of the primary key."""
    cell, at, n = r.first(nulls(r))
    said = sentence("NOT NULL column ", r.cells.name.take(pa.array(cell)), " is NULL")
    found = sentence(said, _defined(r, at), cause=said)
    return ImageFindings(at, _and_others(found, n))


@of_images(_MOUNTED)
def values_fit_their_columns(r: RowsDefined) -> ImageFindings:
    """TiDB refuses values beyond the type of their column: length, range, digits, members of ENUM and SET."""
    cell, at, n = r.first(misfits(r))
    types = pa.array([r.rules[i].mysql_type for i in r.cells.rule[cell].tolist()], pa.string())
    value = beginnings(r.cells.value.take(pa.array(cell)), _SHOWN_OF_VALUE)
    said = sentence("the value of column ", r.cells.name.take(pa.array(cell)), " does not fit ", types)
    found = sentence(said, _defined(r, at), ": ", value, cause=said)
    return ImageFindings(at, _and_others(found, n))


_SHOWN_OF_VALUE = 60
"""Characters of a value that a finding shows."""


def _defined(r: RowsDefined, at: Ints) -> Sentences:
    made = r.made[at]
    of_file = r.said.size and is_in_file(int(r.said[2].max()))
    by_message = sentence(
        " by the schema file of version " if of_file else " by the message that defines version ", made
    )
    return chosen((np.isin(made, r.by_messages), by_message), otherwise=sentence(" by the DDL of commit_ts ", made))


def _and_others(found: Sentences, n: Ints) -> Sentences:
    """``n`` columns of each row change break it."""
    return chosen((n > 1, sentence(found, "; ", n - 1, " more of its columns break this")), otherwise=found)


@of_log("A DDL event is a job that TiDB has finished (TiCDC's schema storage)", "commit_ts", "definitions")
def ddl_names_are_free(log: Stated) -> Iterator[Event]:
    """TiDB refuses a DDL that makes or renames a table onto a name that is taken, or names a table that is not there.

    So one of its kind shows that DDL came in another order than they were executed, or that one between them is lost.
    """
    for topic, c in log.contradictions:
        same = [d for d in log.ddl if d["commit_ts"] == c.commit_ts and d["query"] == c.query]
        here = min(same, key=lambda d: (d["topic"] != topic, d["topic"], d["partition"], offset_of(d)))
        before = [d for d in log.ddl if d["commit_ts"] == c.since and (topic is None or d["topic"] == topic)]
        shown = [min(before, key=lambda d: (d["partition"], offset_of(d)))] if before else []
        home = next(h for h in log.homes if (h.topic, h.partition) == (here["topic"], here["partition"]))
        lacked = home.lacks(c.since, c.commit_ts) if c.since is not None and c.commit_ts is not None else False
        unless = f"; {LACKED}" if lacked else "; a DDL between them is lost, was dropped by a filter, or came late"
        cause = f"a DDL that TiDB refuses{unless}"
        said = f"a DDL that TiDB refuses: {c.reason} (DDL of commit_ts {c.since}){unless}: {_beginning(here)}"
        where = {col: here[col] for col in (*_SHOWN, "seq")}
        table = ".".join((c.schema_name, c.table_name))
        severity, where = WARNING if lacked else ERROR, where | {"table": table, "cause": cause}
        yield _finding(severity, said, here["topic"], [*shown, here], **where)


def _delivery(s: Suspects, at: Ints) -> Texts:
    """What a change is called, a repeat or not."""
    return np.where(s.first[at], "a change", "a change delivered again")


def _other_ddl(home: Home, witness: Event, other: Event) -> Event:
    """The finding of a partition that has another text than most."""
    said = f"{home.words} has another text for a DDL of partition {witness['partition']}: {_beginning(other)}"
    where = {"table": _table(other), "commit_ts": other["commit_ts"], "partition": home.partition}
    where |= {"offset": other["offset"], "cause": OTHER_TEXT}
    return _finding(ERROR, said, home.topic, [witness, other], **where)


def _lost_ddl(home: Home, witness: Event, behind: set[int]) -> Event:
    """The finding; ``behind`` which watermarks those deliveries stand that the recording of the partition covers."""
    said = f"{home.words} is missing a DDL of partition {witness['partition']}: {_beginning(witness)}"
    where = {"table": _table(witness), "commit_ts": witness["commit_ts"], "partition": home.partition}
    where["cause"] = cause = "a DDL is missing from a partition"
    if not all(home.lacks(ts, witness["commit_ts"]) for ts in behind):
        return _finding(ERROR, said, home.topic, [witness], **where)
    why = LACKED if behind else "the recording of that partition does not cover it"
    where["cause"] = f"{cause}; {LACKED if behind else UNRECORDED}"
    return _finding(WARNING, f"{said} ({why})", home.topic, [witness], **where)


@dataclass(frozen=True, slots=True)
class Hole:
    """Offsets missing in a partition: all of them, and the messages before and behind the first stretch."""

    home: Home
    n: int
    stretches: int
    low: Event
    high: Event


def holes(log: Stated) -> Iterator[Hole]:
    """Partitions with missing offsets between the first and the last decoded, if these count messages."""
    for home in log.homes:
        first, last = (ends[home.gaps[0] != home.first_offset] for ends in home.gaps)
        if len(first) and home.counts:
            ends = int(first[0]) - 1, int(last[0]) + 1
            low, high = ({"partition": home.partition, "offset": o, "commit_ts": None} for o in ends)
            yield Hole(home, int((last - first + 1).sum()), len(first), low, high)


def _gaps_by_era(homes: list[Home]) -> Iterator[Event]:
    """The gaps between each two Admin events, where the partitions that count are the same."""
    if not any(len(h.ts) for h in homes) or not any(h.admin for h in homes):
        yield from _gaps(homes)
        return
    for era in range(1 + max(e["era"] for h in homes for e in h.admin)):
        within = [h for h in (home.within(era) for home in homes) if h is not None]
        if any(len(h.ts) for h in within):
            yield from _gaps(within)


def _gaps(homes: list[Home]) -> Iterator[Event]:
    """One per run of watermarks missing in a partition of the topic, or one for the topic if no partition has any."""
    stated = [h for h in homes if len(h.ts)]
    if not stated:
        h = min(homes, key=lambda home: home.partition)
        least = {"partition": h.partition, "offset": h.first_event, "commit_ts": None}
        where = least | {"cause": NO_WATERMARK}
        yield _finding(WARNING, f"no partition of topic {h.topic} has a watermark", h.topic, [least], **where)
        return
    values, witnesses = _first_of_each(stated)
    n_having = np.sum([np.isin(values, home.ts) for home in stated], axis=0)
    for home in homes:
        own, at = np.unique(home.ts, return_index=True)
        lacking = np.setdiff1d(values, own, assume_unique=True)
        upper = np.searchsorted(own, lacking)
        for run in runs(upper):
            first, after = int(lacking[run.start]), int(upper[run.start])
            last = int(lacking[run.stop - 1])
            when = f"at {first}" if first == last else f"from {first} to {last}"
            several = f"{count(run.stop - run.start, 'watermark')} {when}"
            following = home.event(int(at[after])) if after < len(own) else None
            shown = witnesses[int(np.searchsorted(values, first))].tolist()
            alone = len(stated) > 2 and (n_having[np.searchsorted(values, lacking[run])] == 1).all()
            ends = (int(home.offset[at[after] - 1]), following["offset"]) if after and following else (BEGIN, END)
            n_due = run.stop - run.start if len(own) else _due(home, lacking)
            runs_on = bool(len(own)) and continues(lacking[run], home.last_ts)
            if runs_on and following is None:
                ends = (int(home.offset[-1]), END)
            lacked = home.lacked_between(*ends) >= n_due
            witness = dict(zip(_SHOWN, shown, strict=True))
            yield _gap(home, several, first, witness, following, lacked=lacked, alone=bool(alone), runs_on=runs_on)


def _due(home: Home, values: Ints) -> int:
    """How many of the topic's watermarks a partition without any must have had, at least: those below a DDL that it
    has, and those between its events, :data:`AHEAD` excepted.
    """
    ddl = [int(d["commit_ts"]) for d in home.ddl] or [NO_TS]
    begin = NO_TS if home.has_begun else ddl[0]
    low, high = home.first_ts, home.last_ts
    between = 0 if low is None or high is None else int(((low <= values) & (values < high)).sum())
    return max(int(((begin < values) & (values < max(ddl))).sum()), between - AHEAD)


def _gap(
    home: Home, several: str, first: int, witness: Event, following: Event | None, *, lacked: bool, alone: bool,
    runs_on: bool,
) -> Event:  # fmt: skip
    """A run of watermarks missing in a partition: all of them, those before its first, behind its last, or between;
    whether as many offsets are missing there, whether the witness's partition alone has them, and whether other
    events of the partition continue above them (:func:`ticdc_lab.facts.laggards.continues`).
    """
    several += f" that partition {witness['partition']} alone has" if alone else " of the other partitions"
    where = {"partition": home.partition, "commit_ts": first, "offset": following["offset"] if following else None}
    severity, unless = (WARNING, f"; {LACKED}") if lacked else (ERROR, "")
    if not len(home.ts):
        said, where = "has events but no watermark at all", where | {"offset": home.first_event}
        if lacked and not len(home.gaps[0]):
            unless = f"; {UNRECORDED}"
        where["cause"] = f"{SILENT}{unless}"
        return _finding(severity, f"{home.words} {said}{unless}", home.topic, [witness], **where)
    if following is not None and first > home.ts.min():
        said = f"is missing {several}{unless}"
        where["cause"] = f"{ALONE if alone else 'watermarks of other partitions are missing'}{unless}"
        return _finding(severity, f"{home.words} {said}", home.topic, [witness, following], **where)
    if following is None and runs_on:
        where["cause"] = f"a partition's watermarks end, its rows continue{unless}"
        reached = f"though its events continue to {home.last_ts}{unless}"
        return _finding(severity, f"{home.words} is missing {several}, {reached}", home.topic, [witness], **where)
    said = f"starts after {several}: its recording may start later"
    if following is None:
        said = f"ends before {several}: its recording may end earlier"
    ends = "end before" if following is None else "start after"
    where["cause"] = f"a partition's watermarks {ends} the others'; {UNRECORDED}"
    return _finding(WARNING, f"{home.words} {said}", home.topic, [witness], **where)


def _first_of_each(stated: list[Home]) -> tuple[Ints, Ints]:
    """The values that a topic's watermarks state, and the first event of each in the first partition that has it."""
    partition = np.concatenate([np.full(len(h.ts), h.partition) for h in stated])
    offset, ts = (np.concatenate([getattr(h, c) for h in stated]) for c in ("offset", "ts"))
    order = np.lexsort((offset, partition, ts))
    values, at = np.unique(ts[order], return_index=True)
    return values, np.stack([partition, offset, ts], axis=1)[order[at]]


def _finding(severity: str, message: str, topic: str, evidence: list[Event], **where: Any) -> Event:
    """A finding: ``where`` is its cause, and its table, partition, offset, commit_ts and seq, what of that is known."""
    shown = [{c: e[c] for c in _SHOWN} for e in evidence]
    return {"severity": severity, "message": message, "topic": topic, "evidence": shown, **where}


def _table(ddl: Event) -> str:
    return ".".join(name for name in (ddl["schema_name"], ddl["table_name"] or None) if name is not None)


def _beginning(ddl: Event) -> str:
    return shortened(ddl["query"], 100) if ddl["query"] is not None else "?"


def _decimal(x: float) -> str:
    """A number as Spark prints it."""
    if x < 1e7:
        return repr(x)
    _, (first, *rest), _ = Decimal(repr(x)).normalize().as_tuple()
    return f"{first}.{''.join(map(str, rest)) or 0}E{Decimal(repr(x)).adjusted()}"


WITHOUT_WATERMARKS = frozenset({"canal", "maxwell", "avro", "debezium-avro"})
"""Protocols that usually have no watermark messages."""


WITHOUT_DDL = frozenset({"avro", "debezium-avro"})
"""Protocols that usually have no DDL messages."""


WITHOUT_HISTORY = frozenset({"avro", "debezium-avro"})
"""Protocols that do not show what a change found: a row that a TRUNCATE or a delete took may be inserted again."""


_NO_HISTORY = {
    "debezium-avro": "debezium-avro has no DDL, and a TRUNCATE or ALTER TABLE changes what the next change finds"
}


def checks_possible(
    protocol: str,
    *,
    has_commit_ts: bool = True,
    sample: Sample | None = None,
    lost: Collection[str] = (),
    carried: Collection[str] = (),
) -> dict[str, str]:
    """List the guarantees that can be checked on a log.

    Parameters
    ----------
    protocol
        Wire protocol of the log.
    has_commit_ts
        False for canal-json without the TiDB extension, which has neither commit_ts nor watermarks.
    sample
        What of the log is looked at, None for all. A check that a sample alone could make fail is not possible on it.
        By tables or time a row keeps all its changes, or all of a stretch, so what is found there is true of the whole
        log; only that nothing was found proves less.

    lost
        What a dump of another tool does not have (:data:`ticdc_lab.sources.forms.LOSSES`).
    carried
        What the log has although its protocol need not (:attr:`ticdc_lab.facts.LogFacts.carried`): with
        ``avro-enable-watermark`` avro has DDL and watermarks, with ``avro-include-before-value`` images before.

    Returns
    -------
    dict
        Per guarantee an empty text where it can be checked, else why not.

    Examples
    --------
    >>> checks_possible("avro")["nothing_below_resolved_ts"]
    'avro has no watermark messages'
    >>> checks_possible("canal-json", has_commit_ts=False)["first_appearances_are_ordered"]
    'this log has no commit_ts, so nothing orders its changes'
    """
    marked = has_commit_ts and (protocol not in WITHOUT_WATERMARKS or "watermark" in carried)
    some = sample is not None and not sample.is_whole
    of_partitions = sample is not None and sample.partitions is not None

    def reason(g: Guarantee) -> str:
        if "partition" in g.needs and "partition" in lost:
            return "the dump does not contain the partition of a message"
        if "offset" in g.needs and "offset" in lost:
            return "the dump has no offsets"
        if {"all messages", "history"} & set(g.needs) and "messages" in lost:
            return "the dump has only the messages that a page showed"
        if "commit_ts" in g.needs and not has_commit_ts:
            return "this log has no commit_ts, so nothing orders its changes"
        if "history" in g.needs and protocol in WITHOUT_HISTORY and not {"ddl", "before"} <= {*carried}:
            if "ddl" in carried:
                return f"this {protocol} log has no image before each update, and its deletes no commit_ts"
            return _NO_HISTORY.get(protocol, f"{protocol} has neither old images nor DDL, and its deletes no commit_ts")
        if "definitions" in g.needs and protocol in WITHOUT_DDL and "ddl" not in carried:
            return f"{protocol} has no DDL, so nothing defines its tables"
        if "all messages" in g.needs and some:
            return "a sample leaves messages out, so gaps in offsets prove nothing"
        if "all partitions" in g.needs and of_partitions:
            return "what happened to the row before may lie in a partition that the sample leaves out"
        return f"{protocol} has no watermark messages" if "watermarks" in g.needs and not marked else ""

    return {name: reason(g) for name, g in GUARANTEES.items()}

"""What TiCDC guarantees of watermarks, DDL and Admin events, which the owner broadcasts, and of offsets.

Each function reads :class:`ticdc_lab.audit.stated.Stated`, and yields what breaks it. The last one judges rows by the
number of partitions that an Admin event has.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import numpy as np

from ticdc_lab.audit.findings import ERROR, UNRECORDED, WARNING, RowFindings, sentence
from ticdc_lab.audit.guarantees.guarantee import (
    COMPARE_DDL,
    LACKED,
    LOOK_FOR_RESTART,
    SENT_BEFORE,
    SHOW_ORDER,
    Guarantee,
    Picture,
)
from ticdc_lab.audit.history import Suspects
from ticdc_lab.audit.marks import BEGIN, END, Event, offset_of
from ticdc_lab.audit.stated import Home, Stated
from ticdc_lab.events.arrays import NO_TS, Ints, runs
from ticdc_lab.events.tso import LOGICAL_BITS, physical_ms
from ticdc_lab.facts.laggards import AHEAD, continues
from ticdc_lab.words import count, shortened

NO_WATERMARK = "no partition has a watermark"
SILENT = "a partition has no watermark"
ALONE = "watermarks of one partition alone are missing"
FAR_AHEAD = "the last watermark of a partition is far ahead of all others"
OTHER_TEXT = "a DDL has another text in one partition"
TWO_TOPICS = "an offset has different messages"
DELETED = "the broker deleted offsets before they were read"

SHOWN = ("partition", "offset", "commit_ts")
_WRITERS = "Check that only one changefeed writes to the topic, and when it restarted: ticdc-lab watermarks {source}"


@Guarantee(
    "Resolved Event 会广播到所有的 partition", needs=("commit_ts", "watermarks", "partition"), do=LOOK_FOR_RESTART,
    picture=Picture("absent"), at_once=False, by_loss=True,
    instead={
        NO_WATERMARK: (
            "Check that the recording is longer than a few seconds and that no tool left watermarks out. Record the "
            "topic again: ticdc-lab record {topic} --out FILE"
        ),
        SILENT: _WRITERS,
        ALONE: _WRITERS,
        FAR_AHEAD: _WRITERS,
    },
).of_log  # fmt: skip
def resolved_events_on_all_partitions(log: Stated) -> Iterator[Event]:
    """MQ design, constraint 2.4: resolved events are broadcast to all partitions of a topic.

    Errors: a partition without any watermark while another has one, and values missing in a partition between its first
    and last. Warnings: a partition whose watermarks start later or end earlier than the topic's, or where too little
    was recorded for one, as in a recording that was cut, as many values as offsets are missing there, and
    a topic without any. A partition without any event cannot be seen.
    """
    for homes in log.topics.values():
        yield from _gaps_by_era(homes)


@Guarantee(
    "DDL Event 会广播到所有的 partition", needs=("commit_ts", "ddl", "partition"), do=SHOW_ORDER,
    instead={OTHER_TEXT: COMPARE_DDL}, at_once=False, by_loss=True,
    picture=Picture(
        "absent", ("one text", "another text"),
        "Both messages deliver one DDL. The owner sends the same text to every partition; one of them is wrong.",
    ),
).of_log  # fmt: skip
def ddl_events_on_all_partitions(log: Stated) -> Iterator[Event]:
    """MQ design, constraint 2.4: DDL events are broadcast to all partitions (canal-json, canal and csv: partition 0, by
    design).

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


@Guarantee(
    "当 Kafka Partition ResolvedTS = DDL FinishedTS 时，向所有 partition 广播 DDL Event",
    needs=("commit_ts", "watermarks", "ddl", "partition"), do=LOOK_FOR_RESTART,
    picture=Picture("below", ("a watermark", "DDL")), at_once=False,
).of_log  # fmt: skip
def ddl_events_are_in_time(log: Stated) -> Iterator[Event]:
    """MQ design, "CDC Owner 逻辑": a DDL is broadcast when the resolved_ts equals its FinishedTS, so none follows a
    watermark above it in its partition.

    A consumer has then applied rows of the new schema. A DDL
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
            where = {c: d[c] for c in (*SHOWN, "seq")}
            maybe = not again and home.lacking_before(mark["offset"]).lacks(d["commit_ts"], d["commit_ts"])
            severity = WARNING if again or maybe else ERROR
            unless = SENT_BEFORE if maybe else ""
            message = f"{said}{unless}: {beginning(d)}"
            cause = f"{what} below a resolved_ts follows it"
            yield finding(severity, message, home.topic, [mark, d], cause=cause, table=_table(d), **where)
        seen.add(same)


@Guarantee(
    "需要满足前提：Kafka 集群可以正常读取", needs=("all messages", "offset"),
    instead={
        TWO_TOPICS: "Record each topic into a file of its own: ticdc-lab record {topic} --out FILE",
        DELETED: "Their changes are never checked. Lengthen the topic's retention, or see why the watch was behind",
    },
    picture=Picture("gap"), at_once=False, by_loss=True,
    do=(
        "If the missing messages are not in quarantine (ticdc-lab survey {source}), record them again. "
        "Messages around them: ticdc-lab audit {source} --messages-of {number}"
    ),
).of_log  # fmt: skip
def offsets_are_contiguous(log: Stated) -> Iterator[Event]:
    """A broker gives each message of a partition the next offset: none is missing, and no two differ at one offset.

    A warning: compaction takes messages too, and what is in quarantine or was filtered out is not seen here. What a
    watch saw the broker delete is a finding of its own. One finding a partition, at the message after the first hole;
    :func:`ticdc_lab.facts.limits.offset_gaps` lists all.
    Holes before the first message and after the last cannot be seen.

    Different messages at one offset, one perhaps in quarantine, are an error: they are of two topics. It is
    found by :func:`ticdc_lab.audit.run.audited` alone. The same message twice comes from the recording, which the
    log's limits report (:func:`ticdc_lab.facts.limits.held_twice`).
    """
    for hole in holes(log):
        home, low, high = hole.home, hole.low, hole.high
        n, which = hole.n, f"in {count(hole.stretches, 'range')} of offsets, the first after {low['offset']}"
        if hole.is_deleted:
            message = f"{home.words}: the broker deleted {count(n, 'offset')} before they were read, {which}"
            cause = DELETED
        else:
            cause = "offsets are missing: compacted, in quarantine, or lost"
            message = f"{home.words} is missing {count(n, 'message')} {which}: {cause.partition(': ')[2]}"
        yield finding(WARNING, message, home.topic, [low, high], cause=cause, **high)
    for t in log.twice:
        if t.differ:
            message = (
                f"partition {t.partition} of topic {t.topic} contains different messages at "
                f"{count(t.differ, 'offset')}, first at {t.first_other}: it is not a recording of one topic"
            )
            at = {"partition": t.partition, "offset": t.first_other, "commit_ts": None}
            yield finding(ERROR, message, t.topic, [at], cause=TWO_TOPICS, **at)


@Guarantee(
    "CDC 同步模型不允许 global checkpoint TS 回退", needs=("commit_ts", "watermarks", "partition"), do=_WRITERS,
    picture=Picture("below", ("a watermark", "watermark")), at_once=True,
).of_log  # fmt: skip
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
            yield finding(ERROR, message, home.topic, [high, here], **where)


@Guarantee(
    "向 kafka 所有 Partition 广播 Admin Event，包含新的 Partition 数量信息", needs=("partition",), do=SHOW_ORDER,
    at_once=False,
    picture=Picture(
        "absent", ("one number", "another number"),
        "Both messages deliver one Admin event. The owner sends the same number to every partition; one is wrong.",
    ),
).of_log  # fmt: skip
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
                yield finding(severity, f"{said}{unseen}", topic, [at], cause=cause, **own)
            for p, e in sorted(stated.items()):
                if (n := e["partition_count"]) != most:
                    said = (
                        f"partition {p} of topic {topic} has an Admin event with {count(n, 'partition')}, not {right}"
                    )
                    own = {"partition": p, "offset": e["offset"], "commit_ts": None}
                    cause = "an Admin event has a different number of partitions"
                    yield finding(ERROR, said, topic, [at, own], cause=cause, **own, seq=e["seq"])
            before = after


@Guarantee(
    "通知所有 CDC Processor，Partition 数量变更", needs=("partition",), picture=None, at_once=True, by_one=True,
    do=(
        "Check that every capture received the Admin event before it wrote again. "
        "The row's messages: ticdc-lab audit {source} --messages-of {number}"
    ),
).of_rows  # fmt: skip
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


def _other_ddl(home: Home, witness: Event, other: Event) -> Event:
    """The finding of a partition that has another text than most."""
    said = f"{home.words} has another text for a DDL of partition {witness['partition']}: {beginning(other)}"
    where = {"table": _table(other), "commit_ts": other["commit_ts"], "partition": home.partition}
    where |= {"offset": other["offset"], "cause": OTHER_TEXT}
    return finding(ERROR, said, home.topic, [witness, other], **where)


def _lost_ddl(home: Home, witness: Event, behind: set[int]) -> Event:
    """The finding; ``behind`` which watermarks those deliveries stand that the recording of the partition covers."""
    said = f"{home.words} is missing a DDL of partition {witness['partition']}: {beginning(witness)}"
    where = {"table": _table(witness), "commit_ts": witness["commit_ts"], "partition": home.partition}
    where["cause"] = cause = "a DDL is missing from a partition"
    if not all(home.lacks(ts, witness["commit_ts"]) for ts in behind):
        return finding(ERROR, said, home.topic, [witness], **where)
    why = LACKED if behind else "the recording of that partition does not cover it"
    where["cause"] = f"{cause}; {LACKED if behind else UNRECORDED}"
    return finding(WARNING, f"{said} ({why})", home.topic, [witness], **where)


@dataclass(frozen=True, slots=True)
class Hole:
    """Offsets missing in a partition: all of them, and the messages before and behind the first stretch."""

    home: Home
    n: int
    stretches: int
    low: Event
    high: Event
    is_deleted: bool = False  # whether the broker was seen to have deleted them


def holes(log: Stated) -> Iterator[Hole]:
    """Partitions with missing offsets between the first and the last decoded, if these count messages."""
    for home in log.homes:
        first, last = (ends[home.gaps[0] != home.first_offset] for ends in home.gaps)
        if not home.counts:
            continue
        n_deleted = _deleted_before(home, last + 1) - _deleted_before(home, first)
        for n, is_deleted in ((last - first + 1 - n_deleted, False), (n_deleted, True)):
            if len(at := np.flatnonzero(n)):
                ends = int(first[at[0]]) - 1, int(last[at[0]]) + 1
                low, high = ({"partition": home.partition, "offset": o, "commit_ts": None} for o in ends)
                yield Hole(home, int(n.sum()), len(at), low, high, is_deleted)


def _deleted_before(home: Home, offset: Ints) -> Ints:
    """How many offsets of those that the broker deleted lie before each of some."""
    begin, end = np.array(sorted(home.deleted), dtype=np.int64).reshape(-1, 2).T
    every = np.append(0, np.cumsum(end - begin))
    at = np.searchsorted(end, offset)  # ranges that end before it
    found: Ints = every[at] + np.maximum(0, offset - np.append(begin, END)[at])
    return found


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
        yield finding(WARNING, f"no partition of topic {h.topic} has a watermark", h.topic, [least], **where)
        return
    values, witnesses = _first_of_each(stated)
    n_having = np.sum([np.isin(values, home.ts) for home in stated], axis=0)
    is_due = ~np.isin(values, [ts for home in stated for ts in _out_of_order(home, values[n_having > 1])])
    values, witnesses, n_having = values[is_due], witnesses[is_due], n_having[is_due]
    goes_on = any(continues(values[-1:], h.last_ts) for h in stated if h.ts.max() < values[-1])
    if len(stated) > 1 and n_having[-1] == 1 and not goes_on and (jump_s := _jump_s(values)):
        by = dict(zip(SHOWN, witnesses[-1].tolist(), strict=True))
        words = next(home.words for home in homes if home.partition == by["partition"])
        said = f"{words} ends with a watermark that is {jump_s:,} s after the one before it and that no other partition"
        said += " has: it is too far ahead, or the recordings of the others end earlier"
        yield finding(WARNING, said, homes[0].topic, [by], cause=FAR_AHEAD, **by)
        values, witnesses, n_having = values[:-1], witnesses[:-1], n_having[:-1]
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
            witness = dict(zip(SHOWN, shown, strict=True))
            yield _gap(home, several, first, witness, following, lacked=lacked, alone=bool(alone), runs_on=runs_on)


def _jump_s(values: Ints) -> int:
    """How far the last of some watermarks is from the one before it, if that is far: a minute at least, and ten times
    as far as any two before; else 0.
    """
    ms = values >> LOGICAL_BITS
    *before, last = np.diff(ms).tolist() or [0]
    return int(last // 1000) if before and last >= max(60_000, 10 * max(before)) else 0


def _out_of_order(home: Home, shared: Ints) -> list[int]:
    """Watermarks of one partition alone that do not rise with those which others share: nothing is due for them."""
    is_shared = np.isin(home.ts, shared)
    before = np.maximum.accumulate(np.where(is_shared, home.ts, NO_TS))
    after = np.minimum.accumulate(np.where(is_shared, home.ts, END)[::-1])[::-1]
    found: list[int] = home.ts[~is_shared & ((home.ts < before) | (home.ts > after))].tolist()
    return found


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
        return finding(severity, f"{home.words} {said}{unless}", home.topic, [witness], **where)
    if following is not None and first > home.ts.min():
        said = f"is missing {several}{unless}"
        where["cause"] = f"{ALONE if alone else 'watermarks of other partitions are missing'}{unless}"
        return finding(severity, f"{home.words} {said}", home.topic, [witness, following], **where)
    if following is None and runs_on:
        where["cause"] = f"a partition's watermarks end, its rows continue{unless}"
        reached = f"though its events continue to {home.last_ts}{unless}"
        return finding(severity, f"{home.words} is missing {several}, {reached}", home.topic, [witness], **where)
    said = f"starts after {several}: its recording may start later"
    if following is None:
        said = f"ends before {several}: its recording may end earlier"
    ends = "end before" if following is None else "start after"
    where["cause"] = f"a partition's watermarks {ends} the others'; {UNRECORDED}"
    return finding(WARNING, f"{home.words} {said}", home.topic, [witness], **where)


def _first_of_each(stated: list[Home]) -> tuple[Ints, Ints]:
    """The values that a topic's watermarks state, and the first event of each in the first partition that has it."""
    partition = np.concatenate([np.full(len(h.ts), h.partition) for h in stated])
    offset, ts = (np.concatenate([getattr(h, c) for h in stated]) for c in ("offset", "ts"))
    order = np.lexsort((offset, partition, ts))
    values, at = np.unique(ts[order], return_index=True)
    return values, np.stack([partition, offset, ts], axis=1)[order[at]]


def finding(severity: str, message: str, topic: str, evidence: list[Event], **where: Any) -> Event:
    """A finding: ``where`` is its cause, and its table, partition, offset, commit_ts and seq, what of that is known."""
    shown = [{c: e[c] for c in SHOWN} for e in evidence]
    return {"severity": severity, "message": message, "topic": topic, "evidence": shown, **where}


def _table(ddl: Event) -> str:
    return ".".join(name for name in (ddl["schema_name"], ddl["table_name"] or None) if name is not None)


def beginning(ddl: Event) -> str:
    """How its text begins."""
    return shortened(ddl["query"], 100) if ddl["query"] is not None else "?"


def _decimal(x: float) -> str:
    """A number as Spark prints it."""
    if x < 1e7:
        return repr(x)
    _, (first, *rest), _ = Decimal(repr(x)).normalize().as_tuple()
    return f"{first}.{''.join(map(str, rest)) or 0}E{Decimal(repr(x)).adjusted()}"

"""What TiCDC guarantees of rows: constraints 1.1 to 1.3, 2.2 and 2.3 of its MQ design.

Each function reads the rows of :class:`ticdc_lab.audit.history.Suspects`, and gives what breaks it, sentence and
evidence included.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from ticdc_lab.audit.findings import (
    ERROR,
    NO_RULE,
    UNSURE,
    VIOLATED,
    WARNING,
    RowFindings,
    Sentences,
    Texts,
    chosen,
    sentence,
    uncovered,
)
from ticdc_lab.audit.guarantees.guarantee import LOOK_FOR_RESTART, SENT_BEFORE, SHOW_ORDER, SHOW_ROW, Guarantee, Picture
from ticdc_lab.audit.history import IS_GONE, IS_THERE, Suspects
from ticdc_lab.audit.marks import BEGIN, END
from ticdc_lab.events.arrays import Bools, Ints

MOVED = "the row moves"
COPIED = "a change is delivered again in another partition"
APART = "changes of a row are in two topics"
UNSPLIT = "an update changes the key, and the changefeed does not split it (output-raw-change-event)"
OLD_VALUES_OFF = "old values may have been off then"

_CHANGED = (
    "Check whether the changefeed's dispatchers or the topic's partitions changed at that time. "
    "Its messages: ticdc-lab audit {source} --messages-of {number}"
)


@Guarantee(
    "对于一行数据的变更：一定会分发在同一个 partition 中", needs=("partition",),
    do="If consumers need the order of a row, dispatch by its key: ticdc-lab advise {source} --tables {table}",
    picture=Picture("moved", ("a change of a row", "older change of it")), at_once=False,
    instead={
        NO_RULE: SHOW_ROW,
        VIOLATED: _CHANGED,
        MOVED: _CHANGED,
        COPIED: _CHANGED,
        APART: "If two changefeeds wrote these topics, put the recordings of each topic into a folder, and audit each.",
        UNSURE: "Give the changefeed's file, which shows the rule: ticdc-lab audit {source} --changefeed FILE",
        UNSPLIT: (
            "If consumers need the order of a key, set output-raw-change-event = false in the changefeed's "
            "[sink.kafka-config]."
        ),
    },
).of_rows  # fmt: skip
def rows_stay_in_one_partition(s: Suspects) -> RowFindings:
    """MQ design, constraint 1.1: all changes of a row are sent to the same partition; also its repeats ("Table 迁移").

    An Admin event changes the partition of rows: only what stands between the same ones is compared.
    """
    at = np.flatnonzero(s.keyed & (s.former >= 0) & (s.c.place != s.c.place[s.former]))
    home, leaves, first = s.former[at], s.leaves[at], s.first_here[at]
    here, there, apart = s.partition[at], s.partition[home], s.topic[home] != s.topic[at]
    topics = np.array(s.promises.topic, dtype=str)[s.place]
    in_both = sentence(
        "changes of the row are in topic ", topics[home], " partition ", there, " and in topic ", topics[at],
        " partition ", here, cause=APART,
    )  # fmt: skip
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
    by_rule = first & ~leaves & ~apart
    # a rule that may move rows (ts, a column) puts them by the number of partitions
    untried = by_rule & s.promises.recorded.is_part[s.place[at]]
    return RowFindings(
        at, at,
        severity=np.where(leaves | untried, WARNING, ERROR),
        message=chosen((apart, in_both), (leaves, left), (first, moved), otherwise=copied),
        evidence=[s.change(home), s.change(at)],
        moved_from=np.where(by_rule, home, -1),
    )  # fmt: skip


@Guarantee(
    "对于一行数据的变更：大多数情况下，每一个变更只会发出一次", needs=("commit_ts", "history", "all partitions"),
    do=f"{SHOW_ROW}. If the changefeed filters events, audit with its file: --changefeed FILE",
    instead={OLD_VALUES_OFF: "Give the changefeed's file, which shows it: ticdc-lab audit {source} --changefeed FILE"},
    at_once=False, by_loss=True,
    picture=Picture(
        "contents", ("leaves this image", "finds another image"),
        "Both messages change one row. What the first left must be what the second found: a change between them is "
        "missing, or one of the two images is wrong.",
    ),
).of_rows  # fmt: skip
def row_images_chain(s: Suspects) -> RowFindings:
    """What TiCDC sends of a row is its whole history: the image before a change is the one that the last change left.

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
    return replace(uncovered(found, ~covered, s), if_it_stays=s.if_it_stays[at])


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


@Guarantee(
    "可能会发送重复的变更", needs=("commit_ts",), at_once=True,
    do="Compare both messages: ticdc-lab audit {source} --messages-of {number}",
    picture=Picture(
        "contents", ("first content", "another content"),
        "Both messages deliver one change. What is sent again must have the same content; one of them is wrong.",
    ),
).of_rows  # fmt: skip
def redeliveries_are_identical(s: Suspects) -> RowFindings:
    """MQ design, constraint 1.2: what is delivered again is the same change, so one identity has one content."""
    other = (s.home >= 0) & (s.c.change_hash != s.c.change_hash[s.home])
    at = np.flatnonzero(s.keyed & ~s.first & ~s.leaves & other)
    home = s.home[at]
    said = "the change was delivered before with different content"
    message = sentence(said, ", in partition ", s.partition[home], cause=said)
    return RowFindings(at, at, np.full(len(at), ERROR), message, [s.change(home), s.change(at)])


@Guarantee(
    "每个变更第一次出现的次序一定是有序的（CommitTS 升序）", needs=("commit_ts", "partition"), do=SHOW_ORDER,
    picture=Picture("below", ("a change of a row", "older change of it that was not delivered before")),
    at_once=False,
).of_rows  # fmt: skip
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
    return uncovered(found, _may_be_sent_before(s, late, s.c.offset[by], below=ts[late]) & again, s, SENT_BEFORE)


@Guarantee(
    "Resolved Event 保证任意（CommitTS < ResolvedTS）的 Row Changed Event 在 Resolved Event 之后不会出现",
    needs=("commit_ts", "watermarks", "partition"), do=LOOK_FOR_RESTART,
    picture=Picture("below", ("a watermark", "change")), at_once=True, by_one=True,
).of_rows  # fmt: skip
def nothing_below_resolved_ts(s: Suspects) -> RowFindings:
    """MQ design, constraint 2.2: no change with a commit_ts below a resolved_ts follows it in its partition (a new one
    at exactly the resolved_ts: a warning).

    A watermark also promises that everything up to and including it was sent.
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


@Guarantee(
    "DDL Event 保证任意（CommitTS < FinishedTS of DDL event）的 Row Changed Event 在 DDL Event 之后不会出现",
    needs=("commit_ts", "ddl", "all partitions", "partition"), do=SHOW_ORDER,
    picture=Picture("below", ("a DDL", "change of its table")), at_once=False, by_one=True,
).of_rows  # fmt: skip
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
    return uncovered(found, s.first[at] & before & again, s, SENT_BEFORE)


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


def _delivery(s: Suspects, at: Ints) -> Texts:
    """What a change is called, a repeat or not."""
    return np.where(s.first[at], "a change", "a change delivered again")

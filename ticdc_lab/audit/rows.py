"""Guarantees about rows. Each is a function of :class:`ticdc_lab.audit.history.Suspects` that gives what breaks it."""

from __future__ import annotations

import numpy as np

from ticdc_lab.audit.findings import ERROR, WARNING, RowFindings, Texts, chosen, sentence
from ticdc_lab.audit.history import IS_GONE, IS_THERE, Suspects
from ticdc_lab.audit.marks import Ints, Marks

_Shown = tuple[Ints, Ints, Ints]


def rows_stay_in_one_partition(s: Suspects) -> RowFindings:
    """MQ design, constraint 1.1: all changes of a row are sent to the same partition; also its repeats ("Table 迁移").

    An Admin event changes the partition of rows: only what stands between the same ones is compared.
    """
    at = np.flatnonzero(s.keyed & (s.former >= 0) & (s.c.place != s.c.place[s.former]))
    home, leaves, first = s.former[at], s.leaves[at], s.first_here[at]
    here, there = s.partition[at], s.partition[home]
    moved = sentence("the row moves from partition ", there, " to ", here)
    copied = sentence("a change first delivered in partition ", there, " is delivered again in ", here)
    left = sentence(
        "an update that changes the key was sent to the new key's partition ", here,
        ", the old key's changes lie in ", there,
        ": the changefeed does not split such updates (output-raw-change-event)",
    )  # fmt: skip
    # a rule places the rows of one topic; what leaves its key has no rule to follow
    by_rule = first & ~leaves & (s.topic[home] == s.topic[at])
    return RowFindings(
        at, at,
        severity=np.where(leaves, WARNING, ERROR),
        message=chosen((leaves, left), (first, moved), otherwise=copied),
        evidence=[_event(s, home), _event(s, at)],
        moved_from=np.where(by_rule, home, -1),
    )  # fmt: skip


def rows_follow_the_partition_count(s: Suspects) -> RowFindings:
    """MQ design, "Partition 扩容与缩容": after an Admin event rows are dispatched over as many partitions as it says.

    Seen here is a row in a partition beyond that number. One that its old number of partitions puts elsewhere among
    the others shows as a move (``rows_stay_in_one_partition``) where the row's other changes lie.
    """
    at = np.flatnonzero((s.count >= 0) & ~s.leaves)
    message = sentence(
        "a row in partition ", s.partition[at], " follows the Admin event that leaves ", s.count[at],
        " partitions: it was written with another number",
    )  # fmt: skip
    return RowFindings(at, at, np.full(len(at), ERROR), message, [_event(s, at)])


def first_appearances_are_ordered(s: Suspects) -> RowFindings:
    """MQ design, constraint 1.3: the first appearances of a row's changes rise in commit_ts (per row, not across rows).

    Inside a partition: no dispatch rule explains what breaks it.
    """
    by = np.flatnonzero(s.keyed & (s.late >= 0))
    message = sentence("the change first appears after the row's newer change of commit_ts ", s.c.commit_ts[by])
    return RowFindings(
        by, s.late[by], np.full(len(by), ERROR), message, [_event(s, by), _event(s, s.late[by])]
    )  # fmt: skip


def row_images_chain(s: Suspects) -> RowFindings:
    """What TiCDC sends of a row is its whole history: each change finds what the one before it left.

    Follows from the design's constraints 1.1 to 1.3: nothing of a row is left out, so an insert finds no row, an update
    and a delete find the image that the row's former change left. Compared are first deliveries in commit order, images
    only where both name the same columns (not across ``only handle keys`` or missing old images), and nothing across a
    DDL of the table. Nobody can see that a row's first or last change in the log is missing.
    """
    at = np.flatnonzero(s.keyed & (s.broken >= 0))
    former, how, covered = s.broken[at], s.how[at], s.covered[at]
    since = sentence("the row's former change in the log, of commit_ts ", s.c.commit_ts[former])
    said = chosen(
        (how == IS_GONE, sentence("an old image of a row that is not there: ", since, ", deleted it")),
        (how == IS_THERE, sentence("an insert of a row that is there: ", since, ", left it")),
        otherwise=sentence("the image before the change is not the one that ", since, " left"),
    )
    cut = np.where(covered, "", ", or lies where the recording does not cover a partition")
    message = sentence(said, "; a change between them is lost, or one of them is wrong", cut)
    return RowFindings(at, at, np.where(covered, ERROR, WARNING), message, [_event(s, former), _event(s, at)])


def redeliveries_are_identical(s: Suspects) -> RowFindings:
    """MQ design, constraint 1.2: what is delivered again is the same change, so one identity has one content."""
    other = (s.home >= 0) & (s.c.change_hash != s.c.change_hash[s.home])
    at = np.flatnonzero(s.keyed & ~s.first & ~s.leaves & other)
    home = s.home[at]
    message = sentence("the change was delivered before with another content, in partition ", s.partition[home])
    return RowFindings(at, at, np.full(len(at), ERROR), message, [_event(s, home), _event(s, at)])


def nothing_below_resolved_ts(s: Suspects) -> RowFindings:
    """MQ design, constraint 2.2: no change with a commit_ts below a resolved_ts follows it in its partition.

    A watermark says besides that everything up to and including it was sent, so a change that *first* appears at
    exactly a stated resolved_ts is a warning.
    """
    marks = s.promises.resolved
    at = np.flatnonzero(s.resolved >= 0)
    below = s.c.commit_ts[at] < marks.ts[s.resolved[at]]
    at, below = at[below | s.first[at]], below[below | s.first[at]]
    resolved = s.resolved[at]
    message = chosen(
        (below, sentence(_delivery(s, at), " below resolved_ts ", marks.ts[resolved], " follows it")),
        otherwise=sentence("a change at resolved_ts ", marks.ts[resolved], " first appears after it"),
    )
    shown = [_mark(s, at, marks, resolved), _event(s, at)]
    return RowFindings(at, at, np.where(below, ERROR, WARNING), message, shown)


def nothing_below_ddl(s: Suspects) -> RowFindings:
    """MQ design, constraint 2.3: no change of a table with a commit_ts below a DDL that blocks it follows the DDL.

    A repeat is a warning: a restart sends again what was sent before the DDL (constraint 1.2).
    """
    marks = s.promises.ddl
    at = np.flatnonzero(s.ddl >= 0)
    ddl = s.ddl[at]
    message = sentence(
        _delivery(s, at), " is older than the DDL of commit_ts ", marks.ts[ddl],
        ", which blocks its table, but comes after it",
    )  # fmt: skip
    shown = [_mark(s, at, marks, ddl), _event(s, at)]
    return RowFindings(at, at, np.where(s.first[at], ERROR, WARNING), message, shown)


def _event(s: Suspects, at: Ints) -> _Shown:
    """Changes as evidence."""
    return s.partition[at], s.c.offset[at], s.c.commit_ts[at]


def _mark(s: Suspects, at: Ints, marks: Marks, which: Ints) -> _Shown:
    """Watermarks or DDL that stand before changes, as evidence."""
    return s.partition[at], marks.offset[which], marks.ts[which]


def _delivery(s: Suspects, at: Ints) -> Texts:
    """What a change is called, a repeat or not."""
    return np.where(s.first[at], "a change", "a change delivered again")

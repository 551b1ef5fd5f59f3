"""Guarantees about rows. Each is a column over :func:`ticdc_lab.audit.history.row_history`: null, or what breaks it."""

from __future__ import annotations

from pyspark.sql import Column
from pyspark.sql import functions as F

from ticdc_lab.audit.chain import IS_GONE, IS_THERE
from ticdc_lab.audit.findings import evidence, placed, text


def _event() -> Column:
    return F.struct("partition", "offset", "seq", "commit_ts")


def _mark(name: str) -> Column:
    """A watermark or DDL that stands before the event, as evidence."""
    mark = F.col(name)
    return F.struct("partition", mark["offset"].alias("offset"), mark["ts"].alias("commit_ts"))


def rows_stay_in_one_partition() -> Column:
    """Seed, constraint 1.1: all changes of a row are sent to the same partition; also its repeats ("Table 迁移").

    An Admin event changes the partition of rows: only what stands between the same ones is compared.
    """
    home, first = F.col("former"), F.col("is_first_here")
    moved = text("the row moves from partition ", home["partition"], " to ", F.col("partition"))
    copied = text(
        "a change first delivered in partition ", home["partition"], " is delivered again in ", F.col("partition")
    )
    left = text(
        "an update that changes the key was sent to the new key's partition ",
        F.col("partition"),
        ", the old key's changes lie in ",
        home["partition"],
        ": the changefeed does not split such updates (output-raw-change-event)",
    )
    return F.when(
        F.col("keyed") & (F.col("place") != home["place"]),
        placed(
            _event(),
            severity=F.when(F.col("leaves"), "warning").otherwise("error"),
            message=F.when(F.col("leaves"), left).when(first, moved).otherwise(copied),
            evidence=evidence(home, _event()),
            # a rule places the rows of one topic; what leaves its key has no rule to follow
            moved_from=F.when(
                first & ~F.col("leaves") & (home["topic"] == F.col("topic")),
                F.struct(*[home[c].alias(c) for c in ("partition", "offset", "seq")]),
            ),
        ),
    )


def rows_follow_the_partition_count() -> Column:
    """Seed, "Partition 扩容与缩容": after an Admin event rows are dispatched over the number of partitions it says.

    Seen here is a row in a partition beyond that number. One that its old number of partitions puts elsewhere among
    the others shows as a move (``rows_stay_in_one_partition``) where the row's other changes lie.
    """
    count = F.col("count")
    return F.when(
        count.isNotNull() & ~F.col("leaves"),
        placed(
            _event(),
            severity="error",
            message=text(
                "a row in partition ", F.col("partition"), " follows the Admin event that leaves ", count,
                " partitions: it was written with another number",
            ),
            evidence=evidence(_event()),
        ),
    )  # fmt: skip


def first_appearances_are_ordered() -> Column:
    """Seed, constraint 1.3: the first appearances of a row's changes rise in commit_ts (per row, not across rows).

    Inside a partition: no dispatch rule explains what breaks it.
    """
    late = F.col("late")
    return F.when(
        F.col("keyed") & late.isNotNull(),
        placed(
            late,
            severity="error",
            message=text("the change first appears after the row's newer change of commit_ts ", F.col("commit_ts")),
            evidence=evidence(_event(), late),
        ),
    )


def row_images_chain() -> Column:
    """What TiCDC sends of a row is its whole history: each change finds what the one before it left.

    Follows from the seed's constraints 1.1 to 1.3: nothing of a row is left out, so an insert finds no row, an update
    and a delete find the image that the row's former change left. Compared are first deliveries in commit order, images
    only where both name the same columns (not across ``only handle keys`` or missing old images), and nothing across a
    DDL of the table. Nobody can see that a row's first or last change in the log is missing.
    """
    former, how = F.col("broken"), F.col("how")
    since = text("the row's former change in the log, of commit_ts ", former["commit_ts"])
    said = (
        F.when(how == IS_GONE, text("an old image of a row that is not there: ", since, ", deleted it"))
        .when(how == IS_THERE, text("an insert of a row that is there: ", since, ", left it"))
        .otherwise(text("the image before the change is not the one that ", since, " left"))
    )
    lost = "; a change between them is lost, or one of them is wrong"
    cut = ", or lies where the recording does not cover a partition"
    return F.when(
        F.col("keyed") & former.isNotNull(),
        placed(
            _event(),
            severity=F.when(F.col("covered"), "error").otherwise("warning"),
            message=text(said, F.when(F.col("covered"), lost).otherwise(lost + cut)),
            evidence=evidence(former, _event()),
        ),
    )


def redeliveries_are_identical() -> Column:
    """Seed, constraint 1.2: what is delivered again is the same change, so one identity has one content."""
    home = F.col("home")
    return F.when(
        F.col("keyed") & ~F.col("is_first") & ~F.col("leaves") & (F.col("change_hash") != home["change_hash"]),
        placed(
            _event(),
            severity="error",
            message=text("the change was delivered before with another content, in partition ", home["partition"]),
            evidence=evidence(home, _event()),
        ),
    )


def nothing_below_resolved_ts() -> Column:
    """Seed, constraint 2.2: no change with a commit_ts below a resolved_ts follows it in its partition.

    A watermark says besides that everything up to and including it was sent, so a change that *first* appears at
    exactly a stated resolved_ts is a warning.
    """
    resolved, first = F.col("resolved"), F.col("is_first")
    below = F.col("commit_ts") < resolved["ts"]
    again = F.when(first, F.lit("a change")).otherwise(F.lit("a change delivered again"))
    return F.when(
        resolved.isNotNull() & (below | first),
        placed(
            _event(),
            severity=F.when(below, "error").otherwise("warning"),
            message=F.when(below, text(again, " below resolved_ts ", resolved["ts"], " follows it")).otherwise(
                text("a change at resolved_ts ", resolved["ts"], " first appears after it")
            ),
            evidence=evidence(_mark("resolved"), _event()),
        ),
    )


def nothing_below_ddl() -> Column:
    """Seed, constraint 2.3: no change of a table with a commit_ts below a DDL that blocks it follows the DDL.

    A repeat is a warning: a restart sends again what was sent before the DDL (constraint 1.2).
    """
    ddl, first = F.col("ddl"), F.col("is_first")
    again = F.when(first, F.lit("a change")).otherwise(F.lit("a change delivered again"))
    return F.when(
        ddl.isNotNull(),
        placed(
            _event(),
            severity=F.when(first, "error").otherwise("warning"),
            message=text(
                again, " older than the DDL of commit_ts ", ddl["ts"], " that blocks its table follows the DDL"
            ),
            evidence=evidence(_mark("ddl"), _event()),
        ),
    )

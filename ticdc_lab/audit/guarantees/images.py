"""What TiCDC guarantees of rows and DDL beside the tables that the log's own DDL define.

Each function of images reads :class:`ticdc_lab.audit.defined.RowsDefined`.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa

from ticdc_lab.audit.defined import ABSENT, RowsDefined, misfits, nulls, unknown_columns
from ticdc_lab.audit.findings import ERROR, WARNING, ImageFindings, Sentences, chosen, sentence
from ticdc_lab.audit.guarantees.guarantee import COMPARE_DDL, LACKED, Guarantee
from ticdc_lab.audit.guarantees.marks import SHOWN, beginning, finding
from ticdc_lab.audit.marks import Event, offset_of
from ticdc_lab.audit.stated import Stated
from ticdc_lab.events import is_in_file
from ticdc_lab.events.arrays import Ints, beginnings

_MOUNTED = Guarantee(
    "A row change is read with the definition that its table has at its commit_ts (TiCDC's mounter)",
    needs=("commit_ts", "definitions"),
    do="Compare the DDL of the log with the row: ticdc-lab audit {source} --messages-of {number}",
    picture=None,
    at_once=False,
)


@_MOUNTED.of_images
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


@_MOUNTED.of_images
def columns_are_defined(r: RowsDefined) -> ImageFindings:
    """An image has columns of its table alone. It may have fewer: virtual columns, those that a selector leaves out."""
    cell, at, n = r.first(unknown_columns(r))
    said = sentence("the table has no column ", r.cells.name.take(pa.array(cell)))
    found = sentence(said, _defined(r, at), cause=said)
    return ImageFindings(at, _and_others(found, n))


@_MOUNTED.of_images
def nulls_are_allowed(r: RowsDefined) -> ImageFindings:
    """TiDB refuses NULL in a column that is NOT NULL, or of the primary key."""
    cell, at, n = r.first(nulls(r))
    said = sentence("NOT NULL column ", r.cells.name.take(pa.array(cell)), " is NULL")
    found = sentence(said, _defined(r, at), cause=said)
    return ImageFindings(at, _and_others(found, n))


@_MOUNTED.of_images
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


@Guarantee(
    "A DDL event is a job that TiDB has finished (TiCDC's schema storage)", needs=("commit_ts", "definitions"),
    do=COMPARE_DDL, picture=None, at_once=False,
).of_log  # fmt: skip
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
        said = f"a DDL that TiDB refuses: {c.reason} (DDL of commit_ts {c.since}){unless}: {beginning(here)}"
        where = {col: here[col] for col in (*SHOWN, "seq")}
        table = ".".join((c.schema_name, c.table_name))
        severity, where = WARNING if lacked else ERROR, where | {"table": table, "cause": cause}
        yield finding(severity, said, here["topic"], [*shown, here], **where)

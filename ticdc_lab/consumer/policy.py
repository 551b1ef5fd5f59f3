"""How a consumer decides: the switches in which the MQ design's consumer and the reference consumers differ."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Literal


@dataclass(frozen=True, slots=True)
class Policy:
    """A consumer's rules; each a switch of its own, so that ``dataclasses.replace`` makes any mixture of them.

    Attributes
    ----------
    name
        What figures and tables call it.
    waits_for
        ``partition``: buffered rows are written as soon as their own partition has a watermark at or above them;
        ``all``: as soon as every partition has.
    writes
        What becomes visible together: ``batch``, all rows that one watermark or DDL releases in a partition;
        ``group``, the rows of one commit_ts, table and partition; ``transaction``, all of one commit_ts.
    ddl_waits_for
        ``event``: every listener stops at the DDL event and the last one runs it (where the protocol sends DDL to
        partition 0 only, or the DDL is of another topic, a listener is there once its watermark has reached it, or it
        stops at one as new); ``watermark``: no listener stops, and it runs once all watermarks have reached it.
    ddl_flushes
        Rows at or below the DDL that are written before it: ``all`` of them, or only the ``blocked`` tables'.
    ddl_repeats
        ``once``: an executed DDL is not run again; ``again``: one as old as the newest of its tables is, an older one
        not; ``newer``: only a DDL newer than all before it, and another one of the same commit_ts, is run.
    late_rows
        What is thrown away when it is read: ``none``; ``applied``, rows at or below what their partition's part of the
        table was written up to; ``global``, rows below the least watermark; ``partition``, rows below their partition's
        watermark or below an earlier row of the table in the partition.
    duplicates
        What is thrown away instead of being written: ``none``; rows below the greatest commit_ts written of their
        table, one record for each ``listener`` or one for the ``table``.
    saves
        Where a restart begins: ``unwritten``, the first message that is still needed (of a row or a DDL that is not
        written, or the newest watermark), or ``read``, behind the last watermark read, even with rows buffered.

    References
    ----------
    MQ design, "Kafka Consumer 逻辑" and "CDC Processor 异常下线"; TiCDC's source.

    Examples
    --------
    >>> from dataclasses import replace
    >>> replace(DESIGN_ROW, name="row mode, nothing filtered", duplicates="none").waits_for
    'partition'
    """

    name: str
    waits_for: Literal["partition", "all"]
    writes: Literal["batch", "group", "transaction"]
    ddl_waits_for: Literal["event", "watermark"] = "event"
    ddl_flushes: Literal["all", "blocked"] = "all"
    ddl_repeats: Literal["once", "again", "newer"] = "once"
    late_rows: Literal["none", "applied", "global", "partition"] = "none"
    duplicates: Literal["none", "listener", "table"] = "none"
    saves: Literal["unwritten", "read"] = "unwritten"


DESIGN_ROW = Policy("design-row", waits_for="partition", writes="batch", duplicates="listener")
"""The design's consumer where rows need not be restored to transactions."""

DESIGN_ROW_SHARED = Policy("design-row-shared", waits_for="partition", writes="batch", duplicates="table")
"""The design's sentence to the letter: the greatest executed commit_ts of a table, whichever partition it came from."""

DESIGN_TRANSACTION = Policy("design-transaction", waits_for="all", writes="transaction", duplicates="table")
"""The design's consumer that restores transactions."""

STRICT = Policy(
    "strict", waits_for="all", writes="transaction", ddl_waits_for="watermark", duplicates="table",
)  # fmt: skip
"""Transaction mode in which DDL waits for watermarks too: safe where rows of other tables come after a DDL event."""

CLASSIC = Policy(
    "classic", waits_for="all", writes="group", ddl_waits_for="watermark", ddl_repeats="newer",
    late_rows="partition", saves="read",
)  # fmt: skip
"""``cmd/kafka-consumer`` of tiflow."""

REFERENCE = Policy(
    "reference", waits_for="all", writes="group", ddl_waits_for="watermark", ddl_flushes="blocked",
    ddl_repeats="again", late_rows="applied", saves="read",
)  # fmt: skip
"""``cmd/kafka-consumer`` of ticdc at 5c453fce9, which made ``consumer_ref`` of the golden data."""

REFERENCE_FIXED = Policy(
    "reference-fixed", waits_for="all", writes="group", ddl_waits_for="watermark", ddl_flushes="blocked",
    ddl_repeats="again", late_rows="global", saves="read",
)  # fmt: skip
"""Its successor at b813e76f9."""

POLICIES: Mapping[str, Policy] = MappingProxyType(
    {
        p.name: p
        for p in (DESIGN_ROW, DESIGN_ROW_SHARED, DESIGN_TRANSACTION, STRICT, CLASSIC, REFERENCE, REFERENCE_FIXED)
    }
)
"""By the names that the command line and the panels use."""

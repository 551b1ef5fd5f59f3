"""A part of a log to look at first: some tables, some time, some partitions.

Only row changes are left out. Watermarks, DDL, Admin events and what cannot be decoded stay, which are few:
how far a log is complete, and whether a transaction is whole, is then as in the whole log.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from zoneinfo import ZoneInfo

from ticdc_lab.errors import ContractError, SourceError
from ticdc_lab.events.tso import clock_words, compose, physical_ms, zone

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import Column, DataFrame

_MARKS = "Watermarks, DDL and Admin events are from the whole log, so resolved_ts is the same as without a sample."
_TIME = (
    "What happened outside the window cannot be seen: a change that is lost, moved or out of order across one of its "
    "ends, the state a row had before its first change here, and what a table finally contains. Row changes without a "
    "commit_ts are in it whenever they happened."
)
_TABLES = (
    "Transactions have only the rows of these tables: what is whole across tables, and a sum or rule over several of "
    "them, cannot be proved."
)
_PARTITIONS = (
    "Rows of other partitions are left out: moves from and to them, lost changes, and rows of a transaction that lie "
    "there cannot be seen."
)
_SAID = 5


@dataclass(frozen=True, slots=True)
class Sample:
    """Which row changes to keep; what is left as it is does not choose.

    Attributes
    ----------
    tables
        ``schema.table``, exactly as written in the log; empty for all.
    from_ms, to_ms
        First and last millisecond since 1970 (physical part of commit_ts), both included. A transaction has one
        commit_ts, so none is cut.
    partitions
        Numbers of partitions; None for all.

    Raises
    ------
    ContractError
        The window ends before it begins.
    """

    tables: tuple[str, ...] = ()
    from_ms: int | None = None
    to_ms: int | None = None
    partitions: tuple[int, ...] | None = None

    def __post_init__(self) -> None:
        if self.from_ms is not None and self.to_ms is not None and self.to_ms < self.from_ms:
            ends, begins = (clock_words(compose(ms)) for ms in (self.to_ms, self.from_ms))
            told = f"The sample ends at {ends}, before it begins at {begins}."
            raise ContractError(told, hint="Exchange the two ends of --between.")

    @classmethod
    def from_dict(cls, told: Mapping[str, Any]) -> Sample:
        """Read what JSON made of its fields."""
        given: dict[str, Any] = {name: tuple(v) if isinstance(v, list) else v for name, v in told.items()}
        return cls(**given)

    @property
    def is_whole(self) -> bool:
        """Whether nothing is left out."""
        return not self.tables and not self.by_time and self.partitions is None

    @property
    def by_time(self) -> bool:
        """Whether a time is chosen."""
        return self.from_ms is not None or self.to_ms is not None

    @property
    def words(self) -> str:
        """What is kept, as part of a sentence."""
        more = f" and {len(self.tables) - _SAID} more" if len(self.tables) > _SAID else ""
        parts = [f"of {', '.join(self.tables[:_SAID])}{more}"] if self.tables else []
        parts += [f"from {clock_words(compose(self.from_ms))}"] if self.from_ms is not None else []
        parts += [f"to {clock_words(compose(self.to_ms))}"] if self.to_ms is not None else []
        numbers = ", ".join(map(str, self.partitions or ()))
        parts += [f"in partition {numbers}"] if self.partitions is not None else []
        return " ".join(["row changes", *parts]) if parts else "everything"

    @property
    def limits(self) -> tuple[str, ...]:
        """What it cannot prove, one sentence each."""
        if self.is_whole:
            return ()
        of = {_TIME: self.by_time, _TABLES: bool(self.tables), _PARTITIONS: self.partitions is not None}
        said = " ".join(text for text, holds in of.items() if holds)
        return (f"This is a sample: {self.words}. {_MARKS} {said}",)

    def keeps(self) -> Column:
        """Whether an event (``kind, commit_ts, schema_name, table_name, partition``) is in it."""
        from pyspark.sql import functions as F

        asked = []
        if self.tables:
            asked.append(F.concat_ws(".", "schema_name", "table_name").isin(*self.tables))
        if self.from_ms is not None:
            asked.append(F.col("commit_ts").isNull() | (F.col("commit_ts") >= compose(self.from_ms)))
        if self.to_ms is not None:
            asked.append(F.col("commit_ts").isNull() | (F.col("commit_ts") < compose(self.to_ms + 1)))
        if self.partitions is not None:
            asked.append(F.col("partition").isin(*self.partitions))
        kept = F.lit(True)
        for one in asked:
            kept = kept & one
        return F.coalesce(F.col("kind") != "row", F.lit(True)) | kept

    def kept(self, events: pa.Table) -> pa.Table:
        """The events that :meth:`keeps` holds of, where a worker has them as an Arrow table."""
        import pyarrow as pa
        import pyarrow.compute as pc

        chosen = pc.fill_null(pc.not_equal(events["kind"], "row"), True)
        rows: pa.ChunkedArray | pa.Scalar = pa.scalar(True)
        ts = events["commit_ts"]
        if self.tables:
            named = pc.binary_join_element_wise(events["schema_name"], events["table_name"], ".")
            rows = pc.and_(rows, pc.is_in(named, pa.array(self.tables)))
        if self.from_ms is not None:
            rows = pc.and_(rows, pc.fill_null(pc.greater_equal(ts, compose(self.from_ms)), True))
        if self.to_ms is not None:
            rows = pc.and_(rows, pc.fill_null(pc.less(ts, compose(self.to_ms + 1)), True))
        if self.partitions is not None:
            rows = pc.and_(rows, pc.is_in(events["partition"], pa.array(self.partitions, pa.int32())))
        return events.filter(pc.or_(chosen, rows))


def sample_of(tables: str = "", first: str = "", last: str = "") -> Sample:
    """A sample as a person writes it.

    Parameters
    ----------
    tables
        ``schema.table``, with commas between.
    first, last
        Moments: ``2026-06-01 12:30:00`` or a part of it (UTC unless it has another zone), or a TSO.

    Raises
    ------
    SourceError
        A moment cannot be read.
    """
    names = tuple(t.strip() for t in tables.split(",") if t.strip())
    starts, ends = (None if ts is None else physical_ms(ts) for ts in map(moment, (first, last)))
    return Sample(names, starts, ends)


def from_first_row(events: DataFrame) -> DataFrame:
    """Leave out the watermarks below the first row change.

    A sample keeps the whole log's, and where its rows begin late the first events are nothing else.

    Parameters
    ----------
    events
        ``kind, commit_ts`` of the events contract.

    Returns
    -------
    DataFrame
        The same columns; all events where there is no row change.
    """
    from pyspark.sql import functions as F

    first = events.where("kind = 'row'").agg(F.min("commit_ts").alias("_first"))
    kept = "kind <> 'watermark' OR _first IS NULL OR commit_ts >= _first"
    return events.crossJoin(F.broadcast(first)).where(kept).drop("_first")


def ts_of(moment_: int | str) -> int:
    """The TSO of a moment that is one, or that is written as :func:`moment` reads it.

    Raises
    ------
    SourceError
        It cannot be read, or is empty.
    """
    ts = moment_ if isinstance(moment_, int) else moment(moment_)
    if ts is None:
        raise SourceError("The moment is empty.", hint="Write it as `2026-06-01 12:30:00` (UTC), or as a TSO.")
    return ts


def moment(text: str) -> int | None:
    """The TSO of a moment as :func:`sample_of` takes it; None for an empty text.

    Raises
    ------
    SourceError
        It cannot be read.

    Examples
    --------
    >>> moment("2026-11-20 21:56:08.308"), moment("470603993791332353")
    (470603993791332352, 470603993791332353)
    """
    own = zone() if text.strip().endswith(f" {zone()}") else "UTC"  # as it is shown, so that it can be copied
    text = text.strip().removesuffix(own).strip()
    if not text:
        return None
    if text.isdigit() and len(text) > 14:  # a TSO
        return int(text)
    try:
        at = dt.datetime.fromisoformat(text)
    except ValueError:
        raise SourceError(
            f"{text!r} is not a time.",
            hint="Write it as `2026-06-01 12:30:00` (UTC), or as a TSO such as `470603000000000000`.",
        ) from None
    return compose(round((at if at.tzinfo else at.replace(tzinfo=ZoneInfo(own))).timestamp() * 1000))

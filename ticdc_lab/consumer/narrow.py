"""What the consumer model reads of a log, as a narrow frame, and an excerpt of it on the driver."""

from __future__ import annotations

import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from ticdc_lab.codecs.keys import with_keys
from ticdc_lab.consumer.log import NARROW, NarrowLog
from ticdc_lab.errors import ContractError
from ticdc_lab.events.prefix import POSITION
from ticdc_lab.events.schema import require_columns
from ticdc_lab.transactions import op_rank

MOST_EVENTS = 1_000_000
"""Events of an excerpt at most; each takes about 100 bytes of the driver's memory."""


def narrow(events: DataFrame, **more: Column) -> DataFrame:
    """Keep of events what a consumer decides by.

    Parameters
    ----------
    events
        The events contract.
    more
        Further columns by name, such as the ``measure`` of :func:`ticdc_lab.consumer.invariant.measure_of`.

    Returns
    -------
    DataFrame
        :data:`ticdc_lab.consumer.log.NARROW` and ``more``; of row changes, watermarks and DDL only, and
        without those that have no commit_ts.

    Raises
    ------
    ContractError
        A column is missing.
    """
    require_columns(events, "kind", "commit_ts", "op", "query", "schema_name", "table_name", *POSITION)
    rank = F.when(F.col("kind") == "row", op_rank()).cast("int").alias("op_rank")
    keyed = events.where("kind IN ('row', 'watermark', 'ddl') AND commit_ts IS NOT NULL").transform(with_keys)
    named = [column.alias(name) for name, column in more.items()]
    return keyed.select(*[rank if name == "op_rank" else name for name in NARROW], *named)


def excerpt(events: DataFrame, *, most: int = MOST_EVENTS, **more: Column) -> NarrowLog:
    """Bring a log, or the part of it that the caller filtered, to the driver for the model.

    Parameters
    ----------
    events, more
        As for :func:`narrow`. Filter by commit_ts for a part of a longer log.
    most
        Events that are accepted.

    Raises
    ------
    ContractError
        There are more events; nothing is left out silently.
    """
    return NarrowLog.of(
        few(
            narrow(events, **more), most=most, what="events", taker="the model of a consumer on the driver",
            hint="Filter by commit_ts, let consumption() run it in a worker, or pass most=...",
        )
    )  # fmt: skip


# The one way by which a consumer's log comes to the driver: as a whole, or not at all.


def few(frame: DataFrame, *, most: int, what: str, taker: str, hint: str) -> pa.Table:
    """Bring a frame to the driver.

    Parameters
    ----------
    frame
        What to bring.
    most
        Rows that are accepted.
    what, taker
        What the rows are, and who takes no more of them, as an error says it.
    hint
        What to do then.

    Raises
    ------
    ContractError
        There are more rows; nothing is left out silently.
    """
    table = frame.limit(most + 1).toArrow()
    if len(table) > most:
        raise ContractError(f"The log holds more than {most:,} {what}; {taker} takes no more.", hint=hint)
    return table

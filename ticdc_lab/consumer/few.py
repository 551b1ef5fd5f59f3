"""The one way by which a consumer's log comes to the driver: as a whole, or not at all."""

from __future__ import annotations

import pyarrow as pa
from pyspark.sql import DataFrame

from ticdc_lab.errors import ContractError


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

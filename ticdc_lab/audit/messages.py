"""The messages that a finding is about."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import reduce
from numbers import Integral
from operator import or_
from typing import Any

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from ticdc_lab.events.schema import require_columns

Place = tuple[int, int]
"""Partition and offset."""


def places_of(finding: Mapping[str, Any]) -> tuple[Place, ...]:
    """Where the messages lie that a finding names, its own and those of its evidence, in order.

    Parameters
    ----------
    finding
        A row of :data:`ticdc_lab.events.schema.FINDINGS`.
    """
    evidence = finding["evidence"]
    named = [finding, *([] if evidence is None else evidence)]
    found = {(_int(m["partition"]), _int(m["offset"])) for m in named}
    return tuple(sorted((p, o) for p, o in found if p is not None and o is not None))


def messages_of(events: DataFrame, finding: Mapping[str, Any], *, around: int = 0) -> DataFrame:
    """Give what the messages hold that a finding names, and those beside them.

    Parameters
    ----------
    events
        ``topic, partition, offset, seq`` and any other columns of the events contract.
    finding
        A row of :data:`ticdc_lab.events.schema.FINDINGS`. It names no topic: of a log of several, all have their
        messages at these places here.
    around
        How many offsets before and behind each message are given, too.

    Returns
    -------
    DataFrame
        The columns of ``events``, and ``named`` (bool: the finding names this message); ordered by topic, partition,
        offset and seq. No row where the finding is about what is missing.
    """
    return events_at(events, places_of(finding), around=around)


def events_at(events: DataFrame, places: Iterable[Place], *, around: int = 0) -> DataFrame:
    """Give what the messages at some places hold; parameters and result as :func:`messages_of`'s."""
    require_columns(events, "topic", "partition", "offset", "seq")
    named = list(places)
    beside = [(p, o + d) for p, o in named for d in range(-around, around + 1)]
    found = events.where(_is_at(beside)).withColumn("named", _is_at(named))
    return found.orderBy("topic", "partition", "offset", "seq")


def _is_at(places: Iterable[Place]) -> Column:
    of: dict[int, set[int]] = {}
    for partition, offset in places:
        of.setdefault(partition, set()).add(offset)
    each = [(F.col("partition") == p) & F.col("offset").isin(sorted(offsets)) for p, offsets in sorted(of.items())]
    return reduce(or_, each, F.lit(False))


def _int(value: Any) -> int | None:
    return int(value) if isinstance(value, Integral) else None

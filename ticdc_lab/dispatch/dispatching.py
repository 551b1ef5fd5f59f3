"""The transform that sends every row change where a dispatcher would."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from ticdc_lab.catalog import Catalog
from ticdc_lab.dispatch import from_crcs, hashing
from ticdc_lab.dispatch.conflict import dispatch_by_conflict
from ticdc_lab.dispatch.definitions import with_answers
from ticdc_lab.dispatch.from_crcs import CrcChoice
from ticdc_lab.dispatch.hashing import Choice, Flavour
from ticdc_lab.dispatch.names import CONFLICT, check_partitions
from ticdc_lab.dispatch.strategies import Request, strategy_of
from ticdc_lab.engine.columns import computed_once
from ticdc_lab.errors import DispatchError
from ticdc_lab.schema import require_columns

ADDED = ("target_partition", "dispatch_key", "dispatch_error")
"""The columns that dispatch adds to events."""


def dispatch(
    events: DataFrame,
    *,
    strategy: str,
    partitions: int,
    index: str | None = None,
    columns: Sequence[str] | None = None,
    catalog: Catalog | None = None,
    flavour: Flavour = "new",
) -> DataFrame:
    """Add the partition that a dispatcher chooses for every row change.

    Parameters
    ----------
    events
        The events contract: ``kind``, ``schema_name``, ``table_name``, and what the strategy reads (``commit_ts``;
        ``op``, ``columns`` and ``before``, or instead of these two :data:`ticdc_lab.schema.DISPATCH`, which is read
        many times faster). May be a stream.
    strategy
        A name of :data:`STRATEGIES` in any case, or ``conflict``
        (:func:`ticdc_lab.dispatch.conflict.dispatch_by_conflict`). Another name means ``table``, as in TiCDC; see
        :func:`check_strategy`.
    partitions
        Number of partitions of the topic, N.
    index
        Index name for ``index-value``, in any case; needs a catalog. Default: the handle key.
    columns
        Column names for ``columns``, in any case.
    catalog
        Table definitions over time; tells TiCDC's own errors from columns the log does not carry.
    flavour
        ``new`` or ``classic`` architecture, see :data:`ticdc_lab.dispatch.hashing.Flavour`.

    Returns
    -------
    DataFrame
        Events with ``target_partition int``, ``dispatch_key string`` (TiCDC's partition key) and ``dispatch_error
        string``: TiCDC's own text where it begins with ``[CDC:ErrDispatcherFailed]``, else why the log cannot tell.
        Where there is an error the others are null. All three are null unless ``kind`` is ``row``. For ``conflict``
        there is ``alignment`` (bigint) too.

    Raises
    ------
    DispatchError
        The rule cannot be applied to any row: N below 1, an index without catalog, no columns, an unknown flavour.
    ContractError
        ``events`` lacks a column.
    StreamingError
        ``events`` is a stream, and the strategy ``conflict``, which needs the order of changes.

    Examples
    --------
    >>> moved = log.events.transform(dispatch, strategy="index-value", partitions=4).where("kind = 'row'")
    >>> moved.groupBy("target_partition").count().orderBy("target_partition").show()
    +----------------+-----+
    |target_partition|count|
    +----------------+-----+
    |               0|  474|
    |               1|  378|
    |               2|  406|
    |               3|  843|
    +----------------+-----+
    """
    if strategy.lower() == CONFLICT:
        return dispatch_by_conflict(events, partitions=partitions, catalog=catalog)
    crcs = reads_crcs(events, [strategy])
    request = Request(
        check_partitions(partitions), index, _tuple(columns), catalog, _checked_flavour(flavour), crcs=crcs
    )
    verdict = strategy_of(strategy)(request)
    require_columns(events, "kind", "schema_name", "table_name", *verdict.needs)
    out = events
    if verdict.question is not None and catalog is not None:
        out = with_answers(out, catalog=catalog, questions={request.answer: verdict.question})
    if verdict.choice is not None:
        out = with_hash(out, choice=verdict.choice, flavour=request.flavour)
    out = decided(out, partition=verdict.partition, key=verdict.key, error=verdict.error)
    return out.select(*events.columns, *ADDED)


def reads_crcs(events: DataFrame, strategies: Iterable[str]) -> bool:
    """Whether dispatch by these strategies can do without images: ``tidb-rowid`` needs a value itself."""
    return from_crcs.available(events) and "tidb-rowid" not in {s.lower() for s in strategies}


def with_hash(events: DataFrame, *, choice: Choice | CrcChoice, flavour: Flavour) -> DataFrame:
    """Add the scratch columns of a choice, from the images or from :data:`ticdc_lab.schema.DISPATCH`."""
    if isinstance(choice, CrcChoice):
        return from_crcs.with_hash(events, choice=choice, flavour=flavour)
    return hashing.with_hash(events, choice=choice, flavour=flavour)


def decided(events: DataFrame, *, partition: Column, key: Column, error: Column) -> DataFrame:
    """Add the three columns of :func:`dispatch`, step by step so that each expression is computed once."""
    is_row = F.col("kind") == "row"
    good = is_row & F.col("dispatch_error").isNull()
    return computed_once(
        computed_once(events, {"dispatch_error": F.when(is_row, error)}),
        {"target_partition": F.when(good, partition.cast("int")), "dispatch_key": F.when(good, key)},
    )


def _tuple(columns: Sequence[str] | None) -> tuple[str, ...] | None:
    if isinstance(columns, str):
        raise DispatchError(
            f"columns must be a list of names; found the text {columns!r}.", hint="Pass columns=['a', 'b']."
        )
    return None if columns is None else tuple(columns)


def _checked_flavour(flavour: str) -> Flavour:
    if flavour not in ("new", "classic"):
        raise DispatchError(f"Unknown flavour {flavour!r}; expected 'new' or 'classic'.")
    return flavour  # type: ignore[return-value]

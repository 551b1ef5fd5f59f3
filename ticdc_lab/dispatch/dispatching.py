"""The transform that sends every row change where a dispatcher would."""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from ticdc_lab.codecs.keys import with_hashes
from ticdc_lab.dispatch.conflict import dispatch_by_conflict
from ticdc_lab.dispatch.defined_keys import with_defined_keys
from ticdc_lab.dispatch.definitions import with_answers
from ticdc_lab.dispatch.hashing import UNNAMED_ROW, Flavour, with_hash
from ticdc_lab.dispatch.names import CONFLICT, check_partitions
from ticdc_lab.dispatch.strategies import Request, Verdict, strategy_of
from ticdc_lab.engine.columns import computed_once
from ticdc_lab.errors import DispatchError
from ticdc_lab.events.schema import DISPATCH, require_columns
from ticdc_lab.facts.catalog import Catalog

ADDED = ("target_partition", "dispatch_key", "dispatch_error")
"""The columns that dispatch adds to events."""

HASHED = StructType([field for field in DISPATCH.fields if field.name != "row_bytes"])
"""What a hash is made of."""


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
        ``op``, ``columns`` and ``before``, or instead of these two :data:`ticdc_lab.events.schema.DISPATCH`, which is
        made of them where it is missing). May be a stream.
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
        Table definitions over time; parts TiCDC's own errors from columns the log does not carry, and names the handle
        key of rows whose messages name none (:mod:`ticdc_lab.dispatch.defined_keys`).
    flavour
        ``new`` or ``classic`` architecture, see :data:`ticdc_lab.dispatch.hashing.Flavour`.

    Returns
    -------
    DataFrame
        Events with ``target_partition int``, ``dispatch_key string`` (TiCDC's partition key) and ``dispatch_error
        string``: TiCDC's own text where it begins with ``[CDC:ErrDispatcherFailed]``, else why the log cannot show it.
        Where there is an error the others are null. All three are null unless ``kind`` is ``row``. For ``conflict``
        there is ``alignment`` (bigint) too.

    Raises
    ------
    DispatchError
        The rule cannot be applied to any row: N below 1, an index without catalog, no columns, an unknown flavour.
    ContractError
        ``events`` misses a column.
    StreamingError
        ``events`` is a stream, and the strategy ``conflict``, which needs the order of changes.

    Examples
    --------
    >>> from ticdc_lab.facts.catalog import catalog_of
    >>> by = {"strategy": "index-value", "partitions": 4, "catalog": catalog_of(log.events)}
    >>> moved = log.events.transform(dispatch, **by).where("kind = 'row'")
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
    request = Request(check_partitions(partitions), index, _tuple(columns), catalog, _checked_flavour(flavour))
    verdict = strategy_of(strategy)(request)
    out = ready_for(events, [verdict], catalog=catalog)
    if verdict.question is not None and catalog is not None:
        out = with_answers(out, catalog=catalog, questions={request.answer: verdict.question})
    if verdict.choice is not None:
        out = with_hash(out, choice=verdict.choice, flavour=request.flavour)
    out = decided(out, partition=verdict.partition, key=verdict.key, error=verdict.error)
    return out.select(*events.columns, *ADDED)


def ready_for(events: DataFrame, verdicts: Sequence[Verdict], *, catalog: Catalog | None) -> DataFrame:
    """Events with what some verdicts read of images: :data:`ticdc_lab.events.schema.DISPATCH`, and scratch columns.

    Where a row names no handle key, ``catalog`` gives it (:mod:`ticdc_lab.dispatch.defined_keys`).
    """
    require_columns(events, "kind", "schema_name", "table_name", *{name for v in verdicts for name in v.needs})
    out = with_hashes(events, HASHED) if any(v.choice is not None for v in verdicts) else events
    if any(v.by_key for v in verdicts):
        out = with_defined_keys(out, catalog=catalog)
    return computed_once(out, {name: column for v in verdicts for name, column in v.from_images.items()})


def decided(events: DataFrame, *, partition: Column, key: Column, error: Column) -> DataFrame:
    """Add the three columns of :func:`dispatch`, step by step so that each expression is computed once."""
    is_row = F.col("kind") == "row"
    if UNNAMED_ROW in events.columns:
        error = F.coalesce(UNNAMED_ROW, error)
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

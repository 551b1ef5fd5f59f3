"""The transforms that send every row change where a dispatcher, or the rules of a changefeed, would."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from ticdc_lab.codecs.keys import with_hashes
from ticdc_lab.dispatch.conflict import dispatch_by_conflict
from ticdc_lab.dispatch.names import (
    CONFLICT,
    FLAVOURS,
    STRATEGIES,
    UNNAMED_ROW,
    Flavour,
    check_columns,
    check_partitions,
)
from ticdc_lab.dispatch.numbering import NUMBERED, Alike, Numbering, needs_catalog
from ticdc_lab.dispatch.rules import Rule, rule_of
from ticdc_lab.dispatch.topics import check_topic, topic_name
from ticdc_lab.engine.columns import made_by
from ticdc_lab.errors import DispatchError
from ticdc_lab.events.schema import DISPATCH, require_columns
from ticdc_lab.facts.catalog import Catalog
from ticdc_lab.facts.definitions import TableName
from ticdc_lab.settings.matchers import TableFilter

if TYPE_CHECKING:
    from ticdc_lab.dispatch.routing import Upstream

ADDED = ("target_partition", "dispatch_key", "dispatch_error")
"""The columns that dispatch adds to events."""

_PLACED = pa.struct([
    ("target_partition", pa.int32()), ("dispatch_key", pa.string()), ("dispatch_error", pa.string()),
    ("target_topic", pa.string()),
])  # fmt: skip
_FORM = "target_partition int, dispatch_key string, dispatch_error string, target_topic string"
_SCRATCH = "_dispatch_placed"
_HASHES = StructType([f for f in DISPATCH.fields if f.name != "row_bytes"])
_TABLE, _OF_HASH = ("kind", "schema_name", "table_name"), ("op", *_HASHES.names)
_NEEDS = {
    "table": (),
    "ts": ("commit_ts",),
    "tidb-rowid": ("op", "columns", "before"),
    "default-no-old-value": ("op", "columns", "before", *_HASHES.names),
}
"""What a dispatcher reads of events besides their tables; the others read what is hashed."""


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
        Column names for ``columns``, in any case. Listing a column twice cancels it out, and an empty list leaves the
        table's hash, as in TiCDC.
    catalog
        Table definitions over time; parts TiCDC's own errors from columns the log does not carry, and names the handle
        key of rows whose messages name none.
    flavour
        ``new`` or ``classic`` architecture, see :data:`ticdc_lab.dispatch.names.Flavour`.

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
    check_partitions(partitions)
    if isinstance(columns, str):
        raise DispatchError(
            f"columns must be a list of names; found the text {columns!r}.", hint="Pass columns=['a', 'b']."
        )
    listed = check_columns(columns) if strategy.lower() == "columns" else ()
    rule = Rule(("*.*",), strategy, index or "", tuple(listed))
    return _placed(events, _Placing((rule,), partitions, Numbering(catalog, flavour=_checked(flavour))), ADDED)


def dispatch_by_rules(
    events: DataFrame,
    *,
    rules: Sequence[Rule],
    partitions: int,
    catalog: Catalog | None = None,
    flavour: Flavour = "new",
    case_sensitive: bool = False,
    default_topic: str = "default",
    protocol: str | None = None,
    sources: Mapping[TableName, Upstream] | None = None,
) -> DataFrame:
    """Add the topic and the partition that a changefeed with these rules chooses for every row change.

    The first rule that matches a table serves it; ``*.*`` by ``default`` is appended.

    Parameters
    ----------
    events
        The events contract, as for :func:`dispatch`. May be a stream.
    rules
        Rules in order, see :func:`ticdc_lab.dispatch.rules.rules_from_config`.
    partitions
        Number of partitions of every topic, N.
    catalog
        Table definitions over time; needed for rules with an index.
    flavour
        ``new`` or ``classic`` architecture.
    case_sensitive
        Whether matchers distinguish upper and lower case; TiCDC's default is not.
    default_topic
        Topic of the sink-uri, for rules without a topic expression.
    protocol
        Of the changefeed; avro allows fewer topic expressions.
    sources
        Where rules route tables: the table upstream of each name in the log
        (:func:`ticdc_lab.dispatch.routing.sources_of`). Matchers, hashes and topics use the name upstream.

    Returns
    -------
    DataFrame
        Events with ``target_partition``, ``dispatch_key`` and ``dispatch_error`` as :func:`dispatch` adds them, and
        ``target_topic`` (string, null unless ``kind`` is ``row``).

    Raises
    ------
    DispatchError
        A matcher or a topic expression is malformed, or a rule cannot be applied to any row.
    """
    check_partitions(partitions)
    for rule in rules:
        TableFilter.parse(rule.matcher, case_sensitive=case_sensitive)
        check_topic(rule.topic, protocol=protocol, flavour=flavour)
    named = {t: s for t, s in (sources or {}).items() if s.table != t}
    upstream = {t: s.table for t, s in named.items() if s.table}
    numbering = Numbering(catalog, flavour=_checked(flavour), upstream=upstream)
    unknown = {t: s.why for t, s in named.items() if s.table is None}
    placing = _Placing(tuple(rules), partitions, numbering, case_sensitive, default_topic, unknown)
    return _placed(events, placing, (*ADDED, "target_topic"))


def _placed(events: DataFrame, placing: _Placing, added: Sequence[str]) -> DataFrame:
    strategies = {STRATEGIES.get(rule.partition.lower(), "table") for rule in placing.rules}
    if placing.numbering.catalog is None:
        for rule in placing.rules:
            if rule.index and STRATEGIES.get(rule.partition.lower()) in ("index-value", "default-no-old-value"):
                raise needs_catalog(rule.index)
    needs = {name for strategy in strategies for name in _NEEDS.get(strategy, _OF_HASH)}
    if placing.numbering.catalog is not None and strategies - {"table"}:
        needs |= {"commit_ts"}
    require_columns(events, *_TABLE, *(needs - {*_HASHES.names}))
    out = with_hashes(events, _HASHES) if needs & {*_HASHES.names} else events
    helps = {*_TABLE, *needs, UNNAMED_ROW, *(("protocol",) if "key_crc" in needs else ())}
    read = [c for c in (*NUMBERED, UNNAMED_ROW) if c in helps and c in out.columns]
    out = out.withColumn(_SCRATCH, made_by(placing.of, f"struct<{_FORM}>", *read))
    return out.select(*events.columns, *[F.col(_SCRATCH)[name].alias(name) for name in added])


@dataclass(frozen=True)
class _Placing:
    """Where each row change goes: by the first of ``rules`` that matches its table.

    ``default_topic``: None where no topic is asked for. ``unknown``: tables whose name upstream is not known, and why.
    """

    rules: Sequence[Rule]
    partitions: int
    numbering: Numbering
    case_sensitive: bool = False
    default_topic: str | None = None
    unknown: Mapping[TableName, str] = field(default_factory=dict)
    _rule_of: dict[TableName, Rule] = field(default_factory=dict, init=False)

    def of(self, batch: pa.RecordBatch) -> pa.Array:
        """Partition, key, error and topic of some events."""
        rows, n = pa.table(batch), batch.num_rows
        number, is_known = np.zeros(n, dtype=np.int64), np.zeros(n, dtype=bool)
        key, error, topic = (np.full(n, None, dtype=object) for _ in range(3))
        for some in Alike.among(rows):
            if some["kind"][0].as_py() != "row":
                continue
            at = some.at
            name = self.numbering.hashed_name(some)
            rule = self._rule(name)
            number[at], error[at] = self.numbering.by(some, rule.partition, index=rule.index, columns=rule.columns)
            if why := self.unknown.get(some.table):
                error[at] = why
            key[at[self.numbering.by_table(some, rule.partition)]] = ".".join(p or "" for p in name)
            needed = [p for p, of in zip(name, ("{schema}", "{table}"), strict=True) if of in rule.topic]
            if self.default_topic is not None and None not in needed:
                topic[at] = topic_name(rule.topic, *name, default_topic=self.default_topic)
            is_known[at] = True
        if UNNAMED_ROW in rows.column_names:
            unnamed = np.array(rows[UNNAMED_ROW].to_pylist(), dtype=object)
            error = np.where(is_known & (unnamed != None), unnamed, error)  # noqa: E711
        is_known &= error == None  # noqa: E711
        of = number.view(np.uint64)
        partition = pa.array((of % np.uint64(self.partitions)).astype(np.int32), mask=~is_known)
        keys = pa.array(of, mask=~(is_known & (key == None))).cast(pa.string())  # noqa: E711
        if keys.null_count:
            key[~is_known] = None
            keys = pc.coalesce(keys, _texts(key))
        return pa.StructArray.from_arrays([partition, keys, _texts(error), _texts(topic)], fields=[*_PLACED])

    def _rule(self, name: TableName) -> Rule:
        if name not in self._rule_of:
            schema, table = (part or "" for part in name)
            self._rule_of[name] = rule_of(self.rules, schema, table, case_sensitive=self.case_sensitive)
        return self._rule_of[name]


def _texts(values: npt.NDArray[np.object_]) -> pa.Array:
    if (values == None).all():  # noqa: E711
        return pa.nulls(len(values), pa.string())
    return pa.array(values.tolist(), pa.string())


def _checked(flavour: str) -> Flavour:
    if flavour not in FLAVOURS:
        raise DispatchError(f"Unknown flavour {flavour!r}; expected 'new' or 'classic'.")
    return flavour

"""Topic expressions of dispatch rules, as TiCDC reads them.

A rule's ``topic`` is empty (the default topic of the sink-uri), a plain name, or text with ``{schema}`` and ``{table}``
(pingcap/ticdc ``downstreamadapter/sink/eventrouter/topic``, pingcap/tiflow ``cdc/sink/dmlsink/mq/dispatcher/topic``).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

from ticdc_lab.dispatch.names import Flavour
from ticdc_lab.errors import DispatchError
from ticdc_lab.events.schema import require_batch, require_columns

# Topic expressions, and how evenly their topics are filled.

MAX_TOPIC_LENGTH = 249
"""Bytes of a Kafka topic name at most; TiCDC cuts what is longer."""

_FAILED = "[CDC:ErrKafkaTopicExprInvalid]invalid topic expression: "
_FORBIDDEN = "[^a-zA-Z0-9._-]"
_PLAIN = re.compile(r"[A-Za-z0-9._-]+")
_CLASSIC = re.compile(r"[A-Za-z0-9._-]*(\{schema\})?([A-Za-z0-9._-]*\{table\})?[A-Za-z0-9._-]*")
_CLASSIC_AVRO = re.compile(r"[A-Za-z0-9._-]*\{schema\}[A-Za-z0-9._-]*\{table\}[A-Za-z0-9._-]*")
_TOKEN = re.compile(r"\{([^}]*)\}|([A-Za-z0-9._-]+)")
_DOTS = {".": "_", "..": "__"}


def check_topic(expression: str, *, protocol: str | None = None, flavour: Flavour = "new") -> None:
    """Raise :class:`DispatchError` for a topic expression that TiCDC refuses, with its text.

    ``expression``: a rule's ``topic``. ``protocol``: ``avro`` asks for ``{schema}`` and ``{table}``; a plain name
    serves it in the new architecture only. ``flavour``: the classic architecture allows each part once, ``{schema}``
    before ``{table}``.

    Examples
    --------
    >>> check_topic("cdc_{schema}", protocol="canal-json")
    """
    avro = protocol is not None and protocol.lower().endswith("avro") and protocol.lower() != "simple-avro"
    if not expression or (flavour == "new" and _PLAIN.fullmatch(expression)):
        return
    if "{column:" in expression:
        raise DispatchError(
            f"The topic expression {expression!r} names a column, which only the newest TiCDC can and this does not.",
            hint="Write the topic with `{schema}` and `{table}`.",
        )
    if flavour == "classic":
        good = (_CLASSIC_AVRO if avro else _CLASSIC).fullmatch(expression) is not None
    else:
        names = _names(expression)
        good = names is not None and (not avro or {"schema", "table"} <= set(names))
    if not good:
        raise DispatchError(
            f"{_FAILED}{expression} ",
            hint="For avro a topic must contain `{schema}` and `{table}`."
            if avro
            else "Letters, digits, '.', '_' and '-' are allowed around `{schema}` and `{table}`.",
        )


def _names(expression: str) -> list[str] | None:
    """The text in braces; None where the expression is malformed."""
    parts = list(_TOKEN.finditer(expression))
    if "".join(p[0] for p in parts) != expression:
        return None
    names = [p[1] for p in parts if p[0].startswith("{")]
    return names if set(names) <= {"schema", "table"} else None


def topic_name(expression: str, schema_name: str, table_name: str, *, default_topic: str = "") -> str:
    """Name of the topic for a table, as TiCDC writes it.

    Examples
    --------
    >>> topic_name("cdc_{schema}_{table}", "shop", "orders")
    'cdc_shop_orders'
    >>> topic_name("", "shop", "orders", default_topic="all")
    'all'
    """
    if not expression:
        return default_topic
    if _PLAIN.fullmatch(expression):
        return expression
    parts = {"schema": schema_name, "table": table_name}
    name = re.sub(r"\{(schema|table)\}", lambda m: re.sub(_FORBIDDEN, "_", parts[m[1]]), expression)
    return _DOTS.get(name, name[:MAX_TOPIC_LENGTH])


def shared_topics(tables: Iterable[tuple[str, str]], topics: Sequence[str]) -> dict[str, list[str]]:
    """Tables that fall into one topic although their names differ and the expression distinguishes them.

    Parameters
    ----------
    tables
        Schema and table names.
    topics
        For each table its expression: what :func:`ticdc_lab.dispatch.rules.topic_of` found.

    Returns
    -------
    dict
        Topic to tables (``schema.table``), of those that meet only because characters were replaced or cut, or because
        the parts run together (``a_b`` + ``c`` and ``a`` + ``b_c``).
    """
    found: dict[str, list[tuple[str, str, str]]] = {}
    for (schema, table), expression in zip(tables, topics, strict=True):
        if expression and not _PLAIN.fullmatch(expression):
            found.setdefault(topic_name(expression, schema, table), []).append((expression, schema, table))
    return {
        topic: sorted(f"{s}.{t}" for _, s, t in members)
        for topic, members in sorted(found.items())
        if len({_told(*m) for m in members}) > 1
    }


def _told(expression: str, schema: str, table: str) -> tuple[str, str, str]:
    """What an expression takes of a table: two tables with the same are meant to share a topic."""
    return (expression, schema if "{schema}" in expression else "", table if "{table}" in expression else "")


def topic_balance(dispatched: DataFrame, *, partitions: int) -> DataFrame:
    """Rows per topic and how evenly they fill its partitions.

    Parameters
    ----------
    dispatched
        Events with ``target_topic`` and ``target_partition``, see
        :func:`ticdc_lab.dispatch.rules.dispatch_by_rules`. Every delivery counts.
    partitions
        Number of partitions of every topic, N.

    Returns
    -------
    DataFrame
        ``target_topic``, ``tables`` and ``rows`` (bigint), ``share`` of all rows, ``idle`` (int: partitions without a
        row) and ``max_over_mean`` (fullest partition over the mean; 1 is even).
    """
    names = ("schema_name", "table_name")
    require_columns(dispatched, "kind", *names, "target_topic", "target_partition")
    require_batch(dispatched, function="topic_balance", why="the share of a topic is of all rows")
    rows = dispatched.where("kind = 'row' AND target_partition IS NOT NULL")
    cells = rows.groupBy("target_topic", "target_partition").agg(
        F.count(F.lit(1)).alias("n"), F.collect_set(F.struct(*names)).alias("of")
    )
    total = F.sum("rows")
    topics = cells.groupBy("target_topic").agg(
        F.size(F.array_distinct(F.flatten(F.collect_list("of")))).cast("bigint").alias("tables"),
        F.sum("n").alias("rows"),
        (F.lit(partitions) - F.count(F.lit(1))).cast("int").alias("idle"),
        (F.max("n") * partitions / F.sum("n")).alias("max_over_mean"),
    )
    share = F.col("rows") / total.over(Window.partitionBy(F.lit(1)))
    return topics.select("target_topic", "tables", "rows", share.alias("share"), "idle", "max_over_mean")

"""All guarantees on one log."""

from __future__ import annotations

from collections.abc import Iterable

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from ticdc_lab.audit.broadcasts import ddl_events_are_in_time, ddl_events_on_all_partitions, log_breaches
from ticdc_lab.audit.explain import with_causes
from ticdc_lab.audit.findings import LOCATED, SEVERITIES, as_findings, text
from ticdc_lab.audit.guarantees import GUARANTEES, checks_possible
from ticdc_lab.audit.history import ROWS_AT_ONCE, row_history
from ticdc_lab.audit.marks import NAMES
from ticdc_lab.errors import ContractError, ProtocolError
from ticdc_lab.prefix import POSITION
from ticdc_lab.sample import Sample
from ticdc_lab.schema import FINDINGS, require_batch, require_columns

MAX_PER_GUARANTEE = 10_000


def audit(
    events: DataFrame,
    *,
    protocol: str,
    has_commit_ts: bool = True,
    checks: Iterable[str] | None = None,
    max_per_guarantee: int | None = MAX_PER_GUARANTEE,
    causes: DataFrame | None = None,
    with_keys: bool = True,
    chunk: int = ROWS_AT_ONCE,
    sample: Sample | None = None,
) -> DataFrame:
    """Check a recorded log against what TiCDC guarantees.

    Parameters
    ----------
    events
        The events contract; with the hash columns (:data:`ticdc_lab.schema.KEYS` and
        :data:`ticdc_lab.schema.IMAGE_HASHES`, as ``load`` gives them) images are read only of rows in findings.
    protocol
        Wire protocol: what it does by design is no finding.
    has_commit_ts
        False for canal-json without the TiDB extension.
    checks
        Names from :data:`ticdc_lab.audit.GUARANTEES`; by default all that can be checked on such a log, see
        :func:`ticdc_lab.audit.checks_possible`.
    max_per_guarantee
        Most findings of one guarantee, errors first; one more, of severity info, says how many were left out. None:
        all.
    causes
        Tables whose dispatch rule moves rows, see :func:`ticdc_lab.audit.explain.with_causes` and
        :func:`ticdc_lab.dispatch.infer.move_causes`. Without it, moves are not explained.
    with_keys
        Look the rows' keys up in their images; False leaves ``key`` null and reads no image.
    chunk
        Changes of rows that a task judges at once; changes nothing but its memory.
    sample
        What of the log ``events`` hold (:meth:`ticdc_lab.change_log.ChangeLog.sampled`); what it alone could make fail
        is not checked.

    Returns
    -------
    DataFrame
        :data:`ticdc_lab.schema.FINDINGS`, in a fixed order: guarantee, severity, topic, partition, offset.

    Raises
    ------
    ProtocolError
        A named check is not possible on such a log; the message says why.
    ContractError
        A column is missing, or no such check exists.
    StreamingError
        ``events`` is a stream.

    References
    ----------
    Seed, section "约束".

    Examples
    --------
    >>> found = log.events.transform(audit, protocol="canal-json", checks=["watermarks_are_monotone"])
    >>> found.count()
    0
    """
    require_columns(events, "kind", "commit_ts", "op", "query", *NAMES, *POSITION)
    require_batch(events, function="audit", why="a row may change again at any later offset")
    names = _chosen(checks, checks_possible(protocol, has_commit_ts=has_commit_ts, sample=sample))
    of_rows = [n for n in names if GUARANTEES[n].row]
    of_log = [n for n in names if GUARANTEES[n].log]
    found = []
    if of_log:
        breached = log_breaches(events, protocol=protocol, names=of_log)
        found.append(_capped(_broken_promises(breached, names=of_log), most=max_per_guarantee))
    if of_rows:
        history = row_history(events, has_commit_ts=has_commit_ts, chunk=chunk)
        # causes first: what they lower must not crowd errors out
        broken = with_causes(_broken_rows(history, names=of_rows), causes=causes)
        broken = _capped(broken, most=max_per_guarantee)
        found.append(_with_row_keys(broken, events=events) if with_keys else broken)
    whole = found[0]
    for part in found[1:]:
        whole = whole.unionByName(part)
    # not orderBy: its sampling would run everything twice for a few rows
    return whole.repartition(1).sortWithinPartitions(*_order()).select(*FINDINGS.names)


def _chosen(checks: Iterable[str] | None, possible: dict[str, str]) -> list[str]:
    if checks is None:
        return [n for n, why in possible.items() if not why]
    names = list(dict.fromkeys(checks))
    unknown = [n for n in names if n not in GUARANTEES]
    if unknown or not names:
        raise ContractError(
            f"No such check: {unknown}; there are {list(GUARANTEES)}.",
            hint="Leave checks out to run all that are possible.",
        )
    for n in names:
        if possible[n]:
            raise ProtocolError(
                f"{n} cannot be checked: {possible[n]}.",
                hint="Take the whole log, or record the topic with a protocol that has it.",
            )
    return names


def _broken_rows(history: DataFrame, *, names: list[str]) -> DataFrame:
    """All guarantees about rows in one pass over the history."""
    said = [_said(n) for n in names]
    located = ("topic", *NAMES)
    return (
        history.select(*located, F.explode(F.array_compact(F.array(*said))).alias("f"))
        .select(*located, "f.guarantee", "f.finding.*")
        .withColumn("table", F.concat_ws(".", *NAMES))
        .transform(as_findings)
    )


def _broken_promises(breached: DataFrame, *, names: list[str]) -> DataFrame:
    """All guarantees about the log in one pass over its breaches; the tables are those of a DDL."""
    finding = F.coalesce(*[F.when(F.col("guarantee") == n, _rule(n)) for n in names])
    named = F.concat_ws(".", "schema_name", F.when(F.col("table_name") != "", F.col("table_name")))
    of_ddl = F.col("guarantee").isin(ddl_events_on_all_partitions.__name__, ddl_events_are_in_time.__name__)
    return (
        breached.select("guarantee", "topic", F.when(of_ddl, named).alias("table"), finding.alias("f"))
        .select("guarantee", "topic", "table", "f.*")
        .transform(as_findings)
    )


def _rule(name: str) -> Column:
    rule = GUARANTEES[name].row or GUARANTEES[name].log
    assert rule is not None
    return rule()


def _said(name: str) -> Column:
    finding = _rule(name)
    return F.when(finding.isNotNull(), F.struct(F.lit(name).alias("guarantee"), finding.alias("finding")))


def _capped(findings: DataFrame, *, most: int | None) -> DataFrame:
    """At most so many findings of each guarantee, errors first, and one that counts the rest."""
    if most is None:
        return findings
    each = Window.partitionBy("guarantee")
    ranked = findings.withColumns(
        {"_place": F.row_number().over(each.orderBy(*_order())), "_all": F.count(F.lit(1)).over(each)}
    )
    more = text(F.col("_all") - most, " more findings of this guarantee are not listed")
    over = F.col("_place") > most
    rest = {
        "severity": F.lit("info"),
        "message": more,
        **dict.fromkeys(("table", "commit_ts", "evidence"), F.lit(None)),
    }
    return (
        ranked.where(F.col("_place") <= most + 1)
        .select(*[F.when(over, rest[c]).otherwise(F.col(c)).alias(c) if c in rest else F.col(c) for c in LOCATED])
        .transform(as_findings)
    )


def _with_row_keys(findings: DataFrame, *, events: DataFrame) -> DataFrame:
    """Add the row's key as ``column=value``; the only place that reads images, and only where there are findings."""
    image = F.coalesce("columns", "before")
    key = F.array_join(
        F.transform(F.filter(image, lambda c: c["is_key"]), lambda c: F.concat(c["name"], F.lit("="), c["value"])), ", "
    )
    said = findings.select(*[F.col(c).alias(f"_f_{c}") for c in LOCATED], F.monotonically_increasing_id().alias("_id"))
    same = [F.col(c).eqNullSafe(F.col(f"_f_{c}")) for c in POSITION]
    located = events.where("kind = 'row'").select(*POSITION, key.alias("_key")).join(F.broadcast(said), on=same)
    # captures may overlap, so one event be there twice
    located = located.groupBy(*said.columns).agg(F.min("_key").alias("_key"))
    of = {c: F.col(f"_f_{c}") for c in LOCATED} | {
        "key": F.when((F.col("_key") != "") & F.col("_f_table").isNotNull(), F.col("_key"))
    }
    return located.select(*[of[c].alias(c) for c in LOCATED])


def _order() -> list[Column | str]:
    rank = F.when(F.col("severity") == SEVERITIES[0], 0).when(F.col("severity") == SEVERITIES[1], 1).otherwise(2)
    return ["guarantee", rank, *[F.col(c).asc_nulls_first() for c in (*POSITION, "commit_ts", "table", "message")]]

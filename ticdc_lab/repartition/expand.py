"""The decision taken on a recorded log: its facts, the plan, and the log as it would then lie in Kafka."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from ticdc_lab.dispatch.infer import infer_rules
from ticdc_lab.dispatch.names import CONFLICT
from ticdc_lab.dispatch.rules import Rule
from ticdc_lab.encode.produce import resolved_values
from ticdc_lab.engine.paths import stored_parquet
from ticdc_lab.errors import ContractError, DispatchError
from ticdc_lab.events import tso
from ticdc_lab.events.schema import EVENTS, require_batch, require_columns
from ticdc_lab.facts.catalog import Catalog
from ticdc_lab.repartition.plan import Facts, Marks, Plan, Timing, decide, delays_of
from ticdc_lab.repartition.rewrite import repartitioned

IS_DATED_ROW = "kind = 'row' AND commit_ts IS NOT NULL"


@dataclass(frozen=True, slots=True)
class Expansion:
    """A log of which the number of partitions changed.

    Attributes
    ----------
    plan
        Who did what when.
    rules
        By which rows were dispatched, before and after.
    recorded
        The log as it was recorded.
    events
        The log as it would lie in Kafka, see :func:`ticdc_lab.repartition.rewrite.repartitioned`.
    catalog
        Table definitions, for rules with an index.
    """

    plan: Plan
    rules: tuple[Rule, ...]
    recorded: DataFrame
    events: DataFrame
    catalog: Catalog | None = None

    def kept(self, folder: str) -> Expansion:
        """The same with its events read from ``folder``, a path or URL that does not exist yet: laid once."""
        self.events.write.parquet(folder)
        return replace(self, events=stored_parquet(self.events.sparkSession, folder, schema=self.events.schema))


def expand(
    events: DataFrame,
    *,
    after: int,
    before: int | None = None,
    rules: Sequence[Rule] | None = None,
    catalog: Catalog | None = None,
    at: int | None = None,
    procedure: str = "design",
    timing: Timing | None = None,
) -> Expansion:
    """Change the number of partitions in the middle of a recorded log.

    Needs a few aggregates (tables, watermarks around ``at``) at once; the log itself stays lazy.

    Parameters
    ----------
    events
        The events contract, with commit_ts.
    after, before
        Numbers of partitions; ``before`` as recorded by default.
    rules
        Dispatch rules; by default those that :func:`rules_recorded` tells.
    catalog
        For rules with an index.
    at
        TSO at which the owner decides; the middle of the log by default.
    procedure
        ``design``; ``no-feedback``, in which the owner sends the Admin event at once; ``just-add``. See
        :mod:`ticdc_lab.repartition.plan`.
    timing
        What the log cannot tell.

    Returns
    -------
    Expansion
        Who did what when, and the log as it would lie in Kafka.

    Raises
    ------
    DispatchError
        A rule asks for conflict detection.
    ContractError
        A column is missing, the log holds no row with a commit_ts, ``at`` lies outside the log, or the counts or the
        procedure make no sense.
    StreamingError
        ``events`` is a stream.
    """
    require_columns(events, *EVENTS.names)
    require_batch(events, function="expand", why="the whole log is laid anew")
    if any(rule.partition.lower() == CONFLICT for rule in rules or ()):
        raise DispatchError(
            "Conflict detection cannot go over to another number of partitions: no protocol carries its alignments.",
            hint="Name one of TiCDC's dispatchers.",
        )
    known, timing = facts_of(events), timing or Timing()
    moment = known.middle if at is None else at
    if not known.first_ts <= moment <= known.last_ts:
        raise ContractError(
            f"at is {moment}; the rows of the log lie from {known.first_ts} to {known.last_ts}.",
            hint="Name a TSO between them, or leave it out for the middle.",
        )
    longest = max(delays_of(known, timing)) + timing.report_ms + timing.admin_ms + timing.restart_ms
    marks_at = marks_of(events, at=moment, until=tso.compose(tso.physical_ms(moment) + longest))
    plan = decide(
        known, marks_at, procedure=procedure, before=known.partitions if before is None else before, after=after,
        at=moment, timing=timing,
    )  # fmt: skip
    by = rules_recorded(events) if rules is None else tuple(rules)
    return Expansion(plan, by, events, repartitioned(events, plan=plan, rules=by, catalog=catalog), catalog)


def facts_of(events: DataFrame) -> Facts:
    """Tables, topics and extent of a log.

    Raises
    ------
    ContractError
        It holds no row with a commit_ts.
    """
    by, is_dated = ("topic", "schema_name", "table_name"), F.expr(IS_DATED_ROW)
    each = events.groupBy(*by).agg(
        F.count_if(is_dated).alias("rows"),
        F.min(F.when(is_dated, F.col("commit_ts"))).alias("first_ts"),
        F.max(F.when(is_dated, F.col("commit_ts"))).alias("last_ts"),
        F.max("partition").alias("partition"),
        F.max("protocol").alias("protocol"),
    )
    found = each.collect()
    dated = [r for r in found if r["rows"]]
    if not dated:
        raise ContractError(
            "The log holds no row change with a commit_ts, so nothing can be laid anew in commit order.",
            hint="Record with a protocol that carries commit_ts.",
        )
    return Facts(
        tables=tuple(sorted({(r["schema_name"], r["table_name"]) for r in dated})),
        topics=tuple(sorted({r["topic"] for r in found})),
        protocol=max(r["protocol"] or "" for r in found),
        partitions=1 + max(r["partition"] for r in found),
        first_ts=min(r["first_ts"] for r in dated),
        last_ts=max(r["last_ts"] for r in dated),
    )


def marks_of(events: DataFrame, *, at: int, until: int) -> Marks:
    """The global resolved_ts at ``at`` and its values from then to ``until`` (TSO), and the first DDL not written."""
    value = F.col("commit_ts")
    around = resolved_values(events).agg(
        F.max(F.when(value <= at, value)).alias("resolved"),
        F.sort_array(F.collect_set(F.when((value > at) & (value <= until), value))).alias("later"),
    )
    found = around.collect()[0]
    resolved = found["resolved"] or 0
    ddl = events.where((F.col("kind") == "ddl") & (value > resolved)).agg(F.min(value)).collect()[0][0]
    return Marks(resolved, tuple(found["later"]), ddl)


def rules_recorded(events: DataFrame) -> tuple[Rule, ...]:
    """The rules that :func:`ticdc_lab.dispatch.infer.infer_rules` tells; the most frequent one for all other tables."""
    found = infer_rules(events).select("schema_name", "table_name", "rule").distinct().collect()
    by_rule: dict[str, list[str]] = {}
    for r in sorted(found, key=lambda r: tuple(r)):
        by_rule.setdefault(r["rule"], []).append(f"{_quoted(r['schema_name'])}.{_quoted(r['table_name'])}")
    common = Counter({rule: len(tables) for rule, tables in by_rule.items()}).most_common(1)
    named = [rule_of(rule, tables) for rule, tables in by_rule.items() if rule != common[0][0]]
    return (*named, *[rule_of(rule, ["*.*"]) for rule, _ in common])


def rule_of(name: str, matcher: Sequence[str] = ("*.*",)) -> Rule:
    """A rule from a name such as ``table``, ``index-value``, ``ts``, ``index-value:uk`` or ``columns:a,b``."""
    strategy, _, what = name.partition(":")
    columns = tuple(c.strip() for c in what.split(",")) if strategy == "columns" and what else ()
    return Rule(tuple(matcher), strategy, what if strategy == "index-value" else "", columns)


def _quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"

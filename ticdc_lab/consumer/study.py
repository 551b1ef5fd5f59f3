"""One log under every strategy, number of partitions and consumer; and the consumer over logs of any size."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import LongType, StringType, StructType

from ticdc_lab.consumer.anomalies import ANOMALIES, MAX_PER_KIND, anomalies, anomaly_counts
from ticdc_lab.consumer.consistency import states, wrong_time
from ticdc_lab.consumer.listener import Listeners
from ticdc_lab.consumer.log import MOST_EVENTS, ROW, NarrowLog, few, narrow
from ticdc_lab.consumer.model import ConsumerRun, run
from ticdc_lab.consumer.policy import Policy
from ticdc_lab.consumer.record import DELIVERIES, STEPS
from ticdc_lab.dispatch import check_strategy, dispatch
from ticdc_lab.dispatch.names import CONFLICT, RECORDED
from ticdc_lab.errors import DispatchError
from ticdc_lab.events.arrays import NO_TS, Ints, changes_in
from ticdc_lab.events.schema import described, require_batch
from ticdc_lab.events.tso import tso_words
from ticdc_lab.facts.catalog import Catalog, catalog_of
from ticdc_lab.facts.laggards import resolved_at_steps

STRATEGIES = ("table", "index-value", "ts")

COUNTS = (*range(1, 17), 32, 64, 128)
"""Numbers of partitions that a study can answer for: they divide :data:`_WHOLE`."""

_WHOLE = 5_765_760
_TARGET = "_target_"


@dataclass(frozen=True, eq=False, slots=True)
class Study:
    """A log, or an excerpt of one, on the driver.

    Attributes
    ----------
    recorded
        As it was recorded.
    strategies
        What it can be laid out by.
    """

    recorded: NarrowLog
    strategies: tuple[str, ...]

    @classmethod
    def of(
        cls, events: DataFrame, *, strategies: Sequence[str] = STRATEGIES, most: int = MOST_EVENTS,
        catalog: Catalog | None = None, **more: Column,
    ) -> Study:  # fmt: skip
        """Measure a log, in one Spark job and one small one for its DDL.

        Parameters
        ----------
        events
            The events contract; filter by commit_ts for a part of a longer log.
        strategies
            Names of :data:`ticdc_lab.dispatch.STRATEGIES`; each takes 4 bytes an event.
        most
            Events that are accepted; each takes about 100 bytes of the driver's memory.
        catalog
            Definitions of the tables; the log's own where left out.
        more
            As for :func:`ticdc_lab.consumer.log.narrow`.

        Raises
        ------
        ContractError
            A column is missing, or there are more than ``most`` events.
        DispatchError
            A strategy is unknown, or is ``conflict``, whose alignments no consumer here reads.
        StreamingError
            ``events`` is a stream.
        """
        table = few(
            study_frame(events, strategies=strategies, catalog=catalog, **more), most=most, what="events",
            taker="a study on the driver",
            hint="Filter by `commit_ts`: every answer is then about that part of the log only.",
        )  # fmt: skip
        return cls(NarrowLog.of(table), tuple(strategies))

    def laid(self, strategy: str, partitions: int) -> NarrowLog:
        """Give the log as a changefeed would write it that reads the whole log in commit order.

        Parameters
        ----------
        strategy
            One of :attr:`strategies`.
        partitions
            One of :data:`COUNTS`.

        Returns
        -------
        NarrowLog
            As :func:`ticdc_lab.encode.produce.produce` would write it, a message an event: rows in commit order, DDL
            after the rows that it was committed with, in all partitions or, where the recording has it so, in partition
            0 alone, and the global resolved_ts in all. The topic is ``what-if``. It has
            one number of partitions throughout: Admin events of the recording are left out.

        Raises
        ------
        DispatchError
            The strategy was not measured, the number of partitions is none of :data:`COUNTS`, or a row cannot be
            dispatched.
        """
        if strategy not in self.strategies or partitions not in COUNTS:
            raise DispatchError(
                f"{strategy} with {partitions} partitions was not measured; there are {', '.join(self.strategies)}, "
                f"with {', '.join(map(str, COUNTS))}.",
                hint="Pass the strategy to Study.of.",
            )
        log = self.recorded
        target = log.events[f"{_TARGET}{self.strategies.index(strategy)}"]
        rows = np.flatnonzero(log.kind == ROW)
        if len(failed := np.flatnonzero(target.is_null().to_numpy() & (log.kind == ROW))):
            row = log.events.slice(int(failed[0]), 1).to_pylist()[0]
            raise DispatchError(
                f"{row['schema_name']}.{row['table_name']} at commit_ts {tso_words(row['commit_ts'])} cannot be "
                f"dispatched by {strategy}: the topic cannot be written."
            )
        homes = pc.fill_null(target, 0).to_numpy()[rows] % partitions
        ddl = np.array([int(np.flatnonzero(log.ddl == d)[0]) for d in range(len(log.ddls))], np.int64)
        everywhere = range(partitions) if log.everywhere else range(1)
        marks, mark_ts = self._marks()
        parts = [
            (rows, homes, log.op_rank[rows], log.commit_ts[rows]),
            *[(ddl, np.full(len(ddl), p), np.full(len(ddl), 3), log.commit_ts[ddl]) for p in everywhere],
            *[(marks, np.full(len(marks), p), np.full(len(marks), 4), mark_ts) for p in range(partitions)],
        ]
        place, home, rank, ts = (np.concatenate([p[i] for p in parts]).astype(np.int64) for i in range(4))
        order = np.lexsort((place, rank, ts, home))
        return NarrowLog.of(_placed(log.events, place[order], home[order], ts[order]))

    def _marks(self) -> tuple[Ints, Ints]:
        """Places of watermarks to copy, and the values that the global resolved_ts takes."""
        log = self.recorded
        of_each = [log.marks_while_it_counts(p) for p in log.parts]
        if not of_each or not all(map(len, of_each)):
            return np.empty(0, np.int64), np.empty(0, np.int64)
        _, resolved = resolved_at_steps([np.unique(log.commit_ts[own]) for own in of_each])
        values = np.unique(resolved[resolved != NO_TS])
        return np.full(len(values), of_each[0][0]), values


def study_frame(
    events: DataFrame, *, strategies: Sequence[str] = STRATEGIES, catalog: Catalog | None = None, **more: Column
) -> DataFrame:
    """Give what a :class:`Study` is made of, as a narrow frame.

    ``events``, ``strategies``, ``catalog``, ``more``: as for :meth:`Study.of`. Returns: as
    :func:`ticdc_lab.consumer.log.narrow` gives, and an int column for each strategy. Raises ContractError,
    DispatchError, StreamingError: as of :meth:`Study.of`.
    """
    require_batch(events, function="Study.of", why="a consumer is modelled over a recorded log")
    for s in strategies:
        check_strategy(s)
        if s.lower() == CONFLICT:
            raise DispatchError("A consumer that waits at alignments is not modelled; leave out `conflict`.")
    own = catalog_of(events) if catalog is None and strategies else catalog
    targets = {}
    for i, s in enumerate(strategies):
        name = f"{_TARGET}{i}"
        events = dispatch(events, strategy=s, partitions=_WHOLE, catalog=own)
        events = events.withColumnRenamed("target_partition", name).drop("dispatch_key", "dispatch_error")
        targets[name] = F.col(name)
    return narrow(events, **targets, **more)


def _placed(events: pa.Table, place: Ints, home: Ints, ts: Ints) -> pa.Table:
    """Events at ``place`` in new partitions, in the given order, with the given commit_ts."""
    new = changes_in(home)
    starts = np.flatnonzero(new)
    offset = np.arange(len(home)) - starts[np.cumsum(new) - 1] if len(home) else home
    moved = {
        "topic": pa.array(["what-if"] * len(home)),
        "partition": pa.array(home, pa.int32()),
        "offset": pa.array(offset),
        "seq": pa.array(np.zeros(len(home), np.int32)),
        "commit_ts": pa.array(ts),
    }
    kept = [n for n in events.column_names if n not in moved and not n.startswith(_TARGET)]
    rest = events.select(kept).take(pa.array(place))
    return pa.table({**moved, **{n: rest[n] for n in kept}})


NEVER_WAS = "state that never existed"
"""The kind under which a matrix counts states of the downstream that upstream never had."""

_LONG, _STR = LongType(), StringType()

MATRIX = StructType(
    [
        described("policy", _STR, "name of the consumer's rules"),
        described("strategy", _STR, "dispatcher; `as recorded` for the log as it is"),
        described("partitions", _LONG, "number of partitions"),
        described("speeds", _STR, "what the listeners' speeds and faults are called"),
        described("kind", _STR, "kind of anomaly, or `state that never existed`"),
        described("n", _LONG, "how many"),
        described("wrong_us", _LONG, "how long at least one was seen, µs of consumer time"),
        described("total_us", _LONG, "how long the run took, µs"),
    ]
)


@dataclass(frozen=True, slots=True)
class Scenario:
    """One consumer of one layout of a log.

    Attributes
    ----------
    policy
        Its rules.
    strategy, partitions
        How the log is laid out (see :meth:`ticdc_lab.consumer.study.Study.laid`); as recorded where left out.
    listeners, speeds
        Speeds and faults, and what they are called.
    """

    policy: Policy
    strategy: str = RECORDED
    partitions: int = 0
    listeners: Listeners = field(default_factory=Listeners)
    speeds: str = "even"


def consumption(events: DataFrame, *, policy: Policy, listeners: Listeners | None = None) -> DataFrame:
    """Let a consumer read a log: what became of every row change, each time it was read.

    Parameters
    ----------
    events
        The events contract.
    policy, listeners
        As for :func:`ticdc_lab.consumer.model.run`.

    Returns
    -------
    DataFrame
        :data:`ticdc_lab.consumer.record.DELIVERIES`.

    Raises
    ------
    ContractError, StreamingError
        A column is missing, or ``events`` is a stream. When the frame is read, Spark fails with a ContractError's
        text if an event has no commit_ts.

    Notes
    -----
    What one listener does depends on all others, so the narrow log (about 100 bytes an event) is held by one task;
    nothing comes to the driver.
    """
    return _in_one_task(events, policy, listeners, DELIVERIES, lambda found, log: found.deliveries)


def consumer_steps(events: DataFrame, *, policy: Policy, listeners: Listeners | None = None) -> DataFrame:
    """As :func:`consumption`, but what the consumer did: :data:`ticdc_lab.consumer.record.STEPS`."""
    return _in_one_task(events, policy, listeners, STEPS, lambda found, log: found.steps)


def consumer_anomalies(
    events: DataFrame, *, policy: Policy, listeners: Listeners | None = None, max_per_kind: int = MAX_PER_KIND
) -> DataFrame:
    """As :func:`consumption`, but what went wrong: :data:`ticdc_lab.consumer.anomalies.ANOMALIES`.

    ``max_per_kind`` are kept of each kind, the first in consumer time.
    """
    return _in_one_task(
        events, policy, listeners, ANOMALIES, lambda found, log: anomalies(found, log, most=max_per_kind)
    )


def _in_one_task(
    events: DataFrame, policy: Policy, listeners: Listeners | None, schema: StructType,
    tell: Callable[[ConsumerRun, NarrowLog], pa.Table],
) -> DataFrame:  # fmt: skip
    require_batch(events, function="consumption", why="a consumer is modelled over a recorded log")

    def model(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        held = list(batches)
        if held:
            log = NarrowLog.of(pa.Table.from_batches(held))
            yield from tell(run(log, policy, listeners), log).cast(to_arrow_schema(schema)).to_batches(10_000)

    return narrow(events).repartition(1).mapInArrow(model, schema)


def matrix(study: Study, scenarios: Sequence[Scenario]) -> pd.DataFrame:
    """Run many consumers over a study's log, one after the other.

    Returns
    -------
    pd.DataFrame
        :data:`MATRIX`: for each scenario a row for each kind of anomaly and one for :data:`NEVER_WAS`.
    """
    return pd.DataFrame([row for s in scenarios for row in _judged(study, s)], columns=MATRIX.names)


def judged(found: ConsumerRun, log: NarrowLog, scenario: Scenario) -> list[dict[str, Any]]:
    """Judge what a scenario's consumer made of its log: the scenario's rows of :data:`MATRIX`."""
    n, wrong = wrong_time(states(found))
    counts = [{"kind": NEVER_WAS, "n": n, "wrong_us": wrong}, *anomaly_counts(found, log).to_pylist()]
    s = scenario
    what = {"policy": s.policy.name, "strategy": s.strategy, "partitions": len(log.parts), "speeds": s.speeds}
    return [{**what, **c, "total_us": found.end_us} for c in counts]


def consumer_matrix(events: DataFrame, *, scenarios: Sequence[Scenario]) -> DataFrame:
    """Run many consumers over one log, each in a task of its own.

    Parameters
    ----------
    events
        The events contract.
    scenarios
        What to run.

    Returns
    -------
    DataFrame
        :data:`MATRIX`, as :func:`matrix` gives.

    Raises
    ------
    ContractError, DispatchError, StreamingError
        As of :meth:`ticdc_lab.consumer.study.Study.of`.
    """
    strategies = tuple(sorted({s.strategy for s in scenarios} - {RECORDED}))
    numbers = events.sparkSession.range(len(scenarios)).withColumnRenamed("id", "_scenario")
    each = study_frame(events, strategies=strategies).crossJoin(F.broadcast(numbers))

    def judge(key: tuple[Any, ...], log: pa.Table) -> pa.Table:
        study = Study(NarrowLog.of(log.drop_columns(["_scenario"])), strategies)
        return pa.Table.from_pylist(_judged(study, scenarios[key[0].as_py()]), schema=to_arrow_schema(MATRIX))

    return each.groupBy("_scenario").applyInArrow(judge, MATRIX)


def layout(study: Study, scenario: Scenario) -> NarrowLog:
    """The log as a scenario's consumer reads it."""
    recorded = scenario.strategy == RECORDED
    return study.recorded if recorded else study.laid(scenario.strategy, scenario.partitions)


def _judged(study: Study, s: Scenario) -> list[dict[str, Any]]:
    log = layout(study, s)
    return judged(run(log, s.policy, s.listeners), log, s)

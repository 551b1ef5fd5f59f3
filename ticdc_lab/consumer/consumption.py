"""The model of a consumer over a log of any size, in one task of Spark; and many of them over one log, in parallel."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import pandas as pd
import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import LongType, StringType, StructType

from ticdc_lab.consumer.anomalies import ANOMALIES, MAX_PER_KIND, anomalies, anomaly_counts
from ticdc_lab.consumer.consistency import states, wrong_time
from ticdc_lab.consumer.listeners import Listeners
from ticdc_lab.consumer.log import NarrowLog
from ticdc_lab.consumer.model import ConsumerRun, run
from ticdc_lab.consumer.narrow import narrow
from ticdc_lab.consumer.policy import Policy
from ticdc_lab.consumer.record import DELIVERIES, STEPS
from ticdc_lab.consumer.study import Study, study_frame
from ticdc_lab.events.schema import described, require_batch

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

RECORDED = "as recorded"


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
        text if an event lacks commit_ts.

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
        As :meth:`ticdc_lab.consumer.study.Study.of` says.
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

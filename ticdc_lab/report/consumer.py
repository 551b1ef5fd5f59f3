"""What consumers make of the beginning of a log, as figures that answer without a kernel."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from ticdc_lab import figures
from ticdc_lab.change_log import ChangeLog
from ticdc_lab.consumer.anomalies import anomalies
from ticdc_lab.consumer.consumption import RECORDED, Scenario, matrix
from ticdc_lab.consumer.ddl_timeline import ddl_timeline
from ticdc_lab.consumer.downstream import frames_of, small_frame
from ticdc_lab.consumer.listeners import Listeners
from ticdc_lab.consumer.log import ROW, NarrowLog
from ticdc_lab.consumer.model import run
from ticdc_lab.consumer.narrow import excerpt
from ticdc_lab.consumer.policy import REFERENCE_FIXED, SEED_ROW, SEED_TRANSACTION, STRICT
from ticdc_lab.consumer.study import Study
from ticdc_lab.engine.shuffle import quantiles
from ticdc_lab.figures.figure import Figure
from ticdc_lab.figures.theme import count
from ticdc_lab.report.page import plain
from ticdc_lab.report.what_if import Studies
from ticdc_lab.sample import from_first_row

MOST_EVENTS = 20_000
"""Events that consumers are modelled on: those of the least commit_ts, about."""

_PER_SECOND, _WRITE_US = 5000, 20
_SHOWN = (SEED_ROW, REFERENCE_FIXED, SEED_TRANSACTION, STRICT)
_MODEL = (
    f"These are runs of a model: every listener reads {_PER_SECOND:,} messages a second, all of which are there when "
    f"it begins, or one of them only a quarter, and a downstream transaction takes {_WRITE_US} µs. A consumer that "
    "shows nothing wrong here may do so at other speeds; what is shown wrong can happen."
)
_NO_VALUES = (
    "A state is judged by the versions of rows: one that never existed may yet hold the same values. Rows without a "
    "key do not count. Sums over columns, such as a balance, need a column to be named: see notebook 05."
)


def watch(log: ChangeLog) -> Studies:
    """Let consumers read the beginning of a log; three Spark jobs at most."""
    if not log.has_commit_ts:
        return Studies("It cannot be told from this log, because nothing orders its changes.", log.limits, ())
    events = log.events.where("kind IN ('row', 'watermark', 'ddl') AND commit_ts IS NOT NULL")
    if log.sample is not None:
        events = events.transform(from_first_row)
    total = events.count()
    part = excerpt(_beginning(events, total), most=4 * MOST_EVENTS)
    cut = f"Only {len(part.kind):,} of {total:,} events were read: those up to one commit_ts."
    return watched(part, limits=[cut] if len(part.kind) < total else [])


def _beginning(events: DataFrame, total: int) -> DataFrame:
    """Events up to the commit_ts below which about as many lie as may be read."""
    if total <= MOST_EVENTS:
        return events
    found = quantiles(events, "commit_ts", [MOST_EVENTS / total], accuracy=10_000)
    return events.where(F.col("commit_ts") <= (found[0] if found else 0))


def watched(part: NarrowLog, *, limits: Sequence[str] = ()) -> Studies:
    """Draw what consumers make of a log; no Spark job."""
    if not (part.kind == ROW).any():
        return Studies("The log holds no row change, so nothing ends up downstream.", limits, ())
    speeds = _speeds(part)
    study = Study(part, ())
    scenarios = [Scenario(p, RECORDED, 0, how, words) for words, how in speeds.items() for p in _SHOWN]
    counted = figures.anomaly_matrix(matrix(study, scenarios))
    words, slow = list(speeds.items())[-1]
    which = (
        f"Below the matrix, {words}: the example and the player are of {SEED_ROW.name}, the DDL timeline of "
        f"{SEED_TRANSACTION.name}."
    )
    hasty, whole = run(part, SEED_ROW, slow), run(part, SEED_TRANSACTION, slow)
    wrong = small_frame(anomalies(hasty, part, most=1))
    shown: list[Figure] = [counted]
    shown += [figures.counterexample(a) for a in _two_lanes(wrong.to_dict("records"))[:1]]
    shown += [figures.consumer_lanes_stepped(*frames_of(hasty), order="commit")]
    shown += [figures.ddl_timeline(ddl_timeline(whole, part))] if part.ddls else []
    held = whole.deliveries["outcome"].to_pylist().count("pending")
    left = (
        f"At the end {count(held, 'row change is', 'row changes are')} still held: no watermark of all releases them."
    )
    return Studies(f"{plain(counted)}.", [*limits, *([left] if held else []), which, _MODEL, _NO_VALUES], shown)


def _two_lanes(found: Sequence[Mapping[object, object]]) -> list[dict[str, object]]:
    """Anomalies that more than one message shows."""
    told = [{str(k): v for k, v in a.items()} for a in found]
    return [a for a in told if len(list(a["evidence"])) > 1]  # type: ignore[call-overload]


def _speeds(part: NarrowLog) -> dict[str, Listeners]:
    """All alike, and the partition with most events slow: the one that holds the others up longest."""
    even = Listeners(per_second=_PER_SECOND, write_us=_WRITE_US)
    if len(part.parts) < 2:
        return {"one listener": even}
    fullest = max(part.parts, key=lambda p: (p.end - p.first, -p.partition)).partition
    slow = Listeners(per_second=_PER_SECOND, speeds={fullest: _PER_SECOND // 4}, write_us=_WRITE_US)
    return {"all alike": even, f"partition {fullest} slow": slow}

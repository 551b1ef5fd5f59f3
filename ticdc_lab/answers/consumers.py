"""What ends up downstream: what consumers show on the way that upstream never had."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from math import inf
from typing import TYPE_CHECKING

import pandas as pd
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from ticdc_lab import figures
from ticdc_lab.answers.answer import Answer
from ticdc_lab.consumer.anomalies import anomalies, smallest
from ticdc_lab.consumer.consistency import invariant_curve, measure_of
from ticdc_lab.consumer.ddl_timeline import ddl_timeline
from ticdc_lab.consumer.downstream import frames_of, small_frame
from ticdc_lab.consumer.listener import Listeners
from ticdc_lab.consumer.log import IS_CONSUMED, READ, ROW, NarrowLog, excerpt, narrowed
from ticdc_lab.consumer.model import ConsumerRun, run
from ticdc_lab.consumer.policy import DESIGN_ROW, DESIGN_TRANSACTION, POLICIES, REFERENCE_FIXED, STRICT, Policy
from ticdc_lab.consumer.study import MATRIX, Scenario, Study, judged
from ticdc_lab.dispatch.names import RECORDED
from ticdc_lab.engine.shuffle import quantiles
from ticdc_lab.errors import ContractError
from ticdc_lab.events.sample import from_first_row
from ticdc_lab.facts.catalog import catalog_of
from ticdc_lab.facts.limits import but_for
from ticdc_lab.figures.figure import Figure
from ticdc_lab.sources.change_log import ChangeLog
from ticdc_lab.words import count, lane_of

if TYPE_CHECKING:
    from ticdc_lab.log import Log

MOST_EVENTS = 20_000
"""Events that consumers are modelled on: about the first by commit_ts."""

_QUESTION = "What ends up downstream?"
PER_SECOND, WRITE_US = 5000, 20
"""Messages that a listener reads in a second, and what a transaction of the downstream takes, unless given."""

_OF_A_MESSAGE = ["topic", "partition", "offset", "kind", "commit_ts"]
SHOWN = (DESIGN_ROW, REFERENCE_FIXED, DESIGN_TRANSACTION, STRICT)
_OWN_SPEEDS = (
    f"every listener reads {PER_SECOND:,} messages a second, or one of them only a quarter of that; the whole log is "
    f"there at the beginning; a downstream transaction takes {WRITE_US} µs"
)
_MODEL = (
    "These are runs of a model: {speeds}. What is shown wrong here can happen. A consumer that shows nothing wrong "
    "here may still do so at other speeds."
)
_NO_VALUES = (
    "A state is judged by the versions of its rows: a state that never existed may still contain values that upstream "
    "had. Rows without a key do not count."
)
_NAME_A_COLUMN = "No sum was followed: name a column whose sum upstream never changes, such as a balance."


def consumers(
    part: NarrowLog, *, limits: Sequence[str] = (), policies: Sequence[Policy] = SHOWN,
    speeds: Mapping[str, Listeners] | None = None, watched: str = "", examples: int = 0, laid: str = RECORDED,
    qualified: str = "", lane: str = "partition",
) -> Answer:  # fmt: skip
    """What consumers make of a log: states that upstream never had, who shows them, for how long; no engine runs.

    ``part``: what they read. ``limits``: further known limits. ``policies``: the consumers'
    rules. ``speeds``: words to how fast they read; by default all partitions alike, and the fullest one slow.
    ``watched``: a column whose sum is followed (``part`` then has it as ``measure``); empty for none. ``examples``:
    anomalies of each kind and run that are given with the fewest messages that show them, in ``examples``. ``laid``: by
    which dispatcher ``part`` is laid out. ``qualified``: what must be added to what they show
    (:func:`ticdc_lab.facts.limits.but_for`). ``lane``: what a listener reads, ``partition`` or ``stream``.
    """
    if not (part.kind == ROW).any():
        return Answer("consumer", _QUESTION, "The log has no row change, so nothing ends up downstream.", {}, limits)
    model = _MODEL.format(speeds=_OWN_SPEEDS if speeds is None else "; ".join(speeds))
    unwatched = [] if watched else [_NAME_A_COLUMN]
    speeds = _speeds(part, lane) if speeds is None else speeds
    scenarios = [Scenario(p, laid, len(part.parts), how, words) for words, how in speeds.items() for p in policies]
    runs = [(s, run(part, s.policy, s.listeners)) for s in scenarios]
    judgements = pd.DataFrame([row for s, done in runs for row in judged(done, part, s)], columns=MATRIX.names)
    counted = figures.anomaly_matrix(judgements)
    words, slow = list(speeds.items())[-1]
    which = (
        f"Where it is drawn, the pictures below the matrix show one setting: {words}. The example and the player show "
        f"the consumer '{DESIGN_ROW.name}', the DDL timeline shows '{DESIGN_TRANSACTION.name}'."
    )
    last = {s.policy.name: done for s, done in runs}
    hasty, whole = (last[p.name] if p.name in last else run(part, p, slow) for p in (DESIGN_ROW, DESIGN_TRANSACTION))
    wrong = small_frame(anomalies(hasty, part, most=1))
    left = [_left(s, done) for s, done in runs]
    frames = {"matrix": judgements, "anomalies": wrong, "left": pd.DataFrame([asdict(one) for one in left])}
    if examples:
        frames["examples"] = pd.DataFrame([e for s, done in runs for e in _fewest(done, part, s, examples)])
    drawn: dict[str, Figure] = {}
    said = [*limits]
    if watched:
        curves = [invariant_curve(last[p.name], part, label=p.name) for p in policies]
        frames = {"watched": pd.concat(curves, ignore_index=True)} | frames
        drawn["watched"] = figures.invariant_curve(frames["watched"], of=f"the total {watched}")
    finding = " ".join(f"{figure.finding}." for figure in (*drawn.values(), counted))
    finding += f" It counts all changes{qualified}." if qualified else ""
    said += _left_in_words(left)

    def draw() -> Mapping[str, Figure]:
        shown = drawn | {"anomalies": counted}
        told = ({str(k): v for k, v in a.items()} for a in wrong.to_dict("records"))
        if (anomaly := next(filter(figures.is_drawn, told), None)) is not None:
            shown["counterexample"] = figures.counterexample(anomaly, lane=lane)
        shown["player"] = figures.consumer_lanes_stepped(*frames_of(hasty), order="commit", lane=lane)
        return shown | ({"ddl": figures.ddl_timeline(ddl_timeline(whole, part), lane=lane)} if part.ddls else {})

    return Answer("consumer", _QUESTION, finding, frames, [*said, which, model, _NO_VALUES, *unwatched], draw=draw)


@dataclass(frozen=True, slots=True)
class _Left:
    """Row changes that a consumer did not come to write: held back, or behind the place where a listener waits."""

    policy: str
    speeds: str
    pending: int
    unread: int


def _left(scenario: Scenario, done: ConsumerRun) -> _Left:
    pending = done.deliveries["outcome"].to_pylist().count("pending")
    return _Left(scenario.policy.name, scenario.speeds, pending, len(done.unread))


def _left_in_words(left: Sequence[_Left]) -> Iterator[str]:
    """A sentence for consumers with the same rest; named if they differ."""
    for pending, unread in dict.fromkeys((one.pending, one.unread) for one in left):
        alike = [f"{one.policy}, {one.speeds}" for one in left if (one.pending, one.unread) == (pending, unread)]
        parts = []
        if pending:
            are = count(pending, "row change is", "row changes are")
            parts.append(f"{are} still held, above what watermarks release")
        if unread:
            lie = count(unread, "row change lies", "row changes lie")
            parts.append(f"{lie} behind a DDL or Admin event at which a listener stops forever")
        who = "" if len(alike) == len(left) else f" ({'; '.join(alike)})"
        if parts:
            yield f"At the end {' and '.join(parts)}{who}."


def _fewest(done: ConsumerRun, log: NarrowLog, scenario: Scenario, most: int) -> list[dict[str, object]]:
    """The first anomalies of each kind, each with the fewest messages that show it."""
    out = []
    for anomaly in anomalies(done, log, most=most).to_pylist():
        few = smallest(log, scenario.policy, scenario.listeners, anomaly).events.sort_by("arrival")
        which = {"policy": scenario.policy.name, "speeds": scenario.speeds}
        out.append({**which, **anomaly, "messages": few.select(_OF_A_MESSAGE).to_pylist()})
    return out


def beginning(
    log: ChangeLog, more: Mapping[str, Column], *, strategies: Sequence[str] = (), most: int = MOST_EVENTS
) -> tuple[Study, list[str]]:
    """What consumers are modelled on, about ``most`` events of the least commit_ts, and what was left out.

    ``more`` names columns to take along, as for :meth:`ticdc_lab.consumer.study.Study.of`.
    """
    files = log.files
    if files is not None and files.events <= most and not (more or strategies):
        return Study(NarrowLog.of(narrowed(files.in_memory(READ))), ()), []
    events = log.events.where(IS_CONSUMED)
    if log.sample is not None:
        events = events.transform(from_first_row)
    total = events.count()
    part, catalog = _beginning(events, total, most), catalog_of(log.events) if strategies else None
    study = Study.of(part, strategies=strategies, most=4 * most, catalog=catalog, **more)
    read = len(study.recorded.kind)
    cut = f"Only {read:,} of {total:,} events were read: those up to one commit_ts."
    return study, ([cut] if read < total else [])


def _beginning(events: DataFrame, total: int, most: int) -> DataFrame:
    """Events up to the commit_ts below which about as many lie as may be read, and all Admin events."""
    if total <= most:
        return events
    found = quantiles(events, "commit_ts", [most / total], accuracy=10_000)
    return events.where((F.col("commit_ts") <= (found[0] if found else 0)) | F.col("commit_ts").isNull())


def slowed(slow: Mapping[int, float], *, per_second: int = PER_SECOND) -> dict[str, Listeners]:
    """Words to listeners, some so many times slower than the others: partition to factor."""
    if wrong := [f"{times} for partition {p}" for p, times in slow.items() if not 0 < times < inf]:
        raise ContractError(f"A partition is so many times slower, a number above 0; found {', '.join(wrong)}.")
    speeds: dict[int | tuple[str, int], int] = {p: max(1, round(per_second / times)) for p, times in slow.items()}
    words = " and ".join(f"partition {p} {times:g} times slower" for p, times in slow.items())
    how = Listeners(per_second=per_second, speeds=speeds, write_us=WRITE_US)
    return {f"all alike but {words}" if slow else "all alike": how}


def _speeds(part: NarrowLog, lane: str) -> dict[str, Listeners]:
    """All alike, and the partition with most events slow: the one that holds the others up longest."""
    even = Listeners(per_second=PER_SECOND, write_us=WRITE_US)
    if len(part.parts) < 2:
        return {"one listener": even}
    fullest = max(part.parts, key=lambda p: (p.end - p.first, -p.partition)).partition
    slow = Listeners(per_second=PER_SECOND, speeds={fullest: PER_SECOND // 4}, write_us=WRITE_US)
    return {"all alike": even, f"{lane} {fullest} slow": slow}


# Asked of a log.


def ask_consumers(
    log: Log, *, watch: str, slow: Mapping[int, float] | None, policies: Sequence[str], strategy: str | None,
    partitions: int | None, listeners: Listeners | None, examples: int, most_events: int,
) -> Answer:  # fmt: skip
    """As of :meth:`ticdc_lab.log.Log.consumers`."""
    unknown = sorted({*policies} - {*POLICIES})
    if unknown:
        raise ContractError(f"There is no policy {', '.join(unknown)}; there are {', '.join(POLICIES)}.")
    if (strategy is None) != (partitions is None):
        raise ContractError("A dispatcher and a number of partitions lay the log out together; one is missing.")
    if slow is not None and listeners is not None:
        raise ContractError("Pass slow or listeners, not both: each sets how fast partitions are read.")
    if not log.has_commit_ts:
        said = "This log cannot show it, because nothing orders its changes."
        return Answer("consumer", _QUESTION, said, {}, log.limits)
    more = {"measure": measure_of(watch)} if watch else {}
    by = [strategy] if strategy else []
    study, limits = log.once(
        f"beginning {watch} {strategy} {most_events}",
        lambda: beginning(log.change_log, more, strategies=by, most=most_events),
    )
    part = study.recorded if strategy is None or partitions is None else study.laid(strategy, partitions)
    speeds = {"as given": listeners} if listeners is not None else None if slow is None else slowed(slow)
    for how in (speeds or {}).values():
        how.require_there({p.partition for p in part.parts})
    return consumers(
        part, limits=limits, policies=[POLICIES[p] for p in policies] or SHOWN, speeds=speeds, watched=watch,
        examples=examples, laid=strategy or RECORDED, qualified=but_for(log.counts),
        lane=lane_of(log.change_log.of_storage and strategy is None),
    )  # fmt: skip


def excerpt_of(log: Log, most: int) -> NarrowLog:
    """The first of its events in commit order, about so many, as a consumer takes them."""
    log.change_log.require_commit_ts("what a consumer does")

    def taken() -> NarrowLog:
        dated = log.events.where("commit_ts IS NOT NULL")
        if log.change_log.sample is not None:
            dated = dated.transform(from_first_row)
        last = dated.select("commit_ts").orderBy("commit_ts").limit(most).agg(F.max("commit_ts")).first()
        begun = F.col("commit_ts") <= F.lit(last[0] if last else None)
        return excerpt(log.events.where(begun | (F.col("kind") == "admin")))

    return log.once("excerpt", taken)

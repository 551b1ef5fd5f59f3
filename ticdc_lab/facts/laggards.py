"""Who holds a topic's resolved_ts back."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from itertools import groupby

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from ticdc_lab.events import PARTITION
from ticdc_lab.events.arrays import NO_TS, Ints, changes_in, nullable, partitions_in, seconds, timestamps
from ticdc_lab.facts.known import LogFacts
from ticdc_lab.facts.schemas import SPANS, arrow_of
from ticdc_lab.facts.watermarks import IS_WATERMARK


def stated_values(events: DataFrame) -> DataFrame:
    """Each value that a partition's watermarks state, once; and a null of each partition with any other event."""
    value = F.when(F.expr(IS_WATERMARK), F.col("commit_ts")).alias("resolved_ts")
    return events.select(*PARTITION, value).distinct()


def values_of(facts: LogFacts) -> pa.Table:
    """As :func:`stated_values`, of what is known of a log."""
    marks, every = facts.watermarks, np.arange(len(facts.homes))
    home, ts = np.append(marks.home, every), np.append(marks.ts, np.full(len(every), NO_TS))
    order = np.lexsort((ts, home))
    once = order[changes_in(home[order], ts[order])] if len(order) else order
    topics, partitions = facts.names(home[once])
    return pa.table({"topic": topics, "partition": partitions, "resolved_ts": nullable(ts[once])})


def spans_of(stated: pa.Table) -> pa.Table:
    """The partitions that held the topic's resolved_ts back, and for how long; of :func:`values_of`.

    Kafka has no order across partitions, and events carry no clock of the broker. The axis is therefore the topic's
    own: its distinct watermark values in order, each a *step*, because each is broadcast to every partition. At a step
    a partition is at the greatest watermark it states up to that value; it is a laggard where that is less than the
    value itself and the least of all partitions. When all partitions state every value, none holds the topic back.

    Returns: one row per span of steps: ``topic, partition, first_step, last_step`` (from 1), ``steps``, ``steps_total``
    (of the topic), ``held_ts`` (where it was at first; null before its first watermark), ``from_ts``, ``to_ts`` (the
    values of those steps), ``lag_s_max`` (null where it never had one), ``at_end`` (it still holds the topic back).
    """
    found = [s for topic, values in by_topic(stated) for s in _spans(topic, values)]
    return pa.Table.from_pylist(found, arrow_of(SPANS))


EARLY = 2
"""Watermarks of its topic that a partition must miss at its end: one is on its way whenever a recording stops."""

AHEAD = 4
"""By how many watermarks rows may go before their own; a partition with more recorded should have had one."""


def continues(missing: Ints, last_ts: int | None) -> bool:
    """Whether a partition was recorded beyond the watermarks that it misses at its end: ``last_ts`` of its rows is
    above more of them than rows go ahead.
    """
    return last_ts is not None and int((missing < last_ts).sum()) > AHEAD


_EARLY = "{partitions} of {topic} {are} missing the topic's last {n} watermarks ({lag_s:.3f} s)"
_CUT = "no more watermarks were sent there, or the recording was cut. The log cannot show which."
_ON = "the recording was not cut there. No more watermarks were sent, or they are lost."


def early_ends(stated: pa.Table, *, rows_to: Mapping[tuple[str, int], int | None]) -> tuple[str, ...]:
    """A sentence for each place before its topic's end where watermarks of partitions end, the farthest behind first.

    A file that was cut at a line's end looks whole by itself; that watermarks go to every partition of a topic can give
    it away. Where rows continue, the recording did not end.

    Parameters
    ----------
    stated
        As :func:`values_of` gives.
    rows_to
        The greatest commit_ts of each partition's rows.
    """
    found: list[tuple[int, str, int, float, bool, int]] = []
    for topic, values in by_topic(stated):
        steps = np.unique(np.concatenate(list(values.values())))
        for partition, own in values.items():
            missing = steps[np.searchsorted(steps, own[-1], side="right") :] if len(own) else own
            if len(missing) >= EARLY:
                lag_s, on = float(seconds(own[-1:], steps[-1:])[0]), continues(missing, rows_to.get((topic, partition)))
                found.append((-len(missing), topic, int(own[-1]), lag_s, on, partition))
    said = []
    for (n, topic, _, lag_s, on), group in groupby(sorted(found), key=lambda end: end[:5]):
        numbers = [str(partition) for *_, partition in group]
        some = ", ".join(numbers[:_NAMED]) + (f" and {len(numbers) - _NAMED} more" if len(numbers) > _NAMED else "")
        who, are = (f"Partition {some}", "is") if len(numbers) == 1 else (f"Partitions {some}", "are")
        their = "its" if len(numbers) == 1 else "their"
        why = f", but {their} rows continue: {_ON}" if on else f": {_CUT}"
        said.append(_EARLY.format(partitions=who, topic=topic, are=are, n=-n, lag_s=lag_s) + why)
    return (*said[:_NAMED], *([f"{len(said) - _NAMED} more places like these."] if len(said) > _NAMED else []))


_NAMED = 5


def by_topic(stated: pa.Table) -> Iterator[tuple[str, dict[int, Ints]]]:
    """Of each topic the values of each partition, rising."""
    ordered = stated.sort_by([(c, "ascending") for c in ("topic", "partition", "resolved_ts")])
    found: dict[str, dict[int, Ints]] = {}
    for batch in ordered.combine_chunks().to_batches():
        ts = timestamps(batch["resolved_ts"])
        for part in partitions_in(batch, None)[0]:
            own = ts[part]
            topic, partition = (batch[c][part.start].as_py() for c in PARTITION)
            found.setdefault(topic, {})[partition] = own[own != NO_TS]
    return iter(found.items())


def resolved_at_steps(values: Collection[Ints]) -> tuple[Ints, Ints]:
    """The steps of a ladder, and what is resolved at each: where the slowest partition stands; NO_TS before its first.

    Kafka has no order across partitions, so the steps are the distinct values that some partition states, in order. At
    each a partition is at the greatest value that it states up to it.

    Parameters
    ----------
    values
        Of each partition, rising.
    """
    steps = np.unique(np.concatenate(list(values)))
    least: Ints = np.min([stands_at(own, steps) for own in values], axis=0)
    return steps, least


def _spans(topic: str, values: dict[int, Ints]) -> Iterator[dict[str, object]]:
    steps, least = resolved_at_steps(values.values())
    for partition, own in values.items():
        stands = stands_at(own, steps)
        behind = np.flatnonzero((stands < steps) & (stands == least))
        for low, high in _runs(behind):
            held = stands[low:high]
            lag_s = seconds(held, steps[low:high])[held != NO_TS]
            yield {
                "topic": topic, "partition": partition, "first_step": low + 1, "last_step": high, "steps": high - low,
                "steps_total": len(steps), "held_ts": int(held[held != NO_TS].min()) if len(lag_s) else None,
                "from_ts": int(steps[low]), "to_ts": int(steps[high - 1]),
                "lag_s_max": float(lag_s.max()) if len(lag_s) else None, "at_end": high == len(steps),
            }  # fmt: skip


def stands_at(own: Ints, steps: Ints) -> Ints:
    """The greatest of a partition's own values up to each step; NO_TS before its first."""
    at = np.searchsorted(own, steps, side="right")
    return np.append(NO_TS, own)[at]


def _runs(at: Ints) -> Iterator[tuple[int, int]]:
    """First and end of each run of neighbours in rising numbers."""
    cuts = np.flatnonzero(np.diff(at) > 1) + 1
    for run in np.split(at, cuts) if len(at) else ():
        yield int(run[0]), int(run[-1]) + 1

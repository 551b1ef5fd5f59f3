"""The fewest messages of a log with which a consumer still does the same wrong thing."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ticdc_lab.consumer.anomalies import anomalies
from ticdc_lab.consumer.listener import Listeners
from ticdc_lab.consumer.log import ROW, NarrowLog
from ticdc_lab.consumer.model import ConsumerRun, run
from ticdc_lab.consumer.policy import Policy
from ticdc_lab.errors import ContractError
from ticdc_lab.events.arrays import Bools, Ints, changes_in, codes


def smallest(log: NarrowLog, policy: Policy, how: Listeners, anomaly: Mapping[str, Any]) -> NarrowLog:
    """Reduce a log to messages none of which can be left out without losing the anomaly.

    Parameters
    ----------
    log, policy, how
        What the anomaly was found with.
    anomaly
        A row of :data:`ticdc_lab.consumer.anomalies.ANOMALIES`.

    Returns
    -------
    NarrowLog
        Some messages of ``log``, untouched. Each has, as ``arrival``, the time at which it was read in the whole log,
        so that a run with ``Listeners(per_second=0, arrival="as recorded")`` repeats the order of reading; where
        ``how`` has faults they are kept as they are. Whether DDL is sent to every partition stays as in ``log``, though
        the messages alone may not tell any more.

    Raises
    ------
    ContractError
        The anomaly does not appear in the log under this policy and these listeners.
    """
    whole = run(log, policy, how)
    timed = _part(log, _with(log.events, "arrival", _read_at(log, whole)))
    as_read = how if how.faults else Listeners(per_second=0, arrival="as recorded", write_us=how.write_us)

    def shows(part: NarrowLog) -> bool:
        return len(part.kind) > 0 and _appears(part, policy, as_read, anomaly)

    for likely in (_about(timed, anomaly), np.ones(len(timed.kind), np.bool_)):
        part = _of(timed, likely)
        if shows(part):
            return _without(_without(part, _messages(part, together=True), shows), None, shows)
    raise ContractError(
        f"The {anomaly['guarantee']} of {anomaly['table']} at commit_ts {anomaly['commit_ts']} does not appear when "
        "the log is consumed with this policy and these listeners.",
        hint="Pass what it was found with.",
    )


def _without(log: NarrowLog, unit: Ints | None, shows: Callable[[NarrowLog], bool]) -> NarrowLog:
    """The log without all units (messages where none are given) that are not needed."""
    unit = _messages(log, together=False) if unit is None else unit
    kept = _reduced(np.unique(unit).tolist(), lambda some: shows(_of(log, np.isin(unit, some))))
    return _of(log, np.isin(unit, kept))


def _reduced(kept: list[int], shows: Callable[[Sequence[int]], bool]) -> list[int]:
    """Delta debugging (Zeller, Hildebrandt 2002): leave out ever smaller parts while it still shows."""
    parts = 2
    while len(kept) > 1:
        size = -(-len(kept) // parts)
        for low in range(0, len(kept), size):
            rest = kept[:low] + kept[low + size :]
            if rest and shows(rest):
                kept, parts = rest, max(parts - 1, 2)
                break
        else:
            if size == 1:
                return kept
            parts = min(len(kept), parts * 2)
    return kept


def _appears(log: NarrowLog, policy: Policy, how: Listeners, anomaly: Mapping[str, Any]) -> bool:
    same = ("guarantee", "table", "commit_ts")
    found = anomalies(run(log, policy, how), log, kinds=(anomaly["guarantee"],)).select(list(same)).to_pylist()
    return any(all(f[s] == anomaly[s] for s in same) for f in found)


def _about(log: NarrowLog, anomaly: Mapping[str, Any]) -> Bools:
    """All that is no row change, and those of the transactions and rows that the evidence names."""
    shown = anomaly["evidence"]
    named = {(e["topic"], e["partition"], e["offset"]) for e in shown}
    at = np.array([where in named for where in _where(log.events)], np.bool_)
    keys = pc.fill_null(log.events["key_hash"], 0).to_numpy()
    about: Bools = (log.kind != ROW) | np.isin(log.commit_ts, [e["commit_ts"] for e in shown])
    about |= (keys != 0) & np.isin(keys, keys[at])
    return about


def _messages(log: NarrowLog, *, together: bool) -> Ints:
    """A number for each message; ``together``: one for all copies of a DDL, for which listeners wait."""
    columns = [log.events[c].to_numpy() for c in ("partition", "offset")]
    topics = codes(log.events["topic"])
    number: Ints = np.cumsum(changes_in(topics, *columns))
    return np.where(log.ddl >= 0, -1 - log.ddl, number) if together else number


def _of(log: NarrowLog, which: Bools) -> NarrowLog:
    return _part(log, log.events.filter(pa.array(which)))


def _part(log: NarrowLog, events: pa.Table) -> NarrowLog:
    """Some events of a log as a log that follows the same rules for DDL."""
    return replace(NarrowLog.of(events), everywhere=log.everywhere)


def _read_at(log: NarrowLog, whole: ConsumerRun) -> Ints:
    """When each event was read first; what never was, after all others."""
    at = np.full(len(log.kind), whole.end_us + 1)
    np.minimum.at(at, whole.places[: len(whole.deliveries)], whole.deliveries["read_at"].to_numpy())
    read = whole.steps.filter(pc.is_in(whole.steps["action"], pa.array(["resolved", "ddl seen", "ddl skipped"])))
    place = dict(zip(_where(log.events), range(len(log.kind)), strict=True)) if len(read) else {}
    for where, time in zip(_where(read), read["at"].to_pylist(), strict=True):
        at[place[where]] = min(int(at[place[where]]), time)
    return at


def _where(table: pa.Table) -> list[tuple[Any, ...]]:
    return list(zip(*(table[c].to_pylist() for c in ("topic", "partition", "offset")), strict=True))


def _with(table: pa.Table, name: str, values: Ints) -> pa.Table:
    rest = table.drop_columns([name]) if name in table.column_names else table
    return rest.append_column(name, pa.array(values))

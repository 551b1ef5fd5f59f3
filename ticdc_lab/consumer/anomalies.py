"""What went wrong in a run of a consumer: when, for how long, which rows, and the fewest messages that show it."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import ArrayType, LongType, StringType, StructType

from ticdc_lab.consumer.consistency import RecordTouches, commit_ts_of
from ticdc_lab.consumer.ddl_timeline import ddl_sides
from ticdc_lab.consumer.listener import Listeners
from ticdc_lab.consumer.log import ROW, NarrowLog
from ticdc_lab.consumer.model import ConsumerRun, run
from ticdc_lab.consumer.policy import Policy
from ticdc_lab.errors import ContractError
from ticdc_lab.events.arrays import Bools, Ints, changes_in, codes, runs
from ticdc_lab.events.schema import EVIDENCE, FINDINGS, described
from ticdc_lab.events.tso import with_clock

KINDS = (
    "torn transaction", "row goes back", "lost update", "lost change", "row before its DDL", "row after its DDL",
)  # fmt: skip
"""Kinds of anomalies, as ``guarantee`` of :data:`ANOMALIES` names them."""

_TORN, _BACK, _OVERWRITTEN, _LOST, _EARLY, _LATE = KINDS

_WHERE = StructType([described("topic", StringType(), "topic"), *EVIDENCE.fields])

ANOMALIES = StructType(
    [
        *[f for f in FINDINGS.fields if f.name not in ("evidence", "cause", "topic")],
        described("topic", StringType(), "topic of the offending event"),
        described("begins_us", LongType(), "from when it is seen, or a lost change was read, µs of consumer time"),
        described("ends_us", LongType(), "until when; null where it never ends"),
        described("evidence", ArrayType(_WHERE), "the messages that show it, the one that is ahead first"),
    ]
)

MAX_PER_KIND = 1000


@dataclass(frozen=True, slots=True)
class _Case:
    """Records (places among the run's changes) that show an anomaly, the offending one last."""

    kind: str
    records: tuple[int, ...]
    begins: int | None
    ends: int | None
    message: str
    ddl: tuple[str, int, int, int] | None = None


def anomalies(
    run: ConsumerRun, log: NarrowLog, *, most: int = MAX_PER_KIND, kinds: Collection[str] = KINDS
) -> pa.Table:
    """Find what a consumer showed, or left, that upstream never had.

    Parameters
    ----------
    run, log
        A run of :func:`ticdc_lab.consumer.model.run` over the log.
    most
        Anomalies of each kind, the first in consumer time; :func:`anomaly_counts` counts all.
    kinds
        Which of :data:`KINDS` to look for.

    Returns
    -------
    pa.Table
        :data:`ANOMALIES` by kind and time. ``torn transaction``: some of its changes are seen and others not yet, or
        never. ``row goes back``: an older version of a row replaces a newer one, until a newer one comes again;
        ``lost update``: it stays so. ``lost change``: it was read and thrown away, and never written from another
        delivery; one discarded at an Admin event counts once the watermarks of all listeners have passed it.
        ``row before its DDL`` and ``row after its DDL``: a change newer than the DDL of its table was written before
        the DDL, so under the wrong definition, or an older one after it.
    """
    return _as_table(run, [case for cases in _cases(run, log, kinds).values() for case in _first(cases, most)])


def anomaly_counts(run: ConsumerRun, log: NarrowLog) -> pa.Table:
    """Count the anomalies of a run.

    Returns: ``kind`` (string), ``n`` (bigint), ``wrong_us`` (bigint: how long at least one of them was seen), a row for
    each of :data:`KINDS`.
    """
    rows = []
    for kind, cases in _cases(run, log, KINDS).items():
        spans = [(c.begins, run.end_us if c.ends is None else c.ends) for c in cases if c.begins is not None]
        rows.append({"kind": kind, "n": len(cases), "wrong_us": _covered(spans)})
    return pa.Table.from_pylist(rows)


def _covered(spans: list[tuple[int, int]]) -> int:
    """Length of the union of spans."""
    total, reached = 0, -1
    for begin, end in sorted(spans):
        total += max(0, end - max(begin, reached))
        reached = max(reached, end)
    return total


def _cases(run: ConsumerRun, log: NarrowLog, kinds: Collection[str]) -> dict[str, list[_Case]]:
    """The cases of each of ``kinds``, in the order of :data:`KINDS`."""
    found: dict[str, list[_Case]] = {kind: [] for kind in KINDS if kind in kinds}
    for own, of in _FINDERS.items():
        if any(kind in found for kind in own):
            for case in of(run, log):
                if case.kind in found:
                    found[case.kind].append(case)
    return found


def _first(cases: list[_Case], most: int) -> list[_Case]:
    return sorted(cases, key=lambda c: (c.begins if c.begins is not None else -1, c.records))[:most]


def _numbers(run: ConsumerRun, *names: str) -> list[Ints]:
    return [pc.fill_null(run.changes[n], -1).to_numpy() for n in names]


def _torn(run: ConsumerRun, log: NarrowLog) -> Iterator[_Case]:
    ts, batch, order, at = _numbers(run, "commit_ts", "batch", "apply_order", "applied_at")
    if not len(ts):
        return
    change = _changes(run)
    # of each change the delivery that was written first, or else any
    ranked = np.lexsort((np.where(order < 0, np.iinfo(np.int64).max, order), change))
    first = ranked[changes_in(change[ranked])]
    late = np.where(batch[first] < 0, np.iinfo(np.int64).max, batch[first])
    by_ts = np.lexsort((late, ts[first]))
    members, lates = first[by_ts], late[by_ts]
    for part in runs(ts[members]):
        low, high = part.start, part.stop
        head, tail = int(members[low]), int(members[high - 1])
        if lates[low] < lates[high - 1] and batch[head] >= 0:
            split = int(np.searchsorted(lates[low:high], lates[low], side="right"))
            ends = int(at[tail]) if batch[tail] >= 0 else None
            said = "the others later" if ends is not None else "others not at all"
            message = f"{split} of {high - low} row changes of the transaction are written first, {said}"
            yield _Case(_TORN, (head, tail), int(at[head]), ends, message)


def _changes(run: ConsumerRun) -> Ints:
    """A number for each distinct change: what was delivered again has the same."""
    d = run.changes
    place = pa.array(np.arange(len(d)))
    own = pc.if_else(d["change_hash"].is_valid(), 0, place)
    columns = [d["table"], d["commit_ts"], pc.fill_null(d["key_hash"], 0), d["op_rank"],
               pc.fill_null(d["change_hash"], 0), own]  # fmt: skip
    out = np.zeros(len(d), np.int64)
    for column in columns:
        of = codes(column)
        _, out = np.unique(out * (int(of.max(initial=0)) + 1) + of, return_inverse=True)
    return out


def _overwritten(run: ConsumerRun, log: NarrowLog) -> Iterator[_Case]:
    touches = RecordTouches.of(run.changes)
    seen, batch = touches.after_each_batch(run.changes)
    by_row = np.lexsort((batch, touches.row[seen]))
    seen = seen[by_row]
    row, version, record = touches.row[seen], touches.version[seen], touches.record[seen]
    (at,) = _numbers(run, "applied_at")
    ts = commit_ts_of(version)
    lead = -1
    for i in range(len(seen)):
        if i == 0 or row[i] != row[i - 1] or version[i] >= version[lead]:
            lead = i
        elif row[i - 1] == row[i] and (i - 1 == lead):
            j = i + 1
            while j < len(seen) and row[j] == row[i] and version[j] < version[lead]:
                j += 1
            repaired = j < len(seen) and row[j] == row[i]
            kind, ends = (_BACK, int(at[record[j]])) if repaired else (_OVERWRITTEN, None)
            message = f"the row, at commit_ts {ts[lead]}, is written back to its version of commit_ts {ts[i]}"
            yield _Case(kind, (int(record[lead]), int(record[i])), int(at[record[i]]), ends, with_clock(message))


def _lost(run: ConsumerRun, log: NarrowLog) -> Iterator[_Case]:
    outcome = np.array(run.changes["outcome"].to_pylist())
    change = _changes(run)
    survives = np.zeros(int(change.max(initial=-1)) + 1, np.bool_)
    survives[change[np.isin(outcome, ("applied", "pending", "unread"))]] = True
    owed = (outcome == "discarded") & (run.changes["commit_ts"].to_numpy() > run.resolved_ts)
    survives[change[owed]] = True  # the log ends before a watermark promised that it was sent again
    (at,) = _numbers(run, "read_at")
    gone = np.flatnonzero(~survives[change])
    for i in gone[np.unique(change[gone], return_index=True)[1]].tolist():
        message = f"the change is {outcome[i]}, and no other delivery of it is written"
        yield _Case(_LOST, (i,), int(at[i]), None, message)


def _around_ddl(run: ConsumerRun, log: NarrowLog) -> Iterator[_Case]:
    (at,) = _numbers(run, "applied_at")
    for d, (ddl, sides) in enumerate(zip(log.ddls, ddl_sides(run, log), strict=True)):
        where = _first_place(log, d)
        for i in np.flatnonzero(sides.early).tolist():
            message = f"a change that is newer than the DDL is written before it: {ddl.query}"
            yield _Case(_EARLY, (i,), int(at[i]), sides.executed_at, message, where)
        for i in np.flatnonzero(sides.late).tolist():
            message = f"a change that is older than the DDL is written after it: {ddl.query}"
            yield _Case(_LATE, (i,), int(at[i]), None, message, where)


def _first_place(log: NarrowLog, d: int) -> tuple[str, int, int, int]:
    at = int(np.flatnonzero(log.ddl == d)[0])
    found = log.events.select(["topic", "partition", "offset", "commit_ts"]).slice(at, 1).to_pylist()[0]
    return tuple(found.values())


_FINDERS: dict[tuple[str, ...], Callable[[ConsumerRun, NarrowLog], Iterator[_Case]]] = {
    (_TORN,): _torn,
    (_BACK, _OVERWRITTEN): _overwritten,
    (_LOST,): _lost,
    (_EARLY, _LATE): _around_ddl,
}


_FORM = to_arrow_schema(ANOMALIES)


def _as_table(run: ConsumerRun, found: list[_Case]) -> pa.Table:
    names = ["topic", "partition", "offset", "commit_ts", "table"]
    shown = sorted({r for c in found for r in c.records})
    where = dict(zip(shown, run.changes.select(names).take(pa.array(shown, pa.int64())).to_pylist(), strict=True))
    rows = []
    for case in found:
        at = where[case.records[-1]]
        evidence = [{n: where[r][n] for n in _WHERE.names} for r in case.records]
        evidence += [dict(zip(_WHERE.names, case.ddl, strict=True))] if case.ddl else []
        rows.append(
            at | {"guarantee": case.kind, "severity": "error", "key": None, "message": case.message,
                  "begins_us": case.begins, "ends_us": case.ends, "evidence": evidence}
        )  # fmt: skip
    return pa.Table.from_pylist(rows, schema=_FORM)


def smallest(log: NarrowLog, policy: Policy, how: Listeners, anomaly: Mapping[str, Any]) -> NarrowLog:
    """Reduce a log to messages that are all necessary for the anomaly.

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
        the messages alone may not show it any more.

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
        hint="Pass the `policy` and listeners that it was found with.",
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
    """All that is no row change, and the row changes of the transactions and rows that the evidence names."""
    shown = anomaly["evidence"]
    named = {(e["topic"], e["partition"], e["offset"]) for e in shown}
    at = np.array([where in named for where in _where(log.events)], np.bool_)
    keys = pc.fill_null(log.events["key_hash"], 0).to_numpy()
    about: Bools = (log.kind != ROW) | np.isin(log.commit_ts, [e["commit_ts"] for e in shown])
    about |= (keys != 0) & np.isin(keys, keys[at])
    return about


def _messages(log: NarrowLog, *, together: bool) -> Ints:
    """A number for each message; ``together``: one for all copies of a DDL or Admin event, for which listeners wait."""
    columns = [log.events[c].to_numpy() for c in ("partition", "offset")]
    topics = codes(log.events["topic"])
    number: Ints = np.cumsum(changes_in(topics, *columns))
    if not together:
        return number
    of_admin = -1 - len(log.ddls) - log.partition_count
    return np.where(log.ddl >= 0, -1 - log.ddl, np.where(log.partition_count >= 0, of_admin, number))


def _of(log: NarrowLog, which: Bools) -> NarrowLog:
    return _part(log, log.events.filter(pa.array(which)))


def _part(log: NarrowLog, events: pa.Table) -> NarrowLog:
    """Some events of a log as a log that follows the same rules for DDL and begins with as many partitions."""
    return replace(NarrowLog.of(events), everywhere=log.everywhere, counts=log.counts)


_READ = ("resolved", "ddl seen", "ddl skipped", "admin seen")


def _read_at(log: NarrowLog, whole: ConsumerRun) -> Ints:
    """When each event was read first; what never was, after all others."""
    at = np.full(len(log.kind), whole.end_us + 1)
    np.minimum.at(at, whole.places[: len(whole.deliveries)], whole.deliveries["read_at"].to_numpy())
    read = whole.steps.filter(pc.is_in(whole.steps["action"], pa.array(_READ)))
    place = dict(zip(_where(log.events), range(len(log.kind)), strict=True)) if len(read) else {}
    for where, time in zip(_where(read), read["at"].to_pylist(), strict=True):
        at[place[where]] = min(int(at[place[where]]), time)
    return at


def _where(table: pa.Table) -> list[tuple[Any, ...]]:
    return list(zip(*(table[c].to_pylist() for c in ("topic", "partition", "offset")), strict=True))


def _with(table: pa.Table, name: str, values: Ints) -> pa.Table:
    rest = table.drop_columns([name]) if name in table.column_names else table
    return rest.append_column(name, pa.array(values))

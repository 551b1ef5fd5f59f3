"""What went wrong in a run of a consumer: when, for how long, which rows, and the messages that show it."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import ArrayType, LongType, StringType, StructType

from ticdc_lab.consumer.blocked import blocked
from ticdc_lab.consumer.log import Bools, Ints, Log
from ticdc_lab.consumer.model import Run
from ticdc_lab.consumer.versions import Touches, commit_ts_of
from ticdc_lab.neighbours import changes_in
from ticdc_lab.schema import EVIDENCE, FINDINGS, described

KINDS = (
    "torn transaction", "row goes back", "lost update", "lost change", "row before its DDL", "row after its DDL",
)  # fmt: skip
"""Kinds of anomalies, as ``guarantee`` of :data:`ANOMALIES` names them."""

_WHERE = StructType([described("topic", StringType(), "topic"), *EVIDENCE.fields])

ANOMALIES = StructType(
    [
        *[f for f in FINDINGS.fields if f.name != "evidence"],
        described("topic", StringType(), "topic of the offending event"),
        described("begins_us", LongType(), "from when it is seen, or a lost change was read, µs of consumer time"),
        described("ends_us", LongType(), "until when; null where it never ends"),
        described("evidence", ArrayType(_WHERE), "the messages that show it, the one that is ahead first"),
    ]
)

MAX_PER_KIND = 1000


@dataclass(frozen=True, slots=True)
class _Case:
    """Records (places among the deliveries) that show an anomaly, the offending one last."""

    records: tuple[int, ...]
    begins: int | None
    ends: int | None
    message: str
    ddl: tuple[str, int, int, int] | None = None


def anomalies(
    run: Run, log: Log, *, most: int = MAX_PER_KIND, kinds: Collection[str] = KINDS
) -> pa.Table:  # fmt: skip
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
        delivery. ``row before its DDL`` and ``row after its DDL``: a change newer than the DDL of its table was
        written before the DDL, so under the wrong definition, or an older one after it.
    """
    found = [(kind, list(_first(of(run, log), most))) for kind, of in _FINDERS.items() if kind in kinds]
    return _as_table(run, [(kind, case) for kind, cases in found for case in cases])


def anomaly_counts(run: Run, log: Log) -> pa.Table:
    """Count the anomalies of a run.

    Returns
    -------
    pa.Table
        ``kind`` (string), ``n`` (bigint), ``wrong_us`` (bigint: how long at least one of them was seen), a row for each
        of :data:`KINDS`.
    """
    rows = []
    for kind, of in _FINDERS.items():
        cases = list(of(run, log))
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


def _first(cases: Iterator[_Case], most: int) -> list[_Case]:
    return sorted(cases, key=lambda c: (c.begins if c.begins is not None else -1, c.records))[:most]


def _numbers(run: Run, *names: str) -> list[Ints]:
    return [pc.fill_null(run.changes[n], -1).to_numpy() for n in names]


def _torn(run: Run, log: Log) -> Iterator[_Case]:
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
    starts = np.flatnonzero(changes_in(ts[members]))
    for low, high in zip(starts.tolist(), [*starts[1:].tolist(), len(members)], strict=True):
        head, tail = int(members[low]), int(members[high - 1])
        if lates[low] < lates[high - 1] and batch[head] >= 0:
            split = int(np.searchsorted(lates[low:high], lates[low], side="right"))
            ends = int(at[tail]) if batch[tail] >= 0 else None
            said = "the others later" if ends is not None else "others not at all"
            message = f"{split} of {high - low} row changes of the transaction are written first, {said}"
            yield _Case((head, tail), int(at[head]), ends, message)


def _changes(run: Run) -> Ints:
    """A number for each distinct change: what was delivered again has the same."""
    d = run.changes
    place = pa.array(np.arange(len(d)))
    own = pc.if_else(d["change_hash"].is_valid(), 0, place)
    columns = [d["table"], d["commit_ts"], pc.fill_null(d["key_hash"], 0), d["op_rank"],
               pc.fill_null(d["change_hash"], 0), own]  # fmt: skip
    out = np.zeros(len(d), np.int64)
    for column in columns:
        codes = pc.dictionary_encode(column).combine_chunks().indices.to_numpy(zero_copy_only=False)
        _, out = np.unique(out * (int(codes.max(initial=0)) + 1) + codes, return_inverse=True)
    return out


def _overwritten(run: Run, *, stays: bool) -> Iterator[_Case]:
    touches = Touches.of(run.changes)
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
            if repaired != stays:
                message = f"the row, at commit_ts {ts[lead]}, is written back to its version of {ts[i]}"
                ends = int(at[record[j]]) if repaired else None
                yield _Case((int(record[lead]), int(record[i])), int(at[record[i]]), ends, message)


def _lost(run: Run, log: Log) -> Iterator[_Case]:
    outcome = np.array(run.changes["outcome"].to_pylist())
    change = _changes(run)
    survives = np.zeros(int(change.max(initial=-1)) + 1, np.bool_)
    survives[change[np.isin(outcome, ("applied", "pending", "unread"))]] = True
    (at,) = _numbers(run, "read_at")
    gone = np.flatnonzero(~survives[change])
    for i in gone[np.unique(change[gone], return_index=True)[1]].tolist():
        yield _Case((i,), int(at[i]), None, f"the change is {outcome[i]}, and no other delivery of it is written")


def _around_ddl(run: Run, log: Log, *, early: bool) -> Iterator[_Case]:
    ts, batch, at = _numbers(run, "commit_ts", "batch", "applied_at")
    number = {t: i for i, t in enumerate(log.tables)}
    table = np.array([number[t] for t in run.changes["table"].to_pylist()], np.int64)
    executed = _executed(run)
    for d, ddl in enumerate(log.ddls):
        where = _first_place(log, d)
        mine: Bools = blocked(ddl, log.tables)[table] & (batch >= 0)
        when = executed.get((ddl.commit_ts, ddl.query))
        n, done = when or (np.iinfo(np.int64).max, None)
        wrong = mine & (ts > ddl.commit_ts) & (batch < n) if early else mine & (ts <= ddl.commit_ts) & (batch > n)
        for i in np.flatnonzero(wrong).tolist():
            if early:
                message = f"a change that is newer than the DDL is written before it: {ddl.query}"
                yield _Case((i,), int(at[i]), done, message, where)
            else:
                message = f"a change that is older than the DDL is written after it: {ddl.query}"
                yield _Case((i,), int(at[i]), None, message, where)


def _executed(run: Run) -> dict[tuple[int, str], tuple[int, int]]:
    """Batch and time of the first execution of each DDL."""
    done = run.steps.filter(pc.equal(run.steps["action"], "ddl")).to_pylist()
    return {(s["commit_ts"], s["detail"]): (s["batch"], s["at"]) for s in reversed(done)}


def _first_place(log: Log, d: int) -> tuple[str, int, int, int]:
    at = int(np.flatnonzero(log.ddl == d)[0])
    found = log.events.select(["topic", "partition", "offset", "commit_ts"]).slice(at, 1).to_pylist()[0]
    return tuple(found.values())


_FINDERS: dict[str, Callable[[Run, Log], Iterator[_Case]]] = {
    KINDS[0]: _torn,
    KINDS[1]: lambda run, log: _overwritten(run, stays=False),
    KINDS[2]: lambda run, log: _overwritten(run, stays=True),
    KINDS[3]: _lost,
    KINDS[4]: lambda run, log: _around_ddl(run, log, early=True),
    KINDS[5]: lambda run, log: _around_ddl(run, log, early=False),
}


def _as_table(run: Run, found: list[tuple[str, _Case]]) -> pa.Table:
    names = ["topic", "partition", "offset", "commit_ts", "table"]
    shown = sorted({r for _, c in found for r in c.records})
    where = dict(zip(shown, run.changes.select(names).take(pa.array(shown, pa.int64())).to_pylist(), strict=True))
    rows = []
    for kind, case in found:
        at = where[case.records[-1]]
        evidence = [{n: where[r][n] for n in _WHERE.names} for r in case.records]
        evidence += [dict(zip(_WHERE.names, case.ddl, strict=True))] if case.ddl else []
        rows.append(
            at | {"guarantee": kind, "severity": "error", "key": None, "message": case.message,
                  "begins_us": case.begins, "ends_us": case.ends, "evidence": evidence}
        )  # fmt: skip
    return pa.Table.from_pylist(rows, schema=to_arrow_schema(ANOMALIES))

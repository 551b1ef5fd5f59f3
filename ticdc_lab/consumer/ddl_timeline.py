"""For each DDL and partition: when it was seen, how long it was waited for, and which rows came on the wrong side."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from ticdc_lab.consumer.barriers import blocked
from ticdc_lab.consumer.log import NarrowLog
from ticdc_lab.consumer.model import ConsumerRun
from ticdc_lab.events.arrays import Bools

_NEVER = np.iinfo(np.int64).max


@dataclass(frozen=True, eq=False, slots=True)
class Sides:
    """What a run made of one DDL."""

    executed_at: int | None  # when it was executed first, µs of consumer time; None if never
    # ``early``, ``late``: for each of :attr:`ticdc_lab.consumer.model.ConsumerRun.changes`: it is of a table of the
    # DDL, and was written before it though it is newer, so under the wrong definition; or after it though it is older.
    early: Bools
    late: Bools


def ddl_sides(run: ConsumerRun, log: NarrowLog) -> Iterator[Sides]:
    """For each of :attr:`ticdc_lab.consumer.log.NarrowLog.ddls`, in their order."""
    number = {t: i for i, t in enumerate(log.tables)}
    table = np.array([number[t] for t in run.changes["table"].to_pylist()], np.int64)
    ts, batch = run.changes["commit_ts"].to_numpy(), pc.fill_null(run.changes["batch"], -1).to_numpy()
    executed = _executed(run)
    for ddl in log.ddls:
        mine: Bools = blocked(ddl, log.tables)[table] & (batch >= 0)
        number_of_it, at = executed.get((ddl.commit_ts, ddl.query), (_NEVER, None))
        newer = ts > ddl.commit_ts
        yield Sides(at, mine & newer & (batch < number_of_it), mine & ~newer & (batch > number_of_it))


def _executed(run: ConsumerRun) -> dict[tuple[int, str], tuple[int, int]]:
    """Batch and time of the first execution of each DDL."""
    done = run.steps.filter(pc.equal(run.steps["action"], "ddl")).to_pylist()
    return {(s["commit_ts"], s["detail"]): (s["batch"], s["at"]) for s in reversed(done)}


def ddl_timeline(run: ConsumerRun, log: NarrowLog) -> pd.DataFrame:
    """Follow the DDL of a log through a consumer.

    Parameters
    ----------
    run, log
        A run of :func:`ticdc_lab.consumer.model.run` over the log.

    Returns
    -------
    pd.DataFrame
        By DDL in order of commit_ts, and partition: ``ddl_commit_ts`` (TSO), ``query``, ``topic``, ``partition``,
        ``seen_at`` (Int64, µs: when the listener read it; where DDL is in partition 0 alone, when a watermark moved
        it that far; null if never), ``waited_us`` (Int64: from then until it was executed), ``executed_at`` (Int64, µs;
        null if never), ``early_rows`` and ``late_rows`` (how many row changes of its tables were written from this
        partition before it though they are newer, so under the wrong definition, and after it though they are older).
    """
    part = np.searchsorted([p.first for p in log.parts], run.places, side="right") - 1
    seen = _seen(run, log)
    rows = []
    of_each = enumerate(zip(log.ddls, ddl_sides(run, log), strict=True))
    for d, (ddl, sides) in sorted(of_each, key=lambda numbered: numbered[1][0].commit_ts):
        at = sides.executed_at
        early, late = (np.bincount(part[w], minlength=len(log.parts)) for w in (sides.early, sides.late))
        for i, home in enumerate(log.parts):
            own = seen.get((home.topic, home.partition, d))
            if own is None and not log.everywhere:
                own = _told(run, home.topic, home.partition, ddl.commit_ts)
            waited = max(0, at - own) if own is not None and at is not None else None
            rows.append(
                (ddl.commit_ts, ddl.query, home.topic, home.partition, own, waited, at, int(early[i]), int(late[i]))
            )
    names = [
        "ddl_commit_ts",
        "query",
        "topic",
        "partition",
        "seen_at",
        "waited_us",
        "executed_at",
        "early_rows",
        "late_rows",
    ]
    out = pd.DataFrame(rows, columns=names)
    return out.astype(dict.fromkeys(("seen_at", "waited_us", "executed_at"), "Int64"))


def _seen(run: ConsumerRun, log: NarrowLog) -> dict[tuple[str, int, int], int]:
    """When each listener first read each DDL, with any outcome."""
    at = np.flatnonzero(log.ddl >= 0)
    places = log.events.select(["topic", "partition", "offset"]).take(at).to_pylist()
    of_place = {tuple(p.values()): d for p, d in zip(places, log.ddl[at].tolist(), strict=True)}
    read = run.steps.filter(pc.is_in(run.steps["action"], pa.array(["ddl seen", "ddl skipped"]))).to_pylist()
    told = [(s["topic"], s["partition"], of_place[s["topic"], s["partition"], s["offset"]], s["at"]) for s in read]
    return {(topic, partition, d): time for topic, partition, d, time in reversed(told)}


def _told(run: ConsumerRun, topic: str, partition: int, ts: int) -> int | None:
    """When a listener's watermark first reached ``ts``."""
    s = run.steps
    own = pc.and_(pc.equal(s["topic"], topic), pc.equal(s["partition"], partition))
    reached = s.filter(pc.and_(own, pc.and_(pc.equal(s["action"], "resolved"), pc.greater_equal(s["commit_ts"], ts))))
    first: int | None = pc.min(reached["at"]).as_py()
    return first

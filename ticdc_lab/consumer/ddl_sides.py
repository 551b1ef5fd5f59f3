"""On which side of a DDL a consumer wrote row changes, and on which they belong."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow.compute as pc

from ticdc_lab.consumer.blocked import blocked
from ticdc_lab.consumer.log import NarrowLog
from ticdc_lab.consumer.model import ConsumerRun
from ticdc_lab.events.arrays import Bools

_NEVER = np.iinfo(np.int64).max


@dataclass(frozen=True, eq=False, slots=True)
class Sides:
    """What a run made of one DDL.

    Attributes
    ----------
    executed_at
        When it was executed first, µs of consumer time; None if never.
    early, late
        For each of :attr:`ticdc_lab.consumer.model.ConsumerRun.changes`: it is of a table of the DDL, and was written
        before it though it is newer, so under the wrong definition; or after it though it is older.
    """

    executed_at: int | None
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

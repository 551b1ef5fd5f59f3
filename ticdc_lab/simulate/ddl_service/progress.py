"""One DDL job of a simulated service, from the trace: its steps, the servers' states, and whom it waits for."""

from __future__ import annotations

from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from ticdc_lab.ddl_core import jobs, keys, records
from ticdc_lab.ddl_core.keys import store_of
from ticdc_lab.ddl_core.progress import SERVED, STEPS, WAITS, JobProgress, state_at
from ticdc_lab.machines.ledger import Ledger
from ticdc_lab.machines.machine import node_of
from ticdc_lab.simulate.what_holds import JOB, SERVER, holders


def job_progress(trace: pa.Table, *, cluster: str, job: int = 1) -> JobProgress | None:
    """Read a job of a run; None where the cluster has no such job.

    ``trace``: :data:`ticdc_lab.simulate.trace.TRACE`; level ``changes`` is enough. ``cluster``, ``job``: ids.
    """
    end_us = int(trace["time_us"][-1].as_py()) if len(trace) else 0
    changed = trace.filter(pc.equal(trace["kind"], "changed"))
    of_store = _rows(changed.filter(pc.equal(changed["node"], store_of(cluster))))
    steps = [r for r in of_store if r["subject"] in (f"{keys.JOBS}{job}", f"{keys.HISTORY}{job}")]
    steps = [r for r in steps if r["after"] is not None]
    if not steps:
        return None
    if "violated" in trace["kind"].to_pylist()[-3:]:
        end_us += max(1, (end_us - steps[0]["time_us"]) // 25)  # make visible what broke the invariant
    last = records.job(steps[-1]["after"])
    since_us, until_us = steps[0]["time_us"], steps[-1]["time_us"] if last.state in records.ENDS else end_us
    states = _states(of_store, last.element)
    served = _served(trace, cluster, states, end_us)
    held = holders(trace, of=f"{JOB}{cluster}/{job}", until_us=until_us)
    waits = held[held["kind"] == SERVER][["name", "answer", "since_us", "until_us"]].reset_index(drop=True)
    return JobProgress(
        cluster,
        last,
        served,
        _steps(steps, end_us),
        waits.set_axis(WAITS, axis=1),
        since_us,
        until_us,
    )


def _rows(table: pa.Table) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = table.select(["time_us", "step", "subject", "after", "node"]).to_pylist()
    return rows


def _states(rows: list[dict[str, Any]], element: str) -> list[tuple[int, str]]:
    """The version from which on the element is in a state, in order."""
    found, state = [(0, jobs.NONE)], jobs.NONE
    for r in rows:
        if r["subject"] == keys.SCHEMA + element:
            state = r["after"] or jobs.NONE
        elif r["subject"] == keys.GLOBAL_VERSION and state != found[-1][1]:
            found.append((int(r["after"]), state))
    return found


def _served(trace: pa.Table, cluster: str, states: list[tuple[int, str]], end_us: int) -> pd.DataFrame:
    """Versions by server; one that is down or paused serves no one."""
    own = trace.filter(pc.starts_with(trace["node"], f"{cluster}/"))
    keep = pc.or_(
        pc.and_(pc.equal(own["kind"], "changed"), pc.fill_null(pc.equal(own["subject"], "schema"), False)),
        pc.is_in(own["kind"], pa.array(["crashed", "paused", "resumed"])),
    )
    rows: Ledger[int] = Ledger()
    serving: dict[str, int | None] = {}
    asleep: dict[str, int | None] = {}
    for r in own.filter(keep).select(["time_us", "node", "kind", "after"]).to_pylist():
        node, kind, at_us = r["node"], r["kind"], r["time_us"]
        if kind == "changed":
            serving[node] = None if r["after"] is None else int(r["after"])
        elif kind == "resumed":
            serving[node] = asleep.pop(node, None)
        else:
            asleep[node] = serving.pop(node, None)
        rows.set(node_of(node), serving.get(node), at_us)
    found = [(r.key, r.state, state_at(states, r.state), r.since, r.until) for r in rows.end(end_us)]
    return pd.DataFrame(found, columns=list(SERVED))


def _steps(rows: list[dict[str, Any]], end_us: int) -> pd.DataFrame:
    found = []
    for row, ends_us in zip(rows, [*(r["time_us"] for r in rows[1:]), end_us], strict=True):
        job = records.job(row["after"])
        found.append((job.state, job.schema_state, job.row_count, job.owner, row["time_us"], ends_us))
    return pd.DataFrame(found, columns=list(STEPS))

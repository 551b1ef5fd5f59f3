"""The metrics of the proposal's list, one series a cluster, read off a worker's steps."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

from ticdc_lab.ddl_core import jobs, keys, records
from ticdc_lab.ddl_core.records import Job
from ticdc_lab.ddl_core.store import Done, Put, Txn
from ticdc_lab.ddl_core.worker_state import WorkerState
from ticdc_lab.machines.machine import Received, Send

_JOB = ("cluster", "type")


class Metrics:
    """What one worker has counted and measured since it started. ``clock``: gives the time, s."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        own = self._registry = CollectorRegistry()
        self._synced = Histogram(
            "tidb_ddl_owner_handle_syncer_duration_seconds",
            "Until every server had a schema version.",
            _JOB,
            registry=own,
        )
        self._operation = Histogram(
            "tidb_ddl_worker_operation_duration_seconds",
            "One step of a job, from when the one before it was done: what it waits for is in it.",
            (*_JOB, "result"),
            registry=own,
        )
        self._operations = Counter("tidb_ddl_worker_operation_total", "Steps of jobs.", _JOB, registry=own)
        self._rows = Counter("tidb_ddl_add_index_total", "Rows that were backfilled.", ("cluster",), registry=own)
        self._progress = Gauge("tidb_ddl_backfill_percentage_progress", "Of the backfill, %.", _JOB, registry=own)
        self._table = Histogram(
            "tidb_ddl_job_table_duration_seconds",
            "Until the store had answered a change of the queue.",
            ("cluster",),
            registry=own,
        )
        self._running = Gauge(
            "tidb_ddl_running_job_count", "Jobs of an owned cluster that have begun and not ended.", _JOB, registry=own
        )
        self._trouble = Gauge(
            "ddl_service_store_trouble", "1 while the store takes no changes: no room, or locked.", registry=own
        )
        self._skew = Gauge(
            "ddl_service_clock_skew_seconds", "How far this machine's clock is ahead of the store's time.", registry=own
        )
        self._sent: dict[str, tuple[float, Job, Job | None]] = {}
        self._begun: dict[str, tuple[float, int]] = {}
        self._waits: dict[str, tuple[float, int, str]] = {}
        self._kinds: dict[str, set[str]] = {}

    def store(self, trouble: str, skew_us: int) -> None:
        """Report whether the store takes what is written, and how far this machine's clock is ahead of its time."""
        self._trouble.set(bool(trouble))
        self._skew.set(skew_us / 1e6)

    def text(self) -> bytes:
        """Give all in Prometheus' text format."""
        return generate_latest(self._registry)

    def saw(self, event: Any, state: WorkerState, outputs: Sequence[Any]) -> None:
        if isinstance(event, Received) and isinstance(event.message, Done):
            tag: Any = event.message.tag
            cluster, what = tag[0], tag[2]
            if what == "step" and cluster in self._sent:
                self._answered(cluster, event.message.succeeded)
        for output in outputs:
            if isinstance(output, Send) and isinstance(output.message, Txn) and output.message.tag[2] == "step":  # type: ignore[index]
                self._asked(output.message, state)
        if isinstance(event, Received) and event.message.tag[0] in state.owners:
            self._counted(event.message.tag[0], state)
        for cluster in [c for c in self._kinds if c not in state.owners]:
            # Drop all gauges, which another worker now sets; counters stay.
            for kind in self._kinds.pop(cluster):
                self._running.remove(cluster, kind)
                with suppress(KeyError):
                    self._progress.remove(cluster, kind)
            for known in (self._sent, self._begun, self._waits):
                known.pop(cluster, None)

    def _asked(self, txn: Txn, state: WorkerState) -> None:
        cluster: str = txn.tag[0]  # type: ignore[index]
        put = next(op for op in txn.ops if isinstance(op, Put) and op.key.startswith((keys.JOBS, keys.HISTORY)))
        job, own = records.job(put.value), state.owners.get(cluster)
        mirror = own.link.mirror if own else None
        entry = mirror.under(keys.JOBS).get(str(job.id)) if mirror else None
        before = records.job(entry.value) if entry else None
        at_s = self._clock()
        self._sent[cluster] = at_s, job, before
        if self._begun.get(cluster, (0.0, 0))[1] != job.id:
            self._begun[cluster] = at_s, job.id
        waited = self._waits.pop(cluster, None)
        if waited and waited[1] == job.id:
            self._synced.labels(cluster, waited[2]).observe(at_s - waited[0])

    def _answered(self, cluster: str, succeeded: bool) -> None:
        at_s, (since_s, job, before) = self._clock(), self._sent.pop(cluster)
        result = "ok" if succeeded else "err"
        self._operation.labels(cluster, job.kind, result).observe(at_s - self._begun[cluster][0])
        self._table.labels(cluster).observe(at_s - since_s)
        if not succeeded:
            return
        self._begun[cluster] = at_s, job.id
        self._operations.labels(cluster, job.kind).inc()
        if before is not None and job.schema_version > before.schema_version:
            self._waits[cluster] = at_s, job.id, job.kind
        if job.kind in jobs.BACKFILLED and job.rows and job.schema_version:
            self._rows.labels(cluster).inc(max(0, job.row_count - (before.row_count if before else 0)))
            self._progress.labels(cluster, job.kind).set(100 * job.row_count / job.rows)

    def _counted(self, cluster: str, state: WorkerState) -> None:
        own = state.owners.get(cluster)
        queue = own.link.mirror.under(keys.JOBS) if own and own.status == records.IS_OWNER and own.link.mirror else None
        counts: dict[str, int] = {}
        for entry in queue.values() if queue is not None else ():
            job = records.job(entry.value)
            counts[job.kind] = counts.get(job.kind, 0) + job.has_begun
        known = self._kinds.setdefault(cluster, set())
        known.update(counts)
        for kind in sorted(known):
            self._running.labels(cluster, kind).set(counts.get(kind, 0))

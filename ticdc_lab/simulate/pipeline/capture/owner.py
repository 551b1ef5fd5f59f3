"""What an owner does about DDLs: the barrier they are, which tables there are, and their execution, each in turn.

A new owner cannot know whether the job at the persisted checkpoint was executed, so it lets it be executed again.
"""

from __future__ import annotations

from typing import Any

from ticdc_lab.machines.machine import Decided, Ignored, Send
from ticdc_lab.simulate.pipeline.capture.mounter import tables_at
from ticdc_lab.simulate.pipeline.capture.state import CaptureDesk, Duty
from ticdc_lab.simulate.pipeline.settings import MYSQL
from ticdc_lab.simulate.pipeline.sink_messages import DOWNSTREAM, Admin, AdminWritten, Execute, Executed, Resolved
from ticdc_lab.simulate.pipeline.tables import FinishedJob
from ticdc_lab.simulate.scheduler.capture import owner_rev
from ticdc_lab.simulate.scheduler.dispatcher_state import DispatcherState, unsynced
from ticdc_lab.simulate.scheduler.etcd_messages import ETCD, PutPartitions, PutTables, View
from ticdc_lab.simulate.scheduler.roles import Key
from ticdc_lab.simulate.scheduler.v3 import V3CoordinatorState
from ticdc_lab.simulate.scheduler.v3.captures import all_initialized

LAST_JOB = 1 << 62
NO_TABLES: frozenset[Key] = frozenset()


def followed(desk: CaptureDesk) -> None:
    """Begin the duty with an election, and end it with the next one's."""
    rev = owner_rev(desk.inner)
    if rev is None:
        desk.duty = None
    elif desk.duty is None or desk.duty.rev != rev:
        desk.duty = Duty(rev, (max(desk.start_ts, desk.inner.checkpoint_ts - 1), LAST_JOB))


def next_job(desk: CaptureDesk) -> tuple[int, FinishedJob] | None:
    """Give the first job that is not known to be executed."""
    duty = desk.duty
    if duty is None:
        return None
    return next((j for j in desk.ddl.jobs if (j[0], j[1].id) > duty.executed and _is_replicated(desk, j[1])), None)


def _is_replicated(desk: CaptureDesk, job: FinishedJob) -> bool:
    """Whether the changefeed's filter lets a job through; jobs of schemas always."""
    tables = {job.dropped, job.info and job.info.id} - {None}
    return desk.only is None or not tables or not tables.isdisjoint(desk.only)


def barrier_ts(desk: CaptureDesk) -> int:
    """Give what no watermark may pass: the next job, and what the DDL puller knows."""
    job = next_job(desk)
    return desk.ddl.resolved_ts if job is None else min(job[0], desk.ddl.resolved_ts)


def may_tick(desk: CaptureDesk) -> bool:
    """Check whether the owner knows which tables there are: not before its DDL puller has come to the checkpoint."""
    duty = desk.duty
    if duty is None:
        return True
    waits = desk.ddl.resolved_ts < desk.inner.checkpoint_ts
    if waits and not duty.waits:
        because = f"the DDL puller is at {desk.ddl.resolved_ts}, the checkpoint at {desk.inner.checkpoint_ts}"
        desk.outputs.append(Decided("wanted-tables", None, because))
    desk.duty = duty._replace(waits=waits)
    return not waits


def instruct(desk: CaptureDesk) -> None:
    """Put barrier and wanted tables into what the scheduler's owner sees at a tick, and the tables into etcd."""
    duty, view = desk.duty, desk.inner.view
    if duty is None or view is None:
        return
    desk.duty = duty = _wished(desk, duty, view)
    if duty.partitions is not None:
        # With nothing wanted and the barrier where the checkpoint is, tables stop and the checkpoint stands.
        stands = view._replace(tables=NO_TABLES, barrier_ts=desk.inner.checkpoint_ts)
        desk.inner = desk.inner._replace(view=stands)
        return
    if duty.wanted_ts != duty.executed[0]:
        wanted = tables_at(desk.ddl.schema, duty.executed[0])
        wanted = wanted if desk.only is None else wanted & desk.only
        if wanted != duty.wanted:
            because = f"as of {duty.executed[0]}: {len(wanted)} tables"
            desk.outputs.append(Decided("wanted-tables", ", ".join(map(str, sorted(wanted))), because))
        duty = duty._replace(wanted=duty.wanted if wanted == duty.wanted else wanted, wanted_ts=duty.executed[0])
        desk.duty = duty
    if duty.wanted != view.tables and duty.wanted is not duty.put:
        desk.outputs.append(Send(ETCD, PutTables(duty.rev, duty.wanted)))
        desk.duty = duty._replace(put=duty.wanted)
    desk.inner = desk.inner._replace(view=view._replace(tables=duty.wanted, barrier_ts=barrier_ts(desk)))


def proceed(desk: CaptureDesk) -> None:
    """Send the checkpoint downstream, and let it execute the job that the checkpoint has come to."""
    duty, checkpoint_ts = desk.duty, desk.inner.checkpoint_ts
    if duty is None:
        return
    if checkpoint_ts > duty.told_ts:
        desk.outputs.append(Send(DOWNSTREAM, Resolved(checkpoint_ts)))
        duty = duty._replace(told_ts=checkpoint_ts)
    desk.duty = duty
    if duty.partitions is not None:
        _repartition(desk, duty, duty.partitions)
        return
    _execute(desk, duty, checkpoint_ts)


def _execute(desk: CaptureDesk, duty: Duty, checkpoint_ts: int) -> None:
    job = next_job(desk)
    if job is None or job[0] > checkpoint_ts:
        return
    identity = (job[0], job[1].id)
    if duty.executing == identity and desk.at_us - duty.asked_us < desk.settings.retry_us:
        return
    because = "there was no answer" if duty.executing == identity else f"the checkpoint is {checkpoint_ts}"
    desk.outputs.append(Decided(f"ddl:{job[1].id}", f"execute {job[1].query}", because))
    desk.outputs.append(Send(DOWNSTREAM, Execute(*job)))
    desk.duty = duty._replace(executing=identity, asked_us=desk.at_us)


# Another number of partitions (MQ design, "Partition 扩容与缩容"): pause, Admin, restart


def _wished(desk: CaptureDesk, duty: Duty, view: View) -> Duty:
    """Begin to pause every task, as a user wants another number of partitions, which an earlier owner may have heard.

    Etcd keeps the wish until an owner is done with it; one that was carried out before its owner could report
    it is carried out again, which changes nothing downstream.
    """
    wanted = view.partitions
    if wanted is None or duty.partitions is not None:
        return duty
    if desk.settings.sink == MYSQL:
        because = "a database has none"
        decided = [Decided("partitions", None, because)] if wanted != duty.settled else []
        desk.outputs += [*decided, Send(ETCD, PutPartitions(duty.rev, wanted, because))]
        return duty._replace(settled=wanted)
    if wanted == duty.settled:
        desk.outputs.append(Send(ETCD, PutPartitions(duty.rev, wanted)))
        return duty
    desk.outputs.append(Decided("partitions", "pause", f"a user wants {wanted}: all tables stop first"))
    return duty._replace(partitions=wanted, empty_us=None)


def _repartition(desk: CaptureDesk, duty: Duty, partitions: int) -> None:
    """Send the Admin event when no table is dispatched and what was under way has come to rest.

    TiCDC's design misses an answer of the processors. Here the scheduler reports their stop, and ``retry_us``
    more must pass: what a processor had sent before is there by then, or was sent in vain.
    """
    if not is_idle(desk.inner.owner):
        desk.duty = duty._replace(empty_us=None)
        return
    if duty.empty_us is None:
        desk.duty = duty._replace(empty_us=desk.at_us, asked_us=desk.at_us)
        return
    if desk.at_us - max(duty.empty_us, duty.asked_us) >= desk.settings.retry_us:
        desk.outputs.append(Decided("partitions", str(partitions), "no table is dispatched"))
        desk.outputs.append(Send(DOWNSTREAM, Admin(partitions, desk.inner.checkpoint_ts)))
        desk.duty = duty._replace(asked_us=desk.at_us)


def is_idle(owner: Any) -> bool:
    """Whether the owner knows all captures and none of them has a table, in any variant's words."""
    if isinstance(owner, DispatcherState):
        return unsynced(owner) is None and not owner.tables.records
    if isinstance(owner, V3CoordinatorState):
        return all_initialized(owner.captures) and not owner.replications.sets
    control = owner.control
    return bool(owner.bootstrapped) and not control.spans.replicas and not control.running


def repartitioned(desk: CaptureDesk, answer: AdminWritten) -> None:
    """Let all tables be dispatched again, from the global checkpoint."""
    duty = desk.duty
    if duty is None or duty.partitions != answer.partitions:
        desk.outputs.append(Ignored(answer, "this capture waits for no such Admin event"))
        return
    desk.outputs.append(Decided("partitions", "go on", f"from {desk.inner.checkpoint_ts}"))
    desk.outputs.append(Send(ETCD, PutPartitions(duty.rev, answer.partitions)))
    desk.duty = duty._replace(partitions=None, settled=answer.partitions, empty_us=None)


def executed(desk: CaptureDesk, answer: Executed) -> None:
    """Resume behind an executed job."""
    duty = desk.duty
    if duty is None or duty.executing is None or duty.executing[0] != answer.finished_ts:
        desk.outputs.append(Ignored(answer, "this capture waits for no such DDL"))
        return
    desk.outputs.append(Decided(f"ddl:{duty.executing[1]}", "go on", "it is executed"))
    desk.duty = duty._replace(executed=duty.executing, executing=None)
    proceed(desk)

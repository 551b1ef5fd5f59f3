"""What figures and explanations read of a capture."""

from __future__ import annotations

from ticdc_lab.simulate.pipeline.capture.mounter import in_memory, info_at, on_disk
from ticdc_lab.simulate.pipeline.capture.state import ASKING, PD, DataState, Path, Puller
from ticdc_lab.simulate.pipeline.observed import CaptureFacts, StreamFacts, TableFacts
from ticdc_lab.simulate.scheduler.roles import in_turn


def capture_facts(state: DataState) -> CaptureFacts:
    """Give what can be seen of a capture.

    ``state``: of the machine :class:`ticdc_lab.simulate.pipeline.capture.machine.DataCapture`. Returns: tables are in
    the scheduler's order.
    """
    duty = state.duty
    return CaptureFacts(
        address=state.address,
        is_owner=state.owner is not None,
        limit_ts=state.resolved_ts,
        resolved_ts=state.resolved_ts,
        checkpoint_ts=state.checkpoint_ts,
        ddl_resolved_ts=state.ddl.resolved_ts,
        ddl_streams=_streams(state.ddl.puller),
        jobs=tuple((ts, job.query) for ts, job in state.ddl.jobs if duty and (ts, job.id) > duty.executed),
        executing_ts=duty.executing[0] if duty and duty.executing else None,
        tables=tuple(_table(state, state.paths[key]) for key in in_turn(state.paths)),
        mounting_until_us=state.mounting_until_us,
    )


def _streams(puller: Puller) -> tuple[StreamFacts, ...]:
    found = [
        StreamFacts(s.region, s.store, s.start, s.end, s.state, s.resolved_ts, s.since_us)
        for s in puller.streams.values()
    ]
    found += [StreamFacts(0, PD, g.start, g.end, ASKING, g.resolved_ts, g.since_us) for g in puller.gaps]
    return tuple(sorted(found, key=lambda s: s.start))


def _table(state: DataState, path: Path) -> TableFacts:
    sink, sorter, streams = path.sink, path.sorter, path.puller.streams
    table = path.key if isinstance(path.key, int) else path.key.table
    executor = state.processor.executor
    marks = executor.marks.get(path.key)
    checkpoint_ts = executor.stalled.get(path.key, max(path.checkpoint_ts, marks.checkpoint_ts if marks else 0))
    info = info_at(state.ddl.schema, table, path.checkpoint_ts) or info_at(state.ddl.schema, table, 1 << 63)
    resolved_ts = max(path.start_ts, min(path.puller.resolved_ts, state.ddl.resolved_ts))
    return TableFacts(
        table=table,
        name=info.quoted if info else "",
        state=path.state,
        start_ts=path.start_ts,
        resolved_ts=resolved_ts,
        checkpoint_ts=checkpoint_ts,
        streams=_streams(path.puller),
        unmatched=sum(len(s.prewrites) + len(s.early) for s in streams.values()),
        sorting=in_memory(sorter),
        spilled=on_disk(sorter),
        mounting=len(sink.due) - sink.at,
        under_way=sink.n_flying,
        oldest_under_way_ts=sink.flights[0].first_ts if sink.flights else None,
        oldest_since_us=sink.flights[0].since_us if sink.flights else None,
        received=path.puller.received,
        written=sink.written,
    )

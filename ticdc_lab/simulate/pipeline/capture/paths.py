"""The data paths of a capture follow the scheduler's pipelines: begun, let write, stopped, dropped."""

from __future__ import annotations

from immutables import Map

from ticdc_lab.simulate.machine import Changed, Decided
from ticdc_lab.simulate.pipeline.capture import kv_client, sink
from ticdc_lab.simulate.pipeline.capture.desk import Desk
from ticdc_lab.simulate.pipeline.capture.path_state import ASKING, Path, Sorter
from ticdc_lab.simulate.pipeline.capture.puller import begun, span_of_key
from ticdc_lab.simulate.scheduler.capture_state import with_executor
from ticdc_lab.simulate.scheduler.executor import PREPARING, REPLICATING, STOPPING, WRITING, Pipeline, marked, scanned
from ticdc_lab.simulate.scheduler.roles import Key, in_turn

Pipelines = Map[Key, Pipeline]


def followed(desk: Desk, before: Pipelines) -> None:
    """Bring the data paths up to the pipelines after a step of the scheduler's machine."""
    after = desk.executor.pipelines
    if after is before:
        return
    ended = {o.subject for o in desk.outputs if type(o) is Changed and o.after is None}
    for key in in_turn(desk.paths):
        if key not in after or f"table:{key}" in ended:
            _drop(desk, key)
    for key in in_turn(k for k in after if after[k] is not before.get(k) or k not in desk.paths):
        _follow(desk, key, after[key])
    kv_client.begin_scans(desk)


def _follow(desk: Desk, key: Key, pipeline: Pipeline) -> None:
    path = desk.paths.get(key)
    if path is not None and path.state not in WRITING and pipeline.start_ts < path.start_ts:
        because = f"it shall write from {pipeline.start_ts} on, and has pulled from {path.start_ts} only"
        desk.outputs.append(Decided(f"table-path:{key}", "pull again", because))
        _drop(desk, key)
        path = None
    if path is None:
        path = _begin(desk, key, pipeline)
    if path.state not in WRITING:
        start_ts = pipeline.start_ts
        path = path._replace(start_ts=start_ts, checkpoint_ts=max(start_ts, path.checkpoint_ts))
    starts = path.state not in WRITING and pipeline.state == REPLICATING
    path = path._replace(state=pipeline.state)
    desk.put(path)
    if starts:
        sink.begin(desk, path)
        sink.pump(desk, key)


def _begin(desk: Desk, key: Key, pipeline: Pipeline) -> Path:
    puller = begun(*span_of_key(key), pipeline.start_ts, desk.at_us)
    path = Path(key, PREPARING, pipeline.start_ts, pipeline.start_ts, puller, Sorter(pipeline.start_ts))
    desk.put(path)
    desk.tell(key, None, ASKING, f"its changes after {pipeline.start_ts} are wanted")
    kv_client.ask(desk, key)
    return desk.paths[key]


def _drop(desk: Desk, key: Key) -> None:
    """Pull and write no more of a table, at once."""
    kv_client.leave(desk, key)
    path = desk.paths[key]
    left = len(path.sink.due) - path.sink.at + path.sink.n_flying
    desk.paths = desk.paths.delete(key)
    desk.tell(key, path.state, None, f"{left} rows were due and not acknowledged" if left else "nothing was under way")


def measured(desk: Desk) -> None:
    """Tell the scheduler how far every table is, and whose scan has ended."""
    executor = desk.executor
    marks = {}
    for key in in_turn(desk.paths):
        path, pipeline = desk.paths[key], executor.pipelines[key]
        if pipeline.state == STOPPING and pipeline.due_us <= desk.at_us:
            continue  # it ends now, at what was told last
        found = sink.marks_of(desk, path)
        if found != executor.marks.get(key):
            marks[key] = found
        if found.checkpoint_ts > path.checkpoint_ts:
            desk.put(path._replace(checkpoint_ts=found.checkpoint_ts))
        if pipeline.state == PREPARING and pipeline.due_us > desk.at_us and path.puller.initialized:
            executor = scanned(executor, key, desk.at_us)
    if marks:
        executor = marked(executor, marks)
    if executor is not desk.executor:
        desk.inner = desk.inner._replace(processor=with_executor(desk.inner.processor, executor))

"""The table pipelines of one processor: what the protocol's agents add, prepare, stop and ask for watermarks.

States: ``preparing`` (incremental scan), ``prepared`` (scanned and sorted, writes nothing), ``replicating`` and
``stopping`` (both write). Nothing happens by itself: :func:`settled` brings a state up to a moment, so that time is the
caller's. A processor writes a table while its pipeline is in one of :data:`WRITING`.

Watermarks and the ends of scans follow from time alone (:class:`TablePace`), unless the pace is ``measured``: then a
data path (:mod:`ticdc_lab.simulate.pipeline`) reports them, by :func:`scanned` and :func:`marked`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

from immutables import Map

from ticdc_lab.machines.clock import ts_of, us_of
from ticdc_lab.machines.machine import Changed, stepped
from ticdc_lab.simulate.scheduler.roles import Key, in_turn, order, without

PREPARING, PREPARED, REPLICATING, STOPPING = "preparing", "prepared", "replicating", "stopping"
WRITING = frozenset({REPLICATING, STOPPING})
MAX_TS = (1 << 64) - 1
"""Of a timestamp: MaxUint64."""
NEVER_US = 1 << 62


@dataclass(frozen=True, slots=True)
class TablePace:
    """How fast pipelines are; µs, and how many times faster than the upstream one that is behind catches up.

    ``measured``: scans end and watermarks proceed by a data path; of the others ``stop_us`` alone
    counts then.
    """

    prepare_us: int = 200_000
    stop_us: int = 50_000
    lag_us: int = 100_000
    catch_up: int = 20
    measured: bool = False


STEADY = TablePace()


class Pipeline(NamedTuple):
    """One table: ``since_us`` is when its state began, ``due_us`` when preparing or stopping ends."""

    state: str
    start_ts: int
    since_us: int
    due_us: int
    primary: bool


class Marks(NamedTuple):
    """How far the data path of a table is."""

    checkpoint_ts: int
    resolved_ts: int


@stepped
class Executor(NamedTuple):
    """All pipelines of a processor."""

    pace: TablePace
    limit_ts: int  # the global resolved ts, as far as this processor knows
    pipelines: Map[Key, Pipeline] = Map()  # by table or span
    pending: Map[Key, None] = Map()  # those that are preparing or stopping
    behind: Map[Key, None] = Map()  # those that write and have not caught up with the upstream
    stalled: Map[Key, int] = Map()  # those whose sink is stuck, with the checkpoint at which it is
    marks: Map[Key, Marks] = Map()  # what the data path measured; empty unless the pace is ``measured``


def state_of(executor: Executor, key: Key) -> str | None:
    found = executor.pipelines.get(key)
    return found.state if found else None


def added(
    executor: Executor, key: Key, start_ts: int, at_us: int, because: str, *, primary: bool = True
) -> tuple[Executor, list[Changed]]:
    """Start a pipeline; a secondary one stops at ``prepared`` until :func:`promoted`."""
    due_us = _prepared_at(executor, at_us)
    pipeline = Pipeline(PREPARING, start_ts, at_us, due_us, primary)
    return (
        executor._replace(pipelines=executor.pipelines.set(key, pipeline), pending=executor.pending.set(key, None)),
        [Changed(f"table:{key}", None, PREPARING, because)],
    )


def added_many(
    executor: Executor, starts: Mapping[Key, int], at_us: int, because: str
) -> tuple[Executor, list[Changed]]:
    """Start pipelines that write, each from its ts, as :func:`added` does one."""
    due_us = _prepared_at(executor, at_us)
    begun = {key: Pipeline(PREPARING, start_ts, at_us, due_us, True) for key, start_ts in starts.items()}
    changes = [Changed(f"table:{key}", None, PREPARING, because) for key in starts]
    return (
        executor._replace(
            pipelines=executor.pipelines.update(begun), pending=executor.pending.update(dict.fromkeys(begun))
        ),
        changes,
    )


def _prepared_at(executor: Executor, at_us: int) -> int:
    return NEVER_US if executor.pace.measured else at_us + executor.pace.prepare_us


def scanned(executor: Executor, key: Key, at_us: int) -> Executor:
    """Let the data path report that the incremental scan of a preparing pipeline has ended."""
    pipeline = executor.pipelines[key]
    if pipeline.state != PREPARING:
        return executor
    return executor._replace(pipelines=executor.pipelines.set(key, pipeline._replace(due_us=at_us)))


def marked(executor: Executor, marks: Mapping[Key, Marks]) -> Executor:
    """Let the data path report how far its tables are."""
    return executor._replace(marks=executor.marks.update(marks))


def promoted(executor: Executor, key: Key, start_ts: int, at_us: int, because: str) -> tuple[Executor, list[Changed]]:
    """Let a prepared pipeline write from ``start_ts`` on; one still preparing will write as soon as it is prepared.

    A sink that is stuck already stands where the pipeline begins to write, not where it was prepared.
    """
    old = executor.pipelines[key]
    if key in executor.stalled and old.state in (PREPARING, PREPARED):
        executor = executor._replace(stalled=executor.stalled.set(key, max(start_ts, executor.stalled[key])))
    if old.state == PREPARING:
        return executor._replace(
            pipelines=executor.pipelines.set(key, old._replace(primary=True, start_ts=start_ts))
        ), []
    if old.state != PREPARED:
        return executor, []
    new = Pipeline(REPLICATING, start_ts, at_us, at_us, True)
    return (
        executor._replace(pipelines=executor.pipelines.set(key, new), behind=executor.behind.set(key, None)),
        [Changed(f"table:{key}", PREPARED, REPLICATING, because)],
    )


def stopping(executor: Executor, key: Key, at_us: int, because: str) -> tuple[Executor, list[Changed]]:
    """Begin to stop a pipeline: it may write until it has stopped; one that never wrote is gone at once."""
    old = executor.pipelines[key]
    if old.state == STOPPING:
        return executor, []
    if old.state in (PREPARING, PREPARED):
        return gone(executor, key, because)
    new = old._replace(state=STOPPING, due_us=at_us + executor.pace.stop_us)
    return (
        executor._replace(pipelines=executor.pipelines.set(key, new), pending=executor.pending.set(key, None)),
        [Changed(f"table:{key}", old.state, STOPPING, because)],
    )


def has_stopped(executor: Executor, key: Key, at_us: int) -> bool:
    """Whether a stopping pipeline has come to its end; ask for :func:`checkpoint_of` before :func:`gone` removes it."""
    pipeline = executor.pipelines.get(key)
    return pipeline is None or (pipeline.state == STOPPING and pipeline.due_us <= at_us)


def gone(executor: Executor, key: Key, because: str) -> tuple[Executor, list[Changed]]:
    old = executor.pipelines[key]
    return (
        executor._replace(
            pipelines=executor.pipelines.delete(key),
            pending=without(executor.pending, key),
            behind=without(executor.behind, key),
            stalled=without(executor.stalled, key),
            marks=without(executor.marks, key),
        ),
        [Changed(f"table:{key}", old.state, None, because)],
    )


def emptied(executor: Executor, because: str) -> tuple[Executor, list[Changed]]:
    """Stop everything at once: the processor restarted, or its session is gone."""
    changes = [
        Changed(f"table:{key}", p.state, None, because)
        for key, p in sorted(executor.pipelines.items(), key=lambda e: order(e[0]))
    ]
    return Executor(executor.pace, executor.limit_ts), changes


def settled(executor: Executor, at_us: int) -> tuple[Executor, list[Changed]]:
    """Bring preparing pipelines whose scan has ended further, and forget who was behind and no longer is."""
    if not executor.pending and not executor.behind:
        return executor, []
    known, changes = executor.pipelines, []
    moved: dict[Key, Pipeline] = {}
    for key in in_turn(k for k in executor.pending if known[k].due_us <= at_us):
        old = known[key]
        if old.state == PREPARING:
            state = REPLICATING if old.primary else PREPARED
            moved[key] = Pipeline(state, old.start_ts, at_us, old.due_us, old.primary)
            changes.append(Changed(f"table:{key}", PREPARING, state, "its incremental scan has ended"))
    ahead, catch_up, behind = at_us - executor.pace.lag_us, executor.pace.catch_up, dict[Key, None]()
    for key in () if executor.pace.measured else executor.behind:
        _, start_ts, since_us, _, _ = known[key]
        if us_of(start_ts) + (at_us - since_us) * catch_up < ahead:
            behind[key] = None
    behind.update((key, None) for key, new in moved.items() if new.state == REPLICATING)
    if not moved and len(behind) == len(executor.behind):
        return executor, []
    return (
        executor._replace(
            pipelines=known.update(moved),
            pending=Map((key, None) for key in executor.pending if key not in moved) if moved else executor.pending,
            behind=Map(behind),
        ),
        changes,
    )


def checkpoint_of(executor: Executor, key: Key, at_us: int) -> int:
    """Give the checkpoint of a pipeline: all up to it is downstream. One that does not write is at its start."""
    pipeline = executor.pipelines[key]
    if key in executor.stalled:
        return executor.stalled[key]
    if pipeline.state not in WRITING:
        return pipeline.start_ts
    if executor.pace.measured:
        return max(pipeline.start_ts, executor.marks[key].checkpoint_ts) if key in executor.marks else pipeline.start_ts
    upstream_us = at_us - executor.pace.lag_us
    own_us = us_of(pipeline.start_ts) + (at_us - pipeline.since_us) * executor.pace.catch_up
    return max(pipeline.start_ts, min(ts_of(min(upstream_us, own_us)), executor.limit_ts))


def resolved_of(executor: Executor, key: Key, at_us: int) -> int:
    """Give the resolved ts of a pipeline: what its puller has received completely."""
    pipeline = executor.pipelines[key]
    if executor.pace.measured:
        return max(pipeline.start_ts, executor.marks[key].resolved_ts) if key in executor.marks else pipeline.start_ts
    return pipeline.start_ts if pipeline.state == PREPARING else max(pipeline.start_ts, ts_of(at_us))


def limited(executor: Executor, limit_ts: int) -> Executor:
    """Let the pipelines write up to a global resolved ts; one that is lower than the known one is old."""
    return executor._replace(limit_ts=limit_ts) if limit_ts > executor.limit_ts else executor


def slowest(executor: Executor, at_us: int) -> tuple[int, int, Key | None]:
    """Give the lowest checkpoint_ts and resolved_ts of all pipelines, and whose checkpoint it is.

    The key is None where all are equally far; both are :data:`MAX_TS` without a pipeline.
    """
    if executor.pace.measured:
        if not executor.pipelines:
            return MAX_TS, MAX_TS, None
        checkpoints = {k: executor.stalled.get(k) or checkpoint_of(executor, k, at_us) for k in executor.pipelines}
        last = min(checkpoints, key=lambda k: (checkpoints[k], order(k)))
        return checkpoints[last], min(resolved_of(executor, k, at_us) for k in executor.pipelines), last
    n_special = len(executor.behind) + len(executor.stalled) + len(executor.pending)
    special = {*executor.behind, *executor.stalled, *executor.pending} if n_special else ()
    checkpoint_ts, resolved_ts, key = MAX_TS, MAX_TS, None
    if len(special) < len(executor.pipelines):
        checkpoint_ts, resolved_ts = min(ts_of(at_us - executor.pace.lag_us), executor.limit_ts), ts_of(at_us)
    known, stalled = executor.pipelines, executor.stalled
    alike: dict[Pipeline, tuple[int, int]] = {}
    for one in special:
        pipeline = known[one]
        if one in stalled:
            own_ts, own_resolved_ts = stalled[one], resolved_of(executor, one, at_us)
        elif pipeline in alike:
            own_ts, own_resolved_ts = alike[pipeline]
        else:
            own_ts, own_resolved_ts = checkpoint_of(executor, one, at_us), resolved_of(executor, one, at_us)
            alike[pipeline] = own_ts, own_resolved_ts
        if own_resolved_ts < resolved_ts:
            resolved_ts = own_resolved_ts
        if own_ts < checkpoint_ts or (own_ts == checkpoint_ts and key is not None and order(one) < order(key)):
            checkpoint_ts, key = own_ts, one
    return checkpoint_ts, resolved_ts, key


def stuck(executor: Executor, key: Key, at_us: int) -> Executor:
    """Let the sink of a table take nothing from now on."""
    return executor._replace(stalled=executor.stalled.set(key, checkpoint_of(executor, key, at_us)))


def freed(executor: Executor, key: Key, at_us: int) -> Executor:
    """Let a stuck sink resume from where it stopped."""
    at_ts = executor.stalled[key]
    pipeline = executor.pipelines[key]._replace(start_ts=at_ts, since_us=at_us)
    return executor._replace(
        pipelines=executor.pipelines.set(key, pipeline),
        behind=executor.behind.set(key, None),
        stalled=executor.stalled.delete(key),
    )

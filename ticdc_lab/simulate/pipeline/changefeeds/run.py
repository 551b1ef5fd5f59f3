"""Run several changefeeds of one upstream: created, paused, resumed and removed while clients go on."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial, reduce
from typing import Any

import orjson
import pyarrow as pa
import pyarrow.compute as pc

from ticdc_lab.errors import ContractError
from ticdc_lab.machines.clock import ts_of
from ticdc_lab.simulate.faults import Ask, Chaos, Fault, drawn
from ticdc_lab.simulate.kernel import Kernel, no_cycles
from ticdc_lab.simulate.network import Network
from ticdc_lab.simulate.pipeline.changefeeds.auditor import ChangefeedsAuditor
from ticdc_lab.simulate.pipeline.changefeeds.changefeed import Changefeed, CreateChangefeed, Of, downstream_of, named
from ticdc_lab.simulate.pipeline.changefeeds.etcd import SharedEtcd, SharedState
from ticdc_lab.simulate.pipeline.changefeeds.server import CaptureServer, CaptureServerState
from ticdc_lab.simulate.pipeline.downstream import Downstream, Entry, entries
from ticdc_lab.simulate.pipeline.keys import table_of
from ticdc_lab.simulate.pipeline.load import Load, require_rows
from ticdc_lab.simulate.pipeline.log import log_events
from ticdc_lab.simulate.pipeline.monitor import PipelineMonitor, RowMeasures
from ticdc_lab.simulate.pipeline.run import upstream
from ticdc_lab.simulate.pipeline.settings import (
    BY_PROCESSOR,
    CONFLICT,
    MEASURED,
    MQ,
    DownstreamSettings,
    PipelineSettings,
)
from ticdc_lab.simulate.pipeline.sink_messages import DOWNSTREAM
from ticdc_lab.simulate.pipeline.tables import Change
from ticdc_lab.simulate.pipeline.tidb import PD, TIDB
from ticdc_lab.simulate.pipeline.tikv import committed_in
from ticdc_lab.simulate.pipeline.truth import changes_of
from ticdc_lab.simulate.runs import QUIET, SimulatedRun, ran
from ticdc_lab.simulate.scheduler.etcd import Etcd
from ticdc_lab.simulate.scheduler.etcd_messages import ETCD
from ticdc_lab.simulate.scheduler.executor import MAX_TS
from ticdc_lab.simulate.scheduler.monitor import SchedulerMonitor
from ticdc_lab.simulate.scheduler.variants import capture_machine
from ticdc_lab.simulate.trace import EVENTS, Recorder


@dataclass(frozen=True, eq=False, slots=True, kw_only=True)
class ChangefeedsRun(SimulatedRun[PipelineSettings]):
    """A run of several changefeeds.

    Attributes
    ----------
    load
        What clients did upstream.
    created
        Every changefeed that was ever there, as it was asked for; ``start_us`` is known.
    """

    load: Load
    created: tuple[CreateChangefeed, ...]
    auditor: ChangefeedsAuditor = field(repr=False)

    def of(self, name: str) -> OneOfSeveral:
        """Give the run as one changefeed had it, to ask why its watermarks stand (:func:`.looking.why_at`)."""
        return OneOfSeveral(self, self._created(name).id)

    def trace_of(self, name: str) -> pa.Table:
        """Give the trace of one changefeed and of the nodes, as if there were no other: figures draw it."""
        trace, prefix = self.trace, named(name, "")
        others = [rows for c in self.created if c.id != name for rows in _rows_of(trace, c.id)]
        kept = trace.filter(pc.invert(reduce(pc.or_, others))) if others else trace
        place = kept.schema.get_field_index("subject")
        own = pc.replace_substring_regex(kept["subject"], f"^{re.escape(prefix)}", "")
        return kept.set_column(place, kept.schema.field(place), own)

    def changefeed(self, name: str) -> Changefeed | None:
        """Give what etcd holds of a changefeed at the end, None where it was removed."""
        found: Changefeed | None = self.kernel.states[ETCD].changefeeds.get(name)
        return found

    def entries(self, name: str) -> list[Entry]:
        """Give what came to the downstream of a changefeed, in order."""
        return entries(self.kernel.states[downstream_of(name)])

    def log(self, name: str) -> pa.Table:
        """Give the same as the events of a change log (:func:`ticdc_lab.simulate.pipeline.log.log_events`)."""
        return log_events(self.entries(name), _downstream(self.settings, self._created(name)))

    def measures(self, name: str) -> RowMeasures:
        """Count a changefeed's rows."""
        return self.auditor.each[name].measures

    def owed(self, name: str) -> int:
        """Count the rows of a changefeed that are committed and not downstream."""
        return sum(map(len, self.auditor.each[name].owed.values()))

    def changes(self, name: str) -> list[Change]:
        """Give what was committed upstream after a changefeed's start in its tables, in commit order."""
        create = self._created(name)
        states, at = self.kernel.states, self.kernel.address
        versions = list(committed_in(states[at[store]] for store in self.settings.stores()))
        found = changes_of(versions, self.load.tables, ts_of(create.start_us or 0))
        return [c for c in found if create.only is None or table_of(c.key) in create.only]

    def _created(self, name: str) -> CreateChangefeed:
        return next(c for c in self.created if c.id == name)


def _rows_of(trace: pa.Table, name: str) -> list[pa.ChunkedArray]:
    """Say of each row of a trace whether it is of one changefeed: its subject, its downstream, or its message is."""
    columns = {c: pc.fill_null(trace[c], "") for c in ("subject", "node", "peer", "message", "detail")}
    begins = orjson.dumps({"changefeed": name}).decode().removesuffix("}")
    return [
        pc.starts_with(columns["subject"], named(name, "")),
        pc.equal(columns["node"], downstream_of(name)),
        pc.equal(columns["peer"], downstream_of(name)),
        pc.and_(pc.equal(columns["message"], Of.__name__), pc.starts_with(columns["detail"], f"{begins},")),
    ]


@dataclass(frozen=True, eq=False, slots=True)
class OneOfSeveral:
    """A run as one changefeed had it; it was made with ``sample_us``."""

    run: ChangefeedsRun
    name: str

    @property
    def settings(self) -> PipelineSettings:
        """Give what the run was told."""
        return self.run.settings

    @property
    def kernel(self) -> Kernel:
        """Give its world."""
        return self.run.kernel

    @property
    def snapshots(self) -> list[tuple[int, dict[str, Any]]]:
        """Give the states of nodes, a capture's being that of its part of the changefeed, where it has one."""
        return [(at_us, self._seen(states)) for at_us, states in self.run.auditor.upstream.snapshots]

    def _seen(self, states: Mapping[str, Any]) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for address, state in states.items():
            if isinstance(state, CaptureServerState):
                if self.name in state.running:
                    found[address] = state.running[self.name].state
            elif isinstance(state, SharedState):
                found[address] = state.changefeeds.get(self.name)  # None of one that is not there, or not any more
            else:
                found[address] = state
        return found


def simulate_changefeeds(
    settings: PipelineSettings,
    load: Load,
    changefeeds: Sequence[CreateChangefeed],
    *,
    faults: Sequence[Fault] = (),
    chaos: Chaos | None = None,
    seed: int = 0,
    until_us: int = 30_000_000,
    network: Network = QUIET,
    level: str = EVENTS,
    recorder: Recorder | None = None,
    step_limit: int = 50_000_000,
    name: str = "",
    stops_at_violation: bool = True,
    sample_us: int | None = None,
    begun: Callable[[Kernel], None] | None = None,
) -> ChangefeedsRun:
    """Run an upstream and several changefeeds of it.

    Parameters
    ----------
    settings
        Upstream, captures, and the downstream of each changefeed.
    load
        What clients do upstream.
    changefeeds
        Those that are there from the beginning; more come by ``Ask(at_us, "etcd", CreateChangefeed(..))`` among the
        faults, and :class:`.PauseChangefeed`, :class:`.ResumeChangefeed`, :class:`.RemoveChangefeed` likewise.
    faults, chaos, seed, until_us, network, level, recorder, step_limit, name, stops_at_violation, sample_us, begun
        As for :func:`ticdc_lab.simulate.pipeline.run.simulate`.

    Returns
    -------
    ChangefeedsRun
        The same arguments give the same run, byte for byte.

    Raises
    ------
    ContractError
        Two changefeeds have one name, a filter lets no table through, or the downstream has a consumer.

    Examples
    --------
    >>> from ticdc_lab.simulate.pipeline.tryout import shop
    >>> changefeeds = [CreateChangefeed("all"), CreateChangefeed("orders", (101,))]
    >>> run = simulate_changefeeds(PipelineSettings(), shop(until_us=500_000), changefeeds, until_us=3_000_000)
    >>> run.violation is None, run.owed("all"), run.owed("orders")
    (True, 0, 0)
    """
    require_rows(load)
    created = _created(changefeeds, faults, settings, load)
    scheduler = replace(settings.scheduler, tables=tuple(sorted(t.id for t in load.tables)), pace=MEASURED)
    captures, stores = scheduler.nodes(), settings.stores()
    all_faults = (*faults, *(drawn(chaos, [*captures, *stores], ETCD, seed) if chaos else ()))
    machines: dict[str, Any] = upstream(settings, load)
    free_ts = MAX_TS if settings.capture.rule == MQ else None
    sessions = Etcd(frozenset(), 0, scheduler.ttl_us)
    machines[ETCD] = SharedEtcd(
        sessions, scheduler.keys(), created[: len(changefeeds)], free_ts, settings.downstream.kind
    )
    capture = replace(settings.capture, by_conflict=settings.downstream.dispatcher == CONFLICT)
    for node in captures:
        machines[node] = CaptureServer(capture_machine(scheduler, node), capture, load.tables)
    for create in created:
        machines[downstream_of(create.id)] = Downstream(_downstream(settings, create), settings.capture.semantics)
    roles = {node: node for node in (TIDB, PD, ETCD)} | dict.fromkeys(captures, "capture")
    roles |= dict.fromkeys(stores, "tikv") | {downstream_of(c.id): DOWNSTREAM for c in created}
    items = machines[TIDB].items
    auditor = ChangefeedsAuditor(
        _monitor(settings, scheduler.keys(), items, roles | {downstream_of(c.id): PD for c in created}, created[0]),
        {c.id: _monitor(settings, scheduler.keys(), items, roles, c) for c in created},
        2 * scheduler.ttl_us + scheduler.stop_lag_us,
        stops_at_violation,
    )
    auditor.upstream.sample_us = sample_us
    recorder = recorder or Recorder(name or f"changefeeds seed {seed}", level)
    with no_cycles():
        world = ran(
            machines, auditor, recorder, faults=all_faults, seed=seed, until_us=until_us, network=network,
            step_limit=step_limit, begun=begun,
        )  # fmt: skip
    again = partial(
        simulate_changefeeds, settings, load, changefeeds, step_limit=step_limit, name=recorder.run,
        stops_at_violation=stops_at_violation, sample_us=sample_us,
    )  # fmt: skip
    return ChangefeedsRun(**world, settings=settings, simulate=again, load=load, created=created, auditor=auditor)


def _created(
    changefeeds: Sequence[CreateChangefeed], faults: Sequence[Fault], settings: PipelineSettings, load: Load
) -> tuple[CreateChangefeed, ...]:
    """Give every changefeed that will ever be there, with the ts at which it starts."""
    later = [
        replace(f.command, start_us=f.at_us if f.command.start_us is None else f.command.start_us)
        for f in faults
        if isinstance(f, Ask) and isinstance(f.command, CreateChangefeed)
    ]
    found = [replace(c, start_us=c.start_us or 0) for c in changefeeds] + later
    twice = [name for name, n in Counter(c.id for c in found).items() if n > 1]
    if twice or not found:
        raise ContractError(
            f"Two changefeeds are called {twice[0]}." if twice else "There is no changefeed.",
            hint="Give each a name of its own; a paused one is resumed, not created.",
        )
    if settings.downstream.consumer is not None:
        raise ContractError("A consumer reads the topic of one changefeed.", hint="Leave `consumer` out.")
    known = {t.id for t in load.tables}
    for create in found:
        if create.only is not None and not known.intersection(create.only):
            raise ContractError(f"Changefeed {create.id} replicates nothing.", hint="Name a table of the load.")
    return tuple(found)


def _downstream(settings: PipelineSettings, create: CreateChangefeed) -> DownstreamSettings:
    return replace(settings.downstream, kind=create.kind or settings.downstream.kind)


def _monitor(
    settings: PipelineSettings, tables: frozenset[Any], items: Any, roles: Mapping[str, str], create: CreateChangefeed
) -> PipelineMonitor:
    only, own, start_ts = create.only, _downstream(settings, create), ts_of(create.start_us or 0)
    wanted = tables if only is None else tables & only
    return PipelineMonitor(
        SchedulerMonitor(start_ts, wanted), items, roles, start_ts, settings.capture.semantics, settings.capture.rule,
        settings.capture.order == BY_PROCESSOR, own.whole, only=only,
    )  # fmt: skip

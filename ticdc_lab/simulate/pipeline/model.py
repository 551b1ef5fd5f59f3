"""The replication pipeline as scenarios know it: what may be said of it, and how one is played."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

from ticdc_lab.simulate import runs, trace
from ticdc_lab.simulate.pipeline import scenario, vocabulary
from ticdc_lab.simulate.pipeline.cdc_messages import Deregister, Entries, RegionFailed, Register, ResolvedTs
from ticdc_lab.simulate.pipeline.consumer import Append, Fetch, Polled
from ticdc_lab.simulate.pipeline.consumer_monitor import CONSUMER_INVARIANTS
from ticdc_lab.simulate.pipeline.facts import PipelineFacts
from ticdc_lab.simulate.pipeline.kv_messages import BatchCommands, BatchResponses, GetRegions, RegionHeartbeat, Regions
from ticdc_lab.simulate.pipeline.looking import current_us_of, why_at
from ticdc_lab.simulate.pipeline.monitor import INVARIANTS
from ticdc_lab.simulate.pipeline.planned import EVENTS
from ticdc_lab.simulate.pipeline.run import PipelineRun, simulate
from ticdc_lab.simulate.pipeline.scenario import load, load_of_scenario, settings_of
from ticdc_lab.simulate.pipeline.settings import (
    CONSUMERS,
    DISPATCHERS,
    DOWNSTREAMS,
    ORDERS,
    RULES,
    SEMANTICS,
    PipelineSettings,
)
from ticdc_lab.simulate.pipeline.sink_messages import (
    Admin,
    AdminWritten,
    Begin,
    Execute,
    Executed,
    Publish,
    Resolved,
    Write,
    Written,
)
from ticdc_lab.simulate.pipeline.why import WATERMARKS, Why
from ticdc_lab.simulate.scenario import Model, Scenario
from ticdc_lab.simulate.scheduler.balance import POLICIES
from ticdc_lab.simulate.scheduler.model import MODEL as SCHEDULER
from ticdc_lab.simulate.scheduler.monitor import WriterMeasures
from ticdc_lab.simulate.scheduler.narrative import PlayedCaptures, last_state
from ticdc_lab.simulate.scheduler.scenario import faults_of
from ticdc_lab.simulate.scheduler.variants import VARIANTS

_OWN = (
    Register, Deregister, Entries, ResolvedTs, RegionFailed, BatchCommands, BatchResponses, GetRegions, Regions,
    RegionHeartbeat, Begin, Write, Written, Publish, Resolved, Execute, Executed, Admin, AdminWritten,
    Append, Polled, Fetch,
)  # fmt: skip


def messages(variant: str) -> frozenset[str]:
    """Give the names of messages: of the scheduler's protocol, of TiKV, of the data path and of the sink."""
    return SCHEDULER.messages(variant) | frozenset(m.__name__ for m in _OWN)


_NO_COORDINATOR = {r"settings(\.scheduler)?\.coordinator": "here the owner is the maintainer"}


@dataclass(frozen=True, eq=False, slots=True)
class PlayedPipeline(PlayedCaptures[PipelineRun, PipelineFacts]):
    """A scenario of the pipeline that has run."""

    @property
    def measures(self) -> WriterMeasures:
        """What tables had of writers."""
        return self.run.monitor.scheduler.measures

    def whys(self, at_us: int) -> list[Why]:
        """Say what holds both watermarks at a moment; it was played with ``sample_us``."""
        return [why_at(self.run, at_us=at_us, watermark=w) for w in WATERMARKS]

    @property
    def last(self) -> list[str]:
        rows, ended, end_us = self.run.measures, self.facts.ended, self.run.end.time_us
        lines = [
            f"{rows.committed} rows committed, {rows.delivered} delivered, {rows.repeated} of them repeated; "
            f"{rows.ddls} DDLs executed",
            *last_state(self.facts),
        ]
        if ended:
            lines.append(str(ended))
        return [*lines, *(self.facts.holding(w, end_us).text for w in ("resolved_ts", "checkpoint_ts"))]


@runs.Play
def play(scenario: Scenario, seed: int, *, sample_us: int | None = None) -> runs.Staged[PlayedPipeline]:
    facts = scenario.model.facts(scenario.cluster, scenario.events)
    assert isinstance(facts, PipelineFacts)
    facts.rule, facts.current_us = scenario.settings.capture.rule, current_us_of(scenario.settings)
    load = load_of_scenario(scenario, seed)
    facts.wanted = {table.id for table in load.tables}
    return runs.Staged(
        facts=facts,
        simulate=partial(simulate, settings_of(scenario), load, faults=faults_of(scenario, seed), sample_us=sample_us),
        played=partial(PlayedPipeline, scenario, seed, facts=facts),
        level=trace.EVENTS if runs.counts_messages(scenario) else trace.CHANGES, begun=facts.begin, ended=facts.end,
    )  # fmt: skip


MODEL = Model(
    name="pipeline",
    variants=tuple(VARIANTS),
    cluster=scenario.cluster,
    tables=lambda c: frozenset(c.tables),
    settings=PipelineSettings,
    unsettled=(
        "variant", "captures", "tables", "versions", "pace", "traffic", "stores", "regions_per_table", "start_ts",
        "created_us", "sink", "by_conflict",
    ),
    choices={
        "policy": POLICIES, "rule": RULES, "semantics": SEMANTICS, "order": ORDERS, "kind": DOWNSTREAMS,
        "dispatcher": DISPATCHERS, "consumer": CONSUMERS,
    },
    events=EVENTS,
    random=SCHEDULER.random,
    messages=messages,
    claim=vocabulary.VOCABULARY.claim,
    measure=vocabulary.VOCABULARY.measure,
    facts=scenario.facts,
    invariants=(*SCHEDULER.invariants, *INVARIANTS, *CONSUMER_INVARIANTS),
    figures=SCHEDULER.figures,
    play=play,
    steady=SCHEDULER.steady,
    balanced=SCHEDULER.balanced,
    load=load,
    refused={variant: {**no_use, **_NO_COORDINATOR} for variant, no_use in SCHEDULER.refused.items()},
)  # fmt: skip

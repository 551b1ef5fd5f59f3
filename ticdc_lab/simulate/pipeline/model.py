"""The replication pipeline as scenarios know it: its vocabulary, and how one is played."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from ticdc_lab.machines.clock import us_of
from ticdc_lab.simulate import runs, trace
from ticdc_lab.simulate.pipeline import scenario
from ticdc_lab.simulate.pipeline.capture.state import DataState
from ticdc_lab.simulate.pipeline.cdc_messages import Deregister, Entries, RegionFailed, Register, ResolvedTs
from ticdc_lab.simulate.pipeline.changefeeds.auditor import CHANGEFEED_INVARIANTS
from ticdc_lab.simulate.pipeline.consumer import CONSUMER, Append, Fetch, Polled
from ticdc_lab.simulate.pipeline.consumer import resolved_ts as read_upto
from ticdc_lab.simulate.pipeline.consumer_monitor import CONSUMER_INVARIANTS, ConsumerMonitor
from ticdc_lab.simulate.pipeline.facts import ChangefeedsFacts, PipelineFacts
from ticdc_lab.simulate.pipeline.kv_messages import BatchCommands, BatchResponses, GetRegions, RegionHeartbeat, Regions
from ticdc_lab.simulate.pipeline.looking import current_us_of, moments, why_at
from ticdc_lab.simulate.pipeline.monitor import INVARIANTS
from ticdc_lab.simulate.pipeline.observed import capture_facts
from ticdc_lab.simulate.pipeline.run import PipelineRun, simulate
from ticdc_lab.simulate.pipeline.scenario import EVENTS, load, load_of_scenario, settings_of
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
from ticdc_lab.simulate.pipeline.why import KINDS, WATERMARKS, Why
from ticdc_lab.simulate.planned import FAULTS, faults_of
from ticdc_lab.simulate.scenario import Model, Scenario
from ticdc_lab.simulate.scheduler.balance import POLICIES
from ticdc_lab.simulate.scheduler.etcd_messages import ETCD
from ticdc_lab.simulate.scheduler.model import MODEL as SCHEDULER
from ticdc_lab.simulate.scheduler.model import VOCABULARY as OF_SCHEDULER
from ticdc_lab.simulate.scheduler.monitor import WriterMeasures
from ticdc_lab.simulate.scheduler.narrative import PlayedCaptures, last_state
from ticdc_lab.simulate.scheduler.scenario import drawn_for
from ticdc_lab.simulate.scheduler.variants import UNSETTLED, VARIANTS
from ticdc_lab.simulate.sentences import OF_INVARIANTS, Measure, Said, Vocabulary, Words
from ticdc_lab.words import count

# The sentences that assertions about the pipeline are made of, beside all of the table scheduler.
#
# True or false of a moment::
#
#     everything is downstream            resolved_ts is held by transaction
#     the final state is right            checkpoint_ts is held by sink
#     sums are right                      nothing holds checkpoint_ts
#
# ``everything is downstream``: clients are done, and all they committed is there, DDLs too. ``the final state is
# right`` (rows replaced) and ``sums are right`` (differences added up) are known at the end of a run: assert them with
# `eventually`.
# Kinds of holders are in :data:`ticdc_lab.simulate.pipeline.why.KINDS`, a hyphen for the space.
#
# Numbers and durations::
#
#     rows committed     rows delivered   rows repeated      rows owed     rows lost     rows regressed
#     rows in memory     rows on disk     resolved_ts lag    DDLs executed
#     rows executed      rows not executed                   consumer lag


_WORDS = tuple(kind.replace(" ", "-") for kind in KINDS)


def _is_held(facts: PipelineFacts, w: Words, at_us: int) -> bool:
    holders, kind = facts.holding(w["watermark"], at_us).holders, w.get("holder")
    return bool(holders) and holders[0].kind.replace(" ", "-") == kind if kind else not holders


def _held(facts: PipelineFacts, w: Words, at_us: int) -> str:
    return facts.holding(w["watermark"], at_us).text


def _owed(facts: PipelineFacts, w: Words, at_us: int) -> str:
    done = "clients are done" if facts.load_is_done else "clients are not done"
    return f"{done}; {count(facts.n_owed, 'row')} and {count(len(facts.monitor.jobs), 'DDL')} are not downstream"


def _ended(facts: PipelineFacts, w: Words, at_us: int) -> str:
    return "it is known at the end only" if facts.ended is None else str(facts.ended)


def _rows(facts: Any, what: str) -> int:
    kernel = facts.kernel
    live = [s for a, s in kernel.states.items() if a not in kernel.down and isinstance(s, DataState)]
    return sum(getattr(t, what) for s in live for t in capture_facts(s).tables)


def _consumed(facts: PipelineFacts) -> ConsumerMonitor:
    """Give what watches the consumer; one that watches none where the run has none."""
    return facts.monitor.consumer or ConsumerMonitor(None)


def _consumer_lag_us(facts: Any, w: Words, at_us: int) -> int:
    """How long ago the lowest watermark was that the consumer has read."""
    state = facts.kernel.states.get(CONSUMER)
    return max(0, at_us - us_of(read_upto(state))) if state is not None and read_upto(state) else at_us


def _lag_us(facts: Any, w: Words, at_us: int) -> int:
    return max(0, at_us - us_of(facts.kernel.states[facts.kernel.address[ETCD]].resolved_ts))


_live = partial(Measure, ages=True, live=True)
_SENTENCES: Mapping[str, Said] = {
    "everything is downstream": Said(
        lambda f, w, t: bool(f.load_is_done and not f.n_owed and not f.monitor.jobs), _owed, ages=True, live=True
    ),
    "the final state is right": Said(
        lambda f, w, t: bool(f.ended and f.ended.final_right_idempotent), _ended, at_end=True
    ),
    "sums are right": Said(lambda f, w, t: bool(f.ended and f.ended.final_right_blind), _ended, at_end=True),
    r"(?P<watermark>resolved_ts|checkpoint_ts) is held by (?P<holder>\S+)": Said(_is_held, _held, ages=True, live=True),
    "nothing holds (?P<watermark>resolved_ts|checkpoint_ts)": Said(_is_held, _held, ages=True, live=True),
}

_MEASURES: Mapping[str, Measure] = {
    "rows committed": _live(lambda f, w, t: f.monitor.measures.committed),
    "rows delivered": _live(lambda f, w, t: f.monitor.measures.delivered),
    "rows repeated": _live(lambda f, w, t: f.monitor.measures.repeated),
    "DDLs executed": _live(lambda f, w, t: f.monitor.measures.ddls),
    "rows owed": _live(lambda f, w, t: f.n_owed),
    "rows lost": Measure(lambda f, w, t: f.ended.lost if f.ended else 0),
    "rows regressed": Measure(lambda f, w, t: f.ended.regressed if f.ended else 0),
    "rows in memory": _live(lambda f, w, t: _rows(f, "sorting")),
    "rows on disk": _live(lambda f, w, t: _rows(f, "spilled")),
    "rows executed": _live(lambda f, w, t: _consumed(f).n_executed),
    "rows not executed": _live(lambda f, w, t: sum(map(len, _consumed(f).owed.values()))),
    "consumer lag": _live(_consumer_lag_us, "us"),
    "resolved_ts lag": _live(_lag_us, "us"),
}

VOCABULARY = Vocabulary(
    {**_SENTENCES, **OF_SCHEDULER.sentences},
    {**_MEASURES, **OF_SCHEDULER.measures},
    lambda names, invariants: {**OF_SCHEDULER.there(names, invariants), "holder": _WORDS},
)


# How a scenario is played.


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
        return self.run.monitor.scheduler.until(self.run.end.time_us)

    def whys(self, at_us: int) -> list[Why]:
        """Find what holds both watermarks at a moment; it was played with ``sample_us``."""
        return [why_at(self.run, at_us=at_us, watermark=w) for w in WATERMARKS]

    @property
    def last(self) -> list[str]:
        rows, ended, end_us = self.run.measures, self.facts.ended, self.run.end.time_us
        lines = [
            f"{count(rows.committed, 'row')} committed, {rows.delivered:,} delivered, {rows.repeated:,} of them "
            f"repeated; {count(rows.ddls, 'DDL')} executed",
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
    facts.wanted, faults = {table.id for table in load.tables}, faults_of(scenario, seed, drawn_for(scenario))
    return runs.Staged(
        facts=facts,
        simulate=partial(simulate, settings_of(scenario), load, faults=faults, sample_us=sample_us),
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
        *UNSETTLED, "pace", "traffic", "stores", "regions_per_table", "start_ts", "created_us", "sink", "by_conflict",
    ),
    choices={
        "policy": POLICIES, "rule": RULES, "semantics": SEMANTICS, "order": ORDERS, "kind": DOWNSTREAMS,
        "dispatcher": DISPATCHERS, "consumer": CONSUMERS,
    },
    events=FAULTS | EVENTS,
    random=SCHEDULER.random,
    messages=messages,
    claim=VOCABULARY.claim,
    measure=VOCABULARY.measure,
    facts=scenario.facts,
    invariants=(*SCHEDULER.invariants, *INVARIANTS, *CONSUMER_INVARIANTS),
    play=play,
    steady=SCHEDULER.steady,
    balanced=SCHEDULER.balanced,
    load=load,
    refused={variant: {**no_use, **_NO_COORDINATOR} for variant, no_use in SCHEDULER.refused.items()},
)  # fmt: skip


# Several changefeeds of one cluster: the events of upstream and nodes, and what users do with a changefeed.
#
# True or false of a moment::
#
#     NAME is normal        NAME is stopped       NAME is removed
#     everything of NAME is downstream            no violation
#
# Numbers and durations::
#
#     rows committed of NAME      rows delivered of NAME      rows repeated of NAME      rows owed of NAME
#     checkpoint_ts lag of NAME


def _counted(f: ChangefeedsFacts, w: Words, t: int) -> int:
    monitor, what = f.auditor.each[w["changefeed"]], w["what"]
    return monitor.n_owed if what == "owed" else int(getattr(monitor.measures, what))


CHANGEFEED_VOCABULARY = Vocabulary(
    {
        r"(?P<changefeed>\S+) is (?P<state>normal|stopped|removed)": Said(
            lambda f, w, t: f.state(w["changefeed"]) == w["state"],
            lambda f, w, t: f"{w['changefeed']} is {f.state(w['changefeed'])}",
            live=True,
        ),
        r"everything of (?P<changefeed>\S+) is downstream": Said(
            lambda f, w, t: f.is_done(w["changefeed"]),
            lambda f, w, t: f"owed of {w['changefeed']}: {count(f.auditor.each[w['changefeed']].n_owed, 'row')}",
            live=True,
        ),
        **OF_INVARIANTS,
    },
    {
        r"rows (?P<what>committed|delivered|repeated|owed) of (?P<changefeed>\S+)": Measure(_counted, live=True),
        r"checkpoint_ts lag of (?P<changefeed>\S+)": Measure(
            lambda f, w, t: f.lag_us(w["changefeed"], t), "us", live=True
        ),
    },
    lambda names, invariants: {"changefeed": names.changefeeds, "invariant": invariants},
)
_NEAR_US = 5_000_000
_STEADY = Said(
    lambda f, w, t: all(f.lag_us(n, t) < _NEAR_US for n in f.auditor.each if f.state(n) == "normal"),
    lambda f, w, t: "a changefeed is behind",
    live=True,
    text="every changefeed that runs is near",
)
_BALANCED = Said(
    lambda f, w, t: f.imbalance() <= 1,
    lambda f, w, t: f"the imbalance is {f.imbalance()}",
    live=True,
    text="no capture has more than one table of a changefeed above another",
)


@dataclass(frozen=True, eq=False, slots=True)
class PlayedChangefeeds(PlayedCaptures[PipelineRun, ChangefeedsFacts]):
    """A scenario of several changefeeds that has run."""

    def whys(self, at_us: int) -> list[Why]:
        """Find what holds the watermarks of each changefeed that is there then; it was played with ``sample_us``."""
        found = []
        for name in (c.id for c in self.run.created):
            seen = moments(self.run.of(name), until_us=at_us)
            if not seen or seen[-1].checkpoint_ts:
                found += [replace(why_at(self.run.of(name), at_us=at_us, watermark=w), of=name) for w in WATERMARKS]
        return found

    @property
    def last(self) -> list[str]:
        found = []
        for name in (c.id for c in self.run.created):
            rows, behind_us = self.run.of(name).measures, self.facts.lag_us(name, self.run.end.time_us)
            where = f", checkpoint {behind_us / 1e6:.3f} s behind" if self.facts.changefeed(name) else ""
            found.append(
                f"{name} is {self.facts.state(name)}{where}: {count(rows.committed, 'row')} committed, "
                f"{rows.delivered:,} delivered, {rows.repeated:,} of them repeated; {self.run.of(name).n_owed} owed"
            )
        return found


@runs.Play
def play_changefeeds(scenario: Scenario, seed: int, *, sample_us: int | None = None) -> runs.Staged[PlayedChangefeeds]:
    facts, load = ChangefeedsFacts(), load_of_scenario(scenario, seed)
    run = partial(
        simulate,
        settings_of(scenario),
        load,
        (),
        faults=faults_of(scenario, seed, drawn_for(scenario)),
        sample_us=sample_us,
    )
    return runs.Staged(
        facts=facts, simulate=run, played=partial(PlayedChangefeeds, scenario, seed, facts=facts), level=trace.CHANGES,
        begun=facts.begin, ended=facts.end,
    )  # fmt: skip


CHANGEFEEDS = replace(
    MODEL,
    name="changefeeds",
    cluster=lambda value: replace(scenario.cluster(value), reading=()),
    unsettled=(*MODEL.unsettled, "consumer"),
    events=FAULTS | scenario.CHANGEFEED_EVENTS,
    messages=lambda variant: messages(variant) | {"Of", "Changefeeds"},
    claim=CHANGEFEED_VOCABULARY.claim,
    measure=CHANGEFEED_VOCABULARY.measure,
    facts=lambda cluster, events: ChangefeedsFacts(),
    invariants=(*MODEL.invariants, *CHANGEFEED_INVARIANTS),
    play=play_changefeeds,
    steady=_STEADY,
    balanced=_BALANCED,
)

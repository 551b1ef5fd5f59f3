"""The replication pipeline as scenarios know it."""

from __future__ import annotations

from ticdc_lab.simulate.pipeline import scenario, vocabulary
from ticdc_lab.simulate.pipeline.cdc_messages import Deregister, Entries, RegionFailed, Register, ResolvedTs
from ticdc_lab.simulate.pipeline.consumer import Append, Fetch, Polled
from ticdc_lab.simulate.pipeline.consumer_monitor import CONSUMER_INVARIANTS
from ticdc_lab.simulate.pipeline.kv_messages import BatchCommands, BatchResponses, GetRegions, RegionHeartbeat, Regions
from ticdc_lab.simulate.pipeline.monitor import INVARIANTS
from ticdc_lab.simulate.pipeline.planned import EVENTS
from ticdc_lab.simulate.pipeline.play import play
from ticdc_lab.simulate.pipeline.scenario import load
from ticdc_lab.simulate.pipeline.settings import CONSUMERS, DISPATCHERS, DOWNSTREAMS, ORDERS, RULES, SEMANTICS, Settings
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
from ticdc_lab.simulate.scenario import Model
from ticdc_lab.simulate.scheduler.balance import POLICIES
from ticdc_lab.simulate.scheduler.model import MODEL as SCHEDULER
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

MODEL = Model(
    name="pipeline",
    variants=tuple(VARIANTS),
    cluster=scenario.cluster,
    tables=lambda c: frozenset(c.tables),
    settings=Settings,
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
    claim=vocabulary.claim,
    measure=vocabulary.measure,
    facts=scenario.facts,
    invariants=(*SCHEDULER.invariants, *INVARIANTS, *CONSUMER_INVARIANTS),
    figures=SCHEDULER.figures,
    play=play,
    steady=SCHEDULER.steady,
    balanced=SCHEDULER.balanced,
    load=load,
    refused={variant: {**no_use, **_NO_COORDINATOR} for variant, no_use in SCHEDULER.refused.items()},
)  # fmt: skip

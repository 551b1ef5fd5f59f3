"""The table scheduler as scenarios know it."""

from __future__ import annotations

from dataclasses import dataclass, field

from ticdc_lab.simulate.models import Model
from ticdc_lab.simulate.scheduler import cluster, vocabulary
from ticdc_lab.simulate.scheduler.executor import Pace
from ticdc_lab.simulate.scheduler.planned import EVENTS


@dataclass(frozen=True, slots=True)
class Settings:
    """Stand-in until the kernel's."""

    tick_us: int = 100_000
    pace: Pace = field(default_factory=Pace)


MESSAGES = {
    "v2": ("DispatchTable", "DispatchTableResponse", "Announce", "Sync", "Checkpoint"),
    "v3": ("Heartbeat", "HeartbeatResponse", "DispatchTableRequest", "DispatchTableResponse"),
    "v4": ("Bootstrap",),
}
INVARIANTS = ("No Double Write", "No Lost Table", "Checkpoint is monotone", "One Owner")
FIGURES = ("sequence", "owners", "gantt", "watermarks", "balance")

MODEL = Model(
    variants=("v2", "v3", "v4"),
    cluster=cluster.cluster,
    tables=lambda c: frozenset(t.id for t in c.tables),
    settings=Settings,
    events=EVENTS,
    random=("crash", "pause", "partition", "lose", "restart_processor", "expire_session"),
    messages=lambda variant: frozenset(MESSAGES[variant]),
    claim=vocabulary.claim,
    measure=vocabulary.measure,
    facts=cluster.facts,
    invariants=INVARIANTS,
    figures=frozenset(FIGURES),
)

"""Several changefeeds as scenarios know them.

The events are the ones of the pipeline's upstream and nodes, and ``create_changefeed``, ``pause_changefeed``,
``resume_changefeed``, ``remove_changefeed``. True or false of a moment::

    NAME is normal        NAME is stopped       NAME is removed
    everything of NAME is downstream            no violation

Numbers and durations::

    rows committed of NAME      rows delivered of NAME      rows repeated of NAME      rows owed of NAME
    checkpoint_ts lag of NAME
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import partial

from ticdc_lab.machines.clock import us_of
from ticdc_lab.simulate import runs
from ticdc_lab.simulate.assertions import Judge
from ticdc_lab.simulate.faults import Ask
from ticdc_lab.simulate.kernel import Kernel
from ticdc_lab.simulate.pipeline import model as one
from ticdc_lab.simulate.pipeline.changefeeds.auditor import CHANGEFEED_INVARIANTS, ChangefeedsAuditor
from ticdc_lab.simulate.pipeline.changefeeds.etcd import (
    Changefeed,
    CreateChangefeed,
    PauseChangefeed,
    RemoveChangefeed,
    ResumeChangefeed,
    downstream_of,
)
from ticdc_lab.simulate.pipeline.changefeeds.server import CaptureServerState
from ticdc_lab.simulate.pipeline.facts import look_now_and_then
from ticdc_lab.simulate.pipeline.looking import moments, why_at
from ticdc_lab.simulate.pipeline.run import PipelineRun, simulate
from ticdc_lab.simulate.pipeline.scenario import EVENTS as OF_ONE
from ticdc_lab.simulate.pipeline.scenario import cluster, load_of_scenario, paced, settings_of
from ticdc_lab.simulate.pipeline.why import WATERMARKS, Why
from ticdc_lab.simulate.planned import (
    ChangefeedName,
    Duration,
    EventKind,
    Lasting,
    NewChangefeed,
    SinkKind,
    TableIds,
    table,
)
from ticdc_lab.simulate.scenario import Scenario
from ticdc_lab.simulate.scheduler.etcd_messages import ETCD
from ticdc_lab.simulate.scheduler.narrative import PlayedCaptures
from ticdc_lab.simulate.scheduler.scenario import faults_of
from ticdc_lab.simulate.sentences import OF_INVARIANTS, Measure, Said, Vocabulary, Words
from ticdc_lab.simulate.trace import CHANGES, Row

_OF_ONE_ONLY = (
    "repartition", "slow_sink", "standing_sink", "stuck_table", "free_table", "move_table", "rebalance", "drain",
    "restart_processor",
)  # fmt: skip
"""Asked of one changefeed's owner, processors or downstream."""
EVENTS: dict[str, type] = {name: kind for name, kind in OF_ONE.items() if name not in _OF_ONE_ONLY} | table(
    {
        "create_changefeed": EventKind(
            "A changefeed begins, into a downstream of its own. Its filter lets `tables` through: all by default.",
            {
                "id": NewChangefeed,
                "tables": (TableIds, ()),
                "kind": (SinkKind | None, None),
                "start_us": (Duration | None, None),
            },
            lambda w, e, s: [Ask(e.at_us, ETCD, CreateChangefeed(w.id, w.tables, w.kind, w.start_us))],
        ),
        "pause_changefeed": EventKind(
            "A changefeed stops, and its checkpoint stands.",
            {"id": ChangefeedName},
            lambda w, e, s: [Ask(e.at_us, ETCD, PauseChangefeed(w.id))],
        ),
        "resume_changefeed": EventKind(
            "A changefeed that is paused resumes from its checkpoint.",
            {"id": ChangefeedName},
            lambda w, e, s: [Ask(e.at_us, ETCD, ResumeChangefeed(w.id))],
        ),
        "remove_changefeed": EventKind(
            "A changefeed ends for good.",
            {"id": ChangefeedName},
            lambda w, e, s: [Ask(e.at_us, ETCD, RemoveChangefeed(w.id))],
        ),
        "slow_changefeed": EventKind(
            "The downstream of a changefeed takes no more than so many rows a second, for a while or for good.",
            {"of": ChangefeedName, "rows_per_s": int, "for_us": (Lasting | None, None)},
            lambda w, e, s: paced(w.rows_per_s, w.for_us, e, s, downstream_of(w.of)),
        ),
        "standing_changefeed": EventKind(
            "The downstream of a changefeed takes nothing for a while.",
            {"of": ChangefeedName, "for_us": Lasting},
            lambda w, e, s: paced(0, w.for_us, e, s, downstream_of(w.of)),
        ),
    }
)


@dataclass(slots=True)
class ChangefeedsFacts:
    """The present of a run; ``broken`` counts the invariants that are."""

    kernel: Kernel | None = None
    broken: dict[str, int] = field(default_factory=dict)
    changes: int = 0

    def see(self, row: Row) -> None:
        if row.kind == "violated":
            self.broken[str(row.subject)] = self.broken.get(str(row.subject), 0) + 1
            self.changes += 1

    def begin(self, kernel: Kernel, judge: Judge) -> None:
        self.kernel = kernel
        look_now_and_then(kernel, judge)

    def end(self, run: PipelineRun) -> None:
        self.changes += 1

    @property
    def auditor(self) -> ChangefeedsAuditor:
        assert self.kernel is not None
        found = self.kernel.auditor
        assert isinstance(found, ChangefeedsAuditor)
        return found

    def changefeed(self, name: str) -> Changefeed | None:
        assert self.kernel is not None
        found: Changefeed | None = self.kernel.states[ETCD].changefeeds.get(name)
        return found

    def state(self, name: str) -> str:
        """Give ``normal``, ``stopped`` or, where it is not there, ``removed``."""
        found = self.changefeed(name)
        return "removed" if found is None else found.state

    def owed(self, name: str) -> int:
        """Count rows that are committed and not downstream."""
        return sum(map(len, self.auditor.each[name].owed.values()))

    def is_done(self, name: str) -> bool:
        """Whether clients have nothing left to do and all of it is downstream, DDLs too."""
        assert self.kernel is not None
        clients = self.kernel.states["tidb"]
        idle = clients.next >= len(self.auditor.upstream.items) and not clients.open and not clients.waiting
        return idle and not self.owed(name) and not self.auditor.each[name].jobs

    def lag_us(self, name: str, at_us: int) -> int:
        """Measure how far the checkpoint is behind; 0 of an absent one."""
        found = self.changefeed(name)
        return max(0, at_us - us_of(found.checkpoint_ts)) if found else 0

    def imbalance(self) -> int:
        """Give the most tables of one changefeed that a capture has above another one."""
        assert self.kernel is not None
        up = [
            s for a, s in self.kernel.states.items() if a not in self.kernel.down and isinstance(s, CaptureServerState)
        ]
        names = sorted({name for s in up for name in s.running})
        counts = [[len(s.running[n].state.paths) if n in s.running else 0 for s in up] for n in names]
        return max((max(c) - min(c) for c in counts), default=0)


def _counted(f: ChangefeedsFacts, w: Words, t: int) -> int:
    name, what = w["changefeed"], w["what"]
    return f.owed(name) if what == "owed" else int(getattr(f.auditor.each[name].measures, what))


_VOCABULARY = Vocabulary(
    {
        r"(?P<changefeed>\S+) is (?P<state>normal|stopped|removed)": Said(
            lambda f, w, t: f.state(w["changefeed"]) == w["state"],
            lambda f, w, t: f"{w['changefeed']} is {f.state(w['changefeed'])}",
            live=True,
        ),
        r"everything of (?P<changefeed>\S+) is downstream": Said(
            lambda f, w, t: f.is_done(w["changefeed"]),
            lambda f, w, t: f"{f.owed(w['changefeed'])} rows of {w['changefeed']} are owed",
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
                f"{name} is {self.facts.state(name)}{where}: {rows.committed} rows committed, {rows.delivered} "
                f"delivered, {rows.repeated} of them repeated; {self.facts.owed(name)} owed"
            )
        return found


@runs.Play
def play(scenario: Scenario, seed: int, *, sample_us: int | None = None) -> runs.Staged[PlayedChangefeeds]:
    facts, load = ChangefeedsFacts(), load_of_scenario(scenario, seed)
    run = partial(simulate, settings_of(scenario), load, (), faults=faults_of(scenario, seed), sample_us=sample_us)
    return runs.Staged(
        facts=facts, simulate=run, played=partial(PlayedChangefeeds, scenario, seed, facts=facts), level=CHANGES,
        begun=facts.begin, ended=facts.end,
    )  # fmt: skip


MODEL = replace(
    one.MODEL,
    name="changefeeds",
    cluster=lambda value: replace(cluster(value), reading=()),
    unsettled=(*one.MODEL.unsettled, "consumer"),
    events=EVENTS,
    messages=lambda variant: one.messages(variant) | {"Of", "Changefeeds"},
    claim=_VOCABULARY.claim,
    measure=_VOCABULARY.measure,
    facts=lambda cluster, events: ChangefeedsFacts(),
    invariants=(*one.MODEL.invariants, *CHANGEFEED_INVARIANTS),
    figures=frozenset({"ownership_gantt", "watermark_curves", "why_stuck"}),
    play=play,
    steady=_STEADY,
    balanced=_BALANCED,
)

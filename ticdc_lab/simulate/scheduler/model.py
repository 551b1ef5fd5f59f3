"""The table scheduler as scenarios know it: its vocabulary, and how one is played."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace
from fractions import Fraction
from functools import partial
from importlib import import_module

from ticdc_lab.machines.machine import node_of
from ticdc_lab.simulate import runs
from ticdc_lab.simulate.faults import DRAWS
from ticdc_lab.simulate.planned import FAULTS, faults_of
from ticdc_lab.simulate.reading import Names, Reader, field_types, shown, yaml_name
from ticdc_lab.simulate.scenario import Model, Scenario
from ticdc_lab.simulate.scheduler.balance import POLICIES
from ticdc_lab.simulate.scheduler.etcd_messages import KeepAlive, KeptAlive, PutStatus, Register, Resign, Status, View
from ticdc_lab.simulate.scheduler.executor import REPLICATING
from ticdc_lab.simulate.scheduler.facts import SchedulerFacts
from ticdc_lab.simulate.scheduler.monitor import INVARIANTS, WriterMeasures
from ticdc_lab.simulate.scheduler.narrative import PlayedCaptures, last_state
from ticdc_lab.simulate.scheduler.roles import in_turn
from ticdc_lab.simulate.scheduler.run import SchedulerRun, simulate
from ticdc_lab.simulate.scheduler.scenario import EVENTS, SchedulerCluster, drawn_for, facts_of, settings_of
from ticdc_lab.simulate.scheduler.v3 import V3Settings
from ticdc_lab.simulate.scheduler.v4 import V4Settings
from ticdc_lab.simulate.scheduler.variants import UNSETTLED, VARIANTS, SchedulerSettings
from ticdc_lab.simulate.sentences import (
    OF_INVARIANTS,
    OF_MESSAGES,
    Comparison,
    Measure,
    Said,
    Vocabulary,
)
from ticdc_lab.simulate.what_holds import HeldAt, what_holds
from ticdc_lab.words import count

# The sentences that assertions about the table scheduler are made of.
#
# True or false of a moment::
#
#     every table replicates              table 3 replicates             table 3 on capture-1
#     no table on capture-2               there is an owner              owner is capture-2
#     checkpoint proceeds                 no double write                no violation
#     No Double Write is violated
#
# and comparisons (``<``, ``<=``, ``=``, ``>=``, ``>``) of a number or a duration::
#
#     imbalance <= 1                      global checkpoint lag < 5s     time without progress < 2s
#     messages < 1000                     DispatchTable messages <= 16   thrash index <= 0.1
#     tables on capture-1 = 3             moves <= 8                     owner changes = 1
#     overlap = 0s                        gap < 3s                       ignored messages = 0


PROCEEDS_US = 2_000_000
"""``checkpoint proceeds``: the global checkpoint has risen in the last two seconds."""


def _there(names: Names, invariants: Collection[str]) -> Mapping[str, Collection[str]]:
    tables = [str(t) for t in names.tables]
    return {"capture": names.nodes, "table": tables, "message": names.messages, "invariant": invariants}


def _missing(facts: SchedulerFacts) -> str:
    """The first wanted tables that do not replicate, and in which state they are."""
    if facts.up == len(facts.wanted):
        return f"all {facts.up} tables replicate"
    down = sorted(t for t in facts.wanted if not facts.replicates(t))
    told = "; ".join(_where(facts, t) for t in down[:3])
    return told + (f"; {len(down)} tables in all do not replicate" if len(down) > 3 else "")


def _where(facts: SchedulerFacts, table: int) -> str:
    found = " and ".join(f"{state} on {address}" for address, state in facts.states(table))
    return f"table {table} is {found or 'on no capture'}"


def _owner(facts: SchedulerFacts) -> str:
    return f"the owner is {facts.owner}" if facts.owner else "there is no owner"


def _checkpoint(facts: SchedulerFacts, at_us: int) -> str:
    if facts.checkpoint_us is None:
        return "there is no global checkpoint yet"
    behind, rose = shown(at_us - facts.checkpoint_us), shown(at_us - facts.risen_us)
    return f"the global checkpoint is {behind} behind and rose {rose} ago"


def _double(facts: SchedulerFacts) -> str:
    found = facts.auditor
    if not found.since_us:
        return "no table has two writers"
    key = in_turn(found.since_us)[0]
    return f"table {key} is written by {' and '.join(sorted(found.writers[key]))}"


def _imbalance(facts: SchedulerFacts) -> int:
    loads = [facts.load[c] for c in facts.captures]
    return max(loads, default=0) - min(loads, default=0)


_SENTENCES: dict[str, Said] = {
    "every table replicates": Said(lambda f, w, t: f.up == len(f.wanted), lambda f, w, t: _missing(f)),
    r"table (?P<table>\d+) replicates": Said(
        lambda f, w, t: f.replicates(int(w["table"])), lambda f, w, t: _where(f, int(w["table"]))
    ),
    r"table (?P<table>\d+) on (?P<capture>\S+)": Said(
        lambda f, w, t: any(
            state == REPLICATING and node_of(address) == w["capture"] for address, state in f.states(int(w["table"]))
        ),
        lambda f, w, t: _where(f, int(w["table"])),
    ),
    r"no table on (?P<capture>\S+)": Said(
        lambda f, w, t: f.held[w["capture"]] == 0,
        lambda f, w, t: f"{w['capture']} has {count(f.held[w['capture']], 'table')}",
    ),
    "there is an owner": Said(lambda f, w, t: f.owner is not None, lambda f, w, t: _owner(f)),
    r"owner is (?P<capture>\S+)": Said(
        lambda f, w, t: f.owner is not None and node_of(f.owner) == w["capture"], lambda f, w, t: _owner(f)
    ),
    "checkpoint proceeds": Said(
        lambda f, w, t: f.checkpoint_us is not None and t - f.risen_us < PROCEEDS_US,
        lambda f, w, t: _checkpoint(f, t),
        ages=True,
    ),
    "no double write": Said(lambda f, w, t: not f.auditor.since_us, lambda f, w, t: _double(f)),
    **OF_INVARIANTS,
}
"""Sentences as patterns; a group's name is what must be there."""

_MEASURES: dict[str, Measure] = {
    "imbalance": Measure(lambda f, w, t: _imbalance(f)),
    "global checkpoint lag": Measure(lambda f, w, t: t - (f.checkpoint_us or 0), "us", ages=True),
    "time without progress": Measure(lambda f, w, t: t - f.risen_us, "us", ages=True),
    # moves that brought a table back within a minute, of all moves
    "thrash index": Measure(lambda f, w, t: Fraction(f.returns, f.moves or 1), "share"),
    "moves": Measure(lambda f, w, t: f.moves),
    "owner changes": Measure(lambda f, w, t: max(f.n_owners - 1, 0)),
    "captures": Measure(lambda f, w, t: len(f.captures)),
    "tables": Measure(lambda f, w, t: f.up),  # wanted ones that replicate, each counted once however it is split
    r"tables on (?P<capture>\S+)": Measure(lambda f, w, t: f.load[w["capture"]]),  # and spans
    "overlap": Measure(lambda f, w, t: f.auditor.until(t).overlap_us, "us", ages=True),
    "gap": Measure(lambda f, w, t: f.auditor.until(t).gap_us, "us", ages=True),
    **OF_MESSAGES,
}
"""Measures as patterns."""


VOCABULARY = Vocabulary(_SENTENCES, _MEASURES, _there)
STEADY = replace(_SENTENCES["every table replicates"], text="every table replicates")
BALANCED = Comparison("imbalance <= 1", replace(_MEASURES["imbalance"], text="imbalance"), "<=", 1)
"""What runs are compared by, besides their scenario's assertions."""


# How a scenario is played.


_ETCD = (Register, KeepAlive, KeptAlive, Resign, PutStatus, View, Status)


def messages(variant: str) -> frozenset[str]:
    """Give the names of a variant's messages and of those to and from etcd."""
    package = "ticdc_lab.simulate.scheduler"
    module = import_module(f"{package}.messages" if variant == "v2" else f"{package}.{variant}.messages")
    own = [
        c
        for c in vars(module).values()
        if isinstance(c, type) and hasattr(c, "_fields") and c.__module__ == module.__name__
    ]
    return frozenset(c.__name__ for c in (*own, *_ETCD))


def _of(own: type, other: type) -> dict[str, str]:
    """The settings of one variant alone."""
    names = "|".join(yaml_name(name) for name in field_types(own) if name not in (*field_types(other), "version"))
    return {rf"settings(\.scheduler)?\.({names})": f"it is of {own.__name__[:2].lower()} alone"}


_V3 = _of(V3Settings, V4Settings)
_V4 = _of(V4Settings, V3Settings) | {
    r"events\[\d+\]\.move_maintainer": "it is of v4 with a coordinator",
    r"events\[\d+\]\.(split_table|merge_spans)": "v4 alone divides tables",
}
_BALANCES = {
    r"settings(\.scheduler)?\.balance\.(policy|move_cost|at_most)": "it balances by count, as its TiCDC does",
    r"(cluster\.tables|events)\[\d+\]\.traffic": "it balances by count, whatever tables write",
}
_VERSIONS = {
    r"settings(\.scheduler)?\.version|cluster\.versions|events\[\d+\]\.version": "its nodes do not compare versions"
}
REFUSED = {"v2": _V3 | _V4, "v3": _V4 | _BALANCES, "v4": _V3 | _BALANCES | _VERSIONS}
"""What variants have no use for."""


class PlayedScheduler(PlayedCaptures[SchedulerRun, SchedulerFacts]):
    """A scenario of the table scheduler that has run."""

    __slots__ = ()

    @property
    def measures(self) -> WriterMeasures:
        """What tables had of writers."""
        return self.run.measures

    def whys(self, at_us: int) -> list[HeldAt]:
        """Find what holds the checkpoint at a moment."""
        return [HeldAt("checkpoint_ts", at_us, what_holds(self.trace, at_us=at_us))]

    @property
    def last(self) -> list[str]:
        """The state at the end, in sentences."""
        return last_state(self.facts)


@runs.Play
def play(scenario: Scenario, seed: int) -> runs.Staged[PlayedScheduler]:
    facts = scenario.model.facts(scenario.cluster, scenario.events)
    assert isinstance(facts, SchedulerFacts)
    run = partial(simulate, settings_of(scenario), faults=faults_of(scenario, seed, drawn_for(scenario)))
    played = partial(PlayedScheduler, scenario, seed, facts=facts)
    return runs.Staged(facts=facts, simulate=run, played=played, begun=facts.begin)


MODEL = Model(
    name="scheduler",
    variants=tuple(VARIANTS),
    cluster=lambda value: Reader().record(value, SchedulerCluster),
    tables=lambda c: frozenset(t.id for t in c.tables),
    settings=SchedulerSettings,
    unsettled=(*UNSETTLED, "traffic"),
    choices={"policy": POLICIES},
    events=FAULTS | EVENTS,
    random=tuple(DRAWS),
    messages=messages,
    claim=VOCABULARY.claim,
    measure=VOCABULARY.measure,
    facts=facts_of,
    invariants=(*INVARIANTS, "One Owner a Revision", "Responses Match Orders"),
    play=play,
    steady=STEADY,
    balanced=BALANCED,
    refused=REFUSED,
)

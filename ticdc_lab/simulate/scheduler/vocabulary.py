"""The sentences that assertions about the table scheduler are made of.

True or false of a moment::

    every table replicates              table 3 replicates             table 3 on capture-1
    no table on capture-2               there is an owner              owner is capture-2
    checkpoint proceeds                 no double write                no violation
    No Double Write is violated

and comparisons (``<``, ``<=``, ``=``, ``>=``, ``>``) of a number or a duration::

    imbalance <= 1                      global checkpoint lag < 5s     time without progress < 2s
    messages < 1000                     DispatchTable messages <= 16   thrash index <= 0.1
    tables on capture-1 = 3             moves <= 8                     owner changes = 1
    overlap = 0s                        gap < 3s                       ignored messages = 0
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from fractions import Fraction

from ticdc_lab.machines.machine import node_of
from ticdc_lab.simulate.reading import Names
from ticdc_lab.simulate.scenario_yaml import shown
from ticdc_lab.simulate.scheduler.executor import REPLICATING
from ticdc_lab.simulate.scheduler.facts import SchedulerFacts
from ticdc_lab.simulate.sentences import (
    OF_INVARIANTS,
    OF_MESSAGES,
    Comparison,
    Measure,
    Said,
    Vocabulary,
    Words,
)

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
    if not facts.double_for.since_us:
        return "no table has two writers"
    key = min(facts.double_for.since_us)
    return f"table {key} is written by {' and '.join(sorted(facts.keys[key].writers))}"


def _imbalance(facts: SchedulerFacts, at_us: int) -> int:
    loads = [facts.load[c] for c in facts.captures]
    return max(loads, default=0) - min(loads, default=0)


def _thrash(facts: SchedulerFacts, at_us: int) -> Fraction:
    """Moves that brought a table back within a minute, of all moves."""
    return Fraction(facts.returns, facts.moves or 1)


_SENTENCES: dict[str, Callable[[str, Words], Said]] = {
    "every table replicates": lambda text, _: Said(text, lambda f, t: f.up == len(f.wanted), lambda f, t: _missing(f)),
    r"table (?P<table>\d+) replicates": lambda text, found: Said(
        text, lambda f, t: f.replicates(int(found["table"])), lambda f, t: _where(f, int(found["table"]))
    ),
    r"table (?P<table>\d+) on (?P<capture>\S+)": lambda text, found: Said(
        text,
        lambda f, t: any(
            state == REPLICATING and node_of(address) == found["capture"]
            for address, state in f.states(int(found["table"]))
        ),
        lambda f, t: _where(f, int(found["table"])),
    ),
    r"no table on (?P<capture>\S+)": lambda text, found: Said(
        text,
        lambda f, t: f.held[found["capture"]] == 0,
        lambda f, t: f"{found['capture']} has {f.held[found['capture']]} tables",
    ),
    "there is an owner": lambda text, _: Said(text, lambda f, t: f.owner is not None, lambda f, t: _owner(f)),
    r"owner is (?P<capture>\S+)": lambda text, found: Said(
        text, lambda f, t: f.owner is not None and node_of(f.owner) == found["capture"], lambda f, t: _owner(f)
    ),
    "checkpoint proceeds": lambda text, _: Said(
        text, lambda f, t: f.checkpoint_us is not None and t - f.risen_us < PROCEEDS_US, _checkpoint, ages=True
    ),
    "no double write": lambda text, _: Said(text, lambda f, t: not f.double_for.since_us, lambda f, t: _double(f)),
    **OF_INVARIANTS,
}
"""Sentences as patterns; a group's name says what must be there."""

_MEASURES: dict[str, Callable[[str, Words], Measure]] = {
    "imbalance": lambda text, _: Measure(text, _imbalance),
    "global checkpoint lag": lambda text, _: Measure(text, lambda f, t: t - (f.checkpoint_us or 0), "us", ages=True),
    "time without progress": lambda text, _: Measure(text, lambda f, t: t - f.risen_us, "us", ages=True),
    "thrash index": lambda text, _: Measure(text, _thrash, "share"),
    "moves": lambda text, _: Measure(text, lambda f, t: f.moves),
    "owner changes": lambda text, _: Measure(text, lambda f, t: max(f.n_owners - 1, 0)),
    "captures": lambda text, _: Measure(text, lambda f, t: len(f.captures)),
    "tables": lambda text, _: Measure(text, lambda f, t: f.up),
    r"tables on (?P<capture>\S+)": lambda text, found: Measure(text, lambda f, t: f.load[found["capture"]]),
    "overlap": lambda text, _: Measure(text, lambda f, t: f.double_for.until(t), "us", ages=True),
    "gap": lambda text, _: Measure(text, lambda f, t: f.idle_for.until(t), "us", ages=True),
    **OF_MESSAGES,
}
"""Measures as patterns."""


VOCABULARY = Vocabulary(_SENTENCES, _MEASURES, _there)
STEADY = _SENTENCES["every table replicates"]("every table replicates", {})
BALANCED = Comparison("imbalance <= 1", _MEASURES["imbalance"]("imbalance", {}), "<=", 1)
"""What runs are compared by, whatever their scenario asserts."""

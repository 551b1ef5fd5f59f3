"""The sentences that assertions about a cluster under PD are made of; they are judged at every sample.

True or false::

    peers are even                 leaders are even              nothing runs
    no region misses a peer        store-4 is Tombstone          no violation
    every region has a leader      no region is left in a joint state
    ErrStoresNotEnough came        No Operator on a Vanished Region is violated

and comparisons (``<``, ``<=``, ``=``, ``>=``, ``>``) of a number::

    operators <= 700               balance-region-scheduler operators >= 1
    peers on store-3 <= 310        leaders on store-3 = 0        moved GiB < 60
    missing peers = 0              down peers = 0                running operators <= 64
    regions = 600                  thrash index <= 0.05          refused commands = 1
    stale peers = 0                wait < 100ms                  longest wait < 1s
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from fractions import Fraction
from typing import Any, NamedTuple

from ticdc_lab.simulate.pd.world.monitor import INVARIANTS
from ticdc_lab.simulate.reading import Names
from ticdc_lab.simulate.sentences import Measure, Said, Vocabulary, Words

CLOSE = 0.05


class Moment(NamedTuple):
    """How a cluster stands at a sample; counts by store id."""

    peers: Mapping[int, int]
    leaders: Mapping[int, int]
    states: Mapping[int, str]
    created: Mapping[str, int]
    running: int
    missing: int
    down: int
    regions: int
    moved_gib: float
    thrash: float
    errors: tuple[str, ...]
    violated: str
    stale: int
    wait_us: int
    worst_us: int
    leaderless: int
    joint: int


def uneven(m: Moment, counts: Mapping[int, int]) -> dict[int, int]:
    """Give the stores that are up and not within 5 % (and one) of the mean of those."""
    live = {s: counts.get(s, 0) for s, state in m.states.items() if state == "Up"}
    mean = sum(live.values()) / max(len(live), 1)
    return {s: c for s, c in live.items() if abs(c - mean) > CLOSE * mean + 1}


def _even(what: str) -> Said:
    def test(f: Any, at_us: int) -> bool:
        return not uneven(f.now, getattr(f.now, what))

    def tell(f: Any, at_us: int) -> str:
        return f"{what} by store: {dict(getattr(f.now, what))}"

    return Said(f"{what} are even", test, tell)


def _said(test: Callable[[Moment, Words], bool], tell: Callable[[Moment, Words], str]) -> Callable[[str, Words], Said]:
    def make(text: str, found: Words) -> Said:
        def holds(f: Any, at_us: int) -> bool:
            return test(f.now, found)

        def why(f: Any, at_us: int) -> str:
            return tell(f.now, found)

        return Said(text, holds, why)

    return make


def _counts(read: Callable[[Moment, Words], int | Fraction], unit: str = "") -> Callable[[str, Words], Measure]:
    def make(text: str, found: Words) -> Measure:
        def value(f: Any, at_us: int) -> int | Fraction:
            return read(f.now, found)

        return Measure(text, value, unit)

    return make


def _store(found: Words) -> int:
    return int(found["store"].rpartition("-")[2])


_STORE = r"(?P<store>store-\d+)"
_SENTENCES: dict[str, Callable[[str, Words], Said]] = {
    "peers are even": lambda text, _: _even("peers"),
    "leaders are even": lambda text, _: _even("leaders"),
    "nothing runs": _said(lambda m, _: not m.running, lambda m, _: f"{m.running} operators run"),
    "no region misses a peer": _said(lambda m, _: not m.missing, lambda m, _: f"{m.missing} regions miss a peer"),
    "every region has a leader": _said(
        lambda m, _: not m.leaderless, lambda m, _: f"{m.leaderless} regions have no leader"
    ),
    "no region is left in a joint state": _said(lambda m, _: not m.joint, lambda m, _: f"{m.joint} regions are"),
    rf"{_STORE} is (?P<state>\w+)": _said(
        lambda m, f: m.states.get(_store(f), "unknown") == f["state"],
        lambda m, f: f"{f['store']} is {m.states.get(_store(f), 'unknown')}",
    ),
    r"(?P<error>Err\w+) came": _said(
        lambda m, f: f["error"] in m.errors, lambda m, _: f"refused: {', '.join(m.errors) or 'nothing'}"
    ),
    "no violation": _said(lambda m, _: not m.violated, lambda m, _: m.violated or "no invariant is violated"),
    r"(?P<invariant>.+) is violated": _said(
        lambda m, f: m.violated == f["invariant"], lambda m, _: m.violated or "no invariant is violated"
    ),
}
_MEASURES: dict[str, Callable[[str, Words], Measure]] = {
    "operators": _counts(lambda m, _: sum(m.created.values())),
    "running operators": _counts(lambda m, _: m.running),
    r"(?P<desc>[\w-]+) operators": _counts(lambda m, f: m.created.get(f["desc"], 0)),
    rf"peers on {_STORE}": _counts(lambda m, f: m.peers.get(_store(f), 0)),
    rf"leaders on {_STORE}": _counts(lambda m, f: m.leaders.get(_store(f), 0)),
    "missing peers": _counts(lambda m, _: m.missing),
    "down peers": _counts(lambda m, _: m.down),
    "stale peers": _counts(lambda m, _: m.stale),
    "longest wait": _counts(lambda m, _: m.worst_us, "us"),
    "wait": _counts(lambda m, _: m.wait_us, "us"),
    "regions": _counts(lambda m, _: m.regions),
    "moved GiB": _counts(lambda m, _: Fraction(m.moved_gib), "share"),
    "thrash index": _counts(lambda m, _: Fraction(m.thrash), "share"),
    "refused commands": _counts(lambda m, _: len(m.errors)),
}


def _there(names: Names, invariants: Collection[str]) -> Mapping[str, Collection[str]]:
    return {"store": names.nodes, "invariant": INVARIANTS}


VOCABULARY = Vocabulary(_SENTENCES, _MEASURES, _there)
STEADY = _SENTENCES["nothing runs"]("nothing runs", {})
BALANCED = _SENTENCES["peers are even"]("peers are even", {})
"""What runs are compared by, whatever their scenario asserts."""

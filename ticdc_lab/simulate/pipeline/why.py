"""Why is resolved_ts or checkpoint_ts not moving: what holds it, since when, and what it would be without it.

A watermark is a minimum: each of its causes bounds it by itself (:mod:`.hold`). The lowest bound holds it; without this
cause the next one would, and so on until the watermark would be that of now.

References
----------
Design "Analyzing the Architecture Model", sections 3.1, 3.2 and 5.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa

from ticdc_lab.simulate.machine import node_of
from ticdc_lab.simulate.pipeline.hold import (
    CHECKPOINT,
    CURRENT_US,
    PASSING,
    REPORT,
    RESOLVED,
    SINK,
    STORE,
    WATERMARKS,
    Hold,
    Step,
)
from ticdc_lab.simulate.pipeline.holds_checkpoint import of_ddl, of_owner, of_sinks
from ticdc_lab.simulate.pipeline.holds_resolved import of_processors
from ticdc_lab.simulate.pipeline.moment import Moment
from ticdc_lab.simulate.pipeline.settings import BASE, MQ
from ticdc_lab.simulate.scenario_yaml import shown
from ticdc_lab.simulate.scheduler.clock import us_of

_FINER = 4
"""Since when something has been silent is looked for so much finer than whether it is."""
_TOLD = 4
"""Holders that the text names."""

HOLDERS = pa.schema(
    [
        ("watermark", pa.string()),  # resolved_ts or checkpoint_ts
        ("at_us", pa.int64()),  # the moment that was asked about
        ("place", pa.int64()),  # 1 holds it now, 2 would without it, ...
        ("kind", pa.string()),  # one of ticdc_lab.simulate.pipeline.hold.KINDS
        ("cause", pa.string()),
        ("path", pa.list_(pa.struct([("level", pa.string()), ("name", pa.string()), ("ts", pa.int64())]))),
        ("held_ts", pa.int64()),  # where it holds the watermark
        ("since_us", pa.int64()),  # since when it has been there; null before the first sample
        ("without_ts", pa.int64()),  # what the watermark would be without it; null for that of now
        ("n_bounds", pa.int64()),  # in how many places: regions with its locks, tables of the store
        ("because", pa.string()),
    ]
)
"""A row a holder."""


@dataclass(frozen=True, slots=True)
class Holder:
    """One cause; see :data:`HOLDERS`."""

    kind: str
    cause: str
    path: tuple[Step, ...]
    held_ts: int
    since_us: int | None
    without_ts: int | None
    n_bounds: int
    because: str


@dataclass(frozen=True, slots=True)
class Why:
    """The answer.

    Attributes
    ----------
    value_ts
        The global watermark.
    stands_since_us
        Since when it has this value, by the samples.
    holders
        The first holds it, each further one would without those before it; empty where it is on its way.
    waiting_rows
        Rows in sorters and mounters.
    """

    watermark: str
    rule: str
    at_us: int
    value_ts: int
    stands_since_us: int
    holders: tuple[Holder, ...]
    waiting_rows: int

    @property
    def table(self) -> pa.Table:
        """:data:`HOLDERS`."""
        rows = [
            {name: getattr(h, name) for name in HOLDERS.names if hasattr(h, name)}
            | {"watermark": self.watermark, "at_us": self.at_us, "place": i, "path": [s._asdict() for s in h.path]}
            for i, h in enumerate(self.holders, 1)
        ]
        return pa.Table.from_pylist(rows, schema=HOLDERS)

    @property
    def text(self) -> str:
        """One paragraph."""
        if self.watermark == RESOLVED and self.rule == MQ:
            return "The global resolved_ts is MaxUint64: by the MQ rule nothing waits for it."
        behind = shown(self.at_us - us_of(self.value_ts))
        head = f"The global {self.watermark} is {self.value_ts}, {behind} behind"
        if not self.holders:
            return f"{head}: nothing holds it."
        stood_us = self.at_us - self.stands_since_us
        told = [f"{head}, and has stood for {shown(stood_us)}." if stood_us else f"{head}."]
        for i, h in enumerate(self.holders[:_TOLD]):
            age = "" if h.since_us is None else f", for {shown(self.at_us - h.since_us)}"
            told.append(f"{'It is held by this' if i == 0 else 'Then by this'}: {h.because}{age} ({_chain(h.path)}).")
            told.append(f"Without it: {self._value(h.without_ts)}.")
        if more := self.holders[_TOLD:]:
            told.append(f"After these {len(more)} more: {_counted(more)}.")
        if self.watermark == CHECKPOINT and self.waiting_rows:
            told.append(f"{self.waiting_rows} rows wait in sorters and mounters.")
        return " ".join(told)

    def _value(self, ts: int | None) -> str:
        return "that of now" if ts is None else f"{ts}, {shown(self.at_us - us_of(ts))} behind"


def why(history: Sequence[Moment], *, watermark: str = RESOLVED, rule: str = BASE, current_us: int = CURRENT_US) -> Why:
    """Say what holds a global watermark.

    Parameters
    ----------
    history
        Samples of a run by time; the last one is the moment that is asked about. Those before it say since when.
    watermark
        Of :data:`WATERMARKS`.
    rule
        Of :data:`ticdc_lab.simulate.pipeline.settings.RULES`. By the MQ rule nothing holds the global resolved_ts.
    current_us
        What is less behind than this is on its way.

    Raises
    ------
    ValueError
        There is no sample, or no such watermark.
    """
    if not history or watermark not in WATERMARKS:
        raise ValueError(f"why needs a sample and one of {WATERMARKS}; found {len(history)} samples, {watermark!r}")
    now = history[-1]
    left = [] if watermark == RESOLVED and rule == MQ else holds(now, watermark, rule, current_us)
    holders = []
    while left and us_of(left[0].ts) < now.at_us - current_us:
        first = left[0]
        n_bounds, left = sum(h.key == first.key for h in left), [h for h in left if h.key != first.key]
        behind = left and us_of(left[0].ts) < now.at_us - current_us
        without_ts = left[0].ts if behind else None
        since_us = first.since_us
        if since_us is None:
            since_us = _since(first.key, history, watermark, rule, current_us // _FINER)
        kind, because = _passing(first, since_us, history, current_us)
        because += _rate(first, history)
        holders.append(Holder(kind, first.key[1], first.path, first.ts, since_us, without_ts, n_bounds, because))
    waiting = sum(t.sorting + t.spilled + t.mounting for c in now.captures for t in c.tables)
    value_ts: int = getattr(now, watermark)
    return Why(watermark, rule, now.at_us, value_ts, _stands(history, watermark), tuple(holders), waiting)


def holds(moment: Moment, watermark: str, rule: str = BASE, current_us: int = CURRENT_US) -> list[Hold]:
    """Give every bound of a global watermark at a moment, the lowest first."""
    found = list(of_processors(moment, current_us))
    if watermark == CHECKPOINT and rule == BASE:
        found = [h._replace(path=(Step("waits for", "global resolved_ts", moment.resolved_ts), *h.path)) for h in found]
    if watermark == CHECKPOINT:
        found += of_sinks(moment, rule, current_us)
    found += of_ddl(moment)
    found += of_owner(moment, found, watermark, current_us)
    return sorted(found, key=lambda h: (h.ts, h.key, h.path))


def _since(key: tuple[str, str], history: Sequence[Moment], watermark: str, rule: str, current_us: int) -> int | None:
    """The first sample of those without a break in which a cause bounds the watermark; None for the first of all."""
    since_us = history[-1].at_us
    for moment in reversed(history[:-1]):
        if all(h.key != key for h in holds(moment, watermark, rule, current_us)):
            return since_us
        since_us = moment.at_us
    return None


def _passing(hold: Hold, since_us: int | None, history: Sequence[Moment], current_us: int) -> tuple[str, str]:
    """A silence that has just begun is none, unless a node is down: what held the watermark before is over."""
    now = history[-1]
    young = now.at_us < current_us if since_us is None else now.at_us - since_us < current_us
    if hold.kind in (STORE, REPORT) and young and node_of(hold.key[1]) not in now.down:
        return PASSING, f"what held it has ended, and what is newer is on its way ({hold.because})"
    return hold.kind, hold.because


def _rate(hold: Hold, history: Sequence[Moment]) -> str:
    """How fast a sink was in the last second or so."""
    if hold.kind != SINK or len(history) < 2:
        return ""
    now = history[-1]
    earlier = next((m for m in reversed(history[:-1]) if m.at_us <= now.at_us - CURRENT_US), history[0])
    written = [sum(t.written for c in m.captures for t in c.tables if str(t.table) == hold.key[1])
               for m in (earlier, now)]  # fmt: skip
    rate = max(0, written[1] - written[0]) * 1_000_000 // max(1, now.at_us - earlier.at_us)
    return f"; it took {rate} rows/s lately"


def _stands(history: Sequence[Moment], watermark: str) -> int:
    value_ts, since_us = getattr(history[-1], watermark), history[-1].at_us
    for moment in reversed(history):
        if getattr(moment, watermark) != value_ts:
            break
        since_us = moment.at_us
    return since_us


def _counted(holders: Sequence[Holder]) -> str:
    return ", ".join(f"{n} {kind}" for kind, n in sorted(Counter(h.kind for h in holders).items()))


def _chain(path: tuple[Step, ...]) -> str:
    return " <- ".join(["global", *(f"{s.level} {s.name}" for s in path)])

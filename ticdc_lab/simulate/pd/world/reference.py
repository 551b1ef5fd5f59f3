"""The reference cases of the real PD: as starts of our runs, and run with PD's schedulers or others."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from operator import itemgetter
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from ticdc_lab.pd_core.measures import is_close, moved_back, since_when
from ticdc_lab.pd_core.pd_ctl_settings import rule_of
from ticdc_lab.pd_core.recorded.records import Fields, Malformed, UnknownRecord, records_of
from ticdc_lab.pd_core.rules import Rule, default_rules, with_rules
from ticdc_lab.pd_core.stores import MIB
from ticdc_lab.simulate.pd.world.changes import (
    ClusterChange,
    Grow,
    Pdctl,
    ReadFlow,
    ResumeStore,
    StartStore,
    StopStore,
    Timed,
    WriteFlow,
)
from ticdc_lab.simulate.pd.world.pd_policies import DEFAULT_POLICIES
from ticdc_lab.simulate.pd.world.pdctl_config import config_of
from ticdc_lab.simulate.pd.world.policy import Policy
from ticdc_lab.simulate.pd.world.run import Watch, simulate
from ticdc_lab.simulate.pd.world.running import moves_of
from ticdc_lab.simulate.pd.world.start import REFERENCE, SECOND_US, RegionsStart, Start, StoreStart, regions_of
from ticdc_lab.simulate.pd.world.world import World

_GIB_MIB = 1024.0
_FLOWS = ((WriteFlow, "write_bytes_per_s"), (ReadFlow, "read_bytes_per_s"))


@dataclass(frozen=True, slots=True)
class Case:
    """A case: where it starts, what happens, when it ends.

    A run ends ``settle_us`` after the last step or event, not before ``least_us`` and at ``most_us``; with
    ``settle_us`` 0 at ``most_us``. ``before_us`` is how long stores worked before tick 0, from which times count.
    """

    name: str
    start: Start
    changes: tuple[Timed, ...]
    settle_us: int
    least_us: int
    most_us: int
    before_us: int = 0
    peers_on_each: int = 0


def case_of(record: Fields) -> Case:
    """Read a case; what is :class:`Malformed`, or an event that is an :class:`UnknownRecord`, is refused."""
    name = record.text("case")
    config, rest = config_of(dict(record.object("config").value))
    config = replace(config, split_merge_interval_s=0.0)
    given = Fields(rest, "record.config")
    add, remove = given.items("store-limit", list(REFERENCE.store_limit))
    settings = replace(
        REFERENCE, store_limit=(float(add), float(remove)),
        io_mib_a_tick=given.number("store-io-mb-per-sim-second", REFERENCE.io_mib_a_tick),
        max_waiting=given.integer("scheduler-max-waiting-operator", REFERENCE.max_waiting),
    )  # fmt: skip
    hot = any(record.any(key, None) for _, key in _FLOWS)
    settings = replace(settings, demotes_leaders=hot)  # the recorder of hot cases lets its stores do it
    saved = [recorded_rule(r) for r in record.objects("rules")] if record.any("rules", None) else []
    rules = with_rules(default_rules(config), saved) if saved else ()
    upstream = _UPSTREAM.get(str(record.any("upstream_case", None)), _Upstream())
    settings = replace(
        settings, split_mib=upstream.split_mib, split_keys=upstream.split_keys, first_id=upstream.first_id,
        start_us=settings.start_us + upstream.before_us,
    )  # fmt: skip
    start = Start(
        stores=tuple(_store(s) for s in record.objects("stores")), regions=_regions(record, upstream.in_turn),
        config=config, rules=rules, settings=settings,
    )  # fmt: skip
    tick_us = settings.tick_us
    changes = [Timed(0, c) for c in (*_flows(record), *upstream.grows)]
    for event in record.objects("events", []):
        at_us = event.integer("tick") * tick_us
        changes += [Timed(at_us + upstream.before_us, c) for c in _changes(event)]
    finish = record.object("finish")
    return Case(
        name, start, tuple(changes), finish.integer("settle_ticks") * tick_us,
        finish.integer("min_ticks") * tick_us + upstream.before_us,
        finish.integer("max_ticks") * tick_us + upstream.before_us, upstream.before_us, upstream.peers_on_each,
    )  # fmt: skip


def recorded_rule(told: Fields) -> Rule:
    try:
        return rule_of({"id": "default", **told.value})
    except (ArithmeticError, AttributeError, KeyError, TypeError, ValueError) as e:
        raise Malformed(told.where, f"a placement rule, keys in hexadecimal ({e})", dict(told.value)) from e


@dataclass(frozen=True, slots=True)
class _Upstream:
    """What a case of PD's own simulator does that its record does not have."""

    before_us: int = 0
    split_mib: float = 1e9
    split_keys: int = 1 << 60
    grows: tuple[ClusterChange, ...] = ()
    peers_on_each: int = 0
    in_turn: bool = False
    first_id: int = 0


_UPSTREAM = {
    "region-split": _Upstream(10_000_000, 128.0, 10_000, (Grow(2, 80.0),), peers_on_each=5),
    "import-data": _Upstream(10_000_000, 64.0, 640_000, (Grow(600, 320.0, 6_000_000),), in_turn=True, first_id=12),
}  # fmt: skip
"""Regions grow from before tick 0 on, when nothing is scheduled yet, and are cut at the case's own size and keys.

The one region of ``region-split`` is cut at once, as it has so many keys; what is written goes to the new part.

The case puts its regions ``in_turn`` on stores 1 to 3, 2 to 4, and so on; its record lists them in no order.
"""


def _store(s: Fields) -> StoreStart:
    used = s.number("extra_used_gib", 0) * _GIB_MIB
    return StoreStart(
        s.integer("id"), s.number("capacity_gib") * _GIB_MIB, s.labels("labels"), not s.any("late", False), used
    )  # fmt: skip


def _regions(record: Fields, in_turn: bool) -> RegionsStart:
    told = record.items("regions")
    if not told or not all(isinstance(r, list) and len(r) in (3, 4) for r in told):
        raise Malformed("record.regions", "rows of size, leader, voters and learners", str(told)[:60])
    if in_turn:
        led = sorted(told, key=itemgetter(1))
        every = Counter(r[1] for r in told)
        told = [r for turn in range(max(every.values())) for r in led[turn :: max(every.values())]]
    learners = [r[3] if len(r) > 3 else [] for r in told]
    return regions_of([r[2] for r in told], [r[1] for r in told], [float(r[0]) for r in told], learners)


def _flows(record: Fields) -> list[ClusterChange]:
    found: list[ClusterChange] = []
    for flow, key in _FLOWS:
        told = record.any(key, None) or {}
        for bytes_s in sorted(set(told.values())):
            rows = tuple(sorted(int(r) for r, b in told.items() if b == bytes_s))
            found.append(flow(rows, bytes_s / MIB))
    return found


def _changes(event: Fields) -> list[ClusterChange]:
    kind = event.text("type")
    match kind:
        case "offline-store" | "delete-store":
            return [Pdctl(f"store delete {event.integer('store')}")]
        case "cancel-offline":
            return [Pdctl(f"store cancel-delete {event.integer('store')}")]
        case "stop-store":
            down = event.any("peer_down_s", None)
            return [StopStore(event.integer("store"), None if down is None else round(float(down) * SECOND_US))]
        case "resume-store":
            return [ResumeStore(event.integer("store"))]
        case "start-store" | "add-store":
            return [StartStore(event.integer("store"))]
        case "set-config":
            return [Pdctl(f"config set {name} {_word(v)}") for name, v in event.object("config").value.items()]
        case "set-weight":
            return [Pdctl(f"store weight {event.integer('store')} {event.number('leader')} {event.number('region')}")]
        case "set-store-limit" | "store-limit":
            return [Pdctl(f"store limit {event.any('store', 'all')} {event.any('limit')}")]
        case "add-scheduler" | "remove-scheduler":
            verb = kind.split("-")[0]
            return [Pdctl(f"scheduler {verb} {event.text('scheduler')} {event.any('store', '')}".strip())]
        case _:
            raise UnknownRecord(f"events of type {kind} in whole-cluster runs")


def _word(value: object) -> str:
    if isinstance(value, list):
        return ",".join(str(v) for v in value)
    return str(value).lower() if isinstance(value, bool) else str(value)


SAMPLE_TICKS = 20


class CaseRun(NamedTuple):
    """What a run of a case came to, ours or the real PD's, as the file's records ``run`` count it."""

    result: str
    last_change: int
    leaders_within_5pct: int | None
    peers_within_5pct: int | None
    created: dict[str, int]
    peers: dict[str, int]
    leaders: dict[str, int]
    shapes: dict[str, int]
    errors: tuple[str, ...]
    live: tuple[str, ...] = ()
    world: World | None = None
    violated: str = ""


def run_case(case: Case, seed: int = 1, policies: Sequence[Policy] = DEFAULT_POLICIES) -> CaseRun:
    """Run a case, and check the monitor's invariants all along: a violation ends the run.

    ``policies`` are PD's own schedulers unless others are to be compared with them.
    """
    tick_us, result = case.start.settings.tick_us, "MAX_TICKS"
    last_us = max((case.before_us, *(c.at_us for c in case.changes)))
    near: list[tuple[int, bool, bool]] = []

    def is_over(world: World) -> bool:
        nonlocal result
        at_us = world.now_us
        if at_us >= case.before_us:
            near.append(((at_us - case.before_us) // tick_us, *_near_mean(world)))
        if at_us > case.before_us and case.peers_on_each and min(world.regions.members.count) > case.peers_on_each:
            result = "CASE_OK"
        elif case.settle_us and at_us >= max(case.least_us, max(world.last_change_us, last_us) + case.settle_us):
            result = "SETTLED"
        return result != "MAX_TICKS"

    run = simulate(
        case.start, case.most_us, seed=seed, changes=case.changes, policies=policies, on_sample=is_over,
        watch=Watch(sample_us=SAMPLE_TICKS * tick_us, placement_us=None),
    )  # fmt: skip
    world, violated = run.world, run.violation
    ids, m = world.regions.store_ids, world.regions.members
    return CaseRun(
        "VIOLATED" if violated else result, max(0, world.last_change_us - case.before_us) // tick_us,
        since_when((t, leaders) for t, leaders, _ in near), since_when((t, peers) for t, _, peers in near),
        dict(world.controller.created),
        {str(i): n for i, n in zip(ids, m.count, strict=True) if n},
        {str(ids[i]): n for i, n in enumerate(_led(world)) if n}, shapes(world),
        tuple(e for h in world.happened for e in h.refusal), (), world,
        f"{violated.invariant}: {violated.because}" if violated else "",
    )  # fmt: skip


def _near_mean(world: World) -> tuple[bool, bool]:
    """Whether leaders and peers are close to their means on every running store: the records' measure, no weights."""
    m = world.regions.members
    live = [i for i, n in enumerate(world.nodes.all) if n.known and n.runs]

    def near(counts: list[int]) -> bool:
        return all(is_close(n, sum(counts) / len(counts)) for n in counts)

    led = _led(world)
    return near([led[i] for i in live]), near([m.count[i] for i in live])


def _led(world: World) -> list[int]:
    """Count the regions that each store leads, those too whose leader PD does not know."""
    leaders = world.regions.leader[world.regions.rows()]
    return list(np.bincount(leaders[leaders >= 0], minlength=len(world.nodes.all)).tolist())


def shapes(world: World) -> dict[str, int]:
    """Count regions by their voters, learners, pending and down peers, as the file does (``3v+1l pending1``)."""
    found: Counter[str] = Counter()
    for row in world.regions.rows().tolist():
        region = world.regions.region(row)
        learners = sum(p.role == "learner" for p in region.peers)
        text = f"{len(region.peers) - learners}v" + (f"+{learners}l" if learners else "")
        text += f" pending{len(region.pending)}" if region.pending else ""
        found[text + (f" down{len(region.down)}" if region.down else "")] += 1
    return dict(found)


def spread_of(counts: dict[str, int], stores: Sequence[str]) -> dict[str, Any]:
    """Give mean, standard deviation, least and most over the live stores, as the file does."""
    values = np.array([counts.get(s, 0) for s in stores], np.float64)
    if not len(values):
        return {"mean": 0.0, "stddev": 0.0, "min": 0, "max": 0}
    return {
        "mean": float(values.mean()), "stddev": float(values.std()), "min": int(values.min()),
        "max": int(values.max()),
    }  # fmt: skip


COMPARED = pa.schema(
    [
        ("case", pa.string()),
        ("policy", pa.string()),
        ("operators", pa.int64()),  # started
        ("moved_gib", pa.float64()),  # snapshots
        ("peers_stddev", pa.float64()),  # at the end, over the stores that have any
        ("leaders_stddev", pa.float64()),
        ("peers_within_5pct_s", pa.float64()),  # since when close to the mean; null if not at the end
        ("leaders_within_5pct_s", pa.float64()),
        ("thrash", pa.float64()),  # the share of moves that took back one of the last minute
    ]
)
"""A row a case and a set of policies."""

_TICKS_A_SECOND = 10


def on_reference(
    path: str | Path, policies: Mapping[str, Sequence[Policy]], *, cases: Collection[str] = (), seed: int = 1
) -> pa.Table:
    """Run reference cases with each of some sets of policies.

    Parameters
    ----------
    path
        A file of records in the form of golden/pd/reference.jsonl.gz.
    policies
        Sets of schedulers by a name; ``{"PD": DEFAULT_POLICIES, "mine": (*DEFAULT_POLICIES, mine)}``.
    cases
        Names; all where it is empty.
    seed
        Of every run.

    Returns
    -------
    pyarrow.Table
        :data:`COMPARED`.
    """
    found = [case_of(Fields(r, "record")) for r in records_of(path) if r.get("kind") == "case"]
    chosen = [c for c in found if not cases or c.name in cases]
    rows = [_row(c.name, name, run_case(c, seed, some)) for c in chosen for name, some in policies.items()]
    return pa.Table.from_pylist(rows, schema=COMPARED)


def _row(case: str, name: str, run: CaseRun) -> dict[str, Any]:
    assert run.world is not None

    def seconds(ticks: int | None) -> float | None:
        return None if ticks is None else ticks / _TICKS_A_SECOND

    return {
        "case": case, "policy": name, "operators": sum(run.created.values()),
        "moved_gib": run.world.tasks.moved_mib / 1024, "peers_stddev": float(np.std(list(run.peers.values()))),
        "leaders_stddev": float(np.std(list(run.leaders.values()))),
        "peers_within_5pct_s": seconds(run.peers_within_5pct),
        "leaders_within_5pct_s": seconds(run.leaders_within_5pct),
        "thrash": moved_back(moves_of(run.world.controller.ended)).thrash,
    }  # fmt: skip

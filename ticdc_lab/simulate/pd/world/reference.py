"""The reference cases of the real PD as starts of our runs (golden/pd/reference.jsonl.gz, records ``case``)."""

from __future__ import annotations

from dataclasses import dataclass, replace

from ticdc_lab.simulate.pd.replay.fields import Fields, Malformed, Unknown
from ticdc_lab.simulate.pd.rules import default_rules, with_rules
from ticdc_lab.simulate.pd.world.changes import Change, Grow, Pdctl, ResumeStore, SetFlow, StartStore, StopStore, Timed
from ticdc_lab.simulate.pd.world.pdctl_config import config_of, rule_of
from ticdc_lab.simulate.pd.world.settings import REFERENCE, SECOND_US, WorldSettings
from ticdc_lab.simulate.pd.world.start import RegionsStart, Start, StoreStart, regions_of

_GIB_MIB = 1024.0
_FLOWS = (("write", "write_bytes_per_s"), ("read", "read_bytes_per_s"))


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
    """Read a case.

    Raises
    ------
    Malformed
        It is not of the form it should have.
    Unknown
        Something happens in it that we do not know.
    """
    name = record.text("case")
    config, rest = config_of(dict(record.object("config").value))
    config = replace(config, split_merge_interval_s=0.0)
    settings = _settings(Fields(rest, "record.config"))
    saved = [rule_of(r) for r in record.objects("rules")] if record.any("rules", None) else []
    rules = with_rules(default_rules(config), saved) if saved else ()
    upstream = _UPSTREAM.get(str(record.any("upstream_case", None)), _Upstream())
    settings = replace(settings, split_mib=upstream.split_mib, start_us=settings.start_us + upstream.before_us)
    start = Start(
        stores=tuple(_store(s) for s in record.objects("stores")), regions=_regions(record), config=config,
        rules=rules, settings=settings,
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


@dataclass(frozen=True, slots=True)
class _Upstream:
    """What a case of PD's own simulator does that its record does not say."""

    before_us: int = 0
    split_mib: float = 1e9
    grows: tuple[Change, ...] = ()
    peers_on_each: int = 0


_UPSTREAM = {
    "region-split": _Upstream(
        10_400_000, 128.0, (Grow(1, 8.0),), peers_on_each=5,
    ),
    "import-data": _Upstream(10_000_000, 64.0, (Grow(282, 32.0, 6_000_000),)),
}  # fmt: skip
"""Regions grow from before tick 0 on, when nothing is scheduled yet, and are cut at the case's own size."""


def _settings(given: Fields) -> WorldSettings:
    add, remove = given.items("store-limit", list(REFERENCE.store_limit))
    return replace(
        REFERENCE, store_limit=(float(add), float(remove)),
        io_mib_a_tick=given.number("store-io-mb-per-sim-second", REFERENCE.io_mib_a_tick),
        max_waiting=given.integer("scheduler-max-waiting-operator", REFERENCE.max_waiting),
    )  # fmt: skip


def _store(s: Fields) -> StoreStart:
    used = s.number("extra_used_gib", 0) * _GIB_MIB
    return StoreStart(
        s.integer("id"), s.number("capacity_gib") * _GIB_MIB, s.labels("labels"), not s.any("late", False), used
    )  # fmt: skip


def _regions(record: Fields) -> RegionsStart:
    told = record.items("regions")
    if not told or not all(isinstance(r, list) and len(r) in (3, 4) for r in told):
        raise Malformed("record.regions", "rows of size, leader, voters and learners", str(told)[:60])
    learners = [r[3] if len(r) > 3 else [] for r in told]
    return regions_of([r[2] for r in told], [r[1] for r in told], [float(r[0]) for r in told], learners)


def _flows(record: Fields) -> list[Change]:
    found: list[Change] = []
    for kind, key in _FLOWS:
        told = record.any(key, None) or {}
        for bytes_s in sorted(set(told.values())):
            rows = tuple(sorted(int(r) for r, b in told.items() if b == bytes_s))
            found.append(SetFlow(kind, rows, float(bytes_s)))
    return found


def _changes(event: Fields) -> list[Change]:
    kind = event.text("type")
    match kind:
        case "offline-store" | "delete-store":
            return [Pdctl(f"store delete {event.integer('store')}")]
        case "cancel-offline":
            return [Pdctl(f"store cancel-delete {event.integer('store')}")]
        case "stop-store":
            down = event.any("peer_down_s", None)
            return [StopStore(event.integer("store"), None if down is None else float(down))]
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
            raise Unknown(f"events of type {kind} in whole-cluster runs")


def _word(value: object) -> str:
    if isinstance(value, list):
        return ",".join(str(v) for v in value)
    return str(value).lower() if isinstance(value, bool) else str(value)


def settle(case: Case) -> int:
    """Give the µs without a step after which a run is over; more than it can last where it is never."""
    return case.settle_us or 1 << 60


__all__ = ["SECOND_US", "Case", "case_of", "settle"]

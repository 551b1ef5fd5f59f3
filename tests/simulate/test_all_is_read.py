"""What a scenario may define is read by a run, in every model and variant, or refused by name."""

from __future__ import annotations

import re
import sys
from dataclasses import fields, is_dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from ticdc_lab.errors import ScenarioError
from ticdc_lab.pd_core.config import Config
from ticdc_lab.simulate.pipeline.log import log_events
from ticdc_lab.simulate.planned import Delay
from ticdc_lab.simulate.scenario import MODELS, Scenario, model_named, scenario_from_text
from ticdc_lab.simulate.scheduler.v3 import V3Settings
from ticdc_lab.simulate.scheduler.v4 import V4Settings
from ticdc_lab.simulate.scheduler.variants import SchedulerSettings

SCHEDULER = """
model: scheduler
variant: {variant}
until: 4s
cluster: {{captures: [a, b, c], tables: [{tables}, 2, 3]{versions}}}
settings: {{balance: {{{balance}}}, pace: {{prepare: 10ms}}}}
network: {{delay: {{mean: 2ms, least: 1ms}}, loss: 1%, duplicate: 1%, reorder: 1%, transport: datagram,
  links: [{{from: a, to: b, delay: [1ms, 2ms], loss: 1%, duplicate: 1%, reorder: 1%}}]}}
events:
  - {{at: 1s, crash: a}}
  - {{at: 2s, restart: a, keep_state: true}}
  - {{at: 1s, pause: b, for: 100ms}}
  - {{at: 1s, pause: b}}
  - {{at: 1.1s, resume: b}}
  - {{at: 1s, partition: [a], from: [b], one_way: true, for: 100ms}}
  - {{at: 2s, heal: [a]}}
  - {{at: 1s, lose: PutStatus, from: a, to: etcd, count: 2}}
  - {{at: 1s, refuse: b, to: a, for: 100ms}}
  - {{at: 1s, link: b, to: c, delay: 2ms, loss: 1%, duplicate: 1%, reorder: 1%, for: 1s}}
  - {{at: 1s, clock: c, offset: 1ms, drift: 1%}}
  - {{at: 1s, join: d{version}}}
  - {{at: 2s, restart_processor: c}}
  - {{at: 2s, expire_session: c}}
  - {{at: 3.9s, two_owners: true}}
  - {{at: 1s, stuck_table: 1, for: 1s}}
  - {{at: 2s, free_table: 1}}
{own}
  - {{at: 2s, move_table: 2, to: b}}
  - {{at: 2s, rebalance}}
  - {{at: 2s, drain: b}}
  - {{random: {{faults: [crash], every: 1s, from: 1s, until: 2s}}}}
"""
DDL = "  - {{at: 2s, ddl: 10ms}}\n  - {{at: 2s, add_table: 9{traffic}}}\n  - {{at: 3s, drop_table: 3}}"
V2 = {"tables": "{id: 1, traffic: 5}", "versions": ", versions: {a: v6.1.1}", "version": ", version: v6.1.1"}
V2 |= {"balance": "policy: traffic, move_cost: 1, at_most: 1, check: 500ms"}
V3 = V2 | {"tables": "1", "balance": "check: 500ms"}
V4 = V3 | {"versions": "", "version": ""}
OF_VARIANTS = {"v2": V2, "v3": V3, "v4": V4}


def scheduler(variant: str) -> str:
    """A cluster in which everything happens."""
    own = DDL.replace("{traffic}", ", traffic: 3" if variant == "v2" else "").replace("{{", "{").replace("}}", "}")
    return SCHEDULER.format(variant=variant, own=own, **OF_VARIANTS[variant])


COORDINATED = """
model: scheduler
variant: v4
until: 3s
cluster: {captures: [a, b], tables: 2}
settings: {coordinator: true}
events:
  - {at: 1s, move_maintainer: b}
  - {at: 1s, split_table: 1, keys: [m], to: [a, a]}
  - {at: 2s, merge_spans: 1, keys: m}
"""

PIPELINE = """
  - {at: 1s, split: 1, handle: 50}
  - {at: 2s, merge: 1, handle: 1}
  - {at: 1s, transfer_leader: 2, to: tikv-2, handle: 2}
  - {at: 1s, slow_sink: 100, for: 100ms}
  - {at: 1.5s, standing_sink: 100ms}
  - {at: 1s, long_transaction: 1, hold: 1s, rows: 2, rolls_back: true}
  - {at: 2s, add_column: 1, column: new}
  - {at: 2.5s, drop_table: 2}
  - {at: 2s, repartition: 4}
load: {rows_per_s: 50, rows: 2, handles: 90, from: 100ms, until: 2s, rolled_back: 10%, deleted: 10%,
  transactions: [{at: 1s, table: 1, handles: [7], hold: 100ms, rolls_back: false, deletes: true}]}
"""


def pipeline(variant: str) -> str:
    """The same cluster with its data path."""
    given = OF_VARIANTS[variant]
    text = SCHEDULER.format(variant=variant, own="", **(given | {"tables": "", "versions": ""}))
    text = re.sub(r"cluster: .*", "cluster: {captures: 3, stores: 3, tables: 3, regions: 2}", text)
    text = re.sub(r"\b([abc])\b(?=[,\]}])", lambda m: f"capture-{'abc'.index(m[1]) + 1}", text)
    text = text.replace("model: scheduler", "model: pipeline").replace("{balance:", "{scheduler: {balance:")
    text = text.replace("pace: {prepare: 10ms}}", "margin: 900ms}}")
    return text.replace(", traffic: 5", "") + PIPELINE.lstrip("\n")


CHANGEFEEDS = """
  - {at: 0s, create_changefeed: all}
  - {at: 1s, create_changefeed: some, tables: [1, 2], kind: mysql, start: 500ms}
  - {at: 1.5s, pause_changefeed: some}
  - {at: 2s, resume_changefeed: some}
  - {at: 1s, slow_changefeed: all, rows_per_s: 100, for: 100ms}
  - {at: 1.5s, standing_changefeed: all, for: 100ms}
  - {at: 3s, remove_changefeed: some}
load:"""
OF_ONE_CHANGEFEED = [name for name, kind in model_named("pipeline").events.items() if kind.reach == "one"]


def changefeeds(variant: str) -> str:
    """The pipeline's cluster with two of them."""
    text = (
        pipeline(variant)
        .replace("model: pipeline", "model: changefeeds")
        .replace("\nload:", CHANGEFEEDS)
        .replace("until: 4s", "until: 8s", 1)
    )
    lines = [line for line in text.splitlines() if not re.search(rf"\b({'|'.join(OF_ONE_CHANGEFEED)})\b", line)]
    return "\n".join(lines)


CALM_CHANGEFEED = """
model: changefeeds
until: 3s
cluster: {captures: 1, tables: 1}
events: [{at: 0s, create_changefeed: all}, {at: 1s, add_column: 1}]
"""
WORKLOAD = """
model: pipeline
until: 2s
cluster: {captures: 1}
load: {workload: {kind: hot-keys, rows: 1000, rows_per_s: 2000, tables: 2, keys: 20, ddl: 1}}
"""
OF_SERVICE = """
model: pipeline
until: 15s
cluster: {captures: 1, tables: 1}
load: {rows_per_s: 20, ddl: {of: ../ddl-service/slow-server.yaml, cluster: cluster1}}
"""
SERVICE = """
model: ddl-service
until: 6s
cluster: {workers: 3, clusters: 3, servers: 2, unregistered: 1, versions: {cluster3: v7.1.0}}
load: {every: 200ms, from: 1s, until: 4s}
events:
  - {at: 1s, crash: cluster1/tidb-1}
  - {at: 2s, restart: cluster1/tidb-1, keep_state: false}
  - {at: 1s, pause: cluster2/tidb-2, for: 100ms}
  - {at: 1s, pause: cluster2/tidb-2}
  - {at: 1.1s, resume: cluster2/tidb-2}
  - {at: 1s, partition: [ddl-service-node-1], from: [pd], one_way: true, for: 100ms}
  - {at: 2s, heal: [ddl-service-node-1]}
  - {at: 1s, lose: Txn, from: ddl-service-node-1, to: pd, count: 2}
  - {at: 1s, refuse: ddl-service-node-1, to: pd, for: 100ms}
  - {at: 1s, link: ddl-service-node-1, to: pd, delay: 2ms, loss: 1%, duplicate: 1%, reorder: 1%, for: 1s}
  - {at: 1s, clock: ddl-service-node-2, offset: 1ms, drift: 1%}
  - {at: 2s, join: late}
  - {at: 3s, leave: ddl-service-node-2, back: 1s}
  - {at: 2s, resign: ddl-service-node-1, cluster: cluster1}
  - {at: 2s, enable_ddl: cluster2/tidb-1, off: true}
  - {at: 2s, expire_session: ddl-service-node-3}
  - {at: 5.9s, break_session: ddl-service-node-3, store: "tikv://cluster1:2379"}
  - {at: 2s, register: cluster3, worker: ddl-service-node-1, version: v6.5.0, store: "tikv://cluster3:2379"}
  - {at: 3s, unregister: cluster3, worker: ddl-service-node-1}
  - {at: 2s, ddl: cluster1/tidb-2, job: add index, table: t, element: i, rows: 90, fails_at: 50, errors: 2,
     version: v6.5.0}
  - {at: 3s, show_ddl: cluster1/tidb-2}
  - {at: 2s, cancel: cluster1/tidb-2, id: 1}
  - {at: 2s, set_global: cluster1/tidb-2, variable: tidb_ddl_reorg_batch_size, value: "64"}
  - {at: 2s, set_instance: ddl-service-node-1, variable: ddl_slow_threshold, value: "64"}
  - {at: 2s, transact: cluster1/tidb-2, for: 500ms}
  - {at: 2s, slow_server: cluster1/tidb-2, load: 50ms, for: 1s}
  - {random: {faults: [crash, cut], every: 1s, from: 1s, until: 2s}}
"""
PD = """
model: pd
until: 20s
network: {loss: 1%}
settings: {hot_history_samples: 1, hot_history: 1s}
cluster: {stores: [{id: 1}, {id: 2}, {id: 3, capacity: 500, used: 9, labels: {zone: z}}, {id: 4, later: true}],
  regions: 30, on: [1, 2, 3], size: 96, store_limit: 600, config: {leader-schedule-limit: 8}}
events:
  - {at: 1s, pdctl: store weight 1 1 2}
  - {at: 2s, start_store: store-4}
  - {at: 3s, stop_store: store-3, down: 1s}
  - {at: 12s, stop_store: store-2}
  - {at: 9s, resume_store: store-3}
  - {at: 1s, read: 1 2, mib_s: 32}
  - {at: 1s, write: 4 led by store-1, mib_s: 32}
  - {at: 1s, grow: 3, mib_s: 9}
  - {at: 2s, slow_disk: store-1, mib_s: 50, for: 5s}
  - {at: 4s, cut_off: store-1, for: 2s}
  - {at: 6s, fail_over}
"""
UPGRADE = """
model: ddl-service
until: 2s
settings: {bootstrapped: v6.1.0}
cluster: {workers: 1, clusters: 1}
"""
ROOT = Path(__file__).resolve().parents[2]
TEXTS = {
    **{("scheduler", v): [scheduler(v), *([COORDINATED] if v == "v4" else [])] for v in OF_VARIANTS},
    **{("pipeline", v): [pipeline(v), WORKLOAD, OF_SERVICE] for v in OF_VARIANTS},
    **{("changefeeds", v): [changefeeds(v), CALM_CHANGEFEED] for v in OF_VARIANTS},
    ("ddl-service", "proposal"): [SERVICE, UPGRADE],
    ("pd", "pd"): [PD],
}


class Reads:
    """The fields of each class that were read; copying (``dataclasses.replace``) reads all and counts for none."""

    def __init__(self) -> None:
        self.there: set[tuple[str, str]] = set()
        self.read: set[tuple[str, str]] = set()
        self._kinds: dict[type, type] = {}

    def watch(self, value: Any, without: tuple[str, ...] = ()) -> Any:
        """Give the same value, whose reads are noted."""
        if isinstance(value, tuple) and type(value) is tuple:
            return tuple(self.watch(one, without) for one in value)
        if not is_dataclass(value) or isinstance(value, type):
            return value
        names = [f.name for f in fields(value) if f.init]
        self.there |= {(type(value).__name__, n) for n in names if n not in without}
        given = {n: getattr(value, n) if n in without else self.watch(getattr(value, n), without) for n in names}
        return self._kind(type(value), frozenset(names))(**given)

    def _kind(self, kind: type, names: frozenset[str]) -> type:
        if kind not in self._kinds:
            reads = self.read

            def noted(self: Any, name: str) -> Any:
                code = sys._getframe(1).f_code
                if name in names and "dataclasses" not in code.co_filename and code.co_name != "__eq__":
                    reads.add((kind.__name__, name))
                return object.__getattribute__(self, name)

            self._kinds[kind] = type(kind.__name__, (kind,), {"__getattribute__": noted, "__slots__": ()})
        return self._kinds[kind]

    def unread(self) -> set[tuple[str, str]]:
        """What was there and no one read."""
        return self.there - self.read


def watched(scenario: Scenario, reads: Reads) -> Scenario:
    """Watch all of a scenario but what its variant refuses, what other sections of the file define, and what none
    shows.
    """
    model, refused = scenario.model, set[str]()
    for pattern in model.refused.get(scenario.variant, {}):
        refused |= {n for name in re.findall(r"[a-z_]{4,}", pattern) for n in (name, f"{name}_us")}
    refused -= {"settings", "scheduler", "balance", "cluster", "tables", "events", "network"}
    return replace(
        scenario,
        settings=reads.watch(scenario.settings, (*model.unsettled, *refused)),
        cluster=reads.watch(scenario.cluster, ("config", "reading", *refused)),
        load=reads.watch(scenario.load, ("seed", "start_ts", "watermark_ms")),
        network=reads.watch(scenario.network, tuple(refused)),
        events=tuple(replace(e, what=reads.watch(e.what, tuple(refused))) for e in scenario.events),
        random=tuple(reads.watch(r, ("line",)) for r in scenario.random),
    )


@pytest.mark.parametrize(("model", "variant"), TEXTS)
def test_all_that_a_file_may_say_is_read(model: str, variant: str) -> None:
    """Settings, cluster, load, network and the fields of every kind of event."""
    reads, kinds = Reads(), set[type]()
    for text in TEXTS[model, variant]:
        scenario = scenario_from_text(text, str(ROOT / "data/scenarios/pipeline/all.yaml"), {"variant": variant})
        kinds |= {type(e.what) for e in scenario.events}
        run = scenario.model.play(watched(scenario, reads), seed=1).run
        if model == "pipeline":
            log_events(run.entries, run.settings.downstream)
        if model == "changefeeds":
            log_events(run.of("all").entries, run.settings.downstream)
    unused = {kind for name, kind in scenario.model.events.items() if _is_refused(scenario.model, variant, name)}
    assert kinds == set(scenario.model.events.values()) - unused
    assert reads.unread() == set(), "read it before the rule's first return, or extend the model's text"


def _is_refused(model: Any, variant: str, event: str) -> bool:
    """Whether a variant has no use for a kind of event at all."""
    return any(re.fullmatch(pattern, f"events[0].{event}") for pattern in model.refused.get(variant, {}))


def test_each_variant_of_each_model_is_asked() -> None:
    """A variant that comes later is here too."""
    assert set(TEXTS) == {(m, v) for m in MODELS for v in model_named(m).variants}


def test_a_field_that_nobody_reads_is_seen() -> None:
    """Copies read it, runs do not."""
    reads = Reads()
    value = reads.watch(Delay("fixed", 1, 2))
    assert replace(value, low_us=3) == Delay("fixed", 3, 2) or value.kind == "fixed"
    assert reads.unread() == {("Delay", "low_us"), ("Delay", "high_us")}


REFUSED = {
    "v2: concurrency of v3": ("scheduler", "v2", "settings.max_task_concurrency", "1", "it is of v3 alone"),
    "v2: a coordinator": ("scheduler", "v2", "settings.coordinator", "true", "it is of v4 alone"),
    "pipeline: a coordinator": (
        "pipeline",
        "v4",
        "settings.scheduler.coordinator",
        "true",
        "the owner is the maintainer",
    ),
    "v2: batches of v4": ("pipeline", "v2", "settings.scheduler.batch_size", "1", "it is of v4 alone"),
    "v3: a policy": ("scheduler", "v3", "settings.balance.policy", "traffic", "variant v3: it balances by count"),
    "v4: a policy": ("pipeline", "v4", "settings.scheduler.balance.policy", "none", "v4: it balances by count"),
    "v4: a version": ("scheduler", "v4", "settings.version", "v6.1.0", "its nodes do not compare versions"),
    "pd: steps": ("pd", "pd", "step_limit", "9", "no `step_limit` for the model pd: a run ends at `until`"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_a_variant_has_no_use_for_is_refused_by_name(case: str) -> None:
    """With the reason."""
    model, variant, path, value, why = REFUSED[case]
    with pytest.raises(ScenarioError, match=re.escape(why)) as refused:
        scenario_from_text(TEXTS[model, variant][0], "file.yaml", {path: value})
    assert f"no `{path.rpartition('.')[2]}`" in str(refused.value)


def test_a_setting_of_one_variant_is_declared_there_alone() -> None:
    """A file has it, and other variants refuse it, without another line: versions and paces are of all."""
    own = SchedulerSettings.__annotations__
    assert {name for kind in (V3Settings, V4Settings) for name in kind.__annotations__ if name in own} == {
        "version",
        "pace",
    }
    assert {*V3Settings.__annotations__} & {*V4Settings.__annotations__} == {"pace"}


def test_traffic_of_tables_is_refused_where_nothing_balances_by_it() -> None:
    """In the cluster and in an event."""
    for text in (scheduler("v2"), scheduler("v2").replace("{id: 1, traffic: 5}", "1")):
        asked = re.sub(r"policy: traffic, move_cost: 1, at_most: 1, ", "", text).replace("variant: v2", "variant: v3")
        with pytest.raises(ScenarioError, match="no `traffic` for the variant v3"):
            scenario_from_text(asked)


def test_every_setting_of_pd_is_read_by_its_model() -> None:
    """By name: a run comes to the checkers of one mode only."""
    files = [p for room in ("pd_core", "simulate/pd") for p in (ROOT / "ticdc_lab" / room).rglob("*.py")]
    text = "\n".join(p.read_text() for p in files if p.name not in ("config.py", "pdctl_config.py"))
    assert {f.name for f in fields(Config) if not re.search(rf"\.{f.name}\b", text)} == set()

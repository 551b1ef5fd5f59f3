"""A swarm: each seed draws a scenario of its own (cluster, settings, network, faults), which ends without faults.

What is drawn is a scenario file like any other, so that ``--lines``, ``--why`` and an editor work as ever. In
the first part of a run faults come; then they stop, and the run must become live: all that should be done is done in
its end. (TigerBeetle's VOPR goes the same way.) It ends when all has been so for some calm
(``settle``), longer than the interval at which tables are balanced: after that a protocol does nothing new. PD does,
for its clients continue: its calm is longer than the interval after which regions are merged, and each fourth seed runs
to its end.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from random import Random
from types import MappingProxyType
from typing import Any, NamedTuple

from ticdc_lab.errors import ContractError
from ticdc_lab.simulate.faults import DRAWS
from ticdc_lab.simulate.network import Network
from ticdc_lab.simulate.runs import SWARM, command
from ticdc_lab.simulate.scenario import Scenario, scenario_from_text

_NO_CHANGES: Mapping[str, str] = MappingProxyType({})
_VERSIONS = ("v6.5.0", "v7.1.0", "v9.0.0", "v5.4.0")
_VARIABLES: dict[str, tuple[int, ...]] = {
    "tidb_ddl_reorg_worker_cnt": (2, 4, 16), "tidb_ddl_error_count_limit": (1, 2, 512),
}  # fmt: skip
DISKS = ("", ", disk: torn", ", disk: lost")


def swarm(model: str, seed: int, changes: Mapping[str, str] = _NO_CHANGES) -> Scenario:
    """Draw the scenario of a seed.

    ``model``: ``scheduler``, ``pipeline``, ``changefeeds``, ``ddl-service`` or ``pd``. ``seed``: draws everything; it
    is the run's own seed too. ``changes``: values that are taken instead of the drawn ones, as for
    :func:`ticdc_lab.simulate.scenario.read_scenario`; of the scheduler a ``variant`` of these has a scenario of its own
    drawn. Raises ContractError: there is no such model.

    Examples
    --------
    >>> swarm("pd", 1).seed
    1
    """
    if model not in _DRAWN:
        raise ContractError(f"There is no swarm of {model}.", hint=f"Of: {', '.join(_DRAWN)}.")
    chance = Random(f"{model} {seed}")
    drawn = _scheduler(chance, changes.get("variant")) if model == "scheduler" else _DRAWN[model](chance)
    if model == "pd" and seed % _PD_WHOLE:
        drawn = f"settle: {_PD_SETTLES_S}s\n{drawn}"
    return scenario_from_text(f"model: {model}\nname: swarm\nseed: {seed}\n{drawn}", SWARM, changes)


class Fallen(NamedTuple):
    """A seed whose run did not hold, in which way, and the command that gives it again."""

    seed: int
    because: tuple[str, ...]
    again: str


def fallen(model: str, seeds: range, changes: Mapping[str, str] = _NO_CHANGES) -> Iterator[Fallen]:
    """Run seed after seed, and give each that did not hold as soon as it is known.

    A run that fails with an error of ours is one of them: no scenario that is drawn may do that.
    """
    for seed in seeds:
        scenario = swarm(model, seed, changes)
        try:
            played = scenario.model.play(scenario, keep=False)
        except Exception as error:
            yield Fallen(seed, (f"{type(error).__name__}: {error}",), command(scenario, seed))
            continue
        if not played.held:
            failed = [f"{o.assertion}: {o.because}" for o in played.outcomes if not o.held]
            yield Fallen(seed, tuple(failed) or (_stopped(played.run),), played.again)


def _stopped(run: Any) -> str:
    """Describe what ended a run whose assertions all held."""
    violation = getattr(run, "violation", None) or getattr(run, "violated", None)
    return str(violation) if violation else f"it ended because of its {run.end.because}"


def _some(chance: Random, kinds: Collection[str]) -> str:
    return ", ".join(sorted(chance.sample([*kinds], chance.randint(1, len(kinds)))))


class _DrawnNetwork(NamedTuple):
    """A network that was drawn, and how long a message takes at least and at most (lost six times at the worst)."""

    text: str
    least_ms: int
    most_ms: int


def _network(chance: Random, shortest_ms: tuple[int, ...] = (1, 2, 10)) -> _DrawnNetwork:
    least = chance.choice(shortest_ms)
    percent = chance.choice((0, 0, 1, 3))
    most = least * chance.choice((1, 3, 10))
    duplicate, reorder = chance.choice((0, percent)), chance.choice((0, percent))
    text = (
        f"network: {{delay: [{least}ms, {most}ms], loss: {percent}%, duplicate: {duplicate}%, reorder: {reorder}%}}\n"
    )
    again_ms = 6 * Network().resend_us // 1000 if percent else 0
    return _DrawnNetwork(text, least, most * (2 if reorder else 1) + again_ms)


def _lines(heading: str, lines: list[str]) -> str:
    return f"{heading}:\n" + "".join(f"  - {line}\n" for line in lines)


def _scheduler(chance: Random, variant: str | None = None) -> str:
    drawn = chance.choice(("v2", "v2", "v3", "v4"))
    variant = variant or drawn
    captures, tables = chance.randint(2, 5), chance.randint(1, 20)
    policy = chance.choice(("count", "count", "none")) if variant == "v2" else "count"
    balance = f"balance: {{policy: {policy}, check: {chance.choice((2, 10))}s}}, " if variant == "v2" else ""
    named = [f"capture-{n + 1}" for n in range(captures)]
    events = [f"random: {{faults: [{_some(chance, DRAWS)}], every: {chance.choice((800, 2000, 4000))}ms, until: 25s}}"]
    events += [
        f"{{at: {chance.randint(2, 24)}s, move_table: {chance.randint(1, tables)}, to: {chance.choice(named)}}}"
        for _ in range(chance.randint(0, 4))
    ]
    events += [f"{{at: {chance.randint(2, 24)}s, ddl: {chance.choice((10, 900))}ms}}"] * chance.randint(0, 2)
    wishes = (
        f"restart_processor: {chance.choice(named)}", f"stuck_table: {chance.randint(1, tables)}, for: 1500ms",
        f"add_table: {tables + 1}", "rebalance: null", f"drain: {chance.choice(named)}",
        *((f"drop_table: {chance.randint(1, tables)}",) if tables > 1 else ()),
    )  # fmt: skip
    wished = chance.sample(wishes, chance.randint(0, 3))
    events += [f"{{at: {chance.randint(2, 24)}s, {wish}}}" for wish in wished]
    coordinated = variant == "v4" and chance.random() < 0.5
    own = "coordinator: true, " if coordinated else ""
    if coordinated:
        moves = range(chance.randint(0, 2))
        events += [f"{{at: {chance.randint(2, 24)}s, move_maintainer: {chance.choice(named)}}}" for _ in moves]
    expires = [f"{{at: {chance.randint(26, 28)}s, expire_session: {chance.choice(named)}}}"] * chance.randint(0, 1)
    asked = ["{always: no violation}", "{always: no double write}", "{eventually: every table replicates}",
             "{within: 25s, after: faults, holds: every table replicates}",
             "{eventually: global checkpoint lag < 2s}"]  # fmt: skip
    evened = (variant, policy) == ("v2", "count") and not any(wish.startswith("drain") for wish in wished)
    asked += ["{eventually: imbalance <= 1}"] if evened else []
    ttl_s, prepare_ms, stop_ms = (chance.choice(of) for of in ((2, 5), (0, 100, 700), (0, 100, 700)))
    links = _network(chance)
    # A capture is to stop at once when its session ends, or two may write: it has to hear of it before a table of its
    # can be written elsewhere, two messages and a scan later; so behind all faults, too (paused or cut off, it hears
    # nothing). A lease that runs out ends later than its holder stops, and needs none of this.
    events += expires if links.most_ms < 2 * links.least_ms + prepare_ms else []
    return (
        f"variant: {variant}\nuntil: 55s\nsettle: 12s\ncluster: {{captures: {captures}, tables: {tables}}}\n"
        f"settings: {{{balance}{own}ttl: {ttl_s}s, pace: {{prepare: {prepare_ms}ms, stop: {stop_ms}ms}}}}\n"
        f"{links.text}" + _lines("events", events) + _lines("assert", asked)
    )


def _paces(chance: Random) -> str:
    """Draw how often owners and processors of the scheduler have their periodic calls; TiCDC's own is the shortest."""
    return f"scheduler: {{tick: {chance.choice((50, 100, 200))}ms, poll: {chance.choice((50, 100, 200))}ms}}"


def _crash(chance: Random, node: str, disks: tuple[str, ...] = ("",)) -> list[str]:
    """Crash a node, or none."""
    at_s = chance.randint(1, 11)
    events = [
        f"{{at: {at_s}s, crash: {node}}}",
        f"{{at: {at_s + chance.randint(1, 3)}s, restart: {node}{chance.choice(disks)}}}",
    ]
    return events if chance.random() < 0.5 else []


def _pipeline(chance: Random) -> str:
    captures, tables = chance.randint(1, 3), chance.randint(1, 4)
    consumer = chance.choice(("", "consumer: rows", "consumer: transactions"))
    capture = {
        "rule": chance.choice(("base", "mq")), "order": chance.choice(("processor", "table")),
        "semantics": chance.choice(("at-least-once", "at-least-once", "exactly-once-deduplication")),
        "sorter_memory_rows": chance.choice((50, 100_000)), "sink_batch_rows": chance.choice((4, 512)),
        "mounter_rows_per_s": chance.choice(("none", 200)),
    }  # fmt: skip
    faults = _some(chance, ("pause", "part", "crash", "restart"))
    events = [
        f"random: {{faults: [{faults}], every: {chance.choice((1500, 3000))}ms, until: 14s}}",
        *_crash(chance, f"capture-{chance.randint(1, captures)}"),
        *_crash(chance, f"tikv-{chance.randint(1, 3)}", DISKS),
        *(_crash(chance, "consumer") if consumer else ()),
        *(f"{{at: {chance.randint(1, 12)}s, split: {chance.randint(1, tables)}}}" for _ in range(chance.randint(0, 2))),
        *(f"{{at: {chance.randint(1, 12)}s, add_column: 1, column: c{n}}}" for n in range(chance.randint(0, 1))),
    ]
    events += [f"{{at: {chance.randint(2, 12)}s, repartition: {chance.randint(1, 5)}}}"] * (chance.random() < 0.3)
    dispatcher = chance.choice(("index-value", "table", "tidb-rowid", "conflict"))
    asked = ["{always: no violation}", "{eventually: everything is downstream}", "{eventually: every table replicates}",
             "{eventually: the final state is right}"]  # fmt: skip
    asked += ["{eventually: rows not executed = 0}"] if consumer else []
    return (
        f"variant: {chance.choice(('v2', 'v2', 'v3', 'v4'))}\nuntil: 40s\nsettle: 12s\n"
        f"cluster: {{captures: {captures}, stores: {chance.choice((3, 5))}, tables: {tables}}}\n"
        f"load: {{rows_per_s: {chance.choice((40, 100))}, rows: {chance.choice((1, 2, 7))}, until: 16s,"
        f" rolled_back: {chance.choice((0, 10))}%, deleted: {chance.choice((0, 10))}%}}\n"
        f"settings: {{capture: {{{', '.join(f'{k}: {v}' for k, v in capture.items())}}},"
        f" downstream: {{partitions: {chance.randint(1, 4)}, dispatcher: {dispatcher}, {consumer}}},"
        f" {_paces(chance)}}}\n" + _lines("events", events) + _lines("assert", asked)
    )


def _changefeeds(chance: Random) -> str:
    captures, tables = chance.randint(1, 3), chance.randint(2, 5)
    rules = f"rule: {chance.choice(('base', 'mq'))}, order: {chance.choice(('processor', 'table'))}"
    events, asked = [], ["{always: no violation}"]
    for name in ("first", "second", "third")[: chance.randint(1, 3)]:
        own = sorted(chance.sample(range(1, tables + 1), chance.randint(1, tables)))
        kind = chance.choice(("kafka", "mysql"))
        begun_s = chance.choice((0, 0, chance.randint(1, 5)))
        events.append(f"{{at: {begun_s}s, create_changefeed: {name}, tables: {own}, kind: {kind}}}")
        at_s = begun_s
        for _ in range(chance.randint(0, 3)):
            paused_s = at_s + chance.randint(1, 4)
            at_s = paused_s + chance.randint(1, 4)
            events += [f"{{at: {paused_s}s, pause_changefeed: {name}}}", f"{{at: {at_s}s, resume_changefeed: {name}}}"]
        if chance.random() < 0.3:
            slow = chance.choice((f"slow_changefeed: {name}, rows_per_s: 60", f"standing_changefeed: {name}"))
            events.append(f"{{at: {chance.randint(begun_s + 1, 12)}s, {slow}, for: {chance.randint(1, 3)}s}}")
        if chance.random() < 0.2:
            events.append(f"{{at: {at_s + chance.randint(1, 3)}s, remove_changefeed: {name}}}")
            asked.append(f"{{eventually: {name} is removed}}")
        else:
            asked += [f"{{eventually: {name} is normal}}", f"{{eventually: everything of {name} is downstream}}",
                      f"{{eventually: checkpoint_ts lag of {name} < 2s}}"]  # fmt: skip
    faults = _some(chance, ("pause", "part", "crash", "restart", "lossy", "skew"))
    events += [
        f"random: {{faults: [{faults}], every: {chance.choice((1500, 3000))}ms, until: 14s}}",
        *_crash(chance, f"capture-{chance.randint(1, captures)}"),
        *_crash(chance, f"tikv-{chance.randint(1, 3)}", DISKS),
        *(f"{{at: {chance.randint(1, 12)}s, split: {chance.randint(1, tables)}}}" for _ in range(chance.randint(0, 1))),
        *(f"{{at: {chance.randint(1, 12)}s, add_column: 1, column: c{n}}}" for n in range(chance.randint(0, 1))),
    ]
    return (
        f"variant: {chance.choice(('v2', 'v2', 'v3', 'v4'))}\nuntil: 42s\nsettle: 12s\n"
        f"cluster: {{captures: {captures}, tables: {tables}}}\n"
        f"load: {{rows_per_s: {chance.choice((20, 50))}, rows: {chance.choice((1, 2, 7))}, until: 14s}}\n"
        f"settings: {{capture: {{{rules}}}, {_paces(chance)}}}\n" + _lines("events", events) + _lines("assert", asked)
    )


def _ddl_service(chance: Random) -> str:
    own = ("expire", "cut", "resign", "leave", "slow", "lose")
    clusters, late = chance.randint(1, 3), chance.randint(0, 1)
    versions = chance.choice(("", f", versions: {{cluster{clusters}: {chance.choice(_VERSIONS)}}}")) if late else ""
    servers = [f"cluster{chance.randint(1, clusters)}/tidb-1" for _ in range(chance.randint(0, 3))]
    workers = chance.choice((2, 2, 3, 3, 4))
    bootstrapped = chance.choice(("v6.5.0", "v6.5.0", "v6.1.0"))
    events = [
        f"random: {{faults: [{_some(chance, DRAWS)}], every: {chance.choice((900, 2000))}ms, from: 1s, until: 9s}}",
        f"random: {{faults: [{_some(chance, own)}], every: {chance.choice((1500, 3000))}ms, from: 1s, until: 9s}}",
        *(
            f"{{at: {chance.randint(2, 8)}s, transact: cluster{chance.randint(1, clusters)}/tidb-1,"
            f" for: {chance.randint(1, 9)}s}}"
            for _ in range(chance.randint(0, 4))
        ),
        *(
            f"{{at: {chance.randint(1, 8)}s, enable_ddl: {s}, off: {chance.choice(('false', 'true'))}}}"
            for s in servers
        ),
        *(f"{{at: {chance.randint(9, 10)}s, enable_ddl: {s}, off: true}}" for s in servers),
        *[f"{{at: {chance.randint(3, 9)}s, leave: ddl-service-node-{workers}}}"] * (chance.random() < 0.2),
        *[
            f"{{at: {chance.randint(2, 7)}s, ddl: cluster1/tidb-1, job: add index, table: big, element: i,"
            f" rows: {chance.choice((3_000, 8_000))}}}"
        ]
        * (chance.random() < 0.3),
        *[f"{{at: {chance.randint(2, 8)}s, register: cluster{clusters}, worker: ddl-service-node-1}}"] * late,
        *(f"{{at: {chance.randint(2, 8)}s, join: late-{n}}}" for n in range(chance.randint(0, 1))),
        *(
            f"{{at: {chance.randint(1, 9)}s, set_global: cluster1/tidb-1, variable: {name},"
            f" value: {chance.choice(values)}}}"
            for name, values in _VARIABLES.items()
        ),
    ]
    asked = ["{always: no violation}", "{always: no cluster has two owners}", "{eventually: every job has ended}",
             "{eventually: the service is settled}"]  # fmt: skip
    return (
        f"until: 60s\nsettle: 3s\n"
        f"settings: {{bootstrapped: {bootstrapped}, duties: {{tick: {chance.choice((100, 250))}ms}}}}\n"
        f"cluster: {{workers: {workers}, clusters: {clusters}, unregistered: {late},"
        f" servers: {chance.choice((1, 2, 2, 3))}{versions}}}\n"
        f"load: {{every: {chance.choice((500, 1000))}ms, until: 9s}}\n"
        + _network(chance, (1, 2, 4)).text
        + _lines("events", events)
        + _lines("assert", asked)
    )


_PD_WORDS = (
    "operator add transfer-leader {region} {store}", "operator add add-peer {region} {store}",
    "operator add remove-peer {region} {store}", "operator add scatter-region {region}",
    "operator add split-region {region}", "operator add merge-region {region} {beside}", "operator remove {region}",
    "store limit all {limit}", "store limit {store} {limit} add-peer", "store weight {store} 2 0.5",
    "store delete {store}", "store cancel-delete {store}", "store label {store} zone=z9",
    "scheduler add evict-leader-scheduler {store}", "scheduler remove evict-leader-scheduler",
    "scheduler add grant-leader-scheduler {store}", "scheduler remove grant-leader-scheduler",
    "scheduler pause all 20", "config set leader-schedule-limit {few}", "config set region-schedule-limit {few}",
    "config set enable-joint-consensus {flag}", "config set enable-placement-rules {flag}",
    "config set store-limit-version {version}", "config set region-score-formula-version {version}",
    "config set max-replicas 5", "config set max-replicas 3", "config set leader-schedule-policy size",
)  # fmt: skip
_PD_FAULTS = ("stop", "stop", "cut", "fail over", "disk", "flow", "flow", "grow", "words", "words", "words")
_PD_FAULTS_S = 120
_PD_MERGES_S = 60
_PD_SETTLES_S = _PD_MERGES_S + 30
_PD_WHOLE = 4
"""One seed in so many runs to its end: clients continue, and so does what PD makes of them."""


def _pd_words(chance: Random, stores: int, regions: int) -> str:
    region = chance.randint(1, regions - 1)
    drawn = {
        "region": region, "beside": region + 1, "store": chance.randint(1, stores), "few": chance.choice((1, 8)),
        "limit": chance.choice((30, 600)), "flag": chance.choice(("true", "false")),
        "version": chance.choice(("v1", "v2")),
    }  # fmt: skip
    return f"pdctl: {chance.choice(_PD_WORDS).format(**drawn)}"


def _pd_fault(chance: Random, stores: int, regions: int) -> list[str]:
    """Draw something that goes wrong, or comes from a user, and is over before the faults end."""
    at_s, for_s = chance.randint(2, _PD_FAULTS_S - 60), chance.choice((3, 25, 60))
    store = f"store-{chance.randint(1, stores)}"
    kind = chance.choice(_PD_FAULTS)
    if kind == "stop":
        down = chance.choice(("", ", down: 1s"))
        return [f"at: {at_s}s, stop_store: {store}{down}", f"at: {at_s + for_s}s, resume_store: {store}"]
    drawn = {
        "cut": f"cut_off: {store}, for: {for_s}s", "fail over": "fail_over: null",
        "disk": f"slow_disk: {store}, mib_s: {chance.choice((5, 20, 100))}, for: {for_s}s",
        "flow": f"{chance.choice(('write', 'read'))}: {chance.choice(('all', 1))}, mib_s: {chance.randint(1, 3)}",
        "grow": f"grow: {chance.randint(1, regions)}, mib_s: {chance.choice((1, 8))}",
        "words": _pd_words(chance, stores, regions),
    }  # fmt: skip
    return [f"at: {at_s}s, {drawn[kind]}"]


def _pd(chance: Random) -> str:
    stores, regions = chance.randint(4, 6), chance.randint(10, 60)
    config: dict[str, Any] = {
        "leader-schedule-limit": chance.choice((4, 32)), "replica-schedule-limit": chance.choice((8, 64)),
        "store-limit-version": chance.choice(("v1", "v1", "v2")), "max-store-down-time": f"{chance.choice((30, 60))}s",
        "region-score-formula-version": chance.choice(("v1", "v2")), "split-merge-interval": f"{_PD_MERGES_S}s",
        "enable-placement-rules": chance.choice(("true", "true", "false")),
        "enable-joint-consensus": chance.choice(("true", "true", "false")),
    }  # fmt: skip
    zones = chance.choice((0, 0, 2, 3))
    config |= {"location-labels": "zone"} if zones else {}
    later = chance.randint(0, 1)
    there = [
        f"{{id: {n}, capacity: {chance.choice((60, 500, 1024))}"
        + (f", labels: {{zone: z{n % zones}}}" if zones else "")
        + (", later: true" if n > stores - later else "")
        + "}"
        for n in range(1, stores + 1)
    ]
    on = sorted(chance.sample(range(1, stores + 1 - later), chance.randint(3, stores - later)))
    drawn = [one for _ in range(chance.randint(0, 8)) for one in _pd_fault(chance, stores - later, regions)]
    drawn += [f"at: {chance.randint(2, _PD_FAULTS_S)}s, start_store: store-{stores}"] * later
    # The users' part of the end: a cluster whose clients want more than its disks give never rests.
    drawn += [f"at: {_PD_FAULTS_S}s, {flow}: all, mib_s: 1" for flow in ("write", "read") if chance.random() < 0.5]
    calm = (
        "scheduler remove evict-leader-scheduler", "scheduler remove grant-leader-scheduler",
        "config set region-schedule-limit 64", "config set leader-schedule-limit 8", "store limit all 600",
        "config set max-replicas 3",
    )  # fmt: skip
    drawn += [f"at: {_PD_FAULTS_S}s, pdctl: {words}" for words in calm]
    network = f"network: {{loss: {chance.choice((1, 5, 20))}%}}\n" if chance.random() < 0.4 else ""
    asked = ["{always: no violation}", "{eventually: no region misses a peer}", "{eventually: stale peers = 0}",
             "{eventually: down peers = 0}", "{eventually: every region has a leader}",
             "{eventually: no region is left in a joint state}", "{eventually: oldest operator < 150s}"]  # fmt: skip
    return (
        f"until: 10m\ncluster: {{stores: [{', '.join(there)}], regions: {regions}, on: {on},"
        f" size: {chance.choice((8, 40, 96))}, store_limit: {chance.choice((60, 600, 2000))},"
        f" config: {{{', '.join(f'{k}: {v}' for k, v in config.items())}}}}}\n{network}"
        + _lines("events", [f"{{{one}}}" for one in drawn])
        + _lines("assert", asked)
    )


_DRAWN = {
    "scheduler": _scheduler,
    "pipeline": _pipeline,
    "changefeeds": _changefeeds,
    "ddl-service": _ddl_service,
    "pd": _pd,
}

"""A swarm: each seed draws a scenario of its own (cluster, settings, network, faults), which ends without faults.

What is drawn is a scenario file like any other, so that ``--lines``, ``--why`` and an editor work as ever. In
the first part of a run faults come; then they stop, and the run must become live: all that should be done is done in
its end. (TigerBeetle's VOPR goes the same way.) It ends when all has been so for some calm
(``settle``), longer than the interval at which tables are balanced: after that a protocol does nothing new. PD does,
for its clients continue: its calm is longer than the interval after which regions are merged, and each fourth seed runs
to its end.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from random import Random
from types import MappingProxyType
from typing import Any, NamedTuple

from ticdc_lab.errors import ContractError
from ticdc_lab.simulate.ddl_service.planned import KINDS
from ticdc_lab.simulate.faults import DRAWS
from ticdc_lab.simulate.network import Network
from ticdc_lab.simulate.planned import Node, TableId, spelled
from ticdc_lab.simulate.reading import UNITS_US, field_types
from ticdc_lab.simulate.runs import SWARM, command
from ticdc_lab.simulate.scenario import Scenario, model_named, scenario_from_text

_NO_CHANGES: Mapping[str, str] = MappingProxyType({})
SECOND_US = UNITS_US["s"]
_VERSIONS = ("v6.5.0", "v7.1.0", "v9.0.0", "v5.4.0")
_VARIABLES: dict[str, tuple[int, ...]] = {
    "tidb_ddl_reorg_worker_cnt": (2, 4, 16), "tidb_ddl_error_count_limit": (1, 2, 512),
}  # fmt: skip
DISKS = ("torn", "lost")


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


class _Wish(NamedTuple):
    """Something that is to happen: an event of the model's table, and the values of its fields."""

    kind: str
    values: Mapping[str, Any]


class _Events:
    """Draws events of a model: rows of its table.

    A field that is not given and has no default is drawn by its type, a tuple from its values.
    """

    def __init__(self, model: str, chance: Random, nodes: Sequence[str] = (), tables: int = 0) -> None:
        self.kinds, self.chance, self.nodes, self.tables = model_named(model).events, chance, nodes, tables

    def wish(self, kind: str, /, **given: Any) -> _Wish:
        types, values = field_types(self.kinds[kind]), dict[str, Any]()
        assert given.keys() <= types.keys(), f"{kind} has no {given.keys() - types.keys()}"
        for name, hint in types.items():
            if name in given:
                values[name] = self.chance.choice(given[name]) if isinstance(given[name], tuple) else given[name]
            elif hint == TableId:
                values[name] = self.chance.randint(1, self.tables)
            elif hint == Node:
                values[name] = self.chance.choice(self.nodes)
        return _Wish(kind, values)

    def at(self, second: int, wish: _Wish) -> str:
        return spelled(self.kinds, second * SECOND_US, *wish)

    def between(self, first_s: int, last_s: int, kind: str, /, **given: Any) -> str:
        """Give an event of a moment that is drawn before it."""
        return self.at(self.chance.randint(first_s, last_s), self.wish(kind, **given))

    def crash(self, node: str, disks: tuple[str, ...] = ()) -> list[str]:
        """Crash a node, or none."""
        at_s = self.chance.randint(1, 11)
        crash = self.at(at_s, self.wish("crash", node=node))
        back_s = at_s + self.chance.randint(1, 3)
        disk = self.chance.choice(("", *disks))
        restart = self.at(back_s, self.wish("restart", node=node, **({"disk": disk} if disk else {})))
        return [crash, restart] if self.chance.random() < 0.5 else []


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
    draw = _Events("scheduler", chance, named, tables)
    events = [
        f"{{random: {{faults: [{_some(chance, DRAWS)}], every: {chance.choice((800, 2000, 4000))}ms, until: 25s}}}}"
    ]
    events += [draw.between(2, 24, "move_table") for _ in range(chance.randint(0, 4))]
    events += [draw.between(2, 24, "ddl", takes_us=(10_000, 900_000))] * chance.randint(0, 2)
    wishes = (
        draw.wish("restart_processor"), draw.wish("stuck_table", for_us=1_500_000),
        draw.wish("add_table", table=tables + 1), draw.wish("rebalance"), draw.wish("drain"),
        *((draw.wish("drop_table"),) if tables > 1 else ()),
    )  # fmt: skip
    wished = chance.sample(wishes, chance.randint(0, 3))
    events += [draw.at(chance.randint(2, 24), wish) for wish in wished]
    coordinated = variant == "v4" and chance.random() < 0.5
    own = "coordinator: true, " if coordinated else ""
    if coordinated:
        events += [draw.between(2, 24, "move_maintainer") for _ in range(chance.randint(0, 2))]
    expires = [draw.between(26, 28, "expire_session")] * chance.randint(0, 1)
    asked = ["{always: no violation}", "{always: no double write}", "{eventually: every table replicates}",
             "{within: 25s, after: faults, holds: every table replicates}",
             "{eventually: global checkpoint lag < 2s}"]  # fmt: skip
    evened = (variant, policy) == ("v2", "count") and not any(wish.kind == "drain" for wish in wished)
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
    draw = _Events("pipeline", chance, tables=tables)
    events = [
        f"{{random: {{faults: [{faults}], every: {chance.choice((1500, 3000))}ms, until: 14s}}}}",
        *draw.crash(f"capture-{chance.randint(1, captures)}"),
        *draw.crash(f"tikv-{chance.randint(1, 3)}", DISKS),
        *(draw.crash("consumer") if consumer else ()),
        *(draw.between(1, 12, "split") for _ in range(chance.randint(0, 2))),
        *(draw.between(1, 12, "add_column", table=1, column=f"c{n}") for n in range(chance.randint(0, 1))),
    ]
    events += [draw.between(2, 12, "repartition", partitions=(1, 2, 3, 4, 5))] * (chance.random() < 0.3)
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
    draw = _Events("changefeeds", chance, tables=tables)
    events, asked = list[str](), ["{always: no violation}"]
    for name in ("first", "second", "third")[: chance.randint(1, 3)]:
        own = sorted(chance.sample(range(1, tables + 1), chance.randint(1, tables)))
        kind = chance.choice(("kafka", "mysql"))
        begun_s = chance.choice((0, 0, chance.randint(1, 5)))
        events.append(draw.at(begun_s, draw.wish("create_changefeed", id=name, tables=own, kind=kind)))
        at_s = begun_s
        for _ in range(chance.randint(0, 3)):
            paused_s = at_s + chance.randint(1, 4)
            at_s = paused_s + chance.randint(1, 4)
            events.append(draw.at(paused_s, draw.wish("pause_changefeed", id=name)))
            events.append(draw.at(at_s, draw.wish("resume_changefeed", id=name)))
        if chance.random() < 0.3:
            kind, slow = chance.choice((("slow_changefeed", {"rows_per_s": 60}), ("standing_changefeed", {})))
            slow_s, lasts_us = chance.randint(begun_s + 1, 12), chance.randint(1, 3) * SECOND_US
            events.append(draw.at(slow_s, draw.wish(kind, of=name, **slow, for_us=lasts_us)))
        if chance.random() < 0.2:
            removed_s = at_s + chance.randint(1, 3)
            events.append(draw.at(removed_s, draw.wish("remove_changefeed", id=name)))
            asked.append(f"{{eventually: {name} is removed}}")
        else:
            asked += [f"{{eventually: {name} is normal}}", f"{{eventually: everything of {name} is downstream}}",
                      f"{{eventually: checkpoint_ts lag of {name} < 2s}}"]  # fmt: skip
    faults = _some(chance, ("pause", "part", "crash", "restart", "lossy", "skew"))
    events += [
        f"{{random: {{faults: [{faults}], every: {chance.choice((1500, 3000))}ms, until: 14s}}}}",
        *draw.crash(f"capture-{chance.randint(1, captures)}"),
        *draw.crash(f"tikv-{chance.randint(1, 3)}", DISKS),
        *(draw.between(1, 12, "split") for _ in range(chance.randint(0, 1))),
        *(draw.between(1, 12, "add_column", table=1, column=f"c{n}") for n in range(chance.randint(0, 1))),
    ]
    return (
        f"variant: {chance.choice(('v2', 'v2', 'v3', 'v4'))}\nuntil: 42s\nsettle: 12s\n"
        f"cluster: {{captures: {captures}, tables: {tables}}}\n"
        f"load: {{rows_per_s: {chance.choice((20, 50))}, rows: {chance.choice((1, 2, 7))}, until: 14s}}\n"
        f"settings: {{capture: {{{rules}}}, {_paces(chance)}}}\n" + _lines("events", events) + _lines("assert", asked)
    )


def _ddl_service(chance: Random) -> str:
    clusters, late = chance.randint(1, 3), chance.randint(0, 1)
    versions = chance.choice(("", f", versions: {{cluster{clusters}: {chance.choice(_VERSIONS)}}}")) if late else ""
    servers = [f"cluster{chance.randint(1, clusters)}/tidb-1" for _ in range(chance.randint(0, 3))]
    workers = chance.choice((2, 2, 3, 3, 4))
    bootstrapped = chance.choice(("v6.5.0", "v6.5.0", "v6.1.0"))
    draw = _Events("ddl-service", chance)
    firsts = [f"cluster{n}/tidb-1" for n in range(1, clusters + 1)]
    events = [
        f"{{random: {{faults: [{_some(chance, kinds)}], every: {chance.choice(every)}ms, from: 1s, until: 9s}}}}"
        for kinds, every in ((DRAWS, (900, 2000)), (KINDS, (1500, 3000)))
    ]
    events += [
        *(
            draw.between(2, 8, "transact", server=tuple(firsts), for_us=tuple(n * SECOND_US for n in range(1, 10)))
            for _ in range(chance.randint(0, 4))
        ),
        *(draw.between(1, 8, "enable_ddl", server=s, off=(False, True)) for s in servers),
        *(draw.between(9, 10, "enable_ddl", server=s, off=True) for s in servers),
        *[draw.between(3, 9, "leave", worker=f"ddl-service-node-{workers}")] * (chance.random() < 0.2),
        *[draw.between(2, 7, "ddl", server=firsts[0], job="add index", table="big", element="i", rows=(3_000, 8_000))]
        * (chance.random() < 0.3),
        *[draw.between(2, 8, "register", cluster=f"cluster{clusters}", worker="ddl-service-node-1")] * late,
        *(draw.between(2, 8, "join", worker=f"late-{n}") for n in range(chance.randint(0, 1))),
        *(
            draw.between(1, 9, "set_global", server=firsts[0], variable=name, value=values)
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
_PD_FAULTS = (
    "stop_store", "stop_store", "cut_off", "fail_over", "slow_disk", "flow", "flow", "grow", "pdctl", "pdctl", "pdctl",
)  # fmt: skip
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
    return chance.choice(_PD_WORDS).format(**drawn)


def _pd_fault(draw: _Events, stores: int, regions: int) -> list[str]:
    """Draw something that goes wrong, or comes from a user, and is over before the faults end."""
    chance = draw.chance
    at_s, for_s = chance.randint(2, _PD_FAULTS_S - 60), chance.choice((3, 25, 60))
    store = f"store-{chance.randint(1, stores)}"
    kind = chance.choice(_PD_FAULTS)
    if kind == "stop_store":
        down = chance.choice(({}, {"down_us": SECOND_US}))
        resume = draw.wish("resume_store", store=store)
        return [draw.at(at_s, draw.wish(kind, store=store, **down)), draw.at(at_s + for_s, resume)]
    drawn = {
        "cut_off": draw.wish("cut_off", store=store, for_us=for_s * SECOND_US), "fail_over": draw.wish("fail_over"),
        "slow_disk": draw.wish("slow_disk", store=store, mib_s=(5, 20, 100), for_us=for_s * SECOND_US),
        "flow": draw.wish(chance.choice(("write", "read")), regions=("all", 1), mib_s=(1, 2, 3)),
        "grow": draw.wish("grow", region=tuple(range(1, regions + 1)), mib_s=(1, 8)),
        "pdctl": draw.wish("pdctl", words=_pd_words(chance, stores, regions)),
    }  # fmt: skip
    return [draw.at(at_s, drawn[kind])]


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
    draw = _Events("pd", chance)
    drawn = [one for _ in range(chance.randint(0, 8)) for one in _pd_fault(draw, stores - later, regions)]
    drawn += [draw.between(2, _PD_FAULTS_S, "start_store", store=f"store-{stores}")] * later
    # The users' part of the end: a cluster whose clients want more than its disks give never rests.
    slows = [draw.wish(flow, regions="all", mib_s=1) for flow in ("write", "read") if chance.random() < 0.5]
    calm = (
        "scheduler remove evict-leader-scheduler", "scheduler remove grant-leader-scheduler",
        "config set region-schedule-limit 64", "config set leader-schedule-limit 8", "store limit all 600",
        "config set max-replicas 3",
    )  # fmt: skip
    drawn += [draw.at(_PD_FAULTS_S, wish) for wish in (*slows, *(draw.wish("pdctl", words=words) for words in calm))]
    network = f"network: {{loss: {chance.choice((1, 5, 20))}%}}\n" if chance.random() < 0.4 else ""
    asked = ["{always: no violation}", "{eventually: no region misses a peer}", "{eventually: stale peers = 0}",
             "{eventually: down peers = 0}", "{eventually: every region has a leader}",
             "{eventually: no region is left in a joint state}", "{eventually: oldest operator < 150s}"]  # fmt: skip
    return (
        f"until: 10m\ncluster: {{stores: [{', '.join(there)}], regions: {regions}, on: {on},"
        f" size: {chance.choice((8, 40, 96))}, store_limit: {chance.choice((60, 600, 2000))},"
        f" config: {{{', '.join(f'{k}: {v}' for k, v in config.items())}}}}}\n{network}"
        + _lines("events", drawn)
        + _lines("assert", asked)
    )


_DRAWN = {
    "scheduler": _scheduler,
    "pipeline": _pipeline,
    "changefeeds": _changefeeds,
    "ddl-service": _ddl_service,
    "pd": _pd,
}

"""The ``load`` of a scenario of the pipeline: steady transactions drawn by the seed, and some named one by one.

::

    load:
      rows_per_s: 200
      rows: 2
      until: 10s
      transactions:
        - {at: 1s, table: 1, handles: [7, 8], hold: 4s, rolls_back: true}
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, fields, replace
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from msgspec import Meta

from ticdc_lab.errors import ScenarioError
from ticdc_lab.simulate import faults as kernel
from ticdc_lab.simulate.pipeline import kv_messages as kv
from ticdc_lab.simulate.pipeline.changefeeds.etcd import (
    CreateChangefeed,
    PauseChangefeed,
    RemoveChangefeed,
    ResumeChangefeed,
    downstream_of,
)
from ticdc_lab.simulate.pipeline.consumer import CONSUMER, partition_node
from ticdc_lab.simulate.pipeline.downstream import Pace
from ticdc_lab.simulate.pipeline.facts import PipelineFacts
from ticdc_lab.simulate.pipeline.kv_messages import DELETE, PUT, Mutation
from ticdc_lab.simulate.pipeline.settings import PipelineSettings
from ticdc_lab.simulate.pipeline.sink_messages import DOWNSTREAM
from ticdc_lab.simulate.pipeline.tables import Column, FinishedJob, Raw, TableInfo, key_of
from ticdc_lab.simulate.pipeline.tidb import PD, TIDB
from ticdc_lab.simulate.pipeline.tidb_state import ClientTxn, Load, LoadRows
from ticdc_lab.simulate.planned import (
    ChangefeedName,
    Disk,
    Duration,
    EventKind,
    Lasting,
    NewChangefeed,
    Node,
    Planned,
    Share,
    SinkKind,
    TableId,
    TableIds,
    Text,
    table,
)
from ticdc_lab.simulate.reading import Names, ReadBy, Reader, Value, read_record
from ticdc_lab.simulate.scenario import Scenario, read_scenario
from ticdc_lab.simulate.scheduler.etcd_messages import ETCD, WantPartitions
from ticdc_lab.simulate.scheduler.scenario import EVENTS as OF_SCHEDULER
from ticdc_lab.simulate.scheduler.scenario import captures_first, joined
from ticdc_lab.simulate.trace import CHANGES
from ticdc_lab.workload.load import load_of
from ticdc_lab.workload.settings import KINDS, Workload

if TYPE_CHECKING:
    from ticdc_lab.simulate.scenario import Scenario


SCHEMA = "shop"
_OF_LOGS = ("seed", "start_ts", "watermark_ms")
"""The simulation's own facts of a workload."""
COLUMNS = (Column(1, "id", "bigint", True), Column(2, "note", "varchar"), Column(3, "amount", "bigint"))
"""Of every table."""


def _handles(value: Value, names: Names) -> tuple[int, ...]:
    handles = tuple(v.integer(most=2**40 - 1) for v in value.items())
    if not handles or len(set(handles)) < len(handles):
        raise value.wrong("at least one handle, each once")
    return handles


def _workload(value: Value, names: Names) -> Workload:
    return read_record(value, Workload, Reader(without=_OF_LOGS, choices={"kind": KINDS}))


@dataclass(frozen=True, slots=True)
class Named:
    """A transaction of the file."""

    at_us: Duration
    table: TableId
    handles: Annotated[tuple[int, ...], ReadBy(_handles)]
    hold_us: int = 0
    rolls_back: bool = False
    deletes: bool = False


def _scenario_file(value: Value, names: Names) -> str:
    file = Path(value.file).parent / value.text()
    if not file.is_file():
        raise value.wrong("a scenario file of the model ddl-service")
    return str(file)


@dataclass(frozen=True, slots=True)
class ServiceDdl:
    """DDL that a service runs for the cluster: a scenario file of the model ``ddl-service``, and the cluster's id.

    ``{of: ../ddl-service/slow-server.yaml, cluster: cluster1}``: the path begins at the file's own folder.
    """

    of: Annotated[str, ReadBy(_scenario_file)]
    cluster: str


@dataclass(frozen=True, slots=True)
class LoadSettings:
    """What clients do."""

    rows_per_s: int = 100  # row changes of steady transactions a second, all tables together; 0 for none
    rows: Annotated[int, Meta(ge=1, le=1000)] = 2  # of each transaction, in different tables where there are as many
    handles: Annotated[int, Meta(ge=1, le=10_000_000)] = 100  # rows that a table has; a change hits any of them
    # When steady transactions begin and end; None for the end of the run less three seconds.
    from_us: Duration = 0
    until_us: Duration | None = None
    # The share of transactions that roll back, and of changes that delete; without a row one is inserted.
    rolled_back: Share = Fraction(0)
    deleted: Share = Fraction(0)
    transactions: tuple[Named, ...] = ()
    # Instead of all that: one that brings its own tables and DDL; the run's seed is its own.
    workload: Annotated[Workload, ReadBy(_workload)] | None = None
    ddl: ServiceDdl | None = None  # of a service; its jobs come at the moments at which they were done there

    def refuse(self, value: Value, given: Mapping[str, Value]) -> None:
        """Refuse what a workload leaves no room for, and steady transactions that end before they begin."""
        if "workload" in given:
            value.fields({"workload"})
        if self.until_us is not None and self.until_us <= self.from_us:
            raise given["until"].wrong("a moment after `from`", hint="Nothing would be written: set `until` later.")


NO_LOAD = LoadSettings(rows_per_s=0)


def load(value: Value, names: Names) -> LoadSettings:
    return Reader(names).record(value, LoadSettings, NO_LOAD)


def table_info(table: int) -> TableInfo:
    """Give the definition that a table of a scenario has at first."""
    return TableInfo(table, SCHEMA, f"t{table}", COLUMNS)


def made(
    settings: LoadSettings, tables: tuple[int, ...], jobs: tuple[tuple[int, FinishedJob], ...], seed: int, until_us: int
) -> Load:
    """Draw a load: the same seed gives the same with any faults.

    ``tables``: those there are at first. ``jobs``: DDL jobs with their moments; a table that one drops is written until
    then, one that is created afterwards. ``until_us``: the end of the run.
    """
    named = [_transaction(n, i) for i, n in enumerate(settings.transactions)]
    steady = _steady(settings, tables, jobs, random.Random(f"load {seed}"), until_us)
    return Load(tuple(table_info(t) for t in tables), tuple(_with_rows(steady, named)), jobs)


def _with_rows(steady: Iterable[ClientTxn], named: Iterable[ClientTxn]) -> Iterator[ClientTxn]:
    """Merge transactions; a steady one inserts the row that its delete would not find: TiDB writes no such delete."""
    rows = LoadRows()
    both = [*((t, True) for t in steady), *((t, False) for t in named)]
    for n, (txn, is_steady) in enumerate(sorted(both, key=lambda b: b[0].start_us)):
        if is_steady and (missing := {m.key for m in rows.missing(txn.mutations)}):
            made = (_change(m.key, n, deletes=False) if m.key in missing else m for m in txn.mutations)
            txn = txn._replace(mutations=tuple(made))
        rows.take(txn)
        yield txn


def _steady(
    settings: LoadSettings,
    tables: tuple[int, ...],
    jobs: tuple[tuple[int, FinishedJob], ...],
    chance: random.Random,
    until_us: int,
) -> Iterator[ClientTxn]:
    end_us = max(0, until_us - 3_000_000) if settings.until_us is None else settings.until_us
    there, waiting = list(tables), list(jobs)
    each_us = settings.rows * 1_000_000 // settings.rows_per_s if settings.rows_per_s else 0
    for n, at_us in enumerate(range(settings.from_us, end_us, each_us) if each_us else ()):
        while waiting and waiting[0][0] <= at_us + 100_000:  # what begins shortly before a DDL would wait for it
            job = waiting.pop(0)[1]
            there = [t for t in there if t != job.dropped]
        homes = chance.sample(there, min(settings.rows, len(there)))
        keys = {key_of(homes[i % len(homes)], chance.randrange(settings.handles)) for i in range(settings.rows)}
        changes = [_change(key, n, chance.random() < settings.deleted) for key in sorted(keys)]
        yield ClientTxn(at_us, 0, tuple(changes), chance.random() < settings.rolled_back)


def _change(key: int, n: int, deletes: bool) -> Mutation:
    if deletes:
        return Mutation(key, DELETE, None)
    handle = key & (1 << 40) - 1
    return Mutation(key, PUT, Raw((1, 2, 3), (handle, f"change {n}", n + 1)))


def _transaction(named: Named, n: int) -> ClientTxn:
    changes = [_change(key_of(named.table, h), 1_000_000 + n, named.deletes) for h in named.handles]
    return ClientTxn(named.at_us, named.hold_us, tuple(changes), named.rolls_back)


# The ``cluster`` of a scenario of the pipeline: captures, stores, tables and their regions.

OF_CONSUMER = (CONSUMER, *map(partition_node, range(64)))
"""Nodes that are there in a run with a consumer."""


def _captures(value: Value, names: Names) -> tuple[str, ...]:
    return tuple(f"capture-{i + 1}" for i in range(value.integer(least=1, most=100)))


def _tables(value: Value, names: Names) -> tuple[int, ...]:
    return tuple(range(1, value.integer(least=1, most=1_000) + 1))


@dataclass(frozen=True, slots=True)
class PipelineCluster:
    """Captures, TiKV stores, ids of tables, and into how many regions each is divided at first.

    ``{captures: 2, stores: 3, tables: 4, regions: 2}``; a workload brings its own tables. ``reading`` are the nodes
    behind the sink.
    """

    captures: Annotated[tuple[str, ...], ReadBy(_captures)]
    tables: Annotated[tuple[int, ...], ReadBy(_tables)] = ()
    stores: Annotated[int, Meta(ge=1, le=100)] = 3
    regions: Annotated[int, Meta(ge=1, le=100)] = 2
    reading: tuple[str, ...] = (DOWNSTREAM, *OF_CONSUMER)

    @property
    def fallible(self) -> tuple[str, ...]:
        """Those that random faults hit."""
        return (*self.captures, *(f"tikv-{i + 1}" for i in range(self.stores)))

    @property
    def nodes(self) -> frozenset[str]:
        """All that a fault can hit."""
        return frozenset({*self.fallible, ETCD, PD, TIDB, *self.reading})

    def everyone(self, joining: tuple[str, ...]) -> tuple[str, ...]:
        return captures_first((*self.captures, *joining, ETCD), self.nodes)


def cluster(value: Value) -> PipelineCluster:
    return Reader(without=("reading",)).record(value, PipelineCluster)


def facts(scenario_cluster: Any, events: Iterable[Planned]) -> PipelineFacts:
    """Give what is known before a run begins."""
    captures = {*scenario_cluster.captures, *(e.what.capture for e in events if e.kind == "join")}
    return PipelineFacts(set(scenario_cluster.tables), frozenset(captures))


# A scenario of the pipeline in the words of its model: settings, load, and what happens at which moment.

ADDED = Column(0, "", "bigint", default=0)
"""What a DDL of a scenario adds, under a name and an id of its own."""


def settings_of(scenario: Scenario) -> PipelineSettings:
    """Give the settings with the cluster; captures that join later are in it too."""
    cluster, settings = scenario.cluster, scenario.settings
    joins, versions = joined(scenario)
    captures = (*cluster.captures, *joins)
    scheduler = replace(settings.scheduler, variant=scenario.variant, captures=captures, versions=versions)
    tikv = replace(settings.tikv, stores=cluster.stores, regions_per_table=cluster.regions)
    found: PipelineSettings = replace(settings, scheduler=scheduler, tikv=tikv)
    _require_consumer(scenario, found)
    return found


def _require_consumer(scenario: Scenario, settings: PipelineSettings) -> None:
    """Refuse an event of a partition or a consumer that this run does not have."""
    for event in scenario.events:
        if event.kind == "crash" and event.what.node in OF_CONSUMER[1:]:
            raise ScenarioError(
                f"{scenario.file}:{event.line}: expected a node that can crash; found {event.what.node}.",
                hint="Kafka replicates a partition: `pause` it, or crash the `consumer`.",
            )
    asked = [e.what.partitions for e in scenario.events if e.kind == "repartition"]
    n = max([settings.downstream.partitions, *asked]) if settings.downstream.consumer else -1
    absent = OF_CONSUMER[n + 1 :]
    for event in scenario.events:
        values = [getattr(event.what, f.name) for f in fields(event.what)]
        named = {v for value in values for v in (value if isinstance(value, tuple) else (value,)) if isinstance(v, str)}
        if there := sorted(named.intersection(absent)):
            raise ScenarioError(
                f"{scenario.file}:{event.line}: expected a node of this run; found {there[0]}.",
                hint="Set `settings.downstream.consumer` to rows or transactions, and enough `partitions`.",
            )


def load_of_scenario(scenario: Scenario, seed: int) -> Load:
    """Give what clients do: a workload; or the file's load, its long transactions, its DDL."""
    given = scenario.load or NO_LOAD
    if given.workload is not None:
        return load_of(replace(given.workload, seed=seed))
    held = [e for e in scenario.events if e.kind == "long_transaction"]
    named = [_held(e, given.handles + 1000 * n) for n, e in enumerate(held)]
    settings = replace(given, transactions=(*given.transactions, *named))
    jobs = tuple(sorted([*_jobs(scenario), *_of_service(scenario, given.ddl, seed)], key=lambda job: job[0]))
    return made(settings, scenario.cluster.tables, jobs, seed, scenario.until_us)


def _of_service(scenario: Scenario, ddl: ServiceDdl | None, seed: int) -> Iterator[tuple[int, FinishedJob]]:
    """Run the service that owns the DDL of this cluster, and give what it has done by the end."""
    if ddl is None:
        return
    from ticdc_lab.simulate.ddl_service.replicated import done_jobs, pipeline_jobs

    service = read_scenario(ddl.of)
    if ddl.cluster not in getattr(service.cluster, "clusters_named", ()):
        raise ScenarioError(
            f"{scenario.file}: {ddl.of} has no cluster {ddl.cluster}.",
            hint=f"Its clusters are in the section `cluster` of {ddl.of}.",
        )
    done = done_jobs(service.model.play(service, seed=seed, level=CHANGES).trace, ddl.cluster)
    jobs = pipeline_jobs(done, map(table_info, scenario.cluster.tables), schema=SCHEMA)
    yield from ((at_us, job) for at_us, job in jobs if at_us <= scenario.until_us)


def _held(event: Planned, first: int) -> Named:
    """New rows, which no other transaction waits for."""
    what = event.what
    handles = tuple(range(first, first + what.rows))
    return Named(event.at_us, what.table, handles, what.hold_us, what.rolls_back)


def _jobs(scenario: Scenario) -> Iterator[tuple[int, FinishedJob]]:
    infos = {t: table_info(t) for t in scenario.cluster.tables}
    for event in scenario.events:
        what, n = event.what, event.line
        if event.kind == "add_column":
            info = infos[what.table]
            new = ADDED._replace(id=len(info.columns) + 1, name=what.column)
            infos[what.table] = info = info._replace(columns=(*info.columns, new))
            query = f"ALTER TABLE `{info.schema_name}`.`{info.name}` ADD COLUMN `{what.column}` BIGINT DEFAULT 0"
            yield event.at_us, FinishedJob(n, "add column", query, info.schema_name, info.name, None, info)
        elif event.kind == "drop_table":
            info = infos[what.table]
            query = f"DROP TABLE `{info.schema_name}`.`{info.name}`"
            yield event.at_us, FinishedJob(n, "drop table", query, info.schema_name, info.name, info.id)


# What a scenario of the pipeline can let happen, beside what every model and the table scheduler know.


def _restarted(what: Any, event: Planned, scenario: Scenario) -> Iterator[kernel.Fault]:
    if what.disk is not None and (what.keep_state or not what.node.startswith("tikv-")):
        raise ScenarioError(
            f"{scenario.file}:{event.line}: expected a `disk` of a store that restarts; found one of {what.node}.",
            hint="Leave `disk` out: a capture has none, and who keeps its state does not read it.",
        )
    yield kernel.Restart(event.at_us, what.node, what.keep_state, what.disk or kernel.KEPT)


def _of_stores(event: Planned, scenario: Scenario, command: Any) -> Iterator[kernel.Fault]:
    """Ask every store: the one that leads the region does it."""
    for i in range(scenario.cluster.stores):
        yield kernel.Ask(event.at_us, f"tikv-{i + 1}", command)


def paced(
    rows_per_s: int, for_us: int | None, event: Planned, scenario: Scenario, node: str = DOWNSTREAM
) -> Iterator[kernel.Fault]:
    """Let a downstream take no more than so many rows a second, for a while or for good."""
    yield kernel.Ask(event.at_us, node, Pace(rows_per_s))
    if for_us is not None:
        yield kernel.Ask(event.at_us + for_us, node, Pace(scenario.settings.downstream.rows_per_s))


EVENTS: dict[str, Any] = {k: v for k, v in OF_SCHEDULER.items() if v.reach != "own"} | table(
    {
        "restart": EventKind(
            "A crashed node comes back; a store with its disk, with all of it but a torn last write, or without it.",
            {"node": Node, "keep_state": (bool, False), "disk": (Disk | None, None)},
            _restarted,
        ),
        "split": EventKind(
            "The region that contains a row of a table is divided there.",
            {"table": TableId, "handle": (int, 50)},
            lambda w, e, s: _of_stores(e, s, kv.Split(key_of(w.table, w.handle))),
        ),
        "merge": EventKind(
            "The region that contains a row of a table is united with the one behind it.",
            {"table": TableId, "handle": (int, 1)},
            lambda w, e, s: _of_stores(e, s, kv.Merge(key_of(w.table, w.handle))),
        ),
        "transfer_leader": EventKind(
            "The region that contains a row of a table is led by another store from now on.",
            {"table": TableId, "to": Node, "handle": (int, 1)},
            lambda w, e, s: _of_stores(e, s, kv.TransferLeader(key_of(w.table, w.handle), w.to)),
        ),
        "slow_sink": EventKind(
            "The downstream takes no more than so many rows a second, for a while or for good.",
            {"rows_per_s": int, "for_us": (Lasting | None, None)},
            lambda w, e, s: paced(w.rows_per_s, w.for_us, e, s),
            reach="one",
        ),
        "standing_sink": EventKind(
            "The downstream takes nothing for a while.",
            {"for_us": Lasting},
            lambda w, e, s: paced(0, w.for_us, e, s),
            reach="one",
        ),
        "long_transaction": EventKind(
            "A transaction locks some new rows of a table and is committed, or rolled back, only after a while.",
            {"table": TableId, "hold_us": Lasting, "rows": (int, 1), "rolls_back": (bool, False)},
        ),
        "add_column": EventKind("A DDL adds a column to a table.", {"table": TableId, "column": (Text, "added")}),
        "drop_table": EventKind("A DDL drops a table.", {"table": TableId}),
        "repartition": EventKind(
            "A user wants another number of partitions: all tables stop, Admin events are written, all resume.",
            {"partitions": int},
            lambda w, e, s: [kernel.Ask(e.at_us, ETCD, WantPartitions(w.partitions))],
            reach="one",
        ),
    }
)

# Beside what the upstream and the nodes of one changefeed know: what several do.

CHANGEFEED_EVENTS: dict[str, type] = {k: v for k, v in EVENTS.items() if v.reach == "all"} | table(
    {
        "create_changefeed": EventKind(
            "A changefeed begins, into a downstream of its own. Its filter lets `tables` through: all by default.",
            {
                "id": NewChangefeed,
                "tables": (TableIds, ()),
                "kind": (SinkKind | None, None),
                "start_us": (Duration | None, None),
            },
            lambda w, e, s: [kernel.Ask(e.at_us, ETCD, CreateChangefeed(w.id, w.tables, w.kind, w.start_us))],
        ),
        "pause_changefeed": EventKind(
            "A changefeed stops, and its checkpoint stands.",
            {"id": ChangefeedName},
            lambda w, e, s: [kernel.Ask(e.at_us, ETCD, PauseChangefeed(w.id))],
        ),
        "resume_changefeed": EventKind(
            "A changefeed that is paused resumes from its checkpoint.",
            {"id": ChangefeedName},
            lambda w, e, s: [kernel.Ask(e.at_us, ETCD, ResumeChangefeed(w.id))],
        ),
        "remove_changefeed": EventKind(
            "A changefeed ends for good.",
            {"id": ChangefeedName},
            lambda w, e, s: [kernel.Ask(e.at_us, ETCD, RemoveChangefeed(w.id))],
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

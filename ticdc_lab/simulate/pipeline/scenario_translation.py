"""A scenario of the pipeline in the words of its model: settings, load, and what happens at which moment."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields, replace
from typing import Any

from ticdc_lab.errors import ScenarioError
from ticdc_lab.simulate import faults as kernel
from ticdc_lab.simulate import planned as file
from ticdc_lab.simulate.pipeline import kv_messages as kv
from ticdc_lab.simulate.pipeline import planned as own
from ticdc_lab.simulate.pipeline.downstream import Pace
from ticdc_lab.simulate.pipeline.keys import key_of
from ticdc_lab.simulate.pipeline.load import Load
from ticdc_lab.simulate.pipeline.scenario_cluster import OF_CONSUMER
from ticdc_lab.simulate.pipeline.scenario_load import NO_LOAD, SCHEMA, Named, ServiceDdl, made, table_info
from ticdc_lab.simulate.pipeline.settings import Settings
from ticdc_lab.simulate.pipeline.sink_messages import DOWNSTREAM, Repartition
from ticdc_lab.simulate.pipeline.tables import Column, Job, TableInfo
from ticdc_lab.simulate.planned import Planned
from ticdc_lab.simulate.recorder import CHANGES
from ticdc_lab.simulate.scenario import Scenario, read_scenario
from ticdc_lab.simulate.scheduler.translation import happens, joined
from ticdc_lab.workload.load import load_of

ADDED = Column(0, "", "bigint", default=0)
"""What a DDL of a scenario adds, under a name and an id of its own."""


def settings_of(scenario: Scenario) -> Settings:
    """Give the settings with the cluster; captures that join later are in it too."""
    cluster, settings = scenario.cluster, scenario.settings
    joins, versions = joined(scenario)
    captures = (*cluster.captures, *joins)
    scheduler = replace(settings.scheduler, variant=scenario.variant, captures=captures, versions=versions)
    tikv = replace(settings.tikv, stores=cluster.stores, regions_per_table=cluster.regions)
    found: Settings = replace(settings, scheduler=scheduler, tikv=tikv)
    _require_consumer(scenario, found)
    return found


def _require_consumer(scenario: Scenario, settings: Settings) -> None:
    """Refuse an event of a partition or a consumer that this run does not have."""
    for event in scenario.events:
        if isinstance(event.what, file.Crash) and event.what.node in OF_CONSUMER[1:]:
            raise ScenarioError(
                f"{scenario.file}:{event.line}: expected a node that can crash; found {event.what.node}.",
                hint="A partition is replicated by Kafka: pause it, or crash the consumer.",
            )
    asked = [e.what.partitions for e in scenario.events if isinstance(e.what, own.Repartition)]
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
    held = [e for e in scenario.events if isinstance(e.what, own.LongTransaction)]
    named = [_held(e, given.handles + 1000 * n) for n, e in enumerate(held)]
    settings = replace(given, transactions=(*given.transactions, *named))
    jobs = tuple(sorted([*_jobs(scenario), *_of_service(scenario, given.ddl, seed)], key=lambda job: job[0]))
    return made(settings, scenario.cluster.tables, jobs, seed, scenario.until_us)


def _of_service(scenario: Scenario, ddl: ServiceDdl | None, seed: int) -> Iterator[tuple[int, Job]]:
    """Run the service that owns the DDL of this cluster, and give what it has done by the end."""
    if ddl is None:
        return
    from ticdc_lab.simulate.ddl_service.replicated import done_jobs, pipeline_jobs

    service = read_scenario(ddl.file)
    if ddl.cluster not in getattr(service.cluster, "clusters_named", ()):
        raise ScenarioError(f"{scenario.file}: {ddl.file} has no cluster {ddl.cluster}.", hint="See its `cluster`.")
    done = done_jobs(service.model.play(service, seed=seed, level=CHANGES).trace, ddl.cluster)
    jobs = pipeline_jobs(done, map(table_info, scenario.cluster.tables), schema=SCHEMA)
    yield from ((at_us, job) for at_us, job in jobs if at_us <= scenario.until_us)


def _held(event: Planned, first: int) -> Named:
    """New rows, which no other transaction waits for."""
    what: own.LongTransaction = event.what
    handles = tuple(range(first, first + what.rows))
    return Named(event.at_us, what.table, handles, what.hold_us, what.rolls_back)


def _jobs(scenario: Scenario) -> Iterator[tuple[int, Job]]:
    infos = {t: table_info(t) for t in scenario.cluster.tables}
    for event in scenario.events:
        what, n = event.what, event.line
        if isinstance(what, own.AddColumn):
            infos[what.table] = info = _with_column(infos[what.table], what.column)
            query = f"ALTER TABLE `{info.schema_name}`.`{info.name}` ADD COLUMN `{what.column}` BIGINT DEFAULT 0"
            yield event.at_us, Job(n, "add column", query, info.schema_name, info.name, None, info)
        elif isinstance(what, own.DropTable):
            info = infos[what.table]
            query = f"DROP TABLE `{info.schema_name}`.`{info.name}`"
            yield event.at_us, Job(n, "drop table", query, info.schema_name, info.name, info.id)


def _with_column(info: TableInfo, name: str) -> TableInfo:
    new = ADDED._replace(id=len(info.columns) + 1, name=name)
    return info._replace(columns=(*info.columns, new))


def _of_stores(event: Planned, scenario: Scenario, command: Any) -> Iterator[kernel.Fault]:
    """Ask every store: the one that leads the region does it."""
    for i in range(scenario.cluster.stores):
        yield kernel.Ask(event.at_us, f"tikv-{i + 1}", command)


@happens.register
def _(what: own.Restart, event: Planned, scenario: Scenario) -> Iterator[kernel.Fault]:
    if what.disk is not None and (what.keep_state or not what.node.startswith("tikv-")):
        raise ScenarioError(
            f"{scenario.file}:{event.line}: expected a `disk` of a store that begins anew; found one of {what.node}.",
            hint="Leave `disk` out: a capture has none, and who keeps its state does not read it.",
        )
    yield kernel.Restart(event.at_us, what.node, what.keep_state, what.disk or kernel.KEPT)


@happens.register
def _(what: own.Split, event: Planned, scenario: Scenario) -> Iterator[kernel.Fault]:
    yield from _of_stores(event, scenario, kv.Split(key_of(what.table, what.handle)))


@happens.register
def _(what: own.Merge, event: Planned, scenario: Scenario) -> Iterator[kernel.Fault]:
    yield from _of_stores(event, scenario, kv.Merge(key_of(what.table, what.handle)))


@happens.register
def _(what: own.TransferLeader, event: Planned, scenario: Scenario) -> Iterator[kernel.Fault]:
    yield from _of_stores(event, scenario, kv.TransferLeader(key_of(what.table, what.handle), what.to))


@happens.register
def _(what: own.SlowSink, event: Planned, scenario: Scenario) -> Iterator[kernel.Fault]:
    yield from _paced(what.rows_per_s, what.for_us, event, scenario)


@happens.register
def _(what: own.StandingSink, event: Planned, scenario: Scenario) -> Iterator[kernel.Fault]:
    yield from _paced(0, what.for_us, event, scenario)


@happens.register
def _(what: own.Repartition, event: Planned, scenario: Scenario) -> Iterator[kernel.Fault]:
    for capture in settings_of(scenario).scheduler.nodes():
        yield kernel.Ask(event.at_us, capture, Repartition(what.partitions))


def _paced(rows_per_s: int, for_us: int | None, event: Planned, scenario: Scenario) -> Iterator[kernel.Fault]:
    yield kernel.Ask(event.at_us, DOWNSTREAM, Pace(rows_per_s))
    if for_us is not None:
        yield kernel.Ask(event.at_us + for_us, DOWNSTREAM, Pace(scenario.settings.downstream.rows_per_s))


@happens.register(own.LongTransaction)
@happens.register(own.AddColumn)
@happens.register(own.DropTable)
def _(what: Any, event: Planned, scenario: Scenario) -> Iterator[kernel.Fault]:
    """Of the load."""
    yield from ()

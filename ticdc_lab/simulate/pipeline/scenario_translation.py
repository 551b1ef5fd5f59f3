"""A scenario of the pipeline in the words of its model: settings, load, and what happens at which moment."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields, replace

from ticdc_lab.errors import ScenarioError
from ticdc_lab.simulate import planned as file
from ticdc_lab.simulate.pipeline import planned as own
from ticdc_lab.simulate.pipeline.load import Load
from ticdc_lab.simulate.pipeline.scenario_cluster import OF_CONSUMER
from ticdc_lab.simulate.pipeline.scenario_load import NO_LOAD, SCHEMA, Named, ServiceDdl, made, table_info
from ticdc_lab.simulate.pipeline.settings import Settings
from ticdc_lab.simulate.pipeline.tables import Column, Job, TableInfo
from ticdc_lab.simulate.planned import Planned
from ticdc_lab.simulate.scenario import Scenario, read_scenario
from ticdc_lab.simulate.scheduler.translation import joined
from ticdc_lab.simulate.trace import CHANGES
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

    service = read_scenario(ddl.of)
    if ddl.cluster not in getattr(service.cluster, "clusters_named", ()):
        raise ScenarioError(f"{scenario.file}: {ddl.of} has no cluster {ddl.cluster}.", hint="See its `cluster`.")
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

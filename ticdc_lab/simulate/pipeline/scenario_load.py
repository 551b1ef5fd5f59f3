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
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Annotated

from msgspec import Meta

from ticdc_lab.simulate.pipeline.keys import key_of
from ticdc_lab.simulate.pipeline.kv_messages import DELETE, PUT, Mutation
from ticdc_lab.simulate.pipeline.load import Load, Rows, Txn
from ticdc_lab.simulate.pipeline.tables import Column, Job, Raw, TableInfo
from ticdc_lab.simulate.planned import Duration, Share, TableId
from ticdc_lab.simulate.reading import Names, Read, Reader, read_record
from ticdc_lab.simulate.scenario_yaml import Value
from ticdc_lab.workload.settings import KINDS, Workload

SCHEMA = "shop"
_OF_LOGS = ("seed", "start_ts", "watermark_ms")
"""What the simulation itself says of a workload."""
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
    """A transaction that stands in the file."""

    at_us: Duration
    table: TableId
    handles: Annotated[tuple[int, ...], Read(_handles)]
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

    of: Annotated[str, Read(_scenario_file)]
    cluster: str


@dataclass(frozen=True, slots=True)
class LoadSettings:
    """What clients do.

    Attributes
    ----------
    rows_per_s
        Row changes of steady transactions a second, all tables together; 0 for none.
    rows
        Of each transaction, in different tables where there are as many.
    handles
        Rows that a table has; a change hits any of them.
    from_us, until_us
        When steady transactions begin and end; None for the end of the run less three seconds.
    rolled_back, deleted
        The share of transactions that roll back, and of changes that delete; without a row one is inserted.
    ddl
        Of a service; its jobs come at the moments at which they were done there.
    workload
        Instead of all that: one that brings its own tables and DDL; the run's seed is its own.
    """

    rows_per_s: int = 100
    rows: Annotated[int, Meta(ge=1, le=1000)] = 2
    handles: Annotated[int, Meta(ge=1, le=10_000_000)] = 100
    from_us: Duration = 0
    until_us: Duration | None = None
    rolled_back: Share = Fraction(0)
    deleted: Share = Fraction(0)
    transactions: tuple[Named, ...] = ()
    workload: Annotated[Workload, Read(_workload)] | None = None
    ddl: ServiceDdl | None = None

    def refuse(self, value: Value, given: Mapping[str, Value]) -> None:
        """Refuse what a workload leaves no room for, and steady transactions that end before they begin."""
        if "workload" in given:
            value.fields({"workload"})
        if self.until_us is not None and self.until_us <= self.from_us:
            raise given["until"].wrong("a moment after that of `from`", hint="Nothing would be written.")


NO_LOAD = LoadSettings(rows_per_s=0)


def load(value: Value, names: Names) -> LoadSettings:
    """Read a load."""
    return Reader(names).record(value, LoadSettings, NO_LOAD)


def table_info(table: int) -> TableInfo:
    """Give the definition that a table of a scenario has at first."""
    return TableInfo(table, SCHEMA, f"t{table}", COLUMNS)


def made(
    settings: LoadSettings, tables: tuple[int, ...], jobs: tuple[tuple[int, Job], ...], seed: int, until_us: int
) -> Load:
    """Draw a load: the same seed gives the same, whatever faults there are.

    Parameters
    ----------
    tables
        Those there are at first.
    jobs
        DDL jobs with their moments; a table that one drops is written until then, one that is created afterwards.
    until_us
        The end of the run.
    """
    named = [_transaction(n, i) for i, n in enumerate(settings.transactions)]
    steady = _steady(settings, tables, jobs, random.Random(f"load {seed}"), until_us)
    return Load(tuple(table_info(t) for t in tables), tuple(_with_rows(steady, named)), jobs)


def _with_rows(steady: Iterable[Txn], named: Iterable[Txn]) -> Iterator[Txn]:
    """Merge transactions; a steady one inserts the row that its delete would not find: TiDB writes no such delete."""
    rows = Rows()
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
    jobs: tuple[tuple[int, Job], ...],
    chance: random.Random,
    until_us: int,
) -> Iterator[Txn]:
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
        yield Txn(at_us, 0, tuple(changes), chance.random() < settings.rolled_back)


def _change(key: int, n: int, deletes: bool) -> Mutation:
    if deletes:
        return Mutation(key, DELETE, None)
    handle = key & (1 << 40) - 1
    return Mutation(key, PUT, Raw((1, 2, 3), (handle, f"change {n}", n + 1)))


def _transaction(named: Named, n: int) -> Txn:
    changes = [_change(key_of(named.table, h), 1_000_000 + n, named.deletes) for h in named.handles]
    return Txn(named.at_us, named.hold_us, tuple(changes), named.rolls_back)

"""A workload as what clients of a simulated TiKV do: the same rows, with moments instead of timestamps."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from itertools import groupby
from operator import itemgetter

import numpy as np
import pyarrow as pa

from ticdc_lab.events.mysql_types import INTEGER, type_of
from ticdc_lab.simulate.pipeline.kv_messages import DELETE, PUT, Mutation
from ticdc_lab.simulate.pipeline.tables import Cell, Column, FinishedJob, Raw, TableInfo, key_of
from ticdc_lab.simulate.pipeline.tidb_state import ClientTxn, Load
from ticdc_lab.workload import chains
from ticdc_lab.workload.columns import Field, mixed
from ticdc_lab.workload.definitions import Definition, Statement
from ticdc_lab.workload.lanes import groups, lane_of, states_of
from ticdc_lab.workload.settings import Workload
from ticdc_lab.workload.shape import DDL, Shape

LATENCY_US = 50_000
"""How long a transaction or DDL job is taken to last at most, besides what it holds its locks.

Too short a time lets transactions on a hot row queue up in the clients, and a DDL pass those that should be before it.
"""

_HOLD_US = 2_000
_FIRST_JOB = 500

_Row = tuple[int, int, int, Mutation]
"""Slot, seq and number of the table."""


def load_of(workload: Workload) -> Load:
    """Give the transactions and DDL of a workload to a simulated cluster.

    The values of a row are as in :func:`ticdc_lab.workload.generate`, change by change; timestamps and order of
    transactions that share no row are the simulation's. A transaction waits until those before it that change one of
    its rows should be done, so the load lasts longer than the workload where rows are hot.

    Parameters
    ----------
    workload
        Its ``rollback_share`` and ``conflict_share`` add transactions that roll back.

    Returns
    -------
    Load
        Whole in memory: for some hundred thousand rows.
    """
    shape = Shape(workload)
    rows = sorted((r for lane in range(workload.lanes) for r in _rows(shape, lane)), key=itemgetter(0, 1))
    created = shape.plan.statements[: len(shape.plan.definitions)]
    clients = _Clients(shape)
    ddl = list(zip(shape.slots_of_shared(DDL).tolist(), shape.plan.statements, strict=True))[len(created) :]
    for slot, those in groupby(rows, key=itemgetter(0)):
        while ddl and ddl[0][0] < slot:
            clients.define(*ddl.pop(0))
        clients.write(slot, list(those))
    for slot, statement in ddl:
        clients.define(slot, statement)
    done = sorted(clients.transactions, key=lambda txn: txn.start_us)
    return Load(tuple(_info(s.after, workload.schema_name) for s in created), tuple(done), tuple(clients.jobs))


class _Clients:
    """When rows and tables are free again; transactions and jobs so far."""

    def __init__(self, shape: Shape) -> None:
        self.shape = shape
        self.transactions: list[ClientTxn] = []
        self.jobs: list[tuple[int, FinishedJob]] = []
        self.free_us: dict[int, int] = {}
        """By key."""
        self.quiet_us: dict[int, int] = {}
        """By number of the table, when the last transaction on it should be done."""
        self.defined_us: dict[int, int] = {}
        """By number of the table."""

    def write(self, slot: int, rows: list[_Row]) -> None:
        """Plan a transaction, and one that rolls back beside or behind it where the workload wants that."""
        w, at = self.shape.workload, np.array([slot])
        mutations = tuple(row[3] for row in rows)
        tables = {row[2] for row in rows}
        hold = w.long_ms * 1000 if self.shape.is_long(at)[0] else int(mixed(at, w.seed, 105)[0]) % _HOLD_US
        free, defined = self.free_us, self.defined_us
        earliest = max(max(free.get(m.key, 0) for m in mutations), max(defined.get(t, 0) for t in tables))
        start = max(self._us(slot) - hold, earliest)
        end = start + hold + LATENCY_US
        self.transactions.append(ClientTxn(start, hold, mutations))
        chance = (int(mixed(at, w.seed, 106)[0]) >> 11) / (1 << 53)
        if chance < w.rollback_share:
            again = start + 1 if chance < w.rollback_share * w.conflict_share else end
            self.transactions.append(ClientTxn(again, hold, mutations, rolls_back=True))
            end += hold + LATENCY_US
        free.update((m.key, end) for m in mutations)
        for t in tables:
            self.quiet_us[t] = max(self.quiet_us.get(t, 0), end)

    def define(self, slot: int, statement: Statement) -> None:
        """Plan a DDL job: behind what writes its table, and before what will."""
        table = statement.after.table
        last = self.jobs[-1][0] if self.jobs else 0
        at = max(self._us(slot), self.quiet_us.get(table, 0), last + LATENCY_US)
        gone = statement.after.id is None
        info = None if gone else _info(statement.after, self.shape.workload.schema_name)
        job = FinishedJob(
            _FIRST_JOB + len(self.jobs), statement.type, statement.query, self.shape.workload.schema_name,
            statement.after.name, statement.dropped, info,
        )  # fmt: skip
        self.jobs.append((at, job))
        self.defined_us[table] = at + LATENCY_US

    def _us(self, slot: int) -> int:
        return slot * self.shape.step_ns // 1000


@cache
def _info(definition: Definition, schema_name: str) -> TableInfo:
    """One object for one definition."""
    assert definition.id is not None
    columns = tuple(
        Column(f.id, f.name, f.mysql_type, f.is_key, _cell(f, f.default) if f.since >= 0 else None)
        for f in definition.fields
    )
    return TableInfo(definition.id, schema_name, definition.name, columns)


def _cell(field: Field, text: str | None) -> Cell:
    return int(text) if text is not None and type_of(field.mysql_type)[0].form == INTEGER else text


def _cells(field: Field, values: pa.Array) -> list[Cell]:
    if type_of(field.mysql_type)[0].form != INTEGER:
        return list(values.to_pylist())
    return [None if v is None else int(v) for v in values.to_pylist()]


def _rows(shape: Shape, lane: int) -> Iterator[_Row]:
    """The row changes of a lane, definition by definition."""
    c = lane_of(shape, lane)
    for definition, at in groups(c, np.arange(len(c.slot)), shape):
        assert definition.id is not None
        states = states_of(c, at, shape)
        columns = [_cells(f, f.values(states)) for f in definition.fields]
        ids = tuple(f.id for f in definition.fields)
        first = key_of(definition.id, 0)
        put = (c.op[at] != chains.DELETE).tolist()
        those = zip(
            c.slot[at].tolist(), c.seq[at].tolist(), c.handle[at].tolist(), put, zip(*columns, strict=True), strict=True
        )
        for slot, seq, handle, is_put, cells in those:
            key, table = first + handle, definition.table
            if is_put:
                yield slot, seq, table, Mutation(key, PUT, Raw(ids, cells))
            else:
                yield slot, seq, table, Mutation(key, DELETE, None)

"""What clients will do upstream: the tables there are, transactions and DDL jobs, each with its moment."""

from __future__ import annotations

from typing import NamedTuple

from ticdc_lab.simulate.pipeline.kv_messages import Mutation
from ticdc_lab.simulate.pipeline.tables import Job, TableInfo


class Txn(NamedTuple):
    """A transaction of one client; the model gives it its start_ts and commit_ts.

    Attributes
    ----------
    start_us
        When it asks PD for its start_ts (virtual time).
    hold_us
        From its last prewrite until it commits or rolls back; long for a long transaction.
    mutations
        The whole of it, each key once; the first is the primary key.
    rolls_back
        It holds its locks and rolls back.
    """

    start_us: int
    hold_us: int
    mutations: tuple[Mutation, ...]
    rolls_back: bool = False


class Load(NamedTuple):
    """Everything that clients will do.

    Attributes
    ----------
    tables
        The tables that exist at moment 0.
    transactions
        In ``start_us`` order. Transactions that share a key do not overlap (one has committed before the other starts)
        but where the load is meant to have conflicts.
    jobs
        DDL jobs by the moment at which they are done, in that order. No transaction that writes the table of a job is
        open at its moment.
    """

    tables: tuple[TableInfo, ...]
    transactions: tuple[Txn, ...]
    jobs: tuple[tuple[int, Job], ...] = ()

    @property
    def rows(self) -> int:
        """Count the row changes of the transactions that commit."""
        return sum(len(txn.mutations) for txn in self.transactions if not txn.rolls_back)

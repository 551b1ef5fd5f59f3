"""What clients will do upstream: the tables there are, transactions and DDL jobs, each with its moment."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from ticdc_lab.errors import ContractError
from ticdc_lab.simulate.pipeline.keys import shown
from ticdc_lab.simulate.pipeline.kv_messages import DELETE, Mutation
from ticdc_lab.simulate.pipeline.tables import FinishedJob, TableInfo


class ClientTxn(NamedTuple):
    """A transaction of one client; the model gives it its start_ts and commit_ts."""

    start_us: int  # when it asks PD for its start_ts (virtual time)
    hold_us: int  # from its last prewrite until it commits or rolls back; long for a long transaction
    mutations: tuple[Mutation, ...]  # the whole of it, each key once; the first is the primary key
    rolls_back: bool = False  # it holds its locks and rolls back


class Load(NamedTuple):
    """Everything that clients will do."""

    tables: tuple[TableInfo, ...]  # the tables that exist at moment 0
    # In ``start_us`` order. Transactions that share a key do not overlap (one has committed before the other starts)
    # but where the load is meant to have conflicts. Each deletes only rows that are there: TiDB writes no other delete.
    transactions: tuple[ClientTxn, ...]
    # DDL jobs by the moment at which they are done, in that order. No transaction that writes the table of a job is
    # open at its moment.
    jobs: tuple[tuple[int, FinishedJob], ...] = ()

    @property
    def rows(self) -> int:
        """Count the row changes of the transactions that commit."""
        return sum(len(txn.mutations) for txn in self.transactions if not txn.rolls_back)


class LoadRows:
    """Which rows there are, from one transaction of a load to the next: changes of a key keep the load's order."""

    def __init__(self) -> None:
        self._there: set[int] = set()

    def missing(self, mutations: tuple[Mutation, ...]) -> Iterator[Mutation]:
        """Give the deletes that find no row."""
        return (m for m in mutations if m.op == DELETE and m.key not in self._there)

    def take(self, txn: ClientTxn) -> None:
        """Go on behind a transaction."""
        if not txn.rolls_back:
            self._there.difference_update(m.key for m in txn.mutations if m.op == DELETE)
            self._there.update(m.key for m in txn.mutations if m.op != DELETE)


def require_rows(load: Load) -> None:
    """Refuse a load that deletes a row that is not there. Raises ContractError: with the transaction and the row."""
    if not any(m[1] == DELETE for txn in load.transactions for m in txn[2]):
        return
    rows = LoadRows()
    for n, txn in enumerate(load.transactions):
        for mutation in () if txn.rolls_back else rows.missing(txn.mutations):  # what is rolled back writes no row
            raise ContractError(
                f"Transaction {n} of the load, at {txn.start_us / 1e6:g} s, deletes {shown(mutation.key)}, and no row "
                "is there; expected a row that an earlier transaction has written.",
                hint="Write the row first, or leave the `delete` out: TiDB writes none for a row that is not there.",
            )
        rows.take(txn)

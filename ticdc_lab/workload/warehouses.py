"""How many rows of each table a lane of tpcc begins with."""

from __future__ import annotations

from dataclasses import dataclass

from ticdc_lab.workload.tpcc_layouts import DISTRICTS


@dataclass(frozen=True)
class Warehouses:
    """What a lane of tpcc has: so many warehouses with ten districts, and customers and items of each."""

    count: int
    customers: int
    items: int

    @classmethod
    def of(cls, keys: int) -> Warehouses:
        """Divide about so many rows."""
        customers, items = min(max(keys // 30, 3), 30), min(max(keys // 4, 20), 100)
        return cls(max(1, keys // cls(1, customers, items).rows), customers, items)

    @property
    def rows(self) -> int:
        """Count the rows at the beginning."""
        return self.count * (1 + DISTRICTS * (1 + self.customers) + self.items)

    @property
    def loads(self) -> int:
        """Count the transactions that insert them: warehouse and districts, customers of each district, items."""
        return self.count * (2 + DISTRICTS)

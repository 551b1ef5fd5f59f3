"""Which dispatchers are worth comparing for a table: every usable index, parts of its key, single columns."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any

import numpy as np
import numpy.typing as npt

from ticdc_lab.dispatch.advise_facts import ColumnFact, TableFact
from ticdc_lab.dispatch.evenness import gini
from ticdc_lab.dispatch.rules import Rule
from ticdc_lab.dispatch.whatif import WhatIf
from ticdc_lab.errors import DispatchError
from ticdc_lab.facts.catalog import Catalog
from ticdc_lab.facts.definitions import IndexDef, TableDef

MAX_KEY_COLUMNS, MAX_SINGLE = 3, 8
"""Columns of a subset of the handle key, and single columns per table, at most."""


@dataclass(frozen=True, slots=True)
class Candidate:
    """A dispatcher for one table.

    ``name`` is the what-if's; ``by_key`` says that the partition depends on the handle key alone, so that it can
    change only with the key; ``refused`` is why TiCDC or the log does not allow it; ``risk`` what may go wrong later.
    """

    name: str
    rule: Rule
    by_key: bool = False
    refused: str = ""
    risk: str = ""

    @property
    def simplicity(self) -> tuple[int, int, str]:
        """Less is simpler."""
        order = {"table": 0, "index-value": 1 if not self.rule.index else 2, "columns": 3}
        return (order.get(self.rule.partition, 5) + (0 if self.by_key else 1), len(self.rule.columns), self.name)


TABLE = Candidate("table", Rule((), "table"), by_key=True)
TS = Candidate("ts", Rule((), "ts"), risk="each change of a row goes where its commit_ts happens to lead")
INDEX_VALUE = Candidate("index-value", Rule((), "index-value"), by_key=True)
OTHERS = (
    Candidate("tidb-rowid", Rule((), "tidb-rowid"), refused="only TiCDC v4.0 dispatched by _tidb_rowid"),
    Candidate("conflict", Rule((), "conflict"), refused="TiCDC never built conflict detection"),
)
"""The design's other strategies: measured for comparison where the what-if has them, never recommended."""


def definitions_of(catalog: Catalog | None, table: TableFact) -> list[TableDef]:
    """Every definition the table had in the log."""
    versions = () if catalog is None else catalog.versions.get((table.schema_name, table.table_name), ())
    return [v.definition for v in versions if v.definition is not None]


def candidates_for(
    table: TableFact, definitions: Sequence[TableDef], *, singles_most: int = MAX_SINGLE
) -> tuple[list[Candidate], str]:
    """Candidates of a table, and a sentence about what was left out (empty for nothing)."""
    out = [TABLE, TS]
    if table.keyless < table.rows:
        out.append(INDEX_VALUE)
    out += [*OTHERS, *_indexes(definitions)]
    columns = {c.name.lower(): c for c in table.columns}
    handle = [c.name for c in table.columns if c.is_key and _usable(c, table, definitions)]
    sizes = range(1, min(MAX_KEY_COLUMNS, len(handle) - 1) + 1)
    subsets = [s for n in sizes for s in combinations(handle, n)]
    out += [Candidate("columns:" + ",".join(s), Rule((), "columns", columns=s), by_key=True) for s in subsets]
    singles = [c for c in columns.values() if not c.is_key and _usable(c, table, definitions)]
    singles.sort(key=lambda c: (c.changed > 0, -c.distinct, c.name))
    out += [_single(c) for c in singles[:singles_most]]
    cut = len(singles) - singles_most
    note = f"{cut} of {len(singles)} single columns were not measured: those that change or hold few values."
    return out, note if cut > 0 else ""


def _single(c: ColumnFact) -> Candidate:
    if c.changed:
        risk = f"{c.changed} of {c.compared} updates change {c.name}: the row moves to another partition, silently"
    elif c.compared:
        risk = f"none of {c.compared} updates changes {c.name} here, but it is no key and nothing forbids it"
    else:
        risk = f"the log does not show whether {c.name} ever changes, and it is no key"
    return Candidate(f"columns:{c.name}", Rule((), "columns", columns=(c.name,)), risk=risk)


def _usable(c: ColumnFact, table: TableFact, definitions: Iterable[TableDef]) -> bool:
    """In all rows of the log and all definitions, not virtual, and its hash can be known."""
    found = [d.column(c.name) for d in definitions]
    carried = all(f is not None and f.generated != "virtual" for f in found)
    return carried and c.rows >= table.rows and not c.labels and "," not in c.name


def _indexes(definitions: Sequence[TableDef]) -> list[Candidate]:
    names = {i.name.lower(): i.name for d in definitions for i in d.indexes}
    return [c for lower in sorted(names) for c in _index(names[lower], definitions)]


def _index(name: str, definitions: Sequence[TableDef]) -> list[Candidate]:
    found = [d.index(name) for d in definitions]
    if all(i is not None and _is_handle(i, d) for i, d in zip(found, definitions, strict=True)):
        return []  # the same as index-value without a name
    every = [i for i in found if i is not None]
    if not every:
        return []  # the clustered primary key: no index of that name
    virtual = {c for d, i in zip(definitions, found, strict=True) if i for c in i.columns if _is_virtual(d, c)}
    refused = ""
    if len(every) < len(definitions):
        refused = f"the index {name} is not in every version of the table: TiCDC fails on rows without it"
    elif not all(i.unique for i in every):
        refused = f"the index {name} is not unique: TiCDC refuses it"
    elif virtual:
        refused = f"{', '.join(sorted(virtual))} of the index {name} is a virtual generated column, which TiCDC skips"
    changes = f"an update of {name} is split, and the halves of one row go to the partitions of the old and new value"
    return [Candidate(f"index-value:{name}", Rule((), "index-value", index=name), refused=refused, risk=changes)]


def _is_handle(index: IndexDef, table: TableDef) -> bool:
    return table.handle is not None and set(index.columns) == set(table.handle.columns)


def _is_virtual(table: TableDef, name: str) -> bool:
    column = table.column(name)
    return column is None or column.generated == "virtual"


Load = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Evenness:
    """How evenly partitions are filled; 1 is even but for ``gini``, where 0 is.

    ``max_over_mean`` is of the whole log. ``in_time`` is the same within each time bucket, weighted by its load: a
    consumer that must keep up at every moment is that much slower than it could be. ``p99`` is the load that 99 % of
    the buckets of partitions do not exceed, over their mean.
    """

    max_over_mean: float
    gini: float
    in_time: float
    p99: float


@dataclass(frozen=True, slots=True)
class MeasuredCandidate:
    """A candidate with N partitions: evenness by rows and bytes, and violations with cases and a pair per guarantee."""

    candidate: Candidate
    partitions: int
    rows: Evenness
    bytes: Evenness
    unplaced: int
    broken: Mapping[str, tuple[int, int]]
    pairs: Mapping[str, list[dict[str, Any]]]

    @property
    def uneven(self) -> float:
        """The larger of rows and bytes."""
        return max(self.rows.max_over_mean, self.bytes.max_over_mean)


def evenness(load: Load) -> Evenness:
    """Evenness of a load (time buckets, partitions); NaN where there is none."""
    n, total = load.shape[1], load.sum(axis=0)
    whole = total.sum()
    if not whole:
        return Evenness(*[float("nan")] * 4)
    cells = load[load.sum(axis=1) > 0]
    return Evenness(
        float(total.max() * n / whole),
        gini(total),
        float(cells.max(axis=1).sum() * n / whole),
        float(np.percentile(cells, 99) / cells.mean()),
    )


def measured(what_if: WhatIf, table: str, candidates: Sequence[Candidate], partitions: int) -> list[MeasuredCandidate]:
    """Every candidate of a table that the what-if has, with N partitions."""
    offered = set(what_if.candidates_of(table))
    found = [c for c in candidates if c.name in offered]
    rows = int(load_of(what_if, table, "table", partitions).sum())
    return [m for c in found if (m := _measured(what_if, table, c, partitions, rows)) is not None]


def load_of(what_if: WhatIf, table: str, candidate: str, partitions: int, *, weight: str = "rows") -> Load:
    """Load of one table (time buckets, partitions)."""
    return what_if.load(strategy=candidate, partitions=partitions, weight=weight, tables=[table])


def _measured(what_if: WhatIf, table: str, c: Candidate, partitions: int, rows: int) -> MeasuredCandidate | None:
    try:
        loads = {w: load_of(what_if, table, c.name, partitions, weight=w) for w in ("rows", "bytes")}
        frame = what_if.guarantees(strategy=c.name, partitions=partitions, tables=[table])
    except DispatchError:
        if not c.refused:
            raise
        return None  # conflict detection is run with a few partition counts only
    mine = [r for r in frame.to_dict("records") if r["table"] == table]
    return MeasuredCandidate(
        c,
        partitions,
        evenness(loads["rows"]),
        evenness(loads["bytes"]),
        rows - int(loads["rows"].sum()),
        {r["guarantee"]: (int(r["violations"]), int(r["cases"])) for r in mine},
        {r["guarantee"]: r["counterexample"] for r in mine if r["counterexample"]},
    )

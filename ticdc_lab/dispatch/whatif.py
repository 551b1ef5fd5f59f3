"""What another dispatcher would do, answered in milliseconds from narrow facts held in memory.

:class:`WhatIf` brings one row per row change to the driver, once and bounded, with its hash by each candidate. Its
numbers are those of :mod:`ticdc_lab.dispatch.guarantees`, computed with numpy, without a Spark job.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from ticdc_lab.catalog import Catalog
from ticdc_lab.dispatch.changes import first_changes
from ticdc_lab.dispatch.strategies import ADDED, dispatch
from ticdc_lab.dispatch.whatif_facts import Facts, Pairs, facts_of
from ticdc_lab.errors import DispatchError
from ticdc_lab.schema import require_batch

Ints = npt.NDArray[np.int64]
MAX_ROWS = 1_000_000


def candidate_name(strategy: str, *, index: str | None = None, columns: Sequence[str] | None = None) -> str:
    """The name of a strategy with its arguments: ``ts``, ``index-value:uk``, ``columns:a,b``."""
    strategy = {"default": "table", "rowid": "index-value"}.get(strategy.lower(), strategy.lower())
    if strategy == "columns":
        return "columns:" + ",".join(columns or ())
    return f"{strategy}:{index}" if index and strategy == "index-value" else strategy


@dataclass(frozen=True)
class WhatIf:
    """Facts of a log in memory; build it with :meth:`from_events`.

    ``note`` says in a sentence what part of the log is covered; empty where it is all of it.
    """

    facts: Facts
    hashes: Mapping[str, npt.NDArray[np.uint64]]
    known: Mapping[str, npt.NDArray[np.bool_]]
    errors: Mapping[str, str]
    note: str = ""

    @classmethod
    def from_events(
        cls,
        events: DataFrame,
        catalog: Catalog | None = None,
        *,
        indexes: Sequence[str] = (),
        columns: Iterable[Sequence[str]] | Mapping[str, Iterable[Sequence[str]]] = (),
        max_rows: int = MAX_ROWS,
    ) -> WhatIf:
        """Collect the facts: one Spark job that counts, one that finds the cut in a large log, one that collects.

        Parameters
        ----------
        events
            The events contract.
        catalog
            Table definitions; gives the unique indexes, and is needed for ``indexes``.
        indexes
            Names of indexes to offer for ``index-value``.
        columns
            Lists of columns to offer for ``columns``: on every table, or by table (``schema.table``).
        max_rows
            About how many row events to bring to the driver at most. Of a larger log the first transactions are taken,
            whole, so that the numbers are exact for that part; :attr:`note` says which.
        """
        require_batch(
            events, function="WhatIf.from_events", why="the previous change of a row may be anywhere before it"
        )
        if isinstance(columns, Mapping):
            columns = dict.fromkeys(tuple(c) for lists in columns.values() for c in lists)
        rows, note, cut = _bounded(events.where("kind = 'row'"), max_rows)
        asked: dict[str, dict[str, Any]] = {"index-value": {}, "tidb-rowid": {}}
        asked |= {candidate_name("index-value", index=i): {"index": i} for i in indexes}
        asked |= {candidate_name("columns", columns=c): {"columns": list(c)} for c in columns}
        carry: list[str] = []
        for n, (name, arguments) in enumerate(asked.items()):
            rows = rows.transform(dispatch, strategy=name.partition(":")[0], partitions=1, catalog=catalog, **arguments)
            rows = rows.withColumns({f"_h{n}": _bits(), f"_e{n}": F.col("dispatch_error")}).drop(*ADDED)
            carry += [f"_h{n}", f"_e{n}"]
        collected = first_changes(rows, catalog=catalog, carry=tuple(carry)).toArrow()
        facts, order = facts_of(collected)
        if cut and len(facts.commit_ts):
            note = f"{note} Covers the log up to commit_ts {facts.commit_ts.max()}, {cut}.".strip()
        hashes, known, errors = {}, {}, {}
        for n, name in enumerate(asked):
            column = collected[f"_h{n}"]
            known[name] = np.asarray(column.is_valid())[order]
            hashes[name] = column.fill_null(0).to_numpy()[order].view(np.uint64)
            texts = collected[f"_e{n}"].drop_null()
            errors[name] = texts[0].as_py() if len(texts) else ""
        if catalog is None:
            facts = replace(facts, pairs={k: p for k, p in facts.pairs.items() if k != "row_order_any_unique"})
        return cls(facts, hashes, known, errors, note)

    @property
    def candidates(self) -> list[str]:
        """Strategies that can be asked for, by the names of :func:`candidate_name`."""
        return ["table", "ts", *self.hashes]

    def candidates_of(self, table: str) -> list[str]:
        """Candidates of a table."""
        self._mask([table], None)
        return self.candidates

    def load(
        self,
        *,
        strategy: str,
        partitions: int,
        weight: str = "rows",
        tables: Sequence[str] | None = None,
        buckets: int = 48,
    ) -> Ints:
        """Load over time: array (time buckets, partitions) of row changes; bytes are not known here."""
        target = self._targets(strategy, partitions, None, None)
        inside = self._mask(tables, None) & (target >= 0)
        ms = self.facts.commit_ts >> 18
        first, span = (int(ms.min()), int(ms.max() - ms.min()) + 1) if len(ms) else (0, 1)
        cell = ((ms - first) * buckets // span)[inside] * partitions + target[inside]
        return np.bincount(cell, minlength=buckets * partitions).reshape(buckets, partitions)

    @property
    def tables(self) -> list[str]:
        """Tables of the log, ``schema.table``, sorted."""
        return list(self.facts.tables)

    def guarantees(
        self,
        *,
        strategy: str,
        partitions: int,
        index: str | None = None,
        columns: Sequence[str] | None = None,
        tables: Sequence[str] | None = None,
        ts_range: tuple[int, int] | None = None,
    ) -> pd.DataFrame:
        """Measure a strategy, as :func:`ticdc_lab.dispatch.guarantees.guarantees` does.

        Parameters
        ----------
        strategy, index, columns
            One of :attr:`candidates`, by its name or by its parts.
        partitions
            Number of partitions, N.
        tables
            Only these (``schema.table``); default all.
        ts_range
            Only changes with commit_ts (TSO) from the first to the second, both included.

        Returns
        -------
        pandas.DataFrame
            ``guarantee``, ``table`` (None for all), ``cases``, ``violations``, ``undecided``, ``counterexample`` (list
            of two dicts ``target_partition, partition, offset, seq, commit_ts, key``, or None).
        """
        target = self._targets(strategy, partitions, index, columns)
        mask = self._mask(tables, ts_range)
        out: list[dict[str, Any]] = []
        for name, pairs in self.facts.pairs.items():
            out += self._pair_rows(name, pairs, target, mask)
        out += self._transaction_rows(target, mask)
        return pd.DataFrame(out)

    def balance(
        self,
        *,
        strategy: str,
        partitions: int,
        index: str | None = None,
        columns: Sequence[str] | None = None,
        tables: Sequence[str] | None = None,
        ts_range: tuple[int, int] | None = None,
    ) -> pd.DataFrame:
        """Count row changes per partition: ``target_partition``, ``rows``, ``share``.

        Parameters are those of :meth:`guarantees`.
        """
        target = self._targets(strategy, partitions, index, columns)
        counts = np.bincount(target[self._mask(tables, ts_range) & (target >= 0)], minlength=partitions)
        share = counts / counts.sum() if counts.sum() else np.full(partitions, np.nan)
        return pd.DataFrame({"target_partition": np.arange(partitions), "rows": counts, "share": share})

    def failed(
        self, *, strategy: str, index: str | None = None, columns: Sequence[str] | None = None
    ) -> tuple[int, str]:
        """How many changes the strategy cannot dispatch, and the reason for one of them."""
        name = self._name(strategy, index, columns)
        return (int((~self.known[name]).sum()), self.errors[name]) if name in self.known else (0, "")

    def skew_curve(
        self,
        strategies: Sequence[str] | None = None,
        partitions: Iterable[int] = range(1, 129),
        *,
        tables: Sequence[str] | None = None,
        ts_range: tuple[int, int] | None = None,
    ) -> pd.DataFrame:
        """Unevenness over the number of partitions: ``strategy``, ``partitions``, ``max_over_mean`` (1 is even)."""
        mask = self._mask(tables, ts_range)
        out = []
        for name in self.candidates if strategies is None else strategies:
            h, known = self._hash(self._name(name, None, None))
            values, counts = np.unique(h[mask & known], return_counts=True)
            for n in partitions if len(values) else ():
                load = np.bincount((values % np.uint64(n)).astype(np.int64), weights=counts, minlength=n)
                out.append({"strategy": name, "partitions": n, "max_over_mean": load.max() * n / load.sum()})
        return pd.DataFrame(out, columns=["strategy", "partitions", "max_over_mean"])

    def _name(self, strategy: str, index: str | None, columns: Sequence[str] | None) -> str:
        name = strategy if ":" in strategy else candidate_name(strategy, index=index, columns=columns)
        if name not in self.candidates:
            raise DispatchError(
                f"The what-if was not prepared for {name!r}; it was for {self.candidates}.",
                hint="Build it with WhatIf.from_events(..., indexes=[...], columns=[[...]]).",
            )
        return name

    def _hash(self, name: str) -> tuple[npt.NDArray[np.uint64], npt.NDArray[np.bool_]]:
        f = self.facts
        if name == "ts":
            return f.commit_ts.view(np.uint64), np.ones(len(f.commit_ts), dtype=np.bool_)
        if name == "table":
            crc = np.array([zlib.crc32("".join(f.names[t]).encode()) for t in f.tables], dtype=np.uint64)
            return crc[f.table], np.ones(len(f.table), dtype=np.bool_)
        return self.hashes[name], self.known[name]

    def _targets(self, strategy: str, partitions: int, index: str | None, columns: Sequence[str] | None) -> Ints:
        """Partition of every change; -1 where it is not known."""
        if not 1 <= partitions < 2**31:
            raise DispatchError(f"partitions must be from 1 to {2**31 - 1}; found {partitions}.")
        h, known = self._hash(self._name(strategy, index, columns))
        return np.where(known, (h % np.uint64(partitions)).astype(np.int64), -1)

    def _mask(self, tables: Sequence[str] | None, ts_range: tuple[int, int] | None) -> npt.NDArray[np.bool_]:
        f = self.facts
        mask = np.ones(len(f.table), dtype=np.bool_)
        if tables is not None:
            unknown = set(tables) - set(f.tables)
            if unknown:
                raise DispatchError(f"The log holds no change of {sorted(unknown)}.")
            mask &= np.isin(f.table, [i for i, t in enumerate(f.tables) if t in set(tables)])
        if ts_range is not None:
            mask &= (f.commit_ts >= ts_range[0]) & (f.commit_ts <= ts_range[1])
        return mask

    def _pair_rows(self, name: str, pairs: Pairs, target: Ints, mask: npt.NDArray[np.bool_]) -> list[dict[str, Any]]:
        inside = mask[pairs.previous] & mask[pairs.current]
        previous, current = pairs.previous[inside], pairs.current[inside]
        decided = (target[previous] >= 0) & (target[current] >= 0)
        broken = decided & (target[previous] != target[current])

        def evidence(i: int) -> tuple[int, int]:
            return int(previous[i]), int(current[i])

        return self._rows(name, self.facts.table[current], decided, broken, current, evidence, target, mask)

    def _transaction_rows(self, target: Ints, mask: npt.NDArray[np.bool_]) -> list[dict[str, Any]]:
        f = self.facts
        rows = np.flatnonzero(mask)
        if not len(rows):
            return []
        starts = np.flatnonzero(np.diff(f.group[rows], prepend=-1))
        group, table = f.group[rows][starts], f.table[rows][starts]
        t = target[rows]
        low = np.minimum.reduceat(np.where(t < 0, np.iinfo(np.int64).max, t), starts)
        high = np.maximum.reduceat(t, starts)
        decided = high >= 0
        torn = decided & (low != high)
        pairs = f.pairs["row_order"]
        moved = (
            (target[pairs.previous] >= 0) & (target[pairs.current] >= 0) & mask[pairs.previous] & mask[pairs.current]
        )
        moved &= target[pairs.previous] != target[pairs.current]
        moved &= f.commit_ts[pairs.previous] < f.commit_ts[pairs.current]
        hits = np.flatnonzero(moved)
        overtaken = decided & np.isin(group, f.group[pairs.current[hits]])
        ends = np.append(starts[1:], len(rows))

        def between(i: int) -> tuple[int, int]:
            part = rows[starts[i] : ends[i]]
            part = part[target[part] >= 0]
            return int(part[np.argmin(target[part])]), int(part[np.argmax(target[part])])

        def before(i: int) -> tuple[int, int]:
            hit = hits[np.flatnonzero(f.group[pairs.current[hits]] == group[i])[0]]
            return int(pairs.previous[hit]), int(pairs.current[hit])

        def either(i: int) -> tuple[int, int]:
            return between(i) if torn[i] else before(i)

        out: list[dict[str, Any]] = []
        kinds: list[tuple[str, npt.NDArray[np.bool_], Callable[[int], tuple[int, int]]]] = [
            ("transactions", torn | overtaken, either),
            ("transactions_torn", torn, between),
            ("transactions_overtakable", overtaken, before),
        ]
        for name, broken, evidence in kinds:
            out += self._rows(name, table, decided, broken, rows[starts], evidence, target, mask)
        return out

    def _rows(
        self,
        name: str,
        table: Ints,
        decided: npt.NDArray[np.bool_],
        broken: npt.NDArray[np.bool_],
        at: Ints,
        evidence: Callable[[int], tuple[int, int]],
        target: Ints,
        mask: npt.NDArray[np.bool_],
    ) -> list[dict[str, Any]]:
        """Per table of the selection and in total."""
        f = self.facts
        n = len(f.tables)
        cases = np.bincount(table[decided], minlength=n)
        violations = np.bincount(table[broken], minlength=n)
        undecided = np.bincount(table[~decided], minlength=n)
        hits = np.flatnonzero(broken)
        hits = hits[np.argsort(f.commit_ts[at[hits]], kind="stable")]
        first = {int(t): int(i) for t, i in zip(table[hits][::-1], hits[::-1], strict=True)}

        def row(label: str | None, c: int, v: int, u: int, hit: int | None) -> dict[str, Any]:
            shown = None if hit is None else [f.position(i, int(target[i])) for i in evidence(hit)]
            values = {"cases": int(c), "violations": int(v), "undecided": int(u), "counterexample": shown}
            return {"guarantee": name, "table": label, **values}

        selected = np.flatnonzero(np.bincount(f.table[mask], minlength=n))
        total = row(None, cases.sum(), violations.sum(), undecided.sum(), int(hits[0]) if len(hits) else None)
        return [row(f.tables[t], cases[t], violations[t], undecided[t], first.get(int(t))) for t in selected] + (
            [total] if len(selected) else []
        )


def _bits() -> Any:
    """The decimal dispatch key, up to 2^64 - 1, as the bigint of the same 64 bits."""
    key = F.col("dispatch_key").cast("decimal(20,0)")
    two_to_64 = F.lit("18446744073709551616").cast("decimal(20,0)")
    return (
        F.when(key < F.lit("9223372036854775808").cast("decimal(20,0)"), key).otherwise(key - two_to_64).cast("bigint")
    )


def _bounded(rows: DataFrame, max_rows: int) -> tuple[DataFrame, str, str]:
    """Rows of the first transactions that fit, what is left out, and how much of the log that is."""
    counts = rows.agg(F.count("*"), F.count("commit_ts")).first()
    n, timed = (counts[0], counts[1]) if counts is not None else (0, 0)
    note = "" if n == timed else f"{n - timed:,} of {n:,} row events have no commit_ts and are left out."
    if timed <= max_rows:
        return rows, note, ""
    share = max_rows / timed
    cut = rows.agg(F.percentile_approx("commit_ts", share, 10_000)).first()
    kept = rows.where(F.col("commit_ts") <= (cut[0] if cut is not None else 0))
    return kept, note, f"about the first {share:.0%} of its {timed:,} row events"

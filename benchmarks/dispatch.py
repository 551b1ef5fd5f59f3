"""Dispatch beside decoding and beside its peers, same input, same run.

    python benchmarks/dispatch.py --events 1000000 [--rounds 3] [--protocol canal-json] [--json out.json]

Every contestant gives the number of rows of each of 16 partitions, so that the partition of every row is computed.
Each round runs all once, in turn; the table gives medians, and the ratio to decoding (the full events table, nothing
written). ``cpu`` counts the JVM, its Python workers and the peers' processes: it shows more than ``wall`` on a machine
that does other work. Inputs are as in ``make_inputs.py``.
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
import time
import zlib
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from make_inputs import COLUMNS, MYSQL, TABLES
from pyspark.sql import DataFrame
from run import HERE, Meter, measured, noop, script

from ticdc_lab.codecs.kernel import numbering as S
from ticdc_lab.codecs.kernel.arrow import spans, texts
from ticdc_lab.codecs.kernel.batch import KERNELS
from ticdc_lab.codecs.kernel.crcs import fill_crcs, fresh_crcs
from ticdc_lab.codecs.kernel.faults import OK
from ticdc_lab.codecs.kernel.noted import NOTHING_NOTED
from ticdc_lab.codecs.kernel.state import State, fresh_state
from ticdc_lab.dispatch import dispatch
from ticdc_lab.engine.sessions import session
from ticdc_lab.events.schema import DISPATCH
from ticdc_lab.facts.catalog import Catalog
from ticdc_lab.facts.definitions import ColumnDef, IndexDef, TableDef
from ticdc_lab.sources.change_log import ChangeLog
from ticdc_lab.sources.load import load

N = 16
DECODING = "decoding, full events table"
GO_ROWS_S = {
    "table": 8_000_000,
    "ts": 36_900_000,
    "index-value, pk bigint": 7_200_000,
    "index-value:unique(varchar, int)": 4_700_000,
    "columns:owner": 4_500_000,
    "columns:owner,amount,id": 2_300_000,
}
"""TiCDC's own dispatchers: rows a second of one goroutine, N = 16, rows already decoded in memory, as measured with the
golden data on a machine like this (its README, section 7)."""

_INDEX = IndexDef(1, "uk_owner_ver", ("owner", "ver"), unique=True)
_COLUMNS = tuple(ColumnDef(name, MYSQL[name], nullable=name == "at") for name in COLUMNS)
CATALOG = Catalog.from_definitions(
    [TableDef("bank", f"accounts_{t}", _COLUMNS, (_INDEX,), pk_is_handle=True) for t in range(TABLES)]
)
ASKED = {
    "table": {"strategy": "table"},
    "ts": {"strategy": "ts"},
    "index-value": {"strategy": "index-value"},
    "index-value:uk(owner, ver)": {"strategy": "index-value", "index": "uk_owner_ver", "catalog": CATALOG},
    "columns:owner,balance": {"strategy": "columns", "columns": ["owner", "balance"]},
}

_KEY = "list_filter(coalesce(columns, before), lambda c: c.is_key)[1].value"
_DUCKDB = (
    "import duckdb,sys; c=duckdb.connect(); c.execute('set threads=2');"
    'c.execute("select (hash(schema_name || table_name) ^ {key}) % 16 p, count(*) from'
    " read_parquet('\" + sys.argv[1] + \"/*.parquet') where kind='row' group by p\").fetchall()"
)
_POLARS = (
    "import polars as pl,sys; pl.scan_parquet(sys.argv[1]+'/*.parquet').filter(pl.col('kind')=='row').select("
    "p=((pl.col('schema_name')+pl.col('table_name')).hash()^{key})%16).group_by('p').len().collect(engine='streaming')"
)
_POLARS_KEY = (
    "pl.coalesce('columns','before').list.filter(pl.element().struct.field('is_key')).list.first()"
    ".struct.field('value').hash()"
)
PEERS = {
    "DuckDB, key from images, its own hash": _DUCKDB.format(key=f"hash({_KEY})"),
    "DuckDB, key_crc ready, its own hash of the table": _DUCKDB.format(key="key_crc::ubigint"),
    "polars, key from images, its own hash": _POLARS.format(key=_POLARS_KEY),
    "polars, key_crc ready, its own hash of the table": _POLARS.format(key="pl.col('key_crc').cast(pl.UInt64)"),
}
"""Neither has a crc32: a hash of their own is less work for them, and gives other partitions."""


def counted(events: DataFrame, **asked: object) -> list[int]:
    """Rows of each partition."""
    found = events.transform(dispatch, partitions=N, **asked).where("kind = 'row'").groupBy("target_partition").count()
    counts = {row[0]: row[1] for row in found.collect()}
    return [counts.pop(p, 0) for p in range(N)] + [sum(counts.values())]


def contestants(log: ChangeLog, kept: ChangeLog, folder: str) -> dict[str, Callable[[], object]]:
    """What runs in turn, decoding first."""
    runs: dict[str, Callable[[], object]] = {DECODING: lambda: noop(log.decoded)}
    if log.narrow is not None:
        runs["decoding without images"] = lambda: noop(log.narrow)
    for name, asked in ASKED.items():
        runs[f"dispatch {name}"] = lambda asked=asked: counted(kept.events, **asked)
    images = kept.events.drop(*DISPATCH.names)
    runs["dispatch index-value, from images"] = lambda: counted(images, **ASKED["index-value"])
    return runs | {name: script(code, Path(folder)) for name, code in PEERS.items()}


def in_plain_python(folder: str, rows: int = 200_000) -> float:
    """Rows a second of zlib and a loop: the key is looked for in the image, as a user's script would."""
    file = next(iter(sorted(Path(folder).glob("*.parquet"))))
    columns = ["kind", "op", "schema_name", "table_name", "columns", "before"]
    table = next(pq.ParquetFile(file).iter_batches(rows, columns=columns))
    start, counts = time.process_time(), [0] * N
    for row in table.to_pylist():
        if row["kind"] == "row":
            h = zlib.crc32((row["schema_name"] + row["table_name"]).encode())
            for c in row["before"] if row["op"] == "delete" else row["columns"]:
                if c["is_key"]:
                    h ^= zlib.crc32((c["name"] + c["value"]).encode())
            counts[h % N] += 1
    return table.num_rows / (time.process_time() - start)


def filled(path: Path, protocol: str) -> State:
    """One batch decoded to the kernels' own memory."""
    batch = next(pq.ParquetFile(path).iter_batches(10_000, columns=["key", "value"]))
    keys, values = spans(batch["key"]), spans(batch["value"])
    st = fresh_state(batch.num_rows + len(values[0]) // 24 + 64, 2 * (len(keys[0]) + len(values[0])) + 4096)
    faults, topics = np.zeros((batch.num_rows, 2), np.int64), np.zeros(0, np.int64)
    assert KERNELS[protocol](*keys, *values, st, faults, topics, NOTHING_NOTED) == OK
    return st


def partitions_of(st: State, key: np.ndarray) -> np.ndarray:
    """Partitions by index-value from the crcs of the keys and the names of the tables, in numpy."""
    n = int(st.count[S.N_EVENTS])
    names = [texts(st, k, n, pa.string()).dictionary_encode() for k in (S.SCHEMA_NAME, S.TABLE_NAME)]
    schemas, tables = ([t.encode() for t in column.dictionary.to_pylist()] for column in names)
    crc = np.array([[zlib.crc32(s + t) for t in tables] for s in schemas], np.int64)
    schema, table = (column.indices.fill_null(0).to_numpy() for column in names)
    return (crc[schema, table] ^ key & 0xFFFFFFFF) % N


def bare(path: Path, protocol: str, times: int = 200) -> dict[str, float]:
    """Rows a second of one core (CPU time), rows decoded in memory: crcs of all columns, then partitions."""
    st = filled(path, protocol)
    n, spent = int(st.count[S.N_EVENTS]), {"crcs of all five columns": [], "partitions from key crcs": []}
    for _ in range(times):
        start = time.thread_time()
        crcs = fresh_crcs(st)
        fill_crcs(st, crcs)
        between = time.thread_time()
        partitions_of(st, crcs.key)
        end = time.thread_time()
        for name, s in zip(spent, (between - start, end - between), strict=True):
            spent[name].append(s)
    each = {name: float(np.median(s)) for name, s in spent.items()}
    return {name: n / s for name, s in each.items()} | {"both": n / sum(each.values())}


def report(found: dict[str, dict[str, float]], n: int) -> None:
    """The table that goes into the docs/benchmarks.md."""
    print("| | wall s | cpu s | times decoding (wall) | (cpu) | million rows/s |\n|---|---|---|---|---|---|")
    first = found[DECODING]
    for name, m in found.items():
        wall, cpu = m["wall_s"] / first["wall_s"], m["cpu_s"] / first["cpu_s"]
        cells = (f"{m['wall_s']:.2f}", f"{m['cpu_s']:.1f}", f"{wall:.3f}", f"{cpu:.3f}", f"{n / m['wall_s'] / 1e6:.2f}")
        print(f"| {name} | {' | '.join(cells)} |")


def main() -> None:
    """Run everything for one size."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--events", type=int, default=1_000_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--protocol", choices=list(KERNELS), action="append")
    parser.add_argument("--folder", type=Path, default=HERE / "out")
    parser.add_argument("--driver-memory", default="4g")
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    spark, whole = session("spark", driver_memory=args.driver_memory), {}
    for protocol in args.protocol or list(KERNELS):
        print(f"\n### {protocol}, {args.events:,} row changes, load average {os.getloadavg()[0]:.1f}\n")
        path = args.folder / f"{protocol}_{args.events}.parquet"
        log = load(spark, str(path), protocol=protocol)
        with tempfile.TemporaryDirectory() as above:
            folder = f"{above}/events"
            kept: list[ChangeLog] = []
            written = Meter().time(lambda log=log, folder=folder, kept=kept: kept.append(log.materialise(folder)))
            size = sum(f.stat().st_size for f in Path(folder).glob("*.parquet"))
            by_key = [
                counted(e, **ASKED["index-value"]) for e in (kept[0].events, kept[0].events.drop(*DISPATCH.names))
            ]
            assert by_key[0] == by_key[1] and sum(by_key[0]) == args.events, by_key
            found = measured(contestants(log, kept[0], folder), args.rounds)
            report(found, args.events)
            python = in_plain_python(folder)
        print(
            f"\nDecoded once into Parquet: {written['wall_s']:.1f} s, {written['cpu_s']:.1f} s cpu, {size >> 20} MiB."
        )
        print("\n| rows a second of one core, rows in memory | million |\n|---|---|")
        rates = {f"ours: {k}": v for k, v in bare(path, protocol).items()} | {"zlib in a Python loop": python}
        for name, rate in (rates | {f"TiCDC, one goroutine: {k}": v for k, v in GO_ROWS_S.items()}).items():
            print(f"| {name} | {rate / 1e6:.1f} |")
        print(f"\nload average after: {os.getloadavg()[0]:.1f}")
        whole[protocol] = {"contestants": found, "materialise": written, "rates": rates, "load": os.getloadavg()}
    if args.json:
        args.json.write_text(json.dumps(whole, indent=1))


if __name__ == "__main__":
    main()

"""Conflict-detection dispatch over materialised events, beside plain Python dicts and DuckDB ordering the same rows.

    python benchmarks/conflict.py [--rows 3000000] [--rounds 3] [--case tables] [--engine embedded]

``tables``: 20 tables of different sizes; ``one``: the same rows in one table, so that one task does it all;
``unique``: one table with a second unique index, whose values are hashed from the images. The input is written once, as
``ChangeLog.materialise`` would: rows of eight partitions, each in commit order, two or three changes a transaction, ten
changes a row. Ours is the whole query, from Parquet to a target and an alignment of every row (written to nowhere, or
to files). The plain peer reads the same columns with pyarrow, sorts them with numpy and then goes row by row; DuckDB
only orders them, which is the least that any ordered pass must do.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

sys.path.insert(0, str(Path(__file__).parent))
from run import Meter, noop

from ticdc_lab.dispatch.conflict import conflict_placements
from ticdc_lab.engine.sessions import session
from ticdc_lab.facts.catalog import Catalog
from ticdc_lab.facts.definitions import ColumnDef, IndexDef, TableDef

START_TS, N = 470_603_000_000_000_000, 16
CASES = ("tables", "one", "unique")
_IMAGE = "array<struct<name: string, mysql_type: string, value: string, is_key: boolean, flags: bigint>>"


def made(spark: SparkSession, rows: int, case: str) -> DataFrame:
    """Updates of a bank's accounts; each gives a new unique value to its row."""
    at = spark.range(rows, numPartitions=16)
    table = F.sqrt(F.pmod(F.xxhash64(F.col("id") + 1), F.lit(400))).cast("int") if case == "tables" else F.lit(0)
    key = F.pmod(F.xxhash64("id"), F.lit(rows // 10))
    owner = F.concat(F.lit("own_"), key.cast("string"), F.lit("_"), F.pmod(F.xxhash64("id") + 7, F.lit(3)))

    def image(value: F.Column) -> F.Column:
        def column(name: str, kind: str, text: F.Column, is_key: bool = False) -> F.Column:
            fields = (F.lit(name), F.lit(kind), text, F.lit(is_key), F.lit(None).cast("bigint"))
            names = ("name", "mysql_type", "value", "is_key", "flags")
            return F.struct(*[f.alias(n) for f, n in zip(fields, names, strict=True)])

        cells = (column("id", "bigint", key.cast("string"), True), column("owner", "varchar", value))
        return F.array(*cells, column("balance", "bigint", F.hash("id").cast("string"))).cast(_IMAGE)

    known = at.withColumns(
        {"table_name": F.concat(F.lit("accounts_"), table.cast("string")), "schema_name": F.lit("bank")}
    )
    hashed = F.xxhash64("schema_name", "table_name", F.array(key.cast("string")))
    commit_ts = F.lit(START_TS) + F.shiftleft((F.col("id") / 2.5).cast("bigint"), 18)
    return known.select(
        F.lit("row").alias("kind"), commit_ts.alias("commit_ts"),
        "schema_name", "table_name", F.lit("update").alias("op"), image(owner).alias("columns"),
        image(F.concat(owner, F.lit("x"))).alias("before"), F.lit(None).cast("string").alias("query"),
        F.lit("bench").alias("topic"), F.pmod(hashed, F.lit(8)).cast("int").alias("partition"),
        F.col("id").alias("offset"), F.lit(0).alias("seq"), hashed.alias("key_hash"),
        F.lit(None).cast("bigint").alias("before_key_hash"), F.xxhash64("id").alias("change_hash"),
    )  # fmt: skip


def catalog(case: str) -> Catalog:
    """What the tables are."""
    columns = (ColumnDef("id", "bigint", False), ColumnDef("owner", "varchar", False), ColumnDef("balance", "bigint"))
    indexes = (IndexDef(1, "PRIMARY", ("id",), True, True), IndexDef(2, "uk", ("owner",), True))
    own = indexes if case == "unique" else indexes[:1]
    return Catalog.from_definitions([TableDef("bank", f"accounts_{i}", columns, own, True) for i in range(20)])


_PLAIN = """
import sys, numpy as np, pyarrow.parquet as pq
t = pq.read_table(sys.argv[1], columns=['table_name', 'commit_ts', 'key_hash', 'partition', 'offset'])
name = t['table_name'].combine_chunks().dictionary_encode().indices.to_numpy()
ts, key = t['commit_ts'].to_numpy(), t['key_hash'].to_numpy()
order = np.lexsort((ts, name))
name, ts, key = name[order].tolist(), ts[order].tolist(), key[order].view(np.uint64).tolist()
n, rows, i, last, target, number = 16, len(ts), 0, None, [], []
while i < rows:
    if name[i] != last:
        last, known, alignment = name[i], {}, 0
    end = i + 1
    while end < rows and ts[end] == ts[i] and name[end] == last:
        end += 1
    keys = key[i:end]
    homes = {known[k] for k in keys if k in known}
    if len(homes) > 1 or len(known) > 4_000_000:
        known, homes, alignment = {}, (), alignment + 1
    home = homes.pop() if homes else min(keys) % n
    for k in keys:
        known[k] = home
    target += [home] * (end - i)
    number += [alignment] * (end - i)
    i = end
print(sum(target), max(number), file=sys.stderr)
"""
_DUCKDB = """
import sys, duckdb
c = duckdb.connect()
c.execute('set threads=2')
c.execute(f"create table t as select topic, schema_name, table_name, commit_ts, partition, \\"offset\\", seq, key_hash "
          f"from '{sys.argv[1]}/*.parquet' order by schema_name, table_name, commit_ts")
"""


def peer(code: str, path: Path) -> Callable[[], object]:
    """A peer in a process of its own."""
    return lambda: subprocess.run([sys.executable, "-c", code, str(path)], check=True, stderr=subprocess.DEVNULL)


def contestants(spark: SparkSession, path: Path, case: str, out: str) -> dict[str, Callable[[], object]]:
    """Ours first."""
    placed = conflict_placements(spark.read.parquet(str(path)), partitions=N, catalog=catalog(case))
    runs: dict[str, Callable[[], object]] = {
        "ticdc_lab": lambda: noop(placed),
        "ticdc_lab, into Parquet": lambda: placed.write.mode("overwrite").parquet(f"{out}/placed"),
    }
    if case != "unique":
        runs["plain Python dicts"] = peer(_PLAIN, path)
    return runs | {"DuckDB, order only": peer(_DUCKDB, path)}


def main() -> None:
    """Run every case."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=3_000_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--engine", choices=["spark", "embedded"], default="spark")
    parser.add_argument("--case", choices=CASES, action="append")
    parser.add_argument("--folder", type=Path, default=Path(__file__).parent / "out")
    args = parser.parse_args()
    spark = session(args.engine, cores=2)
    for case in args.case or CASES:
        path = args.folder / f"conflict_{case}_{args.rows}"
        if not path.exists():
            made(spark, args.rows, case).write.option("compression", "zstd").parquet(str(path))
        with tempfile.TemporaryDirectory() as out:
            runs = contestants(spark, path, case, out)
            seen: dict[str, list[dict[str, float]]] = {name: [] for name in runs}
            for i in range(args.rounds + 1):
                for name, run in runs.items():
                    m = Meter().time(run)
                    print(f"  round {i} {name}: {m['wall_s']:.2f} s", file=sys.stderr, flush=True)
                    if i:
                        seen[name].append(m)
        load = os.getloadavg()[0]
        print(f"\n### {case}, {args.rows:,} rows, load average {load:.1f}\n")
        print("| | wall s | rows/s | cpu s | peak GiB | ratio |\n|---|---|---|---|---|---|")
        median = {name: {k: statistics.median(m[k] for m in ms) for k in ms[0]} for name, ms in seen.items()}
        for name, m in median.items():
            ratio = m["wall_s"] / median["ticdc_lab"]["wall_s"]
            cells = (
                f"{m['wall_s']:.2f}",
                f"{args.rows / m['wall_s']:,.0f}",
                f"{m['cpu_s']:.1f}",
                f"{m['peak_gib']:.2f}",
            )
            print(f"| {name} | {' | '.join(cells)} | {ratio:.2f} |")


if __name__ == "__main__":
    main()

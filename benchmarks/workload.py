"""The workload generator beside generators written by hand, same columns, same run.

    python benchmarks/workload.py [--rows 1000000] [--rounds 2] [--kind bank --kind tpcc --kind hot-keys] [--no-peers]

The peers make rows of the bank's columns and types from the row's number alone: hashes, no history, so that an image
before has nothing to do with the change before it. ``noop`` makes every column of every row and throws it away;
``Parquet`` writes them. Rounds, CPU time and peak memory as in ``run.py``.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from run import measured, noop, report

from ticdc_lab.engine.sessions import session
from ticdc_lab.workload import KINDS, Workload, generate, generate_into, log_of

PEER = "Spark expressions by hand, noop (no history)"


def by_hand(spark: SparkSession, rows: int) -> DataFrame:
    """Two updates of an account and an insert into the journal, again and again, by Spark's own expressions."""

    def cell(name: str, mysql_type: str, value: Column, *, is_key: bool = False) -> Column:
        return F.struct(
            F.lit(name).alias("name"), F.lit(mysql_type).alias("mysql_type"), value.cast("string").alias("value"),
            F.lit(is_key).alias("is_key"), F.lit(None).cast("bigint").alias("flags"),
        )  # fmt: skip

    n, third = F.col("id"), F.col("id") % 3
    names = F.array(*map(F.lit, ("Ada Lovelace", "李明", "Søren Åkerlund", "José Muñoz", "Ольга", "O'Brien")))
    at = F.timestamp_seconds(F.expr("1795258305 + id div 10000")).cast("string")

    def account(salt: int) -> Column:
        h = F.xxhash64("id", F.lit(salt))
        return F.array(
            cell("id", "bigint(20) unsigned", n % 100_000, is_key=True),
            cell("owner", "varchar(64)", F.get(names, F.pmod(h, F.lit(6)).cast("int"))),
            cell("balance", "decimal(20,2)", (F.pmod(h, F.lit(1_000_000)) / 100).cast("decimal(20,2)")),
            cell("ver", "int(11)", F.pmod(h, F.lit(100))),
            cell("kind", "enum('saving','current','salary')", F.pmod(h, F.lit(3)) + 1),
            cell("note", "varchar(255)", F.when(F.pmod(h, F.lit(7)) > 0, F.lit("bitte prüfen"))),
            cell("updated_at", "datetime", at),
        )

    journal = F.array(
        cell("id", "bigint(20)", n, is_key=True),
        cell("payer", "bigint(20) unsigned", n % 100_000),
        cell("payee", "bigint(20) unsigned", n % 99_991),
        cell("amount", "decimal(20,2)", (F.pmod(F.xxhash64("id"), F.lit(10_000)) / 100).cast("decimal(20,2)")),
        cell("at", "timestamp", at),
        cell("receipt", "blob", F.concat(F.lit("0x"), F.hex(F.xxhash64("id", F.lit(3))))),
        cell("detail", "json", F.lit('{"a": [1, 2.5, null]}')),
    )
    return spark.range(0, rows, 1, 8).select(
        F.lit("row").alias("kind"),
        (F.lit(470_616_193_105_920_000) + n * 78_643).alias("commit_ts"),
        (F.lit(470_616_193_105_920_000) + n * 78_643 - 1_000_000).alias("start_ts"),
        F.lit("bank").alias("schema_name"),
        F.concat(F.lit("accounts_"), third).alias("table_name"),
        (third + 104).alias("table_id"),
        F.when(third < 2, "update").otherwise("insert").alias("op"),
        F.when(third < 2, account(1)).otherwise(journal).alias("columns"),
        F.when(third < 2, account(2)).alias("before"),
        n.alias("offset"),
    )


_DUCKDB = r'''
import duckdb, sys
rows, out = sys.argv[1:]
c = duckdb.connect()
c.execute("set threads=2")
def cell(name, kind, value, key="false"):
    kind = kind.replace("'", "''")
    return ("struct_pack(name:='%s', mysql_type:='%s', value:=(%s)::varchar, is_key:=%s, flags:=NULL::bigint)"
            % (name, kind, value, key))
def account(salt):
    h = "hash(i, %d)" % salt
    return "[" + ",".join([
        cell("id", "bigint(20) unsigned", "i % 100000", "true"),
        cell("owner", "varchar(64)", "['Ada Lovelace','李明','José Muñoz','Ольга'][(%s %% 4 + 1)::int]" % h),
        cell("balance", "decimal(20,2)", "((%s %% 1000000)::bigint / 100)::decimal(20,2)" % h),
        cell("ver", "int(11)", h + " % 100"), cell("kind", "enum('saving','current','salary')", h + " % 3 + 1"),
        cell("note", "varchar(255)", "case when %s %% 7 > 0 then 'bitte prüfen' end" % h),
        cell("updated_at", "datetime", "make_timestamp((1795258305 + i // 10000) * 1000000)")]) + "]"
journal = "[" + ",".join([
    cell("id", "bigint(20)", "i", "true"), cell("payer", "bigint(20) unsigned", "i % 100000"),
    cell("payee", "bigint(20) unsigned", "i % 99991"),
    cell("amount", "decimal(20,2)", "((hash(i) % 10000)::bigint / 100)::decimal(20,2)"),
    cell("at", "timestamp", "make_timestamp((1795258305 + i // 10000) * 1000000)"),
    cell("receipt", "blob", "'0x' || to_hex(hash(i, 3))"), cell("detail", "json", "'{}'")]) + "]"
c.execute(f"""copy (select 'row' as kind, 470616193105920000 + i * 78643 as commit_ts,
    470616193105920000 + i * 78643 - 1000000 as start_ts, 'bank' as schema_name, 'accounts_' || (i % 3) as table_name,
    i % 3 + 104 as table_id, case when i % 3 < 2 then 'update' else 'insert' end as op,
    case when i % 3 < 2 then {account(1)} else {journal} end as columns,
    case when i % 3 < 2 then {account(2)} end as before, i as "offset"
    from range({rows}) t(i)) to '{out}' (format parquet, compression snappy)""")
'''


def duckdb(rows: int, out: Path) -> Callable[[], object]:
    """The same by DuckDB, in a process of its own."""
    return lambda: subprocess.run([sys.executable, "-c", _DUCKDB, str(rows), str(out)], check=True)


def contestants(
    spark: SparkSession, kind: str, rows: int, folder: Path, *, peers: bool
) -> dict[str, Callable[[], object]]:
    """What takes turns."""
    asked = Workload(kind=kind, rows=rows)

    def parquet(frame: DataFrame, name: str) -> None:
        frame.write.mode("overwrite").parquet(str(folder / name))

    runs: dict[str, Callable[[], object]] = {
        f"{kind}, noop": lambda: noop(generate(spark, asked)),
        f"{kind}, Parquet": lambda: parquet(generate(spark, asked), "ours"),
        f"{kind}, Parquet by the workers": lambda: generate_into(spark, asked, folder / "workers"),
    }
    if peers:
        log = log_of(spark, asked, protocol="canal-json", partitions=8)
        runs |= {
            PEER: lambda: noop(by_hand(spark, rows)),
            "DuckDB by hand, Parquet (no history)": duckdb(rows, folder / "peer.parquet"),
            f"{kind}, as a canal-json log in 8 partitions, noop": lambda: noop(log),
        }
    return runs


def main() -> None:
    """Print a table for each kind."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--kind", choices=KINDS, action="append")
    parser.add_argument("--no-peers", action="store_true")
    args = parser.parse_args()
    spark = session("spark", cores=2)
    for i, kind in enumerate(args.kind or KINDS):
        with tempfile.TemporaryDirectory() as folder:
            runs = contestants(spark, kind, args.rows, Path(folder), peers=not args.no_peers and i == 0)
            found = measured(runs, args.rounds)
        print(f"\n### {kind}, {args.rows:,} rows, load average {os.getloadavg()[0]:.1f}\n")
        report(found, args.rows, PEER if PEER in found else f"{kind}, noop")


if __name__ == "__main__":
    main()

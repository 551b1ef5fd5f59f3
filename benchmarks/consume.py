"""Replay of a log into databases beside decoding it and beside plain loaders, same input, same run.

    python benchmarks/consume.py --events 1000000 [--engine spark] [--rounds 2] [--mariadb | --mysql URL]
    python benchmarks/consume.py --small-tables 50 --engine spark

``--mysql`` names a server (mysql://USER@HOST:PORT) with empty databases, its password in MYSQL_PWD; ``--mariadb``
starts one as the tests do.
The peers there have the same rows, deletes left out, in the same number of rows a transaction. One is LOAD DATA by the
server itself, from files that are there before the clock starts; the other a plain loader by PyMySQL's ``executemany``.
They do less: they merge nothing.
Decoding gives the full events table with nothing written. CPU seconds and ``peak`` are of this process, in which
DuckDB runs, and of all that it started: the engine, its workers and MariaDB. Inputs are as in ``make_inputs.py``.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import duckdb
import make_inputs
from run import HERE, Meter, noop

from ticdc_lab.consumer import open_sink, replay
from ticdc_lab.consumer.replay import files_of
from ticdc_lab.consumer.replay_plan import Batch
from ticdc_lab.consumer.sinks.mysql_connection import address_of, connected
from ticdc_lab.engine.sessions import session
from ticdc_lab.sources.change_log import ChangeLog
from ticdc_lab.sources.load import load

BATCH = 200_000
NAMES = ("id", "owner", "balance", "ver", "at")


def into_duckdb(log: ChangeLog, folder: str, mode: str) -> None:
    """The whole of it: definitions, plan, rows, DDL, progress."""
    path = Path(folder) / f"{mode}-{time.monotonic_ns()}.db"
    sink = open_sink(f"duckdb:///{path}", log)
    replay(log, sink, mode=mode)
    sink.close()
    path.unlink()


def into_delta(log: ChangeLog, folder: str, rows_a_batch: int) -> None:
    """The same into Delta tables; what each range took goes to stderr."""
    sink, begun = open_sink(f"delta:{folder}/lake-{time.monotonic_ns()}", log), time.perf_counter()

    def said(batch: Batch, n: int) -> None:
        nonlocal begun
        print(f"    up to {batch.until}: {n} row changes, {time.perf_counter() - begun:.2f} s", file=sys.stderr)
        begun = time.perf_counter()

    replay(log, sink, rows_a_batch=rows_a_batch, said=said)


def small_tables(n: int, changes: int, folder: str) -> Path:
    """A canal-json log of many tables with few row changes each."""
    make_inputs.TABLES = n
    make_inputs.make_canal(n * changes, Path(folder))
    return Path(folder) / f"canal-json_{n * changes}.parquet"


def cleared(url: str) -> None:
    """Drop what an earlier round has made."""
    with connected(address_of(url)) as db, db.cursor() as cursor:
        for name in ("bank", "_ticdc_lab"):
            cursor.execute(f"DROP DATABASE IF EXISTS {name}")


def into_mysql(log: ChangeLog, url: str) -> None:
    """The same into a server."""
    sink = open_sink(url, log)
    replay(log, sink, rows_a_batch=BATCH)
    sink.close()


def written(log: ChangeLog) -> str:
    """A query of the table's name and the values of each row that a plain loader writes, in order."""
    picked = ", ".join(f"list_filter(columns, lambda c: c.name = '{n}')[1].value AS \"{n}\"" for n in NAMES)
    files = ", ".join(f"'{f}'" for f in files_of(log))
    return (
        f"SELECT table_name, {picked} FROM read_parquet([{files}]) WHERE kind = 'row' AND op <> 'delete' "
        'ORDER BY commit_ts, "offset"'
    )


def made(cursor: Any, names: set[str]) -> None:
    """Create the tables of the bank."""
    cursor.execute("CREATE DATABASE bank")
    for name in sorted(names):
        cursor.execute(
            f"CREATE TABLE bank.{name} (id BIGINT PRIMARY KEY, owner VARCHAR(32) NOT NULL, balance BIGINT NOT "
            "NULL, ver INT NOT NULL DEFAULT 0, at DATETIME NULL)"
        )


def load_data(log: ChangeLog, url: str, folder: Path) -> Callable[[], None]:
    """LOAD DATA of files that the server reads by itself: one a table and transaction, made before the clock starts."""
    folder.mkdir()
    db = duckdb.connect()
    db.execute(f"CREATE TABLE rows AS SELECT *, (row_number() OVER () - 1) // {BATCH} AS batch FROM ({written(log)})")
    pieces = db.execute("SELECT DISTINCT batch, table_name FROM rows ORDER BY ALL").fetchall()
    for batch, name in pieces:
        db.execute(
            f"COPY (SELECT * EXCLUDE (batch, table_name) FROM rows WHERE batch = {batch} AND table_name = '{name}') TO "
            f"'{folder}/{batch}-{name}' (FORMAT csv, HEADER false, DELIMITER '\t', QUOTE '', ESCAPE '', NULLSTR '\\N')"
        )
    folder.chmod(0o755)

    def run() -> None:
        with connected(address_of(url)) as server, server.cursor() as cursor:
            made(cursor, {name for _, name in pieces})
            for i, (batch, name) in enumerate(pieces):
                cursor.execute(f"LOAD DATA INFILE '{folder}/{batch}-{name}' REPLACE INTO TABLE bank.{name}")
                if i + 1 == len(pieces) or pieces[i + 1][0] != batch:
                    server.commit()

    return run


def loader(log: ChangeLog, url: str) -> Callable[[], None]:
    """A plain loader, its rows in memory."""
    rows = duckdb.execute(written(log)).fetchall()
    update = ", ".join(f"{n} = VALUES({n})" for n in NAMES)

    def run() -> None:
        with connected(address_of(url)) as db, db.cursor() as cursor:
            made(cursor, {r[0] for r in rows})
            for start in range(0, len(rows), BATCH):
                tables: dict[str, list[tuple[Any, ...]]] = {}
                for name, *values in rows[start : start + BATCH]:
                    tables.setdefault(name, []).append(tuple(values))
                for name, values in tables.items():
                    cursor.executemany(
                        f"INSERT INTO bank.{name} ({', '.join(NAMES)}) VALUES (%s, %s, %s, %s, %s) "
                        f"ON DUPLICATE KEY UPDATE {update}", values,
                    )  # fmt: skip
                db.commit()

    return run


def own_server(stack: ExitStack) -> str:
    """A MariaDB that ends with this script, as the tests start theirs."""
    sys.path.insert(0, str(HERE.parent / "tests" / "consumer"))
    from mariadb import PASSWORD, running

    os.environ["MYSQL_PWD"] = PASSWORD
    return str(stack.enter_context(running(Path(stack.enter_context(tempfile.TemporaryDirectory())))).url)


def main() -> None:
    """Run everything for one size."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--events", type=int, default=1_000_000)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--engine", choices=["spark", "embedded"], default="embedded")
    parser.add_argument("--protocol", choices=["canal-json", "open-protocol"], default="canal-json")
    parser.add_argument("--folder", type=Path, default=HERE / "out")
    parser.add_argument("--mysql", default="")
    parser.add_argument("--mariadb", action="store_true")
    parser.add_argument("--small-tables", type=int, default=0, help="100 row changes of so many, also into Delta.")
    parser.add_argument("--only", action="append", help="Contestants whose names have this in them, beside decoding.")
    parser.add_argument("--driver-memory", default="4g")
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    spark = session(args.engine, driver_memory=args.driver_memory)
    with ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory())
        source = args.folder / f"{args.protocol}_{args.events}.parquet"
        if args.small_tables:
            args.events, args.protocol = 100 * args.small_tables, "canal-json"
            source = small_tables(args.small_tables, 100, folder)
        said = f"{args.protocol}, {args.engine}, {args.events:,} row changes"
        print(f"\n### {said}, load average {os.getloadavg()[0]:.1f}\n")
        log = load(spark, str(source), protocol=args.protocol)
        kept = log.materialise(f"{folder}/events")
        runs: dict[str, Callable[[], object]] = {
            "decoding": lambda: noop(log.decoded),
            "into DuckDB, transaction mode": lambda: into_duckdb(kept, folder, "transaction"),
            "into DuckDB, row mode": lambda: into_duckdb(kept, folder, "row"),
        }
        if args.small_tables:
            runs["into Delta"] = lambda: into_delta(kept, folder, args.events // 4)
        if url := own_server(stack) if args.mariadb else args.mysql:
            runs["into MariaDB, transaction mode"] = lambda: into_mysql(kept, url)
            runs["LOAD DATA into MariaDB"] = load_data(kept, url, Path(folder) / "files")
            runs["plain loader into MariaDB"] = loader(kept, url)
        if args.only:
            runs = {name: run for name, run in runs.items() if name == "decoding" or any(o in name for o in args.only)}
        seen: dict[str, list[dict[str, float]]] = {name: [] for name in runs}
        meter = Meter(own=True)
        for i in range(args.rounds + 1):
            for name, run in runs.items():
                if "MariaDB" in name:
                    cleared(url)
                found = meter.time(run)
                print(f"  round {i} {name}: {found['wall_s']:.2f} s, CPU {found['cpu_s']:.2f}", file=sys.stderr)
                if i or not args.rounds:
                    seen[name].append(found)
    medians = {name: {k: statistics.median(m[k] for m in ms) for k in ms[0]} for name, ms in seen.items()}
    print("| | wall s | CPU s | CPU, times decoding | row changes a CPU s | peak GiB |\n|---|---|---|---|---|---|")
    for name, m in medians.items():
        ratio, rate = m["cpu_s"] / medians["decoding"]["cpu_s"], args.events / m["cpu_s"]
        print(f"| {name} | {m['wall_s']:.2f} | {m['cpu_s']:.2f} | {ratio:.2f} | {rate:,.0f} | {m['peak_gib']:.2f} |")
    print(f"\nload average after: {os.getloadavg()[0]:.1f}")
    if args.json:
        args.json.write_text(json.dumps(medians | {"load": os.getloadavg()}, indent=1))


if __name__ == "__main__":
    main()

"""Replay of a log into databases beside decoding it and beside plain loaders, same input, same run.

    python benchmarks/consume.py --events 1000000 [--protocol canal-json] [--rounds 2] [--mysql mysql://USER@HOST:PORT]

``--mysql`` names a server with empty databases, as ``tests/consumer/mariadb.py`` starts one; its password is in
MYSQL_PWD. The peer there is a plain loader: the same rows, in memory already, in the same number of rows a
transaction, by PyMySQL's ``executemany`` with statements of many rows. It does less: it merges nothing and leaves
deletes out.
Decoding is the full events table with nothing written. ``peak`` is this process alone, in which DuckDB runs; Spark's
JVM is another. Inputs are those of ``make_inputs.py``.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import duckdb
import psutil
from run import HERE, noop

from ticdc_lab.consumer import open_sink, replay
from ticdc_lab.consumer.replay import files_of
from ticdc_lab.consumer.sinks.mysql_connection import address_of, connected
from ticdc_lab.engine.sessions import session
from ticdc_lab.sources.change_log import ChangeLog
from ticdc_lab.sources.load import load

BATCH = 200_000
NAMES = ("id", "owner", "balance", "ver", "at")


def timed(run: Callable[[], object]) -> dict[str, float]:
    """Seconds, and peak GiB of this process above what it had before."""
    own, peak, done = psutil.Process(), 0, threading.Event()

    def watch() -> None:
        nonlocal peak
        while not done.wait(0.05):
            peak = max(peak, own.memory_info().rss)

    before = own.memory_info().rss
    watcher = threading.Thread(target=watch, daemon=True)
    watcher.start()
    start = time.perf_counter()
    run()
    wall = time.perf_counter() - start
    done.set()
    watcher.join()
    return {"wall_s": wall, "peak_gib": max(0, peak - before) / 2**30}


def into_duckdb(log: ChangeLog, folder: str, mode: str) -> None:
    """The whole of it: definitions, plan, rows, DDL, progress."""
    path = Path(folder) / f"{mode}-{time.monotonic_ns()}.db"
    sink = open_sink(f"duckdb:///{path}", log)
    replay(log, sink, mode=mode)
    sink.close()
    path.unlink()


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


def loader(log: ChangeLog, url: str) -> Callable[[], None]:
    """A plain loader, its rows in memory and its tables made before the clock starts."""
    picked = ", ".join(f"list_filter(columns, lambda c: c.name = '{n}')[1].value" for n in NAMES)
    rows = duckdb.execute(
        f"SELECT table_name, {picked} FROM read_parquet(?) WHERE kind = 'row' AND op <> 'delete' "
        'ORDER BY commit_ts, "offset"', [files_of(log)],
    ).fetchall()  # fmt: skip
    update = ", ".join(f"{n} = VALUES({n})" for n in NAMES)

    def run() -> None:
        with connected(address_of(url)) as db, db.cursor() as cursor:
            cursor.execute("CREATE DATABASE bank")
            for name in sorted({r[0] for r in rows}):
                cursor.execute(
                    f"CREATE TABLE bank.{name} (id BIGINT PRIMARY KEY, owner VARCHAR(32) NOT NULL, balance BIGINT NOT "
                    "NULL, ver INT NOT NULL DEFAULT 0, at DATETIME NULL)"
                )
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


def main() -> None:
    """Run everything for one size."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--events", type=int, default=1_000_000)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--protocol", choices=["canal-json", "open-protocol"], default="canal-json")
    parser.add_argument("--folder", type=Path, default=HERE / "out")
    parser.add_argument("--mysql", default="")
    parser.add_argument("--driver-memory", default="4g")
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    spark = session("spark", driver_memory=args.driver_memory)
    log = load(spark, str(args.folder / f"{args.protocol}_{args.events}.parquet"), protocol=args.protocol)
    print(f"\n### {args.protocol}, {args.events:,} row changes, load average {os.getloadavg()[0]:.1f}\n")
    with tempfile.TemporaryDirectory() as folder:
        kept = log.materialise(f"{folder}/events")
        runs: dict[str, Callable[[], object]] = {
            "decoding": lambda: noop(log.decoded),
            "into DuckDB, transaction mode": lambda: into_duckdb(kept, folder, "transaction"),
            "into DuckDB, row mode": lambda: into_duckdb(kept, folder, "row"),
        }
        if args.mysql:
            runs["into MariaDB, transaction mode"] = lambda: into_mysql(kept, args.mysql)
            runs["plain loader into MariaDB"] = loader(kept, args.mysql)
        seen: dict[str, list[dict[str, float]]] = {name: [] for name in runs}
        for i in range(args.rounds + 1):
            for name, run in runs.items():
                if "MariaDB" in name:
                    cleared(args.mysql)
                found = timed(run)
                if i:
                    seen[name].append(found)
    medians = {name: {k: statistics.median(m[k] for m in ms) for k in ms[0]} for name, ms in seen.items()}
    print("| | wall s | times decoding | row changes/s | peak GiB |\n|---|---|---|---|---|")
    for name, m in medians.items():
        ratio, rate = m["wall_s"] / medians["decoding"]["wall_s"], args.events / m["wall_s"]
        print(f"| {name} | {m['wall_s']:.2f} | {ratio:.2f} | {rate:,.0f} | {m['peak_gib']:.2f} |")
    print(f"\nload average after: {os.getloadavg()[0]:.1f}")
    if args.json:
        args.json.write_text(json.dumps(medians | {"load": os.getloadavg()}, indent=1))


if __name__ == "__main__":
    main()

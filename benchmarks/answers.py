"""What a log's answers cost beside decoding it, on either engine, and what DuckDB takes for parts of them.

    python benchmarks/make_inputs.py --events 1000000
    python benchmarks/answers.py --events 1000000 [--engine embedded --engine spark] [--rounds 2] [--protocol P]
    python benchmarks/answers.py --events 1000000 --dispatch columns  # rows that move: inputs made with it
    python benchmarks/answers.py --events 10000000 --protocol canal-json --topics 10 --rounds 0 --engine spark

Each engine is asked in a process of its own, each round on a freshly opened log, after a round that does not
count. ``cpu`` is for the process and all that it started, ``peak`` their largest resident memory together.
With ``--topics`` the input lies there that many times, each time as a topic and a schema of its own, so that its rows
are others and a sound log stays sound; of no rounds the first counts.
The peers read the Parquet that ``open`` has decoded to, on two threads: watermarks of partitions; transactions with
their lists of tables and partitions; each row in one partition and in commit order; nothing below a watermark.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import duckdb
import psutil
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from make_inputs import DISPATCH, input_of
from run import Meter, noop

import ticdc_lab
from ticdc_lab.dispatch import dispatch
from ticdc_lab.engine.sessions import session

HERE = Path(__file__).parent
FOUR = ("watermarks", "transactions", "dispatch", "audit")

PEERS = {
    "DuckDB: watermarks": """
        SELECT topic, partition, max(commit_ts) FILTER (kind = 'watermark'), max(commit_ts) FILTER (kind = 'row')
        FROM events GROUP BY ALL
    """,
    "DuckDB: transactions with lists": """
        SELECT commit_ts, count(DISTINCT change_hash), list(DISTINCT schema_name || '.' || table_name),
               list(DISTINCT partition)
        FROM events WHERE kind = 'row' GROUP BY commit_ts
    """,
    "DuckDB: each row in one partition, in commit order": """
        SELECT count(*) FROM (
            SELECT partition <> lag(partition) OVER w AS moved, commit_ts < lag(commit_ts) OVER w AS back
            FROM events WHERE kind = 'row' WINDOW w AS (PARTITION BY key_hash ORDER BY partition, "offset", seq)
        ) WHERE moved OR back
    """,
    "DuckDB: nothing below a watermark": """
        SELECT count(*) FROM (
            SELECT kind, commit_ts, max(commit_ts) FILTER (kind = 'watermark') OVER (
                PARTITION BY topic, partition ORDER BY "offset", seq ROWS UNBOUNDED PRECEDING) AS resolved
            FROM events
        ) WHERE kind = 'row' AND commit_ts <= resolved
    """,
}


def rounds_of(engine: str, source: Path, rounds: int) -> dict[str, list[dict[str, float]]]:
    """What each answer took, each round."""
    spark = session(engine)
    seen: dict[str, list[dict[str, float]]] = {}
    for i in range(rounds + 1):
        opened: list[ticdc_lab.Log] = []
        meter = Meter(own=True)
        took = {"decoding (open)": meter.time(lambda to=opened: to.append(ticdc_lab.open(str(source), spark=spark)))}
        (log,) = opened
        moved = log.events.transform(dispatch, strategy="index-value", partitions=16)
        asked: dict[str, Callable[[], object]] = {
            "watermarks": log.watermarks,
            "transactions": log.transactions,
            "dispatch": lambda moved=moved: noop(moved.select("offset", "target_partition")),
            "audit": log.audit,
        }
        took |= {name: meter.time(ask) for name, ask in asked.items()}
        for name, one in took.items() if i or not rounds else ():
            seen.setdefault(name, []).append(one)
        log.close()
    return seen


def several(source: Path, topics: int) -> Path:
    """Give a folder of the messages of a file, once for each of so many topics; as it was left where it is there.

    Each topic has a schema of its own in place of ``bank``, as long as that, since messages carry their lengths.
    """
    folder = source.with_name(f"{source.stem}_in_{topics}_topics")
    folder.mkdir(exist_ok=True)
    for i in range(topics):
        if not (path := folder / f"topic-{i}.parquet").exists():
            whole, schema = pq.ParquetFile(source), f"b{i:03}"
            with pq.ParquetWriter(made := path.with_suffix(".new"), whole.schema_arrow, compression="zstd") as writer:
                for batch in whole.iter_batches(50_000):
                    named = pa.array([f"bench-{i}"] * batch.num_rows, pa.string())
                    of = {name: batch[name] for name in batch.schema.names} | {"topic": named}
                    of |= {name: in_schema(of[name], schema) for name in ("key", "value")}
                    writer.write_batch(pa.RecordBatch.from_pydict(of, batch.schema))
            made.rename(path)
    return folder


def in_schema(messages: pa.Array, name: str) -> pa.Array:
    """Bytes of messages with another schema in place of ``bank``, in their names and in the SQL of their DDL."""
    for quote in '"`':
        messages = pc.replace_substring(messages, f"{quote}bank{quote}", f"{quote}{name}{quote}")
    return messages


def peers_of(source: Path, rounds: int) -> dict[str, list[dict[str, float]]]:
    """The same of the queries, over what the embedded engine has decoded."""
    with tempfile.TemporaryDirectory() as folder:
        ticdc_lab.open(str(source), engine="embedded", folder=f"{folder}/log")
        code = "import sys; sys.path.insert(0, sys.argv[1]); import answers; answers.peer(*sys.argv[2:])"
        return {
            name: [
                json.loads(
                    subprocess.run(
                        [sys.executable, "-c", code, str(HERE), f"{folder}/log/decoded", name],
                        check=True, capture_output=True, text=True,
                    ).stdout
                )
                for _ in range(max(rounds, 1))
            ]
            for name in PEERS
        }  # fmt: skip


def peer(files: str, name: str) -> None:
    """Run one of the peers once, after it has opened the files; print what it took."""
    connection = duckdb.connect()
    connection.execute("SET threads = 2; SET enable_progress_bar = false")
    connection.execute(f"CREATE VIEW events AS SELECT * FROM read_parquet('{files}/**/*.parquet')")
    wall, cpu = time.perf_counter(), time.process_time()
    connection.execute(PEERS[name]).fetchall()
    peak = psutil.Process().memory_info().rss / 2**30
    print(
        json.dumps(
            {
                "wall_s": time.perf_counter() - wall,
                "cpu_s": time.process_time() - cpu,
                "peak_gib": peak,
            }
        )
    )


def main() -> None:
    """Ask each engine in turn, then the peers."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--events", type=int, default=1_000_000)
    parser.add_argument("--protocol", default="open-protocol")
    parser.add_argument("--engine", choices=("embedded", "spark", "peers"), action="append")
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--topics", type=int, default=1)
    parser.add_argument("--dispatch", choices=DISPATCH, default=DISPATCH[0])
    parser.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args()
    source = input_of(args.protocol, args.events, args.dispatch)
    if args.topics > 1:
        source = several(source, args.topics)
    if args.child:
        (engine,) = args.engine
        run = peers_of(source, args.rounds) if engine == "peers" else rounds_of(engine, source, args.rounds)
        print(json.dumps(run))
        return
    print(f"{args.protocol}, {args.events * args.topics:,} row changes, dispatch {args.dispatch}\n")
    print("| | wall s | cpu s | peak GiB |\n|---|---|---|---|")
    for engine in args.engine or ("embedded", "spark", "peers"):
        command = [sys.executable, __file__, "--child", "--engine", engine, "--events", str(args.events)]
        command += ["--protocol", args.protocol, "--rounds", str(args.rounds), "--topics", str(args.topics)]
        command += ["--dispatch", args.dispatch]
        done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, env=os.environ)
        report(engine, json.loads(done.stdout.splitlines()[-1]))


def report(engine: str, seen: dict[str, list[dict[str, float]]]) -> None:
    """Medians as lines of a table, and the four answers together beside decoding."""
    found = {name: {k: statistics.median(m[k] for m in of) for k in of[0]} for name, of in seen.items()}
    if engine != "peers":
        four = {k: sum(found[name][k] for name in FOUR) for k in ("wall_s", "cpu_s")}
        found["the four together"] = four | {"peak_gib": max(found[name]["peak_gib"] for name in FOUR)}
    for name, m in found.items():
        print(f"| {engine}: {name} | {m['wall_s']:.2f} | {m['cpu_s']:.2f} | {m['peak_gib']:.1f} |", flush=True)


if __name__ == "__main__":
    main()

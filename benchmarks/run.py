"""Decoding and analysis beside their peers, same input, same run.

    python benchmarks/run.py --events 1000000 [--engine spark|embedded] [--rounds 3] [--json out.json]

Each round runs every contestant once, in turn, so that a noisy machine hits all alike; the table gives medians and the
ratio to the hand-written Spark query. ``cpu`` is the CPU time of the engine and its Python workers together, ``peak``
the largest resident memory of all of them.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path

import psutil
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from ticdc_lab.audit import audit
from ticdc_lab.dispatch import dispatch
from ticdc_lab.engine.sessions import session
from ticdc_lab.facts.watermarks import partition_watermarks, topic_watermarks
from ticdc_lab.sources.load import load
from ticdc_lab.transactions import transactions

HERE = Path(__file__).parent
CANAL = (
    "database string, `table` string, pkNames array<string>, isDdl boolean, type string, es bigint, sql string, "
    "mysqlType map<string,string>, old array<map<string,string>>, data array<map<string,string>>, "
    "_tidb struct<commitTs:bigint,watermarkTs:bigint>"
)
OPEN_KEY = "ts bigint, scm string, tbl string, t int"
_COLUMN = "map<string,struct<t:int,h:boolean,f:bigint,v:string>>"
OPEN_VALUE = f"u {_COLUMN}, p {_COLUMN}, d {_COLUMN}, q string"
GO_ROWS_S = {"canal-json": 94_000, "open-protocol": 51_000}
"""TiCDC's own decoder, one Go process on such a machine, as measured with the golden data (its README, section 7)."""


def hand_written(messages: DataFrame, protocol: str) -> DataFrame:
    """What a user would write with from_json: no types, no checks, no quarantine, images as maps."""
    where = ("topic", "partition", "offset")
    if protocol == "canal-json":
        read = F.from_json(F.col("value").cast("string"), CANAL)
        return messages.select(*where, read.alias("j")).select(*where, "j.*")

    def frames(column: str) -> F.Column:
        text = F.decode(F.col(column), "ISO-8859-1")
        return F.slice(F.split(text, r"\x00{5}[\s\S]{3}"), 2, 100_000)

    both = F.arrays_zip(frames("key").alias("k"), frames("value").alias("v"))
    rows = messages.select(*where, F.explode(both).alias("f"))
    read = rows.select(*where, F.from_json("f.k", OPEN_KEY).alias("k"), F.from_json("f.v", OPEN_VALUE).alias("v"))
    return read.select(*where, "k.*", "v.*")


def noop(df: DataFrame) -> None:
    """Compute every column of every row and throw it away."""
    df.write.format("noop").mode("overwrite").save()


class Meter:
    """CPU seconds and peak memory of this process's children while something runs; with ``own`` of itself too."""

    def __init__(self, *, own: bool = False) -> None:
        self.peak, self.cpu, self.own, self._stop = 0, {}, own, threading.Event()

    def look(self) -> None:
        """Take what each process has used so far."""
        total, here = 0, psutil.Process()
        for p in [*here.children(recursive=True), *[here] * self.own]:
            try:
                total += p.memory_info().rss
                t = p.cpu_times()
                self.cpu[p.pid] = t.user + t.system
            except psutil.Error:
                continue
        self.peak = max(self.peak, total)

    def _watch(self) -> None:
        while not self._stop.wait(0.2):
            self.look()

    def cpu_of(self, pid: int) -> float:
        """CPU seconds, of all those, of one child and of what it has started."""
        child = psutil.Process(pid)
        return sum(self.cpu.get(p.pid, 0.0) for p in (child, *child.children(recursive=True)))

    def time(self, run: Callable[[], object]) -> dict[str, float]:
        """Seconds, CPU seconds and peak GiB of ``run``."""
        self.look()
        before, self.peak = dict(self.cpu), 0
        self._stop = threading.Event()
        watcher = threading.Thread(target=self._watch, daemon=True)
        watcher.start()
        start = time.perf_counter()
        run()
        wall = time.perf_counter() - start
        self.look()
        self._stop.set()
        watcher.join()
        cpu = sum(v - before.get(k, 0.0) for k, v in self.cpu.items())
        return {"wall_s": wall, "cpu_s": cpu, "peak_gib": self.peak / 2**30}


_DUCKDB = (
    "import duckdb,sys; c=duckdb.connect(); c.execute('set threads=2');"
    "c.execute(f\"create table t as select * from read_json('{sys.argv[1]}', format='newline_delimited',"
    " columns={{database:'VARCHAR','table':'VARCHAR',pkNames:'VARCHAR[]',type:'VARCHAR',es:'BIGINT',"
    "mysqlType:'MAP(VARCHAR,VARCHAR)',old:'MAP(VARCHAR,VARCHAR)[]',data:'MAP(VARCHAR,VARCHAR)[]',"
    "_tidb:'STRUCT(commitTs BIGINT)'}})\")"
)
_POLARS = "import polars as pl,sys; pl.scan_ndjson(sys.argv[1], infer_schema_length=2000).collect()"
_ORJSON = "import orjson,sys\nfor line in open(sys.argv[1],'rb'): orjson.loads(line)"
_ORJSON_OPEN = (
    "import orjson,sys,pyarrow.parquet as pq\n"
    "for b in pq.ParquetFile(sys.argv[1]).iter_batches(columns=['key','value']):\n"
    " for k,v in zip(b['key'].to_pylist(),b['value'].to_pylist()):\n"
    "  for raw,p in ((k,8),(v,0)):\n"
    "   while p<len(raw):\n"
    "    n=int.from_bytes(raw[p:p+8],'big'); p+=8\n"
    "    if n: orjson.loads(raw[p:p+n])\n"
    "    p+=n\n"
)


def script(code: str, path: Path) -> Callable[[], object]:
    """A peer in a process of its own."""
    return lambda: subprocess.run([sys.executable, "-c", code, str(path)], check=True)


def decoders(spark: SparkSession, protocol: str, n: int, folder: Path) -> dict[str, Callable[[], object]]:
    """Contestants in decoding, ours first."""
    path = folder / f"{protocol}_{n}.parquet"
    messages, log = spark.read.parquet(str(path)), load(spark, str(path), protocol=protocol)
    runs: dict[str, Callable[[], object]] = {
        "ticdc_lab events": lambda: noop(log.decoded),
        "Spark from_json by hand (does less)": lambda: noop(hand_written(messages, protocol)),
    }
    if log.narrow is not None:
        narrow = log.narrow
        runs["ticdc_lab without images"] = lambda: noop(narrow)
    if protocol == "canal-json":
        text = folder / f"{protocol}_{n}.ndjson"
        runs |= {"DuckDB read_json": script(_DUCKDB, text), "plain orjson, one core": script(_ORJSON, text)}
        if n <= 1_000_000:
            runs["polars scan_ndjson"] = script(_POLARS, text)
    else:
        runs["plain orjson, one core"] = script(_ORJSON_OPEN, path)
    return runs


def analyses(events: DataFrame, protocol: str) -> dict[str, Callable[[], object]]:
    """What follows decoding, on the materialised events."""
    return {
        "watermarks": lambda: [noop(events.transform(f)) for f in (topic_watermarks, partition_watermarks)],
        "transactions": lambda: noop(events.transform(transactions)),
        "dispatch index-value": lambda: noop(
            events.transform(dispatch, strategy="index-value", partitions=16).select("offset", "target_partition")
        ),
        "audit": lambda: noop(events.transform(audit, protocol=protocol)),
    }


def measured(runs: dict[str, Callable[[], object]], rounds: int) -> dict[str, dict[str, float]]:
    """Medians over the rounds, after one round that does not count."""
    seen: dict[str, list[dict[str, float]]] = {name: [] for name in runs}
    for i in range(rounds + 1):
        for name, run in runs.items():
            m = Meter().time(run)
            print(f"  round {i} {name}: {m['wall_s']:.2f} s wall, {m['cpu_s']:.2f} s cpu", file=sys.stderr, flush=True)
            if i:
                seen[name].append(m)
    return {name: {k: statistics.median(m[k] for m in ms) for k in ms[0]} for name, ms in seen.items()}


def report(found: dict[str, dict[str, float]], n: int, first: str) -> None:
    """The table that goes into the README."""
    print("| | wall s | events/s | cpu s | peak GiB | ratio |\n|---|---|---|---|---|---|")
    for name, m in found.items():
        ratio = m["wall_s"] / found[first]["wall_s"]
        cells = (f"{m['wall_s']:.2f}", f"{n / m['wall_s']:,.0f}", f"{m['cpu_s']:.1f}", f"{m['peak_gib']:.1f}")
        print(f"| {name} | {' | '.join(cells)} | {ratio:.2f} |")


def main() -> None:
    """Run everything for one size."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--events", type=int, default=1_000_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--engine", choices=["spark", "embedded"], default="spark")
    parser.add_argument("--protocol", choices=list(GO_ROWS_S), action="append")
    parser.add_argument("--folder", type=Path, default=HERE / "out")
    parser.add_argument("--driver-memory", default="4g")
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    spark, whole = session(args.engine, driver_memory=args.driver_memory), {}
    for protocol in args.protocol or list(GO_ROWS_S):
        print(f"\n### {protocol}, {args.events:,} row changes\n")
        decoding = measured(decoders(spark, protocol, args.events, args.folder), args.rounds)
        report(decoding, args.events, "Spark from_json by hand (does less)")
        ours = decoding["ticdc_lab events"]["wall_s"]
        print(f"\nTimes TiCDC's own decoder (one Go process): {args.events / ours / GO_ROWS_S[protocol]:.1f}\n")
        with tempfile.TemporaryDirectory() as folder:
            log = load(spark, str(args.folder / f"{protocol}_{args.events}.parquet"), protocol=protocol)
            kept = Meter().time(lambda log=log, folder=folder: log.materialise(f"{folder}/events"))
            events = spark.read.parquet(f"{folder}/events").where("error_class IS NULL")
            after = measured(analyses(events, protocol), args.rounds)
        total = sum(m["wall_s"] for m in after.values())
        after["all four"] = {k: sum(m[k] for m in after.values()) for k in ("wall_s", "cpu_s")} | {
            "peak_gib": max(m["peak_gib"] for m in after.values())
        }
        after["decoding, for comparison"] = decoding["ticdc_lab events"]
        report(after, args.events, "decoding, for comparison")
        print(f"\nDecoded once into Parquet: {kept['wall_s']:.1f} s; the four together: {total:.1f} s.")
        whole[protocol] = {"decoding": decoding, "analysis": after, "materialise": kept}
    if args.json:
        args.json.write_text(json.dumps(whole, indent=1))


if __name__ == "__main__":
    main()

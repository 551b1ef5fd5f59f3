"""One worker against two, of one core each, on a standalone Spark master: report, audit, ingest, and what is hot.

    python benchmarks/make_inputs.py --events 1000000
    python benchmarks/cluster.py [--events 1000000] [--part report] [--rounds 1] [--json out.json]
    python benchmarks/cluster.py --events 10000000 --topics 10 --part audit  # a hundred million row changes
    python benchmarks/cluster.py --behind "systemd-run --scope -qp CPUQuota=50%"

Each number of workers gets a master, workers that are pinned to a core of their own, and a driver in a process of its
own, which is not; the first pass of a part does not count, as executors compile in it. Where the machine has no more
cores than workers, the driver and the broker take theirs from them: with ``--behind`` each worker is started by a
command instead, which gives it a part of a core, and leaves the others what a cluster has on another machine.

*report* is the page of the whole log; *audit* decodes the log and audits it; *ingest* is a topic of canal-json into the
five Delta tables; *hot row* and *hot partition* open a log whose changes are all of one row, or nine of ten in one
partition, and ask for transactions and audit.

``longest`` is the longest task, ``worker`` the largest resident memory of one Python worker, ``driver`` the most that
one task sent to the driver. ``busiest`` is the CPU time of the worker that computes most, with its Python: its ratio
holds also where other work takes the cores. ``--topics`` is as of ``answers.py``.
"""

from __future__ import annotations

import argparse
import json
import shlex
import statistics
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from pathlib import Path

import psutil
from answers import several
from make_inputs import DDL, PARTITIONS, START_TS, TABLES, Sink, canal_other, canal_row, changes
from pyspark.sql import SparkSession
from run import Meter
from watch_spark import used_by_workers

import ticdc_lab
from ticdc_lab.engine.sessions import session
from ticdc_lab.lake.ingest import ingest

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent / "tests"))
import broker as brokers  # noqa: E402
import cluster  # noqa: E402

MEMORY = "3g"
PARTS = ("report", "audit", "ingest", "hot row", "hot partition")
COLUMNS = ("wall_s", "cpu_s", "busiest_s", "longest_s", "worker_gib", "driver_kib")


def hot_log(part: str, n: int, path: Path) -> None:
    """A sound log of n changes of one row, or with nine rows of ten in partition 0."""
    sink = Sink(path)
    for t in range(TABLES):
        sink.put(0, None, canal_other("CREATE", START_TS, f"accounts_{t}", DDL.format(t=f"accounts_{t}")))
    for change in one_row(n) if part == "hot row" else changes(n):
        if isinstance(change, int):
            for p in range(PARTITIONS):
                sink.put(p, None, canal_other("TIDB_WATERMARK", change, "", ""))
            continue
        ts, table, partition, after, before = change
        row_id = int(str((after or before or {})["id"]))
        sink.put(partition if part == "hot row" or row_id % 10 == 0 else 0, None, canal_row(ts, table, after, before))
    sink.flush()
    sink.writer.close()


def one_row(n: int) -> Iterator[tuple[int, int, int, dict[str, object], dict[str, object] | None] | int]:
    """An insert and updates of one row, a transaction each, and watermarks."""
    before: dict[str, object] | None = None
    for i in range(n):
        ts = START_TS + (i + 1 << 18)
        after: dict[str, object] = {"id": 7, "owner": "own", "balance": i % 1000, "ver": i, "at": None}
        yield ts, 0, 3, after, before
        before = after
        if i % 400 == 399 or i == n - 1:
            yield ts


class Watched(Meter):
    """Also of each pass: the longest task, what a task sent to the driver, and the largest Python worker."""

    def __init__(self, log: Path) -> None:
        super().__init__()
        self.log, self.read, self.worker = log, 0, 0

    def pass_of(self, run: Callable[[], object]) -> dict[str, float]:
        """Run it and measure."""
        self.worker, ended = 0, threading.Event()
        watcher = threading.Thread(target=self._workers, args=(ended,), daemon=True)
        watcher.start()
        took = self.time(run)
        ended.set()
        watcher.join()
        tasks = self._tasks()
        longest = max(t["Task Info"]["Finish Time"] - t["Task Info"]["Launch Time"] for t in tasks) / 1000
        sent = max(t["Task Metrics"]["Result Size"] for t in tasks if "Task Metrics" in t) / 1024
        return took | {"longest_s": longest, "worker_gib": self.worker / 2**30, "driver_kib": sent}

    def _workers(self, ended: threading.Event) -> None:
        while not ended.wait(0.3):
            for process in psutil.process_iter(["cmdline", "memory_info"]):
                if any("pyspark.daemon" in word for word in process.info["cmdline"] or ()):
                    self.worker = max(self.worker, process.info["memory_info"].rss)

    def _tasks(self) -> list[dict[str, dict[str, float]]]:
        """Those that Spark's own log has since the last look."""
        [log] = self.log.iterdir()
        lines = log.read_text(encoding="utf-8").splitlines()
        new, self.read = lines[self.read :], len(lines)
        events = (json.loads(line) for line in new if line.startswith('{"Event":"SparkListenerTaskEnd"'))
        return list(events)


def driver(master: str, workers: int, part: str, source: str, folder: Path, rounds: int) -> list[dict[str, float]]:
    """Each pass of one part, but the first."""
    (folder / "log").mkdir()
    settings = {
        "spark.master": master, "spark.executor.memory": "2g", "spark.executor.cores": "1",
        "spark.cores.max": str(workers), "spark.scheduler.minRegisteredResourcesRatio": "1.0",
        "spark.scheduler.maxRegisteredResourcesWaitingTime": "180s", "spark.sql.shuffle.partitions": "8",
        "spark.eventLog.enabled": "true", "spark.eventLog.rolling.enabled": "false",
        "spark.eventLog.compress": "false", "spark.eventLog.dir": (folder / "log").as_uri(),
    }  # fmt: skip
    spark = session("spark", driver_memory="1g", extra=settings)
    watched, found = Watched(folder / "log"), []
    with brokers.running(folder) if part == "ingest" else nullcontext() as broker:
        if broker:
            brokers.create_topic(spark, broker, "bench", PARTITIONS)
            brokers.produce(ticdc_lab.load(spark, source).messages, broker, "bench")
            source = broker.url("bench")
        for i in range(rounds + 1):
            before = used_by_workers(spark)
            took = watched.pass_of(lambda at=folder / f"pass-{i}", source=source: asked(spark, part, source, at))
            took["busiest_s"] = max(s - before.get(at, 0.0) for at, s in used_by_workers(spark).items())
            print(f"  {workers} workers, {part}, pass {i}: {took['wall_s']:.1f} s", file=sys.stderr, flush=True)
            found += [took] if i else []
    return found


def asked(spark: SparkSession, part: str, source: str, folder: Path) -> None:
    """One pass."""
    folder.mkdir()
    if part == "report":
        ticdc_lab.report(ticdc_lab.load(spark, source), folder / "report.html")
    elif part == "ingest":
        options = {"maxOffsetsPerTrigger": "500000"}
        ingest(spark, source, str(folder / "tables"), protocol="canal-json", once=True, options=options)
    else:
        log = ticdc_lab.open(source, spark=spark, folder=folder / "log")
        if part != "audit":
            log.transactions()
        errors = [f for f in log.audit().frames["findings"].to_dict("records") if f["severity"] == "error"]
        if errors:
            raise SystemExit(f"a sound log was given {len(errors)} errors, the first: {errors[0]['message']}")
        log.close()


def source_of(part: str, events: int, inputs: Path, topics: int) -> Path:
    """The log that a part reads, made if it is not there."""
    if not part.startswith("hot"):
        source = inputs / f"canal-json_{events}.parquet"
        return several(source, topics) if topics > 1 else source
    path = inputs / f"{part.replace(' ', '-')}_{events}.parquet"
    if not path.exists():
        hot_log(part, events, path)
    return path


def measured(workers: int, part: str, args: argparse.Namespace) -> dict[str, float]:
    """Medians of a part on so many workers, by a driver of its own."""
    with tempfile.TemporaryDirectory(prefix="ticdc_lab_") as name:
        folder, source = Path(name), source_of(part, args.events, args.folder, args.topics)
        (folder / "driver").mkdir()
        with cluster.running(folder, workers=workers, memory=MEMORY, behind=args.behind or pinned) as master:
            command = [sys.executable, __file__, "--part", part, "--rounds", str(args.rounds)]
            command += ["--driver", master, str(workers), str(source), str(folder / "driver")]
            done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    found = json.loads(done.stdout.splitlines()[-1])
    return {c: statistics.median(f[c] for f in found) for c in COLUMNS}


def pinned(worker: int) -> list[str]:
    """A command that keeps to a core of its own."""
    return ["taskset", "-c", str(worker)]


def main() -> None:
    """Ask one worker, then two, and print how many times as fast two are."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--events", type=int, default=1_000_000)
    parser.add_argument("--part", choices=PARTS, action="append")
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--topics", type=int, default=1)
    parser.add_argument("--folder", type=Path, default=HERE / "out")
    parser.add_argument("--behind", type=lambda text: lambda worker: shlex.split(text))
    parser.add_argument("--json", type=Path)
    parser.add_argument("--driver", nargs=4, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.driver:
        master, workers, source, folder = args.driver
        print(json.dumps(driver(master, int(workers), args.part[0], source, Path(folder), args.rounds)))
        return
    found = {part: {n: measured(n, part, args) for n in (1, 2)} for part in args.part or PARTS}
    heads = ["", "workers", "s", "CPU s of the driver", "CPU s of the busiest worker", "longest task s"]
    heads += ["Python worker GiB", "most to the driver KiB", "times as fast", "busiest worker, times less"]
    print(f"| {' | '.join(heads)} |\n{'|---' * len(heads)}|")
    for part, of_each in found.items():
        for n, m in of_each.items():
            times = [f"{of_each[1][c] / m[c]:.2f}" if n > 1 else "" for c in ("wall_s", "busiest_s")]
            print(f"| {part} | {n} | {m['wall_s']:.1f} | {m['cpu_s']:.1f} | {m['busiest_s']:.1f} | {m['longest_s']:.1f}"
                  f" | {m['worker_gib']:.2f} | {m['driver_kib']:.0f} | {' | '.join(times)} |")  # fmt: skip
    if args.json:
        args.json.write_text(json.dumps(found, indent=1))


if __name__ == "__main__":
    main()

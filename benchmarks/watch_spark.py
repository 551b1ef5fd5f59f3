"""A watch on Spark: which of Spark's stateful forms keeps the rows, and what a second worker brings.

    python benchmarks/watch_spark.py --part forms [--rows 400000] [--changes 100000]
    python benchmarks/watch_spark.py --part workers [--events 300000]

*forms* lets each form take the same batches of changes into the same buckets with the same kernel, once the state has
``--rows`` rows: ``foreachBatch`` with a file for each bucket (what the watch does), ``applyInPandasWithState`` and
``transformWithStateInPandas`` with a binary state for each bucket, and ``applyInPandasWithState`` with a state for each
row, which only counts there, on a tenth of both.

*workers* watches a recording, which it makes if it is not there, on a standalone master with one worker, then with two,
of one core each, against the desk. Beside wall seconds it gives the CPU seconds of each worker and of the driver: on a
machine that does other work, too, these show how the work is divided.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import psutil
import pyarrow as pa
import pyarrow.parquet as pq
from make_inputs import input_of, make_canal
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming import StatefulProcessor
from run import Meter

from ticdc_lab.audit.history import UNKNOWN, Changes
from ticdc_lab.audit.marks import Promises
from ticdc_lab.engine.sessions import session
from ticdc_lab.engine.shuffle import PACK, bucket_of, dealt
from ticdc_lab.facts import LogFacts
from ticdc_lab.watch import buckets
from ticdc_lab.watch.folder import arrays_of, bytes_of
from ticdc_lab.watch.rows import CHANGE, joined
from ticdc_lab.watch.running import Watch
from ticdc_lab.watch.spark import BUCKETS, SparkWatch, stepping
from ticdc_lab.watch.state import Watched, WatchState, with_changes

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent / "tests"))
import cluster  # noqa: E402

WATCHED = Watched("open-protocol").of_bucket(BUCKETS)
BATCHES = 4
ROCKSDB = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"


def promises() -> Promises:
    """Partitions of a log of eight partitions of one table."""
    rows = [
        {"kind": "row", "commit_ts": 1, "op": "insert", "topic": "t", "partition": p, "offset": 0, "seq": 0,
         "schema_name": "s", "table_name": "a"}
        for p in range(8)
    ]  # fmt: skip
    return Promises.read(LogFacts.of(pa.Table.from_pylist(rows)), protocol="open-protocol")


def batches(rows: int, changes: int) -> Iterator[Changes]:
    """All rows, then batches of changes of some of them."""
    rng, places = np.random.default_rng(7), promises().place
    ids = rng.integers(-(2**62), 2**62, rows)
    for i in range(BATCHES + 2):
        own = np.sort(ids if not i else rng.choice(ids, changes, replace=False))
        n = len(own)
        ts, offset = (np.arange(n) + 1 + i * 2**30 for _ in range(2))
        rank, seq = np.full(n, 2), np.zeros(n, dtype=np.int64)
        hashes = rng.integers(-(2**62), 2**62, (2, n))
        yield Changes(own, places[own % 8], ts, offset, seq, rank, hashes[0], np.full(n, UNKNOWN), hashes[1])


def packs(changes: Changes) -> pa.Table:
    """Changes of rows by bucket, as tasks of a watch send them."""
    bucket = bucket_of(pa.array(changes.row_id), BUCKETS)
    own = [changes[bucket == b] for b in range(BUCKETS)]
    data = [bytes_of({n: getattr(c, n) for n in CHANGE}) for c in own]
    return pa.table({"_bucket": pa.array(range(BUCKETS), pa.int32()), "pack": pa.array(data, pa.binary())})


def taken(state: WatchState, own: list[bytes], promised: Promises) -> WatchState:
    """What every form does with a bucket."""
    return with_changes(state, joined(Changes(*arrays_of(p).values()) for p in own), WATCHED, promised)[0].saved()


class InFiles:
    """``foreachBatch``: each bucket is a file."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.versions = str(folder / "rows"), dict[int, int]()
        (folder / "rows").mkdir()

    def start(self, stream: DataFrame, writer: Callable[[Any], Any]) -> Any:
        """A query."""

        def step(frame: DataFrame, batch: int) -> None:
            kernel = stepping(self.folder, self.versions, batch, WATCHED, promises(), 0)
            dealt(frame, 2).mapInArrow(kernel, PACK).toArrow()
            self.versions = dict.fromkeys(range(BUCKETS), batch)

        return writer(stream.writeStream.foreachBatch(step))


def of_bucket_in_pandas(key: Any, frames: Iterator[pd.DataFrame], state: Any) -> Iterator[pd.DataFrame]:
    """``applyInPandasWithState``: a bucket is one binary value."""
    own = [bytes(p) for frame in frames for p in frame["pack"]]
    before = buckets.from_bytes(bytes(state.get[0])) if state.exists else WatchState()
    after = taken(before, own, promises())
    state.update((buckets.as_bytes(after),))
    yield pd.DataFrame({"rows": [len(after.rows)]})


def of_row_in_pandas(key: Any, frames: Iterator[pd.DataFrame], state: Any) -> Iterator[pd.DataFrame]:
    """``applyInPandasWithState``: a row is a state, and nothing is judged."""
    n = sum(len(frame) for frame in frames)
    state.update((b"x" * 40,))
    yield pd.DataFrame({"rows": [n]})


class OfBucket(StatefulProcessor):
    """``transformWithStateInPandas``: a bucket is one binary value."""

    def init(self, handle: Any) -> None:
        """The value."""
        self.value = handle.getValueState("rows", "data binary")

    def handleInputRows(self, key: Any, rows: Iterator[pd.DataFrame], timers: Any) -> Iterator[pd.DataFrame]:
        """A step."""
        own = [bytes(p) for frame in rows for p in frame["pack"]]
        before = buckets.from_bytes(bytes(self.value.get()[0])) if self.value.exists() else WatchState()
        after = taken(before, own, promises())
        self.value.update((buckets.as_bytes(after),))
        yield pd.DataFrame({"rows": [len(after.rows)]})

    def close(self) -> None:
        """Nothing is open."""


def in_pandas(by: str, step: Any) -> Callable[[DataFrame], DataFrame]:
    """A stream whose groups have a state."""
    return lambda stream: stream.groupBy(by).applyInPandasWithState(
        step, "rows long", "data binary", "update", "NoTimeout"
    )


def in_processor(stream: DataFrame) -> DataFrame:
    """The newer form."""
    return stream.groupBy("_bucket").transformWithStateInPandas(OfBucket(), "rows long", "Update", "None")


def measured(spark: SparkSession, form: str, rows: int, changes: int) -> dict[str, float]:
    """CPU seconds of the last batches, of driver and workers, and how large the state is on disk."""
    with tempfile.TemporaryDirectory(prefix="ticdc_lab_") as name:
        folder = Path(name)
        (folder / "in").mkdir()
        (folder / "made").mkdir()
        for i, own in enumerate(batches(rows, changes)):
            table = packs(own) if "row" not in form else pa.table({"row_id": own.row_id, "after": own.after})
            pq.write_table(table, folder / "made" / f"{i}.parquet")
        schema = PACK if "row" not in form else "row_id long, after long"
        spark.conf.set("spark.sql.streaming.stateStore.providerClass", ROCKSDB)
        files = InFiles(folder) if form == "foreachBatch, a file a bucket" else None

        def drained(*numbers: int) -> None:
            for i in numbers:
                shutil.move(folder / "made" / f"{i}.parquet", folder / "in")
            stream = spark.readStream.schema(schema).option("maxFilesPerTrigger", 1).parquet(str(folder / "in"))

            def begun(writer: Any) -> Any:
                return writer.option("checkpointLocation", str(folder / "mark")).trigger(availableNow=True).start()

            if files:
                query = files.start(stream, begun)
            else:
                query = begun(FORMS[form](stream).writeStream.format("noop").outputMode("update"))
            query.awaitTermination()

        drained(0)
        drained(1)
        took = Meter(own=True).time(lambda: drained(*range(2, BATCHES + 2)))
        kept = folder / ("rows" if files else "mark/state")
        size = sum(f.stat().st_size for f in kept.rglob("*") if f.is_file())
        return took | {"disk_mib": size / 2**20}


FORMS: dict[str, Any] = {
    "foreachBatch, a file a bucket": None,
    "applyInPandasWithState, a value a bucket": in_pandas("_bucket", of_bucket_in_pandas),
    "transformWithStateInPandas, a value a bucket": in_processor,
    "applyInPandasWithState, a state a row": in_pandas("row_id", of_row_in_pandas),
}


def forms(rows: int, changes: int) -> None:
    """A line for each form."""
    spark = session("spark", cores=2, driver_memory="3g", extra={"spark.sql.shuffle.partitions": "2"})
    print("| form | rows | changes | CPU s | CPU s / 100,000 changes | wall s | state on disk MiB |")
    print("|---" * 7 + "|")
    for form in FORMS:
        less = 10 if "row" in form else 1
        m = measured(spark, form, rows // less, changes // less)
        n = BATCHES * changes // less
        print(f"| {form} | {rows // less:,} | {n:,} | {m['cpu_s']:.1f} | {m['cpu_s'] / n * 1e5:.2f} "
              f"| {m['wall_s']:.1f} | {m['disk_mib']:.0f} |", flush=True)  # fmt: skip


def driver(master: str, workers: int, source: str, state: str) -> None:
    """Watch a recording twice into new folders, the first time to warm up; print what the workers took."""
    settings = {
        "spark.master": master, "spark.executor.memory": "1g", "spark.executor.cores": "1",
        "spark.cores.max": str(workers), "spark.scheduler.minRegisteredResourcesRatio": "1.0",
        "spark.scheduler.maxRegisteredResourcesWaitingTime": "180s",
    }  # fmt: skip
    spark = session("spark", driver_memory="1g", extra=settings)
    found: dict[str, Any] = {}
    for turn in ("warm", "measured"):
        before, own_s, begun = used_by_workers(spark), used_by_driver(), time.perf_counter()
        watch = SparkWatch(source, f"{state}/{turn}", spark=spark, once=True)
        watch.run()
        after = used_by_workers(spark)
        took = sorted(after[at] - before.get(at, 0.0) for at in after)
        found = {
            "wall_s": time.perf_counter() - begun, "workers_s": took, "driver_s": used_by_driver() - own_s,
            "rows": watch.view.counts.rows,
            "findings": len(watch.findings), "state_mib": watch.view.nbytes / 2**20, "rows_kept": watch.view.rows,
        }  # fmt: skip
    print(json.dumps(found))


def used_by_driver() -> float:
    """CPU seconds of this process and of its JVM."""
    here = psutil.Process()
    return sum(sum(p.cpu_times()[:4]) for p in (here, *here.children(recursive=True)))


def used_by_workers(spark: SparkSession) -> dict[int, float]:
    """CPU seconds of each executor of a session and what it has started, by its process."""
    found = dict[int, float]()
    for process in psutil.process_iter(["cmdline"]):
        words = process.info["cmdline"] or ()
        if spark.sparkContext.applicationId in words and any("CoarseGrainedExecutorBackend" in word for word in words):
            whole = (process, *process.children(recursive=True))
            found[process.pid] = sum(sum(p.cpu_times()[:4]) for p in whole)
    return found


def pinned(worker: int) -> list[str]:
    """A core of its own for each, as far as there are enough."""
    cores = sorted(os.sched_getaffinity(0))
    return ["taskset", "--cpu-list", str(cores[worker % len(cores)])]


def workers(events: int, folder: Path) -> None:
    """The desk, one worker, and two."""
    source = input_of("canal-json", events, folder=folder)
    if not source.exists():
        folder.mkdir(parents=True, exist_ok=True)
        make_canal(events, folder)
    print(
        "| | wall s | CPU s of each worker | of the driver | row changes | findings | state MiB |\n" + "|---" * 7 + "|"
    )
    with tempfile.TemporaryDirectory(prefix="ticdc_lab_") as name:
        begun, cpu = time.perf_counter(), time.process_time()
        desk = Watch(str(source), f"{name}/desk", once=True)
        desk.run()
        wall_s, own_s = time.perf_counter() - begun, time.process_time() - cpu
        print(f"| desk | {wall_s:.1f} | {own_s:.1f} | | {desk.view.counts.rows:,} | {len(desk.findings)} "
              f"| {desk.view.nbytes / 2**20:.0f} |", flush=True)  # fmt: skip
    busiest, walls_s = [], []
    for n in (1, 2):
        with (
            tempfile.TemporaryDirectory(prefix="ticdc_lab_") as name,
            cluster.running(Path(name), workers=n, memory="2g", behind=pinned) as master,
        ):
            command = [sys.executable, __file__, "--driver", master, str(n), str(source), name]
            done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
        m = json.loads(done.stdout.splitlines()[-1])
        busiest.append(max(m["workers_s"]))
        walls_s.append(m["wall_s"])
        each = " + ".join(f"{s:.1f}" for s in m["workers_s"])
        print(f"| Spark, {n} workers | {m['wall_s']:.1f} | {each} | {m['driver_s']:.1f} | {m['rows']:,} "
              f"| {m['findings']} | {m['state_mib']:.0f} |", flush=True)  # fmt: skip
    print(f"\nCPU seconds of the busiest worker: {busiest[0] / busiest[1]:.2f} times as many with one as with two; "
          f"wall seconds: {walls_s[0] / walls_s[1]:.2f} times")  # fmt: skip


def main() -> None:
    """Measure and print a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--part", choices=("forms", "workers"))
    parser.add_argument("--rows", type=int, default=400_000)
    parser.add_argument("--changes", type=int, default=100_000)
    parser.add_argument("--events", type=int, default=300_000)
    parser.add_argument("--folder", type=Path, default=HERE / "out")
    parser.add_argument("--driver", nargs=4, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.driver:
        master, n, source, state = args.driver
        driver(master, int(n), source, state)
    elif args.part == "forms":
        forms(args.rows, args.changes)
    else:
        workers(args.events, args.folder)


if __name__ == "__main__":
    main()

"""How fast a topic flows from Kafka into Delta, beside the batch over the same messages.

    python benchmarks/make_inputs.py --events 1000000
    python benchmarks/kafka.py --events 1000000 [--protocol canal-json] [--json out.json]
    python benchmarks/kafka.py --minutes 20 --rate 60000      # a growing topic, and how late its rows are

A broker of its own is started with the jars of the tests. *ingest* is ``ticdc-lab ingest`` of the whole topic in
batches, all five tables with it; *batch* decodes the same topic in one pass and writes its events; *batch, all tables*
writes messages, events, watermarks and transactions as Delta tables too, once. The first pass of each does not count.
CPU seconds are of the engine and its workers, the broker's are not among them.

With ``--minutes`` a producer in a process of its own (a Spark, whose CPU is used but not counted) writes the canal-json
log again and again at ``--rate`` row changes a second, with rising timestamps, while ``ingest`` runs; after each
batch it prints how many rows came, how long ago the batch's last message was written (latency: from message to table),
and how many files the table of events has.
"""

from __future__ import annotations

import argparse
import json
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pyarrow as pa
from pyspark.sql import SparkSession
from pyspark.sql import functions as F
from run import Meter

from ticdc_lab.engine.sessions import session
from ticdc_lab.events.tso import LOGICAL_BITS
from ticdc_lab.facts.watermarks import partition_watermarks
from ticdc_lab.lake.ingest import IngestState, ingest
from ticdc_lab.lake.tables import Tables
from ticdc_lab.sources.load import load
from ticdc_lab.transactions import transactions

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent / "tests"))
import broker as brokers  # noqa: E402

PARTITIONS = 8


def whole_batch(spark: SparkSession, source: str, folder: str) -> None:
    """What ingest leaves behind, in one pass."""
    log = load(spark, source).materialise(f"{folder}/decoded")
    frames = {
        "messages": log.messages,
        "events": log.events,
        "watermarks": log.events.transform(partition_watermarks),
        "transactions": log.events.transform(transactions),
    }
    for name, frame in frames.items():
        frame.write.format("delta").save(f"{folder}/{name}")


def measured(spark: SparkSession, source: str, rounds: int, a_batch: int) -> dict[str, dict[str, float]]:
    """Median seconds and CPU seconds of each, in turn."""
    runs: dict[str, Callable[[str], object]] = {
        "batch": lambda folder: load(spark, source).materialise(f"{folder}/decoded"),
        "batch, all tables": lambda folder: whole_batch(spark, source, folder),
        "ingest": lambda folder: ingest(
            spark, source, f"{folder}/out", once=True, options={"maxOffsetsPerTrigger": str(a_batch)}
        ),
    }
    seen: dict[str, list[dict[str, float]]] = {name: [] for name in runs}
    for i in range(rounds + 1):
        for name, run in runs.items():
            with tempfile.TemporaryDirectory(prefix="ticdc_lab_") as folder:
                took = Meter().time(lambda run=run, folder=folder: run(folder))
            print(f"  round {i} {name}: {took['wall_s']:.1f} s, {took['cpu_s']:.1f} s CPU", file=sys.stderr, flush=True)
            seen[name] += [took] if i else []
    return {name: {k: statistics.median(m[k] for m in ms) for k in ms[0]} for name, ms in seen.items()}


def producing(spark: SparkSession, path: Path, broker: str, args: argparse.Namespace) -> None:
    """Write a canal-json log again and again, a slice each two seconds, its timestamps behind those before."""
    log = spark.read.parquet(str(path)).select("partition", "offset", "key", "value").cache()
    most = log.selectExpr("max(offset) + 1").collect()[0][0]
    a_slice, began, at = int(most * args.rate / args.events * 2), time.monotonic(), 0
    while True:
        again, first = divmod(at, most)
        end = min(first + a_slice, most)
        rows = log.where(F.col("offset").between(first, end - 1))
        moved = rows.mapInArrow(lambda b, again=again: map(partial(moved_on, again=again), b), rows.schema)
        sent = moved.repartition("partition").sortWithinPartitions("partition", "offset")
        options = {"kafka.bootstrap.servers": broker, "topic": "goes-on"}
        sent.select("partition", "key", "value").write.format("kafka").options(**options).save()
        at += end - first
        time.sleep(max(0.0, began + 2 * at / a_slice - time.monotonic()))


def moved_on(batch: pa.RecordBatch, *, again: int) -> pa.RecordBatch:
    """The same messages so many hours later."""
    if not again:
        return batch

    def later(found: re.Match[bytes]) -> bytes:
        return b"%s%d" % (found[1], int(found[2]) + (again * 3_600_000 << LOGICAL_BITS))

    values = [_TS.sub(later, value) for value in batch["value"].to_pylist()]
    return batch.set_column(3, batch.schema.field("value"), pa.array(values, pa.binary()))


_TS = re.compile(rb'("(?:commitTs|watermarkTs)":)(\d+)')


def sustained(spark: SparkSession, args: argparse.Namespace, folder: Path, broker: brokers.Broker) -> None:
    """Ingest while a producer writes; a line a batch."""
    # 8 GiB of all partitions, or the disk is full before the end
    kept = {"segment_bytes": str(64 << 20), "retention_bytes": str(1 << 30)}
    brokers.create_topic(spark, broker, "goes-on", PARTITIONS, **kept)
    given = ("--events", args.events, "--rate", args.rate, "--folder", args.folder, "--to", broker.plain)
    producer = subprocess.Popen([sys.executable, __file__, *map(str, given)])
    ends = {"kafka.bootstrap.servers": f"127.0.0.1:{broker.plain}", "subscribe": "goes-on"}
    while spark.read.format("kafka").options(**ends).load().isEmpty():
        time.sleep(1)
    out, meter, end = folder / "out", Meter(), time.monotonic() + 60 * args.minutes
    tables, last, rows = Tables(spark, str(out)), time.monotonic(), 0
    print("| batch | messages | row changes/s of both cores | latency s | files of events |\n|---|---|---|---|---|")

    class Enough(Exception):
        """The time is up."""

    def said(state: IngestState) -> None:
        nonlocal last, rows
        now, total = time.monotonic(), sum(f["n_rows"] for f in state.facts)
        of_batch = tables.of_batch("messages", state.batch_id)
        n, written = of_batch.agg(F.count("*"), F.max(F.unix_millis("timestamp"))).collect()[0]
        rate, files = (total - rows) / (now - last), len(tables.files("events"))
        late = time.time() - written / 1000
        print(f"| {state.batch_id} | {n:,} | {rate:,.0f} | {late:.1f} | {files} |", flush=True)
        last, rows = now, total
        if now > end:
            raise Enough

    def run() -> None:
        try:
            ingest(spark, broker.url("goes-on"), str(out), protocol="canal-json", said=said)
        except Exception as error:
            if "Enough" not in str(error):
                raise

    meter.look()
    before = meter.cpu_of(producer.pid)
    took = meter.time(run)
    ours = took["cpu_s"] - (meter.cpu_of(producer.pid) - before)
    producer.kill()
    print(f"\n{rows:,} row changes in {took['wall_s']:.0f} s: {rows / took['wall_s']:,.0f} a second of the clock, "
          f"{rows / ours:,.0f} a CPU second; peak {took['peak_gib']:.1f} GiB with all children")  # fmt: skip


def main() -> None:
    """Measure one protocol, or both."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--events", type=int, default=1_000_000)
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--batch", type=int, default=500_000, help="messages of one batch of ingest")
    parser.add_argument("--protocol", choices=["canal-json", "open-protocol"], action="append")
    parser.add_argument("--minutes", type=float, default=0, help="a topic that grows for so long")
    parser.add_argument("--rate", type=float, default=60_000, help="row changes a second of that topic")
    parser.add_argument("--to", type=int, help="only produce, to the broker at this port of loopback")
    parser.add_argument("--folder", type=Path, default=HERE / "out")
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    spark, found = session("spark"), {}
    if args.to:
        producing(spark, args.folder / f"canal-json_{args.events}.parquet", f"127.0.0.1:{args.to}", args)
    with tempfile.TemporaryDirectory(prefix="ticdc_lab_") as folder, brokers.running(Path(folder)) as broker:
        if args.minutes:
            sustained(spark, args, Path(folder), broker)
            return
        for protocol in args.protocol or ["canal-json", "open-protocol"]:
            messages = load(spark, str(args.folder / f"{protocol}_{args.events}.parquet"), protocol=protocol).messages
            brokers.create_topic(spark, broker, protocol, PARTITIONS)
            brokers.produce(messages, broker, protocol)
            n = messages.count()
            took = measured(spark, broker.url(protocol), args.rounds, args.batch)
            print(f"\n### {protocol}, {args.events:,} row changes in {n:,} messages\n")
            print("| | s | row changes/s | CPU s | row changes/CPU s | rate to batch's |\n|---|---|---|---|---|---|")
            for name, m in took.items():
                rate, ratio = args.events / m["wall_s"], took["batch"]["wall_s"] / m["wall_s"]
                cost = f"{m['cpu_s']:.1f} | {args.events / m['cpu_s']:,.0f}"
                print(f"| {name} | {m['wall_s']:.1f} | {rate:,.0f} | {cost} | {ratio:.2f} |")
            found[protocol] = took
    if args.json:
        args.json.write_text(json.dumps(found, indent=1))


if __name__ == "__main__":
    main()

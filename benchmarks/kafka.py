"""How fast a topic flows from Kafka into Delta, beside the batch over the same messages.

    python benchmarks/make_inputs.py --events 1000000
    python benchmarks/kafka.py --events 1000000 [--protocol canal-json] [--json out.json]

A broker of its own is started with the jars of the tests. *ingest* is ``ticdc-lab ingest`` of the whole topic in
batches, all five tables with it; *batch* decodes the same topic in one pass and writes its events; *batch, all tables*
writes messages, events, watermarks and transactions as Delta tables too, once. The first pass of each does not count.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from pyspark.sql import SparkSession

from ticdc_lab.engine.sessions import session
from ticdc_lab.facts.watermarks import partition_watermarks
from ticdc_lab.lake.ingest import ingest
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


def seconds(run: Callable[[], object]) -> float:
    """How long ``run`` takes."""
    start = time.perf_counter()
    run()
    return time.perf_counter() - start


def measured(spark: SparkSession, source: str, rounds: int, a_batch: int) -> dict[str, float]:
    """Median seconds of each, in turn."""
    runs: dict[str, Callable[[str], object]] = {
        "batch": lambda folder: load(spark, source).materialise(f"{folder}/decoded"),
        "batch, all tables": lambda folder: whole_batch(spark, source, folder),
        "ingest": lambda folder: ingest(
            spark, source, f"{folder}/out", once=True, options={"maxOffsetsPerTrigger": str(a_batch)}
        ),
    }
    seen: dict[str, list[float]] = {name: [] for name in runs}
    for i in range(rounds + 1):
        for name, run in runs.items():
            with tempfile.TemporaryDirectory(prefix="ticdc_lab_") as folder:
                took = seconds(lambda run=run, folder=folder: run(folder))
            print(f"  round {i} {name}: {took:.1f} s", file=sys.stderr, flush=True)
            seen[name] += [took] if i else []
    return {name: statistics.median(took) for name, took in seen.items()}


def main() -> None:
    """Measure one protocol, or both."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--events", type=int, default=1_000_000)
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--batch", type=int, default=500_000, help="messages of one batch of ingest")
    parser.add_argument("--protocol", choices=["canal-json", "open-protocol"], action="append")
    parser.add_argument("--folder", type=Path, default=HERE / "out")
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    spark, found = session("spark"), {}
    with tempfile.TemporaryDirectory(prefix="ticdc_lab_") as folder, brokers.running(Path(folder)) as broker:
        for protocol in args.protocol or ["canal-json", "open-protocol"]:
            messages = load(spark, str(args.folder / f"{protocol}_{args.events}.parquet"), protocol=protocol).messages
            brokers.create_topic(spark, broker, protocol, PARTITIONS)
            brokers.produce(messages, broker, protocol)
            n = messages.count()
            took = measured(spark, broker.url(protocol), args.rounds, args.batch)
            print(f"\n### {protocol}, {args.events:,} row changes in {n:,} messages\n")
            print("| | s | row changes/s | rate to that of batch |\n|---|---|---|---|")
            for name, s in took.items():
                print(f"| {name} | {s:.1f} | {args.events / s:,.0f} | {took['batch'] / s:.2f} |")
            found[protocol] = took
    if args.json:
        args.json.write_text(json.dumps(found, indent=1))


if __name__ == "__main__":
    main()

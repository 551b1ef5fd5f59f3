"""A watch on the desk: the memory of a large state, its speed, and how soon a message is in the metrics.

    python benchmarks/watch.py --part memory [--rows 5000000] [--memory 240MiB] [--protocol canal-json]
    python benchmarks/watch.py --part latency [--rate 60000] [--seconds 20] [--filled 0] [--protocol canal-json]

*memory* watches a recording (``--once``) in which each row changes once, so the state is as large as it can be for so
many row changes. It prints the highest memory of the process, how much of that are mapped files (code), and row changes
for each CPU second.

*latency* starts the tests' Kafka broker, sends row changes that were made before at a steady rate, and asks
``/metrics`` ten times a second. The watch has a core of its own; broker and producer have the others. A message is in
the metrics when ``ticdc_lab_read_offset`` of its partition is behind it: its latency runs from the broker's answer to
the producer. ``--filled`` is how many rows the state has before. It also prints the CPU seconds of broker, producer and
watch, and for how much of the time the watch waited for its core (``waited``): with other work on the machine, that is
what delays it.
"""

from __future__ import annotations

import argparse
import itertools
import os
import re
import socket
import sys
import tempfile
import threading
import time
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import numpy as np
import psutil
from make_inputs import (
    BATCH,
    PARTITIONS,
    START_TS,
    VERSION,
    Sink,
    canal_other,
    canal_row,
    frame,
    open_row,
)

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent / "tests"))
MARKED = 2_000
"""Row changes between two watermarks."""

Message = tuple[int, bytes | None, bytes, int]
"""Partition, key, value, and how many row changes it has."""


def messages(protocol: str, ids: Iterator[int], ts: Iterator[int]) -> Iterator[Message]:
    """An insert for each id, with a watermark on each partition now and then; without end if ``ids`` are."""
    waiting: list[list[tuple[bytes, bytes]]] = [[] for _ in range(PARTITIONS)]

    def batched(p: int) -> Message:
        own, waiting[p] = waiting[p], []
        return p, VERSION + b"".join(k for k, _ in own), b"".join(v for _, v in own), len(own)

    def marked(ts: int) -> Iterator[Message]:
        for p in range(PARTITIONS):
            if waiting[p]:
                yield batched(p)
            if protocol == "canal-json":
                yield p, None, canal_other("TIDB_WATERMARK", ts, "", ""), 0
            else:
                yield p, VERSION + frame(f'{{"ts":{ts},"t":3}}'.encode()), frame(b""), 0

    now = START_TS
    for n, i in enumerate(ids):
        now = next(ts)
        row: dict[str, object] = {"id": i, "owner": f"own_{i % 997}", "balance": i % 10_000, "ver": 0, "at": None}
        p = i % PARTITIONS
        if protocol == "canal-json":
            yield p, None, canal_row(now, i % 20, row, None), 1
        else:
            waiting[p].append(open_row(now, i % 20, row, None))
            if len(waiting[p]) == BATCH:
                yield batched(p)
        if n % MARKED == MARKED - 1:
            yield from marked(now)
    yield from marked(now)


def recording(protocol: str, rows: int, folder: Path) -> Path:
    """Each row once, in Parquet."""
    path = folder / f"watch_{protocol}_{rows}.parquet"
    if not path.exists():
        folder.mkdir(parents=True, exist_ok=True)
        sink = Sink(path)
        steady = (START_TS + (n << 18) // 60 for n in itertools.count())  # 60,000 a second
        for p, key, value, _ in messages(protocol, iter(range(rows)), steady):
            sink.put(p, key, value)
        sink.flush()
        sink.writer.close()
    return path


def command(*words: str) -> list[str]:
    """The watch, as a user starts it."""
    return [str(Path(sys.executable).with_name("ticdc-lab")), "watch", *words]


def memory(protocol: str, rows: int, most: str, folder: Path) -> None:
    """A line for one run."""
    source = recording(protocol, rows, folder)
    with tempfile.TemporaryDirectory(prefix="ticdc_lab_") as state:
        begun = time.perf_counter()
        process = psutil.Popen(command(str(source), "--state", state, "--memory", most, "--once"), stdout=sys.stderr)
        peak, of_files, cpu = 0, 0, 0.0
        while process.poll() is None:
            try:
                of = dict(re.findall(r"(VmRSS|RssFile):\s+(\d+) kB", Path(f"/proc/{process.pid}/status").read_text()))
                times = process.cpu_times()
            except (OSError, psutil.Error):
                continue
            if int(of.get("VmRSS", 0)) > peak:
                peak, of_files = int(of["VmRSS"]), int(of["RssFile"])
            cpu = times.user + times.system
            time.sleep(0.02)
        wall_s = time.perf_counter() - begun
    print("| protocol | row changes | --memory | MiB at most | of these code | row changes / CPU s | wall s | exit |")
    print(f"|---|---|---|---|---|---|---|---|\n| {protocol} | {rows:,} | {most} | {peak >> 10} | {of_files >> 10} "
          f"| {rows / cpu:,.0f} | {wall_s:.0f} | {process.returncode} |", flush=True)  # fmt: skip


def waited_s(pid: int) -> float:
    """How long all threads of a process could run and did not."""
    return sum(int(f.read_text().split()[1]) for f in Path(f"/proc/{pid}/task").glob("*/schedstat")) / 1e9


def latency(protocol: str, rate: int, seconds: int, filled: int) -> None:
    """How long messages take from the broker to the metrics."""
    import broker as kafka
    import topics
    from confluent_kafka import Producer

    *others, last = sorted(os.sched_getaffinity(0))
    os.sched_setaffinity(0, others or {last})
    rising = (START_TS + (n << 18) // rate for n in itertools.count())
    made = messages(protocol, itertools.count(), rising)
    sent, n = list[Message](), 0
    while n < filled + rate * (seconds + 1):
        sent.append(next(made))
        n += sent[-1][3]
    with (
        tempfile.TemporaryDirectory(prefix="ticdc_lab_") as name, kafka.running(Path(name)) as broker,
        ExitStack() as stack,
    ):  # fmt: skip
        servers = f"127.0.0.1:{broker.plain}"
        topics.create(servers, "bench", PARTITIONS)
        there: list[list[tuple[int, float]]] = [[] for _ in range(PARTITIONS)]  # offsets that the broker has, and when

        def answered(error: object, message: object) -> None:
            assert error is None, error
            there[message.partition()].append((message.offset(), time.time()))  # type: ignore[attr-defined]

        producer = Producer({"bootstrap.servers": servers, "acks": "1", "linger.ms": "20", "log_level": 0,
                             "queue.buffering.max.messages": "2000000"})  # fmt: skip
        queue, before = iter(sent), [0] * PARTITIONS
        n = 0
        while n < max(filled, 1_000):
            p, key, value, rows = next(queue)
            producer.produce("bench", value, key, partition=p)
            before[p], n = before[p] + 1, n + rows
            producer.poll(0)
        producer.flush(300)
        with socket.socket() as taken:
            taken.bind(("127.0.0.1", 0))
            at = f"127.0.0.1:{taken.getsockname()[1]}"
        words = command(broker.url("bench"), "--state", f"{name}/state", "--listen", at)
        watch = stack.enter_context(psutil.Popen(words, stdout=sys.stderr))
        stack.callback(watch.terminate)
        watch.cpu_affinity([last])
        read: list[tuple[float, dict[int, int]]] = []
        ended = threading.Event()

        def scrape() -> None:
            while not ended.wait(0.1):
                try:
                    with urllib.request.urlopen(f"http://{at}/metrics", timeout=30) as answer:
                        text = answer.read().decode()
                except OSError:
                    continue
                found = re.findall(r'^ticdc_lab_read_offset\{.*partition="(\d+)".*\} ([\d.e+]+)$', text, re.MULTILINE)
                read.append((time.time(), {int(p): int(float(n)) for p, n in found}))

        scraper = threading.Thread(target=scrape)
        scraper.start()
        while not read or any(read[-1][1].get(p, 0) < end for p, end in enumerate(before)):
            time.sleep(0.1)
        kafka_java = max((p for p in psutil.Process().children(recursive=True) if "java" in p.name()),
                         key=lambda p: sum(p.cpu_times()[:2]))  # fmt: skip
        used = [sum(p.cpu_times()[:2]) for p in (psutil.Process(), kafka_java, watch)]
        idle, begun, n = waited_s(watch.pid), time.perf_counter(), 0
        load = psutil.getloadavg()[0]
        for i, (p, key, value, rows) in enumerate(queue):
            if n >= rate * seconds:
                break
            while (ahead_s := n / rate - (time.perf_counter() - begun)) > 0:
                producer.poll(min(ahead_s, 0.005))
            producer.produce("bench", value, key, partition=p, on_delivery=answered if i % 7 == 0 else None)
            n += rows
        producer.flush(120)
        sent_s, peak = time.perf_counter() - begun, watch.memory_info().rss >> 20
        idle = waited_s(watch.pid) - idle
        took = [sum(p.cpu_times()[:2]) - u for p, u in zip((psutil.Process(), kafka_java, watch), used, strict=True)]
        until = time.monotonic() + 60
        while time.monotonic() < until and any(read[-1][1].get(p, 0) <= of[-1][0] for p, of in enumerate(there)):
            time.sleep(0.2)
        ended.set()
        scraper.join()
    times = np.array([t for t, _ in read])
    each = []
    for p, of in enumerate(there):
        offset, when = np.array(of, dtype=float).T
        seen = np.maximum.accumulate([by.get(p, 0) for _, by in read])
        each.append(times[np.minimum(np.searchsorted(seen, offset, side="right"), len(times) - 1)] - when)
    lags = np.concatenate(each)
    print("| protocol | rows before | row changes a second | latency s: median | 95 % | 99 % | at most | cores: watch "
          "| producer | broker | waited | watch MiB | load |\n" + "|---" * 13 + "|")  # fmt: skip
    of = (np.quantile(lags, (0.5, 0.95, 0.99, 1)), np.array([*(took[i] for i in (2, 0, 1)), idle]) / sent_s)
    told = " | ".join(f"{x:.2f}" for x in np.concatenate(of))
    print(f"| {protocol} | {filled:,} | {n / sent_s:,.0f} | {told} | {peak} | {load:.0f} |", flush=True)


def main() -> None:
    """Measure and print a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--part", choices=("memory", "latency"), required=True)
    parser.add_argument("--protocol", choices=("canal-json", "open-protocol"), default="canal-json")
    parser.add_argument("--rows", type=int, default=5_000_000)
    parser.add_argument("--memory", default="240MiB")
    parser.add_argument("--rate", type=int, default=60_000)
    parser.add_argument("--seconds", type=int, default=20)
    parser.add_argument("--filled", type=int, default=0, help="rows of the state before latency is measured")
    parser.add_argument("--folder", type=Path, default=HERE / "out")
    args = parser.parse_args()
    if args.part == "memory":
        memory(args.protocol, args.rows, args.memory, args.folder)
    else:
        latency(args.protocol, args.rate, args.seconds, args.filled)


if __name__ == "__main__":
    main()

"""How soon `survey` answers about a topic, and how fast `record` keeps it.

    python benchmarks/record.py [--messages 2000000] [--partitions 4] [--json out.json]

A broker of its own is started with the jars of the tests and filled with messages of 500 bytes. Every row is a process
of its own, as a user starts it: seconds by the clock, CPU seconds, and the most memory. The target is 2 s for `survey`,
and for `record` 150,000 messages a second beside the broker on two cores, in 512 MiB.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from confluent_kafka import Producer

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent / "tests"))
import broker as brokers  # noqa: E402
from topics import create  # noqa: E402

SIZE = 500
VALUE = (
    b'{"id":0,"database":"shop","table":"orders","pkNames":["id"],"isDdl":false,"type":"INSERT","es":1,"ts":1,"sql":"",'
    b'"sqlType":{"id":4,"note":12},"mysqlType":{"id":"int","note":"varchar"},"data":[{"id":"%d","note":"~"}],'
    b'"old":null,"_tidb":{"commitTs":%d}}'
)


def fill(servers: str, topic: str, messages: int, partitions: int) -> None:
    """Write the messages."""
    create(servers, topic, partitions)
    producer = Producer({"bootstrap.servers": servers, "linger.ms": "20", "queue.buffering.max.messages": "200000"})
    for i in range(messages):
        value = VALUE % (i, (i + 1) << 18)
        value = value.replace(b"~", b"x" * (SIZE + 1 - len(value)))
        while True:
            try:
                producer.produce(topic, value, partition=i % partitions)
                break
            except BufferError:
                producer.poll(0.1)
    assert producer.flush(120) == 0


def measured(*words: str) -> dict[str, float]:
    """Run a command of the package; what it took."""
    begun = time.monotonic()
    process = subprocess.Popen([sys.executable, "-m", "ticdc_lab.cli", *words], stdout=subprocess.DEVNULL)
    _, status, used = os.wait4(process.pid, 0)
    assert status == 0, words
    wall = time.monotonic() - begun
    return {"seconds": wall, "cpu_s": used.ru_utime + used.ru_stime, "peak_mb": used.ru_maxrss / 1024}


def main() -> None:
    """Fill a topic, then look at it and keep it in each form."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--messages", type=int, default=2_000_000)
    parser.add_argument("--partitions", type=int, default=4)
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    rows = []
    with tempfile.TemporaryDirectory(dir=os.environ.get("TMPDIR")) as folder:
        (Path(folder) / "broker").mkdir()
        with brokers.running(Path(folder) / "broker") as broker:
            fill(f"127.0.0.1:{broker.plain}", "recorded", given.messages, given.partitions)
            source = broker.url("recorded")
            measured("survey", source)
            rows += [{"what": "survey"} | measured("survey", source) for _ in range(3)]
            for name in ("topic.jsonl", "topic.jsonl.gz", "topic.parquet"):
                found = measured("record", source, "--out", f"{folder}/{name}")
                rows.append({"what": f"record {name}", "messages_a_s": given.messages / found["seconds"]} | found)
    for row in rows:
        print("  ".join(f"{k} {v:,.1f}" if isinstance(v, float) else f"{v}" for k, v in row.items()))
    if given.json:
        given.json.write_text(json.dumps(rows, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()

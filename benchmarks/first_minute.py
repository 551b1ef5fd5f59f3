"""What a user waits for in the first minute: set-up, the demo, a wrong argument, each question about the sample.

    python benchmarks/first_minute.py [--engine embedded --engine spark] [--rounds 3] [--set-up] [--json out.json]

Every question is one process, from the shell's prompt to the next, and so are the peers: a bare Spark session with one
count, and a DuckDB script that gives the counts by kind, the watermarks and the transactions of the same file. All take
turns in each round; medians are shown. Spark's classes are kept first, as ``./lab setup --spark`` does. CPU seconds are
user and system time of the process and all that it started, also of what outlived it (Linux only). ``--set-up`` clones
the checkout and starts with an empty home folder and empty caches, which needs a network.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import os
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path

from ticdc_lab.engine import class_archive

ROOT = Path(__file__).resolve().parent.parent
SAMPLE = str(ROOT / "data/messages_canal-json-tidb_small.jsonl.gz")
LAB = (sys.executable, "-m", "ticdc_lab.cli")
ENGINES = ("embedded", "spark")
_BECOME_SUBREAPER = 36  # of Linux's prctl: what a command leaves behind becomes our child, and its CPU time ours

QUESTIONS = {
    "watermarks": ("watermarks", SAMPLE, "--json"),
    "transactions": ("transactions", SAMPLE, "--json"),
    "dispatch by index-value": (
        "dispatch", SAMPLE, "--strategy", "index-value", "--partitions", "16", "--out", "moved.parquet",
    ),
    "advise": ("advise", SAMPLE, "--json"),
    "audit": ("audit", SAMPLE, "--json"),
    "report": ("report", SAMPLE, "--out", "report.html"),
}  # fmt: skip
WRONG = {
    "missing file": ("audit", "nofile.jsonl.gz"),
    "unknown protocol": ("audit", SAMPLE, "--protocol", "canal-jsn"),
    "impossible strategy": ("dispatch", SAMPLE, "--strategy", "indx", "--partitions", "4", "--out", "x.parquet"),
    "bad option": ("audit", SAMPLE, "--option", "no-equals-sign"),
}

BARE_SPARK = """
from pyspark.sql import SparkSession
spark = SparkSession.builder.master("local[*]").config("spark.ui.enabled", "false").getOrCreate()
print(spark.range(1000).count())
"""
DUCKDB = """
import json, sys, duckdb
c = duckdb.connect()
c.execute('''
    CREATE TABLE message AS
    SELECT "partition", decode(from_base64(value)) AS v
    FROM read_json(?, format='newline_delimited', columns={partition: 'INT', value: 'VARCHAR'})
''', [sys.argv[1]])
c.execute('''
    CREATE TABLE event AS
    SELECT "partition", v->>'$.type' AS kind, CAST(v->>'$._tidb.commitTs' AS BIGINT) AS commit_ts,
           CAST(v->>'$._tidb.watermarkTs' AS BIGINT) AS watermark, json_array_length(v, '$.data') AS n_rows
    FROM message
''')
kinds = c.execute('SELECT kind, count(*) FROM event GROUP BY ALL ORDER BY ALL').fetchall()
marks = c.execute('SELECT "partition", max(watermark) FROM event GROUP BY ALL ORDER BY ALL').fetchall()
transactions = c.execute('''
    SELECT commit_ts, sum(n_rows), list(DISTINCT "partition"), commit_ts <= ? AS complete
    FROM event WHERE kind IN ('INSERT', 'UPDATE', 'DELETE') GROUP BY ALL ORDER BY ALL
''', [min(mark for _, mark in marks)]).fetchall()
print(json.dumps({"kinds": dict(kinds), "topic": min(mark for _, mark in marks), "transactions": len(transactions)}))
"""


@dataclass(frozen=True, slots=True)
class Took:
    """Seconds from start to end, and CPU seconds of all processes."""

    wall_s: float
    cpu_s: float
    code: int
    said: str


def timed(command: Sequence[str], folder: Path, environment: Mapping[str, str] | None = None) -> Took:
    """Run one command to its end; what it leaves behind is waited for, but only its CPU time counts."""
    before, started = _cpu_s(), time.perf_counter()
    done = subprocess.run(
        command, cwd=folder, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False
    )
    wall = time.perf_counter() - started
    with suppress(ChildProcessError):
        while True:
            os.wait()
    return Took(wall, _cpu_s() - before, done.returncode, done.stdout)


def _cpu_s() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def contestants(engines: Sequence[str]) -> dict[str, tuple[str, ...]]:
    """Every command that takes its turn in a round."""
    peers = {
        "peer: bare Spark": (sys.executable, "-c", BARE_SPARK),
        "peer: DuckDB": (sys.executable, "-c", DUCKDB, SAMPLE),
    }
    questions = {
        f"{engine}: {name}": (*LAB, *words, "--engine", engine)
        for name, words in QUESTIONS.items()
        for engine in engines
    }
    return peers | {f"wrong: {name}": (*LAB, *words) for name, words in WRONG.items()} | questions


def measured(commands: Mapping[str, Sequence[str]], rounds: int, folder: Path) -> dict[str, Took]:
    """Medians over the rounds, after one that fills the caches of compiled code and does not count."""
    seen: dict[str, list[Took]] = {name: [] for name in commands}
    for i in range(rounds + 1):
        for name, command in commands.items():
            took = timed(command, folder)
            expect(name, took)
            print(f"  round {i} {name}: {took.wall_s:.2f} s, {took.cpu_s:.2f} CPU s", file=sys.stderr, flush=True)
            if i:
                seen[name].append(took)
    return {name: _median(all_of_it) for name, all_of_it in seen.items()}


def _median(rounds: list[Took]) -> Took:
    wall, cpu = (statistics.median(getattr(took, name) for took in rounds) for name in ("wall_s", "cpu_s"))
    return Took(wall, cpu, rounds[-1].code, rounds[-1].said)


def expect(name: str, took: Took) -> None:
    """A time counts only if the answer came: 0, findings in an audit, or a refusal of what is wrong."""
    right = (2,) if name.startswith("wrong: ") else (0, 1) if name.endswith(": audit") else (0,)
    if took.code not in right:
        raise SystemExit(f"{name} ended with {took.code}:\n{took.said[-2000:]}")


def set_up(folder: Path) -> dict[str, Took]:
    """A new user's first minutes: a clone, an empty home folder, no cache of any kind."""
    clone, home = folder / "ticdc_lab", folder / "home"
    subprocess.run(["git", "clone", "--quiet", ROOT, clone], check=True)
    home.mkdir()
    caches = ("UV_CACHE_DIR", "PIP_CACHE_DIR", "XDG_CACHE_HOME", "TICDC_LAB_CACHE", "VIRTUAL_ENV", "PYTHONPATH")
    environment = {k: v for k, v in os.environ.items() if k not in caches} | {"HOME": str(home)}
    environment["PATH"] = os.pathsep.join(p for p in environment["PATH"].split(os.pathsep) if ".venv" not in p)
    steps = {
        "set-up, light": ("./lab", "setup"),
        "demo, first": ("./lab", "demo"),
        "demo, second": ("./lab", "demo"),
        "set-up, full, after the light one": ("./lab", "setup", "--spark"),
        "demo, with the full set": ("./lab", "demo"),
    }
    found = {}
    for name, command in steps.items():
        found[name] = timed(command, clone, environment)
        expect(name, found[name])
        print(f"  {name}: {found[name].wall_s:.1f} s, {found[name].cpu_s:.1f} CPU s", file=sys.stderr, flush=True)
    return found


def table(found: Mapping[str, Took]) -> list[str]:
    """The lines that go into the documentation."""
    lines = ["| | s | CPU s | CPU, times its peer |", "|---|---|---|---|"]
    peer_of = {"embedded": found.get("peer: DuckDB"), "spark": found.get("peer: bare Spark")}
    for name, took in found.items():
        peer = peer_of.get(name.partition(": ")[0])
        ratio = f"{took.cpu_s / peer.cpu_s:.1f}" if peer else ""
        lines.append(f"| {name} | {took.wall_s:.1f} | {took.cpu_s:.1f} | {ratio} |")
    return lines


def agree(found: Mapping[str, Took], engines: Sequence[str]) -> None:
    """Our number of transactions equals the DuckDB script's, which knows nothing of us."""
    theirs = json.loads(found["peer: DuckDB"].said)["transactions"]
    for engine in engines:
        ours = json.loads(found[f"{engine}: transactions"].said.splitlines()[-1])["transactions"]
        if ours != theirs:
            raise SystemExit(f"{engine} gives {ours} transactions, DuckDB {theirs}")


def main() -> None:
    """Run all of it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--engine", choices=ENGINES, action="append")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--set-up", action="store_true")
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    if "spark" in (args.engine or ENGINES):
        class_archive.make()
    ctypes.CDLL(None).prctl(_BECOME_SUBREAPER, 1)
    folder = Path(tempfile.mkdtemp(prefix="first-minute-"))
    try:
        found = set_up(folder) if args.set_up else {}
        found |= measured(contestants(args.engine or ENGINES), args.rounds, folder)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    agree(found, args.engine or ENGINES)
    print("\n".join(table(found)))
    if args.json:
        args.json.write_text(json.dumps({name: asdict(took) for name, took in found.items()}, indent=1))


if __name__ == "__main__":
    main()

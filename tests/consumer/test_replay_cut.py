"""Consumers and their servers end at moments that a seed chooses: the target ends as of one undisturbed run."""

from __future__ import annotations

import os
import pickle
import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import mariadb
import pytest
from killing import SEED, TIMES, await_writing, below, killed, moments, python_workers, started
from pyspark.sql import SparkSession
from replays import decoded, of_two_tables
from test_replay_mysql import contents

from ticdc_lab import load
from ticdc_lab.consumer import open_sink, replay
from ticdc_lab.consumer.replay import files_of, plan_of
from ticdc_lab.consumer.sinks.delta import consistent
from ticdc_lab.consumer.sinks.mysql_connection import PASSWORD
from ticdc_lab.errors import SourceError
from ticdc_lab.sources.change_log import ChangeLog
from ticdc_lab.tables import knowledge

OPEN = "messages_open-protocol_small.jsonl.gz"
ROWS_A_BATCH = 40
SCRIPT = Path(__file__).with_name("replay_killed.py")
CUT = "SELECT id FROM information_schema.processlist WHERE user = 'lab' AND id <> connection_id()"


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[mariadb.Server]:
    """Give a server that a test may kill."""
    monkeypatch.setenv(PASSWORD, mariadb.PASSWORD)
    with mariadb.lent(tmp_path / "mariadb") as lent:
        yield lent


@pytest.mark.soak
def test_a_connection_that_is_cut_is_said(spark: SparkSession, server: mariadb.Server) -> None:
    """In the middle of a transaction: in words, without the password; the next run continues from before it."""
    log, known = decoded(spark, OPEN)
    sink, batches = open_sink(server.url, log), 0

    def cut(*_: object) -> None:
        nonlocal batches
        batches += 1
        for (connection,) in server.ask(CUT) if batches == 2 else ():
            server.ask(f"KILL CONNECTION {connection}")

    with pytest.raises(SourceError, match=r"The connection to mysql://lab@.* is gone") as said:
        replay(log, sink, known=known, rows_a_batch=400, said=cut)
    sink.close()
    assert "goes on from" in said.value.hint and mariadb.PASSWORD not in str(said.value)
    again = open_sink(server.url, log)
    assert replay(log, again, known=known, rows_a_batch=400).commits > 0
    again.close()
    ended = contents(server)
    server.clear()
    whole = open_sink(server.url, log)
    replay(log, whole, known=known, rows_a_batch=400)
    whole.close()
    assert ended == contents(server)


@pytest.mark.soak
@pytest.mark.parametrize("fault", ["consumer", "server", "connection"])
def test_whatever_ends_the_tables_are_as_of_one_run(
    spark: SparkSession, server: mariadb.Server, tmp_path: Path, fault: str
) -> None:
    """The consumer killed, the server killed and started again, connections cut: each so many times."""
    log, known = decoded(spark, OPEN)
    plan = tmp_path / "plan"
    plan.write_bytes(pickle.dumps(plan_of(log, known, mode="transaction", until=None, rows_a_batch=ROWS_A_BATCH)))
    command = [str(SCRIPT), str(plan), server.url, log.protocol, "0", *files_of(log)]
    begun = time.monotonic()
    assert subprocess.run([sys.executable, *command], capture_output=True, timeout=300).returncode == 0
    lasts_s, whole = time.monotonic() - begun, contents(server)
    server.clear()

    def cut() -> None:
        for (connection,) in server.ask(CUT):
            server.ask(f"KILL CONNECTION {connection}")

    def restart() -> None:
        server.kill()
        server.start()

    faults: dict[str, Callable[[], None]] = {"server": restart, "connection": cut}
    hit = finished = 0
    for wait_s in moments(lasts_s, times=20 * TIMES):
        process = started(*command)
        time.sleep(wait_s)
        hit += process.poll() is None
        if fault == "consumer":
            killed(process)
        else:
            faults[fault]()
            said, _ = process.communicate(timeout=120)
            in_words = "SourceError: The connection to" in said or "cannot be connected to" in said
            assert process.returncode == 0 or in_words, said
            assert mariadb.PASSWORD not in said
        if process.returncode == 0:
            assert contents(server) == whole
            server.clear()
            finished += 1
        if hit >= TIMES:
            break
    assert hit >= TIMES
    assert subprocess.run([sys.executable, *command], capture_output=True, timeout=300).returncode == 0
    assert contents(server) == whole
    print(f"{fault}: {hit} times, seed of killing.SEED, {finished} replays ended before the fault came")


@pytest.mark.soak
@pytest.mark.parametrize("victim", ["all", "java", "worker"])
def test_a_consumer_into_delta_is_killed_at_any_moment(classic: SparkSession, tmp_path: Path, victim: str) -> None:
    """All its processes, Spark's JVM or a Python worker: the next run continues, tables without a key are right too.

    A run that comes to its end is compared, and the next begins with nothing.
    """
    recording, lake, r = of_two_tables(tmp_path), tmp_path / "lake", random.Random(SEED)
    arguments = [str(recording), "--sink", f"delta:{lake}", "--no-check", "--rows-a-batch", "100", "--engine", "spark"]
    log = load(classic, str(recording)).materialise(str(tmp_path / "log"))
    _into(log, tmp_path / "whole")
    whole = _rows(classic, tmp_path / "whole")
    assert len(whole) == 2 and all(whole.values())
    hit = failed = finished = 0
    end = time.monotonic() + 120 * TIMES
    while hit < TIMES and time.monotonic() < end:
        process = started("-m", "ticdc_lab.cli", "consume", "--driver-memory", "700m", *arguments)
        if victim == "worker":
            hit += _kill_a_worker(process, r)
        else:
            await_writing(process, lake)
            time.sleep(r.uniform(0, 12))
            hit += process.poll() is None
            if victim == "all":
                killed(process)
            else:
                for jvm in below(process.pid, "java"):
                    os.kill(jvm, signal.SIGKILL)
        said, _ = process.communicate(timeout=400)
        if victim != "all":
            assert process.returncode in (0, 2) and "Traceback" not in said and "\tat " not in said, said
            assert process.returncode == 0 or "has ended in the middle of its work" in said, said
        failed += process.returncode != 0
        if process.returncode == 0:
            assert _rows(classic, lake) == whole
            shutil.rmtree(lake)
            finished += 1
    assert hit >= TIMES and failed
    _into(log, lake)
    assert _rows(classic, lake) == whole
    print(f"{victim}: {hit} times, seed of killing.SEED; {failed} runs failed, {finished} came to their end")


def _kill_a_worker(process: subprocess.Popen[str], r: random.Random) -> bool:
    """Kill one as soon as there are some, while they decode; whether there were."""
    while process.poll() is None:
        time.sleep(r.uniform(0, 0.4))
        if workers := python_workers(process):
            with suppress(ProcessLookupError):
                os.kill(r.choice(workers), signal.SIGKILL)
            return True
    return False


def _into(log: ChangeLog, folder: Path) -> None:
    sink = open_sink(f"delta:{folder}", log)
    replay(log, sink, known=knowledge(log.events), rows_a_batch=300)
    sink.close()


def _rows(spark: SparkSession, folder: Path) -> dict[tuple[str, str], list[str]]:
    return {name: sorted(map(repr, frame.collect())) for name, frame in consistent(spark, str(folder)).items()}

"""A consumer that is killed at any moment continues without loss or double effect."""

from __future__ import annotations

import pickle
import signal
import subprocess
import sys
from pathlib import Path

import duckdb
import pytest
from pyspark.sql import SparkSession
from replays import contents, decoded, into_duckdb

from ticdc_lab.consumer.replay import files_of, plan_of

pytestmark = pytest.mark.spark

OPEN = "messages_open-protocol_small.jsonl.gz"


@pytest.mark.soak
@pytest.mark.parametrize("mode", ["transaction", "row"])
def test_a_killed_consumer_goes_on_where_the_target_is(spark: SparkSession, tmp_path: Path, mode: str) -> None:
    """Killed again and again, before, inside and between transactions, the target ends as without it.

    A table without a key and many small batches are in it: a batch applied twice would show.
    """
    log, known = decoded(spark, OPEN)
    plan, target = tmp_path / "plan", tmp_path / "killed.db"
    plan.write_bytes(pickle.dumps(plan_of(log, known, mode=mode, until=None, rows_a_batch=150)))
    script = Path(__file__).with_name("replay_killed.py")
    kills, reached = 0, set[int]()
    for statement in [3, 14, 120, 97, 151, 64, 203, 180, 400, 330, 600, 100_000]:
        command = [sys.executable, str(script), str(plan), str(target), log.protocol, str(statement), *files_of(log)]
        ended = subprocess.run(command, capture_output=True, timeout=120)
        assert ended.returncode in (0, -signal.SIGKILL), ended.stderr.decode()
        kills += ended.returncode != 0
        reached.add(_ts(target))
    assert kills >= 6 and len(reached) >= 5
    into_duckdb((log, known), tmp_path / "whole.db", mode=mode, rows_a_batch=150)
    assert contents(target) == contents(tmp_path / "whole.db")


def _ts(target: Path) -> int:
    with duckdb.connect(str(target)) as db:
        (n,) = db.execute("SELECT count(*) FROM duckdb_tables() WHERE table_name = 'progress'").fetchall()[0]
        return (
            int(db.execute("SELECT sum(applied_ts % 1000000007) FROM _ticdc_lab.progress").fetchall()[0][0]) if n else 0
        )

"""``python replay_killed.py PLAN TARGET PROTOCOL STATEMENT FILE..``: a replay, killed before that statement of it.

No Spark in it: the plan of a replay is all that it needs beside the decoded files.
"""

from __future__ import annotations

import os
import pickle
import signal
import sys
from pathlib import Path
from typing import Any

import duckdb

from ticdc_lab.consumer.replay import run
from ticdc_lab.consumer.sinks.duckdb import DuckDBSink
from ticdc_lab.consumer.sinks.mysql import MySQLSink

plan_file, target, protocol, statement, *files = sys.argv[1:]


class Deadly:
    """A connection that ends the process, as ``kill -9`` does."""

    def __init__(self, db: duckdb.DuckDBPyConnection) -> None:
        self.db, self.left = db, int(statement)

    def _one_more(self) -> None:
        self.left -= 1
        if self.left == 0:
            os.kill(os.getpid(), signal.SIGKILL)

    def execute(self, *args: Any) -> Any:
        """The statement, unless it is the one."""
        self._one_more()
        return self.db.execute(*args)

    def executemany(self, *args: Any) -> Any:
        """The same."""
        self._one_more()
        return self.db.executemany(*args)


def deadly_server() -> MySQLSink:
    """A target on a server, whose statements are counted likewise."""
    sink, left = MySQLSink(target, files, protocol), int(statement)
    real = sink._do

    def counted(sql: str, *values: object) -> int:
        nonlocal left
        left -= 1
        if left == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        return real(sql, *values)

    sink._do = counted  # type: ignore[method-assign]
    return sink


def deadly_file() -> DuckDBSink:
    """A target in a file."""
    sink = DuckDBSink(target, files, protocol)
    sink.db = Deadly(sink.db)  # type: ignore[assignment]
    return sink


plan = pickle.loads(Path(plan_file).read_bytes())
run(plan, deadly_server() if target.startswith("mysql://") else deadly_file())

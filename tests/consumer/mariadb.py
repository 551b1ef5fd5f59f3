"""A real MariaDB server of its own, on a free port and in a folder of the test."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pymysql
import pytest
from ports import free_ports

from ticdc_lab.consumer.sinks.mysql import named

PASSWORD = "seCret&%/42"


@dataclass
class Server:
    """Where it is; the user ``lab`` has :data:`PASSWORD`. It can be killed and started again on its data."""

    port: int
    command: Sequence[str]
    log: Path
    process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start it and wait until it answers."""
        with self.log.open("wb") as said:
            self.process = subprocess.Popen(self.command, stdout=said, stderr=said)
        while True:
            try:
                self.ask("SELECT 1")
                return
            except pymysql.MySQLError:
                assert self.process.poll() is None, self.log.read_text()[-2000:]
                time.sleep(0.2)

    def kill(self, how: int = signal.SIGKILL) -> None:
        """End it, as a power failure would."""
        if self.process is not None:
            self.process.send_signal(how)
            self.process.wait(60)

    @property
    def url(self) -> str:
        """The target."""
        return f"mysql://lab@127.0.0.1:{self.port}"

    def ask(self, sql: str) -> list[tuple[Any, ...]]:
        """The rows of a query."""
        with pymysql.connect(host="127.0.0.1", port=self.port, user="lab", password=PASSWORD, autocommit=True) as db:
            cursor = db.cursor()
            cursor.execute(sql)
            return list(cursor.fetchall())

    def clear(self) -> None:
        """Drop all databases that a replay has made."""
        for (name,) in self.ask("SHOW DATABASES"):
            if name not in ("information_schema", "mysql", "performance_schema", "sys"):
                self.ask(f"DROP DATABASE {named(name)}")


def missing() -> str:
    """Why there can be no server; empty if there can."""
    there = all(map(shutil.which, ("mariadbd", "mariadb-install-db")))
    return "" if there else "no MariaDB server; run: sudo apt-get install -y mariadb-server"


@contextmanager
def lent(folder: Path, *options: str) -> Iterator[Server]:
    """One of a test's own, as :func:`running`; where there can be none the test is skipped, in CI it fails."""
    if why := missing():
        (pytest.fail if os.environ.get("CI") == "true" else pytest.skip)(why)
    folder.mkdir(exist_ok=True)
    with running(folder, *options) as server:
        yield server


@contextmanager
def running(folder: Path, *options: str) -> Iterator[Server]:
    """Start one in an empty folder, with more options of its own, and stop it at the end."""
    data, log = folder / "data", folder / "log"
    user = ["--user=root"] if os.geteuid() == 0 else []
    where = ["--no-defaults", f"--datadir={data}", *user]
    subprocess.run(
        ["mariadb-install-db", *where, "--auth-root-authentication-method=normal", "--skip-test-db"],
        check=True, capture_output=True, timeout=120,
    )  # fmt: skip
    [port] = free_ports(1)
    may = "GRANT ALL ON *.* TO lab@'%' WITH GRANT OPTION;"
    (folder / "init.sql").write_text(f"CREATE USER IF NOT EXISTS lab@'%' IDENTIFIED BY '{PASSWORD}';\n{may}")
    small = ["--innodb-buffer-pool-size=256M", "--innodb-flush-log-at-trx-commit=1", "--skip-log-bin"]
    init = f"--init-file={folder / 'init.sql'}"
    command = [
        "mariadbd",
        *where,
        f"--port={port}",
        "--bind-address=127.0.0.1",
        f"--socket={folder}/s",
        init,
        *small,
        *options,
    ]
    server = Server(port, command, log)
    try:
        server.start()
        yield server
    finally:
        server.kill(signal.SIGTERM)

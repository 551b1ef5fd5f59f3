"""Worker processes of one service, for tests, and the tidb-servers of a cluster, in this process."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import ownership
import requests

from ticdc_lab.ddl_core import keys, records
from ticdc_lab.ddl_core.server import Server
from ticdc_lab.ddl_core.server_state import Habits
from ticdc_lab.ddl_service import auditing
from ticdc_lab.ddl_service.auditing import Written, violations
from ticdc_lab.ddl_service.etcd_rpc import Etcd
from ticdc_lab.ddl_service.etcd_store import EtcdStore
from ticdc_lab.ddl_service.node import Backend, Node
from ticdc_lab.ddl_service.sqlite_store import SqliteStore
from ticdc_lab.machines.leases import Terms

TTL_S = 2.0
START_S = 300.0


class Fleet:
    """Workers that share a folder, or an etcd; ``ttl_s`` is the one of their sessions.

    Attributes
    ----------
    lines
        Where a worker finds etcd, where that is not as for all others.
    clocks
        Whether the workers' wall clocks can be set.
    """

    def __init__(self, folder: Path, etcd: str | None = None, *, ttl_s: float = TTL_S, clocks: bool = False) -> None:
        self.folder, self._etcd, self._ttl_s, self.clocks = folder, etcd, ttl_s, clocks
        self.lines: dict[str, str] = {}
        self.gone: dict[str, float] = {}
        self.processes: dict[str, subprocess.Popen[str]] = {}
        self.ports: dict[str, int] = {}

    def begin(self, *names: str, options: tuple[str, ...] = ()) -> None:
        """Start workers, and wait until their APIs answer."""
        for name in names:
            where = ("--etcd", self.lines[name]) if name in self.lines else self.where
            command = [
                *self._program(name), "ddl-service", "serve", "--listen", "127.0.0.1:0",
                "--node-id", name, *where, "--ttl", str(self._ttl_s), *options,
            ]  # fmt: skip
            with (self.folder / f"{name}.log").open("w") as log:
                self.processes[name] = subprocess.Popen(command, stderr=log, text=True)
        for name in names:
            found = until(lambda n=name: self._port(n), START_S)  # type: ignore[misc]
            self.ports[name] = int(found)

    def _program(self, name: str) -> tuple[str, ...]:
        if not self.clocks:
            return sys.executable, "-m", "ticdc_lab.cli"
        if not self._clock(name).exists():
            self.set_clock(name, 0)
        return sys.executable, str(Path(__file__).with_name("wrong_clock.py")), str(self._clock(name))

    def _clock(self, name: str) -> Path:
        return self.folder / f"{name}.clock"

    def set_clock(self, name: str, ahead_s: float) -> None:
        """Set the wall clock of a worker, which has been begun with ``clocks`` or will be."""
        own = self._clock(name).with_suffix(".set")
        own.write_text(str(ahead_s))
        own.replace(self._clock(name))

    @property
    def where(self) -> tuple[str, str]:
        """The options that name the store."""
        return ("--etcd", self._etcd) if self._etcd else ("--store", str(self.folder))

    def open(self, name: str = "") -> Backend:
        """Open the store, as ``name`` finds it."""
        etcd = self.lines.get(name, self._etcd)
        return EtcdStore(Etcd(etcd)) if etcd else SqliteStore(self.folder)

    def written(self) -> list[Written]:
        """Give all that was ever written."""
        return auditing.of_etcd(Etcd(self._etcd)) if self._etcd else list(auditing.of_folder(self.folder))

    def jobs(self, store_addr: str, *, ended: bool = True) -> list[records.Job]:
        """Give the last record of each job of a cluster that has ended, or has not."""
        prefix = keys.HISTORY if ended else keys.JOBS
        found = {w.key: w.value for w in self.written() if w.store == store_addr and w.key.startswith(prefix)}
        return [records.job(value) for value in found.values() if value is not None]

    def wrong(self, *, late_s: float = TTL_S) -> list[str]:
        """Show where workers believed at once that they own a cluster, and what they wrote that they must not.

        A worker may report it much too late that it has stopped; 0 where the machine has CPU for all.
        """
        return [*ownership.overlaps(self.said(), self.gone, late_s=late_s), *violations(self.written())]

    def believed(self) -> set[tuple[str, str]]:
        """Give (cluster, worker) of each that owns now, by what the workers reported last."""
        last = {(c.cluster, c.worker): c.owns for c in self.said()}
        return {name for name, owns in last.items() if owns and name[1] not in self.gone}

    def said(self) -> list[ownership.Change]:
        """Give what the workers' logs show they own and own no more, in order."""
        return sorted(c for name in self.ports for c in ownership.logged(self.folder / f"{name}.log", name))

    def _port(self, name: str) -> str | None:
        found = re.search(r"listens on [\w.:]+:(\d+)", (self.folder / f"{name}.log").read_text())
        assert self.processes[name].poll() is None, (self.folder / f"{name}.log").read_text()
        return found[1] if found else None

    def kill(self, name: str) -> None:
        """Send SIGKILL."""
        process = self.processes.pop(name)
        process.send_signal(signal.SIGKILL)
        process.wait()
        self.gone[name] = time.time()

    def end(self, name: str) -> int:
        """Ask a worker to end."""
        process = self.processes.pop(name)
        process.send_signal(signal.SIGTERM)
        return process.wait(20)

    def close(self) -> None:
        """Kill those that are left."""
        for name in list(self.processes):
            self.kill(name)

    def url(self, name: str, path: str) -> str:
        """Give an address of a worker's API."""
        return f"http://127.0.0.1:{self.ports[name]}{path}"

    def get(self, path: str) -> Any:
        """Ask any worker that lives; None while it has no session."""
        return self.ask(next(iter(self.processes)), path)

    def ask(self, name: str, path: str) -> Any:
        """Ask a worker; None while it has no session."""
        answer = requests.get(self.url(name, f"/ddlservice/{path}"), timeout=20)
        return answer.json() if answer.status_code == 200 else None

    def register(self, cluster: str, store_addr: str) -> None:
        """Register a cluster at any worker, as soon as that has a session."""
        url = self.url(next(iter(self.processes)), f"/ddlservice/registered_clusters/{cluster}")
        body = f'{{"store_addr": "{store_addr}"}}'
        until(lambda: requests.put(url, data=body, timeout=20).status_code == 200, START_S)

    def owners(self) -> dict[str, str]:
        """Give the worker of each cluster that has an owner."""
        listed = self.get("registered_clusters") or []
        alive = set(self.processes)
        found = {c["id"]: c["schedule"] for c in listed}
        return {c: s["assigned_to"] for c, s in found.items() if s["status"] == "OWNER" and s["assigned_to"] in alive}


def until(what: Callable[[], Any], within_s: float, *, every_s: float = 0.02) -> Any:
    """Wait until something is true, and give it."""
    end_s = time.monotonic() + within_s
    while time.monotonic() < end_s:
        if found := what():
            return found
        time.sleep(every_s)
    raise AssertionError(f"not within {within_s} s")


def tidb(fleet: Fleet, store_addr: str, name: str, **habits: Any) -> Node:
    """Start a tidb-server of a cluster in a thread of this process."""
    own = Habits(terms=Terms(5_000_000, 1_000_000), tick_us=100_000, **habits)
    node = Node(Server(store_addr, own), name, fleet.open())
    node.start()
    return node


def rows_of(fleet: Fleet, store_addr: str) -> int:
    """Give how many rows the job of a cluster has backfilled; 0 where none runs."""
    return sum(job.row_count for job in fleet.jobs(store_addr, ended=False))


def failed_over(fleet: Fleet, clusters: int) -> float:
    """Kill the worker that was begun first, and give how long it takes until all is owned again, s."""
    lost = next(iter(fleet.processes))
    began_s = time.monotonic()
    fleet.kill(lost)
    until(lambda: len(fleet.owners()) == clusters, 300)
    return time.monotonic() - began_s


def cpu_s(fleet: Fleet) -> float:
    """CPU seconds that the workers have used."""
    found = 0.0
    for process in fleet.processes.values():
        fields = Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()
        found += (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    return found

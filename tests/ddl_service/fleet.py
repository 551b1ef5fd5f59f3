"""Worker processes of one service, for tests, and the tidb-servers of a cluster, in this process."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import requests

from ticdc_lab.ddl_service.node import Node
from ticdc_lab.ddl_service.sqlite_store import SqliteStore
from ticdc_lab.simulate.ddl_service.connection import Terms
from ticdc_lab.simulate.ddl_service.server import Server
from ticdc_lab.simulate.ddl_service.server_state import Habits

TTL_S = 3.0
START_S = 90.0


class Fleet:
    """Workers that share a folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.processes: dict[str, subprocess.Popen[str]] = {}
        self.ports: dict[str, int] = {}

    def begin(self, *names: str, options: tuple[str, ...] = ()) -> None:
        """Start workers, and wait until their APIs answer."""
        for name in names:
            command = [
                sys.executable, "-m", "ticdc_lab.cli", "ddl-service", "serve", "--listen", "127.0.0.1:0",
                "--node-id", name, "--store", str(self.folder), "--ttl", str(TTL_S), *options,
            ]  # fmt: skip
            self.processes[name] = subprocess.Popen(command, stderr=(self.folder / f"{name}.log").open("w"), text=True)
        for name in names:
            found = until(lambda n=name: self._port(n), START_S)  # type: ignore[misc]
            self.ports[name] = int(found)

    def _port(self, name: str) -> str | None:
        found = re.search(r"listens on [\w.:]+:(\d+)", (self.folder / f"{name}.log").read_text())
        assert self.processes[name].poll() is None, (self.folder / f"{name}.log").read_text()
        return found[1] if found else None

    def kill(self, name: str) -> None:
        """Send SIGKILL."""
        process = self.processes.pop(name)
        process.send_signal(signal.SIGKILL)
        process.wait()

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
        answer = requests.get(self.url(next(iter(self.processes)), f"/ddlservice/{path}"), timeout=20)
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


def until(what: Callable[[], Any], within_s: float) -> Any:
    """Wait until something is true, and give it."""
    end_s = time.monotonic() + within_s
    while time.monotonic() < end_s:
        if found := what():
            return found
        time.sleep(0.05)
    raise AssertionError(f"not within {within_s} s")


def tidb(folder: Path, store_addr: str, name: str, **habits: Any) -> Node:
    """Start a tidb-server of a cluster in a thread of this process."""
    own = Habits(terms=Terms(5_000_000, 1_000_000), tick_us=100_000, **habits)
    node = Node(Server(store_addr, own), name, SqliteStore(folder))
    node.start()
    return node

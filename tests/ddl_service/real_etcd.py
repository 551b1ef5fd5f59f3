"""A real etcd for tests: one member on this host, killed and begun again as they like."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import time
from pathlib import Path

import pytest
import requests


class Server:
    """One etcd; its data survive a SIGKILL."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.port, self._peers = _free_port(), _free_port()
        self.endpoint = f"127.0.0.1:{self.port}"
        self._process: subprocess.Popen[bytes] | None = None

    def begin(self) -> None:
        """Start it, and wait until it answers."""
        own, peers = f"http://{self.endpoint}", f"http://127.0.0.1:{self._peers}"
        command = [
            "etcd", "--name", "one", "--data-dir", str(self.folder / "data"), "--listen-client-urls", own,
            "--advertise-client-urls", own, "--listen-peer-urls", peers, "--initial-advertise-peer-urls", peers,
            "--initial-cluster", f"one={peers}", "--unsafe-no-fsync", "--log-level", "error",
        ]  # fmt: skip
        with (self.folder / "etcd.log").open("ab") as log:
            self._process = subprocess.Popen(command, stdout=log, stderr=log)
        end_s = time.monotonic() + 60
        while not self._answers():
            assert self._process.poll() is None and time.monotonic() < end_s, (self.folder / "etcd.log").read_text()
            time.sleep(0.05)

    def _answers(self) -> bool:
        try:
            return bool(requests.get(f"http://{self.endpoint}/health", timeout=5).json()["health"] == "true")
        except (requests.RequestException, KeyError):
            return False

    def kill(self) -> None:
        """Send SIGKILL."""
        if self._process:
            self._process.send_signal(signal.SIGKILL)
            self._process.wait()
            self._process = None


def begun(folder: Path) -> Server:
    """Start an etcd; where there is none the test is skipped, but not where CI promises one."""
    if shutil.which("etcd") is None:
        leave = pytest.fail if os.environ.get("CI") == "true" else pytest.skip
        leave("there is no etcd here: Debian's package is etcd-server")
    folder.mkdir(parents=True, exist_ok=True)
    server = Server(folder)
    server.begin()
    return server


def _free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])

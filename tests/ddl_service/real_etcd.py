"""A real etcd for tests: one member on this host, killed and begun again as they like."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import time
from pathlib import Path

import pytest
import requests
from ports import free_ports


class Server:
    """One member of an etcd, which has no other unless ``others`` reports it; its data survive a SIGKILL."""

    def __init__(self, folder: Path, name: str = "one", *, tls: bool = False, fsync: bool = False) -> None:
        self.folder, self.name = folder, name
        self.port, self._peers = free_ports(2)
        self.endpoint = f"127.0.0.1:{self.port}"
        self.peer = f"http://127.0.0.1:{self._peers}"
        self.tls, self._fsync = certificates(folder) if tls else (), fsync
        self.others: list[Server] = []
        self.token = "etcd-cluster"
        self._process: subprocess.Popen[bytes] | None = None

    def begin(self, *, waits: bool = True) -> None:
        """Start it, and wait until it answers."""
        own = f"{'https' if self.tls else 'http'}://{self.endpoint}"
        members = ",".join(f"{m.name}={m.peer}" for m in (self, *self.others))
        command = [
            "etcd", "--name", self.name, "--data-dir", str(self.folder / self.name), "--listen-client-urls", own,
            "--advertise-client-urls", own, "--listen-peer-urls", self.peer, "--initial-advertise-peer-urls",
            self.peer, "--initial-cluster", members, "--initial-cluster-token", self.token, "--log-level", "error",
        ]  # fmt: skip
        if not self._fsync:  # who measures takes etcd as it is
            command.append("--unsafe-no-fsync")
        if not (self._fsync or self.others):  # alone it elects itself at once, and leases of a second are possible
            command += ["--heartbeat-interval", "10", "--election-timeout", "100"]
        if self.tls:
            ca, cert, key = map(str, self.tls)
            command += ["--client-cert-auth", "--trusted-ca-file", ca, "--cert-file", cert, "--key-file", key]
        with (self.folder / f"{self.name}.log").open("ab") as log:
            self._process = subprocess.Popen(command, stdout=log, stderr=log)
        if waits:
            self.wait()

    def wait(self) -> None:
        """Wait until it answers."""
        end_s = time.monotonic() + 300
        while not self._answers():
            lives = self._process is not None and self._process.poll() is None
            assert lives and time.monotonic() < end_s, (self.folder / f"{self.name}.log").read_text()
            time.sleep(0.05)

    def _answers(self) -> bool:
        scheme, ca, pair = (
            ("https", str(self.tls[0]), tuple(map(str, self.tls[1:]))) if self.tls else ("http", True, None)
        )
        try:
            answer = requests.get(f"{scheme}://{self.endpoint}/health", timeout=5, verify=ca, cert=pair)
            return bool(answer.json()["health"] == "true")
        except (requests.RequestException, KeyError):
            return False

    def kill(self) -> None:
        """Send SIGKILL."""
        if self._process:
            self._process.send_signal(signal.SIGKILL)
            self._process.wait()
            self._process = None


def begun(folder: Path, *, tls: bool = False, fsync: bool = False) -> Server:
    """Start an etcd of one member; ``fsync`` as it would be in earnest, for measuring."""
    _require()
    folder.mkdir(parents=True, exist_ok=True)
    server = Server(folder, tls=tls, fsync=fsync)
    server.begin()
    return server


def three(folder: Path) -> list[Server]:
    """Start an etcd of three members."""
    _require()
    folder.mkdir(parents=True, exist_ok=True)
    members = [Server(folder, name) for name in ("one", "two", "three")]
    for member in members:
        member.others = [m for m in members if m is not member]
        member.begin(waits=False)
    for member in members:
        member.wait()
    return members


def _require() -> None:
    """Where there is none the test is skipped, but not where CI promises one."""
    if shutil.which("etcd") is None:
        leave = pytest.fail if os.environ.get("CI") == "true" else pytest.skip
        leave("there is no etcd here: Debian's package is etcd-server")


def certificates(folder: Path) -> tuple[Path, Path, Path]:
    """Make a certificate that signs itself, for both sides: who must have signed, the certificate, its key."""
    cert, key = folder / "cert.pem", folder / "key.pem"
    command = f"openssl req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=localhost -keyout {key} -out {cert}"
    subprocess.run([*command.split(), "-addext", "subjectAltName=IP:127.0.0.1"], check=True, capture_output=True)
    return cert, cert, key

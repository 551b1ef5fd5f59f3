"""Prometheus and Alertmanager of Debian, as processes of a test."""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import time
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import pytest

T = TypeVar("T")

PACKAGES = {
    "promtool": "prometheus", "prometheus": "prometheus", "prometheus-alertmanager": "prometheus-alertmanager",
}  # fmt: skip


def program(name: str) -> str:
    """Where there is none the test is skipped, but not where CI promises one."""
    found = shutil.which(name)
    if found is None:
        leave = pytest.fail if os.environ.get("CI") == "true" else pytest.skip
        leave(f"there is no {name} here: Debian's package is {PACKAGES[name]}")
    return str(found)


def promtool(*command: str | Path, page: bytes | None = None) -> subprocess.CompletedProcess[bytes]:
    """What promtool shows, of a page on its standard input too."""
    return subprocess.run([program("promtool"), *command], input=page, capture_output=True, check=False, timeout=600)


def free_port() -> int:
    """One of this host that no one listens on."""
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


def asked(url: str, **parameters: str) -> Any:
    """The JSON that a server answers with."""
    with urllib.request.urlopen(f"{url}?{urllib.parse.urlencode(parameters)}", timeout=10) as answer:
        return json.load(answer)


def until(look: Callable[[], T], what: str, *, most_s: float = 300.0) -> T:
    """The first look that shows something; a server that does not answer yet shows nothing."""
    end = time.monotonic() + most_s
    while time.monotonic() < end:
        try:
            if found := look():
                return found
        except OSError:
            pass
        time.sleep(0.1)
    raise AssertionError(f"{what}: not seen in {most_s:.0f} s")


@contextmanager
def running(folder: Path, *command: str) -> Iterator[None]:
    """A process that is killed at the end; what it writes is in ``folder``."""
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(command, cwd=folder, stdout=log, stderr=log)
        try:
            yield
        finally:
            process.kill()
            process.wait()


@contextmanager
def alertmanager(folder: Path) -> Iterator[str]:
    """``HOST:PORT`` of one that keeps alerts, and sends them nowhere."""
    at, config = f"127.0.0.1:{free_port()}", folder / "alertmanager.yml"
    folder.mkdir(parents=True, exist_ok=True)
    config.write_text("route: {receiver: none, group_wait: 0s}\nreceivers: [{name: none}]\n")
    with running(
        folder, program("prometheus-alertmanager"), f"--config.file={config}", f"--storage.path={folder / 'data'}",
        f"--web.listen-address={at}", "--cluster.listen-address=",
    ):  # fmt: skip
        yield at


@contextmanager
def prometheus(folder: Path, targets: list[str], alertmanager: str, rules: Path) -> Iterator[str]:
    """The address of one that scrapes ``targets`` each second, and sends the alerts of ``rules``."""
    at, config = f"127.0.0.1:{free_port()}", folder / "prometheus.yml"
    folder.mkdir(parents=True, exist_ok=True)
    config.write_text(
        json.dumps({
            "global": {"scrape_interval": "1s", "evaluation_interval": "1s"},
            "rule_files": [str(rules)],
            "scrape_configs": [{"job_name": "watch", "static_configs": [{"targets": targets}]}],
            "alerting": {"alertmanagers": [{"static_configs": [{"targets": [alertmanager]}]}]},
        })
    )  # fmt: skip
    with running(
        folder, program("prometheus"), f"--config.file={config}", f"--storage.tsdb.path={folder / 'data'}",
        f"--web.listen-address={at}",
    ):  # fmt: skip
        yield f"http://{at}"

"""JupyterLab on loopback, with a home of its own, so that it looks the same on every machine."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from ports import free_ports

ROOT = Path(__file__).resolve().parent.parent.parent
START_S = 300
SETTINGS = {
    "apputils-extension/notification": {"checkForUpdates": False, "doNotDisturbMode": True, "fetchNews": "false"},
    "docmanager-extension/plugin": {"autosave": False},
    "notebook-extension/tracker": {"windowingMode": "none"},  # what is not scrolled to is drawn, too
}
"""Of JupyterLab: it asks the network for nothing, and saves nothing by itself."""


def workspace(folder: Path) -> Path:
    """A folder with copies of the notebooks beside the repository's data: a run leaves nothing in the repository."""
    shutil.copytree(ROOT / "notebooks", folder / "notebooks", ignore=shutil.ignore_patterns(".*"))
    for name in ("data", "tests", "README.md"):
        (folder / name).symlink_to(ROOT / name)
    return folder


@contextmanager
def jupyter_lab(root: Path, home: Path) -> Iterator[str]:
    """Run a server for a folder; gives its address."""
    settings = home / "settings" / "@jupyterlab"
    for name, values in SETTINGS.items():
        path = settings / f"{name}.jupyterlab-settings"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(values), encoding="utf-8")
    [port] = free_ports(1)
    flags = [f"--ServerApp.port={port}", "--ServerApp.ip=127.0.0.1", f"--ServerApp.root_dir={root}", "--no-browser"]
    flags += ["--IdentityProvider.token=", "--allow-root", "--LabApp.expose_app_in_browser=True"]
    flags += ["--LabApp.collaborative=False", "--LabApp.news_url=", "--ServerApp.port_retries=0"]
    with (home / "server.log").open("w") as log:
        server = subprocess.Popen(
            [sys.executable, "-m", "jupyterlab", *flags], env=_environment(home), cwd=root, stdout=log, stderr=log
        )
        try:
            _answers(f"http://127.0.0.1:{port}/api/status", server, home / "server.log")
            yield f"http://127.0.0.1:{port}"
        finally:
            server.terminate()
            server.wait(30)


def _environment(home: Path) -> dict[str, str]:
    own = {
        "HOME": "", "JUPYTER_CONFIG_DIR": "config", "JUPYTER_DATA_DIR": "data", "JUPYTER_RUNTIME_DIR": "runtime",
        "IPYTHONDIR": "ipython", "JUPYTERLAB_SETTINGS_DIR": "settings", "JUPYTERLAB_WORKSPACES_DIR": "workspaces",
    }  # fmt: skip
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("JUPYTER", "PLOTLY"))}
    path = os.pathsep.join([str(ROOT), str(ROOT / "tests")])
    more = {"PYTHONPATH": path, "PYSPARK_PYTHON": sys.executable, "PYDEVD_DISABLE_FILE_VALIDATION": "1"}
    return kept | {k: str(home / v) for k, v in own.items()} | more


def _answers(address: str, server: subprocess.Popen[bytes], log: Path) -> None:
    until = time.monotonic() + START_S
    while time.monotonic() < until and server.poll() is None:
        try:
            with urllib.request.urlopen(address, timeout=5):
                return
        except (urllib.error.URLError, ConnectionError, TimeoutError):
            time.sleep(0.1)
    raise RuntimeError(f"JupyterLab did not start: {log.read_text(errors='replace')[-2000:]}")

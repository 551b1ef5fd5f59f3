"""A local page as headless Chromium sees it."""

from __future__ import annotations

import subprocess
import tempfile
from pathlib import Path


def browsed(page: Path) -> str:
    """DOM of a local page after its scripts ran, in a browser whose every name resolves to nothing."""
    with tempfile.TemporaryDirectory() as profile:
        flags = ["--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking"]
        flags += ["--disable-component-update", "--disable-sync", "--disable-quic", f"--user-data-dir={profile}"]
        flags += ["--host-resolver-rules=MAP * ~NOTFOUND", "--virtual-time-budget=8000", "--dump-dom"]
        done = subprocess.run(
            ["chromium", *flags, page.as_uri()], capture_output=True, text=True, timeout=180, check=True
        )
    return done.stdout

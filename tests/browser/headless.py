"""A local page as headless Chromium sees it."""

from __future__ import annotations

import html
import json
import re
import subprocess
import tempfile
from pathlib import Path
from typing import Any

BUDGETS_MS = (8_000, 30_000, 90_000)
"""How long a page may take by its own clock, which runs ahead where the browser is kept from the processor."""


def seen_on(page: Path) -> Any:
    """What a local page's scripts wrote as JSON into ``data-seen`` of its body."""
    for budget_ms in BUDGETS_MS:
        found = re.search(r'data-seen="([^"]*)"', _browsed(page, budget_ms))
        if found is not None:
            return json.loads(html.unescape(found[1]))
    raise AssertionError(f"{page} wrote nothing within {BUDGETS_MS[-1]} ms of its own time; open it in a browser")


def _browsed(page: Path, budget_ms: int) -> str:
    """DOM of a local page after its scripts ran, in a browser whose every name resolves to nothing."""
    with tempfile.TemporaryDirectory() as profile:
        flags = ["--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking"]
        flags += ["--disable-component-update", "--disable-sync", "--disable-quic", f"--user-data-dir={profile}"]
        flags += ["--host-resolver-rules=MAP * ~NOTFOUND", f"--virtual-time-budget={budget_ms}", "--dump-dom"]
        done = subprocess.run(
            ["chromium", *flags, page.as_uri()], capture_output=True, text=True, timeout=180, check=True
        )
    return done.stdout

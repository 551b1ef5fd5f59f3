"""A page as PDF: headless Chromium prints it, with no route to any network."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from pathlib import Path

from ticdc_lab.engine.environment import installer
from ticdc_lab.errors import SetupError

BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome", "microsoft-edge")
_PLACES = (
    "/Applications/Google Chrome.app/Contents/MacOS/Google Chrome",
    "/Applications/Chromium.app/Contents/MacOS/Chromium",
)
_INSTALLERS = {
    "apt-get": "sudo apt-get install -y chromium",
    "dnf": "sudo dnf install -y chromium",
    "apk": "sudo apk add chromium",
    "brew": "brew install --cask chromium",
}
_OFFLINE = (
    "--headless", "--disable-gpu", "--no-first-run", "--disable-background-networking", "--disable-component-update",
    "--disable-sync", "--disable-quic", "--disable-extensions", "--host-resolver-rules=MAP * ~NOTFOUND",
    "--hide-scrollbars", "--force-color-profile=srgb",
)  # fmt: skip
_WIDTH = 1108
"""Pixels of the window: a page of 1,060 between its margins, what A4 takes at the zoom of the page's print style."""
_PATIENCE_S = 300


def print_pdf(page: str | Path, pdf: str | Path | None = None) -> Path:
    """Print a page of this package: light, no figure cut, each slider where it begins.

    ``page``: an HTML file. ``pdf``: where the PDF goes; by default beside the page, with its name. Returns: the PDF.
    Raises SetupError: no Chromium or Chrome is found, or it prints nothing.
    """
    source = Path(page).resolve()
    target = (Path(pdf) if pdf is not None else source.with_suffix(".pdf")).resolve()
    target.unlink(missing_ok=True)
    with tempfile.TemporaryDirectory(prefix="ticdc_lab_", ignore_cleanup_errors=True) as profile:
        done = _ran([*_command(profile), f"--print-to-pdf={target}", f"{source.as_uri()}#paper"])
    if not target.exists():
        said = (done.strip().splitlines() or ["nothing"])[-1]
        raise SetupError(
            f"The browser did not print {page}: it says {said[:200]!r}.",
            hint="Open the *.html file in a browser and print it there.",
        )
    return target


def browser() -> str:
    """The Chromium or Chrome of this machine: ``$TICDC_LAB_BROWSER``, else the first of :data:`BROWSERS`.

    Raises SetupError: there is none.
    """
    if own := os.environ.get("TICDC_LAB_BROWSER"):
        if shutil.which(own) is None:
            raise SetupError(f"TICDC_LAB_BROWSER is {own!r}, which is no program.", hint="Run: unset TICDC_LAB_BROWSER")
        return own
    found = next((p for p in (*map(shutil.which, BROWSERS), *_PLACES) if p and os.access(p, os.X_OK)), None)
    if found is None:
        installs = installer(_INSTALLERS)
        hint = f"Run: {installs}" if installs else "Install Chromium or Google Chrome"
        raise SetupError(
            "No browser that prints: neither Chromium nor Google Chrome is on the PATH.",
            hint=f"{hint}. Or leave out the PDF, open the HTML page and print it.",
        )
    return found


def _command(profile: str) -> list[str]:
    root = ["--no-sandbox"] if hasattr(os, "geteuid") and os.geteuid() == 0 else []
    size = f"--window-size={_WIDTH},1400"
    return [browser(), *_OFFLINE, *root, size, f"--user-data-dir={profile}", "--no-pdf-header-footer",
            "--virtual-time-budget=20000"]  # fmt: skip


def _ran(command: list[str]) -> str:
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, errors="replace", timeout=_PATIENCE_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return str(error)
    return done.stderr

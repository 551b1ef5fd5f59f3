"""Whether other people work on this machine, who could reach a port that is open on it."""

from __future__ import annotations

import os
import pwd
import struct
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path

_UTMP = (Path("/run/utmp"), Path("/var/run/utmp"))
_RECORD = struct.Struct("<h2xi32s4s32s256s76x")
_LOGGED_IN = 7
_HUMAN = range(1000, 60000) if sys.platform != "darwin" else range(501, 60000)
"""User ids that systems give to people and not to their own services."""


def shared_with(
    environ: Mapping[str, str] | None = None, utmp: Path | None = None, processes: Path = Path("/proc")
) -> str | None:
    """Say why this machine counts as shared with other people; None where only its one user works on it.

    Parameters
    ----------
    environ
        Environment variables, by default those of this process.
    utmp
        The system's file of who is logged in, by default where it usually is.
    processes
        A folder with one folder for each process, as ``/proc``.

    Returns
    -------
    str or None
        A clause such as ``'ada' is logged in too``.
    """
    if hub := sorted(name for name in (os.environ if environ is None else environ) if name.startswith("JUPYTERHUB_")):
        return f"JupyterHub runs here ({hub[0]} is set)"
    own = _name(os.getuid())
    file = utmp or next((f for f in _UTMP if f.exists()), None)
    if others := sorted(set(_logged_in(file)) - {own}):
        return f"{others[0]!r} is logged in too"
    if users := sorted(set(_users(processes)) & set(_HUMAN) - {os.getuid()}):
        return f"processes of {_name(users[0])!r} run on it"
    return None


def _logged_in(utmp: Path | None) -> Iterator[str]:
    with suppress(OSError):
        data = utmp.read_bytes() if utmp else b""
        for kind, _, _, _, user, _ in _RECORD.iter_unpack(data[: len(data) - len(data) % _RECORD.size]):
            if kind == _LOGGED_IN:
                yield user.split(b"\0")[0].decode(errors="replace")


def _users(processes: Path) -> Iterator[int]:
    if not processes.exists():
        listed = subprocess.run(["ps", "-axo", "uid="], capture_output=True, text=True, timeout=10, check=False)
        yield from map(int, listed.stdout.split())
        return
    for process in processes.iterdir():
        if process.name.isdigit():
            with suppress(OSError):
                yield process.stat().st_uid


def _name(user: int) -> str:
    try:
        return pwd.getpwuid(user).pw_name
    except KeyError:
        return f"user {user}"

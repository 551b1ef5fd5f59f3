"""No two processes choose the same port, and none chooses one that the system gives away."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from ports import PORTS, free_ports

HERE = Path(__file__).parent
RANGE = Path("/proc/sys/net/ipv4/ip_local_port_range")


def test_a_port_is_the_process_own_though_nobody_listens() -> None:
    """Neither it nor another process of this run is given one twice."""
    own = [*free_ports(3), *free_ports(3)]
    said = subprocess.run(
        [sys.executable, "-c", "from ports import free_ports; print(*free_ports(3))"],
        cwd=HERE, capture_output=True, text=True, check=True,
    ).stdout  # fmt: skip
    assert len({*own, *map(int, said.split())}) == 9


def test_the_system_gives_none_of_them_away() -> None:
    """A client's own port is taken from a range that ours lie below."""
    if RANGE.exists():
        assert PORTS.stop <= int(RANGE.read_text().split()[0])

"""Ports for the servers that tests start: no other can be given one between the choice and the server's start."""

from __future__ import annotations

import socket

# below what Linux and macOS give to those who name no port, so no outgoing connection is ever made from one of these,
# also not while a server that was killed is down
PORTS = range(20_000, 32_000)
_held: dict[int, socket.socket] = {}


def free_ports(n: int) -> list[int]:
    """Ports of 127.0.0.1 that no one listens on, and that are this process's own until it ends.

    A test's other process, of this run or of another, passes a port by when the UDP port of the same number is taken.
    """
    return [_free_port() for _ in range(n)]


def _free_port() -> int:
    for port in PORTS:
        if port in _held:
            continue
        held = socket.socket(type=socket.SOCK_DGRAM)
        try:
            held.bind(("127.0.0.1", port))
            with socket.socket() as listens:
                listens.bind(("127.0.0.1", port))
        except OSError:
            held.close()
            continue
        _held[port] = held
        return port
    raise AssertionError(f"no port of {PORTS} is free: which servers were left behind?")

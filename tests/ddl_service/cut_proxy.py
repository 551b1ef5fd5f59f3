"""A TCP proxy whose line can be cut, slow, or lose what it carries, in either direction, and is fixed."""

from __future__ import annotations

import socket
import threading
import time
from contextlib import suppress

Ends = tuple[socket.socket, socket.socket]


class Direction:
    """One direction of all connections of a proxy.

    Attributes
    ----------
    held
        What came while the line was cut, and has not arrived; nothing where an end hung up.
    """

    def __init__(self) -> None:
        self.held: list[tuple[bytes, Ends]] = []
        self._is_open, self._lock = True, threading.Lock()
        self._late_s, self._loses = 0.0, False
        self._torn: set[Ends] = set()

    def cut(self) -> None:
        """Let nothing through; no side is informed, and what was on its way arrives when the line is fixed."""
        with self._lock:
            self._is_open = False

    def delay(self, late_s: float) -> None:
        """Let everything through late."""
        self._late_s = late_s

    def lose(self) -> None:
        """Take everything and let nothing arrive, ever; who sent it hears so when the line is fixed: it is hung up."""
        self._loses = True

    def mend(self) -> None:
        """Let all through again, what waited first."""
        self._late_s, self._loses = 0.0, False
        while self._torn:
            hung_up(self._torn.pop())
        with self._lock:
            for data, ends in self.held:
                sent(data, ends)
            self.held.clear()
            self._is_open = True

    def carry(self, data: bytes, ends: Ends) -> None:
        """Carry what one end has sent to the other; nothing if it hung up."""
        with self._lock:
            if not self._is_open:
                self.held.append((data, ends))
                return
        if self._late_s:
            time.sleep(self._late_s)
        if self._loses and data:
            self._torn.add(ends)
        else:
            sent(data, ends)


class Proxy:
    """Is before a port of this host.

    Attributes
    ----------
    port
        Its own.
    to
        Where new connections lead; another when a process has begun again.
    requests, answers
        Its two directions.
    """

    def __init__(self, to: int) -> None:
        self.to = to
        self.requests, self.answers = Direction(), Direction()
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.port = self._listening.getsockname()[1]
        self._ends: list[Ends] = []
        threading.Thread(target=self._accept, daemon=True).start()

    def cut(self) -> None:
        """Let nothing through, in either direction."""
        self.requests.cut()
        self.answers.cut()

    def mend(self) -> None:
        """Let all through again."""
        self.requests.mend()
        self.answers.mend()

    def close(self) -> None:
        """Hang up."""
        self.mend()
        hung_up((self._listening, self._listening))
        for ends in self._ends:
            hung_up(ends)

    def _accept(self) -> None:
        while True:
            try:
                near, _ = self._listening.accept()
            except OSError:
                return
            try:
                far = socket.create_connection(("127.0.0.1", self.to))
            except OSError:
                near.close()
                continue
            self._ends = [ends for ends in self._ends if ends[0].fileno() >= 0]
            self._ends.append((near, far))
            for direction, ends in ((self.requests, (near, far)), (self.answers, (far, near))):
                threading.Thread(target=_pump, args=(direction, ends), daemon=True).start()


def _pump(direction: Direction, ends: Ends) -> None:
    data = b"begin"
    while data:
        try:
            data = ends[0].recv(65536)
        except OSError:
            data = b""
        direction.carry(data, ends)


def sent(data: bytes, ends: Ends) -> None:
    """Send on what one end has sent; hang up where it did, or the other end has gone."""
    try:
        ends[1].sendall(data)
    except OSError:
        data = b""
    if not data:
        hung_up(ends)


def hung_up(ends: Ends) -> None:
    """End a connection on both sides, and wake who waits for it."""
    for end in ends:
        with suppress(OSError):
            end.shutdown(socket.SHUT_RDWR)
        end.close()

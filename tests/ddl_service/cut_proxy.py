"""A TCP proxy whose line can be cut and mended: what was on its way then arrives late."""

from __future__ import annotations

import socket
import threading


class Proxy:
    """Stands before a port of this host."""

    def __init__(self, port: int) -> None:
        self._to = port
        self._requests, self._answers = threading.Event(), threading.Event()
        self.mend()
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.port = self._listening.getsockname()[1]
        self._ends: list[socket.socket] = []
        threading.Thread(target=self._accept, daemon=True).start()

    def cut_requests(self) -> None:
        """Let no request through, and answers still; nobody is told."""
        self._requests.clear()

    def cut_answers(self) -> None:
        """Let no answer through, and requests still; nobody is told."""
        self._answers.clear()

    def cut(self) -> None:
        """Let nothing through, in either direction; nobody is told."""
        self._requests.clear()
        self._answers.clear()

    def mend(self) -> None:
        """Let all through again, what waited first."""
        self._requests.set()
        self._answers.set()

    def close(self) -> None:
        """Hang up."""
        self.mend()
        for end in (self._listening, *self._ends):
            end.close()

    def _accept(self) -> None:
        while True:
            try:
                near, _ = self._listening.accept()
                far = socket.create_connection(("127.0.0.1", self._to))
            except OSError:
                return
            self._ends += [near, far]
            for ends in ((near, far, self._requests), (far, near, self._answers)):
                threading.Thread(target=self._pump, args=ends, daemon=True).start()

    def _pump(self, source: socket.socket, target: socket.socket, is_open: threading.Event) -> None:
        try:
            while data := source.recv(65536):
                is_open.wait()
                target.sendall(data)
            target.shutdown(socket.SHUT_WR)
        except OSError:
            target.close()

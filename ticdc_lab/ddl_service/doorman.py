"""Who may keep a connection open: those that were let in; of all others so many, and not for long."""

from __future__ import annotations

import asyncio
import errno
import logging
import socket
import time
from collections import OrderedDict
from typing import Any

import h11
import msgspec
from uvicorn.protocols.http.h11_impl import H11Protocol

from ticdc_lab.ddl_service.bodies import Refusal

MOST_GUESTS = 100
"""Connections that have not yet sent a request that was let in; one more, and the oldest of them is closed."""
MOST_MEMBERS = 400
"""Connections that have; one more, and that which was used longest ago is closed."""
IDLE_S = 30.0
"""Between requests, and until the head of one has come."""
BODY_S = 15.0
"""Until the body of one has come."""
HANDSHAKE_S = 5.0
"""Until TLS is agreed on; before that a connection is nobody's guest."""
SAYS_AGAIN_S = 60.0
LOG = logging.getLogger("ticdc_lab.ddl_service")


class Doorman:
    """Knows the connections of a worker: strangers can neither use them up nor fill its log."""

    def __init__(self) -> None:
        self._guests: OrderedDict[Any, Connection] = OrderedDict()
        self._members: OrderedDict[Any, Connection] = OrderedDict()
        self._said_s = -SAYS_AGAIN_S

    def connection(self, *args: Any, **kwargs: Any) -> Connection:
        """Begin a connection, as the server asks for it."""
        return Connection(self, *args, **kwargs)

    def take(self, connection: Connection) -> None:
        """Take a connection, and close the oldest that has shown nothing where there are too many."""
        self._guests[connection.client] = connection
        self._close_oldest(self._guests, MOST_GUESTS)

    def let_in(self, client: Any) -> None:
        """Know a connection, by the caller's address, as one of a caller that may come in."""
        connection = self._guests.pop(client, None) or self._members.pop(client, None)
        if connection is not None:
            self._members[client] = connection
            self._close_oldest(self._members, MOST_MEMBERS)

    def left(self, client: Any) -> None:
        """Forget a connection."""
        self._guests.pop(client, None)
        self._members.pop(client, None)

    def failed(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        """Take what the event loop could not do: of files that have run out a line a minute, and room is made."""
        error = context.get("exception")
        if not isinstance(error, OSError) or error.errno not in (errno.EMFILE, errno.ENFILE):
            loop.default_exception_handler(context)
            return
        self._close_oldest(self._guests, max(0, len(self._guests) - 1))
        if time.monotonic() - self._said_s >= SAYS_AGAIN_S:
            self._said_s = time.monotonic()
            LOG.warning("no connection can be taken: %s; raise the limit of open files (ulimit -n)", error.strerror)

    @staticmethod
    def _close_oldest(connections: OrderedDict[Any, Connection], most: int) -> None:
        while len(connections) > most:
            connections.popitem(last=False)[1].transport.abort()


class Connection(H11Protocol):
    """A connection that is closed where no request comes on it, and whose every answer is JSON."""

    def __init__(self, doorman: Doorman, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._doorman = doorman
        self._waits: asyncio.TimerHandle | None = None

    @property
    def is_idle(self) -> bool:
        """Whether it has no request to answer."""
        return self.cycle is None or self.cycle.response_complete

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Begin to wait for the head of a request."""
        super().connection_made(transport)
        # asyncio does so for some sockets only; without it each answer waits 40 ms for the last one's acknowledgement
        transport.get_extra_info("socket").setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._doorman.take(self)
        self._wait()

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget it."""
        self._doorman.left(self.client)
        self._unwait()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Take a part of a request; a part of a head does not prolong the time for all of it."""
        super().data_received(data)
        if not self.is_idle:
            self._unwait()
        elif self._waits is None:
            self._wait()

    def _wait(self) -> None:
        self._waits = self.loop.call_later(IDLE_S, self._too_late)

    def _unwait(self) -> None:
        if self._waits is not None:
            self._waits.cancel()
            self._waits = None

    def _too_late(self) -> None:
        self._waits = None
        if self.is_idle:
            self.transport.close()

    def send_400_response(self, msg: str) -> None:
        """Answer what is no HTTP, in the form of all refusals."""
        body = msgspec.json.encode(Refusal(f"this is no request of HTTP: {msg}", "See /openapi.json."))
        headers = [(b"content-type", b"application/json"), (b"connection", b"close")]
        for event in (h11.Response(status_code=400, headers=headers), h11.Data(data=body), h11.EndOfMessage()):
            self.transport.write(self.conn.send(event) or b"")
        self.transport.close()

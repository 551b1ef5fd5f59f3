"""One worker process: the worker over its store, and the HTTP API in front of it."""

from __future__ import annotations

import asyncio
import ipaddress
import logging
import signal
import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import uvicorn

from ticdc_lab.ddl_core.settings import Duties
from ticdc_lab.ddl_core.worker import Worker
from ticdc_lab.ddl_core.worker_state import is_taken
from ticdc_lab.ddl_service.http import HANDSHAKE_S, IDLE_S, Doorman, Shared, application
from ticdc_lab.ddl_service.metrics import Metrics
from ticdc_lab.ddl_service.node import Backend, Node
from ticdc_lab.errors import SetupError

LOG = logging.getLogger("ticdc_lab.ddl_service")


@dataclass(frozen=True, slots=True)
class Listening:
    """Where a worker listens, and to whom.

    Attributes
    ----------
    host, port
        The address; port 0 takes a free one.
    secret
        What callers must send as ``Authorization: Bearer``.
    certificate, key
        Files for TLS.
    callers
        A file of certificates by which callers must be signed.

    Raises
    ------
    SetupError
        Other hosts could reach it, and it would let everybody in; or a part of TLS is missing.
    """

    host: str = "127.0.0.1"
    port: int = 10080
    secret: str | None = None
    certificate: Path | None = None
    key: Path | None = None
    callers: Path | None = None

    def __post_init__(self) -> None:
        if (self.certificate is None) != (self.key is None) or (self.callers and not self.certificate):
            raise SetupError("TLS needs a certificate and its key", hint="Give --tls-cert and --tls-key together.")
        if not self.is_local and not self.secret and not self.callers:
            raise SetupError(
                f"{self.host} can be reached from other hosts, and nothing would keep them out",
                hint="Give --secret-file, or --tls-cert, --tls-key and --tls-client-ca; or listen on 127.0.0.1.",
            )

    @property
    def is_local(self) -> bool:
        """Whether only this host can reach it."""
        try:
            return self.host == "localhost" or ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return False

    def tls(self) -> ssl.SSLContext | None:
        if self.certificate is None:
            return None
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=self.callers)
        context.load_cert_chain(self.certificate, self.key)
        if self.callers:
            context.verify_mode = ssl.CERT_REQUIRED
        return context


def serve(
    node_id: str,
    backend: Backend | Callable[[], Backend],
    listening: Listening,
    duties: Duties,
    *,
    ready: Callable[[int], None] = lambda port: None,
) -> bool:
    """Run a worker until the process is asked to end.

    Parameters
    ----------
    node_id
        Its id in the service.
    backend
        The store, or what opens it once the address is taken.
    listening
        Where the API is.
    duties
        How it works.
    ready
        Called with the port once the API answers.

    Returns
    -------
    bool
        Whether it ended because it was asked to, not because it failed.

    Raises
    ------
    SetupError
        The address is taken or unknown, or a file of TLS cannot be read.
    """
    return asyncio.run(_served(node_id, backend, listening, duties, ready, asks_signals=True))


@contextmanager
def running(node_id: str, backend: Backend, listening: Listening, duties: Duties) -> Iterator[int]:
    """Run a worker in threads of this process, for notebooks and tests; gives the port of its API."""
    loop, port = asyncio.new_event_loop(), Future[int]()
    work = _served(node_id, backend, listening, duties, port.set_result, asks_signals=False)
    task = loop.create_task(work)
    task.add_done_callback(lambda t: None if port.done() else port.set_exception(t.exception()))
    thread = threading.Thread(target=lambda: loop.run_until_complete(asyncio.wait({task})), daemon=True)
    thread.start()
    try:
        yield port.result()
    finally:
        loop.call_soon_threadsafe(task.cancel)
        thread.join()
        loop.close()


def _listening(
    listening: Listening, backend: Backend | Callable[[], Backend]
) -> tuple[list[socket.socket], ssl.SSLContext | None]:
    """Take the address, before anything is made that would have to go again."""
    try:
        return _sockets(listening.host, listening.port), listening.tls()
    except OSError as error:
        if not callable(backend):
            backend.close()
        where = f"{listening.host}:{listening.port}"
        raise SetupError(
            f"cannot listen on {where}: {error}", hint="Give another --listen, or check --tls-cert and --tls-key."
        ) from None


def _sockets(host: str, port: int) -> list[socket.socket]:
    """Listen at every address that a host has, at one port."""
    found: list[socket.socket] = []
    for family, *_, place in socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE):
        own = found[0].getsockname()[1] if found else port
        found.append(socket.create_server((str(place[0]), own), family=family, backlog=128))
    return found


def instance_address(node_id: str, host: str, port: int) -> str:
    """Give the address by which a worker is known in its service: no other has it.

    Where it listens on all its addresses or on loopback, each host would give the same: the worker's own id is
    there instead.
    """
    bound = ipaddress.ip_address(host)
    if bound.is_unspecified or bound.is_loopback:
        return f"{node_id}:{port}"
    return f"[{host}]:{port}" if bound.version == 6 else f"{host}:{port}"


class _Server(uvicorn.Server):
    """A server whose connections the doorman knows, and that leaves signals to the worker: it ends when that has."""

    def __init__(self, shared: Shared, tls: ssl.SSLContext | None) -> None:
        config = uvicorn.Config(
            application(shared), http="h11", ws="none", lifespan="off", log_config=None, access_log=False,
            log_level="warning", server_header=False, timeout_keep_alive=int(IDLE_S), timeout_graceful_shutdown=1,
        )  # fmt: skip
        super().__init__(config)
        self._doorman = shared.doorman
        self._tls: dict[str, Any] = {"ssl": tls, "ssl_handshake_timeout": HANDSHAKE_S} if tls else {}

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Capture none."""
        yield

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Begin to answer; who does not come to an end with TLS is not waited for long."""
        loop, own = asyncio.get_running_loop(), {"config": self.config, "server_state": self.server_state}
        connection = partial(self._doorman.connection, **own, app_state={}, _loop=loop)
        self.servers = [await loop.create_server(connection, sock=s, backlog=128, **self._tls) for s in sockets or []]
        self.started = True


async def _served(
    node_id: str, backend: Backend | Callable[[], Backend], listening: Listening, duties: Duties,
    ready: Callable[[int], None], *, asks_signals: bool,
) -> bool:  # fmt: skip
    sockets, tls = _listening(listening, backend)
    metrics = Metrics()
    store = backend() if callable(backend) else backend
    host, port = sockets[0].getsockname()[:2]
    worker = Worker(node_id, duties=duties, address=instance_address(node_id, host, port))
    node = Node(worker, node_id, store, metrics.saw)
    hosts = frozenset({"localhost", "127.0.0.1", "::1", "[::1]", listening.host}) if listening.is_local else None
    shared = Shared(node, metrics, hosts, listening.secret, Doorman())
    server = _Server(shared, tls)
    asyncio.get_running_loop().set_exception_handler(shared.doorman.failed)
    asked_to_end = asyncio.Event()
    for name in (signal.SIGTERM, signal.SIGINT) if asks_signals else ():
        asyncio.get_running_loop().add_signal_handler(name, asked_to_end.set)
    answering = asyncio.create_task(server.serve(sockets))
    node.start()
    while not server.started and not answering.done():
        await asyncio.sleep(0.005)
    ready(port)
    said = False
    try:
        while not asked_to_end.is_set() and not node.failed:
            if not said and node.state is not None and is_taken(node.state):
                LOG.warning("%s waits: another worker has this id, or an earlier life of it has not ended yet", node_id)
                said = True
            with suppress(TimeoutError):
                await asyncio.wait_for(asked_to_end.wait(), 0.2)
    finally:
        server.should_exit = True
        await asyncio.wait({answering})
        await asyncio.to_thread(node.stop)
    return not node.failed

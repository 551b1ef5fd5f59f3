"""One worker process: the worker over its store, and the HTTP API in front of it."""

from __future__ import annotations

import asyncio
import ipaddress
import signal
import ssl
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from tornado.httpserver import HTTPServer
from tornado.netutil import bind_sockets

from ticdc_lab.ddl_service.http import Shared, application
from ticdc_lab.ddl_service.metrics import Metrics
from ticdc_lab.ddl_service.node import Backend, Node
from ticdc_lab.errors import SetupError
from ticdc_lab.simulate.ddl_service.settings import Duties
from ticdc_lab.simulate.ddl_service.worker import Worker

MOST_BODY = 64 * 1024


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
        """Give what TLS needs, None without it."""
        if self.certificate is None:
            return None
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=self.callers)
        context.load_cert_chain(self.certificate, self.key)
        if self.callers:
            context.verify_mode = ssl.CERT_REQUIRED
        return context


def serve(
    node_id: str,
    backend: Backend,
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
        The store.
    listening
        Where the API is.
    duties
        How it works.
    ready
        Told the port once the API answers.

    Returns
    -------
    bool
        Whether it ended because it was asked to, not because it failed.
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


async def _served(
    node_id: str, backend: Backend, listening: Listening, duties: Duties, ready: Callable[[int], None],
    *, asks_signals: bool,
) -> bool:  # fmt: skip
    metrics = Metrics()
    node = Node(Worker(node_id, "pd", duties), node_id, backend, metrics.saw)
    hosts = frozenset({"localhost", "127.0.0.1", "::1", listening.host}) if listening.is_local else None
    app = application(Shared(node, metrics, duties.versions, hosts, listening.secret))
    server = HTTPServer(app, ssl_options=listening.tls(), max_buffer_size=MOST_BODY)
    sockets = bind_sockets(listening.port, listening.host)
    asked_to_end = asyncio.Event()
    for name in (signal.SIGTERM, signal.SIGINT) if asks_signals else ():
        asyncio.get_running_loop().add_signal_handler(name, asked_to_end.set)
    server.add_sockets(sockets)
    node.start()
    ready(sockets[0].getsockname()[1])
    try:
        while not asked_to_end.is_set() and not node.failed:
            with suppress(TimeoutError):
                await asyncio.wait_for(asked_to_end.wait(), 0.2)
    finally:
        server.stop()
        await asyncio.to_thread(node.stop)
    return not node.failed

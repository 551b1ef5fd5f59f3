"""The pages of a watch: metrics, health, findings. Only this host reaches them, unless a token keeps others out."""

from __future__ import annotations

import hmac
import ipaddress
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from prometheus_client import CONTENT_TYPE_LATEST

from ticdc_lab.errors import SetupError, SourceError
from ticdc_lab.events.tso import with_texts
from ticdc_lab.watch.folder import placed
from ticdc_lab.watch.metrics import metrics
from ticdc_lab.watch.running import Watch, shown_as_json, unsettled

if TYPE_CHECKING:
    from ticdc_lab.watch.comparing import WatchedComparison


def address_of(listen: str, token: str | None) -> tuple[str, int]:
    """HOST:PORT as both. Raises SetupError: it cannot be read, or other hosts reach it and there is no token."""
    host, _, port = listen.rpartition(":")
    host = host.strip("[]") or "127.0.0.1"
    if not port.isdigit() or int(port) > 65_535:
        raise SetupError(f"{listen} is no address; expected HOST:PORT.", hint="--listen 127.0.0.1:10082")
    try:
        is_local = host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        is_local = False
    if not is_local and not token:
        raise SetupError(
            f"{host} can be reached from other hosts, and nothing would keep them out.",
            hint="Give --token-file FILE, or listen on 127.0.0.1.",
        )
    return host, int(port)


@contextmanager
def pages(watch: Watch | WatchedComparison, listen: str, *, token: str | None = None) -> Iterator[str]:
    """Serve the pages of a watch, or of a comparison, in threads of this process; gives their address.

    ``watch``: whose view and findings are shown. ``listen``: HOST:PORT; port 0 takes one that is free. ``token``: what
    a request must bring (``Authorization: Bearer TOKEN``); None for loopback alone. Raises SetupError: the address is
    taken, or needs a token.
    """
    try:
        server = ThreadingHTTPServer(address_of(listen, token), _handler(watch, token))
    except OSError as error:
        raise SetupError(
            f"{listen} cannot be listened on: {error.strerror}.", hint="--listen 127.0.0.1:0 takes a free port."
        ) from None
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.1}, daemon=True)
    thread.start()
    host, port = str(server.server_address[0]), server.server_address[1]
    try:
        yield f"{f'[{host}]' if ':' in host else host}:{port}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def _page(watch: Watch | WatchedComparison, path: str) -> tuple[int, Any]:
    """Status and content of a page."""
    if path == "/metrics":
        return 200, metrics(watch.view)
    if path == "/health":
        return 200, {"alive": True}
    if path == "/ready":
        if isinstance(watch, Watch):
            ready = watch.view.caught_up
        else:
            ready = watch.compared.span is not None and not watch.silent
        return 200 if ready else 503, {"ready": ready}
    if path == "/findings" and isinstance(watch, Watch):
        try:
            return 200, {"findings": placed(unsettled(list(watch.findings.values())), watch.state)}
        except SourceError as error:
            return 500, {"error": str(error)}
    if path == "/findings" and not isinstance(watch, Watch):
        return 200, {"findings": json.loads(watch.compared.examples.to_json(orient="records"))}
    if path == "/status":
        if isinstance(watch, Watch):
            return 200, shown_as_json(watch.view)
        answered = [{"side": h, "topic": t, "partition": int(p), "answered_s": s}
                    for (h, t, p), s in watch.view.answered_s.items()]  # fmt: skip
        return 200, asdict(watch.view) | {"answered_s": answered}
    return 404, {"error": "there are /metrics, /health, /ready, /findings and /status"}


def _handler(watch: Watch | WatchedComparison, token: str | None) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        timeout = 30

        def do_GET(self) -> None:
            said = self.headers.get("Authorization", "").removeprefix("Bearer ")
            if token and not hmac.compare_digest(said.encode(), token.encode()):
                self._answer(401, b'{"error": "a token is needed: Authorization: Bearer TOKEN"}\n')
                return
            status, found = _page(watch, urlsplit(self.path).path)
            if isinstance(found, bytes):
                self._answer(status, found, CONTENT_TYPE_LATEST)
            else:
                self._answer(status, json.dumps(with_texts(found)).encode() + b"\n")

        def _answer(self, status: int, body: bytes, kind: str = "application/json") -> None:
            self.send_response(status)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            """Log no request."""

    return Handler

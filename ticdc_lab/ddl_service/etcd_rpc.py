"""Requests of :mod:`ticdc_lab.ddl_core.store` as etcd's own, and a channel to etcd.

Of aetcd the generated RPCs are used, not its client: that gives a watch's events one by one, and where a revision ends
is what a mirror must know. Each registered cluster has a namespace of its own by its ``store_addr``; the service's keys
are the proposal's, without one. A real cluster's PD is never written to: a campaign there would take its DDL from it.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
import threading
import time
from collections.abc import Coroutine, Iterable
from concurrent.futures import TimeoutError as TooLate
from contextlib import closing
from datetime import datetime
from email.utils import parsedate_to_datetime
from functools import cache
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from pathlib import Path
from typing import Any, NamedTuple, TypeVar
from urllib.parse import urlsplit

import grpc
from aetcd import rpc

from ticdc_lab.ddl_core.keys import PD
from ticdc_lab.ddl_core.store import CREATE, MOD, Compare, Op, Put, StoredEntry, Txn
from ticdc_lab.errors import SetupError, SourceError

T = TypeVar("T")


@cache
def loop() -> asyncio.AbstractEventLoop:
    """Give the loop, which runs in a thread of its own."""
    found = asyncio.new_event_loop()
    threading.Thread(target=found.run_forever, name="etcd", daemon=True).start()
    return found


def done(work: Coroutine[Any, Any, T], within_s: float) -> T:
    """Have the loop do something, and wait for it. Raises SourceError: it takes too long."""
    future = asyncio.run_coroutine_threadsafe(work, loop())
    try:
        return future.result(within_s)
    except TooLate:
        future.cancel()
        raise SourceError(f"etcd does not answer within {within_s:g} s", hint="Run: etcdctl endpoint status") from None


CLUSTERS = "/tidb/ddl_service_clusters/"
"""Where the stores of clusters are; not under the service's own prefix."""
PREFIXES = (b"/tidb/", b"/topology/")
"""Under these is all that is written."""
ANSWERS_S = 5.0
"""An answer that takes longer does not come any more."""
LEADER_ONLY = (("hasleader", "true"),)
"""etcd ends a stream at a member that is cut off from its leader."""
_TELLS_S = 2.0
"""A time that takes longer to come is no time any more."""
_TUNING = (
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.min_reconnect_backoff_ms", 500),
    ("grpc.max_reconnect_backoff_ms", 1000),
    ("grpc.keepalive_time_ms", 6000),  # etcd hangs up on those who ask more often than each 5 s
    ("grpc.keepalive_timeout_ms", 2000),
    ("grpc.use_local_subchannel_pool", 1),  # a process may have several stores, each with a connection of its own
    ("grpc.enable_http_proxy", 0),
    ("grpc.max_receive_message_length", -1),  # a read of all that a store has may be long
)


class Etcd(NamedTuple):
    """Where etcd is."""

    endpoints: str  # ``HOST:PORT`` of its members, with commas between; ``https://`` in front for TLS
    # ``ca``, ``certificate``, ``key``: files (PEM): who must have signed etcd's certificate, and how it knows the
    # worker.
    ca: Path | None = None
    certificate: Path | None = None
    key: Path | None = None
    # ``user``, ``password``: where etcd's own authentication is on.
    user: str = ""
    password: str = ""


class SignedIn:
    """Who a channel's calls come from, where etcd asks for a user.

    ``metadata``: for every call; empty if etcd has no authentication.
    """

    def __init__(self, channel: Any, etcd: Etcd) -> None:
        self._stub, self._user, self._password = rpc.AuthStub(channel), etcd.user, etcd.password
        self.metadata: tuple[tuple[str, str], ...] = ()

    async def renew(self) -> None:
        """Get a token: etcd forgets those that it gave before it restarted, or that were not used for long."""
        if self._user:
            request = rpc.AuthenticateRequest(name=self._user, password=self._password)
            answer = await self._stub.Authenticate(request, timeout=ANSWERS_S, wait_for_ready=True)
            self.metadata = (("token", answer.token),)

    def is_forgotten(self, error: Any) -> bool:
        """Whether a call was refused for its token, so that nothing of it was carried out."""
        if not self._user or not isinstance(error, rpc.AioRpcError):
            return False
        return error.code() == grpc.StatusCode.UNAUTHENTICATED or is_of_token(error.details() or "")


def is_of_token(details: str) -> bool:
    """Whether etcd refuses a token as invalid or expired."""
    return "invalid auth token" in details or "revision of auth store is old" in details


def channel(etcd: Etcd) -> Any:
    """Open a channel to the first member that answers, and to another when that is gone.

    Raises SetupError: an endpoint cannot be read or found, or members are asked for with TLS and without.
    """
    hosts, secure = _endpoints(etcd.endpoints)
    found: dict[str, None] = {}
    for host, port in hosts:
        try:
            places = socket.getaddrinfo(host, port, socket.AF_INET, socket.SOCK_STREAM)
        except OSError as error:
            raise SetupError(f"{host} cannot be found: {error}", hint="Give etcd's address with --etcd.") from None
        found.update({f"{place[0]!s}:{port}": None for *_, place in places})
    target = "ipv4:" + ",".join(found)
    if not secure:
        return rpc.insecure_channel(target, options=_TUNING)
    ca, key, certificate = (path.read_bytes() if path else None for path in (etcd.ca, etcd.key, etcd.certificate))
    credentials = grpc.ssl_channel_credentials(ca, key, certificate)
    options = (*_TUNING, ("grpc.ssl_target_name_override", hosts[0][0]), ("grpc.default_authority", hosts[0][0]))
    return rpc.secure_channel(target, credentials, options=options)


async def connected(etcd: Etcd) -> tuple[Any, SignedIn]:
    """Open a channel, sign in, and see that etcd answers.

    Raises
    ------
    SourceError
        It does not, or does not take the user.
    """
    line = channel(etcd)
    signed_in = SignedIn(line, etcd)
    try:
        await signed_in.renew()
        call = {"timeout": ANSWERS_S, "metadata": signed_in.metadata}
        for key in PREFIXES:
            await rpc.KVStub(line).Range(rpc.RangeRequest(key=key), wait_for_ready=True, **call)
    except rpc.AioRpcError as error:
        await line.close()
        hint = "Is it running, and do TLS and certificates fit? Give its address with --etcd."
        if error.code() in (grpc.StatusCode.INVALID_ARGUMENT, grpc.StatusCode.PERMISSION_DENIED):
            hint = (
                "Give a user that may read and write all under /tidb/ and /topology/, with --etcd-user and "
                "--etcd-password-file."
            )
        raise SourceError(f"etcd does not answer at {etcd.endpoints}: {error.details()}", hint=hint) from None
    return line, signed_in


def time_told(etcd: Etcd) -> datetime | None:
    """Give the time of the first member that reports it, in the head of an HTTP answer; None where none does."""
    hosts, secure = _endpoints(etcd.endpoints)
    for host, port in hosts:
        begun_s = time.monotonic()
        try:
            line = (
                HTTPSConnection(host, port, timeout=_TELLS_S, context=_tls(etcd))
                if secure
                else (HTTPConnection(host, port, timeout=_TELLS_S))
            )
            with closing(line):
                line.request("GET", "/version")
                told = line.getresponse().headers["Date"]
        except (OSError, HTTPException):
            continue
        if told and time.monotonic() - begun_s < _TELLS_S:
            return parsedate_to_datetime(told)
    return None


def _tls(etcd: Etcd) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=etcd.ca)
    context.check_hostname = False  # its time only: it must be signed, and gRPC looks at names
    if etcd.certificate:
        context.load_cert_chain(etcd.certificate, etcd.key)
    return context


def _endpoints(text: str) -> tuple[list[tuple[str, int]], bool]:
    found, schemes = [], set()
    for part in text.split(","):
        try:
            url = urlsplit(part if "://" in part else f"http://{part}")
            place = url.hostname or "", url.port or 0
        except ValueError:
            place = "", 0
        if not all(place) or url.scheme not in ("http", "https") or url.path.strip("/"):
            raise SetupError(f"{part!r} is no endpoint of etcd", hint="Write HOST:PORT, or https://HOST:PORT.")
        found.append(place)
        schemes.add(url.scheme)
    if len(schemes) > 1:
        raise SetupError(
            f"{text} mixes endpoints with and without TLS", hint="Write `https://` in front of all or of none."
        )
    return found, schemes == {"https"}


def namespace(store: str) -> str:
    """Give the prefix of a store's keys."""
    return CLUSTERS + store.removeprefix("tikv://") if store.startswith("tikv://") else ""


def parted(key: str) -> tuple[str, str] | None:
    """Give (store, key) of a key of etcd; None for one that is nothing of the service's."""
    if not key.startswith(CLUSTERS):
        return (PD, key) if key.startswith("/tidb/ddl_service/") else None
    address, _, rest = key.removeprefix(CLUSTERS).partition("/")
    return f"tikv://{address}", f"/{rest}"


def after(prefix: bytes) -> bytes:
    """Give the first key behind all with a prefix."""
    return prefix[:-1] + bytes([prefix[-1] + 1])


def transaction(store: str, txn: Txn) -> Any:
    space = namespace(store)
    compares = [_compare(space, c) for c in txn.compares]
    return rpc.TxnRequest(compare=compares, success=[_operation(space, op) for op in txn.ops])


def reading(store: str, prefixes: Iterable[str]) -> Any:
    """Give the transaction that reads all under some prefixes at one revision."""
    space = namespace(store)
    ranges = [(space + prefix).encode() for prefix in prefixes]
    return rpc.TxnRequest(
        success=[rpc.RequestOp(request_range=rpc.RangeRequest(key=key, range_end=after(key))) for key in ranges]
    )


def _compare(space: str, compare: Compare) -> Any:
    key, expected = (space + compare.key).encode(), compare.expected
    if compare.what == CREATE or expected is None:  # a key that is not there has no value, and was created at 0
        return rpc.Compare(key=key, result=rpc.Compare.EQUAL, target=rpc.Compare.CREATE, create_revision=expected or 0)
    if compare.what == MOD:
        return rpc.Compare(key=key, result=rpc.Compare.EQUAL, target=rpc.Compare.MOD, mod_revision=expected)
    value = str(expected).encode()
    return rpc.Compare(key=key, result=rpc.Compare.EQUAL, target=rpc.Compare.VALUE, value=value)


def _operation(space: str, op: Op) -> Any:
    key = (space + op.key).encode()
    if isinstance(op, Put):
        return rpc.RequestOp(request_put=rpc.PutRequest(key=key, value=op.value.encode(), lease=op.lease))
    return rpc.RequestOp(request_delete_range=rpc.DeleteRangeRequest(key=key))


def entry(kv: Any) -> StoredEntry:
    return StoredEntry(kv.value.decode(), kv.create_revision, kv.mod_revision, kv.lease)


def is_seen(txn: Txn, answer: Any, prefixes: tuple[str, ...]) -> bool:
    """Whether a transaction that was carried out changed something under one of the prefixes."""
    return any(
        op.key.startswith(prefixes) and (isinstance(op, Put) or done.response_delete_range.deleted > 0)
        for op, done in zip(txn.ops, answer.responses, strict=True)
    )

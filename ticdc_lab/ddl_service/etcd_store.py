"""A real etcd as the service's store: the same requests and answers as of the embedded one, over gRPC.

A request never waits for etcd: the node goes on looking at its clock, and stops what it must stop when its lease may be
over, whether or not etcd can be reached.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Any

from aetcd import rpc

from ticdc_lab.ddl_service import etcd_loop, etcd_rpc
from ticdc_lab.ddl_service.etcd_rpc import Etcd
from ticdc_lab.ddl_service.etcd_session import ANSWERS_S, Session, Stubs
from ticdc_lab.errors import SourceError
from ticdc_lab.simulate.ddl_service.store_messages import Answer, Request, Revoke

LEAVING_S = 3.0
"""So long those that leave wait until their leases are given back."""


class EtcdStore:
    """A connection of one node to etcd.

    Parameters
    ----------
    etcd
        Where it is.

    Raises
    ------
    SourceError
        No member answers.
    SetupError
        An endpoint cannot be read or found.
    """

    def __init__(self, etcd: Etcd) -> None:
        self._news: deque[tuple[str, Answer]] = deque()
        self._bell: Callable[[], None] = lambda: None
        self._sessions: dict[tuple[str, str], Session] = {}
        self._leaving: set[asyncio.Task[None]] = set()
        self._channel, self._stubs = etcd_loop.done(_opened(etcd), ANSWERS_S + 1)

    def ring(self, bell: Callable[[], None]) -> None:
        """Ring a bell at each answer, from another thread."""
        self._bell = bell

    def ask(self, store: str, request: Request) -> list[Answer]:
        """Hand a request on; its answer is among the news."""
        etcd_loop.loop().call_soon_threadsafe(self._asked, store, request)
        return []

    def news(self) -> list[tuple[str, Answer]]:
        """Give (store, answer or what happened) since the last call."""
        found = []
        while self._news:
            found.append(self._news.popleft())
        return found

    def close(self) -> None:
        """Give back what is being given back, and hang up."""
        etcd_loop.done(self._closed(), LEAVING_S + 5)

    def _asked(self, store: str, request: Request) -> None:
        if isinstance(request, Revoke):
            self._revoked(store, request.lease)
            return
        tag: Any = request.tag
        session = self._sessions.get((store, tag[0]))
        if session is None or session.life < tag[1]:
            if session:
                session.close()
            session = self._sessions[store, tag[0]] = Session(store, tag, self._stubs, self._tell)
        session.ask(request)

    def _revoked(self, store: str, lease: int) -> None:
        for name, session in list(self._sessions.items()):
            if session.lease == lease:
                session.close()
                del self._sessions[name]
        task = asyncio.get_running_loop().create_task(self._given_back(lease))
        self._leaving.add(task)
        task.add_done_callback(self._leaving.discard)

    async def _given_back(self, lease: int) -> None:
        """Revoke a lease; one that is not revoked runs out."""
        try:
            await self._stubs.lease.LeaseRevoke(rpc.LeaseRevokeRequest(ID=lease), timeout=LEAVING_S)
        except rpc.AioRpcError:
            return

    def _tell(self, store: str, answer: Answer) -> None:
        is_first = not self._news
        self._news.append((store, answer))
        if is_first:
            self._bell()

    async def _closed(self) -> None:
        for session in self._sessions.values():
            session.close()
        if self._leaving:
            await asyncio.wait(self._leaving, timeout=LEAVING_S)
        await self._stubs.watches.close()
        await self._channel.close()


async def _opened(etcd: Etcd) -> tuple[Any, Stubs]:
    channel = etcd_rpc.channel(etcd)
    try:
        await rpc.KVStub(channel).Range(rpc.RangeRequest(key=b"/"), timeout=ANSWERS_S, wait_for_ready=True)
    except rpc.AioRpcError as error:
        await channel.close()
        hint = "Is it running, and do TLS and certificates fit? Give its address with --etcd."
        raise SourceError(f"etcd does not answer at {etcd.endpoints}: {error.details()}", hint=hint) from None
    return channel, Stubs(channel)

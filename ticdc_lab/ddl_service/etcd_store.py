"""A real etcd as the service's store: the same requests and answers as of the embedded one, over gRPC.

A request never waits for etcd: the node keeps checking its clock, and stops what it must stop when its lease may be
over, whether or not etcd can be reached.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from aetcd import rpc

from ticdc_lab.ddl_core.keys import PD
from ticdc_lab.ddl_core.store import Answer, Happened, Request, Revoke, Snapshot
from ticdc_lab.ddl_service import etcd_rpc
from ticdc_lab.ddl_service.etcd_rpc import ANSWERS_S, Etcd
from ticdc_lab.ddl_service.etcd_session import Session, Stubs
from ticdc_lab.ddl_service.etcd_witness import REMEDY
from ticdc_lab.ddl_service.store_time import StoreTime, steady_us

HALF_A_SECOND_US = 500_000
"""etcd reports whole seconds: what has passed of one is half of it, on average."""
TIMED_S = 60.0
LOG = logging.getLogger("ticdc_lab.ddl_service")
LEAVING_S = 3.0
"""So long those that leave wait until their leases are given back."""


class EtcdStore:
    """A connection of one node to etcd.

    ``etcd``: where it is. Raises SourceError: no member answers. SetupError: an endpoint cannot be read or found.
    """

    def __init__(self, etcd: Etcd) -> None:
        self._news: deque[tuple[str, Answer]] = deque()
        self._bell: Callable[[], None] = lambda: None
        self._sessions: dict[tuple[str, str], Session] = {}
        self._leaving: set[asyncio.Task[None]] = set()
        self.time = StoreTime()
        self._channel, self._stubs, self._timed = etcd_rpc.done(_opened(etcd, self.time), 2 * ANSWERS_S)
        self._stubs.witness.on_lost = self._lost

    @property
    def trouble(self) -> str:
        """Why etcd does not answer, or is not what it was; empty where all is well."""
        return self._stubs.witness.lost or self._stubs.trouble

    @property
    def remedy(self) -> str:
        """What an operator has to decide; empty if nothing."""
        return REMEDY if self._stubs.witness.lost else ""

    def ring(self, bell: Callable[[], None]) -> None:
        """Ring a bell at each answer, from another thread."""
        self._bell = bell

    def ask(self, store: str, request: Request) -> list[Answer]:
        """Hand a request on; its answer is among the news."""
        etcd_rpc.loop().call_soon_threadsafe(self._asked, store, request)
        return []

    def news(self) -> list[tuple[str, Answer]]:
        """Give (store, answer or what happened) since the last call."""
        found = []
        while self._news:
            found.append(self._news.popleft())
        return found

    def close(self) -> None:
        etcd_rpc.done(self._closed(), LEAVING_S + 5)

    def _asked(self, store: str, request: Request) -> None:
        if isinstance(request, Revoke):
            self._revoked(store, request.lease)
            return
        tag: Any = request.tag
        session = self._sessions.get((store, tag[0]))
        if session is None or session.life < tag[1]:
            if session:
                self._ended(session)
            session = self._sessions[store, tag[0]] = Session(store, tag, self._stubs, self._tell)
        session.ask(request)

    def _revoked(self, store: str, lease: int) -> None:
        for name, session in list(self._sessions.items()):
            if session.lease == lease:
                self._ended(session)
                del self._sessions[name]
        task = asyncio.get_running_loop().create_task(self._given_back(lease))
        self._leaving.add(task)
        task.add_done_callback(self._leaving.discard)

    def _ended(self, session: Session) -> None:
        """Close a session, and hold on to its tasks until they have ended."""
        for task in session.close():
            self._leaving.add(task)
            task.add_done_callback(self._leaving.discard)

    async def _given_back(self, lease: int) -> None:
        """Revoke a lease; one that is not revoked runs out."""
        try:
            call = self._stubs.call | {"timeout": LEAVING_S}
            await self._stubs.lease.LeaseRevoke(rpc.LeaseRevokeRequest(ID=lease), **call)
        except rpc.AioRpcError:
            return

    def _lost(self) -> None:
        """End all sessions: what they know is not in the etcd that answers now."""
        for session in self._sessions.values():
            session.over(self._stubs.witness.lost)
            self._ended(session)
        self._sessions.clear()

    def _tell(self, store: str, answer: Answer) -> None:
        if store == PD and isinstance(answer, Snapshot):
            self._stubs.witness.told(answer.entries, whole=True)
        elif store == PD and isinstance(answer, Happened):
            self._stubs.witness.told(answer.events, whole=False)
        is_first = not self._news
        self._news.append((store, answer))
        if is_first:
            self._bell()

    async def _closed(self) -> None:
        ending = [task for session in self._sessions.values() for task in session.close()]
        self._timed.cancel()
        await asyncio.gather(*ending, self._timed, return_exceptions=True)
        if self._leaving:
            await asyncio.wait(self._leaving, timeout=LEAVING_S)
        await self._stubs.watches.close()
        await self._stubs.witness.close()
        await self._channel.close()


async def _opened(etcd: Etcd, known: StoreTime) -> tuple[Any, Stubs, asyncio.Task[None]]:
    channel, signed_in = await etcd_rpc.connected(etcd)
    with suppress(TimeoutError):  # members that are gone are not waited for: the next minute's question finds one
        await asyncio.wait_for(_learned(etcd, known), ANSWERS_S / 2)
    stubs = Stubs(channel, signed_in)
    await stubs.watch_marks()
    return channel, stubs, asyncio.create_task(_timed(etcd, known))


async def _timed(etcd: Etcd, known: StoreTime) -> None:
    """Learn the store's time again and again: steady clocks drift, and who sets etcd's clock right is followed."""
    while True:
        await asyncio.sleep(TIMED_S)
        await _learned(etcd, known)


async def _learned(etcd: Etcd, known: StoreTime) -> None:
    told = await asyncio.to_thread(etcd_rpc.time_told, etcd)
    if told is not None:
        known.offset_us = round(1e6 * told.timestamp()) + HALF_A_SECOND_US - steady_us()
    elif known.offset_us is None:
        LOG.warning("etcd does not give the time: this machine's clock is not bounded")

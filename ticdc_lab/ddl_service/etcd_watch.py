"""The watches of one process, all on one stream: each is told whole revisions, in order, across reconnections too."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from itertools import groupby
from typing import Any

from aetcd import rpc

from ticdc_lab.ddl_service.etcd_rpc import LEADER_ONLY, SignedIn, after, entry, is_of_token
from ticdc_lab.simulate.ddl_service.store_messages import Entry

PAUSE_S = 0.2
LOG = logging.getLogger("ticdc_lab.ddl_service")
Events = list[tuple[str, Entry | None]]


class Watch:
    """One watch of all under a prefix.

    Parameters
    ----------
    prefix
        In etcd, its namespace included.
    seen
        The revision behind which it begins.
    told
        Called with each revision and what it changed.
    lost
        Called where etcd no longer has what comes next.
    """

    def __init__(self, prefix: str, seen: int, told: Callable[[int, Events], None], lost: Callable[[], None]) -> None:
        self.prefix, self.told, self.lost = prefix.encode(), told, lost
        self.seen = seen
        self._moved = asyncio.Event()

    async def reached(self, revision: int) -> None:
        """Wait until a revision has been told."""
        while self.seen < revision:
            self._moved.clear()
            await self._moved.wait()

    def take(self, response: Any) -> None:
        """Tell what a response brings; etcd never divides a revision between two."""
        for revision, group in groupby(response.events, key=lambda e: e.kv.mod_revision):
            events = [(e.kv.key.decode(), entry(e.kv) if e.type == rpc.Event.PUT else None) for e in group]
            if revision > self.seen:
                self.told(revision, events)
                self.seen = revision
        if not response.events and not response.created and not response.canceled:
            self.seen = max(self.seen, response.header.revision)  # it has nothing up to here
        self._moved.set()


class Watches:
    """All watches of a process.

    Parameters
    ----------
    channel
        To etcd.
    signed_in
        Who watches.
    """

    def __init__(self, channel: Any, signed_in: SignedIn) -> None:
        self._stub, self._signed_in = rpc.WatchStub(channel), signed_in
        self._watches: dict[int, Watch] = {}
        self._requests: asyncio.Queue[Any] = asyncio.Queue()
        self._last = 0
        self._task = asyncio.create_task(self._run())

    def add(self, watch: Watch) -> int:
        """Begin to watch."""
        self._last += 1
        self._watches[self._last] = watch
        self._requests.put_nowait(_creation(self._last, watch))
        return self._last

    def remove(self, number: int) -> None:
        """Watch no more."""
        if self._watches.pop(number, None):
            self._requests.put_nowait(rpc.WatchRequest(cancel_request=rpc.WatchCancelRequest(watch_id=number)))

    async def close(self) -> None:
        """End the stream."""
        self._task.cancel()
        await asyncio.wait({self._task})

    async def _run(self) -> None:
        """Keep a stream open; on a new one each watch goes on behind what it was told last."""
        while True:
            requests = self._requests = asyncio.Queue()
            for number, watch in self._watches.items():
                requests.put_nowait(_creation(number, watch))
            try:
                metadata = (*LEADER_ONLY, *self._signed_in.metadata)
                async for response in self._stub.Watch(_each(requests), metadata=metadata):
                    if response.canceled and is_of_token(response.cancel_reason):
                        break  # the stream goes on as who it began; all watches begin again as who is known
                    self._take(response)
            except rpc.AioRpcError as error:
                LOG.debug("the watch was cut: %s", error.details())
            finally:
                requests.put_nowait(None)
            await asyncio.sleep(PAUSE_S)
            with suppress(rpc.AioRpcError):
                await self._signed_in.renew()

    def _take(self, response: Any) -> None:
        watch = self._watches.get(response.watch_id)
        if watch is None:
            return
        watch.take(response)
        if response.compact_revision:
            del self._watches[response.watch_id]
            watch.lost()
        elif response.canceled:
            LOG.warning("etcd ended a watch: %s", response.cancel_reason)
            asyncio.get_running_loop().call_later(PAUSE_S, self._again, response.watch_id)

    def _again(self, number: int) -> None:
        if watch := self._watches.get(number):
            self._requests.put_nowait(_creation(number, watch))


async def _each(requests: asyncio.Queue[Any]) -> AsyncIterator[Any]:
    while (request := await requests.get()) is not None:
        yield request


def _creation(number: int, watch: Watch) -> Any:
    create = rpc.WatchCreateRequest(
        key=watch.prefix, range_end=after(watch.prefix), start_revision=watch.seen + 1, watch_id=number,
        progress_notify=True,
    )  # fmt: skip
    return rpc.WatchRequest(create_request=create)

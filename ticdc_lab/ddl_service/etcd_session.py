"""One session of a node, at etcd: its requests one after another, its lease, its watch.

What cannot have been carried out is asked again. A transaction with unknown outcome is
not: its session is over, the lease is given back, and the node begins another.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import suppress
from itertools import groupby
from typing import Any

import grpc
from aetcd import rpc

from ticdc_lab.ddl_core.keys import PD, WENT_BACK
from ticdc_lab.ddl_core.store import (
    Answer,
    Done,
    Expired,
    Found,
    Grant,
    Granted,
    Happened,
    KeepAlive,
    KeptAlive,
    Observe,
    Read,
    Request,
    Snapshot,
    StoredEntry,
    Txn,
)
from ticdc_lab.ddl_service import etcd_rpc
from ticdc_lab.ddl_service.etcd_rpc import ANSWERS_S, LEADER_ONLY, SignedIn, after, entry, is_of_token
from ticdc_lab.ddl_service.etcd_witness import WentBackError, Witness

AGAIN_S = 0.2
STALE_S = 0.05
"""A node whose condition did not hold learns it once it could see why."""
LOG = logging.getLogger("ticdc_lab.ddl_service")
Tell = Callable[[str, Answer], None]


class Stubs:
    """What a session needs of etcd; ``trouble``: why it did not answer last."""

    def __init__(self, channel: Any, signed_in: SignedIn) -> None:
        self.trouble, self.signed_in = "", signed_in
        self.kv, self.lease, self.watches = rpc.KVStub(channel), rpc.LeaseStub(channel), Watches(channel, signed_in)
        self.witness = Witness(lambda request: self.kv.Txn(request, **self.call))

    @property
    def call(self) -> dict[str, Any]:
        """How each call is made: who asks, and how long it may take."""
        return {"timeout": ANSWERS_S, "metadata": self.signed_in.metadata}

    async def transact(self, request: Any) -> Any:
        """Carry out a transaction, which etcd answers linearizably.

        Raises
        ------
        WentBackError
            The answer is not from the etcd that is known.
        """
        floor = self.witness.revision
        answer = await self.kv.Txn(request, **self.call)
        self.witness.saw(answer.header, floor)
        return answer

    async def watch_marks(self) -> None:
        """See from now on what other processes notice of etcd."""
        seen = await self.witness.begin()
        self.watches.add(PrefixWatch(WENT_BACK, seen, self.witness.marked, self._compacted))

    def _compacted(self) -> None:
        async def again() -> None:
            while True:
                with suppress(rpc.AioRpcError):
                    return await self.watch_marks()
                await asyncio.sleep(AGAIN_S)

        self._marking = asyncio.ensure_future(again())

    async def look(self, header: Any) -> None:
        """Ask etcd linearizably where another answer of it is odd; a member may lag behind, etcd may not."""
        if self.witness.is_doubted(header):
            await self.transact(etcd_rpc.reading(PD, (WENT_BACK,)))


class Session:
    """One session with one store.

    ``store``: by its address. ``tag``: of its first request: the node's name for it, and its life. ``stubs``: of etcd.
    ``tell``: called with (store, answer).
    """

    def __init__(self, store: str, tag: Any, stubs: Stubs, tell: Tell) -> None:
        self.store, self.life, self.lease = store, tag[1], 0
        self._tag, self._stubs, self._tell = (tag[0], tag[1]), stubs, tell
        self._watch: PrefixWatch | None = None
        self._number = 0
        self._prefixes: tuple[str, ...] = ()
        self._requests: asyncio.Queue[Request] = asyncio.Queue()
        self._keeping: set[asyncio.Task[None]] = set()
        self._task = asyncio.create_task(self._run())

    def ask(self, request: Request) -> None:
        """Carry out a request, after those before it; a lease is kept alive at once."""
        if not isinstance(request, KeepAlive):
            self._requests.put_nowait(request)
            return
        task = asyncio.create_task(self._kept(request))
        self._keeping.add(task)
        task.add_done_callback(self._keeping.discard)

    def close(self) -> set[asyncio.Task[None]]:
        """Forget it, and give what is about to end; what was not answered will not be."""
        self._stubs.watches.remove(self._number)
        tasks = {self._task, *self._keeping}
        for task in tasks:
            task.cancel()
        return tasks

    async def _run(self) -> None:
        with suppress(WentBackError):  # the store has reported the end of the session
            while True:
                request = await self._requests.get()
                await self._stubs.witness.trusted()
                if isinstance(request, Grant):
                    await self._granted(request)
                elif isinstance(request, Observe):
                    await self._observed(request)
                elif isinstance(request, Read):
                    await self._read(request)
                elif isinstance(request, Txn):
                    await self._transacted(request)

    def over(self, because: str) -> None:
        """Report its end."""
        LOG.info("the session %s with %s is over: %s", *self._tag, because)
        self._tell(self.store, Expired((*self._tag, "session")))

    async def _granted(self, asked: Grant) -> None:
        seconds = max(1, -(-asked.ttl_us // 1_000_000))
        answer = await self._until_answered(
            lambda: self._stubs.lease.LeaseGrant(rpc.LeaseGrantRequest(TTL=seconds), **self._stubs.call)
        )
        await self._stubs.look(answer.header)
        self.lease = answer.ID
        self._tell(self.store, Granted(asked.tag, answer.ID, asked.sent_us))

    async def _kept(self, asked: KeepAlive) -> None:
        answer = await self._until_answered(lambda: self._prolonged(asked.lease))
        try:
            await self._stubs.look(answer.header)
        except (WentBackError, rpc.AioRpcError):
            return  # if it went back the store has reported it; else it is asked again next time
        if answer.TTL > 0:
            self._tell(self.store, KeptAlive(asked.tag, asked.sent_us))
        else:
            self._tell(self.store, Expired(asked.tag))

    async def _prolonged(self, lease: int) -> Any:
        calls = self._stubs.lease.LeaseKeepAlive(
            _one(rpc.LeaseKeepAliveRequest(ID=lease)), **self._stubs.call | {"timeout": 1.0}
        )
        async for answer in calls:
            calls.cancel()
            return answer
        raise ConnectionError("etcd ended the stream without an answer")

    async def _observed(self, asked: Observe) -> None:
        """Read all at one revision, and watch what comes behind it."""
        space = etcd_rpc.namespace(self.store)
        revision, entries = await self._under(asked.prefixes)
        self._tell(self.store, Snapshot(asked.tag, revision, entries))
        self._prefixes = asked.prefixes

        def told(at: int, events: Events) -> None:
            own = tuple((key[len(space) :], e) for key, e in events if key[len(space) :].startswith(asked.prefixes))
            if own:
                self._tell(self.store, Happened(asked.tag, at, own))

        prefix = space + os.path.commonprefix(asked.prefixes)  # noqa: RUF071 - keys are no paths
        self._watch = PrefixWatch(prefix, revision, told, lambda: self.over("etcd has compacted what came next"))
        self._number = self._stubs.watches.add(self._watch)

    async def _read(self, asked: Read) -> None:
        self._tell(self.store, Found(asked.tag, *await self._under(asked.prefixes)))

    async def _under(self, prefixes: tuple[str, ...]) -> tuple[int, tuple[tuple[str, StoredEntry], ...]]:
        """Read all under some prefixes at one revision; etcd's reads are linearizable unless they ask not to be."""
        request = etcd_rpc.reading(self.store, prefixes)
        answer = await self._until_answered(lambda: self._stubs.transact(request))
        space = etcd_rpc.namespace(self.store)
        found = [
            (kv.key.decode().removeprefix(space), etcd_rpc.entry(kv))
            for part in answer.responses
            for kv in part.response_range.kvs
        ]
        return answer.header.revision, tuple(sorted(found))

    async def _transacted(self, txn: Txn) -> None:
        try:
            answer = await self._carried_out(etcd_rpc.transaction(self.store, txn))
        except rpc.AioRpcError as error:
            self.over(f"{txn.tag} was not answered: {error.details()}")
            return
        revision = answer.header.revision
        if self._watch and answer.succeeded and etcd_rpc.is_seen(txn, answer, self._prefixes):
            if not await _within(ANSWERS_S, self._watch.reached(revision)):
                self.over(f"what {txn.tag} changed was not delivered")
                return
        elif self._watch and not answer.succeeded:
            await _within(STALE_S, self._watch.reached(revision))
        self._tell(self.store, Done(txn.tag, answer.succeeded, revision))

    async def _carried_out(self, request: Any) -> Any:
        """Carry out a transaction; one that was refused for its token has changed nothing, and is asked once more."""
        try:
            return await self._stubs.transact(request)
        except rpc.AioRpcError as error:
            if not self._stubs.signed_in.is_forgotten(error):
                raise
        await self._stubs.signed_in.renew()
        return await self._stubs.transact(request)

    async def _until_answered(self, call: Callable[[], Awaitable[Any]]) -> Any:
        """Ask until there is an answer: for what may be asked twice."""
        while True:
            try:
                answer = await call()
            except (rpc.AioRpcError, ConnectionError) as error:
                if isinstance(error, rpc.AioRpcError) and error.code() == grpc.StatusCode.CANCELLED:
                    raise
                if not self._stubs.trouble:
                    LOG.warning("etcd does not answer, and is asked again: %s", _details(error))
                self._stubs.trouble = _details(error) or "no answer"
                await asyncio.sleep(AGAIN_S)
                if self._stubs.signed_in.is_forgotten(error):
                    with suppress(rpc.AioRpcError):
                        await self._stubs.signed_in.renew()
            else:
                self._stubs.trouble = ""
                return answer


async def _within(seconds: float, reached: Awaitable[None]) -> bool:
    try:
        async with asyncio.timeout(seconds):  # wait_for of Python 3.11 loses a cancellation now and then
            await reached
    except TimeoutError:
        return False
    return True


def _details(error: Any) -> str:
    return str(error.details()) if isinstance(error, rpc.AioRpcError) else str(error)


async def _one(request: Any) -> AsyncIterator[Any]:
    yield request


# The watches of one process, all on one stream: each gets whole revisions, in order, across reconnections too.

PAUSE_S = 0.2
Events = list[tuple[str, StoredEntry | None]]


class PrefixWatch:
    """One watch of all under a prefix.

    ``prefix``: in etcd, its namespace included. ``seen``: the revision behind which it begins. ``told``: called with
    each revision and what it changed. ``lost``: called where etcd no longer has what comes next.
    """

    def __init__(self, prefix: str, seen: int, told: Callable[[int, Events], None], lost: Callable[[], None]) -> None:
        self.prefix, self.told, self.lost = prefix.encode(), told, lost
        self.seen = seen
        self._moved = asyncio.Event()

    async def reached(self, revision: int) -> None:
        """Wait until a revision has been delivered."""
        while self.seen < revision:
            self._moved.clear()
            await self._moved.wait()

    def take(self, response: Any) -> None:
        """Deliver a response; etcd never divides a revision between two."""
        for revision, group in groupby(response.events, key=lambda e: e.kv.mod_revision):
            events = [(e.kv.key.decode(), entry(e.kv) if e.type == rpc.Event.PUT else None) for e in group]
            if revision > self.seen:
                self.told(revision, events)
                self.seen = revision
        if not response.events and not response.created and not response.canceled:
            self.seen = max(self.seen, response.header.revision)  # it has nothing up to here
        self._moved.set()


class Watches:
    """All watches of a process. ``channel``: to etcd. ``signed_in``: who watches."""

    def __init__(self, channel: Any, signed_in: SignedIn) -> None:
        self._stub, self._signed_in = rpc.WatchStub(channel), signed_in
        self._watches: dict[int, PrefixWatch] = {}
        self._requests: asyncio.Queue[Any] = asyncio.Queue()
        self._last = 0
        self._task = asyncio.create_task(self._run())

    def add(self, watch: PrefixWatch) -> int:
        self._last += 1
        self._watches[self._last] = watch
        self._requests.put_nowait(_creation(self._last, watch))
        return self._last

    def remove(self, number: int) -> None:
        if self._watches.pop(number, None):
            self._requests.put_nowait(rpc.WatchRequest(cancel_request=rpc.WatchCancelRequest(watch_id=number)))

    async def close(self) -> None:
        """End the stream."""
        self._task.cancel()
        await asyncio.wait({self._task})

    async def _run(self) -> None:
        """Keep a stream open; on a new one each watch resumes behind its last revision."""
        while True:
            requests = self._requests = asyncio.Queue()
            for number, watch in self._watches.items():
                requests.put_nowait(_creation(number, watch))
            try:
                metadata = (*LEADER_ONLY, *self._signed_in.metadata)
                async for response in self._stub.Watch(_each(requests), metadata=metadata):
                    if response.canceled and is_of_token(response.cancel_reason):
                        break  # a stream keeps its user; all watches restart as the known one
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


def _creation(number: int, watch: PrefixWatch) -> Any:
    create = rpc.WatchCreateRequest(
        key=watch.prefix, range_end=after(watch.prefix), start_revision=watch.seen + 1, watch_id=number,
        progress_notify=True,
    )  # fmt: skip
    return rpc.WatchRequest(create_request=create)

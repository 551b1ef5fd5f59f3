"""What a process has seen of an etcd: by it the process notices that an empty, an older or another etcd answers.

etcd's linearizable answers never have a lower revision than one that came before they were asked for, and all have the
id of one cluster. Where that is not so, confirmed registrations may be gone: no worker serves until a decision. The
first process that notices writes down, in the etcd that answers now, what the workers knew (under
:data:`.keys.WENT_BACK`); every other process, one that starts later or has seen less too, reads it there and waits for
the decision.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from typing import Any

import msgspec
from aetcd import rpc

from ticdc_lab.ddl_core import keys, records
from ticdc_lab.ddl_core.registering import addresses
from ticdc_lab.ddl_core.store import CREATE, MOD, Compare, Put, StoredEntry, Txn
from ticdc_lab.ddl_service import etcd_rpc
from ticdc_lab.ddl_service.etcd_rpc import Etcd
from ticdc_lab.errors import SourceError

LOOKS_S = 0.5
REMEDY = (
    "Bring the etcd back that the workers knew, or decide once for all workers: `ticdc-lab ddl-service go-on --etcd "
    "HOST:PORT --from mirror` registers again what is missing, `--from store` takes what etcd has now."
)
STORE, MIRROR = "store", "mirror"
LOG = logging.getLogger("ticdc_lab.ddl_service")


class WentBackError(Exception):
    """The etcd that answers is not the one that was known, or an older one."""


class EtcdLost(msgspec.Struct, frozen=True):
    """What workers knew of an etcd that went back: registrations by cluster; ``went_on``: the operator's decision."""

    because: str
    missing: tuple[str, ...]
    clusters: dict[str, str]
    went_on: str = ""

    @property
    def words(self) -> str:
        """Why no worker serves."""
        n = len(self.missing)
        named = ", ".join(self.missing[:5]) + (f" and {n - 5} more" if n > 5 else "")
        gone = f"{n} registered cluster{'s are' if n > 1 else ' is'} missing or older in it: {named}"
        return f"{self.because}; {gone if n else 'every registered cluster is in it'}"


class Witness:
    """What this process has seen of its etcd. ``transact``: carries out a transaction, without a look at its answer."""

    def __init__(self, transact: Callable[[Any], Any]) -> None:
        self._transact = transact
        self._cluster = self.revision = 0
        self._entries: dict[str, str] = {}
        self._mark = ""
        self._trusted = asyncio.Event()
        self._trusted.set()
        self._standing: asyncio.Task[None] | None = None
        self.lost = ""
        self.on_lost: Callable[[], None] = lambda: None

    async def trusted(self) -> None:
        """Wait until etcd is the one that is known."""
        await self._trusted.wait()

    def saw(self, header: Any, floor: int) -> None:
        """Look at a linearizable answer; ``floor`` is the revision that was known when it was asked for.

        Raises WentBackError: it is not from the etcd that is known.
        """
        if not self.lost and self._cluster not in (0, header.cluster_id):
            self._notice(f"another etcd answers: cluster {header.cluster_id:x} instead of {self._cluster:x}")
        elif not self.lost and header.revision < floor:
            self._notice(f"etcd has gone back from revision {floor} to {header.revision}")
        if self.lost:
            raise WentBackError(self.lost)
        self._cluster, self.revision = header.cluster_id, max(self.revision, header.revision)

    def is_doubted(self, header: Any) -> bool:
        """Whether an answer that need not be linearizable asks for one that is."""
        return self._cluster not in (0, header.cluster_id) or header.revision < self.revision

    def told(self, entries: Iterable[tuple[str, StoredEntry | None]], *, whole: bool) -> None:
        """Keep who is registered; ``whole`` where this is all of it. Workers rewrite all else."""
        if self.lost:
            return
        if whole:
            self._entries = {}
        for key, entry in entries:
            if not key.startswith(keys.REGISTERS):
                continue
            if entry is None:
                self._entries.pop(key, None)
            else:
                self._entries[key] = entry.value

    async def begin(self) -> int:
        """Look, at the start of a process, whether others wait for a decision here; up to which revision."""
        header, there = await self._read()
        self.marked(header.revision, list(there.items()))
        return int(header.revision)

    def marked(self, _: int, events: Iterable[tuple[str, StoredEntry | None]]) -> None:
        """Wait with others for a decision: who has seen less of etcd than they cannot notice that it went back."""
        marks = _marks({key: entry for key, entry in events if entry is not None})
        for key, lost in sorted(marks.items()):
            if not (self.lost or lost.went_on):
                self._mark = key
                self._notice(lost.words)

    async def close(self) -> None:
        """Wait for nothing any more."""
        if self._standing:
            self._standing.cancel()
            await asyncio.wait({self._standing})

    def _notice(self, because: str) -> None:
        self.lost = because
        self._trusted.clear()
        LOG.error("this process serves no client: %s", because)
        self._standing = asyncio.get_running_loop().create_task(self._stand())
        self.on_lost()

    async def _stand(self) -> None:
        because = self.lost
        while not await self._decided(because):
            await asyncio.sleep(LOOKS_S)

    async def _decided(self, because: str) -> bool:
        """Write down what is lost, once; then look for a decision."""
        with suppress(rpc.AioRpcError):
            header, there = await self._read()
            lost = _marks(there).get(self._mark)
            if lost is None:
                known = {k.removeprefix(keys.REGISTERS): v for k, v in self._entries.items()}
                now = {k.removeprefix(keys.REGISTERS): e.value for k, e in there.items()}
                lost = EtcdLost(because, tuple(sorted(c for c in known if now.get(c) != known[c])), known)
                self._mark = f"{keys.WENT_BACK}{self._cluster:x}-{self.revision}"
                put = Put(self._mark, msgspec.json.encode(lost).decode())
                await self._transact(etcd_rpc.transaction(keys.PD, Txn((), (Compare(self._mark, CREATE, 0),), (put,))))
            if lost.words != self.lost:
                self.lost = lost.words
                LOG.error("%s. %s", lost.words, REMEDY)
            if not lost.went_on:
                return False
            LOG.warning("this process continues from the %s: %s", lost.went_on, lost.words)
            self._cluster, self.revision, self._entries = header.cluster_id, header.revision, {}
            self.lost = self._mark = ""
            self._trusted.set()
            return True
        return False

    async def _read(self) -> tuple[Any, dict[str, StoredEntry]]:
        answer = await self._transact(etcd_rpc.reading(keys.PD, (keys.REGISTERS, keys.WENT_BACK)))
        return answer.header, _found(answer)


def _found(answer: Any) -> dict[str, StoredEntry]:
    return {
        kv.key.decode(): etcd_rpc.entry(kv) for part in answer.responses for kv in part.response_range.kvs
    }  # fmt: skip


def _marks(there: Mapping[str, StoredEntry]) -> dict[str, EtcdLost]:
    return {
        key: msgspec.json.decode(entry.value, type=EtcdLost)
        for key, entry in there.items()
        if key.startswith(keys.WENT_BACK)
    }


def gone_on(etcd: Etcd, source: str) -> list[EtcdLost]:
    """Decide for all workers of an etcd that went back.

    ``etcd``: where it is. ``source``: :data:`STORE`: what etcd has now counts. :data:`MIRROR`: clusters are registered
    as workers knew them. What an older etcd has beside that stays: a cluster that was removed since is there again.
    Returns: what was decided; empty if no worker waits. Raises SourceError: etcd does not answer.
    """
    try:
        return etcd_rpc.done(_gone_on(etcd, source), 4 * etcd_rpc.ANSWERS_S)
    except rpc.AioRpcError as error:
        what = f"etcd does not answer at {etcd.endpoints}: {error.details()}"
        raise SourceError(what, hint=f"Ask it: etcdctl --endpoints {etcd.endpoints} endpoint health") from None


async def _gone_on(etcd: Etcd, source: str) -> list[EtcdLost]:
    channel, signed_in = await etcd_rpc.connected(etcd)
    try:
        kv, call = rpc.KVStub(channel), {"timeout": etcd_rpc.ANSWERS_S, "metadata": signed_in.metadata}
        there = _found(await kv.Txn(etcd_rpc.reading(keys.PD, (keys.WENT_BACK,)), **call))
        waiting = {key: lost for key, lost in sorted(_marks(there).items()) if not lost.went_on}
        for mark, lost in waiting.items():
            for cluster, value in sorted(lost.clusters.items()) if source == MIRROR else ():
                known = records.cluster(value)
                pds = (Put(keys.PDS + address, known.identity) for address in addresses(known.store_addr))
                put = Txn((), (), (Put(keys.REGISTERS + cluster, value), *pds))
                await kv.Txn(etcd_rpc.transaction(keys.PD, put), **call)
            text = msgspec.json.encode(msgspec.structs.replace(lost, went_on=source)).decode()
            same = Compare(mark, MOD, there[mark].mod)
            await kv.Txn(etcd_rpc.transaction(keys.PD, Txn((), (same,), (Put(mark, text),))), **call)
        return list(waiting.values())
    finally:
        await channel.close()

"""All that was ever written to a service's store, for who wants to check it afterwards."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any, NamedTuple

from aetcd import rpc

from ticdc_lab.ddl_service import etcd_loop, etcd_rpc
from ticdc_lab.ddl_service.etcd_rpc import ANSWERS_S, Etcd, SignedIn
from ticdc_lab.ddl_service.sqlite_file import FILE
from ticdc_lab.errors import IncompleteHistoryError, SourceError

PATIENCE_S = 60.0


class Written(NamedTuple):
    """One change: of which store, the key, its new value (None: it is gone), and the revision that created it."""

    revision: int
    store: str
    key: str
    value: str | None
    created: int = 0


def of_folder(folder: str | Path) -> Iterator[Written]:
    """Read the history of an embedded store, in its order.

    Raises
    ------
    SourceError
        There is none, or it cannot be read.
    IncompleteHistoryError
        Its beginning is no longer kept.
    """
    path = Path(folder) / FILE
    if not path.exists():
        raise SourceError(f"there is no store in {folder}", hint="Give the --store of the workers.")
    try:
        with closing(sqlite3.connect(f"{path.resolve().as_uri()}?mode=ro", uri=True)) as db:
            rows = db.execute("select revision, store, key, value, created from events order by rowid")
            for i, row in enumerate(rows):
                if i == 0 and row[0] > 2:
                    raise _incomplete(f"{path} begins at revision {row[0]}")
                yield Written(*row)
    except sqlite3.Error as error:
        raise SourceError(f"{path} cannot be read: {error}", hint="Give the --store of the workers.") from None


def of_etcd(etcd: Etcd) -> list[Written]:
    """Read the history of the service in etcd, up to now.

    Raises
    ------
    SourceError
        etcd does not answer.
    IncompleteHistoryError
        It has been compacted.
    """
    try:
        return etcd_loop.done(_read(etcd), PATIENCE_S)
    except rpc.AioRpcError as error:
        raise SourceError(
            f"etcd does not answer at {etcd.endpoints}: {error.details()}", hint="Is it running?"
        ) from None


async def _read(etcd: Etcd) -> list[Written]:
    channel, signed_in = await etcd_rpc.connected(etcd)
    try:
        first = rpc.RangeRequest(key=b"/tidb/")
        answer = await rpc.KVStub(channel).Range(first, timeout=ANSWERS_S, metadata=signed_in.metadata)
        return await _watched(channel, signed_in, answer.header.revision)
    finally:
        await channel.close()


async def _watched(channel: Any, signed_in: SignedIn, last: int) -> list[Written]:
    """Watch everything from the first revision on until the last has come."""
    found: list[Written] = []
    if last < 2:
        return found
    call = rpc.WatchStub(channel).Watch(metadata=(*etcd_rpc.LEADER_ONLY, *signed_in.metadata))
    everything = rpc.WatchCreateRequest(key=b"\0", range_end=b"\0", start_revision=2)
    await call.write(rpc.WatchRequest(create_request=everything))
    async for response in call:
        if response.compact_revision:
            raise _incomplete(f"etcd has compacted revisions before {response.compact_revision}")
        if response.canceled:
            hint = "What happened is read off all of etcd: give a user with the role root."
            raise SourceError(f"etcd does not tell its history: {response.cancel_reason}", hint=hint)
        for event in response.events:
            place = etcd_rpc.parted(event.kv.key.decode(errors="replace"))
            if place:
                value = event.kv.value.decode() if event.type == rpc.Event.PUT else None
                found.append(Written(event.kv.mod_revision, *place, value, event.kv.create_revision))
        if response.events and response.events[-1].kv.mod_revision >= last:
            break
    call.cancel()
    return found


def _incomplete(what: str) -> IncompleteHistoryError:
    return IncompleteHistoryError(what, hint="Only a history that is there from its beginning can be checked.")

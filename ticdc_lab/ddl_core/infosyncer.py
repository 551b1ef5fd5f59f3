"""What an instance publishes of itself in its store: server info, and the topology with its last sign.

Proposal, "infosync.Infosyncer": an instance does so in the store of its own domain. That is its cluster's for a
tidb-server and the service's for a worker; the owner of a registered cluster in a worker publishes nothing there.
All keys go with the lease of the instance.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress

import msgspec
import orjson

from ticdc_lab.ddl_core import keys
from ticdc_lab.ddl_core.connection import Connection, asked
from ticdc_lab.ddl_core.settings import by_age, parsed
from ticdc_lab.ddl_core.store import Put, StoredEntry
from ticdc_lab.machines.machine import Now, Output


class ServerInfo(msgspec.Struct, frozen=True):
    """What is read of an instance's server info; an earlier build gives its address alone."""

    address: str = ""
    version: str = ""


def server_info(ddl_id: str, address: str, version: str, lease: int) -> Put:
    """Give what ``admin show ddl``, cluster tables and a service that is asked for a cluster's version read."""
    return Put(keys.SERVER_INFO + ddl_id, orjson.dumps({"address": address, "version": version}).decode(), lease)


def published(ddl_id: str, address: str, version: str, lease: int) -> tuple[Put, ...]:
    """Give all that an instance publishes when it begins."""
    topology = f"{keys.TOPOLOGY}{address}"
    return (
        server_info(ddl_id, address, version, lease),
        Put(f"{topology}/tidb", orjson.dumps({"version": version}).decode(), lease),
        Put(f"{topology}/ttl", "0", lease),
    )


def kept_alive(link: Connection, address: str, now: Now) -> tuple[Connection, list[Output]]:
    """Record that an instance lives, for TiDB-Dashboard."""
    return asked(link, "topology", (), (Put(f"{keys.TOPOLOGY}{address}/ttl", str(now.at_us), link.lease),), now)


def instances(entries: Mapping[str, StoredEntry]) -> dict[str, ServerInfo]:
    """Give what each instance publishes, by its ``ddl_id``; what is no server info counts as nothing.

    Any client can write into a cluster's store, and a worker that is asked there must not end by it.
    """
    found = {}
    for key in sorted(key for key in entries if key.startswith(keys.SERVER_INFO)):
        with suppress(ValueError, RecursionError):
            info = msgspec.json.decode(entries[key].value, type=ServerInfo)
            found[key.removeprefix(keys.SERVER_INFO)] = info
    return found


def versions_told(entries: Mapping[str, StoredEntry]) -> tuple[str, ...]:
    """Give the versions of a cluster, oldest first: of its tidb-servers, or else of its meta."""
    found = {info.version for info in instances(entries).values()}
    if not any(map(parsed, found)) and keys.BOOTSTRAPPED in entries:
        found = {entries[keys.BOOTSTRAPPED].value}
    return tuple(sorted(filter(parsed, found), key=by_age))

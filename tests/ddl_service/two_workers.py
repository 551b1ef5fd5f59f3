"""Two workers of one service in this process, over either store; the first can be made deaf, the second leads."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import real_etcd
from deaf import Deaf
from fleet import START_S, until

from ticdc_lab.ddl_core.settings import Duties
from ticdc_lab.ddl_service import Listening, auditing, running
from ticdc_lab.ddl_service.auditing import Written
from ticdc_lab.ddl_service.client import Client, ServiceError
from ticdc_lab.ddl_service.etcd_rpc import Etcd
from ticdc_lab.ddl_service.etcd_store import EtcdStore
from ticdc_lab.ddl_service.node import Backend
from ticdc_lab.ddl_service.sqlite_store import SqliteStore
from ticdc_lab.machines.leases import Terms

STORES = ("sqlite", "etcd")
TERMS = Terms(20_000_000, 4_000_000)
"""Long: a slow machine must not make a test of something else lose its sessions."""


class Two:
    """Two workers, ``one`` and ``two``, as their clients see them; ``ear`` is what the first hears through."""

    def __init__(self, open_store: Callable[[], Backend], read: Callable[[], list[Written]]) -> None:
        self.open, self.written = open_store, read
        self.ear = Deaf(open_store())
        self.endpoint = ""
        self.one: Client
        self.two: Client


@contextmanager
def two_workers(kind: str, folder: Path) -> Iterator[Two]:
    """Start both, and wait until each has a session."""
    with ExitStack() as stack:
        if kind == "etcd":
            server = real_etcd.begun(folder)
            stack.callback(server.kill)
            etcd = Etcd(server.endpoint)
            found = Two(lambda: EtcdStore(etcd), lambda: auditing.of_etcd(etcd))
            found.endpoint = server.endpoint
        else:
            found = Two(lambda: SqliteStore(folder), lambda: list(auditing.of_folder(folder)))
        duties = Duties(terms=TERMS)
        workers = []
        for name, store in (("two", found.open()), ("one", found.ear)):
            port = stack.enter_context(running(name, store, Listening(port=0), duties))
            workers.append(Client(f"http://127.0.0.1:{port}"))
            until(lambda: all(sees(c) == len(workers) for c in workers), START_S)
        found.two, found.one = workers
        yield found


def sees(client: Client) -> int:
    """How many workers one sees."""
    try:
        return len(client.workers())
    except ServiceError:
        return 0

"""Send a DDL job as a cluster's own tidb-server does, and follow it to its end.

There is no TiKV behind a registered cluster here: the tidb-server is the model's, in this process, over the store that
the workers use. While it is there each schema version waits for it too.
"""

from __future__ import annotations

import queue
import time
from collections.abc import Callable, Sequence
from typing import Any
from uuid import uuid4

from ticdc_lab.ddl_core import keys, records
from ticdc_lab.ddl_core.records import Job
from ticdc_lab.ddl_core.server import SHOWN, Server, shown_ddl
from ticdc_lab.ddl_core.server_state import (
    PREFIXES,
    Cancel,
    Habits,
    ServerState,
    ShownDdl,
    Submit,
)
from ticdc_lab.ddl_core.store import (
    Grant,
    Granted,
    Observe,
    Request,
    Revoke,
    Snapshot,
    StoredEntry,
)
from ticdc_lab.ddl_service.node import POLL_S, Backend, Node
from ticdc_lab.errors import SourceError
from ticdc_lab.machines.leases import Terms
from ticdc_lab.machines.machine import Told

TTL_US = 10_000_000
PATIENCE_S = 30.0


def submitted(
    open_store: Callable[[], Backend],
    store_addr: str,
    wish: Submit,
    *,
    version: str,
    within_s: float,
    told: Callable[[Job], None] = lambda job: None,
) -> Job:
    """Send a job, and wait until it has ended.

    Parameters
    ----------
    open_store
        Opens the store that the workers use; what it gives is closed again.
    store_addr
        Of the cluster.
    wish
        The job; one whose ``request`` was sent before is followed, and not sent again.
    version
        Of the tidb-server that sends it.
    within_s
        How long to wait, s.
    told
        Called with the job each time it has changed.

    Returns
    -------
    Job
        As it is in the history of jobs.

    Raises
    ------
    SourceError
        It has not ended in time, or the store does not answer.
    """
    wish = wish if wish.request else wish._replace(request=uuid4().hex)
    follower = _Follower(wish.request, told)
    node = Node(_server(store_addr, version), "tidb-cli", open_store(), follower.saw)
    node.start()
    try:
        node.post(wish)
        number = follower.ended(within_s, node)
    finally:
        node.stop()
    key = f"{keys.HISTORY}{number}"
    entries = snapshot(open_store, store_addr, (key,))
    if key not in entries:
        what = f"job {number} was sent to {store_addr}, and its store has it no more, neither queued nor ended"
        raise SourceError(what, hint="Check whether the store came back empty or older: ticdc-lab ddl-service audit")
    return records.job(entries[key].value)


def is_name(text: str) -> bool:
    """Whether a text fits a statement: MySQL's names have at most 64 characters, and are Unicode."""
    return len(text) <= 64 and not any("\ud800" <= c <= "\udfff" for c in text)


def cancelled(open_store: Callable[[], Backend], store_addr: str, job: int, *, version: str, within_s: float) -> str:
    """Ask that a job of a cluster be cancelled, as a tidb-server of ``version`` does.

    Returns: :data:`.records.DONE` where it was written that it be; else why there is nothing to cancel. Raises
    SourceError: the store has not answered in time.
    """
    outcomes: queue.SimpleQueue[str] = queue.SimpleQueue()

    def saw(event: Any, state: ServerState, outputs: Sequence[Any]) -> None:
        for output in outputs:
            if isinstance(output, Told):
                outcomes.put(output.outcome)

    node = Node(_server(store_addr, version), "tidb-cli", open_store(), saw)
    node.start()
    try:
        node.post(Cancel(job))
        return outcomes.get(timeout=within_s)
    except queue.Empty:
        raise SourceError(
            f"job {job} did not change within {within_s:g} s",
            hint="Run the same command again, with a longer --within.",
        ) from None
    finally:
        node.stop()


def shown(open_store: Callable[[], Backend], store_addr: str, *, within_s: float) -> ShownDdl:
    """Give what ``admin show ddl`` shows in a cluster: read from its store, into which nothing is written.

    Raises SourceError: the store has not answered in time.
    """
    return shown_ddl(snapshot(open_store, store_addr, SHOWN, within_s=within_s))


def _server(store_addr: str, version: str) -> Server:
    return Server(store_addr, Habits(version, Terms(TTL_US, TTL_US // 5)))


class _Follower:
    """Sees one job from the steps of the server that sent it."""

    def __init__(self, request: str, told: Callable[[Job], None]) -> None:
        self._request, self._told, self._number = request, told, 0
        self._job: Job | None = None
        self._over: queue.SimpleQueue[int] = queue.SimpleQueue()

    def saw(self, event: Any, state: ServerState, outputs: Sequence[Any]) -> None:
        """Take a step of the server, in the server's thread."""
        for output in outputs:
            if isinstance(output, Told) and output.command.request == self._request:
                self._number = output.outcome
        if self._number:
            mirror = state.link.mirror
            if mirror is None or mirror.prefixes != PREFIXES:
                return
            entry = mirror.under(keys.JOBS).get(str(self._number))
            if entry is None:
                self._over.put(self._number)
            elif records.job(entry.value) != self._job:
                self._job = records.job(entry.value)
                self._told(self._job)

    def ended(self, within_s: float, node: Node) -> int:
        """Wait for its end, and give its number."""
        try:
            return self._over.get(timeout=within_s)
        except queue.Empty:
            state = "not in the store" if self._job is None else f"{self._job.kind} is {self._job.state}"
            where = f"job {self._number}: {state}" if self._number else "the job could not be sent"
            hint = (
                "Does a worker own the cluster's DDL? Check: ticdc-lab ddl-service list. "
                f"--request {self._request} follows the same job again, and does not send it twice."
            )
            raise SourceError(f"after {within_s:g} s {where}", hint=hint) from None


def snapshot(
    open_store: Callable[[], Backend], store: str, prefixes: tuple[str, ...], *, within_s: float = PATIENCE_S
) -> dict[str, StoredEntry]:
    """Read all under some prefixes of a store, at one revision.

    Raises SourceError: the store does not answer in time.
    """
    backend = open_store()
    try:
        granted = _answer(backend, store, Grant(("read", 1, "grant"), TTL_US, 0), Granted, within_s)
        found = _answer(backend, store, Observe(("read", 1, "observe"), prefixes, granted.lease), Snapshot, within_s)
        backend.ask(store, Revoke(granted.lease))
        return dict(found.entries)
    finally:
        backend.close()


def _answer(backend: Backend, store: str, request: Request, kind: type, within_s: float) -> Any:
    answers = backend.ask(store, request)
    end_s = time.monotonic() + within_s
    while time.monotonic() < end_s:
        answers += [answer for at, answer in backend.news() if at == store]
        for answer in answers:
            if isinstance(answer, kind):
                return answer
        time.sleep(POLL_S)
    raise SourceError(f"the store does not answer within {within_s:g} s", hint="Check TiKV: pd-ctl -u PD store")

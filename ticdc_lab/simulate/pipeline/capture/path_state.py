"""The data path of one table: its regions, its rows from the matcher to the sink, and how far each part is."""

from __future__ import annotations

from typing import Any, NamedTuple, TypeAlias

from immutables import Map

from ticdc_lab.simulate.machine import Address
from ticdc_lab.simulate.pipeline.cdc_messages import KvRow
from ticdc_lab.simulate.pipeline.sink_messages import Write
from ticdc_lab.simulate.scheduler.roles import Key

ASKING, WAITING, SCANNING, STREAMING = "asking", "waiting", "scanning", "streaming"
"""A part of a span: PD is asked where it is; its turn to be scanned has not come; it is scanned; it streams."""
PD = "pd"

DELETE, UPDATE, INSERT = 0, 1, 2
"""The order of the changes of one transaction."""

Row: TypeAlias = "tuple[int, int, int, int, int, Any, Any]"
"""A matched row: commit_ts, start_ts, :data:`DELETE` and so on, key, request id, value and old value (None
where there is none); sorted as it is."""


class Stream(NamedTuple):
    """A region, or the part of it that belongs to a span, that a store sends.

    Attributes
    ----------
    resolved_ts
        What the store told, or from where it was registered.
    since_us, heard_us
        Since when it is in this state, and when the store last mentioned it.
    tries
        How often it has failed since it last streamed.
    prewrites
        By key: what has neither been committed nor rolled back.
    early
        commit_ts by (key, start_ts) of commits that came before the scan told their prewrite; 0 of rollbacks.
    """

    request_id: int
    region: int
    store: Address
    start: int
    end: int
    state: str
    resolved_ts: int
    since_us: int
    heard_us: int
    tries: int = 0
    epoch: int = 0
    prewrites: Map[int, KvRow] = Map()
    early: Map[tuple[int, int], int] = Map()


class Gap(NamedTuple):
    """A part of a span that no region is registered for: it counts with the resolved_ts it had."""

    start: int
    end: int
    resolved_ts: int
    since_us: int
    ask_us: int
    tries: int = 0


class Puller(NamedTuple):
    """A span: its streams and gaps cover it, without overlap; ``resolved_ts`` is their minimum and never falls."""

    start: int
    end: int
    resolved_ts: int
    streams: Map[int, Stream] = Map()
    gaps: tuple[Gap, ...] = ()
    received: int = 0

    @property
    def initialized(self) -> bool:
        """Whether every region has been scanned."""
        return not self.gaps and all(s.state == STREAMING for s in self.streams.values())


class Run(NamedTuple):
    """Sorted rows, of which those before ``at`` have gone out."""

    rows: tuple[Row, ...] = ()
    at: int = 0


class Sorter(NamedTuple):
    """The rows of a table that are not due.

    Attributes
    ----------
    memory, fresh
        Sorted rows, and batches that came after those were sorted.
    n_fresh
        Rows of the latter.
    runs
        Sorted runs on disk.
    spilled
        Rows that ever went there.
    drained_ts
        Everything up to here has gone out.
    """

    drained_ts: int
    memory: Run = Run()
    fresh: tuple[tuple[Row, ...], ...] = ()
    n_fresh: int = 0
    runs: tuple[Run, ...] = ()
    spilled: int = 0


class Flight(NamedTuple):
    """A write that is not acknowledged, or one behind such a write."""

    id: int
    first_ts: int
    n_rows: int
    sent_us: int
    since_us: int
    write: Write
    is_written: bool = False


class Sink(NamedTuple):
    """What is due: ``due`` from ``at`` on waits for the window, ``flights`` is under way.

    ``last`` is the newest row that became due, by which a repeated one is known where none may be written twice.
    """

    due: tuple[Row, ...] = ()
    at: int = 0
    flights: tuple[Flight, ...] = ()
    n_flying: int = 0
    written: int = 0
    last: tuple[Any, ...] = ()


class Path(NamedTuple):
    """The data path of a table; ``state`` is that of the scheduler's pipeline, ``start_ts`` where it writes from."""

    key: Key
    state: str
    start_ts: int
    checkpoint_ts: int
    puller: Puller
    sorter: Sorter
    sink: Sink = Sink()

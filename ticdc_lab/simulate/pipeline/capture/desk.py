"""One step of a capture at work: what it changes, and what comes out. It lives for the step alone."""

from __future__ import annotations

from typing import Any

from ticdc_lab.simulate.machine import Changed, Now, Wake
from ticdc_lab.simulate.pipeline.capture.path_state import Path, Puller
from ticdc_lab.simulate.pipeline.capture.state import DataState
from ticdc_lab.simulate.pipeline.keys import META
from ticdc_lab.simulate.pipeline.settings import AT_MOST_ONCE, CaptureSettings
from ticdc_lab.simulate.scheduler.executor import Executor
from ticdc_lab.simulate.scheduler.roles import Key

MOUNTED = "mounted"
"""The timer of a pool that was busy."""


class Desk:
    """A state that is being changed.

    Parameters
    ----------
    of
        The state before.
    settings
        The machine's.
    now
        What the node can see of the world.
    start_ts
        Where the changefeed starts.
    only
        Ids of the tables that its filter lets through; None for all.
    """

    def __init__(
        self, of: DataState, settings: CaptureSettings, now: Now, start_ts: int, only: frozenset[int] | None = None
    ) -> None:
        self.settings, self.at_us, self.start_ts, self.only = settings, now.at_us, start_ts, only
        self.inner, self.ddl, self.paths, self.kv, self.duty, self.n_writes, self.mounting_until_us = of
        self.outputs: list[Any] = []
        self.pumps = False

    def done(self) -> DataState:
        """Give the state after."""
        return DataState(self.inner, self.ddl, self.paths, self.kv, self.duty, self.n_writes, self.mounting_until_us)

    def mounts(self, rows: int) -> bool:
        """Give rows to the pool of mounters, if it is free; else they come again when it is.

        It takes a batch when the one before is done, and what it has taken leaves at once.
        """
        speed = self.settings.mounter_rows_per_s
        if speed is None:
            return True
        if self.mounting_until_us > self.at_us:
            self.outputs.append(Wake(self.mounting_until_us - self.at_us, MOUNTED))
            return False
        self.mounting_until_us = self.at_us + -(-rows * 1_000_000 // (speed * self.settings.mounter_workers))
        return True

    @property
    def executor(self) -> Executor:
        """Give the scheduler's pipelines."""
        executor: Executor = self.inner.processor.executor
        return executor

    @property
    def limit_ts(self) -> int:
        """Give up to where this capture may write: the global resolved_ts it heard of, MaxUint64 by the MQ rule."""
        return self.inner.resolved_ts

    @property
    def publishes_first(self) -> bool:
        """Whether a checkpoint is persisted before its rows are written."""
        return self.settings.semantics == AT_MOST_ONCE

    def puller(self, key: Key) -> Puller:
        """Give the puller of a table, or of the DDL jobs."""
        return self.ddl.puller if key == META else self.paths[key].puller

    def set_puller(self, key: Key, puller: Puller) -> None:
        """Keep a puller."""
        if key == META:
            self.ddl = self.ddl._replace(puller=puller)
        else:
            self.put(self.paths[key]._replace(puller=puller))

    def put(self, path: Path) -> None:
        """Keep the data path of a table."""
        self.paths = self.paths.set(path.key, path)

    def tell(self, key: Key, before: str | int | None, after: str | int | None, because: str) -> None:
        """Write what happened to a data path into the trace."""
        subject = "ddl-puller" if key == META else f"table-path:{key}"
        self.outputs.append(Changed(subject, before, after, because))

"""A log that was read, and what its panels need of it, each computed once and when it is first asked for."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from threading import Lock, RLock
from typing import Any, TypeVar

import pandas as pd
from pyspark.sql import functions as F

from ticdc_lab.browse import Browser, TableTimeline
from ticdc_lab.catalog import Catalog, catalog_of
from ticdc_lab.change_log import ChangeLog
from ticdc_lab.consumer.log import NarrowLog
from ticdc_lab.consumer.narrow import excerpt
from ticdc_lab.dispatch.whatif import WhatIf
from ticdc_lab.engine.running import jobs_given_up
from ticdc_lab.errors import SourceError, TiCDCLabError
from ticdc_lab.sample import from_first_row
from ticdc_lab.summary import Summary, findings_of, summarise
from ticdc_lab.tables import table_history

EXCERPT = 5_000
"""Events that the panel of a consumer takes, so that it answers at once."""

Part = TypeVar("Part")


class Opened:
    """What panels are made of.

    Parameters
    ----------
    log
        Materialised in a local folder.
    folder
        A folder of its own, in which histories of tables are kept.

    Notes
    -----
    Whoever asks for a part that another thread computes waits for it.
    """

    def __init__(self, log: ChangeLog, folder: str | Path) -> None:
        self.log, self.folder = log, Path(folder)
        self._held: dict[str, Any] = {}
        self._locks: dict[str, RLock] = {}
        self._guard = Lock()

    def _once(self, name: str, make: Callable[[], Part]) -> Part:
        with self._guard:
            lock = self._locks.setdefault(name, RLock())
        with lock:
            if name not in self._held:
                self._held[name] = make()
            found: Part = self._held[name]
            return found

    def holds(self, part: str) -> bool:
        """Whether a part, by the name of its property, was computed."""
        return part in self._held

    @property
    def summary(self) -> Summary:
        """All small frames but the findings."""
        return self._once("summary", lambda: summarise(self.log, audited=False))

    @property
    def findings(self) -> pd.DataFrame:
        """What the audit finds."""
        return self._once("findings", lambda: findings_of(self.log))

    @property
    def browser(self) -> Browser:
        """Pages of messages."""
        return self._once("browser", lambda: Browser.of(self.log))

    @property
    def tables(self) -> list[str]:
        """Tables of which there are rows to show.

        Raises
        ------
        SourceError
            There is none.
        """
        if not (names := self.browser.tables()):
            raise SourceError("The log holds no row change, so there is no table to show.")
        return names

    @property
    def what_if(self) -> WhatIf:
        """The measures of every dispatcher."""
        self.log.require_commit_ts("what another dispatcher would do")
        return self._once("what_if", lambda: WhatIf.from_events(self.log.events, self._catalog()))

    @property
    def excerpt(self) -> NarrowLog:
        """The first of its events in commit order, about :data:`EXCERPT` of them, as a consumer takes them."""
        self.log.require_commit_ts("what a consumer does")
        return self._once("excerpt", self._excerpt)

    def timeline(self, table: str) -> TableTimeline:
        """A table (``schema.table``) at any moment."""
        self.log.require_commit_ts(f"the table {table} as of a moment")
        return self._once(f"history {table}", lambda: self._timeline(table))

    def _timeline(self, table: str) -> TableTimeline:
        schema_name, _, table_name = table.partition(".")
        place = str(self.folder / f"history-{table.encode().hex()}")
        history = self.log.events.transform(table_history, schema_name=schema_name, table_name=table_name)
        with jobs_given_up(history.sparkSession):
            history.write.mode("overwrite").parquet(place)
        return TableTimeline(place)

    def _catalog(self) -> Catalog | None:
        try:
            return catalog_of(self.log.events)
        except TiCDCLabError:  # the log's definitions cannot be read; dispatchers by index are not offered then
            return None

    def _excerpt(self) -> NarrowLog:
        dated = self.log.events.where("commit_ts IS NOT NULL")
        if self.log.sample is not None:
            dated = dated.transform(from_first_row)
        last = dated.select("commit_ts").orderBy("commit_ts").limit(EXCERPT).agg(F.max("commit_ts")).first()
        return excerpt(dated.where(F.col("commit_ts") <= F.lit(last[0] if last else None)))

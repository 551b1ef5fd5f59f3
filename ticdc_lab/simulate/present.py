"""How things stand at a step of a run: what each capture is and has, and what was decided so far and why."""

from __future__ import annotations

from dataclasses import dataclass

import pandas as pd
import pyarrow as pa

from ticdc_lab.machines.machine import node_of
from ticdc_lab.simulate.ownership import natural, of_kinds, owned_at, stretches
from ticdc_lab.simulate.scheduler.executor import WRITING
from ticdc_lab.simulate.why_stuck import owners, troubles

_WAITS = {"preparing": "prepares", "prepared": "prepares", "paused": "paused"}


@dataclass(frozen=True, eq=False, slots=True)
class Present:
    """A run, to be asked about any step.

    Attributes
    ----------
    captures
        Names, sorted.
    held, owners, troubles
        :func:`ticdc_lab.simulate.ownership.stretches`, :func:`ticdc_lab.simulate.why_stuck.owners` and ``troubles``.
    decisions
        ``step``, ``time_us``, ``node``, ``subject``, ``after`` (what was chosen, None for nothing), ``because`` and
        ``rejected`` (candidate and reason).
    """

    captures: tuple[str, ...]
    held: pd.DataFrame
    owners: pd.DataFrame
    troubles: pd.DataFrame
    decisions: pd.DataFrame

    @classmethod
    def of(cls, trace: pa.Table) -> Present:
        """Read a trace (:data:`ticdc_lab.simulate.trace.TRACE`)."""
        held, periods, found = stretches(trace), owners(trace), troubles(trace)
        started = of_kinds(trace, "started")["node"].map(node_of)
        names = {*held["capture"], *periods["capture"], *found["capture"], *started} - {"etcd", ""}
        decided = of_kinds(trace, "decided")
        columns = ["step", "time_us", "node", "subject", "after", "because", "rejected"]
        return cls(tuple(sorted(names, key=natural)), held, periods, found, decided[columns])

    def at(self, step: int) -> pd.DataFrame:
        """Give what each capture is and has after a step.

        Returns
        -------
        pd.DataFrame
            ``capture``, ``role`` (``owner, rev 3``, ``down``, ``paused`` or empty), ``writes``, ``prepares`` and
            ``stops``: lists of tables. The last row, ``nobody``, has the tables that were written before and are not.
        """
        now = owned_at(self.held, step=step)
        kinds = now["state"].map(lambda s: "stops" if s == "stopping" else _WAITS.get(s, "writes"))
        rows = []
        for capture in self.captures:
            mine = now["capture"] == capture
            lists = [sorted(now[mine & (kinds == k)]["table"], key=natural) for k in ("writes", "prepares", "stops")]
            rows.append((capture, self._role(capture, step), *lists))
        written = self.held[self.held["state"].isin(WRITING) & (self.held["since_step"] <= step)]
        gone = set(written["table"]) - set(now[now["state"].isin(WRITING)]["table"])
        rows.append(("nobody", "", sorted(gone, key=natural), [], []))
        return pd.DataFrame(rows, columns=["capture", "role", "writes", "prepares", "stops"])

    def decided(self, step: int, *, most: int) -> pd.DataFrame:
        """Give the last decisions up to a step, the newest first."""
        return self.decisions[self.decisions["step"] <= step].tail(most).iloc[::-1]

    def _role(self, capture: str, step: int) -> str:
        now = [
            f[(f["capture"] == capture) & (f["since_step"] <= step) & (step < f["until_step"])]
            for f in (self.troubles[self.troubles["trouble"] != "parted"], self.owners)
        ]
        befallen = list(now[0]["trouble"])
        return ", ".join([*befallen, *(f"owner, rev {rev}" for rev in now[1]["rev"])])

"""A policy of one's own beside PD's, on the reference cases or on a start of one's own."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from ticdc_lab.simulate.pd.replay.fields import Fields
from ticdc_lab.simulate.pd.replay.records import records_of
from ticdc_lab.simulate.pd.world.cases import CaseRun, run_case
from ticdc_lab.simulate.pd.world.pd_policies import DEFAULT_POLICIES
from ticdc_lab.simulate.pd.world.policy import Policy
from ticdc_lab.simulate.pd.world.reference import case_of
from ticdc_lab.simulate.pd.world.what_if import thrash

COMPARED = pa.schema(
    [
        ("case", pa.string()),
        ("policy", pa.string()),
        ("operators", pa.int64()),  # started
        ("moved_gib", pa.float64()),  # snapshots
        ("peers_stddev", pa.float64()),  # at the end, over the stores that have any
        ("leaders_stddev", pa.float64()),
        ("peers_even_s", pa.float64()),  # since when within 5 %; null if not at the end
        ("leaders_even_s", pa.float64()),
        ("thrash", pa.float64()),  # the share of moves that took back one of the last minute
    ]
)
"""A row a case and a set of policies."""

_TICKS_A_SECOND = 10


def with_policy(policy: Policy, instead_of: Sequence[Policy] = DEFAULT_POLICIES) -> tuple[Policy, ...]:
    """Give PD's schedulers with another one in place of that with the same limit and purpose, or beside them."""
    kept = tuple(p for p in instead_of if p.limited_as != policy.limited_as or p.hot != policy.hot)
    return (*kept, policy)


def on_reference(
    path: str | Path, policies: Mapping[str, Sequence[Policy]], *, cases: Collection[str] = (), seed: int = 1
) -> pa.Table:
    """Run reference cases with each of some sets of policies.

    Parameters
    ----------
    path
        A file of records in the form of golden/pd/reference.jsonl.gz.
    policies
        Sets of schedulers by a name; ``{"PD": DEFAULT_POLICIES, "mine": with_policy(mine)}``.
    cases
        Names; all where it is empty.
    seed
        Of every run.

    Returns
    -------
    pyarrow.Table
        :data:`COMPARED`.
    """
    found = [case_of(Fields(r, "record")) for r in records_of(path) if r.get("kind") == "case"]
    chosen = [c for c in found if not cases or c.name in cases]
    rows = [_row(c.name, name, run_case(c, seed, some)) for c in chosen for name, some in policies.items()]
    return pa.Table.from_pylist(rows, schema=COMPARED)


def _row(case: str, name: str, run: CaseRun) -> dict[str, Any]:
    def seconds(ticks: int | None) -> float | None:
        return None if ticks is None else ticks / _TICKS_A_SECOND

    return {
        "case": case, "policy": name, "operators": sum(run.created.values()),
        "moved_gib": run.world.tasks.moved_mib / 1024, "peers_stddev": float(np.std(list(run.peers.values()))),
        "leaders_stddev": float(np.std(list(run.leaders.values()))), "peers_even_s": seconds(run.peers_even_at),
        "leaders_even_s": seconds(run.leaders_even_at),
        "thrash": thrash([f._asdict() for f in run.world.controller.ended]),
    }  # fmt: skip

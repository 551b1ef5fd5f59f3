"""The replication pipeline, from a transaction in TiKV to a row downstream.

Nodes: ``tidb`` (clients of TiKV), ``pd`` (where regions are), ``tikv-1``, ... (stores with their CDC component),
``etcd`` and ``capture-1``, ... (the scheduler's, with a data path in each capture), ``downstream``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ticdc_lab.lazily import lazily

if TYPE_CHECKING:
    from ticdc_lab.simulate.pipeline.looking import why_at
    from ticdc_lab.simulate.pipeline.run import simulate
    from ticdc_lab.simulate.pipeline.samples import chain, chains, families_in, seen_in
    from ticdc_lab.simulate.pipeline.semantics import compare_semantics
    from ticdc_lab.simulate.pipeline.settings import RULES, CaptureSettings, DownstreamSettings, PipelineSettings
    from ticdc_lab.simulate.pipeline.tables import key_of
    from ticdc_lab.simulate.pipeline.tryout import (
        FAULTS,
        LONG_KEY,
        MEMORY_ROWS,
        SAMPLE_US,
        changes_told,
        design_example,
        shop,
        transactions,
        tried,
    )

__all__ = [
    "FAULTS", "LONG_KEY", "MEMORY_ROWS", "RULES", "SAMPLE_US", "CaptureSettings", "DownstreamSettings",
    "PipelineSettings", "chain", "chains", "changes_told", "compare_semantics", "design_example", "families_in",
    "key_of", "seen_in", "shop", "simulate", "transactions", "tried", "why_at",
]  # fmt: skip

lazily(__name__, __all__)

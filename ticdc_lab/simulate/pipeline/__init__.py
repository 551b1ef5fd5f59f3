"""The replication pipeline, from a transaction in TiKV to a row downstream.

Nodes: ``tidb`` (clients of TiKV), ``pd`` (where regions are), ``tikv-1``, ... (stores with their CDC component),
``etcd`` and ``capture-1``, ... (the scheduler's, with a data path in each capture), ``downstream``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ticdc_lab.lazily import lazily

if TYPE_CHECKING:
    from ticdc_lab.simulate.pipeline.run import simulate
    from ticdc_lab.simulate.pipeline.settings import Settings

__all__ = ["Settings", "simulate"]

lazily(__name__, __all__, {"Settings": "settings", "simulate": "run"})

"""The Owner and the Processors of TiCDC: who replicates which table (seed: `ticdc_distributed_scheduling.md`)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ticdc_lab.lazily import lazily

if TYPE_CHECKING:
    from ticdc_lab.simulate.scheduler.run import simulate
    from ticdc_lab.simulate.scheduler.variants import Settings

__all__ = ["Settings", "simulate"]

lazily(__name__, __all__, {"Settings": "variants", "simulate": "run"})

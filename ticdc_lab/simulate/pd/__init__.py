"""PD's decisions as pure functions: placement, balance and repair, each with its reason (seed: tidb_pd_scheduling)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ticdc_lab.lazily import lazily

if TYPE_CHECKING:
    from ticdc_lab.simulate.pd.world.run import simulate
    from ticdc_lab.simulate.pd.world.start import Start

__all__ = ["Start", "simulate"]

lazily(__name__, __all__, {"Start": "world.start", "simulate": "world.run"})

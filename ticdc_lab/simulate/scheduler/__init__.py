"""The Owner and the Processors of TiCDC: who replicates which table (design "Distributed Scheduling in TiCDC")."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ticdc_lab.lazily import lazily

if TYPE_CHECKING:
    from ticdc_lab.simulate.scheduler.capture import Stick
    from ticdc_lab.simulate.scheduler.executor import TablePace
    from ticdc_lab.simulate.scheduler.run import simulate
    from ticdc_lab.simulate.scheduler.small import Small, retold
    from ticdc_lab.simulate.scheduler.variants import VARIANTS, SchedulerSettings
    from ticdc_lab.simulate.scheduler.world import Bounds

__all__ = ["VARIANTS", "Bounds", "SchedulerSettings", "Small", "Stick", "TablePace", "retold", "simulate"]

lazily(__name__, __all__)

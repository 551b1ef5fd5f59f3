"""Deterministic simulators: what happens when, and why (docs/simulators.md).

``scheduler``, ``pipeline``, ``pd`` and ``ddl_service`` are the worlds; each has a ``simulate``, and the settings
(``SchedulerSettings``, ..) or ``Start`` that it takes. A scenario file of any of them is read by :func:`read_scenario`
and played by its ``model``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ticdc_lab.lazily import lazily

if TYPE_CHECKING:
    from ticdc_lab.simulate import ddl_service, pd, pipeline, scheduler
    from ticdc_lab.simulate.explore import explore
    from ticdc_lab.simulate.faults import Ask, Crash, Join, Part, Restart
    from ticdc_lab.simulate.lags import costs
    from ticdc_lab.simulate.ledger import gaps, overlaps, owners, stretches
    from ticdc_lab.simulate.scenario import read_scenario, scenario_from_text
    from ticdc_lab.simulate.sweep import sweep
    from ticdc_lab.simulate.what_holds import what_holds

__all__ = [
    "Ask", "Crash", "Join", "Part", "Restart", "costs", "ddl_service", "explore", "gaps", "overlaps", "owners", "pd",
    "pipeline", "read_scenario", "scenario_from_text", "scheduler", "stretches", "sweep", "what_holds",
]  # fmt: skip

lazily(__name__, __all__)

"""Panels of simulated clusters as they are usually tried out; all can be saved, and opened again anywhere."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ticdc_lab.simulate.ddl_service import run as ddl_service
from ticdc_lab.simulate.pd.looking.tryout import real_runs, reference_cases, scenario_cases
from ticdc_lab.simulate.pipeline import tryout as pipeline
from ticdc_lab.simulate.pipeline.settings import RULES, SEMANTICS
from ticdc_lab.simulate.scheduler import run as scheduler
from ticdc_lab.simulate.scheduler.variants import VARIANTS
from ticdc_lab.widgets.ddl_service_panel import DdlServiceView, ddl_service_panel
from ticdc_lab.widgets.panel import Panel
from ticdc_lab.widgets.pd_panel import PdView, pd_panel
from ticdc_lab.widgets.pipeline_panel import PipelineView, pipeline_panel
from ticdc_lab.widgets.scheduler_panel import SchedulerView, scheduler_panel


def scheduler_tryout(until_s: float = 15.0) -> Panel[SchedulerView]:
    """Build a panel of the table scheduler: every protocol, assumption and fault.

    Parameters
    ----------
    until_s
        How long the runs are, virtual seconds.
    """
    return scheduler_panel(
        scheduler.tried(until_s), variants=list(VARIANTS), assumptions=scheduler.ASSUMPTIONS, faults=scheduler.FAULTS,
        until_s=until_s, made_from={"until_s": until_s},
    )  # fmt: skip


def pipeline_tryout(until_s: float = 12.0) -> Panel[PipelineView]:
    """Build a panel of the replication pipeline of a small shop: every semantics, rule and fault.

    Parameters
    ----------
    until_s
        How long the runs are, virtual seconds.
    """
    return pipeline_panel(
        pipeline.tried(until_s), semantics=SEMANTICS, rules=RULES, faults=pipeline.FAULTS, key=pipeline.LONG_KEY,
        until_s=until_s, memory_rows=pipeline.MEMORY_ROWS, made_from={"until_s": until_s},
    )  # fmt: skip


def ddl_service_tryout(until_s: float = 20.0) -> Panel[DdlServiceView]:
    """Build a panel of DDL as a Service with every fault.

    Parameters
    ----------
    until_s
        How long the runs are, virtual seconds.
    """
    return ddl_service_panel(
        ddl_service.tried(until_s), faults=tuple(ddl_service.FAULTS), plan=ddl_service.faults_of, until_s=until_s,
        made_from={"until_s": until_s},
    )  # fmt: skip


def pd_tryout(
    reference: str | Path, scenarios: str | Path | None = None, *, until_s: float | None = None, **more: Any
) -> Panel[PdView]:
    """Build a panel of PD on reference cases, with the real PD's runs beside them.

    Parameters
    ----------
    reference
        ``data/pd_reference.jsonl.gz`` or a file of the same form.
    scenarios
        A folder of scenarios of PD that are cases too.
    until_s
        How long runs are at most, virtual seconds.
    more
        ``policies`` of one's own, see :func:`ticdc_lab.widgets.pd_panel.pd_panel`; then only code can make it again.
    """
    cases = reference_cases(reference) | ({} if scenarios is None else scenario_cases(scenarios))
    written = {
        "reference": str(Path(reference).resolve()),
        "scenarios": None if scenarios is None else str(Path(scenarios).resolve()),
        "until_s": until_s,
    }
    return pd_panel(
        cases, real=lambda case: real_runs(reference, case), until_s=until_s, made_from=None if more else written,
        **more,
    )  # fmt: skip

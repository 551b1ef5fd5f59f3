"""Panels for notebooks: they bind inputs to the package's functions and figures, and do nothing else."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ticdc_lab.lazily import lazily

if TYPE_CHECKING:
    from ticdc_lab.widgets.browse_panel import BrowseView, RowView, TableView, browse_panel, row_panel, table_panel
    from ticdc_lab.widgets.consumer_panel import ConsumerView, consumer_panel
    from ticdc_lab.widgets.ddl_service_panel import DdlServiceView, ServiceView, ddl_service_panel, service_panel
    from ticdc_lab.widgets.findings_panel import FindingsView, findings_panel
    from ticdc_lab.widgets.linking import Linked, linked
    from ticdc_lab.widgets.log_panel import LogView, log_panel
    from ticdc_lab.widgets.opening import open_state
    from ticdc_lab.widgets.panel import Panel
    from ticdc_lab.widgets.pd_panel import PdView, pd_panel
    from ticdc_lab.widgets.pipeline_panel import PipelineView, pipeline_panel
    from ticdc_lab.widgets.scheduler_panel import SchedulerView, scheduler_panel
    from ticdc_lab.widgets.settings_panel import SettingsView, settings_panel
    from ticdc_lab.widgets.tryouts import ddl_service_tryout, pd_tryout, pipeline_tryout, scheduler_tryout
    from ticdc_lab.widgets.watch_panel import WatchPanelView, watch_panel
    from ticdc_lab.widgets.what_if_panel import WhatIfView, what_if_panel
    from ticdc_lab.widgets.workbench import Workbench, workbench

__all__ = [
    "BrowseView", "ConsumerView", "DdlServiceView", "FindingsView", "Linked", "LogView", "Panel", "PdView",
    "PipelineView", "RowView", "SchedulerView", "ServiceView", "SettingsView", "TableView", "WatchPanelView",
    "WhatIfView", "Workbench",
    "browse_panel", "consumer_panel", "ddl_service_panel", "ddl_service_tryout", "findings_panel", "linked",
    "log_panel", "open_state", "pd_panel", "pd_tryout", "pipeline_panel", "pipeline_tryout", "row_panel",
    "scheduler_panel", "scheduler_tryout", "service_panel", "settings_panel", "table_panel", "watch_panel",
    "what_if_panel", "workbench",
]  # fmt: skip

lazily(__name__, __all__)

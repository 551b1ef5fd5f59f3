"""Panels for notebooks: they bind inputs to the package's functions and figures, and do nothing else."""

from __future__ import annotations

from ticdc_lab.widgets.browse_panel import BrowseView, RowView, TableView, browse_panel, row_panel, table_panel
from ticdc_lab.widgets.consumer_panel import ConsumerView, consumer_panel
from ticdc_lab.widgets.ddl_service_panel import DdlServiceView, ServiceView, ddl_service_panel, service_panel
from ticdc_lab.widgets.log_panel import LogView, log_panel
from ticdc_lab.widgets.panel import Panel
from ticdc_lab.widgets.pd_panel import pd_panel
from ticdc_lab.widgets.pd_pictures import PdView
from ticdc_lab.widgets.pipeline_panel import PipelineView, pipeline_panel
from ticdc_lab.widgets.scheduler_panel import SchedulerView, scheduler_panel
from ticdc_lab.widgets.what_if_panel import WhatIfView, what_if_panel

__all__ = [
    "BrowseView",
    "ConsumerView",
    "DdlServiceView",
    "LogView",
    "Panel",
    "PdView",
    "PipelineView",
    "RowView",
    "SchedulerView",
    "ServiceView",
    "TableView",
    "WhatIfView",
    "browse_panel",
    "consumer_panel",
    "ddl_service_panel",
    "log_panel",
    "pd_panel",
    "pipeline_panel",
    "row_panel",
    "scheduler_panel",
    "service_panel",
    "table_panel",
    "what_if_panel",
]

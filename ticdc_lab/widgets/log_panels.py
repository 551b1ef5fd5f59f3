"""Panels of a log by the names that states give them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Any

from ticdc_lab.log import Log
from ticdc_lab.widgets.browse_panel import table_panel
from ticdc_lab.widgets.log_panel import log_panel
from ticdc_lab.widgets.panel import Panel
from ticdc_lab.widgets.tabs import TABS


def _table(log: Log, made_from: Mapping[str, Any]) -> Panel[Any]:
    table = made_from.get("table") or log.tables[0]
    return table_panel(log.timeline(table), table=table, made_from={**(log.change_log.made_from or {}), "table": table})


def _tab(name: str) -> Callable[[Log, Mapping[str, Any]], Panel[Any]]:
    return lambda log, _: TABS[name].make(log)


OF_A_LOG: Mapping[str, Callable[[Log, Mapping[str, Any]], Panel[Any]]] = MappingProxyType(
    {
        "log": lambda log, _: log_panel(replace(log.summary, findings=log.findings)),
        "findings": _tab("audit"),
        "what-if": _tab("dispatch"),
        "browse": _tab("messages"),
        "row": _tab("row"),
        "table": _table,
        "table-at": _tab("table"),
        "consumer": _tab("consumer"),
    }
)
"""From a log that was read, and what else ``made_from`` says, to a panel."""

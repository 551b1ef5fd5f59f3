"""Panels made again from what a state records they were made from."""

from __future__ import annotations

import tempfile
import weakref
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

from pyspark.sql import SparkSession

from ticdc_lab.audit.contradicted import with_rules_noted
from ticdc_lab.engine import session
from ticdc_lab.events.sample import Sample
from ticdc_lab.log import Log
from ticdc_lab.sources import local_path
from ticdc_lab.sources.load import load
from ticdc_lab.sources.origin import Origin
from ticdc_lab.widgets import tryouts
from ticdc_lab.widgets.browse_panel import table_panel
from ticdc_lab.widgets.log_panel import log_panel
from ticdc_lab.widgets.panel import Panel
from ticdc_lab.widgets.state import StateError, read_state
from ticdc_lab.widgets.tabs import TABS
from ticdc_lab.widgets.workbench import NAME as WORKBENCH
from ticdc_lab.widgets.workbench import workbench

# Panels of a log by the names that states give them.


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
        "settings": _tab("settings"),
    }
)
"""From a log that was read, and the rest of ``made_from``, to a panel."""


_TRYOUTS: Mapping[str, Callable[..., Panel[Any]]] = {
    "scheduler": tryouts.scheduler_tryout,
    "pipeline": tryouts.pipeline_tryout,
    "ddl-service": tryouts.ddl_service_tryout,
    "pd": tryouts.pd_tryout,
}
_KNOWN = (*OF_A_LOG, *_TRYOUTS, WORKBENCH)
_HOW = ("protocol", "source_kind", "schema_registry", "claim_check", "options", "changefeed")


def needs_spark(state: Mapping[str, Any] | str | Path) -> bool:
    """Whether a log must be loaded to open a state."""
    return read_state(state)["panel"] in (*OF_A_LOG, WORKBENCH)


def open_state(
    state: Mapping[str, Any] | str | Path, spark: SparkSession | None = None, *, source: str | None = None,
    options: Mapping[str, str] | None = None,
) -> Any:  # fmt: skip
    """Make a panel, or a workbench, again and set its controls as they were saved.

    Parameters
    ----------
    state
        What :meth:`ticdc_lab.widgets.panel.Panel.state` gave, or the file of its ``save``.
    spark
        Loads a log; by default a session of the engine that fits it.
    source
        Another log to look at in the same way, or the place where the same one lies here.
    options
        Settings of the source that a state does not keep: secrets.

    Returns
    -------
    Panel or Workbench
        With the value of the state.

    Raises
    ------
    StateError
        It is no state, only the code that made its panel can make it again, or its values do not fit what there is now.
    SourceError, ProtocolError
        The log cannot be loaded.
    """
    told = read_state(state)
    name, made_from = told["panel"], told["made_from"]
    if name not in _KNOWN:
        raise StateError(
            f"A panel `{name}` is not known here; expected one of {', '.join(_KNOWN)}.",
            hint=f"The state was saved by ticdc_lab {told['ticdc_lab']}.",
        )
    if not isinstance(made_from, dict):
        raise StateError(
            f"The state's panel `{name}` was made by code, which a state does not keep.",
            hint="Make the panel with the same code and open the state in it: panel.open(FILE).",
        )
    if name in _TRYOUTS:
        opened: Any = _tried_out(name, made_from)
    else:
        beside = None if isinstance(state, Mapping) else Path(state).parent
        origin = _found(Origin.from_dict(made_from, options=options), source, beside)
        opened = _of_log(name, origin, made_from, spark or session(source=origin.source))
    opened.open(told)
    return opened


def _of_log(name: str, origin: Origin, made_from: Mapping[str, Any], spark: SparkSession) -> Any:
    how = {k: getattr(origin, k) for k in _HOW}
    sample = origin.sample or Sample()
    if name == WORKBENCH:
        return workbench(origin.source, spark, sample=sample, **how).wait()
    folder = tempfile.TemporaryDirectory(prefix="ticdc_lab_")
    read = load(spark, origin.source, **how).sampled(sample).materialise(str(Path(folder.name) / "decoded"))
    log = with_rules_noted(read)
    log.require_events()
    panel = OF_A_LOG[name](Log(log, folder.name), made_from)
    weakref.finalize(panel, folder.cleanup)
    return panel


def _found(origin: Origin, source: str | None, beside: Path | None) -> Origin:
    """The log where it was, else beside the state's file."""
    if source is not None:
        return origin.of(source)
    place = None if origin.source_kind == "table" else local_path(origin.source)
    if place is not None and not place.exists():
        near = None if beside is None else beside / place.name
        if near is None or not near.exists():
            raise StateError(
                f"{origin.source}, which the state was made from, is not here, nor beside the state.",
                hint="Give its place: `ticdc-lab open STATE.json --source PATH`; in Python source=...",
            )
        return origin.of(str(near))
    return origin


def _tried_out(name: str, made_from: Mapping[str, Any]) -> Panel[Any]:
    try:
        return _TRYOUTS[name](**made_from)
    except (TypeError, ValueError, OSError) as error:
        raise StateError(f"made_from: no panel `{name}` can be made from it: {error}.") from error

"""What a workbench shows as a small JSON object: its source, the open tab, what is chosen, every panel's controls."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ticdc_lab.figures.selecting import Selection
from ticdc_lab.widgets.state import StateError, frozen, read_state, state_of, values_of
from ticdc_lab.widgets.tabs import TABS

if TYPE_CHECKING:
    from ticdc_lab.widgets.workbench import Workbench

NAME = "workbench"
"""Of its kind, as a saved state has it."""


@dataclass(frozen=True, slots=True)
class WorkbenchView:
    """The tab that is open, what is chosen (fields of a selection), and the values of the panels that were computed."""

    tab: str
    selection: Mapping[str, Any]
    panels: Mapping[str, Mapping[str, Any]]


def saved(bench: Workbench, made_from: Mapping[str, Any] | None) -> dict[str, Any]:
    """Write down what a workbench shows."""
    panels = {name: panel.state()["value"] for name, panel in bench.panels.items()}
    return state_of(NAME, made_from, WorkbenchView(bench.pages.current, bench.selection.chosen(), panels))


def restored(bench: Workbench, state: Mapping[str, Any] | str | Path) -> None:
    """Show what was saved; the workbench has read its source already.

    Raises
    ------
    StateError
        It is no state of a workbench, or says what a control cannot.
    """
    told = read_state(state)
    value = values_of(told, panel=NAME, view=WorkbenchView)
    if not (isinstance(value["tab"], str) and all(isinstance(value[name], dict) for name in ("selection", "panels"))):
        raise StateError("The state's value is none of a workbench: expected a tab's name, and selection and panels.")
    unknown = sorted({value["tab"], *value["panels"]} - set(TABS))
    if unknown:
        raise StateError(f"The state has tabs that are not known: {', '.join(unknown)}; expected {', '.join(TABS)}.")
    try:
        bench.select(Selection(**{name: frozen(v) for name, v in value["selection"].items()}))
    except TypeError as error:
        raise StateError(f"The state's selection is none: {error}.") from error
    for name, own in value["panels"].items():
        panel = bench.pages.panel(name)
        panel.open({**told, "panel": panel.name, "value": own})
    bench.pages.open(value["tab"])

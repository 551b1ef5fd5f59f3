"""What a changefeed was set to: a setting to choose, what is known of it, and the table of all below."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ticdc_lab.figures.figure import Figure
from ticdc_lab.figures.theme import sentence
from ticdc_lab.settings import Settings
from ticdc_lab.widgets.controls import choice
from ticdc_lab.widgets.panel import Panel


@dataclass(frozen=True, slots=True)
class SettingsView:
    """The setting that is shown; empty where none is known."""

    setting: str


def settings_panel(known: Settings, *, made_from: Mapping[str, Any] | None = None) -> Panel[SettingsView]:
    """Build a panel over the settings of a changefeed.

    ``known``: :attr:`ticdc_lab.sources.change_log.ChangeLog.settings`, or what :meth:`ticdc_lab.log.Log.settings`
    shows. ``made_from``: how the panel can be made again, see :mod:`ticdc_lab.widgets.opening`.
    """
    rows = {row["setting"]: row for row in known.rows()}
    wrong = {c.given.name: c.words for c in known.contradictions}
    names = [*wrong, *[name for name in rows if name not in wrong]]
    options = [(f"{name}{' (contradicts the log)' if name in wrong else ''}", name) for name in names]
    controls = {"setting": choice("setting", options or [("none", "")], tip="What contradicts the log comes first")}

    def draw(view: SettingsView) -> Figure:
        if view.setting not in rows:
            return sentence("No setting is known", "Give the changefeed's file: --changefeed FILE.")
        row = rows[view.setting]
        said = wrong.get(view.setting, f"Known from {row['known from']}, {row['how surely']}: {row['evidence']}.")
        note = f"{said} It decides {row['what depends on it']}. If it is wrong: {row['if it is wrong']}"
        return sentence(f"{view.setting} = {row['value']}", note)

    return Panel(SettingsView, controls=controls, draw=draw, name="settings", made_from=made_from)

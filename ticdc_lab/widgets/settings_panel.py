"""What a changefeed was set to: a table of what is known, in which one setting can be chosen."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pandas as pd

from ticdc_lab.figures.figure import Figure
from ticdc_lab.figures.listing import listing
from ticdc_lab.figures.theme import label, sentence
from ticdc_lab.settings import Settings
from ticdc_lab.widgets.controls import choice
from ticdc_lab.widgets.panel import Panel
from ticdc_lab.words import count


@dataclass(frozen=True, slots=True)
class SettingsView:
    """The setting that is shown; empty for all."""

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
    controls = {"setting": choice("setting", [("all", ""), *options], tip="What contradicts the log comes first")}

    marks = "Marked: what contradicts the log. " if wrong else ""
    note = f"{marks}A value that is cut is whole where its setting is chosen."

    def draw(view: SettingsView) -> Figure:
        shown = [name for name in names if name in rows and view.setting in ("", name)]
        if not shown:
            return sentence("No setting is known", "Give the changefeed's file: --changefeed FILE.")
        table = pd.DataFrame([rows[name] for name in shown]).assign(named=[name in wrong for name in shown])
        table["evidence"] = [wrong.get(name, rows[name]["evidence"]) for name in shown]
        title = count(len(shown), "setting") if len(shown) > 1 else f"{shown[0]} = {rows[shown[0]]['value']}"
        return listing(table, title=label(title, most=2000), note=note)

    return Panel(SettingsView, controls=controls, draw=draw, name="settings", made_from=made_from)

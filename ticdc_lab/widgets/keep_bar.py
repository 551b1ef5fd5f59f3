"""Buttons of a workbench that save what all its tabs say, and open it again."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import ipywidgets as widgets

from ticdc_lab.errors import TiCDCLabError
from ticdc_lab.widgets.problem import Problem
from ticdc_lab.widgets.under_way import UnderWay


class KeepBar(widgets.HBox):  # type: ignore[misc]
    """One row: save, open, and beside them how far opening is or why it cannot be.

    Parameters
    ----------
    save
        Called when somebody saves.
    take
        Called with the name of a file and its text.
    """

    def __init__(self, save: Callable[[], None], take: Callable[[str, str], None]) -> None:
        self._take = take
        self.save = widgets.Button(
            description="save all", tooltip="download what is chosen and what every tab says, as a small JSON file"
        )
        self.upload = widgets.FileUpload(
            accept=".json", description="open", tooltip="show again what was saved with `save all`"
        )
        self.under_way = UnderWay()
        self.save.on_click(lambda _: self._said(save))
        self.upload.observe(self._uploaded, names="value")
        super().__init__([self.save, self.upload, self.under_way], layout={"align_items": "flex-start"})
        self.add_class("ticdc-keep")

    def _uploaded(self, change: dict[str, Any]) -> None:
        for file in change["new"]:
            self._said(partial(self._take, file["name"], bytes(file["content"]).decode("utf-8", "replace")))
            self.upload.value = ()  # so that the same file can be opened twice

    def _said(self, act: Callable[[], None]) -> None:
        self.under_way.say(None)
        try:
            act()
        except TiCDCLabError as error:
            self.under_way.say(Problem.of(error))

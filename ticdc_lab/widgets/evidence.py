"""The tables behind a picture: folded, to be read, copied and taken along as files."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import anywidget
import pandas as pd
import traitlets

from ticdc_lab.answers.answer import as_bytes, as_html, file_name
from ticdc_lab.figures.page_scripts import COPY_JS

SHOWN = 200
"""Rows of a frame that the page gets; its files have all."""


class Evidence(anywidget.AnyWidget):
    """Frames by name, each folded until it is opened.

    Attributes
    ----------
    names
        Each frame's name and number of rows; empty ones are left out.
    """

    _esm = COPY_JS + (Path(__file__).parent / "evidence.js").read_text(encoding="utf-8")

    names: Any = traitlets.List().tag(sync=True)
    shown = traitlets.Int(SHOWN).tag(sync=True)

    def __init__(self) -> None:
        super().__init__()
        self._frames: Mapping[str, pd.DataFrame] = {}
        self.on_msg(self._hear)

    def show(self, frames: Mapping[str, pd.DataFrame]) -> None:
        """Offer these frames in the place of the last ones."""
        self._frames = {name: frame for name, frame in frames.items() if len(frame)}
        self.names = [[name, len(frame)] for name, frame in self._frames.items()]
        self.send({"kind": "changed"})  # what is open is read again

    def _hear(self, _: Any, message: Mapping[str, Any], buffers: Any) -> None:
        name, form = message["name"], message.get("form")
        if (frame := self._frames.get(name)) is None:
            return
        if form in ("csv", "parquet"):
            self.send({"kind": "file", "name": file_name(name, form)}, buffers=[as_bytes(frame, form)])
        else:
            self.send({"kind": "rows", "name": name, "html": as_html(frame.head(SHOWN))})

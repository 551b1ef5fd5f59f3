"""Replaying records of the real PD: our PD's decision for each, beside the file's."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ticdc_lab.lazily import lazily

if TYPE_CHECKING:
    from ticdc_lab.simulate.pd.replay.run import Replayed, replay

__all__ = ["Replayed", "replay"]

lazily(__name__, __all__)

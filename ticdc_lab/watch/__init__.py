"""The audit that runs all day: a topic is followed, and judged as its messages come."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ticdc_lab.lazily import lazily

if TYPE_CHECKING:
    from ticdc_lab.watch.running import Watch
    from ticdc_lab.watch.starting import watch

__all__ = ["Watch", "watch"]

lazily(__name__, __all__)

"""Events to wire formats, as TiCDC's own encoders write them, and those to a topic or a file; what a format loses."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ticdc_lab.lazily import lazily

if TYPE_CHECKING:
    from ticdc_lab.encode.encoders import ENCODERS, Encoder, Pair, encode, encoder

__all__ = ["ENCODERS", "Encoder", "Pair", "encode", "encoder"]

lazily(__name__, __all__)

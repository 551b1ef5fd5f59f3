"""Wire formats: messages to events.

A new wire format is one module with ``codec(known)`` and one line in :data:`ticdc_lab.codecs.registry.CODECS`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ticdc_lab.lazily import lazily

if TYPE_CHECKING:
    from ticdc_lab.codecs.decode import decode, decoder
    from ticdc_lab.codecs.detection import Detected, detect
    from ticdc_lab.codecs.known import NOTHING, Known
    from ticdc_lab.codecs.registry import PROTOCOLS

__all__ = ["NOTHING", "PROTOCOLS", "Detected", "Known", "decode", "decoder", "detect"]

lazily(__name__, __all__)

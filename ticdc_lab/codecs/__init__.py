"""Wire formats: messages to events.

A new wire format is one kernel and one line in :data:`ticdc_lab.codecs.kernel.batch.KERNELS`.
"""

from ticdc_lab.codecs.decode import PROTOCOLS, decode, decoder
from ticdc_lab.codecs.detect import Detected, detect

__all__ = ["PROTOCOLS", "Detected", "decode", "decoder", "detect"]

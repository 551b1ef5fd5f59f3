"""From a fault inside a message to the row that the quarantine has of it."""

from __future__ import annotations

from ticdc_lab.codecs.event import Malformed
from ticdc_lab.codecs.kernel.faults import FAULTS
from ticdc_lab.codecs.plain.json_text import JsonFault


def at_place(part: str, fault: JsonFault) -> Malformed:
    """The fault in ``part`` (key or value) of a message, in words."""
    error_class, sentence = FAULTS[fault.code]
    return Malformed(error_class, f"{part}, byte {fault.at}: {sentence}")

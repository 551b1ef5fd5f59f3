"""What TiCDC guarantees about a topic, checked on a recorded log."""

from __future__ import annotations

from ticdc_lab.audit.findings import events_at, messages_of, places_of
from ticdc_lab.audit.guarantees import GUARANTEES, checks_possible
from ticdc_lab.audit.guarantees.guarantee import Guarantee
from ticdc_lab.audit.run import MAX_PER_GUARANTEE, audited
from ticdc_lab.audit.transform import audit

__all__ = [
    "GUARANTEES", "MAX_PER_GUARANTEE", "Guarantee", "audit", "audited", "checks_possible", "events_at",
    "messages_of", "places_of",
]  # fmt: skip

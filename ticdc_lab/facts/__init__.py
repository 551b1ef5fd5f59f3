"""What is known of a whole log and is small: watermarks, DDL, Admin events, places; and what follows from it."""

from __future__ import annotations

from ticdc_lab.facts.gathering import log_facts
from ticdc_lab.facts.known import LogFacts

__all__ = ["LogFacts", "log_facts"]

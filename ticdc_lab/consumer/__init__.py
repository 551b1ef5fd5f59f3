"""Consumers of a log: what ends up downstream."""

from __future__ import annotations

from ticdc_lab.consumer.replay import Replayed, replay
from ticdc_lab.consumer.replay_compare import Compared, compare
from ticdc_lab.consumer.sinks.open import open_sink

__all__ = ["Compared", "Replayed", "compare", "open_sink", "replay"]

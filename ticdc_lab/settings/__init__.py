"""What a changefeed was set to: one value for each setting, where it is known from, and how surely."""

from __future__ import annotations

from ticdc_lab.settings.setting import MATCH, UNKNOWN, Contradiction, Setting, Settings, require_name

__all__ = ["MATCH", "UNKNOWN", "Contradiction", "Setting", "Settings", "require_name"]

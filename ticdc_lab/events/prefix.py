"""What places an event in a log."""

from __future__ import annotations

PARTITION = ("topic", "partition")
POSITION = (*PARTITION, "offset", "seq")
"""Unique."""

"""What an event is: its columns and types, moments, keys of its place, and the DDL that it may carry."""

from __future__ import annotations

PARTITION = ("topic", "partition")
POSITION = (*PARTITION, "offset", "seq")
"""Unique."""

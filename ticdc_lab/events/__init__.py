"""What an event is: its columns and types, moments, keys of its place, and the DDL that it may carry."""

from __future__ import annotations

PARTITION = ("topic", "partition")
POSITION = (*PARTITION, "offset", "seq")
"""Unique."""

FILE_BITS = 40
"""An offset of a storage folder is a file's rank in its stream, from 1, shifted by so many bits, and a position."""


def is_first(offset: int) -> bool:
    """Whether nothing of its partition lies before an offset, be it of a broker or in the first file of a stream."""
    return offset == 0 or offset >> FILE_BITS == 1


def is_in_file(offset: int) -> bool:
    """Whether it is a place in a file of a storage folder, and counts no messages."""
    return offset >> FILE_BITS > 0

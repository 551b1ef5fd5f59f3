"""What nodes of older versions cannot do."""

from __future__ import annotations

import re
from collections.abc import Iterable

from ticdc_lab.simulate.scheduler.v3.messages import Header

SPAN_REPLICATION_SINCE = (6, 6, 0)
"""A node of an earlier version knows whole tables only."""

CHANGEFEED_EPOCH_SINCE = (6, 7, 0)
"""A node of an earlier version knows no epochs of changefeeds."""

_VERSION = re.compile(r"v?(\d+)\.(\d+)\.(\d+)")


def parsed(version: str) -> tuple[int, int, int]:
    """Read the numbers of a version, also of ``v6.6.0-alpha-12-gabc``; (0, 0, 0) where there are none."""
    found = _VERSION.match(version)
    return (int(found[1]), int(found[2]), int(found[3])) if found else (0, 0, 0)


def spans_allowed(versions: Iterable[str | None]) -> bool:
    """Whether every node of these versions can replicate a part of a table."""
    return all(version is not None and parsed(version) >= SPAN_REPLICATION_SINCE for version in versions)


def epoch_matches(header: Header, changefeed_epoch: int | None) -> bool:
    """Whether a message is of this changefeed's life; one of a node too old to know epochs is taken."""
    if header.changefeed_epoch is None or changefeed_epoch is None:
        return True
    if header.version and parsed(header.version) < CHANGEFEED_EPOCH_SINCE:
        return True
    return header.changefeed_epoch == changefeed_epoch

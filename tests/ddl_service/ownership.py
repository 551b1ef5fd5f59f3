"""Who said of itself that it owns what, and when: never two at once."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import datetime
from pathlib import Path
from typing import NamedTuple

_LINE = re.compile(r"(\S+ \S+) ddl-owner:(\S+): (\S+) -> (\S+) \(")


class Change(NamedTuple):
    """A worker begins to own the DDL of a cluster, or ends."""

    at_s: float
    worker: str
    cluster: str
    owns: bool


def logged(path: Path, worker: str) -> list[Change]:
    """What a worker's log says."""
    found = []
    for line in path.read_text().splitlines():
        if match := _LINE.match(line):
            at = datetime.strptime(match[1], "%Y-%m-%d %H:%M:%S,%f").timestamp()
            found.append(Change(at, worker, match[2], match[4] != "None"))
    return found


def overlaps(changes: list[Change], gone: Mapping[str, float] | None = None) -> list[str]:
    """Say where two owned a cluster at once; ``gone`` says since when a worker could do nothing any more."""
    changes = [*changes]
    for worker, at_s in (gone or {}).items():
        changes += [Change(at_s, worker, c, False) for c in {c.cluster for c in changes}]
    owners: dict[str, set[str]] = {}
    found = []
    for change in sorted(changes, key=lambda c: (c.at_s, c.owns)):
        own = owners.setdefault(change.cluster, set())
        if change.owns and own - {change.worker}:
            found.append(f"{sorted(own)} and {change.worker} own {change.cluster}")
        (own.add if change.owns else own.discard)(change.worker)
    return found

"""Who reported of itself that it owns what, and when: never two at once."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import datetime
from itertools import combinations
from math import inf
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
    """What a worker's log shows."""
    found = []
    for line in path.read_text().splitlines():
        if match := _LINE.match(line):
            at = datetime.strptime(match[1], "%Y-%m-%d %H:%M:%S,%f").timestamp()
            found.append(Change(at, worker, match[2], match[4] != "None"))
    return found


def overlaps(changes: list[Change], gone: Mapping[str, float] | None = None, *, late_s: float = 0.0) -> list[str]:
    """Show where two owned a cluster at once.

    Parameters
    ----------
    changes
        What workers reported of themselves.
    gone
        Since when a worker could do nothing any more.
    late_s
        So much later than it stopped a worker may report it: one that gets no CPU cannot. What it wrote meanwhile is
        judged exactly by the audit, which goes by campaigns and not by clocks.
    """
    changes = [*changes]
    for worker, at_s in (gone or {}).items():
        changes += [Change(at_s, worker, c, False) for c in {c.cluster for c in changes}]
    since: dict[tuple[str, str], float] = {}
    spans: dict[str, list[tuple[float, float, str]]] = {}
    for change in sorted(changes, key=lambda c: (c.at_s, c.owns)):
        name = change.cluster, change.worker
        if change.owns:
            since.setdefault(name, change.at_s)
        elif name in since:
            spans.setdefault(change.cluster, []).append((since.pop(name), change.at_s, change.worker))
    for (cluster, worker), at_s in since.items():
        spans.setdefault(cluster, []).append((at_s, inf, worker))
    return [
        f"{one} and {two} own {cluster}"
        for cluster, own in sorted(spans.items())
        for (_, end_s, one), (begun_s, until_s, two) in combinations(sorted(own), 2)
        if one != two and min(end_s, until_s) - begun_s > late_s
    ]

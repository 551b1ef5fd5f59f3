"""Which versions work together (seed, "Compatibility with Different TiDB Cluster Versions")."""

from __future__ import annotations

import re
from typing import NamedTuple

_VERSION = re.compile(r"v?(\d+)\.(\d+)\.(\d+)(?:[-+][\w.+-]*)?")


class Versions(NamedTuple):
    """What a service supports: clusters from ``oldest`` to its ``own`` version."""

    own: str = "v8.5.0"
    oldest: str = "v6.1.0"


SUPPORTED = Versions()


def parsed(version: str) -> tuple[int, int, int] | None:
    """Give the numbers of a version such as ``v6.5.2`` or ``6.5.2-alpha``; None for anything else."""
    found = _VERSION.fullmatch(version)
    return (int(found[1]), int(found[2]), int(found[3])) if found else None


def unsupported(version: str, service: Versions) -> str | None:
    """Say why neither a cluster nor a job of this version is served; None if it is."""
    numbers, own, oldest = parsed(version), parsed(service.own), parsed(service.oldest)
    if numbers is None or own is None or oldest is None:
        return f"{version!r} is no version"
    if numbers > own:
        return f"version {version} is newer than the service, which has {service.own}"
    if numbers < oldest:
        return f"version {version} is too old: the service supports {service.oldest} and later"
    return None

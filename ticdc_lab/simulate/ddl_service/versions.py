"""Which versions work together (proposal, "Compatibility with Different TiDB Cluster Versions")."""

from __future__ import annotations

import re
from typing import NamedTuple

from immutables import Map

from ticdc_lab.simulate.ddl_service import records
from ticdc_lab.simulate.ddl_service.mirror import Part

_VERSION = re.compile(r"v?([0-9]{1,9})\.([0-9]{1,9})\.([0-9]{1,9})(?:[-+][\w.+-]*)?")


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


def as_numbers(version: str) -> tuple[int, int, int]:
    """Give the numbers of a version for comparing; one that is none is below all others."""
    return parsed(version) or (0, 0, 0)


def serving(part: Part) -> Map[str, Versions]:
    """Give what each worker can serve; one of an earlier version of the service does not say what is too old for it."""
    found = {name: records.worker(entry.value) for name, entry in part.items()}
    return Map({name: Versions(own.version, own.oldest or "v0.0.0") for name, own in found.items()})

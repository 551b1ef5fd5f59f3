"""What all workers of a service have in common: the versions that they serve, the terms of their leases, their pace."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

from immutables import Map

from ticdc_lab.ddl_core import records
from ticdc_lab.ddl_core.connection import TOPOLOGY_US, Part
from ticdc_lab.machines.leases import USUAL, Terms

_VERSION = re.compile(r"v?([0-9]{1,9})\.([0-9]{1,9})\.([0-9]{1,9})(?:[-+][\w.+-]*)?")


class Versions(NamedTuple):
    """What a service supports: clusters from ``oldest`` to its ``own`` version."""

    own: str = "v8.5.0"
    oldest: str = "v6.1.0"


SUPPORTED = Versions()


@lru_cache(maxsize=4_096)
def parsed(version: str) -> tuple[int, int, int] | None:
    """Give the numbers of a version such as ``v6.5.2`` or ``6.5.2-alpha``; None for anything else."""
    found = _VERSION.fullmatch(version)
    return (int(found[1]), int(found[2]), int(found[3])) if found else None


def unsupported(version: str, service: Versions) -> str | None:
    """Give the reason if clusters and jobs of this version are not served; else None."""
    numbers, own, oldest = parsed(version), parsed(service.own), parsed(service.oldest)
    if numbers is None or own is None or oldest is None:
        return f"{version!r} is no version"
    if numbers > own:
        return f"version {version} is newer than the service, which has {service.own}"
    if numbers < oldest:
        return f"version {version} is too old: the service supports {service.oldest} and later"
    return None


def by_age(version: str) -> tuple[tuple[int, int, int], bool, str]:
    """Give the key by which versions are ordered, no two alike: a pre-release before its release.

    Without the text two spellings of one version would come in the order of a set, another in each process.
    """
    return parsed(version) or (0, 0, 0), "-" not in version, version


def serving(part: Part) -> Map[str, Versions]:
    """Give what each worker can serve; an earlier version of the service has no lower bound."""
    found = {name: records.worker(entry.value) for name, entry in part.items()}
    return Map({name: Versions(own.version, own.oldest or "v0.0.0") for name, own in found.items()})


MOST_OPS = 100
"""Assignments of one transaction; etcd takes 128 operations by default."""


@dataclass(frozen=True, slots=True)
class Duties:
    """What all workers of a service have in common."""

    versions: Versions = SUPPORTED  # what is supported
    terms: Terms = USUAL  # of the sessions with the service's store and with clusters' stores
    tick_us: int = 100_000  # how often a worker checks everything unprompted
    # How long one batch of a backfill takes, with as many workers as clusters have by default.
    batch_us: int = 20_000
    topology_us: int = TOPOLOGY_US  # how often a worker refreshes its topology entry in the service's own cluster


DUTIES = Duties()

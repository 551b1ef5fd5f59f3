"""How a worker works."""

from __future__ import annotations

from dataclasses import dataclass

from ticdc_lab.simulate.ddl_service.connection import USUAL, Terms
from ticdc_lab.simulate.ddl_service.infosyncer import TTL_US
from ticdc_lab.simulate.ddl_service.versions import SUPPORTED, Versions

MOST_OPS = 100
"""Assignments of one transaction; etcd takes 128 operations unless told otherwise."""


@dataclass(frozen=True, slots=True)
class Duties:
    """What all workers of a service have in common.

    Attributes
    ----------
    versions
        What is supported.
    terms
        Of the sessions with the service's store and with those of clusters.
    tick_us
        How often a worker looks at everything without being told.
    batch_us
        How long one batch of a backfill takes, with as many workers as clusters have unless told otherwise.
    topology_us
        How often a worker says in the topology of the service's own cluster that it lives.
    """

    versions: Versions = SUPPORTED
    terms: Terms = USUAL
    tick_us: int = 100_000
    batch_us: int = 20_000
    topology_us: int = TTL_US


DUTIES = Duties()

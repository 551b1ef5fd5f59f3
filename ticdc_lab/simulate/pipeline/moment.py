"""Everything that can be seen of the pipeline at a moment, from which explanations are made."""

from __future__ import annotations

from typing import NamedTuple

from ticdc_lab.machines.machine import Reason
from ticdc_lab.simulate.pipeline.observed import CaptureFacts, RegionFacts


class Reported(NamedTuple):
    """What the owner has heard of a capture last, and the tables that it counts there."""

    capture: str
    checkpoint_ts: int
    resolved_ts: int
    tables: tuple[int, ...] = ()


class Moment(NamedTuple):
    """A sample of a run.

    Attributes
    ----------
    at_us
        When, µs of virtual time.
    checkpoint_ts, resolved_ts
        The global watermarks, as etcd has them.
    captures
        Those that run.
    regions
        Those that have a leader which runs.
    reported
        What the owner has of each capture that it counts; empty where nothing is known of it.
    down
        Nodes that are down or paused, sorted.
    stuck
        Why the owner cannot count the watermarks, and since when; None where it can.
    is_stopped
        Whether it is of a changefeed that a user has stopped.
    """

    at_us: int
    checkpoint_ts: int
    resolved_ts: int
    captures: tuple[CaptureFacts, ...] = ()
    regions: tuple[RegionFacts, ...] = ()
    reported: tuple[Reported, ...] = ()
    down: tuple[str, ...] = ()
    stuck: Reason | None = None
    is_stopped: bool = False

    @property
    def owner(self) -> CaptureFacts | None:
        """The capture that is the owner, if one is."""
        return next((c for c in self.captures if c.is_owner), None)

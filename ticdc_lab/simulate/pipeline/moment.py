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
    """A sample of a run."""

    at_us: int  # when, µs of virtual time
    # The global watermarks, as etcd has them.
    checkpoint_ts: int
    resolved_ts: int
    captures: tuple[CaptureFacts, ...] = ()  # those that run
    regions: tuple[RegionFacts, ...] = ()  # those that have a leader which runs
    # What the owner has of each capture that it counts; empty where nothing is known of it.
    reported: tuple[Reported, ...] = ()
    down: tuple[str, ...] = ()  # nodes that are down or paused, sorted
    stuck: Reason | None = None  # why the owner cannot count the watermarks, and since when; None where it can
    is_stopped: bool = False  # whether it is of a changefeed that a user has stopped

    @property
    def owner(self) -> CaptureFacts | None:
        return next((c for c in self.captures if c.is_owner), None)

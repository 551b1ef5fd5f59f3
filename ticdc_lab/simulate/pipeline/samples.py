"""What was seen of a pipeline at many moments, as tables; of a run, or of anything else that gives these facts."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import pyarrow as pa

from ticdc_lab.simulate.pipeline.capture.facts import capture_facts
from ticdc_lab.simulate.pipeline.capture.state import DataState
from ticdc_lab.simulate.pipeline.families import families
from ticdc_lab.simulate.pipeline.marks import Sample, watermarks
from ticdc_lab.simulate.pipeline.settings import BASE
from ticdc_lab.simulate.pipeline.stages import flow, queues, regions
from ticdc_lab.simulate.pipeline.tikv.facts import cf_rows, region_facts
from ticdc_lab.simulate.pipeline.tikv.store_state import StoreState
from ticdc_lab.simulate.scheduler.etcd import EtcdState

Snapshots = Iterable[tuple[int, Mapping[str, Any]]]
"""Moments (µs) with the states of all live nodes by address, as ``Run.snapshots``."""


class Seen(NamedTuple):
    """A run as its samples show it.

    Attributes
    ----------
    watermarks
        :data:`ticdc_lab.simulate.pipeline.marks.WATERMARKS`.
    queues, flow, regions
        :data:`~ticdc_lab.simulate.pipeline.stages.QUEUES`, :data:`~ticdc_lab.simulate.pipeline.stages.FLOW` and
        :data:`~ticdc_lab.simulate.pipeline.stages.REGIONS`.
    """

    watermarks: pa.Table
    queues: pa.Table
    flow: pa.Table
    regions: pa.Table


def seen(samples: Sequence[Sample]) -> Seen:
    """Give the tables of some samples, which stand in order of time."""
    return Seen(watermarks(samples), queues(samples), flow(samples), regions(samples))


def seen_in(snapshots: Snapshots, *, rule: str = BASE) -> Seen:
    """Give the tables of a run under a rule (of :data:`ticdc_lab.simulate.pipeline.settings.RULES`)."""
    return seen([sample(time_us, states, rule=rule) for time_us, states in snapshots])


def sample(time_us: int, states: Mapping[str, Any], *, rule: str = BASE) -> Sample:
    """Look at all nodes at a moment; where tables need not wait for it there is no global resolved_ts."""
    nodes = [states[address] for address in sorted(states)]
    etcd = next((state for state in nodes if isinstance(state, EtcdState)), None)
    return Sample(
        time_us,
        etcd.resolved_ts if etcd else 0,
        etcd.checkpoint_ts if etcd else 0,
        tuple(region for state in nodes if isinstance(state, StoreState) for region in region_facts(state)),
        tuple(capture_facts(state) for state in nodes if isinstance(state, DataState)),
    )


def families_in(snapshots: Snapshots, keys: Sequence[int]) -> pa.Table:
    """Give the history of some keys in a run, :data:`ticdc_lab.simulate.pipeline.families.FAMILIES`."""
    stores = (
        (time_us, [states[address] for address in sorted(states) if isinstance(states[address], StoreState)])
        for time_us, states in snapshots
    )
    return families((time_us, [row for key in keys for s in of for row in cf_rows(s, key)]) for time_us, of in stores)

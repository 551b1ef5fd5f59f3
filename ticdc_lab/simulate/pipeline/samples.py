"""What was seen of a pipeline at many moments, as tables; of a run, or of anything else that gives these facts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import pyarrow as pa

from ticdc_lab.simulate.pipeline.marks import Sample, watermarks
from ticdc_lab.simulate.pipeline.stages import flow, queues, regions


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

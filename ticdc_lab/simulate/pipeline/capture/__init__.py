"""The data path inside a capture: kv client, puller, matcher, sorter, schema storage, mounter, sink.

It wraps the scheduler's capture, which decides what is replicated where (:mod:`ticdc_lab.simulate.scheduler`).
"""

from __future__ import annotations

from ticdc_lab.simulate.pipeline.capture.machine import DataCapture
from ticdc_lab.simulate.pipeline.capture.state import DataState

__all__ = ["DataCapture", "DataState"]

"""Several changefeeds in one cluster: one election, and in each capture a processor for every changefeed.

As TiCDC has it: etcd holds each changefeed with its state and its checkpoint; every capture runs a processor for each
that is to run, and the one owner of the cluster a scheduler for each. What a changefeed does in a capture is the
machine of :mod:`ticdc_lab.simulate.pipeline.capture`; this room gives it a session, a name and a downstream of its own.
"""

from ticdc_lab.simulate.pipeline.changefeeds.etcd import (
    CreateChangefeed,
    ForChangefeed,
    PauseChangefeed,
    RemoveChangefeed,
    ResumeChangefeed,
)

__all__ = [
    "CreateChangefeed", "ForChangefeed", "PauseChangefeed", "RemoveChangefeed", "ResumeChangefeed",
]  # fmt: skip

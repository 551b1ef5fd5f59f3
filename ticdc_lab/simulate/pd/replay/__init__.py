"""Replaying records of the real PD: our PD's decision for each, beside the file's."""

from ticdc_lab.simulate.pd.replay.run import Replayed, replay

__all__ = ["Replayed", "replay"]

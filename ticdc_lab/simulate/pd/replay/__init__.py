"""Replaying records of the real PD: what our PD decides for each, beside what the file says."""

from ticdc_lab.simulate.pd.replay.run import Replayed, replay

__all__ = ["Replayed", "replay"]

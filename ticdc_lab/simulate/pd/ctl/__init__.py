"""A cluster from what pd-ctl prints."""

from ticdc_lab.simulate.pd.ctl.load import Loaded, from_pd_ctl

__all__ = ["Loaded", "from_pd_ctl"]

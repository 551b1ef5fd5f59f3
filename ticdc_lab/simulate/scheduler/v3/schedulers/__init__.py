"""The five schedulers of the owner, in the order in which they are asked."""

from ticdc_lab.simulate.scheduler.v3.schedulers.all import DRAINING_NOBODY, Schedulers, accepted, schedule
from ticdc_lab.simulate.scheduler.v3.schedulers.view import View

__all__ = ["DRAINING_NOBODY", "Schedulers", "View", "accepted", "schedule"]

"""Workloads: changes of an upstream of any size, from a seed, with everything known about them."""

from ticdc_lab.workload.generate import generate
from ticdc_lab.workload.load import load_of
from ticdc_lab.workload.log import log_of, write_log
from ticdc_lab.workload.settings import KINDS, Workload

__all__ = ["KINDS", "Workload", "generate", "load_of", "log_of", "write_log"]

"""Workloads: changes of an upstream of any size, from a seed, with everything known about them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ticdc_lab.lazily import lazily

if TYPE_CHECKING:
    from ticdc_lab.workload.generate import generate, generate_into, log_of
    from ticdc_lab.workload.load import load_of
    from ticdc_lab.workload.settings import KINDS, Workload

__all__ = ["KINDS", "Workload", "generate", "generate_into", "load_of", "log_of"]

lazily(__name__, __all__)

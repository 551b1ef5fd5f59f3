"""DDL as a Service: workers that run the DDL of many registered clusters.

Nodes: ``pd`` (the service's own store), ``ddl-service-node-1``, ... (workers), and of each registered cluster its store
(named by its ``store_addr``) and its tidb-servers. Workers and servers are the machines of :mod:`ticdc_lab.ddl_core`;
the kernel drives them here, and :mod:`ticdc_lab.ddl_service` drives the same workers over a real store.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ticdc_lab.lazily import lazily

if TYPE_CHECKING:
    from ticdc_lab.ddl_core.fleet import fleet_in
    from ticdc_lab.ddl_core.leading import assign
    from ticdc_lab.ddl_core.server_state import Habits, Submit
    from ticdc_lab.ddl_core.settings import Duties
    from ticdc_lab.simulate.ddl_service.progress import job_progress
    from ticdc_lab.simulate.ddl_service.replicated import done_jobs, load_with_ddl
    from ticdc_lab.simulate.ddl_service.run import simulate
    from ticdc_lab.simulate.ddl_service.scenario import play
    from ticdc_lab.simulate.ddl_service.world import ServiceSettings

__all__ = [
    "Duties", "Habits", "ServiceSettings", "Submit", "assign", "done_jobs", "fleet_in", "job_progress", "load_with_ddl",
    "play", "simulate",
]  # fmt: skip

lazily(__name__, __all__)
